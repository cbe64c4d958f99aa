//! Messages that come in several Sends: parts (version-two-07 §6.6.2) and transmission groups (rtrext-02 §4, §6, §7).
//!
//! [`Assembly`] holds the message that has begun, one at a time, and takes its [`Fragment`]s in their order. Their number
//! and the length of the message are bounded ([`Limits`](crate::Limits)). The rest of a message has a timer (rule I6),
//! and another one while the peer has no credit to go on.
//!
//! *Memory.* The Payload stream of several Sends is joined in memory of the connection's domain. The first part
//! announces the whole length, so parts move there as they arrive, which frees their Receives. While the domain has no
//! memory, parts stay in their Receives, which are counted already. A group stays in its Receives until the last
//! transmission, as items lie in them. Without memory at the end, a Call is refused. A reply is joined all the same,
//! since no peer can be asked to repeat it.
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
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use rpcrdma_xdr::{CopyCount, ReadChunk};

pub(crate) use self::groups::Lead;
use self::groups::Transmission;
pub(crate) use self::parts::parts_of;
use crate::config::Config;
use crate::error::ProtocolError;
use crate::timers::after;
use crate::two::arrange::Targets;
use crate::wire::Direction;
use crate::wire::two::Error;
use crate::wire::two::transmission::TransmitContinuation;

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
    pub(crate) payload: Bytes,
    /// Items that were placed in our Receives, each with its displacement in the virtual stream.
    pub(crate) items: Vec<ReadChunk>,
    /// Sends that the message came in.
    pub(crate) sends: usize,
    /// Bytes of all these Sends.
    pub(crate) len: usize,
    /// Bytes that were joined: of the Payload stream, and of items.
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
    /// The source of memory for joined messages.
    domain: Option<ProtectionDomain>,
}

/// The message that has begun.
#[derive(Debug)]
struct Open {
    id: MessageId,
    notation: Notation,
    /// Sends that have come.
    sends: usize,
    /// Bytes of all of them.
    len: usize,
    payload: Pieces,
    deadline: Instant,
    /// Whether the peer has a credit to continue; otherwise the timer for our memory runs.
    goes_on: bool,
}

/// The notation of a message that has begun.
#[derive(Debug)]
enum Notation {
    /// Parts; this many bytes are to come.
    Parts { remaining: usize },
    /// A group, with the transmissions that have come.
    Group { lead: Lead, transmissions: Vec<Transmission> },
}

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
        let sends = self.open.as_ref().map_or(0, |open| open.sends);
        self.add(now, fragment).map_err(|error| Broken { error: error.into(), sends })
    }

    fn add(&mut self, now: Instant, fragment: Fragment) -> Result<Option<Assembled>, Error> {
        let Fragment { id, message, header, place } = fragment;
        let (limits, open) = (&self.config.limits, self.open.as_ref());
        let behind = message.len().saturating_sub(header);
        let checked = match &place {
            Place::Last if open.is_none() => {
                let (payload, len) = (message.slice(header..), message.len());
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
                sends: 0,
                len: 0,
                payload: Pieces::default(),
                deadline: after(now, self.config.timeouts.continuation),
                goes_on: true,
            },
        };
        open.sends += 1;
        open.len += message.len();
        open.payload.push(message.slice(payload.clone()));
        if open.takes_last(place, Transmission { message, payload }) {
            return self.finish(open).map(Some);
        }
        if let Notation::Parts { remaining } = open.notation {
            open.payload.gather(remaining, self.domain.as_ref());
        }
        self.open = Some(open);
        Ok(None)
    }

    /// Joins the message, all of which has come.
    fn finish(&self, open: Open) -> Result<Assembled, Error> {
        let Open { id, notation, sends, len, payload, .. } = open;
        let total = payload.len;
        let joined = payload.join(self.domain.as_ref(), id.1);
        let (lead, transmissions) = match notation {
            Notation::Parts { .. } => {
                let (payload, inline) = joined.ok_or(Error::ContinuationMemory { len: total })?;
                let copied = CopyCount { inline, payload: 0 };
                return Ok(Assembled { payload, sends, len, copied, ..Assembled::default() });
            }
            Notation::Group { lead, transmissions } => (lead, transmissions),
        };
        let (payload, inline) = joined.ok_or_else(|| groups::no_memory(id, total))?;
        let (items, copied) = self.items(id, &lead, &transmissions, payload.len())?;
        let copied = CopyCount { inline, payload: copied };
        Ok(Assembled { lead: Some(lead), payload, items, sends, len, copied })
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
    fn takes_last(&mut self, place: Place, transmission: Transmission) -> bool {
        match place {
            Place::Middle { remaining } => {
                self.notation = Notation::Parts { remaining: wide(remaining) };
                false
            }
            Place::Last => true,
            Place::Lead(lead) => {
                self.notation = Notation::Group { lead, transmissions: vec![transmission] };
                self.is_complete()
            }
            Place::Later(_) => {
                if let Notation::Group { transmissions, .. } = &mut self.notation {
                    transmissions.push(transmission);
                }
                self.is_complete()
            }
        }
    }

    fn is_complete(&self) -> bool {
        matches!(&self.notation, Notation::Group { lead, .. } if wide(lead.count()) == self.sends)
    }
}

/// Pieces to join into one run of bytes. All copies are made here.
#[derive(Debug, Default)]
struct Pieces {
    /// Pieces that are not in `memory` yet.
    waiting: Vec<Bytes>,
    /// Memory for all of them.
    memory: Option<Buffer>,
    /// Bytes of all pieces.
    len: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        self.waiting.push(piece);
    }

    /// Moves the pieces to memory for all of them and `more` bytes, if there is some or can be had.
    fn gather(&mut self, more: usize, domain: Option<&ProtectionDomain>) {
        if self.memory.is_none() {
            self.memory = domain.and_then(|domain| domain.allocate(self.len + more, 1).ok());
        }
        let Some(memory) = &mut self.memory else { return };
        let mut at = self.len - self.waiting.iter().map(Bytes::len).sum::<usize>();
        for piece in self.waiting.drain(..) {
            let end = at + piece.len();
            if let Some(target) = memory.get_mut(at..end) {
                target.copy_from_slice(&piece);
            }
            at = end;
        }
    }

    /// Returns the joined pieces, and the bytes copied for that: none for a single piece. `None` if the domain has no
    /// memory, and the peer can repeat the message.
    fn join(mut self, domain: Option<&ProtectionDomain>, direction: Direction) -> Option<(Bytes, usize)> {
        match &mut self.waiting[..] {
            [] if self.memory.is_none() => Some((Bytes::new(), 0)),
            [piece] if self.memory.is_none() => Some((std::mem::take(piece), 0)),
            _ => self.copy(domain, direction),
        }
    }

    /// Returns the pieces as one in memory of their own, and their length, like [`join`](Self::join).
    fn copy(mut self, domain: Option<&ProtectionDomain>, direction: Direction) -> Option<(Bytes, usize)> {
        self.gather(0, domain);
        let memory = match (self.memory, direction) {
            (Some(memory), _) => memory,
            (None, Direction::Call) => return None,
            (None, Direction::Reply) => Buffer::adopt(self.waiting.concat()),
        };
        Some((memory.freeze(), self.len))
    }
}

impl From<Vec<Bytes>> for Pieces {
    fn from(waiting: Vec<Bytes>) -> Self {
        let len = waiting.iter().map(Bytes::len).sum();
        Self { waiting, memory: None, len }
    }
}

fn wide(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
