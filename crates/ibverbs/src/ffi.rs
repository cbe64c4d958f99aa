//! The C declarations of libibverbs and librdmacm that this crate uses: names and layouts of the stable ABI
//! (`libibverbs.so.1`, `librdmacm.so.1`), of 64-bit Linux. Where the library alone makes an
//! object, fields behind the last one that is used are not declared. Such types must not be created or copied here.
//!
//! Nothing here decides anything. A test compares sizes and offsets with those of a C compiler.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Declares types that are only used behind a pointer.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub(crate) struct $name { _private: [u8; 0] }
    )* };
}

opaque!(ibv_pd, ibv_srq);

#[repr(C)]
pub(crate) struct ibv_device {
    _ops: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
}

/// The table of the functions that a driver provides. Unused ones are only placeholders.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    _before_alloc_mw: [*mut c_void; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    _bind_mw: *mut c_void,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    _create_cq: *mut c_void,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    _before_post_send: [*mut c_void; 12],
    pub(crate) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(crate) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    _behind: [*mut c_void; 5],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    _behind_max_mw: [c_int; 11],
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) kind: c_int,
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

/// `ibv_async_event`: its element is a pointer to an object, or the number of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_async_event {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_int,
}

/// The part of `ibv_send_wr` that RDMA Reads and Writes use, as long as its C union.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_send_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    _union: [u64; 2],
}

/// The part of `ibv_send_wr` that binds use.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_bind {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) invalidate_rkey: u32,
    pub(crate) rdma: ibv_send_wr_rdma,
    pub(crate) qp_type: u64,
    pub(crate) bind_mw: ibv_send_wr_bind,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `ibv_qp_attr`: the first of its fields, and room for the others, of which the library copies what a mask names.
#[repr(C, align(8))]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) others: [c_int; 63],
}

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

/// `rdma_addr`: the addresses are `sockaddr_storage`, and behind them stand GIDs and the partition key.
#[repr(C)]
pub(crate) struct rdma_addr {
    pub(crate) src_addr: libc::sockaddr_storage,
    pub(crate) dst_addr: libc::sockaddr_storage,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) pkey: u16,
}

#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    _path_rec: *mut c_void,
    _num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: c_int,
    pub(crate) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `rdma_cm_event`: of the union only the part of connected services is declared; the other part is longer.
#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: rdma_conn_param,
}

/// Numbers of the ABI: enumerators and flags.
pub(crate) mod value {
    use std::ffi::{c_int, c_uint};

    pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
    pub(crate) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
    pub(crate) const ACCESS_REMOTE_READ: c_int = 1 << 2;
    pub(crate) const ACCESS_MW_BIND: c_int = 1 << 4;

    pub(crate) const MW_TYPE_2: c_int = 2;
    pub(crate) const QPT_RC: c_int = 2;
    pub(crate) const TRANSPORT_IWARP: c_int = 1;
    /// State of a queue pair that drains its send queue; on iWARP, that closes the connection in order.
    pub(crate) const QPS_SQD: c_int = 4;
    /// The mask of attributes that names the state.
    pub(crate) const QP_STATE: c_int = 1;

    pub(crate) const WR_RDMA_WRITE: c_int = 0;
    pub(crate) const WR_SEND: c_int = 2;
    pub(crate) const WR_RDMA_READ: c_int = 4;
    pub(crate) const WR_LOCAL_INV: c_int = 7;
    pub(crate) const WR_BIND_MW: c_int = 8;
    pub(crate) const WR_SEND_WITH_INV: c_int = 9;

    pub(crate) const SEND_SIGNALED: c_uint = 1 << 1;
    pub(crate) const SEND_SOLICITED: c_uint = 1 << 2;
    pub(crate) const SEND_INLINE: c_uint = 1 << 3;

    pub(crate) const WC_IP_CSUM_OK: c_uint = 1 << 2;
    pub(crate) const WC_WITH_INV: c_uint = 1 << 3;

    pub(crate) const ASYNC_CQ_ERR: c_int = 0;
    pub(crate) const ASYNC_QP_FATAL: c_int = 1;
    pub(crate) const ASYNC_QP_REQ_ERR: c_int = 2;
    pub(crate) const ASYNC_QP_ACCESS_ERR: c_int = 3;
    pub(crate) const ASYNC_DEVICE_FATAL: c_int = 8;
    pub(crate) const ASYNC_PORT_ACTIVE: c_int = 9;
    pub(crate) const ASYNC_PORT_ERR: c_int = 10;

    pub(crate) const PS_TCP: c_int = 0x0106;
    /// Level of options of an identifier, and their names: type of service, time to an acknowledgement.
    pub(crate) const OPTION_ID: c_int = 0;
    pub(crate) const OPTION_ID_TOS: c_int = 0;
    pub(crate) const OPTION_ID_ACK_TIMEOUT: c_int = 3;

    pub(crate) const EVENT_ADDR_RESOLVED: c_int = 0;
    pub(crate) const EVENT_ADDR_ERROR: c_int = 1;
    pub(crate) const EVENT_ROUTE_RESOLVED: c_int = 2;
    pub(crate) const EVENT_ROUTE_ERROR: c_int = 3;
    pub(crate) const EVENT_CONNECT_REQUEST: c_int = 4;
    pub(crate) const EVENT_CONNECT_ERROR: c_int = 6;
    pub(crate) const EVENT_UNREACHABLE: c_int = 7;
    pub(crate) const EVENT_REJECTED: c_int = 8;
    pub(crate) const EVENT_ESTABLISHED: c_int = 9;
    pub(crate) const EVENT_DISCONNECTED: c_int = 10;
    pub(crate) const EVENT_DEVICE_REMOVAL: c_int = 11;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Checks sizes and offsets against a list that a C compiler printed for rdma-core 44 on x86-64.
    macro_rules! layout {
        ($($name:ident $($size:literal)? { $($field:ident: $offset:literal),* $(,)? })*) => { $(
            $(assert_eq!(size_of::<$name>(), $size, stringify!($name));)?
            $(assert_eq!(offset_of!($name, $field), $offset, concat!(stringify!($name), ".", stringify!($field)));)*
        )* };
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn layouts_are_those_of_c() {
        // Sizes are missing where the library alone makes the object.
        layout! {
            ibv_context { ops: 8, cmd_fd: 264, async_fd: 268, num_comp_vectors: 272 }
            ibv_context_ops 256 {
                alloc_mw: 56, dealloc_mw: 72, poll_cq: 88, req_notify_cq: 96, post_send: 200, post_recv: 208,
            }
            ibv_device_attr 232 {
                max_qp: 108, device_cap_flags: 116, max_qp_rd_atom: 144, max_mw: 176, max_pkeys: 224, phys_port_cnt: 227,
            }
            ibv_port_attr 52 { max_msg_sz: 20, lid: 34, link_layer: 46, port_cap_flags2: 48 }
            ibv_wc 48 { vendor_err: 16, invalidated_rkey: 24, wc_flags: 36 }
            ibv_send_wr 128 { send_flags: 32, invalidate_rkey: 36, rdma: 40, bind_mw: 80 }
            ibv_recv_wr 32 {}
            ibv_sge 16 {}
            ibv_qp_init_attr 64 { cap: 32, qp_type: 52 }
            ibv_mr 48 { lkey: 36 }
            ibv_mw 32 { rkey: 16 }
            ibv_cq { cqe: 28 }
            ibv_qp { qp_num: 52 }
            ibv_async_event 16 { event_type: 8 }
            ibv_comp_channel 16 { fd: 8 }
            ibv_device { node_type: 16, transport_type: 20, name: 24 }
            rdma_cm_id { qp: 24, route: 32, ps: 344, port_num: 348 }
            rdma_addr 296 { dst_addr: 128 }
            rdma_conn_param 24 {}
            rdma_cm_event { status: 20, conn: 24 }
        }
    }
}
