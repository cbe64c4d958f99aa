use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const LEN: usize = 4096;

/// A ledger with these largest numbers of calls and grants; both sides begin with one.
fn ledger(side: Side, calls: u32, grant: u32) -> Ledger {
    let (calls, served) = (RequesterCredits::new(calls, 1), ResponderCredits::new(grant, 1));
    Ledger::new(side, calls, served, ReceiveSize { len: LEN, align: 1 })
}

/// A domain with memory for this many Receives.
fn domain(receives: usize) -> ProtectionDomain {
    ProtectionDomain::new(receives * ProtectionDomain::room_for(LEN))
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

/// Posts the reserved Receives; returns their memory.
fn post(ledger: &mut Ledger) -> Vec<ReceiveMemory> {
    std::iter::from_fn(|| ledger.next_receive()).collect()
}

/// Sends a Call of one Send, if the ledger permits that.
fn call(ledger: &mut Ledger, domain: &ProtectionDomain) -> Result<(Permit, Lease), Wait> {
    ledger.may_call()?;
    ledger.ask_call((1, 1), true, domain).map(|offer| ledger.take_call(offer))
}

/// Sends the answer to a Call; returns its grant.
fn answer(ledger: &mut Ledger, charge: Charge, domain: &ProtectionDomain) -> u32 {
    let offer = ledger.ask_answer(1, (false, false), domain).unwrap();
    ledger.take_answer(offer, charge).credit()
}

// requirement: rfc8166-3.3.1-3
#[test]
fn i3_a_call_leaves_after_the_receive_for_its_reply() {
    let (mut ledger, domain) = (ledger(Side::Client, 8, 1), domain(2));
    assert_eq!(ledger.reserve_receives(&domain), 0);
    let mut posted = post(&mut ledger);
    assert_eq!(posted.len(), 1, "for a Call of the peer");
    let (permit, lease) = call(&mut ledger, &domain).unwrap();
    posted.extend(post(&mut ledger));
    assert_eq!((posted.len(), permit.credit(), permit.grant()), (2, 8, None));
    ledger.settle(lease, Settled::Answered { grant: 8 });
    // The message that used the Receive is still in progress.
    ledger.receives.complete();
    assert_eq!(call(&mut ledger, &domain).unwrap_err(), Wait::Receives(ledger.receives.room_for_one()));
    drop(posted.remove(0));
    assert!(call(&mut ledger, &domain).is_ok());
}

/// An answer proves to the peer that an operation on characteristics has arrived. The peer may then send another one, and the
/// Receive for that is there. The credits of other Calls in progress do not make up for it.
#[test]
fn i3_an_answer_leaves_after_the_receives_for_operations() {
    let (mut ledger, domain) = (ledger(Side::Server, 1, 2), domain(4));
    ledger.keep_for_operations(2);
    assert_eq!(ledger.reserve_receives(&domain), 0);
    let mut posted = post(&mut ledger);
    let first = ledger.admit(Some(2)).unwrap();
    ledger.receives.complete();
    posted.remove(0);
    assert_eq!(answer(&mut ledger, first, &domain), 2);
    posted.extend(post(&mut ledger));
    assert_eq!(posted.len(), 4, "two credits, two for operations");
    // Two Calls and an operation come. The room of its message goes to others.
    let charges = [ledger.admit(Some(2)).unwrap(), ledger.admit(Some(2)).unwrap()];
    (0..3).for_each(|_| ledger.receives.complete());
    posted.remove(0);
    let other = domain.reserve(LEN).unwrap();
    let wait = Wait::Receives(ledger.receives.room_for_one());
    assert_eq!(ledger.ask_answer(1, (false, false), &domain).unwrap_err(), wait);
    drop(other);
    for charge in charges {
        assert_eq!(answer(&mut ledger, charge, &domain), 1);
        posted.remove(0);
    }
}

/// RFC 5666 §3.8: the Receive for an RDMA_DONE is there before the reply that exposes data. The credits of other Calls in
/// progress do not make up for it.
#[test]
fn i3_an_exposed_reply_leaves_after_the_receive_for_its_done() {
    let (mut ledger, domain) = (ledger(Side::Server, 1, 2), domain(2));
    assert_eq!(ledger.reserve_receives(&domain), 0);
    let mut posted = post(&mut ledger);
    let first = ledger.admit(Some(2)).unwrap();
    ledger.receives.complete();
    posted.clear();
    assert_eq!(answer(&mut ledger, first, &domain), 2);
    posted.extend(post(&mut ledger));
    // The messages of two Calls hold all memory.
    let charges = [ledger.admit(Some(2)).unwrap(), ledger.admit(Some(2)).unwrap()];
    (0..2).for_each(|_| ledger.receives.complete());
    let wait = Wait::Receives(ledger.receives.room_for_one());
    assert_eq!(ledger.ask_answer(1, (true, false), &domain).unwrap_err(), wait);
    posted.pop();
    let offer = ledger.ask_answer(1, (true, false), &domain).unwrap();
    ledger.expose();
    let [charge, _other] = charges;
    assert_eq!((ledger.take_answer(offer, charge).credit(), ledger.receives_posted()), (1, 1));
}

#[test]
fn i4_nothing_is_counted_for_an_offer_that_is_let_go() {
    let (mut ledger, domain) = (ledger(Side::Client, 8, 8), domain(8));
    drop(ledger.ask_call((1, 1), true, &domain).unwrap());
    assert_eq!((ledger.calls.in_flight(), ledger.calls.granted()), (0, 1));
    let charge = ledger.admit(Some(8)).unwrap();
    assert_eq!(ledger.ask_answer(1, (false, false), &domain).unwrap().credit(), 8);
    assert!(ledger.admit(None).is_err(), "nothing was granted");
    assert!(answer(&mut ledger, charge, &domain) > 1);
    assert!(ledger.admit(None).is_ok());
}

#[test]
fn i4_a_permit_is_good_for_its_sends_and_no_more() {
    let mut permit = Permit { sends: 2, credit: 1, grants: false };
    assert!(permit.spend() && permit.spend());
    assert!(!permit.spend() && !permit.spend());
}

/// version-two-07 §4.2.1: no message of any kind leaves beyond the peer's limit.
#[test]
fn i4_there_is_no_permit_for_a_message_beyond_the_limit() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(64));
    ledger.count_messages(true);
    ledger.count_message(false, Some(2)).unwrap();
    let (first, second) = (ledger.admit(None).unwrap(), ledger.admit(None).unwrap());
    answer(&mut ledger, first, &domain);
    assert_eq!(
        ledger.ask_answer(2, (false, true), &domain).unwrap().sends,
        2,
        "the caller looks at its turn"
    );
    assert!(ledger.operation(Direction::Reply).is_some());
    assert_eq!(ledger.ask_answer(1, (false, false), &domain).unwrap_err(), Wait::Credits);
    assert_eq!((ledger.operation(Direction::Call).is_none(), ledger.may_call()), (true, Err(Wait::Credits)));
    ledger.count_message(true, Some(3)).unwrap();
    answer(&mut ledger, second, &domain);
    assert!(!ledger.may_send(1));
}

/// A ledger that counts messages; the peer may send some and permits us `room` more.
fn counting(room: u32, domain: &ProtectionDomain) -> Ledger {
    let mut ledger = ledger(Side::Server, 8, 8);
    ledger.count_messages(true);
    ledger.count_message(false, Some(1)).unwrap();
    let charge = ledger.admit(Some(0)).unwrap();
    answer(&mut ledger, charge, domain);
    let_send(&mut ledger, room);
    ledger
}

/// Raises the peer's limit by this many messages.
fn let_send(ledger: &mut Ledger, room: u32) {
    ledger.count_message(false, Some(ledger.sent + room)).unwrap();
}

/// An answer that needs several credits stands in line; an answer that needs one passes as long as enough are left for it.
#[test]
fn v2_07_s6_6_4_answers_in_line_come_before_calls() {
    let domain = domain(64);
    let mut ledger = counting(5, &domain);
    let charges: Vec<Charge> = (0..2).map(|_| ledger.admit(None).unwrap()).collect();
    assert_eq!(ledger.ask_answer(6, (false, false), &domain).unwrap_err(), Wait::Line);
    ledger.line.join_answer(7, 6, deadline());
    assert_eq!(ledger.next_answer_in_line(), None);
    let second = ledger.ask_answer(2, (false, false), &domain).unwrap_err();
    assert_eq!(second, Wait::Line, "first come, first served");
    let_send(&mut ledger, 7);
    // Of seven credits, the first answer in line needs six, and the other answer needs one.
    assert_eq!(ledger.may_call(), Err(Wait::Credits));
    assert!(ledger.ask_answer(1, (false, false), &domain).is_ok(), "one passes");
    let_send(&mut ledger, 8);
    assert_eq!(ledger.may_call(), Ok(()));
    let_send(&mut ledger, 6);
    assert_eq!(ledger.ask_answer(1, (false, false), &domain).unwrap_err(), Wait::Line);
    assert_eq!(ledger.next_answer_in_line(), Some(7));
    charges.into_iter().for_each(|charge| ledger.finish(charge));
}

/// version-two-07 §6.6.2: other Calls may pass a Call that needs several credits, but not for ever.
#[test]
fn i6_a_call_in_line_is_passed_a_bounded_number_of_times() {
    let domain = domain(256);
    let mut ledger = counting(1, &domain);
    let (_, first) = call(&mut ledger, &domain).unwrap();
    ledger.settle(first, Settled::Answered { grant: 1 });
    let_send(&mut ledger, 2);
    let mut leases: Vec<Lease> = (0..2).map(|_| call(&mut ledger, &domain).unwrap().1).collect();
    ledger.line.join_call(9, 3);
    let_send(&mut ledger, 1);
    let mut passed = 0;
    while ledger.next_in_line() == Ok(None) {
        leases.push(call(&mut ledger, &domain).unwrap().1);
        let_send(&mut ledger, 1);
        ledger.settle(leases.remove(0), Settled::Answered { grant: 1 });
        passed += 1;
    }
    assert_eq!((passed, ledger.next_in_line()), (16, Err(Wait::Line)));
    let_send(&mut ledger, 3);
    assert_eq!(ledger.next_in_line(), Ok(Some(9)));
    assert_eq!(ledger.next_in_line(), Ok(None), "the line is empty");
}

/// version-two-07 §6.6.2: with no Call in flight, only another Call brings credits, however many have passed.
#[test]
fn i6_a_call_in_line_waits_alone_only_while_calls_are_in_flight() {
    let domain = domain(64);
    let mut ledger = counting(4, &domain);
    // Two operations will return their credits, so that the Call in line is not hopeless.
    assert!((0..2).all(|_| ledger.operation(Direction::Reply).is_some()));
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    ledger.line.join_call(9, 3);
    (0..16).for_each(|_| ledger.line.pass());
    assert_eq!(ledger.next_in_line(), Err(Wait::Line));
    ledger.settle(lease, Settled::Answered { grant: 1 });
    assert_eq!(ledger.next_in_line(), Ok(None));
}

/// A Call in line that will not leave is not passed, nor waited for.
#[test]
fn i6_a_call_leaves_the_line_when_it_is_forgotten() {
    let mut ledger = counting(1, &domain(64));
    for xid in [8, 9] {
        ledger.line.join_call(xid, 3);
    }
    ledger.line.forget_call(8);
    assert_eq!(ledger.line.take_calls().collect::<Vec<_>>(), [9]);
}

/// rtrext-02 §4.3: a Call that has another form takes its share of the credits; any other may take them all.
#[test]
fn i4_calls_that_fall_back_share_the_credits() {
    let (mut ledger, domain) = (ledger(Side::Client, 8, 1), domain(16));
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    ledger.settle(lease, Settled::Answered { grant: 8 });
    let _in_flight = call(&mut ledger, &domain).unwrap();
    assert_eq!((ledger.sends_for_call(true, 3), ledger.sends_for_call(false, 3)), (2, 8));
    assert_eq!((ledger.sends_for_call(true, 0), ledger.sends_for_call(true, 100)), (7, 1));
}

/// version-two-07 §6.6.2: a Call that has another form uses the credits that are there; any other may wait for those that
/// return with replies.
#[test]
fn v2_07_s6_6_2_calls_that_fall_back_wait_for_no_credits() {
    let domain = domain(64);
    let mut ledger = counting(3, &domain);
    let _in_flight = call(&mut ledger, &domain).unwrap();
    assert_eq!((ledger.sends_for_call(true, 3), ledger.sends_for_call(false, 3)), (2, 3));
}

/// The receive queue holds one reply in several Sends at a time; a reply in one Send needs no more than its Receive.
#[test]
fn i3_one_reply_in_several_sends_is_awaited_at_a_time() {
    let (mut ledger, domain) = (ledger(Side::Client, 8, 1), domain(16));
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    ledger.settle(lease, Settled::Answered { grant: 8 });
    let offer = ledger.ask_call((1, 3), true, &domain).unwrap();
    let (_permit, lease) = ledger.take_call(offer);
    assert_eq!(ledger.ask_call((1, 2), true, &domain).unwrap_err(), Wait::Credits);
    assert!(ledger.ask_call((1, 1), true, &domain).is_ok());
    ledger.settle(lease, Settled::Answered { grant: 8 });
    assert!(ledger.ask_call((1, 2), true, &domain).is_ok());
}

/// version-two-07 §6.6.4: an answer that has all its credits does not wait.
#[test]
fn v2_07_s6_6_4_an_answer_leaves_with_the_last_credits() {
    let domain = domain(64);
    let mut ledger = counting(3, &domain);
    let _charge = ledger.admit(None).unwrap();
    assert!(ledger.ask_answer(3, (false, false), &domain).is_ok());
    assert_eq!(ledger.ask_answer(4, (false, false), &domain).unwrap_err(), Wait::Line);
}

/// RFC 8166 §4.5.1: a client that sends a Call in another version has a Receive for its refusal. A server that sends
/// something after the first limit is none that calls in another version.
#[test]
fn i4_the_refusal_of_a_version_has_a_credit_at_a_server_alone() {
    for (side, refuses) in [(Side::Server, true), (Side::Client, false)] {
        let mut ledger = ledger(side, 8, 8);
        ledger.count_messages(true);
        ledger.count_message(false, Some(1)).unwrap();
        assert!(ledger.operation(Direction::Reply).is_some() && !ledger.may_send(1));
        ledger.messages.as_mut().unwrap().advertise(9);
        ledger.count_message(false, None).unwrap();
        ledger.allow_refusal();
        assert_eq!((ledger.may_send(1), ledger.may_send(2)), (refuses, false), "{side}");
        // With a credit of its own, the refusal needs no other.
        ledger.count_message(false, Some(2)).unwrap();
        ledger.count_message(false, None).unwrap();
        ledger.allow_refusal();
        assert_eq!((ledger.may_send(1), ledger.may_send(2)), (true, false));
    }
}

/// Rule I3: a connection posts the Receives that its owner has reserved, even in a full domain.
#[test]
fn i3_the_provided_receives_are_there_in_a_full_domain() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(1));
    let share = domain.share(usize::MAX);
    let provided = vec![share.reserve(LEN).unwrap()];
    ledger.receives.provide(share, provided, false);
    assert!(domain.reserve(LEN).is_err(), "full");
    assert_eq!(ledger.reserve_receives(&domain), 0);
    assert_eq!(post(&mut ledger).len(), 1);
}

/// An operation is answered without the Receives for Calls of the peer, but not without those for other messages.
#[test]
fn i3_an_operation_needs_the_receives_of_all_but_calls() {
    for (memory, backed) in [(1, false), (2, true)] {
        let (mut ledger, domain) = (ledger(Side::Server, 8, 1), domain(memory));
        ledger.keep_for_operations(2);
        assert!(ledger.reserve_receives(&domain) > 0);
        assert_eq!(ledger.backs_others(), backed, "{memory} of 3");
    }
}

/// A connection that is gone keeps no memory of the domain, even while one of its messages is in use.
#[test]
fn a_ledger_that_is_gone_keeps_no_memory() {
    let (mut ledger, domain) = (ledger(Side::Server, 1, 2), domain(2));
    assert_eq!(ledger.reserve_receives(&domain), 0);
    drop(post(&mut ledger));
    let charge = ledger.admit(Some(2)).unwrap();
    ledger.receives.complete();
    assert_eq!(answer(&mut ledger, charge, &domain), 2);
    assert_eq!(ledger.reserve_receives(&domain), 0);
    let mut posted = post(&mut ledger);
    assert_eq!(posted.len(), 2);
    drop(ledger);
    posted.pop();
    assert!(domain.reserve(LEN).is_ok());
}

/// xcharext-02 §3.1: a provided Receive of another size than the announced one is not posted.
#[test]
fn i3_a_provided_receive_has_the_size_of_the_others() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(2));
    let share = domain.share(usize::MAX);
    let provided = vec![share.reserve(LEN / 2).unwrap()];
    ledger.receives.provide(share, provided, false);
    assert_eq!(ledger.reserve_receives(&domain), 0);
    let posted = post(&mut ledger);
    assert!(matches!(&posted[..], [ReceiveMemory::Pooled(memory)] if memory.len() == LEN), "{posted:?}");
}

/// An ended connection waits for nothing: an answer in line has no deadline.
#[test]
fn an_ended_ledger_has_no_deadline() {
    let mut ledger = ledger(Side::Server, 8, 8);
    ledger.line.join_answer(7, 6, deadline());
    assert!(ledger.line.deadline().is_some());
    ledger.end();
    assert_eq!(ledger.line.deadline(), None);
}

/// xcharext-02 §3.1: only Receives that are still posted hold a size back.
#[test]
fn xcharext_s3_1_a_size_without_receives_is_no_earlier_one() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(4));
    ledger.receives.resize(2 * LEN);
    assert_eq!(ledger.receives.least_earlier(), None);
    ledger.reserve_receives(&domain);
    ledger.receives.resize(LEN);
    assert_eq!(ledger.receives.least_earlier(), Some(2 * LEN));
}

/// A message has arrived once the peer answers a later Call, or makes a Call that only a later grant allows.
#[test]
fn a_message_has_arrived_when_the_peer_shows_a_later_one() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 2), domain(64));
    let mark = ledger.mark();
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    assert!(!mark.is_proved(ledger.shown()));
    ledger.settle(lease, Settled::Answered { grant: 8 });
    assert!(mark.is_proved(ledger.shown()), "a later Call is answered");
    let mark = ledger.mark();
    let charge = ledger.admit(Some(2)).unwrap();
    assert!(!mark.is_proved(ledger.shown()), "it had that credit");
    answer(&mut ledger, charge, &domain);
    let charge = ledger.admit(None).unwrap();
    assert!(mark.is_proved(ledger.shown()), "it was granted later");
    answer(&mut ledger, charge, &domain);
    assert_eq!(ledger.calls_that_prove(), 2 + 2);
}

/// version-two-07 §4.2.1: a peer without our answers may use its credits. One Call more needs a limit that left with them.
#[test]
fn v2_07_s4_2_1_the_first_call_beyond_the_limit_proves_all_answers() {
    let domain = domain(64);
    let mut ledger = counting(1, &domain);
    let proof = ledger.calls_that_prove();
    let mut charges = vec![];
    while ledger.peer_may_send() {
        let_send(&mut ledger, 1);
        charges.push(ledger.admit(None).unwrap());
    }
    assert!(charges.len() > 1 && ledger.served.accepted() + 1 == proof);
    answer(&mut ledger, charges.pop().unwrap(), &domain);
    let_send(&mut ledger, 1);
    charges.push(ledger.admit(None).unwrap());
    assert_eq!(ledger.served.accepted(), proof);
    charges.into_iter().for_each(|charge| ledger.finish(charge));
}

/// An event at a ledger.
#[derive(Clone, Debug)]
enum Step {
    /// A Call with this many Sends, and Receives for its reply.
    Call(u32, u32),
    /// A reply to one of our Calls with this grant, or its refusal.
    Reply(usize, u32, bool),
    /// A Call of the peer asks for this many credits.
    Admit(u32),
    /// The answer to one of the peer's Calls.
    Answer(usize),
    /// Other users hold memory for this many Receives of the domain.
    Room(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1_u32..4, 1_u32..4).prop_map(|(sends, replies)| Step::Call(sends, replies)),
        (any::<usize>(), 0_u32..12, any::<bool>())
            .prop_map(|(which, grant, ok)| Step::Reply(which, grant, ok)),
        (0_u32..12).prop_map(Step::Admit),
        any::<usize>().prop_map(Step::Answer),
        (0_u32..24).prop_map(Step::Room),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Over any history, Receives back every grant and every awaited reply (rule I3). Sends never exceed the grant,
    /// except those of refused Calls (rule I4). When everything is answered, every credit is back.
    #[test]
    fn i3_i4_the_account_is_right_over_any_history(steps in steps(), calls in 1_u32..9, grant in 1_u32..9) {
        let mut ledger = ledger(Side::Client, calls, grant);
        let domain = domain(40);
        let mut pinned = Vec::new();
        let (mut leases, mut charges): (Vec<(Lease, u32)>, Vec<Charge>) = (vec![], vec![]);
        // The peer keeps to its grant.
        let (mut granted, mut used) = (1, 0);
        let mut ours = 1;
        for step in steps {
            match step {
                Step::Call(sends, replies) => {
                    if ledger.may_call().is_ok()
                        && let Ok(offer) = ledger.ask_call((sends, replies), true, &domain)
                    {
                        let (permit, lease) = ledger.take_call(offer);
                        prop_assert_eq!(permit.sends, sends);
                        leases.push((lease, sends));
                        let out: u32 = leases.iter().map(|(_, sends)| sends).sum();
                        prop_assert!(out <= ours, "{out} of {ours}");
                    }
                }
                Step::Reply(which, credit, ok) if !leases.is_empty() => {
                    let (lease, _) = leases.remove(which % leases.len());
                    ledger.receives.complete();
                    if ok {
                        ours = credit.clamp(1, calls);
                    }
                    ledger.settle(lease, if ok { Settled::Answered { grant: credit } } else { Settled::Refused { grant: ours } });
                }
                Step::Admit(requested) if used < granted && ledger.receives_posted() > 0 => {
                    used += 1;
                    ledger.receives.complete();
                    charges.push(ledger.admit(Some(requested)).unwrap());
                }
                Step::Answer(which) if !charges.is_empty() => {
                    if let Ok(offer) = ledger.ask_answer(1, (false, false), &domain) {
                        let charge = charges.swap_remove(which % charges.len());
                        used -= 1;
                        granted = ledger.take_answer(offer, charge).credit();
                        prop_assert!((1..=grant).contains(&granted));
                    }
                }
                Step::Room(receives) => {
                    pinned = (0..receives).map_while(|_| domain.reserve(LEN).ok()).collect();
                }
                _ => {}
            }
            ledger.reserve_receives(&domain);
            while ledger.next_receive().is_some() {}
            let awaited: u32 = leases.iter().map(|(lease, _)| lease.replies()).sum();
            let open = granted.saturating_sub(used);
            prop_assert!(ledger.receives_posted() >= awaited + open, "{} for {awaited} and {open}", ledger.receives_posted());
        }
        drop(pinned);
        for (lease, _) in leases {
            ledger.receives.complete();
            ledger.settle(lease, Settled::Answered { grant: 8 });
        }
        for charge in charges {
            ledger.reserve_receives(&domain);
            answer(&mut ledger, charge, &domain);
        }
        prop_assert_eq!((ledger.calls.in_flight(), ledger.served.in_progress()), (0, 0));
        prop_assert!(ledger.may_call().is_ok());
    }
}

/// version-two-07 §4.2.1: the way in which credits count is set once; what was used stays used.
#[test]
fn i4_credits_per_message_do_not_begin_anew() {
    let domain = domain(64);
    let mut ledger = counting(5, &domain);
    assert!(ledger.operation(Direction::Call).is_some());
    ledger.count_messages(true);
    assert!(ledger.may_send(4) && !ledger.may_send(5));
}

/// version-two-07 §4.2.1: each message uses one credit, and only a message with a grant says one.
#[test]
fn i4_other_messages_use_one_credit_each() {
    let domain = domain(64);
    let mut counted = counting(5, &domain);
    for (direction, left) in [(Direction::Call, 4), (Direction::Reply, 3)] {
        let mut permit = counted.operation(direction).unwrap();
        assert!(permit.grant().is_some() && permit.spend() && !permit.spend());
        assert!(counted.may_send(left) && !counted.may_send(left + 1), "{direction:?}");
    }
    let mut ledger = ledger(Side::Client, 8, 8);
    for (direction, grants) in [(Direction::Call, false), (Direction::Reply, true)] {
        let mut permit = ledger.operation(direction).unwrap();
        assert_eq!(permit.grant().is_some(), grants, "{direction:?}");
        assert!(permit.spend() && !permit.spend());
    }
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    let mut report = ledger.report(&lease);
    assert!(report.grant().is_none() && report.spend() && !report.spend());
    let owed = ledger.owe_done(lease, 4);
    let mut done = ledger.done(owed);
    assert!(done.grant().is_none() && done.spend() && !done.spend());
}

/// version-two-07 §6.6.2: a Call in several Sends leaves the credits for answers to the Calls in progress.
#[test]
fn v2_07_s6_6_2_a_call_leaves_the_credits_of_answers() {
    let domain = domain(64);
    let mut ledger = counting(5, &domain);
    let _charges = [ledger.admit(None).unwrap(), ledger.admit(None).unwrap()];
    assert_eq!((ledger.sends_for_call(true, 1), ledger.sends_for_call(false, 1)), (3, 3));
    assert_eq!((ledger.sends_for_answer(true), ledger.sends_for_answer(false)), (5, 5));
}

/// RFC 8166 §3.3.1: with a credit per transaction an answer is one Send, and waits for none in line.
#[test]
fn s3_3_1_an_answer_is_one_send() {
    let ledger = ledger(Side::Server, 8, 8);
    assert_eq!((ledger.sends_for_answer(true), ledger.sends_for_answer(false)), (1, 1));
    assert_eq!((ledger.sends_for_call(true, 0), ledger.sends_for_call(true, 1)), (1, 1));
    assert!(!ledger.has_to_wait(1));
}

/// RFC 5666 §3.8: data is exposed until the last reply that exposes some has its RDMA_DONE.
#[test]
fn rfc5666_s3_8_every_exposed_reply_counts() {
    let mut ledger = ledger(Side::Server, 8, 8);
    let before = ledger.others_owed();
    ledger.expose();
    ledger.expose();
    ledger.conceal();
    assert!(ledger.exposes());
    assert_eq!(ledger.others_owed(), before + 1, "a Receive for its RDMA_DONE");
    ledger.conceal();
    assert!(!ledger.exposes());
}

/// rtrext-02 §4.3: the credit request of each part of a Call is heard, as that of a whole Call.
#[test]
fn i4_a_part_of_a_call_requests_credits() {
    for requested in [None, Some(5)] {
        let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(64));
        let charge = ledger.admit(Some(2)).unwrap();
        ledger.give_back(0);
        assert_eq!(answer(&mut ledger, charge, &domain), 2);
        ledger.admit_part(requested).unwrap();
        let charge = ledger.admit(None).unwrap();
        assert_eq!(answer(&mut ledger, charge, &domain), requested.unwrap_or(2));
    }
}

/// rtrext-02 §4.3: only a Call without another form uses credits whose Sends may not have arrived.
#[test]
fn i4_a_call_that_falls_back_uses_proved_credits_alone() {
    let (mut ledger, domain) = (ledger(Side::Client, 8, 1), domain(16));
    let (_, lease) = call(&mut ledger, &domain).unwrap();
    ledger.settle(lease, Settled::Answered { grant: 8 });
    let offer = ledger.ask_call((8, 1), true, &domain).unwrap();
    let (_permit, lease) = ledger.take_call(offer);
    ledger.settle(lease, Settled::Refused { grant: 8 });
    assert!(ledger.ask_call((1, 1), true, &domain).is_ok());
    assert_eq!(ledger.ask_call((2, 1), true, &domain).unwrap_err(), Wait::Credits);
    assert!(ledger.ask_call((2, 1), false, &domain).is_ok());
}

/// version-two-07 §6.6.4: an answer of two Sends waits for two credits.
#[test]
fn i4_an_answer_of_two_sends_waits_for_both_credits() {
    let domain = domain(64);
    let mut ledger = counting(1, &domain);
    let _charge = ledger.admit(None).unwrap();
    assert_eq!(ledger.ask_answer(2, (false, false), &domain).unwrap_err(), Wait::Line);
    let_send(&mut ledger, 2);
    assert!(ledger.ask_answer(2, (false, false), &domain).is_ok());
}

/// An operation is one message: its credit returns once, and a message can wait for no more.
#[test]
fn i6_an_operation_gives_back_one_credit() {
    let mut ledger = counting(5, &domain(64));
    let before = ledger.sends_for_answer(false);
    assert!(ledger.operation(Direction::Reply).is_some());
    assert_eq!((ledger.sends_for_answer(true), ledger.sends_for_answer(false)), (before - 1, before));
}

/// version-two-07 §6.3.2: a GRANT is one message, and its `rdma_credit` is a grant.
#[test]
fn v2_07_s6_3_2_a_grant_is_one_send_that_grants() {
    let mut ledger = counting(5, &domain(64));
    assert!(ledger.grant().is_none(), "the peer has credits");
    while ledger.peer_may_send() {
        let_send(&mut ledger, 5);
    }
    let sent = ledger.sent;
    let mut permit = ledger.grant().expect("a GRANT is due");
    assert_eq!((permit.grant(), ledger.sent), (ledger.messages.as_ref().map(MessageCredits::told), sent + 1));
    assert!(permit.spend() && !permit.spend());
}

/// version-two-07 §4.2.1: each message counts, even one that came before the version was known.
#[test]
fn v2_07_s4_2_1_earlier_messages_are_counted_too() {
    let mut ledger = ledger(Side::Server, 8, 8);
    ledger.count_received();
    ledger.count_message(false, None).unwrap();
    ledger.count_messages(true);
    assert_eq!(ledger.messages.as_ref().map(MessageCredits::told), Some(3), "two came, and one may follow");
}

/// Rule I6: an answer in line that needs more than the peer's limit can ever allow holds no Call back.
#[test]
fn i6_a_hopeless_answer_in_line_keeps_no_credits() {
    let mut ledger = counting(5, &domain(64));
    ledger.line.join_answer(7, 6, deadline());
    assert_eq!(ledger.may_call(), Ok(()));
    ledger.line.pop_answer();
    ledger.line.join_answer(8, 5, deadline());
    assert_eq!(ledger.may_call(), Ok(()), "four are left for the answer, and one for a Call");
    let_send(&mut ledger, 4);
    assert!(ledger.operation(Direction::Reply).is_some() && ledger.operation(Direction::Reply).is_some());
    ledger.line.pop_answer();
    ledger.line.join_answer(9, 4, deadline());
    assert_eq!(ledger.may_call(), Err(Wait::Credits), "four come back for it");
}

/// A connection that ends posts no Receive that it had reserved: the command is next.
#[test]
fn an_ended_ledger_has_no_receive_to_post() {
    let (mut ledger, domain) = (ledger(Side::Server, 8, 8), domain(8));
    ledger.reserve_receives(&domain);
    assert!(ledger.receives.is_ready());
    ledger.receives.end();
    assert!(!ledger.receives.is_ready() && ledger.next_receive().is_none());
}

/// xcharext-02 §3.1: each earlier size holds back until its own Receives have completed.
#[test]
fn xcharext_s3_1_every_size_lasts_as_long_as_its_receives() {
    let domain = domain(64);
    let mut receives = Receives::new(ReceiveSize { len: LEN, align: 1 });
    receives.reserve(2, &domain);
    receives.resize(2 * LEN);
    receives.reserve(3, &domain);
    receives.resize(3 * LEN);
    assert_eq!(receives.least_earlier(), Some(LEN));
    receives.complete();
    receives.complete();
    assert_eq!(receives.least_earlier(), Some(2 * LEN));
    receives.complete();
    assert_eq!(receives.least_earlier(), None);
}
