//! Copies from a place at a server to another one, at the same server or another. The data passes through this client.
//!
//! The source is read as [`Client::get`] reads it, and the target is written as [`Client::put`] writes it: under
//! temporary names, or in place.
//!
//! *Source and target.* The two clients can have exports of one server, or of servers that share their files. File
//! numbers and times reveal that. Then a file is not copied onto itself, and a directory not into itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::identity::Identity;
use super::local::OWNER_ALL;
use super::put::{Made, Target, There};
use super::remove::Removal;
use super::upload::{Upload, Wanted};
use super::{CopyEvent, CopyOptions, CopyReport, Copying, Kept, Owned, Tasks, child};
use crate::client::walk::{Place, lossy, shortened};
use crate::client::{Client, Error, File, Node, ReadStream, WriteStream};
use crate::wire::{FileHandle, FileName, FileType, SetAttributes};

/// Identity of a file at the source: file system and number.
type FileKey = (u64, u64);

/// Way from the source to a directory below it. Directories share it, so that a deep tree needs little memory.
struct Trail {
    above: Option<Arc<Self>>,
    name: FileName,
}

impl Drop for Trail {
    /// Drops the way name by name: a server may list directories deeper than the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut trail) = above.and_then(Arc::into_inner) {
            above = trail.above.take();
        }
    }
}

/// Returns the names of a way, from the source down.
fn names(trail: Option<&Arc<Trail>>) -> Vec<&[u8]> {
    let way = std::iter::successors(trail, |trail| trail.above.as_ref());
    let mut names: Vec<&[u8]> = way.map(|trail| trail.name.as_bytes()).collect();
    names.reverse();
    names
}

/// Directory to copy.
struct Directory {
    node: Node,
    target: Target,
    trail: Option<Arc<Trail>>,
    depth: usize,
    /// A directory above this one, further away with growing depth (Brent's algorithm).
    anchor: Option<FileHandle>,
}

/// A file to copy.
#[derive(Clone)]
struct Job {
    path: String,
    node: Node,
    place: Place,
    /// Way of the file's directory; `None` also for the source itself.
    trail: Option<Arc<Trail>>,
    /// Whether the caller named the file.
    named: bool,
    /// Whether its directory is new.
    new: bool,
}

/// Clients, options and report of a copy, as its tasks need them. Clones share them.
#[derive(Clone)]
struct Crossing {
    from: Client,
    to: Client,
    copying: Copying,
    /// The source, for messages.
    source: Arc<str>,
    /// Path of the copy of the source.
    target: Arc<[u8]>,
    /// Complete files that have several names.
    complete: Arc<Mutex<HashMap<FileKey, FileHandle>>>,
}

/// Copy in progress.
struct Across {
    with: Crossing,
    tasks: Tasks,
    /// Files with several names found so far.
    met: HashSet<FileKey>,
    further: Vec<Job>,
    /// Directories whose attributes are set last.
    finished: Vec<(FileHandle, Kept, Option<Arc<Trail>>)>,
    /// Directory at the target in which the copy begins.
    top: Option<Made>,
}

impl Client {
    /// Copies the file or tree `source` of this export to `target` in the export of the client `to`; see
    /// [`CopyOptions`].
    ///
    /// # Errors
    /// The copy cannot start, or a server is lost. The report has single files that could not be copied.
    pub async fn copy_to(
        &self,
        source: impl AsRef<[u8]>,
        to: &Self,
        target: impl AsRef<[u8]>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let node =
            if options.recursive { self.lookup_link(source).await? } else { self.lookup(source).await? };
        let path = if source.is_empty() { "/".to_owned() } else { lossy(source) };
        let directory = node.attributes.is_directory();
        if directory && !options.recursive {
            return Err(Error::IsDirectory { path });
        }
        let name = source.split(|&byte| byte == b'/').rfind(|part| !part.is_empty());
        let name = name.filter(|name| !matches!(*name, b"." | b".."));
        let (place, target) = to.put_target(name, target, directory).await?;
        let copying = Copying::new(options);
        let with = Crossing {
            from: self.clone(),
            to: to.clone(),
            copying: copying.clone(),
            source: path.clone().into(),
            target: target.into(),
            complete: Arc::default(),
        };
        let mut across = Across {
            with,
            tasks: Tasks::new(copying.clone()),
            met: HashSet::new(),
            further: Vec::new(),
            finished: Vec::new(),
            top: None,
        };
        match place {
            target if directory => {
                across.tree(Directory { node, target, trail: None, depth: 0, anchor: None }).await?;
            }
            Target::Place(place) => {
                across.object(Job { path, node, place, trail: None, named: true, new: false }).await?;
            }
            Target::Root | Target::Found(_) => return Err(Error::NoName { path }),
        }
        copying.tell(CopyEvent::Walked);
        across.tasks.finish().await?;
        across.finish().await?;
        Ok(copying.report())
    }
}

impl Crossing {
    /// Returns the path of a directory of the source, for messages.
    fn path_of(&self, trail: Option<&Arc<Trail>>) -> String {
        let mut path = self.source.to_string();
        for name in names(trail) {
            path = child(&path, &String::from_utf8_lossy(name));
        }
        shortened(path)
    }

    /// Returns the path of a file at the target.
    fn target_of(&self, job: &Job) -> Vec<u8> {
        let mut path = self.target.to_vec();
        if !job.named {
            for name in names(job.trail.as_ref()).into_iter().chain([job.place.name.as_bytes()]) {
                path.push(b'/');
                path.extend_from_slice(name);
            }
        }
        path
    }

    /// Copies a file.
    async fn file(self, job: Job) -> Result<(), Error> {
        let path = job.path.as_str();
        let named = |error: Error| error.at(path.as_bytes());
        let attributes = job.node.attributes;
        let mut place = job.place.clone();
        let there = if job.new { There::Nothing } else { There::Unknown };
        let mut existing = there.look(&self.to, &place).await.map_err(named)?;
        if existing.is_some_and(|node| node.attributes.file_type == FileType::Symlink) {
            (place, existing) = self.to.place_followed(&self.target_of(&job)).await?;
        }
        let kept = Kept::from(&attributes);
        let keep = self.copying.kept(kept);
        let wanted = Wanted {
            mode: keep.is_none().then(|| self.copying.masked(kept)),
            with_other_names: job.named,
            source: Some(Identity::from(&attributes)),
            copying: &self.copying,
            path,
            part: None,
        };
        if let Some(node) = &existing {
            self.differs(&job.node, node, path)?;
            wanted.differs(node)?;
        }
        self.copying.claim(&place, path)?;
        let mut upload = Upload::open(&self.to, place, existing, &wanted).await.map_err(named)?;
        let file = self.from.file(job.node.handle, path);
        if let Err(error) = self.content(&file, attributes.size, attributes.used, &mut upload).await {
            return Err(upload.discard(error).await);
        }
        if file.seen().is_some_and(|now| (now.size, now.mtime) != (attributes.size, attributes.mtime)) {
            self.copying.changed_meanwhile(path);
        }
        let handle = upload.file.handle();
        let owned = upload.finish(keep).await.map_err(named)?;
        self.copying.owner(owned);
        if attributes.nlink > 1 {
            let key = (attributes.fsid, attributes.fileid);
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).insert(key, handle);
        }
        self.copying.file_done(path);
        Ok(())
    }

    /// Checks that an existing object of the target is not the source. Within one export, the numbers tell.
    fn differs(&self, source: &Node, existing: &Node, path: &str) -> Result<(), Error> {
        let key = |node: &Node| (node.attributes.fsid, node.attributes.fileid);
        if source.handle == existing.handle && key(source) == key(existing) {
            return Err(Error::SameFile { path: path.to_owned() });
        }
        Ok(())
    }

    /// Copies the content of a file, of `size` bytes, which uses `used` bytes of storage.
    async fn content(&self, file: &File, size: u64, used: u64, upload: &mut Upload) -> Result<(), Error> {
        let mut stream = upload.file.write_stream(0);
        let mut end = 0;
        // Where the server reports holes, they are not read.
        while used < size && end < size {
            let Some(found) = self.from.extents(file.handle(), end, size).await else { break };
            let behind = found.ranges.last().map_or(end, |range| range.end);
            end = self.pieces(file.read_ranges(found.ranges), &mut stream, upload, end).await?;
            // The file is shorter now: reading the rest will reveal that.
            if end < behind {
                break;
            }
            if found.complete {
                stream.finish().await?;
                return self.hole_at_the_end(upload, end, size).await;
            }
        }
        self.pieces(file.read_all(end, size), &mut stream, upload, end).await?;
        stream.finish().await
    }

    /// Writes the pieces that are read. Returns the end of the last one, or `end` if there is none.
    async fn pieces(
        &self,
        mut pieces: ReadStream,
        stream: &mut WriteStream,
        upload: &mut Upload,
        mut end: u64,
    ) -> Result<u64, Error> {
        while let Some((offset, data)) = pieces.next_at().await? {
            upload.begin().await?;
            if offset > end {
                stream.seek(offset).await?;
                self.copying.hole(offset - end);
            }
            let length = data.len();
            for slice in data.iter() {
                stream.write(slice.clone()).await?;
            }
            end = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
            self.copying.moved(length);
        }
        Ok(end)
    }

    async fn hole_at_the_end(&self, upload: &mut Upload, end: u64, size: u64) -> Result<(), Error> {
        if end < size {
            upload.begin().await?;
            upload.file.set_len(size).await?;
            self.copying.hole(size - end);
        }
        Ok(())
    }

    async fn symlink(self, job: Job) -> Result<(), Error> {
        let Job { path, node, place, .. } = &job;
        let named = |error: Error| error.at(path.as_bytes());
        let target = self.from.read_link_of(node.handle).await.map_err(named)?;
        self.copying.claim(place, path)?;
        let made = self.to.put_symlink(place, target.into(), path, &self.copying, false).await;
        let handle = made.map_err(named)?;
        if let Some(kept) = self.copying.kept(Kept::from(&node.attributes)) {
            // Some servers do not let clients set attributes of links. The link itself exists.
            let owned = self.to.keep(handle, kept, true).await.unwrap_or(Owned::ALL);
            self.copying.owner(owned);
        }
        self.copying.done(path, |report| &mut report.symlinks);
        Ok(())
    }
}

impl Across {
    async fn tree(&mut self, first: Directory) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let kept = Kept::from(&directory.node.attributes);
            let trail = directory.trail.clone();
            // This copy did not make the root of the export, so the root keeps its attributes.
            let ours = matches!(directory.target, Target::Place(_));
            let result = self.directory(directory, &mut waiting).await;
            let path = self.with.path_of(trail.as_ref());
            match result {
                Ok(made) => {
                    self.with.copying.done(&path, |report| &mut report.directories);
                    // A new directory may have more permissions than it should keep.
                    let lent = made.new && self.with.copying.masked(kept) & OWNER_ALL != OWNER_ALL;
                    if ours && (self.with.copying.options.preserve || lent) {
                        self.finished.push((made.handle, kept, trail));
                    }
                }
                Err(error) => self.with.copying.failed(&path, error.at(path.as_bytes()))?,
            }
            super::bounded(waiting.len())?;
        }
        Ok(())
    }

    /// Makes the directory and starts the copy of its content.
    async fn directory(&mut self, directory: Directory, waiting: &mut Vec<Directory>) -> Result<Made, Error> {
        let Directory { node, target, trail, depth, anchor } = directory;
        let path = self.with.path_of(trail.as_ref());
        let limit = self.with.copying.options.max_depth;
        if depth > limit {
            return Err(Error::TooDeep { path, limit });
        }
        if anchor == Some(node.handle) {
            return Err(Error::DirectoryLoop { path });
        }
        if self.is_top(node).await? {
            return Err(Error::IntoItself { path });
        }
        let kept = Kept::from(&node.attributes);
        let copying = &self.with.copying;
        let mode = if copying.options.preserve { 0 } else { copying.masked(kept) };
        let made = self.with.to.put_directory(target, mode | OWNER_ALL).await?;
        if self.top.is_none() {
            self.top = Some(made);
            if self.is_top(node).await? {
                return Err(Error::IntoItself { path });
            }
        }
        let renewed = depth == 0 || depth.is_power_of_two();
        let anchor = if renewed { Some(node.handle) } else { anchor };
        let prefix = names(trail.as_ref()).join(&b'/');
        let mut reader = self.with.from.dir_reader(node.handle, &path);
        while let Some(items) = reader.next().await? {
            for item in items {
                let path = child(&path, &item.name.to_string_lossy());
                let entry = match self.with.from.entry_of(node.handle, &item).await {
                    Ok(Some(entry)) => entry,
                    // It was removed after the server listed it.
                    Ok(None) => continue,
                    Err(error) => {
                        self.with.copying.failed(&path, error.at(path.as_bytes()))?;
                        continue;
                    }
                };
                let (filter, directory) =
                    (&self.with.copying.options.filter, entry.attributes.is_directory());
                if !filter.is_empty()
                    && filter.is_excluded(&Removal::below(&prefix, item.name.as_bytes()), directory)
                {
                    continue;
                }
                let place = Place { dir: made.handle, name: item.name };
                if directory {
                    let name = place.name.clone();
                    let (target, above) = (Target::Place(place), trail.clone());
                    let trail = Some(Arc::new(Trail { above, name }));
                    waiting.push(Directory { node: entry, target, trail, depth: depth + 1, anchor });
                    continue;
                }
                let trail = trail.clone();
                self.object(Job { path, node: entry, place, trail, named: false, new: made.new }).await?;
            }
        }
        Ok(made)
    }

    /// Returns whether a directory of the source is the one at the target in which the copy began. Its time of change
    /// advances during the copy, so the function reads it before and after.
    async fn is_top(&self, node: Node) -> Result<bool, Error> {
        let Some(top) = self.top.filter(|top| top.fileid == node.attributes.fileid) else { return Ok(false) };
        let Crossing { from, to, .. } = &self.with;
        let ask =
            async |client: &Client, handle| Ok::<_, Error>(Identity::from(&client.attributes(handle).await?));
        let before = ask(to, top.handle).await?;
        let here = ask(from, node.handle).await?;
        Ok(here.is_between(&before, &ask(to, top.handle).await?))
    }

    /// Starts the copy of an object other than a directory.
    async fn object(&mut self, job: Job) -> Result<(), Error> {
        let with = self.with.clone();
        let attributes = &job.node.attributes;
        match attributes.file_type {
            FileType::Regular => {
                let key = (attributes.fsid, attributes.fileid);
                let several = with.copying.options.preserve && attributes.nlink > 1 && !job.named;
                if several && !self.met.insert(key) {
                    self.further.push(job);
                    return Ok(());
                }
                with.copying.tell(CopyEvent::Found { path: &job.path, bytes: attributes.size });
                self.tasks.start(job.path.clone(), Box::pin(with.file(job))).await
            }
            FileType::Symlink => self.tasks.start(job.path.clone(), Box::pin(with.symlink(job))).await,
            other => {
                let what = super::article(other);
                if job.named {
                    return with
                        .copying
                        .failed(&job.path, Error::NotRegular { path: job.path.clone(), what });
                }
                with.copying.skipped(&job.path, what);
                Ok(())
            }
        }
    }

    /// Completes the copy after all files: makes their further names, then sets the attributes of directories.
    async fn finish(self) -> Result<(), Error> {
        let Self { with, further, finished, .. } = self;
        for job in further {
            let attributes = &job.node.attributes;
            let key = (attributes.fsid, attributes.fileid);
            let first = with.complete.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
            // If the first name failed, or the server has no hard links, the content is copied for each name.
            let linked = match first {
                Some(first) => with.to.put_link(first, &job.place, &with.copying, false).await.is_ok(),
                None => false,
            };
            let path = job.path.clone();
            if linked {
                with.copying.done(&path, |report| &mut report.hard_links);
                continue;
            }
            with.copying.tell(CopyEvent::Found { path: &path, bytes: attributes.size });
            if let Err(error) = with.clone().file(job).await {
                with.copying.failed(&path, error)?;
            }
        }
        // The deepest directory comes first: a directory may not be writable once its mode is set.
        for (handle, kept, trail) in finished.into_iter().rev() {
            let set = if with.copying.options.preserve {
                with.to.keep(handle, kept, false).await
            } else {
                let attributes =
                    SetAttributes { mode: Some(with.copying.masked(kept)), ..SetAttributes::default() };
                with.to.set_attributes_of(handle, attributes).await.map(|()| Owned::ALL)
            };
            match set {
                Ok(owned) => with.copying.owner(owned),
                Err(error) => {
                    let path = with.path_of(trail.as_ref());
                    with.copying.failed(&path, error.at(path.as_bytes()))?;
                }
            }
        }
        Ok(())
    }
}
