//! Messages that come in several Sends (version-two-07 §6.6.2).
//!
//! [`Continuation`] holds the message that has begun, one at a time, as the text forbids to mix them. The first part says
//! how long all of it is: a Buffer of the domain takes the parts as they come, and their Receives are free again. While the domain
//! has none, parts stay in the Receives that they came in, which are counted already; if it has none when the last one is there, a
//! Call is refused, and a reply, for which there is nobody to ask again, is put together all the same. Number and length are
//! bounded ([`Limits`]), and there is a timer for the rest (rule I6), another while the peer has no credit to go on.
//!
//! *On error* the message is given up, its memory goes back, and what else comes of it is passed over without another word
//! (§7.1.4). What the error leads to is the connection's business.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, ProtectionDomain};

use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::timers::{Timeouts, after};
use crate::wire::Direction;

/// Messages that were given up and whose end has not come; older ones are forgotten.
const GIVEN_UP: usize = 16;

/// The message of the peer that has begun, if one has.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    partial: Option<Partial>,
    /// What was given up before its last part came.
    given_up: VecDeque<(u32, Direction)>,
    /// Where the memory for whole messages comes from.
    domain: Option<ProtectionDomain>,
}

#[derive(Debug)]
struct Partial {
    xid: u32,
    direction: Direction,
    /// Parts that are not in `whole` yet.
    waiting: Vec<Bytes>,
    /// Room for all of it.
    whole: Option<Buffer>,
    /// Parts that have come, and their bytes.
    parts: usize,
    len: usize,
    /// Bytes that are to come.
    remaining: usize,
    deadline: Instant,
    /// Whether the peer has a credit to go on; without one the time is ours.
    goes_on: bool,
}

impl Continuation {
    /// The connection's memory, as soon as it is known.
    pub(crate) fn use_domain(&mut self, domain: &ProtectionDomain) {
        self.domain.get_or_insert_with(|| domain.clone());
    }

    /// Whether a part belongs to what was given up (§7.1.4), which it does up to the last one.
    pub(crate) fn passes_over(&mut self, xid: u32, direction: Direction, is_last: bool) -> bool {
        let Some(place) = self.given_up.iter().position(|given_up| *given_up == (xid, direction)) else {
            return false;
        };
        if is_last {
            self.given_up.remove(place);
        }
        true
    }

    /// What has to go on before anything else comes, if something has.
    pub(crate) const fn expects(&self) -> Option<&'static str> {
        match &self.partial {
            None => None,
            Some(Partial { direction: Direction::Call, .. }) => Some("RDMA2_CALL_MIDDLE"),
            Some(Partial { direction: Direction::Reply, .. }) => Some("RDMA2_REPLY_MIDDLE"),
        }
    }

    /// Whether this is the message that has begun.
    pub(crate) fn is_of(&self, xid: u32, direction: Direction) -> bool {
        self.partial.as_ref().is_some_and(|partial| (partial.xid, partial.direction) == (xid, direction))
    }

    /// Nothing more of this message is taken, of which there is more to come.
    pub(crate) fn give_up(&mut self, xid: u32, direction: Direction) {
        self.end(xid, direction);
        if !self.given_up.contains(&(xid, direction)) {
            self.given_up.push_back((xid, direction));
        }
        if self.given_up.len() > GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// The peer has ended this message otherwise than by its last part.
    pub(crate) fn end(&mut self, xid: u32, direction: Direction) {
        self.partial.take_if(|partial| (partial.xid, partial.direction) == (xid, direction));
    }

    /// Takes a part that is not the last, `remaining` bytes being said to follow it; the rest has to come until `deadline`. It is of the
    /// message that has begun, if one has.
    ///
    /// # Errors
    /// [`ProtocolError::ContinuationLength`], [`ProtocolError::ContinuationTooLong`] and [`ProtocolError::TooManyParts`]; the message is
    /// given up.
    pub(crate) fn part(
        &mut self,
        (xid, direction): (u32, Direction),
        part: Bytes,
        remaining: u32,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<(), ProtocolError> {
        let remaining = usize::try_from(remaining).unwrap_or(usize::MAX);
        let partial = self.partial.get_or_insert_with(|| Partial {
            xid,
            direction,
            waiting: vec![],
            whole: None,
            parts: 0,
            len: 0,
            remaining: part.len().saturating_add(remaining),
            deadline,
            goes_on: true,
        });
        let checked = partial.add(part, remaining, limits);
        if checked.is_ok() {
            partial.gather(self.domain.as_ref());
        }
        if checked.is_err() {
            self.give_up(xid, direction);
        }
        checked
    }

    /// A message of this XID did not decode: nothing more is taken of what it belonged to, if it was not the end of that.
    pub(crate) fn broken(&mut self, xid: u32, is_part: bool) {
        let broken = self.partial.take_if(|partial| partial.xid == xid);
        if let Some(Partial { direction, .. }) = broken.filter(|_| is_part) {
            self.give_up(xid, direction);
        }
    }

    /// Takes the last part: the whole message, and how many parts came before; if any did, all of it was copied.
    ///
    /// # Errors
    /// [`ProtocolError::ContinuationLength`], [`ProtocolError::ContinuationMemory`]; the message is gone.
    pub(crate) fn last(&mut self, part: Bytes) -> Result<(Bytes, usize), ProtocolError> {
        let Some(mut partial) = self.partial.take() else { return Ok((part, 0)) };
        if part.len() != partial.remaining {
            return Err(ProtocolError::ContinuationLength { seen: part.len(), expected: partial.remaining });
        }
        let parts = partial.parts;
        partial.push(part);
        partial.remaining = 0;
        partial.gather(self.domain.as_ref());
        let len = partial.len;
        let whole = match (partial.whole.take(), partial.direction) {
            (Some(whole), _) => whole,
            (None, Direction::Call) => return Err(ProtocolError::ContinuationMemory { len }),
            (None, Direction::Reply) => Buffer::adopt(partial.waiting.concat()),
        };
        Ok((whole.freeze(), parts))
    }

    /// Whether a message has begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.partial.is_some()
    }

    /// The peer can go on, or has no credit for it: then what is waited for is memory for a Receive, and the time for the rest
    /// begins when it has one.
    pub(crate) fn time(&mut self, goes_on: bool, now: Instant, timeouts: &Timeouts) {
        if let Some(partial) = self.partial.as_mut().filter(|partial| partial.goes_on != goes_on) {
            partial.goes_on = goes_on;
            partial.deadline = after(now, if goes_on { timeouts.continuation } else { timeouts.memory });
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.partial.as_ref().map(|partial| partial.deadline)
    }

    /// What was waited for in vain, if time is up; the message is gone.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<&'static str> {
        let partial = self.partial.take_if(|partial| partial.deadline <= now)?;
        Some(if partial.goes_on {
            "the rest of a continued message"
        } else {
            "memory for the rest of a continued message"
        })
    }

    /// The connection is over.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Partial {
    fn add(&mut self, part: Bytes, remaining: usize, limits: &Limits) -> Result<(), ProtocolError> {
        let len = self.len.saturating_add(self.remaining);
        if len > limits.continued_len {
            return Err(ProtocolError::ContinuationTooLong { len, allowed: limits.continued_len });
        }
        // The last part is not empty.
        let expected = self.remaining.saturating_sub(part.len());
        if remaining != expected || remaining == 0 {
            return Err(ProtocolError::ContinuationLength { seen: remaining, expected });
        }
        // And takes a place.
        if self.parts + 1 >= limits.continued_parts {
            return Err(ProtocolError::TooManyParts { allowed: limits.continued_parts });
        }
        self.remaining = remaining;
        self.push(part);
        Ok(())
    }

    fn push(&mut self, part: Bytes) {
        self.len += part.len();
        self.parts += 1;
        self.waiting.push(part);
    }

    /// Moves what waits to the room for all of it, if there is some, or can be had.
    fn gather(&mut self, domain: Option<&ProtectionDomain>) {
        if self.whole.is_none() {
            self.whole = domain.and_then(|domain| domain.allocate(self.len + self.remaining, 1).ok());
        }
        let Some(whole) = &mut self.whole else { return };
        let mut at = self.len - self.waiting.iter().map(Bytes::len).sum::<usize>();
        for part in self.waiting.drain(..) {
            let end = at + part.len();
            if let Some(room) = whole.get_mut(at..end) {
                room.copy_from_slice(&part);
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests;
