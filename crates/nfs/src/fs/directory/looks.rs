//! Looks at objects whose attributes the kernel has in memory.
//!
//! The first GETATTR, ACCESS or LOOKUP of an object opens it, which may wait for a disk. Afterwards a descriptor that
//! grants no rights stays open for a time (`open_files`). On a local file system its attributes then need one system
//! call that never waits. So the thread of a connection makes it, and no I/O thread has to be woken. Attributes and names
//! are always the kernel's.
//!
//! * *Rights.* The kernel decides on an I/O thread, which acts as the caller. The decision is valid for a limited time, while
//!   owner, group, mode and time of change stay equal: as one about an open file. A LOOKUP that finds its name is a decision
//!   too: the caller may search the directory. The thread of a connection never acts as a caller. An adapter's driver would refuse that thread from then on: Linux lets no thread write to a
//!   device whose credentials have changed since the device was opened.
//! * *Names.* The thread walks as the process, where the caller may search the directory. `RESOLVE_CACHED` makes a walk
//!   fail that would wait (Linux 5.12 or later).
//! * *Removed objects.* The link count tells them: for clients they do not exist.
//! * *The map.* Where a map identifies objects, an id is good only while its object is under a name that the map knows.
//!   That needs a walk, so no object is kept there.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::fs::{Access as Probe, AtFlags, Mode, ResolveFlags, Statx, accessat, getxattr, openat2};
use rustix::io::Errno;

use super::DirectoryFs;
use super::convert::{attributes, kind, stat};
use super::ids::{NAMING, Object, WALK};
use super::open_files::{Checked, Judgement, Lent, LookedObject, Room};
use super::storage::Syncs;
use crate::fs::types::{Access, Attributes, FileId, FileKind, Found, FsError, Identity, Name, Node};

/// A directory that a call changes.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(super) enum ToChange<'a> {
    /// It stays open from earlier changes, and can be synced.
    Kept(Lent<'a, LookedObject>),
    /// With its syncs if it can be synced.
    Opened(Object, Option<Syncs>),
}

impl ToChange<'_> {
    /// Returns the directory; `None` never, because a kept one is there until the drop.
    pub(super) fn object(&self) -> Option<&Object> {
        match self {
            Self::Kept(kept) => kept.get().map(LookedObject::object),
            Self::Opened(object, _) => Some(object),
        }
    }

    /// Returns the syncs of the directory's descriptor, if it can be synced.
    pub(super) fn syncs(&self) -> Option<&Syncs> {
        match self {
            Self::Kept(kept) => kept.get().and_then(LookedObject::syncs),
            Self::Opened(_, syncs) => syncs.as_ref(),
        }
    }
}

impl DirectoryFs {
    /// Returns whether a look at an object that is open needs no wait.
    pub(super) fn remembers_looks(&self) -> bool {
        self.is_local && self.has_kernel_handles()
    }

    /// Keeps an object that a caller has looked at.
    pub(super) fn remember_look(&self, id: &FileId, object: Object) {
        self.remember(id, object, None);
    }

    /// Keeps an object that a caller has looked at, and the kernel's decision about rights of the caller: which of those
    /// asked for are granted. The check began at `at`.
    pub(super) fn remember_rights(
        &self,
        id: &FileId,
        object: Object,
        who: &Identity,
        (asked, granted): (Access, Access),
        at: Instant,
    ) {
        let judgement = self.remembers_looks().then(|| {
            let checked = Checked::new(&object.stat, self.is_local, at);
            Judgement { who: self.actor.judged(who).clone(), asked, granted, checked }
        });
        self.remember(id, object, judgement);
    }

    fn remember(&self, id: &FileId, object: Object, judgement: Option<Judgement>) {
        if self.remembers_looks() {
            self.open_files.keep_object(*id, (object, None), judgement, Room::Make, Instant::now());
        }
    }

    /// Returns a directory to be changed.
    pub(super) fn to_change(&self, id: &FileId) -> Result<ToChange<'_>, FsError> {
        if !self.remembers_looks() {
            return Ok(ToChange::Opened(self.directory(id)?, None));
        }
        if let Some(kept) = self.open_files.directory(id, Instant::now())
            && kept.get().is_some_and(|kept| kept.syncs().is_some())
        {
            return Ok(ToChange::Kept(kept));
        }
        let out = |error: &FsError| *error == FsError::TryLater;
        match self.open_files.opening(out, || self.ids.open_to_sync(id))? {
            Some(object) => Ok(ToChange::Opened(object, Some(Syncs::default()))),
            None => Ok(ToChange::Opened(self.directory(id)?, None)),
        }
    }

    /// Keeps a directory for further changes.
    pub(super) fn keep_to_change(&self, id: &FileId, directory: ToChange<'_>) {
        if let ToChange::Opened(object, syncs @ Some(_)) = directory {
            self.open_files.keep_object(*id, (object, syncs), None, Room::Make, Instant::now());
        }
    }

    /// Looks for the access control list of an object. Returns its length in bytes.
    pub(super) fn access_list(object: &impl AsFd) -> Result<usize, Errno> {
        let path = format!("/proc/self/fd/{}", Self::proc_name(object).to_string_lossy());
        getxattr(path, c"system.posix_acl_access", &mut [0_u8; 0])
    }

    /// Returns an object that a caller has looked at, with its attributes.
    fn looked_at(&self, id: &FileId) -> Option<(Lent<'_, LookedObject>, Statx)> {
        let object = self.open_files.object(id, Instant::now())?;
        let stat = stat(object.get()?).ok()?;
        (stat.stx_nlink > 0).then_some((object, stat))
    }

    pub(super) fn attributes_in_memory(&self, id: &FileId) -> Option<Attributes> {
        self.looked_at(id).map(|(_, stat)| attributes(&stat))
    }

    /// Returns all rights of a caller to an object, by the kernel's decision. Only for a thread that may act as callers.
    pub(super) fn rights(
        &self,
        who: &Identity,
        object: &impl AsFd,
        kind: FileKind,
    ) -> Result<Access, FsError> {
        let name = Self::proc_name(object);
        let _acting = self.actor.act_as(who)?;
        let may = |probe| accessat(&self.proc_fds, &name, probe, AtFlags::EACCESS).is_ok();
        Ok(Access::from_permissions(kind, may(Probe::READ_OK), may(Probe::WRITE_OK), may(Probe::EXEC_OK)))
    }

    pub(super) fn access_in_memory(
        &self,
        who: &Identity,
        id: &FileId,
        wanted: Access,
    ) -> Option<(Access, Attributes)> {
        let (lent, stat) = self.looked_at(id)?;
        let granted = lent.get()?.granted(self.actor.judged(who), wanted, &stat, Instant::now())?;
        Some((granted, attributes(&stat)))
    }

    pub(super) fn lookup_in_memory(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
    ) -> Option<Result<Found, FsError>> {
        let (lent, searched) = self.looked_at(directory)?;
        // Without space, an I/O thread closes what was not used for longest.
        if kind(&searched) != FileKind::Directory || !self.open_files.has_room_to_look() {
            return None;
        }
        let object = lent.get()?;
        let search = Access::LOOKUP;
        // Otherwise an I/O thread finds the answer for this caller.
        object
            .granted(self.actor.judged(who), search, &searched, Instant::now())
            .filter(|granted| *granted == search)?;
        let opened = openat2(object, name.as_bytes(), NAMING, Mode::empty(), WALK | ResolveFlags::CACHED);
        let found = match opened {
            Ok(fd) => Object::new(fd).ok()?,
            Err(Errno::NOENT) => return Some(Err(FsError::NotFound)),
            Err(_) => return None,
        };
        let id = self.ids.id_of(&found, None).ok()?;
        let node = Node { id, attributes: attributes(&found.stat) };
        self.open_files.keep_object(id, (found, None), None, Room::IfFree, Instant::now());
        Some(Ok(Found { node, directory: Some(attributes(&searched)) }))
    }
}
