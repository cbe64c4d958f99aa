//! The network of the suite: a separate namespace, with only the guest and the suite's processes.
//!
//! A tap device joins the two, so TCP runs from end to end. Segments reach siw as they were sent, which its CRC check
//! needs (`iwarp::engine::output`), and segments of the kernel arrive unchanged too. The host's own addresses have no
//! listener of the suite, and no port can be occupied.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::failure::{Context, Failure, ensure};
use crate::process;

/// The suite's address, as the guest reaches it.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The guest's address. `interop/machine/init` sets it.
pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Name of the device that QEMU opens.
pub(crate) const TAP: &str = "guest";

const LIMIT: Duration = Duration::from_secs(20);

/// Moves this process into a new network namespace and sets up the network. Call this while there is only one thread:
/// its later threads and processes follow it.
///
/// The loopback device gets the MTU with which the tap device begins, so that an FPDU that the proxy forwards fits the
/// segments of either side.
pub(crate) fn enter() -> Result<(), Failure> {
    let own = fs::read_link("/proc/self/ns/net").context("the network namespace")?;
    // This process makes the namespace, which then lasts as long as it has a process.
    let mut first =
        process::bound("unshare").args(["--net", "sleep", "infinity"]).spawn().context("unshare")?;
    let entered = process::until(LIMIT, || {
        ensure!(matches!(first.try_wait(), Ok(None)), "unshare --net: not permitted");
        let path = format!("/proc/{}/ns/net", first.id());
        if fs::read_link(&path).is_ok_and(|theirs| theirs == own) {
            return Ok(None);
        }
        let namespace = File::open(path).context("the new network namespace")?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("entering the new network namespace")
            .map(Some)
    });
    process::kill(&mut first);
    ensure!(entered?.is_some(), "unshare --net made no network namespace");
    ip(&["link", "set", "lo", "mtu", "1500", "up"])?;
    ip(&["tuntap", "add", "dev", TAP, "mode", "tap"])?;
    ip(&["address", "add", &format!("{HOST}/24"), "dev", TAP])?;
    ip(&["link", "set", TAP, "up"])
}

/// Sets the MTU of the host's end of the link.
pub(crate) fn set_mtu(mtu: u16) -> Result<(), Failure> {
    ip(&["link", "set", TAP, "mtu", &mtu.to_string()])
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("ip");
    command.args(arguments);
    let finished = process::run(command, LIMIT)?;
    ensure!(finished.success(), "ip {}: {}", arguments.join(" "), finished.errors.trim());
    Ok(())
}
