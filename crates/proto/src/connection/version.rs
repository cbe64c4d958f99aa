//! Which version a connection speaks: what it begins with, what the first message says, and what holds once both sides have shown
//! it (version-two-01 §5).
//!
//! Nothing is owned here. *On error*: a version that is not spoken, or another than the one before, is refused with the range or
//! the one in use, and the connection goes on (RFC 8166 §4.5.1).

use std::time::Instant;

use super::Connection;
use crate::characteristics::ReverseSupport;
use crate::config::Side;
use crate::error::ProtocolError;
use crate::private_data::Thresholds;
use crate::versions::FIRST_MESSAGE;
use crate::wire::{self, Body, Codec, Fixed, Header, Rules, two};

/// How far a connection has come with its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A server's that speaks Version Two, before the first message: the client says the version, and by which document, even if
    /// there is one alone (version-two-01 §5). Calls of its own wait until then, or until this time if there is Version One to
    /// make them in.
    Open(Instant),
    /// A client's: the peer has not shown yet that it speaks it.
    Offered,
    Settled,
}

impl Connection {
    /// Speaks another version from now on: nothing but a message that was refused for its version has passed. A client's
    /// first message has to fit what every peer takes (version-two-01 §5).
    pub(crate) fn speak(&mut self, codec: &'static dyn Codec) {
        self.core.set_codec(codec);
        self.two.restart(&mut self.core);
        self.core.peer_reverse = None;
        self.core.peer_segments = (None, None);
        self.core.peer_groups = None;
        self.core.combine.set_most(1);
        self.core.untold = None;
        let (thresholds, invalidate) = self.announced;
        if codec.rules().two.is_none() {
            self.core.thresholds = thresholds;
            self.core.invalidate_peer = invalidate;
            self.version = Version::Settled;
        } else {
            self.core.thresholds = Thresholds { send: FIRST_MESSAGE, receive: FIRST_MESSAGE };
            self.core.invalidate_peer = false;
            self.version = Version::Offered;
        }
        self.core.send_earlier = self.core.thresholds.send;
    }

    /// Both sides speak the version: from now on its thresholds hold, and its characteristics can be exchanged.
    fn settle(&mut self) {
        self.version = Version::Settled;
        if let Some(rules) = self.core.codec.rules().two {
            self.two.settle(&mut self.core, self.last_activity, &rules);
        }
    }

    /// Settles the version that a client offered, if the peer shows by this message that it speaks it. An RDMA_ERROR can be an
    /// ERR_VERS; of several messages in one Send, each shows it for itself.
    pub(super) fn confirm(&mut self, body: &Body) {
        let shows = !matches!(body, Body::Error(_) | Body::Two(two::Body::Combined(_)));
        if self.version == Version::Offered && shows {
            self.settle();
        }
    }

    /// Decodes a header in the version that is spoken, or that the first message says.
    pub(super) fn decode(&mut self, fixed: Fixed, message: &[u8]) -> Result<(Header, usize), ProtocolError> {
        let opens = matches!(self.version, Version::Open(_)) && fixed.procedure != wire::RDMA_ERROR;
        // An RDMA_ERROR is read whatever its version, and never answered. Else the peer says it (version-two-01 §5.3).
        if opens {
            let codec = self.core.config.versions.codec(fixed.version);
            // What is wrong with it is said in its version (RFC 8166 §4.5).
            let unknown = ProtocolError::UnsupportedVersion { version: fixed.version };
            self.core.set_codec(codec.ok_or(unknown)?);
        }
        let codec = self.core.codec;
        let decoded = codec.decode(message, &self.core.config.limits);
        if opens && decoded.is_ok() {
            self.speak(codec);
            self.settle();
        }
        decoded.map_err(|error| match error {
            ProtocolError::UnsupportedVersion { version }
                if self.version == Version::Settled && self.core.config.versions.codec(version).is_some() =>
            {
                ProtocolError::VersionChanged { version, used: codec.rules().version }
            }
            error => error,
        })
    }

    /// The version spoken; `None` as long as a server has had no message that says it, or a client none that confirms it.
    #[must_use]
    pub fn version(&self) -> Option<&'static Rules> {
        (self.version == Version::Settled).then(|| self.core.codec.rules())
    }

    /// Whether Calls may leave. Where the default is that a client takes none, those of a server wait until it has said otherwise
    /// (version-two-07 §4.6.3).
    pub(super) fn may_call(&self) -> bool {
        match self.two.peer() {
            _ if self.core.side == Side::Client => true,
            _ if matches!(self.version, Version::Open(_)) => false,
            Some(peer) => peer.reverse > ReverseSupport::None || self.two.is_exchanged().is_some(),
            // And where the version is not in use yet, nothing was said.
            None => !self.core.codec.rules().two.is_some_and(|two| two.tells_once),
        }
    }

    /// Until when a Call of a server waits for the client to say the version.
    pub(super) fn first_message_due(&self) -> Option<Instant> {
        match self.version {
            Version::Open(until)
                if self.requester.has_queued(&self.core) && self.core.config.versions.has_one() =>
            {
                Some(until)
            }
            _ => None,
        }
    }
}
