//! The header of RPC-over-RDMA Version Two, profile P3: draft-ietf-nfsv4-rpcrdma-version-two-07 §6, §8.4.
//!
//! Calls and replies have header types of their own, so that no word says the direction. A message may come in several Sends
//! (CALL_MIDDLE, REPLY_MIDDLE). A message that does nothing else can grant credits (GRANT). The Call chunk, which is a list of its
//! own here, is the Position-Zero chunk of [`ChunkLists::read`] as in every other version.
//!
//! Decoding is strict and bounded as in [`v1`](crate::wire::v1); the chunk lists are the same. No buffer is owned here. A message
//! that is cut off behind its first sixteen bytes is an XDR error (§7.2), and not too short to be parsed.

use bytes::{BufMut, BytesMut};

use super::exchange::{Exchange, put_values};
use super::words::Words;
use super::{Error, PADS, Profile, VERSION};
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::wire::lists::{
    chunk_len, chunk_lists, lists_len, put_lists, put_read_list, put_reply_chunk, put_write_list, read_list,
    read_on, reply_chunk, write_list, write_list_len,
};
use crate::wire::reader::Reader;
use crate::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, FIXED_LEN, Fixed, Header, RDMA_ERROR, ReadSegment, Rules,
    Shape, open, put_error, put_start, two,
};

/// Of P1 and P2.
const RDMA2_MSG: u32 = 0;
const RDMA2_GRANT: u32 = 5;
const RDMA2_CONNPROP_MIDDLE: u32 = 6;
const RDMA2_CONNPROP_FINAL: u32 = 7;
const RDMA2_CALL_EXTERNAL: u32 = 8;
const RDMA2_CALL_MIDDLE: u32 = 9;
const RDMA2_CALL_INLINE: u32 = 10;
const RDMA2_REPLY_EXTERNAL: u32 = 11;
const RDMA2_REPLY_MIDDLE: u32 = 12;
const RDMA2_REPLY_INLINE: u32 = 13;

const RDMA2_ERR_VERS: u32 = 1;
const RDMA2_ERR_BAD_XDR: u32 = 2;
const RDMA2_ERR_BAD_PROPVAL: u32 = 3;
const RDMA2_ERR_INVAL_HTYPE: u32 = 4;
const RDMA2_ERR_INVAL_CONT: u32 = 5;
const RDMA2_ERR_READ_CHUNKS: u32 = 6;
const RDMA2_ERR_WRITE_CHUNKS: u32 = 7;
const RDMA2_ERR_SEGMENTS: u32 = 8;
const RDMA2_ERR_WRITE_RESOURCE: u32 = 9;
const RDMA2_ERR_REPLY_RESOURCE: u32 = 10;
const RDMA2_ERR_VERS_MISMATCH: u32 = 11;
const RDMA2_ERR_SYSTEM: u32 = 100;

const WORD: usize = 4;

static RULES: Rules = Rules {
    version: VERSION,
    name: "Version Two (P3)",
    default_inline: 4096,
    largest_inline: 262_144,
    initial_credits: 1,
    two: Some(two::Rules {
        profile: Profile::P3,
        names_handle: true,
        counts_messages: true,
        tells_once: true,
        returns_reply_chunk: false,
        part_header: Some(FIXED_LEN + WORD),
        operations: None,
    }),
};

/// The codec of this profile.
#[derive(Clone, Copy, Debug)]
pub struct V2P3;

impl Codec for V2P3 {
    fn rules(&self) -> &'static Rules {
        &RULES
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let (fixed, mut reader) = open(message, VERSION, |_| FIXED_LEN)?;
        let Fixed { xid, version, credit, procedure } = fixed;
        let (invalidate, body) = match procedure {
            RDMA_ERROR => (0, Body::Error(error_body(&mut reader)?)),
            RDMA2_GRANT => (0, Body::Two(two::Body::Grant)),
            RDMA2_CONNPROP_MIDDLE | RDMA2_CONNPROP_FINAL => {
                (0, Body::Two(two::Body::Exchange(properties(procedure, &mut reader, limits)?)))
            }
            RDMA2_CALL_EXTERNAL => {
                let invalidate = handle(&mut reader)?;
                (invalidate, Body::NoMessage(call_external(&mut reader, limits)?))
            }
            RDMA2_CALL_MIDDLE => (0, middle(&mut reader, message.len())?),
            RDMA2_CALL_INLINE => {
                let invalidate = handle(&mut reader)?;
                let lists = chunk_lists(&mut reader, limits, PADS)?;
                data_items(&lists.read)?;
                (invalidate, Body::Message(lists))
            }
            RDMA2_REPLY_EXTERNAL => {
                let write = write_list(&mut reader, limits)?;
                let reply_chunk = reply_chunk(&mut reader, limits)?;
                // §6.3.8: exactly one.
                if reply_chunk.is_none() {
                    return Err(ProtocolError::ReplyChunkUse);
                }
                (0, Body::NoMessage(ChunkLists { read: vec![], write, reply: reply_chunk }))
            }
            RDMA2_REPLY_MIDDLE => (0, middle(&mut reader, message.len())?),
            RDMA2_REPLY_INLINE => {
                let write = write_list(&mut reader, limits)?;
                (0, Body::Message(ChunkLists { write, ..ChunkLists::default() }))
            }
            RDMA2_MSG => return Err(other_profile(fixed, message)),
            procedure => return Err(ProtocolError::UnknownProcedure { procedure }),
        };
        let direction = direction_of(procedure);
        let header = Header { xid, version, credit, direction, invalidate, body };
        Ok((header, FIXED_LEN + reader.position()))
    }

    fn header_len(&self, shape: &Shape) -> usize {
        FIXED_LEN
            + match shape.direction {
                // The handle; and the Call chunk ends with a word of its own.
                Direction::Call => WORD + lists_len(shape) + if shape.long { WORD } else { 0 },
                // No Read list, and a Reply chunk only where the message is in it.
                Direction::Reply => {
                    write_list_len(&shape.write_segments) + shape.reply_segments.map_or(0, chunk_len)
                }
            }
    }

    /// Of a reply, the Read list does not exist, and the Reply chunk only in one that is in it: such lists are not encoded.
    fn encode(&self, header: &Header, out: &mut BytesMut) {
        put_start(header, out);
        let is_reply = header.direction == Some(Direction::Reply);
        match &header.body {
            Body::Message(lists) if is_reply => {
                out.put_u32(RDMA2_REPLY_INLINE);
                put_write_list(&lists.write, out);
            }
            Body::NoMessage(lists) if is_reply => {
                out.put_u32(RDMA2_REPLY_EXTERNAL);
                put_write_list(&lists.write, out);
                put_reply_chunk(lists.reply.as_ref(), out);
            }
            Body::Message(lists) => {
                out.put_u32(RDMA2_CALL_INLINE);
                out.put_u32(header.invalidate);
                put_lists(lists, out);
            }
            Body::NoMessage(lists) => {
                out.put_u32(RDMA2_CALL_EXTERNAL);
                out.put_u32(header.invalidate);
                put_read_list(lists.read.iter().filter(|entry| entry.position == 0), out);
                put_read_list(lists.read.iter().filter(|entry| entry.position != 0), out);
                put_write_list(&lists.write, out);
                put_reply_chunk(lists.reply.as_ref(), out);
            }
            Body::Two(two::Body::Middle { remaining }) => {
                out.put_u32(if is_reply { RDMA2_REPLY_MIDDLE } else { RDMA2_CALL_MIDDLE });
                out.put_u32(*remaining);
            }
            Body::Two(two::Body::Grant) => out.put_u32(RDMA2_GRANT),
            Body::Two(two::Body::Exchange(Exchange::Part { start })) => {
                out.put_u32(RDMA2_CONNPROP_MIDDLE);
                put_values(start, out);
            }
            // Properties are told for good: the document has no other way.
            Body::Two(two::Body::Exchange(Exchange::Initial { start, .. })) => {
                out.put_u32(RDMA2_CONNPROP_FINAL);
                put_values(start, out);
            }
            Body::Error(error) => put_error_body(error, out),
            Body::Padded { .. } | Body::Done | Body::Two(_) => put_error(RDMA2_ERR_BAD_XDR, &[], out),
        }
    }

    fn refusal(&self, error: &ProtocolError) -> ErrorBody {
        refusal(error).map_or(ErrorBody::Chunk, ErrorBody::Two)
    }
}

/// Returns what §7.1 to §7.4 have for this error; `None` is RDMA2_ERR_BAD_XDR.
fn refusal(error: &ProtocolError) -> Option<two::ErrorBody> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Some(match error {
        // P2 has the same code for it; P1 has none, and would pass over this one.
        ProtocolError::UnknownProcedure { .. }
        | ProtocolError::Two(
            Error::UnknownOperation { .. } | Error::OtherProfile { theirs: Profile::P2, .. },
        ) => two::ErrorBody::InvalidProcedure,
        ProtocolError::VersionChanged { .. } => two::ErrorBody::VersionMismatch,
        ProtocolError::Two(
            Error::ToldTwice
            | Error::Interrupted { .. }
            | Error::ContinuationLength { .. }
            | Error::ContinuationTooLong { .. }
            | Error::TooManyParts { .. },
        ) => two::ErrorBody::InvalidContinuation,
        ProtocolError::Two(Error::BadCharacteristic { .. } | Error::ValueTruncated { .. }) => {
            two::ErrorBody::BadValue
        }
        ProtocolError::TooManyReadChunks { allowed, .. } => {
            two::ErrorBody::ReadChunks { most: word(*allowed) }
        }
        // §7.3.1: more arguments than the procedure has.
        ProtocolError::NotEligible { eligible, .. } => two::ErrorBody::ReadChunks { most: word(*eligible) },
        // §4.6.4: an error of §7.3.
        ProtocolError::ReverseChunks | ProtocolError::ForwardChunks | ProtocolError::ReadsNotAgreed => {
            two::ErrorBody::ReadChunks { most: 0 }
        }
        ProtocolError::TooManyWriteChunks { allowed } => two::ErrorBody::WriteChunks { most: word(*allowed) },
        ProtocolError::TooManySegments { allowed, .. } | ProtocolError::TooManyReadSegments { allowed } => {
            two::ErrorBody::Segments { most: word(*allowed) }
        }
        // §7.3.4: the first one is 1.
        ProtocolError::WriteChunkTooSmall { chunk, len, .. } => {
            two::ErrorBody::WriteResource { chunk: word(chunk.saturating_add(1)), needed: narrow(*len) }
        }
        ProtocolError::ReplyTooLong { len, .. } | ProtocolError::ReplyNotExposed { len, .. } => {
            two::ErrorBody::ReplyResource { segment: 0, needed: narrow(*len) }
        }
        // They parse, and nothing better can be said of them.
        ProtocolError::ReadSegmentTooLong { .. }
        | ProtocolError::ReadListTooLong { .. }
        | ProtocolError::ExceedsMemory { .. }
        | ProtocolError::Two(Error::ContinuationMemory { .. })
        | ProtocolError::EarlierReadFailed { .. } => two::ErrorBody::System,
        _ => return None,
    })
}

pub(super) const fn is_part(procedure: u32) -> bool {
    matches!(procedure, RDMA2_CALL_MIDDLE | RDMA2_REPLY_MIDDLE)
}

pub(super) const fn direction_of(procedure: u32) -> Option<Direction> {
    match procedure {
        RDMA2_CALL_EXTERNAL | RDMA2_CALL_MIDDLE | RDMA2_CALL_INLINE => Some(Direction::Call),
        RDMA_ERROR | RDMA2_REPLY_EXTERNAL | RDMA2_REPLY_MIDDLE | RDMA2_REPLY_INLINE => Some(Direction::Reply),
        _ => None,
    }
}

/// Returns the fault of an RDMA2_MSG, which P3 does not have. Without chunks, its RPC message begins behind four words in P1, and
/// behind five in P2. The XID there is that of the header.
fn other_profile(fixed: Fixed, message: &[u8]) -> ProtocolError {
    let word = |at: usize| message.get(at..)?.first_chunk::<WORD>().map(|word| u32::from_be_bytes(*word));
    let begins = |words: usize| word(FIXED_LEN + words * WORD) == Some(fixed.xid) && fixed.xid > 1;
    let is = |theirs| Error::OtherProfile { ours: Profile::P3, theirs }.into();
    match (begins(4), begins(5)) {
        (true, _) => is(Profile::P1),
        (_, true) => is(Profile::P2),
        _ => ProtocolError::UnknownProcedure { procedure: fixed.procedure },
    }
}

fn handle(reader: &mut Reader<'_>) -> Result<u32, Error> {
    reader.u32().ok_or(Error::WordTruncated { word: "rdma_inv_handle" })
}

/// The Call chunk and the lists behind it; both Read lists are bounded together.
fn call_external(reader: &mut Reader<'_>, limits: &Limits) -> Result<ChunkLists, ProtocolError> {
    let mut read = read_list(reader, limits, PADS)?;
    if read.is_empty() {
        return Err(ProtocolError::NoPositionZero);
    }
    if let Some(entry) = read.iter().find(|entry| entry.position != 0) {
        return Err(Error::CallChunkPosition { position: entry.position }.into());
    }
    let call = read.len();
    read_on(reader, limits, PADS, &mut read)?;
    data_items(read.get(call..).unwrap_or_default())?;
    let write = write_list(reader, limits)?;
    Ok(ChunkLists { read, write, reply: reply_chunk(reader, limits)? })
}

/// The chunks of data items: the Position-Zero chunk has its own list (§6.3.7), and Positions go up (§4.5.1.1).
fn data_items(read: &[ReadSegment]) -> Result<(), Error> {
    let mut before = 0;
    for ReadSegment { position, .. } in read {
        if *position == 0 {
            return Err(Error::PositionZeroInReads);
        }
        if *position < before {
            return Err(Error::PositionOrder { position: *position, before });
        }
        before = *position;
    }
    Ok(())
}

/// The first word of the Payload stream belongs to the header, so that each of these messages brings something.
fn middle(reader: &mut Reader<'_>, len: usize) -> Result<Body, ProtocolError> {
    let remaining = reader.u32().ok_or(Error::WordTruncated { word: "rdma_remaining" })?;
    let payload = len.saturating_sub(FIXED_LEN + reader.position());
    if payload < WORD {
        return Err(ProtocolError::ShortPayload { len: payload, least: WORD });
    }
    Ok(Body::Two(two::Body::Middle { remaining }))
}

/// Reads properties. None is going to change: they are told once, at the beginning (§5.1).
fn properties(procedure: u32, reader: &mut Reader<'_>, limits: &Limits) -> Result<Exchange, Error> {
    let start = Words::new(reader, limits).values_within()?;
    Ok(if procedure == RDMA2_CONNPROP_MIDDLE {
        Exchange::Part { start }
    } else {
        let constant = (0..start.len()).collect();
        Exchange::Initial { start, constant }
    })
}

fn error_body(reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
    let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
    Ok(ErrorBody::Two(match word()? {
        RDMA2_ERR_VERS => return Ok(ErrorBody::Version { low: word()?, high: word()? }),
        RDMA2_ERR_BAD_XDR => return Ok(ErrorBody::Chunk),
        RDMA2_ERR_BAD_PROPVAL => two::ErrorBody::BadValue,
        RDMA2_ERR_INVAL_HTYPE => two::ErrorBody::InvalidProcedure,
        RDMA2_ERR_INVAL_CONT => two::ErrorBody::InvalidContinuation,
        RDMA2_ERR_READ_CHUNKS => two::ErrorBody::ReadChunks { most: word()? },
        RDMA2_ERR_WRITE_CHUNKS => two::ErrorBody::WriteChunks { most: word()? },
        RDMA2_ERR_SEGMENTS => two::ErrorBody::Segments { most: word()? },
        RDMA2_ERR_WRITE_RESOURCE => two::ErrorBody::WriteResource { chunk: word()?, needed: word()? },
        RDMA2_ERR_REPLY_RESOURCE => two::ErrorBody::ReplyResource { segment: 0, needed: word()? },
        RDMA2_ERR_VERS_MISMATCH => two::ErrorBody::VersionMismatch,
        RDMA2_ERR_SYSTEM => two::ErrorBody::System,
        code => return Err(ProtocolError::UnknownErrorCode { code }),
    }))
}

fn put_error_body(error: &ErrorBody, out: &mut BytesMut) {
    match error {
        ErrorBody::Version { low, high } => put_error(RDMA2_ERR_VERS, &[*low, *high], out),
        ErrorBody::Chunk => put_error(RDMA2_ERR_BAD_XDR, &[], out),
        ErrorBody::Two(error) => match error {
            two::ErrorBody::InvalidOption | two::ErrorBody::Report(_) => {
                put_error(RDMA2_ERR_BAD_XDR, &[], out);
            }
            two::ErrorBody::BadValue => put_error(RDMA2_ERR_BAD_PROPVAL, &[], out),
            two::ErrorBody::InvalidProcedure => put_error(RDMA2_ERR_INVAL_HTYPE, &[], out),
            two::ErrorBody::InvalidContinuation => put_error(RDMA2_ERR_INVAL_CONT, &[], out),
            two::ErrorBody::ReadChunks { most } => put_error(RDMA2_ERR_READ_CHUNKS, &[*most], out),
            two::ErrorBody::WriteChunks { most } => put_error(RDMA2_ERR_WRITE_CHUNKS, &[*most], out),
            two::ErrorBody::Segments { most } => put_error(RDMA2_ERR_SEGMENTS, &[*most], out),
            two::ErrorBody::WriteResource { chunk, needed } => {
                put_error(RDMA2_ERR_WRITE_RESOURCE, &[*chunk, *needed], out);
            }
            two::ErrorBody::ReplyResource { needed, .. } => {
                put_error(RDMA2_ERR_REPLY_RESOURCE, &[*needed], out);
            }
            two::ErrorBody::VersionMismatch => put_error(RDMA2_ERR_VERS_MISMATCH, &[], out),
            two::ErrorBody::System => put_error(RDMA2_ERR_SYSTEM, &[], out),
        },
    }
}

#[cfg(test)]
mod tests;
