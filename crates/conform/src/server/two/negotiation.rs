//! The version of a connection, and the inline thresholds that it brings.

use rpcrdma_proto::wire::{Body, ChunkLists, ErrorBody, two};
use rpcrdma_proto::{Limits, Profile};

use super::talk::{Case, Code, GARBAGE, Heard, SUCCESS, Talk, alive, call_words, encode, null_call};
use crate::endpoint::Next;
use crate::message::{Reaction, RpcEnd, Words, answer, is_for};
use crate::report::{Outcome, Wrong, fail, not_applicable};
use crate::server::bench::{Bench, CREDITS};

/// Maximum length of the first message, in bytes.
const FIRST: usize = 1024;
/// Default inline threshold, in bytes.
const THRESHOLD: usize = 4096;

pub(super) async fn null(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    // A second reply to the first call would come before the reply to this one.
    talk.null(bench).await?;
    let credit = talk.credit;
    talk.finish(bench).await?;
    Ok(format!("two replies, rdma_credit {credit}"))
}

/// Sends other versions first. The server must not take them for Version Two, and must say that it speaks it.
pub(super) async fn unknown(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut ranges = Vec::new();
    for version in [0, 3, u32::MAX] {
        let mut talk = Talk::open(bench, profile).await?;
        let xid = bench.xid();
        let payload = bench.null_rpc().call(xid, 0).finish();
        let words = call_words(profile, &[0, 0, 0]);
        talk.send(Words::new().words(&[xid, version, CREDITS]).words(&words).bytes(&payload).finish());
        let seen = talk.observe(xid, bench.limit()).await;
        let (Some(ErrorBody::Version { low, high }), Some(header)) = (seen.error(), &seen.header) else {
            return Err(fail(format!("version {version}: {}", seen.heard)));
        };
        if !(*low..=*high).contains(&2) || (*low..=*high).contains(&version) {
            return Err(fail(format!("version {version}: ERR_VERS with the range {low}-{high}")));
        }
        // RFC 8166 §4.5, version-two-07 §7: the version of the failing request.
        if header.version != version {
            return Err(fail(format!("version {version}: ERR_VERS under version {}", header.version)));
        }
        ranges.push(format!("ERR_VERS {low}-{high}"));
        talk.null(bench).await?;
        talk.endpoint.close().await;
    }
    alive(bench, profile).await?;
    ranges.dedup();
    Ok(format!("{}, then Version Two is served", ranges.join(", ")))
}

/// Sends a NULL call in Version One, and returns the reaction.
async fn in_version_one(bench: &mut Bench<'_>, talk: &mut Talk) -> Reaction {
    let (xid, message) = bench.null_message(CREDITS);
    talk.send(message);
    loop {
        let arrived = match talk.endpoint.next(bench.limit()).await {
            Next::Message(arrived) => arrived,
            Next::Silence => return Reaction::Nothing,
            Next::Closed(_) => return Reaction::Closed,
        };
        // Operations of Version Two may still be on their way.
        if is_for(&arrived.bytes, xid) {
            return match answer(&arrived.bytes, xid).reaction {
                // Words of Version Two.
                Reaction::Odd(what) => {
                    error_of_two(talk.profile, &arrived.bytes).unwrap_or(Reaction::Odd(what))
                }
                reaction => reaction,
            };
        }
    }
}

/// Reads an RDMA2_ERROR with VERS_MISMATCH under the version of the request (version-two-07 §7).
fn error_of_two(profile: Profile, bytes: &[u8]) -> Option<Reaction> {
    let (header, _) = profile.codec().decode(bytes, &Limits::default()).ok()?;
    let mismatch = ErrorBody::Two(two::ErrorBody::VersionMismatch);
    match header.body {
        Body::Error(error) if error == mismatch && header.version == 1 => {
            Some(Reaction::Odd(Code::Mismatch.to_string()))
        }
        Body::Error(error) if error == mismatch => {
            Some(Reaction::Odd(format!("VERS_MISMATCH under version {}", header.version)))
        }
        _ => None,
    }
}

/// Changes to Version One on a connection that speaks Version Two.
pub(super) async fn changed(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let reaction = in_version_one(bench, &mut talk).await;
    let seen = match (&reaction, profile) {
        (Reaction::Odd(what), Profile::P3) if *what == Code::Mismatch.to_string() => reaction.to_string(),
        (Reaction::ErrVers { low, high, .. }, Profile::P1 | Profile::P2) if !(*low..=*high).contains(&1) => {
            reaction.to_string()
        }
        // Replies have the version of their Calls (version-two-01 §5.3, version-two-03 §7.3).
        (Reaction::Reply(RpcEnd::Success), Profile::P1 | Profile::P2) => "a reply in Version One".to_owned(),
        _ => return Err(fail(reaction.to_string())),
    };
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(seen)
}

/// Begins with Version One.
pub(super) async fn one_first(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::open(bench, profile).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let reaction = in_version_one(bench, &mut talk).await;
        match reaction {
            Reaction::Reply(RpcEnd::Success) => {}
            Reaction::ErrVers { low, high, version: 1 } if low > 1 && (low..=high).contains(&2) => {}
            reaction => return Err(fail(reaction.to_string())),
        }
        seen.push(reaction.to_string());
    }
    talk.endpoint.close().await;
    alive(bench, profile).await?;
    seen.dedup();
    Ok(seen.join(", then "))
}

/// Returns a NULL call of this length: bytes that the call does not have stand behind it.
fn long_null(bench: &mut Bench<'_>, profile: Profile, len: usize) -> Case {
    let (xid, message) = null_call(bench, profile, ChunkLists::default());
    let payload = bench.null_rpc().call(xid, 0).bytes(&vec![0; len - message.len()]).finish();
    let bytes = encode(profile, xid, 0, Body::Message(ChunkLists::default()), &payload);
    Case { label: String::new(), xid, bytes }
}

pub(super) async fn first_message(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::open(bench, profile).await?;
    let case = long_null(bench, profile, FIRST);
    let answer = talk.provoke(bench, case, &[SUCCESS, GARBAGE]).await?;
    talk.finish(bench).await?;
    Ok(format!("a call of {FIRST} bytes, {}", answer.heard))
}

pub(super) async fn threshold(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let case = long_null(bench, profile, THRESHOLD);
    let answer = talk.provoke(bench, case, &[SUCCESS, GARBAGE]).await?;
    talk.finish(bench).await?;
    Ok(format!("a call of {THRESHOLD} bytes, {}", answer.heard))
}

/// Checks that the server speaks Version Two: otherwise no row is applicable.
pub(in crate::server) async fn spoken(bench: &mut Bench<'_>, profile: Profile) -> Result<(), Wrong> {
    let mut talk = Talk::open(bench, profile).await?;
    let (xid, message) = null_call(bench, profile, ChunkLists::default());
    talk.send(message);
    let seen = talk.observe(xid, bench.limit()).await;
    talk.endpoint.close().await;
    match (seen.error(), &seen.heard) {
        (Some(ErrorBody::Version { low, high }), _) if !(*low..=*high).contains(&2) => {
            Err(not_applicable(format!("the server speaks versions {low} to {high}")))
        }
        // A server without Version Two may discard the message, or end the connection (version-two-01 §5.2).
        (_, Heard::Nothing | Heard::Closed) if bench.alive().await.is_ok() => {
            let heard = &seen.heard;
            Err(not_applicable(format!("{heard} in answer to Version Two, and Version One is served")))
        }
        _ => Ok(()),
    }
}
