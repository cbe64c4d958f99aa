//! Tests of `rpcrdma conform` against the server and the client of the same binary.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Server, command, fail, json, scratch, succeed, text};

fn rows(document: &Value) -> &Vec<Value> {
    document["rows"].as_array().unwrap()
}

#[test]
fn our_server_conforms() {
    let server = Server::start();
    let document = json(&["conform", "--server", server.rdma(), "--export", "/"]);
    let bad: Vec<_> = rows(&document).iter().filter(|row| row["verdict"] != "pass").collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!((&document["role"], &document["address"]), (&Value::from("server"), &server.ready["rdma"]));
    assert_eq!(document["pass"], rows(&document).len());
    // The tester leaves no file behind.
    assert_eq!(std::fs::read_dir(server.directory()).unwrap().count(), 0);

    // Without an export, and as text.
    let table =
        succeed(&["conform", "--server", server.rdma(), "--filter", "write-chunk-one", "--filter", "done"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("| verdict | row "), "{table}");
    assert!(lines.iter().any(|line| line.contains("| n/a ") && line.contains("no NFSv3 export")), "{table}");
    assert!(lines.iter().any(|line| line.contains("| pass ") && line.contains("| done ")), "{table}");
    assert_eq!(lines.last(), Some(&"2 rows: 1 pass, 0 differ, 0 fail, 1 not applicable"), "{table}");

    // The server does not have that program: it refuses NULL, and rows fail.
    let complaint = fail(
        1,
        &["conform", "--server", server.rdma(), "--program", "1073741822", "--filter", "null-inline"],
    );
    assert_eq!(complaint, "");
}

#[test]
fn our_server_conforms_in_version_two() {
    let of = |server: &Server, profile: &str| {
        let server = server.rdma();
        json(&["conform", "--server", server, "--profile", profile, "--export", "/", "--silence", "0.02"])
    };
    for (profile, options) in [
        ("p1", &["--placement", "4096"][..]),
        ("p2", &["--profile", "p2", "--placement", "4096"]),
        ("p3", &["--profile", "p3"]),
    ] {
        let document = of(&Server::start_with(options), profile);
        let bad: Vec<_> = rows(&document).iter().filter(|row| row["verdict"] != "pass").collect();
        assert!(bad.is_empty() && rows(&document).len() > 35, "{profile}: {bad:#?}");
    }
    let document = of(&Server::start_with(&["--rpcrdma-version", "1"]), "p1");
    assert_eq!(document["not_applicable"], rows(&document).len(), "{document:#}");
}

/// Rows that need an export must not be skipped without notice.
#[test]
fn an_export_that_cannot_be_used_is_an_error() {
    let fixed = scratch();
    let server = Server::start_with(&["--export", &format!("/fixed={},ro", fixed.path().display())]);
    let with = |exit, export: &str| {
        fail(exit, &["conform", "--server", server.rdma(), "--export", export, "--row", "first-flight"])
    };
    let complaint = with(2, "/none");
    assert!(complaint.contains("--export /none: cannot mount /none"), "{complaint}");
    let complaint = with(2, "/fixed");
    assert!(complaint.contains("--export /fixed: ") && complaint.contains("read-only"), "{complaint}");
}

/// Tests `ping` with rows whose names contain this; returns the document of the tester.
fn of_pings(filter: &str, profile: &[&str], client: &[&str]) -> Value {
    let options = ["--listen", "127.0.0.1:0", "--json", "--silence", "0.1", "--filter", filter];
    let mut tester = command(&[&["conform", "--client"], &options[..], profile].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(tester.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("waiting for a client at ").unwrap();
    let ping = ["ping", address, "-c", "0", "-i", "0.01", "--timeout", "2"];
    let mut pings = command(&[&ping[..], profile, client].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = tester.wait_with_output().unwrap();
    pings.kill().unwrap();
    pings.wait().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{document:#}");
    document
}

#[test]
fn our_client_conforms() {
    let document = of_pings("err-", &[], &[]);
    assert_eq!((document["role"].as_str(), document["pass"].as_u64()), (Some("client"), Some(3)));
}

#[test]
fn our_client_conforms_in_version_two() {
    for profile in ["p1", "p2", "p3"] {
        let document = of_pings("err", &["--profile", profile], &["--rpcrdma-version", "auto"]);
        // Also "continued-interrupted", in p3.
        let expected = if profile == "p3" { 5 } else { 4 };
        assert_eq!(document["pass"], expected, "{profile}: {document:#}");
    }
}

#[test]
fn rows_are_listed_and_chosen() {
    let of = |arguments: &[&str]| json(arguments)["rows"].as_array().unwrap().len();
    let (server, client) = (["conform", "--server", "nowhere", "--list"], ["conform", "--client", "--list"]);
    assert!(of(&server) > 80 && of(&client) > 40);
    let [p1, p3] = ["p1", "p3"].map(|profile| of(&[&server[..], &["--profile", profile]].concat()));
    assert!(p1 > 40 && p3 > 35 && p1 != p3);
    assert_eq!(of(&["conform", "--client", "--list", "--filter", "grant-"]), 4);
    // As a filter, "version" would match other names too.
    let named = ["conform", "--server", "nowhere", "--list", "--row", "version", "--row", "done"];
    assert_eq!(of(&named), 2);
    let complaint = fail(2, &["conform", "--server", "nowhere", "--list", "--row", "vers"]);
    assert!(complaint.contains("no row is named vers"), "{complaint}");
    let table = succeed(&client);
    assert!(table.starts_with("| row ") && table.contains("| grant-zero "), "{table}");

    let complaint = fail(2, &["conform", "--client", "--list", "--filter", "nothing-of-the-kind"]);
    assert!(complaint.contains("nothing-of-the-kind"), "{complaint}");
    for arguments in [
        vec!["conform"],
        vec!["conform", "--client", "--server", "h"],
        vec!["conform", "--server", "h", "--listen", "127.0.0.1:1"],
    ] {
        let complaint = fail(2, &arguments);
        assert!(
            complaint.contains("--server") || complaint.contains("--client"),
            "{arguments:?}: {complaint}"
        );
    }
    // No listener.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let complaint = fail(3, &["conform", "--server", &free.to_string()]);
    assert!(text(complaint.as_bytes()).contains("cannot connect"), "{complaint}");
}
