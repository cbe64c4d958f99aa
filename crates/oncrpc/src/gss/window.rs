//! The window of sequence numbers (RFC 2203 §5.3.3.1).

use super::wire::SEQUENCE_END;

/// Sequence numbers that the server remembers, and requests that may be outstanding at a time.
pub const WINDOW: u32 = u128::BITS;

/// Sequence numbers that were seen: the highest, and which of those just below it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SequenceWindow {
    /// `None` before the first request.
    highest: Option<u32>,
    /// Bit `n` stands for the number `highest - n`.
    seen: u128,
}

impl SequenceWindow {
    /// Returns whether a request with this number was seen before, or would be too old to tell. RFC 2203 §5.3.3.1: such a
    /// request is silently discarded.
    pub(super) fn is_seen(&self, sequence: u32) -> bool {
        let Some(highest) = self.highest else { return false };
        match highest.checked_sub(sequence) {
            None => false,
            Some(back) => 1_u128.checked_shl(back).is_none_or(|bit| self.seen & bit != 0),
        }
    }

    /// Records a request whose header was verified. Returns whether it is new.
    pub(super) fn admit(&mut self, sequence: u32) -> bool {
        if self.is_seen(sequence) || sequence >= SEQUENCE_END {
            return false;
        }
        match self.highest {
            Some(highest) if sequence <= highest => {
                self.seen |= 1_u128.checked_shl(highest - sequence).unwrap_or(0);
            }
            highest => {
                let on = sequence - highest.unwrap_or(sequence);
                self.seen = self.seen.checked_shl(on).unwrap_or(0) | 1;
                self.highest = Some(sequence);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_once_in_any_order_within_the_window() {
        let mut window = SequenceWindow::default();
        assert!(window.admit(500) && !window.admit(500));
        assert!(window.admit(500 - WINDOW + 1));
        assert!(!window.admit(500 - WINDOW), "too old to tell");
        assert!(window.admit(502) && window.admit(501));
        assert!(!window.admit(500 - WINDOW + 2) || !window.admit(500 - WINDOW + 2));
        assert!(window.admit(502 + 2 * WINDOW), "far above");
        assert!(!window.admit(502));
    }

    #[test]
    fn the_ends_of_the_numbers_are_numbers() {
        let mut window = SequenceWindow::default();
        assert!(window.admit(0) && !window.admit(0));
        assert!(window.admit(SEQUENCE_END - 1));
        assert!(!window.admit(SEQUENCE_END) && !window.admit(u32::MAX));
        assert!(!window.admit(0));
    }

    proptest! {
        /// The window agrees with a model that remembers everything.
        #[test]
        fn the_window_is_that_of_the_document(numbers in proptest::collection::vec(0..600_u32, 1..400)) {
            let (mut window, mut seen) = (SequenceWindow::default(), BTreeSet::new());
            for number in numbers {
                let new = match seen.last() {
                    Some(highest) => number > *highest || (number + WINDOW > *highest && !seen.contains(&number)),
                    None => true,
                };
                prop_assert_eq!(window.is_seen(number), !new);
                prop_assert_eq!(window.admit(number), new);
                if new {
                    seen.insert(number);
                }
            }
        }
    }
}
