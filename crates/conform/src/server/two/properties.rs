//! Transport characteristics, called properties in P2 and P3: what each side tells, and what the server refuses.
//!
//! The operations of P1 and P2 are optional. If the server refuses them as unknown, their rows are not applicable.

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::ChunkLists;
use rpcrdma_proto::wire::two::{Exchange, Rest, Subset, Value};

use super::talk::{Case, Code, Heard, Talk, Told, each, null_call, operation, raw};
use crate::message::Words;
use crate::report::{Outcome, Wrong, fail, not_applicable};
use crate::server::bench::Bench;

/// An identifier that no document defines.
const UNKNOWN: u32 = 0x7777;

/// Returns the identifier of the receive buffer size.
const fn receive_size(profile: Profile) -> u32 {
    match profile {
        Profile::P3 => 2,
        _ => 1,
    }
}

/// Returns the identifier of the support for reverse calls, and the first level that does not exist.
const fn reverse(profile: Profile) -> (u32, u32) {
    match profile {
        Profile::P1 => (3, 3),
        Profile::P2 => (2, 3),
        _ => (5, 4),
    }
}

fn value(id: u32, words: &[u32]) -> Value {
    Value { id, data: Words::new().words(words).finish() }
}

/// Returns the operation by which a side tells its values.
fn tell(values: Vec<Value>) -> Exchange {
    Exchange::Initial { start: values, constant: Subset::default() }
}

/// Tells values, which the server must take without an answer.
pub(super) async fn announce(
    bench: &mut Bench<'_>,
    talk: &mut Talk,
    values: Vec<Value>,
) -> Result<(), Wrong> {
    let xid = bench.xid();
    talk.send(operation(talk.profile, xid, tell(values)));
    let heard = talk.observe(xid, bench.target.silence).await.heard;
    supported(talk.profile, &heard)?;
    match heard {
        Heard::Nothing => Ok(()),
        heard => Err(fail(heard.to_string())),
    }
}

/// Checks that the server knows operations on characteristics.
fn supported(profile: Profile, heard: &Heard) -> Result<(), Wrong> {
    let unknown = matches!(heard, Heard::Error(Code::Option))
        || (profile == Profile::P2 && *heard == Heard::Error(Code::Type));
    match unknown {
        true if profile != Profile::P3 => {
            Err(not_applicable(format!("the server does not exchange characteristics: {heard}")))
        }
        _ => Ok(()),
    }
}

/// Opens a connection to a server that takes operations on characteristics.
async fn ready(bench: &mut Bench<'_>, profile: Profile) -> Result<Talk, Wrong> {
    let mut talk = Talk::ready(bench, profile).await?;
    // In P3 the properties can be told once only, and each row tells its own.
    if profile != Profile::P3 {
        announce(bench, &mut talk, vec![]).await?;
    }
    Ok(talk)
}

/// Sends an operation, with the usual checks.
async fn one(bench: &mut Bench<'_>, profile: Profile, exchange: Exchange, allowed: &[Heard]) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    let xid = bench.xid();
    let bytes = operation(profile, xid, exchange);
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, allowed).await?;
    check_told(&talk)?;
    talk.finish(bench).await?;
    Ok(answer.heard.to_string())
}

/// Checks the values that the server has told.
pub(super) async fn told(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    if profile == Profile::P3 {
        announce(bench, &mut talk, vec![value(receive_size(profile), &[8192])]).await?;
    }
    talk.null(bench).await?;
    talk.null(bench).await?;
    check_told(&talk)?;
    let values: usize = talk.told.iter().map(|told| values_of(&told.exchange).len()).sum();
    let operations = talk.told.len();
    talk.finish(bench).await?;
    Ok(match operations {
        0 => "the server tells nothing".into(),
        _ => format!("operations: {operations}, values: {values}"),
    })
}

fn values_of(exchange: &Exchange) -> &[Value] {
    match exchange {
        Exchange::Part { start } | Exchange::Initial { start, .. } => start,
        Exchange::Request { want } => want,
        Exchange::Update { now, .. } => now,
        Exchange::Response { rest: Rest::Other(values), .. } => values,
        Exchange::Response { .. } => &[],
    }
}

/// Checks every operation of the server.
fn check_told(talk: &Talk) -> Result<(), Wrong> {
    let mut ended = false;
    for Told { exchange, len, .. } in &talk.told {
        if let Some(bad) = values_of(exchange).iter().find(|value| !is_of_its_type(talk.profile, value)) {
            return Err(fail(format!(
                "value {} with {} bytes that are not of its type",
                bad.id,
                bad.data.len()
            )));
        }
        if talk.profile == Profile::P3 {
            // version-two-07 §6.3.4
            if ended {
                return Err(fail("properties after the final message of them"));
            }
            if *len > 4096 {
                return Err(fail(format!("properties in a message of {len} bytes")));
            }
            ended = matches!(exchange, Exchange::Initial { .. });
        }
    }
    Ok(())
}

/// Returns whether the data of a value is of its type. Values without a type of fixed length pass.
fn is_of_its_type(profile: Profile, Value { id, data }: &Value) -> bool {
    if data.is_empty() && profile != Profile::P1 {
        // version-two-03 §5.1.1, version-two-07 §5.1: the default.
        return true;
    }
    let word = <[u8; 4]>::try_from(&data[..]).ok().map(u32::from_be_bytes);
    let (brs, end) = reverse(profile);
    match (profile, *id) {
        (_, id) if id == brs => word.is_some_and(|word| word < end),
        (Profile::P1, 2) => word.is_some_and(|word| word < 2),
        (Profile::P1, 1 | 4 | 6 | 7) | (Profile::P2, 1 | 3 | 5 | 6) | (Profile::P3, 1..=4) => word.is_some(),
        _ => true,
    }
}

pub(super) async fn unknown(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let strange = Value { id: UNKNOWN, data: Bytes::from_static(b"strange") };
    let values = vec![strange, value(receive_size(profile), &[8192])];
    one(bench, profile, tell(values), &[Heard::Nothing]).await
}

/// Tells values without data: they mean the defaults.
pub(super) async fn empty(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let values = vec![value(receive_size(profile), &[]), value(reverse(profile).0, &[])];
    one(bench, profile, tell(values), &[Heard::Nothing]).await
}

/// Returns the error for data that is not of the type of its value.
const fn bad(profile: Profile) -> Heard {
    match profile {
        Profile::P3 => Heard::Error(Code::Value),
        _ => Heard::Error(Code::BadXdr),
    }
}

pub(super) async fn bad_value(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (brs, level) = reverse(profile);
    let short = Value { id: receive_size(profile), data: Bytes::from_static(&[0; 3]) };
    let mut seen = String::new();
    for wrong in [short, value(brs, &[level])] {
        let id = wrong.id;
        let outcome = one(bench, profile, tell(vec![wrong]), &[bad(profile)]).await;
        seen = outcome.map_err(|wrong| Wrong { seen: format!("value {id}: {}", wrong.seen), ..wrong })?;
    }
    Ok(seen)
}

/// Sends an operation whose last value goes on behind the end of the message.
pub(super) async fn cut(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    ready(bench, profile).await?.endpoint.close().await;
    let xid = bench.xid();
    let whole = match profile {
        // P2 has the set of constant values behind the values, which here is missing as well.
        Profile::P2 => raw(profile, xid, &[6, 1, 1, 4, 8192], &[]),
        _ => operation(profile, xid, tell(vec![value(receive_size(profile), &[8192])])),
    };
    let bytes = whole.slice(..whole.len() - 4);
    let cases = vec![Case { label: String::new(), xid, bytes }];
    each(bench, profile, cases, &[bad(profile)]).await
}

/// Asks the server for two values, one of which it cannot know.
pub(super) async fn asked(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    let xid = bench.xid();
    let want = vec![value(receive_size(profile), &[8192]), value(UNKNOWN, &[1])];
    let asked = want.len();
    talk.send(operation(profile, xid, Exchange::Request { want }));
    let heard = talk.observe(xid, bench.target.silence).await.heard;
    supported(profile, &heard)?;
    if heard != Heard::Nothing {
        return Err(fail(heard.to_string()));
    }
    talk.null(bench).await?;
    check_told(&talk)?;
    let is_response = |told: &&Told| matches!(told.exchange, Exchange::Response { .. });
    let mut responses = talk.told.iter().filter(is_response);
    let seen = match (responses.next(), responses.next()) {
        (None, _) => return Err(fail("no response")),
        (Some(_), Some(_)) => return Err(fail("a second response")),
        (Some(told), _) if told.xid != xid => {
            return Err(fail(format!("a response under XID {:#010x}, not {xid:#010x}", told.xid)));
        }
        (Some(told), None) => response(&told.exchange, asked, receive_size(profile))?,
    };
    talk.finish(bench).await?;
    Ok(seen)
}

/// Checks that a response says one thing of each value, and rejects the second.
fn response(exchange: &Exchange, asked: usize, first: u32) -> Outcome {
    let Exchange::Response { done, rejected, rest } = exchange else { return Err(fail("no response")) };
    let mut seen = Vec::new();
    for place in 0..asked {
        let other = match rest {
            Rest::Pending(pending) => pending.contains(place),
            Rest::Other(values) => place == 0 && values.iter().any(|value| value.id == first),
        };
        seen.push(match (done.contains(place), rejected.contains(place), other) {
            (true, false, false) => "done",
            (false, true, false) => "rejected",
            (false, false, true) => "not yet",
            (false, false, false) => return Err(fail(format!("the response leaves out value {place}"))),
            _ => return Err(fail(format!("the response says several things of value {place}"))),
        });
    }
    match seen.last() {
        Some(&"rejected") => Ok(format!("a response: {}", seen.join(", "))),
        _ => Err(fail(format!("an unknown value is {}", seen.join(", ")))),
    }
}

pub(super) async fn response_to_nothing(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let rest = match profile {
        Profile::P1 => Rest::Pending(Subset::default()),
        _ => Rest::Other(vec![]),
    };
    let exchange = Exchange::Response { done: [0].into_iter().collect(), rejected: Subset::default(), rest };
    one(bench, profile, exchange, &[Heard::Nothing]).await
}

/// Tells properties again after the final message.
pub(super) async fn told_twice(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    announce(bench, &mut talk, vec![value(2, &[8192])]).await?;
    for (label, exchange) in [
        ("final", tell(vec![value(2, &[4096])])),
        ("middle", Exchange::Part { start: vec![value(2, &[4096])] }),
    ] {
        let xid = bench.xid();
        let case = Case { label: label.into(), xid, bytes: operation(profile, xid, exchange) };
        talk.provoke(bench, case, &[Heard::Error(Code::Continuation)]).await?;
    }
    talk.finish(bench).await?;
    Ok("INVAL_CONT (2 messages)".into())
}

/// Makes a call between two messages with properties.
pub(super) async fn interrupted(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let xid = bench.xid();
    talk.send(operation(profile, xid, Exchange::Part { start: vec![value(1, &[4096])] }));
    let (xid, message) = null_call(bench, profile, ChunkLists::default());
    talk.send(message);
    let heard = talk.observe(xid, bench.limit()).await.heard;
    if heard != Heard::Error(Code::Continuation) {
        return Err(fail(heard.to_string()));
    }
    // A server may consider the properties ended by its refusal: either answer to the rest is right.
    let xid = bench.xid();
    talk.send(operation(profile, xid, tell(vec![value(2, &[8192])])));
    match talk.observe(xid, bench.target.silence).await.heard {
        Heard::Nothing | Heard::Error(Code::Continuation) => {}
        heard => return Err(fail(format!("the rest of the properties: {heard}"))),
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok("INVAL_CONT for the call, then it is served".into())
}

/// Sends operations that no document defines.
pub(super) async fn unknown_operation(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    for number in [0, 99, u32::MAX] {
        let xid = bench.xid();
        let bytes = raw(profile, xid, &[5, 0, number, 0], &[]);
        cases.push(Case { label: format!("rdma_opttype {number}"), xid, bytes });
    }
    each(bench, profile, cases, &[Heard::Error(Code::Option)]).await
}
