//! Parts of a message (version-two-07 §6.6.2): each announces the bytes that follow it, and the last part has the
//! header of the message.
//!
//! *Errors*: the connection answers once. The rest of that message is ignored up to its last part (§7.1.4), and the
//! draft requires no more.

use super::{Assembly, MessageId, Notation, Open, Refused, Rest};
use crate::wire::two::Error;
use crate::wire::{Direction, Limits, sized};

/// Checks a part of `len` bytes that is not the last; it announces `remaining` bytes after it.
///
/// # Errors
/// [`Error::ContinuationLength`], [`Error::ContinuationTooLong`] and [`Error::TooManyParts`].
pub(super) fn check(open: Option<&Open>, len: usize, remaining: u32, limits: &Limits) -> Result<(), Refused> {
    let remaining = sized(remaining);
    let (sends, before) = open.map_or((0, 0), |open| (open.sends.len(), open.payload));
    let due = open.map_or(len.saturating_add(remaining), Open::remaining);
    let whole = before.saturating_add(due);
    // The last part is not empty.
    let expected = due.saturating_sub(len);
    let error = if whole > limits.continued_len {
        Error::ContinuationTooLong { len: whole, allowed: limits.continued_len }
    } else if remaining != expected || remaining == 0 {
        Error::ContinuationLength { seen: remaining, expected }
    } else if sends + 1 >= limits.continued_parts {
        // The last part takes a place too.
        Error::TooManyParts { allowed: limits.continued_parts }
    } else {
        return Ok(());
    };
    Err(Refused { error, rest: Some(Rest::Parts) })
}

/// Checks the last part, of `len` bytes.
///
/// # Errors
/// [`Error::ContinuationLength`].
pub(super) fn check_last(open: Option<&Open>, len: usize) -> Result<(), Refused> {
    let expected = open.map_or(len, Open::remaining);
    if len == expected {
        return Ok(());
    }
    Err(Refused { error: Error::ContinuationLength { seen: len, expected }, rest: None })
}

impl Open {
    /// Returns the bytes of the Payload stream that are to come in other parts.
    const fn remaining(&self) -> usize {
        match self.notation {
            Notation::Parts { remaining } => remaining,
            Notation::Group { .. } => 0,
        }
    }
}

impl Assembly {
    /// Returns the message whose parts are in progress.
    pub(crate) fn parts(&self) -> Option<MessageId> {
        self.open.as_ref().filter(|open| matches!(open.notation, Notation::Parts { .. })).map(|open| open.id)
    }

    /// Ignores the rest of this message, whose last part has not arrived.
    pub(crate) fn give_up_parts(&mut self, id: MessageId) {
        self.end_parts(id);
        self.give_up(id, Rest::Parts);
    }

    /// Ends this message, which the peer has ended without its last part.
    pub(crate) fn end_parts(&mut self, id: MessageId) {
        if self.parts() == Some(id) {
            self.open = None;
        }
    }

    /// Gives up the parts of a message of this XID that did not decode, unless it was the last part.
    pub(crate) fn undecoded_part(&mut self, xid: u32, is_last: bool) {
        let Some(id) = self.parts().filter(|id| id.0 == xid) else { return };
        self.end_parts(id);
        if !is_last {
            self.give_up(id, Rest::Parts);
        }
    }
}

/// Returns the name of the parts of a message.
pub(crate) const fn parts_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Call => "RDMA2_CALL_MIDDLE",
        Direction::Reply => "RDMA2_REPLY_MIDDLE",
    }
}
