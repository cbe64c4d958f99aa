//! Rounds of a measure, and what is shown of them: medians and range.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, ensure};

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Round {
    pub(crate) value: f64,
    /// Divisor of the value; `None` if the value counts by itself.
    pub(crate) base: Option<f64>,
}

impl Round {
    pub(crate) const fn ratio(value: f64, base: f64) -> Self {
        Self { value, base: Some(base) }
    }

    pub(crate) const fn value(value: f64) -> Self {
        Self { value, base: None }
    }

    fn measured(self) -> f64 {
        self.base.map_or(self.value, |base| self.value / base)
    }
}

/// Result of a measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Median of the rounds: of their ratios, where there is a base.
    pub(crate) measured: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) rounds: usize,
    /// Median of the values.
    pub(crate) value: f64,
    /// Median of the bases.
    pub(crate) base: Option<f64>,
}

impl Figure {
    /// Returns the medians and the range of some rounds.
    pub(crate) fn of(rounds: &[Round]) -> Result<Self, Failure> {
        ensure!(!rounds.is_empty(), "nothing was measured");
        let measured: Vec<f64> = rounds.iter().map(|round| round.measured()).collect();
        ensure!(measured.iter().all(|number| number.is_finite()), "a base is 0");
        let bases: Option<Vec<f64>> = rounds.iter().map(|round| round.base).collect();
        Ok(Self {
            least: measured.iter().copied().fold(f64::INFINITY, f64::min),
            most: measured.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            measured: median(measured),
            rounds: rounds.len(),
            value: median(rounds.iter().map(|round| round.value).collect()),
            base: bases.map(median),
        })
    }
}

/// Returns the median; of an even number of values, the mean of the two in the middle; of none, 0.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    let half = values.len() / 2;
    if values.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.saturating_sub(1)), at(half)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_in_each_round() {
        let rounds = [Round::ratio(1.0, 2.0), Round::ratio(6.0, 10.0), Round::ratio(1.0, 10.0)];
        let figure = Figure::of(&rounds).unwrap();
        assert_eq!((figure.measured, figure.least, figure.most), (0.5, 0.1, 0.6));
        assert_eq!((figure.value, figure.base, figure.rounds), (1.0, Some(10.0), 3));
    }

    #[test]
    fn a_value_without_base_counts_by_itself() {
        let figure = Figure::of(&[Round::value(3.0), Round::value(5.0)]).unwrap();
        assert_eq!((figure.measured, figure.least, figure.most), (4.0, 3.0, 5.0));
        assert_eq!(figure.base, None);
    }

    #[test]
    fn no_round_and_no_base_are_failures() {
        assert!(Figure::of(&[]).is_err());
        assert!(Figure::of(&[Round::ratio(1.0, 0.0)]).unwrap_err().to_string().contains("base"));
        assert!(Figure::of(&[Round::ratio(0.0, 0.0)]).is_err());
    }

    #[test]
    fn a_figure_survives_its_way_between_processes() {
        let figure = Figure::of(&[Round::ratio(1.0, 4.0)]).unwrap();
        let text = serde_json::to_string(&figure).unwrap();
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), figure);
    }
}
