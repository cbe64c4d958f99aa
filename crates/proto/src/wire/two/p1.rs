//! The header of RPC-over-RDMA Version Two, profile P1: draft-cel-nfsv4-rpcrdma-version-two-01 §4.2, with the operations of
//! draft-dnoveck-nfsv4-rpcrdma-xcharext-02 §4 in RDMA2_OPTIONAL.
//!
//! Decoding is strict and bounded as in [`v1`](crate::wire::v1); the chunk lists are the same. No buffer is owned here.

use bytes::{BufMut, BytesMut};

use super::exchange::{Exchange, Rest, put_subset, put_value, put_values};
use super::optional::{RDMA2_OPTIONAL, put_combined, put_transmission, transmission};
use super::transmission::{Operation, OperationBase};
use super::words::Words;
use super::{Error, PADS, Profile, VERSION};
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::wire::lists::{chunk_lists, lists_len, put_lists};
use crate::wire::reader::Reader;
use crate::wire::{
    Body, Codec, Direction, ErrorBody, FIXED_LEN, Fixed, Header, RDMA_ERROR, Rules, Shape, open, put_error,
    put_start, two,
};

const RDMA2_MSG: u32 = 0;
const RDMA2_NOMSG: u32 = 1;

const RDMA2_ERR_VERS: u32 = 1;
const RDMA2_ERR_BAD_HEADER: u32 = 2;
const RDMA2_ERR_INVAL_OPTION: u32 = 3;

const ROPT_INITXCH: u32 = 1;
const ROPT_REQXCH: u32 = 2;
const ROPT_RESPXCH: u32 = 3;
const ROPT_UPDXCH: u32 = 4;

const WORD: usize = 4;
/// A direction and three absent lists behind the fixed part.
const LEAST_MESSAGE: usize = FIXED_LEN + 4 * WORD;
/// `rdma_optdir`, `rdma_opttype` and an empty `rdma_optinfo`.
const LEAST_OPTIONAL: usize = FIXED_LEN + 3 * WORD;

/// Those from 1 on are operations on characteristics (xcharext-02 §4).
const BASE: OperationBase = OperationBase::Separate;

static RULES: Rules = Rules {
    version: VERSION,
    name: "Version Two (P1)",
    default_inline: 4096,
    largest_inline: 262_144,
    initial_credits: 1,
    two: Some(two::Rules {
        profile: Profile::P1,
        names_handle: false,
        counts_messages: false,
        tells_once: false,
        returns_reply_chunk: true,
        part_header: None,
        operations: Some(BASE),
    }),
};

/// The codec of this profile.
#[derive(Clone, Copy, Debug)]
pub struct V2P1;

impl Codec for V2P1 {
    fn rules(&self) -> &'static Rules {
        &RULES
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let (fixed, mut reader) = open(message, VERSION, |procedure| match procedure {
            RDMA_ERROR => FIXED_LEN,
            RDMA2_OPTIONAL => LEAST_OPTIONAL,
            _ => LEAST_MESSAGE,
        })?;
        let (direction, body) = match fixed.procedure {
            RDMA2_MSG => (direction(&mut reader)?, Body::Message(chunk_lists(&mut reader, limits, PADS)?)),
            RDMA2_NOMSG => {
                (direction(&mut reader)?, Body::NoMessage(chunk_lists(&mut reader, limits, PADS)?))
            }
            // version-two-01 §4.2.2
            RDMA_ERROR => (Direction::Reply, Body::Error(error_body(&mut reader)?)),
            RDMA2_OPTIONAL => {
                let said = direction(&mut reader)?;
                (said, operation(said, &mut reader, limits)?)
            }
            // RDMA2_CONNPROP to RDMA2_UPDPROP.
            6..=9 => {
                return Err(Error::OtherProfile { ours: Profile::P1, theirs: Profile::P2 }.into());
            }
            // RDMA2_CALL_INLINE to RDMA2_REPLY_INLINE.
            10..=13 => {
                return Err(Error::OtherProfile { ours: Profile::P1, theirs: Profile::P3 }.into());
            }
            procedure => return Err(ProtocolError::UnknownProcedure { procedure }),
        };
        let Fixed { xid, version, credit, .. } = fixed;
        // In P2 one word more stands before the lists, so that all that is read as they are is a word early.
        let mut behind = reader.clone();
        if fixed.procedure == RDMA2_MSG && xid > 1 && behind.u32() == Some(0) && behind.u32() == Some(xid) {
            return Err(Error::OtherProfile { ours: Profile::P1, theirs: Profile::P2 }.into());
        }
        let header = Header { xid, version, credit, direction: Some(direction), invalidate: 0, body };
        Ok((header, FIXED_LEN + reader.position()))
    }

    fn header_len(&self, shape: &Shape) -> usize {
        FIXED_LEN + WORD + lists_len(shape)
    }

    fn encode(&self, header: &Header, out: &mut BytesMut) {
        put_start(header, out);
        let direction = header.direction.unwrap_or_default();
        match &header.body {
            Body::Message(lists) => {
                out.put_u32(RDMA2_MSG);
                out.put_u32(direction.word());
                put_lists(lists, out);
            }
            Body::NoMessage(lists) => {
                out.put_u32(RDMA2_NOMSG);
                out.put_u32(direction.word());
                put_lists(lists, out);
            }
            Body::Two(two::Body::Exchange(exchange)) => put_operation(exchange, direction, out),
            Body::Two(two::Body::Combined(lengths)) => put_combined(direction, lengths, out),
            Body::Two(two::Body::Transmission(operation)) => {
                put_transmission(BASE, direction, operation, out);
            }
            Body::Error(ErrorBody::Version { low, high }) => put_error(RDMA2_ERR_VERS, &[*low, *high], out),
            Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)) => {
                put_error(RDMA2_ERR_INVAL_OPTION, &[], out);
            }
            Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) => {
                put_transmission(BASE, direction, &Operation::Report(*report), out);
            }
            Body::Error(_) | Body::Padded { .. } | Body::Done | Body::Two(_) => {
                put_error(RDMA2_ERR_BAD_HEADER, &[], out);
            }
        }
    }

    fn refusal(&self, error: &ProtocolError) -> ErrorBody {
        match error {
            ProtocolError::Two(Error::UnknownOperation { .. }) => {
                ErrorBody::Two(two::ErrorBody::InvalidOption)
            }
            ProtocolError::Two(Error::Group(report) | Error::GroupTooLong { report, .. }) => {
                ErrorBody::Two(two::ErrorBody::Report(*report))
            }
            ProtocolError::VersionChanged { used, .. } => ErrorBody::Version { low: *used, high: *used },
            _ => ErrorBody::Chunk,
        }
    }
}

pub(super) fn direction(reader: &mut Reader<'_>) -> Result<Direction, Error> {
    let word = reader.u32().ok_or(Error::WordTruncated { word: "rdma_direction" })?;
    Direction::of(word).ok_or(Error::BadDirection { value: word })
}

fn error_body(reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
    let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
    match word()? {
        RDMA2_ERR_VERS => Ok(ErrorBody::Version { low: word()?, high: word()? }),
        RDMA2_ERR_BAD_HEADER => Ok(ErrorBody::Chunk),
        RDMA2_ERR_INVAL_OPTION => Ok(ErrorBody::Two(two::ErrorBody::InvalidOption)),
        code => Err(ProtocolError::UnknownErrorCode { code }),
    }
}

/// Reads `rdma_opttype` and `rdma_optinfo`. The operations on characteristics have no Payload.
///
/// Without a Payload `rdma_optdir` says which role sends the message (version-two-01 §4.2.2): a Responder only sends answers. An
/// unknown operation is refused before its direction is checked (§3.1).
fn operation(said: Direction, reader: &mut Reader<'_>, limits: &Limits) -> Result<Body, ProtocolError> {
    let mut words = Words::new(reader, limits);
    let operation = words.word().map_err(Error::from)?;
    if let Some(transmission) = transmission((operation, BASE), &mut words) {
        return transmission;
    }
    if !(ROPT_INITXCH..=ROPT_UPDXCH).contains(&operation) {
        return Err(Error::UnknownOperation { operation }.into());
    }
    if (operation == ROPT_RESPXCH) != (said == Direction::Reply) {
        return Err(Error::OperationDirection { operation, said }.into());
    }
    let exchange = Words::whole(&words.opaque()?, limits, |words| {
        Ok::<_, Error>(match operation {
            ROPT_INITXCH => words.initial()?,
            ROPT_REQXCH => words.request()?,
            ROPT_RESPXCH => Exchange::Response {
                done: words.subset()?,
                rejected: words.subset()?,
                rest: Rest::Pending(words.subset()?),
            },
            _ => Exchange::Update { now: vec![words.value()?], clears: words.flag()? },
        })
    })?;
    Ok(Body::Two(two::Body::Exchange(exchange)))
}

fn put_operation(exchange: &Exchange, direction: Direction, out: &mut BytesMut) {
    let mut info = BytesMut::new();
    let operation = match exchange {
        Exchange::Part { .. } => return put_error(RDMA2_ERR_BAD_HEADER, &[], out),
        Exchange::Initial { start, constant } => {
            put_values(start, &mut info);
            put_subset(constant, &mut info);
            ROPT_INITXCH
        }
        Exchange::Request { want } => {
            put_values(want, &mut info);
            ROPT_REQXCH
        }
        Exchange::Response { done, rejected, rest } => {
            put_subset(done, &mut info);
            put_subset(rejected, &mut info);
            // In this profile an update tells a value that is in effect in part.
            let none = super::Subset::default();
            put_subset(if let Rest::Pending(pending) = rest { pending } else { &none }, &mut info);
            ROPT_RESPXCH
        }
        Exchange::Update { now, clears } => {
            // An update has one value; the maker of updates knows the profile.
            now.iter().take(1).for_each(|value| put_value(value, &mut info));
            info.put_u32(u32::from(*clears));
            ROPT_UPDXCH
        }
    };
    out.put_u32(RDMA2_OPTIONAL);
    out.put_u32(direction.word());
    out.put_u32(operation);
    super::exchange::put_opaque(&info, out);
}

#[cfg(test)]
mod tests;
