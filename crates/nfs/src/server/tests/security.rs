//! Flavours of security: which calls an export takes, and whose they are.

use std::io;
use std::sync::atomic::AtomicUsize;

use rpcrdma_oncrpc::gss::{Principal, Service};
use rpcrdma_oncrpc::{AuthStat, RejectReason};

use super::super::{Account, Membership, Principals, Security, Terms, UserDatabase};
use super::overlap::Trees;
use super::*;
use crate::extents::{EXTENTS_PROGRAM, EXTENTS_VERSION};
use crate::mount::MountStatus;

/// Makes a caller by Kerberos, whom the mechanism's rules give a local user.
fn kerberos(name: &str, local: Option<&str>, service: Service) -> Credential {
    let principal = Principal {
        name: name.to_owned(),
        mechanism: Bytes::from_static(b"test"),
        local: local.map(str::to_owned),
    };
    Credential::Gss(Arc::new(GssCaller { principal: Arc::new(principal), service }))
}

/// Returns a caller of each flavour of [`Security::ALL`].
fn callers() -> [Credential; 4] {
    let alice = |service| kerberos("alice@EXAMPLE", Some("alice"), service);
    [user(1000, 1000), alice(Service::None), alice(Service::Integrity), alice(Service::Privacy)]
}

/// Database of `root`, of `alice` with more groups than AUTH_SYS can claim, and of `busy`, for whom it does not answer.
#[derive(Default)]
struct Names {
    asked: AtomicUsize,
}

impl UserDatabase for Names {
    fn membership(&self, user: u32) -> io::Result<Option<Membership>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok((user == 1007).then(|| Membership { primary: 107, groups: vec![107, 108] }))
    }

    fn account(&self, name: &str) -> io::Result<Option<Account>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let account = |user, primary, groups| Account { user, membership: Membership { primary, groups } };
        match name {
            "root" => Ok(Some(account(0, 0, vec![0]))),
            "alice" => Ok(Some(account(1000, 100, (100..140).collect()))),
            "busy" => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(None),
        }
    }
}

impl Names {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Returns a server of one export in memory, with this map of principals.
fn serve(map: &str, tune: impl FnOnce(&mut Export)) -> (Bed, Arc<Names>) {
    let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    export.squash = Squash::Nobody;
    export.security = Security::ALL.to_vec();
    tune(&mut export);
    let users = Arc::new(Names::default());
    let principals = Principals::parse(map).unwrap();
    let options = ServerOptions { users: users.clone(), principals, ..ServerOptions::default() };
    let server = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    (Bed::calling(&server, "/", "192.0.2.1", 0), users)
}

impl Bed {
    /// Returns as whom the caller acts: user and group of a new file.
    async fn acts_as(&self, name: &str) -> (u32, u32) {
        let file = self.make_file(self.root, name, 0o600).await;
        let made = self.getattr(file).await.unwrap();
        (made.uid, made.gid)
    }

    async fn fsinfo(&self, root: FileHandle) -> Option<Status> {
        self.status(&FsinfoArgs { root }).await
    }

    async fn flavors(&self, path: &str) -> Vec<u32> {
        match self.mnt(path).await {
            MountResult::Ok(mounted) => mounted.auth_flavors,
            MountResult::Fail(status) => panic!("{path}: {status}"),
        }
    }
}

/// RFC 1813 §5.2.1; RFC 2623 §2.7: clients prefer what comes first. RFC 7530 §3.2.1.1: the numbers.
// requirement: rfc1813-5.2.1-2
#[tokio::test]
async fn mnt_lists_flavours_in_the_administrators_order() {
    use Security::{Krb5, Krb5i, Krb5p, Sys};
    for (security, numbers) in [
        (vec![Sys], vec![1, 0]),
        (vec![Krb5p], vec![390_005]),
        (vec![Krb5i, Krb5], vec![390_004, 390_003]),
        (vec![Krb5, Sys, Krb5p], vec![390_003, 1, 390_005, 0]),
    ] {
        let (mut bed, _) = serve("", |export| export.security.clone_from(&security));
        for caller in callers() {
            // Where no export allows Kerberos, RPCSEC_GSS itself is refused.
            if security == [Sys] && matches!(caller, Credential::Gss(_)) {
                continue;
            }
            bed.credential = caller;
            assert_eq!(bed.flavors("/").await, numbers, "{security:?}");
        }
    }
}

/// On each kind of file system, since some answer from memory. RFC 2203 §5.3.3: the service is that of each call.
#[tokio::test]
async fn calls_have_a_flavour_of_the_export() {
    for allowed in Security::ALL {
        let tune = [
            |export: &mut Export, _: &mut DirectoryOptions| export.security = vec![Security::Sys],
            |export: &mut Export, _: &mut DirectoryOptions| export.security = vec![Security::Krb5],
            |export: &mut Export, _: &mut DirectoryOptions| export.security = vec![Security::Krb5i],
            |export: &mut Export, _: &mut DirectoryOptions| export.security = vec![Security::Krb5p],
        ];
        let tune: Tune = tune[allowed as usize];
        for mut bed in Bed::all_with(tune) {
            bed.dispatcher.register(bed.server.extents_program()).unwrap();
            if let Some(places) = &bed.places {
                std::fs::set_permissions(
                    places.0.path(),
                    std::os::unix::fs::PermissionsExt::from_mode(0o755),
                )
                .unwrap();
            }
            bed.credential = callers()[allowed as usize].clone();
            assert_eq!(bed.mounted_at("/").await, Ok(bed.root), "{}", bed.name);
            // Also what the kernel or the server has in memory by now is for these callers only.
            for _ in 0..2 {
                assert_eq!(bed.getattr(bed.root).await.map(drop), Ok(()), "{} {allowed}", bed.name);
                assert_eq!(bed.lookup(bed.root, ".").await, Ok(bed.root), "{} {allowed}", bed.name);
            }
            for (flavor, caller) in Security::ALL.into_iter().zip(callers()) {
                if flavor == allowed {
                    continue;
                }
                if allowed == Security::Sys {
                    assert_refused_by_rpc(&bed, caller).await;
                    continue;
                }
                bed.credential = caller;
                let name = format!("{} {flavor} instead of {allowed}", bed.name);
                for status in bed.each_kind(bed.root).await.into_iter().skip(1) {
                    assert_eq!(status, Some(Status::Acces), "{name}");
                }
                assert_eq!(bed.lookup(bed.root, ".").await, Err(Status::Acces), "{name}");
                let access = AccessArgs { object: bed.root, access: 0x3f };
                assert_eq!(bed.status(&access).await, Some(Status::Acces), "{name}");
                assert_eq!(bed.status(&FsstatArgs { root: bed.root }).await, Some(Status::Acces), "{name}");
                let probed = if flavor == Security::Sys { None } else { Some(Status::Acces) };
                assert_eq!(bed.getattr(bed.root).await.err(), probed, "{name}");
                assert_eq!(bed.fsinfo(bed.root).await, probed, "{name}");
            }
        }
    }
}

/// Where no export allows Kerberos, no program takes RPCSEC_GSS.
async fn assert_refused_by_rpc(bed: &Bed, caller: Credential) {
    let bed = Bed { credential: caller, ..Bed::calling(&bed.server, "/", "192.0.2.1", 0) };
    for (program, version) in
        [(MOUNT_PROGRAM, MOUNT_VERSION), (NFS_PROGRAM, NFS_VERSION), (EXTENTS_PROGRAM, EXTENTS_VERSION)]
    {
        let refused = bed.rpc([program, version, 1], &()).await.unwrap_err();
        let expected = ReplyBody::Denied(RejectReason::AuthError(AuthStat::BadCred));
        assert_eq!(refused, expected, "{program}");
    }
}

/// RFC 2623 §2.3.2: what clients call while they mount, with the only credential that they have then.
#[tokio::test]
async fn who_mounts_may_probe_the_root_by_auth_sys_and_nothing_else() {
    let (mut bed, users) = serve("", |export| {
        export.security = vec![Security::Krb5i];
        export.allow = vec!["192.0.2.0/24".parse().unwrap()].into();
    });
    bed.credential = callers()[2].clone();
    let directory = bed.make_directory(bed.root, "dir", 0o777).await;
    let asked = users.asked();
    for credential in [user(0, 0), user(1000, 100), Credential::None] {
        bed.credential = credential;
        assert_eq!(bed.mounted_at("/").await, Ok(bed.root));
        assert_eq!(bed.getattr(bed.root).await.map(drop), Ok(()));
        assert_eq!(bed.fsinfo(bed.root).await, None);
        // Other objects than the root, and other procedures.
        assert_eq!(bed.getattr(directory).await.err(), Some(Status::Acces));
        assert_eq!(bed.fsinfo(directory).await, Some(Status::Acces));
        assert_eq!(bed.status(&PathconfArgs { object: bed.root }).await, Some(Status::Acces));
        assert_eq!(bed.remove(bed.root, "dir").await, Some(Status::Acces));
    }
    // Other rules stay.
    bed.peer = "198.51.100.1:700".parse().unwrap();
    assert_eq!(bed.mounted_at("/").await, Err(MountStatus::Acces));
    assert_eq!(bed.getattr(bed.root).await.err(), Some(Status::Acces));
    assert_eq!(bed.fsinfo(bed.root).await, Some(Status::Acces));
    assert_eq!(users.asked(), asked);
}

/// The Linux kernel sends MNT by AUTH_SYS only, also for directories below an export.
#[tokio::test]
async fn a_path_is_walked_as_nobody_if_the_export_does_not_allow_the_flavour() {
    let (mut bed, _) = serve("", |export| export.security = vec![Security::Krb5]);
    let [claimed, proven, ..] = callers();
    bed.credential = proven.clone();
    assert_eq!(bed.set(bed.root, mode(0o755)).await, Some(Status::Perm), "alice does not own the root");
    let open = bed.make_directory(bed.root, "open", 0o711).await;
    let below = bed.make_directory(open, "below", 0o700).await;
    bed.make_directory(below, "deep", 0o777).await;
    assert!(bed.mounted_at("/open/below/deep").await.is_ok());
    for claims in [claimed, user(0, 0), Credential::None] {
        bed.credential = claims;
        assert_eq!(bed.mounted_at("/open").await, Ok(open));
        assert_eq!(bed.mounted_at("/open/below").await, Ok(below));
        assert_eq!(bed.mounted_at("/open/below/deep").await, Err(MountStatus::Acces));
        assert_eq!(bed.getattr(below).await.err(), Some(Status::Acces), "only the handle");
    }
}

#[tokio::test]
async fn a_name_enters_another_export_by_a_flavour_of_that_one() {
    for trees in Trees::all() {
        let mut bed = trees.serve_with(|inner| {
            inner.allow = Admitted::Everybody;
            inner.security = vec![Security::Krb5i, Security::Krb5p];
        });
        let (name, inner) = (bed.name, bed.server.root_handle("/inner").unwrap());
        for caller in [user(0, 0), Credential::None] {
            bed.credential = caller;
            assert_eq!(bed.lookup(bed.root, "secret").await, Err(Status::Acces), "{name}");
            let entry = bed.entry(bed.root, "secret").await;
            assert_eq!((entry.handle, entry.attributes), (None, None), "{name}");
            assert_eq!(bed.remove(bed.root, "secret").await, Some(Status::Acces), "{name}");
            assert_eq!(
                bed.rename((bed.root, "secret"), (bed.root, "x")).await,
                Some(Status::Acces),
                "{name}"
            );
            assert_eq!(bed.lookup(inner, "file").await, Err(Status::Acces), "{name}");
        }
        // By MOUNT the name leads there, to a handle that is of no use without Kerberos.
        assert_eq!(bed.mounted_at("/secret").await, Ok(inner), "{name}");
        assert_eq!(bed.flavors("/secret").await, [390_004, 390_005], "{name}");
        let [.., weak, protected, _] = callers();
        bed.credential = weak;
        assert_eq!(bed.lookup(inner, "file").await, Err(Status::Acces), "{name}");
        bed.credential = protected;
        assert!(bed.lookup(inner, "file").await.is_ok(), "{name}");
        // The outer export allows AUTH_SYS only.
        assert_eq!(bed.lookup(bed.root, "secret").await, Err(Status::Acces), "{name}");
    }
}

/// RFC 2203 §5.3.3.1: a repeat may come in another context, but under the protection that the export asks for.
#[tokio::test]
async fn a_kept_reply_is_for_repeats_under_the_same_protection() {
    let (mut bed, _) = serve("", |export| export.security = vec![Security::Krb5i]);
    let [_, weak, protected, _] = callers();
    bed.credential = protected.clone();
    bed.make_file(bed.root, "file", 0o600).await;
    let xid = bed.xid.load(Ordering::Relaxed);
    assert_eq!(bed.remove(bed.root, "file").await, None);
    bed.xid.store(xid, Ordering::Relaxed);
    bed.credential = weak;
    assert_eq!(bed.remove(bed.root, "file").await, Some(Status::Acces));
    bed.xid.store(xid, Ordering::Relaxed);
    bed.credential = protected;
    assert_eq!(bed.remove(bed.root, "file").await, None, "the kept reply");
}

#[tokio::test]
async fn principals_act_as_their_users_with_the_groups_of_the_database() {
    let map =
        "bob@EXAMPLE 1007\nstranger@EXAMPLE 4711\nnfs/client.example@EXAMPLE root\neve@EXAMPLE nobody-here";
    let (mut bed, _) = serve(map, |_| {});
    let nobody = (NOBODY, NOBODY);
    for (name, local, expected) in [
        ("alice@EXAMPLE", Some("alice"), (1000, 100)),
        ("bob@EXAMPLE", Some("alice"), (1007, 107)),
        ("stranger@EXAMPLE", None, (4711, NOBODY)),
        // Root of a client whose machine the map names.
        ("nfs/client.example@EXAMPLE", None, (0, 0)),
        // Other machines are nobody, whatever auth_to_local says.
        ("nfs/other.example@EXAMPLE", Some("alice"), nobody),
        ("host/client.example@EXAMPLE", Some("root"), nobody),
        // Without a rule, or with a user who does not exist.
        ("alice@OTHER.EXAMPLE", None, nobody),
        ("carol@EXAMPLE", Some("carol"), nobody),
        ("eve@EXAMPLE", Some("alice"), nobody),
    ] {
        for service in [Service::None, Service::Integrity, Service::Privacy] {
            bed.credential = kerberos(name, local, service);
            let file = format!("{name} {service:?}").replace('/', " ");
            assert_eq!(bed.acts_as(&file).await, expected, "{name} {service:?}");
        }
    }
    // Of a group beyond the sixteenth.
    bed.credential = user(0, 0);
    let file = bed.make_file(bed.root, "of a group", 0o640).await;
    let give = SetAttributes { uid: Some(5), gid: Some(139), ..SetAttributes::default() };
    assert_eq!(bed.set(file, give).await, None);
    bed.credential = kerberos("alice@EXAMPLE", Some("alice"), Service::None);
    assert!(bed.read(file, 0, 1).await.is_ok());
    bed.credential = kerberos("bob@EXAMPLE", None, Service::None);
    assert_eq!(bed.read(file, 0, 1).await.err(), Some(Status::Acces));
}

#[tokio::test]
async fn squash_rules_apply_to_the_users_of_principals() {
    let root = kerberos("root@EXAMPLE", Some("root"), Service::Integrity);
    let mapped = kerberos("nfs/client.example@EXAMPLE", None, Service::Integrity);
    let alice = kerberos("alice@EXAMPLE", Some("alice"), Service::Integrity);
    let nobody = (NOBODY, NOBODY);
    for (squash, expected) in [
        (Squash::Nobody, [(0, 0), (0, NOBODY), (1000, 100)]),
        (Squash::Root, [nobody, nobody, (1000, 100)]),
        (Squash::Everybody, [nobody; 3]),
    ] {
        let (mut bed, _) = serve("nfs/client.example@EXAMPLE 0", |export| export.squash = squash);
        for (number, (caller, expected)) in [&root, &mapped, &alice].into_iter().zip(expected).enumerate() {
            bed.credential = caller.clone();
            assert_eq!(bed.acts_as(&number.to_string()).await, expected, "{squash:?} {number}");
        }
    }
}

#[tokio::test]
async fn i6_the_database_is_asked_only_for_users_who_are_admitted() {
    let (mut bed, users) = serve("nfs/client.example@EXAMPLE 0", |export| {
        export.security = vec![Security::Krb5p];
        export.squash = Squash::Root;
        export.allow = vec!["192.0.2.0/24".parse().unwrap()].into();
    });
    let alice = |service| kerberos("alice@EXAMPLE", Some("alice"), service);
    // A flavour, and an address, that the export does not allow.
    bed.credential = alice(Service::Integrity);
    assert_eq!(bed.lookup(bed.root, ".").await, Err(Status::Acces));
    assert_eq!(bed.mounted_at("/").await, Ok(bed.root));
    bed.credential = alice(Service::Privacy);
    bed.peer = "198.51.100.1:700".parse().unwrap();
    assert_eq!(bed.lookup(bed.root, ".").await, Err(Status::Acces));
    bed.peer = "192.0.2.1:700".parse().unwrap();
    // Principals that are nobody by their names, or by the map and the export.
    for name in ["host/a.example@EXAMPLE", "nfs/client.example@EXAMPLE", "alice@OTHER.EXAMPLE"] {
        bed.credential = kerberos(name, None, Service::Privacy);
        assert_eq!(bed.lookup(bed.root, ".").await, Ok(bed.root), "{name}");
    }
    assert_eq!(users.asked(), 0);
    bed.credential = alice(Service::Privacy);
    for _ in 0..3 {
        assert_eq!(bed.lookup(bed.root, ".").await, Ok(bed.root));
    }
    assert_eq!(users.asked(), 1, "an answer is kept");
    bed.credential = kerberos("busy@EXAMPLE", Some("busy"), Service::Privacy);
    assert_eq!(bed.lookup(bed.root, ".").await, Err(Status::Jukebox));
}

/// exports(5): several `sec=` give flavours their own `ro`, `rw` and squashing.
#[tokio::test]
async fn a_flavour_can_have_terms_of_its_own() {
    let (mut bed, _) = serve("", |export| {
        export.security = vec![Security::Krb5p, Security::Sys, Security::Krb5i];
        let sys = Terms { read_only: true, security: vec![Security::Sys], ..export.terms() };
        let integrity =
            Terms { squash: Squash::Everybody, security: vec![Security::Krb5i], ..export.terms() };
        export.apart = vec![sys, integrity];
    });
    let alice = |service| kerberos("alice@EXAMPLE", Some("alice"), service);
    bed.credential = kerberos("root@EXAMPLE", Some("root"), Service::Privacy);
    assert_eq!(bed.flavors("/").await, [390_005, 1, 390_004, 0], "the list is that of all");
    let mode = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    // The root of the tree belongs to root, who acts as itself here.
    if bed.set(bed.root, mode).await.is_some() {
        panic!("the root is not open");
    }
    bed.credential = alice(Service::Privacy);
    assert_eq!(bed.acts_as("by-privacy").await.0, 1000);
    bed.credential = alice(Service::Integrity);
    assert_eq!(bed.acts_as("by-integrity").await, (NOBODY, NOBODY));
    bed.credential = user(1000, 1000);
    assert_eq!(bed.remove(bed.root, "by-privacy").await, Some(Status::Rofs));
    assert_eq!(bed.access(bed.root).await & ACCESS3_MODIFY, 0);
    bed.credential = alice(Service::None);
    assert_eq!(bed.getattr(bed.root).await, Err(Status::Acces), "no flavour of the export");
}
