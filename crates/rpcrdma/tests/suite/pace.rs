//! Slow links, slow peers and calls that are never polled again: their cost is bounded, and slow does not count as
//! stalled. Client and server run over the simulated fabric on tokio's paused clock.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{CallError, Client, ClientConfig, Server, ServerConfig, ServerMonitor, Sink};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{TestProgram, echo, get, get_call, pattern, program, put, put_call};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const LEN: usize = 64 << 10;

fn fabric(bandwidth: u64) -> Fabric {
    Fabric::on_tokio(FabricConfig { bandwidth: Some(bandwidth), ..FabricConfig::default() })
}

/// Starts a server with this program; also returns the client's share of its memory.
fn serve(
    fabric: &Fabric,
    program: Arc<TestProgram>,
    config: ServerConfig,
) -> (ServerMonitor, rpcrdma::PeerShares) {
    let shares = config.shares();
    let server = Server::builder().config(config).shares(shares.clone()).program(program);
    let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    (monitor, shares)
}

async fn connect(fabric: &Fabric) -> Client {
    tokio::task::yield_now().await;
    Client::rdma(Arc::new(fabric.connector(HOST)), SERVER, ClientConfig::default()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn i6_many_calls_over_a_slow_link_all_end_well() {
    // Twice the least rate: all calls together take two minutes in each direction, and every timer of ours is shorter.
    let fabric = fabric(16 << 10);
    let (monitor, _) = serve(&fabric, program(), ServerConfig::default());
    let client = connect(&fabric).await;
    echo(&client, b"brings the credits").await.unwrap();
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..33 {
        let client = client.clone();
        calls.spawn(async move { put(&client, Bytes::from(pattern(LEN))).await.map(drop) });
    }
    for _ in 0..33 {
        let client = client.clone();
        calls.spawn(async move { get(&client, LEN).await.map(drop) });
    }
    for result in calls.join_all().await {
        result.unwrap();
    }
    assert!(begun.elapsed() > Duration::from_secs(120), "{:?}", begun.elapsed());
    let stats = client.stats();
    assert_eq!((stats.connections, stats.retransmissions, stats.timed_out), (1, 0, 0));
    assert_eq!(monitor.stats().connections, 1);
}

#[tokio::test(start_paused = true)]
async fn i6_who_takes_results_below_the_least_rate_holds_them_for_a_limited_time() {
    let fabric = fabric(1000);
    let (monitor, _) = serve(&fabric, program(), ServerConfig::default());
    let client = connect(&fabric).await;
    let hour = Duration::from_secs(3600);
    let begun = Instant::now();
    let lost = client.call_raw(get_call(1 << 20, Sink::Pool(1 << 20)).timeout(hour).once()).await;
    assert!(matches!(lost, Err(CallError::ConnectionLost { .. })), "{lost:?}");
    let took = begun.elapsed().as_secs();
    assert!((60..80).contains(&took), "{took} s");
    assert_eq!(monitor.stats().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn i6_a_call_that_is_polled_once_and_left_does_not_stop_its_connection() {
    let fabric = fabric(1_000_000_000);
    let program = program();
    let _server = serve(&fabric, Arc::clone(&program), ServerConfig::default());
    let client = connect(&fabric).await;
    echo(&client, b"first").await.unwrap();
    let mut left = pin!(client.call_raw(put_call(Bytes::from(pattern(1 << 20)))));
    assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The call is neither polled again nor dropped: the server reads its arguments all the same.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(program.calls.load(Ordering::SeqCst), 2);
    // The reply waits for the call, and was not fetched by another.
    let reply = poll_fn(|cx| match left.as_mut().poll(cx) {
        Poll::Ready(reply) => Poll::Ready(Some(reply)),
        Poll::Pending => Poll::Ready(None),
    });
    assert!(reply.await.expect("it is there").is_ok());
    assert_eq!(client.stats().connections, 1);
}

#[tokio::test(start_paused = true)]
async fn i3_a_connection_is_accepted_when_there_is_a_receive_for_its_first_call() {
    let fabric = fabric(1_000_000_000);
    let (monitor, shares) = serve(&fabric, program(), ServerConfig::default());
    let share = shares.of(Some(HOST));
    let mut held = Vec::new();
    for len in [1 << 20, 4096, 1024] {
        while let Ok(buffer) = share.allocate(len, 1) {
            held.push(buffer);
        }
    }
    // While others from its address hold all of its memory the connection waits, but no longer than a set-up may take.
    let mut connecting = pin!(connect(&fabric));
    assert!(timeout(Duration::from_secs(5), connecting.as_mut()).await.is_err());
    drop(held);
    let client = connecting.await;
    echo(&client, b"served").await.unwrap();
    assert_eq!((client.stats().connections, monitor.stats().accepted), (1, 1));
}
