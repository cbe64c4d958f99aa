//! Signals that end a run. The run then ends the group that is at work, and removes its folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Context, Failure};

/// Whether a signal asked for the end of the run.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. Call this while there is only one thread: its later threads have them
    /// blocked too, and processes that it starts have not.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        signals.thread_block().context("blocking signals")?;
        let stop = Self(Arc::new(AtomicBool::new(false)));
        let asked = Arc::clone(&stop.0);
        thread::spawn(move || {
            if signals.wait().is_ok() {
                asked.store(true, Ordering::Relaxed);
            }
        });
        Ok(stop)
    }

    /// Returns whether the run has to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
