//! Tests that a flood of refused connections does not flood the log.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::warnings::Warnings;
use crate::support::{echo, program};
use rpcrdma::{Client, Server, ServerConfig, Transport};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::time::sleep;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const GOOD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

#[tokio::test(start_paused = true)]
async fn i6_a_flood_of_refused_connections_is_told_once_a_second() {
    let (warnings, _guard) = Warnings::of_this_thread();
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let mut config = ServerConfig::default();
    config.max_half_open = 2;
    config.set_up = Duration::from_secs(60);
    let server = Server::builder().config(config).program(program());
    let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
    warnings.take();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    tokio::task::yield_now().await;
    let silent = |count: usize| (0..count).for_each(|_| fabric.connect_silently(SERVER).unwrap());
    let tick = || sleep(Duration::from_millis(1));

    silent(1);
    tick().await;
    assert!(warnings.take().is_empty(), "it was let in");
    silent(1000);
    tick().await;
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("connection refused: 127.0.0.1:"), "{told:?}");
    assert!(told[0].contains("1 connections being set up, the limit for one address"), "{told:?}");
    // The others are logged together, when the first is a second ago; that takes no further connection.
    sleep(Duration::from_millis(990)).await;
    assert!(warnings.take().is_empty());
    sleep(Duration::from_millis(20)).await;
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("further connections refused") && told[0].contains("count=999 "), "{told:?}");
    // A flood that goes on has one line a second.
    for _ in 0..500 {
        silent(3);
        sleep(Duration::from_millis(10)).await;
    }
    let told = warnings.take();
    assert!((4..=6).contains(&told.len()), "{told:?}");
    assert_eq!(monitor.stats().refused, 1000 + 1500);
    // When the flood is over, the rest is logged, then nothing.
    sleep(Duration::from_secs(2)).await;
    assert!(warnings.take().len() <= 1);
    sleep(Duration::from_secs(10)).await;
    assert!(warnings.take().is_empty());
    // After quiet, the next refusal counts as the first again. Meanwhile a client from elsewhere is served.
    let client = Client::builder()
        .transport(Transport::rdma_on(Arc::new(fabric.connector(GOOD))))
        .connect(SERVER)
        .await
        .unwrap();
    echo(&client, b"served").await.unwrap();
    silent(2);
    tick().await;
    let told = warnings.take();
    assert!(told.len() == 1 && told[0].contains("connection refused: "), "{told:?}");
}
