//! The protection of CONF_RDMA by RPCSEC_GSS (RFC 5666 §11), with a mechanism that needs no threads, in virtual time.

use std::sync::Mutex;

use rpcrdma::ServeError;
use rpcrdma_oncrpc::gss::WINDOW;
use rpcrdma_oncrpc::{AuthSys, auth::flavor};
use rpcrdma_sim::{MessageKind, Side};
use tokio::task::JoinSet;

use super::*;
use crate::support::meddler::{Change, Meddler, Way};

const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];
/// The question and the answer of clients and servers with these settings.
const QUESTION: [u32; 3] = [16_384, 6144, 5];
const ANSWER: [u32; 3] = [4096, 1, 3];
/// Length of the header of an inline message, and place of the verifier's flavour in a reply (RFC 5531 §9).
const HEADER: usize = 28;
const VERIFIER: usize = HEADER + 12;

/// A server and a client on a fabric, with what a test looks at.
struct Site {
    fabric: Fabric,
    client: Client,
    server: ServerMonitor,
    contexts: Arc<GssServer>,
}

impl Site {
    /// The server's contexts are of this mechanism, and its connections end after a second without a call.
    async fn new(server: TestMechanism, client: ClientConfig) -> Self {
        Self::with(server, client, Arc::new(|_, _: &mut Vec<u8>| {})).await
    }

    async fn with(server: TestMechanism, client: ClientConfig, change: Change) -> Self {
        let (fabric, contexts) = (fabric(), contexts(server));
        let mut config = server_config(Some(CcpServer::Protected));
        config.protocol.timeouts.idle = Some(Duration::from_secs(1));
        let listener = Box::new(fabric.listen(SERVER).unwrap());
        let server = serve_on(listener, config, None, Some(Arc::clone(&contexts)));
        tokio::task::yield_now().await;
        let meddler = Meddler { connector: fabric.connector(HOST), change };
        let client = Client::rdma(Arc::new(meddler), SERVER, client).await.unwrap();
        Self { fabric, client, server, contexts }
    }

    /// Makes a call, and waits until the server has closed the connection.
    async fn visit(&self) {
        echo(&self.client, &pattern(3000)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    /// Returns how many connections agreed, at the client and at the server.
    fn agreed(&self) -> (u64, u64) {
        (self.client.stats().agreed, self.server.stats().agreed)
    }
}

fn asks(mechanism: TestMechanism, service: Service) -> ClientConfig {
    client_config(Some(CcpClient::protected(&user(mechanism, service))))
}

fn bytes(words: [u32; 3]) -> Vec<u8> {
    words.map(u32::to_be_bytes).concat()
}

fn find(message: &[u8], part: &[u8]) -> Option<usize> {
    message.windows(part.len()).position(|window| window == part)
}

/// Returns a change of these words in messages that go this way.
fn replace(way: Way, from: [u32; 3], to: [u32; 3]) -> Change {
    Arc::new(move |direction, message| {
        if let Some(at) = find(message, &bytes(from)).filter(|_| direction == way) {
            message[at..at + 12].copy_from_slice(&bytes(to));
        }
    })
}

/// RFC 5666 §11: a server that requires protection answers a question with integrity or privacy, and no other.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_questions_without_integrity_are_refused() {
    let sys = Credential::Sys(AuthSys { uid: 1000, gid: 100, ..AuthSys::default() });
    let gss = |service| {
        let user = Arc::new(user(mechanism("alice"), service));
        conf_rdma([2048, 4096, 2]).gss(user)
    };
    for (call, is_served) in [
        (conf_rdma([2048, 4096, 2]), false),
        (conf_rdma([2048, 4096, 2]).credential(sys), false),
        (gss(Service::None), false),
        (gss(Service::Integrity), true),
        (gss(Service::Privacy), true),
    ] {
        let (client, server) = on_sim(server_config(Some(CcpServer::Protected)), client_config(None)).await;
        let shown = format!("{call:?}");
        match client.call_raw(call).await {
            Ok(_) => assert!(is_served, "{shown}"),
            Err(CallError::Refused(Refused::AuthError(AuthStat::TooWeak))) => assert!(!is_served, "{shown}"),
            Err(error) => panic!("{shown}: {error}"),
        }
        assert_eq!(server.stats().agreed, u64::from(is_served), "{shown}");
        // The connection serves on.
        echo(&client, &pattern(100)).await.unwrap();
    }
}

/// RFC 5666 §11: both ends decide. A side that requires protection agrees on nothing without it.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_without_protection_nothing_is_agreed() {
    for (server, client, gss, agreed) in [
        (CcpServer::Protected, CcpClient::insecure(), true, 0),
        (CcpServer::Insecure, protected(), true, 1),
        (CcpServer::Insecure, protected(), false, 0),
    ] {
        let contexts = gss.then(|| contexts(mechanism("nfs@server")));
        let (client, server) =
            on_sim_with(server_config(Some(server)), client_config(Some(client)), None, contexts).await;
        echo(&client, &pattern(100)).await.unwrap();
        let stats = client.stats();
        assert_eq!((stats.agreed, stats.not_agreed, server.stats().agreed), (agreed, 1 - agreed, agreed));
        if agreed == 0 {
            at_the_basic_level(&client).await;
        }
    }
}

/// A server that could refuse every question only does not start.
#[tokio::test(start_paused = true)]
async fn a_server_without_contexts_cannot_require_protection() {
    let listener = Box::new(fabric().listen(SERVER).unwrap());
    let config = server_config(Some(CcpServer::Protected));
    let built = Server::builder().config(config).program(program()).listen_rdma(listener).build();
    assert!(matches!(built, Err(ServeError::Unprotected)));
}

/// RFC 5666 §11: the user's own protection holds if there is any, and integrity otherwise.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_a_protected_agreement_end_to_end() {
    for (service, is_readable) in SERVICES.into_iter().zip([true, true, false]) {
        let read = Arc::new(Mutex::new([false; 2]));
        let seen = Arc::clone(&read);
        let change: Change = Arc::new(move |way, message| {
            let (index, part) = if way == Way::ToServer { (0, QUESTION) } else { (1, ANSWER) };
            seen.lock().unwrap()[index] |= find(message, &bytes(part)).is_some();
        });
        let site = Site::with(mechanism("nfs@server"), asks(mechanism("alice"), service), change).await;
        obeyed(&site.client).await;
        assert_eq!(agreement(&site.client), Some(AGREED));
        assert_eq!(site.agreed(), (1, 1));
        assert_eq!(*read.lock().unwrap(), [is_readable; 2], "{service:?}");
    }
}

/// RFC 5666 §6.1: before the answer the client sends one message at a time, of at most 1024 bytes. RFC 2203 §5.2.2: the
/// context is created by NULL calls, however many and long its tokens are.
// requirement: rfc5666-6.1-1, rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s6_1_a_context_is_created_within_the_initial_state() {
    for (rounds, length) in [(1, 5), (3, 5), (1, 700), (1, 1500), (2, 20_000), (1, 65_000)] {
        let (fabric, contexts) = (fabric(), contexts(TestMechanism { rounds, ..mechanism("nfs@server") }));
        let server = server_config(Some(CcpServer::Protected));
        serve_on(Box::new(fabric.listen(SERVER).unwrap()), server, None, Some(contexts));
        tokio::task::yield_now().await;
        let sends = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sends);
        fabric.tap(move |delivery| {
            if delivery.kind == MessageKind::Send {
                seen.lock().unwrap().push((delivery.from, delivery.message.clone()));
            }
        });
        let asks = asks(TestMechanism { rounds, padding: length, ..mechanism("alice") }, Service::Integrity);
        let client = Client::rdma(Arc::new(fabric.connector(HOST)), SERVER, asks).await.unwrap();
        echo(&client, &pattern(3000)).await.unwrap();
        assert_eq!(agreement(&client), Some(AGREED), "{rounds} {length}");
        let sends = sends.lock().unwrap();
        let answered = sends.iter().position(|(_, message)| find(message, &bytes(ANSWER)).is_some());
        let before = &sends[..=answered.unwrap()];
        // Each call of the creation and the question, with their replies.
        assert_eq!(before.len(), 2 * (usize::from(rounds) + 1), "{rounds} {length}");
        let client = before[0].0;
        for (index, (from, message)) in before.iter().enumerate() {
            assert_eq!(*from == client, index % 2 == 0, "one at a time: {rounds} {length}");
            assert!(message.len() <= 1024, "{} bytes: {rounds} {length}", message.len());
        }
        assert_eq!(client, Side::A);
    }
}

/// RFC 5666 §11: sizes that somebody changes on the way are not used, neither those of the question nor those of the answer.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_somebody_who_changes_sizes_is_detected() {
    let question = || replace(Way::ToServer, QUESTION, [1024, 1024, 0]);
    let answer = || replace(Way::ToClient, ANSWER, [1024, 1, 0]);
    let asked = || asks(mechanism("alice"), Service::Integrity);
    // The server finds out, and answers nothing that the client could agree to.
    let site = Site::with(mechanism("nfs@server"), asked(), question()).await;
    at_the_basic_level(&site.client).await;
    assert_eq!(site.agreed(), (0, 0));
    assert_eq!(site.client.stats().not_agreed, 1);
    // The client finds out.
    let site = Site::with(mechanism("nfs@server"), asked(), answer()).await;
    given_up(&site.client, "not protected, or was changed").await;
    assert_eq!(site.client.stats().agreed, 0);
    // Without protection nobody would.
    for (change, server_reads) in [(question(), 3), (answer(), 0)] {
        let fabric = fabric();
        let listener = Box::new(fabric.listen(SERVER).unwrap());
        let server = serve_on(listener, server_config(Some(CcpServer::Insecure)), None, None);
        tokio::task::yield_now().await;
        let meddler = Arc::new(Meddler { connector: fabric.connector(HOST), change });
        let insecure = client_config(Some(CcpClient::insecure()));
        let client = Client::rdma(meddler, SERVER, insecure).await.unwrap();
        echo(&client, &pattern(100)).await.unwrap();
        assert_eq!((client.stats().agreed, server.stats().agreed), (1, 1));
        assert_eq!(agreement(&client), Some(Agreement { call_size: 1024, server_reads, ..AGREED }));
    }
}

/// RFC 2203 §5.3.3.2: the verifier proves that the server made the reply. An answer without one, or with a wrong one, ends
/// the connection.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_an_answer_with_a_wrong_checksum_ends_the_connection() {
    let server = mechanism("nfs@server");
    let lies = Arc::clone(&server.lies);
    let site = Site::new(server, asks(mechanism("alice"), Service::Integrity)).await;
    site.visit().await;
    assert_eq!(site.agreed(), (1, 1));
    lies.store(true, Ordering::Relaxed);
    given_up(&site.client, "not protected, or was changed").await;
    assert_eq!(site.client.stats().agreed, 1);
    lies.store(false, Ordering::Relaxed);
    echo(&site.client, &pattern(3000)).await.unwrap();
    assert_eq!(site.client.stats().agreed, 2);

    let unverified: Change = Arc::new(|way, message| {
        if way == Way::ToClient && find(message, &bytes(ANSWER)).is_some() {
            assert_eq!(message[VERIFIER..VERIFIER + 4], flavor::RPCSEC_GSS.to_be_bytes());
            message[VERIFIER..VERIFIER + 4].copy_from_slice(&flavor::AUTH_NONE.to_be_bytes());
        }
    });
    let asks = asks(mechanism("alice"), Service::Integrity);
    let site = Site::with(mechanism("nfs@server"), asks, unverified).await;
    given_up(&site.client, "no verifier").await;
    assert_eq!(site.client.stats().agreed, 0);
}

/// Nothing is agreed in a context that proves nothing (RFC 2203 §5.2.3.1), or of a user who cannot have one.
#[tokio::test(start_paused = true)]
async fn without_a_context_the_connection_goes_on_without_an_agreement() {
    let (lying, mute) = (mechanism("nfs@server"), mechanism("alice"));
    lying.lies.store(true, Ordering::Relaxed);
    mute.mute.store(true, Ordering::Relaxed);
    for (server, client) in [(lying, mechanism("alice")), (mechanism("nfs@server"), mute)] {
        let site = Site::new(server, asks(client, Service::Integrity)).await;
        at_the_basic_level(&site.client).await;
        assert_eq!((site.agreed(), site.client.stats().not_agreed), ((0, 0), 1));
    }
}

/// The context stays for later connections. One that is too old for the client, or that the server gave up, is replaced.
// requirement: rfc5666-11-7
#[tokio::test(start_paused = true)]
async fn rfc5666_s11_a_context_that_expired_is_replaced_on_the_next_connection() {
    let (hour, moment) = (Some(Duration::from_secs(3600)), Some(Duration::from_secs(12)));
    for (server, client, contexts) in [(hour, hour, 1), (hour, moment, 2), (moment, hour, 2)] {
        let mechanism = |name, lifetime| TestMechanism { lifetime, ..mechanism(name) };
        let asks = asks(mechanism("alice", client), Service::Integrity);
        let server = mechanism("nfs@server", server);
        let begun = Arc::clone(&server.begun);
        let site = Site::new(server, asks).await;
        // After 0, 5, 10 and 15 seconds.
        for visit in 1..=4 {
            site.visit().await;
            assert_eq!(site.agreed(), (visit, visit));
        }
        assert_eq!(site.client.stats().connections, 4);
        assert_eq!(begun.load(Ordering::Relaxed), contexts);
    }
}

/// Calls of the application may hold the turn to create their context, and all numbers of the server's window, while they wait
/// for the agreement. It needs neither.
#[tokio::test(start_paused = true)]
async fn calls_that_wait_do_not_delay_the_question_that_they_wait_for() {
    let caller = Arc::new(user(mechanism("alice"), Service::Integrity));
    let asks = client_config(Some(CcpClient::protected(&caller)));
    let site = Site::new(mechanism("nfs@server"), asks).await;
    let mut calls = JoinSet::new();
    let begin = |calls: &mut JoinSet<()>| {
        for _ in 0..2 * WINDOW {
            let (client, caller) = (site.client.clone(), Arc::clone(&caller));
            calls.spawn(
                async move { drop(client.call_raw(echo_call(&pattern(100)).gss(caller)).await.unwrap()) },
            );
        }
    };
    let began = tokio::time::Instant::now();
    begin(&mut calls);
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    // The calls that come again are signed before the next connection asks.
    for _ in 0..3 {
        begin(&mut calls);
        tokio::task::yield_now().await;
        for connection in site.fabric.connections() {
            site.fabric.cut(connection);
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
    }
    assert!(began.elapsed() < CcpClient::TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(site.agreed(), (4, 4));
}

/// All connections of a client ask in one context, which ends with the client.
#[tokio::test(start_paused = true)]
async fn connections_share_a_context_and_close_ends_it() {
    let mut asks = asks(mechanism("alice"), Service::Integrity);
    asks.connections = 4;
    let site = Site::new(mechanism("nfs@server"), asks).await;
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let client = site.client.clone();
        calls.spawn(async move { drop(echo(&client, &pattern(3000)).await.unwrap()) });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    assert_eq!((site.agreed(), site.contexts.in_use()), ((4, 4), 1));
    site.client.close().await;
    assert_eq!(site.contexts.in_use(), 0);
}
