//! [`Slot`]: the meeting point of an execution and the repeats that wait for it.
//!
//! *Buffers.* The outcome is shared. *Errors.* A dropped [`Repeat`] leaves no waker behind.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::outcome::Outcome;

#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<Outcome>,
    /// Whether the call was shed: the outcome is not kept.
    shed: bool,
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn resolve(&self, outcome: Outcome, shed: bool) {
        let mut state = self.lock();
        (state.outcome, state.shed) = (Some(outcome), shed);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// A future that waits for the execution of the call elsewhere, and resolves to its outcome.
#[derive(Debug)]
pub struct Repeat {
    slot: Arc<Slot>,
    /// The number under which our waker is kept.
    place: Option<u64>,
}

impl Repeat {
    pub(super) const fn new(slot: Arc<Slot>) -> Self {
        Self { slot, place: None }
    }

    /// Returns whether the call was shed. Known when the outcome is.
    pub(crate) fn was_shed(&self) -> bool {
        self.slot.lock().shed
    }
}

impl Future for Repeat {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = &mut *self;
        let mut state = this.slot.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let place = *this.place.get_or_insert_with(|| {
            let place = state.next;
            state.next += 1;
            place
        });
        state.wakers.insert(place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.slot.lock().wakers.remove(&place);
        }
    }
}
