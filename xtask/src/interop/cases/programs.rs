//! Programs of others that speak NFS version 3 in user space: clients on our server, and a server for our client. They need
//! no machine: each case runs in namespaces of its own.

use std::fs;
use std::path::Path;

use super::{Case, Detail};
use crate::failure::{Failure, ensure};
use crate::interop::site::Site;
use crate::interop::tools::FOREIGN_CLIENT;
use crate::needs::Needs;
use crate::process;

mod ganesha;
mod libnfs;
mod rpcbind;

pub(super) const CASES: &[Case] = &[
    Case::of_programs(
        "libnfs",
        "nfs-ls, nfs-cat and nfs-cp of libnfs list our export, and copy files of 0 bytes to 8 MiB + 1 in both directions",
        LIBNFS,
        libnfs::utilities,
    ),
    Case::of_programs(
        "libnfs-file",
        "nfs-ls mounts a single file, as with servers of Linux, and cannot list it; a link is not mounted",
        LIBNFS,
        libnfs::single_file,
    ),
    Case::of_programs(
        "nfs3-client",
        "The client of the crate nfs3_client makes, writes, reads, lists, renames and removes on our server",
        NAMESPACES,
        nfs3_client,
    )
    .with(&FOREIGN_CLIENT),
    Case::of_programs(
        "showmount",
        "showmount lists our exports with their networks, and who has mounted what",
        SHOWMOUNT,
        rpcbind::showmount,
    ),
    Case::of_programs(
        "rpcbind",
        "rpcinfo and libnfs find our services through rpcbind, after a SIGKILL too; a server that stops leaves none behind",
        RPCBIND,
        rpcbind::registrations,
    ),
    Case::of_programs(
        "ganesha-commands",
        "exports, mkdir, put, ls, stat, cat, get, mv, ln and rm have their documented effects on NFS-Ganesha",
        GANESHA,
        ganesha::commands,
    ),
    Case::of_programs(
        "ganesha-tree",
        "put -rp to NFS-Ganesha and get -rp from there: content, modes, times, hard links and holes are equal at both ends",
        GANESHA,
        ganesha::tree,
    ),
    Case::of_programs(
        "ganesha-restarted",
        "NFS-Ganesha is killed and starts again while our client stores a file: all of it arrives",
        GANESHA,
        ganesha::restarted,
    ),
];

const IP: (&str, &str) = ("ip", "iproute2");
const BIND: (&str, &str) = ("rpcbind", "rpcbind");
const LS: (&str, &str) = ("nfs-ls", "libnfs-utils");
const NAMESPACES: Needs = Needs { root: true, programs: &[IP] };
const LIBNFS: Needs = Needs { root: true, programs: &[IP, LS] };
const SHOWMOUNT: Needs = Needs { root: true, programs: &[IP, LS, BIND, ("showmount", "nfs-common")] };
const RPCBIND: Needs = Needs { root: true, programs: &[IP, LS, BIND] };
const GANESHA: Needs = Needs { root: true, programs: &[IP, BIND, ("ganesha.nfsd", "nfs-ganesha-vfs")] };

/// Runs the test of the crate, which has a server of ours in its process.
fn nfs3_client(site: &mut Site) -> Result<Detail, Failure> {
    let program = FOREIGN_CLIENT.program(&site.target).display().to_string();
    let said = site.text(&program, &[])?;
    let result = said.lines().find(|line| line.starts_with("test result: ok."));
    let passed = result.and_then(|line| line.split_whitespace().nth(3)).unwrap_or("0");
    ensure!(passed != "0", "no test ran: {}", process::last_lines(&said, 3));
    Ok(format!("{passed} tests"))
}

/// Fails unless two files are equal.
fn equal(one: &Path, other: &Path) -> Result<(), Failure> {
    let same = fs::read(one)? == fs::read(other)?;
    ensure!(same, "{} and {} differ", one.display(), other.display());
    Ok(())
}
