//! Transport characteristics: what the two ends of a connection tell each other about themselves, ask of each other, and change
//! while they are connected (xcharext-02; version-two-03 §5, where they are called properties; version-two-07 §5, where they are
//! told once and stay).
//!
//! [`Characteristics`] are the values of one side; the connection keeps those that the peer has told and those that the peer was
//! told. `exchange` is the conversation about them. Nothing of the queue pair is owned here: what a value leads to (the size
//! of Receives, thresholds, Send with Invalidate) is carried out by the connection.
//!
//! *On error*: data that is not what its characteristic says makes the whole operation an XDR error (xcharext-02 §2.1), and
//! nothing of it is applied. What is not known is passed over.

pub(crate) mod exchange;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::limits::Limits;
use crate::wire::two::transmission::{BufferStructure, Property};
use crate::wire::two::{self, Profile, Value, combined};

/// The first of the experimental ids, which go up to the end (xcharext-02 §6.2, version-two-03 §5.4.2). One of them is ours:
/// [`combined::CHARACTERISTIC`].
pub const EXPERIMENTAL: u32 = 0xffff_ff00;

/// The longest data of a characteristic of one's own, bytes.
pub const REGISTERED_MAX: usize = 256;
/// The most characteristics of one's own: all of them fit into one message of 4096 bytes.
pub const REGISTERED_MOST: usize = 8;

/// Receives that a connection keeps for operations of the peer beyond those of its credits: one for an operation that is not
/// answered, and one for a response.
pub const OPERATION_RECEIVES: usize = 2;
pub(crate) const OPERATION_RECEIVES_32: u32 = 2;

/// Receive sizes that can be told and asked for, bytes: what every peer may count on, to the longest message that any version
/// negotiates (RFC 8797 §4.2).
pub const RECEIVE_SIZES: RangeInclusive<u32> = 4096..=262_144;

/// What one side says of itself. The default is what is assumed of one that says nothing (xcharext-02 §3, version-two-03 §5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Characteristics {
    /// XCHAR_RBSIZ: the least size of its Receives, bytes (xcharext-02 §3.1).
    pub receive_size: u32,
    /// SBSIZ: its longest Send, bytes (version-two-07 §5.2.1); `None` where the profile does not say it.
    pub send_size: Option<u32>,
    /// RSSIZ: the longest segment that it takes, bytes (version-two-07 §5.2.3); `None` where the profile does not say it.
    pub segment_size: Option<u32>,
    /// RCSIZ: the most segments that it takes in the header of a Call (version-two-07 §5.2.4); `None` where the profile does not say
    /// it.
    pub segment_count: Option<u32>,
    /// XCHAR_REQREMINV: as a Requester it takes Send with Invalidate for replies (xcharext-02 §3.2). Not in P2, where each Call
    /// says what may be invalidated.
    pub remote_invalidation: bool,
    /// XCHAR_BRS: what it takes in the reverse direction (xcharext-02 §3.3).
    pub reverse: ReverseSupport,
    /// What it does with transmission groups (rtrext-02 §8).
    pub transmissions: Transmissions,
    /// RPC-over-RDMA messages that it takes in one Send ([`combined`]); 1 is said by silence.
    pub combined: u32,
    /// Registered ones, by id ([`Registered`]).
    pub registered: BTreeMap<u32, Bytes>,
}

/// What a side says of transmission groups: messages in several Sends, or with items where the receiver has room for them
/// (rtrext-02 §8). The default is what is assumed of one that says nothing: it takes no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmissions {
    /// RTRSUPP: the operations that it takes, by the bits of [`transmission`](crate::wire::two::transmission). The draft does not say which way
    /// they are meant (§8.2).
    pub support: u32,
    /// RBSTRUCT: the structure of its Receives; `None` for one segment that nothing can be placed in (§8.3).
    pub structure: Option<BufferStructure>,
    /// REQRXLIM: Sends of the longest Call that it takes (§8.4).
    pub request_limit: u32,
    /// RESPSXLIM: Sends of the longest reply that it makes (§8.5).
    pub response_limit: u32,
}

impl Default for Transmissions {
    fn default() -> Self {
        Self { support: 0, structure: None, request_limit: 1, response_limit: 1 }
    }
}

impl Default for Characteristics {
    fn default() -> Self {
        Self {
            receive_size: 4096,
            send_size: None,
            segment_size: None,
            segment_count: None,
            remote_invalidation: false,
            reverse: ReverseSupport::Inline,
            transmissions: Transmissions::default(),
            combined: 1,
            registered: BTreeMap::new(),
        }
    }
}

impl Characteristics {
    /// What is assumed in this profile of a side that says nothing.
    #[must_use]
    pub fn initial(profile: Profile) -> Self {
        match profile {
            Profile::P1 | Profile::P2 => Self::default(),
            // version-two-07 §5.2, table 1.
            Profile::P3 => Self {
                send_size: Some(4096),
                segment_size: Some(1 << 20),
                segment_count: Some(16),
                reverse: ReverseSupport::None,
                ..Self::default()
            },
        }
    }
}

impl fmt::Display for Characteristics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { receive_size, send_size, segment_size, segment_count, .. } = self;
        let Self { remote_invalidation, reverse, transmissions, combined, registered, .. } = self;
        write!(f, "Receives of {receive_size} B")?;
        if let Some(size) = send_size {
            write!(f, ", Sends of {size} B")?;
        }
        if let (Some(size), Some(count)) = (segment_size, segment_count) {
            write!(f, ", {count} segments of {size} B")?;
        }
        if *remote_invalidation {
            f.write_str(", takes Send with Invalidate")?;
        }
        f.write_str(match reverse {
            ReverseSupport::None => ", no reverse Calls",
            ReverseSupport::Inline => ", reverse Calls inline",
            ReverseSupport::Continued => ", reverse Calls inline or continued",
            ReverseSupport::General => ", reverse Calls with chunks",
        })?;
        let Transmissions { support, structure, request_limit, response_limit } = transmissions;
        if *support != 0 {
            write!(f, ", Calls in {request_limit} Sends, replies in {response_limit}")?;
        }
        if let Some(structure) = structure {
            write!(f, ", {} segments to place items in", structure.targets())?;
        }
        if *combined > 1 {
            write!(f, ", {combined} messages in a Send")?;
        }
        for (id, data) in registered {
            write!(f, ", {id:#010x}: {} B", data.len())?;
        }
        Ok(())
    }
}

/// `bkreqsup`: how far reverse Calls are taken (xcharext-02 §3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseSupport {
    /// BKREQSUP_NONE: not at all.
    None,
    /// BKREQSUP_INLINE: without chunks.
    #[default]
    Inline,
    /// RDMA2_RVRSDIR_CONT: without chunks, in one message or several (version-two-07 §5.2.5).
    Continued,
    /// BKREQSUP_GENL: like forward ones.
    General,
}

impl ReverseSupport {
    /// The levels of a profile, by the words that they have.
    const fn levels(profile: Profile) -> &'static [Self] {
        match profile {
            Profile::P1 | Profile::P2 => &[Self::None, Self::Inline, Self::General],
            Profile::P3 => &[Self::None, Self::Inline, Self::Continued, Self::General],
        }
    }

    /// The word of the highest level that the profile has and that is not above this.
    fn word(self, profile: Profile) -> u32 {
        let below = Self::levels(profile).iter().filter(|level| **level < self).count();
        let has = Self::levels(profile).contains(&self);
        u32::try_from(if has { below } else { below.saturating_sub(1) }).unwrap_or(0)
    }

    fn of(profile: Profile, word: u32) -> Option<Self> {
        Self::levels(profile).get(usize::try_from(word).ok()?).copied()
    }
}

/// One characteristic, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Characteristic {
    /// [`Characteristics::receive_size`], bytes.
    ReceiveSize(u32),
    /// [`Characteristics::send_size`], bytes.
    SendSize(u32),
    /// [`Characteristics::segment_size`], bytes.
    SegmentSize(u32),
    /// [`Characteristics::segment_count`].
    SegmentCount(u32),
    /// [`Characteristics::remote_invalidation`].
    RemoteInvalidation(bool),
    /// [`Characteristics::reverse`].
    Reverse(ReverseSupport),
    /// [`Transmissions::support`].
    TransmissionSupport(u32),
    /// [`Transmissions::structure`].
    BufferStructure(BufferStructure),
    /// [`Transmissions::request_limit`].
    RequestLimit(u32),
    /// [`Transmissions::response_limit`].
    ResponseLimit(u32),
    /// [`Characteristics::combined`].
    Combined(u32),
    /// One of [`Characteristics::registered`].
    Registered {
        /// Its id.
        id: u32,
        /// Its value, in XDR.
        data: Bytes,
    },
}

impl Characteristic {
    /// What a value says, by the numbers of a profile; `None` if its id is not known there.
    ///
    /// # Errors
    /// [`two::Error::BadCharacteristic`]: too short, too long, or not of its type (xcharext-02 §2.1; that more bytes than its type
    /// has are not valid either is our reading). A number is valid whatever it is (version-two-07 §5.1, §7.2.2: what cannot be parsed): a
    /// peer that takes, or sends, next to nothing is believed, and what does not fit is refused when it is to be sent.
    pub(crate) fn decode(
        profile: Profile,
        value: &Value,
        limits: &Limits,
    ) -> Result<Option<Self>, two::Error> {
        let Value { id, data } = value;
        let bad = || two::Error::BadCharacteristic { id: *id, len: data.len() };
        let word = || <[u8; 4]>::try_from(&data[..]).map(u32::from_be_bytes).map_err(|_| bad());
        // version-two-03 §5.1.1: without data it is the default.
        let default = profile != Profile::P1 && data.is_empty();
        let known = Known::of(profile, *id);
        if let Some(known) = known.filter(|_| default) {
            return Ok(Characteristics::initial(profile).of_kind(known));
        }
        Ok(match known {
            Some(Known::SendSize) => Some(Self::SendSize(word()?)),
            Some(Known::SegmentSize) => Some(Self::SegmentSize(word()?)),
            Some(Known::SegmentCount) => Some(Self::SegmentCount(word()?)),
            Some(Known::ReceiveSize) => Some(Self::ReceiveSize(word()?)),
            Some(Known::RemoteInvalidation) => Some(Self::RemoteInvalidation(match word()? {
                0 => false,
                1 => true,
                _ => return Err(bad()),
            })),
            Some(Known::Reverse) => {
                Some(Self::Reverse(ReverseSupport::of(profile, word()?).ok_or_else(bad)?))
            }
            Some(Known::Transmission(property)) => Some(match property {
                Property::Support => Self::TransmissionSupport(word()?),
                Property::BufferStructure => Self::BufferStructure(BufferStructure::decode(data, limits)?),
                Property::RequestLimit => Self::RequestLimit(word()?),
                Property::ResponseLimit => Self::ResponseLimit(word()?),
            }),
            Some(Known::Combined) => Some(Self::Combined(word()?)),
            None if *id >= EXPERIMENTAL && has_experimental(profile) => {
                Some(Self::Registered { id: *id, data: data.clone() })
            }
            None => None,
        })
    }

    /// The bytes by the numbers of a profile; `None` if it has no such characteristic.
    pub(crate) fn encode(&self, profile: Profile) -> Option<Value> {
        let word = |word: u32| Bytes::copy_from_slice(&word.to_be_bytes());
        let (known, data) = match self {
            Self::ReceiveSize(size) => (Known::ReceiveSize, word(*size)),
            Self::RemoteInvalidation(takes) => (Known::RemoteInvalidation, word(u32::from(*takes))),
            Self::Reverse(support) => (Known::Reverse, word(support.word(profile))),
            Self::SendSize(size) => (Known::SendSize, word(*size)),
            Self::SegmentSize(size) => (Known::SegmentSize, word(*size)),
            Self::SegmentCount(count) => (Known::SegmentCount, word(*count)),
            Self::TransmissionSupport(bits) => (Known::Transmission(Property::Support), word(*bits)),
            Self::BufferStructure(structure) => {
                let mut data = BytesMut::new();
                structure.encode(&mut data);
                (Known::Transmission(Property::BufferStructure), data.freeze())
            }
            Self::RequestLimit(limit) => (Known::Transmission(Property::RequestLimit), word(*limit)),
            Self::ResponseLimit(limit) => (Known::Transmission(Property::ResponseLimit), word(*limit)),
            Self::Combined(messages) => (Known::Combined, word(*messages)),
            Self::Registered { id, data } => {
                return has_experimental(profile).then(|| Value { id: *id, data: data.clone() });
            }
        };
        Some(Value { id: known.id(profile)?, data })
    }

    /// Whether both say something about the same.
    pub(crate) fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Registered { id, .. }, Self::Registered { id: other, .. }) => id == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Whether ids are kept for experiments: version-two-07, Appendix B.3, says that there are none any more.
const fn has_experimental(profile: Profile) -> bool {
    matches!(profile, Profile::P1 | Profile::P2)
}

/// Characteristics that the documents define. HOSTAUTH (version-two-07 §5.2.6) is not among them: what it should hold is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    ReceiveSize,
    SendSize,
    SegmentSize,
    SegmentCount,
    RemoteInvalidation,
    Reverse,
    Transmission(Property),
    Combined,
}

impl Known {
    const ALL: [Self; 11] = [
        Self::SendSize,
        Self::ReceiveSize,
        Self::SegmentSize,
        Self::SegmentCount,
        Self::RemoteInvalidation,
        Self::Reverse,
        Self::Transmission(Property::Support),
        Self::Transmission(Property::BufferStructure),
        Self::Transmission(Property::RequestLimit),
        Self::Transmission(Property::ResponseLimit),
        Self::Combined,
    ];

    const fn id(self, profile: Profile) -> Option<u32> {
        if let Self::Transmission(property) = self {
            return property.id(profile);
        }
        if matches!(self, Self::Combined) {
            return if has_experimental(profile) { Some(combined::CHARACTERISTIC) } else { None };
        }
        match profile {
            // xcharext-02 §3
            Profile::P1 => match self {
                Self::ReceiveSize => Some(1),
                Self::RemoteInvalidation => Some(2),
                Self::Reverse => Some(3),
                _ => None,
            },
            // version-two-03 §5.2
            Profile::P2 => match self {
                Self::ReceiveSize => Some(1),
                Self::Reverse => Some(2),
                _ => None,
            },
            // version-two-07 §5.2
            Profile::P3 => match self {
                Self::SendSize => Some(1),
                Self::ReceiveSize => Some(2),
                Self::SegmentSize => Some(3),
                Self::SegmentCount => Some(4),
                Self::Reverse => Some(5),
                _ => None,
            },
        }
    }

    fn of(profile: Profile, id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.id(profile) == Some(id))
    }
}

impl Characteristics {
    /// Takes a value over.
    pub(crate) fn apply(&mut self, characteristic: Characteristic) {
        match characteristic {
            Characteristic::ReceiveSize(size) => self.receive_size = size,
            Characteristic::SendSize(size) => self.send_size = Some(size),
            Characteristic::SegmentSize(size) => self.segment_size = Some(size),
            Characteristic::SegmentCount(count) => self.segment_count = Some(count),
            Characteristic::RemoteInvalidation(takes) => self.remote_invalidation = takes,
            Characteristic::Reverse(support) => self.reverse = support,
            Characteristic::TransmissionSupport(bits) => self.transmissions.support = bits,
            Characteristic::BufferStructure(structure) => self.transmissions.structure = Some(structure),
            Characteristic::RequestLimit(limit) => self.transmissions.request_limit = limit,
            Characteristic::ResponseLimit(limit) => self.transmissions.response_limit = limit,
            Characteristic::Combined(messages) => self.combined = messages,
            Characteristic::Registered { id, data } => {
                self.registered.insert(id, data);
            }
        }
    }

    /// The value of the same kind.
    pub(crate) fn current(&self, kind: &Characteristic) -> Option<Characteristic> {
        Some(match kind {
            Characteristic::ReceiveSize(_) => self.of_kind(Known::ReceiveSize)?,
            Characteristic::SendSize(_) => self.of_kind(Known::SendSize)?,
            Characteristic::SegmentSize(_) => self.of_kind(Known::SegmentSize)?,
            Characteristic::SegmentCount(_) => self.of_kind(Known::SegmentCount)?,
            Characteristic::RemoteInvalidation(_) => self.of_kind(Known::RemoteInvalidation)?,
            Characteristic::Reverse(_) => self.of_kind(Known::Reverse)?,
            Characteristic::TransmissionSupport(_) => self.of_kind(Known::Transmission(Property::Support))?,
            Characteristic::BufferStructure(_) => {
                self.of_kind(Known::Transmission(Property::BufferStructure))?
            }
            Characteristic::RequestLimit(_) => self.of_kind(Known::Transmission(Property::RequestLimit))?,
            Characteristic::ResponseLimit(_) => self.of_kind(Known::Transmission(Property::ResponseLimit))?,
            Characteristic::Combined(_) => self.of_kind(Known::Combined)?,
            Characteristic::Registered { id, .. } => {
                Characteristic::Registered { id: *id, data: self.registered.get(id)?.clone() }
            }
        })
    }

    /// The value of one that the documents define, if it has one.
    fn of_kind(&self, known: Known) -> Option<Characteristic> {
        Some(match known {
            Known::ReceiveSize => Characteristic::ReceiveSize(self.receive_size),
            Known::SendSize => Characteristic::SendSize(self.send_size?),
            Known::SegmentSize => Characteristic::SegmentSize(self.segment_size?),
            Known::SegmentCount => Characteristic::SegmentCount(self.segment_count?),
            Known::RemoteInvalidation => Characteristic::RemoteInvalidation(self.remote_invalidation),
            Known::Reverse => Characteristic::Reverse(self.reverse),
            Known::Combined => Characteristic::Combined(self.combined),
            Known::Transmission(Property::Support) => {
                Characteristic::TransmissionSupport(self.transmissions.support)
            }
            Known::Transmission(Property::BufferStructure) => {
                Characteristic::BufferStructure(self.transmissions.structure.clone()?)
            }
            Known::Transmission(Property::RequestLimit) => {
                Characteristic::RequestLimit(self.transmissions.request_limit)
            }
            Known::Transmission(Property::ResponseLimit) => {
                Characteristic::ResponseLimit(self.transmissions.response_limit)
            }
        })
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Characteristic> + '_ {
        let registered = self
            .registered
            .iter()
            .map(|(id, data)| Characteristic::Registered { id: *id, data: data.clone() });
        // Who does nothing with transmissions has nothing to say of them.
        let silent = self.transmissions == Transmissions::default();
        let alone = self.combined <= 1;
        let known = Known::ALL.into_iter().filter(move |known| match known {
            Known::Transmission(_) => !silent,
            Known::Combined => !alone,
            _ => true,
        });
        known.filter_map(|known| self.of_kind(known)).chain(registered)
    }
}

/// What a side does about characteristics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Take part: tell the peer, and answer it. Without it every operation is refused as not supported (version-two-01 §3.1), and
    /// the defaults hold.
    pub enabled: bool,
    /// The smallest receive size that the peer can make us go down to, bytes; never below 4096, which every peer may count on
    /// (version-two-01 §2.3).
    pub least_receive_size: usize,
    /// The largest receive size that the peer can make us go up to, bytes; by default it can make us go nowhere. It costs
    /// memory: the grant times that.
    pub most_receive_size: usize,
    registered: Vec<Registered>,
}

impl Exchanged {
    /// Adds a characteristic of one's own.
    ///
    /// # Errors
    /// [`NotRegistered`]: the id is there already, or there are [`REGISTERED_MOST`].
    pub fn register(&mut self, registered: Registered) -> Result<(), NotRegistered> {
        if self.registered.iter().any(|other| other.id == registered.id) {
            return Err(NotRegistered::Twice { id: registered.id });
        }
        if self.registered.len() == REGISTERED_MOST {
            return Err(NotRegistered::TooMany);
        }
        self.registered.push(registered);
        Ok(())
    }
}

impl Default for Exchanged {
    fn default() -> Self {
        Self { enabled: true, least_receive_size: 4096, most_receive_size: 4096, registered: Vec::new() }
    }
}

/// A characteristic of one's own, for experiments between peers that both know it (xcharext-02 §6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    id: u32,
    value: Bytes,
    changeable: bool,
}

/// Why a characteristic cannot be registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NotRegistered {
    /// The id belongs to the documents.
    #[error("id {id:#010x} is not experimental: {EXPERIMENTAL:#010x} to 0xffffffff are")]
    NotExperimental {
        /// The id.
        id: u32,
    },
    /// The id is registered already, or one of ours ([`combined::CHARACTERISTIC`]).
    #[error("id {id:#010x} is in use already")]
    Twice {
        /// The id.
        id: u32,
    },
    /// All have to fit into one message.
    #[error("{REGISTERED_MOST} characteristics are registered, and that is the most")]
    TooMany,
    /// All have to fit into one message.
    #[error("{len} bytes of data, at most {REGISTERED_MAX} are allowed")]
    TooLong {
        /// Bytes of the value.
        len: usize,
    },
}

impl Registered {
    /// A characteristic with its value, in XDR. If it is `changeable`, what the peer asks for is taken over.
    ///
    /// # Errors
    /// [`NotRegistered`]
    pub fn new(id: u32, value: Bytes, changeable: bool) -> Result<Self, NotRegistered> {
        if id < EXPERIMENTAL {
            return Err(NotRegistered::NotExperimental { id });
        }
        if id == combined::CHARACTERISTIC {
            return Err(NotRegistered::Twice { id });
        }
        if value.len() > REGISTERED_MAX {
            return Err(NotRegistered::TooLong { len: value.len() });
        }
        Ok(Self { id, value, changeable })
    }
}

/// What became of a change that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// In effect.
    Done,
    /// Not done: the peer does not know it, cannot change it, or does not want to.
    Rejected,
    /// The peer will tell ([`Notice::Completed`]).
    Pending,
    /// Another value is in effect: that of [`Connection::peer_characteristics`](crate::Connection::peer_characteristics)
    /// (version-two-03 §5.3.3).
    Other,
}

/// News about characteristics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The peer told what it is like: when it began, or that something has changed.
    Peer(Characteristics),
    /// The peer takes no part in this.
    Unsupported,
    /// The peer has answered a request.
    Answered {
        /// Which one.
        request: u64,
        /// What was asked for, with what became of it.
        dispositions: Vec<(Characteristic, Disposition)>,
    },
    /// A change that was pending is complete: the peer's value is this one, as asked or not (xcharext-02 §4.4).
    Completed(Characteristic),
    /// A characteristic of ours has changed, and the peer is told.
    Own(Characteristic),
    /// The connection is over: what was asked on it gets no answer.
    Ended,
}

/// Why a change of ours, or a request, was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotExchanged {
    /// The connection speaks a version without characteristics, or none yet.
    #[error("no characteristics are exchanged on this connection")]
    NotSpoken,
    /// The connection ended before the answer.
    #[error("the connection ended before the peer answered")]
    Ended,
    /// The peer takes no part.
    #[error("the peer does not exchange characteristics")]
    Unsupported,
    /// version-two-07 §5.1: they are told once.
    #[error("in this profile characteristics are told once, when the connection is new")]
    ToldOnce,
    /// xcharext-02 §3.1: Receives get smaller only when the peer asks for it.
    #[error("receive size {size} B is below {now} B: only the peer can ask for less")]
    Reduction {
        /// The size wanted.
        size: u32,
        /// The size of now.
        now: u32,
    },
    /// The profile has no such characteristic, or it is not registered here.
    #[error("{0:?} does not exist in this profile, or is not registered")]
    Unknown(Characteristic),
    /// One request asks for two values of it: the answer could not say which.
    #[error("one request asks for two values of the same: {0:?} is the second")]
    Twice(Characteristic),
    /// A value that this side cannot have or ask for.
    #[error(
        "{0:?} is not possible: receive sizes are 4096 to 262144 B, registered data is at most {REGISTERED_MAX} B, and Send with Invalidate has to be taken by the provider"
    )]
    Impossible(Characteristic),
    /// No answer in time.
    #[error("no answer of the peer in time")]
    TimedOut,
    /// Nothing is asked for, or more than fits into one message.
    #[error("{count} characteristics in one request, 1 to {allowed} are possible")]
    Count {
        /// How many.
        count: usize,
        /// The limit.
        allowed: usize,
    },
    /// Too many requests wait.
    #[error("{waiting} requests wait already")]
    Busy {
        /// How many.
        waiting: usize,
    },
}

#[cfg(test)]
mod tests;
