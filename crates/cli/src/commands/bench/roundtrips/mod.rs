//! `rpcrdma bench roundtrips`: what each way of an operation costs in round trips, messages, interrupts and registrations, measured
//! on the simulated fabric with a link as long as one likes.

mod measure;
mod mechanisms;
mod program;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::measure::{LinkModel, Measured, measure, virtual_time};
use self::mechanisms::{MECHANISMS, Mechanism};
use crate::arguments::Common;
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
  octets        of all messages, without headers below RDMA
  rtissues-03   the section of draft-dnoveck-nfsv4-rpcrdma-rtissues-03 that counts round trips, interrupts and registrations of \
this, and whether these are the same

--json prints {kilometres, gigabits, rows: [{operation, mechanism, section, round_trips, wire_round_trips, messages, \
responder_interrupts, requester_interrupts, keys, octets, microseconds, as_expected}]}; microseconds with the time of transmission.";

/// Count the round trips of each way in which an operation can travel.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Roundtrips {
    /// Length of the link, in kilometres, 0.001 to 20000
    #[arg(long, value_name = "KILOMETRES", default_value = "100", value_parser = |text: &str| within(text, 0.001, 20_000.0))]
    distance: f64,
    /// Bandwidth of the link, each way, in gigabits a second, 0.001 to 1000
    #[arg(long, value_name = "GIGABITS", default_value = "40", value_parser = |text: &str| within(text, 0.001, 1000.0))]
    bandwidth: f64,
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not from {least} to {most}"))
    }
}

#[derive(Debug, Serialize)]
struct Document {
    kilometres: f64,
    gigabits: f64,
    rows: Vec<Row>,
}

/// One way of one operation.
#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    mechanism: &'static str,
    section: &'static str,
    round_trips: f64,
    wire_round_trips: usize,
    messages: usize,
    responder_interrupts: usize,
    requester_interrupts: usize,
    keys: usize,
    octets: usize,
    microseconds: f64,
    /// Whether the document counts the same.
    as_expected: bool,
}

impl Row {
    fn new(mechanism: &Mechanism, measured: &Measured, elapsed: Duration) -> Self {
        Self {
            operation: mechanism.operation.name(),
            mechanism: mechanism.name,
            section: mechanism.section,
            round_trips: measured.round_trips,
            wire_round_trips: measured.wire_round_trips,
            messages: measured.messages,
            responder_interrupts: measured.responder,
            requester_interrupts: measured.requester,
            keys: measured.registrations,
            octets: measured.octets,
            microseconds: elapsed.as_secs_f64() * 1e6,
            as_expected: measured.counts() == Some(mechanism.expected),
        }
    }

    fn line(&self) -> String {
        let interrupts = format!("{} + {}", self.responder_interrupts, self.requester_interrupts);
        let equal = if self.as_expected { "=" } else { "not" };
        let document = format!("{equal} {}", self.section);
        format!(
            "| {:30} | {:49} | {:11.2} | {:4} | {:8} | {interrupts:10} | {:4} | {:6} | {:9.1} us | {document:15} |",
            self.operation,
            self.mechanism,
            self.round_trips,
            self.wire_round_trips,
            self.messages,
            self.keys,
            self.octets,
            self.microseconds
        )
    }
}

const HEAD: &str = "\
| operation                      | mechanism                                         | round trips | wire | messages | interrupts | keys | octets |         time | rtissues-03     |
| ------------------------------ | ------------------------------------------------- | ----------: | ---: | -------: | ---------- | ---: | -----: | -----------: | --------------- |";

impl Roundtrips {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        let latency = Duration::from_secs_f64(self.distance * NANOSECONDS_PER_KILOMETRE / 1e9);
        let rows = MECHANISMS
            .iter()
            .map(|mechanism| {
                // A number of octets a second below 2^53: nothing is lost that could be measured.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "bounded by the option"
                )]
                let bandwidth = (self.bandwidth * GIGABIT) as u64;
                let counted = on_link(mechanism, LinkModel { latency, bandwidth: None })?;
                let timed = on_link(mechanism, LinkModel { latency, bandwidth: Some(bandwidth) })?;
                Ok(Row::new(mechanism, &counted, timed.elapsed))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        if common.json {
            return output::json(&Document { kilometres: self.distance, gigabits: self.bandwidth, rows });
        }
        let mut text = Text::stdout();
        text.line(format_args!(
            "{} km, {:.1} us there and back; {} Gb/s\n",
            self.distance,
            latency.as_secs_f64() * 2e6,
            self.bandwidth
        ))?;
        text.line(HEAD)?;
        rows.iter().try_for_each(|row| text.line(row.line()))?;
        text.flush()
    }
}

/// A runtime for each: time begins anew.
fn on_link(mechanism: &Mechanism, link: LinkModel) -> Result<Measured, Failure> {
    virtual_time()?.block_on(measure(mechanism, link))
}
