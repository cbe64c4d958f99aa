//! The name of a directory entry, `filename3` (RFC 1813 §2.5): bytes, not text.

use std::borrow::Cow;
use std::fmt;

use rpcrdma_xdr::Xdr;

use super::{MAX_NAME, MAX_NAME_ON_WIRE};

/// `filename3`: a component of a path. A received name may have any bytes up to [`MAX_NAME_ON_WIRE`];
/// [`FileName::check_component`] tests whether an entry can have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Xdr)]
pub struct FileName(#[xdr(max = MAX_NAME_ON_WIRE)] Vec<u8>);

/// Reason why a name cannot be that of a directory entry (RFC 1813 §4.6 and local limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The empty name.
    #[error("an empty name")]
    Empty,
    /// `.` or `..`, which name directories and never an entry.
    #[error("\".\" and \"..\" are not names of entries")]
    DotOrDotDot,
    /// Contains `/`, which separates components.
    #[error("a name with a \"/\" in it")]
    Separator,
    /// Contains NUL, which no file system accepts in a name.
    #[error("a name with a NUL byte in it")]
    Nul,
    /// Longer than [`MAX_NAME`].
    #[error("a name of {length} bytes; at most {MAX_NAME} are allowed")]
    TooLong {
        /// Length in bytes.
        length: usize,
    },
}

impl FileName {
    /// Creates a name from bytes, unchecked.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes of the name, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the name as text; bytes that are not UTF-8 become U+FFFD. For display, not for comparison.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Returns whether this is `.` or `..`.
    pub fn is_dot_or_dot_dot(&self) -> bool {
        matches!(self.as_bytes(), b"." | b"..")
    }

    /// Checks that a directory entry can have this name. It must not be empty, `.` or `..`, must contain
    /// neither `/` nor NUL, and has at most [`MAX_NAME`] bytes. A client checks every listed name before it
    /// makes a local path of it. A server checks every name of a new entry.
    pub fn check_component(&self) -> Result<(), NameError> {
        if self.0.is_empty() {
            return Err(NameError::Empty);
        }
        if self.is_dot_or_dot_dot() {
            return Err(NameError::DotOrDotDot);
        }
        if self.0.contains(&b'/') {
            return Err(NameError::Separator);
        }
        if self.0.contains(&0) {
            return Err(NameError::Nul);
        }
        if self.0.len() > MAX_NAME {
            return Err(NameError::TooLong { length: self.0.len() });
        }
        Ok(())
    }
}

impl From<&str> for FileName {
    fn from(name: &str) -> Self {
        Self(name.as_bytes().to_vec())
    }
}

impl From<&[u8]> for FileName {
    fn from(name: &[u8]) -> Self {
        Self(name.to_vec())
    }
}

impl From<Vec<u8>> for FileName {
    fn from(name: Vec<u8>) -> Self {
        Self(name)
    }
}

impl AsRef<[u8]> for FileName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}
