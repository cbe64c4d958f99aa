//! Tests of `sync`, of patterns and of `--partial`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Server, command, fail, json, run, scratch, signal, succeed, until, wait};

fn make(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_becomes_equal_and_stays_so() {
    let server = Server::start();
    let place = scratch();
    let (source, out) = (place.path().join("source"), place.path().join("out"));
    make(&source, &["a", "d/b", "d/c"]);
    let (from, to) = (source.to_str().unwrap(), out.to_str().unwrap());
    let url = server.url("/copy/");
    // A dry run tells, and changes nothing.
    let mut lines: Vec<_> = succeed(&["sync", "-n", from, &url]).lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [
        format!("copy {from}/a"),
        format!("copy {from}/d/b"),
        format!("copy {from}/d/c"),
        format!("make directory {from}/"),
        format!("make directory {from}/d/"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(names(&server.directory()), [""; 0]);
    let document = json(&["sync", from, &url]);
    assert_eq!((&document["files"], &document["directories"]), (&3.into(), &2.into()));
    let document = json(&["sync", from, &url]);
    assert_eq!((&document["files"], &document["unchanged"]), (&0.into(), &3.into()));
    assert_eq!(document["ended"], "complete");
    succeed(&["sync", &url, to]);
    assert_eq!(names(&out.join("d")), ["b", "c"]);
    assert_eq!(
        fs::metadata(out.join("d/b")).unwrap().mtime_nsec(),
        fs::metadata(source.join("d/b")).unwrap().mtime_nsec()
    );
    // Objects that the source lacks stay without --delete.
    fs::remove_dir_all(source.join("d")).unwrap();
    make(&source, &["d"]);
    let complaint = fail(4, &["sync", from, &url]);
    assert!(complaint.contains("d is a file, but the target has a directory"), "{complaint}");
    let document = json(&["sync", "--delete", "-n", from, &url]);
    let changes: Vec<_> =
        document["changes"].as_array().unwrap().iter().map(|change| &change["change"]).collect();
    assert_eq!(changes.iter().filter(|change| **change == "delete").count(), 3, "{document}");
    assert_eq!(names(&server.directory().join("copy/d")), ["b", "c"]);
    let document = json(&["sync", "--delete", from, &url]);
    assert_eq!((&document["deleted"], &document["files"]), (&3.into(), &1.into()));
    assert!(server.directory().join("copy/d").is_file());
    // The document is printed after a failure too.
    let output = run(&["sync", "--json", &server.url("/none"), to]);
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["failed"].as_array().unwrap().len(), 1, "{document}");
    assert!(fail(2, &["sync", from, to]).contains("both local"));
    assert!(fail(1, &["sync", &format!("{from}/a"), &url]).contains("Not a directory"));
}

#[test]
fn patterns_are_for_trees() {
    let server = Server::start();
    let place = scratch();
    let source = place.path().join("source");
    make(&source, &["a.o", "a.c", "d/b.o", "d/b.c"]);
    let (from, url) = (source.to_str().unwrap(), server.url("/"));
    succeed(&["put", "-r", "--include", "b.o", "--exclude", "*.o", from, &url]);
    assert_eq!(names(&server.directory().join("source")), ["a.c", "d"]);
    assert_eq!(names(&server.directory().join("source/d")), ["b.c", "b.o"]);
    let patterns = place.path().join("patterns");
    fs::write(&patterns, "# objects\n*.o\n").unwrap();
    let out = place.path().join("out");
    let options = ["--exclude-from", patterns.to_str().unwrap()];
    succeed(&[&["get", "-r", &server.url("/source"), out.to_str().unwrap()], &options[..]].concat());
    assert_eq!(names(&out.join("d")), ["b.c"]);
    assert!(fail(2, &["put", "--exclude", "x", from, &url]).contains("add -r"));
    assert!(fail(2, &["sync", "--exclude", "a**b", from, &url]).contains("a**b"));
}

/// The part of an interrupted copy stays, and the next copy continues it.
#[test]
fn an_interrupted_copy_is_continued() {
    let server = Server::start();
    let place = scratch();
    let data: Vec<u8> = (0..100_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let source = place.path().join("big");
    fs::write(&source, &data).unwrap();
    let url = server.url("/big");
    // A stopped server makes the copy stand still.
    let mut child = command(&["put", "--partial", source.to_str().unwrap(), &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let part = || {
        let entries = fs::read_dir(server.directory()).unwrap();
        entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).max().unwrap_or(0)
    };
    until("nothing is stored", || part() > 40 << 20 || server.directory().join("big").exists());
    signal(child.id(), "INT");
    let status = wait(&mut child, Duration::from_secs(20));
    if status.code() == Some(130) {
        let [left] = names(&server.directory()).try_into().unwrap();
        assert!(left.starts_with(".big.") && left.ends_with(".rpcrdma-partial"), "{left}");
        let document = json(&["put", "--partial", source.to_str().unwrap(), &url]);
        assert!(document["resumed"].as_u64().unwrap() >= 32 << 20, "{document}");
    } else {
        // The copy was faster than the signal.
        assert!(status.success());
    }
    assert_eq!(names(&server.directory()), ["big"]);
    assert!(fs::read(server.directory().join("big")).unwrap() == data);
}

/// A file that grows while it is read is named, and the exit code tells.
#[test]
fn a_file_that_grows_during_a_copy_is_named() {
    let server = Server::start();
    let place = scratch();
    let source = place.path().join("growing");
    let mut file = fs::File::create(&source).unwrap();
    file.write_all(&vec![7; 50_000_000]).unwrap();
    let mut child = command(&["put", "--json", source.to_str().unwrap(), &server.url("/")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
        file.write_all(b"more").unwrap();
        std::thread::sleep(Duration::from_millis(1));
    };
    let (mut complaint, mut printed) = (String::new(), String::new());
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["changed_meanwhile"], 1, "{complaint}");
    assert_eq!(status.code(), Some(4), "{complaint}");
    assert!(complaint.contains("growing: changed while it was read"), "{complaint}");
}
