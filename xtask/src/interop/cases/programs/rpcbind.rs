//! Tools of a machine that ask rpcbind and MOUNT about our server.

use std::collections::BTreeSet;
use std::fs;

use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::site::{LOCAL, Site, TCP};

/// Programs NFS and MOUNT.
const NFS: &str = "100003";
const MOUNT: &str = "100005";

pub(super) fn showmount(site: &mut Site) -> Result<Detail, Failure> {
    let inner = site.folder.join("private");
    fs::create_dir(&inner)?;
    let private =
        format!("/private={},allow=127.0.0.0/8,allow=192.0.2.7,allow=2001:db8::/32", inner.display());
    site.start_rpcbind()?;
    site.serve(&["--rpcbind", "--export", &private])?;
    let exports = lines(site, "--exports")?;
    let expected = lines_of("/ (everyone)\n/private 127.0.0.0/8,192.0.2.7/32,2001:db8::/32");
    ensure!(exports == expected, "showmount -e shows {exports:?}");
    let mounts = (lines(site, "--all")?, lines(site, "--directories")?);
    ensure!(mounts == (lines_of(""), lines_of("")), "before any mount showmount shows {mounts:?}");
    // nfs-ls sends no UMNT.
    for path in ["/", "/private"] {
        site.succeed("nfs-ls", &[&format!("nfs://{LOCAL}{path}")])?;
    }
    let all = lines(site, "--all")?;
    ensure!(all == lines_of("127.0.0.1:/\n127.0.0.1:/private"), "showmount -a shows {all:?}");
    let directories = lines(site, "--directories")?;
    ensure!(directories == lines_of("/\n/private"), "showmount -d shows {directories:?}");
    Ok(String::new())
}

/// Returns the lines that showmount prints, with single spaces.
fn lines(site: &Site, option: &str) -> Result<BTreeSet<String>, Failure> {
    Ok(lines_of(&site.text("showmount", &["--no-headers", option, LOCAL])?))
}

fn lines_of(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

pub(super) fn registrations(site: &mut Site) -> Result<Detail, Failure> {
    let ours = BTreeSet::from([format!("{NFS} 3 tcp {TCP}"), format!("{MOUNT} 3 tcp {TCP}")]);
    fs::write(site.export().join("file"), "")?;
    site.start_rpcbind()?;
    let before = registered(site)?;
    ensure!(before.is_empty(), "before the server starts rpcinfo -p shows {before:?}");
    site.serve(&["--rpcbind"])?;
    for round in ["first", "second"] {
        let found = registered(site)?;
        ensure!(found == ours, "rpcinfo -p of the {round} server shows {found:?}");
        let short = site.text("rpcinfo", &["-s", LOCAL])?;
        let transports = short.lines().find(|line| line.trim_start().starts_with(NFS)).unwrap_or_default();
        ensure!(transports.contains("rdma") && transports.contains("tcp"), "rpcinfo -s shows {short}");
        for program in [NFS, MOUNT] {
            let answer = site.text("rpcinfo", &["-T", "tcp", LOCAL, program, "3"])?;
            ensure!(answer.contains("ready and waiting"), "rpcinfo -T tcp {program} 3 says {answer}");
        }
        let listed = site.text("nfs-ls", &[&format!("nfs://{LOCAL}/")])?;
        ensure!(listed.trim_end().ends_with(" file"), "nfs-ls without ports shows {listed:?}");
        if round == "first" {
            // A server that is killed leaves its registrations, which the next one replaces.
            site.kill()?;
            site.serve(&["--rpcbind"])?;
        }
    }
    site.stop()?;
    let after = registered(site)?;
    ensure!(after.is_empty(), "after the server's end rpcinfo -p shows {after:?}");
    Ok(String::new())
}

/// Returns what rpcinfo -p lists of NFS and MOUNT: program, version, transport and port.
fn registered(site: &Site) -> Result<BTreeSet<String>, Failure> {
    let listed = site.text("rpcinfo", &["-p", LOCAL])?;
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        words.first().is_some_and(|program| [NFS, MOUNT].contains(program)).then(|| words.join(" "))
    };
    Ok(listed.lines().filter_map(entry).collect())
}
