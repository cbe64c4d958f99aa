//! Tests of the Connection Configuration Protocol (RFC 5666 §6) between our client and our server. They run on the
//! simulated fabric under tokio's paused clock, and on software iWARP over loopback.

mod protection;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{echo, echo_call, get, pattern, program, put, put_call};
use bytes::Bytes;
use rpcrdma::ccp::ConfigRequest;
use rpcrdma::ccp::rdmaconfig::{self, ConfRdma};
use rpcrdma::{
    Agreement, Binding, Call, CallContext, CallError, CcpClient, CcpServer, Client, ClientConfig, Credential,
    Effect, Form, GssUser, ProcedureInfo, Program, ResponseFuture, Server, ServerConfig, ServerMonitor,
    Transport,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_oncrpc::gss::testing::TestMechanism;
use rpcrdma_oncrpc::gss::{GssLimits, GssServer, Service};
use rpcrdma_oncrpc::{AuthStat, OpaqueAuth, Refused};
use rpcrdma_proto::PaddedMessages;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::{Decoder, Encoder};
use tokio::net::TcpListener;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const MIB: usize = 1 << 20;

/// Returns a mechanism that needs no threads, which have no virtual time.
fn mechanism(name: &str) -> TestMechanism {
    TestMechanism { waits: false, ..TestMechanism::new(name) }
}

/// Returns the contexts of a server.
fn contexts(mechanism: TestMechanism) -> Arc<GssServer> {
    Arc::new(GssServer::new(Arc::new(mechanism), GssLimits::default(), 7))
}

fn user(mechanism: TestMechanism, service: Service) -> GssUser {
    GssUser::new(Arc::new(mechanism), "nfs@server", service)
}

/// Returns settings of a client that asks with integrity.
fn protected() -> CcpClient {
    CcpClient::protected(&user(mechanism("alice"), Service::Integrity))
}

/// Returns settings of a server that takes Calls of 4096 bytes, sends Replies of 8192, and has no private data.
fn server_config(ccp: Option<CcpServer>) -> ServerConfig {
    let mut config = ServerConfig::default();
    config.ccp = ccp;
    config.ird = 3;
    config.protocol.announce = false;
    config.protocol.receive_size = 4096;
    config.protocol.send_size = 8192;
    config
}

/// Returns settings of a client that sends Calls of 16384 bytes and takes Replies of 6144.
fn client_config(ccp: Option<CcpClient>) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.ccp = ccp;
    config.ird = 5;
    config.protocol.announce = false;
    config.protocol.send_size = 16_384;
    config.protocol.receive_size = 6144;
    config
}

const AGREED: Agreement =
    Agreement { call_size: 4096, reply_size: 6144, client_reads: 5, server_reads: 3, align: 1 };

fn serve_on(
    listener: Box<dyn Listener>,
    config: ServerConfig,
    other: Option<Arc<dyn Binding>>,
    contexts: Option<Arc<GssServer>>,
) -> ServerMonitor {
    let mut builder = Server::builder().config(config).program(program()).listen_rdma(listener);
    if let Some(other) = other {
        builder = builder.program(other);
    }
    if let Some(contexts) = contexts {
        builder = builder.gss(contexts);
    }
    let server = builder.build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    monitor
}

/// Starts a client and a server on the fabric. The server has contexts of its own.
async fn on_sim(server: ServerConfig, client: ClientConfig) -> (Client, ServerMonitor) {
    on_sim_with(server, client, None, Some(contexts(mechanism("nfs@server")))).await
}

async fn on_sim_with(
    server: ServerConfig,
    client: ClientConfig,
    other: Option<Arc<dyn Binding>>,
    contexts: Option<Arc<GssServer>>,
) -> (Client, ServerMonitor) {
    let fabric = fabric();
    let monitor = serve_on(Box::new(fabric.listen(SERVER).unwrap()), server, other, contexts);
    // The server's task must begin to listen first.
    tokio::task::yield_now().await;
    let client = Client::builder()
        .config(client)
        .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
        .connect(SERVER)
        .await
        .unwrap();
    (client, monitor)
}

fn fabric() -> Fabric {
    Fabric::on_tokio(FabricConfig { seed: 1, ..FabricConfig::default() })
}

async fn on_iwarp(server: ServerConfig, client: ClientConfig) -> (Client, ServerMonitor) {
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    let contexts = contexts(TestMechanism::new("nfs@server"));
    let monitor = serve_on(Box::new(listener), server, None, Some(contexts));
    let connector: Arc<dyn Connector> = Arc::new(IwarpConnector::default());
    (
        Client::builder()
            .config(client)
            .transport(Transport::rdma_on(connector))
            .connect(address)
            .await
            .unwrap(),
        monitor,
    )
}

fn agreement(client: &Client) -> Option<Agreement> {
    client.rdma().unwrap().connection_stats().unwrap().agreement
}

/// Checks that Calls up to 4096 bytes and Replies up to 6144 travel inline, and longer ones do not.
async fn obeyed(client: &Client) {
    // Headers of 28 bytes, Call of 40 or Reply of 24, a count.
    for (length, call, reply) in [
        (900, Form::Inline, Form::Inline),
        // With a Reply chunk of one segment, which the client must offer as far as it knows, the header is 48 bytes
        // long.
        (4004, Form::Inline, Form::Inline),
        (4028, Form::Long, Form::Inline),
        (6068, Form::Long, Form::Inline),
        (6072, Form::Long, Form::Long),
    ] {
        let travelled = echo(client, &pattern(length)).await.unwrap().travelled;
        assert_eq!((travelled.call.form, travelled.reply.form), (call, reply), "{length}");
    }
    put(client, pattern(MIB).into()).await.unwrap();
    get(client, MIB).await.unwrap();
}

/// Checks that nothing was agreed: 1024 bytes in each direction.
async fn at_the_basic_level(client: &Client) {
    for (length, form) in [(900, Form::Inline), (1000, Form::Long)] {
        let travelled = echo(client, &pattern(length)).await.unwrap().travelled;
        assert_eq!((travelled.call.form, travelled.reply.form), (form, form), "{length}");
    }
    assert_eq!(agreement(client), None);
}

// requirement: rfc5666-6.2-1
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_2_what_is_agreed_is_obeyed() {
    let (client, server) =
        on_sim(server_config(Some(CcpServer::Protected)), client_config(Some(protected()))).await;
    obeyed(&client).await;
    assert_eq!(agreement(&client), Some(AGREED));
    assert_eq!((client.stats().agreed, client.stats().not_agreed, server.stats().agreed), (1, 0, 1));
}

#[tokio::test]
async fn rfc5666_s6_2_what_is_agreed_is_obeyed_on_iwarp() {
    let asks = CcpClient::protected(&user(TestMechanism::new("alice"), Service::Privacy));
    let (client, server) =
        on_iwarp(server_config(Some(CcpServer::Protected)), client_config(Some(asks))).await;
    obeyed(&client).await;
    let agreed = agreement(&client).unwrap();
    assert_eq!(Agreement { server_reads: 3, client_reads: 5, ..agreed }, AGREED);
    assert_eq!((client.stats().agreed, server.stats().agreed), (1, 1));
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn rfc5666_s11_insecure_by_choice() {
    let (client, _) =
        on_sim(server_config(Some(CcpServer::Insecure)), client_config(Some(CcpClient::insecure()))).await;
    obeyed(&client).await;
    assert_eq!(agreement(&client), Some(AGREED));
}

#[tokio::test(start_paused = true)]
async fn a_side_without_the_protocol_goes_on_with_what_there_is() {
    for asks in [protected(), CcpClient::insecure()] {
        let (client, _) = on_sim(server_config(None), client_config(Some(asks))).await;
        at_the_basic_level(&client).await;
        assert_eq!((client.stats().agreed, client.stats().not_agreed), (0, 1));
    }
    let (client, server) = on_sim(server_config(Some(CcpServer::Protected)), client_config(None)).await;
    at_the_basic_level(&client).await;
    assert_eq!((client.stats().not_agreed, server.stats().agreed), (0, 0));
}

/// RFC 8797 §4: a side's private data bounds the agreement.
#[tokio::test(start_paused = true)]
async fn rfc8797_s4_private_data_is_a_bound_of_what_is_agreed() {
    let mut server = server_config(Some(CcpServer::Protected));
    let mut client = client_config(Some(protected()));
    (server.protocol.announce, client.protocol.announce) = (true, true);
    // Sizes in private data are multiples of 1024 too, so all of them are in effect already.
    let (client, _) = on_sim(server, client).await;
    obeyed(&client).await;
    assert_eq!(agreement(&client), Some(AGREED));
}

/// RFC 5666 §6.2: the size that the client takes is no promise of the server. A server that sends less uses the Reply
/// chunk.
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_2_a_server_that_sends_less_than_the_client_takes() {
    let (mut server, mut client) =
        (server_config(Some(CcpServer::Protected)), client_config(Some(protected())));
    (server.protocol.send_size, client.protocol.receive_size) = (4096, 8192);
    let (client, _) = on_sim(server, client).await;
    for (length, form) in [(3000, Form::Inline), (6000, Form::Long)] {
        assert_eq!(echo(&client, &pattern(length)).await.unwrap().travelled.reply.form, form, "{length}");
    }
}

/// RFC 5666 §6.2: the alignment of Receives is 1 if a server takes no RDMA_MSGP.
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_2_only_a_server_that_honours_rdma_msgp_recommends_an_alignment() {
    for (padded_messages, align) in
        [(PaddedMessages::Refuse, 1), (PaddedMessages::AsMessage, 1), (PaddedMessages::Honour, 64)]
    {
        let (mut server, mut client) =
            (server_config(Some(CcpServer::Protected)), client_config(Some(protected())));
        server.protocol.compatibility.padded_messages = padded_messages;
        client.protocol.compatibility.padded_messages = PaddedMessages::Honour;
        let (client, _) = on_sim(server, client).await;
        put(&client, pattern(2001).into()).await.unwrap();
        assert_eq!(agreement(&client), Some(Agreement { align, ..AGREED }));
    }
}

/// `rdmaconfig` as an application might serve it: returns these words for any request.
struct Says(Option<Vec<u32>>);

impl Program for Says {
    fn number(&self) -> u32 {
        rdmaconfig::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        rdmaconfig::VERSION..=rdmaconfig::VERSION
    }

    fn procedure(&self, _: u32, _: u32) -> Option<ProcedureInfo> {
        Some(ProcedureInfo { name: "CONF_RDMA", effect: Effect::Idempotent })
    }

    fn accepts_flavor(&self, _: u32) -> bool {
        true
    }

    fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
        let Some(words) = &self.0 else { return Box::pin(std::future::pending()) };
        let mut results = Encoder::new();
        for word in words {
            results.u32(*word);
        }
        Box::pin(std::future::ready(Ok(results.finish())))
    }
}

impl Binding for Says {}

async fn with_answer(ccp: CcpClient, words: Option<Vec<u32>>) -> Client {
    let other: Arc<dyn Binding> = Arc::new(Says(words));
    on_sim_with(server_config(None), client_config(Some(ccp)), Some(other), None).await.0
}

#[tokio::test(start_paused = true)]
async fn i6_an_answer_that_cannot_be_relied_on_ends_the_connection() {
    for (words, reason) in [
        (Some(vec![1023, 4, 1]), "1023 bytes"),
        (Some(vec![0, 4, 1]), "0 bytes"),
        (Some(vec![4096, 4]), "malformed"),
        (Some(vec![4096, 4, 1, 0]), "malformed"),
        (None, "not answered in time"),
    ] {
        let client = with_answer(CcpClient::insecure(), words).await;
        given_up(&client, reason).await;
        assert_eq!(client.stats().agreed, 0);
    }
}

/// Checks that connections end before their first call, for this reason.
async fn given_up(client: &Client, reason: &str) {
    let before = client.stats().connections;
    let call = echo_call(&pattern(100)).timeout(Duration::from_secs(60));
    match client.call_raw(call).await {
        Err(CallError::TimedOut { sent: false, link: Some(link), .. }) => {
            assert!(link.to_string().contains(reason), "{link:?} says {reason:?}");
        }
        other => panic!("{reason}: {other:?}"),
    }
    let made = client.stats().connections - before;
    assert!((1..60).contains(&made), "{reason}: {made} connections");
}

#[tokio::test(start_paused = true)]
async fn i6_a_server_that_promises_too_much_is_believed_up_to_our_own_bounds() {
    let client = with_answer(CcpClient::insecure(), Some(vec![u32::MAX, u32::MAX, u32::MAX])).await;
    echo(&client, &pattern(100)).await.unwrap();
    let expected = Agreement { call_size: 16_384, server_reads: u32::MAX, ..AGREED };
    assert_eq!(agreement(&client), Some(expected));
}

// requirement: rfc5666-6.2-3
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_2_zero_reads_nothing_is_sent_that_needs_one() {
    let client = with_answer(CcpClient::insecure(), Some(vec![4096, 4, 0])).await;
    put(&client, pattern(4000).into()).await.unwrap();
    let refused = client.call_raw(put_call(pattern(5000).into())).await;
    assert!(matches!(refused, Err(CallError::CallTooLong { room: 4096, .. })), "{refused:?}");
    get(&client, MIB).await.unwrap();
}

fn conf_rdma([max_call_send_size, max_reply_send_size, max_rdma_read]: [u32; 3]) -> Call {
    Call::of::<ConfRdma>(&ConfigRequest { max_call_send_size, max_reply_send_size, max_rdma_read }).unwrap()
}

async fn ask(client: &Client, words: [u32; 3]) -> Result<[u32; 3], CallError> {
    let reply = client.call_raw(conf_rdma(words)).await?.into_results::<ConfRdma>()?;
    Ok([reply.max_call_send_size, reply.align, reply.max_rdma_read])
}

/// Checks the server's rule for repeated, different and late questions, as `ccp::server` has it.
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_1_repeated_and_late_questions() {
    let system_error = |answer| matches!(answer, Err(CallError::Refused(Refused::SystemError)));
    let (client, server) = on_sim(server_config(Some(CcpServer::Insecure)), client_config(None)).await;
    assert_eq!(ask(&client, [2048, 4096, 2]).await.unwrap(), [2048, 1, 3]);
    echo(&client, &pattern(100)).await.unwrap();
    assert_eq!(ask(&client, [2048, 4096, 2]).await.unwrap(), [2048, 1, 3]);
    assert!(system_error(ask(&client, [2048, 1024, 2]).await));
    assert_eq!(server.stats().agreed, 1);

    let (client, server) = on_sim(server_config(Some(CcpServer::Insecure)), client_config(None)).await;
    echo(&client, &pattern(100)).await.unwrap();
    assert!(system_error(ask(&client, [2048, 4096, 2]).await));
    assert_eq!(server.stats().agreed, 0);
    echo(&client, &pattern(1000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_program_does_not_have_is_refused() {
    let (client, _) = on_sim(server_config(Some(CcpServer::Insecure)), client_config(None)).await;
    client.null(rdmaconfig::PROGRAM, rdmaconfig::VERSION).await.unwrap();
    let refused = client.null(rdmaconfig::PROGRAM, 2).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refused::ProgramMismatch { low: 1, high: 1 })), "{refused}");
    let refused = client.call_raw(Call::new(rdmaconfig::PROGRAM, 1, 2)).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refused::ProcedureUnavailable)), "{refused}");
    let refused = ask(&client, [4096, 512, 1]).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refused::GarbageArguments)), "{refused}");
    let unknown = Credential::Other(OpaqueAuth { flavor: 77, body: Bytes::new() });
    let refused = client.call_raw(conf_rdma([4096, 4096, 1]).credential(unknown)).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refused::AuthError(AuthStat::BadCred))), "{refused}");
}

/// The protocol exists on RDMA connections only.
#[tokio::test]
async fn tcp_has_no_such_program() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .config(server_config(Some(CcpServer::Insecure)))
        .program(program())
        .listen_tcp(listener)
        .build()
        .unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    let client = Client::builder()
        .config(client_config(Some(CcpClient::insecure())))
        .transport(Transport::tcp())
        .connect(address)
        .await
        .unwrap();
    echo(&client, &pattern(100)).await.unwrap();
    let refused = ask(&client, [4096, 4096, 1]).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refused::ProgramUnavailable)), "{refused}");
    assert_eq!(client.stats().agreed, 0);
}

/// RFC 2203 §5.2: contexts belong to no connection. One that was created by TCP protects the first call by RDMA.
// requirement: rfc5666-11-7
#[tokio::test]
async fn rfc5666_s11_a_context_made_by_tcp_protects_the_question() {
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let rdma = listener.local_address().unwrap();
    let tcp_listener = TcpListener::bind(any).await.unwrap();
    let tcp = tcp_listener.local_addr().unwrap();
    let server = TestMechanism::new("nfs@server");
    let begun = Arc::clone(&server.begun);
    let server = Server::builder()
        .config(server_config(Some(CcpServer::Protected)))
        .program(program())
        .gss(contexts(server))
        .listen_rdma(Box::new(listener))
        .listen_tcp(tcp_listener)
        .build()
        .unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    let user = Arc::new(user(TestMechanism::new("alice"), Service::Integrity));
    let client =
        Client::builder().config(client_config(None)).transport(Transport::tcp()).connect(tcp).await.unwrap();
    client.call_raw(echo_call(b"data").gss(Arc::clone(&user))).await.unwrap();
    client.close().await;
    let connector: Arc<dyn Connector> = Arc::new(IwarpConnector::default());
    let client = Client::builder()
        .config(client_config(None))
        .transport(Transport::rdma_on(connector))
        .connect(rdma)
        .await
        .unwrap();
    client.call_raw(conf_rdma([2048, 4096, 2]).gss(user)).await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    client.close().await;
}

/// An agreement holds for one connection; the next one asks again.
#[tokio::test(start_paused = true)]
async fn each_connection_agrees_for_itself() {
    let mut config = server_config(Some(CcpServer::Protected));
    config.protocol.timeouts.idle = Some(Duration::from_secs(1));
    let (client, server) = on_sim(config, client_config(Some(protected()))).await;
    for connection in 1..=3 {
        echo(&client, &pattern(3000)).await.unwrap();
        assert_eq!(agreement(&client), Some(AGREED));
        assert_eq!((client.stats().agreed, server.stats().agreed), (connection, connection));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}
