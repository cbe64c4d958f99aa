//! What TLS costs on TCP: READs with and without it, and the processor time of the server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab};
use super::server::{Reached, Ready};
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Bytes of a READ, and how many are in flight.
const BULK: (u32, &str) = (1 << 20, "8");
/// Bytes of a small READ, and how many of those are in flight.
const SMALL: (u32, &str) = (4096, "32");

/// A server with a certificate of its own authority.
struct Site {
    authority: PathBuf,
    server: Process,
    address: SocketAddr,
}

impl Site {
    fn start(lab: &Lab) -> Result<Self, Failure> {
        let export = lab.disk.join("export");
        fs::create_dir(&export).context(export.display())?;
        Lab::random_file(&export.join("file"), lab.effort.bytes / 4)?;
        let (key, authority) = (lab.disk.join("key.pem"), lab.disk.join("certificate.pem"));
        certificate(&key, &authority)?;
        let mut serve =
            lab.rpcrdma(["serve", "--json", "--listen", "iwarp:127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
        serve.arg("--state").arg(lab.disk.join("state")).arg("--tls-key").arg(&key);
        serve.arg("--tls-cert").arg(&authority).arg(&export);
        let (server, ready) = Process::announced::<Ready>(serve)?;
        let address = ready.tcp.ok_or_else(|| Failure::new("the server has no such address"))?;
        Ok(Self { authority, server, address })
    }

    /// Reads for a while.
    fn read(&self, lab: &Lab, tls: bool, (size, depth): (u32, &str)) -> Result<Reached, Failure> {
        let (size, seconds) = (size.to_string(), lab.effort.seconds.to_string());
        let words = ["reads", "--proto", "tcp", "--depth", depth, "--size", &size, "--seconds", &seconds];
        let mut command = lab::command(&lab.load, words);
        if tls {
            command.arg("--tls-ca").arg(&self.authority);
        }
        command.arg(self.address.to_string()).arg("/file");
        self.server.reads(command)
    }
}

/// Makes a certificate that vouches for itself.
fn certificate(key: &Path, certificate: &Path) -> Result<(), Failure> {
    let mut words = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"];
    words.extend(["-days", "2", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]);
    let (key, certificate) = (key.display().to_string(), certificate.display().to_string());
    words.extend(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &certificate]);
    lab::run("openssl", words).map(|_| ())
}

/// Measures.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let site = Site::start(lab)?;
    let bytes = f64::from(BULK.0);
    let mut rows: [Vec<Round>; 3] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let (base, large) = (site.read(lab, false, BULK)?, site.read(lab, true, BULK)?);
        let (small_base, small) = (site.read(lab, false, SMALL)?, site.read(lab, true, SMALL)?);
        if round == 0 {
            continue;
        }
        let pairs =
            [(large.rate * bytes, base.rate * bytes), (small.rate, small_base.rate), (large.cpu, base.cpu)];
        for (row, (value, base)) in rows.iter_mut().zip(pairs) {
            row.push(Round::ratio(value, base));
        }
    }
    let figures = rows.iter().map(|rounds| Figure::of(rounds)).collect::<Result<_, _>>()?;
    Ok(Outcome { figures, notes: Vec::new() })
}
