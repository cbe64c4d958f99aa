//! A notice board that calls its readers (RFC 8167). A reader serves a program of its own on the connection that it
//! opened and subscribes by a call. For every note that is posted, the server calls that program of each subscriber.
//! `cargo run -p rpcrdma --example callback` does so over software iWARP.

use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma::{
    Backchannel, Binding, Call, CallContext, CallFailure, Client, ClientConfig, ConnectionContext, Effect,
    ProcedureInfo, Program, ResponseFuture, Server,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::{Decoder, Stream, Xdr, encode};
use tokio::sync::mpsc;

/// The server serves this program.
const BOARD: u32 = 0x2000_b0a4;
const SUBSCRIBE: u32 = 1;
const POST: u32 = 2;
/// Clients serve this program.
const READER: u32 = 0x2000_4ead;
const NOTE: u32 = 1;

#[derive(Xdr, Clone)]
struct Note(#[xdr(max = 255)] String);

#[derive(Default)]
struct Board(Arc<Mutex<Vec<Backchannel>>>);

/// Calls every reader; returns how many took the note. Readers whose connection has ended are no longer subscribed.
async fn post(readers: Arc<Mutex<Vec<Backchannel>>>, note: Note) -> Result<Stream, CallFailure> {
    let all = readers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut took = 0_u32;
    for reader in all {
        let call = Call::new(READER, 1, NOTE).name("NOTE").arguments(encode(&note)?);
        took += u32::from(reader.call_raw(call).await.is_ok());
    }
    readers.lock().unwrap_or_else(PoisonError::into_inner).retain(|reader| reader.ended().is_none());
    Ok(encode(&took)?)
}

impl Program for Board {
    fn number(&self) -> u32 {
        BOARD
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "SUBSCRIBE", "POST"].get(usize::try_from(procedure).ok()?)?;
        Some(ProcedureInfo { name, effect: Effect::State })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let readers = Arc::clone(&self.0);
        Box::pin(async move {
            if context.procedure == POST {
                return post(readers, arguments.decode_all()?).await;
            }
            arguments.finish()?;
            // `None` over TCP, which has no reverse direction.
            let reader = context.backchannel().ok_or(CallFailure::ProcedureUnavailable)?;
            readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            Ok(Stream::new())
        })
    }
}

impl Binding for Board {}

struct Reader(mpsc::UnboundedSender<String>);

impl Program for Reader {
    fn number(&self) -> u32 {
        READER
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        (procedure == NOTE).then_some(ProcedureInfo { name: "NOTE", effect: Effect::State })
    }

    fn call(&self, _context: CallContext, arguments: Decoder) -> ResponseFuture {
        let taken = arguments.decode_all().map(|Note(text)| self.0.send(text));
        Box::pin(async move {
            // The receiver of the notes is gone.
            taken?.map_err(|_| CallFailure::SystemError)?;
            Ok(Stream::new())
        })
    }
}

impl Binding for Reader {}

/// Serves a board on `listener`, reads it through `connector`, and posts two notes.
pub(crate) async fn run(
    listener: Box<dyn Listener>,
    connector: Arc<dyn Connector>,
) -> Result<(), Box<dyn Error>> {
    let server = Server::builder().program(Arc::new(Board::default())).listen_rdma(listener).build()?;
    let address = *server.rdma_addresses()?.first().ok_or("no address")?;
    tokio::spawn(server.serve(std::future::pending()));

    let (notes, mut read) = mpsc::unbounded_channel();
    let reader = Client::builder().program(Arc::new(Reader(notes)));
    let reader = reader.rdma(Arc::clone(&connector), address).await?;
    reader.call_raw(Call::new(BOARD, 1, SUBSCRIBE).name("SUBSCRIBE")).await?;

    let writer = Client::rdma(connector, address, ClientConfig::default()).await?;
    for text in ["the library closes at six", "so do the reading rooms"] {
        let note = encode(&Note(text.to_owned()))?;
        let posted =
            writer.call_raw(Call::new(BOARD, 1, POST).name("POST").arguments(note).results(4)).await?;
        println!(
            "{} reader took it: {}",
            posted.results.decode_all::<u32>()?,
            read.recv().await.ok_or("no note")?
        );
    }
    // A reader without a connection is not subscribed.
    reader.close().await;
    let note = encode(&Note("the doors are shut".to_owned()))?;
    let posted = writer.call_raw(Call::new(BOARD, 1, POST).name("POST").arguments(note).results(4)).await?;
    assert!(posted.results.decode_all::<u32>()? == 0 && read.try_recv().is_err());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), rpcrdma_iwarp::Config::default()).await?;
    run(Box::new(listener), Arc::new(IwarpConnector::default())).await
}
