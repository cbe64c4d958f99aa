//! Histories of whole endpoints. A string of bytes chooses each action of a client, of a server and of the fabric
//! between them. So a fuzzer can search the histories, and a property test can try random ones.
//!
//! | entry | participants | drawn actions |
//! | --- | --- | --- |
//! | [`two_endpoints`] | a client `Session`, its server's `Connection`s, each of Version One, Two (P1, P2, P3) or both | calls of all forms in both directions, late or missing answers, abandoned calls, changes of characteristics, closes, memory shortage, cuts, partitions, faults at a step, failed attempts |
//! | [`hostile_peer`] | a `Connection` of either side and of any version, a peer that sends any bytes | every header type of every version, nearly right and quite wrong, operations on characteristics, chunks of closed and foreign memory, replies beyond the offer, RDMA Writes and Reads of any key, too few Receives |
//! | [`characteristics`] | a client's and a server's `Connection` of Version Two, which follow every rule | calls of all forms in both directions, late answers, changes of characteristics by either side while calls are in flight |
//!
//! Time is virtual: it stands still while any action is possible. Each entry panics if one of these properties does not
//! hold, for any bytes:
//!
//! * every call ends once, with a reply or an error, by its deadline and [`SLACK`] (I6, I8);
//! * on one connection no XID is sent twice (I8), and never more calls are in flight than granted (I4);
//! * a grant is at least 1 and backed by Receives (I3);
//! * with credits per message, no message leaves beyond the peer's limit;
//! * such a limit is backed by Receives, and never withdrawn;
//! * a GRANT leaves when it is due, and only then; a peer without credits is not late;
//! * the parts of a message follow one another, and their bytes add up;
//! * received data equals the data sent, also from a peer that violates every rule;
//! * calls and connections between two endpoints end only for possible reasons, and every refusal of the interface has
//!   a reason too;
//! * an error is never answered with an error, and a message gets at most one answer (I6);
//! * the engine comes to rest: it does not work for ever without time passing;
//! * in the end no work request, Receive or window is outstanding, and every byte is back in its domain (I1, I10).
//!
//! *Buffers.* As with any driver, work requests go to the queue pairs, and memory returns with completions.

// The crate is test code: it reports failures by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod characteristics;
mod draw;
mod hostile;
mod ledger;
mod link;
mod messages;
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
