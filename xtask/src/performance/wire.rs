//! Reading a file through a link of virtual Ethernet, over RDMA and over TCP, beside iperf3.
//!
//! The server runs in a network namespace, the client in another one. Offloads (TSO, GSO, GRO) are on at both ends.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab, run, timed};
use super::server::Ready;
use crate::failure::{Context, Failure, ensure};
use crate::process::{self, Process};

/// The namespace of the server.
const SPACE: &str = "server";
/// Ends of the link. 198.18.0.0/15 is for benchmarks (RFC 2544).
const NEAR: (&str, Ipv4Addr) = ("near", Ipv4Addr::new(198, 18, 0, 1));
const FAR: (&str, Ipv4Addr) = ("far", Ipv4Addr::new(198, 18, 0, 2));
/// Offloads that are switched on, as `ethtool -K` names them, and as `ethtool -k` shows them.
const OFFLOADS: [(&str, &str); 3] = [
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
];
/// Port of iperf3.
const IPERF: u16 = 5201;
/// Bytes of the writes that iperf3 tries. The fastest is the base.
const WRITES: [&str; 4] = ["64K", "128K", "256K", "1M"];
/// Maximum time of one command.
const LIMIT: Duration = Duration::from_secs(120);

/// Ways to read the file, each measured in each round.
#[derive(Clone, Copy, Debug)]
enum Way {
    Rdma,
    /// FPDUs that fit a TCP segment: what adapters and siw get.
    Short,
    Tcp,
}

impl Way {
    const ALL: [Self; 3] = [Self::Rdma, Self::Short, Self::Tcp];

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Rdma => &["--proto", "rdma"],
            Self::Short => &["--proto", "rdma", "--no-large-fpdu"],
            Self::Tcp => &["--proto", "tcp"],
        }
    }
}

/// Measures a link with this MTU.
pub(crate) fn measure(lab: &Lab, mtu: u32) -> Result<Outcome, Failure> {
    link(mtu)?;
    let export = lab.disk.join("export");
    fs::create_dir(&export).context(export.display())?;
    let file = export.join("file");
    Lab::random_file(&file, lab.effort.bytes)?;
    // The disk has its copy, and the page cache keeps the file.
    File::open(&file).and_then(|file| file.sync_all()).context(file.display())?;
    let far = |port| SocketAddr::new(IpAddr::V4(FAR.1), port).to_string();
    let mut serve = inside(&lab.rpcrdma);
    let listen = format!("iwarp:{}", far(0));
    serve.args(["serve", "--json", "--read-only", "--listen", &listen, "--tcp", &far(0), "--state"]);
    serve.arg(lab.disk.join("state")).arg(&export);
    let (_server, ready) = Process::announced::<Ready>(serve)?;
    let iperf = iperf_server()?;
    let (mut sizes, mut version) = (Vec::new(), String::new());
    // RDMA and short FPDUs by iperf3 and by TCP, and TCP by iperf3.
    let mut rows: [Vec<Round>; 5] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let best = best_stream(lab.effort.seconds)?;
        let mut rates = [0.0; 3];
        for (rate, way) in rates.iter_mut().zip(Way::ALL) {
            *rate = read(lab, &ready, way)?;
        }
        if round == 0 {
            continue;
        }
        sizes.push(best.size);
        version = best.version;
        let ([rdma, short, tcp], base) = (rates, best.rate);
        let values = [(rdma, base), (rdma, tcp), (short, base), (short, tcp), (tcp, base)];
        for (row, (value, base)) in rows.iter_mut().zip(values) {
            row.push(Round::ratio(value, base));
        }
    }
    drop(iperf);
    let figures = rows.iter().map(|rounds| Figure::of(rounds)).collect::<Result<_, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    let sizes = sizes.join(" or ");
    let note =
        format!("MTU {mtu}: {version} was fastest with writes of {sizes} (tried: {}).", WRITES.join(", "));
    Ok(Outcome { figures, notes: vec![note] })
}

/// Makes the namespace of the server, and the link to it.
fn link(mtu: u32) -> Result<(), Failure> {
    let mtu = mtu.to_string();
    run("ip", ["netns", "add", SPACE])?;
    run("ip", ["link", "add", NEAR.0, "type", "veth", "peer", "name", FAR.0, "netns", SPACE])?;
    run("ip", ["-netns", SPACE, "link", "set", "lo", "up"])?;
    for (end, within) in [(NEAR, &[][..]), (FAR, &["netns", "exec", SPACE][..])] {
        let (device, address) = (end.0, format!("{}/30", end.1));
        // With no words before it, the first program is that of the second list.
        let here = |program: &str, words: &[&str]| match within {
            [] => run(program, words),
            _ => run("ip", [within, &[program], words].concat()),
        };
        here("ip", &["address", "add", &address, "dev", device])?;
        here("ip", &["link", "set", device, "mtu", &mtu, "up"])?;
        let mut change = vec!["-K", device];
        change.extend(OFFLOADS.iter().flat_map(|(name, _)| [*name, "on"]));
        here("ethtool", &change)?;
        let shown = here("ethtool", &["-k", device])?;
        ensure!(differing(&shown).is_none(), "{device}: ethtool does not switch {:?} on", differing(&shown));
    }
    Ok(())
}

/// Returns the name of an offload that `ethtool -k` does not show as on.
fn differing(shown: &str) -> Option<&'static str> {
    let is_on = |feature: &str| {
        let lines = shown.lines().filter_map(|line| line.trim().split_once(": "));
        lines.filter(|(name, _)| *name == feature).any(|(_, state)| state.split(' ').next() == Some("on"))
    };
    OFFLOADS.iter().find(|(_, feature)| !is_on(feature)).map(|(name, _)| *name)
}

/// Returns a command that runs a program in the namespace of the server. `ip` becomes that program.
fn inside(program: &Path) -> Command {
    let mut command = lab::command(Path::new("ip"), ["netns", "exec", SPACE]);
    command.arg(program);
    command
}

/// Starts the server of iperf3, and waits until it listens.
fn iperf_server() -> Result<Process, Failure> {
    let mut command = inside(Path::new("iperf3"));
    command.args(["--server", "--port", &IPERF.to_string()]);
    let mut server = Process::start(command)?;
    let address = SocketAddr::new(IpAddr::V4(FAR.1), IPERF);
    let listens = process::until(LIMIT, || {
        server.check().context("iperf3")?;
        Ok(TcpStream::connect(address).ok())
    })?;
    ensure!(listens.is_some(), "iperf3 does not listen");
    Ok(server)
}

/// The document of iperf3, as far as it matters.
#[derive(Debug, Deserialize)]
struct Iperf {
    error: Option<String>,
    #[serde(default)]
    start: IperfStart,
    end: IperfEnd,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IperfStart {
    version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IperfEnd {
    sum_received: Option<IperfSum>,
}

#[derive(Debug, Deserialize)]
struct IperfSum {
    bits_per_second: f64,
}

impl Iperf {
    /// Returns the bytes that came each second.
    fn rate(&self) -> Result<f64, Failure> {
        if let Some(error) = &self.error {
            return Err(Failure::new(format!("iperf3: {error}")));
        }
        let sum = self.end.sum_received.as_ref().ok_or_else(|| Failure::new("iperf3 tells no rate"))?;
        Ok(sum.bits_per_second / 8.0)
    }
}

/// The fastest stream of iperf3.
#[derive(Debug, Default)]
struct Best {
    rate: f64,
    /// Bytes of its writes.
    size: &'static str,
    /// Name and version of the program.
    version: String,
}

/// Returns the best of several sizes.
fn best_stream(seconds: u32) -> Result<Best, Failure> {
    let mut best = Best::default();
    for size in WRITES {
        let (host, port) = (FAR.1.to_string(), IPERF.to_string());
        let words = ["--client", &host, "--port", &port, "--reverse", "--json", "--length", size, "--time"];
        let mut command = lab::command(Path::new("iperf3"), words);
        command.arg(seconds.to_string());
        let document: Iperf = lab::document(command, LIMIT)?;
        let rate = document.rate()?;
        if rate > best.rate {
            best = Best { rate, size, version: document.start.version };
        }
    }
    Ok(best)
}

/// Reads the file with the command. Returns bytes a second, from its start to its end.
fn read(lab: &Lab, ready: &Ready, way: Way) -> Result<f64, Failure> {
    let server = if matches!(way, Way::Tcp) { ready.tcp } else { ready.rdma };
    let server = server.ok_or_else(|| Failure::new("the server has no such address"))?;
    let mut command = lab.rpcrdma(["cat"]);
    command.args(way.options()).arg(format!("nfs://{server}/file"));
    let elapsed = timed(command, LIMIT)?;
    // Exact for all lengths that fit in memory.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    let bytes = lab.effort.bytes as f64;
    Ok(bytes / elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_iperf3_is_what_came() {
        let document = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {"streams": [],
            "sum_sent": {"bits_per_second": 9e9}, "sum_received": {"seconds": 2.0, "bytes": 2000, "bits_per_second": 8000.0}}}"#;
        let document: Iperf = serde_json::from_str(document).unwrap();
        assert_eq!((document.rate().unwrap(), document.start.version.as_str()), (1000.0, "iperf 3.12"));
    }

    #[test]
    fn what_iperf3_complains_about_is_told() {
        let document = r#"{"start": {}, "end": {}, "error": "unable to connect to server"}"#;
        let failure = serde_json::from_str::<Iperf>(document).unwrap().rate().unwrap_err().to_string();
        assert!(failure.contains("unable to connect"), "{failure}");
        let nothing = serde_json::from_str::<Iperf>(r#"{"end": {}}"#).unwrap().rate();
        assert!(nothing.is_err());
    }

    #[test]
    fn offloads_that_stay_off_are_found() {
        let shown = "Features for far:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\
            generic-segmentation-offload: on\ngeneric-receive-offload: off [fixed]\n";
        assert_eq!(differing(shown), Some("gro"));
        assert_eq!(differing(&shown.replace("off [fixed]", "on")), None);
    }
}
