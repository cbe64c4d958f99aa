//! Possible ends of calls and connections between two endpoints that follow the rules: every other end is a fault.

use rpcrdma_proto::wire::two::ErrorBody;
use rpcrdma_proto::{CallError, CloseReason, Side, Versions};
use rpcrdma_verbs::{Disconnected, Status};

/// Properties of the two endpoints.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The versions of client and server.
    pub(crate) versions: [Versions; 2],
    /// There are so few windows that a call may need more.
    pub(crate) few_windows: bool,
    /// Idle connections are closed, by client and by server.
    pub(crate) idle: [bool; 2],
    /// A work request was made to fail.
    pub(crate) works_fail: bool,
    /// There was no memory for Receives. A message that may leave before any grant then finds no Receive, and ends the
    /// connection.
    pub(crate) no_receives: bool,
    /// A fault was injected into the fabric, a queue pair or the memory of a domain, or a server answered slowly.
    pub(crate) disturbed: bool,
}

/// Known facts about a call that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The side that made the call.
    pub(crate) side: Side,
    /// The time of the call was over.
    pub(crate) late: bool,
    /// The call had less time than an interruption may take: an attempt to connect, or an offer, without an answer.
    pub(crate) hurried: bool,
    /// Its owner had closed the session or connection.
    pub(crate) closed: bool,
    /// The call, or its reply, may have needed a chunk.
    pub(crate) large: bool,
}

impl Rules {
    /// Returns whether the client may speak a version that the server does not.
    fn may_differ(&self) -> bool {
        let [client, server] = self.versions;
        // With Version One on both sides there is always a version to fall back to; a side without another version does
        // not fall back.
        let both_have_one = client.has_one() && server.has_one();
        let only_choice = !client.has_one() && client.profile() == server.profile();
        !both_have_one && !only_choice
    }

    /// Checks the reason why a call has no reply.
    pub(crate) fn check_call(&self, call: &Failed, error: &CallError) {
        let Failed { side, late, hurried, closed, large } = *call;
        let legal = match error {
            CallError::TimedOut => late && (hurried || self.may_wait()),
            CallError::Closed => closed,
            CallError::Version { .. } if side == Side::Client => self.may_differ(),
            // If a server's first call comes before the client has announced its version, the server assumes Version
            // One.
            CallError::Version { .. } => self.versions[0].profile().is_some(),
            // An offer may exceed the limits of the other side, or be too small for the reply.
            CallError::Chunk | CallError::Refused(ErrorBody::ReplyResource { .. }) => large,
            // version-two-07 §7.3: the limits of the other side were not known yet.
            CallError::Refused(ErrorBody::Segments { .. }) => large,
            CallError::Unsendable(_) => large,
            CallError::Windows(_) => large && self.few_windows,
            // A session tries again until it is closed, or no peer understands it.
            CallError::ConnectionLost(CloseReason::Refused(_)) if side == Side::Client => {
                closed || self.may_differ()
            }
            CallError::ConnectionLost(_) if side == Side::Client => closed,
            CallError::ConnectionLost(_) => true,
            // The domain has memory for every call, attempts to connect never end, and each answer is a reply.
            _ => false,
        };
        assert!(legal, "{error:?} of {call:?} with {self:?}");
    }

    /// Checks the reason why a connection ended for this side. `closed`: its owner closed it.
    pub(crate) fn check_end(&self, side: Side, closed: bool, reason: &CloseReason) {
        let legal = match reason {
            CloseReason::Local => closed,
            CloseReason::Idle => self.idle[usize::from(side == Side::Server)],
            // Neither side breaks a rule of the fabric.
            CloseReason::Link(Disconnected::Terminated(_) | Disconnected::ProtocolError(_)) => {
                self.no_receives
            }
            CloseReason::Link(Disconnected::Local | Disconnected::Peer) => true,
            // A side that waits in vain, or is refused, resets the connection.
            CloseReason::Link(_) | CloseReason::Timeout(_) => self.may_wait(),
            CloseReason::WorkFailed(Status::ReceiverNotReady) if self.no_receives => true,
            CloseReason::InvalidationFailed | CloseReason::WorkFailed(_) => self.works_fail,
            CloseReason::Refused(_) => side == Side::Client && self.may_offer_in_vain(),
            // Neither side breaks a rule of the protocol: no reply exceeds its offer, no grant is too small.
            _ => false,
        };
        assert!(legal, "the {side}'s connection ended with {reason:?}: {self:?}");
    }

    /// Returns whether a side may wait until a timer expires. It may wait for delayed or lost messages, for windows
    /// that others hold, or for a version that the other side does not speak.
    fn may_wait(&self) -> bool {
        self.disturbed || self.few_windows || self.may_offer_in_vain()
    }

    /// Returns whether the client offers a version that the server may refuse.
    fn may_offer_in_vain(&self) -> bool {
        self.versions[0].profile() != self.versions[1].profile() || self.may_differ()
    }
}
