//! Compares RDMA Write, RDMA Read and Send round trips with plain TCP on the loopback interface, in one run.
//!
//! `cargo bench -p rpcrdma-iwarp --bench stream` prints ratios; 1.00 is plain TCP.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener, LargeFpdu};
use rpcrdma_verbs::{
    Buffer, Completion, ConnectParameters, Connector, Listener, OwnPrivateData, ProtectionDomain, QueuePair,
    ReceiveMemory, SendRequest, WindowMemory, Work, WorkRequest, WrId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MIB: usize = 1 << 20;
/// Duration of each measurement.
const LASTS: Duration = Duration::from_millis(1500);
/// Number of operations in flight.
const DEPTH: u64 = 2;
/// Length of a small message, in bytes.
const SMALL: usize = 128;

type Pair = Box<dyn QueuePair>;
type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn parameters() -> ConnectParameters {
    ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: 16,
        ord: 16,
        max_send_wr: 256,
        max_recv_wr: 256,
        domain: ProtectionDomain::new(1 << 28),
    }
}

async fn connected(config: Config) -> AnyResult<(Pair, Pair)> {
    let mut listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), config.clone()).await?;
    let address = listener.local_address()?;
    let connector = IwarpConnector::new(config);
    let accept =
        async { listener.accept().await?.request().await?.accept(parameters()).await.map_err(Into::into) };
    let (client, server): (_, AnyResult<Pair>) =
        tokio::join!(connector.connect(address, parameters()), accept);
    Ok((client?, server?))
}

/// Drives an end for ever: polling does its work.
async fn serve(mut pair: Pair) {
    let mut completions: Vec<Completion> = Vec::new();
    while poll_fn(|cx| pair.poll(cx, &mut completions)).await.is_ok() {
        completions.clear();
    }
}

fn mib_per_second(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / MIB as f64 / took.as_secs_f64()
}

async fn tcp_stream() -> AnyResult<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut sender = TcpStream::connect(listener.local_addr()?).await?;
    sender.set_nodelay(true)?;
    let (mut receiver, _) = listener.accept().await?;
    let task = tokio::spawn(async move {
        let mut buffer = vec![0; MIB];
        let mut total = 0;
        while let Ok(count) = receiver.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            total += count;
        }
        total
    });
    let buffer = vec![7; MIB];
    let start = Instant::now();
    while start.elapsed() < LASTS {
        sender.write_all(&buffer).await?;
    }
    drop(sender);
    let total = task.await?;
    Ok(mib_per_second(total, start.elapsed()))
}

/// Measures RDMA Writes of 1 MiB into a window of the server, with one Send at the end.
async fn write_stream(config: Config) -> AnyResult<f64> {
    let (mut client, mut server) = connected(config).await?;
    // A single window, as the other side of the comparison reads into one buffer.
    let target = server.reserve_window(WindowMemory::Write(Buffer::adopt(vec![0; MIB])))?;
    server.post(WrId(0), WorkRequest::BindWindow { key: target.key }).map_err(|e| e.kind)?;
    let reserved = server.domain().reserve(64)?;
    server.post_receive(WrId(99), ReceiveMemory::Pooled(reserved)).map_err(|e| e.kind)?;
    let received = tokio::spawn(async move {
        let mut completions: Vec<Completion> = Vec::new();
        while !completions.iter().any(|done| matches!(done.work, Work::Receive { .. })) {
            if poll_fn(|cx| server.poll(cx, &mut completions)).await.is_err() {
                break;
            }
        }
        server
    });
    let source = Bytes::from(vec![7; MIB]);
    let mut completions = Vec::new();
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < posted || start.elapsed() < LASTS {
        while posted - done < DEPTH && start.elapsed() < LASTS {
            let request = WorkRequest::Write { gather: vec![source.clone()], targets: vec![target] };
            client.post(WrId(posted), request).map_err(|e| e.kind)?;
            posted += 1;
        }
        poll_fn(|cx| client.poll(cx, &mut completions)).await?;
        done += completions.drain(..).count() as u64;
    }
    client.post(WrId(posted), WorkRequest::Send(SendRequest::default())).map_err(|e| e.kind)?;
    poll_fn(|cx| client.poll(cx, &mut completions)).await?;
    let server = received.await?;
    let rate = mib_per_second(usize::try_from(posted)? * MIB, start.elapsed());
    let counters = server.counters();
    println!(
        "  write: {} segments, {} reads, {} writes, {} bytes copied",
        counters.segments_received,
        counters.receive_calls,
        client.counters().send_calls,
        counters.payload_bytes_copied
    );
    Ok(rate)
}

/// Measures RDMA Reads of 1 MiB from a window of the server.
async fn read_stream(config: Config) -> AnyResult<f64> {
    let (mut client, mut server) = connected(config).await?;
    let source = server.reserve_window(WindowMemory::Read(Bytes::from(vec![7; MIB])))?;
    server.post(WrId(0), WorkRequest::BindWindow { key: source.key }).map_err(|e| e.kind)?;
    let task = tokio::spawn(serve(server));
    let mut sinks: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::adopt(vec![0; MIB])).collect();
    let mut completions = Vec::new();
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < posted || start.elapsed() < LASTS {
        while start.elapsed() < LASTS
            && let Some(sink) = sinks.pop()
        {
            let request = WorkRequest::Read { sink, sources: vec![source] };
            client.post(WrId(posted), request).map_err(|e| e.kind)?;
            posted += 1;
        }
        poll_fn(|cx| client.poll(cx, &mut completions)).await?;
        for completion in completions.drain(..) {
            if let Work::Read { sink } = completion.work {
                sinks.push(sink);
                done += 1;
            }
        }
    }
    let rate = mib_per_second(usize::try_from(posted)? * MIB, start.elapsed());
    let counters = client.counters();
    println!(
        "  read: {} segments, {} reads, {} bytes copied",
        counters.segments_received, counters.receive_calls, counters.payload_bytes_copied
    );
    task.abort();
    Ok(rate)
}

async fn tcp_round_trip() -> AnyResult<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    client.set_nodelay(true)?;
    let (mut server, _) = listener.accept().await?;
    server.set_nodelay(true)?;
    let task = tokio::spawn(async move {
        let mut buffer = [0; SMALL];
        while server.read_exact(&mut buffer).await.is_ok() && server.write_all(&buffer).await.is_ok() {}
    });
    let mut buffer = [0; SMALL];
    let mut rounds = 0;
    let start = Instant::now();
    while start.elapsed() < LASTS {
        client.write_all(&buffer).await?;
        client.read_exact(&mut buffer).await?;
        rounds += 1;
    }
    task.abort();
    Ok(start.elapsed() / rounds)
}

fn small_send() -> WorkRequest {
    WorkRequest::Send(SendRequest { gather: vec![Bytes::from_static(&[7; SMALL])], ..SendRequest::default() })
}

fn post_small_receive(pair: &mut Pair) -> AnyResult<()> {
    let reserved = pair.domain().reserve(1024)?;
    pair.post_receive(WrId(1), ReceiveMemory::Pooled(reserved)).map_err(|e| e.kind.into())
}

async fn send_round_trip(config: Config) -> AnyResult<Duration> {
    let (mut client, mut server) = connected(config).await?;
    post_small_receive(&mut server)?;
    post_small_receive(&mut client)?;
    let task = tokio::spawn(async move {
        let mut completions: Vec<Completion> = Vec::new();
        while poll_fn(|cx| server.poll(cx, &mut completions)).await.is_ok() {
            for done in completions.drain(..) {
                if matches!(done.work, Work::Receive { .. }) {
                    post_small_receive(&mut server)?;
                    server.post(WrId(2), small_send()).map_err(|e| e.kind)?;
                }
            }
        }
        AnyResult::Ok(())
    });
    let mut completions: Vec<Completion> = Vec::new();
    let mut rounds = 0;
    let start = Instant::now();
    while start.elapsed() < LASTS {
        client.post(WrId(2), small_send()).map_err(|e| e.kind)?;
        let mut answered = false;
        while !answered {
            poll_fn(|cx| client.poll(cx, &mut completions)).await?;
            for done in completions.drain(..) {
                if matches!(done.work, Work::Receive { .. }) {
                    answered = true;
                    post_small_receive(&mut client)?;
                }
            }
        }
        rounds += 1;
    }
    task.abort();
    Ok(start.elapsed() / rounds)
}

/// Returns the processor time of this process so far; zero on systems without `/proc`.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the command name in parentheses: utime and stime, in hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(10 * fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>())
}

/// Measured values of a stream.
#[derive(Clone, Copy)]
struct Took {
    rate: f64,
    /// Processor time of both ends for one MiB: other load on the machine disturbs it less than the rate.
    processor: Duration,
}

async fn measure(stream: impl Future<Output = AnyResult<f64>>) -> AnyResult<Took> {
    let (start, before) = (Instant::now(), processor_time());
    let rate = stream.await?;
    let mib = rate * start.elapsed().as_secs_f64();
    Ok(Took { rate, processor: (processor_time() - before).div_f64(mib.max(1.0)) })
}

fn report(name: &str, took: Took, plain: Took) {
    let Took { rate, processor } = took;
    let (by_rate, by_processor) =
        (rate / plain.rate, plain.processor.as_secs_f64() / processor.as_secs_f64());
    println!(
        "{name:<32}{rate:>7.0} MiB/s {by_rate:>5.2} | {processor:>9.1?} of processor/MiB {by_processor:>5.2}"
    );
}

async fn run() -> AnyResult<()> {
    let mut no_crc = Config::default();
    no_crc.crc = false;
    let mut large = Config::default();
    large.large_fpdu = LargeFpdu::Flagged;
    for round in 1..=2 {
        println!("round {round}");
        let plain = measure(tcp_stream()).await?;
        report("TCP stream, 1 MiB writes", plain, plain);
        report("RDMA Write, 1 MiB", measure(write_stream(Config::default())).await?, plain);
        report("RDMA Read, 1 MiB", measure(read_stream(Config::default())).await?, plain);
        report("RDMA Write, 1 MiB, large FPDUs", measure(write_stream(large.clone())).await?, plain);
        report("RDMA Write, 1 MiB, no CRC", measure(write_stream(no_crc.clone())).await?, plain);
        report("RDMA Read, 1 MiB, no CRC", measure(read_stream(no_crc.clone())).await?, plain);
        let plain = tcp_round_trip().await?;
        let ours = send_round_trip(Config::default()).await?;
        println!("TCP ping-pong, {SMALL} bytes: {plain:?}");
        println!("Send ping-pong, {SMALL} bytes: {ours:?}, {:.2}", ours.as_secs_f64() / plain.as_secs_f64());
    }
    Ok(())
}

fn main() -> AnyResult<()> {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // In a task, like the other end: waking the blocked thread costs more.
    runtime.block_on(async { tokio::spawn(run()).await? })
}
