//! Replies to calls that offer chunks (RFC 8166 §4.3, §4.5). Rows cover every legal use of chunks, lists that differ
//! from the offer, and memory that was not offered. Not applicable to clients that offer no chunks.

use std::borrow::BorrowMut;

use bytes::Bytes;
use rpcrdma_proto::wire::{ReadSegment, Segment, WriteChunk};

use super::broken::{quiet, still_waits};
use super::serve::{Reply, long, reply};
use super::stage::{Call, ONE, Stage};
use crate::endpoint::CANNOT_INVALIDATE;
use crate::report::{Outcome, Wrong, fail, not_applicable};

/// A handle that names no window.
const NOWHERE: u32 = 0x00ba_d000;

fn has_write(call: &Call) -> bool {
    call.lists.write.iter().any(|chunk| chunk.total() > 0)
}

fn has_reply(call: &Call) -> bool {
    call.lists.reply.as_ref().is_some_and(|chunk| chunk.total() >= 256)
}

/// Waits for a call that offers the chunks of the row.
async fn offering(stage: &mut Stage, wanted: fn(&Call) -> bool, what: &str) -> Result<Call, Wrong> {
    let limit = stage.limit;
    let mut any = false;
    let call = stage
        .call_where(
            |call| {
                any = true;
                call.settled && wanted(call)
            },
            limit,
        )
        .await?;
    call.ok_or_else(|| match any {
        true => not_applicable(format!("the client offers no {what} within {limit:?}")),
        false => fail(format!("the client makes no call within {limit:?}")),
    })
}

/// Expected end of a changed reply.
#[derive(Clone, Copy)]
enum End {
    /// The reply is good and ends the call.
    Taken,
    /// The client silently discards the reply, and waits for a good one (RFC 8166 §4.5).
    Discarded,
    Either,
}

/// Answers a call with a Write chunk by a changed reply.
async fn write(stage: &mut Stage, end: End, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let call = offering(stage, has_write, "Write chunk").await?;
    changed(stage, call, end, change).await
}

/// Answers a call with a Reply chunk by a changed reply.
async fn replied(stage: &mut Stage, end: End, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let call = offering(stage, has_reply, "Reply chunk").await?;
    changed(stage, call, end, change).await
}

/// Sends a changed reply, and the good one afterwards if the client discards the first.
async fn changed(stage: &mut Stage, call: Call, end: End, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let mut reply = reply(&call);
    change(&call, &mut reply);
    let silence = stage.silence;
    match end {
        End::Taken => {
            stage.send_reply(&call, reply, ONE).await;
            stage.ended(&call).await
        }
        End::Discarded => {
            stage.post_reply(&call, &reply, ONE).await?;
            quiet(stage, &call, "the reply", silence).await?;
            still_waits(stage, &call).await
        }
        End::Either => {
            stage.send_reply(&call, reply, ONE).await;
            match stage.goes_on_within(&call, silence).await? {
                Some(_) => stage.ended(&call).await,
                None => still_waits(stage, &call).await,
            }
        }
    }
}

/// Sends a reply after a Write to memory that was not offered.
async fn refused(stage: &mut Stage, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let call = offering(stage, has_write, "Write chunk").await?;
    let mut reply = reply(&call);
    change(&call, &mut reply);
    stage.send_reply(&call, reply, ONE).await;
    stage.goes_on_elsewhere(&call, "the RDMA Write").await
}

pub(super) async fn write_used(stage: &mut Stage) -> Outcome {
    write(stage, End::Taken, |_, _| ()).await
}

pub(super) async fn write_absent(stage: &mut Stage) -> Outcome {
    write(stage, End::Either, |_, reply| reply.lists.write.clear()).await
}

/// Returns the segments of a kind of chunk that a reply returns.
fn returned(
    chunks: impl IntoIterator<Item = impl BorrowMut<WriteChunk>>,
    change: impl Fn(&mut Vec<Segment>),
) {
    for mut chunk in chunks {
        change(&mut chunk.borrow_mut().segments);
    }
}

fn other_handles(segments: &mut [Segment]) {
    segments.iter_mut().for_each(|segment| segment.handle ^= 1);
}

fn other_offsets(segments: &mut [Segment]) {
    segments.iter_mut().for_each(|segment| segment.offset = segment.offset.wrapping_add(8));
}

fn too_long(segments: &mut [Segment]) {
    segments.iter_mut().for_each(|segment| segment.length = u32::MAX);
}

fn more_segments(segments: &mut Vec<Segment>) {
    segments.extend(segments.clone());
}

/// Answers a call with a Write chunk by a reply that returns the chunk changed.
async fn write_returned(stage: &mut Stage, change: fn(&mut Vec<Segment>)) -> Outcome {
    write(stage, End::Discarded, |_, reply| returned(&mut reply.lists.write, change)).await
}

pub(super) async fn write_other_handle(stage: &mut Stage) -> Outcome {
    write_returned(stage, |segments| other_handles(segments)).await
}

pub(super) async fn write_other_offset(stage: &mut Stage) -> Outcome {
    write_returned(stage, |segments| other_offsets(segments)).await
}

pub(super) async fn write_too_long(stage: &mut Stage) -> Outcome {
    write_returned(stage, |segments| too_long(segments)).await
}

pub(super) async fn write_more_segments(stage: &mut Stage) -> Outcome {
    write_returned(stage, more_segments).await
}

pub(super) async fn write_more_chunks(stage: &mut Stage) -> Outcome {
    write(stage, End::Discarded, |_, reply| {
        let again = reply.lists.write.clone();
        reply.lists.write.extend(again);
    })
    .await
}

/// Answers a call without Write chunks by a reply with one.
pub(super) async fn write_unasked(stage: &mut Stage) -> Outcome {
    let call = offering(stage, |call| call.lists.write.is_empty(), "call without a Write chunk").await?;
    changed(stage, call, End::Discarded, |_, reply| reply.lists.write.push(foreign())).await
}

/// Returns a chunk that no call has offered.
fn foreign() -> WriteChunk {
    WriteChunk { segments: vec![Segment { handle: NOWHERE, length: 64, offset: 4096 }] }
}

pub(super) async fn write_beyond(stage: &mut Stage) -> Outcome {
    refused(stage, |_, reply| {
        for (data, targets) in &mut reply.writes {
            *data = Bytes::from(vec![0x5a; 64]);
            // Directly behind the window.
            targets.truncate(1);
            for target in targets {
                *target = Segment {
                    offset: target.offset.wrapping_add(target.length.into()),
                    length: 64,
                    ..*target
                };
            }
        }
    })
    .await
}

pub(super) async fn write_nowhere(stage: &mut Stage) -> Outcome {
    refused(stage, |_, reply| {
        for (data, targets) in &mut reply.writes {
            *data = Bytes::from(vec![0x5a; 64]);
            *targets = vec![Segment { handle: NOWHERE, length: 64, offset: 4096 }];
        }
    })
    .await
}

/// Invalidates a window of the call with its reply, if the client announced support (RFC 8797 §4.1).
pub(super) async fn invalidated(stage: &mut Stage) -> Outcome {
    let call = offering(stage, |call| has_write(call) || has_reply(call), "chunk").await?;
    let reply = reply(&call);
    let bytes = stage.encode(&call, &reply, ONE)?;
    let handle = call.lists.handles().next().unwrap_or(NOWHERE);
    let endpoint = stage.endpoint(call.connection)?;
    if !endpoint.invalidates() {
        stage.put_back(call);
        return Err(not_applicable(CANNOT_INVALIDATE));
    }
    let theirs = rpcrdma_proto::PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    if !theirs.remote_invalidation {
        stage.put_back(call);
        return Err(not_applicable("the client says R = 0"));
    }
    for (data, targets) in &reply.writes {
        endpoint.write(data.clone(), targets);
    }
    endpoint.send_invalidating(bytes, handle);
    endpoint.push().await;
    stage.answered(&call)?;
    stage.ended(&call).await
}

/// Moves a reply into the Reply chunk, if the chunk is long enough.
fn through_chunk(call: &Call, reply: &mut Reply) {
    if let Some(through) = long(call, reply) {
        *reply = through;
    }
}

pub(super) async fn reply_spare(stage: &mut Stage) -> Outcome {
    replied(stage, End::Taken, |_, _| ()).await
}

pub(super) async fn reply_used(stage: &mut Stage) -> Outcome {
    replied(stage, End::Taken, through_chunk).await
}

pub(super) async fn reply_absent(stage: &mut Stage) -> Outcome {
    replied(stage, End::Either, |_, reply| reply.lists.reply = None).await
}

/// Answers a call with a Reply chunk through that chunk, and returns the chunk changed.
async fn reply_returned(stage: &mut Stage, change: fn(&mut Vec<Segment>)) -> Outcome {
    replied(stage, End::Discarded, |call, reply| {
        through_chunk(call, reply);
        returned(&mut reply.lists.reply, change);
    })
    .await
}

pub(super) async fn reply_other_handle(stage: &mut Stage) -> Outcome {
    reply_returned(stage, |segments| other_handles(segments)).await
}

pub(super) async fn reply_more_segments(stage: &mut Stage) -> Outcome {
    reply_returned(stage, more_segments).await
}

pub(super) async fn reply_too_long(stage: &mut Stage) -> Outcome {
    reply_returned(stage, |segments| too_long(segments)).await
}

/// Answers a call without a Reply chunk by a reply that is in one.
pub(super) async fn reply_unasked(stage: &mut Stage) -> Outcome {
    let call = offering(stage, |call| call.lists.reply.is_none(), "call without a Reply chunk").await?;
    changed(stage, call, End::Discarded, |_, reply| {
        reply.procedure = crate::message::RDMA_NOMSG;
        reply.lists.reply = Some(foreign());
        reply.payload = Bytes::new();
    })
    .await
}

pub(super) async fn reply_empty(stage: &mut Stage) -> Outcome {
    replied(stage, End::Discarded, |_, reply| {
        reply.procedure = crate::message::RDMA_NOMSG;
        reply.payload = Bytes::new();
    })
    .await
}

/// Makes RDMA Reads of memory that was offered for writing.
pub(super) async fn read_of_write_window(stage: &mut Stage) -> Outcome {
    let call = offering(stage, |call| has_write(call) || has_reply(call), "chunk").await?;
    let chunks = call.lists.write.iter().chain(&call.lists.reply);
    let sources: Vec<Segment> = chunks.flat_map(|chunk| &chunk.segments).take(1).copied().collect();
    read(stage, call, sources).await
}

pub(super) async fn read_nowhere(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    read(stage, call, vec![Segment { handle: NOWHERE, length: 64, offset: 4096 }]).await
}

/// Makes RDMA Reads beyond a Read segment.
pub(super) async fn read_beyond(stage: &mut Stage) -> Outcome {
    let call = offering(stage, |call| !call.lists.read.is_empty(), "Read chunk").await?;
    let beyond =
        |entry: &ReadSegment| Segment { length: entry.segment.length.saturating_add(4096), ..entry.segment };
    let sources = call.lists.read.iter().take(1).map(beyond).collect();
    read(stage, call, sources).await
}

/// Reads memory, and checks that the Read fails.
async fn read(stage: &mut Stage, call: Call, sources: Vec<Segment>) -> Outcome {
    let limit = stage.limit;
    let data = stage.endpoint(call.connection)?.read(&sources, limit).await;
    if let Some(data) = data {
        return Err(fail(format!("{} bytes can be read that were not offered", data.len())));
    }
    if let Some(endpoint) = stage.take(call.connection) {
        endpoint.close().await;
    }
    stage.goes_on(&call).await
}
