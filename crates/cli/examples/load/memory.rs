//! Resident memory of the server.

use crate::Failure;

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) now: u64,
    pub(crate) highest: u64,
}

impl Resident {
    /// Returns the memory of the process with this number.
    pub(crate) fn of(process: u32) -> Result<Self, Failure> {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Self::parse(&status).ok_or_else(|| format!("{path} has no resident memory").into())
    }

    /// Reads the text of `/proc/PID/status` (proc(5)).
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let value =
                status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"))?;
            value.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { now: field("VmRSS:")?, highest: field("VmHWM:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_are_read() {
        let status = "Name:\tserve\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n";
        assert_eq!(Resident::parse(status), Some(Resident { now: 1 << 20, highest: 2 << 20 }));
        // A process that has ended has no memory.
        assert_eq!(Resident::parse("Name:\tserve\nThreads:\t3\n"), None);
    }
}
