//! Work of our client for our server and for NFS-Ganesha: processor time of the server, and random READs.
//!
//! Both serve one directory on a disk, one after the other in each round. Both take root of the client for nobody, as they
//! do by default, and the directory is nobody's.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab, timed};
use super::server::{Ready, settled_cpu};
use crate::failure::{Context, Failure};
use crate::ganesha::{self, Ganesha, NOBODY, Root, Settings};
use crate::process::Process;

/// Maximum time of one command.
const LIMIT: Duration = Duration::from_secs(300);
/// READs in flight, and their bytes.
const DEPTH: &str = "32";
const READ: &str = "4096";

/// Work for a server, by one command of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Cat,
    Put,
    SmallGet,
    SmallPut,
}

/// A server, as the client reaches it by one transport.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    process: u32,
    address: SocketAddr,
    proto: &'static str,
    /// Port of MOUNT, if it is another.
    mount: Option<u16>,
    /// Path of the directory.
    root: String,
}

impl Side {
    /// Returns a server of one export, `/`, that answers MOUNT on its port for NFS.
    pub(crate) const fn new(process: u32, address: SocketAddr, proto: &'static str) -> Self {
        Self { process, address, proto, mount: None, root: String::new() }
    }

    /// Returns the options by which a client reaches this side.
    fn options(&self) -> Vec<String> {
        let mut options = vec!["--proto".to_owned(), self.proto.to_owned()];
        options.extend(self.mount.iter().flat_map(|port| ["--mountport".to_owned(), port.to_string()]));
        options
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("nfs://{}{}", self.address, self.path(name))
    }

    /// Returns a command of the client.
    pub(crate) fn command(&self, lab: &Lab, words: &[&str]) -> Command {
        let mut command = lab.rpcrdma(words);
        command.args(self.options());
        command
    }
}

/// Both servers.
pub(crate) struct Servers {
    _ours: Process,
    _ganesha: Ganesha,
    _rpcbind: Process,
    /// Ganesha over TCP, ours over TCP, ours over RDMA.
    pub(crate) sides: [Side; 3],
}

impl Servers {
    /// Starts both.
    pub(crate) fn start(lab: &Lab, export: &Path) -> Result<Self, Failure> {
        let program = |name: &str| lab::command(Path::new(name), [""; 0]);
        let rpcbind = ganesha::rpcbind(program("rpcbind"), program)?;
        let settings = Settings { export, folder: &lab.disk, root: Root::Squashed };
        let ganesha = Ganesha::start(settings, program)?;
        let mut serve =
            lab.rpcrdma(["serve", "--json", "--listen", "iwarp:127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
        serve.arg("--state").arg(lab.disk.join("state")).arg(export);
        let (ours, ready) = Process::announced::<Ready>(serve)?;
        let missing = || Failure::new("the server has no such address");
        let side = |proto, address: Option<SocketAddr>| {
            let address = address.ok_or_else(missing)?;
            Ok::<_, Failure>(Side::new(ours.id(), address, proto))
        };
        let sides = [
            Side {
                process: ganesha.id(),
                address: SocketAddr::from(([127, 0, 0, 1], ganesha::NFS)),
                proto: "tcp",
                mount: Some(ganesha::MOUNT),
                root: export.display().to_string(),
            },
            side("tcp", ready.tcp)?,
            side("rdma", ready.rdma)?,
        ];
        Ok(Self { _ours: ours, _ganesha: ganesha, _rpcbind: rpcbind, sides })
    }
}

/// Makes the directory that both serve.
fn export(lab: &Lab) -> Result<PathBuf, Failure> {
    let export = lab.disk.join("export");
    fs::create_dir(&export).context(export.display())?;
    Ok(export)
}

/// Makes all below a directory nobody's.
pub(crate) fn to_nobody(path: &Path) -> Result<(), Failure> {
    chown(path, Some(NOBODY), Some(NOBODY)).context(path.display())?;
    if path.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context(path.display())?;
        for entry in fs::read_dir(path).context(path.display())? {
            to_nobody(&entry?.path())?;
        }
    }
    Ok(())
}

/// Measures the processor time that both servers take for some work.
pub(crate) fn cpu(lab: &Lab, work: Work) -> Result<Outcome, Failure> {
    let export = export(lab)?;
    let (file, tree) = (lab.memory.join("file"), lab.memory.join("tree"));
    match work {
        Work::Cat => Lab::random_file(&export.join("file"), lab.effort.bytes)?,
        Work::Put => Lab::random_file(&file, lab.effort.bytes)?,
        Work::SmallGet => lab.small_files(&export.join("tree"))?,
        Work::SmallPut => lab.small_files(&tree)?,
    }
    to_nobody(&export)?;
    let servers = Servers::start(lab, &export)?;
    let mut rows: [Vec<Round>; 2] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let mut seconds = [0.0; 3];
        for (seconds, side) in seconds.iter_mut().zip(&servers.sides) {
            *seconds = once(lab, work, side)?;
        }
        let [base, tcp, rdma] = seconds;
        if round > 0 {
            for (row, value) in rows.iter_mut().zip([tcp, rdma]) {
                row.push(Round::ratio(value, base));
            }
        }
    }
    outcome(&rows)
}

/// Does the work once. Returns the processor time of the server, in seconds.
fn once(lab: &Lab, work: Work, side: &Side) -> Result<f64, Failure> {
    let (file, tree, got) = (lab.memory.join("file"), lab.memory.join("tree"), lab.memory.join("got"));
    let made = side.url("made");
    let command = match work {
        Work::Cat => {
            let mut cat = side.command(lab, &["cat"]);
            cat.arg(side.url("file"));
            cat
        }
        Work::Put | Work::SmallPut => {
            let mut put = side.command(lab, &["put", "--recursive"]);
            put.arg(if work == Work::Put { &file } else { &tree }).arg(&made);
            put
        }
        Work::SmallGet => {
            let mut get = side.command(lab, &["get", "--recursive"]);
            get.arg(side.url("tree")).arg(&got);
            get
        }
    };
    let before = settled_cpu(side.process)?;
    timed(command, LIMIT)?;
    let seconds = settled_cpu(side.process)? - before;
    match work {
        Work::Cat => {}
        Work::Put | Work::SmallPut => {
            let mut remove = side.command(lab, &["rm", "--recursive"]);
            remove.arg(made);
            timed(remove, LIMIT)?;
        }
        Work::SmallGet => fs::remove_dir_all(&got).context(got.display())?,
    }
    Ok(seconds)
}

/// The document of `load reads`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Reads {
    calls_per_second: f64,
}

/// Measures random READs of a file that both servers have in memory.
pub(crate) fn reads(lab: &Lab) -> Result<Outcome, Failure> {
    let export = export(lab)?;
    Lab::random_file(&export.join("file"), lab.effort.bytes)?;
    to_nobody(&export)?;
    let servers = Servers::start(lab, &export)?;
    let seconds = lab.effort.seconds.to_string();
    let mut rows: [Vec<Round>; 2] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let mut rates = [0.0; 3];
        for (rate, side) in rates.iter_mut().zip(&servers.sides) {
            let words = ["reads", "--depth", DEPTH, "--size", READ, "--seconds", &seconds];
            let mut command = lab::command(&lab.load, words);
            command.args(side.options()).arg(side.address.to_string()).arg(side.path("file"));
            *rate = lab::document::<Reads>(command, LIMIT)?.calls_per_second;
        }
        let [base, tcp, rdma] = rates;
        if round > 0 {
            for (row, value) in rows.iter_mut().zip([tcp, rdma]) {
                row.push(Round::ratio(value, base));
            }
        }
    }
    outcome(&rows)
}

fn outcome(rows: &[Vec<Round>]) -> Result<Outcome, Failure> {
    let figures = rows.iter().map(|rounds| Figure::of(rounds)).collect::<Result<_, _>>()?;
    Ok(Outcome { figures, notes: vec![base_note()?] })
}

/// Returns the remark with the version of the base.
pub(crate) fn base_note() -> Result<String, Failure> {
    Ok(format!("The base of rows with Ganesha is {}.", ganesha::version()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_has_the_url_and_options_of_its_server() {
        let side = Side {
            process: 1,
            address: "127.0.0.1:20490".parse().unwrap(),
            proto: "tcp",
            mount: Some(20_491),
            root: "/data/export".to_owned(),
        };
        assert_eq!(side.url("file"), "nfs://127.0.0.1:20490/data/export/file");
        assert_eq!(side.options(), ["--proto", "tcp", "--mountport", "20491"]);
        let ours = Side { mount: None, root: String::new(), proto: "rdma", ..side };
        assert_eq!(ours.url("file"), "nfs://127.0.0.1:20490/file");
        assert_eq!(ours.options(), ["--proto", "rdma"]);
    }

    #[test]
    fn the_rate_of_the_load_program_is_read() {
        let document = r#"{"calls": 10, "seconds": 2.0, "calls_per_second": 5.0}"#;
        assert_eq!(serde_json::from_str::<Reads>(document).unwrap().calls_per_second, 5.0);
    }
}
