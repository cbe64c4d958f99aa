//! READ, WRITE, COMMIT and SETATTR of a directory tree.

use std::io::IoSliceMut;
use std::sync::Arc;

use rustix::fs::{Access as Probe, AtFlags, OFlags, Statx, accessat, fdatasync, fsync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite};

use super::DirectoryFs;
use super::convert::{attributes, stat, stat_cached, timestamp};
use super::ids::Object;
use super::open_files::{OpenFile, Purpose};
use crate::fs::types::{
    Before, Change, FileId, FileKind, FsError, Identity, Outcome, ReadResult, SetAttributes, Stability,
    Timestamp, WriteResult,
};

/// The largest offset of the system calls.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();

impl DirectoryFs {
    /// A file that is open for the caller and the purpose, and what is known about it now.
    fn open_for(
        &self,
        who: &Identity,
        id: &FileId,
        purpose: Purpose,
    ) -> Result<(Arc<OpenFile>, Statx), FsError> {
        if let Some(file) = self.open_files.get(id, who, purpose) {
            let stat = stat(&*file)?;
            if file.is_current(&stat) {
                return Ok((file, stat));
            }
            self.open_files.remove(id);
        }
        let object = self.object(id)?;
        // Never open anything else: a FIFO would wait, a device would do something.
        match object.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::InvalidArgument),
        }
        let file = Arc::new(self.open_object(who, &object, purpose)?);
        let stat = stat(&*file)?;
        self.open_files.insert(*id, who, &file);
        Ok((file, stat))
    }

    fn open_object(&self, who: &Identity, object: &Object, purpose: Purpose) -> Result<OpenFile, FsError> {
        let attempts: &[(OFlags, bool, bool)] = match purpose {
            Purpose::Read => &[(OFlags::RDONLY, true, false)],
            Purpose::Write => &[(OFlags::RDWR, true, true), (OFlags::WRONLY, false, true)],
        };
        let mut refusal = FsError::AccessDenied;
        {
            let _acting = self.actor.act_as(who)?;
            for (flags, readable, writable) in attempts {
                match self.reopen(object, *flags) {
                    Ok(fd) => return Ok(OpenFile::new(fd, *readable, *writable, &object.stat)),
                    Err(Errno::ACCESS) => {}
                    Err(errno) => {
                        refusal = errno.into();
                        break;
                    }
                }
            }
        }
        // RFC 1813 §4.4: the owner, who opened the file when the bits allowed it; and who may execute it.
        let excepted = refusal == FsError::AccessDenied
            && self.actor.outranks(who)
            && (object.stat.stx_uid == who.uid
                || (purpose == Purpose::Read && self.may_execute(who, object)?));
        match attempts.first() {
            Some((flags, readable, writable)) if excepted => {
                let fd = self.reopen(object, *flags)?;
                Ok(OpenFile::new(fd, *readable, *writable, &object.stat))
            }
            _ => Err(refusal),
        }
    }

    fn may_execute(&self, who: &Identity, object: &Object) -> Result<bool, FsError> {
        let name = Self::proc_name(object);
        let _acting = self.actor.act_as(who)?;
        Ok(accessat(&self.proc_fds, name, Probe::EXEC_OK, AtFlags::EACCESS).is_ok())
    }

    /// A read that never waits: of an open file, from the page cache. The whole read or nothing.
    pub(super) fn read_cached(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<ReadResult> {
        // To preadv2 an offset of -1 means the position of the descriptor.
        if offset > OFFSET_MAX {
            return None;
        }
        let file = self.open_files.get(id, who, Purpose::Read)?;
        let wanted = buffer.len();
        let flags = ReadWriteFlags::NOWAIT;
        let length = preadv2(&*file, &mut [IoSliceMut::new(buffer)], offset, flags).ok()?;
        let stat = stat_cached(&*file).ok()?;
        let end_of_file = offset.saturating_add(length as u64) >= stat.stx_size;
        if !file.is_current(&stat) || (length < wanted && !end_of_file) {
            return None;
        }
        Some(ReadResult { length, end_of_file, attributes: attributes(&stat) })
    }

    pub(super) fn read_file(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        let (file, _) = self.open_for(who, id, Purpose::Read)?;
        let mut length = 0;
        let mut ended = false;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(length as u64);
            // Behind the largest offset there is nothing, and a read that would pass it is refused by the kernel.
            let possible = usize::try_from(OFFSET_MAX.saturating_sub(at)).unwrap_or(usize::MAX);
            let room = rest.len().min(possible);
            let part = rest.get_mut(..room).unwrap_or_default();
            let count = if room == 0 { 0 } else { retry(|| pread(&*file, &mut *part, at))? };
            if count == 0 {
                ended = true;
                break;
            }
            length += count;
        }
        let stat = stat(&*file)?;
        let end_of_file = ended || offset.saturating_add(length as u64) >= stat.stx_size;
        Ok(ReadResult { length, end_of_file, attributes: attributes(&stat) })
    }

    pub(super) fn write_file(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<WriteResult> {
        let mut unsettled = None;
        let mut outcome = self.with_file(who, id, |file| {
            if offset.checked_add(data.len() as u64).is_none_or(|end| end > OFFSET_MAX) {
                return Err(FsError::FileTooLarge);
            }
            // Before the first octet: if the storage loses one of them, the verifier has changed since.
            let verifier = self.options.verifier.get();
            // As the caller: quotas, reserved space and set-id bits depend on who writes.
            let acting = self.actor.act_as(who)?;
            let length = write_all(file, offset, data)?;
            drop(acting);
            unsettled = Some(Arc::clone(file));
            Ok(WriteResult { length, committed: stability, verifier })
        });
        if let (Some(file), true) = (unsettled, outcome.result.is_ok()) {
            let settled = match stability {
                Stability::Unstable => Ok(()),
                Stability::DataSync => fdatasync(&*file),
                Stability::FileSync => fsync(&*file),
            };
            if let Err(errno) = settled {
                outcome.result = Err(self.storage_failed(errno));
            }
        }
        outcome
    }

    pub(super) fn commit_file(&self, who: &Identity, id: &FileId) -> Outcome<u64> {
        let (file, _) = match self.open_for(who, id, Purpose::Write) {
            Ok(open) => open,
            Err(error) => return self.refused(id, error),
        };
        // RFC 1813 §3.3.21: data and metadata; of the whole file, which is always enough.
        let result =
            fsync(&*file).map(|()| self.options.verifier.get()).map_err(|errno| self.storage_failed(errno));
        let after = stat(&*file).ok().map(|stat| attributes(&stat));
        // Nothing is told of before: others write while this waits for the storage, and a client would take what they
        // changed for its own doing (RFC 1813 §2.6, `wcc_data`).
        Outcome { result, change: Change { before: None, after } }
    }

    /// A failure before anything was changed.
    fn refused<T>(&self, id: &FileId, error: FsError) -> Outcome<T> {
        let after = self.object(id).ok().map(|object| attributes(&object.stat));
        Outcome { result: Err(error), change: Change { before: None, after } }
    }

    fn with_file<T>(
        &self,
        who: &Identity,
        id: &FileId,
        operation: impl FnOnce(&Arc<OpenFile>) -> Result<T, FsError>,
    ) -> Outcome<T> {
        let (file, _) = match self.open_for(who, id, Purpose::Write) {
            Ok(open) => open,
            Err(error) => return self.refused(id, error),
        };
        // No other change through this server comes between the two sets of attributes: a client takes the file's cached
        // data for good if the first set is what it knows.
        let stripe = self.lock_file(id);
        let before = stat(&*file).ok().map(|stat| Before::from(&attributes(&stat)));
        let result = operation(&file);
        let after = stat(&*file).ok().map(|stat| attributes(&stat));
        drop(stripe);
        Outcome { result, change: Change { before, after } }
    }

    pub(super) fn set_file_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        let object = match self.object(id) {
            Ok(object) => object,
            Err(error) => return Outcome::failed(error),
        };
        let stripe = match object.kind() {
            FileKind::Directory => self.lock_stripe(self.stripe(id)),
            _ => self.lock_file(id),
        };
        let before = match stat(&object) {
            Ok(before) => before,
            Err(errno) => return Outcome::failed(errno.into()),
        };
        // RFC 1813 §3.3.2: the guard is compared before anything is changed.
        let result = if guard.is_some_and(|guard| guard != timestamp(&before.stx_ctime)) {
            Err(FsError::NotSynchronized)
        } else {
            self.set_size(who, id, &object, new.size).and_then(|()| {
                let _acting = self.actor.act_as(who)?;
                self.apply(&object, new)
            })
        };
        let after = stat(&object).ok().map(|stat| attributes(&stat));
        drop(stripe);
        let result = result.and_then(|()| self.settle(&object));
        Outcome { result, change: Change { before: Some(Before::from(&attributes(&before))), after } }
    }

    /// Cuts a file or adds octets of zero.
    pub(super) fn set_size(
        &self,
        who: &Identity,
        id: &FileId,
        object: &Object,
        size: Option<u64>,
    ) -> Result<(), FsError> {
        let Some(size) = size else { return Ok(()) };
        if object.kind() != FileKind::Regular {
            return Err(FsError::InvalidArgument);
        }
        if size > OFFSET_MAX {
            return Err(FsError::FileTooLarge);
        }
        let (file, _) = self.open_for(who, id, Purpose::Write)?;
        let _acting = self.actor.act_as(who)?;
        Ok(retry(|| ftruncate(&*file, size))?)
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Writes as much as goes; what was written before an error counts.
fn write_all(file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, FsError> {
    let mut length = 0;
    while let Some(rest) = data.get(length..).filter(|rest| !rest.is_empty()) {
        match retry(|| pwrite(file, rest, offset + length as u64)) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(errno) if length == 0 => return Err(errno.into()),
            // RFC 1813 §3.3.7: fewer octets than asked for; the next call meets the error again.
            Err(_) => break,
        }
    }
    if length == 0 && !data.is_empty() { Err(FsError::Io) } else { Ok(length) }
}
