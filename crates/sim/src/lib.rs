//! An RDMA fabric inside one process, on a virtual clock, with faults.
//!
//! [`Fabric`] connects [`SimQueuePair`]s that obey the contract of `rpcrdma-verbs` to the letter and promise nothing
//! beyond it. Completions mean little ([`CompletionMode::Local`]), Read Responses pass Sends, and messages are half
//! placed when the connection ends. A seed makes every choice that the contract leaves open, so a failure can be
//! repeated. A [`Fault`] ends a connection at any chosen step. [`Fabric::tap`] sees every message that was delivered.
//!
//! # Ownership of memory
//!
//! A work request owns its memory until its completion is polled, and a window until it is invalid. Bytes that left are
//! copied, as a socket would, so memory of the sender never waits for the receiver. The fabric counts the work that
//! still owns memory ([`Fabric::outstanding`]). A dropped queue pair gives all of it back to its pools.
//!
//! # Failing at each step
//!
//! Run a scenario once without faults, ask [`Fabric::steps`] how many steps each end took, and run it again with a
//! [`Fault`] at each of [`Steps::each`]. A fault is a cut before or after a message is delivered, a work request that
//! fails, or a delay.
//!
//! # Without a runtime
//!
//! ```
//! use rpcrdma_sim::{Fabric, FabricConfig};
//! use rpcrdma_verbs::{ConnectParameters, ProtectionDomain, QueuePair, ReceiveMemory, SendRequest, Windows, WorkRequest, WrId};
//!
//! let fabric = Fabric::new(FabricConfig { seed: 7, ..FabricConfig::default() });
//! let parameters = || ConnectParameters {
//!     private_data: Default::default(),
//!     ird: 16,
//!     ord: 16,
//!     max_send_wr: 64,
//!     max_recv_wr: 64,
//!     domain: ProtectionDomain::new(1 << 20),
//! };
//! let (mut a, mut b) = fabric.pair(parameters(), parameters());
//! b.post_receive(WrId(1), ReceiveMemory::Pooled(b.domain().reserve(1024)?))?;
//! let gather = vec![bytes::Bytes::from_static(b"hello")];
//! a.post(WrId(2), WorkRequest::Send(SendRequest { gather, ..Default::default() }))?;
//! let completions = fabric.settle(&mut [&mut a, &mut b]);
//! assert_eq!((completions[0][0].id, completions[1][0].id), (WrId(2), WrId(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
mod completions;
mod config;
mod connect;
mod connection;
mod end;
mod fabric;
mod fault;
mod gather;
mod link;
mod queue_pair;
mod receive;
mod tap;
mod transmit;
mod window;

pub use config::{CompletionMode, FabricConfig};
pub use connect::{SimConnector, SimListener};
pub use fabric::{Fabric, Outstanding};
pub use fault::{Action, Fault, Side, Step, Steps};
pub use queue_pair::SimQueuePair;
pub use tap::{Delivery, MessageKind};
