//! The needs of RPCSEC_GSS of a mechanism: the few functions of the GSS-API (RFC 2743) that RFC 2203 names.
//!
//! All of them may take long: they compute over whole messages, and creating a context may read files or wait for a
//! network. So they run on threads that may wait, but for short messages of [quick](SecurityContext::is_quick) contexts, and
//! for mechanisms that never wait ([`Acceptor::may_wait`]). Contexts are shared: several threads may use one at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::auth::Principal;

/// Major status codes (RFC 2203 Appendix A).
pub mod major {
    /// GSS_S_COMPLETE.
    pub const COMPLETE: u32 = 0;
    /// GSS_S_CONTINUE_NEEDED.
    pub const CONTINUE_NEEDED: u32 = 1;
    /// GSS_S_BAD_MIC.
    pub const BAD_MIC: u32 = 0x0006_0000;
    /// GSS_S_NO_CRED.
    pub const NO_CRED: u32 = 0x0007_0000;
    /// GSS_S_NO_CONTEXT.
    pub const NO_CONTEXT: u32 = 0x0008_0000;
    /// GSS_S_DEFECTIVE_TOKEN.
    pub const DEFECTIVE_TOKEN: u32 = 0x0009_0000;
    /// GSS_S_CREDENTIALS_EXPIRED.
    pub const CREDENTIALS_EXPIRED: u32 = 0x000b_0000;
    /// GSS_S_CONTEXT_EXPIRED.
    pub const CONTEXT_EXPIRED: u32 = 0x000c_0000;
    /// GSS_S_FAILURE.
    pub const FAILURE: u32 = 0x000d_0000;
}

/// A function of a mechanism failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct MechanismError {
    /// One of [`major`], or another status of the GSS-API.
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// The mechanism's words for it, for people.
    pub text: String,
}

impl MechanismError {
    /// Creates an error.
    pub fn new(major: u32, minor: u32, text: impl Into<String>) -> Self {
        Self { major, minor, text: text.into() }
    }

    /// Returns whether context or credentials are too old.
    #[must_use]
    pub const fn is_expired(&self) -> bool {
        matches!(self.major, major::CREDENTIALS_EXPIRED | major::CONTEXT_EXPIRED)
    }
}

/// Keys that two sides share.
pub trait SecurityContext: Send + Sync + fmt::Debug {
    /// Returns the longest checksum, and the most that encryption adds to a message, whichever is more, in bytes.
    fn growth(&self) -> usize;

    /// Returns whether the functions below only compute: no lock, no file, no network. For a few bytes they then cost less than
    /// the way to another thread.
    fn is_quick(&self) -> bool {
        false
    }

    /// Returns the checksum of a message that lies in several slices (GSS_GetMIC, default quality of protection).
    ///
    /// # Errors
    /// For instance, because the context is too old.
    fn mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError>;

    /// Checks a checksum (GSS_VerifyMIC).
    ///
    /// # Errors
    /// If it is another message's, or was made with other keys.
    fn verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError>;

    /// Encrypts a message that lies in several slices (GSS_Wrap with confidentiality).
    ///
    /// # Errors
    /// For instance, because the mechanism has no confidentiality.
    fn wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError>;

    /// Decrypts a message and checks that it was encrypted (GSS_Unwrap).
    ///
    /// # Errors
    /// If the message was changed, made with other keys, or not encrypted.
    fn unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError>;
}

/// A context that was created.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its keys.
    pub context: Arc<dyn SecurityContext>,
    /// At the server: who created it. At the client: whom it was created with.
    pub peer: Principal,
    /// How long the context can be used; `None` without end.
    pub lifetime: Option<Duration>,
}

/// Result of a step of creation.
#[derive(Clone, Debug)]
pub struct Step {
    /// Token for the other side, if there is one.
    pub token: Bytes,
    /// The context; `None` if the other side has to send a token first.
    pub created: Option<Created>,
}

/// The server's side of creating a context: GSS_Accept_sec_context.
pub trait Accepting: Send {
    /// Takes the next token of the initiator.
    ///
    /// # Errors
    /// The context cannot be created.
    fn step(&mut self, token: &[u8]) -> Result<Step, MechanismError>;
}

/// A mechanism with the server's secrets.
pub trait Acceptor: Send + Sync {
    /// Begins a context.
    fn begin(&self) -> Box<dyn Accepting>;

    /// Returns whether the mechanism's functions may wait or compute for long, so that they need threads. By default they
    /// may.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The client's side of creating a context: GSS_Init_sec_context, with neither replay detection nor sequencing
/// (RFC 2203 §5.2.2).
pub trait Initiating: Send {
    /// Takes the next token of the acceptor; none at first.
    ///
    /// # Errors
    /// The context cannot be created.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step, MechanismError>;

    /// Returns words for a status of the server's mechanism, with a remedy. `None` if this mechanism knows nothing of it.
    fn explain(&self, _major: u32, _minor: u32) -> Option<String> {
        None
    }
}

/// A mechanism with the client's secrets.
pub trait Initiator: Send + Sync {
    /// Begins a context with a service, for instance `nfs@server.example.org`.
    ///
    /// # Errors
    /// If the mechanism cannot have such a name.
    fn begin(&self, service: &str) -> Result<Box<dyn Initiating>, MechanismError>;

    /// Returns what the mechanism waits for if it does not do its part in time, with a remedy.
    fn overdue(&self) -> String {
        "the mechanism does not answer".to_owned()
    }

    /// Returns whether the mechanism's functions may wait or compute for long, as [`Acceptor::may_wait`] does.
    fn may_wait(&self) -> bool {
        true
    }
}
