//! Operations and properties that save round trips: messages in several transmissions, and bulk data placed
//! by Sends (draft-dnoveck-nfsv4-rpcrdma-rtrext-02; rtrext-00 lays the same out for characteristics).
//!
//! These are plain values and their XDR. An operation is the content of `rdma_optinfo` in an RDMA2_OPTIONAL.
//! The part of the Payload that goes with it follows, and is not read here. No buffer is owned: decoding
//! copies the words out of the message, encoding appends to the caller's.
//!
//! *On error*: decoding is strict and bounded by [`Limits`]; each refusal is a [`Malformed`], in a
//! [`Error::Transmission`](super::Error::Transmission). A request that decodes and is still wrong has a
//! [`ReportedError`]: [`TransmitRequest::fault`].

mod malformed;
mod placement;
mod report;
mod structure;
mod xdr;

use bytes::BytesMut;

use super::Profile;
use super::words::Words;
use crate::wire::{Direction, Limits, Segment};
pub use malformed::Malformed;
pub use placement::{
    Location, Outcome, PlacedItem, PlacementType, PlacementUse, ResponseDirection, ResponseLocation,
    ResponseSet, Validity,
};
pub use report::{ErrorReport, ReportedError, TransmissionId};
pub use structure::{BufferGroup, BufferSegment, BufferStructure, Inconsistent, TARGETABLE};
use xdr::{Structure, arrays, structure};

/// RTRS_XREQ, a bit of RTR Support (rtrext-02 §8.2): ROPT_XMTREQ.
pub const SUPPORT_REQUEST: u32 = 1;
/// RTRS_XRESP: ROPT_XMTRESP.
pub const SUPPORT_RESPONSE: u32 = 2;
/// RTRS_XCONT: ROPT_XMTCONT.
pub const SUPPORT_CONTINUATION: u32 = 4;

/// The properties, in rtrext-00 characteristics, of this extension (rtrext-02 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// XPROP_RTRSUPP: a word with the bits of what is supported ([`SUPPORT_REQUEST`] and so on).
    Support,
    /// XPROP_RBSTRUCT: a [`BufferStructure`].
    BufferStructure,
    /// XPROP_REQRXLIM: a word, the transmissions of the longest request that a Responder takes.
    RequestLimit,
    /// XPROP_RESPSXLIM: a word, the transmissions of the longest response that a Responder makes.
    ResponseLimit,
}

impl Property {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] =
        [Self::Support, Self::BufferStructure, Self::RequestLimit, Self::ResponseLimit];

    /// Its number among the properties of a profile (rtrext-00 §8.1 for P1, rtrext-02 §8.1 for P2); P3 knows
    /// nothing of this.
    #[must_use]
    pub const fn id(self, profile: Profile) -> Option<u32> {
        let first = match profile {
            Profile::P1 => 4,
            Profile::P2 => 3,
            Profile::P3 => return None,
        };
        Some(first + self as u32)
    }

    /// The property with this number in a profile.
    #[must_use]
    pub fn of(profile: Profile, id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.id(profile) == Some(id))
    }

    /// The word that is assumed of a side that says nothing (rtrext-02 §8.1, table 3); `None` for the one
    /// that is no word, whose default is [`BufferStructure::default_of`] the receive size.
    #[must_use]
    pub const fn default_word(self) -> Option<u32> {
        match self {
            Self::Support => Some(0),
            Self::RequestLimit | Self::ResponseLimit => Some(1),
            Self::BufferStructure => None,
        }
    }
}

/// Which numbers the operations have. rtrext-01 to rtrext-03 give both; rtrext-00, whose operations stand
/// beside those on characteristics, has the first only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationBase {
    /// 5 to 8, apart from the operations on characteristics of P1 (rtrext-02 §9.1, table 4).
    #[default]
    Separate,
    /// 1 to 4, as in the XDR (rtrext-02 §9.2 to §9.5, §10.2). In P1 these are the operations on
    /// characteristics.
    Tables,
}

/// The operations of this extension (rtrext-02 §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationType {
    /// ROPT_XMTREQ.
    Request,
    /// ROPT_XMTRESP.
    Response,
    /// ROPT_XMTCONT.
    Continuation,
    /// ROPT_REPTERR.
    Report,
}

impl OperationType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Request, Self::Response, Self::Continuation, Self::Report];

    /// `rdma_opttype`.
    #[must_use]
    pub const fn number(self, base: OperationBase) -> u32 {
        let first = match base {
            OperationBase::Separate => 5,
            OperationBase::Tables => 1,
        };
        first + self as u32
    }

    /// Returns the operation with this `rdma_opttype`.
    #[must_use]
    pub fn of(number: u32, base: OperationBase) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.number(base) == number)
    }
}

/// ROPT_XMTREQ (`optxmt_req`, rtrext-02 §9.2): the first or only transmission of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmitRequest {
    /// `optxrq_dp`: its bulk items, those of the later transmissions too.
    pub placed: Vec<PlacedItem>,
    /// `optxrq_rsd`: what to do with those of the response.
    pub response: Vec<ResponseSet>,
    /// `optxrq_count`: transmissions of the request, this one included.
    pub count: u32,
    /// `optxrq_rsbuf`: Receives that the Requester has for the response.
    pub response_buffers: u32,
    /// `optxrq_pslen`: bytes of the Payload stream in this transmission.
    pub payload_len: u32,
}

impl TransmitRequest {
    /// Returns the fault of a request that decodes. A location can have a type that only responses have
    /// (rtrext-02 §6.2, table 1). Ranges of response sets have to be disjoint and strictly increasing (§7.4).
    /// The draft has no error code for either, so both are reported as bad offsets.
    #[must_use]
    pub fn fault(&self) -> Option<ReportedError> {
        let placed = self.placed.iter().find_map(PlacedItem::fault_in_request);
        placed.or_else(|| ResponseSet::fault_in_order(&self.response))
    }
}

/// ROPT_XMTRESP (`optxmt_resp`, rtrext-02 §9.3): the first or only transmission of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmitResponse {
    /// `optxrs_dp`: what became of each direction of the request, also in the later transmissions.
    pub placed: Vec<PlacedItem>,
    /// `optxrs_count`: transmissions of the response, this one included.
    pub count: u32,
    /// `optxrs_pslen`: bytes of the Payload stream in this transmission.
    pub payload_len: u32,
}

/// ROPT_XMTCONT (`optxmt_cont`, rtrext-02 §9.4): a later transmission of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitContinuation {
    /// `optxc_xnum`: its number in the group. Whether numbers begin with 0 or 1 is not said.
    pub number: u32,
    /// `optxc_itype`, which is not explained; by its name the `rdma_opttype` of the first transmission.
    pub initial_type: u32,
    /// `optxc_pslen`: bytes of the Payload stream in this transmission, possibly none.
    pub payload_len: u32,
}

structure!(TransmitRequest { placed, response, count, response_buffers, payload_len });
structure!(TransmitResponse { placed, count, payload_len });
structure!(TransmitContinuation { number, initial_type, payload_len });

arrays! {
    PlacedItem: placed_items, TooManyPlacedItems;
    ResponseSet: response_sets, TooManyResponseSets;
    ResponseDirection: items_per_set, TooManyDirections;
    Segment: segments_per_chunk, TooManySegments;
    u32: target_segments, TooManyTargets;
    BufferGroup: buffer_groups, TooManyBufferGroups;
}

/// An operation of this extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// ROPT_XMTREQ.
    Request(TransmitRequest),
    /// ROPT_XMTRESP.
    Response(TransmitResponse),
    /// ROPT_XMTCONT.
    Continuation(TransmitContinuation),
    /// ROPT_REPTERR.
    Report(ErrorReport),
}

impl Operation {
    /// Which one it is.
    #[must_use]
    pub const fn kind(&self) -> OperationType {
        match self {
            Self::Request(_) => OperationType::Request,
            Self::Response(_) => OperationType::Response,
            Self::Continuation(_) => OperationType::Continuation,
            Self::Report(_) => OperationType::Report,
        }
    }

    /// Decodes the opaque data of `rdma_optinfo`, all of it.
    ///
    /// # Errors
    /// [`Malformed`]: an XDR error, or more of something than the limits allow.
    pub fn decode(kind: OperationType, info: &[u8], limits: &Limits) -> Result<Self, Malformed> {
        Words::whole(info, limits, |words| {
            Ok(match kind {
                OperationType::Request => Self::Request(Structure::decode(words)?),
                OperationType::Response => {
                    words.direction = Direction::Reply;
                    Self::Response(Structure::decode(words)?)
                }
                OperationType::Continuation => Self::Continuation(Structure::decode(words)?),
                OperationType::Report => Self::Report(Structure::decode(words)?),
            })
        })
    }

    fn content(&self) -> &dyn Structure {
        match self {
            Self::Request(request) => request,
            Self::Response(response) => response,
            Self::Continuation(continuation) => continuation,
            Self::Report(report) => report,
        }
    }

    /// Returns the bytes that [`Self::encode`] appends: a multiple of four.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.content().wire_len()
    }

    /// Appends the opaque data of `rdma_optinfo`, without its length.
    pub fn encode(&self, out: &mut BytesMut) {
        self.content().append(out);
    }
}

#[cfg(test)]
mod tests;
