//! RPC calls and their replies, assembled from messages: inline parts, and items moved by RDMA.
//!
//! The memory that a Call names in its chunks is modelled: Read Responses and RDMA Writes fill it in their order, and
//! the RPC message and its reduced items are taken out of it, once. It holds the bytes that moved, whatever length the
//! Call names. A part with bytes that were cut out of a recording, or never moved, is not [`genuine`](Part::genuine).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest};
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, ChunkLists, Codec as _, Header, ReadSegment, Segment};

use crate::message::{Event, Message, Placement, events};
use crate::session::Session;
use crate::tcp::Side;

/// An item that a chunk moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Position in the unreduced message; 0 for a Write chunk, which has none.
    pub position: u32,
    /// Content of the item.
    pub data: Bytes,
    /// Whether all bytes are those of the wire.
    pub genuine: bool,
}

/// A direction of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// RPC-over-RDMA header.
    pub header: Header,
    /// Send, or one of its variants.
    pub opcode: Opcode,
    /// The steering tag that the message invalidates.
    pub invalidate: Option<u32>,
    /// Length of the Send, in bytes.
    pub sent: usize,
    /// The RPC message without the items in separate chunks.
    pub message: Bytes,
    /// Whether the complete message is that of the wire.
    pub genuine: bool,
    /// For a Call: the Read chunks except that at Position zero. For a Reply: the Write chunks.
    pub moved: Vec<Moved>,
}

impl Part {
    /// Returns the chunk lists of the header, if it has any.
    #[must_use]
    pub const fn lists(&self) -> Option<&ChunkLists> {
        match &self.header.body {
            Body::Message(lists) | Body::NoMessage(lists) | Body::Padded { lists, .. } => Some(lists),
            Body::Done | Body::Error(_) | Body::Two(_) => None,
        }
    }
}

/// A call and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Caller of the exchange.
    pub caller: Side,
    /// The Call; if there is a reply, its chunks have been read.
    pub call: Part,
    /// The Reply or an RDMA_ERROR; `None` if there was none.
    pub reply: Option<Part>,
}

/// All exchanges of a session's messages.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    /// Exchanges in the order of the Calls.
    pub all: Vec<Exchange>,
    /// Maximum number of Calls of each side (client, server) that waited for their replies at a time.
    pub in_flight: (usize, usize),
    /// Messages without a header of Version One, and replies without a call.
    pub odd: Vec<Message>,
    /// Gaps of a recording of RoCE, of either kind.
    pub gaps: usize,
}

/// Memory of a segment of a chunk: the bytes that moved.
#[derive(Debug)]
struct Region {
    segment: Segment,
    data: Vec<u8>,
    genuine: bool,
}

/// Returns whether a segment has so many bytes.
fn holds(segment: &Segment, bytes: usize) -> bool {
    u32::try_from(bytes).is_ok_and(|bytes| bytes <= segment.length)
}

/// The memory of both sides, by steering tag.
#[derive(Debug, Default)]
struct Memory {
    regions: HashMap<(Side, u32), Region>,
    reads: HashMap<Side, VecDeque<ReadRequest>>,
}

impl Memory {
    fn open(&mut self, owner: Side, segment: Segment) {
        self.regions.insert((owner, segment.handle), Region { segment, data: Vec::new(), genuine: true });
    }

    fn place(&mut self, owner: Side, stag: u32, offset: u64, bytes: &[u8], genuine: bool) {
        let Some(region) = self.regions.get_mut(&(owner, stag)) else { return };
        let start = usize::try_from(offset.wrapping_sub(region.segment.offset)).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        // Bytes behind a hole would need memory for the hole, and both sides fill a segment from its front.
        if start > region.data.len() || !holds(&region.segment, end) {
            region.genuine = false;
            return;
        }
        region.data.resize(region.data.len().max(end), 0);
        if let Some(target) = region.data.get_mut(start..end) {
            target.copy_from_slice(bytes);
        }
        region.genuine &= genuine;
    }

    /// Places a Read Response. On both transports, responses answer Read Requests in their order (RFC 5040 §5.5).
    fn respond(&mut self, response: &Placement) {
        let due = self.reads.entry(response.from.peer()).or_default();
        let Some(request) = due.front().copied() else { return };
        if response.last {
            due.pop_front();
        }
        let offset = request.source_offset.wrapping_add(response.offset.wrapping_sub(request.sink_offset));
        self.place(response.from, request.source_stag, offset, &response.bytes, response.genuine);
    }

    /// Takes the bytes of some segments, and returns whether they are genuine.
    fn take<'a>(&mut self, owner: Side, segments: impl Iterator<Item = &'a Segment>) -> (Bytes, bool) {
        let mut bytes = Vec::new();
        let mut genuine = true;
        for segment in segments {
            let length = usize::try_from(segment.length).unwrap_or_default();
            let region = self.regions.remove(&(owner, segment.handle));
            let data = region.as_ref().map(|region| &region.data[..]).unwrap_or_default();
            bytes.extend_from_slice(data.get(..length).unwrap_or(data));
            genuine &= data.len() >= length && region.is_none_or(|region| region.genuine);
        }
        (bytes.into(), genuine)
    }

    fn chunk(&mut self, owner: Side, read: &[ReadSegment], position: u32) -> Moved {
        let segments = read.iter().filter(|entry| entry.position == position).map(|entry| &entry.segment);
        let (data, genuine) = self.take(owner, segments);
        Moved { position, data, genuine }
    }
}

impl Exchanges {
    /// Returns the calls of a session.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let mut exchanges = Self::default();
        let mut memory = Memory::default();
        let mut open: Vec<(u32, usize)> = Vec::new();
        for event in events(session) {
            match event {
                Event::Message(message) => exchanges.message(message, &mut memory, &mut open),
                Event::Write(write) => {
                    let owner = write.from.peer();
                    memory.place(owner, write.stag, write.offset, &write.bytes, write.genuine);
                }
                Event::ReadRequest(from, request) => {
                    memory.reads.entry(from).or_default().push_back(request);
                }
                Event::ReadResponse(response) => memory.respond(&response),
                Event::Gap(..) => exchanges.gaps += 1,
                Event::ReadGap(from) => {
                    exchanges.gaps += 1;
                    memory.reads.entry(from).or_default().pop_front();
                }
                Event::Terminate(..) | Event::Refusal(..) | Event::Odd(..) => {}
            }
        }
        exchanges
    }

    fn message(&mut self, message: Message, memory: &mut Memory, open: &mut Vec<(u32, usize)>) {
        let Ok((header, header_len)) = V1.decode(&message.bytes, &Limits::default()) else {
            self.odd.push(message);
            return;
        };
        let inline = Bytes::copy_from_slice(message.bytes.get(header_len..).unwrap_or_default());
        let is_call = match &header.body {
            // RFC 5531 §9: the message type follows the XID; 0 is CALL.
            Body::Message(_) => inline.get(4..8) == Some(&[0; 4]),
            Body::NoMessage(lists) => lists.has_position_zero(),
            Body::Padded { .. } | Body::Done | Body::Error(_) | Body::Two(_) => false,
        };
        let mut part = Part {
            header,
            opcode: message.opcode,
            invalidate: message.invalidate,
            sent: message.bytes.len(),
            message: inline,
            genuine: message.genuine == message.bytes.len(),
            moved: Vec::new(),
        };
        if is_call {
            if let Some(lists) = part.lists() {
                let reads = lists.read.iter().map(|entry| entry.segment);
                let writes = lists.write.iter().chain(&lists.reply).flat_map(|chunk| chunk.segments.iter());
                for segment in reads.chain(writes.copied()) {
                    memory.open(message.from, segment);
                }
            }
            open.push((part.header.xid, self.all.len()));
            self.all.push(Exchange { caller: message.from, call: part, reply: None });
            let waiting = |side| {
                open.iter()
                    .filter(|(_, at)| self.all.get(*at).is_some_and(|call| call.caller == side))
                    .count()
            };
            self.in_flight.0 = self.in_flight.0.max(waiting(Side::Client));
            self.in_flight.1 = self.in_flight.1.max(waiting(Side::Server));
            return;
        }
        let caller = message.from.peer();
        let found = open.iter().position(|&(xid, at)| {
            xid == part.header.xid && self.all.get(at).is_some_and(|call| call.caller == caller)
        });
        let Some(exchange) = found.map(|at| open.swap_remove(at).1).and_then(|at| self.all.get_mut(at))
        else {
            self.odd.push(message);
            return;
        };
        exchange.call.take_read_chunks(caller, memory);
        part.take_written_chunks(caller, memory);
        exchange.reply = Some(part);
    }
}

impl Part {
    /// Takes the data of a Call's Read chunks, after they were read.
    fn take_read_chunks(&mut self, owner: Side, memory: &mut Memory) {
        let Some(lists) = self.lists().cloned() else { return };
        let mut positions: Vec<_> = lists.read.iter().map(|entry| entry.position).collect();
        positions.dedup();
        for position in positions {
            let chunk = memory.chunk(owner, &lists.read, position);
            if position == 0 {
                self.genuine &= chunk.genuine;
                self.message = chunk.data;
            } else {
                self.moved.push(chunk);
            }
        }
    }

    /// Takes the data of a Reply's Write chunks and Reply chunk, with the lengths that it states.
    fn take_written_chunks(&mut self, owner: Side, memory: &mut Memory) {
        let Some(lists) = self.lists().cloned() else { return };
        for chunk in &lists.write {
            let (data, genuine) = memory.take(owner, chunk.segments.iter());
            self.moved.push(Moved { position: 0, data, genuine });
        }
        if let (Body::NoMessage(_), Some(chunk)) = (&self.header.body, &lists.reply) {
            let (data, genuine) = memory.take(owner, chunk.segments.iter());
            self.message = data;
            self.genuine &= genuine;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_no_segment_holds_more_bytes_than_its_length_can_say() {
        for (length, bytes, is_held) in [
            (0, 0, true),
            (0, 1, false),
            (8, 8, true),
            (8, 9, false),
            (u32::MAX, 0xffff_ffff, true),
            (u32::MAX, usize::MAX, false),
        ] {
            assert_eq!(holds(&Segment { handle: 1, length, offset: 0 }, bytes), is_held, "{length} {bytes}");
        }
    }
}
