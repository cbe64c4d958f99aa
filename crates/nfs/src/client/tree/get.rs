//! From the server to the local file system.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::local::{PartFile, blocking, finish_directory, make_directory, make_symlink};
use super::{CopyEvent, CopyOptions, CopyReport, Copying, Kept, MAX_DEPTH, Tasks, child};
use crate::client::walk::lossy;
use crate::client::{Client, DirItem, Error, Node};
use crate::wire::{FileHandle, FileType};

/// A directory that is to be copied.
struct Directory {
    handle: FileHandle,
    kept: Kept,
    path: String,
    local: PathBuf,
    depth: usize,
}

impl Client {
    /// Copies the file or tree `source` of the export to the local `target`; see [`CopyOptions`].
    ///
    /// # Errors
    /// What keeps the copy from starting, and the loss of the server. Single files that could not be copied are in the
    /// report.
    pub async fn get(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<Path>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let node =
            if options.recursive { self.lookup_link(source).await? } else { self.lookup(source).await? };
        let path = lossy(source);
        if node.attributes.is_directory() && !options.recursive {
            return Err(Error::IsDirectory { path });
        }
        let name = source.split(|&byte| byte == b'/').rfind(|part| !part.is_empty());
        let name = name.filter(|name| !matches!(*name, b"." | b".."));
        let local = target_of(target, name).await?;
        let copying = Copying::new(options);
        let mut tasks = Tasks::new(copying.clone());
        let mut directories = Vec::new();
        match self.get_object(&mut tasks, &copying, &path, local, node, 0).await? {
            None => {}
            Some(first) => self.get_tree(&mut tasks, &copying, first, &mut directories).await?,
        }
        tasks.finish().await?;
        // The deepest first: a directory may not be writable once its mode is set.
        if options.preserve {
            let failures = blocking(target, move |_| {
                let finish = |(local, kept, path): (PathBuf, Kept, String)| {
                    finish_directory(&local, kept)
                        .err()
                        .map(|source| (path, Error::Local { path: local, source }))
                };
                Ok(directories.into_iter().rev().filter_map(finish).collect::<Vec<_>>())
            });
            for (path, error) in failures.await? {
                copying.failed(&path, error)?;
            }
        }
        Ok(copying.report())
    }

    async fn get_tree(
        &self,
        tasks: &mut Tasks,
        copying: &Copying,
        first: Directory,
        finished: &mut Vec<(PathBuf, Kept, String)>,
    ) -> Result<(), Error> {
        let mut waiting = vec![first];
        while let Some(directory) = waiting.pop() {
            let result = self.get_directory(tasks, copying, &directory, &mut waiting).await;
            let Directory { local, kept, path, .. } = directory;
            match result {
                Ok(()) => {
                    copying.done(&path, |report| &mut report.directories);
                    finished.push((local, kept, path));
                }
                Err(error) => copying.failed(&path, error)?,
            }
        }
        Ok(())
    }

    async fn get_directory(
        &self,
        tasks: &mut Tasks,
        copying: &Copying,
        directory: &Directory,
        waiting: &mut Vec<Directory>,
    ) -> Result<(), Error> {
        let Directory { handle, kept, path, local, depth } = directory;
        if *depth > MAX_DEPTH {
            return Err(Error::TooDeep { path: path.clone() });
        }
        let mode = kept.mode;
        blocking(local, move |local| make_directory(local, mode)).await?;
        let mut reader = self.dir_reader(*handle, path);
        while let Some(items) = reader.next().await? {
            for item in items {
                let path = child(path, &item.name.to_string_lossy());
                let local = local.join(OsStr::from_bytes(item.name.as_bytes()));
                let node = match self.node_of(*handle, item).await {
                    Ok(node) => node,
                    Err(error) => {
                        copying.failed(&path, error.at(path.as_bytes()))?;
                        continue;
                    }
                };
                waiting.extend(self.get_object(tasks, copying, &path, local, node, depth + 1).await?);
            }
        }
        Ok(())
    }

    /// An entry with what the listing did not bring.
    async fn node_of(&self, dir: FileHandle, item: DirItem) -> Result<Node, Error> {
        match item {
            DirItem { handle: Some(handle), attributes: Some(attributes), .. } => {
                Ok(Node { handle, attributes })
            }
            DirItem { name, .. } => self.lookup_in(dir, name).await,
        }
    }

    /// Starts the copy of one object; a directory is given back.
    async fn get_object(
        &self,
        tasks: &mut Tasks,
        copying: &Copying,
        path: &str,
        local: PathBuf,
        node: Node,
        depth: usize,
    ) -> Result<Option<Directory>, Error> {
        let Node { handle, attributes } = node;
        let kept = Kept::from(&attributes);
        let reason = match attributes.file_type {
            FileType::Directory => {
                return Ok(Some(Directory { handle, kept, path: path.to_owned(), local, depth }));
            }
            FileType::Regular => {
                copying.tell(CopyEvent::Found { path, bytes: attributes.size });
                let task = get_file(self.clone(), copying.clone(), path.to_owned(), local, node);
                tasks.start(path.to_owned(), task).await?;
                return Ok(None);
            }
            FileType::Symlink => {
                let (client, copying, path) = (self.clone(), copying.clone(), path.to_owned());
                tasks
                    .start(path.clone(), async move {
                        let target = client.read_link_of(handle).await.map_err(|e| e.at(path.as_bytes()))?;
                        blocking(&local, move |local| make_symlink(&target, local)).await?;
                        copying.done(&path, |report| &mut report.symlinks);
                        Ok(())
                    })
                    .await?;
                return Ok(None);
            }
            FileType::BlockDevice | FileType::CharacterDevice => "a device",
            FileType::Socket => "a socket",
            FileType::Fifo => "a named pipe",
        };
        copying.skipped(path, reason);
        Ok(None)
    }
}

async fn get_file(
    client: Client,
    copying: Copying,
    path: String,
    local: PathBuf,
    Node { handle, attributes }: Node,
) -> Result<(), Error> {
    let kept = Kept::from(&attributes);
    let mut part = blocking(&local, move |local| PartFile::create(local, kept.mode)).await?;
    let mut stream = client.file(handle, &path).read_all(attributes.size);
    let mut offset = 0u64;
    while let Some(data) = stream.next().await? {
        let length = data.len();
        let at = offset;
        part = blocking(&local, move |_| part.write(at, &data).map(|()| part)).await?;
        offset = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        copying.moved(length);
    }
    let kept = copying.options.preserve.then_some(kept);
    blocking(&local, move |_| part.finish(kept)).await?;
    copying.done(&path, |report| &mut report.files);
    Ok(())
}

/// Where a source of this name goes: into `target` if that is a directory, else to `target` itself.
async fn target_of(target: &Path, name: Option<&[u8]>) -> Result<PathBuf, Error> {
    let directory = blocking(target, |target| match fs::metadata(target) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    })
    .await?;
    Ok(match name {
        Some(name) if directory => target.join(OsStr::from_bytes(name)),
        _ => target.to_owned(),
    })
}
