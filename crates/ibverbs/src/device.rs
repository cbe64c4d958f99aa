//! The RDMA devices of this machine, their ports and limits.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::NonNull;

use thiserror::Error;

use crate::ffi::value::{MW_TYPE_2, TRANSPORT_IWARP};
use crate::ffi::{ibv_context, ibv_device, ibv_device_attr, ibv_port_attr};
use crate::library::{LoadError, Verbs, verbs};
use crate::sysfs::{self, DEVICES, Gid};

/// Why devices cannot be listed or opened.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A library is missing.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The kernel has no RDMA devices at all.
    #[error(
        "the kernel has no RDMA subsystem: load the adapter's module, or, for tests only, make a software device \
         (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NAME)"
    )]
    NoSubsystem,
    /// The list cannot be had.
    #[error("the list of RDMA devices cannot be read: {0}")]
    List(io::Error),
    /// A device cannot be opened.
    #[error("{device} cannot be opened: {cause}{}", hint(cause))]
    Open {
        /// Name of the device.
        device: String,
        /// Error of the library.
        cause: io::Error,
    },
    /// A device does not answer a question.
    #[error("{device} does not tell its {what}: {cause}")]
    Query {
        /// Name of the device.
        device: String,
        /// Subject of the question.
        what: &'static str,
        /// Error of the library.
        cause: io::Error,
    },
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => " (modprobe ib_uverbs makes /dev/infiniband/uverbs*)",
        io::ErrorKind::PermissionDenied => {
            " (the process needs read and write access to /dev/infiniband/uverbs*)"
        }
        _ => "",
    }
}

/// Limits of a device, as its driver states them. They are upper bounds, and other processes share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests in a queue.
    pub work_requests: u32,
    /// Segments of local memory in a Send or a Receive.
    pub segments: u32,
    /// Segments of local memory in an RDMA Read.
    pub read_segments: u32,
    /// Completions in a queue.
    pub completions: u32,
    /// Registrations of memory.
    pub registrations: u32,
    /// Octets of one registration.
    pub registration_octets: u64,
    /// Memory windows.
    pub windows: u32,
    /// RDMA Reads that a queue pair answers at a time (IRD).
    pub reads_in: u32,
    /// RDMA Reads that a queue pair has outstanding (ORD).
    pub reads_out: u32,
}

/// Kind of the link that carries the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Something else, or unknown.
    Other,
}

/// State of a port (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// The link is there, and the subnet manager has not configured it.
    Initialize,
    /// Configured, and not yet active.
    Armed,
    /// In use.
    Active,
    /// Active, and the link is about to be mended or lost.
    ActiveDefer,
    /// Not known to this crate.
    Unknown,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number, from 1.
    pub number: u8,
    /// State.
    pub state: PortState,
    /// Kind of the link that carries its packets.
    pub link_layer: LinkLayer,
    /// Path MTU in use, in octets of payload of a packet.
    pub mtu: u32,
    /// Longest message, in octets.
    pub message_octets: u32,
    /// Local identifier, on InfiniBand.
    pub lid: u16,
    /// Global identifiers in use.
    pub gids: Vec<Gid>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, as `rdma link` prints it.
    pub name: String,
    /// Whether the device speaks iWARP. Otherwise it speaks InfiniBand or RoCE.
    pub iwarp: bool,
    /// Version of the firmware; empty for most software devices.
    pub firmware: String,
    /// Limits.
    pub limits: Limits,
    /// Whether a memory window of type 2 can be allocated. The flags of a device are often wrong.
    pub windows: bool,
    /// Ports.
    pub ports: Vec<Port>,
}

/// Returns the devices of this machine.
///
/// A device that cannot be opened or asked has its error in the list, and the others are described.
///
/// # Errors
/// See [`DeviceError`]. A machine without devices has an empty list if the kernel has the RDMA subsystem.
pub fn devices() -> Result<Vec<Result<Device, DeviceError>>, DeviceError> {
    let verbs = verbs()?;
    if !Path::new(DEVICES).exists() {
        return Err(DeviceError::NoSubsystem);
    }
    let list = List::get(verbs)?;
    Ok(list.devices().map(|device| Context::open(verbs, device)?.describe()).collect())
}

/// The library's list of devices.
struct List {
    verbs: &'static Verbs,
    first: NonNull<*mut ibv_device>,
    count: usize,
}

impl List {
    fn get(verbs: &'static Verbs) -> Result<Self, DeviceError> {
        let mut count = 0;
        // SAFETY: `count` is a writable int.
        #[allow(unsafe_code)]
        let first = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        let first = NonNull::new(first).ok_or_else(|| DeviceError::List(io::Error::last_os_error()))?;
        Ok(Self { verbs, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the library has returned an array of `count` pointers, which `self` frees and nobody writes.
        #[allow(unsafe_code)]
        let devices = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) };
        devices.iter().filter_map(|&device| NonNull::new(device))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the array is from `ibv_get_device_list`, and is freed once. Devices that are open stay valid.
        #[allow(unsafe_code)]
        unsafe {
            (self.verbs.ibv_free_device_list)(self.first.as_ptr());
        }
    }
}

/// An open device.
pub(crate) struct Context {
    verbs: &'static Verbs,
    context: NonNull<ibv_context>,
    name: String,
}

impl Context {
    fn open(verbs: &'static Verbs, device: NonNull<ibv_device>) -> Result<Self, DeviceError> {
        let name = name(verbs, device.as_ptr());
        // SAFETY: the device is one of the library's list, which the caller still holds.
        #[allow(unsafe_code)]
        let context = unsafe { (verbs.ibv_open_device)(device.as_ptr()) };
        match NonNull::new(context) {
            Some(context) => Ok(Self { verbs, context, name }),
            None => Err(DeviceError::Open { device: name, cause: io::Error::last_os_error() }),
        }
    }

    fn describe(&self) -> Result<Device, DeviceError> {
        let attributes = self.attributes()?;
        let ports =
            (1..=attributes.phys_port_cnt).map(|number| self.port(number)).collect::<Result<_, _>>()?;
        let firmware = attributes.fw_ver.iter().take_while(|&&byte| byte != 0);
        Ok(Device {
            name: self.name.clone(),
            iwarp: is_iwarp(self.context),
            firmware: firmware.map(|&byte| char::from(byte.to_ne_bytes()[0])).collect(),
            limits: limits(&attributes),
            windows: allocates_windows(self.verbs, self.context),
            ports,
        })
    }

    fn attributes(&self) -> Result<ibv_device_attr, DeviceError> {
        attributes(self.verbs, self.context).map_err(|cause| self.silent("limits", cause))
    }

    fn port(&self, number: u8) -> Result<Port, DeviceError> {
        let port = port(self.verbs, self.context, number).map_err(|cause| self.silent("ports", cause))?;
        Ok(Port {
            number,
            state: port_state(port.state),
            link_layer: link_layer(port.link_layer, is_iwarp(self.context)),
            mtu: mtu(port.active_mtu),
            message_octets: port.max_msg_sz,
            lid: port.lid,
            gids: sysfs::gids(&self.name, number),
        })
    }

    fn silent(&self, what: &'static str, cause: io::Error) -> DeviceError {
        DeviceError::Query { device: self.name.clone(), what, cause }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open, is closed once, and every object on it is gone: each holds its context.
        #[allow(unsafe_code)]
        unsafe {
            (self.verbs.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// Returns the name of a device, which is open or in a list that the caller holds.
pub(crate) fn name(verbs: &Verbs, device: *mut ibv_device) -> String {
    // SAFETY: the device is valid, see above.
    #[allow(unsafe_code)]
    let name = unsafe { (verbs.ibv_get_device_name)(device) };
    // SAFETY: the name is a string within the device; it is copied at once.
    #[allow(unsafe_code)]
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Returns the device of an open context.
pub(crate) fn of(context: NonNull<ibv_context>) -> *mut ibv_device {
    // SAFETY: the context is open, and the field does not change.
    #[allow(unsafe_code)]
    unsafe {
        (*context.as_ptr()).device
    }
}

/// Returns whether the device of an open context speaks iWARP.
pub(crate) fn is_iwarp(context: NonNull<ibv_context>) -> bool {
    // SAFETY: the device is valid as long as its context; the field is read only.
    #[allow(unsafe_code)]
    let transport = unsafe { (*of(context)).transport_type };
    transport == TRANSPORT_IWARP
}

/// Asks an open device for its limits.
pub(crate) fn attributes(verbs: &Verbs, context: NonNull<ibv_context>) -> io::Result<ibv_device_attr> {
    let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
    // SAFETY: the context is open, and the structure has the size that the library writes.
    #[allow(unsafe_code)]
    answered(unsafe { (verbs.ibv_query_device)(context.as_ptr(), attributes.as_mut_ptr()) })?;
    // SAFETY: every field is an integer, for which zeros are a value.
    #[allow(unsafe_code)]
    Ok(unsafe { attributes.assume_init() })
}

/// Asks an open device for the attributes of a port.
pub(crate) fn port(verbs: &Verbs, context: NonNull<ibv_context>, number: u8) -> io::Result<ibv_port_attr> {
    let mut port = MaybeUninit::<ibv_port_attr>::zeroed();
    // SAFETY: the context is open, and the structure is at least as long as what this function writes: it fills the
    // fields up to `flags`.
    #[allow(unsafe_code)]
    answered(unsafe { (verbs.ibv_query_port)(context.as_ptr(), number, port.as_mut_ptr()) })?;
    // SAFETY: every field is an integer, for which zeros are a value.
    #[allow(unsafe_code)]
    Ok(unsafe { port.assume_init() })
}

/// Turns the result of a query, 0 or a number of an error, into an error.
fn answered(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(result.abs())),
    }
}

/// Allocates a window of type 2 and frees it.
pub(crate) fn allocates_windows(verbs: &Verbs, context: NonNull<ibv_context>) -> bool {
    // SAFETY: the context is open, and the table of its functions does not change.
    #[allow(unsafe_code)]
    let ops = unsafe { &(*context.as_ptr()).ops };
    let (Some(allocate), Some(free)) = (ops.alloc_mw, ops.dealloc_mw) else { return false };
    // SAFETY: the context is open.
    #[allow(unsafe_code)]
    let domain = unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) };
    if domain.is_null() {
        return false;
    }
    // SAFETY: the domain is one of this context.
    #[allow(unsafe_code)]
    let window = unsafe { allocate(domain, MW_TYPE_2) };
    let allocated = !window.is_null();
    if allocated {
        // SAFETY: the window is not bound, and is freed once.
        #[allow(unsafe_code)]
        unsafe {
            free(window);
        }
    }
    // SAFETY: nothing uses the domain any more.
    #[allow(unsafe_code)]
    unsafe {
        (verbs.ibv_dealloc_pd)(domain);
    }
    allocated
}

fn limits(attributes: &ibv_device_attr) -> Limits {
    let count = |count: i32| u32::try_from(count).unwrap_or(0);
    Limits {
        queue_pairs: count(attributes.max_qp),
        work_requests: count(attributes.max_qp_wr),
        segments: count(attributes.max_sge),
        read_segments: count(attributes.max_sge_rd),
        completions: count(attributes.max_cqe),
        registrations: count(attributes.max_mr),
        registration_octets: attributes.max_mr_size,
        windows: count(attributes.max_mw),
        reads_in: count(attributes.max_qp_rd_atom),
        reads_out: count(attributes.max_qp_init_rd_atom),
    }
}

fn port_state(state: i32) -> PortState {
    match state {
        1 => PortState::Down,
        2 => PortState::Initialize,
        3 => PortState::Armed,
        4 => PortState::Active,
        5 => PortState::ActiveDefer,
        _ => PortState::Unknown,
    }
}

/// Names a link layer; drivers of InfiniBand may leave it unspecified (0).
fn link_layer(layer: u8, iwarp: bool) -> LinkLayer {
    match layer {
        0 if !iwarp => LinkLayer::InfiniBand,
        1 => LinkLayer::InfiniBand,
        2 => LinkLayer::Ethernet,
        _ => LinkLayer::Other,
    }
}

/// Returns the octets of `enum ibv_mtu`, 1 for 256; 0 if the value is unknown.
fn mtu(mtu: i32) -> u32 {
    match mtu {
        1..=5 => 128 << mtu,
        _ => 0,
    }
}
