//! Transport characteristics: properties of both ends of a connection, which they announce, request and change while connected
//! (xcharext-02). version-two-03 §5 and version-two-07 §5 call them properties; in the latter they are announced once and never change.
//!
//! [`Characteristics`] are the values of one side; a connection keeps its own values and the peer's. `exchange` handles the
//! operations. The connection itself applies the values to the queue pair: Receive sizes, inline thresholds, Send with Invalidate.
//!
//! *Errors*: data that does not match its characteristic makes the whole operation an XDR error (xcharext-02 §2.1), and none of its
//! values is applied. Unknown characteristics are ignored.

pub(crate) mod exchange;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

pub use crate::peer::ReverseSupport;
use crate::wire::two::{self, Profile, Value, combined};
use crate::wire::{
    Limits,
    two::transmission::{BufferStructure, Property},
};

/// The first experimental id; ids from here to 0xffffffff are experimental (xcharext-02 §6.2, version-two-03 §5.4.2).
/// This library uses [`combined::CHARACTERISTIC`] itself.
pub const EXPERIMENTAL: u32 = 0xffff_ff00;

/// The longest value of a [`Registered`] characteristic, bytes.
pub const REGISTERED_MAX: usize = 256;
/// The most [`Registered`] characteristics of one side: all of them fit into one message of 4096 bytes.
pub const REGISTERED_MOST: usize = 8;

/// Receives that a connection keeps for characteristics operations of the peer, beyond those of its credits. An
/// unanswered operation needs one Receive, and a response needs the other.
pub const OPERATION_RECEIVES: usize = 2;
pub(crate) const OPERATION_RECEIVES_32: u32 = 2;

/// Receive sizes that an operation can announce or request, bytes. Every peer may count on the least; RFC 8797 §4.2
/// defines the most for all versions.
pub const RECEIVE_SIZES: RangeInclusive<u32> = 4096..=262_144;

/// Values that one side announces. The default holds for a side that announces nothing (xcharext-02 §3, version-two-03
/// §5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Characteristics {
    /// XCHAR_RBSIZ: the least size of this side's Receives, bytes (xcharext-02 §3.1).
    pub receive_size: u32,
    /// SBSIZ: the longest Send of this side, bytes (version-two-07 §5.2.1); `None` in profiles without this property.
    pub send_size: Option<u32>,
    /// RSSIZ: the longest segment that this side accepts, bytes (version-two-07 §5.2.3); `None` in profiles without
    /// this property.
    pub segment_size: Option<u32>,
    /// RCSIZ: the most segments that this side accepts in the header of a Call (version-two-07 §5.2.4); `None` in
    /// profiles without this property.
    pub segment_count: Option<u32>,
    /// XCHAR_REQREMINV: as a Requester, this side accepts Send with Invalidate for replies (xcharext-02 §3.2). Absent
    /// from P2, where each Call names the handle that may be invalidated.
    pub remote_invalidation: bool,
    /// XCHAR_BRS: Calls that this side accepts in the reverse direction (xcharext-02 §3.3).
    pub reverse: ReverseSupport,
    /// Support of transmission groups (rtrext-02 §8).
    pub transmissions: Transmissions,
    /// RPC-over-RDMA messages that this side accepts in one Send ([`combined`]); 1 unless announced.
    pub combined: u32,
    /// Values of [`Registered`] characteristics, by id.
    pub registered: BTreeMap<u32, Bytes>,
}

/// Properties of transmission groups: messages in several Sends, or with DDP-eligible items placed directly by Sends
/// (rtrext-02 §8). The default, no support, holds for a side that announces nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmissions {
    /// RTRSUPP: the supported operations, as bits of [`transmission`](crate::wire::two::transmission). The draft does
    /// not say whether they apply to sending or to receiving (§8.2).
    pub support: u32,
    /// RBSTRUCT: the structure of this side's Receives; `None` for one segment without placement (§8.3).
    pub structure: Option<BufferStructure>,
    /// REQRXLIM: Sends of the longest Call that this side accepts (§8.4).
    pub request_limit: u32,
    /// RESPSXLIM: Sends of the longest reply that this side makes (§8.5).
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
    /// Returns the values that hold in this profile for a side that announces nothing.
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

impl ReverseSupport {
    /// Returns the levels of a profile, ordered by their XDR values.
    const fn levels(profile: Profile) -> &'static [Self] {
        match profile {
            Profile::P1 | Profile::P2 => &[Self::None, Self::Inline, Self::General],
            Profile::P3 => &[Self::None, Self::Inline, Self::Continued, Self::General],
        }
    }
}

/// Defines [`Characteristic`] from one table. A row has a characteristic with its type, its id in P1, P2 and P3, and
/// the field of [`Characteristics`] with its value. A side announces its values in the order of the rows.
macro_rules! characteristics {
    ($($(#[$doc:meta])* $name:ident($type:ty), $ids:expr, $($field:ident).+;)+) => {
        /// A characteristic with its value.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Characteristic {
            $($(#[$doc])* $name($type),)+
            /// A member of [`Characteristics::registered`].
            Registered {
                /// Its id.
                id: u32,
                /// Its value, in XDR.
                data: Bytes,
            },
        }

        impl Characteristic {
            /// Decodes a value by the ids of a profile; `None` if the profile does not define its id.
            ///
            /// # Errors
            /// [`two::Error::BadCharacteristic`]: the data is too short, too long, or not of the type (xcharext-02
            /// §2.1). That section does not mention data longer than its type; this library rejects it too. Every
            /// number is valid, since only data that cannot be parsed is an error (version-two-07 §5.1, §7.2.2). If a
            /// peer announces tiny sizes, messages that do not fit are refused when they are to be sent.
            pub(crate) fn decode(
                profile: Profile,
                value: &Value,
                limits: &Limits,
            ) -> Result<Option<Self>, two::Error> {
                let Value { id, data } = value;
                let initial = Characteristics::initial(profile);
                $(if of(profile, $ids) == Some(*id) {
                    return Ok(read(profile, value, &initial.$($field).+, limits)?.map(Self::$name));
                })+
                let is_experimental = *id >= EXPERIMENTAL && has_experimental(profile);
                Ok(is_experimental.then(|| Self::Registered { id: *id, data: data.clone() }))
            }

            /// Encodes the value by the ids of a profile; `None` if the profile has no such characteristic.
            pub(crate) fn encode(&self, profile: Profile) -> Option<Value> {
                let (id, data) = match self {
                    $(Self::$name(value) => (of(profile, $ids)?, value.data(profile)),)+
                    Self::Registered { id, data } => {
                        has_experimental(profile).then(|| (*id, data.clone()))?
                    }
                };
                Some(Value { id, data })
            }
        }

        impl Characteristics {
            /// Replaces the value of this kind.
            pub(crate) fn apply(&mut self, characteristic: Characteristic) {
                match characteristic {
                    $(Characteristic::$name(value) => self.$($field).+.set(value),)+
                    Characteristic::Registered { id, data } => {
                        self.registered.insert(id, data);
                    }
                }
            }

            /// Returns the present value of the kind of `kind`; `None` if it has none.
            pub(crate) fn current(&self, kind: &Characteristic) -> Option<Characteristic> {
                match kind {
                    $(Characteristic::$name(_) => self.$($field).+.get().map(Characteristic::$name),)+
                    Characteristic::Registered { id, .. } => {
                        let data = self.registered.get(id)?.clone();
                        Some(Characteristic::Registered { id: *id, data })
                    }
                }
            }

            /// Returns the values of the table that are set.
            fn known(&self) -> impl Iterator<Item = Characteristic> {
                [$(self.$($field).+.get().map(Characteristic::$name)),+].into_iter().flatten()
            }
        }
    };
}

// The characteristics of the documents (xcharext-02 §3, version-two-03 §5.2, version-two-07 §5.2), except HOSTAUTH:
// version-two-07 §5.2.6 does not define its content.
characteristics! {
    /// [`Characteristics::send_size`], bytes.
    SendSize(u32), [None, None, Some(1)], send_size;
    /// [`Characteristics::receive_size`], bytes.
    ReceiveSize(u32), [Some(1), Some(1), Some(2)], receive_size;
    /// [`Characteristics::segment_size`], bytes.
    SegmentSize(u32), [None, None, Some(3)], segment_size;
    /// [`Characteristics::segment_count`].
    SegmentCount(u32), [None, None, Some(4)], segment_count;
    /// [`Characteristics::remote_invalidation`].
    RemoteInvalidation(bool), [Some(2), None, None], remote_invalidation;
    /// [`Characteristics::reverse`].
    Reverse(ReverseSupport), [Some(3), Some(2), Some(5)], reverse;
    /// [`Transmissions::support`].
    TransmissionSupport(u32), ids(Property::Support), transmissions.support;
    /// [`Transmissions::structure`].
    BufferStructure(BufferStructure), ids(Property::BufferStructure), transmissions.structure;
    /// [`Transmissions::request_limit`].
    RequestLimit(u32), ids(Property::RequestLimit), transmissions.request_limit;
    /// [`Transmissions::response_limit`].
    ResponseLimit(u32), ids(Property::ResponseLimit), transmissions.response_limit;
    /// [`Characteristics::combined`].
    Combined(u32), [Some(combined::CHARACTERISTIC), Some(combined::CHARACTERISTIC), None], combined;
}

impl Characteristic {
    /// Whether both have the same id.
    pub(crate) fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Registered { id, .. }, Self::Registered { id: other, .. }) => id == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether this is a property of transmission groups.
    const fn is_of_groups(&self) -> bool {
        matches!(
            self,
            Self::TransmissionSupport(_)
                | Self::BufferStructure(_)
                | Self::RequestLimit(_)
                | Self::ResponseLimit(_)
        )
    }
}

/// Whether the profile has experimental ids: version-two-07, Appendix B.3, removes them.
const fn has_experimental(profile: Profile) -> bool {
    matches!(profile, Profile::P1 | Profile::P2)
}

/// Returns the id of a profile.
const fn of(profile: Profile, [p1, p2, p3]: [Option<u32>; 3]) -> Option<u32> {
    match profile {
        Profile::P1 => p1,
        Profile::P2 => p2,
        Profile::P3 => p3,
    }
}

/// Returns the ids of a property of transmission groups.
const fn ids(property: Property) -> [Option<u32>; 3] {
    [property.id(Profile::P1), property.id(Profile::P2), property.id(Profile::P3)]
}

/// Decodes the data of a value whose field has this value initially.
fn read<T: Datum>(
    profile: Profile,
    Value { id, data }: &Value,
    initial: &impl Field<T>,
    limits: &Limits,
) -> Result<Option<T>, two::Error> {
    let datum = match initial.get() {
        // version-two-03 §5.1.1: a value without data is the default.
        Some(default) if profile != Profile::P1 && data.is_empty() => Some(default),
        _ => T::parse(profile, data, limits)?,
    };
    datum.map(Some).ok_or(two::Error::BadCharacteristic { id: *id, len: data.len() })
}

/// The type of a characteristic.
trait Datum: Clone {
    /// Decodes all of the data; `None` if it is not of the type.
    fn parse(profile: Profile, data: &[u8], limits: &Limits) -> Result<Option<Self>, two::Error>;
    /// Returns the XDR.
    fn data(&self, profile: Profile) -> Bytes;
}

impl Datum for u32 {
    fn parse(_: Profile, data: &[u8], _: &Limits) -> Result<Option<Self>, two::Error> {
        Ok(data.try_into().ok().map(Self::from_be_bytes))
    }

    fn data(&self, _: Profile) -> Bytes {
        Bytes::copy_from_slice(&self.to_be_bytes())
    }
}

impl Datum for bool {
    fn parse(profile: Profile, data: &[u8], limits: &Limits) -> Result<Option<Self>, two::Error> {
        let word = u32::parse(profile, data, limits)?;
        Ok(word.filter(|word| *word <= 1).map(|word| word == 1))
    }

    fn data(&self, profile: Profile) -> Bytes {
        u32::from(*self).data(profile)
    }
}

impl Datum for ReverseSupport {
    fn parse(profile: Profile, data: &[u8], limits: &Limits) -> Result<Option<Self>, two::Error> {
        let word = u32::parse(profile, data, limits)?;
        Ok(word.and_then(|word| Self::levels(profile).get(usize::try_from(word).ok()?).copied()))
    }

    /// Returns the XDR of the profile's highest level that does not exceed this one.
    fn data(&self, profile: Profile) -> Bytes {
        let level = Self::levels(profile).iter().rposition(|level| level <= self);
        level.and_then(|level| u32::try_from(level).ok()).unwrap_or(0).data(profile)
    }
}

impl Datum for BufferStructure {
    fn parse(profile: Profile, data: &[u8], limits: &Limits) -> Result<Option<Self>, two::Error> {
        let is_default = profile != Profile::P1 && data.is_empty();
        Ok(Some(if is_default { Self::default() } else { Self::decode(data, limits)? }))
    }

    fn data(&self, _: Profile) -> Bytes {
        let mut data = BytesMut::new();
        self.encode(&mut data);
        data.freeze()
    }
}

/// A field with the value of a characteristic, which may be absent.
trait Field<T> {
    fn get(&self) -> Option<T>;
    fn set(&mut self, value: T);
}

impl<T: Datum> Field<Self> for T {
    fn get(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn set(&mut self, value: Self) {
        *self = value;
    }
}

impl<T: Datum> Field<T> for Option<T> {
    fn get(&self) -> Self {
        self.clone()
    }

    fn set(&mut self, value: T) {
        *self = Some(value);
    }
}

impl Characteristics {
    /// Returns all characteristics to announce.
    pub(crate) fn all(&self) -> impl Iterator<Item = Characteristic> + '_ {
        let registered = self
            .registered
            .iter()
            .map(|(id, data)| Characteristic::Registered { id: *id, data: data.clone() });
        // Without transmission groups, none of their properties is announced.
        let silent = self.transmissions == Transmissions::default();
        let known = self.known().filter(move |value| match value {
            Characteristic::Combined(messages) => *messages > 1,
            value => !(silent && value.is_of_groups()),
        });
        known.chain(registered)
    }
}

/// Settings of the exchange of characteristics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanged {
    /// Announce characteristics and answer the peer's operations. If `false`, every operation is refused as not
    /// supported (version-two-01 §3.1), and the defaults hold.
    pub enabled: bool,
    /// The smallest receive size that the peer may request, bytes; never below 4096, which every peer may count on
    /// (version-two-01 §2.3).
    pub least_receive_size: usize,
    /// The largest receive size that the peer may request, bytes; the default allows no increase. An increase costs
    /// memory: the credit grant times this size.
    pub most_receive_size: usize,
    registered: Vec<Registered>,
}

impl Exchanged {
    /// Adds an experimental characteristic.
    ///
    /// # Errors
    /// [`NotRegistered`]: the id is registered already, or [`REGISTERED_MOST`] are.
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

/// An experimental characteristic of the application, for peers that both know it (xcharext-02 §6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    id: u32,
    value: Bytes,
    changeable: bool,
}

/// Reasons why a characteristic cannot be registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRegistered {
    /// The id is below [`EXPERIMENTAL`].
    #[error("id {id:#010x} is not experimental: {EXPERIMENTAL:#010x} to 0xffffffff are")]
    NotExperimental {
        /// The id.
        id: u32,
    },
    /// The id is registered already, or belongs to this library ([`combined::CHARACTERISTIC`]).
    #[error("id {id:#010x} is in use already")]
    Twice {
        /// The id.
        id: u32,
    },
    /// More than [`REGISTERED_MOST`], which fit into one message.
    #[error("{REGISTERED_MOST} characteristics are registered, and that is the most")]
    TooMany,
    /// A value longer than [`REGISTERED_MAX`]: all values have to fit into one message.
    #[error("{len} bytes of data, at most {REGISTERED_MAX} are allowed")]
    TooLong {
        /// Bytes of the value.
        len: usize,
    },
}

impl Registered {
    /// Makes a characteristic with its value, in XDR. If it is `changeable`, requests of the peer replace the value.
    ///
    /// # Errors
    /// [`NotRegistered`]: the id is not experimental or not free, or the value is too long.
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

/// The peer's answer to a requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// The change is in effect.
    Done,
    /// The peer refuses, since it does not know the characteristic, cannot change it, or does not want to.
    Rejected,
    /// The peer will report the completion later ([`Notice::Completed`]).
    Pending,
    /// Another value is in effect: that of [`Connection::peer_characteristics`](crate::Connection::peer_characteristics)
    /// (version-two-03 §5.3.3).
    Other,
}

/// An event of the exchange of characteristics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The peer announced its characteristics, or a change of them.
    Peer(Characteristics),
    /// The peer does not exchange characteristics.
    Unsupported,
    /// The peer has answered a request.
    Answered {
        /// The number of the request.
        request: u64,
        /// The requested values, each with the peer's answer.
        dispositions: Vec<(Characteristic, Disposition)>,
    },
    /// A pending change is complete. The peer's value is now this one, which may differ from the requested one
    /// (xcharext-02 §4.4).
    Completed(Characteristic),
    /// A characteristic of this side has changed, and the peer is notified.
    Own(Characteristic),
    /// The connection is over; its open requests get no answer.
    Ended,
}

/// Reasons why a change of this side, or a request to the peer, is refused locally.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotExchanged {
    /// The connection speaks a version without characteristics, or has not agreed on a version.
    #[error("no characteristics are exchanged on this connection")]
    NotSpoken,
    /// The connection ended before the answer.
    #[error("the connection ended before the peer answered")]
    Ended,
    /// The peer does not exchange characteristics.
    #[error("the peer does not exchange characteristics")]
    Unsupported,
    /// version-two-07 §5.1: characteristics are announced once.
    #[error("in this profile characteristics are told once, when the connection is new")]
    ToldOnce,
    /// xcharext-02 §3.1: Receives shrink only when the peer requests it.
    #[error("receive size {size} B is below {now} B: only the peer can ask for less")]
    Reduction {
        /// The intended size, bytes.
        size: u32,
        /// The present size, bytes.
        now: u32,
    },
    /// The profile has no such characteristic, or the application has not registered it.
    #[error("{0:?} does not exist in this profile, or is not registered")]
    Unknown(Characteristic),
    /// A request names the same characteristic twice: an answer could not tell the two apart.
    #[error("one request asks for two values of the same: {0:?} is the second")]
    Twice(Characteristic),
    /// A value that this side cannot have or request.
    #[error(
        "{0:?} is not possible: receive sizes are 4096 to 262144 B, registered data is at most {REGISTERED_MAX} B, and Send with Invalidate has to be taken by the provider"
    )]
    Impossible(Characteristic),
    /// The peer did not answer in time.
    #[error("no answer of the peer in time")]
    TimedOut,
    /// The request is empty, or longer than one message.
    #[error("{count} characteristics in one request, 1 to {allowed} are possible")]
    Count {
        /// Characteristics in the request.
        count: usize,
        /// The most that are possible.
        allowed: usize,
    },
    /// Too many requests wait for the peer.
    #[error("{waiting} requests wait already")]
    Busy {
        /// Requests that wait.
        waiting: usize,
    },
}

#[cfg(test)]
mod tests;
