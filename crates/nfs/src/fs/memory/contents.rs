//! The bytes of a file in memory: pages of up to 64 KiB, absent where no data was ever written.
//!
//! Growth never moves existing data. A page is as long as the data written to it, and the rest reads as
//! zeros. So a small file needs only its size.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = 64 * 1024;

/// Sparse, growable sequence of bytes.
#[derive(Debug, Default)]
pub(super) struct Contents {
    size: u64,
    used: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Returns the page of an offset, the position in it, and the part of `length` that fits into it.
fn locate(offset: u64, length: usize) -> (u64, usize, usize) {
    let within = usize::try_from(offset % PAGE).unwrap_or_default();
    let room = usize::try_from(PAGE).unwrap_or_default() - within;
    (offset / PAGE, within, length.min(room))
}

impl Contents {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of bytes held.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Fills the beginning of `buffer` from `offset`. Returns the number of bytes.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut rest = buffer.get_mut(..wanted).unwrap_or_default();
        let mut at = offset;
        while !rest.is_empty() {
            let (page, within, count) = locate(at, rest.len());
            let (head, tail) = rest.split_at_mut(count);
            let stored = self.pages.get(&page).and_then(|page| page.get(within..)).unwrap_or_default();
            let present = stored.len().min(count);
            let (data, zeros) = head.split_at_mut(present);
            data.copy_from_slice(stored.get(..present).unwrap_or_default());
            zeros.fill(0);
            at += count as u64;
            rest = tail;
        }
        wanted
    }

    /// Returns the ranges with written data from `offset` on, at most `limit`, and whether these are all.
    pub(super) fn extents(&self, offset: u64, limit: usize) -> (Vec<Range<u64>>, bool) {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (number, page) in self.pages.range(offset / PAGE..) {
            let start = number * PAGE;
            let range = start.max(offset)..start + page.len() as u64;
            if range.is_empty() {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => {
                    if ranges.len() == limit {
                        return (ranges, false);
                    }
                    ranges.push(range);
                }
            }
        }
        (ranges, true)
    }

    /// Returns the most bytes that a write of `length` at `offset` adds to those held.
    pub(super) fn growth(&self, offset: u64, length: usize) -> u64 {
        let mut growth = 0;
        let mut at = offset;
        let mut rest = length;
        while rest > 0 {
            let (page, within, count) = locate(at, rest);
            let held = self.pages.get(&page).map_or(0, Vec::len);
            growth += (within + count).saturating_sub(held) as u64;
            at += count as u64;
            rest -= count;
        }
        growth
    }

    /// Stores `data` at `offset`. The caller has checked that the end does not overflow.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (number, within, count) = locate(at, rest.len());
            let (head, tail) = rest.split_at(count);
            let page = self.pages.entry(number).or_default();
            if page.len() < within {
                self.used += (within - page.len()) as u64;
                page.resize(within, 0);
            }
            let replaced = (page.len() - within).min(count);
            let (over, new) = head.split_at(replaced);
            if let Some(target) = page.get_mut(within..within + replaced) {
                target.copy_from_slice(over);
            }
            page.extend_from_slice(new);
            self.used += new.len() as u64;
            at += count as u64;
            rest = tail;
        }
        if !data.is_empty() {
            self.size = self.size.max(at);
        }
    }

    /// Truncates the file, or extends it with zeros.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            let (last, within, _) = locate(size, 0);
            let mut gone = self.pages.split_off(&last);
            if let Some(mut page) = gone.remove(&last) {
                let cut = page.len().saturating_sub(within);
                page.truncate(within);
                self.used -= cut as u64;
                if !page.is_empty() {
                    self.pages.insert(last, page);
                }
            }
            self.used -= gone.values().map(|page| page.len() as u64).sum::<u64>();
        }
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Resize(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let offset = 0..4 * PAGE;
        prop_oneof![
            (offset.clone(), proptest::collection::vec(1u8.., 0..3 * 1024))
                .prop_map(|(at, data)| Step::Write(at, data)),
            (PAGE - 2..PAGE + 2, proptest::collection::vec(1u8.., 0..70_000))
                .prop_map(|(at, data)| Step::Write(at, data)),
            offset.prop_map(Step::Resize),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pages_behave_like_one_vector(steps in proptest::collection::vec(step(), 1..12)) {
            let mut contents = Contents::default();
            let mut model: Vec<u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(at, data) => {
                        let bound = contents.used() + contents.growth(at, data.len());
                        contents.write(at, &data);
                        prop_assert!(contents.used() <= bound);
                        let at = usize::try_from(at).unwrap();
                        if !data.is_empty() {
                            model.resize(model.len().max(at + data.len()), 0);
                            model[at..at + data.len()].copy_from_slice(&data);
                        }
                    }
                    Step::Resize(size) => {
                        contents.resize(size);
                        model.resize(usize::try_from(size).unwrap(), 0);
                    }
                }
                prop_assert_eq!(contents.used(), contents.pages.values().map(|p| p.len() as u64).sum::<u64>());
            }
            let mut read = vec![0xff; model.len() + 10];
            let length = contents.read(0, &mut read);
            prop_assert_eq!(&read[..length], &model[..]);
        }
    }

    #[test]
    fn a_hole_costs_nothing_and_reads_as_zero() {
        let mut contents = Contents::default();
        contents.write(1 << 40, b"end");
        assert!(contents.used() <= PAGE);
        let mut buffer = [1u8; 8];
        assert_eq!(contents.read((1 << 40) - 5, &mut buffer), 8);
        assert_eq!(&buffer, b"\0\0\0\0\0end");
        assert_eq!(contents.read(contents.size(), &mut buffer), 0);
    }
}
