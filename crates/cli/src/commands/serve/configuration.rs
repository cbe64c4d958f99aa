//! Files that the library of Kerberos reads: its configuration, and the keytab that the configuration names.
//!
//! This module knows a part of the form of `krb5.conf`, and the library all of it. So the server tries the keytab again with the
//! rights that it keeps.

use std::collections::VecDeque;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Variable that names the library's configuration: files, separated by colons.
pub(super) const CONFIGURATION: &str = "KRB5_CONFIG";
/// Variable that names the keytab.
pub(super) const KEYTAB: &str = "KRB5_KTNAME";
/// The library's configuration, if no variable names another one.
const SYSTEM_CONFIGURATION: &str = "/etc/krb5.conf";
/// The keytab, if nothing names another one.
const SYSTEM_KEYTAB: &str = "/etc/krb5.keytab";
/// Types of keytabs that are files, as they may stand in front of a path. A keytab of another type is no file.
const FILE_TYPES: [&str; 2] = ["FILE", "WRFILE"];
/// Most files of a configuration that are looked at.
const FILES_MAX: usize = 64;
/// Most bytes of each.
const LENGTH_MAX: u64 = 1 << 20;

/// The configuration, read once.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    /// Its files, those of `include` lines too.
    pub(super) files: Vec<PathBuf>,
    /// Folders of which it includes all files.
    pub(super) folders: Vec<PathBuf>,
    /// The keytab that it names.
    keytab: Option<PathBuf>,
}

impl Configuration {
    /// Reads the configuration that this process has.
    pub(super) fn of_process() -> Self {
        let files = std::env::var(CONFIGURATION).unwrap_or_else(|_| SYSTEM_CONFIGURATION.to_owned());
        Self::read(paths(&files))
    }

    fn read(files: Vec<PathBuf>) -> Self {
        let mut found = Self::default();
        let mut left = VecDeque::from(files);
        while let Some(path) = left.pop_front().filter(|_| found.files.len() < FILES_MAX) {
            if found.files.contains(&path) {
                continue;
            }
            let text = text(&path).unwrap_or_default();
            found.files.push(path);
            left.extend(text.lines().filter_map(|line| included(line, "include")));
            found.folders.extend(text.lines().filter_map(|line| included(line, "includedir")));
            found.keytab = found.keytab.or_else(|| text.lines().find_map(named_keytab));
        }
        found
    }

    /// Returns the keytab of a server to which none is given. `None` if it is no file.
    pub(super) fn keytab(&self) -> Option<PathBuf> {
        match std::env::var(KEYTAB) {
            Ok(name) => file(Path::new(&name)),
            Err(_) => Some(self.keytab.clone().unwrap_or_else(|| SYSTEM_KEYTAB.into())),
        }
    }
}

/// Returns the text of a file. `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    // A pipe would make the server wait.
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LENGTH_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns what a line with this word names.
fn included(line: &str, word: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix(word)?;
    rest.starts_with([' ', '\t']).then(|| rest.trim().into())
}

/// Returns the keytab of a line `default_keytab_name`, if that is a file.
fn named_keytab(line: &str) -> Option<PathBuf> {
    let rest = line.trim().strip_prefix("default_keytab_name")?;
    file(Path::new(rest.trim_start().strip_prefix('=')?.trim()))
}

/// Returns the files in the value of a variable: paths separated by colons, perhaps with the type FILE in front.
pub(super) fn paths(value: &str) -> Vec<PathBuf> {
    value.split(':').filter(|part| part.contains('/')).map(PathBuf::from).collect()
}

/// Returns the path of a keytab without its type. `None` if it is of a type that is no file.
fn file(keytab: &Path) -> Option<PathBuf> {
    match keytab.to_str().and_then(|name| name.split_once(':')) {
        // As the library does, which takes this for a path.
        Some((kind, _)) if kind.contains('/') => Some(keytab.to_owned()),
        Some((kind, path)) => FILE_TYPES.contains(&kind).then(|| path.into()),
        None => Some(keytab.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_the_keytab_of_a_configuration() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        let keytab = |text: &str| {
            write("krb5.conf", text);
            Configuration::read(vec![path("krb5.conf")]).keytab
        };
        assert_eq!(
            keytab("[libdefaults]\n  default_keytab_name = FILE:/a/keytab\n"),
            Some("/a/keytab".into())
        );
        assert_eq!(keytab("[libdefaults]\n# default_keytab_name = /a/keytab\n"), None);
        assert_eq!(keytab("[libdefaults]\ndefault_keytab_name = MEMORY:keys\n"), None);
        let more = path("more.conf").display().to_string();
        // A file that includes itself has an end.
        write("more.conf", &format!("include {more}\n[libdefaults]\ndefault_keytab_name=/b/keytab\n"));
        assert_eq!(keytab(&format!("include {more}\nincludedir /etc\n")), Some("/b/keytab".into()));
        let Configuration { files, folders, .. } =
            Configuration::read(vec![path("krb5.conf"), path("missing")]);
        assert_eq!(folders, [PathBuf::from("/etc")]);
        assert_eq!(files, [path("krb5.conf"), path("missing"), path("more.conf")]);
    }

    #[test]
    fn paths_in_variables() {
        assert_eq!(
            paths("/a/krb5.conf:/b/more.conf"),
            [PathBuf::from("/a/krb5.conf"), "/b/more.conf".into()]
        );
        assert_eq!(paths("FILE:/a/keytab"), [PathBuf::from("/a/keytab")]);
        assert_eq!(file(Path::new("MEMORY:keys")), None);
        assert_eq!(file(Path::new("/a:b/keys")), Some("/a:b/keys".into()));
    }
}
