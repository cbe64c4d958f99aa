//! What the system lets the process have: no client may end the server by reaching a limit.
//!
//! Descriptors: each connection takes one, each export keeps up to 512 files open, and 1,024 is the usual soft limit. All
//! exports together keep half of what is allowed, so that connections have the rest. A file that would pass
//! `RLIMIT_FSIZE`: NFS3ERR_FBIG for the client who writes it, not SIGXFSZ for the server.

use std::io;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// More descriptors than this are of no use to any number of connections that is allowed.
const DESCRIPTORS: u64 = 65_536;

/// Raises the soft limit of descriptors as far as the hard one allows.
pub(super) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let possible = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_none_or(|current| current >= possible) {
        return;
    }
    let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "the limit of open files stays");
    }
}

/// From now on a write beyond the limit of file sizes fails, and does not end the process.
pub(super) fn survive_file_size_limit() -> io::Result<()> {
    // The handler stays when what it would tell is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
