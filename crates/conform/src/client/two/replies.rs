//! The first message of a connection, and replies and errors that no correct server sends.

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, ChunkLists, Direction, ErrorBody, Header, Limits, two};

use super::{Answers, credit, discarded, good, null_reply, one, refused, set, settled};
use crate::client::broken::{reverse_answer, reverse_rpc};
use crate::client::credits::hold;
use crate::client::serve::{accepted, reply};
use crate::client::stage::{ONE, Stage};
use crate::endpoint::CANNOT_INVALIDATE;
use crate::message::{LEAST_HEADER, RDMA_ERROR, RDMA_MSG, RpcEnd, Words, message, rpc_reply};
use crate::report::{Outcome, Wrong, fail, not_applicable};

/// Maximum length of the first message, in bytes (version-two-01 §5).
const FIRST_MESSAGE: usize = 1024;
/// An `rdma_proc` and error code that no document has.
const UNKNOWN: u32 = 77;

/// Returns the credit word of a message.
fn credit_of(bytes: &Bytes) -> u32 {
    bytes.get(8..).and_then(|bytes| bytes.first_chunk()).map_or(ONE, |word| u32::from_be_bytes(*word))
}

/// Returns an XID that no call has.
const fn other(xid: u32) -> u32 {
    xid.wrapping_add(0x4000_0000)
}

pub(super) async fn offer(stage: &mut Stage) -> Outcome {
    stage.clear().await;
    let first = stage.call().await?;
    if first.len > FIRST_MESSAGE {
        return Err(fail(format!("the first message has {} bytes", first.len)));
    }
    hold(stage, vec![first.clone()]).await?;
    if stage.operations.iter().any(|(connection, _)| *connection == first.connection) {
        return Err(fail("an operation before the first reply"));
    }
    stage.serve(&first).await;
    let text = stage.ended(&first).await?;
    Ok(format!("one message of {} bytes until its reply; {text}", first.len))
}

pub(super) async fn version_one(stage: &mut Stage) -> Outcome {
    discarded(stage, |_, call, good| {
        let payload = accepted(call.xid, 0).finish();
        one("rdma_vers 1", message(call.xid, credit_of(good), RDMA_MSG, ChunkLists::default(), &payload))
    })
    .await
}

pub(super) async fn other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |stage, call, good| {
        let reply = null_reply(other(call.xid));
        one("another XID", stage.wire.encode(other(call.xid), credit_of(good), reply.body(), &reply.payload))
    })
    .await
}

pub(super) async fn unknown_type(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let credit = credit(stage, &call)?;
    let bytes = set(&set(&good(stage, &call)?, 3, UNKNOWN), 2, credit);
    let errors = [ErrorBody::Chunk, ErrorBody::Two(two::ErrorBody::InvalidProcedure)];
    let errors = if stage.wire.profile() == Some(Profile::P1) { &errors[..1] } else { &errors[1..] };
    refused(stage, &call, bytes, Answers { xid: call.xid, errors, silence: true }).await
}

pub(super) async fn direction(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let credit = credit(stage, &call)?;
    let reply = null_reply(call.xid);
    let bytes = stage.wire.directed(Direction::Call, call.xid, credit, reply.body(), &reply.payload);
    refused(stage, &call, bytes, Answers { xid: call.xid, errors: &[ErrorBody::Chunk], silence: true }).await
}

pub(super) async fn cut(stage: &mut Stage) -> Outcome {
    discarded(stage, |_, _, good| {
        [LEAST_HEADER / 2, 16].map(|len| (format!("{len} bytes"), good.slice(..len.min(good.len())))).into()
    })
    .await
}

/// Sends an unexpected call in the reverse direction (RFC 8167). A client without a responder stays silent, or refuses it
/// under its XID with PROG_UNAVAIL or an RDMA2_ERROR.
pub(super) async fn reverse_call(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let (xid, credit, codec) = (other(call.xid), credit(stage, &call)?, stage.wire.codec);
    let body = Body::Message(ChunkLists::default());
    let bytes = stage.wire.directed(Direction::Call, xid, credit, body, &reverse_rpc(xid));
    stage.send(&call, bytes).await?;
    let judge = |bytes: &Bytes| match codec.decode(bytes, &Limits::default()) {
        Err(error) => (format!("a message that does not decode: {error}"), false),
        Ok((header, _)) if header.xid != xid => (format!("under XID {:#010x}", header.xid), false),
        Ok((Header { body: Body::Error(error), .. }, _)) => {
            (format!("RDMA2_ERROR: {error}"), !matches!(error, ErrorBody::Version { .. }))
        }
        Ok((Header { body: Body::Message(_), direction: Some(Direction::Reply), .. }, len)) => {
            match rpc_reply(xid, bytes.slice(len.min(bytes.len())..)) {
                Ok((end, _)) => (format!("reply {end}"), end == RpcEnd::ProgramUnavailable),
                Err(what) => (what, false),
            }
        }
        Ok(_) => ("neither a reply nor an RDMA2_ERROR".into(), false),
    };
    reverse_answer(stage, &call, judge).await
}

/// Returns the errors of a profile that end a call.
fn ending(profile: Option<Profile>) -> Vec<ErrorBody> {
    use two::ErrorBody as Code;
    let codes = match profile {
        Some(Profile::P1) => vec![],
        Some(Profile::P2) => {
            vec![Code::ReplyResource { segment: 0, needed: 0 }, Code::InvalidProcedure, Code::System]
        }
        _ => vec![
            Code::InvalidProcedure,
            Code::InvalidContinuation,
            Code::ReadChunks { most: 0 },
            Code::WriteChunks { most: 0 },
            Code::Segments { most: 1 },
            Code::WriteResource { chunk: 0, needed: 0 },
            Code::ReplyResource { segment: 0, needed: 0 },
            Code::System,
        ],
    };
    let codes = codes.into_iter().map(ErrorBody::Two);
    std::iter::once(ErrorBody::Chunk).chain(codes).collect()
}

pub(super) async fn errors(stage: &mut Stage) -> Outcome {
    let errors = ending(stage.wire.profile());
    let count = errors.len();
    for error in errors {
        let call = settled(stage).await?;
        let credit = credit(stage, &call)?;
        let bytes = stage.wire.encode(call.xid, credit, Body::Error(error), &[]);
        stage.end(&call, bytes).await?;
        let ended = stage.ended(&call).await;
        ended.map_err(|wrong| Wrong { seen: format!("{error}: {}", wrong.seen), ..wrong })?;
    }
    Ok(format!("calls end with each of {count} errors, on the same connection"))
}

pub(super) async fn error_unknown(stage: &mut Stage) -> Outcome {
    discarded(stage, |_, _, good| {
        let head = good.slice(..12);
        one("code 77", Words::new().bytes(&head).words(&[RDMA_ERROR, UNKNOWN, 0, 0]).finish())
    })
    .await
}

pub(super) async fn error_other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |stage, call, good| {
        let bytes = stage.wire.encode(other(call.xid), credit_of(good), Body::Error(ErrorBody::Chunk), &[]);
        one("an error", bytes)
    })
    .await
}

/// Invalidates the handle that a call names.
pub(super) async fn invalidation(stage: &mut Stage) -> Outcome {
    let limit = stage.limit;
    let call = stage.call_where(|call| call.invalidate != 0, limit).await?;
    let call = call.ok_or_else(|| crate::report::not_applicable("no call names a handle"))?;
    if !call.lists.handles().any(|handle| handle == call.invalidate) {
        return Err(fail(format!(
            "the call names the handle {:#x}, which it does not offer",
            call.invalidate
        )));
    }
    let reply = reply(&call);
    let bytes = stage.encode(&call, &reply, ONE)?;
    let endpoint = stage.endpoint(call.connection)?;
    if !endpoint.invalidates() {
        stage.put_back(call);
        return Err(not_applicable(CANNOT_INVALIDATE));
    }
    for (data, targets) in &reply.writes {
        endpoint.write(data.clone(), targets);
    }
    endpoint.send_invalidating(bytes, call.invalidate);
    endpoint.push().await;
    stage.answered(&call)?;
    stage.ended(&call).await
}

/// Refuses the first message of a connection, and speaks Version One from then on.
pub(super) async fn err_vers(stage: &mut Stage) -> Outcome {
    stage.clear().await;
    let first = stage.call().await?;
    let range = ErrorBody::Version { low: 1, high: 1 };
    let bytes = stage.wire.encode(first.xid, ONE, Body::Error(range), &[]);
    stage.end(&first, bytes).await?;
    let two = std::mem::replace(&mut stage.wire.codec, &V1);
    let outcome = async {
        let call = stage.call().await?;
        if call.connection != first.connection {
            return Err(fail("the client leaves the connection"));
        }
        stage.serve(&call).await;
        stage.ended(&call).await
    }
    .await;
    stage.clear().await;
    stage.wire.codec = two;
    outcome.map(|text| format!("Version One; {text}"))
}
