//! The contexts that a server keeps, and which of them goes first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{Begun, GssLimits, GssServer, Shared};
use crate::origin::Origin;

/// Contexts of all callers.
#[derive(Default)]
pub(super) struct Contexts {
    used: HashMap<u64, Entry>,
    /// Number of contexts by origin.
    of_origin: HashMap<Option<Origin>, usize>,
    begun: HashMap<u64, Begun>,
    /// Number of contexts that are being created, by origin.
    creating: HashMap<Option<Origin>, usize>,
}

struct Entry {
    shared: Arc<Shared>,
    origin: Option<Origin>,
    last_used: Instant,
}

/// The right to create a context, until the drop.
pub(super) struct Place {
    /// Weak, because the server itself keeps places.
    server: Weak<GssServer>,
    origin: Option<Origin>,
    /// Time until which the context has to be complete.
    end: Instant,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            subtract(&mut server.contexts().creating, self.origin);
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
        if !contexts.has_share(origin, limits) || contexts.creating() >= limits.creating {
            return None;
        }
        *contexts.creating.entry(origin).or_default() += 1;
        drop(contexts);
        let end = now.checked_add(limits.creation).unwrap_or(now);
        Some(Place { server: Arc::downgrade(server), origin, end })
    }

    /// Returns the number of contexts that are being created.
    pub(super) fn creating(&self) -> usize {
        self.creating.values().sum()
    }

    /// Returns whether an origin may create one more context at a time.
    fn has_share(&self, origin: Option<Origin>, limits: &GssLimits) -> bool {
        self.creating.get(&origin).copied().unwrap_or(0) < limits.creating.div_ceil(4)
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
        if has_share && self.creating() < limits.creating {
            return None;
        }
        let waiting = self.begun.iter().filter(|(_, begun)| has_share || begun.place.origin == newcomer);
        let oldest = waiting.min_by_key(|(number, begun)| {
            (Reverse(crowd(&self.creating, begun.place.origin, newcomer)), begun.place.end, **number)
        });
        let number = *oldest?.0;
        self.begun.remove(&number)
    }

    pub(super) fn keep_begun(&mut self, begun: Begun) {
        self.begun.insert(begun.number, begun);
    }

    /// Removes a context that is being created, to go on with it.
    pub(super) fn take_begun(&mut self, number: u64, now: Instant) -> Option<Begun> {
        if self.begun.get(&number)?.place.end <= now {
            return None;
        }
        self.begun.remove(&number)
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
        while self.used.len() >= limits.contexts.max(1) {
            let Some(number) = self.least(origin) else { break };
            removed.extend(self.remove(number));
        }
        *self.of_origin.entry(origin).or_default() += 1;
        self.used.insert(shared.number, Entry { shared, origin, last_used: now });
        removed
    }

    /// Returns the least recently used context of the origins that have most.
    fn least(&self, newcomer: Option<Origin>) -> Option<u64> {
        let least = self.used.iter().min_by_key(|(number, entry)| {
            (Reverse(crowd(&self.of_origin, entry.origin, newcomer)), entry.last_used, **number)
        });
        Some(*least?.0)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Shared>> {
        let entry = self.used.remove(&number)?;
        subtract(&mut self.of_origin, entry.origin);
        Some(entry.shared)
    }

    /// Returns the number of contexts in use.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}
