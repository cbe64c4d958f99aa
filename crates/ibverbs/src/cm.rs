//! Connection management: identifiers of librdmacm, their events, and the calls of set-up.
//!
//! Each identifier has an event channel of its own, whose descriptor the reactor watches. Events are copied and
//! acknowledged at once, so the end of an identifier never waits for one.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::address;
use crate::ffi::value::{
    EVENT_ADDR_ERROR, EVENT_ADDR_RESOLVED, EVENT_CONNECT_ERROR, EVENT_CONNECT_REQUEST, EVENT_DEVICE_REMOVAL,
    EVENT_DISCONNECTED, EVENT_ESTABLISHED, EVENT_REJECTED, EVENT_ROUTE_ERROR, EVENT_ROUTE_RESOLVED,
    EVENT_UNREACHABLE, OPTION_ID, OPTION_ID_ACK_TIMEOUT, OPTION_ID_TOS, PS_TCP,
};
use crate::ffi::{
    ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use crate::library::{Cm, cm};

/// Retries of a packet that is not acknowledged. rxe takes 7, the most that the fabric knows, as for ever.
const RETRIES: u8 = 6;
/// Retries of a message for which the peer has no Receive: one less than 7, which means for ever.
const RECEIVER_RETRIES: u8 = 6;
/// Time after which a packet without acknowledgement is sent again: 4.096 µs × 2^17, half a second. With the retries, a
/// peer that is gone is noticed in about 4 s; the system's time makes it 17 s or more.
const ACKNOWLEDGEMENT: u8 = 17;
/// Longest private data, in octets: the library counts them by an octet, and siw counts the four of RFC 6581 together with
/// them. InfiniBand and RoCE allow less.
pub(crate) const MAX_PRIVATE_DATA: usize = u8::MAX as usize - 4;

/// Meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AddressResolved,
    RouteResolved,
    /// The address or route was not found.
    Unresolved,
    Request,
    /// The attempt failed.
    Failed,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoved,
    /// Nothing that concerns us.
    Other,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// Number of an error, or a code of the fabric.
    pub(crate) status: c_int,
    pub(crate) private_data: Bytes,
    /// RDMA Reads that the peer wants to have outstanding at this side.
    pub(crate) reads_in: u8,
    /// RDMA Reads that the peer allows this side.
    pub(crate) reads_out: u8,
    /// The identifier of a connection request.
    pub(crate) request: Option<Id>,
}

impl Event {
    /// Turns the status into an error.
    pub(crate) fn error(&self) -> io::Error {
        if self.status < 0 {
            io::Error::from_raw_os_error(-self.status)
        } else {
            io::Error::other(format!("the fabric reports code {}", self.status))
        }
    }
}

/// A descriptor that its library owns.
#[derive(Debug)]
pub(crate) struct Descriptor(RawFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Makes a descriptor of a library non-blocking.
pub(crate) fn set_non_blocking(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these commands do not touch memory.
    #[allow(unsafe_code)]
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    // SAFETY: as above.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if flags < 0 || result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a descriptor of a library non-blocking, and gives it to the reactor.
pub(crate) fn watch(descriptor: RawFd) -> io::Result<AsyncFd<Descriptor>> {
    set_non_blocking(descriptor)?;
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(io::Error::other("an RDMA device can only be used within a tokio runtime"));
    }
    // SAFETY: callers keep the descriptor open until they have dropped the result.
    #[allow(unsafe_code)]
    let watched = unsafe { AsyncFd::register_with_interest(Descriptor(descriptor), Interest::READABLE) };
    Ok(watched?)
}

/// A channel of events.
#[derive(Debug)]
struct Channel {
    cm: &'static Cm,
    channel: NonNull<rdma_event_channel>,
}

// SAFETY: functions of librdmacm on a channel may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Channel {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Channel {}

impl Channel {
    fn new() -> io::Result<Self> {
        let cm = cm().map_err(io::Error::other)?;
        // SAFETY: the function takes no argument.
        #[allow(unsafe_code)]
        let channel = unsafe { (cm.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(|| without_channel(io::Error::last_os_error()))?;
        Ok(Self { cm, channel })
    }

    fn descriptor(&self) -> RawFd {
        // SAFETY: the channel is valid as long as `self`, and the field does not change.
        #[allow(unsafe_code)]
        unsafe {
            (*self.channel.as_ptr()).fd
        }
    }

    /// Takes the next event, if there is one.
    fn take(&self) -> io::Result<Event> {
        let mut event: *mut rdma_cm_event = std::ptr::null_mut();
        // SAFETY: the channel is valid and non-blocking; `event` is a writable pointer.
        #[allow(unsafe_code)]
        let result = unsafe { (self.cm.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) };
        let event = match NonNull::new(event) {
            Some(event) if result == 0 => event,
            _ => return Err(io::Error::last_os_error()),
        };
        let copied = self.copy(event);
        // SAFETY: the event is from this library and is acknowledged once; nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            (self.cm.rdma_ack_cm_event)(event.as_ptr());
        }
        Ok(copied)
    }

    fn copy(&self, event: NonNull<rdma_cm_event>) -> Event {
        // SAFETY: the library has returned a valid event, which lasts until it is acknowledged.
        #[allow(unsafe_code)]
        let (id, kind, status, conn) = unsafe {
            let event = &*event.as_ptr();
            (event.id, event.event, event.status, event.conn)
        };
        let kind = kind_of(kind);
        // Other events have another structure in this place.
        let tells = matches!(kind, Kind::Request | Kind::Rejected | Kind::Established | Kind::Failed);
        let private_data = if tells && !conn.private_data.is_null() {
            // SAFETY: the library states the length of the data, which lasts as long as the event.
            #[allow(unsafe_code)]
            let data = unsafe {
                std::slice::from_raw_parts(conn.private_data.cast::<u8>(), usize::from(conn.private_data_len))
            };
            Bytes::copy_from_slice(data)
        } else {
            Bytes::new()
        };
        let request = (kind == Kind::Request).then(|| NonNull::new(id)).flatten();
        Event {
            kind,
            status,
            private_data,
            reads_in: conn.responder_resources,
            reads_out: conn.initiator_depth,
            request: request.map(|id| Id { cm: self.cm, id }),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel ends once; its identifiers have ended before, see `Endpoint`.
        #[allow(unsafe_code)]
        unsafe {
            (self.cm.rdma_destroy_event_channel)(self.channel.as_ptr());
        }
    }
}

fn kind_of(event: c_int) -> Kind {
    match event {
        EVENT_ADDR_RESOLVED => Kind::AddressResolved,
        EVENT_ROUTE_RESOLVED => Kind::RouteResolved,
        EVENT_ADDR_ERROR | EVENT_ROUTE_ERROR => Kind::Unresolved,
        EVENT_CONNECT_REQUEST => Kind::Request,
        EVENT_CONNECT_ERROR => Kind::Failed,
        EVENT_UNREACHABLE => Kind::Unreachable,
        EVENT_REJECTED => Kind::Rejected,
        EVENT_ESTABLISHED => Kind::Established,
        EVENT_DISCONNECTED => Kind::Disconnected,
        EVENT_DEVICE_REMOVAL => Kind::DeviceRemoved,
        _ => Kind::Other,
    }
}

/// Adds to the error of a channel what a user can do about it.
fn without_channel(error: io::Error) -> io::Error {
    let hint = match error.kind() {
        _ if error.raw_os_error() == Some(libc::ENODEV) => ": there is no RDMA device (rpcrdma devices)",
        io::ErrorKind::NotFound => ": modprobe rdma_ucm makes /dev/infiniband/rdma_cm",
        io::ErrorKind::PermissionDenied => {
            ": the process needs read and write access to /dev/infiniband/rdma_cm"
        }
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("the kernel's RDMA connection manager cannot be used: {error}{hint}"),
    )
}

/// An identifier: a listener, or one end of a connection.
#[derive(Debug)]
pub(crate) struct Id {
    cm: &'static Cm,
    id: NonNull<rdma_cm_id>,
}

// SAFETY: functions of librdmacm on an identifier may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Id {}
// SAFETY: as above; methods that change the identifier's own fields are called by its one owner.
#[allow(unsafe_code)]
unsafe impl Sync for Id {}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the identifier ends once. Its queue pair has ended before (`Hardware`), and every event is acknowledged.
        #[allow(unsafe_code)]
        unsafe {
            (self.cm.rdma_destroy_id)(self.id.as_ptr());
        }
    }
}

/// Statement of a side in its request or reply.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) private_data: Bytes,
    /// RDMA Reads that the peer may have outstanding at this side.
    pub(crate) reads_in: u8,
    /// RDMA Reads that this side wants to have outstanding at the peer.
    pub(crate) reads_out: u8,
}

impl Offer {
    fn to_c(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            // Checked against `MAX_PRIVATE_DATA` before.
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.reads_in,
            initiator_depth: self.reads_out,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_RETRIES,
            srq: 0,
            qp_num: 0,
        }
    }
}

/// An identifier with its channel.
#[derive(Debug)]
pub(crate) struct Endpoint {
    // In this order: the identifier ends before its channel, and the reactor forgets the descriptor before both.
    events: Option<AsyncFd<Descriptor>>,
    id: Id,
    channel: Channel,
}

impl Endpoint {
    /// Makes an identifier for connections.
    pub(crate) fn new() -> io::Result<Self> {
        let channel = Channel::new()?;
        let events = watch(channel.descriptor())?;
        let mut id: *mut rdma_cm_id = std::ptr::null_mut();
        // SAFETY: the channel is valid, and `id` is a writable pointer.
        #[allow(unsafe_code)]
        let result = unsafe {
            (channel.cm.rdma_create_id)(channel.channel.as_ptr(), &raw mut id, std::ptr::null_mut(), PS_TCP)
        };
        let id = match NonNull::new(id) {
            Some(id) if result == 0 => Id { cm: channel.cm, id },
            _ => return Err(io::Error::last_os_error()),
        };
        Ok(Self { events: Some(events), id, channel })
    }

    /// Gives the identifier of a request a channel of its own.
    pub(crate) fn of_request(id: Id) -> io::Result<Self> {
        let channel = Channel::new()?;
        let events = watch(channel.descriptor())?;
        // SAFETY: both are valid, and all events of the identifier are acknowledged.
        #[allow(unsafe_code)]
        let result = unsafe { (id.cm.rdma_migrate_id)(id.id.as_ptr(), channel.channel.as_ptr()) };
        checked(result)?;
        Ok(Self { events: Some(events), id, channel })
    }

    /// Returns the next event, or registers the task for it.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        let Some(events) = &self.events else { return Poll::Pending };
        loop {
            let mut ready = ready!(events.poll_read_ready(cx))?;
            match self.channel.take() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Waits for the next event.
    pub(crate) async fn event(&mut self) -> io::Result<Event> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Sets the type of service of the packets.
    pub(crate) fn set_type_of_service(&self, octet: u8) -> io::Result<()> {
        self.set_option(OPTION_ID_TOS, octet)
    }

    /// Sets the time after which a packet without acknowledgement is sent again, before the queue pair is made. Fabrics
    /// without such a time refuse, and older systems.
    fn set_acknowledgement_time(&self) {
        if let Err(error) = self.set_option(OPTION_ID_ACK_TIMEOUT, ACKNOWLEDGEMENT) {
            tracing::trace!(%error, "the time to an acknowledgement is that of the system");
        }
    }

    fn set_option(&self, name: c_int, mut octet: u8) -> io::Result<()> {
        // SAFETY: the option is one octet, which the library copies.
        #[allow(unsafe_code)]
        let result = unsafe {
            (self.id.cm.rdma_set_option)(self.id.id.as_ptr(), OPTION_ID, name, (&raw mut octet).cast(), 1)
        };
        checked(result)
    }

    /// Binds the identifier to an address of ours.
    pub(crate) fn bind(&self, to: SocketAddr) -> io::Result<()> {
        let mut storage = address::to_c(to);
        // SAFETY: the storage holds an address, which the library copies.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_bind_addr)(self.id.id.as_ptr(), (&raw mut storage).cast()) };
        checked(result)
    }

    /// Listens at the address that the identifier is bound to.
    pub(crate) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the identifier is valid.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_listen)(self.id.id.as_ptr(), backlog) };
        checked(result)
    }

    /// Begins to look for the device and the neighbour by which an address is reached.
    pub(crate) fn resolve_address(&self, to: SocketAddr, within: Duration) -> io::Result<()> {
        let mut storage = address::to_c(to);
        // SAFETY: the storage holds an address, which the library copies; without a source, the kernel chooses one.
        #[allow(unsafe_code)]
        let result = unsafe {
            (self.id.cm.rdma_resolve_addr)(
                self.id.id.as_ptr(),
                std::ptr::null_mut(),
                (&raw mut storage).cast(),
                milliseconds(within),
            )
        };
        checked(result)
    }

    /// Begins to look for the route to the address.
    pub(crate) fn resolve_route(&self, within: Duration) -> io::Result<()> {
        // SAFETY: the identifier is valid.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_resolve_route)(self.id.id.as_ptr(), milliseconds(within)) };
        checked(result)
    }

    /// Makes the queue pair of the connection. The attributes come back as the adapter grants them.
    pub(crate) fn create_queue_pair(
        &self,
        domain: NonNull<ibv_pd>,
        attributes: &mut ibv_qp_init_attr,
    ) -> io::Result<NonNull<ibv_qp>> {
        self.set_acknowledgement_time();
        // SAFETY: the domain is one of the identifier's device, and the attributes name completion queues of it.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_create_qp)(self.id.id.as_ptr(), domain.as_ptr(), attributes) };
        checked(result)?;
        // SAFETY: the identifier is valid; the call above has set the field.
        #[allow(unsafe_code)]
        let queue_pair = unsafe { (*self.id.id.as_ptr()).qp };
        NonNull::new(queue_pair).ok_or_else(|| io::Error::other("the library made no queue pair"))
    }

    /// Ends the queue pair of the connection.
    pub(crate) fn destroy_queue_pair(&self) {
        // SAFETY: the identifier has a queue pair, which nobody uses any more.
        #[allow(unsafe_code)]
        unsafe {
            (self.id.cm.rdma_destroy_qp)(self.id.id.as_ptr());
        }
    }

    /// Sends the request. Blocks while a TCP connection is made, on fabrics that need one.
    pub(crate) fn connect(&self, offer: &Offer) -> io::Result<()> {
        let mut parameters = offer.to_c();
        // SAFETY: the identifier is valid, and the parameters last as long as the call.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_connect)(self.id.id.as_ptr(), &raw mut parameters) };
        checked(result)
    }

    /// Accepts the request.
    pub(crate) fn accept(&self, offer: &Offer) -> io::Result<()> {
        let mut parameters = offer.to_c();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let result = unsafe { (self.id.cm.rdma_accept)(self.id.id.as_ptr(), &raw mut parameters) };
        checked(result)
    }

    /// Rejects the request.
    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the data lasts as long as the call, and is at least as long as told.
        #[allow(unsafe_code)]
        let result =
            unsafe { (self.id.cm.rdma_reject)(self.id.id.as_ptr(), private_data.as_ptr().cast(), len) };
        checked(result)
    }

    /// Ends the connection: the queue pair flushes its work, and the peer is told.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is valid. An error says that there is no connection any more.
        #[allow(unsafe_code)]
        unsafe {
            (self.id.cm.rdma_disconnect)(self.id.id.as_ptr());
        }
    }

    /// Returns the device that the identifier is bound to.
    pub(crate) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the identifier is valid.
        #[allow(unsafe_code)]
        NonNull::new(unsafe { (*self.id.id.as_ptr()).verbs })
    }

    /// Returns the port of the device, 0 if the identifier is bound to none.
    pub(crate) fn port(&self) -> u8 {
        // SAFETY: the identifier is valid.
        #[allow(unsafe_code)]
        unsafe {
            (*self.id.id.as_ptr()).port_num
        }
    }

    /// Returns our address.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is valid; its library set the field when it was bound.
        #[allow(unsafe_code)]
        address::from_c(unsafe { &(*self.id.id.as_ptr()).route.addr.src_addr })
    }

    /// Returns the peer's address.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        address::from_c(unsafe { &(*self.id.id.as_ptr()).route.addr.dst_addr })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The reactor forgets the descriptor while it is open.
        self.events = None;
    }
}

/// Turns the result of a call of librdmacm into an error.
fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

/// An empty set of queue pair attributes.
pub(crate) fn no_attributes() -> ibv_qp_init_attr {
    // SAFETY: every field is an integer or a pointer that may be null.
    #[allow(unsafe_code)]
    unsafe {
        MaybeUninit::zeroed().assume_init()
    }
}
