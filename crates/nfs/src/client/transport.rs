//! The transport of calls and replies: a small trait over the RPC client, so that all code above it can be
//! tested without a network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{Call, CallError, GssUser, Procedure};
use rpcrdma_oncrpc::Credential;
use rpcrdma_xdr::{Decode, Decoder};

use super::error::{Error, Violation};

/// Future of an answer.
pub(crate) type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<Decoder, CallError>> + Send + 'a>>;

/// Carries calls to the server and their results back.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Sends the call. The results begin after the RPC header. Dropping the future abandons the answer.
    fn call(&self, call: Call) -> ReplyFuture<'_>;
}

impl Transport for rpcrdma::Client {
    fn call(&self, call: Call) -> ReplyFuture<'_> {
        Box::pin(async move { Ok(self.call_raw(call).await?.results) })
    }
}

/// A client whose calls are made by a user of RPCSEC_GSS, but those of procedure 0.
pub(crate) struct Secured {
    pub(crate) rpc: rpcrdma::Client,
    pub(crate) user: Arc<GssUser>,
}

impl Transport for Secured {
    fn call(&self, mut call: Call) -> ReplyFuture<'_> {
        if call.procedure != 0 {
            call.gss = Some(Arc::clone(&self.user));
        }
        Transport::call(&self.rpc, call)
    }
}

/// Calls a procedure of any program, with the memory that its bounds require for the results (RFC 8267 §4.1).
pub(crate) async fn carry<P: Procedure>(
    transport: &dyn Transport,
    arguments: &P::Arguments,
    credential: Credential,
    timeout: Option<Duration>,
) -> Result<P::Results, Error> {
    let mut call = Call::of::<P>(arguments).map_err(|source| call_failed(P::NAME, source))?;
    call.credential = credential;
    call.timeout = timeout;
    answer(transport, call).await
}

/// Calls procedure 0 of a program, which checks whether the server answers. The call has no credential.
pub(crate) async fn null(
    transport: &dyn Transport,
    (program, version): (u32, u32),
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let mut call = Call::null(program, version);
    call.timeout = timeout;
    answer(transport, call).await
}

async fn answer<T: Decode>(transport: &dyn Transport, call: Call) -> Result<T, Error> {
    let operation = call.name;
    let results = transport.call(call).await.map_err(|source| call_failed(operation, source))?;
    results
        .decode_all()
        .map_err(|error| Error::Protocol { operation, violation: Violation::Malformed(error) })
}

/// Converts the failure of a call: a refusal of the server, or an event on the way.
fn call_failed(operation: &'static str, source: CallError) -> Error {
    match source {
        CallError::BadReply(error) => Error::Protocol { operation, violation: Violation::Malformed(error) },
        CallError::Refused(source) => Error::Rpc { operation, source },
        source => Error::Transport { operation, source },
    }
}
