//! The half of a connection that answers Calls (RFC 8166 §2.2.2).
//!
//! A Call with chunks is first checked against the limits. Then RDMA Reads pull its chunks into memory of the domain,
//! all or none. Without memory the Call waits, and keeps the peer's credit. Only a complete Call is passed to the upper
//! layer. The responder plans the answer when it leaves: RDMA Writes, then one Send on the same queue pair, which
//! arrives after them. A faulty Call keeps its credit until its RDMA_ERROR has left, so that credits bound a flood of
//! bad Calls too.

mod answer;

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use rpcrdma_verbs::{Disconnected, Rest, Status, TerminateCause};
use rpcrdma_xdr::{Decoder, Payload, padded_len};

use crate::core::Core;
use crate::error::CloseReason;
use crate::event::{Answer, Event, IncomingCall, ReplyToken};
use crate::flow::Charge;
use crate::ids::IdMap;
use crate::inbound::reads::{Pull, Pulled};
use crate::inbound::reassembly::Layout;
use crate::inbound::received::{CALL, Received, check_prefix};
use crate::message::Travelled;
use crate::outbound::Owner;
use crate::settings::binding::Bindings;
use crate::settings::config::Side;
use crate::settings::timers::{Moving, earliest};
use crate::wire::{ErrorBody, ProtocolError, sized, wide};

/// Bytes of the first words of a Call (RFC 5531 §9): xid, mtype, rpcvers, prog, vers, proc.
const CALL_NUMBERS: usize = 24;
/// RFC 5040 §4.8: the error type of the RDMA layer for a wrong key, range or right.
const REMOTE_PROTECTION: u8 = 1;

#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) calls: IdMap<u64, Incoming>,
    /// Calls whose answer is to leave, in order, except those in the ledger's line.
    answers: VecDeque<u64>,
    /// The deadline of the next answer's wait, and its reason.
    stalled: Option<Stall>,
    /// The deadline of the next RDMA_ERROR's wait, and its reason.
    stalled_error: Option<Stall>,
    errors: VecDeque<Fault>,
    /// The next token; the tokens of one client's connections differ.
    pub(crate) next_token: u64,
    /// Whether the upper layer has lost an answer.
    pub(crate) reply_lost: bool,
    /// XIDs whose chunks could not be read.
    pub(crate) failed_reads: Vec<u32>,
    /// XIDs whose chunks could not be read on earlier connections.
    refused: HashSet<u32>,
    pub(crate) wants_memory: Option<usize>,
}

/// A deadline, and the reason for the wait.
type Stall = (Instant, &'static str);

/// An RDMA_ERROR that waits to leave.
#[derive(Debug)]
struct Fault {
    xid: u32,
    version: u32,
    body: ErrorBody,
    charge: Charge,
}

/// A Call of the peer until its answer has left.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) call: Received,
    /// The credit that the Call uses.
    charge: Charge,
    /// The answer of the upper layer, once there is one.
    answer: Option<Answer>,
    /// The answer has waited in line for credits, and does not wait for more.
    in_turn: bool,
    travelled: Travelled,
}

impl Responder {
    /// Releases memory that only a burst of Calls needs.
    pub(crate) fn rest(&mut self) {
        self.answers.rest();
        self.calls.rest();
    }

    /// Retries withheld answers, since a window is free.
    pub(crate) fn window_freed(&mut self, core: &mut Core) {
        core.take_withheld().for_each(|token| self.answers.push_front(token));
    }

    pub(crate) fn refuse(&mut self, xids: impl IntoIterator<Item = u32>) {
        self.refused.extend(xids);
    }

    /// Queues an RDMA_ERROR for a Call that was admitted.
    pub(crate) fn answer_error(&mut self, xid: u32, version: u32, body: ErrorBody, charge: Charge) {
        self.errors.push_back(Fault { xid, version, body, charge });
    }

    /// Counts a fault of a Call that was admitted, and queues its RDMA_ERROR.
    pub(crate) fn refuse_call(&mut self, core: &mut Core, xid: u32, error: &ProtocolError, charge: Charge) {
        core.stats.fault(error);
        self.answer_error(xid, core.codec.rules().version, core.codec.refusal(error), charge);
    }

    /// Handles a Call that was admitted. An error returns the Call's credit, for [`answer_error`](Self::answer_error).
    pub(crate) fn handle_call(
        &mut self,
        core: &mut Core,
        call: Received,
        charge: Charge,
    ) -> Result<(), (ProtocolError, Charge)> {
        let (layout, wanted) = match self.lay_out(core, &call) {
            Ok(laid_out) => laid_out,
            Err(error) => return Err((error, charge)),
        };
        let form = call.form(!layout.chunks.is_empty());
        let read = sized(layout.total());
        let segments = call.lists.read.len();
        let travelled = Travelled { form, sent: call.len, read, segments, ..Travelled::default() };
        core.stats.count_segments(&call.lists);
        core.stats.calls_received.add(&travelled);

        let token = self.next_token;
        self.next_token += 1;
        let incoming = Incoming { call, charge, answer: None, in_turn: false, travelled };
        self.calls.insert(token, incoming);
        if !wanted || (layout.zero.is_none() && layout.chunks.is_empty()) {
            return self.deliver(core, token, Pulled::default());
        }
        let pull = Pull::new(layout);
        if pull.is_complete() {
            return self.deliver(core, token, pull.into_pulled());
        }
        core.reads.add(Owner::Call(token), pull, None::<fn(u64) -> Moving>);
        Ok(())
    }

    /// Finds the chunks of a Call, and checks them; returns whether they have to be read.
    fn lay_out(&mut self, core: &Core, call: &Received) -> Result<(Layout, bool), ProtocolError> {
        let Received { xid, lists, payload, items, .. } = call;
        let here: usize = items.iter().map(|item| padded_len(item.data.len())).sum();
        // RFC 8167 §5.3
        if !core.takes_chunks() && !lists.is_empty() {
            return Err(match core.side() {
                Side::Client => ProtocolError::ReverseChunks,
                Side::Server => ProtocolError::ForwardChunks,
            });
        }
        let layout = match payload {
            Some(_) if lists.has_position_zero() => return Err(ProtocolError::PositionZeroInMessage),
            Some(payload) => Layout::new(&lists.read, payload.len() + here, &core.config.limits)?,
            // RFC 8166 §4.2.4: without a Position-Zero chunk the Payload stream has no source.
            None if !lists.has_position_zero() => return Err(ProtocolError::NoPositionZero),
            None => Layout::new(&lists.read, 0, &core.config.limits)?,
        };
        // RFC 5666 §6.2: "no transfer will be possible". An RDMA Read posted all the same would end the connection, and
        // the peer would send the Call again on the next one.
        if !core.reads.are_allowed() && layout.total() > 0 {
            return Err(ProtocolError::ReadsNotAgreed);
        }
        // RFC 8166 §4.5.3. The refused Call had chunks to read; a Call without any is another one under the same XID.
        if !lists.read.is_empty() && self.refused.remove(xid) {
            return Err(ProtocolError::EarlierReadFailed { xid: *xid });
        }
        // Arguments of an unknown program need not be read.
        let wanted = match payload {
            Some(payload) => {
                let chunks = layout.chunks.len() + items.len();
                check_eligible(core.config.bindings.as_deref(), payload, chunks)?
            }
            None => true,
        };
        Ok((layout, wanted))
    }

    /// Records the status of the RDMA Reads of a Call's chunks. A failure ends the connection (RFC 8166 §4.5.3). If the
    /// peer caused it, a retransmission of this XID gets an error.
    pub(crate) fn note_read(&mut self, token: u64, status: Status) {
        if matches!(status, Status::RemoteAccess | Status::RemoteOperation)
            && let Some(call) = self.calls.get(&token)
        {
            self.failed_reads.push(call.call.xid);
        }
    }

    /// Handles the complete chunks of a Call.
    pub(crate) fn handle_pulled(&mut self, core: &mut Core, token: u64, pulled: Pulled) {
        let Some(xid) = self.calls.get(&token).map(|call| call.call.xid) else { return };
        if let Err((error, charge)) = self.deliver(core, token, pulled) {
            self.refuse_call(core, xid, &error, charge);
        }
    }

    /// Refuses a Call whose chunks can never have memory.
    pub(crate) fn handle_unreadable(&mut self, core: &mut Core, token: u64) {
        let Some(call) = self.calls.remove(&token) else { return };
        let len = wide(call.travelled.read);
        self.refuse_call(core, call.call.xid, &ProtocolError::ExceedsMemory { len }, call.charge);
    }

    /// Passes a complete Call to the upper layer.
    fn deliver(
        &mut self,
        core: &mut Core,
        token: u64,
        pulled: Pulled,
    ) -> Result<(), (ProtocolError, Charge)> {
        let Some(call) = self.calls.get_mut(&token) else { return Ok(()) };
        let (xid, travelled) = (call.call.xid, call.travelled);
        match call.message(pulled, core.config.bindings.as_deref()) {
            Ok(message) => {
                tracing::debug!(
                    side = %core.side(), xid = format_args!("{xid:#010x}"), form = ?travelled.form,
                    sent = travelled.sent, read = travelled.read, "call received"
                );
                let token = ReplyToken(token);
                core.events.push_back(Event::Call(IncomingCall { token, xid, message, travelled }));
                Ok(())
            }
            Err(error) => match self.calls.remove(&token) {
                Some(call) => Err((error, call.charge)),
                None => Ok(()),
            },
        }
    }

    /// Whether a Call waits for its answer.
    pub(crate) fn has_call(&self, token: ReplyToken) -> bool {
        self.calls.contains_key(&token.0)
    }

    /// Sets the upper layer's answer; ignored if the Call is unknown or has an answer.
    pub(crate) fn reply(&mut self, token: ReplyToken, answer: Answer) {
        if let Some(call) = self.calls.get_mut(&token.0).filter(|call| call.answer.is_none()) {
            call.answer = Some(answer);
            self.answers.push_back(token.0);
        }
    }

    pub(crate) fn poll_timeout(&self, core: &Core) -> Option<Instant> {
        let deadline = |stall: Option<Stall>| stall.map(|(deadline, _)| deadline);
        let line = core.ledger.line.deadline();
        earliest([deadline(self.stalled), deadline(self.stalled_error), line])
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        self.end_waits(core, now);
        for stalled in [&mut self.stalled_error, &mut self.stalled] {
            if let Some((_, what)) = stalled.take_if(|(deadline, _)| *deadline <= now) {
                core.fail(CloseReason::Timeout(what));
            }
        }
    }

    /// Handles the end of the connection. `read` is the owner of the RDMA Reads in progress, if there is only one.
    pub(crate) fn handle_disconnected(&mut self, reason: &Disconnected, read: Option<Owner>) {
        // RFC 8166 §4.5.3, on iWARP: the peer refuses an RDMA Read by a Terminate without the Read's identity (RFC 5040
        // §4.8). ERR_CHUNK is final, so a Call is blamed only if no other was being read.
        if let Disconnected::Terminated(TerminateCause { layer: 0, error_type: REMOTE_PROTECTION, .. }) =
            reason
            && self.failed_reads.is_empty()
            && let Some(Owner::Call(token)) = read
            && let Some(call) = self.calls.get(&token)
        {
            self.failed_reads.push(call.call.xid);
        }
        self.calls.clear();
        self.answers.clear();
        self.stalled = None;
        self.stalled_error = None;
        self.errors.clear();
    }
}

impl Incoming {
    /// Returns the RPC message.
    fn message(
        &mut self,
        Pulled { zero, mut chunks }: Pulled,
        bindings: Option<&dyn Bindings>,
    ) -> Result<Decoder, ProtocolError> {
        let base = match self.call.payload.take() {
            Some(inline) => inline,
            None => {
                let base = Payload::from(zero.unwrap_or_default());
                check_prefix(self.call.xid, &base, CALL)?;
                check_eligible(bindings, &base, chunks.len())?;
                base
            }
        };
        if !self.call.items.is_empty() {
            chunks.append(&mut self.call.items);
            chunks.sort_by_key(|chunk| chunk.position);
        }
        let message = Decoder::with_read_chunks(base, chunks);
        Ok(match self.call.padding {
            Some(padding) => message.skip_padding(padding),
            None => message,
        })
    }
}

/// Checks that a Call has no more chunks than its procedure has DDP-eligible arguments (RFC 8166 §6.1). `Ok(false)` if
/// the program is unknown: the upper layer will refuse the Call unread, so its chunks need not be pulled.
fn check_eligible(
    bindings: Option<&dyn Bindings>,
    message: &Payload,
    chunks: usize,
) -> Result<bool, ProtocolError> {
    let (Some(bindings), Some(numbers)) = (bindings, message.first_chunk::<CALL_NUMBERS>()) else {
        return Ok(true);
    };
    if chunks == 0 {
        return Ok(true);
    }
    let word = |at: usize| {
        numbers.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
    };
    match bindings.eligibility(word(12), word(16), word(20)) {
        None => Ok(false),
        Some(eligibility) if chunks > eligibility.arguments => {
            Err(ProtocolError::NotEligible { chunks, eligible: eligibility.arguments })
        }
        Some(_) => Ok(true),
    }
}
