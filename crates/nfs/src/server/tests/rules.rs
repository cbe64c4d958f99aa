//! Rules of RFC 1813 that need calls of their own.

use super::*;

const OLD: NfsTime = NfsTime { seconds: 100, nanoseconds: 0 };

impl Bed {
    /// Returns a bed of each kind, each with a file "file" and a directory "dir" in its root.
    async fn all_with_objects() -> Vec<(Self, FileHandle, FileHandle)> {
        let mut all = Vec::new();
        for bed in Self::all() {
            let file = bed.make_file(bed.root, "file", 0o640).await;
            let dir = bed.make_directory(bed.root, "dir", 0o755).await;
            all.push((bed, file, dir));
        }
        all
    }

    /// Sets the time of modification of a file far back, so that any change of it shows.
    async fn age(&self, file: FileHandle) {
        let old = SetAttributes { mtime: SetTime::ClientTime(OLD), ..SetAttributes::default() };
        assert_eq!(self.set(file, old).await, None, "{}", self.name);
        assert_eq!(self.getattr(file).await.unwrap().mtime, OLD, "{}", self.name);
    }
}

/// RFC 1813 §3.3.7: a WRITE without data succeeds, and changes no time. A WRITE of data changes mtime and ctime (§2.5).
// requirement: rfc1813-2.5-12, rfc1813-3.3.7-2, rfc1813-3.3.7-16
#[tokio::test]
async fn rfc1813_3_3_7_only_data_changes_the_times() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o4755).await;
        bed.age(file).await;
        let before = bed.getattr(file).await.unwrap();
        for stable in [StableHow::Unstable, StableHow::FileSync] {
            // The offset of no data can be beyond the end of the largest file.
            for offset in [7, i64::MAX as u64 + 1, u64::MAX] {
                let nothing = WriteArgs { file, offset, count: 0, stable, data: Bytes::new().into() };
                let written = bed.call(&nothing).await.unwrap();
                assert_eq!(written.count, 0, "{}", bed.name);
            }
            let after = bed.getattr(file).await.unwrap();
            assert_eq!((after.mtime, after.ctime, after.size), (OLD, before.ctime, 0), "{}", bed.name);
            assert_eq!(after.mode, before.mode, "{}", bed.name);
        }
        bed.write(file, 0, b"x").await.unwrap();
        let mut after = bed.getattr(file).await.unwrap();
        assert!(after.mtime > OLD, "{}", bed.name);
        // The clock of a file system may have stood still since.
        for _ in 0..100_000 {
            if after.ctime > before.ctime {
                break;
            }
            bed.write(file, 0, b"x").await.unwrap();
            after = bed.getattr(file).await.unwrap();
        }
        assert!(after.ctime > before.ctime, "{}", bed.name);
    }
}

/// RFC 1813 §3.3.2: a change of the size changes mtime, also if the client does not ask for that.
// requirement: rfc1813-3.3.2-5, rfc1813-3.3.2-7
#[tokio::test]
async fn rfc1813_3_3_2_a_change_of_the_size_changes_mtime() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        bed.write(file, 0, b"0123456789").await.unwrap();
        for length in [4, 20, 0] {
            bed.age(file).await;
            assert_eq!(bed.set(file, size(length)).await, None, "{}", bed.name);
            let after = bed.getattr(file).await.unwrap();
            assert_eq!(after.size, length);
            assert!(after.mtime > OLD, "{} {length}", bed.name);
        }
    }
}

/// RFC 1813 §3.3.6: eof is TRUE if the read ends exactly at the end, and for every read of an empty file.
// requirement: rfc1813-3.3.6-5, rfc1813-3.3.6-6
#[tokio::test]
async fn rfc1813_3_3_6_eof_at_the_very_end() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let empty = bed.read(file, 0, 10).await.unwrap();
        assert_eq!((empty.count, empty.eof), (0, true), "{}", bed.name);
        bed.write(file, 0, b"hello").await.unwrap();
        // By an I/O thread, then from the page cache.
        for _ in 0..2 {
            for (offset, count, eof) in
                [(0, 4, false), (0, 5, true), (3, 2, true), (3, 1, false), (0, 6, true)]
            {
                let read = bed.read(file, offset, count).await.unwrap();
                assert_eq!(read.eof, eof, "{} {offset} {count}", bed.name);
            }
        }
    }
}

/// RFC 1813 §2.5, §3.1: also a failure returns the attributes of the object or directory.
// requirement: rfc1813-3.1-1
#[tokio::test]
async fn rfc1813_3_1_failures_carry_attributes() {
    for (bed, file, dir) in Bed::all_with_objects().await {
        let (root, name) = (bed.root, bed.name);
        let attributes = SetAttributes::default();
        let data = Bytes::from_static(b"x");
        let write =
            WriteArgs { file: dir, offset: 0, count: 1, stable: StableHow::Unstable, data: data.into() };
        let symlink = SymlinkData { attributes, target: Bytes::from_static(b"x") };
        let what = MknodData::Fifo(attributes);
        let guard = Some(OLD);
        for wcc in [
            bed.call(&SetattrArgs { object: file, new_attributes: mode(0o600), guard }).await.unwrap_err().1,
            bed.call(&write).await.unwrap_err().1,
            bed.call(&create(root, "file", CreateHow::Guarded(attributes))).await.unwrap_err().1,
            bed.call(&MkdirArgs { place: place(root, "file"), attributes }).await.unwrap_err().1,
            bed.call(&SymlinkArgs { place: place(root, "file"), symlink }).await.unwrap_err().1,
            bed.call(&MknodArgs { place: place(root, "file"), what }).await.unwrap_err().1,
            bed.call(&RemoveArgs { object: place(root, "none") }).await.unwrap_err().1,
            bed.call(&RmdirArgs { object: place(root, "none") }).await.unwrap_err().1,
            bed.call(&CommitArgs { file: dir, offset: 0, count: 0 }).await.unwrap_err().1,
            bed.call(&RenameArgs { from: place(root, "none"), to: place(dir, "x") })
                .await
                .unwrap_err()
                .1
                .from_dir,
            bed.call(&RenameArgs { from: place(root, "none"), to: place(dir, "x") })
                .await
                .unwrap_err()
                .1
                .to_dir,
            bed.call(&LinkArgs { file, link: place(root, "dir") }).await.unwrap_err().1.link_dir,
        ] {
            assert!(wcc.after.is_some(), "{name}");
        }
        for attributes in [
            bed.call(&LookupArgs { what: place(root, "none") }).await.unwrap_err().1,
            bed.call(&ReadlinkArgs { symlink: file }).await.unwrap_err().1,
            bed.call(&ReadArgs { file: dir, offset: 0, count: 1 }).await.unwrap_err().1,
            bed.call(&ReaddirArgs { dir: file, cookie: 0, verifier: [0; 8], count: 4096 })
                .await
                .unwrap_err()
                .1,
            bed.call(&LinkArgs { file, link: place(root, "dir") }).await.unwrap_err().1.file,
        ] {
            assert!(attributes.is_some(), "{name}");
        }
    }
}

/// RFC 1813 §2.5: data about weak cache consistency holds the size and times before a change, and the attributes after.
// requirement: rfc1813-2.5-15, rfc1813-2.5-16
#[tokio::test]
async fn rfc1813_2_5_weak_cache_consistency_of_every_change() {
    for (bed, file, dir) in Bed::all_with_objects().await {
        let (root, name) = (bed.root, bed.name);
        let attributes = SetAttributes::default();
        let check = async |object: FileHandle, before: Attributes, wcc: WccData, what: &str| {
            let told = wcc.before.unwrap_or_else(|| panic!("{name} {what}: nothing before"));
            assert_eq!(
                (told.size, told.mtime, told.ctime),
                (before.size, before.mtime, before.ctime),
                "{name} {what}"
            );
            let (mut told, mut now) = (wcc.after.unwrap(), bed.getattr(object).await.unwrap());
            (told.atime, now.atime) = (OLD, OLD);
            assert_eq!(told, now, "{name} {what}");
        };
        let now = async |object| bed.getattr(object).await.unwrap();

        let before = now(file).await;
        let written = bed.write(file, 0, b"text").await.unwrap();
        check(file, before, written.file_wcc, "WRITE").await;
        let before = now(file).await;
        let set = SetattrArgs { object: file, new_attributes: mode(0o600), guard: None };
        check(file, before, bed.call(&set).await.unwrap(), "SETATTR").await;

        let before = now(root).await;
        let made = bed.call(&create(root, "a", CreateHow::Guarded(attributes))).await.unwrap();
        check(root, before, made.dir_wcc, "CREATE").await;
        let before = now(root).await;
        let made = bed.call(&MkdirArgs { place: place(root, "b"), attributes }).await.unwrap();
        check(root, before, made.dir_wcc, "MKDIR").await;
        let before = now(root).await;
        let symlink = SymlinkData { attributes, target: Bytes::from_static(b"x") };
        let made = bed.call(&SymlinkArgs { place: place(root, "c"), symlink }).await.unwrap();
        check(root, before, made.dir_wcc, "SYMLINK").await;
        let before = now(root).await;
        let what = MknodData::Fifo(mode(0o600));
        let made = bed.call(&MknodArgs { place: place(root, "d"), what }).await.unwrap();
        check(root, before, made.dir_wcc, "MKNOD").await;
        let before = now(root).await;
        let linked = bed.call(&LinkArgs { file, link: place(root, "e") }).await.unwrap();
        check(root, before, linked.link_dir, "LINK").await;
        let (from, to) = (now(root).await, now(dir).await);
        let renamed = bed.call(&RenameArgs { from: place(root, "e"), to: place(dir, "e") }).await.unwrap();
        check(root, from, renamed.from_dir, "RENAME from").await;
        check(dir, to, renamed.to_dir, "RENAME to").await;
        let before = now(root).await;
        let removed = bed.call(&RemoveArgs { object: place(root, "a") }).await.unwrap();
        check(root, before, removed, "REMOVE").await;
        let before = now(root).await;
        let removed = bed.call(&RmdirArgs { object: place(root, "b") }).await.unwrap();
        check(root, before, removed, "RMDIR").await;
    }
}

/// RFC 1813 §3.3.19, §3.3.20: answers for any object of the file system, and preferred sizes.
// requirement: rfc1813-3.3.18-1, rfc1813-3.3.18-2, rfc1813-3.3.19-3, rfc1813-3.3.19-5, rfc1813-3.3.19-7
// requirement: rfc1813-3.3.20-1, rfc1813-3.3.20-3
#[tokio::test]
async fn rfc1813_3_3_19_information_for_any_handle() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let dir = bed.make_directory(bed.root, "dir", 0o755).await;
        let whole = bed.call(&FsinfoArgs { root: bed.root }).await.unwrap();
        assert_eq!((whole.read_preferred, whole.write_preferred), (whole.read_max, whole.write_max));
        assert!(whole.readdir_preferred > 0 && whole.read_max % whole.read_multiple == 0, "{}", bed.name);
        assert!(whole.time_delta > NfsTime { seconds: 0, nanoseconds: 0 }, "{}", bed.name);
        let limits = bed.call(&PathconfArgs { object: bed.root }).await.unwrap();
        // FSF3_HOMOGENEOUS is set: PATHCONF is the same for every object.
        assert!(limits.chown_restricted && limits.case_preserving && limits.no_trunc, "{}", bed.name);
        for object in [file, dir] {
            let info = bed.call(&FsinfoArgs { root: object }).await.unwrap();
            assert_eq!(info.attributes, Some(bed.getattr(object).await.unwrap()), "{}", bed.name);
            assert_eq!(FsinfoOk { attributes: None, ..info }, FsinfoOk { attributes: None, ..whole });
            let of_object = bed.call(&PathconfArgs { object }).await.unwrap();
            assert_eq!(of_object.attributes, Some(bed.getattr(object).await.unwrap()), "{}", bed.name);
            assert_eq!(
                PathconfOk { attributes: None, ..of_object },
                PathconfOk { attributes: None, ..limits }
            );
            let space = bed.call(&FsstatArgs { root: object }).await.unwrap();
            assert_eq!(space.attributes, Some(bed.getattr(object).await.unwrap()), "{}", bed.name);
            assert!(space.total_files >= space.free_files && space.free_files >= space.available_files);
            assert_eq!(space.invariant_seconds, 0, "the file system may change at any time");
        }
    }
}

/// RFC 1813 §3.3.21: a COMMIT of a part, or with nothing to flush, succeeds.
// requirement: rfc1813-3.3.7-11, rfc1813-3.3.21-4
#[tokio::test]
async fn rfc1813_3_3_21_a_commit_of_nothing_and_of_a_part() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let commit = |offset, count| CommitArgs { file, offset, count };
        let first = bed.call(&commit(0, 0)).await.unwrap();
        assert!(first.file_wcc.after.is_some(), "{}", bed.name);
        bed.write(file, 0, b"0123456789").await.unwrap();
        for (offset, count) in [(2, 3), (100, 0), (u64::MAX, u32::MAX), (0, 0)] {
            let verifier = bed.call(&commit(offset, count)).await.unwrap().verifier;
            assert_eq!(verifier, first.verifier, "{} {offset} {count}", bed.name);
        }
    }
}

/// RFC 1813 §3.3.16: no entry has the number 0. §2.5: numbers identify the objects of a file system.
// requirement: rfc1813-2.5-13, rfc1813-3.3.16-10
#[tokio::test]
async fn rfc1813_3_3_16_numbers_of_entries() {
    for bed in Bed::all() {
        for number in 0..10 {
            bed.make_file(bed.root, &format!("{number}"), 0o640).await;
        }
        let arguments = ReaddirArgs { dir: bed.root, cookie: 0, verifier: [0; 8], count: 4096 };
        let listed = bed.call(&arguments).await.unwrap().reply;
        let mut numbers: Vec<u64> = listed.entries.iter().map(|entry| entry.fileid).collect();
        assert!(listed.eof && !numbers.contains(&0), "{}", bed.name);
        for entry in &listed.entries {
            let name = entry.name.to_string_lossy();
            let object = bed.lookup(bed.root, &name).await.unwrap();
            assert_eq!(bed.getattr(object).await.unwrap().fileid, entry.fileid, "{} {name}", bed.name);
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 11, "{}: ten files, and the directory as . and ..", bed.name);
    }
}

/// RFC 1813 §3.3.10: a symbolic link that is visible can be read. §3.3.14: a rename over a name never leaves that name
/// without an object.
// requirement: rfc1813-3.3.10-2, rfc1813-3.3.14-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc1813_3_3_10_3_3_14_new_names_appear_whole() {
    for bed in Bed::all() {
        let root = bed.root;
        bed.make_link(root, "link", "first").await;
        let changer = Bed::calling(&bed.server, "/", "192.0.2.7", 0);
        let changes = tokio::spawn(async move {
            for round in 0..100 {
                changer.make_link(root, "next", &format!("round {round}")).await;
                assert_eq!(changer.rename((root, "next"), (root, "link")).await, None, "{}", changer.name);
            }
        });
        while !changes.is_finished() {
            let link = bed.lookup(root, "link").await.unwrap_or_else(|error| panic!("{}: {error}", bed.name));
            let next = bed.lookup(root, "next").await.ok();
            for (object, texts) in [(Some(link), ["first", "round "]), (next, ["round "; 2])] {
                let Some(symlink) = object else { continue };
                match bed.call(&ReadlinkArgs { symlink }).await {
                    Ok(text) => {
                        let whole = texts.iter().any(|begin| text.data.starts_with(begin.as_bytes()));
                        assert!(whole, "{}: {:?}", bed.name, text.data);
                    }
                    // Between look-up and READLINK the link may be replaced.
                    Err((status, _)) => assert_eq!(status, Status::Stale, "{}", bed.name),
                }
            }
        }
        changes.await.unwrap();
    }
}

/// RFC 1813 §2.5: a server returns no other status than the document defines.
// requirement: rfc1813-2.5-2
#[test]
fn rfc1813_2_5_every_failure_has_a_defined_status() {
    use crate::fs::FsError;
    for error in [
        FsError::NotPermitted,
        FsError::NotFound,
        FsError::Io,
        FsError::NoSuchDevice,
        FsError::AccessDenied,
        FsError::Exists,
        FsError::CrossDevice,
        FsError::WrongDevice,
        FsError::NotDirectory,
        FsError::IsDirectory,
        FsError::InvalidArgument,
        FsError::FileTooLarge,
        FsError::NoSpace,
        FsError::ReadOnly,
        FsError::TooManyLinks,
        FsError::NameTooLong,
        FsError::NotEmpty,
        FsError::QuotaExceeded,
        FsError::Stale,
        FsError::BadId,
        FsError::NotSynchronized,
        FsError::BadCookie,
        FsError::NotSupported,
        FsError::BadType,
        FsError::TryLater,
        FsError::ServerFault,
    ] {
        let status = Status::from(error);
        assert!(Status::ALL.contains(&status), "{error:?}: {status}");
    }
}

/// A file system without hard links.
struct NoLinks;

impl super::watched::Watch for NoLinks {
    fn has_links(&self) -> bool {
        false
    }
}

/// RFC 1813 §1.6: NFS3ERR_NOTSUPP for LINK, and FSF3_LINK is not set.
// requirement: rfc1813-1.6-1
#[tokio::test]
async fn rfc1813_1_6_no_links_are_not_supported() {
    let files: Arc<dyn crate::fs::FileSystem> = Arc::new(MemoryFs::new(MemoryOptions::default()));
    let mut export = Export::new("/", Arc::new(super::watched::WatchedFs::over(files, NoLinks)));
    export.squash = Squash::Nobody;
    let bed = Bed::serving("no links", vec![export], HandleKey::random());
    let file = bed.make_file(bed.root, "file", 0o640).await;
    let link = LinkArgs { file, link: place(bed.root, "second") };
    assert_eq!(bed.status(&link).await, Some(Status::NotSupp));
    assert_eq!(bed.call(&FsinfoArgs { root: bed.root }).await.unwrap().properties & FSF3_LINK, 0);
}

/// A file system that refuses hard links to all its callers.
struct LinksRefused;

impl super::watched::Watch for LinksRefused {
    fn may_link(&self) -> bool {
        false
    }
}

/// RFC 1813 §2.6, NFS3ERR_PERM: the refusal of a file system that has links is one of permission.
#[tokio::test]
async fn rfc1813_2_6_a_link_that_is_not_permitted() {
    let files: Arc<dyn crate::fs::FileSystem> = Arc::new(MemoryFs::new(MemoryOptions::default()));
    let mut export = Export::new("/", Arc::new(super::watched::WatchedFs::over(files, LinksRefused)));
    export.squash = Squash::Nobody;
    let bed = Bed::serving("links refused", vec![export], HandleKey::random());
    let file = bed.make_file(bed.root, "file", 0o640).await;
    let link = LinkArgs { file, link: place(bed.root, "second") };
    assert_eq!(bed.status(&link).await, Some(Status::Perm));
}

/// RFC 1813 §3.3.9: `.` and `..` exist.
// requirement: rfc1813-3.3.9-2
#[tokio::test]
async fn rfc1813_3_3_9_dots_exist() {
    for bed in Bed::all() {
        for dots in [".", ".."] {
            let made = MkdirArgs { place: place(bed.root, dots), attributes: mode(0o755) };
            assert_eq!(bed.status(&made).await, Some(Status::Exist), "{} {dots}", bed.name);
        }
    }
}

/// RFC 1813 §3.3.20: names that differ in case are different names, and keep their case.
// requirement: rfc1813-3.3.20-4
#[tokio::test]
async fn rfc1813_3_3_20_names_keep_their_case() {
    for bed in Bed::all() {
        let limits = bed.call(&PathconfArgs { object: bed.root }).await.unwrap();
        assert!(!limits.case_insensitive && limits.case_preserving, "{}", bed.name);
        let one = bed.make_file(bed.root, "Name", 0o640).await;
        assert_eq!(bed.lookup(bed.root, "name").await, Err(Status::NoEnt), "{}", bed.name);
        let two = bed.make_file(bed.root, "name", 0o640).await;
        assert_ne!(one, two, "{}", bed.name);
        let arguments = ReaddirArgs { dir: bed.root, cookie: 0, verifier: [0; 8], count: 4096 };
        let listed = bed.call(&arguments).await.unwrap().reply.entries;
        for name in ["Name", "name"] {
            assert!(
                listed.iter().any(|entry| entry.name.as_bytes() == name.as_bytes()),
                "{} {name}",
                bed.name
            );
        }
    }
}

/// RFC 1813 §4.4: an owner may read and write a file whatever its mode says, but ACCESS tells what the mode says.
// requirement: rfc1813-4.4-2
#[tokio::test]
async fn rfc1813_4_4_access_knows_no_right_of_owners() {
    for bed in Bed::all_of_users(untuned) {
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let file = bed.make_file(bed.root, "file", 0o600).await;
        assert_eq!(bed.set(file, SetAttributes { uid: Some(1000), ..mode(0) }).await, None);
        let bed = bed.by(1000, 1000);
        assert_eq!(bed.access(file).await, 0, "{}", bed.name);
        assert_eq!(bed.write(file, 0, b"x").await.unwrap().count, 1, "{}", bed.name);
        assert_eq!(bed.read(file, 0, 1).await.unwrap().data, b"x"[..], "{}", bed.name);
    }
}

/// RFC 1813 §4.4: unless the export says otherwise, user 0 is nobody. §5.2.1: a caller without a credential mounts, with
/// the rights of nobody.
// requirement: rfc1813-4.4-4, rfc1813-5.2.1-5
#[tokio::test]
async fn rfc1813_4_4_5_2_1_who_is_nobody() {
    let export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    let mut bed = Bed::serving("by default", vec![export], HandleKey::random());
    for credential in [user(0, 0), Credential::None] {
        bed.credential = credential;
        let MountResult::Ok(mounted) = bed.mnt("/").await else { panic!("refused") };
        assert_eq!(mounted.handle, bed.root);
        let name = format!("{}", bed.credential.flavor());
        let made = bed.call(&create(bed.root, &name, CreateHow::Guarded(mode(0o600)))).await;
        match made {
            Ok(made) => {
                let attributes = made.attributes.unwrap();
                assert_eq!((attributes.uid, attributes.gid), (NOBODY, NOBODY), "{name}");
            }
            Err((status, _)) => assert_eq!(status, Status::Acces, "{name}"),
        }
    }
}
