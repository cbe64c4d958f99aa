//! The C declarations of libgssapi_krb5 that this crate uses (RFC 2744, and MIT's `gssapi_ext.h` and `krb5.h`), on 64-bit Linux.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

/// Declares types that are only used behind a pointer.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub(crate) struct $name { _private: [u8; 0] }
    )* };
}

opaque!(
    gss_name_struct,
    gss_cred_id_struct,
    gss_ctx_id_struct,
    gss_channel_bindings_struct,
    krb5_context_struct,
    krb5_ccache_struct
);

pub(crate) type gss_name_t = *mut gss_name_struct;
pub(crate) type gss_cred_id_t = *mut gss_cred_id_struct;
pub(crate) type gss_ctx_id_t = *mut gss_ctx_id_struct;
pub(crate) type gss_channel_bindings_t = *mut gss_channel_bindings_struct;
/// Types of libkrb5, for caches of tickets.
pub(crate) type krb5_context = *mut krb5_context_struct;
pub(crate) type krb5_ccache = *mut krb5_ccache_struct;
pub(crate) type gss_OID = *mut gss_OID_desc;
pub(crate) type gss_OID_set = *mut gss_OID_set_desc;
pub(crate) type gss_buffer_t = *mut gss_buffer_desc;
pub(crate) type gss_buffer_set_t = *mut gss_buffer_set_desc;

#[repr(C)]
pub(crate) struct gss_OID_desc {
    pub(crate) length: u32,
    pub(crate) elements: *mut c_void,
}

#[repr(C)]
pub(crate) struct gss_OID_set_desc {
    pub(crate) count: usize,
    pub(crate) elements: gss_OID,
}

#[repr(C)]
pub(crate) struct gss_buffer_desc {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

#[repr(C)]
pub(crate) struct gss_buffer_set_desc {
    pub(crate) count: usize,
    pub(crate) elements: *mut gss_buffer_desc,
}

#[repr(C)]
pub(crate) struct gss_key_value_element {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

#[repr(C)]
pub(crate) struct gss_key_value_set {
    pub(crate) count: u32,
    pub(crate) elements: *const gss_key_value_element,
}

/// `GSS_C_INITIATE`.
pub(crate) const INITIATE: c_int = 1;
/// `GSS_C_ACCEPT`.
pub(crate) const ACCEPT: c_int = 2;
/// `GSS_C_INDEFINITE`: no end.
pub(crate) const INDEFINITE: u32 = u32::MAX;
/// `GSS_C_MUTUAL_FLAG`, `GSS_C_REPLAY_FLAG`, `GSS_C_SEQUENCE_FLAG`, `GSS_C_CONF_FLAG` and `GSS_C_INTEG_FLAG`.
pub(crate) const MUTUAL: u32 = 2;
pub(crate) const REPLAY: u32 = 4;
pub(crate) const SEQUENCE: u32 = 8;
pub(crate) const CONFIDENTIALITY: u32 = 16;
pub(crate) const INTEGRITY: u32 = 32;
/// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`: kinds of status.
pub(crate) const GSS_CODE: c_int = 1;
pub(crate) const MECH_CODE: c_int = 2;
/// Calling errors and routine errors in a status: the call failed.
pub(crate) const ERRORS: u32 = 0xffff_0000;
/// `GSS_S_CONTINUE_NEEDED`.
pub(crate) const CONTINUE_NEEDED: u32 = 1;

/// The mechanism krb5, 1.2.840.113554.1.2.2 (RFC 4121 §1).
pub(crate) const KRB5: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// `GSS_C_NT_HOSTBASED_SERVICE`, 1.2.840.113554.1.2.1.4 (RFC 2743 §4.1): `service@host`.
pub(crate) const HOST_BASED_SERVICE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];
/// `GSS_C_INQ_SSPI_SESSION_KEY`, 1.2.840.113554.1.2.2.5.5: asks for the key that protects messages, and its type.
pub(crate) const SESSION_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x05, 0x05];
/// 1.2.840.113554.1.2.2.4: with the number of an encryption type behind it, the answer's name of that type.
pub(crate) const ENCRYPTION_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x04];
