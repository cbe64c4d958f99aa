//! Handlers learn who the client at the other end of a TLS connection is.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rpcrdma::tls::{ClientAuth, TlsClient, TlsServer};
use rpcrdma::{
    CallContext, Client, ConnectionContext, NextService, ResponseFuture, Server, ServerConfig, ServerHandle,
    TransportKind,
};
use rpcrdma_xdr::Decoder;
use tokio::net::TcpListener;

use super::{connect, quick};
use crate::support::certificates::{Authority, NAME};
use crate::support::{echo, program};

/// The knowledge of a handler.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Lengths of the certificates.
    certificates: Vec<usize>,
    names: Vec<String>,
    server_name: Option<String>,
    suite: String,
}

type Told = Arc<Mutex<Vec<Option<Facts>>>>;

/// Starts a server that notes the facts of each call.
async fn serve(tls: TlsServer, hosts: &'static [(&str, bool)]) -> (SocketAddr, Told, ServerHandle) {
    let told = Told::default();
    let notes = Arc::clone(&told);
    let note = move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        assert_eq!(context.transport, TransportKind::Tcp);
        let facts = context.tls().map(|tls| {
            for (host, expected) in hosts {
                assert_eq!(tls.is_host(host), *expected, "{host}");
            }
            Facts {
                certificates: tls.certificates().map(<[u8]>::len).collect(),
                names: tls.dns_names(),
                server_name: tls.server_name().map(str::to_owned),
                suite: tls.cipher_suite().to_owned(),
            }
        });
        notes.lock().unwrap().push(facts);
        next.call(context, arguments)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ServerConfig { tls: Some(tls), ..ServerConfig::default() };
    let server = Server::builder().config(config).program(program()).intercept(note);
    let server = server.listen_tcp(listener).build().unwrap().spawn();
    (server.tcp_addresses().unwrap()[0], told, server)
}

/// Returns the facts of one call.
async fn facts(client: &Client, told: &Told) -> Option<Facts> {
    echo(client, b"told").await.unwrap();
    let mut told = told.lock().unwrap();
    assert_eq!(told.len(), 1);
    told.pop().unwrap()
}

#[tokio::test]
async fn a_handler_knows_the_certificates_of_a_client() {
    let authority = Authority::new();
    let between = authority.intermediate(Vec::new());
    let mut certified = between.sign(&["client.example", "other.example", "192.0.2.7"]);
    certified.chain.push_str(&between.pem());
    let tls = TlsServer::new(authority.sign(&[NAME]).identity(), ClientAuth::Required(authority.anchors()))
        .unwrap();
    let hosts = &[
        ("client.example", true),
        ("OTHER.example", true),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        (NAME, false),
        ("a.client.example", false),
        ("not a name", false),
        ("", false),
    ];
    let (address, told, server) = serve(tls, hosts).await;
    let client = connect(address, authority.known_client(&certified)).await.unwrap();
    let told = facts(&client, &told).await.unwrap();
    assert_eq!(
        (told.names, told.server_name.as_deref()),
        (vec!["client.example".to_owned(), "other.example".to_owned()], Some(NAME))
    );
    assert!(told.suite.starts_with("TLS13_"), "{}", told.suite);
    assert!(
        told.certificates.len() == 2 && told.certificates.iter().all(|len| *len > 100),
        "{:?}",
        told.certificates
    );
    let monitor = server.monitor();
    assert!(monitor.stats().memory_in_use > told.certificates.iter().sum());
    client.close().await;
    server.shutdown().await.unwrap();
    assert_eq!(monitor.stats().memory_in_use, 0);
}

#[tokio::test]
async fn a_certificate_that_nobody_checks_counts_for_nothing() {
    let authority = Authority::new();
    let certified = authority.sign(&["client.example"]);
    let by_address = TlsClient::new("127.0.0.1", &authority.anchors(), None).unwrap();
    for (clients, names, client) in [
        (ClientAuth::None, NAME, authority.known_client(&certified)),
        (ClientAuth::Optional(authority.anchors()), NAME, authority.client()),
        // An address is no name that TLS could carry (RFC 6066 §3).
        (ClientAuth::None, "127.0.0.1", by_address),
    ] {
        let tls = TlsServer::new(authority.sign(&[names]).identity(), clients).unwrap();
        let (address, told, _server) = serve(tls, &[("client.example", false), (NAME, false)]).await;
        let told = facts(&connect(address, client).await.unwrap(), &told).await.unwrap();
        assert_eq!((told.certificates, told.names), (vec![], vec![]));
        assert_eq!(told.server_name.as_deref(), (names == NAME).then_some(NAME));
    }
}

#[tokio::test]
async fn a_connection_without_tls_has_no_such_facts() {
    let (address, told, _server) = serve(Authority::new().server(), &[]).await;
    let client = Client::tcp(address, quick(None)).await.unwrap();
    assert_eq!(facts(&client, &told).await, None);
}
