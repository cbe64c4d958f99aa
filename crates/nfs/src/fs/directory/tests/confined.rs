//! A server that is root and has given up the capabilities that it does not need, as `rpcrdma serve` does
//! after opening its exports.

use std::fs::{FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;

/// Capabilities that such a server keeps.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Gives up all capabilities of this thread but these.
fn keep(kept: CapabilitySet) {
    let mut sets = capabilities(None).unwrap();
    sets.effective &= kept;
    sets.permitted &= kept;
    set_capabilities(None, sets).unwrap();
}

/// Serves a tree with the file that `prepare` makes, from a thread that gives up capabilities after opening
/// the tree.
fn confined(
    kept: CapabilitySet,
    prepare: impl FnOnce(&Path) -> PathBuf,
    test: impl FnOnce(&Path, &DirectoryFs, FileId) + Send,
) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has capabilities to give up");
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o777)).unwrap();
    let path = prepare(tree.path());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The tree is opened with all rights except those that such a server never had.
            keep(kept | (CapabilitySet::all() - KEPT));
            let (_place, fs) = open(tree.path(), HandleSource::Automatic);
            keep(kept);
            if kept == KEPT && !fs.acts_as_callers() {
                println!("skipped: this process cannot act as its callers");
                return;
            }
            let name = LookupName::new(path.file_name().unwrap().as_encoded_bytes()).unwrap();
            let id = fs.lookup(&Identity::superuser(), &fs.root(), name).unwrap().node.id;
            test(&path, &fs, id);
        });
        thread.join().unwrap();
    });
}

/// Makes a file of eight bytes that was not used for long.
fn old_file(owner: (u32, u32), mode: u32) -> impl FnOnce(&Path) -> PathBuf {
    move |tree| {
        let path = tree.join("file");
        fs::write(&path, "precious").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_times(FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH)).unwrap();
        chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

fn is_new(time: SystemTime) -> bool {
    time > UNIX_EPOCH + Duration::from_secs(1)
}

/// As `touch -a` and `open(O_TRUNC)` do. The kernel lets a caller with only the right to write set both times
/// at once, but not one.
#[test]
fn who_may_write_sets_one_time_and_the_size_of_a_file_of_somebody_else() {
    let writer = Identity { uid: 1001, gid: 1001, groups: Vec::new() };
    for (size, accessed, modified) in [
        (None, true, false),
        (None, false, true),
        (None, true, true),
        (Some(3), true, true),
        (Some(0), true, false),
        (Some(3), false, true),
    ] {
        let time = |now| if now { SetTime::Now } else { SetTime::Keep };
        let new = SetAttributes {
            size,
            accessed: time(accessed),
            modified: time(modified),
            ..SetAttributes::default()
        };
        confined(KEPT, old_file((1000, 1000), 0o666), |path, fs, id| {
            let outcome = fs.set_attributes(&writer, &id, &new, None);
            let after = fs::metadata(path).unwrap();
            let moved = (is_new(after.accessed().unwrap()), is_new(after.modified().unwrap()));
            assert_eq!(
                (outcome.result, after.len(), moved),
                (Ok(()), size.unwrap_or(8), (accessed, modified || size.is_some())),
                "{new:?}"
            );
        });
    }
}

/// The former group need not be one of the owner's.
#[test]
fn a_group_is_given_back_without_capabilities() {
    let owner = Identity { uid: 1000, gid: 1000, groups: vec![3000] };
    for group in [1000, 5000] {
        confined(KEPT, old_file((1000, group), 0o2674), |path, fs, id| {
            let before = fs.object(&id).unwrap();
            let new = SetAttributes { gid: Some(3000), ..SetAttributes::default() };
            fs.set_attributes(&owner, &id, &new, None).result.unwrap();
            assert_eq!(fs::metadata(path).unwrap().gid(), 3000);
            // As after a failed change of the size.
            let new = SetAttributes { size: Some(3), ..new };
            fs.give_back(&owner, &before, &new, super::super::data::Times::default());
            let after = fs::metadata(path).unwrap();
            assert_eq!((after.uid(), after.gid(), after.mode() & 0o7777), (1000, group, 0o2674));
        });
    }
}

#[test]
fn a_time_is_given_back_without_capabilities() {
    let writer = Identity { uid: 1001, gid: 1001, groups: Vec::new() };
    confined(KEPT, old_file((1000, 1000), 0o666), |path, fs, id| {
        let before = fs.object(&id).unwrap();
        let new = SetAttributes { accessed: SetTime::Now, ..SetAttributes::default() };
        fs.set_attributes(&writer, &id, &new, None).result.unwrap();
        assert!(is_new(fs::metadata(path).unwrap().accessed().unwrap()));
        let times = super::super::data::Times::of(&new, false, true).unwrap();
        fs.give_back(&writer, &before, &SetAttributes { size: Some(3), ..new }, times);
        let after = fs::metadata(path).unwrap();
        assert!(!is_new(after.accessed().unwrap()) && !is_new(after.modified().unwrap()));
    });
}

/// Then everything happens as the process, which has fewer rights than at its start.
#[test]
fn who_cannot_act_as_others_knows_what_was_given_up() {
    let kept = KEPT - CapabilitySet::SETGID;
    confined(kept, old_file((1000, 1000), 0o666), |path, fs, id| {
        assert!(!fs.acts_as_callers());
        let who = Identity { uid: 1000, gid: 1000, groups: Vec::new() };
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let before = fs.attributes(&id).unwrap();
        for refused in [
            SetAttributes { mode: Some(0o600), ..cut },
            SetAttributes { gid: Some(1000), ..cut },
            SetAttributes { modified: SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 }), ..cut },
        ] {
            let outcome = fs.set_attributes(&who, &id, &refused, None);
            assert_eq!(outcome.result, Err(FsError::NotPermitted), "{refused:?}");
            assert_eq!(fs.attributes(&id).unwrap(), before, "{refused:?}");
        }
        assert_eq!(fs::read(path).unwrap(), b"precious");
    });
}
