//! A network of this program's own, where the server and each client have an address.
//!
//! All addresses of the loopback device count as one client ([`Origin`](rpcrdma::Origin)). So several clients need others.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{getegid, geteuid};

use crate::Failure;

/// Tells the second run that it is in the network.
const INSIDE: &str = "RPCRDMA_ATTACK_NETWORK";
/// All addresses of [`address`] are this machine's there.
const SET_UP: &str = "ip link set lo up && ip address add 192.0.2.0/24 dev lo";
/// Programs and rights without which there is no second run.
const NEEDED: &str = "the attacks need a network namespace of their own. That takes unshare (util-linux), ip (iproute2), \
                      and root or a kernel that allows ordinary users namespaces of users.";

/// The server's address.
pub(crate) const SERVER: Ipv4Addr = address(1);

/// An address of that network: 192.0.2.`last`.
pub(crate) const fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

/// `sh` with a script, in a new network namespace.
fn namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "sh", "-c", script, "sh"]);
    command
}

/// Returns in the second run. The first one becomes the second, with the same arguments.
///
/// # Errors
/// If this machine does not allow it.
pub(crate) fn enter() -> Result<(), Failure> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    // An ordinary user is root while the network is set up, and then that user again.
    let (user, group) = (geteuid(), getegid());
    let again = if user.is_root() {
        String::new()
    } else {
        format!("unshare --user --map-user={} --map-group={} ", user.as_raw(), group.as_raw())
    };
    // The trial says what is wrong.
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
