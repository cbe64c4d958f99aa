//! Bounds for each origin on what all share (I6), and callers without keys.

use super::*;

/// Begins a context and leaves it there.
fn begin(bed: &Bed, from: u8) -> Result<(Creating, CreationReply), Refusal> {
    let (creating, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    bed.create(origin(from), &call).map(|reply| (creating, reply))
}

/// Makes the second call of a context, and returns the server's status.
fn complete(bed: &Bed, from: u8, (creating, reply): (Creating, CreationReply)) -> u32 {
    let progress = creating.reply(&reply.verifier, reply.results, bed.now).unwrap();
    let Progress::Call(_, call) = progress else { panic!("{progress:?}") };
    bed.create(origin(from), &call).unwrap().results.major
}

/// A server of contexts that take two calls, eight of them at a time.
fn two_calls() -> Bed {
    let limits = GssLimits { creating: 8, ..GssLimits::default() };
    Bed::with(limits, TestMechanism { rounds: 2, ..TestMechanism::new(SERVER) })
}

// requirement: rfc2203-5.4-6, rfc2203-5.4-7
#[test]
fn i6_contexts_are_bounded_and_an_origin_with_few_keeps_them() {
    let limits = GssLimits { contexts: 8, ..GssLimits::default() };
    let mut bed = Bed::with(limits, TestMechanism::new(SERVER));
    let few: Vec<_> = (0..2).map(|_| bed.created(origin(1), USER).0).collect();
    for number in 0..50 {
        bed.now += Duration::from_secs(1);
        bed.created(origin(2), &format!("user{number}@TEST"));
        assert!(bed.server.in_use() <= 8);
    }
    for client in &few {
        let (call, sealed) = sealed(client, Service::None, 1);
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
    // Contexts that nobody uses go.
    bed.now += limits.idle;
    bed.created(origin(3), USER);
    assert_eq!(bed.server.in_use(), 1);
}

/// The origin that creates one more counts with it. So of several origins with as many contexts, it is the one that loses some.
#[test]
fn i6_an_origin_takes_no_context_from_another_with_as_many() {
    let limits = GssLimits { contexts: 8, ..GssLimits::default() };
    let mut bed = Bed::with(limits, TestMechanism::new(SERVER));
    let kept: Vec<_> = (1..=4).map(|from| [(); 2].map(|()| bed.created(origin(from), USER).0)).collect();
    for _ in 0..20 {
        bed.now += Duration::from_secs(1);
        bed.created(origin(4), USER);
    }
    for client in kept[..3].iter().flatten() {
        let (call, sealed) = sealed(client, Service::None, 1);
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
}

/// A handle is no secret: it stands in each request. Only a checksum proves that a request is the caller's.
// requirement: rfc2203-5.4-7
#[test]
fn i6_requests_that_are_not_the_callers_keep_no_context() {
    let mut bed = Bed::new();
    let client = bed.client();
    let idle = GssLimits::default().idle;
    for _ in 0..2 {
        bed.now += idle / 2;
        let (mut call, sealed) = sealed(&client, Service::None, 1);
        call.xid ^= 1;
        assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCredProblem));
    }
    bed.created(origin(2), "other@TEST");
    assert_eq!(bed.server.in_use(), 1);
    let (call, sealed) = sealed(&client, Service::None, 1);
    assert_eq!(bed.status(&call, &sealed.arguments), Some(AuthStat::GssCredProblem));
    // A request of the caller does.
    let client = bed.client();
    bed.now += idle / 2;
    let (call, sealed) = super::sealed(&client, Service::None, 1);
    assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    bed.now += idle / 2;
    bed.created(origin(2), "other@TEST");
    assert_eq!(bed.server.in_use(), 2);
}

#[test]
fn i6_contexts_that_the_mechanism_works_at_are_bounded() {
    let bed = two_calls();
    let (_, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let call = CallHeader { credential: call.credential, ..header(0) };
    let receive = |from| bed.server.receive(origin(from), &call, bed.now);
    let mut working = Vec::new();
    for from in 1..=4 {
        working.extend((0..2).map(|_| receive(from).unwrap()));
        assert_eq!(receive(from).unwrap_err(), Refusal::Busy, "a quarter of all");
    }
    assert_eq!(receive(5).unwrap_err(), Refusal::Busy, "all");
    assert_eq!(bed.server.in_creation(), 8);
    working.pop();
    assert!(receive(5).is_ok());
    drop(working);
    assert_eq!(bed.server.in_creation(), 0);
}

#[test]
fn i6_a_flood_of_contexts_that_are_never_completed_is_bounded_and_keeps_nobody_out() {
    let bed = two_calls();
    // Four origins take all, and go on.
    for round in 0..3 {
        for from in 1..=4 {
            for _ in 0..2 {
                assert!(begin(&bed, from).is_ok());
            }
        }
        assert_eq!(bed.server.in_creation(), 8, "{round}");
    }
    // Another one has room, and keeps it while they go on.
    let begun = begin(&bed, 5).unwrap();
    for from in [1, 2, 3, 4, 1, 2, 3, 4] {
        assert!(begin(&bed, from).is_ok());
        assert!(bed.server.in_creation() <= 8);
    }
    assert_eq!(complete(&bed, 5, begun), major::COMPLETE);
    // Of one origin, the oldest goes.
    let [first, second, third] = [(); 3].map(|()| begin(&bed, 6).unwrap());
    assert_eq!(complete(&bed, 6, first), major::NO_CONTEXT);
    assert_eq!(complete(&bed, 6, second), major::COMPLETE);
    assert_eq!(complete(&bed, 6, third), major::COMPLETE);
    // As many as there are origins.
    for from in 10..200 {
        let begun = begin(&bed, from).unwrap();
        assert!(bed.server.in_creation() <= 8);
        if from % 10 == 0 {
            assert_eq!(complete(&bed, from, begun), major::COMPLETE);
        }
    }
}

/// Callers whose address the transport does not know are one origin, with the share of any other.
#[test]
fn i6_callers_without_an_address_have_the_share_of_an_origin() {
    let bed = two_calls();
    let (_, call) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let call = CallHeader { credential: call.credential, ..header(0) };
    let _working = [(); 2].map(|()| bed.server.receive(None, &call, bed.now).unwrap());
    assert_eq!(bed.server.receive(None, &call, bed.now).unwrap_err(), Refusal::Busy, "a quarter of all");
}

#[test]
fn i6_the_creation_of_a_context_ends_with_its_time() {
    let mut bed = two_calls();
    let begun = begin(&bed, 1).unwrap();
    bed.now += GssLimits::default().creation;
    assert_eq!(complete(&bed, 1, begun), major::NO_CONTEXT);
    begin(&bed, 2).unwrap();
    assert_eq!(bed.server.in_creation(), 1);
}

#[test]
fn a_server_that_ends_leaves_no_context_behind() {
    let bed = two_calls();
    let begun = begin(&bed, 1).unwrap();
    assert_eq!(complete(&bed, 1, begun), major::COMPLETE);
    begin(&bed, 1).unwrap();
    let server = Arc::downgrade(&bed.server);
    drop(bed);
    assert!(server.upgrade().is_none());
}

/// Without the handle nobody goes on with a context that another creates, or ends its creation. Handles are not guessed from
/// others.
// requirement: rfc2203-5.2.2-4
#[test]
fn i6_nobody_disturbs_the_creation_of_a_context_by_guesses() {
    let bed = two_calls();
    let victim = begin(&bed, 1).unwrap();
    let (_, known) = begin(&bed, 2).unwrap();
    let known = known.results.handle;
    let guesses = (0..known.len() * 8).map(|bit| {
        let mut guess = known.to_vec();
        guess[bit / 8] ^= 1 << (bit % 8);
        Bytes::from(guess)
    });
    let cut = [Bytes::new(), known.slice(..8), known.slice(8..), [&known[..], &[0]].concat().into()];
    for guess in guesses.chain(cut) {
        assert_ne!(guess, victim.1.results.handle);
        let credential = GssCredential {
            procedure: GssProcedure::ContinueInit,
            sequence: 0,
            service: Service::None,
            handle: guess,
        };
        let call = InitCall { credential: credential.to_auth().unwrap(), token: Bytes::from_static(b"x") };
        assert_eq!(bed.create(origin(2), &call).unwrap().results.major, major::NO_CONTEXT);
    }
    assert_eq!(complete(&bed, 1, victim), major::COMPLETE);
}

/// RFC 2203 §5.3.3.1: the window is a distance. A short call may wait too: for its connection to come back, while others of the
/// user go by another connection.
#[test]
fn rfc2203_5_3_3_1_a_request_that_waits_for_its_connection_is_not_passed_by_a_whole_window() {
    let bed = Bed::new();
    let client = Arc::new(bed.client());
    let waiting = client.place().unwrap().unwrap();
    for _ in 0..2 * WINDOW {
        let Some(place) = client.place().unwrap() else { break };
        let mut call = header(1);
        let sealed = client.seal_as(place.sequence(), Service::None, &mut call, Stream::new()).unwrap();
        assert!(bed.request(&call, &sealed.arguments).unwrap().is_ok());
    }
    let mut call = header(1);
    let sealed = client.seal_as(waiting.sequence(), Service::None, &mut call, Stream::new()).unwrap();
    assert!(!bed.is_discarded(&call, &sealed.arguments));
}
