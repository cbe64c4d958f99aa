//! [`Intercept`]: code between a caller and its calls. [`Passage`] is the way of one call through it.
//!
//! *Buffers.* An interceptor owns the call, and gives it on or drops it.
//!
//! *Errors.* An interceptor may answer in place of the server, by a reply or any [`CallError`]. The call's deadline binds
//! interceptors too: one that is still busy then is dropped, and the call fails with [`CallError::TimedOut`].

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use rpcrdma_verbs::BoxFuture;
use tokio::time::{Instant, sleep_until};

use crate::call::{Call, Reply};
use crate::client::Client;
use crate::error::{CallError, Execution};
use crate::handle::Settings;
use crate::tcp::after;

/// An interceptor of the calls of a [`Handle`](crate::Handle): it sees and changes each call before it is made, and its
/// result after.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use rpcrdma::{BoxFuture, Call, CallError, Intercept, Next, Reply};
///
/// /// Counts calls that failed.
/// struct Failures(AtomicU64);
///
/// impl Intercept for Failures {
///     fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
///         Box::pin(async move {
///             let result = next.call(call).await;
///             self.0.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
///             result
///         })
///     }
/// }
/// ```
pub trait Intercept: Send + Sync {
    /// Carries out a call, commonly by [`Next::call`]. The caller of the handle gets the result.
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>>;
}

impl<T: Intercept + ?Sized> Intercept for Arc<T> {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        (**self).call(call, next)
    }
}

/// The rest of a call's way: the interceptors behind this one, the attempts and their pauses. An interceptor may use it
/// more than once, for instance with [`Call::again`].
#[derive(Clone, Copy)]
pub struct Next<'a> {
    passage: &'a Passage<'a>,
    rest: &'a [Arc<dyn Intercept>],
}

impl<'a> Next<'a> {
    /// Makes the call, and returns its result. An interceptor that makes several calls answers for the
    /// [execution](CallError::execution) of all of them. If the interceptor has changed the call's
    /// [deadline](Call::deadline), the changed one begins now; the handle's stays.
    #[must_use]
    pub fn call(self, call: Call) -> BoxFuture<'a, Result<Reply, CallError>> {
        match self.rest.split_first() {
            Some((first, rest)) => first.call(call, Next { rest, ..self }),
            None => Box::pin(self.passage.attempts(call)),
        }
    }

    /// Returns the client that makes the call.
    #[must_use]
    pub const fn client(&self) -> &'a Client {
        self.passage.client
    }

    /// Returns the time that the call has left; `None` without a deadline.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.passage.until.map(Until::left)
    }
}

/// The end of a call's time, and that time.
#[derive(Clone, Copy)]
pub(crate) struct Until {
    at: Instant,
    after: Duration,
}

impl Until {
    fn new(call: &Call) -> Option<Self> {
        call.deadline.map(|time| Self { at: after(Instant::now(), time), after: time })
    }

    /// Returns the time that is left.
    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Tells the whole time of the call in the error of its only attempt.
    pub(crate) fn whole(self, error: CallError) -> CallError {
        match error {
            CallError::TimedOut { sent, link, .. } if self.left().is_zero() => {
                CallError::TimedOut { after: self.after, sent, link }
            }
            error => error,
        }
    }
}

/// One call of a handle, with all its attempts.
pub(crate) struct Passage<'a> {
    pub(crate) client: &'a Client,
    pub(crate) settings: &'a Settings,
    until: Option<Until>,
    /// Attempts in progress.
    running: AtomicU32,
    /// Whether an attempt may have been carried out.
    executed: AtomicBool,
}

/// An attempt in progress, which counts until this is dropped. An attempt that is dropped half-way may be carried out.
struct Running<'a> {
    passage: &'a Passage<'a>,
    /// Whether the attempt was not carried out.
    harmless: bool,
}

impl<'a> Running<'a> {
    fn new(passage: &'a Passage<'a>) -> Self {
        passage.running.fetch_add(1, Ordering::Relaxed);
        Self { passage, harmless: false }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.passage.executed.fetch_or(!self.harmless, Ordering::Relaxed);
        self.passage.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Passage<'a> {
    pub(crate) fn new(client: &'a Client, settings: &'a Settings, call: &Call) -> Self {
        let (running, executed) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { client, settings, until: Until::new(call), running, executed }
    }

    /// Returns the end of the time of a call that is made now: the earlier of its own deadline and the handle's.
    pub(crate) fn until(&self, call: &Call) -> Option<Until> {
        [self.until, Until::new(call)].into_iter().flatten().min_by_key(|until| until.at)
    }

    /// Makes the call once, until this time.
    pub(crate) async fn attempt(&self, mut call: Call, until: Option<Until>) -> Result<Reply, CallError> {
        call.deadline = until.map(Until::left);
        let mut running = Running::new(self);
        let result = self.client.attempt(call).await;
        running.harmless = result.as_ref().is_err_and(|error| error.execution() == Execution::NotExecuted);
        result
    }

    /// Lets the interceptors have the call, within its time. Attempts end at that time by themselves, and know whether
    /// the call has left. So only an interceptor that waits for something else is interrupted.
    pub(crate) async fn intercepted(&self, call: Call) -> Result<Reply, CallError> {
        let mut result = Next { passage: self, rest: &self.settings.interceptors }.call(call);
        let Some(Until { at, after }) = self.until else { return result.await };
        let mut timer = pin!(sleep_until(at));
        let mut over = false;
        poll_fn(|cx| {
            if let Poll::Ready(result) = result.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            over = over || timer.as_mut().poll(cx).is_ready();
            if over && self.running.load(Ordering::Relaxed) == 0 {
                let sent = self.executed.load(Ordering::Relaxed);
                return Poll::Ready(Err(CallError::TimedOut { after, sent, link: None }));
            }
            Poll::Pending
        })
        .await
    }
}
