//! [`Pool`]: the account of a domain's memory, and the storage that it keeps for reuse.
//!
//! Memory in use plus memory kept for reuse never exceeds the limit. Sizes are rounded up to a power of two, so that
//! memory of one call serves the next. An exhausted pool refuses with [`PoolExhausted`]; callers that can wait use a
//! [`RoomWait`].
//!
//! Memory that comes back is offered to waiting tasks in the order of their arrival, as far as it is enough; the others
//! sleep on. A task that does not take the offered memory passes it on: when it gives up, goes away, or lacks other
//! memory. A task that wants more than there is does not keep tasks behind it from less. They may hold the memory that
//! it waits for.
//!
//! The pool of a share counts what it gives out in the pool of the whole too, where the storage is. A fair share gets
//! what [`is_fair`] allows.

mod line;
mod wait;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use line::Line;
use thiserror::Error;
pub use wait::RoomWait;

use crate::companions::{Companion, Companions, Registrar, Registrars};

/// Smallest size class, in bytes.
const MIN_CLASS: usize = 1 << 10;
/// From this class on, in bytes, all Buffers begin at a page.
const PAGE_ALIGNED_CLASS: usize = 1 << 16;
/// Alignment of smaller Buffers in bytes, unless the caller asks for more.
const SMALL_ALIGN: usize = 64;
/// Alignment of the memory of pooled Receives in bytes, unless the poster asks for more.
pub const RECEIVE_ALIGN: usize = SMALL_ALIGN;
/// Largest limit of a domain, in bytes, so that sums of sizes cannot overflow.
const MAX_LIMIT: usize = isize::MAX as usize / 4;
/// Largest alignment that [`ProtectionDomain::allocate`](crate::ProtectionDomain::allocate) gives, in bytes: a page.
pub const MAX_ALIGN: usize = 4096;

/// The refusal of [`ProtectionDomain::allocate`](crate::ProtectionDomain::allocate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PoolExhausted {
    /// The domain has too little memory now; it will have more when other Buffers are dropped.
    #[error("{requested} bytes requested; {in_use} of the domain's {limit} are in use")]
    InUse {
        /// Bytes asked for, rounded up to the size class.
        requested: usize,
        /// Bytes now held by Buffers.
        in_use: usize,
        /// The domain's limit.
        limit: usize,
    },
    /// The domain has enough memory, but the rest is for other shares: this share may have more when others have less.
    #[error("{requested} bytes requested; the share holds {held}, and {left} bytes are left for all")]
    Unfair {
        /// Bytes asked for, rounded up to the size class.
        requested: usize,
        /// Bytes that Buffers of the share hold now.
        held: usize,
        /// Bytes of the whole domain that are free.
        left: usize,
    },
    /// The request alone exceeds the limit, so waiting does not help.
    #[error("{requested} bytes requested; the domain's limit is {limit}")]
    OverLimit {
        /// Bytes asked for.
        requested: usize,
        /// The domain's limit.
        limit: usize,
    },
    /// The alignment is no power of two, or larger than [`MAX_ALIGN`].
    #[error("alignment {0} requested; powers of two up to {MAX_ALIGN} are allowed")]
    Alignment(usize),
}

/// Returns whether one of many users of a resource may hold `held` of it, if `left` of the `whole` are then free.
/// `limit` is the amount that a user may hold while all others hold none.
///
/// A user's amount is in proportion to the free rest, by the factor that gives a single user its limit. So each user
/// may hold less the more others hold, and some of the resource is always left. With a limit of a quarter, a single
/// user holds that quarter. Four users hold a seventh each and leave three sevenths; ten hold a thirteenth each and
/// leave three thirteenths. If the limit is the whole, nothing else counts.
#[must_use]
pub fn is_fair(held: usize, left: usize, limit: usize, whole: usize) -> bool {
    // A product of two lengths fits.
    let [held, left, limit, others] =
        [held, left, limit, whole.saturating_sub(limit)].map(|value| value as u128);
    held <= limit && held * others <= limit * left
}

/// The memory that a domain holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Bytes held by live Buffers (size classes, not visible lengths), or [kept](crate::ProtectionDomain::keep) by
    /// shares of the domain.
    pub in_use: usize,
    /// Bytes kept for reuse; 0 for a share, whose memory the whole keeps.
    pub cached: usize,
    /// Upper bound of the sum of both.
    pub limit: usize,
}

/// The state of a domain or share. Locks are taken from a share to the whole, never the other way.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: usize,
    /// The domain of which this is a share; its limit is not smaller.
    whole: Option<Arc<Self>>,
    /// For a share whose limit shrinks with the free memory of the whole: the bytes that it may hold in any case.
    fair: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    /// Bytes counted against the whole although no Buffer of this share holds them. Always 0 for a domain that is no
    /// share.
    kept: usize,
    /// Bytes given to the share that stay counted against the whole, whether Buffers hold them or not.
    keep: usize,
    /// Tasks that wait for more kept memory.
    waiting_for_kept: Vec<Waker>,
    /// Bytes kept for reuse; 0 for a share.
    cached: usize,
    /// Memory for reuse, by (class, alignment). Empty for a share.
    free: BTreeMap<(usize, usize), Vec<Stored>>,
    /// Empty for a share.
    registrars: Registrars,
    line: Line,
}

/// Memory for reuse, with the companions that end before it.
#[derive(Debug)]
struct Stored {
    companions: Companions,
    storage: BytesMut,
}

/// The bytes that a fair share holds, and may hold: alone, and in any case.
#[derive(Debug, Clone, Copy)]
struct Claim {
    held: usize,
    limit: usize,
    least: usize,
}

impl Pool {
    /// Creates the pool of a domain that is no share.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Self::of(limit.min(MAX_LIMIT), None, None)
    }

    /// Creates the pool of a share of this one. `fair` is the least that it may hold, if its limit shrinks with the
    /// free memory.
    pub(crate) fn share(self: &Arc<Self>, limit: usize, fair: Option<usize>) -> Arc<Self> {
        Self::of(limit.min(self.limit), Some(Arc::clone(self)), fair)
    }

    fn of(limit: usize, whole: Option<Arc<Self>>, fair: Option<usize>) -> Arc<Self> {
        Arc::new(Self { limit, whole, fair, state: Mutex::default() })
    }

    /// Keeps up to `room` bytes of the whole from now on, and gives back what is kept beyond that.
    pub(crate) fn keep(&self, room: usize) {
        let Some(whole) = &self.whole else { return };
        let surplus = {
            let mut state = self.lock();
            state.keep = room;
            let surplus = state.in_use.saturating_add(state.kept).saturating_sub(room).min(state.kept);
            state.kept -= surplus;
            surplus
        };
        if surplus > 0 {
            whole.discharge(surplus, None);
        }
    }

    /// Returns `Ready` when `room` bytes are kept; otherwise the task is woken when kept memory comes back.
    pub(crate) fn poll_kept(&self, cx: &mut Context<'_>, room: usize) -> Poll<()> {
        let mut state = self.lock();
        if state.kept >= room {
            return Poll::Ready(());
        }
        if !state.waiting_for_kept.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting_for_kept.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Tells this registrar of all memory of the whole, from the next use on.
    pub(crate) fn add_registrar(&self, registrar: &Arc<dyn Registrar>) {
        self.root().lock().registrars.add(registrar);
    }

    /// Returns the memory that is held now.
    pub(crate) fn usage(&self) -> PoolUsage {
        let state = self.lock();
        PoolUsage { in_use: state.in_use, cached: state.cached, limit: self.limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pool that keeps the memory.
    fn root(&self) -> &Self {
        let mut pool = self;
        while let Some(whole) = &pool.whole {
            pool = whole;
        }
        pool
    }

    /// Returns the claim of a fair share, for the whole to judge.
    fn claim(&self, state: &State) -> Option<Claim> {
        self.fair.map(|least| Claim { held: state.in_use + state.kept, limit: self.limit, least })
    }

    /// Checks that there are `class` bytes here, which may be for a fair share.
    fn check(&self, state: &State, class: usize, claim: Option<Claim>) -> Result<(), PoolExhausted> {
        let limit = self.limit;
        if class > limit {
            return Err(PoolExhausted::OverLimit { requested: class, limit });
        }
        let left = limit - state.in_use;
        if class > left {
            return Err(PoolExhausted::InUse { requested: class, in_use: state.in_use, limit });
        }
        match claim {
            Some(Claim { held, limit: alone, least })
                if held + class > least && !is_fair(held + class, left - class, alone, limit) =>
            {
                Err(PoolExhausted::Unfair { requested: class, held, left })
            }
            _ => Ok(()),
        }
    }

    /// Counts `class` bytes here and in the whole, or nowhere.
    fn charge(&self, class: usize, claim: Option<Claim>) -> Result<(), PoolExhausted> {
        let mut state = self.lock();
        self.check(&state, class, claim)?;
        if let Some(whole) = &self.whole {
            let kept = class.min(state.kept);
            if kept < class {
                whole.charge(class - kept, self.claim(&state))?;
            }
            state.kept -= kept;
        }
        state.in_use += class;
        Ok(())
    }

    /// Takes back the bytes that [`charge`](Self::charge) counted, and their memory if it is to be reused. Wakes tasks
    /// whose turn it is.
    fn discharge(&self, class: usize, memory: Option<(usize, Stored)>) {
        let mut woken = Vec::new();
        let mut pool = self;
        let mut left = class;
        let freed = loop {
            let mut state = pool.lock();
            state.in_use -= left;
            if left > 0 {
                let free = state.left(pool.limit);
                state.line.returned();
                woken.append(&mut state.line.offer(free));
            }
            match &pool.whole {
                Some(whole) => {
                    let kept = left.min(state.keep.saturating_sub(state.in_use + state.kept));
                    state.kept += kept;
                    left -= kept;
                    if kept > 0 {
                        woken.append(&mut state.waiting_for_kept);
                    }
                    drop(state);
                    // Shares between this one and the whole have nothing to take back, if all of it is kept.
                    pool = if left > 0 { whole } else { whole.root() };
                }
                None => {
                    if let Some((align, stored)) = memory {
                        state.cached += class;
                        state.free.entry((class, align)).or_default().push(stored);
                    }
                    break state.shrink_to(pool.limit);
                }
            }
        };
        drop(freed);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let kept = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).kept;
        if let Some(whole) = self.whole.as_ref().filter(|_| kept > 0) {
            whole.discharge(kept, None);
        }
    }
}

impl State {
    /// Returns the bytes of the limit that are free.
    fn left(&self, limit: usize) -> usize {
        limit.saturating_sub(self.in_use)
    }

    /// Takes cached memory out, largest first, until `in_use + cached <= target`. The caller frees it, without the lock.
    #[must_use]
    fn shrink_to(&mut self, target: usize) -> Vec<Stored> {
        let mut freed = Vec::new();
        while self.in_use + self.cached > target {
            let Some(mut entry) = self.free.last_entry() else { break };
            if let Some(stored) = entry.get_mut().pop() {
                self.cached -= entry.key().0;
                freed.push(stored);
            } else {
                entry.remove();
            }
        }
        freed
    }
}

/// Returns the bytes that a Buffer of `len` bytes takes of the limit: its size class.
pub(crate) fn room_for(len: usize) -> usize {
    class_of(len).unwrap_or(usize::MAX)
}

/// Returns the smallest power of two that holds `len`.
fn class_of(len: usize) -> Option<usize> {
    len.max(MIN_CLASS).checked_next_power_of_two()
}

/// The bytes of the domain's limit that one allocation holds, however it is split.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: Arc<Pool>,
    class: usize,
    align: usize,
}

/// A reservation with the memory that was given for it.
#[derive(Debug)]
pub(crate) struct Held {
    reservation: Reservation,
    /// Addresses of the memory.
    range: Range<usize>,
    companions: Mutex<Companions>,
}

impl Reservation {
    /// Counts the size class of `len` bytes against the limits of the pool and its whole.
    pub(crate) fn charge(pool: &Arc<Pool>, len: usize) -> Result<Self, PoolExhausted> {
        let class = class_of(len).ok_or(PoolExhausted::OverLimit { requested: len, limit: pool.limit })?;
        pool.charge(class, None)?;
        Ok(Self { pool: Arc::clone(pool), class, align: SMALL_ALIGN })
    }

    /// Returns the memory that was reserved, with the start in it of a Buffer that begins at a multiple of `align`, and
    /// the owner that takes the memory back.
    pub(crate) fn into_storage(mut self, align: usize) -> (BytesMut, usize, Held) {
        let least = if self.class >= PAGE_ALIGNED_CLASS { MAX_ALIGN } else { SMALL_ALIGN };
        self.align = align.max(least);
        let (reused, freed, registrars) = {
            let root = self.pool.root();
            let mut state = root.lock();
            let reused = state.free.get_mut(&(self.class, self.align)).and_then(Vec::pop);
            if reused.is_some() {
                state.cached -= self.class;
            }
            (reused, state.shrink_to(root.limit), state.registrars.clone())
        };
        drop(freed);
        let Stored { mut companions, storage } = reused.unwrap_or_else(|| Stored {
            companions: Companions::default(),
            storage: BytesMut::zeroed(self.class + self.align),
        });
        // `align_offset` may in theory fail; the Buffer then starts unaligned, which costs speed, not safety.
        let start = storage.as_ptr().align_offset(self.align).min(self.align);
        let address = storage.as_ptr() as usize;
        let range = address..address + storage.len();
        registrars.complete(&mut companions, &range);
        (storage, start, Held { reservation: self, range, companions: Mutex::new(companions) })
    }
}

impl Held {
    /// Returns the addresses of all memory of the reservation.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Keeps a value until the memory is freed.
    pub(crate) fn attach(&self, companion: Box<dyn Companion>) {
        self.companions.lock().unwrap_or_else(PoisonError::into_inner).add(companion);
    }

    /// Takes back the storage of the last Buffer that held some: whole memory is kept for reuse, parts are freed.
    /// Companions go before the last part.
    pub(crate) fn release(self, storage: BytesMut) {
        let Self { mut reservation, companions, .. } = self;
        let companions = companions.into_inner().unwrap_or_else(PoisonError::into_inner);
        if storage.len() == reservation.class + reservation.align {
            // The class moves from `in_use` to `cached` in one step; dropping the reservation must not count it again.
            let class = std::mem::take(&mut reservation.class);
            let stored = Stored { companions, storage };
            reservation.pool.discharge(class, Some((reservation.align, stored)));
        } else {
            drop(companions);
            drop(storage);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.class > 0 {
            self.pool.discharge(self.class, None);
        }
    }
}
