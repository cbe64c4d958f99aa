//! Histories of whole endpoints: what a client, a server and the fabric between them do is drawn from bytes, so that a fuzzer
//! can search it and a property test can walk it at random.
//!
//! | entry | who is there | what is drawn |
//! | --- | --- | --- |
//! | [`two_endpoints`] | a client `Session`, its server's `Connection`s, each of Version One, Two (P1, P2) or both | calls of all forms both ways, answers late or never, abandoned calls, changes of characteristics, closes, memory that runs short, cuts, partitions, faults at a step, attempts that fail |
//! | [`hostile_peer`] | one `Connection` of either side and of any version, a peer that sends any bytes | every header type of every version nearly right and quite wrong, operations on characteristics, chunks of closed and foreign memory, replies beyond what was offered, RDMA Writes and Reads of any key, too few Receives |
//! | [`characteristics`] | a client's and a server's `Connection` of Version Two, which keep to everything | calls of all forms both ways, answers late, changes of characteristics by either side while they are under way |
//!
//! Time is virtual: it stands still while anything can be done. Each entry panics when one of these does not hold,
//! whatever the bytes are:
//!
//! * every call ends once, with a reply or an error, by its deadline and [`SLACK`] (I6, I8);
//! * on one connection no XID is sent twice (I8), and never more calls are in flight than granted (I4);
//! * a grant is at least 1 and backed by Receives (I3);
//! * data that arrives is the data that left, also from a peer that keeps to nothing;
//! * calls and connections between two endpoints end only for reasons that there can be, and what the interface refuses has a
//!   reason too;
//! * an error is never answered with an error, and one message gets one answer at most (I6);
//! * the engine comes to rest: no step goes round and round;
//! * in the end no work request, Receive or window is outstanding, and every byte is back in its domain (I1, I10).
//!
//! *Who owns which buffer.* As with any driver: work requests go to the queue pairs, memory comes back with completions.

// The whole crate is test code: to panic is how it reports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod characteristics;
mod draw;
mod hostile;
mod ledger;
mod link;
mod operations;
mod outcomes;
mod peer;
mod program;
mod session;
mod settings;
mod world;

pub use characteristics::characteristics;
pub use hostile::hostile_peer;
pub use session::two_endpoints;
pub use settings::SLACK;
