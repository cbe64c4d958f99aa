//! Limits and timers that hold for exposed replies too.

use std::time::Duration;

use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};

use super::super::agreement::{AGREED, agree};
use super::super::pace::linked_with;
use super::super::rules::hold_all;
use crate::settings::agreement::Agreement;
use crate::testing::*;
use crate::{Compatibility, Config, ReadRead};

/// RDMA Reads of the server's arguments and of its exposed replies share one count.
// requirement: rfc5666-6.2-2
#[test]
fn rfc5666_s6_2_reads_for_calls_and_replies_are_counted_together() {
    let read_read = ReadRead { withhold_chunks: true, ..ReadRead::default() };
    let compatibility = Compatibility { read_read: Some(read_read), ..Compatibility::default() };
    let both = |config| Config {
        compatibility: compatibility.clone(),
        reverse_chunks: true,
        max_segment_len: 1024,
        ..config
    };
    let jitter = Duration::from_micros(50);
    for fabric in [
        FabricConfig::default(),
        FabricConfig { completion_mode: CompletionMode::Acknowledged, ..FabricConfig::default() },
        FabricConfig { seed: 5, jitter, completion_jitter: jitter, ..FabricConfig::default() },
    ] {
        for agreed in [1, 2, 7, 16] {
            let mut pair = Pair::with(fabric.clone(), both(Config::default()), both(server_config()));
            pair.round_trip(null(1));
            let now = pair.now();
            pair.server.connection.call(now, null(2)).unwrap();
            pair.settle();
            pair.server.replies.clear();
            agree(&mut pair, Agreement { server_reads: agreed, ..AGREED });
            for xid in 10..14 {
                pair.call(read(xid, 9000));
                pair.server.connection.call(now, write(xid, 9000)).unwrap();
            }
            pair.settle();
            assert_eq!((pair.client.replies.len(), pair.server.replies.len()), (4, 4));
            for (_, reply) in pair.client.replies.drain(..) {
                check_reply(READ, 9000, reply.unwrap());
            }
            for (_, reply) in pair.server.replies.drain(..) {
                check_reply(WRITE, 9000, reply.unwrap());
            }
            let stats = pair.client.connection.stats();
            assert_eq!(stats.reads_at_once, u64::from(agreed), "{agreed} agreed");
            assert_eq!((stats.payload_bytes_copied, stats.dones_sent), (0, 4));
            pair.check_no_leak();
        }
    }
}

/// An exposed result takes longer to read than its exposure or its call may last (RFC 5666 §3.8).
#[test]
fn i6_results_that_are_exposed_over_a_slow_link_are_not_cut_off() {
    let read_read = Some(ReadRead { withhold_chunks: true, ..ReadRead::default() });
    let compatibility = Compatibility { read_read, ..Compatibility::default() };
    // 48 s and 64 s.
    for len in [48 * (16 << 10), 1 << 20] {
        for tells in [true, false] {
            let mut pair = linked_with(&compatibility, 16 << 10, 64 << 20, tells);
            pair.call(read(2, len));
            pair.run_for(Duration::from_secs(150));
            assert_eq!((&pair.client.closed, &pair.server.closed), (&None, &None), "progress told: {tells}");
            let [(_, Ok(_))] = &pair.client.replies[..] else {
                panic!("{len}, {tells}: {:?}", pair.client.replies)
            };
            pair.check_no_leak();
        }
    }
}

/// An answer needs little memory, while waiting arguments need much. The answer leaves as soon as the little memory is
/// there.
#[test]
fn i6_an_answer_does_not_wait_for_the_memory_of_arguments() {
    use std::task::{Context, Waker};
    let mut cx = Context::from_waker(Waker::noop());
    let read_read = |config| Config {
        compatibility: Compatibility {
            read_read: Some(ReadRead { withhold_chunks: true, ..ReadRead::default() }),
            ..Compatibility::default()
        },
        ..config
    };
    let fabric = Fabric::new(FabricConfig::default());
    let config = Config { grant: 8, early_calls: 1, ..read_read(server_config()) };
    let mut pair = Pair::on(&fabric, read_read(Config::default()), config, 1 << 20);
    pair.round_trip(null(1));
    pair.server.serving = false;
    let domain = pair.server.domain.clone();
    let mut others = hold_all(&domain);
    pair.call(read(2, 5000));
    pair.call(write(3, 1 << 16));
    pair.settle();
    assert_eq!(pair.server.connection.wants_memory(), Some(1 << 16), "memory for arguments");
    let (token, _, _, message) = pair.server.calls.pop().unwrap();
    let now = pair.now();
    pair.server.connection.reply(now, token, serve(message));
    pair.settle();
    assert_eq!(pair.client.replies.len(), 0, "what is exposed counts as memory");
    let mut wait = domain.wait();
    let wanted = |pair: &Pair| pair.server.connection.wants_memory().unwrap();
    assert!(wait.poll(&mut cx, wanted(&pair)).is_pending());
    // Memory for the exposed reply, and for the Receives of its RDMA_DONE and of the next Call.
    others.truncate(others.len() - 4);
    assert!(wait.poll(&mut cx, wanted(&pair)).is_ready());
    pair.settle();
    assert_eq!(pair.client.replies.len(), 1);
    drop((others, wait));
    pair.settle();
    assert_eq!(pair.server.calls.len(), 1);
}
