//! Faults that only a device of the kernel has, or that look different there.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::failure::{Context, Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::cases::faults::{RECOVERY, Writers, pattern_file, served_writes, wait};
use crate::interop::cases::our_client::copies::BEGUN;
use crate::interop::cases::our_client::remote::Remote;
use crate::interop::lab::{Lab, Server};
use crate::interop::pattern::matches;
use crate::process;

/// Number of clients that are killed.
const ROUNDS: usize = 12;
/// KiB by which the memory of a warm server may grow: less than one round holds.
const GROWTH: u64 = 16 << 10;

/// Checks that the kernel ends the connection of a killed process, and that the server then frees its resources.
pub(super) fn client_killed(lab: &mut Lab) -> Result<Detail, Failure> {
    let (remote, server) = Remote::ours(lab)?;
    pattern_file(&lab.folder.join("data"), 64)?;
    remote.succeed(lab, &["put", "data", &remote.url("whole")])?;
    fs::create_dir(lab.folder.join("got"))?;
    let alone = resources(lab, &server)?.connections;
    let (put, get, whole) = (remote.url("data-again"), "got/data", remote.url("whole"));
    let (mut warm, mut early) = (0, 0);
    for round in 0..ROUNDS {
        let (command, directory) = if round % 2 == 0 {
            (["put", "data", &put], remote.directory())
        } else {
            (["get", &whole, get], "/job/case/got")
        };
        let arguments = remote.with_options(&command);
        let job = lab.rpcrdma_start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        let begun = lab.guest(BEGUN, &[directory]);
        lab.guest_kill(&job)?;
        begun.context(format!("round {round}"))?;
        early += usize::from(lab.guest_status(&job, RECOVERY)? != Some(KILLED));
        let limit = RECOVERY * lab.accel().patience();
        let freed =
            process::until(limit, || Ok((resources(lab, &server)?.connections <= alone).then_some(())))?;
        ensure!(
            freed.is_some(),
            "round {round}: the server keeps the connection of a client that was killed"
        );
        lab.guest("rm -f \"$1\"/data* \"$1\"/.rpcrdma-*.part", &[directory])?;
        if round == ROUNDS / 3 {
            warm = resources(lab, &server)?.memory;
        }
    }
    ensure!(early * 2 < ROUNDS, "{early} of {ROUNDS} commands ended before they were killed");
    let grown = resources(lab, &server)?.memory.saturating_sub(warm);
    ensure!(grown < GROWTH, "the server has grown by {grown} KiB in {} rounds", ROUNDS - ROUNDS / 3);
    remote.succeed(lab, &["get", &remote.url("whole"), "back"])?;
    let (here, back) = (fs::read(lab.folder.join("data"))?, fs::read(lab.folder.join("back"))?);
    ensure!(here == back, "the file comes back changed");
    Ok(format!("{} of {ROUNDS} killed half-way; the server grew by {grown} KiB and serves", ROUNDS - early))
}

/// Status of a process that SIGKILL ended, as shells say it.
const KILLED: i32 = 137;

/// Resources of a server in the guest.
struct Resources {
    /// Descriptors of sockets and of RDMA devices: every connection has some. Files stay open for a while.
    connections: u64,
    /// Resident memory, in KiB.
    memory: u64,
}

fn resources(lab: &mut Lab, server: &Server) -> Result<Resources, Failure> {
    let pid = lab.pid(server).ok_or_else(|| Failure::new("the server does not run"))?.to_string();
    let script = "ls -l \"/proc/$1/fd\" 2>/dev/null | grep -cE 'socket:|infiniband'; \
                  awk '/^VmRSS:/ { print $2 }' \"/proc/$1/status\"";
    let text = lab.guest(script, &[&pid])?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(connections)), Some(Ok(memory))) => Ok(Resources { connections, memory }),
        _ => Err(Failure::new(format!("resources of the server: {text:?}"))),
    }
}

/// Checks the removal of the device. The kernel waits with it until the last user has closed the device, so the server
/// must let go at once. The kernel's client reconnects by itself.
pub(super) fn device_removed(lab: &mut Lab) -> Result<Detail, Failure> {
    const WRITERS: usize = 2;
    let fabric = lab.current_fabric()?;
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let writers = Writers::start(lab, &mount, WRITERS)?;
    let log = || fs::read_to_string(&server.log).unwrap_or_default();
    let limit = RECOVERY * lab.accel().patience();
    wait(limit, "no WRITE comes", || served_writes(&server) > 10)?;
    let before = log().len();
    lab.device("none").context("removing the device")?;
    lab.ensure_serving(&server)?;
    wait(limit, "the server does not name the removed device", || {
        log().get(before..).is_some_and(|text| text.lines().any(|line| line.contains(fabric.device())))
    })?;
    sleep(Duration::from_millis(500));
    let calls = served_writes(&server);
    lab.device(fabric.driver()).context("adding the device again")?;
    wait(limit, "no WRITE comes after the device is back", || served_writes(&server) > calls + 10)?;
    let (files, _) = writers.finish(lab, &server)?;
    lab.ensure_serving(&server)?;
    // The kernel's client announces that it lets go of the device.
    let announced = format!("rpcrdma: removing device {} for *", fabric.device());
    let complaints = lab.take_complaints()?;
    let others: Vec<&String> = complaints.iter().filter(|line| !matches(&announced, line)).collect();
    ensure!(others.is_empty(), "the kernel complains: {others:?}");
    Ok(format!("{WRITERS} writers, {files} files equal"))
}
