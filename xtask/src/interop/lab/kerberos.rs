//! The Kerberos realm of the suite: its KDC on the host, and the guest as a member.
//!
//! Host and guest are members under names that only they know. Each program of the host sees the file of names as its
//! `/etc/hosts`, in a mount namespace of its own.
//!
//! gssd in the guest makes the contexts of an RDMA mount over TCP. It connects to port 2049, whatever the ports of the
//! mount are, and does not ask rpcbind (nfs-utils 2.6.2). So our server has its TCP port there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rpcrdma_realm::{REALM, Realm, cache_name};

use super::{JOB_LIMIT, Lab, Mount, Server};
use crate::failure::{Context, Failure, ensure};
use crate::interop::network::{GUEST, HOST};
use crate::interop::vm::Job;
use crate::process::{self, Finished};

/// The names of both sides in the realm.
pub(crate) const HOST_NAME: &str = "host.test";
pub(crate) const GUEST_NAME: &str = "guest.test";
/// A user with a password, and one without a ticket; both are users of the guest.
pub(crate) const ALICE: User = User { name: "alice", id: "3001" };
pub(crate) const BOB: User = User { name: "bob", id: "3002" };
/// The directory that the kernel's server exports for Kerberos only.
pub(crate) const KNFSD_EXPORT: &str = "/export/kerberos";
const PASSWORD: &str = "secret";
/// Folder of the files for the guest, below the folder that it shares.
const FILES: &str = "kerberos";
/// The TCP port on which gssd makes contexts for RDMA mounts.
const GSSD_PORT: u16 = 2049;

/// A user of the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    /// Name of the user, and of the principal.
    pub(crate) name: &'static str,
    /// UID and GID in the guest.
    pub(crate) id: &'static str,
}

impl User {
    /// Returns the user's principal.
    pub(crate) fn principal(self) -> String {
        format!("{}@{REALM}", self.name)
    }
}

/// The realm; see the module.
#[derive(Debug)]
pub(crate) struct Kerberos {
    realm: Realm,
    place: PathBuf,
}

impl Kerberos {
    fn start(place: PathBuf) -> Result<Self, Failure> {
        if place.exists() {
            fs::remove_dir_all(&place).context("removing the old realm")?;
        }
        fs::create_dir_all(&place)?;
        let realm = Realm::start(&place, HOST).context("the realm")?;
        let keytab = |name: &str| place.join(name);
        for (name, principal) in [
            ("server.keytab", format!("nfs/{HOST_NAME}")),
            ("guest.keytab", format!("nfs/{GUEST_NAME}")),
            ("guest.keytab", format!("host/{GUEST_NAME}")),
        ] {
            realm.add_service(&principal, &keytab(name)).context("the realm")?;
        }
        realm.add_user(ALICE.name, PASSWORD).context("the realm")?;
        let names = format!("127.0.0.1 localhost\n{GUEST} {GUEST_NAME} guest\n{HOST} {HOST_NAME} host\n");
        fs::write(place.join("hosts"), names)?;
        fs::write(place.join("idmapd.conf"), format!("[General]\nDomain = test\nLocal-Realms = {REALM}\n"))?;
        Ok(Self { realm, place })
    }

    /// Returns the file in which our server finds the users of principals.
    fn principals(&self) -> PathBuf {
        self.place.join("principals")
    }

    /// Returns the options of our server.
    fn options(&self) -> [String; 4] {
        let keytab = self.place.join("server.keytab").display().to_string();
        let principals = self.principals().display().to_string();
        ["--keytab".to_owned(), keytab, "--principals".to_owned(), principals]
    }

    /// Sets the environment of a program of the host.
    pub(crate) fn surround(&self, command: &mut Command) {
        Realm::surround(command, &self.place);
    }

    /// Returns the credential cache of a user on the host. It exists after [`Kerberos::kinit`].
    fn cache(&self, user: User) -> PathBuf {
        self.place.join(format!("tickets-{}", user.name))
    }

    /// Copies the files that the guest needs.
    fn furnish(&self, shared: &Path) -> Result<(), Failure> {
        let files = shared.join(FILES);
        fs::create_dir_all(&files)?;
        for name in ["krb5.conf", "hosts", "idmapd.conf", "guest.keytab"] {
            fs::copy(self.place.join(name), files.join(name)).context(name)?;
        }
        Ok(())
    }
}

/// Runs a script as a user: ID SCRIPT [ARGUMENT]...
const AS_USER: &str = "id=$1 script=$2; shift 2; exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \
    env HOME=/tmp bash -c \"$script\" bash \"$@\"";

impl Lab {
    /// Makes the guest a member of the realm, which the first call starts.
    pub(crate) fn join_realm(&mut self) -> Result<(), Failure> {
        if self.kerberos.is_none() {
            self.kerberos = Some(Kerberos::start(self.run.join("realm"))?);
        }
        self.kerberos()?.furnish(&self.vm.job)?;
        self.guest("exec bash /job/guest/kerberos.sh", &[]).map(drop).context("joining the realm")
    }

    /// Returns the realm that the case has joined.
    pub(crate) fn kerberos(&self) -> Result<&Kerberos, Failure> {
        self.kerberos.as_ref().ok_or_else(|| Failure::new("the case has not joined the realm"))
    }

    /// Starts a server of ours on the host that knows the realm, with these flavors. `machine` is the user that the guest
    /// itself is, so its root. The directory is for all users.
    pub(crate) fn serve_kerberos(&mut self, flavors: &str, machine: Option<&str>) -> Result<Server, Failure> {
        let machine = machine.map(|user| format!("nfs/{GUEST_NAME}@{REALM} {user}\n")).unwrap_or_default();
        let map = format!("{} {}\n{machine}", ALICE.principal(), ALICE.id);
        let kerberos = self.kerberos()?;
        fs::write(kerberos.principals(), map)?;
        let options = kerberos.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = self.serve_by(&format!("squash=none,sec={flavors}"), Some(GSSD_PORT), &options)?;
        self.server_script(&server, "chmod 1777 .", &[])?;
        Ok(server)
    }

    /// Starts a stopped server of [`Lab::serve_kerberos`] again.
    pub(crate) fn launch_kerberos(&mut self, server: &Server) -> Result<(), Failure> {
        let options = self.kerberos()?.options();
        self.launch(server, &options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Mounts a server of ours on the host by its name.
    pub(crate) fn mount_by_name(&mut self, server: &Server, options: &str) -> Result<Mount, Failure> {
        let Server { rdma, tcp, .. } = server;
        let all =
            format!("vers=3,proto=rdma,port={rdma},mountproto=tcp,mountport={tcp},nolock,retry=0,{options}");
        self.mount_raw(&format!("{HOST_NAME}:/"), &all)
    }

    /// Runs a script in the guest as a user.
    pub(crate) fn guest_as(
        &mut self,
        user: User,
        script: &str,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let arguments = [&[user.id, script], arguments].concat();
        self.guest(AS_USER, &arguments).context(format!("as {}", user.name))
    }

    /// Starts a script in the guest as a user, and does not wait.
    pub(crate) fn guest_start_as(
        &mut self,
        user: User,
        script: &str,
        arguments: &[&str],
    ) -> Result<Job, Failure> {
        self.guest_start(AS_USER, &[&[user.id, script], arguments].concat())
    }

    /// Gets a ticket for a user in the guest.
    pub(crate) fn guest_kinit(&mut self, user: User) -> Result<(), Failure> {
        self.guest_as(user, "echo \"$1\" | kinit \"$2\" >/dev/null", &[PASSWORD, user.name]).map(drop)
    }

    /// Removes the ticket of a user in the guest.
    pub(crate) fn guest_kdestroy(&mut self, user: User) -> Result<(), Failure> {
        self.guest_as(user, "kdestroy -q", &[]).map(drop)
    }

    /// Gets a ticket for a user on the host.
    pub(crate) fn kinit(&mut self, user: User) -> Result<(), Failure> {
        let kerberos = self.kerberos()?;
        kerberos.realm.kinit(user.name, PASSWORD, &kerberos.cache(user)).context("kinit on the host")
    }

    /// Runs `rpcrdma` on the host with the tickets of a user, in the folder of the case. The names of the realm are known.
    pub(crate) fn rpcrdma_of(&mut self, user: User, arguments: &[&str]) -> Result<Finished, Failure> {
        const RUN: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
        let kerberos = self.kerberos()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", RUN, "bash"]).arg(kerberos.place.join("hosts"));
        command.arg(&self.rpcrdma).args(arguments).current_dir(&self.folder);
        kerberos.surround(&mut command);
        command.env("KRB5CCNAME", cache_name(&kerberos.cache(user)));
        process::run(command, self.bounded(JOB_LIMIT))
    }

    /// Runs `rpcrdma` as [`Lab::rpcrdma_of`] does; it must succeed.
    pub(crate) fn rpcrdma_succeeds(&mut self, user: User, arguments: &[&str]) -> Result<Finished, Failure> {
        let finished = self.rpcrdma_of(user, arguments)?;
        ensure!(
            finished.success(),
            "rpcrdma {}: {}: {}",
            arguments.join(" "),
            finished.ending(),
            process::last_lines(&finished.errors, 5)
        );
        Ok(finished)
    }

    /// Starts the kernel's server with an export that wants Kerberos, and returns it.
    pub(crate) fn knfsd_kerberos(&mut self) -> Result<super::Knfsd, Failure> {
        let knfsd = self.knfsd()?;
        self.guest("exec bash /job/guest/kerberos.sh \"$1\"", &[KNFSD_EXPORT])
            .context("the kernel's server")?;
        Ok(knfsd)
    }

    /// Takes the export of [`Lab::knfsd_kerberos`] back.
    pub(crate) fn knfsd_without_kerberos(&mut self) -> Result<(), Failure> {
        let script = "exportfs -u \"*:$1\" && exportfs -f && umount \"$1\"";
        self.guest(script, &[KNFSD_EXPORT]).map(drop).context("the export with Kerberos")
    }
}
