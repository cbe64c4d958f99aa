//! `rpcrdma bench roundtrips`: measures the cost of each way of an operation in round trips, messages,
//! interrupts and registrations. The link is simulated with any length, or is iWARP through a delay line.

mod confirm;
mod delay;
mod distances;
mod measure;
mod mechanisms;
mod plot;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use self::confirm::confirm;
use self::measure::{LinkModel, Measured, measure, virtual_time};
use self::mechanisms::{MECHANISMS, Mechanism};
use self::table::{Document, Row};
use crate::arguments::Common;
use crate::commands::bench::measured;
use crate::commands::bench::svg::Picture;
use crate::exit::Failure;
use crate::output::{self, Text};

/// Delay of a kilometre of fibre, one way, in nanoseconds. rtissues-03 §1.2 gives 16 µs for a mile there and
/// back.
const NANOSECONDS_PER_KILOMETRE: f64 = 16_000.0 / 2.0 / 1.609_344;
const GIGABIT: f64 = 1e9 / 8.0;

const AFTER_HELP: &str = "\
Client and server run on a simulated fabric in virtual time; only the link takes time. Each operation is carried out once, on a \
connection that was used before.

  round trips   the wait of the client: elapsed time without the time of transmission, in round
                trips of the link
  wire          Sends and RDMA Writes with their acknowledgements, and RDMA Reads, waited for or not
  messages      Sends, RDMA Writes, RDMA Read Requests and Responses
  interrupts    completions that the server waits for + those that the client waits for
  keys          windows of memory that the peer used
  bytes         of all messages, without headers below RDMA
  rtissues-03   the section of draft-dnoveck-nfsv4-rpcrdma-rtissues-03 that counts round trips,
                interrupts and registrations; = means that its counts are equal to these

--svg measures the time of a WRITE and of a long Call instead, from the call to its result, with the time of transmission. They \
have 8 KiB and 1 MiB of data and travel in each possible way, over distances from 0 to 1000 km. The command draws these curves into \
a file, with the lines of one and two round trips of the link, and prints them. With the same bandwidth the file is always the same.

--iwarp measures over software iWARP on the loopback interface, in real time, through a line that holds every byte for --delay. It \
shows the median of eleven operations in round trips of the line, and the number of round trips that this confirms. A median that \
is more than a quarter of a round trip from the count of rtissues-03 is a failure.

--json prints {kilometres, gigabits, rows: [{operation, mechanism, section, round_trips, wire_round_trips, messages, \
responder_interrupts, requester_interrupts, keys, bytes, microseconds, as_expected}]}; microseconds include the time of \
transmission. With --svg: {gigabits, panels: [{bytes, curves: [{operation, mechanism, section, points: [{kilometres, \
microseconds}]}]}]}. With --iwarp: {milliseconds_one_way, operations, margin, rows: [{operation, mechanism, section, milliseconds, \
milliseconds_least, round_trips, confirmed, document, as_expected}]}.";

/// Default length of the link, in kilometres.
const DISTANCE: f64 = 100.0;
/// Default delay of the delay line, one way. It is long compared with the time that the machine adds.
const DELAY: Duration = Duration::from_millis(20);
/// Least delay of the delay line, one way.
const LEAST_DELAY: Duration = Duration::from_millis(1);
/// Operations of each kind through the delay line.
const OPERATIONS: usize = 11;

/// Count the round trips of each way in which an operation can travel
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Roundtrips {
    /// Length of the link, in kilometres, 0.001 to 20000 [default: 100]
    #[arg(long, value_name = "KILOMETRES", value_parser = |text: &str| within(text, 0.001, 20_000.0))]
    distance: Option<f64>,
    /// Bandwidth of the link, each way, in gigabits a second, 0.001 to 1000
    #[arg(long, value_name = "GIGABITS", default_value = "40", value_parser = |text: &str| within(text, 0.001, 1000.0))]
    bandwidth: f64,
    /// Draw time by distance into this file instead, in SVG
    #[arg(long, value_name = "FILE", conflicts_with = "distance")]
    svg: Option<PathBuf>,
    /// Measure over software iWARP instead, in real time, with a delay line between client and server
    #[arg(long, conflicts_with_all = ["svg", "bandwidth"])]
    iwarp: bool,
    /// Delay of the delay line, one way, in milliseconds, 1 to 1000 [default: 20, or the delay of --distance]
    #[arg(long, value_name = "MILLISECONDS", requires = "iwarp", conflicts_with = "distance", value_parser = |text: &str| within(text, 1.0, 1000.0))]
    delay: Option<f64>,
}

/// Parses a number from `least` to `most`.
pub(super) fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not from {least} to {most}"))
    }
}

impl Roundtrips {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        match &self.svg {
            Some(file) => self.draw(file, common),
            None if self.iwarp => self.confirm(common),
            None => self.count(common),
        }
    }

    /// Returns bytes a second.
    fn bandwidth(&self) -> u64 {
        // Below 2^53: the conversion loses no measurable part.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the option")]
        let bandwidth = (self.bandwidth * GIGABIT) as u64;
        bandwidth
    }

    fn count(&self, common: Common) -> Result<(), Failure> {
        let kilometres = self.distance.unwrap_or(DISTANCE);
        let latency = latency(kilometres);
        let rows = MECHANISMS
            .iter()
            .map(|mechanism| {
                let counted = on_link(mechanism, LinkModel { latency, bandwidth: None })?;
                let timed = on_link(mechanism, LinkModel { latency, bandwidth: Some(self.bandwidth()) })?;
                Ok(Row::new(mechanism, &counted, timed.elapsed))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        if common.json {
            return output::json(&Document { kilometres, gigabits: self.bandwidth, rows });
        }
        let mut text = Text::stdout();
        text.line(format_args!(
            "{kilometres} km, {:.1} us there and back; {} Gb/s\n",
            latency.as_secs_f64() * 2e6,
            self.bandwidth
        ))?;
        text.line(table::HEAD)?;
        rows.iter().try_for_each(|row| text.line(row.line()))?;
        text.flush()
    }

    /// Runs `--svg`.
    fn draw(&self, file: &Path, common: Common) -> Result<(), Failure> {
        let picture = Picture::open(file)?;
        let curves = distances::measure(self.bandwidth(), self.bandwidth)?;
        picture.write(&plot::draw(&curves))?;
        if common.json {
            return output::json(&curves);
        }
        let mut text = Text::stdout();
        curves.lines().into_iter().try_for_each(|line| text.line(line))?;
        text.flush()
    }

    /// Runs `--iwarp`.
    fn confirm(&self, common: Common) -> Result<(), Failure> {
        let asked = self.delay.map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3));
        let delay = asked.or(self.distance.map(latency)).unwrap_or(DELAY);
        if delay < LEAST_DELAY {
            let milliseconds = delay.as_secs_f64() * 1e3;
            let wrong = format!(
                "--distance: {milliseconds} ms one way, at least 1 ms can be told from what the machine adds"
            );
            return Err(Failure::usage(wrong));
        }
        let rows = confirm_all(delay)?;
        let milliseconds = delay.as_secs_f64() * 1e3;
        let checked = rows.iter().try_for_each(confirm::Row::check);
        if common.json {
            output::json(&confirm::Document {
                milliseconds_one_way: milliseconds,
                operations: OPERATIONS,
                margin: confirm::MARGIN,
                rows,
            })?;
            return checked;
        }
        let mut text = Text::stdout();
        text.line(format_args!("{milliseconds} ms one way; {OPERATIONS} operations of each\n"))?;
        text.line(confirm::HEAD)?;
        rows.iter().try_for_each(|row| text.line(row.line()))?;
        text.flush()?;
        checked
    }
}

/// Runs all measurements in real time, until a signal comes.
fn confirm_all(delay: Duration) -> Result<Vec<confirm::Row>, Failure> {
    measured(async move {
        let mut rows = Vec::with_capacity(MECHANISMS.len());
        for mechanism in &MECHANISMS {
            rows.push(confirm(mechanism, delay, OPERATIONS).await?);
        }
        Ok(rows)
    })
}

/// Returns the latency of a link of this length, one way.
fn latency(kilometres: f64) -> Duration {
    Duration::from_secs_f64(kilometres * NANOSECONDS_PER_KILOMETRE / 1e9)
}

/// Measures on a runtime of its own, whose time begins anew.
fn on_link(mechanism: &Mechanism, link: LinkModel) -> Result<Measured, Failure> {
    virtual_time()?.block_on(measure(mechanism, link))
}
