//! Headers that no correct client sends: truncated, of other versions and procedures, with false lists (RFC 8166 §4.2
//! to §4.6).
//!
//! The payload behind them is a NULL call, so that any interpretation by the server is harmless.

use bytes::Bytes;

use super::bench::{Bench, CREDITS};
use super::hostile::{Allowed, Case, DISCARD, ERR_CHUNK, REFUSE, SHOULD_REFUSE, Seen, each, only, provoke};
use crate::message::{
    ERR_CHUNK as CODE_CHUNK, ERR_VERS, Kind, LEAST_HEADER, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP,
    RDMA_NOMSG, Reaction, RpcEnd, Words,
};
use crate::report::{Outcome, fail};

/// A handle that names no window, a length and an offset.
const NOWHERE: [u32; 3] = [0x00ba_d000, 0, 4096];

/// Returns an `HLOO` of memory that does not exist.
fn bogus(length: u32) -> [u32; 4] {
    let [handle, high, low] = NOWHERE;
    [handle, length, high, low]
}

/// Returns a message with these words after `rdma_xid`, and a NULL call behind them.
fn case(bench: &mut Bench<'_>, label: impl Into<String>, words: &[u32]) -> Case {
    let xid = bench.xid();
    let bytes =
        Words::new().words(&[xid]).words(words).bytes(&bench.null_rpc().call(xid, 0).finish()).finish();
    Case { label: label.into(), xid, bytes }
}

/// Returns a message of Version One with this procedure and these words, and a NULL call behind them.
fn lists(bench: &mut Bench<'_>, label: impl Into<String>, procedure: u32, words: &[u32]) -> Case {
    let head = [1, CREDITS, procedure];
    case(bench, label, &[&head, words].concat())
}

/// Returns a message of Version One with this procedure and these words, without a payload.
fn bare(bench: &mut Bench<'_>, label: impl Into<String>, procedure: u32, words: &[u32]) -> Case {
    let xid = bench.xid();
    let bytes = Words::new().words(&[xid, 1, CREDITS, procedure]).words(words).finish();
    Case { label: label.into(), xid, bytes }
}

pub(super) async fn short(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for len in 0..LEAST_HEADER {
        let Case { xid, bytes, .. } = lists(bench, "", RDMA_MSG, &[0, 0, 0]);
        cases.push(Case { label: format!("{len} bytes"), xid, bytes: bytes.slice(..len) });
    }
    each(bench, cases, DISCARD).await
}

/// Sends a header with this list, cut off at every byte from the shortest header on.
async fn cut(bench: &mut Bench<'_>, words: &[u32]) -> Outcome {
    let whole = 16 + words.len() * 4;
    let mut cases = Vec::new();
    for len in LEAST_HEADER..whole {
        let Case { xid, bytes, .. } = lists(bench, "", RDMA_MSG, words);
        cases.push(Case { label: format!("{len} of {whole} bytes"), xid, bytes: bytes.slice(..len) });
    }
    each(bench, cases, ERR_CHUNK).await
}

pub(super) async fn cut_read_list(bench: &mut Bench<'_>) -> Outcome {
    cut(bench, &[&[1, 40][..], &bogus(8), &[0, 0, 0]].concat()).await
}

pub(super) async fn cut_write_list(bench: &mut Bench<'_>) -> Outcome {
    cut(bench, &[&[0, 1, 1][..], &bogus(8), &[0, 0]].concat()).await
}

pub(super) async fn cut_reply_chunk(bench: &mut Bench<'_>) -> Outcome {
    cut(bench, &[&[0, 0, 1, 1][..], &bogus(8)].concat()).await
}

pub(super) async fn version(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let mut seen = Seen::default();
    for version in [0, 77, u32::MAX] {
        let case = case(bench, format!("version {version}"), &[version, CREDITS, RDMA_MSG, 0, 0, 0]);
        if endpoint.has_ended() {
            (endpoint, _) = bench.ready().await?;
        }
        let answer = provoke(bench, &mut endpoint, &case, only(&[Kind::ErrVers]), &mut seen).await?;
        if let Reaction::ErrVers { low, high, version: returned } = answer {
            if !(low..=high).contains(&1) || (low..=high).contains(&version) {
                return Err(fail(format!("version {version}: ERR_VERS with the range {low}-{high}")));
            }
            // RFC 8166 §4.5: the version of the failing request.
            if returned != version {
                return Err(fail(format!("version {version}: ERR_VERS under version {returned}")));
            }
        }
    }
    endpoint.close().await;
    bench.alive().await?;
    seen.finish()
}

pub(super) async fn procedure(bench: &mut Bench<'_>) -> Outcome {
    let cases = [5, 256, u32::MAX]
        .map(|procedure| lists(bench, format!("rdma_proc {procedure}"), procedure, &[0, 0, 0]));
    each(bench, cases.into(), ERR_CHUNK).await
}

pub(super) async fn msgp(bench: &mut Bench<'_>) -> Outcome {
    let cases = vec![lists(bench, "", RDMA_MSGP, &[4096, 1024, 0, 0, 0])];
    each(bench, cases, Allowed { pass: &[Kind::ErrChunk], differs: &[Kind::Success, Kind::Nothing] }).await
}

pub(super) async fn done(bench: &mut Bench<'_>) -> Outcome {
    let cases =
        vec![bare(bench, "16 bytes", RDMA_DONE, &[]), lists(bench, "with more", RDMA_DONE, &[0, 0, 0])];
    each(bench, cases, DISCARD).await
}

pub(super) async fn error(bench: &mut Bench<'_>) -> Outcome {
    let cases = vec![
        bare(bench, "ERR_CHUNK", RDMA_ERROR, &[CODE_CHUNK]),
        bare(bench, "ERR_VERS", RDMA_ERROR, &[ERR_VERS, 1, 1]),
        bare(bench, "ERR_VERS cut off", RDMA_ERROR, &[ERR_VERS, 1]),
        bare(bench, "no code", RDMA_ERROR, &[]),
        bare(bench, "unknown code", RDMA_ERROR, &[99, 0, 0]),
        lists(bench, "with a call behind it", RDMA_ERROR, &[CODE_CHUNK, 0, 0]),
    ];
    each(bench, cases, DISCARD).await
}

/// Sends an RDMA_ERROR of an unknown version. An error must not be answered, but an unknown version must be: two rules
/// conflict.
pub(super) async fn error_of_another_version(bench: &mut Bench<'_>) -> Outcome {
    let xid = bench.xid();
    let bytes = Words::new().words(&[xid, 9, CREDITS, RDMA_ERROR, ERR_VERS, 1, 1]).finish();
    let case = Case { label: String::new(), xid, bytes };
    each(bench, vec![case], only(&[Kind::Nothing, Kind::ErrVers])).await
}

pub(super) async fn discriminators(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for (list, words) in [("Read list", [2, 0, 0]), ("Write list", [0, 2, 0]), ("Reply chunk", [0, 0, 2])] {
        cases.push(lists(bench, format!("2 in the {list}"), RDMA_MSG, &words));
        let words = words.map(|word| if word == 2 { u32::MAX } else { word });
        cases.push(lists(bench, format!("{} in the {list}", u32::MAX), RDMA_MSG, &words));
    }
    each(bench, cases, ERR_CHUNK).await
}

/// Sends counts of segments that the message does not have. The next words are those of a NULL call: XID, CALL and so
/// on.
pub(super) async fn counts(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for count in [9, 4096, 0x1000_0000, u32::MAX] {
        cases.push(lists(bench, format!("{count} in a Write chunk"), RDMA_MSG, &[0, 1, count]));
        cases.push(lists(bench, format!("{count} in the Reply chunk"), RDMA_MSG, &[0, 0, 1, count]));
    }
    each(bench, cases, ERR_CHUNK).await
}

pub(super) async fn unaligned(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for position in [41, 42, 43, u32::MAX] {
        let words = [&[1, position][..], &bogus(8), &[0, 0, 0]].concat();
        cases.push(lists(bench, format!("Position {position}"), RDMA_MSG, &words));
    }
    each(bench, cases, REFUSE).await
}

pub(super) async fn beyond(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let mut seen = Seen::default();
    for position in [400, 0x7fff_fffc, 0xffff_fffc] {
        let there = endpoint.readable(Bytes::from_static(&[0; 8]));
        let words = [1, position, there.handle, there.length, high(there.offset), low(there.offset), 0, 0, 0];
        let case = lists(bench, format!("Position {position}"), RDMA_MSG, &words);
        provoke(bench, &mut endpoint, &case, SHOULD_REFUSE, &mut seen).await?;
        if endpoint.has_ended() {
            (endpoint, _) = bench.ready().await?;
        }
    }
    endpoint.close().await;
    bench.alive().await?;
    seen.finish()
}

pub(super) async fn overlapping(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let mut words = Vec::new();
    for position in [40, 44] {
        let there = endpoint.readable(Bytes::from_static(&[0; 8]));
        words.extend([1, position, there.handle, there.length, high(there.offset), low(there.offset)]);
    }
    words.extend([0, 0, 0]);
    let case = lists(bench, "", RDMA_MSG, &words);
    let mut seen = Seen::default();
    provoke(bench, &mut endpoint, &case, SHOULD_REFUSE, &mut seen).await?;
    endpoint.close().await;
    bench.alive().await?;
    seen.finish()
}

pub(super) fn high(offset: u64) -> u32 {
    u32::try_from(offset >> 32).unwrap_or(u32::MAX)
}

pub(super) fn low(offset: u64) -> u32 {
    u32::try_from(offset & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Sends a NULL call inline, and another copy of the call in a Position-Zero chunk. RFC 8166 does not specify which of
/// them is the message.
pub(super) async fn position_zero_in_message(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    let there = endpoint.readable(call.clone());
    let words = [1, 0, there.handle, there.length, high(there.offset), low(there.offset), 0, 0, 0];
    let bytes = Words::new().words(&[xid, 1, CREDITS, RDMA_MSG]).words(&words).bytes(&call).finish();
    let case = Case { label: String::new(), xid, bytes };
    let mut seen = Seen::default();
    let allowed = Allowed { differs: &[Kind::Success], ..REFUSE };
    provoke(bench, &mut endpoint, &case, allowed, &mut seen).await?;
    endpoint.close().await;
    bench.alive().await?;
    seen.finish()
}

pub(super) async fn nomsg_without_chunks(bench: &mut Bench<'_>) -> Outcome {
    let cases = vec![
        bare(bench, "no chunk", RDMA_NOMSG, &[0, 0, 0]),
        lists(bench, "no chunk, a call behind it", RDMA_NOMSG, &[0, 0, 0]),
    ];
    each(bench, cases, ERR_CHUNK).await
}

/// Sends an RDMA_NOMSG whose payload has no source. With a filled Reply chunk it looks like a reply.
pub(super) async fn nomsg_without_payload(bench: &mut Bench<'_>) -> Outcome {
    let cases = vec![
        bare(bench, "Write chunk only", RDMA_NOMSG, &[&[0, 1, 1][..], &bogus(64), &[0, 0]].concat()),
        bare(bench, "Reply chunk only", RDMA_NOMSG, &[&[0, 0, 1, 1][..], &bogus(64)].concat()),
    ];
    each(bench, cases, only(&[Kind::ErrChunk, Kind::Nothing])).await
}

pub(super) async fn reply_to_nothing(bench: &mut Bench<'_>) -> Outcome {
    let xid = bench.xid();
    let bytes = Words::new().words(&[xid, 1, CREDITS, RDMA_MSG, 0, 0, 0, xid, 1, 0, 0, 0, 0]).finish();
    each(bench, vec![Case { label: String::new(), xid, bytes }], DISCARD).await
}

/// Sends an RPC message whose XID differs from `rdma_xid`. By RFC 8166 §4.2.1 a receiver may rely on `rdma_xid`. By
/// §4.5.2 it compares, and the answer is ERR_CHUNK. A server that does not compare answers the call.
pub(super) async fn xid_mismatch(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let (xid, other) = (bench.xid(), bench.xid());
    let call = bench.null_rpc().call(other, 0).finish();
    endpoint.send(Words::new().words(&[xid, 1, CREDITS, RDMA_MSG, 0, 0, 0]).bytes(&call).finish());
    let answer = bench.observe(&mut endpoint, xid, bench.limit()).await;
    let seen = match answer.reaction {
        Reaction::ErrChunk => Ok("ERR_CHUNK".to_owned()),
        // The XID of the payload is neither checked nor returned.
        reaction @ Reaction::Reply(RpcEnd::Success) => Ok(format!("not compared: {reaction}")),
        Reaction::Odd(what)
            if answer.header.as_ref().is_some_and(|header| [xid, other].contains(&header.xid)) =>
        {
            Ok(format!("not compared: {what}"))
        }
        // The answer has only the XID of the payload.
        Reaction::Odd(what) if what.contains(&format!("{other:#010x}")) => {
            Ok(format!("not compared: {what}"))
        }
        reaction => Err(fail(reaction.to_string())),
    }?;
    bench.null(&mut endpoint).await?;
    endpoint.close().await;
    bench.alive().await?;
    Ok(seen)
}

pub(super) async fn rpc_cut(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for len in (0..40).step_by(4) {
        let Case { xid, bytes, .. } = lists(bench, "", RDMA_MSG, &[0, 0, 0]);
        cases.push(Case { label: format!("{len} bytes"), xid, bytes: bytes.slice(..LEAST_HEADER + len) });
    }
    let allowed = only(&[
        Kind::GarbageArguments,
        Kind::SystemError,
        Kind::Denied,
        Kind::ErrChunk,
        Kind::Nothing,
        Kind::Closed,
    ]);
    each(bench, cases, allowed).await
}

pub(super) async fn message_type(bench: &mut Bench<'_>) -> Outcome {
    let mut cases = Vec::new();
    for kind in [2, u32::MAX] {
        let xid = bench.xid();
        let head =
            [xid, 1, CREDITS, RDMA_MSG, 0, 0, 0, xid, kind, 2, bench.target.program, bench.target.version];
        let bytes = Words::new().words(&head).words(&[0, 0, 0, 0, 0]).finish();
        cases.push(Case { label: format!("msg_type {kind}"), xid, bytes });
    }
    let allowed = only(&[Kind::Nothing, Kind::ErrChunk, Kind::GarbageArguments, Kind::Closed]);
    each(bench, cases, allowed).await
}

/// Sends as many empty segments as fit into the minimum threshold: no bytes to read, and many segments to count.
pub(super) async fn many_segments(bench: &mut Bench<'_>) -> Outcome {
    let mut words = Vec::new();
    for _ in 0..30 {
        words.extend([1, 40]);
        words.extend(bogus(0));
    }
    words.extend([0, 0, 0]);
    let cases = vec![lists(bench, "", RDMA_MSG, &words)];
    each(bench, cases, only(&[Kind::Success, Kind::ErrChunk, Kind::GarbageArguments])).await
}

/// Sends a Read segment of 4 GiB, and several with a larger sum: refused before the first Read, or at the first byte.
pub(super) async fn huge_segment(bench: &mut Bench<'_>) -> Outcome {
    let one = [&[1, 40][..], &bogus(u32::MAX), &[0, 0, 0]].concat();
    let mut sum = Vec::new();
    for _ in 0..8 {
        sum.extend([1, 40]);
        sum.extend(bogus(0x8000_0000));
    }
    sum.extend([0, 0, 0]);
    let cases = vec![lists(bench, "2^32-1 bytes", RDMA_MSG, &one), lists(bench, "8 of 2^31", RDMA_MSG, &sum)];
    each(bench, cases, only(&[Kind::ErrChunk, Kind::GarbageArguments, Kind::Closed])).await
}

/// Sends chunks at the limits of the offset, in a call that uses none of them.
pub(super) async fn wrapping_offset(bench: &mut Bench<'_>) -> Outcome {
    let edge = [0x00ba_d000, 4096, u32::MAX, u32::MAX];
    let cases = vec![
        lists(bench, "Write chunk", RDMA_MSG, &[&[0, 1, 1][..], &edge, &[0, 0]].concat()),
        lists(bench, "Reply chunk", RDMA_MSG, &[&[0, 0, 1, 1][..], &edge].concat()),
    ];
    each(bench, cases, only(&[Kind::Success, Kind::ErrChunk, Kind::Closed])).await
}
