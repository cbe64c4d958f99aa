//! A key-value store: a service and a client from `kv.x`, over software iWARP and TCP.
//!
//! The program `kv` serves and calls. `docs/guide.md` explains each part. The store holds at most [`KV_KEYS_MAX`] values,
//! so 1 GiB.
//!
//! *Buffers.* A value is copied when it is stored, because it comes in memory of the server's pool. That memory goes back
//! when the call ends. A value that is fetched leaves from the store's own memory.
//!
//! *Errors.* A full store and an absent key are results of the program ([`KvStatus`]).

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use rpcrdma::iwarp::{Config, IwarpListener};
use rpcrdma::{CallContext, CallFailure, Server, ServerHandle};
use tokio::{net::TcpListener, sync::Mutex};

include!(concat!(env!("OUT_DIR"), "/kv.rs"));

/// Any error.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Values by key.
#[derive(Debug, Default)]
pub struct Store(Mutex<BTreeMap<String, Bytes>>);

impl kv_store::Service for Store {
    async fn put(&self, _: &CallContext, KvEntry { name, value }: KvEntry) -> Result<KvStatus, CallFailure> {
        let mut values = self.0.lock().await;
        if values.len() >= KV_KEYS_MAX as usize && !values.contains_key(&name) {
            return Ok(KvStatus::Full);
        }
        values.insert(name, Bytes::copy_from_slice(&value));
        Ok(KvStatus::Ok)
    }

    async fn get(&self, _: &CallContext, key: KvKey) -> Result<KvFound, CallFailure> {
        let value = self.0.lock().await.get(&key.name).cloned();
        Ok(value.map_or(KvFound::Default(KvStatus::Absent), KvFound::Ok))
    }

    async fn remove(&self, _: &CallContext, key: KvKey) -> Result<KvStatus, CallFailure> {
        Ok(self.0.lock().await.remove(&key.name).map_or(KvStatus::Absent, |_| KvStatus::Ok))
    }

    async fn list(&self, _: &CallContext) -> Result<KvNames, CallFailure> {
        Ok(KvNames { keys: self.0.lock().await.keys().map(|name| KvKey { name: name.clone() }).collect() })
    }
}

/// Serves a new store over software iWARP and over TCP, each on its address, until the handle is dropped.
///
/// # Errors
/// An address that cannot be bound.
pub async fn serve(rdma: SocketAddr, tcp: SocketAddr) -> Result<ServerHandle, AnyError> {
    let server = Server::builder().program(Arc::new(kv_store::serve(Store::default())));
    let server = server.listen_rdma(Box::new(IwarpListener::bind(rdma, Config::default()).await?));
    Ok(server.listen_tcp(TcpListener::bind(tcp).await?).build()?.spawn())
}
