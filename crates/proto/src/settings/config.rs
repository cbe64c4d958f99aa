//! Settings of a connection: sizes, credits, limits, timers.

use std::fmt;
use std::sync::Arc;

use crate::retired::Compatibility;
use crate::settings::binding::Bindings;
use crate::settings::private_data::{PrivateData, announced};
use crate::settings::timers::Timeouts;
use crate::settings::versions::Versions;
use crate::two::characteristics::{Exchanged, OPERATION_RECEIVES};
use crate::two::settings::TransmissionSettings;
use rpcrdma_verbs::OwnPrivateData;

use crate::wire::Limits;
use crate::wire::sized;

/// The Receive for a GRANT that leaves without a credit (version-two-07 §4.2.1.1).
pub(crate) const SPARE_RECEIVES: u32 = 1;

/// The role of an end at connection set-up, fixed for the life of the connection (RFC 8167 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This end opened the connection: its Calls go in the forward direction.
    Client,
    /// This end accepted the connection: its Calls go in the reverse direction.
    Server,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// Roles that must accept chunks: the three choices of rtissues-03 §3.5 for a protocol with other means of bulk
/// transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkSupport {
    /// Every Responder accepts chunks, in both directions. Requesters rely on that, even if a client announces less.
    Required,
    /// Every server accepts chunks. A client accepts them if [`Config::reverse_chunks`] is set, and announces that if
    /// the version allows it. These are the rules of RFC 8166 and RFC 8167.
    #[default]
    Forward,
    /// No role has to accept chunks. No message announces support in the forward direction, so both applications must
    /// agree. In the reverse direction [`Self::Forward`] applies.
    Optional {
        /// A client uses chunks for its Calls; a server accepts them in Calls.
        forward: bool,
    },
}

/// Settings of a connection, shared by all connections of a client or server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The largest message sent inline, bytes; 1024 to 262144 in steps of 1024 (RFC 8797 §4.2).
    pub send_size: usize,
    /// The largest message received inline, bytes; 1024 to 262144 in steps of 1024. Each posted Receive can hold this
    /// much.
    pub receive_size: usize,
    /// Announce support of Send with Invalidate, and use it (RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// Announce the three settings above in private data at connection set-up (RFC 8797). Otherwise the peer assumes
    /// 1024 bytes and no Send with Invalidate, unless there is an [`Agreement`](crate::Agreement).
    pub announce: bool,
    /// Credits requested in each Call: forward Calls at a client, reverse ones at a server. Each direction has its own
    /// credits (RFC 8167 §4.1).
    pub calls: u32,
    /// The largest credit grant to the peer: for reverse Calls at a client, for forward ones at a server.
    pub grant: u32,
    /// Calls accepted before the first grant to the peer. RFC 8166 §3.3.3 allows one; some peers send more.
    pub early_calls: u32,
    /// Bounds on the peer's headers.
    pub limits: Limits,
    /// Failures to connect in a row after which waiting calls fail; `None`: they wait as long as their own time allows.
    pub connect_attempts: Option<u32>,
    /// Reconnect even if no call waits, and never close an idle connection: the server may have reverse Calls to make
    /// (RFC 8167 §5.4).
    pub keep_connected: bool,
    /// All timers.
    pub timeouts: Timeouts,
    /// DDP-eligible arguments of at least this many bytes leave by Read chunk, even if the Call would fit inline.
    /// `None`: a Call that fits inline goes inline.
    pub reduce_from: Option<usize>,
    /// The longest segment of a chunk, bytes; longer chunks get several segments. At least 1024.
    pub max_segment_len: usize,
    /// The most segments in one chunk of ours. Every server has to accept 16 (RFC 8267 §6.4.2).
    pub max_segments: usize,
    /// The most Read chunks at non-zero Positions in one Call; further items travel with the Payload stream.
    pub max_read_chunks: usize,
    /// The most Sends for one message of ours, in versions with message continuation (version-two-07 §6.6.2, rtrext-02
    /// §4). With 1 no message is divided, and small Sends may then overtake RDMA Writes.
    pub continued_parts: usize,
    /// The most RPC-over-RDMA messages that we combine in one Send ([`combined`](crate::wire::two::combined)). The peer's limit
    /// and [`Limits::combined_messages`] apply too. With 1 each message has its own Send.
    pub combined_messages: usize,
    /// Whether this side uses and accepts chunks in the reverse direction (RFC 8167 §5.3).
    pub reverse_chunks: bool,
    /// Roles that must accept chunks. Without chunks a message travels inline, in several Sends, or with items placed
    /// by Sends; otherwise it is refused.
    pub chunks: ChunkSupport,
    /// The versions of this side. A client begins with the highest.
    pub versions: Versions,
    /// The program whose NULL procedure a client calls to offer Version Two, and the version of that program. The
    /// server need not have it, since any reply will do. `None`: the program of the first call. A connection without a
    /// call then has none ([`NoProgram`](crate::NoProgram)).
    pub program: Option<(u32, u32)>,
    /// The exchange of transport characteristics, in versions that have them.
    pub characteristics: Exchanged,
    /// Transmission groups, in versions that have them (rtrext-02).
    pub transmissions: TransmissionSettings,
    /// Retired forms that this side speaks; none by default, since only certain peers need them.
    pub compatibility: Compatibility,
    /// DDP-eligible items of received Calls, by the Upper-Layer Bindings; `None` leaves the check to the argument
    /// decoder.
    pub bindings: Option<Arc<dyn Bindings>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_size: 4096,
            receive_size: 4096,
            remote_invalidation: true,
            announce: true,
            calls: 128,
            grant: 64,
            early_calls: 16,
            limits: Limits::default(),
            connect_attempts: None,
            keep_connected: false,
            timeouts: Timeouts::default(),
            reduce_from: None,
            max_segment_len: 1 << 30,
            max_segments: 16,
            max_read_chunks: 1,
            continued_parts: 8,
            combined_messages: 1,
            reverse_chunks: false,
            chunks: ChunkSupport::Forward,
            versions: Versions::default(),
            program: None,
            characteristics: Exchanged::default(),
            transmissions: TransmissionSettings::default(),
            compatibility: Compatibility::default(),
            bindings: None,
        }
    }
}

impl Config {
    /// Returns the private data of these settings, even if [`Self::announce`] is not set.
    #[must_use]
    pub fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.remote_invalidation,
            send_size: self.send_size,
            receive_size: self.receive_size,
        }
    }

    /// Returns the most Receives that a connection posts at a time, which its receive queue must hold. Each call of
    /// either direction needs one, and so do [`OPERATION_RECEIVES`] and a GRANT. Under the Read-Read model each reply
    /// that is exposed, or about to be, needs one for its RDMA_DONE.
    #[must_use]
    pub fn max_recv_wr(&self) -> usize {
        // Each direction gets half of the queue.
        let calls = self.calls.max(self.grant).max(if self.has_read_read() { 2 } else { 1 });
        let calls = sized(calls);
        calls.saturating_mul(2).saturating_add(self.receives_beyond_calls())
    }

    /// Returns the Receives of [`Self::max_recv_wr`] that serve neither a Call nor the first part of a reply. They are
    /// for RDMA_DONEs, operations on characteristics, a GRANT, and later parts of a reply.
    #[must_use]
    pub fn receives_beyond_calls(&self) -> usize {
        self.receives_for_dones()
            .saturating_add(OPERATION_RECEIVES)
            .saturating_add(self.receives_for_messages())
    }

    /// Returns the Receives for later parts of replies, and the spare ones of versions that count credits per message
    /// (version-two-07 §4.2.1.1).
    pub(crate) fn receives_for_messages(&self) -> usize {
        let counted =
            self.versions.codecs().any(|codec| codec.rules().two.is_some_and(|two| two.counts_messages));
        let spare = if counted { SPARE_RECEIVES } else { 0 };
        self.receives_for_parts().saturating_add(sized(spare))
    }

    /// Returns whether a client accepts chunks in the reverse direction, or a server may use them there.
    #[must_use]
    pub fn takes_reverse_chunks(&self) -> bool {
        self.reverse_chunks || self.chunks == ChunkSupport::Required
    }

    /// Returns the largest size of a Receive, bytes: the announced size, the least of the versions, or the largest that
    /// the peer may request.
    #[must_use]
    pub fn largest_receive(&self) -> usize {
        announced(self.receive_size).max(self.versions.least_receive()).max(self.largest_requested())
    }

    /// Returns the count of Receives, and the bytes of each, that a server posts when it accepts a connection. They
    /// serve the Calls before its first grant (rule I3); see [`Connection::provide`](crate::Connection::provide).
    #[must_use]
    pub fn first_receives(&self) -> (u32, usize) {
        let initial = self.versions.highest().rules().initial_credits;
        let count = self.early_calls.max(initial).min(self.grant).max(1);
        (count, announced(self.receive_size.max(self.versions.least_receive())))
    }

    /// Returns the private data to send at connection set-up; empty if [`Self::announce`] is not set. A queue pair that
    /// cannot do Send with Invalidate does not announce it (RFC 8797 §4.1).
    #[must_use]
    pub fn announcement(&self) -> OwnPrivateData {
        if !self.announce {
            return OwnPrivateData::default();
        }
        let able = self.private_data();
        let unable = PrivateData { remote_invalidation: false, ..able };
        OwnPrivateData::by_invalidation(able.encode(), unable.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // requirement: rfc8797-4.1-2
    #[test]
    fn rfc8797_4_1_only_a_queue_pair_that_can_be_invalidated_announces_it() {
        let config = Config { send_size: 8192, receive_size: 2048, ..Config::default() };
        for able in [true, false] {
            let mut capabilities = rpcrdma_verbs::Capabilities::default();
            capabilities.remote_invalidation = able;
            let said = PrivateData::find(config.announcement().stated_by(&capabilities));
            let due = PrivateData { remote_invalidation: able, send_size: 8192, receive_size: 2048 };
            assert_eq!(said, Some(due));
        }
        let silent = Config { announce: false, ..Config::default() };
        assert_eq!(silent.announcement(), OwnPrivateData::default());
    }

    /// Rule I3: the receive queue holds a Receive for each call of either direction, whichever direction has more.
    #[test]
    fn i3_the_receive_queue_holds_the_calls_of_both_directions() {
        let config = |calls, grant| Config { calls, grant, ..Config::default() };
        let beyond = config(1, 1).receives_beyond_calls();
        for (calls, grant, most) in [(5, 3, 5), (3, 7, 7), (1, 1, 1), (0, 0, 1)] {
            let config = config(calls, grant);
            assert_eq!(config.max_recv_wr(), 2 * most + beyond, "{calls} calls, a grant of {grant}");
        }
    }

    /// Rule I3: the first Receives of a server serve the Calls before its first grant, and no more than it grants.
    #[test]
    fn i3_the_first_receives_serve_early_calls_within_the_grant() {
        let first =
            |early_calls, grant| Config { early_calls, grant, ..Config::default() }.first_receives().0;
        assert_eq!(first(8, 32), 8);
        assert_eq!(first(8, 4), 4, "no more than are granted");
        assert_eq!(first(0, 32), 1, "a peer may send one Call (RFC 8166 §3.3.3)");
        assert_eq!(first(0, 0), 1);
    }

    /// Rule I3: a Receive holds the largest message of which the peer may know.
    #[test]
    fn i3_receives_have_the_largest_size_that_may_be_announced() {
        let sized = |receive_size| Config { receive_size, ..Config::default() };
        let least = sized(1).versions.least_receive();
        assert_eq!(sized(1).largest_receive(), announced(1).max(least));
        assert_eq!(sized(16_384).largest_receive(), 16_384);
        assert_eq!(sized(16_384).first_receives().1, 16_384);
        assert_eq!(sized(1).first_receives().1, announced(least.max(1)));
    }

    /// Version-two-07 §4.2.1.1: only a version that counts messages has spare Receives.
    #[cfg(feature = "two")]
    #[test]
    fn v2_07_s4_2_1_1_spare_receives_are_of_the_version_that_counts_messages() {
        use crate::Profile;
        let messages = |versions| Config { versions, ..Config::default() }.receives_for_messages();
        let one = messages(Versions::ONE);
        assert_eq!(messages(Versions::two(Profile::P1)), messages(Versions::two(Profile::P2)));
        let spare = messages(Versions::two(Profile::P3)) - one;
        assert!(spare >= sized(SPARE_RECEIVES), "{spare}");
    }

    /// Version-two-01 §2.3, xcharext-02 §3.1: Version Two has a least size, and the peer may request a larger one.
    #[cfg(feature = "two")]
    #[test]
    fn i3_receives_have_the_least_size_of_the_version_and_the_largest_that_is_requested() {
        use crate::{Exchanged, Profile};
        for (enabled, largest) in [(false, 4096), (true, 65_536)] {
            let mut characteristics = Exchanged::default();
            (characteristics.enabled, characteristics.most_receive_size) = (enabled, 65_536);
            let versions = Versions::two(Profile::P1);
            let config = Config { receive_size: 1024, versions, characteristics, ..Config::default() };
            assert_eq!((config.largest_receive(), config.first_receives().1), (largest, 4096));
        }
    }
}
