//! How a server is observed while it runs: the page of metrics by HTTP ([`http`]), and the control socket ([`control`]).
//!
//! *Errors.* Without the address of `--metrics` the server does not start. Without the control socket it serves all the same,
//! after a warning.

pub(in crate::commands) mod control;
pub(super) mod give;
pub(in crate::commands) mod handover;
mod http;
pub(in crate::commands) mod protocol;
pub(super) mod take;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::control::Control;
use self::give::Giving;
use super::passed::{Passed, Role, taken};
use super::status::Sources;
use crate::arguments::listen_address;
use crate::commands::cannot_listen;
use crate::exit::Failure;
use crate::output;

/// Looks at a server. With many connections that takes milliseconds, in which the calls of this worker go on elsewhere.
fn aside<T>(look: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(look)
}

/// Options for the observation of a server.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Observe {
    /// Address and port for metrics in Prometheus' text format, by HTTP: GET /metrics, and GET /status for the document that
    /// rpcrdma stat shows. Everyone who reaches the port can read them. Port 9464 if none is given
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address(9464))]
    metrics: Option<SocketAddr>,
}

impl Observe {
    /// Returns the address of the metrics, before the listener is bound.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Listens for readers of the metrics, on a socket that was passed or on a new one.
    ///
    /// # Errors
    /// The address of the metrics cannot be used.
    pub(super) async fn listen(&self, passed: &mut Passed) -> Result<Option<TcpListener>, Failure> {
        let Some(wanted) = self.metrics else { return Ok(None) };
        let listener = match passed.at(Role::Metrics, wanted, &[]) {
            Some(socket) => taken(socket)?,
            None => TcpListener::bind(wanted).await.map_err(cannot_listen(wanted))?,
        };
        Ok(Some(listener))
    }
}

/// Pause before another attempt to have the control socket.
const AGAIN: Duration = Duration::from_millis(10);

/// Open sockets that nobody serves yet.
pub(super) struct Listening {
    metrics: Option<(TcpListener, SocketAddr)>,
    control: Option<Control>,
}

impl Listening {
    /// Returns what is open so far.
    ///
    /// # Errors
    /// The listener of the metrics has no address.
    pub(super) fn new(metrics: Option<TcpListener>) -> io::Result<Self> {
        let metrics = match metrics {
            Some(listener) => {
                let bound = listener.local_addr()?;
                Some((listener, bound))
            }
            None => None,
        };
        Ok(Self { metrics, control: None })
    }

    /// Listens on the control socket too. Another server may give it up within this time. Without it the server serves all the
    /// same, after a warning.
    pub(super) async fn control_at(&mut self, state: &Path, patience: Duration) {
        let until = Instant::now() + patience;
        self.control = loop {
            match Control::bind(state) {
                Ok(control) => break Some(control),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                    sleep(AGAIN).await;
                }
                Err(error) => {
                    output::warn(format_args!("no control socket: {error}"));
                    break None;
                }
            }
        };
    }

    /// Returns the address of the metrics.
    pub(super) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, bound)| *bound)
    }

    /// Returns the path of the control socket.
    pub(super) fn control(&self) -> Option<PathBuf> {
        self.control.as_ref().map(|control| control.path().to_owned())
    }

    /// Serves until the result is dropped, which also removes the control socket.
    pub(super) fn serve(self, sources: &Sources, giving: &Giving) -> Served {
        let Self { metrics, control } = self;
        let metrics = metrics.map(|(listener, _)| tokio::spawn(http::serve(listener, sources.clone())));
        let control = control.map(|control| tokio::spawn(control.serve(sources.clone(), giving.clone())));
        Served { tasks: metrics.into_iter().chain(control).collect() }
    }
}

/// The observation of a server that runs.
pub(super) struct Served {
    tasks: Vec<JoinHandle<()>>,
}

impl Served {
    /// Ends the observation, and waits until the control socket is removed. The second time changes nothing.
    pub(super) async fn end(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            // The task was cancelled.
            let _ = task.await;
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
