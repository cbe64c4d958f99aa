//! Names of the library's stores: keytabs and caches of tickets.
//!
//! *Private caches.* Tickets that the library gets with a keytab are in a cache of their own, in memory. Otherwise the library
//! would prefer tickets of somebody else in the user's cache. It would also leave its own tickets there, for all commands of the
//! user. The cache is destroyed when nobody uses its tickets any more: the library keeps it until the process ends.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

use rpcrdma_oncrpc::gss::{MechanismError, major};

use crate::library::Functions;
use crate::objects::Credentials;

/// Returns the library's name of a keytab in a file. It begins with the type, so a colon in the path does not end one.
pub(crate) fn keytab_name(path: &Path) -> Vec<u8> {
    [b"FILE:", path.as_os_str().as_bytes()].concat()
}

/// A client's credentials, and the cache of tickets that only they use. Fields are dropped in this order.
pub(crate) struct Tickets {
    pub(crate) credentials: Credentials,
    pub(crate) cache: Option<PrivateCache>,
}

/// A cache of tickets in memory with a name that nobody else knows. It is destroyed at the end, with its keys.
pub(crate) struct PrivateCache {
    functions: &'static Functions,
    name: CString,
}

impl PrivateCache {
    /// Chooses a name. The library makes the cache when it stores a ticket there.
    ///
    /// # Errors
    /// The system has no random bytes. The name of another cache might have other tickets, so it has to be unique.
    pub(crate) fn new(functions: &'static Functions) -> Result<Self, MechanismError> {
        let failed = |error: &dyn std::fmt::Display| {
            MechanismError::new(major::FAILURE, 0, format!("no name for a cache of tickets: {error}"))
        };
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(|error| failed(&error))?;
        let name = format!("MEMORY:rpcrdma-{:032x}", u128::from_ne_bytes(number));
        Ok(Self { functions, name: CString::new(name).map_err(|error| failed(&error))? })
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Destroys the cache. `None` if the library has no such functions, or no memory: the cache then ends with the process.
    fn destroy(&self) -> Option<()> {
        let (init_context, free_context) =
            (self.functions.krb5_init_context?, self.functions.krb5_free_context?);
        let (resolve, destroy) = (self.functions.krb5_cc_resolve?, self.functions.krb5_cc_destroy?);
        let mut context = null_mut();
        // SAFETY: the pointer is to a value that lives longer than the call.
        #[allow(unsafe_code)]
        let failed = unsafe { init_context(&raw mut context) };
        if failed != 0 {
            return None;
        }
        let mut cache = null_mut();
        // SAFETY: the context was just made. The other pointers are to values that live longer than the call.
        #[allow(unsafe_code)]
        let failed = unsafe { resolve(context, self.name.as_ptr(), &raw mut cache) };
        if failed == 0 {
            // SAFETY: context and cache are the library's. The call releases the cache, whether it fails or not.
            #[allow(unsafe_code)]
            unsafe {
                destroy(context, cache)
            };
        }
        // SAFETY: the context is the library's, and nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            free_context(context);
        }
        Some(())
    }
}

impl Drop for PrivateCache {
    fn drop(&mut self) {
        // Without the functions, the end of the process has the same effect.
        let _ = self.destroy();
    }
}
