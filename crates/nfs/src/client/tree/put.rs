//! Copies from the local file system to the server.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File as LocalFile};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{FileType as LocalType, Statx};

use super::local::{
    Content, Identity, LocalDir, LocalEntry, OWNER_ALL, Opened, SHORT, Spot, blocking, is_type, kept, list,
    next_data, open_regular, read_at, read_link, read_next, spot_of,
};
use super::upload::{Upload, Wanted};
use super::{CopyEvent, CopyOptions, CopyReport, Copying, Kept, Owned, Tasks, below, child};
use crate::client::slash::without_slash;
use crate::client::walk::{Place, lossy};
use crate::client::{Client, Error, WriteStream};
use crate::wire::{FileHandle, FileName, FileType, MkdirArgs, SetAttributes, Status};

/// Entries of a directory whose short files one visit to a blocking thread reads. They hold at most this number times
/// [`SHORT`] bytes.
const AHEAD: usize = 32;

/// Identity of a file of the local file system: device and number.
type FileKey = (u32, u32, u64);

/// Destination of an object: a name in a directory, or the existing root of the export.
enum Target {
    Place(Place),
    Root,
}

/// Directory to copy.
struct Directory {
    local: Arc<LocalDir>,
    kept: Kept,
    target: Target,
    depth: usize,
}

/// Directory at the server in which entries are made.
#[derive(Clone, Copy)]
struct Made {
    handle: FileHandle,
    /// Number of the directory.
    fileid: u64,
    /// Whether this copy made the directory, which was then empty.
    new: bool,
}

/// The source of a file's content.
enum Source {
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
    /// Returns the name in the tree.
    fn spot(&self) -> Option<&Spot> {
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

/// Destination of a file's content.
struct Goal {
    place: Place,
    /// Whether this copy made the directory, which was then empty.
    new: bool,
}

/// A further name of a file found before.
struct Further {
    key: FileKey,
    spot: Spot,
    goal: Goal,
    kept: Kept,
}

/// Client, options and report of a copy, as its tasks need them. Clones share them.
#[derive(Clone)]
struct Putting {
    client: Client,
    copying: Copying,
    /// The source, for messages.
    source: Arc<str>,
    /// Path of the copy of the source in the export.
    target: Arc<[u8]>,
    /// Complete files that have several names.
    complete: Arc<Mutex<HashMap<FileKey, FileHandle>>>,
}

/// Copy in progress.
struct Put {
    with: Putting,
    tasks: Tasks,
    /// Files with several names found so far.
    met: HashSet<FileKey>,
    further: Vec<Further>,
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
        let (place, target) = self.put_target(own_name(source), target, metadata.is_dir()).await?;
        let mut put = Put::new(self, options, &path, &target);
        if metadata.is_dir() {
            let named = source.to_owned();
            let local = blocking(|| source.to_owned(), move || LocalDir::named(&named)).await?;
            put.tree(Directory { local, kept: kept_of(&metadata), target: place, depth: 0 }).await?;
        } else {
            let Target::Place(place) = place else { return Err(Error::NoName { path }) };
            put.named(source, &metadata, place).await?;
        }
        put.tasks.finish().await?;
        let copying = put.with.copying.clone();
        put.finish().await?;
        Ok(copying.report())
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
        let mut put = Put::new(self, options, name, target);
        let kept = Kept { mode, mtime: Default::default(), uid: 0, gid: 0 };
        put.file(name.to_owned(), Source::Open(source), Goal { place, new: false }, kept, None, 0).await?;
        put.tasks.finish().await?;
        Ok(put.with.copying.report())
    }

    /// Returns the destination for a source of this name, with its path: in `target` if that is a directory,
    /// else `target` itself.
    async fn put_target(
        &self,
        name: Option<&OsStr>,
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
                let place = Place { dir: node.handle, name: FileName::from(name.as_bytes()) };
                Ok((Target::Place(place), [without_slash(target), b"/", name.as_bytes()].concat()))
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
        Ok(Made { handle: node.handle, fileid: node.attributes.fileid, new })
    }
}

impl Putting {
    fn path_of(&self, dir: &LocalDir) -> String {
        below(&self.source, dir.names())
    }

    fn path_in(&self, spot: &Spot) -> String {
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

    fn kept(&self, kept: Kept) -> Option<Kept> {
        self.copying.options.preserve.then_some(kept)
    }

    /// Returns the mode of a new object whose attributes are not kept.
    fn masked(&self, kept: Kept) -> u32 {
        kept.mode & 0o777 & !self.copying.options.umask
    }

    /// Claims a name for one source of the command.
    fn claim(&self, place: &Place, path: &str) -> Result<(), Error> {
        if self.copying.run.claim(place) { Ok(()) } else { Err(Error::JustMade { path: path.to_owned() }) }
    }

    fn note_xattrs(&self, there: bool) {
        if there {
            self.copying.note(|report| report.xattrs_not_kept += 1);
        }
    }

    /// Copies a file. `key` is set for a file with several names.
    async fn file(
        self,
        path: String,
        source: Source,
        goal: Goal,
        kept: Kept,
        key: Option<FileKey>,
    ) -> Result<(), Error> {
        let spot = source.spot().cloned();
        let shown = || PathBuf::from(&path);
        let opened = match source {
            Source::Opened(_, opened) => opened.map_err(|source| Error::Local { path: shown(), source })?,
            source => blocking(shown, move || source.open()).await?,
        };
        let Opened { content, identity, xattrs } = opened;
        let Goal { mut place, new } = goal;
        let named = |error: Error| error.at(path.as_bytes());
        let mut existing = None;
        if !new {
            existing = match self.client.lookup_in(place.dir, place.name.clone()).await {
                Ok(node) => Some(node),
                Err(error) if error.status() == Some(Status::NoEnt) => None,
                Err(error) => return Err(named(error)),
            };
        }
        if existing.is_some_and(|node| node.attributes.file_type == FileType::Symlink) {
            (place, existing) = self.client.place_followed(&self.target_of(spot.as_ref())).await?;
        }
        // A stream has no attributes that a file could keep.
        let keep = if identity.is_some() { self.kept(kept) } else { None };
        let wanted = Wanted {
            mode: keep.is_none().then(|| self.masked(kept)),
            with_other_names: spot.is_none(),
            source: identity,
            copying: &self.copying,
            path: &path,
        };
        if let Some(node) = &existing {
            wanted.differs(node)?;
        }
        self.claim(&place, &path)?;
        let mut upload = Upload::open(&self.client, place, existing, &wanted).await.map_err(named)?;
        let written = match content {
            Content::Whole(data) => self.whole(data, &mut upload).await,
            Content::File(local) => self.content(&path, local, &mut upload).await,
            Content::Stream(local) => self.stream(&path, local, &mut upload).await,
        };
        if let Err(error) = written {
            return Err(upload.discard(error).await);
        }
        let handle = upload.file.handle();
        self.note_xattrs(xattrs && keep.is_some());
        let owned = upload.finish(keep).await.map_err(named)?;
        self.copying.owner(owned);
        if let Some(key) = key {
            self.complete.lock().unwrap_or_else(PoisonError::into_inner).insert(key, handle);
        }
        self.copying.done(&path, |report| &mut report.files);
        Ok(())
    }

    /// Sends the content of a short file.
    async fn whole(&self, data: Bytes, upload: &mut Upload) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        upload.begin().await?;
        let length = data.len();
        let mut stream = upload.file.write_stream(0);
        stream.write(data).await?;
        self.copying.moved(length);
        stream.finish().await
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

    /// Sends a file without its holes, up to its length now and then up to its length afterwards.
    async fn content(&self, path: &str, local: LocalFile, upload: &mut Upload) -> Result<(), Error> {
        let mut stream = upload.file.write_stream(0);
        let mut at = 0;
        let mut limit = 0;
        let mut local = local;
        for _ in 0..2 {
            let ask = move || local.metadata().map(|metadata| (local, metadata.len()));
            (local, limit) = blocking(|| path.into(), ask).await?;
            if at >= limit {
                break;
            }
            let shorter;
            (local, shorter) = self.part(path, local, upload, &mut stream, &mut at, limit).await?;
            if shorter {
                limit = at;
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
        Ok(())
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

    async fn symlink(self, path: String, spot: Spot, place: Place, kept: Kept) -> Result<(), Error> {
        let from = spot.clone();
        let target = blocking(|| spot.path(), move || read_link(&from)).await?;
        let named = |error: Error| error.at(path.as_bytes());
        self.claim(&place, &path)?;
        let handle = self.client.put_symlink(&place, target, &path, &self.copying).await.map_err(named)?;
        if let Some(kept) = self.kept(kept) {
            // Some servers do not let clients set attributes of links. The link itself exists.
            let owned = self.client.keep(handle, kept, true).await.unwrap_or(Owned::ALL);
            self.copying.owner(owned);
        }
        self.copying.done(&path, |report| &mut report.symlinks);
        Ok(())
    }
}

impl Put {
    fn new(client: &Client, options: &CopyOptions, source: &str, target: &[u8]) -> Self {
        let copying = Copying::new(options);
        let with = Putting {
            client: client.clone(),
            copying: copying.clone(),
            source: source.into(),
            target: target.into(),
            complete: Arc::default(),
        };
        Self {
            with,
            tasks: Tasks::new(copying),
            met: HashSet::new(),
            further: Vec::new(),
            finished: Vec::new(),
            top: None,
        }
    }

    /// Starts the copy of a file of `bytes` bytes.
    async fn file(
        &mut self,
        path: String,
        source: Source,
        goal: Goal,
        kept: Kept,
        key: Option<FileKey>,
        bytes: u64,
    ) -> Result<(), Error> {
        self.with.copying.tell(CopyEvent::Found { path: &path, bytes });
        let task = self.with.clone().file(path.clone(), source, goal, kept, key);
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
            let goal = Goal { place, new: false };
            let bytes = if kind.is_file() { metadata.len() } else { 0 };
            return self.file(path, Source::Named(source.to_owned()), goal, kept, None, bytes).await;
        }
        let named = source.to_owned();
        let spot = blocking(|| source.to_owned(), move || spot_of(&named)).await?;
        let task = self.with.clone().symlink(path.clone(), spot, place, kept);
        self.tasks.start(path, task).await
    }

    async fn tree(&mut self, first: Directory) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let (local, kept) = (Arc::clone(&directory.local), directory.kept);
            // This copy did not make the root of the export, so the root keeps its attributes.
            let ours = matches!(directory.target, Target::Place(_));
            let result = self.directory(directory, &mut waiting).await;
            let path = self.with.path_of(&local);
            match result {
                Ok(made) => {
                    self.with.copying.done(&path, |report| &mut report.directories);
                    // A new directory may have more permissions than it should keep.
                    let lent = made.new && self.with.masked(kept) & OWNER_ALL != OWNER_ALL;
                    if ours && (self.with.copying.options.preserve || lent) {
                        self.finished.push((made.handle, kept, local));
                    }
                }
                Err(error) => self.with.copying.failed(&path, error.at(path.as_bytes()))?,
            }
        }
        Ok(())
    }

    /// Makes the directory and starts the copy of its content.
    async fn directory(&mut self, directory: Directory, waiting: &mut Vec<Directory>) -> Result<Made, Error> {
        let Directory { local, kept, target, depth } = directory;
        let limit = self.with.copying.options.max_depth;
        if depth > limit {
            return Err(Error::TooDeep { path: self.with.path_of(&local), limit });
        }
        if self.is_top(&local).await? {
            return Err(Error::IntoItself { path: self.with.path_of(&local) });
        }
        let client = &self.with.client;
        let made = match target {
            Target::Root => {
                let fileid = client.root_attributes().await?.fileid;
                Made { handle: client.root(), fileid, new: false }
            }
            Target::Place(place) if self.with.copying.options.preserve => {
                client.put_mkdir(place, OWNER_ALL).await?
            }
            Target::Place(place) => client.put_mkdir(place, self.with.masked(kept) | OWNER_ALL).await?,
        };
        if self.top.is_none() {
            self.top = Some(made);
            if self.is_top(&local).await? {
                return Err(Error::IntoItself { path: self.with.path_of(&local) });
            }
        }
        let dir = Arc::clone(&local);
        let (entries, xattrs) = blocking(|| local.path(), move || list(&dir)).await?;
        self.with.note_xattrs(xattrs && self.with.copying.options.preserve);
        let mut entries = entries.into_iter();
        loop {
            let part: Vec<_> = entries.by_ref().take(AHEAD).collect();
            if part.is_empty() {
                break;
            }
            for (LocalEntry { name, stat }, opened) in self.ahead(&local, part).await? {
                let spot = Spot { dir: Arc::clone(&local), name };
                match stat {
                    Ok(stat) => waiting.extend(self.object(made, depth, spot, &stat, opened).await?),
                    Err(source) => {
                        let path = self.with.path_in(&spot);
                        self.with.copying.failed(&path, Error::Local { path: spot.path(), source })?;
                    }
                }
            }
        }
        Ok(made)
    }

    /// Opens and reads the short files among these entries.
    async fn ahead(
        &self,
        dir: &Arc<LocalDir>,
        entries: Vec<LocalEntry>,
    ) -> Result<Vec<(LocalEntry, Option<io::Result<Opened>>)>, Error> {
        let preserve = self.with.copying.options.preserve;
        // A further name of a file becomes a link and is not read.
        let is_short = move |stat: &Statx| {
            is_type(stat, LocalType::RegularFile)
                && stat.stx_size <= SHORT
                && !(preserve && stat.stx_nlink > 1)
        };
        if !entries.iter().any(|entry| entry.stat.as_ref().is_ok_and(is_short)) {
            return Ok(entries.into_iter().map(|entry| (entry, None)).collect());
        }
        let place = Arc::clone(dir);
        let open = move |entry: LocalEntry| {
            let opened = entry.stat.as_ref().is_ok_and(is_short).then(|| {
                let spot = Spot { dir: Arc::clone(&place), name: entry.name.clone() };
                open_regular(&spot).and_then(Opened::of)
            });
            (entry, opened)
        };
        blocking(|| dir.path(), move || Ok(entries.into_iter().map(open).collect())).await
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
    ) -> Result<Option<Directory>, Error> {
        let kept = kept(stat);
        let place = Place { dir: made.handle, name: FileName::from(spot.name.as_bytes()) };
        if is_type(stat, LocalType::Directory) {
            let (local, depth) = (spot.dir.entry(&spot.name), above.saturating_add(1));
            return Ok(Some(Directory { local, kept, target: Target::Place(place), depth }));
        }
        let path = self.with.path_in(&spot);
        if is_type(stat, LocalType::RegularFile) {
            let goal = Goal { place, new: made.new };
            let several = self.with.copying.options.preserve && stat.stx_nlink > 1;
            let key = several.then_some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino));
            if let Some(key) = key
                && !self.met.insert(key)
            {
                self.further.push(Further { key, spot, goal, kept });
                return Ok(None);
            }
            let source = match opened {
                Some(opened) => Source::Opened(spot, opened),
                None => Source::Tree(spot),
            };
            self.file(path, source, goal, kept, key, stat.stx_size).await?;
        } else if is_type(stat, LocalType::Symlink) {
            let task = self.with.clone().symlink(path.clone(), spot, place, kept);
            self.tasks.start(path, task).await?;
        } else {
            self.with.copying.skipped(&path, "neither a file nor a directory nor a symbolic link");
        }
        Ok(None)
    }

    /// Completes the copy after all files: makes their further names, then sets the attributes of
    /// directories.
    async fn finish(self) -> Result<(), Error> {
        let Self { with, further, finished, .. } = self;
        for Further { key, spot, goal, kept } in further {
            let path = with.path_in(&spot);
            let first = with.complete.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
            // If the first name failed, or the server has no hard links, the content is copied for each name.
            let linked = match first {
                Some(first) => with.client.put_link(first, &goal.place, &with.copying).await.is_ok(),
                None => false,
            };
            if linked {
                with.copying.done(&path, |report| &mut report.hard_links);
                continue;
            }
            with.copying.tell(CopyEvent::Found { path: &path, bytes: 0 });
            let copied = with.clone().file(path.clone(), Source::Tree(spot), goal, kept, Some(key)).await;
            if let Err(error) = copied {
                with.copying.failed(&path, error)?;
            }
        }
        // The deepest directory comes first: a directory may not be writable once its mode is set.
        for (handle, kept, local) in finished.into_iter().rev() {
            let set = if with.copying.options.preserve {
                with.client.keep(handle, kept, false).await
            } else {
                let mode = Some(with.masked(kept));
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
