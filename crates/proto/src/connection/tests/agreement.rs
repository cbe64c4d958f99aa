//! Values agreed after set-up take effect (RFC 5666 §6.2).

use std::time::Duration;

use rpcrdma_sim::{CompletionMode, FabricConfig};
use rpcrdma_verbs::ProtectionDomain;

use crate::planner::Refusal;
use crate::settings::agreement::{Agreement, BelowBasic};
use crate::testing::*;
use crate::{CallError, Config, Form, Invalidations, Thresholds};

pub(super) const AGREED: Agreement =
    Agreement { call_size: 2048, reply_size: 4096, client_reads: 8, server_reads: 8, align: 64 };

/// Two sides without private data at set-up.
fn silent(fabric: FabricConfig, client: Config, server: Config) -> Pair {
    Pair::with(fabric, Config { announce: false, ..client }, Config { announce: false, ..server })
}

pub(super) fn agree(pair: &mut Pair, agreement: Agreement) {
    pair.client.connection.agree(agreement).unwrap();
    pair.server.connection.agree(agreement).unwrap();
}

/// Header of 28 bytes, Call of 40 or Reply of 24, a count, the data. The client cannot know that a Reply beyond 1024
/// bytes will be inline. So it offers a Reply chunk, which the Reply returns in 20 bytes.
// requirement: rfc5666-6.2-1
#[test]
fn rfc5666_s6_2_messages_are_inline_up_to_what_was_agreed() {
    let mut pair = silent(FabricConfig::default(), Config::default(), server_config());
    let forms = |pair: &mut Pair, xid, call: usize, reply: usize| {
        let stored = pair.round_trip(store(xid, call - 72));
        let listed = pair.round_trip(list(xid + 1, reply - 56));
        (stored.call.form, listed.reply.form)
    };
    assert_eq!(forms(&mut pair, 1, 1024, 1024), (Form::Inline, Form::Inline));
    assert_eq!(forms(&mut pair, 3, 1028, 1028), (Form::Long, Form::Long));
    agree(&mut pair, AGREED);
    assert_eq!(pair.client.connection.thresholds(), Thresholds { send: 2048, receive: 1024 });
    assert_eq!(pair.server.connection.thresholds(), Thresholds { send: 4096, receive: 2048 });
    assert_eq!(pair.server.connection.agreement(), Some(&AGREED));
    assert_eq!(forms(&mut pair, 5, 2048, 4076), (Form::Inline, Form::Inline));
    assert_eq!(forms(&mut pair, 7, 2052, 4080), (Form::Long, Form::Long));
    pair.check_no_leak();
}

/// RFC 5666 §6.2: `maxreply_sendsize` is the client's limit. No value announces how much the server sends.
#[test]
fn rfc5666_s6_2_the_size_of_replies_is_no_promise_of_the_server() {
    let client = Config { receive_size: 8192, ..Config::default() };
    let mut pair = silent(FabricConfig::default(), client, server_config());
    agree(&mut pair, Agreement { reply_size: 8192, ..AGREED });
    assert_eq!(pair.client.connection.thresholds().receive, 1024);
    assert_eq!(pair.server.connection.thresholds().send, 4096);
    for (xid, len, form) in [(1, 900, Form::Inline), (2, 3000, Form::Inline), (3, 6000, Form::Long)] {
        let reply = pair.round_trip(list(xid, len));
        assert_eq!(reply.reply.form, form, "{len}");
        check_reply(LIST, len, reply);
    }
}

/// A side without private data gets 1024 bytes; the other side's announcement bounds its own direction.
// requirement: rfc8797-5.1-1, rfc8166-3.3.3-3
#[test]
fn rfc8797_s5_1_a_side_that_says_nothing() {
    let quiet = Config { announce: false, ..Config::default() };
    let mut pair = Pair::with(FabricConfig::default(), quiet, server_config());
    assert_eq!(pair.client.connection.thresholds(), Thresholds { send: 4096, receive: 1024 });
    assert_eq!(pair.server.connection.thresholds(), Thresholds { send: 1024, receive: 1024 });
    let reply = pair.round_trip(list(1, 2000));
    assert_eq!(reply.reply.form, Form::Long);
    assert_eq!(reply.invalidations, Invalidations { local: 1, ..Invalidations::default() });
    agree(&mut pair, Agreement { call_size: 1 << 20, reply_size: 1 << 20, ..AGREED });
    assert_eq!(pair.client.connection.thresholds(), Thresholds { send: 4096, receive: 4096 });
    assert_eq!(pair.server.connection.thresholds(), Thresholds { send: 4096, receive: 4096 });
}

#[test]
fn rfc8797_s4_an_agreement_lowers_what_was_said_at_set_up_and_never_raises_it() {
    let mut pair = Pair::new();
    let before = Thresholds { send: 4096, receive: 4096 };
    assert_eq!(pair.client.connection.agreeable(), before);
    agree(&mut pair, Agreement { call_size: 1 << 20, reply_size: 1500, ..AGREED });
    assert_eq!(pair.client.connection.thresholds(), Thresholds { send: 4096, receive: 1500 });
    let held = pair.server.connection.agreement().map(|agreed| (agreed.call_size, agreed.reply_size));
    assert_eq!(held, Some((4096, 1500)));
}

#[test]
fn rfc5666_s6_1_less_than_1024_is_refused_and_changes_nothing() {
    let mut pair = Pair::new();
    let before = pair.client.connection.thresholds();
    let refused = pair.client.connection.agree(Agreement { call_size: 1023, ..AGREED });
    assert_eq!(refused, Err(BelowBasic { what: "Calls", size: 1023 }));
    assert_eq!(pair.client.connection.agreement(), None);
    assert_eq!(pair.client.connection.thresholds(), before);
}

/// Receives that are posted stay until they are used; later ones have the agreed size.
#[test]
fn later_receives_have_the_agreed_size() {
    let large = 64 << 10;
    let server = Config { receive_size: large, grant: 4, ..server_config() };
    let mut pair = silent(FabricConfig::default(), Config::default(), server);
    pair.settle();
    assert!(pair.server.domain.usage().in_use >= 4 * large);
    agree(&mut pair, AGREED);
    for xid in 1..=8 {
        pair.round_trip(store(xid, 1900));
    }
    assert!(pair.server.domain.usage().in_use <= 4 * ProtectionDomain::room_for(2048));
}

// requirement: rfc5666-6.2-2
#[test]
fn rfc5666_s6_2_no_more_rdma_reads_than_agreed_are_under_way() {
    let jitter = Duration::from_micros(50);
    for fabric in [
        FabricConfig::default(),
        FabricConfig { completion_mode: CompletionMode::Acknowledged, ..FabricConfig::default() },
        FabricConfig { seed: 3, jitter, completion_jitter: jitter, ..FabricConfig::default() },
    ] {
        for (agreed, expected) in [(1, 1), (2, 2), (7, 7), (1000, 36)] {
            let client = Config { max_segment_len: 1024, ..Config::default() };
            let mut pair = Pair::with(fabric.clone(), client, server_config());
            pair.round_trip(null(1));
            agree(&mut pair, Agreement { client_reads: agreed, ..AGREED });
            for xid in 2..6 {
                pair.call(write(xid, 9000));
            }
            pair.settle();
            assert_eq!(pair.client.replies.len(), 4);
            for (_, reply) in pair.client.replies.drain(..) {
                check_reply(WRITE, 9000, reply.unwrap());
            }
            let stats = pair.server.connection.stats();
            assert_eq!(stats.reads_at_once, expected, "{agreed} agreed");
            assert_eq!((stats.payload_bytes_copied, stats.read_segments), (0, 36));
            pair.check_no_leak();
        }
    }
}

// requirement: rfc5666-6.2-3
#[test]
fn rfc5666_s6_2_zero_reads_nothing_leaves_that_needs_one() {
    for agreement in [Agreement { client_reads: 0, ..AGREED }, Agreement { server_reads: 0, ..AGREED }] {
        let client = Config { reduce_from: Some(100), ..Config::default() };
        let mut pair = Pair::with(FabricConfig::default(), client, server_config());
        agree(&mut pair, agreement);
        // Data that would leave in a chunk goes inline as long as it fits.
        let reply = pair.round_trip(write(1, 1900));
        assert_eq!(reply.call.form, Form::Inline);
        for call in [write(2, 5000), store(3, 5000)] {
            let error = pair.outcome(call).unwrap_err().error;
            let CallError::Unsendable(Refusal::ReadsNotAgreed { len: 5072, allowed: 2048 }) = error else {
                panic!("{error}")
            };
        }
        // The agreed number of RDMA Reads does not limit RDMA Writes.
        check_reply(READ, 9000, pair.round_trip(read(4, 9000)));
    }
}

#[test]
fn rfc5666_s6_2_read_chunks_of_a_peer_that_may_not_be_read_are_refused() {
    let mut pair = Pair::new();
    pair.server.connection.agree(Agreement { client_reads: 0, ..AGREED }).unwrap();
    assert!(matches!(pair.outcome(write(1, 5000)).unwrap_err().error, CallError::Chunk));
    assert_eq!(pair.server.connection.stats().errors["reads_not_agreed"], 1);
    assert_eq!(pair.server.connection.stats().reads_at_once, 0);
    check_reply(WRITE, 1000, pair.round_trip(write(2, 1000)));
}
