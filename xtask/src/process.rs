//! Processes on the host. Every wait has a limit, and no child outlives its task.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Context, Failure, ensure};

/// Interval between two checks of a condition.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Returns a command that the kernel kills when the task ends, however it ends. The command handles signals that the
/// task was started to ignore, as in the background of a shell.
pub(crate) fn bound(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "env", "--default-signal=INT,TERM,HUP"]);
    command.arg(program).stdin(Stdio::null());
    command
}

/// Checks a condition until it returns a value, or the time is over.
pub(crate) fn until<T>(
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(Some(value));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(TICK);
    }
}

/// Waits for the end of a child; `None` after the limit.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
    until(limit, || child.try_wait().context("waiting for a process"))
}

/// Asks a child to end, and kills it if it does not. Returns its status if it ended by itself.
pub(crate) fn terminate(
    child: &mut Child,
    signal: Signal,
    grace: Duration,
) -> Result<Option<ExitStatus>, Failure> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        kill_process(pid, signal).context("sending a signal")?;
    }
    let status = wait(child, grace)?;
    if status.is_none() {
        kill(child);
    }
    Ok(status)
}

/// Kills a child and takes its status.
pub(crate) fn kill(child: &mut Child) {
    // Either fails only if the child has already ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// A process that serves until this value ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command whose output does not matter.
    pub(crate) fn start(mut command: Command) -> Result<Self, Failure> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(command)
    }

    /// Starts a command whose output goes where the command says.
    pub(crate) fn spawn(mut command: Command) -> Result<Self, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null());
        Ok(Self { child: command.spawn().context(format!("starting {name}"))? })
    }

    /// Returns the number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the child, for its pipes and its end.
    pub(crate) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Fails if the process has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        let status = self.child.try_wait()?;
        ensure!(
            status.is_none(),
            "the server has ended: {}",
            status.map_or_else(String::new, |s| s.to_string())
        );
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Exit status; `None`: the command was killed at its time limit.
    pub(crate) status: Option<ExitStatus>,
    /// Standard output.
    pub(crate) output: Vec<u8>,
    /// Standard error.
    pub(crate) errors: String,
}

impl Finished {
    /// Returns whether the command ended by itself with success.
    pub(crate) fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Describes the end of the command in words.
    pub(crate) fn ending(&self) -> String {
        match self.status {
            None => "was killed: its time was up".to_owned(),
            Some(status) => status.to_string(),
        }
    }
}

/// Runs a command to its end, or to the time limit.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<Finished, Failure> {
    let name = format!("{:?}", command.get_args().next().unwrap_or_else(|| command.get_program()));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(format!("starting {name}"))?;
    let output = drain(child.stdout.take());
    let errors = drain(child.stderr.take());
    let status = wait(&mut child, limit)?;
    if status.is_none() {
        kill(&mut child);
    }
    let collect = |reader: thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Finished {
        status,
        output: collect(output),
        errors: String::from_utf8_lossy(&collect(errors)).into_owned(),
    })
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut data = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes before an error are kept.
            let _ = pipe.read_to_end(&mut data);
        }
        data
    })
}

/// Returns the last lines of a file; none if there is no file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let mut data = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file.read_to_end(&mut data);
    }
    last_lines(&String::from_utf8_lossy(&data), lines)
}

/// Returns the last lines of a text.
pub(crate) fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let started = Instant::now();
        let finished = run(command, Duration::from_millis(50)).unwrap();
        assert!(finished.status.is_none() && !finished.success());
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn output_and_status_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let finished = run(command, Duration::from_secs(30)).unwrap();
        assert_eq!((finished.text().as_str(), finished.errors.as_str()), ("out\n", "err\n"));
        assert_eq!(finished.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn the_tail_is_whole_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
