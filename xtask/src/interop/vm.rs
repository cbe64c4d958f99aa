//! A virtual machine: QEMU on a network, and jobs that run in its guest.
//!
//! Host and guest share a directory by 9p; `interop/guest/agent.py` describes the handover of a job.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::network::TAP;
use crate::failure::{Context, Failure, ensure};
use crate::process::{self, TICK};

/// Kind of the guest's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accel {
    /// KVM if it works, otherwise TCG.
    Auto,
    /// The host's processor; needs /dev/kvm.
    Kvm,
    /// Emulation in software, on any host.
    Tcg,
}

impl Accel {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Returns the factor by which time limits exceed those with KVM.
    pub(crate) const fn patience(self) -> u32 {
        match self {
            Self::Auto | Self::Kvm => 1,
            Self::Tcg => 4,
        }
    }

    /// Returns the options for QEMU.
    const fn flags(self) -> [&'static str; 4] {
        match self {
            Self::Auto | Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five-level page tables only make emulation slower.
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"],
        }
    }
}

/// The network of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// That of the suite.
    Tap,
    /// A cable to another guest, whose folder is beside that of this guest. The end that listens boots first.
    Cable {
        /// This end makes the socket that the cable consists of.
        listens: bool,
    },
}

impl Network {
    /// Returns the back end and the device, for QEMU.
    fn options(self) -> [String; 2] {
        match self {
            Self::Tap => {
                let back = format!("tap,id=net,ifname={TAP},script=no,downscript=no");
                [back, NETWORK_DEVICE.to_owned()]
            }
            Self::Cable { listens } => {
                let (server, last) = if listens { ("on", 1) } else { ("off", 2) };
                // Relative to the folder of the run: the path of a socket must be short.
                let back = format!("stream,id=net,server={server},addr.type=unix,addr.path=../cable");
                [back, format!("{NETWORK_DEVICE},mac=52:54:00:00:00:0{last}")]
            }
        }
    }

    /// Returns the memory of the guest, in MiB. Two guests on a cable run at a time.
    const fn memory(self) -> &'static str {
        match self {
            Self::Tap => "2048",
            Self::Cable { .. } => "1280",
        }
    }
}

/// A running guest.
#[derive(Debug)]
pub(crate) struct Vm {
    qemu: Child,
    /// Kind of its processor: never `Auto`.
    pub(crate) accel: Accel,
    /// The shared directory: `/job` in the guest.
    pub(crate) job: PathBuf,
    /// Console output of the guest's kernel.
    pub(crate) console: PathBuf,
    next: u32,
}

/// A job in the guest.
#[derive(Debug)]
pub(crate) struct Job {
    number: u32,
}

impl Job {
    /// Returns the number of the job: part of the names of its files.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }
}

/// Result of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit status as in shells; `None`: the job was killed at its time limit.
    pub(crate) status: Option<i32>,
    /// Standard output and error, interleaved.
    pub(crate) output: String,
}

impl Outcome {
    /// Returns the output of this script, if the script succeeded.
    pub(crate) fn succeeded(self, script: &str) -> Result<String, Failure> {
        let end = process::last_lines(&self.output, 12);
        match self.status {
            Some(0) => Ok(self.output),
            Some(status) => Err(Failure::new(format!("in the guest: exit status {status}: {end}"))),
            None => {
                let script = script.lines().next().unwrap_or_default();
                Err(Failure::new(format!("in the guest: no end in time: {script}: {end}")))
            }
        }
    }
}

/// Maximum boot time: a guest is up in 5 s with KVM, and in 6 to 30 s without.
const BOOT_LIMIT: Duration = Duration::from_secs(45);

/// Returns whether the processor has virtualization extensions.
fn has_virtualization() -> bool {
    fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|text| text.split_whitespace().any(|flag| flag == "vmx" || flag == "svm"))
}

impl Vm {
    /// Boots the machine and waits for the guest's agent.
    pub(crate) fn boot(
        machine: &Machine,
        interop: &Path,
        run: &Path,
        accel: Accel,
        network: Network,
    ) -> Result<Self, Failure> {
        if accel == Accel::Auto {
            let usable = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
            let reason = match usable {
                Err(error) => format!("/dev/kvm: {error}"),
                // Some KVMs lack these (PVM): a stock kernel does not boot on them.
                Ok(_) if !has_virtualization() => "the processor has neither VMX nor SVM".to_owned(),
                Ok(_) => match Self::boot(machine, interop, run, Accel::Kvm, network) {
                    Ok(vm) => return Ok(vm),
                    Err(failure) => failure.to_string(),
                },
            };
            println!("no KVM here ({reason}); emulating the processor with TCG");
            return Self::boot(machine, interop, run, Accel::Tcg, network);
        }
        Self::boot_with(machine, interop, run, accel, network).or_else(|failure| {
            // An emulated processor whose clocks could not be calibrated, on a busy host, does not boot: seen about
            // once in a hundred boots.
            println!("{failure}; once more");
            Self::boot_with(machine, interop, run, accel, network)
        })
    }

    fn boot_with(
        machine: &Machine,
        interop: &Path,
        run: &Path,
        accel: Accel,
        network: Network,
    ) -> Result<Self, Failure> {
        let job = run.join("job");
        if job.exists() {
            fs::remove_dir_all(&job).context("removing the old job directory")?;
        }
        fs::create_dir_all(job.join("queue"))?;
        copy_files(&interop.join("guest"), &job.join("guest"))?;
        let console = run.join("console.log");
        let errors = run.join("qemu.log");
        let [back_end, device] = network.options();
        let file = |name: &str| machine.directory.join(name).display().to_string();
        let mut command = process::bound("qemu-system-x86_64");
        command
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-machine", "q35,usb=off,smbus=off", "-smp", "2", "-m", network.memory()])
            .args(accel.flags())
            .args(["-kernel", &file("vmlinuz"), "-initrd", &file("initrd.img")])
            .args(["-append", KERNEL_ARGUMENTS])
            .args([
                "-drive",
                &format!("file={},if=virtio,format=raw,snapshot=on,cache=unsafe", file("disk.img")),
            ])
            .args(["-netdev", &back_end, "-device", &device])
            .args(["-virtfs"])
            .arg(format!("local,path={},mount_tag=job,security_model=none,multidevs=remap", job.display()))
            .args(["-device", "virtio-rng-pci", "-serial"])
            .arg(format!("file:{}", console.display()))
            .current_dir(run)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors)?);
        let qemu = command.spawn().context("starting qemu-system-x86_64")?;
        let mut vm = Self { qemu, accel, job, console, next: 0 };
        let limit = BOOT_LIMIT * accel.patience();
        let started = Instant::now();
        while !vm.job.join("queue/up").exists() {
            if !vm.alive() {
                return Err(Failure::new(format!(
                    "QEMU ended while the guest booted: {} {}",
                    process::tail(&errors, 3),
                    process::tail(&vm.console, 3)
                )));
            }
            if started.elapsed() > limit {
                return Err(Failure::new(format!(
                    "the guest did not boot in {limit:?}; console: {}",
                    process::tail(&vm.console, 10)
                )));
            }
            std::thread::sleep(TICK);
        }
        println!("guest up in {:.1} s ({})", started.elapsed().as_secs_f64(), accel.name());
        Ok(vm)
    }

    /// Returns whether QEMU is running.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.qemu.try_wait(), Ok(None))
    }

    /// Starts a job: a script for bash, with arguments. Its folder is the shared directory.
    pub(crate) fn start(&mut self, script: &str, arguments: &[&str]) -> Result<Job, Failure> {
        self.next += 1;
        let number = self.next;
        let file = |kind: &str| self.job.join(format!("queue/{number}.{kind}"));
        fs::write(file("script"), script)?;
        let request: String = arguments.iter().flat_map(|argument| [argument, "\0"]).collect();
        fs::write(file("new"), request)?;
        fs::rename(file("new"), file("request"))?;
        Ok(Job { number })
    }

    /// Returns the exit status of a job that has ended.
    pub(crate) fn status(&self, job: &Job) -> Result<Option<i32>, Failure> {
        match fs::read_to_string(self.file(job, "status")) {
            Ok(text) => text.trim().parse().map(Some).context(format!("status {text:?} of a job")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the output of a job so far.
    pub(crate) fn output(&self, job: &Job) -> String {
        String::from_utf8_lossy(&fs::read(self.file(job, "output")).unwrap_or_default()).into_owned()
    }

    /// Kills a job, with all its processes.
    pub(crate) fn cancel(&self, job: &Job) -> Result<(), Failure> {
        fs::write(self.file(job, "cancel"), "").context("cancelling a job")
    }

    /// Waits for the end of a job; kills it at the time limit.
    pub(crate) fn finish(&mut self, job: &Job, limit: Duration) -> Result<Outcome, Failure> {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.status(job)? {
                break Some(status);
            }
            ensure!(self.alive(), "the guest died; console: {}", process::tail(&self.console, 25));
            if Instant::now() >= end {
                self.cancel(job)?;
                // The output is then complete, if the job can be killed at all.
                process::until(Duration::from_secs(2), || self.status(job))?;
                break None;
            }
            std::thread::sleep(TICK);
        };
        Ok(Outcome { status, output: self.output(job) })
    }

    fn file(&self, job: &Job, kind: &str) -> PathBuf {
        self.job.join(format!("queue/{}.{kind}", job.number))
    }
}

impl Vm {
    /// Ends the guest, gracefully if it still can.
    pub(crate) fn power_off(&mut self) {
        // A guest that cannot stop gracefully needs no wait: its disk is discarded in any case.
        if self.alive() && fs::write(self.job.join("queue/stop"), "").is_ok() {
            let _ = process::wait(&mut self.qemu, Duration::from_secs(5));
        }
        process::kill(&mut self.qemu);
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.power_off();
    }
}

/// The guest gets segments as on the wire. By default virtual machines merge several of them.
const NETWORK_DEVICE: &str = "virtio-net-pci,netdev=net,romfile=,guest_tso4=off,guest_tso6=off,guest_ufo=off";

/// Little output and a fast boot; a panic ends QEMU (`-no-reboot`), and the log is large enough for a case that fills
/// it.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=5 panic=-1 log_buf_len=4M mitigations=off nokaslr \
    no_timer_check tsc=reliable random.trust_cpu=on audit=0 apparmor=0 selinux=0";

fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).context(format!("reading {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
