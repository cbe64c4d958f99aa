//! Software iWARP: an RDMA provider in user space over TCP.
//!
//! Speaks MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040), compatible with Linux `siw` and iWARP adapters. It needs
//! no device and no kernel module.
//!
//! | module | what it is | I/O |
//! | --- | --- | --- |
//! | [`wire`] | the bytes: views for a dissector, representations for the endpoint | none |
//! | [`startup`] | MPA Request and Reply, and what they negotiate | none |
//! | [`engine`] | a connection in full operation: FPDUs, placement, queues, windows, Reads, timers | none |
//! | [`IwarpConnector`], [`IwarpListener`] | the contract of `rpcrdma-verbs` on TCP sockets of tokio | all |
//!
//! # Deviations that are meant
//!
//! * Direct placement fills memory that is open to the peer before the CRC of its segment is known (RFC 5044 §6 asks for
//!   the CRC first). Nothing *completes* before. [`Config::strict_crc`] stages instead.
//! * RDMA Reads complete when their data is there, and express Sends when they have left, so completions need not come in
//!   the order of posting (RFC 5040 §5.5 (15) asks for that); the contract of `rpcrdma-verbs` says so.
//! * Memory of a shared read window is returned as soon as the bytes are in the socket: TCP has its own copy.
//!
//! # Limits
//!
//! Opcodes of RFC 7306 (Immediate Data, Atomics) are refused as unexpected. Markers are never asked for; they are
//! inserted when a peer asks. A read sink is named to the peer by a tag that serves Read Responses only: RDMA Writes to it
//! are refused.

mod config;
pub mod engine;
#[doc(hidden)]
pub mod fuzzing;
mod provider;
pub mod startup;
pub mod wire;

pub use config::Config;
pub use engine::{DIRECT_PLACEMENT_MIN, NUDGE_AFTER, NUDGES_MAX, Timeouts};
pub use provider::{IwarpConnector, IwarpListener};
pub use wire::mpa::Revision;
