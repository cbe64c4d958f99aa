//! Objects of the library, each released when it is dropped, and the values that its functions take and return.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};

use bytes::Bytes;
use rpcrdma_oncrpc::gss::MechanismError;
use zeroize::{Zeroize as _, Zeroizing};

use crate::derivation::Key;
use crate::ffi::{
    ENCRYPTION_TYPE, ERRORS, GSS_CODE, KRB5, MECH_CODE, SESSION_KEY, gss_OID, gss_OID_desc, gss_OID_set_desc,
    gss_buffer_desc, gss_buffer_set_desc, gss_buffer_set_t, gss_cred_id_t, gss_ctx_id_t,
    gss_key_value_element, gss_key_value_set, gss_name_t,
};
use crate::library::{Functions, none};

/// Most parts of a status that are shown.
const STATUS_PARTS: usize = 4;
/// Most letters of each part.
const STATUS_LETTERS: usize = 300;

/// Returns an object identifier for a call. The library reads it only.
pub(crate) fn oid(contents: &'static [u8]) -> gss_OID_desc {
    gss_OID_desc {
        length: u32::try_from(contents.len()).unwrap_or(0),
        elements: contents.as_ptr().cast_mut().cast(),
    }
}

/// Returns memory that a call reads only. All calls do, but `gss_unwrap`: see [`changeable`].
pub(crate) fn input(data: &[u8]) -> gss_buffer_desc {
    gss_buffer_desc { length: data.len(), value: data.as_ptr().cast_mut().cast() }
}

/// Returns memory that a call may change. Before MIT Kerberos 1.22, `gss_unwrap` undoes a rotation (RFC 4121 §4.2.5) in the
/// memory of its argument.
pub(crate) fn changeable(data: &mut [u8]) -> gss_buffer_desc {
    gss_buffer_desc { length: data.len(), value: data.as_mut_ptr().cast() }
}

/// Memory that the library allocated, or none.
pub(crate) struct Output {
    functions: &'static Functions,
    pub(crate) buffer: gss_buffer_desc,
}

impl Output {
    pub(crate) const fn new(functions: &'static Functions) -> Self {
        Self { functions, buffer: gss_buffer_desc { length: 0, value: null_mut() } }
    }

    /// Returns a copy: its memory is our allocator's.
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_slice())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.buffer.value.is_null() {
            return &[];
        }
        // SAFETY: the library has set pointer and length to memory of its own, which stays until the drop.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.buffer.value.cast(), self.buffer.length)
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the buffer is empty, or the library has filled it; nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            (self.functions.gss_release_buffer)(&raw mut minor, &raw mut self.buffer)
        };
    }
}

/// Declares an owner of a handle, and how it is released.
macro_rules! owner {
    ($(#[$doc:meta])* $name:ident($handle:ty): $release:ident) => {
        $(#[$doc])*
        pub(crate) struct $name {
            functions: &'static Functions,
            pub(crate) handle: $handle,
        }

        impl $name {
            pub(crate) const fn none(functions: &'static Functions) -> Self {
                Self { functions, handle: null_mut() }
            }
        }

        // SAFETY: the library lets any thread use the object, one at a time. Only a `&mut` or a lock gives it to a call that
        // changes it.
        #[allow(unsafe_code)]
        unsafe impl Send for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                let mut minor = 0;
                if !self.handle.is_null() {
                    // SAFETY: the handle is one that the library made, and nobody else has it.
                    #[allow(unsafe_code)]
                    unsafe {
                        release::$release(self.functions, &raw mut minor, &raw mut self.handle)
                    };
                }
            }
        }
    };
}

/// Functions of release, with equal arguments.
mod release {
    use super::{Functions, gss_cred_id_t, gss_ctx_id_t, gss_name_t, none};

    #[allow(unsafe_code)]
    pub(super) unsafe fn name(functions: &Functions, minor: *mut u32, handle: *mut gss_name_t) {
        // SAFETY: promised by the caller.
        unsafe { (functions.gss_release_name)(minor, handle) };
    }

    #[allow(unsafe_code)]
    pub(super) unsafe fn credential(functions: &Functions, minor: *mut u32, handle: *mut gss_cred_id_t) {
        // SAFETY: promised by the caller.
        unsafe { (functions.gss_release_cred)(minor, handle) };
    }

    #[allow(unsafe_code)]
    pub(super) unsafe fn context(functions: &Functions, minor: *mut u32, handle: *mut gss_ctx_id_t) {
        // SAFETY: promised by the caller. No token for the peer is wanted (RFC 2743 §2.2.3).
        unsafe { (functions.gss_delete_sec_context)(minor, handle, none()) };
    }
}

owner!(
    /// A name.
    Name(gss_name_t): name
);
owner!(
    /// Credentials.
    Credentials(gss_cred_id_t): credential
);
owner!(
    /// A security context, complete or not.
    Context(gss_ctx_id_t): context
);

// SAFETY: contexts are created with shared credentials. MIT's credentials have a lock of their own.
#[allow(unsafe_code)]
unsafe impl Sync for Credentials {}

/// Returns the error of a call that failed.
///
/// # Errors
/// The status says that the call failed.
pub(crate) fn check(functions: &'static Functions, major: u32, minor: u32) -> Result<u32, MechanismError> {
    if major & ERRORS == 0 {
        return Ok(major);
    }
    let own = status(functions, minor, MECH_CODE);
    let text = if minor == 0 || own.is_empty() { status(functions, major, GSS_CODE) } else { own };
    Err(MechanismError::new(major & ERRORS, minor, text))
}

/// Returns the library's words for a status: one short line, whatever names of a peer are in it.
fn status(functions: &'static Functions, value: u32, kind: c_int) -> String {
    let mut mechanism = oid(KRB5);
    let mut parts = Vec::new();
    let mut more = 0;
    for _ in 0..STATUS_PARTS {
        let mut minor = 0;
        let mut text = Output::new(functions);
        // SAFETY: all pointers are to values that live longer than the call.
        #[allow(unsafe_code)]
        let major = unsafe {
            (functions.gss_display_status)(
                &raw mut minor,
                value,
                kind,
                &raw mut mechanism,
                &raw mut more,
                &raw mut text.buffer,
            )
        };
        if major & ERRORS != 0 {
            break;
        }
        parts.push(line(text.as_slice()));
        if more == 0 {
            break;
        }
    }
    parts.join("; ")
}

/// Returns text without control characters, and not too long.
fn line(text: &[u8]) -> String {
    let shown = |letter: char| if letter.is_control() { '?' } else { letter };
    String::from_utf8_lossy(text).chars().take(STATUS_LETTERS).map(shown).collect()
}

impl Name {
    /// Reads a name of this kind.
    ///
    /// # Errors
    /// The library cannot have such a name.
    pub(crate) fn import(
        functions: &'static Functions,
        text: &str,
        kind: &'static [u8],
    ) -> Result<Self, MechanismError> {
        let (mut minor, mut text, mut kind) = (0, input(text.as_bytes()), oid(kind));
        let mut name = Self::none(functions);
        // SAFETY: all pointers are to values that live longer than the call, which copies the text.
        #[allow(unsafe_code)]
        let major = unsafe {
            (functions.gss_import_name)(&raw mut minor, &raw mut text, &raw mut kind, &raw mut name.handle)
        };
        check(functions, major, minor)?;
        Ok(name)
    }

    /// Returns the name as text.
    ///
    /// # Errors
    /// The library cannot show it, or it is no text.
    pub(crate) fn display(&self) -> Result<String, MechanismError> {
        let mut minor = 0;
        let mut text = Output::new(self.functions);
        let mut kind: gss_OID = null_mut();
        // SAFETY: all pointers are to values that live longer than the call, and the name is one of the library's.
        #[allow(unsafe_code)]
        let major = unsafe {
            (self.functions.gss_display_name)(
                &raw mut minor,
                self.handle,
                &raw mut text.buffer,
                &raw mut kind,
            )
        };
        check(self.functions, major, minor)?;
        shown(text.as_slice())
    }

    /// Returns the name of the local user by the rules `auth_to_local` of `krb5.conf`. `None` if they give none, or the
    /// library is too old to know.
    pub(crate) fn local(&self) -> Option<String> {
        let localname = self.functions.gss_localname?;
        let (mut minor, mut mechanism) = (0, oid(KRB5));
        let mut text = Output::new(self.functions);
        // SAFETY: all pointers are to values that live longer than the call, and the name is one of the library's.
        #[allow(unsafe_code)]
        let major =
            unsafe { (localname)(&raw mut minor, self.handle, &raw mut mechanism, &raw mut text.buffer) };
        check(self.functions, major, minor).ok()?;
        // A name that is no text is no user's.
        let local = str::from_utf8(text.as_slice()).ok()?;
        (!local.is_empty()).then(|| local.to_owned())
    }
}

impl Credentials {
    /// Acquires credentials of the mechanism krb5. `store` has keys and values of MIT's credential store: `keytab`,
    /// `client_keytab`, `ccache`, `rcache`.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn acquire(
        functions: &'static Functions,
        name: Option<&Name>,
        usage: c_int,
        store: &[(&str, &[u8])],
    ) -> Result<Self, MechanismError> {
        let text = |text: &[u8]| {
            CString::new(text).map_err(|_| {
                MechanismError::new(
                    rpcrdma_oncrpc::gss::major::FAILURE,
                    0,
                    "a name of a file has a zero byte",
                )
            })
        };
        let texts = store
            .iter()
            .map(|(key, value)| Ok((text(key.as_bytes())?, text(value)?)))
            .collect::<Result<Vec<_>, MechanismError>>()?;
        let elements: Vec<_> = texts
            .iter()
            .map(|(key, value)| gss_key_value_element { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let set = gss_key_value_set {
            count: u32::try_from(elements.len()).unwrap_or(0),
            elements: elements.as_ptr(),
        };
        let mut mechanism = oid(KRB5);
        let mut mechanisms = gss_OID_set_desc { count: 1, elements: &raw mut mechanism };
        let mut credentials = Self::none(functions);
        let mut minor = 0;
        // SAFETY: all pointers are null where the library allows that, or to values that live longer than the call.
        #[allow(unsafe_code)]
        let major = unsafe {
            (functions.gss_acquire_cred_from)(
                &raw mut minor,
                name.map_or(null_mut(), |name| name.handle),
                crate::ffi::INDEFINITE,
                &raw mut mechanisms,
                usage,
                &raw const set,
                &raw mut credentials.handle,
                none(),
                none(),
            )
        };
        check(functions, major, minor)?;
        Ok(credentials)
    }
}

/// Returns the name of the user's own cache of tickets if it is a file. `None` for a collection of caches, or if the library
/// does not tell.
pub(crate) fn default_cache(functions: &'static Functions) -> Option<String> {
    let cache_name = functions.gss_krb5_ccache_name?;
    let (mut minor, mut name) = (0, null::<c_char>());
    // SAFETY: the pointers are to values that live longer than the call. Without a new name, the thread keeps the default.
    #[allow(unsafe_code)]
    let major = unsafe { (cache_name)(&raw mut minor, null(), &raw mut name) };
    if major & ERRORS != 0 || name.is_null() {
        return None;
    }
    // SAFETY: the library has set the pointer to a text with a zero byte at its end. It stays until this thread's next call.
    #[allow(unsafe_code)]
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    (name.starts_with('/') || name.starts_with("FILE:")).then(|| name.to_owned())
}

/// Returns the reason why the library cannot use its configuration. `None` if it can, or does not tell.
pub(crate) fn configuration_fault(functions: &'static Functions) -> Option<MechanismError> {
    let (init_context, free_context) = (functions.krb5_init_context?, functions.krb5_free_context?);
    let mut context = null_mut();
    // SAFETY: the pointer is to a value that lives longer than the call.
    #[allow(unsafe_code)]
    let code = unsafe { init_context(&raw mut context) };
    if code == 0 {
        // SAFETY: the context was just made, and nothing refers to it.
        #[allow(unsafe_code)]
        unsafe {
            free_context(context);
        }
        return None;
    }
    check(functions, rpcrdma_oncrpc::gss::major::FAILURE, code.cast_unsigned()).err()
}

impl Context {
    /// Returns the table of functions.
    pub(crate) const fn functions(&self) -> &'static Functions {
        self.functions
    }

    /// Returns the number of the encryption type, and the key that protects messages: the acceptor's subkey if there is one.
    /// `None` if the library does not tell.
    pub(crate) fn session_key(&self) -> Option<(u32, Key)> {
        let inquire = self.functions.gss_inquire_sec_context_by_oid?;
        let mut answer = Secrets { release: self.functions.gss_release_buffer_set?, set: null_mut() };
        let (mut minor, mut what) = (0, oid(SESSION_KEY));
        // SAFETY: all pointers are to values that live longer than the call. The caller's lock is held.
        #[allow(unsafe_code)]
        let major = unsafe { inquire(&raw mut minor, self.handle, &raw mut what, &raw mut answer.set) };
        if major & ERRORS != 0 {
            return None;
        }
        let mut parts = answer.parts();
        let (key, kind) = (parts.next()?, parts.next()?);
        Some((encryption_type(kind)?, Zeroizing::new(key.to_vec())))
    }
}

/// Returns the number of an encryption type: the last part of its object identifier. `None` for numbers of more than seven
/// bits, which no type of RFC 3962 or RFC 8009 has.
fn encryption_type(contents: &[u8]) -> Option<u32> {
    match contents.strip_prefix(ENCRYPTION_TYPE)? {
        [number @ 0..0x80] => Some((*number).into()),
        _ => None,
    }
}

/// Memory with secrets that the library allocated, or none. It is overwritten before it is released.
struct Secrets {
    release: unsafe extern "C" fn(*mut u32, *mut gss_buffer_set_t) -> u32,
    set: gss_buffer_set_t,
}

impl Secrets {
    fn buffers(&self) -> &[gss_buffer_desc] {
        // SAFETY: the pointer is null, or the library has set it to a set of its own, which stays until the drop.
        #[allow(unsafe_code)]
        let set = unsafe { self.set.as_ref() };
        match set {
            Some(gss_buffer_set_desc { count, elements }) if !elements.is_null() => {
                // SAFETY: the library has set pointer and count to memory of its own, which stays until the drop.
                #[allow(unsafe_code)]
                unsafe {
                    std::slice::from_raw_parts(*elements, *count)
                }
            }
            _ => &[],
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.buffers().iter().filter(|buffer| !buffer.value.is_null()).map(|buffer| {
            // SAFETY: the library has set pointer and length to memory of its own, which stays until the drop.
            #[allow(unsafe_code)]
            unsafe {
                std::slice::from_raw_parts(buffer.value.cast(), buffer.length)
            }
        })
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        for buffer in self.buffers().iter().filter(|buffer| !buffer.value.is_null()) {
            // SAFETY: the library has allocated the memory for its caller. Nothing else refers to it any more.
            #[allow(unsafe_code)]
            let secret: &mut [u8] =
                unsafe { std::slice::from_raw_parts_mut(buffer.value.cast(), buffer.length) };
            secret.zeroize();
        }
        let mut minor = 0;
        // SAFETY: the set is null or the library's; nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            (self.release)(&raw mut minor, &raw mut self.set)
        };
    }
}

/// Most bytes of a refused name in an error.
const SHOWN_MAX: usize = 64;

/// Returns a name as text. Bytes that are no text are replaced nowhere: two principals would become one.
fn shown(name: &[u8]) -> Result<String, MechanismError> {
    let text = str::from_utf8(name).map(str::to_owned);
    let refused = |_| {
        let begin = name.get(..SHOWN_MAX).unwrap_or(name).escape_ascii();
        let text = format!("the name {begin} is no text in UTF-8");
        MechanismError::new(rpcrdma_oncrpc::gss::major::FAILURE, 0, text)
    };
    text.map_err(refused)
}

/// Returns one run of memory for a message in several slices. One slice is taken as it is.
pub(crate) fn joined<'a>(message: &[&'a [u8]], space: &'a mut Vec<u8>) -> &'a [u8] {
    match message {
        [] => &[],
        [one] => one,
        parts => {
            parts.iter().for_each(|part| space.extend_from_slice(part));
            space
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_library_are_one_short_line() {
        assert_eq!(line(b"Server nfs/a\n\x1b[2Jb not found"), "Server nfs/a??[2Jb not found");
        assert_eq!(line(&[b'a'; 9000]).len(), STATUS_LETTERS);
    }

    #[test]
    fn names_that_are_no_text_are_refused_and_not_made_equal() {
        assert_eq!(shown("j\u{f6}rg@TEST".as_bytes()).unwrap(), "j\u{f6}rg@TEST");
        let errors = [b"j\xf6rg@TEST", b"j\xf7rg@TEST"].map(|name| shown(name).unwrap_err());
        assert_ne!(errors[0], errors[1]);
        assert!(errors[0].text.contains("xf6rg@TEST"), "{}", errors[0].text);
    }

    #[test]
    fn the_number_of_an_encryption_type_ends_its_identifier() {
        let identifier = |end: &[u8]| [ENCRYPTION_TYPE, end].concat();
        assert_eq!(encryption_type(&identifier(&[18])), Some(18));
        assert_eq!(encryption_type(&identifier(&[0x7f])), Some(0x7f));
        for end in [&[][..], &[0x81], &[0x81, 0], &[18, 18]] {
            assert_eq!(encryption_type(&identifier(end)), None, "{end:?}");
        }
        assert_eq!(encryption_type(&SESSION_KEY[..SESSION_KEY.len() - 1]), None, "another prefix");
    }
}
