//! SIGHUP: the server reads its files again, and serves other exports without dropping connections.
//!
//! Exports change with all their options: networks, squash, flavours, read-only. Calls from then on have the new ones.
//! A change of any other key is logged, because it needs a restart. If anything is wrong, the exports in force stay, and
//! one line says why.
//!
//! **Rights.** The server gave rights up at its start ([`super::confine`]), and none come back. So a new export must lie in a
//! directory that was given then, if Landlock confines the server. It cannot be the first with `squash=none`, or
//! the first with Kerberos.
//!
//! *Buffers.* Old and new exports exist together until the calls in progress have ended.
//!
//! *Errors.* A line for the log.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rpcrdma_nfs::server::{Export, NfsServer, Replaced};

use super::directories::Directories;
use super::export::ExportOption;
use super::exports5::{Listed, Names};
use super::problems::Wrong;
use super::systemd::Manager;
use super::{Serve, kerberos, trusted};
use crate::commands::{Command, Unparsed, parse};
use crate::exit::Failure;
use crate::signals::Hangups;
use crate::trace;

/// Keys of the file that take effect without a restart.
const TAKEN: [&str; 4] = ["export", "exports", "log-level", "read-only"];

/// Why a reload is refused that would leave no export. A program that writes a file anew may fail half-way.
const NOTHING_LEFT: &str = "nothing is exported by the files any more, which would happen by a file that was emptied, too: to \
                            withdraw all exports, stop the server; to close one, give it allow=none";

/// Rights that the server has kept, as far as they bound later exports.
#[derive(Debug)]
pub(super) struct Rights {
    /// Directories in which exports may lie; `None`: anywhere.
    within: Option<HashSet<PathBuf>>,
    /// Whether root of clients may stay root.
    superuser: bool,
    /// Whether there are contexts of callers by Kerberos.
    kerberos: bool,
}

impl Rights {
    /// Returns the rights of a server that began with these exports. Later ones may lie below `more` too.
    pub(super) fn of(options: &[ExportOption], more: &[PathBuf], is_confined: bool) -> Self {
        let directories = options.iter().map(|option| &option.directory).chain(more);
        let within = directories.filter_map(|path| path.canonicalize().ok());
        Self {
            within: is_confined.then(|| within.collect()),
            superuser: !rustix::process::geteuid().is_root() || options.iter().any(ExportOption::keeps_root),
            kerberos: kerberos::is_wanted(options),
        }
    }

    /// Checks that the server can serve these exports without a restart.
    fn check(&self, options: &[ExportOption]) -> Result<(), String> {
        for option in options {
            let directory = option.directory.display();
            if let Some(within) = &self.within {
                let path =
                    option.directory.canonicalize().map_err(|error| format!("{directory}: {error}"))?;
                if !path.ancestors().any(|above| within.contains(above)) {
                    return Err(format!(
                        "{directory} lies in no directory that the server was started with, and Landlock closed all \
                         others: restart it, and give --reload-below a directory above, so that later exports there \
                         need no restart"
                    ));
                }
                // Rules of Landlock hold for directories, not for their paths.
                if path.read_dir().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                    return Err(format!(
                        "the server may not read {directory}: if the directory was made or mounted after the start, \
                         Landlock keeps it closed. Restart the server, and give --reload-below a directory above"
                    ));
                }
            }
            if option.keeps_root() && !self.superuser {
                return Err(format!(
                    "{} has squash=none (no_root_squash), and the server gave up the rights of root at its start, because \
                     no export had it: restart it",
                    option.name
                ));
            }
            if option.allows_kerberos() && !self.kerberos {
                return Err(format!(
                    "{} allows Kerberos, and the server opened no key at its start, because no export did: restart it",
                    option.name
                ));
            }
        }
        Ok(())
    }
}

/// Changes that a reading of the files has made.
#[derive(Debug)]
struct Reloaded {
    exports: usize,
    replaced: Replaced,
    /// Names of exports with other options.
    changed: Vec<String>,
    /// Keys that need a restart.
    waiting: Vec<String>,
    notes: Vec<String>,
}

/// Reads the files of a running server again.
pub(super) struct Reloader {
    words: Vec<OsString>,
    /// Keys of the file that are in force.
    keys: BTreeMap<String, Vec<String>>,
    options: Vec<ExportOption>,
    directories: Directories,
    rights: Rights,
    /// The files in use, which must lie in no export.
    trusted: Vec<(&'static str, PathBuf)>,
    /// Addresses of host names, for the next reading.
    names: Arc<Mutex<Names>>,
    nfs: NfsServer,
}

impl Reloader {
    pub(super) fn new(
        serve: &Serve,
        options: &[ExportOption],
        directories: Directories,
        rights: Rights,
        nfs: NfsServer,
    ) -> Self {
        Self {
            words: serve.files.words().to_vec(),
            keys: serve.files.keys().clone(),
            options: options.to_vec(),
            directories,
            rights,
            trusted: serve.trusted(options).collect(),
            names: serve.files.names(),
            nfs,
        }
    }

    /// Reads the files, and puts their exports in force; after an error, nothing has changed. May wait for disks and look-ups of names.
    fn reload(&mut self) -> Result<Reloaded, String> {
        let arguments = parse(&self.words).map_err(|unparsed| match unparsed {
            Unparsed::Line(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
            Unparsed::File(wrong) => wrong.line(),
        })?;
        let Command::Serve(mut serve) = arguments.command else { return Err("no command line".to_owned()) };
        serve.files.go_on_with(Arc::clone(&self.names));
        let line = |wrong: Wrong| wrong.line();
        let Listed { exports: options, mut notes, names, .. } = serve.exports().map_err(line)?;
        if options.is_empty() {
            return Err(NOTHING_LEFT.to_owned());
        }
        self.rights.check(&options)?;
        let refused = |failure: Failure| failure.to_string();
        trusted::check_outside(serve.trusted(&options).chain(self.trusted.iter().cloned()), &options)
            .map_err(refused)?;
        let exports = open(&mut self.directories, &options)?;
        let replaced = self.nfs.replace(exports).map_err(|error| error.to_string())?;
        serve.files.remember(names);
        if let Err(error) = trace::reload(&serve.log().levels) {
            notes.push(format!("the levels of the log stay: {error}"));
        }
        let before: BTreeMap<&str, &ExportOption> =
            self.options.iter().map(|option| (option.name.as_str(), option)).collect();
        let changed =
            options.iter().filter(|now| before.get(now.name.as_str()).is_some_and(|before| before != now));
        let changed = changed.map(|option| option.name.clone()).collect();
        let waiting = waiting(&self.keys, serve.files.keys());
        let exports = options.len();
        self.options = options;
        Ok(Reloaded { exports, replaced, changed, waiting, notes })
    }
}

/// Opens the directories of exports.
///
/// # Errors
/// A directory cannot be opened; the text names it.
pub(super) fn open(directories: &mut Directories, options: &[ExportOption]) -> Result<Vec<Export>, String> {
    let open = |option: &ExportOption| match directories.open(&option.directory) {
        Ok(directory) => Ok(option.with(directory)),
        Err(error) => Err(error.to_string()),
    };
    options.iter().map(open).collect()
}

/// Returns a line for each key that differs and needs a restart.
fn waiting(before: &BTreeMap<String, Vec<String>>, after: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&&String| !TAKEN.contains(&key.as_str()) && before.get(**key) != after.get(**key);
    let value = |values: Option<&Vec<String>>| values.map_or("nothing".to_owned(), |values| values.join(" "));
    let line = |key: &String| {
        format!("{key}: {} in force, {} in the file", value(before.get(key)), value(after.get(key)))
    };
    keys.iter().filter(differs).map(|key| line(key)).collect()
}

/// Reads the files at each SIGHUP, until the task ends.
pub(super) async fn on_hangup(
    mut reloader: Option<Reloader>,
    mut hangups: Hangups,
    manager: Arc<Manager>,
    files: Vec<PathBuf>,
) {
    loop {
        hangups.next().await;
        let Some(mut reading) = reloader.take() else {
            manager.reloading();
            tracing::warn!(
                "SIGHUP changes nothing: the server goes on with its settings. With --config or --exports it would read \
                 these files again"
            );
            manager.ready("the settings stay: there is no file to read");
            continue;
        };
        manager.reloading();
        let read = tokio::task::spawn_blocking(move || {
            let read = reading.reload();
            (reading, read)
        });
        match read.await {
            Ok((reading, read)) => {
                manager.ready(&told(read, &reading.options, &files));
                reloader = Some(reading);
            }
            Err(error) => {
                tracing::error!(%error, "the files cannot be read again any more: restart the server");
                manager.ready("the exports in force stay");
            }
        }
    }
}

/// Logs the result. Returns it for the service manager.
fn told(read: Result<Reloaded, String>, options: &[ExportOption], files: &[PathBuf]) -> String {
    let reloaded = match read {
        Ok(reloaded) => reloaded,
        Err(reason) => {
            tracing::error!("reload refused, the exports in force stay: {reason}");
            return format!(
                "serving {} as before; the last reload was refused: {reason}",
                count(options.len())
            );
        }
    };
    let Reloaded { exports, replaced, changed, waiting, notes } = reloaded;
    for note in notes {
        tracing::warn!("{note}");
    }
    for key in waiting {
        tracing::warn!("needs a restart: {key}");
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    tracing::info!(
        target: TARGET,
        added = some(&replaced.added),
        removed = some(&replaced.removed),
        changed = some(&changed),
        stale_handles = some(&replaced.renumbered),
        "reloaded {}: {} in force",
        files.join(" and "),
        count(exports)
    );
    format!("serving {}", count(exports))
}

/// Target of the line about a reload.
const TARGET: &str = "rpcrdma::reload";
/// Most names in a line of the log.
const NAMES_MAX: usize = 8;

/// Returns names for a line of the log.
fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    match names.len().checked_sub(NAMES_MAX) {
        None | Some(0) if names.is_empty() => "none".to_owned(),
        None | Some(0) => first.join(" "),
        Some(more) => format!("{} and {more} more", first.join(" ")),
    }
}

/// Returns a number of exports in words.
pub(super) fn count(exports: usize) -> String {
    if exports == 1 { "1 export".to_owned() } else { format!("{exports} exports") }
}

/// Returns the first of these directories that is none.
pub(super) fn missing(options: &[ExportOption]) -> Option<&Path> {
    options.iter().map(|option| option.directory.as_path()).find(|path| !path.is_dir())
}

#[cfg(test)]
mod tests {
    use rpcrdma_nfs::fs::{DirectoryOptions, StateDirectory};
    use rpcrdma_nfs::server::{HandleKey, ServerOptions};

    use super::*;

    fn options(text: &[&str]) -> Vec<ExportOption> {
        text.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_confined_server_takes_exports_below_known_directories_only() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["a/inner", "more/b", "other"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("other"), path("a/link")).unwrap();
        let export = |name: &str| options(&[&format!("/={}", path(name).display())]);
        let start = export("a");
        let rights = Rights::of(&start, &[path("more")], true);
        for good in ["a", "a/inner", "more/b"] {
            rights.check(&export(good)).unwrap();
        }
        for bad in ["other", "a/link"] {
            let told = rights.check(&export(bad)).unwrap_err();
            assert!(told.contains("Landlock") && told.contains("--reload-below"), "{told}");
        }
        assert!(rights.check(&export("missing")).is_err());
        Rights::of(&start, &[], false).check(&export("other")).unwrap();
    }

    #[test]
    fn rights_that_were_given_up_are_named() {
        let start = options(&["/=/srv"]);
        let rights = Rights { within: None, superuser: false, kerberos: false };
        rights.check(&start).unwrap();
        let told = rights.check(&options(&["/a=/srv,squash=none"])).unwrap_err();
        assert!(told.contains("/a has squash=none") && told.contains("restart"), "{told}");
        let told = rights.check(&options(&["/a=/srv,sec=sys:krb5"])).unwrap_err();
        assert!(told.contains("/a allows Kerberos") && told.contains("restart"), "{told}");
        assert!(Rights::of(&options(&["/a=/srv,sec=krb5,squash=none"]), &[], false).superuser);
    }

    #[test]
    fn a_refused_reload_remembers_no_addresses() {
        let (place, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (list, directory) = (place.path().join("exports"), place.path().join("directory"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&list, format!("{} localhost(rw)\n", directory.display())).unwrap();
        let state = StateDirectory::open(state.path()).unwrap();
        let key = HandleKey::from_state(&state);
        let names = Arc::<Mutex<Names>>::default();
        let mut reloader = Reloader {
            words: ["rpcrdma", "serve", "--exports", list.to_str().unwrap()].map(OsString::from).to_vec(),
            keys: BTreeMap::new(),
            options: Vec::new(),
            directories: Directories::new(state, DirectoryOptions::default()),
            rights: Rights { within: Some(HashSet::new()), superuser: false, kerberos: false },
            trusted: Vec::new(),
            names: Arc::clone(&names),
            nfs: NfsServer::new(key, Vec::new(), ServerOptions::default()).unwrap(),
        };
        let refused = reloader.reload().unwrap_err();
        assert!(refused.contains("Landlock"), "{refused}");
        assert_eq!(*names.lock().unwrap(), Names::new());
        reloader.rights.within = None;
        reloader.reload().unwrap();
        assert!(names.lock().unwrap().contains_key("localhost"));
    }

    #[test]
    fn keys_that_need_a_restart_are_told() {
        let keys = |text: &[(&str, &str)]| {
            text.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect()
        };
        let before = keys(&[("credits", "1"), ("idle", "2"), ("read-only", "a"), ("tcp", "x")]);
        let after = keys(&[("credits", "1"), ("idle", "3"), ("memory", "1G")]);
        assert_eq!(
            waiting(&before, &after),
            [
                "idle: 2 in force, 3 in the file",
                "memory: nothing in force, 1G in the file",
                "tcp: x in force, nothing in the file"
            ]
        );
    }
}
