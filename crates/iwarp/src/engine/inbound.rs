//! Received segments: the rule that admits each, the target of its payload, and its effect once its CRC matched.

use std::ops::Range;
use std::time::Instant;

use rpcrdma_verbs::{Buffer, Disconnected, Status, TerminateCause};

use super::reads::Reads;
use super::receives::Receives;
use super::timers::{Timer, after};
use super::violation::Violation;
use super::windows::{Closed, WindowTable};
use super::{Engine, Phase};
use crate::wire::ddp::{FIRST_MSN, Header, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, queue};
use crate::wire::rdmap::{self, Opcode, ReadRequest};
use crate::wire::terminate::{self, Terminate, TerminateView, TerminatedHeader};

/// Target of the payload of an admitted segment. Names the place and never holds the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// No payload.
    Nothing,
    /// Memory of a write window.
    Window { stag: u32, offset: usize },
    /// Sink of the Read that is due.
    Sink { offset: usize },
    /// Receive of the arriving Send.
    Message { offset: usize },
    /// No memory: the segment breaks a rule, which is reported after its CRC matched.
    Nowhere(Violation),
}

/// Slices of a target from an offset on, with at most `left` bytes together.
pub(super) struct Rest<'a> {
    buffers: std::slice::IterMut<'a, Buffer>,
    skip: usize,
    left: usize,
}

impl<'a> Iterator for Rest<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<&'a mut [u8]> {
        while self.left > 0 {
            let buffer = self.buffers.next()?;
            let length = buffer.len();
            if self.skip >= length {
                self.skip -= length;
                continue;
            }
            let take = (length - self.skip).min(self.left);
            let range = self.skip..self.skip + take;
            self.skip = 0;
            self.left -= take;
            return buffer.get_mut(range);
        }
        None
    }
}

impl Target {
    /// Returns the memory for `left` bytes after the first `placed` bytes of the segment.
    pub(super) fn rest<'a>(
        &self,
        placed: usize,
        left: usize,
        windows: &'a mut WindowTable,
        reads: &'a mut Reads,
        receives: &'a mut Receives,
    ) -> Rest<'a> {
        let (buffers, offset) = match *self {
            Self::Nothing | Self::Nowhere(_) => (&mut [][..], 0),
            Self::Window { stag, offset } => {
                (windows.write_memory(stag).map(std::slice::from_mut).unwrap_or_default(), offset)
            }
            Self::Sink { offset } => (reads.sink().map(std::slice::from_mut).unwrap_or_default(), offset),
            Self::Message { offset } => (receives.buffers(), offset),
        };
        Rest { buffers: buffers.iter_mut(), skip: offset + placed, left }
    }

    /// Returns whether payload has a place in memory.
    pub(super) const fn is_memory(&self) -> bool {
        matches!(self, Self::Window { .. } | Self::Sink { .. } | Self::Message { .. })
    }
}

/// A segment whose header was decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) header: Header,
    /// The header as received, for a Terminate.
    pub(super) raw: Option<TerminatedHeader>,
    pub(super) ulpdu_len: usize,
    pub(super) payload_len: usize,
    pub(super) target: Target,
}

impl Segment {
    pub(super) const fn new(header: Header, raw: Option<TerminatedHeader>, ulpdu_len: usize) -> Self {
        let payload_len = ulpdu_len.saturating_sub(header.encoded_len());
        Self { header, raw, ulpdu_len, payload_len, target: Target::Nothing }
    }

    /// Returns a segment with an invalid header: all of it is payload without a target.
    pub(super) const fn unreadable(raw: Option<TerminatedHeader>, ulpdu_len: usize) -> Self {
        let header = Header::Tagged(Tagged { last: true, control: 0, stag: 0, offset: 0 });
        Self { header, raw, ulpdu_len, payload_len: ulpdu_len, target: Target::Nothing }
    }
}

impl Engine {
    /// Checks a segment before any of its payload is placed (RFC 5041 §7.1, RFC 5040 §7.2). `payload` is its range in
    /// the read-ahead, if all of it has arrived.
    pub(super) fn admit(&mut self, segment: &Segment, payload: Range<usize>) -> Result<Target, Violation> {
        let length = segment.payload_len;
        let opcode = rdmap::opcode(segment.header.control())?;
        match segment.header {
            Header::Tagged(header) => self.admit_tagged(&header, opcode, length),
            Header::Untagged(header) => {
                // RFC 5040 §4.1, Figure 3: each opcode has its queue.
                let due = match opcode {
                    Opcode::Write | Opcode::ReadResponse => {
                        return Err(Violation::UnexpectedOpcode(opcode));
                    }
                    Opcode::ReadRequest => queue::READ_REQUEST,
                    Opcode::Terminate => queue::TERMINATE,
                    _ => queue::SEND,
                };
                if header.queue != due {
                    return Err(Violation::Queue { opcode, queue: header.queue });
                }
                match opcode {
                    // Segments that fit these two queues are short: all of their payload is in the read-ahead.
                    Opcode::ReadRequest => {
                        fits(length, rdmap::READ_REQUEST_LEN)?;
                        let request = ReadRequest::decode(self.buffered_range(payload))
                            .filter(|_| header.last)
                            .ok_or(Violation::ReadRequestLength(length));
                        self.accept_read_request(&header, request)?;
                        Ok(Target::Nothing)
                    }
                    Opcode::Terminate => {
                        check_place(&header, FIRST_MSN)?;
                        fits(length, terminate::MAX_LEN)?;
                        if !header.last || length < terminate::CONTROL_LEN {
                            return Err(Violation::TerminateLength(length));
                        }
                        let view = TerminateView::new(self.buffered_range(payload));
                        let cause = view.likely_cause().ok_or(Violation::TerminateLength(length))?;
                        self.handle_terminate(cause);
                        Ok(Target::Nothing)
                    }
                    _ => {
                        let place = self.receives.admit(&header, opcode, length)?;
                        Ok(place.map_or(Target::Nothing, |offset| Target::Message { offset }))
                    }
                }
            }
        }
    }

    fn admit_tagged(&self, header: &Tagged, opcode: Opcode, length: usize) -> Result<Target, Violation> {
        match opcode {
            // RFC 5041 §5.2: STag and offset of a zero-length message are not checked.
            Opcode::Write if length == 0 => Ok(Target::Nothing),
            Opcode::Write => {
                let offset = self.windows.admit_write(header.stag, header.offset, length)?;
                Ok(Target::Window { stag: header.stag, offset })
            }
            Opcode::ReadResponse => Ok(Target::Sink { offset: self.reads.admit(header, length)? }),
            other => Err(Violation::UnexpectedOpcode(other)),
        }
    }

    fn accept_read_request(
        &mut self,
        header: &Untagged,
        request: Result<ReadRequest, Violation>,
    ) -> Result<(), Violation> {
        self.responses.check(header)?;
        let request = request?;
        self.responses.accept(&request, &mut self.windows).inspect_err(|_| self.refused_read = Some(request))
    }

    /// Takes the Read Request that was refused last.
    pub(super) fn take_refused_read(&mut self) -> Option<ReadRequest> {
        self.refused_read.take()
    }

    /// Handles the peer's report of an error of ours (RFC 5040 §5.4), which gets no answer.
    fn handle_terminate(&mut self, cause: TerminateCause) {
        tracing::debug!(%cause, "the peer sent a Terminate");
        self.finish(Disconnected::Terminated(cause));
    }

    /// Applies the effect of a segment that was placed and whose CRC matched.
    pub(super) fn commit(&mut self, segment: Segment, now: Instant) {
        self.counters.segments_received += 1;
        // RFC 5044 §7.1.2 (4): a valid FPDU opens our direction.
        if !std::mem::replace(&mut self.may_send, true) {
            self.timers.stop(Timer::FirstFpdu);
            self.receives.first_fpdu_came();
        }
        self.finished_fpdu();
        if self.phase == Phase::Ended {
            return;
        }
        match (segment.header, segment.target) {
            (Header::Tagged(_), Target::Sink { .. }) => {
                self.counters.tagged_bytes_received += segment.payload_len as u64;
                let finished = self.reads.commit(segment.payload_len);
                if !self.reads.is_waiting() {
                    self.timers.stop(Timer::Read);
                } else if segment.payload_len > 0 || finished.is_some() {
                    // Empty segments before the last are no progress and do not extend the peer's time (I6).
                    self.timers.set(Timer::Read, after(now, self.timeouts.read));
                }
                if let Some(read) = finished {
                    self.complete_read(read, Status::Success);
                }
            }
            (Header::Tagged(_), _) => self.counters.tagged_bytes_received += segment.payload_len as u64,
            (Header::Untagged(header), Target::Message { .. }) => {
                self.commit_send(&segment, header.last, now);
            }
            // A Ready-To-Receive Send counts as a message; a Read Request took effect when it was admitted.
            (Header::Untagged(header), _) => {
                if header.queue == queue::SEND {
                    self.receives.commit(0, true);
                }
            }
        }
        self.settle_windows(Status::Success);
    }

    fn commit_send(&mut self, segment: &Segment, last: bool, now: Instant) {
        let mut waits_for = None;
        let mut invalidated = None;
        if last && let Some(key) = self.receives.invalidates() {
            // RFC 5040 §7.2: the STag must be valid and belong to this stream; §5.3: invalidated before delivery.
            match self.windows.close_remote(key) {
                None => {
                    let violation = Violation::CannotInvalidate(key.0);
                    self.fail_segment(violation, segment.raw, segment.ulpdu_len, None, now);
                    return;
                }
                Some(Closed::Now(memory)) => invalidated = memory.map(|memory| (key, memory)),
                Some(Closed::Later) => waits_for = Some(key),
            }
            self.counters.remote_invalidations += 1;
        }
        if let Some(mut delivery) = self.receives.commit(segment.payload_len, last) {
            delivery.waits_for = waits_for;
            delivery.invalidated = invalidated;
            self.deliveries.push_back(delivery);
        }
    }

    /// Ends the connection without naming a segment, for MPA errors (RFC 5040 §4.8, Figure 10).
    pub(super) fn fail_bare(&mut self, violation: Violation, now: Instant) {
        self.fail(violation, &Terminate::bare(violation.cause()), now);
    }

    /// Ends the connection because of a segment whose CRC matched.
    pub(super) fn fail_segment(
        &mut self,
        violation: Violation,
        raw: Option<TerminatedHeader>,
        ulpdu_len: usize,
        request: Option<ReadRequest>,
        now: Instant,
    ) {
        // The FPDU itself was valid: it opens our direction for the Terminate.
        self.may_send = true;
        let length = u16::try_from(ulpdu_len).unwrap_or(u16::MAX);
        let terminate = Terminate {
            cause: violation.cause(),
            segment: raw.filter(|_| violation.names_segment()).map(|header| (length, header)),
            read_request: request.filter(|_| violation.names_read_request()),
        };
        self.fail(violation, &terminate, now);
    }
}

/// Checks that a message of one segment is the one that is due on its queue (RFC 5041 §7.1).
pub(super) fn check_place(header: &Untagged, due: u32) -> Result<(), Violation> {
    if header.msn != due {
        return Err(Violation::Msn { queue: header.queue, seen: header.msn, due });
    }
    if header.offset != 0 {
        return Err(Violation::Offset { seen: header.offset, due: 0 });
    }
    Ok(())
}

/// Checks that a payload fits the buffers of its queue (RFC 5041 §7.1).
const fn fits(length: usize, capacity: usize) -> Result<(), Violation> {
    if length > capacity { Err(Violation::TooLong { seen: length, capacity }) } else { Ok(()) }
}

const _: () = assert!(TAGGED_LEN < UNTAGGED_LEN, "the shorter header is the one that is read first");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_target_is_lent_without_empty_slices() {
        let mut buffers: Vec<Buffer> = [3, 0, 5, 4].map(|len| Buffer::adopt(vec![0; len])).into();
        for (skip, left, lengths) in [
            (0, 12, vec![3, 5, 4]),
            (1, 4, vec![2, 2]),
            (3, 5, vec![5]),
            (4, 8, vec![4, 4]),
            (12, 1, vec![]),
            (2, 0, vec![]),
        ] {
            let rest = Rest { buffers: buffers.iter_mut(), skip, left };
            assert_eq!(rest.map(|slice| slice.len()).collect::<Vec<_>>(), lengths, "{skip} {left}");
        }
    }
}
