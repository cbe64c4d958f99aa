//! The code around served calls: interceptors, limits on calls in progress, panics, and the ends of servers and handlers.

mod dropped;
mod handle;
mod intercept;
mod observed;
mod panics;
mod shed;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Credential, Effect, ProcedureInfo, Program,
    ResponseFuture, Server, ServerBuilder, ServerHandle, Transport,
};
use rpcrdma_oncrpc::Refused;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::{Decoder, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::raw::words;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);

const PROGRAM: u32 = 0x2000_00f5;
/// Returns its argument. The call lasts while the program holds its answers.
const LOOK: u32 = 1;
/// As LOOK, but a change: it must not be executed twice for one call.
const CHANGE: u32 = 2;
/// A change that panics at once.
const BREAK: u32 = 3;
/// A change that panics when the program lets its answers go.
const BREAK_LATER: u32 = 4;
/// The program panics when it is asked about this procedure.
const UNKNOWN: u32 = 5;
const NAMES: [&str; 5] = ["NULL", "LOOK", "CHANGE", "BREAK", "BREAK_LATER"];

/// A program whose calls last as long as a test wants.
#[derive(Default)]
struct Work {
    /// Calls that began, and those that were dropped half-way.
    begun: AtomicU32,
    dropped: AtomicU32,
    /// While it is true, calls wait.
    held: watch::Sender<bool>,
    /// Argument and caller of each call.
    seen: Mutex<Vec<(u32, Credential)>>,
}

impl Work {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn hold(&self) {
        self.held.send_replace(true);
    }

    fn let_go(&self) {
        self.held.send_replace(false);
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Waits until so many calls have begun.
    async fn wait_begun(&self, calls: u32) {
        while self.begun() < calls {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The program, as a server has it.
struct Served(Arc<Work>);

/// Counts a call whose future is dropped before its end.
struct Unfinished(Arc<Work>, bool);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Program for Served {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        assert_ne!(procedure, UNKNOWN, "asked about it");
        let name = NAMES.get(usize::try_from(procedure).unwrap())?;
        let effect = if procedure == LOOK { Effect::Idempotent } else { Effect::State };
        Some(ProcedureInfo { name, effect })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let work = Arc::clone(&self.0);
        let argument: Result<u32, CallFailure> = arguments.decode_all().map_err(Into::into);
        work.seen.lock().unwrap().push((argument.clone().unwrap_or(0), context.credential));
        work.begun.fetch_add(1, Ordering::SeqCst);
        assert_ne!(context.procedure, BREAK, "at once");
        let mut held = work.held.subscribe();
        Box::pin(async move {
            let mut unfinished = Unfinished(work, true);
            held.wait_for(|held| !held).await.unwrap();
            unfinished.1 = false;
            assert_ne!(context.procedure, BREAK_LATER, "later");
            Ok(encode(&argument?)?)
        })
    }
}

impl Binding for Served {}

/// Makes a call of the program.
async fn call(client: &Client, procedure: u32, argument: u32) -> Result<u32, CallError> {
    let call = Call::new(PROGRAM, 1, procedure).arguments(encode(&argument).unwrap()).results(4);
    Ok(client.call_raw(call).await?.results.u32()?)
}

fn is_system_error(result: Result<u32, CallError>) -> bool {
    matches!(result, Err(CallError::Refused(Refused::SystemError)))
}

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn builder(work: &Arc<Work>) -> ServerBuilder {
    Server::builder().program(Arc::new(Served(Arc::clone(work))))
}

/// A server on the simulated fabric.
struct Simulated {
    fabric: Fabric,
    work: Arc<Work>,
    server: ServerHandle,
}

impl Simulated {
    /// Starts the server that `make` has built around the program.
    async fn new(make: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let fabric = Fabric::on_tokio(FabricConfig { seed: 1, ..FabricConfig::default() });
        let work = Work::new();
        let listener = Box::new(fabric.listen(SERVER).unwrap());
        let server = make(builder(&work)).listen_rdma(listener).build().unwrap().spawn();
        // The server's task must begin to listen first.
        tokio::task::yield_now().await;
        Self { fabric, work, server }
    }

    /// Connects a client from this host. Its further calls need not wait for each other's replies (rule I4).
    async fn client(&self, last: u8) -> Client {
        let connector = Arc::new(self.fabric.connector(host(last)));
        let client =
            Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
        client.null(PROGRAM, 1).await.unwrap();
        client
    }

    /// Makes a call in a task; returns when it has begun.
    async fn begin(&self, client: &Client, procedure: u32) -> JoinHandle<Result<u32, CallError>> {
        let before = self.work.begun();
        let client = client.clone();
        let task = tokio::spawn(async move { call(&client, procedure, 7).await });
        self.work.wait_begun(before + 1).await;
        task
    }
}

/// A server on a TCP socket.
struct OnTcp {
    address: SocketAddr,
    work: Arc<Work>,
    server: ServerHandle,
}

impl OnTcp {
    async fn new(make: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let work = Work::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = make(builder(&work)).listen_tcp(listener).build().unwrap().spawn();
        let address = server.tcp_addresses().unwrap()[0];
        Self { address, work, server }
    }

    async fn raw(&self) -> Raw {
        Raw(TcpStream::connect(self.address).await.unwrap())
    }

    /// Waits until a repeat waits for its call.
    async fn wait_repeat(&self) {
        while self.server.monitor().stats().reply_cache.waited == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A TCP connection on which a test chooses the XIDs.
struct Raw(TcpStream);

/// `accept_stat` of RFC 5531 §9.
const SYSTEM_ERR: u32 = 5;

impl Raw {
    /// Sends a call of the program; its argument is its XID.
    async fn send(&mut self, xid: u32, procedure: u32) {
        let call = words(&[0x8000_0000 | 44, xid, 0, 2, PROGRAM, 1, procedure, 0, 0, 0, 0, xid]);
        self.0.write_all(&call).await.unwrap();
    }

    /// Returns the result of the next reply, or its `accept_stat`; `None` if the connection ends.
    async fn reply(&mut self) -> Option<Result<u32, u32>> {
        // Record mark, XID, REPLY, MSG_ACCEPTED, two words of the verifier, and accept_stat.
        let mut head = [0; 28];
        self.0.read_exact(&mut head).await.ok()?;
        let stat = u32::from_be_bytes(*head.last_chunk().unwrap());
        if stat != 0 {
            return Some(Err(stat));
        }
        Some(Ok(self.0.read_u32().await.unwrap()))
    }

    /// Makes a call and waits for the reply.
    async fn call(&mut self, xid: u32, procedure: u32) -> Option<Result<u32, u32>> {
        self.send(xid, procedure).await;
        self.reply().await
    }
}
