//! RDMA Write, RDMA Read and Send streams on the provider alone, and windows that nobody uses.
//!
//! The server opens a window of 1 MiB for each stream and announces both. A stream ends with a Send that the
//! server answers. The server can answer only after all earlier Writes are placed. Of Sends with data, the
//! server answers each fourth, so that its Receives never run out.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use rpcrdma_verbs::{
    Buffer, Completion, ConnectParameters, Counters, Key, Listener, OwnPrivateData, ProtectionDomain,
    QueuePair, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Work, WorkRequest, WrId,
};

use super::{Ends, OPERATION, OPERATION_LEN};
use crate::exit::Failure;

/// RDMA Writes or Reads in flight.
pub(super) const DEPTH: u32 = 8;
/// Sends of data in flight, at most, and those that have one answer.
pub(super) const SENDS: u32 = 12;
const ANSWERED: u32 = 4;
/// Bytes of an answer: two segments of key, address and length.
const MESSAGE: usize = 2 * (4 + 8 + 4);
/// Maximum time between a failed work request and the end of its connection.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Receives on each side: for the Sends in flight, and a question behind them.
const RECEIVES: u32 = SENDS + ANSWERED;

fn parameters(domain: &ProtectionDomain) -> ConnectParameters {
    ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: 32,
        ord: 32,
        max_send_wr: 64,
        max_recv_wr: RECEIVES as usize,
        domain: domain.clone(),
    }
}

/// A queue pair, with the state to run one operation after the other.
struct Endpoint {
    queue_pair: Box<dyn QueuePair>,
    completions: Vec<Completion>,
    next: u64,
}

impl Endpoint {
    fn new(queue_pair: Box<dyn QueuePair>) -> Result<Self, Failure> {
        let mut endpoint = Self { queue_pair, completions: Vec::new(), next: 0 };
        for _ in 0..RECEIVES {
            endpoint.receive()?;
        }
        Ok(endpoint)
    }

    fn id(&mut self) -> WrId {
        self.next += 1;
        WrId(self.next)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let memory = self.queue_pair.domain().reserve(OPERATION).map_err(failed)?;
        let id = self.id();
        self.queue_pair.post_receive(id, ReceiveMemory::Pooled(memory)).map_err(failed)
    }

    fn post(&mut self, request: WorkRequest) -> Result<(), Failure> {
        let id = self.id();
        self.queue_pair.post(id, request).map_err(failed)
    }

    fn send(&mut self, message: Bytes) -> Result<(), Failure> {
        self.post(WorkRequest::Send(SendRequest { gather: vec![message], ..SendRequest::default() }))
    }

    fn open(&mut self, memory: WindowMemory) -> Result<RemoteSegment, Failure> {
        let segment = self.queue_pair.reserve_window(memory).map_err(failed)?;
        self.post(WorkRequest::BindWindow { key: segment.key })?;
        Ok(segment)
    }

    async fn next(&mut self) -> Result<Completion, Failure> {
        loop {
            if let Some(completion) = self.completions.pop() {
                if completion.status.is_success() {
                    return Ok(completion);
                }
                return Err(self.ended(completion.status).await);
            }
            let Self { queue_pair, completions, .. } = self;
            poll_fn(|cx| queue_pair.poll(cx, completions)).await.map_err(failed)?;
            completions.reverse();
        }
    }

    /// Returns why a work request failed: the end of the connection, which follows its flushed requests.
    async fn ended(&mut self, status: Status) -> Failure {
        let Self { queue_pair, completions, .. } = self;
        let end = tokio::time::timeout(END_LIMIT, async {
            loop {
                completions.clear();
                if let Err(end) = poll_fn(|cx| queue_pair.poll(cx, completions)).await {
                    return end.to_string();
                }
            }
        });
        let end = end.await.unwrap_or_else(|_| "the connection is still open".to_owned());
        failed(format!("a work request failed ({status:?}): {end}"))
    }

    /// Returns the memory of the next message and the message's length. Posts a new Receive in its place.
    async fn received(&mut self) -> Result<(Bytes, usize), Failure> {
        loop {
            if let Work::Receive { buffers, len, .. } = self.next().await?.work {
                self.receive()?;
                let memory = buffers.into_iter().next().map_or_else(Bytes::new, Buffer::freeze);
                let len = len.min(memory.len());
                return Ok((memory, len));
            }
        }
    }

    /// Returns the next message, and posts a new Receive in its place.
    async fn message(&mut self) -> Result<Bytes, Failure> {
        let (memory, len) = self.received().await?;
        Ok(memory.slice(..len))
    }
}

/// Serves the streams to clients, until the listener fails.
pub(super) async fn serve(mut listener: Box<dyn Listener>, domain: ProtectionDomain) -> Result<(), Failure> {
    loop {
        let incoming = listener.accept().await.map_err(failed)?;
        let request = incoming.request().await.map_err(failed)?;
        let queue_pair = request.accept(parameters(&domain)).await.map_err(failed)?;
        let domain = domain.clone();
        tokio::spawn(async move {
            // The client reports a measurement that fails.
            let _ = serve_one(queue_pair, &domain).await;
        });
    }
}

async fn serve_one(queue_pair: Box<dyn QueuePair>, domain: &ProtectionDomain) -> Result<(), Failure> {
    let mut endpoint = Endpoint::new(queue_pair)?;
    let sink = domain.allocate(OPERATION, 4096).map_err(failed)?;
    let source = domain.allocate(OPERATION, 4096).map_err(failed)?.freeze();
    let segments = [endpoint.open(WindowMemory::Write(sink))?, endpoint.open(WindowMemory::Read(source))?];
    let mut unanswered = 0;
    // The client speaks first: it asks for the windows, and later whether everything has arrived.
    loop {
        if endpoint.message().await?.len() == OPERATION {
            unanswered += 1;
            if unanswered < ANSWERED {
                continue;
            }
        }
        unanswered = 0;
        let mut answer = Vec::with_capacity(MESSAGE);
        for segment in &segments {
            answer.put_u32(segment.key.0);
            answer.put_u64(segment.address);
            answer.put_u32(segment.length);
        }
        endpoint.send(answer.into())?;
    }
}

/// Client of the streams.
pub(super) struct Streams {
    endpoint: Endpoint,
    block: Bytes,
    write_to: RemoteSegment,
    read_from: RemoteSegment,
}

impl Streams {
    pub(super) async fn connect(ends: &Ends, to: SocketAddr) -> Result<Self, Failure> {
        let domain = ProtectionDomain::new(64 << 20);
        let connector = ends.connector(to).await?;
        let queue_pair = connector.connect(to, parameters(&domain)).await.map_err(failed)?;
        let mut endpoint = Endpoint::new(queue_pair)?;
        endpoint.send(Bytes::from_static(b"where"))?;
        // The adapter knows the memory of a Receive. Other memory would cost a registration for each Write.
        let (block, len) = endpoint.received().await?;
        let mut answer = block.slice(..len);
        if block.len() != OPERATION {
            return Err(failed(format!("a Receive of {} bytes, {OPERATION} expected", block.len())));
        }
        if answer.len() != MESSAGE {
            return Err(failed(format!("an answer of {} bytes, {MESSAGE} expected", answer.len())));
        }
        let mut segment = || RemoteSegment {
            key: Key(answer.get_u32()),
            address: answer.get_u64(),
            length: answer.get_u32(),
        };
        let (write_to, read_from) = (segment(), segment());
        Ok(Self { endpoint, block, write_to, read_from })
    }

    /// Writes by RDMA until the peer has all data. Returns bytes a second.
    pub(super) async fn write(&mut self, operations: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < operations {
            while posted < operations && posted - done < DEPTH {
                self.endpoint.post(WorkRequest::Write {
                    gather: vec![self.block.clone()],
                    targets: vec![self.write_to],
                })?;
                posted += 1;
            }
            if matches!(self.endpoint.next().await?.work, Work::Write) {
                done += 1;
            }
        }
        self.endpoint.send(Bytes::from_static(b"all?"))?;
        self.endpoint.message().await?;
        Ok(super::rate(operations, start.elapsed()))
    }

    /// Sends until the peer has all data. Returns bytes a second.
    pub(super) async fn send(&mut self, operations: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        let (mut sent, mut arrived) = (0, 0);
        loop {
            while sent < operations && sent - arrived < SENDS {
                self.endpoint.send(self.block.clone())?;
                sent += 1;
            }
            if sent - arrived < ANSWERED {
                break;
            }
            self.endpoint.message().await?;
            arrived += ANSWERED;
        }
        self.endpoint.send(Bytes::from_static(b"all?"))?;
        self.endpoint.message().await?;
        Ok(super::rate(operations, start.elapsed()))
    }

    /// Opens windows of `len` bytes and closes them, `depth` at a time, for this time. Returns their number, and seconds.
    pub(super) async fn windows(
        &mut self,
        len: u32,
        depth: u32,
        time: Duration,
    ) -> Result<(u64, f64), Failure> {
        let len = usize::try_from(len).map_err(failed)?;
        let domain = self.endpoint.queue_pair.domain().clone();
        let buffers = (0..depth).map(|_| domain.allocate(len, 4096).map(WindowMemory::Write));
        let mut free: Vec<WindowMemory> = buffers.collect::<Result<_, _>>().map_err(failed)?;
        let mut count = 0;
        let start = Instant::now();
        while start.elapsed() < time {
            for memory in std::mem::take(&mut free) {
                let segment = self.endpoint.open(memory)?;
                self.endpoint.post(WorkRequest::LocalInvalidate { key: segment.key })?;
            }
            while free.len() < depth as usize {
                if let Work::LocalInvalidate { memory: Some(memory) } = self.endpoint.next().await?.work {
                    free.push(memory);
                    count += 1;
                }
            }
        }
        Ok((count, start.elapsed().as_secs_f64()))
    }

    /// Returns the counters of this end.
    pub(super) fn counters(&self) -> Counters {
        self.endpoint.queue_pair.counters()
    }

    /// Reads by RDMA. Returns bytes a second.
    pub(super) async fn read(&mut self, operations: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        let mut sinks = Vec::new();
        let (mut posted, mut done) = (0, 0);
        while done < operations {
            while posted < operations && posted - done < DEPTH {
                let sink = match sinks.pop() {
                    Some(sink) => sink,
                    None => self.endpoint.queue_pair.domain().allocate(OPERATION, 4096).map_err(failed)?,
                };
                let source = RemoteSegment { length: OPERATION_LEN, ..self.read_from };
                self.endpoint.post(WorkRequest::Read { sink, sources: vec![source] })?;
                posted += 1;
            }
            if let Work::Read { sink } = self.endpoint.next().await?.work {
                sinks.push(sink);
                done += 1;
            }
        }
        Ok(super::rate(operations, start.elapsed()))
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the RDMA streams failed: {error}"))
}
