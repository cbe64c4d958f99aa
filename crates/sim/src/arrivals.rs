//! The receiving half of an end: checks, places and delivers the frames that arrive.
//!
//! Bytes go straight to their window, sink or Receive, segment by segment. When a connection ends in the middle of a
//! message, part of the message may have been placed, but nothing is delivered. An error of the peer ends the
//! connection. The peer learns of it by a Terminate, and by a failed acknowledgement if there are any.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{Completion, Disconnected, Key, RemoteSegment, Status, Work};

use crate::end::{End, Env};
use crate::link::{Frame, Link, SendEnd};
use crate::transmit::Response;
use crate::window::Refusal;
use crate::{Action, Delivery, MessageKind, Step};

/// The result of handling one frame.
enum Handled {
    Done,
    /// The frame must wait until Read Responses have left.
    Wait(Frame),
}

impl End {
    /// Handles frames that have arrived, until none is left or the end must wait.
    pub(crate) fn handle_arrivals(&mut self, env: &mut Env<'_>, inbound: &mut Link, outbound: &mut Link) {
        if self.ended.is_none()
            && self.gives_up_at(inbound, outbound, env.config).is_some_and(|time| time <= env.now)
        {
            // The frame arrives if the link comes back before the peer gives up too.
            outbound.put(env.now, Frame::Reset("the peer gave up"), env.config, env.rng);
            self.end(env, Disconnected::Timeout("the link is dead"));
        }
        self.stalled = false;
        while self.ended.is_none()
            && let Some((at, frame)) = inbound.take(env.now)
        {
            match env.fault(self.side, Step::Segment(self.segments)) {
                None => {}
                Some(Action::Delay(time)) => {
                    inbound.put_back(at, frame);
                    inbound.delay(env.now, time);
                    continue;
                }
                Some(_) => {
                    self.lose_link(env, outbound);
                    break;
                }
            }
            let bytes = u64::try_from(frame.link_len()).unwrap_or(u64::MAX);
            let before = self.delivered;
            match self.handle(env, outbound, at, frame) {
                Handled::Done => {
                    self.segments += 1;
                    if bytes > 0 {
                        self.counters.segments_received += 1;
                        self.counters.link_bytes_received += bytes;
                    }
                }
                Handled::Wait(frame) => {
                    inbound.put_back(at, frame);
                    self.stalled = true;
                    break;
                }
            }
            if self.delivered > before && self.ended.is_none() {
                match env.fault(self.side, Step::Delivered(before)) {
                    None => {}
                    Some(Action::Delay(time)) => inbound.delay(env.now, time),
                    Some(_) => self.lose_link(env, outbound),
                }
            }
        }
        if self.ended.is_some() {
            inbound.clear();
        }
    }

    fn handle(&mut self, env: &mut Env<'_>, outbound: &mut Link, at: Duration, frame: Frame) -> Handled {
        let refused = match frame {
            Frame::Send { seq, offset, data, end } => {
                match self.handle_send(env, outbound, at, (seq, offset, &data, end)) {
                    Ok(true) => return Handled::Done,
                    Ok(false) => return Handled::Wait(Frame::Send { seq, offset, data, end }),
                    Err(refusal) => (Some(seq), refusal),
                }
            }
            Frame::Write { seq, key, address, data, last, end } => {
                match self.handle_write(env, at, key, address, &data, last) {
                    Ok(()) => {
                        if end {
                            self.acknowledge(env, outbound, at, seq, Status::Success);
                        }
                        return Handled::Done;
                    }
                    Err(refusal) => (Some(seq), refusal),
                }
            }
            Frame::ReadRequest { seq, source } => match self.handle_read_request(env, at, source) {
                Ok(()) => return Handled::Done,
                Err(refusal) => (Some(seq), refusal),
            },
            Frame::ReadResponse { data, last } => match self.handle_read_response(env, at, &data, last) {
                Ok(()) => return Handled::Done,
                Err(refusal) => (None, refusal),
            },
            Frame::Ack { seq, status } => {
                self.completions.done(seq, at, status, None, env.rng);
                return Handled::Done;
            }
            Frame::Terminate(cause) => {
                self.tap(env, at, MessageKind::Terminate, 0, None, None, Bytes::new());
                self.end(env, Disconnected::Terminated(cause));
                return Handled::Done;
            }
            Frame::Close => {
                outbound.put(env.now, Frame::Close, env.config, env.rng);
                let reason = if self.closing.is_some() { Disconnected::Local } else { Disconnected::Peer };
                self.end(env, reason);
                return Handled::Done;
            }
            Frame::Reset(reason) => {
                self.end(env, Disconnected::Link(reason.to_owned()));
                return Handled::Done;
            }
        };
        let (seq, refusal) = refused;
        if let Some(seq) = seq {
            self.acknowledge(env, outbound, at, seq, refusal.status);
        }
        self.tell(env, outbound, &refusal);
        if refusal.is_too_long()
            && let Some(received) = self.receives.abandon()
        {
            self.receive_failed(env, received, Status::LocalLength);
        }
        self.end(env, Disconnected::ProtocolError(refusal.detail));
        Handled::Done
    }

    /// Places a segment of a Send, and delivers the message if the segment is its last. Returns `false` if the segment
    /// must be handled once more, after Read Responses of the window that it invalidates have left.
    fn handle_send(
        &mut self,
        env: &mut Env<'_>,
        outbound: &mut Link,
        at: Duration,
        (seq, offset, data, end): (u64, usize, &[u8], Option<SendEnd>),
    ) -> Result<bool, Refusal> {
        self.receives.place(offset, data)?;
        let Some(SendEnd { invalidate, solicited }) = end else { return Ok(true) };
        let mut invalidated = None;
        if let Some(key) = invalidate {
            if !self.windows.is_open(key) {
                let detail = format!("Send with Invalidate of unknown key {:#010x}", key.0);
                return Err(Refusal::operation(9, detail));
            }
            if self.windows.has_responses(key) {
                return Ok(false);
            }
            invalidated = self.windows.remove(key, env.keys).map(|memory| (key, memory));
            self.counters.remote_invalidations += 1;
        }
        let Some(received) = self.receives.finish() else { return Ok(true) };
        if env.taps.is_some() {
            let message: Vec<u8> = received
                .buffers
                .iter()
                .flat_map(|buffer| buffer.iter())
                .take(received.len)
                .copied()
                .collect();
            self.tap(env, at, MessageKind::Send, received.len, invalidate, None, message.into());
        }
        let work = Work::Receive { buffers: received.buffers, len: received.len, invalidated, solicited };
        self.completions.push(at, Completion { id: received.id, status: Status::Success, work }, env.rng);
        self.delivered += 1;
        self.acknowledge(env, outbound, at, seq, Status::Success);
        Ok(true)
    }

    fn handle_write(
        &mut self,
        env: &mut Env<'_>,
        at: Duration,
        key: Key,
        address: u64,
        data: &[u8],
        last: bool,
    ) -> Result<(), Refusal> {
        // RFC 5041 §5.2: a zero-length tagged message checks nothing.
        if !data.is_empty() {
            self.windows.writable(key, address, data.len())?.copy_from_slice(data);
            self.counters.tagged_bytes_received += u64::try_from(data.len()).unwrap_or(u64::MAX);
            self.write_len += data.len();
        }
        if last {
            let len = std::mem::take(&mut self.write_len);
            let end = address.wrapping_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            let start = end.wrapping_sub(u64::try_from(len).unwrap_or(u64::MAX));
            self.tap(env, at, MessageKind::Write, len, Some(key), Some(start), Bytes::new());
            self.delivered += 1;
        }
        Ok(())
    }

    fn handle_read_request(
        &mut self,
        env: &mut Env<'_>,
        at: Duration,
        source: RemoteSegment,
    ) -> Result<(), Refusal> {
        if self.responses.len() >= usize::from(self.capabilities.ird) {
            let detail = format!("more than {} RDMA Reads outstanding", self.capabilities.ird);
            return Err(Refusal::operation(7, detail));
        }
        // RFC 5040 §5.4: a Read of size 0 checks nothing.
        let (key, data) = if source.length == 0 {
            (None, Bytes::new())
        } else {
            (Some(source.key), self.windows.readable(source)?)
        };
        let length = usize::try_from(source.length).unwrap_or(usize::MAX);
        let (named, address) = (Some(source.key), Some(source.address));
        self.tap(env, at, MessageKind::ReadRequest, length, named, address, Bytes::new());
        self.responses.push_back(Response { key, data, ready_at: at });
        self.delivered += 1;
        Ok(())
    }

    fn handle_read_response(
        &mut self,
        env: &mut Env<'_>,
        at: Duration,
        data: &[u8],
        last: bool,
    ) -> Result<(), Refusal> {
        let Some(part) = self.reads_outstanding.front_mut() else {
            return Err(Refusal::operation(6, "a Read Response without a Read Request".to_owned()));
        };
        let end = part.sink_offset + data.len();
        let target = self.completions.sink(part.seq).and_then(|sink| sink.get_mut(part.sink_offset..end));
        let (Some(target), true) = (target, data.len() <= part.missing) else {
            return Err(Refusal::operation(7, "a Read Response longer than the Read".to_owned()));
        };
        target.copy_from_slice(data);
        part.sink_offset = end;
        part.missing -= data.len();
        self.read += u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.counters.tagged_bytes_received += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if last && let Some(part) = self.reads_outstanding.pop_front() {
            let length = usize::try_from(part.source.length).unwrap_or(usize::MAX);
            self.tap(env, at, MessageKind::ReadResponse, length, None, None, Bytes::new());
            self.completions.read_answered(part.seq, at, env.rng);
            self.delivered += 1;
            // A Read that waited for the limit of outstanding Reads may leave from now on.
            if let Some(waiting) = self.reads_waiting.front_mut() {
                waiting.ready_at = waiting.ready_at.max(at);
            }
        }
        Ok(())
    }

    /// Reports the result of the peer's request, if completions are acknowledged.
    fn acknowledge(
        &mut self,
        env: &mut Env<'_>,
        outbound: &mut Link,
        at: Duration,
        seq: u64,
        status: Status,
    ) {
        if env.acknowledged() {
            outbound.put(at, Frame::Ack { seq, status }, env.config, env.rng);
        }
    }

    /// Reports to the peer why the connection ends.
    fn tell(&mut self, env: &mut Env<'_>, outbound: &mut Link, refusal: &Refusal) {
        self.put(env, outbound, env.now, Frame::Terminate(refusal.cause));
    }

    #[allow(clippy::too_many_arguments)]
    fn tap(
        &self,
        env: &mut Env<'_>,
        at: Duration,
        kind: MessageKind,
        length: usize,
        key: Option<Key>,
        address: Option<u64>,
        message: Bytes,
    ) {
        let (connection, from) = (env.connection, self.side.other());
        if let Some(taps) = &mut env.taps {
            taps.push(Delivery { at, connection, from, kind, length, key, address, message });
        }
    }
}
