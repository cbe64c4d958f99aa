//! Who is believed (RFC 9289 §4.2, §5.2), and what the handshake negotiates (§5).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use rpcrdma::tls::{ClientAuth, TlsClient, TlsServer};
use rpcrdma::{CallError, Client};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::raw::{self, Session, offered};
use super::{connect, refusal, serve};
use crate::support::certificates::{Authority, NAME, usages};
use crate::support::{COUNT, echo, put};

async fn serve_as(
    authority: &Authority,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> SocketAddr {
    let identity = authority.sign_with(names, change).identity();
    serve(TlsServer::new(identity, ClientAuth::None).unwrap()).await.address
}

fn expecting(name: &str, authority: &Authority) -> TlsClient {
    TlsClient::new(name, &authority.anchors(), None).unwrap()
}

// requirement: rfc9289-5.2.1-1
// requirement: rfc9289-5.2.1-7
#[tokio::test]
async fn rfc9289_5_2_1_a_server_of_another_authority() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let reason = refusal(server.address, Authority::new().client()).await;
    assert!(reason.contains("UnknownIssuer"), "{reason}");
    // The policy is about servers without TLS.
    refusal(server.address, Authority::new().client().opportunistic()).await;
    connect(server.address, authority.client()).await.unwrap();
}

// requirement: rfc9289-5.2.1-2
// requirement: rfc9289-5.2.1-8
#[tokio::test]
async fn rfc9289_5_2_1_the_name_of_the_server() {
    let authority = Authority::new();
    let server = serve_as(&authority, &["one.example", "two.example"], |_| {}).await;
    for name in ["one.example", "two.example", "TWO.example"] {
        let client = connect(server, expecting(name, &authority)).await.unwrap();
        echo(&client, name.as_bytes()).await.unwrap();
    }
    for name in ["three.example", "example", "a.one.example", "127.0.0.1"] {
        let reason = refusal(server, expecting(name, &authority)).await;
        assert!(reason.contains("not valid for name"), "{reason}");
    }
}

// requirement: rfc9289-5.2.1-9
// requirement: rfc9289-5.2.1-10
#[tokio::test]
async fn rfc9289_5_2_1_the_address_of_the_server() {
    let authority = Authority::new();
    let server = serve_as(&authority, &["127.0.0.1", "2001:db8::7"], |_| {}).await;
    for address in ["127.0.0.1", "2001:db8::7", "[2001:db8::7]"] {
        connect(server, expecting(address, &authority)).await.unwrap();
    }
    for address in ["127.0.0.2", "::1", NAME] {
        refusal(server, expecting(address, &authority)).await;
    }
    // A DNS name that looks like the address is none.
    assert!(TlsClient::new("not a name", &authority.anchors(), None).is_err());
}

// requirement: rfc9289-5.2.1-5
#[tokio::test]
async fn rfc9289_5_2_1_no_wildcards() {
    let authority = Authority::new();
    // The first one fits the expected name, the second one has a wildcard beside it.
    for names in [&["*.files.example"][..], &["one.files.example", "*.elsewhere.example"]] {
        let server = serve_as(&authority, names, |_| {}).await;
        let reason = refusal(server, expecting("one.files.example", &authority)).await;
        assert!(reason.contains("wildcard"), "{reason}");
    }
}

// requirement: rfc9289-5.2.1-7
#[tokio::test]
async fn rfc9289_5_2_1_a_certificate_has_its_time() {
    let authority = Authority::new();
    let old = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let reason = refusal(serve_as(&authority, &[NAME], old).await, authority.client()).await;
    assert!(reason.contains("expired"), "{reason}");
    let new = |params: &mut CertificateParams| params.not_before = date_time_ymd(3020, 1, 1);
    let reason = refusal(serve_as(&authority, &[NAME], new).await, authority.client()).await;
    assert!(reason.contains("not valid yet"), "{reason}");
}

/// §5.2.1.1: the usages of RPC-with-TLS serve, and so do those of TLS.
#[tokio::test]
async fn rfc9289_5_2_1_1_extended_key_usages() {
    let authority = Authority::new();
    let (client, server) = (usages(&[33]), usages(&[34]));
    let other = vec![ExtendedKeyUsagePurpose::CodeSigning];
    for (usages, good) in [
        (vec![], true),
        (vec![ExtendedKeyUsagePurpose::ServerAuth], true),
        (server.clone(), true),
        ([other.clone(), server.clone()].concat(), true),
        (client.clone(), false),
        (vec![ExtendedKeyUsagePurpose::ClientAuth], false),
        (other.clone(), false),
    ] {
        let server =
            serve_as(&authority, &[NAME], |params| params.extended_key_usages = usages.clone()).await;
        assert_eq!(connect(server, authority.client()).await.is_ok(), good, "{usages:?}");
        // The usage alone makes nobody trusted.
        refusal(server, Authority::new().client()).await;
        refusal(server, expecting("another.example", &authority)).await;
    }
    let server = serve(
        TlsServer::new(authority.sign(&[NAME]).identity(), ClientAuth::Required(authority.anchors()))
            .unwrap(),
    )
    .await;
    for (usages, good) in [(client, true), (vec![ExtendedKeyUsagePurpose::ClientAuth], true), (other, false)]
    {
        let certified = authority.sign_with(&[], |params| params.extended_key_usages = usages.clone());
        let client = connect(server.address, authority.known_client(&certified)).await.unwrap();
        assert_eq!(echo(&client, b"x").await.is_ok(), good, "{usages:?}");
    }
}

/// RFC 5280 §4.2.1.12: a certificate without the extension restricts nothing, whichever of the path it is. One with it lacks every
/// purpose that it does not name.
#[tokio::test]
async fn rfc9289_5_2_1_1_usages_below_an_intermediate_authority() {
    let (root, other) = (Authority::new(), vec![ExtendedKeyUsagePurpose::CodeSigning]);
    let tls = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let (rpc, none) = (usages(&[33, 34]), vec![]);
    for (above, below, good) in [
        (&none, &rpc, true),
        (&rpc, &rpc, true),
        (&rpc, &none, true),
        (&other, &rpc, false),
        (&none, &other, false),
        (&rpc, &other, false),
        // No purpose is in both.
        (&tls, &rpc, false),
        (&rpc, &tls, false),
    ] {
        let middle = root.intermediate(above.clone());
        let signed = |names: &[&str]| {
            let mut certified = middle.sign_with(names, |params| params.extended_key_usages = below.clone());
            certified.chain.push_str(&middle.pem());
            certified
        };
        let server = TlsServer::new(signed(&[NAME]).identity(), ClientAuth::None).unwrap();
        let server = serve(server).await;
        let connected = connect(server.address, root.client()).await;
        assert_eq!(connected.is_ok(), good, "a server's {below:?} below {above:?}");
        let clients = ClientAuth::Required(root.anchors());
        let server = serve(TlsServer::new(root.sign(&[NAME]).identity(), clients).unwrap()).await;
        let client = connect(server.address, root.known_client(&signed(&[]))).await.unwrap();
        assert_eq!(echo(&client, b"x").await.is_ok(), good, "a client's {below:?} below {above:?}");
    }
}

/// Returns the outcome of the first call, over which a server's refusal of the client's certificate becomes known.
async fn first_call(server: SocketAddr, tls: TlsClient) -> Result<(), String> {
    let client: Client = connect(server, tls).await.unwrap();
    match put(&client, bytes::Bytes::from_static(b"who am I")).await {
        Ok(_) => Ok(()),
        Err(error @ CallError::Tls { .. }) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// §4.2: if either side is not who it should be, there is no association.
// requirement: rfc9289-4.2-3
// requirement: rfc9289-5-4
// requirement: rfc9289-5.2.1-11
#[tokio::test]
async fn rfc9289_4_2_mutual_authentication() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let identity = authority.sign(&[NAME]).identity();
    let settings = TlsServer::new(identity, ClientAuth::Required(authority.anchors())).unwrap();
    let server = serve(settings.only()).await.address;
    first_call(server, authority.known_client(&authority.sign(&[]))).await.unwrap();
    let none = first_call(server, authority.client()).await.unwrap_err();
    assert!(none.contains("CertificateRequired"), "{none}");
    let unknown = first_call(server, authority.known_client(&foreign.sign(&[]))).await.unwrap_err();
    assert!(unknown.contains("UnknownCA"), "{unknown}");
    let old = authority.sign_with(&[], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let expired = first_call(server, authority.known_client(&old)).await.unwrap_err();
    assert!(expired.contains("CertificateExpired"), "{expired}");
    // RFC 9289 forbids wildcards in any certificate of RPC-with-TLS.
    first_call(server, authority.known_client(&authority.sign(&["*.files.example"]))).await.unwrap_err();
}

#[tokio::test]
async fn where_certificates_of_clients_are_optional_a_wrong_one_is_refused() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let identity = || authority.sign(&[NAME]).identity();
    let optional = TlsServer::new(identity(), ClientAuth::Optional(authority.anchors())).unwrap();
    let server = serve(optional).await.address;
    first_call(server, authority.client()).await.unwrap();
    first_call(server, authority.known_client(&authority.sign(&[]))).await.unwrap();
    first_call(server, authority.known_client(&foreign.sign(&[]))).await.unwrap_err();
    // A server that asks nobody's name does not look at it.
    let anonymous = serve(TlsServer::new(identity(), ClientAuth::None).unwrap()).await.address;
    first_call(anonymous, authority.known_client(&foreign.sign(&[]))).await.unwrap();
}

/// A client without certificate, which counts how often it is asked for one.
#[derive(Debug, Default)]
struct Asked(AtomicUsize);

impl ResolvesClientCert for Asked {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// §4.2: a server asks each client who it is. §6: no early data; and no tickets, so no session is resumed.
// requirement: rfc9289-4.2-2
// requirement: rfc9289-5-8
// requirement: rfc9289-5-9
// requirement: rfc9289-6-1
#[tokio::test]
async fn rfc9289_4_2_a_server_asks_for_a_certificate_and_gives_no_ticket() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let asked = Arc::new(Asked::default());
    let mut config = raw::client_config(&authority);
    config.alpn_protocols = vec![b"h2".to_vec(), b"sunrpc".to_vec()];
    config.client_auth_cert_resolver = Arc::clone(&asked) as _;
    config.enable_early_data = true;
    let config = Arc::new(config);
    for times in 1..3 {
        let mut session = Session::client(offered(server.address).await, &config);
        let rustls::Connection::Client(client) = &mut session.tls else { panic!("a client") };
        assert!(client.early_data().is_none());
        session.handshake().await.unwrap();
        // §5: the server names this protocol only.
        assert_eq!(session.tls.alpn_protocol(), Some(&b"sunrpc"[..]));
        session.send(&raw::plain(1, COUNT)).await;
        session.next().await;
        let rustls::Connection::Client(client) = &session.tls else { panic!("a client") };
        assert_eq!(client.tls13_tickets_received(), 0);
        assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(asked.0.load(Ordering::SeqCst), times);
    }
}

/// §5: a client names `sunrpc` by ALPN. Without it there is no session.
#[tokio::test]
async fn rfc9289_5_a_client_without_alpn_is_turned_away() {
    let authority = Authority::new();
    let server = serve(authority.server()).await;
    let mut session =
        Session::client(offered(server.address).await, &Arc::new(raw::client_config(&authority)));
    session.handshake().await.unwrap();
    session.send(&raw::plain(1, COUNT)).await;
    assert_eq!(session.rest().await, (Vec::new(), true));
    let mut config = raw::client_config(&authority);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut session = Session::client(offered(server.address).await, &Arc::new(config));
    let error = session.handshake().await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

/// §5: a client refuses a server that does not name `sunrpc`.
// requirement: rfc9289-5-6
// requirement: rfc9289-5-7
// requirement: rfc9289-5-10
#[tokio::test]
async fn rfc9289_5_a_server_without_alpn_is_refused() {
    let authority = Authority::new();
    for protocols in [vec![], vec![b"h2".to_vec()]] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = raw::server_config(&authority.sign(&[NAME]));
        config.alpn_protocols = protocols.clone();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            raw::offer(&mut stream).await;
            let mut session = Session::server(stream, config);
            let shaken = session.handshake().await;
            (shaken, session.rest().await.0)
        });
        let reason = refusal(address, authority.client()).await;
        let (shaken, calls) = server.await.unwrap();
        assert!(calls.is_empty());
        // A server of another protocol refuses the client itself: the client's ALPN is checked by that.
        assert_eq!(shaken.is_ok(), protocols.is_empty());
        let said = if protocols.is_empty() { "ALPN" } else { "NoApplicationProtocol" };
        assert!(reason.contains(said), "{reason}");
    }
}

/// §5: nothing before TLS 1.3.
// requirement: rfc9289-5-1
#[tokio::test]
async fn rfc9289_5_tls_1_2_is_refused() {
    let server = serve(Authority::new().server()).await;
    let mut stream = offered(server.address).await;
    // A ClientHello of TLS 1.2 (RFC 5246 §7.4.1.2): random, no session, one cipher suite, no compression.
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat();
    let length = u8::try_from(hello.len()).unwrap();
    let message = [&[1, 0, 0, length][..], &hello].concat();
    stream.write_all(&[&[22, 3, 1, 0, length + 4][..], &message].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut answer).await.unwrap();
    // An alert, fatal, with the description protocol_version (70) or handshake_failure (40).
    assert_eq!(answer[..6], [21, 3, 3, 0, 2, 2], "{answer:?}");
    assert!(matches!(answer[6], 70 | 40), "{answer:?}");
}
