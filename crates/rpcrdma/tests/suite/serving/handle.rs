//! [`ServerHandle`](rpcrdma::ServerHandle): a server in a task of its own, and its end.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{CallError, Client, ServeError, ServerConfig, Transport};
use rpcrdma_verbs::{BoxFuture, Incoming, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::{CHANGE, LOOK, OnTcp, PROGRAM, SERVER, Simulated, Work, builder, call, host};

#[tokio::test(start_paused = true)]
async fn a_shutdown_answers_the_calls_in_progress() {
    let world = Simulated::new(|server| server).await;
    assert_eq!(world.server.rdma_addresses().unwrap(), [SERVER]);
    assert_eq!(world.server.tcp_addresses().unwrap(), []);
    let client = world.client(2).await;
    world.work.hold();
    let slow = world.begin(&client, LOOK).await;
    let monitor = world.server.monitor();
    let stopping = tokio::spawn(world.server.shutdown());
    sleep(Duration::from_secs(1)).await;
    assert!(!stopping.is_finished(), "a call is in progress");
    world.work.let_go();
    assert_eq!(slow.await.unwrap().unwrap(), 7);
    timeout(Duration::from_secs(1), stopping).await.unwrap().unwrap().unwrap();
    assert_eq!((monitor.stats().connections, monitor.stats().memory_in_use), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_limited_time() {
    let mut config = ServerConfig::default();
    config.grace = Duration::from_secs(3);
    let world = Simulated::new(|server| server.config(config)).await;
    let client = world.client(2).await;
    world.work.hold();
    let slow = world.begin(&client, LOOK).await;
    let begun = Instant::now();
    world.server.shutdown().await.unwrap();
    assert!((3000..3100).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    // The client calls the next server, so nothing goes on for it here.
    while world.work.dropped() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!slow.is_finished());
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_stops_the_server_in_order() {
    let world = Simulated::new(|server| server).await;
    let client = world.client(2).await;
    world.work.hold();
    let slow = world.begin(&client, CHANGE).await;
    let monitor = world.server.monitor();
    drop(world.server);
    sleep(Duration::from_secs(1)).await;
    let connector = Arc::new(world.fabric.connector(host(3)));
    let refused = Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await;
    assert!(refused.is_err(), "nobody listens");
    assert_eq!(monitor.stats().connections, 1, "a call is in progress");
    world.work.let_go();
    assert_eq!(slow.await.unwrap().unwrap(), 7);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(monitor.stats().connections, 0);
}

#[tokio::test]
async fn the_end_can_be_awaited_again_and_again() {
    let mut world = OnTcp::new(|server| server).await;
    assert_eq!(world.server.tcp_addresses().unwrap(), [world.address]);
    assert_eq!(world.server.rdma_addresses().unwrap(), []);
    let client = Client::builder().transport(Transport::tcp()).connect(world.address).await.unwrap();
    for _ in 0..2 {
        timeout(Duration::from_millis(10), world.server.ended()).await.unwrap_err();
        assert_eq!(call(&client, LOOK, 7).await.unwrap(), 7, "waiting does not stop the server");
    }
    world.server.stop();
    for _ in 0..2 {
        timeout(Duration::from_secs(10), world.server.ended()).await.unwrap().unwrap();
    }
    // The port is free again.
    TcpListener::bind(world.address).await.unwrap();
    world.server.shutdown().await.unwrap();
}

/// A shutdown that is not awaited is one all the same.
#[tokio::test(start_paused = true)]
async fn a_dropped_shutdown_goes_on() {
    let world = Simulated::new(|server| server).await;
    let client = world.client(2).await;
    let monitor = world.server.monitor();
    drop(world.server.shutdown());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(monitor.stats().connections, 0);
    let error = client.null(PROGRAM, 1).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
}

/// A listener that is defective.
struct Defective;

impl Listener for Defective {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async {
            sleep(Duration::from_secs(5)).await;
            panic!("a defect")
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no address"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_listener_ends_the_server() {
    let mut world = Simulated::new(|server| server.listen_rdma(Box::new(Defective))).await;
    let error = world.server.rdma_addresses().unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::Unsupported, "no address"));
    let client = world.client(2).await;
    assert_eq!(call(&client, LOOK, 7).await.unwrap(), 7);
    for _ in 0..2 {
        assert!(matches!(world.server.ended().await, Err(ServeError::ListenerEnded)));
    }
    assert!(matches!(world.server.shutdown().await, Err(ServeError::ListenerEnded)));
}

#[test]
fn the_end_of_the_runtime_ends_the_server() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (servers, own) = (runtime(), runtime());
    let mut server = servers.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = builder(&Work::new()).listen_tcp(listener).build().unwrap().spawn();
        tokio::task::yield_now().await;
        server
    });
    own.block_on(async {
        tokio::select! {
            biased;
            _ = server.ended() => panic!("ended"),
            () = tokio::task::yield_now() => {}
        }
    });
    drop(servers);
    assert!(matches!(own.block_on(server.ended()), Err(ServeError::Interrupted)));
    own.block_on(async { timeout(Duration::from_millis(1), pending::<()>()).await.unwrap_err() });
}

/// A client would send a call again whose reply got lost, and the next server would execute it once more.
#[tokio::test]
async fn the_last_replies_arrive_before_a_connection_ends() {
    let mut world = OnTcp::new(|server| server).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    // RFC 5531 §9 and §11: the mark, then a call of procedure 0 without credentials.
    let words: [u32; 11] = [1 << 31 | 40, 7, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0];
    let call: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    stream.write_all(&call).await.unwrap();
    timeout(Duration::from_secs(10), stream.readable()).await.unwrap().unwrap();
    world.server.stop();
    // Bytes for a closed socket would reset the connection, and the reply would be lost.
    for _ in 0..3 {
        sleep(Duration::from_millis(20)).await;
        stream.write_all(&call).await.unwrap();
    }
    let mut replies = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut replies)).await.unwrap().unwrap();
    // On a slow machine the server may take another call before it stops.
    assert!(!replies.is_empty() && replies.len() % 28 == 0, "{} bytes", replies.len());
    drop(stream);
    timeout(Duration::from_secs(10), world.server.ended()).await.unwrap().unwrap();
}
