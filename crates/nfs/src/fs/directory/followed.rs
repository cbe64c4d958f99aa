//! The log of a server that this one follows, while that one answers its last calls.
//!
//! The other server may learn names until it ends, or write its log anew, which then is another file. This one reads along.
//! It has the log for itself as soon as it has the lock of the file that is in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, flock};

use super::map::{Log, PathMap, replace};
use crate::fs::state::is_in_place;

/// A log that another server writes.
#[derive(Debug)]
pub(super) struct Followed {
    file: File,
    /// Bytes of the records that were taken over.
    read: u64,
}

impl Followed {
    pub(super) const fn new(file: File, read: u64) -> Self {
        Self { file, read }
    }

    /// Returns the bytes behind those that were taken over.
    fn rest(&self) -> io::Result<Vec<u8>> {
        let length = self.file.metadata()?.len().saturating_sub(self.read);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.read)?;
        Ok(bytes)
    }
}

impl PathMap {
    /// Returns whether another server may still learn names that this one does not know.
    pub(in crate::fs::directory) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Takes over what the server before this one has learnt, and its log if it has ended. Returns whether this server has
    /// the log. Only with the identity of the process.
    pub(in crate::fs::directory) fn catch_up(&self) -> bool {
        let mut log = self.log();
        if log.followed.is_none() {
            return true;
        }
        let has = self.follow(&mut log);
        has.unwrap_or_else(|error| {
            tracing::debug!(%error, path = %self.path.display(), "cannot follow the map of names");
            false
        })
    }

    fn follow(&self, log: &mut Log) -> io::Result<bool> {
        let Some(followed) = &mut log.followed else { return Ok(true) };
        // Locked before it is read: nothing follows the records that are read then.
        let is_alone = flock(&followed.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let bytes = followed.rest()?;
        if !bytes.is_empty() {
            followed.read += self.change().apply(&bytes);
        }
        if !is_in_place(&followed.file, &self.path)? {
            let file = File::options().read(true).write(true).open(&self.path)?;
            *followed = Followed::new(file, 0);
            let bytes = followed.rest()?;
            followed.read = self.change().apply(&bytes);
            return Ok(false);
        }
        if !is_alone {
            return Ok(false);
        }
        let (records, names) = {
            let known = self.known();
            (known.records(), known.names)
        };
        let length = followed.read;
        match replace(&self.path, &records) {
            Ok(file) => (log.file, log.length) = (file, records.len() as u64),
            Err(error) => {
                // The lock is that of the other server's file, to which this one appends from now on.
                log.file = followed.file.try_clone()?;
                log.length = length;
                // Its last record may be a part of one, behind which no other may stand.
                log.file.set_len(length)?;
                self.lacks(log, &error);
            }
        }
        log.followed = None;
        self.records.store(names, Ordering::Relaxed);
        self.follows.store(false, Ordering::Relaxed);
        Ok(true)
    }
}
