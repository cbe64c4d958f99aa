//! The version of a connection: its initial value, the effect of the first message, and when both sides have confirmed
//! it (version-two-01 §5).
//!
//! *Errors*: a message in an unknown version, or in another than the settled one, is refused. The refusal gives the
//! range or the version in use, and the connection continues (RFC 8166 §4.5.1).

use std::time::Instant;

use super::Connection;
use crate::peer::ReverseSupport;
use crate::settings::config::Side;
use crate::settings::private_data::Thresholds;
use crate::settings::versions::FIRST_MESSAGE;
use crate::two::Two;
use crate::wire::{self, Body, Codec, Fixed, Header, ProtocolError, Rules, v1::V1};

/// The state of the version negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A server that speaks Version Two, before the first message. The client's message decides the version, and the
    /// document of Version Two, even if the server speaks only one (version-two-01 §5). The server's own Calls wait for
    /// that message. If the server speaks Version One, they wait at most until this time.
    Awaited(Instant),
    /// That time has passed, or the client has sent a message that did not decode. In Version One, Calls leave by guess.
    /// The first message that decodes still decides.
    Guessed,
    /// A client whose peer has not confirmed the version yet.
    Offered,
    Settled,
}

impl Connection {
    /// Changes the version; only a message refused for its version has passed so far. A client's first message has to
    /// fit the limits of every peer (version-two-01 §5).
    pub(crate) fn speak(&mut self, codec: &'static dyn Codec) {
        self.begin(codec);
        self.version = if self.two.is_some() { Version::Offered } else { Version::Settled };
    }

    /// Lets a server's Calls leave in Version One, since the client has sent nothing in time.
    pub(super) fn guess(&mut self) {
        self.begin(&V1);
        self.version = Version::Guessed;
    }

    /// Begins with the limits of a version.
    fn begin(&mut self, codec: &'static dyn Codec) {
        self.core.codec = codec;
        self.core.ledger.count_messages(codec.rules().two.as_ref().is_some_and(|two| two.counts_messages));
        self.core.ledger.keep_for_operations(0);
        if codec.rules().two.is_none() {
            let (thresholds, invalidate) = self.announced;
            self.core.peer.begin(thresholds, invalidate);
            (self.two, self.core.sending) = (None, None);
        } else {
            self.core.peer.begin(Thresholds { send: FIRST_MESSAGE, receive: FIRST_MESSAGE }, false);
            Two::open(&mut self.two, &mut self.core);
        }
    }

    /// Settles the version: from now on its thresholds hold, and characteristics can be exchanged. A Call that left in
    /// Version One by guess has failed: a client of Version Two refuses it, or leaves it without an answer.
    fn settle(&mut self) {
        self.version = Version::Settled;
        if let (Some(two), Some(rules)) = (&mut self.two, self.core.codec.rules().two) {
            let guessed = match self.core.side() {
                Side::Client => None,
                Side::Server => self.requester.fail_guessed(&mut self.core, self.last_activity),
            };
            two.settle(&mut self.core, self.last_activity, &rules, guessed);
        }
    }

    /// Settles the client's version, if the peer's message proves that it speaks the version. An RDMA_ERROR proves
    /// nothing, as it may be an ERR_VERS. In a combined Send, each message counts for itself.
    pub(super) fn confirm(&mut self, body: &Body) {
        let shows = match body {
            Body::Error(_) => false,
            Body::Two(body) => !body.is_combined(),
            _ => true,
        };
        if self.version == Version::Offered && shows {
            self.settle();
        }
    }

    /// Decodes a header in the connection's version, or in that of the first message.
    pub(super) fn decode(&mut self, fixed: Fixed, message: &[u8]) -> Result<(Header, usize), ProtocolError> {
        let opens = matches!(self.version, Version::Awaited(_) | Version::Guessed)
            && fixed.procedure != wire::RDMA_ERROR;
        // An RDMA_ERROR is read in any version, and never answered. Any other first message decides the version
        // (version-two-01 §5.3).
        if opens {
            let codec = self.core.config.versions.codec(fixed.version);
            // An error of this message is reported in its own version (RFC 8166 §4.5).
            let unknown = ProtocolError::UnsupportedVersion { version: fixed.version };
            self.begin(codec.ok_or(unknown)?);
            self.version = Version::Guessed;
        }
        let codec = self.core.codec;
        let decoded = codec.decode(message, &self.core.config.limits);
        if opens && decoded.is_ok() {
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

    /// Returns the version; `None` before the first message at a server, or before the peer's confirmation at a client.
    #[must_use]
    pub fn version(&self) -> Option<&'static Rules> {
        (self.version == Version::Settled).then(|| self.core.codec.rules())
    }

    /// Whether Calls may leave. If a client accepts no reverse Calls by default, those of a server wait for its
    /// announcement (version-two-07 §4.6.3).
    pub(super) fn may_call(&self) -> bool {
        let waits = matches!(self.version, Version::Awaited(_));
        self.core.side() == Side::Client
            || (!waits && self.two.as_ref().is_none_or(|two| self.may_call_back(two)))
    }

    /// Whether Calls of a server that speaks Version Two may leave.
    fn may_call_back(&self, two: &Two) -> bool {
        // Before the version is settled nothing has arrived that says so, also if a message did not decode.
        let takes = self.core.peer.reverse > Some(ReverseSupport::None) || two.is_exchanged().is_some();
        takes && !two.holds_calls()
    }

    /// Returns the deadline of the wait of a server's Call for the client's first message.
    pub(super) fn first_message_due(&self) -> Option<Instant> {
        match self.version {
            Version::Awaited(until)
                if !self.requester.queue.is_empty() && self.core.config.versions.has_one() =>
            {
                Some(until)
            }
            _ => None,
        }
    }
}
