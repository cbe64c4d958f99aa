//! Synchronisation: a target directory is made equal to a source directory, and only differences are copied
//! ([`compare`](super::compare)).
//!
//! *Replacement.* Files and links replace each other. Only with [`SyncOptions::delete`](super::SyncOptions::delete), a
//! directory, device, pipe or socket gives way to an object of another type, and any object to a directory.
//!
//! *Deletion.* With that option, names that the source lacks are removed after all copies. If the listing of a source
//! directory failed, its copy loses nothing. Links are removed, never followed. Objects that this copy made stay, even if
//! the target lists them under another spelling. The source stays if it lies in the target.

mod content;
mod get;
mod put;

use super::{CopyOptions, Copying};

/// Returns the options as a sync uses them: it keeps attributes, copies whole trees and replaces files by renames.
fn copying(options: &CopyOptions) -> Copying {
    Copying::syncing(&CopyOptions { recursive: true, preserve: true, in_place: false, ..options.clone() })
}
