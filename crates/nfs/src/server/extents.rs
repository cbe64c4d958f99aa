//! The server's side of [`crate::extents`]: ranges with data, with the checks of READ.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rpcrdma_oncrpc::{CallContext, CallFailure, Effect, ProcedureInfo, Program, ResponseFuture};
use rpcrdma_proto::{Binding, Eligibility};
use rpcrdma_xdr::{Decoder, Stream, encode};
use tracing::Instrument;

use super::{At, Shared, Unserved, Work, boxed, failed};
use crate::extents::{
    EXTENTS_PROGRAM, EXTENTS_VERSION, Extent, ExtentsArgs, ExtentsOk, ExtentsProcedure, ExtentsResult,
    MAX_EXTENTS, MAX_EXTENTS_RESULTS,
};
use crate::wire::Status;

/// Length of a range in the results, in bytes.
const EXTENT: usize = 16;

/// The program of [`crate::extents`].
pub struct ExtentsProgram {
    pub(super) shared: Arc<Shared>,
}

impl ExtentsProgram {
    fn extents(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = "EXTENTS", xid = context.xid);
        let call: ExtentsArgs = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(&call.file, context);
        let respond = async move {
            let refuse = |status| results(Err(status));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            // As for a listing: a client that does not read results holds memory of its own share.
            let length = MAX_EXTENTS_RESULTS - (MAX_EXTENTS - limit(&call)) * EXTENT;
            let Some(room) = shared.room(at.caller.ip(), length).await else {
                return refuse(Status::Jukebox);
            };
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            let job = move || results(find(&at, &call)).map(|results| room.keep(&results));
            match shared.blocking(&served, peer, Work::Look, job).await {
                Ok(results) => results,
                Err(Unserved::Panicked) => Err(CallFailure::SystemError),
                Err(Unserved::Refused) => refuse(Status::Jukebox),
            }
        };
        boxed(respond.instrument(span))
    }
}

fn results(found: Result<ExtentsOk, Status>) -> Result<Stream, CallFailure> {
    Ok(encode(&match found {
        Ok(ok) => ExtentsResult::Ok(ok),
        Err(status) => ExtentsResult::Fail { status, attributes: () },
    })?)
}

/// Returns the most ranges for this call.
fn limit(call: &ExtentsArgs) -> usize {
    usize::try_from(call.count).unwrap_or(MAX_EXTENTS).min(MAX_EXTENTS)
}

fn find(at: &At, call: &ExtentsArgs) -> Result<ExtentsOk, Status> {
    let limit = limit(call);
    let found = at.fs().extents(&at.who, &at.id, call.offset, limit).map_err(Status::from)?;
    // If a file system returns more ranges than requested, the reply still has only `limit`.
    let complete = found.complete && found.ranges.len() <= limit;
    let wire = |range: std::ops::Range<u64>| {
        let length = range.end.checked_sub(range.start).filter(|length| *length > 0)?;
        Some(Extent { offset: range.start, length })
    };
    Ok(ExtentsOk { extents: found.ranges.into_iter().take(limit).filter_map(wire).collect(), complete })
}

impl Program for ExtentsProgram {
    fn number(&self) -> u32 {
        EXTENTS_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        EXTENTS_VERSION..=EXTENTS_VERSION
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        let procedure = ExtentsProcedure::from_number(procedure)?;
        Some(ProcedureInfo { name: procedure.name(), effect: Effect::Idempotent })
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.shared.exports.accept_flavor(flavor)
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match ExtentsProcedure::from_number(context.procedure) {
            None => failed(CallFailure::ProcedureUnavailable),
            Some(ExtentsProcedure::Null) => Box::pin(std::future::ready(
                arguments.finish().map(|()| Stream::default()).map_err(CallFailure::from),
            )),
            Some(ExtentsProcedure::Extents) => self.extents(context, arguments),
        }
    }
}

impl Binding for ExtentsProgram {
    /// No item is DDP-eligible.
    fn eligibility(&self, _version: u32, _procedure: u32) -> Eligibility {
        Eligibility::default()
    }
}
