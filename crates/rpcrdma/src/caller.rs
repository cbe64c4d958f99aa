//! [`Caller`]: a way to make calls, typed and raw.
//!
//! *Buffers.* The arguments are encoded before the future is first polled, and the future does not need them any more. Memory
//! for results comes from the pool ([`Sink::Pool`](crate::Sink::Pool)).
//!
//! *Errors.* Every call ends with its results or one [`CallError`].

use std::borrow::Borrow;
use std::sync::Arc;

use rpcrdma_oncrpc::typed::{Bounds, Procedure};

use crate::backchannel::Backchannel;
use crate::call::{Call, Reply};
use crate::client::Client;
use crate::error::CallError;

/// A way to make calls: a [`Client`], or a [`Backchannel`].
pub trait Caller: Send + Sync {
    /// Makes a call and waits for its reply. The future may be dropped at any point: a call that was sent may still be
    /// carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] states what is known about the call's execution.
    fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send;

    /// Calls a procedure and waits for its results, for which [`Procedure::bounds`] provides memory.
    ///
    /// # Errors
    /// As [`call_raw`](Self::call_raw); [`CallError::Unsendable`] if the arguments break the limits of their type,
    /// [`CallError::BadReply`] if the results are no value of theirs.
    fn call<P: Procedure>(
        &self,
        arguments: impl Borrow<P::Arguments>,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        results_of::<P>(self, Call::of::<P>(arguments.borrow()))
    }

    /// Calls a procedure and waits for its results, of at most this size.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn call_within<P: Procedure>(
        &self,
        arguments: impl Borrow<P::Arguments>,
        bounds: Bounds,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        results_of::<P>(self, Call::within::<P>(arguments.borrow(), bounds))
    }
}

/// Makes an encoded call and decodes its results.
async fn results_of<P: Procedure>(
    caller: &(impl Caller + ?Sized),
    call: Result<Call, CallError>,
) -> Result<P::Results, CallError> {
    caller.call_raw(call?).await?.into_results::<P>()
}

impl Caller for Client {
    fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send {
        Self::call_raw(self, call)
    }
}

impl Caller for Backchannel {
    fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send {
        Self::call_raw(self, call)
    }
}

impl<C: Caller + ?Sized> Caller for &C {
    fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send {
        C::call_raw(self, call)
    }
}

impl<C: Caller + ?Sized> Caller for Arc<C> {
    fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send {
        C::call_raw(self, call)
    }
}
