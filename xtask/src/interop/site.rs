//! The environment of a case without a machine: namespaces of its own, with programs of the host in them.
//!
//! The network and `/run` are those of the case alone. So every port is free, and rpcbind meets no socket of another one.
//! All programs reach each other at 127.0.0.1. Nothing outlives the case: its servers end with the [`Site`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::failure::{Context, Failure, ensure};
use crate::ganesha::{self, Ganesha, Root, Settings};
use crate::needs::ADMINISTRATION;
use crate::process::{self, Finished, Process};

/// Address of all programs.
pub(crate) const LOCAL: &str = "127.0.0.1";
/// Port of our server for NFS and MOUNT over TCP.
pub(crate) const TCP: u16 = 2049;
/// Port of our server for NFS over RDMA.
const RDMA: u16 = 20_049;
/// Maximum time until the namespaces are there, and for the start of our server and its graceful end.
const START: Duration = Duration::from_secs(30);
/// Maximum time of one command.
const COMMAND: Duration = Duration::from_secs(60);
/// Names of files in the folder of the case.
const SERVE_LOG: &str = "serve.log";
const EXPORT: &str = "export";

/// Sets the namespaces up, says so by a file, and keeps them.
const SET_UP: &str =
    "ip link set lo up && mount -t tmpfs -o mode=755 tmpfs /run && : >\"$1\" && exec sleep infinity";
/// Runs a program as the only one of a namespace of processes. Its end ends the program, under whatever user it runs.
const ALONE: [&str; 8] = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "\"$@\" & wait", "sh"];

/// The environment of a case; see the module.
#[derive(Debug)]
pub(crate) struct Site {
    /// Folder of the case.
    pub(crate) folder: PathBuf,
    /// Folder of what the suite builds.
    pub(crate) target: PathBuf,
    rpcrdma: PathBuf,
    deadline: Instant,
    // Servers end before their namespaces.
    server: Option<Process>,
    ganesha: Option<Ganesha>,
    rpcbind: Option<Process>,
    /// The process that keeps the namespaces.
    keeper: Process,
}

impl Site {
    /// Makes the namespaces and an empty folder.
    pub(crate) fn enter(
        rpcrdma: &Path,
        target: &Path,
        folder: &Path,
        limit: Duration,
    ) -> Result<Self, Failure> {
        if folder.exists() {
            fs::remove_dir_all(folder).context("removing the last case's files")?;
        }
        fs::create_dir_all(folder.join(EXPORT))?;
        let ready = folder.join("ready");
        let mut keeper = process::bound("unshare");
        keeper.args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", SET_UP, "sh"]);
        keeper.arg(&ready).env("PATH", search_path());
        let mut keeper = Process::spawn(keeper)?;
        let set_up = process::until(START, || {
            keeper.check().context("the namespaces of the case")?;
            Ok(ready.exists().then_some(()))
        })?;
        ensure!(set_up.is_some(), "the namespaces of the case were not ready in time");
        Ok(Self {
            folder: folder.to_owned(),
            target: target.to_owned(),
            rpcrdma: rpcrdma.to_owned(),
            deadline: Instant::now() + limit,
            server: None,
            ganesha: None,
            rpcbind: None,
            keeper,
        })
    }

    /// Returns the directory that servers export.
    pub(crate) fn export(&self) -> PathBuf {
        self.folder.join(EXPORT)
    }

    /// Returns the logs that servers have left in the folder of a case.
    pub(crate) fn logs(folder: &Path) -> Vec<PathBuf> {
        [SERVE_LOG, ganesha::LOG].iter().map(|name| folder.join(name)).filter(|log| log.exists()).collect()
    }

    // ---- programs

    /// Returns a command that runs a program of the host in the namespaces, with the case's folder as its directory.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_by(&[], program.as_ref())
    }

    fn command_by(&self, around: &[&str], program: &OsStr) -> Command {
        let mut command = process::bound("nsenter");
        command.args(["--target", &self.keeper.id().to_string(), "--net", "--mount", "--"]);
        // The working directory is lost on the way into a namespace of mounts.
        command.args(["env", "-C"]).arg(&self.folder);
        command.args(around).arg(program).env("PATH", search_path());
        command
    }

    /// Runs a program to its end, or to the end of the case's time.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<Finished, Failure> {
        let mut command = self.command(program);
        command.args(arguments);
        process::run(command, self.bounded(COMMAND))
    }

    /// Runs a program, which must succeed. Returns its output.
    pub(crate) fn succeed(&self, program: &str, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
        let finished = self.run(program, arguments)?;
        let said = process::last_lines(&finished.errors, 3);
        ensure!(finished.success(), "{program} {}: {}: {said}", arguments.join(" "), finished.ending());
        Ok(finished.output)
    }

    /// Runs a program, which must succeed. Returns its output as text.
    pub(crate) fn text(&self, program: &str, arguments: &[&str]) -> Result<String, Failure> {
        Ok(String::from_utf8_lossy(&self.succeed(program, arguments)?).into_owned())
    }

    /// Runs `rpcrdma` over TCP, which must succeed. Returns its output.
    pub(crate) fn rpcrdma(&self, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
        let rpcrdma = self.rpcrdma.display().to_string();
        self.succeed(&rpcrdma, &[arguments, &["--proto", "tcp"]].concat())
    }

    /// Starts `rpcrdma` over TCP with its output in a file of the folder, and does not wait.
    pub(crate) fn rpcrdma_start(&self, arguments: &[&str], log: &str) -> Result<Process, Failure> {
        let log = File::create(self.folder.join(log))?;
        let mut command = self.command(&self.rpcrdma);
        command.args(arguments).args(["--proto", "tcp"]).stdout(Stdio::null()).stderr(log);
        Process::spawn(command)
    }

    /// Waits for the end of a process, which must succeed.
    pub(crate) fn finish(&self, process: &mut Process) -> Result<(), Failure> {
        let status = process::wait(process.child(), self.bounded(COMMAND))?;
        let ending = status.map_or_else(|| "no end in time".to_owned(), |status| status.to_string());
        ensure!(status.is_some_and(|status| status.success()), "{ending}");
        Ok(())
    }

    // ---- servers

    /// Starts rpcbind.
    pub(crate) fn start_rpcbind(&mut self) -> Result<(), Failure> {
        let serve = self.command_by(&ALONE, OsStr::new("rpcbind"));
        self.rpcbind = Some(ganesha::rpcbind(serve, |program| self.command(program))?);
        Ok(())
    }

    /// Starts our server, with more options. It exports the directory of the case as `/`, and takes root for root.
    pub(crate) fn serve(&mut self, options: &[&str]) -> Result<(), Failure> {
        let ready = self.folder.join("serve.json");
        let log = self.folder.join(SERVE_LOG);
        let mut command = self.command(&self.rpcrdma);
        command.args(["-v", "serve", "--json", "--listen", &format!("iwarp:{LOCAL}:{RDMA}")]);
        command.args(["--tcp", &format!("{LOCAL}:{TCP}"), "--state"]).arg(self.folder.join("state"));
        command.arg("--export").arg(format!("/={},squash=none", self.export().display())).args(options);
        command.stdout(File::create(&ready)?);
        command.stderr(File::options().create(true).append(true).open(&log)?);
        let mut server = Process::spawn(command)?;
        let started = process::until(START, || {
            server.check().context(process::tail(&log, 5))?;
            let document = fs::read(&ready).unwrap_or_default();
            Ok(serde_json::from_slice::<serde_json::Value>(&document).ok())
        })?;
        ensure!(started.is_some(), "rpcrdma serve was not ready in time");
        self.server = Some(server);
        Ok(())
    }

    /// Returns the process of our server.
    fn server(&mut self) -> Result<&mut Child, Failure> {
        let server = self.server.as_mut().ok_or_else(|| Failure::new("the server does not run"))?;
        Ok(server.child())
    }

    /// Stops our server by SIGTERM; it must end gracefully.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let status = process::terminate(self.server()?, Signal::TERM, START)?;
        self.server = None;
        let ending = status.map_or_else(|| format!("none within {START:?}"), |status| status.to_string());
        ensure!(status.is_some_and(|status| status.success()), "the server's end: {ending}");
        Ok(())
    }

    /// Kills our server by SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        process::kill(self.server()?);
        self.server = None;
        Ok(())
    }

    /// Starts NFS-Ganesha, which exports the directory of the case and takes root for root. Needs rpcbind.
    pub(crate) fn start_ganesha(&mut self) -> Result<(), Failure> {
        let export = self.export();
        let settings = Settings { export: &export, folder: &self.folder, root: Root::Trusted };
        self.ganesha = Some(Ganesha::start(settings, |program| self.command(program))?);
        Ok(())
    }

    /// Kills NFS-Ganesha by SIGKILL.
    pub(crate) fn kill_ganesha(&mut self) {
        self.ganesha = None;
    }

    /// Ends a case that has succeeded so far: our server stops if it runs, and must not have panicked.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        if self.server.is_some() {
            self.stop()?;
        }
        let log = fs::read_to_string(self.folder.join(SERVE_LOG)).unwrap_or_default();
        let panic = log.lines().find(|line| line.contains("panicked at"));
        ensure!(panic.is_none(), "the server panicked: {}", panic.unwrap_or_default());
        Ok(())
    }

    fn bounded(&self, limit: Duration) -> Duration {
        limit.min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// Returns the search path with the directories of programs for administrators.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    ADMINISTRATION.iter().fold(path, |path, directory| format!("{path}:{directory}"))
}
