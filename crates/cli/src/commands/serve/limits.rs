//! Resource limits of the process. No client may end the server by reaching one.
//!
//! * Descriptors: each connection needs one, and each export keeps thousands of files and other objects open; 1,024 is
//!   the usual soft limit. All exports together keep half of the limit, so that connections have the rest.
//! * `RLIMIT_FSIZE`: a write beyond the limit fails with NFS3ERR_FBIG for its client
//!   ([`survive_file_size_limit`](crate::signals::survive_file_size_limit)).
//! * `RLIMIT_MEMLOCK`, for adapters: see [`raise_locked_memory`](crate::provider::raise_locked_memory).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that suffice for the greatest number of connections.
const DESCRIPTORS: u64 = 65_536;

/// Raises the soft limit of descriptors as far as the hard limit allows, to [`DESCRIPTORS`] at most. Returns the limit;
/// `None` if there is none.
pub(crate) fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let possible = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_none_or(|current| current >= possible) {
        return limit.current;
    }
    let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "cannot raise the limit of open files");
        return limit.current;
    }
    Some(possible)
}

/// Returns the part of the descriptors that is for connections.
pub(super) fn for_connections(limit: Option<u64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit / 2).ok()).unwrap_or(usize::MAX)
}
