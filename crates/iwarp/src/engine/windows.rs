//! The windows of one connection: memory that the peer may access, with the key and the kind of access.
//!
//! Owns the memory of every bound window until the window is invalid *and* the connection no longer uses the memory.
//! Users are queued or partly sent Read Responses (`readers`), and a segment that is being placed (`placing`). Keys and
//! addresses are random (RFC 5042 §6.1.1), and valid on this connection only, for exactly the bound bytes.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rpcrdma_verbs::{Buffer, Key, RemoteSegment, WindowError, WindowErrorKind, WindowMemory, WrId};

use super::violation::Violation;

/// The party that waits for a window to become unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// A `LocalInvalidate`.
    Local(WrId),
    /// A Send with Invalidate of the peer.
    Remote,
}

#[derive(Debug)]
enum State {
    /// Key and range are assigned; the peer has no access.
    Reserved(WindowMemory),
    /// Open to the peer.
    Bound(WindowMemory),
    /// Closed to the peer; the connection still uses the memory.
    Closing(WindowMemory, Closing),
}

#[derive(Debug)]
struct Window {
    base: u64,
    length: u32,
    readers: u32,
    placing: bool,
    state: State,
}

/// Result of a request to close a window.
#[derive(Debug)]
pub(super) enum Closed {
    /// Closed; with the memory, if there was any.
    Now(Option<WindowMemory>),
    /// The connection still uses the memory; [`WindowTable::take_closed`] returns it later.
    Later,
}

/// A closed window that has become unused.
#[derive(Debug)]
pub(super) struct LateClose {
    pub(super) key: Key,
    /// `Some`: a `LocalInvalidate` waits; `None`: a Send of the peer waits.
    pub(super) local: Option<WrId>,
    pub(super) memory: WindowMemory,
}

#[derive(Debug)]
pub(super) struct WindowTable {
    windows: HashMap<u32, Window>,
    closed: VecDeque<LateClose>,
    /// Recently used keys, which are not assigned again so soon.
    retired: VecDeque<u32>,
    resting: HashSet<u32>,
    limit: usize,
    large_write_windows: usize,
    large: usize,
    random: StdRng,
}

impl WindowTable {
    /// Returns an empty table. `large` is the length from which an open write window makes bulk data likely.
    pub(super) fn new(limit: usize, large: usize, seed: [u8; 32]) -> Self {
        Self {
            windows: HashMap::new(),
            closed: VecDeque::new(),
            retired: VecDeque::new(),
            resting: HashSet::new(),
            limit,
            large_write_windows: 0,
            large,
            random: StdRng::from_seed(seed),
        }
    }

    /// Returns an unused key, and an address for `length` bytes that does not wrap.
    pub(super) fn fresh_name(&mut self, length: u32) -> (u32, u64) {
        let key = loop {
            let key = self.random.next_u32();
            if self.is_free(key) {
                break key;
            }
        };
        let base = self.random.next_u64().min(u64::MAX - u64::from(length));
        (key, base)
    }

    /// Returns whether a key may be assigned. Peers put 0 and 1 into segments that need no tag.
    fn is_free(&self, key: u32) -> bool {
        !matches!(key, 0 | 1) && !self.windows.contains_key(&key) && !self.resting.contains(&key)
    }

    /// Takes the memory of a window that will be bound.
    pub(super) fn reserve(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        let Ok(length) = u32::try_from(memory.len()) else {
            return Err(WindowError { kind: WindowErrorKind::TooLong { len: memory.len() }, memory });
        };
        if self.windows.len() >= self.limit {
            return Err(WindowError { kind: WindowErrorKind::Exhausted { limit: self.limit }, memory });
        }
        let (key, base) = self.fresh_name(length);
        let state = State::Reserved(memory);
        self.windows.insert(key, Window { base, length, readers: 0, placing: false, state });
        Ok(RemoteSegment { key: Key(key), address: base, length })
    }

    /// Gives the peer access; `false` if the key names no reserved window.
    pub(super) fn bind(&mut self, key: Key) -> bool {
        if !matches!(self.windows.get(&key.0), Some(Window { state: State::Reserved(_), .. })) {
            return false;
        }
        if let Some(Window { base, length, state: State::Reserved(memory), .. }) = self.windows.remove(&key.0)
        {
            self.large_write_windows += usize::from(is_large(&memory, self.large));
            let state = State::Bound(memory);
            self.windows.insert(key.0, Window { base, length, readers: 0, placing: false, state });
        }
        true
    }

    /// Closes a window for a `LocalInvalidate`.
    pub(super) fn close_local(&mut self, key: Key, id: WrId) -> Closed {
        self.close(key, Closing::Local(id))
    }

    /// Closes a window for a Send with Invalidate; `None` if the peer cannot invalidate that key (RFC 5040 §7.2).
    pub(super) fn close_remote(&mut self, key: Key) -> Option<Closed> {
        let bound = matches!(self.windows.get(&key.0)?.state, State::Bound(_));
        bound.then(|| self.close(key, Closing::Remote))
    }

    fn close(&mut self, key: Key, closing: Closing) -> Closed {
        let Some(mut window) = self.windows.remove(&key.0) else { return Closed::Now(None) };
        let memory = match window.state {
            State::Reserved(memory) => {
                self.retire(key);
                return Closed::Now(Some(memory));
            }
            // Another request closed it already and gets the memory.
            State::Closing(..) => {
                self.windows.insert(key.0, window);
                return Closed::Now(None);
            }
            State::Bound(memory) => memory,
        };
        self.large_write_windows -= usize::from(is_large(&memory, self.large));
        if window.readers == 0 && !window.placing {
            self.retire(key);
            return Closed::Now(Some(memory));
        }
        window.state = State::Closing(memory, closing);
        self.windows.insert(key.0, window);
        Closed::Later
    }

    /// Retires a key, so that it is not assigned again soon.
    fn retire(&mut self, key: Key) {
        if self.retired.len() >= self.limit
            && let Some(rested) = self.retired.pop_front()
        {
            self.resting.remove(&rested);
        }
        self.retired.push_back(key.0);
        self.resting.insert(key.0);
    }

    /// Takes a closed window that has become unused.
    pub(super) fn take_closed(&mut self) -> Option<LateClose> {
        self.closed.pop_front()
    }

    fn settle(&mut self, key: u32) {
        let unused = |window: &Window| {
            window.readers == 0 && !window.placing && matches!(window.state, State::Closing(..))
        };
        if self.windows.get(&key).is_some_and(unused)
            && let Some(Window { state: State::Closing(memory, closing), .. }) = self.windows.remove(&key)
        {
            let local = match closing {
                Closing::Local(id) => Some(id),
                Closing::Remote => None,
            };
            self.retire(Key(key));
            self.closed.push_back(LateClose { key: Key(key), local, memory });
        }
    }

    /// Returns whether the peer may now RDMA Write to a large window.
    pub(super) const fn bulk_expected(&self) -> bool {
        self.large_write_windows > 0
    }

    /// Checks the placement of a non-empty RDMA Write segment (RFC 5041 §7.1). Returns the offset in the window's
    /// Buffer.
    pub(super) fn admit_write(&self, stag: u32, offset: u64, length: usize) -> Result<usize, Violation> {
        let window = self.windows.get(&stag).ok_or(Violation::WriteStag(stag))?;
        if !matches!(window.state, State::Bound(WindowMemory::Write(_))) {
            return Err(Violation::WriteStag(stag));
        }
        let end = offset.checked_add(length as u64).ok_or(Violation::WriteWrap { offset, length })?;
        // `fresh_name` chose the base so that this sum cannot wrap.
        if offset < window.base || end > window.base + u64::from(window.length) {
            return Err(Violation::WriteBounds { stag, offset, length });
        }
        usize::try_from(offset - window.base).map_err(|_| Violation::WriteBounds { stag, offset, length })
    }

    /// Returns the Buffer of a write window that [`admit_write`](Self::admit_write) accepted.
    pub(super) fn write_memory(&mut self, stag: u32) -> Option<&mut Buffer> {
        match &mut self.windows.get_mut(&stag)?.state {
            State::Bound(WindowMemory::Write(buffer)) | State::Closing(WindowMemory::Write(buffer), _) => {
                Some(buffer)
            }
            _ => None,
        }
    }

    /// Pins a window while a segment is being placed into it.
    pub(super) fn begin_placing(&mut self, stag: u32) {
        if let Some(window) = self.windows.get_mut(&stag) {
            window.placing = true;
        }
    }

    pub(super) fn end_placing(&mut self, stag: u32) {
        if let Some(window) = self.windows.get_mut(&stag) {
            window.placing = false;
            self.settle(stag);
        }
    }

    /// Checks the source of a non-empty RDMA Read (RFC 5040 §7.2) and pins the window until
    /// [`end_reading`](Self::end_reading).
    pub(super) fn begin_reading(&mut self, stag: u32, offset: u64, size: u32) -> Result<Bytes, Violation> {
        let window = self.windows.get_mut(&stag).ok_or(Violation::ReadStag(stag))?;
        let memory = match &window.state {
            State::Bound(WindowMemory::Read(memory)) => memory,
            State::Bound(WindowMemory::Write(_)) => return Err(Violation::ReadAccess(stag)),
            _ => return Err(Violation::ReadStag(stag)),
        };
        let end = offset.checked_add(u64::from(size)).ok_or(Violation::ReadWrap { offset, size })?;
        let bounds = Violation::ReadBounds { stag, offset, size };
        if offset < window.base || end > window.base + u64::from(window.length) {
            return Err(bounds);
        }
        let start = usize::try_from(offset - window.base).map_err(|_| bounds)?;
        let end = usize::try_from(end - window.base).map_err(|_| bounds)?;
        window.readers += 1;
        Ok(memory.slice(start..end))
    }

    pub(super) fn end_reading(&mut self, stag: u32) {
        if let Some(window) = self.windows.get_mut(&stag) {
            window.readers = window.readers.saturating_sub(1);
            self.settle(stag);
        }
    }

    /// Releases all memory after the end of the connection. Windows that were being closed are closed.
    pub(super) fn release_all(&mut self) {
        let keys: Vec<u32> = self.windows.keys().copied().collect();
        for key in keys {
            if let Some(window) = self.windows.get_mut(&key) {
                window.readers = 0;
                window.placing = false;
            }
            self.settle(key);
        }
    }

    /// Takes the memory of a window that no request closed.
    pub(super) fn take(&mut self) -> Option<(Key, WindowMemory)> {
        let key = self.windows.keys().next().copied()?;
        let window = self.windows.remove(&key)?;
        self.large_write_windows = 0;
        match window.state {
            State::Reserved(memory) | State::Bound(memory) | State::Closing(memory, _) => {
                Some((Key(key), memory))
            }
        }
    }
}

fn is_large(memory: &WindowMemory, large: usize) -> bool {
    matches!(memory, WindowMemory::Write(buffer) if buffer.len() >= large)
}

#[cfg(test)]
mod tests;
