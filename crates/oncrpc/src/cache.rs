//! The duplicate request cache: a retransmitted call is executed once and gets the reply of that execution.
//!
//! A call is identified by the peer's address *without port*, since a client reconnects from another port. XID,
//! program, version and procedure count too, and so does a checksum. The checksum covers the caller's identity and the
//! first [`CHECKSUM_LEN`] argument bytes. A repeat of a call in progress waits for it; a repeat of a finished call gets
//! the kept reply. Calls of idempotent procedures never come here ([`Effect`]). The cache does not keep a reply longer
//! than [`CacheLimits::reply_len`], but it keeps the call: a repeat is refused, never executed.
//!
//! # How long a reply is kept
//! A client repeats a call whose reply it did not receive, after the loss of the connection, on any connection from its
//! address. So a reply can go when its client must have it. Replies arrive in the order in which they leave. A client
//! with `G` credits that misses a reply misses all that left after it, and has at most `G` Calls without a reply. If
//! that reply was the `k`th to leave, the client can therefore have sent `G + k - 1` Calls at most: Call `G + k` proves
//! that it has the reply. The transport calculates that number with the highest grant that ever left
//! ([`ReplyWindow::advance`]). TCP grants no credits, so a configured number of Calls takes their place.
//!
//! | a reply is | from | to |
//! | --- | --- | --- |
//! | awaited | the end of its execution, on an open connection | its proof, or the end of the connection |
//! | orphaned | the end of its connection | a repeat, after which another connection awaits it; or [`CacheLimits::age`] later |
//! | proven | its proof | [`CacheLimits::age`] later, or until the memory is needed |
//!
//! Only a repeat proves an orphan: a client may send new Calls before it repeats old ones. Proven replies stay because
//! an older connection can still hold a copy of a Call that has not been read.
//!
//! # Memory
//! [`CacheLimits::memory`] has two halves, one for [`Effect::Data`] and one for [`Effect::State`], so that any number
//! of WRITEs leaves the reply of a REMOVE alone. In a full half proven replies go first, then others. Each time the
//! oldest reply goes of the address, or IPv6 network ([`Origin`](crate::Origin)), that holds most. So an address that
//! holds no more than its equal part loses nothing to others. A reply that goes without proof, before its time, is
//! counted ([`CacheCounters::evicted`]) and logged: its repeat would be executed again.
//!
//! *Buffers.* Kept replies are copies, so they never hold a pool buffer.
//!
//! *Errors.* An [`Execution`] that is dropped without an outcome wakes all that wait for it with [`Outcome::Drop`]; the
//! next repeat is then executed. A call that is shed ([`Execution::shed`]) leaves nothing behind either, but those that wait
//! get its reply.

mod kept;
mod shelf;
mod slot;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rpcrdma_xdr::{Decoder, Stream};

use self::kept::{Kept, Unproven};
pub use self::slot::Repeat;
use self::slot::Slot;
use crate::auth::Credential;
use crate::outcome::Outcome;
use crate::program::Effect;

/// Argument bytes that a call's checksum covers.
pub const CHECKSUM_LEN: usize = 256;

/// Bytes that a kept reply counts for beside its own length: keys, indexes, deadlines.
pub const ENTRY_COST: usize = 1024;

/// Least time between two log lines about early evictions.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Bounds of a [`ReplyCache`]. Calls in progress are bounded by the credits of their connections, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheLimits {
    /// Memory of all kept replies, in bytes: each counts for its length and [`ENTRY_COST`]. Half of it is for
    /// [`Effect::Data`], the other half for [`Effect::State`].
    pub memory: usize,
    /// Longest reply kept, in bytes. Of a longer reply only the call is remembered: its repeat gets SYSTEM_ERR.
    pub reply_len: usize,
    /// Time for which a reply is kept after its execution, after the end of the connection by which it left, and after
    /// its proof.
    pub age: Duration,
}

impl CacheLimits {
    /// Default of [`memory`](Self::memory): enough for some 100,000 replies of NFS, three times the credits of 512
    /// connections with 64 each.
    pub const MEMORY: usize = 128 << 20;
    /// Default of [`reply_len`](Self::reply_len): the longest reply of a procedure of NFSv3 that is not idempotent has less
    /// than 800 bytes, its verifier included.
    pub const REPLY_LEN: usize = 2048;
    /// Default of [`age`](Self::age).
    pub const AGE: Duration = Duration::from_secs(120);
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { memory: Self::MEMORY, reply_len: Self::REPLY_LEN, age: Self::AGE }
    }
}

/// Counters of a [`ReplyCache`] since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// New calls, without those that were shed.
    pub executed: u64,
    /// Repeats that waited for a call in progress.
    pub waited: u64,
    /// Repeats answered with a kept reply.
    pub replayed: u64,
    /// Repeats refused, because the reply was too long to be kept.
    pub refused: u64,
    /// Executions given up without an outcome.
    pub abandoned: u64,
    /// Replies that a later Call proved to be received.
    pub proven: u64,
    /// Replies dropped without proof, when their time was over.
    pub expired: u64,
    /// Replies dropped without proof and before their time, because memory was needed.
    pub evicted: u64,
    /// Replies too long to be kept.
    pub too_long: u64,
}

/// The key that identifies a call and its repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    peer: IpAddr,
    xid: u32,
    call: [u32; 3],
    checksum: u64,
}

impl CacheKey {
    /// Returns the key of a call. `call` is program, version and procedure; `arguments` stands at the first argument.
    /// The caller's identity counts too, so a reply never goes to another user of the same host.
    pub fn new(peer: IpAddr, xid: u32, call: [u32; 3], credential: &Credential, arguments: &Decoder) -> Self {
        // Every connection and every form of the call give one key: neither seed nor cut enters the hash.
        let mut hasher = DefaultHasher::new();
        hasher.write_u32(credential.flavor());
        // Only the user's identity enters: the rest of a credential may change between a call and its repeat.
        if let Credential::Sys(user) = credential {
            hasher.write_u32(user.uid);
            hasher.write_u32(user.gid);
            user.gids.iter().for_each(|gid| hasher.write_u32(*gid));
        }
        // A repeat may come in another context of the same user, but under the same protection: the program may refuse
        // another one.
        if let Credential::Gss(caller) = credential {
            hasher.write_u32(caller.service as u32);
            hasher.write(caller.principal.name.as_bytes());
            hasher.write(&caller.principal.mechanism);
        }
        let mut first = [0; CHECKSUM_LEN];
        let mut left = &mut first[..];
        for part in arguments.peek(CHECKSUM_LEN) {
            let (here, behind) = left.split_at_mut(part.len().min(left.len()));
            here.copy_from_slice(part.get(..here.len()).unwrap_or_default());
            left = behind;
        }
        let seen = CHECKSUM_LEN - left.len();
        hasher.write(first.get(..seen).unwrap_or_default());
        Self { peer: peer.to_canonical(), xid, call, checksum: hasher.finish() }
    }
}

/// The decision about a call.
#[derive(Debug)]
pub enum Admission {
    /// The call is new: execute it and report the outcome.
    Execute(Execution),
    /// The call is in progress: wait for it.
    Wait(Repeat),
    /// The call was executed: this is its reply.
    Replay(Stream),
    /// The call was executed, but its reply was too long to be kept.
    Refuse,
}

/// The name of a connection's [`ReplyWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowId(u64);

#[derive(Debug)]
struct State {
    running: HashMap<CacheKey, Arc<Slot>>,
    kept: Kept,
    next_window: u64,
    /// The latest time that a caller gave.
    now: Option<Instant>,
    counters: CacheCounters,
    /// Early evictions that are not logged yet, and the time of the last log line.
    untold: u64,
    told: Option<Instant>,
}

/// The duplicate request cache, shared by all connections of a server. See the module's introduction.
///
/// The cache learns the time only from [`admit`](Self::admit) and [`expire`](Self::expire). An event between two of
/// these calls counts as of the later one.
#[derive(Debug)]
pub struct ReplyCache {
    limits: CacheLimits,
    state: Mutex<State>,
}

impl ReplyCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(limits: CacheLimits) -> Self {
        let state = State {
            running: HashMap::new(),
            kept: Kept::new(limits.memory, limits.age),
            next_window: 0,
            now: None,
            counters: CacheCounters::default(),
            untold: 0,
            told: None,
        };
        Self { limits, state: Mutex::new(state) }
    }

    /// Returns the limits of the cache.
    pub const fn limits(&self) -> &CacheLimits {
        &self.limits
    }

    /// Returns the number of calls whose replies are kept.
    pub fn len(&self) -> usize {
        self.lock().kept.len()
    }

    /// Returns whether no reply is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that all kept replies count for.
    pub fn memory(&self) -> usize {
        self.lock().kept.memory()
    }

    /// Returns the counters.
    pub fn counters(&self) -> CacheCounters {
        self.lock().counters
    }

    /// Drops replies whose time is over. [`admit`](Self::admit) does so too; a server without calls may call this.
    pub fn expire(&self, now: Instant) {
        self.lock().expire(now);
    }

    /// Opens the window of a new connection.
    pub fn window(self: &Arc<Self>) -> ReplyWindow {
        let mut state = self.lock();
        let id = WindowId(state.next_window);
        state.next_window += 1;
        state.kept.open(id);
        ReplyWindow { cache: Arc::clone(self), id, next: u64::MAX }
    }

    /// Looks up a call that arrived at `now`, and notes the call as in progress if it is new. `window` is that of the
    /// connection that brought the call; without a window, the reply is kept for [`CacheLimits::age`].
    pub fn admit(
        self: &Arc<Self>,
        key: CacheKey,
        effect: Effect,
        window: Option<WindowId>,
        now: Instant,
    ) -> Admission {
        let mut state = self.lock();
        let state = &mut *state;
        state.expire(now);
        if let Some(slot) = state.running.get(&key) {
            state.counters.waited += 1;
            return Admission::Wait(Repeat::new(Arc::clone(slot)));
        }
        match state.kept.get(&key) {
            Some(Some(reply)) => {
                state.counters.replayed += 1;
                Admission::Replay(reply.clone())
            }
            Some(None) => {
                state.counters.refused += 1;
                Admission::Refuse
            }
            None => {
                state.counters.executed += 1;
                let slot = Arc::new(Slot::default());
                state.running.insert(key, Arc::clone(&slot));
                Admission::Execute(Execution {
                    cache: Arc::clone(self),
                    key,
                    effect,
                    window,
                    slot: Some(slot),
                })
            }
        }
    }

    fn keep(&self, execution: &Execution, reply: &Stream) {
        let Execution { key, effect, window, .. } = *execution;
        let mut state = self.lock();
        let state = &mut *state;
        state.running.remove(&key);
        let short = reply.len() <= self.limits.reply_len;
        if !short {
            state.counters.too_long += 1;
            tracing::debug!(xid = key.xid, length = reply.len(), "reply too long to be kept");
        }
        state.kept.keep(key, effect, window, short.then_some(reply));
        for evicted in state.kept.make_room(effect) {
            state.evicted(evicted.peer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ReplyCache {
    fn default() -> Self {
        Self::new(CacheLimits::default())
    }
}

impl State {
    fn expire(&mut self, now: Instant) {
        // Each connection reads its own clock, so a time may be earlier than the last.
        let now = *self.now.insert(self.now.map_or(now, |before| before.max(now)));
        let Unproven(expired) = self.kept.expire(now);
        self.counters.expired += expired;
    }

    /// Counts a reply that went too early, and logs it once a second.
    fn evicted(&mut self, peer: IpAddr) {
        self.counters.evicted += 1;
        self.untold += 1;
        let quiet =
            |told: Instant| self.now.is_some_and(|now| now.saturating_duration_since(told) < TOLD_EVERY);
        if self.told.is_some_and(quiet) {
            return;
        }
        self.told = self.now;
        let replies = std::mem::take(&mut self.untold);
        tracing::warn!(
            %peer, replies,
            "the reply cache is full: replies were dropped that their client may not have; a repeat of such a call would be \
             executed again"
        );
    }
}

/// The replies of one open connection that its client may not have received; see the module's introduction. Dropping
/// the window means the end of the connection.
#[derive(Debug)]
pub struct ReplyWindow {
    cache: Arc<ReplyCache>,
    id: WindowId,
    /// The number of Calls that proves the next reply.
    next: u64,
}

impl ReplyWindow {
    /// Returns the name by which [`ReplyCache::admit`] knows the window.
    #[must_use]
    pub const fn id(&self) -> WindowId {
        self.id
    }

    /// Notes the Calls of all kinds that have come by this connection, and the replies that have left since the last
    /// time, in order. Each reply comes with the number of Calls that proves it. Replies that are not kept are ignored.
    pub fn advance(&mut self, calls: u64, left: impl IntoIterator<Item = (CacheKey, u64)>) {
        let mut left = left.into_iter().peekable();
        if left.peek().is_none() && calls < self.next {
            return;
        }
        let mut state = self.cache.lock();
        for (key, proof) in left {
            state.kept.leave(key, self.id, proof);
        }
        let (proven, next) = state.kept.prove(self.id, calls);
        state.counters.proven += proven;
        // Proven replies may take less memory.
        for effect in [Effect::Data, Effect::State] {
            for evicted in state.kept.make_room(effect) {
                state.evicted(evicted.peer);
            }
        }
        drop(state);
        self.next = next;
    }
}

impl Drop for ReplyWindow {
    fn drop(&mut self) {
        self.cache.lock().kept.close(self.id);
    }
}

/// The duty to execute a call once and to report its outcome. If it is dropped without that, the call counts as not
/// executed, and all that wait get [`Outcome::Drop`].
#[derive(Debug)]
pub struct Execution {
    cache: Arc<ReplyCache>,
    key: CacheKey,
    effect: Effect,
    window: Option<WindowId>,
    slot: Option<Arc<Slot>>,
}

impl Execution {
    /// Gives the outcome to all that wait, and keeps it if it is a reply.
    pub fn complete(mut self, outcome: &Outcome) {
        if let Outcome::Reply(reply) = outcome {
            self.cache.keep(&self, reply);
            self.resolve(outcome.clone(), false);
        } else {
            self.give_up(outcome.clone());
        }
    }

    /// Ends a call that did not begin. All that wait get this outcome. It is not kept, so the next repeat is a new call.
    pub fn shed(mut self, outcome: &Outcome) {
        let mut state = self.cache.lock();
        state.running.remove(&self.key);
        state.counters.executed = state.counters.executed.saturating_sub(1);
        drop(state);
        self.resolve(outcome.clone(), true);
    }

    fn give_up(&mut self, outcome: Outcome) {
        self.cache.lock().running.remove(&self.key);
        self.resolve(outcome, false);
    }

    fn resolve(&mut self, outcome: Outcome, shed: bool) {
        if let Some(slot) = self.slot.take() {
            slot.resolve(outcome, shed);
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.cache.lock().counters.abandoned += 1;
            self.give_up(Outcome::Drop);
        }
    }
}

#[cfg(test)]
mod tests;
