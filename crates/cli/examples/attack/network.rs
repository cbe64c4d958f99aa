//! Private network of this program, where the server and each client have an address.
//!
//! All addresses of the loopback device count as one client ([`Origin`](rpcrdma::Origin)). So several clients
//! need other addresses.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{getegid, geteuid};

use crate::Failure;

/// Environment variable that marks the second run, inside the network.
const INSIDE: &str = "RPCRDMA_ATTACK_NETWORK";
/// Shell command after which all addresses of [`address`] belong to this machine.
const SET_UP: &str = "ip link set lo up && ip address add 192.0.2.0/24 dev lo";
/// Message about the programs and rights that the second run needs.
const NEEDED: &str = "the attacks need a network namespace of their own. That takes unshare (util-linux), ip (iproute2), \
                      and root or a kernel that allows ordinary users namespaces of users.";

/// Address of the server.
pub(crate) const SERVER: Ipv4Addr = address(1);

/// Returns the address 192.0.2.`last`.
pub(crate) const fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

/// Returns the command that runs a shell script in a new network namespace.
fn namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "sh", "-c", script, "sh"]);
    command
}

/// Replaces the first run by the second, with the same arguments. Returns in the second run.
///
/// # Errors
/// This machine does not allow it.
pub(crate) fn enter() -> Result<(), Failure> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    // An ordinary user is root while the network is set up, and then the same user again.
    let (user, group) = (geteuid(), getegid());
    let again = if user.is_root() {
        String::new()
    } else {
        format!("unshare --user --map-user={} --map-group={} ", user.as_raw(), group.as_raw())
    };
    // A trial run gives the reason for a failure.
    let trial = namespace(&format!("{SET_UP} && exec {again}true")).output();
    let wrong = match trial {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    };
    if let Some(wrong) = wrong {
        return Err(format!("{NEEDED} This machine says: {wrong}").into());
    }
    let error = namespace(&format!("{SET_UP} && exec {again}\"$@\""))
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {error}").into())
}
