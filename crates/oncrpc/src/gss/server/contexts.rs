//! The contexts that a server keeps, and which of them goes first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{Begun, GssLimits, GssServer, Refusal, Shared};
use crate::auth::Principal;
use crate::origin::Origin;

/// A principal at an origin. Another origin of the principal counts apart: its contexts give way to others there.
type User = (Option<Origin>, Arc<Principal>);

/// Contexts of all callers.
#[derive(Default)]
pub(super) struct Contexts {
    used: HashMap<u64, Entry>,
    /// Number of contexts by origin.
    of_origin: HashMap<Option<Origin>, usize>,
    /// Number of contexts by user. Each context has its number at hand, so that a search hashes no names. Changed under the lock
    /// only.
    of_user: HashMap<User, Arc<AtomicUsize>>,
    begun: HashMap<u64, Begun>,
    /// Number of contexts that are being created, by origin.
    creating: HashMap<Option<Origin>, usize>,
    /// Those of them that the mechanism works at. They do not give way.
    working: HashMap<Option<Origin>, usize>,
}

struct Entry {
    shared: Arc<Shared>,
    origin: Option<Origin>,
    /// Number of contexts of its user.
    of_user: Arc<AtomicUsize>,
    last_used: Instant,
}

/// The right to create a context, until the drop.
pub(super) struct Place {
    /// Weak, because the server itself keeps places.
    server: Weak<GssServer>,
    origin: Option<Origin>,
    /// Time until which the context has to be complete.
    end: Instant,
    /// Whether the mechanism works at the context. Otherwise it waits for its initiator.
    works: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            let mut contexts = server.contexts();
            subtract(&mut contexts.creating, self.origin);
            if self.works {
                subtract(&mut contexts.working, self.origin);
            }
        }
    }
}

/// Returns the number of an origin. An origin that is about to have one more counts with that: so an origin with as many as
/// others makes room for its own.
fn crowd(
    numbers: &HashMap<Option<Origin>, usize>,
    origin: Option<Origin>,
    newcomer: Option<Origin>,
) -> usize {
    numbers.get(&origin).copied().unwrap_or(0) + usize::from(origin == newcomer)
}

/// Reduces a number by one, and forgets it if nothing is left.
fn subtract(numbers: &mut HashMap<Option<Origin>, usize>, origin: Option<Origin>) {
    if let Some(number) = numbers.get_mut(&origin) {
        *number -= 1;
        if *number == 0 {
            numbers.remove(&origin);
        }
    }
}

impl Contexts {
    /// Returns the right to create a context, if there is room.
    pub(super) fn place(server: &Arc<GssServer>, origin: Option<Origin>, now: Instant) -> Option<Place> {
        let limits = &server.limits;
        // Both are dropped without the lock, which their places take.
        let late = server.contexts().take_late(now);
        drop(late);
        let oldest = server.contexts().take_oldest(origin, limits);
        drop(oldest);
        let mut contexts = server.contexts();
        let is_full = !contexts.has_share(origin, limits) || contexts.creating() >= limits.creating;
        if is_full || !contexts.may_work(origin, limits) {
            return None;
        }
        *contexts.creating.entry(origin).or_default() += 1;
        *contexts.working.entry(origin).or_default() += 1;
        drop(contexts);
        let end = now.checked_add(limits.creation).unwrap_or(now);
        Some(Place { server: Arc::downgrade(server), origin, end, works: true })
    }

    /// Returns the number of contexts that are being created.
    pub(super) fn creating(&self) -> usize {
        self.creating.values().sum()
    }

    /// Returns whether an origin may create one more context at a time.
    fn has_share(&self, origin: Option<Origin>, limits: &GssLimits) -> bool {
        self.creating.get(&origin).copied().unwrap_or(0) < limits.creating.div_ceil(4)
    }

    /// Returns whether the mechanism may work at one more context of an origin. The first one may as long as any may. Further
    /// ones leave as many places to others as the origin then has, and those are free again soon.
    fn may_work(&self, origin: Option<Origin>, limits: &GssLimits) -> bool {
        let held = self.working.get(&origin).copied().unwrap_or(0);
        let left = limits.creating.saturating_sub(self.working.values().sum());
        left > 0 && (held == 0 || held < left - 1)
    }

    /// Removes what was begun and not completed in time.
    fn take_late(&mut self, now: Instant) -> Vec<Begun> {
        self.begun.extract_if(|_, begun| begun.place.end <= now).map(|(_, begun)| begun).collect()
    }

    /// Removes the context that has waited longest for its initiator, if there is no room for one more. It belongs to the
    /// newcomer's origin if that has its share already, otherwise to an origin that has most. So nobody keeps others out by
    /// contexts that are never completed.
    fn take_oldest(&mut self, newcomer: Option<Origin>, limits: &GssLimits) -> Option<Begun> {
        let has_share = self.has_share(newcomer, limits);
        if has_share && self.creating() < limits.creating || !self.may_work(newcomer, limits) {
            return None;
        }
        let waiting = self.begun.iter().filter(|(_, begun)| has_share || begun.place.origin == newcomer);
        let oldest = waiting.min_by_key(|(number, begun)| {
            (Reverse(crowd(&self.creating, begun.place.origin, newcomer)), begun.place.end, **number)
        });
        let number = *oldest?.0;
        self.begun.remove(&number)
    }

    /// Keeps a context that waits for its initiator.
    pub(super) fn keep_begun(&mut self, mut begun: Begun) {
        if std::mem::replace(&mut begun.place.works, false) {
            subtract(&mut self.working, begun.place.origin);
        }
        self.begun.insert(begun.number, begun);
    }

    /// Removes a context that is being created, to go on with it. `Ok(None)` if there is none.
    ///
    /// # Errors
    /// It has to wait until the mechanism has worked at others of its origin.
    pub(super) fn take_begun(
        &mut self,
        number: u64,
        now: Instant,
        limits: &GssLimits,
    ) -> Result<Option<Begun>, Refusal> {
        let Some(waiting) = self.begun.get(&number).filter(|begun| now < begun.place.end) else {
            return Ok(None);
        };
        if !self.may_work(waiting.place.origin, limits) {
            return Err(Refusal::Busy);
        }
        let Some(mut begun) = self.begun.remove(&number) else { return Ok(None) };
        begun.place.works = true;
        *self.working.entry(begun.place.origin).or_default() += 1;
        Ok(Some(begun))
    }

    /// Returns a context that a request names. Whether its caller sent the request is not known yet.
    pub(super) fn named(&self, number: u64) -> Option<Arc<Shared>> {
        Some(Arc::clone(&self.used.get(&number)?.shared))
    }

    /// Records that its caller used a context.
    pub(super) fn touch(&mut self, number: u64, now: Instant) {
        if let Some(entry) = self.used.get_mut(&number) {
            entry.last_used = entry.last_used.max(now);
        }
    }

    /// Keeps a context that is complete. Returns those that have to go, to be dropped without the lock: a mechanism may take
    /// long to free them.
    #[must_use]
    pub(super) fn insert(
        &mut self,
        shared: Arc<Shared>,
        origin: Option<Origin>,
        now: Instant,
        limits: &GssLimits,
    ) -> Vec<Arc<Shared>> {
        let old: Vec<u64> = self
            .used
            .iter()
            .filter(|(_, entry)| {
                now.saturating_duration_since(entry.last_used) >= limits.idle
                    || entry.shared.expires.is_some_and(|end| now >= end)
            })
            .map(|(number, _)| *number)
            .collect();
        let mut removed: Vec<_> = old.into_iter().filter_map(|number| self.remove(number)).collect();
        let user = (origin, Arc::clone(&shared.principal));
        while self.used.len() >= limits.contexts.max(1) {
            let Some(number) = self.least(&user) else { break };
            removed.extend(self.remove(number));
        }
        *self.of_origin.entry(origin).or_default() += 1;
        let of_user = Arc::clone(self.of_user.entry(user).or_default());
        of_user.fetch_add(1, Ordering::Relaxed);
        self.used.insert(shared.number, Entry { shared, origin, of_user, last_used: now });
        removed
    }

    /// Returns the context that goes first. It belongs to an origin that has most, and to a user that has most there. Of those it
    /// is the least recently used one.
    fn least(&self, newcomer: &User) -> Option<u64> {
        let own = self.of_user.get(newcomer);
        let of_user = |entry: &Entry| {
            let is_newcomer = own.is_some_and(|own| Arc::ptr_eq(own, &entry.of_user));
            entry.of_user.load(Ordering::Relaxed) + usize::from(is_newcomer)
        };
        let least = self.used.iter().min_by_key(|(number, entry)| {
            let of_origin = crowd(&self.of_origin, entry.origin, newcomer.0);
            (Reverse(of_origin), Reverse(of_user(entry)), entry.last_used, **number)
        });
        Some(*least?.0)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Shared>> {
        let entry = self.used.remove(&number)?;
        subtract(&mut self.of_origin, entry.origin);
        if entry.of_user.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.of_user.remove(&(entry.origin, Arc::clone(&entry.shared.principal)));
        }
        Some(entry.shared)
    }

    /// Returns the number of contexts in use.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}
