//! Software iWARP: an RDMA provider in user space over TCP.
//!
//! The provider speaks MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040). Its peers can be of its own
//! kind, Linux `siw` and iWARP adapters. It needs no device and no kernel module.
//!
//! | module | contents | I/O |
//! | --- | --- | --- |
//! | [`wire`] | wire formats: views for a dissector, representations for the endpoint | none |
//! | [`startup`] | MPA Request and Reply, and the negotiation | none |
//! | [`engine`] | a connection in full operation: FPDUs, placement, queues, windows, Reads, timers | none |
//! | [`IwarpConnector`], [`IwarpListener`] | the contract of `rpcrdma-verbs` on TCP sockets of tokio | all |
//!
//! # Intended deviations
//!
//! * On request, two ends of this provider send FPDUs longer than a TCP segment, against RFC 5044 §4.5 and §5.1:
//!   [`LargeFpdu`].
//! * Direct placement fills memory that is open to the peer before the CRC of its segment is known (RFC 5044 §6
//!   requires the CRC first). No work *completes* before. [`Config::strict_crc`] stages instead.
//! * RDMA Reads complete when their data has arrived, and express Sends (`SendRequest::express`) when they have left. So completions need not
//!   come in the order of posting, which RFC 5040 §5.5 (15) requires; the contract of `rpcrdma-verbs` allows this.
//! * Express Sends pass what has not been laid out, and Sends pass RDMA Reads that wait for ORD (RFC 5040 §5.5 (13)).
//!   Tagged and untagged messages may alternate by segments (RFC 5041 §5.3).
//! * A peer that closes its half of TCP has ended the connection (RFC 5041 §6.2.1).
//! * Memory of a shared read window is returned as soon as the bytes are in the socket: TCP has its own copy.
//!
//! # Limits
//!
//! Opcodes of RFC 7306 (Immediate Data, Atomics) are refused as unexpected. The provider never asks for markers; it
//! inserts them when a peer asks. The tag that names a read sink to the peer serves Read Responses only: RDMA Writes to
//! it are refused.

mod config;
pub mod engine;
mod provider;
pub mod startup;
pub mod wire;

pub use config::Config;
pub use engine::{DIRECT_PLACEMENT_MIN, NUDGE_AFTER, NUDGES_MAX, Timeouts};
pub use provider::{IwarpConnector, IwarpListener};
pub use startup::LargeFpdu;
pub use wire::mpa::Revision;
