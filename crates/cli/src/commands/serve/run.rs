//! The life of a server: it listens, serves, and stops for a signal or for the server that follows it.
//!
//! The server stops by the same steps, whatever the reason: listeners close, with the control socket and the metrics; calls in
//! progress are answered, connections close, and data is flushed. So another server can have all names at once.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{ServeError, Server};
use rpcrdma_nfs::server::NfsServer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::announced::{Announced, services, take_back_within};
use super::directories::Shared;
use super::listen::Listeners;
use super::observe::give::{Given, Giving, Successor};
use super::observe::handover::TARGET as HANDOVER;
use super::observe::take::{Predecessor, Taken};
use super::observe::{Listening, Served};
use super::passed::{Passed, Role};
use super::ready::Ready;
use super::status::Sources;
use super::systemd::Manager;
use super::{Prepared, Serve, reload};
use crate::arguments::Common;
use crate::exit::Failure;
use crate::output;
use crate::signals::{Hangups, StopSignals};

/// Target of the line that tells why a server stops.
const STOP: &str = "rpcrdma::stop";

/// Time for directories that the server before this one had to be free, after its end.
const FREED: Duration = Duration::from_secs(10);
/// Time for the server before this one to give up the control socket, which it does when its listeners are closed.
const GIVES_UP: Duration = Duration::from_secs(2);
/// Time for a server to end that has given up the control socket: it may have data to flush.
const ENDS: Duration = Duration::from_secs(600);
/// Time for rpcbind to forget this server before its successor is told, or before it ends by an error.
const FORGETS: Duration = Duration::from_secs(2);

/// A server that serves.
struct Running {
    server: Server,
    nfs: NfsServer,
    observed: Served,
    /// The registrations, once rpcbind has them.
    announced: JoinHandle<Announced>,
    giving: Giving,
    successors: mpsc::Receiver<Successor>,
    manager: Arc<Manager>,
    /// Tasks beside the calls, of which the first one reads files again.
    beside: Vec<JoinHandle<()>>,
}

impl Prepared {
    pub(crate) async fn run(self, common: Common) -> Result<(), Failure> {
        let mut signals = StopSignals::without_hangups()?;
        let hangups = Hangups::listen()?;
        // It may have to wait for the end of another handover.
        let before = tokio::select! {
            before = Before::find(&self.state, self.shared.as_ref()) => before?,
            signal = signals.next() => return Err(Failure::interrupted(signal)),
        };
        self.start(before, hangups, common).await?.serve(signals).await
    }

    async fn start(self, mut before: Before, hangups: Hangups, common: Common) -> Result<Running, Failure> {
        let Self {
            serve,
            options,
            config,
            shares,
            nfs,
            state,
            contexts,
            reloader,
            manager,
            mut passed,
            shared,
            missing,
        } = self;
        let manager = Arc::new(manager);
        let mut builder = Server::builder().config(config).shares(shares);
        if let Some(contexts) = contexts {
            builder = builder.gss(contexts);
        }
        passed.add_others(std::mem::take(&mut before.sockets));
        let metrics = serve.observe.listen(&mut passed).await?;
        let mut open = serve.listeners_of(&options, &mut passed, &before.adapters).await?;
        let mut given = std::mem::take(&mut open.given);
        if let Some(listener) = &metrics {
            let socket = Given::of(Role::Metrics, listener);
            given.push(socket.map_err(|error| Failure::failed(format!("cannot listen: {error}")))?);
        }
        before.check(&open, &state, &missing)?;
        let mut observed = Listening::new(metrics)
            .map_err(|error| Failure::failed(format!("no address of the metrics: {error}")))?;
        tell_left(passed);
        // From here on the other server may be gone, so nothing but the lack of all listeners may end this one. Only the end of
        // the other server's listeners tells whether those of adapters can be opened.
        if open.are_late() {
            before.go().await;
            serve.open_late(&mut open).await;
        }
        let (server, mut ready) = serve.build(builder, &nfs, &options, open)?;
        let succeeds = before.exists();
        before.go().await;
        observed.control_at(&state, if succeeds { GIVES_UP } else { Duration::ZERO }).await;
        ready.observed(observed.metrics(), observed.control());
        let sources = Sources::new(server.monitor(), nfs.clone(), ready.listeners());
        let (alone, is_alone) = watch::channel(false);
        let (giving, successors) = Giving::new(given, ready.adapters().collect(), is_alone);
        let observed = observed.serve(&sources, &giving);
        let mut beside = Vec::new();
        let announced = announce(&serve, &ready, succeeds).await?;
        let told = if common.json { output::json(&ready.document()) } else { output::line(ready.line()) };
        if succeeds && let Err(failure) = told {
            tracing::warn!(%failure, "nobody can be told that the server is ready");
        } else if let Err(failure) = told {
            // rpcbind would send clients to ports that nobody serves.
            take_back_within(FORGETS, announced).await;
            return Err(failure);
        }
        manager.ready(&format!("serving {}", reload::count(options.len())));
        let files = serve.files.paths().map(|(_, path)| path).collect();
        beside.push(tokio::spawn(reload::on_hangup(reloader, hangups, Arc::clone(&manager), files)));
        beside.extend(manager.keep_alive());
        beside.push(tokio::spawn(before.end(shared, alone)));
        Ok(Running { server, nfs, observed, announced, giving, successors, manager, beside })
    }
}

/// Registers the services with rpcbind if that is wanted. A server that has followed another one serves meanwhile.
///
/// # Errors
/// rpcbind refuses; a server that has followed another one goes on all the same.
async fn announce(serve: &Serve, ready: &Ready, succeeds: bool) -> Result<JoinHandle<Announced>, Failure> {
    if !serve.rpcbind {
        return Ok(tokio::spawn(std::future::ready(Announced::default())));
    }
    let make = Announced::make(services(&ready.rdma_addresses(), ready.tcp));
    if !succeeds {
        return Ok(tokio::spawn(std::future::ready(make.await?)));
    }
    Ok(tokio::spawn(async move {
        make.await.unwrap_or_else(|failure| {
            output::warn(failure);
            Announced::default()
        })
    }))
}

/// Tells which sockets that were passed are not served.
fn tell_left(passed: Passed) {
    for (role, address) in passed.left() {
        output::note(format_args!("handover: no option names {} {address}, which is closed", role.name()));
    }
}

/// The server before this one, if there is one to be followed.
#[derive(Default)]
struct Before {
    predecessor: Option<Predecessor>,
    sockets: Vec<super::passed::Socket>,
    /// Its addresses for software iWARP.
    addresses: Vec<SocketAddr>,
    /// Its addresses of adapters.
    adapters: Vec<SocketAddr>,
    has_gone: bool,
}

impl Before {
    /// Finds the server and takes its sockets, if directories may be shared with it.
    ///
    /// # Errors
    /// It does not hand over, or it has no control socket and shares directories all the same.
    async fn find(state: &Path, shared: Option<&Shared>) -> Result<Self, Failure> {
        let Some(shared) = shared else { return Ok(Self::default()) };
        if let Some(mut predecessor) = Predecessor::connect(state).await?
            && let Some(Taken { sockets, adapters }) = predecessor.take().await?
        {
            let rdma = sockets.iter().filter(|socket| socket.role == Role::Rdma);
            let addresses = rdma.map(|socket| socket.address).collect();
            return Ok(Self {
                predecessor: Some(predecessor),
                sockets,
                addresses,
                adapters,
                has_gone: false,
            });
        }
        let state = state.display();
        if shared.take_over(FORGETS).await {
            output::note(format_args!("handover: no server runs in {state}, so this one starts"));
            return Ok(Self::default());
        }
        output::note(format_args!("handover: waiting for the end of the server that uses {state}"));
        if shared.take_over(ENDS).await {
            return Ok(Self::default());
        }
        Err(Failure::failed(format!(
            "cannot serve: another server uses {state} and has no control socket there: stop it, then start this one"
        )))
    }

    /// Returns whether there is such a server.
    const fn exists(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Checks that this server can take the place of that one: it has an address of it, and knows as many clients.
    ///
    /// # Errors
    /// It has no address of it, so that server may export something else. Host names of clients have no address now, which that
    /// server may know.
    fn check(&self, open: &Listeners, state: &Path, missing: &[String]) -> Result<(), Failure> {
        if !self.exists() {
            return Ok(());
        }
        if !missing.is_empty() {
            return Err(Failure::failed(format!(
                "the list of exports has host names without an address now ({}), whose clients the server that runs may know: \
                 try again when they have one, or stop that server",
                missing.join(", ")
            )));
        }
        let mut addresses = self.addresses.iter();
        if open.are_late() || addresses.any(|address| open.has(*address)) {
            return Ok(());
        }
        let addresses = self.addresses.iter().chain(&self.adapters).map(ToString::to_string);
        let has = addresses.collect::<Vec<_>>().join(", ");
        Err(Failure::failed(format!(
            "no option names an address of the server that runs in {} ({has}), so this one does not take its place: give \
             such a --listen, or another --state",
            state.display()
        )))
    }

    /// Lets the server stop, unless that was done.
    async fn go(&mut self) {
        if let Some(predecessor) = self.predecessor.as_mut().filter(|_| !self.has_gone) {
            predecessor.go().await;
            self.has_gone = true;
        }
    }

    /// Waits for its end, takes the directories over, and lets this server hand over itself from then on.
    async fn end(self, shared: Option<Shared>, alone: watch::Sender<bool>) {
        if let Some(predecessor) = self.predecessor {
            predecessor.ended().await;
            tracing::info!(target: HANDOVER, "the process before this one has ended");
            if let Some(shared) = shared {
                while !shared.take_over(FREED).await {
                    tracing::warn!("handover: another server still uses the state directory");
                }
            }
        }
        // An error means that this server stops.
        let _ = alone.send(true);
    }
}

impl Running {
    /// Serves until a signal or a successor ends that.
    async fn serve(self, mut signals: StopSignals) -> Result<(), Failure> {
        let Self { server, nfs, mut observed, announced, giving, mut successors, manager, beside } = self;
        let (stop, stopped) = oneshot::channel::<()>();
        let (closed, all_closed) = oneshot::channel::<()>();
        let shutdown = async {
            // A dropped sender stops the server as well.
            let _ = stopped.await;
        };
        let serving = server.serve_telling(shutdown, move || {
            giving.close();
            let _ = closed.send(());
        });
        tokio::pin!(serving);
        let (early, mut successor) = tokio::select! {
            result = &mut serving => (Some(result), None),
            signal = signals.next() => {
                tracing::info!(target: STOP, signal, "stopping by {signal}: calls in progress are answered");
                (None, None)
            }
            Some(successor) = successors.recv() => {
                tracing::info!(target: HANDOVER, "handed over to another process: calls in progress are answered");
                (None, Some(successor))
            }
        };
        // A server that is ready too late learns by the end of its session that this one stops.
        drop(successors);
        let result = match early {
            Some(result) => {
                take_back_within(FORGETS, announced).await;
                result
            }
            None => {
                manager.stopping();
                beside.iter().take(1).for_each(JoinHandle::abort);
                drop(stop);
                let gives_up = give_up(successor.as_mut(), all_closed, &mut observed, announced);
                // At the same time: an rpcbind that does not answer delays neither the calls in progress nor
                // a signal.
                tokio::select! {
                    ((), result) = async { tokio::join!(gives_up, &mut serving) } => result,
                    signal = signals.next() => return Err(Failure::interrupted(signal)),
                }
            }
        };
        observed.end().await;
        let flushed = finish(result, &nfs, &mut signals).await;
        // The successor takes that for the end of this server.
        drop(successor);
        flushed
    }
}

/// Gives up all that has a name, which another server needs, and tells that to the successor.
async fn give_up(
    successor: Option<&mut Successor>,
    all_closed: oneshot::Receiver<()>,
    observed: &mut Served,
    announced: JoinHandle<Announced>,
) {
    // An error means that the server has ended.
    let _ = all_closed.await;
    observed.end().await;
    let Some(successor) = successor else { return announced.await.unwrap_or_default().take_back().await };
    take_back_within(FORGETS, announced).await;
    if let Err(error) = successor.tell().await {
        tracing::warn!(%error, "the server that follows has ended");
    }
}

/// Flushes data, and tells how the server ended.
async fn finish(
    result: Result<(), ServeError>,
    nfs: &NfsServer,
    signals: &mut StopSignals,
) -> Result<(), Failure> {
    // On a frozen file system only --flush-wait or a signal ends this.
    let flushed = tokio::select! {
        flushed = nfs.flush() => flushed,
        signal = signals.next() => return Err(Failure::interrupted(signal)),
    };
    result.map_err(|error| Failure::failed(format!("the server stopped: {error}")))?;
    flushed.map_err(|error| {
        Failure::failed(format!("stopped, but not all data could be brought to stable storage: {error}"))
    })
}
