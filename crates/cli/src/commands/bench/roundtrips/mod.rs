//! `rpcrdma bench roundtrips`: what each way of an operation costs in round trips, messages, interrupts and registrations, measured
//! on the simulated fabric with a link as long as one likes, and over iWARP through a delay line.

mod confirm;
mod delay;
mod distances;
mod measure;
mod mechanisms;
mod plot;
mod program;
mod svg;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use self::confirm::confirm;
use self::measure::{LinkModel, Measured, measure, virtual_time};
pub(super) use self::mechanisms::Operation;
use self::mechanisms::{MECHANISMS, Mechanism};
pub(super) use self::program::{Transfers, carry_out};
use self::table::{Document, Row};
use crate::arguments::Common;
use crate::commands::bench::failed;
use crate::commands::until_signal;
use crate::exit::Failure;
use crate::output::{self, Text};

/// One way through a kilometre of fibre, as rtissues-03 §1.2 has it: 16 µs for a mile there and back.
const NANOSECONDS_PER_KILOMETRE: f64 = 16_000.0 / 2.0 / 1.609_344;
const GIGABIT: f64 = 1e9 / 8.0;

const AFTER_HELP: &str = "\
Client and server run on a simulated fabric in virtual time; nothing but the link takes any. Each operation is carried out once, on \
a connection that was used before.

  round trips   elapsed time over that of a round trip, without the time of transmission: what the client waits for
  wire          Sends and RDMA Writes with their acknowledgements, and RDMA Reads, waited for or not
  messages      Sends, RDMA Writes, RDMA Read Requests and Responses
  interrupts    moments at which something completes that the server, and the client, wait for
  keys          windows of memory that the peer used
  bytes        of all messages, without headers below RDMA
  rtissues-03   the section of draft-dnoveck-nfsv4-rpcrdma-rtissues-03 that counts round trips, interrupts and registrations of \
this, and whether these are the same

--svg measures something else: the time that a WRITE, and a long Call, of 8 KiB and of 1 MiB takes from the call to its result, with \
that of transmission, in each way in which it can travel, at distances from 0 to 1000 km. It draws these curves into a file, with \
the lines of one and two round trips of the link, and prints them. Equal bandwidths make equal files.

--iwarp measures over software iWARP on the loopback interface, in real time, through a line that holds every byte for --delay: \
the median of eleven operations, by round trips of the line, and which number of them that confirms. One that is more than a \
quarter of a round trip from what rtissues-03 counts is a failure.

--json prints {kilometres, gigabits, rows: [{operation, mechanism, section, round_trips, wire_round_trips, messages, \
responder_interrupts, requester_interrupts, keys, bytes, microseconds, as_expected}]}; microseconds with the time of transmission. \
With --svg: {gigabits, panels: [{bytes, curves: [{operation, mechanism, section, points: [{kilometres, microseconds}]}]}]}. \
With --iwarp: {milliseconds_one_way, operations, margin, rows: [{operation, mechanism, section, milliseconds, milliseconds_least, \
round_trips, confirmed, document, as_expected}]}.";

/// Kilometres, if nothing else is said.
const DISTANCE: f64 = 100.0;
/// Of the delay line one way, if nothing else is said: large against what the machine adds.
const DELAY: Duration = Duration::from_millis(20);
/// The least of it.
const LEAST_DELAY: Duration = Duration::from_millis(1);
/// Through the delay line, of each.
const OPERATIONS: usize = 11;

/// Count the round trips of each way in which an operation can travel.
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
    /// What the delay line takes, one way, in milliseconds, 1 to 1000 [default: 20, or what --distance takes]
    #[arg(long, value_name = "MILLISECONDS", requires = "iwarp", conflicts_with = "distance", value_parser = |text: &str| within(text, 1.0, 1000.0))]
    delay: Option<f64>,
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
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

    /// Bytes a second.
    fn bandwidth(&self) -> u64 {
        // Below 2^53: nothing is lost that could be measured.
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

    /// `--svg`
    fn draw(&self, file: &Path, common: Common) -> Result<(), Failure> {
        let curves = distances::measure(self.bandwidth(), self.bandwidth)?;
        std::fs::write(file, plot::draw(&curves))
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))?;
        if common.json {
            return output::json(&curves);
        }
        let mut text = Text::stdout();
        curves.lines().into_iter().try_for_each(|line| text.line(line))?;
        text.flush()
    }

    /// `--iwarp`
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

/// A runtime in real time, for all of a measurement or until a signal comes.
fn confirm_all(delay: Duration) -> Result<Vec<confirm::Row>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start a runtime"))?;
    let mut rows = Vec::with_capacity(MECHANISMS.len());
    runtime.block_on(until_signal(async {
        for mechanism in &MECHANISMS {
            rows.push(confirm(mechanism, delay, OPERATIONS).await?);
        }
        Ok(())
    }))?;
    Ok(rows)
}

/// Of a link so long, one way.
fn latency(kilometres: f64) -> Duration {
    Duration::from_secs_f64(kilometres * NANOSECONDS_PER_KILOMETRE / 1e9)
}

/// A runtime for each: time begins anew.
fn on_link(mechanism: &Mechanism, link: LinkModel) -> Result<Measured, Failure> {
    virtual_time()?.block_on(measure(mechanism, link))
}
