//! A notice board that calls its readers (RFC 8167). A reader serves a program of its own on the connection that it
//! opened, and subscribes by a call. For every note that is posted, the server calls that program of each subscriber.
//!
//! `cargo run -p rpcrdma --example callback` runs server, reader and writer in one process, on loopback over software
//! iWARP. With the argument `tcp` it shows what TCP has instead: no calls from a server to its client.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma::oncrpc::Refused;
use rpcrdma::xdr::Xdr;
use rpcrdma::{
    Backchannel, CallContext, CallError, CallFailure, Client, ConnectionContext, Server, Transport,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_verbs::{Connector, Listener};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

rpcrdma::program! {
    /// The server serves this program.
    pub mod board {
        program 0x2000_b0a4, version 1;
        /// Subscribes the caller.
        fn subscribe = 1, Subscribe() -> (), State;
        /// Posts a note, and returns the number of readers that took it.
        fn post = 2, Post(Note) -> u32, State;
    }
}

rpcrdma::program! {
    /// Readers serve this program.
    pub mod reader {
        program 0x2000_4ead, version 1;
        /// Takes a note.
        fn take = 1, Take(Note) -> (), State;
    }
}

/// A note on the board.
#[derive(Xdr)]
pub struct Note(#[xdr(max = 255)] String);

#[derive(Default)]
struct Board(Mutex<Vec<Backchannel>>);

impl Board {
    fn readers(&self) -> MutexGuard<'_, Vec<Backchannel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl board::Service for Board {
    async fn subscribe(&self, context: &CallContext) -> Result<(), CallFailure> {
        // `None` over TCP, which has no reverse direction.
        let reader = context.backchannel().ok_or(CallFailure::ProcedureUnavailable)?;
        self.readers().push(reader);
        Ok(())
    }

    async fn post(&self, _: &CallContext, note: Note) -> Result<u32, CallFailure> {
        let all = self.readers().clone();
        let mut took = 0;
        for reader in all {
            took += u32::from(reader.call::<reader::Take>(&note).await.is_ok());
        }
        // A reader whose connection has ended is no longer subscribed.
        self.readers().retain(|reader| reader.ended().is_none());
        Ok(took)
    }
}

struct Reader(mpsc::UnboundedSender<String>);

impl reader::Service for Reader {
    async fn take(&self, _: &CallContext, Note(text): Note) -> Result<(), CallFailure> {
        // An error means that the receiver of the notes is gone.
        self.0.send(text).map_err(|_| CallFailure::SystemError)
    }
}

/// Serves a board on `listener`, reads it through `connector`, and posts notes.
pub(crate) async fn over_rdma(
    listener: Box<dyn Listener>,
    connector: Arc<dyn Connector>,
) -> Result<(), Box<dyn Error>> {
    let server =
        Server::builder().program(Arc::new(board::serve(Board::default()))).listen_rdma(listener).build()?;
    let address = *server.rdma_addresses()?.first().ok_or("no address")?;
    let serving = tokio::spawn(server.serve(std::future::pending()));

    let (notes, mut read) = mpsc::unbounded_channel();
    let reader = Client::builder().program(Arc::new(reader::serve(Reader(notes))));
    let reader = reader.transport(Transport::rdma_on(Arc::clone(&connector))).connect(address).await?;
    reader.call::<board::Subscribe>(()).await?;

    let writer = Client::builder().transport(Transport::rdma_on(connector)).connect(address).await?;
    for text in ["the library closes at six", "so do the reading rooms"] {
        let took = writer.call::<board::Post>(Note(text.to_owned())).await?;
        let note = read.recv().await.ok_or("no note")?;
        println!("rdma: {took} reader took it: {note}");
        if (took, note.as_str()) != (1, text) {
            return Err("another note, or another number of readers".into());
        }
    }
    // A reader without a connection is not subscribed.
    reader.close().await;
    let took = writer.call::<board::Post>(Note("the doors are shut".to_owned())).await?;
    if took != 0 || read.try_recv().is_ok() {
        return Err("a reader without a connection took a note".into());
    }
    writer.close().await;
    serving.abort();
    Ok(())
}

/// Shows that neither side of a TCP connection offers calls in the reverse direction.
async fn over_tcp() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let server =
        Server::builder().program(Arc::new(board::serve(Board::default()))).listen_tcp(listener).build()?;
    let serving = tokio::spawn(server.serve(std::future::pending()));

    let (notes, _read) = mpsc::unbounded_channel();
    let reader = Client::builder().program(Arc::new(reader::serve(Reader(notes))));
    let refused = reader
        .transport(Transport::tcp())
        .connect(address)
        .await
        .err()
        .ok_or("a client serves a program over TCP")?;
    println!("tcp: calls from a server to its client need RDMA (RFC 8167). The client says: {refused}");
    let client = Client::builder().transport(Transport::tcp()).connect(address).await?;
    match client.call::<board::Subscribe>(()).await {
        Err(CallError::Refused(refused @ Refused::ProcedureUnavailable)) => {
            println!("tcp: a call that asks for such calls is refused. The server says: {refused}");
        }
        other => return Err(format!("SUBSCRIBE over TCP ended with {other:?}").into()),
    }
    client.close().await;
    serving.abort();
    Ok(())
}

/// Runs server and clients on loopback, over `rdma` or `tcp`.
pub(crate) async fn demonstrate(transport: &str) -> Result<(), Box<dyn Error>> {
    match transport {
        "rdma" => {
            let local = ([127, 0, 0, 1], 0).into();
            let listener = IwarpListener::bind(local, rpcrdma_iwarp::Config::default()).await?;
            over_rdma(Box::new(listener), Arc::new(IwarpConnector::default())).await
        }
        "tcp" => over_tcp().await,
        _ => Err("usage: callback [rdma|tcp]".into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    demonstrate(std::env::args().nth(1).as_deref().unwrap_or("rdma")).await
}
