//! Calls of RPCSEC_GSS by software iWARP and by TCP, with a mechanism that protects nothing: which messages are sent, and what
//! happens if contexts, connections and replies are lost.
//!
//! The mechanism works on threads. So these tests run on real sockets and in real time, without a sleep.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::experimental::Profile;
use rpcrdma::{
    Binding, Call, CallError, Client, ClientConfig, Credential, Execution, Form, GssUser, Server,
    ServerConfig, Sink, Transport, Versions,
};
use rpcrdma_iwarp::{Config, IwarpListener};
use rpcrdma_oncrpc::gss::testing::TestMechanism;
use rpcrdma_oncrpc::gss::{
    GssLimits, GssServer, Initiating, Initiator, MechanismError, ReplyFault, Service, WINDOW,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{
    Caller, PROGRAM, TestProgram, VERSION, count, echo, get, get_call, pattern, program, put, sleep_call,
};

pub const MIB: usize = 1 << 20;
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];
pub const TRANSPORTS: [Over; 2] = [Over::Rdma, Over::Tcp];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Rdma,
    Tcp,
}

pub struct Running {
    pub rdma: SocketAddr,
    pub tcp: SocketAddr,
    pub program: Arc<TestProgram>,
    mechanism: TestMechanism,
    contexts: Arc<GssServer>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

/// Starts a server at these addresses. Its contexts are its own.
async fn serve_at(rdma: SocketAddr, tcp: SocketAddr, program: Arc<TestProgram>, rounds: u8) -> Running {
    let mechanism = TestMechanism { rounds, ..TestMechanism::new("nfs@server") };
    serve_with(rdma, tcp, Arc::clone(&program) as _, program, mechanism).await
}

/// Starts a server of `served`, whose calls `program` has the counts of.
async fn serve_with(
    rdma: SocketAddr,
    tcp: SocketAddr,
    served: Arc<dyn Binding>,
    program: Arc<TestProgram>,
    mechanism: TestMechanism,
) -> Running {
    // Two servers of one test differ.
    let instance = Arc::as_ptr(&mechanism.begun).addr() as u64;
    let contexts = GssServer::new(Arc::new(mechanism.clone()), GssLimits::default(), instance);
    let contexts = Arc::new(contexts);
    let listener = IwarpListener::bind(rdma, Config::default()).await.unwrap();
    let tcp_listener = TcpListener::bind(tcp).await.unwrap();
    let tcp = tcp_listener.local_addr().unwrap();
    let mut config = ServerConfig::default();
    config.protocol.versions = Versions::both(Profile::P3);
    let server = Server::builder()
        .config(config)
        .program(served)
        .gss(Arc::clone(&contexts))
        .listen_rdma(Box::new(listener))
        .listen_tcp(tcp_listener)
        .build()
        .unwrap();
    let rdma = server.rdma_addresses().unwrap()[0];
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    Running { rdma, tcp, program, mechanism, contexts, stop: Some(stop), task }
}

/// Starts a server with this mechanism of `served`, whose calls `program` has the counts of.
pub async fn serve_by(
    mechanism: TestMechanism,
    served: Arc<dyn Binding>,
    program: Arc<TestProgram>,
) -> Running {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    serve_with(any, any, served, program, mechanism).await
}

pub async fn serve() -> Running {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    serve_at(any, any, program(), 1).await
}

impl Running {
    fn address(&self, transport: Over) -> SocketAddr {
        match transport {
            Over::Rdma => self.rdma,
            Over::Tcp => self.tcp,
        }
    }

    pub async fn client(&self, transport: Over) -> Client {
        client(transport, self.address(transport)).await
    }

    pub fn begun(&self) -> usize {
        self.mechanism.begun.load(Ordering::SeqCst)
    }

    /// Returns the number of contexts in use.
    pub fn in_use(&self) -> usize {
        self.contexts.in_use()
    }

    pub async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

pub async fn client(transport: Over, to: SocketAddr) -> Client {
    let mut config = ClientConfig::default();
    config.protocol.timeouts.call = PATIENCE;
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    match transport {
        Over::Rdma => Client::builder().config(config).connect(to).await.unwrap(),
        Over::Tcp => Client::builder().config(config).transport(Transport::tcp()).connect(to).await.unwrap(),
    }
}

pub fn user(service: Service) -> Arc<GssUser> {
    Arc::new(GssUser::new(Arc::new(TestMechanism::new("alice")), "nfs@server", service))
}

/// A client whose calls are made by a user.
#[derive(Clone)]
pub struct Secure(pub Client, pub Arc<GssUser>);

impl Caller for Secure {
    async fn call_raw(&self, call: Call) -> Result<rpcrdma::Reply, CallError> {
        self.0.call_raw(call.gss(Arc::clone(&self.1))).await
    }
}

/// RFC 8166 §8.2.2.2: with authentication only, payload stays in chunks. §8.2.2.3: with integrity or privacy nothing is
/// DDP-eligible, and long messages travel whole.
// requirement: rfc8166-8.2.2.2-1, rfc8166-8.2.2.3-1
#[tokio::test]
async fn rfc8166_8_2_2_what_each_service_does_to_messages() {
    let server = serve().await;
    for transport in TRANSPORTS {
        for service in SERVICES {
            let client = server.client(transport).await;
            let secure = Secure(client.clone(), user(service));
            for length in [0, 1, 3, 4, 5, 3_000, 4_096, 65_537, MIB - 1] {
                echo(&secure, &pattern(length)).await.unwrap();
                put(&secure, Bytes::from(pattern(length))).await.unwrap();
                get(&secure, length).await.unwrap();
            }
            let written = put(&secure, Bytes::from(pattern(MIB))).await.unwrap().travelled;
            let read = get(&secure, MIB).await.unwrap().travelled;
            if transport == Over::Rdma {
                let (call, reply) = match service {
                    Service::None => (Form::Reduced, Form::Reduced),
                    Service::Integrity | Service::Privacy => (Form::Long, Form::Long),
                };
                assert_eq!((written.call.form, written.reply.form), (call, Form::Inline), "{service:?}");
                assert_eq!((read.call.form, read.reply.form), (Form::Inline, reply), "{service:?}");
            }
            match server.program.caller.lock().unwrap().take() {
                Some(Credential::Gss(caller)) => {
                    assert_eq!((caller.principal.name.as_str(), caller.service), ("alice", service));
                }
                other => panic!("{other:?}"),
            }
            client.close().await;
        }
    }
    server.end().await;
}

/// version-two-07 §11.2.2: with integrity or privacy nothing is DDP-eligible in Version Two either. A protected Call may be
/// continued in further Sends (§6.6.2).
#[tokio::test]
async fn v2_07_11_2_2_version_two_protects_and_continues() {
    let server = serve().await;
    for service in SERVICES {
        let mut config = ClientConfig::default();
        config.protocol.versions = Versions::two(Profile::P3);
        config.protocol.program = Some((PROGRAM, VERSION));
        let client = Client::builder().config(config).connect(server.rdma).await.unwrap();
        let secure = Secure(client.clone(), user(service));
        for length in [0, 3_000, 5_000, 20_000, MIB - 1] {
            echo(&secure, &pattern(length)).await.unwrap();
        }
        let written = put(&secure, Bytes::from(pattern(20_000))).await.unwrap().travelled;
        let read = get(&secure, 20_000).await.unwrap().travelled;
        let forms = match service {
            Service::None => (Form::Reduced, Form::Reduced),
            Service::Integrity | Service::Privacy => (Form::Continued, Form::Long),
        };
        assert_eq!((written.call.form, read.reply.form), forms, "{service:?}");
        client.close().await;
    }
    server.end().await;
}

/// A thread costs more than the checksum of a header. So quick mechanisms use none for short messages, and all others do.
#[tokio::test]
async fn only_long_messages_of_a_quick_mechanism_take_threads() {
    for quick in [false, true] {
        let mechanism = TestMechanism { quick, ..TestMechanism::new("nfs@server") };
        let program = program();
        let server = serve_by(mechanism, Arc::clone(&program) as _, program).await;
        for service in SERVICES {
            let client = server.client(Over::Rdma).await;
            let secure = Secure(client.clone(), user(service));
            echo(&secure, &pattern(10)).await.unwrap();
            let before = server.mechanism.threaded.load(Ordering::SeqCst);
            let threaded = || server.mechanism.threaded.load(Ordering::SeqCst) - before;
            echo(&secure, &pattern(1_000)).await.unwrap();
            assert_eq!(threaded() > 0, !quick, "{service:?}, short");
            echo(&secure, &pattern(100_000)).await.unwrap();
            assert_eq!(threaded() > 0, !quick || service != Service::None, "{service:?}, long");
            client.close().await;
        }
        server.end().await;
    }
}

/// RFC 2203 §5.2: contexts belong to no connection, and creating one may take several calls. Linux makes them by TCP and
/// uses them by RDMA (RFC 8166 §8.2.2.1).
// requirement: rfc8166-8.2.2.1-1, v2-07-11.2.2.1-1
#[tokio::test]
async fn a_context_made_by_tcp_is_used_by_rdma() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    for rounds in [1, 3] {
        let server = serve_at(any, any, program(), rounds).await;
        let mechanism = TestMechanism { rounds, ..TestMechanism::new("alice") };
        let user = Arc::new(GssUser::new(Arc::new(mechanism), "nfs@server", Service::Integrity));
        for transport in [Over::Tcp, Over::Rdma, Over::Tcp] {
            let client = server.client(transport).await;
            echo(&Secure(client.clone(), Arc::clone(&user)), b"data").await.unwrap();
            client.close().await;
        }
        assert_eq!(server.begun(), 1, "{rounds} rounds");
        // RFC 2203 §5.4: an ended context is replaced by the next call.
        let client = server.client(Over::Tcp).await;
        client.end_context(&user).await;
        echo(&Secure(client.clone(), Arc::clone(&user)), b"data").await.unwrap();
        assert_eq!(server.begun(), 2);
        client.close().await;
        server.end().await;
    }
}

/// RFC 2203 §5.3.3.1: the server discards requests outside its window. No more are outstanding at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc2203_5_3_3_1_more_calls_than_the_window_has_room_for() {
    let server = serve().await;
    for transport in TRANSPORTS {
        let secure = Secure(server.client(transport).await, user(Service::Integrity));
        let mut tasks = JoinSet::new();
        for number in 0..3 * WINDOW {
            let secure = secure.clone();
            tasks.spawn(async move {
                match number % 3 {
                    0 => drop(echo(&secure, &pattern(100)).await.unwrap()),
                    1 => drop(get(&secure, 10_000).await.unwrap()),
                    _ => drop(secure.call_raw(sleep_call(number % 7)).await.unwrap()),
                }
            });
        }
        tasks.join_all().await;
        secure.0.close().await;
    }
    assert_eq!(server.begun(), 2, "calls that wait for a context create none");
    server.end().await;
}

/// RFC 2203 §5.3.3.3: a server that was started anew does not know the context, and says so.
#[tokio::test]
async fn rfc2203_5_3_3_3_a_context_that_the_server_lost_is_replaced() {
    for transport in TRANSPORTS {
        let first = serve().await;
        let (rdma, tcp, program) = (first.rdma, first.tcp, Arc::clone(&first.program));
        let secure = Secure(first.client(transport).await, user(Service::Integrity));
        assert_eq!(count(&secure).await.unwrap(), 1);
        first.end().await;
        let second = serve_at(rdma, tcp, program, 1).await;
        assert_eq!(count(&secure).await.unwrap(), 2, "executed once");
        assert_eq!(second.begun(), 1);
        secure.0.close().await;
        second.end().await;
    }
}

/// A relay that can stop the server's bytes, and then cut the connection.
struct Relay {
    address: SocketAddr,
    /// Whether the server's bytes stop.
    stopped: watch::Sender<bool>,
    cuts: watch::Sender<u32>,
    /// Connections at present.
    open: watch::Sender<u32>,
}

impl Relay {
    async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stopped, cuts) = (watch::Sender::new(false), watch::Sender::new(0));
        let open = watch::Sender::new(0);
        let (stop, cut, count) = (stopped.subscribe(), cuts.clone(), open.clone());
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (stop, mut cut, count) = (stop.clone(), cut.subscribe(), count.clone());
                count.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    tokio::select! {
                        () = relay(from, TcpStream::connect(to).await.unwrap(), stop) => {}
                        _ = cut.changed() => {}
                    }
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, stopped, cuts, open }
    }

    /// Cuts all connections. What the server has sent is lost.
    async fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
        self.open.subscribe().wait_for(|open| *open == 0).await.unwrap();
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, mut stop: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let forth = async {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
            if to_server.write_all(&bytes[..length]).await.is_err() {
                break;
            }
        }
    };
    let back = async {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
            let _ = stop.wait_for(|stopped| !stopped).await;
            if to_client.write_all(&bytes[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = forth => {}
        () = back => {}
    }
}

/// RFC 2203 §5.3.3.1: a call that is sent again has a new number. Its XID stays, so that the reply cache knows it (I8).
// requirement: rfc2203-5.3.3.1-4
#[tokio::test]
async fn i8_a_call_whose_reply_is_lost_is_executed_once() {
    for transport in TRANSPORTS {
        for service in SERVICES {
            let server = serve().await;
            let relay = Relay::new(server.address(transport)).await;
            let secure = Secure(client(transport, relay.address).await, user(service));
            assert_eq!(count(&secure).await.unwrap(), 1);
            relay.stopped.send_replace(true);
            let caller = secure.clone();
            let lost = tokio::spawn(async move { count(&caller).await });
            let executed = async {
                while server.program.count.load(Ordering::SeqCst) < 2 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, executed).await.unwrap();
            relay.cut().await;
            relay.stopped.send_replace(false);
            assert_eq!(lost.await.unwrap().unwrap(), 2, "{transport:?} {service:?}");
            assert_eq!(server.program.count.load(Ordering::SeqCst), 2, "{transport:?} {service:?}");
            assert_eq!(server.begun(), 1);
            // A call that must not be sent again fails instead.
            relay.stopped.send_replace(true);
            let caller = secure.clone();
            let lost = tokio::spawn(async move {
                caller.call_raw(crate::support::call(crate::support::COUNT).results(4).once()).await
            });
            let executed = async {
                while server.program.count.load(Ordering::SeqCst) < 3 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, executed).await.unwrap();
            relay.cut().await;
            let error = lost.await.unwrap().unwrap_err();
            assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
            relay.stopped.send_replace(false);
            secure.0.close().await;
            server.end().await;
        }
    }
}

/// RFC 2203 §5.3.3.2: the client checks the verifier of each reply.
#[tokio::test]
async fn a_reply_whose_verifier_is_wrong_is_not_trusted() {
    let server = serve().await;
    for transport in TRANSPORTS {
        let secure = Secure(server.client(transport).await, user(Service::None));
        echo(&secure, b"data").await.unwrap();
        server.mechanism.lies.store(true, Ordering::SeqCst);
        let error = echo(&secure, b"data").await.unwrap_err();
        assert!(matches!(error, CallError::Untrusted(ReplyFault::Verifier(_))), "{error}");
        assert_eq!(error.execution(), Execution::Unknown);
        // Nor is a context whose creation proves nothing (§5.2.3.1).
        let stranger = Secure(secure.0.clone(), user(Service::None));
        let error = echo(&stranger, b"data").await.unwrap_err();
        assert!(matches!(error, CallError::NoContext { .. }), "{error}");
        server.mechanism.lies.store(false, Ordering::SeqCst);
        echo(&stranger, b"data").await.unwrap();
        secure.0.close().await;
    }
    server.end().await;
}

/// A mechanism without credentials, which counts how often it was asked, and answers when the test wants it.
struct NoTickets {
    asked: AtomicUsize,
    answer: Mutex<mpsc::Receiver<()>>,
}

impl Initiator for NoTickets {
    fn begin(&self, _: &str) -> Result<Box<dyn Initiating>, MechanismError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answer.lock().unwrap().recv().unwrap();
        Err(MechanismError::new(0x0007_0000, 0, "no tickets"))
    }
}

/// Returns a user of such a mechanism, the mechanism, and the sender that lets it answer once.
fn without_ticket(client: &Client) -> (Secure, Arc<NoTickets>, mpsc::Sender<()>) {
    let (allow, answer) = mpsc::channel();
    let initiator = Arc::new(NoTickets { asked: AtomicUsize::new(0), answer: Mutex::new(answer) });
    let caller = Arc::new(GssUser::new(Arc::clone(&initiator) as _, "nfs@server", Service::None));
    (Secure(client.clone(), caller), initiator, allow)
}

/// A mechanism that waits for a network blames the server of nothing. That holds for the call that creates the context, and
/// for one that waits for it.
#[tokio::test]
async fn a_mechanism_that_is_late_is_named() {
    let server = serve().await;
    let client = server.client(Over::Rdma).await;
    let (secure, initiator, allow) = without_ticket(&client);
    let first = secure.clone();
    let first = tokio::spawn(async move { count(&first).await });
    while initiator.asked.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    let short = || crate::support::call(crate::support::COUNT).results(4).timeout(Duration::from_millis(20));
    let mut errors = vec![secure.call_raw(short()).await.unwrap_err()];
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    errors.push(secure.call_raw(short()).await.unwrap_err());
    for error in errors {
        let told = "no security context with nfs@server within 20ms: the mechanism does not answer";
        assert_eq!((error.to_string().as_str(), error.execution()), (told, Execution::NotExecuted));
        assert!(matches!(error, CallError::ContextTimedOut { sent: false, .. }), "{error:?}");
    }
    assert_eq!(server.program.calls.load(Ordering::SeqCst), 0);
    // Both attempts still have a thread, though nobody waits for them.
    allow.send(()).unwrap();
    allow.send(()).unwrap();
    client.close().await;
    server.end().await;
}

#[tokio::test]
async fn without_a_context_nothing_is_called() {
    let server = serve().await;
    let client = server.client(Over::Rdma).await;
    let (secure, initiator, allow) = without_ticket(&client);
    allow.send(()).unwrap();
    let error = count(&secure).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.execution()), ("no tickets", Execution::NotExecuted));
    assert_eq!(server.program.calls.load(Ordering::SeqCst), 0);
    // Calls that wait for one attempt fail with it.
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let secure = secure.clone();
        tasks.spawn(async move { count(&secure).await.unwrap_err() });
    }
    while initiator.asked.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    allow.send(()).unwrap();
    assert!(tasks.join_all().await.iter().all(|error| matches!(error, CallError::NoContext { .. })));
    assert_eq!(initiator.asked.load(Ordering::SeqCst), 2);
    client.close().await;
    server.end().await;
    // A server without RPCSEC_GSS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = Server::builder().program(program()).listen_tcp(listener).build().unwrap();
    let task = tokio::spawn(plain.serve(std::future::pending()));
    let secure = Secure(self::client(Over::Tcp, address).await, user(Service::None));
    let error = count(&secure).await.unwrap_err();
    assert!(
        matches!(&error, CallError::NoContext { reason, .. } if reason.to_string().contains("AUTH_ERROR")),
        "{error}"
    );
    secure.0.close().await;
    task.abort();
}

/// A sink of the caller is written in place as without a context.
#[tokio::test]
async fn a_sink_of_the_caller_is_written_in_place() {
    let server = serve().await;
    let secure = Secure(server.client(Over::Rdma).await, user(Service::None));
    let memory = vec![0; MIB];
    let address = memory.as_ptr();
    let sink = Sink::Buffer(rpcrdma_verbs::Buffer::adopt(memory));
    let mut reply = secure.call_raw(get_call(MIB, sink)).await.unwrap();
    let data = reply.results.payload(MIB).unwrap();
    assert_eq!(data.as_ptr(), address);
    drop((reply, data));
    let transfer = secure.0.null(PROGRAM, VERSION).await.unwrap();
    assert_eq!(transfer.call.form, Form::Inline);
    secure.0.close().await;
    server.end().await;
}

/// A relay whose address is gone after [`Gone::end`]: nothing listens there any more.
struct Gone {
    address: SocketAddr,
    stopped: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Gone {
    async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = watch::Sender::new(false);
        let stop = stopped.subscribe();
        let task = tokio::spawn(async move {
            let mut relays = JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                relays.spawn(relay(from, TcpStream::connect(to).await.unwrap(), stop.clone()));
            }
        });
        Self { address, stopped, task }
    }

    /// Cuts all connections, and accepts none any more.
    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn executed(server: &Running, count: u32) {
    let executed = async {
        while server.program.count.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, executed).await.unwrap();
}

/// I8: the server carried the call out, and is gone before its reply. Without a context the error says "unknown".
#[tokio::test]
async fn i8_the_server_goes_away_after_it_has_carried_out_a_call() {
    for transport in TRANSPORTS {
        for secured in [false, true] {
            let server = serve().await;
            let gone = Gone::new(server.address(transport)).await;
            let secure = Secure(client(transport, gone.address).await, user(Service::None));
            assert_eq!(count(&secure).await.unwrap(), 1);
            gone.stopped.send_replace(true);
            let caller = secure.clone();
            let lost = tokio::spawn(async move {
                let call = crate::support::call(crate::support::COUNT).results(4);
                let call = call.timeout(Duration::from_millis(500));
                if secured { caller.call_raw(call).await } else { caller.0.call_raw(call).await }
            });
            executed(&server, 2).await;
            gone.end().await;
            let error = lost.await.unwrap().unwrap_err();
            assert_eq!(error.execution(), Execution::Unknown, "{transport:?} secured: {secured}: {error:?}");
            server.end().await;
        }
    }
}

/// An initiator that has no tickets from some time on.
struct Expiring {
    mechanism: TestMechanism,
    without: AtomicBool,
}

impl Initiator for Expiring {
    fn begin(&self, service: &str) -> Result<Box<dyn Initiating>, MechanismError> {
        if self.without.load(Ordering::SeqCst) {
            return Err(MechanismError::new(0x000b_0000, 0, "the ticket has expired"));
        }
        Initiator::begin(&self.mechanism, service)
    }
}

/// I8: the reply is lost, and the user's ticket has expired meanwhile.
#[tokio::test]
async fn i8_a_ticket_expires_while_a_call_that_was_carried_out_is_sent_again() {
    let server = serve().await;
    let relay = Relay::new(server.address(Over::Tcp)).await;
    let mechanism = TestMechanism::new("alice");
    let expired = Arc::clone(&mechanism.expired);
    let initiator = Arc::new(Expiring { mechanism, without: AtomicBool::new(false) });
    let user = Arc::new(GssUser::new(Arc::clone(&initiator) as _, "nfs@server", Service::Integrity));
    let secure = Secure(client(Over::Tcp, relay.address).await, user);
    relay.stopped.send_replace(false);
    assert_eq!(count(&secure).await.unwrap(), 1);
    relay.stopped.send_replace(true);
    let caller = secure.clone();
    let lost = tokio::spawn(async move { count(&caller).await });
    executed(&server, 2).await;
    initiator.without.store(true, Ordering::SeqCst);
    expired.store(true, Ordering::SeqCst);
    relay.cut().await;
    relay.stopped.send_replace(false);
    let error = lost.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::NoContext { .. }), "{error:?}");
    assert_eq!(error.execution(), Execution::Unknown, "it was carried out: {error:?}");
    secure.0.close().await;
    server.end().await;
}

/// The time of one call is not that of others which wait for the same context.
#[tokio::test]
async fn a_call_with_little_time_ends_no_other() {
    let server = serve().await;
    let relay = Relay::new(server.address(Over::Tcp)).await;
    let secure = Secure(client(Over::Tcp, relay.address).await, user(Service::None));
    relay.stopped.send_replace(true);
    let hasty = secure.clone();
    let hasty = tokio::spawn(async move {
        let call = crate::support::call(crate::support::COUNT).results(4);
        hasty.call_raw(call.timeout(Duration::from_millis(500))).await
    });
    while server.begun() == 0 {
        tokio::task::yield_now().await;
    }
    let patient = secure.clone();
    let patient = tokio::spawn(async move { count(&patient).await });
    let error = hasty.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
    relay.stopped.send_replace(false);
    assert_eq!(patient.await.unwrap().map_err(|error| format!("{error:?}")), Ok(1));
    secure.0.close().await;
    server.end().await;
}

/// ARCHITECTURE.md, "exactly once": a server that makes no reply closes the connection, and the client sends again.
#[tokio::test]
async fn i8_rfc2203_5_3_3_4_results_that_cannot_be_protected_are_asked_for_again() {
    for transport in TRANSPORTS {
        let mechanism = TestMechanism::new("nfs@server");
        let program = program();
        let mute = Arc::clone(&mechanism.mute);
        let server = serve_by(mechanism, Arc::clone(&program) as _, program).await;
        let secure = Secure(server.client(transport).await, user(Service::Integrity));
        assert_eq!(count(&secure).await.unwrap(), 1);
        server.program.held.send_replace(true);
        let caller = secure.clone();
        let lost = tokio::spawn(async move { count(&caller).await });
        let until = async |is: &dyn Fn() -> bool| {
            while !is() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, until(&|| server.program.count.load(Ordering::SeqCst) == 2)).await.unwrap();
        let done = || server.mechanism.threaded.load(Ordering::SeqCst);
        let before = done();
        mute.store(true, Ordering::SeqCst);
        server.program.held.send_replace(false);
        timeout(PATIENCE, until(&|| done() > before)).await.unwrap();
        mute.store(false, Ordering::SeqCst);
        let reply = timeout(PATIENCE, lost).await;
        assert_eq!(reply.unwrap().unwrap().unwrap(), 2, "{transport:?}");
        secure.0.close().await;
        server.end().await;
    }
}
