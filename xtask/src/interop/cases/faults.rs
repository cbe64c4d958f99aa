//! Faults: servers that are killed, connections that are cut, clients that vanish. Afterwards the data is unchanged, no
//! process hangs, and the server has recovered its memory and connections.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::rdmap::Opcode;

use super::wire::{DEFAULT_CREDITS, INLINE, Settings, UP_TO_THRESHOLDS, check_settings};
use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::{Lab, Mount, Server};
use crate::interop::proxy::Cut;
use crate::interop::vm::Job;
use crate::process;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "server-killed",
        "Three SIGKILLs of our server while files are written: afterwards all data exists and no handle is stale",
        server_killed,
    )
    .within(180)
    .unseen(),
    Case::new(
        "repeated-calls",
        "Calls whose replies are lost with the connection are executed once: the repetition gets the first reply",
        repeated_calls,
    )
    .within(180),
    Case::new(
        "repeated-after-restart",
        "Repeated calls across a restart of the server: a repetition may at most report that its work is already done",
        repeated_after_restart,
    )
    .within(240),
    Case::new(
        "cut-in-rdma-read",
        "Connections reset in the middle of Read Responses: written files are complete",
        cut_in_rdma_read,
    )
    .within(120),
    Case::new(
        "cut-in-rdma-write",
        "Connections reset in the middle of RDMA Writes: the data read is complete",
        cut_in_rdma_write,
    )
    .within(120),
    Case::new(
        "client-killed",
        "A client that is killed with calls outstanding leaves no connection and no memory behind",
        client_killed,
    )
    .within(120)
    .unseen(),
    Case::new(
        "other-thresholds",
        "The server restarts with another inline size and other credits, and the kernel follows: as the wire shows, in the length of Sends too",
        other_thresholds,
    )
    .within(120),
    Case::new(
        "idle",
        "The server closes an idle connection, and the client reconnects for its next call",
        idle,
    ),
    Case::new(
        "knfsd-restarted",
        "The kernel's server restarts while our client stores a tree: all of it arrives",
        knfsd_restarted,
    )
    .within(120)
    .unseen(),
];

/// Maximum time for the guest to reconnect and continue. The kernel waits 5 s after a failed attempt, then longer.
pub(super) const RECOVERY: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub(super) fn wait(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
    let held = process::until(limit, || Ok(condition().then_some(())))?;
    ensure!(held.is_some(), "waited {limit:?} in vain: {what}");
    Ok(())
}

/// Returns the number of sockets of a server: its listeners, and one for each connection.
fn sockets(lab: &Lab, server: &Server) -> usize {
    let Some(pid) = lab.pid(server) else { return 0 };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Returns the resident memory of a server, in KiB.
fn resident(lab: &Lab, server: &Server) -> u64 {
    let status = lab.pid(server).and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok());
    let line = status.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the SHA-256 of a file on the host.
fn sha256(file: &Path) -> Result<String, Failure> {
    let mut command = Command::new("sha256sum");
    command.arg(file);
    let finished = process::run(command, Duration::from_secs(30))?;
    ensure!(finished.success(), "sha256sum {}: {}", file.display(), finished.errors);
    Ok(finished.text().split_whitespace().next().unwrap_or_default().to_owned())
}

/// Compares a directory of a server with a program's list of the files that it wrote: lines of SHA-256 and name.
fn compare(lab: &mut Lab, server: &Server, directory: &str, list: &str) -> Result<usize, Failure> {
    let seen = lab.server_script(
        server,
        "cd \"$1\" && find . -type f -printf '%P\\0' | xargs -0 sha256sum",
        &[directory],
    )?;
    let seen: HashMap<&str, &str> =
        seen.lines().filter_map(|line| line.split_once("  ")).map(|(digest, name)| (name, digest)).collect();
    let mut files = 0;
    for line in list.lines().filter(|line| !line.contains(": ")) {
        let Some((digest, name)) = line.split_once(' ') else { continue };
        let seen = seen.get(name).copied().unwrap_or("none");
        ensure!(seen == digest, "{name} differs: SHA-256 {seen}, {digest} was written");
        files += 1;
    }
    ensure!(files > 0, "nothing was written: {list}");
    Ok(files)
}

/// Programs of the guest that write files until they are told to stop, each in a directory of its own.
pub(super) struct Writers {
    /// The file whose existence stops them.
    stop: PathBuf,
    /// Their directories, below the mount and the export, and their jobs.
    started: Vec<(String, Job)>,
}

impl Writers {
    /// Starts so many of them on a mount.
    pub(super) fn start(lab: &mut Lab, mount: &Mount, count: usize) -> Result<Self, Failure> {
        let stop = lab.shared().join("stop-writing");
        let _ = fs::remove_file(&stop);
        let script = "mkdir \"$1\" && exec python3 /job/guest/write_until.py \"$@\"";
        let mut started = Vec::new();
        for writer in 0..count {
            let directory = format!("{}/writer-{writer}", mount.path);
            let job = lab.guest_start(script, &[&directory, "/job/stop-writing", &writer.to_string()])?;
            started.push((format!("writer-{writer}"), job));
        }
        Ok(Self { stop, started })
    }

    /// Stops them, and compares what they wrote with the server's files. Returns the number of files, and the notes of the
    /// programs.
    pub(super) fn finish(self, lab: &mut Lab, server: &Server) -> Result<(usize, Vec<String>), Failure> {
        fs::write(&self.stop, "")?;
        let (mut files, mut notes) = (0, Vec::new());
        for (directory, job) in &self.started {
            let output = lab.guest_finish(job, RECOVERY)?;
            files += compare(lab, server, directory, &output)?;
            notes.extend(output.lines().filter_map(|line| line.strip_prefix("note: ")).map(str::to_owned));
        }
        Ok((files, notes))
    }
}

/// Returns how many WRITE calls a server has answered.
pub(super) fn served_writes(server: &Server) -> usize {
    fs::read_to_string(&server.log).unwrap_or_default().matches("served WRITE").count()
}

pub(super) fn server_killed(lab: &mut Lab) -> Result<Detail, Failure> {
    const KILLS: usize = 3;
    const WRITERS: usize = 3;
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let writers = Writers::start(lab, &mount, WRITERS)?;
    let mut lines = 0;
    for _ in 0..KILLS {
        // Writes are in progress if calls have come since the last start, and the program runs until it is stopped.
        wait(RECOVERY, "no WRITE comes", || served_writes(&server) > lines + 10)?;
        lab.kill(&server)?;
        lines = served_writes(&server);
        sleep(Duration::from_millis(300));
        lab.launch(&server, &[])?;
    }
    wait(RECOVERY, "no WRITE comes after the last restart", || served_writes(&server) > lines + 10)?;
    let (files, notes) = writers.finish(lab, &server)?;
    let notes = if notes.is_empty() { String::new() } else { format!("; repeated: {}", notes.join(", ")) };
    Ok(format!("{KILLS} kills, {WRITERS} writers, {files} files equal{notes}"))
}

/// A call that changes something: the initial state, the command that calls it, and the check on the host that it was
/// executed.
struct Repeated {
    name: &'static str,
    /// Number of the procedure in NFS version 3.
    procedure: u32,
    prepare: &'static str,
    act: &'static str,
    executed: fn(&Path) -> bool,
    /// Error of the repetition if the server has forgotten the first execution; none if it succeeds even then.
    after_restart: Option<&'static str>,
}

const REPEATED: &[Repeated] = &[
    Repeated {
        name: "REMOVE",
        procedure: 12,
        prepare: "open(p + 'gone', 'w').close()",
        act: "os.remove(p + 'gone')",
        executed: |export| !export.join("gone").exists(),
        after_restart: Some("ENOENT"),
    },
    Repeated {
        name: "RENAME",
        procedure: 14,
        prepare: "open(p + 'old', 'w').close()",
        act: "os.rename(p + 'old', p + 'new')",
        executed: |export| export.join("new").exists(),
        after_restart: Some("ENOENT"),
    },
    Repeated {
        name: "MKDIR",
        procedure: 9,
        prepare: "os.listdir(p)",
        act: "os.mkdir(p + 'made')",
        executed: |export| export.join("made").exists(),
        after_restart: Some("EEXIST"),
    },
    Repeated {
        name: "RMDIR",
        procedure: 13,
        prepare: "os.mkdir(p + 'empty')",
        act: "os.rmdir(p + 'empty')",
        executed: |export| !export.join("empty").exists(),
        after_restart: Some("ENOENT"),
    },
    Repeated {
        name: "SYMLINK",
        procedure: 10,
        prepare: "os.listdir(p)",
        act: "os.symlink('target', p + 'symbolic')",
        executed: |export| export.join("symbolic").is_symlink(),
        after_restart: Some("EEXIST"),
    },
    Repeated {
        name: "LINK",
        procedure: 15,
        prepare: "open(p + 'linked', 'w').close()",
        act: "os.link(p + 'linked', p + 'hard')",
        executed: |export| export.join("hard").exists(),
        after_restart: Some("EEXIST"),
    },
    Repeated {
        name: "exclusive CREATE",
        procedure: 8,
        prepare: "os.listdir(p)",
        act: "os.close(os.open(p + 'exclusive', os.O_CREAT | os.O_EXCL | os.O_WRONLY))",
        executed: |export| export.join("exclusive").exists(),
        after_restart: None,
    },
    Repeated {
        name: "CREATE",
        procedure: 8,
        prepare: "os.listdir(p)",
        act: "os.close(os.open(p + 'plain', os.O_CREAT | os.O_WRONLY))",
        executed: |export| export.join("plain").exists(),
        after_restart: None,
    },
    Repeated {
        name: "MKNOD",
        procedure: 11,
        prepare: "os.listdir(p)",
        act: "os.mkfifo(p + 'fifo')",
        executed: |export| export.join("fifo").exists(),
        after_restart: Some("EEXIST"),
    },
    Repeated {
        name: "SETATTR",
        procedure: 2,
        prepare: "open(p + 'cut', 'w').write('0123456789')",
        act: "os.truncate(p + 'cut', 5)",
        executed: |export| length(&export.join("cut")) == Some(5),
        after_restart: None,
    },
    Repeated {
        name: "WRITE",
        procedure: 7,
        prepare: "open(p + 'synced', 'w').close()",
        act: "os.write(os.open(p + 'synced', os.O_WRONLY | os.O_SYNC), b'x')",
        executed: |export| length(&export.join("synced")) == Some(1),
        after_restart: None,
    },
];

fn length(file: &Path) -> Option<u64> {
    fs::metadata(file).map(|file| file.len()).ok()
}

/// Makes each call executed and its reply lost. Returns the results that the program in the guest got in the end.
fn repeat(lab: &mut Lab, restart: bool) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let proxy = lab.proxy(&server, &[])?;
    let mount = lab.mount_port(proxy.port, server.tcp, "")?;
    let mut told = String::new();
    for call in REPEATED {
        let program = format!("import errno, os, sys\np = sys.argv[1] + '/'\n{}\n", call.prepare);
        lab.guest("exec python3 -c \"$1\" \"$2\"", &[&program, &mount.path]).context(call.name)?;
        let program = format!(
            "import errno, os, sys\np = sys.argv[1] + '/'\ntry:\n    {}\n    print('ok')\nexcept OSError as error:\n    \
             print(errno.errorcode[error.errno])\n",
            call.act
        );
        proxy.hold_at(call.procedure);
        let job = lab.guest_start("exec python3 -c \"$1\" \"$2\"", &[&program, &mount.path])?;
        wait(RECOVERY, &format!("{} is not executed", call.name), || {
            proxy.held() > 0 && (call.executed)(&server.export)
        })?;
        if restart {
            lab.kill(&server)?;
            lab.launch(&server, &[])?;
        }
        proxy.reset();
        proxy.hold(false);
        let output = lab.guest_finish(&job, RECOVERY).context(call.name)?;
        let expected = if restart { call.after_restart.unwrap_or("ok") } else { "ok" };
        ensure!(output.trim() == expected, "{}: {} instead of {expected}", call.name, output.trim());
        ensure!((call.executed)(&server.export), "{}: undone", call.name);
        let _ = write!(told, "{}{} {}", if told.is_empty() { "" } else { ", " }, call.name, output.trim());
    }
    ensure!(proxy.connections() > REPEATED.len(), "the client has not connected again each time");
    lab.umount(&mount)?;
    Ok(told)
}

fn repeated_calls(lab: &mut Lab) -> Result<Detail, Failure> {
    repeat(lab, false)
}

fn repeated_after_restart(lab: &mut Lab) -> Result<Detail, Failure> {
    repeat(lab, true)
}

/// The first, an early and a late segment, each in a separate connection.
const CUT_AT: [usize; 3] = [1, 5, 60];

fn cuts(from: Side, opcode: Opcode) -> [Cut; 3] {
    CUT_AT.map(|number| Cut { from, opcode, number })
}

fn cut_in_rdma_read(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let proxy = lab.proxy(&server, &cuts(Side::Client, Opcode::ReadResponse))?;
    let mount = lab.mount_port(proxy.port, server.tcp, "")?;
    let script = "dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null && \
                  dd if=/tmp/data of=\"$1/data\" bs=1M conv=fsync 2>/dev/null && sha256sum </tmp/data; s=$?; \
                  rm -f /tmp/data; exit $s";
    let output = lab.guest_within(RECOVERY, script, &[&mount.path])?;
    let written = output.split_whitespace().next().unwrap_or_default();
    ensure!(proxy.cuts_made() == CUT_AT.len(), "{} of {} cuts were made", proxy.cuts_made(), CUT_AT.len());
    ensure!(sha256(&server.export.join("data"))? == written, "the file differs from the written data");
    lab.umount(&mount)?;
    Ok(format!("16 MiB equal after {} cuts", CUT_AT.len()))
}

fn cut_in_rdma_write(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let data = server.export.join("data");
    random_file(&data, 16)?;
    let proxy = lab.proxy(&server, &cuts(Side::Server, Opcode::Write))?;
    let mount = lab.mount_port(proxy.port, server.tcp, "")?;
    let output = lab.guest_within(RECOVERY, "sha256sum <\"$1/data\"", &[&mount.path])?;
    ensure!(proxy.cuts_made() == CUT_AT.len(), "{} of {} cuts were made", proxy.cuts_made(), CUT_AT.len());
    let seen = output.split_whitespace().next().unwrap_or_default();
    ensure!(sha256(&data)? == seen, "the data read differs from the file");
    lab.umount(&mount)?;
    Ok(format!("16 MiB equal after {} cuts", CUT_AT.len()))
}

/// Makes a file of random bytes.
fn random_file(file: &Path, mebibytes: u32) -> Result<(), Failure> {
    let mut command = Command::new("dd");
    command
        .args(["if=/dev/urandom", "bs=1M", &format!("count={mebibytes}")])
        .arg(format!("of={}", file.display()));
    let finished = process::run(command, Duration::from_secs(60))?;
    ensure!(finished.success(), "dd: {}", finished.errors);
    Ok(())
}

/// Makes a file with the pattern of `many_reads.py`: the number of each eight bytes.
pub(super) fn pattern_file(file: &Path, mebibytes: u64) -> Result<(), Failure> {
    let words = mebibytes * (1 << 20) / 8;
    let bytes: Vec<u8> = (0..words).flat_map(u64::to_be_bytes).collect();
    fs::write(file, bytes).context("writing a file to read")
}

fn client_killed(lab: &mut Lab) -> Result<Detail, Failure> {
    const ROUNDS: usize = 12;
    /// KiB by which the memory of a warm server may grow: less than one round holds.
    const GROWTH: u64 = 16 << 10;
    let server = lab.serve(&[])?;
    pattern_file(&server.export.join("data"), 32)?;
    let alone = sockets(lab, &server);
    let mut warm = 0;
    for round in 0..ROUNDS {
        let proxy = lab.proxy(&server, &[])?;
        let mount = lab.mount_port(proxy.port, server.tcp, "")?;
        let file = format!("{}/data", mount.path);
        let job = lab.guest_start(MANY_READS, &[&file, "8", "100000", "524288"])?;
        // In half of the rounds the server's replies are held back, so that its sockets are full as well.
        proxy.hold_at(READ);
        wait(RECOVERY, "no READ comes", || proxy.held() > 0)?;
        if round % 2 == 0 {
            proxy.hold(false);
        }
        sleep(Duration::from_millis(100));
        // The client's machine vanishes without notice: no process answers on this port again.
        let port = proxy.port;
        drop(proxy);
        lab.guest_kill(&job)?;
        lab.guest("umount -f \"$1\" || umount -f -l \"$1\"", &[&mount.path])
            .context(format!("port {port}"))?;
        lab.forget(&mount);
        wait(RECOVERY, "connections stay open", || sockets(lab, &server) == alone)?;
        if round == ROUNDS / 3 {
            warm = resident(lab, &server);
        }
    }
    let grown = resident(lab, &server).saturating_sub(warm);
    ensure!(grown < GROWTH, "the server has grown by {grown} KiB in {} rounds", ROUNDS - ROUNDS / 3);
    let mount = lab.mount(&server, "")?;
    let file = format!("{}/data", mount.path);
    lab.guest_within(RECOVERY, MANY_READS, &[&file, "8", "20", "524288"])?;
    Ok(format!("{ROUNDS} clients gone; the server grew by {grown} KiB and serves"))
}

/// Reads a [`pattern_file`]: arguments are the file, processes, reads of each, and bytes of one.
pub(super) const MANY_READS: &str = "exec python3 /job/guest/many_reads.py \"$@\"";

/// READ of NFS version 3.
pub(super) const READ: u32 = 6;

fn other_thresholds(lab: &mut Lab) -> Result<Detail, Failure> {
    let settings = [(INLINE, DEFAULT_CREDITS), (16384, 8), (1024, 1), (1024, 512), (4096, 3)]
        .map(|(inline, credits)| Settings { inline, credits });
    let server = lab.serve(&[])?;
    pattern_file(&server.export.join("data"), 4)?;
    let mount = lab.mount(&server, "")?;
    let file = format!("{}/data", mount.path);
    for (round, options) in settings.iter().enumerate() {
        if round > 0 {
            lab.stop(&server)?;
            let Settings { inline, credits } = options;
            lab.launch(&server, &["--inline", &inline.to_string(), "--credits", &credits.to_string()])?;
        }
        let number = round.to_string();
        lab.guest_within(RECOVERY, MANY_READS, &[&file, "16", "20", "65536"])
            .context(format!("{options:?}"))?;
        // Inline sizes around all thresholds, and names that make long replies.
        let script = "for n in 0 1 900 1000 3800 3900 4096 15900 16384 100000; do \
                      head -c $n /dev/zero >\"$1/$2-$n\" && [ \"$(wc -c <\"$1/$2-$n\")\" = $n ] || exit 1; done; \
                      echo 3 >/proc/sys/vm/drop_caches; ls -l \"$1\" | grep -c \" $2-\"";
        let output =
            lab.guest_within(RECOVERY, script, &[&mount.path, &number]).context(format!("{options:?}"))?;
        ensure!(output.trim() == "10", "{options:?}: {} of 10 files are listed", output.trim());
        lab.guest_within(RECOVERY, UP_TO_THRESHOLDS, &[&mount.path, &format!("near-{round}")])
            .context(format!("{options:?}"))?;
    }
    lab.umount(&mount)?;
    check_settings(&lab.recording()?.sessions, &settings)
}

fn idle(lab: &mut Lab) -> Result<Detail, Failure> {
    const ROUNDS: usize = 3;
    let server = lab.serve(&["--idle", "2"])?;
    let alone = sockets(lab, &server);
    let proxy = lab.proxy(&server, &[])?;
    let mount = lab.mount_port(proxy.port, server.tcp, "")?;
    for round in 0..ROUNDS {
        wait(RECOVERY, "the connection stays open", || sockets(lab, &server) == alone)?;
        let script = "echo \"$2\" >\"$1/file\" && echo 3 >/proc/sys/vm/drop_caches && cat \"$1/file\"";
        let output = lab.guest_within(RECOVERY, script, &[&mount.path, &round.to_string()])?;
        ensure!(output.trim() == round.to_string(), "read {output:?}");
    }
    let connections = proxy.connections();
    ensure!(connections > ROUNDS, "{connections} connections in {ROUNDS} rounds");
    lab.umount(&mount)?;
    Ok(format!("{connections} connections"))
}

fn knfsd_restarted(lab: &mut Lab) -> Result<Detail, Failure> {
    const RESTARTS: usize = 2;
    const FILES: usize = 400;
    let knfsd = lab.knfsd()?;
    let tree = lab.folder.join("tree");
    fs::create_dir_all(&tree)?;
    for number in 0..FILES {
        let size = if number % 20 == 0 { 4 << 20 } else { number * 331 };
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + number + at / 4096).to_le_bytes()[0]).collect();
        fs::write(tree.join(format!("file-{number}")), bytes)?;
    }
    lab.guest("rm -rf /export/memory/tree", &[])?;
    let address = knfsd.address();
    let mountport = knfsd.mountd.to_string();
    let url = format!("nfs://{address}/export/memory/");
    let mut command = process::bound(&lab.rpcrdma);
    command
        .args(["put", "-r", "--timeout", "60", "--mountport", &mountport])
        .args([tree.as_os_str(), url.as_ref()])
        .stdout(Stdio::null())
        .stderr(fs::File::create(lab.folder.join("put.log"))?);
    let mut put = command.spawn().context("starting rpcrdma put")?;
    let result = (|| {
        for restart in 1..=RESTARTS {
            let script = "n=0; until [ \"$(ls /export/memory/tree 2>/dev/null | wc -l)\" -ge \"$1\" ]; do \
                          n=$((n+1)); [ $n -lt 3000 ] || exit 1; sleep 0.01; done\n\
                          rpc.nfsd 0 && sleep 0.2 && rpc.nfsd 4 && echo 'rdma 20049' >/proc/fs/nfsd/portlist && \
                          ls /export/memory/tree | wc -l";
            let there = lab.guest(script, &[&(restart * FILES / 10).to_string()])?;
            ensure!(there.trim() != FILES.to_string(), "the tree was there before restart {restart}");
        }
        let status = process::wait(&mut put, RECOVERY)?;
        let log = process::tail(&lab.folder.join("put.log"), 5);
        ensure!(status.is_some_and(|status| status.success()), "put: {status:?} {log}");
        Ok(())
    })();
    process::kill(&mut put);
    result?;
    let back = lab.folder.join("back");
    let back = back.display().to_string();
    let get = ["get", "-r", "--mountport", &mountport, &format!("{url}tree"), &back];
    let finished = lab.rpcrdma(RECOVERY, &get)?;
    ensure!(finished.success(), "get: {} {}", finished.ending(), finished.errors);
    let mut diff = Command::new("diff");
    diff.arg("-r").arg(&tree).arg(&back);
    let finished = process::run(diff, Duration::from_secs(60))?;
    ensure!(finished.success(), "the trees differ: {}", process::last_lines(&finished.text(), 5));
    lab.guest("rm -rf /export/memory/tree", &[])?;
    Ok(format!("{FILES} files equal after {RESTARTS} restarts"))
}
