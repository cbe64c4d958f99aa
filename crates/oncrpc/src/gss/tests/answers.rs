//! The server's answers to requests that are unusual, wrong or hostile, and the client's to such servers.

use super::*;
use crate::gss::protection;

/// Returns a request as anyone with these keys can make it.
fn request(keys: &dyn SecurityContext, credential: &GssCredential, procedure: u32) -> CallHeader {
    let mut call = CallHeader { credential: credential.to_auth().unwrap(), ..header(procedure) };
    let body = keys.mic(&[&protection::covered(&call).unwrap()]).unwrap();
    call.verifier = OpaqueAuth { flavor: flavor::RPCSEC_GSS, body };
    call
}

/// Returns the credential of a new request of this client.
fn credential(client: &GssClient, service: Service) -> GssCredential {
    GssCredential::read(&sealed(client, service, 1).0.credential.body).unwrap()
}

/// RFC 2203 §7.2.1: nobody raises the window without the keys.
// requirement: rfc2203-5.3.3.1-4, rfc2203-5.3.3.1-6
#[test]
fn a_number_above_the_window_moves_it_only_with_the_right_checksum() {
    let bed = Bed::new();
    let (client, keys) = (bed.client(), bed.keys(USER));
    let (first, data) = sealed(&client, Service::None, 1);
    let far = GssCredential { sequence: 1_000_000, ..credential(&client, Service::None) };
    let forged = CallHeader { xid: 8, ..request(&*keys, &far, 1) };
    assert_eq!(bed.status(&forged, &data.arguments), Some(AuthStat::GssCredProblem));
    assert!(bed.request(&first, &data.arguments).unwrap().is_ok());
    // With it, all lower numbers are too old.
    let (second, data) = sealed(&client, Service::None, 1);
    assert!(bed.request(&request(&*keys, &far, 1), &data.arguments).unwrap().is_ok());
    assert!(bed.is_discarded(&second, &data.arguments));
}

// requirement: rfc2203-5.2.3.1-9, rfc2203-5.2.3.1-11, rfc2203-5.3.3.1-6
#[test]
fn as_many_requests_as_the_server_promised_may_come_in_any_order() {
    let bed = Bed::new();
    let client = bed.client();
    let mut requests: Vec<_> = (0..client.window()).map(|_| sealed(&client, Service::None, 1)).collect();
    while let Some((call, sealed)) = requests.pop() {
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
        if !requests.is_empty() {
            let (call, sealed) = requests.swap_remove(requests.len() / 3);
            assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
        }
    }
}

/// The data of a request may take long to arrive, while few others at a time are sent and answered.
// requirement: rfc2203-5.3.3.1-8
#[test]
fn a_request_that_thousands_pass_is_served() {
    let bed = Bed::new();
    let client = bed.client();
    let (slow, data) = sealed(&client, Service::Integrity, 1);
    for _ in 0..3000 {
        let (call, sealed) = sealed(&client, Service::None, 1);
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
    assert!(bed.request(&slow, &data.arguments).unwrap().is_ok());
}

// requirement: rfc2203-5.3.3.4.1-1, rfc2203-5.3.3.4.1-2, rfc2203-5.3.3.4.4-1
#[test]
fn a_mechanism_that_cannot_protect_a_reply_has_its_answers() {
    let bed = Bed::new();
    let client = bed.client();
    let mute = |mute| bed.mechanism.mute.store(mute, Ordering::Relaxed);
    for service in SERVICES {
        let (call, sealed) = sealed(&client, service, 1);
        mute(true);
        assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCtxProblem), "no verifier");
        mute(false);
        let (call, sealed) = super::sealed(&client, service, 1);
        let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
        mute(true);
        let results = opened.sealer.seal(encode(&21_u32).unwrap());
        assert_eq!(results.is_err(), service != Service::None, "no reply");
        mute(false);
    }
}

/// RFC 2203 §5.2.3.2: the two statuses of contexts answer data requests only.
// requirement: rfc2203-5.2.2-6, rfc2203-5.2.3.2-2, rfc2203-5.1-2
#[test]
fn no_call_that_creates_a_context_is_answered_by_a_status_of_contexts() {
    let bed = Bed::new();
    let handles = [Bytes::new(), Bytes::from_static(&[1; 16]), Bytes::from_static(&[1; 400])];
    let verifiers = [OpaqueAuth::none(), OpaqueAuth { flavor: 6, body: Bytes::from_static(b"12345678") }];
    let mut seen = Vec::new();
    for (version, procedure, handle) in (0..4_u32)
        .flat_map(|version| [1_u32, 2].map(|procedure| (version, procedure)))
        .flat_map(|(version, procedure)| handles.clone().map(|handle| (version, procedure, handle)))
    {
        let length = u32::try_from(handle.len()).unwrap();
        let words = [version, procedure, u32::MAX, 9, length];
        let body = words.iter().flat_map(|word| word.to_be_bytes()).chain(handle).collect();
        for (verifier, call) in verifiers.iter().flat_map(|verifier| [0, 1].map(|call| (verifier, call))) {
            let call = CallHeader {
                credential: OpaqueAuth { flavor: flavor::RPCSEC_GSS, body: Bytes::clone(&body) },
                verifier: verifier.clone(),
                ..header(call)
            };
            if let Err(Refusal::Auth(stat)) = bed.server.receive(origin(1), &call, bed.now) {
                assert_eq!(stat == AuthStat::RejectedCred, version != VERSION);
                seen.push(stat);
            }
        }
    }
    for stat in [AuthStat::BadCred, AuthStat::RejectedCred, AuthStat::BadVerf] {
        assert!(seen.contains(&stat), "{stat:?}");
    }
    assert!(!seen.iter().any(|stat| matches!(stat, AuthStat::GssCredProblem | AuthStat::GssCtxProblem)));
}

// requirement: rfc2203-5.3.3.3-3
#[test]
fn the_context_of_another_caller_needs_its_keys() {
    let bed = Bed::new();
    let other = bed.created(origin(2), "other@TEST").0;
    let theirs = credential(&other, Service::None);
    assert_eq!(
        bed.status(&request(&*bed.keys(USER), &theirs, 1), &Stream::new()),
        Some(AuthStat::GssCredProblem)
    );
    let call = request(&*bed.keys("other@TEST"), &theirs, 1);
    let opened = bed.request(&call, &Stream::new()).unwrap().unwrap();
    assert_eq!(opened.caller.principal.name, "other@TEST");
}

/// RFC 2203 §5.4: the message is "just like a data request", so some clients protect the empty arguments.
// requirement: rfc2203-5.4-2, rfc2203-5.4-5
#[test]
fn a_context_ends_whether_the_lack_of_arguments_is_protected_or_not() {
    for service in SERVICES {
        for protects in [false, true] {
            let bed = Bed::new();
            let (client, keys) = (bed.client(), bed.keys(USER));
            let end = GssCredential { procedure: GssProcedure::Destroy, ..credential(&client, service) };
            let shown = if protects { service } else { Service::None };
            let arguments = protection::protect(&*keys, shown, end.sequence, Stream::new()).unwrap();
            let opened = bed.request(&request(&*keys, &end, 0), &arguments).unwrap().unwrap();
            assert!(opened.destroyed);
            assert_eq!((opened.caller.service, opened.arguments.finish()), (shown, Ok(())));
            assert_eq!(bed.server.in_use(), 0);
        }
    }
}

/// Wrong requests to end a context are refused, and the context stays.
// requirement: rfc2203-5.4-3
#[test]
fn a_context_ends_only_by_a_right_request() {
    let bed = Bed::new();
    let (client, keys) = (bed.client(), bed.keys(USER));
    let (seen, data) = sealed(&client, Service::None, 1);
    assert!(bed.request(&seen, &data.arguments).unwrap().is_ok());
    let seen = GssCredential::read(&seen.credential.body).unwrap();
    let end = GssCredential { procedure: GssProcedure::Destroy, ..seen };
    assert!(bed.is_discarded(&request(&*keys, &end, 0), &Stream::new()), "a number that was seen");
    let end = |sequence| GssCredential { sequence, ..end.clone() };
    let call = request(&*keys, &end(SEQUENCE_END), 0);
    assert_eq!(bed.status(&call, &Stream::new()), Some(AuthStat::GssCtxProblem));
    let call = request(&*bed.keys("other@TEST"), &end(9), 0);
    assert_eq!(bed.status(&call, &Stream::new()), Some(AuthStat::GssCredProblem));
    for service in [Service::Integrity, Service::Privacy] {
        let end = GssCredential { service, ..end(9 + service as u32) };
        let other = protection::protect(&*keys, service, end.sequence + 1, Stream::new()).unwrap();
        let opened = bed.request(&request(&*keys, &end, 0), &other).unwrap();
        assert!(matches!(opened, Err(OpenError::Garbage { .. })), "{opened:?}");
    }
    assert_eq!(bed.server.in_use(), 1);
}

/// RFC 2203 §5.2: data needs a context that is complete.
// requirement: rfc2203-5.2-1
#[test]
fn a_context_that_is_not_complete_carries_no_data() {
    let bed = Bed::with(GssLimits::default(), TestMechanism { rounds: 2, ..TestMechanism::new(SERVER) });
    let (_, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let handle = bed.create(origin(1), &call).unwrap().results.handle;
    for procedure in [GssProcedure::Data, GssProcedure::Destroy] {
        let credential =
            GssCredential { procedure, sequence: 1, service: Service::None, handle: handle.clone() };
        let call = request(&*bed.keys(USER), &credential, 0);
        assert_eq!(bed.status(&call, &Stream::new()), Some(AuthStat::GssCredProblem));
    }
}

// requirement: rfc2203-5.2.2-5, rfc2203-5.2.3.1-13, rfc2203-5.2.3.1.1-3, rfc2203-A-2
#[test]
fn a_server_that_does_not_complete_a_context_is_refused() {
    let bed = Bed::with(GssLimits::default(), TestMechanism { rounds: 2, ..TestMechanism::new(SERVER) });
    let begin = || {
        let (creating, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
        (creating, bed.create(origin(1), &call).unwrap())
    };
    // It says that nothing is left to do, but the mechanism of this side is not done.
    let (creating, mut reply) = begin();
    reply.results.major = major::COMPLETE;
    let error = creating.reply(&reply.verifier, reply.results, bed.now).unwrap_err();
    assert!(matches!(error, CreationError::Incomplete(_)), "{error}");
    // Another handle in its second reply.
    let (creating, reply) = begin();
    let Progress::Call(creating, call) = creating.reply(&reply.verifier, reply.results, bed.now).unwrap()
    else {
        panic!()
    };
    let mut reply = bed.create(origin(1), &call).unwrap();
    reply.results.handle = Bytes::from_static(b"another");
    let error = creating.reply(&reply.verifier, reply.results, bed.now).unwrap_err();
    assert!(matches!(error, CreationError::Incomplete(_)), "{error}");
    // RFC 2203 Appendix A: an error of the call or the routine, or information beside "continue".
    for status in (1..32).map(|bit| 1 << bit).chain([3, major::NO_CRED | 1, u32::MAX]) {
        let (creating, mut reply) = begin();
        reply.results.major = status;
        let error = creating.reply(&reply.verifier, reply.results, bed.now).unwrap_err();
        assert!(
            matches!(error, CreationError::Refused { major, minor: 0, .. } if major == status),
            "{error:?}"
        );
    }
}
