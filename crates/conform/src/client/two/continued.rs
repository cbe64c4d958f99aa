//! Replies in several messages (version-two-07 §6.3.9). The text demands RDMA2_ERR_INVAL_CONT of a receiver, but an
//! RDMA2_ERROR has no direction, and would end a call of the server under that XID: silence is accepted too.

use bytes::Bytes;
use rpcrdma_proto::wire::{Body, ChunkLists, ErrorBody, two};

use super::{Answers, credit, null_reply, refused, settled};
use crate::client::serve::accepted;
use crate::client::stage::{Call, Stage};
use crate::message::u32_of;
use crate::report::{Outcome, Wrong};

/// Length of the first part, in bytes.
const CUT: usize = 12;
const REFUSAL: ErrorBody = ErrorBody::Two(two::ErrorBody::InvalidContinuation);

/// Returns a RDMA2_REPLY_MIDDLE.
fn middle(stage: &Stage, xid: u32, credit: u32, remaining: usize, part: &[u8]) -> Bytes {
    let body = Body::Two(two::Body::Middle { remaining: u32_of(remaining) });
    stage.wire.encode(xid, credit, body, part)
}

/// Returns a RDMA2_REPLY_INLINE.
fn last(stage: &Stage, xid: u32, credit: u32, part: &[u8]) -> Bytes {
    stage.wire.encode(xid, credit, Body::Message(ChunkLists::default()), part)
}

/// Waits for a call, and returns the parts of a good reply to it.
async fn parts(stage: &mut Stage) -> Result<(Call, Bytes, Bytes), Wrong> {
    let call = settled(stage).await?;
    let mut first = accepted(call.xid, 0).finish();
    let rest = first.split_off(CUT);
    Ok((call, first, rest))
}

pub(super) async fn good(stage: &mut Stage) -> Outcome {
    let (call, first, rest) = parts(stage).await?;
    let (second, third) = (rest.slice(..4), rest.slice(4..));
    let credit = credit(stage, &call)?;
    stage.send(&call, middle(stage, call.xid, credit, rest.len(), &first)).await?;
    stage.send(&call, middle(stage, call.xid, credit, third.len(), &second)).await?;
    stage.end(&call, last(stage, call.xid, credit, &third)).await?;
    stage.ended(&call).await
}

pub(super) async fn remaining(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for wrong in [8, 16] {
        let (call, first, rest) = parts(stage).await?;
        let credit = credit(stage, &call)?;
        stage.send(&call, middle(stage, call.xid, credit, wrong, &first)).await?;
        let bytes = last(stage, call.xid, credit, &rest);
        let answers = Answers { xid: call.xid, errors: &[REFUSAL], silence: true };
        text = refused(stage, &call, bytes, answers).await?;
    }
    Ok(text)
}

pub(super) async fn other_xid(stage: &mut Stage) -> Outcome {
    let (call, first, rest) = parts(stage).await?;
    let credit = credit(stage, &call)?;
    stage.send(&call, middle(stage, call.xid, credit, rest.len(), &first)).await?;
    let xid = call.xid.wrapping_add(0x4000_0000);
    let bytes = last(stage, xid, credit, &rest);
    refused(stage, &call, bytes, Answers { xid, errors: &[REFUSAL], silence: true }).await
}

/// Sends a reply to the call while the parts of another reply to it have not ended.
pub(super) async fn interrupted(stage: &mut Stage) -> Outcome {
    let (call, first, rest) = parts(stage).await?;
    let credit = credit(stage, &call)?;
    stage.send(&call, middle(stage, call.xid, credit, rest.len(), &first)).await?;
    let xid = call.xid.wrapping_add(0x4000_0000);
    let other = null_reply(xid);
    let bytes = stage.wire.encode(xid, credit, other.body(), &other.payload);
    refused(stage, &call, bytes, Answers { xid, errors: &[REFUSAL], silence: true }).await
}
