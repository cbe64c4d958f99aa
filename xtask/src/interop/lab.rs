//! The environment of a case: the guest, servers on the host, mounts, ports.
//!
//! No resource outlives its case. [`Lab::settle`] ends the remaining servers, mounts and jobs gracefully, which is part
//! of the case. After a failure [`Lab::clear`] kills them, so that the next case finds a clean machine. Every wait ends
//! with the time of the case.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use self::kerberos::Kerberos;
pub(crate) use self::servers::Server;
use self::servers::{Running, SERVER_LIMIT, exit_status};
use super::capture::{Capture, Recording};
use super::fabric::Fabric;
use super::kernel_log;
use super::link::Link;
use super::machine::Machine;
use super::network::{self, GUEST, HOST};
use super::proxy::{Cut, Proxy};
use super::vm::{Accel, Job, Network, Outcome, Vm};
use crate::failure::{Context, Failure, ensure};
use crate::figures::{self, Origin};
use crate::page::Markers;
use crate::process;

pub(crate) mod kerberos;
mod servers;

/// The first port for our servers and proxies. Ports are assigned in turn, so that none is used again soon.
const FIRST_PORT: u16 = 21_000;
/// Ports of knfsd: NFS over RDMA, and MOUNT over TCP.
const KNFSD_PORTS: (u16, u16) = (20_049, 20_048);
/// Default of the maximum time for a job of the guest, multiplied by [`Accel::patience`].
const JOB_LIMIT: Duration = Duration::from_secs(60);
/// Maximum time of a mount or umount.
const MOUNT_LIMIT: Duration = Duration::from_secs(20);

/// A text of a case for a page of the documentation, and its place there.
pub(crate) type Page = (&'static str, Markers, String);

/// A mount in the guest.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    /// Directory of the mount.
    pub(crate) path: String,
    /// Effective options of the mount, from /proc/mounts.
    pub(crate) options: String,
}

impl Mount {
    /// Returns the value of an option such as `rsize`.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The kernel's server in the guest, at [`GUEST`]. It exports /export (disk) and /export/memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knfsd {
    /// Port of NFS over RDMA.
    pub(crate) rdma: u16,
    /// Port of MOUNT over TCP.
    pub(crate) mountd: u16,
}

impl Knfsd {
    /// Returns `HOST:PORT` of NFS over RDMA.
    pub(crate) fn address(self) -> String {
        format!("{GUEST}:{}", self.rdma)
    }
}

/// Name of the folder of a case, and its path in the guest if the case has a fabric.
const FOLDER: &str = "case";
const GUEST_FOLDER: &str = "/job/case";
/// Folder of the guest for exports and states of our servers there.
const GUEST_FILES: &str = "/srv/case";
/// Files for the output of our client in the guest.
const OUTPUT: &str = "rpcrdma.out";
const ERRORS: &str = "rpcrdma.err";
/// Maximum time for a change of the guest's RDMA device.
const DEVICE_LIMIT: Duration = Duration::from_secs(15);

/// The environment of a case; see the module.
#[derive(Debug)]
pub(crate) struct Lab {
    machine: Machine,
    /// The folder `interop/` of the project.
    interop: PathBuf,
    /// Folder of the run's files.
    run: PathBuf,
    /// The command under test.
    pub(crate) rpcrdma: PathBuf,
    /// The project's root.
    pub(crate) project: PathBuf,
    vm: Vm,
    next_port: u16,
    /// Folder for the files of the current case.
    pub(crate) folder: PathBuf,
    deadline: Instant,
    /// The fabric of the current case: its programs run in the guest. Without a fabric they run on the host.
    fabric: Option<Fabric>,
    /// The state of the link to the guest, unless a change of it has failed.
    link: Option<Link>,
    /// Patterns of lines of the kernel that what the case does explains.
    explained: Vec<&'static str>,
    running: Vec<(Server, Running)>,
    /// The Kerberos realm, from the first case that needs it to the end of the run.
    kerberos: Option<Kerberos>,
    logs: Vec<PathBuf>,
    mounts: Vec<Mount>,
    mounted: u32,
    log_lines: usize,
    case_log: String,
    capture: Option<Capture>,
    /// The file of the last capture.
    captured: Option<PathBuf>,
    /// Texts of cases for pages of the documentation.
    pub(crate) pages: Vec<Page>,
}

/// The script is named by its path in the shared directory, so that a workload can change without a new machine.
const WORKLOAD: &str = "exec python3 -B /job/guest/workload.py \"$@\"";

impl Lab {
    /// Boots the machine.
    pub(crate) fn start(
        machine: Machine,
        project: &Path,
        run: &Path,
        rpcrdma: &Path,
        wanted: Accel,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(run)?;
        let interop = project.join("interop");
        let vm = Vm::boot(&machine, &interop, run, wanted, Network::Tap)?;
        let mut lab = Self {
            machine,
            interop,
            run: run.to_owned(),
            rpcrdma: rpcrdma.to_owned(),
            project: project.to_owned(),
            vm,
            next_port: FIRST_PORT,
            folder: run.join(FOLDER),
            deadline: Instant::now() + Duration::from_secs(300),
            fabric: None,
            link: Some(Link::PLAIN),
            explained: Vec::new(),
            running: Vec::new(),
            kerberos: None,
            logs: Vec::new(),
            mounts: Vec::new(),
            mounted: 0,
            log_lines: 0,
            case_log: String::new(),
            capture: None,
            captured: None,
            pages: Vec::new(),
        };
        lab.read_kernel_log()?;
        Ok(lab)
    }

    /// Returns the kind of the guest's processor.
    pub(crate) fn accel(&self) -> Accel {
        self.vm.accel
    }

    /// Describes the guest in words.
    pub(crate) fn description(&self) -> String {
        format!("Debian {}, Linux {} ({})", self.machine.debian, self.machine.kernel, self.machine.version)
    }

    /// Returns the origin of a table that this run writes.
    pub(crate) fn origin(&self) -> Origin {
        origin(&self.project, &format!("{}, {}", self.description(), self.accel().name()))
    }

    // ---- the guest

    /// Runs a script in the guest and returns its output. Fails unless the script exits with 0 in time.
    pub(crate) fn guest(&mut self, script: &str, arguments: &[&str]) -> Result<String, Failure> {
        self.guest_within(JOB_LIMIT, script, arguments)
    }

    /// Runs a script in the guest with another limit, which is multiplied if the processor is emulated.
    pub(crate) fn guest_within(
        &mut self,
        limit: Duration,
        script: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let outcome = self.guest_outcome(limit, script, arguments)?;
        outcome.succeeded(script)
    }

    /// Runs a script in the guest and returns its outcome, with any exit status.
    pub(crate) fn guest_outcome(
        &mut self,
        limit: Duration,
        script: &str,
        arguments: &[&str],
    ) -> Result<Outcome, Failure> {
        let job = self.vm.start(script, arguments)?;
        let limit = self.bounded(limit);
        self.vm.finish(&job, limit)
    }

    /// Runs a workload of `interop/guest/workload.py` in the guest.
    pub(crate) fn workload(
        &mut self,
        limit: Duration,
        name: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let all: Vec<&str> = std::iter::once(name).chain(arguments.iter().copied()).collect();
        self.guest_within(limit, WORKLOAD, &all).context(name)
    }

    /// Starts a workload in the guest and does not wait.
    pub(crate) fn workload_start(&mut self, name: &str, arguments: &[&str]) -> Result<Job, Failure> {
        let all: Vec<&str> = std::iter::once(name).chain(arguments.iter().copied()).collect();
        self.guest_start(WORKLOAD, &all)
    }

    /// Runs a workload on the server's machine, on the directory that the server exports.
    pub(crate) fn server_workload(
        &mut self,
        server: &Server,
        name: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let what = format!("{name} on the server's directory");
        let directory = server.export.display().to_string();
        if server.address == GUEST {
            let all = [&[directory.as_str()], arguments].concat();
            return self.workload(JOB_LIMIT, name, &all).context(what);
        }
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(self.interop.join("guest/workload.py"))
            .arg(name)
            .arg(directory)
            .args(arguments);
        let finished = process::run(command, self.bounded(JOB_LIMIT))?;
        ensure!(
            finished.success(),
            "{what}: {}: {}",
            finished.ending(),
            process::last_lines(&finished.errors, 3)
        );
        Ok(finished.text())
    }

    /// Runs a script for bash on the server's machine, in the directory that the server exports. Returns its output.
    pub(crate) fn server_script(
        &mut self,
        server: &Server,
        script: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        if server.address == GUEST {
            let directory = server.export.display().to_string();
            let script = format!("cd \"$1\" && shift && {{ {script}; }}");
            return self.guest(&script, &[&[directory.as_str()], arguments].concat());
        }
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).args(arguments).current_dir(&server.export);
        let finished = process::run(command, self.bounded(JOB_LIMIT))?;
        ensure!(finished.success(), "on the server: {}: {}", finished.ending(), finished.errors.trim());
        Ok(finished.text())
    }

    /// Starts a script in the guest and does not wait.
    pub(crate) fn guest_start(&mut self, script: &str, arguments: &[&str]) -> Result<Job, Failure> {
        self.vm.start(script, arguments)
    }

    /// Waits for a job of [`Lab::guest_start`]; fails unless it exits with 0 in time.
    pub(crate) fn guest_finish(&mut self, job: &Job, limit: Duration) -> Result<String, Failure> {
        let limit = self.bounded(limit);
        let outcome = self.vm.finish(job, limit)?;
        outcome.succeeded("a job in the background")
    }

    /// Returns the output of a job so far.
    pub(crate) fn guest_output(&self, job: &Job) -> String {
        self.vm.output(job)
    }

    /// Waits for a job of [`Lab::guest_start`] and returns its exit status; `None`: it was killed at the limit.
    pub(crate) fn guest_status(&mut self, job: &Job, limit: Duration) -> Result<Option<i32>, Failure> {
        let limit = self.bounded(limit);
        Ok(self.vm.finish(job, limit)?.status)
    }

    /// Kills a job in the guest, with all its processes.
    pub(crate) fn guest_kill(&mut self, job: &Job) -> Result<(), Failure> {
        if self.fabric == Some(Fabric::Siw) {
            self.explained.extend(kernel_log::KILLED_ON_SIW);
        }
        self.vm.cancel(job)
    }

    /// Keeps a file of the case if the case is red.
    pub(crate) fn keep(&mut self, file: &Path) {
        self.logs.push(file.to_owned());
    }

    /// Returns the folder for files that the suite builds.
    pub(crate) fn target(&self) -> &Path {
        self.run.parent().unwrap_or(&self.run)
    }

    /// Returns the host's folder that the guest sees as `/job`.
    pub(crate) fn shared(&self) -> &Path {
        &self.vm.job
    }

    // ---- proxies and our client

    /// Starts a proxy in front of a server. Its first connections are cut according to `cuts`.
    pub(crate) fn proxy(&mut self, server: &Server, cuts: &[Cut]) -> Result<Proxy, Failure> {
        Proxy::start(HOST, self.port(), server.rdma, cuts)
    }

    /// Returns a port of [`HOST`] that was not used lately.
    pub(crate) fn port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    /// Runs `rpcrdma` with arguments, in the folder of the case: in the guest if the case has a fabric, otherwise on the
    /// host.
    pub(crate) fn rpcrdma(
        &mut self,
        limit: Duration,
        arguments: &[&str],
    ) -> Result<process::Finished, Failure> {
        if self.fabric.is_some() {
            return self.rpcrdma_in_guest(limit, arguments);
        }
        let mut command = Command::new(&self.rpcrdma);
        command.args(arguments).current_dir(&self.folder);
        process::run(command, self.bounded(limit))
    }

    fn rpcrdma_in_guest(
        &mut self,
        limit: Duration,
        arguments: &[&str],
    ) -> Result<process::Finished, Failure> {
        let job = self.rpcrdma_start(arguments)?;
        let limit = self.bounded(limit);
        let outcome = self.vm.finish(&job, limit)?;
        Ok(process::Finished {
            status: outcome.status.map(exit_status),
            output: fs::read(self.folder.join(OUTPUT)).unwrap_or_default(),
            errors: process::tail(&self.folder.join(ERRORS), usize::MAX) + &outcome.output,
        })
    }

    /// Starts `rpcrdma` in the guest and does not wait. Only one such command runs at a time.
    pub(crate) fn rpcrdma_start(&mut self, arguments: &[&str]) -> Result<Job, Failure> {
        let script = format!("cd {GUEST_FOLDER} && exec /job/rpcrdma \"$@\" >{OUTPUT} 2>{ERRORS}");
        let provider = self.fabric.map_or(&[][..], Fabric::options);
        self.vm.start(&script, &[arguments, provider].concat())
    }

    // ---- mounts in the guest

    /// Mounts a server of ours over RDMA by NFSv3, with more options.
    pub(crate) fn mount(&mut self, server: &Server, options: &str) -> Result<Mount, Failure> {
        self.mount_at(server.address, server.rdma, server.tcp, options)
    }

    /// Mounts a server of ours on the host through another port, for instance of a proxy.
    pub(crate) fn mount_port(&mut self, rdma: u16, mountd: u16, options: &str) -> Result<Mount, Failure> {
        self.mount_at(HOST, rdma, mountd, options)
    }

    fn mount_at(
        &mut self,
        address: Ipv4Addr,
        rdma: u16,
        mountd: u16,
        options: &str,
    ) -> Result<Mount, Failure> {
        let comma = if options.is_empty() { "" } else { "," };
        let all = format!(
            "vers=3,proto=rdma,port={rdma},mountproto=tcp,mountport={mountd},nolock,retry=0{comma}{options}"
        );
        self.mount_raw(&format!("{address}:/"), &all)
    }

    /// Runs `mount -t nfs -o OPTIONS SOURCE` on a new directory of the guest.
    pub(crate) fn mount_raw(&mut self, source: &str, options: &str) -> Result<Mount, Failure> {
        self.mounted += 1;
        let path = format!("/mnt/{}", self.mounted);
        let script = "mkdir -p \"$1\" && mount -t nfs -o \"$3\" \"$2\" \"$1\" && awk -v path=\"$1\" '$2 == path { print $4 }' /proc/mounts";
        let output = self
            .guest_within(MOUNT_LIMIT, script, &[&path, source, options])
            .context(format!("mount -o {options}"))?;
        let mount = Mount { path, options: output.trim().to_owned() };
        self.mounts.push(mount.clone());
        Ok(mount)
    }

    /// Unmounts a directory of the guest.
    pub(crate) fn umount(&mut self, mount: &Mount) -> Result<(), Failure> {
        self.mounts.retain(|other| other.path != mount.path);
        self.guest_within(MOUNT_LIMIT, "umount \"$1\" && rmdir \"$1\"", &[&mount.path])
            .map(drop)
            .context(format!("umount {}", mount.path))
    }

    /// Forgets a mount that the case has removed.
    pub(crate) fn forget(&mut self, mount: &Mount) {
        self.mounts.retain(|other| other.path != mount.path);
    }

    /// Starts the kernel's server in the guest, unless it is running.
    pub(crate) fn knfsd(&mut self) -> Result<Knfsd, Failure> {
        self.guest("exec bash /job/guest/knfsd.sh", &[]).context("starting knfsd")?;
        Ok(Knfsd { rdma: KNFSD_PORTS.0, mountd: KNFSD_PORTS.1 })
    }

    // ---- the link

    /// Returns the state of the link to the guest.
    pub(crate) fn link(&self) -> Result<Link, Failure> {
        self.link.ok_or_else(|| Failure::new("the state of the link is unknown"))
    }

    /// Changes the link to the guest, unless it is as wanted.
    fn set_link(&mut self, link: Link) -> Result<(), Failure> {
        if self.link == Some(link) {
            return Ok(());
        }
        self.link = None;
        network::set_mtu(link.mtu)?;
        let mtu = link.mtu.to_string();
        let arguments = [&[mtu.as_str()], link.disturbance].concat();
        self.guest("exec bash /job/guest/link.sh \"$@\"", &arguments).context("the guest's link")?;
        self.link = Some(link);
        Ok(())
    }

    // ---- the guest's RDMA device

    /// Makes the fabric's device the only one of the guest; from now on our programs run there. Nothing may use the
    /// device that was there before, except knfsd, whose listener moves to the new device. The end of the case brings siw0
    /// back.
    pub(crate) fn use_fabric(&mut self, fabric: Fabric) -> Result<(), Failure> {
        self.device(fabric.driver())?;
        self.fabric = Some(fabric);
        let command = self.shared().join("rpcrdma");
        if !command.exists() {
            fs::copy(&self.rpcrdma, command).context("copying rpcrdma into the guest")?;
        }
        Ok(())
    }

    /// Returns the fabric of the case.
    pub(crate) const fn fabric(&self) -> Option<Fabric> {
        self.fabric
    }

    /// Returns the fabric of a case that has one.
    pub(crate) fn current_fabric(&self) -> Result<Fabric, Failure> {
        self.fabric.ok_or_else(|| Failure::new("the case has no fabric"))
    }

    /// Makes `siw` or `rxe` the only RDMA device of the guest, or leaves it without one (`none`).
    pub(crate) fn device(&mut self, driver: &str) -> Result<(), Failure> {
        self.guest_within(DEVICE_LIMIT, "exec bash /job/guest/fabric.sh \"$1\"", &[driver])
            .map(drop)
            .context(format!("the guest's RDMA device {driver}"))
    }

    /// Ends the use of a fabric: removes the files of servers in the guest, and brings siw0 back.
    fn leave_fabric(&mut self) -> Result<(), Failure> {
        if self.fabric.is_some() {
            self.guest("rm -rf \"$1\"", &[GUEST_FILES])?;
            self.device(Fabric::Siw.driver())?;
            self.fabric = None;
        }
        Ok(())
    }

    // ---- one case

    /// Begins a case: empty folder, no expectations, a capture if wanted, the link and the RDMA device of the case.
    pub(crate) fn begin(
        &mut self,
        limit: Duration,
        capture: bool,
        fabric: Option<Fabric>,
        link: Link,
    ) -> Result<(), Failure> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).context("removing the last case's files")?;
        }
        // The guest has to see the files of its programs.
        self.folder = if fabric.is_some() { self.shared().join(FOLDER) } else { self.run.join(FOLDER) };
        fs::create_dir_all(&self.folder)?;
        self.deadline = Instant::now() + limit * self.accel().patience();
        self.logs.clear();
        self.case_log.clear();
        self.explained = fabric.map(kernel_log::explained).into_iter().collect();
        self.captured = None;
        self.set_link(link)?;
        if capture {
            self.capture = Some(Capture::start(&self.folder.join("wire.pcap"))?);
        }
        if let Some(fabric) = fabric {
            self.use_fabric(fabric)?;
        }
        Ok(())
    }

    /// Ends a case that has succeeded so far: unmounts, stops servers, checks the logs of kernel and servers.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        for mount in self.mounts.clone() {
            self.umount(&mount)?;
        }
        while let Some((server, _)) = self.running.last() {
            let server = server.clone();
            self.stop(&server)?;
        }
        for log in &self.logs {
            let text = fs::read_to_string(log).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
                return Err(Failure::new(format!("the server panicked: {line}")));
            }
        }
        self.set_link(Link::PLAIN)?;
        self.leave_fabric()?;
        self.read_kernel_log()?;
        self.judge()
    }

    /// Checks the new lines of the kernel's log in this case.
    pub(crate) fn judge(&self) -> Result<(), Failure> {
        let complaints = kernel_log::complaints(&self.case_log, &self.explained);
        ensure!(complaints.is_empty(), "the kernel complains: {}", complaints.join(" | "));
        Ok(())
    }

    /// Adds time for the analysis of a failure, if the time of the case is over.
    pub(crate) fn extend(&mut self) {
        self.deadline = Instant::now() + Duration::from_secs(60) * self.accel().patience();
    }

    /// Ends the remaining processes of a case. Returns a note if the guest had to be booted again.
    pub(crate) fn clear(&mut self) -> Result<Option<String>, Failure> {
        self.extend();
        let servers: Vec<String> = self
            .running
            .iter()
            .filter_map(|(_, running)| match running {
                Running::Guest { job, .. } => Some(job.number().to_string()),
                Running::Host(_) => None,
            })
            .collect();
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let mut cleared = self.vm.alive()
            && self
                .guest_outcome(Duration::from_secs(45), CLEAR, &servers)
                .is_ok_and(|outcome| outcome.status == Some(0));
        self.mounts.clear();
        for (_, running) in std::mem::take(&mut self.running) {
            match running {
                Running::Host(mut child) => process::kill(&mut child),
                Running::Guest { job, .. } => {
                    cleared = cleared
                        && self.vm.cancel(&job).is_ok()
                        && process::until(SERVER_LIMIT, || self.vm.status(&job))
                            .is_ok_and(|status| status.is_some());
                }
            }
        }
        cleared = cleared && self.set_link(Link::PLAIN).is_ok() && self.leave_fabric().is_ok();
        if cleared && self.read_kernel_log().is_ok() {
            return Ok(None);
        }
        let note = if self.vm.alive() { "the guest hangs" } else { "the guest died" };
        let console = process::tail(&self.vm.console, 30);
        self.reboot()?;
        Ok(Some(format!("{note}; booted again\n{console}")))
    }

    /// Returns whether the guest is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.vm.alive()
    }

    /// Boots the guest again in the middle of a case that has harmed it. Its mounts and jobs are gone.
    pub(crate) fn renew(&mut self) -> Result<(), Failure> {
        self.mounts.clear();
        self.reboot().context("booting the guest again")?;
        // The folder that the guest shares is a new one.
        fs::create_dir_all(&self.folder).context("making the folder of the case again")
    }

    /// Takes the kernel's complaints in this case, which then no longer count against it. If the guest does not answer,
    /// they come from its console.
    pub(crate) fn take_complaints(&mut self) -> Result<Vec<String>, Failure> {
        let text = match self.read_kernel_log() {
            Ok(()) => std::mem::take(&mut self.case_log),
            Err(_) => fs::read_to_string(&self.vm.console).context("reading the console")?,
        };
        Ok(kernel_log::complaints(&text, &self.explained).into_iter().map(str::to_owned).collect())
    }

    /// Sets the text that `--write-docs` writes between the markers of a page.
    pub(crate) fn page(&mut self, page: &'static str, markers: Markers, text: String) {
        self.pages.push((page, markers, text));
    }

    fn reboot(&mut self) -> Result<(), Failure> {
        let accel = self.accel();
        self.vm.power_off();
        self.fabric = None;
        self.link = None;
        network::set_mtu(Link::PLAIN.mtu)?;
        self.link = Some(Link::PLAIN);
        self.running.retain(|(_, running)| matches!(running, Running::Host(_)));
        self.vm = Vm::boot(&self.machine, &self.interop, &self.run, accel, Network::Tap)?;
        self.log_lines = 0;
        self.read_kernel_log()
    }

    /// Reads the new lines of the kernel's log.
    fn read_kernel_log(&mut self) -> Result<(), Failure> {
        let skip = (self.log_lines + 1).to_string();
        let text = self.guest("dmesg | tail -n +\"$1\"", &[&skip]).context("reading the kernel's log")?;
        self.log_lines += text.lines().count();
        self.case_log.push_str(&text);
        Ok(())
    }

    /// Ends the capture of the case and returns its file, if there was one.
    pub(crate) fn end_capture(&mut self) -> Result<Option<PathBuf>, Failure> {
        if let Some(capture) = self.capture.take() {
            self.captured = Some(capture.stop()?);
        }
        Ok(self.captured.clone())
    }

    /// Ends the capture of the case and decodes it.
    pub(crate) fn recording(&mut self) -> Result<Recording, Failure> {
        let file = self.end_capture()?.ok_or_else(|| Failure::new("nothing is captured in this case"))?;
        Recording::read(file)
    }

    /// Returns the kernel's log of this case.
    pub(crate) fn kernel_log(&mut self) -> &str {
        // A dead guest has no more messages.
        let _ = self.read_kernel_log();
        &self.case_log
    }

    /// Returns the logs of the servers of this case.
    pub(crate) fn server_logs(&self) -> &[PathBuf] {
        &self.logs
    }

    fn bounded(&self, limit: Duration) -> Duration {
        (limit * self.accel().patience()).min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// Returns the origin of a table that a run of the suite writes.
pub(super) fn origin(project: &Path, machine: &str) -> Origin {
    figures::origin(project, "cargo xtask interop --write-docs", machine)
}

/// Kills all jobs but this one and those of the arguments, then unmounts, then kills the container of `guest/service.sh`.
/// Killing comes before unmounting, and unmounting before the servers' end: a client without a server waits.
const CLEAR: &str = "for job in /job/queue/*.output; do n=${job##*/}; n=${n%.output}; \
    case \" $* \" in *\" $n \"*) continue ;; esac; \
    [ -e \"/job/queue/$n.status\" ] || [ \"/job/queue/$n.script\" = \"$0\" ] || : >\"/job/queue/$n.cancel\"; done\n\
    for n in 1 2 3; do awk '$3 ~ /^nfs4?$/ { print $2 }' /proc/mounts | sort -r | while read -r path; do \
    timeout 10 umount -f \"$path\" 2>/dev/null || umount -f -l \"$path\"; done; done\n\
    kill=/sys/fs/cgroup/service/cgroup.kill; [ ! -e \"$kill\" ] || echo 1 >\"$kill\"\n\
    ! grep -Eq '^[^ ]+ [^ ]+ nfs4? ' /proc/mounts";
