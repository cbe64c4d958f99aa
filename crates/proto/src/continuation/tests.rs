use std::time::Duration;

use super::*;

const ID: (u32, Direction) = (7, Direction::Call);

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| at.to_le_bytes()[0]).collect()
}

/// With memory.
fn with_memory() -> Continuation {
    let mut continuation = Continuation::default();
    continuation.use_domain(&ProtectionDomain::new(1 << 20));
    continuation
}

fn limits() -> Limits {
    Limits { continued_len: 100, continued_parts: 4, ..Limits::default() }
}

#[test]
fn v2_07_s6_6_2_parts_are_joined_in_the_order_of_their_coming() {
    let now = Instant::now();
    let mut continuation = with_memory();
    assert_eq!(continuation.last(bytes(8)), Ok((bytes(8), 0)), "nothing had begun");
    assert_eq!((continuation.expects(), continuation.poll_timeout()), (None, None));
    continuation.part(ID, bytes(40).slice(..16), 24, &limits(), now).unwrap();
    assert_eq!((continuation.expects(), continuation.poll_timeout()), (Some("RDMA2_CALL_MIDDLE"), Some(now)));
    assert!(continuation.is_of(7, Direction::Call) && !continuation.is_of(7, Direction::Reply));
    // The time is that of the first part.
    let later = now + Duration::from_secs(1);
    continuation.part(ID, bytes(40).slice(16..20), 20, &limits(), later).unwrap();
    assert_eq!(continuation.poll_timeout(), Some(now));
    assert_eq!(continuation.last(bytes(40).slice(20..)), Ok((bytes(40), 2)));
    assert_eq!(continuation.expects(), None);
}

#[test]
fn v2_07_s6_3_6_rdma_remaining_has_to_be_right() {
    let now = Instant::now();
    let wrong = |seen, expected| Err(ProtocolError::ContinuationLength { seen, expected });
    for remaining in [0, 19, 21, u32::MAX] {
        let mut continuation = with_memory();
        continuation.part(ID, bytes(16), 24, &limits(), now).unwrap();
        let seen = usize::try_from(remaining).unwrap();
        assert_eq!(continuation.part(ID, bytes(4), remaining, &limits(), now), wrong(seen, 20));
        assert_eq!(continuation.expects(), None);
    }
    let mut continuation = with_memory();
    assert_eq!(continuation.part(ID, bytes(16), 0, &limits(), now), wrong(0, 0));
    for len in [0, 20, 28] {
        continuation.part(ID, bytes(16), 24, &limits(), now).unwrap();
        assert_eq!(continuation.last(bytes(len)).map(|_| ()), wrong(len, 24));
        assert_eq!(continuation.expects(), None);
    }
}

#[test]
fn i5_length_and_number_of_the_parts_are_bounded() {
    let now = Instant::now();
    let mut continuation = with_memory();
    let too_long = Err(ProtocolError::ContinuationTooLong { len: 104, allowed: 100 });
    assert_eq!(continuation.part(ID, bytes(4), 100, &limits(), now), too_long);
    continuation.part(ID, bytes(4), 96, &limits(), now).unwrap();
    continuation.part(ID, bytes(4), 92, &limits(), now).unwrap();
    continuation.part(ID, bytes(4), 88, &limits(), now).unwrap();
    let too_many = Err(ProtocolError::TooManyParts { allowed: 4 });
    assert_eq!(continuation.part(ID, bytes(4), 84, &limits(), now), too_many);
    let mut continuation = with_memory();
    let vast =
        Err(ProtocolError::ContinuationTooLong { len: usize::try_from(u32::MAX).unwrap() + 4, allowed: 100 });
    assert_eq!(continuation.part(ID, bytes(4), u32::MAX, &limits(), now), vast);
}

#[test]
fn v2_07_s7_1_4_what_was_given_up_is_passed_over_to_its_end() {
    let mut continuation = with_memory();
    let call = Direction::Call;
    continuation.give_up(7, call);
    assert!(continuation.passes_over(7, call, false));
    assert!(continuation.passes_over(7, call, true));
    assert!(!continuation.passes_over(7, call, true), "another message under this XID");
    // Whatever comes between.
    continuation.give_up(7, call);
    assert!(!continuation.passes_over(8, call, true) && !continuation.passes_over(7, Direction::Reply, true));
    assert!(continuation.passes_over(7, call, true));
}

/// Of two that were mixed nothing is taken for whole.
#[test]
fn v2_07_s7_1_4_several_are_passed_over_at_a_time_but_not_any_number() {
    let mut continuation = with_memory();
    for xid in 0..=u32::try_from(GIVEN_UP).unwrap() {
        continuation.give_up(xid, Direction::Call);
    }
    assert!(!continuation.passes_over(0, Direction::Call, true), "the oldest is forgotten");
    for xid in 1..=u32::try_from(GIVEN_UP).unwrap() {
        assert!(continuation.passes_over(xid, Direction::Call, true), "{xid}");
    }
    assert!(continuation.given_up.is_empty());
}

/// Rule I6: while there is no memory the parts wait where they are; a reply, which its Receives are set aside for, is put together
/// without.
#[test]
fn i6_parts_wait_for_memory_and_a_reply_needs_none() {
    let now = Instant::now();
    let domain = ProtectionDomain::new(1 << 16);
    let pinned = domain.allocate(1 << 16, 1).unwrap();
    let part = |continuation: &mut Continuation, id, at: std::ops::Range<usize>| {
        let remaining = u32::try_from(40 - at.end).unwrap();
        continuation.part(id, bytes(40).slice(at), remaining, &limits(), now)
    };
    let mut continuation = Continuation::default();
    continuation.use_domain(&domain);
    part(&mut continuation, ID, 0..16).unwrap();
    assert_eq!(continuation.last(bytes(24)), Err(ProtocolError::ContinuationMemory { len: 40 }));
    let reply = (7, Direction::Reply);
    part(&mut continuation, reply, 0..16).unwrap();
    assert_eq!(continuation.last(bytes(40).slice(16..)), Ok((bytes(40), 1)));
    part(&mut continuation, ID, 0..16).unwrap();
    drop(pinned);
    part(&mut continuation, ID, 16..24).unwrap();
    assert!(domain.usage().in_use > 0);
    let (whole, parts) = continuation.last(bytes(40).slice(24..)).unwrap();
    assert_eq!((&whole, parts), (&bytes(40), 2));
    drop(whole);
    assert_eq!(domain.usage().in_use, 0);
}
