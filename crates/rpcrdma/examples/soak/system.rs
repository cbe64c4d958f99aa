//! The system's data about a process: memory, descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;

/// Raises the soft limit of descriptors to the hard one; processes started later have it too.
pub(crate) fn raise_descriptors() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

/// Resources that a process uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
    /// Open files and sockets.
    pub(crate) descriptors: usize,
}

/// Returns the resources of the process with this number.
pub(crate) fn usage(id: u32) -> Result<Usage, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
        .ok_or("no resident memory in /proc")?;
    let descriptors = std::fs::read_dir(format!("/proc/{id}/fd"))?.count();
    Ok(Usage { resident: kib << 10, descriptors })
}
