//! Legal forms that need no binding: RDMA_MSG and RDMA_NOMSG, with chunks that a NULL call does not use.

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::private_data::Thresholds;
use rpcrdma_proto::wire::{ChunkLists, ReadSegment, WriteChunk};

use super::bench::{Bench, CREDITS, Call, FILL, Reply, differing, success};
use crate::endpoint::Endpoint;
use crate::message::{RpcEnd, Words, rpc_reply};
use crate::nfs;
use crate::report::{Outcome, Wrong, fail};

/// Cuts bytes into windows of these lengths, one after the other; the last takes the rest.
pub(super) fn windows(
    endpoint: &mut Endpoint,
    position: u32,
    data: &Bytes,
    lengths: &[usize],
) -> Vec<ReadSegment> {
    let mut rest = data.clone();
    let mut segments = Vec::new();
    for length in lengths {
        let piece = rest.split_to((*length).min(rest.len()));
        segments.push(ReadSegment::new(position, endpoint.readable(piece)));
    }
    if !rest.is_empty() {
        segments.push(ReadSegment::new(position, endpoint.readable(rest)));
    }
    segments
}

/// Opens a Write or Reply chunk of windows of these lengths.
pub(super) fn room(endpoint: &mut Endpoint, lengths: &[usize]) -> WriteChunk {
    WriteChunk { segments: lengths.iter().map(|length| endpoint.writable(*length, FILL)).collect() }
}

/// Describes a reply.
pub(super) fn describe(reply: &Reply) -> String {
    let mut text = format!("{} of {} bytes", if reply.long { "RDMA_NOMSG" } else { "RDMA_MSG" }, reply.sent);
    for data in &reply.written {
        text += &format!(", {} bytes in a Write chunk", data.len());
    }
    if let Some(reply) = &reply.lists.reply {
        text += &format!(", {} in the Reply chunk", reply.total());
    }
    text
}

/// Makes a NULL call with these lists, and returns its reply.
async fn null_with(
    bench: &mut Bench<'_>,
    endpoint: &mut Endpoint,
    lists: ChunkLists,
) -> Result<Reply, Wrong> {
    let xid = bench.xid();
    let payload = Some(bench.null_rpc().call(xid, 0).finish());
    success(bench.call(endpoint, Call { xid, lists, credit: CREDITS, payload }).await?)
}

pub(super) async fn null(bench: &mut Bench<'_>) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let reply = null_with(bench, &mut endpoint, ChunkLists::default()).await?;
    // A second reply to the first call would come before the reply to this one.
    null_with(bench, &mut endpoint, ChunkLists::default()).await?;
    endpoint.close().await;
    Ok(describe(&reply))
}

/// Makes a NULL call as a Position-Zero chunk of segments of these lengths; the last takes the rest.
async fn position_zero(bench: &mut Bench<'_>, lengths: &[usize]) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    let lists = ChunkLists { read: windows(&mut endpoint, 0, &call, lengths), ..ChunkLists::default() };
    let reply =
        success(bench.call(&mut endpoint, Call { xid, lists, credit: CREDITS, payload: None }).await?)?;
    endpoint.close().await;
    Ok(describe(&reply))
}

pub(super) async fn position_zero_one(bench: &mut Bench<'_>) -> Outcome {
    position_zero(bench, &[]).await
}

pub(super) async fn position_zero_many(bench: &mut Bench<'_>) -> Outcome {
    position_zero(bench, &[1, 6, 17]).await
}

pub(super) async fn reply_chunk_spare(bench: &mut Bench<'_>) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let reply = Some(room(&mut endpoint, &[1500, 500]));
    let reply = null_with(bench, &mut endpoint, ChunkLists { reply, ..ChunkLists::default() }).await?;
    endpoint.close().await;
    Ok(describe(&reply))
}

pub(super) async fn write_chunk_spare(bench: &mut Bench<'_>) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let write = vec![room(&mut endpoint, &[100, 28])];
    let reply = null_with(bench, &mut endpoint, ChunkLists { write, ..ChunkLists::default() }).await?;
    endpoint.close().await;
    match reply.written.iter().all(Bytes::is_empty) {
        true => Ok(describe(&reply)),
        false => Err(fail(format!("a chunk that no result belongs to is used: {}", describe(&reply)))),
    }
}

/// Makes calls in every form, one after the other on one connection: none leaves state behind.
pub(super) async fn mixed(bench: &mut Bench<'_>) -> Outcome {
    let mut endpoint = bench.connect_announcing(true).await?;
    for round in 0..4 {
        null_with(bench, &mut endpoint, ChunkLists::default()).await?;
        let xid = bench.xid();
        let call = bench.null_rpc().call(xid, 0).finish();
        let read = windows(&mut endpoint, 0, &call, &[4 * round + 4]);
        let reply = Some(room(&mut endpoint, &[2000]));
        let lists = ChunkLists { read, reply, ..ChunkLists::default() };
        success(bench.call(&mut endpoint, Call { xid, lists, credit: CREDITS, payload: None }).await?)?;
    }
    endpoint.close().await;
    Ok("8 replies on one connection".into())
}

/// Makes a call of exactly the threshold: a WRITE whose data fills the length.
async fn call_of(bench: &mut Bench<'_>, mut endpoint: Endpoint, len: usize) -> Outcome {
    let scratch = bench.scratch().await?;
    let xid = bench.xid();
    let head = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, 0).len();
    let data = super::bench::pattern(xid, len - crate::message::LEAST_HEADER - head);
    let payload =
        nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, data.len()).bytes(&data).finish();
    let call = Call { xid, lists: ChunkLists::default(), credit: CREDITS, payload: Some(payload) };
    let reply = super::bench::nfs_ok(bench.call(&mut endpoint, call).await?)?;
    endpoint.close().await;
    if let Some(difference) = differing(&bench.content(&scratch.sink, data.len()).await?, &data) {
        return Err(fail(format!("the file does not hold the written data: {difference}")));
    }
    Ok(format!("a call of {len} bytes, {}", describe(&reply)))
}

/// Returns the maximum lengths of calls and replies on this connection.
fn thresholds(endpoint: &Endpoint, ours: PrivateData) -> Thresholds {
    let theirs = PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    Thresholds::negotiate(&ours, &theirs)
}

pub(super) async fn call_at_default_threshold(bench: &mut Bench<'_>) -> Outcome {
    let endpoint = bench.connect().await?;
    call_of(bench, endpoint, PrivateData::default().send_size).await
}

pub(super) async fn call_at_negotiated_threshold(bench: &mut Bench<'_>) -> Outcome {
    let ours = PrivateData { remote_invalidation: false, send_size: 4096, receive_size: 4096 };
    let endpoint = bench.connect_with(ours.encode().into()).await?;
    let threshold = thresholds(&endpoint, ours).send;
    call_of(bench, endpoint, threshold).await
}

/// Makes a READ without any chunk whose reply has `len` bytes: up to the threshold it must come inline.
async fn reply_of(bench: &mut Bench<'_>, mut endpoint: Endpoint, threshold: usize) -> Outcome {
    let scratch = bench.scratch().await?;
    // A small reply shows the length of a reply without its data.
    let overhead = read_inline(bench, &mut endpoint, &scratch.source, 4).await?.sent - 4;
    let Some(len) = threshold.checked_sub(overhead) else {
        return Err(fail(format!(
            "a reply has {overhead} bytes besides its data, the threshold is {threshold}"
        )));
    };
    let reply = read_inline(bench, &mut endpoint, &scratch.source, len).await?;
    endpoint.close().await;
    match reply.sent == threshold {
        true => Ok(describe(&reply)),
        false => Err(fail(format!("a reply of {threshold} bytes was expected: {}", describe(&reply)))),
    }
}

async fn read_inline(
    bench: &mut Bench<'_>,
    endpoint: &mut Endpoint,
    file: &Bytes,
    len: usize,
) -> Result<Reply, Wrong> {
    let xid = bench.xid();
    let payload = Some(nfs::read(bench.nfs_rpc().call(xid, nfs::READ), file, 0, len).finish());
    let call = Call { xid, lists: ChunkLists::default(), credit: CREDITS, payload };
    super::bench::nfs_ok(bench.call(endpoint, call).await?)
}

pub(super) async fn reply_at_default_threshold(bench: &mut Bench<'_>) -> Outcome {
    let endpoint = bench.connect().await?;
    reply_of(bench, endpoint, PrivateData::default().receive_size).await
}

pub(super) async fn reply_at_negotiated_threshold(bench: &mut Bench<'_>) -> Outcome {
    let ours = PrivateData { remote_invalidation: false, send_size: 4096, receive_size: 4096 };
    let endpoint = bench.connect_with(ours.encode().into()).await?;
    let threshold = thresholds(&endpoint, ours).receive;
    reply_of(bench, endpoint, threshold).await
}

/// Checks that an RPC-level refusal travels like any reply.
async fn refused(
    bench: &mut Bench<'_>,
    call: impl FnOnce(u32, &Bench<'_>) -> Words,
    ends: &[RpcEnd],
) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let xid = bench.xid();
    let payload = Some(call(xid, bench).finish());
    let reply = bench
        .call(&mut endpoint, Call { xid, lists: ChunkLists::default(), credit: CREDITS, payload })
        .await?;
    bench.null(&mut endpoint).await?;
    endpoint.close().await;
    match ends.contains(&reply.end) {
        true => Ok(format!("reply {}", reply.end)),
        false => Err(fail(format!("reply {}", reply.end))),
    }
}

/// A program number of the range that is never assigned (RFC 5531 §8.3).
const NO_PROGRAM: u32 = 0x3fff_fffe;

pub(super) async fn program_unavailable(bench: &mut Bench<'_>) -> Outcome {
    let call = |xid, bench: &Bench<'_>| {
        let mut rpc = bench.null_rpc();
        rpc.program = NO_PROGRAM;
        rpc.call(xid, 0)
    };
    refused(bench, call, &[RpcEnd::ProgramUnavailable]).await
}

pub(super) async fn procedure_unavailable(bench: &mut Bench<'_>) -> Outcome {
    refused(bench, |xid, bench| bench.null_rpc().call(xid, 0x00ff_ffff), &[RpcEnd::ProcedureUnavailable])
        .await
}

pub(super) async fn rpc_version(bench: &mut Bench<'_>) -> Outcome {
    let call = |xid, bench: &Bench<'_>| {
        let rpc = bench.null_rpc();
        Words::new().words(&[xid, 0, 3, rpc.program, rpc.version, 0, 0, 0, 0, 0])
    };
    refused(bench, call, &[RpcEnd::Denied]).await
}

/// Takes several outstanding replies in any order, by XID.
pub(super) async fn take_replies(
    bench: &Bench<'_>,
    endpoint: &mut Endpoint,
    mut xids: Vec<u32>,
) -> Result<u32, Wrong> {
    let mut last_grant = 0;
    while !xids.is_empty() {
        let arrived = match endpoint.next(bench.limit()).await {
            crate::endpoint::Next::Message(arrived) => arrived,
            crate::endpoint::Next::Silence => {
                return Err(fail(format!("{} calls have no reply within {:?}", xids.len(), bench.limit())));
            }
            crate::endpoint::Next::Closed(reason) => {
                return Err(fail(format!(
                    "the connection ended with {} calls unanswered: {reason}",
                    xids.len()
                )));
            }
        };
        let Some(at) = xids.iter().position(|xid| crate::message::is_for(&arrived.bytes, *xid)) else {
            return Err(fail("a message for an XID that no call has"));
        };
        let xid = xids.swap_remove(at);
        let answer = crate::message::answer(&arrived.bytes, xid);
        let end = answer.header.as_ref().map(|_| rpc_reply(xid, answer.payload.clone()));
        match (end, answer.header) {
            (Some(Ok((RpcEnd::Success, _))), Some(header)) if header.credit > 0 => last_grant = header.credit,
            _ => return Err(fail(answer.reaction.to_string())),
        }
    }
    Ok(last_grant)
}
