//! A file system in memory: for tests, for virtual time, and for measurements of the transport without a
//! disk.
//!
//! A lock guards the tree. It is held during the copy of a payload and never while waiting, so the server
//! calls this file system in place. The space is bounded by [`MemoryOptions`]. Permission bits decide as on a
//! disk. Data cannot become more stable than it is at once. Yet an unstable write is reported as unstable, so
//! that clients use COMMIT.

mod contents;
mod inode;

use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use contents::Contents;
use inode::{Body, Directory, Inode, PARENT_COOKIE, SELF_COOKIE};

use super::permission::{self, Privileges};
use super::types::{
    Access, Attributes, Before, Change, CreateHow, Entry, Extents, FileId, FileKind, Found, FsError,
    Identity, LINK_TARGET_MAX, Linked, Listing, LookupName, NAME_MAX, Name, Node, Outcome, Properties,
    ReadResult, Renamed, SetAttributes, Special, Stability, Statistics, Timestamp, WriteResult,
};
use super::{EntrySink, FileSystem};

const ROOT: u64 = 2;
const LINK_MAX: u32 = 32_000;

/// Limits of a [`MemoryFs`], and the owner of its root.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Most bytes of file data; a write beyond is [`FsError::NoSpace`]. Default 1 GiB.
    pub capacity: u64,
    /// Most objects. Default 1,000,000.
    pub max_files: u64,
    /// Largest file in bytes. Default 2^62.
    pub max_file_size: u64,
    /// Owner of the root directory. Default user and group 0.
    pub owner: Identity,
    /// Permission bits of the root directory. Default 0777.
    pub root_mode: u32,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            max_files: 1_000_000,
            max_file_size: 1 << 62,
            owner: Identity::superuser(),
            root_mode: 0o777,
        }
    }
}

/// Tree of files in memory.
#[derive(Debug)]
pub struct MemoryFs {
    /// Distinguishes the ids of this file system from those of an earlier one.
    instance: u64,
    write_verifier: u64,
    options: MemoryOptions,
    tree: RwLock<Tree>,
}

#[derive(Debug)]
struct Tree {
    inodes: HashMap<u64, Inode>,
    last_number: u64,
    used: u64,
}

impl Tree {
    fn get(&self, number: u64) -> Result<&Inode, FsError> {
        self.inodes.get(&number).ok_or(FsError::Stale)
    }

    fn get_mut(&mut self, number: u64) -> Result<&mut Inode, FsError> {
        self.inodes.get_mut(&number).ok_or(FsError::Stale)
    }

    fn attributes(&self, number: u64) -> Option<Attributes> {
        self.inodes.get(&number).map(Inode::attributes)
    }

    /// Returns the entry of a directory, after a check of the right to look it up.
    fn find(&self, who: &Identity, directory: u64, name: Name<'_>) -> Result<Option<u64>, FsError> {
        let inode = self.get(directory)?;
        let entries = inode.directory()?;
        permission::may_search(&inode.attributes(), who)?;
        Ok(entries.get(name))
    }

    /// Resizes a file within the limits. A refusal changes nothing.
    fn resize(
        &mut self,
        who: &Identity,
        number: u64,
        size: u64,
        options: &MemoryOptions,
    ) -> Result<(), FsError> {
        if size > options.max_file_size {
            return Err(FsError::FileTooLarge);
        }
        let inode = self.inodes.get_mut(&number).ok_or(FsError::Stale)?;
        let contents = inode.contents_mut()?;
        let held = contents.used();
        contents.resize(size);
        self.used -= held - contents.used();
        inode.drop_set_id(who);
        inode.touch_modified();
        Ok(())
    }

    /// Removes a name from an object, and the object with its last name.
    fn unlink(&mut self, number: u64) {
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        inode.links = inode.links.saturating_sub(1);
        inode.touch_changed();
        let gone = inode.links == 0 || matches!(inode.body, Body::Directory(_));
        if gone && let Some(inode) = self.inodes.remove(&number) {
            self.used -= inode.attributes().used;
        }
    }

    /// Returns whether `inner` is `outer` or lies below it.
    fn is_within(&self, inner: u64, outer: u64) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.inodes.get(&at).map(|inode| &inode.body) {
                Some(Body::Directory(directory)) if at != ROOT => at = directory.parent,
                _ => return false,
            }
        }
    }

    /// Adds a new object to a directory. Returns its number.
    fn add(
        &mut self,
        who: &Identity,
        directory: u64,
        name: Name<'_>,
        new: (u32, Body),
        options: &MemoryOptions,
    ) -> Result<u64, FsError> {
        let (mode, body) = new;
        permission::may_change_entries(&self.get(directory)?.attributes(), who)?;
        if self.inodes.len() as u64 >= options.max_files {
            return Err(FsError::NoSpace);
        }
        let is_directory = matches!(body, Body::Directory(_));
        if is_directory && self.get(directory)?.links >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        let number = self.last_number + 1;
        let mut inode = Inode::new(number, who, mode, body);
        let parent = self.get_mut(directory)?;
        // A set-group-id directory passes its group on.
        if parent.mode & permission::SET_GROUP_ID != 0 {
            inode.gid = parent.gid;
            if is_directory {
                inode.mode |= permission::SET_GROUP_ID;
            }
        }
        parent.directory_mut()?.insert(name, number);
        if is_directory {
            parent.links += 1;
        }
        parent.touch_modified();
        self.last_number = number;
        self.inodes.insert(number, inode);
        Ok(number)
    }
}

impl MemoryFs {
    /// Creates an empty file system.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        let root = Inode::new(ROOT, &options.owner, options.root_mode, Body::Directory(Directory::new(ROOT)));
        Self {
            instance: rand::random(),
            write_verifier: rand::random(),
            options,
            tree: RwLock::new(Tree { inodes: HashMap::from([(ROOT, root)]), last_number: ROOT, used: 0 }),
        }
    }

    fn read_tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_tree(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, number: u64) -> FileId {
        let mut bytes = [0; 16];
        let (instance, rest) = bytes.split_at_mut(8);
        instance.copy_from_slice(&self.instance.to_be_bytes());
        rest.copy_from_slice(&number.to_be_bytes());
        FileId::from_array(&bytes)
    }

    fn number(&self, id: &FileId) -> Result<u64, FsError> {
        let bytes: [u8; 16] = id.as_bytes().try_into().map_err(|_| FsError::BadId)?;
        let value = u128::from_be_bytes(bytes);
        if value >> 64 != u128::from(self.instance) {
            return Err(FsError::Stale);
        }
        Ok(u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default())
    }

    fn node(&self, tree: &Tree, number: u64) -> Result<Node, FsError> {
        Ok(Node { id: self.id(number), attributes: tree.get(number)?.attributes() })
    }

    /// Runs `operation` on the tree. Reports the attributes of `id` before and after.
    fn change<T>(
        &self,
        id: &FileId,
        operation: impl FnOnce(&mut Tree, u64) -> Result<T, FsError>,
    ) -> Outcome<T> {
        let number = match self.number(id) {
            Ok(number) => number,
            Err(error) => return Outcome::failed(error),
        };
        let mut tree = self.write_tree();
        let before = tree.attributes(number).as_ref().map(Before::from);
        let result = operation(&mut tree, number);
        Outcome { result, change: Change { before, after: tree.attributes(number) } }
    }

    /// Makes a new object, and sets the attributes that apply to it.
    fn make_node(
        &self,
        tree: &mut Tree,
        who: &Identity,
        place: (u64, Name<'_>),
        new: (u32, Body),
        attributes: &SetAttributes,
    ) -> Result<Node, FsError> {
        let (directory, name) = place;
        if tree.find(who, directory, name)?.is_some() {
            return Err(FsError::Exists);
        }
        let number = tree.add(who, directory, name, new, &self.options)?;
        let inode = tree.get_mut(number)?;
        let rest = SetAttributes { mode: None, size: None, ..*attributes };
        let allowed = permission::may_set(&inode.attributes(), who, Privileges::of(who), &rest, || Ok(true));
        let sized = match (allowed, attributes.size) {
            (Ok(()), Some(size)) if matches!(inode.body, Body::File(_)) => {
                tree.resize(who, number, size, &self.options)
            }
            (result, _) => result,
        };
        if let Err(error) = sized {
            // A failed creation leaves nothing behind.
            let is_directory = tree.get(number)?.kind() == FileKind::Directory;
            let parent = tree.get_mut(directory)?;
            parent.directory_mut()?.remove(name);
            parent.links -= u32::from(is_directory);
            tree.unlink(number);
            return Err(error);
        }
        if !rest.is_empty() {
            tree.get_mut(number)?.set(who, &rest);
        }
        self.node(tree, number)
    }

    fn do_rename(
        tree: &mut Tree,
        who: &Identity,
        (from, from_name): (u64, Name<'_>),
        (to, to_name): (u64, Name<'_>),
    ) -> Result<(), FsError> {
        let source = tree.find(who, from, from_name)?.ok_or(FsError::NotFound)?;
        let target = tree.find(who, to, to_name)?;
        // RFC 1813 §3.3.14: for two names of one object, rename does nothing.
        if target == Some(source) {
            return Ok(());
        }
        let moved = tree.get(source)?.attributes();
        permission::may_remove(&tree.get(from)?.attributes(), &moved, who)?;
        permission::may_change_entries(&tree.get(to)?.attributes(), who)?;
        let is_directory = moved.kind == FileKind::Directory;
        if is_directory && tree.is_within(to, source) {
            return Err(FsError::InvalidArgument);
        }
        if let Some(target) = target {
            let replaced = tree.get(target)?;
            permission::may_remove(&tree.get(to)?.attributes(), &replaced.attributes(), who)?;
            match (is_directory, &replaced.body) {
                (true, Body::Directory(directory)) if !directory.is_empty() => return Err(FsError::NotEmpty),
                (true, Body::Directory(_)) => tree.get_mut(to)?.links -= 1,
                (true, _) => return Err(FsError::NotDirectory),
                (false, Body::Directory(_)) => return Err(FsError::IsDirectory),
                (false, _) => {}
            }
            tree.get_mut(to)?.directory_mut()?.remove(to_name);
            tree.unlink(target);
        }
        let old = tree.get_mut(from)?;
        old.directory_mut()?.remove(from_name);
        old.links -= u32::from(is_directory);
        old.touch_modified();
        let new = tree.get_mut(to)?;
        new.directory_mut()?.insert(to_name, source);
        new.links += u32::from(is_directory);
        new.touch_modified();
        let inode = tree.get_mut(source)?;
        inode.touch_changed();
        if let Body::Directory(directory) = &mut inode.body {
            directory.parent = to;
        }
        Ok(())
    }
}

impl FileSystem for MemoryFs {
    fn may_block(&self) -> bool {
        false
    }

    fn root(&self) -> FileId {
        self.id(ROOT)
    }

    fn properties(&self) -> Result<Properties, FsError> {
        Ok(Properties {
            max_file_size: self.options.max_file_size,
            time_delta: Timestamp { seconds: 0, nanoseconds: 1 },
            hard_links: true,
            symbolic_links: true,
            link_max: LINK_MAX,
            name_max: u32::try_from(NAME_MAX).unwrap_or(u32::MAX),
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
    }

    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError> {
        let number = self.number(id)?;
        let tree = self.read_tree();
        tree.get(number)?;
        let free_bytes = self.options.capacity.saturating_sub(tree.used);
        let free_files = self.options.max_files.saturating_sub(tree.inodes.len() as u64);
        Ok(Statistics {
            total_bytes: self.options.capacity,
            free_bytes,
            available_bytes: free_bytes,
            total_files: self.options.max_files,
            free_files,
            available_files: free_files,
        })
    }

    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError> {
        let number = self.number(id)?;
        Ok(self.read_tree().get(number)?.attributes())
    }

    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError> {
        let attributes = self.attributes(id)?;
        Ok((permission::granted(&attributes, who).intersection(wanted), attributes))
    }

    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError> {
        let number = self.number(directory)?;
        let tree = self.read_tree();
        let inode = tree.get(number)?;
        let entries = inode.directory()?;
        permission::may_search(&inode.attributes(), who)?;
        let found = match name {
            LookupName::SelfEntry => number,
            LookupName::Parent => entries.parent,
            LookupName::Entry(name) => entries.get(name).ok_or(FsError::NotFound)?,
        };
        Ok(Found { node: self.node(&tree, found)?, directory: Some(inode.attributes()) })
    }

    fn read_link(
        &self,
        _who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError> {
        let number = self.number(id)?;
        let tree = self.read_tree();
        let inode = tree.get(number)?;
        match &inode.body {
            Body::Symlink(text) => {
                target.get_mut(..text.len()).ok_or(FsError::ServerFault)?.copy_from_slice(text);
                Ok((text.len(), inode.attributes()))
            }
            _ => Err(FsError::InvalidArgument),
        }
    }

    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        let number = self.number(id)?;
        let tree = self.read_tree();
        let inode = tree.get(number)?;
        let contents = inode.contents()?;
        let attributes = inode.attributes();
        if !permission::may_read(&attributes, who) {
            return Err(FsError::AccessDenied);
        }
        let length = contents.read(offset, buffer);
        let end_of_file = offset.saturating_add(length as u64) >= contents.size();
        Ok(ReadResult { length, end_of_file, attributes })
    }

    fn extents(&self, who: &Identity, id: &FileId, offset: u64, limit: usize) -> Result<Extents, FsError> {
        let number = self.number(id)?;
        let tree = self.read_tree();
        let inode = tree.get(number)?;
        let contents = inode.contents()?;
        if !permission::may_read(&inode.attributes(), who) {
            return Err(FsError::AccessDenied);
        }
        let (ranges, complete) = contents.extents(offset, limit);
        Ok(Extents { ranges, complete })
    }

    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[IoSlice<'_>],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        let length: usize = data.iter().map(|slice| slice.len()).sum();
        let outcome = self.change(id, |tree, number| {
            let inode = tree.get(number)?;
            let contents = inode.contents()?;
            if !permission::may_write(&inode.attributes(), who) {
                return Err(FsError::AccessDenied);
            }
            // RFC 1813 §3.3.7: no data fits anywhere.
            let end = if length == 0 { Some(0) } else { offset.checked_add(length as u64) };
            if end.is_none_or(|end| end > self.options.max_file_size) {
                return Err(FsError::FileTooLarge);
            }
            let held = contents.used();
            if tree.used + contents.growth(offset, length) > self.options.capacity {
                return Err(FsError::NoSpace);
            }
            let inode = tree.get_mut(number)?;
            let contents = inode.contents_mut()?;
            let mut at = offset;
            for slice in data {
                contents.write(at, slice);
                at += slice.len() as u64;
            }
            let grown = contents.used() - held;
            // RFC 1813 §3.3.7: a WRITE without data changes no time.
            if length > 0 {
                inode.drop_set_id(who);
                inode.touch_modified();
            }
            tree.used += grown;
            Ok(WriteResult { length, committed: stability, verifier: self.write_verifier })
        });
        written();
        outcome
    }

    fn commit(&self, who: &Identity, id: &FileId, _offset: u64, _count: u32) -> Outcome<u64> {
        self.change(id, |tree, number| {
            let inode = tree.get(number)?;
            inode.contents()?;
            if !permission::may_write(&inode.attributes(), who) {
                return Err(FsError::AccessDenied);
            }
            Ok(self.write_verifier)
        })
    }

    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        self.change(id, |tree, number| {
            let inode = tree.get(number)?;
            let attributes = inode.attributes();
            // RFC 1813 §3.3.2: the guard is compared before any change.
            if guard.is_some_and(|guard| guard != attributes.changed) {
                return Err(FsError::NotSynchronized);
            }
            permission::may_set(&attributes, who, Privileges::of(who), new, || {
                Ok(permission::may_write(&attributes, who))
            })?;
            if let Some(size) = new.size {
                inode.contents().map_err(|_| FsError::InvalidArgument)?;
                tree.resize(who, number, size, &self.options)?;
            }
            let inode = tree.get_mut(number)?;
            inode.set(who, new);
            inode.exclusive = None;
            Ok(())
        })
    }

    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node> {
        self.change(directory, |tree, number| {
            let body = Body::File(Contents::default());
            match how {
                CreateHow::Guarded(attributes) => {
                    let mode = attributes.mode.unwrap_or(0o644);
                    self.make_node(tree, who, (number, name), (mode, body), attributes)
                }
                CreateHow::Unchecked(attributes) => {
                    let Some(existing) = tree.find(who, number, name)? else {
                        let mode = attributes.mode.unwrap_or(0o644);
                        return self.make_node(tree, who, (number, name), (mode, body), attributes);
                    };
                    let inode = tree.get(existing)?;
                    if inode.contents().is_err() {
                        return Err(FsError::Exists);
                    }
                    if let Some(size) = attributes.size {
                        if !permission::may_write(&inode.attributes(), who) {
                            return Err(FsError::AccessDenied);
                        }
                        tree.resize(who, existing, size, &self.options)?;
                    }
                    self.node(tree, existing)
                }
                CreateHow::Exclusive(verifier) => {
                    if let Some(existing) = tree.find(who, number, name)? {
                        // RFC 1813 §3.3.8: an equal verifier means a repetition of the call that made the
                        // file.
                        if tree.get(existing)?.exclusive == Some(*verifier) {
                            return self.node(tree, existing);
                        }
                        return Err(FsError::Exists);
                    }
                    let made = tree.add(who, number, name, (0o600, body), &self.options)?;
                    tree.get_mut(made)?.exclusive = Some(*verifier);
                    self.node(tree, made)
                }
            }
        })
    }

    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node> {
        self.change(directory, |tree, number| {
            let mode = attributes.mode.unwrap_or(0o755);
            let device = |kind, device| {
                if who.uid == 0 { Ok(Body::Device(kind, device)) } else { Err(FsError::NotPermitted) }
            };
            let new = match what {
                Special::Directory => (mode, Body::Directory(Directory::new(number))),
                Special::Symlink([]) => return Err(FsError::InvalidArgument),
                Special::Symlink(target) if target.len() > LINK_TARGET_MAX => {
                    return Err(FsError::NameTooLong);
                }
                Special::Symlink(target) => (0o777, Body::Symlink(Bytes::copy_from_slice(target))),
                Special::Fifo => (mode, Body::Fifo),
                Special::Socket => (mode, Body::Socket),
                Special::BlockDevice(numbers) => (mode, device(FileKind::BlockDevice, *numbers)?),
                Special::CharacterDevice(numbers) => (mode, device(FileKind::CharacterDevice, *numbers)?),
            };
            self.make_node(tree, who, (number, name), new, attributes)
        })
    }

    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.change(directory, |tree, number| {
            let victim = tree.find(who, number, name)?.ok_or(FsError::NotFound)?;
            let inode = tree.get(victim)?;
            if inode.kind() == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            permission::may_remove(&tree.get(number)?.attributes(), &inode.attributes(), who)?;
            let parent = tree.get_mut(number)?;
            parent.directory_mut()?.remove(name);
            parent.touch_modified();
            tree.unlink(victim);
            Ok(())
        })
    }

    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.change(directory, |tree, number| {
            let victim = tree.find(who, number, name)?.ok_or(FsError::NotFound)?;
            let inode = tree.get(victim)?;
            let entries = inode.directory()?;
            permission::may_remove(&tree.get(number)?.attributes(), &inode.attributes(), who)?;
            if !entries.is_empty() {
                return Err(FsError::NotEmpty);
            }
            let parent = tree.get_mut(number)?;
            parent.directory_mut()?.remove(name);
            parent.links -= 1;
            parent.touch_modified();
            tree.unlink(victim);
            Ok(())
        })
    }

    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed {
        let (from, to) = match (self.number(from), self.number(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => {
                return Renamed { result: Err(error), from: Change::default(), to: Change::default() };
            }
        };
        let mut tree = self.write_tree();
        let before = [from, to].map(|number| tree.attributes(number).as_ref().map(Before::from));
        let result = Self::do_rename(&mut tree, who, (from, from_name), (to, to_name));
        let [before_from, before_to] = before;
        Renamed {
            result,
            from: Change { before: before_from, after: tree.attributes(from) },
            to: Change { before: before_to, after: tree.attributes(to) },
        }
    }

    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked {
        let target = self.number(file);
        let outcome = self.change(directory, |tree, number| {
            let target = target?;
            if tree.get(target)?.kind() == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            if tree.find(who, number, name)?.is_some() {
                return Err(FsError::Exists);
            }
            permission::may_change_entries(&tree.get(number)?.attributes(), who)?;
            let inode = tree.get_mut(target)?;
            if inode.links >= LINK_MAX {
                return Err(FsError::TooManyLinks);
            }
            inode.links += 1;
            inode.touch_changed();
            let parent = tree.get_mut(number)?;
            parent.directory_mut()?.insert(name, target);
            parent.touch_modified();
            Ok(())
        });
        Linked { result: outcome.result, file: self.attributes(file).ok(), directory: outcome.change }
    }

    fn read_directory(
        &self,
        who: &Identity,
        directory: &FileId,
        cookie: u64,
        verifier: u64,
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError> {
        let number = self.number(directory)?;
        let tree = self.read_tree();
        let inode = tree.get(number)?;
        let entries = inode.directory()?;
        let attributes = inode.attributes();
        if !permission::granted(&attributes, who).contains(Access::READ) {
            return Err(FsError::AccessDenied);
        }
        // RFC 1813 §3.3.16: cookies are always valid here, so the verifier is always 0.
        if verifier != 0 || !entries.knows(cookie) {
            return Err(FsError::BadCookie);
        }
        let may_search = permission::may_search(&attributes, who).is_ok();
        let dots =
            [(SELF_COOKIE, b".".as_slice(), number), (PARENT_COOKIE, b"..".as_slice(), entries.parent)];
        let all = dots.into_iter().filter(|(dot, ..)| *dot > cookie).chain(entries.after(cookie));
        for (cookie, name, number) in all {
            let node = if nodes && may_search { self.node(&tree, number).ok() } else { None };
            if let ControlFlow::Break(()) = sink(&Entry { name, number, cookie, node }) {
                return Ok(Listing { end: false, verifier: 0, attributes });
            }
        }
        Ok(Listing { end: true, verifier: 0, attributes })
    }

    fn flush(&self) -> Result<(), FsError> {
        Ok(())
    }
}
