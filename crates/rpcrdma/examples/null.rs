//! Makes NULL calls one after the other on the simulated fabric, client and server in one thread. The run does nothing
//! but the work of a call, for tools that count instructions (`cargo xtask measures`). `cargo run --release -p rpcrdma
//! --example null -- 1|p1|p2|p3 COUNT`

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use rpcrdma::{Client, ClientConfig, Profile, Server, ServerConfig, Versions};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::sync::oneshot;

/// No server has this program: the reply PROG_UNAVAIL serves as well as any other.
const PROGRAM: u32 = 0x2000_0000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let versions = match arguments.next().as_deref() {
        Some("1") => Versions::ONE,
        Some("p1") => Versions::two(Profile::P1),
        Some("p2") => Versions::two(Profile::P2),
        Some("p3") => Versions::two(Profile::P3),
        _ => return Err("usage: null 1|p1|p2|p3 COUNT".into()),
    };
    let count: u32 = arguments.next().ok_or("usage: null 1|p1|p2|p3 COUNT")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(run(versions, count))
}

async fn run(versions: Versions, count: u32) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let address = ([192, 0, 2, 1], 20_049).into();
    let mut config = ServerConfig::default();
    config.protocol.versions = versions;
    let server = Server::builder().config(config).listen_rdma(Box::new(fabric.listen(address)?)).build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
    let host: IpAddr = [192, 0, 2, 2].into();
    let mut config = ClientConfig::default();
    config.protocol.versions = versions;
    config.protocol.program = Some((PROGRAM, 1));
    let client = Client::rdma(Arc::new(fabric.connector(host)), address, config).await?;
    for _ in 0..count {
        // The refusal is the reply.
        drop(client.null(PROGRAM, 1).await);
    }
    let calls = client.connection_stats().map_or(0, |stats| stats.protocol.calls_sent.inline);
    println!("{calls} calls");
    client.close().await;
    drop(stop);
    serving.await??;
    Ok(())
}
