//! The read-ahead: received bytes of a connection that have no place yet.
//!
//! A connection owns a block of memory only while bytes wait in it, so an idle connection owns none. Free blocks are
//! kept for the next connection on the thread. The block of a connection is returned when its last byte is consumed, or
//! when a read brings no byte. A few bytes that wait for more move into memory of their length. So a peer cannot make
//! each of its connections hold a block by sending one byte.

use std::cell::RefCell;
use std::ops::Range;

/// Length of a block, in bytes: about 22 FPDUs of an Ethernet frame each.
const BLOCK_LEN: usize = 32 * 1024;
/// Largest number of bytes that do not keep a block while the connection is at rest. So a block is held for more than a
/// quarter of its length only.
const SHORT: usize = BLOCK_LEN / 4;
/// Maximum number of free blocks that a thread keeps. One is enough unless connections stop within an FPDU.
const SPARE_MAX: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// The read-ahead of a connection.
#[derive(Debug)]
pub(super) struct ReadAhead {
    capacity: usize,
    block: Option<Box<[u8]>>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    /// Returns a read-ahead that holds `behind`, with blocks of at least `least` bytes.
    pub(super) fn new(least: usize, behind: &[u8]) -> Self {
        let mut ahead =
            Self { capacity: BLOCK_LEN.max(least).max(behind.len()), block: None, start: 0, end: 0 };
        ahead.space(behind.len()).copy_from_slice(behind);
        ahead.filled(behind.len());
        ahead
    }

    /// Returns the largest number of bytes that can wait.
    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes that wait.
    pub(super) fn bytes(&self) -> &[u8] {
        self.get(self.start..self.end)
    }

    /// Returns the number of bytes that wait.
    pub(super) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether no byte waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the position in the block of the first byte that waits.
    pub(super) const fn position(&self) -> usize {
        self.start
    }

    /// Returns the bytes at positions in the block.
    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        self.block.as_deref().and_then(|block| block.get(range)).unwrap_or_default()
    }

    /// Returns space for up to `most` bytes behind those that wait. Moves these to the front if the space behind them is
    /// too short.
    pub(super) fn space(&mut self, most: usize) -> &mut [u8] {
        if most == 0 {
            return &mut [];
        }
        self.widen();
        let Some(block) = &mut self.block else { return &mut [] };
        if self.start > 0 && block.len() - self.end < most {
            block.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let end = block.len().min(self.end.saturating_add(most));
        block.get_mut(self.end..end).unwrap_or_default()
    }

    /// Gets a block with the bytes that wait, if they have none.
    fn widen(&mut self) {
        if self.block.as_ref().is_some_and(|block| block.len() == self.capacity) {
            return;
        }
        let mut block = take(self.capacity);
        let waiting = self.bytes();
        if let Some(front) = block.get_mut(..waiting.len()) {
            front.copy_from_slice(waiting);
        }
        (self.start, self.end) = (0, self.len());
        self.block = Some(block);
    }

    /// Moves a few bytes that wait out of the block, and returns it. Nothing is left to do until more bytes come.
    pub(super) fn rest(&mut self) {
        let waiting = self.bytes();
        if waiting.len() <= SHORT && self.block.as_ref().is_some_and(|block| block.len() == self.capacity) {
            let short = Box::from(waiting);
            (self.start, self.end) = (0, self.len());
            if let Some(block) = self.block.replace(short) {
                give(block);
            }
        }
    }

    /// Returns the bytes of memory that the read-ahead owns.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len())
    }

    /// Adds `count` bytes that were written to the space.
    pub(super) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.capacity);
        self.settle();
    }

    /// Removes the first `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        self.settle();
    }

    /// Removes all bytes.
    pub(super) fn clear(&mut self) {
        self.consume(self.len());
    }

    /// Returns the block if no byte waits.
    pub(super) fn settle(&mut self) {
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
            if let Some(block) = self.block.take() {
                give(block);
            }
        }
    }
}

fn take(capacity: usize) -> Box<[u8]> {
    let spare = if capacity == BLOCK_LEN { SPARE.with_borrow_mut(Vec::pop) } else { None };
    spare.unwrap_or_else(|| vec![0; capacity].into_boxed_slice())
}

fn give(block: Box<[u8]>) {
    // A thread that ends may have dropped its list; the block is then freed.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if block.len() == BLOCK_LEN && spare.len() < SPARE_MAX {
            spare.push(block);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ahead_without_bytes_owns_no_memory() {
        let mut ahead = ReadAhead::new(0, b"");
        assert!(ahead.block.is_none() && ahead.is_empty());
        ahead.space(4).copy_from_slice(b"abcd");
        ahead.filled(4);
        ahead.consume(3);
        assert_eq!((ahead.bytes(), ahead.position(), ahead.len()), (&b"d"[..], 3, 1));
        ahead.consume(1);
        assert!(ahead.block.is_none());
        // A read that brought nothing.
        assert_eq!(ahead.space(10).len(), 10);
        ahead.settle();
        assert!(ahead.block.is_none());
        assert_eq!(ReadAhead::new(0, b"behind").bytes(), b"behind");
    }

    #[test]
    fn bytes_move_to_the_front_when_the_space_behind_them_is_short() {
        let mut ahead = ReadAhead::new(0, b"");
        let all = ahead.capacity();
        assert_eq!(ahead.space(usize::MAX).len(), all);
        ahead.filled(all);
        assert!(ahead.space(1).is_empty(), "full");
        ahead.consume(all - 2);
        assert_eq!(ahead.space(all).len(), all - 2);
        assert_eq!((ahead.position(), ahead.len()), (0, 2));
        assert_eq!(ahead.get(0..all + 1), b"", "beyond the block");
    }

    #[test]
    fn i6_a_few_bytes_that_wait_keep_no_block() {
        let mut ahead = ReadAhead::new(0, b"");
        ahead.rest();
        assert_eq!(ahead.held(), 0);
        ahead.space(8).copy_from_slice(b"consumed");
        ahead.filled(8);
        ahead.consume(5);
        ahead.rest();
        assert_eq!((ahead.held(), ahead.bytes(), ahead.position()), (3, &b"med"[..], 0));
        ahead.rest();
        assert!(ahead.space(0).is_empty());
        assert_eq!(ahead.held(), 3, "a read without read-ahead needs no block");
        ahead.space(2).copy_from_slice(b"ia");
        ahead.filled(2);
        assert_eq!((ahead.held(), ahead.bytes()), (BLOCK_LEN, &b"media"[..]));
        ahead.consume(5);
        assert_eq!(ahead.held(), 0);
        // Many bytes stay where they are.
        for (len, held) in [(SHORT, SHORT), (SHORT + 1, BLOCK_LEN)] {
            let mut ahead = ReadAhead::new(0, &vec![7; len]);
            ahead.rest();
            assert_eq!((ahead.held(), ahead.len()), (held, len));
            ahead.rest();
            ahead.consume(len);
            assert_eq!(ahead.held(), 0);
        }
    }

    #[test]
    fn a_thread_keeps_few_free_blocks() {
        let mut busy: Vec<_> = (0..SPARE_MAX + 3).map(|_| ReadAhead::new(0, b"x")).collect();
        let mut long = ReadAhead::new(BLOCK_LEN + 1, b"x");
        long.clear();
        assert_eq!(SPARE.with_borrow(Vec::len), 0, "blocks of another length are not kept");
        busy.iter_mut().for_each(ReadAhead::clear);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }
}
