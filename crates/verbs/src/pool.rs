//! [`ProtectionDomain`]: where Buffers come from.
//!
//! One domain serves all connections of a client or server and bounds what they hold together: memory in use plus
//! memory kept for reuse never exceeds the limit given at construction. Sizes are rounded up to a power of two, so
//! that memory of one call serves the next. An exhausted domain refuses with [`PoolExhausted`]; whoever can wait
//! asks [`ProtectionDomain::poll_available`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use thiserror::Error;

use crate::Buffer;

/// Smallest size class, in octets.
const MIN_CLASS: usize = 1 << 10;
/// From this class on, Buffers begin at a page whether asked for or not.
const PAGE_ALIGNED_CLASS: usize = 1 << 16;
/// Alignment of other Buffers for which no larger one was asked.
const SMALL_ALIGN: usize = 64;
/// No domain is larger than this, so that sums of sizes cannot overflow.
const MAX_LIMIT: usize = isize::MAX as usize / 4;
/// Largest alignment that [`ProtectionDomain::allocate`] gives, in octets: a page.
pub const MAX_ALIGN: usize = 4096;

/// The refusal of [`ProtectionDomain::allocate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PoolExhausted {
    /// The domain has no room now; it will when other Buffers are dropped.
    #[error("{requested} octets asked for, {in_use} of the domain's {limit} are in use")]
    InUse {
        /// Octets asked for, rounded up to the size class.
        requested: usize,
        /// Octets now held by Buffers.
        in_use: usize,
        /// The domain's limit.
        limit: usize,
    },
    /// No amount of waiting helps: the request alone exceeds the limit.
    #[error("{requested} octets asked for, the domain's limit is {limit}")]
    OverLimit {
        /// Octets asked for.
        requested: usize,
        /// The domain's limit.
        limit: usize,
    },
    /// An alignment that is no power of two or larger than [`MAX_ALIGN`].
    #[error("alignment {0} asked for; allowed are powers of two up to {MAX_ALIGN}")]
    Alignment(usize),
}

/// What a domain holds, in octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Held by live Buffers (size classes, not visible lengths).
    pub in_use: usize,
    /// Kept for reuse.
    pub cached: usize,
    /// Upper bound of the sum of both.
    pub limit: usize,
}

/// A pool of Buffers with a limit; the equivalent of `ibv_pd` with its registered memory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ProtectionDomain {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    cached: usize,
    /// By (class, alignment).
    free: BTreeMap<(usize, usize), Vec<BytesMut>>,
    waiting: Vec<Waker>,
}

impl ProtectionDomain {
    /// A domain whose Buffers hold at most `limit` octets together.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pool: Arc::new(Pool { limit: limit.min(MAX_LIMIT), state: Mutex::default() }) }
    }

    /// A Buffer of `len` octets that begins at a multiple of `align` (a power of two, at most [`MAX_ALIGN`]).
    ///
    /// Its content is unspecified: zeros, or what an earlier user of this domain left.
    ///
    /// # Errors
    /// [`PoolExhausted`] when the limit does not allow it (now, or ever).
    pub fn allocate(&self, len: usize, align: usize) -> Result<Buffer, PoolExhausted> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(PoolExhausted::Alignment(align));
        }
        Ok(Reservation::charge(&self.pool, len)?.into_buffer(len, align))
    }

    /// Sets room for a Buffer of `len` octets aside, so that it can be had later without fail: what backs a Receive whose
    /// memory is attached only when data arrives.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn reserve(&self, len: usize) -> Result<Reserved, PoolExhausted> {
        Ok(Reserved { len, reservation: Reservation::charge(&self.pool, len)? })
    }

    /// Ready when [`allocate`](Self::allocate) of `len` octets has a chance; otherwise the task is woken when a
    /// Buffer comes back. Ready too for a length that no waiting can satisfy: `allocate` tells.
    pub fn poll_available(&self, cx: &mut Context<'_>, len: usize) -> Poll<()> {
        self.poll_room(cx, Self::room_for(len))
    }

    /// Room that a Buffer of `len` octets takes of the limit: its size class.
    #[must_use]
    pub fn room_for(len: usize) -> usize {
        class_of(len).unwrap_or(usize::MAX)
    }

    /// As [`poll_available`](Self::poll_available), for several Buffers together: `room` is the sum of
    /// [`room_for`](Self::room_for) of each.
    pub fn poll_room(&self, cx: &mut Context<'_>, room: usize) -> Poll<()> {
        let mut state = self.pool.lock();
        if room > self.pool.limit || state.in_use + room <= self.pool.limit {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// What the domain holds now.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        let state = self.pool.lock();
        PoolUsage { in_use: state.in_use, cached: state.cached, limit: self.pool.limit }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that can unwind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes cached memory out, largest first, until `in_use + cached <= target`. The caller frees it, without the lock.
    #[must_use]
    fn shrink_to(&mut self, target: usize) -> Vec<BytesMut> {
        let mut freed = Vec::new();
        while self.in_use + self.cached > target {
            let Some(mut entry) = self.free.last_entry() else { break };
            if let Some(storage) = entry.get_mut().pop() {
                self.cached -= entry.key().0;
                freed.push(storage);
            } else {
                entry.remove();
            }
        }
        freed
    }
}

/// Smallest power of two that holds `len`.
fn class_of(len: usize) -> Option<usize> {
    len.max(MIN_CLASS).checked_next_power_of_two()
}

/// Room set aside by [`ProtectionDomain::reserve`]; counts as in use.
#[derive(Debug)]
pub struct Reserved {
    len: usize,
    reservation: Reservation,
}

impl Reserved {
    /// Length of the Buffer that is set aside, in octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The Buffer.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.reservation.into_buffer(self.len, 1)
    }
}

/// The share of the domain's limit that one allocation holds, however it is split.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: Arc<Pool>,
    class: usize,
    align: usize,
}

impl Reservation {
    fn charge(pool: &Arc<Pool>, len: usize) -> Result<Self, PoolExhausted> {
        let limit = pool.limit;
        let class = class_of(len).ok_or(PoolExhausted::OverLimit { requested: len, limit })?;
        if class > limit {
            return Err(PoolExhausted::OverLimit { requested: class, limit });
        }
        let mut state = pool.lock();
        if state.in_use + class > limit {
            return Err(PoolExhausted::InUse { requested: class, in_use: state.in_use, limit });
        }
        state.in_use += class;
        Ok(Self { pool: Arc::clone(pool), class, align: SMALL_ALIGN })
    }

    fn into_buffer(mut self, len: usize, align: usize) -> Buffer {
        let least = if self.class >= PAGE_ALIGNED_CLASS { MAX_ALIGN } else { SMALL_ALIGN };
        self.align = align.max(least);
        let (reused, freed) = {
            let mut state = self.pool.lock();
            let reused = state.free.get_mut(&(self.class, self.align)).and_then(Vec::pop);
            if reused.is_some() {
                state.cached -= self.class;
            }
            (reused, state.shrink_to(self.pool.limit))
        };
        drop(freed);
        let storage = reused.unwrap_or_else(|| BytesMut::zeroed(self.class + self.align));
        // `align_offset` may in theory fail; the Buffer then starts unaligned, which costs speed, not safety.
        let start = storage.as_ptr().align_offset(self.align).min(self.align);
        Buffer::pooled(storage, start, len, Arc::new(self))
    }

    /// Takes back the storage of a dropped Buffer: whole memory is kept for reuse, parts are freed.
    pub(crate) fn release(this: Arc<Self>, storage: BytesMut) {
        let Some(reservation) = Arc::into_inner(this) else { return };
        if storage.len() == reservation.class + reservation.align {
            let mut state = reservation.pool.lock();
            // The class moves from `in_use` to `cached` in one step; dropping the reservation must not count it again.
            state.cached += reservation.class;
            state.in_use -= reservation.class;
            state.free.entry((reservation.class, reservation.align)).or_default().push(storage);
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            reservation.forget();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the reservation whose share was already given back.
    fn forget(mut self) {
        self.class = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.class == 0 {
            return;
        }
        let (waiting, freed) = {
            let mut state = self.pool.lock();
            state.in_use -= self.class;
            let freed = state.shrink_to(self.pool.limit);
            (std::mem::take(&mut state.waiting), freed)
        };
        drop(freed);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_and_bounded() {
        let domain = ProtectionDomain::new(1 << 20);
        let buffer = domain.allocate(1 << 19, 4096).unwrap();
        let address = buffer.as_ptr();
        assert_eq!(address.align_offset(4096), 0);
        let second = domain.allocate(1 << 19, 1).unwrap();
        assert!(matches!(domain.allocate(1, 1), Err(PoolExhausted::InUse { .. })));
        drop(buffer);
        let again = domain.allocate(1 << 19, 4096).unwrap();
        assert_eq!(again.as_ptr(), address);
        drop((second, again));
        assert_eq!(domain.usage(), PoolUsage { in_use: 0, cached: 1 << 20, limit: 1 << 20 });
        // Another class evicts what is cached rather than exceed the limit.
        let whole = domain.allocate(1 << 20, 1).unwrap();
        assert_eq!(domain.usage(), PoolUsage { in_use: 1 << 20, cached: 0, limit: 1 << 20 });
        drop(whole);
    }

    #[test]
    fn limits_are_told_apart() {
        let domain = ProtectionDomain::new(1 << 16);
        assert!(matches!(domain.allocate((1 << 16) + 1, 1), Err(PoolExhausted::OverLimit { .. })));
        assert!(matches!(domain.allocate(usize::MAX, 1), Err(PoolExhausted::OverLimit { .. })));
        assert!(matches!(domain.allocate(1, 3), Err(PoolExhausted::Alignment(3))));
        assert!(matches!(domain.allocate(1, 8192), Err(PoolExhausted::Alignment(8192))));
        assert!(domain.allocate(1 << 16, 1).is_ok());
    }

    #[test]
    fn a_waiting_task_is_woken_when_memory_returns() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let domain = ProtectionDomain::new(1 << 16);
        let buffer = domain.allocate(1 << 16, 1).unwrap();
        assert!(domain.poll_available(&mut cx, 4096).is_pending());
        assert!(domain.poll_available(&mut cx, 4096).is_pending());
        drop(buffer);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(domain.poll_available(&mut cx, 4096).is_ready());
    }

    #[test]
    fn i3_reserved_room_is_there_when_the_domain_is_exhausted() {
        let domain = ProtectionDomain::new(1 << 16);
        let reserved = domain.reserve(4096).unwrap();
        let mut others = Vec::new();
        while let Ok(buffer) = domain.allocate(4096, 1) {
            others.push(buffer);
        }
        assert_eq!(others.len(), 15);
        let buffer = reserved.into_buffer();
        assert_eq!(buffer.len(), 4096);
        assert_eq!(domain.usage().in_use, 1 << 16);
        drop((buffer, others));
        assert_eq!(domain.usage().in_use, 0);
        drop(domain.reserve(4096).unwrap());
        assert_eq!(domain.usage().in_use, 0);
    }

    #[test]
    fn a_page_aligned_small_buffer_costs_its_class() {
        let domain = ProtectionDomain::new(1 << 20);
        let buffers: Vec<_> = (0..32).map(|_| domain.allocate(8192, 4096).unwrap()).collect();
        assert_eq!(domain.usage().in_use, 32 * 8192);
        assert!(buffers.iter().all(|buffer| buffer.as_ptr().align_offset(4096) == 0));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let domain = ProtectionDomain::new(usize::MAX);
        assert!(matches!(domain.allocate(1 << 63, 1), Err(PoolExhausted::OverLimit { .. })));
        assert!(matches!(domain.reserve(usize::MAX), Err(PoolExhausted::OverLimit { .. })));
        assert_eq!(domain.usage().in_use, 0);
    }
}
