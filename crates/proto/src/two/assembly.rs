//! Messages that come in several Sends: parts (version-two-07 §6.6.2) and transmission groups (rtrext-02 §4, §6, §7).
//!
//! [`Assembly`] holds the message that has begun, one at a time, and takes its [`Fragment`]s in their order. Their number
//! and the length of the message are bounded ([`Limits`](crate::Limits)). The rest of a message has a timer (rule I6),
//! and another one while the peer has no credit to go on.
//!
//! *Memory.* A message stays in its Receives. The message and its items are handed on as slices of them. Receives are
//! counted against the connection's domain already, so a message needs no further memory. If the message fills less than
//! half of its Receives, the slices in each Receive that is less than half full are copied. No message therefore holds
//! more than twice its length, unless the domain has no memory for the copy.
//!
//! *No deadlock.* A reply and a group arrive in Receives that their credits reserved before they left. So do the parts of
//! a Call whose sender has credits for all of them. A sender with fewer credits waits until we post further Receives. For
//! them the connection keeps the memory of the Receives that it granted, which returns with its other Calls. A message
//! that holds all of that memory would wait for other connections, whose messages may wait for this one. If the domain
//! is full then, such a message is refused at once, so no message waits for another that waits.
//!
//! *Errors*: the message is given up, its memory returns, and the connection handles the error. The rest of that
//! message is ignored. `parts` and `groups` check the fragments of the two documents.

mod groups;
mod parts;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{CopyCount, Payload, ReadChunk};

pub(crate) use self::groups::Lead;
pub(crate) use self::parts::parts_of;
use crate::settings::config::Config;
use crate::settings::timers::after;
use crate::two::arrange::Targets;
use crate::wire::two::Error;
use crate::wire::two::transmission::{TransmissionId, TransmitContinuation};
use crate::wire::{Direction, ProtocolError, sized};

/// The most messages given up whose end has not arrived; older ones are forgotten.
const GIVEN_UP: usize = 16;

/// XID and direction of a message.
pub(crate) type MessageId = (u32, Direction);

/// The contents of one Send of a message.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) id: MessageId,
    /// The bytes of the Send.
    pub(crate) message: Bytes,
    /// Bytes of its header.
    pub(crate) header: usize,
    pub(crate) place: Place,
}

/// The place of a fragment in its message, from its header.
#[derive(Debug)]
pub(crate) enum Place {
    /// A part followed by others, of this many bytes together.
    Middle { remaining: u32 },
    /// The last part, or a message in one part.
    Last,
    /// The first transmission of a group.
    Lead(Lead),
    /// A later transmission.
    Later(TransmitContinuation),
}

/// A message whose fragments have all arrived.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    /// The first transmission, of a group.
    pub(crate) lead: Option<Lead>,
    /// The Payload stream.
    pub(crate) payload: Payload,
    /// Items that were placed in our Receives, each with its displacement in the virtual stream.
    pub(crate) items: Vec<ReadChunk>,
    /// Sends that the message came in.
    pub(crate) sends: usize,
    /// Bytes of all these Sends.
    pub(crate) len: usize,
    /// Bytes that were copied out of scarcely filled Receives: of the Payload stream, and of items.
    pub(crate) copied: CopyCount,
}

/// The error for which a message is given up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) error: ProtocolError,
    /// Sends of the message that arrived before.
    pub(crate) sends: usize,
}

/// The assembly of the peer's messages.
#[derive(Debug)]
pub(crate) struct Assembly {
    config: Arc<Config>,
    /// The segments for items in our Receives, if they have some.
    targets: Option<Targets>,
    open: Option<Open>,
    given_up: VecDeque<GivenUp>,
    /// The source of memory for copies.
    domain: Option<ProtectionDomain>,
}

/// The message that has begun.
#[derive(Debug)]
struct Open {
    id: MessageId,
    notation: Notation,
    /// The Sends that have come.
    sends: Vec<Transmission>,
    /// Bytes of all of them.
    len: usize,
    /// Bytes of the Payload stream in them.
    payload: usize,
    deadline: Instant,
    /// Whether the peer has a credit to continue; otherwise the timer for our memory runs.
    goes_on: bool,
}

/// The notation of a message that has begun.
#[derive(Debug)]
enum Notation {
    /// Parts; this many bytes are to come.
    Parts { remaining: usize },
    /// A group.
    Group { lead: Lead },
}

/// A received Send of a message.
#[derive(Debug)]
struct Transmission {
    message: Bytes,
    /// The place of its part of the Payload stream.
    payload: Range<usize>,
}

/// Slices of a message, each with the number of its Send.
type Runs = Vec<(usize, Bytes)>;

/// A message that was given up.
#[derive(Debug)]
struct GivenUp {
    id: MessageId,
    rest: Rest,
}

/// Fragments that can still come of a message that was given up.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// Parts, up to the last one.
    Parts,
    /// Transmissions with these numbers, each once.
    Transmissions(Range<u32>),
}

/// A fragment that violates the protocol, and the rest of its message to ignore.
#[derive(Debug)]
struct Refused {
    error: Error,
    rest: Option<Rest>,
}

impl Assembly {
    pub(crate) fn new(config: &Arc<Config>) -> Self {
        Self {
            config: Arc::clone(config),
            targets: config.structure().and_then(Targets::of),
            open: None,
            given_up: VecDeque::new(),
            domain: None,
        }
    }

    /// Sets the connection's memory, as soon as it is known.
    pub(crate) fn use_domain(&mut self, domain: &ProtectionDomain) {
        self.domain.get_or_insert_with(|| domain.clone());
    }

    /// Takes a fragment of the message that has begun, or the first of another; returns the message if that was all of it.
    ///
    /// # Errors
    /// [`Broken`]: the message is given up.
    pub(crate) fn take(&mut self, now: Instant, fragment: Fragment) -> Result<Option<Assembled>, Broken> {
        let sends = self.open.as_ref().map_or(0, |open| open.sends.len());
        self.add(now, fragment).map_err(|error| Broken { error: error.into(), sends })
    }

    fn add(&mut self, now: Instant, fragment: Fragment) -> Result<Option<Assembled>, Error> {
        let Fragment { id, message, header, place } = fragment;
        let (limits, open) = (&self.config.limits, self.open.as_ref());
        let behind = message.len().saturating_sub(header);
        let checked = match &place {
            Place::Last if open.is_none() => {
                let (payload, len) = (message.slice(header..).into(), message.len());
                return Ok(Some(Assembled { payload, sends: 1, len, ..Assembled::default() }));
            }
            Place::Middle { remaining } => {
                parts::check(open, behind, *remaining, limits).map(|()| header..message.len())
            }
            Place::Last => parts::check_last(open, behind).map(|()| header..message.len()),
            Place::Lead(lead) => groups::check_lead(id.0, lead, (&message, header), limits),
            Place::Later(later) => {
                let base = self.config.versions.operations();
                groups::check_later((id, open), later, (&message, header), (base, limits))
            }
        };
        let payload = match checked {
            Ok(payload) => payload,
            Err(Refused { error, rest }) => {
                self.open = None;
                if let Some(rest) = rest {
                    self.give_up(id, rest);
                }
                return Err(error);
            }
        };
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open {
                id,
                notation: Notation::Parts { remaining: 0 },
                sends: Vec::new(),
                len: 0,
                payload: 0,
                deadline: after(now, self.config.timeouts.continuation),
                goes_on: true,
            },
        };
        open.len += message.len();
        open.payload += payload.len();
        open.sends.push(Transmission { message, payload });
        if open.takes_last(place) {
            return self.finish(open).map(Some);
        }
        self.open = Some(open);
        Ok(None)
    }

    /// Returns the message, all of which has come.
    fn finish(&self, open: Open) -> Result<Assembled, Error> {
        let Open { id, notation, sends, len, payload, .. } = open;
        let (lead, items) = match notation {
            Notation::Parts { .. } => (None, vec![]),
            Notation::Group { lead } => {
                let first = TransmissionId { xid: id.0, direction: id.1, number: 0 };
                let items = groups::find_items(&lead, &sends, self.targets.as_ref(), payload);
                (Some(lead), items.map_err(|error| groups::report(first, None, error))?)
            }
        };
        let slice = |send: &Transmission| send.message.slice(send.payload.clone());
        let stream: Runs = sends.iter().map(slice).enumerate().filter(|(_, run)| !run.is_empty()).collect();
        let scarce =
            self.scarcely_filled(sends.len(), items.iter().flat_map(|(_, runs)| runs).chain(&stream));
        let mut copied = CopyCount::default();
        let payload = self.settle(&stream, &scarce, &mut copied.inline);
        let items = items.into_iter().map(|(position, runs)| {
            let data = self.settle(&runs, &scarce, &mut copied.payload);
            ReadChunk { position, data }
        });
        let items = items.collect();
        Ok(Assembled { lead, payload, items, sends: sends.len(), len, copied })
    }

    /// Returns the Sends whose Receives would be held for less than half of them, if that holds for all Receives of the
    /// message together. A message in one Send holds its Receive in any form.
    fn scarcely_filled<'a>(
        &self,
        sends: usize,
        runs: impl Iterator<Item = &'a (usize, Bytes)>,
    ) -> Vec<usize> {
        let mut filled = vec![0_usize; sends];
        for (send, run) in runs {
            if let Some(filled) = filled.get_mut(*send) {
                *filled = filled.saturating_add(run.len());
            }
        }
        let half = self.targets.as_ref().map_or(self.config.receive_size, Targets::receive).div_ceil(2);
        let held = filled.iter().filter(|filled| **filled > 0).count();
        let enough = filled.iter().fold(0, |sum: usize, filled| sum.saturating_add(*filled));
        if sends == 1 || enough >= half.saturating_mul(held) {
            return vec![];
        }
        (0..sends).filter(|send| filled.get(*send).is_some_and(|filled| *filled < half)).collect()
    }

    /// Returns slices as they lie, but those of `scarce` Receives in memory of their own, if the domain has some. Adds the
    /// bytes copied to `copied`.
    fn settle(&self, runs: &[(usize, Bytes)], scarce: &[usize], copied: &mut usize) -> Payload {
        let mut payload = Payload::default();
        for run in runs.chunk_by(|(one, _), (next, _)| scarce.contains(one) == scarce.contains(next)) {
            let moves = run.first().is_some_and(|(send, _)| scarce.contains(send));
            let len = run.iter().map(|(_, slice)| slice.len()).sum();
            let memory =
                self.domain.as_ref().filter(|_| moves).and_then(|domain| domain.allocate(len, 1).ok());
            let Some(mut memory) = memory else {
                run.iter().for_each(|(_, slice)| payload.push(slice.clone()));
                continue;
            };
            let bytes = run.iter().flat_map(|(_, slice)| slice);
            memory.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
            *copied += len;
            payload.push(memory.freeze());
        }
        payload
    }

    /// Whether a fragment belongs to a message that was given up: parts up to the last one, transmissions once each, in
    /// order.
    pub(crate) fn passes_over(&mut self, id: MessageId, place: &Place) -> bool {
        let belongs = |given_up: &GivenUp| {
            given_up.id == id
                && match (place, &given_up.rest) {
                    (Place::Middle { .. } | Place::Last, Rest::Parts) => true,
                    (Place::Later(later), Rest::Transmissions(numbers)) => numbers.contains(&later.number),
                    _ => false,
                }
        };
        let Some(index) = self.given_up.iter().position(belongs) else { return false };
        let ended = match (place, self.given_up.get_mut(index).map(|given_up| &mut given_up.rest)) {
            (Place::Later(later), Some(Rest::Transmissions(numbers))) => {
                numbers.start = later.number.saturating_add(1);
                numbers.start >= numbers.end
            }
            (place, _) => matches!(place, Place::Last),
        };
        if ended {
            self.given_up.remove(index);
        }
        true
    }

    /// Ignores the rest of a message from now on.
    fn give_up(&mut self, id: MessageId, rest: Rest) {
        self.begins_anew(id);
        if matches!(&rest, Rest::Transmissions(numbers) if numbers.is_empty()) {
            return;
        }
        self.given_up.push_back(GivenUp { id, rest });
        if self.given_up.len() > GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// Forgets an earlier message with this id, which has ended.
    pub(crate) fn begins_anew(&mut self, id: MessageId) {
        self.given_up.retain(|given_up| given_up.id != id);
    }

    /// Whether a message has begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.open.is_some()
    }

    /// Sets whether the peer has a credit to continue. Without one, the wait is for memory for a Receive; the time for
    /// the rest begins with that Receive.
    pub(crate) fn time(&mut self, goes_on: bool, now: Instant) {
        if let Some(open) = self.open.as_mut().filter(|open| open.goes_on != goes_on) {
            let timeouts = &self.config.timeouts;
            open.goes_on = goes_on;
            open.deadline = after(now, if goes_on { timeouts.continuation } else { timeouts.memory });
        }
    }

    /// Gives up a Call in parts that holds at least `kept` Receives, all that its connection keeps memory for. Returns its
    /// XID, and its bytes that have come.
    pub(crate) fn give_up_holder(&mut self, kept: usize) -> Option<(u32, usize)> {
        let (xid, _) = self.parts().filter(|(_, direction)| *direction == Direction::Call)?;
        let open = self.open.take_if(|open| open.sends.len() >= kept)?;
        self.give_up(open.id, Rest::Parts);
        Some((xid, open.payload))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.deadline)
    }

    /// Gives up a message whose deadline has passed; returns the name of the missing part.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<&'static str> {
        let open = self.open.take_if(|open| open.deadline <= now)?;
        Some(match (open.notation, open.goes_on) {
            (Notation::Group { .. }, _) => "the rest of a transmission group",
            (Notation::Parts { .. }, true) => "the rest of a continued message",
            (Notation::Parts { .. }, false) => "memory for the rest of a continued message",
        })
    }

    /// Forgets all messages: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.open = None;
        self.given_up.clear();
        self.domain = None;
    }
}

impl Open {
    /// Records the place of a checked fragment; returns whether it was the last one.
    fn takes_last(&mut self, place: Place) -> bool {
        match place {
            Place::Middle { remaining } => {
                self.notation = Notation::Parts { remaining: sized(remaining) };
                false
            }
            Place::Last => true,
            Place::Lead(lead) => {
                self.notation = Notation::Group { lead };
                self.is_complete()
            }
            Place::Later(_) => self.is_complete(),
        }
    }

    fn is_complete(&self) -> bool {
        matches!(&self.notation, Notation::Group { lead } if sized(lead.count()) == self.sends.len())
    }
}

#[cfg(test)]
mod tests;
