//! Transmission groups (rtrext-02).

use rpcrdma_proto::wire::two::transmission::{
    ErrorReport, Operation, ReportedError, TransmissionId, TransmitContinuation, TransmitResponse,
};
use rpcrdma_proto::wire::{Body, Direction, ErrorBody, two};

use super::{Answers, refused, settled};
use crate::client::serve::accepted;
use crate::client::stage::{ONE, Stage};
use crate::message::u32_of;
use crate::report::Outcome;

/// `rdma_opttype` of ROPT_XMTRESP (rtrext-02 §9.1, table 4).
const RESPONSE: u32 = 6;

/// `rdma_proc` of replies outside of groups, and of those in groups.
const PLAIN: u32 = 0;
const OPTIONAL: u32 = 5;

/// Returns the report about a transmission of a reply.
const fn report(xid: u32, number: u32, error: ReportedError) -> ErrorBody {
    let bad = TransmissionId { xid, direction: Direction::Reply, number };
    ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead: None, error }))
}

pub(super) async fn continuation_alone(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let payload = accepted(call.xid, 0).finish();
    let (number, payload_len) = (1, u32_of(payload.len()));
    let operation =
        Operation::Continuation(TransmitContinuation { number, initial_type: RESPONSE, payload_len });
    let body = Body::Two(two::Body::Transmission(operation));
    let bytes = stage.wire.encode(call.xid, ONE, body, &payload);
    let errors = [
        report(call.xid, number, ReportedError::Continuation),
        ErrorBody::Two(two::ErrorBody::InvalidOption),
    ];
    refused(stage, &call, bytes, Answers { xid: call.xid, errors: &errors, silence: true }).await
}

pub(super) async fn response_unasked(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let payload = accepted(call.xid, 0).finish();
    let payload_len = u32_of(payload.len());
    let operation = Operation::Response(TransmitResponse { placed: Vec::new(), count: 2, payload_len });
    let body = Body::Two(two::Body::Transmission(operation));
    let bytes = stage.wire.encode(call.xid, ONE, body, &payload);
    let due = ReportedError::HeaderType { expected: PLAIN, seen: OPTIONAL };
    let errors = [report(call.xid, 0, due), ErrorBody::Two(two::ErrorBody::InvalidOption)];
    refused(stage, &call, bytes, Answers { xid: call.xid, errors: &errors, silence: true }).await
}
