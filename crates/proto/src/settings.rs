//! Settings of one side, and what both sides agree on.
//!
//! | module | settings |
//! | --- | --- |
//! | `config` | all settings of a connection |
//! | `timers` | its timeouts, and the pace of data |
//! | `versions` | the versions that a side speaks, and the choice among them |
//! | `binding` | the DDP-eligible items of a program |
//! | [`private_data`] | what both sides tell while they connect (RFC 8797) |
//! | `agreement` | what both sides agree on afterwards (RFC 5666 §6) |

pub(crate) mod agreement;
pub(crate) mod binding;
pub(crate) mod config;
pub mod private_data;
pub(crate) mod timers;
pub(crate) mod versions;
