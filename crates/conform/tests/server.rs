//! The rows against servers: green on our own, red on one that has the fault that the row is about.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

mod support;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rpcrdma_conform::server::{Target, Tester, rows};
use rpcrdma_conform::{Report, Verdict};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_proto::wire::ReadSegment;
use rpcrdma_sim::CompletionMode;
use rpcrdma_verbs::Listener;
use support::faulty::{Act, DIES_OF_FAULTS, DIES_WITH_ITS_CONNECTION, Fault, Seen, lists, with_lists, word};
use support::{export, faulty_target, good_target, serve};

async fn run(target: Target, filter: Option<&str>) -> Report {
    Tester::new(target).run(|row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[track_caller]
fn all_pass(report: &Report) {
    let bad: Vec<_> = report.rows.iter().filter(|row| row.verdict != Verdict::Pass).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(report.rows.len(), rows().len());
    assert!(report.is_good());
}

#[tokio::test(start_paused = true)]
async fn our_server_passes_on_sim() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        all_pass(&run(good_target(mode).await, None).await);
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
    all_pass(&report);
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
    let report = run(faulty_target(Fault::On(|_, _| true, Act::Ignore)).await, Some("null-inline")).await;
    assert_eq!(report.count(Verdict::Fail), 1);
    assert!(!report.is_good());
}

/// RPC numbers of a call that is inline.
fn procedure(octets: &[u8]) -> Option<(u32, u32)> {
    let (message, _, payload) = lists(octets)?;
    (message && payload.len() >= 24).then(|| (word(payload, 3), word(payload, 5)))
}

const READ: u32 = 6;
const WRITE: u32 = 7;

fn is(octets: &[u8], number: u32) -> bool {
    procedure(octets) == Some((100_003, number))
}

fn reads(octets: &[u8]) -> Vec<ReadSegment> {
    lists(octets).map(|(_, lists, _)| lists.read).unwrap_or_default()
}

/// Not what the tester sends between rows: a NULL call of Version One without chunks, whole.
fn odd(_: &Seen, octets: &[u8]) -> bool {
    octets.len() != 68
        || [1, 3, 4, 5, 6].iter().any(|at| word(octets, *at) != u32::from(*at == 1))
        || word(octets, 0) != word(octets, 7)
        || word(octets, 8) != 0
}

fn set(octets: &mut [u8], index: usize, value: u32) {
    octets[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
}

const SUCCESS: Act = Act::Reply(0);
const GARBAGE: Act = Act::Reply(4);

/// A fault for each row: what the row is there to find.
static FAULTS: &[(&str, Fault)] = &[
    ("null-inline", Fault::On(|_, _| true, GARBAGE)),
    // illumos once looked at the first entry only; here at none.
    ("position-zero-one", Fault::On(|_, m| reads(m).len() == 1, Act::ErrChunk)),
    (
        "position-zero-many",
        Fault::On(|_, m| reads(m).len() > 1, Act::Rewrite(|m| with_lists(m, |l| l.read.truncate(1)))),
    ),
    ("reply-chunk-spare", Fault::Sends(|_, m| *m = with_lists(m, |l| l.reply = None))),
    (
        "write-chunk-spare",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| {
                l.write.iter_mut().flat_map(|c| &mut c.segments).for_each(|s| s.length = 4);
            });
        }),
    ),
    ("forms-in-turn", Fault::On(|seen, m| seen.count > 3 && word(m, 3) == 1, Act::Close)),
    (
        "program-unavailable",
        Fault::On(|_, m| procedure(m).is_some_and(|(program, _)| program == 0x3fff_fffe), SUCCESS),
    ),
    (
        "procedure-unavailable",
        Fault::On(|_, m| procedure(m).is_some_and(|(_, number)| number > 0xffff), SUCCESS),
    ),
    ("rpc-version", Fault::On(|_, m| word(m, 9) == 3, SUCCESS)),
    ("nfs-inline", Fault::On(|_, m| is(m, 1), GARBAGE)),
    (
        "read-chunk-one",
        Fault::On(
            |_, m| is(m, WRITE) && reads(m).len() == 1,
            Act::Rewrite(|m| with_lists(m, |l| l.read[0].segment.offset += 1)),
        ),
    ),
    (
        "read-chunk-many",
        Fault::On(|_, m| is(m, WRITE), Act::Rewrite(|m| with_lists(m, |l| l.read.reverse()))),
    ),
    ("read-chunk-no-pad", Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length % 4 != 0), GARBAGE)),
    (
        "read-chunk-pad",
        Fault::On(|_, m| reads(m).iter().map(|s| s.segment.length).sum::<u32>() == 1204, GARBAGE),
    ),
    (
        "read-chunk-pad-segment",
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length == 3), Act::ErrChunk),
    ),
    (
        "read-chunk-empty-segment",
        Fault::On(|_, m| reads(m).iter().any(|s| s.segment.length == 0), Act::ErrChunk),
    ),
    (
        "position-zero-and-read",
        Fault::On(|_, m| reads(m).last().is_some_and(|s| s.position > 0), Act::ErrChunk),
    ),
    ("write-chunk-one", Fault::Writes(|data| data[0] ^= 1)),
    (
        "write-chunk-many",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| {
                if let Some([first, second, ..]) = l.write.first_mut().map(|c| &mut c.segments[..]) {
                    second.handle = first.handle;
                }
            });
        }),
    ),
    // RFC 5666 §3.7 counted the pad.
    (
        "write-chunk-roomy",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| l.write.iter_mut().for_each(|c| c.segments[1].length += 3));
        }),
    ),
    ("write-chunk-unused", Fault::Sends(|_, m| *m = with_lists(m, |l| l.write.clear()))),
    (
        "write-chunk-empty",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.write.iter().any(|c| c.segments.is_empty())),
            Act::ErrChunk,
        ),
    ),
    (
        "write-chunk-two",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.write.len() == 2),
            Act::Rewrite(|m| with_lists(m, |l| l.write.reverse())),
        ),
    ),
    ("reply-chunk-one", Fault::Writes(|data| *data.last_mut().unwrap() ^= 1)),
    (
        "reply-chunk-many",
        Fault::Sends(|_, m| {
            *m = with_lists(m, |l| l.reply.iter_mut().for_each(|c| c.segments[0].length = 0));
        }),
    ),
    (
        "write-and-reply",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| l.reply.is_some()),
            Act::Rewrite(|m| with_lists(m, |l| l.write.clear())),
        ),
    ),
    (
        "read-and-write",
        Fault::On(
            |_, m| lists(m).is_some_and(|(_, l, _)| !l.read.is_empty() && !l.write.is_empty()),
            Act::ErrChunk,
        ),
    ),
    ("symlink-and-readlink", Fault::On(|_, m| is(m, 10) && !reads(m).is_empty(), Act::ErrChunk)),
    ("readdir-reply-chunk", Fault::On(|_, m| is(m, 16), GARBAGE)),
    ("first-flight", Fault::Sends(|_, m| set(m, 2, 0))),
    // Grants what is asked for.
    ("request-zero", Fault::Sends(|seen, m| set(m, 2, seen.credit))),
    ("request-one", Fault::On(|seen, _| seen.credit == 1 && seen.count > 1, Act::Ignore)),
    ("request-all", Fault::On(|seen, _| seen.credit == u32::MAX, Act::Die)),
    ("up-to-the-grant", Fault::On(|seen, _| seen.count == 40, Act::Ignore)),
    ("beyond-the-grant", DIES_OF_FAULTS),
    ("private-data-absent", Fault::PrivateData(|data| (!data.is_empty()).then(|| data.clone()))),
    ("private-data-present", Fault::PrivateData(|data| data.is_empty().then(|| data.clone()))),
    ("private-data-extremes", Fault::PrivateData(|data| (!data.contains(&255)).then(|| data.clone()))),
    // Reads beyond the end.
    (
        "private-data-malformed",
        Fault::PrivateData(|data| {
            Some([&data[..], if data.len() == 7 { &[3] } else { &[] }].concat().into())
        }),
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
    ),
    // Looks only at the front.
    (
        "private-data-embedded",
        Fault::PrivateData(|data| {
            Some(if data.starts_with(&[0xf6, 0xab]) { data.clone() } else { Default::default() })
        }),
    ),
    ("invalidation-announced", Fault::Invalidates(|seen| seen.first_handles.first().copied())),
    ("invalidation-not-announced", Fault::Invalidates(|seen| seen.last_handles.first().copied())),
    ("call-at-1024", Fault::On(|_, m| m.len() == 1024, Act::Close)),
    ("call-at-threshold", Fault::On(|_, m| m.len() == 4096, Act::Close)),
    ("reply-at-1024", Fault::Sends(|_, m| over(m, 1024))),
    ("reply-at-threshold", Fault::Sends(|_, m| over(m, 4096))),
    ("call-over-receive", DIES_OF_FAULTS),
    ("short-message", Fault::On(|_, m| m.len() < 28, Act::ErrChunk)),
    ("cut-read-list", Fault::On(odd, Act::Ignore)),
    ("cut-write-list", Fault::On(odd, Act::Die)),
    ("cut-reply-chunk", Fault::On(odd, SUCCESS)),
    ("version", Fault::On(odd, Act::ErrVers(2, 3))),
    ("unknown-proc", Fault::On(odd, Act::Ignore)),
    ("msgp", Fault::On(odd, Act::Close)),
    ("done", Fault::On(odd, Act::ErrChunk)),
    // Two known peers answer an error with an error.
    ("error-unanswered", Fault::On(odd, Act::ErrChunk)),
    ("discriminators", Fault::On(odd, SUCCESS)),
    ("counts", Fault::On(odd, Act::Die)),
    ("position-unaligned", Fault::On(odd, SUCCESS)),
    ("position-beyond", Fault::On(odd, SUCCESS)),
    ("position-overlap", Fault::On(odd, SUCCESS)),
    ("position-zero-in-msg", Fault::On(odd, Act::Ignore)),
    ("nomsg-without-chunk", Fault::On(odd, Act::Ignore)),
    ("nomsg-without-payload", Fault::On(odd, SUCCESS)),
    ("reply-to-nothing", Fault::On(odd, Act::ErrChunk)),
    ("xid-mismatch", Fault::On(odd, Act::Ignore)),
    ("rpc-cut", Fault::On(odd, Act::Die)),
    ("rpc-message-type", Fault::On(odd, SUCCESS)),
    ("many-segments", Fault::On(odd, Act::Ignore)),
    ("huge-segments", Fault::On(odd, Act::Die)),
    ("wrapping-offset", Fault::On(odd, Act::Die)),
    ("read-wrong-key", DIES_OF_FAULTS),
    ("read-beyond-window", DIES_OF_FAULTS),
    ("read-revoked", DIES_OF_FAULTS),
    ("read-of-write-window", DIES_OF_FAULTS),
    ("read-again", Fault::On(|seen, m| seen.xids.contains(&word(m, 0)), Act::Ignore)),
    ("write-wrong-key", DIES_OF_FAULTS),
    ("write-beyond-window", DIES_OF_FAULTS),
    ("write-revoked", DIES_OF_FAULTS),
    ("write-to-read-window", DIES_OF_FAULTS),
    ("write-chunk-small", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS)),
    ("write-chunk-no-octets", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS)),
    ("reply-chunk-small", Fault::On(|_, m| is(m, READ) && odd_read(m), Act::Ignore)),
    ("reply-chunk-missing", Fault::On(|_, m| is(m, READ) && odd_read(m), SUCCESS)),
    ("ineligible-argument", Fault::On(|_, m| is(m, 1), SUCCESS)),
    ("chunk-mismatch", Fault::On(|_, m| is(m, WRITE) && !reads(m).is_empty(), SUCCESS)),
    ("cut-before-call", DIES_OF_FAULTS),
    ("cut-after-call", DIES_OF_FAULTS),
    ("closed-after-call", DIES_WITH_ITS_CONNECTION),
    ("cut-in-read-chunk", DIES_OF_FAULTS),
    ("cut-in-write-chunk", DIES_OF_FAULTS),
    ("silent-client", Fault::OneAtATime),
    ("unanswered-read", Fault::OneAtATime),
];

/// What is bearable, or what the text leaves open, and does not fail.
static BEARABLE: &[(&str, Verdict, Fault)] = &[
    // RFC 8166 §4.5.1 against §4.2.4.
    ("error-unanswered", Verdict::Pass, Fault::On(|_, m| word(m, 1) == 9, Act::ErrVers(1, 1))),
    // The right answer, and other calls have to be sent again.
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

/// A READ of 2000 octets.
fn odd_read(octets: &[u8]) -> bool {
    octets.ends_with(&2000_u32.to_be_bytes())
}

/// Refuses a reply of this length.
fn over(octets: &mut Vec<u8>, len: usize) {
    if octets.len() == len {
        octets.truncate(20);
        set(octets, 3, 4);
        set(octets, 4, 2);
    }
}

#[test]
fn no_row_is_without_its_faulty_server() {
    let rows = rows();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    let faults: BTreeSet<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, faults);
    assert_eq!((names.len(), faults.len()), (rows.len(), FAULTS.len()), "names are unique");
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_server() {
    let mut green = Vec::new();
    for (name, fault) in FAULTS {
        let report = run(faulty_target(*fault).await, Some(name)).await;
        if report.rows[0].verdict != Verdict::Fail {
            green.push(report.rows[0].clone());
        }
    }
    assert!(green.is_empty(), "{green:#?}");
}

/// `docs/conform.md` has the table of a run in which all passed: of the rows that there are.
#[test]
fn the_page_shows_every_row() {
    let page = include_str!("../../../docs/conform.md");
    let (_, section) = page.split_once("## Our own server\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let shown: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| pass"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let rows = rows();
    assert_eq!(shown.len(), rows.len());
    for (shown, row) in shown.iter().zip(rows) {
        assert_eq!(shown[2..6], [row.name, row.section, &row.rule.to_string(), row.expects]);
    }
}
