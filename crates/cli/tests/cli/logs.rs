//! The log of `serve`: each line as `docs/logs.md` shows it, its forms and levels, and a log that takes nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Server, command, fail, run, scratch, signal, succeed, text, until, wait};

/// A server with a standard error of the test's choice.
struct Logging {
    child: Child,
    rdma: String,
    tcp: String,
    place: TempDir,
    _out: BufReader<ChildStdout>,
}

impl Logging {
    fn start(stderr: Stdio, journal: Option<&str>, extra: &[&str]) -> Self {
        let place = scratch();
        for name in ["export", "data", "closed"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        for name in ["export/f", "data/f"] {
            fs::write(place.path().join(name), "content").unwrap();
        }
        let at = |path: &str| place.path().join(path).display().to_string();
        let open = format!("/={}", at("export"));
        let closed = format!("/closed={},allow=192.0.2.0/24", at("closed"));
        let mut serve = command(&["serve", "--json", "--listen", "127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
        let data = format!("/data={}", at("data"));
        serve.args(["--export", &open, "--export", &closed, "--export", &data, "--state", &at("state")]);
        serve.args(extra);
        if let Some(journal) = journal {
            serve.env("JOURNAL_STREAM", journal);
        }
        let mut child = serve.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let [rdma, tcp] = ["rdma", "tcp"].map(|field| ready[field].as_str().unwrap().to_owned());
        Self { child, rdma, tcp, place, _out: out }
    }

    /// Serves with a file as standard error.
    fn to_file(file: &Path, journal: bool, extra: &[&str]) -> Self {
        let log = File::create(file).unwrap();
        let named = log.metadata().map(|data| format!("{}:{}", data.dev(), data.ino())).unwrap();
        Self::start(log.into(), journal.then_some(named.as_str()), extra)
    }

    fn cat(&self) -> String {
        succeed(&["cat", &format!("nfs://{}/f", self.rdma)])
    }

    fn stop(mut self) -> TempDir {
        signal(self.child.id(), "TERM");
        let status = wait(&mut self.child, Duration::from_secs(20));
        assert!(status.success(), "{status}");
        std::mem::replace(&mut self.place, scratch())
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn page() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logs.md")).unwrap()
}

/// Returns the lines of the blocks of this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = !inside && line == format!("```{language}");
        } else if inside {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Returns a line without what differs from run to run: numbers, the machine, the procedure of a slow call.
fn plain(line: &str) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let line = line.replace(&format!("{:?}", host.trim()), "\"host\"");
    let mut plain = String::new();
    let mut number = false;
    let mut rest = line.as_str();
    if let Some(at) = line.find("slow call ") {
        let name = &line[at + 10..];
        rest = &name[name.find(' ').unwrap()..];
        plain.push_str("slow call");
    }
    let rest = match rest.find("xid 0x") {
        Some(at) => format!("{}{}", &rest[..at], &rest[at + 14..]),
        None => rest.to_owned(),
    };
    for c in rest.chars() {
        let digit = c.is_ascii_digit();
        if !(digit && number) {
            plain.push(if digit { '0' } else { c });
        }
        number = digit;
    }
    plain
}

/// Causes each line of the page. Some calls need a client that sends what the commands do not.
fn cause(server: &Logging) {
    assert_eq!(server.cat(), "content");
    succeed(&["cat", &format!("nfs://{}/data/f", server.rdma)]);
    succeed(&[
        "cat",
        "--proto",
        "tcp",
        "--mountport",
        server.tcp.rsplit(':').next().unwrap(),
        &format!("nfs://{}/f", server.tcp),
    ]);
    for _ in 0..4 {
        fail(1, &["ls", &format!("nfs://{}/closed/", server.rdma)]);
    }
}

#[test]
fn the_lines_are_those_of_the_page() {
    let place = scratch();
    let file = place.path().join("log");
    let server = Logging::to_file(&file, false, &["--slow", "1us"]);
    cause(&server);
    until("a sum of refusals", || fs::read_to_string(&file).unwrap().contains("more mounts"));
    let kept = server.stop();
    let log = fs::read_to_string(&file).unwrap();
    drop(kept);
    for line in log.lines() {
        let time = line.split(' ').next().unwrap();
        assert!(time.len() == 27 && time.contains('T') && time.ends_with('Z'), "{line}");
    }
    let message = |line: &str| plain(line.split_once(' ').unwrap().1);
    let printed: BTreeSet<String> = log.lines().map(message).collect();
    for line in blocks(&page(), "log").iter().filter(|line| line.starts_with("20")) {
        // Clients of other machines, forged handles and lost lines are not to be had here.
        if line.contains("came by iwarp") && !line.contains("a program of")
            || ["file handle", "rpcrdma::log", "unmounted"].iter().any(|part| line.contains(part))
        {
            continue;
        }
        let shown = message(line);
        assert!(printed.contains(&shown), "{shown}\n{printed:#?}");
    }
}

#[test]
fn json_has_the_fields_of_the_page() {
    let place = scratch();
    let file = place.path().join("log");
    let server = Logging::to_file(&file, false, &["--slow", "1us", "--log", "json"]);
    cause(&server);
    until("a sum of refusals", || fs::read_to_string(&file).unwrap().contains("more mounts"));
    drop(server.stop());
    let log = fs::read_to_string(&file).unwrap();
    // Names of all fields with the kinds of their values.
    let shape = |line: &str| -> Vec<(String, bool)> {
        let object: Value = serde_json::from_str(line).unwrap();
        object.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.is_number())).collect()
    };
    let printed: BTreeSet<_> = log.lines().map(shape).collect();
    let shown = blocks(&page(), "json");
    assert_eq!(shown.len(), 6);
    for line in shown {
        assert!(printed.contains(&shape(&line)), "{line}\n{log}");
    }
}

#[test]
fn the_journal_gets_priorities_and_no_time() {
    let place = scratch();
    let file = place.path().join("log");
    let server = Logging::to_file(&file, true, &[]);
    fail(1, &["ls", &format!("nfs://{}/closed/", server.rdma)]);
    drop(server.stop());
    let log = fs::read_to_string(&file).unwrap();
    assert!(
        log.lines().all(|line| line.starts_with("<4>rpcrdma") || line.starts_with("<6>rpcrdma")),
        "{log}"
    );
    assert!(log.contains("<4>rpcrdma::mounts: refused mount from 127.0.0.1:"), "{log}");
    assert!(log.contains("<6>rpcrdma::clients: client 127.0.0.1:"), "{log}");
    // A file that is not the journal.
    let server = Logging::start(File::create(&file).unwrap().into(), Some("1:1"), &[]);
    server.cat();
    drop(server.stop());
    let log = fs::read_to_string(&file).unwrap();
    assert!(!log.is_empty() && log.lines().all(|line| line.starts_with("20")), "{log}");
}

#[test]
fn levels_are_chosen_for_all_and_for_targets() {
    let log = |extra: &[&str]| {
        let server = Server::start_with(extra);
        fs::write(server.directory().join("f"), "content").unwrap();
        succeed(&["cat", &server.url("/f")]);
        let (status, log) = server.stop("TERM");
        assert!(status.success(), "{log}");
        log
    };
    let usual = log(&[]);
    assert!(
        usual.contains("rpcrdma::clients: client ") && usual.contains("rpcrdma::mounts: mounted "),
        "{usual}"
    );
    assert!(!usual.contains("served ") && !usual.contains("slow call"), "{usual}");
    assert_eq!(log(&["--log-level", "warn"]), "");
    let mounts = log(&["--log-level", "off", "--log-level", "rpcrdma::mounts=info"]);
    assert!(
        mounts.lines().all(|line| line.contains(" info rpcrdma::mounts: ")) && mounts.contains("mounted"),
        "{mounts}"
    );
    let all = log(&["--log-level", "debug"]);
    for target in ["rpcrdma::version", "rpcrdma::forms"] {
        let of_target: Vec<&str> = all.lines().filter(|line| line.contains(target)).collect();
        assert!(!of_target.is_empty(), "{target}: {all}");
        assert!(of_target.iter().all(|line| line.contains(" peer=127.0.0.1:")), "{of_target:?}");
    }
    assert!(!all.contains("peer=Some("), "{all}");
    let calls = log(&["--log-level", "rpcrdma::clients=off", "--log-level", "rpcrdma::serve=debug"]);
    assert!(calls.contains(" served READ for 127.0.0.1:") && !calls.contains("came by"), "{calls}");
    assert_eq!(log(&["--slow", "0", "--log-level", "off", "--log-level", "rpcrdma::slow=warn"]), "");
    for (option, value, words) in [
        ("--log-level", "loud", "\"loud\" is no level"),
        ("--log-level", "a b=info", "is no target"),
        ("--log", "xml", "text, json"),
        ("--slow", "soon", "is not a number of seconds"),
    ] {
        let complaint = fail(2, &["serve", "/tmp", option, value]);
        assert!(complaint.contains(words), "{complaint}");
    }
}

#[test]
fn i6_a_log_that_nobody_reads_does_not_hold_the_server_up() {
    let mut server = Logging::start(Stdio::piped(), None, &["--log-level", "trace"]);
    // A pipe has 64 KiB, and the queue 1 MiB; a call is some KiB of traces.
    for _ in 0..60 {
        succeed(&["ping", "-c", "100", "-i", "0.0001", &server.rdma]);
    }
    assert_eq!(server.cat(), "content");
    let mut pipe = server.child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut log = Vec::new();
        pipe.read_to_end(&mut log).unwrap();
        text(&log)
    });
    drop(server.stop());
    let log = reader.join().unwrap();
    assert!(log.contains(" lines of the log were lost: standard error took no more"), "{}", log.len());
}

#[test]
fn i6_a_log_that_is_full_or_closed_does_not_end_the_server() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let server = Logging::start(full.into(), None, &[]);
    assert_eq!(server.cat(), "content");
    drop(server.stop());
    let mut server = Logging::start(Stdio::piped(), None, &[]);
    drop(server.child.stderr.take());
    assert_eq!(server.cat(), "content");
    fail(1, &["ls", &format!("nfs://{}/closed/", server.rdma)]);
    assert_eq!(server.cat(), "content");
    drop(server.stop());
}

/// A path can have any bytes.
#[test]
fn i6_paths_of_clients_begin_no_line_of_their_own() {
    let place = scratch();
    let file = place.path().join("log");
    let server = Logging::to_file(&file, false, &[]);
    let path =
        format!("nfs://{}/a%0Aerror%20rpcrdma:%20all%20is%20lost%1B[2J{}/", server.rdma, "x".repeat(250));
    let output = run(&["ls", &path]);
    assert!(!output.status.success());
    drop(server.stop());
    let log = fs::read_to_string(&file).unwrap();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("refused mount")).collect();
    assert!(log.lines().all(|line| line.starts_with("20")) && !log.contains('\u{1b}'), "{log}");
    for line in refused {
        assert!(line.contains(r"a\nerror rpcrdma: all is lost\u{1b}[2J"), "{line}");
    }
}
