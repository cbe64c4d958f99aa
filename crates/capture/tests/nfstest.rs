//! Assertions of `nfstest_rdma` (nfstest 3.2) about a capture, checked on our NFS client and server. READDIR, READLINK,
//! READ and WRITE of the sizes that nfstest uses run over software iWARP, through a proxy that keeps every byte. The
//! assertions have the numbers N1 to N20 of the table in `docs/hostile.md`.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use rpcrdma::{ClientConfig, Server, ServerConfig};
use rpcrdma_capture::exchange::{Exchange, Exchanges};
use rpcrdma_capture::message::{Event, events};
use rpcrdma_capture::session::Session;
use rpcrdma_capture::tcp::{Chunk, Connection, Side};
use rpcrdma_iwarp::wire::ddp::{Header, HeaderView, queue};
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::rdmap::{Opcode, opcode};
use rpcrdma_iwarp::{Config, IwarpListener};
use rpcrdma_nfs::Client;
use rpcrdma_nfs::client::ClientOptions;
use rpcrdma_nfs::fs::{MemoryFs, MemoryOptions};
use rpcrdma_nfs::server::{Export, HandleKey, NfsServer, ServerOptions, Squash};
use rpcrdma_nfs::wire::{NFS_PROGRAM, SetAttributes};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec as _, Segment};
use rpcrdma_verbs::Listener as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const ANY: &str = "127.0.0.1:0";
const SIZES: [usize; 8] = [512, 1000, 1025, 3072, 4096, 65_536, 100_001, 1 << 20];
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;

/// Recorded data of one session.
struct Seen {
    session: Session,
    events: Vec<Event>,
    exchanges: Vec<Exchange>,
}

type Tape = Arc<Mutex<Vec<Chunk>>>;

async fn copy(from: Side, mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, tape: Tape) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        let bytes = buffer[..count].to_vec();
        tape.lock().unwrap().push(Chunk { from, bytes, end: None });
        writer.write_all(&buffer[..count]).await.unwrap();
    }
    let _ = writer.shutdown().await;
}

/// Forwards one connection, and keeps all bytes.
async fn proxy(server: SocketAddr) -> (SocketAddr, Tape) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tape = Tape::default();
    let kept = Arc::clone(&tape);
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = TcpStream::connect(server).await.unwrap().into_split();
        tokio::spawn(copy(Side::Client, near_read, far_write, Arc::clone(&kept)));
        copy(Side::Server, far_read, near_write, kept).await;
    });
    (address, tape)
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|n| u8::try_from(n * 131 % 251).unwrap()).collect()
}

async fn read_all(client: &Client, path: &str) -> Bytes {
    let mut stream = client.open(path).await.unwrap().read_stream(0, None).await.unwrap();
    let mut read = BytesMut::new();
    while let Some(piece) = stream.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    read.freeze()
}

/// Runs the session, and checks N20 meanwhile.
async fn seen(protocol: rpcrdma::Config) -> Seen {
    let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    export.squash = Squash::Nobody;
    let shares = ServerConfig::default().shares();
    let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
    let nfs = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    let listener = IwarpListener::bind(ANY.parse().unwrap(), Config::default()).await.unwrap();
    let (proxy, tape) = proxy(listener.local_address().unwrap()).await;
    let plain = TcpListener::bind(ANY).await.unwrap();
    let plain_address = plain.local_addr().unwrap();
    let server = Server::builder()
        .shares(shares)
        .program(nfs.nfs_program())
        .program(nfs.mount_program())
        .listen_rdma(Box::new(listener))
        .listen_tcp(plain)
        .build()
        .unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));

    let mut config = ClientConfig::default();
    config.protocol = protocol;
    let rpc = rpcrdma::Client::builder().config(config).connect(proxy).await.unwrap();
    let client = Client::mount(&rpc, "/", ClientOptions::default()).await.unwrap();
    client.mkdir("/d", SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
    assert_eq!(client.read_dir("/d").await.unwrap().len(), 0);
    for size in SIZES {
        let path = format!("/d/{size}");
        let mut stream = client.create(&path, SetAttributes::default()).await.unwrap().write_stream(0);
        stream.write(pattern(size)).await.unwrap();
        stream.finish().await.unwrap();
    }
    client.symlink("1000", "/d/link").await.unwrap();
    assert_eq!(client.readlink("/d/link").await.unwrap(), b"1000");
    assert_eq!(client.read_dir("/d").await.unwrap().len(), SIZES.len() + 1);
    for size in SIZES {
        assert!(read_all(&client, &format!("/d/{size}")).await == pattern(size), "N20, {size} bytes");
    }
    rpc.close().await;
    let calls = monitor.stats().calls;
    let rpc =
        rpcrdma::Client::builder().transport(rpcrdma::Transport::tcp()).connect(plain_address).await.unwrap();
    let client = Client::mount(&rpc, "/", ClientOptions::default()).await.unwrap();
    for size in SIZES {
        assert!(read_all(&client, &format!("/d/{size}")).await == pattern(size), "N20 over TCP, {size}");
    }

    let chunks = std::mem::take(&mut *tape.lock().unwrap());
    let session = Session::of(&Connection {
        client: plain_address,
        server: proxy,
        chunks,
        behind_holes: 0,
        out_of_order: 0,
    });
    let Exchanges { all, odd, .. } = Exchanges::of(&session);
    assert!(odd.is_empty(), "N2: every message is a call with its header, or the reply to one: {odd:?}");
    assert_eq!(
        u64::try_from(all.len()).unwrap(),
        calls,
        "N1: every call that the server got is in the capture"
    );
    let events = events(&session);
    Seen { session, events, exchanges: all }
}

fn segments(exchange: &Exchange) -> Vec<Segment> {
    let lists = exchange.call.lists().unwrap();
    let reads = lists.read.iter().map(|entry| entry.segment);
    reads.chain(lists.write.iter().chain(&lists.reply).flat_map(|chunk| chunk.segments.clone())).collect()
}

/// Returns program and procedure of a call.
fn procedure(exchange: &Exchange) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(*exchange.call.message[at..].first_chunk().unwrap());
    (word(12), word(20))
}

/// Checks N2 to N13 for each call and its reply.
fn check_headers(seen: &Seen) {
    let mut chunks = BTreeMap::new();
    for exchange in &seen.exchanges {
        let reply = exchange.reply.as_ref().expect("N2: each call has its reply");
        for part in [&exchange.call, reply] {
            let mut header = BytesMut::new();
            V1.encode(&part.header, &mut header);
            match part.header.body {
                Body::Message(_) => assert!(part.sent > header.len(), "N3: RDMA_MSG has a payload"),
                Body::NoMessage(_) => assert_eq!(part.sent, header.len(), "N3: RDMA_NOMSG has none"),
                _ => panic!("N3: {:?}", part.header),
            }
        }
        let (offered, returned) = (exchange.call.lists().unwrap(), reply.lists().unwrap());
        let (program, procedure) = procedure(exchange);
        let positions: BTreeSet<_> = offered.read.iter().map(|entry| entry.position).collect();
        let counts = (positions.len(), offered.write.len());
        match (program, procedure) {
            (NFS_PROGRAM, READ | READLINK) => {
                assert!(
                    counts.0 == 0 && counts.1 <= 1,
                    "N5: READ and READLINK offer one Write chunk at most"
                );
            }
            (NFS_PROGRAM, WRITE) => assert!(counts.0 <= 1 && counts.1 == 0, "N5: WRITE has one Read chunk"),
            _ => assert_eq!(counts, (0, 0), "N5: {procedure} has nothing that is eligible"),
        }
        *chunks.entry((program, procedure)).or_insert(0) += counts.0 + counts.1;

        let all = segments(exchange);
        let handles: BTreeSet<_> = all.iter().map(|segment| segment.handle).collect();
        let offsets: BTreeSet<_> = all.iter().map(|segment| segment.offset).collect();
        assert_eq!((handles.len(), offsets.len()), (all.len(), all.len()), "N6, N7");
        for position in positions {
            match exchange.call.header.body {
                Body::NoMessage(_) => assert_eq!(position, 0, "N8"),
                _ => assert!(
                    position > 0 && usize::try_from(position).unwrap() <= exchange.call.message.len(),
                    "N8: {position}"
                ),
            }
        }
        assert!(
            offered.reply.iter().flat_map(|chunk| &chunk.segments).all(|segment| segment.length > 0),
            "N9: segments of a Reply chunk have room"
        );
        assert_eq!(returned.write.len(), offered.write.len(), "N10");
        assert_eq!(returned.reply.is_some(), offered.reply.is_some(), "N10");
        let pairs =
            offered.write.iter().zip(&returned.write).chain(offered.reply.iter().zip(&returned.reply));
        for (offered, returned) in pairs {
            assert_eq!(*returned, offered.filled(returned.total()), "N10, N11: the same, not longer");
        }
        let used = returned.reply.as_ref().is_some_and(|chunk| chunk.total() > 0);
        let long = matches!(reply.header.body, Body::NoMessage(_));
        assert_eq!(used, long, "N12, N13: a Reply chunk with data is RDMA_NOMSG, and only then");
    }
    assert!(chunks[&(NFS_PROGRAM, READ)] > 0 && chunks[&(NFS_PROGRAM, WRITE)] > 0, "N5: {chunks:?}");
}

/// Checks N4 and N14 to N16: RDMA Reads and Writes against the segments of the calls.
fn check_transfers(seen: &Seen) {
    let offered: BTreeMap<u32, Segment> =
        seen.exchanges.iter().flat_map(segments).map(|segment| (segment.handle, segment)).collect();
    // Position up to which each segment was read or written.
    let mut reached: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut requests, mut responses) = (0, 0);
    let mut moved = |stag: u32, offset: u64, length: u64| {
        let segment = offered[&stag];
        let done = reached.entry(stag).or_default();
        assert_eq!(offset, segment.offset + *done, "N15: contiguous");
        *done += length;
        assert!(*done <= u64::from(segment.length), "N15: no more than remains");
    };
    for event in &seen.events {
        match event {
            Event::Write(write) => {
                moved(write.stag, write.offset, u64::try_from(write.bytes.len()).unwrap());
            }
            Event::ReadRequest(_, request) => {
                requests += 1;
                moved(request.source_stag, request.source_offset, u64::from(request.size));
            }
            Event::ReadResponse(response) => responses += usize::from(response.last),
            Event::Message(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests, responses, "N4: each Read Request has a Read Response with the last flag");
    for exchange in &seen.exchanges {
        let (call, reply) =
            (exchange.call.lists().unwrap(), exchange.reply.as_ref().unwrap().lists().unwrap());
        let reads = call.read.iter().map(|entry| entry.segment);
        let writes = reply.write.iter().chain(&reply.reply).flat_map(|chunk| chunk.segments.clone());
        for segment in reads.chain(writes) {
            let done = reached.get(&segment.handle).copied().unwrap_or(0);
            assert_eq!(done, u64::from(segment.length), "N14: moved as stated, and nothing for nothing");
        }
    }
    // N4: the data of a reduced WRITE is that of the file.
    let written = seen.exchanges.iter().filter(|exchange| procedure(exchange) == (NFS_PROGRAM, WRITE));
    let reduced = written.flat_map(|exchange| &exchange.call.moved).filter(|chunk| !chunk.data.is_empty());
    assert!(reduced.clone().count() > 0);
    for chunk in reduced {
        assert!(SIZES.iter().any(|size| chunk.data == pattern(*size)), "N4");
    }
}

/// Checks N16, N18 and N19: the segments of each message on the wire.
fn check_segments(seen: &Seen) {
    #[derive(Default)]
    struct Message {
        sizes: BTreeSet<usize>,
        offset: u64,
        msn: Option<u32>,
    }
    let mut sends: BTreeMap<bool, Message> = BTreeMap::new();
    let mut tagged: BTreeMap<(bool, u32), Message> = BTreeMap::new();
    for item in seen.session.fpdus() {
        let client = item.from == Side::Client;
        let ulpdu = FpduView::new(&item.bytes).ulpdu().unwrap();
        let payload = HeaderView::new(ulpdu).payload().unwrap().len();
        let (last, message) = match Header::decode(ulpdu).unwrap() {
            Header::Tagged(header) => {
                let message = tagged.entry((client, header.stag)).or_default();
                if !message.sizes.is_empty() {
                    assert_eq!(header.offset, message.offset, "N18: contiguous");
                }
                message.offset = header.offset + u64::try_from(payload).unwrap();
                (header.last, message)
            }
            Header::Untagged(header) if opcode(header.control).unwrap() == Opcode::ReadRequest => {
                assert_eq!(
                    (header.queue, payload),
                    (queue::READ_REQUEST, 28),
                    "N16: a header and no payload"
                );
                continue;
            }
            Header::Untagged(header) => {
                assert_eq!(header.queue, queue::SEND, "N19");
                let message = sends.entry(client).or_default();
                assert_eq!(
                    *message.msn.get_or_insert(header.msn),
                    header.msn,
                    "N19: one number for a message"
                );
                assert_eq!(u64::from(header.offset), message.offset, "N19: contiguous from 0");
                message.offset += u64::try_from(payload).unwrap();
                (header.last, message)
            }
        };
        message.sizes.insert(payload);
        assert!(message.sizes.len() <= 2, "N18, N19: at most two sizes: {:?}", message.sizes);
        if last {
            *message = Message::default();
        }
    }
    let left = sends.values().chain(tagged.values()).filter(|message| !message.sizes.is_empty());
    assert_eq!(left.count(), 0, "N18, N19: each message ends with the last flag");
}

async fn check(protocol: rpcrdma::Config) {
    let seen = seen(protocol).await;
    check_headers(&seen);
    check_transfers(&seen);
    check_segments(&seen);
}

#[tokio::test]
async fn n1_to_n20_hold_for_our_client_and_server() {
    check(rpcrdma::Config::default()).await;
}

/// Chunks in the layout of Linux: many segments, each with its own name and offset (N6, N7).
#[tokio::test]
async fn n1_to_n20_hold_for_chunks_of_many_segments() {
    let mut protocol = rpcrdma::Config::default();
    protocol.max_segment_len = 70_000;
    check(protocol).await;
}
