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
use std::time::{Duration, Instant};

use rpcrdma::{CallError, Client, ClientConfig, Server, ServerConfig, ServerMonitor, Sink};
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

/// Tests that count the descriptors of the process, or measure time, run alone.
static ALONE: Mutex<()> = Mutex::const_new(());

struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    good: Client,
}

/// Starts a server with these timers of its provider, and a good client beside the slow ones.
async fn serve(at: IpAddr, config: ServerConfig, timeouts: Timeouts) -> Running {
    let mut iwarp = Config::default();
    iwarp.timeouts = timeouts;
    let listener = IwarpListener::bind((at, 0).into(), iwarp).await.unwrap();
    let shares = config.shares();
    let program = TestProgram { shares: Some(shares.clone()), ..TestProgram::default() };
    let server = Server::builder().config(config).shares(shares).program(Arc::new(program));
    let server = server.listen_rdma(Box::new(listener)).build().unwrap();
    let address = server.rdma_addresses().unwrap()[0];
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let good = Client::connect_rdma(address).await.unwrap();
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
    let (max_connections, set_up) = (4096, Duration::from_secs(600));
    let config = ServerConfig {
        max_connections,
        max_connections_per_peer: max_connections,
        max_half_open: max_connections,
        set_up,
        ..ServerConfig::default()
    };
    let startup = Duration::from_secs(3);
    let server = serve(Ipv4Addr::LOCALHOST.into(), config, Timeouts { startup, ..Timeouts::default() }).await;
    server.served().await;
    let (held, before) = (server.held().await, descriptors());

    let begin = Instant::now();
    let (mut silent, mut most) = (Vec::new(), 0);
    for number in 0..SILENT {
        silent.push(TcpStream::connect(server.address).await.unwrap());
        most = most.max(server.monitor.stats().connections);
        if number % 500 == 0 {
            server.served().await;
        }
    }
    assert!(most > SILENT / 2, "{most} at once");
    assert_eq!(server.held().await, held, "a silent peer pins no memory");
    server.served_until_alone().await;
    assert!(begin.elapsed() >= startup);
    let stats = server.monitor.stats();
    assert_eq!((stats.accepted, stats.refused), (1 + u64::try_from(SILENT).unwrap(), 0));
    // Each was closed without a message.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    }
    assert_eq!(descriptors(), before);
    assert_eq!(server.held().await, held);
}

/// The pace of a client that reads: so many bytes, then a pause.
struct Pace {
    bytes: usize,
    pause: Duration,
    /// Bytes that the client's system takes beforehand.
    window: u32,
}

/// Starts a proxy between one client and the server; bytes to the client pass at this pace. The server sees another
/// address.
async fn slow_way(server: SocketAddr, pace: Pace) -> SocketAddr {
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
            sleep(pace.pause).await;
        }
    });
    address
}

/// Starts GETs of 1 MiB, in flight together, from a client that reads at this pace. None is tried again.
async fn slow_gets(server: &Running, pace: Pace, count: usize) -> JoinSet<Result<(), CallError>> {
    let way = slow_way(server.address, pace).await;
    let client =
        Client::rdma(Arc::new(IwarpConnector::default()), way, ClientConfig::default()).await.unwrap();
    // The first reply brings the credits.
    client.null(support::PROGRAM, support::VERSION).await.unwrap();
    let mut gets = JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        gets.spawn(async move {
            let mut reply = client.call(get_call(MIB, Sink::Pool(MIB)).once()).await?;
            assert_eq!(reply.results.payload(MIB).unwrap(), pattern(MIB));
            Ok(())
        });
    }
    gets
}

#[tokio::test]
async fn i6_a_reader_of_a_kilobyte_a_second_ends_by_the_timer_of_stalled_sends() {
    let _alone = ALONE.lock().await;
    if !network::is_inside("i6_a_reader_of_a_kilobyte_a_second_ends_by_the_timer_of_stalled_sends") {
        return;
    }
    let stalled_send = Duration::from_millis(1500);
    let config = ServerConfig { memory: 64 * MIB, ..ServerConfig::default() };
    let share = config.shares().limit();
    let server = serve(host(1), config, Timeouts { stalled_send, ..Timeouts::default() }).await;
    server.served().await;
    let held = server.held().await;

    let pace = Pace { bytes: 1 << 10, pause: Duration::from_secs(1), window: 16 << 10 };
    let gets = slow_gets(&server, pace, 32).await;
    let begin = Instant::now();
    sleep(Duration::from_millis(500)).await;
    let pinned = server.monitor.stats().memory_in_use - held;
    assert!((4 * MIB..=share).contains(&pinned), "{pinned} bytes of its share of {share} are held");
    server.served_until_alone().await;
    assert!((stalled_send..Duration::from_secs(20)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert_eq!(server.held().await, held);
    drop(gets);
}

#[tokio::test]
async fn i6_a_slow_reader_that_goes_on_is_served_to_the_end() {
    let _alone = ALONE.lock().await;
    if !network::is_inside("i6_a_slow_reader_that_goes_on_is_served_to_the_end") {
        return;
    }
    let stalled_send = Duration::from_millis(1500);
    let server =
        serve(host(1), ServerConfig::default(), Timeouts { stalled_send, ..Timeouts::default() }).await;
    // 3 MiB/s: all of it takes longer than the timer, but no gap without bytes does.
    let pace = Pace { bytes: 64 << 10, pause: Duration::from_millis(20), window: 128 << 10 };
    let mut gets = slow_gets(&server, pace, 8).await;
    let begin = Instant::now();
    while !gets.is_empty() {
        server.served().await;
        if let Ok(Some(got)) = timeout(Duration::from_millis(50), gets.join_next()).await {
            got.unwrap().unwrap();
        }
    }
    assert!(begin.elapsed() > stalled_send, "{:?}", begin.elapsed());
}
