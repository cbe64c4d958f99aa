//! [`Integrity`]: security flavours that detect changes to a call or its reply in transit.
//!
//! AUTH_NONE and AUTH_SYS do not. [`Dispatcher::protect`](crate::Dispatcher::protect) adds such a flavour to a
//! [`Dispatcher`](crate::Dispatcher). A program names the procedures that require one
//! ([`Program::requires_integrity`](crate::Program::requires_integrity)). The data itself stays unchanged: a flavour
//! adds to credential and verifier only.
//!
//! *Errors.* A call that does not match its verifier is denied before its program sees it. A caller must not use a
//! reply that does not match its verifier.

use rpcrdma_xdr::{Decoder, Stream};

use crate::OpaqueAuth;
use crate::message::{AuthStat, CallHeader};

/// A security flavour that protects calls and replies, with a secret that the two ends share.
pub trait Integrity: Send + Sync + 'static {
    /// Returns the number of the flavour.
    fn flavor(&self) -> u32;

    /// Sets credential and verifier of a call by this side.
    fn seal_call(&self, call: &mut CallHeader, arguments: &Stream);

    /// Checks that a call of this flavour is unchanged since it was sealed; the decoder stands at its arguments.
    ///
    /// # Errors
    /// The status for the caller.
    fn check_call(&self, call: &CallHeader, arguments: &Decoder) -> Result<(), AuthStat>;

    /// Returns the verifier of a reply by this side.
    fn seal_reply(&self, xid: u32, results: &Stream) -> OpaqueAuth;

    /// Returns whether a reply is unchanged since it was sealed; the decoder stands at its results.
    fn check_reply(&self, xid: u32, verifier: &OpaqueAuth, results: &Decoder) -> bool;
}
