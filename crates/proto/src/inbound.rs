//! Messages of the peer, from the first decoded header to the complete message.
//!
//! [`received`] is a complete message. [`reassembly`] lays its Read list out in the Payload stream, and [`reads`] reads
//! the chunks.

pub(crate) mod reads;
pub mod reassembly;
pub(crate) mod received;
