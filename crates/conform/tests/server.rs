//! The rows against servers: our own server passes, and a server with the corresponding fault fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rpcrdma_conform::server::{Target, Tester, rows};
use rpcrdma_conform::{Report, Verdict};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::ReadSegment;
use rpcrdma_sim::CompletionMode;
use rpcrdma_verbs::Listener;
use support::faulty::{Act, DIES_OF_FAULTS, DIES_WITH_ITS_CONNECTION, Fault, Seen, lists, with_lists, word};
use support::script::{Past, Script, Turn};
use support::{
    Found, all_pass, each_has_a_fault, each_has_a_live_fault, each_is_red, export, faulty_target,
    good_target, page_shows, serve,
};

async fn run(target: Target, filter: Option<&str>) -> Report {
    Tester::new(target).run(|row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[tokio::test(start_paused = true)]
async fn our_server_passes_on_sim() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        all_pass(&run(good_target(mode).await, None).await, rows(None).len());
    }
}

#[tokio::test]
async fn our_server_passes_on_iwarp() {
    let listener = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = IwarpListener::bind(listener, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    serve(vec![Box::new(listener)]);
    let connector = Arc::new(IwarpConnector::default());
    let export = export(connector.clone(), address).await;
    let target = Target { export: Some(export), ..Target::new(connector, address) };
    let report = run(target, None).await;
    // For docs/conform.md, with --nocapture.
    println!("{}", report.table());
    all_pass(&report, rows(None).len());
}

#[tokio::test(start_paused = true)]
async fn without_an_export_its_rows_are_not_applicable() {
    let target = Target { export: None, ..good_target(CompletionMode::Local).await };
    let report = run(target, None).await;
    assert!(report.is_good());
    let of = |name: &str| report.rows.iter().find(|row| row.row.name == name).unwrap();
    assert_eq!(of("null-inline").verdict, Verdict::Pass);
    assert_eq!(of("write-chunk-one").verdict, Verdict::NotApplicable);
    assert!(of("write-chunk-one").seen.contains("no NFSv3 export"), "{:?}", of("write-chunk-one"));
}

#[tokio::test(start_paused = true)]
async fn who_answers_nobody_fails_every_row() {
    let report = run(faulty_target(Fault::On(|_, _| true, Act::Ignore)).await, None).await;
    let green: Vec<_> = report.rows.iter().filter(|row| row.verdict != Verdict::Fail).collect();
    assert!(green.is_empty(), "{green:#?}");
    assert_eq!(report.rows.len(), rows(None).len());
    assert!(!report.is_good());
}

#[tokio::test(start_paused = true)]
async fn what_the_file_system_refuses_is_not_applicable_and_what_the_transport_loses_fails() {
    let mut target = good_target(CompletionMode::Local).await;
    target.export.as_mut().unwrap().root = vec![1; 8];
    let report = run(target, Some("write-chunk-one")).await;
    assert_eq!(report.rows[0].verdict, Verdict::NotApplicable, "{report:?}");
    assert!(report.rows[0].seen.contains("nfsstat3"), "{report:?}");
    let creates = Fault::On(|_, m| is(m, 8), Act::Ignore);
    let report = run(faulty_target(creates).await, Some("write-chunk-one")).await;
    assert_eq!(report.rows[0].verdict, Verdict::Fail, "{report:?}");
}

/// FreeBSD answers with ERR_VERS, then ends the connection.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_after_the_right_answer_differs() {
    let closes = Fault::On(odd, Act::ErrVersAndClose);
    let report = run(faulty_target(closes).await, Some("version")).await;
    assert_eq!(report.rows[0].verdict, Verdict::Differs, "{report:?}");
    assert!(report.rows[0].seen.contains("ERR_VERS 1-1, then the connection is closed"), "{report:?}");
}

/// Where silence and answers are allowed, a late answer is accepted too.
#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_allowed_kind_is_noted() {
    let late = Fault::On(odd, Act::LateErrChunk);
    let report = run(faulty_target(late).await, Some("nomsg-without-payload")).await;
    assert_eq!(report.rows[0].verdict, Verdict::Pass, "{report:?}");
    assert!(report.rows[0].seen.contains("nothing, ERR_CHUNK"), "{report:?}");
    let report = run(faulty_target(late).await, Some("reply-to-nothing")).await;
    assert_eq!(report.rows[0].verdict, Verdict::Fail, "{report:?}");
}

/// Returns the RPC numbers of an inline call.
fn procedure(bytes: &[u8]) -> Option<(u32, u32)> {
    let (message, _, payload) = lists(bytes)?;
    (message && payload.len() >= 24).then(|| (word(payload, 3), word(payload, 5)))
}

const READ: u32 = 6;
const WRITE: u32 = 7;

fn is(bytes: &[u8], number: u32) -> bool {
    procedure(bytes) == Some((100_003, number))
}

fn reads(bytes: &[u8]) -> Vec<ReadSegment> {
    lists(bytes).map(|(_, lists, _)| lists.read).unwrap_or_default()
}

/// Returns whether this is any message but the complete NULL call of Version One without chunks, which the tester sends
/// between rows.
fn odd(_: &Seen, bytes: &[u8]) -> bool {
    bytes.len() != 68
        || [1, 3, 4, 5, 6].iter().any(|at| word(bytes, *at) != u32::from(*at == 1))
        || word(bytes, 0) != word(bytes, 7)
        || word(bytes, 8) != 0
}

fn set(bytes: &mut [u8], index: usize, value: u32) {
    bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
}

const SUCCESS: Act = Act::Reply(0);
const GARBAGE: Act = Act::Reply(4);

/// Sends every reply twice.
const fn twice() -> Fault {
    Fault::Script(Script::sends(|_, message| vec![message.clone(), message]))
}

/// Number of calls that our server takes at once behind the fault [`grants_less`].
const TAKES: u32 = 600;

/// Grants 4 credits, has Receives for [`TAKES`] calls, and treats received messages in this way.
const fn grants_less(receives: fn(&Past, &[u8]) -> Turn) -> Fault {
    let sends = |_: &Past, mut message: Vec<u8>| {
        set(&mut message, 2, 4);
        vec![message]
    };
    Fault::Script(Script { receives, sends, ..Script::NONE })
}

/// Returns the turn for a message that the good peer gets, with a request for [`TAKES`] credits.
fn asks_for_more(message: &[u8]) -> Turn {
    let mut message = message.to_vec();
    set(&mut message, 2, TAKES);
    Turn::pass(&message)
}

/// Announces Receives of 1024 bytes, although its Receives are longer, and treats received messages in this way.
const fn announces_less(receives: fn(&Past, &[u8]) -> Turn) -> Fault {
    let announces =
        |_| PrivateData { remote_invalidation: false, send_size: 1024, receive_size: 1024 }.encode();
    Fault::Script(Script { receives, announces, ..Script::NONE })
}

/// Answers a message with these words behind XID, version and credits.
fn answer(message: &[u8], words: &[u32]) -> Turn {
    Turn::answer(&[&[word(message, 0), 1, 32], words].concat())
}

/// Loses the credits of ended connections: after eight of them no credit is left.
const LEAKS: Fault = Fault::Script(Script::sends(|past, mut message| {
    if past.ended >= 8 {
        set(&mut message, 2, 0);
    }
    vec![message]
}));

/// Sends the reply to a call of an ended connection again, in front of the first reply of the next one.
const REPLAYS: Fault = Fault::Script(Script::sends(|past, message| {
    let mut earlier = message.clone();
    match past.xids.iter().rev().find(|xid| **xid != word(&message, 0)) {
        Some(xid) if past.ended > 0 && past.sent.is_empty() => {
            set(&mut earlier, 0, *xid);
            vec![earlier, message]
        }
        _ => vec![message],
    }
}));

/// Faults for each row, with the words of the report.
static FAULTS: &[Found] = &[
    ("null-inline", Fault::On(|_, _| true, GARBAGE), "a reply GARBAGE_ARGS"),
    ("null-inline", Fault::Sends(|seen, m| set(m, 0, seen.credit)), "a message under XID"),
    ("null-inline", twice(), "a message under XID"),
    // illumos once checked only the first entry; this peer checks none.
    ("position-zero-one", Fault::On(|_, m| reads(m).len() == 1, Act::ErrChunk), "ERR_CHUNK"),
    (
        "position-zero-many",
        Fault::On(|_, m| reads(m).len() > 1, Act::Rewrite(|m| with_lists(m, |l| l.read.truncate(1)))),
        "ERR_CHUNK",
    ),
    (
        "reply-chunk-spare",
        Fault::Sends(|_, m| *m = with_lists(m, |l| l.reply = None)),
        "the Reply chunk is not returned",
    ),
    (
        "write-chunk-spare",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| {
                l.write.iter_mut().flat_map(|c| &mut c.segments).for_each(|s| s.length = 4);
            });
        }),
        "the Write chunk is not filled from the front",
    ),
    (
        "forms-in-turn",
        Fault::On(|seen, m| seen.count > 3 && word(m, 3) == 1, Act::Close),
        "the connection ended",
    ),
    ("forms-in-turn", Fault::On(|seen, m| seen.count > 3 && word(m, 3) == 1, Act::ErrChunk), "ERR_CHUNK"),
    (
        "program-unavailable",
        Fault::On(|_, m| procedure(m).is_some_and(|(program, _)| program == 0x3fff_fffe), SUCCESS),
        "reply SUCCESS",
    ),
    (
        "procedure-unavailable",
        Fault::On(|_, m| procedure(m).is_some_and(|(_, number)| number > 0xffff), SUCCESS),
        "reply SUCCESS",
    ),
    ("rpc-version", Fault::On(|_, m| word(m, 9) == 3, SUCCESS), "reply SUCCESS"),
    ("nfs-inline", Fault::On(|_, m| is(m, 1), GARBAGE), "a reply GARBAGE_ARGS"),
    (
        "read-chunk-one",
        Fault::On(
            |_, m| is(m, WRITE) && reads(m).len() == 1,
            Act::Rewrite(|m| with_lists(m, |l| l.read[0].segment.offset += 1)),
        ),
        "the connection ended",
    ),
    (
        "read-chunk-many",
        Fault::On(|_, m| is(m, WRITE), Act::Rewrite(|m| with_lists(m, |l| l.read.reverse()))),
        "the file does not hold the data of the chunk",
    ),
    (
        "read-chunk-no-pad",
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length % 4 != 0), GARBAGE),
        "a reply GARBAGE_ARGS",
    ),
    (
        "read-chunk-pad",
        Fault::On(|_, m| reads(m).iter().map(|s| s.segment.length).sum::<u32>() == 1204, GARBAGE),
        "a reply GARBAGE_ARGS",
    ),
    (
        "read-chunk-pad-segment",
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length == 3), Act::ErrChunk),
        "ERR_CHUNK",
    ),
    (
        "read-chunk-empty-segment",
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length == 0), Act::ErrChunk),
        "ERR_CHUNK",
    ),
    (
        "position-zero-and-read",
        Fault::On(|_, m| reads(m).last().is_some_and(|s| s.position > 0), Act::ErrChunk),
        "ERR_CHUNK",
    ),
    (
        "write-chunk-one",
        Fault::Writes(|data| data[0] ^= 1),
        "the Write chunk does not hold the data of the file",
    ),
    (
        "write-chunk-many",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| {
                if let Some([first, second, ..]) = l.write.first_mut().map(|c| &mut c.segments[..]) {
                    second.handle = first.handle;
                }
            });
        }),
        "a segment of the Write chunk is returned with another handle or offset",
    ),
    // RFC 5666 §3.7 counted the pad.
    (
        "write-chunk-roomy",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| l.write.iter_mut().for_each(|c| c.segments[1].length += 3));
        }),
        "1001 bytes were read: count 1001, length 1001, 1004 in the Write chunk",
    ),
    ("write-chunk-roomy", Fault::WritesMore(&[0; 3]), "the pad of the data was written behind it"),
    (
        "write-chunk-unused",
        Fault::Sends(|_, m| *m = with_lists(m, |l| l.write.clear())),
        "0 Write chunks returned, 1 offered",
    ),
    (
        "write-chunk-empty",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.write.iter().any(|c| c.segments.is_empty())),
            Act::Ignore,
        ),
        "no reply",
    ),
    (
        "write-chunk-two",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.write.len() == 2),
            Act::Rewrite(|m| with_lists(m, |l| l.write.reverse())),
        ),
        "a Write chunk of 2 segments returned, 1 were offered",
    ),
    (
        "reply-chunk-one",
        Fault::Writes(|data| *data.last_mut().unwrap() ^= 1),
        "not the data of the file: RDMA_NOMSG of 48 bytes, 2128 in the Reply chunk",
    ),
    (
        "reply-chunk-many",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| l.reply.iter_mut().for_each(|c| c.segments[0].length = 0));
        }),
        "the Reply chunk is not filled from the front",
    ),
    (
        "write-and-reply",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.reply.is_some()),
            Act::Rewrite(|m| with_lists(m, |l| l.write.clear())),
        ),
        "0 Write chunks returned, 1 offered",
    ),
    (
        "read-and-write",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| !l.read.is_empty() && !l.write.is_empty()),
            Act::ErrChunk,
        ),
        "ERR_CHUNK",
    ),
    ("symlink-and-readlink", Fault::On(|_, m| is(m, 10) && !reads(m).is_empty(), Act::ErrChunk), "ERR_CHUNK"),
    (
        "readdir-reply-chunk",
        Fault::On(|_, m| is(m, 16), Act::Rewrite(|m| with_lists(m, |l| l.reply = None))),
        "ERR_CHUNK",
    ),
    ("first-flight", Fault::Sends(|_, m| set(m, 2, 0)), "a NULL call: a reply that grants 0 credits"),
    // Grants the requested number.
    ("request-zero", Fault::Sends(|seen, m| set(m, 2, seen.credit)), "a reply that grants 0 credits"),
    (
        "request-one",
        Fault::On(|seen, _| seen.credit == 1 && seen.count > 1, Act::Ignore),
        "1 calls have no reply",
    ),
    (
        "request-all",
        Fault::On(|seen, _| seen.credit == u32::MAX, Act::Die),
        "the connection ended with 1 calls unanswered",
    ),
    ("request-all", Fault::On(|seen, _| seen.credit == u32::MAX, Act::Ignore), "1 calls have no reply"),
    (
        "up-to-the-grant",
        Fault::On(|seen, _| seen.count == 40, Act::Ignore),
        "64 calls at once within the grant: 1 calls have no reply",
    ),
    ("beyond-the-grant", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("beyond-the-grant", twice(), "a message for an XID that no call has"),
    (
        "beyond-the-grant",
        grants_less(|past, m| match past.received.len() {
            300 => answer(m, &[4, 1, 1, 1]),
            _ => asks_for_more(m),
        }),
        "ERR_VERS 1-1",
    ),
    (
        "private-data-absent",
        Fault::PrivateData(|data| (!data.is_empty()).then(|| data.clone())),
        "no connection: the peer rejected",
    ),
    (
        "private-data-present",
        Fault::PrivateData(|data| data.is_empty().then(|| data.clone())),
        "no connection: the peer rejected",
    ),
    (
        "private-data-extremes",
        Fault::PrivateData(|data| (!data.contains(&255)).then(|| data.clone())),
        "no connection: the peer rejected",
    ),
    // Reads beyond the end.
    (
        "private-data-malformed",
        Fault::PrivateData(|data| {
            Some([&data[..], if data.len() == 7 { &[3] } else { &[] }].concat().into())
        }),
        "asked for a reply beyond 1024 bytes, without a Reply chunk: reply SUCCESS",
    ),
    (
        "private-data-version",
        Fault::PrivateData(|data| {
            let mut data = data.to_vec();
            if let Some(version) = data.get_mut(4) {
                *version = 1;
            }
            Some(data.into())
        }),
        "asked for a reply beyond 1024 bytes, without a Reply chunk: reply SUCCESS",
    ),
    // Checks only the front.
    (
        "private-data-embedded",
        Fault::PrivateData(|data| (!data.starts_with(&[0xf6, 0xf6])).then(|| data.clone())),
        "at offset 1: no connection",
    ),
    (
        "invalidation-announced",
        Fault::Invalidates(|seen| seen.first_handles.first().copied().filter(|_| seen.count > 1)),
        "which is not of its call",
    ),
    (
        "invalidation-not-announced",
        Fault::Invalidates(|seen| seen.last_handles.first().copied()),
        "Send with Invalidate although the tester says R = 0",
    ),
    ("call-at-1024", Fault::On(|_, m| m.len() == 1024, Act::Close), "the connection ended"),
    ("call-at-1024", Fault::On(|_, m| m.len() == 1024, Act::ErrChunk), "ERR_CHUNK"),
    ("call-at-threshold", Fault::On(|_, m| m.len() == 4096, Act::Close), "the connection ended"),
    ("call-at-threshold", Fault::On(|_, m| m.len() == 4096, Act::ErrChunk), "ERR_CHUNK"),
    ("reply-at-1024", Fault::Sends(|_, m| over(m, 1024)), "ERR_CHUNK"),
    ("reply-at-threshold", Fault::Sends(|_, m| over(m, 4096)), "ERR_CHUNK"),
    ("call-over-receive", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    // This peer has longer Receives than it says.
    (
        "call-over-receive",
        announces_less(|_, m| if m.len() > 1024 { answer(m, &[4, 1, 1, 1]) } else { Turn::pass(m) }),
        "ERR_VERS 1-1",
    ),
    (
        "call-over-receive",
        announces_less(|_, m| if m.len() > 1024 { Turn::ignore() } else { Turn::pass(m) }),
        "neither an answer nor the end of the connection",
    ),
    (
        "short-message",
        Fault::On(|_, m| m.len() < 28, Act::ErrChunk),
        "0 bytes: a message under XID 0x00000000",
    ),
    ("cut-read-list", Fault::On(odd, Act::Ignore), "28 of 52 bytes: nothing"),
    ("cut-write-list", Fault::On(odd, Act::Die), "28 of 52 bytes: connection closed"),
    ("cut-write-list", Fault::On(odd, SUCCESS), "28 of 52 bytes: reply SUCCESS"),
    ("cut-reply-chunk", Fault::On(odd, SUCCESS), "28 of 48 bytes: reply SUCCESS"),
    ("version", Fault::On(odd, Act::ErrVers(2, 3)), "version 0: ERR_VERS with the range 2-3"),
    ("unknown-proc", Fault::On(odd, Act::Ignore), "rdma_proc 5: nothing"),
    ("msgp", Fault::On(odd, Act::Close), "connection closed"),
    ("msgp", Fault::On(odd, Act::ErrVers(1, 1)), "ERR_VERS 1-1"),
    ("done", Fault::On(odd, Act::ErrChunk), "16 bytes: ERR_CHUNK"),
    // Two known peers answer an error with an error.
    ("error-unanswered", Fault::On(odd, Act::ErrChunk), "ERR_CHUNK: ERR_CHUNK"),
    ("error-other-version", Fault::On(odd, Act::ErrChunk), "ERR_CHUNK"),
    ("discriminators", Fault::On(odd, SUCCESS), "2 in the Read list: reply SUCCESS"),
    ("counts", Fault::On(odd, Act::Die), "9 in a Write chunk: connection closed"),
    ("counts", Fault::On(odd, SUCCESS), "9 in a Write chunk: reply SUCCESS"),
    ("position-unaligned", Fault::On(odd, SUCCESS), "Position 41: reply SUCCESS"),
    ("position-beyond", Fault::On(odd, Act::Ignore), "Position 400: nothing"),
    ("position-overlap", Fault::On(odd, Act::Ignore), "nothing"),
    ("position-zero-in-msg", Fault::On(odd, Act::Ignore), "nothing"),
    ("nomsg-without-chunk", Fault::On(odd, Act::Ignore), "no chunk: nothing"),
    ("nomsg-without-payload", Fault::On(odd, SUCCESS), "Write chunk only: reply SUCCESS"),
    ("reply-to-nothing", Fault::On(odd, Act::ErrChunk), "ERR_CHUNK"),
    ("xid-mismatch", Fault::On(odd, Act::Ignore), "nothing"),
    ("position-zero-in-msg", Fault::On(odd, Act::Reply(5)), "reply SYSTEM_ERR"),
    ("rpc-cut", Fault::On(odd, Act::Die), "no connection: cannot connect"),
    ("rpc-cut", Fault::On(odd, SUCCESS), "0 bytes: reply SUCCESS"),
    ("rpc-cut", Fault::On(odd, Act::Reply(1)), "0 bytes: reply PROG_UNAVAIL"),
    ("rpc-message-type", Fault::On(odd, SUCCESS), "msg_type 2: reply SUCCESS"),
    ("rpc-message-type", Fault::On(odd, Act::Reply(3)), "msg_type 2: reply PROC_UNAVAIL"),
    ("many-segments", Fault::On(odd, Act::Ignore), "nothing"),
    ("many-segments", Fault::On(odd, Act::ErrVers(1, 1)), "ERR_VERS 1-1"),
    ("huge-segments", Fault::On(odd, Act::Die), "no connection: cannot connect"),
    ("huge-segments", Fault::On(odd, SUCCESS), "2^32-1 bytes: reply SUCCESS"),
    ("huge-segments", Fault::On(odd, Act::Ignore), "2^32-1 bytes: nothing"),
    ("wrapping-offset", Fault::On(odd, Act::Die), "no connection: cannot connect"),
    ("wrapping-offset", Fault::On(odd, Act::Ignore), "Write chunk: nothing"),
    ("wrapping-offset", Fault::On(odd, GARBAGE), "Write chunk: reply GARBAGE_ARGS"),
    ("read-wrong-key", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("read-wrong-key", Fault::On(|_, m| !reads(m).is_empty(), SUCCESS), "reply SUCCESS"),
    ("read-wrong-key", Fault::On(|_, m| !reads(m).is_empty(), Act::Ignore), "nothing"),
    ("read-beyond-window", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("read-beyond-window", Fault::On(|_, m| !reads(m).is_empty(), SUCCESS), "reply SUCCESS"),
    ("read-beyond-window", Fault::On(|_, m| !reads(m).is_empty(), Act::Ignore), "nothing"),
    ("read-revoked", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("read-revoked", Fault::On(|_, m| !reads(m).is_empty(), SUCCESS), "reply SUCCESS"),
    ("read-revoked", Fault::On(|_, m| !reads(m).is_empty(), Act::Ignore), "nothing"),
    ("read-of-write-window", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("read-of-write-window", Fault::On(|_, m| !reads(m).is_empty(), SUCCESS), "reply SUCCESS"),
    ("read-of-write-window", Fault::On(|_, m| !reads(m).is_empty(), Act::Ignore), "nothing"),
    ("read-again", Fault::On(|seen, m| seen.xids.contains(&word(m, 0)), Act::Ignore), "nothing"),
    ("write-wrong-key", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("write-wrong-key", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("write-wrong-key", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore), "nothing"),
    ("write-beyond-window", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("write-beyond-window", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("write-beyond-window", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore), "nothing"),
    ("write-revoked", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("write-revoked", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("write-revoked", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore), "nothing"),
    ("write-to-read-window", DIES_OF_FAULTS, "a new connection is not served: no connection: cannot connect"),
    ("write-to-read-window", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("write-to-read-window", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore), "nothing"),
    ("write-chunk-small", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("write-chunk-no-bytes", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("reply-chunk-small", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore), "nothing"),
    ("reply-chunk-missing", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS), "reply SUCCESS"),
    ("ineligible-argument", Fault::On(|_, m| is(m, 1), SUCCESS), "reply SUCCESS"),
    (
        "chunk-mismatch",
        Fault::On(|_, m| is(m, WRITE) && !reads(m).is_empty(), SUCCESS),
        "4 bytes short: reply SUCCESS",
    ),
    ("write-chunk-small", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Reply(1)), "reply PROG_UNAVAIL"),
    ("cut-before-call", DIES_OF_FAULTS, "no connection: cannot connect"),
    ("cut-before-call", LEAKS, "a new connection is not served: a NULL call: a reply that grants 0 credits"),
    ("cut-after-call", DIES_OF_FAULTS, "no connection: cannot connect"),
    ("cut-after-call", LEAKS, "a new connection is not served: a NULL call: a reply that grants 0 credits"),
    ("cut-after-call", REPLAYS, "a NULL call: a message under XID"),
    ("closed-after-call", DIES_WITH_ITS_CONNECTION, "no connection: cannot connect"),
    (
        "closed-after-call",
        LEAKS,
        "a new connection is not served: a NULL call: a reply that grants 0 credits",
    ),
    ("closed-after-call", REPLAYS, "a NULL call: a message under XID"),
    ("cut-in-read-chunk", DIES_OF_FAULTS, "no connection: cannot connect"),
    (
        "cut-in-read-chunk",
        LEAKS,
        "a new connection is not served: a NULL call: a reply that grants 0 credits",
    ),
    ("cut-in-read-chunk", REPLAYS, "a NULL call: a message under XID"),
    ("cut-in-write-chunk", DIES_OF_FAULTS, "no connection: cannot connect"),
    ("cut-in-write-chunk", LEAKS, "a NULL call: a reply that grants 0 credits"),
    ("cut-in-write-chunk", REPLAYS, "a NULL call: a message under XID"),
    ("silent-client", Fault::OneAtATime, "no connection"),
    ("unanswered-read", Fault::StallsOnReads, "no connection"),
];

/// Faults that are tolerable, or that the text leaves open, and that do not fail.
static BEARABLE: &[(&str, Verdict, Fault)] = &[
    // RFC 8166 §4.5.1 against §4.2.4.
    ("error-other-version", Verdict::Pass, Fault::On(|_, m| word(m, 1) == 9, Act::ErrVers(1, 1))),
    // The right answer, but other calls have to be sent again.
    ("position-beyond", Verdict::Differs, Fault::On(odd, Act::ErrChunkAndEnd)),
    ("discriminators", Verdict::Differs, Fault::On(odd, Act::ErrChunkAndEnd)),
    ("position-zero-in-msg", Verdict::Differs, Fault::On(odd, SUCCESS)),
    ("write-chunk-small", Verdict::Pass, Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Reply(5))),
    ("reply-chunk-small", Verdict::Pass, Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Reply(5))),
    (
        "chunk-mismatch",
        Verdict::Differs,
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length == 1600), SUCCESS),
    ),
    // All calls beyond the grant are answered, or one is not.
    (
        "beyond-the-grant",
        Verdict::Pass,
        grants_less(|past, m| if past.received.len() == 300 { answer(m, &[4, 2]) } else { asks_for_more(m) }),
    ),
    (
        "beyond-the-grant",
        Verdict::Differs,
        grants_less(|past, m| if past.received.len() == 300 { Turn::ignore() } else { asks_for_more(m) }),
    ),
    // Forms that RFC 8166 §4.3.2 forbids to clients.
    (
        "write-chunk-empty",
        Verdict::Pass,
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.write.iter().any(|c| c.segments.is_empty())),
            Act::ErrChunk,
        ),
    ),
    (
        "write-chunk-two",
        Verdict::Pass,
        Fault::On(|_, m| lists(m).is_some_and(|(_, l, _)| l.write.len() == 2), Act::ErrChunk),
    ),
    ("position-unaligned", Verdict::Pass, Fault::On(odd, GARBAGE)),
    // The XID of the payload is ignored.
    ("xid-mismatch", Verdict::Pass, Fault::On(odd, SUCCESS)),
    // Memory behind the data, besides its pad.
    ("write-chunk-roomy", Verdict::Differs, Fault::WritesMore(&[7; 64])),
    // Replies beyond the threshold come inline whatever the private data: the fault of another row.
    ("private-data-malformed", Verdict::Pass, Fault::On(|_, m| is(m, READ), SUCCESS)),
    ("private-data-version", Verdict::Pass, Fault::On(|_, m| is(m, READ), SUCCESS)),
];

#[tokio::test(start_paused = true)]
async fn what_is_bearable_does_not_fail() {
    for (name, verdict, fault) in BEARABLE {
        let report = run(faulty_target(*fault).await, Some(name)).await;
        assert_eq!(report.rows[0].verdict, *verdict, "{:?}", report.rows[0]);
    }
}

/// Returns whether this is a READ of 2000 bytes.
fn odd_read(bytes: &[u8]) -> bool {
    bytes.ends_with(&2000_u32.to_be_bytes())
}

/// Refuses a reply of this length.
fn over(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() == len {
        bytes.truncate(20);
        set(bytes, 3, 4);
        set(bytes, 4, 2);
    }
}

#[test]
fn no_row_is_without_its_faulty_server() {
    each_has_a_fault(&rows(None), FAULTS);
    each_has_a_live_fault(&rows(None), FAULTS);
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_server() {
    each_is_red(FAULTS, async |name, fault| run(faulty_target(fault).await, Some(name)).await).await;
}

#[test]
fn the_page_shows_every_row() {
    page_shows("Our own server", &rows(None));
}
