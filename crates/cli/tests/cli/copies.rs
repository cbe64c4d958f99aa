//! `get` and `put` with standard input and output, signals, holes, and what cannot be kept.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Server, command, fail, json, run, scratch, signal, succeed, text, until, wait};

/// Runs the command with this standard input; what it printed.
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
    // Process substitution is a pipe under a name like this.
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
}

/// A put that stands in the middle of a file, because its standard input does.
fn half_a_put(server: &Server) -> Child {
    let mut child = command(&["put", "-", &server.url("/file")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Kept open by the child's handle.
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
        assert_eq!(fs::read(&file).unwrap(), b"precious", "{name}");
        assert_eq!(fs::read_dir(server.directory()).unwrap().count(), 1, "{name}: a temporary file is left");
    }
    // Nobody can clean up after this; the file is whole all the same.
    let mut child = half_a_put(&server);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_hangup_does_not_stop_a_server() {
    let server = Server::start();
    server.signal("HUP");
    fs::write(server.directory().join("f"), "one").unwrap();
    assert_eq!(succeed(&["cat", &server.url("/f")]), "one");
    let (status, complaint) = server.stop("TERM");
    assert!(status.success(), "{status} {complaint}");
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
        assert_eq!(document["octets"], 10 * GIB);
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
