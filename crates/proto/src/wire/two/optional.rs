//! RDMA2_OPTIONAL, by which P1 and P2 carry operations on transmissions and several messages in one Send. P1
//! carries the operations on characteristics so too.
//!
//! *On error*: decoding is bounded by [`Limits`](crate::wire::Limits); an operation that does not decode is
//! refused as a whole.

use bytes::{BufMut, BytesMut};

use super::codec::V2;
use super::exchange::{Exchange, Step, put_opaque};
use super::transmission::{Malformed, Operation, OperationType};
use super::words::Words;
use super::{Error, combined};
use crate::wire::{Body, Direction, ErrorBody, FIXED_LEN, ProtocolError, narrow, two};

/// `rdma_proc` of all operations that are optional.
pub(super) const RDMA2_OPTIONAL: u32 = 5;

/// The bytes before `rdma_optinfo` of an RDMA2_OPTIONAL: fixed part, `rdma_optdir`, `rdma_opttype`, and the
/// length of what follows.
pub(super) const OPTIONAL_LEN: usize = FIXED_LEN + 3 * 4;

/// Returns the bytes of the header of a message with this operation of rtrext-02.
#[must_use]
pub fn operation_len(operation: &Operation) -> usize {
    OPTIONAL_LEN + operation.encoded_len()
}

/// Reads `rdma_opttype` and `rdma_optinfo`.
pub(super) fn read(codec: &V2, said: Direction, words: &mut Words<'_, '_>) -> Result<Body, ProtocolError> {
    let operation = words.word().map_err(Error::from)?;
    let limits = words.limits;
    if operation == combined::OPERATION && limits.combined_messages > 1 {
        let info = words.opaque().map_err(|_| combined::Malformed::Lengths);
        let lengths = info.and_then(|info| combined::lengths(&info, limits.combined_messages));
        return Ok(Body::Two(two::Body::Combined(lengths.map_err(Error::from)?)));
    }
    if let Some(kind) = codec.base().and_then(|base| OperationType::of(operation, base)) {
        let info = words.opaque().map_err(|_| Malformed::Truncated);
        return match info.and_then(|info| Operation::decode(kind, &info, limits)) {
            Ok(Operation::Report(report)) => Ok(Body::Error(ErrorBody::Two(two::ErrorBody::Report(report)))),
            Ok(operation) => Ok(Body::Two(two::Body::Transmission(operation))),
            // An error is never answered (RFC 8166 §4.5).
            Err(_) if kind == OperationType::Report => Err(ProtocolError::ErrorTruncated),
            Err(malformed) => Err(Error::Transmission(malformed).into()),
        };
    }
    Ok(Body::Two(two::Body::Exchange(exchange((codec, said), operation, words)?)))
}

/// Reads an operation on characteristics, which has no Payload.
///
/// Without a Payload `rdma_optdir` says which role sends the message (version-two-01 §4.2.2): a Responder
/// only sends answers. An unknown operation is refused before its direction is checked (§3.1).
fn exchange(
    (codec, said): (&V2, Direction),
    operation: u32,
    words: &mut Words<'_, '_>,
) -> Result<Exchange, Error> {
    let row = codec.steps.iter().find(|(number, _)| *number == operation);
    let (_, step) = row.ok_or(Error::UnknownOperation { operation })?;
    if matches!(step, Step::Pending) != (said == Direction::Reply) {
        return Err(Error::OperationDirection { operation, said });
    }
    Words::whole(&words.opaque()?, words.limits, |words| step.read(words))
}

/// Appends `rdma_opttype` and `rdma_optinfo`, if the body is an operation that the profile has.
pub(super) fn put(codec: &V2, body: &Body, out: &mut BytesMut) -> Option<()> {
    let base = codec.base()?;
    let put_transmission = |operation: &Operation, out: &mut BytesMut| {
        out.put_u32(operation.kind().number(base));
        out.put_u32(narrow(operation.encoded_len()));
        operation.encode(out);
    };
    match body {
        Body::Two(two::Body::Combined(lengths)) => {
            out.put_u32(combined::OPERATION);
            combined::put(lengths, out);
        }
        Body::Two(two::Body::Transmission(operation)) => put_transmission(operation, out),
        Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) => {
            put_transmission(&Operation::Report(*report), out);
        }
        Body::Two(two::Body::Exchange(exchange)) => {
            let mut info = BytesMut::new();
            let operation = codec.steps.iter().find(|(_, step)| step.put(exchange, &mut info).is_some());
            out.put_u32(operation?.0);
            put_opaque(&info, out);
        }
        _ => return None,
    }
    Some(())
}
