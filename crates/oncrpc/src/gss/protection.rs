//! Protection of arguments and results (RFC 2203 §5.3.2): the two directions have one form.
//!
//! *Buffers.* Data with integrity stays where it is. Privacy makes a copy, which also keeps the memory of the original.

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Encoder, Piece, Stream, padded_len};
use thiserror::Error;

use super::mechanism::{MechanismError, SecurityContext};
use super::wire::{self, Protected};
use crate::auth::Service;
use crate::message::{CALL, CallHeader, RPC_VERSION};

/// Length of a sequence number, in bytes.
const SEQUENCE_LEN: usize = 4;
/// Length of the length of an opaque item, in bytes.
const LENGTH_LEN: usize = 4;

/// Protected data is not what its sender protected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
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
#[non_exhaustive]
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
    let mut protected = Encoder::with_capacity(LENGTH_LEN + SEQUENCE_LEN);
    match service {
        Service::None => return Ok(data),
        Service::Integrity => {
            protected.count(SEQUENCE_LEN.saturating_add(data.len()), u32::MAX as usize)?;
            protected.u32(sequence);
            let mic = checksum(context, sequence, &data)?;
            protected.append(without_chunks(data));
            protected.opaque(&mic, u32::MAX as usize)?;
        }
        Service::Privacy => {
            let number = sequence.to_be_bytes();
            let parts: Vec<Bytes> = data.gather().collect();
            let wrapped = context.wrap(&run(&number, &parts))?;
            protected.payload(Beside::new(wrapped, parts), u32::MAX as usize, false)?;
        }
    }
    Ok(protected.finish())
}

/// Returns the checksum of number and data, where they lie.
fn checksum(context: &dyn SecurityContext, sequence: u32, data: &Stream) -> Result<Bytes, MechanismError> {
    let number = sequence.to_be_bytes();
    let parts: Vec<Bytes> = data.gather().collect();
    context.mic(&run(&number, &parts))
}

/// Returns what is protected: number and data.
fn run<'a>(number: &'a [u8], parts: &'a [Bytes]) -> Vec<&'a [u8]> {
    std::iter::once(number).chain(parts.iter().map(AsRef::as_ref)).collect()
}

/// Memory of a mechanism, which no pool bounds. It keeps the memory of its other form, of about its length. So the bounds of
/// the pool hold for both.
struct Beside {
    data: Bytes,
    _other: Vec<Bytes>,
}

impl Beside {
    #[expect(clippy::new_ret_no_self, reason = "the memory is used as any other")]
    fn new(data: Bytes, other: Vec<Bytes>) -> Bytes {
        Bytes::from_owner(Self { data, _other: other })
    }
}

impl AsRef<[u8]> for Beside {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Returns data of which nothing is DDP-eligible (RFC 8166 §8.2.2.3).
fn without_chunks(data: Stream) -> Stream {
    let mut whole = Stream::new();
    for piece in data.into_pieces() {
        whole.push(match piece {
            Piece::Payload { data, .. } => Piece::Payload { data, ddp_eligible: false },
            inline @ Piece::Inline(_) => inline,
        });
    }
    whole
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
        Service::Privacy => {
            let wrapped = wire::read_private(data)?;
            Beside::new(context.unwrap(&wrapped)?, vec![wrapped])
        }
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

#[cfg(test)]
mod tests {
    use super::super::mechanism::Acceptor;
    use super::super::testing::TestMechanism;
    use super::*;

    /// RFC 2203 §5.3.2.2, RFC 8166 §8.2.2.3: data stays where it is, and none of it is DDP-eligible any more.
    #[test]
    fn rfc8166_8_2_2_3_data_with_integrity_is_neither_copied_nor_eligible() {
        let mechanism = TestMechanism::new("server");
        let step = Acceptor::begin(&mechanism).step(b"\x01\x01alice").unwrap();
        let context = step.created.unwrap().context;
        let data = Bytes::from(vec![7; 10_001]);
        let mut results = Encoder::new();
        results.u32(3);
        results.payload(data.clone(), 20_000, true).unwrap();
        results.u32(4);
        let results = results.finish();
        let travels = protect(&*context, Service::Integrity, 9, results.clone()).unwrap();
        let eligible = |piece: &&Piece| matches!(piece, Piece::Payload { ddp_eligible: true, .. });
        assert_eq!(travels.pieces().iter().find(eligible), None);
        let place = data.as_ptr();
        assert!(travels.pieces().iter().any(|piece| piece.data().as_ptr() == place));
        let most = largest(&*context, Service::Integrity, results.len());
        assert_eq!(travels.len(), most);
        let travels = Decoder::new(travels.flatten().0);
        let mut back = unprotect(&*context, Service::Integrity, 9, travels).unwrap();
        assert_eq!(back.bytes_fixed(results.len()).unwrap(), results.flatten().0);
    }

    #[test]
    fn the_longest_form_is_known_before() {
        let mechanism = TestMechanism::new("server");
        let step = Acceptor::begin(&mechanism).step(b"\x01\x01alice").unwrap();
        let context = step.created.unwrap().context;
        for length in [0, 4, 1000] {
            for service in [Service::None, Service::Integrity, Service::Privacy] {
                let data = Stream::from(Bytes::from(vec![1; length]));
                let travels = protect(&*context, service, 1, data).unwrap();
                assert_eq!(travels.len(), largest(&*context, service, length), "{service:?} {length}");
            }
        }
    }
}
