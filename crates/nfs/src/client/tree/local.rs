//! Local files and directories of a copy, accessed on threads where calls may block.
//!
//! *Directories* ([`LocalDir`]) know their parent and their name in it. System calls get a descriptor and one
//! name. So a path may be longer than any system call accepts, and a link placed in the way is not followed.
//! Few descriptors stay open. A directory whose descriptor was closed is opened again from the nearest open
//! directory above it.
//!
//! *Targets.* A [`Sink`] receives the content of a file. A regular file is written under a temporary name,
//! and renamed after a successful close. A device, a pipe, or a file with several names that the caller named
//! is written in place.

mod attributes;
mod directory;
mod links;
mod names;
mod part;
mod sink;
mod source;

use std::io;
use std::path::PathBuf;

pub(super) use self::attributes::{
    OWNER_ALL, PRIVATE_FILE, apply_to, id_of, is_type, kept, kind_of, stat_of,
};
pub(super) use self::directory::{LocalDir, LocalEntry, list};
pub(super) use self::links::{apply_to_link, make_link, make_symlink};
pub(super) use self::names::{Spot, spot_of};
pub(super) use self::sink::{Sink, Wanted};
pub(super) use self::source::{
    Content, Opened, SHORT, next_data, open_regular, read_at, read_link, read_next,
};
use crate::client::Error;

/// Runs a closure that may block on a thread for such work. `path` is for errors.
pub(super) async fn blocking<T: Send + 'static>(
    path: impl FnOnce() -> PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(source)) => Err(Error::Local { path: path(), source }),
        Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
        Err(_) => {
            let source = io::Error::other("the runtime is shutting down");
            Err(Error::Local { path: path(), source })
        }
    }
}
