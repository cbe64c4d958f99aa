//! [`Retry`]: which failed calls a [`Handle`](crate::Handle) repeats, how often, and after which pauses.
//!
//! A call that was not carried out may always be repeated. Any other may be repeated only if a second execution does no
//! harm ([`Effect::Idempotent`]). Each attempt has an XID of its own, so the server's reply cache does not help here. The
//! connection itself sends calls again under their XID when it is lost, with or without this ([`Call::retransmit`]).
//!
//! *Buffers.* A repeated call shares its arguments with the first ([`Call::again`]).
//!
//! *Errors.* The last attempt's, in [`CallError::Repeated`] if there was more than one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma_oncrpc::Effect;
use tokio::time::{Instant, sleep};

use crate::call::{Call, Reply};
use crate::error::{CallError, Execution};
use crate::intercept::{Passage, Until};
use crate::xid::{entropy, mix};

/// The grain of the runtime's timer: a pause may last so much longer.
const GRAIN: Duration = Duration::from_millis(1);
/// Step between two numbers of the random source (SplitMix64).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A choice of failures.
type Choice = Arc<dyn Fn(&CallError) -> bool + Send + Sync>;

/// The rule by which a [`Handle`](crate::Handle) repeats failed calls.
///
/// Repeated are calls that were not carried out ([`Execution::NotExecuted`]), and any failed call of an
/// [idempotent](Effect::Idempotent) procedure, unless [`Call::once`] forbids to send it twice. Of these, the rule repeats
/// those whose failure is [transient](CallError::is_transient), or those that [`on`](Self::on) chooses.
/// [`CallError::Closed`] is final.
///
/// Before each repetition passes a pause. It doubles each time, from [`FIRST`](Self::FIRST) to [`MOST`](Self::MOST)
/// unless [`pauses`](Self::pauses) sets others. Of each pause the second half is random, so that clients that failed
/// together do not come back together. A repetition that could only begin after the call's deadline is left out.
#[derive(Clone)]
pub struct Retry {
    attempts: u32,
    first: Duration,
    most: Duration,
    /// State of the random source. Clones share it.
    random: Arc<AtomicU64>,
    on: Option<Choice>,
}

impl Retry {
    /// Default of the longest first pause.
    pub const FIRST: Duration = Duration::from_millis(100);
    /// Default of the longest pause.
    pub const MOST: Duration = Duration::from_secs(10);

    /// Creates a rule that makes at most this number of attempts at a call, the first included. 0 counts as 1.
    #[must_use]
    pub fn new(attempts: u32) -> Self {
        let random = Arc::new(AtomicU64::new(entropy()));
        Self { attempts: attempts.max(1), first: Self::FIRST, most: Self::MOST, random, on: None }
    }

    /// Sets the longest pause before the first repetition, and the longest of all pauses.
    #[must_use]
    pub const fn pauses(mut self, first: Duration, most: Duration) -> Self {
        self.first = first;
        self.most = most;
        self
    }

    /// Takes the random part of pauses from this seed, so that a test has the same pauses each time.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Arc::new(AtomicU64::new(seed));
        self
    }

    /// Repeats the failures for which `choice` returns `true`, instead of all [transient](CallError::is_transient) ones.
    /// Calls that may have been carried out, and are not idempotent, are never repeated, and neither is
    /// [`CallError::Closed`].
    #[must_use]
    pub fn on(mut self, choice: impl Fn(&CallError) -> bool + Send + Sync + 'static) -> Self {
        self.on = Some(Arc::new(choice));
        self
    }

    /// Returns whether a failed call may be made again.
    fn repeats(&self, error: &CallError, idempotent: bool) -> bool {
        let harmless = idempotent || error.execution() == Execution::NotExecuted;
        let chosen = || self.on.as_ref().map_or_else(|| error.is_transient(), |choice| choice(error));
        harmless && !matches!(error, CallError::Closed { .. }) && chosen()
    }

    /// Returns the pause before the repetition with this number, from 0 on.
    fn pause(&self, repetition: u32) -> Duration {
        let doubled = self.first.saturating_mul(1u32.checked_shl(repetition).unwrap_or(u32::MAX));
        let half = doubled.min(self.most) / 2;
        let random = mix(self.random.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP));
        let [share, ..] = random.to_be_bytes().map(u32::from);
        half + half / 256 * share
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, first, most, .. } = self;
        f.debug_struct("Retry")
            .field("attempts", attempts)
            .field("first", first)
            .field("most", most)
            .finish_non_exhaustive()
    }
}

impl Passage<'_> {
    /// Makes the call, and repeats it by the handle's rule.
    pub(crate) async fn attempts(&self, call: Call) -> Result<Reply, CallError> {
        let until = self.until(&call);
        match &self.settings.retry {
            Some(retry) => self.repeated(retry, call, until).await,
            None => self.attempt(call, until).await.map_err(|error| whole(error, until)),
        }
    }

    async fn repeated(
        &self,
        retry: &Retry,
        mut call: Call,
        until: Option<Until>,
    ) -> Result<Reply, CallError> {
        let began = Instant::now();
        let idempotent = call.effect == Effect::Idempotent && call.retransmit;
        let mut execution = Execution::NotExecuted;
        let mut attempts = 0;
        loop {
            let again = (attempts + 1 < retry.attempts).then(|| call.again());
            let error = match self.attempt(call, until).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            attempts += 1;
            if error.execution() == Execution::Unknown {
                execution = Execution::Unknown;
            }
            let next = again.filter(|_| retry.repeats(&error, idempotent)).and_then(|again| {
                let pause = retry.pause(attempts - 1);
                let left = until.map(Until::left);
                left.is_none_or(|left| pause + GRAIN < left).then_some((again, pause))
            });
            let Some((again, pause)) = next else {
                let elapsed = began.elapsed();
                return Err(match attempts {
                    1 => whole(error, until),
                    _ => CallError::Repeated { attempts, elapsed, execution, error: error.into() },
                });
            };
            tracing::debug!(target: "rpcrdma::retry", attempts, ?pause, %error, "the call is made again");
            sleep(pause).await;
            call = again;
        }
    }
}

fn whole(error: CallError, until: Option<Until>) -> CallError {
    match until {
        Some(until) => until.whole(error),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let retry = Retry::new(9).pauses(Duration::from_millis(80), Duration::from_millis(500)).seed(1);
        for (repetition, longest) in (0..).zip([80, 160, 320, 500, 500, 500]) {
            let longest = Duration::from_millis(longest);
            let pause = retry.pause(repetition);
            assert!((longest / 2..longest).contains(&pause), "{repetition}: {pause:?}");
        }
        assert!(retry.pause(u32::MAX) < Duration::from_millis(500));
        let forever = Retry::new(2).pauses(Duration::MAX, Duration::MAX);
        assert!(forever.pause(40) >= Duration::MAX / 2);
    }

    #[test]
    fn a_seed_gives_the_same_pauses_and_another_seed_others() {
        let pauses = |seed| {
            let retry = Retry::new(2).seed(seed);
            [(); 8].map(|()| retry.pause(3))
        };
        assert_eq!(pauses(7), pauses(7));
        assert_ne!(pauses(7), pauses(8));
        let [first, rest @ ..] = pauses(7);
        assert!(rest.iter().any(|pause| *pause != first), "the pauses are not all equal");
    }

    #[test]
    fn what_may_do_harm_is_never_repeated() {
        let any = Retry::new(3).on(|_| true);
        let lost = CallError::ConnectionLost { reason: crate::Cause::message("test") };
        assert!(any.repeats(&lost, true) && !any.repeats(&lost, false));
        let unsent = CallError::TimedOut { after: Duration::ZERO, sent: false, link: None };
        assert!(any.repeats(&unsent, false));
        for sent in [false, true] {
            assert!(!any.repeats(&CallError::Closed { sent }, true), "closed is final");
        }
    }
}
