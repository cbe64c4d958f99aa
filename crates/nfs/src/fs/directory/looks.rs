//! Looks at objects whose attributes the kernel has in memory.
//!
//! The first GETATTR, ACCESS or LOOKUP of an object opens it, which may wait for a disk. Afterwards a descriptor that
//! grants no rights stays open for a time (`open_files`). On a local file system its attributes then need one system
//! call that never waits. So the thread of a connection makes it, and no I/O thread has to be woken. Nothing is
//! remembered but the descriptor: attributes, rights and names are always the kernel's.
//!
//! * *Rights.* The kernel decides without waiting if it has the object's access control list in memory. So an I/O thread
//!   reads the list before, at the first ACCESS.
//! * *Names.* `RESOLVE_CACHED` makes a walk fail that would wait (Linux 5.12 or later).
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
use super::open_files::{Lent, LookedObject, Room};
use crate::fs::types::{Access, Attributes, FileId, FileKind, Found, FsError, Identity, Name, Node};

impl DirectoryFs {
    /// Returns whether a look at an object that is open needs no wait.
    fn remembers_looks(&self) -> bool {
        self.is_local && self.has_kernel_handles()
    }

    /// Keeps an object that a caller has looked at.
    pub(super) fn remember_look(&self, id: &FileId, object: Object) {
        if self.remembers_looks() {
            self.open_files.keep_object(*id, object.fd, false, Room::Make, Instant::now());
        }
    }

    /// Keeps an object that a caller has looked at, so that the kernel need not wait to decide about rights to it.
    pub(super) fn remember_look_at_rights(&self, id: &FileId, object: Object) {
        if self.remembers_looks() {
            let loaded = Self::load_access_list(&object);
            self.open_files.keep_object(*id, object.fd, loaded, Room::Make, Instant::now());
        }
    }

    /// Looks for the access control list of an object. Returns its length in bytes.
    pub(super) fn access_list(object: &impl AsFd) -> Result<usize, Errno> {
        let path = format!("/proc/self/fd/{}", Self::proc_name(object).to_string_lossy());
        getxattr(path, c"system.posix_acl_access", &mut [0_u8; 0])
    }

    /// Has the kernel read the access control list of an object, and returns whether it has. The kernel keeps the list
    /// while the object is open. It reads none to decide about the owner, or where the group has no rights.
    pub(super) fn load_access_list(object: &impl AsFd) -> bool {
        // Most objects have none, and some file systems have no lists.
        matches!(Self::access_list(object), Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP))
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

    /// Returns all rights of a caller to an object.
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
        let object = lent.get().filter(|object| object.has_access_list())?;
        let granted = self.rights(who, object, kind(&stat)).ok()?;
        Some((granted.intersection(wanted), attributes(&stat)))
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
        let opened = {
            let _acting = self.actor.act_as(who).ok()?;
            openat2(lent.get()?, name.as_bytes(), NAMING, Mode::empty(), WALK | ResolveFlags::CACHED)
        };
        let found = match opened {
            Ok(fd) => Object::new(fd).ok()?,
            Err(Errno::NOENT) => return Some(Err(FsError::NotFound)),
            Err(_) => return None,
        };
        let id = self.ids.id_of(&found, None).ok()?;
        let node = Node { id, attributes: attributes(&found.stat) };
        self.open_files.keep_object(id, found.fd, false, Room::IfFree, Instant::now());
        Some(Ok(Found { node, directory: Some(attributes(&searched)) }))
    }
}
