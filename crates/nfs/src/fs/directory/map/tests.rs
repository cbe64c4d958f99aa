use super::*;

fn key(number: u64) -> Key {
    Key { number, born: number * 7 }
}

fn opened(state: &StateDirectory, root: &Object) -> PathMap {
    crate::fs::testing::reopened(|| PathMap::open(state, root, Generation::Handle))
}

fn names(paths: impl Iterator<Item = Path>) -> Vec<String> {
    paths.map(|path| path.iter().map(|n| String::from_utf8_lossy(n)).collect::<Vec<_>>().join("/")).collect()
}

fn root() -> (tempfile::TempDir, StateDirectory, Object) {
    let place = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(place.path()).unwrap();
    let root = Object::new(File::open(place.path()).unwrap().into()).unwrap();
    (place, state, root)
}

#[test]
fn names_survive_and_follow_a_renamed_directory() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    map.remember(key(1), top, b"dir");
    map.remember(key(2), key(1), b"file");
    map.remember(key(2), top, b"link");
    assert_eq!(names(map.paths(key(2)).unwrap()), ["link", "dir/file"]);
    map.remember(key(1), top, b"moved");
    map.forget(key(1), top, b"dir");
    drop(map);
    let map = opened(&state, &root);
    let mut found = names(map.paths(key(2)).unwrap());
    found.sort();
    assert_eq!(found, ["link", "moved/file"]);
    assert_eq!(map.paths(key(3)).err(), Some(FsError::Stale));
}

/// As after the copy-up of a file on overlayfs.
#[test]
fn an_overlaid_object_keeps_its_key_when_its_birth_changes() {
    let (place, state, mut root) = root();
    // An object of /proc, which has no handle, stands for one of overlayfs.
    root = File::open("/proc/self/fdinfo").map_or(root, |file| Object::new(file.into()).unwrap());
    assert!(handle_of(root.as_fd()).is_err());
    let before = [Generation::Kind, Generation::Birth].map(|generation| Key::of(&root, generation));
    root.stat.stx_btime.tv_sec += 1;
    let after = [Generation::Kind, Generation::Birth].map(|generation| Key::of(&root, generation));
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1], after[1]);
    // Another kind with that number is another object.
    root.stat.stx_mode ^= 0o040_000 ^ 0o100_000;
    assert_ne!(Key::of(&root, Generation::Kind), before[0]);
    drop((place, state));
}

#[test]
fn a_directory_is_where_it_was_seen_last() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    map.remember(key(2), key(1), b"file");
    for name in ["here", "there", "here"] {
        map.remember(key(1), top, name.as_bytes());
    }
    assert_eq!(names(map.paths(key(2)).unwrap()), ["here/file"]);
    drop(map);
    let map = opened(&state, &root);
    assert_eq!(names(map.paths(key(2)).unwrap()), ["here/file"]);
}

#[test]
fn a_torn_record_costs_only_itself() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    map.remember(key(1), top, b"one");
    map.remember(key(2), top, b"two");
    let path = map.path.clone();
    drop(map);
    let log = std::fs::read(&path).unwrap();
    for cut in log.len() / 2 + 1..log.len() {
        std::fs::write(&path, &log[..cut]).unwrap();
        let map = opened(&state, &root);
        let known = [key(1), key(2)].into_iter().filter(|key| map.paths(*key).is_ok()).count();
        assert_eq!(known, 1, "cut at {cut}");
    }
}

/// As on a disk that fills up within a record. In a process of its own, because the limit of file sizes
/// belongs to the process.
#[test]
fn i8_half_a_record_costs_none_of_those_behind_it() {
    const INNER: &str = "RPCRDMA_TEST_FILE_LIMIT";
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os(INNER).is_none() {
        let test = std::thread::current().name().unwrap().to_owned();
        // The signal would end the process.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$1\" --exact --nocapture"]);
        command.arg(std::env::current_exe().unwrap()).arg(&test).env(INNER, "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    let limit = |bytes| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
    };
    let length = || std::fs::metadata(&map.path).unwrap().len();
    map.remember(key(1), top, b"one");
    limit(Some(length() + 20));
    map.remember(key(2), top, b"two");
    assert_eq!(names(map.paths(key(2)).unwrap()), ["two"], "good while the process lives");
    limit(None);
    for (number, name) in [(3, "three"), (4, "four")] {
        map.remember(key(number), top, name.as_bytes());
    }
    drop(map);
    let map = opened(&state, &root);
    for (number, name) in [(1, "one"), (3, "three"), (4, "four")] {
        assert_eq!(map.paths(key(number)).map(names), Ok(vec![name.to_owned()]), "{name}");
    }
}

#[test]
fn a_ring_of_stale_records_ends() {
    let (_place, state, root) = root();
    let map = opened(&state, &root);
    map.remember(key(1), key(2), b"a");
    map.remember(key(2), key(1), b"b");
    assert_eq!(map.paths(key(1)).unwrap().count(), 0);
}

#[test]
fn what_is_gone_is_dropped_for_good_unless_it_was_just_seen() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    for name in ["one", "two"] {
        map.remember(key(1), top, name.as_bytes());
    }
    let mark = map.learnt();
    map.remember(key(1), top, b"one");
    map.drop_gone(key(1), mark);
    assert_eq!(names(map.paths(key(1)).unwrap()), ["one", "two"]);
    map.drop_gone(key(1), map.learnt());
    assert_eq!(map.paths(key(1)).err(), Some(FsError::Stale));
    assert_eq!((map.len(), map.known().names), (0, 0));
    drop(map);
    let map = opened(&state, &root);
    assert_eq!(map.paths(key(1)).err(), Some(FsError::Stale));
}

#[test]
fn the_map_has_one_owner() {
    let (_place, state, root) = root();
    let _map = opened(&state, &root);
    assert!(matches!(PathMap::open(&state, &root, Generation::Handle), Err(StateError::InUse { .. })));
}

#[test]
fn i6_a_slow_state_directory_holds_up_only_who_writes_the_log_anew() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    for _ in 0..=DEAD_RECORDS_MIN / 2 {
        map.remember(key(1), top, b"name");
        map.forget(key(1), top, b"name");
    }
    map.remember(key(1), top, b"name");
    // Opening a FIFO waits for a reader, like a disk that does not answer.
    let new = map.path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    rustix::fs::mknodat(rustix::fs::CWD, &new, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    std::thread::scope(|scope| {
        let tidy = scope.spawn(|| map.tidy());
        let (done, others) = std::sync::mpsc::channel();
        let map = &map;
        scope.spawn(move || {
            while map.log().behind.is_none() {
                std::thread::yield_now();
            }
            map.tidy();
            map.remember(key(2), top, b"other");
            assert_eq!(names(map.paths(key(1)).unwrap()), ["name"]);
            map.remember(key(3), top, b"third");
            map.forget(key(2), top, b"other");
            done.send(()).unwrap();
        });
        let went_on = others.recv_timeout(std::time::Duration::from_secs(10));
        let stuck = !tidy.is_finished();
        std::fs::read(&new).unwrap();
        assert!(stuck, "the test shows nothing");
        went_on.expect("others wait for the log");
    });
    drop(map);
    let _ = std::fs::remove_file(&new);
    let map = opened(&state, &root);
    assert_eq!(names(map.paths(key(1)).unwrap()), ["name"]);
    assert_eq!(map.paths(key(2)).err(), Some(FsError::Stale));
}

#[test]
fn i6_renames_and_lookups_take_turns() {
    let phases = Phases::default();
    let soon = Duration::from_millis(1);
    let renaming = [(); 2].map(|()| phases.enter(Phase::Renaming, soon).unwrap());
    assert_eq!(phases.enter(Phase::Looking, soon).err(), Some(FsError::TryLater));
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| phases.enter(Phase::Looking, Duration::from_secs(30)).map(drop));
        while phases.state().all.len() < 3 {
            std::thread::yield_now();
        }
        // Later renames wait, however many they are.
        assert_eq!(phases.enter(Phase::Renaming, soon).err(), Some(FsError::TryLater));
        drop(renaming);
        assert_eq!(looking.join().unwrap(), Ok(()));
    });
    drop(phases.enter(Phase::Renaming, soon).unwrap());
    assert!(phases.state().all.is_empty());
}

#[test]
fn names_that_come_while_the_log_is_written_anew_are_kept() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    map.remember(key(1), top, b"first");
    map.remember(key(2), top, b"second");
    map.records.store(DEAD_RECORDS_MIN + 100, Ordering::Relaxed);
    let anew = map.begin_anew().unwrap();
    assert!(map.begin_anew().is_none(), "one at a time");
    map.forget(key(1), top, b"first");
    map.remember(key(3), top, b"third");
    map.end_anew(&anew, write_anew(&map.path, &anew.bytes));
    map.remember(key(4), top, b"fourth");
    assert_eq!(map.records.load(Ordering::Relaxed), 5);
    drop(map);
    let map = opened(&state, &root);
    assert_eq!(map.paths(key(1)).err(), Some(FsError::Stale));
    for (number, name) in [(2, "second"), (3, "third"), (4, "fourth")] {
        assert_eq!(names(map.paths(key(number)).unwrap()), [name]);
    }
}

#[test]
fn the_log_is_written_anew_when_most_of_it_is_dead() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let map = opened(&state, &root);
    for _ in 0..DEAD_RECORDS_MIN {
        map.remember(key(1), top, b"name");
        map.forget(key(1), top, b"name");
        map.tidy();
    }
    assert!(std::fs::metadata(&map.path).unwrap().len() < DEAD_RECORDS_MIN * 64);
}

/// A handover: the old server learns names until it ends.
#[test]
fn a_map_is_followed_until_its_server_ends() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let old = opened(&state, &root);
    old.remember(key(1), top, b"before");
    assert!(matches!(PathMap::open(&state, &root, Generation::Handle), Err(StateError::InUse { .. })));
    let following = state.follow();
    let new = PathMap::open(&state, &root, Generation::Handle).unwrap();
    following.end();
    assert_eq!(names(new.paths(key(1)).unwrap()), ["before"]);
    old.remember(key(2), top, b"behind");
    new.remember(key(3), top, b"own");
    assert!(!new.take_over() && new.follows());
    assert_eq!(names(new.paths(key(2)).unwrap()), ["behind"]);
    // The old one writes another log.
    old.replace_log(File::open("/dev/null").unwrap());
    old.remember(key(4), top, b"lacking");
    old.repair_now();
    old.remember(key(1), top, b"renamed");
    assert!(!new.take_over() && !new.take_over());
    assert_eq!(names(new.paths(key(4)).unwrap()), ["lacking"]);
    drop(old);
    until_true(|| new.take_over());
    assert!(!new.follows());
    assert_eq!(names(new.paths(key(1)).unwrap()), ["renamed", "before"]);
    new.remember(key(5), top, b"after");
    drop(new);
    let map = opened(&state, &root);
    for (number, name) in [(2, "behind"), (3, "own"), (4, "lacking"), (5, "after")] {
        assert_eq!(names(map.paths(key(number)).unwrap()), [name]);
    }
}

/// The log of the old server is used on where a new one cannot be written: records go behind those that it has.
#[test]
fn a_followed_log_that_cannot_be_written_anew_is_appended_to() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let old = opened(&state, &root);
    old.remember(key(1), top, b"first");
    let following = state.follow();
    let new = PathMap::open(&state, &root, Generation::Handle).unwrap();
    following.end();
    // Another file is in place, which the new server opens itself.
    old.replace_log(File::open("/dev/null").unwrap());
    old.remember(key(2), top, b"second");
    old.repair_now();
    assert!(!new.take_over());
    drop(old);
    let obstacle = new.path.with_extension("new");
    std::fs::create_dir(&obstacle).unwrap();
    until_true(|| new.take_over());
    new.remember(key(3), top, b"third");
    std::fs::remove_dir(&obstacle).unwrap();
    let bytes = std::fs::read(&new.path).unwrap();
    let mut known = Known::default();
    assert_eq!(known.apply(&bytes, &mut Own::default()), bytes.len() as u64, "whole records");
    drop(new);
    let map = opened(&state, &root);
    for (number, name) in [(1, "first"), (2, "second"), (3, "third")] {
        assert_eq!(names(map.paths(key(number)).unwrap()), [name]);
    }
}

/// The other server may write an old name late, and its whole log once more. The objects below a renamed directory are found
/// all the same.
#[test]
fn names_that_the_other_server_writes_late_are_older_than_own_ones() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let old = opened(&state, &root);
    old.remember(key(1), top, b"a");
    old.remember(key(2), key(1), b"file");
    let following = state.follow();
    let new = PathMap::open(&state, &root, Generation::Handle).unwrap();
    following.end();
    let found = |expected: &[&str]| {
        assert!(!new.take_over());
        assert_eq!(names(new.paths(key(2)).unwrap()), ["b/file"]);
        assert_eq!(names(new.paths(key(1)).unwrap()), expected);
    };
    new.remember(key(1), top, b"b");
    new.forget(key(1), top, b"a");
    // A record that was on its way while this server renamed the directory.
    old.forget(key(1), top, b"a");
    old.remember(key(1), top, b"a");
    found(&["b"]);
    old.remember(key(1), top, b"late");
    found(&["b", "late"]);
    old.replace_log(File::open("/dev/null").unwrap());
    old.remember(key(3), top, b"lacking");
    old.repair_now();
    found(&["b", "late"]);
    // A later rename by the other server counts.
    new.remember(key(4), top, b"seen");
    old.remember(key(4), top, b"seen");
    old.remember(key(4), top, b"moved");
    old.forget(key(4), top, b"seen");
    found(&["b", "late"]);
    assert_eq!(names(new.paths(key(4)).unwrap()), ["moved"]);
    // A name that this server gives again counts.
    new.remember(key(1), top, b"a");
    new.forget(key(1), top, b"b");
    new.remember(key(1), top, b"b");
    found(&["b", "a", "late"]);
    for number in 0..NAMES_MAX {
        old.remember(key(1), top, format!("more{number}").as_bytes());
    }
    assert!(!new.take_over());
    let kept = names(new.paths(key(1)).unwrap());
    assert_eq!((kept.len(), &kept[..3]), (NAMES_MAX, &["b", "a", "more7"].map(str::to_owned)[..]));
    drop(old);
    until_true(|| new.take_over());
    drop(new);
    let map = opened(&state, &root);
    assert_eq!(names(map.paths(key(2)).unwrap()), ["b/file"]);
    assert_eq!(names(map.paths(key(1)).unwrap()), kept);
}

/// The first call after the other server's end writes the log anew, which may take any time.
#[test]
fn a_log_is_taken_over_while_others_go_on() {
    let (_place, state, root) = root();
    let top = Key::of(&root, Generation::Handle);
    let old = opened(&state, &root);
    old.remember(key(1), top, b"first");
    let following = state.follow();
    let map = PathMap::open(&state, &root, Generation::Handle).unwrap();
    following.end();
    map.remember(key(2), top, b"own");
    // More than is taken over at a time.
    let long = vec![b'x'; 255];
    for number in 0..1000 {
        old.remember(key(10 + number), top, &long);
    }
    drop(old);
    // Opening a FIFO waits for a reader, like a disk that does not answer.
    let anew = map.path.with_extension("new");
    rustix::fs::mknodat(rustix::fs::CWD, &anew, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| until_true(|| map.take_over()));
        let (done, others) = std::sync::mpsc::channel();
        let map = &map;
        scope.spawn(move || {
            until_true(|| !map.follows() && map.log().behind.is_some());
            assert!(map.take_over());
            map.remember(key(3), top, b"third");
            assert_eq!(names(map.paths(key(2)).unwrap()), ["own"]);
            done.send(()).unwrap();
        });
        let went_on = others.recv_timeout(Duration::from_secs(10));
        let stuck = !first.is_finished();
        std::fs::read(&anew).unwrap();
        assert!(stuck, "the test shows nothing");
        went_on.expect("others wait for the log");
    });
    // A FIFO is no log. The next attempt writes the names that this server learnt before.
    assert!(map.is_lacking());
    map.repair_now();
    assert!(!map.is_lacking());
    drop(map);
    let map = opened(&state, &root);
    for (number, name) in [(1, "first"), (2, "own"), (3, "third")] {
        assert_eq!(names(map.paths(key(number)).unwrap()), [name]);
    }
    assert_eq!(map.len(), 1003);
}

/// Waits for a lock: another test may start a process, which has copies of all files for a moment.
fn until_true(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}
