//! Where a group measures: its folders, its programs, and namespaces that no other process has.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde::de::DeserializeOwned;

use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum time of a command that sets something up.
const SET_UP: Duration = Duration::from_secs(60);
/// Begin of the last word of [`process::bound`] before the program.
const BOUND: &str = "--default-signal=";
/// Folder in memory. In the namespaces of a group it is a file system of its own, which ends with them.
const MEMORY: &str = "/dev/shm";
/// Amount of work of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effort {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Bytes of the file that is read or written.
    pub(crate) bytes: u64,
    /// Small files of a tree.
    pub(crate) files: usize,
    /// Small files of a tree that is copied as a whole, and of one that is removed.
    pub(crate) copied: usize,
    pub(crate) removed: usize,
    /// Seconds of a measure that lasts as long as it is told.
    pub(crate) seconds: u32,
    /// Connections at once.
    pub(crate) connections: usize,
    /// Operations of 1 MiB in a round of `rpcrdma bench`.
    pub(crate) operations: u32,
}

impl Effort {
    const FULL: Self = Self {
        rounds: 5,
        bytes: 1 << 30,
        files: 3000,
        copied: 20_000,
        removed: 100_000,
        seconds: 2,
        connections: 5000,
        operations: 1024,
    };
    /// Shows that everything works. The figures mean nothing.
    const QUICK: Self = Self {
        rounds: 1,
        bytes: 256 << 20,
        files: 1000,
        copied: 1000,
        removed: 2000,
        seconds: 1,
        connections: 200,
        operations: 32,
    };

    pub(crate) const fn new(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }

    /// Returns the numbers of the rounds. Round 0 warms up, and does not count.
    pub(crate) fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.rounds
    }
}

/// Tools and places of a group.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) effort: Effort,
    /// The command.
    pub(crate) rpcrdma: PathBuf,
    /// The load program, an example of the command's package.
    pub(crate) load: PathBuf,
    /// Empty folder on a disk.
    pub(crate) disk: PathBuf,
    /// Empty folder in memory, if the group has namespaces.
    pub(crate) memory: PathBuf,
}

impl Lab {
    /// Enters the namespaces that this process was started in.
    pub(crate) fn enter(
        effort: Effort,
        rpcrdma: PathBuf,
        load: PathBuf,
        disk: PathBuf,
    ) -> Result<Self, Failure> {
        let mut memory = disk.join("memory");
        if geteuid().is_root() {
            run("ip", ["link", "set", "lo", "up"])?;
            // The group must not meet the socket of another rpcbind, and leaves no file for others.
            for folder in ["/run", MEMORY] {
                run("mount", ["-t", "tmpfs", "tmpfs", folder])?;
            }
            memory = Path::new(MEMORY).join("performance");
        }
        fs::create_dir_all(&memory).context(memory.display())?;
        Ok(Self { effort, rpcrdma, load, disk, memory })
    }

    /// Returns a command that runs `rpcrdma`.
    pub(crate) fn rpcrdma<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        command(&self.rpcrdma, arguments)
    }

    /// Runs `rpcrdma` to its end, and returns its JSON document.
    pub(crate) fn document<T: DeserializeOwned, S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        limit: Duration,
    ) -> Result<T, Failure> {
        document(self.rpcrdma(arguments), limit)
    }

    /// Makes a file of data without a pattern, by long writes: a file system may cache the data in pieces of that length, as
    /// it does when it reads a file ahead.
    pub(crate) fn random_file(path: &Path, bytes: u64) -> Result<(), Failure> {
        let what = path.display();
        let mut random = File::open("/dev/urandom").context("/dev/urandom")?.take(bytes);
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path).context(&what)?);
        io::copy(&mut random, &mut file).context(&what)?;
        file.flush().context(&what)
    }

    /// Makes a tree of small files of 4 KiB, a hundred in a directory.
    pub(crate) fn small_files(&self, root: &Path) -> Result<(), Failure> {
        Self::tree(root, self.effort.files, |_| 4096)
    }

    /// Makes a tree of files of these lengths, a hundred in a directory.
    pub(crate) fn tree(root: &Path, files: usize, length: fn(usize) -> u64) -> Result<(), Failure> {
        for number in 0..files {
            let directory = root.join(format!("{:04}", number / 100));
            fs::create_dir_all(&directory).context(directory.display())?;
            Self::random_file(&directory.join(format!("{number:06}")), length(number))?;
        }
        Ok(())
    }

    /// Shows on standard error how far the group is.
    pub(crate) fn progress(&self, round: usize) {
        if round == 0 {
            eprintln!("  warming up");
        } else {
            eprintln!("  round {round} of {}", self.effort.rounds);
        }
    }
}

/// Returns a command without input.
pub(crate) fn command<S: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    // With namespaces, the kernel ends all that is in them. Without, it ends what is bound.
    let mut command = if geteuid().is_root() { Command::new(program) } else { process::bound(program) };
    command.args(arguments).stdin(Stdio::null()).env("RPCRDMA_LOG", "error");
    command
}

/// Runs a command to its end, and returns its JSON document.
pub(crate) fn document<T: DeserializeOwned>(command: Command, limit: Duration) -> Result<T, Failure> {
    let shown = shown(&command);
    let finished = process::run(command, limit)?;
    ensure!(finished.success(), "{} ({shown})", complaint(&finished.errors, &finished.ending()));
    serde_json::from_slice(&finished.output).context(format!("the document of {shown}"))
}

/// Runs a program of the system, and returns its output.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(arguments);
    let shown = shown(&command);
    let finished = process::run(command, SET_UP)?;
    ensure!(finished.success(), "{} ({shown})", complaint(&finished.errors, &finished.ending()));
    Ok(finished.text())
}

/// Runs a command without output to its end, and returns the time that it took. Its end is not looked for, but told by the
/// kernel, so that the time is exact.
pub(crate) fn timed(mut command: Command, limit: Duration) -> Result<Duration, Failure> {
    let shown = shown(&command);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().context(format!("starting {shown}"))?;
    let ended = ended(&child, limit).context(&shown);
    let elapsed = started.elapsed();
    if !matches!(ended, Ok(true)) {
        process::kill(&mut child);
    }
    let mut errors = String::new();
    if let Some(stderr) = &mut child.stderr {
        // The text before an error of the pipe is kept.
        let _ = stderr.read_to_string(&mut errors);
    }
    let status = child.wait().context(&shown)?;
    ensure!(ended?, "no end within {} s ({shown})", limit.as_secs());
    ensure!(status.success(), "{} ({shown})", complaint(&errors, &status.to_string()));
    Ok(elapsed)
}

/// Waits for the end of a child; returns whether it came within the limit.
fn ended(child: &Child, limit: Duration) -> Result<bool, Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::new("a process has no number"))?;
    let end = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    let limit = Timespec::try_from(limit).context("the limit")?;
    let ready = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit)).context("poll")?;
    Ok(ready > 0)
}

/// Returns program and arguments for messages, without the program that binds.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let start = words.iter().position(|word| word.starts_with(BOUND)).map_or(0, |at| at + 1);
    let Some((program, arguments)) = words.get(start..).and_then(<[String]>::split_first) else {
        return String::new();
    };
    let name =
        Path::new(program).file_name().map_or_else(|| program.clone(), |name| name.to_string_lossy().into());
    [&[name], arguments].concat().join(" ")
}

/// Returns the last line that a program complained with, or how it ended.
fn complaint(errors: &str, ending: &str) -> String {
    errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(ending).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_command_is_taken_to_its_end() {
        let sleep = |time: &str| command(Path::new("sleep"), [time]);
        assert!(timed(sleep("0.05"), Duration::from_secs(60)).unwrap() >= Duration::from_millis(50));
        let late = timed(sleep("60"), Duration::from_millis(20)).unwrap_err();
        assert!(late.to_string().contains("no end within"), "{late}");
    }

    #[test]
    fn a_failure_has_the_command_and_its_last_words() {
        let shell = |script: &str| command(Path::new("/bin/sh"), ["-c", script]);
        let failure =
            timed(shell("echo first >&2; echo last >&2; exit 3"), Duration::from_secs(60)).unwrap_err();
        assert!(failure.to_string().starts_with("last (sh -c "), "{failure}");
        let silent = document::<u32>(shell("exit 3"), Duration::from_secs(60)).unwrap_err();
        assert!(silent.to_string().contains("exit status: 3"), "{silent}");
        assert_eq!(document::<u32>(shell("echo 7"), Duration::from_secs(60)).unwrap(), 7);
    }

    #[test]
    fn commands_are_shown_without_what_binds_them() {
        let mut bound = process::bound("/usr/bin/rpcrdma");
        bound.args(["cat", "nfs://h/a"]);
        assert_eq!(shown(&bound), "rpcrdma cat nfs://h/a");
        let mut plain = Command::new("/usr/bin/rpcrdma");
        plain.arg("cat");
        assert_eq!(shown(&plain), "rpcrdma cat");
    }

    #[test]
    fn complaints() {
        assert_eq!(complaint("a\nb \n\n", "status"), "b");
        assert_eq!(complaint("\n", "status"), "status");
    }

    #[test]
    fn a_quick_run_warms_up_too() {
        assert_eq!(Effort::new(true).rounds().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(Effort::new(false).rounds().count(), 6);
    }
}
