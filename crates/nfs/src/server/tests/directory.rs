//! Tests for directory trees only: local changes, other processes, restarts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

#[test]
fn the_tests_reach_what_root_can_do() {
    let places = places();
    let state = StateDirectory::open(places.1.path()).unwrap();
    let fs = DirectoryFs::open(places.0.path(), &state, DirectoryOptions::default()).unwrap();
    let root = rustix::process::geteuid().is_root();
    // Root without capabilities (a container) has neither.
    println!("root {root}, handles {}, callers {}", fs.has_kernel_handles(), fs.acts_as_callers());
    assert!(root || !fs.acts_as_callers());
}

// requirement: rfc1813-1.6-2, rfc1813-3.3.14-5
#[tokio::test]
async fn handles_survive_a_restart_and_a_rename() {
    for bed in Bed::directories() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let file = bed.make_file(directory, "file", 0o640).await;
        bed.write(file, 0, b"text").await.unwrap();
        assert_eq!(bed.rename((bed.root, "dir"), (bed.root, "moved")).await, None);
        let root = bed.root;
        let bed = bed.restarted();
        assert_eq!(bed.root, root, "{}", bed.name);
        assert_eq!(bed.read(file, 0, 9).await.unwrap().data, b"text"[..], "{}", bed.name);
        assert!(bed.getattr(directory).await.unwrap().is_directory());
        assert_eq!(bed.lookup(bed.root, "moved").await, Ok(directory), "{}", bed.name);
        assert_eq!(bed.remove(directory, "file").await, None);
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
        let bed = bed.restarted();
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
        let fsid = bed.getattr(bed.root).await.unwrap().fsid;
        assert_eq!(bed.restarted().getattr(root).await.unwrap().fsid, fsid);
    }
}

#[tokio::test]
async fn a_handle_follows_what_others_do() {
    for bed in Bed::directories() {
        let file = bed.make_file(bed.root, "file", 0o640).await;
        fs::rename(bed.path().join("file"), bed.path().join("elsewhere")).unwrap();
        if bed.name == "map" {
            // The map did not see the rename: the handle is stale until a look-up finds the file again.
            assert_eq!(bed.getattr(file).await, Err(Status::Stale));
            assert_eq!(bed.lookup(bed.root, "elsewhere").await, Ok(file));
        }
        assert!(bed.getattr(file).await.is_ok(), "{}", bed.name);
        // Another file with that name is another object.
        fs::remove_file(bed.path().join("elsewhere")).unwrap();
        fs::write(bed.path().join("elsewhere"), b"other").unwrap();
        assert_eq!(bed.getattr(file).await, Err(Status::Stale), "{}", bed.name);
        assert_eq!(bed.read(file, 0, 1).await.unwrap_err(), Status::Stale, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.3-3
#[tokio::test]
async fn no_symbolic_link_is_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    for bed in Bed::directories() {
        let target = outside.path().to_str().unwrap();
        let link = bed.make_link(bed.root, "way-out", target).await;
        let file_link = bed.make_link(bed.root, "file-out", &format!("{target}/secret")).await;
        for handle in [link, file_link] {
            assert_eq!(bed.getattr(handle).await.unwrap().file_type, FileType::Symlink, "{}", bed.name);
            assert_eq!(bed.lookup(handle, "secret").await, Err(Status::NotDir), "{}", bed.name);
            assert_eq!(bed.read(handle, 0, 9).await.unwrap_err(), Status::Inval, "{}", bed.name);
            assert_eq!(bed.set(handle, size(0)).await, Some(Status::Inval), "{}", bed.name);
            let how = CreateHow::Guarded(SetAttributes::default());
            assert_eq!(bed.status(&create(handle, "x", how)).await, Some(Status::NotDir), "{}", bed.name);
            assert_eq!(bed.set(handle, mode(0o777)).await, Some(Status::Inval), "{}", bed.name);
            let owner = SetAttributes { uid: Some(12), ..SetAttributes::default() };
            let _ = bed.set(handle, owner).await;
        }
        let how = CreateHow::Unchecked(size(0));
        assert_eq!(bed.status(&create(bed.root, "file-out", how)).await, Some(Status::Exist), "{}", bed.name);
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
        assert_ne!(fs::metadata(outside.path().join("secret")).unwrap().uid(), 12);
        assert_ne!(fs::metadata(outside.path()).unwrap().uid(), 12);
    }
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), b"secret").unwrap();
    for bed in Bed::directories() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let file = bed.make_file(directory, "file", 0o640).await;
        bed.write(file, 0, b"mine").await.unwrap();
        // Without the server, a link takes the place of the directory.
        fs::rename(bed.path().join("dir"), bed.path().join("dir2")).unwrap();
        symlink(outside.path(), bed.path().join("dir")).unwrap();
        let bed = bed.restarted();
        match bed.read(file, 0, 9).await {
            Ok(read) => assert_eq!(read.data, b"mine"[..], "{}", bed.name),
            Err(status) => assert_eq!((bed.name, status), ("map", Status::Stale)),
        }
        match bed.lookup(directory, "file").await {
            Ok(found) => assert_eq!(found, file, "{}", bed.name),
            Err(status) => assert_eq!((bed.name, status), ("map", Status::Stale)),
        }
    }
}

// requirement: rfc1813-3.2-3
#[tokio::test]
async fn a_directory_that_was_moved_out_has_no_parent() {
    let outside = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
    for bed in Bed::directories() {
        let directory = bed.make_directory(bed.root, "dir", 0o755).await;
        let target = outside.path().join(bed.name);
        fs::rename(bed.path().join("dir"), &target).unwrap();
        match bed.lookup(directory, "..").await {
            Err(Status::Acces | Status::Stale) => {}
            other => panic!("{}: {other:?}", bed.name),
        }
        let arguments =
            ReaddirplusArgs { dir: directory, cookie: 0, verifier: [0; 8], dircount: 4096, maxcount: 4096 };
        if let Ok(listed) = bed.call(&arguments).await {
            let up = listed.reply.entries.iter().find(|entry| entry.name.as_bytes() == b"..").unwrap();
            assert_eq!((up.handle, up.attributes), (None, None), "{}", bed.name);
        }
    }
}

#[test]
fn state_inside_of_the_export_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(state.path()).unwrap();
    let Err(refused) = DirectoryFs::open(Path::new("/"), &state, DirectoryOptions::default()) else {
        panic!("the state directory lies inside of it");
    };
    assert!(refused.to_string().contains("lies inside the export"), "{refused}");
}

#[tokio::test]
async fn attributes_of_others_are_seen_and_the_cache_is_no_way_around() {
    for bed in Bed::directories() {
        if !super::objects::acts_as_callers() {
            continue;
        }
        assert_eq!(bed.set(bed.root, mode(0o755)).await, None);
        let file = bed.make_file(bed.root, "file", 0o644).await;
        bed.write(file, 0, b"text").await.unwrap();
        let bed = bed.by(1000, 1000);
        for _ in 0..2 {
            assert!(bed.read(file, 0, 4).await.is_ok(), "{}", bed.name);
        }
        fs::set_permissions(bed.path().join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(bed.read(file, 0, 4).await.unwrap_err(), Status::Acces, "{}", bed.name);
    }
}

#[tokio::test]
async fn more_files_than_are_kept_open() {
    fn few(_: &mut Export, options: &mut DirectoryOptions) {
        options.open_files = 4;
    }
    let bed = Bed::directory_at(places(), HandleSource::Automatic, few);
    let mut files = Vec::new();
    for number in 0..20 {
        let file = bed.make_file(bed.root, &format!("file{number}"), 0o640).await;
        bed.write(file, 0, b"text").await.unwrap();
        files.push(file);
    }
    for file in files {
        assert_eq!(bed.read(file, 0, 10).await.unwrap().count, 4);
    }
}

#[tokio::test]
async fn changes_are_on_stable_storage_before_the_answer() {
    // With the default, every operation works too.
    fn synchronous(_: &mut Export, options: &mut DirectoryOptions) {
        options.sync_metadata = true;
    }
    let bed = Bed::directory_at(places(), HandleSource::Automatic, synchronous);
    let directory = bed.make_directory(bed.root, "dir", 0o755).await;
    let file = bed.make_file(directory, "file", 0o640).await;
    bed.make_link(directory, "link", "x").await;
    let what = MknodData::Fifo(mode(0o600));
    assert_eq!(bed.status(&MknodArgs { place: place(directory, "fifo"), what }).await, None);
    let fifo = bed.lookup(directory, "fifo").await.unwrap();
    assert_eq!(bed.set(fifo, mode(0o644)).await, None);
    assert_eq!(bed.set(file, size(10)).await, None);
    assert_eq!(bed.rename((directory, "file"), (bed.root, "file")).await, None);
    assert_eq!(bed.status(&LinkArgs { file, link: place(directory, "again") }).await, None);
    assert_eq!(bed.remove(directory, "again").await, None);
}

#[tokio::test]
async fn many_calls_at_once() {
    for bed in Bed::all() {
        let bed = Arc::new(bed);
        let file = bed.make_file(bed.root, "file", 0o640).await;
        let calls: Vec<_> = (0..64_u64)
            .map(|number| {
                let bed = Arc::clone(&bed);
                async move {
                    let context = CallContext {
                        peer: None,
                        transport: TransportKind::Sim,
                        xid: u32::try_from(number).unwrap(),
                        program: NFS_PROGRAM,
                        version: NFS_VERSION,
                        procedure: 7,
                        credential: user(0, 0),
                        attached: None,
                        owner: None,
                    };
                    let data = vec![u8::try_from(number).unwrap(); 4096].into();
                    let arguments = WriteArgs {
                        file,
                        offset: number * 4096,
                        count: 4096,
                        stable: StableHow::Unstable,
                        data,
                    };
                    let (arguments, _) = encode(&arguments).unwrap().flatten();
                    bed.server.nfs_program().call(context, Decoder::new(arguments)).await.unwrap();
                }
            })
            .map(tokio::spawn)
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let read = bed.read(file, 0, 1 << 20).await.unwrap();
        assert_eq!(read.count, 64 * 4096);
        assert!(
            read.data
                .join()
                .0
                .chunks(4096)
                .enumerate()
                .all(|(n, part)| part.iter().all(|&o| usize::from(o) == n))
        );
    }
}
