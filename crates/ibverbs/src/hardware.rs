//! A queue pair with its completion queue: the calls that move work to the adapter and completions back.

use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use rpcrdma_verbs::Counters;
use tokio::io::unix::AsyncFd;

use crate::adapter::Adapter;
use crate::cm::{self, Descriptor, Endpoint};
use crate::faults::{Fault, Faults};
use crate::ffi::value::{
    MW_TYPE_2, QP_STATE, QPS_SQD, QPT_RC, SEND_SIGNALED, WR_BIND_MW, WR_LOCAL_INV, WR_RDMA_READ,
    WR_RDMA_WRITE,
};
use crate::ffi::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_attr, ibv_qp_cap,
    ibv_recv_wr, ibv_send_wr, ibv_send_wr_bind, ibv_send_wr_rdma, ibv_sge, ibv_wc,
};
use crate::library::Verbs;
use crate::memory::{Account, Place, Registrations};

/// Completions that one call takes.
const BATCH: usize = 32;
/// Completion events that are acknowledged together.
const EVENTS: c_uint = 64;
/// Segments of local memory that requests may have, if the adapter allows as many. More would make every entry of the
/// queues larger.
const SEGMENTS: u32 = 16;
/// Octets of a message that requests may carry in the queue itself, if the adapter allows as many.
const INLINE: u32 = 256;

/// What a request of the send queue does, beside its segments of local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// A Send, with the opcode and flags for invalidation and for solicited events.
    Send {
        opcode: c_int,
        flags: c_uint,
        invalidate: u32,
    },
    Write {
        address: u64,
        key: u32,
        flags: c_uint,
    },
    Read {
        address: u64,
        key: u32,
    },
    Bind {
        window: Window,
        key: u32,
        place: Place,
        len: u64,
        rights: c_uint,
    },
    Invalidate {
        key: u32,
    },
}

/// A memory window of the adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    window: NonNull<ibv_mw>,
}

// SAFETY: a window is a name for calls of libibverbs, which may be made from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Window {}

/// Requests for the send queue that are posted together.
#[derive(Default)]
pub(crate) struct Chain {
    requests: Vec<ibv_send_wr>,
    /// Segments of all requests, in their order.
    segments: Vec<ibv_sge>,
}

// SAFETY: the pointers in the requests are set when the chain is posted, and not used afterwards.
#[allow(unsafe_code)]
unsafe impl Send for Chain {}

impl Chain {
    /// Adds a segment of local memory to the next request.
    pub(crate) fn segment(&mut self, address: u64, len: usize, key: u32) {
        // Messages are shorter than 2^31 octets.
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        self.segments.push(ibv_sge { addr: address, length, lkey: key });
    }

    /// Adds a request with `count` of the segments that were added before it.
    pub(crate) fn request(&mut self, number: u64, operation: Operation, count: usize, signaled: bool) {
        let mut request = ibv_send_wr {
            wr_id: number,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: c_int::try_from(count).unwrap_or(c_int::MAX),
            opcode: 0,
            send_flags: if signaled { SEND_SIGNALED } else { 0 },
            invalidate_rkey: 0,
            rdma: ibv_send_wr_rdma::default(),
            qp_type: 0,
            bind_mw: no_bind(),
        };
        match operation {
            Operation::Send { opcode, flags, invalidate } => {
                request.opcode = opcode;
                request.send_flags |= flags;
                request.invalidate_rkey = invalidate;
            }
            Operation::Write { address, key, flags } => {
                request.opcode = WR_RDMA_WRITE;
                request.send_flags |= flags;
                request.rdma.remote_addr = address;
                request.rdma.rkey = key;
            }
            Operation::Read { address, key } => {
                request.opcode = WR_RDMA_READ;
                request.rdma.remote_addr = address;
                request.rdma.rkey = key;
            }
            Operation::Bind { window, key, place, len, rights } => {
                request.opcode = WR_BIND_MW;
                request.bind_mw = ibv_send_wr_bind {
                    mw: window.window.as_ptr(),
                    rkey: key,
                    bind_info: ibv_mw_bind_info {
                        mr: place.mr.as_ptr(),
                        addr: place.address,
                        length: len,
                        mw_access_flags: rights,
                    },
                };
            }
            Operation::Invalidate { key } => {
                request.opcode = WR_LOCAL_INV;
                request.invalidate_rkey = key;
            }
        }
        self.requests.push(request);
    }

    /// Asks for a completion of the last request.
    pub(crate) fn signal_last(&mut self) {
        if let Some(last) = self.requests.last_mut() {
            last.send_flags |= SEND_SIGNALED;
        }
    }

    /// Sets the pointers, and returns the first request.
    fn link(&mut self) -> Option<NonNull<ibv_send_wr>> {
        let mut segments = self.segments.as_mut_slice();
        let mut next = std::ptr::null_mut();
        // From the last request to the first, so that each knows its successor.
        for request in self.requests.iter_mut().rev() {
            let count = usize::try_from(request.num_sge).unwrap_or(0);
            let (before, own) = segments.split_at_mut_checked(segments.len().checked_sub(count)?)?;
            request.sg_list = own.as_mut_ptr();
            request.next = next;
            next = request;
            segments = before;
        }
        NonNull::new(next)
    }

    /// Tells the library the keys of windows whose binds were posted: drivers look there for the key before the next bind.
    fn note_binds(&self) {
        for request in self.requests.iter().filter(|request| request.opcode == WR_BIND_MW) {
            // SAFETY: the window lives until the queue pair ends, and only its owner writes the field.
            #[allow(unsafe_code)]
            unsafe {
                (*request.bind_mw.mw).rkey = request.bind_mw.rkey;
            }
        }
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.segments.clear();
    }
}

fn no_bind() -> ibv_send_wr_bind {
    let info = ibv_mw_bind_info { mr: std::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    ibv_send_wr_bind { mw: std::ptr::null_mut(), rkey: 0, bind_info: info }
}

/// Sizes of a queue pair, as the adapter grants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) send_segments: usize,
    pub(crate) receive_segments: usize,
    pub(crate) inline: usize,
}

/// A completion queue with its channel.
struct Queue {
    verbs: &'static Verbs,
    /// `None` while it is dropped.
    events: Option<AsyncFd<Descriptor>>,
    channel: NonNull<ibv_comp_channel>,
    queue: NonNull<ibv_cq>,
    unacknowledged: c_uint,
}

impl Queue {
    fn new(adapter: &Adapter, entries: usize) -> io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let verbs = adapter.verbs();
        // SAFETY: the adapter's context is open.
        #[allow(unsafe_code)]
        let channel = unsafe { (verbs.ibv_create_comp_channel)(adapter.context().as_ptr()) };
        let channel = NonNull::new(channel)
            .ok_or_else(|| adapter.refused("completion channel", &io::Error::last_os_error()))?;
        let vectors = usize::try_from(adapter.limits.vectors).unwrap_or(1).max(1);
        let vector = c_int::try_from(NEXT.fetch_add(1, Ordering::Relaxed) % vectors).unwrap_or(0);
        let entries = entries.min(usize::try_from(adapter.limits.completions).unwrap_or(usize::MAX));
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the context is open, and the channel is one of it.
        #[allow(unsafe_code)]
        let queue = unsafe {
            (verbs.ibv_create_cq)(
                adapter.context().as_ptr(),
                entries,
                std::ptr::null_mut(),
                channel.as_ptr(),
                vector,
            )
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = adapter.refused("completion queue", &io::Error::last_os_error());
            // SAFETY: the channel has no queue.
            #[allow(unsafe_code)]
            unsafe {
                (verbs.ibv_destroy_comp_channel)(channel.as_ptr());
            }
            return Err(error);
        };
        // From here on the drop of `made` frees both.
        let mut made = Self { verbs, events: None, channel, queue, unacknowledged: 0 };
        // SAFETY: the channel is valid, and the field does not change.
        #[allow(unsafe_code)]
        let descriptor = unsafe { (*channel.as_ptr()).fd };
        made.events = Some(cm::watch(descriptor)?);
        Ok(made)
    }

    /// Acknowledges the events so far, which the library wants before the queue ends.
    fn acknowledge(&mut self) {
        let count = std::mem::take(&mut self.unacknowledged);
        if count > 0 {
            // SAFETY: the queue is valid and has had so many events.
            #[allow(unsafe_code)]
            unsafe {
                (self.verbs.ibv_ack_cq_events)(self.queue.as_ptr(), count);
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.events = None;
        self.acknowledge();
        // SAFETY: the queue pair that used the queue has ended, and all events are acknowledged.
        #[allow(unsafe_code)]
        let result = unsafe { (self.verbs.ibv_destroy_cq)(self.queue.as_ptr()) };
        // SAFETY: the channel's only queue has ended.
        #[allow(unsafe_code)]
        unsafe {
            (self.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
        if result != 0 {
            let error = io::Error::from_raw_os_error(result.abs());
            tracing::warn!(%error, "the adapter does not give up a completion queue");
        }
    }
}

/// The functions of a driver that requests go through.
#[derive(Clone, Copy)]
struct Driver {
    poll: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    notify: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    receive: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

/// A queue pair of the adapter, with what it needs.
pub(crate) struct Hardware {
    // Ended in this order: the queue pair in `stop`, then its completion queue, domain and identifier.
    queue: Queue,
    pub(crate) memory: Account,
    pub(crate) endpoint: Endpoint,
    context: NonNull<ibv_context>,
    iwarp: bool,
    queue_pair: NonNull<ibv_qp>,
    /// `None` after the end.
    faults: Option<Faults>,
    driver: Driver,
    /// Windows that this queue pair has made, bound or free.
    windows: Vec<Window>,
    /// Whether queue pair and windows have ended.
    stopped: bool,
    pub(crate) sizes: Sizes,
    polled: Box<[ibv_wc; BATCH]>,
    /// Calls that posted Sends; events that were read; completions.
    pub(crate) posts: u64,
    pub(crate) wakes: u64,
    pub(crate) completions: u64,
}

// SAFETY: functions of libibverbs on a queue pair and its objects may be called from any thread, and only the owner of
// `Hardware` calls them.
#[allow(unsafe_code)]
unsafe impl Send for Hardware {}

impl Hardware {
    /// Makes the queue pair of an identifier, with queues of at least these sizes if the adapter has such.
    pub(crate) fn new(
        endpoint: Endpoint,
        adapter: &Adapter,
        memory: Arc<Registrations>,
        sends: usize,
        receives: usize,
    ) -> io::Result<Self> {
        // SAFETY: the context is open, and the table of its functions does not change.
        #[allow(unsafe_code)]
        let ops = unsafe { &(*adapter.context().as_ptr()).ops };
        let (Some(poll), Some(notify), Some(send), Some(receive)) =
            (ops.poll_cq, ops.req_notify_cq, ops.post_send, ops.post_recv)
        else {
            return Err(io::Error::other(format!("the driver of {} lacks basic functions", adapter.name)));
        };
        let driver = Driver { poll, notify, send, receive };
        let most = adapter.limits.work_requests.max(1);
        let entries = |wanted: usize| u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most);
        let segments = adapter.limits.segments.clamp(1, SEGMENTS);
        let wanted_receives = receives;
        let (sends, receives) = (entries(sends), entries(receives));
        let both = usize::try_from(sends).unwrap_or(0) + usize::try_from(receives).unwrap_or(0);
        if u64::from(adapter.limits.completions) < both as u64 || (most as usize) < wanted_receives {
            return Err(io::Error::other(format!(
                "{} holds at most {most} Receives of a connection and {} completions",
                adapter.name, adapter.limits.completions
            )));
        }
        let queue = Queue::new(adapter, both)?;
        let mut attributes = cm::no_attributes();
        attributes.send_cq = queue.queue.as_ptr();
        attributes.recv_cq = queue.queue.as_ptr();
        attributes.qp_type = QPT_RC;
        attributes.cap = ibv_qp_cap {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: segments,
            max_recv_sge: segments,
            max_inline_data: INLINE,
        };
        let wanted = attributes.cap;
        let queue_pair = endpoint
            .create_queue_pair(memory.domain(), &mut attributes)
            .or_else(|_| {
                // Some drivers refuse what they cannot grant.
                attributes.cap = ibv_qp_cap { max_inline_data: 0, ..wanted };
                endpoint.create_queue_pair(memory.domain(), &mut attributes)
            })
            .map_err(|error| adapter.refused("queue pair", &error))?;
        let faults = Faults::new(adapter.verbs(), adapter.context(), queue_pair, queue.queue);
        let faults = faults.inspect_err(|_| endpoint.destroy_queue_pair())?;
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let sizes = Sizes {
            // Some drivers leave these as they were, some round up.
            sends: size(sends),
            receives: size(receives),
            send_segments: size(segments.min(attributes.cap.max_send_sge.max(1))),
            receive_segments: size(segments.min(attributes.cap.max_recv_sge.max(1))),
            inline: size(attributes.cap.max_inline_data),
        };
        Ok(Self {
            queue,
            memory: Account::new(memory),
            endpoint,
            context: adapter.context(),
            iwarp: adapter.iwarp,
            queue_pair,
            faults: Some(faults),
            driver,
            windows: Vec::new(),
            stopped: false,
            sizes,
            polled: Box::new([ibv_wc::default(); BATCH]),
            posts: 0,
            wakes: 0,
            completions: 0,
        })
    }

    /// Posts the requests of a chain, and empties it.
    pub(crate) fn post_sends(&mut self, chain: &mut Chain) -> io::Result<()> {
        let Some(first) = chain.link() else { return Ok(()) };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the requests are linked and last as long as the call. The memory that they name is registered, and their
        // owner keeps it until they complete or the queue pair has ended.
        #[allow(unsafe_code)]
        let result = unsafe { (self.driver.send)(self.queue_pair.as_ptr(), first.as_ptr(), &raw mut bad) };
        chain.note_binds();
        chain.clear();
        self.posts += 1;
        posted(result)
    }

    /// Posts a Receive into these segments.
    pub(crate) fn post_receive(&mut self, number: u64, segments: &mut [ibv_sge]) -> io::Result<()> {
        let mut request = ibv_recv_wr {
            wr_id: number,
            next: std::ptr::null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: c_int::try_from(segments.len()).unwrap_or(c_int::MAX),
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as for the send queue.
        #[allow(unsafe_code)]
        let result =
            unsafe { (self.driver.receive)(self.queue_pair.as_ptr(), &raw mut request, &raw mut bad) };
        posted(result)
    }

    /// Takes completions that are there; none if the slice is empty.
    pub(crate) fn take_completions(&mut self) -> io::Result<&[ibv_wc]> {
        let most = c_int::try_from(BATCH).unwrap_or(1);
        // SAFETY: the queue is valid, and there is memory for so many completions.
        #[allow(unsafe_code)]
        let count = unsafe { (self.driver.poll)(self.queue.queue.as_ptr(), most, self.polled.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => {
                self.completions += count as u64;
                Ok(self.polled.get(..count).unwrap_or_default())
            }
            Err(_) => Err(io::Error::other(format!("the completion queue is broken: error {count}"))),
        }
    }

    /// Asks for an event with the next completion. Completions that came before need another look at the queue.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is valid.
        #[allow(unsafe_code)]
        posted(unsafe { (self.driver.notify)(self.queue.queue.as_ptr(), 0) })
    }

    /// Takes an event of the completion queue, or registers the task for it.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(events) = &self.queue.events else { return Poll::Pending };
            let mut ready = ready!(events.poll_read_ready(cx))?;
            let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the channel is valid and non-blocking, and both pointers are writable.
            #[allow(unsafe_code)]
            let result = unsafe {
                (self.queue.verbs.ibv_get_cq_event)(
                    self.queue.channel.as_ptr(),
                    &raw mut queue,
                    &raw mut context,
                )
            };
            if result == 0 {
                // The next event comes only after the queue is armed again, so this saves a call that finds none.
                ready.clear_ready();
                self.wakes += 1;
                self.queue.unacknowledged += 1;
                if self.queue.unacknowledged >= EVENTS {
                    self.queue.acknowledge();
                }
                return Poll::Ready(Ok(()));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => ready.clear_ready(),
                io::ErrorKind::Interrupted => {}
                _ => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes the numbers that are kept here.
    pub(crate) fn count(&self, counters: &mut Counters) {
        counters.receive_calls = self.wakes;
        counters.send_calls = self.posts;
        counters.completions = self.completions;
        counters.registrations = self.memory.made();
    }

    /// Makes a window, and returns it with the key that it has while it is free.
    pub(crate) fn new_window(&mut self) -> io::Result<(Window, u32)> {
        let domain = self.memory.domain();
        // SAFETY: the context is open, and its table does not change.
        #[allow(unsafe_code)]
        let allocate = unsafe { (*self.context.as_ptr()).ops.alloc_mw };
        let Some(allocate) = allocate else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the domain is one of this device.
        #[allow(unsafe_code)]
        let window = unsafe { allocate(domain.as_ptr(), MW_TYPE_2) };
        let window = NonNull::new(window).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the library has returned a valid object.
        #[allow(unsafe_code)]
        let key = unsafe { (*window.as_ptr()).rkey };
        let window = Window { window };
        self.windows.push(window);
        Ok((window, key))
    }
}

impl Hardware {
    /// Begins the end of the connection. In order, on iWARP, the peer sees the end of a stream, not an error; elsewhere
    /// there is one kind of end.
    pub(crate) fn disconnect(&mut self, in_order: bool) {
        if in_order && self.iwarp {
            let mut attributes = ibv_qp_attr { qp_state: QPS_SQD, others: [0; 63] };
            // SAFETY: the queue pair is valid. The mask names the state only, and the structure is longer than the C one.
            #[allow(unsafe_code)]
            let result = unsafe {
                (self.queue.verbs.ibv_modify_qp)(self.queue_pair.as_ptr(), &raw mut attributes, QP_STATE)
            };
            if result == 0 {
                return;
            }
        }
        self.endpoint.disconnect();
    }

    /// Returns the fault of this queue pair that the adapter has reported.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.faults.as_ref()?.read(self.context)
    }

    /// Ends the queue pair and its windows: afterwards neither the adapter nor the peer touches memory of this connection.
    /// Registrations can end then, and have to before `self`.
    pub(crate) fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.endpoint.disconnect();
        // SAFETY: the context is open, and its table does not change.
        #[allow(unsafe_code)]
        let free = unsafe { (*self.context.as_ptr()).ops.dealloc_mw };
        if let Some(free) = free {
            // Before the queue pair, since rxe counts a bound window as a user of it.
            for window in self.windows.drain(..) {
                // SAFETY: each window is freed once. The queue pair is in the error state, so no request uses it any more.
                #[allow(unsafe_code)]
                unsafe {
                    free(window.window.as_ptr());
                }
            }
        }
        // Before the queue pair: the next one may have its address.
        self.faults = None;
        self.endpoint.destroy_queue_pair();
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Turns the result of a driver's function into an error.
fn posted(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result.abs())) }
}
