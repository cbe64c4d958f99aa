//! Slow is not stalled (rule I6): data at or above the least rate has all the time it needs, and slower data is given up.

use std::time::Duration;

use rpcrdma_sim::{Fabric, FabricConfig};

use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{Decoder, Encoder};

use crate::testing::{MAX, Pair, null, pattern, read, serve, server_config, write};
use crate::{Answer, Call, CallError, CloseReason, Compatibility, Config};

const CALLS: u32 = 33;
const LEN: usize = 64 << 10;

/// A pair on a link of this many bytes per second, with the credits of a first reply. `tells`: the providers report
/// progress.
fn linked(bandwidth: u64, server_memory: usize, tells: bool) -> Pair {
    linked_with(&Compatibility::default(), bandwidth, server_memory, tells)
}

pub(super) fn linked_with(
    compatibility: &Compatibility,
    bandwidth: u64,
    server_memory: usize,
    tells: bool,
) -> Pair {
    let fabric = Fabric::new(FabricConfig { bandwidth: Some(bandwidth), ..FabricConfig::default() });
    let compatibility = || compatibility.clone();
    let config = Config { calls: CALLS, compatibility: compatibility(), ..Config::default() };
    let server = Config { grant: CALLS, compatibility: compatibility(), ..server_config() };
    let mut pair = Pair::on(&fabric, config, server, server_memory);
    pair.client.tells = tells;
    pair.server.tells = tells;
    pair.round_trip(null(1));
    pair
}

/// Makes many calls whose data takes more than twice as long as any timer.
fn goes_on(call: fn(u32, usize) -> Call, server_memory: usize, tells: bool) {
    let mut pair = linked(16 << 10, server_memory, tells);
    for xid in 2..CALLS + 2 {
        pair.call(call(xid, LEN));
    }
    pair.run_for(Duration::from_secs(150));
    assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None));
    assert_eq!(pair.client.replies.len(), 33);
    assert!(pair.client.replies.iter().all(|(_, result)| result.is_ok()));
    pair.check_no_leak();
}

#[test]
fn i6_arguments_that_are_read_over_a_slow_link_are_not_cut_off() {
    for tells in [true, false] {
        goes_on(write, 64 << 20, tells);
        // Most calls wait for the memory of earlier ones.
        goes_on(write, 512 << 10, tells);
    }
}

#[test]
fn i6_results_that_are_written_over_a_slow_link_are_not_cut_off() {
    for tells in [true, false] {
        goes_on(read, 64 << 20, tells);
    }
}

/// The answer to a READ, with its data in memory of the domain.
fn serve_from(domain: &ProtectionDomain, mut message: Decoder) -> Answer {
    let words: Vec<u32> = (0..11).map(|_| message.u32().unwrap()).collect();
    let len = usize::try_from(words[10]).unwrap();
    let mut memory = domain.allocate(len, 1).unwrap();
    memory.copy_from_slice(&pattern(len));
    let mut reply = Encoder::new();
    for word in [words[0], 1, 0, 0, 0, 0] {
        reply.u32(word);
    }
    reply.payload(memory.freeze(), MAX, true).unwrap();
    Answer::message(reply.finish())
}

/// An RDMA Read Request leaves behind earlier RDMA Writes, which take four times as long as its timer.
#[test]
fn i6_arguments_that_are_read_behind_results_over_a_slow_link_are_not_cut_off() {
    for tells in [true, false] {
        let mut pair = linked(16 << 10, 64 << 20, tells);
        for xid in 2..34 {
            pair.call(read(xid, LEN));
        }
        pair.call(write(40, LEN));
        pair.run_for(Duration::from_secs(200));
        assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None), "progress told: {tells}");
        assert_eq!(pair.client.replies.len(), 33);
        assert!(pair.client.replies.iter().all(|(_, result)| result.is_ok()));
        pair.check_no_leak();
    }
}

/// A result holds the memory that arguments wait for, and takes twice as long to leave as these may wait.
#[test]
fn i6_arguments_that_wait_for_memory_of_results_over_a_slow_link_are_not_cut_off() {
    for tells in [true, false] {
        let mut pair = linked(16 << 10, 1212 << 10, tells);
        pair.server.serving = false;
        pair.call(read(2, 1 << 20));
        pair.run_for(Duration::from_secs(1));
        let (token, _, _, message) = pair.server.calls.pop().unwrap();
        let (now, answer) = (pair.now(), serve_from(&pair.server.domain, message));
        pair.server.connection.reply(now, token, answer);
        pair.server.serving = true;
        pair.call(write(40, LEN));
        pair.run_for(Duration::from_secs(10));
        assert_eq!(pair.server.connection.wants_memory(), Some(LEN), "no memory for the arguments");
        pair.run_for(Duration::from_secs(100));
        assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None), "progress told: {tells}");
        assert_eq!(pair.client.replies.len(), 2);
        assert!(pair.client.replies.iter().all(|(_, result)| result.is_ok()));
        pair.check_no_leak();
    }
}

/// The time to close counts requests that wait for a place in the send queue, too.
#[test]
fn i6_a_close_in_order_over_a_slow_link_lets_everything_leave() {
    for tells in [true, false] {
        // The bandwidth is barely above the least rate.
        let bandwidth = Some(9 << 10);
        let close_timeout = Duration::from_secs(600);
        let fabric = Fabric::new(FabricConfig { bandwidth, close_timeout, ..FabricConfig::default() });
        let (client, server) = (Config { calls: CALLS, ..Config::default() }, server_config());
        let mut pair = Pair::on_queues(&fabric, client, server, 64 << 20, 4);
        pair.client.tells = tells;
        pair.server.tells = tells;
        pair.round_trip(null(1));
        pair.server.serving = false;
        for xid in 2..5 {
            pair.call(read(xid, 4 * LEN));
        }
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.server.calls.len(), 3);
        let now = pair.now();
        for (token, _, _, message) in std::mem::take(&mut pair.server.calls) {
            pair.server.connection.reply(now, token, serve(message));
        }
        // The provider has two replies, and the third waits for a place in the send queue.
        while pair.server.pump(now) {}
        pair.server.connection.close(now);
        pair.run_for(Duration::from_secs(120));
        let answered = pair.client.replies.iter().filter(|(_, result)| result.is_ok()).count();
        assert_eq!(answered, 3, "progress told: {tells}");
    }
}

#[test]
fn i6_arguments_below_the_least_rate_hold_memory_for_a_limited_time() {
    // Without reported progress the limit grows by the time that the data takes at the least rate: 8 s.
    for (tells, least, most) in [(true, 29, 32), (false, 37, 40)] {
        let mut pair = linked(100_000, 64 << 20, tells);
        let before = pair.server.domain.usage().in_use;
        pair.call(write(2, LEN));
        // The Call arrives, and then no data moves.
        pair.pump();
        while pair.server.domain.usage().in_use < before + LEN {
            assert!(pair.fabric.step());
            pair.pump();
        }
        let now = pair.now();
        while pair.server.closed.is_none() {
            let due = pair.server.connection.poll_timeout().expect("no wait is without a timer");
            pair.fabric.advance(due.saturating_duration_since(pair.fabric.instant()));
            let now = pair.fabric.instant();
            pair.server.connection.handle_timeout(now);
            while pair.server.pump(now) {}
        }
        assert_eq!(pair.server.closed, Some(CloseReason::Timeout("an RDMA Read")));
        let took = (pair.now() - now).as_secs();
        assert!((least..=most).contains(&took), "{took} s");
        assert!(pair.server.domain.usage().in_use < LEN);
    }
}

#[test]
fn i6_results_that_are_taken_below_the_least_rate_hold_memory_for_a_limited_time() {
    let mut pair = linked(1000, 64 << 20, true);
    pair.call(read(2, 1 << 20));
    pair.run_for(Duration::from_secs(59));
    assert_eq!(pair.server.closed, None);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.server.closed, Some(CloseReason::Timeout("the peer to take what is sent")));
}

/// Data of other calls gives an unanswered call no more time than their data and its own may take.
#[test]
fn i6_a_call_without_a_reply_ends_though_the_link_is_busy() {
    let mut pair = linked(64 << 10, 64 << 20, true);
    pair.server.serving = false;
    let lost = pair.call(write(2, LEN));
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.server.calls.len(), 1);
    pair.server.serving = true;
    for xid in 3..20 {
        pair.call(write(xid, LEN));
        pair.run_for(Duration::from_secs(5));
    }
    let (_, result) = pair.client.replies.iter().find(|(id, _)| *id == lost).expect("it has ended");
    assert_eq!(result.as_ref().unwrap_err().error, CallError::TimedOut);
    assert_eq!(pair.client.closed, None);
}
