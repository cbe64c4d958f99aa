//! Client and server over the simulated fabric, on tokio's paused clock. The tests make messages of every form, lose
//! connections at every step, drop and delay calls, stop servers, and try bounds.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{
    TestProgram, count, echo, echo_call, get, get_call, pattern, program, put, put_call, sleep_call, with,
};
use bytes::Bytes;
use rpcrdma::{
    CallError, Client, ClientConfig, Execution, Form, Server, ServerConfig, ServerMonitor, Sink, Transport,
    TransportKind,
};
use rpcrdma_sim::{Action, CompletionMode, Fabric, FabricConfig, Fault, Outstanding, Side, Step};
use rpcrdma_verbs::Buffer;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const MIB: usize = 1 << 20;

struct Running {
    fabric: Fabric,
    monitor: ServerMonitor,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

fn fabric(mode: CompletionMode) -> Fabric {
    Fabric::on_tokio(FabricConfig { completion_mode: mode, seed: 1, ..FabricConfig::default() })
}

fn serve(fabric: &Fabric, program: Arc<TestProgram>, config: ServerConfig) -> Running {
    let listener = fabric.listen(SERVER).unwrap();
    let server =
        Server::builder().config(config).program(program).listen_rdma(Box::new(listener)).build().unwrap();
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    Running { fabric: fabric.clone(), monitor, stop: Some(stop), task }
}

async fn client_with(fabric: &Fabric, config: ClientConfig) -> Client {
    // The server's task must begin to listen first.
    tokio::task::yield_now().await;
    Client::builder()
        .config(config)
        .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
        .connect(SERVER)
        .await
        .unwrap()
}

async fn client(fabric: &Fabric) -> Client {
    client_with(fabric, ClientConfig::default()).await
}

impl Running {
    /// Closes the client and stops the server; checks that neither holds memory.
    async fn end(mut self, client: Client) {
        client.close().await;
        assert_eq!(client.stats().memory_in_use, 0, "memory of the client");
        self.stop.take().unwrap().send(()).unwrap();
        timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap();
        let stats = self.monitor.stats();
        assert_eq!((stats.connections, stats.memory_in_use), (0, 0), "memory of the server");
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
    }
}

/// Makes a call with each form that a call and its reply can have.
async fn all_forms(mode: CompletionMode) {
    let fabric = fabric(mode);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;

    let inline = echo(&client, &pattern(500)).await.unwrap().travelled;
    assert_eq!(inline.transport, TransportKind::Rdma);
    assert_eq!((inline.call.form, inline.reply.form), (Form::Inline, Form::Inline));

    let written = put(&client, Bytes::from(pattern(MIB))).await.unwrap().travelled;
    assert_eq!((written.call.form, written.call.read), (Form::Reduced, MIB));
    assert_eq!(written.reply.form, Form::Inline);
    assert_eq!(written.invalidations.remote + written.invalidations.local, 1);

    let read = get(&client, MIB).await.unwrap().travelled;
    assert_eq!((read.call.form, read.reply.form), (Form::Inline, Form::Reduced));
    assert_eq!(read.reply.written, MIB);

    let long = echo(&client, &pattern(100_001)).await.unwrap().travelled;
    assert_eq!((long.call.form, long.reply.form), (Form::Long, Form::Long));
    assert!(long.call.read > 100_000 && long.reply.reply_chunk > 100_000);

    for length in [0, 1, 2, 3, 4, 5, 3_000, 4_000, 4_096, 5_000, 65_537] {
        echo(&client, &pattern(length)).await.unwrap();
        put(&client, Bytes::from(pattern(length))).await.unwrap();
        get(&client, length).await.unwrap();
    }
    client.null(crate::support::PROGRAM, 1).await.unwrap();
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn all_forms_with_local_completions() {
    all_forms(CompletionMode::Local).await;
}

#[tokio::test(start_paused = true)]
async fn all_forms_with_acknowledged_completions() {
    all_forms(CompletionMode::Acknowledged).await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_of_the_caller_is_written_in_place() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let memory = vec![0; MIB];
    let address = memory.as_ptr();
    let mut reply = client.call_raw(get_call(MIB, Sink::Buffer(Buffer::adopt(memory)))).await.unwrap();
    let data = reply.results.payload(MIB).unwrap();
    assert_eq!(data.as_ptr(), address);
    assert_eq!(data, pattern(MIB));
    drop((reply, data));
    assert_eq!((client.stats().payload_bytes_copied, server.monitor.stats().payload_bytes_copied), (0, 0));
    server.end(client).await;
}

// requirement: rfc8267-3-2
#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_fit_is_refused_and_harms_nothing() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let error = client.call_raw(get_call(100_000, Sink::Pool(50_000))).await.unwrap_err();
    assert!(matches!(error, CallError::Chunk), "{error}");
    assert_eq!(error.execution(), Execution::Unknown);
    let error = client.call_raw(echo_call(&pattern(20_000)).results(100)).await.unwrap_err();
    assert!(matches!(error, CallError::Chunk), "{error}");
    echo(&client, b"unharmed").await.unwrap();
    assert_eq!(client.stats().connections, 1);
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn many_calls_in_flight() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let fabric = fabric(mode);
        let server = serve(&fabric, program(), ServerConfig::default());
        let client = client(&fabric).await;
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..400_usize {
            let client = client.clone();
            tasks.spawn(async move {
                match i % 4 {
                    0 => drop(echo(&client, &pattern(i * 50)).await.unwrap()),
                    1 => drop(put(&client, Bytes::from(pattern(i * 100))).await.unwrap()),
                    2 => drop(get(&client, i * 100).await.unwrap()),
                    _ => drop(client.call_raw(sleep_call(u32::try_from(i % 7).unwrap())).await.unwrap()),
                }
            });
        }
        tasks.join_all().await;
        server.end(client).await;
    }
}

/// Returns every step at which a connection can break while one call is made on it.
fn steps(most: u64) -> impl Iterator<Item = (Side, Step, Action)> {
    let kinds: [fn(u64) -> Step; 3] = [Step::Posted, Step::Segment, Step::Delivered];
    [Side::A, Side::B].into_iter().flat_map(move |side| {
        kinds.into_iter().flat_map(move |kind| {
            (0..most).flat_map(move |n| {
                [Action::Cut, Action::CutAfter].into_iter().map(move |action| (side, kind(n), action))
            })
        })
    })
}

async fn exactly_once(mode: CompletionMode) {
    for (side, at, action) in steps(4) {
        let fabric = fabric(mode);
        let program = program();
        let server = serve(&fabric, Arc::clone(&program), ServerConfig::default());
        fabric.plan(Fault { connection: 0, side, at, action });
        let client = client(&fabric).await;
        let what = format!("{side:?} {at:?} {action:?}");
        assert_eq!(count(&client).await.unwrap(), 1, "{what}");
        assert_eq!(count(&client).await.unwrap(), 2, "{what}");
        assert_eq!(program.count.load(Ordering::SeqCst), 2, "{what}");
        server.end(client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn i8_a_call_survives_loss_at_every_step_and_runs_once() {
    exactly_once(CompletionMode::Local).await;
}

#[tokio::test(start_paused = true)]
async fn i8_a_call_survives_loss_at_every_step_with_acknowledged_completions() {
    exactly_once(CompletionMode::Acknowledged).await;
}

#[tokio::test(start_paused = true)]
async fn i8_bulk_survives_loss_at_every_step() {
    for (side, at, action) in steps(8) {
        let fabric = fabric(CompletionMode::Local);
        let server = serve(&fabric, program(), ServerConfig::default());
        fabric.plan(Fault { connection: 0, side, at, action });
        let client = client(&fabric).await;
        let other = client.clone();
        let (written, read) = tokio::join!(put(&client, Bytes::from(pattern(20_000))), get(&other, 20_000));
        assert!(written.is_ok() && read.is_ok(), "{side:?} {at:?} {action:?}");
        drop((written, read, other));
        server.end(client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn i8_a_call_in_progress_at_the_loss_runs_once() {
    let fabric = fabric(CompletionMode::Local);
    let program = program();
    program.delay.store(5_000, Ordering::SeqCst);
    let server = serve(&fabric, Arc::clone(&program), ServerConfig::default());
    let client = client(&fabric).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { count(&client).await }
    });
    sleep(Duration::from_secs(1)).await;
    fabric.cut(0);
    assert_eq!(call.await.unwrap().unwrap(), 1);
    assert_eq!(program.count.load(Ordering::SeqCst), 1);
    assert_eq!((client.stats().connections, client.stats().retransmissions), (2, 1));
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i8_a_call_that_must_not_be_repeated_says_so() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(5_000).once()).await }
    });
    sleep(Duration::from_secs(1)).await;
    fabric.cut(0);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
    assert_eq!(error.execution(), Execution::Unknown);
    echo(&client, b"unharmed").await.unwrap();
    // The call goes on without its connection, and keeps its place.
    assert_eq!(server.monitor.stats().connections, 2);
    sleep(Duration::from_secs(5)).await;
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i8_without_a_server_a_call_ends_with_its_time() {
    let fabric = fabric(CompletionMode::Local);
    let mut server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    server.stop.take().unwrap().send(()).unwrap();
    server.task.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let error = client.call_raw(sleep_call(1).timeout(Duration::from_secs(7))).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { link: Some(_), sent: false, .. }), "{error:?}");
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert!(start.elapsed() >= Duration::from_secs(7) && start.elapsed() < Duration::from_secs(8));
}

/// Drops or times out one call after this time, beside another that must not notice.
async fn interrupted(after: Duration, drop_it: bool, mode: CompletionMode) {
    let fabric = fabric(mode);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    for call in [
        put_call(Bytes::from(pattern(50_000))),
        get_call(50_000, Sink::Pool(50_000)),
        echo_call(&pattern(50_000)),
        sleep_call(100),
    ] {
        let other = client.clone();
        let other = tokio::spawn(async move { echo(&other, &pattern(30_000)).await.map(drop) });
        if drop_it {
            let _ = timeout(after, client.call_raw(call)).await;
        } else {
            match client.call_raw(call.timeout(after)).await {
                Ok(_) | Err(CallError::TimedOut { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        other.await.unwrap().unwrap();
        echo(&client, b"unharmed").await.unwrap();
    }
    // All memory of the abandoned call comes back with its late reply, on the one connection.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(client.stats().connections, 1, "after {after:?}");
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_call_dropped_at_any_time_harms_no_other() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        for micros in (0..120).step_by(7).chain([1_000]) {
            interrupted(Duration::from_micros(micros), true, mode).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i10_a_call_out_of_time_at_any_time_harms_no_other() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        for micros in (1..120).step_by(7).chain([1_000]) {
            interrupted(Duration::from_micros(micros), false, mode).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i10_memory_of_a_call_that_is_never_answered_comes_back_with_the_connection() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let never = client.call_raw(get_call(MIB, Sink::Pool(MIB)).timeout(Duration::from_micros(5)));
    fabric.partition(0);
    assert!(matches!(never.await, Err(CallError::TimedOut { sent: true, .. })));
    assert!(client.stats().memory_in_use >= MIB, "the window stays open");
    sleep(Duration::from_secs(300)).await;
    assert!(client.stats().memory_in_use < MIB, "the connection was closed for it");
    echo(&client, b"on a new connection").await.unwrap();
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_call_dropped_before_it_left_never_leaves() {
    let fabric = fabric(CompletionMode::Local);
    let program = program();
    let server = serve(&fabric, Arc::clone(&program), ServerConfig::default());
    let mut config = ClientConfig::default();
    config.protocol.calls = 1;
    let client = client_with(&fabric, config).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(1_000)).await.map(drop) }
    });
    sleep(Duration::from_millis(10)).await;
    // The only credit is in use: these calls wait, and are given up.
    for _ in 0..3 {
        assert!(timeout(Duration::from_millis(100), count(&client)).await.is_err());
    }
    first.await.unwrap().unwrap();
    echo(&client, b"unharmed").await.unwrap();
    assert_eq!(program.count.load(Ordering::SeqCst), 0);
    server.end(client).await;
}

// requirement: rfc8166-3.3.1-1, rfc5666-3.3-2, rfc5666-4.1-4
#[tokio::test(start_paused = true)]
async fn i4_no_more_calls_in_flight_than_granted() {
    let fabric = fabric(CompletionMode::Local);
    let program = program();
    let mut config = ServerConfig::default();
    config.protocol.grant = 4;
    let server = serve(&fabric, Arc::clone(&program), config);
    let client = client(&fabric).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { client.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    // The first call leaves alone, and its reply grants more (RFC 8166 §3.3.3); then four at a time.
    for (second, calls) in [(0, 1), (1, 5), (2, 9), (3, 13), (4, 17), (5, 20)] {
        sleep(Duration::from_millis(if second == 0 { 500 } else { 1_005 })).await;
        assert_eq!(program.calls.load(Ordering::SeqCst), calls, "after {second} s");
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    server.end(client).await;
}

fn config_with(connections: usize) -> ClientConfig {
    with(ClientConfig::default(), |config| config.connections = connections)
}

#[tokio::test(start_paused = true)]
async fn calls_are_spread_over_several_connections_each_with_its_credits() {
    let fabric = fabric(CompletionMode::Local);
    let program = program();
    let mut config = ServerConfig::default();
    config.protocol.grant = 4;
    let server = serve(&fabric, Arc::clone(&program), config);
    let client = client_with(&fabric, config_with(3)).await;
    assert_eq!((client.stats().connections, server.monitor.stats().connections), (3, 3));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let client = client.clone();
        tasks.spawn(async move { client.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    // On each connection the first call leaves alone, and its reply grants more; then four at a time.
    for (second, calls) in [(0, 3), (1, 15), (2, 27), (3, 30)] {
        sleep(Duration::from_millis(if second == 0 { 500 } else { 1_005 })).await;
        assert_eq!(program.calls.load(Ordering::SeqCst), calls, "after {second} s");
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!(client.stats().calls, 30);
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i8_calls_survive_the_loss_of_one_of_several_connections() {
    let fabric = fabric(CompletionMode::Local);
    let program = program();
    program.delay.store(5_000, Ordering::SeqCst);
    let server = serve(&fabric, Arc::clone(&program), ServerConfig::default());
    let client = client_with(&fabric, config_with(3)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        tasks.spawn(async move { count(&client).await.unwrap() });
    }
    sleep(Duration::from_secs(1)).await;
    fabric.cut(1);
    let mut counts = tasks.join_all().await;
    counts.sort_unstable();
    assert_eq!((counts, program.count.load(Ordering::SeqCst)), (vec![1, 2, 3], 3));
    assert_eq!((client.stats().connections, client.stats().retransmissions), (4, 1));
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_goes_on_with_the_connections_that_the_server_takes() {
    let fabric = fabric(CompletionMode::Local);
    let mut config = ServerConfig::default();
    config.max_connections_per_peer = 2;
    let server = serve(&fabric, program(), config);
    let client = client_with(&fabric, config_with(4)).await;
    assert_eq!((client.connections(), server.monitor.stats().connections), (2, 2));
    for _ in 0..4 {
        echo(&client, b"on either").await.unwrap();
    }
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn a_number_of_connections_that_is_not_allowed_is_refused_before_the_first() {
    let fabric = fabric(CompletionMode::Local);
    let connect = async |connections, serving| {
        let mut builder = Client::builder().config(config_with(connections));
        if serving {
            builder = builder.program(program());
        }
        // Nobody listens: a client that tried to connect would say so.
        builder
            .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
            .connect(SERVER)
            .await
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert!(connect(0, false).await.contains("0 connections; a client has 1 to 16"));
    assert!(connect(17, false).await.contains("17 connections; a client has 1 to 16"));
    assert!(connect(2, true).await.contains("programs to serve on 2 connections"));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_answers_calls_in_progress() {
    let fabric = fabric(CompletionMode::Local);
    let mut server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(3_000)).await }
    });
    sleep(Duration::from_secs(1)).await;
    server.stop.take().unwrap().send(()).unwrap();
    call.await.unwrap().unwrap();
    timeout(Duration::from_secs(20), server.task).await.unwrap().unwrap();
    assert_eq!((server.monitor.stats().connections, server.monitor.stats().memory_in_use), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_waits_for_a_limited_time_and_its_successor_takes_over() {
    let fabric = fabric(CompletionMode::Local);
    let mut config = ServerConfig::default();
    config.grace = Duration::from_secs(2);
    let mut server = serve(&fabric, program(), config);
    let client = client(&fabric).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call_raw(sleep_call(10_000)).await }
    });
    sleep(Duration::from_secs(1)).await;
    server.stop.take().unwrap().send(()).unwrap();
    server.task.await.unwrap();
    let successor = serve(&fabric, program(), ServerConfig::default());
    call.await.unwrap().unwrap();
    assert_eq!(client.stats().retransmissions, 1);
    successor.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn small_calls_are_not_held_up_by_bulk() {
    let fabric = Fabric::on_tokio(FabricConfig {
        bandwidth: Some(100_000_000),
        latency: Duration::from_micros(50),
        ..FabricConfig::default()
    });
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let mut bulk = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let client = client.clone();
        bulk.spawn(async move {
            for _ in 0..8 {
                get(&client, MIB).await.unwrap();
            }
        });
    }
    sleep(Duration::from_millis(100)).await;
    let mut worst = Duration::ZERO;
    for _ in 0..50 {
        let start = Instant::now();
        client.null(crate::support::PROGRAM, 1).await.unwrap();
        worst = worst.max(start.elapsed());
    }
    assert!(!bulk.is_empty());
    // 16 MiB of queued results take 168 ms. A NULL call waits only for a few segments of 4 KiB (41 µs each), and for
    // tokio's clock, which counts in milliseconds.
    assert!(worst <= Duration::from_millis(6), "{worst:?}");
    bulk.join_all().await;
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i6_silent_peers_do_not_keep_others_out() {
    let fabric = fabric(CompletionMode::Local);
    let mut config = ServerConfig::default();
    config.max_half_open = 6;
    let set_up = config.set_up;
    let server = serve(&fabric, program(), config);
    tokio::task::yield_now().await;
    for _ in 0..5 {
        fabric.connect_silently(SERVER).unwrap();
    }
    sleep(Duration::from_millis(1)).await;
    // An address has half of the places at most, so that another can connect meanwhile.
    assert_eq!((server.monitor.stats().connections, server.monitor.stats().refused), (3, 2));
    let client = client(&fabric).await;
    echo(&client, b"").await.unwrap();
    sleep(set_up).await;
    assert_eq!(server.monitor.stats().connections, 1);
    echo(&client, b"").await.unwrap();
    server.end(client).await;
}

/// RFC 8166 §4.5.4: a call that a program discards is not left to its timer.
// requirement: rfc8166-4.5.4-2
#[tokio::test(start_paused = true)]
async fn s4_5_4_a_call_without_an_answer_is_sent_again_on_another_connection() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    let begun = Instant::now();
    client.call_raw(crate::support::call(crate::support::DISCARD)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((client.stats().connections, client.stats().retransmissions), (2, 1));
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i6_an_idle_connection_is_closed_and_made_again_when_needed() {
    let fabric = fabric(CompletionMode::Local);
    let server = serve(&fabric, program(), ServerConfig::default());
    let client = client(&fabric).await;
    // A long call is not idleness.
    let long = u32::try_from(2 * ServerConfig::RDMA_IDLE.as_millis()).unwrap();
    let patient = client.call_raw(sleep_call(long).timeout(3 * ServerConfig::RDMA_IDLE));
    patient.await.unwrap();
    assert_eq!(client.stats().connections, 1);
    sleep(ServerConfig::RDMA_IDLE - Duration::from_secs(1)).await;
    assert_eq!(server.monitor.stats().connections, 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.monitor.stats().connections, 0);
    assert_eq!(server.monitor.stats().memory_in_use, 0);
    echo(&client, b"again").await.unwrap();
    server.end(client).await;
}

#[tokio::test(start_paused = true)]
async fn i6_an_exhausted_pool_makes_calls_wait_not_fail() {
    let fabric = fabric(CompletionMode::Local);
    let mut config = ServerConfig::default();
    config.memory = 4 * MIB;
    let server = serve(&fabric, program(), config);
    let client = client(&fabric).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let client = client.clone();
        tasks.spawn(async move { put(&client, Bytes::from(pattern(MIB))).await.map(drop) });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    server.end(client).await;
}
