//! A lock for each object during its changes.
//!
//! A call that changes an object reports its attributes before and after. No other change through this server
//! may come in between. The storage can hold up a change for any time. So each object has a lock of its own,
//! which exists while calls hold it or wait for it. A stuck object holds up only calls for this object. These
//! wait for at most [`WAIT`], and then release their threads.
//!
//! *Order.* No call holds two locks, except RENAME, which locks two directories in the order of their ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fs::types::{FileId, FsError};

/// Time for which a call waits for another call with the object.
const WAIT: Duration = Duration::from_secs(10);

/// Locks of all objects of a tree.
#[derive(Debug)]
pub(super) struct Locks {
    turns: Mutex<HashMap<FileId, Shared>>,
    wait: Duration,
}

/// Lock of an object, and the number of its [`Place`]s.
#[derive(Debug, Default)]
struct Shared {
    places: usize,
    turn: Arc<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: bool,
    /// Number of calls that wait. Without any, the end of a turn needs no system call.
    waiting: usize,
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn, or waits for it for this time. Returns whether the caller has it.
    fn take(&self, wait: Duration) -> bool {
        let mut state = self.state();
        if state.held {
            state.waiting += 1;
            let waited = self.free.wait_timeout_while(state, wait, |state| state.held);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        !std::mem::replace(&mut state.held, true)
    }

    /// Ends the turn.
    fn release(&self) {
        let mut state = self.state();
        state.held = false;
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.free.notify_one();
        }
    }
}

/// Guard: the lock of an object is held until the drop.
#[derive(Debug)]
#[must_use]
pub(super) struct Locked<'a> {
    place: Place<'a>,
}

/// User of a lock; the last one removes the lock.
#[derive(Debug)]
struct Place<'a> {
    locks: &'a Locks,
    id: FileId,
    turn: Arc<Turn>,
}

impl Locks {
    pub(super) fn new() -> Self {
        Self { turns: Mutex::default(), wait: WAIT }
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<FileId, Shared>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, id: &FileId) -> Place<'_> {
        let mut turns = self.turns();
        let shared = turns.entry(*id).or_default();
        shared.places += 1;
        Place { locks: self, id: *id, turn: Arc::clone(&shared.turn) }
    }

    /// Locks an object.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if other calls hold the lock for too long.
    pub(super) fn lock(&self, id: &FileId) -> Result<Locked<'_>, FsError> {
        let place = self.place(id);
        if place.turn.take(self.wait) { Ok(Locked { place }) } else { Err(FsError::TryLater) }
    }

    /// Locks two objects, or one if both are equal.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(super) fn lock_both(
        &self,
        one: &FileId,
        other: &FileId,
    ) -> Result<(Locked<'_>, Option<Locked<'_>>), FsError> {
        let (first, second) = if one.as_bytes() <= other.as_bytes() { (one, other) } else { (other, one) };
        let locked = self.lock(first)?;
        Ok((locked, if first == second { None } else { Some(self.lock(second)?) }))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.place.turn.release();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.locks.turns().entry(self.id) {
            entry.get_mut().places -= 1;
            if entry.get().places == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn id(number: u8) -> FileId {
        FileId::from_array(&[number])
    }

    #[test]
    fn one_at_a_time_holds_a_lock_and_none_is_left_behind() {
        let locks = Locks::new();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _locked = locks.lock(&id(1)).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 4_000);
        assert!(locks.turns().is_empty());
    }

    #[test]
    fn i6_who_waits_for_too_long_is_put_off() {
        let locks = Locks { wait: Duration::from_millis(1), ..Locks::new() };
        let held = locks.lock(&id(1)).unwrap();
        assert_eq!(locks.lock(&id(1)).err(), Some(FsError::TryLater));
        for (one, other) in [(1, 2), (2, 1)] {
            assert_eq!(locks.lock_both(&id(one), &id(other)).err(), Some(FsError::TryLater));
        }
        drop(locks.lock(&id(2)).unwrap());
        drop(held);
        assert!(locks.lock_both(&id(1), &id(1)).unwrap().1.is_none());
        assert!(locks.turns().is_empty());
    }
}
