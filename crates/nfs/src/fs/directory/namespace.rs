//! Operations on names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK of a directory tree.
//!
//! The system calls run as the caller. Descriptors identify objects before and after, so that the report is
//! about the changed object.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, linkat, makedev, mkdirat, mknodat, openat, openat2,
    renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;

use super::DirectoryFs;
use super::convert::{attributes, mode_bits, stat};
use super::ids::{Object, WALK};
use super::open_files::{OpenFile, out_of_descriptors};
use super::storage::Reach;
use crate::fs::types::{
    Attributes, Before, Change, CreateHow, FileId, FileKind, FsError, Identity, LINK_TARGET_MAX, Linked,
    Name, Node, Outcome, Place, Renamed, SetAttributes, SetTime, Special, Timestamp,
};

const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;
/// Mode of a file until the client has set its attributes.
const EXCLUSIVE_MODE: u32 = 0o600;
/// More than a step of the clock from which file systems take times.
const CLOCK_TICK: Duration = Duration::from_millis(100);
/// Most attempts to create a file when the name comes and goes meanwhile.
const CREATE_ATTEMPTS: usize = 8;

/// Returns the times that store the verifier of an exclusive CREATE: 31 bits each, which every file system
/// can store. They come from a hash of all 64 bits, so that different verifiers have different times (except
/// for one pair in 2^62).
fn verifier_times(verifier: [u8; 8]) -> (Timestamp, Timestamp) {
    let mut hasher = SipHasher24::new();
    hasher.write(&verifier);
    let value = hasher.finish();
    let time = |half: u64| Timestamp {
        seconds: i64::try_from(half & 0x7fff_ffff).unwrap_or_default(),
        nanoseconds: 0,
    };
    (time(value >> 32), time(value))
}

/// Returns whether a file was made by an exclusive CREATE with this verifier, and is unchanged since.
fn was_made_with(found: &Attributes, verifier: [u8; 8]) -> bool {
    let (accessed, modified) = verifier_times(verifier);
    found.kind == FileKind::Regular
        && found.size == 0
        && found.accessed == accessed
        && found.modified == modified
}

/// Result of the part of CREATE that needs the lock of the directory.
pub(super) enum Created {
    /// A new file, to be synced.
    New(Node, Arc<OpenFile>),
    /// An existing file, to be resized, or made by an earlier transmission of this call.
    Taken { object: Object, id: FileId, size: Option<u64>, repeated: bool },
}

impl DirectoryFs {
    pub(super) fn create_in(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Result<Created, FsError> {
        match how {
            CreateHow::Guarded(new) => self.create_new(who, directory, name, new),
            CreateHow::Unchecked(new) => {
                for _ in 0..CREATE_ATTEMPTS {
                    match self.create_new(who, directory, name, new) {
                        Err(FsError::Exists) => {}
                        made => return made,
                    }
                    match self.take_existing(who, directory, name, new.size) {
                        Err(FsError::NotFound) => {}
                        taken => return taken,
                    }
                }
                Err(FsError::TryLater)
            }
            CreateHow::Exclusive(verifier) => {
                let (accessed, modified) = verifier_times(*verifier);
                let new = SetAttributes {
                    mode: Some(EXCLUSIVE_MODE),
                    accessed: SetTime::To(accessed),
                    modified: SetTime::To(modified),
                    ..SetAttributes::default()
                };
                match self.create_exclusive(who, directory, name, &new) {
                    Err(FsError::Exists) => {}
                    made => return made,
                }
                let object = {
                    let _acting = self.actor.act_as(who)?;
                    self.child(directory, name)?
                };
                // RFC 1813 §3.3.8: an equal verifier means a repetition of the call that made the file.
                if !was_made_with(&attributes(&object.stat), *verifier) {
                    return Err(FsError::Exists);
                }
                let id = self.ids.id_of(&object, Some((directory, name.as_bytes())))?;
                Ok(Created::Taken { object, id, size: None, repeated: true })
            }
        }
    }

    /// Completes a CREATE, which may take long. Other calls use the directory meanwhile.
    pub(super) fn finish_create(&self, who: &Identity, created: Created) -> Result<Node, FsError> {
        match created {
            Created::New(node, file) => {
                if self.options.sync_metadata {
                    file.sync(Reach::File, file.losses())?;
                }
                Ok(node)
            }
            Created::Taken { mut object, id, size, repeated } => {
                if let Some(size) = size {
                    // Otherwise a WRITE with the file's attributes before and after would report this change
                    // as its own.
                    let locked = self.locks.lock(&id)?;
                    self.set_size(who, &id, &object, size)?;
                    object.stat = stat(&object)?;
                    drop(locked);
                }
                if size.is_some() || repeated {
                    self.settle(&object)?;
                }
                Ok(Node { id, attributes: attributes(&object.stat) })
            }
        }
    }

    fn create_new(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        new: &SetAttributes,
    ) -> Result<Created, FsError> {
        let mode = self.lendable(new.mode.unwrap_or(DEFAULT_FILE_MODE), FileKind::Regular);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let object = {
            let _acting = self.actor.act_as(who)?;
            let open = || openat2(directory, name.as_bytes(), flags, mode_bits(mode), WALK);
            let mut object = Object::new(self.open_files.opening(out_of_descriptors, open)?)?;
            let applied = self.apply_new(who, &mut object, new, mode).and_then(|()| match new.size {
                Some(size) if size > 0 => {
                    rustix::fs::ftruncate(&object, size)?;
                    Ok(object.look_again()?)
                }
                _ => Ok(()),
            });
            if let Err(error) = applied {
                // A failed creation leaves nothing behind.
                let _ = unlinkat(directory, name.as_bytes(), AtFlags::empty());
                return Err(error);
            }
            object
        };
        self.created(who, directory, name, object)
    }

    /// Makes a file that gets its name with its attributes. If the server dies between the two steps of
    /// [`create_new`](Self::create_new), a repeated call does not know the file as its own, and fails.
    fn create_exclusive(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        new: &SetAttributes,
    ) -> Result<Created, FsError> {
        let mode = self.lendable(new.mode.unwrap_or(DEFAULT_FILE_MODE), FileKind::Regular);
        let made = || -> Result<Object, FsError> {
            let _acting = self.actor.act_as(who)?;
            // Programs that wait for a lock file try again and again.
            if statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return Err(FsError::Exists);
            }
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let open = || openat(directory, c".", flags, mode_bits(mode));
            let mut object = Object::new(self.open_files.opening(out_of_descriptors, open)?)?;
            self.apply_new(who, &mut object, new, mode)?;
            let path = Self::proc_name(&object);
            linkat(&self.proc_fds, &path, directory, name.as_bytes(), AtFlags::SYMLINK_FOLLOW)?;
            // A program that watches the directory gets events under the name by which the descriptor was opened.
            if let Ok(named) = self.child(directory, name)
                && Place::from(&named.stat) == Place::from(&object.stat)
                && let Ok(file) = self.reopen(&named, OFlags::RDWR)
            {
                return Ok(Object::new(file)?);
            }
            object.look_again()?;
            Ok(object)
        };
        match made() {
            Ok(object) => self.created(who, directory, name, object),
            Err(FsError::Exists) => Err(FsError::Exists),
            // Not every file system has files without names. Most other errors occur again.
            Err(_) => self.create_new(who, directory, name, new),
        }
    }

    fn created(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        object: Object,
    ) -> Result<Created, FsError> {
        let node = self.node(&object, Some((directory, name.as_bytes())))?;
        // The file is open for reading and writing, whatever its mode, and the client is about to write.
        let file = self.keep_new(who, &node.id, object);
        Ok(Created::New(node, file))
    }

    /// Opens an existing regular file for UNCHECKED; the client may request a size.
    fn take_existing(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        size: Option<u64>,
    ) -> Result<Created, FsError> {
        let object = {
            let _acting = self.actor.act_as(who)?;
            self.child(directory, name)?
        };
        if object.kind() != FileKind::Regular {
            return Err(FsError::Exists);
        }
        let id = self.ids.id_of(&object, Some((directory, name.as_bytes())))?;
        Ok(Created::Taken { object, id, size, repeated: false })
    }

    /// Sets the attributes of a new object. The client has applied its own umask. So the umask of this
    /// process and the effects of a change of owner are undone. Objects under a default access control list
    /// are an exception, because its mask decides.
    ///
    /// An owner equal to the caller is what the client gets anyway. Where callers do not act as themselves,
    /// the user of this process stands for all of them. So a request for the own user is not refused.
    ///
    /// The object has its present attributes before this call and after it.
    fn apply_new(
        &self,
        who: &Identity,
        object: &mut Object,
        new: &SetAttributes,
        mode: u32,
    ) -> Result<(), FsError> {
        let rest = SetAttributes { mode: None, size: None, ..*new };
        let own = |wanted: Option<u32>, own: u32| wanted.is_none_or(|id| id == own);
        // Most new objects get nothing but a mode, which they have already.
        if !rest.is_empty() {
            match self.apply(object, &rest) {
                Err(FsError::NotPermitted)
                    if !self.actor.switches() && own(new.uid, who.uid) && own(new.gid, who.gid) =>
                {
                    self.apply(object, &SetAttributes { uid: None, gid: None, ..rest })?;
                }
                applied => applied?,
            }
            object.look_again()?;
        }
        let got = u32::from(object.stat.stx_mode);
        if mode & 0o7777 & !got == 0 || object.kind() == FileKind::Symlink {
            return Ok(());
        }
        if Self::access_list(object).is_ok() {
            return Ok(());
        }
        // A set-group-id bit inherited from the directory stays.
        let inherited = got & 0o2000;
        self.apply(object, &SetAttributes { mode: Some(mode | inherited), ..SetAttributes::default() })?;
        Ok(object.look_again()?)
    }

    /// Returns whether an object may be the one that the caller has made since then. Only its name indicates
    /// that. A user who may write to the directory may have moved another object of the caller's there, whose
    /// rights must not change.
    fn is_made(&self, who: &Identity, object: &Object, since: SystemTime) -> bool {
        let born = &object.stat.stx_btime;
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(CLOCK_TICK);
        let known = StatxFlags::from_bits_retain(object.stat.stx_mask).contains(StatxFlags::BTIME);
        let older = known
            && u64::try_from(born.tv_sec).is_ok_and(|seconds| Duration::new(seconds, born.tv_nsec) < since);
        object.stat.stx_uid == self.actor.judged(who).uid && !older
    }

    pub(super) fn make_in(
        &self,
        who: &Identity,
        directory: &Object,
        name: Name<'_>,
        what: &Special<'_>,
        new: &SetAttributes,
    ) -> Result<(Object, Node), FsError> {
        let kind = what.kind();
        let mode = self.lendable(new.mode.unwrap_or(DEFAULT_DIRECTORY_MODE), kind);
        let object = {
            let _acting = self.actor.act_as(who)?;
            let since = SystemTime::now();
            make_object(directory, name, what, mode_bits(mode))?;
            let mut object = self.child(directory, name)?;
            if object.kind() != kind {
                // Another user has already put something else in its place.
                return Err(FsError::NotFound);
            }
            if self.is_made(who, &object, since)
                && let Err(error) = self.apply_new(who, &mut object, new, mode)
            {
                let flags = if kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let _ = unlinkat(directory, name.as_bytes(), flags);
                return Err(error);
            }
            object
        };
        let node = self.node(&object, Some((directory, name.as_bytes())))?;
        Ok((object, node))
    }

    pub(super) fn remove_in(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        flags: AtFlags,
    ) -> Outcome<()> {
        let remove = |directory: &Object| {
            let victim = {
                let _acting = self.actor.act_as(who)?;
                let victim = self.child(directory, name)?;
                unlinkat(directory, name.as_bytes(), flags)?;
                victim
            };
            self.ids.forget(&victim, directory, name.as_bytes());
            Ok(victim)
        };
        // When its last descriptor closes, the file system frees the space, which takes long for a large
        // file.
        let finish = |victim: Object| {
            self.close_if_gone(&victim);
            Ok(())
        };
        self.change_in(directory, remove, finish)
    }

    /// Closes the descriptors of an object that has lost its last name. If another client has added a name,
    /// its uncommitted data is still needed.
    fn close_if_gone(&self, object: &Object) {
        if stat(object).is_ok_and(|now| now.stx_nlink == 0)
            && let Ok(id) = self.ids.id_of(object, None)
        {
            self.open_files.remove(&id);
        }
    }

    pub(super) fn rename_between(
        &self,
        who: &Identity,
        (from, from_name): (&FileId, Name<'_>),
        (to, to_name): (&FileId, Name<'_>),
    ) -> Renamed {
        if from == to {
            // Most renames stay in their directory, which is looked at and synced only once.
            let rename =
                |directory: &Object| self.rename_in(who, (directory, from_name), (directory, to_name));
            let finish = |replaced: Option<Object>| {
                self.close_replaced(replaced);
                Ok(())
            };
            let Outcome { result, change } = self.change_in(from, rename, finish);
            return Renamed { result, from: change, to: change };
        }
        let (source, target) = match (self.directory(from), self.directory(to)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(error), _) | (_, Err(error)) => {
                return Renamed { result: Err(error), from: Change::default(), to: Change::default() };
            }
        };
        let locked = match self.locks.lock_both(from, to) {
            Ok(locked) => locked,
            Err(error) => {
                return Renamed { result: Err(error), from: Change::default(), to: Change::default() };
            }
        };
        let before = |object: &Object| stat(object).ok().map(|stat| Before::from(&attributes(&stat)));
        let (before_from, before_to) = (before(&source), before(&target));
        let result = self.rename_in(who, (&source, from_name), (&target, to_name));
        let after = |object: &Object| stat(object).ok().map(|stat| attributes(&stat));
        let (after_from, after_to) = (after(&source), after(&target));
        drop(locked);
        let result = result.and_then(|replaced| {
            self.close_replaced(replaced);
            self.settle(&source)?;
            self.settle(&target)
        });
        Renamed {
            result,
            from: Change { before: before_from, after: after_from },
            to: Change { before: before_to, after: after_to },
        }
    }

    /// Closes the descriptors of an object that a rename replaced.
    fn close_replaced(&self, replaced: Option<Object>) {
        if let Some(replaced) = replaced {
            self.close_if_gone(&replaced);
        }
    }

    /// Renames an object. Returns the object that was replaced.
    fn rename_in(
        &self,
        who: &Identity,
        (from, from_name): (&Object, Name<'_>),
        (to, to_name): (&Object, Name<'_>),
    ) -> Result<Option<Object>, FsError> {
        // Held until both names are recorded: a handle of an object below is found by a path.
        let _renaming = self.ids.renaming()?;
        let (moved, replaced) = {
            let _acting = self.actor.act_as(who)?;
            let replaced = self.child(to, to_name).ok();
            // Without names to learn, and with nothing to replace, only the kernel has to find the object.
            let needed = replaced.is_some() || self.ids.go_by_names();
            let moved = if needed { Some(self.child(from, from_name)?) } else { None };
            renameat(from, from_name.as_bytes(), to, to_name.as_bytes())?;
            (moved, replaced)
        };
        let Some(moved) = moved else { return Ok(None) };
        if let Some(replaced) = &replaced {
            // RFC 1813 §3.3.14: for two names of one object, rename does nothing.
            if Place::from(&replaced.stat) == Place::from(&moved.stat) {
                return Ok(None);
            }
            self.ids.forget(replaced, to, to_name.as_bytes());
        }
        // The new name comes first, so that the object always has a known name.
        self.ids.learn(&moved, to, to_name.as_bytes());
        self.ids.forget(&moved, from, from_name.as_bytes());
        Ok(replaced)
    }

    pub(super) fn link_into(
        &self,
        who: &Identity,
        file: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Linked {
        let object = match self.object(file) {
            Ok(object) => object,
            Err(error) => return Linked { result: Err(error), file: None, directory: Change::default() },
        };
        let link = |directory: &Object| {
            if object.kind() == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            {
                let _acting = self.actor.act_as(who)?;
                let source = Self::proc_name(&object);
                linkat(&self.proc_fds, source, directory, name.as_bytes(), AtFlags::SYMLINK_FOLLOW)?;
            }
            self.ids.learn(&object, directory, name.as_bytes());
            Ok(())
        };
        let outcome = self.change_in(directory, link, Ok);
        let file = stat(&object).ok().map(|stat| attributes(&stat));
        Linked { result: outcome.result, file, directory: outcome.change }
    }
}

fn make_object(directory: &Object, name: Name<'_>, what: &Special<'_>, mode: Mode) -> Result<(), FsError> {
    let name = name.as_bytes();
    let node = |kind, device| mknodat(directory, name, kind, mode, device);
    let made = match what {
        Special::Directory => mkdirat(directory, name, mode),
        // For an empty text the kernel would return ENOENT, which belongs to names.
        Special::Symlink([]) => Err(Errno::INVAL),
        Special::Symlink(target) if target.len() > LINK_TARGET_MAX => Err(Errno::NAMETOOLONG),
        Special::Symlink(target) => symlinkat(*target, directory, name),
        Special::Fifo => node(FileType::Fifo, 0),
        Special::Socket => node(FileType::Socket, 0),
        Special::BlockDevice(device) => node(FileType::BlockDevice, makedev(device.major, device.minor)),
        Special::CharacterDevice(device) => {
            node(FileType::CharacterDevice, makedev(device.major, device.minor))
        }
    };
    Ok(made?)
}

#[cfg(test)]
mod tests {
    use super::super::{DirectoryOptions, StateDirectory};
    use super::*;
    use crate::fs::FileSystem;
    use crate::fs::types::Stability;

    #[test]
    fn what_is_older_or_somebody_elses_was_not_just_made() {
        let (tree, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = StateDirectory::open(state.path()).unwrap();
        let fs = DirectoryFs::open(tree.path(), &state, DirectoryOptions::default()).unwrap();
        let who = Identity { uid: rustix::process::geteuid().as_raw(), ..Identity::superuser() };
        let since = SystemTime::now();
        std::fs::create_dir(tree.path().join("dir")).unwrap();
        let mut object = fs.child(&fs.root, Name::new(b"dir").unwrap()).unwrap();
        assert!(fs.is_made(&who, &object, since));
        object.stat.stx_mask |= StatxFlags::BTIME.bits();
        object.stat.stx_btime.tv_sec -= 2;
        assert!(!fs.is_made(&who, &object, since), "moved here");
        // Some file systems do not report it.
        object.stat.stx_mask &= !StatxFlags::BTIME.bits();
        assert!(fs.is_made(&who, &object, since));
        object.stat.stx_uid += 1;
        assert!(!fs.is_made(&who, &object, since), "made by another user");
    }

    /// Between the look at the victim and its removal, another client may have added a name.
    #[test]
    fn i8_what_has_another_name_keeps_its_uncommitted_data() {
        let (tree, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = StateDirectory::open(state.path()).unwrap();
        let fs = DirectoryFs::open(tree.path(), &state, DirectoryOptions::default()).unwrap();
        let who = Identity { uid: rustix::process::geteuid().as_raw(), ..Identity::superuser() };
        let (name, other) = (Name::new(b"file").unwrap(), Name::new(b"other").unwrap());
        let how = CreateHow::Guarded(SetAttributes::default());
        let file = fs.create(&who, &fs.root(), name, &how).result.unwrap().id;
        fs.write(&who, &file, 0, b"data", Stability::Unstable).result.unwrap();
        let victim = fs.child(&fs.root, name).unwrap();
        fs.link(&who, &file, &fs.root(), other).result.unwrap();
        for (name, stays) in [(name, true), (other, false)] {
            std::fs::remove_file(tree.path().join(std::str::from_utf8(name.as_bytes()).unwrap())).unwrap();
            fs.close_if_gone(&victim);
            assert_eq!(fs.open_files.uncommitted(&file).is_some(), stays, "{name:?}");
        }
    }

    // requirement: rfc1813-3.3.8-5
    #[test]
    fn a_verifier_becomes_two_times_that_every_file_system_keeps() {
        let mut seen = std::collections::HashSet::new();
        for bit in 0..64 {
            let (accessed, modified) = verifier_times((1_u64 << bit).to_be_bytes());
            for time in [accessed, modified] {
                assert!(
                    i32::try_from(time.seconds).is_ok_and(|seconds| seconds >= 0) && time.nanoseconds == 0
                );
            }
            assert!(seen.insert((accessed.seconds, modified.seconds)), "bit {bit}");
        }
        // A repeated call may come after a restart, or after an update.
        let (accessed, modified) = verifier_times(*b"verifier");
        assert_eq!((accessed.seconds, modified.seconds), (1_436_700_523, 2_003_038_809));
    }
}
