//! `rpcrdma bench --server`: serves the programs of a benchmark, and raw TCP, to other hosts.
//!
//! An RPC server has the control program, and the measured program while any session is open, on RDMA and on TCP. Raw TCP has a listener
//! of its own. Every client that may open a session may measure, beside others. A client that fails
//! or vanishes costs its own session only, which ends by its lease.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rpcrdma::{PeerShares, Server, ServerConfig};
use rpcrdma_verbs::ProtectionDomain;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::control::{Ask, Control, Event, Report, offer, protocol};
use super::plan::Unit;
use super::sessions::{Bounds, Sessions};
use crate::arguments::{Common, listen_address, size, whole};
use crate::commands::bench::program::{Transfers, transfers};
use crate::commands::bench::{Ends, failed, tcp};
use crate::commands::{cannot_listen, on_runtime};
use crate::exit::Failure;
use crate::output;
use crate::provider::ProviderOptions;
use crate::signals::StopSignals;

/// Default port: of the control protocol and of RPC over TCP. RDMA has the next one, raw TCP the one after it.
pub(in crate::commands::bench) const PORT: u16 = 20_060;
/// Calls that a connection may have in flight by default.
const CREDITS: u16 = 128;
/// Memory of the server beside what its clients may ask for, in bytes: their control connections, and the
/// data that replies carry.
const BESIDE: u64 = 64 << 20;
/// Events that wait for the output; then calls of the control protocol wait.
const EVENTS: usize = 64;
/// Time between two looks for sessions that are over.
const LOOK: Duration = Duration::from_secs(1);
/// Time for calls in progress when the server stops.
const GRACE: Duration = Duration::from_secs(1);

const SERVER: &str = "Server for other hosts";

/// Options of `rpcrdma bench --server`.
#[derive(Clone, Debug, Args)]
pub(in crate::commands::bench) struct ServerOptions {
    /// Serve benchmarks to clients on other hosts, until SIGINT or SIGTERM. Anyone who reaches the ports can
    /// measure, within the limits below
    #[arg(long, help_heading = SERVER)]
    pub(in crate::commands::bench) server: bool,
    /// Address and port for clients: of the control protocol and of RPC over TCP. RDMA has the next port, and
    /// raw TCP the one after it. Port 0 selects three free ports [default: 0.0.0.0:20060]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address(20060), requires = "server", conflicts_with = "host", help_heading = SERVER)]
    listen: Option<SocketAddr>,
    /// Most seconds that one client may ask for, 1 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = whole::<u32>(1, 86_400),
        requires = "server", conflicts_with = "host", help_heading = SERVER)]
    duration_limit: u32,
    /// Most connections that all clients together may ask for, 1 to 256
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole::<u16>(1, 256),
        requires = "server", conflicts_with = "host", help_heading = SERVER)]
    connection_limit: u16,
    /// Most memory that all clients together may ask for, in bytes, 4M to 64G. A client needs
    /// connections x (depth x size + 2 MiB)
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = memory, requires = "server",
        conflicts_with = "host", help_heading = SERVER)]
    memory_limit: u64,
    /// Credits: calls that a connection may have in flight, 2 to 1024
    #[arg(long, value_name = "COUNT", default_value_t = CREDITS, value_parser = whole::<u16>(2, 1024),
        requires = "server", conflicts_with = "host", help_heading = SERVER)]
    credits: u16,
}

fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if ((4 << 20)..=(64 << 30)).contains(&bytes) => Ok(bytes),
        bytes => Err(format!("{bytes} is not from 4194304 (4M) to 68719476736 (64G)")),
    }
}

/// Addresses of a server that listens.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ready {
    event: &'static str,
    pid: u32,
    /// The address for clients, of the control protocol and of RPC over TCP.
    control: SocketAddr,
    rdma: SocketAddr,
    raw: SocketAddr,
    provider: &'static str,
}

impl ServerOptions {
    /// Serves until a signal.
    pub(in crate::commands::bench) fn run(
        &self,
        provider: &ProviderOptions,
        port: Option<u16>,
        common: Common,
    ) -> Result<(), Failure> {
        provider.check([&provider.provider], false)?;
        on_runtime(Builder::new_multi_thread(), self.serve(provider, port, common))
    }

    /// Returns the addresses of control and RPC over TCP, of RDMA, and of raw TCP.
    fn addresses(&self, port: Option<u16>) -> Result<[SocketAddr; 3], Failure> {
        let port = port.unwrap_or(PORT);
        let first = self.listen.unwrap_or_else(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
        let at = |offset: u16| {
            let port = if first.port() == 0 { Some(0) } else { first.port().checked_add(offset) };
            port.map(|port| SocketAddr::new(first.ip(), port))
                .ok_or_else(|| Failure::usage("--listen: the two ports after it must exist too"))
        };
        Ok([at(0)?, at(1)?, at(2)?])
    }

    fn config(&self) -> ServerConfig {
        // Connections of a measurement may still close while those of the next open, and each client has one
        // of the control protocol.
        let connections = usize::from(self.connection_limit) * 3 + EVENTS;
        let mut config = ServerConfig::default();
        config.max_calls = self.credits.into();
        config.max_connections = connections;
        config.max_connections_per_peer = connections;
        // A client opens all its connections at the same time, and an address can have half of these.
        config.max_half_open = 2 * connections;
        // Nobody claims to be anyone.
        config.local_owners = false;
        config.grace = GRACE;
        config.protocol.grant = self.credits.into();
        config
    }

    async fn serve(
        &self,
        provider: &ProviderOptions,
        port: Option<u16>,
        common: Common,
    ) -> Result<(), Failure> {
        let mut signals = StopSignals::of_server()?;
        let [control, rdma, raw] = self.addresses(port)?;
        let ends = Ends { options: provider.clone(), address: control.ip() };
        let (rdma, provider) = ends.listen_at(rdma).await?;
        let tcp = TcpListener::bind(control).await.map_err(cannot_listen(control))?;
        let raw = TcpListener::bind(raw).await.map_err(cannot_listen(raw))?;
        let ready = Ready {
            event: "ready",
            pid: std::process::id(),
            control: tcp.local_addr().map_err(failed("listen"))?,
            rdma: rdma.local_address().map_err(failed("listen"))?,
            raw: raw.local_addr().map_err(failed("listen"))?,
            provider,
        };
        let sessions = Sessions::new(Bounds {
            connections: self.connection_limit.into(),
            memory: self.memory_limit,
            time: Duration::from_secs(self.duration_limit.into()),
        });
        let pool = usize::try_from(self.memory_limit.saturating_add(BESIDE)).unwrap_or(usize::MAX);
        let domain = ProtectionDomain::new(pool);
        let (events, mut happened) = mpsc::channel(EVENTS);
        let control = Control {
            sessions: sessions.clone(),
            offer: offer(ready.raw.port(), ready.rdma.port(), ready.provider, self.credits.into()),
            start: Instant::now(),
            events,
        };
        let open = sessions.clone();
        let measured = Transfers::in_pool(&domain, move || open.are_any())
            .map_err(failed("allocate the data of replies"))?;
        let server = Server::builder()
            .config(self.config())
            // A single client may have all.
            .shares(PeerShares::new(domain, pool))
            .program(Arc::new(protocol::serve(control)))
            .program(Arc::new(transfers::serve(measured)))
            .listen_rdma(rdma)
            .listen_tcp(tcp)
            .build()
            .map_err(failed("serve"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let mut serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        let raw = tokio::spawn(tcp::serve(raw, sessions.door()));
        ready.print(common)?;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = signals.next() => break,
                ended = &mut serving => {
                    ended.map_err(failed("serve"))?.map_err(failed("serve"))?;
                    return Err(Failure::failed("the server ended unexpectedly"));
                }
                Some(event) = happened.recv() => print(&event, common)?,
                _ = look.tick() => {
                    for ended in sessions.expire(Instant::now()) {
                        print(&Event::Left(ended), common)?;
                    }
                }
            }
        }
        // Handlers that wait for a place among the events go on without one.
        drop(happened);
        drop(stop);
        raw.abort();
        serving.await.map_err(failed("serve"))?.map_err(failed("serve"))
    }
}

impl Ready {
    fn print(&self, common: Common) -> Result<(), Failure> {
        let Self { control, rdma, raw, provider, .. } = self;
        if common.json {
            return output::json(self);
        }
        output::line(format_args!(
            "ready: clients measure with rpcrdma bench HOST:{}; control and rpc/tcp {control}, rdma {rdma} ({provider}), raw tcp {raw}",
            control.port()
        ))
    }
}

/// Prints what happened, in one line.
fn print(event: &Event, common: Common) -> Result<(), Failure> {
    if common.json { output::json(&document(event)) } else { output::line(line(event)) }
}

fn line(event: &Event) -> String {
    match event {
        Event::Came { client, ask: Ask { connections, depth, size, seconds, .. } } => format!(
            "{client} came: connections {connections}, depth {depth}, size {size} B, at most {seconds} s"
        ),
        Event::Refused { client, reason } => format!("{client} was refused: {reason}"),
        Event::Measured { client, report } => {
            let unit = report.measure.unit();
            format!("{client} measured {}: {}", report.measure.title(), unit.show(value(report)))
        }
        Event::Left(ended) => {
            format!("{} left after {:.1} s: {}", ended.peer, ended.after.as_secs_f64(), ended.how)
        }
    }
}

/// Returns the value of a report, in bytes or calls a second, or in seconds.
fn value(report: &Report) -> f64 {
    let value = crate::commands::bench::mechanisms::measure::to_float(report.value);
    if report.measure.unit() == Unit::Nanoseconds { value / 1e9 } else { value }
}

fn document(event: &Event) -> Value {
    match event {
        Event::Came { client, ask } => json!({
            "event": "came", "client": client, "connections": ask.connections, "depth": ask.depth,
            "size": ask.size, "seconds": ask.seconds,
        }),
        Event::Refused { client, reason } => {
            json!({ "event": "refused", "client": client, "reason": reason })
        }
        Event::Measured { client, report } => json!({
            "event": "measured", "client": client, "name": report.measure.name(),
            "transport": report.measure.transport(), "unit": report.measure.unit().name(),
            "value": value(report),
        }),
        Event::Left(ended) => json!({
            "event": "left", "client": ended.peer, "seconds": ended.after.as_secs_f64(), "how": ended.how,
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::bench::Bench;
    use crate::commands::bench::remote::plan::Measure;
    use crate::commands::bench::remote::sessions::Ended;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn one_address_can_open_all_connections_at_the_same_time() {
        for limit in [1, 64, 256] {
            let line = Line::try_parse_from(["bench", "--server", "--connection-limit", &limit.to_string()]);
            let config = line.unwrap().bench.server.config();
            assert!(config.max_half_open / 2 >= limit, "{} of {limit}", config.max_half_open);
        }
    }

    #[test]
    fn each_event_is_one_line() {
        let client = "192.0.2.7:4711 (host)".to_owned();
        let ask = Ask { name: "host".to_owned(), connections: 2, depth: 16, size: 4096, seconds: 60 };
        let report = |measure, value| Report { session: 1, measure, value };
        for (event, expected) in [
            (
                Event::Came { client: client.clone(), ask },
                "came: connections 2, depth 16, size 4096 B, at most 60 s",
            ),
            (Event::Refused { client: client.clone(), reason: "no".to_owned() }, "was refused: no"),
            (
                Event::Measured { client: client.clone(), report: report(Measure::RdmaRead, 2_310_000_000) },
                "measured READ over RDMA: 2.31 GB/s",
            ),
            (
                Event::Measured { client: client.clone(), report: report(Measure::PingPong, 12_300) },
                "measured TCP ping-pong of 128 B: 12.3 us",
            ),
            (
                Event::Left(Ended { peer: client.clone(), after: Duration::from_millis(1500), how: "done" }),
                "left after 1.5 s: done",
            ),
        ] {
            assert_eq!(line(&event), format!("{client} {expected}"));
            assert_eq!(document(&event)["client"], client);
        }
    }
}
