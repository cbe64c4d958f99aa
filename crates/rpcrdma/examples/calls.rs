//! Makes calls one after the other on the simulated fabric, client and server in one thread: NULL calls, or calls whose
//! replies have 1 MiB of data, as READ of NFS. The run does nothing but the work of a call, for tools that count
//! instructions (`cargo xtask measures`). `cargo run --release -p rpcrdma --example calls -- null|read 1|p1|p2|p3 COUNT`

use std::error::Error;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::{
    Binding, Call, CallContext, Client, ClientConfig, Effect, Eligibility, ProcedureInfo, Profile, Program,
    ResponseFuture, Server, ServerConfig, Sink, Versions,
};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::{Decoder, Encoder};
use tokio::sync::oneshot;

/// A number from the range for users (RFC 5531 §8.3).
const PROGRAM: u32 = 0x2000_0000;
const READ: u32 = 1;
/// Bytes of data in a reply to READ.
const MIB: usize = 1 << 20;
const USAGE: &str = "usage: calls null|read 1|p1|p2|p3 COUNT";

/// The served program: its replies share their data.
struct Reads(Bytes);

impl Program for Reads {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        (procedure == READ).then_some(ProcedureInfo { name: "READ", effect: Effect::Idempotent })
    }

    fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
        let mut results = Encoder::new();
        let written = results.payload(self.0.clone(), MIB, true);
        Box::pin(std::future::ready(written.map(|()| results.finish()).map_err(Into::into)))
    }
}

impl Binding for Reads {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: 0, results: usize::from(procedure == READ) }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let reads = match arguments.next().as_deref() {
        Some("null") => false,
        Some("read") => true,
        _ => return Err(USAGE.into()),
    };
    let versions = match arguments.next().as_deref() {
        Some("1") => Versions::ONE,
        Some("p1") => Versions::two(Profile::P1),
        Some("p2") => Versions::two(Profile::P2),
        Some("p3") => Versions::two(Profile::P3),
        _ => return Err(USAGE.into()),
    };
    let count: u32 = arguments.next().ok_or(USAGE)?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(run(reads, versions, count))
}

async fn run(reads: bool, versions: Versions, count: u32) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let address = ([192, 0, 2, 1], 20_049).into();
    let mut config = ServerConfig::default();
    config.protocol.versions = versions;
    let program = Reads(vec![7; MIB].into());
    let server = Server::builder().config(config).program(Arc::new(program));
    let server = server.listen_rdma(Box::new(fabric.listen(address)?)).build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
    let host: IpAddr = [192, 0, 2, 2].into();
    let mut config = ClientConfig::default();
    config.protocol.versions = versions;
    config.protocol.program = Some((PROGRAM, 1));
    let client = Client::rdma(Arc::new(fabric.connector(host)), address, config).await?;
    for _ in 0..count {
        if reads {
            let call = Call::new(PROGRAM, 1, READ).results(4).sink(Sink::Pool(MIB));
            let mut results = client.call_raw(call).await?.results;
            if results.payload_slices(MIB)?.len() != MIB {
                return Err("a reply without its data".into());
            }
        } else {
            client.null(PROGRAM, 1).await?;
        }
    }
    let calls = client.connection_stats().map_or(0, |stats| stats.protocol.calls_sent.inline);
    println!("{calls} calls");
    client.close().await;
    drop(stop);
    serving.await??;
    Ok(())
}
