//! Names of the library's stores: keytabs and caches of tickets.
//!
//! *Private caches.* Tickets that the library gets with a keytab are in a cache of their own, in memory. Otherwise the library
//! would prefer tickets of somebody else in the user's cache. It would also leave its own tickets there, for all commands of the
//! user. The cache is destroyed when nobody uses its tickets any more: the library keeps it until the process ends.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use rpcrdma_oncrpc::gss::{MechanismError, major};

use crate::library::Functions;
use crate::objects::Credentials;
use crate::remedy::{self, Kind, Proof};

/// Types of keytabs that are files, as `ktadd` and `klist` write them in front of a path.
const FILE_TYPES: [&str; 2] = ["FILE:", "WRFILE:"];
/// The type of a cache of tickets in a file.
const CACHE_TYPE: &str = "FILE:";

/// Returns the path of a keytab without its type: `FILE:` or `WRFILE:`, which may stand in front. Names of other types are
/// paths.
#[must_use]
pub fn keytab_file(given: &Path) -> &Path {
    let name = given.as_os_str().as_bytes();
    let path = FILE_TYPES.iter().find_map(|kind| name.strip_prefix(kind.as_bytes()));
    path.map_or(given, |path| Path::new(OsStr::from_bytes(path)))
}

/// Returns the path of a cache of tickets, if it is a file.
fn cache_file(name: &str) -> Option<&Path> {
    match name.strip_prefix(CACHE_TYPE) {
        Some(path) => Some(path.as_ref()),
        // As the library does, which takes a name without a type for a path.
        None => (name.starts_with('/') || !name.contains(':')).then(|| name.as_ref()),
    }
}

/// Returns whether there is something at this path that is no regular file. The library would wait for the other end of a
/// pipe.
pub(crate) fn is_irregular(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

/// Returns a name for a message: one line, without control characters.
pub(crate) fn shown(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_control() {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
    }
    text
}

/// Tickets or keytab of a client, as messages name them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    keytab: Option<Arc<str>>,
    cache: Option<Arc<str>>,
}

impl Source {
    pub(crate) fn new(cache: Option<&str>, keytab: Option<&Path>) -> Self {
        let keytab = keytab.map(|path| shown(&path.display().to_string()).into());
        Self { keytab, cache: cache.map(|cache| shown(cache).into()) }
    }

    pub(crate) fn proof(&self) -> Proof<'_> {
        match &self.keytab {
            Some(keytab) => Proof::Keytab(keytab),
            None => Proof::Tickets(self.cache.as_deref()),
        }
    }

    /// Returns where the library looks, or has looked in a cache that nobody named.
    pub(crate) fn place(&self, default: Option<&str>) -> String {
        match (&self.keytab, &self.cache, default) {
            (Some(path), ..) => format!("the keytab {path}"),
            (None, Some(cache), _) => format!("no ticket in {cache}"),
            (None, None, Some(default)) => format!("no ticket in {}", shown(default)),
            (None, None, None) => "no ticket".to_owned(),
        }
    }
}

/// Checks that what the library will read is no pipe and no directory.
pub(crate) fn check_files(cache: Option<&str>, keytab: Option<&Path>) -> Result<(), MechanismError> {
    if keytab.is_some_and(is_irregular) {
        return Err(remedy::irregular(Kind::Keytab));
    }
    if cache.and_then(cache_file).is_some_and(is_irregular) {
        return Err(remedy::irregular(Kind::Cache));
    }
    Ok(())
}

/// Returns the library's name of a keytab in a file. It begins with the type, so a colon in the path does not end one.
pub(crate) fn keytab_name(path: &Path) -> Vec<u8> {
    [b"FILE:", path.as_os_str().as_bytes()].concat()
}

/// A client's credentials, and the cache of tickets that only they use. Fields are dropped in this order.
pub(crate) struct Tickets {
    pub(crate) credentials: Credentials,
    pub(crate) cache: Option<PrivateCache>,
}

/// A cache of tickets in memory with a name that nobody else knows. It is destroyed at the end, with its keys.
pub(crate) struct PrivateCache {
    functions: &'static Functions,
    name: CString,
}

impl PrivateCache {
    /// Chooses a name. The library makes the cache when it stores a ticket there.
    ///
    /// # Errors
    /// The system has no random bytes. The name of another cache might have other tickets, so it has to be unique.
    pub(crate) fn new(functions: &'static Functions) -> Result<Self, MechanismError> {
        let failed = |error: &dyn std::fmt::Display| {
            MechanismError::new(major::FAILURE, 0, format!("no name for a cache of tickets: {error}"))
        };
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(|error| failed(&error))?;
        let name = format!("MEMORY:rpcrdma-{:032x}", u128::from_ne_bytes(number));
        Ok(Self { functions, name: CString::new(name).map_err(|error| failed(&error))? })
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Destroys the cache. `None` if the library has no such functions, or no memory: the cache then ends with the process.
    fn destroy(&self) -> Option<()> {
        let (init_context, free_context) =
            (self.functions.krb5_init_context?, self.functions.krb5_free_context?);
        let (resolve, destroy) = (self.functions.krb5_cc_resolve?, self.functions.krb5_cc_destroy?);
        let mut context = null_mut();
        // SAFETY: the pointer is to a value that lives longer than the call.
        #[allow(unsafe_code)]
        let failed = unsafe { init_context(&raw mut context) };
        if failed != 0 {
            return None;
        }
        let mut cache = null_mut();
        // SAFETY: the context was just made. The other pointers are to values that live longer than the call.
        #[allow(unsafe_code)]
        let failed = unsafe { resolve(context, self.name.as_ptr(), &raw mut cache) };
        if failed == 0 {
            // SAFETY: context and cache are the library's. The call releases the cache, whether it fails or not.
            #[allow(unsafe_code)]
            unsafe {
                destroy(context, cache)
            };
        }
        // SAFETY: the context is the library's, and nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            free_context(context);
        }
        Some(())
    }
}

impl Drop for PrivateCache {
    fn drop(&mut self) {
        // Without the functions, the end of the process has the same effect.
        let _ = self.destroy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_may_have_the_type_of_a_file_in_front() {
        for (given, path) in [
            ("/k", "/k"),
            ("FILE:/k", "/k"),
            ("WRFILE:k", "k"),
            ("./FILE:k", "./FILE:k"),
            ("MEMORY:k", "MEMORY:k"),
            ("file:k", "file:k"),
        ] {
            assert_eq!(keytab_file(Path::new(given)), Path::new(path), "{given}");
        }
    }

    #[test]
    fn which_caches_are_files() {
        for (name, path) in
            [("FILE:c", Some("c")), ("/c", Some("/c")), ("/a:c", Some("/a:c")), ("c", Some("c"))]
        {
            assert_eq!(cache_file(name), path.map(Path::new), "{name}");
        }
        assert_eq!(["DIR:/c", "KCM:", "MEMORY:c"].map(cache_file), [None; 3]);
    }

    #[test]
    fn names_in_messages_are_one_line() {
        let source = Source::new(Some("FILE:/a\n\u{1b}[2J\u{e9}"), None);
        assert_eq!(source.place(None), "no ticket in FILE:/a\\n\\u{1b}[2J\u{e9}");
        let source = Source::new(None, Some(Path::new("a\nb")));
        assert_eq!(source.place(Some("default")), "the keytab a\\nb");
        assert_eq!(Source::new(None, None).place(Some("default")), "no ticket in default");
    }

    #[test]
    fn directories_are_neither_keytabs_nor_caches() {
        let place = std::env::temp_dir();
        let name = place.display().to_string();
        assert!(check_files(None, Some(&place)).is_err() && check_files(Some(&name), None).is_err());
        assert!(check_files(Some(&format!("DIR:{name}")), Some(Path::new("/nonexistent"))).is_ok());
    }
}
