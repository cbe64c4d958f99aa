//! The rows against clients: our own client passes, and a client with the corresponding fault fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{Call, Client, ClientConfig, Sink};
use rpcrdma_conform::client::{DEFAULT_SILENCE, Host, rows, run};
use rpcrdma_conform::{DEFAULT_LIMIT, Report, Verdict};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_sim::CompletionMode;
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::Encoder;
use support::faulty::{
    Act, DIES_OF_FAULTS, DIES_WITH_ITS_CONNECTION, Fault, FaultyConnector, Seen, lists, with_lists, word,
};
use support::{Found, all_pass, each_has_a_fault, each_is_red, fabric, page_shows};
use tokio::task::{AbortHandle, JoinSet};

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Ends a task with the test.
struct Caller(AbortHandle);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls that our client makes at once.
const AT_ONCE: usize = 3;

/// Runs our client with several callers that call NULL, READ, READDIR and WRITE in turn, whatever the results are.
fn caller(connector: Arc<dyn Connector>, address: SocketAddr, at_once: usize) -> Caller {
    let mut config = ClientConfig::default();
    config.protocol.timeouts.call = Duration::from_secs(2);
    let task = tokio::spawn(async move {
        // A faulty client may fail earlier.
        let Ok(client) = Client::rdma(connector, address, config).await else { return };
        let mut callers = JoinSet::new();
        for first in 0..at_once {
            callers.spawn(calls(client.clone(), 2 * first));
        }
        callers.join_all().await;
    });
    Caller(task.abort_handle())
}

async fn calls(client: Client, first: usize) {
    let arguments = |fill: fn(&mut Encoder)| {
        let mut encoder = Encoder::new();
        fill(&mut encoder);
        encoder.finish()
    };
    loop {
        let read = arguments(|encoder| {
            [4, 0x6669_6c65, 0, 0, 20_000].iter().for_each(|word| encoder.u32(*word));
        });
        let list = arguments(|encoder| {
            [4, 0x726f_6f74, 0, 0, 0, 0, 8192].iter().for_each(|word| encoder.u32(*word));
        });
        let write = arguments(|encoder| encoder.payload(Bytes::from(vec![7; 5000]), 5000, true).unwrap());
        let short = arguments(|encoder| encoder.payload(Bytes::from(vec![7; 2000]), 2000, true).unwrap());
        let mut calls = [
            Call::new(100_003, 3, 0),
            Call::new(100_003, 3, 6).arguments(read).results(200).sink(Sink::Pool(20_000)),
            Call::new(100_003, 3, 16).arguments(list).results(8192),
            Call::new(100_003, 3, 7).arguments(write).results(200),
            // Inline if the server accepts that length.
            Call::new(100_003, 3, 7).arguments(short).results(200),
        ];
        calls.rotate_left(first);
        for call in calls {
            if client.call(call).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn host(listener: Box<dyn Listener>) -> Host {
    Host { listener, limit: DEFAULT_LIMIT, silence: DEFAULT_SILENCE }
}

async fn on_sim(mode: CompletionMode, fault: Fault, filter: Option<&str>) -> Report {
    with_callers(mode, fault, AT_ONCE, filter).await
}

async fn with_callers(mode: CompletionMode, fault: Fault, at_once: usize, filter: Option<&str>) -> Report {
    let fabric = fabric(mode);
    let listener = fabric.listen(ADDRESS).unwrap();
    let _caller =
        caller(Arc::new(FaultyConnector::new(Arc::new(fabric.connector(HOST)), fault)), ADDRESS, at_once);
    run(host(Box::new(listener)), |row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[tokio::test(start_paused = true)]
async fn our_client_passes_on_sim() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        all_pass(&on_sim(mode, Fault::None, None).await, rows().len());
    }
}

#[tokio::test]
async fn our_client_passes_on_iwarp() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    let _caller = caller(Arc::new(IwarpConnector::default()), address, AT_ONCE);
    let silence = Duration::from_millis(50);
    let host = Host { silence, ..host(Box::new(listener)) };
    let report = run(host, |_| true, |_| ()).await;
    // For docs/conform.md, with --nocapture.
    println!("{}", report.table());
    all_pass(&report, rows().len());
}

#[tokio::test(start_paused = true)]
async fn one_call_at_a_time_says_nothing_of_a_grant() {
    let report = with_callers(CompletionMode::Local, Fault::None, 1, None).await;
    for row in &report.rows {
        let about_the_grant = ["first-flight", "grant-one"].contains(&row.row.name);
        let expected = if about_the_grant { Verdict::NotApplicable } else { Verdict::Pass };
        assert_eq!(row.verdict, expected, "{row:?}");
    }
    assert_eq!(report.rows.len(), rows().len());
}

#[tokio::test(start_paused = true)]
async fn without_a_client_every_row_fails() {
    let fabric = fabric(CompletionMode::Local);
    let listener = fabric.listen(ADDRESS).unwrap();
    let report = run(host(Box::new(listener)), |_| true, |_| ()).await;
    assert_eq!(report.count(Verdict::Fail), rows().len(), "{report:#?}");
}

/// Returns whether this is the first message of a connection, where a row begins with a bad one.
fn first(seen: &Seen, _: &[u8]) -> bool {
    seen.count == 1
}

fn set(bytes: &[u8], index: usize, value: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
    bytes
}

fn has_write(_: &Seen, bytes: &[u8]) -> bool {
    lists(bytes).is_some_and(|(_, lists, _)| !lists.write.is_empty())
}

fn has_reply(_: &Seen, bytes: &[u8]) -> bool {
    lists(bytes).is_some_and(|(_, lists, _)| lists.reply.is_some())
}

/// Private data of a server that takes 4096 bytes (RFC 8797 §4).
const SAYS_4096: Bytes = Bytes::from_static(&[0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3]);

/// Returns whether a message is an RDMA_ERROR with this code.
fn is_error(bytes: &[u8], code: u32) -> bool {
    word(bytes, 3) == 4 && word(bytes, 4) == code
}

/// Faults for each row, with the words of the report.
static FAULTS: &[Found] = &[
    ("reply-inline", Fault::Sends(|_, m| *m = set(m, 0, word(m, 0) ^ 1)), "in front of XID"),
    (
        "reply-inline",
        Fault::Sends(|_, m| m.resize(4100, 0)),
        "a Send of 4100 bytes, the inline threshold is 4096",
    ),
    ("first-flight", Fault::Doubles, "over the grant"),
    ("grant-one", Fault::On(|_, m| word(m, 2) == 1, Act::Rewrite(|m| set(m, 2, 32))), "over the grant"),
    // Accepts the 0 as it is.
    ("grant-zero", Fault::On(|_, m| word(m, 2) == 0, Act::Die), "no call within"),
    ("grant-falls", Fault::On(|_, m| word(m, 2) == 4, Act::Die), "a grant of 4: the client makes no call"),
    ("grant-all", Fault::On(|_, m| word(m, 2) == u32::MAX, Act::Die), "no call within"),
    ("err-chunk", Fault::On(|_, m| is_error(m, 2), Act::Die), "no call within"),
    // Two known peers answer an error with an error.
    ("err-vers", Fault::On(|_, m| is_error(m, 1), Act::ErrChunk), "the client sends an RDMA_ERROR"),
    ("err-vers-other", Fault::On(|_, m| is_error(m, 1), Act::Die), "no call within"),
    ("rpc-refused", Fault::On(|_, m| word(m, 12) == 5, Act::Die), "accept_stat 5: no call within"),
    (
        "error-undecodable",
        Fault::On(first, Act::Rewrite(|m| [&set(m, 2, 1)[..16], &[0, 0, 0, 2]].concat())),
        "over the grant",
    ),
    ("error-other-xid", Fault::On(first, Act::ErrChunk), "ERR_CHUNK: the client sends an RDMA_ERROR"),
    ("reply-other-xid", Fault::On(first, Act::ErrChunk), "another XID: the client sends an RDMA_ERROR"),
    ("xid-mismatch", Fault::On(first, Act::Die), "no call within"),
    ("msgp", Fault::On(first, Act::Rewrite(|m| [&set(m, 3, 0)[..16], &m[24..]].concat())), "over the grant"),
    ("done", Fault::On(first, Act::Die), "no call within"),
    ("unknown-proc", Fault::On(first, Act::Rewrite(|m| set(m, 3, 0))), "over the grant"),
    ("short-message", Fault::On(first, Act::ErrChunk), "0 bytes: the client sends an RDMA_ERROR"),
    ("reply-cut", Fault::On(first, Act::Die), "no call within"),
    ("discriminators", Fault::On(first, Act::Rewrite(|m| set(m, 4, 0))), "over the grant"),
    ("counts", Fault::On(first, Act::Die), "no call within"),
    (
        "reply-read-list",
        Fault::On(first, Act::Rewrite(|m| with_lists(m, |lists| lists.read.clear()))),
        "over the grant",
    ),
    ("version", Fault::On(first, Act::Rewrite(|m| set(m, 1, 1))), "over the grant"),
    ("rpc-cut", Fault::On(first, Act::Die), "no call within"),
    ("reply-twice", Fault::On(|seen, _| seen.count == 2, Act::Die), "no call within"),
    ("reverse-call", Fault::On(first, Act::Die), "no call within"),
    ("write-chunk-used", Fault::On(has_write, Act::Die), "no call within"),
    // The reply to a READ without its list.
    ("write-list-absent", Fault::On(|_, m| m.len() == 156, Act::Die), "no call within"),
    ("write-other-handle", Fault::On(has_write, Act::Die), "no call within"),
    ("write-too-long", Fault::On(has_write, Act::Die), "no call within"),
    ("write-more-segments", Fault::On(has_write, Act::Die), "no call within"),
    ("write-beyond-window", Fault::WidensWindows(64), "the RDMA Write was not refused"),
    ("write-beyond-window", DIES_OF_FAULTS, "no call within"),
    ("write-wrong-key", DIES_OF_FAULTS, "no call within"),
    ("invalidation", Fault::On(|seen, _| seen.invalidates, Act::Die), "no call within"),
    ("reply-chunk-spare", Fault::On(has_reply, Act::Die), "no call within"),
    ("reply-chunk-used", Fault::On(has_reply, Act::Die), "no call within"),
    // The reply to a READDIR without its chunk.
    ("reply-chunk-absent", Fault::On(|_, m| m.len() == 188, Act::Die), "no call within"),
    ("reply-chunk-too-long", Fault::On(has_reply, Act::Die), "no call within"),
    ("reply-chunk-empty", Fault::On(has_reply, Act::Die), "no call within"),
    ("read-of-write-window", Fault::OpensForReading, "can be read that were not offered"),
    ("read-of-write-window", DIES_OF_FAULTS, "no call within"),
    ("read-beyond-window", Fault::WidensWindows(4096), "can be read that were not offered"),
    ("read-beyond-window", DIES_OF_FAULTS, "no call within"),
    ("read-wrong-key", DIES_OF_FAULTS, "no call within"),
    (
        "private-data-absent",
        Fault::PrivateData(|data| (!data.is_empty()).then(|| data.clone())),
        "with 0 bytes: the client makes no call",
    ),
    ("private-data-absent", Fault::PrivateData(|_| Some(SAYS_4096)), "the inline threshold is 1024"),
    (
        "private-data-malformed",
        Fault::PrivateData(|data| (data.len() != 7).then(|| data.clone())),
        "with 7 bytes: the client makes no call",
    ),
    (
        "private-data-version",
        Fault::PrivateData(|data| (data.get(4) != Some(&2)).then(|| data.clone())),
        "with 8 bytes: the client makes no call",
    ),
    (
        "private-data-embedded",
        Fault::PrivateData(|data| (!data.starts_with(&[0xf6, 0xf6])).then(|| data.clone())),
        "with 9 bytes: the client makes no call",
    ),
    ("foreign-invalidation", DIES_OF_FAULTS, "no call within"),
    ("oversized-reply", DIES_OF_FAULTS, "no call within"),
    ("no-reply", DIES_WITH_ITS_CONNECTION, "no call within"),
    ("closed", DIES_WITH_ITS_CONNECTION, "no call within"),
    ("cut", DIES_OF_FAULTS, "no call within"),
    ("cut-after-reply", DIES_OF_FAULTS, "no call within"),
    ("refused", DIES_WITH_ITS_CONNECTION, "no call within"),
];

#[test]
fn no_row_is_without_its_faulty_client() {
    each_has_a_fault(&rows(), FAULTS);
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_client() {
    each_is_red(FAULTS, async |name, fault| on_sim(CompletionMode::Local, fault, Some(name)).await).await;
}

#[test]
fn the_page_shows_every_row() {
    page_shows("Our own client", &rows());
}
