//! Replies to calls that offer chunks (RFC 8166 §4.3, §4.5). Rows cover every legal use of chunks, lists that differ
//! from the offer, and memory that was not offered. Not applicable to clients that offer no chunks.

use bytes::Bytes;
use rpcrdma_proto::wire::{ReadSegment, Segment};

use super::serve::{Reply, long, reply};
use super::stage::{Call, ONE, Stage};
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
                wanted(call)
            },
            limit,
        )
        .await?;
    call.ok_or_else(|| match any {
        true => not_applicable(format!("the client offers no {what} within {limit:?}")),
        false => fail(format!("the client makes no call within {limit:?}")),
    })
}

/// Answers a call with a Write chunk by a changed reply.
async fn write(stage: &mut Stage, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let call = offering(stage, has_write, "Write chunk").await?;
    spoilt(stage, call, change).await
}

/// Answers a call with a Reply chunk by a changed reply.
async fn replied(stage: &mut Stage, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let call = offering(stage, has_reply, "Reply chunk").await?;
    spoilt(stage, call, change).await
}

/// Sends a changed reply. A client that accepts it continues at once. A client that discards it waits until it abandons
/// the call, so the tester ends the connection.
async fn spoilt(stage: &mut Stage, call: Call, change: impl FnOnce(&Call, &mut Reply)) -> Outcome {
    let mut reply = reply(&call);
    change(&call, &mut reply);
    stage.send_reply(&call, reply, ONE).await;
    let silence = stage.silence;
    match stage.goes_on_within(&call, silence).await? {
        Some(text) => Ok(text),
        None => {
            if let Some(endpoint) = stage.take(call.connection) {
                endpoint.close().await;
            }
            let text = stage.goes_on(&call).await?;
            Ok(format!("discarded; after the end of the connection {text}"))
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
    write(stage, |_, _| ()).await
}

pub(super) async fn write_absent(stage: &mut Stage) -> Outcome {
    write(stage, |_, reply| reply.lists.write.clear()).await
}

pub(super) async fn write_other_handle(stage: &mut Stage) -> Outcome {
    write(stage, |_, reply| {
        for segment in reply.lists.write.iter_mut().flat_map(|chunk| &mut chunk.segments) {
            segment.handle ^= 1;
        }
    })
    .await
}

pub(super) async fn write_too_long(stage: &mut Stage) -> Outcome {
    write(stage, |_, reply| {
        for segment in reply.lists.write.iter_mut().flat_map(|chunk| &mut chunk.segments) {
            segment.length = u32::MAX;
        }
    })
    .await
}

pub(super) async fn write_more_segments(stage: &mut Stage) -> Outcome {
    write(stage, |_, reply| {
        for chunk in &mut reply.lists.write {
            let again = chunk.segments.clone();
            chunk.segments.extend(again);
        }
    })
    .await
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
    let handle = call.lists.handles().next().unwrap_or(NOWHERE);
    let endpoint = stage.endpoint(call.connection)?;
    let theirs = rpcrdma_proto::PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    if !theirs.remote_invalidation {
        stage.put_back(call);
        return Err(not_applicable("the client says R = 0"));
    }
    for (data, targets) in &reply.writes {
        endpoint.write(data.clone(), targets);
    }
    endpoint.send_invalidating(reply.message(call.xid, ONE), handle);
    endpoint.push().await;
    stage.answered(&call)?;
    stage.goes_on(&call).await
}

pub(super) async fn reply_spare(stage: &mut Stage) -> Outcome {
    replied(stage, |_, _| ()).await
}

pub(super) async fn reply_used(stage: &mut Stage) -> Outcome {
    replied(stage, |call, reply| {
        if let Some(through) = long(call, reply) {
            *reply = through;
        }
    })
    .await
}

pub(super) async fn reply_absent(stage: &mut Stage) -> Outcome {
    replied(stage, |_, reply| reply.lists.reply = None).await
}

pub(super) async fn reply_too_long(stage: &mut Stage) -> Outcome {
    replied(stage, |call, reply| {
        if let Some(through) = long(call, reply) {
            *reply = through;
        }
        for segment in reply.lists.reply.iter_mut().flat_map(|chunk| &mut chunk.segments) {
            segment.length = u32::MAX;
        }
    })
    .await
}

pub(super) async fn reply_empty(stage: &mut Stage) -> Outcome {
    replied(stage, |_, reply| {
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
