//! The library, and the functions in it that this crate calls.

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use thiserror::Error;

use crate::ffi::{
    gss_OID, gss_OID_set, gss_buffer_set_t, gss_buffer_t, gss_channel_bindings_t, gss_cred_id_t,
    gss_ctx_id_t, gss_key_value_set, gss_name_t, krb5_ccache, krb5_context,
};

/// The library cannot be used.
#[derive(Clone, Debug, Error)]
#[error(
    "{FILE} cannot be loaded ({0}): install libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (Fedora, RHEL) or krb5 (SUSE)"
)]
pub struct LoadError(String);

/// Name of the library's file.
const FILE: &str = "libgssapi_krb5.so.2";

/// Declares the table of functions, and how it is filled from the library. Old versions of the library lack the optional
/// functions.
macro_rules! functions {
    (
        $($name:ident: fn($($argument:ty),*) -> $result:ty;)*
        [optional] $($extra:ident: fn($($extra_argument:ty),*) -> $extra_result:ty;)*
    ) => {
        /// Functions of libgssapi_krb5.
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(crate) $extra: Option<unsafe extern "C" fn($($extra_argument),*) -> $extra_result>,)*
        }

        impl Functions {
            fn load(file: &str) -> Result<Self, LoadError> {
                let failed = |error: libloading::Error| {
                    // The loader's own text, which names the file or the function that it lacks.
                    LoadError(error.source().unwrap_or(&error).to_string())
                };
                // SAFETY: the library's initializers touch nothing of this process. The name has no directory, so the file
                // is one that the system's administrator has installed.
                #[allow(unsafe_code)]
                let library = unsafe { libloading::Library::new(file) }.map_err(failed)?;
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
                    $($extra: {
                        // SAFETY: the symbol is a function of the library's stable ABI, and the type is its prototype in C.
                        #[allow(unsafe_code)]
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($extra_argument),*) -> $extra_result>(stringify!($extra))
                        };
                        symbol.ok().map(|symbol| *symbol)
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
    gss_import_name: fn(*mut u32, gss_buffer_t, gss_OID, *mut gss_name_t) -> u32;
    gss_release_name: fn(*mut u32, *mut gss_name_t) -> u32;
    gss_display_name: fn(*mut u32, gss_name_t, gss_buffer_t, *mut gss_OID) -> u32;
    gss_acquire_cred_from: fn(
        *mut u32, gss_name_t, u32, gss_OID_set, c_int, *const gss_key_value_set, *mut gss_cred_id_t, *mut gss_OID_set, *mut u32
    ) -> u32;
    gss_release_cred: fn(*mut u32, *mut gss_cred_id_t) -> u32;
    gss_init_sec_context: fn(
        *mut u32, gss_cred_id_t, *mut gss_ctx_id_t, gss_name_t, gss_OID, u32, u32, gss_channel_bindings_t, gss_buffer_t,
        *mut gss_OID, gss_buffer_t, *mut u32, *mut u32
    ) -> u32;
    gss_accept_sec_context: fn(
        *mut u32, *mut gss_ctx_id_t, gss_cred_id_t, gss_buffer_t, gss_channel_bindings_t, *mut gss_name_t, *mut gss_OID,
        gss_buffer_t, *mut u32, *mut u32, *mut gss_cred_id_t
    ) -> u32;
    gss_delete_sec_context: fn(*mut u32, *mut gss_ctx_id_t, gss_buffer_t) -> u32;
    gss_get_mic: fn(*mut u32, gss_ctx_id_t, u32, gss_buffer_t, gss_buffer_t) -> u32;
    gss_verify_mic: fn(*mut u32, gss_ctx_id_t, gss_buffer_t, gss_buffer_t, *mut u32) -> u32;
    gss_wrap: fn(*mut u32, gss_ctx_id_t, c_int, u32, gss_buffer_t, *mut c_int, gss_buffer_t) -> u32;
    gss_unwrap: fn(*mut u32, gss_ctx_id_t, gss_buffer_t, gss_buffer_t, *mut c_int, *mut u32) -> u32;
    gss_display_status: fn(*mut u32, u32, c_int, gss_OID, *mut u32, gss_buffer_t) -> u32;
    gss_release_buffer: fn(*mut u32, gss_buffer_t) -> u32;
    // Since MIT Kerberos 1.10.
    [optional]
    gss_localname: fn(*mut u32, gss_name_t, gss_OID, gss_buffer_t) -> u32;
    gss_inquire_sec_context_by_oid: fn(*mut u32, gss_ctx_id_t, gss_OID, *mut gss_buffer_set_t) -> u32;
    gss_release_buffer_set: fn(*mut u32, *mut gss_buffer_set_t) -> u32;
    gss_krb5_ccache_name: fn(*mut u32, *const c_char, *mut *const c_char) -> u32;
    // The loader finds these in libkrb5, on which libgssapi_krb5 depends. No function of the latter destroys a cache.
    krb5_init_context: fn(*mut krb5_context) -> i32;
    krb5_free_context: fn(krb5_context) -> ();
    krb5_cc_resolve: fn(krb5_context, *const c_char, *mut krb5_ccache) -> i32;
    krb5_cc_destroy: fn(krb5_context, krb5_ccache) -> i32;
}

/// Returns the functions, which the first caller loads.
///
/// # Errors
/// The library or a function is missing. The answer stays the same until the process ends.
pub(crate) fn functions() -> Result<&'static Functions, LoadError> {
    static LOADED: OnceLock<Result<Functions, LoadError>> = OnceLock::new();
    LOADED.get_or_init(|| Functions::load(FILE)).as_ref().map_err(Clone::clone)
}

/// Checks that the library can be loaded.
///
/// # Errors
/// See [`LoadError`], whose text names the packages.
pub fn is_available() -> Result<(), LoadError> {
    functions().map(|_| ())
}

/// Returns a null pointer for an argument that is not wanted.
pub(crate) const fn none<T>() -> *mut T {
    std::ptr::null_mut::<c_void>().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_in_the_words_of_the_loader() {
        let error = Functions::load("librpcrdma-absent.so.7").unwrap_err().to_string();
        assert!(error.contains("librpcrdma-absent.so.7") && error.contains("libgssapi-krb5-2"), "{error}");
    }
}
