//! XDR (RFC 4506): typed encoding and decoding without copies of payloads.
//!
//! An encoder does not produce one flat buffer but a [`Stream`] of pieces. Runs of small items are written by the
//! encoder itself ([`Piece::Inline`]); large opaque items stay in the caller's memory ([`Piece::Payload`]). A transport
//! sends the pieces by a gather list, or moves the DDP-eligible ones by chunks (RFC 8166 §3.4). A [`Decoder`] hands
//! opaque items out as slices of the received memory, or of the chunk in which they travelled. A message may lie in
//! several slices; an eligible item that does is handed out as a [`Payload`], without a copy.
//!
//! *Buffers.* All memory is [`bytes::Bytes`]: shared, read-only, given back when its last slice is dropped. Decoded
//! values are slices of the message; keeping a value keeps the message's memory.
//!
//! *Errors.* Encoding and decoding stop at the first refusal. Every count and length is compared with its limit and
//! with the rest of the message before anything is allocated. A [`DecodeError`] states the value seen and the value
//! allowed. It distinguishes a chunk in a wrong place ([`DecodeError::is_chunk_violation`]) from malformed data.
//!
//! Types are declared, not coded by hand:
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma_xdr::{Decoder, Xdr, encode};
//!
//! #[derive(Debug, PartialEq, Xdr)]
//! struct WriteArguments {
//!     #[xdr(max = 64)]
//!     file: Bytes,
//!     offset: u64,
//!     #[xdr(ddp, max = 1 << 20)]
//!     data: Bytes,
//! }
//!
//! let arguments =
//!     WriteArguments { file: Bytes::from_static(b"handle"), offset: 0, data: Bytes::from_static(b"data") };
//! let stream = encode(&arguments)?;
//! let (flat, _) = stream.flatten();
//! assert_eq!(Decoder::new(flat).decode_all::<WriteArguments>()?, arguments);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

// The derive macro writes `::rpcrdma_xdr::…`; inside this crate's tests that path must exist too.
#[cfg(test)]
#[allow(unused_extern_crates)]
extern crate self as rpcrdma_xdr;

mod bound;
mod decode;
mod encode;
mod error;
mod items;
mod list;
mod payload;
mod stream;
mod text;

pub use bound::{Bound, Bounded, CountedForm};
pub use decode::{Decoder, Padding, ReadChunk, ReturnedChunk, WriteChunkRules};
pub use encode::{Encoder, INLINE_COPY_MAX};
pub use error::{BufferTooSmall, DecodeError, EncodeError};
pub use items::{Counted, Decode, Eligible, Encode, encode};
pub use list::{decode_list, encode_list};
pub use payload::Payload;
/// ```
/// use rpcrdma_xdr::{Text, Xdr};
///
/// #[derive(Xdr)]
/// enum Status {
///     Ok = 0,
///     NoEntry = 2,
/// }
///
/// #[derive(Xdr)]
/// enum ReadLink {
///     #[xdr(value = Status::Ok as u32)]
///     Ok {
///         #[xdr(ddp, max = 1024)]
///         target: Text,
///     },
///     #[xdr(default)]
///     Failed(Status),
/// }
/// ```
///
/// A type that can hold itself says where. Its values have no largest form ([`Bounded`]), and decoding limits their depth
/// ([`Decoder::DEPTH_MAX`]):
///
/// ```
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct Node {
///     value: f64,
///     #[xdr(recursive)]
///     left: Option<Box<Node>>,
///     #[xdr(recursive, max = 8)]
///     others: Vec<Node>,
/// }
/// ```
///
/// A declaration without its limit, or without a form in XDR, doesn't compile:
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct NoMaximum(bytes::Bytes);
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct NoMaximum(Vec<u32>);
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct EligibleWithoutMaximum(#[xdr(ddp)] bytes::Bytes);
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct NotCounted(#[xdr(max = 4)] u32);
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct RecursiveButNotMarked(Option<Box<RecursiveButNotMarked>>);
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct MoreEligibleItemsThanABoundHolds([Data; 9]);
///
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct Data(#[xdr(ddp, max = 8)] bytes::Bytes);
/// ```
///
/// ```compile_fail
/// use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
///
/// #[derive(rpcrdma_xdr::Xdr)]
/// struct FieldWithoutBound(HandWritten);
///
/// struct HandWritten;
///
/// impl Encode for HandWritten {
///     fn encode(&self, _: &mut Encoder) -> Result<(), EncodeError> {
///         Ok(())
///     }
/// }
///
/// impl Decode for HandWritten {
///     const MIN_LEN: usize = 0;
///
///     fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
///         Ok(Self)
///     }
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// enum ValuesNotWrittenOut {
///     A,
///     B,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// enum ArmWithoutValue {
///     #[xdr(value = 1)]
///     A,
///     B(u32),
/// }
/// ```
///
/// ```compile_fail
/// #[derive(rpcrdma_xdr::Xdr)]
/// enum DefaultWithoutDiscriminant {
///     #[xdr(value = 1)]
///     A,
///     #[xdr(default)]
///     B,
/// }
/// ```
pub use rpcrdma_xdr_derive::Xdr;
// For `rpcrdma::xdr` alone, which names it `Xdr`.
#[doc(hidden)]
pub use rpcrdma_xdr_derive::RpcrdmaXdr;
pub use stream::{CopyCount, Piece, Stream};
pub use text::Text;

/// The size of every XDR item is a multiple of this, in bytes (RFC 4506 §3).
pub const UNIT: usize = 4;

/// Returns the number of zero bytes that follow an opaque item of `length` bytes (RFC 4506 §4.9, §4.10).
pub const fn pad_len(length: usize) -> usize {
    length.wrapping_neg() % UNIT
}

/// Returns `length` with its pad. Saturates instead of overflowing, so that a comparison with a limit still refuses it.
pub const fn padded_len(length: usize) -> usize {
    length.saturating_add(pad_len(length))
}

#[cfg(test)]
mod tests;
