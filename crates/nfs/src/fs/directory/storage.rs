//! The storage under a directory tree: where data is made stable, and where a loss is noticed.
//!
//! Linux reports a failed write-back once for each open file, at its next `fsync`; some file systems report it at the
//! `close`. So every `fsync`, `syncfs` and `close` of a file that was written to goes through [`Storage`]. A failure of
//! one of them changes the write verifier, and every client writes again what it has not committed (RFC 1813 §3.3.7).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::verifier::WriteVerifier;
use crate::fs::types::FsError;

/// How much of a file has to be stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The data, and what is needed to read it back.
    Data,
    /// Data and attributes.
    File,
    /// Everything on the file system that the file is on.
    FileSystem,
}

/// The calls to the storage. [`Kernel`] makes the real ones.
pub(super) trait Device: fmt::Debug + Send + Sync {
    /// Makes a file stable.
    fn sync(&self, fd: BorrowedFd<'_>, reach: Reach) -> Result<(), Errno>;

    /// Closes a file that was written to.
    fn close(&self, fd: OwnedFd) -> Result<(), Errno>;
}

/// The system calls.
#[derive(Debug)]
struct Kernel;

impl Device for Kernel {
    fn sync(&self, fd: BorrowedFd<'_>, reach: Reach) -> Result<(), Errno> {
        match reach {
            Reach::Data => rustix::fs::fdatasync(fd),
            Reach::File => rustix::fs::fsync(fd),
            Reach::FileSystem => rustix::fs::syncfs(fd),
        }
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        rpcrdma_sys::close(fd).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// A device, and the write verifier that tells clients what became of their data. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    device: Arc<dyn Device>,
    verifier: WriteVerifier,
}

impl Storage {
    /// The kernel's.
    pub(super) fn new(verifier: WriteVerifier) -> Self {
        Self::on(Arc::new(Kernel), verifier)
    }

    /// Another one.
    pub(super) fn on(device: Arc<dyn Device>, verifier: WriteVerifier) -> Self {
        Self { device, verifier }
    }

    /// The write verifier of now.
    pub(super) fn verifier(&self) -> u64 {
        self.verifier.get()
    }

    /// Makes a file stable. `EINVAL` means that the file system cannot sync this file. Then the file is as stable as
    /// it ever will be, and the operation before this was done all the same.
    pub(super) fn sync(&self, fd: impl AsFd, reach: Reach) -> Result<(), FsError> {
        loop {
            match self.device.sync(fd.as_fd(), reach) {
                Ok(()) | Err(Errno::INVAL) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }

    /// Closes a file that was written to. It is closed whatever comes of it.
    pub(super) fn close(&self, fd: OwnedFd) {
        match self.device.close(fd) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(errno) => {
                self.failed(errno);
            }
        }
    }

    /// The storage did not take what it was to keep: every client has to write again what it has not committed.
    fn failed(&self, errno: Errno) -> FsError {
        self.verifier.change();
        tracing::error!(%errno, "storage failed to keep written data; the write verifier is changed");
        errno.into()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::sync::Mutex;

    use super::*;

    /// A device that does nothing, and fails as it is told.
    #[derive(Debug, Default)]
    pub(in super::super) struct Faulty {
        /// The errors of the next syncs; then they succeed.
        pub(in super::super) sync: Mutex<Vec<Errno>>,
        /// The errors of the next closings.
        pub(in super::super) close: Mutex<Vec<Errno>>,
        /// Syncs so far.
        pub(in super::super) synced: Mutex<Vec<Reach>>,
    }

    impl Device for Faulty {
        fn sync(&self, _fd: BorrowedFd<'_>, reach: Reach) -> Result<(), Errno> {
            self.synced.lock().unwrap().push(reach);
            self.sync.lock().unwrap().pop().map_or(Ok(()), Err)
        }

        fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
            drop(fd);
            self.close.lock().unwrap().pop().map_or(Ok(()), Err)
        }
    }

    fn faulty() -> (Arc<Faulty>, Storage) {
        let device = Arc::new(Faulty::default());
        (Arc::clone(&device), Storage::on(device, WriteVerifier::default()))
    }

    #[test]
    fn a_failure_of_the_storage_changes_the_verifier() {
        let (device, storage) = faulty();
        let file = File::open("/dev/null").unwrap();
        let mut before = storage.verifier();
        for errno in [Errno::NOSPC, Errno::IO, Errno::DQUOT, Errno::ROFS] {
            device.sync.lock().unwrap().push(errno);
            assert_eq!(storage.sync(&file, Reach::File), Err(errno.into()));
            assert_ne!(storage.verifier(), before, "{errno}");
            before = storage.verifier();
            device.close.lock().unwrap().push(errno);
            storage.close(file.try_clone().unwrap().into());
            assert_ne!(storage.verifier(), before, "{errno} at close");
            before = storage.verifier();
        }
        assert_eq!(storage.sync(&file, Reach::File), Ok(()));
        storage.close(file.into());
        assert_eq!(storage.verifier(), before);
    }

    #[test]
    fn what_cannot_be_synced_is_done_and_an_interrupted_sync_is_repeated() {
        let (device, storage) = faulty();
        let file = File::open("/dev/null").unwrap();
        let before = storage.verifier();
        for errno in [Errno::INVAL, Errno::INTR] {
            device.sync.lock().unwrap().push(errno);
            assert_eq!(storage.sync(&file, Reach::Data), Ok(()), "{errno}");
        }
        assert_eq!(device.synced.lock().unwrap().len(), 3);
        // Linux has closed it all the same.
        device.close.lock().unwrap().push(Errno::INTR);
        storage.close(file.into());
        assert_eq!(storage.verifier(), before);
    }

    /// The kernel's own: a socket cannot be synced.
    #[test]
    fn the_kernel_closes_and_says_what_cannot_be_synced() {
        let storage = Storage::new(WriteVerifier::default());
        let before = storage.verifier();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Kernel.sync(socket.as_fd(), Reach::File), Err(Errno::INVAL));
        assert_eq!(storage.sync(&socket, Reach::File), Ok(()));
        let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let name = format!("/proc/self/fd/{raw}");
        let place = std::fs::read_link(&name).unwrap();
        storage.close(socket.into());
        assert_ne!(std::fs::read_link(&name).ok(), Some(place));
        assert_eq!(storage.verifier(), before);
    }
}
