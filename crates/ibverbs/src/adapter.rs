//! An adapter as connections use it: its limits, and the way in which it exposes memory.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device;
use crate::ffi::ibv_context;
use crate::library::{Verbs, verbs};
use crate::memory::{Mode, Registrations};

/// Most octets of the application's memory that stay registered between requests, for each protection domain.
const ADOPTED_LIMIT: usize = 256 << 20;

/// Why an adapter may make no further object.
const NO_MORE: &str =
    "it has no more of them (rpcrdma devices shows its limits; rdma.max of a control group may be lower)";

/// Longest message of InfiniBand, in octets (2 GiB).
const LONGEST: u32 = 1 << 31;

/// An open device of librdmacm.
#[derive(Debug)]
pub(crate) struct Adapter {
    verbs: &'static Verbs,
    context: NonNull<ibv_context>,
    pub(crate) name: String,
    /// Whether the device speaks iWARP.
    pub(crate) iwarp: bool,
    pub(crate) limits: Limits,
}

/// Limits that connections keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) work_requests: u32,
    pub(crate) segments: u32,
    pub(crate) completions: u32,
    pub(crate) windows: usize,
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    pub(crate) message_octets: u32,
    /// Vectors among which completion queues are spread.
    pub(crate) vectors: i32,
}

// SAFETY: functions of libibverbs on a context may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Adapter {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Adapter {}

impl Adapter {
    /// Describes the device of an identifier. The description must not be used after the last identifier of the device.
    pub(crate) fn of(context: NonNull<ibv_context>, port: u8) -> io::Result<Self> {
        let verbs = verbs().map_err(io::Error::other)?;
        // SAFETY: the context is open, and the field does not change.
        #[allow(unsafe_code)]
        let vectors = unsafe { context.as_ref() }.num_comp_vectors;
        let name = device::name(verbs, device::of(context));
        let iwarp = device::is_iwarp(context);
        let attributes = device::attributes(verbs, context)?;
        // siw names no limit; a message of RDMA has one.
        let longest = match device::port(verbs, context, port.max(1)).map(|port| port.max_msg_sz) {
            Ok(0) | Err(_) => LONGEST,
            Ok(longest) => longest.min(LONGEST),
        };
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        let reads = |count: i32| u8::try_from(count).unwrap_or(u8::MAX);
        let limits = Limits {
            work_requests: count(attributes.max_qp_wr),
            segments: count(attributes.max_sge),
            completions: count(attributes.max_cqe),
            windows: usize::try_from(attributes.max_mw).unwrap_or(0),
            reads_in: reads(attributes.max_qp_rd_atom),
            reads_out: reads(attributes.max_qp_init_rd_atom),
            message_octets: longest,
            vectors,
        };
        Ok(Self { verbs, context, name, iwarp, limits })
    }

    /// Returns the functions of libibverbs.
    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// Returns the open device.
    pub(crate) fn context(&self) -> NonNull<ibv_context> {
        self.context
    }

    /// Returns the error for an object that the adapter did not make, with its name and what a user can look at.
    pub(crate) fn refused(&self, object: &str, error: &io::Error) -> io::Error {
        let hint = match error.raw_os_error() {
            // Some drivers lock the memory of queues.
            Some(libc::ENOMEM) => {
                format!(": the limit of locked memory is too low (ulimit -l), or {NO_MORE}")
            }
            Some(libc::EAGAIN | libc::ENOSPC) => format!(": {NO_MORE}"),
            _ => String::new(),
        };
        io::Error::new(error.kind(), format!("{} makes no {object}: {error}{hint}", self.name))
    }

    /// Returns whether the adapter allocates windows of type 2. Whether they work is another question.
    pub(crate) fn allocates_windows(&self) -> bool {
        device::allocates_windows(self.verbs, self.context)
    }

    /// Returns the protection domain for a connection. With windows, all connections of the device share one. Without
    /// windows each connection has its own, so that a key is valid there only. On iWARP each connection has its own too,
    /// since the sinks of RDMA Reads have keys.
    pub(crate) fn registrations(&self, mode: Mode) -> io::Result<Arc<Registrations>> {
        /// Domains by the address of their context.
        static SHARED: Mutex<BTreeMap<usize, Weak<Registrations>>> = Mutex::new(BTreeMap::new());
        let new = || {
            Registrations::new(self.verbs, self.context, mode, ADOPTED_LIMIT)
                .map_err(|error| self.refused("protection domain", &error))
        };
        if !mode.windows || self.iwarp {
            return new();
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.context.as_ptr() as usize;
        let known = shared.get(&key).and_then(Weak::upgrade).filter(|known| known.mode == mode);
        if let Some(known) = known {
            return Ok(known);
        }
        shared.retain(|_, domain| domain.strong_count() > 0);
        let made = new()?;
        shared.insert(key, Arc::downgrade(&made));
        Ok(made)
    }
}
