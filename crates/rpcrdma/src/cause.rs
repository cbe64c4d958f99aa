//! [`Cause`]: the error of a layer below, which a public error passes on.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The error of a layer below that made a call or connection fail. Cheap to clone: calls that one event ends share it.
///
/// It dereferences to `dyn Error`, so `downcast_ref` finds a known type:
///
/// ```
/// use rpcrdma::Cause;
/// use rpcrdma::xdr::DecodeError;
///
/// let cause = Cause::new(DecodeError::TrailingBytes { position: 8, count: 4 });
/// assert!(cause.downcast_ref::<DecodeError>().is_some());
/// ```
///
/// Errors with a cause return the error inside as their [`source`](Error::source).
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

/// A cause that no layer has a type for.
#[derive(Debug)]
struct Words(String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Words {}

impl Cause {
    /// Wraps the error of a layer below.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// Makes a cause of words alone.
    #[must_use]
    pub fn message(words: impl Into<String>) -> Self {
        Self::new(Words(words.into()))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Cause {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Shows the error inside.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the error inside.
impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
