//! The dispatch of received messages in Version Two.
//!
//! A message between the parts of another, or between the parts of properties, is refused (version-two-07 §6.3); the
//! parts may continue after it. A message between the transmissions of a group ends that group, and is handled like any
//! other. *Errors*: a message that does not decode also ends the message that it would have continued, whose remaining
//! parts are ignored.

use std::time::Instant;

use bytes::{Buf, Bytes};
use rpcrdma_xdr::{Payload, ReadChunk};

use super::Two;
use super::assembly::{Broken, Fragment, MessageId, Place, parts_of};
use super::groups::CallGroup;
use super::operations::report;
use crate::connection::{Halves, Outcome};
use crate::inbound::received::{CALL, Received, rpc_prefix};
use crate::message::Form;
use crate::two::characteristics::exchange::Exchanges;
use crate::wire::v1::V1;
use crate::wire::{
    Body, Codec, Direction, ErrorBody, FIXED_LEN, Fixed, Header, Limits, ProtocolError, Taken, two,
};

impl Two {
    /// Handles a message, decoded or not.
    pub(crate) fn receive(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        fixed: Fixed,
        decoded: Result<(Header, usize), ProtocolError>,
        message: Bytes,
    ) -> Outcome {
        let unknown_before = self.unknown_operation.take() == Some(fixed.xid);
        let (header, header_len) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                self.undecoded(halves, (fixed, unknown_before), error, &message);
                return Outcome::Done;
            }
        };
        if let Body::Two(body) = &header.body
            && let Some(messages) = body.messages(&message.slice(header_len..), fixed)
        {
            return match messages {
                Ok(messages) => {
                    halves.core.stats.receives_combined += 1;
                    Outcome::Several(messages)
                }
                Err(error) => refuse(halves, error.into(), Taken::AsCall, None),
            };
        }
        let id = (fixed.xid, header.direction.unwrap_or_default());
        let part = match header.body {
            Body::Two(two::Body::Middle { remaining }) => Some(Place::Middle { remaining }),
            Body::Message(_) => Some(Place::Last),
            _ => None,
        };
        if part.as_ref().is_some_and(|part| self.assembly.passes_over(id, part)) {
            return Outcome::Done;
        }
        self.interrupt_group(halves, &header, fixed);
        let taken = header.direction.map_or(halves.usually(), Taken::from);
        if let Some(expected) = self.interrupted(&header.body, id) {
            let error = two::Error::Interrupted { procedure: fixed.procedure, expected };
            return refuse(halves, error.into(), taken, Some(fixed));
        }
        if let Some(place) = part {
            let fragment = Fragment { id, message, header: header_len, place };
            return self.take_part(halves, now, (fixed, taken), header, fragment);
        }
        match header.body {
            Body::Two(body) => {
                return self.take_body(halves, now, (fixed, id), body, (message, header_len));
            }
            Body::Error(error) if self.takes_error(halves, fixed, &error) => return Outcome::Done,
            _ => {}
        }
        let (len, mut payload) = (message.len(), message);
        payload.advance(header_len.min(len));
        complete(halves, fixed, (header, header_len), (payload.into(), len), (Form::Inline, vec![], None))
    }

    /// Ends what a message that did not decode would have gone on with, and refuses it.
    fn undecoded(
        &mut self,
        halves: &mut Halves<'_>,
        (fixed, unknown_before): (Fixed, bool),
        error: ProtocolError,
        message: &Bytes,
    ) {
        // A Call or reply in progress is answered in its own form.
        if self.break_group(halves, fixed) {
            return halves.fault(error, Taken::AsReply, None);
        }
        if matches!(error, ProtocolError::VersionChanged { .. }) {
            let taken = self.taken_undecoded(halves, &error, fixed, message);
            if taken == Taken::AsReply {
                self.end_guess(halves.core, fixed.xid);
            }
            return halves.fault(error, taken, Some(fixed));
        }
        let error = match error {
            ProtocolError::Two(error) if self.exchanges.is_some() && error.is_of_operation() => {
                // The rest of a refused message is refused without another answer: each XID gets one.
                if matches!(error, two::Error::UnknownOperation { .. }) {
                    self.unknown_operation = Some(fixed.xid);
                    if unknown_before {
                        return halves.core.stats.fault(&error.into());
                    }
                }
                return self.operation_undecoded(halves, fixed, error);
            }
            error => error,
        };
        let rules = halves.core.codec.rules();
        let is_part = rules.two.is_some_and(|two| two.profile.is_part(fixed.procedure));
        self.assembly.undecoded_part(fixed.xid, !is_part);
        if matches!(error, ProtocolError::Two(two::Error::Transmission(_))) {
            self.assembly.undecoded_group(fixed.xid);
        }
        let taken = self.taken_undecoded(halves, &error, fixed, message);
        halves.fault(error, taken, Some(fixed));
    }

    /// Returns whether a message that did not decode counts as a Call or a reply.
    fn taken_undecoded(
        &self,
        halves: &Halves<'_>,
        error: &ProtocolError,
        fixed: Fixed,
        message: &Bytes,
    ) -> Taken {
        // The word behind the fixed part says it of every RDMA2_OPTIONAL (version-two-01 §4.2.2).
        if matches!(error, ProtocolError::Two(two::Error::Transmission(_)))
            && let Some(word) = message.get(FIXED_LEN..).and_then(|rest| rest.first_chunk())
            && let Some(direction) = Direction::of(u32::from_be_bytes(*word))
        {
            return direction.into();
        }
        if fixed.version == V1.rules().version {
            let guessed = self.guessed == Some(fixed.xid);
            let unread = if guessed { Taken::AsReply } else { halves.usually() };
            return taken_in_version_one(message, &halves.core.config.limits).unwrap_or(unread);
        }
        let rules = halves.core.codec.rules();
        let said = Some(fixed.procedure).filter(|_| fixed.version == rules.version);
        match said.and_then(|procedure| rules.two?.profile.direction_of(procedure)) {
            Some(direction) => direction.into(),
            None => halves.taken_unread(error, fixed.xid),
        }
    }

    /// Returns the name of the parts that are due, if a message with this body may not come now. A part of another
    /// message is then ignored to its end. A message of the same XID ends the parts, since the peer does not continue
    /// them.
    fn interrupted(&mut self, body: &Body, id: MessageId) -> Option<&'static str> {
        let open = self.assembly.parts();
        let due = open.map(|(_, direction)| parts_of(direction));
        let expected = match body {
            // A GRANT or an error interrupts nothing.
            Body::Two(two::Body::Grant) | Body::Error(_) => return None,
            Body::Two(two::Body::Exchange(_)) => due,
            Body::Two(two::Body::Middle { .. }) | Body::Message(_) if open == Some(id) => None,
            _ => due.or_else(|| self.exchanges.as_ref().and_then(Exchanges::expects)),
        }?;
        match body {
            Body::Two(two::Body::Middle { .. }) => self.assembly.give_up_parts(id),
            _ => self.assembly.end_parts(id),
        }
        Some(expected)
    }

    /// Handles a part of a message, or a message in one Send. `header` is that of the last part.
    fn take_part(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        (fixed, taken): (Fixed, Taken),
        header: Header,
        fragment: Fragment,
    ) -> Outcome {
        let (header_len, is_last) = (fragment.header, matches!(fragment.place, Place::Last));
        if !is_last && taken == Taken::AsReply && !halves.requester.awaits(fixed.xid) {
            self.assembly.give_up_parts(fragment.id);
            return refuse(halves, ProtocolError::UnknownXid { xid: fixed.xid }, taken, Some(fixed));
        }
        match self.assembly.take(now, fragment) {
            Ok(Some(assembled)) => {
                halves.core.stats.copied(assembled.copied);
                let form = if assembled.sends > 1 { Form::Continued } else { Form::Inline };
                let content = (assembled.payload, assembled.len);
                complete(halves, fixed, (header, header_len), content, (form, vec![], None))
            }
            Ok(None) => {
                halves.core.stats.parts_received += 1;
                Outcome::Done
            }
            Err(Broken { error, .. }) => refuse(halves, error, taken, Some(fixed)),
        }
    }

    /// Handles a message type of Version Two alone.
    fn take_body(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        (fixed, id): (Fixed, MessageId),
        body: two::Body,
        message: (Bytes, usize),
    ) -> Outcome {
        match body {
            two::Body::Exchange(exchange) => self.handle_operation(halves, fixed, exchange),
            two::Body::Transmission(operation) => {
                return self.take_transmission(halves, now, (fixed, id), operation, message);
            }
            two::Body::Grant => {
                halves.core.stats.grants_received += 1;
                halves.core.note_grant();
            }
            // Handled above.
            two::Body::Middle { .. } | two::Body::Combined(_) => {}
        }
        Outcome::Done
    }

    /// Handles an RDMA_ERROR that does not concern a Call of ours; `false` if it does.
    fn takes_error(&mut self, halves: &mut Halves<'_>, fixed: Fixed, error: &ErrorBody) -> bool {
        if let ErrorBody::Two(two::ErrorBody::Report(report)) = error
            && report.group().direction == Direction::Reply
        {
            self.reply_reported(halves, report);
            return true;
        }
        // Whatever its code is (RFC 8166 §4.5): the Call has failed already.
        if self.end_guess(halves.core, fixed.xid) {
            return true;
        }
        if let Some(exchanges) = self.exchanges.as_mut().filter(|exchanges| exchanges.knows(fixed.xid)) {
            exchanges.handle_refusal(fixed.xid);
            report(halves.core, exchanges);
            halves.core.stats.operations_refused += 1;
            self.follow(halves.core);
            return true;
        }
        let of_combined = *error == ErrorBody::Two(two::ErrorBody::InvalidOption)
            && halves.core.has_combined()
            && !halves.core.in_group(fixed.xid);
        if of_combined {
            // The other messages of that Send are not known any more.
            halves.fault(two::Error::CombinedRefused.into(), Taken::AsReply, None);
        }
        of_combined
    }
}

/// Returns the fault of a peer that sends beyond this limit.
pub(crate) const fn limit_exceeded(limit: u32) -> ProtocolError {
    ProtocolError::Two(two::Error::LimitExceeded { limit })
}

/// Returns a complete message to the connection, in this form and group, with these items. Its payload has to have the
/// direction that its header says.
pub(super) fn complete(
    halves: &mut Halves<'_>,
    fixed: Fixed,
    (header, header_len): (Header, usize),
    (payload, len): (Payload, usize),
    (form, items, group): (Form, Vec<ReadChunk>, Option<Box<CallGroup>>),
) -> Outcome {
    let names_handle = halves.core.codec.rules().two.is_some_and(|two| two.names_handle);
    let invalidate = names_handle.then_some(header.invalidate);
    let received = match Received::new(header, header_len, payload, len) {
        Ok(received) => Received { invalidate, form, items, group, ..received },
        Err(body) => return Outcome::Other(body),
    };
    // version-two-01 §4.2.2
    let seen = received.payload.as_ref().and_then(|payload| Direction::of(rpc_prefix(payload).ok()?.1));
    match (received.direction, seen) {
        (Some(header), Some(seen)) if header != seen => {
            refuse(halves, two::Error::DirectionMismatch { header }.into(), seen.into(), Some(fixed))
        }
        _ => Outcome::Message(received),
    }
}

/// Refuses a message.
fn refuse(halves: &mut Halves<'_>, error: ProtocolError, taken: Taken, fixed: Option<Fixed>) -> Outcome {
    halves.fault(error, taken, fixed);
    Outcome::Done
}

/// Returns whether a message in Version One is a Call or a reply; `None` if that cannot be read. Only a Call has an
/// answer (RFC 8166 §4.5).
fn taken_in_version_one(message: &Bytes, limits: &Limits) -> Option<Taken> {
    let (header, header_len) = V1.decode(message, limits).ok()?;
    let is_call = match Received::alone(header, header_len, message.clone()) {
        Ok(Received { payload: Some(payload), .. }) => rpc_prefix(&payload).ok()?.1 == CALL,
        Ok(Received { lists, .. }) => lists.has_position_zero(),
        Err(_) => false,
    };
    Some(if is_call { Taken::AsCall } else { Taken::AsReply })
}
