//! Calls in flight whose results are returned in the order of their start.
//!
//! All futures run while a caller waits for the next result. A finished future waits for its turn. Dropping
//! the queue drops them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Slot<T> {
    Running(Running<T>),
    Done(T),
}

/// Queue of futures; see the module documentation.
pub(super) struct InFlight<T> {
    slots: VecDeque<Slot<T>>,
}

impl<T> InFlight<T> {
    pub(super) fn new() -> Self {
        Self { slots: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a future, which starts when a caller waits for the next result.
    pub(super) fn push(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.slots.push_back(Slot::Running(Box::pin(future)));
    }

    /// Returns the oldest result, or `None` if nothing is in flight. Dropping this future loses no result.
    pub(super) async fn next(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Lets all futures make progress, without waiting.
    pub(super) async fn progress(&mut self) {
        poll_fn(|context| {
            self.poll_all(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Drops all futures.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        for slot in &mut self.slots {
            if let Slot::Running(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *slot = Slot::Done(result);
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_all(context);
        match self.slots.pop_front() {
            Some(Slot::Done(result)) => Poll::Ready(Some(result)),
            Some(running) => {
                self.slots.push_front(running);
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn results_come_in_order_and_run_together() {
        let mut queue = InFlight::new();
        assert!(queue.next().await.is_none());
        let start = Instant::now();
        for millis in [30, 10, 20] {
            queue.push(async move {
                sleep(Duration::from_millis(millis)).await;
                millis
            });
        }
        assert_eq!(queue.len(), 3);
        let mut results = Vec::new();
        while let Some(result) = queue.next().await {
            results.push(result);
        }
        assert_eq!(results, [30, 10, 20]);
        assert_eq!(start.elapsed(), Duration::from_millis(30));
    }
}
