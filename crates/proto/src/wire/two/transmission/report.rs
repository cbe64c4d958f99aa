//! Reports of what is wrong with a group of transmissions although each of them decodes (rtrext-02 §5.4, §9.5).

use std::fmt;

use bytes::{BufMut, BytesMut};

use super::Malformed;
use super::words::{WORD, Words};
use crate::wire::Direction;

/// Bytes of an `xms_id`.
const ID_LEN: usize = 3 * WORD;

/// Which transmission is meant (`xms_id`, rtrext-02 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmissionId {
    /// `xmsi_xid`.
    pub xid: u32,
    /// `xmsi_dir`.
    pub direction: Direction,
    /// `xmsi_seq`: its number in its group. Whether numbers begin with 0 or 1 is not said.
    pub number: u32,
}

impl TransmissionId {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        let xid = words.word()?;
        let value = words.word()?;
        let direction = Direction::of(value).ok_or(Malformed::BadDirection { value })?;
        Ok(Self { xid, direction, number: words.word()? })
    }

    fn put(&self, out: &mut BytesMut) {
        for word in [self.xid, self.direction.word(), self.number] {
            out.put_u32(word);
        }
    }
}

/// The fault (`optr_info`, rtrext-02 §9.5). Where a range is told and the value lies in it, its alignment is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedError {
    /// OPTRERR_BADHMT: another header message type, where a group goes on.
    HeaderType {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADOMT: another optional message type, where a group goes on.
    OperationType {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADCONT: a continuation of nothing.
    Continuation,
    /// OPTRERR_BADSEQ: another number in the group.
    Sequence {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADXID: another XID, where a group goes on.
    Xid {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADOFF: an offset of an `xmdp_loc`, mostly one beyond its segment.
    Offset {
        /// `optri_value`.
        value: u32,
        /// `optri_min`.
        least: u32,
        /// `optri_max`.
        most: u32,
    },
    /// OPTRERR_BADTBSN: no such target buffer segment.
    Target {
        /// `optri_value`.
        value: u32,
        /// `optri_min`.
        least: u32,
        /// `optri_max`.
        most: u32,
    },
    /// OPTRERR_BADPL: a payload length, mostly one beyond the transmission.
    PayloadLength {
        /// `optri_value`.
        value: u32,
        /// `optri_min`.
        least: u32,
        /// `optri_max`.
        most: u32,
    },
}

impl ReportedError {
    /// `optre_which`.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::HeaderType { .. } => 1,
            Self::OperationType { .. } => 2,
            Self::Continuation => 3,
            Self::Sequence { .. } => 4,
            Self::Xid { .. } => 5,
            Self::Offset { .. } => 6,
            Self::Target { .. } => 7,
            Self::PayloadLength { .. } => 8,
        }
    }

    /// A stable name of the code, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HeaderType { .. } => "group_header_type",
            Self::OperationType { .. } => "group_operation_type",
            Self::Continuation => "group_continuation",
            Self::Sequence { .. } => "group_sequence",
            Self::Xid { .. } => "group_xid",
            Self::Offset { .. } => "group_offset",
            Self::Target { .. } => "group_target",
            Self::PayloadLength { .. } => "group_payload_length",
        }
    }

    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        let code = words.word()?;
        let mut word = || words.word();
        Ok(match code {
            1 => Self::HeaderType { expected: word()?, seen: word()? },
            2 => Self::OperationType { expected: word()?, seen: word()? },
            3 => Self::Continuation,
            4 => Self::Sequence { expected: word()?, seen: word()? },
            5 => Self::Xid { expected: word()?, seen: word()? },
            6 => Self::Offset { value: word()?, least: word()?, most: word()? },
            7 => Self::Target { value: word()?, least: word()?, most: word()? },
            8 => Self::PayloadLength { value: word()?, least: word()?, most: word()? },
            code => return Err(Malformed::UnknownReport { code }),
        })
    }

    const fn encoded_len(&self) -> usize {
        WORD + match self {
            Self::Continuation => 0,
            Self::HeaderType { .. }
            | Self::OperationType { .. }
            | Self::Sequence { .. }
            | Self::Xid { .. } => 2 * WORD,
            Self::Offset { .. } | Self::Target { .. } | Self::PayloadLength { .. } => 3 * WORD,
        }
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32(self.code());
        match *self {
            Self::Continuation => {}
            Self::HeaderType { expected, seen }
            | Self::OperationType { expected, seen }
            | Self::Sequence { expected, seen }
            | Self::Xid { expected, seen } => [expected, seen].into_iter().for_each(|word| out.put_u32(word)),
            Self::Offset { value, least, most }
            | Self::Target { value, least, most }
            | Self::PayloadLength { value, least, most } => {
                [value, least, most].into_iter().for_each(|word| out.put_u32(word));
            }
        }
    }
}

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::HeaderType { .. } => "header type",
            Self::OperationType { .. } => "operation",
            Self::Continuation => return f.write_str("continuation of nothing"),
            Self::Sequence { .. } => "transmission number",
            Self::Xid { .. } => "XID",
            Self::Offset { .. } => "offset",
            Self::Target { .. } => "target buffer segment",
            Self::PayloadLength { .. } => "payload length",
        };
        match self {
            Self::Offset { value, least, most }
            | Self::Target { value, least, most }
            | Self::PayloadLength { value, least, most } => {
                write!(f, "{what} {value}, {least} to {most} are possible")
            }
            Self::HeaderType { expected, seen }
            | Self::OperationType { expected, seen }
            | Self::Sequence { expected, seen }
            | Self::Xid { expected, seen } => write!(f, "{what} {seen:#x} where {expected:#x} is due"),
            Self::Continuation => Ok(()),
        }
    }
}

/// ROPT_REPTERR (`optrept_err`, rtrext-02 §9.5; ROPT_XMTERR in rtrext-00). No Payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// `optre_bad`: the transmission in which it was seen.
    pub bad: TransmissionId,
    /// `optre_lead`: an earlier one that might have led to it.
    pub lead: Option<TransmissionId>,
    /// `optre_info`.
    pub error: ReportedError,
}

impl ErrorReport {
    /// The transmission whose message is lost: where a group was interrupted, the first one of that.
    #[must_use]
    pub fn group(&self) -> TransmissionId {
        self.lead.unwrap_or(self.bad)
    }

    pub(super) fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        let bad = TransmissionId::decode(words)?;
        let lead = match words.word()? {
            0 => None,
            1 => Some(TransmissionId::decode(words)?),
            value => return Err(Malformed::BadDiscriminator { value }),
        };
        Ok(Self { bad, lead, error: ReportedError::decode(words)? })
    }

    pub(super) const fn encoded_len(&self) -> usize {
        ID_LEN + WORD + if self.lead.is_some() { ID_LEN } else { 0 } + self.error.encoded_len()
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        self.bad.put(out);
        out.put_u32(u32::from(self.lead.is_some()));
        self.lead.iter().for_each(|lead| lead.put(out));
        self.error.put(out);
    }
}
