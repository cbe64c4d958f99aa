//! Handlers whose callers are gone, and handlers that are dropped half-way.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{
    CallContext, CallFailure, Client, ClientConfig, NextService, ResponseFuture, ServerMonitor, ShedLimits,
    Transport,
};
use rpcrdma_xdr::Decoder;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{CHANGE, LOOK, OnTcp, SYSTEM_ERR, Simulated, Work, builder, call, is_system_error};

/// The loss of a connection drops no handler: a repeat on another connection waits for it.
#[tokio::test]
async fn i8_a_handler_goes_on_without_its_connection() {
    let world = OnTcp::new(|server| server).await;
    world.work.hold();
    let mut first = world.raw().await;
    first.send(1, CHANGE).await;
    world.work.wait_begun(1).await;
    drop(first);
    let mut second = world.raw().await;
    second.send(1, CHANGE).await;
    world.wait_repeat().await;
    world.work.let_go();
    assert_eq!(second.reply().await, Some(Ok(1)));
    assert_eq!((world.work.begun(), world.work.dropped()), (1, 0));
}

/// Gives a call up after a second.
fn impatient(context: CallContext, arguments: Decoder, next: NextService) -> ResponseFuture {
    let results = next.call(context, arguments);
    Box::pin(async move {
        timeout(Duration::from_secs(1), results).await.unwrap_or(Err(CallFailure::SystemError))
    })
}

/// An interceptor that drops a handler half-way answers for it. The handler may have made a part of its change, so no repeat
/// is executed.
#[tokio::test(start_paused = true)]
async fn i8_an_interceptor_that_gives_a_handler_up_decides_its_reply() {
    let world = Simulated::new(|server| server.intercept(impatient).shed(ShedLimits::new(2))).await;
    let client = world.client(2).await;
    world.work.hold();
    for (number, procedure) in [(1, LOOK), (2, CHANGE)] {
        assert!(is_system_error(call(&client, procedure, 7).await));
        assert_eq!((world.work.begun(), world.work.dropped()), (number, number));
    }
    let stats = world.server.monitor().stats();
    assert_eq!((stats.shed.in_progress, stats.connections, stats.reply_cache.abandoned), (0, 1, 0));
    world.work.let_go();
    assert_eq!(call(&client, LOOK, 7).await.unwrap(), 7);
}

#[tokio::test]
async fn i8_a_repeat_of_a_call_that_was_given_up_is_not_executed() {
    let hurried = |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        // The handler is polled once, and dropped.
        let mut results = next.call(context, arguments);
        Box::pin(async move {
            tokio::select! {
                biased;
                results = &mut results => results,
                () = std::future::ready(()) => Err(CallFailure::SystemError),
            }
        })
    };
    let world = OnTcp::new(|server| server.intercept(hurried)).await;
    world.work.hold();
    assert_eq!(world.raw().await.call(1, CHANGE).await, Some(Err(SYSTEM_ERR)));
    world.work.let_go();
    assert_eq!(world.raw().await.call(1, CHANGE).await, Some(Err(SYSTEM_ERR)));
    assert_eq!((world.work.begun(), world.work.dropped()), (1, 1));
}

/// A server in a runtime of its own, which a test can end.
struct Apart {
    runtime: Runtime,
    world: OnTcp,
}

impl Apart {
    async fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.spawn(OnTcp::new(|server| server.shed(ShedLimits::new(8))));
        let world = server.await.unwrap();
        world.work.hold();
        Self { runtime, world }
    }

    /// Ends the runtime, and with it the server.
    async fn end(self) -> (Arc<Work>, ServerMonitor) {
        let Self { runtime, world } = self;
        // The end waits for the thread of the runtime.
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        (world.work, world.server.monitor())
    }
}

/// The end of the runtime drops handlers half-way. Neither the call nor a repeat that waits for it gets a reply: whether the
/// call was carried out is unknown. Their connections end, so their clients call elsewhere.
#[tokio::test]
async fn i8_i10_the_end_of_the_runtime_leaves_nobody_waiting() {
    let apart = Apart::new().await;
    let (mut first, mut second) = (apart.world.raw().await, apart.world.raw().await);
    first.send(1, CHANGE).await;
    apart.world.work.wait_begun(1).await;
    second.send(1, CHANGE).await;
    apart.world.wait_repeat().await;
    let (work, monitor) = apart.end().await;
    for raw in [&mut first, &mut second] {
        assert_eq!(timeout(Duration::from_secs(10), raw.reply()).await.unwrap(), None);
    }
    let stats = monitor.stats();
    assert_eq!((work.begun(), work.dropped()), (1, 1));
    assert_eq!((stats.reply_cache.abandoned, stats.shed.in_progress, stats.connections), (1, 0, 0));
    assert_eq!(stats.memory_in_use, 0);
}

/// The client's call outlives the server: the next one executes it.
#[tokio::test]
async fn i8_a_call_whose_server_ends_half_way_is_executed_by_the_next() {
    let apart = Apart::new().await;
    let address = apart.world.address;
    let mut config = ClientConfig::default();
    config.protocol.timeouts.call = Duration::from_secs(20);
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    let client = Client::builder().config(config).transport(Transport::tcp()).connect(address).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { call(&client, CHANGE, 7).await }
    });
    apart.world.work.wait_begun(1).await;
    let (work, _) = apart.end().await;
    assert_eq!((work.begun(), work.dropped()), (1, 1));
    let listener = TcpListener::bind(address).await.unwrap();
    let work = Work::new();
    let server = builder(&work).listen_tcp(listener).build().unwrap().spawn();
    assert_eq!(timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap(), 7);
    assert_eq!((work.begun(), client.stats().connections, client.stats().retransmissions), (1, 2, 1));
    server.shutdown().await.unwrap();
}
