//! Silent and slow peers over software iWARP, on real sockets: their cost is bounded, and a good client beside them is
//! served (rule I6).
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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rpcrdma::{CallError, Client, ClientConfig, Server, ServerConfig, ServerMonitor, Sink, Transport};
use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener, Timeouts};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::network::{self, host};
use support::{TestProgram, echo, get, get_call, pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const MIB: usize = 1 << 20;

/// Longer than any test runs: nothing here ends by the time that really passes. Shorter than the time after which idle
/// connections end.
const LIMIT: Duration = Duration::from_secs(120);
/// Time of all timers that a test is not about.
const NEVER: Duration = Duration::from_secs(3600);

/// Timers of software iWARP that do not end anything.
fn iwarp() -> Timeouts {
    Timeouts {
        startup: NEVER,
        first_fpdu: NEVER,
        partial_fpdu: NEVER,
        read: NEVER,
        stalled_send: NEVER,
        ..Timeouts::default()
    }
}

/// Sets the timers of the protocol so that they do not end anything.
fn never(timeouts: &mut rpcrdma::Timeouts) {
    (timeouts.call, timeouts.abandoned, timeouts.send) = (NEVER, NEVER, NEVER);
    (timeouts.rdma_read, timeouts.memory, timeouts.credits, timeouts.invalidate) =
        (NEVER, NEVER, NEVER, NEVER);
}

/// Turns the clock on by this time, at once: timers that fall due fire.
async fn turn(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

/// Tests that count the descriptors of the process run alone.
static ALONE: Mutex<()> = Mutex::const_new(());

struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    good: Client,
}

/// Starts a server with these timers of its provider, and a good client beside the slow ones.
async fn serve(at: IpAddr, mut config: ServerConfig, timeouts: Timeouts) -> Running {
    never(&mut config.protocol.timeouts);
    let mut provider = Config::default();
    provider.timeouts = timeouts;
    let listener = IwarpListener::bind((at, 0).into(), provider).await.unwrap();
    let shares = config.shares();
    let program = TestProgram { shares: Some(shares.clone()), ..TestProgram::default() };
    let server = Server::builder().config(config).shares(shares).program(Arc::new(program));
    let server = server.listen_rdma(Box::new(listener)).build().unwrap();
    let address = server.rdma_addresses().unwrap()[0];
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let mut own = ClientConfig::default();
    never(&mut own.protocol.timeouts);
    let good = Client::builder().config(own).connect(address).await.unwrap();
    Running { address, monitor, good }
}

impl Running {
    /// Checks that the good client is served at once.
    async fn served(&self) {
        let all = async {
            echo(&self.good, &pattern(1000)).await.unwrap();
            get(&self.good, MIB).await.unwrap();
        };
        timeout(Duration::from_secs(5), all).await.expect("others are kept waiting");
        assert_eq!(self.good.stats().connections, 1);
    }

    /// Returns the bytes of the server's memory in use once pending work is done: all of it runs on this thread.
    async fn held(&self) -> usize {
        sleep(Duration::from_millis(50)).await;
        self.monitor.stats().memory_in_use
    }

    /// Serves the good client until no other connection is left.
    async fn served_until_alone(&self) {
        let end = async {
            while self.monitor.stats().connections > 1 {
                self.served().await;
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), end).await.expect("the others stay");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn i6_two_thousand_silent_connections_end_by_the_start_up_timer() {
    const SILENT: usize = 2000;
    let _alone = ALONE.lock().await;
    let most = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit { current: Some(most.map_or(8192, |most| most.min(8192))), maximum: most };
    setrlimit(Resource::Nofile, wanted).unwrap();
    let (max_connections, set_up) = (4096, NEVER);
    let mut config = ServerConfig::default();
    config.max_connections = max_connections;
    config.max_connections_per_peer = max_connections;
    config.max_half_open = max_connections;
    config.set_up = set_up;
    let timeouts = Timeouts { startup: LIMIT, ..iwarp() };
    let server = serve(Ipv4Addr::LOCALHOST.into(), config, timeouts).await;
    server.served().await;
    let (held, before) = (server.held().await, descriptors());

    let mut silent = Vec::new();
    for number in 0..SILENT {
        silent.push(TcpStream::connect(server.address).await.unwrap());
        if number % 500 == 0 {
            server.served().await;
        }
    }
    while server.monitor.stats().connections <= SILENT {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.held().await, held, "a silent peer pins no memory");
    turn(LIMIT - Duration::from_secs(60)).await;
    server.served().await;
    assert_eq!(server.monitor.stats().connections, 1 + SILENT, "none ends before its timer");
    turn(Duration::from_secs(60)).await;
    server.served_until_alone().await;
    let stats = server.monitor.stats();
    assert_eq!((stats.accepted, stats.refused), (1 + u64::try_from(SILENT).unwrap(), 0));
    // Each was closed without a message.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    }
    assert_eq!(descriptors(), before);
    assert_eq!(server.held().await, held);
}

/// The pace of a client that reads: so many bytes, then a pause. After fewer bytes there is none.
struct Pace {
    bytes: usize,
    pause: Duration,
    /// Bytes that the client's system takes beforehand.
    window: u32,
}

/// Starts a proxy between one client and the server; bytes to the client pass at this pace, and are counted. The server sees
/// another address.
async fn slow_way(server: SocketAddr, pace: Pace, passed: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(pace.window).unwrap();
    socket.bind((host(66), 0).into()).unwrap();
    tokio::spawn(async move {
        let (mut near_read, mut near_write) = listener.accept().await.unwrap().0.into_split();
        let (mut far_read, mut far_write) = socket.connect(server).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
        let mut bytes = vec![0; pace.bytes];
        while let Ok(count @ 1..) = far_read.read(&mut bytes).await {
            if near_write.write_all(&bytes[..count]).await.is_err() {
                break;
            }
            passed.fetch_add(count, Ordering::SeqCst);
            if count == pace.bytes {
                sleep(pace.pause).await;
            }
        }
    });
    address
}

/// Starts GETs of 1 MiB, in flight together, from a client that reads at this pace. None is tried again. Returns the bytes
/// that have passed, too.
async fn slow_gets(
    server: &Running,
    pace: Pace,
    count: usize,
) -> (JoinSet<Result<(), CallError>>, Arc<AtomicUsize>) {
    let passed = Arc::new(AtomicUsize::new(0));
    let way = slow_way(server.address, pace, passed.clone()).await;
    // The clock is turned, and the client's own limits shall not count.
    let mut config = ClientConfig::default();
    never(&mut config.protocol.timeouts);
    let mut provider = Config::default();
    provider.timeouts = iwarp();
    let client = Client::builder()
        .config(config)
        .transport(Transport::rdma_on(Arc::new(IwarpConnector::new(provider))))
        .connect(way)
        .await
        .unwrap();
    // The first reply brings the credits.
    client.null(support::PROGRAM, support::VERSION).await.unwrap();
    let mut gets = JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        gets.spawn(async move {
            let mut reply = client.call_raw(get_call(MIB, Sink::Pool(MIB)).once()).await?;
            assert_eq!(reply.results.payload(MIB).unwrap(), pattern(MIB));
            Ok(())
        });
    }
    (gets, passed)
}

#[tokio::test]
async fn i6_a_reader_of_a_kilobyte_a_minute_ends_by_the_timer_of_stalled_sends() {
    let _alone = ALONE.lock().await;
    if !network::is_inside("i6_a_reader_of_a_kilobyte_a_minute_ends_by_the_timer_of_stalled_sends") {
        return;
    }
    let mut config = ServerConfig::default();
    config.memory = 64 * MIB;
    let share = config.shares().limit();
    let timeouts = Timeouts { stalled_send: LIMIT, ..iwarp() };
    let server = serve(host(1), config, timeouts).await;
    server.served().await;
    let held = server.held().await;

    // TCP's window opens again when half of it is free: after four times the timer.
    let pace = Pace { bytes: 1 << 10, pause: LIMIT / 2, window: 16 << 10 };
    let (gets, _) = slow_gets(&server, pace, 32).await;
    let mut pinned = 0;
    while pinned < 4 * MIB {
        sleep(Duration::from_millis(5)).await;
        pinned = server.monitor.stats().memory_in_use - held;
    }
    assert!(pinned <= share, "{pinned} bytes of its share of {share} are held");
    server.served().await;
    assert_eq!(server.monitor.stats().connections, 2, "it does not end before its timer");
    // The time begins with the last byte that the peer's system took.
    let mut turns = 0;
    while server.monitor.stats().connections > 1 {
        turn(LIMIT / 4).await;
        turns += 1;
        assert!(turns < 12, "it goes on by a kilobyte now and then");
        server.served().await;
    }
    assert!(turns >= 3, "{turns}");
    assert_eq!(server.held().await, held);
    drop(gets);
}

#[tokio::test]
async fn i6_a_slow_reader_that_goes_on_is_served_to_the_end() {
    let _alone = ALONE.lock().await;
    if !network::is_inside("i6_a_slow_reader_that_goes_on_is_served_to_the_end") {
        return;
    }
    let timeouts = Timeouts { stalled_send: LIMIT, ..iwarp() };
    let server = serve(host(1), ServerConfig::default(), timeouts).await;
    let pace = Pace { bytes: 64 << 10, pause: Duration::from_millis(5), window: 128 << 10 };
    let (mut gets, passed) = slow_gets(&server, pace, 8).await;
    // Half of the time passes whenever the server has sent more. All together takes many times longer than the timer.
    let (mut before, mut turns) = (0, 0);
    while !gets.is_empty() {
        server.served().await;
        let now = passed.load(Ordering::SeqCst);
        if now >= before + MIB && turns < 7 {
            turn(LIMIT / 2).await;
            (before, turns) = (now, turns + 1);
        }
        if let Ok(Some(got)) = timeout(Duration::from_millis(5), gets.join_next()).await {
            got.unwrap().unwrap();
        }
    }
    assert_eq!(turns, 7);
}
