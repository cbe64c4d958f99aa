//! Settings for transmission groups, and the announcement that follows from them.

use crate::characteristics::Transmissions;
use crate::config::Config;
use crate::wire::two::transmission::{
    BufferStructure, SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE,
};

/// The two features of the extension (rtissues-03 §3.5), as far as one that sends decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Messages go on in several Sends, up to [`Config::continued_parts`].
    pub continuation: bool,
    /// DDP-eligible items are placed by Sends.
    pub placement: bool,
}

impl Features {
    /// Both.
    pub const ALL: Self = Self { continuation: true, placement: true };
    /// Neither.
    pub const NONE: Self = Self { continuation: false, placement: false };
}

/// The place that a Call asks for items of its reply (`xmdp_rsdloc`, rtrext-02 §7.4), if our Receives take items. Memory
/// for RDMA Writes is offered only if chunks are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPlacement {
    /// XMPTYPE_EXRW: RDMA Writes, as if they could not.
    Explicit,
    /// XMPTYPE_TBSN: Sends. No memory is needed, so there is nothing to invalidate.
    #[default]
    Targets,
    /// XMPTYPE_CHOICE: either, as the Responder likes.
    Choice,
    /// XMPTYPE_BYSIZE: RDMA Writes for items of this many bytes or more, Sends for others.
    BySize(u32),
}

/// Settings of one side for transmission groups, in the profiles of Version Two that have them. Its announcement agrees with
/// them, and it keeps to the announcement of the peer. The two sides need not be alike, nor the two directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmissionSettings {
    /// Take part: say what is supported, and use it. Without it the operations are refused as not supported
    /// (version-two-01 §3.1).
    pub enabled: bool,
    /// Take Calls in groups: in how many Sends, [`Limits::continued_parts`](crate::Limits::continued_parts) says. Without
    /// it they are refused as not supported, and it is not said that they were (RTRS_XREQ).
    pub takes_calls: bool,
    /// The features used for Calls, as far as the peer takes them.
    pub calls: Features,
    /// The features used for replies, if their Calls allow it. Without placement that is not said to be possible
    /// (RTRS_XRESP), and without continuation that they have more than one Send (RESPSXLIM).
    pub replies: Features,
    /// Take replies in several Sends.
    pub continued_replies: bool,
    /// Where items of replies shall be.
    pub asked: ReplyPlacement,
    /// How our Receives are structured, so that peers can place items in them. It has to be as long as they are
    /// ([`Config::receive_size`]), and to be consistent ([`BufferStructure::check`]), else it is as if there was none.
    /// `None`: nothing is placed.
    pub structure: Option<BufferStructure>,
    /// DDP-eligible items of at least this many bytes are placed in the peer's Receives, if these have room for them.
    /// Shorter ones go inline, as far as that is long enough, which costs less.
    pub place_from: usize,
    /// Items that lie in several Receives are joined, by a copy. Those of more than this many bytes take explicit RDMA
    /// instead, if they may.
    pub join_up_to: usize,
    /// Sends that a reply may come in at the most, if the Call could offer memory for it instead: RDMA Writes take no
    /// more round trips, and need no copy. Beyond [`Config::continued_parts`] it has no effect.
    pub reply_sends: usize,
}

impl Default for TransmissionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            takes_calls: true,
            calls: Features::ALL,
            replies: Features::ALL,
            continued_replies: true,
            asked: ReplyPlacement::default(),
            structure: None,
            place_from: 4096,
            join_up_to: 64 << 10,
            reply_sends: 3,
        }
    }
}

impl TransmissionSettings {
    /// Returns the announcement to the peer.
    pub(crate) fn told(&self, config: &Config) -> Transmissions {
        if !self.enabled {
            return Transmissions::default();
        }
        let narrow = |sends: usize| u32::try_from(sends.max(1)).unwrap_or(u32::MAX);
        // A peer that keeps to it never goes beyond the length that is taken.
        let of_length = config.limits.continued_len / config.largest_receive().max(1);
        let bit = |bit, set: bool| if set { bit } else { 0 };
        let continued = config.limits.continued_parts > 1 && (self.takes_calls || self.continued_replies);
        Transmissions {
            support: bit(SUPPORT_REQUEST, self.takes_calls)
                | bit(SUPPORT_RESPONSE, self.replies.placement)
                | bit(SUPPORT_CONTINUATION, continued),
            structure: config.structure().cloned(),
            request_limit: if self.takes_calls {
                narrow(config.limits.continued_parts.min(of_length))
            } else {
                1
            },
            // A Call in plain messages has no reply in a group.
            response_limit: if self.takes_calls && self.replies.continuation {
                narrow(config.continued_parts)
            } else {
                1
            },
        }
    }
}
