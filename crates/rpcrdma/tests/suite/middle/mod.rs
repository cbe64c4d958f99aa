//! Calls through a handle: defaults, deadlines, repetitions, interceptors, keys, health, spans. The
//! clock is virtual on the simulated fabric, so that times are exact; over TCP it is real.

mod deadline;
mod health;
mod intercept;
mod keys;
mod retry;
mod spans;
mod tcp;
mod typed;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma::{
    Binding, Call, CallContext, CallFailure, Client, ClientConfig, Credential, Effect, Eligibility, Handle,
    ProcedureInfo, Program, ResponseFuture, Server, ServerConfig, ServerMonitor, Transport,
};
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::{Decoder, Encoder, encode};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const PROGRAM: u32 = 0x2000_00f2;
/// Returns its argument; may be repeated.
const READ: u32 = 1;
/// Returns its argument; must not be repeated.
const CHANGE: u32 = 2;
/// Returns an eligible opaque of [`DATA`] bytes; may be repeated.
const FETCH: u32 = 3;
const DATA: usize = 40_000;

/// An answer of the program to one call.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Results,
    SystemError,
    Unavailable,
    /// None in the time of any test.
    Never,
    After(Duration),
}

/// A call as the program got it.
#[derive(Debug, Clone)]
struct Heard {
    at: Instant,
    xid: u32,
    peer: Option<SocketAddr>,
    credential: Credential,
}

/// A program whose answers the test sets.
#[derive(Default)]
struct Scripted {
    /// Answers to the next calls; then all get results.
    answers: Mutex<VecDeque<Answer>>,
    heard: Mutex<Vec<Heard>>,
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), heard: Mutex::default() })
    }

    /// Returns the calls so far.
    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Returns the times between the calls so far, in milliseconds.
    fn between(&self) -> Vec<u128> {
        self.heard().windows(2).map(|calls| (calls[1].at - calls[0].at).as_millis()).collect()
    }
}

impl Program for Scripted {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "READ", "CHANGE", "FETCH"].get(usize::try_from(procedure).unwrap())?;
        Some(ProcedureInfo {
            name,
            effect: if procedure == CHANGE { Effect::State } else { Effect::Idempotent },
        })
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        matches!(flavor, flavor::AUTH_NONE | flavor::AUTH_SYS | flavor::RPCSEC_GSS)
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let CallContext { xid, peer, credential, procedure, .. } = context;
        self.heard.lock().unwrap().push(Heard { at: Instant::now(), xid, peer, credential });
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Results);
        Box::pin(async move {
            match answer {
                Answer::Results => {}
                Answer::SystemError => return Err(CallFailure::SystemError),
                Answer::Unavailable => return Err(CallFailure::ProcedureUnavailable),
                Answer::Never => std::future::pending().await,
                Answer::After(wait) => sleep(wait).await,
            }
            if procedure == FETCH {
                let mut results = Encoder::new();
                results.payload(vec![7; DATA].into(), DATA, true)?;
                return Ok(results.finish());
            }
            Ok(encode(&arguments.decode_all::<u32>()?)?)
        })
    }
}

impl Binding for Scripted {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: 0, results: usize::from(procedure == FETCH) }
    }
}

/// Returns a call that may be repeated.
fn read(number: u32) -> Call {
    Call::new(PROGRAM, 1, READ)
        .name("READ")
        .effect(Effect::Idempotent)
        .arguments(encode(&number).unwrap())
        .results(4)
}

/// Returns a call that must not be repeated.
fn change(number: u32) -> Call {
    Call::new(PROGRAM, 1, CHANGE).name("CHANGE").arguments(encode(&number).unwrap()).results(4)
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A server on the fabric, and its client.
struct World {
    fabric: Fabric,
    program: Arc<Scripted>,
    client: Client,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn serve(fabric: &Fabric, program: &Arc<Scripted>) -> (ServerMonitor, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = Box::new(fabric.listen(SERVER).unwrap());
    let program: Arc<Scripted> = Arc::clone(program);
    let config = ServerConfig::default();
    let server = Server::builder().config(config).program(program).listen_rdma(listener).build().unwrap();
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    (monitor, stop, task)
}

impl World {
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(FabricConfig::default(), ClientConfig::default(), answers).await
    }

    async fn with(
        fabric: FabricConfig,
        config: ClientConfig,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Self {
        let (fabric, program) = (Fabric::on_tokio(fabric), Scripted::new(answers));
        let (monitor, stop, task) = serve(&fabric, &program);
        // The server's task must begin to listen first.
        tokio::task::yield_now().await;
        let client = Client::builder()
            .config(config)
            .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
            .connect(SERVER)
            .await
            .unwrap();
        Self { fabric, program, client, monitor, stop, task }
    }

    /// Makes a call that brings the client its credits; before, one call at a time may leave.
    async fn bring_credits(&self) {
        self.client.null(PROGRAM, 1).await.unwrap();
    }

    fn handle(&self) -> Handle {
        self.client.handle()
    }

    /// Stops the server; its address is free again.
    async fn stop_server(&mut self) {
        let (stop, _) = oneshot::channel();
        std::mem::replace(&mut self.stop, stop).send(()).unwrap();
        // Calls in progress that are never answered delay the end.
        timeout(Duration::from_secs(120), &mut self.task).await.unwrap().unwrap();
    }

    fn start_server(&mut self) {
        (self.monitor, self.stop, self.task) = serve(&self.fabric, &self.program);
    }
}
