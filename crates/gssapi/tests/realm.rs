//! Both sides against each other, with a realm and a KDC of their own on the loopback interface.
//!
//! The library reads its configuration from the environment. So the test itself runs in a process of its own, with the
//! environment of the realm.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{
    Acceptor, Creating, GssClient, GssLimits, GssServer, InitArguments, OpenError, Principal, Progress,
    Received, Service,
};
use rpcrdma_oncrpc::{AcceptStat, CallHeader, OpaqueAuth, ReplyHeader};
use rpcrdma_realm::{REALM, Realm};
use rpcrdma_xdr::{Decoder, encode};

/// Set for the process that runs a test in its realm.
const INNER: &str = "RPCRDMA_TEST_REALM";
const SERVER: &str = "nfs@server.test";

/// Runs a test in a process of its own, in a realm. Returns the place of the realm in that process.
fn in_realm(test: &str, tickets: bool) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(INNER) {
        return Some(place.into());
    }
    if let Err(error) = rpcrdma_realm::installed() {
        println!("skipped: {error}");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let realm = Realm::start(place.path(), Ipv4Addr::LOCALHOST).unwrap();
    realm.add_service("nfs/server.test", &path("server.keytab")).unwrap();
    realm.add_service("host/server.test", &path("other.keytab")).unwrap();
    realm.add_user("alice", "secret").unwrap();
    if tickets {
        realm.kinit("alice", "secret", &path("tickets")).unwrap();
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args([test, "--exact", "--nocapture"]).env(INNER, place.path());
    Realm::surround(&mut inner, place.path());
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
fn created(server: &Arc<GssServer>, initiator: &KerberosInitiator) -> (GssClient, Principal) {
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
        let principal = reply.created.clone();
        match creating.reply(&reply.verifier, reply.results, now).unwrap() {
            Progress::Call(next, next_call) => (creating, call) = (next, next_call),
            Progress::Created(client) => return (client, principal.unwrap()),
        }
    }
}

#[test]
fn calls_of_each_service_arrive_from_a_user_with_a_ticket() {
    let Some(place) = in_realm("calls_of_each_service_arrive_from_a_user_with_a_ticket", true) else {
        return;
    };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let (client, principal) = created(&server, &KerberosInitiator::open(None, None).unwrap());
    assert_eq!(principal.name, format!("alice@{REALM}"));
    assert_eq!(principal.local.as_deref(), Some("alice"));
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

/// A principal of two parts has no user by default.
#[test]
fn a_machine_has_no_local_user() {
    let Some(place) = in_realm("a_machine_has_no_local_user", false) else { return };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let machine = KerberosInitiator::open(None, Some(&place.join("other.keytab"))).unwrap();
    let (_, principal) = created(&server, &machine);
    assert_eq!((principal.name, principal.local), (format!("host/server.test@{REALM}"), None));
}

#[test]
fn a_principal_has_the_local_user_of_auth_to_local() {
    let Some(place) = in_realm("a_principal_has_the_local_user_of_auth_to_local", true) else { return };
    let path = place.join("krb5.conf");
    let rule = format!("{REALM} = {{\n  auth_to_local = RULE:[1:people-$1]\n");
    let config = std::fs::read_to_string(&path).unwrap();
    let ruled = config.replacen(&format!("{REALM} = {{\n"), &rule, 1);
    assert_ne!(ruled, config);
    std::fs::write(&path, ruled).unwrap();
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let (_, principal) = created(&server, &KerberosInitiator::open(None, None).unwrap());
    assert_eq!(principal.local.as_deref(), Some("people-alice"));
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
