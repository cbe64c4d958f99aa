//! The server's side of [`crate::extents`]: ranges with data, with the checks of READ.

use std::sync::Arc;

use rpcrdma::{Procedure, typed};
use rpcrdma_oncrpc::{CallContext, CallFailure, ProcedureInfo, ResponseFuture};
use rpcrdma_xdr::{Bounded, Decoder, Stream};
use tracing::Instrument;

use super::{At, Shared, Unserved, Work, boxed, decoded, failed};
use crate::extents::{
    EXTENTS_PROGRAM, EXTENTS_VERSION, Extent, ExtentsArgs, ExtentsOk, ExtentsResult, MAX_EXTENTS,
};
use crate::wire::Status;

/// The program of [`crate::extents`].
pub struct ExtentsProgram {
    pub(super) shared: Arc<Shared>,
}

impl ExtentsProgram {
    fn extents(&self, context: CallContext, call: ExtentsArgs) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = ExtentsArgs::NAME, xid = context.xid);
        let entering = shared.enter(&call.file, context);
        let respond = async move {
            let refuse = |status| results(Err(status));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            // As for a listing: a client that does not read results holds memory of its own share.
            let length = ExtentsResult::MAX_LEN - (MAX_EXTENTS - limit(&call)) * Extent::MAX_LEN;
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
    typed::results::<ExtentsArgs>(&match found {
        Ok(ok) => ExtentsResult::Ok(ok),
        Err(status) => ExtentsResult::Fail { status, attributes: () },
    })
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

impl typed::Version for ExtentsProgram {
    fn number(&self) -> u32 {
        EXTENTS_PROGRAM
    }

    fn version(&self) -> u32 {
        EXTENTS_VERSION
    }

    fn procedure(&self, procedure: u32) -> Option<ProcedureInfo> {
        (procedure == ExtentsArgs::NUMBER).then(typed::info::<ExtentsArgs>)
    }

    fn eligibility(&self, _procedure: u32) -> (usize, usize) {
        typed::eligible::<ExtentsArgs>()
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.shared.exports().accept_flavor(flavor)
    }

    fn call(self: Arc<Self>, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match context.procedure {
            ExtentsArgs::NUMBER => decoded::<ExtentsArgs>(arguments, |call| self.extents(context, call)),
            _ => failed(CallFailure::ProcedureUnavailable),
        }
    }
}
