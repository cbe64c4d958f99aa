//! Makes calls one after the other on the simulated fabric, client and server in one thread. The run does nothing but the
//! work of a call, for tools that count instructions (`cargo xtask measures`).
//! `cargo run --release -p rpcrdma --example calls -- WORK 1|p1|p2|p3 COUNT`
//!
//! | WORK | the calls |
//! | --- | --- |
//! | `null` | NULL calls |
//! | `read` | calls whose replies have 1 MiB of data, as READ of NFS |
//! | `void`, `typed-void` | calls of a procedure that does nothing, by hand and with types |
//! | `echo`, `typed-echo` | calls that return the 1 MiB that they bring, by hand and with types |
//! | `typed-null` | NULL calls, with types |

use std::error::Error;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::experimental::Profile;
use rpcrdma::{
    Binding, Call, CallContext, CallFailure, Client, ClientConfig, Effect, Eligibility, Procedure,
    ProcedureInfo, Program, ResponseFuture, Server, ServerConfig, Sink, Transport, Versions,
};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::{Decoder, Encoder, Stream, Xdr, encode};
use tokio::sync::oneshot;

/// A number from the range for users (RFC 5531 §8.3).
const PROGRAM: u32 = 0x2000_0000;
const READ: u32 = 1;
const VOID: u32 = 2;
const ECHO: u32 = 3;
/// Bytes of data in a reply to READ, and in both messages of an echo.
const MIB: usize = 1 << 20;
const USAGE: &str = "usage: calls null|read|void|echo|typed-null|typed-void|typed-echo 1|p1|p2|p3 COUNT";

/// Data that travels in a chunk.
#[derive(Clone, Debug, PartialEq, Xdr)]
pub struct Data(#[xdr(ddp, max = MIB)] Bytes);

/// The program by hand: its replies to READ share their data.
struct ByHand(Bytes);

impl Program for ByHand {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = match procedure {
            READ => "READ",
            VOID => "VOID",
            ECHO => "ECHO",
            _ => return None,
        };
        Some(ProcedureInfo { name, effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match context.procedure {
            READ => {
                let mut results = Encoder::new();
                let written = results.payload(self.0.clone(), MIB, true);
                Box::pin(std::future::ready(written.map(|()| results.finish()).map_err(Into::into)))
            }
            VOID => Box::pin(async move {
                arguments.finish()?;
                Ok(Stream::new())
            }),
            _ => Box::pin(async move { Ok(encode(&arguments.decode_all::<Data>()?)?) }),
        }
    }
}

impl Binding for ByHand {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility {
            arguments: usize::from(procedure == ECHO),
            results: usize::from(matches!(procedure, READ | ECHO)),
        }
    }
}

rpcrdma::program! {
    /// The work of the program by hand, with types.
    pub mod with_types {
        program 0x2000_0001, version 1;
        /// Does nothing.
        fn void = 2, Void() -> (), Idempotent;
        /// Returns the data.
        fn echo = 3, Echo(Data) -> Data, Idempotent;
    }
}

struct WithTypes;

impl with_types::Service for WithTypes {
    async fn void(&self, _: &CallContext) -> Result<(), CallFailure> {
        Ok(())
    }

    async fn echo(&self, _: &CallContext, data: Data) -> Result<Data, CallFailure> {
        Ok(data)
    }
}

/// NULL, which no program declares.
struct Null;

impl Procedure for Null {
    type Arguments = ();
    type Results = ();
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 0;
    const NAME: &'static str = "NULL";
    const EFFECT: Effect = Effect::Idempotent;
}

/// The work of the calls.
#[derive(Clone, Copy)]
enum Work {
    Null,
    Read,
    Void,
    Echo,
    TypedNull,
    TypedVoid,
    TypedEcho,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let work = match arguments.next().as_deref() {
        Some("null") => Work::Null,
        Some("read") => Work::Read,
        Some("void") => Work::Void,
        Some("echo") => Work::Echo,
        Some("typed-null") => Work::TypedNull,
        Some("typed-void") => Work::TypedVoid,
        Some("typed-echo") => Work::TypedEcho,
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
    runtime.block_on(run(work, versions, count))
}

async fn run(work: Work, versions: Versions, count: u32) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let address = ([192, 0, 2, 1], 20_049).into();
    let mut config = ServerConfig::default();
    config.protocol.versions = versions;
    let data = Bytes::from(vec![7; MIB]);
    let server = Server::builder().config(config).program(Arc::new(ByHand(data.clone())));
    let server = server.program(Arc::new(with_types::serve(WithTypes)));
    let server = server.listen_rdma(Box::new(fabric.listen(address)?)).build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
    let host: IpAddr = [192, 0, 2, 2].into();
    let mut config = ClientConfig::default();
    config.protocol.versions = versions;
    config.protocol.program = Some((PROGRAM, 1));
    let client = Client::builder()
        .config(config)
        .transport(Transport::rdma_on(Arc::new(fabric.connector(host))))
        .connect(address)
        .await?;
    let data = Data(data);
    for _ in 0..count {
        match work {
            Work::Null => drop(client.null(PROGRAM, 1).await?),
            Work::Read => read(&client).await?,
            Work::Void => {
                client.call_raw(Call::new(PROGRAM, 1, VOID).name("VOID")).await?.results.finish()?;
            }
            Work::Echo => check(&echo(&client, &data).await?, &data)?,
            Work::TypedNull => client.call::<Null>(()).await?,
            Work::TypedVoid => client.call::<with_types::Void>(()).await?,
            Work::TypedEcho => check(&client.call::<with_types::Echo>(&data).await?, &data)?,
        }
    }
    let calls = client
        .rdma()
        .and_then(|rdma| rdma.connection_stats())
        .map_or(0, |stats| stats.protocol.calls_sent.inline);
    println!("{calls} calls");
    client.close().await;
    drop(stop);
    serving.await??;
    Ok(())
}

async fn read(client: &Client) -> Result<(), Box<dyn Error>> {
    let call = Call::new(PROGRAM, 1, READ).results(4).sink(Sink::Pool(MIB));
    let mut results = client.call_raw(call).await?.results;
    if results.payload_slices(MIB)?.len() != MIB {
        return Err("a reply without its data".into());
    }
    Ok(())
}

async fn echo(client: &Client, data: &Data) -> Result<Data, Box<dyn Error>> {
    let call = Call::new(PROGRAM, 1, ECHO).name("ECHO").arguments(encode(data)?);
    Ok(client.call_raw(call.results(4).sink(Sink::Pool(MIB))).await?.results.decode_all()?)
}

fn check(back: &Data, data: &Data) -> Result<(), &'static str> {
    if back.0.len() == data.0.len() { Ok(()) } else { Err("an echo without its data") }
}
