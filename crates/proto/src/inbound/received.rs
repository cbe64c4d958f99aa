//! [`Received`]: a Call or reply of the peer, between the dispatch of messages and the two halves; and the first words of
//! an RPC message.

use bytes::{Buf, Bytes};
use rpcrdma_xdr::{Padding, Payload, ReadChunk};

use crate::message::Form;
use crate::two::groups::CallGroup;
use crate::wire::{Body, ChunkLists, Direction, Header, ProtocolError, sized};

/// Bytes of the first two words of an RPC message: XID and direction.
const RPC_PREFIX: usize = 8;
pub(crate) const CALL: u32 = 0;
pub(crate) const REPLY: u32 = 1;

/// A Call or reply as received, in the form of a message in one Send.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) xid: u32,
    pub(crate) credit: u32,
    /// The direction, where the header says it.
    pub(crate) direction: Option<Direction>,
    /// The handle that the answer may invalidate, or 0, where the header says it.
    pub(crate) invalidate: Option<u32>,
    /// The chunk lists. For a transmission group they replace the operation.
    pub(crate) lists: ChunkLists,
    /// The bytes after the header, of all Sends together; `None` for RDMA_NOMSG.
    pub(crate) payload: Option<Payload>,
    /// The alignment of the payload in an RDMA_MSGP.
    pub(crate) padding: Option<Padding>,
    /// The form of a message with a payload and without chunks.
    pub(crate) form: Form,
    /// Bytes of all Sends.
    pub(crate) len: usize,
    /// Items of the message that lie in Receives, with their positions.
    pub(crate) items: Vec<ReadChunk>,
    /// The transmission group of a Call that came in one.
    pub(crate) group: Option<Box<CallGroup>>,
}

impl Received {
    /// Returns the Call or reply of a Send with this header of `header_len` bytes.
    ///
    /// # Errors
    /// The content of any other message.
    #[inline]
    pub(crate) fn alone(header: Header, header_len: usize, message: Bytes) -> Result<Self, Body> {
        let (len, mut payload) = (message.len(), message);
        payload.advance(header_len.min(len));
        Self::new(header, header_len, payload.into(), len)
    }

    /// Returns the Call or reply with this payload, which came in Sends of `len` bytes.
    ///
    /// # Errors
    /// The content of any other message.
    #[inline]
    pub(crate) fn new(header: Header, header_len: usize, payload: Payload, len: usize) -> Result<Self, Body> {
        let (lists, payload, padding) = match header.body {
            Body::Message(lists) => (lists, Some(payload), None),
            Body::NoMessage(lists) => (lists, None, None),
            Body::Padded { align, threshold, lists } => {
                let padding =
                    Padding { align: sized(align), threshold: sized(threshold), before: header_len };
                (lists, Some(payload), Some(padding))
            }
            other => return Err(other),
        };
        let form = if padding.is_some() { Form::Padded } else { Form::Inline };
        let Header { xid, credit, direction, .. } = header;
        let (items, group) = (vec![], None);
        Ok(Self {
            xid,
            credit,
            direction,
            invalidate: None,
            lists,
            payload,
            padding,
            form,
            len,
            items,
            group,
        })
    }

    /// Returns the form of the message; `reduced` if items of it are in chunks.
    pub(crate) fn form(&self, reduced: bool) -> Form {
        match self.form {
            _ if self.payload.is_none() => Form::Long,
            Form::Inline | Form::Padded if reduced => Form::Reduced,
            form => form,
        }
    }
}

/// Decodes the first two words of an RPC message.
pub(crate) fn rpc_prefix(payload: &Payload) -> Result<(u32, u32), ProtocolError> {
    match payload.first_chunk::<RPC_PREFIX>() {
        Some([a, b, c, d, e, f, g, h]) => {
            Ok((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
        }
        None => Err(ProtocolError::ShortPayload { len: payload.len(), least: RPC_PREFIX }),
    }
}

/// Checks the content of a chunk: it has to be the message that the header announced (RFC 8166 §4.2.1, §4.5.2).
pub(crate) fn check_prefix(xid: u32, message: &Payload, expected: u32) -> Result<(), ProtocolError> {
    let (payload, direction) = rpc_prefix(message)?;
    if payload != xid {
        return Err(ProtocolError::XidMismatch { header: xid, payload });
    }
    if direction != expected {
        let expected = if expected == CALL { "Call" } else { "reply" };
        return Err(ProtocolError::WrongDirection { value: direction, expected });
    }
    Ok(())
}
