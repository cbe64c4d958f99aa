//! [`Peer`]: the limits and abilities of the peer of a connection.
//!
//! They begin with the values of the connection set-up. An agreement changes them (RFC 5666 §6), and so do
//! announcements of the peer in Version Two.

use rpcrdma_verbs::Capabilities;

use crate::settings::agreement::Agreement;
use crate::settings::private_data::{Thresholds, announced};

/// `bkreqsup`: the reverse Calls that a side accepts (xcharext-02 §3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseSupport {
    /// BKREQSUP_NONE: no reverse Calls.
    None,
    /// BKREQSUP_INLINE: reverse Calls without chunks.
    #[default]
    Inline,
    /// RDMA2_RVRSDIR_CONT: reverse Calls without chunks, in one message or several (version-two-07 §5.2.5).
    Continued,
    /// BKREQSUP_GENL: reverse Calls with chunks, like forward ones.
    General,
}

/// The limits and abilities of the peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The inline thresholds.
    pub(crate) thresholds: Thresholds,
    /// The longest message that the peer is sure to send inline, bytes, from its private data.
    pub(crate) promised: usize,
    /// The longest reply to a Call that arrived before we asked the peer for smaller Receives, bytes (xcharext-02
    /// §3.1).
    pub(crate) send_earlier: usize,
    /// Whether a reply may invalidate a handle of the peer (RFC 8797 §4.1).
    pub(crate) invalidates: bool,
    /// Whether the peer can have RDMA Reads outstanding here.
    pub(crate) reads: bool,
    /// The peer's announced support of reverse Calls.
    pub(crate) reverse: Option<ReverseSupport>,
    /// The longest segment that the peer accepts, bytes, and the most in a header, if announced.
    pub(crate) segments: (Option<u32>, Option<u32>),
    /// The agreement on this connection.
    pub(crate) agreement: Option<Agreement>,
}

impl Peer {
    /// Returns a peer with the values of the connection set-up. `promised` is the Send size in its private data.
    pub(crate) fn new(
        thresholds: Thresholds,
        promised: usize,
        invalidates: bool,
        capabilities: &Capabilities,
    ) -> Self {
        Self {
            thresholds,
            promised: announced(promised),
            send_earlier: thresholds.send,
            invalidates,
            reads: capabilities.ird > 0,
            reverse: None,
            segments: (None, None),
            agreement: None,
        }
    }

    /// Sets the limits of a version, before any announcement in it.
    pub(crate) const fn begin(&mut self, thresholds: Thresholds, invalidates: bool) {
        self.thresholds = thresholds;
        self.send_earlier = thresholds.send;
        self.invalidates = invalidates;
        self.reverse = None;
        self.segments = (None, None);
    }
}
