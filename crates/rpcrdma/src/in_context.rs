//! Calls of a [`GssUser`] in its security context (RFC 2203 §5).
//!
//! The first call creates the context, and others wait for it. Each call is given a number and signed before it is sent. If
//! its connection is lost, it gets a new number under the same XID, so that the server's reply cache knows it again
//! (§5.3.3.1). A context that the server does not know any more is replaced (§5.3.3.3).
//!
//! *Buffers.* Without protection of arguments and results, both stay where they are. Otherwise the sinks of a call are not
//! used: its results come in the message (RFC 8166 §8.2.2.3).
//!
//! *Errors.* [`CallError::NoContext`] without a context, [`CallError::Untrusted`] for a reply that proves nothing. If the time
//! ends while the mechanism works, the error is [`CallError::ContextTimedOut`], not one about the server. A call that was sent
//! before is of unknown execution, whatever ends it then (rule I8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rpcrdma_oncrpc::gss::{
    Creating, CreationError, GssClient, HANDLE_MAX, InitArguments, InitCall, InitResults, MechanismError,
    Place, Progress, Service, TOKEN_MAX, Unprotectable,
};
use rpcrdma_oncrpc::{AuthStat, CallHeader, OpaqueAuth, Refused, RejectReason, ReplyBody, ReplyHeader};
use rpcrdma_proto::Sink;
use rpcrdma_xdr::{Stream, encode, padded_len};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, timeout_at};

use crate::call::{Call, RawReply, Reply, ReplyShape};
use crate::cause::Cause;
use crate::channel::Channel;
use crate::error::CallError;
use crate::gss::{Established, Failure, GssUser, Proof, compute};
use crate::workers::WorkLost;
use crate::xid::entropy;

/// Most contexts that a call tries, one after the other. Each time the server said that it knows the last one no more.
const CONTEXTS: u32 = 3;
/// Most calls that create one context.
const ROUNDS: u32 = 16;
/// Most creations that a call begins again because a busy server answered SYSTEM_ERR. All pauses together take 3 s to 6.3 s.
const BUSY_REPETITIONS: u32 = 6;
/// Longest pause before the first of these repetitions. It doubles with each one.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Largest results of a call that creates a context: handle, three words and a token.
const CREATION_MAX: usize = 4 + HANDLE_MAX + 3 * 4 + 4 + TOKEN_MAX;
/// Time for the call that ends a context.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A place of a request, which tells the next one when it is free again.
struct Placed<'a> {
    place: Option<Place>,
    freed: &'a Notify,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        drop(self.place.take());
        self.freed.notify_one();
    }
}

impl Established {
    /// Waits for a place in the server's window, in the order of the calls. Returns it with the number of the request.
    async fn place(&self) -> Result<(Placed<'_>, u32), MechanismError> {
        let _turn = self.turn.lock().await;
        loop {
            if let Some(place) = self.keys.place()? {
                let sequence = place.sequence();
                return Ok((Placed { place: Some(place), freed: &self.freed }, sequence));
            }
            // Only the call whose turn it is waits here. A place that was freed since the look wakes it at once.
            self.freed.notified().await;
        }
    }
}

/// Tells other calls that the mechanism works, until the drop.
struct Waits<'a>(&'a AtomicBool);

impl<'a> Waits<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Time that a call has, with all that it needs.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    after: Duration,
    /// The time at which the call ends, whatever has moved.
    until: Option<Instant>,
}

impl Deadline {
    fn late(self, sent: bool) -> CallError {
        CallError::TimedOut { after: self.after, sent, link: None }
    }

    /// Returns the time that is left.
    fn left(self, sent: bool) -> Result<Duration, CallError> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.late(sent)) } else { Ok(left) }
    }

    /// Gives a message of the call the time that is left.
    fn limit(self, mut call: Call, sent: bool) -> Result<Call, CallError> {
        call.timeout = Some(self.left(sent)?);
        call.deadline = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        Ok(call)
    }

    /// Tells the whole time of the call in an error that knows a part of it.
    fn whole(self, error: CallError) -> CallError {
        match error {
            CallError::TimedOut { sent, link, .. } => CallError::TimedOut { after: self.after, sent, link },
            error => error,
        }
    }
}

/// A call that may have to be sent more than once.
struct Request {
    xid: u32,
    header: (u32, u32, u32),
    name: &'static str,
    arguments: Stream,
    results: usize,
    /// Sinks for the first transmission, and their lengths for later ones.
    sinks: Vec<Sink>,
    lengths: Vec<usize>,
    retransmit: bool,
    sent: bool,
}

/// Reason why an attempt brought no reply.
enum Missed {
    /// The server does not know the context any more, or the context is too old.
    OldContext,
    /// The connection was lost.
    Lost(CallError),
    /// Another attempt would not help.
    Ended(CallError),
}

impl<E: Into<CallError>> From<E> for Missed {
    fn from(error: E) -> Self {
        Self::Ended(error.into())
    }
}

impl Request {
    fn new(call: Call, xid: u32) -> Self {
        let Call { program, version, procedure, name, arguments, reply, retransmit, .. } = call;
        let ReplyShape { max_len, sinks } = reply;
        let lengths = sinks.iter().map(Sink::len).collect();
        let header = (program, version, procedure);
        Self { xid, header, name, arguments, results: max_len, sinks, lengths, retransmit, sent: false }
    }

    fn header(&self) -> CallHeader {
        let (program, version, procedure) = self.header;
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        CallHeader { xid: self.xid, program, version, procedure, credential, verifier }
    }

    /// Returns the call with these arguments, as they travel.
    fn call(&mut self, keys: &GssClient, service: Service, arguments: Stream, proof: Proof) -> Call {
        let (program, version, procedure) = self.header;
        let mut call = Call::new(program, version, procedure).name(self.name).arguments(arguments).once();
        if proof.touches_data {
            let data = self.lengths.iter().map(|length| padded_len(*length)).sum();
            call = call.results(keys.largest(service, self.results.saturating_add(data)));
        } else {
            let pool = self.lengths.iter().map(|length| Sink::Pool(*length)).collect();
            let sinks = std::mem::replace(&mut self.sinks, pool);
            call = call.results(self.results);
            call.reply.sinks = sinks;
        }
        call.proof = Some(proof);
        call
    }
}

/// Returns the error of a call that has no context for this reason.
fn no_context(reason: impl Into<Cause>) -> CallError {
    CallError::NoContext { reason: reason.into(), sent: false }
}

fn lost(error: WorkLost) -> CallError {
    no_context(error)
}

impl From<CreationError> for CallError {
    fn from(error: CreationError) -> Self {
        no_context(error)
    }
}

impl GssUser {
    /// Makes a call on this connection.
    pub(crate) async fn call(&self, link: &impl Channel, call: Call) -> Result<Reply, CallError> {
        let after = call.time(link.call_timeout());
        let now = Instant::now();
        // A time beyond the clock's end is one without end.
        let end = |after| now.checked_add(after).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        let deadline = Deadline { at: end(after), after, until: call.deadline.map(end) };
        let mut request = Request::new(call, link.next_xid());
        let mut refused = 0;
        loop {
            let sent_before = request.sent;
            let end = move |error: CallError| if sent_before { error.sent_before() } else { error };
            let context = self.established(link, &request, deadline).await.map_err(end)?;
            match self.attempt(link, &context, &mut request, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(Missed::Lost(_)) if request.retransmit => {}
                Err(Missed::Lost(error) | Missed::Ended(error)) => return Err(end(error)),
                Err(Missed::OldContext) => {
                    // The XID stays: nobody signs a denial, and the call may have been carried out.
                    self.forget(&context);
                    refused += 1;
                }
            }
            if refused == CONTEXTS {
                let reason =
                    Cause::message(format!("the server refused {CONTEXTS} security contexts in turn"));
                return Err(CallError::NoContext { reason, sent: request.sent });
            }
        }
    }

    /// Returns the length over which the mechanism computes, from that of arguments or results.
    fn covered(&self, length: usize) -> usize {
        if self.service == Service::None { 0 } else { length }
    }

    /// Sends a request once.
    async fn attempt(
        &self,
        link: &impl Channel,
        context: &Arc<Established>,
        request: &mut Request,
        deadline: Deadline,
    ) -> Result<Reply, Missed> {
        let placed = timeout_at(deadline.at, context.place()).await;
        // A context without numbers is too old.
        let placed = placed.map_err(|_| deadline.late(request.sent))?.map_err(|_| Missed::OldContext)?;
        let (_placed, sequence) = placed;
        let (keys, service) = (Arc::clone(&context.keys), self.service);
        let (mut header, arguments) = (request.header(), request.arguments.clone());
        let (quick, length) = (keys.is_quick(), self.covered(arguments.len()));
        let sealed = compute(&self.workers, quick, length, move || {
            let sealed = keys.seal_as(sequence, service, &mut header, arguments)?;
            Ok((header, sealed))
        });
        let (header, sealed) = match sealed.await.map_err(lost)? {
            Ok(sealed) => sealed,
            Err(Unprotectable::Refused(error)) if error.is_expired() => return Err(Missed::OldContext),
            Err(error) => return Err(no_context(error).into()),
        };
        let proof = Proof {
            xid: header.xid,
            credential: header.credential,
            verifier: header.verifier,
            touches_data: service != Service::None,
        };
        let sent = request.sent;
        let call = deadline.limit(request.call(&context.keys, service, sealed.arguments, proof), sent)?;
        match link.call(call).await {
            Ok(reply) => {
                let opened = self.open(context, sealed.sequence, reply).await;
                // Nobody signs a denial.
                request.sent |= matches!(opened, Err(Missed::OldContext));
                opened
            }
            Err(error @ CallError::ConnectionLost { .. }) => {
                request.sent = true;
                Err(Missed::Lost(error))
            }
            Err(error) => Err(deadline.whole(error).into()),
        }
    }

    /// Checks a reply.
    async fn open(
        &self,
        context: &Arc<Established>,
        sequence: u32,
        reply: RawReply,
    ) -> Result<Reply, Missed> {
        let RawReply { mut message, travelled, .. } = reply;
        let header: ReplyHeader = message.decode()?;
        match &header.body {
            ReplyBody::Denied(RejectReason::AuthError(
                AuthStat::GssCredProblem | AuthStat::GssCtxProblem,
            )) => return Err(Missed::OldContext),
            ReplyBody::Denied(_) => header.success()?,
            ReplyBody::Accepted { .. } => {}
        }
        let (keys, service) = (Arc::clone(&context.keys), self.service);
        let (quick, length) = (keys.is_quick(), self.covered(message.remaining()));
        let opened = compute(&self.workers, quick, length, move || {
            let results = keys.open(service, &[sequence], &header, message);
            (header, results)
        });
        // The reply has come, so the call was carried out, or was not: only its results are lost.
        let (header, results) =
            opened.await.map_err(|error| CallError::TransportReply { reason: error.into() })?;
        let results = results?;
        header.success()?;
        Ok(Reply { xid: header.xid, results, travelled })
    }

    /// Returns the context, which the first caller creates by calling procedure 0 of the same program.
    async fn established(
        &self,
        link: &impl Channel,
        request: &Request,
        deadline: Deadline,
    ) -> Result<Arc<Established>, CallError> {
        let usable = || {
            let now = Instant::now().into_std();
            self.current().as_ref().filter(|context| !context.keys.is_spent(now)).cloned()
        };
        if let Some(context) = usable() {
            return Ok(context);
        }
        let began = Instant::now();
        let creating = timeout_at(deadline.at, self.creating.lock()).await;
        let mut last = creating.map_err(|_| {
            let in_mechanism = self.in_mechanism.load(Ordering::Relaxed);
            if in_mechanism { self.overdue(deadline) } else { deadline.late(request.sent) }
        })?;
        if let Some(context) = usable() {
            return Ok(context);
        }
        // This call would fail as the one that it waited for.
        if let Some(failure) = last.as_ref().filter(|failure| failure.at >= began) {
            return Err(no_context(failure.reason.clone()));
        }
        match self.create(link, request, deadline).await {
            Ok(keys) => {
                let (program, version, _) = request.header;
                let (keys, program) = (Arc::new(keys), (program, version));
                let (turn, freed) = (AsyncMutex::new(()), Notify::new());
                let context = Arc::new(Established { keys, program, turn, freed });
                *self.current() = Some(Arc::clone(&context));
                Ok(context)
            }
            Err(error) => {
                // What the mechanism or the server says holds for those that wait, too. The time of this call does not.
                if let CallError::NoContext { reason, .. } = &error {
                    *last = Some(Failure { at: Instant::now(), reason: reason.clone() });
                }
                Err(deadline.whole(error))
            }
        }
    }

    /// Returns the error of a call whose time ended while the mechanism worked.
    fn overdue(&self, deadline: Deadline) -> CallError {
        CallError::ContextTimedOut {
            service: self.target.clone(),
            after: deadline.after,
            reason: self.initiator.overdue(),
            sent: false,
        }
    }

    /// Lets the mechanism do a step of the creation. A step that is late goes on without its caller.
    async fn mechanism<T, F>(&self, deadline: Deadline, step: F) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let _waits = Waits::new(&self.in_mechanism);
        let done = timeout_at(deadline.at, self.creators.run(step)).await;
        done.map_err(|_| self.overdue(deadline))?.map_err(lost)
    }

    /// Creates a context.
    async fn create(
        &self,
        link: &impl Channel,
        request: &Request,
        deadline: Deadline,
    ) -> Result<GssClient, CallError> {
        let mut busy = 0;
        'begin: loop {
            let (initiator, target) = (Arc::clone(&self.initiator), self.target.clone());
            let begun = self.mechanism(deadline, move || Creating::begin(&*initiator, &target)).await?;
            let (mut creating, mut call) = begun?;
            for _ in 0..ROUNDS {
                let message = deadline.limit(creation(link, request, call)?, false)?;
                let reply = match link.call(message).await {
                    Ok(reply) => reply,
                    // The other side of a token that was lost is lost too.
                    Err(CallError::ConnectionLost { .. }) => continue 'begin,
                    Err(error) => return Err(error),
                };
                let (verifier, results) = match read_creation(reply)? {
                    Creation::Reply(verifier, results) => (verifier, results),
                    Creation::Busy => {
                        let pause = busy_pause(busy, deadline.left(false)?, entropy());
                        tokio::time::sleep(pause.ok_or_else(|| not_created(&Refused::SystemError))?).await;
                        busy += 1;
                        // A token may be used once. So the next attempt has one of its own.
                        continue 'begin;
                    }
                };
                let now = Instant::now().into_std();
                let step = self.mechanism(deadline, move || creating.reply(&verifier, results, now)).await?;
                match step? {
                    Progress::Created(keys) => return Ok(keys),
                    Progress::Call(next, next_call) => (creating, call) = (next, next_call),
                }
            }
            return Err(no_context(Cause::message(format!(
                "no security context after {ROUNDS} calls to create it"
            ))));
        }
    }

    /// Calls for the end of a context.
    pub(crate) async fn end_on(
        &self,
        link: &impl Channel,
        context: &Arc<Established>,
    ) -> Result<(), CallError> {
        let (program, version) = context.program;
        let mut header = CallHeader {
            xid: link.next_xid(),
            program,
            version,
            procedure: 0,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        let keys = Arc::clone(&context.keys);
        let signed = self.workers.run(move || keys.seal_end(&mut header).map(|_| header));
        let header = signed.await.map_err(lost)?;
        let header = header.map_err(no_context)?;
        let CallHeader { xid, credential, verifier, .. } = header;
        let mut call = Call::new(program, version, 0).name("end of a security context").once();
        call.proof = Some(Proof { xid, credential, verifier, touches_data: false });
        // Nothing depends on the reply: the server forgets an idle context anyway.
        link.call(call.timeout(END_TIMEOUT)).await.map(|_| ())
    }
}

/// Returns a call that creates a context: procedure 0 of the request's program (RFC 2203 §5.2.2).
fn creation(link: &impl Channel, request: &Request, call: InitCall) -> Result<Call, CallError> {
    let (program, version, _) = request.header;
    let InitCall { credential, token } = call;
    let mut call = Call::new(program, version, 0).name("security context").results(CREATION_MAX).once();
    call.arguments = encode(&InitArguments { token })?;
    let (xid, verifier) = (link.next_xid(), OpaqueAuth::none());
    call.proof = Some(Proof { xid, credential, verifier, touches_data: false });
    Ok(call)
}

/// Content of the reply to such a call.
enum Creation {
    Reply(OpaqueAuth, InitResults),
    /// SYSTEM_ERR: a server that creates as many contexts as it may answers so.
    Busy,
}

fn read_creation(reply: RawReply) -> Result<Creation, CallError> {
    let RawReply { mut message, .. } = reply;
    let header: ReplyHeader = message.decode()?;
    match header.success() {
        Ok(()) => {}
        Err(Refused::SystemError) => return Ok(Creation::Busy),
        Err(refused) => return Err(not_created(&refused)),
    }
    match header.body {
        ReplyBody::Accepted { verifier, .. } => Ok(Creation::Reply(verifier, message.decode_all()?)),
        ReplyBody::Denied(_) => Err(not_created(&Refused::SystemError)),
    }
}

fn not_created(refused: &Refused) -> CallError {
    no_context(Cause::message(format!("the server creates no security context: {refused}")))
}

/// Returns the pause before the repetition of a creation with this number; `None` if there is none, or if no time is
/// left behind it. At least half of the longest pause passes. The rest is random, so that clients that were refused
/// together do not come back together.
fn busy_pause(repetition: u32, left: Duration, entropy: u64) -> Option<Duration> {
    if repetition >= BUSY_REPETITIONS {
        return None;
    }
    let half = BUSY_PAUSE.saturating_mul(1 << repetition) / 2;
    let [.., share] = entropy.to_be_bytes();
    let pause = half + half * u32::from(share) / 256;
    (pause < left).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_for_a_busy_server_grow_and_end() {
        let hour = Duration::from_secs(3600);
        let mut least = BUSY_PAUSE / 2;
        for repetition in 0..BUSY_REPETITIONS {
            assert_eq!(busy_pause(repetition, hour, 0), Some(least));
            let longest = busy_pause(repetition, hour, u64::MAX).unwrap();
            assert!((least * 3 / 2..least * 2).contains(&longest), "{longest:?}");
            assert_eq!(busy_pause(repetition, least, 0), None, "no time is left behind it");
            assert!(busy_pause(repetition, least + Duration::from_nanos(1), 0).is_some());
            least *= 2;
        }
        assert_eq!(busy_pause(BUSY_REPETITIONS, hour, 0), None);
    }
}
