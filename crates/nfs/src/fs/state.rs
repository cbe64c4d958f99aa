//! The state directory: data that a server needs after a restart.
//!
//! It holds the key that authenticates file handles. Where the kernel's own file handles cannot be used, it
//! also holds the map from inodes to names ([`super::DirectoryFs`]). Only this user may read the directory,
//! and it never lies inside an export. The directory is opened once at the start, and an error there prevents
//! the start.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::exposure::is_exposed;

const KEY_FILE: &str = "handle-key";
const KEY_SIZE: usize = 16;
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
const FOREIGN_WRITE: u32 = 0o022;
const FOREIGN_ANY: u32 = 0o077;

/// Reason why a state directory cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system reported an error.
    #[error("state directory {}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Other users could change its content.
    #[error("{} belongs to user {owner} with mode {mode:04o}: it must belong to user {expected}, and nobody else \
             may {}", .path.display(), if *.secret { "read or write it" } else { "write to it" })]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Required owner.
        expected: u32,
        /// Whether other users must not even read it.
        secret: bool,
    },
    /// The key has a wrong length.
    #[error("{} has {length} bytes instead of {KEY_SIZE}: remove it to make a new key (all file handles that \
             clients hold become invalid)", .path.display())]
    DamagedKey {
        /// The file.
        path: PathBuf,
        /// Length of the file, in bytes.
        length: usize,
    },
    /// Clients could read and change it.
    #[error("state directory {} lies inside the export {}: name another one", .path.display(), .export.display())]
    InsideExport {
        /// The state directory.
        path: PathBuf,
        /// The export.
        export: PathBuf,
    },
    /// Another server uses it, or this server has the directory open already. Exports of one directory share
    /// one [`DirectoryFs`](super::DirectoryFs).
    #[error("{} is in use, by another server or for another export of the same directory", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// No candidate was usable.
    #[error("no place for a state directory outside of the exports: name one")]
    NoPlace,
}

impl StateError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// An open state directory.
pub struct StateDirectory {
    path: PathBuf,
    key: [u8; KEY_SIZE],
    follows: Arc<AtomicBool>,
}

/// A time in which a server follows another one ([`StateDirectory::follow`]).
#[derive(Debug)]
pub struct Following(Arc<AtomicBool>);

impl Following {
    /// Ends that time: a directory that another server has is refused again.
    pub fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for StateDirectory {
    /// Writes no part of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateDirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StateDirectory {
    /// Opens a directory; makes the directory and its key if they do not exist.
    ///
    /// # Errors
    /// Each variant of [`StateError`] but `InsideExport` and `NoPlace`.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIRECTORY)
            .create(path)
            .map_err(StateError::io(path))?;
        let path = fs::canonicalize(path).map_err(StateError::io(path))?;
        check_private(&path, &fs::metadata(&path).map_err(StateError::io(&path))?, false)?;
        let key = load_or_make_key(&path)?;
        Ok(Self { path, key, follows: Arc::default() })
    }

    /// Opens a directory as [`open`](Self::open) does, if it lies in none of `exports`; makes nothing otherwise.
    ///
    /// # Errors
    /// Each variant of [`StateError`] but `NoPlace`.
    pub fn open_outside(path: &Path, exports: &[&Path]) -> Result<Self, StateError> {
        // Checked before anything is made: a parent of the directory may lie in an export.
        match exports.iter().find(|export| is_exposed(path, export)) {
            Some(export) => {
                Err(StateError::InsideExport { path: path.to_owned(), export: export.to_path_buf() })
            }
            None => Self::open(path),
        }
    }

    /// Opens the usual directory: `$XDG_STATE_HOME/rpcrdma`, `~/.local/state/rpcrdma`, or else a directory of
    /// this user below the directory for temporary files. A restart of the machine may empty the latter.
    /// Directories inside one of `exports` are skipped.
    ///
    /// # Errors
    /// [`StateError::NoPlace`] if none is usable.
    pub fn open_default(exports: &[&Path]) -> Result<Self, StateError> {
        for candidate in Self::default_places() {
            match Self::open_outside(&candidate, exports) {
                Ok(state) => return Ok(state),
                Err(StateError::InsideExport { .. }) => {}
                Err(error) => tracing::warn!(%error, "state directory passed over"),
            }
        }
        Err(StateError::NoPlace)
    }

    /// Returns the places where [`open_default`](Self::open_default) looks, the first choice first.
    pub fn default_places() -> impl Iterator<Item = PathBuf> {
        let below_home = std::env::home_dir().map(|home| home.join(".local/state"));
        let state_home =
            std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let uid = rustix::process::geteuid().as_raw();
        [
            state_home.map(|path| path.join("rpcrdma")),
            below_home.map(|path| path.join("rpcrdma")),
            Some(PathBuf::from(format!("/var/tmp/rpcrdma-{uid}"))),
            Some(std::env::temp_dir().join(format!("rpcrdma-{uid}"))),
        ]
        .into_iter()
        .flatten()
    }

    /// Lets directories be opened that another server still has, because this server follows it: they share what that one
    /// learns until it ends. [`DirectoryFs::take_over`](super::DirectoryFs::take_over) is for the time after that.
    #[must_use]
    pub fn follow(&self) -> Following {
        self.follows.store(true, Ordering::Relaxed);
        Following(Arc::clone(&self.follows))
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the secret key that authenticates file handles.
    pub(crate) fn key(&self) -> &[u8; KEY_SIZE] {
        &self.key
    }

    /// Checks that clients of `export` cannot reach the state directory.
    ///
    /// # Errors
    /// [`StateError::InsideExport`].
    pub fn check_outside(&self, export: &Path) -> Result<(), StateError> {
        if is_exposed(&self.path, export) {
            return Err(StateError::InsideExport { path: self.path.clone(), export: export.to_owned() });
        }
        Ok(())
    }

    /// Opens a file of the state for this process alone. Returns whether it is: where the server
    /// [follows](Self::follow) another one, that one may have it still.
    pub(super) fn open_locked(&self, name: &str) -> Result<(PathBuf, File, bool), StateError> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        loop {
            let file = options.open(&path).map_err(StateError::io(&path))?;
            let is_alone = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if !is_alone && !self.follows.load(Ordering::Relaxed) {
                return Err(StateError::InUse { path });
            }
            // The server that had the file may have replaced it between the two calls.
            if is_in_place(&file, &path).map_err(StateError::io(&path))? {
                return Ok((path, file, is_alone));
            }
        }
    }
}

/// Returns whether the file has this name now, and no other file has replaced it.
pub(super) fn is_in_place(file: &File, path: &Path) -> io::Result<bool> {
    let (own, named) = (
        file.metadata()?,
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            named => named?,
        },
    );
    Ok((own.dev(), own.ino()) == (named.dev(), named.ino()))
}

fn check_private(path: &Path, metadata: &fs::Metadata, secret: bool) -> Result<(), StateError> {
    let expected = rustix::process::geteuid().as_raw();
    let refused = if secret { FOREIGN_ANY } else { FOREIGN_WRITE };
    if metadata.uid() != expected || metadata.mode() & refused != 0 {
        return Err(StateError::NotPrivate {
            path: path.to_owned(),
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
            expected,
            secret,
        });
    }
    Ok(())
}

/// Reads the key. A new key is first written completely under another name, so that no crash leaves an
/// incomplete key.
fn load_or_make_key(directory: &Path) -> Result<[u8; KEY_SIZE], StateError> {
    let path = directory.join(KEY_FILE);
    match File::open(&path) {
        Ok(mut file) => {
            check_private(&path, &file.metadata().map_err(StateError::io(&path))?, true)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(StateError::io(&path))?;
            let length = bytes.len();
            bytes.try_into().map_err(|_| StateError::DamagedKey { path, length })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key: [u8; KEY_SIZE] = rand::random();
            let new = directory.join(format!("{KEY_FILE}.{:016x}", rand::random::<u64>()));
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(PRIVATE_FILE)
                .open(&new)
                .map_err(StateError::io(&new))?;
            file.write_all(&key).and_then(|()| file.sync_all()).map_err(StateError::io(&new))?;
            // A hard link does not replace a file: if two servers start together, both use the key of the
            // first.
            let linked = fs::hard_link(&new, &path);
            fs::remove_file(&new).map_err(StateError::io(&new))?;
            match linked {
                Ok(()) => {
                    File::open(directory).and_then(|d| d.sync_all()).map_err(StateError::io(directory))?;
                    Ok(key)
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => load_or_make_key(directory),
                Err(source) => Err(StateError::Io { path, source }),
            }
        }
        Err(source) => Err(StateError::Io { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_private_and_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let first = StateDirectory::open(&path).unwrap();
        let second = StateDirectory::open(&path).unwrap();
        assert_eq!(first.key(), second.key());
        assert_eq!(fs::metadata(path.join(KEY_FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "no file is left over");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let place = tempfile::tempdir().unwrap();
        StateDirectory::open(place.path()).unwrap();
        fs::set_permissions(place.path().join(KEY_FILE), fs::Permissions::from_mode(0o640)).unwrap();
        let error = StateDirectory::open(place.path()).unwrap_err();
        assert!(matches!(error, StateError::NotPrivate { secret: true, .. }), "{error}");
    }

    #[test]
    fn a_damaged_key_is_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(KEY_FILE);
        fs::write(&path, b"short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = StateDirectory::open(place.path()).unwrap_err();
        assert!(matches!(error, StateError::DamagedKey { length: 5, .. }), "{error}");
    }

    #[test]
    fn there_is_no_place_outside_of_everything() {
        assert!(matches!(StateDirectory::open_default(&[Path::new("/")]), Err(StateError::NoPlace)));
    }

    #[test]
    fn state_inside_an_export_is_found_through_a_bind_mount() {
        let test = "fs::state::tests::state_inside_an_export_is_found_through_a_bind_mount";
        let (hidden, shown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bound = crate::fs::testing::with_bind_mount(test, hidden.path(), shown.path());
        let Some((hidden, shown)) = bound else { return };
        for (state, export) in [(&hidden, &shown), (&shown, &hidden)] {
            let state = StateDirectory::open(&state.join("state")).unwrap();
            let refused = state.check_outside(export);
            assert!(matches!(refused, Err(StateError::InsideExport { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_refused_state_directory_leaves_nothing_in_the_export() {
        let export = tempfile::tempdir().unwrap();
        let state = export.path().join("state");
        let refused = StateDirectory::open_outside(&state, &[export.path()]).unwrap_err();
        assert!(matches!(refused, StateError::InsideExport { .. }), "{refused}");
        assert!(!state.exists());
    }

    #[test]
    fn state_inside_an_export_is_refused() {
        let export = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&export.path().join("deep/state")).unwrap();
        assert!(matches!(state.check_outside(export.path()), Err(StateError::InsideExport { .. })));
        let elsewhere = tempfile::tempdir().unwrap();
        state.check_outside(elsewhere.path()).unwrap();
        assert!(is_exposed(&export.path().join("not/yet/there"), export.path()));
    }
}
