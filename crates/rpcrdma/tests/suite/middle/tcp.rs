//! The same over TCP on loopback, where the clock is real.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{CallError, Client, ClientConfig, Retry, Server, ServerConfig};
use rpcrdma_oncrpc::CallHeader;
use rpcrdma_xdr::Encoder;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
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
    let client = Client::tcp(address, config()).await.unwrap();
    let retry = Retry::new(3).pauses(milliseconds(4), milliseconds(8));
    let mut reply = client.handle().retry(retry).deadline(LIMIT).call_raw(read(6)).await.unwrap();
    assert_eq!((reply.results.u32(), program.heard().len()), (Ok(6), 3));
}

#[tokio::test]
async fn a_deadline_ends_a_call() {
    let (program, address) = serve([Answer::Never]).await;
    let client = Client::tcp(address, config()).await.unwrap();
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
    let client = Client::tcp(address, config()).await.unwrap();
    let call = || read(6).results(PIECE * PIECES).timeout(milliseconds(40));
    client.handle().call_raw(call()).await.unwrap();
    let began = Instant::now();
    let error = client.handle().deadline(milliseconds(150)).call_raw(call()).await.unwrap_err();
    assert!(began.elapsed() >= milliseconds(150));
    assert!(
        matches!(error, CallError::TimedOut { after, sent: true, .. } if after == milliseconds(150)),
        "{error:?}"
    );
}

/// Answers a call by its own argument; returns `None` at the end of the connection.
async fn answer(stream: &mut TcpStream) -> Option<()> {
    stream.readable().await.ok()?;
    if matches!(stream.peek(&mut [0]).await, Ok(0) | Err(_)) {
        return None;
    }
    let mut call = receive(stream).await;
    let xid = CallHeader::read(&mut call).unwrap().xid;
    let mut reply = Encoder::new();
    for word in [xid, 1, 0, 0, 0, 0, call.u32().unwrap()] {
        reply.u32(word);
    }
    send(stream, &reply.finish()).await;
    Some(())
}

#[tokio::test]
async fn keys_of_a_lost_connection_take_another_until_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ClientConfig { connections: 2, ..config() };
    let (client, accepted) = tokio::join!(Client::tcp(address, settings), async {
        [listener.accept().await.unwrap().0, listener.accept().await.unwrap().0]
    });
    let (client, [mut one, mut two]) = (client.unwrap(), accepted);
    let handle = client.handle().key(1).deadline(LIMIT);
    // The connection of the key.
    let (reply, first) = tokio::join!(handle.call_raw(read(1)), async {
        tokio::select! {
            Some(()) = answer(&mut one) => true,
            Some(()) = answer(&mut two) => false,
        }
    });
    reply.unwrap();
    let (own, mut other) = if first { (one, two) } else { (two, one) };
    drop(own);
    // Until the client knows, a call may go to the lost connection, and then waits for the next one.
    let again = timeout(LIMIT, async {
        loop {
            let call = handle.call_raw(read(2).timeout(milliseconds(20)));
            let (reply, ()) = tokio::join!(call, async {
                tokio::select! {
                    _ = answer(&mut other) => {}
                    () = sleep(milliseconds(40)) => {}
                }
            });
            if reply.is_ok() {
                break listener.accept().await.unwrap().0;
            }
        }
    });
    let mut back = again.await.unwrap();
    // The client opened it without a call, and the key returns to it.
    let (reply, ()) = tokio::join!(handle.call_raw(read(3)), async {
        assert!(answer(&mut back).await.is_some());
    });
    assert_eq!(reply.unwrap().results.u32(), Ok(3));
    assert_eq!(client.stats().connections, 3);
}
