use std::time::Duration;

use super::*;
use crate::settings::timers::Timeouts;
use crate::wire::Limits;

const ID: MessageId = (7, Direction::Call);

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| at.to_le_bytes()[0]).collect()
}

/// An assembly without memory, of at most 100 bytes in four Sends.
fn assembly() -> Assembly {
    let limits = Limits { continued_len: 100, continued_parts: 4, ..Limits::default() };
    Assembly::new(&Arc::new(Config { limits, ..Config::default() }))
}

fn with_memory() -> Assembly {
    let mut assembly = assembly();
    assembly.use_domain(&ProtectionDomain::new(1 << 20));
    assembly
}

/// Adds a part with `remaining` bytes after it.
fn middle(
    assembly: &mut Assembly,
    id: MessageId,
    message: Bytes,
    remaining: u32,
    now: Instant,
) -> Result<(), ProtocolError> {
    let fragment = Fragment { id, message, header: 0, place: Place::Middle { remaining } };
    let taken = assembly.take(now, fragment).map_err(|broken| broken.error)?;
    assert!(taken.is_none());
    Ok(())
}

/// Adds the last part; returns the message, and the number of earlier parts.
fn last(assembly: &mut Assembly, id: MessageId, message: Bytes) -> Result<(Bytes, usize), ProtocolError> {
    let fragment = Fragment { id, message, header: 0, place: Place::Last };
    let taken = assembly.take(Instant::now(), fragment).map_err(|broken| broken.error)?;
    let Assembled { payload, sends, .. } = taken.unwrap();
    Ok((payload.join().0, sends - 1))
}

fn passes(assembly: &mut Assembly, id: MessageId, is_last: bool) -> bool {
    let place = if is_last { Place::Last } else { Place::Middle { remaining: 4 } };
    assembly.passes_over(id, &place)
}

#[test]
fn v2_07_s6_6_2_parts_are_joined_in_the_order_of_their_coming() {
    let now = Instant::now();
    let due = now + Timeouts::default().continuation;
    let mut assembly = with_memory();
    assert_eq!(last(&mut assembly, ID, bytes(8)), Ok((bytes(8), 0)), "nothing had begun");
    assert_eq!((assembly.parts(), assembly.poll_timeout()), (None, None));
    middle(&mut assembly, ID, bytes(40).slice(..16), 24, now).unwrap();
    assert_eq!((assembly.parts(), assembly.poll_timeout()), (Some(ID), Some(due)));
    assert_eq!(parts_of(ID.1), "RDMA2_CALL_MIDDLE");
    // The deadline is that of the first part.
    let later = now + Duration::from_secs(1);
    middle(&mut assembly, ID, bytes(40).slice(16..20), 20, later).unwrap();
    assert_eq!(assembly.poll_timeout(), Some(due));
    assert_eq!(last(&mut assembly, ID, bytes(40).slice(20..)), Ok((bytes(40), 2)));
    assert_eq!(assembly.parts(), None);
}

#[test]
fn v2_07_s6_3_6_rdma_remaining_has_to_be_right() {
    let now = Instant::now();
    let wrong = |seen, expected| Err(ProtocolError::Two(Error::ContinuationLength { seen, expected }));
    for remaining in [0, 19, 21, u32::MAX] {
        let mut assembly = with_memory();
        middle(&mut assembly, ID, bytes(16), 24, now).unwrap();
        let seen = usize::try_from(remaining).unwrap();
        assert_eq!(middle(&mut assembly, ID, bytes(4), remaining, now), wrong(seen, 20));
        assert_eq!(assembly.parts(), None);
    }
    let mut assembly = with_memory();
    assert_eq!(middle(&mut assembly, ID, bytes(16), 0, now), wrong(0, 0));
    for len in [0, 20, 28] {
        middle(&mut assembly, ID, bytes(16), 24, now).unwrap();
        assert_eq!(last(&mut assembly, ID, bytes(len)).map(|_| ()), wrong(len, 24));
        assert_eq!(assembly.parts(), None);
    }
}

#[test]
fn i5_length_and_number_of_the_parts_are_bounded() {
    let now = Instant::now();
    let mut assembly = with_memory();
    let too_long = |len| Err(ProtocolError::Two(Error::ContinuationTooLong { len, allowed: 100 }));
    assert_eq!(middle(&mut assembly, ID, bytes(4), 100, now), too_long(104));
    for remaining in [96, 92, 88] {
        middle(&mut assembly, ID, bytes(4), remaining, now).unwrap();
    }
    let too_many = Err(ProtocolError::Two(Error::TooManyParts { allowed: 4 }));
    assert_eq!(middle(&mut assembly, ID, bytes(4), 84, now), too_many);
    let mut assembly = with_memory();
    let vast = usize::try_from(u32::MAX).unwrap() + 4;
    assert_eq!(middle(&mut assembly, ID, bytes(4), u32::MAX, now), too_long(vast));
}

#[test]
fn v2_07_s7_1_4_what_was_given_up_is_passed_over_to_its_end() {
    let mut assembly = with_memory();
    assembly.give_up_parts(ID);
    assert!(passes(&mut assembly, ID, false));
    assert!(passes(&mut assembly, ID, true));
    assert!(!passes(&mut assembly, ID, true), "another message under this XID");
    // Other messages may come between.
    assembly.give_up_parts(ID);
    assert!(!passes(&mut assembly, (8, Direction::Call), true));
    assert!(!passes(&mut assembly, (7, Direction::Reply), true));
    assert!(passes(&mut assembly, ID, true));
}

/// Parts of two mixed messages never make a message.
#[test]
fn v2_07_s7_1_4_several_are_passed_over_at_a_time_but_not_any_number() {
    let mut assembly = with_memory();
    for xid in 0..=u32::try_from(GIVEN_UP).unwrap() {
        assembly.give_up_parts((xid, Direction::Call));
    }
    assert!(!passes(&mut assembly, (0, Direction::Call), true), "the oldest is forgotten");
    for xid in 1..=u32::try_from(GIVEN_UP).unwrap() {
        assert!(passes(&mut assembly, (xid, Direction::Call), true), "{xid}");
    }
    assert!(assembly.given_up.is_empty());
}

/// After a refused group only its transmissions are discarded, after refused parts only parts, whatever the XID is.
#[test]
fn only_fragments_of_the_same_notation_are_passed_over() {
    let later = |number| Place::Later(TransmitContinuation { number, initial_type: 5, payload_len: 0 });
    let mut assembly = with_memory();
    assembly.refuse_group(ID, 3);
    assert!(!passes(&mut assembly, ID, false) && !passes(&mut assembly, ID, true));
    assert!(!assembly.passes_over(ID, &later(0)));
    assert!(assembly.passes_over(ID, &later(1)) && !assembly.passes_over(ID, &later(1)), "each once");
    assert!(assembly.passes_over(ID, &later(2)));
    assert!(assembly.given_up.is_empty());
    assembly.give_up_parts(ID);
    assert!(!assembly.passes_over(ID, &later(1)));
    assert!(passes(&mut assembly, ID, true));
}

/// Rule I6: parts need no memory besides their Receives. With memory, those of scarcely filled Receives are copied.
#[test]
fn i6_parts_need_no_memory_and_hold_no_scarcely_filled_receives() {
    let now = Instant::now();
    let domain = ProtectionDomain::new(1 << 16);
    let pinned = domain.allocate(1 << 16, 1).unwrap();
    let part = |assembly: &mut Assembly, id, at: Range<usize>| {
        let remaining = u32::try_from(40 - at.end).unwrap();
        middle(assembly, id, bytes(40).slice(at), remaining, now)
    };
    let whole = |assembly: &mut Assembly, id, rest: Bytes| {
        let fragment = Fragment { id, message: rest, header: 0, place: Place::Last };
        assembly.take(now, fragment).unwrap().unwrap()
    };
    let mut assembly = assembly();
    assembly.use_domain(&domain);
    for id in [ID, (7, Direction::Reply)] {
        part(&mut assembly, id, 0..16).unwrap();
        let rest = bytes(40).slice(16..);
        let Assembled { payload, sends, copied, .. } = whole(&mut assembly, id, rest.clone());
        assert_eq!((payload == bytes(40), sends, copied), (true, 2, CopyCount::default()));
        assert_eq!(payload.iter().nth(1).unwrap().as_ptr(), rest.as_ptr());
    }
    part(&mut assembly, ID, 0..16).unwrap();
    drop(pinned);
    part(&mut assembly, ID, 16..24).unwrap();
    assert_eq!(domain.usage().in_use, 0, "the parts lie in their Receives");
    let Assembled { payload, sends, copied, .. } = whole(&mut assembly, ID, bytes(40).slice(24..));
    assert!(domain.usage().in_use > 0);
    assert_eq!((payload == bytes(40), sends), (true, 3));
    assert_eq!((payload.iter().count(), copied), (1, CopyCount { inline: 40, payload: 0 }));
    drop(payload);
    assert_eq!(domain.usage().in_use, 0);
}

/// Receives that are half full, all of them together, are not copied; one byte less, and those below half are. A Receive
/// without a byte of the message is not held, and does not count.
#[test]
fn i6_receives_that_are_half_full_are_not_copied() {
    for (parts, moved) in
        [(&[8, 8][..], 0), (&[12, 4], 0), (&[8, 4], 4), (&[4, 4], 8), (&[8, 0, 8], 0), (&[12, 0, 4], 0)]
    {
        let config = Config { receive_size: 16, ..Config::default() };
        let mut assembly = Assembly::new(&Arc::new(config));
        let domain = ProtectionDomain::new(1 << 20);
        assembly.use_domain(&domain);
        let runs: Vec<_> = parts.iter().map(|len| bytes(*len)).enumerate().collect();
        let scarce = assembly.scarcely_filled(runs.len(), runs.iter());
        let copied: usize = scarce.iter().map(|send| parts[*send]).sum();
        assert_eq!(copied, moved, "{parts:?}");
    }
}

/// version-two-07 §7.1.4: a message that is refused again is passed over once.
#[test]
fn v2_07_s7_1_4_a_message_is_given_up_once_at_a_time() {
    let mut assembly = with_memory();
    assembly.give_up_parts(ID);
    assembly.give_up_parts(ID);
    assert!(passes(&mut assembly, ID, true) && !passes(&mut assembly, ID, true));
    assembly.give_up_parts(ID);
    assembly.begins_anew(ID);
    assert!(!passes(&mut assembly, ID, false));
}

/// Rule I3: a Call in parts ends if it holds all Receives that its connection keeps memory for, and not before.
#[test]
fn i3_a_call_in_parts_that_holds_all_kept_receives_is_given_up() {
    for (id, kept, given_up) in [(ID, 2, true), (ID, 3, false), ((7, Direction::Reply), 2, false)] {
        let mut assembly = with_memory();
        middle(&mut assembly, id, bytes(8), 40, Instant::now()).unwrap();
        middle(&mut assembly, id, bytes(8), 32, Instant::now()).unwrap();
        assert_eq!(assembly.give_up_holder(kept), given_up.then_some((7, 16)), "{id:?}, {kept}");
    }
}

/// Parts that fill their Receives are handed on without a copy, also a short last one.
#[test]
fn parts_that_fill_their_receives_are_not_copied() {
    let config = Config { receive_size: 16, ..Config::default() };
    let mut assembly = Assembly::new(&Arc::new(config));
    assembly.use_domain(&ProtectionDomain::new(1 << 20));
    let all = bytes(36);
    middle(&mut assembly, ID, all.slice(..16), 20, Instant::now()).unwrap();
    middle(&mut assembly, ID, all.slice(16..32), 4, Instant::now()).unwrap();
    let fragment = Fragment { id: ID, message: all.slice(32..), header: 0, place: Place::Last };
    let Assembled { payload, copied, .. } = assembly.take(Instant::now(), fragment).unwrap().unwrap();
    assert_eq!((payload == all, copied), (true, CopyCount::default()));
    assert!(payload.iter().map(|slice| slice.as_ptr()).eq([0, 16, 32].map(|at| all[at..].as_ptr())));
}

/// Rule I6: the rest of a message has one deadline. While the peer lacks a credit for it, the time is that for memory.
#[test]
fn i6_the_rest_of_a_message_has_one_deadline() {
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { memory: 7 * second, continuation: 5 * second, ..Timeouts::default() };
    let mut assembly = Assembly::new(&Arc::new(Config { timeouts, ..Config::default() }));
    let now = Instant::now();
    assembly.time(false, now);
    assert_eq!(assembly.poll_timeout(), None, "nothing has begun");
    middle(&mut assembly, ID, bytes(16), 24, now).unwrap();
    assert_eq!(assembly.poll_timeout(), Some(now + 5 * second));
    assembly.time(true, now + second);
    assert_eq!(assembly.poll_timeout(), Some(now + 5 * second), "no pass renews it");
    assembly.time(false, now + second);
    assert_eq!(assembly.poll_timeout(), Some(now + 8 * second));
    assembly.time(false, now + 2 * second);
    assert_eq!(assembly.poll_timeout(), Some(now + 8 * second));
    assembly.time(true, now + 3 * second);
    assert_eq!(assembly.poll_timeout(), Some(now + 8 * second), "the credit came: five seconds from now on");
}

/// Version-two-07 §6.6.2: a message may have as many parts as the limit says, and fill the limit on its length.
#[test]
fn v2_07_s6_6_2_a_message_may_fill_its_limits() {
    let now = Instant::now();
    let mut assembly = assembly();
    for (part, remaining) in [(40, 60), (20, 40), (20, 20)] {
        middle(&mut assembly, ID, bytes(part), remaining, now).unwrap();
    }
    let (message, earlier) = last(&mut assembly, ID, bytes(20)).unwrap();
    assert_eq!((message.len(), earlier), (100, 3));
    let limits = Limits { continued_parts: 2, ..Limits::default() };
    let mut two = Assembly::new(&Arc::new(Config { limits, ..Config::default() }));
    middle(&mut two, ID, bytes(8), 8, now).unwrap();
    assert_eq!(last(&mut two, ID, bytes(8)).map(|(message, _)| message.len()), Ok(16));
}

/// What does not decode ends the parts of its own message only. A message that is given up has no deadline.
#[test]
fn v2_07_s7_1_4_only_the_message_itself_ends() {
    let now = Instant::now();
    let mut assembly = assembly();
    middle(&mut assembly, ID, bytes(16), 24, now).unwrap();
    assembly.undecoded_part(8, false);
    assert_eq!(assembly.parts(), Some(ID));
    assembly.give_up_parts(ID);
    assert_eq!((assembly.parts(), assembly.poll_timeout()), (None, None));
    assert!(passes(&mut assembly, ID, true));
}

/// Rule I6: only slices of scarcely filled Receives are copied; the others stay where they are.
#[test]
fn i6_slices_of_well_filled_receives_are_not_copied() {
    let config = Config { receive_size: 32, ..Config::default() };
    let mut assembly = Assembly::new(&Arc::new(config));
    assembly.use_domain(&ProtectionDomain::new(1 << 20));
    let all = bytes(32);
    let now = Instant::now();
    for (range, remaining) in [(0..20, 12), (20..24, 8), (24..28, 4)] {
        middle(&mut assembly, ID, all.slice(range), remaining, now).unwrap();
    }
    let fragment = Fragment { id: ID, message: all.slice(28..), header: 0, place: Place::Last };
    let Assembled { payload, copied, .. } = assembly.take(now, fragment).unwrap().unwrap();
    assert_eq!((payload == all, copied), (true, CopyCount { inline: 12, payload: 0 }));
    assert_eq!(payload.iter().next().unwrap().as_ptr(), all.as_ptr());
}

/// version-two-07 §7.1.4: a message of which nothing more can come takes no place among those that are ignored.
#[test]
fn v2_07_s7_1_4_a_message_without_a_rest_is_not_remembered() {
    let mut assembly = with_memory();
    assembly.give_up_parts(ID);
    for xid in 100..100 + u32::try_from(GIVEN_UP).unwrap() {
        assembly.refuse_group((xid, Direction::Call), 1);
    }
    assert!(passes(&mut assembly, ID, true));
}
