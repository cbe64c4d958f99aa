//! Copies as people make them: the time of a command, beside `cp` on the same file system, and with NFS-Ganesha as the server.
//!
//! Everything is in memory (tmpfs), so no disk hides what a copy costs. The tree has files of 1 to 4 KiB.
//!
//! A virtual machine may give free memory back to its host, which then has to find it again, page by page. That takes longer than
//! a copy, and meets whichever command needs more memory than the one before it. So each command finds memory that was just in use.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab, timed};
use super::nfs::{self, Servers, Side};
use super::server::Ready;
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Maximum time of one command.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the length of a small file, 1 to 4 KiB.
fn length(number: usize) -> u64 {
    let step = u64::try_from(number % 4).unwrap_or_default();
    1024 + step * 1000
}

/// Sources, targets and the export.
struct Places {
    tree: PathBuf,
    file: PathBuf,
    /// Target in the local file system.
    copy: PathBuf,
    export: PathBuf,
    /// File of zeros, which is there for a moment only.
    spare: PathBuf,
    /// Length of that file, in bytes: more than a copy and the buffers of its processes need.
    spared: u64,
}

impl Places {
    /// Makes the sources.
    fn make(lab: &Lab) -> Result<Self, Failure> {
        let [tree, file, copy, export, spare] =
            ["tree", "file", "copy", "export", "spare"].map(|name| lab.memory.join(name));
        Lab::tree(&tree, lab.effort.copied, length)?;
        Lab::random_file(&file, lab.effort.bytes)?;
        fs::create_dir(&export).context(export.display())?;
        Ok(Self { tree, file, copy, export, spare, spared: 2 * lab.effort.bytes })
    }

    /// Takes memory from the host, and frees it, so that the next command finds it.
    fn warm_memory(&self) -> Result<(), Failure> {
        let taken = File::create(&self.spare)
            .and_then(|mut spare| io::copy(&mut io::repeat(0).take(self.spared), &mut spare))
            .and_then(|_| fs::remove_file(&self.spare));
        taken.context(self.spare.display())
    }

    /// Removes the local copy.
    fn clear(&self) -> Result<(), Failure> {
        let copy = &self.copy;
        if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }.context(copy.display())
    }

    /// Times `cp` of a source.
    fn cp(&self, source: &Path) -> Result<f64, Failure> {
        let mut cp = lab::command(Path::new("cp"), ["-r"]);
        cp.arg(source).arg(&self.copy);
        self.warm_memory()?;
        let time = timed(cp, LIMIT)?;
        self.clear()?;
        Ok(time.as_secs_f64())
    }

    /// Times put, get and rm of a source by one side.
    fn copied(&self, lab: &Lab, side: &Side, source: &Path) -> Result<[f64; 3], Failure> {
        let url = side.url("copy");
        let run = |words: &[&str], operands: &[&Path]| {
            let mut command = side.command(lab, words);
            command.args(operands);
            self.warm_memory()?;
            timed(command, LIMIT).map(|time| time.as_secs_f64())
        };
        let there = Path::new(&url);
        let put = run(&["put", "--recursive"], &[source, there])?;
        let get = run(&["get", "--recursive"], &[there, &self.copy])?;
        let remove = run(&["rm", "--recursive"], &[there])?;
        self.clear()?;
        Ok([put, get, remove])
    }
}

/// Starts our server for a directory, with root of the client as root.
fn serve(lab: &Lab, export: &Path) -> Result<(Process, Side), Failure> {
    let words = ["serve", "--json", "--listen", "iwarp:127.0.0.1:0", "--no-tcp", "--export"];
    let mut serve: Command = lab.rpcrdma(words);
    serve.arg(format!("/={},squash=none", export.display()));
    serve.arg("--state").arg(lab.disk.join("state"));
    let (process, ready) = Process::announced::<Ready>(serve)?;
    let address: Option<SocketAddr> = ready.rdma;
    let address = address.ok_or_else(|| Failure::new("the server has no address for RDMA"))?;
    let side = Side::new(process.id(), address, "rdma");
    Ok((process, side))
}

/// Measures put and get of a tree and of a file, beside `cp`.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let places = Places::make(lab)?;
    let (_process, side) = serve(lab, &places.export)?;
    let mut rows: [Vec<Round>; 4] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let mut values = Vec::new();
        for source in [&places.tree, &places.file] {
            let base = places.cp(source)?;
            let [put, get, _] = places.copied(lab, &side, source)?;
            values.extend([Round::ratio(put, base), Round::ratio(get, base)]);
        }
        if round > 0 {
            rows.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
        }
    }
    outcome(&rows, Vec::new())
}

/// Measures the removal of a tree of many files.
pub(crate) fn removal(lab: &Lab) -> Result<Outcome, Failure> {
    let export = lab.memory.join("export");
    fs::create_dir(&export).context(export.display())?;
    let (_process, side) = serve(lab, &export)?;
    let mut rows: [Vec<Round>; 1] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        Lab::tree(&export.join("tree"), lab.effort.removed, length)?;
        let mut remove = side.command(lab, &["rm", "--recursive"]);
        remove.arg(side.url("tree"));
        let time = timed(remove, LIMIT)?;
        if round > 0 {
            let [row] = &mut rows;
            row.push(Round::value(time.as_secs_f64()));
        }
    }
    outcome(&rows, Vec::new())
}

/// Measures copies with our server and with Ganesha.
pub(crate) fn with_ganesha(lab: &Lab) -> Result<Outcome, Failure> {
    let places = Places::make(lab)?;
    nfs::to_nobody(&places.export)?;
    let servers = Servers::start(lab, &places.export)?;
    let mut rows: [Vec<Round>; 10] = Default::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let mut sides = Vec::new();
        for side in &servers.sides {
            let [put, get, remove] = places.copied(lab, side, &places.tree)?;
            let [put_file, get_file, _] = places.copied(lab, side, &places.file)?;
            sides.push([put, get, remove, put_file, get_file]);
        }
        let [base, tcp, rdma] = sides.as_slice() else { continue };
        if round > 0 {
            let values = base.iter().zip(tcp).zip(rdma);
            let rounds =
                values.flat_map(|((&base, &tcp), &rdma)| [Round::ratio(tcp, base), Round::ratio(rdma, base)]);
            rows.iter_mut().zip(rounds).for_each(|(row, round)| row.push(round));
        }
    }
    outcome(&rows, vec![nfs::base_note()?])
}

fn outcome(rows: &[Vec<Round>], notes: Vec<String>) -> Result<Outcome, Failure> {
    let figures = rows.iter().map(|rounds| Figure::of(rounds)).collect::<Result<_, _>>()?;
    Ok(Outcome { figures, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_have_one_to_four_kibibytes() {
        let lengths: Vec<u64> = (0..8).map(length).collect();
        assert_eq!(lengths, [1024, 2024, 3024, 4024, 1024, 2024, 3024, 4024]);
    }
}
