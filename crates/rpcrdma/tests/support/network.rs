//! Clients with addresses of their own, in a network namespace: all addresses of the loopback device count as one
//! ([`Origin`](rpcrdma::Origin)).

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use rustix::process::geteuid;

/// Environment variable that marks the second run, in the namespace.
const INSIDE: &str = "RPCRDMA_TEST_NETWORK";
/// In the namespace, all addresses of [`host`] belong to this machine.
const SET_UP: &str = "ip link set lo up && ip address add 192.0.2.0/24 dev lo";

/// Returns an address of the namespace.
pub fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// Runs the test of this name once more, in a network namespace of its own. Returns `true` in the second run, which
/// does the testing.
///
/// An ordinary user gets such a namespace together with a user namespace, if the kernel's configuration allows that.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "sh", "-c", script, "sh"]);
        command
    };
    match namespace(SET_UP).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            println!("skipped: no network namespace: {}", String::from_utf8_lossy(&output.stderr).trim());
            return false;
        }
        Err(error) => {
            println!("skipped: no network namespace: unshare: {error}");
            return false;
        }
    }
    let output = namespace(&format!("{SET_UP} && exec \"$1\" --exact \"$2\""))
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A wrong name would run no test, and succeed.
    assert!(output.status.success() && told.contains("1 passed"), "in the namespace: {told}{errors}");
    false
}
