//! Both sides of the mechanism krb5.

use std::ffi::c_int;
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_oncrpc::gss::{
    Accepting, Acceptor, Created, Initiating, Initiator, MechanismError, Principal, SecurityContext, Step,
    major,
};
use thiserror::Error;

use crate::checksum::Checksums;
use crate::derivation::EncryptionType;
use crate::ffi::{
    ACCEPT, CONFIDENTIALITY, CONTINUE_NEEDED, HOST_BASED_SERVICE, INDEFINITE, INITIATE, INTEGRITY, KRB5,
    MUTUAL, REPLAY, SEQUENCE, gss_OID,
};
use crate::library::{Functions, LoadError, functions, none};
use crate::objects::{Context, Credentials, Name, Output, changeable, check, input, joined, oid};
use crate::privacy::Privacy;
use crate::token::{Refused, Role};

/// Service of NFS servers in names of Kerberos (RFC 7530 §3.2.1.1).
const SERVICE: &str = "nfs";

/// Most that a token adds to a message (RFC 4121 §4.2.4, §4.2.6), in bytes: two headers of 16, a confounder of 16, a pad of
/// 16, and a checksum of 24 (RFC 8009 §2).
const GROWTH: usize = 4 * 16 + 24;

/// Message that library and crate protect, before a context uses the code of the crate.
const TRIAL: &[u8] = b"rpcrdma computes what the library computes";

/// Reason why there are no credentials.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library is missing.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The library finds no credentials.
    #[error("{what}: {error}")]
    Credentials {
        /// What was looked for, and where.
        what: String,
        /// The library's error.
        error: MechanismError,
    },
}

/// A server's keys for the service `nfs`.
pub struct KerberosAcceptor {
    functions: &'static Functions,
    credentials: Arc<Credentials>,
    computing: Computing,
}

impl fmt::Debug for KerberosAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosAcceptor").finish_non_exhaustive()
    }
}

impl KerberosAcceptor {
    /// Opens a keytab, by default that of the system (`/etc/krb5.keytab`). It has to have a key of `nfs/HOST` for some HOST.
    ///
    /// # Errors
    /// Each variant of [`OpenError`].
    pub fn open(keytab: Option<&Path>) -> Result<Self, OpenError> {
        let functions = functions()?;
        let path = keytab.map(|path| path.display().to_string());
        let what = match &path {
            Some(path) => format!("no key of {SERVICE}/HOST in the keytab {path}"),
            None => format!("no key of {SERVICE}/HOST in the keytab of the system"),
        };
        let failed = |error| OpenError::Credentials { what: what.clone(), error };
        let name = Name::import(functions, SERVICE, HOST_BASED_SERVICE).map_err(failed)?;
        let keytab = path.iter().map(|path| ("keytab", path.as_str()));
        // A repeated token makes a context whose keys only its first sender has. So no cache of tokens on disk is needed.
        let store: Vec<_> = keytab.clone().chain([("rcache", "none:")]).collect();
        let credentials = Credentials::acquire(functions, Some(&name), ACCEPT, &store).or_else(|_| {
            // Older versions of the library do not know the key `rcache`.
            let store: Vec<_> = keytab.collect();
            Credentials::acquire(functions, Some(&name), ACCEPT, &store)
        });
        let credentials = Arc::new(credentials.map_err(failed)?);
        Ok(Self { functions, credentials, computing: Computing::Tried })
    }

    /// Lets the library protect the messages of all contexts, to compare it or to find an error.
    #[must_use]
    pub const fn with_library_protection(mut self) -> Self {
        self.computing = Computing::Library;
        self
    }
}

impl Acceptor for KerberosAcceptor {
    fn begin(&self) -> Box<dyn Accepting> {
        Box::new(AcceptingContext {
            context: Context::none(self.functions),
            credentials: Arc::clone(&self.credentials),
            computing: self.computing,
        })
    }
}

struct AcceptingContext {
    context: Context,
    credentials: Arc<Credentials>,
    computing: Computing,
}

impl Accepting for AcceptingContext {
    fn step(&mut self, token: &[u8]) -> Result<Step, MechanismError> {
        let functions = self.context.functions();
        let (mut minor, mut seconds, mut flags) = (0, 0, 0);
        let mut token = input(token);
        let mut mechanism: gss_OID = null_mut();
        let mut name = Name::none(functions);
        let mut answer = Output::new(functions);
        // SAFETY: all pointers are null where the library allows that, or to values that live longer than the call. No other
        // thread has the context.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_accept_sec_context)(
                &raw mut minor,
                &raw mut self.context.handle,
                self.credentials.handle,
                &raw mut token,
                none(),
                &raw mut name.handle,
                &raw mut mechanism,
                &raw mut answer.buffer,
                &raw mut flags,
                &raw mut seconds,
                none(),
            )
        };
        let status = check(functions, status, minor)?;
        let token = answer.to_bytes();
        if status & CONTINUE_NEEDED != 0 {
            return Ok(Step { token, created: None });
        }
        let peer =
            Principal { name: name.display()?, mechanism: Bytes::from_static(KRB5), local: name.local() };
        let context = std::mem::replace(&mut self.context, Context::none(functions));
        let context = KerberosContext::new(context, Role::Acceptor, flags, self.computing);
        Ok(Step { token, created: Some(created(context, peer, seconds)) })
    }
}

/// Returns a context that is complete. Its lifetime is in seconds.
fn created(context: KerberosContext, peer: Principal, seconds: u32) -> Created {
    let lifetime = (seconds != INDEFINITE).then(|| Duration::from_secs(seconds.into()));
    Created { context: Arc::new(context), peer, lifetime }
}

/// The code that protects the messages of a context.
#[derive(Clone, Copy, Debug)]
enum Computing {
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

/// A client's credentials: tickets in a cache, or keys in a keytab.
pub struct KerberosInitiator {
    functions: &'static Functions,
    credentials: Arc<Credentials>,
    computing: Computing,
}

impl fmt::Debug for KerberosInitiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosInitiator").finish_non_exhaustive()
    }
}

impl KerberosInitiator {
    /// Finds credentials: in this cache of tickets, by default the user's (`KRB5CCNAME`). With a keytab, tickets are got with
    /// its first key.
    ///
    /// # Errors
    /// Each variant of [`OpenError`].
    pub fn open(cache: Option<&str>, keytab: Option<&Path>) -> Result<Self, OpenError> {
        let functions = functions()?;
        let keytab = keytab.map(|path| path.display().to_string());
        let mut store = Vec::new();
        store.extend(cache.map(|cache| ("ccache", cache)));
        store.extend(keytab.iter().map(|path| ("client_keytab", path.as_str())));
        let credentials = Credentials::acquire(functions, None, INITIATE, &store).map_err(|error| {
            let what = match (&keytab, cache) {
                (Some(path), _) => format!("no tickets with the keys of {path}"),
                (None, Some(cache)) => format!("no tickets in {cache} (kinit gets some)"),
                (None, None) => "no tickets (kinit gets some)".to_owned(),
            };
            OpenError::Credentials { what, error }
        })?;
        Ok(Self { functions, credentials: Arc::new(credentials), computing: Computing::Tried })
    }

    /// Lets the library protect the messages of all contexts, to compare it or to find an error.
    #[must_use]
    pub const fn with_library_protection(mut self) -> Self {
        self.computing = Computing::Library;
        self
    }
}

impl Initiator for KerberosInitiator {
    fn begin(&self, service: &str) -> Result<Box<dyn Initiating>, MechanismError> {
        Ok(Box::new(InitiatingContext {
            context: Context::none(self.functions),
            credentials: Arc::clone(&self.credentials),
            target: Name::import(self.functions, service, HOST_BASED_SERVICE)?,
            service: service.to_owned(),
            computing: self.computing,
        }))
    }
}

struct InitiatingContext {
    context: Context,
    credentials: Arc<Credentials>,
    target: Name,
    service: String,
    computing: Computing,
}

impl Initiating for InitiatingContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step, MechanismError> {
        let functions = self.context.functions();
        let (mut minor, mut seconds, mut flags) = (0, 0, 0);
        let mut token = input(token.unwrap_or_default());
        let mut mechanism = oid(KRB5);
        let mut answer = Output::new(functions);
        // RFC 2203 §5.2.2: neither replay detection nor sequencing.
        let wanted = MUTUAL | INTEGRITY | CONFIDENTIALITY;
        // SAFETY: all pointers are null where the library allows that, or to values that live longer than the call. No other
        // thread has the context.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_init_sec_context)(
                &raw mut minor,
                self.credentials.handle,
                &raw mut self.context.handle,
                self.target.handle,
                &raw mut mechanism,
                wanted,
                0,
                none(),
                &raw mut token,
                none(),
                &raw mut answer.buffer,
                &raw mut flags,
                &raw mut seconds,
            )
        };
        let status = check(functions, status, minor)?;
        let token = answer.to_bytes();
        if status & CONTINUE_NEEDED != 0 {
            return Ok(Step { token, created: None });
        }
        let peer = Principal { name: self.service.clone(), mechanism: Bytes::from_static(KRB5), local: None };
        let context = std::mem::replace(&mut self.context, Context::none(functions));
        let context = KerberosContext::new(context, Role::Initiator, flags, self.computing);
        Ok(Step { token, created: Some(created(context, peer, seconds)) })
    }
}

/// A context that is complete.
struct KerberosContext {
    context: Mutex<Context>,
    /// Protection without the library, and so without the lock.
    own: Option<Own>,
}

/// Protection by this crate.
struct Own {
    checksums: Checksums,
    /// `None` if the library encrypts.
    privacy: Option<Privacy>,
}

impl fmt::Debug for KerberosContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.own.as_ref();
        let checksums: Option<&dyn fmt::Debug> = own.map(|own| &own.checksums as _);
        let privacy: Option<&dyn fmt::Debug> = own.and_then(|own| own.privacy.as_ref()).map(|own| own as _);
        f.debug_struct("KerberosContext")
            .field("checksums", checksums.unwrap_or(&Computing::Library))
            .field("privacy", privacy.unwrap_or(&Computing::Library))
            .finish_non_exhaustive()
    }
}

impl KerberosContext {
    /// Takes a complete context of the library, with its flags.
    fn new(context: Context, role: Role, flags: u32, computing: Computing) -> Self {
        let mut complete = Self { context: Mutex::new(context), own: None };
        if computing.tries(flags) {
            complete.own = complete.trial(role, flags);
        }
        complete
    }

    /// Returns the crate's protection, if both sides' tokens prove to be those of the library.
    fn trial(&self, role: Role, flags: u32) -> Option<Own> {
        let (kind, key) = self.lock().session_key()?;
        let token = self.library_mic(&[TRIAL]).ok()?;
        let kind = EncryptionType::from_number(kind)?;
        let checksums = Checksums::from_trial(kind, &key, role, TRIAL, &token)?;
        self.library_verify(&[TRIAL], &checksums.peers_mic(TRIAL)).ok()?;
        let private = flags & CONFIDENTIALITY != 0;
        let privacy = private.then(|| self.privacy_trial(kind, &key, role, checksums.subkey())).flatten();
        Some(Own { checksums, privacy })
    }

    /// Returns the crate's encryption, if the library's peer understands the library, and the library understands it.
    fn privacy_trial(&self, kind: EncryptionType, key: &[u8], role: Role, subkey: u8) -> Option<Privacy> {
        let peer = Privacy::new(kind, key, role.other(), subkey)?;
        let there = peer.unwrap(&self.library_wrap(&[TRIAL]).ok()?).ok()?;
        let back = self.library_unwrap(&peer.wrap(0, &[TRIAL]).ok()?).ok()?;
        (there == TRIAL && back == TRIAL).then(|| Privacy::new(kind, key, role, subkey)).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Context> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn library_mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
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

    fn library_verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError> {
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

    fn library_wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
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

    fn library_unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError> {
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

impl SecurityContext for KerberosContext {
    fn growth(&self) -> usize {
        GROWTH
    }

    fn is_quick(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.privacy.is_some())
    }

    fn mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        match &self.own {
            Some(own) => Ok(own.checksums.mic(message)),
            None => self.library_mic(message),
        }
    }

    fn verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError> {
        let Some(own) = &self.own else { return self.library_verify(message, mic) };
        match own.checksums.verify(message, mic) {
            Ok(()) => Ok(()),
            // The initiator's key, before it knew of the acceptor's. The library has both.
            Err(Refused::ForLibrary) => self.library_verify(message, mic),
            Err(Refused::Defective) => {
                Err(MechanismError::new(major::DEFECTIVE_TOKEN, 0, "a checksum is no token of GSS_GetMIC"))
            }
            Err(Refused::Checksum) => {
                Err(MechanismError::new(major::BAD_MIC, 0, "the checksum is that of another message"))
            }
        }
    }

    fn wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        let Some(Own { checksums, privacy: Some(privacy) }) = &self.own else {
            return self.library_wrap(message);
        };
        privacy.wrap(checksums.number(), message).map_err(|error| {
            MechanismError::new(major::FAILURE, 0, format!("no random bytes to encrypt a message: {error}"))
        })
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError> {
        let Some(Own { privacy: Some(privacy), .. }) = &self.own else { return self.library_unwrap(wrapped) };
        privacy.unwrap(wrapped).or_else(|refused| match refused {
            Refused::ForLibrary => self.library_unwrap(wrapped),
            Refused::Defective => {
                Err(MechanismError::new(major::DEFECTIVE_TOKEN, 0, "a message is no token of GSS_Wrap"))
            }
            Refused::Checksum => {
                Err(MechanismError::new(major::BAD_MIC, 0, "a wrapped message is not what the peer sent"))
            }
        })
    }
}

/// Checks that a wrapped message is encrypted: one with a checksum only is no private one.
fn is_encrypted(encrypted: c_int) -> Result<(), MechanismError> {
    if encrypted == 0 {
        return Err(MechanismError::new(major::FAILURE, 0, "a wrapped message is not encrypted"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_whose_numbers_are_checked_are_left_to_the_library() {
        let flags = MUTUAL | INTEGRITY | CONFIDENTIALITY;
        assert!(Computing::Tried.tries(flags));
        assert!(!Computing::Tried.tries(flags | REPLAY));
        assert!(!Computing::Tried.tries(flags | SEQUENCE));
        assert!(!Computing::Library.tries(flags));
    }
}
