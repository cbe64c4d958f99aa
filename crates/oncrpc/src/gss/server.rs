//! The server's side: contexts of callers, and what their requests are answered with.

mod contexts;

use std::fmt;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Stream, encode};
use siphasher::sip::SipHasher24;
use thiserror::Error;

use self::contexts::{Contexts, Place};
use super::mechanism::{Accepting, Acceptor, MechanismError, SecurityContext, Step, major};
use super::protection::{self, Unprotectable, Unprotected};
use super::window::{SequenceWindow, WINDOW};
use super::wire::{GssCredential, GssProcedure, InitArguments, InitResults, SEQUENCE_END};
use crate::auth::{GssCaller, OpaqueAuth, Principal, Service, flavor};
use crate::message::{AuthStat, CallHeader};
use crate::origin::Origin;

/// Bounds of a [`GssServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GssLimits {
    /// Most contexts. Beyond that one goes of the origin that has most, and there of the principal that has most: the least
    /// recently used one. Default 4096.
    pub contexts: usize,
    /// Most contexts that are being created at a time. One origin has at most a quarter of them, and fewer if several origins
    /// have many. Beyond that the one that has waited longest for its initiator goes. Default 256: after a restart of the server
    /// all users of a host come together, so many of them that each host has 64.
    pub creating: usize,
    /// Time that the creation of a context may take. Default 30 s.
    pub creation: Duration,
    /// Time without a request after which a context goes. Default 1 h.
    pub idle: Duration,
}

impl Default for GssLimits {
    fn default() -> Self {
        Self {
            contexts: 4096,
            creating: 256,
            creation: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
        }
    }
}

/// The contexts of a server's callers. All listeners of a server share them: a caller may create a context by TCP and use it
/// by RDMA.
pub struct GssServer {
    acceptor: Arc<dyn Acceptor>,
    limits: GssLimits,
    /// Key of all handles: nobody guesses those of others, and those of an earlier process are not taken for ours.
    instance: u64,
    next: AtomicU64,
    contexts: Mutex<Contexts>,
}

impl fmt::Debug for GssServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssServer").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A context in use.
#[derive(Debug)]
pub(super) struct Shared {
    number: u64,
    context: Arc<dyn SecurityContext>,
    principal: Arc<Principal>,
    window: Mutex<SequenceWindow>,
    expires: Option<Instant>,
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, SequenceWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the verifier of a reply: the checksum of a number in network order.
    fn verifier(&self, number: u32) -> Result<OpaqueAuth, MechanismError> {
        let body = self.context.mic(&[&number.to_be_bytes()])?;
        Ok(OpaqueAuth { flavor: flavor::RPCSEC_GSS, body })
    }
}

/// A call with a credential of RPCSEC_GSS, by its kind.
#[derive(Debug)]
pub enum Received {
    /// A step of creating a context.
    Create(Creation),
    /// A request in a context, or for its end.
    Request(Incoming),
}

/// Reason why a call goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// MSG_DENIED with this status.
    Auth(AuthStat),
    /// No reply: the request was seen before (RFC 2203 §5.3.3.1).
    Discard,
    /// MSG_ACCEPTED with SYSTEM_ERR and the verifier of AUTH_NONE (RFC 2203 §5.2.3.2): too many contexts are being created.
    Busy,
}

impl GssServer {
    /// Creates a server of contexts. `instance` has to be random and secret: it makes the handles of this process.
    pub fn new(acceptor: Arc<dyn Acceptor>, limits: GssLimits, instance: u64) -> Self {
        Self { acceptor, limits, instance, next: AtomicU64::new(0), contexts: Mutex::default() }
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the mechanism needs threads ([`Acceptor::may_wait`]).
    pub fn may_wait(&self) -> bool {
        self.acceptor.may_wait()
    }

    /// Returns the number of contexts in use.
    pub fn in_use(&self) -> usize {
        self.contexts().len()
    }

    /// Returns the number of contexts that are being created.
    pub fn in_creation(&self) -> usize {
        self.contexts().creating()
    }

    /// Returns the handle of a context: its number, and a proof that this process gave the handle away.
    fn handle(&self, number: u64) -> Bytes {
        let mut proof = SipHasher24::new_with_keys(self.instance, 0);
        proof.write_u64(number);
        let whole = u128::from(number) << 64 | u128::from(proof.finish());
        Bytes::copy_from_slice(&whole.to_be_bytes())
    }

    fn number(&self, handle: &[u8]) -> Option<u64> {
        let number = u64::from_be_bytes(*handle.first_chunk()?);
        (self.handle(number) == handle).then_some(number)
    }

    /// Looks at a call with a credential of RPCSEC_GSS. Never waits.
    ///
    /// # Errors
    /// The answer that RFC 2203 has for the call.
    pub fn receive(
        self: &Arc<Self>,
        origin: Option<Origin>,
        call: &CallHeader,
        now: Instant,
    ) -> Result<Received, Refusal> {
        let credential = GssCredential::read(&call.credential.body).map_err(Refusal::Auth)?;
        match credential.procedure {
            GssProcedure::Init | GssProcedure::ContinueInit => {
                self.receive_creation(origin, call, &credential, now).map(Received::Create)
            }
            GssProcedure::Data | GssProcedure::Destroy => {
                self.receive_request(call, credential, now).map(Received::Request)
            }
        }
    }

    fn receive_creation(
        self: &Arc<Self>,
        origin: Option<Origin>,
        call: &CallHeader,
        credential: &GssCredential,
        now: Instant,
    ) -> Result<Creation, Refusal> {
        // RFC 2203 §5.2.2: the procedure is NULLPROC, and the verifier that of AUTH_NONE.
        if call.procedure != 0 {
            return Err(Refusal::Auth(AuthStat::BadCred));
        }
        if call.verifier != OpaqueAuth::none() {
            return Err(Refusal::Auth(AuthStat::BadVerf));
        }
        if credential.procedure == GssProcedure::ContinueInit {
            let number = self.number(&credential.handle);
            let begun = match number {
                Some(number) => self.contexts().take_begun(number, now, &self.limits)?,
                None => None,
            };
            return Ok(Creation {
                server: Arc::clone(self),
                origin,
                now,
                stage: begun.map_or(Stage::Unknown, Stage::Begun),
            });
        }
        if !credential.handle.is_empty() {
            return Err(Refusal::Auth(AuthStat::BadCred));
        }
        let place = Contexts::place(self, origin, now).ok_or(Refusal::Busy)?;
        Ok(Creation { server: Arc::clone(self), origin, now, stage: Stage::New(place) })
    }

    fn receive_request(
        self: &Arc<Self>,
        call: &CallHeader,
        credential: GssCredential,
        now: Instant,
    ) -> Result<Incoming, Refusal> {
        let number = self.number(&credential.handle);
        let shared = number
            .and_then(|number| self.contexts().named(number))
            .ok_or(Refusal::Auth(AuthStat::GssCredProblem))?;
        let is_expired = shared.expires.is_some_and(|end| now >= end);
        if is_expired || credential.sequence >= SEQUENCE_END {
            return Err(Refusal::Auth(AuthStat::GssCtxProblem));
        }
        if call.verifier.flavor != flavor::RPCSEC_GSS {
            return Err(Refusal::Auth(AuthStat::GssCredProblem));
        }
        let destroys = credential.procedure == GssProcedure::Destroy;
        // RFC 2203 §5.4: the procedure is NULLPROC.
        if destroys && call.procedure != 0 {
            return Err(Refusal::Auth(AuthStat::BadCred));
        }
        // RFC 2203 §7.2.2: the checksum of a request that is discarded anyway needs no work.
        if shared.window().is_seen(credential.sequence) {
            return Err(Refusal::Discard);
        }
        let covered = protection::covered(call).map_err(|_| Refusal::Auth(AuthStat::BadCred))?;
        Ok(Incoming {
            server: Arc::clone(self),
            shared,
            now,
            sequence: credential.sequence,
            service: credential.service,
            covered,
            mic: call.verifier.body.clone(),
            destroys,
        })
    }
}

/// A context that is being created, between two tokens of its initiator.
pub(super) struct Begun {
    number: u64,
    accepting: Box<dyn Accepting>,
    place: Place,
}

enum Stage {
    New(Place),
    Begun(Begun),
    Unknown,
}

/// A step of creating a context.
pub struct Creation {
    server: Arc<GssServer>,
    origin: Option<Origin>,
    now: Instant,
    stage: Stage,
}

impl fmt::Debug for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creation").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The reply to a step of creating a context: MSG_ACCEPTED with SUCCESS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreationReply {
    /// Verifier of the reply.
    pub verifier: OpaqueAuth,
    /// Results of the call.
    pub results: InitResults,
    /// The creator of the context, if it is complete.
    pub created: Option<Arc<Principal>>,
    /// Why the context was not created, if it was not.
    pub failure: Option<MechanismError>,
}

impl CreationReply {
    fn failed(failure: MechanismError) -> Self {
        // RFC 2203 §5.2.3.1: handle and token are empty after a failure.
        let results = InitResults {
            handle: Bytes::new(),
            major: failure.major,
            minor: failure.minor,
            window: 0,
            token: Bytes::new(),
        };
        Self { verifier: OpaqueAuth::none(), results, created: None, failure: Some(failure) }
    }

    /// Returns the results as they travel.
    ///
    /// # Errors
    /// If the token is too long.
    pub fn stream(&self) -> Result<Stream, EncodeError> {
        encode(&self.results)
    }
}

impl Creation {
    /// Takes the step. May wait for files or a network.
    ///
    /// # Errors
    /// The arguments are no token: GARBAGE_ARGS.
    pub fn run(self, arguments: Decoder) -> Result<CreationReply, DecodeError> {
        let InitArguments { token } = arguments.decode_all()?;
        let Self { server, origin, now, stage } = self;
        let (number, mut accepting, place) = match stage {
            Stage::New(place) => {
                (server.next.fetch_add(1, Ordering::Relaxed), server.acceptor.begin(), place)
            }
            Stage::Begun(Begun { number, accepting, place }) => (number, accepting, place),
            Stage::Unknown => {
                let unknown =
                    MechanismError::new(major::NO_CONTEXT, 0, "no context with this handle is being created");
                return Ok(CreationReply::failed(unknown));
            }
        };
        let Step { token, created } = match accepting.step(&token) {
            Ok(step) => step,
            Err(error) => return Ok(CreationReply::failed(error)),
        };
        let handle = server.handle(number);
        let Some(created) = created else {
            server.contexts().keep_begun(Begun { number, accepting, place });
            let results =
                InitResults { handle, major: major::CONTINUE_NEEDED, minor: 0, window: WINDOW, token };
            return Ok(CreationReply { verifier: OpaqueAuth::none(), results, created: None, failure: None });
        };
        let principal = Arc::new(created.peer);
        if let Err(length) = principal.check() {
            let text =
                format!("the name of the principal has {length} bytes, more than {}", Principal::MAX_LEN);
            return Ok(CreationReply::failed(MechanismError::new(major::FAILURE, 0, text)));
        }
        let shared = Arc::new(Shared {
            number,
            context: created.context,
            principal: Arc::clone(&principal),
            window: Mutex::default(),
            expires: created.lifetime.and_then(|lifetime| now.checked_add(lifetime)),
        });
        let verifier = match shared.verifier(WINDOW) {
            Ok(verifier) => verifier,
            Err(error) => return Ok(CreationReply::failed(error)),
        };
        let removed = server.contexts().insert(shared, origin, now, &server.limits);
        drop(removed);
        let results = InitResults { handle, major: major::COMPLETE, minor: 0, window: WINDOW, token };
        Ok(CreationReply { verifier, results, created: Some(principal), failure: None })
    }
}

/// A request in a context whose header is not verified yet.
#[derive(Debug)]
pub struct Incoming {
    server: Arc<GssServer>,
    shared: Arc<Shared>,
    now: Instant,
    sequence: u32,
    service: Service,
    /// The bytes that the verifier covers.
    covered: Bytes,
    mic: Bytes,
    destroys: bool,
}

/// Reason why a request is not served.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// MSG_DENIED with this status.
    #[error("{1} ({0:?})")]
    Auth(AuthStat, MechanismError),
    /// No reply.
    #[error("the request was seen before")]
    Discard,
    /// MSG_ACCEPTED with GARBAGE_ARGS and this verifier.
    #[error("arguments refused: {fault}")]
    Garbage {
        /// Verifier of the reply.
        verifier: OpaqueAuth,
        /// The fault.
        fault: Unprotected,
    },
}

/// A request whose caller is known.
#[derive(Debug)]
pub struct Opened {
    /// The caller of the request.
    pub caller: GssCaller,
    /// The arguments, without protection.
    pub arguments: Decoder,
    /// The protection of the reply.
    pub sealer: Sealer,
    /// Whether the request ended the context. The reply has no results, and no procedure is called.
    pub destroyed: bool,
}

impl Incoming {
    /// Returns whether [`open`](Self::open) only computes
    /// ([`SecurityContext::is_quick`](super::SecurityContext::is_quick)).
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.shared.context.is_quick()
    }

    /// Returns whether the request's verifier covers its arguments, or hides them.
    #[must_use]
    pub fn covers_arguments(&self) -> bool {
        self.service != Service::None
    }

    /// Verifies the header and takes the protection off the arguments. Computes over all of them.
    ///
    /// # Errors
    /// The answer that RFC 2203 §5.3.3 has for the fault.
    pub fn open(self, arguments: Decoder) -> Result<Opened, OpenError> {
        let problem = |error: MechanismError| {
            // RFC 2203 §5.3.3.3: contexts that are too old have a status of their own.
            let stat = if error.is_expired() { AuthStat::GssCtxProblem } else { AuthStat::GssCredProblem };
            OpenError::Auth(stat, error)
        };
        self.shared.context.verify(&[&self.covered], &self.mic).map_err(problem)?;
        if !self.shared.window().admit(self.sequence) {
            return Err(OpenError::Discard);
        }
        self.server.contexts().touch(self.shared.number, self.now);
        // RFC 2203 §5.3.3.4.1.
        let verifier = self
            .shared
            .verifier(self.sequence)
            .map_err(|error| OpenError::Auth(AuthStat::GssCtxProblem, error))?;
        // RFC 2203 §5.4: there are no arguments. Some clients protect the lack of them like arguments, others do not.
        let is_bare = self.destroys && arguments.clone().finish().is_ok();
        let service = if is_bare { Service::None } else { self.service };
        let garbage = |fault| OpenError::Garbage { verifier: verifier.clone(), fault };
        let context = &*self.shared.context;
        let arguments = protection::unprotect(context, service, self.sequence, arguments).map_err(garbage)?;
        if self.destroys {
            arguments.clone().finish().map_err(|error| garbage(error.into()))?;
            // This request keeps the context until its reply is protected.
            let _removed = self.server.contexts().remove(self.shared.number);
        }
        let caller = GssCaller { principal: Arc::clone(&self.shared.principal), service };
        let sealer = Sealer { shared: self.shared, sequence: self.sequence, service, verifier };
        Ok(Opened { caller, arguments, sealer, destroyed: self.destroys })
    }
}

/// The protection of a reply.
#[derive(Debug)]
pub struct Sealer {
    shared: Arc<Shared>,
    sequence: u32,
    service: Service,
    verifier: OpaqueAuth,
}

impl Sealer {
    /// Returns whether [`seal`](Self::seal) only computes
    /// ([`SecurityContext::is_quick`](super::SecurityContext::is_quick)).
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.shared.context.is_quick()
    }

    /// Returns the verifier of the reply, whatever its status is (RFC 2203 §5.3.3.2).
    #[must_use]
    pub const fn verifier(&self) -> &OpaqueAuth {
        &self.verifier
    }

    /// Returns whether [`Self::seal`] computes over the results.
    #[must_use]
    pub const fn covers_results(&self) -> bool {
        !matches!(self.service, Service::None)
    }

    /// Protects the results of a procedure.
    ///
    /// # Errors
    /// There is no reply then (RFC 2203 §5.3.3.4).
    pub fn seal(&self, results: Stream) -> Result<Stream, Unprotectable> {
        protection::protect(&*self.shared.context, self.service, self.sequence, results)
    }
}
