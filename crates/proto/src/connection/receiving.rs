//! Completions and received messages. Each message is decoded, its direction is determined, and one of the halves
//! handles it. In Version Two, [`Two`](crate::two::Two) handles a message first.
//!
//! The memory of a message is shared from here on. *Errors*: [`Halves::fault`](super::Halves::fault) handles a fault of
//! a message.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Buffer, Completion, Key, PostErrorKind, Status, WindowMemory, Work, WrId};
use rpcrdma_xdr::CopyCount;

use super::halves::usually;
use super::{Connection, Outcome, State};
use crate::error::CloseReason;
use crate::inbound::received::{CALL, REPLY, Received, rpc_prefix};
use crate::outbound::{Origin, Owner};
use crate::settings::config::Side;
use crate::wire::{Body, Fixed, Header, ProtocolError, Taken};

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
            (Origin::Invalidate { .. } | Origin::Conceal { .. }, Work::LocalInvalidate { memory: None })
                if !status.is_success() =>
            {
                // Rule I2: the connection ends before the call does.
                if status != Status::Flushed {
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Invalidate { xid, window, key }, Work::LocalInvalidate { memory }) => {
                self.requester.handle_invalidated(&mut self.core, xid, (window, key), memory);
                self.window_freed();
            }
            (Origin::Read { owner, chunk, part }, Work::Read { sink }) => {
                self.handle_read(now, owner, (chunk, part), status, sink);
            }
            (Origin::Conceal { token, key }, Work::LocalInvalidate { .. }) => {
                self.core.concealed(token, key);
                self.window_freed();
            }
            (Origin::Release, Work::LocalInvalidate { .. }) => {
                self.core.windows = self.core.windows.saturating_sub(1);
                self.window_freed();
            }
            _ => self.work_failed(status),
        }
    }

    /// Handles the completion of an RDMA Read of a part of the peer's message.
    fn handle_read(
        &mut self,
        now: Instant,
        owner: Owner,
        place: (usize, usize),
        status: Status,
        sink: Buffer,
    ) {
        if let Owner::Call(token) = owner {
            self.responder.note_read(token, status);
        }
        let core = &mut self.core;
        match (owner, core.reads.complete(now, owner, place, (status, sink), &core.outbox)) {
            (Owner::Reply(xid), Ok(Some(pulled))) => self.requester.handle_pulled(core, now, xid, pulled),
            (Owner::Call(token), Ok(Some(pulled))) => self.responder.handle_pulled(core, token, pulled),
            (_, Ok(None)) => {}
            (_, Err(status)) => self.work_failed(status),
        }
    }

    /// Retries the calls and answers that wait for a window, since one is free.
    fn window_freed(&mut self) {
        self.requester.no_window = false;
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
            Err(error) => return self.handle_short(error),
        };
        let decoded = self.decode(fixed, &message);
        if self.two.is_some() {
            return self.handle_two(now, fixed, decoded, message);
        }
        self.core.ledger.count_received();
        match decoded.map(|(header, header_len)| Received::alone(header, header_len, message)) {
            Ok(Ok(received)) => {
                self.take(now, fixed, received);
            }
            Ok(Err(other)) => self.take_other(now, fixed, other),
            Err(error) => {
                let mut halves = self.halves();
                let taken = halves.taken_unread(&error, fixed.xid);
                halves.fault(error, taken, Some(fixed));
            }
        }
    }

    /// Handles a message that is too short for a header.
    fn handle_short(&mut self, error: ProtocolError) {
        let counted = self.core.count_received(false, None);
        self.fault_unread(counted.err().unwrap_or(error));
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
        let is_grant = matches!(&decoded, Ok((Header { body: Body::Two(body), .. }, _)) if body.is_grant());
        if let Err(error) = self.core.count_received(is_grant, Some(fixed)) {
            return self.fault_unread(error);
        }
        if let Ok((header, _)) = &decoded {
            self.confirm(&header.body);
        }
        let (Some(two), mut halves) = self.split() else { return };
        match two.receive(&mut halves, now, fixed, decoded, message) {
            Outcome::Done => {}
            Outcome::Message(received) => self.take_in_two(now, fixed, received),
            Outcome::Other(body) => self.take_other(now, fixed, body),
            Outcome::Several(messages) => {
                messages.into_iter().for_each(|message| self.handle_message(now, message));
            }
        }
    }

    /// Handles a complete Call or reply of Version Two.
    fn take_in_two(&mut self, now: Instant, fixed: Fixed, received: Received) {
        let directed = self.core.is_directed(received.xid);
        let taken = self.take(now, fixed, received);
        if directed && taken == Some(Taken::AsReply) {
            self.core.note_reply();
        }
        if taken.is_some()
            && let Some(two) = &mut self.two
        {
            two.rpc_taken();
        }
    }

    /// Handles a complete Call or reply; returns which of the two it is, or `None` if it is discarded or refused at once.
    fn take(&mut self, now: Instant, fixed: Fixed, mut received: Received) -> Option<Taken> {
        // The direction comes first: a fault of a reply is never answered, a fault of a Call always (RFC 8166 §4.5).
        let checked = self.direction(&received).and_then(|taken| match self.take_forms(&mut received) {
            Ok(()) => Ok(taken),
            Err(error) => Err((error, taken)),
        });
        match checked {
            Ok(Taken::AsReply) => {
                let handled = self.requester.handle_reply(&mut self.core, now, received);
                handled.map_err(|error| self.halves().fault(error, Taken::AsReply, None)).ok()?;
                Some(Taken::AsReply)
            }
            Ok(Taken::AsCall) => {
                let charge = self.halves().admit(Some(fixed.credit))?;
                if let Err((error, charge)) = self.responder.handle_call(&mut self.core, received, charge) {
                    self.halves().refuse_call(error, fixed, charge);
                }
                Some(Taken::AsCall)
            }
            Err((error, taken)) => {
                self.halves().fault(error, taken, Some(fixed));
                None
            }
        }
    }

    /// Handles a complete message that is no Call or reply.
    fn take_other(&mut self, now: Instant, fixed: Fixed, body: Body) {
        let Fixed { xid, credit, .. } = fixed;
        let handled = match body {
            Body::Error(error) => self.requester.handle_error(&mut self.core, now, xid, credit, error),
            // RFC 8166 §4.6.2
            Body::Done => self.core.handle_done(now, xid),
            // Version Two has handled its messages.
            _ => return,
        };
        if let Err(error) = handled {
            self.halves().fault(error, Taken::AsReply, None);
        }
    }

    /// Refuses retired forms that are not enabled, and takes the others out of the message.
    fn take_forms(&self, received: &mut Received) -> Result<(), ProtocolError> {
        if received.lists.read.is_empty() && received.padding.is_none() {
            return Ok(());
        }
        self.take_retired(received)
    }

    /// Refuses or takes retired forms. They show in the Read list of a message, or as padding.
    fn take_retired(&self, received: &mut Received) -> Result<(), ProtocolError> {
        let Received { lists, padding, .. } = &*received;
        let retired = self.core.retired.as_deref();
        // RFC 8166 §3.4.5, §4.6.1
        let found = [
            lists.has_padding().then_some(ProtocolError::PaddingSegment),
            lists.pad_chunk().map(|position| ProtocolError::UnalignedPosition { position }),
            padding.map(|_| ProtocolError::PaddedMessage),
        ];
        let is_refused = |error: &ProtocolError| retired.is_none_or(|retired| !retired.accepts(error));
        match (found.into_iter().flatten().find(is_refused), retired) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(retired)) => retired.take_forms(received, &self.core.config.limits),
            (None, None) => Ok(()),
        }
    }

    /// Returns the direction of a Call or reply (RFC 8167 §2.4.1, §4.1).
    fn direction(&self, received: &Received) -> Result<Taken, (ProtocolError, Taken)> {
        let Some(payload) = &received.payload else { return self.direction_of_long(received) };
        let usual = || received.direction.map_or(usually(self.core.side()), Taken::from);
        // A reduced Call keeps its first words inline: neither XID nor direction is DDP-eligible.
        let (seen, direction) = rpc_prefix(payload).map_err(|error| (error, usual()))?;
        let taken = match direction {
            CALL => Taken::AsCall,
            REPLY => Taken::AsReply,
            value => {
                let error = ProtocolError::WrongDirection { value, expected: "Call or reply" };
                return Err((error, usually(self.core.side())));
            }
        };
        // RFC 8166 §4.2.1, §4.5.2
        if seen != received.xid {
            return Err((ProtocolError::XidMismatch { header: received.xid, payload: seen }, taken));
        }
        Ok(taken)
    }

    /// Returns the direction of a message in a chunk.
    fn direction_of_long(&self, received: &Received) -> Result<Taken, (ProtocolError, Taken)> {
        let Received { xid, lists, .. } = received;
        let said = received.direction.map(Taken::from);
        // RFC 8166 §4.5.2
        if lists.is_empty() {
            return Err((ProtocolError::NoChunks, said.unwrap_or(usually(self.core.side()))));
        }
        // version-two-01 §4.2.2
        if let Some(said) = said {
            return Ok(said);
        }
        // The direction word is not here yet. Only a Call has a Position-Zero chunk, and only a reply a filled Reply
        // chunk. By RFC 5666 §5.1 an awaited reply may have a Position-Zero chunk too, but not in the reverse direction,
        // where the two would look alike.
        let awaited = self.requester.awaits(*xid);
        let filled = || lists.reply.as_ref().is_some_and(|chunk| chunk.total() > 0);
        let reply = (!lists.has_position_zero() || (self.core.reads_replies() && awaited))
            && (self.core.side() == Side::Client || (awaited && filled()));
        Ok(if reply { Taken::AsReply } else { Taken::AsCall })
    }
}
