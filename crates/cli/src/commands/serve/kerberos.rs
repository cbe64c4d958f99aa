//! Kerberos for `rpcrdma serve`: the server's key, the map of principals, and what Linux clients need beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rpcrdma_gssapi::{KerberosAcceptor, OpenError, keytab_file};
use rpcrdma_nfs::server::Principals;
use rpcrdma_oncrpc::gss::{Acceptor, GssLimits, GssServer};

use super::configuration::{self, Configuration};
use super::export::ExportOption;
use crate::exit::Failure;

const KERBEROS: &str = "Kerberos";
/// Names of the options.
const KEYTAB_OPTION: &str = "--keytab";
const PRINCIPALS: &str = "--principals";

/// The TCP port on which the gssd of Linux makes the security contexts of RDMA mounts, whatever the port of the mount is. It
/// does not ask rpcbind (nfs-utils 2.6).
const GSSD_PORT: u16 = 2049;
/// TCP ports if none is given: with Kerberos NFS is also served where contexts are made (RFC 8166 §8.2.2.1).
const USUAL_PORTS: &[u16] = &[GSSD_PORT, super::listen::TCP_PORT];

/// Options for exports with sec=krb5, krb5i or krb5p.
#[derive(Debug, Args)]
pub(super) struct Kerberos {
    /// Keytab with the server's key, of a principal nfs/HOST where HOST is the name by which clients mount. FILE:
    /// or WRFILE: may stand in front; never inside an export [default: that of the system, /etc/krb5.keytab]
    #[arg(long, value_name = "FILE", help_heading = KERBEROS)]
    keytab: Option<PathBuf>,
    /// Users of principals: lines of a principal and a user name or ID, such as alice@EXAMPLE.ORG alice; # begins
    /// a comment. Other principals have the users that krb5.conf gives them (auth_to_local). Read at the start
    #[arg(long, value_name = "FILE", help_heading = KERBEROS)]
    principals: Option<PathBuf>,
}

/// Contexts and users of callers by Kerberos.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// Contexts of callers; `None` if no export allows Kerberos.
    pub(super) contexts: Option<Arc<GssServer>>,
    pub(super) principals: Principals,
}

/// Returns contexts whose handles nobody guesses: their key comes from a generator for cryptography, seeded by the system.
fn contexts(acceptor: Arc<dyn Acceptor>) -> GssServer {
    GssServer::new(acceptor, GssLimits::default(), rand::random())
}

/// Returns whether any export allows Kerberos.
pub(super) fn is_wanted(options: &[ExportOption]) -> bool {
    options.iter().any(ExportOption::allows_kerberos)
}

impl Kerberos {
    /// Opens the keytab and the map, if an export allows Kerberos.
    ///
    /// # Errors
    /// The library, the key or the map is missing or wrong. The options have no effect.
    pub(super) fn open(&self, options: &[ExportOption]) -> Result<Callers, Failure> {
        if !is_wanted(options) {
            let given = [(KEYTAB_OPTION, self.keytab.is_some()), (PRINCIPALS, self.principals.is_some())];
            return match given.iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(Failure::usage(format!(
                    "{option} is about Kerberos, which no export allows: give an --export the option sec=krb5, \
                     sec=krb5i or sec=krb5p"
                ))),
                None => Ok(Callers::default()),
            };
        }
        let principals = match &self.principals {
            Some(path) => Principals::read(path).map_err(|error| {
                Failure::failed(format!("cannot use the map of principals {}: {error}", path.display()))
            })?,
            None => Principals::default(),
        };
        let acceptor = self
            .acceptor()
            .map_err(|error| Failure::failed(format!("cannot serve exports with Kerberos: {error}")))?;
        Ok(Callers { contexts: Some(Arc::new(contexts(Arc::new(acceptor)))), principals })
    }

    fn acceptor(&self) -> Result<KerberosAcceptor, OpenError> {
        KerberosAcceptor::open(self.keytab())
    }

    /// Returns the path of the keytab. The types that the library writes in front are allowed there.
    fn keytab(&self) -> Option<&Path> {
        self.keytab.as_deref().map(keytab_file)
    }

    /// Opens the keytab once more, with the rights that the process has kept: the library does so for each caller.
    ///
    /// # Errors
    /// These rights do not suffice.
    pub(super) fn check(&self, options: &[ExportOption]) -> Result<(), Failure> {
        if !is_wanted(options) {
            return Ok(());
        }
        let remedy = match self.keytab {
            Some(_) => "put the files into the folder of --keytab, or into /etc",
            None => "put the keytab into /etc, or name it by --keytab",
        };
        self.acceptor().map(drop).map_err(|error| {
            Failure::failed(format!(
                "cannot serve exports with Kerberos with the rights that a server keeps: {error} ({remedy})"
            ))
        })
    }

    /// Returns the files that the server trusts, each with the option or variable that names it.
    pub(super) fn files(
        &self,
        options: &[ExportOption],
    ) -> impl Iterator<Item = (&'static str, PathBuf)> + use<> {
        let mut files = Vec::new();
        if is_wanted(options) {
            let configuration = Configuration::of_process();
            match self.keytab() {
                Some(path) => files.push((KEYTAB_OPTION, path.to_owned())),
                None => files.extend(configuration.keytab().map(|path| (configuration::KEYTAB, path))),
            }
            files.extend(self.principals.clone().map(|path| (PRINCIPALS, path)));
            let included = configuration.files.into_iter().chain(configuration.folders);
            files.extend(included.map(|path| (configuration::CONFIGURATION, path)));
        }
        files.into_iter()
    }

    /// Returns the folders of files that the library reads again for each caller, other than those of the system. A file
    /// may be replaced by another one of its name. Symbolic links count with the folder that they lead to now.
    pub(super) fn folders(&self, options: &[ExportOption]) -> Vec<PathBuf> {
        if !is_wanted(options) {
            return Vec::new();
        }
        let listed = listed(options);
        let files = self.files(options).filter(|(name, _)| *name != PRINCIPALS).map(|(_, file)| file);
        let files = files.filter(|file| !listed.contains(file));
        files.flat_map(|file| folders_of(&file)).collect()
    }
}

/// Returns the folders of which the library reads all files, if an export allows Kerberos.
pub(super) fn listed(options: &[ExportOption]) -> Vec<PathBuf> {
    if is_wanted(options) { Configuration::of_process().folders } else { Vec::new() }
}

/// Returns the folder that has the file, and that of the file behind a symbolic link.
pub(super) fn folders_of(file: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let places = [std::path::absolute(file).ok(), file.canonicalize().ok()];
    places.into_iter().flatten().filter_map(|place| Some(place.parent()?.to_owned()))
}

/// Returns the TCP ports that a server of these exports takes if none is given, the preferred one first.
pub(super) fn usual_ports(options: &[ExportOption]) -> &'static [u16] {
    if is_wanted(options) { USUAL_PORTS } else { &[super::listen::TCP_PORT] }
}

/// Returns what Linux clients miss of a server whose exports allow Kerberos, with these addresses.
pub(super) fn missing(
    options: &[ExportOption],
    rdma: &[SocketAddr],
    tcp: Option<SocketAddr>,
) -> Option<String> {
    if !is_wanted(options) {
        return None;
    }
    let lacks = |address: &&SocketAddr| {
        tcp.is_none_or(|tcp| tcp.port() != GSSD_PORT || !covers(tcp.ip(), address.ip()))
    };
    let lacking: Vec<IpAddr> = rdma.iter().filter(lacks).map(SocketAddr::ip).collect();
    let first = *lacking.first()?;
    // One listener for all.
    let all = if rdma.iter().any(SocketAddr::is_ipv6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let wanted = if rdma.iter().all(|address| address.ip() == first) { first } else { all };
    let wanted = SocketAddr::new(wanted, GSSD_PORT);
    let no_tcp = if tcp.is_none() { "leave out --no-tcp, and " } else { "" };
    Some(format!(
        "Linux clients cannot mount by sec=krb5, krb5i or krb5p over RDMA at {first}: they create security contexts on TCP port \
         {GSSD_PORT} of the address, whatever the port of the mount (RFC 8166 §8.2.2.1); {no_tcp}give --tcp {wanted}"
    ))
}

/// Returns whether a listener at one address gets the connections to another.
fn covers(listener: IpAddr, address: IpAddr) -> bool {
    match (listener.to_canonical(), address.to_canonical()) {
        (listener, address) if listener == address => true,
        (IpAddr::V4(listener), IpAddr::V4(_)) => listener.is_unspecified(),
        // Listeners at [::] get the connections to all addresses.
        (IpAddr::V6(listener), _) => listener.is_unspecified(),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    }
}

/// Returns a warning about Linux clients with Kerberos at a server that may demand TLS of TCP clients.
pub(super) fn kept_out(options: &[ExportOption], tls_is_demanded: bool) -> Option<&'static str> {
    (tls_is_demanded && is_wanted(options)).then_some(
        "Linux clients cannot use sec=krb5, krb5i or krb5p here: their gssd creates security contexts over TCP without TLS, \
         which --xprtsec refuses; leave it out, and TLS remains an offer",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr, TcpListener};
    use std::time::Instant;

    use bytes::Bytes;
    use rpcrdma_oncrpc::gss::testing::TestMechanism;
    use rpcrdma_oncrpc::gss::{GssCredential, GssProcedure, InitArguments, Received, Service};
    use rpcrdma_oncrpc::{CallHeader, OpaqueAuth};
    use rpcrdma_xdr::{Decoder, encode};

    use super::super::listen::listen_by_default;
    use super::super::passed::Passed;
    use super::*;

    fn exports(option: &str) -> Vec<ExportOption> {
        vec![option.parse().unwrap()]
    }

    fn with(keytab: Option<&str>, principals: Option<&str>) -> Kerberos {
        Kerberos { keytab: keytab.map(PathBuf::from), principals: principals.map(PathBuf::from) }
    }

    #[test]
    fn without_kerberos_nothing_is_opened_and_its_options_are_refused() {
        let plain = exports("/=/srv");
        assert!(with(None, None).open(&plain).unwrap().contexts.is_none());
        for (kerberos, option) in
            [(with(Some("/none"), None), "--keytab"), (with(None, Some("/none")), "--principals")]
        {
            let told = kerberos.open(&plain).unwrap_err().to_string();
            assert!(told.starts_with(option) && told.contains("sec=krb5"), "{told}");
        }
        assert!(with(Some("/none/file"), None).folders(&plain).is_empty());
    }

    #[test]
    fn a_bad_map_is_named_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# map\nalice alice\n").unwrap();
        let path = file.path().display().to_string();
        let told = with(None, Some(&path)).open(&exports("/=/srv,sec=krb5")).unwrap_err().to_string();
        assert!(told.contains(&path) && told.contains("line 2"), "{told}");
    }

    /// Whether the library is installed or not.
    #[test]
    fn a_server_without_a_key_says_how_to_get_one() {
        let told = with(Some("/nonexistent/keytab"), None).open(&exports("/=/srv,sec=sys:krb5p"));
        let told = told.map(drop).unwrap_err().to_string();
        assert!(told.contains("/nonexistent/keytab") || told.contains("libgssapi"), "{told}");
        assert!(told.contains("ktadd") || told.contains("libgssapi"), "{told}");
    }

    #[test]
    fn folders_of_files_that_are_read_again() {
        let folders = with(Some("/srv/keys/server.keytab"), None).folders(&exports("/=/srv,sec=krb5i"));
        assert!(folders.contains(&PathBuf::from("/srv/keys")), "{folders:?}");
    }

    #[test]
    fn linux_clients_create_contexts_without_tls() {
        let kerberos = exports("/=/srv,sec=sys:krb5");
        assert!(kept_out(&kerberos, true).is_some_and(|told| told.contains("--xprtsec")));
        assert_eq!(kept_out(&kerberos, false), None);
        assert_eq!(kept_out(&exports("/=/srv"), true), None);
    }

    // requirement: rfc8166-8.2.2.1-1, v2-07-11.2.2.1-1
    #[test]
    fn folders_behind_links_and_types_of_keytabs() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (links, keys) = (place.join("links"), place.join("keys"));
        for folder in [&links, &keys] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(keys.join("server.keytab"), "").unwrap();
        let link = links.join("keytab");
        std::os::unix::fs::symlink("../keys/server.keytab", &link).unwrap();
        for kind in ["", "FILE:", "WRFILE:"] {
            let keytab = format!("{kind}{}", link.display());
            let folders = with(Some(&keytab), None).folders(&exports("/=/srv,sec=krb5"));
            assert!(folders.contains(&links) && folders.contains(&keys), "{keytab}: {folders:?}");
        }
    }

    /// RFC 8166 §8.2.2.1: the contexts of RDMA mounts are made on TCP port 2049 of the address.
    // requirement: rfc8166-8.2.2.1-1
    #[test]
    fn rfc8166_8_2_2_1_linux_clients_need_port_2049_of_tcp_at_the_address() {
        let kerberos = exports("/=/srv,sec=sys:krb5");
        let at = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses.iter().map(|address| address.parse().unwrap()).collect()
        };
        let public: &[&str] = &["192.0.2.1:20049"];
        let both: &[&str] = &["192.0.2.1:20049", "[2001:db8::1]:20049"];
        for (rdma, tcp, hint) in [
            (public, None, "--no-tcp, and give --tcp 192.0.2.1:2049"),
            (public, Some("192.0.2.1:20048"), "--tcp 192.0.2.1:2049"),
            (public, Some("127.0.0.1:2049"), "at 192.0.2.1: "),
            (both, Some("192.0.2.1:2049"), "at 2001:db8::1: "),
            (both, Some("0.0.0.0:2049"), "--tcp [::]:2049"),
            (&["0.0.0.0:20049"], Some("192.0.2.1:2049"), "--tcp 0.0.0.0:2049"),
        ] {
            let told = missing(&kerberos, &at(rdma), tcp.map(|tcp| tcp.parse().unwrap()));
            assert!(told.as_ref().is_some_and(|told| told.contains(hint)), "{hint}: {told:?}");
        }
        for (rdma, tcp) in [
            (public, "192.0.2.1:2049"),
            (public, "0.0.0.0:2049"),
            (public, "[::]:2049"),
            (both, "[::]:2049"),
            (&["[::ffff:192.0.2.1]:20049"], "192.0.2.1:2049"),
        ] {
            assert_eq!(missing(&kerberos, &at(rdma), Some(tcp.parse().unwrap())), None, "{tcp}");
        }
        assert_eq!(missing(&exports("/=/srv"), &at(public), None), None);
    }

    #[tokio::test]
    async fn the_first_usual_port_that_is_free_is_taken() {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let [first, second] = [(); 2].map(|()| TcpListener::bind((ip, 0)).unwrap());
        let ports = [&first, &second].map(|listener| listener.local_addr().unwrap().port());
        let (_, other) = listen_by_default(ip, &ports, &mut Passed::default()).await;
        let other = other.unwrap().local_addr().unwrap();
        assert!(other.ip() == ip && !ports.contains(&other.port()), "both are in use: {other}");
        drop(second);
        let (address, bound) = listen_by_default(ip, &ports, &mut Passed::default()).await;
        assert_eq!((address.port(), bound.unwrap().local_addr().unwrap()), (ports[1], address));
    }

    /// Returns the name of the first context of a server.
    fn first_handle(server: &Arc<GssServer>) -> Bytes {
        let credential = GssCredential {
            procedure: GssProcedure::Init,
            sequence: 0,
            service: Service::None,
            handle: Bytes::new(),
        };
        let header = CallHeader {
            xid: 1,
            program: 100_003,
            version: 3,
            procedure: 0,
            credential: credential.to_auth().unwrap(),
            verifier: OpaqueAuth::none(),
        };
        let Received::Create(creation) = server.receive(None, &header, Instant::now()).unwrap() else {
            panic!("no creation")
        };
        let token = Bytes::from_static(b"\x01\x01alice");
        let arguments = encode(&InitArguments { token }).unwrap().flatten().0;
        creation.run(Decoder::new(arguments)).unwrap().results.handle
    }

    /// A context of an earlier start is not taken for one of this start, nor can its handle be guessed.
    #[test]
    fn each_start_names_contexts_in_its_own_way() {
        let acceptor = || Arc::new(TestMechanism::new("nfs@server"));
        let starts = (0..50).map(|_| first_handle(&Arc::new(contexts(acceptor()))));
        let keys = (0..50).map(|key| GssServer::new(acceptor(), GssLimits::default(), key));
        let names: BTreeSet<_> = starts.chain(keys.map(|server| first_handle(&Arc::new(server)))).collect();
        assert_eq!(names.len(), 100);
    }
}
