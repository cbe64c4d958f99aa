//! Permission bits: what a caller may do to an object that has an owner, a group and a mode.
//!
//! For file systems that have no kernel underneath to decide this. Pure functions of attributes and identity.

use super::types::{Access, Attributes, FileKind, FsError, Identity, SetAttributes, SetTime};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const ANY_EXECUTE: u32 = 0o111;
const STICKY: u32 = 0o1000;
pub(super) const SET_USER_ID: u32 = 0o4000;
pub(super) const SET_GROUP_ID: u32 = 0o2000;
pub(super) const GROUP_EXECUTE: u32 = 0o010;

/// The three bits of the class that the caller falls into.
fn class_bits(attributes: &Attributes, who: &Identity) -> u32 {
    let shift = if who.uid == attributes.uid {
        6
    } else if who.is_member(attributes.gid) {
        3
    } else {
        0
    };
    (attributes.mode >> shift) & 0o7
}

/// Rights by the permission bits; user 0 may everything but execute what nobody may execute.
pub(super) fn granted(attributes: &Attributes, who: &Identity) -> Access {
    let directory = attributes.kind == FileKind::Directory;
    let (read, write, execute) = if who.uid == 0 {
        (true, true, directory || attributes.mode & ANY_EXECUTE != 0)
    } else {
        let bits = class_bits(attributes, who);
        (bits & READ != 0, bits & WRITE != 0, bits & EXECUTE != 0)
    };
    Access::from_permissions(attributes.kind, read, write, execute)
}

/// Whether the data of a file may be read.
///
/// RFC 1813 §4.4: the owner always may (the file was opened when the bits allowed it), and so may who may
/// execute the file, since paging in a program is a read.
pub(super) fn may_read(attributes: &Attributes, who: &Identity) -> bool {
    let rights = granted(attributes, who);
    who.uid == attributes.uid || rights.contains(Access::READ) || rights.contains(Access::EXECUTE)
}

/// Whether the data of a file may be written; the owner always may (RFC 1813 §4.4).
pub(super) fn may_write(attributes: &Attributes, who: &Identity) -> bool {
    who.uid == attributes.uid || granted(attributes, who).contains(Access::MODIFY)
}

/// Whether names may be looked up in a directory.
pub(super) fn may_search(attributes: &Attributes, who: &Identity) -> Result<(), FsError> {
    if granted(attributes, who).contains(Access::LOOKUP) { Ok(()) } else { Err(FsError::AccessDenied) }
}

/// Whether entries of a directory may be added or removed.
pub(super) fn may_change_entries(attributes: &Attributes, who: &Identity) -> Result<(), FsError> {
    if granted(attributes, who).contains(Access::MODIFY.union(Access::LOOKUP)) {
        Ok(())
    } else {
        Err(FsError::AccessDenied)
    }
}

/// Whether an entry may be taken out of a directory: in a sticky one only by the owner of either.
pub(super) fn may_remove(directory: &Attributes, entry: &Attributes, who: &Identity) -> Result<(), FsError> {
    may_change_entries(directory, who)?;
    let sticky = directory.mode & STICKY != 0;
    if sticky && who.uid != 0 && who.uid != entry.uid && who.uid != directory.uid {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// Rights to objects of other users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Privileges {
    /// Give objects to any user and group.
    pub(super) give: bool,
    /// Act as the owner of any object.
    pub(super) own: bool,
}

impl Privileges {
    /// User 0 may everything, others nothing of it.
    pub(super) fn of(who: &Identity) -> Self {
        Self { give: who.uid == 0, own: who.uid == 0 }
    }
}

/// Whether all of these attributes may be set by the caller: the rules of the Linux kernel, in one place and before
/// anything is changed. `may_write` is asked at most once.
///
/// A size, and a time that the server's clock gives, need the right to write only (as at knfsd): `open(O_TRUNC)` asks
/// for both. A time of the client's own choice needs the owner.
pub(super) fn may_set(
    attributes: &Attributes,
    who: &Identity,
    privileges: Privileges,
    new: &SetAttributes,
    may_write: impl FnOnce() -> Result<bool, FsError>,
) -> Result<(), FsError> {
    let is_owner = who.uid == attributes.uid;
    let owner = is_owner || privileges.own;
    if new.mode.is_some() && !owner {
        return Err(FsError::NotPermitted);
    }
    // chown_restricted: nobody gives files away; an owner may choose among the own groups.
    if new.uid.is_some_and(|uid| !(privileges.give || is_owner && uid == attributes.uid)) {
        return Err(FsError::NotPermitted);
    }
    let among_own = |gid| is_owner && (gid == attributes.gid || who.is_member(gid));
    if new.gid.is_some_and(|gid| !(privileges.give || among_own(gid))) {
        return Err(FsError::NotPermitted);
    }
    let is = |test: fn(SetTime) -> bool| test(new.accessed) || test(new.modified);
    if is(|time| matches!(time, SetTime::To(_))) && !owner {
        return Err(FsError::NotPermitted);
    }
    let touched = is(|time| time == SetTime::Now) && !owner;
    if (touched || new.size.is_some()) && !may_write()? {
        return Err(FsError::AccessDenied);
    }
    Ok(())
}
