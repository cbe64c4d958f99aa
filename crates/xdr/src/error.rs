//! Errors: each variant states the value seen and the value allowed.

use thiserror::Error;

/// The reason why a value can't be encoded. The unfinished stream must not be used afterwards.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A counted item is longer than its declared maximum.
    #[error("{} of {length} bytes or elements exceeds its maximum of {max}", item(.field))]
    TooLong {
        /// The item, as its declaration names it: `PutArguments.value`. Empty if no derived type declares it.
        field: &'static str,
        /// Number of bytes of an opaque item, or of elements of an array.
        length: usize,
        /// The declared maximum.
        max: usize,
    },
    /// Values lie too deep inside one another: a recursive type.
    #[error("value lies more than {max} levels deep")]
    TooDeep {
        /// Most levels ([`Decoder::DEPTH_MAX`](crate::Decoder::DEPTH_MAX)).
        max: usize,
    },
    /// The default arm of a union holds a discriminant that belongs to another arm.
    #[error("default arm of {union} holds discriminant {value}, which has an arm of its own")]
    DefaultArm {
        /// Name of the union type.
        union: &'static str,
        /// The discriminant.
        value: u32,
    },
    /// The value breaks a rule of its own type.
    #[error("value can't be sent: {reason}")]
    Invalid {
        /// The rule.
        reason: &'static str,
    },
}

impl EncodeError {
    /// Returns the refusal of an item without a name yet.
    #[cold]
    pub const fn too_long(length: usize, max: usize) -> Self {
        Self::TooLong { field: "", length, max }
    }

    /// Names the item that is too long, if it has no name yet: the innermost declaration names it.
    #[cold]
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        if let Self::TooLong { field, .. } = &mut self
            && field.is_empty()
        {
            *field = name;
        }
        self
    }
}

/// Returns the name of an item for a message.
fn item(field: &'static str) -> &'static str {
    if field.is_empty() { "item" } else { field }
}

/// The destination of a copy is shorter than the stream.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("stream of {needed} bytes does not fit a buffer of {available} bytes")]
pub struct BufferTooSmall {
    /// Length of the stream, in bytes.
    pub needed: usize,
    /// Length of the destination, in bytes.
    pub available: usize,
}

/// The reason why a message was refused. Positions count in the unreduced stream (RFC 8166 §3.4.5), in bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends inside an item.
    #[error("message ends at position {position}: {needed} bytes needed, {available} left")]
    Truncated {
        /// Position of the item.
        position: usize,
        /// Bytes that the item needs, pad included.
        needed: usize,
        /// Bytes left in the message.
        available: usize,
    },
    /// A `bool`, or the discriminant of optional data, is neither 0 nor 1 (RFC 4506 §4.4, §4.19).
    #[error("boolean at position {position} is {value}; only 0 and 1 are allowed")]
    InvalidBool {
        /// Position of the value.
        position: usize,
        /// The value.
        value: u32,
    },
    /// A value that its enumeration doesn't name (RFC 4506 §4.3).
    #[error("{value} at position {position} is no value of {name}")]
    UnknownEnumValue {
        /// Name of the enumeration.
        name: &'static str,
        /// Position of the value.
        position: usize,
        /// The value.
        value: i32,
    },
    /// A discriminant without an arm, in a union without a default arm (RFC 4506 §4.15).
    #[error("discriminant {value} at position {position} has no arm in {name}")]
    UnknownArm {
        /// Name of the union.
        name: &'static str,
        /// Position of the discriminant.
        position: usize,
        /// The discriminant.
        value: u32,
    },
    /// A counted item is longer than its declared maximum.
    #[error("count {count} at position {position} exceeds the maximum of {max}")]
    TooLong {
        /// Position of the count.
        position: usize,
        /// Number of bytes of an opaque item, or of elements of an array or list.
        count: usize,
        /// The declared maximum.
        max: usize,
    },
    /// Values lie too deep inside one another: a recursive type.
    #[error("value at position {position} lies more than {max} levels deep")]
    TooDeep {
        /// Position of the value.
        position: usize,
        /// Most levels ([`Decoder::DEPTH_MAX`](crate::Decoder::DEPTH_MAX)).
        max: usize,
    },
    /// An array announces more elements than the rest of the message can hold.
    #[error(
        "{count} elements announced at position {position}, each {min_item_len} bytes or more, but only {available} bytes left"
    )]
    CountBeyondMessage {
        /// Position of the count.
        position: usize,
        /// Elements announced.
        count: usize,
        /// Smallest encoding of an element, in bytes.
        min_item_len: usize,
        /// Bytes left in the message.
        available: usize,
    },
    /// A `String` isn't UTF-8.
    #[error("string at position {position} is not UTF-8")]
    InvalidUtf8 {
        /// Position of the string's bytes.
        position: usize,
    },
    /// Bytes are left after the last item.
    #[error("{count} bytes left at position {position} after the last item")]
    TrailingBytes {
        /// Position after the last item.
        position: usize,
        /// Bytes left.
        count: usize,
    },
    /// The value breaks a rule of its own type.
    #[error("value before position {position} refused: {reason}")]
    Invalid {
        /// Position after the value.
        position: usize,
        /// The rule.
        reason: &'static str,
    },
    /// A Read chunk's length is neither the item's nor the item's with its pad (RFC 8166 §3.4.5.2).
    #[error(
        "read chunk at position {position} holds {chunk} bytes, the item has {item} (or {item} with its pad)"
    )]
    ReadChunkLength {
        /// Position of chunk and item.
        position: usize,
        /// Bytes of the item, from its count.
        item: usize,
        /// Bytes of the chunk.
        chunk: usize,
    },
    /// A Read chunk's position isn't a multiple of four (RFC 8166 §3.4.5).
    #[error("read chunk at position {position}, which is not a multiple of four")]
    ReadChunkUnaligned {
        /// Position of the chunk.
        position: usize,
    },
    /// Read chunks aren't in ascending order of position.
    #[error("read chunk at position {position} follows one at position {previous}")]
    ReadChunkOrder {
        /// Position of the later chunk.
        position: usize,
        /// Position of the chunk before it.
        previous: usize,
    },
    /// A Read chunk stands where no DDP-eligible item starts (RFC 8166 §3.4.5, §6.1).
    #[error(
        "read chunk at position {chunk} where no DDP-eligible item starts (found at position {position})"
    )]
    ReadChunkMisplaced {
        /// Position of the chunk.
        chunk: usize,
        /// Position of the decoder when it met the chunk.
        position: usize,
    },
    /// The length returned for a Write chunk isn't the item's (RFC 8166 §3.4.6.2).
    #[error("write chunk returned with {chunk} bytes for an item of {item} bytes at position {position}")]
    WriteChunkLength {
        /// Position of the item.
        position: usize,
        /// Bytes of the item, from its count.
        item: usize,
        /// Sum of the returned segment lengths.
        chunk: usize,
    },
    /// A result came inline although a Write chunk was offered for it (RFC 8166 §4.3.2).
    #[error(
        "item of {item} bytes at position {position} returned inline despite a write chunk of {offered} bytes"
    )]
    WriteChunkIgnored {
        /// Position of the item.
        position: usize,
        /// Bytes of the item, from its count.
        item: usize,
        /// Bytes that the chunk could hold.
        offered: usize,
    },
    /// A Write chunk came back filled, but the reply holds no DDP-eligible item for it (RFC 8166 §4.3.2.2).
    #[error("write chunk {index} returned with {chunk} bytes, but no DDP-eligible item is left for it")]
    WriteChunkLeft {
        /// Index of the chunk in the Write list, from 0.
        index: usize,
        /// Sum of the returned segment lengths.
        chunk: usize,
    },
}

impl DecodeError {
    /// Returns whether a chunk stands or is used against the rules; otherwise the data is malformed. A Responder
    /// answers the first with `RDMA_ERROR`/`ERR_CHUNK` (RFC 8166 §4.5.2), the second with `GARBAGE_ARGS`.
    pub const fn is_chunk_violation(&self) -> bool {
        matches!(
            self,
            Self::ReadChunkUnaligned { .. }
                | Self::ReadChunkOrder { .. }
                | Self::ReadChunkMisplaced { .. }
                | Self::WriteChunkLength { .. }
                | Self::WriteChunkIgnored { .. }
                | Self::WriteChunkLeft { .. }
        )
    }
}
