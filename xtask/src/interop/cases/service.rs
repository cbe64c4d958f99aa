//! The units of `contrib/systemd`, run by Debian's systemd in a container of the guest (`interop/guest/service.sh`). The
//! kernel's client of the guest mounts the service and writes, while systemd reloads, stops and restarts it.
//!
//! The units are the files of the project, unchanged. Drop-ins make `unit` stricter and `watchdog` shorter.

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use super::faults::{RECOVERY, Writers};
use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::{Lab, Mount, Server};
use crate::interop::network::GUEST;
use crate::interop::vm::Job;
use crate::process;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "unit",
        "Debian's systemd starts, reloads, stops and restarts our service while the kernel's client writes: no error, no denied system call, all data equal",
        unit,
    )
    .within(120)
    .unseen(),
    Case::new(
        "sockets",
        "With the socket units the first mount starts the service, and its restarts refuse no connection",
        sockets,
    )
    .within(90)
    .unseen()
    .thorough(),
    Case::new(
        "watchdog",
        "A service that stands still is restarted by the watchdog of systemd, and the kernel's client goes on",
        watchdog,
    )
    .within(90)
    .unseen()
    .thorough(),
];

/// Ports of the units.
const RDMA: u16 = 20_049;
const TCP: u16 = 20_048;
/// The options of the service; `service/unit` adds an export later. An emulated processor makes any call slow.
const CONFIGURATION: &str = "listen = \"iwarp:0.0.0.0:20049\"\n\
    tcp = \"0.0.0.0:20048\"\n\
    slow = \"0\"\n\n\
    [[export]]\n\
    name = \"/data\"\n\
    directory = \"/srv/data\"\n\
    allow = [\"10.0.2.0/24\"]\n\
    squash = \"none\"\n";
const SECOND_EXPORT: &str = "\n[[export]]\nname = \"/more\"\ndirectory = \"/srv/more\"\nsquash = \"none\"\n";
/// Files that writers have to finish before the next disturbance.
const FILES: &str = "2";

/// A line of the journal.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "PRIORITY")]
    priority: String,
    #[serde(rename = "MESSAGE")]
    message: String,
    #[serde(rename = "_COMM")]
    program: Option<String>,
}

/// A container with systemd, and the service in it.
#[derive(Debug)]
struct Container {
    job: Job,
    /// The server as the mounted client sees it.
    server: Server,
}

impl Container {
    /// Boots the container, with units enabled, and lines that are added to the section `[Service]` of the service.
    fn boot(lab: &mut Lab, enabled: &[&str], drop_in: &str) -> Result<Self, Failure> {
        let units = lab.shared().join("systemd");
        let drop_ins = units.join("rpcrdma.service.d");
        let _ = fs::remove_dir_all(&drop_ins);
        fs::create_dir_all(&units)?;
        for entry in fs::read_dir(lab.project.join("contrib/systemd")).context("the units")? {
            let entry = entry?;
            fs::copy(entry.path(), units.join(entry.file_name()))?;
        }
        fs::write(units.join("serve.toml"), CONFIGURATION)?;
        if !drop_in.is_empty() {
            fs::create_dir(&drop_ins)?;
            fs::write(drop_ins.join("case.conf"), format!("[Service]\n{drop_in}\n"))?;
        }
        let command = lab.shared().join("rpcrdma");
        if !command.exists() {
            fs::copy(&lab.rpcrdma, command).context("copying rpcrdma into the guest")?;
        }
        lab.guest("exec bash /job/guest/service.sh clear", &[])?;
        let arguments = [&["run"], enabled].concat();
        let job = lab.guest_start("exec bash /job/guest/service.sh \"$@\"", &arguments)?;
        let server = Server {
            address: GUEST,
            rdma: RDMA,
            tcp: TCP,
            export: PathBuf::from("/srv/service/data"),
            policy: "squash=none".to_owned(),
            log: lab.folder.join("journal.log"),
        };
        lab.keep(&server.log);
        let container = Self { job, server };
        if let Err(failure) = container.run(lab, &["true"]) {
            let console = lab.guest_output(&container.job);
            return Err(Failure::new(format!("{failure}: {}", process::last_lines(&console, 10))));
        }
        Ok(container)
    }

    /// Runs a command in the container and returns its output.
    fn run(&self, lab: &mut Lab, command: &[&str]) -> Result<String, Failure> {
        self.script(lab, &[&["in"], command].concat())
    }

    /// Runs `service.sh` with arguments.
    fn script(&self, lab: &mut Lab, arguments: &[&str]) -> Result<String, Failure> {
        let script = "exec bash /job/guest/service.sh \"$@\"";
        let output = lab.guest_within(RECOVERY, script, arguments).context(arguments.join(" "));
        if output.is_err() {
            // For the reader of the failure.
            let _ = self.keep_journal(lab);
        }
        output
    }

    /// Runs systemctl with arguments.
    fn systemctl(&self, lab: &mut Lab, arguments: &[&str]) -> Result<String, Failure> {
        self.run(lab, &[&["systemctl"], arguments].concat())
    }

    /// Returns properties of the service, one `NAME=VALUE` a line.
    fn properties(&self, lab: &mut Lab, names: &str) -> Result<String, Failure> {
        self.systemctl(lab, &["show", "--property", names, "rpcrdma"])
    }

    /// Waits until a property of the service has a value.
    fn await_property(&self, lab: &mut Lab, name: &str, wanted: &str) -> Result<(), Failure> {
        self.script(lab, &["until", name, wanted]).map(drop)
    }

    /// Mounts an export over RDMA.
    fn mount(lab: &mut Lab, export: &str) -> Result<Mount, Failure> {
        let options =
            format!("vers=3,proto=rdma,port={RDMA},mountproto=tcp,mountport={TCP},nolock,retry=0,hard");
        lab.mount_raw(&format!("{GUEST}:{export}"), &options)
    }

    /// Waits until the writers have finished some more files.
    fn await_files(&self, lab: &mut Lab, after: &str) -> Result<(), Failure> {
        let directory = self.server.export.display().to_string();
        self.script(lab, &["files", &directory, FILES]).map(drop).context(after)
    }

    /// Writes the journal of the service into the log of the server, and returns its lines.
    fn journal(&self, lab: &mut Lab) -> Result<Vec<Line>, Failure> {
        let text = self.keep_journal(lab)?;
        let lines: Result<Vec<Line>, _> = text.lines().map(serde_json::from_str).collect();
        lines.context("the journal")
    }

    fn keep_journal(&self, lab: &mut Lab) -> Result<String, Failure> {
        let script = "exec bash /job/guest/service.sh in journalctl --no-pager --output=json \
                      --output-fields=PRIORITY,MESSAGE,_COMM --unit=rpcrdma";
        let text = lab.guest(script, &[])?;
        fs::write(&self.server.log, &text)?;
        Ok(text)
    }

    /// Checks that systemd is content with the service, and that the service complained of nothing. Returns the journal.
    fn judge(&self, lab: &mut Lab, restarts: &str) -> Result<Vec<Line>, Failure> {
        let journal = self.journal(lab)?;
        let seen = self.properties(lab, "ActiveState,Result,NRestarts")?;
        for wanted in ["ActiveState=active", "Result=success", &format!("NRestarts={restarts}")] {
            ensure!(seen.lines().any(|line| line == wanted), "{wanted} is missing: {seen}");
        }
        // A warning of a call that took long is no fault on an emulated processor.
        let wrong = |line: &&Line| {
            line.priority.as_str() < "4"
                || ["not permitted", "ermission denied", "panicked"]
                    .iter()
                    .any(|text| line.message.contains(text))
        };
        let wrong: Vec<&str> = journal
            .iter()
            .filter(|line| line.program.as_deref() == Some("rpcrdma"))
            .filter(wrong)
            .map(|line| line.message.as_str())
            .collect();
        ensure!(wrong.is_empty(), "the service complains: {}", wrong.join(" | "));
        Ok(journal)
    }

    /// Powers the container off.
    fn power_off(self, lab: &mut Lab) -> Result<(), Failure> {
        let arguments = ["start", "--no-block", "--job-mode=replace-irreversibly", "poweroff.target"];
        self.systemctl(lab, &arguments)?;
        let status = lab.guest_status(&self.job, RECOVERY)?;
        ensure!(status == Some(0), "the container ended with {status:?}");
        Ok(())
    }
}

/// Returns how often the transport of a mount has connected.
fn connects(lab: &mut Lab, mount: &Mount) -> Result<u64, Failure> {
    let script = "awk -v path=\"$1\" '$1 == \"device\" { of = $5 } of == path && $1 == \"xprt:\" { print $5 }' \
                  /proc/self/mountstats";
    let text = lab.guest(script, &[&mount.path])?;
    text.trim().parse().context(format!("connections of {}: {text:?}", mount.path))
}

/// Checks the restrictions of the service's process: they must be in force for the case to say anything.
fn ensure_confined(container: &Container, lab: &mut Lab) -> Result<(), Failure> {
    let script = "pid=$(systemctl show --value --property MainPID rpcrdma)\n\
                  awk '/^(Seccomp|NoNewPrivs|CapBnd):/ { print $1 $2 }' \"/proc/$pid/status\"\n\
                  nsenter --target \"$pid\" --mount touch /usr/written 2>&1 || :";
    let text = container.run(lab, &["bash", "-c", script])?;
    // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, NET_BIND_SERVICE, IPC_LOCK, MKNOD.
    for wanted in ["Seccomp:2", "NoNewPrivs:1", "CapBnd:00000000080044df", "Read-only file system"] {
        ensure!(text.contains(wanted), "{wanted} is missing: {text}");
    }
    Ok(())
}

fn unit(lab: &mut Lab) -> Result<Detail, Failure> {
    // A denied system call ends the service, which then cannot hide it.
    let container = Container::boot(lab, &["rpcrdma.service"], "SystemCallErrorNumber=")?;
    let seen = container.properties(lab, "ActiveState,StatusText")?;
    for wanted in ["ActiveState=active", "StatusText=serving 1 export"] {
        ensure!(seen.lines().any(|line| line == wanted), "{wanted} is missing: {seen}");
    }
    ensure_confined(&container, lab)?;
    let mount = Container::mount(lab, "/data")?;
    // Root of a client may do all this within the restrictions of the unit.
    let directory = format!("{}/operations", mount.path);
    lab.guest("mkdir \"$1\"", &[&directory])?;
    lab.workload(RECOVERY, "operations", &[&directory])?;
    let writers = Writers::start(lab, &mount, 1)?;
    container.await_files(lab, "at first")?;

    let before = connects(lab, &mount)?;
    let script = "printf '%s' \"$1\" >>/etc/rpcrdma/serve.toml && systemctl reload rpcrdma";
    container.run(lab, &["bash", "-c", script, "bash", SECOND_EXPORT])?;
    container.await_property(lab, "StatusText", "serving 2 exports")?;
    let more = Container::mount(lab, "/more")?;
    container.await_files(lab, "after the reload")?;
    ensure!(connects(lab, &mount)? == before, "the reload ended the connection");

    let script = "systemctl stop rpcrdma && systemctl is-active rpcrdma; systemctl start rpcrdma";
    let between = container.run(lab, &["bash", "-c", script])?;
    ensure!(between.trim() == "inactive", "after stop the service was {between:?}");
    container.await_files(lab, "after stop and start")?;
    container.systemctl(lab, &["restart", "rpcrdma"])?;
    container.await_files(lab, "after the restart")?;

    let (files, _) = writers.finish(lab, &container.server)?;
    lab.umount(&more)?;
    lab.umount(&mount)?;
    let journal = container.judge(lab, "0")?;
    for export in ["/data", "/more"] {
        let wanted = format!("rpcrdma::mounts: mounted \"{export}\"");
        let told = journal.iter().any(|line| line.priority == "6" && line.message.starts_with(&wanted));
        ensure!(told, "the journal has no line of priority 6 that begins with {wanted}");
    }
    container.power_off(lab)?;
    Ok(format!("reload, stop, start, restart; {files} files equal"))
}

/// Mounts the service of a container, and starts a writer there.
fn written(lab: &mut Lab, container: &Container) -> Result<(Mount, Writers), Failure> {
    let mount = Container::mount(lab, "/data")?;
    let writers = Writers::start(lab, &mount, 1)?;
    container.await_files(lab, "at first")?;
    Ok((mount, writers))
}

fn sockets(lab: &mut Lab) -> Result<Detail, Failure> {
    const RESTARTS: usize = 3;
    let container = Container::boot(lab, &["rpcrdma.socket", "rpcrdma-tcp.socket"], "")?;
    let seen = container.properties(lab, "ActiveState")?;
    ensure!(seen.trim() == "ActiveState=inactive", "the service runs before its first client: {seen}");
    let (mount, writers) = written(lab, &container)?;
    let stop = lab.shared().join("stop-connecting");
    let _ = fs::remove_file(&stop);
    let arguments = ["/job/stop-connecting", &GUEST.to_string(), &RDMA.to_string(), &TCP.to_string()];
    let connecting = lab.guest_start("exec python3 /job/guest/connects.py \"$@\"", &arguments)?;
    for _ in 0..RESTARTS {
        container.systemctl(lab, &["restart", "rpcrdma"])?;
        container.await_files(lab, "after a restart")?;
    }
    fs::write(&stop, "")?;
    let connected = lab.guest_finish(&connecting, RECOVERY).context("connecting meanwhile")?;
    let connected = connected.trim().strip_prefix("connections: ").unwrap_or_default().to_owned();
    let (files, _) = writers.finish(lab, &container.server)?;
    lab.umount(&mount)?;
    container.judge(lab, "0")?;
    container.power_off(lab)?;
    Ok(format!("{RESTARTS} restarts, {connected} connections and none refused, {files} files equal"))
}

fn watchdog(lab: &mut Lab) -> Result<Detail, Failure> {
    let container = Container::boot(lab, &["rpcrdma.service"], "WatchdogSec=5")?;
    let (mount, writers) = written(lab, &container)?;
    let script = "kill -STOP \"$(systemctl show --value --property MainPID rpcrdma)\"";
    container.run(lab, &["bash", "-c", script])?;
    container.await_property(lab, "NRestarts", "1")?;
    container.await_property(lab, "ActiveState", "active")?;
    container.await_files(lab, "after the watchdog")?;
    let (files, _) = writers.finish(lab, &container.server)?;
    lab.umount(&mount)?;
    container.judge(lab, "1")?;
    container.power_off(lab)?;
    Ok(format!("{files} files equal"))
}
