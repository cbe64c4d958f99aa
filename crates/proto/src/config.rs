//! What the owner of a connection decides: sizes, credits, limits, timers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_verbs::MAX_ALIGN;

use crate::binding::Bindings;
use crate::characteristics::{Exchanged, OPERATION_RECEIVES};
use crate::compatibility::Compatibility;
use crate::flow::messages::SPARE_RECEIVES;
use crate::limits::Limits;
use crate::private_data::{PrivateData, announced};
use crate::timers::Timeouts;
use crate::two::settings::TransmissionSettings;
use crate::versions::Versions;
use crate::wire::two::transmission::BufferStructure;

/// Who opened the connection; fixed for its life (RFC 8167 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opened it: its Calls go in the forward direction.
    Client,
    /// Accepted it: its Calls go in the reverse direction.
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

/// Where chunks have to be taken: the three choices that rtissues-03 §3.5 names for a protocol that has other means as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkSupport {
    /// By every Responder, in both directions. Who calls counts on it, whatever a client says of what it takes.
    Required,
    /// By every server; by a client if it wants ([`Config::reverse_chunks`]) and says so, where it can. As RFC 8166 and 8167 have it.
    #[default]
    Forward,
    /// By nobody. What is not declared is a matter of the two owners; in the reverse direction as above.
    Optional {
        /// A client uses chunks for its Calls, or a server takes them there.
        forward: bool,
    },
}

/// Settings of a connection. Shared by all connections of a client or server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest message sent inline, bytes; 1024 to 262144 in steps of 1024 (RFC 8797 §4.2).
    pub send_size: usize,
    /// The largest message received inline, bytes; as above. Each posted Receive can hold this much.
    pub receive_size: usize,
    /// Announce that Send with Invalidate is taken, and use it (RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// Say the three above in private data at connection set-up (RFC 8797). Without it the peer counts on 1024 bytes and on no
    /// Send with Invalidate, until there is an [`Agreement`](crate::Agreement).
    pub announce: bool,
    /// Calls we want to have in flight, asked for in each Call: forward ones at a client, reverse ones at a server. The two
    /// directions are counted apart (RFC 8167 §4.1).
    pub calls: u32,
    /// The largest grant to the peer: for reverse Calls at a client, for forward ones at a server.
    pub grant: u32,
    /// Calls taken before the peer was granted anything. The protocol knows one (RFC 8166 §3.3.3); some peers do not.
    pub early_calls: u32,
    /// Bounds on the peer's headers.
    pub limits: Limits,
    /// Failures to connect in a row after which waiting calls fail; `None`: they wait as long as their own time allows.
    pub connect_attempts: Option<u32>,
    /// A session opens its connection again also when no call waits for it, and never closes it for being idle: the server
    /// may have something to call (RFC 8167 §5.4).
    pub keep_connected: bool,
    /// All timers.
    pub timeouts: Timeouts,
    /// DDP-eligible arguments of at least this many bytes leave by Read chunk even if the Call would fit inline. `None`:
    /// what fits inline goes inline.
    pub reduce_from: Option<usize>,
    /// The longest segment of a chunk, bytes: longer chunks get several windows. At least 1024.
    pub max_segment_len: usize,
    /// The most segments in one chunk that is sent: what every server has to take is 16 (RFC 8267 §6.4.2).
    pub max_segments: usize,
    /// The most Read chunks at non-zero Positions that a Call is given; items beyond travel with the rest.
    pub max_read_chunks: usize,
    /// Sends that one message of ours is divided into at the most, where the version continues messages (version-two-07 §6.6.2, rtrext-02 §4). With 1
    /// none is, and small Sends may pass RDMA Writes then.
    pub continued_parts: usize,
    /// RPC-over-RDMA messages that we put into one Send at the most, if the peer takes that
    /// ([`combined`](crate::wire::two::combined)), and this side too ([`Limits::combined_messages`]). With 1 each has its own.
    pub combined_messages: usize,
    /// Whether chunks are used and taken in the reverse direction (RFC 8167 §5.3).
    pub reverse_chunks: bool,
    /// Where chunks have to be taken. Without them messages are inline, in several Sends, or placed by Sends, or are refused.
    pub chunks: ChunkSupport,
    /// The versions that are spoken. A client begins with the highest.
    pub versions: Versions,
    /// What is done about transport characteristics, where the version has them.
    pub characteristics: Exchanged,
    /// What is done with transmission groups, where the version has them (rtrext-02).
    pub transmissions: TransmissionSettings,
    /// Retired forms that are spoken: none, unless the peer is known to speak them.
    pub compatibility: Compatibility,
    /// What is DDP-eligible in the Calls received; `None` leaves it to the argument decoder.
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
            characteristics: Exchanged::default(),
            transmissions: TransmissionSettings::default(),
            compatibility: Compatibility::default(),
            bindings: None,
        }
    }
}

impl Config {
    /// What these settings come to as private data, said or not.
    #[must_use]
    pub fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.remote_invalidation,
            send_size: self.send_size,
            receive_size: self.receive_size,
        }
    }

    /// Receives that one connection can have posted at a time, and its receive queue must hold: one for each call, of either
    /// direction, for operations on characteristics ([`OPERATION_RECEIVES`]), for a GRANT, and under the Read-Read model one for the RDMA_DONE
    /// of each reply that is exposed or about to be.
    #[must_use]
    pub fn max_recv_wr(&self) -> usize {
        // A connection shares the queue out in halves.
        let calls =
            self.calls.max(self.grant).max(if self.compatibility.read_read.is_some() { 2 } else { 1 });
        let calls = usize::try_from(calls).unwrap_or(usize::MAX);
        calls.saturating_mul(2).saturating_add(self.receives_beyond_calls())
    }

    /// Of those, the ones that are for no Call and no reply: for RDMA_DONEs, operations on characteristics, a GRANT, and the parts
    /// of one reply but its first.
    #[must_use]
    pub fn receives_beyond_calls(&self) -> usize {
        self.receives_for_dones()
            .saturating_add(OPERATION_RECEIVES)
            .saturating_add(self.receives_for_messages())
    }

    /// Of those, the ones where credits are counted per message (version-two-07 §4.2.1.1) and replies come in several Sends.
    pub(crate) fn receives_for_messages(&self) -> usize {
        let counted =
            self.versions.codecs().any(|codec| codec.rules().two.is_some_and(|two| two.counts_messages));
        self.receives_for_parts().saturating_add(if counted { SPARE_RECEIVES } else { 0 })
    }

    /// Of those, the ones for replies in several Sends, beyond the first of each. Who makes no Calls needs none.
    #[must_use]
    pub fn receives_for_parts(&self) -> usize {
        let groups = self.transmissions.enabled;
        let mut rules = self.versions.codecs().filter_map(|codec| codec.rules().two);
        let continued = rules.any(|two| two.part_header.is_some() || (groups && two.operations.is_some()));
        if continued { self.continued_parts.saturating_sub(1) } else { 0 }
    }

    /// Whether chunks are taken in the reverse direction, by a client, or perhaps used, by a server.
    #[must_use]
    pub fn takes_reverse_chunks(&self) -> bool {
        self.reverse_chunks || self.chunks == ChunkSupport::Required
    }

    /// Of those, the ones for RDMA_DONEs.
    pub(crate) fn receives_for_dones(&self) -> usize {
        let exposed = self.compatibility.read_read.as_ref().map(|read_read| read_read.exposed_replies);
        exposed.map_or(0, |replies| replies.saturating_add(1))
    }

    /// Has Receives with this structure, and Sends at least as long: peers that place items do so in these, and items are placed in theirs
    /// (rtrext-02 §8.3). A structure that is not consistent, or not of a length that can be announced, changes nothing.
    pub fn place_items(&mut self, structure: BufferStructure) {
        let size = usize::try_from(structure.total).unwrap_or(usize::MAX);
        if structure.check().is_ok() && announced(size) == size {
            self.receive_size = size;
            self.send_size = self.send_size.max(size);
            self.transmissions.structure = Some(structure);
        }
    }

    /// How our Receives are structured, if that is said: by a structure of their size, in a version with transmission groups.
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

    /// Bytes that a Receive takes at the most: the size that is announced, the least of the versions, or what the peer can ask for.
    #[must_use]
    pub fn largest_receive(&self) -> usize {
        let asked = if self.versions.profile().is_some() && self.characteristics.enabled {
            self.characteristics.most_receive_size
        } else {
            0
        };
        announced(self.receive_size).max(self.versions.least_receive()).max(asked)
    }

    /// Receives that a server has posted when it accepts a connection, for the Calls that come before its first grant (rule I3), and
    /// the bytes of each: see [`Connection::provide`](crate::Connection::provide).
    #[must_use]
    pub fn first_receives(&self) -> (u32, usize) {
        let initial = self.versions.highest().rules().initial_credits;
        let count = self.early_calls.max(initial).min(self.grant).max(1);
        (count, announced(self.receive_size.max(self.versions.least_receive())))
    }

    /// What goes out at connection set-up: the private data, or nothing.
    #[must_use]
    pub fn announcement(&self) -> Bytes {
        if self.announce { self.private_data().encode() } else { Bytes::new() }
    }
}
