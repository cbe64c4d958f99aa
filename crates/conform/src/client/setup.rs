//! Connections that are refused, closed, cut off, or set up with unusual private data (RFC 8797 §5), and Sends that end
//! them.

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::ChunkLists;

use super::credits::hold;
use super::serve::accepted;
use super::stage::{Call, ONE, Stage, Welcome, announcement};
use crate::endpoint::CANNOT_INVALIDATE;
use crate::message::{RDMA_MSG, message};
use crate::report::{Outcome, Wrong, fail, not_applicable};

/// A handle that names no window.
const NOWHERE: u32 = 0x00ba_d000;
/// Time during which connection attempts are refused, as a multiple of the time of silence.
const REFUSING: u32 = 2;

/// Number of calls on each connection: with some luck one of them is long enough to reach the threshold.
const CALLS: usize = 8;

/// Expects calls on new connections that were set up with this private data.
async fn welcomed(stage: &mut Stage, private_data: Vec<Bytes>) -> Outcome {
    let mut text = String::new();
    for data in private_data {
        let len = data.len();
        stage.welcome(Welcome::Accept(data.into())).await;
        stage.clear().await;
        let served = async {
            let mut text = String::new();
            for _ in 0..CALLS {
                let call = stage.call().await?;
                stage.serve(&call).await;
                text = stage.ended(&call).await?;
            }
            Ok(text)
        };
        let outcome = served.await;
        stage.welcome(Welcome::Accept(announcement())).await;
        text = outcome.map_err(|wrong: Wrong| fail(format!("with {len} bytes: {}", wrong.seen)))?;
    }
    stage.clear().await;
    Ok(text)
}

fn ours() -> PrivateData {
    PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 }
}

pub(super) async fn private_data_absent(stage: &mut Stage) -> Outcome {
    welcomed(stage, vec![Bytes::new()]).await
}

pub(super) async fn private_data_malformed(stage: &mut Stage) -> Outcome {
    welcomed(
        stage,
        vec![ours().encode().slice(..1), ours().encode().slice(..7), Bytes::from_static(&[0xff; 40])],
    )
    .await
}

pub(super) async fn private_data_version(stage: &mut Stage) -> Outcome {
    let mut data = ours().encode().to_vec();
    if let Some(version) = data.get_mut(4) {
        *version = 2;
    }
    welcomed(stage, vec![data.into()]).await
}

pub(super) async fn private_data_embedded(stage: &mut Stage) -> Outcome {
    let behind = |offset: usize| Bytes::from([&vec![0xf6; offset][..], &ours().encode()].concat());
    welcomed(stage, vec![behind(1), behind(6)]).await
}

/// Waits for a call after one that was served. A client that has lost several connections in a row waits longer before
/// the next.
async fn well(stage: &mut Stage) -> Result<Call, Wrong> {
    let call = stage.call().await?;
    stage.serve(&call).await;
    stage.call().await
}

/// Checks that the client survives `last` and the end of its connection. On the new one it has one credit until the
/// first reply (RFC 8166 §3.3.3).
async fn reconnects(stage: &mut Stage, last: &Call) -> Outcome {
    let text = stage.goes_on_elsewhere(last, "the end of the connection").await?;
    let next = stage.call().await?;
    hold(stage, vec![next.clone()]).await?;
    stage.serve(&next).await;
    stage.ended(&next).await?;
    Ok(format!("{text}, one until its reply"))
}

pub(super) async fn refused(stage: &mut Stage) -> Outcome {
    let call = well(stage).await?;
    stage.welcome(Welcome::Reject).await;
    stage.clear().await;
    tokio::time::sleep(stage.silence * REFUSING).await;
    stage.welcome(Welcome::Accept(announcement())).await;
    reconnects(stage, &call).await
}

pub(super) async fn closed(stage: &mut Stage) -> Outcome {
    let call = well(stage).await?;
    stage.clear().await;
    reconnects(stage, &call).await
}

/// Cuts the connection on a call; bytes that were sent before may have left.
async fn cut_after(stage: &mut Stage, bytes: impl FnOnce(&Call) -> Option<Bytes>) -> Outcome {
    let call = well(stage).await?;
    if let Some(bytes) = bytes(&call) {
        stage.end(&call, bytes).await?;
    }
    if let Some(endpoint) = stage.take(call.connection) {
        endpoint.cut().await;
    }
    reconnects(stage, &call).await
}

pub(super) async fn cut(stage: &mut Stage) -> Outcome {
    cut_after(stage, |_| None).await
}

pub(super) async fn cut_after_reply(stage: &mut Stage) -> Outcome {
    cut_after(stage, |call| {
        let payload = accepted(call.xid, 0).finish();
        Some(message(call.xid, ONE, RDMA_MSG, ChunkLists::default(), &payload))
    })
    .await
}

/// Leaves a call without an answer, then closes the connection.
pub(super) async fn no_reply(stage: &mut Stage) -> Outcome {
    let call = well(stage).await?;
    tokio::time::sleep(stage.silence).await;
    stage.clear().await;
    reconnects(stage, &call).await
}

pub(super) async fn foreign_invalidation(stage: &mut Stage) -> Outcome {
    let call = well(stage).await?;
    let payload = accepted(call.xid, 0).finish();
    let bytes = message(call.xid, ONE, RDMA_MSG, ChunkLists::default(), &payload);
    let endpoint = stage.endpoint(call.connection)?;
    if !endpoint.invalidates() {
        stage.put_back(call);
        return Err(not_applicable(CANNOT_INVALIDATE));
    }
    endpoint.send_invalidating(bytes, NOWHERE);
    endpoint.push().await;
    stage.answered(&call)?;
    stage.goes_on_elsewhere(&call, "the invalidation").await
}

/// Sends more bytes than any client may have announced (RFC 8797 §4.2).
pub(super) async fn oversized(stage: &mut Stage) -> Outcome {
    let call = well(stage).await?;
    let payload = accepted(call.xid, 0).bytes(&vec![0; 263_000]).finish();
    stage.end(&call, message(call.xid, ONE, RDMA_MSG, ChunkLists::default(), &payload)).await?;
    stage.goes_on_elsewhere(&call, "the reply").await
}
