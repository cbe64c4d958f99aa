//! [`Kept`]: the replies of executed calls, how long each stays, and how much memory they take.
//!
//! *Buffers.* Replies are copied.
//!
//! *Errors.* Unknown keys and windows are ignored: a reply may have gone, and a connection may have ended, before its
//! caller learns of that.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_xdr::{Piece, Stream};

use super::shelf::Shelf;
use super::{CacheKey, ENTRY_COST, WindowId};
use crate::program::Effect;

/// Proven replies may take one part in this number of a budget.
pub(super) const PROVEN_PART: usize = 16;

#[derive(Debug)]
pub(super) struct Kept {
    replies: HashMap<CacheKey, Reply>,
    data: Budget,
    state: Budget,
    windows: HashMap<WindowId, Window>,
    deadlines: BTreeMap<(Instant, u64), CacheKey>,
    /// Replies whose time begins at the next time that a caller gives.
    undated: Vec<(CacheKey, u64)>,
    age: Duration,
    next: u64,
}

/// A number of replies without proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unproven(pub(super) u64);

#[derive(Debug)]
struct Reply {
    /// `None` if the reply was too long.
    stream: Option<Stream>,
    effect: Effect,
    number: u64,
    cost: usize,
    standing: Standing,
    deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Awaited(WindowId),
    Orphaned,
    Proven,
}

#[derive(Debug)]
struct Budget {
    limit: usize,
    proven: Shelf,
    /// Awaited or orphaned replies.
    unproven: Shelf,
}

/// An open connection.
#[derive(Debug, Default)]
struct Window {
    awaited: HashSet<CacheKey>,
    /// Replies that have left, with the number of Calls that proves each. None is proven before an earlier one.
    flying: VecDeque<(u64, u64, CacheKey)>,
}

impl Budget {
    fn new(limit: usize) -> Self {
        Self { limit, proven: Shelf::default(), unproven: Shelf::default() }
    }

    const fn cost(&self) -> usize {
        self.proven.cost() + self.unproven.cost()
    }

    const fn shelf(&mut self, standing: Standing) -> &mut Shelf {
        match standing {
            Standing::Proven => &mut self.proven,
            Standing::Awaited(_) | Standing::Orphaned => &mut self.unproven,
        }
    }

    /// Finds the reply that has to go next; also returns whether it is proven.
    fn first_to_go(&self) -> Option<(CacheKey, bool)> {
        let full = self.cost() > self.limit;
        if full || self.proven.cost() > self.limit / PROVEN_PART {
            let proven = self.proven.first_to_go().map(|key| (key, true));
            return proven.or_else(|| self.unproven.first_to_go().map(|key| (key, false)));
        }
        None
    }
}

impl Kept {
    pub(super) fn new(memory: usize, age: Duration) -> Self {
        Self {
            replies: HashMap::new(),
            data: Budget::new(memory / 2),
            state: Budget::new(memory / 2),
            windows: HashMap::new(),
            deadlines: BTreeMap::new(),
            undated: Vec::new(),
            age,
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    pub(super) const fn memory(&self) -> usize {
        self.data.cost() + self.state.cost()
    }

    /// Returns the reply of an executed call; `Some(None)` if it was too long.
    pub(super) fn get(&self, key: &CacheKey) -> Option<Option<&Stream>> {
        self.replies.get(key).map(|reply| reply.stream.as_ref())
    }

    pub(super) fn open(&mut self, window: WindowId) {
        self.windows.insert(window, Window::default());
    }

    /// Closes a window after the end of its connection: its replies wait for repeats on other connections.
    pub(super) fn close(&mut self, window: WindowId) {
        let Some(closed) = self.windows.remove(&window) else { return };
        for key in closed.awaited {
            if let Some(reply) = self.replies.get_mut(&key) {
                reply.standing = Standing::Orphaned;
                self.undated.push((key, reply.number));
            }
        }
    }

    /// Keeps the reply of an execution, or only the fact that it was executed.
    pub(super) fn keep(
        &mut self,
        key: CacheKey,
        effect: Effect,
        window: Option<WindowId>,
        reply: Option<&Stream>,
    ) {
        let number = self.next;
        self.next += 1;
        let open = window.and_then(|id| Some((id, self.windows.get_mut(&id)?)));
        let standing = if let Some((id, window)) = open {
            window.awaited.insert(key);
            Standing::Awaited(id)
        } else {
            self.undated.push((key, number));
            Standing::Orphaned
        };
        let cost = ENTRY_COST.saturating_add(reply.map_or(0, Stream::len));
        self.budget(effect).unproven.insert(key, number, cost);
        let stream = reply.map(copy);
        self.replies.insert(key, Reply { stream, effect, number, cost, standing, deadline: None });
    }

    /// Notes that a reply has left by this connection, to be proven by the Call of this number. Any earlier connection
    /// no longer matters.
    pub(super) fn leave(&mut self, key: CacheKey, id: WindowId, proof: u64) {
        let Some(&Reply { number, standing, .. }) = self.replies.get(&key) else { return };
        if !self.windows.contains_key(&id) {
            return;
        }
        if standing != Standing::Awaited(id) {
            self.stand(&key, Standing::Awaited(id));
        }
        if let Some(window) = self.windows.get_mut(&id) {
            window.flying.push_back((proof, number, key));
        }
    }

    /// Notes the number of Calls that have come by this connection. Returns how many replies that proves, and the
    /// number of Calls that proves the next.
    pub(super) fn prove(&mut self, id: WindowId, calls: u64) -> (u64, u64) {
        let mut proven = 0;
        loop {
            let Some(window) = self.windows.get_mut(&id) else { return (proven, u64::MAX) };
            let Some(&(proof, number, key)) = window.flying.front() else { return (proven, u64::MAX) };
            if proof > calls {
                return (proven, proof);
            }
            window.flying.pop_front();
            let here = |reply: &&Reply| reply.number == number && reply.standing == Standing::Awaited(id);
            if self.replies.get(&key).filter(here).is_some() {
                self.stand(&key, Standing::Proven);
                proven += 1;
            }
        }
    }

    /// Moves a reply to another standing.
    fn stand(&mut self, key: &CacheKey, standing: Standing) {
        let Some(reply) = self.replies.get_mut(key) else { return };
        let before = std::mem::replace(&mut reply.standing, standing);
        let (effect, number, cost) = (reply.effect, reply.number, reply.cost);
        if let Some(deadline) = reply.deadline.take() {
            self.deadlines.remove(&(deadline, number));
        }
        if let Standing::Awaited(window) = before
            && let Some(window) = self.windows.get_mut(&window)
        {
            window.awaited.remove(key);
        }
        if let Standing::Awaited(window) = standing
            && let Some(window) = self.windows.get_mut(&window)
        {
            window.awaited.insert(*key);
        } else {
            self.undated.push((*key, number));
        }
        let budget = self.budget(effect);
        budget.shelf(before).remove(key, number, cost);
        budget.shelf(standing).insert(*key, number, cost);
    }

    /// Drops the replies whose time is over.
    pub(super) fn expire(&mut self, now: Instant) -> Unproven {
        for (key, number) in std::mem::take(&mut self.undated) {
            let Some(reply) = self.replies.get_mut(&key) else { continue };
            let runs = !matches!(reply.standing, Standing::Awaited(_)) && reply.deadline.is_none();
            // A reply whose deadline is beyond the clock stays until the memory is needed.
            if reply.number == number
                && runs
                && let Some(deadline) = now.checked_add(self.age)
            {
                reply.deadline = Some(deadline);
                self.deadlines.insert((deadline, number), key);
            }
        }
        let mut unproven = 0;
        while let Some((&(deadline, _), &key)) = self.deadlines.first_key_value()
            && deadline <= now
        {
            unproven += u64::from(self.remove(&key) == Some(Standing::Orphaned));
        }
        Unproven(unproven)
    }

    /// Brings a budget back under its limit; returns the calls that lost their reply without a proof.
    pub(super) fn make_room(&mut self, effect: Effect) -> Vec<CacheKey> {
        let mut early = Vec::new();
        while let Some((key, proven)) = self.budget(effect).first_to_go() {
            self.remove(&key);
            if !proven {
                early.push(key);
            }
        }
        early
    }

    fn remove(&mut self, key: &CacheKey) -> Option<Standing> {
        let Reply { effect, number, cost, standing, deadline, .. } = self.replies.remove(key)?;
        self.budget(effect).shelf(standing).remove(key, number, cost);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, number));
        }
        if let Standing::Awaited(window) = standing
            && let Some(window) = self.windows.get_mut(&window)
        {
            window.awaited.remove(key);
        }
        Some(standing)
    }

    #[cfg(test)]
    pub(super) fn check_books(&self) {
        let cost = |effect, proven: bool| -> usize {
            let here = self.replies.values().filter(|reply| {
                (reply.effect == Effect::Data) == (effect == Effect::Data)
                    && (reply.standing == Standing::Proven) == proven
            });
            here.map(|reply| reply.cost).sum()
        };
        for (budget, effect) in [(&self.data, Effect::Data), (&self.state, Effect::State)] {
            budget.proven.check_books();
            budget.unproven.check_books();
            assert_eq!(
                (budget.proven.cost(), budget.unproven.cost()),
                (cost(effect, true), cost(effect, false))
            );
            assert!(budget.cost() <= budget.limit && budget.proven.cost() <= budget.limit / PROVEN_PART);
        }
        for (key, reply) in &self.replies {
            let awaited: Vec<_> = self
                .windows
                .iter()
                .filter(|(_, window)| window.awaited.contains(key))
                .map(|(id, _)| *id)
                .collect();
            match reply.standing {
                Standing::Awaited(id) => assert_eq!((awaited, reply.deadline), (vec![id], None)),
                Standing::Orphaned | Standing::Proven => assert!(awaited.is_empty()),
            }
        }
        let dated = self.replies.values().filter(|reply| reply.deadline.is_some()).count();
        assert_eq!(dated, self.deadlines.len());
        let awaited: usize = self.windows.values().map(|window| window.awaited.len()).sum();
        let expected = self.replies.values().filter(|reply| matches!(reply.standing, Standing::Awaited(_)));
        assert_eq!(awaited, expected.count());
    }

    const fn budget(&mut self, effect: Effect) -> &mut Budget {
        match effect {
            Effect::Data => &mut self.data,
            Effect::State | Effect::Idempotent => &mut self.state,
        }
    }
}

/// Copies the pieces into memory of their own.
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
