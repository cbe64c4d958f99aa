//! Programs declared by `program!`: clients and services with types, on the simulated fabric in virtual time and over TCP.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma::xdr::{Text, Xdr};
use rpcrdma::{
    Binding, Bounds, CallContext, CallFailure, Client, ClientConfig, Server, ServerConfig, ServerMonitor,
    Transport,
};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::net::TcpListener;

mod batches;
mod calls;
mod faults;
mod reverse;
mod room;

const MIB: usize = 1 << 20;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Xdr)]
pub struct Key(#[xdr(max = 16)] pub Text);

#[derive(Debug, Xdr)]
pub struct PutArguments {
    pub key: Key,
    #[xdr(ddp, max = MIB)]
    pub value: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub enum Status {
    Stored = 0,
    Full = 1,
}

#[derive(Debug, PartialEq, Xdr)]
pub enum GetResults {
    #[xdr(value = 0)]
    Found {
        #[xdr(ddp, max = MIB)]
        value: Bytes,
    },
    #[xdr(value = 1)]
    Missing,
}

/// Few numbers, as the type says.
#[derive(Debug, PartialEq, Xdr)]
pub struct Numbers(#[xdr(max = 4)] pub Vec<u32>);

#[derive(Debug, Xdr)]
pub struct Part {
    pub key: Key,
    pub length: u32,
}

/// Data that no chunk of its own carries.
#[derive(Debug, PartialEq, Xdr)]
pub struct Whole(#[xdr(max = 100 << 20)] pub Bytes);

/// A list that has no largest form.
#[derive(Debug, PartialEq, Xdr)]
pub struct Endless(#[xdr(list)] pub Vec<u32>);

rpcrdma::program! {
    /// A store of values.
    pub mod store {
        program 0x2000_0051, version 1;
        /// Stores a value.
        fn put = 1, Put(PutArguments) -> Status, State;
        /// Returns a value.
        fn get = 2, Get(Key) -> GetResults, Idempotent;
        /// Forgets all values, and returns their number.
        fn purge = 3, Purge() -> u32, State, integrity;
        /// Returns as many numbers as are asked for.
        fn count = 4, Count(u32) -> Numbers, Idempotent;
        /// Returns the beginning of a value: no more memory than that is offered.
        fn begin_of = 5, BeginOf(Part) -> GetResults, Idempotent,
            bounds = |part| Bounds::inline(8).item(part.length as usize);
        /// Returns the data.
        fn echo = 6, Echo(Whole) -> Whole, Idempotent, bounds = |data| Bounds::inline(4 + data.0.len());
        /// Returns as many numbers as are asked for, in a form without a bound.
        fn endless = 7, GetEndless(u32) -> Endless, Idempotent, within;
        /// Does nothing.
        fn nothing = 9, Nothing() -> (), Idempotent;
    }
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct Store(Mutex<BTreeMap<Key, Bytes>>);

impl store::Service for Store {
    async fn put(&self, _: &CallContext, arguments: PutArguments) -> Result<Status, CallFailure> {
        let mut values = self.0.lock().unwrap();
        if values.len() > 9 {
            return Ok(Status::Full);
        }
        values.insert(arguments.key, arguments.value);
        Ok(Status::Stored)
    }

    async fn get(&self, _: &CallContext, key: Key) -> Result<GetResults, CallFailure> {
        let value = self.0.lock().unwrap().get(&key).cloned();
        Ok(value.map_or(GetResults::Missing, |value| GetResults::Found { value }))
    }

    async fn purge(&self, context: &CallContext) -> Result<u32, CallFailure> {
        assert_eq!(context.procedure, 3);
        tokio::task::yield_now().await;
        let gone = std::mem::take(&mut *self.0.lock().unwrap());
        Ok(u32::try_from(gone.len()).unwrap())
    }

    async fn count(&self, _: &CallContext, count: u32) -> Result<Numbers, CallFailure> {
        Ok(Numbers((0..count).collect()))
    }

    async fn begin_of(&self, _: &CallContext, part: Part) -> Result<GetResults, CallFailure> {
        let mut value = self.0.lock().unwrap().get(&part.key).cloned();
        if let Some(value) = &mut value {
            value.truncate(part.length as usize);
        }
        Ok(value.map_or(GetResults::Missing, |value| GetResults::Found { value }))
    }

    async fn echo(&self, _: &CallContext, data: Whole) -> Result<Whole, CallFailure> {
        Ok(data)
    }

    async fn endless(&self, _: &CallContext, count: u32) -> Result<Endless, CallFailure> {
        Ok(Endless((0..count).collect()))
    }

    async fn nothing(&self, _: &CallContext) -> Result<(), CallFailure> {
        Ok(())
    }
}

fn key(name: &str) -> Key {
    Key(name.into())
}

/// The transports on which a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Sim,
    Tcp,
}

const BOTH: [On; 2] = [On::Sim, On::Tcp];

/// Serves a program, and connects a client to it.
async fn serve(on: On, program: Arc<dyn Binding>) -> (Client, ServerMonitor) {
    serve_with(on, program, ServerConfig::default(), ClientConfig::default()).await
}

async fn serve_with(
    on: On,
    program: Arc<dyn Binding>,
    server: ServerConfig,
    client: ClientConfig,
) -> (Client, ServerMonitor) {
    let builder = Server::builder().config(server).program(program);
    connect(on, builder, Client::builder().config(client)).await
}

async fn connect(
    on: On,
    server: rpcrdma::ServerBuilder,
    client: rpcrdma::ClientBuilder,
) -> (Client, ServerMonitor) {
    match on {
        On::Sim => {
            let fabric = Fabric::on_tokio(FabricConfig::default());
            let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
            let monitor = server.monitor();
            tokio::spawn(server.serve(pending()));
            tokio::task::yield_now().await;
            let client = client
                .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
                .connect(SERVER)
                .await
                .unwrap();
            (client, monitor)
        }
        On::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = listener.local_addr().unwrap();
            let server = server.listen_tcp(listener).build().unwrap();
            let monitor = server.monitor();
            tokio::spawn(server.serve(pending()));
            (client.transport(Transport::tcp()).connect(to).await.unwrap(), monitor)
        }
    }
}

/// Runs a test on each transport: on the simulated fabric in virtual time.
fn on_each<F: Future<Output = ()>>(test: impl Fn(On) -> F) {
    for on in BOTH {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(on == On::Sim)
            .build()
            .unwrap();
        runtime.block_on(test(on));
    }
}
