//! Objects kept open by a descriptor that grants no rights.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::file::OPEN;

/// An object that a caller has looked at, by an `O_PATH` descriptor. It is counted.
///
/// The kernel keeps the object in memory while the descriptor is open. So on a local file system its attributes are
/// there without waiting.
#[derive(Debug)]
pub(in crate::fs::directory) struct LookedObject {
    fd: OwnedFd,
    /// Whether the kernel has its access control list in memory too.
    has_access_list: AtomicBool,
}

impl LookedObject {
    pub(super) fn new(fd: OwnedFd, has_access_list: bool) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self { fd, has_access_list: AtomicBool::new(has_access_list) }
    }

    /// Records that the kernel has read the access control list.
    pub(super) fn note_access_list(&self) {
        self.has_access_list.store(true, Ordering::Relaxed);
    }

    /// Returns whether the kernel decides about rights to the object without waiting.
    pub(in crate::fs::directory) fn has_access_list(&self) -> bool {
        self.has_access_list.load(Ordering::Relaxed)
    }
}

impl AsFd for LookedObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LookedObject {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
