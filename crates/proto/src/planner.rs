//! How a message travels: one pure function for each direction, and nothing else decides.
//!
//! [`plan_call`] chooses between inline, reduced by Read chunks, and long (Position-Zero Read chunk, perhaps reduced too), and
//! what the reply is offered. [`plan_reply`] chooses between inline, Write chunks, the Reply chunk, and both, or refuses
//! (ERR_CHUNK). Plans hold shared memory only; windows are reserved and work is posted by those who carry a plan out.

use bytes::Bytes;
use rpcrdma_xdr::{CopyCount, Piece, Stream, padded_len};
use thiserror::Error;

use crate::call::Form;
use crate::error::ProtocolError;
use crate::gather::Gather;
use crate::wire::{ChunkLists, Codec, Shape, WriteChunk};

/// All that decides how a Call travels.
#[derive(Clone, Copy, Debug)]
pub struct CallInput<'a> {
    /// The version on the wire.
    pub codec: &'a dyn Codec,
    /// The RPC message.
    pub message: &'a Stream,
    /// The security flavour protects or hides the data: nothing is eligible.
    pub flavor_touches_data: bool,
    /// Inline threshold for the Call, bytes.
    pub send: usize,
    /// Inline threshold for the reply, bytes.
    pub receive: usize,
    /// Bytes of the largest reply without the data of DDP-eligible results.
    pub reply_max: usize,
    /// The largest length of each DDP-eligible result, in order.
    pub sinks: &'a [usize],
    /// How chunks are made.
    pub chunks: ChunkRules,
}

/// How chunks are made.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRules {
    /// Whether there may be any (RFC 8167 §5.3).
    pub allowed: bool,
    /// Whether there may be Read chunks (RFC 5666 §6.2, `maxrdmaread`).
    pub read: bool,
    /// DDP-eligible arguments from this length on leave by Read chunk even if they would fit inline.
    pub reduce_from: Option<usize>,
    /// The longest segment, bytes; at least 1.
    pub max_segment_len: usize,
    /// The most segments in one chunk.
    pub max_segments: usize,
    /// The most Read chunks at non-zero Positions.
    pub max_read_chunks: usize,
}

/// Why no form of the protocol carries a Call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Inline only, and too long for it.
    #[error("Call of {len} bytes, {allowed} fit inline and chunks are not allowed")]
    CallTooLong {
        /// Header and message.
        len: usize,
        /// The inline threshold.
        allowed: usize,
    },
    /// Too long for inline, and the peer may not read.
    #[error("Call of {len} bytes, {allowed} fit inline, and it was agreed that nothing needs an RDMA Read")]
    ReadsNotAgreed {
        /// Header and message.
        len: usize,
        /// The inline threshold.
        allowed: usize,
    },
    /// Inline only, and the reply could be too long for it.
    #[error("reply of up to {len} bytes, {allowed} fit inline and chunks are not allowed")]
    ReplyTooLong {
        /// Header and message.
        len: usize,
        /// The inline threshold.
        allowed: usize,
    },
    /// Lengths on the wire have 32 bits.
    #[error("{len} bytes in one chunk, 32 bits count at most {}", u32::MAX)]
    ChunkTooLong {
        /// Bytes of the chunk.
        len: usize,
    },
    /// A chunk needs more segments than it may have.
    #[error("{segments} segments in one chunk, {allowed} are allowed")]
    TooManySegments {
        /// Segments needed.
        segments: usize,
        /// The limit.
        allowed: usize,
    },
    /// More DDP-eligible results than a Write list may have chunks.
    #[error("{chunks} Write chunks, {allowed} are allowed")]
    TooManyWriteChunks {
        /// Chunks needed.
        chunks: usize,
        /// The limit.
        allowed: usize,
    },
    /// The chunk lists alone exceed the inline threshold, of the Call or of a long reply that returns them.
    #[error("transport header of {len} bytes, the inline threshold is {allowed}")]
    HeaderTooLong {
        /// Its length.
        len: usize,
        /// The inline threshold.
        allowed: usize,
    },
}

/// How a Call travels.
#[derive(Debug)]
pub struct CallPlan {
    /// The form; decides between RDMA_MSG and RDMA_NOMSG.
    pub form: Form,
    /// What follows the header in the Send.
    pub inline: Stream,
    /// The Read chunks, Position-Zero first.
    pub read: Vec<PlannedRead>,
    /// Segment lengths of each Write chunk.
    pub write: Vec<Vec<usize>>,
    /// Segment lengths of the Reply chunk.
    pub reply: Option<Vec<usize>>,
    /// Bytes copied to join short pieces of a Position-Zero chunk.
    pub copied: CopyCount,
}

/// A Read chunk of a [`CallPlan`].
#[derive(Debug)]
pub struct PlannedRead {
    /// Its Position in the unreduced stream.
    pub position: u32,
    /// The data, a window each.
    pub segments: Vec<Bytes>,
}

/// Decides how a Call travels (RFC 8166 §3.5, §4.3).
///
/// What fits inline goes inline; else DDP-eligible arguments leave by Read chunks, largest first; what then still does not fit
/// travels whole in a Position-Zero chunk.
///
/// # Errors
/// [`Refusal`]: no form carries it.
pub fn plan_call(input: &CallInput<'_>) -> Result<CallPlan, Refusal> {
    let (write, reply) = offer(input)?;
    let shape = |read_segments| Shape {
        read_segments,
        write_segments: write.iter().map(Vec::len).collect(),
        reply_segments: reply.as_ref().map(Vec::len),
    };
    let header = input.codec.header_len(&shape(0));
    let fits = header + input.message.len() <= input.send;
    let reduced = choose_reduced(input, fits);

    if fits && reduced.is_empty() {
        let inline = input.message.clone();
        return Ok(CallPlan {
            form: Form::Inline,
            inline,
            read: vec![],
            write,
            reply,
            copied: CopyCount::default(),
        });
    }
    if !input.chunks.allowed {
        return Err(Refusal::CallTooLong { len: header + input.message.len(), allowed: input.send });
    }
    if !input.chunks.read {
        return Err(Refusal::ReadsNotAgreed { len: header + input.message.len(), allowed: input.send });
    }

    let (rest, mut read) = take_out(input, &reduced)?;
    let segments: usize = read.iter().map(|chunk| chunk.segments.len()).sum();
    if !read.is_empty() && input.codec.header_len(&shape(segments)) + rest.len() <= input.send {
        let copied = CopyCount::default();
        return Ok(CallPlan { form: Form::Reduced, inline: rest, read, write, reply, copied });
    }

    // RFC 8166 §3.5.3: the Position-Zero chunk holds the message with all its pads. RFC 5666 §5.1 looks for it first.
    let (zero, copied) = position_zero(input, &rest)?;
    let len = input.codec.header_len(&shape(segments + zero.segments.len()));
    if len > input.send {
        return Err(Refusal::HeaderTooLong { len, allowed: input.send });
    }
    read.insert(0, zero);
    Ok(CallPlan { form: Form::Long, inline: Stream::new(), read, write, reply, copied })
}

/// What the reply is offered: segment lengths of the Write chunks and of the Reply chunk.
#[allow(clippy::type_complexity)] // two lists that the caller takes apart at once
fn offer(input: &CallInput<'_>) -> Result<(Vec<Vec<usize>>, Option<Vec<usize>>), Refusal> {
    let placed: usize = input.sinks.iter().map(|len| padded_len(*len)).fold(0, usize::saturating_add);
    let reply_max = padded_len(input.reply_max);
    let whole = reply_max.saturating_add(placed);
    let plain = input.codec.header_len(&Shape::default());
    if plain.saturating_add(whole) <= input.receive {
        return Ok((vec![], None));
    }
    if !input.chunks.allowed {
        return Err(Refusal::ReplyTooLong { len: plain.saturating_add(whole), allowed: input.receive });
    }
    // RFC 8166 §8.2.2.3: no reduction under integrity or privacy, so the Reply chunk takes everything.
    if input.flavor_touches_data || placed == 0 {
        return Ok((vec![], Some(cut_lengths(input, whole)?)));
    }
    // RFC 8166 §4.3.2: one Write chunk for each DDP-eligible result; one without room says "inline" (§4.3.2.3).
    let write = input.sinks.iter().map(|len| cut_lengths(input, *len)).collect::<Result<Vec<_>, _>>()?;
    let header = |reply_segments| {
        let write_segments = write.iter().map(Vec::len).collect();
        input.codec.header_len(&Shape { read_segments: 0, write_segments, reply_segments })
    };
    // RFC 8166 §4.3.3: a Reply chunk if the largest possible reply is larger than the threshold.
    if header(None).saturating_add(reply_max) <= input.receive {
        return Ok((write, None));
    }
    let reply = cut_lengths(input, reply_max)?;
    let len = header(Some(reply.len()));
    if len > input.receive {
        return Err(Refusal::HeaderTooLong { len, allowed: input.receive });
    }
    Ok((write, Some(reply)))
}

/// Indexes of the pieces that leave by Read chunks of their own.
fn choose_reduced(input: &CallInput<'_>, fits: bool) -> Vec<usize> {
    // RFC 8166 §8.2.2.3
    if input.flavor_touches_data || !input.chunks.allowed || !input.chunks.read {
        return vec![];
    }
    let least = if fits { input.chunks.reduce_from.unwrap_or(usize::MAX) } else { 1 };
    let mut position = 0_usize;
    let mut eligible = Vec::new();
    for (index, piece) in input.message.pieces().iter().enumerate() {
        if let Piece::Payload { data, ddp_eligible: true } = piece {
            // RFC 8166 §3.4.5: a Position is a multiple of four and has 32 bits.
            let placeable = position.is_multiple_of(4) && position > 0 && u32::try_from(position).is_ok();
            if placeable && data.len() >= least {
                eligible.push((data.len(), index));
            }
        }
        position = position.saturating_add(piece.len());
    }
    eligible.sort_by_key(|(len, index)| (std::cmp::Reverse(*len), *index));
    eligible.truncate(input.chunks.max_read_chunks);
    let mut indexes: Vec<usize> = eligible.into_iter().map(|(_, index)| index).collect();
    indexes.sort_unstable();
    indexes
}

/// Splits the message into what stays and the Read chunks. The pad of a reduced item leaves with it and is sent nowhere
/// (RFC 8166 §3.4.5.2).
fn take_out(input: &CallInput<'_>, reduced: &[usize]) -> Result<(Stream, Vec<PlannedRead>), Refusal> {
    let mut rest = Stream::new();
    let mut read = Vec::with_capacity(reduced.len() + 1);
    let mut position = 0_usize;
    for (index, piece) in input.message.pieces().iter().enumerate() {
        if reduced.contains(&index) {
            let segments = cut(input, vec![piece.data().clone()])?;
            read.push(PlannedRead { position: u32::try_from(position).unwrap_or(u32::MAX), segments });
        } else {
            rest.push(piece.clone());
        }
        position = position.saturating_add(piece.len());
    }
    Ok((rest, read))
}

fn position_zero(input: &CallInput<'_>, rest: &Stream) -> Result<(PlannedRead, CopyCount), Refusal> {
    let mut gather = Gather::default();
    gather.push_stream(rest);
    // Room for cuts at the longest segment; at worst everything is copied into one run.
    let cuts = rest.len() / input.chunks.max_segment_len;
    let (parts, copied) = gather.finish(input.chunks.max_segments.saturating_sub(cuts).max(1));
    Ok((PlannedRead { position: 0, segments: cut(input, parts)? }, copied))
}

/// Cuts data at the longest segment.
fn cut(input: &CallInput<'_>, parts: Vec<Bytes>) -> Result<Vec<Bytes>, Refusal> {
    let mut segments = Vec::new();
    for mut part in parts {
        for len in cut_lengths(input, part.len())? {
            segments.push(part.split_to(len));
        }
    }
    check_segments(input, segments.len())?;
    Ok(segments)
}

/// The segment lengths of a chunk of `len` bytes; none for an empty one.
fn cut_lengths(input: &CallInput<'_>, len: usize) -> Result<Vec<usize>, Refusal> {
    if u32::try_from(len).is_err() {
        return Err(Refusal::ChunkTooLong { len });
    }
    let longest = input.chunks.max_segment_len.max(1);
    check_segments(input, len.div_ceil(longest))?;
    Ok((0..len).step_by(longest).map(|start| longest.min(len - start)).collect())
}

const fn check_segments(input: &CallInput<'_>, segments: usize) -> Result<(), Refusal> {
    let allowed = input.chunks.max_segments;
    if segments > allowed { Err(Refusal::TooManySegments { segments, allowed }) } else { Ok(()) }
}

/// All that decides how a reply travels.
#[derive(Clone, Copy, Debug)]
pub struct ReplyInput<'a> {
    /// The version on the wire.
    pub codec: &'a dyn Codec,
    /// The RPC message.
    pub message: &'a Stream,
    /// The security flavour protects or hides the data: nothing is eligible.
    pub flavor_touches_data: bool,
    /// Inline threshold for the reply, bytes.
    pub send: usize,
    /// The Write list and Reply chunk of the Call.
    pub offered: &'a ChunkLists,
}

/// How a reply travels.
#[derive(Debug)]
pub struct ReplyPlan {
    /// The form; decides between RDMA_MSG and RDMA_NOMSG.
    pub form: Form,
    /// The lists as they are returned, lengths rewritten to what is written.
    pub lists: ChunkLists,
    /// What is written into which Write chunk: its index, and the data. Empty items are not written.
    pub placed: Vec<(usize, Bytes)>,
    /// The Payload without what is placed: goes into the Reply chunk if the form is long, else follows the header.
    pub rest: Stream,
}

/// Decides how a reply travels (RFC 8166 §4.3.2, §4.3.3), before anything is written.
///
/// # Errors
/// [`ProtocolError::WriteChunkTooSmall`] and [`ProtocolError::ReplyTooLong`], answered with ERR_CHUNK.
pub fn plan_reply(input: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
    let mut rest = Stream::new();
    let mut placed = Vec::new();
    let mut write: Vec<WriteChunk> = Vec::with_capacity(input.offered.write.len());
    for piece in input.message.pieces() {
        let eligible = match piece {
            Piece::Payload { data, ddp_eligible: true } if !input.flavor_touches_data => Some(data),
            _ => None,
        };
        // RFC 8166 §4.3.2.1: the first result goes to the first chunk and so on, until either runs out.
        let (Some(data), Some(chunk)) = (eligible, input.offered.write.get(write.len())) else {
            rest.push(piece.clone());
            continue;
        };
        let capacity = chunk.total();
        // RFC 8166 §4.3.2.3: a chunk without segments asks for its result inline; RFC 5667 §5 said so of one without room.
        if capacity == 0 {
            rest.push(piece.clone());
            write.push(chunk.clone());
            continue;
        }
        let len = wide(data.len());
        // RFC 8166 §4.5.3
        if len > capacity {
            return Err(ProtocolError::WriteChunkTooSmall { len, capacity });
        }
        // RFC 8166 §3.4.6.2: the item without its pad, even if there is room.
        if !data.is_empty() {
            placed.push((write.len(), data.clone()));
        }
        write.push(chunk.filled(len));
    }
    // RFC 8166 §4.3.2.2: what is left is returned unused.
    write.extend(input.offered.write.iter().skip(write.len()).map(|chunk| chunk.filled(0)));

    let reply = input.offered.reply.as_ref();
    let unused = ChunkLists { read: vec![], write, reply: reply.map(|chunk| chunk.filled(0)) };
    let header = input.codec.header_len(&unused.shape());
    let len = wide(rest.len());
    // RFC 8166 §4.3.3: inline whenever it fits, whatever was offered.
    if header + rest.len() <= input.send {
        let form = if placed.is_empty() { Form::Inline } else { Form::Reduced };
        return Ok(ReplyPlan { form, lists: unused, placed, rest });
    }
    match reply {
        Some(chunk) if len <= chunk.total() && header <= input.send => {
            let lists = ChunkLists { reply: Some(chunk.filled(len)), ..unused };
            Ok(ReplyPlan { form: Form::Long, lists, placed, rest })
        }
        // RFC 8166 §4.5.3
        _ => Err(ProtocolError::ReplyTooLong {
            len,
            inline: wide(input.send.saturating_sub(header)),
            reply_chunk: reply.map_or(0, WriteChunk::total),
        }),
    }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
