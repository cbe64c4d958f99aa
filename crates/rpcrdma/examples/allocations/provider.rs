//! A provider that counts its own allocations.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use rpcrdma_verbs::{
    BoxFuture, Capabilities, Completion, ConnectError, ConnectParameters, ConnectionRequest, Connector,
    Counters, Disconnected, Incoming, Listener, PostError, Progress, ProtectionDomain, QueuePair,
    ReceiveMemory, RemoteSegment, WindowError, WindowMemory, Windows, WorkRequest, WrId,
};

/// A counter of allocations. Cheap to clone; all clones are the same counter.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Does this work and counts its allocations.
    pub(crate) fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut result = None;
        let info = allocation_counter::measure(|| result = Some(work()));
        self.0.fetch_add(info.count_total, Ordering::Relaxed);
        result.unwrap_or_else(|| unreachable!("the measured work has run"))
    }
}

/// Opens connections that count.
pub(crate) struct CountingConnector {
    connector: Arc<dyn Connector>,
    counter: Counter,
}

/// Accepts connections that count.
pub(crate) struct CountingListener {
    listener: Box<dyn Listener>,
    counter: Counter,
}

struct CountingIncoming {
    incoming: Box<dyn Incoming>,
    counter: Counter,
}

struct CountingRequest {
    request: Box<dyn ConnectionRequest>,
    counter: Counter,
}

struct CountingQueuePair {
    queue_pair: Box<dyn QueuePair>,
    counter: Counter,
}

impl CountingConnector {
    pub(crate) fn new(connector: Arc<dyn Connector>, counter: &Counter) -> Self {
        Self { connector, counter: counter.clone() }
    }
}

impl CountingListener {
    pub(crate) fn new(listener: Box<dyn Listener>, counter: &Counter) -> Self {
        Self { listener, counter: counter.clone() }
    }
}

impl Connector for CountingConnector {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let queue_pair = self.connector.connect(to, parameters).await?;
            Ok(Box::new(CountingQueuePair { queue_pair, counter: self.counter.clone() })
                as Box<dyn QueuePair>)
        })
    }
}

impl Listener for CountingListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            let incoming = self.listener.accept().await?;
            Ok(Box::new(CountingIncoming { incoming, counter: self.counter.clone() }) as Box<dyn Incoming>)
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }
}

impl Incoming for CountingIncoming {
    fn peer_address(&self) -> Option<SocketAddr> {
        self.incoming.peer_address()
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(async move {
            let Self { incoming, counter } = *self;
            let request = incoming.request().await?;
            Ok(Box::new(CountingRequest { request, counter }) as Box<dyn ConnectionRequest>)
        })
    }
}

impl ConnectionRequest for CountingRequest {
    fn private_data(&self) -> &Bytes {
        self.request.private_data()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.request.peer_address()
    }

    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let Self { request, counter } = *self;
            let queue_pair = request.accept(parameters).await?;
            Ok(Box::new(CountingQueuePair { queue_pair, counter }) as Box<dyn QueuePair>)
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>> {
        self.request.reject(private_data)
    }
}

impl Windows for CountingQueuePair {
    fn capabilities(&self) -> &Capabilities {
        self.queue_pair.capabilities()
    }

    fn domain(&self) -> &ProtectionDomain {
        self.queue_pair.domain()
    }

    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        let Self { queue_pair, counter } = self;
        counter.count(|| queue_pair.reserve_window(memory))
    }
}

impl QueuePair for CountingQueuePair {
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let Self { queue_pair, counter } = self;
        counter.count(|| queue_pair.post(id, request))
    }

    fn send_room(&self) -> usize {
        self.queue_pair.send_room()
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        let Self { queue_pair, counter } = self;
        counter.count(|| queue_pair.post_receive(id, memory))
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        let Self { queue_pair, counter } = self;
        counter.count(|| queue_pair.poll(cx, completions))
    }

    fn disconnect(&mut self) {
        self.queue_pair.disconnect();
    }

    fn abort(&mut self) {
        self.queue_pair.abort();
    }

    fn peer_private_data(&self) -> &Bytes {
        self.queue_pair.peer_private_data()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.queue_pair.local_address()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.queue_pair.peer_address()
    }

    fn counters(&self) -> Counters {
        self.queue_pair.counters()
    }

    fn progress(&self) -> Option<Progress> {
        self.queue_pair.progress()
    }
}
