//! `rpcrdma ping`: measures the round trip of NULL calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rpcrdma::experimental::Profile;
use rpcrdma::{Call, CallError, GssUser, Reply};
use rpcrdma_nfs::client::NfsUrl;
use serde::Serialize;
use tokio::time::sleep;

use crate::arguments::{Common, Connection, host, seconds, whole};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{self, Text};
use crate::signals::StopSignals;

const AFTER_HELP: &str = "\
Shows minimum, median, 90th and 99th percentile and maximum of the round trip, in microseconds. The exit code is 4 if some calls \
had no reply, 1 if all had none, and 3 if there was no connection. SIGINT ends the command with the summary so far.

-v shows which version of RPC-over-RDMA is spoken, and which characteristics the server announces.

--json prints {host, address, transport, program, version, sent, received, microseconds: {min, p50, p90, p99, max, mean}, \
rpcrdma: {version, profile, send, receive}}. microseconds is null if nothing was received, rpcrdma is null over TCP, and \
profile is null in Version One. send and receive are the inline thresholds at the end, in bytes.";

/// Measure the round trip of NULL calls.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ping {
    /// Server: HOST, HOST:PORT or nfs://HOST[:PORT]
    #[arg(value_name = "HOST[:PORT]", value_parser = host)]
    host: NfsUrl,
    /// Calls to make; 0 continues until SIGINT
    #[arg(short, long, value_name = "COUNT", default_value_t = 10, value_parser = whole::<u64>(0, u64::MAX))]
    count: u64,
    /// Pause between calls, in seconds or with a unit (50ms). With 0, each call follows the reply to the last one, and only the
    /// summary is printed
    #[arg(short, long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
    interval: Duration,
    /// Number of the RPC program to call
    #[arg(long, value_name = "NUMBER", default_value_t = 100_003, value_parser = whole::<u32>(0, u32::MAX))]
    program: u32,
    /// Version of the RPC program
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = whole::<u32>(0, u32::MAX))]
    version: u32,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize)]
struct Document {
    host: String,
    address: String,
    transport: &'static str,
    program: u32,
    version: u32,
    sent: u64,
    received: u64,
    microseconds: Option<Summary>,
    rpcrdma: Option<Spoken>,
}

/// Version of RPC-over-RDMA on a connection, and its inline thresholds in bytes.
#[derive(Debug, Serialize, PartialEq)]
struct Spoken {
    version: u32,
    profile: Option<&'static str>,
    send: usize,
    receive: usize,
}

impl Spoken {
    fn of(client: &rpcrdma::Client) -> Option<Self> {
        let stats = client.rdma().and_then(|rdma| rdma.connection_stats())?;
        let (version, profile) = stats.version?;
        let profile = profile.map(|profile| match profile {
            Profile::P1 => "p1",
            Profile::P2 => "p2",
            Profile::P3 => "p3",
            _ => "other",
        });
        Some(Self { version, profile, send: stats.thresholds.send, receive: stats.thresholds.receive })
    }
}

/// Percentiles, extremes and mean of round trips, in microseconds.
#[derive(Debug, Serialize, PartialEq)]
struct Summary {
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    mean: f64,
}

impl Summary {
    /// Summarizes round trips in any order. Returns `None` if there are none.
    fn of(mut trips: Vec<Duration>) -> Option<Self> {
        trips.sort_unstable();
        let microseconds = |trip: &Duration| trip.as_secs_f64() * 1e6;
        let (min, max) = (trips.first().map(microseconds)?, trips.last().map(microseconds)?);
        // The smallest value that at least this percentage of all values does not exceed.
        let percentile = |percent: usize| {
            trips.get((trips.len() * percent).div_ceil(100).saturating_sub(1)).map_or(max, microseconds)
        };
        let count = u32::try_from(trips.len()).unwrap_or(u32::MAX);
        let mean = trips.iter().map(microseconds).sum::<f64>() / f64::from(count);
        Some(Self { min, p50: percentile(50), p90: percentile(90), p99: percentile(99), max, mean })
    }
}

/// Checks that a reply has no results.
fn empty(reply: Reply) -> Result<(), CallError> {
    Ok(reply.results.finish()?)
}

impl Ping {
    fn null(&self, user: Option<&Arc<GssUser>>) -> Call {
        let call = Call::null(self.program, self.version);
        user.into_iter().fold(call, |call, user| call.gss(Arc::clone(user)))
    }

    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut signals = StopSignals::new()?;
        // Before the connection: without a ticket there is nothing to connect for.
        let user = tokio::select! {
            user = connect::user(&self.connection, self.host.host()) => user?,
            signal = signals.next() => return Err(Failure::interrupted(signal)),
        };
        let client = tokio::select! {
            client = connect::rpc(&self.host, &self.connection, (self.program, self.version)) => client?,
            signal = signals.next() => return Err(Failure::interrupted(signal)),
        };
        let mut text = Text::stdout();
        let each = !common.json && !self.interval.is_zero();
        let (mut sent, mut trips, mut last_error) = (0, Vec::new(), None);
        while self.count == 0 || sent < self.count {
            if sent > 0 && !self.interval.is_zero() {
                tokio::select! {
                    () = sleep(self.interval) => {}
                    _ = signals.next() => break,
                }
            }
            let start = Instant::now();
            let call = client.call_raw(self.null(user.as_ref()));
            let answered = tokio::select! {
                answered = async {
                    if trips.is_empty() {
                        connect::first(client.peer_address(), &self.connection, call).await
                    } else {
                        Ok(call.await)
                    }
                } => answered?.and_then(empty),
                _ = signals.next() => break,
            };
            let trip = start.elapsed();
            sent += 1;
            match answered {
                Ok(_) => {
                    trips.push(trip);
                    if each {
                        text.line(format_args!(
                            "reply {sent} from {}: {:.1} us",
                            client.peer_address(),
                            trip.as_secs_f64() * 1e6
                        ))?;
                        text.flush()?;
                    }
                }
                Err(error) => {
                    output::warn(format_args!("call {sent}: {error}"));
                    last_error = Some(error);
                }
            }
        }
        let received = trips.len() as u64;
        let document = Document {
            host: self.host.to_string(),
            address: client.peer_address().to_string(),
            transport: self.connection.proto.name(),
            program: self.program,
            version: self.version,
            sent,
            received,
            microseconds: Summary::of(trips),
            rpcrdma: Spoken::of(&client),
        };
        if common.json {
            output::document(&document)?;
        } else {
            document.print(&mut text)?;
        }
        if let Some(user) = user {
            client.end_context(&user).await;
        }
        client.close().await;
        let Some(error) = last_error else { return Ok(()) };
        let exit = if received == 0 { Exit::Failed } else { Exit::Partial };
        Err(Failure::silent(exit).with_causes(vec![error.to_string()]))
    }
}

impl Document {
    fn print(&self, text: &mut Text) -> Result<(), Failure> {
        text.line(format_args!(
            "calls sent over {}: {}, replies received: {}",
            self.transport, self.sent, self.received
        ))?;
        if let Some(Summary { min, p50, p90, p99, max, mean }) = self.microseconds {
            text.line(format_args!(
                "microseconds: min {min:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {max:.1}, mean {mean:.1}"
            ))?;
        }
        text.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        assert_eq!(Summary::of(Vec::new()), None);
        let one = Summary::of(vec![Duration::from_micros(7)]);
        assert_eq!(one, Some(Summary { min: 7.0, p50: 7.0, p90: 7.0, p99: 7.0, max: 7.0, mean: 7.0 }));
        let hundred = Summary::of((1..=100).rev().map(Duration::from_micros).collect());
        assert_eq!(
            hundred,
            Some(Summary { min: 1.0, p50: 50.0, p90: 90.0, p99: 99.0, max: 100.0, mean: 50.5 })
        );
    }
}
