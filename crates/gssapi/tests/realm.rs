//! Both sides against each other, with a realm and a KDC of their own on the loopback interface.
//!
//! The realm needs the programs of Debian's packages `krb5-kdc`, `krb5-admin-server` and `krb5-user`. The library reads its
//! configuration from the environment. So the test itself runs in a process of its own, with that environment.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{
    Acceptor, Creating, GssClient, GssLimits, GssServer, InitArguments, Initiator, OpenError, Progress,
    Received, Service,
};
use rpcrdma_oncrpc::{AcceptStat, CallHeader, OpaqueAuth, ReplyHeader};
use rpcrdma_xdr::{Decoder, encode};

/// Set for the process that runs a test in its realm.
const INNER: &str = "RPCRDMA_TEST_REALM";
const REALM: &str = "TEST.RPCRDMA";
const SERVER: &str = "nfs@server.test";
const PATIENCE: Duration = Duration::from_secs(60);

/// A realm with a KDC, which ends with this value.
struct Realm {
    place: tempfile::TempDir,
    kdc: Child,
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

/// Returns a program of the packages; they are in directories that users do not always search.
fn program(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin"].iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

impl Realm {
    /// Makes a realm with a server and a user `alice`. `None` without the programs.
    fn start() -> Option<Self> {
        for name in ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"] {
            program(name)?;
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
             dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  \
             kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n server.test = {REALM}\n"
        );
        std::fs::write(path("krb5.conf"), config).unwrap();
        let profile = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n {REALM} = {{\n  \
             database_name = {}\n  key_stash_file = {}\n }}\n",
            path("principal"),
            path("stash"),
        );
        std::fs::write(path("kdc.conf"), profile).unwrap();
        let run = |name: &str, words: &[&str]| {
            let mut command = Self::command_at(place.path(), name);
            let output = command.args(words).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        };
        run("kdb5_util", &["create", "-s", "-P", "master", "-r", REALM]);
        let keytab = path("server.keytab");
        for query in [
            "addprinc -randkey nfs/server.test".to_owned(),
            format!("ktadd -k {keytab} nfs/server.test"),
            "addprinc -randkey host/server.test".to_owned(),
            format!("ktadd -k {} host/server.test", path("other.keytab")),
            "addprinc -pw secret alice".to_owned(),
        ] {
            run("kadmin.local", &["-r", REALM, "-q", &query]);
        }
        let mut kdc = Self::command_at(place.path(), "krb5kdc");
        kdc.arg("-n").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let realm = Self { kdc: kdc.spawn().unwrap(), place };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "the KDC does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(realm)
    }

    fn command_at(place: &Path, name: &str) -> Command {
        let mut command = Command::new(program(name).unwrap());
        Self::surround(&mut command, place);
        command
    }

    /// Sets the environment of the realm.
    fn surround(command: &mut Command, place: &Path) {
        command
            .env("KRB5_CONFIG", place.join("krb5.conf"))
            .env("KRB5_KDC_PROFILE", place.join("kdc.conf"))
            .env("KRB5CCNAME", format!("FILE:{}", place.join("tickets").display()))
            .env_remove("KRB5_KTNAME");
    }

    /// Gets tickets for the user.
    fn kinit(&self) {
        let mut kinit = Self::command_at(self.place.path(), "kinit");
        let mut child = kinit.arg("alice").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret\n").unwrap();
        assert!(child.wait().unwrap().success());
    }
}

/// Runs a test in a process of its own, in a realm. Returns the place of the realm in that process.
fn in_realm(test: &str, tickets: bool) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(INNER) {
        return Some(place.into());
    }
    let Some(realm) = Realm::start() else {
        println!("skipped: krb5-kdc, krb5-admin-server and krb5-user are not installed");
        return None;
    };
    if tickets {
        realm.kinit();
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args([test, "--exact", "--nocapture"]).env(INNER, realm.place.path());
    Realm::surround(&mut inner, realm.place.path());
    let output = inner.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

fn header(procedure: u32) -> CallHeader {
    CallHeader {
        xid: 7,
        program: 100_003,
        version: 3,
        procedure,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    }
}

fn server(acceptor: KerberosAcceptor) -> Arc<GssServer> {
    Arc::new(GssServer::new(Arc::new(acceptor) as Arc<dyn Acceptor>, GssLimits::default(), 1))
}

/// Creates a context of the user with the server. Returns who the user is for the server, too.
fn created(server: &Arc<GssServer>, initiator: &KerberosInitiator) -> (GssClient, String) {
    let now = Instant::now();
    let (mut creating, mut call) = Creating::begin(initiator, SERVER).unwrap();
    loop {
        let header = CallHeader { credential: call.credential, ..header(0) };
        let Ok(Received::Create(creation)) = server.receive(None, &header, now) else {
            panic!("no creation")
        };
        let arguments = encode(&InitArguments { token: call.token }).unwrap().flatten().0;
        let reply = creation.run(Decoder::new(arguments)).unwrap();
        assert_eq!(reply.failure, None);
        let principal = reply.created.clone().map(|principal| principal.name);
        match creating.reply(&reply.verifier, reply.results, now).unwrap() {
            Progress::Call(next, next_call) => (creating, call) = (next, next_call),
            Progress::Created(client) => return (client, principal.unwrap()),
        }
    }
}

// requirement: rfc2203-5.2.1-1, rfc2203-5.2.1-2, experience-7.2.2.1-2
#[test]
fn calls_of_each_service_arrive_from_a_user_with_a_ticket() {
    let Some(place) = in_realm("calls_of_each_service_arrive_from_a_user_with_a_ticket", true) else {
        return;
    };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let (client, principal) = created(&server, &KerberosInitiator::open(None, None).unwrap());
    assert_eq!(principal, format!("alice@{REALM}"));
    assert!(!client.is_spent(Instant::now()), "a ticket lasts for hours");
    assert!(client.is_spent(Instant::now() + Duration::from_secs(30 * 24 * 3600)));
    let data: Vec<u8> = (0..1 << 20).map(|number: u32| number.to_le_bytes()[1]).collect();
    for service in [Service::None, Service::Integrity, Service::Privacy] {
        let open = |call: &CallHeader, arguments: Bytes| {
            let Ok(Received::Request(incoming)) = server.receive(None, call, Instant::now()) else {
                panic!()
            };
            incoming.open(Decoder::new(arguments))
        };
        let arguments = || {
            let mut encoder = rpcrdma_xdr::Encoder::new();
            encoder.opaque(&data, data.len()).unwrap();
            encoder.finish()
        };
        let mut call = header(7);
        let sealed = client.seal(service, &mut call, arguments()).unwrap();
        let opened = open(&call, sealed.arguments.flatten().0).unwrap();
        let mut got = opened.arguments;
        assert!(got.opaque(data.len()).unwrap() == data, "{service:?}");
        let results = opened.sealer.seal(encode(&21_u32).unwrap()).unwrap().flatten().0;
        let reply =
            ReplyHeader::accepted(7, AcceptStat::Success).with_verifier(opened.sealer.verifier().clone());
        let results = client.open(service, &[sealed.sequence], &reply, Decoder::new(results)).unwrap();
        assert_eq!(results.decode_all::<u32>(), Ok(21));
        // A bit that changed on the way.
        if service != Service::None {
            let mut call = header(7);
            let sealed = client.seal(service, &mut call, arguments()).unwrap();
            let mut bytes = sealed.arguments.flatten().0.to_vec();
            bytes[500_000] ^= 1;
            let refused = open(&call, bytes.into());
            assert!(matches!(refused, Err(OpenError::Garbage { .. })), "{service:?}");
        }
        let mut call = header(7);
        let sealed = client.seal(service, &mut call, arguments()).unwrap();
        call.xid ^= 1;
        assert!(matches!(open(&call, sealed.arguments.flatten().0), Err(OpenError::Auth(..))), "{service:?}");
    }
}

/// RFC 2203 §5.2.2: the window of RPCSEC_GSS tells repeats and orders, and the mechanism does not.
// requirement: rfc2203-5.2.2-9, rfc2203-5.3.2.3-2
#[test]
fn the_mechanism_takes_messages_in_any_order_and_repeated() {
    let Some(place) = in_realm("the_mechanism_takes_messages_in_any_order_and_repeated", true) else {
        return;
    };
    let acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    let mut initiating = KerberosInitiator::open(None, None).unwrap().begin(SERVER).unwrap();
    let token = initiating.step(None).unwrap().token;
    let accepted = acceptor.begin().step(&token).unwrap();
    let theirs = accepted.created.unwrap().context;
    let ours = initiating.step(Some(&accepted.token)).unwrap().created.unwrap().context;
    let messages = [b"message 0", b"message 1", b"message 2"];
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        let mics = messages.map(|message| from.mic(&[message]).unwrap());
        let wrapped = messages.map(|message| from.wrap(&[message]).unwrap());
        for at in [2, 0, 1, 1, 2, 0] {
            assert_eq!(to.verify(&[messages[at]], &mics[at]), Ok(()));
            assert_eq!(to.unwrap(&wrapped[at]).unwrap(), messages[at][..]);
        }
        let shown = wrapped.iter().any(|wrapped| wrapped.windows(7).any(|part| part == b"message"));
        assert!(!shown, "encrypted");
    }
}

#[test]
fn a_user_without_a_ticket_is_told_to_get_one() {
    let Some(_) = in_realm("a_user_without_a_ticket_is_told_to_get_one", false) else { return };
    let error = KerberosInitiator::open(None, None).unwrap_err().to_string();
    assert!(error.contains("kinit"), "{error}");
}

#[test]
fn a_keytab_without_the_key_is_named() {
    let Some(place) = in_realm("a_keytab_without_the_key_is_named", true) else { return };
    for name in ["other.keytab", "missing.keytab"] {
        let path = place.join(name);
        let error = KerberosAcceptor::open(Some(&path)).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("nfs/"), "{error}");
    }
    // A token that is none.
    let acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    let error = acceptor.begin().step(b"nonsense").unwrap_err();
    assert!(!error.text.is_empty() && error.major != 0, "{error:?}");
}
