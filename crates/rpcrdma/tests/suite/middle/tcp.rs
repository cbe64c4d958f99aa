//! Handles over TCP on loopback, where the clock is real.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rpcrdma::{CallError, Client, ClientConfig, Retry, Server, ServerConfig, Transport};
use rpcrdma_oncrpc::CallHeader;
use rpcrdma_xdr::Encoder;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Answer, Scripted, milliseconds, read};
use crate::gss_calls::{receive, send};

/// Time for what happens at once.
const LIMIT: Duration = Duration::from_secs(20);

fn config() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.protocol.timeouts.reconnect_least = milliseconds(1);
    config
}

async fn serve(answers: impl IntoIterator<Item = Answer>) -> (Arc<Scripted>, SocketAddr) {
    let program = Scripted::new(answers);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served: Arc<Scripted> = Arc::clone(&program);
    let server = Server::builder().config(ServerConfig::default()).program(served).listen_tcp(listener);
    tokio::spawn(server.build().unwrap().serve(std::future::pending()));
    (program, address)
}

#[tokio::test]
async fn a_shedding_server_is_asked_again() {
    let (program, address) = serve([Answer::SystemError; 2]).await;
    let client =
        Client::builder().config(config()).transport(Transport::tcp()).connect(address).await.unwrap();
    let retry = Retry::new(3).pauses(milliseconds(4), milliseconds(8));
    let mut reply = client.handle().retry(retry).deadline(LIMIT).call_raw(read(6)).await.unwrap();
    assert_eq!((reply.results.u32(), program.heard().len()), (Ok(6), 3));
}

#[tokio::test]
async fn a_deadline_ends_a_call() {
    let (program, address) = serve([Answer::Never]).await;
    let client =
        Client::builder().config(config()).transport(Transport::tcp()).connect(address).await.unwrap();
    let began = Instant::now();
    let error = client.handle().deadline(milliseconds(100)).call_raw(read(6)).await.unwrap_err();
    assert!(began.elapsed() >= milliseconds(100));
    assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error:?}");
    assert_eq!((program.heard().len(), client.stats().timed_out), (1, 1));
}

/// The time for a reply grows while data moves. A deadline does not.
#[tokio::test]
async fn data_that_moves_does_not_extend_a_deadline() {
    const PIECE: usize = 8 << 10;
    const PIECES: usize = 40;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Answers each call by so many pieces, one after the other. Each is worth a second more at the least rate.
    tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        loop {
            let xid = CallHeader::read(&mut receive(&mut stream).await).unwrap().xid;
            let mut reply = Encoder::new();
            for word in [xid, 1, 0, 0, 0, 0] {
                reply.u32(word);
            }
            let reply = reply.finish().flatten().0;
            let length = u32::try_from(reply.len() + PIECE * PIECES).unwrap();
            stream.write_all(&(0x8000_0000 | length).to_be_bytes()).await.unwrap();
            stream.write_all(&reply).await.unwrap();
            for _ in 0..PIECES {
                stream.write_all(&[0; PIECE]).await.unwrap();
                sleep(milliseconds(10)).await;
            }
        }
    });
    let client =
        Client::builder().config(config()).transport(Transport::tcp()).connect(address).await.unwrap();
    let call = || read(6).results(PIECE * PIECES).timeout(milliseconds(100));
    client.handle().call_raw(call()).await.unwrap();
    let began = Instant::now();
    let error = client.handle().deadline(milliseconds(250)).call_raw(call()).await.unwrap_err();
    assert!(began.elapsed() >= milliseconds(250), "{:?}: {error:?}", began.elapsed());
    assert!(
        matches!(error, CallError::TimedOut { after, sent: true, .. } if after == milliseconds(250)),
        "{error:?}"
    );
}

/// A connection whose calls are answered by their own arguments, until this is dropped.
struct Answers {
    calls: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Answers {
    fn new(mut stream: TcpStream) -> Self {
        let calls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            loop {
                let mut call = receive(&mut stream).await;
                let xid = CallHeader::read(&mut call).unwrap().xid;
                let mut reply = Encoder::new();
                for word in [xid, 1, 0, 0, 0, 0, call.u32().unwrap()] {
                    reply.u32(word);
                }
                count.fetch_add(1, Ordering::SeqCst);
                send(&mut stream, &reply.finish()).await;
            }
        });
        Self { calls, task }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn keys_of_a_lost_connection_take_another_until_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = config();
    settings.connections = 2;
    let client = Client::builder()
        .config(settings)
        .transport(Transport::tcp())
        .connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let accept = async || Answers::new(listener.accept().await.unwrap().0);
    let (one, two) = (accept().await, accept().await);
    let handle = client.handle().key(1);
    handle.call_raw(read(1)).await.unwrap();
    let (own, other) = if one.calls() == 1 { (one, two) } else { (two, one) };
    assert_eq!((own.calls(), other.calls()), (1, 0));
    drop(own);
    // A call before the client knows of the loss waits for the next connection, which is lost, too.
    let moved = async {
        while other.calls() == 0 {
            let mut call = pin!(handle.call_raw(read(2).timeout(milliseconds(20))));
            loop {
                tokio::select! {
                    _ = &mut call => break,
                    lost = listener.accept() => drop(lost),
                }
            }
        }
    };
    timeout(LIMIT, moved).await.unwrap();
    // With a connection that stays, the key is back.
    let back = async {
        let call = async || {
            loop {
                handle.call_raw(read(3)).await.unwrap();
                sleep(milliseconds(1)).await;
            }
        };
        let back = tokio::select! {
            back = accept() => back,
            () = call() => unreachable!("it never ends"),
        };
        while back.calls() == 0 {
            handle.call_raw(read(3)).await.unwrap();
        }
        let calls = other.calls();
        handle.call_raw(read(4)).await.unwrap();
        assert_eq!((other.calls(), client.connections()), (calls, 2));
    };
    timeout(LIMIT, back).await.unwrap();
}
