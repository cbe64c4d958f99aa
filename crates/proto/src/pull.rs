//! Reading the chunks of a reply from the peer, under the Read-Read model (RFC 5666 §3.8).
//!
//! The memory for all chunks is had together before anything is posted, and each sink comes back with the completion of its
//! RDMA Read. A chunk is one work request; where it was agreed how many Reads may be under way, a message is read alone and in
//! parts of no more segments than that. A Read that fails ends the connection, which is the caller's business.

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, RemoteSegment, WorkRequest};
use rpcrdma_xdr::ReadChunk as PulledChunk;

use crate::core::{Core, Origin, remote};
use crate::event::CloseReason;
use crate::reassembly::{Layout, ReadChunk};

/// The chunks of one message.
#[derive(Debug, Default)]
pub(crate) struct Pull {
    /// The Position-Zero chunk first.
    chunks: Vec<Chunk>,
    /// Chunks that are not read yet.
    left: usize,
}

#[derive(Debug)]
struct Chunk {
    position: u32,
    len: usize,
    /// What was not asked for yet.
    sources: Vec<RemoteSegment>,
    /// Memory for that.
    rest: Option<Buffer>,
    /// Memory that is filled.
    filled: Option<Buffer>,
    posted: bool,
    data: Option<Bytes>,
}

impl Pull {
    pub(crate) fn new(layout: Layout) -> Self {
        let chunk = |chunk: ReadChunk| Chunk {
            position: chunk.position,
            len: usize::try_from(chunk.len).unwrap_or(usize::MAX),
            sources: chunk.segments.iter().map(remote).collect(),
            rest: None,
            filled: None,
            posted: false,
            data: (chunk.len == 0).then(Bytes::new),
        };
        let chunks: Vec<Chunk> = layout.zero.into_iter().chain(layout.chunks).map(chunk).collect();
        let left = chunks.iter().filter(|chunk| chunk.data.is_none()).count();
        Self { chunks, left }
    }

    /// Whether everything is there.
    pub(crate) const fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The length of each chunk: what [`start`](Self::start) needs.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.chunks.iter().map(|chunk| chunk.len).collect()
    }

    /// Begins to read into these sinks, of those lengths; `origin` names the completion of a chunk.
    pub(crate) fn start(
        &mut self,
        core: &mut Core,
        sinks: Vec<Option<Buffer>>,
        origin: impl Fn(usize) -> Origin,
    ) {
        for (chunk, sink) in self.chunks.iter_mut().zip(sinks) {
            chunk.rest = sink;
        }
        self.post(core, origin);
    }

    fn post(&mut self, core: &mut Core, origin: impl Fn(usize) -> Origin) {
        let most = core.reads_at_peer.max(1);
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            if chunk.posted {
                continue;
            }
            let Some(mut sink) = chunk.rest.take() else { continue };
            let count = most.min(chunk.sources.len());
            let sources: Vec<_> = chunk.sources.drain(..count).collect();
            if !chunk.sources.is_empty() {
                let len = sources.iter().map(|source| usize::try_from(source.length).unwrap_or(usize::MAX));
                chunk.rest = Some(sink.split_off(len.fold(0, usize::saturating_add)));
            }
            chunk.posted = true;
            core.post(origin(index), WorkRequest::Read { sink, sources });
            if core.reads_at_peer != usize::MAX {
                return;
            }
        }
    }

    /// A Read of a chunk was carried out; says whether it was the last one of the message.
    pub(crate) fn arrived(
        &mut self,
        core: &mut Core,
        index: usize,
        sink: Buffer,
        origin: impl Fn(usize) -> Origin,
    ) -> bool {
        let Some(chunk) = self.chunks.get_mut(index).filter(|chunk| chunk.posted) else { return false };
        chunk.posted = false;
        let filled = match chunk.filled.take() {
            None => sink,
            Some(mut filled) => {
                // Neighbours of one Buffer always join; without, the data would be lost.
                if filled.unsplit(sink).is_err() {
                    core.fail(CloseReason::WorkFailed(rpcrdma_verbs::Status::Fatal));
                    return false;
                }
                filled
            }
        };
        if chunk.rest.is_some() {
            chunk.filled = Some(filled);
        } else {
            chunk.data = Some(filled.freeze());
            self.left -= 1;
        }
        if self.left > 0 {
            self.post(core, origin);
        }
        self.left == 0
    }

    /// The data, once it is complete: the Position-Zero chunk, and the others by ascending Position.
    pub(crate) fn into_parts(self) -> (Option<Bytes>, Vec<PulledChunk>) {
        let mut chunks = self.chunks.into_iter().peekable();
        let zero = chunks.next_if(|chunk| chunk.position == 0).map(|chunk| chunk.data.unwrap_or_default());
        let others = chunks
            .map(|chunk| PulledChunk { position: chunk.position, data: chunk.data.unwrap_or_default() });
        (zero, others.collect())
    }
}
