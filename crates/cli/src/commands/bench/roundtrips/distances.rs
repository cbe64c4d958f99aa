//! Latency by distance of a small and a large WRITE and of a long Call, in each way in which they can travel.
//! These are the data of `--svg`.
//!
//! Every point is measured on the simulated fabric, with the time of transmission.

use std::time::Duration;

use serde::Serialize;

use super::measure::LinkModel;
use super::mechanisms::{DATA, LARGE, LARGE_DATA, MECHANISMS, Mechanism, Way};
use super::{latency, on_link};
use crate::commands::bench::program::Operation;
use crate::exit::Failure;

/// Length of the link, in kilometres.
const DISTANCES: [f64; 11] = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0];

/// Results of all measurements.
#[derive(Debug, Serialize)]
pub(super) struct Curves {
    /// Bandwidth each way, in gigabits a second.
    pub(super) gigabits: f64,
    pub(super) panels: Vec<Panel>,
}

/// Operations of one size.
#[derive(Debug, Serialize)]
pub(super) struct Panel {
    /// Bytes of data.
    pub(super) bytes: usize,
    pub(super) curves: Vec<Curve>,
}

/// A way of an operation.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    #[serde(flatten)]
    pub(super) way: Way,
    pub(super) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// Length of the link.
    pub(super) kilometres: f64,
    /// Time from the call to its result.
    pub(super) microseconds: f64,
}

/// Measures all curves on links of this bandwidth, given in bytes a second and in gigabits a second.
pub(super) fn measure(bandwidth: u64, gigabits: f64) -> Result<Curves, Failure> {
    let small = MECHANISMS.iter().filter(|mechanism| is_write(mechanism.operation, DATA));
    let panels = [(DATA, small.collect()), (LARGE_DATA, LARGE.iter().collect::<Vec<_>>())];
    let panels = panels
        .into_iter()
        .map(|(bytes, mechanisms)| {
            let curves = mechanisms.into_iter().map(|mechanism| curve(mechanism, bandwidth));
            Ok(Panel { bytes, curves: curves.collect::<Result<_, Failure>>()? })
        })
        .collect::<Result<_, Failure>>()?;
    Ok(Curves { gigabits, panels })
}

/// Returns whether a Call carries this much data, eligible or not.
fn is_write(operation: Operation, bytes: usize) -> bool {
    operation == Operation::Put(bytes) || operation == Operation::LongCall(bytes)
}

fn curve(mechanism: &Mechanism, bandwidth: u64) -> Result<Curve, Failure> {
    let point = |kilometres: f64| {
        let link = LinkModel { latency: latency(kilometres), bandwidth: Some(bandwidth) };
        let elapsed: Duration = on_link(mechanism, link)?.elapsed;
        Ok(Point { kilometres, microseconds: elapsed.as_secs_f64() * 1e6 })
    };
    Ok(Curve {
        way: mechanism.way(),
        points: DISTANCES.into_iter().map(point).collect::<Result<_, Failure>>()?,
    })
}

impl Curves {
    /// Returns a table for each panel in Markdown, which is also plain text: milliseconds by distance.
    pub(super) fn lines(&self) -> Vec<String> {
        let distances = |cell: &dyn Fn(f64) -> String| DISTANCES.into_iter().map(cell).collect::<String>();
        let mut lines = Vec::new();
        for Panel { bytes, curves } in &self.panels {
            let head = distances(&|kilometres| format!(" {:>7} |", format!("{kilometres} km")));
            lines.push(format!("| {:30} | {:35} |{head}", size(*bytes) + ", milliseconds", "mechanism"));
            let rule = distances(&|_| " ------: |".to_owned());
            lines.push(format!("| {} | {} |{rule}", "-".repeat(30), "-".repeat(35)));
            for Curve { way: Way { operation, mechanism, .. }, points } in curves {
                let times = points.iter().map(|point| format!(" {:7.3} |", point.microseconds / 1e3));
                lines.push(format!("| {operation:30} | {mechanism:35} |{}", times.collect::<String>()));
            }
            lines.push(String::new());
        }
        lines.pop();
        lines
    }
}

/// Returns a number of bytes as text.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Measures the curves of `--svg` with its defaults.
    pub(in super::super) fn measured() -> Curves {
        measure(5_000_000_000, 40.0).unwrap()
    }

    /// rtissues-03 §2.2, §3.2 to §3.4: with each kilometre, the time grows by the counted round trips of the
    /// document, whatever the transmission takes.
    #[test]
    fn rtissues_s2_s3_the_slope_of_a_curve_is_the_count_of_the_document() {
        let Curves { panels, .. } = measured();
        let counts = panels.iter().map(|panel| {
            let count = |curve: &Curve| {
                let points = &curve.points;
                let ([first, ..], [.., last]) = (&points[..], &points[..]) else { panic!("no points") };
                assert_eq!((first.kilometres, last.kilometres), (0.0, 1000.0));
                let trip = latency(last.kilometres).as_secs_f64() * 2e6;
                let slope = (last.microseconds - first.microseconds) / trip;
                assert!((slope - slope.round()).abs() < 1e-3, "{}: {slope}", curve.way.mechanism);
                // The line between them is straight.
                for point in points {
                    let there = first.microseconds + slope * trip * point.kilometres / last.kilometres;
                    assert!((point.microseconds - there).abs() < 1.0, "{}: {point:?}", curve.way.mechanism);
                }
                (curve.way.mechanism, slope.round())
            };
            (size(panel.bytes), panel.curves.iter().map(count).collect::<Vec<_>>())
        });
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [
                (
                    "8 KiB".to_owned(),
                    vec![
                        ("Read chunk", 2.0),
                        ("Position-Zero Read chunk", 2.0),
                        ("continuation", 1.0),
                        ("placement by Send", 1.0)
                    ]
                ),
                (
                    "1 MiB".to_owned(),
                    vec![
                        ("Read chunk", 2.0),
                        ("Position-Zero Read chunk", 2.0),
                        ("continuation", 1.0),
                        ("placement by Sends and continuation", 1.0)
                    ]
                ),
            ]
        );
    }
}
