//! The windows of one end: keys, ranges, rights, and the uses of their memory.
//!
//! A window owns its memory from the reservation on; the peer may use it from the bind on. The memory comes back when
//! the connection ends, or earlier: when the window is invalid and no queued or half sent Read Response needs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::StdRng;
use rpcrdma_verbs::{Key, RemoteSegment, Status, TerminateCause, WindowMemory};

/// Number of keys that were given up and are not used again yet.
const RETIRED: usize = 1 << 14;

/// Keys of a whole fabric. No two windows have one key, and a key does not come back soon after it was given up.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    taken: BTreeSet<Key>,
    retired: VecDeque<Key>,
}

impl Keys {
    fn take(&mut self, rng: &mut StdRng) -> Key {
        loop {
            let key = Key(rng.random());
            if self.taken.insert(key) {
                return key;
            }
        }
    }

    pub(crate) fn retire(&mut self, key: Key) {
        self.retired.push_back(key);
        if self.retired.len() > RETIRED
            && let Some(oldest) = self.retired.pop_front()
        {
            self.taken.remove(&oldest);
        }
    }
}

/// The reason why a peer's request is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The cause that the peer gets.
    pub(crate) cause: TerminateCause,
    /// Status of the peer's work request, if completions are acknowledged.
    pub(crate) status: Status,
    /// The description for our own user.
    pub(crate) detail: String,
}

impl Refusal {
    /// Returns an error in tagged placement (RFC 5041 §7.2).
    fn tagged(code: u8, detail: String) -> Self {
        Self { cause: TerminateCause { layer: 1, error_type: 1, code }, status: Status::RemoteAccess, detail }
    }

    /// Returns an error in untagged placement (RFC 5041 §7.2).
    pub(crate) fn untagged(code: u8, status: Status, detail: String) -> Self {
        Self { cause: TerminateCause { layer: 1, error_type: 2, code }, status, detail }
    }

    /// Returns whether a message was longer than its Receive.
    pub(crate) fn is_too_long(&self) -> bool {
        self.cause == TerminateCause { layer: 1, error_type: 2, code: 5 }
    }

    /// Returns a remote protection error (RFC 5040 §4.8).
    fn protection(code: u8, detail: String) -> Self {
        Self { cause: TerminateCause { layer: 0, error_type: 1, code }, status: Status::RemoteAccess, detail }
    }

    /// Returns a remote operation error (RFC 5040 §4.8).
    pub(crate) fn operation(code: u8, detail: String) -> Self {
        Self {
            cause: TerminateCause { layer: 0, error_type: 2, code },
            status: Status::RemoteOperation,
            detail,
        }
    }
}

#[derive(Debug)]
struct Window {
    segment: RemoteSegment,
    memory: WindowMemory,
    bound: bool,
    /// Whether the window is still bound but refused to the peer, while an invalidation waits for `responses`.
    closing: bool,
    /// Number of Read Responses that are queued or half sent.
    responses: usize,
}

/// The windows of one end.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_key: BTreeMap<Key, Window>,
}

impl Windows {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Reserves a new window, which is not open yet. Its range does not wrap.
    pub(crate) fn reserve(
        &mut self,
        memory: WindowMemory,
        length: u32,
        keys: &mut Keys,
        rng: &mut StdRng,
    ) -> RemoteSegment {
        // RFC 5042 §6.1.1: neither the key nor the offset can be guessed from earlier ones.
        let key = keys.take(rng);
        let address = rng.random::<u64>() >> 1;
        let segment = RemoteSegment { key, address, length };
        self.by_key.insert(key, Window { segment, memory, bound: false, closing: false, responses: 0 });
        segment
    }

    /// Opens a reserved window.
    ///
    /// # Errors
    /// The fault of the request.
    pub(crate) fn bind(&mut self, key: Key) -> Result<(), &'static str> {
        let Some(window) = self.by_key.get_mut(&key) else {
            return Err("a bind of a key that is not reserved");
        };
        if window.bound || window.closing {
            return Err("a bind of a window that is bound");
        }
        window.bound = true;
        Ok(())
    }

    /// Returns the memory that a segment of an RDMA Write fills (RFC 5041 §7.1).
    pub(crate) fn writable(&mut self, key: Key, address: u64, len: usize) -> Result<&mut [u8], Refusal> {
        let Some(window) = self.by_key.get_mut(&key).filter(|window| !window.closing) else {
            return Err(Refusal::tagged(0, format!("RDMA Write to unknown key {:#010x}", key.0)));
        };
        let segment = window.segment;
        match &mut window.memory {
            _ if !window.bound => {
                Err(Refusal::tagged(0, format!("RDMA Write to key {:#010x}, which is not bound", key.0)))
            }
            // "Invalid STag" includes a buffer that allows no placement.
            WindowMemory::Read(_) => {
                Err(Refusal::tagged(0, format!("RDMA Write to key {:#010x}, which may only be read", key.0)))
            }
            WindowMemory::Write(buffer) => range_of(segment, address, len)
                .and_then(|(start, end)| buffer.get_mut(start..end))
                .ok_or_else(|| {
                    let code = if wraps(address, len) { 3 } else { 1 };
                    Refusal::tagged(
                        code,
                        format!("RDMA Write of {len} bytes at {address:#x}, outside {segment:?}"),
                    )
                }),
        }
    }

    /// Returns the bytes that an RDMA Read Request asks for (RFC 5040 §5.4). They count as a queued response until
    /// [`response_left`](Self::response_left).
    pub(crate) fn readable(&mut self, source: RemoteSegment) -> Result<Bytes, Refusal> {
        let key = source.key;
        let Some(window) = self.by_key.get_mut(&key).filter(|window| !window.closing) else {
            return Err(Refusal::protection(0, format!("RDMA Read of unknown key {:#010x}", key.0)));
        };
        let segment = window.segment;
        match &window.memory {
            _ if !window.bound => {
                Err(Refusal::protection(0, format!("RDMA Read of key {:#010x}, which is not bound", key.0)))
            }
            WindowMemory::Write(_) => Err(Refusal::protection(
                2,
                format!("RDMA Read of key {:#010x}, which may only be written", key.0),
            )),
            WindowMemory::Read(bytes) => {
                let len = usize::try_from(source.length).unwrap_or(usize::MAX);
                let Some((start, end)) = range_of(segment, source.address, len) else {
                    let code = if wraps(source.address, len) { 4 } else { 1 };
                    return Err(Refusal::protection(
                        code,
                        format!("RDMA Read of {source:?}, outside {segment:?}"),
                    ));
                };
                let bytes = bytes.slice(start..end);
                window.responses += 1;
                Ok(bytes)
            }
        }
    }

    /// Notes that a Read Response of this window has left completely, or never will.
    pub(crate) fn response_left(&mut self, key: Key) {
        if let Some(window) = self.by_key.get_mut(&key) {
            window.responses = window.responses.saturating_sub(1);
        }
    }

    /// Refuses the window to the peer from now on; returns whether responses are still queued or half sent.
    pub(crate) fn close(&mut self, key: Key) -> bool {
        self.by_key.get_mut(&key).is_some_and(|window| {
            window.closing = true;
            window.responses > 0
        })
    }

    /// Returns whether responses of this window are queued or half sent.
    pub(crate) fn has_responses(&self, key: Key) -> bool {
        self.by_key.get(&key).is_some_and(|window| window.responses > 0)
    }

    /// Returns whether the peer may invalidate this key.
    pub(crate) fn is_open(&self, key: Key) -> bool {
        self.by_key.get(&key).is_some_and(|window| !window.closing && window.bound)
    }

    /// Removes the window and gives its memory back.
    pub(crate) fn remove(&mut self, key: Key, keys: &mut Keys) -> Option<WindowMemory> {
        let window = self.by_key.remove(&key)?;
        keys.retire(key);
        Some(window.memory)
    }

    /// Removes all windows after the end of the connection: no response will leave any more.
    pub(crate) fn flush(&mut self, keys: &mut Keys) -> Vec<(Key, WindowMemory)> {
        let windows = std::mem::take(&mut self.by_key);
        windows
            .into_iter()
            .map(|(key, window)| {
                keys.retire(key);
                (key, window.memory)
            })
            .collect()
    }
}

/// Returns the range of `len` bytes at `address` in the window's memory, if the window holds all of it.
fn range_of(window: RemoteSegment, address: u64, len: usize) -> Option<(usize, usize)> {
    let start = usize::try_from(address.checked_sub(window.address)?).ok()?;
    let end = start.checked_add(len)?;
    (end <= usize::try_from(window.length).ok()?).then_some((start, end))
}

/// Returns whether the range ends beyond the last 64-bit address.
fn wraps(address: u64, len: usize) -> bool {
    u64::try_from(len).ok().and_then(|len| address.checked_add(len)).is_none()
}
