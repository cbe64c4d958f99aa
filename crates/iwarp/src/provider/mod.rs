//! The engine on a TCP socket of tokio.
//!
//! Start-up advances in the futures of the caller, a connection only inside
//! [`QueuePair::poll`](rpcrdma_verbs::QueuePair::poll); a set-up as Initiator runs in its own task ([`connect`]). Owns
//! sockets only; the engine owns memory. An error of the socket ends the connection and flushes its work.

mod connect;
mod listen;
mod queue_pair;
mod socket;

pub use connect::IwarpConnector;
pub use listen::IwarpListener;
