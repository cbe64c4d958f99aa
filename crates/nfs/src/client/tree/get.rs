//! Copies from the server to the local file system.

mod short;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Statx;

use self::short::Short;
use super::compare::{Comparison, Here, Linked, Name, Seen, Walked};
use super::identity::Identity;
use super::local::{LocalDir, OWNER_ALL, Sink, Spot, Wanted, blocking, make_link, make_symlink, spot_of};
use super::{Change, CopyEvent, CopyOptions, CopyReport, Copying, Kept, Owned, Tasks, article, below, child};
use crate::client::slash::goes_into;
use crate::client::walk::lossy;
use crate::client::{Client, DirItem, Error, File, Node, ReadStream};
use crate::wire::{Attributes, FileHandle, FileType};

/// Identity of a file at the server: file system and number.
pub(super) type FileKey = (u64, u64);

/// Entries of a local directory while its source is walked.
pub(super) type LocalHere = Here<std::ffi::OsString, Statx>;

/// Directory to copy.
pub(super) struct Directory {
    pub(super) handle: FileHandle,
    /// Number of the directory at the server.
    pub(super) fileid: u64,
    pub(super) kept: Kept,
    pub(super) local: Arc<LocalDir>,
    pub(super) depth: usize,
    /// The local directory before the copy, if a sync found one.
    pub(super) there: Option<Seen>,
    /// A directory above this one, further away with growing depth. It reveals a directory that contains
    /// itself without a list of all (Brent's algorithm).
    pub(super) anchor: Option<FileHandle>,
}

impl Directory {
    fn anchor_below(&self) -> Option<FileHandle> {
        let renewed = self.depth == 0 || self.depth.is_power_of_two();
        if renewed { Some(self.handle) } else { self.anchor }
    }
}

/// Destination of a file.
#[derive(Clone)]
pub(super) enum Goal {
    /// A path that the caller named.
    Named(PathBuf),
    /// A name in a tree.
    Tree(Spot),
}

impl Goal {
    fn path(&self) -> PathBuf {
        match self {
            Self::Named(path) => path.clone(),
            Self::Tree(spot) => spot.path(),
        }
    }
}

/// A further name of a file found before.
pub(super) struct Further {
    pub(super) key: FileKey,
    pub(super) first: Spot,
    pub(super) spot: Spot,
    pub(super) node: Node,
    pub(super) name: Name,
}

/// Client, options and report of a copy, as its tasks need them. Clones share them.
#[derive(Clone)]
pub(super) struct Getting {
    pub(super) client: Client,
    pub(super) copying: Copying,
    /// The source, for messages.
    pub(super) source: Arc<str>,
    /// Number of names of a local directory that do not belong to the source.
    pub(super) own: usize,
    /// Complete files that have several names.
    complete: Arc<Mutex<HashSet<FileKey>>>,
    /// Set in a sync.
    pub(super) sync: Option<Arc<Comparison>>,
}

/// Copy in progress.
pub(super) struct Get {
    pub(super) with: Getting,
    pub(super) tasks: Tasks,
    /// Destination of the first name, for files with several names.
    pub(super) first: HashMap<FileKey, Spot>,
    pub(super) further: Vec<Further>,
    /// The next batch of short files.
    short: Vec<Short>,
    /// In a sync: files of several names.
    pub(super) linked: Linked,
    /// In a sync: entries that the source lacks, with the paths of their directories below the top.
    pub(super) extra: Vec<(Arc<LocalDir>, Vec<std::ffi::OsString>, Vec<u8>)>,
    /// Directories whose attributes are set last.
    finished: Vec<(Arc<LocalDir>, Kept)>,
    /// Directory in which the copy begins.
    pub(super) top: Option<Arc<LocalDir>>,
    /// In a sync: the source directory.
    pub(super) source: Option<FileHandle>,
    /// In a sync: the target directory.
    pub(super) target: Option<Arc<LocalDir>>,
}

impl Client {
    /// Copies the file or tree `source` of the export to the local `target`; see [`CopyOptions`].
    ///
    /// # Errors
    /// The copy cannot start, or the server is lost. The report has single files that could not be copied.
    pub async fn get(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<Path>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let node =
            if options.recursive { self.lookup_link(source).await? } else { self.lookup(source).await? };
        // The root of the export has no name.
        let path = if source.is_empty() { "/".to_owned() } else { lossy(source) };
        if node.attributes.is_directory() && !options.recursive {
            return Err(Error::IsDirectory { path });
        }
        let name = source.split(|&byte| byte == b'/').rfind(|part| !part.is_empty());
        let name = name.filter(|name| !matches!(*name, b"." | b".."));
        let local = target_of(target, name, node.attributes.is_directory()).await?;
        let mut get = Get::new(self, Copying::new(options), path, None);
        if node.attributes.is_directory() {
            let (dir, own) = root_of(local, name.is_none()).await?;
            get.with.own = own;
            get.tree(Directory::first(node, dir, None)).await?;
        } else {
            get.named(local, node).await?;
        }
        get.complete().await
    }
}

impl Directory {
    /// Returns the directory in which a copy begins.
    pub(super) fn first(node: Node, local: Arc<LocalDir>, there: Option<Seen>) -> Self {
        let Node { handle, attributes } = node;
        let kept = Kept::from(&attributes);
        Self { handle, fileid: attributes.fileid, kept, local, depth: 0, there, anchor: None }
    }
}

impl Getting {
    pub(super) fn path_of(&self, dir: &LocalDir) -> String {
        below(&self.source, dir.names().into_iter().skip(self.own))
    }

    pub(super) fn path_in(&self, dir: &LocalDir, name: &OsStr) -> String {
        child(&self.path_of(dir), &name.to_string_lossy())
    }

    /// Returns the path of a directory below the top of the tree, for the filter.
    pub(super) fn prefix_of(&self, dir: &LocalDir) -> Vec<u8> {
        dir.names().into_iter().skip(self.own).map(OsStr::as_bytes).collect::<Vec<_>>().join(&b'/')
    }

    fn is_complete(&self, key: FileKey) -> bool {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    /// Records that a file of several names is complete under its first name.
    pub(super) fn completes(&self, attributes: &Attributes) {
        if attributes.nlink > 1 {
            let key = (attributes.fsid, attributes.fileid);
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        }
    }

    /// Copies a file. If it changed since an earlier copy left a part of it, the copy begins anew.
    pub(super) async fn file(self, path: String, goal: Goal, node: Node) -> Result<(), Error> {
        match self.attempt(&path, goal.clone(), node, false).await? {
            None => Ok(()),
            Some(node) => self.attempt(&path, goal, node, true).await.map(|_| ()),
        }
    }

    /// Copies a file; `again` tells that this is the second attempt. Returns the file as it is now if a copy that
    /// was continued has parts of several states. It has then left nothing.
    async fn attempt(&self, path: &str, goal: Goal, node: Node, again: bool) -> Result<Option<Node>, Error> {
        let Node { handle, attributes } = node;
        let kept = Kept::from(&attributes);
        let partial = self.copying.options.partial;
        let wanted = Wanted { source: attributes, copying: self.copying.clone(), partial, again };
        let to = goal.clone();
        let place = || goal.path();
        let mut sink = blocking(place, move || match to {
            Goal::Named(path) => Sink::named(&path, &wanted),
            Goal::Tree(spot) => Sink::in_tree(&spot, &wanted),
        })
        .await?;
        let file = self.client.file(handle, path);
        let resumed = sink.resumed();
        let mut end = resumed;
        self.copying.resumed(resumed);
        if sink.takes_holes() && attributes.used < attributes.size {
            (sink, end) = self.sparse(&file, end..attributes.size, &goal, sink).await?;
        }
        let rest = file.read_all(end, attributes.size);
        (sink, end) = self.pieces(rest, &goal, sink, end).await?;
        if let Some(now) = self.changed(&file, &attributes).await? {
            self.copying.changed_meanwhile(path);
            if resumed > 0 && !again {
                let discard = move || {
                    sink.discard();
                    Ok(())
                };
                blocking(place, discard).await?;
                return Ok(Some(Node { handle, attributes: now }));
            }
        }
        let keep = self.copying.kept(kept);
        let owned = blocking(place, move || sink.finish(end, keep)).await?;
        self.done(path, &attributes, owned);
        Ok(None)
    }

    /// Counts a file that is complete.
    pub(super) fn done(&self, path: &str, attributes: &Attributes, owned: Owned) {
        self.copying.owner(owned);
        self.completes(attributes);
        self.copying.file_done(path);
    }

    /// Returns the attributes of a file after it was read, if it changed since it was found. Answers to READ have
    /// them; without any, the server is asked.
    pub(super) async fn changed(&self, file: &File, found: &Attributes) -> Result<Option<Attributes>, Error> {
        let now = match file.seen() {
            Some(now) => now,
            None if found.size == 0 => return Ok(None),
            None => file.attributes().await?,
        };
        Ok(((now.size, now.mtime) != (found.size, found.mtime)).then_some(now))
    }

    /// Copies the parts of a file that have data, as far as the server reports them. Returns the end of the
    /// copy.
    async fn sparse(
        &self,
        file: &File,
        range: std::ops::Range<u64>,
        goal: &Goal,
        mut sink: Sink,
    ) -> Result<(Sink, u64), Error> {
        let std::ops::Range { start: mut end, end: size } = range;
        while end < size {
            let Some(found) = self.client.extents(file.handle(), end, size).await else { break };
            let behind = found.ranges.last().map_or(end, |range| range.end);
            let stream = file.read_ranges(found.ranges);
            (sink, end) = self.pieces(stream, goal, sink, end).await?;
            // The file is shorter now: reading the rest will reveal that.
            if end < behind {
                break;
            }
            if found.complete {
                self.copying.hole(size - end);
                end = size;
            }
        }
        Ok((sink, end))
    }

    /// Writes the pieces of a stream. Returns the end of the last piece, or `end` if there is none.
    async fn pieces(
        &self,
        mut stream: ReadStream,
        goal: &Goal,
        mut sink: Sink,
        mut end: u64,
    ) -> Result<(Sink, u64), Error> {
        while let Some((offset, data)) = stream.next_at().await? {
            if offset > end {
                self.copying.hole(offset - end);
            }
            let length = data.len();
            sink = blocking(|| goal.path(), move || sink.write(offset, &data).map(|()| sink)).await?;
            end = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
            self.copying.moved(length);
        }
        Ok((sink, end))
    }

    pub(super) async fn symlink(self, path: String, spot: Spot, node: Node) -> Result<(), Error> {
        let target =
            self.client.read_link_of(node.handle).await.map_err(|error| error.at(path.as_bytes()))?;
        let keep = self.copying.kept(Kept::from(&node.attributes));
        let (place, copying) = (spot.clone(), self.copying.clone());
        let make = move || make_symlink(&target, &place, keep, &copying);
        let owned = blocking(|| spot.path(), make).await?;
        self.copying.owner(owned);
        self.copying.done(&path, |report| &mut report.symlinks);
        Ok(())
    }
}

impl Get {
    /// Prepares a copy of the source with this path.
    pub(super) fn new(
        client: &Client,
        copying: Copying,
        source: String,
        sync: Option<Arc<Comparison>>,
    ) -> Self {
        let with = Getting {
            client: client.clone(),
            copying: copying.clone(),
            source: source.into(),
            own: 0,
            complete: Arc::default(),
            sync,
        };
        Self {
            with,
            tasks: Tasks::new(copying),
            first: HashMap::new(),
            further: Vec::new(),
            short: Vec::new(),
            linked: Linked::default(),
            extra: Vec::new(),
            finished: Vec::new(),
            top: None,
            source: None,
            target: None,
        }
    }

    /// Waits for the end of all files, and completes the copy after them.
    pub(super) async fn complete(mut self) -> Result<CopyReport, Error> {
        self.start_short().await?;
        let copying = self.with.copying.clone();
        copying.tell(CopyEvent::Walked);
        self.tasks.finish().await?;
        self.finish().await?;
        Ok(copying.report())
    }

    /// Copies an object that the caller named and that is not a directory.
    async fn named(&mut self, local: PathBuf, node: Node) -> Result<(), Error> {
        let with = self.with.clone();
        let path = with.source.to_string();
        match node.attributes.file_type {
            FileType::Regular => {
                with.copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
                let task = Box::pin(with.file(path.clone(), Goal::Named(local), node));
                self.tasks.start(path, task).await
            }
            FileType::Symlink => {
                let place = local.clone();
                let spot = blocking(|| local, move || spot_of(&place)).await?;
                self.tasks.start(path.clone(), Box::pin(with.symlink(path, spot, node))).await
            }
            other => with.copying.failed(&path.clone(), Error::NotRegular { path, what: article(other) }),
        }
    }

    pub(super) async fn tree(&mut self, first: Directory) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let result = self.directory(&directory, &mut waiting).await;
            let Directory { local, kept, .. } = directory;
            let path = self.with.path_of(&local);
            match result {
                Ok(Walked { new, finish }) => {
                    if (new && !self.with.copying.is_dry()) || self.with.sync.is_none() {
                        self.with.copying.done(&path, |report| &mut report.directories);
                    }
                    if finish {
                        self.finished.push((local, kept));
                    }
                }
                Err(error) => self.with.copying.failed(&path, error)?,
            }
            super::bounded(waiting.len())?;
        }
        Ok(())
    }

    /// Makes the directory and starts the copy of its content.
    async fn directory(
        &mut self,
        directory: &Directory,
        waiting: &mut Vec<Directory>,
    ) -> Result<Walked, Error> {
        let Directory { handle, fileid, local, depth, anchor, .. } = directory;
        let limit = self.with.copying.options.max_depth;
        if *depth > limit {
            return Err(Error::TooDeep { path: self.with.path_of(local), limit });
        }
        if *anchor == Some(*handle) {
            return Err(Error::DirectoryLoop { path: self.with.path_of(local) });
        }
        if self.is_top(*handle, *fileid).await? {
            return Err(Error::IntoItself { path: self.with.path_of(local) });
        }
        let new = self.make(directory).await?;
        if self.top.is_none() && !(new && self.with.copying.is_dry()) {
            self.top = Some(Arc::clone(local));
            if self.is_top(*handle, *fileid).await? {
                return Err(Error::IntoItself { path: self.with.path_of(local) });
            }
        }
        let mut here = self.here(directory, new).await?;
        let mut reader = self.with.client.dir_reader(*handle, self.with.path_of(local));
        while let Some(items) = reader.next().await? {
            for item in items {
                let name = OsStr::from_bytes(item.name.as_bytes()).to_owned();
                let there = here.entries.remove(&name);
                match self.with.client.node_of(*handle, item).await {
                    Ok(node) => {
                        let spot = Spot { dir: Arc::clone(local), name };
                        waiting.extend(self.object(directory, spot, node, there, &mut here).await?);
                    }
                    Err(error) => {
                        let path = self.with.path_in(local, &name);
                        self.with.copying.failed(&path, error.at(path.as_bytes()))?;
                    }
                }
            }
        }
        Ok(self.walked(directory, here, new))
    }

    /// Makes the directory, or with a dry run finds out whether it would. Returns whether it is new.
    async fn make(&self, directory: &Directory) -> Result<bool, Error> {
        let Directory { kept, local, there, .. } = directory;
        let copying = &self.with.copying;
        if self.with.sync.is_some() && there.is_none() {
            copying.change(Change::MakeDirectory, &format!("{}/", self.with.path_of(local)));
        }
        if copying.is_dry() {
            return Ok(there.is_none());
        }
        let (dir, mode, private) = (Arc::clone(local), kept.mode, copying.options.preserve);
        blocking(|| local.path(), move || dir.make(mode, private)).await
    }

    /// Returns what is left to do for a directory after the walk of its entries.
    fn walked(&mut self, directory: &Directory, here: LocalHere, new: bool) -> Walked {
        if self.with.sync.is_some() {
            return self.synced_directory(directory, here, new);
        }
        // A new directory of this copy may have more permissions than it should keep.
        let lent = new && directory.kept.mode & OWNER_ALL != OWNER_ALL;
        Walked { new, finish: self.with.copying.options.preserve || lent }
    }

    /// Returns whether a directory at the server is the local directory in which the copy began. Its time of
    /// change advances during the copy, so the function reads it before and after the call.
    async fn is_top(&self, handle: FileHandle, fileid: u64) -> Result<bool, Error> {
        let Some(top) = &self.top else { return Ok(false) };
        let look = || {
            let dir = Arc::clone(top);
            blocking(|| top.path(), move || dir.stat().map(|stat| Identity::from(&stat)))
        };
        let before = look().await?;
        if before.number() != fileid {
            return Ok(false);
        }
        let there = Identity::from(&self.with.client.attributes(handle).await?);
        Ok(there.is_between(&before, &look().await?))
    }

    /// Starts the copy of an entry; returns a directory to the caller. In a sync, `there` has its name locally.
    async fn object(
        &mut self,
        above: &Directory,
        spot: Spot,
        node: Node,
        there: Option<Statx>,
        here: &mut LocalHere,
    ) -> Result<Option<Directory>, Error> {
        let Node { handle, attributes } = node;
        if here.excludes(&self.with.copying, spot.name.as_bytes(), attributes.is_directory()) {
            self.leave_excluded(spot.name, there, here);
            return Ok(None);
        }
        let there = match self.with.sync {
            Some(_) => match self.synced(&spot, &node, there, here).await? {
                Some(there) => there,
                None => return Ok(None),
            },
            None => None,
        };
        let with = &self.with;
        if attributes.is_directory() {
            return Ok(Some(Directory {
                handle,
                fileid: attributes.fileid,
                kept: Kept::from(&attributes),
                local: spot.dir.entry(&spot.name),
                depth: above.depth.saturating_add(1),
                there,
                anchor: above.anchor_below(),
            }));
        }
        let path = with.path_in(&spot.dir, &spot.name);
        match attributes.file_type {
            FileType::Regular => {
                let key = (attributes.fsid, attributes.fileid);
                if with.copying.options.preserve && attributes.nlink > 1 {
                    if let Some(first) = self.first.get(&key) {
                        let first = first.clone();
                        self.further.push(Further { key, first, spot, node, name: Name::New });
                        return Ok(None);
                    }
                    self.first.insert(key, spot.clone());
                }
                with.copying.tell(CopyEvent::Found { path: &path, bytes: attributes.size });
                match Short::of(with, path, spot, node) {
                    Ok(short) => self.push_short(short).await?,
                    Err((path, spot)) => {
                        let task = Box::pin(with.clone().file(path.clone(), Goal::Tree(spot), node));
                        self.tasks.start(path, task).await?;
                    }
                }
            }
            FileType::Symlink => {
                let task = Box::pin(with.clone().symlink(path.clone(), spot, node));
                self.tasks.start(path, task).await?;
            }
            other => with.copying.skipped(&path, article(other)),
        }
        Ok(None)
    }

    /// Makes the further names of files.
    async fn link(&self, further: Vec<Further>) -> Result<(), Error> {
        let with = &self.with;
        for Further { key, first, spot, node, name } in further {
            let path = with.path_in(&spot.dir, &spot.name);
            if with.copying.is_dry() {
                with.copying.name_compared(&path, with.is_complete(key));
                continue;
            }
            let (place, copying) = (spot.clone(), with.copying.clone());
            // If the first name failed, or the file system has no hard links, the content is copied for each
            // name.
            let linked = if with.is_complete(key) {
                blocking(|| spot.path(), move || make_link(&first, &place, &copying)).await.ok()
            } else {
                None
            };
            if name == Name::Compared && linked != Some(false) {
                with.copying.change(Change::HardLink, &path);
            }
            match linked {
                Some(false) if with.sync.is_some() => with.copying.unchanged(&path),
                Some(_) => with.copying.done(&path, |report| &mut report.hard_links),
                None => {}
            }
            if linked.is_some() {
                continue;
            }
            with.copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
            if let Err(error) = with.clone().file(path.clone(), Goal::Tree(spot), node).await {
                with.copying.failed(&path, error)?;
            }
        }
        Ok(())
    }

    /// Completes the copy after all files: makes their further names, removes what the source lacks, and sets the
    /// attributes of directories.
    async fn finish(mut self) -> Result<(), Error> {
        let further = std::mem::take(&mut self.further);
        self.link(further).await?;
        self.remove_extra().await?;
        let Self { with, finished, .. } = self;
        // The deepest directory comes first: a directory may not be writable once its mode is set.
        let (preserve, copying) = (with.copying.options.preserve, with.copying.clone());
        let failures = blocking(PathBuf::new, move || {
            let mut failures = Vec::new();
            for (dir, kept) in finished.into_iter().rev() {
                let set =
                    if preserve { dir.finish(kept) } else { dir.restrict(kept.mode).map(|()| Owned::ALL) };
                match set {
                    Ok(owned) => copying.owner(owned),
                    Err(error) => failures.push((dir, error)),
                }
            }
            Ok(failures)
        });
        let failures = failures.await?;
        for (dir, source) in failures {
            with.copying.failed(&with.path_of(&dir), Error::Local { path: dir.path(), source })?;
        }
        Ok(())
    }
}

impl Client {
    /// Returns an entry with the attributes that the listing omitted.
    pub(super) async fn node_of(&self, dir: FileHandle, item: DirItem) -> Result<Node, Error> {
        match item {
            DirItem { handle: Some(handle), attributes: Some(attributes), .. } => {
                Ok(Node { handle, attributes })
            }
            DirItem { name, .. } => self.lookup_in(dir, name).await,
        }
    }
}

/// Returns the destination for a source of this name: in `target` if that is a directory, else `target`
/// itself, for a `directory` or another object.
async fn target_of(target: &Path, name: Option<&[u8]>, directory: bool) -> Result<PathBuf, Error> {
    let owned = target.to_owned();
    let into = blocking(|| target.to_owned(), move || goes_into(&owned, directory)).await?;
    Ok(match name {
        Some(name) if into => target.join(OsStr::from_bytes(name)),
        _ => target.to_owned(),
    })
}

/// Returns the destination directory of a tree, and the number of its names that are not the source's. With
/// `itself` the caller named the directory, perhaps by a link.
async fn root_of(path: PathBuf, itself: bool) -> Result<(Arc<LocalDir>, usize), Error> {
    let local = path.clone();
    blocking(
        || path,
        move || {
            if local.file_name().is_none() || (itself && local.is_dir()) {
                return Ok((LocalDir::named(&local)?, 0));
            }
            let spot = spot_of(&local)?;
            Ok((spot.dir.entry(&spot.name), 1))
        },
    )
    .await
}
