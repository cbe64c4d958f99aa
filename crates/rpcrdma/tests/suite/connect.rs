//! Opening clients: endpoints of every kind, servers with several addresses, and what is refused before anything is
//! sent.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::experimental::{Profile, ReadRead};
use rpcrdma::{
    AttemptError, CallError, Client, ClientBuilder, ClientConfig, ConfigError, ConnectError, Endpoint,
    RegisterError, Server, Transport, Versions, verbs,
};
use rpcrdma_iwarp::IwarpListener;
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::certificates::Authority;
use crate::support::{PROGRAM, VERSION, echo, program};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
/// Nobody listens at this port of this machine.
const NOBODY: &str = "127.0.0.1:1";

/// Serves over TCP and software iWARP; returns both addresses.
async fn serve() -> [SocketAddr; 2] {
    serve_on("127.0.0.1:0").await
}

/// Serves over TCP and software iWARP at this address of the machine, whose port is 0; returns both addresses.
async fn serve_on(any: &str) -> [SocketAddr; 2] {
    let tcp = TcpListener::bind(any).await.unwrap();
    let any = any.parse().unwrap();
    let rdma = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let by_tcp = tcp.local_addr().unwrap();
    let server =
        Server::builder().program(program()).listen_tcp(tcp).listen_rdma(Box::new(rdma)).build().unwrap();
    let by_rdma = server.rdma_addresses().unwrap()[0];
    tokio::spawn(server.serve(std::future::pending()));
    [by_tcp, by_rdma]
}

/// Serves at addresses of a fabric.
fn serve_at(fabric: &Fabric, addresses: &[&str]) {
    for address in addresses {
        let listener = fabric.listen(address.parse().unwrap()).unwrap();
        let server = Server::builder().program(program()).listen_rdma(Box::new(listener)).build().unwrap();
        tokio::spawn(server.serve(std::future::pending()));
    }
}

fn on(fabric: &Fabric) -> ClientBuilder {
    Client::builder().transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
}

/// Connects and makes a call; returns the address of the server.
async fn reach(builder: ClientBuilder, endpoint: impl Into<Endpoint>) -> SocketAddr {
    let client = builder.connect(endpoint).await.unwrap();
    echo(&client, b"there").await.unwrap();
    client.close().await;
    client.peer_address()
}

async fn refusal(builder: ClientBuilder, endpoint: impl Into<Endpoint>) -> ConnectError {
    builder.connect(endpoint).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_server_is_named_by_address_or_by_name() {
    let [tcp, rdma] = serve().await;
    for (transport, at) in [(Transport::tcp(), tcp), (Transport::rdma(), rdma)] {
        let builder = || Client::builder().transport(transport.clone());
        for endpoint in [
            Endpoint::from(at),
            at.to_string().into(),
            format!("localhost:{}", at.port()).into(),
            ("localhost", at.port()).into(),
            (at.ip(), at.port()).into(),
        ] {
            assert_eq!(reach(builder(), &endpoint).await, at, "{endpoint}");
        }
    }
    let client = Client::connect(rdma.to_string()).await.unwrap();
    assert!(client.rdma().is_some());
    client.null(PROGRAM, VERSION).await.unwrap();
}

#[tokio::test]
async fn the_first_address_refuses_and_the_second_answers() {
    let [tcp, rdma] = serve().await;
    for (transport, at) in [(Transport::tcp(), tcp), (Transport::rdma(), rdma)] {
        let mut config = ClientConfig::default();
        config.connections = 2;
        let addresses = vec![NOBODY.parse().unwrap(), at];
        let builder = Client::builder().config(config).transport(transport);
        assert_eq!(reach(builder, addresses).await, at);
    }
}

/// Further connections, and those after a loss, go to the address that answered.
#[tokio::test(start_paused = true)]
async fn a_client_stays_with_the_address_that_answered() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let addresses: [SocketAddr; 2] = ["192.0.2.1:20049", "192.0.2.2:20049"].map(|text| text.parse().unwrap());
    serve_at(&fabric, &["192.0.2.2:20049"]);
    tokio::task::yield_now().await;
    let mut config = ClientConfig::default();
    config.connections = 2;
    let client = on(&fabric).config(config).connect(&addresses[..]).await.unwrap();
    assert_eq!((client.peer_address(), client.connections()), (addresses[1], 2));
    // A server at the first address comes too late for this client.
    let late = fabric.listen(addresses[0]).unwrap();
    for connection in fabric.connections() {
        fabric.cut(connection);
    }
    echo(&client, b"again").await.unwrap();
    assert_eq!(client.peer_address(), addresses[1]);
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn ipv6_addresses_have_brackets_and_a_port_may_be_missing() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    serve_at(&fabric, &["[2001:db8::1]:20049", "192.0.2.1:20049", "[2001:db8::1]:7"]);
    tokio::task::yield_now().await;
    for (endpoint, expected) in [
        ("[2001:db8::1]:20049", "[2001:db8::1]:20049"),
        ("[2001:db8::1]", "[2001:db8::1]:20049"),
        ("[2001:DB8:0::1]:7", "[2001:db8::1]:7"),
        ("192.0.2.1", "192.0.2.1:20049"),
    ] {
        assert_eq!(reach(on(&fabric), endpoint).await, expected.parse().unwrap(), "{endpoint}");
    }
    let bare = refusal(on(&fabric), "2001:db8::1").await;
    assert!(bare.to_string().contains("needs brackets"), "{bare}");
}

/// Sockets of this machine, by all forms of an endpoint.
#[tokio::test]
async fn tcp_and_iwarp_have_ipv6() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        return; // no IPv6 here
    }
    let [tcp, rdma] = serve_on("[::1]:0").await;
    for (transport, address) in [(Transport::tcp(), tcp), (Transport::rdma(), rdma)] {
        let port = address.port();
        let dead = SocketAddr::new(address.ip(), 1);
        let endpoints: [Endpoint; 4] = [
            address.into(),
            format!("[::1]:{port}").into(),
            ("::1", port).into(),
            // Addresses of both families: the first two take no connection.
            vec![NOBODY.parse().unwrap(), dead, address].into(),
        ];
        for endpoint in endpoints {
            let text = endpoint.to_string();
            let builder = Client::builder().transport(transport.clone());
            assert_eq!(reach(builder, endpoint).await, address, "{transport:?} {text}");
        }
    }
}

/// An address that does not answer takes its part of the time only.
#[tokio::test(start_paused = true)]
async fn a_silent_address_leaves_time_for_the_next() {
    let fabric = Fabric::on_tokio(FabricConfig {
        setup_timeout: Duration::from_secs(3600),
        ..FabricConfig::default()
    });
    let silent = fabric.listen("192.0.2.1:20049".parse().unwrap()).unwrap();
    serve_at(&fabric, &["192.0.2.2:20049"]);
    tokio::task::yield_now().await;
    let addresses: Vec<SocketAddr> =
        ["192.0.2.1:20049", "192.0.2.2:20049"].map(|text| text.parse().unwrap()).to_vec();
    let mut config = ClientConfig::default();
    config.protocol.timeouts.connect = Duration::from_secs(8);
    let began = Instant::now();
    let client = on(&fabric).config(config.clone()).connect(addresses.clone()).await.unwrap();
    assert_eq!(client.peer_address(), addresses[1]);
    let took = began.elapsed();
    assert!((4..5).contains(&took.as_secs()), "{took:?}");

    // Both together take the whole time, and no more.
    let began = Instant::now();
    let error = refusal(on(&fabric).config(config), vec![addresses[0]; 2]).await;
    let late = |error: &AttemptError| matches!(error, AttemptError::Link(verbs::ConnectError::Timeout(_)));
    assert!(error.attempts().len() == 2 && error.attempts().iter().all(|at| late(&at.error)), "{error}");
    assert_eq!(began.elapsed().as_secs(), 8);
    drop(silent);
}

/// Returns the error of the system below an error.
fn system<'a>(error: &'a (dyn Error + 'static)) -> &'a io::Error {
    let mut below = error.source();
    while let Some(error) = below {
        if let Some(error) = error.downcast_ref() {
            return error;
        }
        below = error.source();
    }
    panic!("{error} has no error of the system below");
}

/// A call without a connection leads to the error of the attempt, and of the system below.
#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_connection_has_the_attempt_as_its_source() {
    let address: SocketAddr = "192.0.2.1:20049".parse().unwrap();
    for attempts in [None, Some(3)] {
        let fabric = Fabric::on_tokio(FabricConfig::default());
        serve_at(&fabric, &["192.0.2.1:20049"]);
        tokio::task::yield_now().await;
        let mut config = ClientConfig::default();
        config.protocol.connect_attempts = attempts;
        let client = on(&fabric).config(config).connect(address).await.unwrap();
        fabric.refuse(address, usize::MAX);
        for connection in fabric.connections() {
            fabric.cut(connection);
        }
        let error = client.null(PROGRAM, VERSION).await.unwrap_err();
        match attempts {
            None => assert!(matches!(error, CallError::TimedOut { link: Some(_), .. }), "{error}"),
            Some(_) => assert!(matches!(error, CallError::Unreachable { .. }), "{error}"),
        }
        assert_eq!(system(&error).kind(), io::ErrorKind::ConnectionRefused, "{error}");
        assert!(error.to_string().ends_with("connection refused"), "{error}");
    }
}

/// The error names the address once, and leads to the error of the system.
#[tokio::test]
async fn an_unreachable_server_is_named_with_the_reason() {
    for (transport, name) in [(Transport::tcp(), "TCP"), (Transport::rdma(), "RDMA")] {
        let error = refusal(Client::builder().transport(transport), NOBODY).await;
        let expected = format!("cannot connect to {NOBODY} over {name}: Connection refused");
        let text = error.to_string();
        assert!(text.starts_with(&expected) && text.matches(NOBODY).count() == 1, "{text}");
        assert_eq!(error.endpoint(), Some(&NOBODY.into()));
        let [attempt] = error.attempts() else { panic!("{error}") };
        assert!(attempt.error.is_refused() && attempt.address.to_string() == NOBODY);
        assert_eq!(system(&error).kind(), io::ErrorKind::ConnectionRefused);
    }
}

/// Settings that cannot work are told before the endpoint is looked at, which names no server here.
#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
    let builder = |transport: Transport, change: fn(&mut ClientConfig)| {
        let mut config = ClientConfig::default();
        change(&mut config);
        Client::builder().config(config).transport(transport)
    };
    let rdma = |change| builder(Transport::rdma(), change);
    let tcp = |change| builder(Transport::tcp(), change);
    let connections = |asked| ConfigError::Connections { asked, most: ClientConfig::MAX_CONNECTIONS };
    let receive = verbs::ProtectionDomain::room_for(4096);
    for (builder, expected) in [
        (rdma(|config| config.connections = 0), connections(0)),
        (tcp(|config| config.connections = 17), connections(17)),
        (rdma(|config| config.tls = Some(Authority::new().client())), ConfigError::TlsOverRdma),
        (tcp(|_| {}).program(program()), ConfigError::ServesOverTcp { programs: 1 }),
        (
            rdma(|config| config.connections = 2).program(program()),
            ConfigError::ServesOnSeveral { connections: 2 },
        ),
        (
            rdma(|_| {}).program(program()).program(program()),
            RegisterError::Duplicate { program: PROGRAM, version: VERSION }.into(),
        ),
        (
            rdma(|config| {
                config.protocol.reverse_chunks = true;
                config.protocol.compatibility.read_read = Some(ReadRead::default());
            }),
            ConfigError::ReverseChunksAndReadRead,
        ),
        (
            rdma(|config| (config.connections, config.memory) = (2, 4096)),
            ConfigError::Memory { memory: 4096, receive, connections: 2 },
        ),
        (rdma(|config| config.protocol.versions = Versions::two(Profile::P1)), rpcrdma::NoProgram.into()),
    ] {
        let error = refusal(builder, "").await;
        let ConnectError::Config(refused) = &error else { panic!("{expected}: {error}") };
        assert_eq!(*refused, expected);
        assert_eq!(error.to_string(), format!("invalid configuration: {expected}"));
        assert_eq!(error.source().unwrap().downcast_ref::<ConfigError>(), Some(&expected));
    }
    let error = refusal(rdma(|_| {}), "").await;
    assert!(matches!(error, ConnectError::Endpoint { .. }), "{error}");
}
