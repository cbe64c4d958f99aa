//! Files that no client may reach: keys, maps, the state of the server. Here alone is decided whether an export has them.
//!
//! A path leads to a file through symbolic links. A client who can change one of these links chooses the file. So the places
//! of all links count, and not only the place of the file. A second name of a file (a hard link) is not found.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::location::Location;

/// Most symbolic links of a path, as for the kernel.
const LINKS_MAX: usize = 40;

/// Returns whether clients of the directory `export` reach the file at `path`, or a symbolic link on the way to it, by any
/// mount. The end of the path need not exist.
#[must_use]
pub fn is_exposed(path: &Path, export: &Path) -> bool {
    let Ok(export) = fs::canonicalize(export) else { return false };
    let location = Location::of_path(&export).ok();
    places(path).iter().filter_map(|place| existing(place)).any(|place| {
        // The first test compares paths; the second detects bind mounts under other paths.
        place.starts_with(&export)
            || location
                .as_ref()
                .is_some_and(|export| Location::of_path(&place).is_ok_and(|place| export.contains(&place)))
    })
}

/// Returns the path, or the nearest directory above it that exists, without links.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok())
}

/// Returns the directory of each symbolic link on the way to a file, and the path of the file behind them.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(path) = std::path::absolute(path) else { return found };
    let mut left = reversed(&path);
    let mut here = PathBuf::new();
    while let Some(name) = left.pop() {
        if name == OsStr::new("..") {
            here.pop();
            continue;
        }
        match fs::read_link(here.join(&name)) {
            Ok(target) if found.len() < LINKS_MAX => {
                found.push(here.clone());
                // An absolute target begins with the root, which replaces the path.
                left.extend(reversed(&target));
            }
            _ => here.push(&name),
        }
    }
    found.push(here);
    found
}

/// Returns the components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let components = path.components().rev().filter(|component| *component != Component::CurDir);
    components.map(|component| component.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_of_an_export_are_exposed_by_whatever_path() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for directory in ["export/below", "keys", "export-2"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        for file in ["export/key", "export/below/key", "keys/key", "export-2/key"] {
            fs::write(path(file), "").unwrap();
        }
        symlink("export", path("link-to-export")).unwrap();
        symlink("../export/key", path("keys/link")).unwrap();
        symlink("link", path("keys/link-to-link")).unwrap();
        symlink(path("export/below"), path("keys/folder")).unwrap();
        symlink("../keys/key", path("export/link-out")).unwrap();
        symlink("../../keys", path("export/below/folder-out")).unwrap();
        symlink("loop", path("keys/loop")).unwrap();
        for exposed in [
            "export",
            "export/key",
            "export/not/yet/there",
            "export/below/../key",
            "keys/../export/key",
            "link-to-export/key",
            "keys/link",
            "keys/link-to-link",
            "keys/folder/key",
            // Clients choose the file behind these.
            "export/link-out",
            "export/below/folder-out/key",
        ] {
            assert!(is_exposed(&path(exposed), &path("export")), "{exposed}");
            assert!(is_exposed(&path(exposed), &path("link-to-export")), "{exposed}");
            assert!(is_exposed(&path(exposed), place.path()), "{exposed}");
        }
        for safe in ["keys/key", "export/../keys/key", "export-2/key", "keys/loop", "keys/not/yet/there", ""]
        {
            assert!(!is_exposed(&path(safe), &path("export")), "{safe}");
        }
        assert!(!is_exposed(&path("keys/key"), &path("missing")));
    }

    #[test]
    fn a_file_of_an_export_is_found_through_a_bind_mount() {
        let test = "fs::exposure::tests::a_file_of_an_export_is_found_through_a_bind_mount";
        let (hidden, shown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(hidden.path().join("key"), "").unwrap();
        let bound = crate::fs::testing::with_bind_mount(test, hidden.path(), shown.path());
        let Some((hidden, shown)) = bound else { return };
        assert!(is_exposed(&hidden.join("key"), &shown) && is_exposed(&shown.join("key"), &hidden));
    }
}
