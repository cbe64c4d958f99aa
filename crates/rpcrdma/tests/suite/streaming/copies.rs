//! From files to files on loopback, over software iWARP and TCP, and copies of payload on the way: none.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::streaming::{FileAt, Pieces, receive, send};
use rpcrdma::{Client, Server, Transport, Workers};
use rpcrdma_iwarp::{Config, IwarpListener};
use rpcrdma_verbs::ProtectionDomain;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::world::{MAX, Objects, PIECE, World, object, pattern, read, write};

/// Stores a file of some MiB and fetches it into another. Returns the payload bytes that client and server copied.
async fn file_to_file(tcp: bool) -> (u64, u64) {
    let length = 5 * MAX + 4321;
    let objects = Arc::new(Objects { object: pattern(length), ..Objects::default() });
    let server = Server::builder().program(Arc::new(object::serve(Arc::clone(&objects))));
    let local = ([127, 0, 0, 1], 0).into();
    let (server, address) = if tcp {
        let listener = TcpListener::bind(local).await.unwrap();
        let address = listener.local_addr().unwrap();
        (server.listen_tcp(listener).build().unwrap(), address)
    } else {
        let listener = IwarpListener::bind(local, Config::default()).await.unwrap();
        let server = server.listen_rdma(Box::new(listener)).build().unwrap();
        let address = server.rdma_addresses().unwrap()[0];
        (server, address)
    };
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.serve(async { drop(stopped.await) }));
    let client = if tcp {
        Client::builder().transport(Transport::tcp()).connect(address).await.unwrap()
    } else {
        Client::connect(address).await.unwrap()
    };

    let workers = Workers::new("files", 2, 8);
    let folder = tempfile::tempdir().unwrap();
    let source = FileAt::create(folder.path().join("source"), &workers).await.unwrap();
    source.write(0, pattern(length)).await.unwrap();
    let call = |offset, data| write(&client, offset, data);
    let sent = send(client.domain(), source, Pieces::of(MAX).window(4), call).await.unwrap();
    assert_eq!(sent, length as u64);
    assert_eq!(objects.stored_from(0), pattern(length));

    let path = folder.path().join("target");
    let target = FileAt::create(&path, &workers).await.unwrap();
    let call = |offset, count| read(&client, offset, count);
    let received = receive(target.clone(), Pieces::of(MAX).window(4), call).await.unwrap();
    assert_eq!((received.bytes, received.copied), (length as u64, 0));
    assert_eq!(std::fs::read(&path).unwrap(), pattern(length));
    // A part, at its own place of the file.
    target.set_size(0).await.unwrap();
    let part = Pieces::of(MAX / 2).offset(100).length(MAX as u64);
    receive(target, part, call).await.unwrap();
    let (file, expected) = (std::fs::read(&path).unwrap(), pattern(length));
    assert_eq!((&file[..100], &file[100..]), (&[0; 100][..], &expected[100..100 + MAX]));

    let copied = (client.stats().payload_bytes_copied, monitor.stats().payload_bytes_copied);
    objects.stored.lock().unwrap().clear();
    client.close().await;
    assert_eq!(client.stats().memory_in_use, 0);
    stop.send(()).unwrap();
    timeout(Duration::from_secs(20), task).await.unwrap().unwrap().unwrap();
    assert_eq!(monitor.stats().memory_in_use, 0);
    copied
}

#[tokio::test]
async fn payload_from_file_to_file_is_never_copied_over_iwarp() {
    assert_eq!(file_to_file(false).await, (0, 0));
}

#[tokio::test]
async fn payload_goes_from_file_to_file_over_tcp() {
    // The counters are of RDMA.
    let _ = file_to_file(true).await;
}

/// Records the memory that it reads into, or writes from.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Vec<usize>>>);

impl Witness {
    fn see(&self, memory: *const u8) {
        self.0.lock().unwrap().push(memory as usize);
    }

    fn seen(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }
}

impl AsyncRead for Witness {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let memory = buffer.initialize_unfilled();
        memory.fill(7);
        let (start, count) = (memory.as_ptr(), memory.len());
        self.see(start);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Witness {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.see(data.as_ptr());
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A reader writes into the memory of the calls, and a writer gets that of their results.
#[tokio::test(start_paused = true)]
async fn readers_and_writers_see_the_memory_of_the_calls() {
    let world = World::with_object(5 * PIECE).await;
    let client = &world.client;
    let (source, sent) = (Witness::default(), Witness::default());
    let stream = Pieces::of(PIECE).length(5 * PIECE as u64);
    let domain = ProtectionDomain::new(5 * ProtectionDomain::room_for(PIECE));
    let call = |offset, data: Bytes| {
        sent.see(data.as_ptr());
        write(client, offset, data)
    };
    send(&domain, source.clone(), stream, call).await.unwrap();
    assert_eq!((source.seen(), source.seen().len()), (sent.seen(), 5));

    let (target, arrived) = (Witness::default(), Witness::default());
    let call = async |offset, count| {
        let part = read(client, offset, count).await?;
        arrived.see(part.data.iter().next().unwrap().as_ptr());
        Ok::<_, rpcrdma::CallError>(part)
    };
    // With a single call at a time, results arrive in the order of their offsets.
    receive(target.clone(), stream.window(1), call).await.unwrap();
    assert_eq!((target.seen(), target.seen().len()), (arrived.seen(), 5));
    assert_eq!(world.copied(), (0, 0));
    world.end().await;
}
