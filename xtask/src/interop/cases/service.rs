//! The units of `contrib/systemd`, run by Debian's systemd in a container of the guest (`interop/guest/service.sh`). The
//! kernel's client of the guest mounts the service and writes, while systemd reloads, stops and restarts it.
//!
//! The units are the files of the project, unchanged. Drop-ins make a case stricter or shorter.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

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
/// The options of the service; `service/unit` adds an export later.
const CONFIGURATION: &str = "listen = \"iwarp:0.0.0.0:20049\"\n\
    tcp = \"0.0.0.0:20048\"\n\n\
    [[export]]\n\
    name = \"/data\"\n\
    directory = \"/srv/data\"\n\
    allow = [\"10.0.2.0/24\"]\n\
    squash = \"none\"\n";
const SECOND_EXPORT: &str = "\n[[export]]\nname = \"/more\"\ndirectory = \"/srv/more\"\nsquash = \"none\"\n";
/// Files that writers have to finish before the next disturbance.
const FILES: u64 = 2;
/// Maximum time for systemd in its container to come up or to go down.
const SYSTEMD_LIMIT: Duration = Duration::from_secs(30);

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
    /// Boots the container, with the units installed and none enabled.
    fn boot(lab: &mut Lab) -> Result<Self, Failure> {
        let units = lab.shared().join("systemd");
        fs::create_dir_all(&units)?;
        for entry in fs::read_dir(lab.project.join("contrib/systemd")).context("the units")? {
            let entry = entry?;
            fs::copy(entry.path(), units.join(entry.file_name()))?;
        }
        fs::write(units.join("serve.toml"), CONFIGURATION)?;
        fs::copy(&lab.rpcrdma, lab.shared().join("rpcrdma")).context("copying rpcrdma into the guest")?;
        let job = lab.guest_start("exec bash /job/guest/service.sh run", &[])?;
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
        if let Err(failure) = container.within(lab, SYSTEMD_LIMIT, &["true"]) {
            let console = lab.guest_output(&container.job);
            return Err(Failure::new(format!("{failure}: {}", process::last_lines(&console, 10))));
        }
        container.run(lab, &["systemctl", "daemon-reload"])?;
        Ok(container)
    }

    /// Runs a command in the container and returns its output.
    fn run(&self, lab: &mut Lab, command: &[&str]) -> Result<String, Failure> {
        self.within(lab, RECOVERY, command)
    }

    fn within(&self, lab: &mut Lab, limit: Duration, command: &[&str]) -> Result<String, Failure> {
        let script = "exec bash /job/guest/service.sh in \"$@\"";
        let output = lab.guest_within(limit, script, command).context(command.join(" "));
        if output.is_err() {
            // For the one who reads about the failure.
            let _ = self.keep_journal(lab);
        }
        output
    }

    /// Runs systemctl with arguments.
    fn systemctl(&self, lab: &mut Lab, arguments: &[&str]) -> Result<String, Failure> {
        self.run(lab, &[&["systemctl"], arguments].concat())
    }

    /// Returns the value of a property of the service.
    fn property(&self, lab: &mut Lab, name: &str) -> Result<String, Failure> {
        let text = self.systemctl(lab, &["show", "--value", "--property", name, "rpcrdma"])?;
        Ok(text.trim().to_owned())
    }

    /// Waits until a property has a value.
    fn await_property(&self, lab: &mut Lab, name: &str, wanted: &str) -> Result<(), Failure> {
        let mut seen = String::new();
        let reached = process::until(RECOVERY, || {
            seen = self.property(lab, name)?;
            Ok((seen == wanted).then_some(()))
        })?;
        if reached.is_none() {
            self.keep_journal(lab)?;
            return Err(Failure::new(format!("{name} is {seen:?} instead of {wanted:?}")));
        }
        Ok(())
    }

    /// Adds a drop-in to the unit of the service.
    fn drop_in(&self, lab: &mut Lab, name: &str, lines: &str) -> Result<(), Failure> {
        let script = "mkdir -p /etc/systemd/system/rpcrdma.service.d && \
                      printf '[Service]\\n%s\\n' \"$2\" >\"/etc/systemd/system/rpcrdma.service.d/$1.conf\" && \
                      systemctl daemon-reload";
        self.run(lab, &["bash", "-c", script, "bash", name, lines]).map(drop)
    }

    /// Mounts an export over RDMA.
    fn mount(lab: &mut Lab, export: &str) -> Result<Mount, Failure> {
        let options =
            format!("vers=3,proto=rdma,port={RDMA},mountproto=tcp,mountport={TCP},nolock,retry=0,hard");
        lab.mount_raw(&format!("{GUEST}:{export}"), &options)
    }

    /// Waits until the writers have finished some more files.
    fn await_files(&self, lab: &mut Lab, after: &str) -> Result<(), Failure> {
        let script = "ls \"$1\"/writer-* | sed -n 's/^file-//p' | sort -n | tail -n 1";
        let directory = self.server.export.display().to_string();
        let mut first = None;
        let limit = RECOVERY * lab.accel().patience();
        let came = process::until(limit, || {
            let last: u64 = lab.guest(script, &[&directory])?.trim().parse().unwrap_or(0);
            let first = *first.get_or_insert(last);
            Ok((last >= first + FILES).then_some(()))
        })?;
        if came.is_none() {
            self.keep_journal(lab)?;
        }
        ensure!(came.is_some(), "the writers do not go on {after}");
        Ok(())
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

    /// Checks that systemd is content with the service, and that the service had nothing to warn of.
    fn judge(&self, lab: &mut Lab, restarts: &str) -> Result<(), Failure> {
        let journal = self.journal(lab)?;
        for (name, wanted) in [("ActiveState", "active"), ("Result", "success"), ("NRestarts", restarts)] {
            let seen = self.property(lab, name)?;
            ensure!(seen == wanted, "{name} is {seen:?} instead of {wanted:?}");
        }
        let own = journal.iter().filter(|line| line.program.as_deref() == Some("rpcrdma"));
        let warnings: Vec<&str> =
            own.filter(|line| line.priority.as_str() < "5").map(|line| line.message.as_str()).collect();
        ensure!(warnings.is_empty(), "the service warns: {}", warnings.join(" | "));
        Ok(())
    }

    /// Powers the container off.
    fn power_off(self, lab: &mut Lab) -> Result<(), Failure> {
        self.systemctl(lab, &["poweroff", "--no-block"])?;
        let limit = SYSTEMD_LIMIT * lab.accel().patience();
        let status = lab.guest_status(&self.job, limit)?;
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
    let pid = container.property(lab, "MainPID")?;
    let script = "awk '/^(Seccomp|NoNewPrivs|CapBnd):/ { print $1 $2 }' \"/proc/$1/status\"; \
                  nsenter --target \"$1\" --mount touch /usr/written 2>&1";
    let text = container.run(lab, &["bash", "-c", &format!("{script}; :"), "bash", &pid])?;
    // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, NET_BIND_SERVICE, IPC_LOCK, MKNOD.
    for wanted in ["Seccomp:2", "NoNewPrivs:1", "CapBnd:00000000080044df", "Read-only file system"] {
        ensure!(text.contains(wanted), "{wanted} is missing: {text}");
    }
    Ok(())
}

fn unit(lab: &mut Lab) -> Result<Detail, Failure> {
    const WRITERS: usize = 2;
    let container = Container::boot(lab)?;
    container.systemctl(lab, &["enable", "--now", "rpcrdma"])?;
    ensure!(container.systemctl(lab, &["is-active", "rpcrdma"])?.trim() == "active", "not active");
    container.await_property(lab, "StatusText", "serving 1 export")?;
    ensure_confined(&container, lab)?;
    let mount = Container::mount(lab, "/data")?;
    // What root of a client may do, all within the restrictions of the unit.
    let directory = format!("{}/operations", mount.path);
    lab.guest("mkdir \"$1\"", &[&directory])?;
    lab.workload(RECOVERY, "operations", &[&directory])?;
    let writers = Writers::start(lab, &mount, WRITERS)?;
    container.await_files(lab, "at first")?;

    let before = connects(lab, &mount)?;
    let script = "printf '%s' \"$1\" >>/etc/rpcrdma/serve.toml && systemctl reload rpcrdma";
    container.run(lab, &["bash", "-c", script, "bash", SECOND_EXPORT])?;
    container.await_property(lab, "StatusText", "serving 2 exports")?;
    let more = Container::mount(lab, "/more")?;
    container.await_files(lab, "after the reload")?;
    ensure!(connects(lab, &mount)? == before, "the reload ended the connection");

    // From here on a denied system call ends the service, which then could not hide it.
    container.drop_in(lab, "strict", "SystemCallErrorNumber=")?;
    container.systemctl(lab, &["stop", "rpcrdma"])?;
    container.await_property(lab, "ActiveState", "inactive")?;
    container.systemctl(lab, &["start", "rpcrdma"])?;
    container.await_property(lab, "StatusText", "serving 2 exports")?;
    container.await_files(lab, "after stop and start")?;
    container.systemctl(lab, &["restart", "rpcrdma"])?;
    container.await_files(lab, "after the restart")?;
    container.systemctl(lab, &["reload", "rpcrdma"])?;
    lab.guest("mkdir \"$1/again\"", &[&more.path])?;
    lab.workload(RECOVERY, "operations", &[&format!("{}/again", more.path)])?;

    let (files, _) = writers.finish(lab, &container.server)?;
    lab.umount(&more)?;
    lab.umount(&mount)?;
    container.judge(lab, "0")?;
    let journal = container.journal(lab)?;
    for export in ["/data", "/more"] {
        let wanted = format!("rpcrdma::mounts: mounted \"{export}\"");
        let told = journal.iter().any(|line| line.priority == "6" && line.message.starts_with(&wanted));
        ensure!(told, "the journal has no line of priority 6 that begins with {wanted}");
    }
    container.power_off(lab)?;
    Ok(format!("reload, stop, start, restart; {WRITERS} writers, {files} files equal"))
}

/// Enables the service of a container, mounts it, and starts a writer there.
fn written(lab: &mut Lab, container: &Container, units: &[&str]) -> Result<(Mount, Writers), Failure> {
    container.systemctl(lab, &[&["enable", "--now"], units].concat())?;
    let mount = Container::mount(lab, "/data")?;
    let writers = Writers::start(lab, &mount, 1)?;
    container.await_files(lab, "at first")?;
    Ok((mount, writers))
}

fn sockets(lab: &mut Lab) -> Result<Detail, Failure> {
    const RESTARTS: usize = 3;
    let container = Container::boot(lab)?;
    let (mount, writers) = written(lab, &container, &["rpcrdma.socket", "rpcrdma-tcp.socket"])?;
    ensure!(container.property(lab, "TriggeredBy")?.contains("rpcrdma.socket"), "no socket started it");
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
    let container = Container::boot(lab)?;
    container.drop_in(lab, "watchdog", "WatchdogSec=5")?;
    let (mount, writers) = written(lab, &container, &["rpcrdma"])?;
    let pid = container.property(lab, "MainPID")?;
    container.run(lab, &["kill", "-STOP", &pid])?;
    container.await_property(lab, "NRestarts", "1")?;
    container.await_property(lab, "ActiveState", "active")?;
    container.await_files(lab, "after the watchdog")?;
    let (files, _) = writers.finish(lab, &container.server)?;
    lab.umount(&mount)?;
    container.judge(lab, "1")?;
    container.power_off(lab)?;
    Ok(format!("{files} files equal"))
}
