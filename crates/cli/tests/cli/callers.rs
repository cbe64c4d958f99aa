//! Options of a server about trust in callers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::support::{Server, run, scratch, succeed, text};

/// A user of no database, and a group that no database gives that user.
const USER: u32 = 64_321;
const GROUP: u32 = 64_322;

/// Groups that a caller claims open a file only where the server believes callers of its own machine.
#[test]
fn claimed_groups_count_only_where_callers_are_believed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let [user, group] = [USER, GROUP].map(|id| id.to_string());
    for (options, believed) in [
        (&[][..], false),
        (&["--trust-local-users"], true),
        (&["--trust-local-users", "--manage-gids"], false),
    ] {
        let server = Server::start_with(options);
        fs::set_permissions(server.directory(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = server.directory().join("f");
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o040)).unwrap();
        chown(&file, Some(0), Some(GROUP)).unwrap();
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid", &user, "--regid", &user, "--groups", &group, env!("CARGO_BIN_EXE_rpcrdma")]);
        let Ok(output) = cat.args(["cat", &server.url("/f")]).output() else {
            eprintln!("skipped: there is no setpriv");
            return;
        };
        let complaint = text(&output.stderr);
        if complaint.contains("setpriv") {
            eprintln!("skipped: the binary is not reached by others: {complaint}");
            return;
        }
        assert_eq!(output.status.success(), believed, "{options:?}: {complaint}");
        assert_eq!(complaint.contains("NFS3ERR_ACCES"), !believed, "{options:?}: {complaint}");
    }
}

/// The clients of these tests use ports that all users may use.
#[test]
fn a_secure_export_is_closed_to_ordinary_ports_over_tcp() {
    let closed = scratch();
    let option = format!("/closed={},secure", closed.path().display());
    let server = Server::start_with(&["--export", &option]);
    let by_tcp = |path: &str| run(&["ls", "--proto", "tcp", &format!("nfs://{}{path}", server.tcp())]);
    assert!(by_tcp("/").status.success());
    let refused = by_tcp("/closed");
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("ACCES"), "{}", text(&refused.stderr));
    // Over RDMA, ports have no meaning.
    succeed(&["ls", &server.url("/closed")]);
}
