//! [`Channel`]: what a caller needs of the connection that carries its calls.

use std::time::Duration;

use crate::call::{Call, RawReply};
use crate::error::CallError;

/// A way for calls to the server: a connection that is opened again when it is lost, or a single one.
pub(crate) trait Channel: Sync {
    /// Makes a call and waits for its reply, whatever that says.
    fn call(&self, call: Call) -> impl Future<Output = Result<RawReply, CallError>> + Send;

    /// Returns an XID for a call that needs it before it is given to [`call`](Self::call).
    fn next_xid(&self) -> u32;

    /// Returns the time that a call has for its reply, unless it says otherwise.
    fn call_timeout(&self) -> Duration;
}
