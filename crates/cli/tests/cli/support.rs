//! Server processes of the real binary, and clients.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rpcrdma_realm::Realm;
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_rpcrdma");

/// Returns a command that runs the binary with these arguments.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    // Processes of a background shell ignore SIGINT, and the binary would leave it ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", BINARY]);
    command.args(arguments).env_remove("RPCRDMA_LOG").stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    command(arguments).output().unwrap()
}

/// Runs the binary, which must succeed. Returns its standard output.
pub(crate) fn succeed<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let output = run(arguments);
    let shown: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(output.status.success(), "{shown:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs the binary, which must fail with this exit code. Returns its standard error.
pub(crate) fn fail<S: AsRef<OsStr>>(code: i32, arguments: &[S]) -> String {
    let output = run(arguments);
    let complaint = text(&output.stderr);
    let shown: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(output.status.code(), Some(code), "{shown:?}: {complaint}");
    complaint
}

/// Runs the binary with `--json`. Returns the document.
pub(crate) fn json<S: AsRef<OsStr>>(arguments: &[S]) -> Value {
    let mut all: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    all.push(OsStr::new("--json"));
    serde_json::from_str(&succeed(&all)).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a directory for temporary files, in memory if possible, because the disk is not under test.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("rpcrdma-test-").tempdir_in(parent).unwrap()
}

/// Server on free ports of the loopback interface.
pub(crate) struct Server {
    child: Child,
    pub(crate) ready: Value,
    /// Directory of the export and the state.
    pub(crate) place: TempDir,
    extra: Vec<String>,
    /// Folder of the Kerberos realm that the server belongs to.
    realm: Option<PathBuf>,
}

impl Server {
    /// Serves an empty directory as `/` to all clients, without squashing.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Serves as [`start`](Self::start) does, with further options.
    pub(crate) fn start_with(extra: &[&str]) -> Self {
        Self::start_in(None, extra)
    }

    /// Serves as [`start_with`](Self::start_with) does, as a member of a Kerberos realm.
    pub(crate) fn start_in(realm: Option<&Path>, extra: &[&str]) -> Self {
        let place = scratch();
        std::fs::create_dir(place.path().join("export")).unwrap();
        let extra: Vec<String> = extra.iter().map(|option| (*option).to_owned()).collect();
        let realm = realm.map(Path::to_owned);
        let (child, ready) = spawn(place.path(), realm.as_deref(), &extra, "127.0.0.1:0", "127.0.0.1:0");
        Self { child, ready, place, extra, realm }
    }

    /// Returns the exported directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.place.path().join("export")
    }

    /// Returns the number of the server's process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn rdma(&self) -> &str {
        self.ready["rdma"].as_str().unwrap()
    }

    pub(crate) fn tcp(&self) -> &str {
        self.ready["tcp"].as_str().unwrap()
    }

    /// Returns the address of the metrics.
    pub(crate) fn metrics(&self) -> &str {
        self.ready["metrics"].as_str().unwrap()
    }

    /// Returns the state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    /// Returns the URL of a path, for RDMA.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}{path}", self.rdma())
    }

    /// Kills the server, as a crash would end it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again after [`kill`](Self::kill), on the same ports.
    pub(crate) fn restart(&mut self) {
        let (rdma, tcp) = (self.rdma().to_owned(), self.tcp().to_owned());
        (self.child, self.ready) = spawn(self.place.path(), self.realm.as_deref(), &self.extra, &rdma, &tcp);
    }

    /// Sends the server a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Sends a signal by name and waits for the end.
    pub(crate) fn stop(mut self, name: &str) -> (ExitStatus, String) {
        signal(self.child.id(), name);
        let status = wait(&mut self.child, Duration::from_secs(20));
        let mut complaint = String::new();
        let stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut BufReader::new(stderr), &mut complaint).unwrap();
        (status, complaint)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(place: &Path, realm: Option<&Path>, extra: &[String], rdma: &str, tcp: &str) -> (Child, Value) {
    let export = format!("/={},squash=none", place.join("export").display());
    let mut serve =
        command(&["serve", "--json", "--listen", rdma, "--tcp", tcp, "--export", &export, "--state"]);
    if let Some(realm) = realm {
        Realm::surround(&mut serve, realm);
    }
    let mut child = serve
        .arg(place.join("state"))
        .args(extra)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = child.wait_with_output().unwrap();
        panic!("no server: {}", text(&output.stderr));
    }
    (child, serde_json::from_str(&line).unwrap())
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u32, name: &str) {
    let id = process.to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

/// Waits for the end of a process.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < limit, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
