//! [`Turns`]: the threads of the runtime, shared among tasks that serve different addresses.
//!
//! The runtime knows tasks, but not the addresses that they serve. So an address with 60 connections would have 60
//! times the processor time of one with a single connection. Here an address, or IPv6 network ([`Origin`]), has one
//! line, in which its connections and calls wait. A *turn* is one poll of a task. There are as many turns at a time as
//! the runtime has threads, and each goes to the address that had the fewest lately.
//!
//! *Order.* Turns follow start tags, as in start-time fair queueing. The next turn of an address has the tag of its
//! last turn and one more. After a long time without turns, it has the tag of the turn given last instead. The lowest
//! tag is next. A new address, or one whose last connection has ended, begins as if it had had the last turn. So
//! addresses with much to do have their turns one after the other. An address that calls now and then waits for a turn
//! to end, but not behind others in line (I6). A turn counts as one whatever it costs. Connections bound the work of a
//! task in one poll, in calls and in bytes of replies ([`BYTES_PER_TURN`]).
//!
//! *Going on.* A task that was woken while it was polled has its next turn at once, if nobody else wants one. That ends
//! after [`RUN`]. By way of the runtime, it would wake another thread each time. That costs more than a short call.
//!
//! *Sockets.* The runtime looks at its sockets when it has nothing to do, or after a number of polls. A turn for which
//! others wait is therefore handed on by way of [`yield_now`], behind such a look; otherwise a call would be seen late.
//!
//! *Decisions.* A task woken elsewhere asks for a turn ([`Order::ask`]); a turn that ends goes to the next task
//! ([`Order::next`]). While turns are free no task waits, and a wake-up goes straight through.
//!
//! *Errors.* A task that panics, or is dropped, gives its turn back.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rpcrdma_oncrpc::Origin;
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;

/// Bytes of replies made at once, after which a turn is over. Making a reply copies its data, so calls differ in cost
/// by a factor of thousands.
pub(crate) const BYTES_PER_TURN: usize = 512 << 10;

/// Time for which a task has one turn after the other, although nobody else wants one: the runtime has to look at its
/// sockets.
const RUN: Duration = Duration::from_micros(200);

/// The turns of a server.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    order: Arc<Mutex<Order>>,
}

/// The address, or the connection, to which a line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Origin(Origin),
    /// A connection that names no address.
    Alone(u64),
}

/// The lines in which tasks wait.
struct Order {
    /// Most turns at a time.
    most: usize,
    /// Turns that were given and have not ended.
    given: usize,
    /// Tasks that were not polled yet.
    new: usize,
    /// Ordered, not hashed: each turn looks its line up a few times. Peers choose the keys, so a quick hash is no choice,
    /// and a keyed one costs more than the comparisons.
    lines: BTreeMap<Key, Waiting>,
    /// Lines in which tasks wait, by the tag of their next turn. Among equals, lines that had left turns out are first,
    /// then those that came first.
    ready: BinaryHeap<Reverse<(u64, bool, u64, Key)>>,
    /// The tag of the turn given last.
    now: u64,
    /// Counter of entries into `ready`, and of keys without an address.
    count: u64,
}

/// The line of one address.
struct Waiting {
    /// Number of views of this line.
    members: usize,
    /// The tag of the line's next turn, if that is not past.
    next: u64,
    tasks: VecDeque<Arc<Task>>,
}

/// The state of a task on the way to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The task was not polled yet.
    New,
    /// The task waits for something else.
    Idle,
    /// The task is in its line.
    Waits,
    /// The task has a turn, and will be polled.
    Next,
    /// The task is being polled.
    Runs,
    /// The task was woken while it was being polled.
    RunsAgain,
    Over,
}

struct Task {
    order: Arc<Mutex<Order>>,
    key: Key,
    /// Locked for a moment, and only by a thread that has locked the order.
    state: Mutex<(Stage, Waker)>,
}

impl Default for Order {
    fn default() -> Self {
        Self { most: 1, given: 0, new: 0, lines: BTreeMap::new(), ready: BinaryHeap::new(), now: 0, count: 0 }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Order {
    /// Adds a member to the line of a key. A new line begins behind those that wait; otherwise an address could take
    /// turn after turn by connections that come and go.
    fn join(&mut self, key: Key) {
        let new = Waiting { members: 0, next: self.now + 1, tasks: VecDeque::new() };
        self.lines.entry(key).or_insert(new).members += 1;
    }

    fn wait(&mut self, task: &Arc<Task>) {
        let Some(line) = self.lines.get_mut(&task.key) else { return };
        line.tasks.push_back(Arc::clone(task));
        if line.tasks.len() == 1 {
            self.line_up(task.key);
        }
    }

    /// Puts a line among those that are ready.
    fn line_up(&mut self, key: Key) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let steady = line.next >= self.now;
        line.next = line.next.max(self.now);
        self.count += 1;
        self.ready.push(Reverse((line.next, steady, self.count, key)));
    }

    /// Gives the task a turn if one is free, else puts it in line; returns whether it has a turn.
    fn ask(&mut self, task: &Arc<Task>) -> bool {
        let free = self.given < self.most;
        if free {
            self.give(task.key);
        } else {
            self.wait(task);
        }
        free
    }

    /// Returns whether nobody wants a turn: one is free, no task waits, and none is new.
    fn is_calm(&self) -> bool {
        self.given < self.most && self.ready.is_empty() && self.new == 0
    }

    fn give(&mut self, key: Key) {
        self.given += 1;
        self.count_turn(key);
    }

    /// Counts a turn of a line.
    fn count_turn(&mut self, key: Key) {
        if let Some(line) = self.lines.get_mut(&key) {
            self.now = self.now.max(line.next);
            line.next = self.now + 1;
        }
    }

    /// Ends a turn; returns the task that gets the next.
    fn next(&mut self) -> Option<Arc<Task>> {
        self.given -= 1;
        while let Some(Reverse((.., key))) = self.ready.pop() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            // Dropped tasks are still in line.
            let waits = |task: &Arc<Task>| lock(&task.state).0 == Stage::Waits;
            let next = std::iter::from_fn(|| line.tasks.pop_front()).find(waits);
            let more = !line.tasks.is_empty();
            if next.is_some() {
                self.give(key);
            }
            if more {
                self.line_up(key);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Turns {
    /// Sets the number of turns at a time, from now on: the threads of the runtime.
    pub(crate) fn at_a_time(&self, most: usize) {
        lock(&self.order).most = most.max(1);
    }

    /// Returns the tag of the turn given last. With a single line it counts the turns.
    #[cfg(test)]
    pub(crate) fn now(&self) -> u64 {
        lock(&self.order).now
    }

    /// Returns the line of an address, or of a connection that has none.
    pub(crate) fn line(&self, address: Option<IpAddr>) -> Line {
        let mut order = lock(&self.order);
        let key = match address {
            Some(address) => Key::Origin(Origin::of(address)),
            None => {
                order.count += 1;
                Key::Alone(order.count)
            }
        };
        order.join(key);
        Line { order: Arc::clone(&self.order), key }
    }
}

/// Ends the turn of a task that has more to do. Its next turn comes at once if nobody else wants one.
pub(crate) async fn end_turn() {
    let mut ended = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut ended, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A view of the line of one address; clones are views too.
pub(crate) struct Line {
    order: Arc<Mutex<Order>>,
    key: Key,
}

impl Line {
    /// Returns a future that is polled in turn, to be spawned.
    pub(crate) fn in_turn<F: Future + Unpin>(&self, future: F) -> InTurn<F> {
        let state = Mutex::new((Stage::New, Waker::noop().clone()));
        lock(&self.order).new += 1;
        let task = Arc::new(Task { order: Arc::clone(&self.order), key: self.key, state });
        let waker = Waker::from(Arc::clone(&task));
        InTurn { future, task, waker, limit: RUN, _line: self.clone() }
    }
}

impl Clone for Line {
    fn clone(&self) -> Self {
        lock(&self.order).join(self.key);
        Self { order: Arc::clone(&self.order), key: self.key }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Entry::Occupied(mut line) = lock(&self.order).lines.entry(self.key) {
            line.get_mut().members -= 1;
            if line.get().members == 0 {
                line.remove();
            }
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line").field(&self.key).finish()
    }
}

/// A future that is polled when it is its turn.
pub(crate) struct InTurn<F> {
    future: F,
    task: Arc<Task>,
    /// The waker of `task`.
    waker: Waker,
    /// Time for which the task has one turn after the other.
    limit: Duration,
    _line: Line,
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.begin(cx.waker()) {
            return Poll::Pending;
        }
        let begun = Instant::now();
        let mut polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker));
        // Without a budget, the runtime lets sockets and timers do nothing.
        while polled.is_pending()
            && has_budget_remaining()
            && begun.elapsed() < this.limit
            && this.task.goes_on()
        {
            polled = Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker));
        }
        this.task.end(polled.is_ready());
        polled
    }
}

impl<F> Drop for InTurn<F> {
    fn drop(&mut self) {
        self.task.end(true);
    }
}

impl Task {
    /// Returns whether the task has its turn; otherwise puts the task in line.
    fn begin(self: &Arc<Self>, waker: &Waker) -> bool {
        let mut order = lock(&self.order);
        let mut state = lock(&self.state);
        state.1.clone_from(waker);
        if state.0 == Stage::New {
            state.0 = Stage::Idle;
            order.new -= 1;
        }
        let turn = match state.0 {
            Stage::Idle => {
                // The task is not in line, so no other thread looks at its state.
                let free = order.ask(self);
                state.0 = if free { Stage::Runs } else { Stage::Waits };
                free
            }
            Stage::Next => {
                state.0 = Stage::Runs;
                true
            }
            Stage::New | Stage::Waits | Stage::Runs | Stage::RunsAgain | Stage::Over => false,
        };
        drop(state);
        drop(order);
        turn
    }

    /// Returns whether the task goes on with another poll, because it was woken and nobody else wants its turn.
    fn goes_on(&self) -> bool {
        let mut order = lock(&self.order);
        let mut state = lock(&self.state);
        let goes_on = state.0 == Stage::RunsAgain && order.is_calm();
        if goes_on {
            state.0 = Stage::Runs;
            order.count_turn(self.key);
        }
        goes_on
    }

    /// Passes the turn on, if the task has one.
    fn end(self: &Arc<Self>, over: bool) {
        let mut order = lock(&self.order);
        let stage = {
            let mut state = lock(&self.state);
            let next = match state.0 {
                _ if over => Stage::Over,
                Stage::RunsAgain => Stage::Waits,
                _ => Stage::Idle,
            };
            std::mem::replace(&mut state.0, next)
        };
        order.new -= usize::from(stage == Stage::New);
        let had = matches!(stage, Stage::Next | Stage::Runs | Stage::RunsAgain);
        if stage == Stage::RunsAgain && !over {
            order.wait(self);
        }
        let next = if had { order.next() } else { None };
        let waker = next.map(|next| {
            let mut state = lock(&next.state);
            state.0 = Stage::Next;
            state.1.clone()
        });
        drop(order);
        if let Some(waker) = waker {
            // Only this future's use of its waker matters.
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut order = lock(&self.order);
        let mut state = lock(&self.state);
        let waker = match state.0 {
            Stage::Idle if order.ask(self) => {
                state.0 = Stage::Next;
                Some(state.1.clone())
            }
            Stage::Idle => {
                state.0 = Stage::Waits;
                None
            }
            Stage::Runs => {
                state.0 = Stage::RunsAgain;
                None
            }
            Stage::New | Stage::Waits | Stage::Next | Stage::RunsAgain | Stage::Over => None,
        };
        drop(state);
        drop(order);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
