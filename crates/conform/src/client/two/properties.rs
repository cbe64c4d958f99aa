//! Transport characteristics (xcharext-02), later called properties (version-two-03 §5, version-two-07 §5).

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::two::{self, Exchange, Rest, Value};
use rpcrdma_proto::wire::{Body, ErrorBody};

use super::{Answers, SILENCE, credit, error, refused, set, settled};
use crate::client::broken::{quiet, still_waits};
use crate::client::stage::{Call, ONE, Stage};
use crate::client::wire::Wire;
use crate::message::Words;
use crate::report::{Outcome, Wrong, fail};

/// A property that no document has, outside of the experimental range.
const UNKNOWN: u32 = 0x00ff_0000;
/// An `rdma_opttype` that no document has.
const UNKNOWN_OPERATION: u32 = 77;
/// A receive size below the default.
const SMALL: usize = 2048;
/// A receive size that the tester asks for, in bytes.
const LARGE: u32 = 8192;
/// Number of calls among which there is a long one.
const CALLS: usize = 12;

/// Waits for a call before the tester has announced anything: it does so when the client does.
async fn before_properties(stage: &mut Stage) -> Result<(), Wrong> {
    stage.clear().await;
    stage.announces = false;
    Ok(())
}

/// Returns a message with these properties.
fn announcement(stage: &mut Stage, call: &Call, start: Vec<Value>) -> Result<(u32, Bytes), Wrong> {
    let xid = stage.operation_xid();
    let credit = credit(stage, call)?;
    let constant = (0..start.len()).collect();
    let body = Body::Two(two::Body::Exchange(Exchange::Initial { start, constant }));
    Ok((xid, stage.wire.encode_operation(xid, credit, body)))
}

/// Sends properties in place of the usual ones, on a new connection.
async fn told(
    stage: &mut Stage,
    start: Vec<Value>,
    change: fn(&Bytes) -> Bytes,
) -> Result<(Call, u32), Wrong> {
    before_properties(stage).await?;
    let call = settled(stage).await;
    stage.announces = true;
    let call = call?;
    let (xid, bytes) = announcement(stage, &call, start)?;
    stage.send(&call, change(&bytes)).await?;
    Ok((call, xid))
}

pub(super) async fn unknown(stage: &mut Stage) -> Outcome {
    let (call, _) = told(stage, vec![Wire::word(UNKNOWN, 7)], Bytes::clone).await?;
    let silence = stage.silence;
    quiet(stage, &call, "the properties", silence).await?;
    stage.serve(&call).await;
    let text = stage.ended(&call).await?;
    Ok(format!("ignored; {text}"))
}

/// Returns the error about a value of the wrong type.
fn bad_value(stage: &Stage) -> ErrorBody {
    match stage.wire.profile() {
        Some(Profile::P3) => ErrorBody::Two(two::ErrorBody::BadValue),
        _ => ErrorBody::Chunk,
    }
}

/// Expects an error about properties; the call still waits.
async fn bad(stage: &mut Stage, call: &Call, xid: u32) -> Outcome {
    let errors = [bad_value(stage)];
    let seen = error(stage, call, Answers { xid, errors: &errors, silence: false }).await?;
    let text = still_waits(stage, call).await?;
    Ok(format!("{seen}; {text}"))
}

pub(super) async fn cut(stage: &mut Stage) -> Outcome {
    let id = stage.wire.receive_size_id();
    let (call, xid) = told(stage, vec![Wire::word(id, 4096)], |bytes| {
        // The length of the value is the word before the value: 4 with a list of one property.
        let place = (0..bytes.len() / 4)
            .find(|at| bytes.get(at * 4 + 4..at * 4 + 8) == Some(&4096_u32.to_be_bytes()[..]))
            .unwrap_or(0);
        set(bytes, place, 4000)
    })
    .await?;
    bad(stage, &call, xid).await
}

pub(super) async fn short(stage: &mut Stage) -> Outcome {
    let id = stage.wire.receive_size_id();
    let value = Value { id, data: Bytes::from_static(&[16, 0]) };
    let (call, xid) = told(stage, vec![value], Bytes::clone).await?;
    bad(stage, &call, xid).await
}

pub(super) async fn receive_size(stage: &mut Stage) -> Outcome {
    stage.clear().await;
    let before = std::mem::replace(&mut stage.wire.receive_size, SMALL);
    let outcome = async {
        let mut longest = 0;
        let mut connection = None;
        for _ in 0..CALLS {
            let call = settled(stage).await?;
            longest = longest.max(call.len);
            connection = Some(call.connection);
            stage.serve(&call).await;
            stage.ended(&call).await?;
        }
        let announced = connection.is_some_and(|connection| stage.has_announced(connection));
        match announced {
            true => Ok(format!("the longest of {CALLS} Sends has {longest} bytes")),
            false => Err(crate::report::not_applicable("the client exchanges no properties")),
        }
    }
    .await;
    stage.wire.receive_size = before;
    stage.clear().await;
    outcome
}

/// Asks for a larger receive buffer.
pub(super) async fn asked(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let xid = stage.operation_xid();
    let want = vec![Wire::word(stage.wire.receive_size_id(), LARGE)];
    let body = Body::Two(two::Body::Exchange(Exchange::Request { want }));
    let bytes = stage.wire.encode_operation(xid, ONE, body);
    stage.operations.clear();
    stage.send(&call, bytes).await?;
    let errors = [two::ErrorBody::InvalidOption, two::ErrorBody::InvalidProcedure].map(ErrorBody::Two);
    let seen = error(stage, &call, Answers { xid, errors: &errors, silence: true }).await?;
    let response = stage.operations.iter().find_map(|(_, header)| match &header.body {
        Body::Two(two::Body::Exchange(Exchange::Response { done, rejected, rest })) => {
            Some((header.xid, done.contains(0), rejected.contains(0), rest.clone()))
        }
        _ => None,
    });
    let Some((under, done, rejected, rest)) = response else {
        // A client need not have the operation.
        return match seen == SILENCE {
            true => Err(fail("no response")),
            false => still_waits(stage, &call).await.map(|text| format!("{seen}; {text}")),
        };
    };
    if under != xid {
        return Err(fail(format!("a response under XID {under:#010x}, the request has {xid:#010x}")));
    }
    let pending = match rest {
        Rest::Pending(pending) => pending.contains(0),
        Rest::Other(values) => !values.is_empty(),
    };
    if u32::from(done) + u32::from(rejected) + u32::from(pending) != 1 {
        return Err(fail("a response in which the request is not covered once"));
    }
    let text = still_waits(stage, &call).await?;
    let how = if done {
        "done"
    } else if rejected {
        "rejected"
    } else {
        "pending, or another value"
    };
    Ok(format!("{how}; {text}"))
}

pub(super) async fn unknown_operation(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let xid = stage.operation_xid();
    // RDMA2_OPTIONAL, CALL, the type, no `rdma_optinfo`.
    let bytes = Words::new().words(&[xid, 2, ONE, 5, 0, UNKNOWN_OPERATION, 0]).finish();
    let errors = [ErrorBody::Two(two::ErrorBody::InvalidOption)];
    refused(stage, &call, bytes, Answers { xid, errors: &errors, silence: false }).await
}

pub(super) async fn twice(stage: &mut Stage) -> Outcome {
    let id = stage.wire.receive_size_id();
    let (call, _) = told(stage, vec![Wire::word(id, 4096)], Bytes::clone).await?;
    let (xid, bytes) = announcement(stage, &call, vec![Wire::word(id, 4096)])?;
    let errors = [ErrorBody::Two(two::ErrorBody::InvalidContinuation)];
    refused(stage, &call, bytes, Answers { xid, errors: &errors, silence: false }).await
}
