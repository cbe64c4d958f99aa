//! A program whose object streams store and fetch, with faults on request, on the simulated fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::streaming::Part;
use rpcrdma::{Bounds, CallContext, CallError, CallFailure, Client, Server, ServerMonitor, Transport};
use rpcrdma_sim::{Fabric, FabricConfig, Outstanding};
use rpcrdma_xdr::{Payload, Xdr};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

rpcrdma::program! {
    pub mod object {
        program 0x2000_00f5, version 1;
        /// Stores bytes.
        fn write = 1, Write(WriteArguments) -> (), Data;
        /// Returns bytes.
        fn read = 2, Read(ReadArguments) -> ReadResults, Idempotent, bounds = read_bounds;
    }
}

#[derive(Xdr)]
pub struct WriteArguments {
    offset: u64,
    #[xdr(ddp, max = MAX)]
    data: Bytes,
}

#[derive(Xdr)]
pub struct ReadArguments {
    offset: u64,
    count: u32,
}

#[derive(Xdr)]
pub struct ReadResults {
    end: bool,
    #[xdr(ddp, max = MAX)]
    data: Payload,
}

fn read_bounds(arguments: &ReadArguments) -> Bounds {
    Bounds::inline(8).item(usize::try_from(arguments.count).unwrap())
}

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

    /// Takes the time of a call, or fails.
    async fn begin(&self, offset: u64) -> Result<(), CallFailure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.peak.fetch_max(self.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let more = self.slow.lock().unwrap().get(&offset).copied().unwrap_or(0);
        sleep(Duration::from_millis(CALL_TIME + more)).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        let faulty = self.faulty.lock().unwrap().contains(&offset);
        if faulty { Err(CallFailure::SystemError) } else { Ok(()) }
    }
}

impl object::Service for Objects {
    async fn write(
        &self,
        _: &CallContext,
        WriteArguments { offset, data }: WriteArguments,
    ) -> Result<(), CallFailure> {
        self.begin(offset).await?;
        self.stored.lock().unwrap().insert(offset, data);
        Ok(())
    }

    async fn read(
        &self,
        _: &CallContext,
        ReadArguments { offset, count }: ReadArguments,
    ) -> Result<ReadResults, CallFailure> {
        self.begin(offset).await?;
        let start = usize::try_from(offset).unwrap().min(self.object.len());
        let left = self.object.len() - start;
        let length = usize::try_from(count).unwrap().min(self.most.unwrap_or(MAX)).min(left);
        Ok(ReadResults { end: length == left, data: self.object.slice(start..start + length).into() })
    }
}

pub async fn write(client: &Client, offset: u64, data: Bytes) -> Result<(), CallError> {
    client.call::<object::Write>(WriteArguments { offset, data }).await
}

pub async fn read(client: &Client, offset: u64, count: usize) -> Result<Part, CallError> {
    let count = u32::try_from(count).unwrap();
    let ReadResults { end, data } = client.call::<object::Read>(ReadArguments { offset, count }).await?;
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
        let server = Server::builder().program(Arc::new(object::serve(Arc::clone(&objects))));
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
        client.null(object::PROGRAM, object::VERSION).await.unwrap();
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
