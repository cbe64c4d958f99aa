//! Both sides against each other, with a realm and a KDC of their own on the loopback interface.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod place;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{
    Acceptor, Creating, GssClient, GssLimits, GssServer, InitArguments, Initiator, OpenError, Principal,
    Progress, Received, Service,
};
use rpcrdma_oncrpc::{AcceptStat, CallHeader, OpaqueAuth, ReplyHeader};
use rpcrdma_realm::REALM;
use rpcrdma_xdr::{Decoder, encode};

use place::{SERVER, in_realm};

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
            Progress::Created(client) => return (client, Principal::clone(&principal.unwrap())),
        }
    }
}

// requirement: rfc2203-5.2.1-1, rfc2203-5.2.1-2, experience-7.2.2.1-2
#[test]
fn calls_of_each_service_arrive_from_a_user_with_a_ticket() {
    let Some(place) = in_realm("calls_of_each_service_arrive_from_a_user_with_a_ticket", true, None) else {
        return;
    };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let (client, principal) = created(&server, &KerberosInitiator::open(None, None).unwrap());
    assert_eq!(principal.name, format!("alice@{REALM}"));
    assert_eq!(principal.local.as_deref(), Some("alice"));
    assert!(!client.is_spent(Instant::now()), "a ticket lasts for hours");
    assert!(client.is_spent(Instant::now() + Duration::from_secs(30 * 24 * 3600)));
    calls_arrive(&server, &client);
}

#[test]
fn calls_arrive_with_checksums_of_the_library() {
    let Some(place) = in_realm("calls_arrive_with_checksums_of_the_library", true, None) else { return };
    let open = || KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    for (acceptor, by_library) in [(open(), true), (open().with_library_protection(), false)] {
        let mut initiator = KerberosInitiator::open(None, None).unwrap();
        if by_library {
            initiator = initiator.with_library_protection();
        }
        let server = server(acceptor);
        let (client, _) = created(&server, &initiator);
        calls_arrive(&server, &client);
    }
}

/// Makes calls of each service, some of which change on the way.
fn calls_arrive(server: &Arc<GssServer>, client: &GssClient) {
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
    let Some(place) = in_realm("a_machine_has_no_local_user", false, None) else { return };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let machine = KerberosInitiator::open(None, Some(&place.join("other.keytab"))).unwrap();
    let (_, principal) = created(&server, &machine);
    assert_eq!((principal.name, principal.local), (format!("host/server.test@{REALM}"), None));
}

#[test]
fn a_principal_has_the_local_user_of_auth_to_local() {
    let Some(place) = in_realm("a_principal_has_the_local_user_of_auth_to_local", true, None) else { return };
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

/// RFC 2203 §5.2.2: the window of RPCSEC_GSS tells repeats and orders, and the mechanism does not.
// requirement: rfc2203-5.2.2-9, rfc2203-5.3.2.3-2
#[test]
fn the_mechanism_takes_messages_in_any_order_and_repeated() {
    let Some(place) = in_realm("the_mechanism_takes_messages_in_any_order_and_repeated", true, None) else {
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
    let Some(_) = in_realm("a_user_without_a_ticket_is_told_to_get_one", false, None) else { return };
    let error = KerberosInitiator::open(None, None).unwrap_err().to_string();
    assert!(error.contains("kinit"), "{error}");
}

/// The keytab names the caller, not whoever has a ticket in the user's cache.
#[test]
fn a_keytab_goes_before_a_ticket_of_another_user() {
    let Some(place) = in_realm("a_keytab_goes_before_a_ticket_of_another_user", true, None) else { return };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let user = KerberosInitiator::open(None, None).unwrap();
    let keytabs = ["other.keytab", "server.keytab"]
        .map(|keytab| KerberosInitiator::open(None, Some(&place.join(keytab))).unwrap());
    for (initiator, name) in
        keytabs.iter().zip(["host/server.test", "nfs/server.test"]).chain([(&user, "alice")])
    {
        assert_eq!(created(&server, initiator).1.name, format!("{name}@{REALM}"));
    }
}

/// A ticket got with a keytab is none for later commands without one, nor for anybody else in the process.
#[test]
fn tickets_of_a_keytab_end_with_its_credentials() {
    let Some(place) = in_realm("tickets_of_a_keytab_end_with_its_credentials", false, None) else { return };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let machine = KerberosInitiator::open(None, Some(&place.join("other.keytab"))).unwrap();
    created(&server, &machine);
    let begun = machine.begin(SERVER).unwrap();
    let shown = format!("{machine:?}");
    let cache = shown.split('"').nth(1).unwrap();
    assert!(cache.starts_with("MEMORY:"), "{shown}");
    drop(machine);
    KerberosInitiator::open(Some(cache), None).expect("a context is still being created");
    drop(begun);
    KerberosInitiator::open(Some(cache), None).expect_err("the cache is still there");
    assert!(!place.join("tickets").exists(), "the user's cache has the machine's ticket");
    KerberosInitiator::open(None, None).unwrap_err();
}

/// A name of a keytab has a type in front, up to a colon. But both options are about files.
#[test]
fn a_keytab_has_any_name_of_a_file() {
    let Some(place) = in_realm("a_keytab_has_any_name_of_a_file", false, None) else { return };
    // This process runs one test only.
    std::env::set_current_dir(&place).unwrap();
    for name in [&b"MEMORY:keys"[..], b"ab:keys", b"keys-\xff"] {
        let path = Path::new(OsStr::from_bytes(name));
        std::fs::copy("server.keytab", path).unwrap();
        let server = server(KerberosAcceptor::open(Some(path)).unwrap());
        let (_, principal) = created(&server, &KerberosInitiator::open(None, Some(path)).unwrap());
        assert_eq!(principal.name, format!("nfs/server.test@{REALM}"));
        std::fs::remove_file(path).unwrap();
        KerberosAcceptor::open(Some(path)).unwrap_err();
    }
}

#[test]
fn a_keytab_without_the_key_is_named() {
    let Some(place) = in_realm("a_keytab_without_the_key_is_named", true, None) else { return };
    for name in ["other.keytab", "missing.keytab"] {
        let path = place.join(name);
        let error = KerberosAcceptor::open(Some(&path)).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("nfs/"), "{error}");
    }
    // The library reads names up to a zero byte.
    let path = place.join("server.keytab\0/of/another");
    let error = KerberosAcceptor::open(Some(&path)).unwrap_err().to_string();
    assert!(error.contains("zero byte"), "{error}");
    // A token that is none.
    let acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    let error = acceptor.begin().step(b"nonsense").unwrap_err();
    assert!(!error.text.is_empty() && error.major != 0, "{error:?}");
}
