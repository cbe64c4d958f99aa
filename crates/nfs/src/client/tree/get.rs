//! Copies from the server to the local file system.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_xdr::Payload;

use super::local::{
    Identity, LocalDir, OWNER_ALL, SHORT, Sink, Spot, Wanted, blocking, make_link, make_symlink, spot_of,
};
use super::{Copied, CopyEvent, CopyOptions, CopyReport, Copying, Kept, Owned, Tasks, below, child};
use crate::client::slash::goes_into;
use crate::client::walk::lossy;
use crate::client::{Calls, Client, DirItem, Error, File, Node, ReadStream};
use crate::wire::{FileHandle, FileType};

/// Most short files in one batch: one visit to a blocking thread writes them all.
const BATCH: usize = 16;
/// Batches among which the files in progress are divided: while one is written, others are read.
const BATCHES: usize = 4;

/// Identity of a file at the server: file system and number.
type FileKey = (u64, u64);

/// Directory to copy.
struct Directory {
    handle: FileHandle,
    /// Number of the directory at the server.
    fileid: u64,
    kept: Kept,
    local: Arc<LocalDir>,
    depth: usize,
    /// A directory above this one, further away with growing depth. It reveals a directory that contains
    /// itself without a list of all (Brent's algorithm).
    anchor: Option<FileHandle>,
}

impl Directory {
    fn anchor_below(&self) -> Option<FileHandle> {
        let renewed = self.depth == 0 || self.depth.is_power_of_two();
        if renewed { Some(self.handle) } else { self.anchor }
    }
}

/// Destination of a file.
#[derive(Clone)]
enum Goal {
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
struct Further {
    key: FileKey,
    first: Spot,
    spot: Spot,
    node: Node,
}

/// A short file of a tree, without holes.
struct Short {
    path: String,
    spot: Spot,
    node: Node,
    /// Length, at most [`SHORT`].
    size: u32,
}

/// Client, options and report of a copy, as its tasks need them. Clones share them.
#[derive(Clone)]
struct Getting {
    client: Client,
    copying: Copying,
    /// The source, for messages.
    source: Arc<str>,
    /// Number of names of a local directory that do not belong to the source.
    own: usize,
    /// Complete files that have several names.
    complete: Arc<Mutex<HashSet<FileKey>>>,
}

/// Copy in progress.
struct Get {
    with: Getting,
    tasks: Tasks,
    /// Destination of the first name, for files with several names.
    first: HashMap<FileKey, Spot>,
    further: Vec<Further>,
    /// The next batch.
    short: Vec<Short>,
    /// Directories whose attributes are set last.
    finished: Vec<(Arc<LocalDir>, Kept)>,
    /// Directory in which the copy begins.
    top: Option<Arc<LocalDir>>,
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
        let copying = Copying::new(options);
        let mut with = Getting {
            client: self.clone(),
            copying: copying.clone(),
            source: path.into(),
            own: 0,
            complete: Arc::default(),
        };
        let tree = if node.attributes.is_directory() {
            let (dir, own) = root_of(local.clone(), name.is_none()).await?;
            with.own = own;
            Some(dir)
        } else {
            None
        };
        let mut get = Get {
            with,
            tasks: Tasks::new(copying.clone()),
            first: HashMap::new(),
            further: Vec::new(),
            short: Vec::new(),
            finished: Vec::new(),
            top: None,
        };
        match tree {
            Some(dir) => {
                let kept = Kept::from(&node.attributes);
                let Node { handle, attributes } = node;
                let fileid = attributes.fileid;
                let first = Directory { handle, fileid, kept, local: dir, depth: 0, anchor: None };
                get.tree(first).await?;
                get.start_short().await?;
            }
            None => get.named(local, node).await?,
        }
        get.tasks.finish().await?;
        get.finish().await?;
        Ok(copying.report())
    }
}

impl Getting {
    fn path_of(&self, dir: &LocalDir) -> String {
        below(&self.source, dir.names().into_iter().skip(self.own))
    }

    fn path_in(&self, dir: &LocalDir, name: &OsStr) -> String {
        child(&self.path_of(dir), &name.to_string_lossy())
    }

    fn is_complete(&self, key: FileKey) -> bool {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    fn kept(&self, kept: Kept) -> Option<Kept> {
        self.copying.options.preserve.then_some(kept)
    }

    async fn file(self, path: String, goal: Goal, node: Node) -> Result<(), Error> {
        let Node { handle, attributes } = node;
        let kept = Kept::from(&attributes);
        let wanted = Wanted { source: attributes, copying: self.copying.clone() };
        let to = goal.clone();
        let place = || goal.path();
        let mut sink = blocking(place, move || match to {
            Goal::Named(path) => Sink::named(&path, &wanted),
            Goal::Tree(spot) => Sink::in_tree(&spot, &wanted),
        })
        .await?;
        let file = self.client.file(handle, &path);
        let mut end = 0;
        if sink.takes_holes() && attributes.used < attributes.size {
            (sink, end) = self.sparse(&file, attributes.size, &goal, sink).await?;
        }
        let rest = file.read_all(end, attributes.size);
        (sink, end) = self.pieces(rest, &goal, sink, end).await?;
        let keep = self.kept(kept);
        let owned = blocking(place, move || sink.finish(end, keep)).await?;
        self.complete(&path, &node, owned);
        Ok(())
    }

    fn complete(&self, path: &str, node: &Node, owned: Owned) {
        self.copying.owner(owned);
        if node.attributes.nlink > 1 {
            let key = (node.attributes.fsid, node.attributes.fileid);
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        }
        self.copying.done(path, |report| &mut report.files);
    }

    /// Copies short files: requests them all, and writes them in one visit to a blocking thread.
    async fn short(self, batch: Vec<Short>) -> Vec<Copied> {
        let mut reads: Calls<Option<Payload>> = Calls::new();
        for short in &batch {
            let file = self.client.file(short.node.handle, &short.path);
            let size = short.size;
            reads.push(Box::pin(async move { file.read_whole(size).await }));
        }
        let mut results = Vec::with_capacity(batch.len());
        let mut read = Vec::with_capacity(batch.len());
        for short in batch {
            match reads.next().await {
                Some(Ok(data)) => read.push((short, data)),
                Some(Err(error)) => results.push((short.path, Err(error))),
                None => {}
            }
        }
        let (copying, preserve) = (self.copying.clone(), self.copying.options.preserve);
        let write = move |(short, data): (Short, Option<Payload>)| {
            let written = data.map(|data| {
                let attributes = short.node.attributes;
                let mut sink =
                    Sink::in_tree(&short.spot, &Wanted { source: attributes, copying: copying.clone() })?;
                sink.write(0, &data)?;
                sink.finish(short.size.into(), preserve.then(|| Kept::from(&attributes)))
            });
            (short, written)
        };
        let written = blocking(PathBuf::new, move || Ok(read.into_iter().map(write).collect::<Vec<_>>()));
        let written = match written.await {
            Ok(written) => written,
            // The runtime ends.
            Err(error) => {
                results.push((self.source.to_string(), Err(error)));
                return results;
            }
        };
        for (Short { path, spot, node, size }, written) in written {
            let result = match written {
                Some(Ok(owned)) => {
                    self.copying.counted(size.into());
                    self.complete(&path, &node, owned);
                    Ok(())
                }
                Some(Err(source)) => Err(Error::Local { path: spot.path(), source }),
                // The file has another length by now.
                None => self.clone().file(path.clone(), Goal::Tree(spot), node).await,
            };
            results.push((path, result));
        }
        results
    }

    /// Copies the parts of a file that have data, as far as the server reports them. Returns the end of the
    /// copy.
    async fn sparse(
        &self,
        file: &File,
        size: u64,
        goal: &Goal,
        mut sink: Sink,
    ) -> Result<(Sink, u64), Error> {
        let mut end = 0;
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

    async fn symlink(self, path: String, spot: Spot, node: Node) -> Result<(), Error> {
        let target =
            self.client.read_link_of(node.handle).await.map_err(|error| error.at(path.as_bytes()))?;
        let keep = self.kept(Kept::from(&node.attributes));
        let (place, copying) = (spot.clone(), self.copying.clone());
        let make = move || make_symlink(&target, &place, keep, &copying);
        let owned = blocking(|| spot.path(), make).await?;
        self.copying.owner(owned);
        self.copying.done(&path, |report| &mut report.symlinks);
        Ok(())
    }
}

impl Get {
    /// Copies an object that the caller named and that is not a directory.
    async fn named(&mut self, local: PathBuf, node: Node) -> Result<(), Error> {
        let with = self.with.clone();
        let path = with.source.to_string();
        match node.attributes.file_type {
            FileType::Regular => {
                with.copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
                let task = with.file(path.clone(), Goal::Named(local), node);
                self.tasks.start(path, task).await
            }
            FileType::Symlink => {
                let place = local.clone();
                let spot = blocking(|| local, move || spot_of(&place)).await?;
                self.tasks.start(path.clone(), with.symlink(path, spot, node)).await
            }
            other => with.copying.failed(&path.clone(), Error::NotRegular { path, what: article(other) }),
        }
    }

    async fn tree(&mut self, first: Directory) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let result = self.directory(&directory, &mut waiting).await;
            let Directory { local, kept, .. } = directory;
            let path = self.with.path_of(&local);
            match result {
                Ok(new) => {
                    self.with.copying.done(&path, |report| &mut report.directories);
                    // A new directory of this copy may have more permissions than it should keep.
                    if self.with.copying.options.preserve || (new && kept.mode & OWNER_ALL != OWNER_ALL) {
                        self.finished.push((local, kept));
                    }
                }
                Err(error) => self.with.copying.failed(&path, error)?,
            }
        }
        Ok(())
    }

    /// Makes the directory and starts the copy of its content. Returns whether the directory is new.
    async fn directory(
        &mut self,
        directory: &Directory,
        waiting: &mut Vec<Directory>,
    ) -> Result<bool, Error> {
        let Directory { handle, fileid, kept, local, depth, anchor } = directory;
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
        let (dir, mode, private) = (Arc::clone(local), kept.mode, self.with.copying.options.preserve);
        let new = blocking(|| local.path(), move || dir.make(mode, private)).await?;
        if self.top.is_none() {
            self.top = Some(Arc::clone(local));
            if self.is_top(*handle, *fileid).await? {
                return Err(Error::IntoItself { path: self.with.path_of(local) });
            }
        }
        let mut reader = self.with.client.dir_reader(*handle, self.with.path_of(local));
        while let Some(items) = reader.next().await? {
            for item in items {
                let name = OsStr::from_bytes(item.name.as_bytes()).to_owned();
                match self.with.client.node_of(*handle, item).await {
                    Ok(node) => {
                        let spot = Spot { dir: Arc::clone(local), name };
                        waiting.extend(self.object(directory, spot, node).await?);
                    }
                    Err(error) => {
                        let path = self.with.path_in(local, &name);
                        self.with.copying.failed(&path, error.at(path.as_bytes()))?;
                    }
                }
            }
        }
        Ok(new)
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

    /// Starts the copy of an entry; returns a directory to the caller.
    async fn object(
        &mut self,
        above: &Directory,
        spot: Spot,
        node: Node,
    ) -> Result<Option<Directory>, Error> {
        let Node { handle, attributes } = node;
        let with = &self.with;
        if attributes.is_directory() {
            return Ok(Some(Directory {
                handle,
                fileid: attributes.fileid,
                kept: Kept::from(&attributes),
                local: spot.dir.entry(&spot.name),
                depth: above.depth.saturating_add(1),
                anchor: above.anchor_below(),
            }));
        }
        let path = with.path_in(&spot.dir, &spot.name);
        match attributes.file_type {
            FileType::Regular => {
                let key = (attributes.fsid, attributes.fileid);
                if with.copying.options.preserve && attributes.nlink > 1 {
                    if let Some(first) = self.first.get(&key) {
                        self.further.push(Further { key, first: first.clone(), spot, node });
                        return Ok(None);
                    }
                    self.first.insert(key, spot.clone());
                }
                with.copying.tell(CopyEvent::Found { path: &path, bytes: attributes.size });
                let whole =
                    attributes.size > 0 && attributes.size <= SHORT && attributes.used >= attributes.size;
                match u32::try_from(attributes.size) {
                    Ok(size) if whole && size <= with.client.read_size() => {
                        self.short.push(Short { path, spot, node, size });
                        if self.short.len() >= (self.tasks.limit() / BATCHES).clamp(1, BATCH) {
                            self.start_short().await?;
                        }
                    }
                    _ => {
                        let task = with.clone().file(path.clone(), Goal::Tree(spot), node);
                        self.tasks.start(path, task).await?;
                    }
                }
            }
            FileType::Symlink => {
                let task = with.clone().symlink(path.clone(), spot, node);
                self.tasks.start(path, task).await?;
            }
            other => with.copying.skipped(&path, article(other)),
        }
        Ok(None)
    }

    /// Starts the copy of the next batch of short files.
    async fn start_short(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.short);
        if batch.is_empty() {
            return Ok(());
        }
        let files = batch.len();
        self.tasks.start_batch(files, self.with.clone().short(batch)).await
    }

    /// Completes the copy after all files: makes their further names, then sets the attributes of
    /// directories.
    async fn finish(self) -> Result<(), Error> {
        let Self { with, further, finished, .. } = self;
        for Further { key, first, spot, node } in further {
            let path = with.path_in(&spot.dir, &spot.name);
            let (place, copying) = (spot.clone(), with.copying.clone());
            // If the first name failed, or the file system has no hard links, the content is copied for each
            // name.
            let linked = with.is_complete(key)
                && blocking(|| spot.path(), move || make_link(&first, &place, &copying)).await.is_ok();
            if linked {
                with.copying.done(&path, |report| &mut report.hard_links);
                continue;
            }
            with.copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
            if let Err(error) = with.clone().file(path.clone(), Goal::Tree(spot), node).await {
                with.copying.failed(&path, error)?;
            }
        }
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
    async fn node_of(&self, dir: FileHandle, item: DirItem) -> Result<Node, Error> {
        match item {
            DirItem { handle: Some(handle), attributes: Some(attributes), .. } => {
                Ok(Node { handle, attributes })
            }
            DirItem { name, .. } => self.lookup_in(dir, name).await,
        }
    }
}

/// Returns the name of an object type with an article, for messages.
pub(super) fn article(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::Socket => "a socket",
        FileType::Fifo => "a named pipe",
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
