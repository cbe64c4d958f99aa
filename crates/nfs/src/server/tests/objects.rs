//! GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, COMMIT, FSSTAT, FSINFO and PATHCONF on every file
//! system.

use super::*;

// requirement: rfc1813-3.3.6-2, rfc1813-3.3.6-3, rfc1813-3.3.6-7, rfc1813-3.3.7-10
#[tokio::test]
async fn what_is_written_is_read_back() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let written = bed.write(file, 0, b"hello world").await.unwrap();
        assert_eq!((written.count, written.committed), (11, StableHow::Unstable), "{}", bed.name);
        assert_eq!(written.file_wcc.before.unwrap().size, 0);
        assert_eq!(written.file_wcc.after.unwrap().size, 11);
        // Twice: first by an I/O thread, then from the page cache.
        for _ in 0..2 {
            let read = bed.read(file, 6, 100).await.unwrap();
            assert_eq!(
                (read.data, read.count, read.eof),
                (b"world".to_vec().into(), 5, true),
                "{}",
                bed.name
            );
            let part = bed.read(file, 0, 5).await.unwrap();
            assert_eq!((part.data, part.eof), (b"hello".to_vec().into(), false));
            assert_eq!(part.attributes.unwrap().size, 11);
        }
        // RFC 1813 §3.3.6: a read at or behind the end succeeds without data.
        for offset in [11, 12, u64::MAX - 5, u64::MAX] {
            let end = bed.read(file, offset, 10).await.unwrap();
            assert_eq!((end.count, end.eof), (0, true), "{} at {offset}", bed.name);
        }
        assert!(bed.read(file, 0, 0).await.unwrap().data.is_empty());
        assert_eq!(bed.server.counters().bytes_written(), 11);
    }
}

// requirement: rfc1813-4.13-1
#[tokio::test]
async fn a_hole_reads_as_zero_and_a_file_has_an_end() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        bed.write(file, 70_000, b"x").await.unwrap();
        let read = bed.read(file, 69_998, 10).await.unwrap();
        assert_eq!((read.data, read.eof), (b"\0\0x".to_vec().into(), true), "{}", bed.name);
        for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
            assert_eq!(bed.write(file, offset, b"ab").await.unwrap_err(), Status::FBig, "{}", bed.name);
        }
    }
}

// requirement: rfc1813-3.3.6-2
#[tokio::test]
async fn a_read_that_reaches_over_the_largest_offset_finds_the_end() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        bed.write(file, 0, b"text").await.unwrap();
        let largest = i64::MAX as u64;
        for offset in [largest - 4096, largest - 1, largest, largest + 1, u64::MAX - 1, u64::MAX] {
            let read = bed.read(file, offset, 8192).await;
            let read = read.unwrap_or_else(|status| panic!("{} {offset:#x}: {status}", bed.name));
            assert_eq!((read.count, read.eof), (0, true), "{} {offset:#x}", bed.name);
        }
    }
}

// requirement: rfc1813-3.3.7-8, rfc1813-3.3.7-10, rfc1813-3.3.7-14, rfc1813-3.3.19-1, rfc1813-3.3.19-2
#[tokio::test]
async fn reads_and_writes_over_the_limit_are_short() {
    for bed in Bed::all() {
        let info = bed.call(&FsinfoArgs { root: bed.root }).await.unwrap();
        assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let data = Bytes::from(vec![7; (1 << 20) + 1]);
        let count = u32::try_from(data.len()).unwrap();
        let arguments = WriteArgs { file, offset: 0, count, stable: StableHow::FileSync, data: data.into() };
        let written = bed.call(&arguments).await.unwrap();
        assert_eq!((written.count, written.committed), (1 << 20, StableHow::FileSync), "{}", bed.name);
        let read = bed.read(file, 0, u32::MAX).await.unwrap();
        assert_eq!((read.count, read.eof), (1 << 20, true), "{}", bed.name);
        assert!(read.data.iter().flatten().all(|&byte| byte == 7));
    }
}

#[tokio::test]
async fn a_count_that_is_not_the_length_of_the_data() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let write = |count| WriteArgs {
            file,
            offset: 0,
            count,
            stable: StableHow::Unstable,
            data: Bytes::from_static(b"abc").into(),
        };
        assert_eq!(bed.status(&write(4)).await, Some(Status::Inval), "{}", bed.name);
        assert_eq!(bed.call(&write(2)).await.unwrap().count, 2);
        assert_eq!(bed.getattr(file).await.unwrap().size, 2);
    }
}

// requirement: rfc1813-3.3.3-3, rfc1813-3.3.5-1, rfc1813-3.3.5-2, rfc1813-3.3.6-1, rfc1813-3.3.6-9, rfc1813-3.3.7-1
// requirement: rfc1813-3.3.7-18, rfc1813-3.3.10-1
#[tokio::test]
async fn data_is_of_files_and_text_of_links() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let link = bed.make_link(bed.root, "link", "to/some where").await;
        let file = bed.make_file(bed.root, "file", 0o640).await;
        // RFC 1813 §3.3.6, §3.3.7: NFS3ERR_INVAL for every type but a regular file, a directory too.
        assert_eq!(bed.read(directory, 0, 1).await.unwrap_err(), Status::Inval, "{}", bed.name);
        assert_eq!(bed.write(directory, 0, b"x").await.unwrap_err(), Status::Inval);
        assert_eq!(bed.read(link, 0, 1).await.unwrap_err(), Status::Inval);
        assert_eq!(bed.write(link, 0, b"x").await.unwrap_err(), Status::Inval);
        let text = bed.call(&ReadlinkArgs { symlink: link }).await.unwrap();
        assert_eq!(&text.data[..], b"to/some where");
        for other in [file, directory] {
            let (status, attributes) = bed.call(&ReadlinkArgs { symlink: other }).await.unwrap_err();
            assert_eq!(status, Status::Inval);
            assert!(attributes.is_some());
        }
        assert_eq!(bed.lookup(file, "x").await, Err(Status::NotDir));
        assert_eq!(bed.lookup(link, "x").await, Err(Status::NotDir));
    }
}

// requirement: rfc1813-3.3.7-4, rfc1813-3.3.7-5, rfc1813-3.3.7-7, rfc1813-3.3.7-8, rfc1813-3.3.7-11
// requirement: rfc1813-3.3.21-3
#[tokio::test]
async fn stability_is_granted_and_the_verifier_stays() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let mut verifiers = Vec::new();
        for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
            let data = Bytes::from_static(b"data");
            let written =
                bed.call(&WriteArgs { file, offset: 0, count: 4, stable, data: data.into() }).await.unwrap();
            assert!(written.committed >= stable, "{}", bed.name);
            verifiers.push(written.verifier);
        }
        let commit = bed.call(&CommitArgs { file, offset: 0, count: 0 }).await.unwrap();
        verifiers.push(commit.verifier);
        assert!(verifiers.iter().all(|verifier| *verifier == verifiers[0]), "{}", bed.name);
        assert_eq!(commit.file_wcc.after.unwrap().size, 4);
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let refused = bed.status(&CommitArgs { file: directory, offset: 0, count: 0 }).await;
        assert_eq!(refused, Some(Status::Inval), "as READ and WRITE: it is no regular file");
        bed.server.flush().await.unwrap();
    }
}

// requirement: rfc1813-3.3.7-12
#[tokio::test]
async fn the_verifier_changes_at_restart() {
    for bed in Bed::directories() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let before = bed.write(file, 0, b"data").await.unwrap().verifier;
        let bed = bed.restarted();
        let after = bed.call(&CommitArgs { file, offset: 0, count: 0 }).await.unwrap().verifier;
        assert_ne!(before, after, "{}", bed.name);
    }
}

// requirement: rfc1813-2.5-10, rfc1813-2.5-11, rfc1813-2.5-14, rfc1813-2.5-18, rfc1813-3.3.1-1, rfc1813-3.3.2-4
// requirement: rfc1813-3.3.2-5, rfc1813-3.3.2-6, rfc1813-3.3.19-5
#[tokio::test]
async fn attributes_are_set() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        bed.write(file, 0, b"0123456789").await.unwrap();
        let time = |seconds| NfsTime { seconds, nanoseconds: 5 };
        // A user other than root cannot give files away.
        let own = bed.getattr(file).await.unwrap();
        let free = bed.distinguishes_users();
        let (uid, gid) = if free { (7, 8) } else { (own.uid, own.gid) };
        let new = SetAttributes {
            mode: Some(0o4711),
            uid: Some(uid),
            gid: Some(gid),
            size: Some(4),
            atime: SetTime::ClientTime(time(100)),
            mtime: SetTime::ClientTime(time(200)),
        };
        let wcc = bed.call(&SetattrArgs { object: file, new_attributes: new, guard: None }).await.unwrap();
        assert_eq!(wcc.before.unwrap().size, 10);
        let got = bed.getattr(file).await.unwrap();
        assert_eq!(Some(got), wcc.after, "{}", bed.name);
        // That user cannot set set-id bits either.
        let bits = if free { 0o4711 } else { 0o711 };
        assert_eq!((got.mode, got.uid, got.gid, got.size), (bits, uid, gid, 4), "{}", bed.name);
        assert_eq!((got.atime, got.mtime), (time(100), time(200)));
        // A longer size again: zeros.
        assert_eq!(bed.set(file, size(6)).await, None);
        assert_eq!(bed.read(file, 0, 10).await.unwrap().data, b"0123\0\0"[..], "{}", bed.name);
        let now = SetAttributes { mtime: SetTime::ServerTime, ..SetAttributes::default() };
        assert_eq!(bed.set(file, now).await, None);
        assert!(bed.getattr(file).await.unwrap().mtime > time(200));
    }
}

// requirement: rfc1813-4.13-1
#[tokio::test]
async fn attributes_that_cannot_be_set() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        assert_eq!(bed.set(directory, size(0)).await, Some(Status::Inval), "{}", bed.name);
        let odd = NfsTime { seconds: 1, nanoseconds: 1_000_000_000 };
        let time = SetAttributes { atime: SetTime::ClientTime(odd), ..SetAttributes::default() };
        assert_eq!(bed.set(directory, time).await, Some(Status::Inval), "{}", bed.name);
        let file = bed.make_file(bed.root, "file", 0o644).await;
        assert_eq!(bed.set(file, size(u64::MAX)).await, Some(Status::FBig), "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.2-1, rfc1813-3.3.2-2, rfc1813-3.3.2-3
#[tokio::test]
async fn a_guard_protects_attributes() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let ctime = bed.getattr(file).await.unwrap().ctime;
        let set = |mode_bits, ctime| SetattrArgs {
            object: file,
            new_attributes: mode(mode_bits),
            guard: Some(ctime),
        };
        let wrong = NfsTime { seconds: ctime.seconds, nanoseconds: ctime.nanoseconds ^ 1 };
        let (status, wcc) = bed.call(&set(0o600, wrong)).await.unwrap_err();
        assert_eq!(status, Status::NotSync, "{}", bed.name);
        assert_eq!(wcc.after.unwrap().mode, 0o640, "nothing was changed");
        assert_eq!(bed.status(&set(0o600, ctime)).await, None, "{}", bed.name);
        assert_eq!(bed.getattr(file).await.unwrap().mode, 0o600);
    }
}

// requirement: rfc4506-8-3, rfc4506-8-4
// requirement: rfc1813-3.2-1, rfc1813-3.2-2, rfc1813-3.2-3, rfc1813-3.2-5, rfc1813-3.2-6, rfc1813-3.3.3-1
// requirement: rfc1813-3.3.20-2, rfc1813-4.6-1
#[tokio::test]
async fn names_are_looked_up_and_bad_ones_refused() {
    for bed in Bed::all() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let file = bed.make_file(directory, "file", 0o640).await;
        let found = bed.call(&LookupArgs { what: place(directory, "file") }).await.unwrap();
        assert_eq!(found.object, file, "{}", bed.name);
        assert_eq!(found.attributes.unwrap(), bed.getattr(file).await.unwrap());
        assert!(found.dir_attributes.unwrap().is_directory());
        // RFC 1813 §3.2: "." and ".." have a meaning; nothing is visible above the root.
        assert_eq!(bed.lookup(directory, ".").await, Ok(directory), "{}", bed.name);
        assert_eq!(bed.lookup(directory, "..").await, Ok(bed.root), "{}", bed.name);
        assert_eq!(bed.lookup(bed.root, "..").await, Ok(bed.root), "{}", bed.name);
        let (status, attributes) = bed.call(&LookupArgs { what: place(directory, "no") }).await.unwrap_err();
        assert_eq!(status, Status::NoEnt);
        assert!(attributes.unwrap().is_directory());
        for (name, refusal) in [
            ("", Status::Acces),
            ("a/b", Status::Acces),
            ("/", Status::Acces),
            ("../dir", Status::Acces),
            ("nul\0", Status::Acces),
            (&*"x".repeat(256), Status::NameTooLong),
            (&*"x".repeat(4096), Status::NameTooLong),
        ] {
            assert_eq!(bed.lookup(bed.root, name).await, Err(refusal), "{} {name:?}", bed.name);
            let how = CreateHow::Guarded(SetAttributes::default());
            assert_eq!(bed.status(&create(bed.root, name, how)).await, Some(refusal), "{name:?}");
            assert_eq!(bed.remove(bed.root, name).await, Some(refusal), "{name:?}");
        }
        let longest = "x".repeat(255);
        let file = bed.make_file(bed.root, &longest, 0o640).await;
        assert_eq!(bed.lookup(bed.root, &longest).await, Ok(file), "{}", bed.name);
        let odd = bed.make_file(bed.root, "ünï cøde\n\u{1}", 0o640).await;
        assert_eq!(bed.lookup(bed.root, "ünï cøde\n\u{1}").await, Ok(odd));
    }
}

// requirement: rfc1813-2.6-1
#[tokio::test]
async fn handles_that_were_never_given_are_bad() {
    for bed in Bed::all() {
        let mut bytes = bed.root.as_bytes().to_vec();
        for place in 0..bytes.len() {
            bytes[place] ^= 1;
            let forged = FileHandle::new(&bytes).unwrap();
            assert_eq!(bed.getattr(forged).await, Err(Status::BadHandle), "{} {place}", bed.name);
            bytes[place] ^= 1;
        }
        for length in [0, 1, 24, 25] {
            let short = FileHandle::new(&bytes[..length]).unwrap();
            assert_eq!(bed.read(short, 0, 1).await, Err(Status::BadHandle), "{}", bed.name);
            assert_eq!(bed.write(short, 0, b"x").await.unwrap_err(), Status::BadHandle);
        }
    }
}

// requirement: rfc1813-1.5-1, rfc1813-2.5-14, rfc1813-3.3.4-2, rfc1813-3.3.4-3, rfc1813-3.3.4-4
#[tokio::test]
async fn access_by_the_bits() {
    let everything = 0x3f & !ACCESS3_EXECUTE;
    // Mode, kind of object, rights of the owner, of the group, of others.
    let read = ACCESS3_READ;
    let write = ACCESS3_MODIFY | ACCESS3_EXTEND;
    for bed in Bed::all_of_users(|_, options| options.open_files = 4) {
        let _open = bed.set(bed.root, mode(0o755)).await;
        let new = SetAttributes { uid: Some(1000), gid: Some(2000), ..mode(0o642) };
        let file = bed.make_file(bed.root, "file", 0o600).await;
        assert_eq!(bed.set(file, new).await, None);
        let directory = bed.make_directory(bed.root, "dir", 0o700).await;
        let owned = SetAttributes { uid: Some(1000), gid: Some(2000), ..mode(0o751) };
        assert_eq!(bed.set(directory, owned).await, None);
        assert_eq!(bed.access(file).await, read | write, "{}", bed.name);
        assert_eq!(bed.access(directory).await, everything, "{}", bed.name);
        let bed = bed.by(1000, 1);
        assert_eq!(bed.access(file).await, read | write, "{}", bed.name);
        assert_eq!(bed.access(directory).await, everything, "{}", bed.name);
        let bed = bed.by(1, 2000);
        assert_eq!(bed.access(file).await, read, "{}", bed.name);
        assert_eq!(bed.access(directory).await, read | ACCESS3_LOOKUP, "{}", bed.name);
        let bed = bed.by(1, 1);
        assert_eq!(bed.access(file).await, write, "{}", bed.name);
        assert_eq!(bed.access(directory).await, ACCESS3_LOOKUP, "{}", bed.name);
    }
}

/// Returns whether a directory tree can serve several users here; if not, prints a note.
pub(super) fn acts_as_callers() -> bool {
    let places = places();
    let state = StateDirectory::open(places.1.path()).unwrap();
    let acts =
        DirectoryFs::open(places.0.path(), &state, DirectoryOptions::default()).unwrap().acts_as_callers();
    if !acts {
        println!("skipped for a directory tree: this process cannot act as its callers");
    }
    acts
}

// requirement: rfc1813-1.5-1, rfc1813-2.6-2, rfc1813-3.3.20-3, rfc1813-4.4-1, rfc1813-4.4-3
#[tokio::test]
async fn permissions_hold_for_data_and_names() {
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let file = bed.make_file(bed.root, "file", 0o600).await;
        bed.write(file, 0, b"secret").await.unwrap();
        let program = bed.make_file(bed.root, "program", 0o711).await;
        let theirs = bed.make_file(bed.root, "theirs", 0o000).await;
        let give = SetAttributes { uid: Some(1000), ..SetAttributes::default() };
        assert_eq!(bed.set(theirs, give).await, None);
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.read(file, 0, 1).await.unwrap_err(), Status::Acces, "{}", bed.name);
        assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Acces, "{}", bed.name);
        assert_eq!(bed.status(&CommitArgs { file, offset: 0, count: 0 }).await, Some(Status::Acces));
        // RFC 1813 §4.4: the right to execute includes reading, and an owner may always read.
        assert!(bed.read(program, 0, 1).await.is_ok(), "{}", bed.name);
        assert_eq!(bed.write(theirs, 0, b"x").await.unwrap().count, 1, "{}", bed.name);
        assert_eq!(bed.read(theirs, 0, 9).await.unwrap().data, b"x"[..]);
        // Changes of names.
        let how = CreateHow::Guarded(SetAttributes::default());
        assert_eq!(bed.status(&create(bed.root, "new", how)).await, Some(Status::Acces), "{}", bed.name);
        assert_eq!(bed.remove(bed.root, "theirs").await, Some(Status::Acces));
        assert_eq!(bed.rename((bed.root, "theirs"), (bed.root, "x")).await, Some(Status::Acces));
        assert_eq!(bed.set(file, mode(0o666)).await, Some(Status::Perm), "{}", bed.name);
        let take = SetAttributes { uid: Some(1000), ..SetAttributes::default() };
        assert_eq!(bed.set(file, take).await, Some(Status::Perm), "{}", bed.name);
        assert_eq!(bed.set(file, size(0)).await, Some(Status::Acces), "{}", bed.name);
        // A right that is withdrawn is gone at once, although the file was open.
        let bed = bed.by(0, 0);
        assert_eq!(bed.set(program, mode(0o600)).await, None);
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.read(program, 0, 1).await.unwrap_err(), Status::Acces, "{}", bed.name);
    }
}

/// Returns times that a client leaves to the server's clock.
fn now(accessed: bool, modified: bool) -> SetAttributes {
    let time = |now| if now { SetTime::ServerTime } else { SetTime::DontChange };
    SetAttributes { atime: time(accessed), mtime: time(modified), ..SetAttributes::default() }
}

/// Returns a bed for each file system that distinguishes callers, each with a file of user 0 with these bits.
async fn files_of_root(bits: u32) -> Vec<(Bed, FileHandle)> {
    let mut files = Vec::new();
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let file = bed.make_file(bed.root, "file", 0o600).await;
        bed.write(file, 0, b"precious").await.unwrap();
        assert_eq!(bed.set(file, mode(bits)).await, None);
        files.push((bed, file));
    }
    files
}

/// `open(O_TRUNC)` is a SETATTR of size 0 and of the time of modification to the server's clock.
// requirement: rfc1813-2.5-18
#[tokio::test]
async fn a_user_who_may_write_cuts_a_file_and_touches_it() {
    for (bed, file) in files_of_root(0o666).await {
        let bed = bed.by(1000, 1000);
        let old = bed.getattr(file).await.unwrap();
        for (accessed, modified) in [(true, false), (false, true), (true, true)] {
            assert_eq!(bed.set(file, now(accessed, modified)).await, None, "{}", bed.name);
            let touched = bed.getattr(file).await.unwrap();
            assert!(!accessed || touched.atime >= old.atime, "{}", bed.name);
            assert!(!modified || touched.mtime >= old.mtime, "{}", bed.name);
        }
        // Setting one time leaves the other unchanged.
        let before = bed.getattr(file).await.unwrap();
        assert_eq!(bed.set(file, now(true, false)).await, None, "{}", bed.name);
        assert_eq!(bed.getattr(file).await.unwrap().mtime, before.mtime, "{}", bed.name);
        assert_eq!(bed.set(file, now(false, true)).await, None, "{}", bed.name);
        for set in [now(false, true), now(true, true), now(false, false)] {
            bed.write(file, 0, b"precious").await.unwrap();
            assert_eq!(bed.set(file, SetAttributes { size: Some(3), ..set }).await, None, "{}", bed.name);
            assert_eq!(bed.getattr(file).await.unwrap().size, 3, "{}", bed.name);
        }
    }
}

// requirement: rfc1813-2.6-2
#[tokio::test]
async fn a_refused_setattr_changes_nothing() {
    let client_time = SetTime::ClientTime(NfsTime { seconds: 5, nanoseconds: 0 });
    let cut = size(0);
    for (bits, refusals) in [
        (0o666, [Status::Perm; 6]),
        // Without the right to write, requests that require only this right are refused too.
        (0o644, [Status::Perm, Status::Perm, Status::Perm, Status::Perm, Status::Perm, Status::Acces]),
    ] {
        for (bed, file) in files_of_root(bits).await {
            let bed = bed.by(1000, 1000);
            let sets = [
                SetAttributes { mode: Some(0o600), ..cut },
                SetAttributes { uid: Some(1000), ..cut },
                SetAttributes { gid: Some(1000), ..cut },
                SetAttributes { mtime: client_time, ..cut },
                SetAttributes { atime: client_time, mtime: SetTime::ServerTime, ..cut },
                SetAttributes { mtime: SetTime::ServerTime, ..cut },
            ];
            let before = bed.getattr(file).await.unwrap();
            for (set, refusal) in sets.into_iter().zip(refusals) {
                if bits == 0o666 && set == sets[5] {
                    continue;
                }
                assert_eq!(bed.set(file, set).await, Some(refusal), "{} {set:?}", bed.name);
                assert_eq!(bed.getattr(file).await.unwrap(), before, "{} {set:?}", bed.name);
            }
            if bits == 0o644 {
                for set in [now(true, false), now(false, true), now(true, true)] {
                    assert_eq!(bed.set(file, set).await, Some(Status::Acces), "{} {set:?}", bed.name);
                }
            }
            assert_eq!(bed.getattr(file).await.unwrap(), before, "{}", bed.name);
        }
    }
}

/// RFC 1813 §4.4: `ftruncate` arrives without the open file behind it, so the owner's right to the data
/// applies.
// requirement: rfc1813-4.4-1
#[tokio::test]
async fn an_owner_cuts_a_file_that_became_read_only() {
    for (bed, file) in files_of_root(0o644).await {
        let give = SetAttributes { uid: Some(1000), ..mode(0o444) };
        assert_eq!(bed.set(file, give).await, None);
        let bed = bed.by(1000, 1000);
        let cut = SetAttributes { size: Some(4), ..now(false, true) };
        assert_eq!(bed.set(file, cut).await, None, "{}", bed.name);
        assert_eq!(bed.read(file, 0, 9).await.unwrap().data, b"prec"[..], "{}", bed.name);
        // For other users the right does not apply.
        let bed = bed.by(1001, 1001);
        assert_eq!(bed.set(file, cut).await, Some(Status::Acces), "{}", bed.name);
    }
}

/// As on a local file system, a change of the contents by an unprivileged user clears set-id bits.
#[tokio::test]
async fn writing_and_cutting_take_set_id_bits_off() {
    for (bits, left) in [(0o6777, 0o777), (0o4666, 0o666)] {
        for (bed, file) in files_of_root(bits).await {
            // User 0 keeps them.
            bed.write(file, 0, b"x").await.unwrap();
            assert_eq!(bed.set(file, size(5)).await, None);
            assert_eq!(bed.getattr(file).await.unwrap().mode, bits, "{}", bed.name);
            let mut bed = bed.by(1000, 1000);
            bed.write(file, 0, b"x").await.unwrap();
            assert_eq!(bed.getattr(file).await.unwrap().mode, left, "{}", bed.name);
            for cut in [size(3), SetAttributes { size: Some(2), ..now(false, true) }] {
                bed = bed.by(0, 0);
                assert_eq!(bed.set(file, mode(bits)).await, None);
                bed = bed.by(1000, 1000);
                assert_eq!(bed.set(file, cut).await, None, "{}", bed.name);
                assert_eq!(bed.getattr(file).await.unwrap().mode, left, "{} {cut:?}", bed.name);
            }
            // A change of the owner clears them, whoever makes it.
            let bed = bed.by(0, 0);
            assert_eq!(bed.set(file, mode(bits)).await, None);
            let give = SetAttributes { uid: Some(1001), ..SetAttributes::default() };
            assert_eq!(bed.set(file, give).await, None);
            assert_eq!(bed.getattr(file).await.unwrap().mode & 0o4000, 0, "{}", bed.name);
        }
    }
}

// requirement: rfc1813-3.3.9-1
#[tokio::test]
async fn a_new_object_belongs_to_its_maker() {
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o1777)).await, None);
        let bed = bed.by(1000, 2000);
        let file = bed.make_file(bed.root, "file", 0o666).await;
        let directory = bed.make_directory(bed.root, "dir", 0o777).await;
        let link = bed.make_link(bed.root, "link", "x").await;
        for (object, bits) in [(file, 0o666), (directory, 0o777), (link, 0o777)] {
            let got = bed.getattr(object).await.unwrap();
            assert_eq!((got.uid, got.gid, got.mode), (1000, 2000, bits), "{}", bed.name);
        }
        // In a sticky directory another user cannot remove the entry.
        let bed = bed.by(1001, 2000);
        assert_eq!(bed.remove(bed.root, "file").await, Some(Status::Perm), "{}", bed.name);
        // A set-id bit does not survive a write by another user.
        let bed = bed.by(1000, 2000);
        assert_eq!(bed.set(file, mode(0o4777)).await, None);
        let bed = bed.by(1001, 1);
        bed.write(file, 0, b"x").await.unwrap();
        assert_eq!(bed.getattr(file).await.unwrap().mode, 0o777, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.18-1, rfc1813-3.3.19-6, rfc1813-3.3.20-2
#[tokio::test]
async fn what_the_file_system_says_about_itself() {
    for bed in Bed::all() {
        let info = bed.call(&FsinfoArgs { root: bed.root }).await.unwrap();
        assert_eq!(info.properties, FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);
        assert!(info.max_file_size > 1 << 40, "{}", bed.name);
        assert_eq!((info.read_multiple, info.write_multiple), (4096, 4096));
        assert!(info.attributes.unwrap().is_directory());
        let space = bed.call(&FsstatArgs { root: bed.root }).await.unwrap();
        assert!(space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes);
        assert!(space.total_bytes > 0, "{}", bed.name);
        let limits = bed.call(&PathconfArgs { object: bed.root }).await.unwrap();
        assert_eq!((limits.name_max, limits.no_trunc, limits.case_insensitive), (255, true, false));
        assert!(limits.link_max >= 127);
    }
}

// requirement: rfc1813-2.6-4, rfc1813-3.3.19-4
#[tokio::test]
async fn the_largest_file_is_what_fsinfo_says() {
    let bed = Bed::directory();
    let info = bed.call(&FsinfoArgs { root: bed.root }).await.unwrap();
    let file = bed.make_file(bed.root, "file", 0o640).await;
    assert_eq!(bed.set(file, size(info.max_file_size)).await, None);
    if info.max_file_size < i64::MAX as u64 {
        assert_eq!(bed.set(file, size(info.max_file_size + 1)).await, Some(Status::FBig));
    }
}

// requirement: rfc1813-2.6-4, rfc1813-3.3.18-1
#[tokio::test]
async fn a_full_file_system_says_so() {
    let options = MemoryOptions { capacity: 10, max_files: 3, max_file_size: 20, ..MemoryOptions::default() };
    let bed = Bed::memory_with(options, untuned);
    let file = bed.make_file(bed.root, "file", 0o640).await;
    assert_eq!(bed.write(file, 0, b"0123456789").await.unwrap().count, 10);
    assert_eq!(bed.write(file, 10, b"x").await.unwrap_err(), Status::NoSpc);
    assert_eq!(bed.write(file, 20, b"x").await.unwrap_err(), Status::FBig);
    assert_eq!(bed.set(file, size(21)).await, Some(Status::FBig));
    bed.make_file(bed.root, "second", 0o640).await;
    let third = create(bed.root, "third", CreateHow::Guarded(SetAttributes::default()));
    assert_eq!(bed.status(&third).await, Some(Status::NoSpc));
    let space = bed.call(&FsstatArgs { root: bed.root }).await.unwrap();
    assert_eq!((space.free_bytes, space.free_files), (0, 0));
    // Removed files release their space.
    assert_eq!(bed.remove(bed.root, "file").await, None);
    let file = bed.make_file(bed.root, "third", 0o640).await;
    assert_eq!(bed.write(file, 0, b"0123456789").await.unwrap().count, 10);
}

#[tokio::test]
async fn payload_of_a_read_is_not_copied() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let data = Bytes::from(vec![3; 1 << 20]);
        let arguments =
            WriteArgs { file, offset: 0, count: 1 << 20, stable: StableHow::Unstable, data: data.into() };
        bed.call(&arguments).await.unwrap();
        let context = CallContext {
            peer: None,
            transport: TransportKind::Sim,
            xid: 1,
            program: NFS_PROGRAM,
            version: NFS_VERSION,
            procedure: 6,
            credential: user(0, 0),
            attached: None,
            owner: None,
        };
        let (arguments, _) = encode(&ReadArgs { file, offset: 0, count: 1 << 20 }).unwrap().flatten();
        let results = bed.server.nfs_program().call(context, Decoder::new(arguments)).await.unwrap();
        let payload = results.pieces().last().unwrap();
        assert!(matches!(payload, rpcrdma_xdr::Piece::Payload { ddp_eligible: true, .. }), "{}", bed.name);
        assert_eq!(payload.data().len(), 1 << 20);
        assert!(bed.server.shared.shares.domain().usage().in_use >= 1 << 20, "it lies in the pool");
        drop(results);
        assert_eq!(bed.server.shared.shares.domain().usage().in_use, 0, "and returns there");
    }
}

// requirement: rfc1813-2.6-6
#[tokio::test(start_paused = true)]
async fn i6_a_read_without_a_buffer_is_put_off() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let file = bed.make_file(bed.root, "file", 0o640).await;
    let shared = Arc::get_mut(&mut bed.server.shared);
    assert!(shared.is_none(), "the programs hold it too");
    let share = bed.server.shared.shares.of(Some(bed.peer.ip()));
    let held: Vec<_> = std::iter::from_fn(|| share.allocate(1 << 20, 1).ok()).collect();
    assert_eq!(bed.read(file, 0, 1 << 20).await.unwrap_err(), Status::Jukebox);
    // Another address has a share of its own.
    let peer = std::mem::replace(&mut bed.peer, "192.0.2.2:700".parse().unwrap());
    assert!(bed.read(file, 0, 1 << 20).await.is_ok());
    bed.peer = peer;
    drop(held);
    assert!(bed.read(file, 0, 1 << 20).await.is_ok());
}
