//! Strings that need not be UTF-8.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// An XDR string (RFC 4506 §4.11) of any bytes, as a slice of the message. Suits file names and paths: NFS gives their
/// bytes no meaning.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub Bytes);

impl Text {
    /// Creates a string from a constant, without a copy.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text, if it is UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Text {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Text> for Bytes {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

/// Quotes and escapes the text, so that hostile names can't write control characters into a log.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Escapes the text like [`Debug`](fmt::Debug), without quotes.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
