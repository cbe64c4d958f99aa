//! [`ProtectionDomain`]: the source of Buffers.
//!
//! A domain serves all connections of a client or server and bounds the memory that they hold together. An
//! exhausted domain refuses with [`PoolExhausted`]; callers that can wait use a [`RoomWait`].
//!
//! A [share](ProtectionDomain::share) is a domain with a limit of its own inside another domain. Its Buffers count
//! against both limits, and their memory goes back to the whole. So one user of many cannot take everything. If the
//! shares are [fair](ProtectionDomain::fair_share), several together cannot either: the limit of each shrinks with the
//! free memory ([`is_fair`](crate::is_fair)).
//!
//! A share can [keep](ProtectionDomain::keep) memory that it was given: no other share gets it between two uses. So a
//! connection that has promised Receives can post them again, however full the domain is meanwhile (rule I3).

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::buffer::Buffer;
use crate::companions::Registrar;
use crate::pool::{MAX_ALIGN, Pool, PoolExhausted, PoolUsage, Reservation, RoomWait, room_for};

/// A pool of Buffers with a limit; the equivalent of `ibv_pd` with its registered memory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ProtectionDomain {
    pool: Arc<Pool>,
}

/// A weak reference to a domain, see [`ProtectionDomain::downgrade`].
#[derive(Debug, Clone)]
pub struct WeakDomain {
    pool: Weak<Pool>,
}

impl ProtectionDomain {
    /// Creates a domain whose Buffers hold at most `limit` bytes together.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pool: Pool::new(limit) }
    }

    /// Creates a domain inside this one, whose Buffers hold at most `limit` bytes together. They count against this
    /// domain too, which may therefore refuse before the share is used up. Clones of a share are the same share.
    #[must_use]
    pub fn share(&self, limit: usize) -> Self {
        Self { pool: self.pool.share(limit, None) }
    }

    /// Creates a [`share`](Self::share) that may hold `limit` bytes while all others hold none. Its limit shrinks with
    /// the free memory of this domain, by the rule of [`is_fair`](crate::is_fair). The share may hold `least` bytes
    /// in any case while the domain has memory. Bytes that it holds already stay.
    #[must_use]
    pub fn fair_share(&self, limit: usize, least: usize) -> Self {
        Self { pool: self.pool.share(limit, Some(least)) }
    }

    /// Lets a share keep up to `room` bytes of the whole, from now on. Memory of its Buffers that come back stays with
    /// the share, for its next Buffers, up to that number. Nothing is taken in advance. With less `room` than before,
    /// the share gives the surplus back at once. With 0, or when the share and its Buffers are gone, nothing is kept.
    /// On a domain that is no share this has no effect.
    pub fn keep(&self, room: usize) {
        self.pool.keep(room);
    }

    /// Returns `Ready` when a share [keeps](Self::keep) memory for a Buffer of `len` bytes; otherwise the task is woken
    /// when kept memory comes back. Tasks that wait at the whole are not woken by that, since the whole has no more
    /// memory than before.
    pub fn poll_kept(&self, cx: &mut Context<'_>, len: usize) -> Poll<()> {
        self.pool.poll_kept(cx, room_for(len))
    }

    /// Lets a provider register all memory of the domain, and of the domain that this one is a share of. Memory gets its
    /// companion when it is next allocated. A registrar that is there already, or has ended, has no effect.
    pub fn add_registrar(&self, registrar: &Arc<dyn Registrar>) {
        self.pool.add_registrar(registrar);
    }

    /// Returns a reference that can be upgraded as long as the domain, one of its shares or one of its Buffers lives.
    #[must_use]
    pub fn downgrade(&self) -> WeakDomain {
        WeakDomain { pool: Arc::downgrade(&self.pool) }
    }

    /// Allocates a Buffer of `len` bytes that begins at a multiple of `align` (a power of two, at most [`MAX_ALIGN`]).
    ///
    /// Its content is unspecified: zeros, or data of an earlier user of this domain.
    ///
    /// # Errors
    /// [`PoolExhausted`] when the limit does not allow the Buffer now, or ever.
    pub fn allocate(&self, len: usize, align: usize) -> Result<Buffer, PoolExhausted> {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(PoolExhausted::Alignment(align));
        }
        Ok(Buffer::pooled(Reservation::charge(&self.pool, len)?, len, align))
    }

    /// Allocates Buffers of these lengths, all or none; the entry of a zero length is `None`.
    ///
    /// # Errors
    /// [`PoolExhausted`], where `requested` is the memory for all Buffers together, the amount to wait for.
    pub fn allocate_together(&self, lengths: &[usize]) -> Result<Vec<Option<Buffer>>, PoolExhausted> {
        let rooms = lengths.iter().filter(|len| **len > 0).map(|len| room_for(*len));
        let requested = rooms.fold(0, usize::saturating_add);
        let limit = self.usage().limit;
        if requested > limit {
            return Err(PoolExhausted::OverLimit { requested, limit });
        }
        let allocate = |len: &usize| if *len == 0 { Ok(None) } else { self.allocate(*len, 1).map(Some) };
        lengths.iter().map(allocate).collect::<Result<_, _>>().map_err(|error| match error {
            PoolExhausted::InUse { in_use, limit, .. } => PoolExhausted::InUse { requested, in_use, limit },
            PoolExhausted::Unfair { held, left, .. } => PoolExhausted::Unfair { requested, held, left },
            other => other,
        })
    }

    /// Reserves memory for a Buffer of `len` bytes, which can then be had later without fail. Such a reservation backs
    /// a Receive whose memory is attached only when data arrives.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn reserve(&self, len: usize) -> Result<Reserved, PoolExhausted> {
        Ok(Reserved { len, align: 1, reservation: Reservation::charge(&self.pool, len)? })
    }

    /// Returns a place to wait for memory of this domain.
    #[must_use]
    pub fn wait(&self) -> RoomWait {
        RoomWait::new(Arc::clone(&self.pool))
    }

    /// Returns the bytes that a Buffer of `len` bytes takes of the limit: its size class.
    #[must_use]
    pub fn room_for(len: usize) -> usize {
        room_for(len)
    }

    /// Returns the memory that the domain holds now.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        self.pool.usage()
    }
}

impl WeakDomain {
    /// Returns the domain, if it is still alive.
    #[must_use]
    pub fn upgrade(&self) -> Option<ProtectionDomain> {
        self.pool.upgrade().map(|pool| ProtectionDomain { pool })
    }
}

/// Memory reserved by [`ProtectionDomain::reserve`]; counts as in use.
#[derive(Debug)]
pub struct Reserved {
    len: usize,
    align: usize,
    reservation: Reservation,
}

impl Reserved {
    /// Returns the length of the reserved Buffer, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether that length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the reservation for a Buffer that begins at a multiple of `align`: a power of two, at most
    /// [`MAX_ALIGN`]. Any other `align` is ignored.
    #[must_use]
    pub fn aligned(self, align: usize) -> Self {
        if align.is_power_of_two() && align <= MAX_ALIGN { Self { align, ..self } } else { self }
    }

    /// Returns the Buffer.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        Buffer::pooled(self.reservation, self.len, self.align)
    }
}

#[cfg(test)]
mod tests;
