use std::error::Error;
use std::io;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use rpcrdma_verbs as verbs;
use tokio::time::sleep;

use super::*;
use crate::cause::Cause;
use crate::endpoint::EndpointError;

const LIMIT: Duration = Duration::from_secs(12);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn three() -> Vec<SocketAddr> {
    ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(address).to_vec()
}

fn refused() -> AttemptError {
    verbs::ConnectError::Io(io::ErrorKind::ConnectionRefused.into()).into()
}

/// Tries an endpoint; each attempt is written down with its time, and ends as `open` says.
async fn tried<F>(
    endpoint: impl Into<Endpoint>,
    transport: Transport,
    open: impl Fn(SocketAddr, Duration) -> F,
) -> (Vec<(SocketAddr, Duration)>, Result<SocketAddr, ConnectError>)
where
    F: Future<Output = Result<(), AttemptError>>,
{
    let seen = Mutex::new(Vec::new());
    let outcome = first(&endpoint.into(), &transport, LIMIT, |address, time| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((address, time));
        open(address, time)
    })
    .await;
    (seen.into_inner().unwrap(), outcome.map(|(address, ())| address))
}

#[tokio::test(start_paused = true)]
async fn the_first_address_that_takes_a_connection_is_taken() {
    let good = address("192.0.2.2:1");
    let open = |at, _| async move { if at == good { Ok(()) } else { Err(refused()) } };
    let (seen, outcome) = tried(three(), Transport::rdma(), open).await;
    assert_eq!(outcome.unwrap(), good);
    let seen: Vec<SocketAddr> = seen.into_iter().map(|(address, _)| address).collect();
    assert_eq!(seen, three()[..2]);
}

/// An address that does not answer takes its own part of the time, and all attempts together take the limit.
#[tokio::test(start_paused = true)]
async fn attempts_share_one_time_limit() {
    let began = Instant::now();
    let silent = |_, time| async move {
        sleep(time).await;
        Err(verbs::ConnectError::Timeout("test").into())
    };
    let (seen, outcome) = tried(three(), Transport::rdma(), silent).await;
    assert_eq!(outcome.unwrap_err().attempts().len(), 3);
    let times: Vec<Duration> = seen.into_iter().map(|(_, time)| time).collect();
    assert_eq!(times, [LIMIT / 3; 3]);
    assert_eq!(began.elapsed(), LIMIT);
}

/// A refusal takes no time, which the next address then has.
#[tokio::test(start_paused = true)]
async fn time_that_an_attempt_leaves_is_for_the_others() {
    let (seen, _) = tried(three(), Transport::rdma(), |_, _| async { Err(refused()) }).await;
    let times: Vec<Duration> = seen.into_iter().map(|(_, time)| time).collect();
    assert_eq!(times, [LIMIT / 3, LIMIT / 2, LIMIT]);
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_too_long() {
    let open = |_, _| async { Ok(()) };
    let opened = first(&three().into(), &Transport::tcp(), Duration::MAX, open).await;
    assert_eq!(opened.unwrap().0, three()[0]);
}

/// RFC 8267 §9: NFS over RDMA has port 20049.
#[tokio::test(start_paused = true)]
async fn the_transport_decides_the_default_port() {
    for (transport, port) in [(Transport::rdma(), 20049), (Transport::tcp(), 2049)] {
        for (text, expected) in [("192.0.2.1", port), ("[2001:db8::1]", port), ("192.0.2.1:7", 7)] {
            let (_, outcome) = tried(text, transport.clone(), |_, _| async { Ok(()) }).await;
            assert_eq!(outcome.unwrap().port(), expected, "{text} {transport:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_names_no_server_is_not_tried() {
    let (seen, outcome) = tried("[::1", Transport::rdma(), |_, _| async { Ok(()) }).await;
    let error = outcome.unwrap_err();
    assert!(seen.is_empty());
    assert!(matches!(&error, ConnectError::Endpoint { error: EndpointError::Brackets, .. }), "{error}");
    assert!(error.to_string().starts_with("\"[::1\" names no server: brackets enclose"), "{error}");
    let source = error.source().unwrap().downcast_ref::<EndpointError>();
    assert_eq!(source, Some(&EndpointError::Brackets));
    assert_eq!(error.endpoint(), Some(&"[::1".into()));
}

/// The time for the lookup is part of the limit. The only thread for lookups is busy here.
#[test]
fn a_lookup_without_an_answer_ends_in_time() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    let (done, busy) = mpsc::channel::<()>();
    runtime.block_on(async {
        let thread = tokio::task::spawn_blocking(move || busy.recv());
        let open = |_, _| async { Ok(()) };
        let outcome = first(&"localhost:1".into(), &Transport::tcp(), Duration::ZERO, open).await;
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), "cannot find the address of localhost:1: no answer within 0ns");
        let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.kind(), io::ErrorKind::TimedOut);
        drop(done);
        thread.await.unwrap().unwrap_err();
    });
}

/// Resolvers refuse the name of a zone that this machine has not, without asking anybody.
#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_told() {
    let endpoint = "[fe80::1%no-such-zone]:1";
    let (seen, outcome) = tried(endpoint, Transport::rdma(), |_, _| async { Ok(()) }).await;
    let error = outcome.unwrap_err();
    assert!(seen.is_empty());
    let expected = format!("cannot find the address of {endpoint}: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(error.source().unwrap().is::<io::Error>());
}

/// Every message names the endpoint and the addresses, each of them once.
#[test]
fn messages_name_each_address_once() {
    let unreachable = |endpoint: Endpoint, errors: Vec<(&str, AttemptError)>| ConnectError::Unreachable {
        endpoint,
        transport: TransportKind::Rdma,
        attempts: errors.into_iter().map(|(at, error)| Attempt { address: address(at), error }).collect(),
    };
    let timeout = || AttemptError::Link(verbs::ConnectError::Timeout("RDMA connection"));
    let tls = || AttemptError::Tls(Cause::message("the server does not offer TLS"));
    for (error, expected) in [
        (
            unreachable("192.0.2.1:1".into(), vec![("192.0.2.1:1", refused())]),
            "cannot connect to 192.0.2.1:1 over RDMA: connection refused",
        ),
        (
            unreachable("192.0.2.1".into(), vec![("192.0.2.1:20049", timeout())]),
            "cannot connect to 192.0.2.1:20049 over RDMA: timeout during connection set-up: RDMA connection",
        ),
        (
            unreachable("server".into(), vec![("192.0.2.1:20049", tls())]),
            "cannot connect to server (192.0.2.1:20049) over RDMA: the server does not offer TLS",
        ),
        (
            unreachable("server:1".into(), vec![("192.0.2.1:1", refused()), ("[2001:db8::1]:1", tls())]),
            "cannot connect to server:1 over RDMA: 192.0.2.1:1: connection refused; \
             [2001:db8::1]:1: the server does not offer TLS",
        ),
        (
            unreachable(three().into(), three_refused()),
            "cannot connect over RDMA: 192.0.2.1:1: connection refused; 192.0.2.2:1: connection refused; \
             192.0.2.3:1: connection refused",
        ),
        (
            ConfigError::Connections { asked: 0, most: 16 }.into(),
            "invalid configuration: 0 connections; a client has 1 to 16",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

fn three_refused() -> Vec<(&'static str, AttemptError)> {
    vec![("192.0.2.1:1", refused()), ("192.0.2.2:1", refused()), ("192.0.2.3:1", refused())]
}

/// From the error of a client down to that of the system.
#[test]
fn the_source_of_a_failed_attempt_is_the_error_below() {
    let last = Attempt { address: address("192.0.2.2:1"), error: refused() };
    let late = AttemptError::Link(verbs::ConnectError::Timeout("test"));
    let attempts = vec![Attempt { address: address("192.0.2.1:1"), error: late }, last];
    let error =
        ConnectError::Unreachable { endpoint: three().into(), transport: TransportKind::Tcp, attempts };
    let attempt = error.source().unwrap().downcast_ref::<AttemptError>().unwrap();
    assert!(attempt.is_refused());
    let link = attempt.source().unwrap().downcast_ref::<verbs::ConnectError>().unwrap();
    let system = link.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(system.kind(), io::ErrorKind::ConnectionRefused);

    let tls = AttemptError::Tls(Cause::new(io::Error::other("a fault of TLS")));
    assert!(!tls.is_refused());
    assert!(tls.source().unwrap().is::<io::Error>());
    let config = ConnectError::from(ConfigError::TlsOverRdma);
    assert!(config.source().unwrap().is::<ConfigError>());
    assert!(config.endpoint().is_none() && config.attempts().is_empty());
}
