//! [`InterceptService`]: code around the calls of a server's programs, for what all have in common: measuring, auditing,
//! limits, or another identity of the caller.
//!
//! Interceptors nest. The first one is outermost: it sees a call first and its results last. They stand behind the reply
//! cache, so each sees a call once, as the program does. A repeat gets the kept reply without them. Procedure 0 passes no
//! interceptor, because the dispatcher answers it.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use rpcrdma_oncrpc::{CallContext, InterceptService, NextService, ResponseFuture};
//! use rpcrdma_xdr::Decoder;
//!
//! /// Counts the bytes of all results.
//! #[derive(Default)]
//! struct Bytes(std::sync::Arc<AtomicU64>);
//!
//! impl InterceptService for Bytes {
//!     fn serve(&self, context: CallContext, arguments: Decoder, next: NextService) -> ResponseFuture {
//!         let total = self.0.clone();
//!         Box::pin(async move {
//!             let results = next.call(context, arguments).await?;
//!             total.fetch_add(results.len() as u64, Ordering::Relaxed);
//!             Ok(results)
//!         })
//!     }
//! }
//! ```
//!
//! *Buffers.* Arguments pass through as slices of the message, results as pieces: an interceptor that leaves them alone
//! copies nothing.
//!
//! *Errors.* A [`CallFailure`](crate::CallFailure) of an interceptor is that of its call. An interceptor that panics fails
//! with [`CallFailure::Panicked`](crate::CallFailure::Panicked), as a program does.

use std::fmt;
use std::sync::Arc;

use rpcrdma_xdr::Decoder;
use tracing::Span;

use crate::handler::{Guarded, Oversight};
use crate::program::{CallContext, Effect, Program, ResponseFuture};

/// Code around the calls of a server's programs. See the module's introduction.
///
/// A closure of these arguments is an interceptor, too.
pub trait InterceptService: Send + Sync + 'static {
    /// Serves a call, mostly by [`NextService::call`]. `arguments` stands at the first argument.
    ///
    /// The program sees the context and the arguments that `next` gets. So another credential in the context is another
    /// caller for the program. The reply cache knows the call as it came. Numbers in the context choose no other program.
    ///
    /// Results without `next` mean that the call is done. A call that must not begin now fails with
    /// [`CallFailure::Shed`](crate::CallFailure::Shed): then a repeat may be executed later.
    ///
    /// If the future of `next` is dropped half-way, the call may have been carried out in part. The answer of the
    /// interceptor is then the reply to the call and to all its repeats.
    fn serve(&self, context: CallContext, arguments: Decoder, next: NextService) -> ResponseFuture;
}

impl<F> InterceptService for F
where
    F: Fn(CallContext, Decoder, NextService) -> ResponseFuture + Send + Sync + 'static,
{
    fn serve(&self, context: CallContext, arguments: Decoder, next: NextService) -> ResponseFuture {
        self(context, arguments, next)
    }
}

/// The rest of the way of one call: further interceptors, and the program.
pub struct NextService {
    interceptors: Arc<[Arc<dyn InterceptService>]>,
    /// Number of the next one.
    at: usize,
    program: Arc<dyn Program>,
    oversight: Oversight,
}

impl fmt::Debug for NextService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextService").field("call", self.oversight.call()).finish_non_exhaustive()
    }
}

impl NextService {
    /// Returns the way by all interceptors.
    pub(crate) const fn new(
        interceptors: Arc<[Arc<dyn InterceptService>]>,
        program: Arc<dyn Program>,
        oversight: Oversight,
    ) -> Self {
        Self { interceptors, at: 0, program, oversight }
    }

    /// Returns the procedure's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.oversight.call().name
    }

    /// Returns the kind of change that the procedure makes. Replies are kept unless it is [`Effect::Idempotent`].
    #[must_use]
    pub const fn effect(&self) -> Effect {
        self.oversight.call().effect
    }

    /// Goes on with the call; the future resolves to its results. It never panics: a handler that does has failed.
    ///
    /// # Errors
    /// The future resolves to the [`CallFailure`](crate::CallFailure) of the program, or of a further interceptor.
    #[must_use]
    pub fn call(self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let Self { interceptors, at, program, oversight } = self;
        let rest = oversight.again();
        let begin = || match interceptors.get(at).cloned() {
            Some(next) => {
                let rest = Self { interceptors, at: at + 1, program, oversight: rest };
                next.serve(context, arguments, rest)
            }
            None => program.call(context, arguments),
        };
        Box::pin(Guarded::start(oversight, Span::none(), begin))
    }
}
