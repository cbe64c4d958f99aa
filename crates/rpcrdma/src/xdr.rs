//! XDR (RFC 4506): the crate `rpcrdma-xdr`, for a program that depends on `rpcrdma` alone.
//!
//! All names are those of that crate. Only the derive macro differs: its code names this module, not the crate.
//!
//! ```
//! use rpcrdma::xdr::{Bounded, Payload, Xdr};
//!
//! #[derive(Xdr)]
//! struct Put {
//!     id: u64,
//!     #[xdr(ddp, max = 1 << 20)]
//!     value: Payload,
//! }
//!
//! assert_eq!((Put::MAX_LEN, Put::DDP_ITEMS), (12, 1));
//! assert_eq!(Put::BOUND.maxima(), [1 << 20]);
//! ```
//!
//! A crate that renames its dependency states the path at its types: `#[xdr(crate = renamed::xdr)]`.

pub use rpcrdma_xdr::RpcrdmaXdr as Xdr;
pub use rpcrdma_xdr::*;
