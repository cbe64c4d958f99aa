//! A Kerberos realm of its own, for tests: a database in a folder, and a KDC on a free port that ends with the test.
//!
//! The realm needs no rights of root, and neither reads nor changes the machine's own Kerberos set-up: programs find it by
//! their environment ([`Realm::surround`]). It needs the programs of Debian's [`PACKAGES`].

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The packages of Debian with the programs that a realm needs.
pub const PACKAGES: [&str; 3] = ["krb5-kdc", "krb5-admin-server", "krb5-user"];
/// The programs, one of each package at least.
const PROGRAMS: [&str; 4] = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"];
/// The folders of programs; not every user searches the first one.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/bin"];
/// Name of the realm. Hosts below `.test` belong to it.
pub const REALM: &str = "TEST.RPCRDMA";
/// Most ports that a KDC tries.
const PORTS: u32 = 5;
/// The port of Kerberos (RFC 4120 §7.2.1), for configurations that nobody connects by.
const KERBEROS_PORT: u16 = 88;
/// File with what the KDC writes to its standard error.
const WORDS: &str = "krb5kdc.stderr";
/// The KDC writes this once its sockets listen.
const READY: &[u8] = b"starting...";
/// Maximum time until the KDC listens.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks at the KDC.
const TICK: Duration = Duration::from_millis(10);

/// The reason why a realm could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum RealmError {
    /// Programs are not installed.
    #[error("{program} is missing; as root: apt-get install --no-install-recommends {}", PACKAGES.join(" "))]
    Missing {
        /// The first program that is missing.
        program: &'static str,
    },
    /// A program did not start, or a file could not be written.
    #[error("{action}: {error}")]
    Io {
        /// The action that failed.
        action: String,
        /// The reason.
        error: std::io::Error,
    },
    /// A program failed.
    #[error("{program}: {said}")]
    Failed {
        /// Name of the program.
        program: &'static str,
        /// Its last words.
        said: String,
    },
    /// The KDC does not listen.
    #[error("krb5kdc does not listen on {address}:{port}")]
    Silent {
        /// Address of the KDC.
        address: Ipv4Addr,
        /// Its port.
        port: u16,
    },
}

fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> RealmError {
    let action = action.into();
    move |error| RealmError::Io { action, error }
}

/// Returns the path of a program of the packages.
fn program(name: &'static str) -> Result<PathBuf, RealmError> {
    FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
        .ok_or(RealmError::Missing { program: name })
}

/// Checks that the programs of the packages are installed.
///
/// # Errors
/// The first missing program, with the command that installs it.
pub fn installed() -> Result<(), RealmError> {
    PROGRAMS.iter().try_for_each(|name| program(name).map(drop))
}

/// A realm with a KDC, which ends with this value.
#[derive(Debug)]
pub struct Realm {
    place: PathBuf,
    kdc: Child,
}

impl Drop for Realm {
    fn drop(&mut self) {
        // Either fails only if the KDC has already ended.
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

impl Realm {
    /// Makes an empty realm in an existing folder, and starts its KDC on a free port of `address`.
    ///
    /// # Errors
    /// Programs are missing or fail, or the KDC does not listen.
    pub fn start(place: &Path, address: Ipv4Addr) -> Result<Self, RealmError> {
        Self::start_with(place, address, None)
    }

    /// Makes a realm whose keys are all of one encryption type, for instance `aes128-cts-hmac-sha256-128`.
    ///
    /// # Errors
    /// As [`Self::start`]. A type that the programs do not know is an error of the first one.
    pub fn start_of_type(place: &Path, address: Ipv4Addr, encryption: &str) -> Result<Self, RealmError> {
        Self::start_with(place, address, Some(encryption))
    }

    fn start_with(place: &Path, address: Ipv4Addr, encryption: Option<&str>) -> Result<Self, RealmError> {
        Self::start_on(place, address, encryption, || free_port(address))
    }

    /// Another program may take a port between its choice and its use. The KDC then ends, and gets another port.
    fn start_on(
        place: &Path,
        address: Ipv4Addr,
        encryption: Option<&str>,
        mut port: impl FnMut() -> Result<u16, RealmError>,
    ) -> Result<Self, RealmError> {
        installed()?;
        // The database does not depend on the port.
        configure(place, address, KERBEROS_PORT, encryption)?;
        run(place, "kdb5_util", &["create", "-s", "-P", "master", "-r", REALM])?;
        let mut attempts = 1;
        loop {
            let port = port()?;
            configure(place, address, port, encryption)?;
            let mut realm = Self { place: place.to_owned(), kdc: start_kdc(place)? };
            match realm.await_kdc(address, port) {
                Ok(()) => return Ok(realm),
                Err(RealmError::Failed { .. }) if attempts < PORTS => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the KDC says that it listens. A connection to its port would not show who listens there.
    fn await_kdc(&mut self, address: Ipv4Addr, port: u16) -> Result<(), RealmError> {
        let started = Instant::now();
        loop {
            let ended = self.kdc.try_wait().map_err(io("waiting for krb5kdc"))?;
            let said = fs::read(self.place.join(WORDS)).map_err(io(format!("reading {WORDS}")))?;
            if ended.is_some() {
                return Err(failed("krb5kdc", &said));
            }
            if said.windows(READY.len()).any(|words| words == READY) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(RealmError::Silent { address, port });
            }
            std::thread::sleep(TICK);
        }
    }

    /// Returns the configuration of the realm's members: their `krb5.conf`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.place.join(CONFIG)
    }

    /// Sets the environment of a program that belongs to the realm in this folder.
    pub fn surround(command: &mut Command, place: &Path) {
        command
            .env("KRB5_CONFIG", place.join(CONFIG))
            .env("KRB5_KDC_PROFILE", place.join(PROFILE))
            .env("KRB5CCNAME", cache_name(&place.join("tickets")))
            .env_remove("KRB5_KTNAME");
    }

    /// Adds a principal with a random key, and puts the key into a keytab.
    ///
    /// # Errors
    /// `kadmin.local` fails.
    pub fn add_service(&self, principal: &str, keytab: &Path) -> Result<(), RealmError> {
        self.administer(&["addprinc", "-randkey", principal])?;
        self.administer(&["ktadd", "-norandkey", "-k", &keytab.display().to_string(), principal])
    }

    /// Gives a principal another random key. Keytabs and tickets keep the old one.
    ///
    /// # Errors
    /// `kadmin.local` fails.
    pub fn change_key(&self, principal: &str) -> Result<(), RealmError> {
        self.administer(&["cpw", "-randkey", principal])
    }

    /// Adds a user with a password.
    ///
    /// # Errors
    /// `kadmin.local` fails.
    pub fn add_user(&self, user: &str, password: &str) -> Result<(), RealmError> {
        self.administer(&["addprinc", "-pw", password, user])
    }

    /// A query of separate words reports its failure in its status; one of `-q` does not.
    fn administer(&self, query: &[&str]) -> Result<(), RealmError> {
        run(&self.place, "kadmin.local", &[&["-r", REALM], query].concat())
    }

    /// Gets a ticket for a user, and puts it into a file.
    ///
    /// # Errors
    /// `kinit` fails.
    pub fn kinit(&self, user: &str, password: &str, cache: &Path) -> Result<(), RealmError> {
        let mut kinit = Command::new(program("kinit")?);
        Self::surround(&mut kinit, &self.place);
        kinit.arg("-c").arg(cache_name(cache)).arg(user);
        kinit.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = kinit.spawn().map_err(io("starting kinit"))?;
        if let Some(mut input) = child.stdin.take() {
            writeln!(input, "{password}").map_err(io("the password for kinit"))?;
        }
        let output = child.wait_with_output().map_err(io("waiting for kinit"))?;
        succeeded("kinit", &output)
    }
}

/// Returns the name of a file as the name of a credential cache.
#[must_use]
pub fn cache_name(file: &Path) -> String {
    format!("FILE:{}", file.display())
}

/// Returns a port that nobody uses now.
fn free_port(address: Ipv4Addr) -> Result<u16, RealmError> {
    let listener = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    Ok(listener.map_err(io(format!("a port of {address}")))?.port())
}

/// Writes the configuration of members and KDC.
fn configure(place: &Path, address: Ipv4Addr, port: u16, encryption: Option<&str>) -> Result<(), RealmError> {
    let files =
        [(CONFIG, config(address, port, encryption)), (PROFILE, profile(place, address, port, encryption))];
    for (name, text) in files {
        fs::write(place.join(name), text).map_err(io(format!("writing {name}")))?;
    }
    Ok(())
}

/// Starts the KDC of the realm in a folder.
fn start_kdc(place: &Path) -> Result<Child, RealmError> {
    let words = fs::File::create(place.join(WORDS)).map_err(io(format!("writing {WORDS}")))?;
    // The kernel ends the KDC with the thread that started it, if that thread cannot.
    let mut kdc = Command::new("setpriv");
    kdc.args(["--pdeathsig", "KILL", "--"]).arg(program("krb5kdc")?).arg("-n");
    Realm::surround(&mut kdc, place);
    kdc.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
    kdc.spawn().map_err(io("starting krb5kdc"))
}

const CONFIG: &str = "krb5.conf";
const PROFILE: &str = "kdc.conf";

/// Nothing depends on DNS, and messages go by TCP, so that none is lost.
fn config(address: Ipv4Addr, port: u16, encryption: Option<&str>) -> String {
    let permitted = encryption.map_or(String::new(), |name| format!(" permitted_enctypes = {name}\n"));
    format!(
        "[libdefaults]\n{permitted} default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
         dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = {address}:{port}\n }}\n\
         [domain_realm]\n .test = {REALM}\n"
    )
}

fn profile(place: &Path, address: Ipv4Addr, port: u16, encryption: Option<&str>) -> String {
    let supported = encryption.map_or(String::new(), |name| {
        format!("  master_key_type = {name}\n  supported_enctypes = {name}:normal\n")
    });
    let path = |name: &str| place.join(name).display().to_string();
    format!(
        "[kdcdefaults]\n kdc_listen = {address}:{port}\n kdc_tcp_listen = {address}:{port}\n\
         [realms]\n {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  acl_file = {}\n{supported} }}\n",
        path("principal"),
        path("stash"),
        path("acl"),
    )
}

/// Runs a program of the packages in the realm of a folder.
fn run(place: &Path, name: &'static str, arguments: &[&str]) -> Result<(), RealmError> {
    let mut command = Command::new(program(name)?);
    Realm::surround(&mut command, place);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    succeeded(name, &output.map_err(io(format!("starting {name}")))?)
}

fn succeeded(program: &'static str, output: &Output) -> Result<(), RealmError> {
    if output.status.success() {
        return Ok(());
    }
    Err(failed(program, &output.stderr))
}

/// Returns the error of a program that wrote this to its standard error.
fn failed(program: &'static str, said: &[u8]) -> RealmError {
    let said = String::from_utf8_lossy(said);
    RealmError::Failed { program, said: said.lines().last().unwrap_or("no reason given").to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_realm_gives_tickets_to_its_users_only() {
        if let Err(error) = installed() {
            println!("skipped: {error}");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let realm = Realm::start(place.path(), Ipv4Addr::LOCALHOST).unwrap();
        realm.add_user("alice", "secret").unwrap();
        let cache = place.path().join("cache");
        for (user, password) in [("alice", "wrong"), ("mallory", "secret")] {
            assert!(matches!(realm.kinit(user, password, &cache), Err(RealmError::Failed { .. })), "{user}");
            assert!(!cache.exists());
        }
        realm.kinit("alice", "secret", &cache).unwrap();
        assert!(cache.exists());
        let keytab = place.path().join("keytab");
        realm.add_service("nfs/server.test", &keytab).unwrap();
        let one = fs::metadata(&keytab).unwrap().len();
        realm.add_service("host/server.test", &keytab).unwrap();
        assert!(fs::metadata(&keytab).unwrap().len() > one);
        assert!(realm.add_user("alice", "secret").is_err(), "she is there");
    }

    /// Somebody else's listener is not taken for the KDC.
    #[test]
    fn a_kdc_whose_port_is_taken_gets_another_one() {
        if let Err(error) = installed() {
            println!("skipped: {error}");
            return;
        }
        let address = Ipv4Addr::LOCALHOST;
        let taken = TcpListener::bind((address, 0)).unwrap();
        let taken = || taken.local_addr().unwrap().port();
        let place = tempfile::tempdir().unwrap();
        let mut asked = 0;
        let realm = Realm::start_on(place.path(), address, None, || {
            asked += 1;
            if asked == 1 { Ok(taken()) } else { free_port(address) }
        });
        let realm = realm.unwrap();
        assert!(asked > 1);
        realm.add_user("alice", "secret").unwrap();
        realm.kinit("alice", "secret", &place.path().join("cache")).unwrap();
        drop(realm);
        let place = tempfile::tempdir().unwrap();
        let error = Realm::start_on(place.path(), address, None, || Ok(taken())).unwrap_err();
        assert!(
            matches!(&error, RealmError::Failed { program: "krb5kdc", said } if !said.is_empty()),
            "{error}"
        );
    }

    #[test]
    fn a_missing_program_is_named_with_its_packages() {
        let text = RealmError::Missing { program: "krb5kdc" }.to_string();
        assert!(text.starts_with("krb5kdc is missing") && PACKAGES.iter().all(|name| text.contains(name)));
    }
}
