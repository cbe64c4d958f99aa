//! The client's side: a context with a server, the protection of calls, and the check of replies.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_xdr::{Decoder, EncodeError, Stream};
use thiserror::Error;

use super::mechanism::{Created, Initiating, Initiator, MechanismError, SecurityContext, major};
use super::protection::{self, Unprotectable, Unprotected};
use super::wire::{GssCredential, GssProcedure, InitResults, SEQUENCE_END};
use crate::auth::{OpaqueAuth, Principal, Service, flavor};
use crate::message::{CallHeader, ReplyBody, ReplyHeader};

/// A context that is being created.
pub struct Creating {
    initiating: Box<dyn Initiating>,
    handle: Bytes,
    created: Option<Created>,
}

impl fmt::Debug for Creating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creating").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// A call that creates a context: of procedure 0 of the program to be used, with the verifier of AUTH_NONE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitCall {
    /// Credential of the call.
    pub credential: OpaqueAuth,
    /// Token for its arguments ([`InitArguments`](super::InitArguments)).
    pub token: Bytes,
}

/// Result of a step.
#[derive(Debug)]
pub enum Progress {
    /// Another call is needed.
    Call(Creating, InitCall),
    /// The context can be used.
    Created(GssClient),
}

/// Reason why no context was created.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreationError {
    /// This side's mechanism failed.
    #[error("{0}")]
    Mechanism(#[from] MechanismError),
    /// The server's mechanism failed.
    #[error("the server refuses the security context: {text}")]
    Refused {
        /// Its status, one of [`major`](super::major).
        major: u32,
        /// The status of the mechanism.
        minor: u32,
        /// Words for it: those of this side's mechanism if there are any.
        text: String,
    },
    /// The server's answers do not fit together.
    #[error("the server did not complete the security context: {0}")]
    Incomplete(&'static str),
    /// The server's name for the context does not fit a credential.
    #[error("{0}")]
    Handle(#[from] EncodeError),
}

/// Returns words for a status (RFC 2203 Appendix A).
fn describe(status: u32, minor: u32) -> String {
    let text = match status & 0x00ff_0000 {
        major::NO_CRED => "it has no credentials of its own",
        major::DEFECTIVE_TOKEN => "it cannot read the token",
        major::CREDENTIALS_EXPIRED | major::CONTEXT_EXPIRED => "the credentials have expired",
        major::NO_CONTEXT => "it does not know the context",
        _ => "its mechanism failed",
    };
    format!("{text} (major status {status:#x}, minor status {minor:#x})")
}

impl Creating {
    /// Begins a context with a service, for instance `nfs@server.example.org`. May wait for a network.
    ///
    /// # Errors
    /// [`CreationError::Mechanism`].
    pub fn begin(initiator: &dyn Initiator, service: &str) -> Result<(Self, InitCall), CreationError> {
        let mut initiating = initiator.begin(service)?;
        let step = initiating.step(None)?;
        let creating = Self { initiating, handle: Bytes::new(), created: step.created };
        let call = creating.call(GssProcedure::Init, step.token)?;
        Ok((creating, call))
    }

    fn call(&self, procedure: GssProcedure, token: Bytes) -> Result<InitCall, EncodeError> {
        let handle = self.handle.clone();
        let credential =
            GssCredential { procedure, sequence: 0, service: Service::None, handle }.to_auth()?;
        Ok(InitCall { credential, token })
    }

    /// Takes the reply to a call: its verifier and results. May wait for a network.
    ///
    /// # Errors
    /// Each variant of [`CreationError`]; nothing is left to go on with.
    pub fn reply(
        mut self,
        verifier: &OpaqueAuth,
        results: InitResults,
        now: Instant,
    ) -> Result<Progress, CreationError> {
        let InitResults { handle, major, minor, window, token } = results;
        if !matches!(major, major::COMPLETE | major::CONTINUE_NEEDED) {
            let text = self.initiating.explain(major, minor).unwrap_or_else(|| describe(major, minor));
            return Err(CreationError::Refused { major, minor, text });
        }
        // RFC 2203 §5.2.2: the handle stays for the life of the context.
        if handle.is_empty() || !(self.handle.is_empty() || self.handle == handle) {
            return Err(CreationError::Incomplete("its handle is empty, or not that of its last reply"));
        }
        self.handle = handle;
        let mut reply = Bytes::new();
        if self.created.is_none() {
            let step = self.initiating.step(Some(&token))?;
            (self.created, reply) = (step.created, step.token);
        } else if !token.is_empty() {
            return Err(CreationError::Incomplete("it sent a token that the mechanism does not expect"));
        }
        if major == major::CONTINUE_NEEDED {
            if reply.is_empty() {
                return Err(CreationError::Incomplete("it expects one more token, and there is none"));
            }
            let call = self.call(GssProcedure::ContinueInit, reply)?;
            return Ok(Progress::Call(self, call));
        }
        let Some(created) = self.created else {
            return Err(CreationError::Incomplete("the mechanism expects one more token"));
        };
        // RFC 2203 §5.2.3.1: proof that the server has the keys.
        if verifier.flavor != flavor::RPCSEC_GSS {
            return Err(CreationError::Incomplete("its reply has no verifier"));
        }
        created.context.verify(&[&window.to_be_bytes()], &verifier.body)?;
        Ok(Progress::Created(GssClient {
            context: created.context,
            server: created.peer,
            handle: self.handle,
            window: window.max(1),
            numbers: Mutex::new(Numbers { next: 1, outstanding: BTreeSet::new() }),
            expires: created.lifetime.and_then(|lifetime| now.checked_add(lifetime)),
        }))
    }
}

/// A context with a server.
#[derive(Debug)]
pub struct GssClient {
    context: Arc<dyn SecurityContext>,
    server: Principal,
    handle: Bytes,
    window: u32,
    numbers: Mutex<Numbers>,
    expires: Option<Instant>,
}

/// Numbers of the requests of a context.
#[derive(Debug)]
struct Numbers {
    next: u32,
    /// Those of requests that have a place.
    outstanding: BTreeSet<u32>,
}

impl Numbers {
    fn take(&mut self) -> Result<u32, MechanismError> {
        if self.next >= SEQUENCE_END {
            return Err(no_number());
        }
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// A place in the server's window, and the number of its request. The place is free again after the drop.
#[derive(Debug)]
pub struct Place {
    context: Arc<GssClient>,
    sequence: u32,
}

impl Place {
    /// Returns the number of the request.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.context.numbers().outstanding.remove(&self.sequence);
    }
}

/// A call with its protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Arguments as they travel.
    pub arguments: Stream,
    /// Number of the request, for the check of its reply.
    pub sequence: u32,
}

/// Reason why a reply cannot be believed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyFault {
    /// The reply has no verifier of RPCSEC_GSS.
    #[error("the reply has no verifier of RPCSEC_GSS")]
    NoVerifier,
    /// The verifier belongs to none of the requests.
    #[error("the verifier of the reply is wrong: {0}")]
    Verifier(MechanismError),
    /// The results are not what the server protected.
    #[error("the results are wrong: {0}")]
    Results(#[from] Unprotected),
}

fn no_number() -> MechanismError {
    MechanismError::new(major::CONTEXT_EXPIRED, 0, "the security context has no sequence number left")
}

impl GssClient {
    /// Returns whom the context was created with.
    #[must_use]
    pub const fn server(&self) -> &Principal {
        &self.server
    }

    /// Returns how far the numbers of outstanding requests may be apart. The server discards others without a reply.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // No code that can panic runs under the lock.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a new context is needed: this one is too old, has ended, or has no number left.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.expires.is_some_and(|end| now >= end) || self.numbers().next >= SEQUENCE_END
    }

    /// Sets the number of the next request.
    #[cfg(test)]
    pub(super) fn set_next(&self, next: u32) {
        self.numbers().next = next;
    }

    /// Returns a place for a request, with a number that no other request of this context has. `None` while the number would
    /// move the server's window past a request that is outstanding: the server would discard that one (RFC 2203 §5.3.3.1).
    /// Only its reply proves that it has arrived, since calls pass each other on threads and connections. So at most
    /// [`window`](Self::window) requests are outstanding (§5.2.3.1).
    ///
    /// # Errors
    /// The context has no number left.
    pub fn place(self: &Arc<Self>) -> Result<Option<Place>, MechanismError> {
        let mut numbers = self.numbers();
        if numbers.next >= SEQUENCE_END {
            return Err(no_number());
        }
        if numbers.outstanding.first().is_some_and(|oldest| numbers.next - oldest >= self.window) {
            return Ok(None);
        }
        let sequence = numbers.take()?;
        numbers.outstanding.insert(sequence);
        drop(numbers);
        Ok(Some(Place { context: Arc::clone(self), sequence }))
    }

    /// Sets credential and verifier of a call, and protects its arguments. A call that is sent again needs a new number, and
    /// so comes here again (RFC 2203 §5.3.3.1). Computes over all arguments.
    ///
    /// # Errors
    /// The mechanism cannot protect the call.
    pub fn seal(
        &self,
        service: Service,
        call: &mut CallHeader,
        arguments: Stream,
    ) -> Result<Sealed, Unprotectable> {
        let sequence = self.numbers().take()?;
        self.seal_as(sequence, service, call, arguments)
    }

    /// Seals a call with the number of a [`Place`], as [`seal`](Self::seal) does.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn seal_as(
        &self,
        sequence: u32,
        service: Service,
        call: &mut CallHeader,
        arguments: Stream,
    ) -> Result<Sealed, Unprotectable> {
        let arguments = protection::protect(&*self.context, service, sequence, arguments)?;
        self.sign(GssProcedure::Data, service, sequence, call)?;
        Ok(Sealed { arguments, sequence })
    }

    /// Sets credential and verifier of a call that ends the context: procedure 0, without arguments (RFC 2203 §5.4). The
    /// context makes no call after this one.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn seal_end(&self, call: &mut CallHeader) -> Result<u32, Unprotectable> {
        let sequence = {
            let mut numbers = self.numbers();
            let sequence = numbers.take()?;
            numbers.next = SEQUENCE_END;
            sequence
        };
        call.procedure = 0;
        self.sign(GssProcedure::Destroy, Service::None, sequence, call)?;
        Ok(sequence)
    }

    fn sign(
        &self,
        procedure: GssProcedure,
        service: Service,
        sequence: u32,
        call: &mut CallHeader,
    ) -> Result<(), Unprotectable> {
        call.credential =
            GssCredential { procedure, sequence, service, handle: self.handle.clone() }.to_auth()?;
        let body = self.context.mic(&[&protection::covered(call)?])?;
        call.verifier = OpaqueAuth { flavor: flavor::RPCSEC_GSS, body };
        Ok(())
    }

    /// Returns whether [`seal_as`](Self::seal_as) and [`open`](Self::open) only compute
    /// ([`SecurityContext::is_quick`]).
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.context.is_quick()
    }

    /// Returns the greatest length of protected results, from that of the results (RFC 8166 §8.2.2.2), in bytes.
    #[must_use]
    pub fn largest(&self, service: Service, results: usize) -> usize {
        protection::largest(&*self.context, service, results)
    }

    /// Checks a reply that was accepted, to one of the requests with these numbers: those by which the call was sent. Returns
    /// its results without protection, if it has any. Computes over all of them.
    ///
    /// # Errors
    /// The reply is not the server's, or was changed.
    pub fn open(
        &self,
        service: Service,
        sequences: &[u32],
        reply: &ReplyHeader,
        results: Decoder,
    ) -> Result<Decoder, ReplyFault> {
        let ReplyBody::Accepted { verifier, .. } = &reply.body else {
            return Err(ReplyFault::NoVerifier);
        };
        if verifier.flavor != flavor::RPCSEC_GSS {
            return Err(ReplyFault::NoVerifier);
        }
        let mut refusal = MechanismError::new(major::BAD_MIC, 0, "the call was never sent");
        for sequence in sequences.iter().rev() {
            match self.context.verify(&[&sequence.to_be_bytes()], &verifier.body) {
                Ok(()) if reply.success().is_ok() => {
                    return Ok(protection::unprotect(&*self.context, service, *sequence, results)?);
                }
                // RFC 2203 §5.3.3.2: without results, nothing but the header is protected.
                Ok(()) => return Ok(results),
                Err(error) => refusal = error,
            }
        }
        Err(ReplyFault::Verifier(refusal))
    }
}
