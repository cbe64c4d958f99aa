//! The incoming byte stream: the memory for the next bytes, and the completion of FPDUs.
//!
//! Owns the read-ahead (`read_ahead`). A segment with much payload still to arrive is *placed directly*, without a copy.
//! Its target is lent to the socket, with just enough read-ahead behind it for the trailer and the next header. All other
//! bytes are read into the read-ahead, several FPDUs at a time, and copied once. While bulk data is expected, only headers
//! are read ahead.
//!
//! The CRC of a directly placed segment is computed over the target as it fills. In both cases a segment takes effect
//! only after its CRC matched. A header that breaks a rule is reported only if the CRC proves that the peer sent it so.

use std::io::IoSliceMut;
use std::time::Instant;

use rpcrdma_verbs::Counters;

use super::inbound::{Segment, Target};
use super::read_ahead::ReadAhead;
use super::timers::{Timer, after};
use super::violation::Violation;
use super::{DIRECT_PLACEMENT_MIN, Engine, Phase};
use crate::wire::ddp::{Header, TAGGED_LEN, UNTAGGED_LEN};
use crate::wire::fpdu::{CRC_LEN, Crc, FpduView, LENGTH_LEN, MAX_FPDU, fpdu_len, pad_len};
use crate::wire::terminate::TerminatedHeader;

/// Length of the read-ahead when complete FPDUs are staged, in bytes.
const STAGING: usize = 2 * MAX_FPDU;
/// Bytes of a header to read when payload may follow that should not be copied.
const HEADER_PREFIX: usize = LENGTH_LEN + TAGGED_LEN;
/// Maximum number of slices lent for one read: targets of a scattered Receive, then the read-ahead.
const MAX_SLICES: usize = 9;

/// A segment that is being placed directly.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) segment: Segment,
    pub(super) placed: usize,
    crc: Crc,
}

impl Body {
    /// Returns the number of payload bytes still to arrive.
    const fn left(&self) -> usize {
        self.segment.payload_len.saturating_sub(self.placed)
    }
}

/// The input side of a connection.
#[derive(Debug)]
pub(super) struct Input {
    crc: bool,
    strict: bool,
    ahead: ReadAhead,
    body: Option<Body>,
    /// The last tagged segment was too small to be placed directly; the next ones are expected to be too small as well.
    small_segments: bool,
    discarding: bool,
    finished_fpdu: bool,
    /// Bytes received over the link when the timer of the FPDU in progress was set.
    timed_at: u64,
    /// Time of the last byte, if it arrived inside an FPDU.
    moved_at: Option<Instant>,
}

impl Input {
    pub(super) fn new(crc: bool, strict: bool, behind: &[u8]) -> Self {
        Self {
            crc,
            strict,
            ahead: ReadAhead::new(if strict { STAGING } else { 0 }, behind),
            body: None,
            small_segments: false,
            discarding: false,
            finished_fpdu: false,
            timed_at: 0,
            moved_at: None,
        }
    }

    /// Returns whether an FPDU has begun and not ended.
    pub(super) fn is_inside_fpdu(&self) -> bool {
        !self.discarding && (self.body.is_some() || !self.ahead.is_empty())
    }

    /// Releases memory that the bytes which wait do not need.
    pub(super) fn rest(&mut self) {
        self.ahead.rest();
    }

    /// Discards all later input; a segment in progress loses its target.
    pub(super) fn discard(&mut self) {
        self.discarding = true;
        self.body = None;
        self.ahead.clear();
    }
}

impl Engine {
    /// Returns whether the engine accepts bytes of the peer now.
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::Ended && !self.peer_closed
    }

    /// Processes the bytes that start-up read too far. Call this once Receives can be posted, before the first read.
    pub fn start(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Lends the slices to read into, in order. Returns the number of bytes that `read` has read, 0 if it failed. The
    /// driver reports any other number to [`received`](Self::received).
    pub fn with_receive_slices(&mut self, read: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize) -> usize {
        let bulk = self.bulk_expected();
        let input = &mut self.input;
        let mut slices: [IoSliceMut<'_>; MAX_SLICES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut used = 0;
        let (targets, ahead_slot) = slices.split_at_mut(MAX_SLICES - 1);
        let ahead_room = match &input.body {
            Some(body) if body.left() > 0 && !body.segment.target.is_memory() => input.ahead.capacity(),
            Some(body) => {
                let left = body.left();
                let mut lent = 0;
                let rest = body.segment.target.rest(
                    body.placed,
                    left,
                    &mut self.windows,
                    &mut self.reads,
                    &mut self.receives,
                );
                for (slot, slice) in targets.iter_mut().zip(rest) {
                    lent += slice.len();
                    *slot = IoSliceMut::new(slice);
                    used += 1;
                }
                if lent < left {
                    // The scatter list continues, so the read-ahead must not be reached.
                    0
                } else {
                    let trailer = pad_len(body.segment.ulpdu_len) + CRC_LEN;
                    let buffered = input.ahead.len();
                    let more_bulk = !body.segment.header.is_last() || bulk;
                    let next = if more_bulk { HEADER_PREFIX } else { input.ahead.capacity() };
                    (trailer + next).saturating_sub(buffered).max(1)
                }
            }
            None => input.header_room(bulk),
        };
        if let Some(slot) = ahead_slot.first_mut() {
            *slot = IoSliceMut::new(input.ahead.space(ahead_room));
        }
        // The read-ahead comes directly behind the targets.
        slices.swap(used, MAX_SLICES - 1);
        let used = used + usize::from(ahead_room > 0);
        let count = read(slices.get_mut(..used).unwrap_or_default());
        if count == 0 {
            input.ahead.settle();
        }
        count
    }

    /// Processes `count` bytes, at least one, which one system call read into the slices lent last.
    pub fn received(&mut self, count: usize, now: Instant) {
        self.counters.receive_calls += 1;
        self.counters.link_bytes_received += count as u64;
        self.heard = true;
        self.timers.stop(Timer::Nudge);
        if self.input.discarding {
            return;
        }
        let mut ahead = count;
        if let Some(body) = &mut self.input.body
            && body.segment.target.is_memory()
        {
            let placed = count.min(body.left());
            ahead -= placed;
            if self.input.crc {
                let mut uncovered = placed;
                let filled = body.segment.target.rest(
                    body.placed,
                    placed,
                    &mut self.windows,
                    &mut self.reads,
                    &mut self.receives,
                );
                for slice in filled {
                    uncovered -= slice.len();
                    body.crc.update(slice);
                }
                debug_assert_eq!(uncovered, 0);
            }
            body.placed += placed;
        }
        self.input.ahead.filled(ahead);
        self.advance(now);
    }

    /// Returns whether large tagged segments may arrive.
    fn bulk_expected(&self) -> bool {
        !self.input.small_segments
            && !self.input.strict
            && (self.windows.bulk_expected() || self.reads.bulk_expected())
    }

    /// Consumes all complete input.
    fn advance(&mut self, now: Instant) {
        self.input.finished_fpdu = false;
        while !self.input.discarding {
            let more =
                if self.input.body.is_some() { self.advance_body(now) } else { self.advance_header(now) };
            if !more {
                break;
            }
        }
        let input = &mut self.input;
        if !input.is_inside_fpdu() {
            input.moved_at = None;
            self.timers.stop(Timer::PartialFpdu);
            return;
        }
        // Other progress is examined when the timer expires.
        if input.moved_at.replace(now).is_none() || input.finished_fpdu {
            input.timed_at = self.counters.link_bytes_received;
            self.timers.set(Timer::PartialFpdu, after(now, self.timeouts.partial_fpdu));
        }
    }

    /// Handles the expiry of the FPDU in progress at `deadline`: sets the timer again if enough of the FPDU has arrived
    /// meanwhile.
    pub(super) fn fpdu_goes_on(&mut self, deadline: Instant, now: Instant) -> bool {
        let input = &mut self.input;
        let Some(moved_at) = input.moved_at else { return false };
        let received = self.counters.link_bytes_received;
        let moved = received.saturating_sub(std::mem::replace(&mut input.timed_at, received));
        let until = self.timeouts.fpdu().extended(deadline, moved, moved_at);
        let goes_on = until > now;
        if goes_on {
            self.timers.set(Timer::PartialFpdu, until);
        }
        goes_on
    }

    /// Advances at the start of an FPDU; `false`: more bytes are needed.
    fn advance_header(&mut self, now: Instant) -> bool {
        let input = &self.input;
        let buffered = input.ahead.bytes();
        let view = FpduView::new(buffered);
        let (Some(ulpdu_len), Some(whole)) = (view.ulpdu_len().map(usize::from), view.fpdu_len()) else {
            return false;
        };
        if let Some(ulpdu) = view.ulpdu()
            && buffered.len() >= whole
        {
            if input.crc && view.crc_matches() == Some(false) {
                self.fail_bare(Violation::Crc { ulpdu_len }, now);
                return false;
            }
            let decoded = Header::decode(ulpdu);
            let raw = TerminatedHeader::capture(ulpdu);
            match decoded {
                Ok(header) => return self.whole_segment(Segment::new(header, raw, ulpdu_len), now),
                Err(error) => {
                    self.fail_segment(error.into(), raw, ulpdu_len, None, now);
                    return false;
                }
            }
        }
        // A tagged header is complete a little earlier.
        let tagged = buffered.get(LENGTH_LEN).is_some_and(|byte| byte & 0x80 != 0);
        let header_end = if tagged { HEADER_PREFIX } else { LENGTH_LEN + UNTAGGED_LEN };
        if buffered.len() < header_end || input.waits_for_whole(whole) {
            return false;
        }
        let ulpdu = buffered.get(LENGTH_LEN..).unwrap_or_default();
        let raw = TerminatedHeader::capture(ulpdu);
        match Header::decode(ulpdu) {
            Ok(header) => self.begin_body(Segment::new(header, raw, ulpdu_len)),
            Err(error) => {
                // For the CRC, a header that cannot be decoded counts as no longer than a tagged header.
                let mut segment = Segment::unreadable(raw, ulpdu_len);
                segment.target = Target::Nowhere(error.into());
                self.open_body(segment, 0);
            }
        }
        true
    }

    /// Handles a segment that is in the read-ahead completely and whose CRC matched.
    fn whole_segment(&mut self, mut segment: Segment, now: Instant) -> bool {
        let body_start = LENGTH_LEN + segment.header.encoded_len();
        let small = segment.payload_len < DIRECT_PLACEMENT_MIN;
        if matches!(segment.header, Header::Tagged(tagged) if !tagged.last) {
            self.input.small_segments = small;
        }
        let range = body_start..body_start + segment.payload_len;
        // Control messages are short, and are decoded inside the read-ahead.
        let start = self.input.ahead.position();
        let absolute = start + range.start..start + range.end;
        match self.admit(&segment, absolute.clone()) {
            Ok(target) => segment.target = target,
            Err(violation) => {
                let request = self.take_refused_read();
                self.fail_segment(violation, segment.raw, segment.ulpdu_len, request, now);
                return false;
            }
        }
        let mut payload = self.input.ahead.get(absolute);
        let length = payload.len();
        let target = segment.target.rest(0, length, &mut self.windows, &mut self.reads, &mut self.receives);
        for slice in target {
            let (now, later) = payload.split_at(slice.len().min(payload.len()));
            slice.copy_from_slice(now);
            payload = later;
        }
        count_copy(&mut self.counters, &segment, length);
        self.input.ahead.consume(fpdu_len(segment.ulpdu_len));
        self.commit(segment, now);
        true
    }

    /// Begins the direct placement of a segment whose header has arrived and most of whose payload has not.
    fn begin_body(&mut self, mut segment: Segment) {
        let header_len = segment.header.encoded_len();
        match self.admit(&segment, 0..0) {
            Ok(target) => segment.target = target,
            Err(violation) => segment.target = Target::Nowhere(violation),
        }
        if let Target::Window { stag, .. } = segment.target {
            self.windows.begin_placing(stag);
        }
        if matches!(segment.header, Header::Tagged(tagged) if !tagged.last) {
            self.input.small_segments = false;
        }
        self.open_body(segment, header_len);
    }

    fn open_body(&mut self, segment: Segment, header_len: usize) {
        let mut crc = Crc::new();
        let head = LENGTH_LEN + header_len;
        crc.update(self.input.ahead.bytes().get(..head).unwrap_or_default());
        self.input.ahead.consume(head);
        self.input.body = Some(Body { segment, placed: 0, crc });
    }

    /// Advances inside a segment that is placed directly; `false`: more bytes are needed.
    fn advance_body(&mut self, now: Instant) -> bool {
        let input = &mut self.input;
        let Some(body) = &mut input.body else { return true };
        let left = body.left();
        let buffered = input.ahead.bytes();
        if left > 0 {
            // Payload that is already in the read-ahead is copied.
            let mut here = buffered.get(..left.min(buffered.len())).unwrap_or_default();
            let length = here.len();
            body.crc.update(here);
            let target = body.segment.target.rest(
                body.placed,
                length,
                &mut self.windows,
                &mut self.reads,
                &mut self.receives,
            );
            for slice in target {
                let (now, later) = here.split_at(slice.len().min(here.len()));
                slice.copy_from_slice(now);
                here = later;
            }
            body.placed += length;
            count_copy(&mut self.counters, &body.segment, length);
            input.ahead.consume(length);
            return length == left;
        }
        let pad = pad_len(body.segment.ulpdu_len);
        let Some((pad_bytes, rest)) = buffered.split_at_checked(pad) else { return false };
        let Some(field) = rest.first_chunk::<CRC_LEN>() else { return false };
        body.crc.update(pad_bytes);
        let matches = !input.crc || body.crc.wire() == *field;
        let Some(body) = input.body.take() else { return true };
        input.ahead.consume(pad + CRC_LEN);
        if let Target::Window { stag, .. } = body.segment.target {
            self.windows.end_placing(stag);
        }
        let Segment { raw, ulpdu_len, .. } = body.segment;
        if !matches {
            self.fail_bare(Violation::Crc { ulpdu_len }, now);
            return false;
        }
        if let Target::Nowhere(violation) = body.segment.target {
            self.fail_segment(violation, raw, ulpdu_len, None, now);
            return false;
        }
        self.commit(body.segment, now);
        true
    }

    /// Records that an FPDU took effect.
    pub(super) fn finished_fpdu(&mut self) {
        self.input.finished_fpdu = true;
    }

    /// Returns bytes of the read-ahead.
    pub(super) fn buffered_range(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.input.ahead.get(range)
    }
}

/// Counts bytes that went through the read-ahead into memory of the contract's user.
fn count_copy(counters: &mut Counters, segment: &Segment, length: usize) {
    if segment.target.is_memory() {
        match segment.header {
            Header::Tagged(_) => counters.payload_bytes_copied += length as u64,
            Header::Untagged(_) => counters.message_bytes_copied += length as u64,
        }
    }
}

impl Input {
    /// Returns whether an FPDU of `whole` bytes, of which the front is buffered, is to be read into the read-ahead.
    fn waits_for_whole(&self, whole: usize) -> bool {
        let missing = whole.saturating_sub(self.ahead.len());
        self.strict || missing < DIRECT_PLACEMENT_MIN && whole <= self.ahead.capacity()
    }

    /// Returns the number of bytes to read ahead at the start of an FPDU, if there is space for them.
    fn header_room(&self, bulk: bool) -> usize {
        if !bulk {
            return self.ahead.capacity();
        }
        let buffered = self.ahead.len();
        let whole = FpduView::new(self.ahead.bytes()).fpdu_len();
        let wanted = match whole {
            Some(whole) if buffered >= HEADER_PREFIX => {
                if self.waits_for_whole(whole) {
                    whole + HEADER_PREFIX
                } else {
                    LENGTH_LEN + UNTAGGED_LEN
                }
            }
            _ => HEADER_PREFIX,
        };
        wanted.saturating_sub(buffered).max(1)
    }
}
