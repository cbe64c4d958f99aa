//! Client and server over TCP on loopback: record marking, limits, loss of connections, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::bounce::{Bounce, bounce};
use crate::support::{TestProgram, call, count, echo, get, pattern, program, put, sleep_call, with};
use bytes::Bytes;
use rpcrdma::{
    CallError, Client, ClientConfig, ConfigError, ConnectError, Execution, Server, ServerConfig,
    ServerMonitor, Transport, TransportKind,
};
use rpcrdma_oncrpc::Refused;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn serve(program: Arc<TestProgram>, config: ServerConfig) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().config(config).program(program).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    Running { address, monitor, stop, task }
}

fn quick() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.protocol.timeouts.call = Duration::from_secs(20);
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    config
}

async fn client(address: SocketAddr) -> Client {
    Client::builder().config(quick()).transport(Transport::tcp()).connect(address).await.unwrap()
}

#[tokio::test]
async fn calls_of_all_sizes_and_shapes() {
    let server = serve(program(), ServerConfig::default()).await;
    let client = client(server.address).await;
    for length in [0, 1, 3, 4, 5, 1000, 16_379, 16_380, 16_384, 100_001, 1 << 20] {
        let reply = echo(&client, &pattern(length)).await.unwrap();
        assert_eq!(reply.travelled.transport, TransportKind::Tcp);
        put(&client, Bytes::from(pattern(length))).await.unwrap();
        get(&client, length).await.unwrap();
    }
    client.null(crate::support::PROGRAM, 1).await.unwrap();
    assert!(matches!(client.null(1, 1).await, Err(CallError::Refused(Refused::ProgramUnavailable))));
    assert!(matches!(
        client.null(crate::support::PROGRAM, 9).await,
        Err(CallError::Refused(Refused::ProgramMismatch { low: 1, high: 1 }))
    ));
    let error = client.call_raw(call(99)).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProcedureUnavailable)));
    assert_eq!(error.execution(), Execution::NotExecuted);
    // Neither the server nor the client keeps a buffer.
    assert_eq!(server.monitor.stats().memory_in_use, 0);
    assert_eq!(client.stats().memory_in_use, 0);
    client.close().await;
    assert!(matches!(count(&client).await, Err(CallError::Closed { sent: false })));
}

// requirement: rfc5531-9-3
#[tokio::test]
async fn many_calls_in_flight_are_matched_by_xid() {
    let server = serve(program(), with(ServerConfig::default(), |config| config.max_calls = 8)).await;
    let client = client(server.address).await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..300 {
        let client = client.clone();
        tasks.spawn(async move {
            let wait = sleep_call(i % 3);
            client.call_raw(wait).await.unwrap();
            echo(&client, &pattern(usize::try_from(i).unwrap() * 100)).await.unwrap();
        });
    }
    tasks.join_all().await;
}

/// RFC 1813 §2.6: a call that is made again, for instance after NFS3ERR_JUKEBOX, has a new XID.
// requirement: rfc1813-2.6-8
#[tokio::test]
async fn calls_are_spread_over_several_connections() {
    let server = serve(program(), with(ServerConfig::default(), |config| config.max_calls = 1)).await;
    let client = Client::builder()
        .config(with(quick(), |config| config.connections = 4))
        .transport(Transport::tcp())
        .connect(server.address)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..40_usize {
        let client = client.clone();
        tasks.spawn(async move { echo(&client, &pattern(i * 1000)).await.map(drop) });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!((client.stats().calls, client.stats().connections), (40, 4));
    assert_eq!(server.monitor.stats().connections, 4);
    client.close().await;
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
}

#[tokio::test]
async fn each_call_has_an_xid_of_its_own() {
    let server = serve(program(), ServerConfig::default()).await;
    let client = client(server.address).await;
    let mut xids = std::collections::BTreeSet::new();
    for _ in 0..20 {
        assert!(xids.insert(client.call_raw(sleep_call(0)).await.unwrap().xid));
    }
}

/// Starts a proxy between a client and the server. It cuts the first connections after so many bytes to the server, or
/// to the client.
async fn proxy(server: SocketAddr, cuts: Vec<(usize, usize)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut cuts = cuts.into_iter();
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(server).await.unwrap();
            let (up, down) = cuts.next().unwrap_or((usize::MAX, usize::MAX));
            tokio::spawn(async move {
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                tokio::select! {
                    () = pass(near_read, far_write, up) => {}
                    () = pass(far_read, near_write, down) => {}
                }
            });
        }
    });
    address
}

async fn pass(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, mut budget: usize) {
    let mut block = [0; 64];
    while budget > 0 {
        let room = budget.min(block.len());
        let count = from.read(&mut block[..room]).await.unwrap_or(0);
        if count == 0 || to.write_all(&block[..count]).await.is_err() {
            return;
        }
        budget -= count;
    }
}

// requirement: rfc5531-5-4
#[tokio::test]
async fn i8_a_call_survives_loss_at_every_step_and_runs_once() {
    // A COUNT call is 4 + 40 bytes, its reply 4 + 28.
    let steps = (0..=44)
        .step_by(4)
        .map(|up| (up, usize::MAX))
        .chain((0..=28).step_by(4).map(|down| (usize::MAX, down)));
    for cut in steps {
        let program = program();
        let server = serve(Arc::clone(&program), ServerConfig::default()).await;
        let client = client(proxy(server.address, vec![cut, cut]).await).await;
        assert_eq!(count(&client).await.unwrap(), 1, "cut at {cut:?}");
        assert_eq!(program.count.load(Ordering::SeqCst), 1, "cut at {cut:?}");
        assert_eq!(count(&client).await.unwrap(), 2, "cut at {cut:?}");
    }
}

#[tokio::test]
async fn i8_a_call_in_progress_when_the_connection_is_lost_runs_once() {
    let program = program();
    program.held.send_replace(true);
    let server = serve(Arc::clone(&program), ServerConfig::default()).await;
    // The call arrives whole. The connection breaks while the call runs, because the client sends one more byte.
    let client = client(proxy(server.address, vec![(45, usize::MAX)]).await).await;
    let (first, second) = tokio::join!(count(&client), async {
        while program.calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        echo(&client, b"breaks the connection").await.unwrap();
        // The echo came back on the second connection: the first is lost, and the answer with it.
        program.held.send_replace(false);
    });
    assert_eq!((first.unwrap(), second), (1, ()));
    assert_eq!(program.count.load(Ordering::SeqCst), 1);
    assert!(client.stats().retransmissions >= 1);
}

// requirement: rfc5531-5-3
#[tokio::test]
async fn i8_a_call_that_must_not_be_repeated_says_so() {
    let program = program();
    let server = serve(Arc::clone(&program), ServerConfig::default()).await;
    let client = client(proxy(server.address, vec![(usize::MAX, 0)]).await).await;
    let error = client.call_raw(call(crate::support::COUNT).results(4).once()).await.unwrap_err();
    assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
    assert_eq!(error.execution(), Execution::Unknown);
    // The connection broke before or after the call reached the server.
    let executed = program.count.load(Ordering::SeqCst);
    assert!(executed <= 1);
    assert_eq!(count(&client).await.unwrap(), executed + 1);
}

// requirement: rfc5531-5-4
#[tokio::test]
async fn i10_a_dropped_or_late_call_harms_no_other() {
    let program = program();
    let server = serve(Arc::clone(&program), ServerConfig::default()).await;
    let client = client(server.address).await;
    for wait in [0, 1, 5] {
        let dropped = client.call_raw(sleep_call(10));
        let _ = timeout(Duration::from_millis(wait), dropped).await;
        echo(&client, b"unharmed").await.unwrap();
    }
    let late = client.call_raw(sleep_call(60).timeout(Duration::from_millis(5))).await.unwrap_err();
    assert!(matches!(late, CallError::TimedOut { .. }));
    assert_eq!(late.execution(), Execution::Unknown);
    assert_eq!(client.call_raw(sleep_call(70)).await.unwrap().results.u32().unwrap(), 70);
    assert_eq!(client.stats().connections, 1);
    assert_eq!(client.stats().timed_out, 1);
}

#[tokio::test]
async fn a_stopping_server_answers_calls_in_progress() {
    let server = serve(program(), ServerConfig::default()).await;
    let client = client(server.address).await;
    let in_progress = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(50)).await }
    });
    while server.monitor.stats().calls == 0 {
        tokio::task::yield_now().await;
    }
    server.stop.send(()).unwrap();
    assert_eq!(in_progress.await.unwrap().unwrap().results.u32().unwrap(), 50);
    timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    assert_eq!(server.monitor.stats().connections, 0);
    let refused = client.call_raw(call(0).timeout(Duration::from_millis(50))).await.unwrap_err();
    assert!(matches!(refused, CallError::TimedOut { link: Some(_), .. }), "{refused}");
}

/// RFC 5531 has no word for a server that stops, so the stream has to end in order: a reset looks like a refusal.
#[tokio::test]
async fn a_first_call_that_meets_a_stopping_server_is_not_reset() {
    let server = serve(program(), ServerConfig::default()).await;
    let mut new = TcpStream::connect(server.address).await.unwrap();
    while server.monitor.stats().connections == 0 {
        tokio::task::yield_now().await;
    }
    server.stop.send(()).unwrap();
    assert_eq!(timeout(Duration::from_secs(5), new.read(&mut [0])).await.unwrap().unwrap(), 0);
    for _ in 0..3 {
        new.write_all(&[0x80, 0, 0, 40, 0, 0, 0, 1]).await.unwrap();
        tokio::task::yield_now().await;
    }
    drop(new);
    timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    assert_eq!(server.monitor.stats().calls, 0);
}

#[tokio::test]
async fn a_stopping_server_waits_for_a_limited_time() {
    let mut config = ServerConfig::default();
    config.grace = Duration::from_millis(20);
    let server = serve(program(), config).await;
    let client = client(server.address).await;
    let in_progress = tokio::spawn(async move { client.call_raw(sleep_call(60_000).once()).await });
    while server.monitor.stats().calls == 0 {
        tokio::task::yield_now().await;
    }
    server.stop.send(()).unwrap();
    timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap();
    assert!(matches!(in_progress.await.unwrap(), Err(CallError::ConnectionLost { .. })));
}

/// Checks that a server closes a connection on bytes that are no acceptable record.
async fn closes_on(config: ServerConfig, bytes: &[u8]) {
    let server = serve(program(), config).await;
    let mut bad = TcpStream::connect(server.address).await.unwrap();
    bad.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), bad.read_to_end(&mut rest)).await.unwrap().unwrap_or_default();
    assert!(rest.is_empty());
    let good = client(server.address).await;
    echo(&good, b"unharmed").await.unwrap();
    assert_eq!(server.monitor.stats().memory_in_use, 0);
}

#[tokio::test]
async fn i6_a_bad_stream_ends_only_its_connection() {
    let mut config = ServerConfig::default();
    config.max_record = 1000;
    config.stall = Duration::from_millis(50);
    // RFC 5531 §11: one byte more than allowed, in one fragment or in two, and no memory is taken for it.
    closes_on(config.clone(), &(0x8000_0000_u32 | 1001).to_be_bytes()).await;
    closes_on(config.clone(), &[&500_u32.to_be_bytes()[..], &[0; 500], &501_u32.to_be_bytes()].concat())
        .await;
    // Fragments without end.
    closes_on(config.clone(), &[0; 4 * 300]).await;
    // A record that does not come.
    closes_on(config.clone(), &[0x80, 0, 0, 8, 1]).await;
    closes_on(config, &[0x80, 0]).await;
    // A long record that does not come.
    let mut config = ServerConfig::default();
    config.stall = Duration::from_millis(50);
    closes_on(config, &[&0x8008_0000_u32.to_be_bytes()[..], &[0; 100]].concat()).await;
}

#[tokio::test]
async fn i6_an_idle_connection_is_closed() {
    let mut config = ServerConfig::default();
    config.tcp_idle = Duration::from_millis(20);
    let server = serve(program(), config).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(timeout(Duration::from_secs(5), idle.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn i6_connections_are_limited() {
    let mut config = ServerConfig::default();
    config.max_connections_per_peer = 1;
    let server = serve(program(), config).await;
    let first = client(server.address).await;
    echo(&first, b"").await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(server.monitor.stats().refused, 1);
    echo(&first, b"").await.unwrap();
}

#[tokio::test]
async fn i6_a_client_that_takes_no_replies_is_given_up() {
    let mut config = ServerConfig::default();
    config.stall = Duration::from_millis(100);
    config.max_queued = 1 << 20;
    let server = serve(program(), config).await;
    let mut greedy = TcpStream::connect(server.address).await.unwrap();
    // GETs of 1 MiB each, and the client reads nothing.
    let mut request = 0x8000_002c_u32.to_be_bytes().to_vec();
    for word in [7, 0, 2, crate::support::PROGRAM, 1, crate::support::GET, 0, 0, 0, 0, 1 << 20] {
        request.extend_from_slice(&u32::to_be_bytes(word));
    }
    let sent = Arc::new(AtomicUsize::new(0));
    let flood = async {
        while greedy.write_all(&request).await.is_ok() {
            sent.fetch_add(1, Ordering::SeqCst);
        }
    };
    timeout(Duration::from_secs(10), flood).await.unwrap();
    // Back-pressure: calls beyond those with queued replies were not even read.
    assert!(server.monitor.stats().calls < 64, "{:?}", server.monitor.stats());
    let good = client(server.address).await;
    echo(&good, b"unharmed").await.unwrap();
}

// requirement: rfc5531-11-2
#[tokio::test]
async fn several_fragments_make_one_record() {
    let server = serve(program(), ServerConfig::default()).await;
    let mut raw = TcpStream::connect(server.address).await.unwrap();
    let message: Vec<u8> =
        [9, 0, 2, crate::support::PROGRAM, 1, 0, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect();
    for (i, part) in message.chunks(7).enumerate() {
        let last = if (i + 1) * 7 >= message.len() { 0x8000_0000 } else { 0 };
        let header = last | u32::try_from(part.len()).unwrap();
        raw.write_all(&header.to_be_bytes()).await.unwrap();
        raw.write_all(part).await.unwrap();
    }
    let mut reply = [0; 28];
    raw.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply[..12], &[0x80, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0, 1]);
}

/// Returns a record with a call of this procedure.
fn record(procedure: u32, arguments: &[u32]) -> Vec<u8> {
    let words = [&[7, 0, 2, crate::support::PROGRAM, 1, procedure, 0, 0, 0, 0], arguments].concat();
    let header = 0x8000_0000 | u32::try_from(words.len() * 4).unwrap();
    [header].into_iter().chain(words).flat_map(u32::to_be_bytes).collect()
}

#[tokio::test]
async fn i6_a_flood_of_calls_leaves_others_their_turn() {
    /// Calls of the whole flood: it lasts much longer than another client's call.
    const FLOOD: usize = 5_000_000;
    const BATCH: usize = 1000;
    let server = serve(program(), ServerConfig::default()).await;
    let over = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let (address, over) = (server.address, Arc::clone(&over));
        move || {
            use std::io::{copy, sink};
            use std::net::Shutdown;

            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let mut replies = stream.try_clone().unwrap();
            let reader = std::thread::spawn(move || copy(&mut replies, &mut sink()));
            let calls = record(0, &[]).repeat(BATCH);
            let mut left = FLOOD / BATCH;
            while left > 0 && !over.load(Ordering::SeqCst) {
                std::io::Write::write_all(&mut stream, &calls).unwrap();
                left -= 1;
            }
            stream.shutdown(Shutdown::Both).unwrap();
            drop(reader.join());
            left
        }
    });
    // All tasks share this one thread. The flooded connection must let the others run, also when TCP's buffers have
    // grown.
    while server.monitor.stats().calls < 20_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    echo(&client(server.address).await, b"unharmed").await.unwrap();
    over.store(true, Ordering::SeqCst);
    let left = tokio::task::spawn_blocking(|| flood.join()).await.unwrap().unwrap();
    assert!(left > 0, "the other client waited for the end of the flood");
}

#[tokio::test]
async fn i6_calls_left_behind_count_until_they_end() {
    let mut config = ServerConfig::default();
    config.max_connections_per_peer = 2;
    let program = program();
    program.held.send_replace(true);
    let server = serve(Arc::clone(&program), config).await;
    for calls in 1..=2 {
        let mut bad = TcpStream::connect(server.address).await.unwrap();
        bad.write_all(&record(crate::support::SLEEP, &[0])).await.unwrap();
        while server.monitor.stats().calls < calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The client is gone at once. The server's connection ends, but its handler does not.
        socket2::SockRef::from(&bad).set_linger(Some(Duration::ZERO)).unwrap();
        drop(bad);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(third.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(server.monitor.stats().refused, 1);
    program.held.send_replace(false);
    while server.monitor.stats().connections > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    echo(&client(server.address).await, b"unharmed").await.unwrap();
}

#[tokio::test]
async fn no_time_that_a_caller_sets_is_too_long() {
    let mut config = ServerConfig::default();
    config.stall = Duration::MAX;
    config.tcp_idle = Duration::MAX;
    let server = serve(program(), config).await;
    let client = client(server.address).await;
    client.call_raw(call(0).timeout(Duration::MAX)).await.unwrap();
}

/// RFC 8167 is about RPC-over-RDMA: over TCP there is no reverse direction, and both sides return that.
#[tokio::test]
async fn clients_are_not_called_over_tcp() {
    let builder = || Client::builder().config(quick()).program(Arc::new(Bounce::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let error = builder().transport(Transport::tcp()).connect(address).await.map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::Config(ConfigError::ServesOverTcp { programs: 1 })), "{error}");
    let server = Server::builder().program(Arc::new(Bounce::default())).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let client = client(address).await;
    let error = bounce(&client, 1).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProcedureUnavailable)), "{error}");
    assert_eq!(bounce(&client, 0).await.unwrap(), 0);
    assert!(monitor.backchannels().is_empty());
    client.close().await;
}

/// Clients serve programs over RPC-over-RDMA only (RFC 8167): over TCP they are refused, before any connection is made.
#[tokio::test]
async fn clients_serve_no_programs_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refused = Client::builder()
        .config(quick())
        .program(program())
        .transport(Transport::tcp())
        .connect(address)
        .await
        .map(drop)
        .unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("1 program to serve over TCP") && said.contains("Transport::rdma"), "{said}");
    assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
}

/// Starts a server that answers one GET, with this many bytes of the reply each second.
async fn slow_server(per_second: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut call = [0; 4096];
        let read = stream.read(&mut call).await.unwrap();
        assert!(read >= 8);
        let data = pattern(LEN);
        let mut reply = call[4..8].to_vec();
        for word in [1, 0, 0, 0, 0, u32::try_from(LEN).unwrap()] {
            reply.extend(word.to_be_bytes());
        }
        reply.extend(data);
        let mark = 0x8000_0000 | u32::try_from(reply.len()).unwrap();
        stream.write_all(&mark.to_be_bytes()).await.unwrap();
        for part in reply.chunks(per_second) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if stream.write_all(part).await.is_err() {
                return;
            }
        }
        // The client closes first.
        let _ = stream.read(&mut call).await;
    });
    address
}

const LEN: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_reply_may_take_longer_than_the_time_of_its_call_while_it_moves() {
    let client = client(slow_server(16 << 10).await).await;
    let begun = tokio::time::Instant::now();
    get(&client, LEN).await.unwrap();
    assert!(begun.elapsed() > 3 * quick().protocol.timeouts.call, "{:?}", begun.elapsed());
    assert_eq!(client.stats().connections, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_all_but_stands_still_has_the_time_of_its_call() {
    let client = client(slow_server(1).await).await;
    let begun = tokio::time::Instant::now();
    let late = get(&client, LEN).await;
    assert!(matches!(late, Err(CallError::TimedOut { sent: true, .. })), "{late:?}");
    assert!((20..22).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}
