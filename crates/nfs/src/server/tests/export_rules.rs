//! Rules of exports, and answers to invalid calls.

use std::fmt::{Debug, Write};
use std::sync::Mutex;

use rpcrdma_oncrpc::AcceptStat;
use tracing::field::{Field, Visit};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

use super::super::{ClientRule, ExportAccess, ExportError, Membership, Security, Terms, UserDatabase};
use super::*;
use crate::fs::NAME_MAX;
use crate::mount::{MAX_MOUNT_PATH, MountProcedure};

// requirement: rfc1813-2.6-3, rfc1813-3.3.4-3
#[tokio::test]
async fn a_read_only_export_refuses_every_change() {
    for bed in Bed::all_with(|export, _| export.read_only = true) {
        let (root, name) = (bed.root, bed.name);
        let attributes = SetAttributes::default();
        let symlink = SymlinkData { attributes, target: Bytes::from_static(b"x") };
        let data = Bytes::from_static(b"x");
        let refused = Some(Status::Rofs);
        assert_eq!(bed.set(root, mode(0o700)).await, refused, "{name}");
        let write =
            WriteArgs { file: root, offset: 0, count: 1, stable: StableHow::Unstable, data: data.into() };
        assert_eq!(bed.status(&write).await, refused, "{name}");
        for how in [CreateHow::Unchecked(attributes), CreateHow::Exclusive([0; 8])] {
            assert_eq!(bed.status(&create(root, "x", how)).await, refused, "{name}");
        }
        assert_eq!(bed.status(&MkdirArgs { place: place(root, "x"), attributes }).await, refused);
        assert_eq!(bed.status(&SymlinkArgs { place: place(root, "x"), symlink }).await, refused);
        let what = MknodData::Fifo(attributes);
        assert_eq!(bed.status(&MknodArgs { place: place(root, "x"), what }).await, refused);
        assert_eq!(bed.remove(root, "x").await, refused);
        assert_eq!(bed.status(&RmdirArgs { object: place(root, "x") }).await, refused);
        assert_eq!(bed.rename((root, "x"), (root, "y")).await, refused);
        assert_eq!(bed.status(&LinkArgs { file: root, link: place(root, "x") }).await, refused);
        assert_eq!(bed.status(&CommitArgs { file: root, offset: 0, count: 0 }).await, refused);
        assert_eq!(bed.access(root).await, ACCESS3_READ | ACCESS3_LOOKUP, "{name}");
        assert!(bed.getattr(root).await.is_ok());
        assert!(bed.call(&FsinfoArgs { root }).await.is_ok());
    }
}

// requirement: rfc1813-2.1-2, rfc1813-4.4-4
#[tokio::test]
async fn root_is_squashed() {
    for mut bed in Bed::all_of_users(|export, _| export.squash = Squash::Root) {
        if let Some(places) = &bed.places {
            std::fs::set_permissions(places.0.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
                .unwrap();
        }
        let file = bed.make_file(bed.root, "file", 0o600).await;
        let got = bed.getattr(file).await.unwrap();
        assert_eq!((got.uid, got.gid), (NOBODY, NOBODY), "{}", bed.name);
        let give = SetAttributes { uid: Some(0), ..SetAttributes::default() };
        assert_eq!(bed.set(file, give).await, Some(Status::Perm), "{}", bed.name);
        // A caller without a credential has no more rights either.
        bed.credential = Credential::None;
        assert_eq!(bed.write(file, 0, b"x").await.unwrap().count, 1, "{}", bed.name);
        bed.credential = user(1000, 1000);
        assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Acces, "{}", bed.name);
    }
}

#[tokio::test]
async fn networks_hold_for_every_call() {
    for mut bed in Bed::all_with(|export, _| export.allow = vec!["192.0.2.0/24".parse().unwrap()].into()) {
        assert!(bed.getattr(bed.root).await.is_ok(), "{}", bed.name);
        assert!(matches!(bed.mnt("/").await, MountResult::Ok(_)), "{}", bed.name);
        bed.peer = "198.51.100.1:700".parse().unwrap();
        assert_eq!(bed.getattr(bed.root).await, Err(Status::Acces), "{}", bed.name);
        assert_eq!(bed.read(bed.root, 0, 1).await.unwrap_err(), Status::Acces, "{}", bed.name);
        assert_eq!(bed.mnt("/").await, MountResult::Fail(crate::mount::MountStatus::Acces), "{}", bed.name);
    }
}

/// Keeps the events of level WARN, and those of mounts.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Returns the events since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let of_mounts = metadata.target() == "rpcrdma::mounts" && *metadata.level() <= Level::INFO;
        *metadata.level() <= Level::WARN || of_mounts
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn each_kind_of_refusal_leaves_a_line_with_the_address() {
    let warnings = Warnings::default();
    // With a single dispatcher, a thread of another test that reaches an event first would disable the event
    // for all.
    let _second = Dispatch::new(NoSubscriber::new());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let allow = vec!["192.0.2.0/24".parse().unwrap()].into();
    let memory = Arc::new(MemoryFs::new(MemoryOptions::default()));
    let export = Export { allow, ..Export::new("/", memory) };
    let mut bed = Bed::serving("memory", vec![export], HandleKey::random());
    assert!(bed.getattr(bed.root).await.is_ok());
    bed.peer = "198.51.100.1:700".parse().unwrap();
    warnings.0.lock().unwrap().clear();
    let told = |what: &str| {
        let lines = warnings.take();
        let one = |line: &String| line.contains(what) && line.contains("peer=198.51.100.1:700 ");
        assert!(lines.len() == 1 && lines.iter().all(one), "{what}: {lines:?}");
    };
    assert!(matches!(bed.mnt("/").await, MountResult::Fail(_)));
    told("refused mount from 198.51.100.1:700 of \"/\": this client may not mount it (MNT3ERR_ACCES)");
    assert_eq!(bed.getattr(bed.root).await, Err(Status::Acces));
    told("refused caller from 198.51.100.1:700: export \"/\" does not admit this address");
    let mut forged = bed.root.as_bytes().to_vec();
    forged[0] ^= 1;
    assert_eq!(bed.getattr(FileHandle::new(&forged).unwrap()).await, Err(Status::BadHandle));
    told("refused file handle from 198.51.100.1:700: this server did not make it");
}

#[tokio::test]
async fn i6_mounts_and_unmounts_leave_a_line_with_escaped_names() {
    let events = Warnings::default();
    let _second = Dispatch::new(NoSubscriber::new());
    let _guard = tracing::subscriber::set_default(events.clone());
    let memory = Arc::new(MemoryFs::new(MemoryOptions::default()));
    let mut bed = Bed::serving("memory", vec![Export::new("/", memory)], HandleKey::random());
    bed.peer = "192.0.2.7:700".parse().unwrap();
    let machine_name = Bytes::from_static(b"ho\nst").into();
    bed.credential = Credential::Sys(AuthSys { uid: 1000, machine_name, ..AuthSys::default() });
    bed.mount_call::<()>(MountProcedure::UmntAll, &()).await;
    events.take();
    let told = |message: &str| {
        let lines = events.take();
        let parts = [message, "peer=192.0.2.7:700 ", "user=1000 ", r"machine=ho\nst "];
        let is_told = lines.len() == 1 && parts.iter().all(|part| lines[0].contains(part));
        assert!(is_told, "{message}: {lines:?}");
    };
    assert!(matches!(bed.mnt("//.").await, MountResult::Ok(_)));
    told(r#"mounted "//." (export "/") by 192.0.2.7:700, user 1000 of "ho\nst""#);
    // What was not mounted leaves none: anybody can send the call.
    bed.mount_call::<()>(MountProcedure::Umnt, &DirPath::new("/a\x1b")).await;
    assert_eq!(events.take(), Vec::<String>::new());
    bed.mount_call::<()>(MountProcedure::Umnt, &DirPath::new("/")).await;
    told(r#"unmounted "/" (export "/") by 192.0.2.7:700, user 1000 of "ho\nst""#);
    assert!(matches!(bed.mnt("/").await, MountResult::Ok(_)));
    events.take();
    bed.mount_call::<()>(MountProcedure::UmntAll, &()).await;
    told(r#"unmounted all paths by 192.0.2.7:700, user 1000 of "ho\nst""#);
}

#[tokio::test]
async fn a_secure_export_demands_reserved_ports_of_tcp() {
    for mut bed in Bed::all_with(|export, _| export.secure = true) {
        let closed = MountResult::Fail(crate::mount::MountStatus::Acces);
        for (address, served) in [("192.0.2.1:1023", true), ("192.0.2.1:1024", false)] {
            bed.peer = address.parse().unwrap();
            bed.transport = TransportKind::Tcp;
            let got = bed.getattr(bed.root).await.map(drop);
            assert_eq!(got, if served { Ok(()) } else { Err(Status::Acces) }, "{} {address}", bed.name);
            assert_eq!(bed.mnt("/").await == closed, !served, "{} {address}", bed.name);
            // Over RDMA, the port has no meaning.
            bed.transport = TransportKind::Rdma;
            assert!(bed.getattr(bed.root).await.is_ok(), "{} {address}", bed.name);
        }
    }
}

/// Database in which user 1 is in groups 100 to 139.
struct Table;

impl UserDatabase for Table {
    fn membership(&self, user: u32) -> std::io::Result<Option<Membership>> {
        match user {
            1 => Ok(Some(Membership { primary: 100, groups: (100..140).collect() })),
            2 => Err(std::io::ErrorKind::TimedOut.into()),
            _ => Ok(None),
        }
    }
}

#[tokio::test]
async fn groups_come_from_the_database_where_the_caller_is_not_believed() {
    for (manage_groups, owner) in [(false, None), (false, Some(0)), (true, None), (false, Some(1))] {
        let believed = !manage_groups && owner != Some(1);
        let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
        let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
        export.squash = Squash::Nobody;
        let options = ServerOptions { manage_groups, users: Arc::new(Table), ..ServerOptions::default() };
        let server = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
        bed.root = server.root_handle("/").unwrap();
        bed.dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(CacheLimits::default())));
        bed.dispatcher.register(server.nfs_program()).unwrap();
        bed.dispatcher.register(server.mount_program()).unwrap();
        let mut files = Vec::new();
        for (name, gid) in [("claimed", 200), ("last", 139)] {
            let file = bed.make_file(bed.root, name, 0o640).await;
            let give = SetAttributes { uid: Some(5), gid: Some(gid), ..SetAttributes::default() };
            assert_eq!(bed.set(file, give).await, None);
            files.push(file);
        }
        bed.owner = owner;
        bed.credential =
            Credential::Sys(AuthSys { uid: 1, gid: 200, gids: vec![0, 7], ..AuthSys::default() });
        let readable = |believed: bool| if believed { Ok(()) } else { Err(Status::Acces) };
        assert_eq!(bed.read(files[0], 0, 1).await.map(drop), readable(believed), "{manage_groups} {owner:?}");
        assert_eq!(
            bed.read(files[1], 0, 1).await.map(drop),
            readable(!believed),
            "{manage_groups} {owner:?}"
        );
        if manage_groups {
            bed.credential = user(2, 2);
            assert_eq!(bed.getattr(files[0]).await, Err(Status::Jukebox), "the database fails");
            assert_eq!(bed.mnt("/").await, MountResult::Fail(crate::mount::MountStatus::ServerFault));
        }
    }
}

#[tokio::test]
async fn handles_of_one_export_are_no_way_into_another() {
    let fs = || Arc::new(MemoryFs::new(MemoryOptions::default()));
    let mut closed = Export::new("/closed", fs());
    closed.allow = vec!["203.0.113.0/24".parse().unwrap()].into();
    let mut open = Export::new("/", fs());
    open.squash = Squash::Nobody;
    let server = NfsServer::new(HandleKey::random(), vec![open, closed], ServerOptions::default()).unwrap();
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let mut dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(CacheLimits::default())));
    dispatcher.register(server.nfs_program()).unwrap();
    bed.root = server.root_handle("/").unwrap();
    let other = server.root_handle("/closed").unwrap();
    bed.dispatcher = dispatcher;
    let file = bed.make_file(bed.root, "file", 0o640).await;
    assert_eq!(bed.getattr(other).await, Err(Status::Acces));
    assert_eq!(bed.rename((bed.root, "file"), (other, "x")).await, Some(Status::Xdev));
    assert_eq!(bed.status(&LinkArgs { file, link: place(other, "x") }).await, Some(Status::Xdev));
    // For a client these are two file systems.
    bed.peer = "203.0.113.1:1".parse().unwrap();
    let (a, b) = (bed.getattr(bed.root).await.unwrap(), bed.getattr(other).await.unwrap());
    assert_ne!(a.fsid, b.fsid);
}

// requirement: rfc1813-2.5-9
#[tokio::test]
async fn a_handle_of_an_export_that_is_gone_is_stale() {
    let places = places();
    let state = StateDirectory::open(places.1.path()).unwrap();
    let key = HandleKey::from_state(&state);
    let fs = Arc::new(DirectoryFs::open(places.0.path(), &state, DirectoryOptions::default()).unwrap());
    let serve = |name: &str| {
        let export = Export::new(name, fs.clone());
        let server = NfsServer::new(key.clone(), vec![export], ServerOptions::default()).unwrap();
        let root = server.root_handle(name).unwrap();
        let mut dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(CacheLimits::default())));
        dispatcher.register(server.nfs_program()).unwrap();
        (dispatcher, root)
    };
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let (dispatcher, handle) = serve("/a");
    bed.dispatcher = dispatcher;
    assert!(bed.getattr(handle).await.is_ok());
    let (dispatcher, _) = serve("/b");
    bed.dispatcher = dispatcher;
    assert_eq!(bed.getattr(handle).await, Err(Status::Stale));
}

#[tokio::test]
async fn garbage_is_called_so() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let garbage =
        |body: &ReplyBody| matches!(body, ReplyBody::Accepted { status: AcceptStat::GarbageArguments, .. });
    for procedure in NfsProcedure::ALL.iter().skip(1) {
        let call = [NFS_PROGRAM, NFS_VERSION, procedure.number()];
        // Too short, and too long by one word.
        let body = bed.rpc(call, &7_u32).await.unwrap_err();
        assert!(garbage(&body), "{procedure}: {body:?}");
    }
    let call = [NFS_PROGRAM, NFS_VERSION, 1];
    let body = bed.rpc(call, &SetattrArgs { object: bed.root, new_attributes: mode(1), guard: None }).await;
    assert!(garbage(&body.unwrap_err()), "something behind the arguments of GETATTR");
}

// requirement: rfc1813-3-2, rfc1813-4.1-2
#[tokio::test]
async fn versions_procedures_and_programs_that_are_not_served() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let status = async |call| match bed.rpc(call, &()).await {
        Ok(_) => AcceptStat::Success,
        Err(ReplyBody::Accepted { status, .. }) => status,
        Err(denied @ ReplyBody::Denied(_)) => panic!("{denied:?}"),
    };
    assert_eq!(status([NFS_PROGRAM, 3, 0]).await, AcceptStat::Success);
    assert_eq!(status([NFS_PROGRAM, 3, 22]).await, AcceptStat::ProcedureUnavailable);
    let mismatch = AcceptStat::ProgramMismatch { low: 3, high: 3 };
    for version in [2, 4] {
        assert_eq!(status([NFS_PROGRAM, version, 0]).await, mismatch);
        assert_eq!(status([MOUNT_PROGRAM, version, 0]).await, mismatch);
    }
    // NFSACL, which Linux asks for.
    assert_eq!(status([100_227, 3, 0]).await, AcceptStat::ProgramUnavailable);
}

// requirement: experience-6.2.1-1, experience-6.2.1-3, experience-11-2, experience-11-4
// requirement: rfc8267-4-1, rfc8267-4-2, rfc8267-4-3, rfc8267-4-4, rfc8267-4-5, rfc8267-5-1
#[tokio::test]
async fn the_binding_is_that_of_rfc_8267() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let program = bed.server.nfs_program();
    for procedure in 0..=22 {
        let eligible = program.eligibility(3, procedure);
        let expected = match procedure {
            5 | 6 => (0, 1),
            7 | 10 => (1, 0),
            _ => (0, 0),
        };
        assert_eq!((eligible.arguments, eligible.results), expected, "procedure {procedure}");
    }
    for procedure in 0..=6 {
        assert_eq!(bed.server.mount_program().eligibility(3, procedure), Eligibility::default());
    }
    assert_eq!(bed.server.extents_program().eligibility(1, 1), Eligibility::default());
}

#[tokio::test]
async fn calls_are_counted() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    bed.getattr(bed.root).await.unwrap();
    bed.lookup(bed.root, "none").await.unwrap_err();
    let counted: Vec<_> = bed
        .server
        .counters()
        .procedures()
        .into_iter()
        .map(|count| (count.procedure.name(), count.calls, count.failures))
        .collect();
    assert_eq!(counted, [("GETATTR", 1, 0), ("LOOKUP", 1, 1)]);
}

/// RFC 1813 §2.6: a failure has the attributes of the object too, if they are available.
#[tokio::test]
async fn a_change_that_an_export_refuses_shows_the_attributes() {
    for bed in Bed::all_with(|export, _| export.read_only = true) {
        let write = super::slow::one_byte(bed.root, 0, StableHow::Unstable);
        let (status, wcc) = bed.call(&write).await.unwrap_err();
        assert_eq!(status, Status::Rofs, "{}", bed.name);
        assert_eq!((wcc.before, wcc.after), (None, bed.getattr(bed.root).await.ok()), "{}", bed.name);
    }
}

#[test]
fn the_options_have_the_documented_defaults() {
    let options = ServerOptions::default();
    assert_eq!((options.max_payload, options.flush_wait.as_secs()), (1 << 20, 60));
    // Eight for each processor, within these limits.
    assert!((32..=128).contains(&options.io_threads), "{}", options.io_threads);
    assert_eq!((options.shares.limit(), options.shares.domain().usage().limit), (16 << 20, 64 << 20));
}

#[tokio::test]
async fn bytes_of_data_are_counted() {
    for bed in Bed::all() {
        let file = bed.make_file(bed.root, "file", 0o600).await;
        bed.write(file, 0, b"12345").await.unwrap();
        bed.read(file, 1, 100).await.unwrap();
        bed.read(file, 9, 100).await.unwrap();
        let counters = bed.server.counters();
        assert_eq!((counters.bytes_written(), counters.bytes_read()), (5, 4), "{}", bed.name);
    }
}

#[test]
fn names_of_exports_are_plain_paths_and_differ() {
    let refused = |names: &[&str]| {
        let fs = || Arc::new(MemoryFs::new(MemoryOptions::default()));
        let exports = names.iter().map(|name| Export::new(*name, fs())).collect();
        let options = ServerOptions { io_threads: 1, ..ServerOptions::default() };
        NfsServer::new(HandleKey::random(), exports, options).err()
    };
    let part = "x".repeat(NAME_MAX);
    let (fits, beyond) = (format!("/{part}"), format!("/{part}x"));
    for name in ["/", "/a", "/a/b", "/...", &fits] {
        assert_eq!(refused(&[name]), None, "{name}");
    }
    for name in ["", "a", "a/b", "//", "/a//b", "/a/", "/.", "/a/..", "/a\0", &beyond] {
        assert_eq!(refused(&[name]), Some(ExportError::Name(name.to_owned())));
    }
    let longest = &format!("{}/{}", fits.repeat(3), "x".repeat(NAME_MAX));
    assert_eq!((longest.len(), refused(&[longest])), (MAX_MOUNT_PATH, None));
    let too_long = ExportError::NameTooLong { length: MAX_MOUNT_PATH + 2 };
    assert_eq!(refused(&[&format!("{longest}/x")]), Some(too_long));
    assert_eq!(refused(&["/a", "/b"]), None);
    assert_eq!(refused(&["/a", "/b", "/a"]), Some(ExportError::Duplicate("/a".to_owned())));
}

// requirement: rfc1813-4.5-1
#[tokio::test]
async fn a_repeated_removal_is_answered_as_the_first_was() {
    let bed = Bed::directory();
    bed.make_file(bed.root, "file", 0o640).await;
    let xid = bed.xid.load(Ordering::Relaxed);
    for _ in 0..3 {
        bed.xid.store(xid, Ordering::Relaxed);
        assert_eq!(bed.remove(bed.root, "file").await, None);
    }
    assert_eq!(bed.remove(bed.root, "file").await, Some(Status::NoEnt));
}

#[test]
fn the_status_of_an_export_tells_of_all_its_clients() {
    let memory = || Arc::new(MemoryFs::new(MemoryOptions::default()));
    let rule = |network: &str, read_only, security: &[Security]| ClientRule {
        networks: vec![network.parse().unwrap()],
        terms: Terms { read_only, security: security.to_vec(), ..Export::new("/", memory()).terms() },
    };
    let (sys, krb5, krb5i) = (Security::Sys, Security::Krb5, Security::Krb5i);
    for (read_only, rules, access, security) in [
        (true, vec![], ExportAccess::ReadOnly, vec![sys]),
        (false, vec![], ExportAccess::ReadWrite, vec![sys]),
        (true, vec![rule("192.0.2.1/32", true, &[krb5])], ExportAccess::ReadOnly, vec![sys, krb5]),
        (true, vec![rule("192.0.2.1/32", false, &[sys])], ExportAccess::Mixed, vec![sys]),
        (false, vec![rule("192.0.2.1/32", true, &[krb5i, sys])], ExportAccess::Mixed, vec![sys, krb5i]),
    ] {
        let origin = Some("/srv".to_owned());
        let export = Export { read_only, rules, origin: origin.clone(), ..Export::new("/", memory()) };
        let server = NfsServer::new(HandleKey::random(), vec![export], ServerOptions::default()).unwrap();
        let status = server.exports().remove(0);
        assert_eq!((status.access, status.security, status.origin), (access, security, origin));
    }
}
