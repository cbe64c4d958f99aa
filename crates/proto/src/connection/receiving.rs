//! Completions, and what the peer sends: each message is decoded, its direction found, and it goes to the half that it is for.
//!
//! The memory of a message is shared from here on. *On error*: what is wrong is counted and answered as
//! [`ProtocolError::action`] says: not at all if it is a reply, by an RDMA_ERROR on the Call's credit if it is a Call.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Buffer, Completion, PostErrorKind, Status, Work, WrId};
use rpcrdma_xdr::{CopyCount, Padding, ReadChunk};

use super::version::Version;
use super::{Connection, State};
use crate::characteristics::exchange::Exchanges;
use crate::compatibility::{AlignmentBase, PaddedMessages};
use crate::config::Side;
use crate::error::{Action, ProtocolError, Taken};
use crate::event::CloseReason;
use crate::flow::Charge;
use crate::outbound::Origin;
use crate::reads::Owner;
use crate::requester::Received;
use crate::responder::{AskedReply, CALL, REPLY, ReceivedCall, rpc_prefix};
use crate::two::assembly::{Broken, Fragment, Place, parts_of};
use crate::wire::two::combined;
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, FIXED_LEN, Fixed, Header, two};

/// An RPC message that is all there.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) lists: ChunkLists,
    /// What follows the header; `None` for RDMA_NOMSG.
    pub(super) payload: Option<Bytes>,
    /// The words of an RDMA_MSGP.
    pub(super) padded: Option<(u32, u32)>,
    /// Bytes of the header.
    pub(super) header_len: usize,
    /// It came in several Sends.
    pub(super) continued: bool,
    /// Bytes of the Send, or of all of them.
    pub(super) len: usize,
    /// Items of it that lie in our Receives.
    pub(super) items: Vec<ReadChunk>,
    /// What a Call that came in a transmission group says of its reply.
    pub(super) group: Option<AskedReply>,
}

impl Connection {
    /// A request or Receive of ours has completed, or a window was flushed.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        if self.state == State::Closed {
            return;
        }
        let Completion { id, status, work } = completion;
        // What is flushed must not be posted again: that would go on for ever.
        self.ended |= status == Status::Flushed;
        if let Work::WindowFlushed { key, memory } = work {
            if let Some(xid) = self.requester.window_closed(key, Some(memory)) {
                self.requester.complete_if_closed(&mut self.core, xid);
            }
            return;
        }
        let Some(origin) = self.core.complete(id, Some(now)) else { return };
        match (origin, work) {
            (Origin::Receive, Work::Receive { buffers, len, invalidated, .. }) => {
                let message = status.is_success().then(|| self.join(buffers, len));
                let invalidated = invalidated.map(|(key, memory)| {
                    let xid = message
                        .as_ref()
                        .and_then(|message| Fixed::decode(message).ok())
                        .map(|fixed| fixed.xid);
                    let foreign = xid.filter(|xid| self.requester.belongs_to_other(key, *xid));
                    (self.requester.window_closed(key, Some(memory)), foreign)
                });
                if let Some((Some(owner), foreign)) = invalidated {
                    self.requester.count_remote(&mut self.core, owner);
                    if let Some(xid) = foreign {
                        self.fault(now, ProtocolError::ForeignInvalidation { xid }, Taken::AsReply, None);
                    }
                }
                match message {
                    Some(message) => self.handle_message(now, message),
                    None => self.work_failed(status),
                }
                // It may have been the last window of a call that has its answer already.
                if let Some((Some(owner), _)) = invalidated {
                    self.requester.complete_if_closed(&mut self.core, owner);
                    self.responder.window_freed();
                }
            }
            (Origin::Invalidate { xid, window, key }, Work::LocalInvalidate { memory }) => {
                if status.is_success() || memory.is_some() {
                    self.requester.handle_invalidated(&mut self.core, xid, (window, key), memory);
                    self.responder.window_freed();
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
                    self.responder.concealed(&mut self.core, token, key);
                    self.requester.window_freed();
                } else if status != Status::Flushed {
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Release, Work::LocalInvalidate { .. }) => self.requester.reservation_released(),
            _ => self.work_failed(status),
        }
    }

    /// Anything that ends the connection by itself is only noted; what remains is a fault that must end it.
    fn work_failed(&mut self, status: Status) {
        if !matches!(status, Status::Success | Status::Flushed) {
            self.core.fail(CloseReason::WorkFailed(status));
        }
    }

    /// A request or Receive could not be posted. After [`PostErrorKind::Disconnected`] the end of the queue pair is awaited.
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        self.core.complete(id, None);
        if *kind == PostErrorKind::Disconnected {
            self.ended = true;
        } else {
            tracing::debug!(side = %self.core.side, %kind, "request not posted");
            self.core.fail(CloseReason::WorkFailed(Status::Fatal));
        }
    }

    /// The bytes of a received message; copied together only if they came in several Buffers.
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

    /// How a message without a known direction is taken (RFC 8167 §4.1).
    const fn usually(&self) -> Taken {
        match self.core.side {
            Side::Server => Taken::AsCall,
            Side::Client => Taken::AsReply,
        }
    }

    /// How a message is taken that did not decode.
    fn taken_undecoded(&self, error: &ProtocolError, fixed: Fixed, message: &[u8]) -> Taken {
        // The word behind the fixed part says it of every RDMA2_OPTIONAL (version-two-01 §4.2.2).
        if matches!(error, ProtocolError::Two(two::Error::Transmission(_)))
            && let Some(word) = message.get(FIXED_LEN..).and_then(|rest| rest.first_chunk())
            && let Some(direction) = Direction::of(u32::from_be_bytes(*word))
        {
            return direction.into();
        }
        let codec = self.core.codec;
        let said = Some(fixed.procedure).filter(|_| fixed.version == codec.rules().version);
        match said.and_then(|procedure| codec.rules().two?.profile.direction_of(procedure)) {
            Some(direction) => direction.into(),
            None => self.taken_unread(error, fixed.xid),
        }
    }

    /// How a message is taken whose lists are beyond our bounds, or that is of another profile. Nothing behind them was looked at;
    /// but where no reply is awaited it can only be a Call, which its Requester wants to know refused (RFC 8167 §5.3).
    fn taken_unread(&self, error: &ProtocolError, xid: u32) -> Taken {
        let unread = matches!(
            error,
            ProtocolError::TooManyReadSegments { .. }
                | ProtocolError::TooManySegments { .. }
                | ProtocolError::TooManyWriteChunks { .. }
                | ProtocolError::ReadSegmentTooLong { .. }
                | ProtocolError::ReadListTooLong { .. }
                | ProtocolError::Two(two::Error::OtherProfile { .. })
        );
        if unread && !self.requester.awaits(xid) { Taken::AsCall } else { self.usually() }
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
                return self.fault(now, counted.err().unwrap_or(error), self.usually(), None);
            }
        };
        let decoded = self.decode(fixed, &message);
        let is_grant = matches!(decoded, Ok((Header { body: Body::Two(two::Body::Grant), .. }, _)));
        if let Err(error) = self.core.count_received(is_grant, Some(fixed)) {
            return self.fault(now, error, self.usually(), None);
        }
        let unknown_before = self.unknown_operation.take();
        let (header, header_len) = match decoded {
            Ok(decoded) => decoded,
            // The Call or reply that it was part of is answered as what it had begun.
            Err(error) if self.break_group(now, fixed) => {
                return self.fault(now, error, Taken::AsReply, None);
            }
            Err(error @ ProtocolError::VersionChanged { .. }) => {
                return self.fault(now, error, self.usually(), Some(fixed));
            }
            Err(ProtocolError::Two(error)) if self.exchanges.is_some() && error.is_of_operation() => {
                // What goes on of a message that was refused is refused with it: one answer for each XID.
                if matches!(error, two::Error::UnknownOperation { .. }) {
                    self.unknown_operation = Some(fixed.xid);
                    if unknown_before == Some(fixed.xid) {
                        return self.core.stats.fault(&error.into());
                    }
                }
                return self.operation_undecoded(now, fixed, error);
            }
            Err(error) => {
                let two = self.core.codec.rules().two;
                let is_part = two.is_some_and(|two| two.profile.is_part(fixed.procedure));
                self.assembly.undecoded_part(fixed.xid, !is_part);
                if matches!(error, ProtocolError::Two(two::Error::Transmission(_))) {
                    self.assembly.undecoded_group(fixed.xid);
                }
                let taken = self.taken_undecoded(&error, fixed, &message);
                return self.fault(now, error, taken, Some(fixed));
            }
        };
        if let Body::Two(two::Body::Combined(lengths)) = &header.body {
            let messages = combined::split(lengths, &message.slice(header_len..), fixed);
            return match messages {
                Ok(messages) => {
                    self.core.stats.receives_combined += 1;
                    messages.into_iter().for_each(|message| self.handle_message(now, message));
                }
                Err(error) => self.fault(now, two::Error::from(error).into(), Taken::AsCall, None),
            };
        }
        let len = message.len();
        let id = (fixed.xid, header.direction.unwrap_or_default());
        let part = match header.body {
            Body::Two(two::Body::Middle { remaining }) => Some(Place::Middle { remaining }),
            Body::Message(_) => Some(Place::Last),
            _ => None,
        };
        if part.is_some_and(|part| self.assembly.passes_over(id, &part)) {
            return;
        }
        // Not an ERR_VERS, and nothing from before the version was changed.
        if self.version == Version::Offered && !matches!(header.body, Body::Error(_)) {
            self.settle();
        }
        self.interrupt_group(now, &header, fixed);
        if let Some((error, taken)) = self.interrupted(&header, fixed) {
            return self.fault(now, error, taken, Some(fixed));
        }
        let mut len = len;
        let mut continued = false;
        let (lists, payload, padded) = match header.body {
            Body::Message(lists) => {
                let fragment = Fragment { id, message, header: header_len, place: Place::Last };
                match self.assembly.take(now, fragment) {
                    Ok(Some(assembled)) => {
                        continued = assembled.sends > 1;
                        len = assembled.len;
                        self.core.stats.copied(assembled.copied);
                        (lists, Some(assembled.payload), None)
                    }
                    // The last part completes its message.
                    Ok(None) => return,
                    Err(Broken { error, .. }) => {
                        let taken = header.direction.map_or(self.usually(), Taken::from);
                        return self.fault(now, error, taken, Some(fixed));
                    }
                }
            }
            Body::NoMessage(lists) => (lists, None, None),
            Body::Padded { align, threshold, lists } => {
                (lists, Some(message.slice(header_len..)), Some((align, threshold)))
            }
            Body::Done => {
                // RFC 8166 §4.6.2
                if let Err(error) = self.responder.handle_done(&mut self.core, now, header.xid) {
                    self.fault(now, error, Taken::AsReply, None);
                }
                return;
            }
            Body::Two(two::Body::Grant) => {
                self.core.stats.grants_received += 1;
                return self.core.note_grant();
            }
            Body::Two(two::Body::Middle { remaining }) => {
                let place = Place::Middle { remaining };
                return self.handle_part(now, fixed, Fragment { id, message, header: header_len, place });
            }
            // Taken apart above.
            Body::Two(two::Body::Combined(_)) => return,
            Body::Two(two::Body::Exchange(exchange)) => return self.handle_operation(now, fixed, exchange),
            Body::Two(two::Body::Transmission(operation)) => {
                let said = header.direction.unwrap_or_default();
                return self.handle_transmission(now, fixed, (said, operation), (message, header_len));
            }
            Body::Error(ErrorBody::Two(two::ErrorBody::Report(report)))
                if report.group().direction == Direction::Reply =>
            {
                return self.reply_reported(now, &report);
            }
            Body::Error(error) => {
                if let Some(exchanges) =
                    self.exchanges.as_mut().filter(|exchanges| exchanges.knows(header.xid))
                {
                    exchanges.handle_refusal(&mut self.core.events);
                    self.core.stats.operations_refused += 1;
                    return self.follow_characteristics();
                }
                if error == ErrorBody::Two(two::ErrorBody::InvalidOption)
                    && self.core.combine.is_used()
                    && !self.requester.in_group(header.xid)
                {
                    // Which other messages were in that Send is not known any more.
                    return self.fault(
                        now,
                        ProtocolError::Two(two::Error::CombinedRefused),
                        Taken::AsReply,
                        None,
                    );
                }
                let (xid, credit) = (header.xid, header.credit);
                let taken = self.requester.handle_error(&mut self.core, now, xid, credit, error);
                if let Err(error) = taken {
                    self.fault(now, error, Taken::AsReply, None);
                }
                return;
            }
        };
        let arrived = Arrived { lists, payload, padded, header_len, continued, len, ..Arrived::default() };
        self.take(now, fixed, (header.direction, header.invalidate), arrived);
    }

    /// Takes an RPC message that is all there.
    pub(super) fn take(
        &mut self,
        now: Instant,
        fixed: Fixed,
        (said, invalidate): (Option<Direction>, u32),
        arrived: Arrived,
    ) {
        let Arrived { lists, payload, padded, header_len, continued, len, items, group } = arrived;
        let Fixed { xid, credit, .. } = fixed;
        // The direction first: a fault of a reply is never answered, one of a Call always (RFC 8166 §4.5).
        let taken = match self.direction(xid, said, &lists, payload.as_deref()) {
            Ok(taken) => taken,
            Err((error, taken)) => return self.fault(now, error, taken, Some(fixed)),
        };
        let padding = match self.forms(&lists, padded, header_len) {
            Ok(padding) => padding,
            Err(error) => return self.fault(now, error, taken, Some(fixed)),
        };
        match taken {
            Taken::AsReply => {
                let received = Received { xid, credit, lists, payload, padding, continued, len };
                match self.requester.handle_reply(&mut self.core, now, received) {
                    Ok(()) => self.rpc_taken(),
                    Err(error) => self.fault(now, error, Taken::AsReply, None),
                }
            }
            Taken::AsCall => {
                let Some(charge) = self.admit(now, Some(credit)) else { return };
                self.rpc_taken();
                let call =
                    ReceivedCall { xid, lists, invalidate, payload, padding, continued, len, items, group };
                if let Err((error, charge)) = self.responder.handle_call(&mut self.core, call, charge) {
                    self.refuse_call(now, error, fixed, charge);
                }
            }
        }
    }

    /// Whether a message comes between the parts of something, which is refused, or is what is left of a message that was given up,
    /// which is not worth a word.
    fn interrupted(&mut self, header: &Header, fixed: Fixed) -> Option<(ProtocolError, Taken)> {
        let said = header.direction.unwrap_or_default();
        let expected = self.exchanges.as_ref().and_then(Exchanges::expects);
        let id = (fixed.xid, said);
        let open = self.assembly.parts();
        let due = open.map(|(_, direction)| parts_of(direction));
        let expected = match &header.body {
            // What raises a limit or says that something failed is no part of anything.
            Body::Two(two::Body::Grant) | Body::Error(_) => return None,
            Body::Two(two::Body::Exchange(_)) => due,
            Body::Two(two::Body::Middle { .. }) | Body::Message(_) if open == Some(id) => None,
            _ => due.or(expected),
        }?;
        match header.body {
            Body::Two(two::Body::Middle { .. }) => self.assembly.give_up_parts(id),
            // Whole, and of the XID whose parts came so far: the peer does not go on with them.
            _ => self.assembly.end_parts(id),
        }
        let taken = header.direction.map_or(self.usually(), Taken::from);
        Some((ProtocolError::Two(two::Error::Interrupted { procedure: fixed.procedure, expected }), taken))
    }

    /// Takes a part of a message, which is not the last.
    fn handle_part(&mut self, now: Instant, fixed: Fixed, fragment: Fragment) {
        let taken = Taken::from(fragment.id.1);
        let checked = if taken == Taken::AsReply && !self.requester.awaits(fixed.xid) {
            self.assembly.give_up_parts(fragment.id);
            Err(ProtocolError::UnknownXid { xid: fixed.xid })
        } else {
            self.assembly.take(now, fragment).map_err(|broken| broken.error)
        };
        match checked {
            Ok(_) => self.core.stats.parts_received += 1,
            Err(error) => self.fault(now, error, taken, Some(fixed)),
        }
    }

    /// Whether the retired forms of a message are taken; what is skipped in it, if it is an RDMA_MSGP of these words.
    fn forms(
        &self,
        lists: &ChunkLists,
        padded: Option<(u32, u32)>,
        header: usize,
    ) -> Result<Option<Padding>, ProtocolError> {
        if lists.has_padding() && !self.core.config.compatibility.padding_segments {
            return Err(ProtocolError::PaddingSegment);
        }
        if let Some(position) = lists.pad_chunk().filter(|_| !self.core.config.compatibility.pad_chunks) {
            return Err(ProtocolError::UnalignedPosition { position });
        }
        padded.map_or(Ok(None), |(align, threshold)| self.padding(align, threshold, header))
    }

    /// A Call or reply was taken: operations on characteristics are counted between those.
    pub(super) fn rpc_taken(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.rpc_received();
        }
    }

    /// What is skipped in an RDMA_MSGP, if it is taken at all (RFC 5666 §3.9, RFC 8166 §4.6.1).
    fn padding(&self, align: u32, threshold: u32, header: usize) -> Result<Option<Padding>, ProtocolError> {
        let compatibility = &self.core.config.compatibility;
        match compatibility.padded_messages {
            PaddedMessages::Refuse => Err(ProtocolError::PaddedMessage),
            PaddedMessages::AsMessage => Ok(None),
            PaddedMessages::Honour if align == 0 => Err(ProtocolError::BadAlignment { align }),
            PaddedMessages::Honour => {
                let before = match compatibility.alignment_base {
                    AlignmentBase::Send => header,
                    AlignmentBase::Payload => 0,
                };
                let wide = |value| usize::try_from(value).unwrap_or(usize::MAX);
                Ok(Some(Padding { align: wide(align), threshold: wide(threshold), before }))
            }
        }
    }

    /// The direction of a message whose header decoded (RFC 8167 §2.4.1, §4.1).
    fn direction(
        &self,
        xid: u32,
        said: Option<Direction>,
        lists: &ChunkLists,
        payload: Option<&[u8]>,
    ) -> Result<Taken, (ProtocolError, Taken)> {
        let said = said.map(Taken::from);
        let Some(payload) = payload else {
            // RFC 8166 §4.5.2
            if lists.is_empty() {
                return Err((ProtocolError::NoChunks, said.unwrap_or(self.usually())));
            }
            // version-two-01 §4.2.2
            if let Some(said) = said {
                return Ok(said);
            }
            // The direction word is not here yet: only a Call has a Position-Zero chunk, only a reply a filled Reply chunk.
            // Or a reply has, by RFC 5666 §5.1, if it is awaited; not in the reverse direction, where nothing could tell them apart.
            let exposed = self.core.reads_replies().is_some() && self.requester.awaits(xid);
            let reply = (exposed || !lists.has_position_zero())
                && (self.core.side == Side::Client
                    || (self.requester.awaits(xid)
                        && lists.reply.as_ref().is_some_and(|chunk| chunk.total() > 0)));
            return Ok(if reply { Taken::AsReply } else { Taken::AsCall });
        };
        // A reduced Call keeps its first words inline: neither XID nor direction is DDP-eligible.
        let (seen, direction) =
            rpc_prefix(payload).map_err(|error| (error, said.unwrap_or(self.usually())))?;
        let taken = match direction {
            CALL => Taken::AsCall,
            REPLY => Taken::AsReply,
            value => {
                return Err((
                    ProtocolError::WrongDirection { value, expected: "Call or reply" },
                    self.usually(),
                ));
            }
        };
        // version-two-01 §4.2.2
        if let Some(header) = said.filter(|said| *said != taken) {
            let header = if header == Taken::AsCall { Direction::Call } else { Direction::Reply };
            return Err((ProtocolError::Two(two::Error::DirectionMismatch { header }), taken));
        }
        // RFC 8166 §4.2.1, §4.5.2
        if seen != xid {
            return Err((ProtocolError::XidMismatch { header: xid, payload: seen }, taken));
        }
        Ok(taken)
    }

    /// Counts a Call against the grant; `None` if that closes the connection. RFC 8167 §4.1: what it requests is ignored if its
    /// direction is only assumed.
    pub(super) fn admit(&mut self, now: Instant, requested: Option<u32>) -> Option<Charge> {
        match self.core.ledger.admit(requested) {
            Ok(charge) => Some(charge),
            Err(granted) => {
                self.fault(now, ProtocolError::CreditsExceeded { granted }, Taken::AsCall, None);
                None
            }
        }
    }

    /// A message cannot be used. `fixed` is known if it can be answered.
    pub(super) fn fault(&mut self, now: Instant, error: ProtocolError, taken: Taken, fixed: Option<Fixed>) {
        match (error.action(taken), fixed) {
            (Action::AnswerVersion | Action::Answer, Some(fixed)) => {
                if let Some(charge) = self.admit(now, None) {
                    self.refuse_call(now, error, fixed, charge);
                }
            }
            (Action::Close, _) => {
                self.core.stats.fault(&error);
                self.core.fail(error.into());
            }
            _ => {
                tracing::debug!(side = %self.core.side, %error, "message discarded");
                self.core.stats.fault(&error);
            }
        }
    }

    /// Answers a Call that was admitted with an RDMA_ERROR.
    fn refuse_call(&mut self, now: Instant, error: ProtocolError, fixed: Fixed, charge: Charge) {
        tracing::debug!(side = %self.core.side, xid = format_args!("{:#010x}", fixed.xid), %error, "call refused");
        let body = match error.action(Taken::AsCall) {
            // RFC 8166 §4.5.1: with the version of the request.
            Action::AnswerVersion => {
                let (low, high) = self.core.config.versions.range();
                match error {
                    ProtocolError::VersionChanged { .. } => self.core.codec.refusal(&error),
                    _ => ErrorBody::Version { low, high },
                }
            }
            Action::Answer => self.core.codec.refusal(&error),
            Action::Discard | Action::Close => {
                self.core.ledger.finish(charge);
                return self.fault(now, error, Taken::AsReply, None);
            }
        };
        self.core.stats.fault(&error);
        let version =
            if matches!(body, ErrorBody::Version { .. } | ErrorBody::Two(two::ErrorBody::VersionMismatch)) {
                fixed.version
            } else {
                self.core.codec.rules().version
            };
        self.responder.answer_error(fixed.xid, version, body, charge);
    }
}
