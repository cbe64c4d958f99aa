//! [`Buffer`]: memory that a work request or window can own.
//!
//! A Buffer is unique and writable: only its holder can touch it. It has one of two origins. Memory of a pool
//! ([`ProtectionDomain::allocate`](crate::ProtectionDomain::allocate)) returns there when the Buffer is dropped. Memory
//! of the application ([`Buffer::adopt`]) is simply freed. Frozen into [`Bytes`], a Buffer becomes shared and
//! read-only; the memory returns to its origin when the last clone is gone.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::companions::{Companion, Companions};
use crate::pool::{Held, Reservation};

/// Memory owned by one party at a time: the application, a work request, or a window.
///
/// Dereferences to the bytes of its visible range.
pub struct Buffer {
    storage: BytesMut,
    start: usize,
    len: usize,
    /// Shared by the parts of one Buffer. `None` for adopted memory that is whole and has no companions.
    home: Option<Arc<Home>>,
}

/// Where memory belongs.
enum Home {
    /// To a pool, which takes it back.
    Pool(Held),
    /// To the application, with these companions.
    Application(Mutex<Companions>),
}

impl Home {
    fn attach(&self, companion: Box<dyn Companion>) {
        match self {
            Self::Pool(held) => held.attach(companion),
            Self::Application(companions) => {
                companions.lock().unwrap_or_else(PoisonError::into_inner).add(companion);
            }
        }
    }
}

impl Buffer {
    /// Takes over memory of the application without copying it.
    ///
    /// A hardware provider registers such memory when it is first used, which may cost more than copying a small
    /// payload.
    #[must_use]
    pub fn adopt(memory: Vec<u8>) -> Self {
        // A `Bytes` made of a `Vec` is unique, so this conversion takes the allocation over.
        Self::from(BytesMut::from(Bytes::from(memory)))
    }

    /// Turns a reservation into a Buffer of `len` bytes that begins at a multiple of `align`.
    pub(crate) fn pooled(reservation: Reservation, len: usize, align: usize) -> Self {
        let (storage, start, held) = reservation.into_storage(align);
        debug_assert!(start + len <= storage.len());
        Self { storage, start, len, home: Some(Arc::new(Home::Pool(held))) }
    }

    /// Returns the length of the visible range, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the visible range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the visible range to its first `len` bytes. Does nothing if the range is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Moves the start of the visible range forward by `count` bytes (at most to its end).
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len);
        self.start += count;
        self.len -= count;
    }

    /// Cuts the Buffer in two without copying: `self` keeps the first `at` bytes, the rest is returned.
    ///
    /// Each part can be exposed by a window of its own. [`Buffer::unsplit`] joins them again. Only whole memory of a
    /// pool goes back there for reuse; otherwise it is freed with its last part.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let at = at.min(self.len);
        // Parts are known by their home.
        let home = self.home.get_or_insert_with(|| Arc::new(Home::Application(Mutex::default())));
        let home = Some(Arc::clone(home));
        let tail = self.storage.split_off(self.start + at);
        let tail_len = self.len - at;
        self.len = at;
        Self { storage: tail, start: 0, len: tail_len, home }
    }

    /// Returns the addresses of the memory that belongs to this Buffer's [companions](Self::attach): all memory that the
    /// pool allocated together with it, or the part of adopted memory that it holds.
    #[must_use]
    pub fn allocation(&self) -> Range<usize> {
        match self.home.as_deref() {
            Some(Home::Pool(held)) => held.range(),
            _ => {
                let start = self.storage.as_ptr() as usize;
                start..start + self.storage.len()
            }
        }
    }

    /// Returns whether the memory is of a pool, so that it is likely to be used again.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        matches!(self.home.as_deref(), Some(Home::Pool(_)))
    }

    /// Keeps a value until the memory of [`allocation`](Self::allocation) is freed. Memory of a pool keeps its companions
    /// from one Buffer to the next.
    pub fn attach(&mut self, companion: Box<dyn Companion>) {
        self.home.get_or_insert_with(|| Arc::new(Home::Application(Mutex::default()))).attach(companion);
    }

    /// Joins two neighbouring parts that [`Buffer::split_off`] made, without copying.
    ///
    /// # Errors
    /// Returns `tail` if the two are not parts of one Buffer, or if their visible ranges do not touch.
    pub fn unsplit(&mut self, mut tail: Self) -> Result<(), Self> {
        let one_origin = match (&self.home, &tail.home) {
            (Some(mine), Some(other)) => Arc::ptr_eq(mine, other),
            _ => false,
        };
        let touching = self.start + self.len == self.storage.len()
            && tail.start == 0
            && std::ptr::eq(self.storage.as_ptr_range().end, tail.storage.as_ptr());
        if !(one_origin && touching) {
            return Err(tail);
        }
        self.len += tail.len;
        tail.home = None;
        self.storage.unsplit(std::mem::take(&mut tail.storage));
        Ok(())
    }

    /// Returns the memory as a vector, without a copy if it was adopted and is not a part of a split Buffer.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.is_pooled() || self.start != 0 || self.len != self.storage.len() {
            return self.to_vec();
        }
        self.home = None;
        std::mem::take(&mut self.storage).into()
    }

    /// Makes the visible range shared and read-only, without copying.
    ///
    /// Pooled memory is recycled with its content: [`truncate`](Self::truncate) the Buffer to the filled part first.
    /// Any slice of the result keeps the whole allocation.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        if self.home.is_some() {
            Bytes::from_owner(self)
        } else {
            let (mut this, range) = {
                let range = self.start..self.start + self.len;
                (self, range)
            };
            std::mem::take(&mut this.storage).freeze().slice(range)
        }
    }
}

impl From<BytesMut> for Buffer {
    fn from(storage: BytesMut) -> Self {
        let len = storage.len();
        Self { storage, start: 0, len, home: None }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Only the last part is the end of the memory; companions go before it.
        let storage = std::mem::take(&mut self.storage);
        match self.home.take().and_then(Arc::into_inner) {
            Some(Home::Pool(held)) => held.release(storage),
            Some(Home::Application(companions)) => {
                drop(companions);
                drop(storage);
            }
            None => {}
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.storage.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).field("pooled", &self.is_pooled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProtectionDomain;

    #[test]
    fn adopting_keeps_the_allocation() {
        let memory = vec![7_u8; 100_000];
        let address = memory.as_ptr();
        let buffer = Buffer::adopt(memory);
        assert_eq!(buffer.as_ptr(), address);
        let bytes = buffer.freeze();
        assert_eq!(bytes.as_ptr(), address);
        assert_eq!(bytes.len(), 100_000);
    }

    #[test]
    fn split_parts_rejoin_without_a_copy_and_return_to_the_pool() {
        let domain = ProtectionDomain::new(1 << 20);
        let mut head = domain.allocate(10_000, 1).unwrap();
        let address = head.as_ptr();
        head.copy_from_slice(&(0..10_000_u32).map(|i| i.to_le_bytes()[0]).collect::<Vec<_>>());
        let mut tail = head.split_off(4_000);
        let end = tail.split_off(1_000);
        assert_eq!((head.len(), tail.len(), end.len()), (4_000, 1_000, 5_000));
        tail.unsplit(end).unwrap();
        head.unsplit(tail).unwrap();
        assert_eq!(head.len(), 10_000);
        assert_eq!(head.as_ptr(), address);
        assert!(head.iter().enumerate().all(|(i, &byte)| byte == i.to_le_bytes()[0]));
        drop(head);
        assert_eq!(domain.usage().in_use, 0);
        assert!(domain.usage().cached > 0, "whole again, so it is kept for reuse");
    }

    #[test]
    fn the_memory_of_a_frozen_buffer_returns_with_the_last_clone() {
        let domain = ProtectionDomain::new(1 << 20);
        let bytes = domain.allocate(5_000, 1).unwrap().freeze();
        let part = bytes.slice(100..200);
        drop(bytes);
        assert!(domain.usage().in_use > 0);
        drop(part);
        assert_eq!(domain.usage().in_use, 0);
    }

    /// Tells a flag when it is dropped.
    struct Flag(Arc<std::sync::atomic::AtomicUsize>);

    impl Companion for Flag {}

    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn companions_of_pooled_memory_end_when_the_pool_frees_it() {
        let ended = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let ends = || ended.load(std::sync::atomic::Ordering::Relaxed);
        let domain = ProtectionDomain::new(4096 + MIN_ROOM);
        let mut whole = domain.allocate(1000, 1).unwrap();
        let range = whole.allocation();
        assert!(range.contains(&(whole.as_ptr() as usize)) && range.len() >= 1000);
        whole.attach(Box::new(Flag(Arc::clone(&ended))));
        drop(whole);
        let mut again = domain.allocate(900, 1).unwrap();
        assert_eq!((again.allocation(), ends()), (range.clone(), 0), "the pool reuses the memory");
        let part = again.split_off(100).freeze();
        assert_eq!(part.len(), 800);
        drop(again);
        assert_eq!(ends(), 0, "a part is left");
        drop(part);
        assert_eq!(ends(), 1, "parts are freed, not reused");

        let mut cached = domain.allocate(1000, 1).unwrap();
        cached.attach(Box::new(Flag(Arc::clone(&ended))));
        drop(cached);
        let large = domain.allocate(4096, 1).unwrap();
        assert_eq!(ends(), 1, "there is memory for both");
        let other = domain.allocate(1000, 1024).unwrap();
        assert_eq!(ends(), 2, "cached memory makes room");
        drop((large, other));
    }

    /// Room of the smallest Buffer.
    const MIN_ROOM: usize = 1024;

    #[test]
    fn companions_of_adopted_memory_end_with_its_last_part() {
        let ended = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let ends = || ended.load(std::sync::atomic::Ordering::Relaxed);
        let flag = || Box::new(Flag(Arc::clone(&ended)));
        let mut head = Buffer::adopt(vec![0; 100]);
        head.attach(flag());
        let mut tail = head.split_off(50);
        tail.attach(flag());
        drop(head);
        assert_eq!(ends(), 0);
        let bytes = tail.freeze().slice(1..2);
        assert_eq!(ends(), 0);
        drop(bytes);
        assert_eq!(ends(), 2);

        let mut head = Buffer::adopt(vec![0; 100]);
        let mut tail = head.split_off(50);
        tail.attach(flag());
        head.attach(flag());
        head.unsplit(tail).unwrap();
        assert_eq!(ends(), 2);
        assert_eq!(head.into_vec().len(), 100);
        assert_eq!(ends(), 4, "the memory has left the Buffer");
    }

    struct Office(Arc<std::sync::atomic::AtomicUsize>, usize);

    impl crate::Registrar for Office {
        fn number(&self) -> usize {
            self.1
        }

        fn companion(&self, range: Range<usize>) -> Option<Box<dyn Companion>> {
            struct Entry(usize);
            impl Companion for Entry {
                fn registrar(&self) -> Option<usize> {
                    Some(self.0)
                }
            }
            self.0.fetch_add(range.len(), std::sync::atomic::Ordering::Relaxed);
            Some(Box::new(Entry(self.1)))
        }
    }

    #[test]
    fn registrars_see_all_memory_once() {
        let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let domain = ProtectionDomain::new(1 << 20);
        let share = domain.share(1 << 19);
        drop(domain.allocate(1000, 1).unwrap());
        let registrar: Arc<dyn crate::Registrar> = Arc::new(Office(Arc::clone(&seen), 7));
        share.add_registrar(&registrar);
        domain.add_registrar(&registrar);
        let buffer = domain.allocate(1000, 1).unwrap();
        let len = buffer.allocation().len();
        let count = || seen.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(count(), len, "memory of before is registered with its next use");
        drop(buffer);
        drop(share.allocate(900, 1).unwrap());
        assert_eq!(count(), len, "once");
        let both = (share.allocate(900, 1).unwrap(), domain.allocate(900, 1).unwrap());
        assert_eq!(count(), 2 * len);
        drop(both);
        drop(registrar);
        let other: Arc<dyn crate::Registrar> = Arc::new(Office(Arc::clone(&seen), 8));
        domain.add_registrar(&other);
        drop(domain.allocate(900, 1).unwrap());
        assert_eq!(count(), 3 * len, "another registrar");
    }

    #[test]
    fn stale_companions_make_room_for_others() {
        struct Stale(Flag);
        impl Companion for Stale {
            fn is_stale(&self) -> bool {
                Arc::strong_count(&self.0.0) > 0
            }
        }
        let ended = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut buffer = Buffer::adopt(vec![0; 8]);
        for _ in 0..3 {
            buffer.attach(Box::new(Stale(Flag(Arc::clone(&ended)))));
        }
        assert_eq!(ended.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn only_neighbouring_parts_of_one_buffer_join() {
        let domain = ProtectionDomain::new(1 << 20);
        let mut pooled = domain.allocate(100, 1).unwrap();
        let empty_head_tail = pooled.split_off(0);
        let foreign = Buffer::adopt(vec![1; 50]);
        let foreign = pooled.unsplit(foreign).unwrap_err();
        assert_eq!((pooled.len(), foreign.len()), (0, 50));
        pooled.unsplit(empty_head_tail).unwrap();
        assert_eq!(pooled.len(), 100);

        let mut head = Buffer::adopt((0..100).collect());
        let mut tail = head.split_off(50);
        head.truncate(49);
        tail = head.unsplit(tail).unwrap_err();
        assert_eq!(&tail[..2], &[50, 51]);
    }

    #[test]
    fn adopted_memory_comes_back_as_it_was() {
        let memory = vec![3_u8; 10_000];
        let address = memory.as_ptr();
        let memory = Buffer::adopt(memory).into_vec();
        assert_eq!(memory.as_ptr(), address);
    }
}
