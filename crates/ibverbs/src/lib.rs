//! RDMA adapters through libibverbs and librdmacm, as a provider of the contract in `rpcrdma-verbs`.
//!
//! Both libraries are loaded at run time. A program that contains this crate starts on every machine. When a user
//! asks for an adapter, it says what is missing: a package, a kernel module, a permission, or the device.
//!
//! # Layers
//!
//! | module | what it does |
//! | --- | --- |
//! | `ffi`, `library` | C types, and the functions of the two libraries; they decide nothing |
//! | `device`, `sysfs`, `reach` | lists devices; finds the device of an address |
//! | `cm` | identifiers of the connection manager and their events |
//! | `hardware` | a queue pair with its completion queue: posts requests, takes completions, ends everything |
//! | `faults` | faults of connections that a device reports apart from completions |
//! | `memory` | protection domains and registrations, which live as long as the memory |
//! | `adapter`, `trial`, `presence` | limits of a device, a trial of what it can do, and a look whether it is there |
//! | `queue_pair` | the contract: queues, windows, the end of a connection |
//! | `connect`, `listen` | set-up |
//!
//! `unsafe` is where C is called or its structures are read; `queue_pair`, `trial`, `connect` and `listen` have none. Each
//! block states what makes it sound.
//!
//! # The contract on an adapter
//!
//! | contract | libibverbs and librdmacm |
//! | --- | --- |
//! | `ProtectionDomain` | an `ibv_pd`: with windows one for all connections of a device, without windows one for each. Memory of Buffers is registered when it is first used, with local rights only, until it is freed ([`Companion`](rpcrdma_verbs::Companion)) |
//! | `reserve_window` | a memory window of type 2 from a list of the connection, with a key whose low octet is random. Without windows: `ibv_reg_mr` of the exact range |
//! | `BindWindow`, `LocalInvalidate` | `IBV_WR_BIND_MW` and `IBV_WR_LOCAL_INV`; without windows nothing, and `ibv_dereg_mr` |
//! | addresses on the wire | a random address that `ibv_reg_mr_iova` gives the memory, where the device allows that |
//! | `Send` with short pieces | copied into the request (`IBV_SEND_INLINE`) or into registered memory of the connection; long pieces without a registration are registered for the request |
//! | `Read` with several sources | one `IBV_WR_RDMA_READ` for each source. On iWARP the sink is registered for the Read, with the right to write (RFC 5040 §4.2) |
//! | `Write` with several targets | one `IBV_WR_RDMA_WRITE` for each, cut at their borders |
//! | `ReceiveMemory::Pooled` | the memory is taken when the Receive is posted |
//! | `SendRequest::express` | ignored: the adapter keeps the order of all requests |
//! | `progress`, counts of bytes on the link | unknown: an adapter tells only of completions |
//! | `accept` | `rdma_accept` with the first poll, when Receives are posted: iWARP ends a connection whose message finds none |
//! | the end | `rdma_disconnect` puts the queue pair into the error state. When it has flushed its queues, or after a second, windows and queue pair are destroyed; memory comes back after that |
//!
//! `docs/hardware.md` lists where devices differ from the contract.

mod adapter;
mod address;
mod cm;
mod config;
mod connect;
mod device;
mod faults;
mod ffi;
mod hardware;
mod library;
mod listen;
mod memory;
mod presence;
mod queue_pair;
mod reach;
mod sysfs;
mod trial;

pub use config::Config;
pub use connect::IbverbsConnector;
pub use device::{Device, DeviceError, Limits, LinkLayer, Port, PortState, devices};
pub use library::{LoadError, is_available};
pub use listen::IbverbsListener;
pub use reach::{NoDevice, device_at, device_towards, is_on_no_device};
pub use sysfs::Gid;
