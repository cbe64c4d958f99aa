//! Peers that do something else after the probe, or nothing.

use std::time::Duration;

use rpcrdma::{AttemptError, CallError, Client, ServerConfig, Transport, verbs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::raw::{self, Session, framed, next, offered, plain, probe};
use super::{connect, quick, refusal, serve, serve_with};
use crate::support::certificates::{Authority, NAME};
use crate::support::raw::words;
use crate::support::{COUNT, count, echo, pattern, program, with};

/// Returns what the server still sends.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset ends the connection as well.
    let _ = stream.read_to_end(&mut all).await;
    all
}

/// §5.1.1: what comes between probe and handshake is discarded without an answer, and the connection ends.
// requirement: rfc9289-5.1.1-1
// requirement: rfc9289-5.1.1-2
#[tokio::test]
async fn rfc9289_5_1_1_data_behind_the_probe_gets_no_answer() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    // Before the offer, in one piece with the probe.
    for behind in [plain(8, COUNT), vec![0x80], vec![22, 3, 1]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&[probe(7), behind].concat()).await.unwrap();
        assert_eq!(rest(stream).await, [0; 0]);
    }
    // After the offer.
    for instead in [plain(8, COUNT), probe(8), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![21, 3, 3, 0, 2, 1, 0]]
    {
        let mut stream = offered(server.address).await;
        stream.write_all(&instead).await.unwrap();
        assert_eq!(rest(stream).await, [0; 0]);
    }
    let good = connect(server.address, authority.client()).await.unwrap();
    assert_eq!(count(&good).await.unwrap(), 1, "no call was carried out");
}

/// A server that answers the probe and then sends this.
async fn impostor(after: Vec<u8>) -> (std::net::SocketAddr, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        raw::offer(&mut stream).await;
        // The ClientHello, if the client sends one.
        let mut hello = vec![0; 4096];
        let count = stream.read(&mut hello).await.unwrap_or(0);
        stream.write_all(&after).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        hello[..count].to_vec()
    });
    (address, task)
}

#[tokio::test]
async fn a_server_that_offers_tls_and_sends_something_else() {
    let authority = Authority::new();
    let reply = framed(&words(&[1, 1, 0, 0, 0, 0]));
    for after in [
        reply,
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        vec![0; 100],
        vec![22; 100],
        vec![22, 3, 3, 0xff, 0xff],
    ] {
        let (address, server) = impostor(after).await;
        let reason = refusal(address, authority.client()).await;
        assert!(reason.contains("handshake failed"), "{reason}");
        assert_eq!(server.await.unwrap()[0], 22);
    }
    // An alert is told.
    let (address, _server) = impostor(vec![21, 3, 3, 0, 2, 2, 40]).await;
    let reason = refusal(address, authority.client()).await;
    assert!(reason.contains("HandshakeFailure"), "{reason}");
}

/// Data that someone slips in behind the offer must not count as part of the session.
#[tokio::test]
async fn rfc9289_5_1_1_data_behind_the_offer_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let call = next(&mut stream).await;
        let reply = [&call[..4], &words(&[1, 0, 0, 8]), b"STARTTLS", &words(&[0])].concat();
        stream.write_all(&[framed(&reply), vec![22, 3, 3]].concat()).await.unwrap();
        rest(stream).await
    });
    let reason = refusal(address, Authority::new().client()).await;
    assert!(reason.contains("between its offer"), "{reason}");
    assert!(server.await.unwrap().is_empty(), "no ClientHello");
}

/// I6: a client that begins no handshake is dropped in the time for set-up.
#[tokio::test(start_paused = true)]
async fn i6_a_handshake_has_a_time_limit() {
    let server = serve(Authority::new().server()).await;
    let limit = ServerConfig::default().set_up;
    for begun in [&[][..], &[22], &[22, 3, 1, 0, 200, 1]] {
        let mut stream = offered(server.address).await;
        let start = Instant::now();
        stream.write_all(begun).await.unwrap();
        assert_eq!(rest(stream).await, [0; 0]);
        let took = start.elapsed();
        assert!(took >= limit && took < limit + Duration::from_secs(1), "{took:?}");
    }
    assert_eq!(server.monitor.stats().memory_in_use, 0);
}

/// A client does not wait for a server that stops in the middle.
#[tokio::test(start_paused = true)]
async fn a_server_that_goes_silent_does_not_hold_a_client() {
    for speaks in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            if speaks {
                raw::offer(&mut stream).await;
            }
            rest(stream).await
        });
        let error = connect(address, Authority::new().client()).await.err().unwrap();
        let [attempt] = error.attempts() else { panic!("{error}") };
        assert!(matches!(attempt.error, AttemptError::Link(verbs::ConnectError::Timeout(_))), "{error}");
        server.await.unwrap();
    }
}

/// I6: memory of TLS counts against the share of the address, and a client that finds none waits no longer than for set-up.
#[tokio::test(start_paused = true)]
async fn i6_tls_takes_its_memory_from_the_share() {
    let authority = Authority::new();
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server());
    config.max_record = 64 << 10;
    let shares = rpcrdma::PeerShares::new(rpcrdma_verbs::ProtectionDomain::new(16 << 20), 2 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server =
        rpcrdma::Server::builder().config(config).shares(shares).program(program()).listen_tcp(listener);
    let server = server.build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let first = connect(address, authority.client()).await.unwrap();
    echo(&first, b"first").await.unwrap();
    let held = monitor.stats().memory_in_use;
    assert!((128 << 10..256 << 10).contains(&held), "{held}");
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(connect(address, authority.client()).await);
    }
    let served = others.iter().filter(|other| other.is_ok()).count();
    assert!((1..20).contains(&served), "{served} of 20");
    // What is left is enough for a long call.
    echo(&first, &pattern(60_000)).await.unwrap();
    drop(others);
    first.close().await;
    while monitor.stats().connections > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(monitor.stats().memory_in_use, 0);
}

/// I6: neither a client that was refused and keeps its end open, nor one that waits for memory or is silent, holds a server that
/// stops.
#[tokio::test]
async fn i6_clients_without_a_session_do_not_hold_a_server_that_stops() {
    let mut config = ServerConfig::default();
    config.tls = Some(Authority::new().server());
    config.max_record = 64 << 10;
    config.set_up = Duration::from_secs(3600);
    let shares = rpcrdma::PeerShares::new(rpcrdma_verbs::ProtectionDomain::new(16 << 20), 2 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server =
        rpcrdma::Server::builder().config(config).shares(shares).program(program()).listen_tcp(listener);
    let server = server.build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(server.serve(async { stopped.await.unwrap() }));
    let mut refused = offered(address).await;
    refused.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(refused.read(&mut [0; 100]).await.unwrap(), 0, "refused");
    // The memory of the share is enough for some of these.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(offered(address).await);
    }
    stop.send(()).unwrap();
    // The test takes this long only if it fails.
    let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
    ended.expect("the server waits for its clients").unwrap().unwrap();
}

/// §5.1.1: the side that is done sends a closure alert.
// requirement: rfc9289-5.1.1-4
#[tokio::test]
async fn rfc9289_5_1_1_a_session_ends_with_a_closure_alert() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let mut session = Session::open(server.address, &authority).await;
    session.send(&plain(1, COUNT)).await;
    session.next().await;
    server.stop().await;
    assert_eq!(session.rest().await, (Vec::new(), true));
    // The client's.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = raw::server_config(&authority.sign(&[NAME]));
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        raw::offer(&mut stream).await;
        let mut session = Session::server(stream, config);
        session.handshake().await.unwrap();
        session.rest().await
    });
    connect(address, authority.client()).await.unwrap().close().await;
    assert_eq!(server.await.unwrap(), (Vec::new(), true));
}

/// A stream that someone cuts is not taken for one that ended: the reply counts, the call after it is not answered by
/// the end.
#[tokio::test]
async fn an_end_without_a_closure_alert_is_a_lost_connection() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = raw::server_config(&authority.sign(&[NAME]));
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        raw::offer(&mut stream).await;
        let mut session = Session::server(stream, config);
        session.handshake().await.unwrap();
        session.next().await;
        session.stream.shutdown().await.unwrap();
        session.rest().await;
    });
    let client: Client = Client::builder()
        .config(quick(Some(authority.client())))
        .transport(Transport::tcp())
        .connect(address)
        .await
        .unwrap();
    let call = crate::support::call(COUNT).results(4).once();
    let error = client.call_raw(call).await.unwrap_err();
    assert!(
        matches!(&error, CallError::ConnectionLost { reason } if reason.to_string().contains("close_notify")),
        "{error}"
    );
}

/// Random bytes on an open session end it alone.
#[tokio::test]
async fn i6_a_session_with_a_forged_record_ends_alone() {
    let authority = Authority::new();
    let server =
        serve_with(program(), with(ServerConfig::default(), |config| config.tls = Some(authority.server())))
            .await;
    let good = connect(server.address, authority.client()).await.unwrap();
    let mut session = Session::open(server.address, &authority).await;
    session.send(&plain(1, COUNT)).await;
    session.next().await;
    // A record of application data with a wrong tag.
    session.stream.write_all(&[&[23, 3, 3, 0, 60][..], &[9; 60]].concat()).await.unwrap();
    let (after, closed) = session.rest().await;
    assert!(after.is_empty() && !closed);
    echo(&good, b"unharmed").await.unwrap();
    assert_eq!(count(&good).await.unwrap(), 2);
}
