//! Copies that must not destroy other objects: linked targets, the source itself, devices and pipes. Also
//! lost replies, and directories inside themselves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_oncrpc::{AuthSys, Credential};
use rustix::fs::{CWD, FileType as LocalType, Mode, mknodat};
use tempfile::{TempDir, tempdir};

use super::loopback::{arguments, options};
use super::*;
use crate::client::{
    Client, ClientOptions, CopyFailure, CopyOptions, CopyReport, CopyRun, Error, MAX_REPORTED,
};
use crate::fs::{DirectoryFs, DirectoryOptions, MemoryFs, MemoryOptions, StateDirectory};
use crate::server::{Export, Squash};
use crate::wire::{
    CreateArgs, CreateHow, DirOpArgs, FileName, FileType, LinkArgs, MkdirArgs, MknodArgs, MknodData,
    NfsProcedure, ReadArgs, RemoveArgs, RenameArgs, SetAttributes, SetattrArgs, Status, SymlinkArgs,
};

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

fn tree_without_attributes() -> CopyOptions {
    CopyOptions { preserve: false, ..recursive() }
}

fn plain() -> CopyOptions {
    CopyOptions { preserve: false, ..CopyOptions::default() }
}

fn good(report: &CopyReport) {
    assert_eq!(format!("{:?}", report.failures), "[]");
}

async fn store(client: &Client, path: &str, content: impl Into<Bytes>) {
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let file = client.create(path, attributes).await.unwrap();
    file.write_at(0, content.into()).await.unwrap();
    file.sync().await.unwrap();
}

async fn content(client: &Client, path: &str) -> Vec<u8> {
    let mut stream = client.open(path).await.unwrap().read_stream(0, None).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = stream.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    read
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let mut names: Vec<String> =
        client.read_dir(path).await.unwrap().into_iter().map(|item| item.name.to_string()).collect();
    names.sort();
    names
}

/// A server of a local directory, with a client that calls as this process.
struct Mirror {
    place: TempDir,
    _state: TempDir,
    server: Arc<Loopback>,
    client: Client,
}

impl Mirror {
    async fn new() -> Self {
        let (place, state) = (tempdir().unwrap(), tempdir().unwrap());
        let kept = StateDirectory::open(state.path()).unwrap();
        let directory = DirectoryFs::open(place.path(), &kept, DirectoryOptions::default()).unwrap();
        let mut export = Export::new("/", Arc::new(directory));
        export.squash = Squash::Nobody;
        let server = Loopback::serving(vec![export]);
        let client = server.mount_with("/", ClientOptions { chunk: 4096, ..ClientOptions::default() }).await;
        Self { place, _state: state, server, client }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }
}

/// Returns a pattern that distinguishes files in every block.
fn pattern(letter: u8) -> Vec<u8> {
    vec![letter; 50_000]
}

// Names of one file at the target.

/// Files of a tree never end up in one local file, whatever hard links exist.
#[tokio::test]
async fn linked_local_targets_of_a_tree_get_their_own_content() {
    for in_place in [false, true] {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount_with("/", ClientOptions { chunk: 4096, ..options() }).await;
        let local = tempdir().unwrap();
        fs::write(local.path().join("x"), "old").unwrap();
        fs::hard_link(local.path().join("x"), local.path().join("y")).unwrap();
        fs::hard_link(local.path().join("x"), local.path().join("bystander")).unwrap();
        for (name, letter) in [("/x", b'x'), ("/y", b'y')] {
            store(&client, name, pattern(letter)).await;
        }
        let options = CopyOptions { in_place, ..tree_without_attributes() };
        good(&client.get("/", local.path(), &options).await.unwrap());
        assert!(fs::read(local.path().join("x")).unwrap() == pattern(b'x'), "{in_place}");
        assert!(fs::read(local.path().join("y")).unwrap() == pattern(b'y'), "{in_place}");
        if !in_place {
            assert_eq!(fs::read(local.path().join("bystander")).unwrap(), b"old");
        }
    }
}

/// Files of a tree never end up in one file at the server.
#[tokio::test]
async fn linked_targets_of_a_tree_at_the_server_get_their_own_content() {
    for in_place in [false, true] {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount_with("/", ClientOptions { chunk: 4096, ..options() }).await;
        store(&client, "/x", "old").await;
        client.link("/x", "/y").await.unwrap();
        client.link("/x", "/bystander").await.unwrap();
        let local = tempdir().unwrap();
        for (name, letter) in [("x", b'x'), ("y", b'y')] {
            fs::write(local.path().join(name), pattern(letter)).unwrap();
        }
        let options = CopyOptions { in_place, ..tree_without_attributes() };
        good(&client.put(local.path().join("."), "/", &options).await.unwrap());
        assert!(content(&client, "/x").await == pattern(b'x'), "{in_place}");
        assert!(content(&client, "/y").await == pattern(b'y'), "{in_place}");
        if !in_place {
            assert_eq!(content(&client, "/bystander").await, b"old");
        }
    }
}

// A file and its copy are the same.

/// A file with two names that is copied onto itself stays unchanged, in both directions, in place or not.
#[tokio::test]
async fn a_file_is_not_copied_onto_itself() {
    let mirror = Mirror::new().await;
    let big = mirror.path("big");
    fs::write(&big, pattern(b'b')).unwrap();
    fs::hard_link(&big, mirror.path("other")).unwrap();
    for in_place in [false, true] {
        let options = CopyOptions { in_place, ..plain() };
        for target in ["/big", "/other"] {
            let report = mirror.client.put(&big, target, &options).await.unwrap();
            assert!(fs::read(&big).unwrap() == pattern(b'b'), "put {target} {in_place}");
            assert_eq!(report.failures.len(), 1, "put {target} {in_place}");
            assert!(report.failures[0].error.to_string().contains("are the same file"), "{report:?}");
        }
        for target in ["big", "other"] {
            let report = mirror.client.get("/big", mirror.path(target), &options).await.unwrap();
            assert!(fs::read(&big).unwrap() == pattern(b'b'), "get {target} {in_place}");
            assert_eq!(report.failures.len(), 1, "get {target} {in_place}");
            assert!(report.failures[0].error.to_string().contains("are the same file"), "{report:?}");
        }
    }
    // A copy of equal length and time is another file.
    fs::copy(&big, mirror.path("copy")).unwrap();
    good(&mirror.client.put(&big, "/copy", &plain()).await.unwrap());
    good(&mirror.client.get("/big", mirror.path("copy"), &plain()).await.unwrap());
    assert_eq!(mirror.server.count(NfsProcedure::Null), 0);
}

/// If the source cannot be read, a file to be written in place keeps its content.
#[tokio::test]
async fn a_put_in_place_cuts_nothing_before_it_has_data() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", "precious").await;
    let local = tempdir().unwrap();
    // A directory can be opened, but not read as a file.
    let source = fs::File::open(local.path()).unwrap();
    let options = CopyOptions { in_place: true, ..plain() };
    let report = client.put_open(source, "unreadable", 0o644, "/f", &options).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(content(&client, "/f").await, b"precious");
}

/// An empty source written in place makes the file empty.
#[tokio::test]
async fn a_put_of_nothing_in_place_cuts() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", "a longer text").await;
    let local = tempdir().unwrap();
    fs::write(local.path().join("empty"), "").unwrap();
    let options = CopyOptions { in_place: true, ..plain() };
    good(&client.put(local.path().join("empty"), "/f", &options).await.unwrap());
    assert_eq!(client.stat("/f").await.unwrap().size, 0);
}

/// A directory copied into itself, in both directions: the copy ends with an explanation.
#[tokio::test]
async fn a_directory_is_not_copied_into_itself() {
    let mirror = Mirror::new().await;
    let top = mirror.path("self");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("f"), "one").unwrap();
    let shallow = CopyOptions { max_depth: 20, ..recursive() };
    for way in ["put", "get"] {
        let report = if way == "put" {
            mirror.client.put(&top, "/self", &shallow).await.unwrap()
        } else {
            mirror.client.get("/self", &top, &shallow).await.unwrap()
        };
        let depth = (0..20).find(|&depth| !top.join("self/".repeat(depth + 1)).exists()).unwrap();
        assert_eq!(depth, 1, "{way}");
        assert_eq!(report.failures.len(), 1, "{way} {report:?}");
        assert!(
            report.failures[0].error.to_string().contains("cannot copy a directory into itself"),
            "{report:?}"
        );
        assert_eq!(fs::read(top.join("self/f")).unwrap(), b"one", "{way}");
        fs::remove_dir_all(top.join("self")).unwrap();
    }
}

// Objects that may be replaced.

/// A local pipe stays, whether a link or a further name of a file has its name.
#[tokio::test]
async fn local_pipes_are_not_replaced_by_links() {
    let client = Loopback::exporting(&["/"]).mount().await;
    client.symlink("elsewhere", "/link").await.unwrap();
    store(&client, "/a", "one").await;
    client.link("/a", "/b").await.unwrap();
    let local = tempdir().unwrap();
    for name in ["link", "b"] {
        mknodat(CWD, local.path().join(name), LocalType::Fifo, Mode::from(0o600), 0).unwrap();
    }
    // A directory also prevents the copy; a file and a link do not.
    let report = client.get("/", local.path(), &recursive()).await.unwrap();
    let mut failed: Vec<&str> = report.failures.iter().map(|failure| failure.path.as_str()).collect();
    failed.sort_unstable();
    // The name that is listed first belongs to the file.
    assert!(failed.contains(&"/link") && failed.len() >= 2, "{report:?}");
    for name in ["link", "b"] {
        let kind = fs::symlink_metadata(local.path().join(name)).unwrap().file_type();
        assert!(kind.is_fifo(), "{name}");
    }
    let other = tempdir().unwrap();
    fs::write(other.path().join("link"), "a file").unwrap();
    symlink("a link", other.path().join("b")).unwrap();
    good(&client.get("/", other.path(), &recursive()).await.unwrap());
    assert_eq!(fs::read_link(other.path().join("link")).unwrap(), Path::new("elsewhere"));
    assert_eq!(fs::read(other.path().join("b")).unwrap(), b"one");
}

/// A pipe or link at the server stays where a further name of a file would go.
#[tokio::test]
async fn pipes_at_the_server_are_not_replaced_by_links() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(local.path().join("a"), "one").unwrap();
        if name != "a" {
            fs::hard_link(local.path().join("a"), local.path().join(name)).unwrap();
        }
    }
    store(&client, "/elsewhere", "old").await;
    for name in ["a", "b"] {
        let place = DirOpArgs { dir: client.root(), name: FileName::from(name) };
        let what = MknodData::Fifo(SetAttributes::default());
        client.procedures().mknod(&MknodArgs { place, what }).await.unwrap();
    }
    client.symlink("elsewhere", "/c").await.unwrap();
    let report = client.put(local.path().join("."), "/", &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 2, "{report:?}");
    for name in ["/a", "/b"] {
        assert_eq!(client.stat(name).await.unwrap().file_type, FileType::Fifo, "{name}");
    }
    // The link is followed, as for every other file.
    assert_eq!(client.lookup_link("/c").await.unwrap().attributes.file_type, FileType::Symlink);
    assert_eq!(content(&client, "/elsewhere").await, b"one");
    let mut left = names(&client, "/").await;
    left.retain(|name| name.contains(".part"));
    assert!(left.is_empty(), "{left:?}");
}

/// A link that another user may have placed in the way is not followed.
#[tokio::test]
async fn i6_a_link_of_another_user_in_a_shared_directory_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes links of others");
        return;
    }
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", "new").await;
    let local = tempdir().unwrap();
    let shared = local.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(local.path().join("victim"), "old").unwrap();
    symlink("../victim", shared.join("f")).unwrap();
    std::os::unix::fs::lchown(shared.join("f"), Some(12), Some(12)).unwrap();
    for (mode, owner, followed) in
        [(0o1777, 0, false), (0o1777, 12, true), (0o777, 0, true), (0o1775, 0, true)]
    {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&shared, Some(owner), None).unwrap();
        fs::write(local.path().join("victim"), "old").unwrap();
        let report = client.get("/f", shared.join("f"), &plain()).await.unwrap();
        assert_eq!(report.failures.is_empty(), followed, "{mode:o} {owner} {report:?}");
        let expected = if followed { "new" } else { "old" };
        assert_eq!(fs::read_to_string(local.path().join("victim")).unwrap(), expected);
    }
}

// Attributes.

/// Only its owner may access a file or directory before it has its final owner.
#[tokio::test]
async fn what_will_get_its_attributes_is_private_before() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let local = tempdir().unwrap();
    fs::create_dir(local.path().join("d")).unwrap();
    for name in ["d", "d/f"] {
        if name != "d" {
            fs::write(local.path().join(name), "one").unwrap();
        }
        fs::set_permissions(local.path().join(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let modes = seen.clone();
    server.hook(move |procedure, bytes| {
        let attributes = match procedure {
            NfsProcedure::Create => match arguments::<CreateArgs>(bytes).how {
                CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => attributes,
                other => panic!("{other:?}"),
            },
            NfsProcedure::Mkdir => arguments::<MkdirArgs>(bytes).attributes,
            _ => return Step::Serve,
        };
        modes.lock().unwrap().push(attributes.mode.unwrap());
        Step::Serve
    });
    for in_place in [false, true] {
        let target = if in_place { "/in place" } else { "/d" };
        let options = CopyOptions { in_place, ..recursive() };
        good(&client.put(local.path().join("d"), target, &options).await.unwrap());
        assert_eq!(client.stat(format!("{target}/f")).await.unwrap().mode, 0o777);
        assert_eq!(client.stat(target).await.unwrap().mode, 0o777);
    }
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 4 && seen.iter().all(|mode| mode & 0o077 == 0), "{seen:?}");
}

/// Without `-p`, a new directory without write permission ends up so, in both directions.
#[tokio::test]
async fn a_directory_without_write_permission_ends_so() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let tree = local.path().join("d");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "one").unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o555)).unwrap();
    good(&client.put(&tree, "/d", &tree_without_attributes()).await.unwrap());
    assert_eq!(client.stat("/d").await.unwrap().mode, 0o555);
    let out = local.path().join("out");
    good(&client.get("/d", &out, &tree_without_attributes()).await.unwrap());
    // The umask of this process leaves the read bits, or removes some.
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o222, 0);
    for path in [tree, out] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// An ordinary user keeps the group of a file if the user is in that group.
#[tokio::test]
async fn a_group_is_kept_without_being_root() {
    let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    export.squash = Squash::Nobody;
    let server = Loopback::serving(vec![export]);
    let root = ClientOptions { credential: Credential::Sys(AuthSys::default()), ..options() };
    let root = server.mount_with("/", root).await;
    let open = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    root.set_attributes("/", open).await.unwrap();
    let local = tempdir().unwrap();
    let tree = local.path().join("d");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "one").unwrap();
    symlink("f", tree.join("l")).unwrap();
    let group = fs::metadata(&tree).unwrap().gid();
    let member = AuthSys { uid: 1000, gid: 1000, gids: vec![group], ..AuthSys::default() };
    let member = ClientOptions { credential: Credential::Sys(member), ..options() };
    let client = server.mount_with("/", member).await;
    good(&client.put(&tree, "/d", &recursive()).await.unwrap());
    for path in ["/d", "/d/f", "/d/l"] {
        let attributes = client.lookup_link(path).await.unwrap().attributes;
        assert_eq!((attributes.uid, attributes.gid), (1000, group), "{path}");
    }
}

// Replies that are lost together with the server's memory of them.

/// Executes the call and loses its answer. The repeated call ends with the status that a server then returns.
fn twice<A: crate::wire::NfsCall>(status: Status, attributes: A::Fail) -> Step {
    use crate::wire::NfsResult;
    use crate::wire::tests::to_bytes;
    Step::Then(Box::new(move |_| to_bytes(&NfsResult::<A::Ok, A::Fail>::Fail { status, attributes })))
}

/// A call whose answer was lost may have been executed: the client detects that.
#[tokio::test]
async fn a_repeated_call_that_was_carried_out_before_is_no_failure() {
    let local = tempdir().unwrap();
    let tree = local.path().join("d");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "one").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    symlink("elsewhere", tree.join("l")).unwrap();
    // With new names, and over other files.
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    for round in 0..2 {
        if round == 1 {
            for name in ["/d/b", "/d/l"] {
                client.remove(name).await.unwrap();
            }
            store(&client, "/d/b", "other").await;
            client.symlink("somewhere", "/d/l").await.unwrap();
        }
        server.hook(|procedure, _| match procedure {
            NfsProcedure::Rename => twice::<RenameArgs>(Status::NoEnt, Default::default()),
            NfsProcedure::Symlink => twice::<SymlinkArgs>(Status::Exist, Default::default()),
            NfsProcedure::Link => twice::<LinkArgs>(Status::Exist, Default::default()),
            NfsProcedure::Mkdir => twice::<MkdirArgs>(Status::Exist, Default::default()),
            NfsProcedure::Remove => twice::<RemoveArgs>(Status::NoEnt, Default::default()),
            _ => Step::Serve,
        });
        let report = client.put(tree.join("."), "/d", &recursive()).await.unwrap();
        server.hook(|_, _| Step::Serve);
        good(&report);
        assert_eq!((report.files, report.hard_links, report.symlinks), (1, 1, 1), "{round}");
        assert_eq!(names(&client, "/d").await, ["a", "b", "l"]);
        assert_eq!(content(&client, "/d/b").await, b"one");
        assert_eq!(client.readlink("/d/l").await.unwrap(), b"elsewhere");
    }
}

/// A name that somebody else has made or removed is still a failure.
#[tokio::test]
async fn a_rename_that_was_not_carried_out_is_a_failure() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", "old").await;
    let local = tempdir().unwrap();
    fs::write(local.path().join("f"), "new").unwrap();
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Rename => Step::fail::<RenameArgs>(Status::NoEnt, Default::default()),
        _ => Step::Serve,
    });
    let report = client.put(local.path().join("f"), "/f", &plain()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(content(&client, "/f").await, b"old");
    assert_eq!(names(&client, "/").await, ["f"]);
    // An existing link with another target does not belong to this copy.
    symlink("ours", local.path().join("l")).unwrap();
    let theirs = Bytes::from_static(b"theirs");
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Symlink if arguments::<SymlinkArgs>(bytes).symlink.target != theirs => {
            Step::fail::<SymlinkArgs>(Status::Exist, Default::default())
        }
        _ => Step::Serve,
    });
    let only = local.path().join("only");
    fs::create_dir(&only).unwrap();
    symlink("ours", only.join("l")).unwrap();
    let report = client.put(&only, "/only", &recursive()).await.unwrap();
    assert_eq!((report.failures.len(), report.symlinks), (1, 0));
}

// Memory.

/// Counts its living instances.
struct Counted(Vec<u8>, Arc<std::sync::atomic::AtomicUsize>);

impl Counted {
    fn bytes(data: Vec<u8>, alive: &Arc<std::sync::atomic::AtomicUsize>) -> Bytes {
        alive.fetch_add(data.len(), std::sync::atomic::Ordering::Relaxed);
        Bytes::from_owner(Self(data, alive.clone()))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), std::sync::atomic::Ordering::Relaxed);
    }
}

/// A server answers large READs with little data. Replies use about as much memory as their data, and the
/// client requests no more than the server returns.
#[tokio::test]
async fn i6_short_reads_hold_no_more_memory_than_their_data() {
    const MIB: usize = 1 << 20;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let data: Vec<u8> = (0..2 * MIB).map(|n| u8::try_from(n % 251).unwrap()).collect();
    store(&client, "/f", data.clone()).await;
    let (alive, most, asked) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak, sum, all) = (alive.clone(), most.clone(), asked.clone(), data.clone());
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Read => {
            let ReadArgs { offset, count: wanted, .. } = arguments(bytes);
            let from = usize::try_from(offset).unwrap();
            let wanted = usize::try_from(wanted).unwrap();
            let piece = &all[from..all.len().min(from + wanted.min(4096))];
            let ok = crate::wire::ReadOk {
                attributes: None,
                count: u32::try_from(piece.len()).unwrap(),
                eof: from + piece.len() == all.len(),
                data: piece.to_vec().into(),
            };
            let result = crate::wire::NfsResult::<crate::wire::ReadOk, crate::wire::PostOpAttr>::Ok(ok);
            // Like a transport that offers memory for all requested bytes.
            let mut reply = crate::wire::tests::to_bytes(&result).to_vec();
            let length = reply.len();
            reply.resize(length.max(wanted), 0);
            sum.fetch_add(wanted, Ordering::Relaxed);
            let reply = Counted::bytes(reply, &count);
            peak.fetch_max(count.load(Ordering::Relaxed), Ordering::Relaxed);
            Step::Answer(reply.slice(..length))
        }
        _ => Step::Serve,
    });
    let mut stream = client.open("/f").await.unwrap().read_stream(0, None).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = stream.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert!(read == data);
    let (most, asked) = (most.load(Ordering::Relaxed), asked.load(Ordering::Relaxed));
    // Two chunks, each with one answer present.
    assert!(most <= 3 * MIB, "{most} bytes of replies at a time");
    assert!(asked <= 5 * MIB, "{asked} bytes asked for");
}

/// The private program is optional. However another server answers it, the copy continues by READ.
#[tokio::test]
async fn i6_a_server_that_refuses_extents_is_read_all_the_same() {
    use rpcrdma::CallError;
    use rpcrdma_oncrpc::{AuthStat, Refused};
    let failures: BTreeMap<&str, fn() -> Result<Bytes, CallError>> = BTreeMap::from([
        ("auth", (|| Err(Refused::AuthError(AuthStat::TooWeak).into())) as fn() -> _),
        ("system", || Err(Refused::SystemError.into())),
        ("garbage", || Err(Refused::GarbageArguments.into())),
        ("malformed", || Ok(Bytes::from_static(b"\0\0\0"))),
        ("backwards", || Ok(Bytes::from_static(b"\0\0\0\0\0\0\0\0\0\0\0\0"))),
        ("lost", || Err(CallError::ConnectionLost { reason: rpcrdma::Cause::message("closed") })),
    ]);
    for (name, answer) in failures {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount().await;
        let file = client
            .create("/f", SetAttributes { mode: Some(0o644), ..SetAttributes::default() })
            .await
            .unwrap();
        file.write_at(0, "start".into()).await.unwrap();
        file.sync().await.unwrap();
        file.set_len(5 << 20).await.unwrap();
        let asked = server.answer_extents(answer);
        let local = tempdir().unwrap();
        for round in ["a", "b"] {
            let report = client.get("/f", local.path().join(round), &plain()).await;
            let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
            good(&report);
            let read = fs::read(local.path().join(round)).unwrap();
            assert!(read.starts_with(b"start\0") && read.len() == 5 << 20, "{name}");
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1, "{name}: asked once");
    }
}

/// Data that waits for COMMIT is bounded for all files of a client together.
#[tokio::test]
async fn data_that_waits_for_commit_is_bounded_over_all_files() {
    let server = Loopback::exporting(&["/"]);
    let limits = ClientOptions { chunk: 4096, window: 4, unstable_limit: 64 << 10, ..options() };
    let client = server.mount_with("/", limits).await;
    let mut streams = Vec::new();
    let mut files = Vec::new();
    for index in 0..16 {
        let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let file = client.create(format!("/{index}"), attributes).await.unwrap();
        streams.push(file.write_stream(0));
        files.push(file);
    }
    let mut most = 0;
    for _ in 0..30 {
        for stream in &mut streams {
            stream.write(Bytes::from(vec![7; 4096])).await.unwrap();
            most = most.max(files.iter().map(crate::client::File::unstable_bytes).sum());
        }
    }
    for stream in streams {
        stream.finish().await.unwrap();
    }
    // Beside the limit, one WRITE of each file is in flight.
    assert!(most <= (64 << 10) + 17 * 4096, "{most}");
    for file in &files {
        assert_eq!((file.len().await.unwrap(), file.unstable_bytes()), (30 * 4096, 0));
    }
}

/// A user who may not set the group gets a report; all other attributes of the file are kept.
#[tokio::test]
async fn a_group_that_is_refused_does_not_keep_the_rest() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Setattr if arguments::<SetattrArgs>(bytes).new_attributes.gid.is_some() => {
            Step::fail::<SetattrArgs>(Status::Perm, Default::default())
        }
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let source = local.path().join("f");
    fs::write(&source, "one").unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o751)).unwrap();
    let report = client.put(&source, "/f", &CopyOptions::default()).await.unwrap();
    good(&report);
    assert_eq!((report.groups_not_kept, report.owners_not_kept), (1, 0));
    assert_eq!(client.stat("/f").await.unwrap().mode, 0o751);
}

// Several sources of one command.

/// The second source that would get an existing source's name fails, in both directions; directories are
/// merged.
#[tokio::test]
async fn two_sources_do_not_get_one_name() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    for side in ["A", "B"] {
        let tree = local.path().join(side).join("d");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("f"), side).unwrap();
        fs::write(tree.join(format!("only {side}")), side).unwrap();
        symlink(side, tree.join("l")).unwrap();
        client
            .mkdir(format!("/{side}"), SetAttributes { mode: Some(0o755), ..SetAttributes::default() })
            .await
            .unwrap();
    }
    for in_place in [false, true] {
        let target = format!("/{in_place}");
        client.mkdir(&target, SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
        let put = CopyOptions { run: Some(CopyRun::default()), in_place, ..tree_without_attributes() };
        good(&client.put(local.path().join("A/d"), &target, &put).await.unwrap());
        let report = client.put(local.path().join("B/d"), &target, &put).await.unwrap();
        assert_eq!((report.failures.len(), report.files), (2, 1), "{report:?}");
        assert!(
            report.failures.iter().all(|failure| matches!(failure.error, Error::JustMade { .. })),
            "{report:?}"
        );
        assert_eq!(content(&client, &format!("{target}/d/f")).await, b"A");
        assert_eq!(client.readlink(format!("{target}/d/l")).await.unwrap(), b"A");
        assert_eq!(names(&client, &format!("{target}/d")).await, ["f", "l", "only A", "only B"]);
        // A separate copy does not know other copies.
        good(&client.put(local.path().join("B/d"), &target, &tree_without_attributes()).await.unwrap());
        assert_eq!(content(&client, &format!("{target}/d/f")).await, b"B");
    }
    for side in ["A", "B"] {
        good(&client.put(local.path().join(side), "/", &tree_without_attributes()).await.unwrap());
    }
    for in_place in [false, true] {
        let out = local.path().join(format!("{in_place}"));
        fs::create_dir(&out).unwrap();
        let get = CopyOptions { run: Some(CopyRun::default()), in_place, ..tree_without_attributes() };
        good(&client.get("/A/d", &out, &get).await.unwrap());
        let report = client.get("/B/d", &out, &get).await.unwrap();
        assert_eq!((report.failures.len(), report.files), (2, 1), "{report:?}");
        assert_eq!(fs::read(out.join("d/f")).unwrap(), b"A");
        assert_eq!(fs::read_link(out.join("d/l")).unwrap(), Path::new("A"));
    }
}

/// Two links at the server lead to one file: the second source for that file fails.
#[tokio::test]
async fn two_links_to_one_file_do_not_take_two_sources() {
    let client = Loopback::exporting(&["/"]).mount().await;
    for link in ["/x", "/y"] {
        client.symlink("target", link).await.unwrap();
    }
    let local = tempdir().unwrap();
    for name in ["x", "y"] {
        fs::write(local.path().join(name), name).unwrap();
    }
    let report = client.put(local.path().join("."), "/", &tree_without_attributes()).await.unwrap();
    assert_eq!((report.failures.len(), report.files), (1, 1), "{report:?}");
}

/// Files with several names that the caller names are written in place, each file once.
#[tokio::test]
async fn named_targets_that_are_one_file_take_one_source_in_place() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    for name in ["x", "y"] {
        fs::write(local.path().join(name), name).unwrap();
    }
    store(&client, "/x", "old").await;
    client.link("/x", "/y").await.unwrap();
    let options = CopyOptions { run: Some(CopyRun::default()), ..plain() };
    for name in ["x", "y"] {
        good(&client.put(local.path().join(name), "/", &options).await.unwrap());
    }
    assert_eq!((content(&client, "/x").await, content(&client, "/y").await), (b"x".to_vec(), b"y".to_vec()));
    let out = tempdir().unwrap();
    fs::write(out.path().join("x"), "old").unwrap();
    fs::hard_link(out.path().join("x"), out.path().join("y")).unwrap();
    let options = CopyOptions { run: Some(CopyRun::default()), ..plain() };
    for name in ["x", "y"] {
        good(&client.get(name, out.path(), &options).await.unwrap());
        assert_eq!(fs::read(out.path().join(name)).unwrap(), name.as_bytes());
    }
    assert_eq!(fs::read(out.path().join("x")).unwrap(), b"x");
}

/// Makes sources named `first` and `second`: files, symbolic links, and trees of the further names of a file.
fn make_sources(local: &Path) {
    for name in ["first", "second"] {
        let tree = local.join(format!("{name} tree"));
        fs::create_dir(&tree).unwrap();
        fs::write(local.join(name), name).unwrap();
        fs::write(tree.join(name), name).unwrap();
        symlink(name, tree.join(format!("{name} link"))).unwrap();
    }
}

/// A target may treat two names as one, by folding case or normalising. A link plays the second name here.
/// The second source of a put fails, and the first stays.
#[tokio::test]
async fn a_put_spares_an_object_of_its_run_under_another_name() {
    let local = tempdir().unwrap();
    make_sources(local.path());
    for (in_place, old) in [(false, false), (true, false), (true, true)] {
        let client = Loopback::exporting(&["/"]).mount().await;
        if old {
            store(&client, "/first", "old").await;
        }
        let single = CopyOptions { run: Some(CopyRun::default()), in_place, ..plain() };
        good(&client.put(local.path().join("first"), "/", &single).await.unwrap());
        client.link("/first", "/second").await.unwrap();
        let report = client.put(local.path().join("second"), "/", &single).await.unwrap();
        let failures = &report.failures;
        assert!(
            matches!(failures[..], [CopyFailure { error: Error::JustMade { .. }, .. }]),
            "{in_place} {old} {report:?}"
        );
        assert_eq!(content(&client, "/first").await, b"first");
        assert_eq!(content(&client, "/second").await, b"first");
    }
    // Files and links of trees, and further names of a file.
    fs::hard_link(local.path().join("second tree/second"), local.path().join("second tree/further")).unwrap();
    for in_place in [false, true] {
        let client = Loopback::exporting(&["/"]).mount().await;
        let trees = CopyOptions { run: Some(CopyRun::default()), in_place, ..recursive() };
        good(&client.put(local.path().join("first tree/."), "/", &trees).await.unwrap());
        client.link("/first", "/second").await.unwrap();
        client.link("/first", "/further").await.unwrap();
        client.link("/first link", "/second link").await.unwrap();
        let report = client.put(local.path().join("second tree/."), "/", &trees).await.unwrap();
        assert_eq!(
            (report.failures.len(), report.files, report.symlinks),
            (3, 0, 0),
            "{in_place} {report:?}"
        );
        for name in ["/first", "/second", "/further"] {
            assert_eq!(content(&client, name).await, b"first");
        }
        assert_eq!(client.readlink("/second link").await.unwrap(), b"first");
        assert!(!names(&client, "/").await.iter().any(|name| name.contains(".part")));
    }
}

/// The second source of a get fails, and the first stays.
#[tokio::test]
async fn a_get_spares_an_object_of_its_run_under_another_name() {
    let sources = tempdir().unwrap();
    make_sources(sources.path());
    let client = Loopback::exporting(&["/"]).mount().await;
    good(&client.put(sources.path().join("."), "/", &recursive()).await.unwrap());
    client.link("/second tree/second", "/second tree/further").await.unwrap();
    for (in_place, old) in [(false, false), (true, false), (true, true)] {
        let out = tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        if old {
            fs::write(at("first"), "old").unwrap();
        }
        let single = CopyOptions { run: Some(CopyRun::default()), in_place, ..plain() };
        good(&client.get("/first", out.path(), &single).await.unwrap());
        fs::hard_link(at("first"), at("second")).unwrap();
        let report = client.get("/second", out.path(), &single).await.unwrap();
        assert_eq!(report.failures.len(), 1, "{in_place} {old} {report:?}");
        assert!(report.failures[0].error.to_string().contains("another source"), "{report:?}");
        assert_eq!(fs::read(at("first")).unwrap(), b"first");
        assert_eq!(fs::read(at("second")).unwrap(), b"first");
    }
    for in_place in [false, true] {
        let out = tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        let trees = CopyOptions { run: Some(CopyRun::default()), in_place, ..recursive() };
        // The contents of a directory are merged with the existing entries.
        fs::create_dir(at("first tree")).unwrap();
        good(&client.get("/first tree", out.path(), &trees).await.unwrap());
        fs::create_dir(at("second tree")).unwrap();
        for (old, new) in [("first", "second"), ("first", "further"), ("first link", "second link")] {
            fs::hard_link(at("first tree").join(old), at("second tree").join(new)).unwrap();
        }
        let report = client.get("/second tree", out.path(), &trees).await.unwrap();
        assert_eq!(
            (report.failures.len(), report.files, report.symlinks),
            (3, 0, 0),
            "{in_place} {report:?}"
        );
        for name in ["first tree/first", "second tree/second", "second tree/further"] {
            assert_eq!(fs::read(at(name)).unwrap(), b"first");
        }
        assert_eq!(fs::read_link(at("second tree/second link")).unwrap(), Path::new("first"));
        assert_eq!(fs::read_dir(at("second tree")).unwrap().count(), 3);
    }
}

/// A file that appears after the client's look-up is not truncated before the client has examined it.
#[tokio::test]
async fn a_put_in_place_does_not_empty_a_file_that_has_just_appeared() {
    let mirror = Mirror::new().await;
    let local = tempdir().unwrap();
    fs::write(local.path().join("f"), "new").unwrap();
    let options = CopyOptions { in_place: true, ..plain() };
    // A source that cannot be read: a directory.
    let place = mirror.path("f");
    let precious = place.clone();
    mirror.server.hook(move |procedure, _| {
        if procedure == NfsProcedure::Create {
            fs::write(&precious, "precious").unwrap();
        }
        Step::Serve
    });
    let source = fs::File::open(local.path()).unwrap();
    let report = mirror.client.put_open(source, "unreadable", 0o644, "/f", &options).await.unwrap();
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(fs::read(&place).unwrap(), b"precious");
    // The server forgot that it had made the file.
    fs::remove_file(&place).unwrap();
    mirror.server.hook(|procedure, _| match procedure {
        NfsProcedure::Create => twice::<CreateArgs>(Status::Exist, Default::default()),
        _ => Step::Serve,
    });
    good(&mirror.client.put(local.path().join("f"), "/f", &options).await.unwrap());
    assert_eq!(fs::read(&place).unwrap(), b"new");
}

/// The umask applies to new objects without attributes of the source, and to streams.
#[tokio::test]
async fn new_objects_at_the_server_have_no_bits_of_the_mask() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let tree = local.path().join("d");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "one").unwrap();
    fs::set_permissions(tree.join("f"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o777)).unwrap();
    for in_place in [false, true] {
        let target = format!("/{in_place}");
        let options = CopyOptions { umask: 0o027, in_place, ..tree_without_attributes() };
        good(&client.put(&tree, &target, &options).await.unwrap());
        assert_eq!(client.stat(&target).await.unwrap().mode, 0o750);
        assert_eq!(client.stat(format!("{target}/f")).await.unwrap().mode, 0o640);
        let stream = fs::File::open("/dev/null").unwrap();
        good(&client.put_open(stream, "x", 0o666, format!("{target}/s"), &options).await.unwrap());
        assert_eq!(client.stat(format!("{target}/s")).await.unwrap().mode, 0o640);
        let kept = CopyOptions { preserve: true, ..options };
        good(&client.put(&tree, format!("{target}p"), &kept).await.unwrap());
        assert_eq!(client.stat(format!("{target}p")).await.unwrap().mode, 0o777);
        assert_eq!(client.stat(format!("{target}p/f")).await.unwrap().mode, 0o666);
    }
}

/// A copy that is dropped, or ends by an error, has a report too.
#[tokio::test]
async fn what_was_done_is_told_of_a_copy_that_did_not_end() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    let local = tempdir().unwrap();
    fs::create_dir(local.path().join("d")).unwrap();
    fs::write(local.path().join("d/f"), vec![7; 5000]).unwrap();
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Commit => {
            Step::Fail(rpcrdma::CallError::ConnectionLost { reason: rpcrdma::Cause::message("closed") })
        }
        _ => Step::Serve,
    });
    let run = CopyRun::default();
    let options = CopyOptions { run: Some(run.clone()), ..recursive() };
    assert!(client.put(local.path().join("d"), "/d", &options).await.unwrap_err().ends_everything());
    let report = run.take_report();
    assert_eq!((report.bytes, report.files, report.directories), (5000, 0, 1));
    assert_eq!(run.take_report().bytes, 0);
}

/// A report has a bounded number of paths, and the number of the others.
#[tokio::test]
async fn i6_a_report_has_a_bounded_number_of_paths() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    for index in 0..MAX_REPORTED + 5 {
        mknodat(CWD, local.path().join(format!("pipe {index}")), LocalType::Fifo, Mode::from(0o600), 0)
            .unwrap();
        symlink("x", local.path().join(format!("link {index}"))).unwrap();
        let place =
            DirOpArgs { dir: client.root(), name: FileName::from(format!("link {index}").as_bytes()) };
        let what = MknodData::Fifo(SetAttributes::default());
        client.procedures().mknod(&MknodArgs { place, what }).await.unwrap();
    }
    let report = client.put(local.path().join("."), "/", &recursive()).await.unwrap();
    assert_eq!((report.skipped.len(), report.skipped_more), (MAX_REPORTED, 5));
    assert_eq!((report.failures.len(), report.failures_more), (MAX_REPORTED, 5));
}
