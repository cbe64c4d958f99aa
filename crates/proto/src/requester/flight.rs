//! A call of ours that has left: its windows, and the phases until its answer is complete.

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, Key, WindowMemory};
use rpcrdma_xdr::{Decoder, Padding, Payload, ReturnedChunk, WriteChunkRules};

use crate::call::{CallFailure, IncomingReply, Invalidations, Sink};
use crate::core::Core;
use crate::error::CallError;
use crate::flow::Lease;
use crate::inbound::reads::Pulled;
use crate::inbound::received::{REPLY, check_prefix};
use crate::message::Travelled;
use crate::outbound::Origin;
use crate::retired::Reading;
use crate::wire::ChunkLists;
use crate::wire::sized;

/// A call in flight, until all its windows are closed.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) phase: Phase,
    pub(crate) windows: Vec<Window>,
    /// Sinks whose memory came from the caller.
    pub(crate) lent: Vec<usize>,
    pub(crate) offered: ChunkLists,
    pub(crate) travelled: Travelled,
    pub(crate) invalidations: Invalidations,
    /// Bytes of the chunks, and of the data that the peer exposes for the call.
    pub(crate) bulk: u64,
}

/// The phase of a call in flight.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The call waits for its reply, and holds its credits.
    Sent(Lease),
    /// The reply is complete, except data that the peer exposes (RFC 5666 §3.8).
    Reading(Box<Reading>),
    /// The answer is complete, and the windows are being closed.
    Closing(Answered),
}

/// The place of a result for which memory or a segment of our Receives was offered.
#[derive(Debug)]
pub(crate) enum Written {
    /// In its Write chunk, with this length in bytes; with length 0, inline.
    Chunk(usize),
    /// Inline, despite offered memory (rtrext-02 §7.4, XMPTYPE_TOOSHORT).
    Inline,
    /// In a Receive (rtrext-02 §7.3).
    Placed(Payload),
}

/// The peer's answer, which the caller gets when the windows are closed.
#[derive(Debug)]
pub(crate) enum Answered {
    Reply {
        /// The Payload stream after the header; `None` if it is in the Reply chunk.
        inline: Option<Payload>,
        /// The alignment of the Payload stream.
        padding: Option<Padding>,
        /// The place of the result for each Write chunk.
        written: Vec<Written>,
        /// Bytes in the Reply chunk.
        reply_chunk: usize,
        /// The data that was read from the peer.
        pulled: Pulled,
        travelled: Travelled,
    },
    Failed(CallError),
    /// The peer refuses the call in a group: it leaves again in plain messages.
    Again,
}

/// Memory of a call that is or was open to the peer.
#[derive(Debug)]
pub(crate) struct Window {
    pub(super) key: Key,
    pub(super) place: Place,
    pub(super) open: bool,
    /// The memory that the closed window returned.
    pub(super) memory: Option<WindowMemory>,
}

/// The use of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Read,
    Write(usize),
    Reply,
}

impl Flight {
    /// Takes the phase out of a flight, which then ends or gets its next phase.
    pub(crate) fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Closing(Answered::Again))
    }

    /// Whether the answer is complete, and every window closed.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closing(_)) && self.windows.iter().all(|window| !window.open)
    }

    /// Returns the memory of a chunk, joined from its windows in order.
    fn memory(&mut self, place: Place) -> Option<Buffer> {
        let mut whole: Option<Buffer> = None;
        for window in self.windows.iter_mut().filter(|window| window.place == place) {
            let Some(WindowMemory::Write(part)) = window.memory.take() else { return None };
            match &mut whole {
                None => whole = Some(part),
                Some(head) => head.unsplit(part).ok()?,
            }
        }
        whole
    }

    /// Returns the first `len` bytes of a chunk's memory.
    fn content(&mut self, place: Place, len: usize) -> Option<Bytes> {
        if len == 0 {
            return Some(Bytes::new());
        }
        let mut memory = self.memory(place)?;
        if memory.len() < len {
            return None;
        }
        memory.truncate(len);
        Some(memory.freeze())
    }

    /// Returns the reply for the caller.
    pub(super) fn into_reply(mut self, xid: u32, core: &Core) -> Result<IncomingReply, CallFailure> {
        let lost = || CallFailure::permanent(CallError::ResultLost, true);
        let (inline, padding, written, reply_chunk, pulled, travelled) = match self.take_phase() {
            Phase::Closing(Answered::Reply { inline, padding, written, reply_chunk, pulled, travelled }) => {
                (inline, padding, written, reply_chunk, pulled, travelled)
            }
            Phase::Closing(Answered::Failed(error)) => return Err(CallFailure::permanent(error, true)),
            _ => return Err(lost()),
        };
        let base = match (inline, pulled.zero) {
            (Some(inline), _) => inline,
            (None, long) => {
                let base = match long {
                    Some(zero) => zero,
                    None => self.content(Place::Reply, reply_chunk).ok_or_else(lost)?,
                };
                let base = Payload::from(base);
                check_prefix(xid, &base, REPLY)
                    .map_err(|error| CallFailure::permanent(CallError::BadReply(error), true))?;
                base
            }
        };
        let message = if written.is_empty() {
            Decoder::of_slices(base)
        } else {
            self.with_results(base, written, core).ok_or_else(lost)?
        };
        let message = message.and_read_chunks(pulled.chunks);
        let message = match padding {
            Some(padding) => message.skip_padding(padding),
            None => message,
        };
        let (call, invalidations) = (self.travelled, self.invalidations);
        Ok(IncomingReply { message, call, reply: travelled, invalidations, sent_before: false })
    }

    /// Returns the message with the results in their Write chunks; `None` if the memory of one did not come back.
    fn with_results(&mut self, base: Payload, written: Vec<Written>, core: &Core) -> Option<Decoder> {
        let mut chunks = Vec::with_capacity(written.len());
        for (index, written) in written.into_iter().enumerate() {
            let offered = self.offered.write.get(index).map_or(0, crate::wire::WriteChunk::total);
            chunks.push(match written {
                Written::Placed(data) => ReturnedChunk::Filled { offered: data.len(), data },
                Written::Inline => ReturnedChunk::Empty,
                Written::Chunk(_) if offered == 0 => ReturnedChunk::Empty,
                Written::Chunk(len) => {
                    let offered = sized(offered);
                    ReturnedChunk::Filled { data: self.content(Place::Write(index), len)?.into(), offered }
                }
            });
        }
        // A returned length may include the pad, if that is accepted.
        let rules = WriteChunkRules { accept_padded: core.accepts_roundup(), ..WriteChunkRules::default() };
        Some(Decoder::with_write_chunks(base, chunks).accept(rules))
    }

    /// Returns the caller's memory to its sinks, as far as it came back.
    pub(super) fn restore(&mut self, sinks: &mut [Sink]) {
        for index in std::mem::take(&mut self.lent) {
            let memory = self.memory(Place::Write(index));
            if let (Some(sink), Some(memory)) = (sinks.get_mut(index), memory) {
                *sink = Sink::Buffer(memory);
            }
        }
    }
}

impl Core {
    /// Closes the open windows of a call.
    pub(crate) fn close_windows(&mut self, xid: u32, windows: &[Window]) {
        for (index, window) in windows.iter().enumerate().filter(|(_, window)| window.open) {
            self.invalidate(Origin::Invalidate { xid, window: index, key: window.key }, window.key);
        }
    }
}
