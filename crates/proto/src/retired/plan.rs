//! The choice of retired forms for a message; the [planner](crate::planner) asks here.

use bytes::Bytes;
use rpcrdma_xdr::{CopyCount, Stream};

pub use super::padded::AlignmentRules;
use super::padded::align;
use crate::config::Side;
use crate::core::Core;
use crate::planner::{
    CallInput, ChunkRules, Located, PlannedRead, ReplyInput, ReplyPlan, Route, choose_reduced, position_zero,
    segments, take_out,
};
use crate::wire::{ChunkLists, Direction, Shape};

/// The retired forms that a Call may use.
#[derive(Clone, Copy, Debug)]
pub struct CallForms {
    /// Offer no chunks for the reply: the Responder exposes long data itself (RFC 5666 §3.4, §3.8).
    pub withhold: bool,
    /// Alignment of opaque data, if it was agreed.
    pub alignment: Option<AlignmentRules>,
}

impl CallForms {
    /// Whether the Call offers no chunks for its reply.
    pub(crate) const fn withholds(&self) -> bool {
        self.withhold
    }

    /// Returns `rdma_align`, `rdma_thresh` and the message with its long opaque data aligned, if it is to be aligned and
    /// fits after a header of `header` bytes.
    pub(crate) fn align(&self, input: &CallInput<'_>, header: usize) -> Option<(u32, u32, Stream)> {
        align(self.alignment?, input, header)
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

    /// Returns the limits of Read chunks in our replies, if the peer accepts any.
    pub(crate) fn exposed_chunks(&self) -> Option<ChunkRules> {
        self.exposes_replies().map(|_| ChunkRules {
            allowed: true,
            read: true,
            reduce_from: None,
            max_segment_len: self.config.max_segment_len.max(1024),
            max_segments: self.config.max_segments,
            max_read_chunks: self.config.max_read_chunks,
        })
    }
}

/// Exposes a reply by Read chunks, if the Requester accepts them and offered nothing that carries the reply (RFC 5666
/// §3.8, §5.2).
pub(crate) fn expose(
    input: &ReplyInput<'_>,
    left: &[Located<'_>],
    lists: ChunkLists,
    placed: Vec<(usize, Bytes)>,
) -> Option<ReplyPlan> {
    let rules = input.expose?;
    let header = |read: &[PlannedRead]| {
        input.codec.header_len(&Shape { read_segments: segments(read), ..lists.shape(Direction::Reply) })
    };
    let reduced = choose_reduced(left, 1, rules.max_read_chunks);
    let (rest, mut read) = take_out(&rules, left, &reduced).ok()?;
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
