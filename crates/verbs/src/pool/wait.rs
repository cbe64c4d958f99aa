//! [`RoomWait`]: a task's place in the line for memory.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Pool, PoolExhausted};

/// A place in the line of tasks that wait for memory of a domain. Dropping it leaves the line.
#[derive(Debug)]
pub struct RoomWait {
    pool: Arc<Pool>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    /// In the line of this pool, under this number.
    Line(Arc<Pool>, u64),
    /// The task was offered memory, and has not reported that it took it.
    Told,
}

impl RoomWait {
    /// Returns a place to wait for memory of `pool`, still in no line.
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, place: Place::Nowhere }
    }

    /// Returns `Ready` when [`allocate`](crate::ProtectionDomain::allocate) has a chance; otherwise the task is woken
    /// when its turn has come. `room` is the sum of [`room_for`](crate::ProtectionDomain::room_for) of all Buffers that
    /// are wanted together. Also returns `Ready` for a `room` beyond the limit: `allocate` then returns the error.
    ///
    /// After `Ready`, other waiting tasks are not offered that memory before this is polled again, [left](Self::leave)
    /// or dropped. So call one of these as soon as the memory was taken, or is not needed any more.
    pub fn poll(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<()> {
        if matches!(self.place, Place::Told) {
            self.leave();
        }
        if room > self.pool.limit {
            self.leave();
            return Poll::Ready(());
        }
        let pool = Arc::clone(&self.pool);
        let (mut next, mut claim, mut room, mut share) = (Some(&pool), None, room, None);
        while let Some(pool) = next.filter(|_| room > 0) {
            let mut state = pool.lock();
            if let Err(why) = pool.check(&state, room, claim) {
                match &self.place {
                    Place::Line(line, number) if Arc::ptr_eq(line, pool) => {
                        let left = state.left(pool.limit);
                        let refused = matches!(why, PoolExhausted::Unfair { .. });
                        let woken = state.line.stay(*number, cx.waker(), room, refused, left);
                        drop(state);
                        woken.into_iter().for_each(Waker::wake);
                    }
                    _ => {
                        let number = state.line.join(cx.waker().clone(), room, share);
                        drop(state);
                        // Not before: locks are taken from a share to the whole.
                        self.leave();
                        self.place = Place::Line(Arc::clone(pool), number);
                    }
                }
                return Poll::Pending;
            }
            claim = pool.claim(&state);
            room = room.saturating_sub(state.kept);
            share = claim.map(|_| Arc::as_ptr(pool).addr());
            next = pool.whole.as_ref();
        }
        if let Place::Line(line, number) = std::mem::replace(&mut self.place, Place::Told) {
            line.lock().line.remove(number);
        }
        Poll::Ready(())
    }

    /// Leaves the line: the task wants no memory any more. Memory that it was offered and did not take goes to others.
    pub fn leave(&mut self) {
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Line(line, number) => {
                let mut state = line.lock();
                let left = state.left(line.limit);
                let woken = if state.line.remove(number) { state.line.offer(left) } else { Vec::new() };
                drop(state);
                woken.into_iter().for_each(Waker::wake);
            }
            Place::Told => {
                let mut next = Some(&self.pool);
                while let Some(pool) = next {
                    let mut state = pool.lock();
                    let left = state.left(pool.limit);
                    let woken = state.line.offer(left);
                    drop(state);
                    woken.into_iter().for_each(Waker::wake);
                    next = pool.whole.as_ref();
                }
            }
        }
    }
}

impl Drop for RoomWait {
    fn drop(&mut self) {
        self.leave();
    }
}
