//! What Kerberos costs: READs over RDMA under each flavour, and the processor time of the server, in a realm of its own.
//!
//! Integrity computes a checksum at each end. So its base is also what one processor can compute: the HMAC of the encryption
//! type, by OpenSSL, over messages of the same length.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use rpcrdma_realm::Realm;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab};
use super::server::{Reached, Ready};
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Flavours, in the order of the rows. The first one is the base of the others.
const FLAVORS: [&str; 4] = ["sys", "krb5", "krb5i", "krb5p"];
/// Name of the server in its principal.
const SERVER: &str = "server.test";
const USER: &str = "alice";
const PASSWORD: &str = "secret";
/// Bytes of a READ of bulk data, and how many are in flight.
const BULK: (u32, &str) = (1 << 20, "8");
/// Bytes of a small READ, and how many of those are in flight.
const SMALL: (u32, &str) = (4096, "32");

/// A realm, and a server in it.
struct Site {
    place: PathBuf,
    server: Process,
    address: SocketAddr,
    _realm: Realm,
}

impl Site {
    fn start(lab: &Lab) -> Result<Self, Failure> {
        let (place, export) = (lab.disk.join("realm"), lab.disk.join("export"));
        for folder in [&place, &export] {
            fs::create_dir(folder).context(folder.display())?;
        }
        Lab::random_file(&export.join("file"), lab.effort.bytes / 4)?;
        let realm = Realm::start(&place, Ipv4Addr::LOCALHOST).context("the realm")?;
        let keytab = place.join("server.keytab");
        realm.add_service(&format!("nfs/{SERVER}"), &keytab).context("the server's key")?;
        realm.add_user(USER, PASSWORD).context("the user")?;
        realm.kinit(USER, PASSWORD, &place.join("tickets")).context("the user's ticket")?;
        let mut serve =
            lab.rpcrdma(["serve", "--json", "--listen", "iwarp:127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
        serve.arg("--state").arg(lab.disk.join("state")).arg("--keytab").arg(keytab);
        serve.arg("--export").arg(format!("/={},sec={}", export.display(), FLAVORS.join(":")));
        Realm::surround(&mut serve, &place);
        let (server, ready) = Process::announced::<Ready>(serve)?;
        let address = ready.rdma.ok_or_else(|| Failure::new("the server has no such address"))?;
        Ok(Self { place, server, address, _realm: realm })
    }

    /// Reads for a while under a flavour.
    fn read(&self, lab: &Lab, flavor: &str, (size, depth): (u32, &str)) -> Result<Reached, Failure> {
        let (size, seconds) = (size.to_string(), lab.effort.seconds.to_string());
        let mut command = lab::command(&lab.load, ["reads", "--depth", depth, "--size", &size]);
        command.args(["--seconds", &seconds, "--sec", flavor, "--server-name", SERVER]);
        command.arg(self.address.to_string()).arg("/file");
        Realm::surround(&mut command, &self.place);
        self.server.reads(command)
    }
}

/// Returns the bytes a second over which one processor computes checksums, by OpenSSL.
fn checksums() -> Result<f64, Failure> {
    let length = BULK.0.to_string();
    let words = ["speed", "-mr", "-seconds", "1", "-bytes", &length, "-hmac", "sha1"];
    let output = lab::run("openssl", words)?;
    checksums_of(&output).ok_or_else(|| Failure::new(format!("openssl speed said {output:?}")))
}

fn checksums_of(output: &str) -> Option<f64> {
    let line = output.lines().rfind(|line| line.starts_with("+F:"))?;
    line.rsplit_once(':')?.1.parse().ok()
}

/// Measures.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let site = Site::start(lab)?;
    let bytes = f64::from(BULK.0);
    let mut bulk: [Vec<Round>; 3] = Default::default();
    let mut small: [Vec<Round>; 3] = Default::default();
    let mut cpu: [Vec<Round>; 3] = Default::default();
    let mut sums = Vec::new();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let mut large = [Reached::default(); 4];
        let mut little = large;
        for ((large, little), flavor) in large.iter_mut().zip(&mut little).zip(FLAVORS) {
            *large = site.read(lab, flavor, BULK)?;
            *little = site.read(lab, flavor, SMALL)?;
        }
        let checksums = checksums()?;
        if round == 0 {
            continue;
        }
        let ([large_base, large @ ..], [little_base, little @ ..]) = (large, little);
        for (number, (large, little)) in large.iter().zip(&little).enumerate() {
            for (rows, pair) in [
                (&mut bulk, (large.rate * bytes, large_base.rate * bytes)),
                (&mut small, (little.rate, little_base.rate)),
                (&mut cpu, (large.cpu, large_base.cpu)),
            ] {
                rows.get_mut(number).into_iter().for_each(|row| row.push(Round::ratio(pair.0, pair.1)));
            }
        }
        let [_, integrity, _] = large;
        sums.push(Round::ratio(integrity.rate * bytes, checksums));
    }
    let [krb5, rest @ ..] = bulk;
    let rows = [krb5, sums].into_iter().chain(rest).chain(small).chain(cpu);
    let figures = rows.map(|rounds| Figure::of(&rounds)).collect::<Result<_, _>>()?;
    Ok(Outcome { figures, notes: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_checksums_is_read() {
        let output =
            "+DT:hmac(sha1):1:1048576\n+R:2216:hmac(sha1):1.0\n+H:1048576\n+F:9:hmac(sha1):2324343466.67\n";
        assert_eq!(checksums_of(output), Some(2_324_343_466.67));
        assert_eq!(checksums_of("+H:1048576\n"), None);
    }
}
