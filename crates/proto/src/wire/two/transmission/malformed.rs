//! Faults of operations and properties of this extension that do not decode.

use super::placement::PlacementUse;
use crate::wire::Action::{self, Answer};
use crate::wire::faults;
use crate::wire::two::words::End;

faults! {
    /// An XDR error of rtrext-02, or a count beyond our [`Limits`](crate::wire::Limits). The
    /// [`ProtocolError`](crate::wire::ProtocolError) around it says the answer.
    #[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Malformed {
        /// It runs past the end of its opaque data.
        #[error("an operation or property on transmissions runs past the end of its data")]
        #[fault(Answer, "transmission_truncated")]
        Truncated,
        /// Its opaque data goes on behind it (rtrext-02 §9.1: the XDR type overlays the data).
        #[error("{extra} bytes behind an operation or property on transmissions")]
        #[fault(Answer, "transmission_trailing")]
        Trailing {
            /// Bytes left.
            extra: usize,
        },
        /// rtrext-02 §6.2, table 1: no such arm in this place, or no such type at all.
        #[error("placement type {value} as {place}")]
        #[fault(Answer, "bad_placement")]
        BadPlacement {
            /// `xmdp_type`.
            value: u32,
            /// Where it stands.
            place: PlacementUse,
        },
        /// rtrext-02 §9.5: no such arm of an `optr_info`.
        #[error("error report with unknown code {code}")]
        #[fault(Answer, "unknown_report")]
        UnknownReport {
            /// `optre_which`.
            code: u32,
        },
        /// rtrext-02 §6.1: `xmsi_dir` is a `msg_type`.
        #[error("direction {value} of a transmission, only 0 and 1 exist")]
        #[fault(Answer, "bad_transmission_direction")]
        BadDirection {
            /// The word.
            value: u32,
        },
        /// RFC 4506 §4.19: the word before optional data is neither 0 nor 1.
        #[error("discriminator {value} of an optional transmission, only 0 and 1 exist")]
        #[fault(Answer, "bad_transmission_discriminator")]
        BadDiscriminator {
            /// The word.
            value: u32,
        },
        /// More placed items (`xmdp_grpinfo`) than allowed.
        #[error("{count} placed items in a message, {allowed} are allowed")]
        #[fault(Answer, "too_many_placed_items")]
        TooManyPlacedItems {
            /// The count seen.
            count: u32,
            /// [`Limits::placed_items`](crate::wire::Limits::placed_items).
            allowed: usize,
        },
        /// More sets of directions for a response (`xmdp_rsdgroup`) than allowed.
        #[error("{count} sets of response directions, {allowed} are allowed")]
        #[fault(Answer, "too_many_response_sets")]
        TooManyResponseSets {
            /// The count seen.
            count: u32,
            /// [`Limits::response_sets`](crate::wire::Limits::response_sets).
            allowed: usize,
        },
        /// More directions in one set (`xmdrsds_items`) than allowed.
        #[error("{count} directions in a set, {allowed} are allowed")]
        #[fault(Answer, "too_many_directions")]
        TooManyDirections {
            /// The count seen.
            count: u32,
            /// [`Limits::items_per_set`](crate::wire::Limits::items_per_set).
            allowed: usize,
        },
        /// More segments for one item in explicit RDMA than allowed.
        #[error("{count} segments for a placed item, {allowed} are allowed")]
        #[fault(Answer, "too_many_placement_segments")]
        TooManySegments {
            /// The count seen.
            count: u32,
            /// [`Limits::segments_per_chunk`](crate::wire::Limits::segments_per_chunk).
            allowed: usize,
        },
        /// More target buffer segments for one item (`xmdl_bsnum`) than allowed.
        #[error("{count} target buffer segments for a placed item, {allowed} are allowed")]
        #[fault(Answer, "too_many_targets")]
        TooManyTargets {
            /// The count seen.
            count: u32,
            /// [`Limits::target_segments`](crate::wire::Limits::target_segments).
            allowed: usize,
        },
        /// More groups in a buffer structure (`xmrbuf_groups`) than allowed.
        #[error("{count} groups in a buffer structure, {allowed} are allowed")]
        #[fault(Answer, "too_many_buffer_groups")]
        TooManyBufferGroups {
            /// The count seen.
            count: u32,
            /// [`Limits::buffer_groups`](crate::wire::Limits::buffer_groups).
            allowed: usize,
        },
    }
}

impl From<End> for Malformed {
    fn from(end: End) -> Self {
        match end {
            End::Early => Self::Truncated,
            End::Late(extra) => Self::Trailing { extra },
        }
    }
}
