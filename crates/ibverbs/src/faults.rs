//! Faults that a device reports apart from completions, by its asynchronous events.
//!
//! When a peer breaks a rule, the adapter flushes the queues, and its completions do not say why. An event may. A device
//! has one queue of events for the whole process. So each reader keeps the faults of other connections for them. A
//! connection reads when it ends. Other users of the device in this process find no events.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use rpcrdma_verbs::Disconnected;

use crate::cm::set_non_blocking;
use crate::ffi::value::{
    ASYNC_CQ_ERR, ASYNC_DEVICE_FATAL, ASYNC_PORT_ACTIVE, ASYNC_PORT_ERR, ASYNC_QP_ACCESS_ERR, ASYNC_QP_FATAL,
    ASYNC_QP_REQ_ERR,
};
use crate::ffi::{ibv_async_event, ibv_context, ibv_cq, ibv_qp};
use crate::library::Verbs;

/// Most events that one call reads.
const BATCH: usize = 256;

/// What a device reports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The peer's request named memory that it must not use.
    Access,
    /// A request of the peer could not be carried out. siw says so too when its TCP connection is lost.
    Request,
    /// The queue pair failed. siw says so too when its TCP connection is lost.
    QueuePair,
    /// The completion queue failed, or had too few entries.
    Completions,
}

impl Fault {
    /// Returns the fault that an event reports, if it reports one.
    fn of(event: c_int) -> Option<Self> {
        match event {
            ASYNC_QP_ACCESS_ERR => Some(Self::Access),
            ASYNC_QP_REQ_ERR => Some(Self::Request),
            ASYNC_QP_FATAL => Some(Self::QueuePair),
            ASYNC_CQ_ERR => Some(Self::Completions),
            _ => None,
        }
    }

    /// Returns the reason for which the connection ends. `known` is the reason that the connection knows already: only an
    /// access error says more than the end of the connection by the peer.
    pub(crate) fn reason(self, known: Option<Disconnected>) -> Disconnected {
        let link = |what: &str| Disconnected::Link(format!("the adapter reports {what}"));
        match (self, known) {
            (Self::Access, None | Some(Disconnected::Peer)) => Disconnected::ProtocolError(
                "a key, a range or a right that was not given (the adapter reports an access error)"
                    .to_owned(),
            ),
            (_, Some(known)) => known,
            (_, None) => link(match self {
                Self::Access => "an access error",
                Self::Request => "that a request of the peer could not be carried out",
                Self::QueuePair => "a failure of the queue pair",
                Self::Completions => "a failure of the completion queue",
            }),
        }
    }
}

/// First faults of the objects that connections own, by the addresses of these objects.
static FAULTS: Mutex<BTreeMap<usize, Option<Fault>>> = Mutex::new(BTreeMap::new());

/// Keeps a fault of an object that a connection owns. The first one is the cause of others.
fn keep(faults: &mut BTreeMap<usize, Option<Fault>>, object: usize, fault: Fault) {
    if let Some(known) = faults.get_mut(&object) {
        known.get_or_insert(fault);
    }
}

/// The faults of one connection.
#[derive(Debug)]
pub(crate) struct Faults {
    verbs: &'static Verbs,
    objects: [usize; 2],
}

impl Faults {
    /// Keeps faults of a queue pair and its completion queue from now on.
    pub(crate) fn new(
        verbs: &'static Verbs,
        context: NonNull<ibv_context>,
        queue_pair: NonNull<ibv_qp>,
        completions: NonNull<ibv_cq>,
    ) -> std::io::Result<Self> {
        // SAFETY: the context is open, and the field does not change.
        #[allow(unsafe_code)]
        set_non_blocking(unsafe { (*context.as_ptr()).async_fd })?;
        let objects = [queue_pair.as_ptr() as usize, completions.as_ptr() as usize];
        FAULTS.lock().unwrap_or_else(PoisonError::into_inner).extend(objects.map(|object| (object, None)));
        Ok(Self { verbs, objects })
    }

    /// Reads the device's events, and returns the fault of this connection. The context must be that of the queue pair.
    pub(crate) fn read(&self, context: NonNull<ibv_context>) -> Option<Fault> {
        for _ in 0..BATCH {
            let Some(event) = self.next(context) else { break };
            match event {
                ASYNC_DEVICE_FATAL => tracing::error!("the RDMA device has reported that it failed"),
                ASYNC_PORT_ERR => tracing::debug!("a port of the RDMA device went down some time ago"),
                ASYNC_PORT_ACTIVE => tracing::debug!("a port of the RDMA device became active some time ago"),
                event => tracing::trace!(event, fault = ?Fault::of(event), "event of the RDMA device"),
            }
        }
        let faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        self.objects.iter().find_map(|object| faults.get(object).copied().flatten())
    }

    /// Takes the next event, and keeps the fault that it reports. Returns its type.
    fn next(&self, context: NonNull<ibv_context>) -> Option<c_int> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open, its descriptor does not block, and the structure has the size that the library
        // writes.
        #[allow(unsafe_code)]
        let result = unsafe { (self.verbs.ibv_get_async_event)(context.as_ptr(), event.as_mut_ptr()) };
        if result != 0 {
            return None;
        }
        // SAFETY: the library has filled the structure. Of a port's number, the field holds zeros beside it.
        #[allow(unsafe_code)]
        let mut event = unsafe { event.assume_init() };
        if let Some(fault) = Fault::of(event.event_type) {
            // Before the acknowledgement, for which the end of the object waits: its address names no other one yet.
            let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
            keep(&mut faults, event.element as usize, fault);
        }
        // SAFETY: the event is from the library and is acknowledged once. The object lives until then, since its end waits.
        #[allow(unsafe_code)]
        unsafe {
            (self.verbs.ibv_ack_async_event)(&raw mut event);
        }
        Some(event.event_type)
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        for object in &self.objects {
            faults.remove(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_of_a_known_object_stays() {
        let mut faults = BTreeMap::from([(1, None)]);
        keep(&mut faults, 1, Fault::Access);
        keep(&mut faults, 1, Fault::QueuePair);
        keep(&mut faults, 2, Fault::Request);
        assert_eq!(faults, BTreeMap::from([(1, Some(Fault::Access))]));
    }

    #[test]
    fn only_an_access_error_says_more_than_the_end_by_the_peer() {
        for event in [ASYNC_CQ_ERR, ASYNC_QP_FATAL, ASYNC_QP_REQ_ERR] {
            let fault = Fault::of(event).unwrap();
            assert_eq!(fault.reason(Some(Disconnected::Peer)), Disconnected::Peer);
            assert!(matches!(fault.reason(None), Disconnected::Link(_)), "{fault:?}");
        }
        let access = Fault::of(ASYNC_QP_ACCESS_ERR).unwrap();
        for known in [None, Some(Disconnected::Peer)] {
            assert!(matches!(access.reason(known), Disconnected::ProtocolError(_)));
        }
        assert_eq!(access.reason(Some(Disconnected::Local)), Disconnected::Local);
        assert_eq!(Fault::of(ASYNC_PORT_ERR), None);
    }
}
