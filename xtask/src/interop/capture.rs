//! The traffic of a case. All traffic between host and guest passes the suite's tap device. tcpdump records it, and
//! tshark decodes it if the case fails.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rpcrdma_capture::session::Session;
use rpcrdma_capture::tcp::{self, Connection};
use rpcrdma_capture::{pcap, sessions};
use rustix::process::Signal;

use super::network::TAP;
use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum number of frames to decode; of longer captures only the first and last frames are decoded.
const DECODED_FRAMES: u64 = 20_000;
/// tshark finds MPA by its frames, even if the port is registered for another protocol.
const HEURISTICS: [&str; 2] = ["-o", "tcp.try_heuristic_first:TRUE"];
/// Maximum time for tshark.
const DECODE_LIMIT: Duration = Duration::from_secs(120);

/// Buffer of the kernel for tcpdump, in KiB: on a machine that emulates the guest, tcpdump may not run for a while.
const BUFFER: &str = "65536";

/// A running capture.
#[derive(Debug)]
pub(crate) struct Capture {
    tcpdump: Child,
    /// The file of the capture.
    pub(crate) file: PathBuf,
}

impl Capture {
    /// Captures until [`Capture::stop`].
    pub(crate) fn start(file: &Path) -> Result<Self, Failure> {
        let said = said(file);
        let mut command = process::bound("tcpdump");
        command
            .args(["-i", TAP, "-n", "-s", "0", "-B", BUFFER, "--immediate-mode", "-U", "-Z", "root", "-w"])
            .arg(file)
            .arg("tcp")
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said)?);
        let mut tcpdump = command.spawn().context("starting tcpdump")?;
        let listening = process::until(Duration::from_secs(20), || {
            let text = process::tail(&said, 5);
            ensure!(matches!(tcpdump.try_wait(), Ok(None)), "tcpdump cannot capture on {TAP}: {text}");
            Ok(text.contains("listening on").then_some(()))
        })?;
        ensure!(listening.is_some(), "tcpdump did not begin to capture");
        Ok(Self { tcpdump, file: file.to_owned() })
    }

    /// Ends the capture and returns its file. Packets may still be on their way to tcpdump, so this waits until the
    /// file no longer grows.
    pub(crate) fn stop(mut self) -> Result<PathBuf, Failure> {
        let length = || fs::metadata(&self.file).map(|file| file.len()).unwrap_or_default();
        let mut seen = length();
        process::until(Duration::from_secs(10), || {
            std::thread::sleep(Duration::from_millis(200));
            let before = std::mem::replace(&mut seen, length());
            Ok((seen == before).then_some(()))
        })?;
        process::terminate(&mut self.tcpdump, Signal::INT, Duration::from_secs(10))?;
        Ok(self.file)
    }
}

/// Returns the file for tcpdump's messages about this capture.
fn said(file: &Path) -> PathBuf {
    file.with_extension("tcpdump")
}

/// A capture as decoded by the project's own decoder.
#[derive(Debug)]
pub(crate) struct Recording {
    file: PathBuf,
    /// The connections that speak MPA.
    pub(crate) sessions: Vec<Session>,
}

impl Recording {
    /// Reads a file of [`Capture::stop`], which must have every packet.
    pub(crate) fn read(file: PathBuf) -> Result<Self, Failure> {
        let said = process::tail(&said(&file), 5);
        let dropped = said.lines().find_map(|line| line.split_once(" packets dropped by kernel"));
        let missed = dropped.filter(|(count, _)| count.trim() != "0");
        ensure!(missed.is_none(), "tcpdump has missed packets: {}", said.trim());
        let sessions = sessions(&fs::read(&file)?).context(format!("reading {}", file.display()))?;
        Ok(Self { file, sessions })
    }

    /// Returns all TCP connections, also those on which nobody spoke.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>, Failure> {
        let segments = pcap::tcp_segments(&fs::read(&self.file)?);
        Ok(tcp::connections(segments.context(format!("reading {}", self.file.display()))?))
    }

    /// Returns the XIDs of the RPC-over-RDMA messages that tshark finds. In long streams tshark may miss some: if many
    /// FPDUs begin inside of large TCP segments, it does not always find the next one.
    pub(crate) fn xids_by_tshark(&self) -> Result<BTreeSet<u32>, Failure> {
        let mut tshark = Command::new("tshark");
        tshark.args(HEURISTICS).arg("-r").arg(&self.file).arg("-n");
        tshark.args(["-Y", "rpcordma", "-T", "fields", "-e", "rpcordma.xid"]);
        let finished = process::run(tshark, DECODE_LIMIT)?;
        ensure!(finished.success(), "tshark: {}", finished.errors);
        let text = finished.text();
        let xids = text.split([',', '\n', '\t']).filter(|xid| !xid.is_empty());
        xids.map(|xid| u32::from_str_radix(xid.trim_start_matches("0x"), 16))
            .collect::<Result<_, _>>()
            .context("tshark's XIDs")
    }
}

/// Returns the last frames of a capture that speak MPA, RDMAP or RPC, one line each, or the reason for their absence.
pub(crate) fn decode(file: &Path, lines: usize) -> String {
    let file = match shorten(file) {
        Ok(file) => file,
        Err(failure) => return format!("no trace: {failure}"),
    };
    let mut tshark = Command::new("tshark");
    tshark.args(HEURISTICS).arg("-r").arg(&file).args([
        "-n",
        "-Y",
        "iwarp_mpa || rpc || tcp.flags.fin == 1 || tcp.flags.reset == 1",
    ]);
    match process::run(tshark, DECODE_LIMIT) {
        Ok(finished) => process::last_lines(&finished.text(), lines),
        Err(failure) => format!("no trace: {failure}"),
    }
}

/// Shortens a capture to the start-up frames, without which tshark does not find MPA, and the end.
fn shorten(file: &Path) -> Result<PathBuf, Failure> {
    let mut capinfos = Command::new("capinfos");
    capinfos.args(["-c", "-M", "-T", "-r"]).arg(file);
    let frames = process::run(capinfos, DECODE_LIMIT)?
        .text()
        .split_whitespace()
        .last()
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0);
    if frames <= DECODED_FRAMES {
        return Ok(file.to_owned());
    }
    let short = file.with_extension("short.pcap");
    let mut editcap = Command::new("editcap");
    editcap
        .arg("-r")
        .args([file, &short])
        .arg("1-1000")
        .arg(format!("{}-{frames}", frames - DECODED_FRAMES / 2));
    let finished = process::run(editcap, DECODE_LIMIT)?;
    ensure!(finished.success(), "editcap: {}", finished.errors.trim());
    Ok(short)
}
