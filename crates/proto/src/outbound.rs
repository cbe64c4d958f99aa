//! The way to the queue pair: work requests in order, and the gather lists of Sends.

mod gather;
mod outbox;

pub(crate) use gather::{Gather, entries};
pub(crate) use outbox::{Origin, Outbox};
