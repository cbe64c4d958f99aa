//! The counters of a server by procedure, and the list of its connections, on the simulated fabric and paused clock, and over
//! TCP.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{CallError, Client, Failed, ProcedureStats, Server, ServerMonitor, Transport, TransportKind};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::SERVER;
use crate::support::warnings::Warnings;
use crate::support::{PROGRAM, call, echo, pattern, program, sleep_call};

/// Returns the counters of a procedure of the test program by name.
fn counted(monitor: &ServerMonitor, name: &str) -> ProcedureStats {
    let all = monitor.procedures();
    let found = all.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("{name} is not among {all:?}")).clone()
}

async fn on_sim() -> (Fabric, Server) {
    let fabric = Fabric::on_tokio(FabricConfig { seed: 1, ..FabricConfig::default() });
    let listener = fabric.listen(SERVER).unwrap();
    let server = Server::builder().program(program()).listen_rdma(Box::new(listener)).build().unwrap();
    (fabric, server)
}

async fn connect(fabric: &Fabric) -> Client {
    let connector = fabric.connector("192.0.2.2".parse().unwrap());
    Client::builder().transport(Transport::rdma_on(Arc::new(connector))).connect(SERVER).await.unwrap()
}

/// Waits, for a limited time, until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), holds).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_procedure_has_its_count_its_failures_and_its_times() {
    let (fabric, server) = on_sim().await;
    let server = server.spawn();
    let monitor = server.monitor();
    let client = connect(&fabric).await;
    for _ in 0..3 {
        client.null(PROGRAM, 1).await.unwrap();
    }
    client.call_raw(sleep_call(30)).await.unwrap();
    assert!(matches!(client.call_raw(call(99)).await, Err(CallError::Refused(_))));
    client.null(PROGRAM + 1, 1).await.unwrap_err();

    let null = counted(&monitor, "NULL");
    assert_eq!((null.program, null.procedure, null.latencies.count()), (PROGRAM, Some(0), 3));
    let slept = counted(&monitor, "SLEEP").latencies;
    // 30 ms, and the bound of its bucket.
    assert!((Duration::from_millis(30)..Duration::from_millis(31)).contains(&slept.sum()), "{slept:?}");
    assert_eq!(slept.quantile(0.5), Some(Duration::from_micros(1 << 15)));
    let other: Vec<_> = monitor.procedures().into_iter().filter(|one| one.procedure.is_none()).collect();
    assert_eq!(other.len(), 2, "{other:?}");
    assert_eq!((other[0].program, other[0].failed.as_slice()), (0, &[(Failed::ProgramUnavailable, 1)][..]));
    assert_eq!(other[1].failed, [(Failed::ProcedureUnavailable, 1)]);
    client.close().await;
    server.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_listed_as_long_as_it_is_open() {
    let (fabric, server) = on_sim().await;
    let server = server.spawn();
    let monitor = server.monitor();
    assert_eq!(monitor.connections(), []);
    let client = connect(&fabric).await;
    echo(&client, &pattern(100_000)).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(50)).await.unwrap() }
    });
    until(|| monitor.connections()[0].calls_in_flight == 1).await;
    let [one] = monitor.connections().try_into().unwrap();
    assert_eq!((one.id, one.transport, one.provider), (1, TransportKind::Rdma, "sim"));
    assert_eq!(
        (one.version, one.calls, one.peer.unwrap().ip().to_string()),
        (Some(1), 2, "192.0.2.2".into())
    );
    assert!(one.bytes_received > 100_000 && one.bytes_sent > 100_000 && one.credits > 0, "{one:?}");
    assert!(one.receive_memory > 0 && one.address_memory >= one.receive_memory, "{one:?}");
    waiting.await.unwrap();
    let stats = monitor.stats();
    assert_eq!((stats.rdma.connections, stats.rdma.calls, stats.half_open), (1, 2, 0));
    assert_eq!(stats.credits_granted, u64::from(one.credits));
    client.close().await;
    until(|| monitor.connections().is_empty()).await;
    let after = monitor.stats();
    assert_eq!((after.rdma.connections, after.rdma.calls, after.credits_granted), (0, 2, 0));
    assert_eq!(after.rdma.bytes_sent, after.replies_sent.bytes());
    server.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_ended_by_order_leaves_nothing_and_its_client_comes_again() {
    let (fabric, server) = on_sim().await;
    let server = server.spawn();
    let monitor = server.monitor();
    let client = connect(&fabric).await;
    client.null(PROGRAM, 1).await.unwrap();
    assert!(!monitor.disconnect(7), "there is no such connection");
    let working = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(5)).await }
    });
    until(|| monitor.connections()[0].calls_in_flight == 1).await;
    assert!(monitor.disconnect(1));
    until(|| monitor.connections().iter().all(|one| one.id != 1)).await;
    // The client repeats the call on its next connection.
    working.await.unwrap().unwrap();
    until(|| monitor.stats().connections == 1).await;
    let open: Vec<_> = monitor.connections().iter().map(|one| one.id).collect();
    assert_eq!(open, [2]);
    client.close().await;
    server.shutdown().await.unwrap();
    assert_eq!((monitor.stats().connections, monitor.stats().memory_in_use), (0, 0));
}

#[tokio::test]
async fn connections_over_tcp_are_counted_and_ended_too() {
    let (events, _kept) = Warnings::and_events_of("rpcrdma::clients");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().program(program()).listen_tcp(listener).build().unwrap().spawn();
    let monitor = server.monitor();
    let client = Client::builder().transport(Transport::tcp()).connect(address).await.unwrap();
    echo(&client, &pattern(1000)).await.unwrap();
    for _ in 0..10 {
        client.null(PROGRAM, 1).await.unwrap();
    }
    until(|| monitor.connections()[0].calls == 11).await;
    let [one] = monitor.connections().try_into().unwrap();
    assert_eq!((one.transport, one.provider, one.version, one.credits), (TransportKind::Tcp, "tcp", None, 0));
    assert!(one.bytes_received > 1000 && one.bytes_sent > 1000, "{one:?}");
    assert_eq!(counted(&monitor, "NULL").latencies.count(), 10);
    assert!(monitor.disconnect(one.id));
    until(|| monitor.connections().is_empty()).await;
    let told = events.take();
    let left = told.last().unwrap();
    assert!(
        left.contains(" left tcp after ") && left.contains(" with 11 calls: ended by an administrator"),
        "{told:?}"
    );
    let tcp = monitor.stats().tcp;
    assert_eq!((tcp.connections, tcp.calls, tcp.bytes_sent), (0, 11, one.bytes_sent));
    server.shutdown().await.unwrap();
}
