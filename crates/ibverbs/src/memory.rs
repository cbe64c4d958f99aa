//! Registered memory: a protection domain of the adapter, and the registrations in it.
//!
//! Memory of Buffers is registered once, when it is first used, with local rights only. The registration is a
//! [`Companion`] of the memory, so neither outlives the other. Memory that was freed and is in use again is not
//! found here. Shared memory ([`bytes::Bytes`]) is found by its address, if it was a Buffer before. Other memory is
//! registered for one request ([`Account::register`]), and the request owns that [`Region`].

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rpcrdma_verbs::{Buffer, Companion, Registrar};

use crate::ffi::value::{ACCESS_LOCAL_WRITE, ACCESS_MW_BIND};
use crate::ffi::{ibv_context, ibv_mr, ibv_pd};
use crate::library::Verbs;

/// Octets of the largest page of common systems: an address that the adapter is told has the offset of the true one in its
/// page.
const PAGE: usize = 64 << 10;

/// How this adapter exposes memory, as a trial has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Memory windows of type 2 work. Otherwise each window is a registration.
    pub(crate) windows: bool,
    /// Registrations may have addresses of our choice. Otherwise peers see addresses of this process.
    pub(crate) chosen_addresses: bool,
    /// Flag of a completion that tells of a remote invalidation; `None` if there are none.
    pub(crate) invalidation_flag: Option<u32>,
}

/// A registration.
#[derive(Debug)]
pub(crate) struct Region {
    verbs: &'static Verbs,
    mr: NonNull<ibv_mr>,
    /// First address, as the process sees it.
    start: usize,
    len: usize,
    /// First address, as the adapter sees it.
    address: u64,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
    /// Whether the adapter has given it up.
    closed: bool,
}

// SAFETY: functions of libibverbs on a registration may be called from any thread; `Region` calls one, in `drop`.
#[allow(unsafe_code)]
unsafe impl Send for Region {}
// SAFETY: as above; a shared `Region` is only read.
#[allow(unsafe_code)]
unsafe impl Sync for Region {}

impl Region {
    /// Returns the place of `len` octets at the process address `start`, if the registration covers them.
    fn place(&self, start: usize, len: usize) -> Option<Place> {
        let offset = start.checked_sub(self.start)?;
        let covered = offset <= self.len && len <= self.len - offset;
        covered.then(|| Place {
            address: self.address.wrapping_add(offset as u64),
            local_key: self.local_key,
            mr: self.mr,
        })
    }

    /// Returns the place of its first octet.
    pub(crate) fn beginning(&self) -> Place {
        Place { address: self.address, local_key: self.local_key, mr: self.mr }
    }

    /// Ends the registration. After an error the adapter may still use the memory.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        // SAFETY: the registration is one of this library, and ends once. Its domain is still there: `Registrations` ends
        // its own before the domain, and connections end theirs before they let go of the domain.
        #[allow(unsafe_code)]
        let result = unsafe { (self.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result.abs()));
        }
        self.closed = true;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the adapter does not give up a registration of memory");
        }
    }
}

/// Where the adapter finds some octets of registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Address of the first octet, as the adapter sees it.
    pub(crate) address: u64,
    /// Key for our own requests.
    pub(crate) local_key: u32,
    /// The registration, for binds. Valid as long as the memory that was looked up.
    pub(crate) mr: NonNull<ibv_mr>,
}

// SAFETY: a place is a name for calls of libibverbs, which may be made from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Place {}

/// Registrations by first address.
type Map = BTreeMap<usize, Region>;

/// A protection domain of an adapter, with the registrations of Buffers.
#[derive(Debug)]
pub(crate) struct Registrations {
    verbs: &'static Verbs,
    domain: NonNull<ibv_pd>,
    pub(crate) mode: Mode,
    /// Most octets of adopted memory that stay registered between requests.
    adopted_limit: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    regions: Map,
    /// Octets of adopted memory in them.
    adopted: usize,
}

// SAFETY: functions of libibverbs on a domain may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Registrations {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Registrations {}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrations {
    /// Makes a domain on an open device, which must stay open as long as the domain.
    pub(crate) fn new(
        verbs: &'static Verbs,
        context: NonNull<ibv_context>,
        mode: Mode,
        adopted_limit: usize,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: the caller's device is open.
        #[allow(unsafe_code)]
        let domain = unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { verbs, domain, mode, adopted_limit, shared: Arc::default() }))
    }

    /// Returns the domain, for functions that make objects in it.
    pub(crate) fn domain(&self) -> NonNull<ibv_pd> {
        self.domain
    }

    /// Returns the place of memory that is registered for good.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<Place> {
        self.find_range(bytes.as_ptr() as usize, bytes.len())
    }

    fn find_range(&self, start: usize, len: usize) -> Option<Place> {
        let state = self.shared.lock();
        let (_, region) = state.regions.range(..=start).next_back()?;
        region.place(start, len)
    }

    fn reserve(&self, adopted: usize) -> bool {
        let mut state = self.shared.lock();
        let fits = adopted <= self.adopted_limit.saturating_sub(state.adopted);
        if fits {
            state.adopted += adopted;
        }
        fits
    }

    fn release(&self, adopted: usize) {
        self.shared.lock().adopted -= adopted;
    }
}

/// Registrations as one connection uses them. It counts those that it makes.
#[derive(Debug)]
pub(crate) struct Account {
    registrations: Arc<Registrations>,
    made: AtomicU64,
}

impl Deref for Account {
    type Target = Registrations;

    fn deref(&self) -> &Registrations {
        &self.registrations
    }
}

impl Account {
    pub(crate) fn new(registrations: Arc<Registrations>) -> Self {
        Self { registrations, made: AtomicU64::new(0) }
    }

    /// Returns the number of registrations that this connection made, kept ones included.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Registers the memory of a Buffer for good, unless it is.
    ///
    /// Returns its place, or `None` if adopted memory has no room left; such memory is registered for each request.
    pub(crate) fn keep(&self, buffer: &mut Buffer) -> io::Result<Option<Place>> {
        let (start, len) = (buffer.as_ptr() as usize, buffer.len());
        if let Some(place) = self.find_range(start, len) {
            return Ok(Some(place));
        }
        let all = buffer.allocation();
        let adopted = if buffer.is_pooled() { 0 } else { all.len() };
        if all.is_empty() || !self.reserve(adopted) {
            return Ok(None);
        }
        let region = self.register(all.clone(), self.rights()).inspect_err(|_| self.release(adopted))?;
        let place = region.place(start, len);
        let mut state = self.registrations.shared.lock();
        let other = state.regions.range(..=start).next_back().and_then(|(_, other)| other.place(start, len));
        if let Some(other) = other {
            // Another connection has registered another part of the Buffer meanwhile, and uses that registration.
            state.adopted -= adopted;
            drop(state);
            drop(region);
            return Ok(Some(other));
        }
        // A region that begins at this address is of a shorter part, which is in this Buffer again: nobody uses it.
        let replaced = state.regions.insert(all.start, region);
        drop(state);
        drop(replaced);
        let shared = Arc::downgrade(&self.registrations.shared);
        buffer.attach(Box::new(Registered { shared, start: all.start, adopted }));
        Ok(place)
    }

    /// Registers memory with these rights, for as long as the result lives. The memory must stay valid as long.
    pub(crate) fn register(&self, range: Range<usize>, rights: c_int) -> io::Result<Region> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.registrations.register(range, rights)
    }
}

impl Registrations {
    /// Returns the rights of registrations that stay: what windows and requests of ours need. The peer gets rights by
    /// windows alone.
    fn rights(&self) -> c_int {
        if self.mode.windows { ACCESS_LOCAL_WRITE | ACCESS_MW_BIND } else { ACCESS_LOCAL_WRITE }
    }

    /// Registers memory with these rights, for as long as the result lives. The memory must stay valid as long.
    fn register(&self, range: Range<usize>, rights: c_int) -> io::Result<Region> {
        let (start, len) = (range.start, range.len());
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        let address = if self.mode.chosen_addresses { chosen_address(start) } else { start as u64 };
        let mr = if self.mode.chosen_addresses {
            // SAFETY: the call reads page tables, not memory. Callers keep the memory while the registration lives, and own
            // it (`Buffer`) if they give a right to write.
            #[allow(unsafe_code)]
            unsafe {
                (self.verbs.ibv_reg_mr_iova)(self.domain.as_ptr(), memory, len, address, rights)
            }
        } else {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                (self.verbs.ibv_reg_mr)(self.domain.as_ptr(), memory, len, rights)
            }
        };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the library has returned a valid object, of which it does not change these fields.
        #[allow(unsafe_code)]
        let ibv_mr { lkey, rkey, .. } = unsafe { mr.as_ref() };
        let (local_key, remote_key) = (*lkey, *rkey);
        Ok(Region { verbs: self.verbs, mr, start, len, address, local_key, remote_key, closed: false })
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        // Under the lock, so that no companion ends a registration when the domain is gone.
        self.shared.lock().regions.clear();
        // SAFETY: every object in the domain has ended: registrations above, queue pairs and windows by their owners, which
        // hold the domain.
        #[allow(unsafe_code)]
        let result = unsafe { (self.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
        if result != 0 {
            let error = io::Error::from_raw_os_error(result.abs());
            tracing::warn!(%error, "the adapter does not give up a protection domain");
        }
    }
}

impl Registrar for Registrations {
    fn number(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }

    fn companion(&self, range: Range<usize>) -> Option<Box<dyn Companion>> {
        let rights = self.rights();
        match self.register(range.clone(), rights) {
            Ok(region) => {
                let replaced = self.shared.lock().regions.insert(range.start, region);
                drop(replaced);
                let shared = Arc::downgrade(&self.shared);
                Some(Box::new(Registered { shared, start: range.start, adopted: 0 }))
            }
            Err(error) => {
                // A request that uses the memory tries again, and reports the error.
                tracing::debug!("{}", explain(&error, range.len()));
                None
            }
        }
    }
}

/// A registration, as companion of its memory.
struct Registered {
    shared: Weak<Shared>,
    start: usize,
    adopted: usize,
}

impl Companion for Registered {
    fn registrar(&self) -> Option<usize> {
        Some(self.shared.as_ptr() as usize)
    }

    fn is_stale(&self) -> bool {
        self.shared.strong_count() == 0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut state = shared.lock();
            state.adopted -= self.adopted;
            state.regions.remove(&self.start);
        }
    }
}

/// Returns an address for memory that begins at `start` (RFC 8166 §8.1.1). It is random, but for the place in its page,
/// and far from the ends of the address space.
fn chosen_address(start: usize) -> u64 {
    let random: u64 = rand::random();
    let page = (random >> 3) & !(PAGE as u64 - 1);
    (page | 1 << 60) + (start % PAGE) as u64
}

/// Describes the error of a registration, with what a user can do about it.
pub(crate) fn explain(error: &io::Error, len: usize) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            ": the limit of locked memory is too low, or the adapter has no registrations left (ulimit -l; LimitMEMLOCK= of \
             systemd; rpcrdma devices shows the adapter's limits)"
        }
        _ => "",
    };
    format!("{len} octets of memory cannot be registered: {error}{hint}")
}

/// Returns the addresses of a slice.
pub(crate) fn address_range(bytes: &[u8]) -> std::ops::Range<usize> {
    let start = bytes.as_ptr() as usize;
    start..start + bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_addresses_keep_the_place_in_the_page_and_do_not_wrap() {
        let mut seen = std::collections::BTreeSet::new();
        for start in (0..1000_usize).map(|number| 0x7f00_0000_0123 + number * 7) {
            let address = chosen_address(start);
            assert_eq!(address % PAGE as u64, (start % PAGE) as u64);
            assert!(address.checked_add(u64::from(u32::MAX)).is_some());
            assert!(address.checked_sub(u64::from(u32::MAX)).is_some());
            seen.insert(address / PAGE as u64);
        }
        assert!(seen.len() > 990, "addresses are predictable");
    }

    #[test]
    fn a_lack_of_locked_memory_has_a_remedy() {
        let text = explain(&io::Error::from_raw_os_error(libc::ENOMEM), 4096);
        assert!(text.starts_with("4096 octets of memory cannot be registered"), "{text}");
        assert!(text.contains("ulimit -l"), "{text}");
        assert!(!explain(&io::Error::from_raw_os_error(libc::EINVAL), 1).contains("ulimit"));
    }
}
