//! Server under attack: a child process, its addresses and its memory.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::fixture::Fixture;
use crate::network::SERVER;
use crate::{Failure, Options};

/// Raises the soft limit of descriptors to the hard limit, for the server too.
pub(crate) fn raise_descriptors() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

/// Running `rpcrdma serve`, which ends with this value.
pub(crate) struct Process {
    child: Child,
    pub(crate) tcp: SocketAddr,
    pub(crate) rdma: SocketAddr,
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) now: u64,
    pub(crate) highest: u64,
}

impl Process {
    pub(crate) fn start(program: &Path, fixture: &Fixture, options: &Options) -> Result<Self, Failure> {
        let listen = format!("{SERVER}:0");
        let mut command = Command::new(program);
        command
            .args(["serve", "--json", "--listen", &listen, "--tcp", &listen])
            .arg("--state")
            .arg(fixture.state())
            .args(["--memory", &format!("{}M", options.memory)])
            .args(["--memory-per-peer", &format!("{}M", options.memory_per_peer)])
            .env("RPCRDMA_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for (name, directory) in fixture.exports() {
            command.arg("--export").arg(format!("{name}={}", directory.display()));
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let parsed = serde_json::from_str::<serde_json::Value>(&line);
        let address =
            |field: &str| -> Option<SocketAddr> { parsed.as_ref().ok()?.get(field)?.as_str()?.parse().ok() };
        match (address("tcp"), address("rdma")) {
            (Some(tcp), Some(rdma)) => Ok(Self { child, tcp, rdma }),
            _ => {
                // The process has ended already, or is of no use.
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the server did not start; its output was {line:?}").into())
            }
        }
    }

    pub(crate) fn resident(&self) -> Result<Resident, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| -> Result<u64, Failure> {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            let kib: u64 =
                value.ok_or("no resident memory in /proc: the server has ended")?.trim().parse()?;
            Ok(kib << 10)
        };
        Ok(Resident { now: field("VmRSS:")?, highest: field("VmHWM:")? })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        // The server waits for calls in progress; those of an attack deserve no wait.
        for _ in 0..20 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
