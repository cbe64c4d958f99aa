//! Tokens of GSS_Wrap with confidentiality (RFC 4121 §4.2.4 and §4.2.6.2), for encryption types with AES.
//!
//! The encrypted message is a confounder, the text, an Extra Count (EC) of fill bytes, and a copy of the header. This module
//! sends no fill bytes, and nothing rotated. It accepts both.
//!
//! *Errors.* They are those of the library: [`Refused::Checksum`] if nothing can be decrypted, and [`Refused::Defective`] if the
//! header is none, or differs from its copy. A message that is not encrypted is [`Refused::NotEncrypted`].
//!
//! *The header.* The checksum covers the copy of the header. The header itself has no other protection, so both are
//! compared. An Extra Count that somebody changes would otherwise cut the text. The Right Rotation Count (RRC) is not compared:
//! the copy has zeros there (§4.2.4), and with a wrong count the checksum is wrong. A peer that copies its count is understood,
//! as by other implementations: §4.2.4 tells receivers nothing about it, and only the peer can write there.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::cipher::{Open, Seal, opening, sealing};
use crate::derivation::{BLOCK_LEN, EncryptionType};
use crate::token::{FILLER, HEADER_LEN, Refused, Role, flags};

/// The token's id.
const ID: [u8; 2] = [5, 4];

/// The keys of encryption of a context.
pub(crate) struct Privacy {
    kind: EncryptionType,
    role: Role,
    own: Box<dyn Seal>,
    peer: Box<dyn Open>,
    /// The flag of a subkey of the acceptor, or none.
    subkey: u8,
}

impl fmt::Debug for Privacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Privacy {
    /// Takes the key of a context, for the side with this role. `None` if the key is none of this type.
    pub(crate) fn new(kind: EncryptionType, key: &[u8], role: Role, subkey: u8) -> Option<Self> {
        let own = sealing(kind, key, role.seal_usage())?;
        let peer = opening(kind, key, role.other().seal_usage())?;
        Some(Self { kind, role, own, peer, subkey })
    }

    /// Returns the token for a text that lies in several slices.
    ///
    /// # Errors
    /// The system has no random bytes for a confounder.
    pub(crate) fn wrap(&self, number: u64, text: &[&[u8]]) -> Result<Bytes, getrandom::Error> {
        let mut confounder = [0; BLOCK_LEN];
        getrandom::fill(&mut confounder)?;
        let header = Header { flags: self.role.flag() | self.subkey | flags::SEALED, extra: 0, number };
        Ok(self.token(&header, 0, &confounder, text).into())
    }

    /// Returns a token with any header. The text has the fill bytes, which the caller counts.
    fn token(&self, header: &Header, rotated: u16, confounder: &[u8; BLOCK_LEN], text: &[&[u8]]) -> Vec<u8> {
        let (outer, copy) = (header.to_bytes(rotated), header.to_bytes(0));
        let mut parts = Vec::with_capacity(text.len().saturating_add(1));
        parts.extend_from_slice(text);
        parts.push(&copy);
        let len = parts.iter().map(|part| part.len()).fold(HEADER_LEN + BLOCK_LEN, usize::saturating_add);
        let mut token = Vec::with_capacity(len.saturating_add(self.kind.checksum_len()));
        token.extend_from_slice(&outer);
        self.own.seal(confounder, &parts, &mut token);
        token
    }

    /// Returns the text of a token of the peer.
    ///
    /// # Errors
    /// Each variant of [`Refused`].
    pub(crate) fn unwrap(&self, token: &[u8]) -> Result<Bytes, Refused> {
        let (header, rotated, sealed) = parse(token).ok_or(Refused::Defective)?;
        if header.flags & (flags::SENT_BY_ACCEPTOR | flags::ACCEPTOR_SUBKEY)
            != self.role.other().flag() | self.subkey
        {
            return Err(Refused::Checksum);
        }
        if header.flags & flags::SEALED == 0 {
            return Err(Refused::NotEncrypted);
        }
        let sealed = turned_back(sealed, rotated.into());
        let message = Bytes::from(self.peer.open(&sealed).ok_or(Refused::Checksum)?);
        // The peer has made the rest, but may have lied.
        let (text, copy) = taken_apart(&message, header.extra.into()).ok_or(Refused::Defective)?;
        if !header.is_in(copy) {
            return Err(Refused::Defective);
        }
        Ok(message.slice_ref(text))
    }
}

/// Returns the text of a message, and the copy of the header. `None` if the message is too short for both.
fn taken_apart(message: &[u8], extra: usize) -> Option<(&[u8], &[u8; HEADER_LEN])> {
    let (_, rest) = message.split_first_chunk::<BLOCK_LEN>()?;
    let (filled, copy) = rest.split_last_chunk()?;
    Some((filled.get(..filled.len().checked_sub(extra)?)?, copy))
}

/// The parts in which the headers of two tokens can differ, but for the Right Rotation Count.
struct Header {
    flags: u8,
    /// Fill bytes behind the text.
    extra: u16,
    number: u64,
}

impl Header {
    fn to_bytes(&self, rotated: u16) -> [u8; HEADER_LEN] {
        let ([i, j], [k, l], [m, n]) = (ID, self.extra.to_be_bytes(), rotated.to_be_bytes());
        let [a, b, c, d, e, f, g, h] = self.number.to_be_bytes();
        [i, j, self.flags, FILLER, k, l, m, n, a, b, c, d, e, f, g, h]
    }

    /// Returns whether this is its copy. It ignores the Right Rotation Count there, which senders set to 0 (§4.2.4).
    fn is_in(&self, copy: &[u8; HEADER_LEN]) -> bool {
        let [.., m, n, _, _, _, _, _, _, _, _] = *copy;
        self.to_bytes(u16::from_be_bytes([m, n])) == *copy
    }
}

/// Takes a token apart: header, Right Rotation Count, and what follows. `None` if it is no token of GSS_Wrap.
fn parse(token: &[u8]) -> Option<(Header, u16, &[u8])> {
    let (header, sealed) = token.split_first_chunk::<HEADER_LEN>()?;
    let [i, j, flags, FILLER, k, l, m, n, number @ ..] = *header else {
        return None;
    };
    let header = Header { flags, extra: u16::from_be_bytes([k, l]), number: u64::from_be_bytes(number) };
    ([i, j] == ID).then_some((header, u16::from_be_bytes([m, n]), sealed))
}

/// Undoes a rotation to the right, by any number (RFC 4121 §4.2.5). Nothing is copied if nothing was rotated.
fn turned_back(sealed: &[u8], rotated: usize) -> Cow<'_, [u8]> {
    match rotated.checked_rem(sealed.len()) {
        None | Some(0) => Cow::Borrowed(sealed),
        Some(places) => {
            let (front, back) = sealed.split_at_checked(places).unwrap_or((sealed, &[]));
            Cow::Owned([back, front].concat())
        }
    }
}

#[cfg(test)]
mod tests;
