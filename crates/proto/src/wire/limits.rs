//! The limits on a peer's header. Those on chunks are checked here, for every notation of chunks: the lists of RFC 8166
//! §3.4, and the locations of rtrext-02 §7.

use super::{List, ProtocolError, ReadSegment, Segment};

/// Bounds on chunk lists. RFC 8267 §6.4.2 makes a server accept at least two Read chunks (one at Position Zero), one
/// Write chunk and 16 segments per chunk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Read chunks in one Call, the Position-Zero chunk included.
    pub read_chunks: usize,
    /// Write chunks in one Call.
    pub write_chunks: usize,
    /// Segments in one chunk of any kind.
    pub segments_per_chunk: usize,
    /// Bytes of one Read segment.
    pub read_segment_len: u64,
    /// Bytes of all Read segments of one Call together: the most memory that one Call makes this side allocate.
    pub read_total: u64,
    /// Bytes of one message that comes in several Sends (version-two-07 §6.6.2, rtrext-02 §4): Payload stream, and items placed by Sends.
    pub continued_len: usize,
    /// Sends that one message comes in: each keeps a Receive until the last is there. With 1 there are none.
    pub continued_parts: usize,
    /// Characteristics in one operation, and words in one of its subsets (xcharext-02 §2.1).
    pub characteristics: usize,
    /// Bulk items that one message has outside of its Payload stream (`xmdp_grpinfo`, rtrext-02 §7.3).
    pub placed_items: usize,
    /// Sets of directions for a response in one request (`xmdp_rsdgroup`, rtrext-02 §7.4).
    pub response_sets: usize,
    /// Directions in one of these sets.
    pub items_per_set: usize,
    /// Target buffer segments that one item goes through (`xmdl_bsnum`, rtrext-02 §7.3).
    pub target_segments: usize,
    /// Groups of segments in a peer's description of its Receives (`xmrbuf_groups`, rtrext-02 §7.2).
    pub buffer_groups: usize,
    /// RPC-over-RDMA messages in one Send ([`combined`](crate::wire::two::combined)). With 1 combined Sends are
    /// refused, and not announced.
    pub combined_messages: usize,
    /// Operations on characteristics without a Call or reply between them; then the connection ends.
    pub operations: u32,
}

impl Limits {
    /// The default of [`Self::read_total`]: a payload of 1 MiB and a long Call around it.
    pub const DEFAULT_READ_TOTAL: u64 = (1 << 20) + (64 << 10);

    /// The default of [`Self::continued_len`].
    pub const DEFAULT_CONTINUED_LEN: usize = 256 << 10;
}

/// The bounds on chunks (rule I5). A count is checked before its chunk or segment is read.
impl Limits {
    /// Checks whether a Read segment may follow so many others.
    pub(crate) const fn check_read_segments(&self, others: usize) -> Result<(), ProtocolError> {
        let allowed = self.read_chunks.saturating_mul(self.segments_per_chunk);
        if others < allowed { Ok(()) } else { Err(ProtocolError::TooManyReadSegments { allowed }) }
    }

    /// Adds a Read segment to those of its message, whose bytes are `total`. RFC 8166 §8.1.4: chunks that are
    /// unreasonably large need not be pulled.
    pub(crate) fn add_read(
        &self,
        read: &mut Vec<ReadSegment>,
        total: &mut u64,
        entry: ReadSegment,
    ) -> Result<(), ProtocolError> {
        let ReadSegment { segment: Segment { length, .. }, .. } = entry;
        if u64::from(length) > self.read_segment_len {
            return Err(ProtocolError::ReadSegmentTooLong { length, allowed: self.read_segment_len });
        }
        *total = total.saturating_add(u64::from(length));
        if *total > self.read_total {
            return Err(ProtocolError::ReadListTooLong { total: *total, allowed: self.read_total });
        }
        read.push(entry);
        Ok(())
    }

    /// Checks whether a Read chunk may follow so many others.
    pub(crate) const fn check_read_chunks(&self, others: usize) -> Result<(), ProtocolError> {
        let (seen, allowed) = (others + 1, self.read_chunks);
        if seen <= allowed { Ok(()) } else { Err(ProtocolError::TooManyReadChunks { seen, allowed }) }
    }

    /// Checks whether a Write chunk may follow so many others.
    pub(crate) const fn check_write_chunks(&self, others: usize) -> Result<(), ProtocolError> {
        let allowed = self.write_chunks;
        if others < allowed { Ok(()) } else { Err(ProtocolError::TooManyWriteChunks { allowed }) }
    }

    /// Checks the number of segments in a chunk.
    pub(crate) fn check_segments(&self, list: List, count: u32) -> Result<(), ProtocolError> {
        let allowed = self.segments_per_chunk;
        if usize::try_from(count).is_ok_and(|count| count <= allowed) {
            return Ok(());
        }
        Err(ProtocolError::TooManySegments { list, count, allowed })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_chunks: 16,
            write_chunks: 16,
            segments_per_chunk: 256,
            read_segment_len: Self::DEFAULT_READ_TOTAL,
            read_total: Self::DEFAULT_READ_TOTAL,
            continued_len: Self::DEFAULT_CONTINUED_LEN,
            continued_parts: 64,
            characteristics: 64,
            placed_items: 16,
            response_sets: 16,
            items_per_set: 16,
            target_segments: 256,
            buffer_groups: 16,
            combined_messages: 1,
            operations: 64,
        }
    }
}
