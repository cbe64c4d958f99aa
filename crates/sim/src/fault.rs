//! A plan of [`Fault`]s, each for one step of one connection.

use std::time::Duration;

use rpcrdma_verbs::Status;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The first queue pair of [`Fabric::pair`](crate::Fabric::pair), or the end that connected.
    A,
    /// The second queue pair, or the end that accepted.
    B,
}

impl Side {
    /// Returns the other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A step in the life of one end of a connection. All count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The n-th work request posted on this end is about to be carried out.
    Posted(u64),
    /// The n-th segment of any kind has arrived at this end and is about to be handled.
    Segment(u64),
    /// The n-th message (Send, Write, Read Request or Read Response) has been delivered completely to this end.
    Delivered(u64),
}

/// Numbers of steps of each kind that an end has taken ([`Fabric::steps`](crate::Fabric::steps)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Steps {
    /// Work requests posted: the next is [`Step::Posted`] of this number.
    pub posted: u64,
    /// Segments handled.
    pub segments: u64,
    /// Messages delivered.
    pub delivered: u64,
}

impl Steps {
    /// Returns each of the steps, as a place for a fault.
    pub fn each(self) -> impl Iterator<Item = Step> {
        let posted = (0..self.posted).map(Step::Posted);
        let segments = (0..self.segments).map(Step::Segment);
        posted.chain(segments).chain((0..self.delivered).map(Step::Delivered))
    }
}

/// The fault that happens at a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The link fails at both ends, and frames under way are lost. At [`Step::Posted`] the link fails before any byte
    /// of the request left, at [`Step::Segment`] before the segment is placed, at [`Step::Delivered`] after the
    /// delivery.
    Cut,
    /// At [`Step::Posted`]: the request leaves and reaches the peer, then the link fails. At other steps as
    /// [`Action::Cut`], but the Receive or placement that just happened stands.
    CutAfter,
    /// At [`Step::Posted`]: the request fails with this status, and the connection ends. At other steps as
    /// [`Action::Cut`].
    Fail(Status),
    /// At [`Step::Posted`]: this end's send queue stands still for this time. At other steps: the link towards this end
    /// does. A time longer than [`FabricConfig::link_timeout`](crate::FabricConfig::link_timeout) ends the connection,
    /// as a partition does.
    Delay(Duration),
}

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Number of the connection in the fabric, in order of creation, from 0.
    pub connection: u64,
    /// The end of the connection.
    pub side: Side,
    /// The step.
    pub at: Step,
    /// The action at that step.
    pub action: Action,
}
