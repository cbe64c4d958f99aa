//! How a session comes to a version (version-two-01 §5).

use super::*;
use crate::{Profile, Versions};

const PROFILES: [Profile; 2] = [Profile::P1, Profile::P2];

fn world(client: Versions, server: Versions) -> World {
    let mut world = World::new(Config { versions: client, ..Config::default() });
    world.server_config = Arc::new(Config { versions: server, ..server_config() });
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

#[test]
fn v2_01_s5_2_fallback_on_the_same_connection() {
    for profile in PROFILES {
        let mut world = world(Versions::both(profile), Versions::ONE);
        calls(&mut world, 1..20);
        assert_eq!((version(&world), world.attempts.len()), (Some(1), 1));
        assert_eq!(world.session.peer_versions(), Some((1, 1)));
        assert_eq!(world.session.connection().unwrap().thresholds().send, 4096);
        // One message more than without it, and remembered: the next connection begins with Version One.
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
    // The first answer does not arrive: the connection is cut.
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

#[test]
fn profiles_do_not_mix() {
    for (client, server) in [(Profile::P1, Profile::P2), (Profile::P2, Profile::P1)] {
        // With Version One to fall back to, nobody notices.
        let mut world = world(Versions::both(client), Versions::both(server));
        calls(&mut world, 1..5);
        assert_eq!((version(&world), world.attempts.len()), (Some(1), 2));
        // Without, the error says what it may be.
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
        assert!(error.contains("another document of that version"), "{error}");
    }
}
