//! An RPC program written for this example: a store of blobs by key, whose data travels in chunks over RDMA. A client
//! stores a file of some MiB, several calls at a time, and fetches it into another file. No byte is copied outside of the
//! kernel.
//!
//! `cargo run -p rpcrdma --example blob` runs server and client in one process, on loopback, over software iWARP and then
//! over TCP. It fails if the files differ. The arguments `rdma` and `tcp` choose one of both.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rpcrdma::streaming::{FileAt, Part, Pieces, receive, send};
use rpcrdma::xdr::Xdr;
use rpcrdma::{CallContext, CallError, CallFailure, Client, Server, Transport, Workers};
use rpcrdma_iwarp::IwarpListener;
use tokio::net::TcpListener;

/// Most bytes of one call.
const MAX: usize = 1 << 20;
/// Bytes of the file that is stored and fetched.
const LENGTH: usize = 5 * MAX + MAX / 2;

rpcrdma::program! {
    /// Stores and returns blobs.
    pub mod blob {
        program 0x2000_b10b, version 1;
        /// Stores a piece of a blob.
        fn put = 1, Put(Piece) -> (), Data;
        /// Returns bytes of a blob: as many as are wanted, or fewer.
        fn get = 2, Get(Wanted) -> Found, Idempotent;
    }
}

/// A piece of a blob.
#[derive(Xdr)]
pub struct Piece {
    #[xdr(max = 255)]
    key: String,
    offset: u64,
    #[xdr(ddp, max = MAX)]
    data: Bytes,
}

/// The bytes of a blob that are wanted.
#[derive(Xdr)]
pub struct Wanted {
    #[xdr(max = 255)]
    key: String,
    offset: u64,
    count: u32,
}

/// Bytes of a blob.
#[derive(Xdr)]
pub struct Found {
    /// Whether the blob ends after the data.
    end: bool,
    #[xdr(ddp, max = MAX)]
    data: Bytes,
}

/// Pieces of blobs by their offsets, in the memory in which they arrived.
#[derive(Default)]
struct Store(Mutex<HashMap<String, BTreeMap<u64, Bytes>>>);

impl blob::Service for Store {
    async fn put(&self, _: &CallContext, Piece { key, offset, data }: Piece) -> Result<(), CallFailure> {
        let mut blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.entry(key).or_default().insert(offset, data);
        Ok(())
    }

    async fn get(&self, _: &CallContext, wanted: Wanted) -> Result<Found, CallFailure> {
        let Wanted { key, offset, count } = wanted;
        let blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pieces) = blobs.get(&key) else { return Ok(Found { end: true, data: Bytes::new() }) };
        let mut data = Bytes::new();
        if let Some((start, piece)) = pieces.range(..=offset).next_back() {
            data =
                piece.slice(usize::try_from(offset - start).map_or(piece.len(), |at| at.min(piece.len()))..);
            data.truncate(usize::try_from(count).unwrap_or(MAX).min(MAX));
        }
        let behind = offset.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        let end =
            pieces.iter().all(|(start, piece)| start + u64::try_from(piece.len()).unwrap_or(0) <= behind);
        Ok(Found { end, data })
    }
}

/// Stores a file as a blob and fetches it into another. Returns the number of bytes.
async fn there_and_back(client: &Client, from: &Path, to: &Path) -> Result<u64, Box<dyn Error>> {
    // The threads that read and write the files.
    let workers = Workers::new("files", 2, 16);
    let source = FileAt::open(from, &workers).await?;
    let sent = send(client.domain(), source, Pieces::of(MAX).window(4), |offset, data| {
        client.call::<blob::Put>(Piece { key: "file".to_owned(), offset, data })
    })
    .await?;
    let target = FileAt::create(to, &workers).await?;
    let received = receive(target.clone(), Pieces::of(MAX).window(4), async |offset, count| {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let Found { end, data } =
            client.call::<blob::Get>(Wanted { key: "file".to_owned(), offset, count }).await?;
        Ok::<_, CallError>(Part::new(data, end))
    })
    .await?;
    target.sync().await?;
    if sent == received.bytes {
        Ok(sent)
    } else {
        Err(format!("{sent} bytes became {}", received.bytes).into())
    }
}

/// Runs server and client on loopback, over `rdma` or `tcp`.
pub(crate) async fn demonstrate(transport: &str) -> Result<(), Box<dyn Error>> {
    let local = ([127, 0, 0, 1], 0).into();
    let server = Server::builder().program(Arc::new(blob::serve(Store::default())));
    let rdma = IwarpListener::bind(local, rpcrdma_iwarp::Config::default()).await?;
    let tcp = TcpListener::bind(local).await?;
    let tcp_address = tcp.local_addr()?;
    let server = server.listen_rdma(Box::new(rdma)).listen_tcp(tcp).build()?;
    let rdma_address = *server.rdma_addresses()?.first().ok_or("no address")?;
    let monitor = server.monitor();
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let client = match transport {
        "rdma" => Client::connect(rdma_address).await?,
        "tcp" => Client::builder().transport(Transport::tcp()).connect(tcp_address).await?,
        _ => return Err("usage: blob [rdma] [tcp]".into()),
    };

    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let content: Vec<u8> = (0..LENGTH).map(|at| u8::try_from(at * 7 % 251).unwrap_or_default()).collect();
    std::fs::write(&from, &content)?;
    let moved = there_and_back(&client, &from, &to).await?;
    if std::fs::read(&to)? != content {
        return Err("the file that came back is another one".into());
    }
    let copied = client.stats().payload_bytes_copied + monitor.stats().payload_bytes_copied;
    println!("{transport}: {moved} bytes stored and fetched, {copied} copied");
    if copied > 0 {
        return Err("pieces of this size are never copied".into());
    }
    client.close().await;
    serving.abort();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut transports: Vec<String> = std::env::args().skip(1).collect();
    if transports.is_empty() {
        transports.extend(["rdma", "tcp"].map(String::from));
    }
    for transport in transports {
        demonstrate(&transport).await?;
    }
    Ok(())
}
