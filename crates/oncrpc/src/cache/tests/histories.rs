//! Histories of clients that call, lose connections and replies, connect again and repeat, in any order, with calls of
//! all effects between. No call is executed twice, or the cache reports that its memory is too small.

use std::collections::VecDeque;

use super::*;

const CLIENTS: usize = 2;
/// Connections that a client has at a time.
const CONNECTIONS: usize = 2;

/// A call of a client; XIDs are indexes of the list.
#[derive(Debug)]
struct Called {
    effect: Effect,
    executed: u32,
    answered: bool,
}

/// A connection, as both ends see it.
#[derive(Debug)]
struct Connection {
    window: ReplyWindow,
    grant: u64,
    /// Calls on their way from this end.
    calls: VecDeque<u32>,
    received: u64,
    in_service: Vec<(u32, Service)>,
    left: u64,
    /// Replies on their way.
    replies: VecDeque<u32>,
}

#[derive(Debug)]
enum Service {
    Executes(Execution),
    Waits(Repeat),
    HasReply,
}

#[derive(Debug, Default)]
struct Client {
    calls: Vec<Called>,
    connections: Vec<Connection>,
    /// Connections that the client has lost, but whose loss the server has not noticed.
    lost: Vec<Connection>,
    /// Calls to be sent again.
    repeats: Vec<u32>,
    /// Executions whose connection is over.
    orphans: Vec<Execution>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A new call, if the grant allows.
    Call(Effect),
    /// The client sends a call again, if there is one.
    Repeat(usize),
    /// The server takes this many Calls.
    Take(usize),
    /// The server ends an execution.
    Answer(usize),
    /// The client takes this many replies.
    Receive(usize),
    /// Calls that are answered at once.
    Burst(Effect, u8),
    /// The client loses a connection; the server gets the messages on their way, or not.
    Lose,
    /// The server takes a Call of a connection that the client has lost.
    TakeLate(usize),
    /// The server notices the loss.
    Notice,
    /// An execution whose connection is over ends.
    Orphan,
    Wait,
}

struct World {
    cache: Arc<ReplyCache>,
    clients: [Client; CLIENTS],
    now: Instant,
    grant: u64,
    /// Whether Calls that were under way at a loss come late.
    late: bool,
}

impl World {
    fn new(limits: CacheLimits, grant: u64, late: bool) -> Self {
        let cache = cache(limits);
        Self { cache, clients: Default::default(), now: Instant::now(), grant, late }
    }

    fn step(&mut self, client: usize, connection: usize, step: Step) {
        let Self { cache, clients, now, grant, late } = self;
        let peer = u8::try_from(client).unwrap();
        let client = &mut clients[client];
        while client.connections.len() < CONNECTIONS {
            client.connections.push(Connection::new(cache, *grant));
        }
        let here = &mut client.connections[connection];
        match step {
            Step::Call(effect) => {
                if here.may_send() {
                    here.calls.push_back(u32::try_from(client.calls.len()).unwrap());
                    client.calls.push(Called { effect, executed: 0, answered: false });
                }
            }
            Step::Repeat(at) => {
                if here.may_send() && !client.repeats.is_empty() {
                    here.calls.push_back(client.repeats.swap_remove(at % client.repeats.len()));
                }
            }
            Step::Take(count) => (0..count).for_each(|_| here.take(cache, peer, &mut client.calls, *now)),
            Step::Answer(at) => here.answer(peer, &client.calls, at),
            Step::Receive(count) => {
                for xid in (0..count).map_while(|_| here.replies.pop_front()) {
                    client.calls[usize::try_from(xid).unwrap()].answered = true;
                }
            }
            Step::Burst(effect, count) => {
                for _ in 0..count {
                    if !here.may_send() {
                        return;
                    }
                    here.calls.push_back(u32::try_from(client.calls.len()).unwrap());
                    client.calls.push(Called { effect, executed: 0, answered: false });
                    while !here.calls.is_empty() {
                        here.take(cache, peer, &mut client.calls, *now);
                    }
                    here.answer(peer, &client.calls, usize::MAX);
                    for xid in here.replies.drain(..) {
                        client.calls[usize::try_from(xid).unwrap()].answered = true;
                    }
                }
            }
            Step::Lose => {
                let mut lost = client.connections.swap_remove(connection);
                // Each call without a reply is sent again, wherever it or its reply was.
                let outstanding = lost.calls.iter().chain(&lost.replies);
                let in_service = lost.in_service.iter().map(|(xid, _)| xid);
                client.repeats.extend(outstanding.chain(in_service));
                if !*late {
                    lost.calls.clear();
                }
                client.lost.push(lost);
            }
            Step::TakeLate(at) => {
                let count = client.lost.len();
                if count > 0 {
                    let lost = &mut client.lost[at % count];
                    lost.take(cache, peer, &mut client.calls, *now);
                    lost.answer(peer, &client.calls, at);
                }
            }
            Step::Notice => {
                for connection in client.lost.drain(..) {
                    let executions =
                        connection.in_service.into_iter().filter_map(|(_, service)| match service {
                            Service::Executes(execution) => Some(execution),
                            Service::Waits(_) | Service::HasReply => None,
                        });
                    client.orphans.extend(executions);
                }
            }
            Step::Orphan => {
                if let Some(execution) = client.orphans.pop() {
                    execution.complete(&Outcome::Reply(reply(8)));
                }
            }
            Step::Wait => *now += Duration::from_millis(10),
        }
    }

    fn executed_twice(&self) -> usize {
        let calls = self.clients.iter().flat_map(|client| &client.calls);
        calls.filter(|call| call.effect != Effect::Idempotent && call.executed > 1).count()
    }

    fn check_books(&self) {
        let state = self.cache.lock();
        state.kept.check_books();
        assert!(state.kept.memory() <= self.cache.limits().memory);
    }
}

impl Connection {
    fn new(cache: &Arc<ReplyCache>, grant: u64) -> Self {
        Self {
            window: cache.window(),
            grant,
            calls: VecDeque::new(),
            received: 0,
            in_service: Vec::new(),
            left: 0,
            replies: VecDeque::new(),
        }
    }

    /// Returns whether another Call fits the grant.
    fn may_send(&self) -> bool {
        self.calls.len() + self.in_service.len() + self.replies.len() < usize::try_from(self.grant).unwrap()
    }

    fn take(&mut self, cache: &Arc<ReplyCache>, peer: u8, calls: &mut [Called], now: Instant) {
        let Some(xid) = self.calls.pop_front() else { return };
        let called = &mut calls[usize::try_from(xid).unwrap()];
        self.received += 1;
        let service = if called.effect == Effect::Idempotent {
            Service::HasReply
        } else {
            match cache.admit(key(peer, xid), called.effect, Some(self.window.id()), now) {
                Admission::Execute(execution) => {
                    called.executed += 1;
                    Service::Executes(execution)
                }
                Admission::Wait(repeat) => Service::Waits(repeat),
                Admission::Replay(_) => Service::HasReply,
                Admission::Refuse => panic!("no reply is too long"),
            }
        };
        self.in_service.push((xid, service));
        self.window.advance(self.received, []);
    }

    fn answer(&mut self, peer: u8, calls: &[Called], at: usize) {
        if self.in_service.is_empty() {
            return;
        }
        let at = at.min(self.in_service.len() - 1);
        let (xid, service) = self.in_service.swap_remove(at);
        match service {
            Service::Executes(execution) => execution.complete(&Outcome::Reply(reply(8))),
            Service::Waits(mut repeat) => {
                if poll(&mut repeat, Waker::noop()).is_pending() {
                    self.in_service.push((xid, Service::Waits(repeat)));
                    return;
                }
            }
            Service::HasReply => {}
        }
        self.left += 1;
        self.replies.push_back(xid);
        let kept = calls[usize::try_from(xid).unwrap()].effect != Effect::Idempotent;
        let key = kept.then(|| (key(peer, xid), self.left + self.grant));
        self.window.advance(self.received, key);
    }
}

fn effects() -> impl Strategy<Value = Effect> {
    prop_oneof![2 => Just(Effect::State), 2 => Just(Effect::Data), 1 => Just(Effect::Idempotent)]
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, Step)>> {
    let step = prop_oneof![
        6 => effects().prop_map(Step::Call),
        4 => (0..8usize).prop_map(Step::Repeat),
        6 => (1..4usize).prop_map(Step::Take),
        6 => (0..4usize).prop_map(Step::Answer),
        5 => (1..4usize).prop_map(Step::Receive),
        2 => (effects(), 0..40u8).prop_map(|(effect, count)| Step::Burst(effect, count)),
        2 => Just(Step::Lose),
        2 => (0..4usize).prop_map(Step::TakeLate),
        1 => Just(Step::Notice),
        2 => Just(Step::Orphan),
        1 => Just(Step::Wait),
    ];
    proptest::collection::vec((0..CLIENTS, 0..CONNECTIONS, step), 0..250)
}

proptest! {
    /// With memory for all replies, no call is executed twice. Some copies of Calls come late, by connections that
    /// their client has given up.
    #[test]
    fn i8_no_history_executes_a_call_twice(steps in steps(), grant in 1u64..6) {
        let mut world = World::new(CacheLimits { memory: 1 << 30, ..CacheLimits::default() }, grant, true);
        for (client, connection, step) in steps {
            world.step(client, connection, step);
            prop_assert_eq!(world.executed_twice(), 0);
        }
        prop_assert_eq!(world.cache.counters().evicted, 0);
        world.check_books();
    }

    /// With little memory, proofs let no reply go too early.
    #[test]
    fn i8_proofs_let_no_reply_go_that_a_client_may_ask_for(steps in steps(), grant in 1u64..6) {
        let mut world = World::new(room(PROVEN_PART), grant, false);
        for (client, connection, step) in steps {
            let evicted = world.cache.counters().evicted;
            world.step(client, connection, step);
            prop_assert!(world.executed_twice() == 0 || evicted > 0, "a reply was dropped, and not counted");
            world.check_books();
        }
    }
}
