//! The rows against clients: green on our own, red on one that has the fault that the row is about.
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
use support::fabric;
use support::faulty::{
    Act, DIES_OF_FAULTS, DIES_WITH_ITS_CONNECTION, Fault, FaultyConnector, Seen, lists, with_lists, word,
};
use tokio::task::AbortHandle;

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Ends a task with the test.
struct Caller(AbortHandle);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Our client, which calls NULL, READ, READDIR and WRITE in turn, whatever becomes of them.
fn caller(connector: Arc<dyn Connector>, address: SocketAddr) -> Caller {
    let mut config = ClientConfig::default();
    config.protocol.timeouts.call = Duration::from_secs(2);
    let task = tokio::spawn(async move {
        // A faulty one may not even get so far.
        let Ok(client) = Client::rdma(connector, address, config).await else { return };
        let arguments = |fill: fn(&mut Encoder)| {
            let mut encoder = Encoder::new();
            fill(&mut encoder);
            encoder.finish()
        };
        loop {
            let read = arguments(|encoder| {
                [4, 0x6669_6c65, 0, 0, 20_000].iter().for_each(|word| encoder.u32(*word));
            });
            let write = arguments(|encoder| encoder.payload(Bytes::from(vec![7; 5000]), 5000, true).unwrap());
            let calls = [
                Call::new(100_003, 3, 0),
                Call::new(100_003, 3, 6).arguments(read).results(200).sink(Sink::Pool(20_000)),
                Call::new(100_003, 3, 16).results(8192),
                Call::new(100_003, 3, 7).arguments(write).results(200),
            ];
            for call in calls {
                if client.call(call).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    });
    Caller(task.abort_handle())
}

fn host(listener: Box<dyn Listener>) -> Host {
    Host { listener, limit: DEFAULT_LIMIT, silence: DEFAULT_SILENCE }
}

async fn on_sim(mode: CompletionMode, fault: Fault, filter: Option<&str>) -> Report {
    let fabric = fabric(mode);
    let listener = fabric.listen(ADDRESS).unwrap();
    let _caller = caller(Arc::new(FaultyConnector::new(Arc::new(fabric.connector(HOST)), fault)), ADDRESS);
    run(host(Box::new(listener)), |row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[track_caller]
fn all_pass(report: &Report) {
    let bad: Vec<_> = report.rows.iter().filter(|row| row.verdict != Verdict::Pass).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(report.rows.len(), rows().len());
}

#[tokio::test(start_paused = true)]
async fn our_client_passes_on_sim() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        all_pass(&on_sim(mode, Fault::None, None).await);
    }
}

#[tokio::test]
async fn our_client_passes_on_iwarp() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    let _caller = caller(Arc::new(IwarpConnector::default()), address);
    let silence = Duration::from_millis(50);
    let host = Host { silence, ..host(Box::new(listener)) };
    let report = run(host, |_| true, |_| ()).await;
    // For docs/conform.md, with --nocapture.
    println!("{}", report.table());
    all_pass(&report);
}

#[tokio::test(start_paused = true)]
async fn without_a_client_every_row_fails() {
    let fabric = fabric(CompletionMode::Local);
    let listener = fabric.listen(ADDRESS).unwrap();
    let report = run(host(Box::new(listener)), |row| row.name == "reply-inline", |_| ()).await;
    assert_eq!(report.count(Verdict::Fail), 1);
}

/// The first message on a connection: where a row begins with a bad one.
fn first(seen: &Seen, _: &[u8]) -> bool {
    seen.count == 1
}

fn set(octets: &[u8], index: usize, value: u32) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
    octets
}

fn has_write(_: &Seen, octets: &[u8]) -> bool {
    lists(octets).is_some_and(|(_, lists, _)| !lists.write.is_empty())
}

fn has_reply(_: &Seen, octets: &[u8]) -> bool {
    lists(octets).is_some_and(|(_, lists, _)| lists.reply.is_some())
}

/// RDMA_ERROR with this code.
fn is_error(octets: &[u8], code: u32) -> bool {
    word(octets, 3) == 4 && word(octets, 4) == code
}

/// A fault for each row: what the row is there to find.
static FAULTS: &[(&str, Fault)] = &[
    ("reply-inline", Fault::Sends(|_, m| *m = set(m, 0, word(m, 0) ^ 1))),
    ("first-flight", Fault::Doubles),
    ("grant-one", Fault::Doubles),
    // Believes the 0.
    ("grant-zero", Fault::On(|_, m| word(m, 2) == 0, Act::Die)),
    ("grant-falls", Fault::On(|_, m| word(m, 2) == 4, Act::Die)),
    ("grant-all", Fault::On(|_, m| word(m, 2) == u32::MAX, Act::Die)),
    ("err-chunk", Fault::On(|_, m| is_error(m, 2), Act::Die)),
    // Two known peers answer an error with an error.
    ("err-vers", Fault::On(|_, m| is_error(m, 1), Act::ErrChunk)),
    ("err-vers-other", Fault::On(|_, m| is_error(m, 1), Act::Die)),
    ("rpc-refused", Fault::On(|_, m| word(m, 12) == 5, Act::Die)),
    ("error-undecodable", Fault::On(first, Act::Rewrite(|m| [&set(m, 2, 1)[..16], &[0, 0, 0, 2]].concat()))),
    ("error-other-xid", Fault::On(first, Act::ErrChunk)),
    ("reply-other-xid", Fault::On(first, Act::ErrChunk)),
    ("xid-mismatch", Fault::On(first, Act::Die)),
    ("msgp", Fault::On(first, Act::Rewrite(|m| [&set(m, 3, 0)[..16], &m[24..]].concat()))),
    ("done", Fault::On(first, Act::Die)),
    ("unknown-proc", Fault::On(first, Act::Rewrite(|m| set(m, 3, 0)))),
    ("short-message", Fault::On(first, Act::ErrChunk)),
    ("reply-cut", Fault::On(first, Act::Die)),
    ("discriminators", Fault::On(first, Act::Rewrite(|m| set(m, 4, 0)))),
    ("counts", Fault::On(first, Act::Die)),
    ("reply-read-list", Fault::On(first, Act::Rewrite(|m| with_lists(m, |lists| lists.read.clear())))),
    ("version", Fault::On(first, Act::Rewrite(|m| set(m, 1, 1)))),
    ("rpc-cut", Fault::On(first, Act::Die)),
    ("reply-twice", Fault::On(|seen, _| seen.count == 2, Act::Die)),
    ("reverse-call", Fault::On(first, Act::Die)),
    ("write-chunk-used", Fault::On(has_write, Act::Die)),
    // The reply to a READ without its list.
    ("write-list-absent", Fault::On(|_, m| m.len() == 156, Act::Die)),
    ("write-other-handle", Fault::On(has_write, Act::Die)),
    ("write-too-long", Fault::On(has_write, Act::Die)),
    ("write-more-segments", Fault::On(has_write, Act::Die)),
    ("write-beyond-window", DIES_OF_FAULTS),
    ("write-wrong-key", DIES_OF_FAULTS),
    ("invalidation", Fault::On(has_write, Act::Die)),
    ("reply-chunk-spare", Fault::On(has_reply, Act::Die)),
    ("reply-chunk-used", Fault::On(has_reply, Act::Die)),
    // The reply to a READDIR without its chunk.
    ("reply-chunk-absent", Fault::On(|_, m| m.len() == 160, Act::Die)),
    ("reply-chunk-too-long", Fault::On(has_reply, Act::Die)),
    ("reply-chunk-empty", Fault::On(has_reply, Act::Die)),
    ("read-of-write-window", DIES_OF_FAULTS),
    ("read-beyond-window", DIES_OF_FAULTS),
    ("read-wrong-key", DIES_OF_FAULTS),
    ("private-data-absent", Fault::PrivateData(|data| (!data.is_empty()).then(|| data.clone()))),
    ("private-data-malformed", Fault::PrivateData(|data| (data.len() != 7).then(|| data.clone()))),
    ("private-data-version", Fault::PrivateData(|data| (data.get(4) != Some(&2)).then(|| data.clone()))),
    (
        "private-data-embedded",
        Fault::PrivateData(|data| (!data.starts_with(&[0xf6, 0xf6])).then(|| data.clone())),
    ),
    ("foreign-invalidation", DIES_OF_FAULTS),
    ("oversized-reply", DIES_OF_FAULTS),
    ("no-reply", DIES_WITH_ITS_CONNECTION),
    ("closed", DIES_WITH_ITS_CONNECTION),
    ("cut", DIES_OF_FAULTS),
    ("cut-after-reply", DIES_OF_FAULTS),
    ("refused", DIES_WITH_ITS_CONNECTION),
];

#[test]
fn no_row_is_without_its_faulty_client() {
    let rows = rows();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    let faults: BTreeSet<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, faults);
    assert_eq!((names.len(), faults.len()), (rows.len(), FAULTS.len()), "names are unique");
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_client() {
    let mut green = Vec::new();
    for (name, fault) in FAULTS {
        let report = on_sim(CompletionMode::Local, *fault, Some(name)).await;
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
    let (_, section) = page.split_once("## Our own client\n").unwrap();
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
