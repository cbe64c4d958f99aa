//! Reports of what is wrong with a group of transmissions although each of them decodes (rtrext-02 §5.4,
//! §9.5).

use thiserror::Error;

use super::Malformed;
use super::xdr::{Structure, structure, union};
use crate::wire::Direction;
use crate::wire::two::words::Words;

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

structure!(TransmissionId { xid, direction, number });

/// The fault (`optr_info`, rtrext-02 §9.5). Where a range is told and the value lies in it, its alignment is
/// wrong.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReportedError {
    /// OPTRERR_BADHMT: another header message type, where a group goes on.
    #[error("header type {seen:#x} where {expected:#x} is due")]
    HeaderType {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADOMT: another optional message type, where a group goes on.
    #[error("operation {seen:#x} where {expected:#x} is due")]
    OperationType {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADCONT: a continuation of nothing.
    #[error("continuation of nothing")]
    Continuation,
    /// OPTRERR_BADSEQ: another number in the group.
    #[error("transmission number {seen:#x} where {expected:#x} is due")]
    Sequence {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADXID: another XID, where a group goes on.
    #[error("XID {seen:#x} where {expected:#x} is due")]
    Xid {
        /// `optri_expect`.
        expected: u32,
        /// `optri_current`.
        seen: u32,
    },
    /// OPTRERR_BADOFF: an offset of an `xmdp_loc`, mostly one beyond its segment.
    #[error("offset {value}, {least} to {most} are possible")]
    Offset {
        /// `optri_value`.
        value: u32,
        /// `optri_min`.
        least: u32,
        /// `optri_max`.
        most: u32,
    },
    /// OPTRERR_BADTBSN: no such target buffer segment.
    #[error("target buffer segment {value}, {least} to {most} are possible")]
    Target {
        /// `optri_value`.
        value: u32,
        /// `optri_min`.
        least: u32,
        /// `optri_max`.
        most: u32,
    },
    /// OPTRERR_BADPL: a payload length, mostly one beyond the transmission.
    #[error("payload length {value}, {least} to {most} are possible")]
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
}

union! {
    /// Returns `optre_which`.
    pub fn code(ReportedError) -> u32, |_: &Words<'_, '_>, code| Malformed::UnknownReport { code };
    1 => HeaderType { expected, seen },
    2 => OperationType { expected, seen },
    3 => Continuation,
    4 => Sequence { expected, seen },
    5 => Xid { expected, seen },
    6 => Offset { value, least, most },
    7 => Target { value, least, most },
    8 => PayloadLength { value, least, most },
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
}

structure!(ErrorReport { bad, lead, error });
