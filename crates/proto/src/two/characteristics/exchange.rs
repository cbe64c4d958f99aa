//! The exchange of characteristics on one connection (xcharext-02 §4).
//!
//! *Flow control.* No document defines the flow control of these operations, most of which have no answer (xcharext-02
//! §2.3). Here each side keeps [`OPERATION_RECEIVES`](super::OPERATION_RECEIVES) Receives for them beyond those of its
//! credits, even if it does not exchange characteristics. A side sends an operation only when the previous one has
//! surely arrived. Three facts prove that: an answer to the operation, an answer to a later Call, or more Calls of the
//! peer than it can make without a later reply. A characteristic that changes meanwhile is announced once, with
//! its last value. On an idle connection a second update, or a request after an update, therefore waits for the next
//! Call of either side. Without a Call or reply nothing proves that the peer has a Receive for it. An application that
//! needs the answer to a request at once makes a NULL Call.
//! A reply is such a proof. A reply therefore leaves only when the Receives for operations are there, and after the
//! answers to operations.
//!
//! *Endless operations.* The connection ends after more than `Limits::operations` operations without a Call or reply
//! between them. A request with its response is itself a kind of Call (xcharext-02 §2.3), and at most one is open; they
//! do not count.
//!
//! *Receive sizes* (xcharext-02 §3.1). To grow, this side posts new Receives of the new size, and notifies the peer
//! when the last smaller Receive has been used. Only the peer can request a decrease. Then this side plans replies by
//! the lower size at once. When the last Call planned by the higher size has been answered, this side posts smaller
//! Receives and notifies the peer. The side that requested the decrease sends at most the lower size. Replies to Calls
//! received before the change was complete are exempt, since nothing else may be able to carry them.

mod own;
mod requests;

use std::collections::VecDeque;

use self::own::{Announcement, Change, Own, Resize};
use self::requests::{Request, Requests};
use super::{Characteristic, Characteristics, Disposition, NotExchanged, Notice, RECEIVE_SIZES};
use crate::flow::arrival::{Mark, Shown};
use crate::settings::config::Config;
use crate::wire::two::{self, Exchange, Profile, Rest, Subset, Value};
use crate::wire::{Body, Direction, ErrorBody, Limits, ProtocolError, narrow, sized};

/// The most answers that wait to leave; a peer with more open operations violates the flow control.
const ANSWERS: usize = 4;

/// Progress of the ordinary messages of both sides, which proves whether an operation has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The position in the send order of an operation that leaves now.
    pub(crate) mark: Mark,
    /// Proof from the peer of our messages that have arrived.
    pub(crate) shown: Shown,
    /// The lowest number of an unanswered Call of ours, if the caller computed it.
    pub(crate) oldest: Option<u64>,
}

/// An operation to send.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) direction: Direction,
    /// The XID of the message that is answered; `None` for an operation that gets a new XID.
    pub(crate) xid: Option<u32>,
    pub(crate) body: Body,
}

/// The state of the exchange.
#[derive(Debug)]
pub(crate) struct Exchanges {
    terms: Terms,
    own: Own,
    peer: Peer,
    /// Requests of the application to the peer.
    requests: Requests,
    /// This side's last operation, while the peer may still refuse it.
    last: Option<Last>,
    /// The position of the last operation sent, which may not have arrived.
    unproved: Option<Mark>,
    answers: VecDeque<Operation>,
    /// Operations received since the last Call or reply, without requests and their responses.
    storm: u32,
    /// Changes that the application does not know yet.
    pub(crate) notices: Vec<Notice>,
    /// Faults of the peer in operations that were used nevertheless, not yet counted.
    pub(crate) faults: Vec<two::Error>,
}

/// The facts that an exchange keeps from its begin to its end.
#[derive(Debug)]
struct Terms {
    profile: Profile,
    enabled: bool,
    /// Characteristics are announced once and never change (version-two-07 §5.1).
    once: bool,
    /// The least and the largest size of our Receives that the peer may request, bytes.
    sizes: (u32, u32),
    /// The ids of registered characteristics that the peer may change.
    changeable: Vec<u32>,
    /// This side can accept Send with Invalidate.
    may_invalidate: bool,
    limits: Limits,
}

/// An operation that this side has sent.
#[derive(Clone, Copy, Debug)]
struct Last {
    xid: u32,
    /// It is the first announcement.
    is_initial: bool,
}

/// The peer's values, and its part in the exchange.
#[derive(Debug, Default)]
struct Peer {
    /// The announced values.
    values: Characteristics,
    /// The peer has announced its receive size, which therefore does not follow from the structure.
    size_is_told: bool,
    /// A part of the values is announced, and the last part is still to come.
    in_parts: bool,
    /// The peer exchanges characteristics.
    heard: bool,
    /// The peer has refused to exchange characteristics.
    refused: bool,
    /// Changes that the peer has accepted for later.
    pending: Vec<Characteristic>,
}

impl Peer {
    /// Replaces a value. Until the peer announces its receive size, that is the sum of the segments of its structure
    /// (rtrext-02 §8.3). With the default structure, and with one that is not consistent, it is the default: the least.
    fn apply(&mut self, value: Characteristic) {
        match &value {
            Characteristic::ReceiveSize(_) => self.size_is_told = true,
            Characteristic::BufferStructure(structure) if !self.size_is_told => {
                self.values.receive_size =
                    structure.check().map_or(*RECEIVE_SIZES.start(), |()| structure.total);
            }
            _ => {}
        }
        self.values.apply(value);
    }
}

/// A response whose outcome is still open.
#[derive(Debug)]
struct Response {
    xid: u32,
    /// The requested values that are not rejected, with their place in the request.
    wants: Vec<(usize, Characteristic)>,
    rejected: Subset,
}

impl Exchanges {
    /// Returns the state before the first operation. `may_invalidate`: this side can accept Send with Invalidate.
    pub(crate) fn new(
        profile: Profile,
        config: &Config,
        receive_size: usize,
        reverse: super::ReverseSupport,
        may_invalidate: bool,
    ) -> Self {
        let exchanged = &config.characteristics;
        let initial = Characteristics::initial(profile);
        let rules = profile.codec().rules();
        let limits = &config.limits;
        let ours = Characteristics {
            receive_size: narrow(receive_size),
            send_size: initial.send_size.map(|least| narrow(config.send_size).max(least)),
            segment_size: initial.segment_size.map(|_| narrow(limits.read_segment_len)),
            segment_count: initial.segment_count.map(|_| narrow(limits.segments_per_chunk)),
            remote_invalidation: may_invalidate,
            reverse,
            transmissions: config.transmissions.told(config),
            combined: narrow(limits.combined_messages.max(1)),
            registered: exchanged.registered.iter().map(|own| (own.id, own.value.clone())).collect(),
        };
        let terms = Terms {
            profile,
            enabled: exchanged.enabled,
            once: rules.two.is_some_and(|two| two.tells_once),
            sizes: (
                narrow(exchanged.least_receive_size)
                    .max(Characteristics::default().receive_size)
                    // Receives never shrink below the structure in which the peer places items.
                    .max(config.structure().map_or(0, |structure| structure.total)),
                narrow(exchanged.most_receive_size),
            ),
            changeable: exchanged.registered.iter().filter(|own| own.changeable).map(|own| own.id).collect(),
            may_invalidate,
            limits: limits.clone(),
        };
        Self {
            terms,
            own: Own::new(ours, Characteristics::default().receive_size),
            peer: Peer { values: initial, ..Peer::default() },
            requests: Requests::default(),
            last: None,
            unproved: None,
            answers: VecDeque::new(),
            storm: 0,
            notices: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the values that the peer has announced.
    pub(crate) const fn peer(&self) -> &Characteristics {
        &self.peer.values
    }

    /// Returns the values of this side.
    pub(crate) const fn ours(&self) -> &Characteristics {
        &self.own.values
    }

    /// Whether the peer exchanges characteristics; `None` until the peer has shown either.
    pub(crate) const fn is_exchanged(&self) -> Option<bool> {
        if self.peer.refused {
            Some(false)
        } else if self.peer.heard {
            Some(true)
        } else {
            None
        }
    }

    /// Returns the longest inline reply that the peer may send to a Call that leaves now, bytes.
    pub(crate) fn receive(&self) -> usize {
        let initial = Characteristics::default().receive_size;
        let told = match self.is_exchanged() {
            Some(true) => self.own.told_size,
            _ => self.own.told_size.min(initial),
        };
        let told = told.min(self.own.values.receive_size).min(self.peer.values.send_size.unwrap_or(u32::MAX));
        let lower =
            self.own.resize.as_ref().filter(|resize| resize.until.is_some()).map(|resize| resize.size);
        sized(told.min(lower.unwrap_or(told)))
    }

    /// Returns the longest message to send, and the longest reply if nothing but one Send can carry it, bytes. The
    /// peer's Receives hold the latter, and the Requester planned for that size. `own` is the configured size, `most`
    /// the version's limit.
    pub(crate) fn send(&self, own: usize, most: usize) -> (usize, usize) {
        let requested = self.requests.values().chain(&self.peer.pending).filter_map(|want| match want {
            Characteristic::ReceiveSize(size) => Some(*size),
            _ => None,
        });
        let size = self.peer.values.receive_size;
        let now = requested.min().map_or(size, |requested| requested.min(size));
        (own.min(sized(now)), most.min(sized(size)))
    }

    /// Allows the first operation to be sent.
    pub(crate) fn begin(&mut self) {
        if self.terms.enabled {
            self.own.announce();
        }
    }

    /// Restarts the count of operations: a Call or reply has arrived.
    pub(crate) const fn rpc_received(&mut self) {
        self.storm = 0;
    }

    /// Returns the name of the message type that must be continued next, if there is one.
    pub(crate) fn expects(&self) -> Option<&'static str> {
        self.peer.in_parts.then_some("RDMA2_CONNPROP_MIDDLE")
    }

    /// Queues a request to the peer to change; returns the number of the request.
    pub(crate) fn ask(&mut self, want: Vec<Characteristic>, allowed: usize) -> Result<u64, NotExchanged> {
        if self.terms.once {
            return Err(NotExchanged::ToldOnce);
        }
        if self.peer.refused || !self.terms.enabled {
            return Err(NotExchanged::Unsupported);
        }
        if want.is_empty() || want.len() > allowed.min(super::REGISTERED_MOST) {
            return Err(NotExchanged::Count {
                count: want.len(),
                allowed: allowed.min(super::REGISTERED_MOST),
            });
        }
        want.iter().try_for_each(|want| self.check_own(want))?;
        let earlier =
            |place, value: &Characteristic| want.iter().take(place).any(|want| want.is_same_kind(value));
        if let Some((_, twice)) = want.iter().enumerate().find(|(place, want)| earlier(*place, want)) {
            return Err(NotExchanged::Twice(twice.clone()));
        }
        self.requests.queue(want)
    }

    /// Changes a characteristic of this side; returns the size of Receives posted from now on, if that changes.
    pub(crate) fn change(&mut self, value: Characteristic) -> Result<Option<u32>, NotExchanged> {
        if self.terms.once {
            return Err(NotExchanged::ToldOnce);
        }
        if !self.terms.enabled {
            return Err(NotExchanged::Unsupported);
        }
        self.check_own(&value)?;
        match value {
            Characteristic::ReceiveSize(size) => self.own.grow(size),
            Characteristic::RemoteInvalidation(true) if !self.terms.may_invalidate => {
                Err(NotExchanged::Impossible(value))
            }
            // This implementation cannot change these on an open connection.
            value if value.is_of_groups() || matches!(value, Characteristic::Combined(_)) => {
                Err(NotExchanged::Impossible(value))
            }
            value => {
                self.own.set(value, false);
                Ok(None)
            }
        }
    }

    /// Handles an operation of the peer. An error is the answer to the operation. Returns the size of Receives posted
    /// from now on, if that changes.
    pub(crate) fn handle(
        &mut self,
        xid: u32,
        exchange: Exchange,
        progress: Progress,
        limit: u32,
    ) -> Result<Option<u32>, ProtocolError> {
        self.arrived(limit)?;
        if self.terms.once {
            self.told(exchange)?;
            return Ok(None);
        }
        if !self.terms.enabled {
            return Err(match exchange {
                _ if self.terms.profile == Profile::P1 => {
                    two::Error::UnknownOperation { operation: 0 }.into()
                }
                _ => ProtocolError::UnknownProcedure { procedure: 0 },
            });
        }
        let mut posted = None;
        let is_answered = matches!(exchange, Exchange::Request { .. } | Exchange::Response { .. });
        match exchange {
            // No profile that gets here divides announcements.
            Exchange::Part { .. } => {
                return Err(two::Error::UnknownOperation { operation: 0 }.into());
            }
            Exchange::Initial { start, .. } => {
                let start = self.decode(&start)?;
                (self.peer.values, self.peer.size_is_told) = (Characteristics::default(), false);
                start.into_iter().flatten().for_each(|value| self.peer.apply(value));
                // The first operation of this side, if sent, has arrived: the peer's answers or crosses it, and a
                // client sends first. A later operation may still be in flight.
                if self.last.is_some_and(|last| last.is_initial) {
                    self.unproved = None;
                }
                self.own.announce();
                self.tell_peer();
            }
            Exchange::Update { now, clears } => {
                let values = self.decode(&now)?;
                // Whether by its size or by its structure, the peer reduces what it was asked to.
                let was_asked = self.peer.pending.iter().any(|c| matches!(c, Characteristic::ReceiveSize(_)));
                let before = self.peer.values.receive_size;
                for (value, raw) in values.into_iter().zip(&now) {
                    let Some(value) = value else {
                        self.faults.push(two::Error::UnknownCharacteristic { id: raw.id });
                        continue;
                    };
                    self.peer.apply(value.clone());
                    if clears && self.peer.pending.extract_if(.., |c| c.is_same_kind(&value)).count() > 0 {
                        self.notices.push(Notice::Completed(value));
                    }
                }
                let size = self.peer.values.receive_size;
                if size < before && !was_asked {
                    self.faults.push(two::Error::UnaskedReduction { size, before });
                }
                self.tell_peer();
            }
            Exchange::Request { want } => posted = self.requested(xid, &want, progress)?,
            Exchange::Response { done, rejected, rest } => {
                let Some(request) = self.requests.close(xid) else {
                    return Err(two::Error::UnexpectedResponse { xid }.into());
                };
                self.answered(xid);
                self.responded(request, &done, &rejected, &rest);
            }
        }
        self.peer.heard = true;
        self.storm = self.storm.saturating_sub(u32::from(is_answered));
        Ok(posted)
    }

    /// Counts an operation of the peer; more than `limit` are an error.
    fn arrived(&mut self, limit: u32) -> Result<(), two::Error> {
        self.storm = self.storm.saturating_add(1);
        if self.storm > limit || self.answers.len() >= ANSWERS {
            return Err(two::Error::TooManyOperations { allowed: limit });
        }
        Ok(())
    }

    /// Counts an operation of the peer that did not decode. No other limit bounds the refusals that wait to be sent. A
    /// divided announcement ends here.
    pub(crate) fn undecoded(&mut self, limit: u32) -> Result<(), two::Error> {
        self.peer.in_parts = false;
        self.arrived(limit)
    }

    /// Handles an announcement, or a part of one (version-two-07 §6.3.3, §6.3.4). These message types are mandatory. A
    /// side with the exchange disabled therefore accepts them and keeps to the defaults.
    fn told(&mut self, exchange: Exchange) -> Result<(), two::Error> {
        let (values, is_last) = match exchange {
            Exchange::Part { start } => (start, false),
            Exchange::Initial { start, .. } => (start, true),
            _ => return Err(two::Error::UnknownOperation { operation: 0 }),
        };
        if self.peer.heard {
            return Err(two::Error::ToldTwice);
        }
        let values = self.decode(&values);
        // A refused part ends its sequence: a peer may announce only once (§6.3.4), and could send nothing else any
        // more.
        self.peer.in_parts = !is_last && values.is_ok();
        let values = values?;
        if self.terms.enabled {
            values.into_iter().flatten().for_each(|value| self.peer.apply(value));
        }
        if is_last {
            self.peer.heard = true;
            self.begin();
            self.tell_peer();
        }
        Ok(())
    }

    fn tell_peer(&mut self) {
        self.notices.push(Notice::Peer(self.peer.values.clone()));
    }

    /// Checks that this side may announce or request this value.
    fn check_own(&self, value: &Characteristic) -> Result<(), NotExchanged> {
        match value {
            Characteristic::ReceiveSize(size) if !RECEIVE_SIZES.contains(size) => {
                Err(NotExchanged::Impossible(value.clone()))
            }
            Characteristic::Registered { id, .. } if !self.own.values.registered.contains_key(id) => {
                Err(NotExchanged::Unknown(value.clone()))
            }
            Characteristic::Registered { data, .. } if data.len() > super::REGISTERED_MAX => {
                Err(NotExchanged::Impossible(value.clone()))
            }
            value if value.encode(self.terms.profile).is_none() => Err(NotExchanged::Unknown(value.clone())),
            _ => Ok(()),
        }
    }

    /// Decodes all values before any is applied.
    fn decode(&self, values: &[Value]) -> Result<Vec<Option<Characteristic>>, two::Error> {
        values.iter().map(|value| self.decode_one(value)).collect()
    }

    /// Decodes a value; `None` for unknown ids and for experimental ones without a registration here.
    fn decode_one(&self, value: &Value) -> Result<Option<Characteristic>, two::Error> {
        match Characteristic::decode(self.terms.profile, value, &self.terms.limits)? {
            Some(Characteristic::Registered { id, .. }) if !self.own.values.registered.contains_key(&id) => {
                Ok(None)
            }
            Some(Characteristic::Registered { id, data }) if data.len() > super::REGISTERED_MAX => {
                Err(two::Error::BadCharacteristic { id, len: data.len() })
            }
            known => Ok(known),
        }
    }

    /// Handles a request of the peer to change.
    fn requested(&mut self, xid: u32, want: &[Value], progress: Progress) -> Result<Option<u32>, two::Error> {
        let wants = self.decode(want)?;
        let (mut done, mut rejected, mut pending) = (Subset::default(), Subset::default(), Subset::default());
        let mut accepted = Vec::new();
        let mut resize = None;
        for (place, want) in wants.into_iter().enumerate() {
            accepted.extend(want.clone().map(|want| (place, want)));
            match want {
                Some(want)
                    if self.own.values.current(&want).as_ref() == Some(&want)
                        && self.own.resize.is_none() =>
                {
                    done.insert(place);
                }
                Some(Characteristic::ReceiveSize(size)) => {
                    let (least, most) = self.terms.sizes;
                    if !(least..=most).contains(&size) || self.own.is_resizing() || resize.is_some() {
                        rejected.insert(place);
                    } else {
                        pending.insert(place);
                        resize = Some(size);
                    }
                }
                Some(want) if self.may_become(&want) => {
                    done.insert(place);
                    self.own.take_over(want.clone());
                    self.notices.push(Notice::Own(want));
                }
                _ => rejected.insert(place),
            }
        }
        let response = if resize.is_some() && self.terms.profile != Profile::P1 {
            accepted.retain(|(place, _)| !rejected.contains(*place));
            Some(Response { xid, wants: accepted, rejected })
        } else {
            self.respond(xid, done, rejected, Rest::Pending(pending));
            None
        };
        Ok(resize.and_then(|size| self.own.resize(size, progress.mark.calls, response)))
    }

    fn respond(&mut self, xid: u32, done: Subset, rejected: Subset, rest: Rest) {
        let rest = match rest {
            Rest::Pending(_) if self.terms.profile != Profile::P1 => Rest::Other(vec![]),
            rest => rest,
        };
        self.answer(xid, Body::Two(two::Body::Exchange(Exchange::Response { done, rejected, rest })));
    }

    /// Whether a request of the peer changes this at once.
    fn may_become(&self, want: &Characteristic) -> bool {
        match want {
            Characteristic::RemoteInvalidation(takes) => !takes || self.terms.may_invalidate,
            // The length of the data was checked where it was decoded.
            Characteristic::Registered { id, .. } => self.terms.changeable.contains(id),
            _ => false,
        }
    }

    /// Handles the response to our request. A value that the response names twice, or not at all, counts as rejected
    /// (version-two-03 §5.3.3).
    fn responded(&mut self, request: Request, done: &Subset, rejected: &Subset, rest: &Rest) {
        let len = request.want.len();
        let (none, no_values) = (Subset::default(), Vec::new());
        let (pending, other) = match rest {
            Rest::Pending(pending) => (pending, &no_values),
            Rest::Other(values) => (&none, values),
        };
        let end = done.end().max(rejected.end()).max(pending.end());
        if end > len {
            self.faults.push(two::Error::SubsetTooLong { end, len });
        }
        let mut dispositions = Vec::with_capacity(len);
        for (place, want) in request.want.into_iter().enumerate() {
            // Values that were not requested or do not decode are ignored (version-two-03 §5.3.3).
            let instead = other.iter().find_map(|value| {
                let value = self.decode_one(value).ok().flatten()?;
                value.is_same_kind(&want).then_some(value)
            });
            let said = [
                (done.contains(place), Disposition::Done),
                (rejected.contains(place), Disposition::Rejected),
                (pending.contains(place), Disposition::Pending),
                (instead.is_some(), Disposition::Other),
            ];
            let mut said = said.into_iter().filter(|(said, _)| *said);
            let disposition = match (said.next(), said.next()) {
                (Some((_, disposition)), None) => disposition,
                (first, _) => {
                    let saying = if first.is_some() { "several things" } else { "nothing" };
                    self.faults.push(two::Error::ResponseUnclear { place, saying });
                    Disposition::Rejected
                }
            };
            match disposition {
                Disposition::Done => self.peer.apply(want.clone()),
                Disposition::Other => instead.into_iter().for_each(|value| self.peer.apply(value)),
                Disposition::Pending => self.peer.pending.push(want.clone()),
                Disposition::Rejected => {}
            }
            dispositions.push((want, disposition));
        }
        self.notices.push(Notice::Answered { request: request.number, dispositions });
    }

    /// Queues the refusal of an operation.
    pub(crate) fn refuse(&mut self, xid: u32, error: ErrorBody) {
        self.answer(xid, Body::Error(error));
    }

    fn answer(&mut self, xid: u32, body: Body) {
        self.answers.push_back(Operation { direction: Direction::Reply, xid: Some(xid), body });
    }

    /// Handles the peer's refusal of the operation with this XID. A peer that has announced nothing does not exchange
    /// characteristics.
    pub(crate) fn handle_refusal(&mut self, xid: u32) {
        if !self.own.is_announced() || self.peer.refused {
            return;
        }
        self.answered(xid);
        self.peer.refused = !self.peer.heard;
        let refused = self.peer.refused;
        let request = self.requests.close(xid);
        if request.is_none() {
            // The peer may not know the receive size that this operation announced.
            self.own.told_size = self.own.told_size.min(Characteristics::default().receive_size);
        }
        let mut rejected = Vec::from_iter(request);
        if refused {
            self.own.updates.clear();
            rejected.extend(self.requests.close_all());
        }
        for Request { number: request, want } in rejected {
            let dispositions = want.into_iter().map(|want| (want, Disposition::Rejected)).collect();
            self.notices.push(Notice::Answered { request, dispositions });
        }
        if refused {
            self.notices.push(Notice::Unsupported);
        }
    }

    /// Records an answer to the operation with this XID. Later operations may still be in flight, since the answer to a
    /// request can come late.
    fn answered(&mut self, xid: u32) {
        if self.last.is_some_and(|last| last.xid == xid) {
            self.unproved = None;
        }
    }

    /// Whether this is the XID of an operation of ours that can still be answered.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.last.is_some_and(|last| last.xid == xid) || self.requests.knows(xid)
    }

    /// Whether an operation has to be sent, now or after the last one has arrived, or a change of Receives is in
    /// progress.
    pub(crate) fn has_something_to_do(&self) -> bool {
        self.own.has_something_to_do() || !self.requests.waiting.is_empty() || !self.answers.is_empty()
    }

    /// Completes a change of our Receives when it can. `least` is the size of the smallest posted Receive, bytes.
    /// Returns the size of Receives posted from now on, if that changes.
    pub(crate) fn advance(&mut self, progress: Progress, least: Option<usize>) -> Option<u32> {
        let Resize { size, until, asked, response } = self.own.resized(progress, least)?;
        let value = Characteristic::ReceiveSize(size);
        self.notices.push(Notice::Own(value.clone()));
        match response {
            Some(Response { xid, wants, rejected }) => {
                self.own.take_over(value);
                self.own.told_size = size;
                // A value granted at once may have changed since, and an update may have announced that.
                let (mut done, mut other) = (Subset::default(), Vec::new());
                for (place, want) in wants {
                    match self.own.values.current(&want) {
                        Some(now) if now != want => other.extend(now.encode(self.terms.profile)),
                        _ => done.insert(place),
                    }
                }
                self.respond(xid, done, rejected, Rest::Other(other));
            }
            None => self.own.set(value, asked),
        }
        until.map(|_| size)
    }

    /// Returns the next answer to an operation of the peer.
    pub(crate) fn next_answer(&mut self) -> Option<Operation> {
        self.answers.pop_front()
    }

    /// Returns the next operation to send, if it may leave.
    pub(crate) fn next(&mut self, progress: Progress) -> Option<Operation> {
        if let Some(answer) = self.next_answer() {
            return Some(answer);
        }
        if self.peer.refused || self.unproved.is_some_and(|sent| !sent.is_proved(progress.shown)) {
            return None;
        }
        // The last operation cannot be refused any more.
        self.last = None;
        let exchange = self.next_exchange()?;
        self.unproved = Some(progress.mark);
        Some(Operation {
            direction: Direction::Call,
            xid: None,
            body: Body::Two(two::Body::Exchange(exchange)),
        })
    }

    fn next_exchange(&mut self) -> Option<Exchange> {
        let profile = self.terms.profile;
        let encode = |value: &Characteristic| value.encode(profile);
        if self.own.announcement == Announcement::Due {
            self.own.announcement = Announcement::Sent;
            self.own.told_size = self.own.values.receive_size;
            let start: Vec<Value> = self.own.values.all().filter_map(|value| encode(&value)).collect();
            // No value changes without a request, and every value can be requested.
            return Some(Exchange::Initial { start, constant: Subset::default() });
        }
        // An update makes sense only after the first announcement.
        if !self.own.is_announced() {
            return None;
        }
        if let Some(Change { value, clears }) = self.own.next_update() {
            return Some(Exchange::Update { now: encode(&value).into_iter().collect(), clears });
        }
        let want = self.requests.open()?.want.iter().filter_map(encode).collect();
        Some(Exchange::Request { want })
    }

    /// Records the XID of the operation that [`next`](Self::next) returned.
    pub(crate) const fn sent_under(&mut self, xid: u32, body: &Body) {
        let Body::Two(two::Body::Exchange(exchange)) = body else { return };
        self.last = Some(Last { xid, is_initial: matches!(exchange, Exchange::Initial { .. }) });
        if matches!(exchange, Exchange::Request { .. }) {
            self.requests.sent_under(xid);
        }
    }

    /// Whether a decrease waits for answers to Calls, so that the caller must compute [`Progress::oldest`].
    pub(crate) fn is_lowering(&self) -> bool {
        self.own.resize.as_ref().is_some_and(|resize| resize.until.is_some())
    }
}

#[cfg(test)]
mod tests;
