//! Counters of served calls.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mount::MountStatus;
use crate::wire::{NfsProcedure, Status};

/// Number of the counters of one procedure by status: those that RFC 1813 defines, and one for others.
const STATUSES: usize = Status::ALL.len() + 1;

#[derive(Debug)]
struct PerProcedure {
    calls: AtomicU64,
    failures: [AtomicU64; STATUSES],
}

impl PerProcedure {
    fn new() -> Self {
        Self { calls: AtomicU64::new(0), failures: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// Counters of calls by procedure, and of payload. Counters only grow; a set of them is not read atomically.
#[derive(Debug)]
pub struct NfsCounters {
    procedures: Vec<PerProcedure>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    mounts_refused: [AtomicU64; MountStatus::ALL.len()],
}

/// Counts for a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// The procedure.
    pub procedure: NfsProcedure,
    /// Calls whose arguments could be decoded.
    pub calls: u64,
    /// Calls with another status than NFS3_OK.
    pub failures: u64,
    /// These by status; statuses that never occurred are left out.
    pub by_status: Vec<(Status, u64)>,
}

impl NfsCounters {
    pub(super) fn new() -> Self {
        Self {
            procedures: NfsProcedure::ALL.iter().map(|_| PerProcedure::new()).collect(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            mounts_refused: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn of(&self, procedure: NfsProcedure) -> Option<&PerProcedure> {
        self.procedures.get(usize::try_from(procedure.number()).ok()?)
    }

    /// Counts a call that ended with this status; `None` is NFS3_OK.
    pub(super) fn count(&self, procedure: NfsProcedure, failed: Option<Status>) {
        let Some(counters) = self.of(procedure) else { return };
        counters.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(status) = failed {
            let known = Status::ALL.iter().position(|known| *known == status);
            if let Some(count) = counters.failures.get(known.unwrap_or(STATUSES - 1)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn refused_mount(&self, status: MountStatus) {
        let place = MountStatus::ALL.iter().position(|known| *known == status);
        if let Some(count) = place.and_then(|place| self.mounts_refused.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts of procedures that were called.
    #[must_use]
    pub fn procedures(&self) -> Vec<ProcedureCount> {
        NfsProcedure::ALL
            .iter()
            .filter_map(|procedure| {
                let counters = self.of(*procedure)?;
                let calls = counters.calls.load(Ordering::Relaxed);
                let others = Status::from_code(u32::MAX);
                let statuses = Status::ALL.iter().copied().chain(others).zip(&counters.failures);
                let by_status = occurred(statuses);
                let failures = by_status.iter().map(|(_, count)| count).sum();
                (calls > 0).then_some(ProcedureCount { procedure: *procedure, calls, failures, by_status })
            })
            .collect()
    }

    /// Returns the MNTs of MOUNT that were refused, by status; statuses that never occurred are left out.
    #[must_use]
    pub fn refused_mounts(&self) -> Vec<(MountStatus, u64)> {
        occurred(MountStatus::ALL.iter().copied().zip(&self.mounts_refused))
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

/// Returns the counts that are not zero.
fn occurred<'a, S>(counts: impl Iterator<Item = (S, &'a AtomicU64)>) -> Vec<(S, u64)> {
    let counts = counts.map(|(status, count)| (status, count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_by_procedure_and_status() {
        let counters = NfsCounters::new();
        assert!(counters.procedures().is_empty() && counters.refused_mounts().is_empty());
        let unknown = Status::from_code(77).unwrap();
        for failed in [None, Some(Status::NoEnt), Some(Status::Jukebox), Some(Status::NoEnt), Some(unknown)] {
            counters.count(NfsProcedure::Lookup, failed);
        }
        let [lookup] = counters.procedures().try_into().unwrap();
        assert_eq!((lookup.procedure, lookup.calls, lookup.failures), (NfsProcedure::Lookup, 5, 4));
        let names: Vec<_> = lookup.by_status.iter().map(|(status, count)| (status.name(), *count)).collect();
        assert_eq!(names, [("NFS3ERR_NOENT", 2), ("NFS3ERR_JUKEBOX", 1), ("an unknown status", 1)]);
        counters.refused_mount(MountStatus::Acces);
        assert_eq!(counters.refused_mounts(), [(MountStatus::Acces, 1)]);
    }
}
