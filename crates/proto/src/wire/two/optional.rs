//! RDMA2_OPTIONAL, by which P1 and P2 carry operations on transmissions and several messages in one Send.
//!
//! *On error*: decoding is bounded by [`Limits`](crate::limits::Limits); an operation that does not decode is refused as a whole.

use bytes::{BufMut, BytesMut};

use super::transmission::{
    Malformed, Operation, OperationBase, OperationType, TransmitRequest, TransmitResponse,
};
use super::words::{Structure, Words};
use super::{Error, combined};
use crate::error::ProtocolError;
use crate::wire::{Body, Direction, ErrorBody, FIXED_LEN, two};

/// `rdma_proc` of all operations that are optional.
pub(super) const RDMA2_OPTIONAL: u32 = 5;

/// The bytes before `rdma_optinfo` of an RDMA2_OPTIONAL: fixed part, `rdma_optdir`, `rdma_opttype`, and the length of what follows.
pub(super) const OPTIONAL_LEN: usize = FIXED_LEN + 3 * 4;

/// Returns the bytes of the header of a Call's first transmission.
pub(crate) fn request_len(request: &TransmitRequest) -> usize {
    OPTIONAL_LEN + request.wire_len()
}

/// Returns the bytes of the header of a reply's first transmission.
pub(crate) fn response_len(response: &TransmitResponse) -> usize {
    OPTIONAL_LEN + response.wire_len()
}

/// Returns the bytes of the header of a message with this operation of rtrext-02.
#[must_use]
pub fn operation_len(operation: &Operation) -> usize {
    OPTIONAL_LEN + operation.encoded_len()
}

/// Reads the body of an RDMA2_OPTIONAL with an operation of rtrext-02, or with several messages; `None` if the number is neither.
pub(super) fn transmission(
    (number, base): (u32, OperationBase),
    words: &mut Words<'_, '_>,
) -> Option<Result<Body, ProtocolError>> {
    let limits = words.limits;
    if number == combined::OPERATION && limits.combined_messages > 1 {
        let info = words.opaque().map_err(|_| combined::Malformed::Lengths);
        let lengths = info.and_then(|info| combined::lengths(&info, limits.combined_messages));
        return Some(match lengths {
            Ok(lengths) => Ok(Body::Two(two::Body::Combined(lengths))),
            Err(malformed) => Err(Error::Combined(malformed).into()),
        });
    }
    let kind = OperationType::of(number, base)?;
    let info = words.opaque().map_err(|_| Malformed::Truncated);
    Some(match info.and_then(|info| Operation::decode(kind, &info, limits)) {
        Ok(Operation::Report(report)) => Ok(Body::Error(ErrorBody::Two(two::ErrorBody::Report(report)))),
        Ok(operation) => Ok(Body::Two(two::Body::Transmission(operation))),
        // An error is never answered (RFC 8166 §4.5).
        Err(_) if kind == OperationType::Report => Err(ProtocolError::ErrorTruncated),
        Err(malformed) => Err(Error::Transmission(malformed).into()),
    })
}

/// Appends an RDMA2_OPTIONAL of several messages from its `rdma_proc` on.
pub(super) fn put_combined(direction: Direction, lengths: &[u32], out: &mut BytesMut) {
    out.put_u32(RDMA2_OPTIONAL);
    out.put_u32(direction.word());
    out.put_u32(combined::OPERATION);
    combined::put(lengths, out);
}

/// Appends an RDMA2_OPTIONAL from its `rdma_proc` on.
pub(super) fn put_transmission(
    base: OperationBase,
    direction: Direction,
    operation: &Operation,
    out: &mut BytesMut,
) {
    out.put_u32(RDMA2_OPTIONAL);
    out.put_u32(direction.word());
    out.put_u32(operation.kind().number(base));
    out.put_u32(u32::try_from(operation.encoded_len()).unwrap_or(u32::MAX));
    operation.encode(out);
}
