//! Connections that begin with calls of the session's owner (RFC 5666 §6.1).

use super::*;

fn world() -> World {
    let mut world = World::new(Config::default());
    world.session = Session::with_prelude(Arc::clone(&world.config), 42);
    world
}

impl World {
    fn prelude_call(&mut self, xid: u32) -> CallId {
        let now = self.now();
        self.session.prelude_call(now, null(xid)).unwrap()
    }

    fn prelude_done(&mut self) {
        let now = self.now();
        self.session.prelude_done(now);
    }

    fn connected(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, SessionEvent::Connected)).count()
    }
}

// requirement: rfc5666-6.1-1
#[test]
fn rfc5666_s6_1_nothing_goes_before_the_prelude() {
    let mut world = world();
    let early = world.call(echo(1, 9001));
    world.run_for(SECOND);
    assert_eq!((world.connected(), world.seen.len()), (1, 0));
    let first = world.prelude_call(100);
    let late = world.call(null(2));
    world.run_for(SECOND);
    let ended: Vec<CallId> = world.ended().into_iter().map(|(id, _)| id).collect();
    assert_eq!((ended, world.seen.clone()), (vec![first], vec![100]));
    world.prelude_done();
    world.run_for(SECOND);
    let ended: Vec<CallId> =
        world.ended().into_iter().map(|(id, reply)| reply.map(|_| id).unwrap()).collect();
    assert_eq!(ended.len(), 2);
    assert!(ended.contains(&early) && ended.contains(&late));
    assert_eq!((world.seen.len(), world.seen[0]), (3, 100));
    assert_eq!(world.session.in_progress(), 0);
}

#[test]
fn a_call_of_the_prelude_ends_with_its_connection_and_the_others_wait_for_the_next() {
    let mut world = world();
    let waits = world.call(null(1));
    world.run_for(SECOND);
    let first = world.prelude_call(100);
    world.session.prelude_failed("of no use".to_owned());
    while world.pump() {}
    let closed = world.events.iter().any(|event| {
        matches!(event, SessionEvent::Disconnected(CloseReason::Refused(reason)) if reason == "of no use")
    });
    assert!(closed, "{:?}", world.events);
    let ended = world.ended();
    assert!(matches!(
        ended.as_slice(),
        [(id, Err(CallFailure { error: CallError::ConnectionLost(CloseReason::Refused(_)), .. }))] if *id == first
    ));
    world.run_for(SECOND * 10);
    assert_eq!((world.connected(), world.seen.len()), (1, 0), "connected again, and silent");
    world.prelude_done();
    world.run_for(SECOND);
    assert!(matches!(world.ended().as_slice(), [(id, Ok(_))] if *id == waits));
    assert_eq!(world.seen, [1]);
}

/// A peer whose answers to the prelude are of no use does not reset the pause.
#[test]
fn i6_pauses_grow_while_preludes_fail() {
    let mut world = world();
    world.call(Call { timeout: Some(SECOND * 1000), ..null(1) });
    for xid in 100..108 {
        while world.connected() == 0 {
            world.run_for(SECOND / 10);
        }
        world.prelude_call(xid);
        while world.ended().is_empty() {
            world.run_for(SECOND / 100);
        }
        world.session.prelude_failed("of no use".to_owned());
        while world.pump() {}
        world.events.clear();
    }
    let pauses: Vec<Duration> = world.attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[6] > pauses[0] * 8, "{pauses:?}");
    assert_eq!(world.seen, (100..108).collect::<Vec<_>>());
}

#[test]
fn a_prelude_needs_a_connection_that_has_one() {
    let mut without = World::new(Config::default());
    without.session.connect(without.now()).unwrap();
    without.run_for(SECOND);
    let mut early = world();
    for world in [&mut without, &mut early] {
        let now = world.now();
        let refused = world.session.prelude_call(now, null(1)).unwrap_err();
        assert_eq!(refused.kind, RefusedKind::Closed);
    }
}

/// What is said of a prelude that is not under way has no effect. A refused call leaves its XID free.
#[test]
fn only_a_prelude_that_is_under_way_ends() {
    let mut world = world();
    let now = world.now();
    world.session.prelude_done(now);
    assert_eq!(world.session.prelude_call(now, null(1)).unwrap_err().kind, RefusedKind::Closed);
    world.call(null(1));
    world.run_for(SECOND);
    world.prelude_done();
    world.run_for(SECOND);
    assert!(matches!(world.ended().as_slice(), [(_, Ok(_))]));
    world.session.prelude_failed("too late".to_owned());
    world.call(null(2));
    world.run_for(SECOND);
    assert!(matches!(world.ended().as_slice(), [(_, Ok(_))]), "on the same connection");
    assert_eq!(world.attempts.len(), 1);
}

/// RFC 5666 §6.1: no agreement is below the basic inline size.
#[test]
fn rfc5666_s6_1_a_session_refuses_an_agreement_below_the_basic_size() {
    use crate::{Agreement, BASIC_INLINE};
    let mut world = world();
    let agreement = |call_size| Agreement {
        call_size,
        reply_size: BASIC_INLINE,
        client_reads: 1,
        server_reads: 1,
        align: 1,
    };
    assert_eq!(world.session.agree(agreement(BASIC_INLINE - 1)), Ok(()), "there is no connection");
    world.call(null(1));
    world.run_for(SECOND);
    assert!(world.session.agree(agreement(BASIC_INLINE - 1)).is_err());
    assert_eq!(world.session.agree(agreement(BASIC_INLINE)), Ok(()));
}

/// A call that came too late for a prelude leaves nothing behind.
#[test]
fn a_prelude_that_has_failed_takes_no_call() {
    let mut world = world();
    let waits = world.call(null(1));
    world.run_for(SECOND);
    world.session.prelude_failed("of no use".to_owned());
    let now = world.now();
    assert_eq!(world.session.prelude_call(now, null(2)).unwrap_err().kind, RefusedKind::Closed);
    assert_eq!(world.session.in_progress(), 1);
    world.call(null(2));
    world.run_for(SECOND * 10);
    world.prelude_done();
    world.run_for(SECOND);
    assert!(world.ended().iter().any(|(id, reply)| *id == waits && reply.is_ok()));
    assert_eq!(world.seen, [1, 2]);
}
