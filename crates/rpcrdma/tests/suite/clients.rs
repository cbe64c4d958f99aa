//! Tests of the log of a server: clients that come and go, and slow calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{AuthSys, Client, Credential, Handle, Server, ServerConfig, Transport};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::time::sleep;

use crate::support::warnings::Warnings;
use crate::support::{count, echo, program, sleep_call, with};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const CLIENTS: &str = "rpcrdma::clients";

/// Serves on a fabric until the sender is dropped.
fn serve(config: ServerConfig) -> (Fabric, tokio::sync::oneshot::Sender<()>) {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let server = Server::builder().config(config).program(program());
    let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    (fabric, stop)
}

async fn connect(fabric: &Fabric) -> Client {
    let connector = Arc::new(fabric.connector(CLIENT));
    Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap()
}

fn as_user(client: &Client, uid: u32) -> Handle {
    client.handle().credential(Credential::Sys(AuthSys { uid, ..AuthSys::default() }))
}

#[tokio::test(start_paused = true)]
async fn a_client_has_a_line_when_it_comes_and_one_when_it_goes() {
    let (events, _kept) = Warnings::and_events_of(CLIENTS);
    let (fabric, stop) = serve(ServerConfig::default());
    let client = connect(&fabric).await;
    count(&client).await.unwrap();
    let told = events.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("message=client 192.0.2.2:") && told[0].contains(" came by sim "), "{told:?}");
    assert!(told[0].contains("peer=192.0.2.2:") && told[0].contains("provider=\"sim\""), "{told:?}");
    echo(&client, b"again").await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    assert!(events.take().is_empty(), "no line for a call");
    client.close().await;
    sleep(Duration::from_millis(10)).await;
    let told = events.take();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "left sim after 1.50",
        " s with 2 calls of Version One: ",
        "version=\"Version One\"",
        "calls=2",
        "seconds=1.5",
    ] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    let client = connect(&fabric).await;
    count(&client).await.unwrap();
    drop(stop);
    sleep(Duration::from_secs(20)).await;
    let told = events.take();
    assert!(told.len() == 2 && told[1].contains("reason=\"the server stopped\""), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_by_order_is_told_with_the_calls_of_the_connection() {
    let (events, _kept) = Warnings::and_events_of(CLIENTS);
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let server = Server::builder().program(program()).listen_rdma(Box::new(fabric.listen(SERVER).unwrap()));
    let server = server.build().unwrap().spawn();
    let monitor = server.monitor();
    let client = connect(&fabric).await;
    for _ in 0..3 {
        count(&client).await.unwrap();
    }
    events.take();
    assert!(monitor.disconnect(monitor.connections()[0].id));
    while !monitor.connections().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let told = events.take();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [" left sim after ", " with 3 calls of Version One: ", "reason=\"ended by an administrator\""]
    {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    // The next end has a reason of its own.
    count(&client).await.unwrap();
    server.shutdown().await.unwrap();
    let told = events.take();
    assert!(told.last().unwrap().contains("with 1 calls of Version One: the server stopped"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn i6_clients_that_come_and_go_without_end_do_not_fill_the_log() {
    const VISITS: usize = 800;
    let (events, _kept) = Warnings::and_events_of(CLIENTS);
    let (fabric, _stop) = serve(ServerConfig::default());
    for _ in 0..VISITS {
        let client = connect(&fabric).await;
        count(&client).await.unwrap();
        client.close().await;
    }
    let told = events.take();
    assert!((1024..2 * VISITS).contains(&told.len()), "{}", told.len());
    sleep(Duration::from_secs(10)).await;
    count(&connect(&fabric).await).await.unwrap();
    let told = events.take();
    let left_out = told.iter().find(|line| line.contains("not_logged=")).unwrap();
    assert!(left_out.contains("lines like this were left out before"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_calls_have_a_line_and_a_flood_of_them_one_a_second() {
    let (warnings, _kept) = Warnings::of_this_thread();
    let (fabric, _stop) = serve(ServerConfig::default());
    let client = connect(&fabric).await;
    warnings.take();
    let user = as_user(&client, 1000);
    user.call_raw(sleep_call(990)).await.unwrap();
    assert!(warnings.take().is_empty());
    user.call_raw(sleep_call(1500)).await.unwrap();
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in
        ["slow call SLEEP from 192.0.2.2:", " by user 1000, xid 0x", ": 1.500 s", "user=1000", "seconds=1.5 "]
    {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    let mut together = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        together.spawn(async move { client.call_raw(sleep_call(2000)).await.unwrap() });
    }
    together.join_all().await;
    assert_eq!(warnings.take().len(), 1);
    sleep(Duration::from_secs(1)).await;
    user.call_raw(sleep_call(1000)).await.unwrap();
    let told = warnings.take();
    assert!(told.len() == 1 && told[0].contains("not_logged=9 "), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_threshold_no_call_is_slow() {
    let (warnings, _kept) = Warnings::of_this_thread();
    let (fabric, _stop) = serve(with(ServerConfig::default(), |config| config.slow_call = None));
    let client = connect(&fabric).await;
    warnings.take();
    client.call_raw(sleep_call(20_000)).await.unwrap();
    assert!(warnings.take().is_empty());
}
