//! Both sides against each other, with a realm and a KDC of their own on the loopback interface.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod place;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{
    Acceptor, Creating, GssClient, GssLimits, GssServer, InitArguments, OpenError, Progress, Received,
    Service,
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

#[test]
fn calls_of_each_service_arrive_from_a_user_with_a_ticket() {
    let Some(place) = in_realm("calls_of_each_service_arrive_from_a_user_with_a_ticket", true, None) else {
        return;
    };
    let server = server(KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap());
    let (client, principal) = created(&server, &KerberosInitiator::open(None, None).unwrap());
    assert_eq!(principal, format!("alice@{REALM}"));
    assert!(!client.is_spent(Instant::now()), "a ticket lasts for hours");
    assert!(client.is_spent(Instant::now() + Duration::from_secs(30 * 24 * 3600)));
    calls_arrive(&server, &client);
}

#[test]
fn calls_arrive_with_checksums_of_the_library() {
    let Some(place) = in_realm("calls_arrive_with_checksums_of_the_library", true, None) else { return };
    let open = || KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    for (acceptor, by_library) in [(open(), true), (open().with_library_checksums(), false)] {
        let mut initiator = KerberosInitiator::open(None, None).unwrap();
        if by_library {
            initiator = initiator.with_library_checksums();
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

#[test]
fn a_user_without_a_ticket_is_told_to_get_one() {
    let Some(_) = in_realm("a_user_without_a_ticket_is_told_to_get_one", false, None) else { return };
    let error = KerberosInitiator::open(None, None).unwrap_err().to_string();
    assert!(error.contains("kinit"), "{error}");
}

#[test]
fn a_keytab_without_the_key_is_named() {
    let Some(place) = in_realm("a_keytab_without_the_key_is_named", true, None) else { return };
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
