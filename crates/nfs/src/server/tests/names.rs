//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK on every file system.

use super::*;

const VERIFIER: Verifier = [0x0a, 1, 2, 3, 0x0b, 5, 6, 7];

// requirement: rfc1813-3.3.8-1, rfc1813-3.3.8-2, rfc1813-3.3.8-10, rfc1813-4.6-1
#[tokio::test]
async fn create_in_its_three_ways() {
    for bed in Bed::all() {
        let with = |mode_bits, size| SetAttributes { size, ..mode(mode_bits) };
        let guarded = create(bed.root, "a", CreateHow::Guarded(with(0o666, Some(3))));
        let made = bed.call(&guarded).await.unwrap();
        let file = made.object.unwrap();
        assert_eq!(
            (made.attributes.unwrap().mode, made.attributes.unwrap().size),
            (0o666, 3),
            "{}",
            bed.name
        );
        let before = made.dir_wcc.before.unwrap();
        let after = made.dir_wcc.after.unwrap();
        assert!(before.mtime <= after.mtime);
        let (status, wcc) = bed.call(&guarded).await.unwrap_err();
        assert_eq!(status, Status::Exist, "{}", bed.name);
        assert!(wcc.after.is_some());
        // UNCHECKED opens an existing file, and truncates it on request.
        let kept = bed.call(&create(bed.root, "a", CreateHow::Unchecked(with(0o600, None)))).await.unwrap();
        assert_eq!(kept.object, Some(file), "{}", bed.name);
        assert_eq!((kept.attributes.unwrap().mode, kept.attributes.unwrap().size), (0o666, 3));
        let cut = bed.call(&create(bed.root, "a", CreateHow::Unchecked(with(0o600, Some(0))))).await.unwrap();
        assert_eq!(cut.attributes.unwrap().size, 0, "{}", bed.name);
        assert_eq!(cut.object, Some(file));
        let new = bed.call(&create(bed.root, "b", CreateHow::Unchecked(with(0o4600, None)))).await.unwrap();
        let lends = bed.distinguishes_users();
        assert_eq!(new.attributes.unwrap().mode, if lends { 0o4600 } else { 0o600 }, "{}", bed.name);
        // Other objects are not files.
        bed.make_directory(bed.root, "dir", 0o755).await;
        bed.make_link(bed.root, "link", "a").await;
        for name in ["dir", "link"] {
            for how in [CreateHow::Unchecked(with(0o600, Some(0))), CreateHow::Exclusive(VERIFIER)] {
                let status = bed.status(&create(bed.root, name, how)).await;
                assert_eq!(status, Some(Status::Exist), "{} {name}", bed.name);
            }
        }
        let inside = create(file, "x", CreateHow::Guarded(with(0o600, None)));
        assert_eq!(bed.status(&inside).await, Some(Status::NotDir), "{}", bed.name);
        for dots in [".", ".."] {
            let how = CreateHow::Guarded(with(0o600, None));
            assert_eq!(bed.status(&create(bed.root, dots, how)).await, Some(Status::Exist));
        }
    }
}

// requirement: rfc1813-3.3.8-5, rfc1813-3.3.8-6
#[tokio::test]
async fn exclusive_create_can_be_repeated_and_survives_a_restart() {
    for mut bed in Bed::all() {
        let root = bed.root;
        let exclusive = |verifier| create(root, "file", CreateHow::Exclusive(verifier));
        let made = bed.call(&exclusive(VERIFIER)).await.unwrap();
        let again = bed.call(&exclusive(VERIFIER)).await.unwrap();
        assert_eq!(made.object, again.object, "{}", bed.name);
        let other = [9; 8];
        assert_eq!(bed.status(&exclusive(other)).await, Some(Status::Exist), "{}", bed.name);
        if bed.places.is_some() {
            bed = bed.restarted();
            assert_eq!(bed.call(&exclusive(VERIFIER)).await.unwrap().object, made.object, "{}", bed.name);
        }
        // RFC 1813 §3.3.8: after the client sets the attributes, the file is an ordinary one.
        let file = made.object.unwrap();
        let times = SetAttributes { atime: SetTime::ServerTime, mtime: SetTime::ServerTime, ..mode(0o640) };
        assert_eq!(bed.set(file, times).await, None);
        let exclusive = create(bed.root, "file", CreateHow::Exclusive(VERIFIER));
        assert_eq!(bed.status(&exclusive).await, Some(Status::Exist), "{}", bed.name);
    }
}

/// RFC 1813 §3.3.8: the verifier identifies a repeated call; all of its 64 bits count.
// requirement: rfc1813-3.3.8-7
#[tokio::test]
async fn every_bit_of_a_verifier_counts() {
    for bed in Bed::all() {
        let exclusive =
            |verifier: u64| create(bed.root, "file", CreateHow::Exclusive(verifier.to_be_bytes()));
        for verifier in [0, u64::MAX, 0x8000_0000_8000_0000, 0x0123_4567_89ab_cdef] {
            assert_eq!(bed.status(&exclusive(verifier)).await, None, "{}", bed.name);
            for bit in 0..64 {
                let other = bed.status(&exclusive(verifier ^ (1 << bit))).await;
                assert_eq!(other, Some(Status::Exist), "{} {verifier:016x} bit {bit}", bed.name);
            }
            assert_eq!(bed.status(&exclusive(verifier)).await, None, "{} a repeat", bed.name);
            assert_eq!(bed.remove(bed.root, "file").await, None);
        }
    }
}

// requirement: rfc1813-2.5-4, rfc1813-2.5-11, rfc1813-3.3.6-1, rfc1813-3.3.6-9, rfc1813-3.3.7-1, rfc1813-3.3.7-18
// requirement: rfc1813-3.3.11-1, rfc1813-3.3.11-2
#[tokio::test]
async fn special_files() {
    for bed in Bed::all() {
        let attributes = mode(0o622);
        let spec = SpecData { major: 1, minor: 3 };
        let cases = [
            ("fifo", MknodData::Fifo(attributes), FileType::Fifo),
            ("socket", MknodData::Socket(attributes), FileType::Socket),
            ("null", MknodData::CharacterDevice(DeviceData { attributes, spec }), FileType::CharacterDevice),
            ("block", MknodData::BlockDevice(DeviceData { attributes, spec }), FileType::BlockDevice),
        ];
        for (name, what, file_type) in cases {
            let device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
            if device && !bed.distinguishes_users() {
                continue;
            }
            let made = bed.call(&MknodArgs { place: place(bed.root, name), what }).await.unwrap();
            let got = made.attributes.unwrap();
            assert_eq!((got.file_type, got.mode), (file_type, 0o622), "{} {name}", bed.name);
            assert_eq!(got.rdev, if device { spec } else { SpecData::default() }, "{}", bed.name);
            // The server opens none of them: reading /dev/null would succeed, reading a FIFO would wait for
            // ever.
            let object = made.object.unwrap();
            assert_eq!(bed.read(object, 0, 1).await.unwrap_err(), Status::Inval, "{} {name}", bed.name);
            assert_eq!(bed.write(object, 0, b"x").await.unwrap_err(), Status::Inval);
            assert_eq!(
                bed.status(&MknodArgs { place: place(bed.root, name), what }).await,
                Some(Status::Exist)
            );
        }
        for what in [MknodData::Regular, MknodData::Directory, MknodData::Symlink] {
            let status = bed.status(&MknodArgs { place: place(bed.root, "x"), what }).await;
            assert_eq!(status, Some(Status::BadType), "{}", bed.name);
        }
        let what = MknodData::CharacterDevice(DeviceData { attributes, spec });
        let open = bed.set(bed.root, mode(0o777)).await;
        assert_eq!(open, None);
        let bed = bed.by(1000, 1000);
        let status = bed.status(&MknodArgs { place: place(bed.root, "y"), what }).await;
        if bed.distinguishes_users() {
            assert_eq!(status, Some(Status::Perm), "{}", bed.name);
        }
    }
}

// requirement: rfc1813-2.5-5, rfc1813-2.5-6, rfc1813-3.3.12-1, rfc1813-3.3.15-2, rfc1813-3.3.15-3
#[tokio::test]
async fn links_of_both_kinds() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let link = |file, dir, name: &str| LinkArgs { file, link: place(dir, name) };
        let linked = bed.call(&link(file, directory, "second")).await.unwrap();
        assert_eq!(linked.file.unwrap().nlink, 2, "{}", bed.name);
        assert!(linked.link_dir.before.is_some() && linked.link_dir.after.is_some());
        assert_eq!(bed.lookup(directory, "second").await, Ok(file), "{}", bed.name);
        assert_eq!(bed.status(&link(file, directory, "second")).await, Some(Status::Exist));
        assert_eq!(bed.status(&link(directory, bed.root, "loop")).await, Some(Status::IsDir), "{}", bed.name);
        assert_eq!(bed.status(&link(file, file, "x")).await, Some(Status::NotDir), "{}", bed.name);
        // A name is removed, the file stays.
        assert_eq!(bed.remove(bed.root, "file").await, None);
        assert_eq!(bed.getattr(file).await.unwrap().nlink, 1, "{}", bed.name);
        bed.write(file, 0, b"x").await.unwrap();
        assert_eq!(bed.remove(directory, "second").await, None);
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
        // A symbolic link can have two names too, and is not followed.
        let symlink = bed.make_link(bed.root, "symlink", "dir").await;
        assert_eq!(bed.status(&link(symlink, bed.root, "again")).await, None, "{}", bed.name);
        let again = bed.lookup(bed.root, "again").await.unwrap();
        assert_eq!(bed.getattr(again).await.unwrap().file_type, FileType::Symlink, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.5-1
#[tokio::test]
async fn symbolic_links_have_limits() {
    for bed in Bed::all() {
        let symlink = |target: String| SymlinkArgs {
            place: place(bed.root, "link"),
            symlink: SymlinkData { attributes: SetAttributes::default(), target: Bytes::from(target) },
        };
        assert_eq!(bed.status(&symlink(String::new())).await, Some(Status::Inval), "{}", bed.name);
        for length in [4096, 4097, 5000, MAX_PATH_ON_WIRE] {
            let status = bed.status(&symlink("x".repeat(length))).await;
            assert_eq!(status, Some(Status::NameTooLong), "{} {length}", bed.name);
        }
        let longest = "y/".repeat(2047) + "z";
        assert_eq!(bed.status(&symlink(longest.clone())).await, None, "{}", bed.name);
        let link = bed.lookup(bed.root, "link").await.unwrap();
        assert_eq!(bed.call(&ReadlinkArgs { symlink: link }).await.unwrap().data, longest);
        assert_eq!(bed.getattr(link).await.unwrap().size, 4095);
    }
}

// requirement: rfc1813-2.5-5, rfc1813-2.5-9, rfc1813-3.3.12-1, rfc1813-3.3.13-1, rfc1813-3.3.13-2
#[tokio::test]
async fn what_is_removed_is_gone() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        bed.write(file, 0, b"text").await.unwrap();
        bed.read(file, 0, 4).await.unwrap();
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        bed.make_file(directory, "inner", 0o640).await;
        let rmdir = |name: &str| RmdirArgs { object: place(bed.root, name) };
        assert_eq!(bed.remove(bed.root, "dir").await, Some(Status::IsDir), "{}", bed.name);
        assert_eq!(bed.status(&rmdir("file")).await, Some(Status::NotDir), "{}", bed.name);
        assert_eq!(bed.status(&rmdir("dir")).await, Some(Status::NotEmpty), "{}", bed.name);
        assert_eq!(bed.status(&rmdir(".")).await, Some(Status::Inval), "{}", bed.name);
        assert_eq!(bed.remove(bed.root, "none").await, Some(Status::NoEnt));
        assert_eq!(bed.remove(bed.root, "file").await, None);
        assert_eq!(bed.remove(bed.root, "file").await, Some(Status::NoEnt));
        // The handle is stale although the file was open.
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
        assert_eq!(bed.read(file, 0, 1).await.unwrap_err(), Status::Stale, "{}", bed.name);
        assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Stale, "{}", bed.name);
        assert_eq!(bed.remove(directory, "inner").await, None);
        assert_eq!(bed.status(&rmdir("dir")).await, None, "{}", bed.name);
        assert_eq!(bed.getattr(directory).await, Err(Status::Stale), "{}", bed.name);
        assert_eq!(bed.lookup(directory, "inner").await, Err(Status::Stale), "{}", bed.name);
        let how = CreateHow::Guarded(SetAttributes::default());
        assert_eq!(bed.status(&create(directory, "x", how)).await, Some(Status::Stale), "{}", bed.name);
        // A new file of that name is another object.
        let next = bed.make_file(bed.root, "file", 0o640).await;
        assert_ne!(next, file);
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
    }
}

// requirement: rfc1813-2.5-6, rfc1813-3.3.14-5
#[tokio::test]
async fn a_renamed_object_keeps_its_handle() {
    for bed in Bed::all() {
        let a = bed.make_directory(bed.root, "a", 0o755).await;
        let b = bed.make_directory(bed.root, "b", 0o755).await;
        let deep = bed.make_directory(a, "deep", 0o755).await;
        let file = bed.make_file(deep, "file", 0o640).await;
        bed.write(file, 0, b"text").await.unwrap();
        let rename = RenameArgs { from: place(a, "deep"), to: place(b, "moved") };
        let wcc = bed.call(&rename).await.unwrap();
        assert!(wcc.from_dir.after.is_some() && wcc.to_dir.before.is_some());
        assert_eq!(bed.read(file, 0, 9).await.unwrap().data, b"text"[..], "{}", bed.name);
        assert_eq!(bed.lookup(b, "moved").await, Ok(deep), "{}", bed.name);
        assert_eq!(bed.lookup(deep, "..").await, Ok(b), "{}", bed.name);
        assert_eq!(bed.lookup(a, "deep").await, Err(Status::NoEnt));
        assert_eq!(bed.rename((deep, "file"), (bed.root, "top")).await, None);
        assert_eq!(bed.lookup(bed.root, "top").await, Ok(file), "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.14-3, rfc1813-3.3.14-4, rfc1813-3.3.14-6
#[tokio::test]
async fn rename_replaces_what_is_compatible() {
    for bed in Bed::all() {
        let root = bed.root;
        let file = bed.make_file(root, "file", 0o640).await;
        let old = bed.make_file(root, "old", 0o640).await;
        bed.write(old, 0, b"x").await.unwrap();
        let full = bed.make_directory(root, "full", 0o755).await;
        bed.make_file(full, "inner", 0o640).await;
        let empty = bed.make_directory(root, "empty", 0o755).await;
        let dir = bed.make_directory(root, "dir", 0o755).await;
        assert_eq!(bed.rename((root, "file"), (root, "old")).await, None, "{}", bed.name);
        assert_eq!(bed.lookup(root, "old").await, Ok(file));
        assert_eq!(bed.getattr(old).await, Err(Status::Stale), "{}", bed.name);
        assert_eq!(bed.read(old, 0, 1).await.unwrap_err(), Status::Stale, "{}", bed.name);
        assert_eq!(bed.rename((root, "dir"), (root, "empty")).await, None, "{}", bed.name);
        assert_eq!(bed.getattr(empty).await, Err(Status::Stale), "{}", bed.name);
        for (from, to, refusal) in [
            ("empty", "full", Status::NotEmpty),
            ("empty", "old", Status::NotDir),
            ("old", "full", Status::IsDir),
            ("none", "x", Status::NoEnt),
            (".", "x", Status::Inval),
            ("old", "..", Status::Inval),
        ] {
            let status = bed.rename((root, from), (root, to)).await;
            assert_eq!(status, Some(refusal), "{} {from} to {to}", bed.name);
        }
        // A directory cannot move into itself.
        assert_eq!(bed.rename((root, "empty"), (dir, "x")).await, Some(Status::Inval), "{}", bed.name);
        let inner = bed.make_directory(dir, "inner", 0o755).await;
        assert_eq!(bed.rename((root, "empty"), (inner, "x")).await, Some(Status::Inval), "{}", bed.name);
        // RFC 1813 §3.3.14: for two names of one file, rename does nothing.
        assert_eq!(bed.status(&LinkArgs { file, link: place(root, "twin") }).await, None);
        assert_eq!(bed.rename((root, "twin"), (root, "old")).await, None, "{}", bed.name);
        assert_eq!(bed.lookup(root, "twin").await, Ok(file), "{}", bed.name);
        assert_eq!(bed.lookup(root, "old").await, Ok(file));
        // A rename of a name to itself does nothing either.
        assert_eq!(bed.rename((root, "old"), (root, "old")).await, None);
        assert_eq!(bed.getattr(file).await.unwrap().nlink, 2, "{}", bed.name);
    }
}

#[tokio::test]
async fn link_counts_of_directories() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let count = async |object| bed.getattr(object).await.unwrap().nlink;
    let a = bed.make_directory(bed.root, "a", 0o755).await;
    let b = bed.make_directory(bed.root, "b", 0o755).await;
    assert_eq!((count(bed.root).await, count(a).await), (4, 2));
    bed.make_directory(a, "inner", 0o755).await;
    assert_eq!(count(a).await, 3);
    assert_eq!(bed.rename((a, "inner"), (b, "inner")).await, None);
    assert_eq!((count(a).await, count(b).await), (2, 3));
    assert_eq!(bed.rename((bed.root, "a"), (b, "inner")).await, None);
    assert_eq!((count(bed.root).await, count(b).await), (3, 3));
}
