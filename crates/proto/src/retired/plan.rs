//! The choice of retired forms for a message, with the steps of the [planner](crate::planner).

use rpcrdma_xdr::{CopyCount, Stream};

pub(crate) use super::padded::AlignmentRules;
use super::padded::align;
use crate::core::Core;
use crate::planner::{
    CallInput, CallPlan, ChunkRules, Offer, PlannedRead, Refusal, ReplyInput, ReplyPlan, Route, Unplaced,
    choose_reduced, offer, place, plan_with, position_zero, segments, take_out,
};
use crate::settings::config::Side;
use crate::wire::{Direction, ProtocolError, Shape};

/// The retired forms that a Call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallForms {
    /// Offer no chunks for the reply: the Responder exposes long data itself (RFC 5666 §3.4, §3.8).
    pub(crate) withhold: bool,
    /// Alignment of opaque data, if it was agreed.
    pub(crate) alignment: Option<AlignmentRules>,
}

impl CallForms {
    /// Decides how a Call travels: as RDMA_MSGP if it has data to align and fits inline, or as the planner decides.
    ///
    /// # Errors
    /// [`Refusal`]: no form carries the Call.
    pub(crate) fn plan_call(&self, input: &CallInput<'_>) -> Result<CallPlan, Refusal> {
        // RFC 5666 §3.4: the Responder exposes a reply that does not fit inline.
        let offer = if self.withhold { Offer::receives(1) } else { offer(input)? };
        let header = input.codec.header_len(&offer.shape(0, false));
        match self.alignment.and_then(|rules| align(rules, input, header)) {
            Some((align, threshold, inline)) => {
                let route = Route::Padded { align, threshold };
                Ok(offer.with(route, inline.into(), vec![], CopyCount::default()))
            }
            None => plan_with(input, offer),
        }
    }
}

/// The retired forms that a reply may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyForms(
    /// Limits of Read chunks in the reply.
    pub(crate) ChunkRules,
);

impl ReplyForms {
    /// Decides how a reply travels: inline, in the chunks of the Call, or exposed. Exposed are first the DDP-eligible
    /// results beyond the Write list, the largest first, and then the whole rest.
    ///
    /// # Errors
    /// [`ProtocolError::WriteChunkTooSmall`], [`ProtocolError::ReplyTooLong`]
    pub(crate) fn plan_reply(&self, input: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
        match place(input, input.offered.reply.as_ref())? {
            Ok(plan) => Ok(plan),
            Err(left) => {
                let refusal = left.refusal(input);
                expose(self.0, input, left).ok_or(refusal)
            }
        }
    }
}

impl Core {
    /// Returns the retired forms that our Calls may use; only Version One has them.
    pub(crate) fn call_forms(&self) -> Option<CallForms> {
        self.retired.as_ref().filter(|_| self.codec.rules().two.is_none())?;
        let read_read = self.read_read(Side::Client);
        let withhold = read_read.is_some_and(|read_read| read_read.withhold_chunks);
        Some(CallForms { withhold, alignment: self.alignment() })
    }

    /// Returns the retired forms that our replies may use.
    pub(crate) fn reply_forms(&self) -> Option<ReplyForms> {
        self.exposes_replies()?;
        Some(ReplyForms(ChunkRules {
            allowed: true,
            read: true,
            reduce_from: None,
            max_segment_len: self.config.max_segment_len.max(1024),
            max_segments: self.config.max_segments,
            max_read_chunks: self.config.max_read_chunks,
        }))
    }
}

/// Exposes a reply by Read chunks, if the Requester accepts them and offered nothing that carries the reply (RFC 5666
/// §3.8, §5.2).
fn expose(rules: ChunkRules, input: &ReplyInput<'_>, unplaced: Unplaced<'_>) -> Option<ReplyPlan> {
    let Unplaced { left, lists, placed, .. } = unplaced;
    let header = |read: &[PlannedRead]| {
        input.codec.header_len(&Shape { read_segments: segments(read), ..lists.shape(Direction::Reply) })
    };
    let reduced = choose_reduced(&left, 1, rules.max_read_chunks);
    let (rest, mut read) = take_out(&rules, &left, &reduced).ok()?;
    if header(&read) + rest.len() <= input.send {
        return Some(ReplyPlan {
            route: Route::Inline,
            lists,
            placed,
            read,
            rest: rest.into(),
            copied: CopyCount::default(),
        });
    }
    // RFC 5666 §5.1: "the first entry in the read chunk list with an XDR position of zero".
    let (zero, copied) = position_zero(&rules, &rest).ok()?;
    read.insert(0, zero);
    let fits = header(&read) <= input.send;
    let rest = Stream::new().into();
    fits.then_some(ReplyPlan { route: Route::Long, lists, placed, read, rest, copied })
}
