//! Tests of the NFS version 3 types: golden bytes, round trips, a foreign implementation, limits.

mod bounds;
mod differential;
mod golden;
mod limits;
mod properties;
mod strategies;

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Payload, Piece, encode};

/// Encodes a value and joins the pieces.
pub(crate) fn to_bytes<T: Encode>(value: &T) -> Bytes {
    encode(value).unwrap().flatten().0
}

/// Decodes a complete message.
pub(crate) fn from_bytes<T: Decode>(bytes: impl Into<Bytes>) -> Result<T, DecodeError> {
    Decoder::new(bytes.into()).decode_all()
}

/// Returns a decoder of a message that lies in several slices of odd lengths, as in several Receives.
pub(crate) fn in_slices(mut message: Bytes) -> Decoder {
    let mut slices = Payload::default();
    for length in [1, 30, 97, 1021, 4099].into_iter().cycle() {
        if message.is_empty() {
            break;
        }
        slices.push(message.split_to(message.len().min(length)));
    }
    Decoder::of_slices(slices)
}

/// Parses hexadecimal digits; text after `;` on a line is a comment.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .map(|line| line.split(';').next().unwrap_or_default())
        .flat_map(|line| line.bytes().filter(u8::is_ascii_hexdigit).collect::<Vec<_>>())
        .map(|digit| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap())
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the DDP-eligible items in the encoding of `value`.
pub(crate) fn eligible_items<T: Encode>(value: &T) -> Vec<Bytes> {
    let pieces = encode(value).unwrap().into_pieces();
    pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Payload { data, ddp_eligible: true } => Some(data),
            _ => None,
        })
        .collect()
}
