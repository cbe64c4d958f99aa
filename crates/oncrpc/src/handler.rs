//! Calls in the hands of programs: [`ServedCall`], their [`Overseer`], and the guard against panics.
//!
//! A transport knows who shares its server, and a clock for its log. So it decides by an [`Overseer`] whether a call
//! begins, and learns there of its end and of a panic.
//!
//! *Buffers.* Nothing here holds any.
//!
//! *Errors.* A program that panics ends its call by [`CallFailure::Panicked`]. A panic can only leave the program's own
//! values inconsistent, and the dispatcher has none of these.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_xdr::{EncodeError, Stream};
use tracing::Span;

use crate::auth::User;
use crate::program::{CallFailure, Effect, ResponseFuture};

/// A call that a program is to carry out, or carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedCall {
    /// The peer's address, if the transport has one.
    pub peer: Option<SocketAddr>,
    /// The call's XID.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The procedure's name; empty if the program panicked before it told the name.
    pub name: &'static str,
    /// The kind of change that the procedure makes.
    pub effect: Effect,
    /// The user whom the call claims or proves to be from.
    pub user: User,
    /// The time at which the dispatcher got the call.
    pub since: Instant,
}

impl ServedCall {
    /// Returns a call of which the program has told nothing yet.
    pub(crate) const fn new(
        peer: Option<SocketAddr>,
        xid: u32,
        [program, version, procedure]: [u32; 3],
        since: Instant,
    ) -> Self {
        let (name, effect, user) = ("", Effect::State, User::Unknown);
        Self { peer, xid, program, version, procedure, name, effect, user, since }
    }

    /// Returns the span in which the program works.
    pub(crate) fn span(&self) -> Span {
        let Self { peer, xid, program, version, procedure, name, .. } = *self;
        let peer = peer.map(tracing::field::display);
        tracing::debug_span!(target: "rpcrdma::serve", "rpcrdma::serve", peer, xid, program, version, procedure, name)
    }
}

/// The overseer of the calls that a [`Dispatcher`](crate::Dispatcher) hands to its programs. By default every call may
/// begin. The methods run on the way of each call, so they must be short.
pub trait Overseer: Send + Sync + 'static {
    /// Returns whether a call may begin. [`end`](Self::end) follows if so. Otherwise the call is shed
    /// ([`CallFailure::Shed`]).
    fn begin(&self, _call: &ServedCall) -> bool {
        true
    }

    /// Notes that a call has ended, or was dropped half-way.
    fn end(&self, _call: &ServedCall) {}

    /// Notes that the results of a call break the limits of their type, which is a defect of its program.
    fn broken(&self, _call: &ServedCall, _error: &EncodeError) {}

    /// Notes that a call's program, or an interceptor, panicked with this message.
    fn panicked(&self, _call: &ServedCall, _message: &str) {}
}

/// A call with its overseer.
pub(crate) struct Oversight {
    call: ServedCall,
    overseer: Option<Arc<dyn Overseer>>,
    /// Whether the overseer has to learn of the end.
    begun: bool,
}

impl Oversight {
    pub(crate) const fn new(call: ServedCall, overseer: Option<Arc<dyn Overseer>>) -> Self {
        Self { call, overseer, begun: false }
    }

    pub(crate) const fn call(&self) -> &ServedCall {
        &self.call
    }

    /// Returns the view of another part of the same handler.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.call.clone(), self.overseer.clone())
    }

    /// Returns this if the call may begin.
    pub(crate) fn begin(mut self) -> Option<Self> {
        if let Some(overseer) = &self.overseer {
            self.begun = overseer.begin(&self.call);
            return self.begun.then_some(self);
        }
        Some(self)
    }

    /// Asks the program something that a panic leaves without an answer.
    pub(crate) fn ask<T>(&self, question: impl FnOnce() -> T) -> Result<T, CallFailure> {
        catch_unwind(AssertUnwindSafe(question)).map_err(|panic| self.panicked(&*panic))
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> CallFailure {
        if let Some(overseer) = &self.overseer {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            overseer.panicked(&self.call, text.unwrap_or("no message"));
        }
        CallFailure::Panicked
    }
}

impl Drop for Oversight {
    fn drop(&mut self) {
        if self.begun
            && let Some(overseer) = &self.overseer
        {
            overseer.end(&self.call);
        }
    }
}

/// A handler at work, in the span of its call. Must not be polled after its end.
pub(crate) struct Guarded {
    /// `None` after the end.
    response: Option<ResponseFuture>,
    oversight: Oversight,
    span: Span,
}

impl Guarded {
    /// Begins a handler.
    pub(crate) fn start(oversight: Oversight, span: Span, begin: impl FnOnce() -> ResponseFuture) -> Self {
        let response = span.in_scope(|| oversight.ask(begin)).ok();
        Self { response, oversight, span }
    }

    pub(crate) const fn xid(&self) -> u32 {
        self.oversight.call.xid
    }

    /// Tells the overseer of results that break the limits of their type.
    pub(crate) fn broken(&self, error: &EncodeError) {
        if let Some(overseer) = &self.oversight.overseer {
            overseer.broken(&self.oversight.call, error);
        }
    }
}

impl Future for Guarded {
    type Output = Result<Stream, CallFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { response, oversight, span } = &mut *self;
        let _inside = span.enter();
        let Some(handler) = response.as_mut() else { return Poll::Ready(Err(CallFailure::Panicked)) };
        match oversight.ask(|| handler.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => {
                // A drop is a part of the handler, too.
                let dropped = oversight.ask(|| *response = None);
                Poll::Ready(dropped.and(result))
            }
            Err(failure) => {
                // The handler is useless, whatever its drop does.
                let _ = catch_unwind(AssertUnwindSafe(|| *response = None));
                Poll::Ready(Err(failure))
            }
        }
    }
}
