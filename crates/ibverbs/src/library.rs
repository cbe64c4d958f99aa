//! The two libraries, and the functions in them that this crate calls.

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libc::sockaddr;
use thiserror::Error;

use crate::ffi::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};

/// A library that cannot be used.
#[derive(Clone, Debug, Error)]
#[error("{file} cannot be loaded ({cause}): install {packages}")]
pub struct LoadError {
    /// Name of the library's file.
    file: &'static str,
    /// What the dynamic loader says.
    cause: String,
    /// Packages that contain the library.
    packages: &'static str,
}

/// Declares a table of functions, and how it is filled from a library.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $file:literal in $packages:literal {
        $($name:ident: fn($($argument:ty),*) -> $result:ty;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            fn load() -> Result<Self, LoadError> {
                let failed = |error: libloading::Error| LoadError {
                    file: $file,
                    cause: said_by_loader(&error),
                    packages: $packages,
                };
                // SAFETY: the library's initializers load drivers of adapters and touch nothing of this process. The
                // name has no directory, so the file is one that the system's administrator has installed.
                #[allow(unsafe_code)]
                let library = unsafe { libloading::Library::new($file) }.map_err(failed)?;
                let table = Self {
                    $($name: {
                        // SAFETY: the symbol is a function of the library's stable ABI, and the type is its prototype in C.
                        #[allow(unsafe_code)]
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> $result>(stringify!($name))
                        }
                        .map_err(failed)?;
                        *symbol
                    },)*
                };
                // The functions are valid as long as the library is loaded: for ever.
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}

functions! {
    /// Functions of libibverbs.
    Verbs: "libibverbs.so.1" in "libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL, SUSE)" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list: fn(*mut *mut ibv_device) -> ();
        ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device: fn(*mut ibv_context) -> c_int;
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_reg_mr_iova: fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, c_uint) -> ();
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event: fn(*mut ibv_async_event) -> ();
    }
}

functions! {
    /// Functions of librdmacm.
    Cm: "librdmacm.so.1" in "librdmacm1 (Debian, Ubuntu, SUSE) or librdmacm (Fedora, RHEL)" {
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel) -> ();
        rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        rdma_set_option: fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *mut sockaddr) -> c_int;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_create_qp: fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
        rdma_destroy_qp: fn(*mut rdma_cm_id) -> ();
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_get_devices: fn(*mut c_int) -> *mut *mut ibv_context;
        rdma_free_devices: fn(*mut *mut ibv_context) -> ();
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
    }
}

/// Returns the loader's own text, which names the file or the function that it lacks.
fn said_by_loader(error: &libloading::Error) -> String {
    error.source().unwrap_or(error).to_string()
}

/// Returns the functions of libibverbs, which the first caller loads.
///
/// # Errors
/// The library or a function is missing. The answer stays the same until the process ends.
pub(crate) fn verbs() -> Result<&'static Verbs, LoadError> {
    static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
    LOADED.get_or_init(Verbs::load).as_ref().map_err(Clone::clone)
}

/// Returns the functions of librdmacm, which the first caller loads.
///
/// # Errors
/// As [`verbs`].
pub(crate) fn cm() -> Result<&'static Cm, LoadError> {
    static LOADED: OnceLock<Result<Cm, LoadError>> = OnceLock::new();
    LOADED.get_or_init(Cm::load).as_ref().map_err(Clone::clone)
}

/// Checks that the libraries can be loaded.
///
/// # Errors
/// See [`LoadError`], whose text names the packages.
pub fn is_available() -> Result<(), LoadError> {
    verbs()?;
    cm().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    functions! {
        /// A library that no machine has.
        Absent: "librpcrdma-absent.so.7" in "no package" {
            absent: fn() -> ();
        }
    }

    #[test]
    fn a_missing_library_is_told_in_the_words_of_the_loader() {
        let error = Absent::load().map(|table| table.absent).unwrap_err().to_string();
        // libloading's own text, "dlopen failed", would tell nothing.
        let cause = error.strip_prefix("librpcrdma-absent.so.7 cannot be loaded (").unwrap();
        let cause = cause.strip_suffix("): install no package").unwrap();
        assert!(cause.contains("librpcrdma-absent.so.7"), "{error}");
    }
}
