//! Version Two on the wire: three documents, each with bytes of its own ([`Profile`]), and the extensions that they carry.
//!
//! | module | content |
//! | --- | --- |
//! | [`p1`], [`p2`], [`p3`] | the codec of each profile |
//! | [`exchange`] | operations on characteristics |
//! | [`transmission`] | operations on transmissions, for messages in several Sends and for placement by Sends |
//! | [`combined`] | several messages in one Send |
//!
//! Nothing here owns a buffer. Every refusal is a [`ProtocolError`](crate::error::ProtocolError).

pub mod combined;
pub mod exchange;
mod optional;
pub mod p1;
pub mod p2;
pub mod p3;
pub mod transmission;

use super::Codec;
pub use exchange::{Exchange, Rest, Subset, Value};
pub use optional::operation_len;
pub(crate) use optional::{request_len, response_len};
use transmission::OperationBase;

/// The value of `rdma_vers`.
pub const VERSION: u32 = 2;

/// The documents that define Version Two, each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02.
    P1,
    /// draft-cel-nfsv4-rpcrdma-version-two-03.
    P2,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07.
    P3,
}

impl Profile {
    /// Its codec, with the operations on transmissions under the numbers that do not stand in the way of others.
    #[must_use]
    pub const fn codec(self) -> &'static dyn Codec {
        self.codec_with(OperationBase::Separate)
    }

    /// Its codec, with the operations on transmissions under these numbers, if they can have others.
    pub(crate) const fn codec_with(self, operations: OperationBase) -> &'static dyn Codec {
        match (self, operations) {
            (Self::P1, _) => &p1::V2P1,
            (Self::P2, OperationBase::Separate) => &p2::V2P2(OperationBase::Separate),
            (Self::P2, OperationBase::Tables) => &p2::V2P2(OperationBase::Tables),
            (Self::P3, _) => &p3::V2P3,
        }
    }
}
