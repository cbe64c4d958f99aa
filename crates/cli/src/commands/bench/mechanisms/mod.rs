//! `rpcrdma bench mechanisms`: measures the cost of each way in which a Call or a reply can travel on this
//! machine. The base is explicit RDMA in the same run.

pub(super) mod cases;
pub(super) mod measure;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rpcrdma::Messages;
use serde::Serialize;

use self::cases::{Case, EXPLICIT, Setting, Way};
use self::measure::{Cost, Subject};
use super::{Ends, machine, measured, prepare, table, temporary_directory};
use crate::arguments::{Common, whole};
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Client and server run in this process on the loopback interface, each on a thread of its own. They speak Version Two (P1) over \
software iWARP with CRC32C. The ways of an operation take turns, round by round. The ratio is the median over the rounds of the \
rate by that of the first way, explicit RDMA.

  WRITE, READ   NFS, on a file system in memory
  long call     of an RPC program, with data that is not DDP-eligible
  long reply    a reply with such data
  placement     items lie in Receives that have space for them
  inline        Receives are as long as the message
  cpu           processor time of a call, of client and server
  copied        bytes copied for a call, on both sides, between socket and application, headers
                and pads included
  keys          windows that were bound for a call
  system calls  on the sockets, on both sides, for a call
  went          form of the Calls, or of the replies, that carry the data; in percent if there are
                several forms

--json prints {machine, rounds, milliseconds, rows: [{operation, bytes, depth, way, per_second, ratio, ratio_least, ratio_most, \
target, met, client_microseconds, server_microseconds, copied, keys, system_calls, went: {inline, reduced, continued, placed, long}}]}.";

/// Measure the ways in which a call or a reply can travel, on the loopback interface
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Mechanisms {
    /// Run briefly for a first impression, with fewer rounds and less time
    #[arg(long)]
    quick: bool,
    /// Rounds, 1 to 99 [default: 7, with --quick 3]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1, 99))]
    rounds: Option<u16>,
    /// Numbers of calls in flight, 1 to 64 each
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,32",
        value_parser = whole::<u32>(1, 64))]
    depths: Vec<u32>,
    /// Length of each measurement in a round, in milliseconds, 1 to 10000 [default: 200, with --quick 40]
    #[arg(long, value_name = "MILLISECONDS", value_parser = whole::<u16>(1, 10_000))]
    milliseconds: Option<u16>,
    /// Show how the default lengths and settings were found: measure a range of them
    #[arg(long, value_enum)]
    sweep: Option<Sweep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sweep {
    /// Items from 256 bytes to 256 KiB, in Receives with 8 and with 64 KiB for items
    Placement,
    /// Messages from 6 to 120 KiB, in at most 2 to 32 Sends
    Continuation,
    /// Receives with 1 to 8 KiB before the item
    Head,
}

impl Sweep {
    fn cases(this: Option<Self>) -> Vec<Case> {
        match this {
            None => cases::ways(),
            Some(Self::Placement) => cases::sweep_placement(),
            Some(Self::Continuation) => cases::sweep_continuation(),
            Some(Self::Head) => cases::sweep_head(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Document {
    machine: String,
    rounds: u16,
    milliseconds: u16,
    rows: Vec<Row>,
}

/// A way of an operation at one depth.
#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    bytes: u32,
    depth: u32,
    way: String,
    per_second: f64,
    ratio: f64,
    ratio_least: f64,
    ratio_most: f64,
    target: String,
    met: bool,
    client_microseconds: f64,
    server_microseconds: f64,
    copied: f64,
    keys: f64,
    system_calls: f64,
    went: Went,
}

/// Messages by form, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Went {
    inline: f64,
    reduced: f64,
    continued: f64,
    placed: f64,
    long: f64,
}

impl Went {
    fn of(messages: &Messages) -> Self {
        let Messages { inline, reduced, continued, placed, long, .. } = *messages;
        let all = (inline + reduced + continued + placed + long).max(1);
        let percent = |count| measure::to_float(count) * 100.0 / measure::to_float(all);
        Self {
            inline: percent(inline),
            reduced: percent(reduced),
            continued: percent(continued),
            placed: percent(placed),
            long: percent(long),
        }
    }

    fn show(&self) -> String {
        let mut shown = String::new();
        let forms = [
            (self.inline, "inline"),
            (self.reduced, "reduced"),
            (self.continued, "continued"),
            (self.placed, "placed"),
            (self.long, "long"),
        ];
        for (percent, name) in forms.into_iter().filter(|(percent, _)| *percent >= 0.5) {
            let comma = if shown.is_empty() { "" } else { ", " };
            // Writing to a String does not fail.
            let _ = if percent >= 99.5 {
                write!(shown, "{comma}{name}")
            } else {
                write!(shown, "{comma}{name} {percent:.0} %")
            };
        }
        shown
    }
}

/// Measurements of a way at one depth.
#[derive(Clone, Debug, Default)]
struct Measured {
    rates: Vec<f64>,
    ratios: Vec<f64>,
    cost: Cost,
}

impl Measured {
    fn add(&mut self, cost: &Cost, base: &Cost) {
        self.rates.push(cost.rate());
        self.ratios.push(cost.rate() / base.rate().max(1e-9));
        self.cost = self.cost.plus(cost);
    }

    fn row(&self, case: &Case, way: &Way, depth: u32) -> Row {
        let Cost { calls, client, server, counted, .. } = self.cost;
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6 / measure::to_float(calls.max(1));
        let ratio = table::median(self.ratios.clone());
        Row {
            operation: case.task.name(),
            bytes: case.task.bytes(),
            depth,
            way: way.name.clone(),
            per_second: table::median(self.rates.clone()),
            ratio,
            ratio_least: self.ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_most: self.ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            target: way.target.show(),
            met: way.target.is_met(ratio),
            client_microseconds: microseconds(client),
            server_microseconds: microseconds(server),
            copied: self.cost.each(counted.copied),
            keys: self.cost.each(counted.links.windows_bound),
            system_calls: self.cost.each(counted.links.send_calls + counted.links.receive_calls),
            went: Went::of(if case.task.is_in_reply() { &counted.received } else { &counted.sent }),
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let Self { operation, bytes, depth, way, per_second, ratio, target, keys, system_calls, .. } = self;
        let bytes = if bytes % 1024 == 0 { format!("{} KiB", bytes / 1024) } else { bytes.to_string() };
        let range = format!("{:.2}-{:.2}", self.ratio_least, self.ratio_most);
        let cpu = format!("{:.1} + {:.1}", self.client_microseconds, self.server_microseconds);
        let (copied, went) = (self.copied, self.went.show());
        format!(
            "| {operation:10} | {bytes:>8} | {depth:5} | {way:24} | {per_second:8.0} | {ratio:5.2} | {range:>11} | {target:>7} | \
             {cpu:>15} | {copied:8.0} | {keys:4.1} | {system_calls:12.1} | {went:28} |"
        )
    }
}

const HEAD: &str = "\
| operation  |   bytes | depth | way                      | a second | ratio |  min - max  |  target |          cpu us |   copied | keys | system calls | went                         |
| ---------- | -------: | ----: | ------------------------ | -------: | ----: | ----------: | ------: | --------------: | -------: | ---: | -----------: | ---------------------------- |";

impl Mechanisms {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        let rounds = self.rounds.unwrap_or(if self.quick { 3 } else { 7 });
        let milliseconds = self.milliseconds.unwrap_or(if self.quick { 40 } else { 200 });
        let time = Duration::from_millis(u64::from(milliseconds));
        let cases = Sweep::cases(self.sweep);
        let (directory, depths) = (temporary_directory()?, self.depths.clone());
        let place = directory.path().to_owned();
        let rows = measured(async move { measure(&place, &cases, &depths, rounds, time).await })?;
        if common.json {
            return output::json(&Document { machine: machine(), rounds, milliseconds, rows });
        }
        let mut text = Text::stdout();
        text.line(format_args!("{}; {rounds} rounds of {milliseconds} ms each\n", machine()))?;
        text.line(HEAD)?;
        rows.iter().try_for_each(|row| text.line(row.line()))?;
        text.flush()
    }
}

/// Measures all cases, whose ways take turns for this many rounds.
async fn measure(
    place: &Path,
    cases: &[Case],
    depths: &[u32],
    rounds: u16,
    time: Duration,
) -> Result<Vec<Row>, Failure> {
    let directory = place.join("export");
    prepare(&directory)?;
    let mut settings: Vec<Setting> = vec![EXPLICIT];
    for way in cases.iter().flat_map(|case| &case.ways) {
        if !settings.contains(&way.setting) {
            settings.push(way.setting);
        }
    }
    let mut subjects = Vec::new();
    for (index, setting) in settings.into_iter().enumerate() {
        let state = place.join(format!("state of {index}"));
        subjects.push(Subject::start(&Ends::default(), &directory, &state, setting).await?);
    }
    let mut measured: Vec<Vec<Vec<Measured>>> =
        cases.iter().map(|case| vec![vec![Measured::default(); case.ways.len()]; depths.len()]).collect();
    // Round 0 warms up.
    for round in 0..=rounds {
        for (case, measured) in cases.iter().zip(&mut measured) {
            for (depth, measured) in depths.iter().zip(measured) {
                let mut costs = Vec::with_capacity(case.ways.len());
                for Way { setting, .. } in &case.ways {
                    let subject = subjects.iter().find(|subject| subject.setting == *setting);
                    let subject = subject.ok_or_else(|| Failure::failed("a setting has no server"))?;
                    costs.push(subject.run(case.task, *depth, time).await?);
                }
                let Some(base) = costs.first().filter(|_| round > 0) else { continue };
                measured.iter_mut().zip(&costs).for_each(|(measured, cost)| measured.add(cost, base));
            }
        }
    }
    let mut rows = Vec::new();
    for (case, measured) in cases.iter().zip(&measured) {
        for (depth, measured) in depths.iter().zip(measured) {
            rows.extend(
                case.ways.iter().zip(measured).map(|(way, measured)| measured.row(case, way, *depth)),
            );
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_differently_is_told_in_percent() {
        let mut messages = Messages::default();
        messages.continued = 3;
        messages.long = 1;
        assert_eq!(Went::of(&messages).show(), "continued 75 %, long 25 %");
        messages.long = 0;
        assert_eq!(Went::of(&messages).show(), "continued");
        assert_eq!(Went::of(&Messages::default()).show(), "");
    }

    /// Each way has the form that its name promises, on the loopback interface.
    #[test]
    fn every_way_goes_as_it_is_called() {
        let place = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let cases = cases::ways();
        let time = Duration::from_millis(2);
        let rows = runtime.block_on(measure(place.path(), &cases, &[1], 1, time)).unwrap();
        for Row { operation, way, went, keys, .. } in rows {
            let what = format!("{operation} by {way}: {went:?}, {keys} keys");
            let explicit = way.ends_with("chunk") || (way.ends_with("choice") && operation != "long call");
            assert_eq!(keys > 0.5, explicit, "{what}");
            let all = match way.split([' ', ',']).next() {
                Some("placement") => went.placed,
                Some("continuation") => went.continued,
                Some("inline") => went.inline,
                Some("the") if operation == "long call" => went.continued,
                _ => went.reduced + went.long,
            };
            assert!(all > 99.0, "{what}");
        }
    }
}
