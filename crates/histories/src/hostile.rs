//! Connections of client or server, one after the other, with a peer that violates every rule.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec, ErrorBody, Fixed, Header, RDMA_DONE, RDMA_ERROR, two};
use rpcrdma_proto::{
    Answer, CallId, Config, Connection, Event, Form, IncomingCall, Limits, OPERATION_RECEIVES, Profile,
    RefusedKind, ReplyToken, Side, Travelled,
};
use rpcrdma_sim::{Fabric, Outstanding};
use rpcrdma_verbs::{Buffer, ProtectionDomain, QueuePair, Windows};
use rpcrdma_xdr::Decoder;

use crate::draw::Draw;
use crate::ledger::{Kind, credit, decode, kind, messages};
use crate::link::{Link, Watch};
use crate::messages::{Messages, Parts};
use crate::operations::{self, Spoken};
use crate::peer::Peer;
use crate::program::{call, execute};
use crate::settings::{self, MEMORY, MOST_RECEIVE, MOST_STEPS, Queues, SLACK};
use crate::world::World;

/// XIDs of our calls follow this one.
const FIRST_XID: u32 = 1000;

/// Known facts about a connection with an arbitrary peer.
#[derive(Debug, Default)]
struct Account {
    /// The profile in which our side speaks Version Two, if it does.
    profile: Option<Profile>,
    receives: usize,
    /// XIDs of our calls.
    used: BTreeSet<u32>,
    /// Those of our XIDs for which no possible answer has come.
    out: BTreeSet<u32>,
    /// The largest grant that may have come with an answer.
    granted: usize,
    /// Messages of the peer that may have an answer, and answers.
    answerable: usize,
    answers: usize,
    most: usize,
    /// All messages of the peer.
    arrived: Vec<Bytes>,
    /// Credits per message, if our side may count them.
    messages: Option<Messages>,
    config: Arc<Config>,
    /// The limits of our side, which its queue pair narrows.
    limits: Limits,
    /// A server whose version the peer has not decided yet.
    undecided: bool,
    /// The version of the peer's last message that did not decide it.
    unread: Option<u32>,
    /// The peer has changed its version before it decided one. No peer that counts messages does that.
    changed: bool,
    parts: Parts,
}

impl Account {
    /// Checks that the inline part of an RPC message with this XID arrived in a Send.
    fn check_inline(&self, xid: u32, message: Decoder) {
        let (len, words) = (message.remaining(), words(message));
        let carried = |arrived: &Bytes| {
            let inline = arrived.len().checked_sub(len).map(|start| &arrived[start..]);
            arrived.starts_with(&xid.to_be_bytes()) && inline.is_some_and(|inline| inline.starts_with(&words))
        };
        assert!(self.arrived.iter().any(carried), "{xid:#x}: {len} bytes that nobody sent");
    }
}

/// Returns the words of a message up to the first item in a chunk.
fn words(mut message: Decoder) -> Vec<u8> {
    std::iter::from_fn(|| message.u32().ok()).flat_map(u32::to_be_bytes).collect()
}

impl Account {
    fn message_sent(&mut self, message: &Bytes, in_progress: usize) {
        let (header, kind, payload) = kind(self.profile, message);
        let counts = self.messages.is_some() || self.changed;
        let counted = counts && (header.version == two::VERSION || kind == Kind::Error);
        let kind = match &mut self.messages {
            Some(messages) => messages.message_sent(&header, payload, kind, self.receives),
            // The Sends of one message are one answer.
            None if self.changed && header.version == two::VERSION => {
                self.parts.follow(&header, payload, kind)
            }
            None => kind,
        };
        match kind {
            // Credits per message bound these messages.
            Kind::Call { .. } if counted => {
                assert!(self.used.insert(header.xid), "{:#x} is sent twice (I8)", header.xid);
            }
            Kind::Reply { .. } | Kind::Error if counted => {}
            Kind::Call { .. } => {
                assert!(self.used.insert(header.xid), "{:#x} is sent twice (I8)", header.xid);
                self.out.insert(header.xid);
                let (out, granted) = (self.out.len(), self.granted.max(1));
                assert!(out <= granted, "{out} in flight, {granted} granted at the most (I4)");
            }
            Kind::Reply { .. } | Kind::Error => {
                let (credit, backed) = (credit(&header), self.receives + in_progress);
                assert!((1..=self.most.min(backed)).contains(&credit), "{credit}, backed {backed} (I3)");
            }
            Kind::CallPart | Kind::ReplyPart | Kind::Report | Kind::Operation { .. } | Kind::Grant => {}
        }
        let answers = matches!(
            kind,
            Kind::Reply { .. } | Kind::Error | Kind::Report | Kind::Operation { answer: true }
        );
        if answers {
            self.answers += 1;
            assert!(self.answers <= self.answerable, "an answer to nothing, or to an error: {header:?}");
        }
    }

    fn message_received(&mut self, message: &Bytes) {
        self.arrived.push(message.clone());
        let fixed = Fixed::decode(message);
        if let Some(messages) = &mut self.messages {
            let limit = fixed.as_ref().ok().filter(|fixed| fixed.version == two::VERSION);
            let is_call =
                fixed.as_ref().is_ok_and(|fixed| may_be_call(messages.side(), *fixed, message, &self.limits));
            let is_grant = decode(self.profile, message)
                .is_ok_and(|(header, _)| matches!(header.body, Body::Two(two::Body::Grant)));
            messages.message_received(limit.map(|fixed| fixed.credit), is_call, is_grant);
        }
        let Ok(fixed) = fixed else { return };
        self.decide(fixed, message);
        // In another version only RDMA_ERROR has a known meaning (RFC 8166 §7).
        let done = self.profile.is_none() && (fixed.version, fixed.procedure) == (1, RDMA_DONE);
        if fixed.procedure != RDMA_ERROR && !done {
            self.answerable += 1;
        }
        if self.used.contains(&fixed.xid) {
            // rtrext-02 §5.4: a call that is refused in a transmission group leaves again in plain messages.
            let refused = matches!(
                decode(self.profile, message),
                Ok((
                    Header {
                        body: Body::Error(ErrorBody::Two(
                            two::ErrorBody::Report(_) | two::ErrorBody::InvalidOption
                        )),
                        ..
                    },
                    _
                ))
            );
            if refused {
                self.used.remove(&fixed.xid);
            }
            self.out.remove(&fixed.xid);
            self.granted = self.granted.max(usize::try_from(fixed.credit).unwrap());
        }
    }
}

impl Account {
    /// Settles the version of a server by the first message that it can read (version-two-01 §5.3). Version One has no
    /// credits per message.
    fn decide(&mut self, fixed: Fixed, message: &Bytes) {
        let version_one = fixed.version == V1.rules().version && self.config.versions.has_one();
        let codec = match self.config.versions.profile() {
            _ if !self.undecided || fixed.procedure == RDMA_ERROR => return,
            _ if version_one => &V1,
            Some(profile) if fixed.version == two::VERSION => profile.codec(),
            _ => return,
        };
        self.undecided = codec.decode(message, &self.limits).is_err();
        self.changed |= self.unread.replace(fixed.version).is_some_and(|unread| unread != fixed.version);
        if self.changed || (version_one && !self.undecided) {
            self.messages = None;
        }
    }
}

/// Whether a message in another version can be a Call, so that its sender has a Receive for an answer. A message that
/// says nothing of its direction comes from the client.
fn may_be_call(side: Side, fixed: Fixed, message: &Bytes, limits: &Limits) -> bool {
    let usual = side == Side::Server && fixed.procedure != RDMA_ERROR;
    let Ok((header, len)) = V1.decode(message, limits) else { return usual };
    match header.body {
        Body::Message(_) | Body::Padded { .. } => {
            message.get(len + 4..len + 8).map_or(usual, |direction| direction == [0; 4])
        }
        Body::NoMessage(lists) => lists.has_position_zero(),
        _ => false,
    }
}

impl Watch for Account {
    fn receive_posted(&mut self) {
        self.receives += 1;
    }

    fn sent(&mut self, message: &Bytes, in_progress: usize) {
        messages(self.profile, message).iter().for_each(|message| self.message_sent(message, in_progress));
    }

    fn receive_completed(&mut self, message: Option<&Bytes>) {
        self.receives -= 1;
        let Some(message) = message else { return };
        let mut received = messages(self.profile, message);
        if received.len() > self.limits.combined_messages {
            // Our side refuses the Send as a whole.
            received = vec![message.clone()];
        }
        received.iter().for_each(|message| self.message_received(message));
    }
}

#[derive(Debug)]
struct Hostile {
    fabric: Fabric,
    config: Arc<Config>,
    queues: Queues,
    connection: Connection,
    link: Link<Account>,
    peer: Peer,
    domain: ProtectionDomain,
    pinned: Vec<Buffer>,
    /// Our calls, with the times by which they must have ended.
    pending: BTreeMap<CallId, Instant>,
    next_xid: u32,
    /// Calls of the peer without an answer so far.
    held: Vec<(ReplyToken, Decoder)>,
    hold: bool,
    /// Requests about characteristics without an answer.
    asked: BTreeSet<u64>,
    closed: bool,
}

/// Runs a history of connections with a hostile peer, one after the other.
///
/// # Panics
/// If one of the invariants of the crate does not hold.
pub fn hostile_peer(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let mut world = Hostile::new(&mut draw);
    for _ in 0..MOST_STEPS {
        if draw.is_used_up() {
            break;
        }
        world.step(&mut draw);
    }
    world.end();
}

/// Opens a connection of either side, and its peer.
fn connect(
    draw: &mut Draw<'_>,
    fabric: &Fabric,
    config: &Arc<Config>,
    queues: Queues,
    domain: &ProtectionDomain,
) -> (Connection, Link<Account>, Peer) {
    let ours = queues.parameters(config, domain);
    let mut theirs = queues.parameters(config, &ProtectionDomain::new(64 << 20));
    if draw.rarely(4) {
        // RFC 8797 §5: other data than private data of this kind, or none.
        let count = draw.below(40);
        theirs.private_data = Bytes::from(draw.bytes(count)).into();
    }
    let side = draw.pick(&[Side::Server, Side::Client]);
    let (qp, peer) = match side {
        Side::Client => fabric.pair(ours, theirs),
        Side::Server => {
            let (peer, qp) = fabric.pair(theirs, ours);
            (qp, peer)
        }
    };
    let profile = config.versions.profile();
    let theirs = match profile {
        None => None,
        Some(own) => {
            draw.pick(&[Some(own), Some(own), Some(own), None, Some(Profile::P1), Some(Profile::P2)])
        }
    };
    let now = fabric.instant();
    let connection =
        Connection::new(side, Arc::clone(config), qp.peer_private_data(), qp.capabilities(), now);
    let most = usize::try_from(config.grant).unwrap();
    let mut peer = Peer::new(peer, theirs, profile);
    peer.post_receives(draw.pick(&[60, 60, 60, 2]));
    let messages = (profile == Some(Profile::P3)).then(|| Messages::new(side));
    let most_segments = config.limits.segments_per_chunk.min(qp.capabilities().max_send_wr);
    let mut limits = config.limits.clone();
    limits.segments_per_chunk = most_segments;
    let account = Account {
        profile,
        most,
        messages,
        config: Arc::clone(config),
        limits,
        undecided: side == Side::Server,
        ..Account::default()
    };
    (connection, Link::new(qp, account), peer)
}

impl Hostile {
    fn new(draw: &mut Draw<'_>) -> Self {
        let spoken = draw.byte();
        let [versions, _] = settings::versions(spoken);
        let fabric = Fabric::new(settings::fabric(draw));
        let config = Arc::new(settings::endpoint(draw, versions, spoken < 225));
        let queues = Queues::draw(draw);
        let domain = ProtectionDomain::new(MEMORY);
        let (connection, link, peer) = connect(draw, &fabric, &config, queues, &domain);
        Self {
            fabric,
            config,
            queues,
            connection,
            link,
            peer,
            domain,
            pinned: vec![],
            pending: BTreeMap::new(),
            next_xid: FIRST_XID,
            held: vec![],
            hold: false,
            asked: BTreeSet::new(),
            closed: false,
        }
    }

    /// Opens the next connection if one has ended.
    fn again(&mut self, draw: &mut Draw<'_>) {
        self.held.clear();
        (self.connection, self.link, self.peer) =
            connect(draw, &self.fabric, &self.config, self.queues, &self.domain);
        self.closed = false;
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        let now = self.fabric.instant();
        if self.closed {
            return self.again(draw);
        }
        match draw.below(16) {
            0..=6 => self.peer.act(draw),
            7..=8 => self.call(draw),
            9..=10 => self.advance(1 + draw.below(60)),
            11 => self.run_for(settings::wait(draw)),
            12 => self.hold = !self.hold,
            13 => {
                if !self.held.is_empty() {
                    let at = draw.below(self.held.len());
                    let (token, message) = self.held.swap_remove(at);
                    let answer = if draw.rarely(6) { Answer::Drop } else { execute(message).answer };
                    self.connection.reply(now, token, answer);
                }
            }
            14 => {
                let ids: Vec<_> = self.pending.keys().copied().collect();
                if draw.flag() && !ids.is_empty() {
                    let id = draw.pick(&ids);
                    self.pending.remove(&id);
                    self.connection.abandon(now, id);
                } else if draw.flag() {
                    self.pinned.clear();
                } else {
                    self.pinned.extend(self.domain.allocate((MEMORY / 8) << draw.below(3), 1));
                }
            }
            _ if draw.rarely(8) => self.connection.close(now),
            _ if self.config.versions.profile().is_some() && draw.flag() => self.operate(draw),
            _ => self.pump(),
        }
    }

    fn call(&mut self, draw: &mut Draw<'_>) {
        let now = self.fabric.instant();
        self.next_xid += 1;
        let (call, _) = call(draw, self.next_xid);
        match self.connection.call(now, call) {
            Ok(id) => {
                self.pending.insert(id, now + self.config.timeouts.call);
            }
            Err(refused) => assert_eq!(refused.kind, RefusedKind::Closed),
        }
    }

    /// Changes characteristics of our side, or requests a change of the peer.
    fn operate(&mut self, draw: &mut Draw<'_>) {
        let connection = &mut self.connection;
        let spoken = Spoken {
            exchanged: connection.characteristics().is_some(),
            enabled: self.config.characteristics.enabled
                && connection.exchanges_characteristics() != Some(false),
            once: operations::tells_once(connection),
        };
        if draw.flag() {
            match connection.ask(operations::request(draw)) {
                Ok(request) => assert!(self.asked.insert(request), "each request has its own number"),
                Err(error) => operations::check_refusal(spoken, true, &error),
            }
        } else {
            let takes = self.link.qp.capabilities().remote_invalidation;
            if let Err(error) = connection.change(operations::change(draw, MOST_RECEIVE, takes)) {
                operations::check_refusal(spoken, false, &error);
            }
        }
    }

    fn event(&mut self, now: Instant, event: Event) {
        assert!(!self.closed, "{event:?} after Closed");
        match event {
            Event::Call(call) => {
                self.check_call(&call);
                if self.hold {
                    self.held.push((call.token, call.message));
                } else {
                    self.connection.reply(now, call.token, execute(call.message).answer);
                }
            }
            Event::Reply { id, result } => {
                let deadline = self.pending.remove(&id).expect("a call ends once");
                assert!(now <= deadline + SLACK, "a call ended {:?} late", now - deadline);
                if let Ok(reply) = result
                    && !matches!(reply.reply.form, Form::Long | Form::Continued)
                {
                    let xid = reply.message.peek_u32().unwrap();
                    self.link.watch.check_inline(xid, reply.message);
                }
            }
            Event::Characteristics(notice) => operations::answered(&mut self.asked, &notice),
            Event::Closed(reason) => {
                self.closed = true;
                if let Some(messages) = &self.link.watch.messages {
                    messages.check_end(&reason);
                }
                assert!(self.pending.is_empty(), "a connection ends after its calls: {:?}", self.pending);
                assert!(self.asked.is_empty(), "a connection ends after its requests: {:?}", self.asked);
            }
        }
    }

    /// Checks that the peer has sent or exposed the content of a Call.
    fn check_call(&self, call: &IncomingCall) {
        let message = call.message.clone();
        match call.travelled {
            Travelled { form: Form::Long, segments: 1, .. } => {
                let all = words(message);
                let exposed = self.peer.exposed();
                assert!(
                    exposed.iter().any(|exposed| exposed.starts_with(&all)),
                    "{} bytes that nobody exposed",
                    all.len()
                );
            }
            // The parts of a message are in several Sends.
            Travelled { form: Form::Long | Form::Continued, .. } => {}
            _ => self.link.watch.check_inline(call.xid, message),
        }
    }

    /// Answers the held calls and returns their memory; then the peer ends.
    fn end(mut self) {
        self.hold = false;
        self.pinned.clear();
        let now = self.fabric.instant();
        for (token, message) in std::mem::take(&mut self.held) {
            self.connection.reply(now, token, execute(message).answer);
        }
        // The longest time of a call, and as much again for abandoned calls; the peer's calls have shorter timers.
        self.run_for(2 * (Duration::from_secs(60) + SLACK));
        assert!(self.pending.is_empty(), "calls that never end: {:?}", self.pending);
        if !self.closed {
            assert_eq!(self.connection.in_progress(), 0, "a peer that is silent holds nothing for ever");
        }
        self.peer.abort();
        self.run_for(SLACK);
        assert!(self.closed, "the end of the link ends the connection");
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
        assert_eq!(self.domain.usage().in_use, 0, "all memory is back");
    }
}

impl World for Hostile {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn round(&mut self) -> bool {
        let now = self.now();
        let mut progress = self.link.pump(&mut self.connection, now);
        while let Some(event) = self.connection.poll_event() {
            progress = true;
            self.event(now, event);
        }
        progress | self.peer.pump()
    }

    fn check(&self) {
        let account = &self.link.watch;
        if let Some(messages) = &account.messages
            && !self.link.is_leaving()
            && self.fabric.outstanding().work_requests == 0
        {
            messages.check_rest(&self.connection, &self.config, account.receives);
        }
        let size = |count: u32| usize::try_from(count).unwrap();
        let most = match self.config.versions.profile() {
            // Calls may use the credits for replies and operations (version-two-07 §4.2.1).
            Some(Profile::P3) => {
                let made = size(self.next_xid - FIRST_XID).min(size(self.config.calls));
                let parts = if made > 0 { self.config.continued_parts - 1 } else { 0 };
                size(self.config.grant) + OPERATION_RECEIVES + made + parts
            }
            _ => size(self.config.grant),
        };
        assert!(self.held.len() <= most, "{} calls at a time, {most} allowed", self.held.len());
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }
}
