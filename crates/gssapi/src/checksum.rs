//! Tokens of GSS_GetMIC (RFC 4121 §4.2.6.1), for encryption types with AES.
//!
//! The library needs a lock around the context, and a message in one slice. MIT's own code for hashes does not use the
//! processor's instructions for SHA. This module uses them where they are, and needs neither lock nor copy.
//!
//! *Keys.* A context has two, one for each direction. They are overwritten when the context ends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384};

use crate::derivation::EncryptionType;
use crate::token::{FILLER, HEADER_LEN, Refused, Role, flags};

/// Both bytes of the token's id, 04 04.
const ID: u8 = 4;
/// The keys of checksums of a context.
pub(crate) struct Checksums {
    kind: EncryptionType,
    role: Role,
    own: Keyed,
    peer: Keyed,
    /// The flag of a subkey of the acceptor, or none.
    subkey: u8,
    /// Number of the next token, of GSS_GetMIC or GSS_Wrap. Nobody checks these numbers: RPCSEC_GSS has its own (RFC 2203
    /// §5.2.2).
    next: AtomicU64,
}

impl fmt::Debug for Checksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Checksums {
    /// Takes the key of a context, if it makes the same token for a message as the library did.
    ///
    /// The token also says whether the key is the acceptor's, and which number comes next.
    pub(crate) fn from_trial(
        kind: EncryptionType,
        key: &[u8],
        role: Role,
        message: &[u8],
        token: &[u8],
    ) -> Option<Self> {
        let (header, _) = parse(token)?;
        let keyed = |side: Role| Keyed::new(kind, &kind.checksum_key(key, side.sign_usage())?);
        let checksums = Self {
            kind,
            role,
            own: keyed(role)?,
            peer: keyed(role.other())?,
            subkey: header.flags & flags::ACCEPTOR_SUBKEY,
            next: AtomicU64::new(header.number.wrapping_add(1)),
        };
        (checksums.token(role, header.number, &[message]) == token).then_some(checksums)
    }

    /// Returns the token for a message that lies in several slices.
    pub(crate) fn mic(&self, message: &[&[u8]]) -> Bytes {
        self.token(self.role, self.number(), message).into()
    }

    /// Returns the number of another token.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the flag that tokens of the context have for the key: the acceptor's subkey, or none.
    pub(crate) const fn subkey(&self) -> u8 {
        self.subkey
    }

    /// Returns a token as the peer makes it, with the number 0.
    pub(crate) fn peers_mic(&self, message: &[u8]) -> Bytes {
        self.token(self.role.other(), 0, &[message]).into()
    }

    fn token(&self, side: Role, number: u64, message: &[&[u8]]) -> Vec<u8> {
        let header = Header { flags: side.flag() | self.subkey, number }.to_bytes();
        let keyed = if side == self.role { &self.own } else { &self.peer };
        let len = self.kind.checksum_len();
        let mut token = Vec::with_capacity(HEADER_LEN.saturating_add(len));
        token.extend_from_slice(&header);
        keyed.append(message, &header, len, &mut token);
        token
    }

    /// Checks a token of the peer.
    ///
    /// # Errors
    /// [`Refused::Defective`] or [`Refused::Checksum`].
    pub(crate) fn verify(&self, message: &[&[u8]], token: &[u8]) -> Result<(), Refused> {
        let (header, checksum) = parse(token).ok_or(Refused::Defective)?;
        if checksum.len() != self.kind.checksum_len() || header.flags & flags::SEALED != 0 {
            return Err(Refused::Defective);
        }
        if header.flags & (flags::SENT_BY_ACCEPTOR | flags::ACCEPTOR_SUBKEY)
            != self.role.other().flag() | self.subkey
        {
            return Err(Refused::Checksum);
        }
        // All bits of the header are covered, those of unknown flags too.
        let is_right = self.peer.is_right(message, &header.to_bytes(), checksum);
        is_right.then_some(()).ok_or(Refused::Checksum)
    }
}

/// The parts in which the headers of two tokens can differ.
struct Header {
    flags: u8,
    number: u64,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let [a, b, c, d, e, f, g, h] = self.number.to_be_bytes();
        [ID, ID, self.flags, FILLER, FILLER, FILLER, FILLER, FILLER, a, b, c, d, e, f, g, h]
    }
}

/// Takes a token apart: header and checksum. `None` if it is no token of GSS_GetMIC.
fn parse(token: &[u8]) -> Option<(Header, &[u8])> {
    let (header, checksum) = token.split_first_chunk::<HEADER_LEN>()?;
    let [ID, ID, flags, FILLER, FILLER, FILLER, FILLER, FILLER, number @ ..] = *header else {
        return None;
    };
    Some((Header { flags, number: u64::from_be_bytes(number) }, checksum))
}

/// A hash with a key.
enum Keyed {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
}

/// Does something with the hash, whichever it is.
macro_rules! with {
    ($keyed:expr, $hash:ident => $result:expr) => {
        match $keyed {
            Keyed::Sha1($hash) => $result,
            Keyed::Sha256($hash) => $result,
            Keyed::Sha384($hash) => $result,
        }
    };
}

impl Keyed {
    fn new(kind: EncryptionType, key: &[u8]) -> Option<Self> {
        Some(match kind {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
                Self::Sha1(KeyInit::new_from_slice(key).ok()?)
            }
            EncryptionType::Aes128Sha256 => Self::Sha256(KeyInit::new_from_slice(key).ok()?),
            EncryptionType::Aes256Sha384 => Self::Sha384(KeyInit::new_from_slice(key).ok()?),
        })
    }

    /// Appends the first bytes of the checksum.
    fn append(&self, message: &[&[u8]], header: &[u8], len: usize, token: &mut Vec<u8>) {
        with!(self, hash => token.extend(hashed(hash, message, header).finalize().as_bytes().iter().take(len)));
    }

    /// Compares the first bytes of the checksum, in a time that does not depend on them.
    fn is_right(&self, message: &[&[u8]], header: &[u8], checksum: &[u8]) -> bool {
        with!(self, hash => hashed(hash, message, header).verify_truncated_left(checksum).is_ok())
    }
}

/// Hashes the message and, behind it, the header (RFC 4121 §4.2.4).
fn hashed<M: Mac + Clone>(keyed: &M, message: &[&[u8]], header: &[u8]) -> M {
    let mut hash = keyed.clone();
    message.iter().for_each(|part| hash.update(part));
    hash.update(header);
    hash
}

#[cfg(test)]
mod tests;
