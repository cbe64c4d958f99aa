//! [`Health`]: whether a program answers, by calls of its procedure 0, which does nothing. [`HealthWatch`] is a task that
//! asks again and again.
//!
//! *Buffers.* None beyond those of the calls.
//!
//! *Errors.* A program that does not answer is a state, not an error of the watch. The watch ends when the client is
//! closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::{Instant, sleep};

use crate::call::{Call, Transfer};
use crate::error::CallError;
use crate::handle::Handle;

/// The way to ask whether a version of a program answers. [`Handle::health`] makes one.
#[derive(Debug, Clone)]
pub struct Health {
    handle: Handle,
    program: u32,
    version: u32,
}

/// The answer of a program's procedure 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alive {
    /// Time from the question to the answer, with all attempts.
    pub took: Duration,
    /// How call and reply travelled.
    pub travelled: Transfer,
}

/// The health of a program, as far as a watch knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HealthState {
    /// The first check has not ended.
    Unknown,
    /// The program has answered the last check.
    Healthy {
        /// Time that the answer took.
        took: Duration,
    },
    /// The program has not answered the last check.
    Unhealthy {
        /// Number of checks in a row without an answer, at least 1.
        failures: u32,
        /// Time when the first of these failed.
        since: Instant,
        /// The failure of the last one.
        error: Arc<CallError>,
    },
    /// The client is closed, and the watch has ended.
    Closed,
}

/// A watch over a program's health. Cheap to clone: all clones see one task, which ends with the last of them. Until
/// then the watch keeps its client open, and its checks keep the connection from being idle.
#[derive(Debug, Clone)]
pub struct HealthWatch {
    state: Receiver<HealthState>,
}

impl Health {
    /// Time for a check of a handle without a deadline.
    pub const TIME: Duration = Duration::from_secs(10);

    pub(crate) fn new(handle: Handle, program: u32, version: u32) -> Self {
        let handle = if handle.settings().deadline.is_none() { handle.deadline(Self::TIME) } else { handle };
        Self { handle, program, version }
    }

    /// Calls procedure 0 with all defaults of the handle, and returns how long the answer took. The check has the
    /// handle's [deadline](Handle::deadline), or [`TIME`](Self::TIME). Of several connections it tries one, by the
    /// handle's [key](Handle::key).
    ///
    /// # Errors
    /// [`CallError`]: there is no answer, or the server refuses, for instance because it lacks the program.
    pub async fn check(&self) -> Result<Alive, CallError> {
        let began = Instant::now();
        let reply = self.handle.call_raw(Call::null(self.program, self.version)).await?;
        reply.results.finish()?;
        Ok(Alive { took: began.elapsed(), travelled: reply.travelled })
    }

    /// Starts a task that checks at once, and then `every` so long after the end of the last check.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn watch(&self, every: Duration) -> HealthWatch {
        let (sender, state) = watch::channel(HealthState::Unknown);
        tokio::spawn(run(self.clone(), every, sender));
        HealthWatch { state }
    }
}

async fn run(health: Health, every: Duration, state: Sender<HealthState>) {
    let checks = async {
        loop {
            let result = health.check().await;
            let closed = matches!(result.as_ref().map_err(CallError::last), Err(CallError::Closed { .. }));
            state.send_modify(|state| {
                let (was, now) = (state.is_healthy(), state.after(result));
                if was != now.is_healthy() {
                    let Health { program, version, .. } = health;
                    let server = health.handle.client().peer_address();
                    tracing::info!(target: "rpcrdma::health", %server, program, version, state = ?now, "changed");
                }
                *state = now;
            });
            if closed {
                return;
            }
            sleep(every).await;
        }
    };
    tokio::select! {
        () = checks => {}
        () = state.closed() => {}
    }
}

impl HealthState {
    /// Returns whether the last check was answered.
    #[must_use]
    pub const fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy { .. })
    }

    /// Returns the state after one more check.
    fn after(&self, result: Result<Alive, CallError>) -> Self {
        let error = match result {
            Ok(Alive { took, .. }) => return Self::Healthy { took },
            Err(error) if matches!(error.last(), CallError::Closed { .. }) => return Self::Closed,
            Err(error) => Arc::new(error),
        };
        let (failures, since) = match self {
            Self::Unhealthy { failures, since, .. } => (failures.saturating_add(1), *since),
            _ => (1, Instant::now()),
        };
        Self::Unhealthy { failures, since, error }
    }
}

impl HealthWatch {
    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> HealthState {
        self.state.borrow().clone()
    }

    /// Waits for the end of the next check that this clone has not seen, and returns the state. After
    /// [`HealthState::Closed`] it returns that at once.
    pub async fn checked(&mut self) -> HealthState {
        // An error means that the task has ended, and left its last state.
        let _ = self.state.changed().await;
        self.state.borrow_and_update().clone()
    }

    /// Waits until the state satisfies `wanted`, which may be now, and returns it. Returns [`HealthState::Closed`] if the
    /// client is closed first.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&HealthState) -> bool) -> HealthState {
        let mut state = self.state.clone();
        let reached = |state: &HealthState| matches!(state, HealthState::Closed) || wanted(state);
        state.wait_for(reached).await.map_or(HealthState::Closed, |state| state.clone())
    }

    /// Waits until the program answers, which may be now.
    ///
    /// # Errors
    /// [`CallError::Closed`] if the client is closed first.
    pub async fn healthy(&self) -> Result<(), CallError> {
        match self.wait_for(HealthState::is_healthy).await {
            HealthState::Closed => Err(CallError::Closed { sent: false }),
            _ => Ok(()),
        }
    }

    /// Waits until the program does not answer, which may be now, or the client is closed. Returns the reason.
    pub async fn unhealthy(&self) -> Arc<CallError> {
        match self.wait_for(|state| matches!(state, HealthState::Unhealthy { .. })).await {
            HealthState::Unhealthy { error, .. } => error,
            _ => Arc::new(CallError::Closed { sent: false }),
        }
    }
}
