//! Servers of ours in the environment of a case: on the host, or in the guest if the case has a fabric.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use super::{GUEST_FILES, GUEST_FOLDER, Lab};
use crate::failure::{Context, Failure, ensure};
use crate::interop::fabric::Fabric;
use crate::interop::network::{GUEST, HOST};
use crate::interop::vm::Job;
use crate::process;

/// Maximum time for the start of a server, and for its graceful end.
pub(super) const SERVER_LIMIT: Duration = Duration::from_secs(20);

/// A server of ours: on the host, or in the guest if the case has a fabric.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// The address of the server: [`HOST`] or [`GUEST`].
    pub(crate) address: Ipv4Addr,
    /// The port of NFS over RDMA.
    pub(crate) rdma: u16,
    /// The port of NFS and MOUNT over TCP.
    pub(crate) tcp: u16,
    /// The directory that the server exports as `/`; its path on the server's machine.
    pub(crate) export: PathBuf,
    /// Options of this export.
    pub(crate) policy: String,
    /// Log of the server, readable on the host: its standard error, one line for each call.
    pub(crate) log: PathBuf,
}

/// The process of a server.
#[derive(Debug)]
pub(super) enum Running {
    Host(Child),
    Guest {
        job: Job,
        /// Process id in the guest.
        pid: u32,
    },
}

/// The document that `rpcrdma serve --json` prints when it is ready.
#[derive(Debug, Deserialize)]
struct Ready {
    pid: u32,
}

impl Lab {
    /// Starts a server of ours with an empty directory, exported for root without squashing, and with more options for
    /// `rpcrdma serve`. It runs in the guest if the case has a fabric, and on the host otherwise.
    pub(crate) fn serve(&mut self, options: &[&str]) -> Result<Server, Failure> {
        self.serve_by("squash=none", None, options)
    }

    /// Starts a server as [`Lab::serve`] does, with these options of the export, and perhaps with a TCP port of its own.
    pub(super) fn serve_by(
        &mut self,
        policy: &str,
        tcp: Option<u16>,
        options: &[&str],
    ) -> Result<Server, Failure> {
        let (rdma, tcp) = (self.port(), tcp.unwrap_or_else(|| self.port()));
        let (address, export) = if self.fabric.is_some() {
            (GUEST, PathBuf::from(format!("{GUEST_FILES}/export-{rdma}")))
        } else {
            (HOST, self.folder.join(format!("export-{rdma}")))
        };
        let log = self.folder.join(format!("serve-{rdma}.log"));
        let server = Server { address, rdma, tcp, export, policy: policy.to_owned(), log };
        self.logs.push(server.log.clone());
        self.launch(&server, options)?;
        Ok(server)
    }

    /// Starts a stopped server again: with unchanged ports, directory and state.
    pub(crate) fn launch(&mut self, server: &Server, options: &[&str]) -> Result<(), Failure> {
        let running = if server.address == GUEST {
            self.launch_in_guest(server, options)?
        } else {
            self.launch_on_host(server, options)?
        };
        self.running.push((server.clone(), running));
        Ok(())
    }

    fn launch_on_host(&mut self, server: &Server, options: &[&str]) -> Result<Running, Failure> {
        fs::create_dir_all(&server.export)?;
        let ready = self.folder.join(format!("ready-{}.json", server.rdma));
        let log = fs::OpenOptions::new().create(true).append(true).open(&server.log)?;
        let mut command = process::bound(&self.rpcrdma);
        command
            .args(serve_arguments(server, &self.folder, options))
            .stdout(fs::File::create(&ready)?)
            .stderr(log);
        if let Some(kerberos) = &self.kerberos {
            kerberos.surround(&mut command);
        }
        let mut child = command.spawn().context("starting rpcrdma serve")?;
        let started = process::until(SERVER_LIMIT, || {
            ensure!(
                matches!(child.try_wait(), Ok(None)),
                "rpcrdma serve ended at once: {}",
                process::tail(&server.log, 5)
            );
            Ok(is_ready(&ready))
        })?;
        if started.is_none() {
            process::kill(&mut child);
            return Err(Failure::new("rpcrdma serve was not ready in time"));
        }
        Ok(Running::Host(child))
    }

    fn launch_in_guest(&mut self, server: &Server, options: &[&str]) -> Result<Running, Failure> {
        let name = format!("ready-{}.json", server.rdma);
        let ready = self.folder.join(&name);
        // The document of an earlier start would say that this one is ready.
        let _ = fs::remove_file(&ready);
        let script = "mkdir -p \"$1\" && export=$1 ready=$2 log=$3 && shift 3 && \
                      exec /job/rpcrdma \"$@\" >\"$ready\" 2>>\"$log\"";
        let log = server.log.file_name().unwrap_or_default().to_string_lossy();
        let mut arguments = vec![
            server.export.display().to_string(),
            format!("{GUEST_FOLDER}/{name}"),
            format!("{GUEST_FOLDER}/{log}"),
        ];
        let provider = self.fabric.map_or(&[][..], Fabric::options);
        arguments.extend(serve_arguments(server, Path::new(GUEST_FILES), &[options, provider].concat()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let job = self.vm.start(script, &arguments)?;
        let limit = SERVER_LIMIT * self.accel().patience();
        let started = process::until(limit, || {
            ensure!(
                self.vm.status(&job)?.is_none(),
                "rpcrdma serve ended at once: {}{}",
                process::tail(&server.log, 5),
                self.vm.output(&job)
            );
            Ok(is_ready(&ready))
        })?;
        let Some(Ready { pid }) = started else {
            self.vm.cancel(&job)?;
            return Err(Failure::new("rpcrdma serve was not ready in time"));
        };
        Ok(Running::Guest { job, pid })
    }

    /// Starts another process of a server on the host, which takes the sockets of the one that runs. That one has to end in
    /// order.
    pub(crate) fn hand_over(&mut self, server: &Server) -> Result<(), Failure> {
        let Running::Host(mut old) = self.take(server)? else {
            return Err(Failure::new("only a server on the host is handed over"));
        };
        // The old process keeps the file of its document.
        let _ = fs::remove_file(self.folder.join(format!("ready-{}.json", server.rdma)));
        let launched = self.launch(server, &["--handover"]);
        let ended = process::until(SERVER_LIMIT, || Ok(old.try_wait()?)).ok().flatten();
        if ended.is_none() {
            process::kill(&mut old);
        }
        launched.context("taking the sockets over")?;
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("the server before ended with {status}"))),
            None => Err(Failure::new(format!("the server before did not end within {SERVER_LIMIT:?}"))),
        }
    }

    /// Stops a server by SIGTERM; it must end gracefully.
    pub(crate) fn stop(&mut self, server: &Server) -> Result<(), Failure> {
        let status = match self.take(server)? {
            Running::Host(mut child) => process::terminate(&mut child, Signal::TERM, SERVER_LIMIT)?,
            Running::Guest { job, pid } => {
                self.guest("kill -TERM \"$1\"", &[&pid.to_string()]).context("stopping the server")?;
                let outcome = self.vm.finish(&job, SERVER_LIMIT * self.accel().patience())?;
                outcome.status.map(exit_status)
            }
        };
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(format!("the server ended with {status}"))),
            None => Err(Failure::new(format!("the server did not stop within {SERVER_LIMIT:?} of SIGTERM"))),
        }
    }

    /// Kills a server by SIGKILL.
    pub(crate) fn kill(&mut self, server: &Server) -> Result<(), Failure> {
        match self.take(server)? {
            Running::Host(mut child) => process::kill(&mut child),
            Running::Guest { job, .. } => {
                self.guest_kill(&job)?;
                let limit = SERVER_LIMIT * self.accel().patience();
                let ended = process::until(limit, || self.vm.status(&job))?;
                ensure!(ended.is_some(), "the server did not end within {limit:?} of SIGKILL");
            }
        }
        Ok(())
    }

    /// Returns the process id of a server, on its machine.
    pub(crate) fn pid(&self, server: &Server) -> Option<u32> {
        let (_, running) = self.running.iter().find(|(running, _)| running.rdma == server.rdma)?;
        Some(match running {
            Running::Host(child) => child.id(),
            Running::Guest { pid, .. } => *pid,
        })
    }

    /// Fails if a server in the guest has ended by itself.
    pub(crate) fn ensure_serving(&self, server: &Server) -> Result<(), Failure> {
        let running = self.running.iter().find(|(running, _)| running.rdma == server.rdma);
        if let Some((_, Running::Guest { job, .. })) = running
            && let Some(status) = self.vm.status(job)?
        {
            return Err(Failure::new(format!(
                "the server ended with {}: {}",
                exit_status(status),
                process::tail(&server.log, 3)
            )));
        }
        Ok(())
    }

    fn take(&mut self, server: &Server) -> Result<Running, Failure> {
        let at = self
            .running
            .iter()
            .position(|(running, _)| running.rdma == server.rdma)
            .ok_or_else(|| Failure::new("the server does not run"))?;
        Ok(self.running.swap_remove(at).1)
    }
}

/// Returns the arguments of `rpcrdma` for a server whose state is in a folder.
fn serve_arguments(server: &Server, folder: &Path, options: &[&str]) -> Vec<String> {
    let Server { address, rdma, tcp, export, policy, .. } = server;
    let mut arguments = Vec::new();
    if !options.iter().any(|option| option.starts_with("-v")) {
        arguments.push("-v".to_owned());
    }
    arguments.extend([
        "serve".to_owned(),
        "--json".to_owned(),
        "--listen".to_owned(),
        format!("{address}:{rdma}"),
        "--tcp".to_owned(),
        format!("{address}:{tcp}"),
        "--state".to_owned(),
        folder.join(format!("state-{rdma}")).display().to_string(),
        "--export".to_owned(),
        format!("/={},{policy}", export.display()),
    ]);
    arguments.extend(options.iter().map(|&option| option.to_owned()));
    arguments
}

/// Returns the document of a server that is ready.
fn is_ready(file: &Path) -> Option<Ready> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Returns the status of a process of which a shell says this: 128 and the number of a signal, or the exit code.
pub(super) fn exit_status(of_shell: i32) -> ExitStatus {
    ExitStatus::from_raw(if of_shell > 128 { of_shell - 128 } else { of_shell << 8 })
}
