//! The contexts that a server keeps, and which of them goes first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::{Begun, GssLimits, GssServer, Shared};
use crate::origin::Origin;

/// Contexts of all callers.
#[derive(Default)]
pub(super) struct Contexts {
    used: HashMap<u64, Entry>,
    /// Number of contexts by origin.
    of_origin: HashMap<Option<Origin>, usize>,
    begun: HashMap<u64, (Begun, Instant)>,
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
    server: Arc<GssServer>,
    origin: Option<Origin>,
    /// Time until which the context has to be complete.
    end: Instant,
}

impl Drop for Place {
    fn drop(&mut self) {
        subtract(&mut self.server.contexts().creating, self.origin);
    }
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
        // Dropped without the lock, which their places take.
        let late = server.contexts().take_late(now);
        drop(late);
        let limits = &server.limits;
        let mut contexts = server.contexts();
        let all: usize = contexts.creating.values().sum();
        let own = contexts.creating.entry(origin).or_default();
        if all >= limits.creating || *own >= limits.creating.div_ceil(4) {
            if *own == 0 {
                contexts.creating.remove(&origin);
            }
            return None;
        }
        *own += 1;
        drop(contexts);
        let end = now.checked_add(limits.creation).unwrap_or(now);
        Some(Place { server: Arc::clone(server), origin, end })
    }

    /// Removes what was begun and not completed in time.
    fn take_late(&mut self, now: Instant) -> Vec<(Begun, Instant)> {
        self.begun.extract_if(|_, (_, end)| *end <= now).map(|(_, begun)| begun).collect()
    }

    pub(super) fn keep_begun(&mut self, begun: Begun) {
        let end = begun.place.end;
        self.begun.insert(begun.number, (begun, end));
    }

    /// Removes a context that is being created, to go on with it.
    pub(super) fn take_begun(&mut self, number: u64, now: Instant) -> Option<Begun> {
        let (_, end) = self.begun.get(&number)?;
        if *end <= now {
            return None;
        }
        self.begun.remove(&number).map(|(begun, _)| begun)
    }

    /// Returns a context that a request is about to use.
    pub(super) fn used(&mut self, number: u64, now: Instant) -> Option<Arc<Shared>> {
        let entry = self.used.get_mut(&number)?;
        entry.last_used = now;
        Some(Arc::clone(&entry.shared))
    }

    /// Keeps a context that is complete.
    pub(super) fn insert(
        &mut self,
        shared: Arc<Shared>,
        origin: Option<Origin>,
        now: Instant,
        limits: &GssLimits,
    ) {
        let old: Vec<u64> = self
            .used
            .iter()
            .filter(|(_, entry)| {
                now.saturating_duration_since(entry.last_used) >= limits.idle
                    || entry.shared.expires.is_some_and(|end| now >= end)
            })
            .map(|(number, _)| *number)
            .collect();
        old.into_iter().for_each(|number| self.remove(number));
        while self.used.len() >= limits.contexts.max(1) {
            let Some(number) = self.least() else { break };
            self.remove(number);
        }
        *self.of_origin.entry(origin).or_default() += 1;
        self.used.insert(shared.number, Entry { shared, origin, last_used: now });
    }

    /// Returns the least recently used context of the origin that has most.
    fn least(&self) -> Option<u64> {
        let (most, _) = self.of_origin.iter().max_by_key(|(_, number)| **number)?;
        let of_most = self.used.iter().filter(|(_, entry)| entry.origin == *most);
        of_most.min_by_key(|(number, entry)| (entry.last_used, **number)).map(|(number, _)| *number)
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(entry) = self.used.remove(&number) {
            subtract(&mut self.of_origin, entry.origin);
        }
    }

    /// Returns the number of contexts in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}
