//! The storage below a directory tree: it makes data stable, and detects losses.
//!
//! Linux reports a failed write-back once for each open file, at its next `fsync`; some file systems report
//! it at the `close`. So every `fsync`, `syncfs` and `close` of a written file goes through [`Storage`]. If
//! one of them fails, the write verifier changes, and every client repeats its uncommitted writes (RFC 1813
//! §3.3.7).
//!
//! Calls share open files. A report that one of them gets is missing for the others, whose data may be lost
//! as well. So each open file has its [`Syncs`], which count its failures. A call whose data was written
//! before the last failure fails too.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::verifier::WriteVerifier;
use crate::fs::types::FsError;

/// The part of a file that must be stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The data, and the metadata needed to read it.
    Data,
    /// Data and attributes.
    File,
    /// Everything on the file's file system.
    FileSystem,
}

/// System calls to the storage; [`Kernel`] has the real ones.
pub(super) trait Device: fmt::Debug + Send + Sync {
    /// Makes a file stable.
    fn sync(&self, fd: BorrowedFd<'_>, reach: Reach) -> Result<(), Errno>;

    /// Closes a file that was written to.
    fn close(&self, fd: OwnedFd) -> Result<(), Errno>;
}

/// Real system calls.
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

/// Number of failures of an open file that were reported up to some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Losses(u64);

/// The syncs of an open file, one at a time. Each covers all data written before it began, so that calls that
/// wait for the end of one share the next.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// Number of the last sync that began.
    begun: AtomicU64,
    /// Number of syncs that failed.
    failed: AtomicU64,
    ended: Mutex<Ended>,
}

/// Numbers of the last syncs that succeeded, and of the last failure.
#[derive(Debug, Default)]
struct Ended {
    data: u64,
    file: u64,
    failure: Option<FsError>,
}

impl Ended {
    /// Returns the number of the last sync with at least this reach.
    const fn last(&self, reach: Reach) -> u64 {
        match reach {
            Reach::Data => self.data,
            Reach::File | Reach::FileSystem => self.file,
        }
    }

    const fn succeeded(&mut self, number: u64, reach: Reach) {
        self.data = number;
        if !matches!(reach, Reach::Data) {
            self.file = number;
        }
    }
}

impl Syncs {
    /// Returns the failures up to now. Data written later is not concerned.
    pub(super) fn losses(&self) -> Losses {
        Losses(self.failed.load(Ordering::SeqCst))
    }
}

/// A device, and the write verifier that reveals losses to clients. Clones share both.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    device: Arc<dyn Device>,
    verifier: WriteVerifier,
}

impl Storage {
    /// Creates the storage of the kernel.
    pub(super) fn new(verifier: WriteVerifier) -> Self {
        Self::on(Arc::new(Kernel), verifier)
    }

    /// Creates the storage of another device.
    pub(super) fn on(device: Arc<dyn Device>, verifier: WriteVerifier) -> Self {
        Self { device, verifier }
    }

    /// Returns the current write verifier.
    pub(super) fn verifier(&self) -> u64 {
        self.verifier.get()
    }

    /// Makes a file stable. `EINVAL` means that the file system cannot sync this file. The file is then as
    /// stable as possible, and the preceding operation has succeeded.
    pub(super) fn sync(&self, fd: impl AsFd, reach: Reach) -> Result<(), FsError> {
        loop {
            match self.device.sync(fd.as_fd(), reach) {
                Ok(()) | Err(Errno::INVAL) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }

    /// Makes data stable that a call wrote to a shared open file. `since` was read before the first byte.
    ///
    /// # Errors
    /// The error of its own sync, or of another sync since then: the kernel reports a loss once.
    pub(super) fn sync_shared(
        &self,
        fd: impl AsFd,
        reach: Reach,
        syncs: &Syncs,
        since: Losses,
    ) -> Result<(), FsError> {
        let begun = syncs.begun.load(Ordering::SeqCst);
        // Held until a failure is counted and the verifier is changed. So no other call mistakes the next
        // success for its own.
        let mut ended = syncs.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.last(reach) <= begun {
            let number = syncs.begun.fetch_add(1, Ordering::SeqCst) + 1;
            match self.sync(fd, reach) {
                Ok(()) => ended.succeeded(number, reach),
                Err(error) => {
                    syncs.failed.fetch_add(1, Ordering::SeqCst);
                    ended.failure = Some(error);
                    return Err(error);
                }
            }
        }
        match ended.failure {
            Some(failure) if syncs.losses() != since => Err(failure),
            _ => Ok(()),
        }
    }

    /// Closes a written file. The descriptor is closed whatever the result.
    pub(super) fn close(&self, fd: OwnedFd) {
        match self.device.close(fd) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(errno) => {
                self.failed(errno);
            }
        }
    }

    /// Records a failure of the storage: every client must repeat its uncommitted writes.
    fn failed(&self, errno: Errno) -> FsError {
        self.verifier.change();
        tracing::error!(%errno, "the storage failed to keep written data; the write verifier has changed");
        errno.into()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::sync::Mutex;

    use super::*;

    /// A device that does nothing, and fails on demand.
    #[derive(Debug, Default)]
    pub(in super::super) struct Faulty {
        /// Errors of the next syncs; later ones succeed.
        pub(in super::super) sync: Mutex<Vec<Errno>>,
        /// Errors of the next closes.
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

    // requirement: rfc1813-3.3.7-6
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
        // Linux has closed the file all the same.
        device.close.lock().unwrap().push(Errno::INTR);
        storage.close(file.into());
        assert_eq!(storage.verifier(), before);
    }

    #[test]
    fn a_sync_covers_no_more_than_it_reached() {
        let mut ended = Ended::default();
        ended.succeeded(3, Reach::File);
        assert_eq!((ended.last(Reach::Data), ended.last(Reach::File)), (3, 3));
        ended.succeeded(4, Reach::Data);
        assert_eq!((ended.last(Reach::Data), ended.last(Reach::File)), (4, 3));
    }

    /// Counts the data written before each sync began.
    #[derive(Debug, Default)]
    struct Counting {
        written: AtomicU64,
        stable: AtomicU64,
        syncs: AtomicU64,
    }

    impl Device for Counting {
        fn sync(&self, _fd: BorrowedFd<'_>, _reach: Reach) -> Result<(), Errno> {
            let written = self.written.load(Ordering::SeqCst);
            self.syncs.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            self.stable.fetch_max(written, Ordering::SeqCst);
            Ok(())
        }

        fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
            drop(fd);
            Ok(())
        }
    }

    #[test]
    fn calls_that_share_a_sync_find_their_own_data_stable() {
        const THREADS: u64 = 8;
        const WRITES: u64 = 200;
        let device = Arc::new(Counting::default());
        let storage = Storage::on(Arc::clone(&device) as Arc<_>, WriteVerifier::default());
        let file = File::open("/dev/null").unwrap();
        let syncs = Syncs::default();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..WRITES {
                        let since = syncs.losses();
                        let own = device.written.fetch_add(1, Ordering::SeqCst) + 1;
                        storage.sync_shared(&file, Reach::Data, &syncs, since).unwrap();
                        assert!(device.stable.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
        assert!(device.syncs.load(Ordering::SeqCst) <= THREADS * WRITES);
    }

    /// On the kernel's storage, a socket cannot be synced.
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
