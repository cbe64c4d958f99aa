//! Completions and received messages. Each message is decoded, its direction is determined, and one of the halves
//! handles it. In Version Two, [`Two`](crate::two::Two) handles a message first.
//!
//! The memory of a message is shared from here on. *Errors*: [`Halves::fault`](super::Halves::fault) handles a fault of
//! a message.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Buffer, Completion, Key, PostErrorKind, Status, WindowMemory, Work, WrId};
use rpcrdma_xdr::{CopyCount, Padding, Payload};

use super::halves::usually;
use super::{Arrived, Connection, Outcome, State};
use crate::config::Side;
use crate::event::CloseReason;
use crate::outbound::Origin;
use crate::reads::Owner;
use crate::requester::Received;
use crate::responder::{CALL, REPLY, ReceivedCall, rpc_prefix};
use crate::two::receiving::direction_mismatch;
use crate::wire::{Body, ChunkLists, Direction, Fixed, Header, ProtocolError, Taken};

impl Connection {
    /// Handles the completion of a request or Receive, or a flushed window.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        if self.state == State::Closed {
            return;
        }
        let Completion { id, status, work } = completion;
        // A flushed request must not be posted again, since that would never end.
        self.ended |= status == Status::Flushed;
        if let Work::WindowFlushed { key, memory } = work {
            self.at_rest = false;
            if let Some(xid) = self.requester.window_closed(&mut self.core, key, Some(memory)) {
                self.requester.complete_if_closed(&mut self.core, xid);
            }
            return;
        }
        let Some(origin) = self.core.complete(id, Some(now)) else { return };
        // A Send leaves nothing but space in the send queue, and at rest no request waits for that.
        self.at_rest &= origin == Origin::Send && status.is_success();
        match (origin, work) {
            (Origin::Receive, Work::Receive { buffers, len, invalidated, .. }) => {
                let message = status.is_success().then(|| self.join(buffers, len));
                let owner = invalidated.and_then(|window| self.invalidated(window, message.as_deref()));
                match message {
                    Some(message) => self.handle_message(now, message),
                    None => self.work_failed(status),
                }
                // This may be the last window of a call that has its answer already.
                if let Some(owner) = owner {
                    self.requester.complete_if_closed(&mut self.core, owner);
                    self.window_freed();
                }
            }
            (Origin::Invalidate { xid, window, key }, Work::LocalInvalidate { memory }) => {
                if status.is_success() || memory.is_some() {
                    self.requester.handle_invalidated(&mut self.core, xid, (window, key), memory);
                    self.window_freed();
                } else if status != Status::Flushed {
                    // Rule I2: the connection ends before the call does.
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Read { owner, chunk, part }, Work::Read { sink }) => {
                if let Owner::Call(token) = owner {
                    self.responder.note_read(token, status);
                }
                let pulled = self.core.handle_read(now, owner, (chunk, part), status, sink);
                match (owner, pulled) {
                    (Owner::Reply(xid), Some(pulled)) => {
                        self.requester.handle_pulled(&mut self.core, now, xid, pulled);
                    }
                    (Owner::Call(token), Some(pulled)) => {
                        self.responder.handle_pulled(&mut self.core, token, pulled);
                    }
                    (_, None) => {}
                }
            }
            (Origin::Conceal { token, key }, Work::LocalInvalidate { memory }) => {
                if status.is_success() || memory.is_some() {
                    self.core.concealed(token, key);
                    self.window_freed();
                } else if status != Status::Flushed {
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Release, Work::LocalInvalidate { .. }) => {
                self.core.windows = self.core.windows.saturating_sub(1);
                self.window_freed();
            }
            _ => self.work_failed(status),
        }
    }

    /// Retries the calls and answers that wait for a window, since one is free.
    fn window_freed(&mut self) {
        self.requester.window_freed();
        self.responder.window_freed(&mut self.core);
    }

    /// Takes back the window that the peer's Send has invalidated, even if the message is bad; returns the XID of its
    /// call.
    fn invalidated(&mut self, (key, memory): (Key, WindowMemory), message: Option<&[u8]>) -> Option<u32> {
        let said = message.and_then(|message| Fixed::decode(message).ok()).map(|fixed| fixed.xid);
        let foreign = said.filter(|xid| self.requester.belongs_to_other(key, *xid));
        let owner = self.requester.window_closed(&mut self.core, key, Some(memory))?;
        self.requester.count_remote(&mut self.core, owner);
        if let Some(xid) = foreign {
            self.halves().fault(ProtocolError::ForeignInvalidation { xid }, Taken::AsReply, None);
        }
        Some(owner)
    }

    /// Ends the connection for a failed work request; a flushed one only follows from another end.
    fn work_failed(&mut self, status: Status) {
        if !matches!(status, Status::Success | Status::Flushed) {
            self.core.fail(CloseReason::WorkFailed(status));
        }
    }

    /// Handles a request or Receive that could not be posted. After [`PostErrorKind::Disconnected`] the end of the
    /// queue pair is awaited.
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        self.at_rest = false;
        self.core.complete(id, None);
        if *kind == PostErrorKind::Disconnected {
            self.ended = true;
        } else {
            tracing::debug!(side = %self.core.side(), %kind, "request not posted");
            self.core.fail(CloseReason::WorkFailed(Status::Fatal));
        }
    }

    /// Returns the bytes of a received message; copies only if they lie in several Buffers.
    fn join(&mut self, mut buffers: Vec<Buffer>, len: usize) -> Bytes {
        if let [buffer] = buffers.as_mut_slice() {
            buffer.truncate(len);
            return buffers.pop().map(Buffer::freeze).unwrap_or_default();
        }
        let mut message = BytesMut::with_capacity(len);
        for buffer in &buffers {
            let left = len - message.len();
            message.extend_from_slice(buffer.get(..left.min(buffer.len())).unwrap_or_default());
        }
        self.core.stats.copied(CopyCount { inline: message.len(), payload: 0 });
        message.freeze()
    }

    fn handle_message(&mut self, now: Instant, message: Bytes) {
        if self.state != State::Open || self.core.failure.is_some() {
            return;
        }
        self.last_activity = now;
        let fixed = match Fixed::decode(&message) {
            Ok(fixed) => fixed,
            Err(error) => {
                let counted = self.core.count_received(false, None);
                return self.fault_unread(counted.err().unwrap_or(error));
            }
        };
        let decoded = self.decode(fixed, &message);
        let is_grant = matches!(&decoded, Ok((Header { body: Body::Two(body), .. }, _)) if body.is_grant());
        if let Err(error) = self.core.count_received(is_grant, Some(fixed)) {
            return self.fault_unread(error);
        }
        if self.core.codec.rules().two.is_some() {
            return self.handle_two(now, fixed, decoded, message);
        }
        match decoded {
            Ok((header, header_len)) => self.take(now, fixed, Arrived::alone(header, header_len, message)),
            Err(error) => {
                let mut halves = self.halves();
                let taken = halves.taken_unread(&error, fixed.xid);
                halves.fault(error, taken, Some(fixed));
            }
        }
    }

    /// Discards a message that was not decoded.
    fn fault_unread(&mut self, error: ProtocolError) {
        let mut halves = self.halves();
        halves.fault(error, halves.usually(), None);
    }

    /// Handles a message in Version Two.
    fn handle_two(
        &mut self,
        now: Instant,
        fixed: Fixed,
        decoded: Result<(Header, usize), ProtocolError>,
        message: Bytes,
    ) {
        if let Ok((header, _)) = &decoded {
            self.confirm(&header.body);
        }
        let (Some(two), mut halves) = self.split() else { return };
        match two.receive(&mut halves, now, fixed, decoded, message) {
            Outcome::Done => {}
            Outcome::Message(arrived) => self.take(now, fixed, arrived),
            Outcome::Several(messages) => {
                messages.into_iter().for_each(|message| self.handle_message(now, message));
            }
        }
    }

    /// Records a Call or reply for Version Two.
    fn rpc_taken(&mut self) {
        if let Some(two) = &mut self.two {
            two.rpc_taken();
        }
    }

    /// Handles a complete message.
    fn take(&mut self, now: Instant, fixed: Fixed, arrived: Arrived) {
        let Arrived { header, header_len, payload, continued, len, group } = arrived;
        let Header { xid, credit, direction: said, invalidate, .. } = header;
        let (mut lists, payload, padded) = match header.body {
            Body::Message(lists) => (lists, Some(payload), None),
            Body::NoMessage(lists) => (lists, None, None),
            Body::Padded { align, threshold, lists } => (lists, Some(payload), Some((align, threshold))),
            Body::Done => {
                // RFC 8166 §4.6.2
                if let Err(error) = self.core.handle_done(now, xid) {
                    self.halves().fault(error, Taken::AsReply, None);
                }
                return;
            }
            Body::Error(error) => {
                if let Err(error) = self.requester.handle_error(&mut self.core, now, xid, credit, error) {
                    self.halves().fault(error, Taken::AsReply, None);
                }
                return;
            }
            // Version Two has handled this message.
            Body::Two(_) => return,
        };
        // The direction comes first: a fault of a reply is never answered, a fault of a Call always (RFC 8166 §4.5).
        let taken = match self.direction(xid, said, &lists, payload.as_ref()) {
            Ok(taken) => taken,
            Err((error, taken)) => return self.halves().fault(error, taken, Some(fixed)),
        };
        let padding = match self.retired_forms(&mut lists, padded, header_len) {
            Ok(padding) => padding,
            Err(error) => return self.halves().fault(error, taken, Some(fixed)),
        };
        match taken {
            Taken::AsReply => {
                let received = Received { xid, credit, lists, payload, padding, continued, len };
                match self.requester.handle_reply(&mut self.core, now, received) {
                    Ok(()) => self.rpc_taken(),
                    Err(error) => self.halves().fault(error, Taken::AsReply, None),
                }
            }
            Taken::AsCall => {
                let Some(charge) = self.halves().admit(Some(credit)) else { return };
                self.rpc_taken();
                let call = ReceivedCall { xid, lists, invalidate, payload, padding, continued, len, group };
                if let Err((error, charge)) = self.responder.handle_call(&mut self.core, call, charge) {
                    self.halves().refuse_call(error, fixed, charge);
                }
            }
        }
    }

    /// Checks the retired forms of a message, and takes the pads out of its lists; returns the padding of an RDMA_MSGP.
    fn retired_forms(
        &self,
        lists: &mut ChunkLists,
        padded: Option<(u32, u32)>,
        header: usize,
    ) -> Result<Option<Padding>, ProtocolError> {
        if lists.read.is_empty() && padded.is_none() {
            return Ok(None);
        }
        let retired = self.core.retired.as_deref();
        // RFC 8166 §3.4.5, §4.6.1
        let found = [
            lists.has_padding().then_some(ProtocolError::PaddingSegment),
            lists.pad_chunk().map(|position| ProtocolError::UnalignedPosition { position }),
            padded.map(|_| ProtocolError::PaddedMessage),
        ];
        let is_refused = |error: &ProtocolError| retired.is_none_or(|retired| !retired.accepts(error));
        match found.into_iter().flatten().find(is_refused) {
            Some(refusal) => Err(refusal),
            None => retired.map_or(Ok(None), |retired| {
                retired.take_forms(lists, padded, header, &self.core.config.limits)
            }),
        }
    }

    /// Returns the direction of a message whose header decoded (RFC 8167 §2.4.1, §4.1).
    fn direction(
        &self,
        xid: u32,
        said: Option<Direction>,
        lists: &ChunkLists,
        payload: Option<&Payload>,
    ) -> Result<Taken, (ProtocolError, Taken)> {
        let said = said.map(Taken::from);
        let Some(payload) = payload else {
            // RFC 8166 §4.5.2
            if lists.is_empty() {
                return Err((ProtocolError::NoChunks, said.unwrap_or(usually(self.core.side()))));
            }
            // version-two-01 §4.2.2
            if let Some(said) = said {
                return Ok(said);
            }
            // The direction word is not here yet. Only a Call has a Position-Zero chunk, and only a reply a filled
            // Reply chunk. By RFC 5666 §5.1 an awaited reply may have a Position-Zero chunk too, but not in the reverse
            // direction, where the two would look alike.
            let exposed = self.core.reads_replies() && self.requester.awaits(xid);
            let reply = (exposed || !lists.has_position_zero())
                && (self.core.side() == Side::Client
                    || (self.requester.awaits(xid)
                        && lists.reply.as_ref().is_some_and(|chunk| chunk.total() > 0)));
            return Ok(if reply { Taken::AsReply } else { Taken::AsCall });
        };
        // A reduced Call keeps its first words inline: neither XID nor direction is DDP-eligible.
        let (seen, direction) =
            rpc_prefix(payload).map_err(|error| (error, said.unwrap_or(usually(self.core.side()))))?;
        let taken = match direction {
            CALL => Taken::AsCall,
            REPLY => Taken::AsReply,
            value => {
                return Err((
                    ProtocolError::WrongDirection { value, expected: "Call or reply" },
                    usually(self.core.side()),
                ));
            }
        };
        // version-two-01 §4.2.2
        if let Some(header) = said.filter(|said| *said != taken) {
            let header = if header == Taken::AsCall { Direction::Call } else { Direction::Reply };
            return Err((direction_mismatch(header), taken));
        }
        // RFC 8166 §4.2.1, §4.5.2
        if seen != xid {
            return Err((ProtocolError::XidMismatch { header: xid, payload: seen }, taken));
        }
        Ok(taken)
    }
}
