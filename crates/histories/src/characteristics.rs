//! A client and a server of Version Two that follow every rule, and change their characteristics while calls are in
//! flight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_proto::characteristics::EXPERIMENTAL;
use rpcrdma_proto::{
    CallId, Characteristic, Config, Connection, Disposition, Event, Exchanged, Notice, Profile, Registered,
    ReplyToken, Side, Versions,
};
use rpcrdma_sim::{Fabric, Outstanding};
use rpcrdma_verbs::{ProtectionDomain, QueuePair, Windows};
use rpcrdma_xdr::Decoder;

use crate::draw::Draw;
use crate::ledger::Ledger;
use crate::link::Link;
use crate::operations::{self, Spoken};
use crate::program::{self, Expected, Table, check, execute};
use crate::settings::{self, MOST_ROUNDS, MOST_STEPS, Queues};
use crate::world::World;

/// Memory of a side, in bytes: for all Receives that the peer may request, and the results of all calls.
const MEMORY: usize = 128 << 20;
/// Maximum number of operations that an owner requests without a call between them.
const MOST_ASKED: usize = 16;
/// Number of calls in both directions after which every change must be complete.
const MOST_CALLS: usize = 400;
/// Length of the largest Receive that a side changes to, in bytes.
const MOST_RECEIVE: u32 = 65_536;
/// Both sides have announced their characteristics before any other step.
const EXCHANGED: Spoken = Spoken { exchanged: true, enabled: true, once: false };

#[derive(Debug)]
struct End {
    connection: Connection,
    link: Link<Ledger>,
    domain: ProtectionDomain,
    /// The calls of this side need no chunks.
    small: bool,
    pending: BTreeMap<CallId, Expected>,
    /// Calls of the peer without an answer so far.
    held: Vec<(ReplyToken, Decoder)>,
    /// Requests without an answer so far.
    asked: BTreeSet<u64>,
    /// Changes that the peer has accepted for later.
    promised: Vec<Characteristic>,
    closed: bool,
}

#[derive(Debug)]
struct Changes {
    fabric: Fabric,
    profile: Profile,
    ends: [End; 2],
    next_xid: u32,
    hold: bool,
    asked: usize,
    ending: bool,
}

/// Runs a history of two connections whose characteristics change.
///
/// # Panics
/// If a call has no correct answer, a connection ends, a side reports a fault of the other, or a request has no answer.
/// Also if the two sides disagree in the end on their characteristics.
pub fn characteristics(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let mut world = Changes::new(&mut draw);
    for _ in 0..MOST_STEPS {
        if draw.is_used_up() {
            break;
        }
        world.step(&mut draw);
    }
    world.end();
}

fn config(draw: &mut Draw<'_>, versions: Versions) -> Config {
    let mut exchanged = Exchanged::default();
    exchanged.least_receive_size = draw.pick(&[4096, 8192]);
    exchanged.most_receive_size = draw.pick(&[65_536, 16_384, 4096]);
    for (id, changeable) in [(EXPERIMENTAL, true), (u32::MAX, false)] {
        let registered = Registered::new(id, Bytes::from_static(b"first"), changeable).unwrap();
        exchanged.register(registered).unwrap();
    }
    let mut config = Config::default();
    config.send_size = draw.pick(&[65_536, 4096, 16_384]);
    config.receive_size = draw.pick(&[4096, 16_384, 1024]);
    config.remote_invalidation = !draw.rarely(3);
    config.calls = draw.pick(&[8, 1, 32]);
    config.grant = draw.pick(&[8, 1, 32]);
    config.versions = versions;
    config.characteristics = exchanged;
    config.reverse_chunks = draw.flag();
    config.bindings = Some(Arc::new(Table));
    let long = Duration::from_secs(3600);
    config.timeouts.call = long;
    config.timeouts.idle = None;
    config
}

impl End {
    fn step(&mut self, now: Instant, hold: bool) -> bool {
        let mut progress = self.link.pump(&mut self.connection, now);
        while let Some(event) = self.connection.poll_event() {
            progress = true;
            self.event(now, event, hold);
        }
        progress
    }

    fn event(&mut self, now: Instant, event: Event, hold: bool) {
        match event {
            Event::Call(call) if hold => self.held.push((call.token, call.message)),
            Event::Call(call) => self.answer(now, call.token, call.message),
            Event::Reply { id, result } => {
                let expected = self.pending.remove(&id).expect("a call ends once");
                let reply = result.unwrap_or_else(|failure| panic!("{expected:?} is lost: {failure}"));
                check(expected, reply);
            }
            Event::Characteristics(Notice::Answered { request, dispositions }) => {
                assert!(self.asked.remove(&request), "a request is answered once");
                let pending = dispositions.into_iter().filter(|(_, said)| *said == Disposition::Pending);
                self.promised.extend(pending.map(|(want, _)| want));
            }
            Event::Characteristics(Notice::Completed(value)) => {
                let kind = std::mem::discriminant(&value);
                let at = self.promised.iter().position(|want| std::mem::discriminant(want) == kind);
                self.promised.remove(at.expect("a completed change was pending"));
            }
            Event::Characteristics(_) => {}
            Event::Closed(reason) => {
                self.closed = true;
                assert!(self.pending.is_empty(), "{reason}: {:?}", self.pending);
            }
        }
    }

    fn answer(&mut self, now: Instant, token: ReplyToken, message: Decoder) {
        let executed = execute(message);
        assert!(executed.intact, "the arguments are those that were sent");
        self.connection.reply(now, token, executed.answer);
    }

    fn call(&mut self, draw: &mut Draw<'_>, now: Instant, xid: u32) {
        let (call, expected) =
            if self.small { program::small_call(draw, xid) } else { program::call(draw, xid) };
        let id = self.connection.call(now, call).expect("the connection is open");
        self.pending.insert(id, expected);
    }

    fn change(&mut self, draw: &mut Draw<'_>) {
        let value = operations::change(draw, MOST_RECEIVE, self.takes_invalidation());
        if let Err(error) = self.connection.change(value) {
            operations::check_refusal(EXCHANGED, false, &error);
        }
    }

    fn ask(&mut self, draw: &mut Draw<'_>) {
        match self.connection.ask(operations::request(draw)) {
            Ok(request) => assert!(self.asked.insert(request), "each request has its own number"),
            Err(error) => operations::check_refusal(EXCHANGED, true, &error),
        }
    }

    fn takes_invalidation(&self) -> bool {
        self.link.qp.capabilities().remote_invalidation
    }

    fn is_at_rest(&self) -> bool {
        self.pending.is_empty() && self.asked.is_empty() && self.promised.is_empty()
    }
}

impl Changes {
    fn new(draw: &mut Draw<'_>) -> Self {
        let mut fabric = settings::fabric(draw);
        // Another history covers calls without windows.
        fabric.capabilities.max_windows = 4096;
        let fabric = Fabric::new(fabric);
        let profile = draw.pick(&[Profile::P1, Profile::P2]);
        let server = if draw.flag() { Versions::two(profile) } else { Versions::both(profile) };
        let configs = [config(draw, Versions::two(profile)), config(draw, server)].map(Arc::new);
        let domains = [(); 2].map(|()| ProtectionDomain::new(MEMORY));
        let queues = Queues::draw(draw);
        let (client, server) = fabric
            .pair(queues.parameters(&configs[0], &domains[0]), queues.parameters(&configs[1], &domains[1]));
        let general = configs.iter().all(|config| config.reverse_chunks);
        let now = fabric.instant();
        let [of_client, of_server] = domains;
        let end = |side, config: &Arc<Config>, qp: rpcrdma_sim::SimQueuePair, domain| End {
            connection: Connection::new(
                side,
                Arc::clone(config),
                qp.peer_private_data(),
                qp.capabilities(),
                now,
            ),
            link: Link::new(qp, Ledger::new(side, Some(profile), Some(profile))),
            domain,
            small: side == Side::Server && !general,
            pending: BTreeMap::new(),
            held: vec![],
            asked: BTreeSet::new(),
            promised: vec![],
            closed: false,
        };
        let ends = [
            end(Side::Client, &configs[0], client, of_client),
            end(Side::Server, &configs[1], server, of_server),
        ];
        let mut world = Self { fabric, profile, ends, next_xid: 0, hold: false, asked: 0, ending: false };
        // Settles the version and the first characteristics.
        world.call(&mut Draw::new(&[]), 0);
        world.settle();
        world
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        let now = self.fabric.instant();
        let side = draw.below(2);
        match draw.below(16) {
            0..=4 => self.call(draw, side),
            5..=6 if self.asked < MOST_ASKED => {
                self.asked += 1;
                self.ends[side].change(draw);
            }
            7..=8 if self.asked < MOST_ASKED => {
                self.asked += 1;
                self.ends[side].ask(draw);
            }
            5..=8 => {
                for side in [0, 1] {
                    self.call(draw, side);
                }
                self.hold = false;
                self.settle();
                self.asked = 0;
            }
            9..=11 => {
                let hold = self.hold;
                self.ends[side].step(now, hold);
            }
            12 => self.advance(1 + draw.below(60)),
            13 => self.hold = !self.hold,
            14 => {
                let end = &mut self.ends[side];
                if !end.held.is_empty() {
                    let at = draw.below(end.held.len());
                    let (token, message) = end.held.swap_remove(at);
                    end.answer(now, token, message);
                }
            }
            _ => self.settle(),
        }
    }

    fn call(&mut self, draw: &mut Draw<'_>, side: usize) {
        self.next_xid += 1;
        self.ends[side].call(draw, self.fabric.instant(), self.next_xid);
    }

    /// Runs until the fabric is idle; held calls stay.
    fn settle(&mut self) {
        self.advance(MOST_ROUNDS);
    }

    /// Returns whether each side knows the characteristics of the other.
    fn is_agreed(&self) -> bool {
        [(0, 1), (1, 0)].into_iter().all(|(of, by)| {
            let mut own = self.ends[of].connection.characteristics().unwrap().clone();
            let known = self.ends[by].connection.peer_characteristics().unwrap();
            if self.profile == Profile::P2 {
                own.remote_invalidation = known.remote_invalidation;
            }
            own == *known
        })
    }

    fn end(mut self) {
        self.hold = false;
        let now = self.fabric.instant();
        for end in &mut self.ends {
            for (token, message) in std::mem::take(&mut end.held) {
                end.answer(now, token, message);
            }
        }
        self.settle();
        // An announcement leaves when the last one has arrived, and calls prove that.
        for _ in 0..MOST_CALLS {
            if self.is_agreed() && self.ends.iter().all(End::is_at_rest) {
                break;
            }
            for side in [0, 1] {
                self.call(&mut Draw::new(&[]), side);
            }
            self.settle();
        }
        for end in &self.ends {
            assert!(end.is_at_rest(), "{:?} {:?} {:?}", end.pending, end.asked, end.promised);
        }
        let seen = self.ends.each_ref().map(|end| {
            (end.connection.characteristics().cloned(), end.connection.peer_characteristics().cloned())
        });
        assert!(self.is_agreed(), "{seen:?}");
        self.ending = true;
        for end in &mut self.ends {
            end.connection.close(now);
        }
        self.settle();
        for end in &self.ends {
            assert!(end.closed, "a closed connection ends");
            assert_eq!(end.domain.usage().in_use, 0, "all memory is back");
        }
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
    }
}

impl World for Changes {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn round(&mut self) -> bool {
        let (now, hold) = (self.fabric.instant(), self.hold);
        let [client, server] = &mut self.ends;
        client.step(now, hold) | server.step(now, hold)
    }

    fn check(&self) {
        for end in &self.ends {
            assert!(self.ending || !end.closed, "{:?}", end.connection.side());
            let stats = end.connection.stats();
            assert!(stats.errors.is_empty(), "{}: {:?}", end.connection.side(), stats.errors);
        }
        for (sender, receiver) in [(0, 1), (1, 0)] {
            let [sender, receiver] = [sender, receiver].map(|end: usize| &self.ends[end].connection);
            let takes = receiver.characteristics().map_or(4096, |own| own.receive_size);
            let sends = sender.thresholds().send;
            assert!(sends <= usize::try_from(takes).unwrap(), "{sends} B are sent, {takes} B are taken");
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.ends.iter().filter_map(|end| end.connection.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        for end in &mut self.ends {
            end.connection.handle_timeout(now);
        }
    }
}
