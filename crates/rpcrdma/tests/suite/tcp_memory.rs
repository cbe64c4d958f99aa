//! Memory that clients over TCP make the server hold counts against the share of their address: records, calls in
//! progress, replies.

use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::support::network::{self, host};
use crate::support::{ECHO, PROGRAM, SLEEP, TestProgram, program};
use rpcrdma::rpcbind::{RpcbindService, version_4};
use rpcrdma::{
    Binding, CallContext, Effect, Eligibility, PeerShares, Procedure as _, ProcedureInfo, Program,
    ResponseFuture, Server, ServerBuilder, ServerConfig, ServerMonitor,
};
use rpcrdma_oncrpc::rpcbind::{Netid, Registration};
use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{Decoder, Piece, Stream};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The share of one address in these tests, in bytes.
const SHARE: usize = 1 << 20;

/// The address of a client that is the only one.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    shares: PeerShares,
    program: Arc<TestProgram>,
}

impl Running {
    /// Returns the bytes that an address holds.
    fn held(&self, at: IpAddr) -> usize {
        self.shares.of(Some(at)).usage().in_use
    }
}

async fn serve(at: IpAddr) -> Running {
    serve_with(at, ServerConfig::default(), None).await
}

async fn serve_with(at: IpAddr, config: ServerConfig, another: Option<Arc<dyn Binding>>) -> Running {
    let listener = TcpListener::bind((at, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shares = PeerShares::new(ProtectionDomain::new(4 * SHARE), SHARE);
    let program = program();
    let service =
        |netid| Registration { program: PROGRAM, version: 1, netid, address, owner: "test".to_owned() };
    let rpcbind = RpcbindService::new(vec![service(Netid::Tcp), service(Netid::Rdma)]);
    let server = Server::builder().config(config).shares(shares.clone()).program(Arc::clone(&program) as _);
    let server = rpcbind.versions().into_iter().chain(another).fold(server, ServerBuilder::program);
    let server = server.listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    Running { address, monitor, shares, program }
}

/// Opens a connection from this address, with small buffers in the system.
async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    // The server's system keeps as many bytes as fit into a few segments.
    SockRef::from(&socket).set_tcp_mss(536).unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Returns a call as a record; its arguments are words.
fn record(call: [u32; 3], arguments: &[u32]) -> Vec<u8> {
    record_by(&[0, 0], call, arguments)
}

/// Returns a call with a credential as a record; its arguments are words.
fn record_by(credential: &[u32], [program, version, procedure]: [u32; 3], arguments: &[u32]) -> Vec<u8> {
    let words = [&[7, 0, 2, program, version, procedure], credential, &[0, 0], arguments].concat();
    let mut bytes = (0x8000_0000 | u32::try_from(4 * words.len()).unwrap()).to_be_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

/// Returns the longest credential that AUTH_SYS allows, for this process: a machine name of 255 bytes, and 16 groups.
fn longest_credential() -> Vec<u32> {
    let mut body = vec![0, 255];
    body.resize(2 + 64, 0x6161_6161);
    // Processes that are not root's may claim no other user on this machine.
    body.extend([rustix::process::geteuid().as_raw(), 0, 16]);
    body.extend(0..16);
    // The pad of the name.
    body[65] = 0x6161_6100;
    let length = u32::try_from(4 * body.len()).unwrap();
    [&[1, length][..], &body].concat()
}

fn echo(length: u32) -> Vec<u8> {
    let mut arguments = vec![length];
    arguments.resize(1 + usize::try_from(length / 4).unwrap(), 0x5a5a_5a5a);
    record([PROGRAM, 1, ECHO], &arguments)
}

/// Waits for a condition that other tasks bring about.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Reads a record.
async fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let length = usize::try_from(stream.read_u32().await.unwrap() & 0x7fff_ffff).unwrap();
    let mut record = vec![0; length];
    stream.read_exact(&mut record).await.unwrap();
    record
}

/// Sends calls until the server takes no more, so that their replies fill the share; none is read.
fn flood(to: &Running, from: IpAddr, connections: usize, call: &[u8]) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (address, calls) = (to.address, call.repeat(16));
        tasks.spawn(async move {
            let mut stream = connect(from, address).await;
            while stream.write_all(&calls).await.is_ok() {}
        });
    }
    tasks
}

#[tokio::test]
async fn i6_calls_in_progress_count_against_the_share_of_their_address() {
    let server = serve(HERE).await;
    let mut stream = connect(HERE, server.address).await;
    for _ in 0..20 {
        stream.write_all(&record([PROGRAM, 1, SLEEP], &[60_000])).await.unwrap();
    }
    until("20 calls", || server.program.calls.load(Ordering::SeqCst) == 20).await;
    assert!(server.held(HERE) >= 20 * 4096, "{}", server.held(HERE));
    drop(stream);
    // The handlers go on, and keep their memory.
    until("the end of the connection", || server.held(HERE) < 20 * 4096 + (16 << 10)).await;
    assert!(server.held(HERE) >= 20 * 4096, "{}", server.held(HERE));
}

#[tokio::test]
async fn i6_a_call_counts_for_its_handler_and_its_record_whatever_its_credential() {
    let server = serve(HERE).await;
    let call = record_by(&longest_credential(), [PROGRAM, 1, SLEEP], &[60_000]);
    let mut stream = connect(HERE, server.address).await;
    for _ in 0..20 {
        stream.write_all(&call).await.unwrap();
    }
    until("20 calls", || server.program.calls.load(Ordering::SeqCst) == 20).await;
    let least = 20 * (ServerConfig::HANDLER_ROOM + call.len());
    assert!(server.held(HERE) >= least, "{} of {least}", server.held(HERE));
}

#[tokio::test]
async fn i6_records_of_short_fragments_count_against_the_share_of_their_address() {
    for fragment in [300_u32, 5000, 12_000] {
        let server = serve(HERE).await;
        let mut bytes = fragment.to_be_bytes().to_vec();
        bytes.resize(4 + usize::try_from(fragment).unwrap(), 0);
        let mut stream = connect(HERE, server.address).await;
        for _ in 0..8 {
            stream.write_all(&bytes).await.unwrap();
        }
        let least = 8 * usize::try_from(fragment).unwrap();
        until("the record counts", || server.held(HERE) >= least).await;
        drop(stream);
        until("its end", || server.held(HERE) == 0).await;
    }
}

#[tokio::test]
async fn i6_replies_that_nobody_takes_stop_their_address_alone() {
    if !network::is_inside("tcp_memory::i6_replies_that_nobody_takes_stop_their_address_alone") {
        return;
    }
    let dump = [version_4::PROGRAM, 4, version_4::Dump::NUMBER];
    for call in [echo(400), echo(8000), record(dump, &[])] {
        let server = serve(host(1)).await;
        let attack = flood(&server, host(2), 8, &call);
        until("its share is used up", || server.held(host(2)) >= SHARE - (SHARE >> 3)).await;
        // Others are served meanwhile.
        let mut other = connect(host(3), server.address).await;
        for _ in 0..20 {
            other.write_all(&echo(400)).await.unwrap();
            assert_eq!(reply(&mut other).await.len(), 24 + 4 + 400);
        }
        assert!(server.held(host(2)) <= SHARE, "{}", server.held(host(2)));
        drop(attack);
        until("all of it is given back", || server.monitor.stats().memory_in_use == 0).await;
    }
}

#[tokio::test]
async fn i6_who_reads_late_gets_every_reply() {
    const CALLS: usize = 4000;
    let server = serve(HERE).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let stream = connect(HERE, server.address).await;
        let (mut read, mut write) = stream.into_split();
        tasks.spawn(async move {
            for _ in 0..CALLS {
                write.write_all(&echo(1000)).await.unwrap();
            }
            // Until the replies are read.
            std::future::pending::<()>().await;
        });
        let (held, share) = (server.shares.of(Some(HERE)), SHARE);
        tasks.spawn(async move {
            until("the share is used up", || held.usage().in_use >= share / 2).await;
            let mut reply = vec![0; CALLS * (4 + 24 + 4 + 1000)];
            read.read_exact(&mut reply).await.unwrap();
            for record in reply.chunks(4 + 24 + 4 + 1000) {
                assert_eq!(record[..12], [0x80, 0, 4, 4, 0, 0, 0, 7, 0, 0, 0, 1]);
                assert!(record[32..].iter().all(|byte| *byte == 0x5a));
            }
        });
    }
    for _ in 0..8 {
        timeout(Duration::from_secs(60), tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn i6_a_call_without_memory_waits_for_its_own_address() {
    if !network::is_inside("tcp_memory::i6_a_call_without_memory_waits_for_its_own_address") {
        return;
    }
    let server = serve(host(1)).await;
    // All memory that the address may have, but for the read-ahead block of one connection.
    let share = server.shares.of(Some(host(2)));
    let mut held: Vec<_> = std::iter::from_fn(|| share.allocate(1 << 14, 1).ok()).collect();
    drop(held.pop());
    let mut waiting = connect(host(2), server.address).await;
    waiting.write_all(&echo(400)).await.unwrap();
    let mut other = connect(host(3), server.address).await;
    for _ in 0..50 {
        other.write_all(&echo(400)).await.unwrap();
        reply(&mut other).await;
    }
    assert_eq!(server.monitor.stats().calls, 50, "the call of the first one has not begun");
    held.clear();
    assert_eq!(reply(&mut waiting).await.len(), 24 + 4 + 400);
}

/// A program whose reply has many short pieces, which are copied together: twice as much as the share of an address.
struct Pieces;

impl Pieces {
    const NUMBER: u32 = PROGRAM + 1;
    const LENGTH: usize = 2000;
    const COUNT: usize = 2 * SHARE / Self::LENGTH;
}

impl Program for Pieces {
    fn number(&self) -> u32 {
        Self::NUMBER
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, _: u32) -> Option<ProcedureInfo> {
        Some(ProcedureInfo { name: "PIECES", effect: Effect::Idempotent })
    }

    fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
        let piece = Bytes::from_static(&[0x5a; Self::LENGTH]);
        let mut results = Stream::new();
        for _ in 0..Self::COUNT {
            results.push(Piece::Inline(piece.clone()));
        }
        Box::pin(ready(Ok(results)))
    }
}

impl Binding for Pieces {
    fn eligibility(&self, _: u32, _: u32) -> Eligibility {
        Eligibility { arguments: 0, results: 0 }
    }
}

/// A reply for which the share has no memory leaves all the same, and no call begins before.
#[tokio::test]
async fn i6_a_reply_beyond_the_share_keeps_the_next_call_waiting() {
    if !network::is_inside("tcp_memory::i6_a_reply_beyond_the_share_keeps_the_next_call_waiting") {
        return;
    }
    let mut config = ServerConfig::default();
    config.max_queued = 64 * SHARE;
    let server = serve_with(host(1), config, Some(Arc::new(Pieces))).await;
    let mut stream = connect(host(2), server.address).await;
    stream.write_all(&record([Pieces::NUMBER, 1, 1], &[])).await.unwrap();
    // The reply has begun to leave.
    let length = usize::try_from(stream.read_u32().await.unwrap() & 0x7fff_ffff).unwrap();
    assert_eq!(length, 24 + Pieces::COUNT * Pieces::LENGTH);
    stream.write_all(&echo(400)).await.unwrap();
    let mut other = connect(host(3), server.address).await;
    for _ in 0..50 {
        other.write_all(&echo(400)).await.unwrap();
        reply(&mut other).await;
    }
    assert_eq!(server.monitor.stats().calls, 51, "the second call of the first one has not begun");
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    assert!(bytes[24..].iter().all(|byte| *byte == 0x5a));
    assert_eq!(reply(&mut stream).await.len(), 24 + 4 + 400);
}

/// Replies to calls that came together leave together, but they do not wait for a call without memory.
#[tokio::test]
async fn i6_calls_that_come_together_need_no_more_memory_than_one() {
    const REPLY: usize = 4 + 24 + 4 + 400;
    let server = serve(HERE).await;
    let share = server.shares.of(Some(HERE));
    // Fills the share but for some KiB, and sends calls together.
    let begin = async |left: usize, calls: usize| {
        until("the connection before is closed", || server.held(HERE) == 0).await;
        let held: Vec<_> =
            (left << 10..SHARE).step_by(1 << 10).map(|_| share.allocate(1 << 10, 1).unwrap()).collect();
        let mut stream = connect(HERE, server.address).await;
        stream.write_all(&echo(400).repeat(calls)).await.unwrap();
        (stream, held)
    };
    let mut enough = None;
    for left in 1..64 {
        let (mut stream, held) = begin(left, 1).await;
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
        let mut replies = [0; REPLY];
        let arrived = stream.try_read(&mut replies).unwrap_or(0);
        drop(held);
        stream.read_exact(&mut replies[arrived..]).await.unwrap();
        if arrived > 0 {
            enough = Some(left);
            break;
        }
    }
    let enough = enough.expect("a call needs less than 64 KiB");
    for calls in 2..=4 {
        let (mut stream, held) = begin(enough, calls).await;
        let mut replies = vec![0; calls * REPLY];
        let arrived = timeout(Duration::from_secs(20), stream.read(&mut replies)).await;
        let arrived =
            arrived.unwrap_or_else(|_| panic!("no reply to {calls} calls with {enough} KiB")).unwrap();
        drop(held);
        stream.read_exact(&mut replies[arrived..]).await.unwrap();
    }
}
