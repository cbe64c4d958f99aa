//! Servers under measurement: our own, and what the kernel tells about any.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::lab;
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Maximum time until a server is ready.
const START: Duration = Duration::from_secs(30);
/// A server has done its work if it takes less processor time than [`IDLE`] in this time.
const QUIET: Duration = Duration::from_millis(200);
/// Maximum processor time of a server without work.
const IDLE: Duration = Duration::from_millis(1);
/// Maximum wait for that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time of one `load reads`.
const LOAD: Duration = Duration::from_secs(120);

impl Process {
    /// Starts a command that prints a JSON document in one line when it is ready.
    pub(crate) fn announced<T: DeserializeOwned>(mut command: Command) -> Result<(Self, T), Failure> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = Self::spawn(command)?;
        let stdout = server.child().stdout.take();
        let stdout = stdout.ok_or_else(|| Failure::new("the server has no output"))?;
        let errors = server.child().stderr.take();
        let line = first_line(stdout)?;
        if line.is_empty() {
            let mut said = String::new();
            if let Some(mut errors) = errors {
                // The text before an error of the pipe is kept.
                let _ = errors.read_to_string(&mut said);
            }
            return Err(Failure::new(format!("the server ended at once: {}", said.trim())));
        }
        // The rest of what it complains about is not shown.
        thread::spawn(move || errors.map(|mut errors| std::io::copy(&mut errors, &mut std::io::sink())));
        let ready = serde_json::from_str(&line).context("the first line of the server")?;
        Ok((server, ready))
    }

    /// Runs `load reads` on this server.
    pub(crate) fn reads(&self, load: Command) -> Result<Reached, Failure> {
        let before = settled_cpu(self.id())?;
        let Reads { calls_per_second, all_calls } = lab::document(load, LOAD)?;
        let cpu = settled_cpu(self.id())? - before;
        Ok(Reached { rate: calls_per_second, cpu: cpu / all_calls })
    }
}

/// Returns the first line of a pipe; an empty one if it ends without. A thread reads the rest.
fn first_line(pipe: impl Read + Send + 'static) -> Result<String, Failure> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        let read = pipe.read_line(&mut line).map(|_| line);
        // Nobody listens any more if it came too late.
        let _ = tell.send(read);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    });
    told.recv_timeout(START).context("waiting for a server")?.context("reading from a server")
}

/// The document of `load reads`, as far as it matters.
#[derive(Debug, serde::Deserialize)]
struct Reads {
    calls_per_second: f64,
    /// Calls with those of the beginning, which do not count for the rate.
    all_calls: f64,
}

/// What READs reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// READs a second.
    pub(crate) rate: f64,
    /// Processor seconds of the server for one.
    pub(crate) cpu: f64,
}

/// The line of `rpcrdma serve --json` when it is ready.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Ready {
    pub(crate) rdma: Option<SocketAddr>,
    pub(crate) tcp: Option<SocketAddr>,
}

/// Returns the processor time of a process: user and system, of all its threads, of those too that have ended. It is what
/// `utime` and `stime` of `/proc/PID/stat` count (proc(5)), without their rounding to hundredths of a second.
fn cpu(process: u32) -> Result<Duration, Failure> {
    let process = Pid::from_raw(i32::try_from(process).context("the number of a process")?);
    let clock = clock_getcpuclockid(process).context("the clock of a process")?;
    Ok(clock.now().context("the processor time of a process")?.into())
}

/// Returns the processor time of a server in seconds when it has done its work: it does some after the answer, too.
pub(crate) fn settled_cpu(process: u32) -> Result<f64, Failure> {
    let end = Instant::now() + PATIENCE;
    let mut last = cpu(process)?;
    loop {
        thread::sleep(QUIET);
        let now = cpu(process)?;
        if now.saturating_sub(last) < IDLE || Instant::now() >= end {
            return Ok(now.as_secs_f64());
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_that_of_the_process() {
        let own = || cpu(std::process::id()).unwrap();
        let before = own();
        // Work until the clock says so, however slow the machine is.
        while own() < before + Duration::from_millis(20) {}
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let idle = Process::start(sleep).unwrap();
        let seconds = settled_cpu(idle.id()).unwrap();
        assert!(seconds > 0.0 && seconds < 5.0, "{seconds}");
        assert!(cpu(u32::MAX).is_err());
    }

    #[test]
    fn the_first_line_of_a_server_counts() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        let line = r#"echo '{"rdma": "127.0.0.1:7", "tcp": null}'; exec sleep 60"#;
        let (mut server, ready) = Process::announced::<Ready>(shell(line)).unwrap();
        assert_eq!((ready.rdma, ready.tcp), (Some("127.0.0.1:7".parse().unwrap()), None));
        server.check().unwrap();
        let failure = Process::announced::<Ready>(shell("echo why >&2")).unwrap_err().to_string();
        assert!(failure.contains("ended at once: why"), "{failure}");
        assert!(Process::announced::<Ready>(shell("echo nonsense; exec sleep 60")).is_err());
    }
}
