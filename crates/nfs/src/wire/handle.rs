//! The file handle, `nfs_fh3` (RFC 1813 §2.5): up to 64 opaque bytes. They are stored in place, without an
//! allocation or a reference into the message.

use std::fmt;

use rpcrdma_xdr::{Bound, Bounded, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};

use super::MAX_HANDLE;

/// `nfs_fh3`: identifies an object of a file system to its server; opaque to clients.
#[derive(Clone, Copy)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; MAX_HANDLE],
}

/// Error for more bytes than a handle may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a file handle of {length} bytes; at most {MAX_HANDLE} are allowed (RFC 1813 §2.4)")]
pub struct HandleTooLong {
    /// Number of bytes.
    pub length: usize,
}

impl FileHandle {
    /// Creates a handle from at most [`MAX_HANDLE`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, HandleTooLong> {
        let too_long = HandleTooLong { length: bytes.len() };
        let length = u8::try_from(bytes.len()).map_err(|_| too_long)?;
        let mut handle = Self { length, bytes: [0; MAX_HANDLE] };
        handle.bytes.get_mut(..bytes.len()).ok_or(too_long)?.copy_from_slice(bytes);
        Ok(handle)
    }

    /// Concatenates parts to a handle. Bytes beyond [`MAX_HANDLE`] are dropped; the caller ensures the
    /// length.
    pub(crate) fn gather(parts: &[&[u8]]) -> Self {
        let mut handle = Self { length: 0, bytes: [0; MAX_HANDLE] };
        for (target, byte) in handle.bytes.iter_mut().zip(parts.iter().copied().flatten()) {
            *target = *byte;
            handle.length += 1;
        }
        handle
    }

    /// Returns the bytes of the handle.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for FileHandle {}

impl std::hash::Hash for FileHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl AsRef<[u8]> for FileHandle {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

impl Encode for FileHandle {
    fn encode(&self, e: &mut Encoder) -> Result<(), EncodeError> {
        e.opaque(self.as_bytes(), MAX_HANDLE)
    }
}

impl Decode for FileHandle {
    const MIN_LEN: usize = 4;

    fn decode(d: &mut Decoder) -> Result<Self, DecodeError> {
        // RFC 1813 §2.4: the decoder refuses more than NFS3_FHSIZE bytes, so `new` cannot fail.
        let bytes = d.opaque(MAX_HANDLE)?;
        Ok(Self::gather(&[&bytes]))
    }
}

impl Bounded for FileHandle {
    const BOUND: Bound = Bound::opaque(MAX_HANDLE);
}
