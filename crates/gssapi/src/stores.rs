//! Names of the library's stores: keytabs and caches of tickets.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns the library's name of a keytab in a file. It begins with the type, so a colon in the path does not end one.
pub(crate) fn keytab_name(path: &Path) -> Vec<u8> {
    [b"FILE:", path.as_os_str().as_bytes()].concat()
}
