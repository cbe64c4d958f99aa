//! The provider on real sockets of the loopback interface.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_iwarp::wire::mpa::{FLAG_LARGE_FPDU, Frame, FrameKind, FrameView, Revision};
use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener, LargeFpdu, Timeouts};
use rpcrdma_verbs::{
    Buffer, Completion, ConnectError, ConnectParameters, ConnectionRequest, Connector, Disconnected,
    Listener, ProtectionDomain, QueuePair, ReceiveMemory, SendRequest, Status, WindowMemory, Work,
    WorkRequest, WrId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn parameters(private_data: &'static [u8]) -> ConnectParameters {
    ConnectParameters {
        private_data: Bytes::from_static(private_data).into(),
        ird: 8,
        ord: 8,
        max_send_wr: 64,
        max_recv_wr: 64,
        domain: ProtectionDomain::new(1 << 26),
    }
}

type Pair = Box<dyn QueuePair>;

async fn listener(config: Config) -> (IwarpListener, SocketAddr) {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

async fn request(listener: &mut IwarpListener) -> Box<dyn ConnectionRequest> {
    listener.accept().await.unwrap().request().await.unwrap()
}

async fn connected_with(client: Config, server: Config) -> (Pair, Pair) {
    let (mut listener, address) = listener(server).await;
    let accept = async {
        let request = request(&mut listener).await;
        assert_eq!(&request.private_data()[..], b"client");
        request.accept(parameters(b"server")).await.unwrap()
    };
    let connector = IwarpConnector::new(client);
    let (client, server) = tokio::join!(connector.connect(address, parameters(b"client")), accept);
    let client = client.unwrap();
    assert_eq!(&client.peer_private_data()[..], b"server");
    assert_eq!(client.peer_address(), server.local_address());
    (client, server)
}

async fn connected() -> (Pair, Pair) {
    connected_with(Config::default(), Config::default()).await
}

fn send(bytes: impl Into<Bytes>) -> WorkRequest {
    WorkRequest::Send(SendRequest { gather: vec![bytes.into()], ..SendRequest::default() })
}

fn receive(pair: &mut Pair, id: u64, capacity: usize) {
    let reserved = pair.domain().reserve(capacity).unwrap();
    pair.post_receive(WrId(id), ReceiveMemory::Pooled(reserved)).unwrap();
}

/// Drives one end until `count` completions came.
async fn complete(pair: &mut Pair, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        poll_fn(|cx| pair.poll(cx, &mut completions)).await.unwrap();
    }
    completions
}

/// Drives one end until the connection is over.
async fn drain(pair: &mut Pair) -> (Vec<Completion>, Disconnected) {
    let mut completions = Vec::new();
    loop {
        if let Err(end) = poll_fn(|cx| pair.poll(cx, &mut completions)).await {
            return (completions, end);
        }
    }
}

fn message(completion: &Completion) -> Vec<u8> {
    assert_eq!(completion.status, Status::Success);
    let Work::Receive { buffers, len, .. } = &completion.work else { panic!("no Receive: {completion:?}") };
    buffers.iter().flat_map(|buffer| buffer.to_vec()).take(*len).collect()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0]).collect()
}

#[tokio::test]
async fn a_call_with_bulk_data_both_ways() {
    let configs = [
        Config::default(),
        {
            let mut config = Config::default();
            config.strict_crc = true;
            config
        },
        {
            let mut config = Config::default();
            config.crc = false;
            config.large_fpdu = LargeFpdu::Flagged;
            config
        },
        {
            let mut config = Config::default();
            config.revision = Revision::One;
            config
        },
        {
            let mut config = Config::default();
            config.peer_to_peer = true;
            config
        },
    ];
    for config in configs {
        let strict = config.strict_crc;
        let (mut client, mut server) = connected_with(config.clone(), config).await;
        let length = 3 << 20;
        let source = client.reserve_window(WindowMemory::Read(pattern(length).into())).unwrap();
        let target = client.reserve_window(WindowMemory::Write(Buffer::adopt(vec![0; length]))).unwrap();
        client.post(WrId(1), WorkRequest::BindWindow { key: source.key }).unwrap();
        client.post(WrId(2), WorkRequest::BindWindow { key: target.key }).unwrap();
        client.post(WrId(3), send(&b"call"[..])).unwrap();
        receive(&mut client, 4, 100);
        receive(&mut server, 5, 100);
        let serve = async {
            let call = complete(&mut server, 1).await;
            assert_eq!(message(&call[0]), b"call");
            let sink = Buffer::adopt(vec![0; length]);
            server.post(WrId(6), WorkRequest::Read { sink, sources: vec![source] }).unwrap();
            let read = complete(&mut server, 1).await.remove(0);
            let Work::Read { sink } = read.work else { panic!("no Read") };
            assert!(sink[..] == pattern(length));
            let gather = vec![sink.freeze()];
            server.post(WrId(7), WorkRequest::Write { gather, targets: vec![target] }).unwrap();
            let reply = SendRequest {
                gather: vec![Bytes::from_static(b"reply")],
                invalidate: Some(target.key),
                ..SendRequest::default()
            };
            server.post(WrId(8), WorkRequest::Send(reply)).unwrap();
            complete(&mut server, 2).await;
            drain(&mut server).await
        };
        let call = async {
            let mut done = complete(&mut client, 4).await;
            let reply = done.pop().unwrap();
            assert_eq!(message(&reply), b"reply");
            let Work::Receive { invalidated: Some((key, WindowMemory::Write(memory))), .. } = reply.work
            else {
                panic!("no invalidation")
            };
            assert_eq!(key, target.key);
            assert!(memory[..] == pattern(length));
            client.post(WrId(9), WorkRequest::LocalInvalidate { key: source.key }).unwrap();
            let memory = complete(&mut client, 1).await.remove(0).work;
            assert!(matches!(memory, Work::LocalInvalidate { memory: Some(WindowMemory::Read(_)) }));
            client.disconnect();
            let counters = client.counters();
            (drain(&mut client).await, counters)
        };
        let ((_, server_end), ((_, client_end), counters)) = tokio::join!(serve, call);
        assert_eq!(server_end, Disconnected::Peer);
        assert_eq!(client_end, Disconnected::Local);
        assert_eq!(counters.tagged_bytes_received, length as u64);
        if !strict {
            // Only the five bytes of the reply.
            assert_eq!((counters.payload_bytes_copied, counters.message_bytes_copied), (0, 5));
            let counters = server.counters();
            assert_eq!((counters.payload_bytes_copied, counters.message_bytes_copied), (0, 4));
        }
    }
}

#[tokio::test]
async fn a_batch_of_sends_is_one_system_call() {
    let (mut client, mut server) = connected().await;
    for id in 0..32 {
        receive(&mut server, id, 200);
        client.post(WrId(id), send(vec![7; 128])).unwrap();
    }
    let (sent, received) = tokio::join!(complete(&mut client, 32), complete(&mut server, 32));
    assert_eq!((sent.len(), received.len()), (32, 32));
    assert_eq!(client.counters().send_calls, 1);
    assert_eq!(client.counters().segments_sent, 32);
}

// requirement: rfc5044-7.1.2-4, rfc5044-7.1.2-5, rfc5044-7.1.2-10, rfc5044-7.1.2-14
#[tokio::test]
async fn rejection_carries_private_data() {
    let (mut listener, address) = listener(Config::default()).await;
    let reject = async { request(&mut listener).await.reject(Bytes::from_static(b"go away")).await };
    let connector = IwarpConnector::default();
    let (refused, rejected) = tokio::join!(connector.connect(address, parameters(b"")), reject);
    rejected.unwrap();
    match refused.err() {
        Some(ConnectError::Rejected(reason)) => assert_eq!(&reason.private_data[..], b"go away"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn too_much_private_data_is_refused_before_anything_is_sent() {
    let (_listener, address) = listener(Config::default()).await;
    let mut parameters = parameters(b"");
    parameters.private_data = Bytes::from(vec![0; 509]).into();
    let error = IwarpConnector::default().connect(address, parameters).await.err();
    assert!(matches!(error, Some(ConnectError::Invalid(_))));
}

#[tokio::test]
async fn ipv6_works_too() {
    let Ok(mut listener) = IwarpListener::bind("[::1]:0".parse().unwrap(), Config::default()).await else {
        return; // no IPv6 here
    };
    let address = listener.local_address().unwrap();
    let connector = IwarpConnector::default();
    let accept = async { request(&mut listener).await.accept(parameters(b"")).await.unwrap() };
    let (client, server) = tokio::join!(connector.connect(address, parameters(b"")), accept);
    assert!(client.unwrap().peer_address().unwrap().is_ipv6() && server.peer_address().unwrap().is_ipv6());
}

/// Reads until TCP is closed, and returns whether no byte came.
async fn closed_without_a_byte(stream: &mut TcpStream) -> bool {
    // A reset is an end too: bytes that nobody reads may cause it.
    matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_))
}

/// RFC 5044 §7.1.2 (3): the Initiator closes TCP, and sends nothing else.
// requirement: rfc5044-7.1.1-1, rfc5044-7.1.1-6, rfc5044-7.1.1-7, rfc5044-7.1.2-8, rfc5044-7.1.2-9, rfc5044-7.1.2-13
// requirement: rfc5044-7.1.2-15, rfc5044-8-3
#[tokio::test]
async fn rfc5044_7_1_2_a_bad_reply_closes_tcp() {
    for bad in [*b"MPA ID Rep Frame\x50\x03\0\0", *b"MPA ID Req Frame\x50\x02\0\0"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 24];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(&bad).await.unwrap();
            assert!(closed_without_a_byte(&mut stream).await);
        };
        let connector = IwarpConnector::default();
        let (client, ()) = tokio::join!(connector.connect(address, parameters(b"")), serve);
        assert!(matches!(client.err(), Some(ConnectError::Protocol(_))));
    }
}

/// Connects by hand to a listener, and returns the connection of either side with the bytes of the Reply.
async fn by_hand(request: &[u8]) -> (TcpStream, Pair, Vec<u8>) {
    let (mut listener, address) = listener(Config::default()).await;
    let accept = async { self::request(&mut listener).await.accept(parameters(b"server")).await.unwrap() };
    let connect = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    };
    let (mut stream, server) = tokio::join!(connect, accept);
    let mut reply = vec![0; 20];
    stream.read_exact(&mut reply).await.unwrap();
    let mut data = vec![0; usize::from(u16::from_be_bytes([reply[18], reply[19]]))];
    stream.read_exact(&mut data).await.unwrap();
    reply.extend(data);
    (stream, server, reply)
}

/// A reset is no end that the peer asked for.
#[tokio::test]
async fn a_reset_is_a_failure_of_the_link() {
    let (stream, mut server, _) = by_hand(b"MPA ID Req Frame\x40\x01\0\0").await;
    receive(&mut server, 1, 10);
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let (completions, end) = drain(&mut server).await;
    assert_eq!(completions.len(), 1);
    assert!(matches!(end, Disconnected::Link(_)), "{end:?}");
}

/// RFC 6581 §10: the octets of an unenhanced and of an enhanced Reply.
// requirement: rfc5044-4.4-6, rfc5044-7.1.1-1, rfc5044-7.1.1-5, rfc5044-7.1.1-6, rfc5044-7.1.1-7, rfc5044-7.1.2-2
// requirement: rfc5044-7.1.2-6, rfc6581-6-1, rfc6581-6-2, rfc6581-6-3, rfc6581-6-4, rfc6581-9.1-2, rfc6581-10-1
// requirement: rfc6581-10-3, rfc6581-10-4, rfc6581-10-5
#[tokio::test]
async fn rfc6581_10_a_reply_is_of_the_kind_of_its_request() {
    for (request, due) in [
        (&b"MPA ID Req Frame\0\x01\0\0"[..], &b"MPA ID Rep Frame\x40\x01\0\x06server"[..]),
        (b"MPA ID Req Frame\0\x02\0\0", b"MPA ID Rep Frame\x40\x02\0\x06server"),
        (b"MPA ID Req Frame\x10\x02\0\x04\0\x04\0\x20", b"MPA ID Rep Frame\x50\x02\0\x0a\0\x08\0\x04server"),
    ] {
        let (_stream, _server, reply) = by_hand(request).await;
        assert_eq!(reply, due);
    }
}

/// RFC 5040 §6.2.1: behind the Terminate TCP ends gracefully, though the peer still sends.
// requirement: rfc5040-6.2.1-3, rfc5040-7-2, rfc5040-7.1-1, rfc5041-3-11, rfc5041-6.2.2-4
#[tokio::test]
async fn rfc5040_6_2_1_a_terminate_arrives_and_the_end_behind_it() {
    let (mut stream, mut server, _) = by_hand(b"MPA ID Req Frame\x40\x01\0\0").await;
    // A Send that finds no Receive, and more bytes.
    let hello = [
        0x00, 0x17, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x68, 0x65, 0x6C, 0x6C, 0x6F,
        0, 0, 0, 0xB9, 0x90, 0xB1, 0x0C,
    ];
    stream.write_all(&hello).await.unwrap();
    stream.write_all(&[0xA5; 5000]).await.unwrap();
    let read = async {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        drop(stream);
        answer
    };
    let (answer, (_, end)) = tokio::join!(read, drain(&mut server));
    assert!(matches!(end, Disconnected::ProtocolError(_)));
    assert_eq!(answer[2..4], [0x41, 0x47]);
    assert_eq!(answer[20..26], [0x12, 0x02, 0xC0, 0, 0, 0x17]);
    assert_eq!(answer[26..44], hello[2..20]);
}

/// RFC 5044 §7.1.2 (4): no byte leaves a Responder before an FPDU has come, not even a marker.
// requirement: rfc5044-4.3-7, rfc5044-7.1.1-3, rfc5044-7.1.2-12
#[tokio::test]
async fn rfc5044_7_1_2_a_responder_waits_on_the_wire() {
    let (mut stream, mut server, _) = by_hand(b"MPA ID Req Frame\xC0\x01\0\0").await;
    server.post(WrId(1), send(&b"early"[..])).unwrap();
    receive(&mut server, 2, 10);
    let silent = async { tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await.is_err() };
    let silent = tokio::select! {
        silent = silent => silent,
        _ = drain(&mut server) => false,
    };
    assert!(silent);
    // An RDMA Write without bytes.
    let fpdu =
        rpcrdma_iwarp::wire::fpdu::seal(&[0xC1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], true).unwrap();
    stream.write_all(&fpdu).await.unwrap();
    complete(&mut server, 1).await;
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 0, 23, 0x41, 0x43], "a marker, and the FPDU");
}

fn impatient() -> Config {
    let mut config = Config::default();
    let timeouts = Timeouts { startup: Duration::from_millis(30), ..Timeouts::default() };
    config.timeouts = timeouts;
    config
}

// requirement: rfc5044-7.1.2-2, rfc5044-7.1.2-8, rfc5044-7.1.2-16, rfc5044-7.1.2-18
#[tokio::test]
async fn i6_a_silent_peer_is_left_on_either_side() {
    let (mut listener, address) = listener(impatient()).await;
    let _silent = TcpStream::connect(address).await.unwrap();
    let error = listener.accept().await.unwrap().request().await.err();
    assert!(matches!(error, Some(ConnectError::Timeout(_))));
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let error = IwarpConnector::new(impatient()).connect(address, parameters(b"")).await.err();
    assert!(matches!(error, Some(ConnectError::Timeout(_))));
}

// requirement: rfc5044-7.1.1-1, rfc5044-7.1.2-2, rfc5044-7.1.2-3, rfc5044-7.1.2-13, rfc5044-8-3
#[tokio::test]
async fn i6_a_bad_request_hurts_only_its_own_connection() {
    let (mut listener, address) = listener(Config::default()).await;
    let mut stranger = TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = listener.accept().await.unwrap().request().await.err();
    assert!(matches!(error, Some(ConnectError::Protocol(_))));
    assert!(closed_without_a_byte(&mut stranger).await);
    // Closed before any byte was sent: a port probe.
    drop(TcpStream::connect(address).await.unwrap());
    let error = listener.accept().await.unwrap().request().await.err();
    assert!(matches!(error, Some(ConnectError::Protocol(_) | ConnectError::Io(_))));
    let connector = IwarpConnector::default();
    let accept = async { request(&mut listener).await.accept(parameters(b"")).await.unwrap() };
    let (client, _server) = tokio::join!(connector.connect(address, parameters(b"")), accept);
    assert!(client.is_ok());
}

/// Runs a hand-written server: answers a Request, sends `fpdus` directly behind the Reply, and returns the bytes that the
/// client sent.
async fn scripted(
    config: Config,
    ird_and_ord: [u8; 4],
    fpdus: Vec<u8>,
) -> (Result<Pair, ConnectError>, TcpStream, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 2000];
        let count = stream.read(&mut request).await.unwrap();
        request.truncate(count);
        assert!(Frame::decode(&request, FrameKind::Request).unwrap().is_some(), "one write for the Request");
        let mut reply = FrameKind::Reply.key().to_vec();
        reply.extend_from_slice(&[0x50, 2, 0, 4]);
        reply.extend_from_slice(&ird_and_ord);
        reply.extend_from_slice(&fpdus);
        stream.write_all(&reply).await.unwrap();
        (stream, request)
    };
    let connector = IwarpConnector::new(config);
    let (client, (stream, request)) = tokio::join!(connector.connect(address, parameters(b"")), serve);
    (client, stream, request)
}

// requirement: rfc5044-1.2-2, rfc5044-4.4-3, rfc5044-7.1-1, rfc5044-7.1.2-11
#[tokio::test]
async fn an_fpdu_right_behind_the_reply_is_kept() {
    let hello = [
        0x00, 0x17, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x68, 0x65, 0x6C, 0x6C, 0x6F,
        0, 0, 0, 0xB9, 0x90, 0xB1, 0x0C,
    ];
    let (client, _stream, request) = scripted(Config::default(), [0, 8, 0, 8], hello.to_vec()).await;
    assert_eq!(FrameView::new(&request).flags(), Some(0x50));
    let mut client = client.unwrap();
    receive(&mut client, 1, 10);
    assert_eq!(message(&complete(&mut client, 1).await[0]), b"hello");
}

// requirement: rfc5044-7.1.1-5, rfc6581-6-1
#[tokio::test]
async fn the_large_fpdu_flag_is_sent_only_when_set() {
    let mut config = Config::default();
    config.large_fpdu = LargeFpdu::Flagged;
    let (_client, _stream, request) = scripted(config, [0, 8, 0, 8], vec![]).await;
    assert_eq!(FrameView::new(&request).flags(), Some(0x50 | FLAG_LARGE_FPDU));
}

// requirement: rfc6581-9.1-4, rfc6581-9.1-6, rfc6581-9.1-7
#[tokio::test]
async fn rfc6581_9_1_insufficient_ird_is_answered_with_a_terminate() {
    let (client, mut stream, _) = scripted(Config::default(), [0, 8, 0, 200], vec![]).await;
    assert!(matches!(client.err(), Some(ConnectError::Protocol(_))));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[2..4], [0x41, 0x47]);
    assert_eq!(answer[20..24], [0x20, 0x06, 0, 0]);
}

/// The Terminate of RFC 6581 §8, and nothing else, for a Reply of the client-server model.
// requirement: rfc6581-9.2-9, rfc6581-9.2-10
#[tokio::test]
async fn rfc6581_9_2_no_common_message_is_answered_on_the_wire() {
    let mut config = Config::default();
    config.peer_to_peer = true;
    let (client, mut stream, _) = scripted(config, [0, 8, 0, 8], vec![]).await;
    assert!(matches!(client.err(), Some(ConnectError::Protocol(_))));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), 2 + 18 + 4 + 4);
    assert_eq!(answer[..4], [0, 22, 0x41, 0x47]);
    assert_eq!(answer[20..24], [0x20, 0x07, 0, 0]);
}

/// Linux `siw` may close its listener over a connection that ends before its Reply.
#[tokio::test]
async fn a_set_up_that_is_given_up_is_brought_to_its_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let connector = IwarpConnector::default();
    let (stream, given_up) = tokio::join!(
        listener.accept(),
        tokio::time::timeout(Duration::from_millis(20), connector.connect(to, parameters(b"")))
    );
    assert!(given_up.is_err());
    let mut stream = stream.unwrap().0;
    let mut request = vec![0; 24];
    stream.read_exact(&mut request).await.unwrap();
    // No byte arrives, not even the end, until the Reply has left.
    let silent = tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await;
    assert!(silent.is_err());
    let mut reply = Vec::from(*b"MPA ID Rep Frame");
    reply.extend([0x50, 2, 0, 4, 0, 8, 0, 8]);
    let answered = std::time::Instant::now();
    stream.write_all(&reply).await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    // `siw` is not ready for the end at once.
    assert!(answered.elapsed() >= Duration::from_millis(100), "{:?}", answered.elapsed());
}

/// A program that waits for its tasks would otherwise wait for a silent peer.
#[tokio::test]
async fn a_set_up_that_is_given_up_does_not_wait_for_a_silent_peer() {
    const LEAST: Duration = Duration::from_millis(50);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let mut config = Config::default();
    config.timeouts.startup = Duration::from_secs(3600);
    config.timeouts.abandoned = LEAST;
    let connector = IwarpConnector::new(config);
    for patience in [Duration::ZERO, LEAST * 2] {
        let began = std::time::Instant::now();
        let (stream, given_up) = tokio::join!(
            listener.accept(),
            tokio::time::timeout(patience, connector.connect(to, parameters(b"")))
        );
        assert!(given_up.is_err());
        let mut seen = Vec::new();
        stream.unwrap().0.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen.len(), 24, "the Request alone");
        assert!(began.elapsed() >= LEAST.max(patience), "{:?}", began.elapsed());
    }
}

/// A queue pair may outlive the runtime that watches its socket.
#[test]
fn a_socket_without_a_runtime_is_a_failure_of_the_link() {
    for posts in [false, true] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (mut client, _server) = runtime.block_on(connected());
        drop(runtime);
        if posts {
            client.post(WrId(1), send(&b"call"[..])).unwrap();
        }
        let another = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (completions, end) = another.block_on(drain(&mut client));
        assert_eq!(completions.len(), usize::from(posts));
        assert!(completions.iter().all(|completion| completion.status == Status::Flushed), "nothing leaves");
        assert!(matches!(end, Disconnected::Link(_)), "{end:?}");
    }
}

#[tokio::test]
async fn a_silent_responder_is_nudged_on_the_wire() {
    let (client, mut stream, _) = scripted(Config::default(), [0, 8, 0, 8], vec![]).await;
    let mut client = client.unwrap();
    client.post(WrId(1), send(&b"call"[..])).unwrap();
    receive(&mut client, 2, 10);
    let nudged = async {
        let mut bytes = vec![0; 28 + 20];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes[3], 0x43);
        assert_eq!(bytes[28..32], [0, 14, 0xC1, 0x40]);
    };
    complete(&mut client, 1).await;
    tokio::select! {
        () = nudged => {}
        _ = complete(&mut client, 1) => panic!("nobody answers"),
    }
}

#[tokio::test]
async fn a_wrong_key_ends_the_connection_and_everything_comes_back() {
    let (mut client, mut server) = connected().await;
    let window = server.reserve_window(WindowMemory::Write(Buffer::adopt(vec![5; 100]))).unwrap();
    receive(&mut server, 1, 100);
    receive(&mut client, 2, 100);
    let mut target = window;
    target.key.0 ^= 1;
    client
        .post(WrId(3), WorkRequest::Write { gather: vec![Bytes::from_static(b"x")], targets: vec![target] })
        .unwrap();
    let ((client_done, client_end), (server_done, server_end)) =
        tokio::join!(drain(&mut client), drain(&mut server));
    assert!(
        matches!(client_end, Disconnected::Terminated(cause) if (cause.layer, cause.error_type, cause.code) == (1, 1, 0))
    );
    assert!(matches!(server_end, Disconnected::ProtocolError(_)));
    assert!(client_done.iter().any(|done| done.id == WrId(2) && done.status == Status::Flushed));
    assert!(server_done.iter().any(|done| done.id == WrId(1) && done.status == Status::Flushed));
    let untouched = server_done.iter().any(|done| {
        matches!(&done.work, Work::WindowFlushed { memory: WindowMemory::Write(memory), .. } if memory[..] == [5; 100])
    });
    assert!(untouched);
    // The end is final.
    assert!(poll_fn(|cx| client.poll(cx, &mut Vec::new())).await.is_err());
    assert!(client.post(WrId(9), send(&b""[..])).is_err());
}

#[tokio::test]
async fn an_abort_and_a_drop_are_seen_by_the_peer() {
    let (mut client, mut server) = connected().await;
    receive(&mut server, 1, 100);
    client.abort();
    assert_eq!(drain(&mut client).await.1, Disconnected::Local);
    let (done, _) = drain(&mut server).await;
    assert_eq!(done[0].status, Status::Flushed);
    let (client, mut server) = connected().await;
    drop(client);
    assert!(matches!(drain(&mut server).await.1, Disconnected::Peer | Disconnected::Link(_)));
}
