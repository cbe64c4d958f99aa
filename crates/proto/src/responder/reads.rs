//! Reading the chunks of Calls: memory for a whole Call, then RDMA Reads, as many at a time as were agreed.
//!
//! A chunk is one work request, unless fewer RDMA Reads may be under way at the peer than it has segments (RFC 5666 §6.2): then
//! its memory is cut at segments, and the parts are posted as earlier Reads complete and joined at the end, without a copy.
//!
//! *What happens on error.* A Read that fails ends the connection; memory that is not back then goes with the queue pair.

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, PoolExhausted, Status, Windows, WorkRequest};

use super::{Chunk, Responder};
use crate::core::{Core, Origin, allocate_together, remote};
use crate::error::ProtocolError;
use crate::event::CloseReason;
use crate::reassembly::ReadChunk;
use crate::timers::after;
use crate::wire::ErrorBody;

/// The memory of a chunk while it is being read.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// What no Read was posted for.
    rest: Option<Buffer>,
    /// Segments that Reads were posted for.
    posted: usize,
    /// Each part with its number of segments; its memory once it is read.
    parts: Vec<(usize, Option<Buffer>)>,
}

impl Chunk {
    pub(super) fn new(layout: ReadChunk) -> Self {
        let data = (layout.len == 0).then(Bytes::new);
        Self { layout, parts: Parts::default(), data }
    }

    /// Cuts off what at most `most` Reads fetch: the number of the part, and the work.
    fn next_part(&mut self, most: usize) -> Option<(usize, WorkRequest)> {
        let Parts { rest, posted, parts } = &mut self.parts;
        let mut sink = rest.take()?;
        let left = self.layout.segments.get(*posted..).unwrap_or_default();
        let taken = left.get(..most).unwrap_or(left);
        if taken.len() < left.len() {
            let len = taken.iter().map(|segment| u64::from(segment.length)).sum::<u64>();
            *rest = Some(sink.split_off(usize::try_from(len).unwrap_or(usize::MAX)));
        }
        *posted += taken.len();
        parts.push((taken.len(), None));
        let sources = taken.iter().map(remote).collect();
        Some((parts.len() - 1, WorkRequest::Read { sink, sources }))
    }

    /// A part is read; says how many Reads that were. The data is there with the last one.
    fn part_read(&mut self, index: usize, memory: Buffer) -> Option<usize> {
        let Parts { rest, parts, .. } = &mut self.parts;
        let (segments, part) = parts.get_mut(index).filter(|(_, part)| part.is_none())?;
        let segments = *segments;
        *part = Some(memory);
        if rest.is_none() && parts.iter().all(|(_, part)| part.is_some()) {
            let mut parts = std::mem::take(parts).into_iter().filter_map(|(_, part)| part);
            let mut whole = parts.next()?;
            for part in parts {
                // They were cut from one Buffer, in this order.
                whole.unsplit(part).ok()?;
            }
            self.data = Some(whole.freeze());
        }
        Some(segments)
    }
}

impl Responder {
    /// Takes memory for the chunks of the next Call that waits for it.
    pub(super) fn pull(&mut self, core: &mut Core, qp: &dyn Windows) -> bool {
        if self.reading >= core.max_reads {
            return false;
        }
        let Some(&token) = self.pulls.front() else { return false };
        let Some(call) = self.calls.get_mut(&token) else {
            self.pulls.pop_front();
            return true;
        };
        // All or nothing: two Calls that each hold half of what they need would wait for ever.
        let lengths: Vec<usize> =
            call.chunks.iter().map(|chunk| usize::try_from(chunk.layout.len).unwrap_or(usize::MAX)).collect();
        match allocate_together(qp.domain(), &lengths) {
            Ok(sinks) => {
                self.pulls.pop_front();
                self.reading += 1;
                for (chunk, sink) in call.chunks.iter_mut().zip(sinks) {
                    chunk.parts.rest = sink;
                }
                self.issuing.push_back(token);
                true
            }
            Err(PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. }) => {
                if !std::mem::replace(&mut call.waited, true) {
                    core.stats.memory_waits += 1;
                }
                self.wants_memory = Some(requested);
                false
            }
            Err(_) => {
                self.pulls.pop_front();
                let error =
                    ProtocolError::ExceedsMemory { len: call.travelled.read.try_into().unwrap_or(u64::MAX) };
                let xid = call.xid;
                self.forget(token);
                core.stats.fault(&error);
                self.answer_error(xid, core.codec.rules().version, ErrorBody::Chunk);
                true
            }
        }
    }

    /// Posts the next RDMA Reads, if as many may be under way.
    pub(super) fn issue(&mut self, core: &mut Core, now: Instant) -> bool {
        let room = core.reads_at_peer.saturating_sub(self.reads);
        let Some(&token) = self.issuing.front().filter(|_| room > 0) else { return false };
        let chunks = self.calls.get_mut(&token).into_iter().flat_map(|call| call.chunks.iter_mut());
        let next = chunks.enumerate().find_map(|(index, chunk)| Some((index, chunk.next_part(room)?)));
        let Some((index, (part, request))) = next else {
            self.issuing.pop_front();
            return true;
        };
        if let WorkRequest::Read { sources, .. } = &request {
            self.reads += sources.len();
            core.stats.reads_at_once =
                core.stats.reads_at_once.max(self.reads.try_into().unwrap_or(u64::MAX));
        }
        core.post(Origin::Read { token, chunk: index, part }, request);
        self.set_deadline(token, after(now, core.config.timeouts.rdma_read));
        true
    }

    /// RDMA Reads have ended.
    pub(crate) fn handle_read(
        &mut self,
        core: &mut Core,
        token: u64,
        (chunk, part): (usize, usize),
        status: Status,
        sink: Buffer,
    ) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        match status {
            Status::Success => {}
            Status::Flushed => return,
            // RFC 8166 §4.5.3: the connection is lost; whoever sends this XID again is told why, if the fault was the peer's.
            _ => {
                if matches!(status, Status::RemoteAccess | Status::RemoteOperation) {
                    self.failed_reads.push(call.xid);
                }
                return core.fail(CloseReason::WorkFailed(status));
            }
        }
        let Some(chunk) = call.chunks.get_mut(chunk) else { return };
        let Some(reads) = chunk.part_read(part, sink) else { return };
        self.reads = self.reads.saturating_sub(reads);
        if chunk.data.is_none() {
            return;
        }
        call.left -= 1;
        if call.left > 0 {
            return;
        }
        self.reading = self.reading.saturating_sub(1);
        let xid = call.xid;
        if let Err(error) = self.deliver(core, token) {
            core.stats.fault(&error);
            self.answer_error(xid, core.codec.rules().version, ErrorBody::Chunk);
        }
    }
}
