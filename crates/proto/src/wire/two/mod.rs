//! Version Two on the wire: three documents, each with bytes of its own ([`Profile`]), and the extensions
//! that they carry.
//!
//! | module | content |
//! | --- | --- |
//! | `codec` | the codec that the tables of a profile drive |
//! | [`p1`], [`p2`], [`p3`] | the tables of each profile |
//! | `lists` | the chunk lists of a message type |
//! | `words` | the cursor of the decoders of operations |
//! | [`exchange`] | operations on characteristics |
//! | [`transmission`] | operations for messages in several Sends, and for placement by Sends |
//! | [`combined`] | several messages in one Send |
//!
//! Nothing here owns a buffer. Every refusal is an [`Error`], or a
//! [`ProtocolError`](crate::wire::ProtocolError) where Version One has the fault too.

mod body;
mod codec;
pub mod combined;
mod error;
pub mod exchange;
mod lists;
mod optional;
pub mod p1;
pub mod p2;
pub mod p3;
pub mod transmission;
mod words;

use super::{Codec, Direction};
use crate::wire;
pub use body::{Body, ErrorBody};
use codec::Content;
pub use codec::V2;
pub use error::Error;
pub use exchange::{Exchange, Rest, Subset, Value};
pub use optional::operation_len;
use transmission::{Operation, OperationBase, TransmitContinuation};

/// The value of `rdma_vers`.
pub const VERSION: u32 = 2;

/// No Read segment is XDR padding.
const PADS: bool = false;

/// The rules of Version Two: the differences between its profiles besides the bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// The document that is spoken; none interoperates with another.
    pub profile: Profile,
    /// Whether each Call names the handle that its reply may invalidate (version-two-03 §6.2.3). Otherwise a
    /// characteristic of the Requester allows Send with Invalidate (xcharext-02 §3.2).
    pub names_handle: bool,
    /// Whether a credit is for a message, whichever way its RPC goes (version-two-07 §4.2.1). Otherwise a
    /// credit is for a Call and its reply, as in Version One.
    pub counts_messages: bool,
    /// Whether each side tells its characteristics once, at the beginning, in one message or several
    /// (version-two-07 §5.1). Otherwise operations exchange them at any time, and can be refused as a whole
    /// (xcharext-02 §4, version-two-03 §5.3).
    pub tells_once: bool,
    /// Whether a reply that follows its header returns the Reply chunk, unused, as in Version One (RFC 8166
    /// §4.3.3).
    pub returns_reply_chunk: bool,
    /// Bytes of the header of each part but the last of a message that comes in several Sends; `None` if none
    /// does.
    pub part_header: Option<usize>,
    /// The numbers of the operations on transmissions (rtrext-02 §9.1); `None` if there are none.
    pub operations: Option<OperationBase>,
}

/// A Send of a message that is divided among several, other than the one with the header of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its number in the message, from 0.
    pub number: u32,
    /// Bytes of the Payload stream in it.
    pub len: u32,
    /// Bytes of the Payload stream in the Sends after it.
    pub remaining: u32,
}

impl Rules {
    /// Returns the body of a fragment of a message whose own header has this body. To divide a message that
    /// cannot be divided is a fault of the caller, as in [`Codec::encode`].
    pub(crate) fn fragment(&self, message: &wire::Body, fragment: Fragment) -> wire::Body {
        match (self.operations, message) {
            (None, _) => wire::Body::Two(Body::Middle { remaining: fragment.remaining }),
            (Some(base), wire::Body::Two(Body::Transmission(lead))) => {
                wire::Body::Two(Body::Transmission(Operation::Continuation(TransmitContinuation {
                    number: fragment.number,
                    initial_type: lead.kind().number(base),
                    payload_len: fragment.len,
                })))
            }
            _ => wire::Body::Error(wire::ErrorBody::Chunk),
        }
    }
}

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
    /// Its codec, with the operations on transmissions under the numbers that do not stand in the way of
    /// others.
    #[must_use]
    pub const fn codec(self) -> &'static dyn Codec {
        self.codec_with(OperationBase::Separate)
    }

    /// Its codec, with the operations on transmissions under these numbers, if they can have others.
    pub(crate) const fn codec_with(self, operations: OperationBase) -> &'static dyn Codec {
        match (self, operations) {
            (Self::P1, _) => &p1::V2P1,
            (Self::P2, OperationBase::Separate) => &p2::V2P2,
            (Self::P2, OperationBase::Tables) => &p2::V2P2_BY_TABLES,
            (Self::P3, _) => &p3::V2P3,
        }
    }

    /// Returns the direction that every message of this `rdma_proc` has, if the profile has types for each
    /// (version-two-07 §6.3). It is known also of a message that does not decode.
    #[must_use]
    pub fn direction_of(self, procedure: u32) -> Option<Direction> {
        match self {
            Self::P1 | Self::P2 => None,
            Self::P3 => match p3::V2P3.message(procedure) {
                Some((_, front, _)) => front.direction(),
                None => None,
            },
        }
    }

    /// Returns whether a message of this `rdma_proc` is a part of one that goes on behind it
    /// ([`Body::Middle`]).
    #[must_use]
    pub fn is_part(self, procedure: u32) -> bool {
        let row = p3::V2P3.message(procedure);
        matches!((self, row), (Self::P3, Some((_, _, Content::Middle))))
    }
}
