//! Which ends of calls and connections there can be between two endpoints that keep to the rules: everything else is a fault.

use rpcrdma_proto::wire::two::ErrorBody;
use rpcrdma_proto::{CallError, CloseReason, Side, Versions};
use rpcrdma_verbs::{Disconnected, Status};

/// What the two are like.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The versions of client and server.
    pub(crate) versions: [Versions; 2],
    /// Windows are so few that a call may need more than there are.
    pub(crate) few_windows: bool,
    /// Connections are closed when they are idle, of client and server.
    pub(crate) idle: [bool; 2],
    /// A work request was made to fail.
    pub(crate) works_fail: bool,
    /// There was no memory for Receives: what may be sent before anything is granted has none, and ends the connection.
    pub(crate) no_receives: bool,
    /// Something was done to the fabric, to a queue pair or to the memory of a domain, or a server was slow to answer.
    pub(crate) disturbed: bool,
}

/// What is known of a call that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Who made it.
    pub(crate) side: Side,
    /// Its time was up.
    pub(crate) late: bool,
    /// It had less time than what may come in between takes: an attempt to connect, or an offer, without an answer.
    pub(crate) hurried: bool,
    /// Its owner had closed what it was made on.
    pub(crate) closed: bool,
    /// It, or its reply, may have needed a chunk.
    pub(crate) large: bool,
}

impl Rules {
    /// The client may come to speak a version that the server does not.
    fn may_differ(&self) -> bool {
        let [client, server] = self.versions;
        // With Version One on both sides there is always one to fall back to; and who has no other version does not fall back.
        let both_have_one = client.has_one() && server.has_one();
        let only_choice = !client.has_one() && client.profile() == server.profile();
        !both_have_one && !only_choice
    }

    /// Checks why a call has no reply.
    pub(crate) fn check_call(&self, call: &Failed, error: &CallError) {
        let Failed { side, late, hurried, closed, large } = *call;
        let legal = match error {
            CallError::TimedOut => late && (hurried || self.may_wait()),
            CallError::Closed => closed,
            CallError::Version { .. } if side == Side::Client => self.may_differ(),
            // A server whose first call comes before the client has said its version takes it for one of Version One.
            CallError::Version { .. } => self.versions[0].profile().is_some(),
            // What one offers may be more than the other takes, or too little for the reply.
            CallError::Chunk | CallError::Refused(ErrorBody::ReplyResource { .. }) => large,
            CallError::Unsendable(_) => large,
            CallError::Windows(_) => large && self.few_windows,
            // A session tries again, until it is closed; or nobody there understands it.
            CallError::ConnectionLost(CloseReason::Refused(_)) if side == Side::Client => {
                closed || self.may_differ()
            }
            CallError::ConnectionLost(_) if side == Side::Client => closed,
            CallError::ConnectionLost(_) => true,
            // The domain has room for every call, attempts to connect go on for ever, and what comes is a reply.
            _ => false,
        };
        assert!(legal, "{error:?} of {call:?} with {self:?}");
    }

    /// Checks why a connection ended for this side. `closed` says that its owner closed it.
    pub(crate) fn check_end(&self, side: Side, closed: bool, reason: &CloseReason) {
        let legal = match reason {
            CloseReason::Local => closed,
            CloseReason::Idle => self.idle[usize::from(side == Side::Server)],
            // Neither breaks a rule of the fabric.
            CloseReason::Link(Disconnected::Terminated(_) | Disconnected::ProtocolError(_)) => {
                self.no_receives
            }
            CloseReason::Link(Disconnected::Local | Disconnected::Peer) => true,
            // Who waits in vain, or is refused, resets the connection.
            CloseReason::Link(_) | CloseReason::Timeout(_) => self.may_wait(),
            CloseReason::WorkFailed(Status::ReceiverNotReady) if self.no_receives => true,
            CloseReason::InvalidationFailed | CloseReason::WorkFailed(_) => self.works_fail,
            CloseReason::Refused(_) => side == Side::Client && self.may_offer_in_vain(),
            // Nor of the protocol: no reply is beyond what was offered, no grant below what is needed.
            _ => false,
        };
        assert!(legal, "the {side}'s connection ended with {reason:?}: {self:?}");
    }

    /// Something may be waited for until a timer runs out: what was held up or lost, windows that others have, or a version that the
    /// other side does not speak.
    fn may_wait(&self) -> bool {
        self.disturbed || self.few_windows || self.may_offer_in_vain()
    }

    /// The client offers a version that the server may refuse.
    fn may_offer_in_vain(&self) -> bool {
        self.versions[0].profile() != self.versions[1].profile() || self.may_differ()
    }
}
