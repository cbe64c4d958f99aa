//! FPDUs that are laid out and wait for the socket: headers, pad, CRC and markers in small inline pieces, payload in
//! place.
//!
//! Owns shared references to payload (`Bytes`), never copies of it. A piece is released when its last byte is written.
//! Once the queues have grown, no segment needs an allocation. On error [`Output::cut_after_current`] drops every FPDU
//! of which no byte was written.
//!
//! Each system call gets a run that is cut so that no TCP segment ends within the pad and CRC of an FPDU. Linux `siw`
//! depends on this: up to 6.1 at least, it misjudges the CRC otherwise. TCP may still cut elsewhere where the peer's
//! window ends (RFC 5044 §5.1); the next call starts a segment again. FPDUs have the length of segments (§4.5), so most
//! of them also start one.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use rpcrdma_verbs::{Rest, WrId};

use super::gather::Gather;
use crate::wire::fpdu::{CRC_LEN, Crc, pad_len};
use crate::wire::marker::{MarkerClock, marker};

/// Length of an inline piece, in bytes: the trailer of one FPDU and the longest header of the next.
const INLINE: usize = 56;
/// Length of the longest pad and the CRC, in bytes.
const TRAILER_MAX: u64 = 3 + CRC_LEN as u64;
/// Maximum number of slices lent to one system call. Linux accepts 1024; beyond this number more slices no longer pay.
const MAX_SLICES: usize = 256;
/// Maximum number of slices when few pieces wait, as for small messages: clearing a long list would take longer than
/// laying them out.
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

/// Effect of the last byte of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// No effect.
    Nothing,
    /// Completes a Send of ours.
    Send(WrId),
    /// Completes an RDMA Write of ours, with its share of the send queue.
    Write(WrId, usize),
    /// Completes a Read Response; the STag of its source, if it had a length.
    ReadResponse(Option<u32>),
    /// The Terminate has left.
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
    /// Number of written bytes of the front piece.
    front_written: usize,
    boundaries: VecDeque<Boundary>,
    laid_out: u64,
    written: u64,
    /// End of the last FPDU taken by [`Output::take_finished`], where the front FPDU begins.
    front_start: u64,
    segments: u64,
    /// Bytes of a full TCP segment; no limit until the size is known.
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

    /// Returns the number of bytes that wait to be written.
    pub(super) fn queued(&self) -> usize {
        usize::try_from(self.laid_out - self.written).unwrap_or(usize::MAX)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.laid_out == self.written
    }

    /// Returns the number of FPDUs laid out so far.
    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    /// Sets the size of a full TCP segment.
    pub(super) const fn set_emss(&mut self, emss: usize) {
        self.emss = emss;
    }

    /// Returns whether more bytes wait than one segment takes: only then does the end of segments matter.
    pub(super) fn exceeds_segment(&self) -> bool {
        self.queued() > self.emss
    }

    /// Returns whether the peer gets markers.
    pub(super) const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// Lays out one FPDU: the DDP header and the inline data in `head`, then `payload_len` bytes of `payload`.
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
        // RFC 5044 §4.4 (1): the CRC also covers a marker directly behind the pad; it stands before the CRC field.
        self.marker_if_due();
        let sum = self.running.wire();
        self.push(if self.crc { &sum } else { &[0; CRC_LEN] });
        self.advance_markers(CRC_LEN);
        self.segments += 1;
        self.boundaries.push_back(Boundary { end: self.laid_out, finish });
    }

    /// Appends covered bytes, cut at markers.
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

    /// Appends covered payload, cut at markers.
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

    /// Inserts a marker that is due, and returns the number of bytes that fit before the next one.
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

    /// Lends the bytes to write by the next system call, and states whether a TCP segment should end behind them.
    ///
    /// They are a run of complete FPDUs, none with its trailer in two segments, or the rest of an FPDU that was cut
    /// short.
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

    /// Returns the FPDUs that are not completely written.
    fn unfinished(&self) -> impl Iterator<Item = &Boundary> {
        let finished = self.boundaries.partition_point(|boundary| boundary.end <= self.written);
        self.boundaries.range(finished..)
    }

    /// Returns the stream position up to which the next system call may write.
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

    /// Returns whether the last system call left a partly written FPDU.
    fn is_within_fpdu(&self) -> bool {
        let finished = self.boundaries.partition_point(|boundary| boundary.end <= self.written);
        let last = finished.checked_sub(1).and_then(|last| self.boundaries.get(last));
        last.map_or(self.front_start, |last| last.end) < self.written
    }

    /// Fills slices up to a stream position. Returns their number, and the position that they reach.
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

    /// Records that `count` bytes were written.
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

    /// Takes an FPDU, written or not, after the end of the connection.
    pub(super) fn take_unfinished(&mut self) -> Option<Finish> {
        let index = self.boundaries.iter().position(|boundary| boundary.finish != Finish::Nothing)?;
        let boundary = self.boundaries.get_mut(index)?;
        Some(std::mem::replace(&mut boundary.finish, Finish::Nothing))
    }

    /// Drops all FPDUs of which no byte was written, and keeps one that is partly written. A marker clock stays in
    /// step.
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

    /// Releases memory that only many FPDUs need.
    pub(super) fn rest(&mut self) {
        self.pieces.rest();
        self.boundaries.rest();
    }

    /// Drops all FPDUs.
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
