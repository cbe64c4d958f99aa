//! Where the bulk items of a message are, and where those of its response shall be (rtrext-02 §6.2, §7.3,
//! §7.4).

use std::fmt;

use super::xdr::{Structure, structure, union};
use super::{Malformed, ReportedError};
use crate::wire::two::words::{WORD, Words};
use crate::wire::{Direction, Segment};

/// `xmdp_type` (rtrext-02 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementType {
    /// XMPTYPE_EXRW: by RDMA Reads and Writes.
    Explicit = 1,
    /// XMPTYPE_TBSN: by Sends, in target buffer segments.
    Targets = 2,
    /// XMPTYPE_CHOICE, in the enum XMPTYPE_CHOOSE: the Responder chooses one of the two.
    Choice = 3,
    /// XMPTYPE_BYSIZE: the size of the item does.
    BySize = 4,
    /// XMPTYPE_TOOSHORT: the item is inline, since it is too short.
    TooShort = 5,
    /// XMPTYPE_NOITEM: there was no item.
    NoItem = 6,
}

/// The places in which a placement type can stand: the columns of table 1 (rtrext-02 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementUse {
    /// `xmdp_loc` in a request: where an item of it is.
    RequestLocation,
    /// `xmdp_rsdloc` in a request: where an item of the response shall be.
    ResponseDirection,
    /// `xmdp_loc` in a response: where an item of it is, or why it is not placed.
    ResponseLocation,
}

impl PlacementUse {
    /// Returns the place of an `xmdp_loc` in a message of this direction.
    const fn location(direction: Direction) -> Self {
        match direction {
            Direction::Call => Self::RequestLocation,
            Direction::Reply => Self::ResponseLocation,
        }
    }
}

impl fmt::Display for PlacementUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestLocation => "a location in a request",
            Self::ResponseDirection => "a direction for a response",
            Self::ResponseLocation => "a location in a response",
        })
    }
}

/// The cells of table 1: a type in a place (rtrext-02 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It has a meaning there.
    Valid,
    /// It decodes and is reported: [`TransmitRequest::fault`](super::TransmitRequest::fault).
    SemanticallyInvalid,
    /// It does not decode: [`Malformed::BadPlacement`].
    XdrInvalid,
}

/// The cells of table 2: the fate of the memory of a direction when the response is there (rtrext-02 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// DR: the Requester deregisters what the direction named.
    Deregister,
    /// NDR: there is nothing to deregister.
    Nothing,
    /// The response cannot say this.
    Invalid,
}

impl PlacementType {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 6] =
        [Self::Explicit, Self::Targets, Self::Choice, Self::BySize, Self::TooShort, Self::NoItem];

    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> u32 {
        self as u32
    }

    /// Returns the type of a word on the wire.
    #[must_use]
    pub fn of(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|placement| placement.word() == word)
    }

    /// Table 1 (rtrext-02 §6.2).
    #[must_use]
    pub const fn validity(self, place: PlacementUse) -> Validity {
        match (self, place) {
            (Self::Explicit | Self::Targets, _)
            | (Self::Choice | Self::BySize, PlacementUse::ResponseDirection)
            | (Self::TooShort | Self::NoItem, PlacementUse::ResponseLocation) => Validity::Valid,
            (Self::TooShort | Self::NoItem, PlacementUse::RequestLocation) => Validity::SemanticallyInvalid,
            (Self::Choice | Self::BySize, PlacementUse::RequestLocation | PlacementUse::ResponseLocation)
            | (Self::TooShort | Self::NoItem, PlacementUse::ResponseDirection) => Validity::XdrInvalid,
        }
    }

    /// Table 2 (rtrext-02 §7.4): what a direction of this type has come to when the response says `result`.
    #[must_use]
    pub const fn outcome(self, result: Self) -> Outcome {
        match (self, result) {
            (
                Self::Explicit | Self::Choice | Self::BySize,
                Self::Explicit | Self::TooShort | Self::NoItem,
            ) => Outcome::Deregister,
            (Self::Targets, Self::Targets | Self::TooShort | Self::NoItem)
            | (Self::Choice | Self::BySize, Self::Targets) => Outcome::Nothing,
            _ => Outcome::Invalid,
        }
    }
}

impl From<PlacementType> for u32 {
    fn from(placement: PlacementType) -> Self {
        placement.word()
    }
}

/// Where a bulk item of this message is (`xmdp_loc`, rtrext-02 §7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// XMPTYPE_EXRW: memory of the Requester, to be read in a request, written in a response (`xmdl_ex`).
    Explicit(Vec<Segment>),
    /// XMPTYPE_TBSN: target buffer segments of the transmissions of the group.
    Targets {
        /// `xmdl_offset`: bytes into the first of them.
        offset: u32,
        /// `xmdl_bsnum`: their numbers, in the order in which the item goes through them.
        segments: Vec<u32>,
    },
    /// XMPTYPE_TOOSHORT: the item is inline. In a response only.
    TooShort,
    /// XMPTYPE_NOITEM: there is no item. In a response only.
    NoItem,
}

union! {
    /// Returns the discriminator.
    pub fn placement(Location) -> PlacementType,
    |words: &Words<'_, '_>, value| Malformed::BadPlacement { value, place: PlacementUse::location(words.direction) };
    PlacementType::Explicit => Explicit(segments),
    PlacementType::Targets => Targets { offset, segments },
    PlacementType::TooShort => TooShort,
    PlacementType::NoItem => NoItem,
}

/// A bulk item that is not in the Payload stream (`xmdp_mitem`, rtrext-02 §7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedItem {
    /// `xmdmi_disp`: bytes from the beginning of the virtual XDR stream, in which nothing is excised.
    pub displacement: u32,
    /// `xmdmi_length`, bytes.
    pub length: u32,
    /// `xmdmi_where`.
    pub location: Location,
}

impl PlacedItem {
    /// Bytes of an item that lies in so many target buffer segments.
    pub(crate) const fn len_in_targets(segments: usize) -> usize {
        5 * WORD + segments * WORD
    }

    /// Returns the report for a type that a request cannot have. Table 1 calls the type semantically invalid,
    /// and no error code is for that. So the report has a bad offset: the type as its value, and the types of
    /// a request as its range.
    pub(super) fn fault_in_request(&self) -> Option<ReportedError> {
        let placement = self.location.placement();
        (placement.validity(PlacementUse::RequestLocation) != Validity::Valid).then(|| {
            ReportedError::Offset {
                value: placement.word(),
                least: PlacementType::Explicit.word(),
                most: PlacementType::Targets.word(),
            }
        })
    }
}

/// Where a bulk item of the response shall be (`xmdp_rsdloc`, rtrext-02 §7.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseLocation {
    /// XMPTYPE_EXRW: in this memory (`xmdrsdl_ex`).
    Explicit(Vec<Segment>),
    /// XMPTYPE_CHOICE: in this memory, or in target buffer segments; the Responder chooses.
    Choice(Vec<Segment>),
    /// XMPTYPE_BYSIZE: the same, and the size of the item decides. Which way is not said; read here: items of
    /// this many bytes and more go by explicit RDMA.
    BySize {
        /// `xmdrsdl_dsdov`, bytes.
        threshold: u32,
        /// `xmdrsdl_bsex`.
        segments: Vec<Segment>,
    },
    /// XMPTYPE_TBSN: in target buffer segments that the Responder chooses.
    Targets,
}

impl ResponseLocation {
    /// The memory that it offers.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        match self {
            Self::Explicit(segments) | Self::Choice(segments) | Self::BySize { segments, .. } => segments,
            Self::Targets => &[],
        }
    }
}

union! {
    /// Returns the discriminator.
    pub fn placement(ResponseLocation) -> PlacementType,
    |_: &Words<'_, '_>, value| Malformed::BadPlacement { value, place: PlacementUse::ResponseDirection };
    PlacementType::Explicit => Explicit(segments),
    PlacementType::Choice => Choice(segments),
    PlacementType::BySize => BySize { threshold, segments },
    PlacementType::Targets => Targets,
}

/// A direction for one bulk item of the response (`xmdp_rsditem`, rtrext-02 §7.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseDirection {
    /// `xmdrsdi_minlen`, bytes: a shorter item stays inline and uses the direction up.
    pub least_len: u32,
    /// `xmdrsdi_loc`.
    pub location: ResponseLocation,
}

/// Directions for what a part of the request leads to (`xmdp_rsdset`, rtrext-02 §7.4): its items use them in
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseSet {
    /// `xmdrsdr_begin`: where that part begins in the virtual XDR stream of the request, bytes.
    pub begin: u32,
    /// `xmdrsdr_end`: where it ends. Whether that is its last byte is not said; read here: the byte behind
    /// it.
    pub end: u32,
    /// `xmdrsds_items`.
    pub directions: Vec<ResponseDirection>,
}

impl ResponseSet {
    /// Returns the report for ranges that are not disjoint and strictly increasing (rtrext-02 §7.4). No error
    /// code is for that, so the report has an offset before the first possible one.
    pub(super) fn fault_in_order(sets: &[Self]) -> Option<ReportedError> {
        let mut reached = 0;
        for Self { begin, end, .. } in sets {
            for (value, least) in [(*begin, reached), (*end, *begin)] {
                if value < least {
                    return Some(ReportedError::Offset { value, least, most: u32::MAX });
                }
            }
            // An empty range still has its place to itself.
            reached = (*end).max(begin.saturating_add(1));
        }
        None
    }
}

structure!(PlacedItem { displacement, length, location });
structure!(ResponseSet { begin, end, directions });
structure!(ResponseDirection { least_len, location });
