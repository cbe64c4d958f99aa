//! The half of a connection that answers Calls (RFC 8166 §2.2.2).
//!
//! A Call with chunks is laid out and bounded first, then its chunks are pulled by RDMA Read into memory of the domain, all of
//! it or none; without memory it waits, the peer's credit with it. Only when everything is there is it handed out. Its answer is
//! planned when it leaves: RDMA Writes, then one Send on the same queue pair, which the peer gets after them; under the Read-Read
//! model what remains is exposed for the peer to read. A fault
//! that is answered takes the Call's credit until the RDMA_ERROR has left, so that a flood of bad Calls meets the same bound.

mod answer;
mod exposure;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Disconnected, Key, Status, TerminateCause};
use rpcrdma_xdr::{Decoder, Padding, ReadChunk, padded_len};

use self::exposure::Exposures;
use crate::binding::Bindings;
use crate::call::{Form, Travelled};
use crate::config::Side;
use crate::core::Core;
use crate::error::ProtocolError;
use crate::event::{Answer, CloseReason, Event, IncomingCall, ReplyToken};
use crate::flow::Charge;
use crate::ids::IdMap;
use crate::reads::{Owner, Pull, Pulled};
use crate::reassembly::Layout;
use crate::timers::{Moving, earlier};
use crate::wire::two::transmission::ResponseDirection;
use crate::wire::{ChunkLists, Direction, ErrorBody};

/// The first two words of an RPC message: XID and direction.
const RPC_PREFIX: usize = 8;
pub(crate) const CALL: u32 = 0;
pub(crate) const REPLY: u32 = 1;
/// RFC 5531 §9: xid, mtype, rpcvers, prog, vers, proc.
const CALL_NUMBERS: usize = 24;
/// Replies in transmission groups that a report can be about still.
const IN_GROUPS: usize = 1024;
/// RFC 5040 §4.8: the type of error of the RDMA layer that refuses key, range or right.
const REMOTE_PROTECTION: u8 = 1;

#[derive(Debug)]
pub(crate) struct Responder {
    calls: IdMap<u64, Incoming>,
    /// Calls whose answer is to leave, in order, but for those that wait in the ledger's line.
    answers: VecDeque<u64>,
    /// Calls whose answer waits until less is exposed, or calls of ours hold fewer windows.
    withheld: VecDeque<u64>,
    /// How long the next answer may wait, and for what, if it does.
    stalled: Option<Stall>,
    /// The same for the next RDMA_ERROR.
    stalled_error: Option<Stall>,
    exposures: Exposures,
    errors: VecDeque<Fault>,
    /// Of answers that are withheld.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Of one client's connections no two give out the same.
    pub(crate) next_token: u64,
    /// Whether a Call will never be answered.
    reply_lost: bool,
    /// XIDs whose chunks could not be read.
    failed_reads: Vec<u32>,
    /// The same, of earlier connections.
    refused: HashSet<u32>,
    /// Replies that left in transmission groups, the last ones: what is reported of another is about nothing.
    in_groups: VecDeque<u32>,
    pub(crate) wants_memory: Option<usize>,
}

/// Until when something may wait, and for what.
type Stall = (Instant, &'static str);

/// An RDMA_ERROR that waits to be sent.
#[derive(Debug)]
struct Fault {
    xid: u32,
    version: u32,
    body: ErrorBody,
    charge: Charge,
}

/// A Call of the peer until its answer has left.
#[derive(Debug)]
struct Incoming {
    xid: u32,
    lists: ChunkLists,
    /// What its answer may invalidate, where the Call says so (version-two-03 §6.2.3).
    invalidate: u32,
    inline: Option<Bytes>,
    /// How `inline` is aligned, if it came in an RDMA_MSGP.
    padding: Option<Padding>,
    /// For its answer to leave, once that is withheld.
    deadline: Option<Instant>,
    /// The credit that it uses.
    charge: Charge,
    /// Its answer, once it has one.
    answer: Option<Answer>,
    /// Its answer has stood in line for credits: it does not wait for more.
    in_turn: bool,
    travelled: Travelled,
    /// Items of it that lie in our Receives.
    items: Vec<ReadChunk>,
    /// What it says of its reply, if it came in a transmission group.
    group: Option<AskedReply>,
}

/// A Call as it came.
#[derive(Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) xid: u32,
    pub(crate) lists: ChunkLists,
    /// What its answer may invalidate, where it says so.
    pub(crate) invalidate: u32,
    /// What follows the header; `None` for RDMA_NOMSG.
    pub(crate) payload: Option<Bytes>,
    /// How that is aligned, if it came in an RDMA_MSGP.
    pub(crate) padding: Option<Padding>,
    /// It came in several Sends.
    pub(crate) continued: bool,
    /// Bytes of the Send, or of all of them.
    pub(crate) len: usize,
    /// Items of it that lie in our Receives.
    pub(crate) items: Vec<ReadChunk>,
    /// What it says of its reply, if it came in a transmission group.
    pub(crate) group: Option<AskedReply>,
}

/// What a Call in a transmission group says of its reply (rtrext-02 §7.4, §9.2).
#[derive(Debug)]
pub(crate) struct AskedReply {
    /// What to do with its items, in their order. Which part of the Call each is for is not known here: they are used in order.
    pub(crate) directions: Vec<ResponseDirection>,
    /// Receives that there are for it.
    pub(crate) buffers: u32,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            calls: IdMap::default(),
            answers: VecDeque::new(),
            withheld: VecDeque::new(),
            stalled: None,
            stalled_error: None,
            exposures: Exposures::default(),
            errors: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next_token: 0,
            reply_lost: false,
            failed_reads: Vec::new(),
            refused: HashSet::new(),
            in_groups: VecDeque::new(),
            wants_memory: None,
        }
    }

    /// A reply left in a transmission group.
    fn left_in_group(&mut self, xid: u32) {
        self.in_groups.push_back(xid);
        if self.in_groups.len() > IN_GROUPS {
            self.in_groups.pop_front();
        }
    }

    /// Whether a reply that is reported left in a group and was not reported yet.
    pub(crate) fn may_be_reported(&mut self, xid: u32) -> bool {
        let place = self.in_groups.iter().position(|left| *left == xid);
        place.is_some_and(|place| self.in_groups.remove(place).is_some())
    }

    /// Whether the answer to a Call is exposed to the peer's RDMA Reads.
    pub(crate) fn has_exposed(&self, token: ReplyToken) -> bool {
        self.exposures.has(token.0)
    }

    /// Whether memory is exposed to the peer's RDMA Reads.
    pub(crate) fn exposes(&self) -> bool {
        self.exposures.count() > 0
    }

    /// Takes an RDMA_DONE (RFC 5666 §3.8).
    pub(crate) fn handle_done(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
    ) -> Result<(), ProtocolError> {
        match core.config.compatibility.read_read {
            Some(_) => self.exposures.done(core, now, xid),
            None => Err(ProtocolError::UnexpectedDone),
        }
    }

    /// The window of an exposed reply is closed.
    pub(crate) fn concealed(&mut self, core: &mut Core, token: u64, key: Key) {
        if self.exposures.closed(core, token, key) {
            self.window_freed();
        }
    }

    /// There may be room for what was withheld.
    pub(crate) fn window_freed(&mut self) {
        while let Some(token) = self.withheld.pop_back() {
            self.answers.push_front(token);
        }
    }

    /// Whether a Call will never be answered, all answers before having been posted.
    pub(crate) const fn has_lost_a_reply(&self) -> bool {
        self.reply_lost
    }

    pub(crate) fn failed_reads(&self) -> &[u32] {
        &self.failed_reads
    }

    pub(crate) fn refuse(&mut self, xids: impl IntoIterator<Item = u32>) {
        self.refused.extend(xids);
    }

    /// Queues an RDMA_ERROR for a Call that was admitted.
    pub(crate) fn answer_error(&mut self, xid: u32, version: u32, body: ErrorBody, charge: Charge) {
        self.errors.push_back(Fault { xid, version, body, charge });
    }

    /// Takes a Call that was admitted. An error comes with the Call's credit, for [`answer_error`](Self::answer_error).
    pub(crate) fn handle_call(
        &mut self,
        core: &mut Core,
        call: ReceivedCall,
        charge: Charge,
    ) -> Result<(), (ProtocolError, Charge)> {
        let (layout, wanted) = match self.lay_out(core, &call) {
            Ok(laid_out) => laid_out,
            Err(error) => return Err((error, charge)),
        };
        let ReceivedCall { xid, lists, invalidate, payload, padding, continued, len, items, group } = call;
        let form = match payload {
            None => Form::Long,
            Some(_) if !items.is_empty() => Form::Placed,
            Some(_) if continued => Form::Continued,
            Some(_) if !layout.chunks.is_empty() => Form::Reduced,
            Some(_) if padding.is_some() => Form::Padded,
            Some(_) => Form::Inline,
        };
        let read = usize::try_from(layout.total()).unwrap_or(usize::MAX);
        let segments = lists.read.len();
        let travelled = Travelled { form, sent: len, read, segments, ..Travelled::default() };
        count_lists(core, &lists, &travelled);

        let token = self.next_token;
        self.next_token += 1;
        let incoming = Incoming {
            xid,
            lists,
            invalidate,
            inline: payload,
            padding,
            deadline: None,
            charge,
            answer: None,
            in_turn: false,
            travelled,
            items,
            group,
        };
        self.calls.insert(token, incoming);
        let pull = if wanted { Pull::new(layout) } else { Pull::default() };
        if pull.is_complete() {
            return self.deliver(core, token, pull.into_pulled());
        }
        core.reads.add(Owner::Call(token), pull, None::<fn(u64) -> Moving>);
        Ok(())
    }

    /// Finds the chunks of a Call, and checks that it may have them; returns whether they need be read too.
    fn lay_out(&mut self, core: &Core, call: &ReceivedCall) -> Result<(Layout, bool), ProtocolError> {
        let ReceivedCall { xid, lists, payload, items, .. } = call;
        let here: usize = items.iter().map(|item| padded_len(item.data.len())).sum();
        // RFC 8167 §5.3
        if !core.takes_chunks() && !lists.is_empty() {
            return Err(match core.side {
                Side::Client => ProtocolError::ReverseChunks,
                Side::Server => ProtocolError::ForwardChunks,
            });
        }
        let layout = match payload {
            Some(_) if lists.has_position_zero() => return Err(ProtocolError::PositionZeroInMessage),
            Some(payload) => Layout::new(&lists.read, payload.len() + here, &core.config.limits)?,
            // RFC 8166 §4.2.4: without it the Payload has no source.
            None if !lists.has_position_zero() => return Err(ProtocolError::NoPositionZero),
            None => Layout::new(&lists.read, 0, &core.config.limits)?,
        };
        // RFC 5666 §6.2: "no transfer will be possible". A Read that is posted all the same costs the connection, and the peer would
        // send the Call again on the next one.
        if !core.reads.are_allowed() && layout.total() > 0 {
            return Err(ProtocolError::ReadsNotAgreed);
        }
        // RFC 8166 §4.5.3. What was refused had chunks to read; without any it is another Call under the same XID.
        if !lists.read.is_empty() && self.refused.remove(xid) {
            return Err(ProtocolError::EarlierReadFailed { xid: *xid });
        }
        // The arguments of a program that is not served need not be read.
        let wanted = match payload {
            Some(payload) => {
                let chunks = layout.chunks.len() + items.len();
                check_eligible(core.config.bindings.as_deref(), payload, chunks)?
            }
            None => true,
        };
        Ok((layout, wanted))
    }

    fn set_deadline(&mut self, token: u64, deadline: Instant) {
        if let Some(call) = self.calls.get_mut(&token) {
            if let Some(old) = call.deadline.replace(deadline) {
                self.deadlines.remove(&(old, token));
            }
            self.deadlines.insert((deadline, token));
        }
    }

    /// Forgets a Call; its credit is given back by whoever answers it.
    fn forget(&mut self, token: u64) -> Option<Incoming> {
        let call = self.calls.remove(&token)?;
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, token));
        }
        Some(call)
    }

    /// RDMA Reads of a Call's chunks have ended. RFC 8166 §4.5.3: if they failed the connection is lost; whoever sends this XID
    /// again is told why, if the fault was the peer's.
    pub(crate) fn note_read(&mut self, token: u64, status: Status) {
        if matches!(status, Status::RemoteAccess | Status::RemoteOperation)
            && let Some(call) = self.calls.get(&token)
        {
            self.failed_reads.push(call.xid);
        }
    }

    /// The chunks of a Call are read.
    pub(crate) fn handle_pulled(&mut self, core: &mut Core, token: u64, pulled: Pulled) {
        let Some(xid) = self.calls.get(&token).map(|call| call.xid) else { return };
        if let Err((error, charge)) = self.deliver(core, token, pulled) {
            core.stats.fault(&error);
            self.answer_error(xid, core.codec.rules().version, core.codec.refusal(&error), charge);
        }
    }

    /// There will never be the memory to read the chunks of a Call.
    pub(crate) fn handle_unreadable(&mut self, core: &mut Core, token: u64) {
        let Some(call) = self.calls.remove(&token) else { return };
        let len = call.travelled.read.try_into().unwrap_or(u64::MAX);
        let error = ProtocolError::ExceedsMemory { len };
        core.stats.fault(&error);
        self.answer_error(call.xid, core.codec.rules().version, core.codec.refusal(&error), call.charge);
    }

    /// Hands a Call out, all its chunks being there.
    fn deliver(
        &mut self,
        core: &mut Core,
        token: u64,
        pulled: Pulled,
    ) -> Result<(), (ProtocolError, Charge)> {
        let Some(call) = self.calls.get_mut(&token) else { return Ok(()) };
        let (xid, travelled) = (call.xid, call.travelled);
        match call.message(pulled, core.config.bindings.as_deref()) {
            Ok(message) => {
                tracing::debug!(
                    side = %core.side, xid = format_args!("{xid:#010x}"), form = ?travelled.form,
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

    /// The upper layer's answer. Ignored if the Call is not known any more, or has an answer.
    pub(crate) fn reply(&mut self, token: ReplyToken, answer: Answer) {
        if let Some(call) = self.calls.get_mut(&token.0).filter(|call| call.answer.is_none()) {
            call.answer = Some(answer);
            self.answers.push_back(token.0);
        }
    }

    pub(crate) fn poll_timeout(&self, core: &Core) -> Option<Instant> {
        let calls = self.deadlines.first().map(|(deadline, _)| *deadline);
        let deadline = |stall: Option<Stall>| stall.map(|(deadline, _)| deadline);
        let stalled = earlier(deadline(self.stalled), deadline(self.stalled_error));
        let in_line = core.ledger.line_deadline();
        earlier(earlier(calls, earlier(stalled, in_line)), self.exposures.poll_timeout())
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        self.exposures.handle_timeout(core, now);
        self.end_waits(core, now);
        for stalled in [&mut self.stalled_error, &mut self.stalled] {
            if let Some((_, what)) = stalled.take_if(|(deadline, _)| *deadline <= now) {
                core.fail(CloseReason::Timeout(what));
            }
        }
        while let Some(entry) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&entry);
            core.fail(CloseReason::Timeout("windows for an answer"));
        }
    }

    /// The connection is over: nothing can be answered any more. `read` is what was being read, if that was one message.
    pub(crate) fn handle_disconnected(&mut self, reason: &Disconnected, read: Option<Owner>) {
        // RFC 8166 §4.5.3, on iWARP: the peer refuses an RDMA Read by a Terminate that does not say which one (RFC 5040
        // §4.8). Blamed is a Call that was the only one being read; an ERR_CHUNK is final, so none is blamed in doubt.
        if let Disconnected::Terminated(TerminateCause { layer: 0, error_type: REMOTE_PROTECTION, .. }) =
            reason
            && self.failed_reads.is_empty()
            && let Some(Owner::Call(token)) = read
            && let Some(call) = self.calls.get(&token)
        {
            self.failed_reads.push(call.xid);
        }
        self.calls.clear();
        self.answers.clear();
        self.withheld.clear();
        self.stalled = None;
        self.stalled_error = None;
        self.exposures.clear();
        self.errors.clear();
        self.deadlines.clear();
    }
}

impl Incoming {
    /// The RPC message, put together.
    fn message(
        &mut self,
        Pulled { zero, mut chunks }: Pulled,
        bindings: Option<&dyn Bindings>,
    ) -> Result<Decoder, ProtocolError> {
        let base = match self.inline.take() {
            Some(inline) => inline,
            None => {
                let base = zero.unwrap_or_default();
                check_prefix(self.xid, &base, CALL)?;
                check_eligible(bindings, &base, chunks.len())?;
                base
            }
        };
        if !self.items.is_empty() {
            chunks.append(&mut self.items);
            chunks.sort_by_key(|chunk| chunk.position);
        }
        let message = Decoder::with_read_chunks(base, chunks);
        Ok(match self.padding {
            Some(padding) => message.skip_padding(padding),
            None => message,
        })
    }
}

/// The first two words of an RPC message.
pub(crate) fn rpc_prefix(payload: &[u8]) -> Result<(u32, u32), ProtocolError> {
    match payload.first_chunk::<RPC_PREFIX>() {
        Some([a, b, c, d, e, f, g, h]) => {
            Ok((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])))
        }
        None => Err(ProtocolError::ShortPayload { len: payload.len(), least: RPC_PREFIX }),
    }
}

/// Checks what came in a chunk: the Call or reply that the header announced (RFC 8166 §4.2.1, §4.5.2).
pub(crate) fn check_prefix(xid: u32, message: &[u8], expected: u32) -> Result<(), ProtocolError> {
    let (payload, direction) = rpc_prefix(message)?;
    if payload != xid {
        return Err(ProtocolError::XidMismatch { header: xid, payload });
    }
    if direction != expected {
        let expected = if expected == CALL { "Call" } else { "reply" };
        return Err(ProtocolError::WrongDirection { value: direction, expected });
    }
    Ok(())
}

/// RFC 8166 §6.1: not more chunks than the procedure has DDP-eligible arguments. `Ok(false)` if nothing is known of the
/// program: the Call will be refused without a look at its arguments, so its chunks need not be pulled.
fn check_eligible(
    bindings: Option<&dyn Bindings>,
    message: &[u8],
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

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn count_lists(core: &mut Core, lists: &ChunkLists, travelled: &Travelled) {
    let shape = lists.shape(Direction::Call);
    let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    core.stats.read_segments += wide(shape.read_segments);
    core.stats.write_segments += wide(shape.write_segments.iter().sum());
    core.stats.reply_segments += wide(shape.reply_segments.unwrap_or(0));
    core.stats.calls_received.count(travelled);
}
