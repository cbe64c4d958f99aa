//! The choice of how a message travels, made by one pure function for each direction. The [`Route`] of a plan is the
//! way of the Payload stream; the rest of a plan are the chunks.
//!
//! [`plan_call`] chooses the form of a Call and the memory offered for the reply. The forms are inline, reduced by Read
//! chunks, and long. A long Call has a Position-Zero Read chunk, and may be reduced too. [`plan_reply`] chooses between
//! inline, Write chunks, the Reply chunk, and both. Otherwise the reply is refused (ERR_CHUNK). Version Two and the
//! retired forms plan by functions of their own, which begin and end with the steps of these two. Plans hold shared
//! memory only; their users register windows and post work requests.

use bytes::Bytes;
use rpcrdma_xdr::{CopyCount, Piece, Stream, padded_len};
use smallvec::SmallVec;
use thiserror::Error;

use crate::message::Form;
use crate::outbound::gather;
pub(crate) use crate::two::arrange::Arrangement;
use crate::wire::{Body, ChunkLists, Codec, Direction, ProtocolError, Shape, WriteChunk, narrow, wide};

/// The facts that decide how a Call travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallInput<'a> {
    /// The version on the wire.
    pub codec: &'a dyn Codec,
    /// The RPC message.
    pub message: &'a Stream,
    /// The security flavour protects or hides the data, so no item is DDP-eligible.
    pub flavor_touches_data: bool,
    /// Inline threshold for the Call, bytes.
    pub send: usize,
    /// Inline threshold for the reply, bytes.
    pub receive: usize,
    /// Bytes of the largest reply without its DDP-eligible results.
    pub reply_max: usize,
    /// The largest length of each DDP-eligible result, in order.
    pub sinks: &'a [usize],
    /// Limits of chunks.
    pub chunks: ChunkRules,
}

/// Limits of chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkRules {
    /// Whether chunks are allowed (RFC 8167 §5.3).
    pub allowed: bool,
    /// Whether Read chunks are allowed (RFC 5666 §6.2, `maxrdmaread`).
    pub read: bool,
    /// DDP-eligible arguments of at least this many bytes leave by Read chunk, even if they would fit inline.
    pub reduce_from: Option<usize>,
    /// The longest segment, bytes; at least 1.
    pub max_segment_len: usize,
    /// The most segments in one chunk.
    pub max_segments: usize,
    /// The most Read chunks at non-zero Positions.
    pub max_read_chunks: usize,
}

/// Reasons why no form of the protocol carries a Call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The client announced that it accepts no reverse Calls (xcharext-02 §3.3, BKREQSUP_NONE).
    #[error("the client takes no Calls in the reverse direction")]
    ReverseNotTaken,
    /// Only inline is allowed, and the Call is too long for that.
    #[error("Call of {len} bytes, {allowed} fit inline and chunks are not allowed")]
    CallTooLong {
        /// Bytes of header and message.
        len: usize,
        /// The inline threshold, bytes.
        allowed: usize,
    },
    /// The Call is too long for inline, and the agreement with the peer excludes RDMA Reads.
    #[error("Call of {len} bytes, {allowed} fit inline, and no RDMA Read was agreed on with the peer")]
    ReadsNotAgreed {
        /// Bytes of header and message.
        len: usize,
        /// The inline threshold, bytes.
        allowed: usize,
    },
    /// Only inline is allowed, and the reply could be too long for that.
    #[error("reply of up to {len} bytes, {allowed} fit inline and chunks are not allowed")]
    ReplyTooLong {
        /// Bytes of header and message.
        len: usize,
        /// The inline threshold, bytes.
        allowed: usize,
    },
    /// No chunks are allowed, and the reply could be longer than we accept in several Sends (version-two-07 §6.6.4).
    #[error(
        "reply of up to {len} bytes: chunks are not allowed, and in several Sends {allowed} bytes are taken"
    )]
    ContinuedReplyTooLong {
        /// Bytes of the message.
        len: usize,
        /// Bytes that the Receives for the reply hold, or the limit on such messages.
        allowed: usize,
    },
    /// A chunk is too long: lengths on the wire have 32 bits.
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
    /// All chunks of a Call together need more segments than the peer accepts (version-two-07 §5.2.4).
    #[error("{segments} segments in all chunks of a Call, the peer takes {allowed}")]
    TooManySegmentsInAll {
        /// Segments needed.
        segments: usize,
        /// The limit.
        allowed: usize,
    },
    /// The Call needs more Write chunks for DDP-eligible results than a Write list may have.
    #[error("{chunks} Write chunks, {allowed} are allowed")]
    TooManyWriteChunks {
        /// Chunks needed.
        chunks: usize,
        /// The limit.
        allowed: usize,
    },
    /// The chunk lists alone exceed the inline threshold of the Call, or of a long reply that returns them.
    #[error("transport header of {len} bytes, the inline threshold is {allowed}")]
    HeaderTooLong {
        /// Bytes of the header.
        len: usize,
        /// The inline threshold, bytes.
        allowed: usize,
    },
}

/// The way of a message's Payload stream, without the items in chunks of their own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// RDMA_MSG: after the header.
    Inline,
    /// RDMA_MSGP: after the header, with long opaque data aligned.
    Padded {
        /// `rdma_align`, bytes.
        align: u32,
        /// `rdma_thresh`, bytes.
        threshold: u32,
    },
    /// In several Sends, or in a Send that places items.
    Sends(Arrangement),
    /// RDMA_NOMSG: in a chunk.
    Long,
}

impl Route {
    /// Returns the number of Sends.
    pub(crate) fn sends(&self) -> usize {
        if let Self::Sends(arrangement) = self { arrangement.count() } else { 1 }
    }

    /// Returns the content of the message, with these chunk lists.
    pub(crate) fn body(&mut self, lists: ChunkLists) -> Body {
        match self {
            Self::Inline => Body::Message(lists),
            Self::Padded { align, threshold } => Body::Padded { align: *align, threshold: *threshold, lists },
            Self::Sends(arrangement) => arrangement.body(lists),
            Self::Long => Body::NoMessage(lists),
        }
    }

    /// Returns the form of the message; `reduced` if items of it are in chunks.
    fn form(&self, reduced: bool) -> Form {
        match self {
            Self::Padded { .. } => Form::Padded,
            Self::Long => Form::Long,
            Self::Sends(arrangement) => arrangement.form(reduced),
            Self::Inline if reduced => Form::Reduced,
            Self::Inline => Form::Inline,
        }
    }
}

/// The Payload stream of a plan.
#[derive(Debug)]
pub(crate) enum PlannedStream {
    /// The message itself.
    Whole,
    /// The message without the items in chunks of their own, or with pads.
    Changed(Stream),
}

impl PlannedStream {
    /// Returns the stream, for this message.
    pub(crate) const fn of<'a>(&'a self, message: &'a Stream) -> &'a Stream {
        match self {
            Self::Whole => message,
            Self::Changed(stream) => stream,
        }
    }
}

impl From<Stream> for PlannedStream {
    fn from(stream: Stream) -> Self {
        Self::Changed(stream)
    }
}

/// The form of a Call, its chunks, and the memory offered for the reply.
#[derive(Debug)]
pub(crate) struct CallPlan {
    /// The way of the Payload stream.
    pub route: Route,
    /// The bytes after the header of the Send; of all Sends together, if the message is divided.
    pub inline: PlannedStream,
    /// The most Receives that the reply uses.
    pub reply_sends: usize,
    /// The Read chunks, Position-Zero first.
    pub read: Vec<PlannedRead>,
    /// Segment lengths of each Write chunk.
    pub write: Vec<Vec<usize>>,
    /// Segment lengths of the Reply chunk.
    pub reply: Option<Vec<usize>>,
    /// Bytes copied to join short pieces of a Position-Zero chunk.
    pub copied: CopyCount,
}

impl CallPlan {
    /// Returns the form of the message.
    pub(crate) fn form(&self) -> Form {
        self.route.form(!self.read.is_empty())
    }

    /// Returns the number of segments in all chunks.
    pub(crate) fn segments(&self) -> usize {
        segments(&self.read) + self.write.iter().chain(&self.reply).map(Vec::len).sum::<usize>()
    }
}

/// A Read chunk of a [`CallPlan`].
#[derive(Debug)]
pub(crate) struct PlannedRead {
    /// The chunk's Position in the unreduced stream.
    pub position: u32,
    /// The data, with one segment for each element.
    pub segments: Vec<Bytes>,
}

/// Decides how a Call travels (RFC 8166 §3.5, §4.3).
///
/// A message goes inline if it fits. Otherwise DDP-eligible arguments leave by Read chunks, largest first. As the last
/// choice the message travels in a Position-Zero chunk.
///
/// # Errors
/// [`Refusal`]: no form carries the Call.
pub(crate) fn plan_call(input: &CallInput<'_>) -> Result<CallPlan, Refusal> {
    plan_with(input, offer(input)?)
}

/// Decides how a Call with this offer travels.
pub(crate) fn plan_with(input: &CallInput<'_>, offer: Offer) -> Result<CallPlan, Refusal> {
    match plan_short(input, offer)? {
        Ok(plan) => Ok(plan),
        Err(excess) => plan_long(input, excess),
    }
}

/// A Call that exceeds the inline threshold even without its DDP-eligible arguments.
pub(crate) struct Excess {
    offer: Offer,
    /// Bytes of the header, if the rest followed it.
    pub(crate) header: usize,
    /// The message without the arguments that leave by Read chunk.
    pub(crate) rest: Stream,
    read: Vec<PlannedRead>,
}

impl Excess {
    /// Returns the plan of a Call that is divided among Sends.
    pub(crate) fn divided(self, arrangement: Arrangement) -> CallPlan {
        let Self { offer, rest, read, .. } = self;
        offer.with(Route::Sends(arrangement), rest.into(), read, CopyCount::default())
    }
}

/// Plans a Call that fits after its header, whole or without DDP-eligible arguments; returns any other.
pub(crate) fn plan_short(input: &CallInput<'_>, offer: Offer) -> Result<Result<CallPlan, Excess>, Refusal> {
    let copied = CopyCount::default();
    let whole = |offer: Offer| offer.with(Route::Inline, PlannedStream::Whole, vec![], copied);
    let fits = input.codec.header_len(&offer.shape(0, false)) + input.message.len() <= input.send;
    let least = match input.chunks.reduce_from {
        None if fits => return Ok(Ok(whole(offer))),
        Some(least) if fits => least,
        _ => 1,
    };
    let pieces = locate(input);
    let reduced = choose_reduced(&pieces, least, input.chunks.max_read_chunks);
    if fits && reduced.is_empty() {
        return Ok(Ok(whole(offer)));
    }
    let (rest, read) = take_out(&input.chunks, &pieces, &reduced)?;
    let header = input.codec.header_len(&offer.shape(segments(&read), false));
    if !read.is_empty() && header + rest.len() <= input.send {
        return Ok(Ok(offer.with(Route::Inline, rest.into(), read, copied)));
    }
    Ok(Err(Excess { offer, header, rest, read }))
}

/// Plans a Call in a Position-Zero chunk.
pub(crate) fn plan_long(input: &CallInput<'_>, excess: Excess) -> Result<CallPlan, Refusal> {
    let Excess { offer, rest, mut read, .. } = excess;
    let (len, allowed) = (input.codec.header_len(&offer.shape(0, false)) + input.message.len(), input.send);
    if !input.chunks.allowed {
        return Err(Refusal::CallTooLong { len, allowed });
    }
    if !input.chunks.read {
        return Err(Refusal::ReadsNotAgreed { len, allowed });
    }
    // RFC 8166 §3.5.3: the Position-Zero chunk holds the message with all its pads. RFC 5666 §5.1 expects this chunk
    // first.
    let (zero, copied) = position_zero(&input.chunks, &rest)?;
    read.insert(0, zero);
    let len = input.codec.header_len(&offer.shape(segments(&read), true));
    if len > allowed {
        return Err(Refusal::HeaderTooLong { len, allowed });
    }
    Ok(offer.with(Route::Long, Stream::new().into(), read, copied))
}

/// The memory that a Call offers for its reply.
pub(crate) struct Offer {
    /// Segment lengths of each Write chunk.
    write: Vec<Vec<usize>>,
    /// Segment lengths of the Reply chunk.
    reply: Option<Vec<usize>>,
    /// The most Receives that the reply uses.
    sends: usize,
}

impl Offer {
    const fn chunks(write: Vec<Vec<usize>>, reply: Option<Vec<usize>>) -> Self {
        Self { write, reply, sends: 1 }
    }

    /// Returns the offer of Receives alone, for a reply in so many Sends.
    pub(crate) const fn receives(sends: usize) -> Self {
        Self { write: vec![], reply: None, sends }
    }

    /// Returns the shape of a Call that makes this offer.
    pub(crate) fn shape(&self, read_segments: usize, long: bool) -> Shape {
        Shape {
            direction: Direction::Call,
            read_segments,
            long,
            write_segments: self.write.iter().map(Vec::len).collect(),
            reply_segments: self.reply.as_ref().map(Vec::len),
        }
    }

    /// Returns the plan of a Call that makes this offer.
    pub(crate) fn with(
        self,
        route: Route,
        inline: PlannedStream,
        read: Vec<PlannedRead>,
        copied: CopyCount,
    ) -> CallPlan {
        let Self { write, reply, sends: reply_sends } = self;
        CallPlan { route, inline, reply_sends, read, write, reply, copied }
    }
}

/// Decides which memory a Call offers for its reply.
pub(crate) fn offer(input: &CallInput<'_>) -> Result<Offer, Refusal> {
    let placed: usize = input.sinks.iter().map(|len| padded_len(*len)).fold(0, usize::saturating_add);
    let reply_max = padded_len(input.reply_max);
    let whole = reply_max.saturating_add(placed);
    let direction = Direction::Reply;
    let plain = input.codec.header_len(&Shape { direction, ..Shape::default() });
    if plain.saturating_add(whole) <= input.receive {
        return Ok(Offer::receives(1));
    }
    if !input.chunks.allowed {
        return Err(Refusal::ReplyTooLong { len: plain.saturating_add(whole), allowed: input.receive });
    }
    // RFC 8166 §8.2.2.3: under integrity or privacy no item is reduced, so the Reply chunk holds the whole reply.
    if input.flavor_touches_data || placed == 0 {
        return Ok(Offer::chunks(vec![], Some(cut_lengths(&input.chunks, whole)?)));
    }
    // RFC 8166 §4.3.2: one Write chunk for each DDP-eligible result; an empty chunk asks for its result inline
    // (§4.3.2.3).
    let write =
        input.sinks.iter().map(|len| cut_lengths(&input.chunks, *len)).collect::<Result<Vec<_>, _>>()?;
    let header = |reply_segments| {
        let write_segments = write.iter().map(Vec::len).collect();
        input.codec.header_len(&Shape { direction, write_segments, reply_segments, ..Shape::default() })
    };
    // RFC 8166 §4.3.3: a Reply chunk if the largest possible reply is larger than the threshold.
    if header(None).saturating_add(reply_max) <= input.receive {
        return Ok(Offer::chunks(write, None));
    }
    let reply = cut_lengths(&input.chunks, reply_max)?;
    let len = header(Some(reply.len()));
    if len > input.receive {
        return Err(Refusal::HeaderTooLong { len, allowed: input.receive });
    }
    Ok(Offer::chunks(write, Some(reply)))
}

/// A piece of a message with its position in the unreduced stream.
pub(crate) struct Located<'a> {
    pub(crate) position: usize,
    pub(crate) piece: &'a Piece,
    /// Whether the piece may leave by a Read chunk of its own.
    pub(crate) movable: bool,
}

/// Returns the pieces of a Call. RFC 8166 §8.2.2.3: under integrity or privacy none of them is movable.
pub(crate) fn locate<'a>(input: &CallInput<'a>) -> SmallVec<[Located<'a>; 2]> {
    let allowed = !input.flavor_touches_data && input.chunks.allowed && input.chunks.read;
    let mut position = 0_usize;
    let pieces = input.message.pieces().iter().map(|piece| {
        let at = position;
        position = position.saturating_add(piece.len());
        let movable = allowed && matches!(piece, Piece::Payload { ddp_eligible: true, .. });
        Located { position: at, piece, movable }
    });
    pieces.collect()
}

/// Returns the indexes of pieces that leave by Read chunks of their own. They have at least `least` bytes; the largest
/// come first, up to `most`.
pub(crate) fn choose_reduced(pieces: &[Located<'_>], least: usize, most: usize) -> Vec<usize> {
    let mut eligible = Vec::new();
    for (index, Located { position, piece, movable }) in pieces.iter().enumerate() {
        // RFC 8166 §3.4.5: a Position is a multiple of four and has 32 bits.
        let placeable = position.is_multiple_of(4) && *position > 0 && u32::try_from(*position).is_ok();
        let len = piece.data().len();
        if *movable && placeable && len >= least {
            eligible.push((len, index));
        }
    }
    eligible.sort_by_key(|(len, index)| (std::cmp::Reverse(*len), *index));
    eligible.truncate(most);
    let mut indexes: Vec<usize> = eligible.into_iter().map(|(_, index)| index).collect();
    indexes.sort_unstable();
    indexes
}

/// Divides the message into the Read chunks and the rest. The pad of a reduced item is removed too, and never sent (RFC
/// 8166 §3.4.5.2).
pub(crate) fn take_out(
    rules: &ChunkRules,
    pieces: &[Located<'_>],
    reduced: &[usize],
) -> Result<(Stream, Vec<PlannedRead>), Refusal> {
    let mut rest = Stream::new();
    let mut read = Vec::with_capacity(reduced.len() + 1);
    for (index, Located { position, piece, .. }) in pieces.iter().enumerate() {
        if reduced.contains(&index) {
            let segments = cut(rules, vec![piece.data().clone()])?;
            read.push(PlannedRead { position: narrow(*position), segments });
        } else {
            rest.push(Piece::clone(piece));
        }
    }
    Ok((rest, read))
}

pub(crate) fn position_zero(rules: &ChunkRules, rest: &Stream) -> Result<(PlannedRead, CopyCount), Refusal> {
    // Cuts at the longest segment need entries too; at worst everything is copied into one run.
    let cuts = rest.len() / rules.max_segment_len.max(1);
    let (parts, copied) = gather(&[], rest, rules.max_segments.saturating_sub(cuts).max(1));
    Ok((PlannedRead { position: 0, segments: cut(rules, parts)? }, copied))
}

/// Cuts data into segments of at most the longest length.
fn cut(rules: &ChunkRules, parts: Vec<Bytes>) -> Result<Vec<Bytes>, Refusal> {
    let mut segments = Vec::new();
    for mut part in parts {
        for len in cut_lengths(rules, part.len())? {
            segments.push(part.split_to(len));
        }
    }
    check_segments(rules, segments.len())?;
    Ok(segments)
}

/// Returns the segment lengths of a chunk of `len` bytes; none for an empty chunk.
pub(crate) fn cut_lengths(rules: &ChunkRules, len: usize) -> Result<Vec<usize>, Refusal> {
    if u32::try_from(len).is_err() {
        return Err(Refusal::ChunkTooLong { len });
    }
    let longest = rules.max_segment_len.max(1);
    check_segments(rules, len.div_ceil(longest))?;
    Ok((0..len).step_by(longest).map(|start| longest.min(len - start)).collect())
}

const fn check_segments(rules: &ChunkRules, segments: usize) -> Result<(), Refusal> {
    let allowed = rules.max_segments;
    if segments > allowed { Err(Refusal::TooManySegments { segments, allowed }) } else { Ok(()) }
}

pub(crate) fn segments(read: &[PlannedRead]) -> usize {
    read.iter().map(|chunk| chunk.segments.len()).sum()
}

impl Refusal {
    /// Whether a peer that accepts more or longer segments could get the Call.
    pub(crate) const fn is_of_segments(&self) -> bool {
        matches!(
            self,
            Self::TooManySegments { .. } | Self::TooManySegmentsInAll { .. } | Self::HeaderTooLong { .. }
        )
    }
}

/// The facts that decide how a reply travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyInput<'a> {
    /// The version on the wire.
    pub codec: &'a dyn Codec,
    /// The RPC message.
    pub message: &'a Stream,
    /// The security flavour protects or hides the data, so no item is DDP-eligible.
    pub flavor_touches_data: bool,
    /// Inline threshold for the reply, bytes.
    pub send: usize,
    /// The Write list and Reply chunk of the Call.
    pub offered: &'a ChunkLists,
}

/// The form of a reply and its chunks.
#[derive(Debug)]
pub(crate) struct ReplyPlan {
    /// The way of the Payload stream.
    pub route: Route,
    /// The returned chunk lists, with the lengths that are written; the Read list comes from `read`.
    pub lists: ChunkLists,
    /// Data to write into Write chunks, each with the index of its chunk. Empty items are not written.
    pub placed: Vec<(usize, Bytes)>,
    /// Read chunks that the reply exposes to the Requester, Position-Zero first.
    pub read: Vec<PlannedRead>,
    /// The Payload stream without placed or exposed items. A long reply writes it into the Reply chunk; otherwise it
    /// follows the header.
    pub rest: PlannedStream,
    /// Bytes copied to join short pieces of a Position-Zero chunk.
    pub copied: CopyCount,
}

impl ReplyPlan {
    /// Returns the form of the message.
    pub(crate) fn form(&self) -> Form {
        self.route.form(!self.placed.is_empty() || !self.read.is_empty())
    }

    /// Returns the number of bytes exposed to the Requester's RDMA Reads.
    pub(crate) fn exposed(&self) -> usize {
        self.read.iter().flat_map(|chunk| &chunk.segments).map(Bytes::len).sum()
    }
}

/// Decides how a reply travels (RFC 8166 §4.3.2, §4.3.3), before anything is written: inline or in the chunks of the
/// Call.
///
/// # Errors
/// [`ProtocolError::WriteChunkTooSmall`] and [`ProtocolError::ReplyTooLong`], answered with ERR_CHUNK.
pub(crate) fn plan_reply(input: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
    match place(input, input.offered.reply.as_ref())? {
        Ok(plan) => Ok(plan),
        Err(left) => Err(left.refusal(input)),
    }
}

/// A reply that is too long for inline, and for the Reply chunk of its Call.
pub(crate) struct Unplaced<'a> {
    /// The pieces that no Write chunk holds.
    pub(crate) left: Vec<Located<'a>>,
    /// These pieces.
    pub(crate) rest: Stream,
    /// Bytes of the header, if the rest followed it.
    pub(crate) header: usize,
    pub(crate) lists: ChunkLists,
    pub(crate) placed: Vec<(usize, Bytes)>,
}

impl Unplaced<'_> {
    /// Returns the refusal of the reply (RFC 8166 §4.5.3).
    pub(crate) fn refusal(&self, input: &ReplyInput<'_>) -> ProtocolError {
        ProtocolError::ReplyTooLong {
            len: wide(self.rest.len()),
            inline: wide(input.send.saturating_sub(self.header)),
            reply_chunk: input.offered.reply.as_ref().map_or(0, WriteChunk::total),
        }
    }
}

/// Plans a reply that the chunks of its Call carry, or that fits after its header; returns any other. A reply that
/// follows its header gives the chunk `returned` back as a Reply chunk.
pub(crate) fn place<'a>(
    input: &ReplyInput<'a>,
    returned: Option<&WriteChunk>,
) -> Result<Result<ReplyPlan, Unplaced<'a>>, ProtocolError> {
    let reply = input.offered.reply.as_ref();
    let mut unused = ChunkLists { read: vec![], write: vec![], reply: returned.map(|chunk| chunk.filled(0)) };
    let (read, copied) = (vec![], CopyCount::default());
    let header = |lists: &ChunkLists| input.codec.header_len(&lists.shape(Direction::Reply));
    if input.offered.write.is_empty() && header(&unused) + input.message.len() <= input.send {
        let (placed, rest) = (vec![], PlannedStream::Whole);
        return Ok(Ok(ReplyPlan { route: Route::Inline, lists: unused, placed, read, rest, copied }));
    }
    let mut left = Vec::new();
    let mut placed = Vec::new();
    let write = &mut unused.write;
    let mut position = 0_usize;
    for piece in input.message.pieces() {
        let at = position;
        position = position.saturating_add(piece.len());
        let eligible = match piece {
            Piece::Payload { data, ddp_eligible: true } if !input.flavor_touches_data => Some(data),
            _ => None,
        };
        // RFC 8166 §4.3.2.1: the first result goes to the first chunk and so on, until either runs out.
        let (Some(data), Some(chunk)) = (eligible, input.offered.write.get(write.len())) else {
            left.push(Located { position: at, piece, movable: eligible.is_some() });
            continue;
        };
        let capacity = chunk.total();
        // RFC 8166 §4.3.2.3: a chunk without segments asks for its result inline. RFC 5667 §5 says so of a chunk of
        // length zero.
        if capacity == 0 {
            left.push(Located { position: at, piece, movable: false });
            write.push(chunk.clone());
            continue;
        }
        let len = wide(data.len());
        // RFC 8166 §4.5.3
        if len > capacity {
            return Err(ProtocolError::WriteChunkTooSmall { chunk: write.len(), len, capacity });
        }
        // RFC 8166 §3.4.6.2: the item is written without its pad, even if the chunk has space for it.
        if !data.is_empty() {
            placed.push((write.len(), data.clone()));
        }
        write.push(chunk.filled(len));
    }
    // RFC 8166 §4.3.2.2: the remaining chunks are returned unused.
    write.extend(input.offered.write.iter().skip(write.len()).map(|chunk| chunk.filled(0)));

    let mut rest = Stream::new();
    left.iter().for_each(|located| rest.push(located.piece.clone()));
    let header = header(&unused);
    let len = wide(rest.len());
    // RFC 8166 §4.3.3: a reply goes inline whenever it fits, even if a Reply chunk was offered.
    if header + rest.len() <= input.send {
        let rest = rest.into();
        return Ok(Ok(ReplyPlan { route: Route::Inline, lists: unused, placed, read, rest, copied }));
    }
    let long = reply.filter(|chunk| len <= chunk.total());
    let long = long.map(|chunk| ChunkLists { reply: Some(chunk.filled(len)), ..unused.clone() });
    if let Some(lists) = long
        && input.codec.header_len(&lists.shape(Direction::Reply)) <= input.send
    {
        let rest = rest.into();
        return Ok(Ok(ReplyPlan { route: Route::Long, lists, placed, read, rest, copied }));
    }
    Ok(Err(Unplaced { left, rest, header, lists: unused, placed }))
}

#[cfg(test)]
mod tests;
