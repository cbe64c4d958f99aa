//! The order in which segments leave.
//!
//! Four lanes take turns, one segment each: express Sends, the send queue, RDMA Read Requests, and Read Responses. The
//! send queue keeps the order of posting. RDMA Read Requests leave the send queue in order but may wait until the peer
//! accepts more. Read Responses keep the order of the requests. So a long Read Response lets Sends through between its
//! segments, and an express Send passes a long Write. A plain Send passes neither the Write posted before it (RFC 5040
//! §5.5 (10), (13)) nor the express Send posted before it.
//!
//! Segments of two tagged messages, or of two untagged ones, never mix: Linux `siw` keeps one receive state for either
//! kind.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, Key, RemoteSegment, Rest, SendRequest, Status, Work, WrId};

use super::gather::Gather;
use super::output::Finish;
use super::timers::{NUDGE_AFTER, NUDGES_MAX, Timer, after};
use super::{DIRECT_PLACEMENT_MIN, Engine, Phase};
use crate::startup::{Role, Rtr};
use crate::wire::ddp::{FIRST_MSN, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, queue};
use crate::wire::rdmap::Opcode;
use crate::wire::terminate::Terminate;

/// Bytes laid out ahead of the socket. Bounds the CRC work in front of a system call, since covered bytes should still
/// be in the cache. Also bounds the wait of a new message behind bulk data.
const BATCH: usize = 256 * 1024;

/// A request of the send queue.
#[derive(Debug)]
pub(super) enum Item {
    Send {
        id: WrId,
        /// Number of this Send, in the order of posting.
        number: u64,
        opcode: Opcode,
        invalidate: u32,
        gather: Gather,
        progress: Option<SendProgress>,
    },
    Write {
        id: WrId,
        cost: usize,
        gather: Gather,
        targets: std::vec::IntoIter<RemoteSegment>,
        target: Option<Target>,
    },
    Read {
        id: WrId,
        sink: Buffer,
        sources: Vec<RemoteSegment>,
        name: (u32, u64),
    },
}

/// A Send with at least one segment laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendProgress {
    msn: u32,
    offset: u32,
    segment: usize,
}

/// The target that a Write is filling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    stag: u32,
    offset: u64,
    left: usize,
    segment: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Express,
    Main,
    Reads,
    Responses,
}

const LANES: [Lane; 4] = [Lane::Express, Lane::Main, Lane::Reads, Lane::Responses];

/// Posted requests that are not completely laid out.
#[derive(Debug)]
pub(super) struct SendQueue {
    main: VecDeque<Item>,
    express: VecDeque<Item>,
    rtr: Option<Rtr>,
    next_send_msn: u32,
    next_read_msn: u32,
    turn: usize,
    /// The lane whose untagged message is partly laid out.
    untagged: Option<Lane>,
    /// The lane whose tagged message is partly laid out.
    tagged: Option<Lane>,
    first_left: bool,
    /// Sends posted so far.
    posted: u64,
    /// Nudges sent so far.
    nudges: u32,
}

impl SendQueue {
    pub(super) const fn new(rtr: Option<Rtr>) -> Self {
        Self {
            main: VecDeque::new(),
            express: VecDeque::new(),
            rtr,
            next_send_msn: FIRST_MSN,
            next_read_msn: FIRST_MSN,
            turn: 0,
            untagged: None,
            tagged: None,
            first_left: false,
            posted: 0,
            nudges: 0,
        }
    }

    /// Queues a Send. An express Send passes queued requests that have not left, except other express Sends. Binds and
    /// invalidations take effect when they are posted, so no Send passes them.
    pub(super) fn push_send(&mut self, id: WrId, send: SendRequest) {
        let number = self.posted;
        self.posted += 1;
        let queue = if send.express { &mut self.express } else { &mut self.main };
        queue.push_back(Item::Send {
            id,
            number,
            opcode: Opcode::send(send.invalidate.is_some(), send.solicited),
            invalidate: send.invalidate.map_or(0, |key| key.0),
            gather: Gather::new(send.gather),
            progress: None,
        });
    }

    pub(super) fn push_write(&mut self, id: WrId, gather: Vec<Bytes>, targets: Vec<RemoteSegment>) {
        self.main.push_back(Item::Write {
            id,
            cost: targets.len().max(1),
            gather: Gather::new(gather),
            targets: targets.into_iter(),
            target: None,
        });
    }

    pub(super) fn push_read(
        &mut self,
        id: WrId,
        sink: Buffer,
        sources: Vec<RemoteSegment>,
        name: (u32, u64),
    ) {
        self.main.push_back(Item::Read { id, sink, sources, name });
    }

    /// Takes the oldest item, after the end of the connection.
    pub(super) fn take(&mut self) -> Option<Item> {
        self.main.pop_front().or_else(|| self.express.pop_front())
    }

    /// Releases memory that only many requests need.
    pub(super) fn rest(&mut self) {
        self.main.rest();
        self.express.rest();
    }

    fn is_empty(&self) -> bool {
        self.main.is_empty() && self.express.is_empty()
    }

    /// Returns whether the next Send of the main lane would pass an express Send that was posted before it.
    fn would_pass_express(&self) -> bool {
        match (self.main.front(), self.express.front()) {
            (Some(Item::Send { number, .. }), Some(Item::Send { number: express, .. })) => express < number,
            _ => false,
        }
    }
}

/// Returns the length of each segment, while the room stays, of a message of `total` bytes when at most `room` bytes fit. Large segments are
/// of equal length, so that no small one remains at the end which the peer would have to copy.
fn even_segment(total: usize, room: usize) -> usize {
    if total <= room || room < 4 * DIRECT_PLACEMENT_MIN {
        return room;
    }
    total.div_ceil(total.div_ceil(room)).next_multiple_of(4).min(room)
}

impl Engine {
    /// Lays out FPDUs as far as they may leave now.
    pub fn prepare(&mut self, now: Instant) {
        match self.phase {
            Phase::Open | Phase::Closing => {}
            Phase::Ended | Phase::Failing | Phase::HalfClosed => return,
        }
        while self.may_send && self.output.queued() < BATCH && self.lay_out_next() {}
        if !self.output.is_empty() {
            self.timers.start(Timer::StalledSend, after(now, self.timeouts.stalled_send));
        }
        if self.reads.is_waiting() {
            self.timers.start(Timer::Read, after(now, self.timeouts.read));
        }
    }

    /// Returns whether any FPDU is to be laid out or written, or awaited from the peer's Read Responses. If not,
    /// [`prepare`](Self::prepare) has no work.
    pub fn has_work(&self) -> bool {
        !(self.output.is_empty()
            && self.sends.is_empty()
            && self.sends.rtr.is_none()
            && self.responses.is_empty()
            && self.reads.is_empty())
    }

    /// Returns whether bytes wait for the socket.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns whether all remaining output has left, so that the driver must close our half of TCP.
    pub fn shutdown_due(&self) -> bool {
        match self.phase {
            Phase::Closing => {
                self.output.is_empty()
                    && self.reads.is_empty()
                    // A Responder that never received an FPDU may not send its queued requests.
                    && (!self.may_send || self.sends.is_empty() && self.responses.is_empty())
            }
            Phase::Failing => self.output.is_empty(),
            Phase::Open | Phase::HalfClosed | Phase::Ended => false,
        }
    }

    /// Returns whether more bytes wait for the socket than one TCP segment takes. The driver should then call
    /// [`set_emss`](Self::set_emss) with the present size before it lends slices.
    pub fn output_exceeds_segment(&self) -> bool {
        self.output.exceeds_segment()
    }

    /// Lends the slices to write by one system call. The flag tells the driver to end a TCP segment behind them
    /// (`MSG_EOR`), so that FPDUs match segments (RFC 5044 §5.1).
    pub fn with_transmit_slices<T>(&self, write: impl FnOnce(&[IoSlice<'_>], bool) -> T) -> T {
        self.output.with_slices(write)
    }

    /// Records that one system call wrote `count` bytes, at least one.
    pub fn transmitted(&mut self, count: usize, now: Instant) {
        self.output.wrote(count);
        self.counters.send_calls += 1;
        self.counters.link_bytes_sent += count as u64;
        while let Some(finish) = self.output.take_finished() {
            match finish {
                Finish::Nothing | Finish::Terminate => {}
                Finish::Send(id) => self.complete(id, 1, Status::Success, Work::Send),
                Finish::Write(id, cost) => self.complete(id, cost, Status::Success, Work::Write),
                Finish::ReadResponse(source) => {
                    self.responses.finished();
                    if let Some(stag) = source {
                        self.windows.end_reading(stag);
                        self.settle_windows(Status::Success);
                    }
                }
            }
        }
        if self.output.is_empty() {
            self.timers.stop(Timer::StalledSend);
            if !std::mem::replace(&mut self.sends.first_left, true)
                && self.role == Role::Initiator
                && !self.heard
            {
                self.timers.set(Timer::Nudge, now + NUDGE_AFTER);
            }
        } else {
            self.timers.set(Timer::StalledSend, after(now, self.timeouts.stalled_send));
        }
        if self.phase == Phase::Closing {
            // Posted work still leaves, without a limit of time: its user has a timer for the expected result.
            self.timers.set(Timer::Linger, after(now, self.timeouts.linger));
        }
    }

    /// Lays out one segment of the next lane that has one.
    fn lay_out_next(&mut self) -> bool {
        // RFC 6581 §5: nothing leaves before the Ready-To-Receive message.
        if let Some(rtr) = self.sends.rtr.take() {
            self.lay_out_rtr(rtr);
            return true;
        }
        for _ in 0..LANES.len() {
            let lane = LANES.get(self.sends.turn).copied().unwrap_or(Lane::Main);
            self.sends.turn = (self.sends.turn + 1) % LANES.len();
            let done = match lane {
                Lane::Express => self.lay_out_send(Lane::Express),
                Lane::Main => match self.sends.main.front() {
                    Some(Item::Send { .. }) => self.lay_out_send(Lane::Main),
                    Some(Item::Write { .. }) => self.lay_out_write(),
                    Some(Item::Read { .. }) => self.move_read(),
                    None => false,
                },
                Lane::Reads => self.lay_out_read_request(),
                Lane::Responses => self.lay_out_response(),
            };
            if done {
                return true;
            }
        }
        false
    }

    fn lay_out_rtr(&mut self, rtr: Rtr) {
        match rtr {
            Rtr::Write => self.lay_out_empty_write(),
            Rtr::Send => {
                let header = Untagged {
                    last: true,
                    control: Opcode::Send.control(),
                    invalidate: 0,
                    queue: queue::SEND,
                    msn: self.sends.next_send_msn,
                    offset: 0,
                };
                self.sends.next_send_msn = self.sends.next_send_msn.wrapping_add(1);
                self.output.fpdu(&[&header.encode()], &mut Gather::default(), 0, Finish::Nothing);
            }
            Rtr::Read => {
                let name = self.windows.fresh_name(0);
                let nothing = RemoteSegment { key: Key(0), address: 0, length: 0 };
                self.reads.push(None, Buffer::adopt(Vec::new()), name, vec![nothing]);
                self.lay_out_read_request();
            }
        }
    }

    /// Lays out a zero-length RDMA Write: its STag and offset are not checked (RFC 5041 §5.2).
    fn lay_out_empty_write(&mut self) {
        let header = Tagged { last: true, control: Opcode::Write.control(), stag: 0, offset: 0 };
        self.output.fpdu(&[&header.encode()], &mut Gather::default(), 0, Finish::Nothing);
    }

    /// Sends a silent peer another TCP segment, unless one is on its way anyway. The first data from the peer stops the
    /// timer.
    pub(super) fn nudge(&mut self, now: Instant) {
        if self.phase != Phase::Open {
            return;
        }
        if self.output.is_empty() {
            tracing::debug!(before = self.sends.nudges, "the peer is silent: nudging it");
            self.lay_out_empty_write();
        }
        self.sends.nudges += 1;
        if self.sends.nudges < NUDGES_MAX {
            self.timers.set(Timer::Nudge, now + NUDGE_AFTER * (1 << self.sends.nudges));
        }
    }

    /// Lays out a Terminate. No other message follows (RFC 5040 §5.4).
    pub(super) fn lay_out_terminate(&mut self, terminate: &Terminate) {
        let header = Untagged {
            last: true,
            control: Opcode::Terminate.control(),
            invalidate: 0,
            queue: queue::TERMINATE,
            msn: FIRST_MSN,
            offset: 0,
        };
        let (bytes, used) = terminate.encode();
        let body = bytes.get(..used).unwrap_or_default();
        self.output.fpdu(&[&header.encode(), body], &mut Gather::default(), 0, Finish::Terminate);
    }

    fn lay_out_send(&mut self, lane: Lane) -> bool {
        let sends = &mut self.sends;
        if sends.untagged.is_some_and(|owner| owner != lane)
            || (lane == Lane::Main && sends.would_pass_express())
        {
            return false;
        }
        let queue = if lane == Lane::Express { &mut sends.express } else { &mut sends.main };
        let Some(Item::Send { id, opcode, invalidate, gather, progress, .. }) = queue.front_mut() else {
            return false;
        };
        let room = self.max_ulpdu.saturating_sub(UNTAGGED_LEN);
        let state = *progress.get_or_insert_with(|| {
            let msn = sends.next_send_msn;
            sends.next_send_msn = msn.wrapping_add(1);
            SendProgress { msn, offset: 0, segment: even_segment(gather.remaining(), room) }
        });
        let length = gather.remaining().min(state.segment).min(room);
        let last = length == gather.remaining();
        let header = Untagged {
            last,
            control: opcode.control(),
            invalidate: *invalidate,
            queue: queue::SEND,
            msn: state.msn,
            offset: state.offset,
        };
        let advanced = u32::try_from(length).unwrap_or(u32::MAX);
        *progress = Some(SendProgress { offset: state.offset.wrapping_add(advanced), ..state });
        let finish = if last { Finish::Send(*id) } else { Finish::Nothing };
        self.output.fpdu(&[&header.encode()], gather, length, finish);
        sends.untagged = (!last).then_some(lane);
        if last {
            queue.pop_front();
        }
        true
    }

    fn lay_out_write(&mut self) -> bool {
        let sends = &mut self.sends;
        if sends.tagged.is_some_and(|owner| owner != Lane::Main) {
            return false;
        }
        let Some(Item::Write { id, cost, gather, targets, target }) = sends.main.front_mut() else {
            return false;
        };
        let (id, cost) = (*id, *cost);
        let room = self.max_ulpdu.saturating_sub(TAGGED_LEN);
        if target.is_none() {
            // Targets of length 0 get no message, unless the Write is empty and has only this target.
            let only = gather.remaining() == 0 && targets.len() == 1;
            *target = targets.find(|target| target.length > 0 || only).map(|target| {
                let left = usize::try_from(target.length).unwrap_or(usize::MAX).min(gather.remaining());
                let segment = even_segment(left, room);
                Target { stag: target.key.0, offset: target.address, left, segment }
            });
            if target.is_none() || gather.remaining() == 0 && !only {
                sends.main.pop_front();
                self.complete(id, cost, Status::Success, Work::Write);
                return true;
            }
        }
        let Some(state) = target.as_mut() else { return false };
        let length = state.left.min(state.segment).min(room);
        let last = length == state.left;
        let done = last && length == gather.remaining();
        let header =
            Tagged { last, control: Opcode::Write.control(), stag: state.stag, offset: state.offset };
        state.offset = state.offset.wrapping_add(length as u64);
        state.left -= length;
        if last {
            *target = None;
        }
        let finish = if done { Finish::Write(id, cost) } else { Finish::Nothing };
        self.output.fpdu(&[&header.encode()], gather, length, finish);
        sends.tagged = (!last).then_some(Lane::Main);
        if done {
            sends.main.pop_front();
        }
        true
    }

    /// Moves a Read from the front of the send queue to its own lane, where it may wait until the peer accepts more.
    fn move_read(&mut self) -> bool {
        if let Some(Item::Read { id, sink, sources, name }) = self.sends.main.pop_front() {
            self.reads.push(Some(id), sink, name, sources);
        }
        true
    }

    fn lay_out_read_request(&mut self) -> bool {
        if self.sends.untagged.is_some() || !self.reads.has_room() {
            return false;
        }
        let Some(request) = self.reads.next_request() else { return false };
        let header = Untagged {
            last: true,
            control: Opcode::ReadRequest.control(),
            invalidate: 0,
            queue: queue::READ_REQUEST,
            msn: self.sends.next_read_msn,
            offset: 0,
        };
        self.sends.next_read_msn = self.sends.next_read_msn.wrapping_add(1);
        self.output.fpdu(&[&header.encode(), &request.encode()], &mut Gather::default(), 0, Finish::Nothing);
        true
    }

    fn lay_out_response(&mut self) -> bool {
        if self.sends.tagged.is_some_and(|owner| owner != Lane::Responses) {
            return false;
        }
        let Some(response) = self.responses.front() else { return false };
        let room = self.max_ulpdu.saturating_sub(TAGGED_LEN);
        let segment = *response.segment.get_or_insert_with(|| even_segment(response.data.remaining(), room));
        let length = response.data.remaining().min(segment).min(room);
        let last = length == response.data.remaining();
        let header = Tagged {
            last,
            control: Opcode::ReadResponse.control(),
            stag: response.stag,
            offset: response.offset,
        };
        response.offset = response.offset.wrapping_add(length as u64);
        let finish = if last { Finish::ReadResponse(response.source) } else { Finish::Nothing };
        self.output.fpdu(&[&header.encode()], &mut response.data, length, finish);
        self.sends.tagged = (!last).then_some(Lane::Responses);
        if last {
            self.responses.pop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pair::{Pair, Setup, pattern};
    use crate::wire::ddp::HeaderView;
    use crate::wire::fpdu::FpduView;

    /// Returns the queue and MSN of each untagged segment of a stream of short FPDUs.
    fn places(mut stream: &[u8]) -> Vec<(u32, u32)> {
        let mut places = Vec::new();
        while let Some(ulpdu) = FpduView::new(stream).ulpdu() {
            let header = HeaderView::new(ulpdu);
            if header.is_tagged() == Some(false) {
                places.extend(header.untagged().map(|header| (header.queue, header.msn)));
            }
            stream = &stream[FpduView::new(stream).fpdu_len().unwrap()..];
        }
        places
    }

    /// Both ends count over 2^32.
    // requirement: rfc5040-5.2.1-5, rfc5041-4.3-7, rfc5041-4.3-8, rfc5041-4.3-9
    #[test]
    fn rfc5041_4_3_msns_begin_with_one_and_wrap_to_zero() {
        let mut pair = Pair::new(&Setup::default());
        let source = pair.server.open_read(pattern(10));
        let exchange = |pair: &mut Pair| {
            let receive = pair.server.receive(10);
            pair.client.send(b"hello");
            let read = pair.client.read(source);
            let stream = pair.client.transmit(pair.now);
            pair.server.take_whole(&stream, pair.now);
            assert_eq!(pair.server.message(receive), b"hello");
            pair.run();
            assert_eq!(pair.client.sink(read), pattern(10));
            places(&stream)
        };
        assert_eq!(exchange(&mut pair), [(queue::SEND, 1), (queue::READ_REQUEST, 1)]);
        assert_eq!(exchange(&mut pair), [(queue::SEND, 2), (queue::READ_REQUEST, 2)]);
        pair.client.engine.sends.next_send_msn = u32::MAX;
        pair.client.engine.sends.next_read_msn = u32::MAX;
        pair.server.engine.receives.expect_msn(u32::MAX);
        pair.server.engine.responses.expect_msn(u32::MAX);
        for msn in [u32::MAX, 0, 1] {
            assert_eq!(exchange(&mut pair), [(queue::SEND, msn), (queue::READ_REQUEST, msn)]);
        }
    }

    /// A long Send has begun. An express Send and an RDMA Read Request that may leave now wait for its end.
    // requirement: rfc5041-5.3-2
    #[test]
    fn segments_of_two_untagged_messages_never_mix() {
        let mut pair = Pair::open(&Setup { emss: 1448, ird: 1, ord: 1, ..Setup::default() });
        let sources = [pair.server.open_read(pattern(10)), pair.server.open_read(pattern(20))];
        let reads = sources.map(|source| pair.client.read(source));
        let request = pair.client.transmit(pair.now);
        pair.server.take_whole(&request, pair.now);
        let response = pair.server.transmit(pair.now);
        let receives = [pair.server.receive(1 << 20), pair.server.receive(10)];
        pair.client.send(&pattern(1 << 20));
        let mut stream = pair.client.transmit_some(usize::MAX, pair.now);
        pair.client.take_whole(&response, pair.now);
        let express = SendRequest {
            gather: vec![Bytes::from_static(b"express")],
            express: true,
            ..SendRequest::default()
        };
        pair.client.post(rpcrdma_verbs::WorkRequest::Send(express));
        stream.extend_from_slice(&pair.client.transmit(pair.now));
        let mut order = places(&stream);
        order.dedup();
        assert_eq!(order[0], (queue::SEND, 2));
        order.sort_unstable();
        assert_eq!(order, [(queue::SEND, 2), (queue::SEND, 3), (queue::READ_REQUEST, 2)]);
        pair.server.take_whole(&stream, pair.now);
        assert_eq!(pair.server.message(receives[0]), pattern(1 << 20));
        assert_eq!(pair.server.message(receives[1]), b"express");
        pair.run();
        assert_eq!(pair.client.sink(reads[0]), pattern(10));
        assert_eq!(pair.client.sink(reads[1]), pattern(20));
    }

    // requirement: rfc5044-4.5-3
    #[test]
    fn large_segments_are_even_and_small_ones_are_full() {
        const LEAST: usize = 4 * DIRECT_PLACEMENT_MIN;
        for (total, room, segment) in [
            (LEAST, LEAST, LEAST),
            (LEAST + 4, LEAST, LEAST / 2 + 4),
            (LEAST + 4, LEAST - 1, LEAST - 1),
            (5001, 5000, 5000),
            (100, 1000, 1000),
        ] {
            assert_eq!(even_segment(total, room), segment, "{total} {room}");
        }
    }
}
