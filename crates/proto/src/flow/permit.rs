//! What the ledger hands out: the right to post Sends, and what a Call holds until it is over. None of them can be copied.

/// A message may leave now. Nothing is counted yet, so an offer can be let go; it holds until something else is asked for.
#[must_use]
#[derive(Debug)]
pub(crate) struct Offer {
    pub(super) sends: u32,
    pub(super) replies: u32,
    pub(super) credit: u32,
}

impl Offer {
    /// The grant that the message would say.
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
    /// Whether `credit` grants something to the peer; else it asks for credits.
    pub(super) grants: bool,
}

impl Permit {
    /// One Send leaves by it; `false` if none may any more.
    pub(crate) const fn spend(&mut self) -> bool {
        let left = self.sends.checked_sub(1);
        if let Some(left) = left {
            self.sends = left;
        }
        left.is_some()
    }

    /// The value for `rdma_credit` of each of them.
    pub(crate) const fn credit(&self) -> u32 {
        self.credit
    }

    /// What each of them grants; `None` if its `rdma_credit` is a request.
    pub(crate) const fn grant(&self) -> Option<u32> {
        if self.grants { Some(self.credit) } else { None }
    }
}

/// What a Call of ours holds from its leaving until it is answered: its credits, and the Receives for its reply.
#[must_use]
#[derive(Debug)]
pub(crate) struct Lease {
    /// The how-many-th Call it is.
    pub(super) number: u64,
    /// Sends that it took.
    pub(super) sends: u32,
    /// Receives for its reply.
    pub(super) replies: u32,
}

impl Lease {
    /// The number of the Call in the order in which ours left.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Receives that there are for the reply.
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

/// How a Call of ours ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settled {
    /// By a reply, which says this grant.
    Answered { grant: u32 },
    /// By an error, which says this grant. Some of the Call's Sends may be on their way still.
    Refused { grant: u32 },
}

/// Why a message cannot leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A message of the peer has to bring credits.
    Credits,
    /// The domain has to have this many bytes for a Receive (rule I3).
    Receives(usize),
    /// It needs so many credits at once that it has to stand in line for them.
    Line,
    /// All credits are with RDMA_DONEs: none will come back.
    Never,
}
