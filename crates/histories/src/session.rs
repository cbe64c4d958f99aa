//! A client session and its server's connections, both following the protocol, on a fabric that violates its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_proto::{
    Action, Answer, CallFailure, CallId, CloseReason, Config, Connection, Event, IncomingReply, RefusedKind,
    ReplyToken, Session, SessionEvent, Side,
};
use rpcrdma_sim::{Action as FaultAction, Fabric, Fault, Outstanding, Side as SimSide, Step};
use rpcrdma_verbs::{Buffer, Disconnected, ProtectionDomain, QueuePair, Status, Windows};
use rpcrdma_xdr::Decoder;

use crate::draw::Draw;
use crate::ledger::Ledger;
use crate::link::Link;
use crate::operations::{self, Spoken};
use crate::outcomes::{Failed, Rules};
use crate::program::{Expected, call, check, execute};
use crate::settings::{self, MEMORY, MOST_RECEIVE, MOST_STEPS, Queues, SLACK};
use crate::world::World;

/// Memory of an endpoint that suffices for all its Receives, in bytes.
const LEAST_MEMORY: usize = MEMORY / 4;

/// A call in flight, with the time by which it must have ended.
#[derive(Debug)]
struct Pending {
    expected: Expected,
    deadline: Instant,
    hurried: bool,
}

impl Pending {
    /// Checks the end of a call, and its time; `closed`: the owner closed the session or connection.
    fn check_end(
        self,
        (rules, side, closed): (&Rules, Side, bool),
        now: Instant,
        result: Result<IncomingReply, CallFailure>,
    ) {
        assert!(now <= self.deadline + SLACK, "{self:?} ended {:?} late", now - self.deadline);
        match result {
            Ok(reply) => check(self.expected, reply),
            Err(failure) => {
                let (late, large) = (now >= self.deadline, self.expected.is_large());
                let hurried = self.hurried;
                rules.check_call(&Failed { side, late, hurried, closed, large }, &failure.error);
            }
        }
    }
}

/// A connection of the server.
#[derive(Debug)]
struct Served {
    connection: Connection,
    link: Link<Ledger>,
    /// Calls without an answer so far.
    held: Vec<(ReplyToken, u32, Decoder)>,
    /// The server's own calls.
    reverse: BTreeMap<CallId, Pending>,
    /// Requests about characteristics without an answer.
    asked: BTreeSet<u64>,
    /// The connection accepts no calls any more, by its owner or by itself.
    closing: bool,
    /// The owner has closed the connection, or its queue pair.
    close: bool,
    closed: bool,
}

#[derive(Debug)]
struct Endpoints {
    fabric: Fabric,
    session: Session,
    link: Option<Link<Ledger>>,
    servers: Vec<Served>,
    rules: Rules,
    configs: [Arc<Config>; 2],
    queues: [Queues; 2],
    domains: [ProtectionDomain; 2],
    /// Memory of each domain that is withheld.
    pinned: [Vec<Buffer>; 2],
    pending: BTreeMap<CallId, Pending>,
    next_reverse: u32,
    /// Number of later attempts that fail, and of attempts without an answer.
    refuse: usize,
    ignore: usize,
    /// The server delays its answers.
    hold: bool,
    /// Requests of the client about characteristics without an answer.
    asked: BTreeSet<u64>,
    /// The client's owner has closed the session.
    closing: bool,
    /// The client's owner has ended its connection.
    ended: bool,
    closed: bool,
}

/// Runs a history of a client and a server.
///
/// # Panics
/// If one of the invariants of the crate does not hold.
pub fn two_endpoints(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let mut world = Endpoints::new(&mut draw);
    for _ in 0..MOST_STEPS {
        if draw.is_used_up() {
            break;
        }
        world.step(&mut draw);
    }
    world.end();
}

impl Endpoints {
    fn new(draw: &mut Draw<'_>) -> Self {
        let spoken = draw.byte();
        let versions = settings::versions(spoken);
        let fabric = Fabric::new(settings::fabric(draw));
        // Bytes with P3 are below these.
        let enabled = [spoken < 225, !(200..225).contains(&spoken)];
        let configs = [0, 1].map(|side| Arc::new(settings::endpoint(draw, versions[side], enabled[side])));
        let rules = Rules {
            versions,
            few_windows: fabric.config().capabilities.max_windows < 100,
            idle: configs.each_ref().map(|config| config.timeouts.idle.is_some()),
            works_fail: false,
            no_receives: false,
            disturbed: false,
        };
        let queues = [(); 2].map(|()| Queues::draw(draw));
        Self {
            session: Session::new(Arc::clone(&configs[0]), u64::from(draw.byte())),
            fabric,
            link: None,
            servers: vec![],
            rules,
            configs,
            queues,
            domains: [(); 2].map(|()| ProtectionDomain::new(MEMORY)),
            pinned: [vec![], vec![]],
            pending: BTreeMap::new(),
            next_reverse: 1,
            refuse: 0,
            ignore: 0,
            hold: false,
            asked: BTreeSet::new(),
            closing: false,
            ended: false,
            closed: false,
        }
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        let now = self.now();
        match draw.below(40) {
            0..=16 => self.call(draw),
            17..=27 => self.advance(1 + draw.below(60)),
            28 if draw.flag() => {
                self.hold = !self.hold;
                self.rules.disturbed = true;
            }
            28 => self.run_for(settings::wait(draw)),
            29 => self.answer_one(draw),
            30 => {
                let ids: Vec<_> = self.pending.keys().copied().collect();
                if !ids.is_empty() {
                    let id = draw.pick(&ids);
                    self.pending.remove(&id);
                    self.session.abandon(now, id);
                }
            }
            31 => self.reverse_call(draw),
            32 => self.disturb(draw),
            33 => self.plan(draw),
            34..=35 => {
                let side = draw.below(2);
                if draw.flag() {
                    self.pinned[side].clear();
                } else {
                    let len = (MEMORY / 8) << draw.below(3);
                    self.pinned[side].extend(self.domains[side].allocate(len, 1));
                    self.rules.disturbed = true;
                    let left = MEMORY.saturating_sub(self.domains[side].usage().in_use);
                    self.rules.no_receives |= left < LEAST_MEMORY;
                }
            }
            36 => {
                let Some(server) = self.servers.last_mut() else { return };
                server.close = true;
                if draw.flag() {
                    server.connection.close(now);
                    server.closing = true;
                } else {
                    self.rules.disturbed = true;
                    server.link.qp.abort();
                }
            }
            37 => match draw.below(4) {
                0 => self.ignore = 1,
                count => self.refuse = count,
            },
            38 if draw.rarely(4) => {
                self.closing = true;
                self.session.close(now);
            }
            39 if self.rules.versions[0].profile().is_some() => self.operate(draw),
            _ => self.pump(),
        }
    }

    fn call(&mut self, draw: &mut Draw<'_>) {
        let now = self.now();
        let xid = self.session.next_xid();
        let (mut call, expected) = call(draw, xid);
        let timeout = draw.pick(&[60_000, 60_000, 1000, 5]);
        call.timeout = Some(Duration::from_millis(timeout));
        let deadline = now + Duration::from_millis(timeout);
        let hurried = timeout < 60_000;
        match self.session.call(now, call) {
            Ok(id) => {
                self.pending.insert(id, Pending { expected, deadline, hurried });
            }
            Err(refused) => assert!(self.closing && refused.kind == RefusedKind::Closed, "{refused:?}"),
        }
    }

    /// Changes characteristics of one side, or requests a change of the other.
    fn operate(&mut self, draw: &mut Draw<'_>) {
        let enabled = self.configs.iter().all(|config| config.characteristics.enabled);
        let (of_client, asks) = (draw.flag(), draw.flag());
        let (connection, link) = match (of_client, self.servers.last_mut()) {
            (true, _) => (self.session.connection(), self.link.as_ref()),
            (false, Some(server)) => (Some(&server.connection), Some(&server.link)),
            (false, None) => return,
        };
        let exchanged = connection.is_some_and(|connection| connection.characteristics().is_some());
        let takes = link.is_some_and(|link| link.qp.capabilities().remote_invalidation);
        let spoken = Spoken { exchanged, enabled, once: connection.is_some_and(operations::tells_once) };
        let server = self.servers.last_mut();
        if asks {
            let want = operations::request(draw);
            let (asked, result) = match server.filter(|_| !of_client) {
                None => (&mut self.asked, self.session.ask(want)),
                Some(server) => (&mut server.asked, server.connection.ask(want)),
            };
            match result {
                Ok(request) => assert!(asked.insert(request), "each request has its own number"),
                Err(error) => operations::check_refusal(spoken, true, &error),
            }
        } else {
            let value = operations::change(draw, MOST_RECEIVE, takes);
            let result = match server.filter(|_| !of_client) {
                None => self.session.change(value),
                Some(server) => server.connection.change(value),
            };
            if let Err(error) = result {
                operations::check_refusal(spoken, false, &error);
            }
        }
    }

    fn reverse_call(&mut self, draw: &mut Draw<'_>) {
        let now = self.now();
        let xid = self.next_reverse;
        self.next_reverse += 1;
        let (call, expected) = call(draw, xid);
        let Some(server) = self.servers.last_mut() else { return };
        let deadline = now + self.configs[1].timeouts.call;
        match server.connection.call(now, call) {
            Ok(id) => {
                assert!(!server.closing, "a closed connection accepts no call");
                server.reverse.insert(id, Pending { expected, deadline, hurried: false });
            }
            Err(refused) => {
                assert_eq!(refused.kind, RefusedKind::Closed);
                server.closing = true;
            }
        }
    }

    fn answer_one(&mut self, draw: &mut Draw<'_>) {
        let now = self.now();
        let held: Vec<_> = self
            .servers
            .iter()
            .enumerate()
            .flat_map(|(at, server)| (0..server.held.len()).map(move |call| (at, call)))
            .collect();
        if held.is_empty() {
            return;
        }
        let (server, at) = draw.pick(&held);
        let server = &mut self.servers[server];
        let (token, xid, message) = server.held.swap_remove(at);
        if draw.rarely(6) {
            server.link.watch.dropped(xid);
            server.connection.reply(now, token, Answer::Drop);
        } else {
            server.answer(now, token, message);
        }
    }

    /// Disturbs the link of a connection.
    fn disturb(&mut self, draw: &mut Draw<'_>) {
        let connections = self.fabric.connections();
        if connections.is_empty() {
            return;
        }
        let connection = draw.pick(&connections);
        self.rules.disturbed = true;
        match draw.below(4) {
            0 => self.fabric.cut(connection),
            1 => self.fabric.partition(connection),
            2 => self.fabric.heal(connection),
            _ => {
                if let Some(link) = &mut self.link {
                    self.ended = true;
                    link.qp.abort();
                }
            }
        }
    }

    /// Plans a fault at one of the next steps.
    fn plan(&mut self, draw: &mut Draw<'_>) {
        let Some(connection) = self.fabric.connections().last().copied() else { return };
        let side = draw.pick(&[SimSide::A, SimSide::B]);
        let Some(steps) = self.fabric.steps(connection, side) else { return };
        let ahead = u64::from(draw.byte() % 32);
        let at = match draw.below(3) {
            0 => Step::Posted(steps.posted + ahead),
            1 => Step::Segment(steps.segments + ahead),
            _ => Step::Delivered(steps.delivered + ahead),
        };
        let action = match draw.below(4) {
            0 => FaultAction::Cut,
            1 => FaultAction::CutAfter,
            2 => {
                self.rules.works_fail = true;
                FaultAction::Fail(Status::Fatal)
            }
            _ => FaultAction::Delay(settings::wait(draw)),
        };
        self.rules.disturbed = true;
        self.fabric.plan(Fault { connection, side, at, action });
    }

    fn connect(&mut self) -> bool {
        let now = self.now();
        let Some(Action::Connect { attempt }) = self.session.poll_action(now) else { return false };
        if self.ignore > 0 {
            self.ignore -= 1;
        } else if self.refuse > 0 {
            self.refuse -= 1;
            self.session.connect_failed(now, attempt, "refused".to_owned(), true);
        } else {
            let [a, b] =
                [0, 1].map(|side| self.queues[side].parameters(&self.configs[side], &self.domains[side]));
            let (a, b) = self.fabric.pair(a, b);
            assert!(self.session.connected(now, attempt, a.peer_private_data(), a.capabilities()));
            assert!(self.link.is_none(), "a session has one connection at a time");
            let [client, server] = self.rules.versions.map(|versions| versions.profile());
            self.link = Some(Link::new(a, Ledger::new(Side::Client, client, server)));
            let config = Arc::clone(&self.configs[1]);
            let connection =
                Connection::new(Side::Server, config, b.peer_private_data(), b.capabilities(), now);
            self.servers.push(Served {
                connection,
                link: Link::new(b, Ledger::new(Side::Server, server, client)),
                held: vec![],
                reverse: BTreeMap::new(),
                asked: BTreeSet::new(),
                closing: false,
                close: false,
                closed: false,
            });
        }
        true
    }

    fn client_event(&mut self, now: Instant, event: SessionEvent) {
        assert!(!self.closed, "{event:?} after Closed");
        match event {
            SessionEvent::Connected | SessionEvent::ConnectFailed { .. } => {}
            SessionEvent::Characteristics(notice) => operations::answered(&mut self.asked, &notice),
            SessionEvent::Call(call) => {
                let executed = execute(call.message);
                assert!(executed.intact, "a call of the server arrives as it left");
                self.session.reply(now, call.token, executed.answer);
            }
            SessionEvent::Reply { id, result } => {
                let pending = self.pending.remove(&id).expect("a call ends once");
                pending.check_end((&self.rules, Side::Client, self.closing), now, result);
            }
            SessionEvent::Disconnected(reason) => {
                self.rules.check_end(Side::Client, self.closing || self.ended, &reason);
                let terminated = matches!(reason, CloseReason::Link(Disconnected::Terminated(_)));
                if let Some(link) = &self.link {
                    link.watch.check_end(&reason);
                    let granted = link.watch.has_grant();
                    assert!(!(terminated && granted), "{reason:?}, however short memory is (I3)");
                }
                assert!(self.asked.is_empty(), "a connection ends after its requests: {:?}", self.asked);
                self.ended = false;
                self.link = None;
            }
            SessionEvent::Closed => self.closed = true,
        }
    }

    /// Removes all obstacles: every call must end, then all resources must be returned.
    fn end(mut self) {
        self.hold = false;
        (self.refuse, self.ignore) = (0, 0);
        self.pinned = [vec![], vec![]];
        for connection in self.fabric.connections() {
            self.fabric.heal(connection);
        }
        let now = self.now();
        for server in &mut self.servers {
            for (token, _, message) in std::mem::take(&mut server.held) {
                server.answer(now, token, message);
            }
        }
        // The longest time of a call; then abandoned calls may take as long.
        self.run_for(Duration::from_secs(60) + SLACK);
        assert!(self.pending.is_empty(), "calls that never end: {:?}", self.pending);
        self.run_for(Duration::from_secs(60) + SLACK);
        assert_eq!(self.session.in_progress(), 0);
        let outstanding = self.fabric.outstanding();
        assert_eq!((outstanding.work_requests, outstanding.windows), (0, 0), "at rest: {outstanding:?}");

        let now = self.now();
        self.closing = true;
        self.session.close(now);
        for server in &mut self.servers {
            server.close = true;
            server.connection.close(now);
        }
        self.run_for(SLACK);
        assert!(self.closed && self.servers.is_empty(), "a close takes bounded time");
        assert_eq!(self.fabric.connections(), [] as [u64; 0]);
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
        for domain in &self.domains {
            assert_eq!(domain.usage().in_use, 0, "all memory is back");
        }
    }
}

impl World for Endpoints {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn round(&mut self) -> bool {
        let mut progress = self.connect();
        let now = self.now();
        if let Some(link) = &mut self.link {
            progress |= link.pump(&mut self.session, now);
        }
        while let Some(event) = self.session.poll_event(now) {
            progress = true;
            self.client_event(now, event);
        }
        for server in &mut self.servers {
            progress |= server.pump(now, self.hold, &self.rules);
        }
        self.servers.retain(|server| !server.closed);
        progress
    }

    fn check(&self) {
        if self.fabric.outstanding().work_requests > 0 {
            return;
        }
        let link = self.link.as_ref().filter(|link| !link.is_leaving());
        if let (Some(link), Some(connection)) = (link, self.session.connection()) {
            link.watch.check_rest(connection, &self.configs[0]);
        }
        for server in self.servers.iter().filter(|server| !server.link.is_leaving()) {
            server.link.watch.check_rest(&server.connection, &self.configs[1]);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let servers = self.servers.iter().filter_map(|server| server.connection.poll_timeout());
        servers.chain(self.session.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        for server in &mut self.servers {
            server.connection.handle_timeout(now);
        }
    }
}

impl Served {
    fn pump(&mut self, now: Instant, hold: bool, rules: &Rules) -> bool {
        let mut progress = self.link.pump(&mut self.connection, now);
        while let Some(event) = self.connection.poll_event() {
            progress = true;
            assert!(!self.closed, "{event:?} after Closed");
            match event {
                Event::Characteristics(notice) => operations::answered(&mut self.asked, &notice),
                Event::Call(call) if hold => self.held.push((call.token, call.xid, call.message)),
                Event::Call(call) => self.answer(now, call.token, call.message),
                Event::Reply { id, result } => {
                    let pending = self.reverse.remove(&id).expect("a call ends once");
                    pending.check_end((rules, Side::Server, self.close), now, result);
                }
                Event::Closed(reason) => {
                    self.closed = true;
                    rules.check_end(Side::Server, self.close, &reason);
                    self.link.watch.check_end(&reason);
                    assert!(self.asked.is_empty(), "a connection ends after its requests: {:?}", self.asked);
                    assert!(self.reverse.is_empty(), "a connection ends after its calls: {:?}", self.reverse);
                }
            }
        }
        progress
    }

    fn answer(&mut self, now: Instant, token: ReplyToken, message: Decoder) {
        let executed = execute(message);
        assert!(executed.intact, "a call arrives as it left");
        self.connection.reply(now, token, executed.answer);
    }
}
