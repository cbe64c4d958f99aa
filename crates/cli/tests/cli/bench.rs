//! `rpcrdma bench` between two processes on the loopback interface. No test looks at a rate or a time.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::support::{Server, command, fail, json, succeed, text};

/// Benchmark server on free ports.
pub(crate) struct BenchServer {
    child: Child,
    events: BufReader<ChildStdout>,
    /// The first line of its output.
    pub(crate) ready: Value,
    pub(crate) address: String,
}

impl BenchServer {
    pub(crate) fn start(extra: &[&str]) -> Self {
        let arguments = [&["bench", "--server", "--json", "--listen", "127.0.0.1:0"], extra].concat();
        let mut child = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, events, ready: Value::Null, address: String::new() };
        let ready = server.event();
        assert_eq!(ready["event"], "ready");
        assert_eq!(ready["provider"], "iwarp");
        server.address = ready["control"].as_str().unwrap().to_owned();
        server.ready = ready;
        server
    }

    /// Returns the next event of the server's output.
    pub(crate) fn event(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Measures briefly with these options. Returns the document.
    pub(crate) fn measure(&self, extra: &[&str]) -> Value {
        json(&[&["bench", &self.address, "--seconds", "0.03"], extra].concat())
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns name and transport of each row.
fn rows(document: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = document["rows"].as_array().unwrap();
    rows.iter().map(|row| (text(&row["name"]), text(&row["transport"]))).collect()
}

#[test]
fn all_measures_between_two_processes() {
    let mut server = BenchServer::start(&[]);
    let document =
        server.measure(&["--depth", "4", "--size", "64K", "--connections", "2", "--interval", "0.01"]);
    let expected = [
        ("stream-to", "raw"),
        ("stream-from", "raw"),
        ("ping-pong", "raw"),
        ("null-trip", "rdma"),
        ("null-trip", "tcp"),
        ("null", "rdma"),
        ("null", "tcp"),
        ("metadata", "rdma"),
        ("metadata", "tcp"),
        ("write", "rdma"),
        ("write", "tcp"),
        ("read", "rdma"),
        ("read", "tcp"),
    ];
    assert_eq!(rows(&document), expected.map(|(name, transport)| (name.to_owned(), transport.to_owned())));
    assert_eq!(document["address"], server.address);
    for field in ["provider", "client", "server", "seconds", "connections", "depth", "size", "others"] {
        assert!(!document[field].is_null(), "{field}");
    }
    for row in document["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        for field in
            ["unit", "value", "size", "depth", "connections", "seconds", "bytes", "calls", "intervals"]
        {
            assert!(!row[field].is_null(), "{field}: {row}");
        }
        for side in ["client", "server"] {
            for field in ["cpu_seconds", "busy", "machine"] {
                assert!(row[side][field].is_number(), "{side} {field}: {row}");
            }
        }
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
        let (latency, data) = (row["unit"] == "seconds", row["unit"] == "bytes/s");
        assert_eq!(row["limit"].is_null(), latency, "{row}");
        assert_eq!(row["connections"], if latency { 1 } else { 2 }, "{row}");
        assert_eq!(row["client"]["cpu_seconds_per_gib"].is_number(), data, "{row}");
        assert_eq!(row["microseconds"]["p99"].is_number(), !name.starts_with("stream"), "{row}");
        // Raw TCP is the base of all but itself and of calls a second.
        let has_base = row["transport"] != "raw" && !["null", "metadata"].contains(&name);
        assert_eq!(row["ratio"].is_number(), has_base, "{row}");
        if name.starts_with("stream") {
            assert!([65_536, 262_144, 1_048_576].contains(&row["size"].as_u64().unwrap()), "{row}");
        } else if data {
            assert_eq!((&row["size"], &row["depth"]), (&65_536.into(), &4.into()), "{row}");
        }
    }

    // The server prints who came, each result, and the end.
    let came = server.event();
    assert_eq!(
        (&came["event"], &came["connections"], &came["size"]),
        (&"came".into(), &2.into(), &65_536.into())
    );
    for (name, transport) in expected {
        let event = server.event();
        assert_eq!((&event["event"], &event["client"]), (&"measured".into(), &came["client"]));
        assert_eq!((&event["name"], &event["transport"]), (&name.into(), &transport.into()));
    }
    let left = server.event();
    assert_eq!((&left["event"], &left["how"]), (&"left".into(), &"done".into()));
}

#[test]
fn directions_kinds_and_transports_are_chosen() {
    let server = BenchServer::start(&[]);
    let from = server.measure(&["-R", "--only", "stream,read", "--proto", "rdma"]);
    assert_eq!(rows(&from), [("stream-from".into(), "raw".into()), ("read".into(), "rdma".into())]);
    let to = server.measure(&["--direction", "to", "--only", "write,read", "--proto", "tcp"]);
    assert_eq!(rows(&to), [("write".into(), "tcp".into())]);
    assert!(to["rows"][0]["ratio"].is_null(), "{to}");

    // As text, with lines of the course.
    let arguments = ["bench", &server.address, "--seconds", "0.03", "--only", "ping,read", "-i", "0.01"];
    let shown = succeed(&arguments);
    assert!(shown.contains("\nREAD over RDMA                    "), "{shown}");
    assert!(shown.contains("| READ over RDMA  "), "{shown}");
    assert!(shown.contains("\nREAD over RDMA: the "), "{shown}");
}

#[test]
fn both_directions_work_at_the_same_time() {
    let mut server = BenchServer::start(&[]);
    let both = server.measure(&["--bidir", "--only", "stream,read", "-P", "2", "-l", "64K", "--depth", "2"]);
    let expected = [("stream-together", "raw"), ("write-read", "rdma"), ("write-read", "tcp")];
    assert_eq!(rows(&both), expected.map(|(name, transport)| (name.to_owned(), transport.to_owned())));
    for row in both["rows"].as_array().unwrap() {
        let [to, from] = ["to", "from"].map(|way| row["directions"][way].as_f64().unwrap());
        assert!(to > 0.0 && from > 0.0, "{row}");
        assert_eq!(row["ratio"].is_number(), row["transport"] != "raw", "{row}");
        assert_eq!(row["connections"], 2, "{row}");
    }
    // The session has the connections of both directions.
    assert_eq!(server.event()["connections"], 4);
    let arguments =
        ["bench", &server.address, "-t", "0.03", "--bidir", "--only", "read", "--proto", "rdma", "-f", "m"];
    let shown = succeed(&arguments);
    assert!(
        shown.contains("\nWRITE and READ over RDMA: ") && shown.contains(" Mbit/s to the server, "),
        "{shown}"
    );
}

#[test]
fn a_count_ends_a_measure_and_the_beginning_is_omitted() {
    let server = BenchServer::start(&[]);
    let measure = |extra: &[&str]| {
        json(&[&["bench", &server.address, "--proto", "rdma", "--depth", "2", "-O", "0.01"], extra].concat())
    };
    // Without the count, each would take a minute.
    let bytes = measure(&["-n", "1M", "-l", "64K", "--only", "read"]);
    let row = &bytes["rows"][0];
    assert!(row["bytes"].as_u64().unwrap() >= 1 << 20 && row["seconds"].as_f64().unwrap() < 30.0, "{row}");
    let calls = measure(&["-k", "50", "--only", "null,ping"]);
    for row in calls["rows"].as_array().unwrap() {
        assert!(row["calls"].as_u64().unwrap() >= 50 && row["seconds"].as_f64().unwrap() < 30.0, "{row}");
    }
    let complaint = fail(2, &["bench", &server.address, "-n", "1M", "-k", "1"]);
    assert!(complaint.contains("cannot be used with"), "{complaint}");
    let complaint = fail(2, &["bench", "--bidir"]);
    assert!(complaint.contains("--bidir is about another host"), "{complaint}");
}

#[test]
fn the_port_is_given_with_the_host_or_apart() {
    let server = BenchServer::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let arguments = ["bench", "127.0.0.1", "-p", port, "-t", "0.03", "--only", "ping", "--json"];
    let document: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    assert_eq!(document["address"], server.address);
}

#[test]
fn few_credits_of_the_server_limit_deep_calls() {
    let server = BenchServer::start(&["--credits", "2"]);
    let document = server.measure(&["--only", "read", "--depth", "16", "--proto", "rdma"]);
    let limit = &document["rows"][0]["limit"];
    // A machine whose processors are busy is limited by them, whatever the credits.
    let by = limit["by"].as_str().unwrap();
    assert!(by == "credits" || by.ends_with("-cpu") || by.ends_with("-machine"), "{limit}");
    if by == "credits" {
        assert!(limit["text"].as_str().unwrap().contains("lets 2 of 16 calls be in flight"), "{limit}");
    }
}

#[test]
fn several_clients_measure_at_the_same_time() {
    let mut server = BenchServer::start(&[]);
    let start = || {
        let arguments = ["bench", &server.address, "-t", "1", "--only", "ping", "--json"];
        command(&arguments).stdout(Stdio::piped()).spawn().unwrap()
    };
    let clients = [start(), start(), start()];
    let others = clients.map(|client| {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["others"].as_u64().unwrap()
    });
    assert!(others.iter().any(|others| *others > 0), "{others:?}");
    assert_eq!(server.event()["event"], "came");
}

#[test]
fn a_picture_has_the_ratios() {
    let server = BenchServer::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("picture.svg");
    let svg = file.to_str().unwrap();
    std::fs::write(&file, "x".repeat(100_000)).unwrap();
    server.measure(&["--only", "ping,null", "--proto", "rdma", "--svg", svg]);
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("NULL over RDMA, one at a time"), "{picture}");
    // The command refuses before it measures.
    let complaint = fail(2, &["bench", &server.address, "--only", "null", "--svg", svg]);
    assert!(complaint.contains("--svg draws ratios to raw TCP"), "{complaint}");
    let complaint = fail(1, &["bench", &server.address, "--svg", "/nowhere/picture.svg"]);
    assert!(complaint.contains("cannot write /nowhere/picture.svg"), "{complaint}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), picture);
}

#[test]
fn i6_what_a_client_may_ask_for_is_bounded() {
    let mut server =
        BenchServer::start(&["--memory-limit", "16M", "--connection-limit", "2", "--duration-limit", "120"]);
    for (options, words) in [
        (["--depth", "64"], "66 MiB of memory asked for"),
        (["--connections", "3"], "3 connections asked for, 2 allowed"),
        (["--seconds", "1000"], "at most 120 s allowed"),
    ] {
        let complaint = fail(1, &[&["bench", &server.address], &options[..]].concat());
        assert!(complaint.contains(words) && complaint.contains("of the server"), "{complaint}");
        let event = server.event();
        assert!(event["event"] == "refused" && event["reason"].as_str().unwrap().contains(words), "{event}");
    }
    // A refused client holds nothing.
    server.measure(&["--only", "ping", "--connections", "2", "--depth", "2"]);
}

#[test]
fn i6_a_client_that_vanishes_leaves_the_server_serving() {
    let mut server = BenchServer::start(&[]);
    let mut client =
        command(&["bench", &server.address, "--seconds", "60"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(server.event()["event"], "came");
    client.kill().unwrap();
    client.wait().unwrap();
    let document = server.measure(&["--only", "read", "--proto", "rdma"]);
    assert_eq!(rows(&document), [("read".into(), "rdma".into())]);
}

#[test]
fn other_servers_are_no_bench_servers() {
    let other = Server::start();
    let complaint = fail(1, &["bench", other.tcp()]);
    assert!(complaint.contains("is no bench server") && complaint.contains("PROG_UNAVAIL"), "{complaint}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let complaint = fail(3, &["bench", &closed]);
    assert!(complaint.contains("rpcrdma bench --server has to run there"), "{complaint}");
}

#[test]
fn a_server_stops_in_order() {
    let mut server = BenchServer::start(&[]);
    crate::support::signal(server.child.id(), "TERM");
    let status = crate::support::wait(&mut server.child, std::time::Duration::from_secs(20));
    assert!(status.success(), "{status}");
}

/// A measurement that needs rights is refused before anything is made.
#[test]
fn without_root_there_is_no_wire() {
    // Root may become nobody; anyone else is no root already.
    let script = "if [ $(id -u) = 0 ]; then exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; \
                  else exec \"$@\"; fi";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_rpcrdma"), "bench", "wire"])
        .output()
        .unwrap();
    let complaint = text(&output.stderr);
    if complaint.contains("setpriv") || complaint.contains("Permission denied") {
        println!("skipped: nobody cannot run the binary here");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("needs root"), "{complaint}");
}
