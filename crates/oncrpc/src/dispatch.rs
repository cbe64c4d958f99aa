//! Dispatch of a received call message to its program, and its reply, for RDMA and TCP alike.
//!
//! The dispatcher checks in this order: RPC version, credential, whether the caller may claim it, program, version,
//! procedure, and protection if the procedure requires it. The program then decodes its arguments. Procedure 0 of every
//! program takes and returns nothing, needs no credential (RFC 5531 §12) and is answered here. A call of a procedure
//! that is not [`Effect::Idempotent`] passes the [`ReplyCache`].
//!
//! Between the cache and the program stand the [`Overseer`], which may shed the call, and the interceptors
//! ([`InterceptService`]). So a repeat that gets a kept reply, or waits for one, passes neither. Procedure 0 passes neither.
//!
//! *Buffers.* The message belongs to the decoder that goes to the program; the reply belongs to the caller.
//!
//! *Errors.* Every fault of a call becomes an [`Outcome`]; nothing here ends a connection. A program that panics has failed
//! ([`CallFailure::Panicked`]).
//!
//! A [`DispatchFuture`] must be driven to its end even if the connection that brought the call is lost. The client
//! retransmits on another connection and waits there for this execution. If the future is dropped anyway, the waiting
//! repeats get [`Outcome::Drop`], and the call may be executed again.
//!
//! ```
//! use std::ops::RangeInclusive;
//! use std::pin::pin;
//! use std::sync::Arc;
//! use std::task::{Context, Poll, Waker};
//! use std::time::Instant;
//!
//! use rpcrdma_oncrpc::{
//!     CallContext, CallHeader, Dispatcher, Effect, OpaqueAuth, Outcome, Peer, ProcedureInfo, Program, ReplyHeader,
//!     ResponseFuture, TransportKind,
//! };
//! use rpcrdma_xdr::{Decoder, encode};
//!
//! /// Procedure 1 doubles a number.
//! struct Double;
//!
//! impl Program for Double {
//!     fn number(&self) -> u32 {
//!         0x2000_0001
//!     }
//!
//!     fn versions(&self) -> RangeInclusive<u32> {
//!         1..=1
//!     }
//!
//!     fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
//!         (procedure == 1).then_some(ProcedureInfo { name: "DOUBLE", effect: Effect::Idempotent })
//!     }
//!
//!     fn call(&self, _: CallContext, arguments: Decoder) -> ResponseFuture {
//!         Box::pin(async move {
//!             let number: u32 = arguments.decode_all()?;
//!             Ok(encode(&number.wrapping_mul(2))?)
//!         })
//!     }
//! }
//!
//! let mut dispatcher = Dispatcher::new(Arc::default());
//! dispatcher.register(Arc::new(Double))?;
//!
//! let header = CallHeader {
//!     xid: 1,
//!     program: 0x2000_0001,
//!     version: 1,
//!     procedure: 1,
//!     credential: OpaqueAuth::none(),
//!     verifier: OpaqueAuth::none(),
//! };
//! let (message, _) = header.with_arguments(encode(&21u32)?)?.flatten();
//! let peer = Peer { address: None, transport: TransportKind::Tcp, window: None, attached: None, owner: None };
//! let outcome = pin!(dispatcher.dispatch(peer, Decoder::new(message), Instant::now()));
//! let Poll::Ready(Outcome::Reply(reply)) = outcome.poll(&mut Context::from_waker(Waker::noop())) else {
//!     return Err("no reply".into());
//! };
//!
//! let mut reply = Decoder::new(reply.flatten().0);
//! reply.decode::<ReplyHeader>()?.success()?;
//! assert_eq!(reply.u32()?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;

use crate::auth::{Credential, GssCaller, Service, User, flavor};
use crate::cache::{Admission, CacheKey, Execution, Repeat, ReplyCache, WindowId};
use crate::handler::{Guarded, Overseer, Oversight, ServedCall};
use crate::intercept::{InterceptService, NextService};
use crate::message::{AcceptStat, AuthStat, CallHeader, CallHeaderError, RejectReason, ReplyHeader};
use crate::outcome::Outcome;
use crate::program::{
    Attached, CallContext, CallFailure, Effect, ProcedureInfo, Program, TransportKind, accepted_by_default,
};

/// The sender of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address. Without an address the reply cache cannot recognize its calls and is not used.
    pub address: Option<SocketAddr>,
    /// The transport of the message.
    pub transport: TransportKind,
    /// The window of the connection in the reply cache ([`ReplyCache::window`]). Without a window, replies are kept for
    /// a time.
    pub window: Option<WindowId>,
    /// The value that handlers get with each call ([`CallContext::attached`]).
    pub attached: Option<Attached>,
    /// The user of this machine at the other end of the connection, if the transport knows. Unless that is user 0, the
    /// caller may claim no other user by AUTH_SYS: AUTH_TOOWEAK.
    pub owner: Option<u32>,
}

impl Peer {
    /// Returns whether the owner of the connection may send this credential.
    fn may_claim(&self, credential: &Credential) -> bool {
        match (self.owner, credential) {
            (None | Some(0), _) => true,
            (Some(owner), Credential::Sys(sys)) => sys.uid == owner,
            (Some(_), Credential::None | Credential::Gss(_) | Credential::Other(_)) => true,
        }
    }
}

/// The program numbers that RFC 5531 §8.3 does not reserve.
const FREE_OF_RESERVE: std::ops::RangeInclusive<u32> = 1..=0x5fff_ffff;

/// The reason why a program was not registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The program's range of versions is empty.
    #[error("program {program} offers no version")]
    NoVersion {
        /// Program number.
        program: u32,
    },
    /// RFC 5531 §8.1: version numbers begin at 1.
    #[error("program {program} offers version 0, but versions begin at 1")]
    VersionZero {
        /// Program number.
        program: u32,
    },
    /// RFC 5531 §8.3: 0, and the numbers from 0x60000000, are reserved (§13.3.4: a program must not use them).
    #[error("program {program:#x} has a reserved number; 0x20000000 to 0x3fffffff are free to use")]
    Reserved {
        /// Program number.
        program: u32,
    },
    /// A version of this program is served already.
    #[error("version {version} of program {program} is registered already")]
    Duplicate {
        /// Program number.
        program: u32,
        /// The lowest version that both offer.
        version: u32,
    },
}

/// The programs of a server and their reply cache.
pub struct Dispatcher {
    programs: BTreeMap<u32, Vec<Arc<dyn Program>>>,
    cache: Arc<ReplyCache>,
    /// The outermost first.
    interceptors: Arc<[Arc<dyn InterceptService>]>,
    overseer: Option<Arc<dyn Overseer>>,
}

impl Dispatcher {
    /// Creates a dispatcher without programs.
    pub fn new(cache: Arc<ReplyCache>) -> Self {
        Self { programs: BTreeMap::new(), cache, interceptors: Arc::default(), overseer: None }
    }

    /// Puts an interceptor around all programs, inside of those that are there.
    pub fn intercept(&mut self, interceptor: Arc<dyn InterceptService>) {
        self.interceptors = self.interceptors.iter().cloned().chain([interceptor]).collect();
    }

    /// Lets this overseer decide which calls begin. It replaces the last one.
    pub fn oversee(&mut self, overseer: Arc<dyn Overseer>) {
        self.overseer = Some(overseer);
    }

    /// Adds a program. Several programs with one number may serve different versions of it.
    pub fn register(&mut self, program: Arc<dyn Program>) -> Result<(), RegisterError> {
        let number = program.number();
        if !FREE_OF_RESERVE.contains(&number) {
            return Err(RegisterError::Reserved { program: number });
        }
        let versions = program.versions();
        if versions.is_empty() {
            return Err(RegisterError::NoVersion { program: number });
        }
        if *versions.start() == 0 {
            return Err(RegisterError::VersionZero { program: number });
        }
        let served = self.programs.entry(number).or_default();
        for other in served.iter().map(|other| other.versions()) {
            let version = *versions.start().max(other.start());
            if version <= *versions.end().min(other.end()) {
                return Err(RegisterError::Duplicate { program: number, version });
            }
        }
        served.push(program);
        Ok(())
    }

    /// Returns the registered programs, in no order: to announce them, or for statistics.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<dyn Program>> {
        self.programs.values().flatten()
    }

    /// Returns the reply cache.
    pub const fn cache(&self) -> &Arc<ReplyCache> {
        &self.cache
    }

    /// Serves one message. `message` stands at the XID. The program is called before this returns; the future ends when
    /// the reply is ready, see the module's introduction.
    pub fn dispatch(&self, peer: Peer, mut message: Decoder, now: Instant) -> DispatchFuture {
        let header = match CallHeader::read(&mut message) {
            Ok(header) => header,
            Err(error) => return DispatchFuture::ready(refuse_header(&error)),
        };
        let xid = header.xid;
        match self.start(peer, header, message, now) {
            Ok(future) => future,
            Err(failure) => DispatchFuture::ready(failure.outcome(xid)),
        }
    }

    /// Serves a call of RPCSEC_GSS whose caller is known, with arguments that have no protection any more. Its reply has the
    /// verifier of AUTH_NONE, and results without protection: so a repeat in another context can get the reply that the
    /// cache keeps.
    pub fn dispatch_opened(
        &self,
        peer: Peer,
        header: &CallHeader,
        caller: GssCaller,
        arguments: Decoder,
        now: Instant,
    ) -> DispatchFuture {
        let xid = header.xid;
        let call = [header.program, header.version, header.procedure];
        let credential = Credential::Gss(Arc::new(caller));
        self.serve(peer, xid, call, credential, arguments, now)
            .unwrap_or_else(|failure| DispatchFuture::ready(failure.outcome(xid)))
    }

    fn start(
        &self,
        peer: Peer,
        header: CallHeader,
        arguments: Decoder,
        now: Instant,
    ) -> Result<DispatchFuture, Failure> {
        let CallHeader { xid, program: number, version, procedure, credential, .. } = header;
        let served = self.programs.get(&number);
        let credential = if procedure == 0 && credential.flavor != flavor::RPCSEC_GSS {
            // RFC 5531 §12: procedure 0 requires no authentication. Under RPCSEC_GSS, procedure 0 creates a context
            // instead (RFC 2203 §5.2.2).
            Credential::None
        } else {
            let auth_error = |stat| Failure::Denied(RejectReason::AuthError(stat));
            let credential = Credential::try_from(credential).map_err(|_| auth_error(AuthStat::BadCred))?;
            let flavor = credential.flavor();
            // Nothing has checked who sent this: a context does that, before `dispatch_opened`.
            let unproven = flavor == flavor::RPCSEC_GSS;
            let accepts = || {
                served.map_or_else(
                    || accepted_by_default(flavor),
                    |programs| programs.iter().any(|program| program.accepts_flavor(flavor)),
                )
            };
            let call = ServedCall::new(peer.address, xid, [number, version, procedure], now);
            if unproven || !self.oversight(call).ask(accepts).map_err(Failure::Call)? {
                return Err(auth_error(refusal_of(flavor)));
            }
            if !peer.may_claim(&credential) {
                tracing::debug!(xid, owner = ?peer.owner, ?credential, "another user's identity claimed");
                return Err(auth_error(AuthStat::TooWeak));
            }
            credential
        };
        self.serve(peer, xid, [number, version, procedure], credential, arguments, now)
    }

    /// Serves a call of a caller who is known.
    fn serve(
        &self,
        peer: Peer,
        xid: u32,
        [number, version, procedure]: [u32; 3],
        credential: Credential,
        arguments: Decoder,
        now: Instant,
    ) -> Result<DispatchFuture, Failure> {
        let served = self.programs.get(&number);
        let served = served.ok_or(Failure::Accepted(AcceptStat::ProgramUnavailable))?;
        let program = served
            .iter()
            .find(|program| program.versions().contains(&version))
            .ok_or_else(|| Failure::Accepted(version_mismatch(served)))?;
        if procedure == 0 {
            arguments.finish().map_err(|error| Failure::Call(CallFailure::GarbageArgs(error)))?;
            return Ok(DispatchFuture::ready(reply(
                &ReplyHeader::accepted(xid, AcceptStat::Success),
                Stream::new(),
            )));
        }
        let mut call = ServedCall::new(peer.address, xid, [number, version, procedure], now);
        let asked = self.oversight(call.clone()).ask(|| known(&**program, version, procedure, &credential));
        let ProcedureInfo { name, effect } = asked.map_err(Failure::Call)??;
        (call.name, call.effect, call.user) = (name, effect, User::of(&credential));

        let mut execution = None;
        let mut key = None;
        if effect != Effect::Idempotent
            && let Some(address) = peer.address
        {
            let known_by =
                CacheKey::new(address.ip(), xid, [number, version, procedure], &credential, &arguments);
            key = Some(known_by);
            match self.cache.admit(known_by, effect, peer.window, now) {
                Admission::Execute(guard) => execution = Some(guard),
                Admission::Wait(repeat) => {
                    tracing::debug!(xid, procedure = name, "repeat of a call in progress");
                    return Ok(DispatchFuture { state: State::Repeat(repeat), key, light: true });
                }
                Admission::Replay(reply) => {
                    tracing::debug!(xid, procedure = name, "repeat answered from the reply cache");
                    let state = State::Ready(Some(Outcome::Reply(reply)));
                    return Ok(DispatchFuture { state, key, light: true });
                }
                Admission::Refuse => {
                    tracing::warn!(
                        xid,
                        procedure = name,
                        "repeat of a call whose reply was too long to be kept"
                    );
                    return Err(Failure::Call(CallFailure::SystemError));
                }
            }
        }
        let Some(oversight) = self.oversight(call).begin() else {
            let outcome = Failure::Call(CallFailure::Shed).outcome(xid);
            if let Some(execution) = execution {
                execution.shed(&outcome);
            }
            return Ok(DispatchFuture::ready(outcome));
        };
        let context = CallContext {
            peer: peer.address,
            transport: peer.transport,
            xid,
            program: number,
            version,
            procedure,
            credential,
            attached: peer.attached,
            owner: peer.owner,
        };
        let light = self.interceptors.is_empty() && program.is_light();
        let response = self.begin(oversight, program, context, arguments);
        Ok(DispatchFuture { state: State::Running { response, execution }, key, light })
    }

    /// Hands a call to the program, by way of the interceptors.
    fn begin(
        &self,
        oversight: Oversight,
        program: &Arc<dyn Program>,
        context: CallContext,
        arguments: Decoder,
    ) -> Guarded {
        let span = oversight.call().span();
        if self.interceptors.is_empty() {
            return Guarded::start(oversight, span, || program.call(context, arguments));
        }
        let again = self.oversight(oversight.call().clone());
        let next = NextService::new(Arc::clone(&self.interceptors), Arc::clone(program), again);
        Guarded::start(oversight, span, || next.call(context, arguments))
    }

    fn oversight(&self, call: ServedCall) -> Oversight {
        Oversight::new(call, self.overseer.clone())
    }
}

/// Returns a procedure that this caller may call.
fn known(
    program: &dyn Program,
    version: u32,
    procedure: u32,
    credential: &Credential,
) -> Result<ProcedureInfo, Failure> {
    if !program.accepts_flavor(credential.flavor()) {
        return Err(Failure::Denied(RejectReason::AuthError(refusal_of(credential.flavor()))));
    }
    let known =
        program.procedure(version, procedure).ok_or(Failure::Accepted(AcceptStat::ProcedureUnavailable))?;
    let protects = matches!(credential, Credential::Gss(caller) if caller.service != Service::None);
    if !protects && program.requires_integrity(version, procedure) {
        return Err(Failure::Denied(RejectReason::AuthError(AuthStat::TooWeak)));
    }
    Ok(known)
}

/// The reason why there are no results, before it becomes a reply.
enum Failure {
    Denied(RejectReason),
    Accepted(AcceptStat),
    Call(CallFailure),
}

impl Failure {
    fn outcome(self, xid: u32) -> Outcome {
        let header = match self {
            Self::Denied(reason) => ReplyHeader::denied(xid, reason),
            Self::Accepted(status) => ReplyHeader::accepted(xid, status),
            Self::Call(failure) => {
                tracing::debug!(xid, %failure, "call failed");
                match failure {
                    // RFC 8166 §6.1, §4.5.2: an item that isn't DDP-eligible was reduced.
                    CallFailure::GarbageArgs(error) if error.is_chunk_violation() => {
                        return Outcome::ChunkViolation(error);
                    }
                    CallFailure::GarbageArgs(_) => ReplyHeader::accepted(xid, AcceptStat::GarbageArguments),
                    CallFailure::SystemError
                    | CallFailure::Results(_)
                    | CallFailure::Panicked
                    | CallFailure::Shed => ReplyHeader::accepted(xid, AcceptStat::SystemError),
                    CallFailure::Auth(stat) => ReplyHeader::denied(xid, RejectReason::AuthError(stat)),
                    CallFailure::ProcedureUnavailable => {
                        ReplyHeader::accepted(xid, AcceptStat::ProcedureUnavailable)
                    }
                    CallFailure::Discard => return Outcome::Drop,
                }
            }
        };
        reply(&header, Stream::new())
    }
}

fn refuse_header(error: &CallHeaderError) -> Outcome {
    tracing::debug!(%error, "message refused");
    match error {
        CallHeaderError::Malformed(error) if error.is_chunk_violation() => {
            Outcome::ChunkViolation(error.clone())
        }
        error => error.reply().map_or(Outcome::Drop, |header| reply(&header, Stream::new())),
    }
}

fn reply(header: &ReplyHeader, results: Stream) -> Outcome {
    header.with_results(results).map_or_else(
        |error| {
            tracing::warn!(xid = header.xid, %error, "reply header can't be encoded");
            Outcome::Drop
        },
        Outcome::Reply,
    )
}

/// Returns the status for a refused flavour. A server understands AUTH_SHORT only if it issued it; the client then goes
/// back to AUTH_SYS (RFC 5531 Appendix A).
const fn refusal_of(flavor: u32) -> AuthStat {
    if flavor == flavor::AUTH_SHORT { AuthStat::RejectedCred } else { AuthStat::BadCred }
}

fn version_mismatch(served: &[Arc<dyn Program>]) -> AcceptStat {
    let low = served.iter().map(|program| *program.versions().start()).min();
    let high = served.iter().map(|program| *program.versions().end()).max();
    AcceptStat::ProgramMismatch { low: low.unwrap_or(0), high: high.unwrap_or(0) }
}

#[expect(clippy::large_enum_variant, reason = "most calls run: a box would cost each of them an allocation")]
enum State {
    /// Decided without the program.
    Ready(Option<Outcome>),
    /// The program is serving the call.
    Running { response: Guarded, execution: Option<Execution> },
    /// Another future runs the call.
    Repeat(Repeat),
}

/// A future that resolves to the [`Outcome`] of one message. Must not be polled after that.
pub struct DispatchFuture {
    state: State,
    key: Option<CacheKey>,
    light: bool,
}

impl DispatchFuture {
    const fn ready(outcome: Outcome) -> Self {
        Self { state: State::Ready(Some(outcome)), key: None, light: true }
    }

    /// Returns the key of the call in the reply cache, if the call passes the cache: for
    /// [`ReplyWindow::advance`](crate::ReplyWindow::advance) when the reply leaves. The key is final when the outcome is
    /// there: the reply to a call that was shed has none.
    #[must_use]
    pub const fn key(&self) -> Option<CacheKey> {
        self.key
    }

    /// Returns whether the call only waits for others from now on ([`Program::is_light`]), and passes no interceptor.
    #[must_use]
    pub const fn is_light(&self) -> bool {
        self.light
    }

    /// Resolves to the outcome, and to the key of its reply if it has one ([`key`](Self::key)).
    pub async fn keyed(mut self) -> (Outcome, Option<CacheKey>) {
        let outcome = (&mut self).await;
        (outcome, self.key)
    }
}

impl Future for DispatchFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.state {
            State::Ready(outcome) => Poll::Ready(outcome.take().unwrap_or(Outcome::Drop)),
            State::Repeat(repeat) => {
                let outcome = ready!(Pin::new(&mut *repeat).poll(cx));
                if repeat.was_shed() {
                    self.key = None;
                }
                Poll::Ready(outcome)
            }
            State::Running { response, execution } => {
                let result = ready!(Pin::new(&mut *response).poll(cx));
                let (xid, shed) = (response.xid(), matches!(result, Err(CallFailure::Shed)));
                if let Err(CallFailure::Results(error)) = &result {
                    response.broken(error);
                }
                let outcome = match result {
                    Ok(results) => reply(&ReplyHeader::accepted(xid, AcceptStat::Success), results),
                    Err(failure) => Failure::Call(failure).outcome(xid),
                };
                match execution.take() {
                    Some(execution) if shed => execution.shed(&outcome),
                    Some(execution) => execution.complete(&outcome),
                    None => {}
                }
                if shed {
                    self.key = None;
                }
                // The call is no longer in progress.
                self.state = State::Ready(None);
                Poll::Ready(outcome)
            }
        }
    }
}

#[cfg(test)]
mod tests;
