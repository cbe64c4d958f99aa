//! Both sides of RPCSEC_GSS against each other, with a mechanism of our own: each rule of RFC 2203 §5, and each fault.

mod answers;
mod bounds;
mod document;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_xdr::{Decoder, Stream, encode};

use super::testing::{EXPLAINED, TestMechanism};
use super::*;
use crate::auth::{OpaqueAuth, flavor};
use crate::message::{AcceptStat, AuthStat, CallHeader, RejectReason, ReplyHeader};
use crate::origin::Origin;

const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];
const USER: &str = "user@TEST";
const SERVER: &str = "nfs@server";

fn origin(last: u8) -> Option<Origin> {
    Some(Origin::of([192, 0, 2, last].into()))
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

/// A server, and the time that it is told.
struct Bed {
    server: Arc<GssServer>,
    mechanism: TestMechanism,
    now: Instant,
}

impl Bed {
    fn with(limits: GssLimits, mechanism: TestMechanism) -> Self {
        let server = Arc::new(GssServer::new(Arc::new(mechanism.clone()), limits, 0x1234));
        Self { server, mechanism, now: Instant::now() }
    }

    fn new() -> Self {
        Self::with(GssLimits::default(), TestMechanism::new(SERVER))
    }

    /// Returns the mechanism of a user of this server.
    fn user(&self, name: &str) -> TestMechanism {
        TestMechanism { name: name.to_owned(), ..self.mechanism.clone() }
    }

    /// Makes a call that creates a context.
    fn create(&self, from: Option<Origin>, call: &InitCall) -> Result<CreationReply, Refusal> {
        let header = CallHeader { credential: call.credential.clone(), ..header(0) };
        let Received::Create(creation) = self.server.receive(from, &header, self.now)? else {
            panic!("no creation")
        };
        let arguments = encode(&InitArguments { token: call.token.clone() }).unwrap();
        Ok(creation.run(Decoder::new(arguments.flatten().0)).unwrap())
    }

    /// Creates a context for a user. Returns it with the number of calls.
    fn created(&self, from: Option<Origin>, name: &str) -> (GssClient, usize) {
        let (mut creating, mut call) = Creating::begin(&self.user(name), SERVER).unwrap();
        let mut calls = 0;
        loop {
            calls += 1;
            let reply = self.create(from, &call).unwrap();
            match creating.reply(&reply.verifier, reply.results, self.now).unwrap() {
                Progress::Call(next, next_call) => (creating, call) = (next, next_call),
                Progress::Created(client) => return (client, calls),
            }
        }
    }

    fn client(&self) -> GssClient {
        self.created(origin(1), USER).0
    }

    /// Makes a request as it stands in these values.
    fn request(&self, call: &CallHeader, arguments: &Stream) -> Result<Result<Opened, OpenError>, Refusal> {
        let Received::Request(incoming) = self.server.receive(origin(1), call, self.now)? else {
            panic!("no request")
        };
        Ok(incoming.open(Decoder::new(arguments.flatten().0)))
    }

    fn status(&self, call: &CallHeader, arguments: &Stream) -> Option<AuthStat> {
        match self.request(call, arguments) {
            Err(Refusal::Auth(stat)) | Ok(Err(OpenError::Auth(stat, _))) => Some(stat),
            _ => None,
        }
    }

    /// Returns the keys that the server shares with a user.
    fn keys(&self, name: &str) -> Arc<dyn SecurityContext> {
        let mechanism = TestMechanism { rounds: 1, ..self.mechanism.clone() };
        let user = TestMechanism { name: name.to_owned(), ..mechanism.clone() };
        let token = Initiator::begin(&user, SERVER).unwrap().step(None).unwrap().token;
        let step = Acceptor::begin(&mechanism).step(&token).unwrap();
        step.created.unwrap().context
    }

    fn is_discarded(&self, call: &CallHeader, arguments: &Stream) -> bool {
        matches!(self.request(call, arguments), Err(Refusal::Discard) | Ok(Err(OpenError::Discard)))
    }
}

/// Returns a call of procedure 1 with one word of arguments, and the protected form.
fn sealed(client: &GssClient, service: Service, word: u32) -> (CallHeader, Sealed) {
    let mut call = header(1);
    let sealed = client.seal(service, &mut call, encode(&word).unwrap()).unwrap();
    (call, sealed)
}

fn accepted(verifier: &OpaqueAuth) -> ReplyHeader {
    let mut reply = ReplyHeader::accepted(7, AcceptStat::Success);
    if let crate::message::ReplyBody::Accepted { verifier: set, .. } = &mut reply.body {
        *set = verifier.clone();
    }
    reply
}

/// Returns a stream with one bit of one byte changed.
fn changed(stream: &Stream, at: usize) -> Stream {
    let mut bytes = stream.flatten().0.to_vec();
    bytes[at] ^= 1;
    let mut stream = Stream::new();
    stream.push(rpcrdma_xdr::Piece::Inline(bytes.into()));
    stream
}

// requirement: rfc2203-5.2-2, rfc2203-5.2.2-1, rfc2203-5.2.3.1-6, rfc2203-5.2.3.1-8, rfc2203-5.2.3.1-9
// requirement: rfc2203-5.2.3.1.1-1, rfc2203-5.2.3.1.1-2
#[test]
fn a_context_takes_as_many_calls_as_the_mechanism_needs() {
    for rounds in 1..4 {
        let mechanism = TestMechanism { rounds, ..TestMechanism::new(SERVER) };
        let bed = Bed::with(GssLimits::default(), mechanism);
        let (client, calls) = bed.created(origin(1), USER);
        assert_eq!(
            (calls, client.window(), client.server().name.as_str()),
            (usize::from(rounds), WINDOW, SERVER)
        );
        let (call, sealed) = sealed(&client, Service::Integrity, 5);
        let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
        assert_eq!(opened.caller.principal.name, USER);
    }
}

// requirement: rfc5531-14-6, experience-7.2.2.1-2
// requirement: rfc2203-5.2.1-1, rfc2203-5.2.1-2, rfc2203-5.3-1, rfc2203-5.3.1-2, rfc2203-5.3.2.1-1
// requirement: rfc2203-5.3.2.3-2, rfc2203-5.3.3.1-10, rfc2203-5.3.3.2-3, rfc2203-5.3.3.2-4, rfc2203-5.3.3.2-5
// requirement: rfc8166-8.2.2.4-1
#[test]
fn calls_and_replies_of_each_service_arrive_as_they_were() {
    let bed = Bed::new();
    let client = bed.client();
    for service in SERVICES {
        let (call, sealed) = sealed(&client, service, 0xdead_beef);
        let plain = encode(&0xdead_beef_u32).unwrap();
        assert_eq!(sealed.arguments == plain, service == Service::None);
        let seen = sealed.arguments.flatten().0.windows(4).any(|window| *window == plain.flatten().0[..]);
        assert_eq!(seen, service != Service::Privacy, "{service:?}");
        let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
        assert_eq!((opened.caller.service, opened.destroyed), (service, false));
        assert_eq!(opened.caller.principal.mechanism, client.server().mechanism);
        assert_eq!(opened.sealer.covers_results(), service != Service::None);
        assert_eq!(opened.arguments.decode_all::<u32>(), Ok(0xdead_beef));
        let results = opened.sealer.seal(encode(&21_u32).unwrap()).unwrap();
        let reply = accepted(opened.sealer.verifier());
        let open = |numbers: &[u32], results: &Stream| {
            let results = Decoder::new(results.flatten().0);
            client.open(service, numbers, &reply, results).map(|results| results.decode_all::<u32>().unwrap())
        };
        assert_eq!(open(&[sealed.sequence], &results), Ok(21));
        // The reply to the first of several transmissions.
        assert_eq!(open(&[sealed.sequence, sealed.sequence + 9], &results), Ok(21));
        assert!(matches!(open(&[sealed.sequence + 9], &results), Err(ReplyFault::Verifier(_))));
        assert!(matches!(open(&[], &results), Err(ReplyFault::Verifier(_))));
        for at in 0..results.len() {
            let opened = open(&[sealed.sequence], &changed(&results, at));
            assert_eq!(
                matches!(opened, Err(ReplyFault::Results(_))),
                service != Service::None,
                "{service:?} {at}"
            );
        }
    }
}

// requirement: rfc2203-5.3.3.2-1
#[test]
fn a_reply_without_the_right_verifier_is_not_believed() {
    let bed = Bed::new();
    let client = bed.client();
    let open =
        |reply: &ReplyHeader| client.open(Service::None, &[1], reply, Decoder::new(Bytes::new())).err();
    let none = ReplyHeader::accepted(7, AcceptStat::Success);
    assert_eq!(open(&none), Some(ReplyFault::NoVerifier));
    let denied = ReplyHeader::denied(7, RejectReason::AuthError(AuthStat::Failed));
    assert_eq!(open(&denied), Some(ReplyFault::NoVerifier));
    let body = Bytes::from_static(b"12345678");
    let wrong = accepted(&OpaqueAuth { flavor: flavor::RPCSEC_GSS, body });
    assert!(matches!(open(&wrong), Some(ReplyFault::Verifier(_))));
}

/// RFC 2203 §5.3.3.2: a reply that was accepted without results has a verifier, and nothing else is protected.
// requirement: rfc2203-5.3.3.2-1, rfc2203-5.3.3.2-2
#[test]
fn a_status_without_results_has_a_verifier() {
    let bed = Bed::new();
    let client = bed.client();
    let (call, sealed) = sealed(&client, Service::Privacy, 1);
    let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
    let mut reply = accepted(opened.sealer.verifier());
    if let crate::message::ReplyBody::Accepted { status, .. } = &mut reply.body {
        *status = AcceptStat::ProcedureUnavailable;
    }
    let opened = client.open(Service::Privacy, &[sealed.sequence], &reply, Decoder::new(Bytes::new()));
    assert!(opened.unwrap().finish().is_ok());
}

// requirement: rfc2203-5.3.3.1-1, rfc2203-5.3.3.1-6, rfc2203-5.3.3.1-10, rfc2203-5.3.3.4.2-1
// requirement: rfc2203-5.3.3.4.2-2, rfc2203-5.3.3.4.3-1, rfc8166-8.2.2.3-3
#[test]
fn what_is_changed_on_the_way_is_refused() {
    let bed = Bed::new();
    let client = bed.client();
    let number = |call: &mut CallHeader, which: usize| match which {
        0 => call.xid ^= 1,
        1 => call.program ^= 1,
        2 => call.version ^= 1,
        _ => call.procedure ^= 2,
    };
    for which in 0..4 {
        let (mut call, sealed) = sealed(&client, Service::None, 1);
        number(&mut call, which);
        assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCredProblem), "{which}");
        // The right one is still new: nothing was recorded.
        number(&mut call, which);
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
    for service in [Service::Integrity, Service::Privacy] {
        let length = sealed(&client, service, 1).1.arguments.len();
        for at in 0..length {
            let (call, sealed) = sealed(&client, service, 1);
            let opened = bed.request(&call, &changed(&sealed.arguments, at)).unwrap();
            // RFC 2203 §5.3.3.4.2 and 3.
            let Err(OpenError::Garbage { verifier, .. }) = opened else {
                panic!("{service:?} {at}: {opened:?}")
            };
            assert_eq!(verifier.flavor, flavor::RPCSEC_GSS);
        }
    }
    // The service belongs to the header.
    let (mut call, sealed) = sealed(&client, Service::Integrity, 1);
    let mut credential = GssCredential::read(&call.credential.body).unwrap();
    credential.service = Service::None;
    call.credential = credential.to_auth().unwrap();
    assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCredProblem));
}

/// RFC 2203 §5.3.2.2: the number is in the data too, so that nobody exchanges the data of two requests.
// requirement: rfc2203-5.3.2.2-2, rfc2203-5.3.3.1-12
#[test]
fn the_data_of_another_request_is_refused() {
    let bed = Bed::new();
    let client = bed.client();
    for service in [Service::Integrity, Service::Privacy] {
        let (first, _) = sealed(&client, service, 1);
        let (_, second) = sealed(&client, service, 2);
        let opened = bed.request(&first, &second.arguments).unwrap();
        let Err(OpenError::Garbage { fault, .. }) = opened else { panic!("{opened:?}") };
        assert!(fault.to_string().contains("sequence number"), "{fault}");
    }
}

// requirement: rfc2203-5.3.3.1-5, rfc2203-5.3.3.1-7, rfc2203-5.3.3.1-9
#[test]
fn a_request_that_was_seen_gets_no_reply() {
    let bed = Bed::new();
    let client = bed.client();
    let (call, sealed) = sealed(&client, Service::None, 1);
    assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    assert!(bed.is_discarded(&call, &sealed.arguments));
    // A repeat has a number of its own (RFC 2203 §5.3.3.1), and the same XID.
    let mut repeat =
        CallHeader { credential: OpaqueAuth::none(), verifier: OpaqueAuth::none(), ..call.clone() };
    let again = client.seal(Service::None, &mut repeat, sealed.arguments.clone()).unwrap();
    assert!(bed.request(&repeat, &again.arguments).unwrap().is_ok());
    // Below the window.
    let (old, kept) = super::tests::sealed(&client, Service::None, 1);
    for _ in 0..WINDOW {
        let (call, sealed) = super::tests::sealed(&client, Service::None, 1);
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
    assert!(bed.is_discarded(&old, &kept.arguments));
    // Two copies at a time: both pass the first look, and one is served.
    let (call, sealed) = super::tests::sealed(&client, Service::None, 1);
    let mut copies = (0..2).map(|_| match bed.server.receive(origin(1), &call, bed.now) {
        Ok(Received::Request(incoming)) => incoming,
        other => panic!("{other:?}"),
    });
    let (first, second) = (copies.next().unwrap(), copies.next().unwrap());
    let data = || Decoder::new(sealed.arguments.flatten().0);
    assert!(first.open(data()).is_ok());
    assert_eq!(second.open(data()).unwrap_err(), OpenError::Discard);
}

// requirement: rfc2203-5.2-1, rfc2203-5.3.3.1-1, rfc2203-5.3.3.3-1, rfc2203-5.3.3.3-4, rfc2203-5.3.3.3-5
#[test]
fn what_needs_a_new_context_is_told() {
    let bed = Bed::new();
    let client = bed.client();
    let with = |change: fn(&mut GssCredential)| {
        let (mut call, sealed) = sealed(&client, Service::None, 1);
        let mut credential = GssCredential::read(&call.credential.body).unwrap();
        change(&mut credential);
        call.credential = credential.to_auth().unwrap();
        bed.status(&call, &sealed.arguments)
    };
    // No such context, or one of an earlier process.
    for change in [
        (|credential| credential.handle = Bytes::new()) as fn(&mut GssCredential),
        |credential| credential.handle = Bytes::from_static(&[0; 16]),
        |credential| credential.handle = credential.handle.slice(1..),
        |credential| {
            let mut handle = credential.handle.to_vec();
            handle[0] ^= 1;
            credential.handle = handle.into();
        },
    ] {
        assert_eq!(with(change), Some(AuthStat::GssCredProblem));
    }
    assert_eq!(with(|credential| credential.sequence = SEQUENCE_END), Some(AuthStat::GssCtxProblem));
    // A call with the verifier of another flavour.
    let (mut call, sealed) = sealed(&client, Service::None, 1);
    call.verifier = OpaqueAuth::none();
    assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCredProblem));
    // The mechanism finds that the context is too old.
    let (call, sealed) = super::tests::sealed(&client, Service::None, 1);
    bed.mechanism.expired.store(true, Ordering::Relaxed);
    assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCtxProblem));
}

// requirement: rfc2203-5.3.3.3-5
#[test]
fn a_context_ends_with_its_lifetime() {
    let lifetime = Some(Duration::from_secs(10));
    let mut bed = Bed::with(GssLimits::default(), TestMechanism { lifetime, ..TestMechanism::new(SERVER) });
    let client = bed.client();
    assert!(!client.is_spent(bed.now));
    let (call, sealed) = sealed(&client, Service::None, 1);
    bed.now += Duration::from_secs(10);
    assert!(client.is_spent(bed.now));
    assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCtxProblem));
}

// requirement: rfc2203-5-1, rfc2203-5-3, rfc2203-5-4, rfc2203-5.3.3.1-2, rfc2203-5.4-2, rfc2203-5.4-3
// requirement: rfc2203-5.4-4, rfc2203-5.4-5
#[test]
fn a_context_ends_when_its_caller_says_so() {
    let bed = Bed::new();
    let client = bed.client();
    let (before, data) = sealed(&client, Service::None, 1);
    let mut call = header(1);
    let number = client.seal_end(&mut call).unwrap();
    assert_eq!(call.procedure, 0);
    assert!(client.is_spent(bed.now), "the client has ended the context too");
    assert!(client.seal(Service::None, &mut header(1), Stream::new()).is_err());
    let opened = bed.request(&call, &Stream::new()).unwrap().unwrap();
    assert!(opened.destroyed);
    let reply = accepted(opened.sealer.verifier());
    assert!(client.open(Service::None, &[number], &reply, Decoder::new(Bytes::new())).is_ok());
    assert_eq!(bed.status(&before, &data.arguments), Some(AuthStat::GssCredProblem));
    // Nobody else can say so, and the procedure and arguments are none.
    let client = bed.client();
    let (before, data) = super::tests::sealed(&client, Service::None, 1);
    let mut call = header(1);
    client.seal_end(&mut call).unwrap();
    let forged = CallHeader {
        verifier: OpaqueAuth { flavor: 6, body: Bytes::from_static(b"12345678") },
        ..call.clone()
    };
    assert_eq!(bed.status(&forged, &Stream::new()), Some(AuthStat::GssCredProblem));
    let odd = CallHeader { procedure: 1, ..call.clone() };
    assert_eq!(bed.status(&odd, &Stream::new()), Some(AuthStat::BadCred));
    let opened = bed.request(&call, &encode(&1_u32).unwrap()).unwrap();
    assert!(matches!(opened, Err(OpenError::Garbage { .. })), "{opened:?}");
    assert!(bed.is_discarded(&call, &Stream::new()), "its number was seen");
    assert!(bed.request(&before, &data.arguments).unwrap().is_ok(), "the context is still there");
}

// requirement: rfc2203-5-3, rfc2203-5.2.2-2, rfc2203-5.2.2-4, rfc2203-5.2.2-6, rfc2203-5.2.3.1-4
// requirement: rfc2203-5.2.3.1-5, rfc2203-5.2.3.1-7, rfc2203-5.2.3.1-13
#[test]
fn faults_while_a_context_is_created_have_their_answers() {
    let bed = Bed::with(GssLimits::default(), TestMechanism { rounds: 2, ..TestMechanism::new(SERVER) });
    let (_, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let right = CallHeader { credential: call.credential.clone(), ..header(0) };
    let refusal = |call: &CallHeader| bed.server.receive(origin(1), call, bed.now).err();
    assert_eq!(refusal(&right), None);
    let odd = CallHeader { procedure: 1, ..right.clone() };
    assert_eq!(refusal(&odd), Some(Refusal::Auth(AuthStat::BadCred)));
    let odd = CallHeader { verifier: OpaqueAuth { flavor: 6, body: Bytes::new() }, ..right };
    assert_eq!(refusal(&odd), Some(Refusal::Auth(AuthStat::BadVerf)));
    let credential = |procedure, handle| {
        GssCredential { procedure, sequence: 0, service: Service::None, handle }.to_auth().unwrap()
    };
    let named = credential(GssProcedure::Init, Bytes::from_static(b"name"));
    let odd = CallHeader { credential: named, ..header(0) };
    assert_eq!(refusal(&odd), Some(Refusal::Auth(AuthStat::BadCred)));
    // A token that the mechanism refuses, and one for no context. RFC 2203 §5.2.3.1: handle and token are empty.
    for (procedure, major) in
        [(GssProcedure::Init, major::DEFECTIVE_TOKEN), (GssProcedure::ContinueInit, major::NO_CONTEXT)]
    {
        let handle =
            if procedure == GssProcedure::Init { Bytes::new() } else { Bytes::from_static(&[0; 16]) };
        let call =
            InitCall { credential: credential(procedure, handle), token: Bytes::from_static(b"nonsense") };
        let reply = bed.create(origin(1), &call).unwrap();
        let InitResults { handle, major: got, token, .. } = reply.results;
        assert_eq!(
            (got, handle, token, reply.verifier),
            (major, Bytes::new(), Bytes::new(), OpaqueAuth::none())
        );
    }
    // No token at all.
    let header = CallHeader { credential: call.credential, ..header(0) };
    let Ok(Received::Create(creation)) = bed.server.receive(origin(1), &header, bed.now) else { panic!() };
    assert!(creation.run(Decoder::new(Bytes::new())).is_err());
    // A step that comes twice.
    let (creating, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let reply = bed.create(origin(1), &call).unwrap();
    let Progress::Call(_, second) = creating.reply(&reply.verifier, reply.results, bed.now).unwrap() else {
        panic!()
    };
    assert_eq!(bed.create(origin(1), &second).unwrap().results.major, major::COMPLETE);
    assert_eq!(bed.create(origin(1), &second).unwrap().results.major, major::NO_CONTEXT);
}

// requirement: rfc2203-5.2.2-8, rfc2203-5.2.3.1-2, rfc2203-5.2.3.1-12
#[test]
fn a_server_that_cannot_prove_itself_is_refused() {
    let bed = Bed::new();
    let begin = || {
        let (creating, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
        (creating, bed.create(origin(1), &call).unwrap())
    };
    let fault = |change: fn(&mut CreationReply)| {
        let (creating, mut reply) = begin();
        change(&mut reply);
        creating.reply(&reply.verifier, reply.results, bed.now).unwrap_err()
    };
    let incomplete = |change| matches!(fault(change), CreationError::Incomplete(_));
    assert!(incomplete(|reply| reply.verifier = OpaqueAuth::none()));
    assert!(incomplete(|reply| reply.results.handle = Bytes::new()));
    assert!(incomplete(|reply| reply.results.major = major::CONTINUE_NEEDED));
    assert!(matches!(fault(|reply| reply.results.window ^= 1), CreationError::Mechanism(_)));
    assert!(matches!(fault(|reply| reply.results.token = Bytes::new()), CreationError::Mechanism(_)));
    let refused = fault(|reply| reply.results.major = major::CREDENTIALS_EXPIRED);
    assert!(refused.to_string().contains("expired"), "{refused}");
    // The mechanism knows its own numbers best.
    let refused = fault(|reply| {
        reply.results.major = major::FAILURE;
        reply.results.minor = EXPLAINED;
    });
    assert_eq!(refused.to_string(), "the server refuses the security context: an odd number; count again");
}

// requirement: rfc2203-5-9, rfc2203-5.3.1-3, rfc2203-5.3.1-4
#[test]
fn every_request_has_a_number_of_its_own_until_there_is_none() {
    let bed = Bed::new();
    let client = bed.client();
    let numbers: Vec<u32> = (0..3).map(|_| sealed(&client, Service::None, 1).1.sequence).collect();
    assert_eq!(numbers, [1, 2, 3]);
    client.set_next(SEQUENCE_END - 1);
    assert!(!client.is_spent(bed.now));
    let (call, last) = sealed(&client, Service::None, 1);
    assert_eq!(last.sequence, SEQUENCE_END - 1);
    assert!(bed.request(&call, &last.arguments).unwrap().is_ok());
    assert!(client.is_spent(bed.now));
    assert!(client.seal(Service::None, &mut header(1), Stream::new()).is_err());
    assert!(client.seal_end(&mut header(1)).is_err());
}

/// Returns the numbers of all places that there are at present.
fn places(client: &Arc<GssClient>) -> Vec<Place> {
    std::iter::from_fn(|| client.place().unwrap()).collect()
}

/// RFC 2203 §5.2.3.1 and §5.3.3.1: no request moves the window past one that is outstanding.
// requirement: rfc2203-5.2.3.1-10
#[test]
fn the_requests_that_are_outstanding_fit_the_window() {
    let bed = Bed::new();
    let client = Arc::new(bed.client());
    let mut held = places(&client);
    let numbers: Vec<u32> = held.iter().map(Place::sequence).collect();
    assert_eq!(numbers, (1..=WINDOW).collect::<Vec<_>>());
    // Replies to all but the oldest make no room: the server may not have seen it yet.
    let oldest = held.remove(0);
    held.clear();
    assert!(places(&client).is_empty());
    drop(oldest);
    assert_eq!(places(&client).len(), WINDOW as usize);
    // The end of the context gives none, and is told although some are outstanding.
    let _held = places(&client);
    client.seal_end(&mut header(0)).unwrap();
    assert!(client.place().is_err());
}
