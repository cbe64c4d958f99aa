//! FPDUs that are laid out and wait for the socket: headers, pad, CRC and markers in small inline pieces, payload where it lies.
//!
//! Owns shared references to payload (`Bytes`), never copies of it. A piece leaves when its last byte is written. Nothing is
//! allocated per segment once the queues have grown. On error [`Output::cut_after_current`] drops every FPDU of which nothing
//! was written.
//!
//! What one system call gets is cut so that no TCP segment ends within the pad and CRC of an FPDU. Linux `siw` depends on it: up to
//! 6.1 at least, it takes the CRC for wrong then. TCP may still cut elsewhere where the peer's window ends (RFC 5044 §5.1); the next
//! call starts a segment again. FPDUs have the length of segments (§4.5), so most of them also start one.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use rpcrdma_verbs::WrId;

use super::gather::Gather;
use crate::wire::fpdu::{CRC_LEN, Crc, pad_len};
use crate::wire::marker::{MarkerClock, marker};

/// Bytes of an inline piece: the trailer of one FPDU and the longest header of the next.
const INLINE: usize = 56;
/// Bytes of the longest pad and the CRC.
const TRAILER_MAX: u64 = 3 + CRC_LEN as u64;
/// Slices lent to one system call. Linux takes 1024; more than this no longer pays.
const MAX_SLICES: usize = 256;
/// The same where few pieces wait, as for small messages: a long list takes longer to clear than they take to lay out.
const FEW_SLICES: usize = 8;

#[derive(Debug)]
enum Piece {
    Inline { bytes: [u8; INLINE], used: usize },
    Payload(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { bytes, used } => bytes.get(..*used).unwrap_or_default(),
            Self::Payload(bytes) => bytes,
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Inline { used, .. } => *used = (*used).min(len),
            Self::Payload(bytes) => bytes.truncate(len),
        }
    }
}

/// What the last byte of an FPDU finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Nothing that anybody waits for.
    Nothing,
    /// A Send of ours.
    Send(WrId),
    /// An RDMA Write of ours, and its share of the send queue.
    Write(WrId, usize),
    /// A Read Response; the STag of its source, if it had a length.
    ReadResponse(Option<u32>),
    /// The Terminate.
    Terminate,
}

#[derive(Clone, Copy, Debug)]
struct Boundary {
    end: u64,
    finish: Finish,
}

/// The queue of laid-out FPDUs.
#[derive(Debug)]
pub(super) struct Output {
    crc: bool,
    markers: Option<MarkerClock>,
    pieces: VecDeque<Piece>,
    /// Bytes of the front piece that are written.
    front_written: usize,
    boundaries: VecDeque<Boundary>,
    laid_out: u64,
    written: u64,
    /// Where the last FPDU taken by [`Output::take_finished`] ended: the front one begins here.
    front_start: u64,
    segments: u64,
    /// Bytes of a full TCP segment; no limit until it is told.
    emss: usize,
    /// Stream position and CRC of the FPDU being laid out.
    fpdu_start: u64,
    running: Crc,
}

impl Output {
    pub(super) fn new(crc: bool, markers: bool) -> Self {
        Self {
            crc,
            markers: markers.then(MarkerClock::new),
            pieces: VecDeque::new(),
            front_written: 0,
            boundaries: VecDeque::new(),
            laid_out: 0,
            written: 0,
            front_start: 0,
            segments: 0,
            emss: usize::MAX,
            fpdu_start: 0,
            running: Crc::new(),
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn queued(&self) -> usize {
        usize::try_from(self.laid_out - self.written).unwrap_or(usize::MAX)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.laid_out == self.written
    }

    /// FPDUs laid out so far.
    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    /// Takes the size of a full TCP segment.
    pub(super) const fn set_emss(&mut self, emss: usize) {
        self.emss = emss;
    }

    /// Whether more waits than fits one segment: only then does it matter where segments end.
    pub(super) fn exceeds_segment(&self) -> bool {
        self.queued() > self.emss
    }

    /// Whether the peer gets markers.
    pub(super) const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// Lays out one FPDU: the DDP header and whatever follows it inline, then `payload_len` bytes of `payload`.
    pub(super) fn fpdu(&mut self, head: &[&[u8]], payload: &mut Gather, payload_len: usize, finish: Finish) {
        let inline: usize = head.iter().map(|part| part.len()).sum();
        let ulpdu_len = inline + payload_len;
        self.running = Crc::new();
        // RFC 5044 §4.3: a marker that falls between FPDUs belongs to the one that follows.
        self.fpdu_start = self.laid_out;
        self.marker_if_due();
        self.fpdu_start = self.laid_out;
        let length = u16::try_from(ulpdu_len).unwrap_or(u16::MAX);
        self.inline(&length.to_be_bytes());
        for part in head {
            self.inline(part);
        }
        let mut left = payload_len;
        while let Some(piece) = payload.take(left) {
            left -= piece.len();
            self.payload(piece);
        }
        debug_assert_eq!(left, 0, "the caller promised bytes that the gather list does not have");
        self.inline([0; 3].get(..pad_len(ulpdu_len)).unwrap_or_default());
        // RFC 5044 §4.4 (1): a marker right after the pad is covered too; it stands before the CRC field.
        self.marker_if_due();
        let sum = self.running.wire();
        self.push(if self.crc { &sum } else { &[0; CRC_LEN] });
        self.advance_markers(CRC_LEN);
        self.segments += 1;
        self.boundaries.push_back(Boundary { end: self.laid_out, finish });
    }

    /// Covered bytes, cut at markers.
    fn inline(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room_before_marker();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.cover(now);
            self.push(now);
            self.advance_markers(now.len());
            bytes = later;
        }
    }

    /// Covered payload, cut at markers.
    fn payload(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let room = self.room_before_marker();
            let now = bytes.split_to(room.min(bytes.len()));
            self.cover(&now);
            self.advance_markers(now.len());
            self.laid_out += now.len() as u64;
            self.pieces.push_back(Piece::Payload(now));
        }
    }

    fn cover(&mut self, bytes: &[u8]) {
        if self.crc {
            self.running.update(bytes);
        }
    }

    /// Bytes that fit before the next marker, after inserting one that is due.
    fn room_before_marker(&mut self) -> usize {
        self.marker_if_due();
        self.markers.as_ref().map_or(usize::MAX, MarkerClock::until_marker)
    }

    fn marker_if_due(&mut self) {
        if self.markers.as_ref().is_some_and(|clock| clock.until_marker() == 0) {
            let pointer = u16::try_from(self.laid_out - self.fpdu_start).unwrap_or_default();
            let bytes = marker(pointer);
            self.cover(&bytes);
            self.push(&bytes);
            self.advance_markers(bytes.len());
        }
    }

    fn advance_markers(&mut self, bytes: usize) {
        if let Some(clock) = &mut self.markers {
            clock.advance(bytes);
        }
    }

    /// Appends bytes to the last inline piece, or opens a new one.
    fn push(&mut self, bytes: &[u8]) {
        self.laid_out += bytes.len() as u64;
        if let Some(Piece::Inline { bytes: room, used }) = self.pieces.back_mut()
            && let Some(free) = room.get_mut(*used..*used + bytes.len())
        {
            free.copy_from_slice(bytes);
            *used += bytes.len();
            return;
        }
        for part in bytes.chunks(INLINE) {
            let mut room = [0; INLINE];
            let (target, _) = room.split_at_mut(part.len());
            target.copy_from_slice(part);
            self.pieces.push_back(Piece::Inline { bytes: room, used: part.len() });
        }
    }

    /// Lends what is to be written by the next system call, and says whether a TCP segment is to end behind it.
    ///
    /// That is a run of whole FPDUs of which none has its trailer in two segments, or what is left of one that was cut short.
    pub(super) fn with_slices<T>(&self, write: impl FnOnce(&[IoSlice<'_>], bool) -> T) -> T {
        if self.pieces.len() <= FEW_SLICES {
            self.with_slices_up_to::<FEW_SLICES, T>(write)
        } else {
            self.with_slices_up_to::<MAX_SLICES, T>(write)
        }
    }

    fn with_slices_up_to<const MOST: usize, T>(&self, write: impl FnOnce(&[IoSlice<'_>], bool) -> T) -> T {
        let mut slices = [IoSlice::new(&[]); MOST];
        let end = self.end_of_run();
        let (mut used, lent) = self.fill(&mut slices, end);
        let mut whole = lent == end;
        if !whole
            && let Some(end) =
                self.unfinished().map(|boundary| boundary.end).take_while(|&end| end <= lent).last()
        {
            (used, _) = self.fill(&mut slices, end);
            whole = true;
        }
        write(slices.get(..used).unwrap_or_default(), whole)
    }

    /// FPDUs that are not written in full.
    fn unfinished(&self) -> impl Iterator<Item = &Boundary> {
        let finished = self.boundaries.partition_point(|boundary| boundary.end <= self.written);
        self.boundaries.range(finished..)
    }

    /// Stream position up to which the next system call may write.
    fn end_of_run(&self) -> u64 {
        let mut boundaries = self.unfinished().map(|boundary| boundary.end);
        let Some(mut end) = boundaries.next() else { return self.laid_out };
        if self.is_within_fpdu() {
            return end;
        }
        let emss = u64::try_from(self.emss.max(1)).unwrap_or(u64::MAX);
        for next in boundaries {
            let len = next - self.written;
            if (len - 1) / emss != len.saturating_sub(TRAILER_MAX) / emss {
                break;
            }
            end = next;
        }
        end
    }

    /// Whether the last system call left an FPDU half written.
    fn is_within_fpdu(&self) -> bool {
        let finished = self.boundaries.partition_point(|boundary| boundary.end <= self.written);
        let last = finished.checked_sub(1).and_then(|last| self.boundaries.get(last));
        last.map_or(self.front_start, |last| last.end) < self.written
    }

    /// Fills slices up to a stream position; gives their number, and the position that they reach.
    fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>], end: u64) -> (usize, u64) {
        let mut skip = self.front_written;
        let mut at = self.written;
        let mut used = 0;
        for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            if left == 0 {
                break;
            }
            let rest = piece.bytes().get(skip..).unwrap_or_default();
            let bytes = rest.get(..left).unwrap_or(rest);
            *slot = IoSlice::new(bytes);
            at += bytes.len() as u64;
            skip = 0;
            used += 1;
        }
        (used, at)
    }

    /// `count` bytes were written.
    pub(super) fn wrote(&mut self, count: usize) {
        let mut left = count.min(self.queued());
        self.written += left as u64;
        while let Some(front) = self.pieces.front() {
            let rest = front.bytes().len() - self.front_written;
            if left < rest {
                self.front_written += left;
                return;
            }
            left -= rest;
            self.front_written = 0;
            self.pieces.pop_front();
        }
    }

    /// Takes an FPDU whose last byte is written.
    pub(super) fn take_finished(&mut self) -> Option<Finish> {
        let front = self.boundaries.front()?;
        if front.end > self.written {
            return None;
        }
        self.front_start = front.end;
        self.boundaries.pop_front().map(|boundary| boundary.finish)
    }

    /// Takes an FPDU whether it is written or not: the connection is over.
    pub(super) fn take_unfinished(&mut self) -> Option<Finish> {
        let index = self.boundaries.iter().position(|boundary| boundary.finish != Finish::Nothing)?;
        let boundary = self.boundaries.get_mut(index)?;
        Some(std::mem::replace(&mut boundary.finish, Finish::Nothing))
    }

    /// Drops all FPDUs of which nothing was written; keeps one that is half written. A marker clock keeps its step.
    pub(super) fn cut_after_current(&mut self) {
        let mut keep_until = self.written;
        let mut kept = None;
        if self.front_start < self.written
            && let Some(front) = self.boundaries.front()
        {
            keep_until = front.end;
            kept = Some(Boundary { end: front.end, finish: Finish::Nothing });
        }
        let mut excess = usize::try_from(self.laid_out - keep_until).unwrap_or(usize::MAX);
        while excess > 0
            && let Some(back) = self.pieces.back_mut()
        {
            let len = back.bytes().len();
            if len <= excess {
                excess -= len;
                self.pieces.pop_back();
            } else {
                back.truncate(len - excess);
                excess = 0;
            }
        }
        if self.pieces.is_empty() {
            self.front_written = 0;
        }
        self.laid_out = keep_until;
        if let Some(clock) = &mut self.markers {
            *clock = MarkerClock::new();
            clock.advance(usize::try_from(keep_until).unwrap_or_default());
        }
        self.boundaries.clear();
        self.boundaries.extend(kept);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.boundaries.clear();
        self.front_written = 0;
        self.laid_out = self.written;
        self.front_start = self.written;
    }
}

#[cfg(test)]
mod tests;
