//! Kerberos: the kernel and our programs as members of one realm, with the KDC of Debian (RFC 2203).
//!
//! The realm is [`crate::interop::lab::kerberos`]. The service of a call decides its chunks, which recordings show
//! ([`forms`]).

use std::time::Duration;

use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::kerberos::{ALICE, BOB, GUEST_NAME, HOST_NAME, KNFSD_EXPORT};
use crate::interop::lab::{Lab, Mount};
use crate::process;

use self::forms::{Service, Travelled};

mod forms;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "kernel-client",
        "The kernel mounts our export by krb5 and krb5i: users have their own rights, none without a ticket; \
         with krb5i nothing is reduced, a WRITE travels in a Position-Zero Read chunk",
        kernel_client,
    )
    .within(120),
    Case::new(
        "operations",
        "By krb5i, with the guest's machine as root: every operation, files of 0 bytes to 1 MiB + 1, and 16 processes at once",
        operations,
    )
    .within(180)
    .thorough(),
    Case::new(
        "server-restarted",
        "The server forgets all contexts in a restart while files are written: the kernel makes new ones, and all data is there",
        restarted,
    )
    .within(120),
    Case::new(
        "krb5p",
        "The kernel mounts our export by krb5p, as by krb5i, whether its own server understands its krb5p or not",
        privacy,
    )
    .within(120),
    Case::new(
        "our-client",
        "Our client on knfsd by krb5 and krb5i, and by krb5p if the kernel's client can do so; without a ticket it names kinit",
        our_client,
    )
    .within(120),
    Case::new(
        "our-server",
        "Our client on our server by krb5, krb5i and krb5p, over RDMA and over TCP: files of 64 MiB come back unchanged",
        our_server,
    )
    .within(240)
    .unseen(),
];

/// A flavor of the kernel and of our options, with what it does to a call.
#[derive(Clone, Copy, Debug)]
struct Flavor {
    name: &'static str,
    service: Service,
}

const KRB5: Flavor = Flavor { name: "krb5", service: Service::None };
const KRB5I: Flavor = Flavor { name: "krb5i", service: Service::Integrity };
const KRB5P: Flavor = Flavor { name: "krb5p", service: Service::Privacy };

/// All flavors, as an option of an export.
const ALL: &str = "krb5:krb5i:krb5p";
/// Exit code of a command whose server refused it, or whose ticket is missing.
const FAILED: i32 = 1;

/// Writes a file in `$1` and says its checksum.
const WRITE: &str = "cd \"$1\" && head -c 300000 /dev/urandom >\"$2\" && sync -f . && sha256sum <\"$2\"";
/// Reads a file and a directory in `$1`.
const READ: &str = "cd \"$1\" && ls -l . >/dev/null && sha256sum <\"$2\"";

/// Lets users of the guest write and read on a mount. Returns the number of checked files.
fn use_mount(lab: &mut Lab, mount: &Mount, flavor: Flavor) -> Result<(), Failure> {
    let sec = mount.option("sec");
    ensure!(sec == Some(flavor.name), "the mount has sec={sec:?}");
    let file = format!("{}-file", flavor.name);
    let refused = lab.guest_as(BOB, READ, &[&mount.path, "."]);
    let refusal = refused.err().map(|failure| failure.to_string()).unwrap_or_default();
    ensure!(refusal.contains("Permission denied"), "a user without a ticket: {refusal:?}");
    let written = lab.guest_as(ALICE, WRITE, &[&mount.path, &file])?;
    lab.guest("echo 3 >/proc/sys/vm/drop_caches", &[])?;
    let read = lab.guest_as(ALICE, READ, &[&mount.path, &file])?;
    ensure!(written == read, "{file} comes back changed: {written:?}, {read:?}");
    let owner = lab.guest_as(ALICE, "stat -c %u \"$1/$2\"", &[&mount.path, &file])?;
    ensure!(owner.trim() == ALICE.id, "{file} belongs to {}, not to {}", owner.trim(), ALICE.id);
    Ok(())
}

fn kernel_client(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.join_realm()?;
    lab.guest_kinit(ALICE)?;
    let server = lab.serve_kerberos(ALL, None)?;
    let unsafe_mount = lab.mount_by_name(&server, "sec=sys");
    ensure!(unsafe_mount.is_err(), "the export is mounted by sec=sys");
    for flavor in [KRB5, KRB5I] {
        let mount = lab
            .mount_by_name(&server, &format!("sec={}", flavor.name))
            .map_err(|failure| explain(lab, failure))?;
        use_mount(lab, &mount, flavor).map_err(|failure| explain(lab, failure)).context(flavor.name)?;
        lab.umount(&mount)?;
        let file = format!("{}-file", flavor.name);
        let owner = lab.server_script(&server, "stat -c %u \"$1\"", &[&file])?;
        ensure!(owner.trim() == ALICE.id, "{file} belongs to {} on the server", owner.trim());
    }
    lab.guest_kdestroy(ALICE)?;
    let travelled = Travelled::of(&lab.recording()?.sessions);
    let mut words = Vec::new();
    for flavor in [KRB5, KRB5I] {
        words.push(travelled.check(flavor.service).context(flavor.name)?);
    }
    Ok(words.join("; "))
}

fn operations(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.join_realm()?;
    let server = lab.serve_kerberos(KRB5I.name, Some("root"))?;
    let mount = lab.mount_by_name(&server, "sec=krb5i").map_err(|failure| explain(lab, failure))?;
    let (some, many) = (Duration::from_secs(45), Duration::from_secs(90));
    for (limit, name, arguments) in
        [(some, "operations", &[][..]), (some, "write-read-sizes", &[]), (many, "processes", &["16", "6"])]
    {
        let folder = format!("{}/{name}", mount.path);
        lab.guest("mkdir \"$1\"", &[&folder])?;
        lab.workload(limit, name, &[&[folder.as_str()], arguments].concat())?;
    }
    lab.umount(&mount)?;
    let calls = Travelled::of(&lab.recording()?.sessions).check(Service::Integrity)?;
    Ok(calls)
}

/// Writes files in `$1`, one after the other, and keeps their checksums.
const WRITE_MANY: &str = "cd \"$1\" && for n in $(seq 60); do head -c 200000 /dev/urandom >/tmp/new && \
    cp /tmp/new many-$n && sha256sum </tmp/new || exit 1; done";
const READ_MANY: &str = "cd \"$1\" && for n in $(seq 60); do sha256sum <many-$n || exit 1; done";

fn restarted(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.join_realm()?;
    lab.guest_kinit(ALICE)?;
    let server = lab.serve_kerberos(KRB5I.name, None)?;
    let mount = lab.mount_by_name(&server, "sec=krb5i").map_err(|failure| explain(lab, failure))?;
    let job = lab.guest_start_as(ALICE, WRITE_MANY, &[&mount.path])?;
    let limit = Duration::from_secs(60);
    for due in [5, 25] {
        let begun = process::until(limit * lab.accel().patience(), || {
            Ok((lab.guest_output(&job).lines().count() >= due).then_some(()))
        })?;
        ensure!(begun.is_some(), "nothing was written in time: {}", lab.guest_output(&job));
        lab.kill(&server)?;
        lab.launch_kerberos(&server)?;
    }
    let written = lab.guest_finish(&job, limit).map_err(|failure| explain(lab, failure))?;
    lab.guest("echo 3 >/proc/sys/vm/drop_caches", &[])?;
    let read = lab.guest_as(ALICE, READ_MANY, &[&mount.path])?;
    ensure!(written == read, "files come back changed");
    lab.umount(&mount)?;
    lab.guest_kdestroy(ALICE)?;
    let owners = lab.server_script(&server, "stat -c %u many-* | sort -u", &[])?;
    ensure!(owners.trim() == ALICE.id, "the files belong to {owners:?}");
    Ok("2 restarts, 60 files".to_owned())
}

/// Adds the last words of gssd to a failure.
fn explain(lab: &mut Lab, failure: Failure) -> Failure {
    lab.extend();
    let said = lab.guest("tail -n 12 /tmp/gssd.log", &[]).unwrap_or_default();
    Failure::new(format!("{failure}; gssd: {said}"))
}

/// Mounts the kernel's own server by a flavor, and writes and reads a file. Returns the reason of a failure of the kernel.
fn kernel_pair(lab: &mut Lab, flavor: Flavor) -> Result<Option<String>, Failure> {
    let knfsd = lab.knfsd_kerberos()?;
    let options = format!(
        "vers=3,proto=rdma,port={},mountproto=tcp,mountport={},nolock,retry=0,sec={}",
        knfsd.rdma, knfsd.mountd, flavor.name
    );
    let mount = match lab.mount_raw(&format!("{GUEST_NAME}:{KNFSD_EXPORT}"), &options) {
        Ok(mount) => mount,
        Err(failure) => return Ok(Some(failure.to_string())),
    };
    let used = use_mount(lab, &mount, flavor);
    lab.umount(&mount)?;
    Ok(used.err().map(|failure| failure.to_string()))
}

/// Returns whether kernels of this release understand each other by krb5p: a stable kernel of Debian 12 does not.
/// The pair must understand krb5 in any case, so that a fault of the realm is not taken for one of the kernel.
fn kernels_have_privacy(lab: &mut Lab) -> Result<Option<String>, Failure> {
    lab.guest_kinit(ALICE)?;
    let base = kernel_pair(lab, KRB5)?;
    ensure!(base.is_none(), "the kernel's pair by krb5: {}", base.unwrap_or_default());
    let failure = kernel_pair(lab, KRB5P)?;
    lab.knfsd_without_kerberos()?;
    Ok(failure)
}

fn privacy(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.join_realm()?;
    let failure = kernels_have_privacy(lab)?;
    let server = lab.serve_kerberos(ALL, None)?;
    let mount = lab.mount_by_name(&server, "sec=krb5p").map_err(|failure| explain(lab, failure))?;
    use_mount(lab, &mount, KRB5P).map_err(|failure| explain(lab, failure))?;
    lab.umount(&mount)?;
    lab.guest_kdestroy(ALICE)?;
    let travelled = Travelled::of(&lab.recording()?.sessions).check(Service::Privacy)?;
    let pair = if failure.is_some() { "does not understand" } else { "understands" };
    Ok(format!("{travelled}; the kernel's own server {pair} it"))
}

/// Puts a file as alice, lists and gets it back.
fn copies(lab: &mut Lab, url: &dyn Fn(&str) -> String, options: &[&str], size: usize) -> Result<(), Failure> {
    let content = super::our_client::copies::noise(size);
    std::fs::write(lab.folder.join("file"), &content)?;
    let run = |lab: &mut Lab, command: &[&str]| lab.rpcrdma_succeeds(ALICE, &[command, options].concat());
    run(lab, &["put", "file", &url("copy")])?;
    let list = run(lab, &["ls", "-l", &url("")])?.text();
    ensure!(list.lines().any(|line| line.ends_with(" copy")), "ls -l shows {list:?}");
    run(lab, &["get", &url("copy"), "back"])?;
    ensure!(std::fs::read(lab.folder.join("back"))? == content, "{size} bytes come back changed");
    run(lab, &["rm", &url("copy")])?;
    std::fs::remove_file(lab.folder.join("back"))?;
    Ok(())
}

fn our_client(lab: &mut Lab) -> Result<Detail, Failure> {
    lab.join_realm()?;
    let privacy = kernels_have_privacy(lab)?.is_none();
    let knfsd = lab.knfsd_kerberos()?;
    let mountport = knfsd.mountd.to_string();
    let url = |path: &str| format!("nfs://{GUEST_NAME}:{}{KNFSD_EXPORT}/{path}", knfsd.rdma);
    let options = |sec: &'static str| ["--mountport", &mountport, "--sec", sec];
    let refused = lab.rpcrdma_of(BOB, &[&["ls", &url("")][..], &options(KRB5.name)].concat())?;
    ensure!(
        refused.status.and_then(|status| status.code()) == Some(FAILED) && refused.errors.contains("kinit"),
        "without a ticket: {}: {}",
        refused.ending(),
        refused.errors.trim()
    );
    let refused = lab.rpcrdma_of(BOB, &[&["ls", &url("")][..], &options("sys")].concat())?;
    ensure!(!refused.success(), "knfsd lets AUTH_SYS in");
    lab.kinit(ALICE)?;
    let flavors = [Some(KRB5), Some(KRB5I), privacy.then_some(KRB5P)];
    for flavor in flavors.into_iter().flatten() {
        copies(lab, &url, &options(flavor.name), 3 << 20).context(flavor.name)?;
        lab.rpcrdma_succeeds(
            ALICE,
            &[&["put", "file", &url(flavor.name)][..], &options(flavor.name)].concat(),
        )?;
        let owner = lab.guest("stat -c %u \"$1/$2\"", &[KNFSD_EXPORT, flavor.name])?;
        ensure!(owner.trim() == ALICE.id, "{}: the file belongs to {}", flavor.name, owner.trim());
    }
    let mut words = Vec::new();
    if !privacy {
        // A server that does not understand its own client is no judge, but the command has to end with a reason.
        let refused = lab.rpcrdma_of(ALICE, &[&["ls", &url("")][..], &options(KRB5P.name)].concat())?;
        let reason = refused.errors.lines().last().unwrap_or_default();
        ensure!(refused.success() || !reason.is_empty(), "krb5p: {}", refused.ending());
        words.push(format!("krb5p: {}", if refused.success() { "works" } else { reason }));
    }
    let travelled = Travelled::of(&lab.recording()?.sessions);
    for flavor in flavors.into_iter().flatten() {
        words.push(travelled.check(flavor.service).context(flavor.name)?);
    }
    lab.knfsd_without_kerberos()?;
    Ok(words.join("; "))
}

fn our_server(lab: &mut Lab) -> Result<Detail, Failure> {
    const LARGE: usize = 64 << 20;
    lab.join_realm()?;
    lab.kinit(ALICE)?;
    let server = lab.serve_kerberos(ALL, None)?;
    let mut times = Vec::new();
    for (proto, port) in [("rdma", server.rdma), ("tcp", server.tcp)] {
        let url = |path: &str| format!("nfs://{HOST_NAME}:{port}/{path}");
        let mountport = server.tcp.to_string();
        let base = ["--proto", proto, "--mountport", &mountport];
        for flavor in [KRB5, KRB5I, KRB5P] {
            let options = [&base[..], &["--sec", flavor.name]].concat();
            let started = std::time::Instant::now();
            copies(lab, &url, &options, LARGE).context(format!("{} over {proto}", flavor.name))?;
            times.push(format!("{} {proto} {:.1} s", flavor.name, started.elapsed().as_secs_f64()));
        }
        let refused = lab.rpcrdma_of(ALICE, &[&["ls", &url("")][..], &base, &["--sec", "sys"]].concat())?;
        ensure!(!refused.success(), "the export admits AUTH_SYS over {proto}");
    }
    let refused =
        lab.rpcrdma_of(BOB, &["ls", "--sec", "krb5", &format!("nfs://{HOST_NAME}:{}/", server.rdma)])?;
    ensure!(
        !refused.success() && refused.errors.contains("kinit"),
        "without a ticket: {}",
        refused.errors.trim()
    );
    Ok(times.join(", "))
}
