//! Gives up rights before the server serves, so that a fault in it is of little use to an attacker.
//!
//! * **No new privileges:** programs that the process runs get no more rights than it has
//!   (`PR_SET_NO_NEW_PRIVS`).
//! * **Capabilities:** those that serve to act as callers and to find files by handles stay. Those of the
//!   superuser over files stay only if an export has `squash=none`.
//! * **Landlock,** where file handles come from the map of names: the process can change files only in the
//!   exports and the state directory. It can read those of the system. Landlock stays off where handles are
//!   the kernel's, because it refuses files that `open_by_handle_at` finds without their path. Below ABI 2
//!   (Linux 5.19) it would forbid renames between directories, and stays off too.
//!
//! A server that listens on RDMA adapters keeps access to their devices. It keeps the right to lock memory only
//! where the limit of locked memory cannot be lifted.
//!
//! These restrictions belong to a thread, and threads that it starts inherit them. So they are set while
//! there is only one.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Capabilities to act as callers, and to open files by handles and for their owners.
const CALLERS: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Rights of root over files, for callers that are root.
const SUPERUSER: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD);

/// Ports below this number need a capability.
const PRIVILEGED_PORTS: u16 = 1024;

/// Directories that hold users, groups, host names and time zones, and the libraries that the C library loads
/// for them. They are read only.
const SYSTEM: [&str; 9] = ["/bin", "/etc", "/lib", "/lib64", "/proc", "/run", "/sys", "/usr", "/var/lib"];

/// Devices of adapters, which libibverbs and librdmacm open for each listener and connection. The libraries read
/// the rest in [`SYSTEM`]: /sys, /etc/libibverbs.d, and the drivers in the library directories.
const ADAPTERS: &str = "/dev/infiniband";

/// Rights that the server needs.
#[derive(Debug)]
pub(super) struct Needs<'a> {
    /// Whether callers can be root.
    pub(super) superuser: bool,
    /// Ports on which the server will listen.
    pub(super) ports: &'a [u16],
    /// Directories that the server writes to.
    pub(super) directories: &'a [&'a Path],
    /// Folders with files that libraries read again while the server runs.
    pub(super) folders: &'a [PathBuf],
    /// Folders of which libraries read all files.
    pub(super) listed: &'a [PathBuf],
    /// Whether files are found by the kernel's handles, without their paths. Access to other directories then
    /// stays.
    pub(super) kernel_handles: bool,
    /// Whether the server may listen on RDMA adapters.
    pub(super) adapters: bool,
    /// Whether it registers more memory there than the limit of locked memory allows.
    pub(super) lock_memory: bool,
}

/// Gives up all rights but these. Call this while the process has one thread. Returns whether Landlock confines the process.
///
/// # Errors
/// The kernel refuses a change. On a kernel without Landlock the function logs that and succeeds.
pub(super) fn confine(needs: &Needs<'_>) -> io::Result<bool> {
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    let kept = had.permitted.intersection(kept(needs));
    if kept != had.permitted || kept != had.effective || !had.inheritable.is_empty() {
        set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
        )?;
    }
    if needs.kernel_handles {
        return Ok(false);
    }
    match restrict(needs) {
        Ok(()) => {
            tracing::debug!("confined to the exports by Landlock");
            Ok(true)
        }
        Err(error) => {
            tracing::info!(%error, "not confined to the exports by Landlock");
            Ok(false)
        }
    }
}

fn kept(needs: &Needs<'_>) -> CapabilitySet {
    let mut kept = CALLERS;
    if needs.superuser {
        kept |= SUPERUSER;
    }
    if needs.ports.iter().any(|port| (1..PRIVILEGED_PORTS).contains(port)) {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    if needs.lock_memory {
        kept |= CapabilitySet::IPC_LOCK;
    }
    kept
}

fn restrict(needs: &Needs<'_>) -> Result<(), RulesetError> {
    let abi = ABI::V2;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?
        .create()?;
    let shared = SYSTEM.iter().map(|path| (Path::new(path), AccessFs::from_read(abi)));
    let own = needs.directories.iter().map(|path| (*path, AccessFs::from_all(abi)));
    let devices = AccessFs::ReadDir | AccessFs::ReadFile | AccessFs::WriteFile;
    let adapters = needs.adapters.then_some((Path::new(ADAPTERS), devices));
    let files = needs.folders.iter().map(|path| (path.as_path(), AccessFs::ReadFile.into()));
    let listed = needs.listed.iter().map(|path| (path.as_path(), AccessFs::ReadFile | AccessFs::ReadDir));
    for (path, access) in shared.chain(own).chain(adapters).chain(files).chain(listed) {
        // A missing directory needs no rule.
        if let Ok(directory) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(directory, access))?;
        }
    }
    ruleset.restrict_self().map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::thread::no_new_privs;

    use super::*;

    const NOTHING: Needs<'_> = Needs {
        superuser: false,
        ports: &[],
        directories: &[],
        folders: &[],
        listed: &[],
        kernel_handles: true,
        adapters: false,
        lock_memory: false,
    };

    #[test]
    fn capabilities_that_are_kept() {
        let plain = Needs { ports: &[20049, 0], ..NOTHING };
        assert_eq!(kept(&plain), CALLERS);
        assert_eq!(kept(&Needs { superuser: true, ..plain }), CALLERS | SUPERUSER);
        let port = kept(&Needs { ports: &[2049, 1023], ..NOTHING });
        assert_eq!(port, CALLERS | CapabilitySet::NET_BIND_SERVICE);
        assert_eq!(kept(&Needs { adapters: true, ..NOTHING }), CALLERS);
        let locks = kept(&Needs { adapters: true, lock_memory: true, ..NOTHING });
        assert_eq!(locks, CALLERS | CapabilitySet::IPC_LOCK);
    }

    /// The test runs on its own thread, because the rights stay lost for that thread.
    #[test]
    fn what_was_given_up_is_gone() {
        let before = capabilities(None).unwrap();
        let after = std::thread::spawn(|| {
            confine(&NOTHING).unwrap();
            (capabilities(None).unwrap(), no_new_privs().unwrap())
        });
        let (after, no_new) = after.join().unwrap();
        assert!(no_new, "a program that it runs may get more rights");
        assert_eq!(after.permitted, before.permitted & CALLERS);
        assert_eq!(after.effective, after.permitted);
    }

    #[test]
    fn nothing_is_changed_outside_of_the_exports() {
        let known = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V2))
            .and_then(Ruleset::create);
        if let Err(error) = known {
            println!("skipped: no Landlock here: {error}");
            return;
        }
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["one", "two"] {
            fs::create_dir(inside.path().join(name)).unwrap();
        }
        let keys = tempfile::tempdir().unwrap();
        fs::write(keys.path().join("keytab"), "key").unwrap();
        let (tree, foreign) = (inside.path().to_owned(), outside.path().to_owned());
        let folders = vec![keys.path().to_owned()];
        let included = tempfile::tempdir().unwrap();
        fs::write(included.path().join("more.conf"), "").unwrap();
        let listed = vec![included.path().to_owned()];
        let confined = std::thread::spawn(move || {
            // The devices of adapters need not be there.
            let needs = Needs { directories: &[&tree], folders: &folders, listed: &listed, ..NOTHING };
            assert!(confine(&Needs { kernel_handles: false, adapters: true, ..needs }).unwrap());
            // A keytab can be read again, and nothing more.
            assert_eq!(fs::read(folders[0].join("keytab")).unwrap(), b"key");
            assert!(fs::write(folders[0].join("keytab"), "x").is_err());
            assert!(fs::read_dir(&folders[0]).is_err());
            assert_eq!(fs::read_dir(&listed[0]).unwrap().count(), 1);
            assert_eq!(fs::read(listed[0].join("more.conf")).unwrap(), b"");
            assert!(fs::read_dir("/").is_err(), "the system's own places only can be read");
            fs::write(tree.join("one/file"), "x").unwrap();
            fs::rename(tree.join("one/file"), tree.join("two/file")).unwrap();
            fs::hard_link(tree.join("two/file"), tree.join("one/link")).unwrap();
            fs::read("/etc/passwd").unwrap();
            for error in [
                fs::write(foreign.join("file"), "x").unwrap_err(),
                fs::read_dir(&foreign).map(drop).unwrap_err(),
                fs::hard_link(tree.join("two/file"), foreign.join("link")).unwrap_err(),
            ] {
                assert!(
                    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::CrossesDevices),
                    "{error}"
                );
            }
        });
        confined.join().unwrap();
    }

    /// Landlock refuses a file that was opened by its handle and has no known path.
    #[test]
    fn where_handles_are_the_kernels_no_directory_is_closed() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (tree, foreign) = (inside.path().to_owned(), outside.path().to_owned());
        let confined = std::thread::spawn(move || {
            assert!(!confine(&Needs { directories: &[&tree], ..NOTHING }).unwrap());
            fs::write(foreign.join("file"), "x").unwrap();
        });
        confined.join().unwrap();
    }
}
