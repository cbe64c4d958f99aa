//! [`Integrity`]: security flavours under which nobody on the way can change a call or its reply.
//!
//! AUTH_NONE and AUTH_SYS are not of that kind. A [`Dispatcher`](crate::Dispatcher) is given those that it shall know
//! ([`Dispatcher::protect`](crate::Dispatcher::protect)); a program says where it wants one
//! ([`Program::requires_integrity`](crate::Program::requires_integrity)). The data itself stays as it is: what a flavour adds
//! stands in credential and verifier.
//!
//! *What happens on error.* A call that does not match its verifier is denied before its program sees it; a reply that does
//! not must not be used by whoever asked.

use rpcrdma_xdr::{Decoder, Stream};

use crate::OpaqueAuth;
use crate::message::{AuthStat, CallHeader};

/// Protects calls and replies, with a secret that the two ends share.
pub trait Integrity: Send + Sync + 'static {
    /// Number of the flavour.
    fn flavor(&self) -> u32;

    /// Sets credential and verifier of a call of ours.
    fn seal_call(&self, call: &mut CallHeader, arguments: &Stream);

    /// Whether a call of this flavour is what its sender made of it; the decoder stands at its arguments.
    ///
    /// # Errors
    /// What the caller is told.
    fn check_call(&self, call: &CallHeader, arguments: &Decoder) -> Result<(), AuthStat>;

    /// The verifier of our reply.
    fn seal_reply(&self, xid: u32, results: &Stream) -> OpaqueAuth;

    /// Whether a reply is what its sender made of it; the decoder stands at its results.
    fn check_reply(&self, xid: u32, verifier: &OpaqueAuth, results: &Decoder) -> bool;
}
