//! Tests of the control protocol against servers that are no benchmark servers, or of another version.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{Binding, Server, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::control::protocol::{PROGRAM, VERSION};
use super::control::{Ask, Session};
use crate::exit::Exit;

rpcrdma::program! {
    /// A later version of the control protocol, without procedures.
    mod later {
        program super::PROGRAM, version super::VERSION + 7;
    }
}

rpcrdma::program! {
    /// Another program, without procedures.
    mod other {
        program super::PROGRAM + 1, version super::VERSION;
    }
}

struct Nothing;

impl later::Service for Nothing {}

impl other::Service for Nothing {}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves this program, and returns the complaint of a client that wants a session.
async fn complaint_about(program: impl Binding) -> (Exit, String) {
    let (listener, address) = listener().await;
    let mut config = ServerConfig::default();
    config.grace = Duration::ZERO;
    config.local_owners = false;
    let server = Server::builder().config(config).program(Arc::new(program)).listen_tcp(listener);
    tokio::spawn(server.build().unwrap().serve(std::future::pending()));
    complaint_at(address).await
}

async fn complaint_at(address: SocketAddr) -> (Exit, String) {
    let ask = Ask { name: "test".to_owned(), connections: 1, depth: 1, size: 1, seconds: 1 };
    let failure = Session::open(&[address], &ask).await.err().unwrap();
    (failure.exit(), failure.to_string())
}

#[tokio::test]
async fn another_version_of_the_control_protocol_is_named() {
    let (exit, complaint) = complaint_about(later::serve(Nothing)).await;
    assert_eq!(exit, Exit::Failed);
    let expected =
        format!("speaks version {} of the control protocol, and this rpcrdma version {VERSION}", VERSION + 7);
    assert!(complaint.contains(&expected), "{complaint}");
}

#[tokio::test]
async fn a_server_of_other_programs_is_no_bench_server() {
    let (exit, complaint) = complaint_about(other::serve(Nothing)).await;
    assert_eq!(exit, Exit::Failed);
    assert!(complaint.contains("is no bench server"), "{complaint}");
}

#[tokio::test]
async fn i6_a_port_without_rpc_is_no_bench_server() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 40];
            // The client may have gone already.
            let _ = stream.read_exact(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let (exit, complaint) = complaint_at(address).await;
    assert_eq!(exit, Exit::Unreachable);
    assert!(complaint.contains("does not answer as a bench server does"), "{complaint}");
}

#[tokio::test]
async fn a_closed_port_names_the_command_that_is_missing() {
    let (listener, address) = listener().await;
    drop(listener);
    let (exit, complaint) = complaint_at(address).await;
    assert_eq!(exit, Exit::Unreachable);
    assert!(complaint.contains("rpcrdma bench --server"), "{complaint}");
}
