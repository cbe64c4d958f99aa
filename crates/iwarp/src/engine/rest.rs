//! Memory of an idle connection: queues that a burst has made long go back to the allocator.
//!
//! A server can have thousands of connections of which few are busy. A READ of 1 MiB alone makes the queues of
//! [`Output`](super::output::Output) some 30 KiB long.

use std::collections::VecDeque;

use super::Engine;

/// Entries of a queue for which an idle connection keeps memory: enough for a few messages at a time.
const FEW: usize = 4;

/// Releases the memory of an empty queue that was longer than [`FEW`] entries.
pub(super) fn release<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > FEW {
        queue.shrink_to(0);
    }
}

impl Engine {
    /// Releases memory that only a burst needs. The driver calls this when nothing is left to do.
    pub fn rest(&mut self) {
        release(&mut self.completions);
        release(&mut self.deliveries);
        self.output.rest();
        self.sends.rest();
        self.responses.rest();
        self.reads.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_queues_that_were_long_lose_their_memory() {
        let mut long: VecDeque<u64> = (0..100).collect();
        release(&mut long);
        assert_eq!(long.len(), 100);
        long.clear();
        release(&mut long);
        assert_eq!(long.capacity(), 0);
        let mut short: VecDeque<u64> = VecDeque::with_capacity(FEW);
        release(&mut short);
        assert_eq!(short.capacity(), FEW);
    }
}
