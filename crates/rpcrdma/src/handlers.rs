//! The calls that a connection is working on.
//!
//! A handler is first polled inline, with the context of the connection's task. A handler that cannot block is done
//! then, at the cost of a function call. Any other handler becomes a task of its own, whose result comes back here.
//!
//! *Errors.* When the connection ends, the handlers go on without it. Each ends in the reply cache, where a
//! retransmission on another connection finds its reply. Until it ends, each holds a value from its connection; at the
//! server this is the connection's place. So a peer that calls and leaves, again and again, has no more handlers at
//! work than its connections allow (I6). Handlers are dropped half-way only when the runtime ends.
//!
//! The dispatcher makes an answer of a program's panic, so such a handler ends like others. A panic outside of programs is one
//! of a security mechanism, or a defect of these crates. Its call has no answer, so its connection ends, and no other.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::task::JoinSet;

use crate::turns::Line;

/// Most memory of a handler's task, in bytes, beside what the handler points to.
pub(crate) const TASK_ROOM: usize = 1 << 10;

/// A handler panicked outside of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a handler panicked outside of its program")]
pub(crate) struct HandlerPanicked;

/// Calls in progress; `K` identifies the call that a result answers.
#[derive(Debug)]
pub(crate) struct Handlers<K: 'static, T: 'static> {
    tasks: JoinSet<(K, Result<T, HandlerPanicked>)>,
    keeps: Arc<dyn Any + Send + Sync>,
    line: Option<Line>,
}

impl<K: Send + Unpin + 'static, T: Send + 'static> Handlers<K, T> {
    /// Creates an empty set. Each handler will hold `keeps` until it has ended, and will be polled in its turns in
    /// `line`.
    pub(crate) fn new(keeps: impl Any + Send + Sync, line: Option<Line>) -> Self {
        Self { tasks: JoinSet::new(), keeps: Arc::new(keeps), line }
    }

    /// Returns the number of handlers that go on as tasks.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Begins a handler and polls it once. If that does not end the handler, it goes on as a task and its result comes
    /// from [`poll_next`](Self::poll_next).
    pub(crate) fn start<F>(
        &mut self,
        cx: &mut Context<'_>,
        key: K,
        begin: impl FnOnce() -> F,
    ) -> Result<Option<(K, T)>, HandlerPanicked>
    where
        F: Future<Output = T> + Send + Unpin + 'static,
    {
        // A panic can only leave the handler's own state inconsistent, and that is dropped.
        let first = catch_unwind(AssertUnwindSafe(|| {
            let mut handler = begin();
            let first = Pin::new(&mut handler).poll(cx);
            (handler, first)
        }));
        match first.map_err(|_| HandlerPanicked)? {
            (_, Poll::Ready(result)) => Ok(Some((key, result))),
            (handler, Poll::Pending) => {
                let work = carry_on(handler, key, Arc::clone(&self.keeps));
                match &self.line {
                    Some(line) => self.tasks.spawn(line.in_turn(work)),
                    None => self.tasks.spawn(work),
                };
                Ok(None)
            }
        }
    }

    /// Polls for the next result; `Ready(None)` if no handler is at work.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(K, Result<T, HandlerPanicked>)>> {
        loop {
            match ready!(self.tasks.poll_join_next(cx)) {
                Some(Ok(done)) => return Poll::Ready(Some(done)),
                // The task was cancelled: the runtime shuts down.
                Some(Err(_)) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Returns the task of a handler that was not done at once.
pub(crate) fn carry_on<F, K>(
    mut handler: F,
    key: K,
    keeps: Arc<dyn Any + Send + Sync>,
) -> impl Future<Output = (K, Result<F::Output, HandlerPanicked>)>
where
    F: Future + Unpin,
{
    let mut call = Some((key, keeps));
    poll_fn(move |cx| {
        let next = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut handler).poll(cx)));
        let result = ready!(next.map_or(Poll::Ready(Err(HandlerPanicked)), |next| next.map(Ok)));
        call.take().map_or(Poll::Pending, |(key, _)| Poll::Ready((key, result)))
    })
}

impl<K: 'static, T: 'static> Drop for Handlers<K, T> {
    fn drop(&mut self) {
        self.tasks.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::task::Waker;

    use super::*;

    type Work = Pin<Box<dyn Future<Output = u32> + Send>>;

    fn start(
        handlers: &mut Handlers<u32, u32>,
        key: u32,
        begin: impl FnOnce() -> Work,
    ) -> Result<Option<(u32, u32)>, HandlerPanicked> {
        handlers.start(&mut Context::from_waker(Waker::noop()), key, begin)
    }

    #[tokio::test]
    async fn i6_a_panic_is_told_wherever_it_happens() {
        let mut handlers = Handlers::new((), None);
        assert_eq!(start(&mut handlers, 1, || panic!("before the handler")), Err(HandlerPanicked));
        let inline = start(&mut handlers, 2, || Box::pin(async { panic!("in its first poll") }));
        assert_eq!(inline, Err(HandlerPanicked));
        let mut first = true;
        let later = poll_fn(move |_| {
            assert!(std::mem::replace(&mut first, false), "in its second poll");
            Poll::Pending
        });
        assert_eq!(start(&mut handlers, 3, || Box::pin(later)), Ok(None));
        assert_eq!(start(&mut handlers, 4, || Box::pin(ready(7))), Ok(Some((4, 7))));
        assert_eq!(poll_fn(|cx| handlers.poll_next(cx)).await, Some((3, Err(HandlerPanicked))));
        assert_eq!(poll_fn(|cx| handlers.poll_next(cx)).await, None);
    }
}
