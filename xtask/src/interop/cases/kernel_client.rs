//! The kernel's client on our server: `mount -t nfs -o vers=3,proto=rdma` in the guest, `rpcrdma serve` on the host.
//!
//! The workloads are in `interop/guest/workload.py`. Its `check-…` half runs on the host, on the exported directory,
//! and reads the files that the guest wrote.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::faults::{Writers, served_writes};
use super::wire::{DEFAULT_CREDITS, Settings, UP_TO_THRESHOLDS, check_settings};
use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::{Lab, Mount, Server};
use crate::interop::network::GUEST;
use crate::process;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "mount-default",
        "Default options mount the export, with transfers of 1 MiB; a file written there is equal on the server",
        mount_default,
    ),
    Case::new("operations", "Every operation on files and directories, and the errors of invalid ones", operations),
    Case::new(
        "names",
        "Names of 255 bytes, deep paths, Unicode, symbolic links of up to 4095 bytes, 100 hard links to one file",
        names,
    ),
    Case::new("write-sizes", "Files of 0 bytes to 1 MiB + 1 are on the server as they were written", write_sizes),
    Case::new("read-sizes", "Files of 0 bytes to 1 MiB + 1 are read as they are on the server", read_sizes),
    Case::new("write-64m", "64 MiB in one file are on the server as they were written", write_large).unseen(),
    Case::new("read-64m", "64 MiB in one file are read as they are on the server", read_large).unseen(),
    Case::new(
        "transfer-sizes",
        "The kernel uses rsize and wsize of 4 KiB, 16 KiB, 64 KiB, 256 KiB, 512 KiB and 1 MiB, with correct data",
        transfer_sizes,
    )
    .within(120),
    Case::new("direct", "O_DIRECT, page-aligned from 4 KiB to 4 MiB, and small reads at odd offsets", direct),
    Case::new("sync", "Data written with O_SYNC or O_DSYNC is on the server while the file is open", synchronous),
    Case::new("append", "O_APPEND adds at the end, from two descriptors in turn as well", append),
    Case::new("truncate", "Files get shorter and longer; truncated data does not come back", truncate),
    Case::new("holes", "A file of 5 GiB with holes takes little space and reads as zeros between its data", holes),
    Case::new("mmap", "Writes through a shared mapping arrive; a mapping reads the content of the file", mapped),
    Case::new(
        "directory-10000",
        "10,000 entries are listed, none twice and none left out, also while a quarter of them is removed",
        directory,
    )
    .within(120),
    Case::new("open-removed", "Files that are removed or replaced while open stay usable, and vanish when closed", silly),
    Case::new("two-mounts", "Two mounts of one export see each other's changes by close-to-open consistency", two_mounts),
    Case::new("users", "Another user has exactly the rights of owner, group and mode", users),
    Case::new("read-only", "A read-only export is read, and refuses every change", read_only),
    Case::new(
        "handover",
        "Two other servers take the sockets one after the other while programs write with fsync: no error, and all data is there",
        handover,
    )
    .within(120),
    Case::new("processes", "16 processes at once, each with its own files and all in one directory", processes).within(120),
    Case::new(
        "random-operations",
        "20,000 random operations on three files, every read compared with a model, as fsx does",
        random_operations,
    )
    .within(150)
    .unseen()
    .thorough(),
    Case::new(
        "source-tree",
        "The project's own sources, unpacked on the mount, are the same there, on the server and after a rename",
        source_tree,
    )
    .within(120)
    .thorough(),
    Case::new(
        "inline-sizes",
        "With servers that announce inline sizes of 1024, 8192 and 65536 bytes, Sends come near the threshold and never exceed it",
        inline_sizes,
    )
    .within(90)
    .thorough(),
    Case::new("speed", "Times of our server and of knfsd in the same guest, for the record", speed)
        .within(240)
        .unseen()
        .thorough(),
];

/// Maximum time for a workload with KVM.
const SHORT: Duration = Duration::from_secs(45);
const LONG: Duration = Duration::from_secs(120);

fn mounted(lab: &mut Lab, serve: &[&str], options: &str) -> Result<(Server, Mount), Failure> {
    let server = lab.serve(serve)?;
    let mount = lab.mount(&server, options)?;
    Ok((server, mount))
}

/// Runs a workload on a mount with default options, then its check on the server's directory.
fn both_sides(lab: &mut Lab, name: &str, limit: Duration, arguments: &[&str]) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    let all: Vec<&str> = std::iter::once(mount.path.as_str()).chain(arguments.iter().copied()).collect();
    lab.workload(limit, name, &all)?;
    // The umount writes the data that the client still holds.
    lab.umount(&mount)?;
    lab.server_workload(&server, &format!("check-{name}"), arguments)?;
    Ok(String::new())
}

fn mount_default(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.guest("echo hello >\"$1/file\"", &[&mount.path])?;
    let text = lab.server_script(&server, "cat file", &[])?;
    ensure!(text == "hello\n", "the server has {text:?}");
    for name in ["rsize", "wsize"] {
        ensure!(mount.option(name) == Some("1048576"), "{name} is not 1 MiB: {}", mount.options);
    }
    Ok("rsize and wsize 1048576".to_owned())
}

fn operations(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "operations", SHORT, &[])
}

fn names(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "names", SHORT, &[])
}

fn write_sizes(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.workload(SHORT, "write-sizes", &[&mount.path])?;
    lab.server_workload(&server, "check-sizes", &[])?;
    Ok(String::new())
}

fn read_sizes(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.server_workload(&server, "write-sizes", &[])?;
    lab.workload(SHORT, "read-sizes", &[&mount.path])?;
    Ok(String::new())
}

const LARGE: &str = "67108864";

fn write_large(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.workload(LONG, "write-sizes", &[&mount.path, LARGE])?;
    lab.server_workload(&server, "check-sizes", &[LARGE])?;
    Ok(String::new())
}

fn read_large(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.server_workload(&server, "write-sizes", &[LARGE])?;
    lab.workload(LONG, "read-sizes", &[&mount.path, LARGE])?;
    Ok(String::new())
}

fn transfer_sizes(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let sizes = ["4096", "16384", "65536", "262144", "524288", "1048576"];
    for size in sizes {
        // Sizes belong to this mount, not to the superblock of another mount of the export.
        let mount = lab.mount(&server, &format!("rsize={size},wsize={size},nosharecache"))?;
        for name in ["rsize", "wsize"] {
            ensure!(mount.option(name) == Some(size), "asked for {name}={size}, got {}", mount.options);
        }
        let files = ["3000", "70001", "1048577"];
        let mut arguments = vec![mount.path.as_str()];
        arguments.extend(files);
        lab.workload(SHORT, "write-read-sizes", &arguments)?;
        lab.umount(&mount)?;
        lab.server_workload(&server, "check-sizes", &files)?;
        lab.server_workload(&server, "remove-all", &[])?;
    }
    Ok(format!("{} sizes", sizes.len()))
}

fn direct(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "direct", SHORT, &[])
}

fn synchronous(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    let flag = lab.shared().join("go");
    let job = lab.workload_start("synchronous", &[&mount.path, "/job/go"])?;
    let limit = SHORT * lab.accel().patience();
    let written = process::until(limit, || Ok(lab.guest_output(&job).contains("written").then_some(())))?;
    ensure!(written.is_some(), "nothing was written in time: {}", lab.guest_output(&job));
    let sizes = ["1", "4097", "65536", "1048577", "2", "4098", "65537", "1048578"];
    let checked = lab.server_workload(&server, "check-sizes", &sizes);
    fs::write(&flag, "")?;
    lab.guest_finish(&job, SHORT)?;
    fs::remove_file(&flag)?;
    checked.map(|_| String::new())
}

fn append(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "append", SHORT, &[])
}

fn truncate(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "truncate", SHORT, &[])
}

fn holes(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "holes", SHORT, &[])
}

fn mapped(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "mapped", SHORT, &[])
}

fn directory(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.server_workload(&server, "make-directory", &["10000"])?;
    lab.workload(LONG, "list-directory", &[&mount.path, "10000"])?;
    Ok(String::new())
}

fn silly(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    lab.workload(SHORT, "silly", &[&mount.path])?;
    let left = lab.server_script(&server, "ls -A", &[])?;
    ensure!(left.is_empty(), "files are left on the server: {left}");
    Ok(String::new())
}

fn two_mounts(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let first = lab.mount(&server, "nosharecache")?;
    let second = lab.mount(&server, "nosharecache")?;
    lab.workload(SHORT, "two-mounts", &[&first.path, &second.path])?;
    Ok(String::new())
}

fn users(lab: &mut Lab) -> Result<Detail, Failure> {
    let (_, mount) = mounted(lab, &[], "")?;
    lab.workload(SHORT, "users", &[&mount.path])?;
    Ok(String::new())
}

fn read_only(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &["--read-only"], "")?;
    lab.server_workload(&server, "write-sizes", &["4097"])?;
    lab.workload(SHORT, "read-only", &[&mount.path])?;
    lab.server_workload(&server, "check-sizes", &["4097"])?;
    Ok(String::new())
}

fn handover(lab: &mut Lab) -> Result<Detail, Failure> {
    const HANDOVERS: usize = 2;
    let (server, mount) = mounted(lab, &[], "")?;
    let writers = Writers::start(lab, &mount, 3)?;
    let limit = SHORT * lab.accel().patience();
    let mut served = 0;
    for handovers in 0..=HANDOVERS {
        // Calls come to the server that serves now.
        let comes = process::until(limit, || Ok((served_writes(&server) > served + 10).then_some(())))?;
        ensure!(comes.is_some(), "no WRITE comes after {handovers} handovers");
        if handovers < HANDOVERS {
            lab.hand_over(&server)?;
        }
        served = served_writes(&server);
    }
    let (files, notes) = writers.finish(lab, &server)?;
    ensure!(notes.is_empty(), "calls were executed twice: {}", notes.join(", "));
    lab.umount(&mount)?;
    Ok(format!("{HANDOVERS} handovers, {files} files equal"))
}

fn processes(lab: &mut Lab) -> Result<Detail, Failure> {
    both_sides(lab, "processes", LONG, &["16", "12"])
}

fn random_operations(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    let said = lab.workload(Duration::from_secs(150), "random-operations", &[&mount.path, "20000", "3"])?;
    lab.umount(&mount)?;
    lab.server_workload(&server, "check-random-operations", &[])?;
    Ok(said.trim().to_owned())
}

fn source_tree(lab: &mut Lab) -> Result<Detail, Failure> {
    let (server, mount) = mounted(lab, &[], "")?;
    let archive = lab.shared().join("sources.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&lab.project).arg("-cf").arg(&archive).args([
        "--sort=name",
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "crates",
        "interop",
        "xtask",
    ]);
    let packed = process::run(tar, Duration::from_secs(30))?;
    ensure!(packed.success(), "tar: {}", packed.errors);
    let script = "set -e\n\
        mkdir -p /tmp/tree \"$1/tree\"\n\
        tar -C /tmp/tree -xf /job/sources.tar\n\
        tar -C \"$1/tree\" -xf /job/sources.tar\n\
        cd /tmp/tree\n\
        find . -type f -print0 | sort -z | xargs -0 sha256sum >/tmp/sums\n\
        echo 3 >/proc/sys/vm/drop_caches\n\
        cd \"$1/tree\" && sha256sum --quiet -c /tmp/sums && cd /\n\
        mv \"$1/tree\" \"$1/renamed\"\n\
        tar -C \"$1/renamed\" -df /job/sources.tar\n\
        wc -l </tmp/sums\n\
        rm -r /tmp/tree /tmp/sums";
    let files = lab.guest_within(LONG, script, &[&mount.path])?;
    lab.umount(&mount)?;
    let seen =
        if server.address == GUEST { "/job/sources.tar".to_owned() } else { archive.display().to_string() };
    lab.server_script(&server, "tar -C renamed -df \"$1\"", &[&seen]).context("the tree on the server")?;
    fs::remove_file(&archive)?;
    Ok(format!("{} files", files.trim()))
}

fn inline_sizes(lab: &mut Lab) -> Result<Detail, Failure> {
    let sizes = [1024, 8192, 65536];
    for inline in sizes {
        let (server, mount) = mounted(lab, &["--inline", &inline.to_string()], "")?;
        let what = format!("with --inline {inline}");
        lab.workload(SHORT, "write-read-sizes", &[&mount.path]).context(&what)?;
        lab.workload(SHORT, "symlinks", &[&mount.path]).context(&what)?;
        lab.guest_within(SHORT, UP_TO_THRESHOLDS, &[&mount.path, "near"]).context(&what)?;
        lab.umount(&mount)?;
        lab.server_workload(&server, "check-sizes", &[])?;
        lab.stop(&server)?;
    }
    let due = sizes.map(|inline| Settings { inline, credits: DEFAULT_CREDITS });
    check_settings(&lab.recording()?.sessions, &due)
}

/// Measures both servers in the guest, with their files on its disk, so that only they differ. On the host our server
/// would be behind QEMU's network. In a tmpfs, knfsd of Linux 6.1 takes minutes for the listing.
fn speed(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.knfsd()?;
    fs::copy(&lab.rpcrdma, lab.shared().join("rpcrdma"))?;
    let size = ["5000", "10000"];
    let ours = lab.guest_within(LONG, SPEED_OURS, &size)?;
    let theirs = lab.guest_within(LONG, SPEED_KNFSD, &size)?;
    let time = |text: &str, what: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(what)?.trim().parse::<f64>().ok())
            .ok_or_else(|| Failure::new(format!("no time of {what} in {text:?}")))
    };
    println!("  {:24} {:>10} {:>10} {:>6}", "kernel client, seconds", "rpcrdma", "knfsd", "ratio");
    let mut words = Vec::new();
    for (what, title) in [
        ("write", "write 64 MiB"),
        ("read", "read 64 MiB"),
        ("create", "5,000 creates"),
        ("list", "ls -l of 10,000"),
    ] {
        let (mine, other) = (time(&ours, what)?, time(&theirs, what)?);
        println!("  {title:24} {mine:10.2} {other:10.2} {:6.2}", mine / other.max(0.01));
        words.push(format!("{title} {mine:.2} s ({other:.2} s)"));
    }
    Ok(format!("ours (knfsd): {}", words.join(", ")))
}

const SPEED_OURS: &str = "set -e\n\
    mkdir -p /srv/export/speed /mnt/speed\n\
    /job/rpcrdma serve --listen iwarp:10.0.2.15:20050 --tcp 10.0.2.15:20051 --state /srv/state \
        --export /=/srv/export,squash=none --json >/tmp/ready 2>&1 &\n\
    server=$!\n\
    trap 'umount -f /mnt/speed 2>/dev/null || :; kill $server; wait $server || :; rm -rf /srv/*' EXIT\n\
    for _ in $(seq 200); do grep -q rdma /tmp/ready && break; sleep 0.05; done\n\
    mount -t nfs -o vers=3,proto=rdma,port=20050,mountproto=tcp,mountport=20051,nolock,retry=0 10.0.2.15:/ /mnt/speed\n\
    python3 -B /job/guest/workload.py speed /mnt/speed/speed /srv/export/speed \"$@\"\n\
    umount /mnt/speed";

const SPEED_KNFSD: &str = "set -e\n\
    mkdir -p /export/speed /mnt/speed\n\
    trap 'umount -f /mnt/speed 2>/dev/null || :; rm -rf /export/speed' EXIT\n\
    mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock,retry=0 \
        10.0.2.15:/export /mnt/speed\n\
    python3 -B /job/guest/workload.py speed /mnt/speed/speed /export/speed \"$@\"\n\
    umount /mnt/speed";
