//! Synchronisation in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use tempfile::tempdir;

use super::loopback::{arguments, options};
use super::*;
use crate::client::{Change, Client, CopyEvent, CopyOptions, CopyReport, Error, Filter, SyncOptions};
use crate::wire::{NfsProcedure, ReaddirplusArgs, SetAttributes, Status};

/// Objects of a tree by path: type, mode, time, content, and the first name of the same file.
type Tree = BTreeMap<PathBuf, String>;

fn tree(root: &Path) -> Tree {
    let mut found = BTreeMap::new();
    let mut inodes = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let time = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
            let what = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                waiting.push(path);
                format!("{:o} {time}", metadata.mode())
            } else {
                let names: &mut BTreeSet<PathBuf> = inodes.entry(metadata.ino()).or_default();
                names.insert(name.clone());
                let content = fs::read(&path).unwrap();
                let sum = content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
                format!("{:o} {time} {} {sum}", metadata.mode(), content.len())
            };
            found.insert(name, what);
        }
    }
    for names in inodes.values() {
        let first = names.first().unwrap().display().to_string();
        for name in names {
            let what = found.get_mut(name).unwrap();
            *what = format!("{what} {first}");
        }
    }
    found
}

/// A change of a tree.
#[derive(Debug, Clone, Copy)]
enum Op {
    File,
    Sparse,
    Directory,
    Symlink,
    Link,
    Touch,
    Mode,
    Rename,
    Remove,
}

/// A change, the path that it is for, and a number that its content comes from.
#[derive(Debug, Clone)]
struct Step {
    op: Op,
    path: Vec<u8>,
    seed: u32,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => Just(Op::File),
        1 => Just(Op::Sparse),
        3 => Just(Op::Directory),
        1 => Just(Op::Symlink),
        2 => Just(Op::Link),
        1 => Just(Op::Touch),
        1 => Just(Op::Mode),
        2 => Just(Op::Rename),
        2 => Just(Op::Remove),
    ];
    (op, prop::collection::vec(0_u8..4, 1..4), 0_u32..4000).prop_map(|(op, path, seed)| Step {
        op,
        path,
        seed,
    })
}

fn steps(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), count)
}

fn path_of(root: &Path, path: &[u8]) -> PathBuf {
    path.iter().fold(root.to_owned(), |at, part| at.join(["a", "b", "é", "d e"][usize::from(*part)]))
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Lets the owner change all directories of a tree.
fn unlock(root: &Path) {
    let Ok(metadata) = fs::symlink_metadata(root) else { return };
    if metadata.is_dir() {
        fs::set_permissions(root, fs::Permissions::from_mode(metadata.mode() | 0o700)).unwrap();
        fs::read_dir(root).unwrap().for_each(|entry| unlock(&entry.unwrap().path()));
    }
}

fn set_time(path: &Path, seconds: u64, seed: u32) {
    let nanoseconds = seed.wrapping_mul(7919) % 1_000_000_000;
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::new(seconds, nanoseconds));
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

/// Changes a tree. The length of a file tells its content, so files of equal length are equal.
fn apply(root: &Path, steps: &[Step]) {
    unlock(root);
    let mut modes = BTreeMap::new();
    for Step { op, path: parts, seed } in steps {
        let (path, seed) = (path_of(root, parts), *seed);
        let metadata = fs::symlink_metadata(&path).ok();
        let is_file = metadata.as_ref().is_some_and(fs::Metadata::is_file);
        let mode = [0o644, 0o600, 0o755, 0o440][seed as usize % 4];
        match op {
            Op::Touch if is_file => set_time(&path, 1_500_000_000, seed),
            Op::Mode if is_file => fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap(),
            Op::Rename if metadata.is_some() => {
                let new = path.with_file_name(["a", "b", "é", "d e"][seed as usize % 4]);
                if new != path {
                    remove(&new);
                    fs::rename(&path, &new).unwrap();
                }
            }
            Op::Remove => remove(&path),
            Op::Touch | Op::Mode | Op::Rename => {}
            Op::Directory if metadata.as_ref().is_some_and(fs::Metadata::is_dir) => {
                modes.insert(path, [0o755, 0o700, 0o500, 0o555][seed as usize % 4]);
            }
            Op::File | Op::Sparse | Op::Directory | Op::Symlink | Op::Link => {
                let other = path_of(root, &parts.iter().rev().map(|part| 3 - part).collect::<Vec<_>>());
                if matches!(op, Op::Link) && !(other.is_file() && !other.is_symlink() && other != path) {
                    continue;
                }
                let mut above = root.to_owned();
                let below = path.parent().unwrap().strip_prefix(root).unwrap().to_owned();
                for part in &below {
                    above.push(part);
                    if !above.is_dir() || above.is_symlink() {
                        remove(&above);
                        fs::create_dir(&above).unwrap();
                    }
                }
                if !matches!(op, Op::Link) || other.exists() {
                    remove(&path);
                }
                match op {
                    Op::Directory => fs::create_dir(&path).unwrap(),
                    Op::Symlink => symlink(format!("to-{seed}"), &path).unwrap(),
                    Op::Link if other.exists() => fs::hard_link(&other, &path).unwrap(),
                    Op::Link => {}
                    _ => {
                        let file = fs::File::create(&path).unwrap();
                        if matches!(op, Op::Sparse) {
                            let length = (1 << 20) + u64::from(seed);
                            file.set_len(length).unwrap();
                            file.write_all_at(b"data", length / 2).unwrap();
                        } else {
                            let content: Vec<u8> =
                                (0..seed).map(|at| (at * 7 + seed).to_le_bytes()[0]).collect();
                            file.write_all_at(&content, 0).unwrap();
                        }
                        set_time(&path, 1_000_000_000, seed);
                        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                    }
                }
            }
        }
    }
    for (path, mode) in modes.into_iter().rev() {
        if path.is_dir() && !path.is_symlink() {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

type Changes = Vec<(String, String)>;

/// Returns options, and the changes of the copies with them.
fn observed(sync: SyncOptions) -> (CopyOptions, Arc<Mutex<Changes>>) {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let log = changes.clone();
    let progress = move |event: CopyEvent<'_>| {
        if let CopyEvent::Change { change, path } = event {
            log.lock().unwrap().push((format!("{change:?}"), path.to_owned()));
        }
    };
    (CopyOptions { sync, progress: Some(Arc::new(progress)), ..CopyOptions::default() }, changes)
}

fn deleting() -> SyncOptions {
    SyncOptions { delete: true, ..SyncOptions::default() }
}

/// Which way a sync goes: from the local directory to the server, or back.
#[derive(Debug, Clone, Copy)]
enum Way {
    There,
    Back,
}

async fn sync(client: &Client, way: Way, local: &Path, options: &CopyOptions) -> CopyReport {
    let report = match way {
        Way::There => client.sync_from_local(local, "/t", options).await,
        Way::Back => client.sync_to_local("/t", local, options).await,
    };
    let report = report.unwrap();
    assert_eq!(format!("{:?} {:?}", report.failures, report.skipped), "[] []", "{way:?}");
    report
}

/// Synchronises after a dry run, which must foretell each change. Afterwards nothing is left to do.
async fn check(client: &Client, way: Way, local: &Path, checksum: bool) -> CopyReport {
    let deleting = SyncOptions { checksum, ..deleting() };
    let (dry, foretold) = observed(SyncOptions { dry_run: true, ..deleting.clone() });
    let report = sync(client, way, local, &dry).await;
    assert_eq!((report.files, report.directories, report.deleted, report.bytes), (0, 0, 0, 0));
    let (real, changes) = observed(deleting);
    let report = sync(client, way, local, &real).await;
    let sorted = |changes: &Mutex<Changes>| {
        let mut changes = std::mem::take(&mut *changes.lock().unwrap());
        changes.sort();
        changes
    };
    assert_eq!(sorted(&foretold), sorted(&changes), "{way:?}");
    sync(client, way, local, &real).await;
    assert_eq!(sorted(&changes), [], "{way:?}");
    report
}

async fn random_trees(first: Vec<Step>, second: Vec<Step>, foreign: Vec<Step>, checksum: bool) {
    let client = Loopback::exporting(&["/"]).mount().await;
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("source"), place.path().join("out"));
    fs::create_dir(&source).unwrap();
    apply(&source, &first);
    check(&client, Way::There, &source, checksum).await;
    check(&client, Way::Back, &out, checksum).await;
    let before = tree(&source);
    assert_eq!(tree(&out), before);
    apply(&source, &second);
    let after = tree(&source);
    let same = |old: &Tree, new: &Tree| {
        let objects =
            new.iter().filter(|(path, what)| !source.join(path).is_dir() && old.get(*path) == Some(what));
        u64::try_from(objects.count()).unwrap()
    };
    // Files that did not change are neither sent nor fetched.
    for (way, local) in [(Way::There, &source), (Way::Back, &out)] {
        let report = check(&client, way, local, checksum).await;
        assert!(report.unchanged >= same(&before, &after), "{way:?} {report:?}");
    }
    assert_eq!(tree(&out), after);
    // The other way: whatever became of the target, it is equal again.
    apply(&out, &foreign);
    check(&client, Way::Back, &out, checksum).await;
    assert_eq!(tree(&out), after);
    apply(&out, &foreign);
    check(&client, Way::There, &out, checksum).await;
    check(&client, Way::There, &source, checksum).await;
    check(&client, Way::Back, &out, checksum).await;
    assert_eq!(tree(&out), after);
    for path in after.keys().filter(|path| !source.join(path).is_symlink() && source.join(path).is_file()) {
        let (old, new) = (fs::metadata(source.join(path)).unwrap(), fs::metadata(out.join(path)).unwrap());
        // A hole of half a MiB stays one, if the file system here has holes at all.
        assert!(old.blocks() * 512 >= old.len() || new.blocks() * 512 < new.len(), "{path:?}");
    }
    unlock(place.path());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Names, types, content, modes, times, links and holes are equal after each sync, in both directions.
    #[test]
    fn random_trees_become_equal(
        first in steps(1..25),
        second in steps(0..8),
        foreign in steps(0..10),
        checksum: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(random_trees(first, second, foreign, checksum));
    }
}

/// A server with the tree `/t`, from a local directory.
async fn served(local: &Path) -> (Arc<Loopback>, Client) {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", options()).await;
    client.sync_from_local(local, "/t", &CopyOptions::default()).await.unwrap();
    (server, client)
}

fn names(root: &Path) -> Vec<String> {
    tree(root).into_keys().map(|path| path.display().to_string()).collect()
}

fn make(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
}

/// Without `delete` nothing is removed, and no object gives way to one of another type.
#[tokio::test]
async fn other_types_stay_without_delete() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["file", "directory/f", "same"]);
    make(&out, &["file/kept", "directory", "extra"]);
    let (_, client) = served(&source).await;
    let report = client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    let mut failed: Vec<_> = report.failures.iter().map(|failure| failure.path.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["/t/directory", "/t/file"]);
    assert!(matches!(report.failures[0].error, Error::OtherType { .. }));
    assert_eq!(names(&out), ["directory", "extra", "file", "file/kept", "same"]);
    let report = client.sync_from_local(&out, "/t", &CopyOptions::default()).await.unwrap();
    assert_eq!((report.failures.len(), report.files), (2, 1));
    let options = CopyOptions { sync: deleting(), ..CopyOptions::default() };
    let report = client.sync_from_local(&source, "/t", &options).await.unwrap();
    assert_eq!((report.failures.len(), report.deleted), (0, 1));
    let report = client.sync_to_local("/t", &out, &options).await.unwrap();
    assert_eq!((report.failures.len(), report.deleted), (0, 4));
    assert_eq!(tree(&out), tree(&source));
}

/// If a directory of the source cannot be listed, nothing of its copy is removed; elsewhere it is.
#[tokio::test]
async fn a_directory_whose_listing_failed_loses_nothing() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["bad/f", "good/f"]);
    make(&out, &["bad/extra", "good/extra", "extra"]);
    let (server, client) = served(&source).await;
    let bad = client.lookup("/t/bad").await.unwrap().handle;
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Readdirplus if arguments::<ReaddirplusArgs>(bytes).dir == bad => {
            crate::client::tests::Step::fail::<ReaddirplusArgs>(Status::Io, None)
        }
        _ => crate::client::tests::Step::Serve,
    });
    let options = CopyOptions { sync: deleting(), ..CopyOptions::default() };
    let report = client.sync_to_local("/t", &out, &options).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.deleted, 2);
    assert_eq!(names(&out), ["bad", "bad/extra", "good", "good/f"]);
}

/// Excluded names are neither copied nor removed, and a directory around them stays.
#[tokio::test]
async fn what_the_filter_excludes_stays() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["a.o", "a.c", "d/b.o", "d/b.c", "build/x"]);
    make(&out, &["own.o", "gone/own.o", "gone/c", "build/y", "extra"]);
    let (_, client) = served(&source).await;
    let mut filter = Filter::default();
    filter.exclude_lines("*.o\nbuild/").unwrap();
    let mut options = CopyOptions { filter, sync: deleting(), ..CopyOptions::default() };
    let report = client.sync_to_local("/t", &out, &options).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert_eq!(names(&out), ["a.c", "build", "build/y", "d", "d/b.c", "gone", "gone/own.o", "own.o"]);
    // It is so at the server too.
    client.sync_from_local(&out, "/u", &CopyOptions::default()).await.unwrap();
    make(&source, &["new"]);
    client.sync_from_local(&source, "/u", &options).await.unwrap();
    options.sync.delete_excluded = true;
    let other = place.path().join("other");
    client.sync_to_local("/u", &other, &CopyOptions::default()).await.unwrap();
    assert_eq!(
        names(&other),
        ["a.c", "build", "build/y", "d", "d/b.c", "gone", "gone/own.o", "new", "own.o"]
    );
    client.sync_from_local(&source, "/u", &options).await.unwrap();
    client
        .sync_to_local("/u", &other, &CopyOptions { sync: deleting(), ..CopyOptions::default() })
        .await
        .unwrap();
    assert_eq!(names(&other), ["a.c", "d", "d/b.c", "new"]);
    // get and put have the same patterns.
    options.recursive = true;
    client.put(&source, "/p", &options).await.unwrap();
    let got = place.path().join("got");
    client.get("/t", &got, &options).await.unwrap();
    assert_eq!(names(&got), ["a.c", "d", "d/b.c"]);
    assert!(client.lookup("/p/d/b.c").await.is_ok() && client.lookup("/p/build").await.is_err());
}

/// A change that leaves length and time alone is found by a comparison of content only.
#[tokio::test]
async fn checksum_compares_content() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["f", "g", "long"]);
    fs::write(source.join("long"), vec![7; 300_000]).unwrap();
    let (server, client) = served(&source).await;
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    let good = tree(&out);
    for (name, at) in [("f", 0), ("long", 200_000)] {
        let file = fs::File::options().write(true).open(out.join(name)).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"!", at).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    }
    let bad = tree(&out);
    let report = client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    assert_eq!((report.files, report.unchanged), (0, 3));
    let sync = SyncOptions { checksum: true, ..SyncOptions::default() };
    let options = CopyOptions { sync, ..CopyOptions::default() };
    client.sync_from_local(&out, "/u", &CopyOptions::default()).await.unwrap();
    let report = client.sync_to_local("/t", &out, &options).await.unwrap();
    assert_eq!((report.files, report.unchanged), (2, 1));
    assert_eq!(tree(&out), good);
    let report = client.sync_from_local(&out, "/u", &options).await.unwrap();
    assert_eq!((report.files, report.unchanged), (2, 1));
    // Only the time differs: it is set, and nothing is written.
    set_time(&out.join("g"), 1_000_000_000, 1);
    let _ = server.calls();
    let report = client.sync_from_local(&out, "/u", &options).await.unwrap();
    assert_eq!((report.files, report.unchanged, report.attributes), (0, 2, 1));
    assert_eq!(server.count(NfsProcedure::Write), 0);
    assert_ne!(bad, good);
}

/// Neither a copy nor a removal goes through a link of the target.
#[tokio::test]
async fn links_of_the_target_are_not_followed() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(place.path(), &["outside/precious"]);
    make(&source, &["f", "d/f"]);
    fs::create_dir(&out).unwrap();
    for name in ["f", "d", "extra"] {
        symlink("../outside/precious", out.join(name)).unwrap();
    }
    fs::remove_file(out.join("d")).unwrap();
    symlink("../outside", out.join("d")).unwrap();
    let (_, client) = served(&source).await;
    client.sync_from_local(&out, "/u", &CopyOptions::default()).await.unwrap();
    client.sync_from_local(place.path().join("outside"), "/outside", &CopyOptions::default()).await.unwrap();
    let options = CopyOptions { sync: deleting(), ..CopyOptions::default() };
    let report = client.sync_to_local("/t", &out, &options).await.unwrap();
    assert_eq!((report.failures.len(), report.deleted), (0, 2));
    let report = client.sync_from_local(&source, "/u", &options).await.unwrap();
    assert_eq!((report.failures.len(), report.deleted), (0, 2));
    assert_eq!(tree(&out), tree(&source));
    assert_eq!(fs::read(place.path().join("outside/precious")).unwrap(), b"outside/precious");
    let there = client.open("/outside/precious").await.unwrap();
    assert_eq!(there.read_at(0, 100).await.unwrap(), "outside/precious");
}

/// Two files of the source never share a file of the target, and the names of one do.
#[tokio::test]
async fn names_of_one_file() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["a"]);
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    let (server, client) = served(&source).await;
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    let _ = server.calls();
    let report = client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    assert_eq!((report.unchanged, report.hard_links), (2, 0));
    assert_eq!(server.count(NfsProcedure::Read), 0);
    let time = fs::metadata(source.join("a")).unwrap().modified().unwrap();
    fs::remove_file(source.join("b")).unwrap();
    fs::write(source.join("b"), "a").unwrap();
    let times = fs::FileTimes::new().set_modified(time);
    fs::File::options().write(true).open(source.join("b")).unwrap().set_times(times).unwrap();
    let report = client.sync_from_local(&source, "/t", &CopyOptions::default()).await.unwrap();
    assert_eq!((report.unchanged, report.files), (1, 1));
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    assert_eq!(tree(&out), tree(&source));
}

/// A name of a file is removed although this sync gives the file another name.
#[tokio::test]
async fn a_name_is_removed_from_a_file_that_gets_another_name() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["a/first", "z/f"]);
    fs::hard_link(source.join("a/first"), source.join("m")).unwrap();
    fs::hard_link(source.join("z/f"), source.join("b")).unwrap();
    // A link that takes the place of another file.
    make(&source, &["r/replaced"]);
    let (_, client) = served(&source).await;
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    fs::rename(source.join("z"), source.join("c")).unwrap();
    fs::rename(source.join("a/first"), source.join("r/replaced")).unwrap();
    for (way, local) in [(Way::There, &source), (Way::Back, &out)] {
        let report = check(&client, way, local, false).await;
        assert_eq!((report.files, report.hard_links, report.deleted), (0, 2, 3), "{way:?}");
    }
    assert_eq!(tree(&out), tree(&source));
}

/// By content too, names of one file stay so, and two equal files of the source become two files.
#[tokio::test]
async fn names_of_one_file_by_content() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["a", "d/e"]);
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    fs::hard_link(source.join("d/e"), source.join("f")).unwrap();
    let (_, client) = served(&source).await;
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    for (way, local) in [(Way::There, &source), (Way::Back, &out)] {
        let report = check(&client, way, local, true).await;
        assert_eq!((report.unchanged, report.hard_links, report.files), (4, 0, 0), "{way:?}");
    }
    let time = fs::metadata(source.join("a")).unwrap().modified().unwrap();
    fs::remove_file(source.join("b")).unwrap();
    fs::write(source.join("b"), "a").unwrap();
    let times = fs::FileTimes::new().set_modified(time);
    fs::File::options().write(true).open(source.join("b")).unwrap().set_times(times).unwrap();
    fs::write(source.join("f"), "!/e").unwrap();
    for (way, local) in [(Way::There, &source), (Way::Back, &out)] {
        let report = check(&client, way, local, true).await;
        assert_eq!((report.unchanged, report.hard_links, report.files), (1, 1, 2), "{way:?}");
    }
    assert_eq!(tree(&out), tree(&source));
}

/// A wrong kind of source or target changes nothing.
#[tokio::test]
async fn both_sides_are_directories() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["f"]);
    let (_, client) = served(&source).await;
    let options = CopyOptions { sync: deleting(), ..CopyOptions::default() };
    fs::write(&out, "kept").unwrap();
    assert!(
        client.sync_to_local("/t", &out, &options).await.unwrap_err().to_string().contains("not a directory")
    );
    for (local, remote) in [(&out, "/t"), (&source, "/t/f"), (&source, "/none/t")] {
        client.sync_from_local(local, remote, &options).await.unwrap_err();
    }
    assert!(matches!(client.sync_to_local("/t/f", &out, &options).await, Err(Error::NotDirectory { .. })));
    assert_eq!(fs::read(&out).unwrap(), b"kept");
    // The root of an export is a target too, and keeps its own attributes.
    let before = client.root_attributes().await.unwrap();
    let report = client.sync_from_local(&source, "/", &options).await.unwrap();
    assert_eq!((report.failures.len(), report.files, report.deleted), (0, 1, 2));
    let after = client.root_attributes().await.unwrap();
    assert_eq!((after.mode, after.uid), (before.mode, before.uid));
}

/// When the server is lost, nothing is removed.
#[tokio::test]
async fn a_lost_server_costs_nothing() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["f", "d/f"]);
    make(&out, &["extra"]);
    let (server, client) = served(&source).await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Read => crate::client::tests::Step::Fail(rpcrdma::CallError::ConnectionLost {
            reason: rpcrdma::Cause::message("test"),
        }),
        _ => crate::client::tests::Step::Serve,
    });
    let options = CopyOptions { sync: deleting(), ..CopyOptions::default() };
    assert!(matches!(client.sync_to_local("/t", &out, &options).await, Err(Error::Transport { .. })));
    assert!(out.join("extra").exists());
}

/// Attributes alone are set without a copy of data.
#[tokio::test]
async fn attributes_are_set_without_data() {
    let place = tempdir().unwrap();
    let (source, out) = (place.path().join("s"), place.path().join("o"));
    make(&source, &["f", "d/f"]);
    let (server, client) = served(&source).await;
    client.sync_to_local("/t", &out, &CopyOptions::default()).await.unwrap();
    fs::set_permissions(source.join("f"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(source.join("d"), fs::Permissions::from_mode(0o711)).unwrap();
    let (options, changes) = observed(SyncOptions::default());
    let _ = server.calls();
    for report in [
        client.sync_from_local(&source, "/t", &options).await.unwrap(),
        client.sync_to_local("/t", &out, &options).await.unwrap(),
    ] {
        assert_eq!((report.files, report.attributes, report.unchanged), (0, 2, 1));
    }
    assert_eq!((server.count(NfsProcedure::Read), server.count(NfsProcedure::Write)), (0, 0));
    assert_eq!(tree(&out), tree(&source));
    let kinds: BTreeSet<_> = changes.lock().unwrap().iter().map(|(kind, _)| kind.clone()).collect();
    assert_eq!(kinds, BTreeSet::from([format!("{:?}", Change::Attributes)]));
    client
        .set_attributes("/t/d", SetAttributes { mode: Some(0o700), ..SetAttributes::default() })
        .await
        .unwrap();
}
