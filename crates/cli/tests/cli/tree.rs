//! Tests that store a real tree and fetch it back over iWARP.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Server, json, scratch, succeed};

/// Generator of bytes without a pattern that could hide a misplaced segment.
struct Bytes(u64);

impl Bytes {
    fn fill(&mut self, length: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(length + 8);
        while data.len() < length {
            // splitmix64
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            data.extend_from_slice(&(word ^ (word >> 31)).to_ne_bytes());
        }
        data.truncate(length);
        data
    }
}

/// Object of a tree, with its content.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File { mode: u32, checksum: u64, length: u64 },
    Link(PathBuf),
}

fn checksum(data: &[u8]) -> u64 {
    // FNV-1a over words and the rest: enough to tell trees apart.
    let (words, rest) = data.as_chunks::<8>();
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

fn read_tree(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut entries = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let found = if metadata.is_dir() {
                open.push(path.clone());
                Entry::Directory
            } else if metadata.is_symlink() {
                Entry::Link(fs::read_link(&path).unwrap())
            } else {
                let data = fs::read(&path).unwrap();
                let mode = metadata.permissions().mode() & 0o777;
                Entry::File { mode, checksum: checksum(&data), length: metadata.size() }
            };
            entries.insert(path.strip_prefix(root).unwrap().to_owned(), found);
        }
    }
    entries
}

/// Makes more than 2,000 files. Returns their number.
fn make_tree(root: &Path) -> usize {
    let mut bytes = Bytes(1);
    let mut files = 0;
    let mut file = |path: PathBuf, length: usize| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes.fill(length)).unwrap();
        files += 1;
    };
    // Small files, with each length around the sizes at which the transfer changes.
    for index in 0..1900 {
        let length = match index % 19 {
            0 => 0,
            1..=4 => index % 5,
            5..=12 => 800 + index,
            13..=16 => 3900 + index % 400,
            _ => 20_000 + 7 * index,
        };
        file(root.join(format!("d{}/e{}/file {index}", index % 23, index % 7)), length);
    }
    // Lengths around READ and WRITE sizes, odd and even.
    for (index, length) in [(1 << 16) - 1, (1 << 16) + 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_333_333]
        .into_iter()
        .enumerate()
    {
        file(root.join(format!("sizes/{index}")), length);
    }
    file(root.join("large/64 MiB"), 64 << 20);
    file(root.join("large/odd"), (17 << 20) + 4321);
    // A deep directory.
    let mut deep = root.join("deep");
    for level in 0..60 {
        deep.push(format!("level{level}"));
        file(deep.join("f"), level);
    }
    // Unusual names.
    for (index, name) in
        ["naïve", "日本語", "🦀 crab", "e\u{301}", "a%20b", "-rf", "tab\tname", "new\nline", "'\"\\", "#?&"]
            .into_iter()
            .enumerate()
    {
        for copy in 0..5 {
            file(root.join("names").join(name).join(format!("{copy}{name}")), 100 * index + copy);
        }
    }
    file(root.join("names").join("n".repeat(255)), 5);
    // A large directory.
    for index in 0..100 {
        file(root.join("wide").join(format!("{}{index}", "long name ".repeat(15))), index % 3);
    }
    fs::create_dir_all(root.join("empty/empty")).unwrap();
    symlink("../large/odd", root.join("names/link")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    fs::set_permissions(root.join("large/odd"), fs::Permissions::from_mode(0o751)).unwrap();
    files
}

fn differences(a: &BTreeMap<PathBuf, Entry>, b: &BTreeMap<PathBuf, Entry>) -> Vec<String> {
    let missing = a.iter().filter(|(path, entry)| b.get(*path) != Some(entry));
    let extra = b.iter().filter(|(path, _)| !a.contains_key(*path));
    missing.chain(extra).map(|(path, entry)| format!("{path:?}: {entry:?}")).collect()
}

#[test]
fn a_tree_is_stored_and_fetched_back_unchanged() {
    there_and_back(&[], &[]);
}

#[test]
fn a_tree_survives_version_two_by_the_first_document() {
    there_and_back(&["--rpcrdma-version", "2"], &[]);
}

#[test]
fn a_tree_survives_version_two_by_the_second_document() {
    there_and_back(&["--rpcrdma-version", "2", "--profile", "p2"], &["--profile", "p2"]);
}

#[test]
fn a_tree_survives_version_two_by_the_third_document() {
    there_and_back(&["--rpcrdma-version", "2", "--profile", "p3"], &["--profile", "p3"]);
}

/// rtrext-02: messages divided among Sends, items placed by Sends, both, and a peer that supports neither;
/// also several messages in one Send.
#[test]
fn a_tree_survives_messages_divided_among_sends_and_items_placed_by_them() {
    let two = ["--rpcrdma-version", "2"];
    for (client, server) in [
        (&["--continuation", "16"][..], &["--continuation", "16"][..]),
        (&["--continuation", "1", "--placement", "64K"], &["--continuation", "1", "--placement", "64K"]),
        (
            &["--continuation", "32", "--placement", "8K", "--profile", "p2"],
            &["--placement", "16K", "--profile", "p2"],
        ),
        (&["--combine", "16", "--placement", "16K"], &["--combine", "8"]),
        (&["--placement", "16K"], &["--continuation", "0"]),
        (&["--continuation", "0"], &["--placement", "16K"]),
    ] {
        there_and_back(&[&two, client].concat(), server);
    }
}

#[test]
fn a_tree_survives_the_fallback_to_version_one() {
    there_and_back(&["--rpcrdma-version", "auto"], &["--rpcrdma-version", "1"]);
}

/// Stores a tree and fetches it back, with these options of the client and of the server.
fn there_and_back(client: &[&str], server: &[&str]) {
    let server = Server::start_with(server);
    let with =
        |arguments: &[&str]| [arguments, client].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let place = scratch();
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    let files = make_tree(&source);
    assert!(files >= 2000, "{files}");
    let original = read_tree(&source);

    let stored = json(&with(&["put", "-r", "-p", source.to_str().unwrap(), &server.url("/copy")]));
    assert_eq!(stored["files"], files);
    assert_eq!(stored["failed"].as_array().unwrap().len(), 0);
    let at_server = read_tree(&server.directory().join("copy"));
    assert_eq!(differences(&original, &at_server), Vec::<String>::new());

    let fetched = place.path().join("fetched");
    let got = json(&with(&["get", "-r", "-p", &server.url("/copy"), fetched.to_str().unwrap()]));
    assert_eq!(got["files"], files);
    assert_eq!(got["bytes"], stored["bytes"]);
    assert_eq!(differences(&original, &read_tree(&fetched)), Vec::<String>::new());

    succeed(&with(&["rm", "-r", &server.url("/copy")]));
    assert_eq!(fs::read_dir(server.directory()).unwrap().count(), 0);
}

#[test]
fn copies_go_where_cp_would_put_them() {
    let server = Server::start();
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(place.path().join("a/b")).unwrap();
    fs::write(place.path().join("a/b/f"), "one").unwrap();
    fs::write(place.path().join("g"), "two").unwrap();

    // If the destination does not exist, its name is that of the copy.
    succeed(&["put", "-r", &path("a"), &server.url("/new")]);
    assert_eq!(fs::read(server.directory().join("new/b/f")).unwrap(), b"one");
    // If the destination is a directory, the copy goes into it.
    succeed(&["put", "-r", &path("a"), &path("g"), &server.url("/new")]);
    assert_eq!(fs::read(server.directory().join("new/a/b/f")).unwrap(), b"one");
    assert_eq!(fs::read(server.directory().join("new/g")).unwrap(), b"two");
    // An existing file is replaced.
    fs::write(place.path().join("g"), "three").unwrap();
    succeed(&["put", &path("g"), &server.url("/new/g")]);
    assert_eq!(fs::read(server.directory().join("new/g")).unwrap(), b"three");
    // SOURCE/. gives the entries.
    succeed(&["mkdir", &server.url("/entries")]);
    succeed(&["put", "-r", &path("a/."), &server.url("/entries")]);
    assert_eq!(fs::read(server.directory().join("entries/b/f")).unwrap(), b"one");

    // For get these rules hold too.
    succeed(&["get", "-r", &server.url("/new/a"), &path("fresh")]);
    assert_eq!(fs::read(place.path().join("fresh/b/f")).unwrap(), b"one");
    succeed(&["get", "-r", &server.url("/new/a"), &server.url("/new/g"), &path("fresh")]);
    assert_eq!(fs::read(place.path().join("fresh/a/b/f")).unwrap(), b"one");
    assert_eq!(fs::read(place.path().join("fresh/g")).unwrap(), b"three");
    // The root has no name.
    fs::create_dir(place.path().join("all")).unwrap();
    succeed(&["get", "-r", &server.url("/"), &path("all")]);
    assert_eq!(fs::read(place.path().join("all/new/a/b/f")).unwrap(), b"one");
}
