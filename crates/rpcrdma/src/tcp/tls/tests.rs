use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpcrdma_proto::Pace;
use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{Encoder, Stream};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::super::record::{RecordError, RecordSink, RecordSource};
use super::*;
use crate::tls::tests::certificates::{Authority, NAME};

const MAX: usize = 8 << 20;

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

async fn pair() -> (TlsStream, TlsStream) {
    let authority = Authority::new();
    let (near, far) = sockets().await;
    let client = TlsStream::client(near, &authority.client()).unwrap();
    let server = TlsStream::server(far, &authority.server()).unwrap();
    let (one, other) = tokio::join!(client.handshake(), server.handshake());
    one.and(other).unwrap();
    (client, server)
}

fn pace() -> Pace {
    Pace { stall: Duration::from_secs(30), least_rate: 1000 }
}

fn source() -> RecordSource {
    RecordSource::new(ProtectionDomain::new(4 * MAX), MAX, pace())
}

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

/// Returns a message in pieces of this length.
fn message(data: &[u8], piece: usize) -> Stream {
    let mut encoder = Encoder::new();
    for piece in data.chunks(piece) {
        encoder.payload(bytes::Bytes::copy_from_slice(piece), MAX, false).unwrap();
    }
    encoder.finish()
}

async fn send(stream: &TlsStream, messages: &[Stream]) {
    let mut sink = RecordSink::new(pace());
    for message in messages {
        sink.push(message);
    }
    sink.flush(stream).await.unwrap();
}

/// RFC 9289 §5.1.1: TLS does not alter the framing of records.
// requirement: rfc9289-5.1.1-3
#[tokio::test]
async fn long_records_travel_both_ways_at_once() {
    let (client, server) = pair().await;
    let messages = [message(&data(5 << 20), 1 << 20), message(&data(3_000_001), 4099), message(&data(7), 7)];
    let both = async |from: &TlsStream, to: &TlsStream| {
        let mut source = source();
        let receive = async {
            for message in &messages {
                assert_eq!(source.next(to).await.unwrap().unwrap(), message.flatten().0);
            }
        };
        tokio::join!(send(from, &messages), receive);
    };
    tokio::join!(both(&client, &server), both(&server, &client));
}

/// The client's end of a session, whose ciphertext the test sends as it likes.
struct Cut {
    socket: TcpStream,
    tls: Connection,
}

impl Cut {
    async fn pair() -> (Self, TlsStream) {
        let authority = Authority::new();
        let (near, far) = sockets().await;
        let (config, name) = (Arc::clone(&authority.client().config), ServerName::try_from(NAME).unwrap());
        let tls = ClientConnection::new(config, name).unwrap().into();
        let mut cut = Self { socket: near, tls };
        let server = TlsStream::server(far, &authority.server()).unwrap();
        let shake = async {
            while cut.tls.is_handshaking() {
                let bytes = cut.ciphertext(&[]);
                cut.socket.write_all(&bytes).await.unwrap();
                let mut block = [0; 4096];
                cut.socket.readable().await.unwrap();
                if let Ok(count) = cut.socket.try_read(&mut block) {
                    cut.tls.read_tls(&mut &block[..count]).unwrap();
                    cut.tls.process_new_packets().unwrap();
                }
            }
            let bytes = cut.ciphertext(&[]);
            cut.socket.write_all(&bytes).await.unwrap();
        };
        let ((), done) = tokio::join!(shake, server.handshake());
        done.unwrap();
        (cut, server)
    }

    fn ciphertext(&mut self, plain: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(plain).unwrap();
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        bytes
    }
}

fn framed(data: &[u8]) -> Vec<u8> {
    let header = 0x8000_0000 | u32::try_from(data.len()).unwrap();
    [&header.to_be_bytes()[..], data].concat()
}

#[tokio::test]
async fn data_may_be_split_anywhere() {
    let (mut cut, server) = Cut::pair().await;
    let mut source = source();
    let plain = [framed(&data(20)), framed(&data(9))].concat();
    let length = cut.ciphertext(&[]).len() + 22 + plain.len();
    for at in 0..=length {
        // Two TLS records for two RPC records, cut in the middle of the first RPC record.
        let bytes = [cut.ciphertext(&plain[..10]), cut.ciphertext(&plain[10..])].concat();
        let (first, second) = bytes.split_at(at);
        cut.socket.write_all(first).await.unwrap();
        {
            let mut early = pin!(source.next(&server));
            // Looks at the first part before the second comes.
            assert!(early.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            cut.socket.write_all(second).await.unwrap();
            assert_eq!(early.await.unwrap().unwrap(), data(20));
        }
        assert_eq!(source.next(&server).await.unwrap().unwrap(), data(9));
    }
}

/// RFC 9289 §5.1.1, RFC 8446 §6.1: only a closure alert ends a session in order.
#[tokio::test]
async fn a_cut_stream_is_not_taken_for_its_end() {
    // In order.
    let (mut cut, server) = Cut::pair().await;
    let bytes = cut.ciphertext(&framed(&data(20)));
    cut.tls.send_close_notify();
    let bytes = [bytes, cut.ciphertext(&[])].concat();
    cut.socket.write_all(&bytes).await.unwrap();
    let mut records = source();
    // The socket stays open: the alert counts.
    assert_eq!(records.next(&server).await.unwrap().unwrap(), data(20));
    assert!(records.next(&server).await.unwrap().is_none());
    // Between two records, inside a record of RPC, inside a record of TLS.
    for (plain, lost) in
        [(framed(&data(20)), 0), (framed(&data(20))[..12].to_vec(), 0), (framed(&data(20)), 1)]
    {
        let (mut cut, server) = Cut::pair().await;
        let bytes = cut.ciphertext(&plain);
        cut.socket.write_all(&bytes[..bytes.len() - lost]).await.unwrap();
        cut.socket.shutdown().await.unwrap();
        let mut records = source();
        let mut last = records.next(&server).await;
        if let Ok(Some(record)) = &last {
            assert_eq!(record, &data(20));
            last = records.next(&server).await;
        }
        let error = last.unwrap_err();
        assert!(
            matches!(&error, RecordError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof),
            "{error}"
        );
    }
}

/// A change of one bit is a fault of TLS, and the records before it count.
#[tokio::test]
async fn a_changed_record_is_a_fault() {
    let (mut cut, server) = Cut::pair().await;
    let mut bytes = [cut.ciphertext(&framed(&data(20))), cut.ciphertext(&framed(&data(30)))].concat();
    *bytes.last_mut().unwrap() ^= 1;
    cut.socket.write_all(&bytes).await.unwrap();
    let mut records = source();
    assert_eq!(records.next(&server).await.unwrap().unwrap(), data(20));
    let RecordError::Io(error) = records.next(&server).await.unwrap_err() else { panic!("a fault") };
    assert!(is_fault(&error), "{error}");
}

/// Records without data cost a turn, not the thread: a read ends after some steps.
#[tokio::test]
async fn i6_empty_records_do_not_keep_a_read_busy() {
    let (mut cut, server) = Cut::pair().await;
    // Changes of keys have no data, and rustls allows some of them.
    let rustls::Connection::Client(client) = &mut cut.tls else { panic!("a client") };
    client.refresh_traffic_keys().unwrap();
    let bytes = cut.ciphertext(&framed(&data(20)));
    cut.socket.write_all(&bytes).await.unwrap();
    let mut records = source();
    assert_eq!(records.next(&server).await.unwrap().unwrap(), data(20));
    // The answer of the server with its next record: its own new keys.
    send(&server, &[message(&data(20), 20)]).await;
    let mut block = [0; 4096];
    cut.socket.readable().await.unwrap();
    let count = cut.socket.try_read(&mut block).unwrap();
    cut.tls.read_tls(&mut &block[..count]).unwrap();
    assert_eq!(cut.tls.process_new_packets().unwrap().plaintext_bytes_to_read(), 28);
}

/// I6: a peer that takes nothing is given up, although TLS has taken data.
#[tokio::test(start_paused = true)]
async fn i6_a_peer_that_takes_nothing_is_given_up() {
    let (_client, server) = pair().await;
    let mut sink = RecordSink::new(pace());
    sink.push(&message(&data(MAX), 1 << 20));
    let error = sink.flush(&server).await.unwrap_err();
    let RecordError::WriteStalled { queued, .. } = error else { panic!("{error}") };
    assert!(queued > 0 && queued < MAX, "{queued}");
}

/// Bytes count as written when their ciphertext has left, so none are lost or sent twice.
#[tokio::test]
async fn a_slow_reader_gets_every_byte_once() {
    let (client, server) = pair().await;
    let wanted = data(6 << 20);
    let mut written = 0;
    let mut block = vec![0; 100_003];
    let mut read = Vec::new();
    while read.len() < wanted.len() {
        // Writes until the socket is full.
        while written < wanted.len() {
            let (one, two) = wanted[written..].split_at((wanted.len() - written).min(777));
            match server.try_write_vectored(&[IoSlice::new(one), IoSlice::new(two)]) {
                Ok(count) => written += count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!(read.len() <= written + WRITE);
        match client.try_read(&mut block) {
            Ok(count) => read.extend_from_slice(&block[..count]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(read == wanted);
    assert_eq!(written, wanted.len());
}

/// A connection at rest holds no block for ciphertext.
#[tokio::test]
async fn a_connection_at_rest_holds_no_block() {
    let (client, server) = pair().await;
    send(&client, &[message(&data(100), 100)]).await;
    let mut records = source();
    records.next(&server).await.unwrap().unwrap();
    assert!(matches!(
        pin!(records.next(&server)).poll(&mut Context::from_waker(Waker::noop())),
        Poll::Pending
    ));
    while server.lock().more {
        assert!(server.try_read(&mut [0; 1]).is_err());
    }
    assert_eq!(server.lock().block.capacity(), 0);
}
