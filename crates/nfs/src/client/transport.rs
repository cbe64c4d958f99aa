//! The transport of calls and replies: a small trait over the RPC client, so that all code above it can be
//! tested without a network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{Call, CallError, GssUser, Sink};
use rpcrdma_oncrpc::Credential;
use rpcrdma_xdr::{Decode, Decoder, EncodeError, Stream};

use super::error::{Error, Violation};
use crate::binding::LargestResults;

/// A call for a [`Transport`].
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    /// Name for traces and errors.
    pub(crate) name: &'static str,
    pub(crate) credential: Credential,
    pub(crate) arguments: Stream,
    pub(crate) results: LargestResults,
    pub(crate) timeout: Option<Duration>,
}

/// Future of an answer.
pub(crate) type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<Decoder, CallError>> + Send + 'a>>;

/// Carries calls to the server and their results back.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Sends the call. The results begin after the RPC header. Dropping the future abandons the answer.
    fn call(&self, request: Request) -> ReplyFuture<'_>;
}

impl Request {
    fn into_call(self) -> Call {
        let Self { program, version, procedure, name, credential, arguments, results, timeout } = self;
        let mut call = Call::new(program, version, procedure)
            .name(name)
            .credential(credential)
            .arguments(arguments)
            .results(results.inline);
        // RFC 8267 §4: a Write chunk for the one eligible result, if the call can have one.
        if let Some(payload) = results.payload {
            call = call.sink(Sink::Pool(payload));
        }
        call.timeout = timeout;
        call
    }
}

impl Transport for rpcrdma::Client {
    fn call(&self, request: Request) -> ReplyFuture<'_> {
        let call = request.into_call();
        Box::pin(async move { Ok(Self::call_raw(self, call).await?.results) })
    }
}

/// A client whose calls are made by a user of RPCSEC_GSS, but those of procedure 0.
pub(crate) struct Secured {
    pub(crate) rpc: rpcrdma::Client,
    pub(crate) user: Arc<GssUser>,
}

impl Transport for Secured {
    fn call(&self, request: Request) -> ReplyFuture<'_> {
        let secured = request.procedure != 0;
        let mut call = request.into_call();
        if secured {
            call = call.gss(Arc::clone(&self.user));
        }
        Box::pin(async move { Ok(self.rpc.call_raw(call).await?.results) })
    }
}

/// Carries a call of any program and decodes its results.
pub(crate) async fn carry<T: Decode>(transport: &dyn Transport, request: Request) -> Result<T, Error> {
    let operation = request.name;
    let results = transport.call(request).await.map_err(|source| call_failed(operation, source))?;
    results
        .decode_all()
        .map_err(|error| Error::Protocol { operation, violation: Violation::Malformed(error) })
}

/// Returns the error for arguments that cannot be encoded; nothing was sent.
pub(crate) fn unsendable(operation: &'static str, error: EncodeError) -> Error {
    Error::Transport { operation, source: CallError::from(error) }
}

/// Converts the failure of a call: a refusal of the server, or an event on the way.
fn call_failed(operation: &'static str, source: CallError) -> Error {
    match source {
        CallError::BadReply(error) => Error::Protocol { operation, violation: Violation::Malformed(error) },
        CallError::Refused(source) => Error::Rpc { operation, source },
        source => Error::Transport { operation, source },
    }
}
