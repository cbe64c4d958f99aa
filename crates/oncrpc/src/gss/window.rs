//! The window of sequence numbers (RFC 2203 §5.3.3.1).

use std::fmt;

use super::wire::SEQUENCE_END;

/// Sequence numbers that the server remembers, and requests that may be outstanding at a time.
///
/// A request with much data may be checked after many short ones that were sent later. In a small window it would be too old
/// by then, and would get no reply. A large window costs only memory: this one takes 512 bytes of a context.
pub const WINDOW: u32 = 4096;

/// Words that have a bit for each number of the window.
const WORDS: usize = (WINDOW / u64::BITS) as usize;

/// Sequence numbers that were seen: the highest, and which of those just below it.
#[derive(Clone)]
pub(super) struct SequenceWindow {
    /// `None` before the first request.
    highest: Option<u32>,
    /// Bit `n % WINDOW` stands for the number `n`.
    seen: Box<[u64; WORDS]>,
}

impl Default for SequenceWindow {
    fn default() -> Self {
        Self { highest: None, seen: Box::new([0; WORDS]) }
    }
}

impl fmt::Debug for SequenceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceWindow").field("highest", &self.highest).finish_non_exhaustive()
    }
}

/// Returns the word of a number, and its bit there.
const fn place(sequence: u32) -> (usize, u64) {
    let bit = sequence % WINDOW;
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}

impl SequenceWindow {
    fn set(&mut self, sequence: u32, seen: bool) {
        let (word, bit) = place(sequence);
        if let Some(word) = self.seen.get_mut(word) {
            *word = if seen { *word | bit } else { *word & !bit };
        }
    }

    /// Returns whether a request with this number was seen before, or would be too old to tell. RFC 2203 §5.3.3.1: such a
    /// request is silently discarded.
    pub(super) fn is_seen(&self, sequence: u32) -> bool {
        let Some(highest) = self.highest else { return false };
        match highest.checked_sub(sequence) {
            None => false,
            Some(WINDOW..) => true,
            Some(_) => {
                let (word, bit) = place(sequence);
                self.seen.get(word).is_none_or(|word| word & bit != 0)
            }
        }
    }

    /// Records a request whose header was verified. Returns whether it is new.
    pub(super) fn admit(&mut self, sequence: u32) -> bool {
        if self.is_seen(sequence) || sequence >= SEQUENCE_END {
            return false;
        }
        match self.highest {
            Some(highest) if sequence <= highest => {}
            Some(highest) if sequence - highest < WINDOW => {
                // The bits of numbers that fall out of the window become those of new ones.
                (highest + 1..sequence).for_each(|skipped| self.set(skipped, false));
                self.highest = Some(sequence);
            }
            _ => {
                self.seen.fill(0);
                self.highest = Some(sequence);
            }
        }
        self.set(sequence, true);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    // requirement: rfc2203-5.3.3.1-3, rfc2203-5.3.3.1-5, rfc2203-5.3.3.1-6, rfc2203-5.3.3.1-7
    #[test]
    fn numbers_count_once_in_any_order_within_the_window() {
        const FIRST: u32 = 10_000;
        let mut window = SequenceWindow::default();
        assert!(window.admit(FIRST) && !window.admit(FIRST));
        assert!(window.admit(FIRST - WINDOW + 1));
        assert!(!window.admit(FIRST - WINDOW), "too old to tell");
        assert!(window.admit(FIRST + 2) && window.admit(FIRST + 1));
        assert!(!window.admit(FIRST - WINDOW + 2), "fell out of the window");
        assert!(window.admit(FIRST - WINDOW + 3) && !window.admit(FIRST - WINDOW + 3));
        assert!(window.admit(FIRST + 2 + 2 * WINDOW), "far above");
        assert!(!window.admit(FIRST + 2));
        assert!(window.admit(FIRST + 3 + WINDOW), "the other end of the window");
    }

    // requirement: rfc2203-5-9
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
        // requirement: rfc2203-5.3.3.1-3, rfc2203-5.3.3.1-5, rfc2203-5.3.3.1-6, rfc2203-5.3.3.1-7
        #[test]
        fn the_window_is_that_of_the_document(
            numbers in proptest::collection::vec(
                prop_oneof![0..100_u32, WINDOW - 50..WINDOW + 50, 0..3 * WINDOW],
                1..400,
            ),
        ) {
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
