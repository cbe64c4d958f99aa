//! A program whose object streams store and fetch, with faults on request, on the simulated fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::streaming::Part;
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Effect, Eligibility, ProcedureInfo, Program,
    ResponseFuture, Server, ServerMonitor, Sink, Transport,
};
use rpcrdma_sim::{Fabric, FabricConfig, Outstanding};
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const PROGRAM: u32 = 0x2000_00f5;
/// Takes an offset and bytes to store there.
const WRITE: u32 = 1;
/// Returns up to so many bytes at an offset, and whether the object ends there.
const READ: u32 = 2;

/// Longest bytes of one call.
pub const MAX: usize = 1 << 20;
/// Bytes of a piece in most tests.
pub const PIECE: usize = 10_000;
/// Time of each call, in milliseconds.
pub const CALL_TIME: u64 = 100;

/// Returns bytes that differ from piece to piece.
pub fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from((at * 7 + at / 1009) % 251).unwrap()).collect()
}

/// Returns the length of so many pieces.
pub fn pieces(count: usize) -> u64 {
    (count * PIECE) as u64
}

/// The program.
#[derive(Default)]
pub struct Objects {
    /// The object that READ reads.
    pub object: Bytes,
    /// Most bytes of a result of READ, if they are fewer than asked for.
    pub most: Option<usize>,
    /// Bytes that WRITE has stored.
    pub stored: Mutex<BTreeMap<u64, Bytes>>,
    /// Calls for these offsets fail.
    pub faulty: Mutex<BTreeSet<u64>>,
    /// Calls for these offsets take so many milliseconds more than [`CALL_TIME`].
    pub slow: Mutex<BTreeMap<u64, u64>>,
    /// Calls so far.
    pub calls: AtomicUsize,
    /// Calls in progress.
    pub at_once: AtomicUsize,
    /// Most calls in progress at a time.
    pub peak: AtomicUsize,
}

impl Objects {
    /// Returns the stored bytes, which have to be one after the other from `offset` on.
    pub fn stored_from(&self, offset: u64) -> Vec<u8> {
        let stored = self.stored.lock().unwrap();
        let mut all = Vec::new();
        for (at, data) in &*stored {
            assert_eq!(*at, offset + all.len() as u64, "no gap");
            all.extend_from_slice(data);
        }
        all
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    fn run(&self, procedure: u32, offset: u64, mut arguments: Decoder) -> Result<Stream, CallFailure> {
        let mut results = Encoder::new();
        if procedure == WRITE {
            let data = arguments.payload(MAX)?;
            arguments.finish()?;
            self.stored.lock().unwrap().insert(offset, data);
            return Ok(results.finish());
        }
        let count = usize::try_from(arguments.u32()?).unwrap();
        arguments.finish()?;
        let start = usize::try_from(offset).unwrap().min(self.object.len());
        let left = self.object.len() - start;
        let length = count.min(self.most.unwrap_or(MAX)).min(left);
        results.bool(length == left);
        results.payload(self.object.slice(start..start + length), MAX, true)?;
        Ok(results.finish())
    }
}

/// A program behind one reference.
pub struct Served(pub Arc<Objects>);

impl Program for Served {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "WRITE", "READ"].get(usize::try_from(procedure).unwrap())?;
        let effect = if procedure == WRITE { Effect::Data } else { Effect::Idempotent };
        Some(ProcedureInfo { name, effect })
    }

    fn call(&self, context: CallContext, mut arguments: Decoder) -> ResponseFuture {
        let objects = Arc::clone(&self.0);
        Box::pin(async move {
            let offset = arguments.u64()?;
            objects.calls.fetch_add(1, Ordering::SeqCst);
            objects.peak.fetch_max(objects.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let more = objects.slow.lock().unwrap().get(&offset).copied().unwrap_or(0);
            sleep(Duration::from_millis(CALL_TIME + more)).await;
            objects.at_once.fetch_sub(1, Ordering::SeqCst);
            if objects.faulty.lock().unwrap().contains(&offset) {
                return Err(CallFailure::SystemError);
            }
            objects.run(context.procedure, offset, arguments)
        })
    }
}

impl Binding for Served {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == WRITE), results: usize::from(procedure == READ) }
    }
}

pub async fn write(client: &Client, offset: u64, data: Bytes) -> Result<(), CallError> {
    let mut arguments = Encoder::new();
    arguments.u64(offset);
    arguments.payload(data, MAX, true)?;
    client.call_raw(Call::new(PROGRAM, 1, WRITE).arguments(arguments.finish())).await?.results.finish()?;
    Ok(())
}

pub async fn read(client: &Client, offset: u64, count: usize) -> Result<Part, CallError> {
    let mut arguments = Encoder::new();
    arguments.u64(offset);
    arguments.u32(u32::try_from(count).unwrap());
    let call = Call::new(PROGRAM, 1, READ).arguments(arguments.finish()).results(8).sink(Sink::Pool(count));
    let mut results = client.call_raw(call).await?.results;
    let end = results.bool()?;
    let data = results.payload_slices(count)?;
    results.finish()?;
    Ok(Part { data, end })
}

/// A server of the program and a client, on the simulated fabric.
pub struct World {
    pub fabric: Fabric,
    pub objects: Arc<Objects>,
    pub client: Client,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl World {
    pub async fn new(objects: Objects) -> Self {
        let fabric = Fabric::on_tokio(FabricConfig { seed: 1, ..FabricConfig::default() });
        let objects = Arc::new(objects);
        let listener = fabric.listen(SERVER).unwrap();
        let server = Server::builder().program(Arc::new(Served(Arc::clone(&objects))));
        let server = server.listen_rdma(Box::new(listener)).build().unwrap();
        let monitor = server.monitor();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            server.serve(async { drop(stopped.await) }).await.unwrap();
        });
        // The server's task must begin to listen first.
        tokio::task::yield_now().await;
        let connector = Arc::new(fabric.connector(HOST));
        let client =
            Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
        // A client has one credit until its first reply.
        client.null(PROGRAM, 1).await.unwrap();
        Self { fabric, objects, client, monitor, stop, task }
    }

    /// Returns a world whose READ has an object of this length.
    pub async fn with_object(length: usize) -> Self {
        Self::new(Objects { object: pattern(length), ..Objects::default() }).await
    }

    /// Returns the payload bytes that the client and the server have copied.
    pub fn copied(&self) -> (u64, u64) {
        (self.client.stats().payload_bytes_copied, self.monitor.stats().payload_bytes_copied)
    }

    /// Closes the client and stops the server; checks that neither holds memory.
    pub async fn end(self) {
        // Abandoned calls end first: at the server they would go on without their connection.
        sleep(Duration::from_secs(10)).await;
        self.client.close().await;
        self.objects.stored.lock().unwrap().clear();
        assert_eq!(self.client.stats().memory_in_use, 0, "memory of the client");
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap();
        let stats = self.monitor.stats();
        assert_eq!((stats.connections, stats.memory_in_use), (0, 0), "memory of the server");
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
    }
}
