//! Rights that the ledger grants: to post Sends, and what a Call holds until it ends. None of them can be copied.

/// The right to send a message now. Nothing is counted yet, so an offer may be dropped; it holds until the next
/// request.
#[must_use]
#[derive(Debug)]
pub(crate) struct Offer {
    pub(super) sends: u32,
    pub(super) replies: u32,
    pub(super) credit: u32,
}

impl Offer {
    /// Returns the grant for the message.
    pub(crate) const fn credit(&self) -> u32 {
        self.credit
    }
}

/// The right to post Sends, for each of which the peer has a Receive (rule I4).
#[must_use]
#[derive(Debug)]
pub(crate) struct Permit {
    pub(super) sends: u32,
    pub(super) credit: u32,
    /// Whether `credit` is a grant to the peer; otherwise it is a credit request.
    pub(super) grants: bool,
}

impl Permit {
    /// Uses the permit for one Send; `false` if none is left.
    pub(crate) const fn spend(&mut self) -> bool {
        let left = self.sends.checked_sub(1);
        if let Some(left) = left {
            self.sends = left;
        }
        left.is_some()
    }

    /// Returns the value for `rdma_credit` of each Send.
    pub(crate) const fn credit(&self) -> u32 {
        self.credit
    }

    /// Returns the grant of each Send; `None` if its `rdma_credit` is a request.
    pub(crate) const fn grant(&self) -> Option<u32> {
        if self.grants { Some(self.credit) } else { None }
    }
}

/// The holdings of a Call of ours until it is answered: its credits, and the Receives for its reply.
#[must_use]
#[derive(Debug)]
pub(crate) struct Lease {
    /// The number of the Call in send order.
    pub(super) number: u64,
    /// Sends of the Call.
    pub(super) sends: u32,
    /// Receives for its reply.
    pub(super) replies: u32,
}

impl Lease {
    /// Returns the number of the Call in send order.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the Receives for the reply.
    pub(crate) const fn replies(&self) -> u32 {
        self.replies
    }
}

/// The credit of a Call of ours that has its reply, and owes the RDMA_DONE for it (RFC 5666 §3.8).
#[must_use]
#[derive(Debug)]
pub(crate) struct DoneOwed(pub(super) ());

/// The credit that a Call of the peer uses until its answer leaves.
#[must_use]
#[derive(Debug)]
pub(crate) struct Charge(pub(super) ());

/// The end of a Call of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settled {
    /// By a reply, with this grant.
    Answered { grant: u32 },
    /// By an error, with this grant. Some of the Call's Sends may still be in flight.
    Refused { grant: u32 },
}

/// The event that a message has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A message of the peer with credits.
    Credits,
    /// Free memory of this many bytes in the domain, for a Receive (rule I3).
    Receives(usize),
    /// Several credits at once, for which the message has to join the line.
    Line,
    /// None: RDMA_DONEs hold all credits, and never return them.
    Never,
}
