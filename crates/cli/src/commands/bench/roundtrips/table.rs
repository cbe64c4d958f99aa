//! Costs of each way of an operation on a simulated link, as rows of text and of JSON.

use std::time::Duration;

use serde::Serialize;

use super::measure::Measured;
use super::mechanisms::{Mechanism, Way};

/// JSON document of all ways, on this link.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) kilometres: f64,
    pub(super) gigabits: f64,
    pub(super) rows: Vec<Row>,
}

/// A way of an operation.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    way: Way,
    round_trips: f64,
    wire_round_trips: usize,
    messages: usize,
    responder_interrupts: usize,
    requester_interrupts: usize,
    keys: usize,
    bytes: usize,
    microseconds: f64,
    /// Whether the counts equal those of the document.
    as_expected: bool,
}

impl Row {
    pub(super) fn new(mechanism: &Mechanism, measured: &Measured, elapsed: Duration) -> Self {
        Self {
            way: mechanism.way(),
            round_trips: measured.round_trips,
            wire_round_trips: measured.wire_round_trips,
            messages: measured.messages,
            responder_interrupts: measured.responder,
            requester_interrupts: measured.requester,
            keys: measured.registrations,
            bytes: measured.bytes,
            microseconds: elapsed.as_secs_f64() * 1e6,
            as_expected: measured.counts() == Some(mechanism.expected),
        }
    }

    pub(super) fn line(&self) -> String {
        let interrupts = format!("{} + {}", self.responder_interrupts, self.requester_interrupts);
        let equal = if self.as_expected { "=" } else { "not" };
        let Way { operation, mechanism, section } = self.way;
        let document = format!("{equal} {section}");
        format!(
            "| {operation:30} | {mechanism:49} | {:11.2} | {:4} | {:8} | {interrupts:10} | {:4} | {:6} | {:9.1} us | {document:15} |",
            self.round_trips, self.wire_round_trips, self.messages, self.keys, self.bytes, self.microseconds
        )
    }
}

pub(super) const HEAD: &str = "\
| operation                      | mechanism                                         | round trips | wire | messages | interrupts | keys | bytes |         time | rtissues-03     |
| ------------------------------ | ------------------------------------------------- | ----------: | ---: | -------: | ---------- | ---: | -----: | -----------: | --------------- |";
