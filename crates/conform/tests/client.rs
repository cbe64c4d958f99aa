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

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma::{Call, Client, ClientConfig, Sink, Transport};
use rpcrdma_conform::client::{DEFAULT_SILENCE, Host, rows, run};
use rpcrdma_conform::{DEFAULT_LIMIT, Report, Verdict};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_proto::wire::two::transmission::{Operation, TransmitRequest};
use rpcrdma_proto::wire::two::{self, Exchange};
use rpcrdma_proto::wire::{Body, ChunkLists, Direction, Header, Segment, WriteChunk};
use rpcrdma_proto::{BufferStructure, Limits, Profile, Versions};
use rpcrdma_sim::CompletionMode;
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::Encoder;
use support::faulty::{
    Act, DIES_OF_FAULTS, DIES_WITH_ITS_CONNECTION, Fault, FaultyConnector, FaultyListener, Seen, with_lists,
    word,
};
use support::{Found, all_pass, each_has_a_fault, each_has_a_live_fault, each_is_red, fabric, page_shows};
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

const PROFILES: [Profile; 3] = [Profile::P1, Profile::P2, Profile::P3];
/// The longest Send of our client, in bytes: more than the tester takes.
const SEND_SIZE: usize = 16_384;
/// Length of the segment for items in its Receives, in bytes.
const SEGMENT: u32 = 4096;
/// Calls that our client makes at once.
const AT_ONCE: usize = 3;

/// Runs our client with several callers that call NULL, READ, READDIR and WRITE in turn, whatever the results are.
fn caller(
    connector: Arc<dyn Connector>,
    address: SocketAddr,
    profile: Option<Profile>,
    at_once: usize,
) -> Caller {
    let mut config = ClientConfig::default();
    config.protocol.versions = profile.map_or(Versions::ONE, Versions::both);
    config.protocol.program = Some((100_003, 3));
    config.protocol.timeouts.call = Duration::from_secs(2);
    config.protocol.send_size = SEND_SIZE;
    if matches!(profile, Some(Profile::P1 | Profile::P2)) {
        config.protocol.place_items(BufferStructure::with_items(1, SEGMENT));
    }
    let task = tokio::spawn(async move {
        // A faulty client may fail earlier.
        let Ok(client) =
            Client::builder().config(config).transport(Transport::rdma_on(connector)).connect(address).await
        else {
            return;
        };
        let mut callers = JoinSet::new();
        for first in 0..at_once {
            callers.spawn(calls(client.clone(), 2 * first));
        }
        callers.join_all().await;
    });
    Caller(task.abort_handle())
}

/// Makes calls by hand: their lengths select the forms of messages, and the tester's replies are of no type.
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
        // Data that fits in a segment of our Receives.
        let block = arguments(|encoder| {
            [4, 0x6669_6c65, 0, 0, SEGMENT].iter().for_each(|word| encoder.u32(*word));
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
            Call::new(100_003, 3, 6).arguments(block).results(200).sink(Sink::Pool(4096)),
        ];
        calls.rotate_left(first);
        for call in calls {
            if client.call_raw(call).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn host(listener: Box<dyn Listener>, profile: Option<Profile>) -> Host {
    Host { listener, profile, limit: DEFAULT_LIMIT, silence: DEFAULT_SILENCE }
}

async fn on_sim(mode: CompletionMode, fault: Fault, filter: Option<&str>) -> Report {
    with_callers(mode, fault, None, AT_ONCE, filter).await
}

/// Runs rows of Version Two, whose clients make one call at a time.
async fn in_profile(mode: CompletionMode, fault: Fault, profile: Profile, filter: Option<&str>) -> Report {
    with_callers(mode, fault, Some(profile), 1, filter).await
}

async fn with_callers(
    mode: CompletionMode,
    fault: Fault,
    profile: Option<Profile>,
    at_once: usize,
    filter: Option<&str>,
) -> Report {
    let fabric = fabric(mode);
    let (of_client, of_adapter) =
        if fault.is_of_adapter() { (Fault::None, fault) } else { (fault, Fault::None) };
    let listener = FaultyListener::new(Box::new(fabric.listen(ADDRESS).unwrap()), of_adapter);
    let connector = FaultyConnector::speaking(Arc::new(fabric.connector(HOST)), of_client, profile);
    let _caller = caller(Arc::new(connector), ADDRESS, profile, at_once);
    let host = host(Box::new(listener), profile);
    run(host, |row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[tokio::test(start_paused = true)]
async fn our_client_passes_on_sim() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        all_pass(&on_sim(mode, Fault::None, None).await, rows(None).len());
    }
}

#[tokio::test(start_paused = true)]
async fn our_client_passes_in_every_profile() {
    for profile in PROFILES {
        for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
            let report = in_profile(mode, Fault::None, profile, None).await;
            if mode == CompletionMode::Local {
                // For docs/conform.md, with --nocapture.
                println!("{profile:?}\n{}", report.table());
            }
            all_pass(&report, rows(Some(profile)).len());
        }
    }
}

#[tokio::test]
async fn our_client_passes_on_iwarp() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    let _caller = caller(Arc::new(IwarpConnector::default()), address, None, AT_ONCE);
    let silence = Duration::from_millis(50);
    let host = Host { silence, ..host(Box::new(listener), None) };
    let report = run(host, |_| true, |_| ()).await;
    // For docs/conform.md, with --nocapture.
    println!("{}", report.table());
    all_pass(&report, rows(None).len());
}

#[tokio::test(start_paused = true)]
async fn one_call_at_a_time_says_nothing_of_a_grant() {
    let report = with_callers(CompletionMode::Local, Fault::None, None, 1, None).await;
    for row in &report.rows {
        let about_the_grant = ["first-flight", "grant-one"].contains(&row.row.name);
        let expected = if about_the_grant { Verdict::NotApplicable } else { Verdict::Pass };
        assert_eq!(row.verdict, expected, "{row:?}");
    }
    assert_eq!(report.rows.len(), rows(None).len());
}

#[tokio::test(start_paused = true)]
async fn without_a_client_every_row_fails() {
    let fabric = fabric(CompletionMode::Local);
    let listener = fabric.listen(ADDRESS).unwrap();
    let report = run(host(Box::new(listener), None), |_| true, |_| ()).await;
    assert_eq!(report.count(Verdict::Fail), rows(None).len(), "{report:#?}");
}

/// Returns a good reply to the call with the XID of these bytes.
fn good(bytes: &[u8]) -> Vec<u8> {
    good_for(word(bytes, 0))
}

/// Returns a good reply to the call with this XID.
fn good_for(xid: u32) -> Vec<u8> {
    [xid, 1, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0].iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
}

/// Takes a message as the answer to the last call.
fn as_last(seen: &Seen, _: &[u8]) -> Vec<u8> {
    good_for(*seen.sent.last().unwrap())
}

/// Takes the chunks of a reply as those that the call offered.
fn as_offered(seen: &Seen, bytes: &[u8]) -> Vec<u8> {
    let offered = seen.offer(bytes);
    seen.with_lists(bytes, |lists| *lists = ChunkLists { read: Vec::new(), ..offered })
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

fn has_write(seen: &Seen, bytes: &[u8]) -> bool {
    seen.lists(bytes).is_some_and(|(_, lists, _)| !lists.write.is_empty())
}

fn has_reply(seen: &Seen, bytes: &[u8]) -> bool {
    seen.lists(bytes).is_some_and(|(_, lists, _)| lists.reply.is_some())
}

/// Returns whether a reply returns chunks that its call did not offer, or longer ones.
fn returns_others(seen: &Seen, bytes: &[u8]) -> bool {
    let Some((_, returned, _)) = seen.lists(bytes) else { return false };
    let offered = seen.offer(bytes);
    let all = |lists: &ChunkLists| lists.write.iter().chain(&lists.reply).cloned().collect::<Vec<_>>();
    let (returned, offered) = (all(&returned), all(&offered));
    let differ = |returned: &WriteChunk, offered: &WriteChunk| {
        let place = |segment: &Segment| (segment.handle, segment.offset);
        returned.total() > offered.total()
            || !returned.segments.iter().map(place).eq(offered.segments.iter().map(place))
    };
    returned.len() > offered.len()
        || returned.iter().zip(&offered).any(|(returned, offered)| differ(returned, offered))
}

/// Returns whether an RDMA_NOMSG carries no reply.
fn is_empty_nomsg(seen: &Seen, bytes: &[u8]) -> bool {
    let total = |lists: &ChunkLists| lists.reply.as_ref().map_or(0, WriteChunk::total);
    seen.lists(bytes).is_some_and(|(inline, lists, _)| !inline && total(&lists) == 0)
}

/// A client that takes any chunk that a reply returns, as if its call had offered that chunk.
const TAKES_ANY_CHUNK: Fault = Fault::On(returns_others, Act::Mend(as_offered));

const LEAVES: &str = "the client leaves the connection";
const COMPLETED: &str = "the client considers";

/// A handle that names no window.
const NOWHERE: u32 = 0x00ba_d000;

/// Private data of a server that takes 4096 bytes (RFC 8797 §4).
const SAYS_4096: Bytes = Bytes::from_static(&[0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3]);
const SAYS_16384: Bytes = Bytes::from_static(&[0xf6, 0xab, 0x0e, 0x18, 1, 0, 15, 15]);

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
    ("reply-inline", Fault::On(first, Act::Close), LEAVES),
    ("first-flight", Fault::Doubles, "over the grant"),
    ("grant-one", Fault::On(|_, m| word(m, 2) == 1, Act::Rewrite(|m| set(m, 2, 32))), "over the grant"),
    // Takes 0 for no limit, for an error, or for no reply.
    ("grant-zero", Fault::On(|_, m| word(m, 2) == 0, Act::Rewrite(|m| set(m, 2, 32))), "over the grant"),
    ("grant-zero", Fault::On(|_, m| word(m, 2) == 0, Act::Close), LEAVES),
    ("grant-zero", Fault::On(|_, m| word(m, 2) == 0, Act::Ignore), "no call within"),
    // Keeps the largest grant.
    (
        "grant-falls",
        Fault::On(|_, m| word(m, 2) < 32, Act::Rewrite(|m| set(m, 2, 32))),
        "2 granted: over the grant",
    ),
    ("grant-falls", Fault::On(|_, m| word(m, 2) == 4, Act::Die), "a grant of 4: the client makes no call"),
    ("grant-all", Fault::On(|_, m| word(m, 2) == u32::MAX, Act::Close), LEAVES),
    ("err-chunk", Fault::On(|_, m| is_error(m, 2), Act::Close), LEAVES),
    // Two known peers answer an error with an error.
    ("err-vers", Fault::On(|_, m| is_error(m, 1), Act::ErrChunk), "the client sends an RDMA_ERROR"),
    ("err-vers", Fault::On(|_, m| is_error(m, 1), Act::Close), LEAVES),
    (
        "err-vers-other",
        Fault::On(|_, m| is_error(m, 1), Act::ErrChunk),
        "ERR_VERS under rdma_vers 2: the client sends an RDMA_ERROR",
    ),
    ("err-vers-other", Fault::On(|_, m| is_error(m, 1), Act::Die), "no call within"),
    ("rpc-refused", Fault::On(|_, m| word(m, 12) == 5, Act::Close), "accept_stat 5: the client leaves"),
    (
        "error-undecodable",
        Fault::On(first, Act::Rewrite(|m| [&set(m, 2, 1)[..16], &[0, 0, 0, 2]].concat())),
        "over the grant",
    ),
    ("error-other-xid", Fault::On(first, Act::ErrChunk), "ERR_CHUNK: the client sends an RDMA_ERROR"),
    ("error-other-xid", Fault::On(first, Act::Mend(as_last)), COMPLETED),
    ("reply-other-xid", Fault::On(first, Act::ErrChunk), "another XID: the client sends an RDMA_ERROR"),
    ("reply-other-xid", Fault::On(first, Act::Mend(as_last)), COMPLETED),
    ("xid-mismatch", Fault::On(first, Act::ErrChunk), "two XIDs: the client sends an RDMA_ERROR"),
    ("msgp", Fault::On(first, Act::Rewrite(|m| [&set(m, 3, 0)[..16], &m[24..]].concat())), "over the grant"),
    ("done", Fault::On(first, Act::Rewrite(good)), "over the grant"),
    ("unknown-proc", Fault::On(first, Act::Rewrite(|m| set(m, 3, 0))), "over the grant"),
    ("short-message", Fault::On(first, Act::ErrChunk), "0 bytes: the client sends an RDMA_ERROR"),
    ("short-message", Fault::On(|_, m| m.len() == 24, Act::Rewrite(good)), "24 bytes: another call"),
    ("reply-cut", Fault::On(first, Act::Rewrite(good)), "28 bytes: another call"),
    ("discriminators", Fault::On(first, Act::Rewrite(|m| set(m, 4, 0))), "over the grant"),
    ("counts", Fault::On(first, Act::Rewrite(good)), "9 segments: another call"),
    (
        "reply-read-list",
        Fault::On(first, Act::Rewrite(|m| with_lists(m, |lists| lists.read.clear()))),
        "over the grant",
    ),
    ("version", Fault::On(first, Act::Rewrite(|m| set(m, 1, 1))), "over the grant"),
    ("rpc-cut", Fault::On(first, Act::ErrChunk), "0 bytes: the client sends an RDMA_ERROR"),
    (
        "reply-twice",
        Fault::On(|seen, _| seen.count == 2, Act::Mend(as_last)),
        "the second reply: another call",
    ),
    ("reverse-call", Fault::On(first, Act::Mend(as_last)), "over the grant"),
    ("reverse-call", Fault::On(first, Act::Reply(0)), "the answer is reply SUCCESS"),
    ("write-chunk-used", Fault::On(has_write, Act::Close), LEAVES),
    // The reply to a READ without its list.
    ("write-list-absent", Fault::On(|_, m| m.len() == 156, Act::ErrChunk), "the client sends an RDMA_ERROR"),
    ("write-other-handle", TAKES_ANY_CHUNK, COMPLETED),
    ("write-other-offset", TAKES_ANY_CHUNK, COMPLETED),
    ("write-too-long", TAKES_ANY_CHUNK, COMPLETED),
    ("write-more-segments", TAKES_ANY_CHUNK, COMPLETED),
    ("write-more-chunks", TAKES_ANY_CHUNK, COMPLETED),
    ("write-list-unasked", TAKES_ANY_CHUNK, COMPLETED),
    ("write-beyond-window", Fault::WidensWindows(64), "the RDMA Write was not refused"),
    ("write-beyond-window", DIES_OF_FAULTS, "no call within"),
    ("write-wrong-key", Fault::LosesWrites(NOWHERE), "the RDMA Write was not refused"),
    ("write-wrong-key", DIES_OF_FAULTS, "no call within"),
    ("invalidation", Fault::On(|seen, _| seen.invalidates, Act::Close), LEAVES),
    ("reply-chunk-spare", Fault::On(has_reply, Act::Close), LEAVES),
    ("reply-chunk-used", Fault::On(has_reply, Act::Close), LEAVES),
    // The reply to a READDIR without its chunk.
    ("reply-chunk-absent", Fault::On(|_, m| m.len() == 188, Act::ErrChunk), "the client sends an RDMA_ERROR"),
    ("reply-chunk-other-handle", TAKES_ANY_CHUNK, COMPLETED),
    ("reply-chunk-more-segments", TAKES_ANY_CHUNK, COMPLETED),
    ("reply-chunk-too-long", TAKES_ANY_CHUNK, COMPLETED),
    ("reply-chunk-empty", Fault::On(is_empty_nomsg, Act::Rewrite(good)), COMPLETED),
    ("reply-chunk-unasked", Fault::On(returns_others, Act::Rewrite(good)), COMPLETED),
    ("read-of-write-window", Fault::OpensForReading, "can be read that were not offered"),
    ("read-of-write-window", DIES_OF_FAULTS, "no call within"),
    ("read-beyond-window", Fault::WidensWindows(4096), "can be read that were not offered"),
    ("read-beyond-window", DIES_OF_FAULTS, "no call within"),
    ("read-wrong-key", Fault::AnswersReads(NOWHERE), "64 bytes can be read that were not offered"),
    ("read-wrong-key", DIES_OF_FAULTS, "no call within"),
    (
        "private-data-absent",
        Fault::PrivateData(|data| (!data.is_empty()).then(|| data.clone())),
        "with 0 bytes: the client makes no call",
    ),
    ("private-data-absent", Fault::Misreads(|_| SAYS_4096), "the inline threshold is 1024"),
    (
        "private-data-malformed",
        Fault::PrivateData(|data| (data.len() != 7).then(|| data.clone())),
        "with 7 bytes: the client makes no call",
    ),
    // Reads behind the end.
    (
        "private-data-malformed",
        Fault::Misreads(|data| [&data[..], &SAYS_4096[data.len().min(8)..]].concat().into()),
        "with 1 bytes: a Send of",
    ),
    (
        "private-data-version",
        Fault::PrivateData(|data| (data.get(4) != Some(&2)).then(|| data.clone())),
        "with 8 bytes: the client makes no call",
    ),
    (
        "private-data-version",
        Fault::Misreads(|data| [&data[..4], &[1], &data[5..]].concat().into()),
        "with 8 bytes: a Send of",
    ),
    (
        "private-data-embedded",
        Fault::PrivateData(|data| (!data.starts_with(&[0xf6, 0xf6])).then(|| data.clone())),
        "with 9 bytes: the client makes no call",
    ),
    // Takes the byte in front of the identifier for the size.
    (
        "private-data-embedded",
        Fault::Misreads(|data| if data.len() == 8 { data.clone() } else { SAYS_16384 }),
        "with 9 bytes: a Send of",
    ),
    ("foreign-invalidation", Fault::KeepsKey(NOWHERE), "the invalidation was not refused"),
    ("foreign-invalidation", DIES_OF_FAULTS, "no call within"),
    ("oversized-reply", Fault::CutsSends(4096), "the reply was not refused"),
    ("oversized-reply", DIES_OF_FAULTS, "no call within"),
    // Keep the grant of the last connection.
    ("no-reply", Fault::DoublesLater, "over the grant"),
    ("closed", Fault::DoublesLater, "over the grant"),
    ("cut", Fault::DoublesLater, "over the grant"),
    ("cut-after-reply", Fault::DoublesLater, "over the grant"),
    ("refused", Fault::DoublesLater, "over the grant"),
    ("no-reply", DIES_WITH_ITS_CONNECTION, "no call within"),
    ("closed", DIES_WITH_ITS_CONNECTION, "no call within"),
    ("cut", DIES_OF_FAULTS, "no call within"),
    ("cut-after-reply", DIES_OF_FAULTS, "no call within"),
    ("refused", DIES_WITH_ITS_CONNECTION, "no call within"),
];

/// Returns whether a message of Version Two answers no call: it does not decode, has the XID of none, or goes the other
/// way.
fn is_for_nobody(seen: &Seen, bytes: &[u8]) -> bool {
    let is_answer = |header: &Header| match header.body {
        Body::Two(_) => true,
        _ => header.direction != Some(Direction::Call) && seen.sent.contains(&header.xid),
    };
    seen.header(bytes).is_none_or(|header| !is_answer(&header))
}

/// Takes a message of Version Two as the good answer to the last call.
fn as_good(seen: &Seen, bytes: &[u8]) -> Vec<u8> {
    let xid = *seen.sent.last().unwrap();
    as_whole(seen, bytes, xid, &[xid, 1, 0, 0, 0, 0])
}

/// Takes a message as the last part of the answer to the last call.
fn as_last_part(seen: &Seen, bytes: &[u8]) -> Vec<u8> {
    as_whole(seen, bytes, *seen.sent.last().unwrap(), &[0, 0, 0])
}

/// Takes a message of Version Two as the good answer to the call of its XID.
fn as_good_to_it(seen: &Seen, bytes: &[u8]) -> Vec<u8> {
    let xid = word(bytes, 0);
    as_whole(seen, bytes, xid, &[xid, 1, 0, 0, 0, 0])
}

/// Takes a message as a reply to the call of this XID, with this payload.
fn as_whole(seen: &Seen, bytes: &[u8], xid: u32, payload: &[u32]) -> Vec<u8> {
    let header = Header {
        xid,
        version: 2,
        credit: word(bytes, 2),
        direction: Some(Direction::Reply),
        invalidate: 0,
        body: Body::Message(ChunkLists::default()),
    };
    let mut out = BytesMut::new();
    seen.codec().encode(&header, &mut out);
    payload.iter().for_each(|word| out.put_u32(*word));
    out.to_vec()
}

/// Returns the operation in a message of Version Two.
fn operation(seen: &Seen, bytes: &[u8]) -> Option<two::Body> {
    match seen.header(bytes)?.body {
        Body::Two(body) => Some(body),
        _ => None,
    }
}

/// Returns the place of the word 2048.
fn value_of_2048(bytes: &[u8]) -> usize {
    (0..bytes.len() / 4).find(|at| word(bytes, *at) == 2048).unwrap()
}

fn is_announcement(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Exchange(Exchange::Initial { .. })))
}

fn is_request(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Exchange(Exchange::Request { .. })))
}

fn is_part(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Middle { .. }))
}

fn is_transmission(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Transmission(_)))
}

fn is_reverse_call(seen: &Seen, bytes: &[u8]) -> bool {
    seen.header(bytes).is_some_and(|header| {
        header.direction == Some(Direction::Call) && matches!(header.body, Body::Message(_))
    })
}

/// Returns whether this is the first transmission of a reply.
fn is_response(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Transmission(Operation::Response(_))))
}

/// Returns whether this is a later transmission.
fn is_later(seen: &Seen, bytes: &[u8]) -> bool {
    matches!(operation(seen, bytes), Some(two::Body::Transmission(Operation::Continuation(_))))
}

/// Changes the words of a request in a group.
fn change_request(seen: &Seen, bytes: &mut Vec<u8>, change: fn(&mut TransmitRequest)) {
    let Ok((mut header, len)) = seen.codec().decode(bytes, &Limits::default()) else { return };
    let Body::Two(two::Body::Transmission(Operation::Request(request))) = &mut header.body else { return };
    change(request);
    let mut out = BytesMut::new();
    seen.codec().encode(&header, &mut out);
    out.put_slice(&bytes[len..]);
    *bytes = out.to_vec();
}

/// A client that takes the first transmission of any reply as a good reply.
const TAKES_ANY_GROUP: Fault = Fault::On(is_response, Act::Mend(as_good_to_it));
/// A client that does not look at transmissions.
const SEES_NO_GROUP: Fault = Fault::On(is_transmission, Act::Ignore);

fn does_not_decode(seen: &Seen, bytes: &[u8]) -> bool {
    seen.header(bytes).is_none()
}

fn is_any_error(seen: &Seen, bytes: &[u8]) -> bool {
    seen.header(bytes).is_some_and(|header| matches!(header.body, Body::Error(_)))
}

/// Returns whether a message of a client is a report (ROPT_REPTERR, rtrext-02 §9.5).
fn is_report(message: &[u8]) -> bool {
    (word(message, 3), word(message, 5)) == (5, 8)
}

/// A client that gives its reports the direction REPLY.
const REPORTS_AS_A_REPLY: Fault = Fault::Sends(|_, m| {
    if is_report(m) {
        *m = set(m, 4, 1);
    }
});

/// The drafts allow this, though our client does otherwise.
#[tokio::test(start_paused = true)]
async fn what_the_drafts_leave_open_passes() {
    // The Requester chooses the XID of a report (version-two-01 §4.2.2).
    let other_xid = Fault::Sends(|_, m| {
        if is_report(m) {
            *m = set(m, 0, word(m, 0) ^ 0x2000_0000);
        }
    });
    for profile in [Profile::P1, Profile::P2] {
        for row in ["group-sequence", "group-other-xid", "placed-segment", "item-unasked"] {
            let report = in_profile(CompletionMode::Local, other_xid, profile, Some(row)).await;
            assert_eq!(report.rows[0].verdict, Verdict::Pass, "{profile:?}: {:?}", report.rows[0]);
        }
    }
}

/// A client that takes any answer as one to its last call.
const TAKES_ANY_ANSWER: Fault = Fault::On(is_for_nobody, Act::Mend(as_good));
const NO_ERROR: &str = "the client sends no RDMA2_ERROR";

/// A fault of a client of Version Two, in some profiles.
type FoundIn = (&'static [Profile], Found);

const P1_P2: &[Profile] = &[Profile::P1, Profile::P2];
const P3: &[Profile] = &[Profile::P3];

/// Faults for each row of Version Two, with the words of the report.
static FAULTS_OF_TWO: &[FoundIn] = &[
    (P1_P2, ("offer", Fault::Doubles, "over the grant")),
    (P3, ("offer", Fault::Doubles, "message 2 of the client, the limit is 1")),
    (&PROFILES, ("reply-inline", Fault::Sends(|_, m| *m = set(m, 0, word(m, 0) ^ 1)), "in front of XID")),
    (&PROFILES, ("version-one-reply", TAKES_ANY_ANSWER, "rdma_vers 1: another call")),
    (&PROFILES, ("reply-other-xid", TAKES_ANY_ANSWER, "another XID: another call")),
    (&PROFILES, ("unknown-type", TAKES_ANY_ANSWER, COMPLETED)),
    (
        &PROFILES,
        ("unknown-type", Fault::On(does_not_decode, Act::ErrVers(1, 2)), "the client answers: versions 1"),
    ),
    (&PROFILES, ("direction", TAKES_ANY_ANSWER, COMPLETED)),
    (&PROFILES, ("reply-cut", TAKES_ANY_ANSWER, "14 bytes: another call")),
    (&PROFILES, ("errors", Fault::On(is_any_error, Act::Close), LEAVES)),
    (&PROFILES, ("error-unknown", TAKES_ANY_ANSWER, "code 77: another call")),
    (&PROFILES, ("error-other-xid", TAKES_ANY_ANSWER, "an error: another call")),
    (&PROFILES, ("write-chunk-used", Fault::On(has_write, Act::Close), LEAVES)),
    (&PROFILES, ("write-other-handle", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("write-too-long", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("write-more-segments", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("write-list-unasked", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("reply-chunk-used", Fault::On(has_reply, Act::Close), LEAVES)),
    (&PROFILES, ("reply-chunk-other-handle", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("reply-chunk-too-long", TAKES_ANY_CHUNK, COMPLETED)),
    (&PROFILES, ("invalidation", Fault::On(|seen, _| seen.invalidates, Act::Close), LEAVES)),
    (P1_P2, ("cut", Fault::DoublesLater, "over the grant")),
    (P3, ("cut", Fault::DoublesLater, "message 2 of the client, the limit is 1")),
    (
        &PROFILES,
        ("properties-unknown", Fault::On(is_announcement, Act::ErrChunk), "the properties: the client sends"),
    ),
    (&PROFILES, ("properties-cut", Fault::On(does_not_decode, Act::Ignore), NO_ERROR)),
    (&PROFILES, ("properties-short", Fault::On(is_announcement, Act::Ignore), NO_ERROR)),
    (
        &PROFILES,
        (
            "receive-size",
            Fault::On(is_announcement, Act::Rewrite(|m| set(m, value_of_2048(m), 4096))),
            "bytes, the inline threshold is 2048",
        ),
    ),
    (&PROFILES, ("properties-asked", Fault::On(is_request, Act::Ignore), "no response")),
    (
        &PROFILES,
        (
            "properties-asked",
            Fault::Sends(|seen, m| {
                if matches!(operation(seen, m), Some(two::Body::Exchange(Exchange::Response { .. }))) {
                    *m = set(m, 0, word(m, 0) ^ 1);
                }
            }),
            "a response under XID",
        ),
    ),
    (&PROFILES, ("operation-unknown", Fault::On(does_not_decode, Act::Ignore), NO_ERROR)),
    (
        &PROFILES,
        ("operation-unknown", Fault::On(does_not_decode, Act::ErrChunk), "the client answers: transport"),
    ),
    (&PROFILES, ("properties-twice", Fault::On(is_announcement, Act::Ignore), NO_ERROR)),
    (&PROFILES, ("continued", Fault::On(is_part, Act::Close), LEAVES)),
    (&PROFILES, ("continued-remaining", Fault::On(is_part, Act::Rewrite(|m| set(m, 4, 12))), COMPLETED)),
    (&PROFILES, ("continued-other-xid", Fault::On(is_for_nobody, Act::Mend(as_last_part)), COMPLETED)),
    (&PROFILES, ("continued-interrupted", Fault::On(is_for_nobody, Act::Mend(as_last_part)), COMPLETED)),
    (&PROFILES, ("continuation-alone", Fault::On(is_transmission, Act::Mend(as_good)), COMPLETED)),
    (
        &PROFILES,
        ("continuation-alone", Fault::On(is_transmission, Act::ErrChunk), "the client answers: transport"),
    ),
    (&PROFILES, ("response-unasked", Fault::On(is_transmission, Act::Mend(as_good)), COMPLETED)),
    (
        &PROFILES,
        ("response-unasked", Fault::On(is_transmission, Act::ErrChunk), "the client answers: transport"),
    ),
    (&PROFILES, ("reverse-call", Fault::On(is_reverse_call, Act::Mend(as_good)), COMPLETED)),
    (&PROFILES, ("reverse-call", Fault::On(is_reverse_call, Act::ErrVers(1, 2)), "the answer is")),
    (P1_P2, ("group-reply", Fault::On(is_response, Act::Close), LEAVES)),
    (
        P1_P2,
        (
            "group-reply",
            Fault::Sends(|seen, m| change_request(seen, m, |request| request.count = 3)),
            "a request in 3 transmissions, the limit is 1",
        ),
    ),
    (
        P1_P2,
        (
            "group-reply",
            Fault::Sends(|seen, m| change_request(seen, m, |request| request.payload_len = 5000)),
            "a Payload stream of 5000 bytes in a Send with",
        ),
    ),
    (P1_P2, ("group-reply", Fault::On(is_later, Act::Ignore), "no call within")),
    (P1_P2, ("group-sequence", REPORTS_AS_A_REPLY, "a report without the direction CALL")),
    (P1_P2, ("group-sequence", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-sequence", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("group-other-xid", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-other-xid", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("group-interrupted", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-interrupted", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("group-another", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-another", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("group-count", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-count", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("group-payload", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("group-payload", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("item-unasked", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("item-unasked", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("placed-segment", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("placed-segment", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("placed-outside", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("placed-outside", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("placed-too-long", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("placed-too-long", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("placed-elsewhere", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("placed-elsewhere", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("direction-unanswered", TAKES_ANY_GROUP, COMPLETED)),
    (P1_P2, ("direction-unanswered", SEES_NO_GROUP, NO_ERROR)),
    (P1_P2, ("placed", Fault::On(is_response, Act::Close), LEAVES)),
    (P1_P2, ("placed", SEES_NO_GROUP, "no call within")),
    (&PROFILES, ("err-vers", Fault::On(is_any_error, Act::Mend(as_good)), "a message that does not decode")),
];

/// Returns the faults of the rows of a profile.
fn faults_of(profile: Profile) -> Vec<Found> {
    let rows = rows(Some(profile));
    let is_row = |name: &str| rows.iter().any(|row| row.name == name);
    let found =
        FAULTS_OF_TWO.iter().filter(|(profiles, (name, ..))| profiles.contains(&profile) && is_row(name));
    found.map(|(_, found)| *found).collect()
}

#[tokio::test(start_paused = true)]
async fn every_row_of_version_two_is_red_on_its_faulty_client() {
    for profile in PROFILES {
        each_is_red(&faults_of(profile), async |name, fault| {
            in_profile(CompletionMode::Local, fault, profile, Some(name)).await
        })
        .await;
    }
}

#[test]
fn no_row_is_without_its_faulty_client() {
    for profile in PROFILES {
        let (rows, faults) = (rows(Some(profile)), faults_of(profile));
        each_has_a_fault(&rows, &faults);
        each_has_a_live_fault(&rows, &faults);
    }
    let names = FAULTS_OF_TWO.iter().map(|(_, (name, ..))| name);
    for name in names {
        assert!(
            PROFILES.iter().any(|profile| rows(Some(*profile)).iter().any(|row| row.name == *name)),
            "{name}"
        );
    }
    each_has_a_fault(&rows(None), FAULTS);
    each_has_a_live_fault(&rows(None), FAULTS);
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_client() {
    each_is_red(FAULTS, async |name, fault| on_sim(CompletionMode::Local, fault, Some(name)).await).await;
}

#[test]
fn the_page_shows_every_row() {
    page_shows("Our own client", &rows(None));
    for profile in PROFILES {
        page_shows(&format!("Our own client in Version Two, {profile:?}"), &rows(Some(profile)));
    }
}
