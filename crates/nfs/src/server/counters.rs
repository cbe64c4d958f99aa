//! Counters of what was served.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::NfsProcedure;

#[derive(Debug, Default)]
struct PerProcedure {
    calls: AtomicU64,
    failures: AtomicU64,
}

/// Counts calls by procedure, and payload. All counters only grow; reading them is not atomic across them.
#[derive(Debug)]
pub struct NfsCounters {
    procedures: Vec<PerProcedure>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// What was counted for one procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// The procedure.
    pub procedure: NfsProcedure,
    /// Calls of it whose arguments were understood.
    pub calls: u64,
    /// Those that ended with another status than NFS3_OK.
    pub failures: u64,
}

impl NfsCounters {
    pub(super) fn new() -> Self {
        Self {
            procedures: NfsProcedure::ALL.iter().map(|_| PerProcedure::default()).collect(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }

    fn of(&self, procedure: NfsProcedure) -> Option<&PerProcedure> {
        self.procedures.get(usize::try_from(procedure.number()).ok()?)
    }

    pub(super) fn count(&self, procedure: NfsProcedure, failed: bool) {
        if let Some(counters) = self.of(procedure) {
            counters.calls.fetch_add(1, Ordering::Relaxed);
            counters.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Calls by procedure, those without calls left out.
    #[must_use]
    pub fn procedures(&self) -> Vec<ProcedureCount> {
        NfsProcedure::ALL
            .iter()
            .filter_map(|procedure| {
                let counters = self.of(*procedure)?;
                let calls = counters.calls.load(Ordering::Relaxed);
                let failures = counters.failures.load(Ordering::Relaxed);
                (calls > 0).then_some(ProcedureCount { procedure: *procedure, calls, failures })
            })
            .collect()
    }

    /// Bytes given out by READ.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes taken by WRITE.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}
