//! The queue of work requests for the queue pair, and the gather lists of Sends.

mod gather;
mod outbox;

pub(crate) use gather::{entries, gather};
pub use outbox::Post;
pub(crate) use outbox::{Origin, Outbox, Owner};
