//! The fabric on tokio's paused clock: connection set-up, its faults, and a clock that advances by itself.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{
    Completion, ConnectError, ConnectParameters, Connector, Disconnected, Listener, OwnPrivateData,
    ProtectionDomain, QueuePair, ReceiveMemory, SendRequest, Status, WorkRequest, WrId,
};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn parameters() -> ConnectParameters {
    ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: 4,
        ord: 4,
        max_send_wr: 16,
        max_recv_wr: 16,
        domain: ProtectionDomain::new(1 << 20),
    }
}

async fn next(queue_pair: &mut Box<dyn QueuePair>) -> Result<Vec<Completion>, Disconnected> {
    let mut completions = Vec::new();
    poll_fn(|cx| queue_pair.poll(cx, &mut completions)).await?;
    Ok(completions)
}

async fn accept(listener: &mut dyn Listener) -> Box<dyn QueuePair> {
    let request = listener.accept().await.unwrap().request().await.unwrap();
    request.accept(parameters()).await.unwrap()
}

fn receive(queue_pair: &mut Box<dyn QueuePair>, id: u64) {
    let memory = ReceiveMemory::Pooled(queue_pair.domain().reserve(100).unwrap());
    queue_pair.post_receive(WrId(id), memory).unwrap();
}

fn send(queue_pair: &mut Box<dyn QueuePair>, id: u64) {
    let gather = vec![Bytes::from_static(b"x")];
    queue_pair.post(WrId(id), WorkRequest::Send(SendRequest { gather, ..SendRequest::default() })).unwrap();
}

#[tokio::test(start_paused = true)]
async fn time_moves_to_the_next_event_by_itself() {
    let latency = Duration::from_secs(3600);
    let fabric =
        Fabric::on_tokio(FabricConfig { latency, setup_timeout: 10 * latency, ..FabricConfig::default() });
    let mut listener = fabric.listen(SocketAddr::new(HOST, 20049)).unwrap();
    let address = listener.local_address().unwrap();
    let server = tokio::spawn(async move {
        let mut b = accept(&mut listener).await;
        receive(&mut b, 1);
        next(&mut b).await.unwrap();
        send(&mut b, 2);
        next(&mut b).await.unwrap();
        // Driven until the peer goes.
        assert!(matches!(next(&mut b).await, Err(Disconnected::Peer)));
    });
    let mut a = fabric.connector(HOST).connect(address, parameters()).await.unwrap();
    assert!(fabric.now() >= 2 * latency);
    receive(&mut a, 1);
    send(&mut a, 2);
    assert_eq!(next(&mut a).await.unwrap()[0].id, WrId(2));
    assert_eq!(next(&mut a).await.unwrap()[0].id, WrId(1));
    assert!(fabric.now() >= 4 * latency && fabric.now() < 5 * latency, "{:?}", fabric.now());
    assert_eq!(fabric.instant(), tokio::time::Instant::now().into_std());
    a.disconnect();
    assert!(matches!(next(&mut a).await, Err(Disconnected::Local)));
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_attempts() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let mut listener = fabric.listen(SocketAddr::new(HOST, 0)).unwrap();
    let address = listener.local_address().unwrap();
    assert!(fabric.listen(address).is_err());
    let connector = fabric.connector(HOST);
    fabric.refuse(address, 2);
    for _ in 0..2 {
        let refused = connector.connect(address, parameters()).await;
        assert!(matches!(refused, Err(ConnectError::Io(_))), "{:?}", refused.err());
    }
    let (a, _b) = tokio::join!(connector.connect(address, parameters()), accept(&mut listener));
    assert!(a.is_ok());
    // An attempt that is never accepted, and another whose listener goes away.
    let waiting = connector.connect(address, parameters()).await;
    assert!(matches!(waiting, Err(ConnectError::Timeout(_))), "{:?}", waiting.err());
    let gone = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(listener);
    };
    let (lost, ()) = tokio::join!(connector.connect(address, parameters()), gone);
    assert!(matches!(lost, Err(ConnectError::Io(_))), "{:?}", lost.err());
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_times_out_and_holds_nobody_up() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let mut listener = fabric.listen(SocketAddr::new(HOST, 0)).unwrap();
    let address = listener.local_address().unwrap();
    fabric.connect_silently(address).unwrap();
    let silent = listener.accept().await.unwrap();
    let silent = tokio::spawn(silent.request());
    let connector = fabric.connector(HOST);
    let (a, _b) = tokio::join!(connector.connect(address, parameters()), accept(&mut listener));
    assert!(a.is_ok() && !silent.is_finished());
    assert!(matches!(silent.await.unwrap(), Err(ConnectError::Timeout(_))));
    assert_eq!(fabric.now().as_secs(), fabric.config().setup_timeout.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_connect_leaves_nothing() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let mut listener = fabric.listen(SocketAddr::new(HOST, 0)).unwrap();
    let address = listener.local_address().unwrap();
    let connector = fabric.connector(HOST);
    let attempt = tokio::time::timeout(Duration::from_secs(1), connector.connect(address, parameters()));
    assert!(attempt.await.is_err());
    // The listener does not know yet; its queue pair learns of it.
    let mut b = accept(&mut listener).await;
    receive(&mut b, 1);
    assert_eq!(next(&mut b).await.unwrap()[0].status, Status::Flushed);
    assert!(matches!(next(&mut b).await, Err(Disconnected::Link(_))));
    drop(b);
    assert!(fabric.connections().is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_the_last_waker_counts() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let (mut a, b) = fabric.pair(parameters(), parameters());
    let mut b: Box<dyn QueuePair> = Box::new(b);
    receive(&mut b, 1);
    // A task polled and went away; the next one is woken all the same.
    poll_fn(|cx| {
        assert!(b.poll(cx, &mut Vec::new()).is_pending());
        Poll::Ready(())
    })
    .await;
    let waiting = tokio::spawn(async move { next(&mut b).await.unwrap()[0].id });
    tokio::task::yield_now().await;
    let gather = vec![Bytes::from_static(b"x")];
    a.post(WrId(2), WorkRequest::Send(SendRequest { gather, ..SendRequest::default() })).unwrap();
    let mut completions = Vec::new();
    poll_fn(|cx| a.poll(cx, &mut completions)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), WrId(1));
}
