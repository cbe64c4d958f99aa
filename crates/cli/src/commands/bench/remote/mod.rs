//! `rpcrdma bench HOST`: measures against `rpcrdma bench --server` on another host.
//!
//! `control` is the protocol between both, `sessions` what the server allows, and `serve` the server. `plan`
//! says what is measured, `load` does the work on the wire, `measure` counts it, `limit` judges the numbers,
//! and `report` shows them.

mod control;
mod limit;
mod load;
mod measure;
pub(super) mod plan;
pub(super) mod report;
pub(super) mod serve;
pub(super) mod sessions;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;
use tokio::net::lookup_host;
use tokio::runtime::Builder;

use self::control::{Ask, Session};
use self::measure::{Interval, Runner, Show};
use self::plan::{Direction, Enough, Format, Kind, Plan};
use self::report::{Document, course};
use super::svg::Picture;
use super::{Ends, OPERATION_LEN, program};
use crate::arguments::{Common, Proto, host, size, some_seconds, whole};
use crate::commands::{on_runtime, until_signal};
use crate::exit::{Exit, Failure};
use crate::output::{self, Text};
use crate::provider::{Provider, ProviderOptions};

/// Default time of each measure.
const SECONDS: Duration = Duration::from_secs(3);
/// Default length of the parts that are shown.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shortest parts that are shown.
const INTERVAL_LEAST: Duration = Duration::from_millis(10);
/// Longest name of this host that the server learns, in bytes.
const NAME: usize = 64;

const CLIENT: &str = "Client of a server on another host";

/// Options of `rpcrdma bench HOST`.
#[derive(Clone, Debug, Args)]
pub(super) struct ClientOptions {
    /// Measure against rpcrdma bench --server on this host [default port: 20060]
    #[arg(value_name = "HOST[:PORT]", value_parser = host, conflicts_with = "server")]
    pub(super) host: Option<NfsUrl>,
    /// Port of HOST, or of --server without --listen [default: 20060]
    #[arg(short, long, value_name = "PORT", value_parser = whole::<u16>(1, 65_533), conflicts_with = "listen")]
    pub(super) port: Option<u16>,
    #[command(flatten)]
    plan: PlanOptions,
    /// Unit of bytes a second in text: k, m or g for bits by powers of 1000, K, M or G for bytes by powers of 1024
    /// [default: MB/s or GB/s, of 1000 bytes]
    #[arg(short, long, value_enum, value_name = "UNIT", hide_possible_values = true, requires = "host",
        conflicts_with = "server", help_heading = CLIENT)]
    format: Option<Format>,
    /// Show the rate of each part of this many seconds, 0.01 or more; 0 shows none. Without a number, 1
    /// [default: 1 on a terminal, otherwise 0]
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = part, requires = "host", conflicts_with = "server", help_heading = CLIENT)]
    interval: Option<Duration>,
}

/// Options that say what is measured between two hosts.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct PlanOptions {
    /// Calls in flight on each connection, 1 to 1024 [default: 16]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1, 1024), help_heading = CLIENT)]
    depth: Option<u16>,
    /// Bytes of data of each READ and WRITE, 1 to 1M [default: 1M]
    #[arg(short = 'l', long, visible_alias = "length", value_name = "BYTES", value_parser = data,
        help_heading = CLIENT)]
    size: Option<u32>,
    /// Time of each measure, in seconds. Raw streams divide it among three write sizes [default: 3, with wire
    /// 1]
    #[arg(short = 't', long, visible_alias = "time", value_name = "SECONDS", value_parser = some_seconds,
        help_heading = CLIENT)]
    seconds: Option<Duration>,
    /// Time at the beginning of each measurement that does not count, in seconds [default: a third of its time, at
    /// most 0.3]
    #[arg(short = 'O', long, value_name = "SECONDS", value_parser = crate::arguments::seconds, help_heading = CLIENT)]
    omit: Option<Duration>,
    /// End a measure with data after so many bytes, if its time is not over before. The time is 60 s, or --seconds
    /// if that is more
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = some_bytes, conflicts_with = "calls", help_heading = CLIENT)]
    bytes: Option<u64>,
    /// End a measure with calls after so many, as --bytes does
    #[arg(short = 'k', long, value_name = "COUNT", value_parser = whole::<u64>(1, u64::MAX), help_heading = CLIENT)]
    calls: Option<u64>,
    /// Connections of each measure, 1 to 256, each with a thread of its own. Latency is that of one [default: 1]
    #[arg(short = 'P', long, visible_alias = "parallel", value_name = "COUNT", value_parser = whole::<u16>(1, 256),
        help_heading = CLIENT)]
    connections: Option<u16>,
    /// Directions of the data [default: both]
    #[arg(long, value_enum, help_heading = CLIENT)]
    direction: Option<Direction>,
    /// Short for --direction from: the server sends
    #[arg(short = 'R', long, conflicts_with = "direction", help_heading = CLIENT)]
    reverse: bool,
    /// Short for --direction together: both ways at the same time, on --connections for each way
    #[arg(long, conflicts_with_all = ["direction", "reverse"], help_heading = CLIENT)]
    bidir: bool,
    /// Kinds of measures, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', help_heading = CLIENT)]
    only: Vec<Kind>,
    /// Transport of RPC [default: both, one after the other]
    #[arg(long, value_enum, help_heading = CLIENT)]
    proto: Option<Proto>,
    /// Draw the ratios to raw TCP into this file too, in SVG
    #[arg(long, value_name = "FILE", help_heading = CLIENT)]
    svg: Option<PathBuf>,
}

impl PlanOptions {
    /// Returns the option given, if one is, for a command line without a host.
    fn given(&self) -> Option<&'static str> {
        [
            (self.depth.is_some(), "--depth"),
            (self.size.is_some(), "--size"),
            (self.seconds.is_some(), "--seconds"),
            (self.connections.is_some(), "--connections"),
            (self.direction.is_some(), "--direction"),
            (self.reverse, "--reverse"),
            (self.bidir, "--bidir"),
            (self.omit.is_some(), "--omit"),
            (self.bytes.is_some(), "--bytes"),
            (self.calls.is_some(), "--calls"),
            (!self.only.is_empty(), "--only"),
            (self.proto.is_some(), "--proto"),
            (self.svg.is_some(), "--svg"),
        ]
        .into_iter()
        .find_map(|(given, option)| given.then_some(option))
    }

    /// Returns the plan, with this default for the time of each measure.
    ///
    /// # Errors
    /// The options leave nothing to measure.
    pub(super) fn plan(&self, time: Duration) -> Result<Plan, Failure> {
        let direction = match (self.reverse, self.bidir) {
            (true, _) => Some(Direction::From),
            (false, true) => Some(Direction::Together),
            (false, false) => self.direction,
        };
        let plan = Plan {
            connections: self.connections.unwrap_or(1).into(),
            depth: self.depth.unwrap_or(16).into(),
            size: self.size.unwrap_or(OPERATION_LEN),
            time: self.seconds.unwrap_or(time),
            direction: direction.unwrap_or(Direction::Both),
            only: self.only.clone(),
            proto: self.proto,
            omit: self.omit,
            enough: self.bytes.map(Enough::Bytes).or(self.calls.map(Enough::Calls)),
        };
        if plan.measures().is_empty() {
            return Err(Failure::usage("nothing is left to measure: see --only, --direction and --proto"));
        }
        Ok(plan)
    }

    /// Opens the file of the picture, if the plan is to be drawn.
    ///
    /// # Errors
    /// The file cannot be written, or the plan has no ratio to draw.
    pub(super) fn picture(&self, plan: &Plan) -> Result<Option<Picture>, Failure> {
        let Some(file) = &self.svg else { return Ok(None) };
        let measures = plan.measures();
        if !measures.iter().any(|measure| measure.base().is_some_and(|base| measures.contains(&base))) {
            return Err(Failure::usage(
                "--svg draws ratios to raw TCP, and none is measured: --only needs stream with read or write, or ping \
                 with null",
            ));
        }
        Picture::open(file).map(Some)
    }
}

/// Draws these documents into the picture, each with its name, if there is one.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(picture: Option<Picture>, documents: &[(String, &Document)]) -> Result<(), Failure> {
    let Some(picture) = picture else { return Ok(()) };
    let load = documents.first().map_or_else(String::new, |(_, document)| document.load());
    picture.write(&report::draw(&format!("RPC by raw TCP; {load}"), documents))
}

fn data(text: &str) -> Result<u32, String> {
    match size(text)? {
        bytes if (1..=program::MAX as u64).contains(&bytes) => {
            u32::try_from(bytes).map_err(|error| error.to_string())
        }
        bytes => Err(format!("{bytes} is not from 1 to 1048576 (1M)")),
    }
}

fn some_bytes(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("0 bytes are none".to_owned()),
        bytes => Ok(bytes),
    }
}

fn part(text: &str) -> Result<Duration, String> {
    match crate::arguments::seconds(text)? {
        time if time.is_zero() || time >= INTERVAL_LEAST => Ok(time),
        _ => Err(format!("{text} is neither 0 nor at least 0.01")),
    }
}

impl ClientOptions {
    /// Checks that no option is given that is about a host.
    pub(super) fn check_none(&self, serves: bool) -> Result<(), Failure> {
        let port = (self.port.is_some() && !serves).then_some("--port");
        match self.plan.given().or(port) {
            Some(option) => {
                Err(Failure::usage(format!("{option} is about another host: name it, as rpcrdma bench HOST")))
            }
            None => Ok(()),
        }
    }

    /// Returns the length of the parts to show; `None` for none.
    fn interval(&self, terminal: bool) -> Option<Duration> {
        let default = if terminal { INTERVAL } else { Duration::ZERO };
        Some(self.interval.unwrap_or(default)).filter(|interval| !interval.is_zero())
    }

    /// Measures, and prints the result.
    pub(super) fn run(&self, to: &NfsUrl, provider: &ProviderOptions, common: Common) -> Result<(), Failure> {
        provider.check([&provider.provider], false)?;
        let plan = self.plan.plan(SECONDS)?;
        let picture = self.plan.picture(&plan)?;
        let interval = self.interval(!common.json && std::io::stdout().is_terminal());
        let show = |measure, size, part: &Interval| {
            if common.json { Ok(()) } else { output::line(course(measure, size, part, self.format)) }
        };
        let work = async {
            let authority = to.authority(self.port.unwrap_or(serve::PORT));
            let addresses: Vec<SocketAddr> = lookup_host(&authority)
                .await
                .map_err(|error| {
                    let text = format!("cannot find the address of {}: {error}", to.host());
                    Failure::new(Exit::Unreachable, text)
                })?
                .collect();
            measure(&addresses, &plan, provider, interval, &show).await
        };
        // On one thread: the work on the wire has threads of its own.
        let document = on_runtime_of_one(until_signal(work))?;
        if common.json {
            output::json(&document)?;
        } else {
            let mut text = Text::stdout();
            document.lines(self.format).into_iter().try_for_each(|line| text.line(line))?;
            text.flush()?;
        }
        draw(picture, &[(to.host().to_string(), &document)])
    }
}

/// Runs on a runtime of one thread. Returns the result.
pub(super) fn on_runtime_of_one<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut result = None;
    on_runtime(Builder::new_current_thread(), async {
        result = Some(work.await?);
        Ok(())
    })?;
    result.ok_or_else(|| Failure::failed("the measurement has no result"))
}

/// Measures all of a plan against the server at one of these addresses.
pub(super) async fn measure(
    addresses: &[SocketAddr],
    plan: &Plan,
    provider: &ProviderOptions,
    interval: Option<Duration>,
    show: &Show<'_>,
) -> Result<Document, Failure> {
    let ask = Ask {
        name: own_name(),
        connections: plan.all_connections(),
        depth: plan.depth,
        size: plan.size,
        seconds: plan.seconds(),
    };
    let session = Session::open(addresses, &ask).await?;
    let mut options = provider.clone();
    // Both ends need the same protocol, and the server's is known.
    if options.provider == Provider::Auto && session.granted.provider == "iwarp" {
        options.provider = Provider::Iwarp;
    }
    let ends = Ends { options, address: session.host() };
    let runner = Runner { session: &session, ends: &ends, plan, interval, show };
    let mut windows = Vec::new();
    let mut result = Ok(());
    for measure in plan.measures() {
        match runner.run(measure).await {
            Ok(window) => windows.push(window),
            Err(failure) => {
                result = Err(failure);
                break;
            }
        }
    }
    let document = Document::new(&session, plan, windows);
    session.close().await;
    result.map(|()| document)
}

/// Returns the name of this host, for the server's log.
fn own_name() -> String {
    let mut name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.truncate(name.floor_char_boundary(NAME));
    name.trim().to_owned()
}

#[cfg(test)]
mod tests;
