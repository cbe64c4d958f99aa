//! The probe for TLS, and calls without TLS (RFC 9289 §4.1).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rpcrdma::{CallError, Client, ClientConfig, ConfigError, ConnectError, ServerConfig, Transport};
use rpcrdma_oncrpc::{AcceptStat, AuthStat, Refused, RejectReason, ReplyHeader};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::raw::{self, AUTH_TLS, Session, header, next, plain, record, token};
use super::{connect, quick, refusal, serve, serve_with};
use crate::support::certificates::Authority;
use crate::support::{COUNT, PROGRAM, SLEEP, count, echo, program};

fn denied(xid: u32, stat: AuthStat) -> ReplyHeader {
    ReplyHeader::denied(xid, RejectReason::AuthError(stat))
}

/// §4.1: without the token there is no ClientHello; policy decides on the rest.
// requirement: rfc9289-4.1-8
#[tokio::test]
async fn rfc9289_4_1_a_server_without_tls() {
    let authority = Authority::new();
    let server = serve_with(program(), ServerConfig::default()).await;
    let reason = refusal(server.address, authority.client()).await;
    assert!(reason.contains("does not offer TLS") && reason.contains("STARTTLS"), "{reason}");
    let client = connect(server.address, authority.client().opportunistic()).await.unwrap();
    echo(&client, b"without TLS").await.unwrap();
    assert_eq!(client.stats().connections, 1);
}

/// §4.1: the port is the same with TLS and without.
// requirement: rfc9289-4.1-1
#[tokio::test]
async fn rfc9289_4_1_an_offer_binds_nobody() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let under = connect(server.address, authority.client()).await.unwrap();
    let without = Client::builder()
        .config(quick(None))
        .transport(Transport::tcp())
        .connect(server.address)
        .await
        .unwrap();
    assert_eq!(count(&under).await.unwrap(), 1);
    assert_eq!(count(&without).await.unwrap(), 2);
}

/// A server that serves under TLS only tells others why they get nothing. NULL needs no TLS.
#[tokio::test]
async fn calls_without_tls_get_auth_tooweak_where_tls_is_required() {
    let authority = Authority::new();
    let program = program();
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server().only());
    let server = serve_with(Arc::clone(&program), config).await;
    let client = Client::builder()
        .config(quick(None))
        .transport(Transport::tcp())
        .connect(server.address)
        .await
        .unwrap();
    client.null(PROGRAM, 1).await.unwrap();
    let error = count(&client).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::AuthError(AuthStat::TooWeak))), "{error}");
    assert_eq!(program.calls.load(Ordering::SeqCst), 0);
    // RFC 2203 §5.2.2: NULL of RPCSEC_GSS makes a context.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&record(5, PROGRAM, 0, (6, &[1, 1, 0, 1, 0]), (0, &[]))).await.unwrap();
    assert_eq!(header(&next(&mut stream).await), denied(5, AuthStat::TooWeak));
    // The connection can still have TLS.
    stream.write_all(&raw::probe(6)).await.unwrap();
    let offer = ReplyHeader::accepted(6, AcceptStat::Success).with_verifier(token());
    assert_eq!(header(&next(&mut stream).await), offer);
}

/// §4.1: AUTH_TLS is for NULL, and for a connection without TLS.
// requirement: rfc9289-4.1-9
#[tokio::test]
async fn rfc9289_4_1_auth_tls_out_of_place_gets_auth_badcred() {
    let authority = Authority::new();
    let program = program();
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server());
    let server = serve_with(Arc::clone(&program), config).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&record(1, PROGRAM, COUNT, (AUTH_TLS, &[]), (0, &[]))).await.unwrap();
    assert_eq!(header(&next(&mut stream).await), denied(1, AuthStat::BadCred));
    let mut session = Session::open(server.address, &authority).await;
    for (xid, procedure) in [(2, 0), (3, COUNT)] {
        session.send(&record(xid, PROGRAM, procedure, (AUTH_TLS, &[]), (0, &[]))).await;
        assert_eq!(header(&session.next().await), denied(xid, AuthStat::BadCred));
    }
    assert_eq!(program.calls.load(Ordering::SeqCst), 0);
    // The session goes on.
    session.send(&plain(4, COUNT)).await;
    assert_eq!(header(&session.next().await), ReplyHeader::accepted(4, AcceptStat::Success));
}

/// A server without TLS does not know the flavour (RFC 5531 §8.2).
#[tokio::test]
async fn auth_tls_at_a_server_without_tls() {
    let server = serve_with(program(), ServerConfig::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&record(1, PROGRAM, COUNT, (AUTH_TLS, &[]), (0, &[]))).await.unwrap();
    assert_eq!(header(&next(&mut stream).await), denied(1, AuthStat::BadCred));
    stream.write_all(&raw::probe(2)).await.unwrap();
    assert_eq!(header(&next(&mut stream).await), ReplyHeader::accepted(2, AcceptStat::Success));
}

/// §4.1: the credential of a probe is empty, its verifier an empty one of AUTH_NONE.
// requirement: rfc9289-4.1-2
// requirement: rfc9289-4.1-3
#[tokio::test]
async fn rfc9289_4_1_a_probe_of_another_form_is_refused() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for (xid, credential, verifier, stat) in [
        (1, (AUTH_TLS, &[7][..]), (0, &[][..]), AuthStat::BadCred),
        (2, (AUTH_TLS, &[]), (0, &[7]), AuthStat::BadVerf),
        (3, (AUTH_TLS, &[]), (1, &[]), AuthStat::BadVerf),
        (4, (AUTH_TLS, &[]), (AUTH_TLS, &[]), AuthStat::BadVerf),
    ] {
        stream.write_all(&record(xid, PROGRAM, 0, credential, verifier)).await.unwrap();
        assert_eq!(header(&next(&mut stream).await), denied(xid, stat));
    }
    stream.write_all(&raw::probe(5)).await.unwrap();
    let offer = ReplyHeader::accepted(5, AcceptStat::Success).with_verifier(token());
    assert_eq!(header(&next(&mut stream).await), offer);
}

/// §4.1: the status of the reply does not matter, so a probe of any program serves.
// requirement: rfc9289-4.1-4
// requirement: rfc9289-4.1-5
#[tokio::test]
async fn rfc9289_4_1_a_probe_of_another_program_serves_too() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&record(1, PROGRAM + 7, 0, (AUTH_TLS, &[]), (0, &[]))).await.unwrap();
    let offer = ReplyHeader::accepted(1, AcceptStat::ProgramUnavailable).with_verifier(token());
    assert_eq!(header(&next(&mut stream).await), offer);
    // A client without a program asks for rpcbind, which this server does not have.
    let mut config = quick(Some(authority.client()));
    config.protocol.program = None;
    let client =
        Client::builder().config(config).transport(Transport::tcp()).connect(server.address).await.unwrap();
    echo(&client, b"under TLS").await.unwrap();
}

/// Calls before the probe are answered before it: nothing may come between the offer and the handshake.
#[tokio::test]
async fn rfc9289_5_1_1_a_probe_waits_for_the_calls_before_it() {
    let authority = Authority::new();
    let program = program();
    program.held.send_replace(true);
    let mut config = ServerConfig::default();
    config.tls = Some(authority.server());
    let server = serve_with(Arc::clone(&program), config).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let sleep = {
        let mut call = plain(1, SLEEP);
        call.extend([0; 4]);
        call[3] += 4;
        call
    };
    stream.write_all(&sleep).await.unwrap();
    stream.write_all(&raw::probe(2)).await.unwrap();
    while server.monitor.stats().calls < 2 {
        tokio::task::yield_now().await;
    }
    program.held.send_replace(false);
    assert_eq!(header(&next(&mut stream).await), ReplyHeader::accepted(1, AcceptStat::Success));
    let offer = ReplyHeader::accepted(2, AcceptStat::Success).with_verifier(token());
    assert_eq!(header(&next(&mut stream).await), offer);
}

/// §4.1, §5.1.3: the mechanism is for TCP; over RDMA the client does not pretend.
#[tokio::test]
async fn rfc9289_5_1_3_a_client_over_rdma_refuses_the_setting() {
    let mut config = ClientConfig::default();
    config.tls = Some(Authority::new().client());
    let refused = Client::builder().config(config).connect("127.0.0.1:1").await;
    let refused = refused.err().unwrap();
    assert!(matches!(refused, ConnectError::Config(ConfigError::TlsOverRdma)), "{refused}");
}
