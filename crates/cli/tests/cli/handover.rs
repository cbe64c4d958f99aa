//! Servers that follow one another on the same sockets: by `--handover`, and with sockets of a service manager.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::serving::{Running, activated};
use crate::support::{command, json, run, scratch, signal, succeed, text, until, wait};

/// Time for a server to end.
const ENDS: Duration = Duration::from_secs(20);
/// Length of the files that clients write and read, in bytes.
const LENGTH: usize = 3 << 20;
/// A call of procedure 0 of NFS version 3, with its record mark (RFC 5531 §9).
const NULL_CALL: [u8; 44] = {
    let mut call = [0; 44];
    (call[0], call[3], call[7], call[15], call[23]) = (0x80, 40, 1, 2, 3);
    (call[17], call[18], call[19]) = (1, 0x86, 0xa3);
    call
};

/// A directory that servers export one after another, with their state.
struct Site {
    place: TempDir,
}

impl Site {
    fn new() -> Self {
        let place = scratch();
        fs::create_dir(place.path().join("export")).unwrap();
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn state(&self) -> String {
        self.path("state").display().to_string()
    }

    fn export(&self) -> String {
        format!("/={},squash=none", self.path("export").display())
    }

    /// Returns a server's command line with these options.
    fn line(&self, options: &[&str]) -> Command {
        let (state, export) = (self.state(), self.export());
        command(&[&["serve", "--json", "-v", "--state", &state, "--export", &export], options].concat())
    }

    fn first(&self) -> Running {
        Running::start(self.line(&[
            "--listen",
            "127.0.0.1:0",
            "--tcp",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]))
    }

    /// Starts a server that takes the sockets of this one. `old` has to end in order.
    fn follow(&self, mut old: Running) -> Running {
        let new = self.successor(&old);
        assert!(wait(&mut old.child, ENDS).success(), "{}", old.said());
        until("the log says that another one follows", || {
            old.said().contains("handed over to another process")
        });
        new
    }

    fn successor(&self, old: &Running) -> Running {
        let of = |key: &str| old.ready[key].as_str().unwrap();
        let (rdma, tcp, metrics) = (of("rdma"), of("tcp"), of("metrics"));
        let new =
            Running::start(self.line(&["--listen", rdma, "--tcp", tcp, "--metrics", metrics, "--handover"]));
        for key in ["rdma", "tcp", "metrics", "control"] {
            assert_eq!(new.ready[key], old.ready[key], "{key}");
        }
        new
    }

    /// Asks on the control socket; returns the answer and the session.
    fn ask(&self, request: &str) -> (Value, BufReader<UnixStream>) {
        let stream = UnixStream::connect(self.path("state/control")).unwrap();
        stream.set_read_timeout(Some(ENDS)).unwrap();
        let mut session = BufReader::new(stream);
        session.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        session.read_line(&mut answer).unwrap();
        (serde_json::from_str(&answer).unwrap(), session)
    }
}

/// Connects, and has a call answered. The server then waits for the end of the connection when it stops.
fn called(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&NULL_CALL).unwrap();
    stream.read_exact(&mut [0; 28]).unwrap();
    stream
}

/// Writes files and reads them again until told to stop; returns how often.
fn work(number: usize, proto: &str, address: &str, place: &Path, stop: &AtomicBool) -> u64 {
    let mut rounds: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let (here, back) = (place.join(format!("here{number}")), place.join(format!("back{number}")));
        let seed = u8::try_from((rounds * 7 + number as u64) % 251).unwrap();
        let byte = |index: usize| u8::try_from((index / 251 * 31 + index) % 256).unwrap() ^ seed;
        let bytes: Vec<u8> = (0..LENGTH).map(byte).collect();
        fs::write(&here, &bytes).unwrap();
        let url = format!("nfs://{address}/file{number}");
        let _ = fs::remove_file(&back);
        succeed(&["put", "--proto", proto, here.to_str().unwrap(), &url]);
        succeed(&["get", "--proto", proto, &url, back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == bytes, "{url} has other bytes");
        rounds += 1;
    }
    rounds
}

/// Runs clients of all kinds while `handovers` goes on. None may fail.
fn under_load(place: &Path, rdma: &str, tcp: &str, handovers: impl FnOnce(&dyn Fn())) {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    /// Stops the clients also when the test fails.
    struct Stops<'a>(&'a AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let clients: Vec<_> = [("rdma", rdma), ("tcp", tcp), ("rdma", rdma), ("tcp", tcp)]
            .into_iter()
            .enumerate()
            .map(|(number, (proto, address))| {
                let (stop, rounds) = (&stop, &rounds);
                scope.spawn(move || {
                    rounds.fetch_add(work(number, proto, address, place, stop), Ordering::Relaxed)
                })
            })
            .collect();
        let connecting = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for address in [rdma, tcp] {
                    TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let check = || {
            assert!(clients.iter().all(|client| !client.is_finished()), "a client has failed");
            assert!(!connecting.is_finished(), "a connection was refused");
        };
        handovers(&check);
        check();
        drop(stops);
    });
    assert!(rounds.into_inner() > 0);
}

#[test]
fn clients_notice_no_handover() {
    let site = Site::new();
    let mut server = Some(site.first());
    let ready = server.as_ref().unwrap().ready.clone();
    let [rdma, tcp] = ["rdma", "tcp"].map(|key| ready[key].as_str().unwrap());
    under_load(site.place.path(), rdma, tcp, |check| {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            server = server.take().map(|old| site.follow(old));
            check();
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    server.unwrap().stop();
}

#[test]
fn clients_notice_no_restart_on_sockets_of_a_service_manager() {
    let site = Site::new();
    let (state, export) = (site.state(), site.export());
    let line = ["--export", &export, "--state", &state];
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [rdma, tcp] = [&sockets[0], &sockets[1]].map(|socket| socket.local_addr().unwrap().to_string());
    let start = || {
        let sockets = sockets.each_ref().map(|socket| socket.try_clone().unwrap());
        let (child, ready) = activated(&line, "rdma:tcp", sockets);
        assert!(ready.is_some(), "{}", fs::read_to_string(site.path("state.log")).unwrap());
        Killed(child)
    };
    let mut server = start();
    under_load(site.place.path(), &rdma, &tcp, |check| {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            signal(server.0.id(), "TERM");
            assert!(wait(&mut server.0, ENDS).success());
            server = start();
            check();
        }
        std::thread::sleep(Duration::from_millis(300));
    });
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_wrong_configuration_leaves_the_server_alone() {
    let site = Site::new();
    let mut old = site.first();
    fs::write(site.path("export/f"), "content").unwrap();
    let rdma = old.ready["rdma"].as_str().unwrap();
    let missing = format!("/more={}", site.path("missing").display());
    let wrong = [
        vec!["--listen", rdma, "--no-tcp", "--handover", "--export", &missing],
        // An address of another use, which the old server has.
        vec!["--listen", "127.0.0.1:0", "--tcp", rdma, "--handover"],
    ];
    for options in wrong {
        let output = site.line(&options).output().unwrap();
        assert!(!output.status.success(), "{}", text(&output.stderr));
        assert!(old.child.try_wait().unwrap().is_none());
        assert_eq!(succeed(&["cat", &old.url("/f")]), "content");
    }
    let state = site.state();
    assert_eq!(json(&["stat", &state])["process"]["pid"], old.child.id());
    old.stop();
}

/// Several servers may share a state directory. A server that listens elsewhere is no successor.
#[test]
fn a_server_without_an_address_of_the_other_one_takes_nothing() {
    let site = Site::new();
    let mut old = site.first();
    fs::write(site.path("export/f"), "content").unwrap();
    let output = site.line(&["--listen", "127.0.0.2:0", "--no-tcp", "--handover"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let rdma = old.ready["rdma"].as_str().unwrap();
    assert!(said.contains("no option names an address of the server") && said.contains(rdma), "{said}");
    assert!(old.child.try_wait().unwrap().is_none());
    // The old server may know the addresses of clients whose names cannot be looked up now.
    let list = site.path("exports");
    fs::write(&list, format!("{} nobody.invalid(rw)\n", site.path("export").display())).unwrap();
    let rdma = old.ready["rdma"].as_str().unwrap();
    let state = site.state();
    let words =
        ["serve", "--state", &state, "--exports", list.to_str().unwrap(), "--listen", rdma, "--handover"];
    let output = command(&words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nobody.invalid") && said.contains("the server that runs may know"), "{said}");
    assert!(old.child.try_wait().unwrap().is_none());
    assert_eq!(succeed(&["cat", &old.url("/f")]), "content");
    site.follow(old).stop();
}

#[test]
fn a_server_goes_on_if_its_successor_dies() {
    let site = Site::new();
    let old = site.first();
    fs::write(site.path("export/f"), "content").unwrap();
    let take = r#"{"command":"handover","version":1}"#;
    let (answer, mut session) = site.ask(take);
    let sockets = answer["handover"]["sockets"].as_array().unwrap();
    let roles: Vec<_> = sockets.iter().map(|socket| socket["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["rdma", "tcp", "metrics"]);
    assert_eq!(answer["handover"]["pid"], old.child.id());
    let (refused, _) = site.ask(take);
    assert!(refused["error"].as_str().unwrap().contains("taking the sockets already"), "{refused}");
    let (refused, _) = site.ask(r#"{"command":"go"}"#);
    assert_eq!(refused["error"], "no sockets were given");
    // A session with sockets may ask other things.
    session.get_mut().write_all(b"{\"command\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    session.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"status\""), "{answer}");
    drop(session);
    assert_eq!(succeed(&["cat", &old.url("/f")]), "content");
    until("the next one may take", || site.ask(take).0["handover"].is_object());
    site.follow(old).stop();
}

#[test]
fn another_version_of_the_exchange_is_refused() {
    let site = Site::new();
    let old = site.first();
    let (refused, _) = site.ask(r#"{"command":"handover","version":99}"#);
    let refused = refused["error"].as_str().unwrap();
    assert!(refused.contains("version 99") && refused.contains("the server has version 1"), "{refused}");
    old.stop();
    let control = UnixListener::bind(site.path("state/control")).unwrap();
    for answer in [
        r#"{"handover":{"version":99,"pid":1,"sockets":[]}}"#,
        r#"{"handover":{"version":99,"descriptors":7}}"#,
        r#"{"error":"not a request: unknown variant `handover`"}"#,
    ] {
        let mut new = site.line(&["--listen", "127.0.0.1:0", "--no-tcp", "--handover"]);
        let new =
            new.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
        let (mut session, _) = control.accept().unwrap();
        session.write_all(format!("{answer}\n").as_bytes()).unwrap();
        let output = new.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("does not hand over") && said.contains("stop it, then start"), "{said}");
    }
}

#[test]
fn a_server_that_stops_meanwhile_is_waited_for_no_more() {
    for (answer, ends) in [("", true), ("{\"gone\":true}\n", true), ("{\"gone\":true}\n", false)] {
        let site = Site::new();
        fs::create_dir(site.path("state")).unwrap();
        let path = site.path("state/control");
        let control = UnixListener::bind(&path).unwrap();
        let new = std::thread::spawn({
            let line = site.line(&["--listen", "127.0.0.1:0", "--no-tcp", "--handover"]);
            move || Running::start(line)
        });
        let mut session = BufReader::new(control.accept().unwrap().0);
        let mut request = String::new();
        session.read_line(&mut request).unwrap();
        assert!(request.contains("\"handover\""), "{request}");
        fs::remove_file(&path).unwrap();
        drop(control);
        session.get_mut().write_all(answer.as_bytes()).unwrap();
        if ends {
            drop(session);
        } else {
            // It reads no more, and has to end before the new one waits in vain.
            session.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        }
        let new = new.join().unwrap();
        assert_eq!(new.ready["control"], path.display().to_string(), "{}", new.said());
        until("it says so", || new.said().contains("no server runs in"));
        new.stop();
    }
}

#[test]
fn i6_a_server_with_too_many_observers_says_so() {
    let site = Site::new();
    let old = site.first();
    let observers: Vec<_> = (0..16).map(|_| site.ask(r#"{"command":"status"}"#).1).collect();
    let words = "16 sessions are open, the most at a time";
    let output = site.line(&["--listen", "127.0.0.1:0", "--no-tcp", "--handover"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("does not hand over") && said.contains(words), "{said}");
    assert!(text(&run(&["stat", &site.state()]).stderr).contains(words));
    drop(observers);
    until("there is a place again", || run(&["stat", &site.state()]).status.success());
    site.follow(old).stop();
}

#[test]
fn without_a_server_the_first_one_starts() {
    let site = Site::new();
    let options = ["--listen", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--handover"];
    let server = Running::start(site.line(&options));
    until("it says so", || server.said().contains("no server runs in"));
    // A check asks nobody.
    let output = site.line(&[&options[..], &["--check"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    server.stop();
}

#[test]
fn addresses_may_come_and_go() {
    let site = Site::new();
    let mut old = site.first();
    fs::write(site.path("export/f"), "content").unwrap();
    let [rdma, tcp] = ["rdma", "tcp"].map(|key| old.ready[key].as_str().unwrap().to_owned());
    let new =
        Running::start(site.line(&["--listen", &rdma, "--listen", "127.0.0.2:0", "--no-tcp", "--handover"]));
    assert!(wait(&mut old.child, ENDS).success(), "{}", old.said());
    let closed = format!("no option names tcp {tcp}, which is closed");
    until("it says what it does not take", || new.said().contains(&closed));
    let addresses: Vec<_> =
        new.ready["listeners"].as_array().unwrap().iter().map(|at| at["address"].as_str().unwrap()).collect();
    assert_eq!((addresses.len(), addresses[0], &new.ready["tcp"]), (2, rdma.as_str(), &Value::Null));
    for address in addresses {
        assert_eq!(succeed(&["cat", &format!("nfs://{address}/f")]), "content");
    }
    TcpStream::connect(&tcp).unwrap_err();
    new.stop();
}

#[test]
fn observers_see_the_new_server() {
    let site = Site::new();
    let old = site.first();
    let new = site.follow(old);
    let state = site.state();
    let metrics = new.ready["metrics"].as_str().unwrap();
    for place in [state.as_str(), metrics] {
        assert_eq!(json(&["stat", place])["process"]["pid"], new.child.id(), "{place}");
    }
    let _client = called(new.ready["tcp"].as_str().unwrap());
    until("the client is listed", || json(&["clients", &state])["total"] == 1);
    until("the log says who came before", || new.said().contains("rpcrdma::handover: process "));
    // The server can be followed itself.
    let next = site.follow(new);
    assert_eq!(json(&["stat", &state])["process"]["pid"], next.child.id());
    next.stop();
    assert!(!site.path("state/control").exists());
}

/// Returns a server that waits for its client before it ends, with its successor. It waits for some seconds only, which a slow
/// machine may need for the successor.
fn draining(site: &Site) -> (Running, TcpStream, Running) {
    for _ in 0..5 {
        let mut old = site.first();
        let client = called(old.ready["tcp"].as_str().unwrap());
        let new = site.successor(&old);
        if old.child.try_wait().unwrap().is_none() {
            return (old, client, new);
        }
        new.stop();
    }
    panic!("no server waits for its client");
}

#[test]
fn a_server_that_drains_ends_at_a_signal() {
    let site = Site::new();
    fs::write(site.path("export/f"), "content").unwrap();
    // A slow machine may need all the time for which a server waits.
    for _ in 0..5 {
        let (mut old, _client, new) = draining(&site);
        signal(old.child.id(), "TERM");
        let interrupted = !wait(&mut old.child, ENDS).success();
        assert_eq!(succeed(&["cat", &new.url("/f")]), "content");
        site.follow(new).stop();
        if interrupted {
            return;
        }
    }
    panic!("no server was interrupted");
}

#[test]
fn a_second_handover_waits_for_the_first() {
    let site = Site::new();
    let (mut old, client, mut new) = draining(&site);
    std::thread::scope(|scope| {
        let (site, new) = (&site, &new);
        let third = scope.spawn(move || site.successor(new));
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(10));
            let is_ready = third.is_finished();
            let has_ended = old.child.try_wait().unwrap().is_some();
            assert!(has_ended || !is_ready, "two servers drain at a time");
        }
        drop(client);
        assert!(wait(&mut old.child, ENDS).success(), "{}", old.said());
        third.join().unwrap().stop();
    });
    assert!(wait(&mut new.child, ENDS).success(), "{}", new.said());
}

/// Without the kernel's file handles, a map of names is shared for a moment.
#[test]
fn handles_of_a_map_outlast_handovers() {
    let without = |mut line: Command| {
        let mut serve = Command::new("setpriv");
        serve.args(["--bounding-set", "-dac_read_search", "--inh-caps", "-dac_read_search"]);
        serve.arg(line.get_program()).args(line.get_args().map(ToOwned::to_owned));
        line = serve;
        line.env_remove("RPCRDMA_LOG");
        line
    };
    if !without(Command::new("true")).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no setpriv, or no right to use it");
        return;
    }
    let site = Site::new();
    let options = ["--listen", "127.0.0.1:0", "--tcp", "127.0.0.1:0"];
    let mut server = Some(Running::start(without(site.line(&options))));
    let ready = server.as_ref().unwrap().ready.clone();
    let maps = fs::read_dir(site.path("state")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(maps.into_iter().any(|name| text(name.as_encoded_bytes()).starts_with("names-")), "no map");
    let [rdma, tcp] = ["rdma", "tcp"].map(|key| ready[key].as_str().unwrap());
    under_load(site.place.path(), rdma, tcp, |check| {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            let options = ["--listen", rdma, "--tcp", tcp, "--handover"];
            let mut old = server.take().unwrap();
            server = Some(Running::start(without(site.line(&options))));
            assert!(wait(&mut old.child, ENDS).success(), "{}", old.said());
            check();
        }
    });
    server.unwrap().stop();
    assert!(run(&["ping", "-c", "1", rdma]).status.code() != Some(0), "nobody listens any more");
}
