//! [`Caller`]: a way to make calls, typed and raw.
//!
//! *Buffers.* The arguments are encoded when the future is first polled, and dropped then. Memory for results comes from the
//! pool ([`Sink::Pool`](crate::Sink::Pool)).
//!
//! *Errors.* Every call ends with its results or one [`CallError`].

use std::borrow::Borrow;
use std::sync::Arc;

use rpcrdma_oncrpc::typed::{Bounds, Procedure};

use crate::backchannel::Backchannel;
use crate::call::{Call, Reply};
use crate::client::Client;
use crate::error::CallError;
use crate::handle::Handle;

/// A way to make calls: a [`Client`], a [`Handle`] with defaults for them, or a [`Backchannel`].
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
        arguments: impl Borrow<P::Arguments> + Send,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        // The call is made here, so that the future is nearly empty while it is moved.
        async move {
            let call = Call::of::<P>(arguments.borrow());
            drop(arguments);
            self.call_raw(call?).await?.into_results::<P>()
        }
    }

    /// Calls a procedure and waits for its results, of at most this size.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn call_within<P: Procedure>(
        &self,
        arguments: impl Borrow<P::Arguments> + Send,
        bounds: Bounds,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        async move {
            let call = Call::within::<P>(arguments.borrow(), bounds);
            drop(arguments);
            self.call_raw(call?).await?.into_results::<P>()
        }
    }
}

/// Implements [`Caller`] by the type's own `call_raw`, and its typed calls without an import of the trait.
macro_rules! callers {
    ($($caller:ty),*) => {$(
        impl Caller for $caller {
            fn call_raw(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> + Send {
                Self::call_raw(self, call)
            }
        }

        impl $caller {
            /// Calls a procedure and waits for its results ([`Caller::call`]).
            ///
            /// # Errors
            /// As [`Caller::call`].
            pub fn call<P: Procedure>(
                &self,
                arguments: impl Borrow<P::Arguments> + Send,
            ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
                Caller::call::<P>(self, arguments)
            }

            /// Calls a procedure and waits for its results, of at most this size ([`Caller::call_within`]).
            ///
            /// # Errors
            /// As [`Caller::call`].
            pub fn call_within<P: Procedure>(
                &self,
                arguments: impl Borrow<P::Arguments> + Send,
                bounds: Bounds,
            ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
                Caller::call_within::<P>(self, arguments, bounds)
            }
        }
    )*};
}

callers!(Client, Handle, Backchannel);

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
