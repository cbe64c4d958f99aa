//! Replies in several Sends (rtrext-02, version-two-07 §4.2.1, §6.3.9), and replies whose data a Send places in a segment of the
//! tester's Receives.
//!
//! The calls are READs without a chunk. The forms of the replies are optional. A server that refuses such a call, or that
//! returns less data instead, has rows that are not applicable.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::two::transmission::{
    BufferStructure, Location, Operation, PlacedItem, Property, ResponseDirection, ResponseLocation,
    ResponseSet, SUPPORT_CONTINUATION, SUPPORT_RESPONSE, TransmitContinuation, TransmitRequest,
    TransmitResponse,
};
use rpcrdma_proto::wire::two::{self, Value};
use rpcrdma_proto::wire::{Body, ChunkLists, Direction, Header};
use rpcrdma_proto::{Limits, Profile};

use super::groups::{encoded, ready, request};
use super::headers::scratch;
use super::properties::announce;
use super::talk::{Code, Heard, Talk, call_words, encode, raw};
use crate::endpoint::Next;
use crate::message::{RpcEnd, Words, rpc_reply, u32_of};
use crate::nfs;
use crate::placement::first_target;
use crate::report::{Outcome, Verdict, Wrong, fail, not_applicable};
use crate::server::bench::{Bench, SOURCE_LEN, pattern, results_wrong};

/// `rdma_opttype` of ROPT_XMTRESP (rtrext-02 §9.1, table 4).
const RESPONSE: u32 = 6;
/// `ROPT_XMTRESP` in the XDR of §9.3. §9.4 does not say which of the two numbers `optxc_itype` has.
const RESPONSE_OF_XDR: u32 = 2;
/// Data of a READ that no default Receive holds, in bytes.
const LONG: usize = 6000;
/// Maximum length of a reply in parts, in bytes: [`SOURCE_LEN`] bytes of data with all that stands before them.
const MOST_REPLY: usize = 16 << 10;
/// Receives that the tester allows for its reply.
const BUFFERS: u32 = 4;
/// Data of a READ that is placed, in bytes, and the length of the segment for it.
const BLOCK: usize = 2000;
const SEGMENT: u32 = 4096;
/// Length from which an item is bulk data, in bytes (`xmdrsdi_minlen`, rtrext-02 §7.4).
const LEAST: u32 = 4;

/// A reply, all of whose Sends have come.
#[derive(Default)]
struct Joined {
    payload: Vec<u8>,
    /// The Sends, header included.
    sends: Vec<Bytes>,
    placed: Vec<PlacedItem>,
}

/// The end of a call.
enum End {
    Reply(Joined),
    Refused(Code),
}

/// The rest of a reply that is due.
enum Due {
    /// So many bytes in parts.
    Parts(usize),
    /// So many transmissions in all.
    Transmissions(u32),
}

/// Returns the part of the Payload stream at the front of these bytes.
fn front(behind: &Bytes, len: u32) -> Result<Bytes, Wrong> {
    let wide = usize::try_from(len).unwrap_or(usize::MAX);
    match wide <= behind.len() {
        true => Ok(behind.slice(..wide)),
        false => Err(fail(format!("a Payload stream of {len} bytes in a Send with {}", behind.len()))),
    }
}

/// Takes a Send of a reply; returns what is due behind it, if anything is. `buffers` is the reservation of the call: for all
/// transmissions (rtrext-02 §5.2), or for those behind the first (§4.3).
fn take(
    joined: &mut Joined,
    due: Option<Due>,
    buffers: u32,
    (body, behind): (Body, &Bytes),
) -> Result<Option<Due>, Wrong> {
    let came = u32_of(joined.sends.len());
    let (part, due) = match (body, due) {
        (Body::Message(lists), None) if lists == ChunkLists::default() => (behind.clone(), None),
        (Body::Message(lists), Some(Due::Parts(left))) if lists == ChunkLists::default() => {
            if behind.len() != left {
                return Err(fail(format!("a last part of {} bytes where {left} are due", behind.len())));
            }
            (behind.clone(), None)
        }
        (Body::Two(two::Body::Middle { remaining }), due @ (None | Some(Due::Parts(_)))) => {
            let remaining = usize::try_from(remaining).unwrap_or(usize::MAX);
            if let Some(Due::Parts(left)) = due
                && behind.len().saturating_add(remaining) != left
            {
                let len = behind.len();
                return Err(fail(format!(
                    "a part of {len} bytes, {remaining} remaining, where {left} are due"
                )));
            }
            if behind.is_empty() {
                return Err(fail("a part without payload"));
            }
            if remaining == 0 {
                return Err(fail("a part that is not the last, with nothing remaining"));
            }
            if remaining > MOST_REPLY {
                return Err(fail(format!("{remaining} bytes remaining; the reply has at most {MOST_REPLY}")));
            }
            (behind.clone(), Some(Due::Parts(remaining)))
        }
        (Body::Two(two::Body::Transmission(Operation::Response(response))), None) => {
            let TransmitResponse { placed, count, payload_len } = response;
            let most = buffers.saturating_add(1);
            if count == 0 || count > most {
                return Err(fail(format!("a reply in {count} transmissions, {most} are allowed")));
            }
            joined.placed = placed;
            (front(behind, payload_len)?, Some(Due::Transmissions(count)).filter(|_| count > 1))
        }
        (
            Body::Two(two::Body::Transmission(Operation::Continuation(later))),
            Some(Due::Transmissions(count)),
        ) => {
            let TransmitContinuation { number, initial_type, payload_len } = later;
            if number != came || ![RESPONSE, RESPONSE_OF_XDR].contains(&initial_type) {
                return Err(fail(format!(
                    "transmission {number} of type {initial_type} where {came} is due"
                )));
            }
            let due = Some(Due::Transmissions(count)).filter(|_| came + 1 < count);
            (front(behind, payload_len)?, due)
        }
        _ => return Err(fail("a message that is no next Send of the reply")),
    };
    joined.payload.extend_from_slice(&part);
    Ok(due)
}

/// Waits for all Sends of the reply to a call.
async fn reply(bench: &Bench<'_>, talk: &mut Talk, xid: u32, buffers: u32) -> Result<End, Wrong> {
    let (mut joined, mut due) = (Joined::default(), None);
    match sends(talk, (xid, buffers), (&mut joined, &mut due), bench.limit()).await? {
        Some(code) => Ok(End::Refused(code)),
        None if due.is_none() && !joined.sends.is_empty() => Ok(End::Reply(joined)),
        None => Err(fail(format!("nothing behind {} Sends", joined.sends.len()))),
    }
}

/// Takes the Sends of the reply to a call, until that is all, or nothing comes for this time. Returns the error that the
/// server answers instead.
async fn sends(
    talk: &mut Talk,
    (xid, buffers): (u32, u32),
    (joined, due): (&mut Joined, &mut Option<Due>),
    limit: Duration,
) -> Result<Option<Code>, Wrong> {
    loop {
        let arrived = match talk.endpoint.next(limit).await {
            Next::Message(arrived) => arrived.bytes,
            Next::Silence => return Ok(None),
            Next::Closed(_) => return Err(fail("connection closed")),
        };
        talk.received = talk.received.wrapping_add(1);
        let decoded = talk.profile.codec().decode(&arrived, &Limits::default());
        let (header, len) =
            decoded.map_err(|error| fail(format!("a message that does not decode: {error}")))?;
        let Header { xid: seen, credit, direction, body, .. } = header;
        talk.credit = credit;
        if matches!(body, Body::Two(two::Body::Exchange(_) | two::Body::Grant)) {
            continue;
        }
        if seen != xid || direction == Some(Direction::Call) {
            return Err(fail(format!("a message under XID {seen:#010x} in the reply to {xid:#010x}")));
        }
        if let Body::Error(error) = &body {
            return match (Code::of(error), joined.sends.is_empty()) {
                (Some(code), true) => Ok(Some(code)),
                _ => Err(fail("an unknown RDMA2_ERROR, or one behind the begin of a reply")),
            };
        }
        let behind = arrived.slice(len.min(arrived.len())..);
        *due = take(joined, due.take(), buffers, (body, &behind))?;
        joined.sends.push(arrived);
        if due.is_none() {
            return Ok(None);
        }
    }
}

/// Returns a READ of so much data from the beginning of the file.
async fn read(bench: &mut Bench<'_>, len: usize) -> Result<(u32, Bytes), Wrong> {
    let scratch = scratch(bench).await?;
    let xid = bench.xid();
    Ok((xid, nfs::read(bench.nfs_rpc().call(xid, nfs::READ), &scratch.source, 0, len).finish()))
}

/// Decodes the results of a READ up to its data; returns the length of the data, and the rest of the results.
///
/// # Errors
/// Not applicable if the server answers with an error of RPC or NFS. A failure if the results do not decode.
fn results(xid: u32, payload: Vec<u8>) -> Result<(usize, rpcrdma_xdr::Decoder), Wrong> {
    let (end, mut results) = rpc_reply(xid, payload.into()).map_err(fail)?;
    if end != RpcEnd::Success {
        return Err(not_applicable(format!("the server does not read: {end}")));
    }
    match nfs::status(&mut results).map_err(results_wrong)? {
        0 => {}
        status => return Err(not_applicable(format!("the server does not read: nfsstat3 {status}"))),
    }
    let (_, len) = nfs::read_results(&mut results).map_err(results_wrong)?;
    Ok((len, results))
}

/// Checks that the data of a READ of so many bytes is inline, and that of the file; returns its length.
fn inline(xid: u32, payload: Vec<u8>, asked: usize) -> Result<usize, Wrong> {
    let (len, results) = results(xid, payload)?;
    if len > asked {
        return Err(fail(format!("{len} bytes of data for a READ of {asked}")));
    }
    let data = nfs::inline_data(results, len).map_err(results_wrong)?;
    match pattern(0, SOURCE_LEN).starts_with(&data) {
        true => Ok(len),
        false => Err(fail("the data is not that of the file")),
    }
}

/// Checks a long reply in several Sends, and that the connection serves on.
async fn several(bench: &mut Bench<'_>, mut talk: Talk, xid: u32, buffers: u32) -> Outcome {
    let joined = match reply(bench, &mut talk, xid, buffers).await? {
        End::Reply(joined) => joined,
        End::Refused(code) => {
            return Err(not_applicable(format!("the server does not divide replies: {code}")));
        }
    };
    let sends = joined.sends.len();
    let len = inline(xid, joined.payload, LONG)?;
    if sends == 1 {
        return Err(not_applicable(format!("the server returns {len} bytes in one Send")));
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(format!("{len} bytes of data in {sends} Sends"))
}

pub(super) async fn continued(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (xid, call) = read(bench, LONG).await?;
    let mut talk = Talk::ready(bench, profile).await?;
    talk.send(encode(profile, xid, 0, Body::Message(ChunkLists::default()), &call));
    several(bench, talk, xid, 1).await
}

/// Allows the server one message of a longer reply, then all by an RDMA2_GRANT. Messages of the server that are still on
/// their way count.
pub(super) async fn withheld(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (xid, call) = read(bench, LONG).await?;
    let mut talk = Talk::ready(bench, profile).await?;
    if talk.observe(0, bench.target.silence).await.heard != Heard::Nothing {
        return Err(fail("a message without a call"));
    }
    // By the letter a message may leave when as many have left as are allowed (version-two-07 §4.2.1).
    let words = call_words(profile, &[0, 0, 0]);
    talk.send(Words::new().words(&[xid, 2, talk.received]).words(&words).bytes(&call).finish());
    let (mut joined, mut due) = (Joined::default(), None);
    let early = sends(&mut talk, (xid, 1), (&mut joined, &mut due), bench.target.silence).await?;
    let before = joined.sends.len();
    if before > 1 {
        return Err(fail(format!("{before} messages where one is allowed")));
    }
    let code = match early {
        None if due.is_some() || joined.sends.is_empty() => {
            talk.send(raw(profile, 0, &[5], &[]));
            sends(&mut talk, (xid, 1), (&mut joined, &mut due), bench.limit()).await?
        }
        early => early,
    };
    if let Some(code) = code {
        return Err(not_applicable(format!("the server does not divide replies: {code}")));
    }
    let count = joined.sends.len();
    if due.is_some() || count == 0 {
        return Err(fail(format!("after an RDMA2_GRANT: nothing behind {count} Sends")));
    }
    let len = inline(xid, joined.payload, LONG)?;
    if count == 1 {
        return Err(not_applicable(format!("the server returns {len} bytes in one Send")));
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(format!("Sends before the grant: {before}, in all: {count}"))
}

/// Sends a READ of so much data in a group, with a reservation of so many Receives for the reply.
async fn in_group(
    bench: &mut Bench<'_>,
    profile: Profile,
    asked: usize,
    buffers: u32,
) -> Result<(Talk, u32), Wrong> {
    let (xid, call) = read(bench, asked).await?;
    let mut talk = ready(bench, profile).await?;
    let request = TransmitRequest { response_buffers: buffers, ..request(1, u32_of(call.len())) };
    talk.send(encoded(profile, xid, Operation::Request(request), &call));
    Ok((talk, xid))
}

pub(super) async fn group(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (talk, xid) = in_group(bench, profile, LONG, BUFFERS).await?;
    several(bench, talk, xid, BUFFERS).await
}

/// Reserves one Receive for a reply that fits in three transmissions. §5.2 bounds the transmissions, and names no error.
pub(super) async fn group_limit(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (mut talk, xid) = in_group(bench, profile, SOURCE_LEN, 1).await?;
    let text = match reply(bench, &mut talk, xid, 1).await? {
        End::Refused(code) => code.to_string(),
        End::Reply(joined) => {
            let sends = joined.sends.len();
            match inline(xid, joined.payload, SOURCE_LEN) {
                Ok(len) => format!("{len} bytes of data in {sends} Sends"),
                Err(wrong) if wrong.verdict == Verdict::NotApplicable => wrong.seen,
                Err(wrong) => return Err(wrong),
            }
        }
    };
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(text)
}

/// Directs the data of a READ to a target segment of the tester's Receives.
pub(super) async fn placed(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (xid, call) = read(bench, BLOCK).await?;
    let mut talk = ready(bench, profile).await?;
    let structure = BufferStructure::with_items(1, SEGMENT);
    let (begin, _) = first_target(&structure).unwrap_or_default();
    let mut data = Words::new().words(&[structure.total, u32_of(structure.groups.len())]);
    for group in &structure.groups {
        data = data.words(&[group.count, group.length, group.align, group.flags]);
    }
    let size = Value { id: 1, data: Words::new().words(&[structure.total]).finish() };
    let id = Property::BufferStructure.id(profile).unwrap_or_default();
    let support = Value {
        id: Property::Support.id(profile).unwrap_or_default(),
        data: Words::new().words(&[SUPPORT_RESPONSE | SUPPORT_CONTINUATION]).finish(),
    };
    announce(bench, &mut talk, vec![size, support, Value { id, data: data.finish() }]).await?;
    // The new size of the Receives holds behind a reply.
    talk.null(bench).await?;
    let len = u32_of(call.len());
    let directions = vec![ResponseDirection { least_len: LEAST, location: ResponseLocation::Targets }];
    let response = vec![ResponseSet { begin: 0, end: len, directions }];
    let operation = Operation::Request(TransmitRequest { response, ..request(1, len) });
    talk.send(encoded(profile, xid, operation, &call));
    let joined = match reply(bench, &mut talk, xid, 1).await? {
        End::Reply(joined) => joined,
        End::Refused(code) => {
            return Err(not_applicable(format!("the server places no data: {code}")));
        }
    };
    let end = joined.payload.len();
    let (named, _) = results(xid, joined.payload)?;
    let item = match &joined.placed[..] {
        [item] => item.clone(),
        items => return Err(fail(format!("{} results for one direction", items.len()))),
    };
    let Location::Targets { offset, segments } = item.location else {
        return match item.location {
            Location::TooShort => Err(not_applicable("the server returns the data inline")),
            _ => Err(fail("a result that the direction does not allow")),
        };
    };
    let told = usize::try_from(item.length).unwrap_or(usize::MAX);
    if named != told || item.displacement != u32_of(end) || segments != [0] {
        return Err(fail(format!(
            "{told} bytes at {} in segments {segments:?}; the READ returns {named} at {end}",
            item.displacement
        )));
    }
    if item.length < LEAST || told > BLOCK {
        return Err(fail(format!("an item of {told} bytes; {LEAST} to {BLOCK} are due")));
    }
    let start = begin.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
    let found = joined.sends.first().and_then(|send| send.get(start..start.saturating_add(told)));
    match found {
        Some(data) if pattern(0, SOURCE_LEN).starts_with(data) => {}
        Some(_) => return Err(fail("the segment does not hold the data of the file")),
        None => return Err(fail(format!("data at offset {offset} that ends beyond the Send"))),
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(format!("{told} bytes of data in the segment"))
}
