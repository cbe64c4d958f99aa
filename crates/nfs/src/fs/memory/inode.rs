//! An object of the memory file system: its attributes and its content.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::contents::Contents;
use crate::fs::permission;
use crate::fs::types::{
    Attributes, DeviceNumber, FileKind, FsError, Identity, Name, SetAttributes, SetTime, Timestamp,
};

/// Cookies of `.` and `..`; entries follow.
pub(super) const SELF_COOKIE: u64 = 1;
pub(super) const PARENT_COOKIE: u64 = 2;

/// Entries of a directory, in the order of their creation. A cookie is never reused. So a listing with
/// changes in between neither misses nor repeats an entry that existed all the time.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: u64,
    entries: BTreeMap<u64, (Box<[u8]>, u64)>,
    names: HashMap<Box<[u8]>, u64>,
    last_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        Self { parent, entries: BTreeMap::new(), names: HashMap::new(), last_cookie: PARENT_COOKIE }
    }

    /// Returns the inode number of a name.
    pub(super) fn get(&self, name: Name<'_>) -> Option<u64> {
        let cookie = self.names.get(name.as_bytes())?;
        self.entries.get(cookie).map(|(_, number)| *number)
    }

    /// Adds a new name.
    pub(super) fn insert(&mut self, name: Name<'_>, number: u64) {
        self.last_cookie += 1;
        self.names.insert(name.as_bytes().into(), self.last_cookie);
        self.entries.insert(self.last_cookie, (name.as_bytes().into(), number));
    }

    pub(super) fn remove(&mut self, name: Name<'_>) {
        if let Some(cookie) = self.names.remove(name.as_bytes()) {
            self.entries.remove(&cookie);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns whether this directory has ever issued the cookie.
    pub(super) fn knows(&self, cookie: u64) -> bool {
        cookie <= self.last_cookie
    }

    /// Returns the entries after a cookie: cookie, name, inode number.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        let start = cookie.max(PARENT_COOKIE) + 1;
        self.entries.range(start..).map(|(cookie, (name, number))| (*cookie, &**name, *number))
    }
}

/// Content of an object.
#[derive(Debug)]
pub(super) enum Body {
    File(Contents),
    Directory(Directory),
    Symlink(Bytes),
    Device(FileKind, DeviceNumber),
    Fifo,
    Socket,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    /// Verifier of an exclusive CREATE (RFC 1813 §3.3.8), until attributes are set.
    pub(super) exclusive: Option<[u8; 8]>,
    pub(super) body: Body,
}

/// Returns the time of the server's clock.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

impl Inode {
    pub(super) fn new(number: u64, who: &Identity, mode: u32, body: Body) -> Self {
        let links = if matches!(body, Body::Directory(_)) { 2 } else { 1 };
        let time = now();
        Self {
            number,
            mode: mode & 0o7777,
            uid: who.uid,
            gid: who.gid,
            links,
            accessed: time,
            modified: time,
            changed: time,
            exclusive: None,
            body,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Device(kind, _) => *kind,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
        }
    }

    pub(super) fn attributes(&self) -> Attributes {
        let (size, used) = match &self.body {
            Body::File(contents) => (contents.size(), contents.used()),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Directory(_) => (4096, 0),
            _ => (0, 0),
        };
        let device = if let Body::Device(_, device) = &self.body { *device } else { DeviceNumber::default() };
        Attributes {
            kind: self.kind(),
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            device,
            number: self.number,
            place: None,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// Records a change of the attributes. The time of change advances with every change, however close.
    pub(super) fn touch_changed(&mut self) {
        let mut next = self.changed;
        next.nanoseconds += 1;
        if next.nanoseconds == 1_000_000_000 {
            next = Timestamp { seconds: next.seconds.saturating_add(1), nanoseconds: 0 };
        }
        self.changed = next.max(now());
    }

    /// Records a change of the contents.
    pub(super) fn touch_modified(&mut self) {
        self.touch_changed();
        self.modified = self.changed;
    }

    pub(super) fn directory(&self) -> Result<&Directory, FsError> {
        if let Body::Directory(directory) = &self.body { Ok(directory) } else { Err(FsError::NotDirectory) }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory, FsError> {
        if let Body::Directory(directory) = &mut self.body {
            Ok(directory)
        } else {
            Err(FsError::NotDirectory)
        }
    }

    /// Returns the contents of a regular file.
    pub(super) fn contents(&self) -> Result<&Contents, FsError> {
        match &self.body {
            Body::File(contents) => Ok(contents),
            Body::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::InvalidArgument),
        }
    }

    pub(super) fn contents_mut(&mut self) -> Result<&mut Contents, FsError> {
        match &mut self.body {
            Body::File(contents) => Ok(contents),
            Body::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::InvalidArgument),
        }
    }

    /// Clears the set-id bits after a change of the contents by an unprivileged user.
    pub(super) fn drop_set_id(&mut self, who: &Identity) {
        if who.uid == 0 || !matches!(self.body, Body::File(_)) {
            return;
        }
        self.mode &= !permission::SET_USER_ID;
        // Without the group's right to execute, the bit has another meaning, which only a writer outside the
        // group ends.
        if self.mode & permission::GROUP_EXECUTE != 0 || !who.is_member(self.gid) {
            self.mode &= !permission::SET_GROUP_ID;
        }
    }

    /// Clears the set-id bits after a change of owner or group, whoever makes it.
    fn drop_set_id_of_former_owner(&mut self) {
        if matches!(self.body, Body::Directory(_)) {
            return;
        }
        self.mode &= !permission::SET_USER_ID;
        if self.mode & permission::GROUP_EXECUTE != 0 {
            self.mode &= !permission::SET_GROUP_ID;
        }
    }

    /// Sets all attributes except the size, which the caller has set.
    pub(super) fn set(&mut self, who: &Identity, new: &SetAttributes) {
        if new.uid.is_some() || new.gid.is_some() {
            self.uid = new.uid.unwrap_or(self.uid);
            self.gid = new.gid.unwrap_or(self.gid);
            self.drop_set_id_of_former_owner();
        }
        if let Some(mode) = new.mode {
            self.mode = mode & 0o7777;
            if who.uid != 0 && !who.is_member(self.gid) {
                self.mode &= !permission::SET_GROUP_ID;
            }
        }
        self.touch_changed();
        let changed = self.changed;
        let time = |set: SetTime, old: Timestamp| match set {
            SetTime::Keep => old,
            SetTime::Now => changed,
            SetTime::To(time) => time,
        };
        self.accessed = time(new.accessed, self.accessed);
        self.modified = time(new.modified, self.modified);
    }
}
