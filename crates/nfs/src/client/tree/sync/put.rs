//! Synchronisation of a directory at the server with a local directory.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::Statx;

use super::super::compare::{Comparison, Here, Name, Seen, Verdict, Walked, is_kept_without_delete};
use super::super::identity::Identity;
use super::super::local::{LocalDir, Spot, blocking, open_regular, read_link, stat_of};
use super::super::partial::part_name;
use super::super::put::{
    Directory, FileKey, Further, Goal, Made, Put, Putting, ServerHere, Source, Target, There,
};
use super::super::remove::Removal;
use super::super::{Change, CopyEvent, CopyOptions, CopyReport, Kept, Owned, article};
use super::content::is_same;
use crate::client::walk::{Place, lossy};
use crate::client::{Client, Error, Node};
use crate::wire::{ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, AccessArgs, FileName, FileType, Status};

impl Client {
    /// Makes the directory `target` of the export equal to the local directory `source`, by copies of what
    /// differs. As [`sync_to_local`](Self::sync_to_local); the root of an export keeps its own attributes.
    ///
    /// # Errors
    /// As there.
    pub async fn sync_from_local(
        &self,
        source: impl AsRef<Path>,
        target: impl AsRef<[u8]>,
        options: &CopyOptions,
    ) -> Result<CopyReport, Error> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let named = source.to_owned();
        let open = move || {
            let local = LocalDir::named(&named)?;
            let stat = local.stat()?;
            Ok((local, stat))
        };
        let (local, stat) = blocking(|| source.to_owned(), open).await?;
        let there = match self.lookup(target).await {
            Ok(node) if node.attributes.is_directory() => Target::Found(node),
            Ok(node) => {
                let seen = crate::client::slash::seen(node.attributes.file_type);
                return Err(Error::NotDirectory { path: lossy(target), seen });
            }
            Err(error) if error.status() == Some(Status::NoEnt) => {
                Target::Place(self.place_for(target, true).await?)
            }
            Err(error) => return Err(error),
        };
        let root = self.calls_as_root() && !self.is_nobody().await?;
        let comparison = Comparison::new(&options.sync, self.info().time_delta, root, self.calling_groups());
        let path = source.display().to_string();
        let mut put = Put::new(self, super::copying(options), &path, target, Some(comparison));
        put.top_of_source = Some(Arc::clone(&local));
        let kept = super::super::local::kept(&stat);
        put.tree(Directory { local, kept, target: there, depth: 0 }).await?;
        put.complete().await
    }

    /// Returns whether the server gives root fewer rights to the root of the export than root has. If all users have
    /// them, the answer proves nothing.
    async fn is_nobody(&self) -> Result<bool, Error> {
        let access = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY;
        match self.procedures().access(&AccessArgs { object: self.root(), access }).await {
            Ok(granted) => Ok(granted.access & access != access),
            Err(error) if error.ends_everything() => Err(error),
            Err(_) => Ok(false),
        }
    }
}

impl Put {
    /// Returns the entries of a directory at the server before the copy, if this is a sync. `there` is the
    /// directory, if the copy did not make it.
    pub(in crate::client::tree) async fn here(
        &self,
        local: &LocalDir,
        made: Made,
        there: Option<Seen>,
    ) -> Result<ServerHere, Error> {
        let (client, copying) = (&self.with.client, &self.with.copying);
        let mut here = ServerHere::empty();
        if self.with.sync.is_some() || !copying.options.filter.is_empty() {
            here.prefix = self.with.prefix_of(local);
        }
        let Some(sync) = &self.with.sync else { return Ok(here) };
        if !copying.is_dry() {
            // This directory is not to be removed, whatever other name leads to it.
            copying.run.take((made.fsid, made.fileid));
        }
        let Some(there) = there else {
            here.changed = true;
            return Ok(here);
        };
        if sync.lends(&there) {
            here.changed = true;
            client.lend(made.handle, there.kept.mode).await?;
        }
        let shown = lossy(&self.with.target_in(&here.prefix));
        let mut reader = client.dir_reader(made.handle, &shown);
        while let Some(items) = reader.next().await? {
            for item in items {
                let name = item.name.clone();
                match client.node_of(made.handle, item).await {
                    Ok(node) => drop(here.entries.insert(name, node)),
                    Err(error) if error.status() == Some(Status::NoEnt) => {}
                    Err(error) => return Err(error.at(&self.with.target_in(name.as_bytes()))),
                }
            }
        }
        Ok(here)
    }

    /// Starts what is to be done about an entry. Returns the directory at the server before the copy, if any, for a
    /// directory to walk. Returns `None` if the caller has nothing to do.
    pub(in crate::client::tree) async fn synced(
        &mut self,
        spot: &Spot,
        stat: &Statx,
        place: &Place,
        here: &mut ServerHere,
    ) -> Result<Option<Option<Node>>, Error> {
        let source = Seen::from(stat);
        let mut there = here.entries.remove(&place.name);
        let path = self.with.path_in(spot);
        if !matches!(source.kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
            self.with.copying.skipped(&path, "neither a file nor a directory nor a symbolic link");
            return Ok(None);
        }
        let directory = source.kind == FileType::Directory;
        if let Some(node) = there
            && node.attributes.file_type != source.kind
            && (directory || is_kept_without_delete(node.attributes.file_type))
        {
            here.changed = true;
            if !self.clear(place, &path, &source, node, here).await? {
                return Ok(None);
            }
            there = None;
        }
        here.changed |= there.is_none();
        match source.kind {
            FileType::Directory => return Ok(Some(there)),
            FileType::Regular => {
                let options = &self.with.copying.options;
                if options.partial {
                    here.parts.push(part_name(spot.name.as_bytes(), &Identity::from(stat), options));
                }
                let several = source.nlink > 1;
                let key = several.then_some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino));
                let old = match there {
                    Some(node) if node.attributes.file_type == FileType::Regular => There::File(node),
                    // A rename replaces a link without a look at it.
                    _ => There::Nothing,
                };
                let goal = Goal { place: place.clone(), there: old };
                let entry = Entry { path, spot: spot.clone(), goal, source, key };
                self.synced_file(entry, there, here).await?;
            }
            _ => {
                here.changed = true;
                let with = self.with.clone();
                let task =
                    Box::pin(with.synced_link(path.clone(), spot.clone(), place.clone(), source, there));
                self.tasks.start(path, task).await?;
            }
        }
        Ok(None)
    }

    /// Removes an object in the way of one of another type. Returns whether it is gone.
    async fn clear(
        &self,
        place: &Place,
        path: &str,
        source: &Seen,
        node: Node,
        here: &ServerHere,
    ) -> Result<bool, Error> {
        let copying = &self.with.copying;
        if !copying.options.sync.delete {
            let (what, there) = (article(source.kind), article(node.attributes.file_type));
            let error = Error::OtherType { path: path.to_owned(), what, there };
            return copying.failed(path, error).map(|()| false);
        }
        let rules = self.removal().await?;
        let below = Removal::below(&here.prefix, place.name.as_bytes());
        let gone = self.with.client.remove_object(place.clone(), node, below, &rules).await?;
        if !gone && !rules.incomplete.load(Ordering::Relaxed) {
            copying.failed(path, Error::NotEmptied { path: path.to_owned() })?;
        }
        Ok(gone)
    }

    async fn removal(&self) -> Result<Removal, Error> {
        let source = match self.top_of_source.clone() {
            Some(dir) => {
                let path = dir.path();
                Some(blocking(|| path, move || dir.stat().map(|stat| Identity::from(&stat))).await?)
            }
            None => None,
        };
        Ok(Removal::new(&self.with.copying, source, lossy(&self.with.target)))
    }

    async fn synced_file(
        &mut self,
        entry: Entry,
        there: Option<Node>,
        here: &mut ServerHere,
    ) -> Result<(), Error> {
        let Some(sync) = self.with.sync.clone() else { return Ok(()) };
        let copying = self.with.copying.clone();
        let (path, source, key) = (entry.path.clone(), entry.source, entry.key);
        let seen = there.map(|node| Seen::from(&node.attributes));
        if let Some(key) = key
            && !self.met.insert(key)
        {
            let name = self.linked.further(&source, seen.as_ref());
            if name == Name::There {
                copying.unchanged(&path);
                return Ok(());
            }
            here.changed = true;
            if name == Name::New {
                copying.change(Change::HardLink, &path);
            }
            if !copying.is_dry() || name == Name::Compared {
                let Entry { spot, goal, .. } = entry;
                self.further.push(Further { key, spot, goal, kept: source.kept, name });
            }
            return Ok(());
        }
        let verdict = self.linked.decide(&sync, &copying.run, &source, seen.as_ref());
        let with = self.with.clone();
        match (verdict, there) {
            (Verdict::Same, Some(node)) => {
                with.completes(key, node.handle);
                copying.unchanged(&path);
            }
            (Verdict::Attributes, Some(node)) => {
                copying.change(Change::Attributes, &path);
                if !copying.is_dry() {
                    self.tasks.start(path, Box::pin(with.attributes_only(entry, node))).await?;
                }
            }
            (Verdict::Compare, Some(node)) => {
                here.changed = true;
                let differ = sync.differ(&source, &Seen::from(&node.attributes));
                self.tasks.start(path, Box::pin(with.compared(entry, node, differ))).await?;
            }
            _ => {
                here.changed = true;
                copying.change(Change::Copy, &path);
                copying.tell(CopyEvent::Found { path: &path, bytes: source.size });
                if !copying.is_dry() {
                    self.tasks.start(path, Box::pin(with.copied(entry))).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns what is left to do for a directory after the walk of its entries. Notes what the source lacks.
    pub(in crate::client::tree) fn synced_directory(
        &mut self,
        local: &LocalDir,
        kept: Kept,
        made: Made,
        there: Option<Seen>,
        here: ServerHere,
    ) -> Walked {
        let Here { entries, parts, mut changed, prefix } = here;
        let Some(sync) = &self.with.sync else { return Walked { new: made.new, finish: true } };
        if sync.options.delete {
            let parts: HashSet<_> = parts.into_iter().collect();
            let mut extra: Vec<FileName> =
                entries.into_keys().filter(|name| !parts.contains(name.as_bytes())).collect();
            extra.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
            if !extra.is_empty() {
                changed = true;
                self.extra.push((made.handle, extra, prefix));
            }
        }
        sync.walked(&self.with.copying, &self.with.path_of(local), &kept, there.as_ref(), changed)
    }

    /// Removes what the source lacks.
    pub(in crate::client::tree) async fn remove_extra(&mut self) -> Result<(), Error> {
        if self.extra.is_empty() {
            return Ok(());
        }
        let rules = self.removal().await?;
        for (dir, entries, prefix) in std::mem::take(&mut self.extra) {
            for name in entries {
                let below = Removal::below(&prefix, name.as_bytes());
                // The name may belong to a new object, where two spellings are one name.
                match self.with.client.lookup_in(dir, name.clone()).await {
                    Ok(node) => {
                        self.with.client.remove_object(Place { dir, name }, node, below, &rules).await?;
                    }
                    Err(error) if error.status() == Some(Status::NoEnt) => {}
                    Err(error) => rules.failed(&rules.shown(&below), error)?,
                }
            }
        }
        Ok(())
    }
}

/// A file of the source, and its destination.
struct Entry {
    path: String,
    spot: Spot,
    goal: Goal,
    source: Seen,
    key: Option<FileKey>,
}

impl Putting {
    /// Returns the path of an object below the target, for messages.
    fn target_in(&self, below: &[u8]) -> Vec<u8> {
        [&self.target, b"/".as_slice(), below].concat()
    }

    async fn copied(self, entry: Entry) -> Result<(), Error> {
        let Entry { path, spot, goal, source, key } = entry;
        self.file(path, Source::Tree(spot), goal, source.kept, key).await
    }

    /// Sets the attributes of a file whose content is equal.
    async fn attributes_only(self, entry: Entry, node: Node) -> Result<(), Error> {
        let Entry { path, source, key, .. } = entry;
        let kept = self.client.keep(node.handle, source.kept, false).await;
        let owned = kept.map_err(|error| error.at(path.as_bytes()))?;
        self.sync.iter().for_each(|sync| sync.tried(owned));
        self.copying.owner(owned);
        self.completes(key, node.handle);
        self.copying.done(&path, |report| &mut report.attributes);
        Ok(())
    }

    /// Compares the content of two files of one length, and copies it if it differs. `differ` tells whether
    /// attributes differ.
    async fn compared(self, entry: Entry, node: Node, differ: bool) -> Result<(), Error> {
        let (path, spot) = (entry.path.clone(), entry.spot.clone());
        let place = spot.clone();
        let open = move || {
            let file = open_regular(&place)?;
            let size = stat_of(&file)?.stx_size;
            Ok((file, size))
        };
        let (local, size) = blocking(|| spot.path(), open).await?;
        let file = self.client.file(node.handle, &path);
        let same = size == entry.source.size && is_same(&file, local, size, || spot.path()).await?;
        let copying = self.copying.clone();
        match (same, differ) {
            (true, false) => {
                self.completes(entry.key, node.handle);
                copying.unchanged(&path);
                Ok(())
            }
            (true, true) => {
                copying.change(Change::Attributes, &path);
                if copying.is_dry() {
                    self.completes(entry.key, node.handle);
                    return Ok(());
                }
                self.attributes_only(entry, node).await
            }
            (false, _) => {
                copying.change(Change::Copy, &path);
                copying.tell(CopyEvent::Found { path: &path, bytes: entry.source.size });
                if copying.is_dry() { Ok(()) } else { self.copied(entry).await }
            }
        }
    }

    /// Makes a symbolic link equal to that of the source.
    async fn synced_link(
        self,
        path: String,
        spot: Spot,
        place: Place,
        source: Seen,
        there: Option<Node>,
    ) -> Result<(), Error> {
        let there = there.filter(|node| node.attributes.file_type == FileType::Symlink);
        if let (Some(node), Some(sync)) = (there, &self.sync) {
            let from = spot.clone();
            let target = blocking(|| spot.path(), move || read_link(&from)).await?;
            let same = self.client.read_link_of(node.handle).await.is_ok_and(|old| old == target);
            let differ = sync.differ(&source, &Seen::from(&node.attributes));
            if same && !differ {
                self.copying.unchanged(&path);
                return Ok(());
            }
            if same {
                self.copying.change(Change::Attributes, &path);
                if !self.copying.is_dry() {
                    // Some servers do not let clients set attributes of links.
                    let kept = self.client.keep(node.handle, source.kept, true).await;
                    self.copying.owner(kept.unwrap_or(Owned::ALL));
                    self.copying.done(&path, |report| &mut report.attributes);
                }
                return Ok(());
            }
        }
        self.copying.change(Change::Symlink, &path);
        if self.copying.is_dry() {
            return Ok(());
        }
        self.symlink(path, spot, place, source.kept).await
    }
}
