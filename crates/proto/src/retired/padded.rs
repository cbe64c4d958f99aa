//! RDMA_MSGP: opaque data at the alignment of the peer's Receives (RFC 5666 §3.9; removed by RFC 8166 §4.6.1).

use bytes::Bytes;
use rpcrdma_xdr::{Padding, Piece, Stream};

use super::{AlignmentBase, PaddedMessages, Retired};
use crate::core::Core;
use crate::planner::CallInput;
use crate::settings::config::Side;
use crate::wire::ProtocolError;

/// Alignment of opaque data (RFC 5666 §3.9).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlignmentRules {
    /// The alignment at the Responder, bytes; at least 1.
    pub(crate) align: u32,
    /// Data of at least this many bytes is aligned.
    pub(crate) threshold: usize,
    /// The origin from which positions count.
    pub(crate) base: AlignmentBase,
}

/// Returns `rdma_align`, `rdma_thresh` and the message with its long opaque data aligned. `None` if the result does not
/// fit after a header of `header` bytes and these two words.
///
/// The Responder aligns every opaque item of at least the threshold. The planner knows only the lengths of the inline
/// runs, so the threshold exceeds every item in them. Under integrity or privacy the Responder does not decode the
/// items first, so no alignment is possible.
pub(super) fn align(
    rules: AlignmentRules,
    input: &CallInput<'_>,
    header: usize,
) -> Option<(u32, u32, Stream)> {
    if input.flavor_touches_data {
        return None;
    }
    let align = usize::try_from(rules.align.max(1)).ok()?;
    let header = header + input.codec.padded_extra()?;
    let room = input.send.checked_sub(header)?;
    let pieces = input.message.pieces();
    let run = |piece: &Piece| if matches!(piece, Piece::Inline(_)) { piece.len() } else { 0 };
    let threshold = pieces.iter().map(run).max()?.max(rules.threshold).max(1);
    let is_long = |piece: &Piece| matches!(piece, Piece::Payload { .. }) && piece.data().len() >= threshold;
    if !pieces.iter().any(is_long) {
        return None;
    }
    let before = match rules.base {
        AlignmentBase::Send => header,
        AlignmentBase::Payload => 0,
    };
    let mut padded = Stream::new();
    for piece in pieces {
        if is_long(piece) {
            let at = before + padded.len();
            let pad = at.checked_next_multiple_of(align)? - at;
            // Checked before any memory is allocated for the pad.
            if padded.len() + pad > room {
                return None;
            }
            padded.push(Piece::Inline(Bytes::from(vec![0; pad])));
        }
        padded.push(piece.clone());
    }
    let threshold = u32::try_from(threshold).ok()?;
    (padded.len() <= room).then(|| (rules.align.max(1), threshold, padded))
}

impl Core {
    /// Returns the alignment of opaque data in our Calls.
    pub(super) fn alignment(&self) -> Option<AlignmentRules> {
        let settings = self.settings()?;
        // RFC 5666 §6.2: the peers agree on the alignment of the server's Receives, which hold the client's Calls.
        let agreed = self.peer.agreement.filter(|_| self.side() == Side::Client);
        let align = agreed.map_or(settings.alignment, |agreement| agreement.align);
        let usable =
            align >= 4 && align.is_power_of_two() && settings.padded_messages == PaddedMessages::Honour;
        usable.then_some(AlignmentRules {
            align,
            threshold: settings.alignment_threshold,
            base: settings.alignment_base,
        })
    }
}

impl Retired {
    /// Returns the padding that is to be skipped in an RDMA_MSGP with this one, which counts from the Send.
    pub(super) fn padding(&self, padding: Padding) -> Result<Option<Padding>, ProtocolError> {
        match self.settings.padded_messages {
            PaddedMessages::Refuse => Err(ProtocolError::PaddedMessage),
            PaddedMessages::AsMessage => Ok(None),
            PaddedMessages::Honour if padding.align == 0 => Err(ProtocolError::BadAlignment { align: 0 }),
            PaddedMessages::Honour => Ok(Some(match self.settings.alignment_base {
                AlignmentBase::Send => padding,
                AlignmentBase::Payload => Padding { before: 0, ..padding },
            })),
        }
    }
}
