//! The calls that a connection of the server is working on.
//!
//! A handler is first polled inline, with the context of the connection's task: one that cannot block is done then, at
//! the cost of a function call. Any other becomes a task of its own, whose result comes back here.
//!
//! *What happens on error.* When the connection ends, the handlers go on without it: each ends in the reply cache, where
//! a retransmission on another connection finds its reply. They keep their connection's place meanwhile, so that a peer which
//! calls and leaves, again and again, has no more of them at work than its connections allow (I6). A handler that panics ends
//! its connection only.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thiserror::Error;
use tokio::task::JoinSet;

use crate::admission::Place;

/// A handler panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a handler panicked")]
pub(crate) struct HandlerPanicked;

/// Calls in progress; `K` says which call a result answers.
#[derive(Debug)]
pub(crate) struct Handlers<K: 'static, T: 'static> {
    tasks: JoinSet<(K, T)>,
    place: Arc<Place>,
}

impl<K: Send + 'static, T: Send + 'static> Handlers<K, T> {
    /// None yet, on the connection that has this place.
    pub(crate) fn new(place: Place) -> Self {
        Self { tasks: JoinSet::new(), place: Arc::new(place) }
    }

    /// Handlers that were not done at once and are not done yet.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Polls the handler once; if that does not end it, it goes on as a task and its result comes from
    /// [`poll_next`](Self::poll_next).
    pub(crate) fn start<F>(&mut self, cx: &mut Context<'_>, key: K, handler: F) -> Option<(K, T)>
    where
        F: Future<Output = T> + Send + Unpin + 'static,
    {
        let mut handler = handler;
        match Pin::new(&mut handler).poll(cx) {
            Poll::Ready(result) => Some((key, result)),
            Poll::Pending => {
                let place = Arc::clone(&self.place);
                self.tasks.spawn(async move {
                    let result = handler.await;
                    drop(place);
                    (key, result)
                });
                None
            }
        }
    }

    /// The next result. `Ready(None)`: no handler is at work.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(K, T), HandlerPanicked>>> {
        self.tasks.poll_join_next(cx).map(|next| next.map(|joined| joined.map_err(|_| HandlerPanicked)))
    }
}

impl<K: 'static, T: 'static> Drop for Handlers<K, T> {
    fn drop(&mut self) {
        self.tasks.detach_all();
    }
}
