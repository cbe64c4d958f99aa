//! Rules of the exchange that need no connection.

use bytes::Bytes;

use super::*;
use crate::two::characteristics::{EXPERIMENTAL, Exchanged, REGISTERED_MAX, Registered, ReverseSupport};

const ID: u32 = EXPERIMENTAL + 1;
const FIXED: u32 = EXPERIMENTAL + 2;

/// All earlier messages of both sides have arrived, and no Call of ours is in flight.
const NOW: Progress =
    Progress { mark: Mark::after_calls(5), shown: Shown { answered: 9, received: 0 }, oldest: None };

/// No message of ours has surely arrived.
const UNPROVED: Progress = Progress { shown: Shown { answered: 0, received: 0 }, ..NOW };

/// A side that may not announce itself yet.
fn silent(profile: Profile, enabled: bool, may_invalidate: bool) -> Exchanges {
    let mut characteristics = Exchanged { enabled, most_receive_size: 16_384, ..Exchanged::default() };
    for (id, changeable) in [(ID, true), (FIXED, false)] {
        let registered = Registered::new(id, Bytes::from_static(b"own"), changeable).unwrap();
        characteristics.register(registered).unwrap();
    }
    let config = Config { characteristics, ..Config::default() };
    Exchanges::new(profile, &config, 8192, ReverseSupport::Inline, may_invalidate)
}

fn with(profile: Profile, enabled: bool, may_invalidate: bool) -> Exchanges {
    let mut exchanges = silent(profile, enabled, may_invalidate);
    exchanges.begin();
    exchanges
}

/// A side with Receives of 8192 bytes that has announced itself, under the XID 1.
fn announced(profile: Profile) -> Exchanges {
    let mut exchanges = with(profile, true, true);
    assert!(matches!(sent(&mut exchanges, 1), Some(Exchange::Initial { .. })));
    exchanges
}

/// Sends the next operation under this XID.
fn sent(exchanges: &mut Exchanges, xid: u32) -> Option<Exchange> {
    sent_at(exchanges, xid, NOW)
}

/// Sends the next operation under this XID, if this progress allows one.
fn sent_at(exchanges: &mut Exchanges, xid: u32, progress: Progress) -> Option<Exchange> {
    let Operation { body, .. } = exchanges.next(progress)?;
    exchanges.sent_under(xid, &body);
    let Body::Two(two::Body::Exchange(exchange)) = body else { panic!("{body:?}") };
    Some(exchange)
}

fn registered(id: u32, data: &[u8]) -> Characteristic {
    Characteristic::Registered { id, data: Bytes::copy_from_slice(data) }
}

const fn size(size: u32) -> Characteristic {
    Characteristic::ReceiveSize(size)
}

fn values(profile: Profile, values: &[Characteristic]) -> Vec<Value> {
    values.iter().map(|value| value.encode(profile).unwrap()).collect()
}

fn requested(
    exchanges: &mut Exchanges,
    profile: Profile,
    want: &[Characteristic],
) -> Result<Option<u32>, ProtocolError> {
    exchanges.handle(9, Exchange::Request { want: values(profile, want) }, NOW, 64)
}

/// Returns the next response: the values that are done, rejected and open.
fn response(exchanges: &mut Exchanges) -> Option<(Subset, Subset, Rest)> {
    match exchanges.next_answer()?.body {
        Body::Two(two::Body::Exchange(Exchange::Response { done, rejected, rest })) => {
            Some((done, rejected, rest))
        }
        other => panic!("{other:?}"),
    }
}

/// The announcement of a peer whose values are all the defaults.
fn hear(exchanges: &mut Exchanges) {
    exchanges.handle(7, Exchange::Initial { start: vec![], constant: places([]) }, NOW, 64).unwrap();
}

fn places<const N: usize>(places: [usize; N]) -> Subset {
    places.into_iter().collect()
}

#[test]
fn xcharext_s4_4_a_response_says_what_becomes_of_each_value() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    let takes = Characteristic::RemoteInvalidation;
    let want =
        [size(262_144), takes(true), registered(ID, b"theirs"), registered(FIXED, b"theirs"), takes(false)];
    assert_eq!(requested(&mut exchanges, profile, &want), Ok(None));
    let (done, rejected, rest) = response(&mut exchanges).unwrap();
    assert_eq!((done, rejected, rest), (places([1, 2, 4]), places([0, 3]), Rest::Pending(places([]))));
    assert!(!exchanges.ours().remote_invalidation);
    assert_eq!(exchanges.ours().registered[&ID], b"theirs"[..]);
    assert_eq!(exchanges.ours().registered[&FIXED], b"own"[..]);
    requested(&mut exchanges, profile, &[takes(true)]).unwrap();
    assert_eq!(response(&mut exchanges).unwrap().0, places([0]));
    assert!(exchanges.ours().remote_invalidation, "what it can do, it does again");
    // A provider that cannot do it is not asked to.
    let mut exchanges = with(profile, true, false);
    requested(&mut exchanges, profile, &[takes(true)]).unwrap();
    assert_eq!(response(&mut exchanges).unwrap().1, places([0]));
}

/// A second size in one request is refused, and so is every size while a change is under way or not yet announced.
#[test]
fn xcharext_s4_4_one_change_of_the_receive_size_is_pending() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    let posted = requested(&mut exchanges, profile, &[size(16_384), size(12_288)]);
    assert_eq!(posted, Ok(Some(16_384)), "Receives of this size are posted from now on");
    let (done, rejected, rest) = response(&mut exchanges).unwrap();
    assert_eq!((done, rejected, rest), (places([]), places([1]), Rest::Pending(places([0]))));
    assert_eq!(requested(&mut exchanges, profile, &[size(8192)]), Ok(None));
    assert_eq!(response(&mut exchanges).unwrap().1, places([0]), "the present size is about to change");
    assert_eq!(exchanges.advance(NOW, Some(8192)), None);
    assert!(exchanges.has_something_to_do());
    assert_eq!(sent(&mut exchanges, 2), None, "a smaller Receive is posted yet");
    exchanges.advance(NOW, Some(16_384));
    requested(&mut exchanges, profile, &[size(12_288)]).unwrap();
    assert_eq!(response(&mut exchanges).unwrap().1, places([0]), "the completion is not announced");
    let now = values(profile, &[size(16_384)]);
    assert_eq!(sent(&mut exchanges, 2), Some(Exchange::Update { now, clears: true }));
    requested(&mut exchanges, profile, &[size(12_288)]).unwrap();
    assert_eq!(response(&mut exchanges).unwrap().2, Rest::Pending(places([0])));
}

/// version-two-03 §5.3.3: a response that waits names each value once. The decrease waits for the Calls that counted on
/// the size before.
#[test]
fn v2_03_s5_3_3_a_decrease_waits_for_earlier_calls_and_is_answered_then() {
    let profile = Profile::P2;
    let mut exchanges = announced(profile);
    hear(&mut exchanges);
    assert_eq!(exchanges.receive(), 8192);
    let want = [size(4096), size(6000), registered(ID, b"theirs")];
    assert_eq!(requested(&mut exchanges, profile, &want), Ok(None), "no Receive shrinks yet");
    assert_eq!(exchanges.receive(), 4096, "new Calls plan by the lower size at once");
    assert_eq!(response(&mut exchanges), None);
    let with_oldest = |oldest| Progress { oldest: Some(oldest), ..NOW };
    assert!(exchanges.is_lowering());
    assert_eq!(exchanges.advance(with_oldest(5), None), None, "Call 5 counted on the size before");
    assert_eq!(response(&mut exchanges), None);
    assert_eq!(exchanges.advance(with_oldest(6), None), Some(4096));
    let (done, rejected, rest) = response(&mut exchanges).unwrap();
    assert_eq!((done, rejected, rest), (places([0, 2]), places([1]), Rest::Other(vec![])));
    assert!(!exchanges.is_lowering());
}

/// xcharext-02 §3.1: of itself, a side only increases the size, and announces the increase when each Receive has it.
#[test]
fn xcharext_s3_1_a_side_increases_its_size_and_says_so_afterwards() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    assert_eq!(exchanges.change(size(16_384)), Ok(Some(16_384)));
    assert_eq!(exchanges.change(size(8192)), Err(NotExchanged::Reduction { size: 8192, now: 16_384 }));
    assert_eq!(exchanges.change(size(16_384)), Ok(None), "that is under way");
    assert!(!exchanges.is_lowering());
    assert_eq!(exchanges.advance(NOW, Some(8192)), None);
    assert_eq!(sent(&mut exchanges, 2), None);
    assert_eq!(exchanges.advance(NOW, Some(16_384)), None);
    let now = values(profile, &[size(16_384)]);
    assert_eq!(sent(&mut exchanges, 2), Some(Exchange::Update { now, clears: false }));
}

/// A value that changes before its announcement could leave is announced once, with its last value.
#[test]
fn xcharext_s4_3_an_update_says_the_last_value_of_its_characteristic() {
    let profile = Profile::P1;
    let mut exchanges = with(profile, true, true);
    exchanges.change(registered(ID, b"before")).unwrap();
    assert!(matches!(sent(&mut exchanges, 1), Some(Exchange::Initial { .. })));
    assert_eq!(sent(&mut exchanges, 2), None, "the announcement has the value already");
    let takes = Characteristic::RemoteInvalidation(false);
    for value in [registered(ID, b"first"), takes.clone(), registered(ID, b"last")] {
        assert_eq!(exchanges.change(value), Ok(None));
    }
    assert!(exchanges.has_something_to_do());
    for (xid, value) in [(2, registered(ID, b"last")), (3, takes)] {
        let now = values(profile, &[value]);
        assert_eq!(sent(&mut exchanges, xid), Some(Exchange::Update { now, clears: false }));
    }
    assert_eq!(sent(&mut exchanges, 4), None);
    // A change at the peer's request corrects an update that waits.
    exchanges.change(registered(FIXED, b"ours")).unwrap();
    exchanges.change(registered(ID, b"ours")).unwrap();
    requested(&mut exchanges, profile, &[registered(ID, b"theirs")]).unwrap();
    assert!(response(&mut exchanges).is_some());
    for (xid, value) in [(4, registered(FIXED, b"ours")), (5, registered(ID, b"theirs"))] {
        let now = values(profile, &[value]);
        assert_eq!(sent(&mut exchanges, xid), Some(Exchange::Update { now, clears: false }));
    }
}

#[test]
fn values_that_a_side_cannot_have_are_neither_announced_nor_asked_for() {
    let mut exchanges = announced(Profile::P1);
    for value in [size(4095), size(262_145), registered(ID, &[0; REGISTERED_MAX + 1])] {
        assert_eq!(exchanges.change(value.clone()), Err(NotExchanged::Impossible(value.clone())));
        assert_eq!(exchanges.ask(vec![value.clone()], 8), Err(NotExchanged::Impossible(value)));
    }
    let unknown = registered(EXPERIMENTAL + 9, b"");
    assert_eq!(exchanges.change(unknown.clone()), Err(NotExchanged::Unknown(unknown.clone())));
    assert_eq!(exchanges.ask(vec![unknown.clone()], 8), Err(NotExchanged::Unknown(unknown)));
    for value in [Characteristic::Combined(3), Characteristic::RequestLimit(3)] {
        assert_eq!(exchanges.change(value.clone()), Err(NotExchanged::Impossible(value)));
    }
    assert_eq!(exchanges.change(registered(ID, &[0; REGISTERED_MAX])), Ok(None));
    let takes = Characteristic::RemoteInvalidation;
    assert_eq!(announced(Profile::P2).change(takes(true)), Err(NotExchanged::Unknown(takes(true))));
    assert_eq!(announced(Profile::P1).change(takes(true)), Ok(None));
    let mut cannot = with(Profile::P1, true, false);
    assert_eq!(cannot.change(takes(true)), Err(NotExchanged::Impossible(takes(true))));
    assert_eq!(cannot.change(takes(false)), Ok(None));
    let mut disabled = with(Profile::P1, false, true);
    assert_eq!(disabled.change(takes(false)), Err(NotExchanged::Unsupported));
    assert_eq!(disabled.ask(vec![takes(false)], 8), Err(NotExchanged::Unsupported));
    assert_eq!(sent(&mut disabled, 1), None, "nothing is announced");
    let mut once = with(Profile::P3, true, true);
    assert_eq!(once.change(takes(false)), Err(NotExchanged::ToldOnce));
    assert_eq!(once.ask(vec![takes(false)], 8), Err(NotExchanged::ToldOnce));
}

#[test]
fn i6_requests_to_the_peer_are_bounded_in_number_and_length() {
    let mut exchanges = announced(Profile::P1);
    let count = |count, allowed| Err(NotExchanged::Count { count, allowed });
    assert_eq!(exchanges.ask(vec![], 8), count(0, 8));
    assert_eq!(exchanges.ask(vec![size(8192), registered(ID, b"")], 1), count(2, 1));
    let all = |many: u32| (0..many).map(|_| size(8192)).collect::<Vec<_>>();
    assert_eq!(exchanges.ask(all(9), 100), count(9, super::super::REGISTERED_MOST));
    assert!(matches!(exchanges.ask(all(8), 100), Err(NotExchanged::Twice(_))), "as many are possible");
    for number in 0..16 {
        assert_eq!(exchanges.ask(vec![size(8192)], 8), Ok(number));
    }
    assert_eq!(exchanges.ask(vec![size(8192)], 8), Err(NotExchanged::Busy { waiting: 16 }));
    assert!(matches!(sent(&mut exchanges, 2), Some(Exchange::Request { .. })));
    assert_eq!(sent(&mut exchanges, 3), None, "one is open at a time");
    assert_eq!(exchanges.ask(vec![size(8192)], 8), Ok(16));
}

/// xcharext-02 §4.3: an update ends the open change of its own characteristic, if it says so.
#[test]
fn xcharext_s4_3_an_update_completes_what_was_pending() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    hear(&mut exchanges);
    let number = exchanges.ask(vec![size(16_384)], 8).unwrap();
    assert_eq!(exchanges.send(100_000, 100_000), (4096, 4096));
    assert!(matches!(sent(&mut exchanges, 2), Some(Exchange::Request { .. })));
    let answer =
        || Exchange::Response { done: places([]), rejected: places([]), rest: Rest::Pending(places([0])) };
    let unexpected = two::Error::UnexpectedResponse { xid: 3 };
    assert_eq!(exchanges.handle(3, answer(), NOW, 64), Err(unexpected.into()), "of another request");
    exchanges.notices.clear();
    exchanges.handle(2, answer(), NOW, 64).unwrap();
    let dispositions = vec![(size(16_384), Disposition::Pending)];
    assert_eq!(exchanges.notices, [Notice::Answered { request: number, dispositions }]);
    let mut update = |value: &Characteristic, clears| {
        exchanges.notices.clear();
        let now = values(profile, std::slice::from_ref(value));
        exchanges.handle(8, Exchange::Update { now, clears }, NOW, 64).unwrap();
        std::mem::take(&mut exchanges.notices)
    };
    for (value, clears) in [(size(8192), false), (registered(ID, b"x"), true)] {
        assert!(matches!(&update(&value, clears)[..], [Notice::Peer(_)]), "{value:?}");
    }
    let completed = update(&size(16_384), true);
    assert!(matches!(&completed[..], [Notice::Completed(value), Notice::Peer(_)] if *value == size(16_384)));
    assert!(matches!(&update(&size(16_384), true)[..], [Notice::Peer(_)]), "once");
    assert_eq!(exchanges.send(100_000, 100_000), (16_384, 16_384));
    assert_eq!(exchanges.send(1024, 2048), (1024, 2048));
}

/// Xcharext-02 §3.1: a peer reduces its size when it is asked for that, and not for another change.
#[test]
fn xcharext_s3_1_a_change_of_another_kind_asks_for_no_reduction() {
    let profile = Profile::P1;
    let reduced = || Exchange::Update { now: values(profile, &[size(4096)]), clears: false };
    for (want, unasked) in [(registered(ID, b"x"), true), (size(4096), false)] {
        let mut exchanges = announced(profile);
        let start = values(profile, &[size(8192)]);
        exchanges.handle(7, Exchange::Initial { start, constant: places([]) }, NOW, 64).unwrap();
        assert!(matches!(&exchanges.notices[..], [Notice::Peer(told)] if told.receive_size == 8192));
        exchanges.ask(vec![want], 8).unwrap();
        sent(&mut exchanges, 2).unwrap();
        let rest = Rest::Pending(places([0]));
        let answer = Exchange::Response { done: places([]), rejected: places([]), rest };
        exchanges.handle(2, answer, NOW, 64).unwrap();
        exchanges.handle(8, reduced(), NOW, 64).unwrap();
        let fault = two::Error::UnaskedReduction { size: 4096, before: 8192 };
        assert_eq!(exchanges.faults, Vec::from_iter(unasked.then_some(fault)));
    }
}

/// version-two-03 §5.3.3: places beyond the request are a fault, and a value that is named twice is rejected.
#[test]
fn v2_03_s5_3_3_a_response_beyond_its_request_is_a_fault() {
    for (rejected, fault) in [
        (places([0]), None),
        (places([0, 1]), Some(two::Error::SubsetTooLong { end: 2, len: 1 })),
        (places([]), Some(two::Error::ResponseUnclear { place: 0, saying: "nothing" })),
    ] {
        let mut exchanges = announced(Profile::P2);
        exchanges.ask(vec![registered(ID, b"x")], 8).unwrap();
        assert!(matches!(sent(&mut exchanges, 2), Some(Exchange::Request { .. })));
        let answer = Exchange::Response { done: places([]), rejected, rest: Rest::Other(vec![]) };
        exchanges.handle(2, answer, NOW, 64).unwrap();
        assert_eq!(exchanges.faults, Vec::from_iter(fault));
        let [Notice::Answered { dispositions, .. }] = &exchanges.notices[..] else { panic!("an answer") };
        assert_eq!(dispositions[0].1, Disposition::Rejected);
    }
    let mut exchanges = announced(Profile::P2);
    exchanges.ask(vec![registered(ID, b"x")], 8).unwrap();
    sent(&mut exchanges, 2).unwrap();
    let answer = Exchange::Response { done: places([0]), rejected: places([0]), rest: Rest::Other(vec![]) };
    exchanges.handle(2, answer, NOW, 64).unwrap();
    let [Notice::Answered { dispositions, .. }] = &exchanges.notices[..] else { panic!("an answer") };
    assert_eq!(dispositions[0].1, Disposition::Rejected);
    let twice = two::Error::ResponseUnclear { place: 0, saying: "several things" };
    assert_eq!(exchanges.faults, [twice]);
    let none = || places([]);
    for (done, rejected, pending) in
        [(places([0, 1]), none(), none()), (none(), places([0, 1]), none()), (none(), none(), places([0, 1]))]
    {
        let mut exchanges = announced(Profile::P1);
        exchanges.ask(vec![registered(ID, b"x")], 8).unwrap();
        sent(&mut exchanges, 2).unwrap();
        let answer = Exchange::Response { done, rejected, rest: Rest::Pending(pending) };
        exchanges.handle(2, answer, NOW, 64).unwrap();
        assert_eq!(exchanges.faults, [two::Error::SubsetTooLong { end: 2, len: 1 }]);
    }
}

/// xcharext-02 §4: a peer that refuses the first operation exchanges nothing, so every request has ended.
#[test]
fn xcharext_s4_a_refusal_ends_all_requests() {
    let mut exchanges = with(Profile::P1, true, true);
    exchanges.handle_refusal(1);
    assert_eq!(exchanges.is_exchanged(), None, "nothing was sent that this could refuse");
    sent(&mut exchanges, 1).unwrap();
    let numbers = [b"a", b"b"].map(|data| exchanges.ask(vec![registered(ID, data)], 8).unwrap());
    assert_eq!(numbers, [0, 1]);
    exchanges.change(registered(ID, b"c")).unwrap();
    exchanges.handle_refusal(1);
    let ended = |number| Notice::Answered {
        request: number,
        dispositions: vec![(
            registered(ID, [b"a", b"b"][usize::try_from(number).unwrap()]),
            Disposition::Rejected,
        )],
    };
    assert_eq!(exchanges.notices, [ended(0), ended(1), Notice::Unsupported]);
    assert_eq!((exchanges.is_exchanged(), sent(&mut exchanges, 2)), (Some(false), None));
    assert!(!exchanges.has_something_to_do());
    assert_eq!(exchanges.receive(), 4096);
    exchanges.handle_refusal(1);
    assert_eq!(exchanges.notices.len(), 3, "once");
    exchanges.change(registered(ID, b"d")).unwrap();
    assert_eq!(sent(&mut exchanges, 2), None, "it would be refused too");
}

/// A peer that exchanges characteristics may refuse one operation; the others go on.
#[test]
fn xcharext_s4_the_refusal_of_one_operation_ends_only_that() {
    let mut exchanges = announced(Profile::P1);
    hear(&mut exchanges);
    for data in [b"a", b"b"] {
        exchanges.ask(vec![registered(ID, data)], 8).unwrap();
    }
    exchanges.change(registered(FIXED, b"c")).unwrap();
    assert!(matches!(sent(&mut exchanges, 2), Some(Exchange::Update { .. })));
    assert!(matches!(sent(&mut exchanges, 3), Some(Exchange::Request { .. })));
    exchanges.notices.clear();
    exchanges.handle_refusal(3);
    let dispositions = vec![(registered(ID, b"a"), Disposition::Rejected)];
    assert_eq!(exchanges.notices, [Notice::Answered { request: 0, dispositions }]);
    assert_eq!((exchanges.is_exchanged(), exchanges.receive()), (Some(true), 8192));
    assert!(matches!(sent(&mut exchanges, 4), Some(Exchange::Request { .. })));
    // The peer may not know the size that a refused operation announced, or that a smaller one is not.
    exchanges.handle_refusal(5);
    assert_eq!(exchanges.receive(), 4096);
    requested(&mut exchanges, Profile::P1, &[size(6000)]).unwrap();
    assert!(exchanges.is_lowering());
    assert_eq!(exchanges.receive(), 4096);
}

/// Answers that wait to leave are bounded, whatever the limit of operations.
#[test]
fn i6_a_peer_does_not_pile_up_answers() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    for _ in 0..ANSWERS {
        requested(&mut exchanges, profile, &[size(8192)]).unwrap();
    }
    let too_many = two::Error::TooManyOperations { allowed: 64 };
    assert_eq!(requested(&mut exchanges, profile, &[size(8192)]), Err(too_many.into()));
    assert!(exchanges.next_answer().is_some());
    assert_eq!(requested(&mut exchanges, profile, &[size(8192)]), Ok(None));
}

/// A Call or reply between operations begins their count anew.
#[test]
fn i6_operations_are_counted_from_the_last_call_or_reply() {
    let mut exchanges = announced(Profile::P1);
    let update = |exchanges: &mut Exchanges| {
        exchanges.handle(8, Exchange::Update { now: vec![], clears: false }, NOW, 2).map(drop)
    };
    for _ in 0..3 {
        assert_eq!((update(&mut exchanges), update(&mut exchanges)), (Ok(()), Ok(())));
        exchanges.rpc_received();
    }
    assert_eq!((update(&mut exchanges), update(&mut exchanges)), (Ok(()), Ok(())));
    assert_eq!(update(&mut exchanges), Err(two::Error::TooManyOperations { allowed: 2 }.into()));
}

/// A size that is not exchanged on this side stays the default, whatever the peer announces (version-two-07 §6.3.4).
#[test]
fn v2_07_s6_3_4_a_side_that_exchanges_nothing_keeps_to_the_defaults() {
    for (enabled, expected) in [(true, 16_384), (false, 4096)] {
        let mut exchanges = with(Profile::P3, enabled, true);
        let start = values(Profile::P3, &[size(16_384)]);
        exchanges.handle(7, Exchange::Initial { start, constant: places([]) }, NOW, 64).unwrap();
        assert_eq!(exchanges.peer().receive_size, expected);
        assert!(matches!(&exchanges.notices[..], [Notice::Peer(_)]));
    }
}

/// Xcharext-02 §4: an operation of a profile without it, or of a side that exchanges nothing, is refused by its own code.
#[test]
fn v2_01_s3_1_operations_that_are_not_taken_are_refused() {
    let unknown = || ProtocolError::from(two::Error::UnknownOperation { operation: 0 });
    let update = || Exchange::Update { now: vec![], clears: false };
    let part = || Exchange::Part { start: vec![] };
    let procedure = ProtocolError::UnknownProcedure { procedure: 0 };
    for (profile, enabled, exchange, error) in [
        (Profile::P1, false, update(), unknown()),
        (Profile::P2, false, update(), procedure),
        (Profile::P1, true, part(), unknown()),
        (Profile::P2, true, part(), unknown()),
        (Profile::P3, true, update(), unknown()),
    ] {
        let mut exchanges = with(profile, enabled, true);
        assert_eq!(exchanges.handle(7, exchange, NOW, 64), Err(error), "{profile:?} {enabled}");
        assert_eq!(exchanges.is_exchanged(), None);
    }
}

/// Rule I6: data of a registered characteristic is as long as its owner may register it, and no longer.
#[test]
fn i6_registered_data_of_the_peer_has_a_limit() {
    let profile = Profile::P1;
    for (len, taken) in [(REGISTERED_MAX, true), (REGISTERED_MAX + 1, false)] {
        let mut exchanges = announced(profile);
        let start = values(profile, &[registered(ID, &vec![0; len])]);
        let bad = two::Error::BadCharacteristic { id: ID, len };
        let expected = if taken { Ok(None) } else { Err(bad.into()) };
        assert_eq!(exchanges.handle(7, Exchange::Initial { start, constant: places([]) }, NOW, 64), expected);
    }
}

/// Version-two-03 §5.3.3: a response has values in place of "pending".
#[test]
fn v2_03_s5_3_3_a_response_names_values_and_nothing_that_is_open() {
    let profile = Profile::P2;
    let mut exchanges = announced(profile);
    requested(&mut exchanges, profile, &[registered(ID, b"theirs")]).unwrap();
    let (done, rejected, rest) = response(&mut exchanges).unwrap();
    assert_eq!((done, rejected, rest), (places([0]), places([]), Rest::Other(vec![])));
}

/// Version-two-01 §2.3, rtrext-02 §8.3: a peer may request no Receive below 4096 bytes, the configured least size, or the
/// structure in which it places items.
#[test]
fn v2_01_s2_3_receives_do_not_shrink_below_what_is_needed() {
    use crate::two::settings::TransmissionSettings;
    use crate::wire::two::transmission::BufferStructure;
    let profile = Profile::P1;
    let structure = BufferStructure::with_items(1, 7168);
    assert_eq!(structure.total, 8192);
    for (least_receive_size, structure, refused, taken) in
        [(1024, None, 4095, 4096), (6000, None, 5999, 6000), (1024, Some(structure), 8191, 8192)]
    {
        let mut characteristics = Exchanged::default();
        (characteristics.least_receive_size, characteristics.most_receive_size) =
            (least_receive_size, 16_384);
        let transmissions = TransmissionSettings { structure, ..TransmissionSettings::default() };
        let versions = crate::Versions::two(profile);
        let config =
            Config { characteristics, transmissions, versions, receive_size: 8192, ..Config::default() };
        for (wanted, rejected) in [(refused, places([0])), (taken, places([]))] {
            let mut exchanges = Exchanges::new(profile, &config, 16_384, ReverseSupport::Inline, true);
            requested(&mut exchanges, profile, &[size(wanted)]).unwrap();
            assert_eq!(response(&mut exchanges).unwrap().1, rejected, "{wanted}");
        }
    }
}

/// One message in a Send is what every side takes, whatever its limit.
#[test]
fn a_side_takes_one_message_in_a_send_at_least() {
    for (limit, combined) in [(0, 1), (1, 1), (4, 4)] {
        let limits = Limits { combined_messages: limit, ..Limits::default() };
        let config = Config { limits, ..Config::default() };
        let exchanges = Exchanges::new(Profile::P1, &config, 8192, ReverseSupport::Inline, true);
        assert_eq!(exchanges.ours().combined, combined);
    }
}

/// Replies are planned by what the peer knows of our Receives for certain. A smaller size holds before its announcement
/// leaves, a larger one when the peer has shown that it exchanges characteristics.
#[test]
fn xcharext_s3_1_replies_are_no_longer_than_both_sides_know() {
    let profile = Profile::P1;
    let mut exchanges = announced(profile);
    assert_eq!(exchanges.receive(), 4096, "the peer may take no part");
    hear(&mut exchanges);
    assert_eq!(exchanges.receive(), 8192);
    assert_eq!(requested(&mut exchanges, profile, &[size(4096)]), Ok(None));
    assert_eq!(exchanges.advance(NOW, None), Some(4096));
    assert!(!exchanges.is_lowering());
    assert_eq!(exchanges.receive(), 4096, "before the update leaves");
}

/// The answer to an operation proves its arrival, so that the next one may leave.
#[test]
fn xcharext_s4_a_refusal_proves_that_its_operation_has_arrived() {
    let mut exchanges = announced(Profile::P1);
    hear(&mut exchanges);
    for value in [registered(ID, b"a"), registered(FIXED, b"b")] {
        exchanges.change(value).unwrap();
    }
    assert!(matches!(sent(&mut exchanges, 2), Some(Exchange::Update { .. })));
    assert_eq!(sent_at(&mut exchanges, 3, UNPROVED), None);
    exchanges.handle_refusal(2);
    assert!(matches!(sent_at(&mut exchanges, 3, UNPROVED), Some(Exchange::Update { .. })));
}

/// Version-two-01 §4.2.2: an operation that has arrived and gets no answer gives its XID back.
#[test]
fn v2_01_s4_2_2_the_xid_of_an_operation_is_free_when_that_is_over() {
    let mut exchanges = announced(Profile::P1);
    assert!(exchanges.knows(1));
    assert_eq!(sent_at(&mut exchanges, 2, UNPROVED), None);
    assert!(exchanges.knows(1), "the peer may still refuse it");
    assert_eq!(sent(&mut exchanges, 2), None);
    assert!(!exchanges.knows(1));
}

/// Xcharext-02 §4.1: a server waits for the client's announcement. What the client requests before that is done, and
/// completed after our own announcement.
#[test]
fn xcharext_s4_1_nothing_leaves_before_the_announcement() {
    let profile = Profile::P1;
    let mut exchanges = silent(profile, true, true);
    exchanges.ask(vec![registered(ID, b"theirs")], 8).unwrap();
    assert_eq!(sent(&mut exchanges, 1), None);
    assert_eq!(requested(&mut exchanges, profile, &[size(16_384)]), Ok(Some(16_384)));
    assert_eq!(response(&mut exchanges).unwrap().2, Rest::Pending(places([0])));
    assert_eq!(exchanges.advance(NOW, Some(16_384)), None);
    assert_eq!(sent(&mut exchanges, 1), None);
    hear(&mut exchanges);
    assert!(matches!(sent(&mut exchanges, 1), Some(Exchange::Initial { .. })));
    let now = values(profile, &[size(16_384)]);
    assert_eq!(sent(&mut exchanges, 2), Some(Exchange::Update { now, clears: true }));
    assert!(matches!(sent(&mut exchanges, 3), Some(Exchange::Request { .. })));
}

/// Xcharext-02 §4.3: an update that completes a requested change says so, also if it waits together with another change
/// of that value.
#[test]
fn xcharext_s4_3_an_update_that_waits_completes_what_was_requested() {
    let profile = Profile::P1;
    // Our own change waits; the peer's request changes the size again, and the other way around.
    for ours_first in [true, false] {
        let mut exchanges = announced(profile);
        let mut last = 0;
        for (ours, wanted) in [(ours_first, 12_288), (!ours_first, 16_384)] {
            if ours {
                assert_eq!(exchanges.change(size(wanted)), Ok(Some(wanted)));
            } else {
                assert_eq!(requested(&mut exchanges, profile, &[size(wanted)]), Ok(Some(wanted)));
                let open = response(&mut exchanges).unwrap().2;
                assert_eq!(open, Rest::Pending(places([0])), "no change that was requested is open");
            }
            assert_eq!(exchanges.advance(NOW, None), None);
            last = wanted;
        }
        let now = values(profile, &[size(last)]);
        assert_eq!(sent(&mut exchanges, 2), Some(Exchange::Update { now, clears: true }));
        assert_eq!(sent(&mut exchanges, 3), None);
    }
}

/// Xcharext-02 §3.1: a decrease that this side makes smaller still waits for earlier Calls. At the present size and above
/// nothing has to wait.
#[test]
fn xcharext_s3_1_a_decrease_is_over_at_the_present_size() {
    let profile = Profile::P1;
    for (grown, posted) in [(6000, None), (8191, None), (8192, Some(8192)), (16_384, Some(16_384))] {
        let mut exchanges = announced(profile);
        assert_eq!(requested(&mut exchanges, profile, &[size(4096)]), Ok(None));
        assert_eq!(exchanges.change(size(grown)), Ok(posted), "{grown}");
        assert_eq!(exchanges.is_lowering(), posted.is_none());
    }
}
