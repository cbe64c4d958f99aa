//! The engine on a TCP socket of tokio.
//!
//! No task of its own runs: start-up advances in the futures of the caller, a connection only inside
//! [`QueuePair::poll`](rpcrdma_verbs::QueuePair::poll). Owns sockets, nothing else; memory is the engine's. An error of the
//! socket ends the connection and flushes its work.

mod connect;
mod listen;
mod queue_pair;
mod socket;

pub use connect::IwarpConnector;
pub use listen::IwarpListener;
