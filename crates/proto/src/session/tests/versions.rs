//! Choice of the version in a session (version-two-01 §5).

use super::*;
use crate::{Exchanged, Profile, Versions};

const PROFILES: [Profile; 3] = [Profile::P1, Profile::P2, Profile::P3];

fn world(client: Versions, server: Versions) -> World {
    world_with((client, Exchanged::default()), (server, Exchanged::default()))
}

/// A world with these versions and characteristics of each side.
fn world_with(client: (Versions, Exchanged), server: (Versions, Exchanged)) -> World {
    let config = |(versions, characteristics), config| Config { versions, characteristics, ..config };
    let mut world = World::new(config(client, Config::default()));
    world.server_config = Arc::new(config(server, server_config()));
    world
}

fn version(world: &World) -> Option<u32> {
    world.session.connection()?.version().map(|rules| rules.version)
}

/// Makes calls and runs until they are answered.
fn calls(world: &mut World, xids: std::ops::Range<u32>) {
    let ids: Vec<_> = xids.map(|xid| world.call(store(xid, 100))).collect();
    world.run_for(SECOND * 20);
    for id in ids {
        let reply = world.events.iter().find_map(|event| match event {
            SessionEvent::Reply { id: ended, result } if *ended == id => Some(result.is_ok()),
            _ => None,
        });
        assert_eq!(reply, Some(true), "{:?}", world.events);
    }
}

#[test]
fn v2_01_s5_1_both_speak_it() {
    for profile in PROFILES {
        let mut world = world(Versions::both(profile), Versions::both(profile));
        calls(&mut world, 1..20);
        assert_eq!((version(&world), world.attempts.len()), (Some(2), 1));
    }
}

/// The NULL Call of the offer goes to the program of the configuration, otherwise to that of the first call.
#[test]
fn v2_01_s5_1_the_offer_is_a_null_call_of_a_known_program() {
    for (configured, offered) in [(Some((77, 5)), (77, 5)), (None, (PROGRAM, VERSION))] {
        let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
        let config = Config { program: configured, ..Config::clone(&world.config) };
        world.session = Session::new(Arc::new(config), 42);
        world.keep_calls = true;
        world.call(store(1, 100));
        world.run_for(SECOND);
        let mut offer = world.kept.remove(0);
        let header = rpcrdma_oncrpc::CallHeader::read(&mut offer).unwrap();
        assert_eq!((header.program, header.version, header.procedure), (offered.0, offered.1, 0));
        assert_eq!(
            (header.credential, header.verifier),
            (rpcrdma_oncrpc::OpaqueAuth::none(), rpcrdma_oncrpc::OpaqueAuth::none())
        );
        assert!(offer.finish().is_ok(), "a NULL Call has no arguments");
    }
}

#[test]
fn a_session_that_would_offer_a_version_connects_for_a_known_program_only() {
    let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
    let now = world.now();
    assert_eq!(world.session.connect(now), Err(NoProgram));
    world.run_for(SECOND);
    assert_eq!(world.attempts.len(), 0);
    // A call names its program, which later connections use.
    calls(&mut world, 1..2);
    world.server.as_mut().unwrap().qp.abort();
    world.run_for(SECOND);
    let now = world.now();
    assert_eq!(world.session.connect(now), Ok(()));
    world.run_for(SECOND);
    assert_eq!((version(&world), world.attempts.len()), (Some(2), 2));
    let config = Config { program: Some((PROGRAM, VERSION)), ..Config::clone(&world.config) };
    assert_eq!(Session::new(Arc::new(config), 42).connect(now), Ok(()));
}

#[test]
fn v2_01_s5_2_fallback_on_the_same_connection() {
    for profile in PROFILES {
        let mut world = world(Versions::both(profile), Versions::ONE);
        calls(&mut world, 1..20);
        assert_eq!((version(&world), world.attempts.len()), (Some(1), 1));
        assert_eq!(world.session.offer.versions, Some((1, 1)));
        assert_eq!(world.session.connection().unwrap().thresholds().send, 4096);
        // The fallback costs one message, and is remembered: the next connection begins with Version One.
        let server = world.server.as_ref().unwrap().connection.stats();
        assert_eq!(server.replies_sent.errors, 1);
        world.server.as_mut().unwrap().qp.abort();
        calls(&mut world, 30..40);
        assert_eq!((version(&world), world.attempts.len()), (Some(1), 2));
        assert_eq!(world.server.as_ref().unwrap().connection.stats().replies_sent.errors, 0);
    }
}

#[test]
fn v2_01_s5_2_fallback_on_the_next_connection_after_a_loss() {
    let mut world = world(Versions::both(Profile::P1), Versions::ONE);
    // A cut connection loses the first answer.
    let at = Step::Posted(0);
    world.fabric.plan(Fault { connection: 0, side: SimSide::B, at, action: FaultAction::Cut });
    calls(&mut world, 1..5);
    assert_eq!((version(&world), world.attempts.len()), (Some(1), 2));
}

#[test]
fn v2_01_s5_2_a_server_that_says_nothing_is_taken_for_one_without_it() {
    let mut world = world(Versions::both(Profile::P1), Versions::ONE);
    let begin = world.now();
    world.call(null(99));
    while world.pump() {}
    world.fabric.partition(0);
    calls(&mut world, 1..5);
    assert_eq!((version(&world), world.attempts.len()), (Some(1), 2));
    assert_eq!(world.attempts[1] - begin, Timeouts::default().offer);
}

/// A peer that speaks neither version of the client is asked again after a pause only.
#[test]
fn i6_pauses_grow_while_the_peer_speaks_no_common_version() {
    let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
    let config = Config { keep_connected: true, ..Config::clone(&world.config) };
    world.session = Session::new(Arc::new(config), 42);
    world.call(null(1));
    world.silent = true;
    for attempt in 1..5 {
        while world.attempts.len() < attempt {
            world.run_for(SECOND / 100);
        }
        let now = world.now();
        let (a, _b) = world.fabric.pair(
            parameters(&world.config, &world.domains[0]),
            parameters(&world.server_config, &world.domains[1]),
        );
        let attempt = u32::try_from(attempt).unwrap();
        assert!(world.session.connected(now, attempt, a.peer_private_data(), a.capabilities()));
        world.qp = Some(a);
        let failure = CallFailure::permanent(CallError::Version { low: 3, high: 3 }, true);
        world.session.offer_ended(now, Err(failure));
    }
    let pauses: Vec<Duration> = world.attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[2] > pauses[0] && pauses[0] > Duration::ZERO, "{pauses:?}");
}

#[test]
fn i6_an_offer_that_has_ended_is_not_timed_until_its_connection_has() {
    let mut world = world(Versions::both(Profile::P1), Versions::ONE);
    world.call(null(99));
    while world.pump() {}
    let end = world.now() + Timeouts::default().offer;
    assert_eq!(world.session.poll_timeout(), Some(end));
    world.session.handle_timeout(end);
    assert!(world.session.poll_timeout().is_none_or(|next| next > end), "a timer that is due for ever");
}

#[test]
fn who_speaks_version_two_only_says_so() {
    let mut world = world(Versions::two(Profile::P1), Versions::ONE);
    let id = world.call(null(1));
    world.run_for(SECOND * 20);
    let error = world.events.iter().find_map(|event| match event {
        SessionEvent::Reply { id: ended, result: Err(failure) } if *ended == id => {
            Some(failure.error.clone())
        }
        _ => None,
    });
    assert_eq!(error, Some(CallError::Version { low: 1, high: 1 }));
}

/// The version that each pair of {Version One only, P1 with and without characteristics, P2, P3} agrees on; each server
/// accepts Version One, too.
#[test]
fn every_pair_comes_to_what_both_speak() {
    let mut off = Exchanged::default();
    off.enabled = false;
    let sides = || {
        let two = PROFILES.map(|profile| (Some(profile), Exchanged::default()));
        [(None, Exchanged::default()), (Some(Profile::P1), off.clone())].into_iter().chain(two)
    };
    let speaks = |profile: Option<Profile>| profile.map_or(Versions::ONE, Versions::both);
    for (of_client, told) in sides() {
        for (of_server, answered) in sides() {
            let client = (speaks(of_client), told.clone());
            let mut world = world_with(client, (speaks(of_server), answered.clone()));
            calls(&mut world, 1..20);
            let rules = world.session.connection().unwrap().version().unwrap();
            let same = if of_client == of_server { of_client } else { None };
            assert_eq!(rules.two.map(|two| two.profile), same, "{of_client:?} {of_server:?}");
            // A peer of another profile refuses the first message; a peer of Version One names its version.
            let attempts =
                if of_client != of_server && of_client.is_some() && of_server.is_some() { 2 } else { 1 };
            assert_eq!(world.attempts.len(), attempts, "{of_client:?} {of_server:?}");
            let exchanged = world.session.connection().unwrap().exchanges_characteristics();
            let both = told.enabled && answered.enabled;
            assert_eq!(exchanged == Some(true), both && same.is_some(), "{of_client:?} {of_server:?}");
        }
    }
}

#[test]
fn profiles_do_not_mix() {
    let pairs = PROFILES.into_iter().flat_map(|client| PROFILES.map(|server| (client, server)));
    for (client, server) in pairs.filter(|(client, server)| client != server) {
        // With Version One as a fallback, the calls succeed.
        let mut world = world(Versions::both(client), Versions::both(server));
        calls(&mut world, 1..5);
        assert_eq!((version(&world), world.attempts.len()), (Some(1), 2));
        // Without the fallback, the error names the possible cause.
        let mut world = self::world(Versions::two(client), Versions::both(server));
        let id = world.call(null(1));
        world.run_for(SECOND * 20);
        let error = world.events.iter().find_map(|event| match event {
            SessionEvent::Reply { id: ended, result: Err(failure) } if *ended == id => {
                Some(failure.to_string())
            }
            _ => None,
        });
        let error = error.expect("the call has failed");
        assert!(error.contains("refused Version Two") && error.contains("another profile"), "{error}");
    }
}

/// version-two-07 §7.3: an error with any name is an answer, and resets the pause.
#[test]
fn v2_07_s7_3_an_error_makes_good_for_connections_that_came_to_nothing() {
    let mut world = world(Versions::two(Profile::P3), Versions::both(Profile::P3));
    let (reconnect_least, reconnect_most) = (SECOND, SECOND * 64);
    let timeouts = Timeouts { reconnect_least, reconnect_most, ..Timeouts::default() };
    let config = Config { timeouts, keep_connected: true, ..(*world.config).clone() };
    world.config = Arc::new(config);
    world.session = Session::new(Arc::clone(&world.config), 42);
    for xid in 1..6 {
        // The result is longer than the caller announced, and than a Send holds.
        let mut call = list(xid, 20_000);
        call.reply.max_len = 100;
        world.call(call);
        world.run_for(SECOND * 2);
        let (_, result) = world.ended().pop().expect("the call has ended");
        assert!(matches!(result.unwrap_err().error, CallError::Refused(_)));
        let (lost, attempts) = (world.now(), world.attempts.len());
        world.fabric.cut(world.fabric.connections()[0]);
        while world.attempts.len() == attempts {
            world.run_for(SECOND / 100);
        }
        let pause = world.attempts[attempts] - lost;
        assert!(pause <= SECOND * 11 / 10, "{pause:?} after {xid} connections");
    }
}

/// The session does not combine messages again with a peer that has refused that, and does not announce that it takes them.
#[test]
fn after_a_refusal_no_messages_share_a_send() {
    let (sends, announced) = combined_after(crate::wire::Body::Error(crate::wire::ErrorBody::Two(
        crate::wire::two::ErrorBody::InvalidOption,
    )));
    assert_eq!((sends, announced), (0, 1));
}

/// Any other end of a connection says nothing about combined messages.
#[test]
fn after_another_fault_messages_share_a_send_again() {
    let malformed = crate::wire::Body::Two(crate::wire::two::Body::Combined(vec![1, 1]));
    let (sends, announced) = combined_after(malformed);
    assert_eq!((sends > 0, announced), (true, 4));
}

/// Ends a connection on which messages are combined by this message. Returns the combined Sends of the next connection, and
/// how many messages it announces.
fn combined_after(body: crate::wire::Body) -> (u64, u32) {
    let mut world = world(Versions::two(Profile::P1), Versions::two(Profile::P1));
    let limits = crate::Limits { combined_messages: 4, ..crate::Limits::default() };
    let config = Config { combined_messages: 4, limits: limits.clone(), ..Config::default() };
    world.session = Session::new(Arc::new(Config { versions: Versions::two(Profile::P1), ..config }), 0);
    let server = Config { limits, ..Config::clone(&world.server_config) };
    world.server_config = Arc::new(server);
    calls(&mut world, 1..3);
    calls(&mut world, 3..20);
    let combined = |world: &World| world.session.connection().unwrap().stats().sends_combined;
    assert!(combined(&world) > 0);
    let error = crate::wire::Header {
        xid: 77,
        version: 2,
        credit: 8,
        direction: Some(crate::wire::Direction::Reply),
        invalidate: 0,
        body,
    };
    let mut bytes = bytes::BytesMut::new();
    Profile::P1.codec().encode(&error, &mut bytes);
    let send = rpcrdma_verbs::SendRequest { gather: vec![bytes.freeze()], ..Default::default() };
    let server = world.server.as_mut().unwrap();
    server.qp.post(rpcrdma_verbs::WrId(u64::MAX), rpcrdma_verbs::WorkRequest::Send(send)).unwrap();
    calls(&mut world, 30..33);
    calls(&mut world, 33..50);
    assert_eq!(world.attempts.len(), 2);
    (combined(&world), world.session.connection().unwrap().characteristics().unwrap().combined)
}

/// Xcharext-02 §4: requests and changes go to the present connection; without one they are refused.
#[test]
fn xcharext_s4_a_session_asks_and_changes_on_its_connection() {
    use crate::{Characteristic, NotExchanged};
    let mut world = world(Versions::two(Profile::P1), Versions::two(Profile::P1));
    let size = || vec![Characteristic::ReceiveSize(8192)];
    let takes = || Characteristic::RemoteInvalidation(false);
    assert_eq!(world.session.ask(size()), Err(NotExchanged::NotSpoken));
    assert_eq!(world.session.change(takes()), Err(NotExchanged::NotSpoken));
    calls(&mut world, 1..20);
    for number in 0..3 {
        assert_eq!(world.session.ask(size()), Ok(number));
    }
    let ours = |world: &World| world.session.connection().unwrap().characteristics().unwrap().clone();
    assert!(ours(&world).remote_invalidation);
    assert_eq!(world.session.change(takes()), Ok(()));
    assert!(!ours(&world).remote_invalidation);
}

/// version-two-01 §5.2: a peer counts as one without the version for a limited time, since it may gain the version.
#[test]
fn v2_01_s5_2_the_version_is_offered_again_after_some_time() {
    for refuses in [true, false] {
        let both = Versions::both(Profile::P1);
        let timeouts = Timeouts { version_memory: SECOND * 100, ..Timeouts::default() };
        let mut world = world(both, if refuses { Versions::ONE } else { both });
        let config = Config { timeouts, ..Config::clone(&world.config) };
        world.session = Session::new(Arc::new(config), 42);
        world.keep_calls = !refuses;
        world.call(store(1, 100));
        world.run_for(SECOND * 10);
        assert_eq!(version(&world), Some(1));
        assert_eq!(world.session.offer.versions, refuses.then_some((1, 1)));
        world.keep_calls = false;
        world.server_config = Arc::new(Config { versions: both, ..server_config() });
        let again = |world: &mut World, xid: u32| {
            world.fabric.cut(u64::try_from(world.attempts.len()).unwrap() - 1);
            world.run_for(SECOND);
            world.call(store(xid, 100));
            world.run_for(SECOND * 20);
            version(world)
        };
        assert_eq!(again(&mut world, 2), Some(1), "not yet");
        world.run_for(SECOND * 80);
        assert_eq!(again(&mut world, 3), Some(2));
        assert_eq!(world.session.offer.versions, None);
    }
}

/// RFC 8166 §4.5.1, version-two-01 §5.2: if the peer refuses the version in use and has another one of ours, the session
/// connects again and offers a version anew. Otherwise the connection stays.
#[test]
fn v2_01_s5_2_a_version_that_is_refused_later_is_given_up_if_there_is_another() {
    for (range, goes_on) in [((1, 1), true), ((2, 2), false), ((3, 4), false), ((1, 2), true)] {
        let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
        calls(&mut world, 1..3);
        assert_eq!(version(&world), Some(2));
        let now = world.now();
        let id = world.session.calls.begin(50, now);
        let failure = CallFailure::permanent(CallError::Version { low: range.0, high: range.1 }, true);
        assert!(world.session.call_ended(id, Err(failure)).is_some());
        while world.pump() {}
        let refused = world
            .events
            .iter()
            .any(|event| matches!(event, SessionEvent::Disconnected(CloseReason::Refused(_))));
        assert_eq!(refused, goes_on, "{range:?}");
        calls(&mut world, 60..62);
        let attempts = 1 + usize::from(goes_on);
        assert_eq!((version(&world), world.attempts.len()), (Some(2), attempts), "{range:?}: offered anew");
    }
}

/// Version-two-01 §5.2: a session does not go on in Version One with a peer that does not have it.
#[test]
fn v2_01_s5_2_no_fallback_to_a_version_that_the_peer_does_not_have() {
    let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
    let id = world.call(null(1));
    while world.attempts.is_empty() {
        world.pump();
    }
    let now = world.now();
    let failure = CallFailure::permanent(CallError::Version { low: 3, high: 4 }, true);
    world.session.offer_ended(now, Err(failure));
    world.run_for(SECOND);
    let refused =
        world.events.iter().any(|event| matches!(event, SessionEvent::Disconnected(CloseReason::Refused(_))));
    assert!(refused, "{:?}", world.events);
    let ended = world.ended();
    assert!(matches!(
        ended.as_slice(),
        [(ended, Err(CallFailure { error: CallError::Version { low: 3, high: 4 }, .. }))] if *ended == id
    ));
}

/// RFC 8166 §4.5.1: while the session remembers the peer's range, it begins with no version outside. With nothing in
/// common it asks again.
#[test]
fn s4_5_1_a_version_outside_the_range_of_the_peer_is_not_the_first() {
    let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
    world.call(null(1));
    while world.attempts.is_empty() {
        world.pump();
    }
    let now = world.now();
    let refused = |low, high| Err(CallFailure::permanent(CallError::Version { low, high }, true));
    world.session.offer_ended(now, refused(3, 4));
    let memory = Timeouts::default().version_memory;
    let first = |world: &mut World, at| world.session.first_codec(at).rules().version;
    assert_eq!(first(&mut world, now), 2, "neither is in the range");
    assert_eq!(world.session.offer.versions, Some((3, 4)));
    world.session.state = State::Offering(now);
    world.session.offer_ended(now, refused(1, 1));
    assert_eq!(first(&mut world, now + memory - Duration::from_nanos(1)), 1);
    assert_eq!(world.session.offer.versions, Some((1, 1)));
    assert_eq!(first(&mut world, now + memory), 2, "the time is over");
    assert_eq!(world.session.offer.versions, None);
}

/// Version-two-01 §5.2: a version that the peer names later is offered, although it was refused before.
#[test]
fn v2_01_s5_2_a_version_that_the_peer_names_is_offered_again() {
    let mut world = world(Versions::both(Profile::P1), Versions::ONE);
    calls(&mut world, 1..3);
    assert_eq!(version(&world), Some(1));
    let now = world.now();
    assert_eq!(world.session.first_codec(now).rules().version, 1, "it was refused");
    let id = world.session.calls.begin(50, now + SECOND);
    let failure = CallFailure::permanent(CallError::Version { low: 1, high: 2 }, true);
    assert!(world.session.call_ended(id, Err(failure)).is_some());
    assert_eq!(world.session.first_codec(now).rules().version, 2);
}

/// The time in which a session counts on Version One begins with the refusal, and no later timer renews it.
#[test]
fn v2_01_s5_2_a_refusal_is_remembered_from_its_arrival() {
    let mut world = world(Versions::both(Profile::P1), Versions::both(Profile::P1));
    world.call(null(1));
    while world.attempts.is_empty() {
        world.pump();
    }
    let now = world.now();
    world.session.offer_ended(now, Err(CallFailure::permanent(CallError::Chunk, true)));
    assert!(matches!(world.session.state, State::Offering(_)), "until the connection has ended");
    world.session.handle_timeout(now + Timeouts::default().offer);
    let until = now + Timeouts::default().version_memory;
    assert_eq!(world.session.first_codec(until - Duration::from_nanos(1)).rules().version, 1);
    assert_eq!(world.session.first_codec(until).rules().version, 2);
}
