//! Protection of arguments and results (RFC 2203 §5.3.2): the two directions have one form.

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Encoder, Stream, padded_len};
use thiserror::Error;

use super::mechanism::{MechanismError, SecurityContext};
use super::wire::{self, Protected, Service};
use crate::message::{CALL, CallHeader, RPC_VERSION};

/// Length of a sequence number, in bytes.
const SEQUENCE_LEN: usize = 4;
/// Length of the length of an opaque item, in bytes.
const LENGTH_LEN: usize = 4;

/// Protected data is not what its sender protected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unprotected {
    /// It does not decode, or stands in a chunk.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The mechanism refuses it.
    #[error("the mechanism refuses the data: {0}")]
    Refused(#[from] MechanismError),
    /// It belongs to another request.
    #[error("sequence number {inside} in the data, and {outside} in the header")]
    Sequence {
        /// The number in the data.
        inside: u32,
        /// The number of the request.
        outside: u32,
    },
}

impl Unprotected {
    /// Returns the error of data that stands in a chunk, where nothing is DDP-eligible (RFC 8166 §8.2.2.3).
    pub fn chunk_violation(&self) -> Option<DecodeError> {
        match self {
            Self::Malformed(error) if error.is_chunk_violation() => Some(error.clone()),
            Self::Malformed(_) | Self::Refused(_) | Self::Sequence { .. } => None,
        }
    }
}

/// Reasons why data cannot be protected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unprotectable {
    /// The mechanism refuses it.
    #[error("the mechanism cannot protect the data: {0}")]
    Refused(#[from] MechanismError),
    /// It is longer than XDR can say.
    #[error("{0}")]
    TooLong(#[from] EncodeError),
}

/// Returns the data as it travels.
pub(super) fn protect(
    context: &dyn SecurityContext,
    service: Service,
    sequence: u32,
    data: Stream,
) -> Result<Stream, Unprotectable> {
    if service == Service::None {
        return Ok(data);
    }
    let mut body = Encoder::with_capacity(SEQUENCE_LEN);
    body.u32(sequence);
    body.append(data);
    let (body, _) = body.finish().flatten();
    let mut protected = Encoder::new();
    match service {
        Service::None => {}
        Service::Integrity => {
            let mic = context.mic(&[&body])?;
            protected.payload(body, u32::MAX as usize, false)?;
            protected.opaque(&mic, u32::MAX as usize)?;
        }
        Service::Privacy => protected.payload(context.wrap(&[&body])?, u32::MAX as usize, false)?,
    }
    Ok(protected.finish())
}

/// Returns the greatest length of protected data, from that of the data.
pub(super) fn largest(context: &dyn SecurityContext, service: Service, length: usize) -> usize {
    let body = length.saturating_add(SEQUENCE_LEN);
    let opaque = |length: usize| padded_len(length).saturating_add(LENGTH_LEN);
    match service {
        Service::None => length,
        Service::Integrity => opaque(body).saturating_add(opaque(context.growth())),
        Service::Privacy => opaque(body.saturating_add(context.growth())),
    }
}

/// Returns the data as its sender protected it.
pub(super) fn unprotect(
    context: &dyn SecurityContext,
    service: Service,
    sequence: u32,
    data: Decoder,
) -> Result<Decoder, Unprotected> {
    let body = match service {
        Service::None => return Ok(data),
        Service::Integrity => {
            let Protected { body, checksum } = Protected::read(data)?;
            context.verify(&[&body], &checksum)?;
            body
        }
        Service::Privacy => context.unwrap(&wire::read_private(data)?)?,
    };
    let mut data = Decoder::new(body);
    let inside = data.u32()?;
    if inside != sequence {
        return Err(Unprotected::Sequence { inside, outside: sequence });
    }
    Ok(data)
}

/// Returns the part of a call that its verifier covers: from the XID to the credential (RFC 2203 §5.3.1).
pub(super) fn covered(call: &CallHeader) -> Result<Bytes, EncodeError> {
    let mut encoder = Encoder::new();
    for word in [call.xid, CALL, RPC_VERSION, call.program, call.version, call.procedure] {
        encoder.u32(word);
    }
    rpcrdma_xdr::Encode::encode(&call.credential, &mut encoder)?;
    Ok(encoder.finish().flatten().0)
}
