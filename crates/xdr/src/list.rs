//! Linked lists: chains of optional data (RFC 4506 §4.19).
//!
//! On the wire a TRUE precedes each element, and a FALSE ends the list. Lists are read in a loop, never by recursion,
//! and grow one element at a time: nothing is allocated for elements that didn't arrive.

use crate::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};

/// Encodes `items` as a linked list of at most `max` elements.
///
/// # Errors
/// [`EncodeError::TooLong`] for more than `max` elements, and those of an element.
pub fn encode_list<T: Encode>(items: &[T], max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
    if items.len() > max {
        return Err(EncodeError::too_long(items.len(), max));
    }
    encoder.nested(|encoder| {
        for item in items {
            encoder.bool(true);
            item.encode(encoder)?;
        }
        encoder.bool(false);
        Ok(())
    })
}

/// Decodes a linked list of at most `max` elements. A list without its own maximum is bounded by the message, since each
/// element takes four bytes or more.
///
/// # Errors
/// [`DecodeError::TooLong`] before element number `max` + 1 is read, and those of an element.
pub fn decode_list<T: Decode>(decoder: &mut Decoder, max: usize) -> Result<Vec<T>, DecodeError> {
    decoder.nested(|decoder| {
        let mut items = Vec::new();
        loop {
            let position = decoder.position();
            if !decoder.bool()? {
                return Ok(items);
            }
            if items.len() >= max {
                return Err(DecodeError::TooLong { position, count: items.len().saturating_add(1), max });
            }
            items.push(T::decode(decoder)?);
        }
    })
}
