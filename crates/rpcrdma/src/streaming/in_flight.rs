//! Calls in flight whose results are returned in the order of their start.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

enum Slot<F: Future> {
    Running(F),
    Done(F::Output),
}

/// A queue of futures, for instance calls in progress, whose results are returned in the order of their start.
///
/// All futures run while the owner waits for the next result. A finished future waits for its turn. Dropping the queue
/// drops them. Futures that are not [`Unpin`] go in a box: `queue.push(Box::pin(future))`.
pub struct InFlight<F: Future> {
    slots: VecDeque<Slot<F>>,
}

impl<F: Future> Default for InFlight<F> {
    fn default() -> Self {
        Self { slots: VecDeque::new() }
    }
}

impl<F: Future + Unpin> InFlight<F> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of futures whose results were not returned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether nothing is in flight and no result waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a future, which starts when the owner waits for the next result.
    pub fn push(&mut self, future: F) {
        self.slots.push_back(Slot::Running(future));
    }

    /// Returns the oldest result, or `None` if nothing is in flight. Dropping this future loses no result.
    pub async fn next(&mut self) -> Option<F::Output> {
        poll_fn(|context| {
            self.poll_all(context);
            match self.slots.pop_front() {
                Some(Slot::Done(result)) => Poll::Ready(Some(result)),
                Some(running) => {
                    self.slots.push_front(running);
                    Poll::Pending
                }
                None => Poll::Ready(None),
            }
        })
        .await
    }

    /// Lets all futures make progress, without waiting.
    pub async fn progress(&mut self) {
        poll_fn(|context| {
            self.poll_all(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for other work, while all futures make progress.
    pub async fn during<W: Future>(&mut self, work: W) -> W::Output {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.poll_all(context);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Drops all futures.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Polls all futures.
    pub(super) fn poll_all(&mut self, context: &mut Context<'_>) {
        for slot in &mut self.slots {
            if let Slot::Running(future) = slot
                && let Poll::Ready(result) = Pin::new(future).poll(context)
            {
                *slot = Slot::Done(result);
            }
        }
    }

    /// Returns the number of futures that are not finished.
    pub(super) fn running(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Running(_))).count()
    }

    /// Returns whether a result that waits is of this kind.
    pub(super) fn any(&self, of_kind: impl Fn(&F::Output) -> bool) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Done(result) if of_kind(result)))
    }

    /// Returns the oldest result, if it is there and of this kind.
    pub(super) fn next_if(&mut self, of_kind: impl Fn(&F::Output) -> bool) -> Option<F::Output> {
        match self.slots.pop_front_if(|slot| matches!(slot, Slot::Done(result) if of_kind(result)))? {
            Slot::Done(result) => Some(result),
            Slot::Running(_) => None,
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
        let wait = |millis| {
            Box::pin(async move {
                sleep(Duration::from_millis(millis)).await;
                millis
            })
        };
        assert!(queue.is_empty() && queue.next().await.is_none());
        let start = Instant::now();
        for millis in [30, 10, 20] {
            queue.push(wait(millis));
        }
        assert_eq!((queue.len(), queue.running()), (3, 3));
        queue.during(sleep(Duration::from_millis(25))).await;
        assert_eq!((queue.len(), queue.running()), (3, 1));
        assert!(queue.any(|millis| *millis == 20) && queue.next_if(|_| true).is_none());
        let mut results = Vec::new();
        while let Some(result) = queue.next().await {
            results.push(result);
        }
        assert_eq!(results, [30, 10, 20]);
        assert_eq!(start.elapsed(), Duration::from_millis(30));
    }
}
