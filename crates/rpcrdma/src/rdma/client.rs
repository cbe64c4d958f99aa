use crate::{
    call::{Call, Reply},
    client::ClientStats,
    config::ClientConfig,
    error::CallError,
};
use rpcrdma_verbs::{ConnectError, Connector};
use std::net::SocketAddr;
use std::sync::Arc;
pub(crate) struct RdmaClient;
impl RdmaClient {
    pub(crate) async fn connect(
        _: Arc<dyn Connector>,
        _: SocketAddr,
        _: ClientConfig,
    ) -> Result<Self, ConnectError> {
        Ok(Self)
    }
    pub(crate) async fn call(&self, _: Call) -> Result<Reply, CallError> {
        Err(CallError::Closed { sent: false })
    }
    pub(crate) fn stats(&self) -> ClientStats {
        ClientStats::default()
    }
    pub(crate) async fn close(&self) {}
}
