//! Protection of the messages of a complete context: by this crate, or by the library.
//!
//! The decision falls once, when a context is complete. A context with this crate's protection then has neither a context of the
//! library nor a lock.
//!
//! *Errors.* Refused tokens have the library's status codes, whichever code checks them.

use std::ffi::c_int;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rpcrdma_oncrpc::gss::{MechanismError, SecurityContext, major};

use crate::checksum::Checksums;
use crate::derivation::EncryptionType;
use crate::ffi::{CONFIDENTIALITY, REPLAY, SEQUENCE};
use crate::objects::{Context, Output, changeable, check, input, joined};
use crate::privacy::Privacy;
use crate::token::{Refused, Role};

/// Most that a token adds to a message (RFC 4121 §4.2.4, §4.2.6), in bytes: two headers of 16, a confounder of 16, a pad of
/// 16, and a checksum of 24 (RFC 8009 §2).
const GROWTH: usize = 4 * 16 + 24;

/// Message that library and crate protect, before a context uses the code of the crate.
const TRIAL: &[u8] = b"rpcrdma computes what the library computes";

/// The code that protects the messages of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Computing {
    /// This crate, if it computes the same as the library.
    Tried,
    /// The library.
    Library,
}

impl Computing {
    /// Returns whether a context with these flags may try the crate's code.
    ///
    /// A peer that checks the numbers of tokens gets all of them from one counter: the library's.
    const fn tries(self, flags: u32) -> bool {
        matches!(self, Self::Tried) && flags & (REPLAY | SEQUENCE) == 0
    }
}

/// Returns a complete context of the library, with the code that protects its messages.
pub(crate) fn protected(context: Context, role: Role, flags: u32, computing: Computing) -> KerberosContext {
    let library = LibraryContext(Mutex::new(context));
    let trial = computing.tries(flags).then(|| library.trial(role, flags)).flatten();
    KerberosContext(match trial {
        None => Protection::Library(library),
        Some((checksums, None)) => Protection::Checksums(checksums, library),
        Some((checksums, Some(privacy))) => Protection::Own(checksums, privacy),
    })
}

/// A context that is complete.
pub(crate) struct KerberosContext(Protection);

/// The code that protects messages.
enum Protection {
    /// This crate's.
    Own(Checksums, Privacy),
    /// This crate's for checksums. The library encrypts: the context has no confidentiality, or the trial of it failed.
    Checksums(Checksums, LibraryContext),
    /// The library's.
    Library(LibraryContext),
}

impl fmt::Debug for KerberosContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (checksums, privacy): (&dyn fmt::Debug, &dyn fmt::Debug) = match &self.0 {
            Protection::Own(checksums, privacy) => (checksums, privacy),
            Protection::Checksums(checksums, _) => (checksums, &Computing::Library),
            Protection::Library(_) => (&Computing::Library, &Computing::Library),
        };
        f.debug_struct("KerberosContext")
            .field("checksums", checksums)
            .field("privacy", privacy)
            .finish_non_exhaustive()
    }
}

impl SecurityContext for KerberosContext {
    fn growth(&self) -> usize {
        GROWTH
    }

    fn is_quick(&self) -> bool {
        matches!(self.0, Protection::Own(..))
    }

    fn mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        match &self.0 {
            Protection::Own(checksums, _) | Protection::Checksums(checksums, _) => Ok(checksums.mic(message)),
            Protection::Library(library) => library.mic(message),
        }
    }

    fn verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError> {
        match &self.0 {
            Protection::Own(checksums, _) | Protection::Checksums(checksums, _) => {
                checksums.verify(message, mic).map_err(|refused| {
                    refused.error(
                        "a checksum is no token of GSS_GetMIC",
                        "the checksum is that of another message",
                    )
                })
            }
            Protection::Library(library) => library.verify(message, mic),
        }
    }

    fn wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        match &self.0 {
            Protection::Own(checksums, privacy) => {
                privacy.wrap(checksums.number(), message).map_err(|error| {
                    let text = format!("no random bytes to encrypt a message: {error}");
                    MechanismError::new(major::FAILURE, 0, text)
                })
            }
            Protection::Checksums(_, library) | Protection::Library(library) => library.wrap(message),
        }
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError> {
        match &self.0 {
            Protection::Own(_, privacy) => privacy.unwrap(wrapped).map_err(|refused| {
                refused
                    .error("a message is no token of GSS_Wrap", "a wrapped message is not what the peer sent")
            }),
            Protection::Checksums(_, library) | Protection::Library(library) => library.unwrap(wrapped),
        }
    }
}

impl Refused {
    /// Returns the error that the library would return, with a text for a defective token and one for a wrong checksum.
    fn error(self, defective: &str, checksum: &str) -> MechanismError {
        match self {
            Self::Defective => MechanismError::new(major::DEFECTIVE_TOKEN, 0, defective),
            Self::Checksum => MechanismError::new(major::BAD_MIC, 0, checksum),
            Self::NotEncrypted => not_encrypted(),
        }
    }
}

/// A complete context of the library, which one thread at a time may use.
struct LibraryContext(Mutex<Context>);

impl LibraryContext {
    /// Returns the crate's protection, if both sides' tokens prove to be those of the library: checksums, and encryption if the
    /// context has confidentiality.
    fn trial(&self, role: Role, flags: u32) -> Option<(Checksums, Option<Privacy>)> {
        let (kind, key) = self.lock().session_key()?;
        let token = self.mic(&[TRIAL]).ok()?;
        let kind = EncryptionType::from_number(kind)?;
        let checksums = Checksums::from_trial(kind, &key, role, TRIAL, &token)?;
        self.verify(&[TRIAL], &checksums.peers_mic(TRIAL)).ok()?;
        let private = flags & CONFIDENTIALITY != 0;
        let privacy = private.then(|| self.privacy_trial(kind, &key, role, checksums.subkey())).flatten();
        Some((checksums, privacy))
    }

    /// Returns the crate's encryption, if the library's peer understands the library, and the library understands it.
    fn privacy_trial(&self, kind: EncryptionType, key: &[u8], role: Role, subkey: u8) -> Option<Privacy> {
        let peer = Privacy::new(kind, key, role.other(), subkey)?;
        let there = peer.unwrap(&self.wrap(&[TRIAL]).ok()?).ok()?;
        let back = self.unwrap(&peer.wrap(0, &[TRIAL]).ok()?).ok()?;
        (there == TRIAL && back == TRIAL).then(|| Privacy::new(kind, key, role, subkey)).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Context> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        let mut space = Vec::new();
        let mut message = input(joined(message, &mut space));
        let context = self.lock();
        let functions = context.functions();
        let mut minor = 0;
        let mut mic = Output::new(functions);
        // SAFETY: all pointers are to values that live longer than the call, and the lock is held.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_get_mic)(&raw mut minor, context.handle, 0, &raw mut message, &raw mut mic.buffer)
        };
        check(functions, status, minor)?;
        Ok(mic.to_bytes())
    }

    fn verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError> {
        let mut space = Vec::new();
        let (mut message, mut mic) = (input(joined(message, &mut space)), input(mic));
        let context = self.lock();
        let functions = context.functions();
        let (mut minor, mut quality) = (0, 0);
        // SAFETY: all pointers are to values that live longer than the call, and the lock is held.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_verify_mic)(
                &raw mut minor,
                context.handle,
                &raw mut message,
                &raw mut mic,
                &raw mut quality,
            )
        };
        check(functions, status, minor).map(|_| ())
    }

    fn wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        let mut space = Vec::new();
        let mut message = input(joined(message, &mut space));
        let context = self.lock();
        let functions = context.functions();
        let mut minor = 0;
        let mut encrypted: c_int = 0;
        let mut wrapped = Output::new(functions);
        // SAFETY: all pointers are to values that live longer than the call, and the lock is held.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_wrap)(
                &raw mut minor,
                context.handle,
                1,
                0,
                &raw mut message,
                &raw mut encrypted,
                &raw mut wrapped.buffer,
            )
        };
        check(functions, status, minor)?;
        is_encrypted(encrypted)?;
        Ok(wrapped.to_bytes())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError> {
        let mut copy = wrapped.to_vec();
        let mut wrapped = changeable(&mut copy);
        let context = self.lock();
        let functions = context.functions();
        let (mut minor, mut quality) = (0, 0);
        let mut encrypted: c_int = 0;
        let mut message = Output::new(functions);
        // SAFETY: all pointers are to values that live longer than the call, and the lock is held.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_unwrap)(
                &raw mut minor,
                context.handle,
                &raw mut wrapped,
                &raw mut message.buffer,
                &raw mut encrypted,
                &raw mut quality,
            )
        };
        check(functions, status, minor)?;
        is_encrypted(encrypted)?;
        Ok(message.to_bytes())
    }
}

/// Checks that a wrapped message is encrypted: one with a checksum only is no private one.
fn is_encrypted(encrypted: c_int) -> Result<(), MechanismError> {
    if encrypted == 0 {
        return Err(not_encrypted());
    }
    Ok(())
}

fn not_encrypted() -> MechanismError {
    MechanismError::new(major::FAILURE, 0, "a wrapped message is not encrypted")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::ffi::{INTEGRITY, MUTUAL};

    #[test]
    fn contexts_whose_numbers_are_checked_are_left_to_the_library() {
        let flags = MUTUAL | INTEGRITY | CONFIDENTIALITY;
        assert!(Computing::Tried.tries(flags));
        assert!(!Computing::Tried.tries(flags | REPLAY));
        assert!(!Computing::Tried.tries(flags | SEQUENCE));
        assert!(!Computing::Library.tries(flags));
    }

    #[test]
    fn refused_tokens_have_the_status_of_the_library() {
        for (refused, major) in [
            (Refused::Defective, major::DEFECTIVE_TOKEN),
            (Refused::Checksum, major::BAD_MIC),
            (Refused::NotEncrypted, is_encrypted(0).unwrap_err().major),
        ] {
            assert_eq!(refused.error("defective", "checksum").major, major, "{refused:?}");
        }
    }
}
