//! [`Halves`]: both halves of a connection with their shared state, for Version Two and for faults.
//!
//! *Errors*: a fault is counted, and answered as [`ProtocolError::action`] defines. A fault of a reply has no answer. A
//! fault of a Call is answered by an RDMA_ERROR, on the Call's credit.

use bytes::Bytes;

use super::Connection;
use crate::core::Core;
use crate::flow::Charge;
use crate::inbound::received::Received;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::settings::config::Side;
use crate::two::Two;
use crate::wire::{Action, Body, ErrorBody, Fixed, ProtocolError, Taken};

/// The outcome of a message in Version Two.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The message is handled.
    Done,
    /// A complete Call or reply.
    Message(Received),
    /// A complete message of another type that every version has.
    Other(Body),
    /// Several messages from one Send.
    Several(Vec<Bytes>),
}

/// Both halves of a connection, and their shared state.
#[derive(Debug)]
pub(crate) struct Halves<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) requester: &'a mut Requester,
    pub(crate) responder: &'a mut Responder,
}

/// Returns whether a message without a known direction counts as a Call or a reply (RFC 8167 §4.1).
pub(super) const fn usually(side: Side) -> Taken {
    match side {
        Side::Server => Taken::AsCall,
        Side::Client => Taken::AsReply,
    }
}

impl Connection {
    /// Returns the halves.
    pub(super) fn halves(&mut self) -> Halves<'_> {
        self.split().1
    }

    /// Returns Version Two, if the connection speaks it, and the halves.
    pub(super) fn split(&mut self) -> (Option<&mut Two>, Halves<'_>) {
        let Self { core, requester, responder, two, .. } = self;
        (two.as_deref_mut(), Halves { core, requester, responder })
    }
}

impl Halves<'_> {
    /// Returns whether a message without a known direction counts as a Call or a reply here.
    pub(crate) const fn usually(&self) -> Taken {
        usually(self.core.side())
    }

    /// Returns whether a message that did not decode counts as a Call or a reply. If its lists exceed our limits, or if
    /// it is of another profile, its payload was not decoded. If no reply is awaited under its XID, the message can only
    /// be a Call, whose Requester needs the refusal (RFC 8167 §5.3).
    pub(crate) fn taken_unread(&self, error: &ProtocolError, xid: u32) -> Taken {
        let unread = matches!(
            error,
            ProtocolError::TooManyReadSegments { .. }
                | ProtocolError::TooManySegments { .. }
                | ProtocolError::TooManyWriteChunks { .. }
                | ProtocolError::ReadSegmentTooLong { .. }
                | ProtocolError::ReadListTooLong { .. }
        ) || matches!(error, ProtocolError::Two(error) if error.is_of_other_profile());
        if unread && !self.requester.awaits(xid) { Taken::AsCall } else { self.usually() }
    }

    /// Counts a Call against the grant; `None` if that ends the connection. RFC 8167 §4.1: if the direction is only
    /// assumed, the credit request is ignored.
    pub(crate) fn admit(&mut self, requested: Option<u32>) -> Option<Charge> {
        let admitted = self.core.ledger.admit(requested);
        admitted.map_err(|granted| self.exceeded(granted)).ok()
    }

    /// Counts a Send of an incomplete Call against the grant; `false` if that ends the connection.
    pub(crate) fn admit_part(&mut self, requested: Option<u32>) -> bool {
        let admitted = self.core.ledger.admit_part(requested);
        admitted.map_err(|granted| self.exceeded(granted)).is_ok()
    }

    fn exceeded(&mut self, granted: u32) {
        self.fault(ProtocolError::CreditsExceeded { granted }, Taken::AsCall, None);
    }

    /// Handles a message that cannot be used. `fixed` is set if the message can be answered.
    pub(crate) fn fault(&mut self, error: ProtocolError, taken: Taken, fixed: Option<Fixed>) {
        match (error.action(taken), fixed) {
            (Action::AnswerVersion | Action::Answer, Some(fixed)) => {
                if fixed.version != self.core.codec.rules().version {
                    self.core.ledger.allow_refusal();
                }
                if let Some(charge) = self.admit(None) {
                    self.refuse_call(error, fixed, charge);
                }
            }
            (Action::Close, _) => {
                self.core.stats.fault(&error);
                self.core.fail(error.into());
            }
            _ => {
                tracing::debug!(side = %self.core.side(), %error, "message discarded");
                self.core.stats.fault(&error);
            }
        }
    }

    /// Answers a Call that was admitted with an RDMA_ERROR.
    pub(crate) fn refuse_call(&mut self, error: ProtocolError, fixed: Fixed, charge: Charge) {
        tracing::debug!(side = %self.core.side(), xid = format_args!("{:#010x}", fixed.xid), %error, "call refused");
        let body = match error.action(Taken::AsCall) {
            // RFC 8166 §4.5.1: with the version of the request.
            Action::AnswerVersion => {
                let (low, high) = self.core.config.versions.range();
                let used = self.core.codec.rules().version;
                match error {
                    ProtocolError::VersionChanged { .. } => self.core.codec.refusal(&error),
                    // The range never contains the refused version, or the peer would try that again.
                    _ if (low..=high).contains(&fixed.version) => {
                        ErrorBody::Version { low: used, high: used }
                    }
                    _ => ErrorBody::Version { low, high },
                }
            }
            Action::Answer => self.core.codec.refusal(&error),
            Action::Discard | Action::Close => {
                self.core.ledger.finish(charge);
                return self.fault(error, Taken::AsReply, None);
            }
        };
        self.core.stats.fault(&error);
        let of_version = match &body {
            ErrorBody::Version { .. } => true,
            ErrorBody::Two(error) => error.is_of_version(),
            ErrorBody::Chunk => false,
        };
        let version = if of_version { fixed.version } else { self.core.codec.rules().version };
        self.responder.answer_error(fixed.xid, version, body, charge);
    }
}
