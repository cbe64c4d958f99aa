//! The header of RPC-over-RDMA Version Two, profile P2: draft-cel-nfsv4-rpcrdma-version-two-03 §6.2.
//!
//! Characteristics, called properties here, have message types of their own, and each Call says what its answer may invalidate.
//! Decoding is strict and bounded as in [`v1`](crate::wire::v1); the chunk lists are the same. No buffer is owned here.

use bytes::{BufMut, BytesMut};

use super::exchange::{Exchange, Rest, put_subset, put_values};
use super::optional::{RDMA2_OPTIONAL, put_combined, put_transmission, transmission};
use super::p1::direction;
use super::transmission::{Operation, OperationBase};
use super::words::Words;
use super::{Error, PADS, Profile, VERSION};
use crate::error::{List, ProtocolError};
use crate::limits::Limits;
use crate::wire::lists::{chunk_lists, lists_len, put_lists};
use crate::wire::reader::Reader;
use crate::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, FIXED_LEN, Fixed, Header, RDMA_ERROR, Rules, Shape, open,
    put_error, put_start, two,
};

const RDMA2_MSG: u32 = 0;
const RDMA2_NOMSG: u32 = 1;
const RDMA2_CONNPROP: u32 = 6;
const RDMA2_REQPROP: u32 = 7;
const RDMA2_RESPROP: u32 = 8;
const RDMA2_UPDPROP: u32 = 9;

const RDMA2_ERR_VERS: u32 = 1;
const RDMA2_ERR_BAD_XDR: u32 = 2;
const RDMA2_ERR_REPLY_RESOURCE: u32 = 3;
const RDMA2_ERR_INVAL_PROC: u32 = 4;
const RDMA2_ERR_INVAL_OPTION: u32 = 5;
const RDMA2_ERR_SYSTEM: u32 = 6;

const WORD: usize = 4;
/// Direction, handle and three absent lists behind the fixed part.
const LEAST_MESSAGE: usize = FIXED_LEN + 5 * WORD;

static RULES: Rules = rules(OperationBase::Separate);
static RULES_BY_TABLES: Rules = rules(OperationBase::Tables);

const fn rules(operations: OperationBase) -> Rules {
    Rules {
        version: VERSION,
        name: "Version Two (P2)",
        default_inline: 4096,
        largest_inline: 262_144,
        initial_credits: 1,
        two: Some(two::Rules {
            profile: Profile::P2,
            names_handle: true,
            counts_messages: false,
            tells_once: false,
            returns_reply_chunk: true,
            part_header: None,
            operations: Some(operations),
        }),
    }
}

/// The codec of this profile, with operations on transmissions under these numbers.
#[derive(Clone, Copy, Debug)]
pub struct V2P2(pub OperationBase);

impl Codec for V2P2 {
    fn rules(&self) -> &'static Rules {
        match self.0 {
            OperationBase::Separate => &RULES,
            OperationBase::Tables => &RULES_BY_TABLES,
        }
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let (fixed, reader) = open(message, VERSION, |procedure| match procedure {
            RDMA2_MSG | RDMA2_NOMSG => LEAST_MESSAGE,
            _ => FIXED_LEN,
        })?;
        decode(fixed, reader, (self.0, limits)).map_err(|error| match error {
            // In P1 the lists begin a word earlier, so that the last of them is where the RPC message begins, with its XID.
            ProtocolError::BadDiscriminator { list: List::Reply, value }
                if value == fixed.xid && fixed.procedure == RDMA2_MSG =>
            {
                Error::OtherProfile { ours: Profile::P2, theirs: Profile::P1 }.into()
            }
            error => error,
        })
    }

    fn header_len(&self, shape: &Shape) -> usize {
        FIXED_LEN + 2 * WORD + lists_len(shape)
    }

    fn encode(&self, header: &Header, out: &mut BytesMut) {
        put_start(header, out);
        let direction = header.direction.unwrap_or_default();
        let mut put_chunks = |procedure, lists: &ChunkLists| {
            out.put_u32(procedure);
            out.put_u32(direction.word());
            out.put_u32(header.invalidate);
            put_lists(lists, out);
        };
        match &header.body {
            Body::Message(lists) => put_chunks(RDMA2_MSG, lists),
            Body::NoMessage(lists) => put_chunks(RDMA2_NOMSG, lists),
            Body::Two(two::Body::Exchange(exchange)) => put_operation(exchange, out),
            Body::Two(two::Body::Combined(lengths)) => put_combined(direction, lengths, out),
            Body::Two(two::Body::Transmission(operation)) => {
                put_transmission(self.0, direction, operation, out);
            }
            Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) => {
                put_transmission(self.0, direction, &Operation::Report(*report), out);
            }
            Body::Error(error) => put_error_body(error, out),
            Body::Padded { .. } | Body::Done | Body::Two(_) => put_error(RDMA2_ERR_BAD_XDR, &[], out),
        }
    }

    /// version-two-03 §6.2.4
    fn refusal(&self, error: &ProtocolError) -> ErrorBody {
        ErrorBody::Two(match error {
            ProtocolError::Two(Error::UnknownOperation { .. }) => two::ErrorBody::InvalidOption,
            // P3 has the same code for it.
            ProtocolError::UnknownProcedure { .. }
            | ProtocolError::Two(Error::OtherProfile { theirs: Profile::P3, .. }) => {
                two::ErrorBody::InvalidProcedure
            }
            // The planner looks at whole chunks: which segment is too short would only be a guess.
            ProtocolError::WriteChunkTooSmall { .. } | ProtocolError::ReplyTooLong { .. } => {
                two::ErrorBody::ReplyResource { segment: 0, needed: 0 }
            }
            ProtocolError::Two(Error::Group(report) | Error::GroupTooLong { report, .. }) => {
                two::ErrorBody::Report(*report)
            }
            ProtocolError::VersionChanged { used, .. } => {
                return ErrorBody::Version { low: *used, high: *used };
            }
            _ => return ErrorBody::Chunk,
        })
    }
}

fn decode(
    fixed: Fixed,
    mut reader: Reader<'_>,
    (operations, limits): (OperationBase, &Limits),
) -> Result<(Header, usize), ProtocolError> {
    let Fixed { xid, version, credit, procedure } = fixed;
    let (direction, invalidate, body) = match procedure {
        RDMA2_MSG => {
            let (direction, invalidate, lists) = chunks(&mut reader, limits)?;
            (Some(direction), invalidate, Body::Message(lists))
        }
        RDMA2_NOMSG => {
            let (direction, invalidate, lists) = chunks(&mut reader, limits)?;
            (Some(direction), invalidate, Body::NoMessage(lists))
        }
        RDMA_ERROR => (Some(Direction::Reply), 0, Body::Error(error_body(&mut reader)?)),
        RDMA2_OPTIONAL => {
            let (direction, body) = optional(&mut reader, operations, limits)?;
            (Some(direction), 0, body)
        }
        RDMA2_CONNPROP..=RDMA2_UPDPROP => {
            (None, 0, Body::Two(two::Body::Exchange(operation(procedure, &mut reader, limits)?)))
        }
        // RDMA2_CALL_INLINE to RDMA2_REPLY_INLINE.
        10..=13 => {
            return Err(Error::OtherProfile { ours: Profile::P2, theirs: Profile::P3 }.into());
        }
        procedure => return Err(ProtocolError::UnknownProcedure { procedure }),
    };
    let header = Header { xid, version, credit, direction, invalidate, body };
    Ok((header, FIXED_LEN + reader.position()))
}

fn chunks(reader: &mut Reader<'_>, limits: &Limits) -> Result<(Direction, u32, ChunkLists), ProtocolError> {
    let direction = direction(reader)?;
    let invalidate = reader.u32().ok_or(Error::WordTruncated { word: "rdma_inv_handle" })?;
    Ok((direction, invalidate, chunk_lists(reader, limits, PADS)?))
}

fn error_body(reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
    let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
    Ok(ErrorBody::Two(match word()? {
        RDMA2_ERR_VERS => return Ok(ErrorBody::Version { low: word()?, high: word()? }),
        RDMA2_ERR_BAD_XDR => return Ok(ErrorBody::Chunk),
        RDMA2_ERR_REPLY_RESOURCE => two::ErrorBody::ReplyResource { segment: word()?, needed: word()? },
        RDMA2_ERR_INVAL_PROC => two::ErrorBody::InvalidProcedure,
        RDMA2_ERR_INVAL_OPTION => two::ErrorBody::InvalidOption,
        RDMA2_ERR_SYSTEM => two::ErrorBody::System,
        code => return Err(ProtocolError::UnknownErrorCode { code }),
    }))
}

fn put_error_body(error: &ErrorBody, out: &mut BytesMut) {
    match error {
        ErrorBody::Version { low, high } => put_error(RDMA2_ERR_VERS, &[*low, *high], out),
        ErrorBody::Two(two::ErrorBody::ReplyResource { segment, needed }) => {
            put_error(RDMA2_ERR_REPLY_RESOURCE, &[*segment, *needed], out);
        }
        ErrorBody::Two(two::ErrorBody::InvalidProcedure) => put_error(RDMA2_ERR_INVAL_PROC, &[], out),
        ErrorBody::Two(two::ErrorBody::InvalidOption) => put_error(RDMA2_ERR_INVAL_OPTION, &[], out),
        ErrorBody::Two(two::ErrorBody::System) => put_error(RDMA2_ERR_SYSTEM, &[], out),
        ErrorBody::Chunk | ErrorBody::Two(_) => put_error(RDMA2_ERR_BAD_XDR, &[], out),
    }
}

/// The operations on transmissions are all that come this way.
fn optional(
    reader: &mut Reader<'_>,
    operations: OperationBase,
    limits: &Limits,
) -> Result<(Direction, Body), ProtocolError> {
    let direction = direction(reader)?;
    let mut words = Words::new(reader, limits);
    let operation = words.word().map_err(Error::from)?;
    let body = transmission((operation, operations), &mut words);
    Ok((direction, body.unwrap_or(Err(Error::UnknownOperation { operation }.into()))?))
}

fn operation(procedure: u32, reader: &mut Reader<'_>, limits: &Limits) -> Result<Exchange, ProtocolError> {
    let mut words = Words::new(reader, limits);
    Ok(match procedure {
        RDMA2_CONNPROP => words.initial()?,
        RDMA2_REQPROP => words.request()?,
        RDMA2_RESPROP => Exchange::Response {
            done: words.subset()?,
            rejected: words.subset()?,
            rest: Rest::Other(words.values()?),
        },
        _ => Exchange::Update { now: words.values()?, clears: false },
    })
}

fn put_operation(exchange: &Exchange, out: &mut BytesMut) {
    match exchange {
        Exchange::Part { .. } => put_error(RDMA2_ERR_BAD_XDR, &[], out),
        Exchange::Initial { start, constant } => {
            out.put_u32(RDMA2_CONNPROP);
            put_values(start, out);
            put_subset(constant, out);
        }
        Exchange::Request { want } => {
            out.put_u32(RDMA2_REQPROP);
            put_values(want, out);
        }
        Exchange::Response { done, rejected, rest } => {
            out.put_u32(RDMA2_RESPROP);
            put_subset(done, out);
            put_subset(rejected, out);
            // Nothing is ever pending in this profile.
            put_values(if let Rest::Other(values) = rest { values } else { &[] }, out);
        }
        Exchange::Update { now, .. } => {
            out.put_u32(RDMA2_UPDPROP);
            put_values(now, out);
        }
    }
}

#[cfg(test)]
mod tests;
