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
#[non_exhaustive]
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
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::two::transmission::BufferGroup;
    use crate::{Exchanged, Limits, Profile, Versions};

    fn config(transmissions: TransmissionSettings) -> Config {
        Config { versions: Versions::two(Profile::P1), transmissions, ..Config::default() }
    }

    fn told(config: &Config) -> Transmissions {
        config.transmissions.told(config)
    }

    /// Rtrext-02 §8.2, §8.4, §8.5: a side announces what it does and takes, and no more.
    #[test]
    fn rtrext_s8_a_side_announces_what_it_does() {
        let defaults = TransmissionSettings::default();
        let limits = Limits { continued_parts: 5, continued_len: 1 << 20, ..Limits::default() };
        let of =
            |transmissions| Config { limits: limits.clone(), continued_parts: 7, ..config(transmissions) };
        let all = told(&of(defaults.clone()));
        assert_eq!(all.support, SUPPORT_REQUEST | SUPPORT_RESPONSE | SUPPORT_CONTINUATION);
        assert_eq!((all.request_limit, all.response_limit, &all.structure), (5, 7, &None));
        let none = TransmissionSettings { enabled: false, ..defaults.clone() };
        assert_eq!(told(&of(none)), Transmissions::default());
        // Without Calls in groups, no reply is in a group either, but ours to the peer's may be.
        let no_calls = told(&of(TransmissionSettings { takes_calls: false, ..defaults.clone() }));
        assert_eq!(no_calls.support, SUPPORT_RESPONSE | SUPPORT_CONTINUATION);
        assert_eq!((no_calls.request_limit, no_calls.response_limit), (1, 1));
        let neither =
            TransmissionSettings { takes_calls: false, continued_replies: false, ..defaults.clone() };
        assert_eq!(told(&of(neither)).support, SUPPORT_RESPONSE);
        let whole = TransmissionSettings { continued_replies: false, ..defaults.clone() };
        assert_eq!(told(&of(whole)).support, all.support, "Calls may be continued");
        let plain = TransmissionSettings { replies: Features::NONE, ..defaults.clone() };
        let plain = told(&of(plain));
        assert_eq!((plain.support, plain.response_limit), (SUPPORT_REQUEST | SUPPORT_CONTINUATION, 1));
        let mut one = of(defaults);
        one.limits.continued_parts = 1;
        assert_eq!((told(&one).support, told(&one).request_limit), (SUPPORT_REQUEST | SUPPORT_RESPONSE, 1));
    }

    /// Rule I6: a peer that keeps to the announced number of Sends keeps to the limit on the length.
    #[test]
    fn i6_the_announced_sends_are_within_the_limit_on_the_length() {
        let mut config = config(TransmissionSettings::default());
        config.limits.continued_parts = 100;
        config.limits.continued_len = 3 * config.largest_receive() + 1;
        assert_eq!(told(&config).request_limit, 3);
        config.limits.continued_len = 1;
        assert_eq!(told(&config).request_limit, 1, "one Send is always taken");
    }

    /// Rtrext-02 §7.2, §8.3: a structure of our Receives that no Receive has is neither set nor announced.
    #[test]
    fn rtrext_s8_3_only_a_structure_of_our_receives_is_announced() {
        let good = BufferStructure::with_items(1, 3072);
        let mut placing = config(TransmissionSettings::default());
        placing.send_size = 1024;
        placing.place_items(good.clone());
        assert_eq!((placing.receive_size, placing.send_size), (4096, 4096));
        assert_eq!((placing.structure(), told(&placing).structure.as_ref()), (Some(&good), Some(&good)));
        assert_eq!(placing.receive_align(), good.align());
        let larger = Config { send_size: 16_384, ..placing.clone() };
        let mut kept = larger.clone();
        kept.place_items(good.clone());
        assert_eq!(kept.send_size, 16_384);
        let mut wrong = good.clone();
        wrong.groups[0].length -= 1;
        // Segments that are not the buffer, no segments, and a size that private data cannot announce.
        for bad in [wrong.clone(), BufferStructure::default(), BufferStructure::with_items(1, 3073)] {
            let mut config = config(TransmissionSettings::default());
            let before = config.clone();
            config.place_items(bad);
            assert_eq!(
                (config.receive_size, &config.transmissions),
                (before.receive_size, &before.transmissions)
            );
        }
        let with = |structure: &BufferStructure, change: fn(&mut Config)| {
            let mut config = placing.clone();
            config.transmissions.structure = Some(structure.clone());
            change(&mut config);
            config.structure().is_some()
        };
        assert!(with(&good, |_| {}));
        assert!(!with(&wrong, |_| {}), "segments that are not the buffer");
        assert!(!with(&good, |config| config.receive_size = 8192), "another size");
        assert!(!with(&good, |config| config.transmissions.enabled = false));
        assert!(!with(&good, |config| config.versions = Versions::ONE));
        assert!(!with(&good, |config| config.versions = Versions::two(Profile::P3)), "it has no groups");
        let wide = BufferGroup { count: 1, length: 4096, align: 8192, flags: 1 };
        assert!(!with(&BufferStructure { total: 4096, groups: vec![wide] }, |_| {}), "more than a page");
        let plain = config(TransmissionSettings::default());
        assert_eq!((plain.structure(), plain.receive_align()), (None, 1));
    }

    /// Rule I3: Receives for later parts of a reply are kept in versions that have such replies.
    #[test]
    fn i3_receives_for_parts_are_of_versions_that_have_parts() {
        let parts = |versions, enabled| {
            let transmissions = TransmissionSettings { enabled, ..TransmissionSettings::default() };
            Config { versions, continued_parts: 4, ..config(transmissions) }.receives_for_parts()
        };
        assert_eq!(parts(Versions::two(Profile::P1), true), 3);
        assert_eq!(parts(Versions::two(Profile::P1), false), 0, "groups alone have parts there");
        assert_eq!(parts(Versions::two(Profile::P3), false), 3, "its own continued messages");
        assert_eq!(parts(Versions::ONE, true), 0);
    }

    /// Xcharext-02 §3.1: Receives have the size that a peer may request, where it can request one.
    #[test]
    fn xcharext_s3_1_only_an_exchange_can_request_larger_receives() {
        let requested = |versions, enabled| {
            let mut characteristics = Exchanged::default();
            (characteristics.enabled, characteristics.most_receive_size) = (enabled, 65_536);
            Config { versions, characteristics, ..Config::default() }.largest_requested()
        };
        assert_eq!(requested(Versions::two(Profile::P1), true), 65_536);
        assert_eq!(requested(Versions::two(Profile::P1), false), 0);
        assert_eq!(requested(Versions::ONE, true), 0);
    }
}
