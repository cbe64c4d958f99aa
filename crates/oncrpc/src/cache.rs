//! The duplicate request cache: a retransmitted call is executed once and gets the reply of that execution.
//!
//! Calls are known again by the peer's address *without port* (a client reconnects from another port), XID, program,
//! version, procedure, and a checksum of the caller's identity and the first [`CHECKSUM_LEN`] argument bytes. A repeat of a call in progress
//! waits for it; a repeat of a finished one gets the kept reply. Only calls of procedures that aren't idempotent come
//! here, and only small replies are kept: [`CacheLimits`].
//!
//! *Who owns which buffer:* kept replies are copies, so that they never hold a pool buffer. *What happens on error:*
//! an execution that is given up ([`Execution`] dropped) wakes all who wait for it with [`Outcome::Drop`]; the next
//! repeat is then executed. A kept reply can be evicted early by the limits; its repeat is executed again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_xdr::{Decoder, Piece, Stream};

use crate::auth::Credential;
use crate::dispatch::Outcome;

/// Argument bytes that go into a call's checksum.
pub const CHECKSUM_LEN: usize = 256;

/// Bounds of a [`ReplyCache`]. Calls in progress are bounded by the credits of their connections, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most replies kept.
    pub entries: usize,
    /// Most replies kept for one peer, so that one can't push out the others'.
    pub entries_per_peer: usize,
    /// Most bytes of all kept replies together.
    pub bytes: usize,
    /// Longest reply kept, in bytes. A longer one is only shared with the repeats that wait for it.
    pub reply_len: usize,
    /// How long a reply is kept, from the arrival of its call.
    pub age: Duration,
}

impl Default for CacheLimits {
    /// 8192 replies, 1024 of one peer, 4 MiB in all, 2048 bytes each, for two minutes.
    fn default() -> Self {
        Self {
            entries: 8192,
            entries_per_peer: 1024,
            bytes: 4 << 20,
            reply_len: 2048,
            age: Duration::from_secs(120),
        }
    }
}

/// What a [`ReplyCache`] did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Calls that were new.
    pub executed: u64,
    /// Repeats that waited for a call in progress.
    pub waited: u64,
    /// Repeats answered with a kept reply.
    pub replayed: u64,
    /// Executions given up without an outcome.
    pub abandoned: u64,
    /// Replies dropped because of a limit other than age.
    pub evicted: u64,
    /// Replies too long to be kept.
    pub too_long: u64,
}

/// By what a call is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    peer: IpAddr,
    xid: u32,
    call: [u32; 3],
    checksum: u64,
}

impl Key {
    /// The key of a call: `call` is program, version and procedure, `arguments` stands at the first argument. Who calls
    /// counts too: nobody gets a reply that was made for another user of the same host.
    pub fn new(peer: IpAddr, xid: u32, call: [u32; 3], credential: &Credential, arguments: &Decoder) -> Self {
        // The same on every connection and for every form of the call: neither seed nor cut goes in.
        let mut hasher = DefaultHasher::new();
        hasher.write_u32(credential.flavor());
        // Only what says who calls: the rest of a credential may change between a call and its repeat.
        if let Credential::Sys(user) = credential {
            hasher.write_u32(user.uid);
            hasher.write_u32(user.gid);
            user.gids.iter().for_each(|gid| hasher.write_u32(*gid));
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

/// What to do about a call.
#[derive(Debug)]
pub enum Admission {
    /// It is new: execute it and say how it went.
    Execute(Execution),
    /// It is in progress: wait for it.
    Wait(Repeat),
    /// It was executed: this is its reply.
    Replay(Stream),
}

/// Kept replies in the order of their calls' arrival; the number makes equal times distinct.
type Age = (Instant, u64);

#[derive(Debug)]
enum Entry {
    InProgress(Arc<Slot>),
    Done { reply: Stream },
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    ages: BTreeMap<Age, Key>,
    peers: HashMap<IpAddr, BTreeSet<Age>>,
    bytes: usize,
    next: u64,
    counters: CacheCounters,
}

/// The cache, shared by all connections of a server. See the module's introduction.
#[derive(Debug)]
pub struct ReplyCache {
    limits: CacheLimits,
    state: Mutex<State>,
}

impl ReplyCache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// The limits it was made with.
    pub const fn limits(&self) -> &CacheLimits {
        &self.limits
    }

    /// Replies kept.
    pub fn len(&self) -> usize {
        self.lock().ages.len()
    }

    /// Whether no reply is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all kept replies.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// What it did up to now.
    pub fn counters(&self) -> CacheCounters {
        self.lock().counters
    }

    /// Drops replies that are too old. [`admit`](Self::admit) does it too; a server without calls may want to.
    pub fn expire(&self, now: Instant) {
        self.lock().expire(now, self.limits.age);
    }

    /// Looks a call up that arrived at `now`, and notes it as in progress if it is new.
    pub fn admit(self: &Arc<Self>, key: Key, now: Instant) -> Admission {
        let mut state = self.lock();
        let state = &mut *state;
        state.expire(now, self.limits.age);
        match state.entries.get(&key) {
            Some(Entry::InProgress(slot)) => {
                state.counters.waited += 1;
                Admission::Wait(Repeat { slot: Arc::clone(slot), place: None })
            }
            Some(Entry::Done { reply }) => {
                state.counters.replayed += 1;
                Admission::Replay(reply.clone())
            }
            None => {
                state.counters.executed += 1;
                let slot = Arc::new(Slot::default());
                state.entries.insert(key, Entry::InProgress(Arc::clone(&slot)));
                Admission::Execute(Execution { cache: Arc::clone(self), key, arrived: now, slot: Some(slot) })
            }
        }
    }

    fn keep(&self, key: Key, arrived: Instant, reply: &Stream) {
        let mut state = self.lock();
        state.entries.remove(&key);
        if reply.len() > self.limits.reply_len {
            state.counters.too_long += 1;
            tracing::debug!(xid = key.xid, length = reply.len(), "reply too long to be kept");
            return;
        }
        let age = (arrived, state.next);
        state.next += 1;
        state.bytes += reply.len();
        state.ages.insert(age, key);
        state.peers.entry(key.peer).or_default().insert(age);
        state.entries.insert(key, Entry::Done { reply: copy(reply) });
        state.evict(key.peer, &self.limits);
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
    fn expire(&mut self, now: Instant, age: Duration) {
        while let Some(&oldest) = self.ages.keys().next()
            && now.saturating_duration_since(oldest.0) >= age
        {
            self.remove(oldest);
        }
    }

    /// Brings everything back under the limits after a reply for `peer` was added.
    fn evict(&mut self, peer: IpAddr, limits: &CacheLimits) {
        while let Some(ages) = self.peers.get(&peer)
            && ages.len() > limits.entries_per_peer
            && let Some(&oldest) = ages.first()
        {
            self.counters.evicted += 1;
            self.remove(oldest);
        }
        while (self.ages.len() > limits.entries || self.bytes > limits.bytes)
            && let Some(&oldest) = self.ages.keys().next()
        {
            self.counters.evicted += 1;
            self.remove(oldest);
        }
    }

    fn remove(&mut self, age: Age) {
        let Some(key) = self.ages.remove(&age) else { return };
        if let Some(Entry::Done { reply }) = self.entries.remove(&key) {
            self.bytes -= reply.len();
        }
        if let Some(ages) = self.peers.get_mut(&key.peer) {
            ages.remove(&age);
            if ages.is_empty() {
                self.peers.remove(&key.peer);
            }
        }
    }
}

/// The same pieces in memory of their own.
fn copy(reply: &Stream) -> Stream {
    let mut copied = Stream::new();
    for piece in reply.pieces() {
        let data = Bytes::copy_from_slice(piece.data());
        copied.push(match piece {
            Piece::Inline(_) => Piece::Inline(data),
            Piece::Payload { ddp_eligible, .. } => Piece::Payload { data, ddp_eligible: *ddp_eligible },
        });
    }
    copied
}

/// Where those who wait for a call in progress meet its execution.
#[derive(Debug, Default)]
struct Slot(Mutex<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<Outcome>,
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// The duty to execute a call once and to say how it went. Dropped without that, the call counts as not executed and
/// those who wait get [`Outcome::Drop`].
#[derive(Debug)]
pub struct Execution {
    cache: Arc<ReplyCache>,
    key: Key,
    arrived: Instant,
    slot: Option<Arc<Slot>>,
}

impl Execution {
    /// Gives the outcome to all who wait, and keeps it if it is a small reply.
    pub fn complete(mut self, outcome: &Outcome) {
        if let Outcome::Reply(reply) = outcome {
            self.cache.keep(self.key, self.arrived, reply);
            self.resolve(outcome.clone());
        } else {
            self.give_up(outcome.clone());
        }
    }

    fn give_up(&mut self, outcome: Outcome) {
        self.cache.lock().entries.remove(&self.key);
        self.resolve(outcome);
    }

    fn resolve(&mut self, outcome: Outcome) {
        if let Some(slot) = self.slot.take() {
            slot.resolve(outcome);
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

/// Waits for the execution of the same call elsewhere; resolves to its outcome.
#[derive(Debug)]
pub struct Repeat {
    slot: Arc<Slot>,
    /// Under which number our waker is kept.
    place: Option<u64>,
}

impl Future for Repeat {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = &mut *self;
        let mut state = this.slot.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let place = *this.place.get_or_insert_with(|| {
            let place = state.next;
            state.next += 1;
            place
        });
        state.wakers.insert(place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.slot.lock().wakers.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests;
