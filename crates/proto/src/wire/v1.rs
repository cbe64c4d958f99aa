//! The header of RPC-over-RDMA Version One (RFC 8166 §4).
//!
//! Decoding is strict and bounded: counts are checked against [`Limits`] as they are met, and nothing is
//! allocated ahead of the bytes that prove it. An error tells the offending value. No buffer is owned here.
//! Encoding cannot fail: the planner bounds lengths.

use bytes::{BufMut, BytesMut};

use super::lists::{chunk_lists, lists_len, put_lists};
use super::reader::Reader;
use super::{
    Body, Codec, ErrorBody, FIXED_LEN, Fixed, Header, Limits, List, ProtocolError, RDMA_DONE, RDMA_ERROR,
    Rules, Shape, open, put_error, put_start,
};

/// The value of `rdma_vers`.
pub const VERSION: u32 = 1;

const RDMA_MSG: u32 = 0;
const RDMA_NOMSG: u32 = 1;
const RDMA_MSGP: u32 = 2;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// An RDMA_MSG or RDMA_NOMSG header with three absent lists; nothing else may be shorter (RFC 8166 §4.5).
const LEAST_MESSAGE: usize = 28;

const WORD: usize = 4;

/// Read segments can be XDR padding, if that was opted into.
const PADS: bool = true;

static RULES: Rules = Rules {
    version: VERSION,
    name: "Version One",
    default_inline: 1024,
    largest_inline: 262_144,
    initial_credits: 1,
    two: None,
};

/// The codec of Version One.
#[derive(Clone, Copy, Debug)]
pub struct V1;

impl Codec for V1 {
    fn rules(&self) -> &'static Rules {
        &RULES
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let (fixed, mut reader) = open(message, VERSION, |procedure| match procedure {
            RDMA_DONE | RDMA_ERROR => FIXED_LEN,
            _ => LEAST_MESSAGE,
        })?;
        let body = match fixed.procedure {
            RDMA_MSG => Body::Message(chunk_lists(&mut reader, limits, PADS)?),
            RDMA_NOMSG => Body::NoMessage(chunk_lists(&mut reader, limits, PADS)?),
            RDMA_MSGP => {
                let align = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Padding })?;
                let threshold = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Padding })?;
                Body::Padded { align, threshold, lists: chunk_lists(&mut reader, limits, PADS)? }
            }
            RDMA_DONE => Body::Done,
            RDMA_ERROR => Body::Error(error_body(&mut reader)?),
            // RFC 8166 §4.5.2
            procedure => return Err(ProtocolError::UnknownProcedure { procedure }),
        };
        let Fixed { xid, version, credit, .. } = fixed;
        let header = Header { xid, version, credit, direction: None, invalidate: 0, body };
        Ok((header, FIXED_LEN + reader.position()))
    }

    fn header_len(&self, shape: &Shape) -> usize {
        FIXED_LEN + lists_len(shape)
    }

    fn padded_extra(&self) -> Option<usize> {
        Some(2 * WORD)
    }

    fn encode(&self, header: &Header, out: &mut BytesMut) {
        put_start(header, out);
        match &header.body {
            Body::Message(lists) => {
                out.put_u32(RDMA_MSG);
                put_lists(lists, out);
            }
            Body::NoMessage(lists) => {
                out.put_u32(RDMA_NOMSG);
                put_lists(lists, out);
            }
            Body::Padded { align, threshold, lists } => {
                out.put_u32(RDMA_MSGP);
                out.put_u32(*align);
                out.put_u32(*threshold);
                put_lists(lists, out);
            }
            Body::Done => out.put_u32(RDMA_DONE),
            Body::Error(ErrorBody::Version { low, high }) => put_error(ERR_VERS, &[*low, *high], out),
            // No other error exists in Version One, and no message of Version Two.
            Body::Error(_) | Body::Two(_) => put_error(ERR_CHUNK, &[], out),
        }
    }

    fn refusal(&self, error: &ProtocolError) -> ErrorBody {
        match error {
            ProtocolError::VersionChanged { used, .. } => ErrorBody::Version { low: *used, high: *used },
            _ => ErrorBody::Chunk,
        }
    }
}

/// RFC 8166 §4.5. Bytes after a recognised arm are ignored: RFC 5666 §4.3 had senders append some.
fn error_body(reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
    let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
    match word()? {
        ERR_VERS => Ok(ErrorBody::Version { low: word()?, high: word()? }),
        ERR_CHUNK => Ok(ErrorBody::Chunk),
        code => Err(ProtocolError::UnknownErrorCode { code }),
    }
}

#[cfg(test)]
mod tests;
