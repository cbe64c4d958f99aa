//! Complaints in the guest's kernel log. A warning, an oops, a hanging task, or a complaint of siw, rxe, rpcrdma, NFS or
//! SunRPC makes a case fail, even if its operations succeeded.

use super::fabric::Fabric;
use super::pattern::matches;

/// Texts that no line of the log may contain, in lower case.
const COMPLAINTS: &[&str] = &[
    "warning:",
    "bug:",
    "kernel bug at",
    "oops:",
    "call trace",
    "general protection",
    "kernel null pointer",
    "unable to handle",
    "refcount_t",
    "list_add corruption",
    "list_del corruption",
    "use-after-free",
    "blocked for more than",
    "soft lockup",
    "rcu: info",
    "possible deadlock",
    "siw:",
    "siw_",
    "rpcrdma:",
    "svcrdma:",
    "xprtrdma:",
    "svc_rdma",
    "rpc:",
    "nfs:",
    "nfsd:",
    "lockd:",
    "infiniband siw0",
    "rdma_rxe:",
    "infiniband rxe0",
];

/// Lines of a healthy guest that contain such texts: patterns for the whole line, and the reason for each.
const HARMLESS: &[(&str, &str)] = &[
    ("siw: loading out-of-tree module taints kernel.", "the suite compiles the driver"),
    (
        "siw: module verification failed: signature and/or required key missing - tainting kernel",
        "and does not sign it",
    ),
    ("rdma_rxe: loaded", "rxe at load"),
    ("infiniband rxe0: set active", "a case adds the device"),
    ("infiniband rxe0: added *", "a case adds the device"),
    ("RPC: Registered * transport module.", "sunrpc, xprtrdma and svcrdma at load"),
    ("NFSD: Using * client tracking operations.", "knfsd starts"),
    ("NFSD: starting *-second grace period (net *)", "knfsd starts"),
    ("NFSD: end of grace period (net *)", "knfsd starts"),
    (
        "NFSD: Unable to find recovery directory /var/lib/nfs/v4recovery",
        "knfsd starts; it is for NFSv4, which no case uses",
    ),
    ("nfsd: last server has exited, flushing export cache", "a case stops knfsd"),
];

/// The provider tries whether siw takes addresses of its choice. siw does not, and ends the connection of the trial.
const TRIAL_ON_SIW: &str = "siw: got TERMINATE. layer 0, type 0, code 255";

/// Lines about a killed process on siw: memory of the process goes before its queue pair. A Write or a Read that arrives
/// meanwhile has the first line as its answer, a Send or a Read Response the second.
pub(crate) const KILLED_ON_SIW: [&str; 2] =
    ["siw: got TERMINATE. layer *, type 1, code *", "siw: got TERMINATE. layer 1, type 0, code 0"];

/// When rxe sends a message again, it begins at the oldest work request that has not completed. It then executes
/// registrations behind that one twice. The kernel's client connects anew and repeats its calls.
const REGISTERED_AGAIN_ON_RXE: &str = "rdma_rxe: rxe_reg_fast_mr: mr->lkey = * not free";

/// Returns the pattern of lines that a device explains, whatever a case does with it.
pub(crate) const fn explained(fabric: Fabric) -> &'static str {
    match fabric {
        Fabric::Siw => TRIAL_ON_SIW,
        Fabric::RxeWindows | Fabric::RxeRegistrations => REGISTERED_AGAIN_ON_RXE,
    }
}

/// Returns the lines that are complaints and match none of the patterns, without their times.
pub(crate) fn complaints<'a>(log: &'a str, explained: &[&str]) -> Vec<&'a str> {
    log.lines()
        .map(without_time)
        .filter(|line| {
            let lower = line.to_lowercase();
            COMPLAINTS.iter().any(|complaint| lower.contains(complaint))
                && !HARMLESS.iter().any(|(harmless, _)| matches(harmless, line))
                && !explained.iter().any(|pattern| matches(pattern, line))
        })
        .collect()
}

/// Removes `[  123.456789] ` from a line.
fn without_time(line: &str) -> &str {
    let time = |time: &str| time.bytes().all(|byte| byte.is_ascii_digit() || b" .".contains(&byte));
    line.strip_prefix('[')
        .and_then(|line| line.split_once("] "))
        .filter(|(inner, _)| time(inner))
        .map_or(line, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_the_start_up() {
        let log = "[    1.0] siw: loading out-of-tree module taints kernel.\n\
                   [    1.1] SoftiWARP attached\n\
                   [    1.2] RPC: Registered rdma transport module.\n\
                   [    9.0] siw: failed to parse\n\
                   [    9.1] WARNING: CPU: 0 PID: 1 at lib/refcount.c:28\n\
                   [    9.2] random: crng init done\n\
                   [    9.3] calibrate_delay_direct() failed to get a good estimate for loops_per_jiffy.\n";
        assert_eq!(
            complaints(log, &[]),
            ["siw: failed to parse", "WARNING: CPU: 0 PID: 1 at lib/refcount.c:28"]
        );
    }

    #[test]
    fn what_matters_is_a_complaint() {
        for line in [
            "nfs: server 10.0.2.2 not responding, still trying",
            "INFO: task python3:300 blocked for more than 60 seconds.",
            "BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "kernel BUG at lib/sg_pool.c:117!",
            "Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "rpcrdma: connection to 10.0.2.2:20049 closed (-103)",
            "svcrdma: Send completion error",
            // Nearly harmless, or with more behind it.
            "siw: loading out-of-tree module taints kernel. siw: failed",
            "RPC: Registered nothing",
            "NFSD: starting up failed",
            "[x] nfs: server 10.0.2.2 OK",
        ] {
            assert_eq!(complaints(line, &[]), [line]);
        }
    }

    #[test]
    fn each_harmless_line_has_a_reason_and_would_be_a_complaint() {
        for (line, reason) in HARMLESS {
            let lower = line.to_lowercase();
            assert!(
                !reason.is_empty() && COMPLAINTS.iter().any(|complaint| lower.contains(complaint)),
                "{line}"
            );
            assert_eq!(complaints(&format!("[   12.345678] {line}"), &[]), [""; 0]);
        }
    }

    #[test]
    fn a_line_is_explained_only_where_it_belongs() {
        let again = "rdma_rxe: rxe_reg_fast_mr: mr->lkey = 0x1eaf not free";
        let cut = "siw: got TERMINATE. layer 1, type 0, code 0";
        let (rxe, siw) = (explained(Fabric::RxeWindows), explained(Fabric::Siw));
        let log = format!("[    1.5] {again}\n[    2.5] {cut}\n[    3.5] {TRIAL_ON_SIW}\n");
        assert_eq!(complaints(&log, &[]), [again, cut, TRIAL_ON_SIW]);
        assert_eq!(complaints(&log, &[rxe]), [cut, TRIAL_ON_SIW]);
        assert_eq!(complaints(&log, &[siw]), [again, cut]);
        assert_eq!(complaints(&log, &[&[siw], &KILLED_ON_SIW[..]].concat()), [again]);
    }
}
