//! Posted requests that have not completed, and completions that were not polled.
//!
//! A request stays here from its posting until its completion is handed out. Memory that comes back with it (the sink
//! of a Read) waits here too. Sends, Writes and binds complete in the order of posting. Reads, express Sends, and
//! invalidations that passed other requests complete when they are done.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::StdRng;
use rpcrdma_verbs::{Buffer, Completion, Key, Status, WindowMemory, Work, WrId};

/// A request that has not completed.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A Send. Its pieces are kept until the completion, as the contract allows.
    Send {
        gather: Vec<Bytes>,
    },
    Write {
        gather: Vec<Bytes>,
    },
    Read {
        sink: Buffer,
        /// Read Requests whose answers are not complete.
        missing: usize,
    },
    BindWindow,
    LocalInvalidate {
        key: Key,
    },
}

#[derive(Debug)]
struct Slot {
    id: WrId,
    /// Whether the request completes in the order of posting.
    ordered: bool,
    /// Entries that the request takes in the send queue.
    cost: usize,
    pending: Pending,
    done: Option<(Duration, Status, Option<WindowMemory>)>,
}

/// Requests and completions of one end.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    slots: BTreeMap<u64, Slot>,
    ready: VecDeque<(Duration, Completion)>,
    last_visible: Duration,
    jitter: Duration,
    /// Entries of the send queue taken by requests that have not completed.
    room_taken: usize,
    /// Receives posted and not handed out.
    pub(crate) receives: usize,
}

impl Completions {
    pub(crate) fn new(jitter: Duration) -> Self {
        Self { jitter, ..Self::default() }
    }

    pub(crate) fn posted(&mut self, seq: u64, id: WrId, ordered: bool, cost: usize, pending: Pending) {
        self.room_taken += cost;
        self.slots.insert(seq, Slot { id, ordered, cost, pending, done: None });
    }

    pub(crate) fn room_taken(&self) -> usize {
        self.room_taken
    }

    /// Returns the number of work requests posted and not handed out.
    pub(crate) fn requests(&self) -> usize {
        let is_request = |work: &Work| !matches!(work, Work::Receive { .. } | Work::WindowFlushed { .. });
        let ready = self.ready.iter().filter(|(_, completion)| is_request(&completion.work)).count();
        self.slots.len() + ready
    }

    /// Returns the sink of a Read that has not completed.
    pub(crate) fn sink(&mut self, seq: u64) -> Option<&mut Buffer> {
        match &mut self.slots.get_mut(&seq)?.pending {
            Pending::Read { sink, .. } => Some(sink),
            _ => None,
        }
    }

    /// Notes that one Read Request of the Read is answered.
    pub(crate) fn read_answered(&mut self, seq: u64, at: Duration, rng: &mut StdRng) {
        if let Some(Slot { pending: Pending::Read { missing, .. }, .. }) = self.slots.get_mut(&seq) {
            *missing = missing.saturating_sub(1);
            if *missing == 0 {
                self.done(seq, at, Status::Success, None, rng);
            }
        }
    }

    /// Notes that a request is done. Unknown requests (a second acknowledgement) are ignored.
    pub(crate) fn done(
        &mut self,
        seq: u64,
        at: Duration,
        status: Status,
        memory: Option<WindowMemory>,
        rng: &mut StdRng,
    ) {
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        if slot.done.is_none() {
            slot.done = Some((at, status, memory));
        }
        if !slot.ordered {
            self.emit(seq, rng);
            return;
        }
        loop {
            let first = self.slots.iter().find(|(_, slot)| slot.ordered);
            match first {
                Some((&seq, slot)) if slot.done.is_some() => self.emit(seq, rng),
                _ => return,
            }
        }
    }

    fn emit(&mut self, seq: u64, rng: &mut StdRng) {
        let Some(slot) = self.slots.remove(&seq) else { return };
        self.room_taken = self.room_taken.saturating_sub(slot.cost);
        let (at, status, memory) = slot.done.unwrap_or((Duration::ZERO, Status::Flushed, None));
        let work = match slot.pending {
            Pending::Send { gather } => {
                drop(gather);
                Work::Send
            }
            Pending::Write { gather } => {
                drop(gather);
                Work::Write
            }
            Pending::Read { sink, .. } => Work::Read { sink },
            Pending::BindWindow => Work::BindWindow,
            Pending::LocalInvalidate { .. } => Work::LocalInvalidate { memory },
        };
        self.push(at, Completion { id: slot.id, status, work }, rng);
    }

    /// Adds the completion of a Receive.
    pub(crate) fn push(&mut self, at: Duration, completion: Completion, rng: &mut StdRng) {
        let jitter = match u64::try_from(self.jitter.as_nanos()) {
            Ok(0) | Err(_) => Duration::ZERO,
            Ok(most) => Duration::from_nanos(rng.random_range(0..=most)),
        };
        self.last_visible = self.last_visible.max(at + jitter);
        self.ready.push_back((self.last_visible, completion));
    }

    /// Ends every request. `invalidate` returns the memory of a window.
    pub(crate) fn flush(
        &mut self,
        at: Duration,
        mut invalidate: impl FnMut(Key) -> Option<WindowMemory>,
        rng: &mut StdRng,
    ) {
        let all: Vec<u64> = self.slots.keys().copied().collect();
        for seq in all {
            if let Some(slot) = self.slots.get_mut(&seq)
                && slot.done.is_none()
            {
                let memory = match slot.pending {
                    Pending::LocalInvalidate { key } => invalidate(key),
                    _ => None,
                };
                slot.done = Some((at, Status::Flushed, memory));
            }
            self.emit(seq, rng);
        }
    }

    /// Returns whether work requests are under way.
    pub(crate) fn any_pending(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Returns the time at which the next completion can be polled.
    pub(crate) fn next_visible(&self) -> Option<Duration> {
        self.ready.front().map(|&(visible, _)| visible)
    }

    /// Hands out at most `most` completions; returns their number.
    pub(crate) fn drain(&mut self, now: Duration, most: usize, into: &mut Vec<Completion>) -> usize {
        let mut count = 0;
        while count < most
            && let Some((_, completion)) = self.ready.pop_front_if(|&mut (visible, _)| visible <= now)
        {
            if matches!(completion.work, Work::Receive { .. }) {
                self.receives = self.receives.saturating_sub(1);
            }
            into.push(completion);
            count += 1;
        }
        count
    }
}
