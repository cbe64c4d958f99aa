//! Removal of local objects, directories with all their content. Links are removed, never followed.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, unlinkat};

use super::super::identity::Identity;
use super::super::local::{LocalDir, LocalEntry, Spot, is_type, list};
use super::Removal;
use crate::client::Error;

/// Result of a removal.
#[derive(Debug, Default)]
pub(in crate::client::tree) struct Removed {
    /// Whether something stays.
    pub(in crate::client::tree) left: bool,
    /// Objects that could not be removed, by their paths for messages.
    pub(in crate::client::tree) failures: Vec<(String, Error)>,
}

impl Removed {
    fn failed(&mut self, path: &[u8], rules: &Removal, spot: &Spot, source: io::Error) {
        self.failures.push((rules.shown(path), Error::Local { path: spot.path(), source }));
    }
}

/// A directory whose content is removed first.
struct Open {
    spot: Spot,
    dir: Arc<LocalDir>,
    path: Vec<u8>,
    rest: Vec<LocalEntry>,
    left: bool,
}

/// Removes an object. `path` is its path below the top of the tree. The directories on the way are kept in a list,
/// so that depth needs no stack.
pub(in crate::client::tree) fn remove(spot: &Spot, path: Vec<u8>, rules: &Removal) -> Removed {
    let mut removed = Removed::default();
    let mut open: Vec<Open> = Vec::new();
    let mut left = enter(spot.clone(), path, rules, &mut open, &mut removed);
    while let Some(last) = open.last_mut() {
        last.left |= std::mem::take(&mut left);
        if let Some(entry) = last.rest.pop() {
            let path = Removal::below(&last.path, entry.name.as_bytes());
            let spot = Spot { dir: Arc::clone(&last.dir), name: entry.name };
            left = enter(spot, path, rules, &mut open, &mut removed);
        } else if let Some(Open { spot, path, left: stays, .. }) = open.pop() {
            left = stays || !unlink(&spot, &path, true, rules, &mut removed);
        }
    }
    removed.left = left;
    removed
}

/// Removes an object, or adds a directory to the list. Returns whether the object stays for certain.
fn enter(spot: Spot, path: Vec<u8>, rules: &Removal, open: &mut Vec<Open>, removed: &mut Removed) -> bool {
    let stat = match spot.existing() {
        Ok(Some(stat)) => stat,
        Ok(None) => return false,
        Err(error) => {
            removed.failed(&path, rules, &spot, error);
            return true;
        }
    };
    let directory = is_type(&stat, FileType::Directory);
    match spot.is_taken(&stat, &rules.copying.run) {
        Ok(taken) if taken || rules.filter.is_excluded(&path, directory) => return true,
        Ok(_) => {}
        Err(error) => {
            removed.failed(&path, rules, &spot, error);
            return true;
        }
    }
    if !directory {
        return !unlink(&spot, &path, false, rules, removed);
    }
    if rules.source == Some(Identity::from(&stat)) {
        let shown = rules.shown(&path);
        removed.failures.push((shown.clone(), Error::IsSource { path: shown }));
        return true;
    }
    let dir = spot.dir.entry(&spot.name);
    if !rules.dry_run && !rustix::process::geteuid().is_root() {
        dir.lend(stat.stx_mode.into());
    }
    match list(&dir) {
        Ok((rest, _)) => {
            open.push(Open { spot, dir, path, rest, left: false });
            false
        }
        Err(error) => {
            removed.failed(&path, rules, &spot, error);
            true
        }
    }
}

/// Removes a name. Returns whether nothing has it any more.
fn unlink(spot: &Spot, path: &[u8], directory: bool, rules: &Removal, removed: &mut Removed) -> bool {
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rules.deleting(path, directory);
    if rules.dry_run {
        return true;
    }
    match spot.dir.fd().and_then(|dir| Ok(unlinkat(&*dir, &spot.name, flags)?)) {
        Ok(()) => rules.deleted(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            removed.failed(path, rules, spot, error);
            return false;
        }
    }
    true
}
