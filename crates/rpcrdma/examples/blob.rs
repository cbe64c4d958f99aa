//! An RPC program written for this example: a store of blobs by key. The data of PUT and GET is DDP-eligible: over RDMA
//! it travels in chunks. `cargo run -p rpcrdma --example blob` shows that, over software iWARP.

use std::collections::HashMap;
use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rpcrdma::{
    Binding, Call, CallContext, CallFailure, Client, ClientConfig, Effect, Eligibility, ProcedureInfo,
    Program, ResponseFuture, Server, Sink,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_verbs::{Connector, Listener};
use rpcrdma_xdr::{Decoder, Stream, Xdr, encode};

const BLOB: u32 = 0x2000_b10b;
const PUT: u32 = 1;
const GET: u32 = 2;
const MAX: usize = 1 << 20;

#[derive(Xdr)]
struct Key(#[xdr(max = 255)] String);

#[derive(Xdr)]
struct PutArguments(Key, #[xdr(ddp, max = MAX)] Bytes);

#[derive(Xdr)]
struct GetResult(#[xdr(ddp, max = MAX)] Bytes);

#[derive(Default)]
struct Store(Mutex<HashMap<String, Bytes>>);

impl Store {
    fn serve(&self, procedure: u32, arguments: Decoder) -> Result<Stream, CallFailure> {
        let mut blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if procedure == PUT {
            let PutArguments(Key(key), data) = arguments.decode_all()?;
            return Ok(encode(&blobs.insert(key, data).is_some())?);
        }
        let Key(key) = arguments.decode_all()?;
        Ok(encode(&GetResult(blobs.get(&key).cloned().unwrap_or_default()))?)
    }
}

impl Program for Store {
    fn number(&self) -> u32 {
        BLOB
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        // PUT returns whether there was a blob before, so a second execution would return a false answer.
        let name = ["NULL", "PUT", "GET"].get(usize::try_from(procedure).ok()?)?;
        let effect = if procedure == GET { Effect::Idempotent } else { Effect::Data };
        Some(ProcedureInfo { name, effect })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(self.serve(context.procedure, arguments)))
    }
}

impl Binding for Store {
    fn eligibility(&self, _version: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == PUT), results: usize::from(procedure == GET) }
    }
}

/// Serves a store on `listener` and puts and gets a blob through `connector`.
pub(crate) async fn run(
    listener: Box<dyn Listener>,
    connector: Arc<dyn Connector>,
) -> Result<(), Box<dyn Error>> {
    let server = Server::builder().program(Arc::new(Store::default())).listen_rdma(listener).build()?;
    let address = *server.rdma_addresses()?.first().ok_or("no address")?;
    tokio::spawn(server.serve(std::future::pending()));
    let client = Client::rdma(connector, address, ClientConfig::default()).await?;

    let data = Bytes::from(vec![0xb1; MAX]);
    let put = encode(&PutArguments(Key("blob".into()), data.clone()))?;
    let put = client.call_raw(Call::new(BLOB, 1, PUT).arguments(put).results(4)).await?;
    println!("PUT: {}", put.travelled);
    let get =
        Call::new(BLOB, 1, GET).arguments(encode(&Key("blob".into()))?).results(4).sink(Sink::Pool(MAX));
    let get = client.call_raw(get).await?;
    println!("GET: {}", get.travelled);
    assert!(get.results.decode_all::<GetResult>()?.0 == data);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), rpcrdma_iwarp::Config::default()).await?;
    run(Box::new(listener), Arc::new(IwarpConnector::default())).await
}
