//! Forms of messages: legal ones, and headers that no correct client sends.

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::two::Value;
use rpcrdma_proto::wire::{Body, ChunkLists, ErrorBody, ReadSegment, WriteChunk, two};

use super::properties::announce;
use super::talk::{
    Case, Code, GARBAGE, Heard, LIMIT, SUCCESS, Talk, call_words, each, encode, null_call, raw,
};
use crate::message::{Words, u32_of};
use crate::nfs;
use crate::report::{Outcome, Wrong, fail, not_applicable};
use crate::server::bench::{Bench, Scratch};
use crate::server::forms::{room, windows};

/// A segment of memory that does not exist: handle, length and offset.
const NOWHERE: [u32; 4] = [0x00ba_d000, 8, 0, 4096];

const BAD_XDR: Heard = Heard::Error(Code::BadXdr);

/// Returns a message of these words with a NULL call behind them.
fn case(bench: &mut Bench<'_>, profile: Profile, label: impl Into<String>, words: &[u32]) -> Case {
    let xid = bench.xid();
    let payload = bench.null_rpc().call(xid, 0).finish();
    Case { label: label.into(), xid, bytes: raw(profile, xid, words, &payload) }
}

/// Returns a message of these words without a payload.
fn bare(bench: &mut Bench<'_>, profile: Profile, label: impl Into<String>, words: &[u32]) -> Case {
    let xid = bench.xid();
    Case { label: label.into(), xid, bytes: raw(profile, xid, words, &[]) }
}

/// Makes a NULL call as a Position-Zero chunk of three segments.
pub(super) async fn position_zero(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    let read = windows(&mut talk.endpoint, 0, &call, &[1, 17]);
    let bytes = encode(profile, xid, 0, Body::NoMessage(ChunkLists { read, ..ChunkLists::default() }), &[]);
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, &[SUCCESS]).await?;
    talk.finish(bench).await?;
    Ok(answer.heard.to_string())
}

/// Makes a NULL call with a Write chunk and a Reply chunk, neither of which it needs.
pub(super) async fn spare_chunks(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let (write, reply) = (room(&mut talk.endpoint, &[100, 28]), room(&mut talk.endpoint, &[600]));
    let offered = ChunkLists { write: vec![write], reply: Some(reply), ..ChunkLists::default() };
    let (xid, bytes) = null_call(bench, profile, offered.clone());
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, &[SUCCESS]).await?;
    let Some(Body::Message(returned)) = answer.header.map(|header| header.body) else {
        return Err(fail("the reply is in a transmission group"));
    };
    let unused = |chunk: &WriteChunk| {
        let mut chunk = chunk.clone();
        chunk.segments.iter_mut().for_each(|segment| segment.length = 0);
        chunk
    };
    if returned.write != offered.write.iter().map(unused).collect::<Vec<_>>() {
        return Err(fail("the Write chunk does not come back unused"));
    }
    // version-two-07 §6.3.10: an inline reply has no place for the Reply chunk.
    let back = offered.reply.as_ref().map(unused).filter(|_| profile != Profile::P3);
    if returned.reply != back {
        return Err(fail("the Reply chunk does not come back unused"));
    }
    talk.finish(bench).await?;
    Ok("the chunks come back unused".into())
}

/// Makes calls in a Position-Zero chunk, with permission to invalidate one of their windows and without. In P1 the
/// permission is a characteristic, in P2 and P3 the call names the handle.
pub(super) async fn invalidation(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut seen = Vec::new();
    for permitted in [true, false] {
        let mut talk = Talk::ready(bench, profile).await?;
        if profile == Profile::P1 {
            let value = Value { id: 2, data: Words::new().words(&[u32::from(permitted)]).finish() };
            announce(bench, &mut talk, vec![value]).await?;
        }
        for _ in 0..3 {
            let xid = bench.xid();
            let call = bench.null_rpc().call(xid, 0).finish();
            let read = windows(&mut talk.endpoint, 0, &call, &[12]);
            let lists =
                ChunkLists { read, reply: Some(room(&mut talk.endpoint, &[600])), ..ChunkLists::default() };
            let handles: Vec<u32> = lists.handles().collect();
            let named = match profile {
                _ if !permitted => 0,
                Profile::P1 => 0,
                _ => handles.last().copied().unwrap_or_default(),
            };
            talk.send(encode(profile, xid, named, Body::NoMessage(lists), &[]));
            let answer = talk.observe(xid, bench.limit()).await;
            if answer.heard != SUCCESS {
                return Err(fail(answer.heard.to_string()));
            }
            let what = match answer.invalidated {
                None => "plain Send",
                Some(_) if !permitted => return Err(fail("Send with Invalidate without permission")),
                Some(key) if profile == Profile::P1 && !handles.contains(&key) => {
                    return Err(fail(format!("the reply invalidates {key:#010x}, which is not of its call")));
                }
                Some(key) if profile != Profile::P1 && key != named => {
                    return Err(fail(format!(
                        "the reply invalidates {key:#010x}, the call names {named:#010x}"
                    )));
                }
                Some(_) => "Send with Invalidate",
            };
            if !seen.contains(&what) {
                seen.push(what);
            }
        }
        talk.finish(bench).await?;
    }
    Ok(seen.join(", "))
}

pub(super) async fn short(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    for len in 0..16 {
        let (xid, bytes) = null_call(bench, profile, ChunkLists::default());
        cases.push(Case { label: format!("{len} bytes"), xid, bytes: bytes.slice(..len) });
    }
    each(bench, profile, cases, &[Heard::Nothing]).await
}

pub(super) async fn unknown_type(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (types, code): (&[u32], _) = match profile {
        Profile::P1 => (&[2, 3, 6, 77, u32::MAX], Code::BadXdr),
        Profile::P2 => (&[2, 3, 10, 77, u32::MAX], Code::Type),
        _ => (&[2, 3, 14, 77, u32::MAX], Code::Type),
    };
    let mut cases = Vec::new();
    for kind in types {
        let mut words = call_words(profile, &[0, 0, 0]);
        words.splice(..1, [*kind]);
        cases.push(case(bench, profile, format!("type {kind}"), &words));
    }
    each(bench, profile, cases, &[Heard::Error(code)]).await
}

/// Cuts a header off at each word of its Read list and behind.
pub(super) async fn cut(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let words = call_words(profile, &[&[1, 40][..], &NOWHERE, &[0, 0, 0]].concat());
    // A shorter message is discarded in P1 and P2, as in Version One (RFC 8166 §4.5).
    let least = match profile {
        Profile::P3 => 1,
        _ => call_words(profile, &[0, 0, 0]).len(),
    };
    let mut cases = Vec::new();
    for count in least..words.len() {
        let some = words.get(..count).unwrap_or_default();
        cases.push(bare(bench, profile, format!("{count} of {} words", words.len()), some));
    }
    each(bench, profile, cases, &[BAD_XDR]).await
}

pub(super) async fn discriminators(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    for (list, words) in [("Read list", [2, 0, 0]), ("Write list", [0, 2, 0]), ("Reply chunk", [0, 0, 2])] {
        let words = call_words(profile, &words);
        cases.push(case(bench, profile, format!("2 in the {list}"), &words));
    }
    each(bench, profile, cases, &[BAD_XDR]).await
}

/// Sends directions that do not exist, and one that is not that of the payload.
pub(super) async fn direction(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    for direction in [1, 2, u32::MAX] {
        let mut words = call_words(profile, &[0, 0, 0]);
        words.splice(1..2, [direction]);
        cases.push(case(bench, profile, format!("rdma_direction {direction}"), &words));
    }
    each(bench, profile, cases, &[BAD_XDR]).await
}

pub(super) async fn error(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = vec![
        bare(bench, profile, "ERR_VERS", &[4, 1, 2, 2]),
        bare(bench, profile, "ERR_VERS cut off", &[4, 1, 2]),
        bare(bench, profile, "no code", &[4]),
    ];
    for code in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 100, u32::MAX] {
        cases.push(bare(bench, profile, format!("code {code}"), &[4, code, 1, 1]));
    }
    each(bench, profile, cases, &[Heard::Nothing]).await
}

/// Sends replies to no call, in P3 also the beginning of one.
pub(super) async fn reply_to_nothing(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    let forms: &[&[u32]] = match profile {
        Profile::P1 => &[&[0, 1, 0, 0, 0]],
        Profile::P2 => &[&[0, 1, 0, 0, 0, 0]],
        _ => &[&[13, 0], &[12, 100]],
    };
    for words in forms {
        let xid = bench.xid();
        let payload = Words::new().words(&[xid, 1, 0, 0, 0, 0]).finish();
        let label = format!("type {}", words.first().copied().unwrap_or_default());
        cases.push(Case { label, xid, bytes: raw(profile, xid, words, &payload) });
    }
    each(bench, profile, cases, &[Heard::Nothing]).await
}

/// Sends a message that says that its payload is elsewhere, and names no place.
pub(super) async fn no_call_chunk(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let words: &[u32] = match profile {
        Profile::P1 => &[1, 0, 0, 0, 0],
        Profile::P2 => &[1, 0, 0, 0, 0, 0],
        _ => &[8, 0, 0, 0, 0, 0],
    };
    let cases = vec![
        bare(bench, profile, "no chunk", words),
        case(bench, profile, "no chunk, a call behind it", words),
    ];
    each(bench, profile, cases, &[BAD_XDR]).await
}

pub(super) async fn position_zero_in_reads(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let words = call_words(profile, &[&[1, 0][..], &NOWHERE, &[0, 0, 0]].concat());
    let cases = vec![case(bench, profile, "", &words)];
    each(bench, profile, cases, &[BAD_XDR]).await
}

pub(super) async fn position_order(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let words = call_words(profile, &[&[1, 44][..], &NOWHERE, &[1, 40], &NOWHERE, &[0, 0, 0]].concat());
    let cases = vec![case(bench, profile, "", &words)];
    each(bench, profile, cases, &[BAD_XDR]).await
}

/// Sends a Call chunk with a segment at another Position than zero.
pub(super) async fn call_chunk_position(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let words = [&[8, 0, 1, 4][..], &NOWHERE, &[0, 0, 0, 0]].concat();
    let cases = vec![bare(bench, profile, "", &words)];
    each(bench, profile, cases, &[BAD_XDR]).await
}

/// Sends a Read chunk behind the end of a call without arguments.
pub(super) async fn surplus_read_chunk(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let segment = talk.endpoint.readable(Bytes::from_static(&[0; 8]));
    let read = vec![ReadSegment::new(40, segment)];
    let (xid, bytes) = null_call(bench, profile, ChunkLists { read, ..ChunkLists::default() });
    let code = if profile == Profile::P3 { Code::ReadChunks } else { Code::BadXdr };
    let allowed = [Heard::Error(code), GARBAGE];
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, &allowed).await?;
    if let Some(ErrorBody::Two(two::ErrorBody::ReadChunks { most: 1.. })) = answer.error() {
        return Err(fail("READ_CHUNKS that allows a chunk which the call has"));
    }
    talk.finish(bench).await?;
    Ok(answer.heard.to_string())
}

/// Sends an RPC message whose XID differs from `rdma_xid`.
pub(super) async fn xid_mismatch(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let (xid, other) = (bench.xid(), bench.xid());
    let payload = bench.null_rpc().call(other, 0).finish();
    let bytes = encode(profile, xid, 0, Body::Message(ChunkLists::default()), &payload);
    each(bench, profile, vec![Case { label: String::new(), xid, bytes }], &[BAD_XDR]).await
}

/// Makes a READ of 2000 bytes whose Write chunk holds 100.
pub(super) async fn write_resource(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    const LEN: usize = 2000;
    let scratch = scratch(bench).await?;
    let mut talk = Talk::ready(bench, profile).await?;
    let xid = bench.xid();
    let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), &scratch.source, 0, LEN).finish();
    let write = vec![room(&mut talk.endpoint, &[60, 40])];
    let lists = ChunkLists { write, ..ChunkLists::default() };
    let bytes = encode(profile, xid, 0, Body::Message(lists), &call);
    let code = match profile {
        Profile::P1 => Code::BadXdr,
        Profile::P2 => Code::ReplyResource,
        _ => Code::WriteResource,
    };
    let case = Case { label: String::new(), xid, bytes };
    let answer = talk.provoke(bench, case, &[Heard::Error(code)]).await?;
    let said = match answer.error() {
        Some(ErrorBody::Two(two::ErrorBody::ReplyResource { segment, needed })) => {
            Some((*segment, 2, *needed))
        }
        Some(ErrorBody::Two(two::ErrorBody::WriteResource { chunk, needed })) => Some((*chunk, 1, *needed)),
        _ => None,
    };
    // 0 says that the place is not known; P3 requires the length.
    if let Some((place, most, needed)) = said
        && (place > most || (profile == Profile::P3 && needed != u32_of(LEN)))
    {
        return Err(fail(format!("{}, place {place}, {needed} bytes needed", answer.heard)));
    }
    talk.finish(bench).await?;
    Ok(said.map_or(answer.heard.to_string(), |(place, _, needed)| {
        format!("{}, place {place}, {needed} bytes needed", answer.heard)
    }))
}

/// Returns the files of the rows, which the tester makes in Version One.
pub(super) async fn scratch(bench: &mut Bench<'_>) -> Result<Scratch, Wrong> {
    let made = bench.scratch().await;
    made.map_err(|wrong| not_applicable(format!("no files could be made in Version One: {}", wrong.seen)))
}

/// Sends RDMA2_GRANTs, one of them with an XID, which must be ignored.
pub(super) async fn grant(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut cases = Vec::new();
    for xid in [0, bench.xid()] {
        let bytes = Words::new().words(&[xid, 2, LIMIT, 5]).finish();
        cases.push(Case { label: format!("XID {xid:#010x}"), xid, bytes });
    }
    each(bench, profile, cases, &[Heard::Nothing]).await
}
