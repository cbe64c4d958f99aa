//! Servers with files of options: their check, their reading, SIGHUP, and what a service manager passes and hears.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{command, fail, json, run, scratch, signal, succeed, text, until, wait};

/// Directories and files of a server that reads its options from files.
struct House {
    place: TempDir,
}

impl House {
    /// Makes these directories, each with a file `here`.
    fn with(directories: &[&str]) -> Self {
        let place = scratch();
        for directory in directories {
            fs::create_dir(place.path().join(directory)).unwrap();
            fs::write(place.path().join(directory).join("here"), directory).unwrap();
        }
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a configuration with these exports, each a name, a directory and further lines.
    fn configure(&self, more: &str, exports: &[(&str, &str, &str)]) {
        let mut text = format!(
            "listen = \"127.0.0.1:0\"\ntcp = \"127.0.0.1:0\"\nstate = {:?}\n{more}\n",
            self.text("state")
        );
        for (name, directory, lines) in exports {
            text +=
                &format!("[[export]]\nname = {name:?}\ndirectory = {:?}\n{lines}\n", self.text(directory));
        }
        fs::write(self.path("serve.toml"), text).unwrap();
    }

    fn start(&self) -> Running {
        let config = self.text("serve.toml");
        Running::start(command(&["serve", "--json", "--config", &config]))
    }
}

/// A server process, with what it says.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) ready: Value,
    said: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(mut serve: Command) -> Self {
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let keeper = Arc::clone(&said);
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| *keeper.lock().unwrap() += &format!("{line}\n"));
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "no server: {}", said.lock().unwrap());
        Self { child, ready: serde_json::from_str(&line).unwrap(), said }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}{path}", self.ready["rdma"].as_str().unwrap())
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Sends SIGHUP, and waits until the log has the text once more.
    fn reload(&self, text: &str) {
        let before = self.said().matches(text).count();
        signal(self.child.id(), "HUP");
        until(text, || self.said().matches(text).count() > before);
    }

    pub(crate) fn stop(mut self) {
        signal(self.child.id(), "TERM");
        let status = wait(&mut self.child, Duration::from_secs(20));
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_takes_its_options_from_a_file() {
    let house = House::with(&["a", "b"]);
    house.configure("credits = 8", &[("/a", "a", "ro = true"), ("/b", "b", "allow = [\"192.0.2.0/24\"]")]);
    let server = house.start();
    assert_eq!(server.ready["exports"][0]["read_only"], true);
    assert_eq!(server.ready["exports"][1]["allow"][0], "192.0.2.0/24");
    assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    fail(1, &["cat", &server.url("/b/here")]);
    server.stop();
}

#[test]
fn a_check_says_whether_options_are_good() {
    let house = House::with(&["a"]);
    house.configure("", &[("/a", "a", "")]);
    let (config, exports) = (house.text("serve.toml"), house.text("exports"));
    let check = ["serve", "--check", "--config", config.as_str()];
    assert_eq!(succeed(&check), "configuration is good: 1 export\n");
    assert!(!house.path("state").exists(), "nothing is opened");
    let inside = house.path("a").join("state");
    let refused = fail(2, &[&check[..], &["--state", inside.to_str().unwrap()]].concat());
    assert!(refused.contains("(--state) lies inside the export"), "{refused}");
    fs::write(&exports, format!("{} *(rw,subtree_check) 192.0.2.1\n", house.text("a"))).unwrap();
    let both = ["serve", "--check", "--config", &config, "--exports", &exports];
    let output = run(&both);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "configuration is good: 2 exports, 1 note\n");
    assert!(text(&output.stderr).contains("exports:1:"), "{}", text(&output.stderr));
    let document = json(&both);
    assert_eq!((&document["good"], document["exports"].as_array().unwrap().len()), (&Value::Bool(true), 2));
    // All faults of the file, with the exit code of a wrong command line.
    fs::write(&config, "lisen = 1\ncredits = 0\n").unwrap();
    let told = fail(2, &check);
    assert!(told.contains("serve.toml:1:1: lisen: saw an unknown key, expected \"listen\""), "{told}");
    assert!(told.contains("serve.toml:2:11: credits: saw 0, expected COUNT: "), "{told}");
    let output = run(&[&check[..], &["--json"]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["error"]["causes"].as_array().unwrap().len(), 2);
    // Options that do not go together have the place of one of them.
    house.configure("no-tcp = true", &[("/a", "a", "")]);
    let told = fail(2, &check);
    assert!(told.contains("serve.toml:") && told.contains("cannot be used with"), "{told}");
    house.configure("", &[("/a", "missing", "")]);
    assert!(fail(2, &check).contains("missing is no directory"));
    house.configure("", &[]);
    assert!(fail(2, &check).contains("nothing is exported"));
    house.configure("", &[("/a", "a", ""), ("/a", "a", "ro = true")]);
    assert!(fail(2, &check).contains("two exports have the name /a"));
}

#[test]
fn exports_change_at_a_signal() {
    let house = House::with(&["a", "b"]);
    house.configure("", &[("/a", "a", ""), ("/b", "b", "")]);
    let server = house.start();
    assert_eq!(succeed(&["cat", &server.url("/b/here")]), "b");
    house.configure("credits = 16", &[("/a", "a", "ro = true"), ("/c", "b", "")]);
    server.reload("2 exports in force");
    let said = server.said();
    assert!(said.contains("needs a restart: credits: nothing in force, 16 in the file"), "{said}");
    assert!(
        said.contains("added=/c") && said.contains("removed=/b") && said.contains("changed=/a"),
        "{said}"
    );
    assert_eq!(succeed(&["cat", &server.url("/c/here")]), "b");
    let exports = json(&["stat", &house.text("state")])["exports"].clone();
    let told = |at: usize| ["name", "directory", "access"].map(|field| exports[at][field].clone());
    assert_eq!(told(0), ["/a", house.text("a").as_str(), "ro"].map(Value::from));
    assert_eq!(told(1), ["/c", house.text("b").as_str(), "rw"].map(Value::from), "not known at the start");
    fail(1, &["cat", &server.url("/b/here")]);
    let mkdir = fail(1, &["mkdir", &server.url("/a/new")]);
    assert!(mkdir.to_lowercase().contains("read-only"), "{mkdir}");
    // Nobody may mount any more.
    house.configure("", &[("/a", "a", "allow = \"192.0.2.1\"")]);
    server.reload("1 export in force");
    fail(1, &["cat", &server.url("/a/here")]);
    house.configure("", &[("/a", "a", "")]);
    server.reload("1 export in force");
    assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    house.configure("", &[("/a", "a", "allow = \"none\"")]);
    server.reload("1 export in force");
    fail(1, &["cat", &server.url("/a/here")]);
    assert_eq!(
        json(&["serve", "--check", "--config", &house.text("serve.toml")])["exports"][0]["closed"],
        true
    );
    server.stop();
}

/// A file that would be read without an end neither stops the server nor keeps it from the next reload.
#[test]
fn a_special_file_in_the_place_of_the_configuration_is_refused() {
    let house = House::with(&["a"]);
    house.configure("", &[("/a", "a", "")]);
    let server = house.start();
    let config = house.path("serve.toml");
    fs::rename(&config, house.path("good")).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    server.reload("reload refused, the exports in force stay: ");
    assert!(server.said().lines().last().unwrap().contains("it is a FIFO"), "{}", server.said());
    assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    let text = config.display().to_string();
    assert!(fail(2, &["serve", "--check", "--config", &text]).contains("it is a FIFO"));
    assert!(fail(2, &["serve", "--exports", "/dev/zero"]).contains("it is a device"));
    fs::rename(house.path("good"), &config).unwrap();
    server.reload("1 export in force");
    server.stop();
}

/// A configuration that a shell makes is read at the start, as ever.
#[test]
fn a_configuration_can_come_through_a_pipe() {
    let house = House::with(&["a"]);
    house.configure("", &[("/a", "a", "")]);
    let script = "exec \"$0\" serve --check --config <(sleep 0.05; cat \"$1\")";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_rpcrdma"), &house.text("serve.toml")])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "configuration is good: 1 export\n", "{}", text(&output.stderr));
}

/// A process without rights of root has no file handles of the kernel, so Landlock confines it.
#[test]
fn a_confined_server_says_why_it_refuses_a_directory() {
    use std::os::unix::process::CommandExt as _;
    let house = House::with(&["a", "other", "more"]);
    fs::create_dir(house.path("more/later")).unwrap();
    fs::write(house.path("more/later/here"), "later").unwrap();
    house.configure(&format!("reload-below = [{:?}]", house.text("more")), &[("/a", "a", "")]);
    let mut serve = command(&["serve", "--json", "-vv", "--config", &house.text("serve.toml")]);
    if rustix::process::geteuid().is_root() {
        let all = ["chown", "-R", "65534:65534"];
        assert!(Command::new(all[0]).args(&all[1..]).arg(house.place.path()).status().unwrap().success());
        serve.uid(65534).gid(65534);
    }
    let server = Running::start(serve);
    until("the server tells whether it is confined", || {
        server.said().contains("confined to the exports by Landlock")
    });
    if server.said().contains("not confined to the exports by Landlock") {
        println!("skipped: no Landlock here: {}", server.said());
        return;
    }
    let stays = || assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    let refused = |expected: &str| {
        server.reload("reload refused, the exports in force stay: ");
        let said = server.said();
        let line = said.lines().rfind(|line| line.contains("reload refused")).unwrap();
        assert!(line.contains(expected) && line.contains("--reload-below"), "{line}");
        stays();
    };
    let below = format!("reload-below = [{:?}]", house.text("more"));
    house.configure(&below, &[("/a", "a", ""), ("/other", "other", "")]);
    refused("/other lies in no directory that the server was started with, and Landlock closed all others");
    fail(1, &["cat", &server.url("/other/here")]);
    house.configure(&below, &[("/a", "a", ""), ("/later", "more/later", "")]);
    server.reload("2 exports in force");
    assert_eq!(succeed(&["cat", &server.url("/later/here")]), "later");
    // A directory that was moved stays open, with its map of names.
    fs::rename(house.path("a"), house.path("more/moved")).unwrap();
    house.configure(&below, &[("/a", "more/moved", "")]);
    server.reload("1 export in force");
    stays();
    fs::rename(house.path("more/moved"), house.path("a")).unwrap();
    // Another directory in the place of the first one is not the one that Landlock lets through.
    fs::rename(house.path("a"), house.path("gone")).unwrap();
    fs::create_dir(house.path("a")).unwrap();
    fs::write(house.path("a/here"), "a").unwrap();
    house.configure(&below, &[("/a", "a", "")]);
    refused("was made or mounted after the start, Landlock keeps it closed");
    server.stop();
}

/// exports(5) goes on without clients whose names have no address; none of these opens the export to others.
#[test]
fn names_without_an_address_are_left_out_at_the_start_and_at_a_reload() {
    let house = House::with(&["a", "b"]);
    let (exports, state) = (house.text("exports"), house.text("state"));
    let (a, b) = (house.text("a"), house.text("b"));
    // RFC 6761: such names never have an address.
    fs::write(
        &exports,
        format!("{a} nobody.invalid(rw,insecure) 127.0.0.1(ro,insecure)\n{b} nobody.invalid\n"),
    )
    .unwrap();
    let line =
        ["serve", "--json", "--listen", "127.0.0.1:0", "--no-tcp", "--state", &state, "--exports", &exports];
    let server = Running::start(command(&line));
    assert_eq!(server.ready["exports"][0]["allow"], serde_json::json!(["127.0.0.1/32"]));
    assert_eq!(
        (&server.ready["exports"][1]["closed"], &server.ready["exports"][0]["closed"]),
        (&true.into(), &false.into())
    );
    until("the names are told", || server.said().contains("nobody may mount"));
    let said = server.said();
    let place = format!("exports:1:{}: the host name nobody.invalid has no address now", a.len() + 2);
    assert!(said.contains(&place) && said.contains(&format!("nobody may mount {b}")), "{said}");
    assert_eq!(succeed(&["cat", &server.url(&format!("{a}/here"))]), "a");
    fail(1, &["cat", &server.url(&format!("{b}/here"))]);
    fs::write(&exports, format!("{a} nobody.invalid(rw)\n{b} 127.0.0.1(ro) none.invalid(rw)\n")).unwrap();
    server.reload("2 exports in force");
    assert!(server.said().contains("none.invalid has no address now"), "{}", server.said());
    fail(1, &["cat", &server.url(&format!("{a}/here"))]);
    assert_eq!(succeed(&["cat", &server.url(&format!("{b}/here"))]), "b");
    server.stop();
}

#[test]
fn an_export_that_some_clients_may_write_is_told_as_mixed() {
    let house = House::with(&["a", "b"]);
    house.configure(&format!("exports = {:?}", house.text("exports")), &[]);
    let lines = |first: &str, second: &str| {
        let (a, b) = (house.text("a"), house.text("b"));
        fs::write(house.path("exports"), format!("{a} {first}\n{b} {second}\n")).unwrap();
    };
    lines("192.0.2.1(ro) 127.0.0.1(rw,insecure)", "127.0.0.1(ro) 192.0.2.1(ro,sec=sys)");
    let server = house.start();
    let told = |exports: &Value| {
        let all = exports.as_array().unwrap().iter();
        all.map(|one| (one["access"].as_str().unwrap().to_owned(), one["read_only"] == true))
            .collect::<Vec<_>>()
    };
    let (mixed, ro, rw) = (("mixed".to_owned(), false), ("ro".to_owned(), true), ("rw".to_owned(), false));
    assert_eq!(told(&server.ready["exports"]), [mixed.clone(), ro.clone()]);
    let state = house.text("state");
    assert_eq!(told(&json(&["stat", &state])["exports"]), [mixed.clone(), ro.clone()]);
    let shown = succeed(&["stat", &state]);
    assert!(
        shown.contains("(mixed, sec=sys), 0 mounts") && shown.contains("(ro, sec=sys), 0 mounts"),
        "{shown}"
    );
    lines("*(rw)", "*(rw) 192.0.2.1(ro)");
    server.reload("2 exports in force");
    assert_eq!(told(&json(&["stat", &state])["exports"]), [rw, mixed]);
    server.stop();
}

#[test]
fn a_wrong_file_leaves_the_exports_in_force() {
    let house = House::with(&["a"]);
    house.configure("", &[("/a", "a", "")]);
    let server = house.start();
    for (text, expected) in [
        ("credits = \"many\"\nlisen = 1\n", "serve.toml:1:11: credits: saw \"many\", expected COUNT: "),
        ("[[export]\n", "serve.toml:1:"),
        ("", "nothing is exported by the files any more"),
    ] {
        fs::write(house.path("serve.toml"), text).unwrap();
        server.reload("reload refused, the exports in force stay: ");
        let said = server.said();
        let line = said.lines().last().unwrap();
        assert!(line.contains(expected), "{text}: {line}");
        assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    }
    assert!(server.said().contains("(and 1 more: rpcrdma serve --check tells them)"));
    assert!(server.said().contains("to withdraw all exports, stop the server"), "{}", server.said());
    // A directory that is gone on disk.
    house.configure("", &[("/a", "a", ""), ("/gone", "gone", "")]);
    server.reload("reload refused, the exports in force stay: ");
    assert!(server.said().lines().last().unwrap().contains("/gone: "), "{}", server.said());
    server.stop();
}

#[test]
fn an_export_that_vanished_on_disk_hinders_no_other() {
    let house = House::with(&["a", "b"]);
    house.configure("", &[("/a", "a", ""), ("/b", "b", "")]);
    let server = house.start();
    succeed(&["cat", &server.url("/b/here")]);
    fs::remove_dir_all(house.path("b")).unwrap();
    fail(1, &["cat", &server.url("/b/here")]);
    assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    house.configure("", &[("/a", "a", "")]);
    server.reload("1 export in force");
    assert_eq!(succeed(&["cat", &server.url("/a/here")]), "a");
    // It comes back.
    fs::create_dir(house.path("b")).unwrap();
    fs::write(house.path("b/here"), "again").unwrap();
    house.configure("", &[("/a", "a", ""), ("/b", "b", "")]);
    server.reload("2 exports in force");
    assert_eq!(succeed(&["cat", &server.url("/b/here")]), "again");
    server.stop();
}

/// Copies go on over their connections while exports come and go.
#[test]
fn connections_outlast_reloads() {
    let house = House::with(&["a", "b"]);
    let data: Vec<u8> = (0..8 << 20).map(|number: u32| (number % 251) as u8).collect();
    fs::write(house.path("a/large"), &data).unwrap();
    house.configure("", &[("/a", "a", "squash = \"none\"")]);
    let server = house.start();
    let client = |arguments: &[&str]| {
        command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (from, to) = (server.url("/a/large"), server.url("/a/copies/"));
    succeed(&["mkdir", to.trim_end_matches('/')]);
    let mut copies = Vec::new();
    for number in 0..3 {
        let target = house.text(&format!("got-{number}"));
        copies.push(client(&["get", &from, &target]));
        let source = house.text("a/large");
        copies.push(client(&["put", &source, &format!("{to}{number}")]));
    }
    for number in 0..20 {
        let allow = if number % 4 == 0 { "allow = \"127.0.0.0/8\"" } else { "" };
        let a = format!(
            "squash = \"none\"
{allow}"
        );
        let more = [("/a", "a", a.as_str()), ("/b", "b", "")];
        house.configure("", &more[..1 + number % 2]);
        server.reload(if number % 2 == 0 { "1 export in force" } else { "2 exports in force" });
    }
    for copy in copies {
        let output = copy.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for number in 0..3 {
        assert!(fs::read(house.path(&format!("got-{number}"))).unwrap() == data);
        assert!(fs::read(house.path(&format!("a/copies/{number}"))).unwrap() == data);
    }
    server.stop();
}

#[test]
fn a_list_of_exports_is_served_and_read_again() {
    let house = House::with(&["a"]);
    let exports = house.text("exports");
    let (directory, state) = (house.text("a"), house.text("state"));
    fs::write(&exports, format!("{directory} 127.0.0.1(rw,insecure,no_root_squash) *(ro)\n")).unwrap();
    let line =
        ["serve", "--json", "--listen", "127.0.0.1:0", "--no-tcp", "--state", &state, "--exports", &exports];
    let server = Running::start(command(&line));
    let file = server.url(&format!("{directory}/new"));
    succeed(&["touch", &file]);
    fs::write(&exports, format!("{directory} 127.0.0.1(ro) 192.0.2.0/24(rw)\n")).unwrap();
    server.reload("1 export in force");
    assert!(fail(1, &["rm", &file]).to_lowercase().contains("read-only"));
    fs::write(&exports, format!("{directory} 127.0.0.1(ro\n")).unwrap();
    server.reload("reload refused");
    assert!(server.said().contains("exports:1:"), "{}", server.said());
    server.stop();
}

#[test]
fn a_service_manager_hears_of_the_server() {
    let house = House::with(&["a"]);
    house.configure("", &[("/a", "a", "")]);
    let socket = UnixDatagram::bind(house.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let heard = || {
        let mut bytes = [0; 1000];
        let length = socket.recv(&mut bytes).unwrap();
        text(&bytes[..length])
    };
    let config = house.text("serve.toml");
    let mut serve = command(&["serve", "--json", "--config", &config]);
    serve.env("NOTIFY_SOCKET", house.path("notify")).env("WATCHDOG_USEC", "600000000");
    let server = Running::start(serve);
    assert_eq!(heard(), "READY=1\nSTATUS=serving 1 export\n");
    assert_eq!(heard(), "WATCHDOG=1\n");
    server.reload("1 export in force");
    assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(heard(), "READY=1\nSTATUS=serving 1 export\n");
    fs::write(&config, "x = 1\n").unwrap();
    server.reload("reload refused");
    assert!(heard().starts_with("RELOADING=1\n"));
    assert!(heard().contains("the last reload was refused"));
    server.stop();
    assert!(heard().starts_with("STOPPING=1\n"));
}

/// Starts a server as a service manager does: with sockets as descriptors from 3.
pub(crate) fn activated(line: &[&str], names: &str, sockets: [TcpListener; 2]) -> (Child, Option<Value>) {
    let script = "exec 3<&0 4<&2 0</dev/null 2>\"$LOG\"; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let binary = env!("CARGO_BIN_EXE_rpcrdma");
    let [first, second] = sockets.map(OwnedFd::from);
    let mut child = Command::new("bash")
        .args(["-c", script, "bash", binary, "serve", "--json"])
        .args(line)
        .env("LISTEN_FDNAMES", names)
        .env("LOG", Path::new(line.last().unwrap()).with_extension("log"))
        .stdin(Stdio::from(first))
        .stderr(Stdio::from(second))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, serde_json::from_str(&line).ok())
}

#[test]
fn sockets_of_a_service_manager_are_served() {
    let house = House::with(&["a"]);
    let (directory, state) = (format!("/={},squash=none", house.text("a")), house.text("state"));
    let line = ["--listen", "127.0.0.1:1", "--export", &directory, "--state", &state];
    let listeners = || [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let sockets = listeners();
    let [rdma, tcp] = [&sockets[0], &sockets[1]].map(|socket| socket.local_addr().unwrap().to_string());
    let (mut child, ready) = activated(&line, "rdma:tcp", sockets);
    let ready = ready.unwrap_or_else(|| panic!("{}", fs::read_to_string(house.path("state.log")).unwrap()));
    assert_eq!((ready["rdma"].as_str(), ready["tcp"].as_str()), (Some(rdma.as_str()), Some(tcp.as_str())));
    assert_eq!(succeed(&["cat", &format!("nfs://{rdma}/here")]), "a");
    assert_eq!(succeed(&["cat", "--proto", "tcp", &format!("nfs://{tcp}/here")]), "a");
    signal(child.id(), "TERM");
    assert!(wait(&mut child, Duration::from_secs(20)).success());
    // Nobody listens where the options say.
    let said = fs::read_to_string(house.path("state.log")).unwrap();
    assert!(said.contains("nobody listens on 127.0.0.1:1 of --listen") && said.contains(&rdma), "{said}");
    // The server knows no other names.
    let (mut child, ready) = activated(&line, "rdma:http", listeners());
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(1), "{ready:?}");
    let mut said = String::new();
    fs::File::open(house.path("state.log")).unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("\"http\"") && said.contains("FileDescriptorName=tcp"), "{said}");
}

#[test]
fn a_client_of_a_socket_for_both_versions_of_ip_has_its_ipv4_address() {
    let house = House::with(&["a"]);
    let directory = format!("/={},squash=none,allow=127.0.0.0/8", house.text("a"));
    let state = house.text("state");
    let line = ["--listen", "127.0.0.1:1", "--export", &directory, "--state", &state];
    // As ListenStream=PORT of systemd listens.
    let listener = || TcpListener::bind("[::]:0");
    let (Ok(first), Ok(second)) = (listener(), listener()) else {
        println!("skipped: no IPv6 here");
        return;
    };
    let sockets = [first, second];
    let [rdma, tcp] = [&sockets[0], &sockets[1]].map(|socket| socket.local_addr().unwrap().port());
    let (mut child, ready) = activated(&line, "rdma:tcp", sockets);
    assert!(ready.is_some(), "{}", fs::read_to_string(house.path("state.log")).unwrap());
    assert_eq!(succeed(&["cat", &format!("nfs://127.0.0.1:{rdma}/here")]), "a");
    assert_eq!(succeed(&["cat", "--proto", "tcp", &format!("nfs://127.0.0.1:{tcp}/here")]), "a");
    signal(child.id(), "TERM");
    assert!(wait(&mut child, Duration::from_secs(20)).success());
    let log = fs::read_to_string(house.path("state.log")).unwrap();
    for wanted in ["came by iwarp", "came by tcp"] {
        let told = log.lines().any(|line| line.contains("client 127.0.0.1:") && line.contains(wanted));
        assert!(told, "{wanted}: {log}");
    }
    assert!(log.contains("by 127.0.0.1:") && !log.contains("::ffff:"), "{log}");
}

#[test]
fn the_root_above_all_exports_lists_them() {
    let house = House::with(&["a", "b"]);
    house.configure("", &[("/srv/b", "b", ""), ("/a", "a", ""), ("/closed", "a", "allow = \"192.0.2.1\"")]);
    let server = house.start();
    let output = run(&["ls", &server.url("/")]);
    assert_eq!(text(&output.stdout), "a\nsrv/b\n");
    assert!(
        output.status.code() == Some(4) && text(&output.stderr).contains("/closed: "),
        "{}",
        text(&output.stderr)
    );
    house.configure("", &[("/srv/b", "b", ""), ("/a", "a", "")]);
    server.reload("2 exports in force");
    assert!(succeed(&["ls", "-l", &server.url("/")]).lines().all(|line| line.starts_with('d')));
    let all = succeed(&["ls", "-R", &server.url("/")]);
    assert_eq!(all.matches("here").count(), 2, "{all}");
    let document = json(&["ls", &server.url("/")]);
    assert_eq!(document["listings"][0]["entries"][1]["url"], server.url("/srv/b"));
    fail(1, &["ls", &server.url("/srv")]);
    fail(1, &["ls", "-d", &server.url("/")]);
    server.stop();
}
