//! Connections, client's or server's, one after the other, and a peer that keeps to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_proto::wire::{Fixed, RDMA_DONE, RDMA_ERROR};
use rpcrdma_proto::{Answer, CallId, Config, Connection, Event, RefusedKind, ReplyToken, Side};
use rpcrdma_sim::{Fabric, Outstanding};
use rpcrdma_verbs::{Buffer, ProtectionDomain, QueuePair, Windows};
use rpcrdma_xdr::Decoder;

use crate::draw::Draw;
use crate::ledger::{Direction, direction};
use crate::link::{Link, Watch};
use crate::peer::Peer;
use crate::program::{call, execute};
use crate::settings::{self, MEMORY, MOST_ROUNDS, MOST_STEPS, Queues, SLACK};

/// What can be said of a connection whose peer says anything.
#[derive(Debug, Default)]
struct Account {
    receives: usize,
    /// XIDs of our calls.
    used: BTreeSet<u32>,
    /// Messages of the peer that may have an answer, and answers.
    answerable: usize,
    answers: usize,
    most: usize,
}

impl Watch for Account {
    fn receive_posted(&mut self) {
        self.receives += 1;
    }

    fn sent(&mut self, message: &Bytes, in_progress: usize) {
        let (header, direction) = direction(message);
        let credit = usize::try_from(header.credit).unwrap();
        match direction {
            Direction::Call => {
                assert!(self.used.insert(header.xid), "{:#x} is sent twice (I8)", header.xid);
            }
            Direction::Answer => {
                self.answers += 1;
                assert!(self.answers <= self.answerable, "an answer to nothing, or to an error: {header:?}");
                let backed = self.receives + in_progress;
                assert!((1..=self.most.min(backed)).contains(&credit), "{credit}, backed {backed} (I3)");
            }
        }
    }

    fn receive_completed(&mut self, message: Option<&Bytes>) {
        self.receives -= 1;
        if let Some(Ok(fixed)) = message.map(|message| Fixed::decode(message))
            // Of another version only RDMA_ERROR has a known meaning (RFC 8166 §7).
            && fixed.procedure != RDMA_ERROR
            && (fixed.version, fixed.procedure) != (1, RDMA_DONE)
        {
            self.answerable += 1;
        }
    }
}

#[derive(Debug)]
struct World {
    fabric: Fabric,
    config: Arc<Config>,
    queues: Queues,
    connection: Connection,
    link: Link<Account>,
    peer: Peer,
    domain: ProtectionDomain,
    pinned: Vec<Buffer>,
    /// Calls of ours, and when they must have ended.
    pending: BTreeMap<CallId, Instant>,
    next_xid: u32,
    /// Calls of the peer that are not answered yet.
    held: Vec<(ReplyToken, Decoder)>,
    hold: bool,
    closed: bool,
}

/// A history of connections with a hostile peer, one after the other.
///
/// # Panics
/// When one of the invariants of the crate does not hold.
pub fn hostile_peer(octets: &[u8]) {
    let mut draw = Draw::new(octets);
    let mut world = World::new(&mut draw);
    for _ in 0..MOST_STEPS {
        if draw.is_used_up() {
            break;
        }
        world.step(&mut draw);
    }
    world.end();
}

/// A connection of either side, and its peer.
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
        // RFC 8797 §5: what is no private data of this kind, or none at all.
        let count = draw.below(40);
        theirs.private_data = draw.octets(count).into();
    }
    let side = draw.pick(&[Side::Server, Side::Client]);
    let (qp, peer) = match side {
        Side::Client => fabric.pair(ours, theirs),
        Side::Server => {
            let (peer, qp) = fabric.pair(theirs, ours);
            (qp, peer)
        }
    };
    let now = fabric.instant();
    let connection =
        Connection::new(side, Arc::clone(config), qp.peer_private_data(), qp.capabilities(), now);
    let most = usize::try_from(config.grant).unwrap();
    let mut peer = Peer::new(peer);
    peer.post_receives(draw.pick(&[60, 60, 60, 2]));
    (connection, Link::new(qp, Account { most, ..Account::default() }), peer)
}

impl World {
    fn new(draw: &mut Draw<'_>) -> Self {
        let fabric = Fabric::new(settings::fabric(draw));
        let config = Arc::new(settings::endpoint(draw));
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
            next_xid: 1000,
            held: vec![],
            hold: false,
            closed: false,
        }
    }

    /// The next connection, when one is over.
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

    fn pump(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let now = self.fabric.instant();
            let mut progress = self.link.pump(&mut self.connection, now);
            while let Some(event) = self.connection.poll_event() {
                progress = true;
                self.event(now, event);
            }
            let most = usize::try_from(self.config.grant.max(self.config.early_calls)).unwrap();
            assert!(self.held.len() <= most, "{} calls at a time, {most} allowed", self.held.len());
            progress |= self.peer.pump();
            if !progress {
                return;
            }
        }
        panic!("the connection does not come to rest");
    }

    fn event(&mut self, now: Instant, event: Event) {
        assert!(!self.closed, "{event:?} after Closed");
        match event {
            Event::Call(call) if self.hold => self.held.push((call.token, call.message)),
            Event::Call(call) => self.connection.reply(now, call.token, execute(call.message).answer),
            Event::Reply { id, .. } => {
                let deadline = self.pending.remove(&id).expect("a call ends once");
                assert!(now <= deadline + SLACK, "a call ended {:?} late", now - deadline);
            }
            Event::Characteristics(_) => {}
            Event::Closed(_) => {
                self.closed = true;
                assert!(self.pending.is_empty(), "a connection ends after its calls: {:?}", self.pending);
            }
        }
    }

    fn advance(&mut self, events: usize) {
        for _ in 0..events {
            self.pump();
            let Some(next) = self.fabric.next_event() else { return };
            self.tick(self.fabric.instant_at(next));
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.fabric.instant() + time;
        for _ in 0..MOST_ROUNDS {
            self.pump();
            self.tick(end);
            if self.fabric.instant() >= end {
                return self.pump();
            }
        }
        panic!("{time:?} do not pass: a timer is due for ever");
    }

    /// Moves the clock to the next event or timer, but not beyond `end`.
    fn tick(&mut self, end: Instant) {
        let fabric = self.fabric.next_event().map(|at| self.fabric.instant_at(at));
        let next = self.connection.poll_timeout().into_iter().chain(fabric).min().unwrap_or(end).min(end);
        self.fabric.advance(next.saturating_duration_since(self.fabric.instant()));
        self.connection.handle_timeout(self.fabric.instant());
    }

    /// The owner answers what it holds and gives its memory back; then the peer goes.
    fn end(mut self) {
        self.hold = false;
        self.pinned.clear();
        let now = self.fabric.instant();
        for (token, message) in std::mem::take(&mut self.held) {
            self.connection.reply(now, token, execute(message).answer);
        }
        // The longest time of a call, and as much again for what was abandoned; the peer's calls have shorter timers.
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
