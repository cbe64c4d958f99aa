//! The example program, on the simulated fabric.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;

use rpcrdma_sim::{Fabric, FabricConfig};

#[allow(dead_code, reason = "the example's main runs it over iWARP")]
#[path = "../examples/blob.rs"]
mod blob;

#[tokio::test(start_paused = true)]
async fn the_example_runs_on_the_simulated_fabric() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let host: IpAddr = [192, 0, 2, 2].into();
    let listener = fabric.listen(([192, 0, 2, 1], 0).into()).unwrap();
    blob::run(Box::new(listener), Arc::new(fabric.connector(host))).await.unwrap();
}
