//! Version Two of RPC-over-RDMA, as far as it is more than another header (see [`wire`](crate::wire)).
//!
//! | module | mechanism |
//! | --- | --- |
//! | `arrange` | divides a message of ours among Sends |
//! | `assembly` | joins a message of the peer that comes in several Sends |
//! | `settings` | settings for transmission groups |
//!
//! No buffer is owned here. *On error*: see each module.

pub(crate) mod arrange;
pub(crate) mod assembly;
pub(crate) mod settings;
