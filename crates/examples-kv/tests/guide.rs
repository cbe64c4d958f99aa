//! The code of `docs/guide.md` beside the example itself, on the simulated fabric under virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma::bytes::Bytes;
use rpcrdma::xdr::Decoder;
use rpcrdma::{
    BoxFuture, Call, CallContext, CallError, CallFailure, Client, ClientConfig, Execution, HealthState,
    Intercept, Next, NextService, Reply, ResponseFuture, Retry, Server, ServerBuilder, ServerConfig,
    ServerHandle, ShedLimits, Transport,
};
use rpcrdma_examples_kv::{KvEntry, KvFound, KvKey, KvNames, KvStatus, Store, kv_store};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::time::{Instant, sleep};

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 20049);
const HOST: [u8; 4] = [192, 0, 2, 2];

/// A store whose GET takes a second.
#[derive(Default)]
struct Slow(Store);

impl kv_store::Service for Slow {
    async fn put(&self, context: &CallContext, entry: KvEntry) -> Result<KvStatus, CallFailure> {
        self.0.put(context, entry).await
    }

    async fn get(&self, context: &CallContext, key: KvKey) -> Result<KvFound, CallFailure> {
        sleep(Duration::from_secs(1)).await;
        self.0.get(context, key).await
    }

    async fn remove(&self, _: &CallContext, _: KvKey) -> Result<KvStatus, CallFailure> {
        panic!("a defect");
    }

    async fn list(&self, _: &CallContext) -> Result<KvNames, CallFailure> {
        // A key of 256 bytes, which the description does not allow.
        Ok(KvNames { keys: vec![KvKey { name: "k".repeat(256) }] })
    }
}

async fn world(builder: ServerBuilder, service: impl kv_store::Service) -> (ServerHandle, Client) {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let listener = Box::new(fabric.listen(SocketAddr::from(SERVER)).unwrap());
    let program = Arc::new(kv_store::serve(service));
    let server = builder.program(program).listen_rdma(listener).build().unwrap().spawn();
    tokio::task::yield_now().await;
    let transport = Transport::rdma_on(Arc::new(fabric.connector(IpAddr::from(HOST))));
    let client = Client::builder().transport(transport).connect(SocketAddr::from(SERVER)).await.unwrap();
    // The first call goes alone; its reply grants credits for more at a time (RFC 8166 §3.3.1).
    client.null(kv_store::PROGRAM, kv_store::VERSION).await.unwrap();
    (server, client)
}

fn key() -> KvKey {
    KvKey { name: "city".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_the_round_trips_that_it_needs() {
    // A link of 10 ms each way. Its time is virtual, so the test takes none.
    let latency = Duration::from_millis(10);
    let fabric = Fabric::on_tokio(FabricConfig { latency, seed: 7, ..FabricConfig::default() });
    let listener = Box::new(fabric.listen(SocketAddr::from(SERVER)).unwrap());
    let program = Arc::new(kv_store::serve(Store::default()));
    let server = Server::builder().program(program).listen_rdma(listener).build().unwrap().spawn();
    // The task of the server begins to listen.
    tokio::task::yield_now().await;
    let transport = Transport::rdma_on(Arc::new(fabric.connector(IpAddr::from(HOST))));
    let client = Client::builder().transport(transport).connect(SocketAddr::from(SERVER)).await.unwrap();
    let store = kv_store::Client::new(&client);

    // A short call is one round trip. The server fetches a long value by RDMA Read, which is another one.
    let began = Instant::now();
    assert_eq!(store.get(key()).await.unwrap(), KvFound::Default(KvStatus::Absent));
    assert_eq!(began.elapsed().as_millis() / 10, 2);
    let began = Instant::now();
    let entry = KvEntry { name: "city".to_owned(), value: Bytes::from(vec![7; 1 << 20]) };
    assert_eq!(store.put(&entry).await.unwrap(), KvStatus::Ok);
    assert_eq!(began.elapsed().as_millis() / 10, 4);

    // The connection is lost. The next call opens another one.
    for connection in fabric.connections() {
        fabric.cut(connection);
    }
    assert_eq!(store.get(key()).await.unwrap(), KvFound::Ok(entry.value));
    client.close().await;
    server.shutdown().await.unwrap();
}

/// Returns what a caller does after a failed call.
fn advice(error: &CallError) -> &'static str {
    match error {
        // Both numbers are in the message: what the call needs, and what the connection has.
        CallError::CallTooLong { .. } | CallError::ResultsTooLong { .. } => "ask for less",
        CallError::Unsendable { .. } => "mend the arguments",
        error if error.execution() == Execution::NotExecuted && error.is_transient() => "try again",
        error if error.is_transient() => "look whether the call was carried out, then try again",
        _ => "give up",
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_tells_what_is_known() {
    let (server, client) = world(Server::builder(), Slow::default()).await;
    let store = kv_store::Client::new(client.handle().deadline(Duration::from_millis(200)));
    let late = store.get(key()).await.unwrap_err();
    assert!(matches!(late, CallError::TimedOut { sent: true, .. }), "{late}");
    assert_eq!(advice(&late), "look whether the call was carried out, then try again");

    let entry = KvEntry { name: "k".repeat(256), value: Bytes::new() };
    let unsendable = store.put(entry).await.unwrap_err();
    assert!(unsendable.to_string().contains("KvEntry.name"), "{unsendable}");
    assert_eq!(advice(&unsendable), "mend the arguments");

    // The service panics, or breaks the limits of its results. The caller gets SYSTEM_ERR, and the server lives.
    assert!(matches!(store.remove(key()).await, Err(CallError::Refused(_))));
    assert!(matches!(store.list().await, Err(CallError::Refused(_))));
    client.null(kv_store::PROGRAM, kv_store::VERSION).await.unwrap();
    client.close().await;
    assert_eq!(advice(&store.get(key()).await.unwrap_err()), "give up");
    server.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_fit_is_refused_before_the_call_leaves() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let listener = Box::new(fabric.listen(SocketAddr::from(SERVER)).unwrap());
    let mut config = ServerConfig::default();
    // All clients together, and one address of a client.
    config.memory = 256 << 20;
    config.memory_per_peer = Some(64 << 20);
    config.max_connections = 64;
    config.grace = Duration::from_secs(5);
    let program = Arc::new(kv_store::serve(Store::default()));
    let builder = Server::builder().config(config).program(program).listen_rdma(listener);
    let server = builder.build().unwrap().spawn();
    tokio::task::yield_now().await;

    let mut config = ClientConfig::default();
    config.memory = 1 << 20;
    let transport = Transport::rdma_on(Arc::new(fabric.connector(IpAddr::from(HOST))));
    let builder = Client::builder().config(config).transport(transport);
    let client = builder.connect(SocketAddr::from(SERVER)).await.unwrap();
    // A value of 1 MiB and the Receives of the connection do not fit in the memory of this client.
    let refused = kv_store::Client::new(&client).get(key()).await.unwrap_err();
    assert!(matches!(refused, CallError::ResultsTooLong { len, room } if len > room), "{refused}");
    assert_eq!(advice(&refused), "ask for less");
    client.close().await;
    server.shutdown().await.unwrap();
}

/// Counts calls that failed.
#[derive(Default)]
struct Failures(AtomicU64);

impl Intercept for Failures {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            let result = next.call(call).await;
            self.0.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
            result
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_repeats_calls_that_a_busy_server_sheds() {
    let (server, client) = world(Server::builder().shed(ShedLimits::new(1)), Slow::default()).await;
    let failures = Arc::new(Failures::default());
    let handle = client
        .handle()
        .deadline(Duration::from_secs(30))
        .retry(Retry::new(10).pauses(Duration::from_millis(100), Duration::from_secs(2)).seed(7))
        .intercept(Arc::clone(&failures));
    let store = kv_store::Client::new(handle);
    let (one, other) = tokio::join!(store.get(key()), store.get(key()));
    assert_eq!(one.unwrap(), KvFound::Default(KvStatus::Absent));
    assert_eq!(other.unwrap(), KvFound::Default(KvStatus::Absent));
    assert!(server.monitor().stats().shed.total > 0);
    // The interceptor sees a call once, with all of its attempts.
    assert_eq!(failures.0.load(Ordering::Relaxed), 0);
    client.close().await;
    server.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_measures_its_calls() {
    let slow = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&slow);
    let measure = move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let began = Instant::now();
            let results = next.call(context, arguments).await;
            count.fetch_add(u64::from(began.elapsed() > Duration::from_millis(500)), Ordering::Relaxed);
            results
        })
    };
    let (server, client) = world(Server::builder().intercept(measure), Slow::default()).await;
    kv_store::Client::new(&client).get(key()).await.unwrap();
    assert_eq!(slow.load(Ordering::Relaxed), 1);
    client.close().await;
    server.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_knows_whether_the_store_answers() {
    let (server, client) = world(Server::builder(), Store::default()).await;
    let health =
        client.handle().deadline(Duration::from_secs(2)).health(kv_store::PROGRAM, kv_store::VERSION);
    health.check().await.unwrap();
    let watch = health.watch(Duration::from_secs(5));
    watch.healthy().await.unwrap();
    server.shutdown().await.unwrap();
    let error = watch.unhealthy().await;
    assert!(error.is_transient(), "{error}");
    assert!(matches!(watch.state(), HealthState::Unhealthy { failures: 1, .. }));
    client.close().await;
}

/// The server sees a connection as the address of its client's end.
#[tokio::test(start_paused = true)]
async fn calls_of_one_key_share_a_connection() {
    let (callers, called) = tokio::sync::mpsc::unbounded_channel();
    let note = move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        callers.send(context.peer.unwrap()).unwrap();
        next.call(context, arguments)
    };
    let mut called = called;
    let mut taken = move || -> Vec<SocketAddr> { std::iter::from_fn(|| called.try_recv().ok()).collect() };
    let distinct = |taken: &[SocketAddr]| taken.iter().collect::<BTreeSet<_>>().len();
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let listener = Box::new(fabric.listen(SocketAddr::from(SERVER)).unwrap());
    let program = Arc::new(kv_store::serve(Store::default()));
    let server = Server::builder().program(program).intercept(note).listen_rdma(listener);
    let server = server.build().unwrap().spawn();
    tokio::task::yield_now().await;
    let mut config = ClientConfig::default();
    config.connections = 4;
    config.memory = 128 << 20;
    let transport = Transport::rdma_on(Arc::new(fabric.connector(IpAddr::from(HOST))));
    let builder = Client::builder().config(config).transport(transport);
    let client = builder.connect(SocketAddr::from(SERVER)).await.unwrap();
    let one_user = kv_store::Client::new(client.handle().key(42));
    for _ in 0..8 {
        one_user.list().await.unwrap();
    }
    let of_user = taken();
    assert_eq!((of_user.len(), distinct(&of_user)), (8, 1), "{of_user:?}");
    // Other keys have the other connections, and calls without a key take all of them in turn.
    for key in 0..32 {
        kv_store::Client::new(client.handle().key(key)).list().await.unwrap();
    }
    assert_eq!(distinct(&taken()), 4);
    for _ in 0..4 {
        kv_store::Client::new(&client).list().await.unwrap();
    }
    assert_eq!(distinct(&taken()), 4);
    // Calls of one key that are in progress together share their connection, too.
    let (first, second, third) = tokio::join!(one_user.list(), one_user.list(), one_user.list());
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(taken(), [of_user.first(); 3].map(|peer| *peer.unwrap()));
    client.close().await;
    server.shutdown().await.unwrap();
}
