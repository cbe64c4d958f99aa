//! Counters of served calls.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::NfsProcedure;

#[derive(Debug, Default)]
struct PerProcedure {
    calls: AtomicU64,
    failures: AtomicU64,
}

/// Counters of calls by procedure, and of payload. Counters only grow; a set of them is not read atomically.
#[derive(Debug)]
pub struct NfsCounters {
    procedures: Vec<PerProcedure>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Counts for a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// The procedure.
    pub procedure: NfsProcedure,
    /// Calls whose arguments could be decoded.
    pub calls: u64,
    /// Calls with another status than NFS3_OK.
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

    /// Returns the counts of procedures that were called.
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

    /// Returns the bytes sent by READ.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the bytes received by WRITE.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}
