//! A running server as others see it: metrics by HTTP, the control socket, `stat`, `clients` and `top`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Server, command, fail, json, succeed, text, until};

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];
/// Connections to the metrics that a server takes at a time.
const READERS: usize = 16;

/// Sends a request to the metrics; returns all that comes back.
fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A server that refuses may reset the connection.
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

fn get(address: &str, path: &str) -> String {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

/// A session on a control socket.
struct Session(BufReader<UnixStream>);

impl Session {
    fn new(state: &Path) -> Self {
        let stream = UnixStream::connect(state.join("control")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, request: &str) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

/// The text of docs/metrics.md.
fn documentation() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")).unwrap()
}

/// A metric in the table of docs/metrics.md.
#[derive(Debug, PartialEq, Eq)]
struct Documented {
    kind: String,
    labels: BTreeSet<String>,
    meaning: String,
}

fn documented(page: &str) -> BTreeMap<String, Documented> {
    let rows = page.lines().filter(|line| line.starts_with("| `rpcrdma_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let [name, kind, labels, unit, meaning] = cells.try_into().unwrap();
        let name = name.trim_matches('`').to_owned();
        let base = name.strip_suffix("_total").unwrap_or(&name);
        let in_name = ["bytes", "seconds"].into_iter().find(|unit| base.ends_with(unit)).unwrap_or("number");
        assert_eq!(unit, in_name, "{name}");
        let labels = labels.split(", ").filter(|label| *label != "–").map(ToOwned::to_owned).collect();
        (name, Documented { kind, labels, meaning })
    };
    rows.map(row).collect()
}

/// A line of the page of metrics.
struct Sample<'a> {
    /// The whole name.
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    value: f64,
}

fn samples(page: &str) -> Vec<Sample<'_>> {
    let sample = |line| {
        let (series, value) = str::rsplit_once(line, ' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').unwrap().split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_end_matches('"').split_once("=\"").unwrap());
        Sample { name, labels: labels.collect(), value: value.parse().unwrap() }
    };
    page.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// Checks the buckets of each series of a histogram: bounds and counts grow, and the last count is that of all.
fn check_histogram(name: &str, all: &[Sample<'_>]) {
    let of = |end: &str| {
        let name = format!("{name}{end}");
        all.iter().filter(|sample| sample.name == name).collect::<Vec<_>>()
    };
    let (buckets, sums, counts) = (of("_bucket"), of("_sum"), of("_count"));
    assert!(!counts.is_empty() && counts.len() == sums.len(), "{name}");
    for (count, sum) in counts.iter().zip(sums) {
        assert_eq!((&count.labels, sum.value >= 0.0), (&sum.labels, true), "{name}");
        let own =
            |sample: &&&Sample<'_>| count.labels.iter().all(|(label, value)| sample.labels[label] == *value);
        let own: Vec<(f64, f64)> =
            buckets.iter().filter(own).map(|one| (one.labels["le"].parse().unwrap(), one.value)).collect();
        assert!(own.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{own:?}");
        assert_eq!(own.last(), Some(&(f64::INFINITY, count.value)), "{name}");
    }
}

#[test]
fn each_metric_of_a_server_is_documented_and_the_other_way_round() {
    let server = Server::start_with(&METRICS);
    fs::write(server.directory().join("f"), "content").unwrap();
    succeed(&["cat", &server.url("/f")]);
    fail(1, &["cat", &server.url("/missing")]);
    let answer = get(server.metrics(), "/metrics");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let of = |start: &str| -> BTreeMap<&str, &str> {
        page.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' ')).collect()
    };
    let (help, kinds) = (of("# HELP "), of("# TYPE "));
    let documentation = documentation();
    let documented = documented(&documentation);
    let told: BTreeMap<_, _> =
        documented.iter().map(|(name, one)| (name.as_str(), one.kind.as_str())).collect();
    assert_eq!(kinds, told);
    let told: BTreeMap<_, _> =
        documented.iter().map(|(name, one)| (name.as_str(), one.meaning.as_str())).collect();
    assert_eq!(help, told);
    let all = samples(page);
    for (name, metric) in &documented {
        let ends: &[&str] = if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        for end in ends {
            let name = format!("{name}{end}");
            let mut own = all.iter().filter(|sample| sample.name == name).peekable();
            assert!(own.peek().is_some(), "no sample of {name}");
            let bounds = (*end == "_bucket").then(|| "le".to_owned());
            let labels: BTreeSet<String> = metric.labels.iter().cloned().chain(bounds).collect();
            for sample in own {
                assert!(sample.labels.keys().copied().eq(labels.iter()), "{name}: {:?}", sample.labels);
            }
        }
        if metric.kind == "histogram" {
            check_histogram(name, &all);
        }
    }
    // Labels with a fixed set of values: the list of labels has each of them.
    for sample in &all {
        for (label, value) in &sample.labels {
            let of_label = format!("- `{label}` is ");
            let Some((_, values)) = documentation.split_once(&of_label) else { continue };
            let values = values.split("\n- ").next().unwrap();
            assert!(
                *label == "status" || values.contains(&format!("`{value}`")),
                "{label}={value}: {values}"
            );
        }
    }
    assert!(
        page.contains("rpcrdma_calls_total{program=\"nfs\",version=\"3\",procedure=\"READ\"} 1\n"),
        "{page}"
    );
    assert!(page.contains("rpcrdma_nfs_read_bytes_total 7\n"), "{page}");
}

#[test]
fn a_reader_that_asks_as_prometheus_does_gets_plain_text() {
    let server = Server::start_with(&METRICS);
    let answer = http(
        server.metrics(),
        "GET /metrics HTTP/1.1\r\nHost: x\r\nUser-Agent: Prometheus/3.5.0\r\n\
         Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
         application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
         text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\n\
         X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n",
    );
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let headers: BTreeMap<_, _> = head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(headers["content-length"], page.len().to_string());
    assert!(!headers.contains_key("content-encoding"), "{head}");
    assert!(page.starts_with("# HELP rpcrdma_build_info ") && page.ends_with('\n'), "{page}");
}

#[test]
fn readers_of_metrics_are_bounded() {
    let server = Server::start_with(&METRICS);
    let address = server.metrics();
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("\0\u{1}\r\n\r\n", "400"),
    ] {
        let answer = http(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert!(!http(address, &long).contains("200 OK"), "headers of 100,000 bytes");
    let mut silent: Vec<_> = (0..READERS).map(|_| TcpStream::connect(address).unwrap()).collect();
    // The next one is closed unread, as soon as the server has seen the others.
    until("a reader beyond the limit is closed", || get(address, "/metrics").is_empty());
    silent.clear();
    until("readers are served again", || get(address, "/metrics").contains("200 OK"));
}

#[test]
fn a_port_in_use_is_told_at_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = crate::support::scratch();
    let export = place.path().join("export");
    fs::create_dir(&export).unwrap();
    let (export, state) = (export.to_str().unwrap(), place.path().join("state"));
    let listen = ["serve", "--listen", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--metrics", &address];
    let complaint = fail(1, &[&listen[..], &["--state", state.to_str().unwrap(), export]].concat());
    assert!(complaint.contains(&format!("cannot listen on {address}")), "{complaint}");
    assert!(!state.join("control").exists());
}

#[test]
fn the_control_socket_answers_one_request_a_line() {
    let server = Server::start();
    let state = server.state();
    let mode = fs::metadata(state.join("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.ready["control"], state.join("control").to_str().unwrap());
    let mut session = Session::new(&state);
    assert_eq!(session.ask(r#"{"command":"status"}"#)["status"]["process"]["pid"], server.process());
    let nobody = session.ask(r#"{"command":"clients"}"#);
    assert_eq!(nobody, serde_json::json!({"clients": {"total": 0, "clients": []}}));
    for wrong in ["", "{}", r#"{"command":"stop"}"#, "\u{7f}"] {
        let answer = session.ask(wrong);
        assert!(answer["error"].as_str().unwrap().starts_with("not a request"), "{answer}");
    }
    assert_eq!(session.ask(r#"{"command":"disconnect","id":1}"#)["disconnected"], false);
    // A request without an end.
    let answer = session.ask(&format!("{{\"command\":\"{}\"}}", "x".repeat(5000)));
    assert_eq!(answer["error"], "a request has at most 4096 bytes");
    let mut rest = String::new();
    assert!(matches!(session.0.read_line(&mut rest), Ok(0) | Err(_)), "{rest}");
}

#[test]
fn clients_are_listed_and_ended_by_number() {
    let server = Server::start();
    let state = server.state();
    let state = state.to_str().unwrap();
    let mut ping = command(&["ping", "--count", "100000", "--interval", "0.01", server.rdma()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let first = |list: &Value| list["clients"].as_array().unwrap().first().cloned();
    let is_counted = |one: &Value| one["calls"].as_u64().is_some_and(|calls| calls > 0);
    until("the client is listed", || first(&json(&["clients", state])).as_ref().is_some_and(is_counted));
    let one = first(&json(&["clients", state])).unwrap();
    assert_eq!((&one["provider"], &one["version"]), (&"iwarp".into(), &"One".into()), "{one}");
    assert!(one["credits"].as_u64().unwrap() > 0 && one["bytes_received"].as_u64().unwrap() > 0, "{one}");
    let table = succeed(&["clients", state]);
    assert!(table.lines().nth(1).unwrap().contains("127.0.0.1:"), "{table}");
    let frame = succeed(&["top", "--once", "--interval", "0.1", state]);
    assert!(frame.contains("nfs NULL") && frame.contains("clients 1 to 1 of 1"), "{frame}");
    assert!(!frame.contains("q quit") && !frame.contains("\n\n\n"), "{frame}");
    // The name of a directory is enough where it has a control socket.
    let (parent, name) = (server.state().parent().unwrap().to_owned(), server.state());
    let own = command(&["clients", name.file_name().unwrap().to_str().unwrap()]).current_dir(parent).output();
    assert!(own.unwrap().status.success());
    let wrong = fail(2, &["clients", "--disconnect", "abc", state]);
    assert!(wrong.contains("\"abc\" is no number of a connection"), "{wrong}");

    let id = one["id"].to_string();
    succeed(&["clients", "--disconnect", &id, state]);
    // The client comes again, as another connection.
    let is_another = |next: &Value| next["id"] != one["id"];
    until("the client is back", || first(&json(&["clients", state])).as_ref().is_some_and(is_another));
    let complaint = fail(1, &["clients", "--disconnect", &id, state]);
    assert!(complaint.contains(&format!("no connection has the number {id}")), "{complaint}");
    ping.kill().unwrap();
    ping.wait().unwrap();
}

#[test]
fn a_socket_belongs_to_one_server_and_goes_with_it() {
    let mut first = Server::start();
    let state = first.state();
    let state_text = state.to_str().unwrap();
    let pid = |status: &Value| status["process"]["pid"].as_u64().unwrap();
    let place = crate::support::scratch();
    let mut second =
        command(&["serve", "--json", "--listen", "127.0.0.1:0", "--no-tcp", "--state", state_text])
            .arg(place.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
    let mut ready = String::new();
    BufReader::new(second.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["control"], Value::Null);
    assert_eq!(pid(&json(&["stat", state_text])), u64::from(first.process()));
    crate::support::signal(second.id(), "TERM");
    let ended = second.wait_with_output().unwrap();
    let complaint = text(&ended.stderr);
    assert!(
        ended.status.success() && complaint.contains("no control socket: another server has"),
        "{complaint}"
    );
    assert!(state.join("control").exists(), "it is the other server's");
    // A server that crashed leaves its socket, which the next one replaces.
    first.kill();
    assert!(state.join("control").exists());
    let complaint = fail(3, &["stat", state_text]);
    assert!(complaint.contains("its server has ended"), "{complaint}");
    first.restart();
    assert_eq!(pid(&json(&["stat", state_text])), u64::from(first.process()));
    first.signal("TERM");
    until("the socket is removed", || !state.join("control").exists());
    let complaint = fail(3, &["stat", state_text]);
    assert!(complaint.contains("no server has this state directory"), "{complaint}");
}

#[test]
fn stat_shows_files_or_a_server() {
    let server = Server::start_with(&METRICS);
    fs::write(server.directory().join("f"), "content").unwrap();
    let url = server.url("/f");
    assert!(succeed(&["stat", &url]).contains("Size: 7 bytes"));
    let shown = succeed(&["stat", server.metrics()]);
    assert!(shown.contains("nfs LOOKUP") && shown.contains("in use"), "{shown}");
    let complaint = fail(2, &["stat", &url, server.metrics()]);
    assert!(complaint.contains("not both at once"), "{complaint}");
    let complaint = fail(2, &["clients", server.metrics()]);
    assert!(complaint.contains("has metrics only"), "{complaint}");
    let complaint = fail(3, &["stat", "127.0.0.1:1"]);
    assert!(complaint.contains("no answer from the server at 127.0.0.1:1"), "{complaint}");
    // Something that is not the metrics.
    let complaint = fail(3, &["stat", server.tcp()]);
    assert!(complaint.contains("no answer"), "{complaint}");
    let complaint = fail(2, &["top", server.metrics()]);
    assert!(complaint.contains("--once"), "{complaint}");
}
