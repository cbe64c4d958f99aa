use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

impl MessageCredits {
    /// Takes a credit for a message, if there is one.
    fn take_one(&mut self) -> bool {
        let free = self.available();
        if free {
            self.take(1);
        }
        free
    }
}

/// Returns all Receives that are owed.
fn posted(credits: &MessageCredits) -> u32 {
    credits.receives_owed()
}

// requirement: v2-07-4.2.1-1, v2-07-4.2.1-3, v2-07-4.2.1-5
#[test]
fn v2_07_s4_3_one_message_until_the_first_limit() {
    let mut credits = MessageCredits::new(8);
    assert!(credits.take_one());
    assert!(!credits.take_one());
    assert!(!credits.grant_due(posted(&credits)), "not even a GRANT");
    credits.limit(3);
    assert!(credits.take_one() && credits.take_one());
    assert!(!credits.take_one());
}

/// The limit counts received messages, unlike the letter of §4.2.1: a side that only answers has sent fewer than it received.
// requirement: v2-07-4.2.1-2, v2-07-4.2.1-4
#[test]
fn v2_07_s4_2_1_the_limit_counts_what_was_received() {
    let mut credits = MessageCredits::new(8);
    for _ in 0..5 {
        let receives = posted(&credits);
        assert!(credits.accept(false));
        let _ = credits.advertise(receives);
    }
    assert_eq!((credits.sent, credits.received), (0, 5));
    assert_eq!(credits.advertise(posted(&credits)), 5 + 8);
}

#[test]
fn i3_nothing_is_told_that_no_receive_backs() {
    let mut credits = MessageCredits::new(8);
    assert_eq!(credits.advertise(0), 1, "what every peer may assume");
    assert_eq!(credits.advertise(4), 3, "one Receive is for a GRANT");
    assert_eq!(credits.advertise(2), 3, "what was told stays told");
    assert_eq!(credits.advertise(100), 8, "no more than the window");
    assert_eq!(credits.receives_owed(), 9);
}

/// A message waits only for credits within the last announced limit, and for those that earlier messages give back.
#[test]
fn i6_what_will_be_free_is_bounded_by_the_last_limit() {
    let mut credits = MessageCredits::new(8);
    credits.limit(10);
    for _ in 0..6 {
        assert!(credits.take_one());
    }
    assert_eq!((credits.room(), credits.lasting(0), credits.lasting(2)), (4, 4, 6));
    credits.count_returning(3);
    assert_eq!(credits.lasting(2), 9);
    let _ = credits.grant(9);
    assert_eq!((credits.room(), credits.lasting(2)), (3, 9));
    // The peer may have announced this before all messages had come, but not twice.
    credits.limit(8);
    assert_eq!(credits.lasting(0), 5);
    credits.limit(8);
    assert_eq!((credits.lasting(0), credits.lasting(2)), (1, 3));
    // Two messages have to come back before a third one frees a credit.
    credits.limit(5);
    assert_eq!((credits.lasting(0), credits.lasting(2), credits.lasting(3)), (0, 0, 1));
}

// requirement: v2-07-4.2.1-5
#[test]
fn i4_a_lower_limit_is_followed() {
    let mut credits = MessageCredits::new(8);
    credits.limit(10);
    for _ in 0..5 {
        assert!(credits.take_one());
    }
    credits.limit(5);
    assert!(!credits.available());
    credits.limit(2);
    assert!(!credits.available());
    credits.limit(6);
    assert!(credits.take_one() && !credits.take_one());
}

/// §4.2.1.1: with all its Receives posted, a side sends no GRANT for one message, lest two idle sides go on for ever.
#[test]
fn v2_07_s4_2_1_1_no_grant_adds_one_message_to_a_window_of_one() {
    let mut credits = MessageCredits::new(8);
    credits.limit(100);
    credits.set_window(1);
    assert!(credits.accept(false));
    assert!(!credits.grant_due(2));
    credits.set_window(2);
    assert!(credits.grant_due(2), "memory allows no more Receives");
}

// requirement: v2-07-4.2.1.1-1
#[test]
fn i4_a_peer_beyond_its_limit_is_noticed() {
    let mut credits = MessageCredits::new(4);
    assert!(credits.accept(false));
    assert!(!credits.accept(false), "the first message is all, until it is answered");
    assert_eq!(credits.advertise(5), 5);
    for _ in 0..4 {
        assert!(credits.accept(false));
    }
    assert!(!credits.accept(false));
    // §4.2.1.1: one more Receive stays posted for a GRANT.
    assert!(credits.accept(true));
    assert!(!credits.accept(true));
    assert!(!credits.accept(false));
    assert_eq!(credits.advertise(5), 6 + 4, "the GRANT was a message as well");
    assert!(credits.accept(false));
}

#[test]
fn v2_07_s4_2_1_1_a_grant_is_due_when_half_the_window_is_used() {
    let mut credits = MessageCredits::new(8);
    credits.limit(100);
    assert!(credits.accept(false));
    assert_eq!(credits.advertise(9), 1 + 8);
    for _ in 0..3 {
        assert!(credits.accept(false));
        assert!(!credits.grant_due(9));
    }
    assert!(credits.accept(false));
    assert!(credits.grant_due(9));
    assert_eq!((credits.grant(9), credits.sent), (5 + 8, 1));
    assert!(!credits.grant_due(9));
}

/// A grant of zero: the peer waits until there are Receives again.
#[test]
fn v2_07_s4_2_1_1_a_grant_is_due_when_a_peer_without_credits_can_have_some() {
    let mut credits = MessageCredits::new(64);
    credits.limit(100);
    assert!(credits.accept(false));
    assert_eq!(credits.advertise(1), 1, "zero messages more");
    assert!(!credits.grant_due(1));
    assert!(credits.grant_due(2), "memory gives no more");
    assert!(credits.grant_due(3));
    assert_eq!(credits.grant(3), 3);
}

/// If memory permits no more, a GRANT leaves even for one message, but never in answer to a GRANT.
#[test]
fn v2_07_s4_2_1_1_a_grant_for_one_message_is_no_answer_to_a_grant() {
    let mut credits = MessageCredits::new(64);
    credits.limit(100);
    assert!(credits.accept(false));
    assert_eq!(credits.advertise(1), 1);
    assert!(credits.accept(true));
    assert!(!credits.grant_due(1), "a limit of 2 after 1");
    assert!(credits.grant_due(2));
    assert_eq!(credits.grant(2), 3);
    assert!(credits.accept(false));
    assert!(!credits.grant_due(1), "nothing to give");
    assert!(credits.grant_due(2), "a limit of 4 after 3");
}

/// Until the Receive that a GRANT used is posted again, the limit must not count it.
#[test]
fn i3_the_receive_for_a_grant_is_not_promised_twice() {
    let mut credits = MessageCredits::new(4);
    assert!(credits.accept(false) && credits.accept(true));
    assert_eq!(credits.advertise(0), 1, "one less than has come");
    assert_eq!(credits.advertise(1), 2, "room for a GRANT");
    assert_eq!(credits.advertise(2), 3, "and for a message");
}

/// §4.2.1.1: a side without a credit can still send one GRANT, and no second one before it has credits.
// requirement: v2-07-4.2.1-5, v2-07-4.2.1.1-1
#[test]
fn v2_07_s4_2_1_1_one_grant_goes_without_a_credit() {
    let mut credits = MessageCredits::new(4);
    credits.limit(1);
    assert!(credits.take_one());
    let use_window = |credits: &mut MessageCredits| {
        while credits.accept(false) {}
    };
    use_window(&mut credits);
    assert!(!credits.available() && credits.grant_due(5));
    let _ = credits.grant(5);
    use_window(&mut credits);
    assert!(!credits.grant_due(5), "the peer has no Receive for it");
    credits.limit(2);
    assert!(!credits.available() && credits.grant_due(5));
}

// requirement: v2-07-4.2.1-5
#[test]
fn v2_07_s4_2_1_counts_go_round() {
    let near = u32::MAX - 1;
    let mut credits =
        MessageCredits { sent: near, received: near, limit: near, told: near, ..MessageCredits::new(8) };
    assert!(!credits.available());
    credits.limit(near.wrapping_add(3));
    for _ in 0..3 {
        assert!(credits.take_one());
    }
    assert_eq!(credits.sent, 1);
    assert!(!credits.take_one());
    assert_eq!(credits.advertise(9), near.wrapping_add(8));
    assert_eq!(credits.receives_owed(), 9);
    for _ in 0..8 {
        assert!(credits.accept(false));
    }
    assert!(!credits.accept(false));
}

/// Counts wrap, so a limit is ahead only if the difference is less than half of 2³².
// requirement: v2-07-4.2.1-6
#[test]
fn v2_07_s4_2_1_limits_are_less_than_2_31() {
    let mut credits = MessageCredits::new(u32::MAX);
    assert_eq!(credits.window(), MOST_WINDOW);
    assert_eq!(credits.advertise(u32::MAX), MOST_WINDOW);
    assert!(MOST_WINDOW < (1 << 31) - 1 && credits.receives_owed() == MOST_WINDOW + 1);
    assert!(credits.accept(false));
    assert_eq!(credits.advertise(u32::MAX), MOST_WINDOW + 1, "by the count of what came");
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
struct Message {
    is_grant: bool,
    rdma_credit: u32,
}

/// A side of a connection, with its Receives.
#[derive(Debug)]
struct Peer {
    credits: MessageCredits,
    posted: u32,
    inbox: VecDeque<Message>,
}

impl Peer {
    /// Both sides have counted `count` messages each way, and have announced `count + 1`.
    fn new(window: u32, count: u32) -> Self {
        let fresh = MessageCredits::new(window);
        let (limit, told) = (count.wrapping_add(1), count.wrapping_add(1));
        let credits = MessageCredits { sent: count, received: count, limit, told, heard: count > 0, ..fresh };
        Self { credits, posted: 2, inbox: VecDeque::new() }
    }

    fn post(&mut self, most: u32) {
        self.posted += self.credits.receives_owed().saturating_sub(self.posted).min(most);
    }

    fn message(&mut self) -> Option<Message> {
        let (is_grant, rdma_credit) = if self.credits.take_one() {
            (false, self.credits.advertise(self.posted))
        } else {
            return self.grant();
        };
        Some(Message { is_grant, rdma_credit })
    }

    fn grant(&mut self) -> Option<Message> {
        let due = self.credits.grant_due(self.posted);
        due.then(|| Message { is_grant: true, rdma_credit: self.credits.grant(self.posted) })
    }

    fn deliver(&mut self) {
        if let Some(Message { is_grant, rdma_credit }) = self.inbox.pop_front() {
            self.posted = self.posted.checked_sub(1).expect("rule I3: a Receive for each message");
            assert!(self.credits.accept(is_grant), "rule I4");
            self.credits.limit(rdma_credit);
        }
    }
}

/// Posts, grants and delivers until nothing is left to do; returns the number of GRANTs.
fn settle(peers: &mut [Peer; 2]) -> usize {
    let mut grants = 0;
    loop {
        let before = grants;
        for at in [0, 1] {
            while !peers[at].inbox.is_empty() {
                peers[at].deliver();
            }
            peers[at].post(u32::MAX);
            if let Some(grant) = peers[at].grant() {
                peers[1 - at].inbox.push_back(grant);
                grants += 1;
                assert!(grants < 100, "GRANTs for GRANTs");
            }
        }
        if before == grants && peers.iter().all(|peer| peer.inbox.is_empty()) {
            return grants;
        }
    }
}

proptest! {
    /// No message arrives without a Receive, no history ends with both sides waiting, and every exchange of GRANTs ends
    /// by itself.
    #[test]
    fn i3_i4_every_message_has_a_receive_and_nobody_waits_for_ever(
        windows in (1u32..12, 1u32..12),
        count in prop_oneof![Just(0u32), Just(u32::MAX - 5), any::<u32>()],
        steps in prop::collection::vec((0usize..2, 0u8..4, 0u32..6), 0..300),
    ) {
        let mut peers = [Peer::new(windows.0, count), Peer::new(windows.1, count)];
        for (at, step, receives) in steps {
            match step {
                0 => peers[at].post(receives),
                1 => peers[at].deliver(),
                2 => if let Some(message) = peers[at].message() { peers[1 - at].inbox.push_back(message) },
                _ => if let Some(grant) = peers[at].grant() { peers[1 - at].inbox.push_back(grant) },
            }
        }
        settle(&mut peers);
        prop_assert!(peers.iter().all(|peer| peer.credits.available()), "{peers:?}");
    }
}

/// Rule I3: a smaller window takes no Receive from a message that the peer may still send.
#[test]
fn i3_receives_are_owed_for_what_was_announced() {
    let mut credits = MessageCredits::new(8);
    assert!(credits.accept(false));
    assert_eq!(credits.advertise(9), 9);
    credits.set_window(2);
    assert_eq!((credits.outstanding(), credits.receives_owed()), (8, 9));
    for _ in 0..7 {
        assert!(credits.accept(false));
    }
    assert_eq!((credits.outstanding(), credits.receives_owed()), (1, 3));
}

/// A refusal gives a server the one message of its next answer, and takes nothing from a limit that has room.
#[test]
fn v2_07_s4_3_a_refusal_allows_one_message_where_there_is_none() {
    let mut credits = MessageCredits::new(8);
    assert!(credits.take_one());
    credits.allow_refusal(false);
    assert!(credits.take_one() && !credits.take_one(), "the credit for a message of ours is kept");
    let mut credits = MessageCredits::new(8);
    credits.limit(3);
    credits.allow_refusal(true);
    assert_eq!(credits.room(), 3);
    credits.take(3);
    credits.allow_refusal(false);
    assert_eq!(credits.room(), 0, "only a server's error may exceed the limit");
    credits.allow_refusal(true);
    assert_eq!(credits.room(), 1);
}

/// §4.3: who begins to count in the middle counts as at the beginning: one message each way, and no more.
#[test]
fn v2_07_s4_3_one_message_each_way_when_counting_begins() {
    for mut credits in [MessageCredits::new(4), MessageCredits::after(0, 0, 0)] {
        assert_eq!((credits.room(), credits.lasting(0)), (1, 1), "none of ours is under way");
        assert!(credits.take_one() && !credits.take_one());
        assert!(credits.accept(false) && !credits.accept(false));
    }
    let mut credits = MessageCredits::after(3, 5, 2);
    assert!(credits.take_one() && !credits.take_one());
    assert!((0..3).all(|_| credits.accept(false)) && !credits.accept(false), "two replies are awaited");
}

/// §4.2.1.1: while the peer has messages left, a GRANT has to add half of the window. It never says less than was said.
#[test]
fn v2_07_s4_2_1_1_a_grant_adds_half_of_the_window() {
    let mut credits = MessageCredits::new(8);
    credits.limit(100);
    assert!((0..4).all(|_| {
        let _ = credits.advertise(9);
        credits.accept(false)
    }));
    credits.told = 8;
    assert_eq!(credits.outstanding(), 4);
    for (posted, due) in [(0, false), (5, false), (7, false), (8, false), (9, true)] {
        assert_eq!(credits.grant_due(posted), due, "a gain of {}", i64::from(posted) - 5);
    }
    let mut credits = MessageCredits::new(4);
    credits.limit(100);
    assert!(credits.accept(false));
    credits.told = 2;
    assert!(!credits.grant_due(3), "a gain of one, although the window has more");
}

/// "credit limit values MUST be less than 2^31 - 1" (§4.2.1), whatever the Calls in progress ask for.
#[test]
fn v2_07_s4_2_1_a_window_that_grows_stays_within_half_of_the_counts() {
    let mut credits = MessageCredits::new(4);
    credits.set_window(u32::MAX);
    assert_eq!(credits.window(), MOST_WINDOW);
    credits.set_window(0);
    assert_eq!(credits.window(), 0);
}
