//! READ, WRITE, COMMIT and SETATTR of a directory tree.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rpcrdma::streaming::write_all;
use rustix::fs::{Access as Probe, AtFlags, OFlags, SeekFrom, Statx, accessat, chmodat, ftruncate, seek};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwritev, retry_on_intr};

use super::DirectoryFs;
use super::convert::{attributes, mode_bits, stat, stat_cached, timestamp};
use super::ids::Object;
use super::open_files::{OpenFile, Purpose, UnstableWrite};
use super::storage::Reach;
use crate::fs::permission::{self, GROUP_EXECUTE, SET_GROUP_ID, SET_USER_ID};
use crate::fs::types::{
    Before, Change, Extents, FileId, FileKind, FsError, Identity, Outcome, ReadResult, SetAttributes,
    SetTime, Stability, Timestamp, WriteResult,
};

/// Largest offset of the system calls.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();
/// Mode bits that let an owner open a file to read and write.
const OWNER_READ_WRITE: u32 = 0o600;
const ANY_EXECUTE: u32 = 0o111;

impl DirectoryFs {
    /// Returns a file that is open for the caller and the purpose, with rights checked just now.
    fn open_for(&self, who: &Identity, id: &FileId, purpose: Purpose) -> Result<Arc<OpenFile>, FsError> {
        let user = self.actor.judged(who);
        let now = Instant::now();
        if let Some(file) = self.open_files.get(id, user, purpose, now) {
            let stat = stat(&*file)?;
            if file.is_current(purpose, &stat, now) {
                return Ok(file);
            }
            if stat.stx_nlink == 0 {
                self.open_files.remove(id);
            } else if self.may(who, &*file, &stat, purpose)? {
                file.confirm(purpose, &stat, now);
                return Ok(file);
            } else {
                self.open_files.remove_for(id, user);
            }
        }
        let object = self.regular(id)?;
        let file = Arc::new(self.open_object(who, &object, purpose)?);
        self.open_files.insert(*id, user, &file, None, now);
        Ok(file)
    }

    /// Returns a regular file. No other object is ever opened: a FIFO would wait, a device would have
    /// effects.
    fn regular(&self, id: &FileId) -> Result<Object, FsError> {
        let object = self.object(id)?;
        match object.kind() {
            FileKind::Regular => Ok(object),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::InvalidArgument),
        }
    }

    /// Checks that the caller may read or write the data of a file. The owner always may, and the right to
    /// execute includes reading (RFC 1813 §4.4). In all other cases the kernel decides.
    fn may(
        &self,
        who: &Identity,
        object: &impl AsFd,
        stat: &Statx,
        purpose: Purpose,
    ) -> Result<bool, FsError> {
        if self.actor.judged(who).uid == stat.stx_uid {
            return Ok(true);
        }
        let name = Self::proc_name(object);
        let _acting = self.actor.act_as(who)?;
        let may = |probe| accessat(&self.proc_fds, &name, probe, AtFlags::EACCESS).is_ok();
        Ok(match purpose {
            Purpose::Read => may(Probe::READ_OK) || may(Probe::EXEC_OK),
            Purpose::Write => may(Probe::WRITE_OK),
        })
    }

    fn open_object(&self, who: &Identity, object: &Object, purpose: Purpose) -> Result<OpenFile, FsError> {
        let attempts: &[(OFlags, (bool, bool))] = match purpose {
            Purpose::Read => &[(OFlags::RDONLY, (true, false))],
            Purpose::Write => &[(OFlags::RDWR, (true, true)), (OFlags::WRONLY, (false, true))],
        };
        // The check of the rights begins here.
        let now = Instant::now();
        let opened = |fd, can| OpenFile::new(fd, can, &object.stat, &self.storage, self.is_local, now);
        let mut refusal = FsError::AccessDenied;
        {
            let _acting = self.actor.act_as(who)?;
            for (flags, can) in attempts {
                match self.reopen(object, *flags) {
                    Ok(fd) => return Ok(opened(fd, *can)),
                    Err(Errno::ACCESS) => {}
                    Err(errno) => {
                        refusal = errno.into();
                        break;
                    }
                }
            }
        }
        match attempts.first() {
            Some((flags, can))
                if refusal == FsError::AccessDenied
                    && self.actor.outranks(who)
                    && self.may(who, object, &object.stat, purpose)? =>
            {
                Ok(opened(self.reopen(object, *flags)?, *can))
            }
            _ => Err(refusal),
        }
    }

    /// Returns whether this process owns a file and could not open it again to read and write. (Root could
    /// open any file.)
    fn is_closed_to_owner(&self, object: &Object, mode: u32) -> bool {
        self.actor.needs_mode(object.stat.stx_uid) && mode & OWNER_READ_WRITE != OWNER_READ_WRITE
    }

    /// Keeps a new file open.
    pub(super) fn keep_new(&self, who: &Identity, id: &FileId, object: Object) -> Arc<OpenFile> {
        let kept = self.is_closed_to_owner(&object, u32::from(object.stat.stx_mode));
        let keeper = kept.then_some(who.uid);
        let now = Instant::now();
        let file =
            Arc::new(OpenFile::new(object.fd, (true, true), &object.stat, &self.storage, self.is_local, now));
        self.open_files.insert(*id, self.actor.judged(who), &file, keeper, now);
        file
    }

    /// Keeps a file open that is about to get a mode with which its owner could not open it again.
    fn keep_for_owner(&self, who: &Identity, id: &FileId, object: &Object, mode: u32) {
        if object.kind() != FileKind::Regular || !self.is_closed_to_owner(object, mode) {
            return;
        }
        let user = self.actor.judged(who);
        // A caller that has not just written to the file must not keep others from executing it.
        if self.open_files.keep(id, user, who.uid) || mode & ANY_EXECUTE != 0 {
            return;
        }
        // If this is refused, the file was closed to its owner before.
        if let Ok(fd) = self.reopen(object, OFlags::RDWR) {
            let now = Instant::now();
            let file =
                Arc::new(OpenFile::new(fd, (true, true), &object.stat, &self.storage, self.is_local, now));
            self.open_files.insert(*id, user, &file, Some(who.uid), now);
        }
    }

    /// Reads an open file from the page cache without waiting: the complete range or nothing. File systems that cannot
    /// do so refuse the flag.
    pub(super) fn read_cached(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<ReadResult> {
        // For preadv2, an offset of -1 means the position of the descriptor.
        if offset > OFFSET_MAX {
            return None;
        }
        let now = Instant::now();
        let lent = self.open_files.get_to_read(id, self.actor.judged(who), now)?;
        let file = lent.get()?;
        let wanted = buffer.len();
        let flags = ReadWriteFlags::NOWAIT;
        let length = preadv2(file, &mut [IoSliceMut::new(buffer)], offset, flags).ok()?;
        let stat = stat_cached(file).ok()?;
        let end_of_file = offset.saturating_add(length as u64) >= stat.stx_size;
        if length < wanted && !end_of_file {
            return None;
        }
        // The kernel has to decide again, on a thread that may act as the caller.
        file.is_current(Purpose::Read, &stat, now).then_some(())?;
        Some(ReadResult { length, end_of_file, attributes: attributes(&stat) })
    }

    pub(super) fn read_file(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        let file = self.open_for(who, id, Purpose::Read)?;
        let mut length = 0;
        let mut ended = false;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(length as u64);
            // Nothing lies behind the largest offset, and the kernel refuses a read that would exceed it.
            let possible = usize::try_from(OFFSET_MAX.saturating_sub(at)).unwrap_or(usize::MAX);
            let room = rest.len().min(possible);
            let part = rest.get_mut(..room).unwrap_or_default();
            let count = if room == 0 { 0 } else { retry_on_intr(|| pread(&*file, &mut *part, at))? };
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

    /// Returns the ranges that SEEK_DATA and SEEK_HOLE report. They do not disturb reads and writes, which
    /// have explicit offsets.
    pub(super) fn file_extents(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        limit: usize,
    ) -> Result<Extents, FsError> {
        let file = self.open_for(who, id, Purpose::Read)?;
        let mut ranges = Vec::new();
        let mut at = offset;
        while ranges.len() < limit {
            let start = match retry_on_intr(|| seek(&*file, SeekFrom::Data(at))) {
                // Nothing lies behind the largest offset.
                _ if at > OFFSET_MAX => return Ok(Extents { ranges, complete: true }),
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(Extents { ranges, complete: true }),
                // The file system does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Extents::everything(offset)),
                Err(errno) => return Err(errno.into()),
            };
            let end = match retry_on_intr(|| seek(&*file, SeekFrom::Hole(start))) {
                Ok(end) if end > start => end,
                _ => OFFSET_MAX,
            };
            ranges.push(start..end);
            at = end;
        }
        Ok(Extents { ranges, complete: false })
    }

    pub(super) fn write_file(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[IoSlice<'_>],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        let file = match self.open_for(who, id, Purpose::Write) {
            Ok(file) => file,
            Err(error) => return self.refused(id, error),
        };
        // Before the first byte: a witness that learns of a loss, or else data is synced at once.
        let unstable = match stability {
            Stability::Unstable => self.begin_unstable(id, &file),
            Stability::DataSync | Stability::FileSync => None,
        };
        let committed = if unstable.is_some() { stability } else { stability.max(Stability::DataSync) };
        let losses = file.losses();
        let mut outcome = self.change_file(id, &file, |before| {
            let length: usize = data.iter().map(|slice| slice.len()).sum();
            // RFC 1813 §3.3.7: no data fits anywhere.
            if length > 0 && offset.checked_add(length as u64).is_none_or(|end| end > OFFSET_MAX) {
                return Err(FsError::FileTooLarge);
            }
            // Before the first byte: if the storage loses any of them, the verifier has changed since.
            let verifier = self.storage.verifier();
            // As the caller: quotas, reserved space and set-id bits depend on the writer.
            let acting = self.actor.act_as(who)?;
            // RFC 1813 §3.3.7: a WRITE without data changes nothing.
            if length > 0 {
                self.drop_set_id(&*file, before);
            }
            let write = |rest: &[IoSlice<'_>], done| Ok(pwritev(&*file, rest, offset + done as u64)?);
            let length = match write_all(data, write) {
                (0, Err(error)) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO).into()),
                // RFC 1813 §3.3.7: fewer bytes than requested; the next call meets the error again.
                (length, _) => length,
            };
            drop(acting);
            Ok(WriteResult { length, committed, verifier })
        });
        written();
        if outcome.result.is_ok() {
            let settled = match committed {
                Stability::Unstable => Ok(()),
                Stability::DataSync => file.sync(Reach::Data, losses),
                Stability::FileSync => file.sync(Reach::File, losses),
            };
            if let Err(error) = settled {
                outcome.result = Err(error);
            }
        }
        outcome
    }

    /// Begins an UNSTABLE write; `None` if no descriptor is available that would learn of a loss.
    fn begin_unstable(&self, id: &FileId, file: &OpenFile) -> Option<UnstableWrite> {
        let now = Instant::now();
        self.open_files.begin_unstable(id, now, || {
            let fd = self.reopen(file, OFlags::RDONLY).ok()?;
            let stat = stat(&fd).ok()?;
            Some(OpenFile::new(fd, (true, false), &stat, &self.storage, self.is_local, now))
        })
    }

    /// Clears set-id bits, as the kernel does for unprivileged callers. It would leave them where all callers
    /// act as a root that cannot act as them.
    fn drop_set_id(&self, file: &impl AsFd, stat: &Statx) {
        let mode = u32::from(stat.stx_mode);
        let group = if mode & GROUP_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
        let dropped = mode & (SET_USER_ID | group);
        if dropped != 0 && !self.actor.switches() {
            let mode = mode_bits(mode & !dropped);
            // If this is refused, the process is unprivileged, and the kernel clears the bits.
            let _ = chmodat(&self.proc_fds, Self::proc_name(file), mode, AtFlags::empty());
        }
    }

    pub(super) fn commit_file(&self, who: &Identity, id: &FileId) -> Outcome<u64> {
        let object = match self.regular(id) {
            Ok(object) => object,
            Err(error) => return self.refused(id, error),
        };
        match self.may(who, &object, &object.stat, Purpose::Write) {
            Ok(true) => {}
            Ok(false) => return self.refused(id, FsError::AccessDenied),
            Err(error) => return self.refused(id, error),
        }
        // RFC 1813 §3.3.21: data and metadata; of the whole file, which always suffices.
        let snapshot = self.open_files.uncommitted(id);
        let synced = match &snapshot {
            Some(snapshot) => snapshot.sync(),
            None => self.sync_object(who, id, &object),
        };
        let stat = stat(&object).ok();
        self.open_files.committed(id, snapshot.as_ref(), stat.as_ref());
        let result = synced.map(|()| self.storage.verifier());
        // The reply omits earlier attributes. Others write while this waits for the storage, and a client
        // would attribute their changes to itself (RFC 1813 §2.6, `wcc_data`).
        Outcome { result, change: Change { before: None, after: stat.map(|stat| attributes(&stat)) } }
    }

    /// Syncs a file without uncommitted data.
    fn sync_object(&self, who: &Identity, id: &FileId, object: &Object) -> Result<(), FsError> {
        let user = self.actor.judged(who);
        if let Some(file) = self.open_files.get(id, user, Purpose::Write, Instant::now()) {
            return file.sync(Reach::File, file.losses());
        }
        for flags in [OFlags::RDONLY, OFlags::WRONLY] {
            match self.reopen(object, flags) {
                Ok(fd) => return self.storage.sync(fd, Reach::File),
                Err(Errno::ACCESS | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // The file cannot be opened, so this server has not written to it.
        Ok(())
    }

    /// Returns a failure without any change.
    fn refused<T>(&self, id: &FileId, error: FsError) -> Outcome<T> {
        let after = self.object(id).ok().map(|object| attributes(&object.stat));
        Outcome { result: Err(error), change: Change { before: None, after } }
    }

    /// Changes an open file, and reports its attributes before and after.
    fn change_file<T>(
        &self,
        id: &FileId,
        file: &OpenFile,
        operation: impl FnOnce(&Statx) -> Result<T, FsError>,
    ) -> Outcome<T> {
        // No other change through this server comes between the two sets of attributes. If the first set
        // equals the client's own, the client trusts its cached data of the file.
        let locked = match self.locks.lock(id) {
            Ok(locked) => locked,
            Err(error) => return self.refused(id, error),
        };
        let before = match stat(file) {
            Ok(before) => before,
            Err(errno) => return Outcome::failed(errno.into()),
        };
        let result = operation(&before);
        let after = stat(file).ok();
        if let Some(after) = &after {
            self.open_files.moved(id, &before, after);
        }
        drop(locked);
        let after = after.map(|stat| attributes(&stat));
        Outcome { result, change: Change { before: Some(Before::from(&attributes(&before))), after } }
    }

    pub(super) fn set_file_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        let mut object = match self.object(id) {
            Ok(object) => object,
            Err(error) => return Outcome::failed(error),
        };
        let locked = match self.locks.lock(id) {
            Ok(locked) => locked,
            Err(error) => return self.refused(id, error),
        };
        object.stat = match stat(&object) {
            Ok(before) => before,
            Err(errno) => return Outcome::failed(errno.into()),
        };
        let before = Some(Before::from(&attributes(&object.stat)));
        // RFC 1813 §3.3.2: the guard is compared before any change.
        let result = if guard.is_some_and(|guard| guard != timestamp(&object.stat.stx_ctime)) {
            Err(FsError::NotSynchronized)
        } else {
            self.set_all(who, id, &object, new)
        };
        let after = stat(&object).ok().map(|stat| attributes(&stat));
        drop(locked);
        let result = result.and_then(|()| self.settle(&object));
        Outcome { result, change: Change { before, after } }
    }

    /// Sets all attributes or none. All rights are checked first. A change of the size cannot be undone. So
    /// it comes after those of the owner, which a quota may refuse, and of a time that the caller may not set
    /// alone. Both can be undone.
    fn set_all(
        &self,
        who: &Identity,
        id: &FileId,
        object: &Object,
        new: &SetAttributes,
    ) -> Result<(), FsError> {
        // The kernel would report this only after the change of the owner: a symbolic link has no mode.
        if new.mode.is_some() && object.kind() == FileKind::Symlink {
            return Err(FsError::InvalidArgument);
        }
        let user = self.actor.judged(who);
        let privileges = self.actor.privileges(who);
        permission::may_set(&attributes(&object.stat), user, privileges, new, || {
            self.may(who, object, &object.stat, Purpose::Write)
        })?;
        let as_owner = privileges.own || user.uid == object.stat.stx_uid;
        let times = Times::of(new, as_owner, self.actor.switches())?;
        let resized = match new.size {
            Some(size) => Some((self.open_to_resize(who, id, object, size)?, size)),
            None => None,
        };
        if let Some(mode) = new.mode {
            self.keep_for_owner(who, id, object, mode);
        }
        let none = SetAttributes::default();
        // These times do not depend on owner, group or mode: a caller that may change any of those may set
        // any time.
        self.set_times_as_owner(object, &times.as_owner(&none))?;
        let acting = self.actor.act_as(who)?;
        self.apply(object, &SetAttributes { uid: new.uid, gid: new.gid, ..none })?;
        if let Some((file, size)) = resized {
            self.drop_set_id(&*file, &object.stat);
            if let Err(errno) = retry_on_intr(|| ftruncate(&*file, size)) {
                drop(acting);
                self.give_back(who, object, new, times);
                return Err(errno.into());
            }
        }
        self.apply(object, &SetAttributes { mode: new.mode, ..times.as_caller(&none) })
    }

    /// Sets times for a caller that may write but may not set a single time: the thread acts as the owner,
    /// who may.
    fn set_times_as_owner(&self, object: &Object, times: &SetAttributes) -> Result<(), FsError> {
        if (times.accessed, times.modified) == (SetTime::Keep, SetTime::Keep) {
            return Ok(());
        }
        let _acting = self.actor.act_as_owner(object.stat.stx_uid, object.stat.stx_gid)?;
        self.apply(object, times)
    }

    /// Undoes a change of owner and of times. The caller had the right to the change, and may undo it as a
    /// member of the object's former group.
    pub(super) fn give_back(&self, who: &Identity, object: &Object, new: &SetAttributes, times: Times) {
        let old = attributes(&object.stat);
        let none = SetAttributes::default();
        let owner = if new.uid.is_none() && new.gid.is_none() {
            Ok(())
        } else {
            let owned =
                SetAttributes { uid: Some(old.uid), gid: Some(old.gid), mode: Some(old.mode), ..none };
            let member = Identity { uid: who.uid, gid: old.gid, groups: Vec::new() };
            self.actor.act_as(&member).and_then(|_acting| self.apply(object, &owned))
        };
        let back = |set, old| if set == SetTime::Keep { SetTime::Keep } else { SetTime::To(old) };
        let times = SetAttributes {
            accessed: back(times.owner.0, old.accessed),
            modified: back(times.owner.1, old.modified),
            ..none
        };
        if let Err(error) = owner.and(self.set_times_as_owner(object, &times)) {
            tracing::error!(%error, "a file could not be resized, and changes of its owner or times could not be undone");
        }
    }

    /// Returns a file that the caller may truncate or extend to `size`.
    fn open_to_resize(
        &self,
        who: &Identity,
        id: &FileId,
        object: &Object,
        size: u64,
    ) -> Result<Arc<OpenFile>, FsError> {
        if object.kind() != FileKind::Regular {
            return Err(FsError::InvalidArgument);
        }
        if size > OFFSET_MAX.min(self.properties.max_file_size) {
            return Err(FsError::FileTooLarge);
        }
        self.open_for(who, id, Purpose::Write)
    }

    /// Truncates a file, or extends it with zeros.
    pub(super) fn set_size(
        &self,
        who: &Identity,
        id: &FileId,
        object: &Object,
        size: u64,
    ) -> Result<(), FsError> {
        let file = self.open_to_resize(who, id, object, size)?;
        let _acting = self.actor.act_as(who)?;
        self.drop_set_id(&*file, &object.stat);
        Ok(retry_on_intr(|| ftruncate(&*file, size))?)
    }
}

/// Times of a SETATTR, by the identity that sets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Times that the caller sets, by the kernel's rules.
    caller: (SetTime, SetTime),
    /// Times that the owner sets, for a caller whose right to write was checked.
    owner: (SetTime, SetTime),
}

impl Times {
    /// Divides the times. A change of the size has already set the time of modification. A caller that may
    /// write a file but does not own it may set its times to the server's clock. The system call allows that
    /// only for both times together. So a single time is set as the owner, if the process can act as others.
    pub(super) fn of(new: &SetAttributes, as_owner: bool, switches: bool) -> Result<Self, FsError> {
        let modified = match new.modified {
            SetTime::Now if new.size.is_some() => SetTime::Keep,
            modified => modified,
        };
        let times = (new.accessed, modified);
        let one = (times.0 == SetTime::Now) != (times.1 == SetTime::Now);
        if as_owner || !one {
            return Ok(Self { caller: times, ..Self::default() });
        }
        if switches {
            return Ok(Self { owner: times, ..Self::default() });
        }
        // A change of the modification time covers the access time, but not the reverse.
        if times.1 == SetTime::Now || new.size.is_some() {
            return Ok(Self { caller: (SetTime::Now, SetTime::Now), ..Self::default() });
        }
        Err(FsError::NotPermitted)
    }

    fn as_caller(self, rest: &SetAttributes) -> SetAttributes {
        SetAttributes { accessed: self.caller.0, modified: self.caller.1, ..*rest }
    }

    fn as_owner(self, rest: &SetAttributes) -> SetAttributes {
        SetAttributes { accessed: self.owner.0, modified: self.owner.1, ..*rest }
    }
}
