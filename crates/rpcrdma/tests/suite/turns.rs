//! Turns of the addresses that call a server: their number does not depend on the number of connections.

use std::net::SocketAddr;

use crate::support::network::{self, host};
use crate::support::{MAX, PROGRAM, count, get, program};
use rpcrdma::{Client, Server, ServerConfig, Transport};
use rpcrdma_iwarp::{Config, IwarpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Length of a reply to NULL as a record, in bytes.
const REPLY: usize = 4 + 24;

async fn connect(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((host(last), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Returns a NULL call as a record.
fn null() -> Vec<u8> {
    let words = [0x8000_0000 | 40, 7, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0_u32];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Between the sending of a call and its reply the server takes few calls of an address that sends as many as it can.
#[tokio::test]
async fn i6_a_call_does_not_wait_for_those_of_an_address_with_many_connections() {
    /// Most calls of one turn, and of the turn that is under way.
    const MOST: u64 = 16;
    if !network::is_inside("turns::i6_a_call_does_not_wait_for_those_of_an_address_with_many_connections") {
        return;
    }
    let listener = TcpListener::bind((host(1), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .config(ServerConfig::default())
        .program(program())
        .listen_tcp(listener)
        .build()
        .unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let mut flood = JoinSet::new();
    for _ in 0..60 {
        flood.spawn(async move {
            let mut stream = connect(2, address).await;
            let mut replies = vec![0; 16 * REPLY];
            let calls = null().repeat(16);
            // Two batches are always under way.
            stream.write_all(&calls).await.unwrap();
            loop {
                stream.write_all(&calls).await.unwrap();
                stream.read_exact(&mut replies).await.unwrap();
            }
        });
    }
    let mut stream = connect(3, address).await;
    while monitor.stats().calls < 2000 {
        tokio::task::yield_now().await;
    }
    let mut others = Vec::new();
    for _ in 0..100 {
        let before = monitor.stats().calls;
        stream.write_all(&null()).await.unwrap();
        let mut reply = [0; REPLY];
        stream.read_exact(&mut reply).await.unwrap();
        others.push(monitor.stats().calls - before - 1);
    }
    others.sort_unstable();
    assert!(others[50] <= MOST, "half of the calls waited for more than {} others: {others:?}", others[50]);
}

/// Many long replies that are made at once do not keep the thread: a call of another connection is served between two
/// of them.
#[tokio::test]
async fn i6_a_call_does_not_wait_for_many_long_replies_of_another_connection() {
    const IN_FLIGHT: usize = 16;
    const MOST: u64 = 4;
    let local = ([127, 0, 0, 1], 0).into();
    let (rdma, tcp) = (
        IwarpListener::bind(local, Config::default()).await.unwrap(),
        TcpListener::bind(local).await.unwrap(),
    );
    let at_tcp = tcp.local_addr().unwrap();
    let server = Server::builder()
        .config(ServerConfig::default())
        .program(program())
        .listen_rdma(Box::new(rdma))
        .listen_tcp(tcp)
        .build()
        .unwrap();
    let at_rdma = server.rdma_addresses().unwrap()[0];
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let read = |reader: Client| async move { get(&reader, MAX).await.map(drop).unwrap() };
    let by_rdma = || Client::connect(at_rdma);
    let other = by_rdma().await.unwrap();
    count(&other).await.unwrap();
    for reader in [
        by_rdma().await.unwrap(),
        Client::builder().transport(Transport::tcp()).connect(at_tcp).await.unwrap(),
    ] {
        let mut reads = JoinSet::new();
        reads.spawn(async move {
            loop {
                // The calls leave together, and reach the server together.
                let calls: JoinSet<_> = (0..IN_FLIGHT).map(|_| read(reader.clone())).collect();
                calls.join_all().await;
            }
        });
        let before = monitor.stats().calls;
        while monitor.stats().calls < before + 100 {
            tokio::task::yield_now().await;
        }
        let mut most = 0;
        for _ in 0..100 {
            let before = monitor.stats().calls;
            count(&other).await.unwrap();
            most = most.max(monitor.stats().calls - before - 1);
        }
        assert!(most <= MOST, "a call waited for {most} long ones");
        reads.shutdown().await;
    }
}
