//! One codec for all profiles of Version Two. The tables of a profile list its message types, operations and
//! error codes.
//!
//! Decoding is strict and bounded as in [`v1`](crate::wire::v1). No buffer is owned here.
//!
//! *On error*: each refusal is its own variant. A message without a row in the tables may be one of another
//! profile. To encode a body without a row is a fault of the caller; an RDMA_ERROR about the header takes its
//! place.

use std::fmt;
use std::mem::discriminant;

use bytes::{BufMut, BytesMut};

use super::exchange::Step;
use super::lists::Lists;
use super::transmission::OperationBase;
use super::words::{WORD, Words};
use super::{Error, Profile, VERSION, optional};
use crate::wire::reader::Reader;
use crate::wire::{
    Body, Codec, Direction, ErrorBody, FIXED_LEN, Fixed, Header, Limits, List, ProtocolError, Rules, Shape,
    narrow, open, put_error, put_start, two,
};

/// Of P1 and P2.
const RDMA2_MSG: u32 = 0;
/// RDMA2_ERR_BAD_HEADER, later RDMA2_ERR_BAD_XDR.
const RDMA2_ERR_BAD_XDR: u32 = 2;

/// The codec of a profile: the tables that drive the code.
pub struct V2 {
    pub(super) rules: &'static Rules,
    /// Returns how many bytes a message of an `rdma_proc` has at least; a shorter message is not parsed.
    pub(super) least: fn(u32) -> usize,
    pub(super) header_len: fn(&Shape) -> usize,
    pub(super) messages: &'static [Message],
    /// The operations on characteristics in an RDMA2_OPTIONAL, by `rdma_opttype`.
    pub(super) steps: &'static [(u32, Step)],
    pub(super) errors: &'static [ErrorCode],
}

/// A message type: its `rdma_proc`, the words in front of its content, and the content.
pub(super) type Message = (u32, Front, Content);

/// An error code, how many words follow it, and the error that they make. Fewer than two words are the last
/// of the two.
pub(super) type ErrorCode = (u32, usize, fn([u32; 2]) -> ErrorBody);

/// The words of a message between its fixed part and its content.
#[derive(Clone, Copy)]
pub(super) enum Front {
    /// There are none. The type of the message says its direction, if it has any.
    Nothing(Option<Direction>),
    /// `rdma_direction` or `rdma_optdir`.
    Direction,
    /// `rdma_direction` and `rdma_inv_handle`.
    DirectionAndHandle,
    /// `rdma_inv_handle`, in a Call.
    Handle,
}

/// The content of a message behind its front.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Message(Lists),
    NoMessage(Lists),
    Error,
    Optional,
    Exchange(Step),
    Middle,
    Grant,
}

/// Returns the rules of a profile.
pub(super) const fn rules(name: &'static str, two: two::Rules) -> Rules {
    Rules {
        version: VERSION,
        name,
        default_inline: 4096,
        largest_inline: 262_144,
        initial_credits: 1,
        two: Some(two),
    }
}

impl fmt::Debug for V2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rules.name)
    }
}

impl Codec for V2 {
    fn rules(&self) -> &'static Rules {
        self.rules
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let (fixed, mut reader) = open(message, VERSION, self.least)?;
        let header = self.header(fixed, message.len(), &mut reader, limits);
        let end = FIXED_LEN + reader.position();
        match self.foreign(fixed, (message, end), &header) {
            Some(foreign) => Err(foreign.into()),
            None => Ok((header?, end)),
        }
    }

    fn header_len(&self, shape: &Shape) -> usize {
        FIXED_LEN + (self.header_len)(shape)
    }

    /// Appends the first row of the table that has a place for the body.
    fn encode(&self, header: &Header, out: &mut BytesMut) {
        put_start(header, out);
        let start = out.len();
        for (procedure, front, content) in self.messages {
            out.put_u32(*procedure);
            if front.put(header, out).and_then(|()| self.put(*content, &header.body, out)).is_some() {
                return;
            }
            out.truncate(start);
        }
        put_error(RDMA2_ERR_BAD_XDR, &[], out);
    }

    fn refusal(&self, error: &ProtocolError) -> ErrorBody {
        self.refused(error).filter(|body| self.has(body)).unwrap_or(ErrorBody::Chunk)
    }
}

impl V2 {
    /// Returns the row of an `rdma_proc`.
    pub(super) fn message(&self, procedure: u32) -> Option<&Message> {
        self.messages.iter().find(|(number, ..)| *number == procedure)
    }

    /// Reads a message of `len` bytes behind its fixed part.
    fn header(
        &self,
        fixed: Fixed,
        len: usize,
        reader: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Header, ProtocolError> {
        let Fixed { xid, version, credit, procedure } = fixed;
        let row = self.message(procedure);
        let (_, front, content) = row.ok_or(ProtocolError::UnknownProcedure { procedure })?;
        let (direction, invalidate) = front.read(reader)?;
        let body = match content {
            Content::Message(lists) => Body::Message(lists.read(reader, limits)?),
            Content::NoMessage(lists) => Body::NoMessage(lists.read(reader, limits)?),
            Content::Error => Body::Error(self.error(reader)?),
            Content::Optional => {
                let mut words = Words::new(reader, limits);
                optional::read(self, direction.unwrap_or_default(), &mut words)?
            }
            Content::Exchange(step) => {
                Body::Two(two::Body::Exchange(step.read(&mut Words::new(reader, limits))?))
            }
            Content::Middle => {
                let remaining = reader.u32().ok_or(Error::WordTruncated { word: "rdma_remaining" })?;
                // The first word of the Payload stream belongs to the header, so that each message brings
                // something.
                let payload = len.saturating_sub(FIXED_LEN + reader.position());
                if payload < WORD {
                    return Err(ProtocolError::ShortPayload { len: payload, least: WORD });
                }
                Body::Two(two::Body::Middle { remaining })
            }
            Content::Grant => Body::Two(two::Body::Grant),
        };
        Ok(Header { xid, version, credit, direction, invalidate, body })
    }

    /// Returns the fault of a message that is one of another profile. `end` is where its header ends, read as
    /// one of ours.
    fn foreign(
        &self,
        fixed: Fixed,
        (message, end): (&[u8], usize),
        header: &Result<Header, ProtocolError>,
    ) -> Option<Error> {
        use Profile::{P1, P2, P3};
        let ours = self.rules.two?.profile;
        let word = |at: usize| message.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        // An RPC message begins with its XID, which is that of the header.
        let begins = |at| word(at) == Some(fixed.xid) && fixed.xid > 1;
        let theirs = match (ours, fixed.procedure, header) {
            // RDMA2_CONNPROP to RDMA2_UPDPROP.
            (P1, 6..=9, _) => P2,
            // RDMA2_CALL_INLINE to RDMA2_REPLY_INLINE.
            (P1 | P2, 10..=13, _) => P3,
            // In P2 one more word stands before the lists, so that the lists are read a word early.
            (P1, RDMA2_MSG, Ok(_)) if word(end) == Some(0) && begins(end + WORD) => P2,
            // In P1 the lists begin a word earlier, so that the last of them is where the RPC message begins.
            (P2, RDMA2_MSG, Err(ProtocolError::BadDiscriminator { list: List::Reply, value }))
                if *value == fixed.xid =>
            {
                P1
            }
            // Without chunks, the RPC message begins behind four words in P1, and behind five in P2.
            (P3, RDMA2_MSG, _) if begins(FIXED_LEN + 4 * WORD) => P1,
            (P3, RDMA2_MSG, _) if begins(FIXED_LEN + 5 * WORD) => P2,
            _ => return None,
        };
        Some(Error::OtherProfile { ours, theirs })
    }

    /// Appends the content, if it has a place for the body.
    fn put(&self, content: Content, body: &Body, out: &mut BytesMut) -> Option<()> {
        match (content, body) {
            (Content::Message(lists), Body::Message(chunks))
            | (Content::NoMessage(lists), Body::NoMessage(chunks)) => lists.put(chunks, out),
            (Content::Error, Body::Error(error)) => {
                let (code, words, _) = self.code(error)?;
                out.put_u32(*code);
                for word in words_of(error).iter().skip(2 - words) {
                    out.put_u32(*word);
                }
            }
            (Content::Optional, body) => return optional::put(self, body, out),
            (Content::Exchange(step), Body::Two(two::Body::Exchange(exchange))) => {
                return step.put(exchange, out);
            }
            (Content::Middle, Body::Two(two::Body::Middle { remaining })) => out.put_u32(*remaining),
            (Content::Grant, Body::Two(two::Body::Grant)) => {}
            _ => return None,
        }
        Some(())
    }

    fn error(&self, reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
        let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
        let code = word()?;
        let row = self.errors.iter().find(|(number, ..)| *number == code);
        let (_, count, error) = row.ok_or(ProtocolError::UnknownErrorCode { code })?;
        let mut words = [0; 2];
        for each in words.iter_mut().skip(2 - count) {
            *each = word()?;
        }
        Ok(error(words))
    }

    /// Returns the row of an error.
    fn code(&self, error: &ErrorBody) -> Option<&ErrorCode> {
        let is_same = |other: &ErrorBody| match (error, other) {
            (ErrorBody::Two(error), ErrorBody::Two(other)) => discriminant(error) == discriminant(other),
            _ => discriminant(error) == discriminant(other),
        };
        self.errors.iter().find(|(_, _, other)| is_same(&other([0; 2])))
    }

    /// Returns the numbers of the operations on transmissions.
    pub(super) fn base(&self) -> Option<OperationBase> {
        self.rules.two?.operations
    }

    /// Whether the profile has a message for this error.
    fn has(&self, error: &ErrorBody) -> bool {
        let is_report = matches!(error, ErrorBody::Two(two::ErrorBody::Report(_)));
        self.code(error).is_some() || (is_report && self.base().is_some())
    }

    /// Returns what the documents have for this error (version-two-03 §6.2.4, version-two-07 §7.1 to §7.4);
    /// `None` is RDMA2_ERR_BAD_XDR.
    fn refused(&self, error: &ProtocolError) -> Option<ErrorBody> {
        use two::ErrorBody as Code;
        let is_p3 = self.rules.two?.profile == Profile::P3;
        Some(ErrorBody::Two(match error {
            ProtocolError::Two(Error::UnknownOperation { .. }) if !is_p3 => Code::InvalidOption,
            // P2 and P3 have the same code for it; P1 has none, and would pass over this one.
            ProtocolError::UnknownProcedure { .. }
            | ProtocolError::Two(
                Error::UnknownOperation { .. }
                | Error::OtherProfile { theirs: Profile::P2 | Profile::P3, .. },
            ) => Code::InvalidProcedure,
            ProtocolError::VersionChanged { .. } if is_p3 => Code::VersionMismatch,
            ProtocolError::VersionChanged { used, .. } => {
                return Some(ErrorBody::Version { low: *used, high: *used });
            }
            ProtocolError::Two(
                Error::ToldTwice
                | Error::Interrupted { .. }
                | Error::ContinuationLength { .. }
                | Error::ContinuationTooLong { .. }
                | Error::TooManyParts { .. },
            ) => Code::InvalidContinuation,
            ProtocolError::Two(Error::BadCharacteristic { .. } | Error::ValueTruncated { .. }) => {
                Code::BadValue
            }
            ProtocolError::Two(Error::Group(report) | Error::GroupTooLong { report, .. }) => {
                Code::Report(*report)
            }
            ProtocolError::TooManyReadChunks { allowed, .. } => Code::ReadChunks { most: narrow(*allowed) },
            // version-two-07 §7.3.1: more arguments than the procedure has.
            ProtocolError::NotEligible { eligible, .. } => Code::ReadChunks { most: narrow(*eligible) },
            // version-two-07 §4.6.4: an error of §7.3.
            ProtocolError::ReverseChunks | ProtocolError::ForwardChunks | ProtocolError::ReadsNotAgreed => {
                Code::ReadChunks { most: 0 }
            }
            ProtocolError::TooManyWriteChunks { allowed } => Code::WriteChunks { most: narrow(*allowed) },
            ProtocolError::TooManySegments { allowed, .. }
            | ProtocolError::TooManyReadSegments { allowed } => Code::Segments { most: narrow(*allowed) },
            // In P2, the planner looks at whole chunks: which segment is too short would only be a guess.
            ProtocolError::WriteChunkTooSmall { .. } | ProtocolError::ReplyTooLong { .. } if !is_p3 => {
                Code::ReplyResource { segment: 0, needed: 0 }
            }
            // version-two-07 §7.3.4: the first one is 1.
            ProtocolError::WriteChunkTooSmall { chunk, len, .. } => {
                Code::WriteResource { chunk: narrow(chunk.saturating_add(1)), needed: narrow(*len) }
            }
            ProtocolError::ReplyTooLong { len, .. } | ProtocolError::ReplyNotExposed { len, .. } if is_p3 => {
                Code::ReplyResource { segment: 0, needed: narrow(*len) }
            }
            // They parse, and nothing better can be said of them.
            ProtocolError::ReadSegmentTooLong { .. }
            | ProtocolError::ReadListTooLong { .. }
            | ProtocolError::ExceedsMemory { .. }
            | ProtocolError::Two(Error::ContinuationMemory { .. })
            | ProtocolError::EarlierReadFailed { .. }
                if is_p3 =>
            {
                Code::System
            }
            _ => return None,
        }))
    }
}

/// Returns the words of an error, the last of them last.
const fn words_of(error: &ErrorBody) -> [u32; 2] {
    match *error {
        ErrorBody::Version { low, high } => [low, high],
        ErrorBody::Two(
            two::ErrorBody::ReadChunks { most }
            | two::ErrorBody::WriteChunks { most }
            | two::ErrorBody::Segments { most },
        ) => [0, most],
        ErrorBody::Two(
            two::ErrorBody::ReplyResource { segment: first, needed }
            | two::ErrorBody::WriteResource { chunk: first, needed },
        ) => [first, needed],
        ErrorBody::Chunk | ErrorBody::Two(_) => [0, 0],
    }
}

impl Front {
    /// Reads the direction and the handle.
    fn read(self, reader: &mut Reader<'_>) -> Result<(Option<Direction>, u32), Error> {
        let mut word = |word| reader.u32().ok_or(Error::WordTruncated { word });
        let direction = match self {
            Self::Nothing(direction) => direction,
            Self::Handle => Some(Direction::Call),
            Self::Direction | Self::DirectionAndHandle => {
                let value = word("rdma_direction")?;
                Some(Direction::of(value).ok_or(Error::BadDirection { value })?)
            }
        };
        let has_handle = matches!(self, Self::DirectionAndHandle | Self::Handle);
        Ok((direction, if has_handle { word("rdma_inv_handle")? } else { 0 }))
    }

    /// Appends the words, if a message can have its direction with this front. An error may be without one.
    fn put(self, header: &Header, out: &mut BytesMut) -> Option<()> {
        let said = header.direction.unwrap_or_default();
        match self {
            Self::Nothing(direction) => {
                let fits =
                    matches!(header.body, Body::Error(_)) || direction.is_none_or(|fixed| fixed == said);
                return fits.then_some(());
            }
            Self::Handle if said == Direction::Reply => return None,
            Self::Handle => out.put_u32(header.invalidate),
            Self::Direction => out.put_u32(said.word()),
            Self::DirectionAndHandle => {
                out.put_u32(said.word());
                out.put_u32(header.invalidate);
            }
        }
        Some(())
    }

    /// Returns the direction of all messages with this front, if there is only one.
    pub(super) const fn direction(self) -> Option<Direction> {
        match self {
            Self::Nothing(direction) => direction,
            Self::Handle => Some(Direction::Call),
            Self::Direction | Self::DirectionAndHandle => None,
        }
    }
}
