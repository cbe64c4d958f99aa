//! The server's side of [`crate::extents`]: ranges with data, under the checks of READ.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rpcrdma_oncrpc::{CallContext, CallFailure, Effect, Procedure, Program, ResponseFuture};
use rpcrdma_proto::{Binding, Eligibility};
use rpcrdma_xdr::{Decoder, Stream, encode};
use tracing::Instrument;

use super::{At, Shared, Unserved, Work};
use crate::extents::{
    EXTENTS_PROGRAM, EXTENTS_VERSION, Extent, ExtentsArgs, ExtentsOk, ExtentsProcedure, ExtentsResult,
    MAX_EXTENTS,
};
use crate::wire::Status;

/// The program of [`crate::extents`].
pub struct ExtentsProgram {
    pub(super) shared: Arc<Shared>,
}

impl ExtentsProgram {
    fn extents(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = "EXTENTS", xid = context.xid);
        let respond = async move {
            let call: ExtentsArgs = arguments.decode_all()?;
            let found = match shared.enter(&call.file, context).await {
                Ok(at) => {
                    let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
                    match shared.blocking(&served, peer, Work::Look, move || find(&at, &call)).await {
                        Ok(found) => found,
                        Err(Unserved::Panicked) => return Err(CallFailure::SystemError),
                        Err(Unserved::Refused) => Err(Status::Jukebox),
                    }
                }
                Err(status) => Err(status),
            };
            Ok(encode(&match found {
                Ok(ok) => ExtentsResult::Ok(ok),
                Err(status) => ExtentsResult::Fail { status, attributes: () },
            })?)
        };
        Box::pin(respond.instrument(span))
    }
}

fn find(at: &At, call: &ExtentsArgs) -> Result<ExtentsOk, Status> {
    let limit = usize::try_from(call.count).unwrap_or(MAX_EXTENTS).min(MAX_EXTENTS);
    let found = at.fs().extents(&at.who, &at.id, call.offset, limit).map_err(Status::from)?;
    // A file system that gives more than it was asked for does not make the reply longer.
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

    fn procedure(&self, _version: u32, procedure: u32) -> Option<Procedure> {
        let procedure = ExtentsProcedure::from_number(procedure)?;
        Some(Procedure { name: procedure.name(), effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match ExtentsProcedure::from_number(context.procedure) {
            None => Box::pin(std::future::ready(Err(CallFailure::ProcedureUnavailable))),
            Some(ExtentsProcedure::Null) => Box::pin(std::future::ready(
                arguments.finish().map(|()| Stream::default()).map_err(CallFailure::from),
            )),
            Some(ExtentsProcedure::Extents) => self.extents(context, arguments),
        }
    }
}

impl Binding for ExtentsProgram {
    /// Nothing is DDP-eligible.
    fn eligibility(&self, _version: u32, _procedure: u32) -> Eligibility {
        Eligibility::default()
    }
}
