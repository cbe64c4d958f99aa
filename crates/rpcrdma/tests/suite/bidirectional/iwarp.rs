//! Both directions over software iWARP on loopback, with real sockets and several threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{Backchannel, Client, ClientConfig, Server, ServerConfig, ServerMonitor};
use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::world::{MIB, credits};
use crate::support::bounce::{Bounce, bounce};
use crate::support::{echo, get, pattern, program, put, sleep_call};

pub struct Pair {
    pub client: Client,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub async fn pair(client: ClientConfig, server: ServerConfig) -> Pair {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = IwarpListener::bind(loopback, Config::default()).await.unwrap();
    let server = Server::builder()
        .config(server)
        .program(program())
        .program(Arc::new(Bounce::default()))
        .listen_rdma(Box::new(listener))
        .build()
        .unwrap();
    let address = server.rdma_addresses().unwrap()[0];
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    let client = Client::builder().config(client).program(program()).program(Arc::new(Bounce::default()));
    let client = client.rdma(Arc::new(IwarpConnector::default()), address).await.unwrap();
    // The Responder of MPA waits for the first message of the Initiator.
    client.null(crate::support::PROGRAM, 1).await.unwrap();
    Pair { client, monitor, stop, task }
}

impl Pair {
    pub fn back(&self) -> Backchannel {
        self.monitor.backchannels().pop().unwrap()
    }

    pub async fn end(self) {
        self.client.close().await;
        assert_eq!(self.client.stats().memory_in_use, 0);
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap();
        assert_eq!((self.monitor.stats().connections, self.monitor.stats().memory_in_use), (0, 0));
    }
}

fn with_chunks(reverse: u32, forward: u32) -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = credits(reverse, forward);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    (client, server)
}

#[tokio::test]
async fn s5_3_all_forms_in_the_reverse_direction() {
    let (client, server) = with_chunks(16, 64);
    let pair = pair(client, server).await;
    let back = pair.back();
    for length in [0, 1, 3, 4, 5, 3_000, 5_000, 65_537, MIB] {
        echo(&back, &pattern(length)).await.unwrap();
        put(&back, Bytes::from(pattern(length))).await.unwrap();
        get(&back, length).await.unwrap();
    }
    drop(back);
    pair.end().await;
}

/// RFC 8167 §2.3, with many credits and with few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_3_both_sides_under_load() {
    for (reverse, forward) in [(16, 64), (2, 2), (1, 1)] {
        let (client, server) = with_chunks(reverse, forward);
        let pair = pair(client, server).await;
        let mut tasks = JoinSet::new();
        for i in 0..100_usize {
            let (client, back) = (pair.client.clone(), pair.back());
            tasks.spawn(async move {
                match i % 4 {
                    0 => drop(echo(&client, &pattern(i * 100)).await.unwrap()),
                    1 => drop(put(&client, Bytes::from(pattern(i * 1000))).await.unwrap()),
                    2 => drop(get(&client, i * 1000).await.unwrap()),
                    _ => drop(client.call_raw(sleep_call(1)).await.unwrap()),
                }
            });
            tasks.spawn(async move {
                match i % 4 {
                    0 => drop(echo(&back, &pattern(i * 100)).await.unwrap()),
                    1 => drop(put(&back, Bytes::from(pattern(i * 1000))).await.unwrap()),
                    2 => drop(get(&back, i * 1000).await.unwrap()),
                    _ => drop(back.call_raw(sleep_call(1)).await.unwrap()),
                }
            });
        }
        timeout(Duration::from_secs(60), tasks.join_all()).await.unwrap();
        assert_eq!((pair.client.stats().connections, pair.client.stats().timed_out), (1, 0));
        pair.end().await;
    }
}

/// RFC 8167 §2.3: handlers of either side call the other, whose handlers call back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_3_calls_from_inside_handlers() {
    let (client, server) = credits(4, 4);
    let pair = pair(client, server).await;
    assert_eq!(bounce(&pair.client, 1).await.unwrap(), 1);
    let chains = Arc::new(Semaphore::new(2));
    let mut tasks = JoinSet::new();
    for i in 0..60 {
        let (client, back, chains) = (pair.client.clone(), pair.back(), Arc::clone(&chains));
        tasks.spawn(async move {
            let _chain = chains.acquire().await.unwrap();
            let times = if i % 2 == 0 { bounce(&client, 3).await } else { bounce(&back, 3).await };
            assert_eq!(times.unwrap(), 3);
        });
    }
    timeout(Duration::from_secs(60), tasks.join_all()).await.unwrap();
    assert_eq!(pair.client.stats().connections, 1);
    pair.end().await;
}
