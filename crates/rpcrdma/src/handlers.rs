//! The calls that a connection is working on.
//!
//! A handler is first polled inline, with the context of the connection's task. A handler that cannot block is done
//! then, at the cost of a function call. A light one, which only waits for others, goes on in the connection's task. Any other
//! becomes a task of its own, whose result comes back here.
//!
//! *Errors.* When the connection ends, the handlers go on without it. Each ends in the reply cache, where a
//! retransmission on another connection finds its reply. Until it ends, each holds a value from its connection; at the
//! server this is the connection's place. So a peer that calls and leaves, again and again, has no more handlers at
//! work than its connections allow (I6).
//!
//! Handlers are dropped half-way when the runtime ends, and when the server stops. Clients whose connections end then send their
//! calls again, perhaps to a server that serves already. So a connection that ends while the server stops drops its
//! handlers ([`Handlers::abandon`]). Those of earlier connections go on until the server has answered all it can
//! ([`Orphans`]). A call on a connection that is left may be a repeat of theirs.
//!
//! The dispatcher makes an answer of a program's panic, so such a handler ends like others. A panic outside of programs is one
//! of a security mechanism, or a defect of these crates. Its call has no answer, so its connection ends, and no other.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

use crate::turns::Line;

/// Most memory of a handler's task, in bytes, beside what the handler points to.
pub(crate) const TASK_ROOM: usize = 1 << 10;

/// A handler panicked outside of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a handler panicked outside of its program")]
pub(crate) struct HandlerPanicked;

/// A future that resolves to the outcome of a call.
pub(crate) trait Handler: Future + Send + Unpin + 'static
where
    Self::Output: Send,
{
    /// Returns whether the handler only waits for others from now on: it needs no task of its own.
    fn is_light(&self) -> bool;
}

/// Calls in progress; `K` identifies the call that a result answers.
pub(crate) struct Handlers<F, K>
where
    F: Handler,
    F::Output: Send,
    K: Send + Unpin + 'static,
{
    /// Light handlers, polled here, and one member that never ends.
    light: FuturesUnordered<Light<F, K>>,
    /// Whether the tasks are asked first, so that neither kind waits for the other.
    tasks_first: bool,
    tasks: JoinSet<Ended<F, K>>,
    keeps: Arc<dyn Any + Send + Sync>,
    line: Option<Line>,
    /// Where handlers go that outlive the connection; `None` if nothing ends them but the runtime.
    orphans: Option<Arc<Orphans>>,
}

/// Handlers of a server whose connections have ended.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Mutex<Adopted>);

#[derive(Debug, Default)]
struct Adopted {
    tasks: Vec<AbortHandle>,
    ended: bool,
}

impl Orphans {
    fn lock(&self) -> MutexGuard<'_, Adopted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adopt(&self, task: AbortHandle) {
        let mut adopted = self.lock();
        if adopted.ended {
            return task.abort();
        }
        adopted.tasks.retain(|task| !task.is_finished());
        adopted.tasks.push(task);
    }

    /// Drops all handlers, and those that come later.
    pub(crate) fn end(&self) {
        let mut adopted = self.lock();
        adopted.ended = true;
        adopted.tasks.drain(..).for_each(|task| task.abort());
    }
}

/// The result of a handler, with its call.
type Ended<F, K> = (K, Result<<F as Future>::Output, HandlerPanicked>);

impl<F, K> Handlers<F, K>
where
    F: Handler,
    F::Output: Send,
    K: Send + Unpin + 'static,
{
    /// Creates an empty set. Each handler will hold `keeps` until it has ended. Those with tasks of their own will be polled
    /// in their turns in `line`.
    pub(crate) fn new(keeps: impl Any + Send + Sync, line: Option<Line>) -> Self {
        // Without a further member the set would ask for another poll after each first poll of a single handler.
        let light: FuturesUnordered<_> = [Light::Never].into_iter().collect();
        let keeps = Arc::new(keeps);
        Self { light, tasks_first: false, tasks: JoinSet::new(), keeps, line, orphans: None }
    }

    /// Gives handlers that outlive the connection to these.
    pub(crate) fn outlived_by(mut self, orphans: Arc<Orphans>) -> Self {
        self.orphans = Some(orphans);
        self
    }

    /// Returns the number of handlers that go on.
    pub(crate) fn len(&self) -> usize {
        self.light_len() + self.tasks.len()
    }

    fn light_len(&self) -> usize {
        self.light.len().saturating_sub(1)
    }

    /// Begins a handler and polls it once. If that does not end the handler, it goes on and its result comes from
    /// [`poll_next`](Self::poll_next).
    pub(crate) fn start(
        &mut self,
        cx: &mut Context<'_>,
        key: K,
        begin: impl FnOnce() -> F,
    ) -> Result<Option<(K, F::Output)>, HandlerPanicked> {
        // A panic can only leave the handler's own state inconsistent, and that is dropped.
        let first = catch_unwind(AssertUnwindSafe(|| {
            let mut handler = begin();
            let first = Pin::new(&mut handler).poll(cx);
            (handler, first)
        }));
        let handler = match first.map_err(|_| HandlerPanicked)? {
            (_, Poll::Ready(result)) => return Ok(Some((key, result))),
            (handler, Poll::Pending) => handler,
        };
        let light = handler.is_light();
        let work = carry_on(handler, key, Arc::clone(&self.keeps));
        match &self.line {
            _ if light => self.light.push(Light::Work(work)),
            Some(line) => drop(self.tasks.spawn(line.in_turn(work))),
            None => drop(self.tasks.spawn(work)),
        }
        Ok(None)
    }

    /// Polls for the next result; `Ready(None)` if no handler is at work.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ended<F, K>>> {
        self.tasks_first = !self.tasks_first;
        let tasks_first = self.tasks_first;
        for tasks in [tasks_first, !tasks_first] {
            let next = if tasks { self.poll_tasks(cx) } else { self.poll_light(cx) };
            if next.is_some() {
                return Poll::Ready(next);
            }
        }
        if self.len() > 0 { Poll::Pending } else { Poll::Ready(None) }
    }

    /// Drops all handlers. Without this, they go on when the connection has ended.
    pub(crate) fn abandon(&mut self) {
        self.tasks.abort_all();
        self.light = [Light::Never].into_iter().collect();
    }

    fn poll_light(&mut self, cx: &mut Context<'_>) -> Option<Ended<F, K>> {
        if self.light_len() == 0 {
            return None;
        }
        match self.light.poll_next_unpin(cx) {
            Poll::Ready(ended) => ended,
            Poll::Pending => None,
        }
    }

    fn poll_tasks(&mut self, cx: &mut Context<'_>) -> Option<Ended<F, K>> {
        loop {
            match self.tasks.poll_join_next(cx) {
                Poll::Ready(Some(Ok(done))) => return Some(done),
                // The task was cancelled: the runtime shuts down.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }
}

/// A handler that was not done at once.
pub(crate) struct CarriedOn<F, K> {
    handler: F,
    /// The call, and what the handler holds; `None` after the end.
    call: Option<(K, Arc<dyn Any + Send + Sync>)>,
}

/// Returns the future of a handler that was not done at once.
pub(crate) const fn carry_on<F, K>(handler: F, key: K, keeps: Arc<dyn Any + Send + Sync>) -> CarriedOn<F, K> {
    CarriedOn { handler, call: Some((key, keeps)) }
}

impl<F: Future + Unpin, K: Unpin> Future for CarriedOn<F, K> {
    type Output = (K, Result<F::Output, HandlerPanicked>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let next = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.handler).poll(cx)));
        let result = ready!(next.map_or(Poll::Ready(Err(HandlerPanicked)), |next| next.map(Ok)));
        self.call.take().map_or(Poll::Pending, |(key, _)| Poll::Ready((key, result)))
    }
}

/// A member of the set of light handlers.
enum Light<F, K> {
    Work(CarriedOn<F, K>),
    /// Never ends.
    Never,
}

impl<F: Future + Unpin, K: Unpin> Future for Light<F, K> {
    type Output = (K, Result<F::Output, HandlerPanicked>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Work(work) => Pin::new(work).poll(cx),
            Self::Never => Poll::Pending,
        }
    }
}

impl<F, K> Drop for Handlers<F, K>
where
    F: Handler,
    F::Output: Send,
    K: Send + Unpin + 'static,
{
    fn drop(&mut self) {
        let runtime = Handle::try_current().ok();
        match (&self.orphans, &runtime) {
            (Some(orphans), Some(runtime)) if !self.tasks.is_empty() => {
                let mut tasks = std::mem::take(&mut self.tasks);
                let rest = runtime.spawn(async move { while tasks.join_next().await.is_some() {} });
                orphans.adopt(rest.abort_handle());
            }
            _ => self.tasks.detach_all(),
        }
        let waits = self.light_len() > 0;
        let mut light = std::mem::take(&mut self.light);
        // Without a runtime there is nobody to go on.
        if waits && let Some(runtime) = runtime {
            let line = self.line.take();
            let rest = Box::pin(async move {
                while light.len() > 1 {
                    light.next().await;
                }
            });
            let rest = match line {
                Some(line) => runtime.spawn(line.in_turn(rest)),
                None => runtime.spawn(rest),
            };
            if let Some(orphans) = &self.orphans {
                orphans.adopt(rest.abort_handle());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::sync::oneshot;

    use super::*;

    /// A handler by any future.
    struct Work {
        future: Pin<Box<dyn Future<Output = u32> + Send>>,
        light: bool,
    }

    impl Future for Work {
        type Output = u32;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
            self.future.as_mut().poll(cx)
        }
    }

    impl Handler for Work {
        fn is_light(&self) -> bool {
            self.light
        }
    }

    fn start(
        handlers: &mut Handlers<Work, u32>,
        key: u32,
        light: bool,
        begin: impl FnOnce() -> Pin<Box<dyn Future<Output = u32> + Send>>,
    ) -> Result<Option<(u32, u32)>, HandlerPanicked> {
        handlers.start(&mut Context::from_waker(Waker::noop()), key, || Work { future: begin(), light })
    }

    #[tokio::test]
    async fn i6_a_panic_is_told_wherever_it_happens() {
        let mut handlers = Handlers::new((), None);
        let before = start(&mut handlers, 1, false, || panic!("before the handler"));
        assert_eq!(before, Err(HandlerPanicked));
        let inline = start(&mut handlers, 2, false, || Box::pin(async { panic!("in its first poll") }));
        assert_eq!(inline, Err(HandlerPanicked));
        for light in [false, true] {
            let mut first = true;
            let later = poll_fn(move |_| {
                assert!(std::mem::replace(&mut first, false), "in its second poll");
                Poll::Pending
            });
            assert_eq!(start(&mut handlers, 3, light, || Box::pin(later)), Ok(None));
            assert_eq!(start(&mut handlers, 4, light, || Box::pin(ready(7))), Ok(Some((4, 7))));
            assert_eq!(poll_fn(|cx| handlers.poll_next(cx)).await, Some((3, Err(HandlerPanicked))));
            assert_eq!(poll_fn(|cx| handlers.poll_next(cx)).await, None);
        }
    }

    #[tokio::test]
    async fn handlers_of_both_kinds_end_in_any_order() {
        let mut handlers = Handlers::new((), None);
        let mut senders = Vec::new();
        for key in 0..4 {
            let (sender, receiver) = oneshot::channel();
            let work = async move { receiver.await.unwrap_or(0) };
            assert_eq!(start(&mut handlers, key, key % 2 == 0, || Box::pin(work)), Ok(None));
            senders.push((key, sender));
        }
        assert_eq!(handlers.len(), 4);
        while let Some((key, sender)) = senders.pop() {
            assert_eq!(sender.send(10 + key), Ok(()));
            assert_eq!(poll_fn(|cx| handlers.poll_next(cx)).await, Some((key, Ok(10 + key))));
        }
        assert_eq!(handlers.len(), 0);
    }

    /// One waiting call costs one poll, and its end another.
    #[tokio::test]
    async fn a_light_handler_asks_for_no_poll_before_its_end() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut handlers = Handlers::new((), None);
        // The first poll of the set's own member asks for another one.
        let (sender, receiver) = oneshot::channel::<u32>();
        let work = async move { receiver.await.unwrap_or(0) };
        assert_eq!(start(&mut handlers, 1, true, || Box::pin(work)), Ok(None));
        while handlers.poll_next(&mut cx).is_pending() && count.0.swap(0, Ordering::Relaxed) > 0 {}
        assert_eq!(sender.send(7), Ok(()));
        assert_eq!(handlers.poll_next(&mut cx), Poll::Ready(Some((1, Ok(7)))));
        count.0.store(0, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel::<u32>();
        let work = async move { receiver.await.unwrap_or(0) };
        assert_eq!(start(&mut handlers, 2, true, || Box::pin(work)), Ok(None));
        assert_eq!(handlers.poll_next(&mut cx), Poll::Pending);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        assert_eq!(sender.send(8), Ok(()));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(handlers.poll_next(&mut cx), Poll::Ready(Some((2, Ok(8)))));
    }

    /// Many results of one kind do not keep those of the other waiting.
    #[tokio::test]
    async fn i6_both_kinds_take_turns() {
        let mut handlers = Handlers::new((), None);
        let mut senders = Vec::new();
        for key in 0..6 {
            let (sender, receiver) = oneshot::channel();
            let work = async move { receiver.await.unwrap_or(0) };
            assert_eq!(start(&mut handlers, key, key < 3, || Box::pin(work)), Ok(None));
            senders.push(sender);
        }
        assert!(poll_fn(|cx| Poll::Ready(handlers.poll_next(cx).is_pending())).await);
        assert!(senders.into_iter().all(|sender| sender.send(1).is_ok()));
        // The tasks run.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut kinds = Vec::new();
        for _ in 0..6 {
            kinds.push(poll_fn(|cx| handlers.poll_next(cx)).await.unwrap().0 < 3);
        }
        assert!(kinds.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    }

    /// The connection ends: handlers go on, and hold what they were given until they end.
    #[tokio::test]
    async fn i8_handlers_go_on_without_their_connection() {
        for light in [false, true] {
            let place = Arc::new(());
            let mut handlers = Handlers::new(Arc::clone(&place), None);
            let (go, gone) = oneshot::channel::<()>();
            let (tell, told) = oneshot::channel();
            let work = async move {
                let _ = gone.await;
                let _ = tell.send(7);
                7
            };
            assert_eq!(start(&mut handlers, 1, light, || Box::pin(work)), Ok(None));
            drop(handlers);
            assert_eq!(Arc::strong_count(&place), 2, "it holds its place");
            assert_eq!(go.send(()), Ok(()));
            assert_eq!(told.await, Ok(7));
            while Arc::strong_count(&place) > 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The server has stopped: what went on without connections ends, also what comes later.
    #[tokio::test]
    async fn i8_orphans_end_with_their_server() {
        let orphans = Arc::new(Orphans::default());
        for (light, late) in [(false, false), (true, false), (false, true), (true, true)] {
            let orphans = if late { Arc::clone(&orphans) } else { Arc::default() };
            let place = Arc::new(());
            let mut handlers = Handlers::new(Arc::clone(&place), None).outlived_by(Arc::clone(&orphans));
            let (go, gone) = oneshot::channel::<()>();
            let work = async move { gone.await.map_or(0, |()| 7) };
            assert_eq!(start(&mut handlers, 1, light, || Box::pin(work)), Ok(None));
            if late {
                orphans.end();
            }
            drop(handlers);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(Arc::strong_count(&place) == 2, !late, "it goes on until then");
            orphans.end();
            while Arc::strong_count(&place) > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(go.send(()), Err(()));
        }
    }

    /// The server stops: nothing goes on for a client that has gone.
    #[tokio::test]
    async fn i8_handlers_that_are_abandoned_end_at_once() {
        for light in [false, true] {
            let place = Arc::new(());
            let mut handlers = Handlers::new(Arc::clone(&place), None);
            let (go, gone) = oneshot::channel::<()>();
            let work = async move { gone.await.map_or(0, |()| 7) };
            assert_eq!(start(&mut handlers, 1, light, || Box::pin(work)), Ok(None));
            handlers.abandon();
            drop(handlers);
            while Arc::strong_count(&place) > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(go.send(()), Err(()), "the handler is dropped");
        }
    }
}
