//! [`Fabric`]: the clock, the connections, and the actions of a test on them.
//!
//! A single lock guards the whole fabric, so that one seed and one order of calls give one trace. It is never held
//! while a waker or the tap runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rpcrdma_verbs::{Completion, ConnectParameters, QueuePair};
use tokio::sync::mpsc;

use crate::connect::Attempt;
use crate::connection::Connection;
use crate::end::Env;
use crate::window::Keys;
use crate::{Delivery, FabricConfig, Fault, Side, SimQueuePair, Steps};

type Tap = Arc<dyn Fn(&Delivery) + Send + Sync>;

/// The source of time.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// The clock of [`Fabric::advance`] and [`Fabric::step`].
    Manual,
    /// tokio's clock, paused or not.
    Tokio,
}

/// A simulated fabric. Cheap to clone; all clones are the same fabric.
///
/// There are two ways to run it:
///
/// * [`Fabric::new`]: no runtime. Only [`advance`](Self::advance) and [`step`](Self::step) move the time. Queue pairs
///   come from [`pair`](Self::pair) and are polled with any waker. [`settle`](Self::settle) polls and steps until
///   nothing happens any more.
/// * [`Fabric::on_tokio`]: time is tokio's, best paused, so that it jumps to the next event when all tasks wait. Queue
///   pairs come from `pair` or from [`listen`](Self::listen) and [`connector`](Self::connector).
///
/// Time is counted from the fabric's start; [`instant`](Self::instant) turns it into an [`Instant`].
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
}

struct Shared {
    config: FabricConfig,
    clock: Clock,
    /// The [`Instant`] of fabric time 0.
    epoch: Instant,
    core: Mutex<Core>,
}

pub(crate) struct Core {
    now: Duration,
    rng: StdRng,
    keys: Keys,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    faults: Vec<Fault>,
    tap: Option<Tap>,
    pub(crate) listeners: BTreeMap<SocketAddr, mpsc::UnboundedSender<Attempt>>,
    pub(crate) refusals: BTreeMap<SocketAddr, usize>,
    pub(crate) next_port: u16,
}

/// Work and windows that the queue pairs of a fabric hold. All zero means that nothing leaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Work requests posted whose completion was not polled.
    pub work_requests: usize,
    /// Receives posted whose completion was not polled.
    pub receives: usize,
    /// Windows reserved and not invalidated.
    pub windows: usize,
}

/// Events noted under the lock, to be reported without it.
#[derive(Default)]
pub(crate) struct News {
    pub(crate) wakers: Vec<Waker>,
    deliveries: Vec<Delivery>,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Fabric {
    /// Creates a fabric whose clock moves only by [`advance`](Self::advance) and [`step`](Self::step).
    #[must_use]
    pub fn new(config: FabricConfig) -> Self {
        Self::with_clock(config, Clock::Manual, Instant::now())
    }

    /// Creates a fabric on tokio's clock. Queue pairs must be polled within the runtime.
    #[must_use]
    pub fn on_tokio(config: FabricConfig) -> Self {
        Self::with_clock(config, Clock::Tokio, tokio::time::Instant::now().into_std())
    }

    fn with_clock(config: FabricConfig, clock: Clock, epoch: Instant) -> Self {
        let core = Core {
            now: Duration::ZERO,
            rng: StdRng::seed_from_u64(config.seed),
            keys: Keys::default(),
            connections: BTreeMap::new(),
            next_connection: 0,
            faults: Vec::new(),
            tap: None,
            listeners: BTreeMap::new(),
            refusals: BTreeMap::new(),
            next_port: 49_152,
        };
        Self { shared: Arc::new(Shared { config, clock, epoch, core: Mutex::new(core) }) }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &FabricConfig {
        &self.shared.config
    }

    /// Returns the time since the fabric's start.
    #[must_use]
    pub fn now(&self) -> Duration {
        match self.shared.clock {
            Clock::Manual => self.lock().now,
            Clock::Tokio => {
                tokio::time::Instant::now().into_std().saturating_duration_since(self.shared.epoch)
            }
        }
    }

    /// Returns the present as an [`Instant`]: the fabric's start plus [`now`](Self::now). Under tokio's clock, it is
    /// tokio's.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.instant_at(self.now())
    }

    /// Returns a fabric time as an [`Instant`].
    #[must_use]
    pub fn instant_at(&self, time: Duration) -> Instant {
        self.shared.epoch + time
    }

    /// Returns an [`Instant`] as fabric time; 0 for an instant before the start.
    #[must_use]
    pub fn time_of(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.shared.epoch)
    }

    pub(crate) fn is_on_tokio(&self) -> bool {
        matches!(self.shared.clock, Clock::Tokio)
    }

    /// Returns the next time at which polling some queue pair is useful, if nothing is posted before; it may lie in the
    /// past. `None` when nothing will happen any more.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        let core = self.lock();
        core.connections.values().filter_map(|connection| connection.next_event(self.config())).min()
    }

    /// Moves the clock to the next event and wakes the tasks of all queue pairs; returns whether there is an event. The
    /// clock does not move if an event is due already. Poll *all* queue pairs between two steps. Manual clock only.
    pub fn step(&self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.advance(next.saturating_sub(self.now()));
        true
    }

    /// Moves the clock and wakes the tasks of all queue pairs. Manual clock only; tokio moves its own clock.
    pub fn advance(&self, by: Duration) {
        let wakers = {
            let mut core = self.lock();
            core.now += by;
            core.connections.values_mut().flat_map(Connection::take_wakers).collect::<Vec<_>>()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Polls the queue pairs and steps until nothing happens any more; returns the completions of each, in order.
    ///
    /// `queue_pairs` must be all live queue pairs of the fabric. Manual clock only.
    pub fn settle(&self, queue_pairs: &mut [&mut dyn QueuePair]) -> Vec<Vec<Completion>> {
        let mut completions: Vec<Vec<Completion>> = queue_pairs.iter().map(|_| Vec::new()).collect();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let mut progress = true;
            while progress {
                progress = false;
                for (queue_pair, into) in queue_pairs.iter_mut().zip(&mut completions) {
                    while let std::task::Poll::Ready(Ok(())) = queue_pair.poll(&mut cx, into) {
                        progress = true;
                    }
                }
            }
            if !self.step() {
                return completions;
            }
        }
    }

    /// Connects two new queue pairs, at once.
    ///
    /// The number of the connection, for faults and taps, is the number of connections made before it on this fabric.
    #[must_use]
    pub fn pair(&self, a: ConnectParameters, b: ConnectParameters) -> (SimQueuePair, SimQueuePair) {
        self.connect_ends(a, b, None, None)
    }

    pub(crate) fn connect_ends(
        &self,
        a: ConnectParameters,
        b: ConnectParameters,
        a_address: Option<SocketAddr>,
        b_address: Option<SocketAddr>,
    ) -> (SimQueuePair, SimQueuePair) {
        let connection = Connection::new(&a, &b, self.config());
        let capabilities = connection.capabilities();
        let id = {
            let mut core = self.lock();
            let id = core.next_connection;
            core.next_connection += 1;
            core.connections.insert(id, connection);
            id
        };
        let [a_capabilities, b_capabilities] = capabilities;
        let a_data = a.private_data.stated_by(&a_capabilities).clone();
        let b_data = b.private_data.stated_by(&b_capabilities).clone();
        (
            SimQueuePair::new(self, id, Side::A, a_capabilities, a.domain, b_data, (a_address, b_address)),
            SimQueuePair::new(self, id, Side::B, b_capabilities, b.domain, a_data, (b_address, a_address)),
        )
    }

    /// Adds a fault to the plan. A step that is past never comes.
    pub fn plan(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Returns the number of steps of each kind that one end has taken; `None` when the connection or that end is gone.
    /// A test that is to fail at each step of a scenario first runs it without faults and asks for these numbers. Then
    /// it runs the scenario with a [`Fault`] at each step.
    #[must_use]
    pub fn steps(&self, connection: u64, side: Side) -> Option<Steps> {
        let mut core = self.lock();
        let end = core.connections.get_mut(&connection)?.end(side)?;
        Some(Steps { posted: end.posted, segments: end.segments, delivered: end.delivered })
    }

    /// Fails the link of a connection now; frames that are under way are lost. Each end learns of that after the
    /// latency.
    pub fn cut(&self, connection: u64) {
        self.change(connection, |connection, env| connection.cut(env));
    }

    /// Holds all frames on a connection that are under way, or will be, until [`heal`](Self::heal). If that takes
    /// longer than [`FabricConfig::link_timeout`], the ends give up.
    pub fn partition(&self, connection: u64) {
        self.change(connection, |connection, env| connection.partition(env.now));
    }

    /// Ends a partition: the held frames arrive, and none is lost.
    pub fn heal(&self, connection: u64) {
        self.change(connection, |connection, env| connection.heal(env.now));
    }

    /// Returns the connections that are not over, in order of creation.
    #[must_use]
    pub fn connections(&self) -> Vec<u64> {
        self.lock().connections.keys().copied().collect()
    }

    /// Calls `tap` for every message that is delivered from now on. The tap runs without a lock held, after the
    /// delivery.
    pub fn tap(&self, tap: impl Fn(&Delivery) + Send + Sync + 'static) {
        self.lock().tap = Some(Arc::new(tap));
    }

    /// Returns the work and windows that all live queue pairs hold together.
    #[must_use]
    pub fn outstanding(&self) -> Outstanding {
        let core = self.lock();
        let mut sum = Outstanding::default();
        for connection in core.connections.values() {
            connection.add_outstanding(&mut sum);
        }
        sum
    }

    fn change(&self, connection: u64, change: impl FnOnce(&mut Connection, &mut Env<'_>)) {
        let _ = self.with(connection, |connection, env, news| {
            change(connection, env);
            news.wakers.extend(connection.take_wakers());
        });
    }

    /// Works on one connection under the lock, then reports the news.
    pub(crate) fn with<T>(
        &self,
        id: u64,
        work: impl FnOnce(&mut Connection, &mut Env<'_>, &mut News) -> T,
    ) -> Option<T> {
        let now = self.now();
        let mut news = News::default();
        let (result, tap) = {
            let mut core = self.lock();
            let Core { rng, keys, connections, faults, tap, .. } = &mut *core;
            let connection = connections.get_mut(&id)?;
            let deliveries = tap.is_some().then(Vec::new);
            let mut env =
                Env { now, config: &self.shared.config, rng, keys, faults, taps: deliveries, connection: id };
            let result = work(connection, &mut env, &mut news);
            news.deliveries = env.taps.take().unwrap_or_default();
            let over = connection.is_over();
            let tap = tap.clone();
            if over {
                connections.remove(&id);
            }
            (result, tap)
        };
        if let Some(tap) = tap {
            news.deliveries.iter().for_each(|delivery| tap(delivery));
        }
        news.wakers.into_iter().for_each(Waker::wake);
        Some(result)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A test that failed while it held the lock has reported that already.
        self.shared.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
