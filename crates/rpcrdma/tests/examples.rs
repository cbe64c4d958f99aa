//! Tests of the example programs, which check their own results: on loopback over software iWARP and TCP, and on the
//! simulated fabric.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;

use rpcrdma_sim::{Fabric, FabricConfig};

#[allow(dead_code, unreachable_pub, reason = "the example is a program of its own")]
#[path = "../examples/blob.rs"]
mod blob;
#[allow(dead_code, unreachable_pub, reason = "the example is a program of its own")]
#[path = "../examples/callback.rs"]
mod callback;

#[tokio::test]
async fn blob_runs_over_iwarp_and_tcp() {
    blob::demonstrate("rdma").await.unwrap();
    blob::demonstrate("tcp").await.unwrap();
    assert!(blob::demonstrate("carrier pigeons").await.unwrap_err().to_string().starts_with("usage:"));
}

#[tokio::test]
async fn callback_runs_over_iwarp_and_shows_what_tcp_lacks() {
    callback::demonstrate("rdma").await.unwrap();
    callback::demonstrate("tcp").await.unwrap();
    assert!(callback::demonstrate("carrier pigeons").await.unwrap_err().to_string().starts_with("usage:"));
}

#[tokio::test(start_paused = true)]
async fn callback_runs_on_the_simulated_fabric() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let host: IpAddr = [192, 0, 2, 2].into();
    let listener = fabric.listen(([192, 0, 2, 1], 0).into()).unwrap();
    callback::over_rdma(Box::new(listener), Arc::new(fabric.connector(host))).await.unwrap();
}
