//! The load of a measurement: one thread for each connection, with a runtime of its own.
//!
//! A thread connects, tells that it is ready, and works until it is told to stop. It counts in a [`Gauge`],
//! which others read meanwhile. Data of Calls lies in memory of the connection's pool, which an adapter
//! registers once. A thread that fails tells the reason at once; then the whole measurement fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma::{Client, ClientConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::plan::{Direction, Kind, Measure};
use crate::arguments::Proto;
use crate::commands::bench::program::{Carried, Placed, null, pooled, transfers, word};
use crate::commands::bench::{Ends, OPERATION, failed, tcp};
use crate::exit::{Exit, Failure};

/// Time for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for the last data of a stream to arrive, and for the last calls of a connection.
const REST: Duration = Duration::from_secs(30);
/// Times of operations that a connection keeps; later ones are not in the percentiles.
const TRIPS: usize = 1 << 20;
/// Memory of a connection beside its data in flight, in bytes.
const BESIDE: usize = 16 << 20;

/// A metadata operation, as far as the wire sees it.
#[derive(Clone, Copy, Debug)]
enum Metadata {
    /// A short call, and a reply with this many bytes.
    Ask(usize),
    /// A call with [`TOLD`] bytes, and a short reply.
    Tell,
}

/// Length of the arguments of SETATTR, in bytes.
const TOLD: usize = 100;

/// The mix of metadata operations: lengths as those of NFSv3 calls (RFC 1813), in bytes without RPC headers.
const MIX: [Metadata; 8] = [
    // GETATTR
    Metadata::Ask(88),
    // LOOKUP, with attributes of object and directory
    Metadata::Ask(224),
    // ACCESS
    Metadata::Ask(96),
    // GETATTR
    Metadata::Ask(88),
    // SETATTR
    Metadata::Tell,
    // LOOKUP
    Metadata::Ask(224),
    // ACCESS
    Metadata::Ask(96),
    // READDIRPLUS, with 32 entries: a long reply
    Metadata::Ask(6400),
];

/// Counts of a connection.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Bytes of data that this side wrote or got.
    pub(super) bytes: AtomicU64,
    /// Operations that ended.
    pub(super) calls: AtomicU64,
    /// Whether the times of operations are kept.
    pub(super) measuring: AtomicBool,
    /// Times of operations, in nanoseconds; times over 4 s count as that.
    trips: Mutex<Vec<u32>>,
}

impl Gauge {
    fn ended(&self, bytes: u64, time: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.measuring.load(Ordering::Relaxed) {
            let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner);
            if trips.len() < TRIPS {
                trips.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
            }
        }
    }

    /// Returns the times of operations, and forgets them.
    fn take_trips(&self) -> Vec<u32> {
        std::mem::take(&mut *self.trips.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Bytes to the server, and from it.
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) calls: u64,
}

impl Count {
    pub(super) const fn bytes(self) -> u64 {
        self.to + self.from
    }
}

/// Where and what a connection works.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) ends: Ends,
    /// Address of the transport of the measure.
    pub(super) to: SocketAddr,
    pub(super) session: u64,
    pub(super) measure: Measure,
    /// Calls in flight.
    pub(super) depth: u32,
    /// Bytes of data of a call, or of a write of a raw stream.
    pub(super) size: u32,
}

enum Told {
    Ready,
    Ended(Result<(), Failure>),
}

/// Connections that work.
pub(super) struct Load {
    /// Each connection's measure and counts.
    gauges: Vec<(Measure, Arc<Gauge>)>,
    /// Dropped to stop them.
    stop: watch::Sender<()>,
    told: mpsc::UnboundedReceiver<Told>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts so many threads for each target, and waits until all have connected.
    pub(super) async fn start(targets: &[Target], connections: u32) -> Result<Self, Failure> {
        let (tell, told) = mpsc::unbounded_channel();
        let mut load = Self { gauges: Vec::new(), stop: watch::Sender::new(()), told, threads: Vec::new() };
        let each = |target| (0..connections).map(move |_| target);
        for (index, target) in targets.iter().flat_map(each).enumerate() {
            let gauge = Arc::new(Gauge::default());
            let worker = Worker {
                target: target.clone(),
                gauge: Arc::clone(&gauge),
                stop: load.stop.subscribe(),
                tell: tell.clone(),
            };
            let thread = thread::Builder::new()
                .name(format!("bench-{index}"))
                .spawn(move || {
                    let tell = worker.tell.clone();
                    let result = worker.run();
                    // The receiver is gone if the measurement has failed already.
                    let _ = tell.send(Told::Ended(result));
                })
                .map_err(failed("start a thread"))?;
            load.gauges.push((target.measure, gauge));
            load.threads.push(thread);
        }
        drop(tell);
        for _ in 0..load.gauges.len() {
            match load.told.recv().await {
                Some(Told::Ready) => {}
                Some(Told::Ended(Err(failure))) => return Err(failure),
                Some(Told::Ended(Ok(()))) | None => return Err(Failure::failed("a connection ended early")),
            }
        }
        Ok(load)
    }

    /// Waits for the failure of a connection.
    pub(super) async fn failure(&mut self) -> Failure {
        match self.told.recv().await {
            Some(Told::Ended(Err(failure))) => failure,
            _ => Failure::failed("a connection ended early"),
        }
    }

    /// Stops all connections in order.
    pub(super) async fn stop(self) -> Result<(), Failure> {
        let Self { gauges, stop, mut told, threads } = self;
        drop(stop);
        for _ in gauges {
            match told.recv().await {
                Some(Told::Ended(result)) => result?,
                Some(Told::Ready) | None => {}
            }
        }
        // They have told their end already. A thread that panics reports it.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        Ok(())
    }

    /// Returns bytes and operations so far, as this side counts them.
    pub(super) fn count(&self) -> Count {
        self.gauges.iter().fold(Count::default(), |mut count, (measure, gauge)| {
            let bytes = gauge.bytes.load(Ordering::Relaxed);
            if measure.direction() == Direction::To {
                count.to += bytes;
            } else {
                count.from += bytes;
            }
            count.calls += gauge.calls.load(Ordering::Relaxed);
            count
        })
    }

    /// Returns the times of operations, and forgets them.
    pub(super) fn take_trips(&self) -> Vec<u32> {
        self.gauges.iter().flat_map(|(_, gauge)| gauge.take_trips()).collect()
    }

    /// Chooses whether the times of operations are kept.
    pub(super) fn measure(&self, measuring: bool) {
        self.gauges.iter().for_each(|(_, gauge)| gauge.measuring.store(measuring, Ordering::Relaxed));
    }
}

/// A connection on its thread.
struct Worker {
    target: Target,
    gauge: Arc<Gauge>,
    /// Closed to stop.
    stop: watch::Receiver<()>,
    tell: mpsc::UnboundedSender<Told>,
}

impl Worker {
    fn run(mut self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed("start the runtime of a connection"))?;
        let Target { measure, .. } = self.target;
        let result = runtime.block_on(async {
            match (measure.proto(), measure.kind()) {
                (Some(proto), _) => self.calls(proto).await,
                (None, Kind::Ping) => self.ping().await,
                (None, _) if measure == Measure::StreamTo => self.send().await,
                (None, _) => self.receive().await,
            }
        });
        runtime.shutdown_timeout(Duration::ZERO);
        result
    }

    fn ready(&self) {
        // The receiver is gone if another connection has failed.
        let _ = self.tell.send(Told::Ready);
    }

    fn broken(&self) -> impl Fn(std::io::Error) -> Failure + use<> {
        let Target { to, measure, .. } = self.target;
        move |error| Failure::new(Exit::Unreachable, format!("{}, {to}: {error}", measure.title()))
    }

    async fn raw(&self, kind: tcp::Kind) -> Result<tokio::net::TcpStream, Failure> {
        let Target { to, session, .. } = self.target;
        let opening = tcp::open(to, session, kind, self.bytes());
        match timeout(PATIENCE, opening).await {
            Ok(opened) => opened.map_err(self.broken()),
            Err(_) => Err(self.broken()(std::io::ErrorKind::TimedOut.into())),
        }
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.target.size).unwrap_or(usize::MAX)
    }

    /// Writes until it is stopped, and then until the server has everything: the next measurement must not
    /// meet it on the link.
    async fn send(&mut self) -> Result<(), Failure> {
        let mut stream = self.raw(tcp::Kind::Sink).await?;
        let broken = self.broken();
        stream.write_u64(tcp::ENDLESS).await.map_err(&broken)?;
        let block = vec![0x5a; self.bytes()];
        self.ready();
        loop {
            tokio::select! {
                biased;
                _ = self.stop.changed() => break,
                written = stream.write(&block) => {
                    let written = written.map_err(&broken)? as u64;
                    self.gauge.bytes.fetch_add(written, Ordering::Relaxed);
                }
            }
        }
        let rest = async {
            stream.shutdown().await?;
            stream.read_u64().await
        };
        match timeout(REST, rest).await {
            Ok(rest) => rest.map(drop).map_err(broken),
            Err(_) => Err(broken(std::io::ErrorKind::TimedOut.into())),
        }
    }

    /// Reads until it is stopped. The server's rest is lost when the connection closes.
    async fn receive(&mut self) -> Result<(), Failure> {
        let mut stream = self.raw(tcp::Kind::Source).await?;
        let broken = self.broken();
        let mut block = vec![0; OPERATION];
        self.ready();
        loop {
            tokio::select! {
                biased;
                _ = self.stop.changed() => return Ok(()),
                read = stream.read(&mut block) => match read.map_err(&broken)? {
                    0 => return Err(broken(std::io::ErrorKind::UnexpectedEof.into())),
                    read => {
                        self.gauge.bytes.fetch_add(read as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    async fn ping(&mut self) -> Result<(), Failure> {
        let mut ping_pong = tcp::PingPong::on(self.raw(tcp::Kind::Echo).await?);
        self.ready();
        let broken = self.broken();
        loop {
            tokio::select! {
                biased;
                _ = self.stop.changed() => return Ok(()),
                trip = ping_pong.trip() => self.gauge.ended(0, trip.map_err(&broken)?),
            }
        }
    }

    async fn connect(&self, proto: Proto) -> Result<Client, Failure> {
        let Target { ends, to, depth, .. } = &self.target;
        let flight = usize::try_from(*depth).unwrap_or(usize::MAX).saturating_mul(self.bytes());
        let mut config = ClientConfig::default();
        config.memory = flight.saturating_add(BESIDE);
        config.protocol.calls = *depth;
        config.protocol.timeouts.call = REST;
        config.protocol.timeouts.connect = PATIENCE;
        let connecting = async {
            let transport = match proto {
                Proto::Rdma => rpcrdma::Transport::rdma_on(ends.connector(*to).await?),
                Proto::Tcp => rpcrdma::Transport::tcp(),
            };
            let connected = Client::builder().config(config).transport(transport).connect(*to).await;
            connected.map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))
        };
        match timeout(PATIENCE, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(self.broken()(std::io::ErrorKind::TimedOut.into())),
        }
    }

    /// Keeps calls in flight until it is stopped.
    async fn calls(&mut self, proto: Proto) -> Result<(), Failure> {
        let client = self.connect(proto).await?;
        let data = match self.target.measure.kind() {
            Kind::Write => pooled(client.domain(), self.bytes()).map_err(failed("allocate the data"))?,
            Kind::Metadata => vec![0x5a; TOLD].into(),
            _ => Bytes::new(),
        };
        let caller = Caller {
            client: client.clone(),
            measure: self.target.measure,
            len: self.bytes(),
            data,
            gauge: Arc::clone(&self.gauge),
            stop: self.stop.clone(),
        };
        // Before the first call nothing shows that the server has this program.
        caller.call(MIX[0]).await?;
        self.ready();
        if self.target.depth == 1 {
            // A single call drives its connection itself.
            caller.run(0).await?;
        } else {
            let mut callers = JoinSet::new();
            for number in 0..usize::try_from(self.target.depth).unwrap_or(usize::MAX) {
                callers.spawn(caller.clone().run(number));
            }
            while let Some(ended) = callers.join_next().await {
                ended.map_err(failed("run the benchmark"))??;
            }
        }
        // The data of the measurement is complete; a slow end is no failure.
        let _ = timeout(REST, client.close()).await;
        Ok(())
    }
}

/// Makes calls, one after the other.
#[derive(Clone)]
struct Caller {
    client: Client,
    measure: Measure,
    len: usize,
    data: Bytes,
    gauge: Arc<Gauge>,
    stop: watch::Receiver<()>,
}

impl Caller {
    /// Makes a call; `metadata` says which, if the measure is about metadata. Returns the bytes of its data.
    async fn call(&self, metadata: Metadata) -> Result<u64, Failure> {
        let failed = |error: rpcrdma::CallError| {
            let text = format!("{}, {}: {error}", self.measure.title(), self.client.peer_address());
            Failure::failed(text)
        };
        let (client, len) = (transfers::Client::new(&self.client), self.len);
        let (got, expected) = match (self.measure.kind(), metadata) {
            (Kind::Write, _) => client.put(Placed(self.data.clone().into())).await.map(|()| (len, len)),
            (Kind::Read, _) => client.get(word(len)).await.map(|Placed(data)| (data.len(), len)),
            (Kind::Metadata, Metadata::Tell) => {
                client.tell(Carried(self.data.clone())).await.map(|()| (0, 0))
            }
            (Kind::Metadata, Metadata::Ask(len)) => {
                client.ask(word(len)).await.map(|Carried(data)| (data.len(), len))
            }
            _ => null(&self.client).await.map(|()| (0, 0)),
        }
        .map_err(failed)?;
        if got != expected {
            return Err(Failure::failed(format!("{got} bytes in a reply, {expected} expected")));
        }
        // Metadata is no data.
        Ok(if self.measure.kind() == Kind::Metadata { 0 } else { got as u64 })
    }

    /// Makes calls until it is stopped. Each caller of a connection begins elsewhere in the mix, so that long replies do not
    /// come together.
    async fn run(self, number: usize) -> Result<(), Failure> {
        for metadata in MIX.into_iter().cycle().skip(number % MIX.len()) {
            // The sender is dropped to stop.
            if self.stop.has_changed().is_err() {
                break;
            }
            let start = Instant::now();
            let bytes = self.call(metadata).await?;
            self.gauge.ended(bytes, start.elapsed());
        }
        Ok(())
    }
}
