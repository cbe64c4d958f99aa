//! Copies from the local file system to the server.

mod ahead;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File as LocalFile};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType as LocalType, Statx};

use self::ahead::AHEAD;
use super::compare::{Comparison, Here, Linked, Name, Seen, Walked};
use super::identity::Identity;
use super::local::{
    Content, LocalDir, LocalEntry, OWNER_ALL, Opened, Spot, blocking, is_type, kept, list, next_data,
    open_regular, read_at, read_link, read_next, spot_of, stat_of,
};
use super::partial::part_name;
use super::upload::{Upload, Wanted};
use super::{Change, CopyEvent, CopyOptions, CopyReport, Copying, Kept, Owned, Tasks, below, child};
use crate::client::slash::without_slash;
use crate::client::walk::{Place, lossy};
use crate::client::{Client, Error, Node, WriteStream};
use crate::wire::{Attributes, FileHandle, FileName, FileType, MkdirArgs, SetAttributes, Status};

/// Identity of a file of the local file system: device and number.
pub(super) type FileKey = (u32, u32, u64);

/// Entries of a directory at the server while its source is walked.
pub(super) type ServerHere = Here<FileName, Node>;

/// Destination of an object: a name in a directory, or the existing root of the export.
pub(super) enum Target {
    Place(Place),
    Root,
    /// A directory that a sync found.
    Found(Node),
}

/// Directory to copy.
pub(super) struct Directory {
    pub(super) local: Arc<LocalDir>,
    pub(super) kept: Kept,
    pub(super) target: Target,
    pub(super) depth: usize,
}

/// Directory at the server in which entries are made.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) handle: FileHandle,
    /// Number of the directory.
    pub(super) fileid: u64,
    /// Number of its file system.
    pub(super) fsid: u64,
    /// Whether this copy made the directory, which was then empty.
    pub(super) new: bool,
}

/// Object with the name of a file at the server, as far as the walk knows.
#[derive(Clone, Copy)]
pub(super) enum There {
    Unknown,
    /// None, or one that a rename replaces without a look at it.
    Nothing,
    File(Node),
}

impl There {
    /// Returns the object with this name, if one is known or found.
    pub(super) async fn look(self, client: &Client, place: &Place) -> Result<Option<Node>, Error> {
        match self {
            Self::Nothing => Ok(None),
            Self::File(node) => Ok(Some(node)),
            Self::Unknown => match client.lookup_in(place.dir, place.name.clone()).await {
                Ok(node) => Ok(Some(node)),
                Err(error) if error.status() == Some(Status::NoEnt) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }
}

/// The source of a file's content.
pub(super) enum Source {
    /// A path that the caller named, links followed.
    Named(PathBuf),
    /// An entry of a tree, a regular file.
    Tree(Spot),
    /// An entry of a tree that was opened already.
    Opened(Spot, io::Result<Opened>),
    /// An open file, pipe or device.
    Open(LocalFile),
}

impl Source {
    /// Returns the source for a second attempt; an open file has none.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Named(path) => Some(Self::Named(path.clone())),
            Self::Tree(spot) | Self::Opened(spot, _) => Some(Self::Tree(spot.clone())),
            Self::Open(_) => None,
        }
    }

    /// Returns the name in the tree.
    const fn spot(&self) -> Option<&Spot> {
        match self {
            Self::Tree(spot) | Self::Opened(spot, _) => Some(spot),
            Self::Named(_) | Self::Open(_) => None,
        }
    }

    /// Opens the source; may block.
    fn open(self) -> io::Result<Opened> {
        match self {
            Self::Named(path) => Opened::of(LocalFile::open(path)?),
            Self::Tree(spot) => Opened::of(open_regular(&spot)?),
            Self::Opened(_, opened) => opened,
            Self::Open(file) => Ok(Opened::stream(file)),
        }
    }
}

/// Returns the name of the incomplete file that stays. A file of at most one step would always begin anew.
fn part_of(place: &Place, source: &Identity, options: &CopyOptions) -> Option<Vec<u8>> {
    let step = options.partial_step.max(1);
    (options.partial && source.size() > step).then(|| part_name(place.name.as_bytes(), source, options))
}

/// Destination of a file's content.
#[derive(Clone)]
pub(super) struct Goal {
    pub(super) place: Place,
    pub(super) there: There,
}

/// A further name of a file found before.
pub(super) struct Further {
    pub(super) key: FileKey,
    pub(super) spot: Spot,
    pub(super) goal: Goal,
    pub(super) kept: Kept,
    pub(super) name: Name,
}

/// Client, options and report of a copy, as its tasks need them. Clones share them.
#[derive(Clone)]
pub(super) struct Putting {
    pub(super) client: Client,
    pub(super) copying: Copying,
    /// The source, for messages.
    source: Arc<str>,
    /// Path of the copy of the source in the export.
    pub(super) target: Arc<[u8]>,
    /// Complete files that have several names.
    complete: Arc<Mutex<HashMap<FileKey, FileHandle>>>,
    /// Set in a sync.
    pub(super) sync: Option<Arc<Comparison>>,
}

/// Copy in progress.
pub(super) struct Put {
    pub(super) with: Putting,
    pub(super) tasks: Tasks,
    /// Files with several names found so far.
    pub(super) met: HashSet<FileKey>,
    pub(super) further: Vec<Further>,
    /// In a sync: files of several names.
    pub(super) linked: Linked,
    /// In a sync: entries that the source lacks, with the paths of their directories below the top.
    pub(super) extra: Vec<(FileHandle, Vec<FileName>, Vec<u8>)>,
    /// In a sync: the source directory.
    pub(super) top_of_source: Option<Arc<LocalDir>>,
    /// Directories whose attributes are set last.
    finished: Vec<(FileHandle, Kept, Arc<LocalDir>)>,
    /// Directory at the server in which the copy begins.
    top: Option<Made>,
}

/// Returns the name of a copy in a directory. Paths that are `.` or `..`, or end with `/.`, have none: their
/// entries are copied.
fn own_name(source: &Path) -> Option<&OsStr> {
    source.file_name().filter(|_| !source.as_os_str().as_bytes().ends_with(b"/."))
}

impl Client {
    /// Copies the local file or tree `source` to `target` in the export; see [`CopyOptions`].
    ///
    /// # Errors
    /// The copy cannot start, or the server is lost. The report has single files that could not be copied.
    pub async fn put(
        &self,
        source: impl AsRef<Path>,
        target: impl AsRef<[u8]>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let (named, recursive) = (source.to_owned(), options.recursive);
        let metadata = blocking(
            || source.to_owned(),
            move || if recursive { fs::symlink_metadata(named) } else { fs::metadata(named) },
        )
        .await?;
        let path = source.display().to_string();
        if metadata.is_dir() && !recursive {
            return Err(Error::IsDirectory { path });
        }
        let (place, target) =
            self.put_target(own_name(source).map(OsStr::as_bytes), target, metadata.is_dir()).await?;
        let mut put = Put::new(self, Copying::new(options), &path, &target, None);
        if metadata.is_dir() {
            let named = source.to_owned();
            let local = blocking(|| source.to_owned(), move || LocalDir::named(&named)).await?;
            put.tree(Directory { local, kept: kept_of(&metadata), target: place, depth: 0 }).await?;
        } else {
            let Target::Place(place) = place else { return Err(Error::NoName { path }) };
            put.named(source, &metadata, place).await?;
        }
        put.complete().await
    }

    /// Copies the content of `source`, up to its end, to the file `target` in the export. `mode` is for a new
    /// file, before [`CopyOptions::umask`]. `name` names the source in messages.
    ///
    /// # Errors
    /// The copy cannot start, or the server is lost; [`Error::Exists`] if `target` is a directory. The report
    /// shows whether the file could be copied.
    pub async fn put_open(
        &self,
        source: LocalFile,
        name: &str,
        mode: u32,
        target: impl AsRef<[u8]>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let target = target.as_ref();
        let there = self.lookup(target).await;
        if there.is_ok_and(|node| node.attributes.is_directory()) {
            return Err(Error::Exists { path: lossy(target), what: "a directory" });
        }
        let place = self.place_of_file(target).await?;
        let mut put = Put::new(self, Copying::new(options), name, target, None);
        let kept = Kept { mode, mtime: Default::default(), uid: 0, gid: 0 };
        let goal = Goal { place, there: There::Unknown };
        put.file(name.to_owned(), Source::Open(source), goal, kept, None, 0).await?;
        put.complete().await
    }

    /// Returns the destination for a source of this name, with its path: in `target` if that is a directory,
    /// else `target` itself.
    pub(super) async fn put_target(
        &self,
        name: Option<&[u8]>,
        target: &[u8],
        directory: bool,
    ) -> Result<(Target, Vec<u8>), Error> {
        let existing = match self.lookup(target).await {
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let into = existing.filter(|node| node.attributes.is_directory());
        match (into, name) {
            (Some(node), Some(name)) => {
                let place = Place { dir: node.handle, name: FileName::from(name) };
                Ok((Target::Place(place), [without_slash(target), b"/", name].concat()))
            }
            (Some(node), None) if directory && node.handle == self.root() => {
                Ok((Target::Root, target.to_vec()))
            }
            _ => {
                let place = self.place_for(target, directory).await?;
                Ok((Target::Place(place), without_slash(target).to_vec()))
            }
        }
    }

    /// Returns the directory of a destination. A new one has this mode.
    pub(super) async fn put_directory(&self, target: Target, mode: u32) -> Result<Made, Error> {
        match target {
            Target::Place(place) => self.put_mkdir(place, mode).await,
            Target::Root => {
                let Attributes { fileid, fsid, .. } = self.root_attributes().await?;
                Ok(Made { handle: self.root(), fileid, fsid, new: false })
            }
            Target::Found(Node { handle, attributes: Attributes { fileid, fsid, .. } }) => {
                Ok(Made { handle, fileid, fsid, new: false })
            }
        }
    }

    /// Makes a directory with this mode, or returns the existing one.
    async fn put_mkdir(&self, place: Place, mode: u32) -> Result<Made, Error> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let made = self.procedures().mkdir(&MkdirArgs { place: place.args(), attributes }).await;
        let (node, new) = match self.made(made, place.args()).await {
            Ok(node) => (node, true),
            Err(error) if error.status() == Some(Status::Exist) => {
                let node = self.lookup_in(place.dir, place.name).await?;
                if !node.attributes.is_directory() {
                    return Err(error);
                }
                (node, false)
            }
            Err(error) => return Err(error),
        };
        let Attributes { fileid, fsid, .. } = node.attributes;
        Ok(Made { handle: node.handle, fileid, fsid, new })
    }
}

impl Putting {
    pub(super) fn path_of(&self, dir: &LocalDir) -> String {
        below(&self.source, dir.names())
    }

    /// Returns the path of a directory below the top of the tree, for the filter.
    pub(super) fn prefix_of(&self, dir: &LocalDir) -> Vec<u8> {
        dir.names().into_iter().map(OsStr::as_bytes).collect::<Vec<_>>().join(&b'/')
    }

    /// Records the file of a complete name, for its further names.
    pub(super) fn completes(&self, key: Option<FileKey>, handle: FileHandle) {
        if let Some(key) = key {
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).insert(key, handle);
        }
    }

    pub(super) fn path_in(&self, spot: &Spot) -> String {
        child(&self.path_of(&spot.dir), &spot.name.to_string_lossy())
    }

    /// Returns the path of a name at the server.
    fn target_of(&self, spot: Option<&Spot>) -> Vec<u8> {
        let mut path = self.target.to_vec();
        for name in spot.iter().flat_map(|spot| spot.dir.names().into_iter().chain([spot.name.as_os_str()])) {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        path
    }

    fn note_xattrs(&self, there: bool) {
        if there {
            self.copying.note(|report| report.xattrs_not_kept += 1);
        }
    }

    /// Copies a file. `key` is set for a file with several names. If the file changed since an earlier copy left a
    /// part of it, the copy begins anew.
    pub(super) async fn file(
        self,
        path: String,
        source: Source,
        goal: Goal,
        kept: Kept,
        key: Option<FileKey>,
    ) -> Result<(), Error> {
        let again = source.again();
        if self.attempt(&path, source, goal.clone(), kept, key, false).await? {
            return Ok(());
        }
        let Some(source) = again else { return Ok(()) };
        self.attempt(&path, source, goal, kept, key, true).await.map(|_| ())
    }

    /// Copies a file; `again` tells that this is the second attempt. Returns `false` if a copy that was continued has
    /// parts of several states. It has then left nothing.
    async fn attempt(
        &self,
        path: &str,
        source: Source,
        goal: Goal,
        kept: Kept,
        key: Option<FileKey>,
        again: bool,
    ) -> Result<bool, Error> {
        let spot = source.spot().cloned();
        let shown = || PathBuf::from(path);
        let opened = match source {
            Source::Opened(_, opened) => opened.map_err(|source| Error::Local { path: shown(), source })?,
            source => blocking(shown, move || source.open()).await?,
        };
        let Opened { content, identity, xattrs } = opened;
        let Goal { mut place, there } = goal;
        let named = |error: Error| error.at(path.as_bytes());
        let mut existing = there.look(&self.client, &place).await.map_err(named)?;
        if existing.is_some_and(|node| node.attributes.file_type == FileType::Symlink) {
            (place, existing) = self.client.place_followed(&self.target_of(spot.as_ref())).await?;
        }
        // A stream has no attributes that a file could keep.
        let keep = if identity.is_some() { self.copying.kept(kept) } else { None };
        let wanted = Wanted {
            mode: keep.is_none().then(|| self.copying.masked(kept)),
            with_other_names: spot.is_none(),
            source: identity,
            copying: &self.copying,
            path,
            part: identity.and_then(|source| part_of(&place, &source, &self.copying.options)),
        };
        if let Some(node) = &existing {
            wanted.differs(node)?;
        }
        if !again {
            self.copying.claim(&place, path)?;
        }
        let mut upload = Upload::open(&self.client, place, existing, &wanted).await.map_err(named)?;
        self.copying.resumed(upload.resumed);
        let written = match (content, identity) {
            (Content::Whole(data), _) => self.whole(data, &mut upload).await.map(|()| false),
            (Content::File(local), Some(found)) => self.content(path, local, &mut upload, found).await,
            (Content::File(local) | Content::Stream(local), _) => {
                self.stream(path, local, &mut upload).await.map(|()| false)
            }
        };
        match written {
            Ok(false) => {}
            Ok(true) => {
                self.copying.changed_meanwhile(path);
                if upload.resumed > 0 && !again {
                    upload.abandon().await;
                    return Ok(false);
                }
            }
            Err(error) => return Err(upload.discard(error).await),
        }
        let handle = upload.file.handle();
        self.note_xattrs(xattrs && keep.is_some());
        let owned = upload.finish(keep).await.map_err(named)?;
        self.copying.owner(owned);
        self.completes(key, handle);
        self.copying.file_done(path);
        Ok(true)
    }

    /// Sends the content up to the end of the source.
    async fn stream(&self, path: &str, local: LocalFile, upload: &mut Upload) -> Result<(), Error> {
        let size = upload.file.write_size();
        let mut stream = upload.file.write_stream(0);
        let mut source = local;
        loop {
            let read = move || read_next(&source, size).map(|data| (source, data));
            let (local, data) = blocking(|| path.into(), read).await?;
            source = local;
            let length = data.len();
            if length > 0 {
                upload.begin().await?;
                stream.write(data).await?;
                self.copying.moved(length);
            }
            if length < size {
                return stream.finish().await;
            }
        }
    }

    /// Sends a file without its holes, up to its length now and then up to its length afterwards. Returns whether it
    /// changed since it was `found`.
    async fn content(
        &self,
        path: &str,
        local: LocalFile,
        upload: &mut Upload,
        found: Identity,
    ) -> Result<bool, Error> {
        let mut at = upload.resumed;
        let mut stream = upload.file.write_stream(at);
        if upload.lasting {
            stream.settle_every(self.copying.options.partial_step);
        }
        let mut limit = 0;
        let mut local = local;
        let mut changed = false;
        for _ in 0..2 {
            let ask = move || stat_of(&local).map(|stat| (local, Identity::from(&stat)));
            let now;
            (local, now) = blocking(|| path.into(), ask).await?;
            limit = now.size();
            changed |= !now.has_state_of(&found);
            if at >= limit {
                break;
            }
            let shorter;
            (local, shorter) = self.part(path, local, upload, &mut stream, &mut at, limit).await?;
            if shorter {
                limit = at;
                changed = true;
                break;
            }
        }
        stream.finish().await?;
        // The hole at the end.
        if at < limit {
            upload.begin().await?;
            upload.file.set_len(limit).await?;
            self.copying.hole(limit - at);
        }
        Ok(changed)
    }

    /// Sends the data between `at` and `limit`, and sets `at` to the end of the last piece. Returns whether
    /// the file ended before `limit`.
    async fn part(
        &self,
        path: &str,
        mut local: LocalFile,
        upload: &mut Upload,
        stream: &mut WriteStream,
        at: &mut u64,
        limit: u64,
    ) -> Result<(LocalFile, bool), Error> {
        let size = stream.piece();
        let mut data = 0..0;
        loop {
            let from = *at;
            if from >= data.end {
                let find = move || next_data(&local, from).map(|found| (local, found));
                let (file, found) = blocking(|| path.into(), find).await?;
                local = file;
                data = match found.map(|found| found.start..found.end.min(limit)) {
                    Some(found) if found.start < found.end => found,
                    _ => return Ok((local, false)),
                };
                if data.start > from {
                    stream.seek(data.start).await?;
                    self.copying.hole(data.start - from);
                    *at = data.start;
                }
            }
            let from = *at;
            let length = usize::try_from(data.end - from).unwrap_or(usize::MAX).min(size);
            let read = move || read_at(&local, from, length).map(|piece| (local, piece));
            let (file, piece) = blocking(|| path.into(), read).await?;
            local = file;
            let count = piece.len();
            if count > 0 {
                upload.begin().await?;
                stream.write(piece).await?;
                self.copying.moved(count);
                *at = from.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            }
            if count < length {
                return Ok((local, true));
            }
        }
    }

    pub(super) async fn symlink(
        self,
        path: String,
        spot: Spot,
        place: Place,
        kept: Kept,
    ) -> Result<(), Error> {
        let from = spot.clone();
        let target = blocking(|| spot.path(), move || read_link(&from)).await?;
        let named = |error: Error| error.at(path.as_bytes());
        self.copying.claim(&place, &path)?;
        let over_files = self.sync.is_some();
        let made = self.client.put_symlink(&place, target, &path, &self.copying, over_files).await;
        let handle = made.map_err(named)?;
        if let Some(kept) = self.copying.kept(kept) {
            // Some servers do not let clients set attributes of links. The link itself exists.
            let owned = self.client.keep(handle, kept, true).await.unwrap_or(Owned::ALL);
            self.copying.owner(owned);
        }
        self.copying.done(&path, |report| &mut report.symlinks);
        Ok(())
    }
}

impl Put {
    pub(super) fn new(
        client: &Client,
        copying: Copying,
        source: &str,
        target: &[u8],
        sync: Option<Arc<Comparison>>,
    ) -> Self {
        let with = Putting {
            client: client.clone(),
            copying: copying.clone(),
            source: source.into(),
            target: target.into(),
            complete: Arc::default(),
            sync,
        };
        Self {
            with,
            tasks: Tasks::new(copying),
            met: HashSet::new(),
            further: Vec::new(),
            linked: Linked::default(),
            extra: Vec::new(),
            top_of_source: None,
            finished: Vec::new(),
            top: None,
        }
    }

    /// Waits for the end of all files, and completes the copy after them.
    pub(super) async fn complete(mut self) -> Result<CopyReport, Error> {
        let copying = self.with.copying.clone();
        copying.tell(CopyEvent::Walked);
        self.tasks.finish().await?;
        self.finish().await?;
        Ok(copying.report())
    }

    /// Starts the copy of a file of `bytes` bytes.
    pub(super) async fn file(
        &mut self,
        path: String,
        source: Source,
        goal: Goal,
        kept: Kept,
        key: Option<FileKey>,
        bytes: u64,
    ) -> Result<(), Error> {
        self.with.copying.tell(CopyEvent::Found { path: &path, bytes });
        let task = Box::pin(self.with.clone().file(path.clone(), source, goal, kept, key));
        self.tasks.start(path, task).await
    }

    /// Copies an object that the caller named and that is not a directory.
    async fn named(&mut self, source: &Path, metadata: &fs::Metadata, place: Place) -> Result<(), Error> {
        let path = source.display().to_string();
        let kept = kept_of(metadata);
        let kind = metadata.file_type();
        if kind.is_socket() {
            return Err(Error::NotRegular { path, what: "a socket" });
        }
        if !kind.is_symlink() {
            let goal = Goal { place, there: There::Unknown };
            let bytes = if kind.is_file() { metadata.len() } else { 0 };
            return self.file(path, Source::Named(source.to_owned()), goal, kept, None, bytes).await;
        }
        let named = source.to_owned();
        let spot = blocking(|| source.to_owned(), move || spot_of(&named)).await?;
        let task = Box::pin(self.with.clone().symlink(path.clone(), spot, place, kept));
        self.tasks.start(path, task).await
    }

    pub(super) async fn tree(&mut self, first: Directory) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let (local, kept) = (Arc::clone(&directory.local), directory.kept);
            // This copy did not make the root of the export, so the root keeps its attributes.
            let ours = match &directory.target {
                Target::Place(_) => true,
                Target::Root => false,
                Target::Found(node) => node.handle != self.with.client.root(),
            };
            let result = self.directory(directory, &mut waiting).await;
            let path = self.with.path_of(&local);
            match result {
                Ok((handle, Walked { new, finish })) => {
                    if (new && !self.with.copying.is_dry()) || self.with.sync.is_none() {
                        self.with.copying.done(&path, |report| &mut report.directories);
                    }
                    if ours && finish {
                        self.finished.push((handle, kept, local));
                    }
                }
                Err(error) => self.with.copying.failed(&path, error.at(path.as_bytes()))?,
            }
        }
        Ok(())
    }

    /// Makes the directory and starts the copy of its content. Returns its handle at the server.
    async fn directory(
        &mut self,
        directory: Directory,
        waiting: &mut Vec<Directory>,
    ) -> Result<(FileHandle, Walked), Error> {
        let Directory { local, kept, target, depth } = directory;
        let limit = self.with.copying.options.max_depth;
        if depth > limit {
            return Err(Error::TooDeep { path: self.with.path_of(&local), limit });
        }
        if self.is_top(&local).await? {
            return Err(Error::IntoItself { path: self.with.path_of(&local) });
        }
        let there = match &target {
            Target::Found(node) => Some(Seen::from(&node.attributes)),
            _ => None,
        };
        let made = self.make(&local, target, kept).await?;
        // With a dry run, a new directory has the number of none.
        if self.top.is_none() {
            self.top = Some(made);
            if self.is_top(&local).await? {
                return Err(Error::IntoItself { path: self.with.path_of(&local) });
            }
        }
        let mut here = self.here(&local, made, there).await?;
        let dir = Arc::clone(&local);
        let (entries, xattrs) = blocking(|| local.path(), move || list(&dir)).await?;
        self.with.note_xattrs(xattrs && self.with.copying.options.preserve);
        let mut entries = entries.into_iter();
        loop {
            let part: Vec<_> = entries.by_ref().take(AHEAD).collect();
            if part.is_empty() {
                break;
            }
            for (LocalEntry { name, stat }, opened) in self.ahead(&local, part, &here).await? {
                let spot = Spot { dir: Arc::clone(&local), name };
                match stat {
                    Ok(stat) => {
                        waiting.extend(self.object(made, depth, spot, &stat, opened, &mut here).await?);
                    }
                    Err(source) => {
                        here.entries.remove(&FileName::from(spot.name.as_bytes()));
                        let path = self.with.path_in(&spot);
                        self.with.copying.failed(&path, Error::Local { path: spot.path(), source })?;
                    }
                }
            }
        }
        let walked = match self.with.sync {
            Some(_) => self.synced_directory(&local, kept, made, there, here),
            None => {
                // A new directory may have more permissions than it should keep.
                let lent = made.new && self.with.copying.masked(kept) & OWNER_ALL != OWNER_ALL;
                Walked { new: made.new, finish: self.with.copying.options.preserve || lent }
            }
        };
        Ok((made.handle, walked))
    }

    /// Makes the directory at the server, or uses an existing one.
    async fn make(&self, local: &Arc<LocalDir>, target: Target, kept: Kept) -> Result<Made, Error> {
        let copying = &self.with.copying;
        if let Target::Place(place) = &target {
            if self.with.sync.is_some() {
                copying.change(Change::MakeDirectory, &format!("{}/", self.with.path_of(local)));
            }
            if copying.is_dry() {
                // Nothing is looked up in a directory that is not there.
                return Ok(Made { handle: place.dir, fileid: 0, fsid: 0, new: true });
            }
        }
        let mode = if copying.options.preserve { 0 } else { copying.masked(kept) };
        self.with.client.put_directory(target, mode | OWNER_ALL).await
    }

    /// Returns whether a local directory is the one at the server in which the copy began. Its time of change
    /// advances during the copy, so the function reads it before and after.
    async fn is_top(&self, local: &Arc<LocalDir>) -> Result<bool, Error> {
        let Some(top) = self.top else { return Ok(false) };
        let dir = Arc::clone(local);
        let look = move || dir.stat().map(|stat| Identity::from(&stat));
        if blocking(|| local.path(), look.clone()).await?.number() != top.fileid {
            return Ok(false);
        }
        let ask = async || Ok::<_, Error>(Identity::from(&self.with.client.attributes(top.handle).await?));
        let before = ask().await?;
        let here = blocking(|| local.path(), look).await?;
        Ok(here.is_between(&before, &ask().await?))
    }

    /// Starts the copy of an entry, which may be opened already; returns a directory to the caller.
    async fn object(
        &mut self,
        made: Made,
        above: usize,
        spot: Spot,
        stat: &Statx,
        opened: Option<io::Result<Opened>>,
        here: &mut ServerHere,
    ) -> Result<Option<Directory>, Error> {
        let kept = kept(stat);
        let place = Place { dir: made.handle, name: FileName::from(spot.name.as_bytes()) };
        let directory = is_type(stat, LocalType::Directory);
        if here.excludes(&self.with.copying, spot.name.as_bytes(), directory) {
            if !self.with.copying.options.sync.delete_excluded {
                here.entries.remove(&place.name);
            }
            return Ok(None);
        }
        let mut found = None;
        if self.with.sync.is_some() {
            match self.synced(&spot, stat, &place, here).await? {
                Some(there) => found = there,
                None => return Ok(None),
            }
        }
        if directory {
            let (local, depth) = (spot.dir.entry(&spot.name), above.saturating_add(1));
            let target = found.map_or(Target::Place(place), Target::Found);
            return Ok(Some(Directory { local, kept, target, depth }));
        }
        let path = self.with.path_in(&spot);
        if is_type(stat, LocalType::RegularFile) {
            let there = if made.new { There::Nothing } else { There::Unknown };
            let goal = Goal { place, there };
            let several = self.with.copying.options.preserve && stat.stx_nlink > 1;
            let key = several.then_some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino));
            if let Some(key) = key
                && !self.met.insert(key)
            {
                self.further.push(Further { key, spot, goal, kept, name: Name::New });
                return Ok(None);
            }
            let source = match opened {
                Some(opened) => Source::Opened(spot, opened),
                None => Source::Tree(spot),
            };
            self.file(path, source, goal, kept, key, stat.stx_size).await?;
        } else if is_type(stat, LocalType::Symlink) {
            let task = Box::pin(self.with.clone().symlink(path.clone(), spot, place, kept));
            self.tasks.start(path, task).await?;
        } else {
            self.with.copying.skipped(&path, "neither a file nor a directory nor a symbolic link");
        }
        Ok(None)
    }

    /// Makes the further names of files.
    async fn link(&self, further: Vec<Further>) -> Result<(), Error> {
        let with = &self.with;
        for Further { key, spot, goal, kept, name } in further {
            let path = with.path_in(&spot);
            let first = with.complete.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
            if with.copying.is_dry() {
                with.copying.name_compared(&path, first.is_some());
                continue;
            }
            // If the first name failed, or the server has no hard links, the content is copied for each name.
            let sync = with.sync.is_some();
            let linked = match first {
                Some(first) => with.client.put_link(first, &goal.place, &with.copying, sync).await.ok(),
                None => None,
            };
            if name == Name::Compared && linked != Some(false) {
                with.copying.change(Change::HardLink, &path);
            }
            match linked {
                Some(false) if sync => with.copying.unchanged(&path),
                Some(_) => with.copying.done(&path, |report| &mut report.hard_links),
                None => {}
            }
            if linked.is_some() {
                continue;
            }
            with.copying.tell(CopyEvent::Found { path: &path, bytes: 0 });
            let copied = with.clone().file(path.clone(), Source::Tree(spot), goal, kept, Some(key)).await;
            if let Err(error) = copied {
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
        for (handle, kept, local) in finished.into_iter().rev() {
            let set = if with.copying.options.preserve {
                with.client.keep(handle, kept, false).await
            } else {
                let mode = Some(with.copying.masked(kept));
                let attributes = SetAttributes { mode, ..SetAttributes::default() };
                with.client.set_attributes_of(handle, attributes).await.map(|()| Owned::ALL)
            };
            match set {
                Ok(owned) => with.copying.owner(owned),
                Err(error) => {
                    let path = with.path_of(&local);
                    with.copying.failed(&path, error.at(path.as_bytes()))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the attributes of a local object that a copy keeps.
fn kept_of(metadata: &fs::Metadata) -> Kept {
    let mtime = metadata.modified().unwrap_or(std::time::SystemTime::UNIX_EPOCH);
    Kept { mode: metadata.mode() & 0o7777, mtime: mtime.into(), uid: metadata.uid(), gid: metadata.gid() }
}
