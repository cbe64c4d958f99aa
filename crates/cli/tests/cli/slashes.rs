//! Tests of names with a slash at their end: they name directories, as for `cp`, `mv`, `mkdir`, `ln` and `rm`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Server, fail, scratch, succeed};

/// Server with the directory `d`, the file `f`, a link to each, and a link that leads nowhere.
fn server() -> Server {
    let server = Server::start();
    let at = server.directory();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("d/inside"), "inside").unwrap();
    fs::write(at.join("f"), "precious").unwrap();
    symlink("d", at.join("to-d")).unwrap();
    symlink("f", at.join("to-f")).unwrap();
    symlink("nothing", at.join("to-nothing")).unwrap();
    server
}

/// Returns the names below a directory with their content, sorted.
fn listing(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
            if metadata.is_dir() {
                open.push(path.clone());
            }
            found.push(format!("{} {content}", path.display()));
        }
    }
    found.sort();
    found
}

/// Runs a command, which must refuse with this text and change nothing in the directory.
fn refused(directory: &Path, arguments: &[&str], seen: &str) {
    let before = listing(directory);
    let complaint = fail(1, arguments);
    assert!(complaint.contains("not a directory") && complaint.contains(seen), "{arguments:?}: {complaint}");
    assert_eq!(listing(directory), before, "{arguments:?}");
}

#[test]
fn a_file_does_not_become_the_directory_of_its_target() {
    let server = server();
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("report"), "new").unwrap();
    let report = path("report");
    for (name, seen) in [
        ("/f/", "is a file"),
        ("/f/.", "is a file"),
        ("/f//", "is a file"),
        // The name is a link, which leads to a file.
        ("/to-f/", "it is a "),
        ("/nodir/", "nothing has that name"),
        ("/nodir/.", "nothing has that name"),
        ("/to-nothing/", "is a symbolic link"),
    ] {
        let url = server.url(name);
        for options in [&["put"][..], &["put", "-r"], &["put", "--in-place"]] {
            refused(&server.directory(), &[options, &[&report, &url]].concat(), seen);
        }
        refused(&server.directory(), &["put", "-", &url], seen);
        refused(&server.directory(), &["mv", &server.url("/d/inside"), &url], seen);
        refused(&server.directory(), &["ln", &server.url("/d/inside"), &url], seen);
        refused(&server.directory(), &["ln", "-s", "text", &url], seen);
    }
    // The message names the target as it was written.
    let url = server.url("/nodir/");
    assert!(fail(1, &["mv", &server.url("/f"), &url]).contains(&format!("{url}: not a directory")));
}

#[test]
fn a_fetched_file_does_not_become_its_directory() {
    let server = server();
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "precious").unwrap();
    symlink("nothing", path("to-nothing")).unwrap();
    for (name, seen) in [
        ("file/", "is a file"),
        ("file/.", "is a file"),
        ("nodir/", "nothing has that name"),
        ("nodir/.", "nothing has that name"),
        ("to-nothing/", "is a symbolic link"),
    ] {
        let (url, to) = (server.url("/f"), path(name));
        for options in [&["get"][..], &["get", "-r"], &["get", "--in-place"]] {
            refused(place.path(), &[options, &[&url, &to]].concat(), seen);
        }
        // A link that is copied as a link is no directory either.
        refused(place.path(), &["get", "-r", &server.url("/to-d"), &to], seen);
    }
    refused(place.path(), &["get", "-r", &server.url("/d"), &path("file/")], "is a file");
}

#[test]
fn a_source_with_a_slash_is_a_directory() {
    let server = server();
    let place = scratch();
    let out = place.path().join("out").to_str().unwrap().to_owned();
    for (name, seen) in [("/f/", "is a file"), ("/to-f/.", "")] {
        let url = server.url(name);
        for arguments in [
            &["get", &url, &out][..],
            &["get", "-r", &url, &out],
            &["cat", &url],
            &["ls", &url],
            &["stat", &url],
            &["rm", &url],
            &["rm", "-r", &url],
            &["mv", &url, &server.url("/new")],
            &["ln", &url, &server.url("/new")],
        ] {
            refused(&server.directory(), arguments, seen);
            assert!(!Path::new(&out).exists());
        }
    }
    // A link is neither removed nor emptied nor moved as the directory to which it leads.
    for arguments in [&["rm"][..], &["rm", "-r"], &["rm", "-r", "-f"]] {
        let url = server.url("/to-d/");
        refused(&server.directory(), &[arguments, &[&url]].concat(), "is a symbolic link");
    }
    refused(&server.directory(), &["mv", &server.url("/to-d/"), &server.url("/new")], "is a symbolic link");
    // With the slash, a link is the directory to which it leads.
    assert_eq!(succeed(&["ls", &server.url("/to-d/")]), "inside\n");
    assert!(succeed(&["stat", &server.url("/to-d/")]).contains("Type: directory"));
    succeed(&["get", "-r", &server.url("/to-d/"), &out]);
    assert_eq!(fs::read_to_string(Path::new(&out).join("inside")).unwrap(), "inside");
    assert!(fail(1, &["rm", &server.url("/d/")]).contains("add -r"));
    succeed(&["rm", "-r", &server.url("/d/")]);
    assert!(!server.directory().join("d").exists());
}

#[test]
fn directories_are_made_and_filled_with_a_slash() {
    let server = server();
    let place = scratch();
    let at = server.directory();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("tree")).unwrap();
    fs::write(path("tree/leaf"), "leaf").unwrap();
    let leaf = |path: &Path| fs::read_to_string(path.join("leaf")).unwrap();

    // An existing directory, or a link to one, takes what comes.
    for (target, seen) in [("/d/", "d"), ("/d/.", "d"), ("/to-d/", "d")] {
        succeed(&["put", &path("tree/leaf"), &server.url(target)]);
        assert_eq!(leaf(&at.join(seen)), "leaf");
        fs::remove_file(at.join(seen).join("leaf")).unwrap();
    }
    // A new name with a slash is the new directory itself.
    succeed(&["put", "-r", &path("tree"), &server.url("/new/")]);
    assert_eq!(leaf(&at.join("new")), "leaf");
    succeed(&["put", "-r", &path("tree/"), &server.url("/new/")]);
    assert_eq!(leaf(&at.join("new/tree")), "leaf");
    succeed(&["get", "-r", &server.url("/new/tree/"), &path("back/")]);
    assert_eq!(leaf(&place.path().join("back")), "leaf");
    succeed(&["get", &server.url("/new/leaf"), &path("back/")]);
    succeed(&["mkdir", &server.url("/made/")]);
    succeed(&["mkdir", "-p", &server.url("/made/below/it/")]);
    assert!(at.join("made/below/it").is_dir());
    succeed(&["mv", &server.url("/made/"), &server.url("/moved/")]);
    assert!(at.join("moved/below/it").is_dir() && !at.join("made").exists());
    succeed(&["mv", &server.url("/moved"), &server.url("/to-d/")]);
    assert!(at.join("d/moved/below/it").is_dir());
    succeed(&["ln", &server.url("/f"), &server.url("/d/")]);
    succeed(&["ln", "-s", "anything/", &server.url("/d/")]);
    assert_eq!(fs::read_link(at.join("d/anything")).unwrap(), Path::new("anything/"));
    assert_eq!(fs::read_to_string(at.join("d/f")).unwrap(), "precious");
    refused(&at, &["mv", &server.url("/d"), &server.url("/f/")], "is a file");
    refused(&at, &["mv", &server.url("/d"), &server.url("/to-nothing/")], "is a symbolic link");
}
