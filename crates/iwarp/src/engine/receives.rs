//! Posted Receives and the Send that is arriving into one of them.
//!
//! Owns the memory of Receives from posting to completion. A pooled Receive has no memory until the first segment of
//! its message arrives; its reservation guarantees that memory is available then.

use std::collections::VecDeque;

use rpcrdma_verbs::{Buffer, Completion, Key, ReceiveMemory, Status, WindowMemory, Work, WrId};

use super::violation::Violation;
use crate::wire::ddp::{FIRST_MSN, Untagged, queue};
use crate::wire::rdmap::Opcode;

/// A Send of which at least one segment was admitted.
#[derive(Debug)]
struct Message {
    id: WrId,
    opcode: Opcode,
    invalidate: u32,
    buffers: Vec<Buffer>,
    pooled: bool,
    capacity: usize,
    received: usize,
}

/// A complete message that waits for its turn to complete.
#[derive(Debug)]
pub(super) struct Delivery {
    id: WrId,
    buffers: Vec<Buffer>,
    len: usize,
    solicited: bool,
    /// The window that must become unused first.
    pub(super) waits_for: Option<Key>,
    pub(super) invalidated: Option<(Key, WindowMemory)>,
}

impl Delivery {
    pub(super) fn into_completion(self) -> Completion {
        let Self { id, buffers, len, solicited, invalidated, .. } = self;
        Completion {
            id,
            status: Status::Success,
            work: Work::Receive { buffers, len, invalidated, solicited },
        }
    }
}

/// Receives from which on a queue at rest gives back its unused space.
const MANY: usize = 16;

#[derive(Debug)]
pub(super) struct Receives {
    posted: VecDeque<(WrId, ReceiveMemory)>,
    next_msn: u32,
    message: Option<Message>,
    /// A zero-length Send as first FPDU is a Ready-To-Receive message and takes no Receive.
    rtr_expected: bool,
}

impl Receives {
    pub(super) const fn new(rtr_expected: bool) -> Self {
        Self { posted: VecDeque::new(), next_msn: FIRST_MSN, message: None, rtr_expected }
    }

    /// Records that the first FPDU was another message: an empty Send behind it is a message too.
    pub(super) const fn first_fpdu_came(&mut self) {
        self.rtr_expected = false;
    }

    pub(super) fn post(&mut self, id: WrId, memory: ReceiveMemory) {
        self.posted.push_back((id, memory));
    }

    /// Releases space for more Receives than are posted. A queue that grew has up to twice as much. With few Receives
    /// posted, others are about to come back.
    pub(super) fn rest(&mut self) {
        let posted = self.posted.len();
        if posted >= MANY && self.posted.capacity() > posted + posted / 2 {
            self.posted.shrink_to(posted);
        }
    }

    pub(super) fn posted(&self) -> usize {
        self.posted.len() + usize::from(self.message.is_some())
    }

    /// Checks a segment of a Send (RFC 5041 §7.1, RFC 5040 §7.2) and attaches a Receive to the first segment of a
    /// message. Returns the segment's position in the message, or `None` if the segment is a Ready-To-Receive message.
    pub(super) fn admit(
        &mut self,
        header: &Untagged,
        opcode: Opcode,
        length: usize,
    ) -> Result<Option<usize>, Violation> {
        if header.msn != self.next_msn {
            let due = self.next_msn;
            return Err(Violation::Msn { queue: queue::SEND, seen: header.msn, due });
        }
        if std::mem::take(&mut self.rtr_expected) && length == 0 && header.last && opcode == Opcode::Send {
            return Ok(None);
        }
        let due = self.message.as_ref().map_or(0, |message| message.received);
        if usize::try_from(header.offset) != Ok(due) {
            return Err(Violation::Offset { seen: header.offset, due });
        }
        let end = due.saturating_add(length);
        if let Some(message) = &self.message {
            // RFC 5041 §4: the fields of RsvdULP are those of the message, not of the segment.
            if message.opcode != opcode {
                return Err(Violation::UnexpectedOpcode(opcode));
            }
            if opcode.invalidates() && message.invalidate != header.invalidate {
                return Err(Violation::InvalidateChanged);
            }
            if end > message.capacity {
                return Err(Violation::TooLong { seen: end, capacity: message.capacity });
            }
            return Ok(Some(due));
        }
        let (_, memory) = self.posted.front().ok_or(Violation::NoReceive(length))?;
        let capacity = memory.capacity();
        if end > capacity {
            return Err(Violation::TooLong { seen: end, capacity });
        }
        let Some((id, memory)) = self.posted.pop_front() else {
            return Err(Violation::NoReceive(length));
        };
        let (buffers, pooled) = match memory {
            ReceiveMemory::Scatter(buffers) => (buffers, false),
            ReceiveMemory::Pooled(reserved) => (vec![reserved.into_buffer()], true),
            // Unknown kinds of memory were refused when they were posted.
            _ => (Vec::new(), false),
        };
        let invalidate = header.invalidate;
        self.message = Some(Message { id, opcode, invalidate, buffers, pooled, capacity, received: 0 });
        Ok(Some(0))
    }

    /// Returns the memory of the arriving message.
    pub(super) fn buffers(&mut self) -> &mut [Buffer] {
        self.message.as_mut().map(|message| &mut message.buffers[..]).unwrap_or_default()
    }

    /// Returns the window that the arriving message invalidates when it is complete.
    pub(super) fn invalidates(&self) -> Option<Key> {
        let message = self.message.as_ref()?;
        message.opcode.invalidates().then_some(Key(message.invalidate))
    }

    /// Applies an admitted segment that was placed and whose CRC matched. Returns the message with its last segment.
    pub(super) fn commit(&mut self, length: usize, last: bool) -> Option<Delivery> {
        if let Some(message) = &mut self.message {
            message.received += length;
        }
        if !last {
            return None;
        }
        // RFC 5041 §4.3: the sequence number wraps to 0.
        self.next_msn = self.next_msn.wrapping_add(1);
        let message = self.message.take()?;
        Some(Delivery {
            id: message.id,
            buffers: message.buffers,
            len: message.received,
            solicited: message.opcode.is_solicited(),
            waits_for: None,
            invalidated: None,
        })
    }

    /// Takes the oldest Receive, after the end of the connection.
    pub(super) fn take(&mut self) -> Option<(WrId, Work)> {
        let (id, buffers) = match self.message.take() {
            Some(message) if message.pooled => (message.id, Vec::new()),
            Some(message) => (message.id, message.buffers),
            None => {
                let (id, memory) = self.posted.pop_front()?;
                let buffers = match memory {
                    ReceiveMemory::Scatter(buffers) => buffers,
                    _ => Vec::new(),
                };
                (id, buffers)
            }
        };
        Some((id, Work::Receive { buffers, len: 0, invalidated: None, solicited: false }))
    }

    /// Sets the MSN that is due.
    #[cfg(test)]
    pub(super) const fn expect_msn(&mut self, msn: u32) {
        self.next_msn = msn;
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_verbs::ProtectionDomain;

    use super::*;

    #[test]
    fn a_queue_at_rest_keeps_space_for_the_receives_that_are_posted() {
        let domain = ProtectionDomain::new(1 << 20);
        let mut receives = Receives::new(false);
        let post = |receives: &mut Receives, count: u64| {
            for id in 0..count {
                receives.post(WrId(id), ReceiveMemory::Pooled(domain.reserve(1024).unwrap()));
            }
        };
        post(&mut receives, 66);
        assert!(receives.posted.capacity() >= 128);
        receives.rest();
        assert!((66..99).contains(&receives.posted.capacity()));
        // Calls in progress leave few Receives; the space for the others stays.
        receives.posted.truncate(2);
        receives.rest();
        assert!(receives.posted.capacity() >= 66);
        post(&mut receives, 64);
        receives.rest();
        assert_eq!(receives.posted(), 66);
    }
}
