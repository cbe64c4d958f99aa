//! Complaints in the guest's kernel log. A warning, an oops, a hanging task, or a complaint of siw, rpcrdma, NFS or
//! SunRPC makes a case fail, even if its operations succeeded.

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
];

/// Harmless lines of a healthy guest that contain such texts.
const HARMLESS: &[&str] = &[
    // The driver is compiled out of tree.
    "siw: loading out-of-tree module",
    "siw: module verification failed",
    "softiwarp attached",
    // Registrations at load.
    "rpc: registered",
    "rpc/rdma",
    "rpcrdma: registered",
    "nfsd: using",
    "nfsd: end of grace",
    "nfsd: starting",
    "nfsd: last server has exited",
    "nfsd: unable to find recovery directory",
    "infiniband siw0: device",
];

/// Returns the lines that are complaints.
pub(crate) fn complaints(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| {
            let lower = line.to_lowercase();
            COMPLAINTS.iter().any(|complaint| lower.contains(complaint))
                && !HARMLESS.iter().any(|harmless| lower.contains(harmless))
        })
        .collect()
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
            complaints(log),
            ["[    9.0] siw: failed to parse", "[    9.1] WARNING: CPU: 0 PID: 1 at lib/refcount.c:28"]
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
        ] {
            assert_eq!(complaints(line), [line]);
        }
    }
}
