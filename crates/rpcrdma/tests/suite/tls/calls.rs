//! Calls under TLS: of all sizes, in numbers, across lost connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rpcrdma::{CallError, Client, ServerConfig, Transport, TransportKind};
use rpcrdma_oncrpc::Refused;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Running, connect, quick, serve, serve_with};
use crate::support::certificates::Authority;
use crate::support::{PROGRAM, TestProgram, count, echo, get, pattern, program, put};

async fn pair() -> (Running, Client) {
    let authority = Authority::new();
    let server = serve(authority.server().only()).await;
    let client = connect(server.address, authority.client()).await.unwrap();
    (server, client)
}

// requirement: rfc9289-5.1.1-3
#[tokio::test]
async fn calls_of_all_sizes_and_shapes() {
    let (server, client) = pair().await;
    for length in [0, 1, 3, 4, 5, 1000, 16_379, 16_380, 16_384, 16_385, 32_768, 65_536, 100_001, 1 << 20] {
        let reply = echo(&client, &pattern(length)).await.unwrap();
        assert_eq!(reply.travelled.transport, TransportKind::Tcp);
        put(&client, Bytes::from(pattern(length))).await.unwrap();
        get(&client, length).await.unwrap();
    }
    client.null(PROGRAM, 1).await.unwrap();
    assert!(matches!(client.null(1, 1).await, Err(CallError::Refused(Refused::ProgramUnavailable))));
    assert_eq!(client.stats().connections, 1);
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn many_calls_at_once_both_ways() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let mut config = quick(Some(authority.client()));
    config.connections = 3;
    let client =
        Client::builder().config(config).transport(Transport::tcp()).connect(server.address).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..60_usize {
        let client = client.clone();
        tasks.spawn(async move {
            let length = if index.is_multiple_of(4) { 1 << 20 } else { index * 997 };
            echo(&client, &pattern(length)).await.map(drop)
        });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    // Each connection began with a probe, which counts as a call.
    assert_eq!((server.monitor.stats().calls, server.monitor.stats().connections), (62 + 3, 3));
    client.close().await;
    server.stop().await;
}

/// Starts a proxy between a client and the server. It cuts the first connections after so many bytes to the server, or
/// to the client, and passes `step` bytes at a time.
async fn proxy(server: SocketAddr, cuts: Vec<(usize, usize)>, step: usize) -> SocketAddr {
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
                    () = pass(near_read, far_write, up, step) => {}
                    () = pass(far_read, near_write, down, step) => {}
                }
            });
        }
    });
    address
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut budget: usize,
    step: usize,
) {
    let mut block = vec![0; step];
    while budget > 0 {
        let room = budget.min(block.len());
        let count = from.read(&mut block[..room]).await.unwrap_or(0);
        if count == 0 || to.write_all(&block[..count]).await.is_err() {
            return;
        }
        budget -= count;
    }
}

/// RFC 9289 §4.1: a probe says nothing of later connections, so each has its own.
// requirement: rfc9289-4.1-6
#[tokio::test]
async fn i8_a_call_survives_loss_at_every_step_and_runs_once() {
    let authority = Authority::new();
    // Probe, handshake, call and reply take some 700 bytes to the server and 1400 to the client.
    let steps = (0..1500)
        .step_by(61)
        .map(|up| (up, usize::MAX))
        .chain((0..2200).step_by(61).map(|down| (usize::MAX, down)));
    for cut in steps {
        let program = program();
        let mut config = ServerConfig::default();
        config.tls = Some(authority.server().only());
        let server = serve_with(Arc::clone(&program), config).await;
        let address = proxy(server.address, vec![cut, cut], 64).await;
        let mut client = connect(address, authority.client()).await;
        for _ in 0..2 {
            // Cut in set-up.
            if client.is_err() {
                client = connect(address, authority.client()).await;
            }
        }
        let client = client.unwrap();
        assert_eq!(count(&client).await.unwrap(), 1, "cut at {cut:?}");
        assert_eq!(program.count.load(Ordering::SeqCst), 1, "cut at {cut:?}");
        assert_eq!(count(&client).await.unwrap(), 2, "cut at {cut:?}");
    }
}

#[tokio::test]
async fn calls_pass_in_single_bytes() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let client = connect(proxy(server.address, vec![], 1).await, authority.client()).await.unwrap();
    echo(&client, &pattern(3000)).await.unwrap();
    get(&client, 2000).await.unwrap();
}

/// A lost connection is opened again, with its own probe and handshake.
#[tokio::test]
async fn a_client_whose_server_restarts_connects_again_under_tls() {
    let authority = Authority::new();
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server().only());
    let program = Arc::new(TestProgram::default());
    let server = serve_with(Arc::clone(&program), config.clone()).await;
    let address = server.address;
    let client = connect(address, authority.client()).await.unwrap();
    assert_eq!(count(&client).await.unwrap(), 1);
    server.stop().await;
    let listener = TcpListener::bind(address).await.unwrap();
    let again =
        rpcrdma::Server::builder().config(config).program(program).listen_tcp(listener).build().unwrap();
    tokio::spawn(again.serve(std::future::pending()));
    assert_eq!(count(&client).await.unwrap(), 2);
    assert_eq!(client.stats().connections, 2);
}

/// A server that has lost its TLS is not called without it.
#[tokio::test]
async fn rfc9289_6_1_1_a_reconnection_does_not_fall_back() {
    let authority = Authority::new();
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server());
    let program = Arc::new(TestProgram::default());
    let server = serve_with(Arc::clone(&program), config).await;
    let address = server.address;
    let client = connect(address, authority.client()).await.unwrap();
    assert_eq!(count(&client).await.unwrap(), 1);
    server.stop().await;
    let listener = TcpListener::bind(address).await.unwrap();
    let again =
        rpcrdma::Server::builder().program(Arc::clone(&program) as _).listen_tcp(listener).build().unwrap();
    tokio::spawn(again.serve(std::future::pending()));
    let error = count(&client).await.unwrap_err();
    assert!(matches!(error, CallError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("STARTTLS"), "{error}");
    assert_eq!(program.count.load(Ordering::SeqCst), 1);
}
