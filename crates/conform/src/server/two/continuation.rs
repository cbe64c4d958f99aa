//! Messages in several Sends (version-two-07 §6.3.6), and credits that count messages (§4.2.1).

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::{Body, ChunkLists, two};

use super::talk::{Case, Code, Heard, LIMIT, SUCCESS, Talk, alive, call_words, each, encode, null_call, raw};
use crate::message::{Words, u32_of};
use crate::report::{Outcome, Wrong, differs, fail};
use crate::server::bench::Bench;

/// Length of the first part of a NULL call, in bytes.
const CUT: usize = 20;
/// Number of connections that a row opens at once.
const MANY: usize = 8;
/// Maximum number of calls in flight.
const MOST_IN_FLIGHT: u32 = 64;
/// Number of calls beyond any limit.
const FLOOD: u32 = 400;

/// Returns a RDMA2_CALL_MIDDLE.
fn middle(profile: Profile, xid: u32, remaining: u32, payload: &[u8]) -> Bytes {
    encode(profile, xid, 0, Body::Two(two::Body::Middle { remaining }), payload)
}

/// Returns a RDMA2_CALL_INLINE.
fn last(profile: Profile, xid: u32, payload: &[u8]) -> Bytes {
    encode(profile, xid, 0, Body::Message(ChunkLists::default()), payload)
}

/// A NULL call in two parts.
fn parts(bench: &mut Bench<'_>) -> (u32, Bytes, Bytes) {
    let xid = bench.xid();
    let mut call = bench.null_rpc().call(xid, 0).finish();
    let first = call.split_to(CUT);
    (xid, first, call)
}

pub(super) async fn continued(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    for _ in 0..3 {
        let (xid, first, rest) = parts(bench);
        let (second, third) = (rest.slice(..8), rest.slice(8..));
        talk.send(middle(profile, xid, u32_of(rest.len()), &first));
        talk.send(middle(profile, xid, u32_of(third.len()), &second));
        let case = Case { label: String::new(), xid, bytes: last(profile, xid, &third) };
        talk.provoke(bench, case, &[SUCCESS]).await?;
    }
    talk.finish(bench).await?;
    Ok("three calls in three messages each".into())
}

/// Sends a whole call between the parts of another.
pub(super) async fn interrupted(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let (outer, first, rest) = parts(bench);
    talk.send(middle(profile, outer, u32_of(rest.len()), &first));
    let (inner, message) = null_call(bench, profile, ChunkLists::default());
    talk.send(message);
    let heard = talk.observe(inner, bench.limit()).await.heard;
    if heard != Heard::Error(Code::Continuation) {
        return Err(fail(heard.to_string()));
    }
    // The refused message is dropped. The text does not say whether the parts may go on after it (§6.3.6, §7.1.4).
    talk.send(last(profile, outer, &rest));
    let heard = talk.observe(outer, bench.target.silence).await.heard;
    if ![SUCCESS, Heard::Nothing, Heard::Error(Code::Continuation)].contains(&heard) {
        return Err(fail(format!("the rest of the first call: {heard}")));
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(format!("INVAL_CONT for the call between, the rest of the other: {heard}"))
}

/// Sends parts whose lengths disagree with `rdma_remaining`.
pub(super) async fn remaining(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    for (label, remaining) in [("4 bytes more", 24), ("4 bytes less", 16)] {
        let (xid, first, rest) = parts(bench);
        talk.send(middle(profile, xid, remaining, &first));
        let case = Case { label: label.into(), xid, bytes: last(profile, xid, &rest) };
        talk.provoke(bench, case, &[Heard::Error(Code::Continuation)]).await?;
    }
    talk.finish(bench).await?;
    Ok("INVAL_CONT (2 messages)".into())
}

pub(super) async fn too_long(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (xid, first, _) = parts(bench);
    let bytes = middle(profile, xid, u32::MAX - 3, &first);
    let allowed = [Heard::Error(Code::Continuation), Heard::Error(Code::System)];
    each(bench, profile, vec![Case { label: String::new(), xid, bytes }], &allowed).await
}

pub(super) async fn empty(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let xid = bench.xid();
    let bytes = middle(profile, xid, 40, &[]);
    let allowed = [Heard::Error(Code::BadXdr), Heard::Error(Code::Continuation)];
    each(bench, profile, vec![Case { label: String::new(), xid, bytes }], &allowed).await
}

/// Begins calls that are never finished; others are served meanwhile and afterwards.
pub(super) async fn never(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut open = Vec::new();
    for _ in 0..MANY {
        let mut talk = Talk::ready(bench, profile).await?;
        let (xid, first, rest) = parts(bench);
        talk.send(middle(profile, xid, u32_of(rest.len()), &first));
        talk.endpoint.push().await;
        open.push(talk);
    }
    alive(bench, profile).await?;
    for talk in open {
        talk.endpoint.abort().await;
    }
    alive(bench, profile).await?;
    Ok(format!("a new connection is served beside {MANY} unfinished calls, and after them"))
}

/// Returns how many messages the limit of the server still allows.
fn allowed(talk: &Talk) -> i64 {
    // The comparison is modulo 2^32 (version-two-07 §4.2.1).
    let left = talk.credit.wrapping_sub(talk.sent);
    if left < 1 << 31 { i64::from(left) } else { i64::from(left) - (1 << 32) }
}

pub(super) async fn limit_grows(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let mut least = i64::MAX;
    for _ in 0..100 {
        talk.null(bench).await?;
        least = least.min(allowed(&talk));
        if allowed(&talk) < 1 {
            // A grant may follow.
            talk.observe(0, bench.target.silence).await;
        }
        if allowed(&talk) < 1 {
            return Err(fail(format!(
                "rdma_credit {} after {} messages: none may follow",
                talk.credit, talk.sent
            )));
        }
    }
    talk.finish(bench).await?;
    Ok(format!("the limit stays at least {least} messages ahead"))
}

/// Makes as many calls at once as granted. In P1 and P2 the grant counts calls, in P3 messages.
pub(super) async fn up_to_the_grant(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    for _ in 0..3 {
        let grant = match profile {
            Profile::P3 => u32::try_from(allowed(&talk)).unwrap_or(0),
            _ => talk.credit,
        };
        let count = grant.min(MOST_IN_FLIGHT);
        let answered = flood(bench, &mut talk, count).await?;
        if answered < count {
            let left = count - answered;
            return Err(fail(format!("{count} calls at once within the grant: {left} calls have no reply")));
        }
    }
    let credit = talk.credit;
    talk.finish(bench).await?;
    Ok(format!("three rounds of all calls at once, the last rdma_credit is {credit}"))
}

/// Makes so many calls at once, and returns how many are answered.
async fn flood(bench: &mut Bench<'_>, talk: &mut Talk, count: u32) -> Result<u32, Wrong> {
    let mut waiting = Vec::new();
    for _ in 0..count {
        let (xid, message) = null_call(bench, talk.profile, ChunkLists::default());
        talk.send(message);
        waiting.push(xid);
    }
    let mut answered = 0;
    while !waiting.is_empty() {
        let answer = talk.observe_any(&mut waiting, bench.limit()).await;
        match answer.heard {
            Heard::Nothing | Heard::Closed => break,
            heard if heard == SUCCESS => answered += 1,
            heard => return Err(fail(heard.to_string())),
        }
    }
    Ok(answered)
}

pub(super) async fn beyond_the_grant(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let grant = match profile {
        Profile::P3 => u32::try_from(allowed(&talk)).unwrap_or(0),
        _ => talk.credit,
    };
    let count = grant.saturating_add(FLOOD).min(900);
    talk.endpoint.add_receives(usize::try_from(count).unwrap_or(0));
    let answered = flood(bench, &mut talk, count).await?;
    let ended = talk.endpoint.has_ended();
    talk.endpoint.close().await;
    alive(bench, profile).await?;
    match (answered == count, ended) {
        (true, _) => Ok(format!("all {count} calls answered")),
        (_, true) => Ok(format!("connection closed after {answered} of {count} replies")),
        _ => Err(differs(format!(
            "{} of {count} calls are never answered, the connection stays",
            count - answered
        ))),
    }
}

/// Allows the server no message, then one by an RDMA2_GRANT.
pub(super) async fn withheld(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    // Messages of the server that are still on their way count.
    if talk.observe(0, bench.target.silence).await.heard != Heard::Nothing {
        return Err(fail("a message without a call"));
    }
    let xid = bench.xid();
    let payload = bench.null_rpc().call(xid, 0).finish();
    // By the letter a message may leave when as many have left as are allowed (version-two-07 §4.2.1).
    let withheld = talk.received.wrapping_sub(1);
    let words = call_words(profile, &[0, 0, 0]);
    talk.send(Words::new().words(&[xid, 2, withheld]).words(&words).bytes(&payload).finish());
    match talk.observe(xid, bench.target.silence).await.heard {
        Heard::Nothing => {}
        heard => return Err(fail(format!("beyond the limit of {withheld} messages: {heard}"))),
    }
    // Senders set the XID of a grant to zero (§6.3.2).
    talk.send(raw(profile, 0, &[5], &[]));
    match talk.observe(xid, bench.limit()).await.heard {
        heard if heard == SUCCESS => {}
        heard => return Err(fail(format!("after an RDMA2_GRANT of {LIMIT}: {heard}"))),
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok("the reply waits for the grant".into())
}
