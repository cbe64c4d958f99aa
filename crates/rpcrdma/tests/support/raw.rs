//! A peer that sends any bytes, for tests of hostile peers on the simulated fabric.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_sim::{Fabric, SimListener};
use rpcrdma_verbs::{
    ConnectParameters, Connector, Listener, ProtectionDomain, QueuePair, ReceiveMemory, SendRequest, Work,
    WorkRequest, WrId,
};
use tokio::time::timeout;

/// The end of a connection that sends any bytes.
pub struct Peer {
    queue_pair: Box<dyn QueuePair>,
    next: u64,
}

impl Peer {
    /// Connects to a server.
    pub async fn connect(fabric: &Fabric, host: IpAddr, server: SocketAddr) -> Self {
        Self::try_connect(fabric, host, server).await.expect("the server accepts")
    }

    /// Connects as [`connect`](Self::connect) does; returns `None` if the server does not accept in time.
    pub async fn try_connect(fabric: &Fabric, host: IpAddr, server: SocketAddr) -> Option<Self> {
        Some(Self::new(fabric.connector(host).connect(server, parameters()).await.ok()?))
    }

    /// Waits for a client.
    pub async fn accept(listener: &mut SimListener) -> Self {
        let request = listener.accept().await.unwrap().request().await.unwrap();
        Self::new(request.accept(parameters()).await.unwrap())
    }

    fn new(mut queue_pair: Box<dyn QueuePair>) -> Self {
        for id in 1000..1032 {
            let buffer = queue_pair.domain().allocate(4096, 1).unwrap();
            queue_pair.post_receive(WrId(id), ReceiveMemory::Scatter(vec![buffer])).unwrap();
        }
        Self { queue_pair, next: 0 }
    }

    pub fn send(&mut self, message: Vec<u8>) {
        let request = SendRequest { gather: vec![Bytes::from(message)], ..SendRequest::default() };
        // The connection may have ended for an earlier message.
        let _ = self.queue_pair.post(WrId(self.next), WorkRequest::Send(request));
        self.next += 1;
    }

    /// Lets the messages leave; arriving messages are ignored.
    pub async fn leave(&mut self) {
        let _ = poll_fn(|cx| Poll::Ready(self.queue_pair.poll(cx, &mut Vec::new()))).await;
    }

    /// Returns the messages that arrive until none does for a second, and whether the connection has ended.
    pub async fn answers(&mut self) -> (Vec<Vec<u8>>, bool) {
        let mut answers = Vec::new();
        loop {
            let mut completions = Vec::new();
            let polled = poll_fn(|cx| match self.queue_pair.poll(cx, &mut completions) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(result) => Poll::Ready(result),
            });
            match timeout(Duration::from_secs(1), polled).await {
                Err(_) => return (answers, false),
                Ok(Err(_)) => return (answers, true),
                Ok(Ok(())) => {}
            }
            for completion in completions {
                if let Work::Receive { buffers, len, .. } = completion.work
                    && completion.status.is_success()
                {
                    answers.push(buffers[0][..len].to_vec());
                }
            }
        }
    }
}

/// Returns words as bytes.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub const NULL_CALL: [u32; 10] = [7, 0, 2, super::PROGRAM, 1, 0, 0, 0, 0, 0];

/// Returns a message with this header and a NULL call behind it.
pub fn message(header: &[u32]) -> Vec<u8> {
    [words(header), words(&NULL_CALL)].concat()
}

fn parameters() -> ConnectParameters {
    let private_data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
    ConnectParameters {
        private_data: private_data.encode().into(),
        ird: 32,
        ord: 4,
        max_send_wr: 64,
        max_recv_wr: 64,
        domain: ProtectionDomain::new(1 << 20),
    }
}
