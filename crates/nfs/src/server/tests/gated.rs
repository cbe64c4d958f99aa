//! A file system that waits where a test requires it: the one in memory behind a gate.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub(super) use super::watched::Step;
use super::watched::{Watch, WatchedFs};
use crate::fs::{FsError, MemoryFs, MemoryOptions, Name};

/// Time after which a waiting test has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Predicate for the operations to hold.
type Holds = Box<dyn Fn(Step) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    open: bool,
    /// Operations held inside the gate, in the order of their arrival.
    inside: Vec<Step>,
    /// Operations that have passed, in the order of their departure.
    passed: Vec<Step>,
    most_inside: usize,
}

/// Gate that holds operations until it is opened.
pub(super) struct Gate {
    holds: Holds,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// Closes the gate: operations are held from now on. Earlier operations no longer count.
    pub(super) fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.open = false;
        state.passed.clear();
    }

    /// Opens the gate.
    pub(super) fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    /// Waits until this many operations are held.
    pub(super) async fn holding(self: &Arc<Self>, count: usize) {
        self.until(move |state| state.inside.len() >= count).await;
    }

    /// Waits until this many operations have passed.
    pub(super) async fn has_passed(self: &Arc<Self>, count: usize) {
        self.until(move |state| state.passed.len() >= count).await;
    }

    async fn until(self: &Arc<Self>, come: impl Fn(&State) -> bool + Send + 'static) {
        let gate = Arc::clone(self);
        let waiting = move || {
            let state = gate.state.lock().unwrap();
            let (state, waited) =
                gate.changed.wait_timeout_while(state, PATIENCE, |state| !come(state)).unwrap();
            assert!(!waited.timed_out(), "held: {:?}, passed: {:?}", state.inside, state.passed);
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }

    /// Returns the operations held now.
    pub(super) fn held(&self) -> Vec<Step> {
        self.state.lock().unwrap().inside.clone()
    }

    /// Returns the operations that have passed.
    pub(super) fn passed(&self) -> Vec<Step> {
        self.state.lock().unwrap().passed.clone()
    }

    /// Returns the greatest number of operations held at a time.
    pub(super) fn most(&self) -> usize {
        self.state.lock().unwrap().most_inside
    }
}

/// Opens the gate on drop, so that a failed test leaves no thread behind it.
pub(super) struct Opener(pub(super) Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Watch for Arc<Gate> {
    fn before(&self, step: Step) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if (self.holds)(step) {
            state.inside.push(step);
            state.most_inside = state.most_inside.max(state.inside.len());
            self.changed.notify_all();
            while !state.open {
                state = self.changed.wait(state).unwrap();
            }
            let place = state.inside.iter().position(|inside| *inside == step).unwrap();
            state.inside.remove(place);
        }
        state.passed.push(step);
        self.changed.notify_all();
    }

    fn before_lookup(&self, name: &Name<'_>) -> Result<(), FsError> {
        assert_ne!(name.as_bytes(), b"panic", "on purpose");
        Ok(())
    }
}

/// File system in memory behind a gate.
pub(super) type GatedFs = WatchedFs<Arc<Gate>>;

impl GatedFs {
    /// Creates a file system that holds the operations that `holds` selects, while the gate is closed.
    pub(super) fn new(holds: impl Fn(Step) -> bool + Send + Sync + 'static) -> (Arc<Self>, Arc<Gate>) {
        let state = Mutex::new(State { open: true, ..State::default() });
        let gate = Arc::new(Gate { holds: Box::new(holds), state, changed: Condvar::new() });
        let memory = Arc::new(MemoryFs::new(MemoryOptions::default()));
        (Arc::new(Self::over(memory, Arc::clone(&gate))), gate)
    }
}
