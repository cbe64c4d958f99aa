//! Tests of generated code: against recordings of Linux, hand-written types, and a foreign implementation.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod language;
mod nfs3;
mod nfs41;
mod recordings;
mod rpc;
mod services;
mod texts;
mod transport;
mod values;

use bytes::Bytes;
use rpcrdma::xdr::{Decode, DecodeError, Decoder, Encode, encode};

/// Encodes a value and joins the pieces.
fn octets<T: Encode>(value: &T) -> Bytes {
    encode(value).unwrap().flatten().0
}

/// Decodes a complete message.
fn value<T: Decode>(bytes: impl Into<Bytes>) -> Result<T, DecodeError> {
    Decoder::new(bytes.into()).decode_all()
}

/// Returns words as bytes.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
