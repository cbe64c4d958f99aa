//! Somebody between client and server who changes messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use rpcrdma_verbs::{
    BoxFuture, Buffer, Capabilities, Completion, ConnectError, ConnectParameters, Connector, Counters,
    Disconnected, PostError, Progress, ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment,
    SendRequest, WindowError, WindowMemory, Windows, Work, WorkRequest, WrId,
};

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Changes the bytes of a message that comes by Send.
pub type Change = Arc<dyn Fn(Way, &mut Vec<u8>) + Send + Sync>;

/// Connections whose messages are changed.
pub struct Meddler<C> {
    pub connector: C,
    pub change: Change,
}

impl<C: Connector> Connector for Meddler<C> {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let inner = self.connector.connect(to, parameters).await?;
            Ok(Box::new(Meddled { inner, change: Arc::clone(&self.change) }) as Box<dyn QueuePair>)
        })
    }
}

struct Meddled {
    inner: Box<dyn QueuePair>,
    change: Change,
}

impl Windows for Meddled {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn domain(&self) -> &ProtectionDomain {
        self.inner.domain()
    }

    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        self.inner.reserve_window(memory)
    }
}

impl QueuePair for Meddled {
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let request = match request {
            WorkRequest::Send(send) => {
                let mut bytes = send.gather.concat();
                (self.change)(Way::ToServer, &mut bytes);
                WorkRequest::Send(SendRequest { gather: vec![bytes.into()], ..send })
            }
            request => request,
        };
        self.inner.post(id, request)
    }

    fn send_room(&self) -> usize {
        self.inner.send_room()
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        self.inner.post_receive(id, memory)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        let before = completions.len();
        let polled = self.inner.poll(cx, completions);
        for completion in &mut completions[before..] {
            if let Work::Receive { buffers, len, .. } = &mut completion.work
                && completion.status.is_success()
            {
                let mut bytes: Vec<u8> =
                    buffers.iter().flat_map(|buffer| buffer.iter().copied()).take(*len).collect();
                (self.change)(Way::ToClient, &mut bytes);
                *len = bytes.len();
                *buffers = vec![Buffer::adopt(bytes)];
            }
        }
        polled
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn abort(&mut self) {
        self.inner.abort();
    }

    fn peer_private_data(&self) -> &Bytes {
        self.inner.peer_private_data()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.inner.local_address()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.peer_address()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn progress(&self) -> Option<Progress> {
        self.inner.progress()
    }
}
