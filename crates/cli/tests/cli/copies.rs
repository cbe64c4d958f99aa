//! Tests of `get` and `put`: standard input and output, signals, holes, and attributes that cannot be kept.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Server, command, fail, json, run, scratch, signal, succeed, text, until, wait};

/// Runs the command with this standard input. Returns its output.
fn with_input(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output.stdout
}

#[test]
fn standard_input_and_output() {
    let server = Server::start();
    let data: Vec<u8> = (0..3_000_000_u32).map(|index| u8::try_from(index % 251).unwrap()).collect();
    for (name, source) in [("dash", "-"), ("device", "/dev/stdin"), ("descriptor", "/dev/fd/0")] {
        let url = server.url(&format!("/{name}"));
        with_input(&["put", source, &url], &data);
        let stored = server.directory().join(name);
        assert!(fs::read(&stored).unwrap() == data, "{name}");
        assert_eq!(fs::metadata(&stored).unwrap().mode() & 0o600, 0o600);
        for target in ["-", "/dev/stdout", "/dev/fd/1"] {
            assert!(with_input(&["get", &url, target], b"") == data, "{name} {target}");
        }
    }
    // Process substitution passes a pipe under such a name.
    let script = format!(
        "printf text | {} put /dev/fd/3 {} 3<&0 </dev/null",
        env!("CARGO_BIN_EXE_rpcrdma"),
        server.url("/substituted")
    );
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    assert_eq!(fs::read(server.directory().join("substituted")).unwrap(), b"text");

    let url = server.url("/dash");
    assert!(fail(2, &["put", "-", &server.url("/")]).contains("add the name"));
    assert!(fail(2, &["put", "-", "x", &server.url("/")]).contains("only source"));
    assert!(fail(2, &["get", &url, &url, "-"]).contains("one file only"));
    assert!(fail(2, &["get", "-r", &url, "-"]).contains("leave -r out"));
    assert!(fail(2, &["get", "--json", &url, "-"]).contains("--json"));
    assert!(fail(1, &["get", &server.url("/"), "-"]).contains("is a directory"));
    let complaint = fail(1, &["put", "/nonexistent", &server.url("/")]);
    assert!(complaint.starts_with("rpcrdma: /nonexistent: No such file"), "{complaint}");
    let here = std::env::current_dir().unwrap();
    let complaint = fail(1, &["put", here.to_str().unwrap(), &server.url("/")]);
    assert!(complaint.ends_with("is a directory: add -r to copy it\n"), "{complaint}");
}

/// Starts a put that stands in the middle of a file, as its standard input does.
fn half_a_put(server: &Server) -> Child {
    half_of(server, command(&["put", "--json", "--timeout", "2", "-", &server.url("/file")]))
}

fn half_of(server: &Server, mut put: std::process::Command) -> Child {
    let mut child = put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The child's handle keeps the pipe open.
    child.stdin.as_mut().unwrap().write_all(&vec![7; 5 << 20]).unwrap();
    until("nothing is stored", || {
        fs::read_dir(server.directory())
            .unwrap()
            .any(|entry| entry.unwrap().metadata().is_ok_and(|file| file.len() >= 1 << 20))
    });
    child
}

#[test]
fn an_interrupted_put_leaves_the_old_file() {
    let server = Server::start();
    let file = server.directory().join("file");
    for name in ["INT", "TERM", "HUP"] {
        fs::write(&file, "precious").unwrap();
        let mut child = half_a_put(&server);
        signal(child.id(), name);
        let status = wait(&mut child, Duration::from_secs(20));
        assert_eq!(status.code(), Some(130), "{name}");
        let mut complaint = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert!(complaint.contains(&format!("SIG{name}")), "{complaint}");
        let document = document(&mut child);
        assert_eq!(document["ended"], format!("stopped by SIG{name}"));
        assert!(document["bytes"].as_u64().unwrap() >= 1 << 20, "{document}");
        assert_eq!(fs::read(&file).unwrap(), b"precious", "{name}");
        assert_eq!(
            (&document["octets"], &document["octets_per_second"]),
            (&document["bytes"], &document["bytes_per_second"])
        );
        assert_eq!(fs::read_dir(server.directory()).unwrap().count(), 1, "{name}: a temporary file is left");
    }
    // After SIGKILL the temporary file stays, but the old file is complete.
    let mut child = half_a_put(&server);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

/// Returns the document that a command with `--json` has printed.
fn document(child: &mut Child) -> serde_json::Value {
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed:?}"))
}

#[test]
fn a_copy_whose_server_is_lost_tells_what_it_did() {
    let mut server = Server::start();
    let mut child = half_a_put(&server);
    server.kill();
    let _ = child.stdin.as_mut().unwrap().write_all(&vec![7; 20 << 20]);
    drop(child.stdin.take());
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(3));
    let document = document(&mut child);
    let ended = document["ended"].as_str().unwrap();
    assert!(ended.starts_with("nfs://"), "{ended}");
    assert!(document["bytes"].as_u64().unwrap() >= 1 << 20, "{document}");
    let url = server.url("/file");
    let output = run(&["get", "--json", "--timeout", "1", &url, server.place.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["files"], 0);
    assert!(document["ended"].as_str().unwrap().contains("cannot connect"), "{document}");
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    let server = Server::start();
    let script = "trap '' INT TERM HUP; exec \"$@\"";
    let mut shell = std::process::Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_rpcrdma");
    shell.args(["-c", script, "sh", binary, "put", "--json", "-", &server.url("/file")]);
    let mut child = half_of(&server, shell);
    for name in ["INT", "TERM", "HUP"] {
        signal(child.id(), name);
    }
    child.stdin.take().unwrap().write_all(&[8; 5]).unwrap();
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(0));
    assert_eq!(document(&mut child)["ended"], "complete");
    assert_eq!(fs::metadata(server.directory().join("file")).unwrap().len(), (5 << 20) + 5);
}

#[test]
fn the_mask_of_the_process_applies_to_new_objects() {
    let server = Server::start();
    let place = scratch();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "one").unwrap();
    fs::set_permissions(tree.join("f"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o777)).unwrap();
    let masked = |arguments: &[&str]| {
        let binary = env!("CARGO_BIN_EXE_rpcrdma");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask 027; exec \"$@\"", "sh", binary]).args(arguments);
        assert!(shell.stdin(Stdio::null()).status().unwrap().success());
    };
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let tree = tree.to_str().unwrap();
    masked(&["put", "-r", tree, &server.url("/copy")]);
    masked(&["put", "-", &server.url("/stream")]);
    assert_eq!(mode(&server.directory().join("copy")), 0o750);
    assert_eq!(mode(&server.directory().join("copy/f")), 0o640);
    assert_eq!(mode(&server.directory().join("stream")), 0o640);
    masked(&["put", "-r", "-p", tree, &server.url("/kept")]);
    assert_eq!(mode(&server.directory().join("kept")), 0o777);
    assert_eq!(mode(&server.directory().join("kept/f")), 0o666);
    let out = place.path().join("out");
    fs::set_permissions(server.directory().join("kept"), fs::Permissions::from_mode(0o555)).unwrap();
    masked(&["get", "-r", &server.url("/kept"), out.to_str().unwrap()]);
    assert_eq!((mode(&out), mode(&out.join("f"))), (0o550, 0o640));
}

#[test]
fn two_sources_of_one_name_are_not_one_copy() {
    let server = Server::start();
    let place = scratch();
    for side in ["A", "B"] {
        fs::create_dir(place.path().join(side)).unwrap();
        fs::write(place.path().join(side).join("s"), side).unwrap();
        fs::create_dir(server.directory().join(side)).unwrap();
        fs::write(server.directory().join(side).join("s"), side).unwrap();
    }
    let source = |side: &str| place.path().join(side).join("s").to_str().unwrap().to_owned();
    let complaint = fail(4, &["put", &source("A"), &source("B"), &server.url("/")]);
    assert!(complaint.contains("another source"), "{complaint}");
    assert_eq!(fs::read(server.directory().join("s")).unwrap(), b"A");
    let out = place.path().to_str().unwrap();
    let complaint = fail(4, &["get", &server.url("/A/s"), &server.url("/B/s"), out]);
    assert!(complaint.contains("another source"), "{complaint}");
    assert_eq!(fs::read(place.path().join("s")).unwrap(), b"A");
}

/// An ordinary user who is in the group of a file keeps that group; others get a warning.
#[test]
fn a_group_is_kept_by_a_member() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let server = Server::start();
    let file = server.directory().join("f");
    fs::write(&file, "one").unwrap();
    std::os::unix::fs::chown(&file, Some(1234), Some(2345)).unwrap();
    let place = scratch();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for (groups, group, lost) in [("2345", 2345, 0), ("3456", 1234, 1)] {
        let out = place.path().join(groups);
        let mut get = std::process::Command::new("setpriv");
        get.args(["--reuid", "1234", "--regid", "1234", "--groups", groups, env!("CARGO_BIN_EXE_rpcrdma")]);
        let output = get.args(["get", "-p", "--json", &server.url("/f"), out.to_str().unwrap()]).output();
        let Ok(output) = output else {
            eprintln!("skipped: there is no setpriv");
            return;
        };
        if text(&output.stderr).contains("setpriv") {
            eprintln!("skipped: the binary is not reached by others: {}", text(&output.stderr));
            return;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let metadata = fs::metadata(&out).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, group));
        assert_eq!((&document["groups_not_kept"], &document["owners_not_kept"]), (&lost.into(), &0.into()));
    }
}

/// A file that is mounted over another cannot be replaced by a rename.
#[test]
fn a_mounted_file_is_written_in_place() {
    let server = Server::start();
    fs::write(server.directory().join("f"), "new").unwrap();
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    for name in ["below", "above"] {
        fs::write(path(name), "old").unwrap();
    }
    let script = "mount --bind \"$1\" \"$2\" || exit 77; exec \"$3\" get \"$4\" \"$2\"";
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script, "sh", &path("above"), &path("below")]);
    let output = unshare.args([env!("CARGO_BIN_EXE_rpcrdma"), &server.url("/f")]).output();
    let unavailable = |output: &std::process::Output| {
        output.status.code() == Some(77) || text(&output.stderr).contains("unshare")
    };
    match output {
        Ok(output) if !unavailable(&output) => {
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(fs::read(path("above")).unwrap(), b"new");
            assert_eq!(fs::read(path("below")).unwrap(), b"old");
        }
        _ => eprintln!("skipped: nothing can be mounted here"),
    }
}

#[test]
fn a_hangup_does_not_stop_a_server() {
    let server = Server::start();
    server.signal("HUP");
    fs::write(server.directory().join("f"), "one").unwrap();
    assert_eq!(succeed(&["cat", &server.url("/f")]), "one");
    let (status, complaint) = server.stop("TERM");
    assert!(status.success(), "{status} {complaint}");
    assert!(complaint.contains("SIGHUP changes nothing"), "{complaint}");
}

#[test]
fn holes_stay_holes() {
    const GIB: u64 = 1 << 30;
    let server = Server::start();
    let place = scratch();
    let source = place.path().join("sparse");
    let file = fs::File::create(&source).unwrap();
    file.write_all_at(b"middle", 5 * GIB + 3).unwrap();
    file.set_len(10 * GIB).unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let copied = [
        json(&["put", &path("sparse"), &server.url("/copy")]),
        json(&["get", &server.url("/copy"), &path("back")]),
        json(&["get", "--proto", "tcp", &format!("nfs://{}/copy", server.tcp()), &path("back by TCP")]),
    ];
    for document in copied {
        assert_eq!(document["bytes"], 10 * GIB);
        assert!(document["holes"].as_u64().unwrap() > 10 * GIB - (4 << 20), "{document}");
    }
    for copy in [server.directory().join("copy"), path("back").into(), path("back by TCP").into()] {
        let metadata = fs::metadata(&copy).unwrap();
        assert_eq!(metadata.len(), 10 * GIB);
        assert!(metadata.blocks() < 8192, "{copy:?}: {} blocks", metadata.blocks());
        let mut read = [1; 12];
        fs::File::open(&copy).unwrap().read_exact_at(&mut read, 5 * GIB).unwrap();
        assert_eq!(&read, b"\0\0\0middle\0\0\0");
    }
}

#[test]
fn what_is_left_out_or_not_kept_is_counted() {
    let server = Server::start();
    let place = scratch();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "one").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    let tree = tree.to_str().unwrap();
    let stored = json(&["put", "-r", "-p", tree, &server.url("/tree")]);
    assert_eq!((&stored["files"], &stored["hard_links"]), (&1.into(), &1.into()));
    assert_eq!(stored["skipped"].as_array().unwrap().len(), 1);
    for field in ["owners_not_kept", "xattrs_not_kept", "holes"] {
        assert_eq!(stored[field], 0, "{field}");
    }
    let complaint = text(&run(&["put", "-r", tree, &server.url("/again")]).stderr);
    assert!(complaint.contains("1 left out"), "{complaint}");
    let out = place.path().join("out");
    let fetched = json(&["get", "-r", "-p", &server.url("/tree"), out.to_str().unwrap()]);
    assert_eq!((&fetched["files"], &fetched["hard_links"]), (&1.into(), &1.into()));
    let (a, b) = (fs::metadata(out.join("a")).unwrap(), fs::metadata(out.join("b")).unwrap());
    assert_eq!((a.ino(), a.mode() & 0o777), (b.ino(), 0o640));
}

/// `put` reports lost owners at a server that makes root nobody, and lost extended attributes, which NFS
/// version 3 lacks.
#[test]
fn put_tells_what_a_server_does_not_keep() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root is expected to keep owners");
        return;
    }
    let squashed = scratch();
    fs::set_permissions(squashed.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let option = format!("/squashed={},squash=root", squashed.path().display());
    let server = Server::start_with(&["--export", &option]);
    let place = scratch();
    let file = place.path().join("f");
    fs::write(&file, "one").unwrap();
    std::os::unix::fs::chown(&file, Some(1234), Some(2345)).unwrap();
    let marked = rustix::fs::setxattr(&file, "user.comment", b"x", rustix::fs::XattrFlags::empty()).is_ok();
    let output = run(&["put", "-p", "--json", file.to_str().unwrap(), &server.url("/squashed/f")]);
    let (complaint, said) = (text(&output.stderr), |what: &str| text(&output.stderr).contains(what));
    assert!(output.status.success(), "{complaint}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["owners_not_kept"], &document["groups_not_kept"]), (&1.into(), &1.into()));
    assert!(said("1 without the owner of the original"), "{complaint}");
    assert!(said("1 without the group of the original"), "{complaint}");
    assert_eq!(document["xattrs_not_kept"], u64::from(marked));
    assert_eq!(said("1 without extended attributes"), marked, "{complaint}");
}
