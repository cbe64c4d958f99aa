//! The server of our client: knfsd, or our own server in the guest.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::{Lab, Server};
use crate::process::{self, Finished};

/// Maximum time of one command, multiplied by the patience of the guest.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A server of our client, and a new directory in it for the case.
#[derive(Debug)]
pub(in crate::interop::cases) struct Remote {
    address: String,
    /// Port of NFS over RDMA.
    port: u16,
    /// TCP port of MOUNT.
    mountd: u16,
    /// The directory in the guest.
    directory: String,
    /// The path in the guest of the server's root.
    root: String,
    crc: bool,
}

impl Remote {
    /// Starts knfsd unless it is running, and makes an empty directory in memory.
    pub(in crate::interop::cases) fn new(lab: &mut Lab, case: &str) -> Result<Self, Failure> {
        let knfsd = lab.knfsd()?;
        let directory = format!("/export/memory/{case}");
        lab.guest("rm -rf \"$1\" && mkdir -m 777 \"$1\"", &[&directory])?;
        Ok(Self {
            address: knfsd.address(),
            port: knfsd.rdma,
            mountd: knfsd.mountd,
            directory,
            root: String::new(),
            crc: true,
        })
    }

    /// Starts a server of ours in the guest, with an empty directory. The case needs a fabric.
    pub(in crate::interop::cases) fn ours(lab: &mut Lab) -> Result<(Self, Server), Failure> {
        lab.current_fabric()?;
        let server = lab.serve(&[])?;
        let root = server.export.display().to_string();
        let remote = Self {
            address: format!("{}:{}", server.address, server.rdma),
            port: server.rdma,
            mountd: server.tcp,
            directory: root.clone(),
            root,
            crc: true,
        };
        Ok((remote, server))
    }

    /// Turns CRC requests of later commands off.
    pub(super) fn without_crc(self) -> Self {
        Self { crc: false, ..self }
    }

    /// Returns the directory in the guest.
    pub(in crate::interop::cases) fn directory(&self) -> &str {
        &self.directory
    }

    /// Returns `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the port of [`Self::address`].
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a path in the case's directory.
    pub(in crate::interop::cases) fn url(&self, path: &str) -> String {
        self.url_of(&format!("{}/{path}", self.directory))
    }

    /// Returns the URL of a path in the guest.
    pub(super) fn url_of(&self, path: &str) -> String {
        format!("nfs://{}{}", self.address, path.strip_prefix(&self.root).unwrap_or(path))
    }

    /// Runs `rpcrdma` to its end, in the case's folder.
    pub(in crate::interop::cases) fn run(
        &self,
        lab: &mut Lab,
        arguments: &[&str],
    ) -> Result<Finished, Failure> {
        let all = self.with_options(arguments);
        lab.rpcrdma(COMMAND_LIMIT, &all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(in crate::interop::cases) fn with_options(&self, arguments: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        all.extend(["--mountport".to_owned(), self.mountd.to_string()]);
        if !self.crc {
            all.push("--no-crc".to_owned());
        }
        all
    }

    /// Starts `rpcrdma` in the case's folder and does not wait.
    pub(super) fn start(&self, lab: &mut Lab, arguments: &[&str]) -> Result<Child, Failure> {
        let mut command = process::bound(&lab.rpcrdma);
        command.args(self.with_options(arguments)).current_dir(&lab.folder);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting rpcrdma")
    }

    /// Runs `rpcrdma`, which must succeed.
    pub(in crate::interop::cases) fn succeed(
        &self,
        lab: &mut Lab,
        arguments: &[&str],
    ) -> Result<Finished, Failure> {
        let finished = self.run(lab, arguments)?;
        ensure!(
            finished.success(),
            "rpcrdma {}: {}: {}",
            arguments.join(" "),
            finished.ending(),
            finished.errors.lines().rev().take(5).collect::<Vec<_>>().join(" / ")
        );
        Ok(finished)
    }

    /// Runs `rpcrdma`, which must fail with this exit code and these words.
    pub(super) fn fail(
        &self,
        lab: &mut Lab,
        code: i32,
        words: &str,
        arguments: &[&str],
    ) -> Result<(), Failure> {
        let finished = self.run(lab, arguments)?;
        let seen = finished.status.and_then(|status| status.code());
        ensure!(
            seen == Some(code) && finished.errors.contains(words),
            "rpcrdma {}: exit code {code} and {words:?} were due, seen {}: {}",
            arguments.join(" "),
            finished.ending(),
            finished.errors.trim()
        );
        Ok(())
    }
}

/// Returns the lines of `-v` about calls of a procedure.
pub(super) fn travelled<'a>(events: &'a str, procedure: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("call {procedure} to ");
    events
        .lines()
        .filter(move |line| line.starts_with(&start))
        .filter_map(|line| line.split_once(": ").map(|(_, how)| how))
}

/// Returns the bytes of a path, for instance `B by Write chunk`, summed over calls.
pub(super) fn bytes<'a>(calls: impl Iterator<Item = &'a str>, path: &str) -> u64 {
    let path = format!(" {path}");
    calls
        .filter_map(|how| how.split(&[',', ';'][..]).find_map(|part| part.strip_suffix(&path)))
        .filter_map(|part| part.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_verbose_says_is_understood() {
        let events = "call READ to 127.0.0.1:1 xid 0x01 in 1ms: call inline, 152 B by Send; reply reduced, 180 B by Send, \
                      4095 B by Write chunk; invalidated by the responder\n\
                      call WRITE to 127.0.0.1:1 xid 0x02 in 1ms: call reduced, 160 B by Send, 4096 B by RDMA Read; reply \
                      inline, 164 B by Send\n\
                      call READ to 127.0.0.1:1 xid 0x03 in 1ms: call inline, 128 B by Send; reply inline, 160 B by Send\n";
        assert_eq!(travelled(events, "READ").count(), 2);
        assert_eq!(bytes(travelled(events, "READ"), "B by Write chunk"), 4095);
        assert_eq!(bytes(travelled(events, "WRITE"), "B by RDMA Read"), 4096);
        assert_eq!(bytes(travelled(events, "LOOKUP"), "B by RDMA Read"), 0);
    }
}
