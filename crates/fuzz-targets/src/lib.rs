//! The fuzz targets: each is a function that takes any bytes, and panics if a property does not hold for them.
//!
//! `fuzz/` has one program for each function of [`TARGETS`], which the tests of this crate run on the seeds
//! ([`seeds`]) and on random bytes. Properties of whole endpoints are those of `rpcrdma_histories`.
//!
//! | module | targets |
//! | --- | --- |
//! | [`headers`] | `v1_header`, `v2_header`, `private_data` |
//! | [`transmissions`] | `round_trips` |
//! | [`rpc`] | `rpc_message`, `records`, `rpcbind` |
//! | [`conf_rdma`] | `conf_rdma` |
//! | [`gss`] | `gss_server`, `gss_reply` |
//! | [`nfs`] | `nfs_arguments`, `mount`, `file_handles` |
//! | [`iwarp`] | `iwarp_receive` |
//! | [`captures`] | `capture` |
//! | [`descriptions`] | `descriptions` |

// The crate is test code: it reports failures by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod captures;
pub mod conf_rdma;
pub mod descriptions;
pub mod gss;
pub mod headers;
pub mod iwarp;
pub mod nfs;
pub mod rpc;
pub mod seeds;
pub mod transmissions;

use std::fmt::Debug;

use bytes::Bytes;
use rpcrdma_xdr::{Decode, Decoder, Encode, encode};

/// A target: processes any bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name of its program in `fuzz/`.
pub const TARGETS: [(&str, Target); 19] = [
    ("capture", captures::capture),
    ("characteristics", rpcrdma_histories::characteristics),
    ("conf_rdma", conf_rdma::conf_rdma),
    ("descriptions", descriptions::descriptions),
    ("endpoints", rpcrdma_histories::two_endpoints),
    ("file_handles", nfs::file_handles),
    ("gss_reply", gss::gss_reply),
    ("gss_server", gss::gss_server),
    ("hostile_peer", rpcrdma_histories::hostile_peer),
    ("iwarp_receive", iwarp::iwarp_receive),
    ("mount", nfs::mount),
    ("nfs_arguments", nfs::nfs_arguments),
    ("private_data", headers::private_data),
    ("records", rpc::records),
    ("round_trips", transmissions::round_trips),
    ("rpc_message", rpc::rpc_message),
    ("rpcbind", rpc::rpcbind),
    ("v1_header", headers::v1_header),
    ("v2_header", headers::v2_header),
];

/// Returns the target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Checks that a value that decodes encodes to bytes of equal length, and that these decode to an equal value.
/// Returns the value.
fn survives<T: Encode + Decode + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let value = Decoder::new(Bytes::copy_from_slice(data)).decode_all::<T>().ok()?;
    let bytes = encode(&value).expect("a value that was decoded is within its limits").flatten().0;
    assert_eq!(bytes.len(), data.len(), "{value:?}");
    assert_eq!(Decoder::new(bytes).decode_all::<T>().as_ref(), Ok(&value));
    Some(value)
}

/// Splits off the front of `bytes`, by a length byte before it.
fn split_piece<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = bytes.split_first()?;
    let (piece, rest) = rest.split_at(usize::from(length).min(rest.len()));
    *bytes = rest;
    Some(piece)
}
