//! Control protocol of a benchmark server: an RPC program over TCP.
//!
//! A client opens a session, which the server grants or refuses with a reason. Before and after each
//! measurement it asks for a sample of the server's clock, processor time and received bytes. Samples are
//! also its signs of life. It reports each result, so that the server can print it, and closes the session.
//! Hosts with different versions of this program do not measure each other: the RPC layer tells both numbers.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rpcrdma::{Call, CallContext, CallError, CallFailure, ClientConfig, Procedure};
use rpcrdma_oncrpc::Refused;
use rpcrdma_xdr::Xdr;
use rustix::time::ClockId;
use tokio::sync::mpsc;

use super::plan::Measure;
use super::sessions::{Ended, Sessions};
use crate::commands::bench::processor::{self, Ticks, cpu};
use crate::exit::{Exit, Failure};
use crate::output::printable;

rpcrdma::program! {
    /// The protocol. The number is from the range for users (RFC 5531 §8.3). A change of any type below, or of the order of
    /// measures, needs the next version.
    pub(super) mod protocol {
        program 0x2000_4a80, version 3;
        /// Opens a session.
        fn open = 1, Open(Ask) -> Opened, State;
        /// Returns the server's state, and keeps the session of this number open.
        fn sample = 2, Look(u64) -> Sampled, Idempotent;
        /// Tells a result.
        fn report = 3, Tell(Report) -> (), State;
        /// Closes the session of this number.
        fn close = 4, Close(u64) -> (), State;
    }
}

/// Longest text of either side, in bytes.
const TEXT: usize = 256;
/// Time for the connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Request of a client for a session.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub(super) struct Ask {
    /// Name of the client's host, for the server's log.
    #[xdr(max = TEXT)]
    pub(super) name: String,
    pub(super) connections: u32,
    /// Calls in flight on each connection.
    pub(super) depth: u32,
    /// Bytes of data of each call.
    pub(super) size: u32,
    /// Time of the whole session.
    pub(super) seconds: u32,
}

/// Answer of a server that grants a session.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub(super) struct Granted {
    pub(super) session: u64,
    /// Port of raw TCP. RPC over TCP has the port of this program.
    pub(super) raw_port: u32,
    pub(super) rdma_port: u32,
    /// Name of the server's RDMA provider.
    #[xdr(max = TEXT)]
    pub(super) provider: String,
    /// Calls that the server lets a connection have in flight.
    pub(super) credits: u32,
    pub(super) processors: u32,
    #[xdr(max = TEXT)]
    pub(super) machine: String,
}

/// Answer to [`Ask`].
#[derive(Debug, PartialEq, Eq, Xdr)]
pub(super) enum Opened {
    #[xdr(value = 0)]
    Granted(Granted),
    #[xdr(value = 1)]
    Refused(#[xdr(max = TEXT)] String),
}

/// State of a server at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub(super) struct Sample {
    /// The server's clock, in nanoseconds.
    pub(super) clock: u64,
    /// Processor time of its process, in nanoseconds.
    pub(super) cpu: u64,
    /// Ticks of its machine ([`Ticks`]).
    pub(super) busy: u64,
    pub(super) all: u64,
    /// Bytes that came by the raw streams of the session.
    pub(super) received: u64,
    /// Other sessions that are open.
    pub(super) others: u32,
}

/// State of a server at a moment, for an open session.
#[derive(Debug, PartialEq, Eq, Xdr)]
pub(super) enum Sampled {
    #[xdr(value = 0)]
    Sample(Sample),
    #[xdr(value = 1)]
    Ended,
}

/// Result of a measurement, for the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub(super) struct Report {
    pub(super) session: u64,
    pub(super) measure: Measure,
    /// In the unit of the measure.
    pub(super) value: u64,
}

/// Something that happened at a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Came { client: String, ask: Ask },
    Refused { client: String, reason: String },
    Measured { client: String, report: Report },
    Left(Ended),
}

/// The program.
pub(super) struct Control {
    pub(super) sessions: Sessions,
    /// Answer to each session, but for its number.
    pub(super) offer: Granted,
    /// When the server started: the zero of its clock.
    pub(super) start: Instant,
    pub(super) events: mpsc::Sender<Event>,
}

impl Control {
    async fn happened(&self, event: Event) {
        // The receiver is gone only when the server stops.
        let _ = self.events.send(event).await;
    }
}

impl protocol::Service for Control {
    async fn open(&self, context: &CallContext, ask: Ask) -> Result<Opened, CallFailure> {
        let from = context.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        let client = format!("{from} ({})", printable(ask.name.as_bytes()));
        let (opened, event) = match self.sessions.open(&ask, client.clone(), Instant::now()) {
            Ok(session) => {
                (Opened::Granted(Granted { session, ..self.offer.clone() }), Event::Came { client, ask })
            }
            Err(reason) => (Opened::Refused(reason.clone()), Event::Refused { client, reason }),
        };
        self.happened(event).await;
        Ok(opened)
    }

    async fn sample(&self, _: &CallContext, session: u64) -> Result<Sampled, CallFailure> {
        let now = Instant::now();
        Ok(self.sessions.touch(session, now).map_or(Sampled::Ended, |seen| {
            let Ticks { busy, all } = Ticks::now();
            Sampled::Sample(Sample {
                clock: nanoseconds(now.saturating_duration_since(self.start)),
                cpu: nanoseconds(cpu(ClockId::ProcessCPUTime)),
                busy,
                all,
                received: seen.received,
                others: seen.others,
            })
        }))
    }

    async fn report(&self, _: &CallContext, report: Report) -> Result<(), CallFailure> {
        if let Some(client) = self.sessions.peer(report.session) {
            self.happened(Event::Measured { client, report }).await;
        }
        Ok(())
    }

    async fn close(&self, _: &CallContext, session: u64) -> Result<(), CallFailure> {
        if let Some(ended) = self.sessions.close(session, Instant::now()) {
            self.happened(Event::Left(ended)).await;
        }
        Ok(())
    }
}

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The client's end of a session.
pub(super) struct Session {
    rpc: rpcrdma::Client,
    server: SocketAddr,
    pub(super) granted: Granted,
}

impl Session {
    /// Opens a session at the first of these addresses that has a benchmark server.
    ///
    /// # Errors
    /// There is none, or it refuses: the reason.
    pub(super) async fn open(addresses: &[SocketAddr], ask: &Ask) -> Result<Self, Failure> {
        let mut failure = Failure::new(Exit::Unreachable, "the host has no address");
        for address in addresses {
            match Self::open_at(*address, ask).await {
                Err(last) if last.exit() == Exit::Unreachable => failure = last,
                result => return result,
            }
        }
        Err(failure)
    }

    async fn open_at(server: SocketAddr, ask: &Ask) -> Result<Self, Failure> {
        let mut config = ClientConfig::default();
        config.protocol.timeouts.call = PATIENCE;
        config.protocol.timeouts.connect = PATIENCE;
        let connecting =
            rpcrdma::Client::builder().config(config).transport(rpcrdma::Transport::tcp()).connect(server);
        let rpc = connecting.await.map_err(|error| {
            let text = format!("{error}; rpcrdma bench --server has to run there, and prints its port");
            Failure::new(Exit::Unreachable, text)
        })?;
        let opened = call::<protocol::Open>(&rpc, ask).await.map_err(|error| explain(server, &error))?;
        match opened {
            Opened::Granted(mut granted) => {
                // Texts of the server reach the terminal.
                granted.machine = printable(granted.machine.as_bytes());
                granted.provider = printable(granted.provider.as_bytes());
                Ok(Self { rpc, server, granted })
            }
            Opened::Refused(reason) => Err(Failure::failed(format!(
                "the bench server at {server} refuses: {}",
                printable(reason.as_bytes())
            ))),
        }
    }

    /// Returns the address of the server's host.
    pub(super) const fn host(&self) -> IpAddr {
        self.server.ip()
    }

    /// Returns the address of RPC over TCP.
    pub(super) const fn tcp(&self) -> SocketAddr {
        self.server
    }

    /// Returns the address of RPC over RDMA.
    pub(super) fn rdma(&self) -> SocketAddr {
        self.at(self.granted.rdma_port)
    }

    /// Returns the address of raw TCP.
    pub(super) fn raw(&self) -> SocketAddr {
        self.at(self.granted.raw_port)
    }

    /// The port is that of another host, so one that does not exist becomes 0, to which nobody connects.
    fn at(&self, port: u32) -> SocketAddr {
        let mut address = self.server;
        address.set_port(u16::try_from(port).unwrap_or(0));
        address
    }

    /// Asks for the server's state, which also keeps the session open.
    pub(super) async fn sample(&self) -> Result<Sample, Failure> {
        let sampled = call::<protocol::Look>(&self.rpc, &self.granted.session).await;
        match sampled.map_err(|error| explain(self.server, &error))? {
            Sampled::Sample(sample) => Ok(sample),
            Sampled::Ended => Err(Failure::failed(format!(
                "the bench server at {} has ended the session: its time is over, or it heard nothing for long",
                self.server
            ))),
        }
    }

    /// Tells a result.
    pub(super) async fn report(&self, measure: Measure, value: u64) -> Result<(), Failure> {
        let report = Report { session: self.granted.session, measure, value };
        call::<protocol::Tell>(&self.rpc, &report).await.map_err(|error| explain(self.server, &error))
    }

    /// Closes the session.
    pub(super) async fn close(self) {
        // Without an answer the server ends the session by its lease.
        let _ = call::<protocol::Close>(&self.rpc, &self.granted.session).await;
        self.rpc.close().await;
    }
}

/// Makes a call. It is never sent again: on another connection nothing is known about the server.
async fn call<P: Procedure>(
    rpc: &rpcrdma::Client,
    arguments: &P::Arguments,
) -> Result<P::Results, CallError> {
    rpc.call_raw(Call::of::<P>(arguments)?.once()).await?.into_results::<P>()
}

fn explain(server: SocketAddr, error: &CallError) -> Failure {
    let (exit, text) = match error {
        CallError::Refused(Refused::ProgramMismatch { low, high }) => (
            Exit::Failed,
            format!(
                "the bench server at {server} speaks version {} of the control protocol, and this rpcrdma version \
                 {}: both hosts need the same rpcrdma",
                if low == high { low.to_string() } else { format!("{low} to {high}") },
                protocol::VERSION
            ),
        ),
        CallError::Refused(Refused::ProgramUnavailable) => (
            Exit::Failed,
            format!(
                "{server} is no bench server: {error}; name the first port that rpcrdma bench --server prints"
            ),
        ),
        error => (Exit::Unreachable, format!("{server} does not answer as a bench server does: {error}")),
    };
    Failure::new(exit, text)
}

/// Returns what a session gets, but for its number.
pub(super) fn offer(raw_port: u16, rdma_port: u16, provider: &str, credits: u32) -> Granted {
    let mut machine = crate::commands::bench::machine();
    machine.truncate(machine.floor_char_boundary(TEXT));
    Granted {
        session: 0,
        raw_port: raw_port.into(),
        rdma_port: rdma_port.into(),
        provider: provider.to_owned(),
        credits,
        processors: processor::count(),
        machine,
    }
}
