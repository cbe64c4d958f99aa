//! Removal of objects: those that the caller names at the server, and those of the target of a sync that the source lacks
//! or that are in the way.
//!
//! Directories are removed with all their content; links are not followed. Objects that the patterns exclude stay,
//! and the directories around them. So do objects that this run made, and the source itself.

mod local;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

pub(super) use self::local::remove;
use super::identity::Identity;
use super::local::OWNER_ALL;
use super::{Change, CopyOptions, CopyReport, Copying, Filter, bounded, child};
use crate::client::walk::{Place, lossy};
use crate::client::{Client, DirItem, Error, Node};
use crate::wire::{DirOpArgs, FileHandle, RemoveArgs, RmdirArgs, SetAttributes, Status};

/// Objects that a removal spares, and the report of it.
#[derive(Clone)]
pub(super) struct Removal {
    pub(super) copying: Copying,
    /// Objects that stay.
    pub(super) filter: Filter,
    /// Whether nothing is removed.
    pub(super) dry_run: bool,
    /// Whether directories get the permissions that their removal needs.
    lend: bool,
    /// Identity of the source directory: it could lie in the target.
    pub(super) source: Option<Identity>,
    /// Path of the target, for messages.
    pub(super) target: String,
    /// Whether an object at the server could not be removed.
    pub(super) incomplete: Arc<AtomicBool>,
}

impl Removal {
    pub(super) fn new(copying: &Copying, source: Option<Identity>, target: String) -> Self {
        let sync = &copying.options.sync;
        let filter = if sync.delete_excluded { Filter::default() } else { copying.options.filter.clone() };
        Self {
            copying: copying.clone(),
            filter,
            dry_run: sync.dry_run,
            lend: true,
            source,
            target,
            incomplete: Arc::default(),
        }
    }

    /// Returns the path of an entry below the top of the tree.
    pub(super) fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
        if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
    }

    /// Returns the path of an object for messages.
    pub(super) fn shown(&self, path: &[u8]) -> String {
        if path.is_empty() {
            return self.target.clone();
        }
        child(&self.target, &lossy(path))
    }

    /// Tells that an object is being removed.
    pub(super) fn deleting(&self, path: &[u8], directory: bool) {
        let slash = if directory { "/" } else { "" };
        self.copying.change(Change::Delete, &format!("{}{slash}", self.shown(path)));
    }

    /// Counts an object that was removed.
    pub(super) fn deleted(&self) {
        self.copying.note(|report| report.deleted += 1);
    }

    /// Records an object that could not be removed.
    pub(super) fn failed(&self, path: &str, error: Error) -> Result<(), Error> {
        self.incomplete.store(true, Ordering::Relaxed);
        self.copying.failed(path, error)
    }

    /// Returns whether an object stays, whatever the target has it for.
    fn spares(&self, place: &Place, path: &[u8], node: &Node) -> bool {
        let attributes = &node.attributes;
        let object = (attributes.fsid, attributes.fileid);
        self.filter.is_excluded(path, attributes.is_directory())
            || self.copying.run.has_name(object, &place.dir, place.name.as_bytes())
    }
}

/// A directory at the server whose content is removed first.
struct Open {
    place: Place,
    handle: FileHandle,
    path: Vec<u8>,
    /// Directories in it.
    rest: Vec<(Place, Node, Vec<u8>)>,
    /// Number of such directories in those above.
    waiting: usize,
    left: bool,
    /// A directory above this one, further away with growing depth. It reveals a directory that contains itself.
    anchor: Option<FileHandle>,
}

impl Client {
    /// Removes the object at the end of a path, a directory with everything in it. Links are removed, not followed, except
    /// those on the way. The permissions of directories stay as they are. The report counts what was removed
    /// ([`CopyReport::deleted`]) and has the objects that could not be; the others are removed all the same.
    ///
    /// # Errors
    /// The object is not found, it is the root of the export, or the server is lost.
    pub async fn remove_tree(&self, path: impl AsRef<[u8]>) -> Result<CopyReport, Error> {
        let path = path.as_ref();
        let node = self.entry(path).await?;
        let place = self.place(path).await?;
        let copying = Copying::new(&CopyOptions::default());
        let rules = Removal { lend: false, ..Removal::new(&copying, None, lossy(path)) };
        self.remove_object(place, node, Vec::new(), &rules).await?;
        Ok(copying.report())
    }

    /// Removes an object at the server. `path` is its path below the top of the tree. Returns whether nothing of it
    /// stays. The report has objects that could not be removed.
    ///
    /// # Errors
    /// The server is lost.
    pub(super) async fn remove_object(
        &self,
        place: Place,
        node: Node,
        path: Vec<u8>,
        rules: &Removal,
    ) -> Result<bool, Error> {
        if rules.spares(&place, &path, &node) {
            return Ok(false);
        }
        if !node.attributes.is_directory() {
            return self.remove_name(place, path, false, rules.clone()).await;
        }
        let mut open = Vec::new();
        let mut left = self.open_removed(place, node, path, rules, &mut open).await?;
        while let Some(last) = open.last_mut() {
            last.left |= std::mem::take(&mut left);
            if let Some((place, node, path)) = last.rest.pop() {
                left = self.open_removed(place, node, path, rules, &mut open).await?;
            } else if let Some(Open { place, path, left: stays, .. }) = open.pop() {
                left = stays || !self.remove_name(place, path, true, rules.clone()).await?;
            }
        }
        Ok(!left)
    }

    /// Removes all entries of a directory but directories, and adds it to the list. Returns whether the directory
    /// stays for certain.
    async fn open_removed(
        &self,
        place: Place,
        node: Node,
        path: Vec<u8>,
        rules: &Removal,
        open: &mut Vec<Open>,
    ) -> Result<bool, Error> {
        let copying = &rules.copying;
        let shown = rules.shown(&path);
        if rules.source == Some(Identity::from(&node.attributes)) {
            return rules.failed(&shown, Error::IsSource { path: shown.clone() }).map(|()| true);
        }
        let limit = copying.options.max_depth;
        let above = open.last().map(|above| (above.handle, above.anchor));
        let waiting = open.last().map_or(0, |above| above.waiting + above.rest.len());
        if open.len() > limit {
            return rules.failed(&shown, Error::TooDeep { path: shown.clone(), limit }).map(|()| true);
        }
        let anchor = match above {
            Some((handle, _)) if open.len().is_power_of_two() => Some(handle),
            Some((_, anchor)) => anchor,
            None => None,
        };
        if anchor == Some(node.handle) {
            return rules.failed(&shown, Error::DirectoryLoop { path: shown.clone() }).map(|()| true);
        }
        if rules.lend && !rules.dry_run && !self.calls_as_root() {
            self.lend(node.handle, node.attributes.mode).await?;
        }
        let handle = node.handle;
        let mut opened = Open { place, handle, path, rest: Vec::new(), waiting, left: false, anchor };
        let mut reader = self.dir_reader(node.handle, &shown);
        let mut calls = JoinSet::new();
        loop {
            match reader.next().await {
                Ok(None) => break,
                Ok(Some(items)) => self.remove_entries(items, &mut opened, &mut calls, rules).await?,
                Err(error) => {
                    rules.failed(&shown, error)?;
                    opened.left = true;
                    break;
                }
            }
        }
        while let Some(gone) = calls.join_next().await {
            opened.left |= !ended(gone)?;
        }
        bounded(waiting + opened.rest.len())?;
        open.push(opened);
        Ok(false)
    }

    /// Starts the removal of entries; keeps directories for later.
    async fn remove_entries(
        &self,
        items: Vec<DirItem>,
        opened: &mut Open,
        calls: &mut JoinSet<Result<bool, Error>>,
        rules: &Removal,
    ) -> Result<(), Error> {
        for item in items {
            let path = Removal::below(&opened.path, item.name.as_bytes());
            let place = Place { dir: opened.handle, name: item.name.clone() };
            let node = match self.node_of(opened.handle, item).await {
                Ok(node) => node,
                Err(error) if error.status() == Some(Status::NoEnt) => continue,
                Err(error) => {
                    rules.failed(&rules.shown(&path), error)?;
                    opened.left = true;
                    continue;
                }
            };
            if rules.spares(&place, &path, &node) {
                opened.left = true;
            } else if node.attributes.is_directory() {
                opened.rest.push((place, node, path));
            } else {
                if calls.len() >= rules.copying.options.parallel.max(1)
                    && let Some(gone) = calls.join_next().await
                {
                    opened.left |= !ended(gone)?;
                }
                let (client, rules) = (self.clone(), rules.clone());
                calls.spawn(async move { client.remove_name(place, path, false, rules).await });
            }
        }
        Ok(())
    }

    /// Removes a name. Returns whether nothing has it any more.
    async fn remove_name(
        &self,
        place: Place,
        path: Vec<u8>,
        directory: bool,
        rules: Removal,
    ) -> Result<bool, Error> {
        rules.deleting(&path, directory);
        if rules.dry_run {
            return Ok(true);
        }
        let object: DirOpArgs = place.args();
        let removed = if directory {
            self.procedures().rmdir(&RmdirArgs { object }).await
        } else {
            self.procedures().remove(&RemoveArgs { object }).await
        };
        match removed {
            Ok(_) => rules.deleted(),
            // Another client, or this call before a restart of the server, removed it.
            Err(error) if error.status() == Some(Status::NoEnt) => {}
            Err(error) => {
                let shown = rules.shown(&path);
                rules.failed(&shown, error.at(shown.as_bytes()))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the owner of a directory with this mode all permissions, if the caller may.
    ///
    /// # Errors
    /// The server is lost.
    pub(super) async fn lend(&self, directory: FileHandle, mode: u32) -> Result<(), Error> {
        if mode & OWNER_ALL == OWNER_ALL {
            return Ok(());
        }
        let attributes = SetAttributes { mode: Some(mode | OWNER_ALL), ..SetAttributes::default() };
        match self.set_attributes_of(directory, attributes).await {
            Err(error) if error.ends_everything() => Err(error),
            // Without the permissions, the first change in the directory fails and is reported.
            _ => Ok(()),
        }
    }
}

/// Returns the result of a task.
fn ended(result: Result<Result<bool, Error>, tokio::task::JoinError>) -> Result<bool, Error> {
    match result {
        Ok(gone) => gone,
        Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
        // A task is cancelled only when the set is dropped.
        Err(_) => Ok(false),
    }
}
