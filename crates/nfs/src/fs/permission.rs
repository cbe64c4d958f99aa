//! Permission bits: the rights of a caller to an object with an owner, a group and a mode.
//!
//! They serve file systems without a kernel underneath that decides. All functions are pure, on attributes
//! and identity.

use super::types::{Access, Attributes, FileKind, FsError, Identity, SetAttributes, SetTime};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const ANY_EXECUTE: u32 = 0o111;
const STICKY: u32 = 0o1000;
pub(super) const SET_USER_ID: u32 = 0o4000;
pub(super) const SET_GROUP_ID: u32 = 0o2000;
pub(super) const GROUP_EXECUTE: u32 = 0o010;

/// Returns the three bits of the caller's class.
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

/// Returns the rights by the permission bits. User 0 has all, except that of executing a file that no user
/// may execute.
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

/// Returns whether the data of a file may be read.
///
/// RFC 1813 §4.4: the owner always may, because the file was opened when the bits allowed it. A user who may
/// execute the file may read it too, because loading a program is a read.
pub(super) fn may_read(attributes: &Attributes, who: &Identity) -> bool {
    let rights = granted(attributes, who);
    who.uid == attributes.uid || rights.contains(Access::READ) || rights.contains(Access::EXECUTE)
}

/// Returns whether the data of a file may be written; the owner always may (RFC 1813 §4.4).
pub(super) fn may_write(attributes: &Attributes, who: &Identity) -> bool {
    who.uid == attributes.uid || granted(attributes, who).contains(Access::MODIFY)
}

/// Checks that names may be looked up in a directory.
pub(super) fn may_search(attributes: &Attributes, who: &Identity) -> Result<(), FsError> {
    if granted(attributes, who).contains(Access::LOOKUP) { Ok(()) } else { Err(FsError::AccessDenied) }
}

/// Checks that entries of a directory may be added or removed.
pub(super) fn may_change_entries(attributes: &Attributes, who: &Identity) -> Result<(), FsError> {
    if granted(attributes, who).contains(Access::MODIFY.union(Access::LOOKUP)) {
        Ok(())
    } else {
        Err(FsError::AccessDenied)
    }
}

/// Checks that an entry may be removed from a directory. In a sticky directory only the owner of either may
/// do so.
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
    /// Whether the caller may give objects to any user and group.
    pub(super) give: bool,
    /// Whether the caller may act as the owner of any object.
    pub(super) own: bool,
}

impl Privileges {
    /// Returns the privileges of a caller: user 0 has all, other users none.
    pub(super) fn of(who: &Identity) -> Self {
        Self { give: who.uid == 0, own: who.uid == 0 }
    }
}

/// Checks that the caller may set all of these attributes, by the rules of the Linux kernel, before any is
/// changed. `may_write` is called at most once.
///
/// A size, and a time from the server's clock, need only the right to write, as with knfsd; `open(O_TRUNC)`
/// sets both. A time chosen by the client requires the owner.
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
    // chown_restricted: users cannot give files away; an owner may choose among the own groups.
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
