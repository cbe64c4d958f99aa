//! Rounds, medians and the table of ratios.

use serde::Serialize;

/// Target for a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// No target: the number is for information.
    None,
}

impl Target {
    pub(super) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
            Self::None => true,
        }
    }

    pub(super) fn show(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound:.2}"),
            Self::AtMost(bound) => format!("<= {bound:.2}"),
            Self::None => String::new(),
        }
    }
}

/// Unit of the numbers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Bytes a second.
    Throughput,
    /// Seconds.
    Time,
    /// Bytes.
    Memory,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "bytes/s",
            Self::Time => "seconds",
            Self::Memory => "bytes",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Throughput => format!("{:.2} GB/s", value / 1e9),
            Self::Time => format!("{:.1} us", value * 1e6),
            Self::Memory => format!("{:.2} MiB", value / f64::from(1 << 20)),
        }
    }
}

/// A subject, measured together with its base in each round.
#[derive(Clone, Debug)]
pub(super) struct Row {
    name: &'static str,
    unit: Unit,
    target: Target,
    /// Subject and base, by round.
    pairs: Vec<(f64, f64)>,
}

/// JSON document of a row.
#[derive(Debug, Serialize)]
pub(super) struct RowDocument {
    name: &'static str,
    unit: &'static str,
    value: f64,
    base: f64,
    ratio: f64,
    ratio_least: f64,
    ratio_most: f64,
    target: String,
    met: bool,
}

impl Row {
    pub(super) const fn new(name: &'static str, unit: Unit, target: Target) -> Self {
        Self { name, unit, target, pairs: Vec::new() }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, value: f64, base: f64) {
        self.pairs.push((value, base));
    }

    fn ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|(value, base)| value / base).collect()
    }

    /// Returns the medians of this row.
    pub(super) fn document(&self) -> RowDocument {
        let ratios = self.ratios();
        let ratio = median(ratios.clone());
        RowDocument {
            name: self.name,
            unit: self.unit.name(),
            value: median(self.pairs.iter().map(|pair| pair.0).collect()),
            base: median(self.pairs.iter().map(|pair| pair.1).collect()),
            ratio,
            ratio_least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_most: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            target: self.target.show(),
            met: self.target.is_met(ratio),
        }
    }

    /// Returns a line of the table in Markdown, which is also plain text.
    pub(super) fn line(&self) -> String {
        let row = self.document();
        format!(
            "| {:<40} | {:>12} | {:>12} | {:>5.2} | {:>11} | {:>7} |",
            row.name,
            self.unit.show(row.value),
            self.unit.show(row.base),
            row.ratio,
            format!("{:.2}-{:.2}", row.ratio_least, row.ratio_most),
            row.target,
        )
    }
}

/// Heading of the table.
pub(super) const HEAD: &str = "\
| what                                     |        value |         base | ratio |  min - max  |  target |
| ---------------------------------------- | -----------: | -----------: | ----: | ----------: | ------: |";

/// Returns the median; of an even number of values, the mean of the two in the middle; of none, 0.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    let half = values.len() / 2;
    if values.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn a_ratio_is_taken_in_each_round() {
        let mut row = Row::new("x", Unit::Throughput, Target::AtLeast(0.5));
        for (value, base) in [(1.0, 2.0), (6.0, 10.0), (1.0, 10.0)] {
            row.add(value, base);
        }
        let document = row.document();
        assert_eq!((document.ratio, document.ratio_least, document.ratio_most), (0.5, 0.1, 0.6));
        assert!(document.met);
        assert!(!Target::AtMost(1.5).is_met(1.6));
    }
}
