//! From the local file system to the server.

use std::ffi::OsStr;
use std::fs::{self, File as LocalFile, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::local::{blocking, kept, read_at};
use super::{CopyEvent, CopyOptions, CopyReport, Copying, Kept, MAX_DEPTH, Tasks};
use crate::client::walk::Place;
use crate::client::{Client, Error};
use crate::wire::{
    CreateArgs, CreateHow, DirOpArgs, FileHandle, FileName, FileType, MkdirArgs, ReadlinkArgs, RemoveArgs,
    SetAttributes, SetTime, Status, SymlinkArgs, SymlinkData,
};

/// Where an object goes: a name in a directory, or the root of the export, which exists.
enum Target {
    Place(Place),
    Root,
}

/// A directory that is to be copied.
struct Directory {
    local: PathBuf,
    target: Target,
    metadata: Metadata,
    depth: usize,
}

/// The name that a copy gets in a directory; none for `.`, `..` and whatever ends with `/.`, of which the entries are copied.
fn own_name(source: &Path) -> Option<&OsStr> {
    source.file_name().filter(|_| !source.as_os_str().as_bytes().ends_with(b"/."))
}

impl Client {
    /// Copies the local file or tree `source` to `target` in the export; see [`CopyOptions`].
    ///
    /// # Errors
    /// What keeps the copy from starting, and the loss of the server. Single files that could not be copied are in the
    /// report.
    pub async fn put(
        &self,
        source: impl AsRef<Path>,
        target: impl AsRef<[u8]>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let recursive = options.recursive;
        let metadata =
            blocking(
                source,
                move |source| {
                    if recursive { fs::symlink_metadata(source) } else { fs::metadata(source) }
                },
            )
            .await?;
        if metadata.is_dir() && !recursive {
            return Err(Error::IsDirectory { path: source.display().to_string() });
        }
        let place = self.put_target(source, target, metadata.is_dir()).await?;
        let copying = Copying::new(options);
        let mut tasks = Tasks::new(copying.clone());
        let mut finished = Vec::new();
        let mut waiting = Vec::new();
        waiting.extend(self.put_object(&mut tasks, &copying, source.to_owned(), place, metadata, 0).await?);
        while let Some(directory) = waiting.pop() {
            let path = directory.local.display().to_string();
            let kept = kept(&directory.metadata);
            // The root of the export is not of our making: it stays as it is.
            let ours = matches!(directory.target, Target::Place(_));
            match self.put_directory(&mut tasks, &copying, directory, &mut waiting).await {
                Ok(handle) => {
                    copying.done(&path, |report| &mut report.directories);
                    if ours {
                        finished.push((handle, kept, path));
                    }
                }
                Err(error) => copying.failed(&path, error)?,
            }
        }
        tasks.finish().await?;
        // The deepest first: whoever may not write in a directory may still change what is in it before.
        for (handle, kept, path) in finished.into_iter().rev() {
            if options.preserve
                && let Err(error) = self.set_attributes_of(handle, attributes_of(kept)).await
            {
                copying.failed(&path, error.at(path.as_bytes()))?;
            }
        }
        Ok(copying.report())
    }

    /// Where `source` goes: into `target` if that is a directory, else to `target` itself.
    async fn put_target(&self, source: &Path, target: &[u8], directory: bool) -> Result<Target, Error> {
        let existing = match self.lookup(target).await {
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let into = existing.filter(|node| node.attributes.is_directory());
        match (into, own_name(source)) {
            (Some(node), Some(name)) => {
                Ok(Target::Place(Place { dir: node.handle, name: FileName::from(name.as_bytes()) }))
            }
            (Some(node), None) if directory && node.handle == self.root() => Ok(Target::Root),
            _ => Ok(Target::Place(self.place(target).await?)),
        }
    }

    /// Makes the directory and starts the copy of what is in it.
    async fn put_directory(
        &self,
        tasks: &mut Tasks,
        copying: &Copying,
        directory: Directory,
        waiting: &mut Vec<Directory>,
    ) -> Result<FileHandle, Error> {
        let Directory { local, target, metadata, depth } = directory;
        let path = local.display().to_string();
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep { path });
        }
        let handle = match target {
            Target::Root => self.root(),
            Target::Place(place) => self
                .put_mkdir(place, kept(&metadata).mode)
                .await
                .map_err(|error| error.at(path.as_bytes()))?,
        };
        let entries = blocking(&local, |local| {
            let entry = |entry: std::io::Result<fs::DirEntry>| {
                let path = entry?.path();
                let metadata = fs::symlink_metadata(&path);
                Ok((path, metadata))
            };
            fs::read_dir(local)?.map(entry).collect::<std::io::Result<Vec<_>>>()
        })
        .await?;
        for (path, metadata) in entries {
            let name = FileName::from(path.file_name().unwrap_or_default().as_bytes());
            match metadata {
                Ok(metadata) => {
                    let target = Target::Place(Place { dir: handle, name });
                    waiting.extend(self.put_object(tasks, copying, path, target, metadata, depth + 1).await?);
                }
                Err(source) => {
                    let text = path.display().to_string();
                    copying.failed(&text, Error::Local { path, source })?;
                }
            }
        }
        Ok(handle)
    }

    /// Makes a directory in which we may write, or takes the one that is there.
    async fn put_mkdir(&self, place: Place, mode: u32) -> Result<FileHandle, Error> {
        let attributes = SetAttributes { mode: Some(mode | 0o700), ..SetAttributes::default() };
        let made = self.procedures().mkdir(&MkdirArgs { place: place.args(), attributes }).await;
        match self.made(made, place.args()).await {
            Ok(node) => Ok(node.handle),
            Err(error) if error.status() == Some(Status::Exist) => {
                let node = self.lookup_in(place.dir, place.name).await?;
                if node.attributes.is_directory() { Ok(node.handle) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Starts the copy of one object; a directory is given back.
    async fn put_object(
        &self,
        tasks: &mut Tasks,
        copying: &Copying,
        local: PathBuf,
        target: Target,
        metadata: Metadata,
        depth: usize,
    ) -> Result<Option<Directory>, Error> {
        let path = local.display().to_string();
        if metadata.is_dir() {
            return Ok(Some(Directory { local, target, metadata, depth }));
        }
        let Target::Place(place) = target else {
            return Err(Error::NoName { path });
        };
        if metadata.is_file() {
            copying.tell(CopyEvent::Found { path: &path, bytes: metadata.len() });
            let task = put_file(self.clone(), copying.clone(), path.clone(), local, place, kept(&metadata));
            tasks.start(path, task).await?;
        } else if metadata.is_symlink() {
            let (client, copying) = (self.clone(), copying.clone());
            tasks
                .start(path.clone(), async move {
                    let target = blocking(&local, |local| fs::read_link(local)).await?;
                    let target = Bytes::from(target.into_os_string().into_vec());
                    client.put_symlink(place.args(), target).await.map_err(|e| e.at(path.as_bytes()))?;
                    copying.done(&path, |report| &mut report.symlinks);
                    Ok(())
                })
                .await?;
        } else {
            copying.skipped(&path, "neither a file nor a directory nor a symbolic link");
        }
        Ok(None)
    }

    /// Makes a symbolic link, in the place of another one.
    async fn put_symlink(&self, place: DirOpArgs, target: Bytes) -> Result<(), Error> {
        let symlink = SymlinkData { attributes: SetAttributes::default(), target: target.clone() };
        let arguments = SymlinkArgs { place: place.clone(), symlink };
        let error = match self.procedures().symlink(&arguments).await {
            Ok(_) => return Ok(()),
            Err(error) if error.status() == Some(Status::Exist) => error,
            Err(error) => return Err(error),
        };
        let existing = self.lookup_in(place.dir, place.name.clone()).await?;
        if existing.attributes.file_type != FileType::Symlink {
            return Err(error);
        }
        let there = self.procedures().readlink(&ReadlinkArgs { symlink: existing.handle }).await?.data;
        if there != target {
            self.procedures().remove(&RemoveArgs { object: place }).await?;
            self.procedures().symlink(&arguments).await?;
        }
        Ok(())
    }
}

async fn put_file(
    client: Client,
    copying: Copying,
    path: String,
    local: PathBuf,
    place: Place,
    kept: Kept,
) -> Result<(), Error> {
    let mut source = blocking(&local, |local| LocalFile::open(local)).await?;
    let attributes = SetAttributes { mode: Some(kept.mode), size: Some(0), ..SetAttributes::default() };
    let arguments = CreateArgs { place: place.args(), how: CreateHow::Unchecked(attributes) };
    let made = client.procedures().create(&arguments).await;
    let node = client.made(made, place.args()).await.map_err(|error| error.at(path.as_bytes()))?;
    let file = client.file(node.handle, &path);
    let mut stream = file.write_stream(0);
    let size = file.write_size();
    let mut offset = 0u64;
    loop {
        let at = offset;
        let (file, data) =
            blocking(&local, move |_| read_at(&source, at, size).map(|data| (source, data))).await?;
        source = file;
        let length = data.len();
        if length > 0 {
            stream.write(data).await?;
            copying.moved(length);
        }
        if length < size {
            break;
        }
        offset = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    }
    stream.finish().await?;
    if copying.options.preserve {
        file.set_attributes(attributes_of(kept)).await?;
    }
    copying.done(&path, |report| &mut report.files);
    Ok(())
}

/// What SETATTR sets to keep mode and time.
fn attributes_of(kept: Kept) -> SetAttributes {
    SetAttributes {
        mode: Some(kept.mode),
        mtime: SetTime::ClientTime(kept.mtime),
        ..SetAttributes::default()
    }
}
