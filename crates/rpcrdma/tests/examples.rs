//! Tests of the example programs, on the simulated fabric.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;

use rpcrdma_sim::{Fabric, FabricConfig, SimConnector, SimListener};

#[allow(dead_code, reason = "the example's main runs it over iWARP")]
#[path = "../examples/blob.rs"]
mod blob;
#[allow(dead_code, reason = "the example's main runs it over iWARP")]
#[path = "../examples/callback.rs"]
mod callback;

fn fabric() -> (Box<SimListener>, Arc<SimConnector>) {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let host: IpAddr = [192, 0, 2, 2].into();
    (Box::new(fabric.listen(([192, 0, 2, 1], 0).into()).unwrap()), Arc::new(fabric.connector(host)))
}

#[tokio::test(start_paused = true)]
async fn blob_runs_on_the_simulated_fabric() {
    let (listener, connector) = fabric();
    blob::run(listener, connector).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn callback_runs_on_the_simulated_fabric() {
    let (listener, connector) = fabric();
    callback::run(listener, connector).await.unwrap();
}
