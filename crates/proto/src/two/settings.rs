//! Settings for transmission groups, and the announcement derived from them.

use crate::settings::config::Config;
use crate::settings::private_data::announced;
use rpcrdma_verbs::MAX_ALIGN;

use crate::two::characteristics::Transmissions;
use crate::wire::two::transmission::{
    BufferStructure, SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE,
};
use crate::wire::{narrow, sized};

/// The two features of the extension (rtissues-03 §3.5) that a sender chooses to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Messages in several Sends, up to [`Config::continued_parts`].
    pub continuation: bool,
    /// DDP-eligible items are placed by Sends.
    pub placement: bool,
}

impl Features {
    /// Both features.
    pub const ALL: Self = Self { continuation: true, placement: true };
    /// Neither feature.
    pub const NONE: Self = Self { continuation: false, placement: false };
}

/// The place that a Call requests for items of its reply (`xmdp_rsdloc`, rtrext-02 §7.4), if our Receives have segments
/// for items. Memory for RDMA Writes is offered only if chunks are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPlacement {
    /// XMPTYPE_EXRW: RDMA Writes, as without such segments.
    Explicit,
    /// XMPTYPE_TBSN: Sends. No memory is offered, so nothing has to be invalidated.
    #[default]
    Targets,
    /// XMPTYPE_CHOICE: the Responder chooses.
    Choice,
    /// XMPTYPE_BYSIZE: RDMA Writes for items of this many bytes or more, Sends for others.
    BySize(u32),
}

/// Settings of one side for transmission groups, in the profiles of Version Two that have them. This side's
/// announcement follows from them, and the peer's announcement limits their use. The two sides may differ, and so may
/// the two directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmissionSettings {
    /// Announce and use transmission groups. If `false`, the operations are refused as not supported (version-two-01
    /// §3.1).
    pub enabled: bool,
    /// Accept Calls in groups, of up to [`Limits::continued_parts`](crate::Limits::continued_parts) Sends. If `false`,
    /// they are refused as not supported, and support is not announced (RTRS_XREQ).
    pub takes_calls: bool,
    /// Features used for Calls, if the peer supports them.
    pub calls: Features,
    /// Features used for replies, if the Call allows them. Without placement the announcement lacks RTRS_XRESP; without
    /// continuation it limits replies to one Send (RESPSXLIM).
    pub replies: Features,
    /// Accept replies in several Sends.
    pub continued_replies: bool,
    /// The place requested for items of replies.
    pub asked: ReplyPlacement,
    /// The structure of our Receives for the placement of items. The structure must have their length
    /// ([`Config::receive_size`]) and be consistent ([`BufferStructure::check`]); otherwise it is ignored. `None`:
    /// peers place no items.
    pub structure: Option<BufferStructure>,
    /// The least length of DDP-eligible items placed in the peer's Receives, bytes, if these have segments for them.
    /// Shorter items go inline where they fit, which costs less.
    pub place_from: usize,
    /// The most bytes of an item that lies in several Receives. Longer items use explicit RDMA if possible: it places
    /// them without a copy, where a software provider copies what a Send carries.
    pub spread_up_to: usize,
    /// The most Sends of a reply for which the Call could offer memory instead: RDMA Writes take no more round trips,
    /// and need no copy. Values above [`Config::continued_parts`] have no effect.
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
            spread_up_to: 64 << 10,
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
        let some = |sends: usize| narrow(sends.max(1));
        // A peer that keeps to this number never exceeds our limit on the length.
        let of_length = config.limits.continued_len / config.largest_receive().max(1);
        let bit = |bit, set: bool| if set { bit } else { 0 };
        let continued = config.limits.continued_parts > 1 && (self.takes_calls || self.continued_replies);
        Transmissions {
            support: bit(SUPPORT_REQUEST, self.takes_calls)
                | bit(SUPPORT_RESPONSE, self.replies.placement)
                | bit(SUPPORT_CONTINUATION, continued),
            structure: config.structure().cloned(),
            request_limit: if self.takes_calls {
                some(config.limits.continued_parts.min(of_length))
            } else {
                1
            },
            // The reply to a Call in plain messages is never in a group.
            response_limit: if self.takes_calls && self.replies.continuation {
                some(config.continued_parts)
            } else {
                1
            },
        }
    }
}

impl Config {
    /// Returns the Receives for the parts of a divided reply after its first.
    #[must_use]
    pub fn receives_for_parts(&self) -> usize {
        let groups = self.transmissions.enabled;
        let mut rules = self.versions.codecs().filter_map(|codec| codec.rules().two);
        let continued = rules.any(|two| two.part_header.is_some() || (groups && two.operations.is_some()));
        if continued { self.continued_parts.saturating_sub(1) } else { 0 }
    }

    /// Structures the Receives for placement by the peer's Sends (rtrext-02 §8.3), and makes this side's Sends at least
    /// as long. A structure that is not consistent, or whose length cannot be announced, changes nothing.
    pub fn place_items(&mut self, structure: BufferStructure) {
        let size = sized(structure.total);
        if structure.check().is_ok() && announced(size) == size {
            self.receive_size = size;
            self.send_size = self.send_size.max(size);
            self.transmissions.structure = Some(structure);
        }
    }

    /// Returns the structure of our Receives, if their size matches it and a version has transmission groups.
    pub(crate) fn structure(&self) -> Option<&BufferStructure> {
        let TransmissionSettings { enabled, structure, .. } = &self.transmissions;
        let has_groups =
            self.versions.codecs().any(|codec| codec.rules().two.is_some_and(|two| two.operations.is_some()));
        let size = u32::try_from(announced(self.receive_size)).ok();
        let fits = |structure: &&BufferStructure| {
            structure.check().is_ok() && structure.align() <= MAX_ALIGN && Some(structure.total) == size
        };
        structure.as_ref().filter(|_| *enabled && has_groups).filter(fits)
    }

    /// Returns the alignment of each Receive, bytes.
    pub(crate) fn receive_align(&self) -> usize {
        self.structure().map_or(1, BufferStructure::align)
    }

    /// Returns the largest Receive that the peer may request, bytes; 0 if the peer cannot request any.
    pub(crate) fn largest_requested(&self) -> usize {
        if self.versions.profile().is_some() && self.characteristics.enabled {
            self.characteristics.most_receive_size
        } else {
            0
        }
    }
}
