//! The log of a server that this one follows, while that one answers its last calls.
//!
//! The other server may learn names until it ends, or write its log anew, which then is another file. This one reads along.
//! It has the log for itself as soon as it has the lock of the file that is in place. From then on it appends to that file.
//! The log lacks what this server has learnt before, so it is rewritten at once, as any log that lacks records.
//!
//! *Order.* The other server may write an old name late, or once more. So its names count as older than those that this
//! server has learnt itself. A name that this server has forgotten does not come back. For a directory, only the newest name
//! leads to what is below.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};

use super::map::{Key, Known, Log, PathMap};
use crate::fs::state::is_in_place;

/// Most bytes that are taken over under the locks at a time; more than the longest record.
const PIECE: u64 = 128 * 1024;

/// Changes that this server makes itself while it follows another one.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) learnt: Known,
    pub(super) forgotten: Known,
}

/// Returns the bytes behind those that were taken over, up to a limit.
fn piece(file: &File, taken: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().saturating_sub(taken).min(PIECE);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, taken)?;
    Ok(bytes)
}

impl Own {
    pub(super) fn learn(&mut self, key: Key, directory: Key, name: &[u8]) {
        self.forgotten.forget(key, directory, name);
        self.learnt.learn(key, directory, name);
    }

    pub(super) fn forget(&mut self, key: Key, directory: Key, name: &[u8]) {
        self.learnt.forget(key, directory, name);
        self.forgotten.learn(key, directory, name);
    }
}

impl PathMap {
    /// Returns whether another server may still learn names that this one does not know.
    pub(in crate::fs::directory) fn follows(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    /// Takes over what the server before this one has learnt, and its log if it has ended. Returns whether this server has
    /// the log. Only with the identity of the process.
    pub(in crate::fs::directory) fn take_over(&self) -> bool {
        self.tidy();
        !self.follows()
    }

    /// Takes over what there is. It writes no records, because other calls wait for the locks.
    pub(super) fn catch_up(&self) {
        while self.follows() {
            // Other calls have the locks between two pieces.
            let followed = self.follow(&mut self.log());
            match followed {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, path = %self.path.display(), "cannot follow the map of names");
                    return;
                }
            }
        }
    }

    /// Takes over one piece, or the log. Returns whether the next piece is there.
    fn follow(&self, log: &mut Log) -> io::Result<bool> {
        let Some(own) = &mut log.own else { return Ok(false) };
        // Locked before it is read: nothing follows the records that are read then.
        let is_alone = flock(&log.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let bytes = piece(&log.file, log.length)?;
        if !bytes.is_empty() {
            let taken = self.change().apply(&bytes, own);
            log.length += taken;
            if taken > 0 && bytes.len() as u64 == PIECE {
                return Ok(true);
            }
        }
        if !is_in_place(&log.file, &self.path)? {
            log.file = File::options().read(true).write(true).open(&self.path)?;
            log.length = 0;
            return Ok(true);
        }
        if !is_alone {
            return Ok(false);
        }
        // The last record may be a part of one, behind which no other may stand. If this fails, the next one overwrites it.
        let _ = log.file.set_len(log.length);
        log.own = None;
        log.repair = Some(Instant::now());
        self.records.store(self.known().names, Ordering::Relaxed);
        self.lacking.store(true, Ordering::Relaxed);
        // A call that sees this finds all names of the other server.
        self.follows.store(false, Ordering::Release);
        Ok(false)
    }
}
