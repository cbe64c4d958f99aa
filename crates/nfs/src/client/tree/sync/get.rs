//! Synchronisation of a local directory with a directory at the server.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Statx;

use super::super::compare::{Comparison, Here, Name, Seen, Verdict, Walked, is_kept_without_delete};
use super::super::get::{Directory, Further, Get, Getting, Goal, LocalHere};
use super::super::identity::Identity;
use super::super::local::{
    LocalDir, Spot, apply_to, apply_to_link, blocking, list, open_regular, read_link, spot_of,
};
use super::super::partial::part_name;
use super::super::remove::{Removal, remove};
use super::super::{Change, CopyEvent, CopyOptions, CopyReport, Kept, Owned, article};
use super::content::is_same;
use crate::client::walk::lossy;
use crate::client::{Client, Error, Node};
use crate::wire::FileType;

impl Client {
    /// Makes the local directory `target` equal to the directory `source` of the export, by copies of what differs.
    /// `target` is made if it is absent. No directory is ever made *in* it for `source` itself. Attributes are
    /// always kept, and trees always copied whole. See [`CopyOptions::sync`].
    ///
    /// # Errors
    /// [`Error::NotDirectory`] if one of both is another object. The copy cannot start, or the server is lost. The
    /// report has single objects that could not be copied or removed.
    pub async fn sync_to_local(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<Path>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let path = if source.is_empty() { "/".to_owned() } else { lossy(source) };
        let node = self.lookup(source).await?;
        if !node.attributes.is_directory() {
            let seen = crate::client::slash::seen(node.attributes.file_type);
            return Err(Error::NotDirectory { path, seen });
        }
        let named = target.to_owned();
        let (local, own, there) = blocking(|| target.to_owned(), move || target_of(&named)).await?;
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().chain([rustix::process::getegid()]).map(|gid| gid.as_raw()).collect();
        let root = rustix::process::geteuid().is_root();
        let comparison = Comparison::new(&options.sync, self.info().time_delta, root, groups);
        let mut get = Get::new(self, super::copying(options), path, Some(comparison));
        get.with.own = own;
        get.source = Some(node.handle);
        get.target = Some(Arc::clone(&local));
        get.tree(Directory::first(node, local, there)).await?;
        get.complete().await
    }
}

/// Returns the directory of this path, the number of names in it that are not the source's, and what it is now.
fn target_of(path: &Path) -> io::Result<(Arc<LocalDir>, usize, Option<Seen>)> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "is not a directory: sync makes directories equal",
        )),
        Ok(_) => {
            let dir = LocalDir::named(path)?;
            let there = Seen::from(&dir.stat()?);
            Ok((dir, 0, Some(there)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let spot = spot_of(path)?;
            Ok((spot.dir.entry(&spot.name), 1, None))
        }
        Err(error) => Err(error),
    }
}

impl Get {
    /// Returns the entries of a local directory before the copy, if this is a sync.
    pub(in crate::client::tree) async fn here(
        &self,
        directory: &Directory,
        new: bool,
    ) -> Result<LocalHere, Error> {
        let Directory { local, there, .. } = directory;
        let mut here = LocalHere::empty();
        if self.with.sync.is_some() || !self.with.copying.options.filter.is_empty() {
            here.prefix = self.with.prefix_of(local);
        }
        let Some(sync) = &self.with.sync else { return Ok(here) };
        if !self.with.copying.is_dry() {
            // This directory is not to be removed, whatever other name leads to it.
            let dir = Arc::clone(local);
            self.with.copying.run.take(blocking(|| local.path(), move || dir.id()).await?);
        }
        let Some(there) = there else {
            here.changed = true;
            return Ok(here);
        };
        let lent = sync.lends(there).then_some(there.kept.mode);
        here.changed = new || lent.is_some();
        let dir = Arc::clone(local);
        let look = move || {
            lent.into_iter().for_each(|mode| dir.lend(mode));
            list(&dir).map(|(entries, _)| entries)
        };
        for entry in blocking(|| local.path(), look).await? {
            match entry.stat {
                Ok(stat) => drop(here.entries.insert(entry.name, stat)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(Error::Local { path: local.path().join(&entry.name), source });
                }
            }
        }
        Ok(here)
    }

    /// Decides about the local object in the place of an entry that is left out.
    pub(in crate::client::tree) fn leave_excluded(
        &self,
        name: OsString,
        there: Option<Statx>,
        here: &mut LocalHere,
    ) {
        if let Some(there) = there.filter(|_| self.with.copying.options.sync.delete_excluded) {
            here.entries.insert(name, there);
        }
    }

    /// Starts what is to be done about an entry. Returns the local directory before the copy, if any, for a
    /// directory to walk. Returns `None` if the caller has nothing to do.
    pub(in crate::client::tree) async fn synced(
        &mut self,
        spot: &Spot,
        node: &Node,
        there: Option<Statx>,
        here: &mut LocalHere,
    ) -> Result<Option<Option<Seen>>, Error> {
        let source = Seen::from(&node.attributes);
        let mut there = there.as_ref().map(Seen::from);
        let path = self.with.path_in(&spot.dir, &spot.name);
        if !matches!(source.kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
            self.with.copying.skipped(&path, article(source.kind));
            return Ok(None);
        }
        let directory = source.kind == FileType::Directory;
        if let Some(seen) = there
            && seen.kind != source.kind
            && (directory || is_kept_without_delete(seen.kind))
        {
            here.changed = true;
            if !self.clear(spot, &path, &source, &seen, here).await? {
                return Ok(None);
            }
            there = None;
        }
        here.changed |= there.is_none();
        match source.kind {
            FileType::Directory => return Ok(Some(there)),
            FileType::Regular => self.synced_file(path, spot.clone(), *node, source, there, here).await?,
            _ => {
                here.changed = true;
                let task = Box::pin(self.with.clone().synced_link(path.clone(), spot.clone(), *node, there));
                self.tasks.start(path, task).await?;
            }
        }
        Ok(None)
    }

    /// Removes a local object in the way of one of another type. Returns whether it is gone.
    async fn clear(
        &self,
        spot: &Spot,
        path: &str,
        source: &Seen,
        seen: &Seen,
        here: &LocalHere,
    ) -> Result<bool, Error> {
        let copying = &self.with.copying;
        if !copying.options.sync.delete {
            let (what, there) = (article(source.kind), article(seen.kind));
            let error = Error::OtherType { path: path.to_owned(), what, there };
            return copying.failed(path, error).map(|()| false);
        }
        let rules = self.removal().await?;
        let (spot, below) = (spot.clone(), Removal::below(&here.prefix, spot.name.as_bytes()));
        let removed = blocking(|| spot.path(), {
            let spot = spot.clone();
            move || Ok(remove(&spot, below, &rules))
        })
        .await?;
        if removed.left && removed.failures.is_empty() {
            copying.failed(path, Error::NotEmptied { path: path.to_owned() })?;
        }
        for (path, error) in removed.failures {
            copying.failed(&path, error)?;
        }
        Ok(!removed.left)
    }

    async fn removal(&self) -> Result<Removal, Error> {
        let source = match self.source {
            Some(handle) => Some(Identity::from(&self.with.client.attributes(handle).await?)),
            None => None,
        };
        let target = self.target_path();
        Ok(Removal::new(&self.with.copying, source, target))
    }

    async fn synced_file(
        &mut self,
        path: String,
        spot: Spot,
        node: Node,
        source: Seen,
        there: Option<Seen>,
        here: &mut LocalHere,
    ) -> Result<(), Error> {
        let Some(sync) = self.with.sync.clone() else { return Ok(()) };
        let copying = self.with.copying.clone();
        if copying.options.partial {
            here.parts.push(part_name(
                spot.name.as_bytes(),
                &Identity::from(&node.attributes),
                &copying.options,
            ));
        }
        let key = source.id;
        if source.nlink > 1 {
            if let Some(first) = self.first.get(&key) {
                let name = self.linked.further(&source, there.as_ref());
                if name == Name::There {
                    copying.unchanged(&path);
                    return Ok(());
                }
                here.changed = true;
                if name == Name::New {
                    copying.change(Change::HardLink, &path);
                }
                if !copying.is_dry() || name == Name::Compared {
                    self.further.push(Further { key, first: first.clone(), spot, node, name });
                }
                return Ok(());
            }
            self.first.insert(key, spot.clone());
        }
        let verdict = self.linked.decide(&sync, &copying.run, &source, there.as_ref());
        let with = self.with.clone();
        match verdict {
            Verdict::Same => {
                with.completes(&node.attributes);
                copying.unchanged(&path);
            }
            Verdict::Attributes => {
                copying.change(Change::Attributes, &path);
                if !copying.is_dry() {
                    self.tasks.start(path.clone(), Box::pin(with.attributes_only(path, spot, node))).await?;
                }
            }
            Verdict::Compare => {
                here.changed = true;
                let differ = there.is_some_and(|there| sync.differ(&source, &there));
                self.tasks.start(path.clone(), Box::pin(with.compared(path, spot, node, differ))).await?;
            }
            Verdict::Copy => {
                here.changed = true;
                copying.change(Change::Copy, &path);
                copying.tell(CopyEvent::Found { path: &path, bytes: source.size });
                if !copying.is_dry() {
                    self.tasks.start(path.clone(), Box::pin(with.file(path, Goal::Tree(spot), node))).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns what is left to do for a directory after the walk of its entries. Notes what the source lacks.
    pub(in crate::client::tree) fn synced_directory(
        &mut self,
        directory: &Directory,
        here: LocalHere,
        new: bool,
    ) -> Walked {
        let Here { entries, parts, mut changed, prefix } = here;
        let Some(sync) = &self.with.sync else { return Walked { new, finish: true } };
        if sync.options.delete {
            let parts: std::collections::HashSet<_> = parts.into_iter().collect();
            let extra = entries.into_keys().filter(|name| !parts.contains(name.as_bytes()));
            let mut extra: Vec<_> = extra.collect();
            extra.sort();
            if !extra.is_empty() {
                changed = true;
                self.extra.push((Arc::clone(&directory.local), extra, prefix));
            }
        }
        let path = self.with.path_of(&directory.local);
        sync.walked(&self.with.copying, &path, &directory.kept, directory.there.as_ref(), changed)
    }

    /// Removes what the source lacks.
    pub(in crate::client::tree) async fn remove_extra(&mut self) -> Result<(), Error> {
        if self.extra.is_empty() {
            return Ok(());
        }
        let rules = self.removal().await?;
        for (dir, names, prefix) in std::mem::take(&mut self.extra) {
            let rules = rules.clone();
            let at = Arc::clone(&dir);
            let work = move || {
                let mut failures = Vec::new();
                for name in names {
                    let below = Removal::below(&prefix, name.as_bytes());
                    let spot = Spot { dir: Arc::clone(&dir), name };
                    failures.extend(remove(&spot, below, &rules).failures);
                }
                Ok(failures)
            };
            for (path, error) in blocking(|| at.path(), work).await? {
                self.with.copying.failed(&path, error)?;
            }
        }
        Ok(())
    }

    /// Returns the path of the target for messages.
    fn target_path(&self) -> String {
        self.target.as_ref().map(|dir| dir.path().display().to_string()).unwrap_or_default()
    }
}

impl Getting {
    /// Sets the attributes of a file whose content is equal. A file that this user may not open is copied.
    async fn attributes_only(self, path: String, spot: Spot, node: Node) -> Result<(), Error> {
        let (place, kept) = (spot.clone(), Kept::from(&node.attributes));
        match blocking(|| spot.path(), move || apply_to(&place, kept)).await? {
            Some(owned) => {
                self.sync.iter().for_each(|sync| sync.tried(owned));
                self.copying.owner(owned);
                self.completes(&node.attributes);
                self.copying.done(&path, |report| &mut report.attributes);
                Ok(())
            }
            None => {
                self.copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
                self.file(path, Goal::Tree(spot), node).await
            }
        }
    }

    /// Compares the content of two files of one length, and copies it if it differs. `differ` tells whether
    /// attributes differ.
    async fn compared(self, path: String, spot: Spot, node: Node, differ: bool) -> Result<(), Error> {
        let place = spot.clone();
        let same = match blocking(|| spot.path(), move || open_regular(&place)).await {
            Ok(local) => {
                let file = self.client.file(node.handle, &path);
                is_same(&file, local, node.attributes.size, || spot.path()).await?
            }
            // The file cannot be read, but perhaps replaced.
            Err(_) => false,
        };
        let copying = self.copying.clone();
        match (same, differ) {
            (true, false) => {
                self.completes(&node.attributes);
                copying.unchanged(&path);
                return Ok(());
            }
            (true, true) => copying.change(Change::Attributes, &path),
            (false, _) => {
                copying.change(Change::Copy, &path);
                copying.tell(CopyEvent::Found { path: &path, bytes: node.attributes.size });
            }
        }
        match same {
            _ if copying.is_dry() => {
                if same {
                    self.completes(&node.attributes);
                }
                Ok(())
            }
            true => self.attributes_only(path, spot, node).await,
            false => self.file(path, Goal::Tree(spot), node).await,
        }
    }

    /// Makes a symbolic link equal to that of the source.
    async fn synced_link(
        self,
        path: String,
        spot: Spot,
        node: Node,
        there: Option<Seen>,
    ) -> Result<(), Error> {
        let source = Seen::from(&node.attributes);
        let there = there.filter(|there| there.kind == FileType::Symlink);
        if let (Some(there), Some(sync)) = (there, &self.sync) {
            let target = self.client.read_link_of(node.handle).await;
            let target = target.map_err(|error| error.at(path.as_bytes()))?;
            let place = spot.clone();
            let same =
                blocking(|| spot.path(), move || read_link(&place)).await.is_ok_and(|old| old == target);
            if same && !sync.differ(&source, &there) {
                self.copying.unchanged(&path);
                return Ok(());
            }
            if same {
                self.copying.change(Change::Attributes, &path);
                if self.copying.is_dry() {
                    return Ok(());
                }
                let (place, kept) = (spot.clone(), source.kept);
                let set = move || Ok(apply_to_link(&place, &target, &kept));
                self.copying.owner(blocking(|| spot.path(), set).await?.unwrap_or(Owned::ALL));
                self.copying.done(&path, |report| &mut report.attributes);
                return Ok(());
            }
        }
        self.copying.change(Change::Symlink, &path);
        if self.copying.is_dry() {
            return Ok(());
        }
        self.symlink(path, spot, node).await
    }
}
