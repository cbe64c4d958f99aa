//! [`Spread`]: the connections of one client, and which of them carries a call.
//!
//! A call takes the connection with the fewest calls in progress. Among equals it takes the next in turn, so that
//! connections without calls share calls made one after the other. If that connection is down and another is up, the call
//! takes the latter, and the client opens the former again. So no call waits for a connection that it does not need.
//!
//! Calls with a key take one connection, that of the largest number mixed from the key and the connection's place. If it
//! is down, its calls take the next largest of those that are up. So the keys of one connection are spread over all
//! others, and the keys of the others stay where they are.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::xid::mix;

/// The connections of a client: at least one.
pub(crate) struct Spread<T> {
    first: Lane<T>,
    others: Vec<Lane<T>>,
    /// Number of choices so far.
    choices: AtomicUsize,
}

/// A connection with the number of its calls in progress.
struct Lane<T> {
    connection: T,
    calls: AtomicUsize,
}

/// A connection that carries a call, which counts until this is dropped.
pub(crate) struct Carrier<'a, T>(&'a Lane<T>);

impl<T> Lane<T> {
    const fn new(connection: T) -> Self {
        Self { connection, calls: AtomicUsize::new(0) }
    }
}

impl<T> Spread<T> {
    pub(crate) const fn new(first: T) -> Self {
        Self { first: Lane::new(first), others: Vec::new(), choices: AtomicUsize::new(0) }
    }

    pub(crate) fn add(&mut self, connection: T) {
        self.others.push(Lane::new(connection));
    }

    /// Returns the connection for a call: the one with the fewest calls if it is up, otherwise another that is up. Then the
    /// former is asked to open again. If none is up, the call opens the former. Calls that choose at the same moment may
    /// choose the same.
    pub(crate) fn carrier(&self, is_up: impl Fn(&T) -> bool, reopen: impl FnOnce(&T)) -> Carrier<'_, T> {
        let lane = if self.others.is_empty() { &self.first } else { self.least_busy(is_up, reopen) };
        lane.calls.fetch_add(1, Ordering::Relaxed);
        Carrier(lane)
    }

    /// Returns the connection for a call with this key: the key's own if it is up, otherwise another that is up. Then
    /// the key's own is asked to open again. If none is up, the call waits for its own.
    pub(crate) fn carrier_of(
        &self,
        key: u64,
        is_up: impl Fn(&T) -> bool,
        reopen: impl FnOnce(&T),
    ) -> Carrier<'_, T> {
        let lane = if self.others.is_empty() { &self.first } else { self.lane_of(key, is_up, reopen) };
        lane.calls.fetch_add(1, Ordering::Relaxed);
        Carrier(lane)
    }

    fn lane_of(&self, key: u64, is_up: impl Fn(&T) -> bool, reopen: impl FnOnce(&T)) -> &Lane<T> {
        let lanes = || (0..).zip([&self.first].into_iter().chain(&self.others));
        let weight = |(place, _): &(u64, &Lane<T>)| mix(key ^ mix(*place + 1));
        let Some((own, lane)) = lanes().max_by_key(weight) else { return &self.first };
        if is_up(&lane.connection) {
            return lane;
        }
        let other = |(place, lane): &(u64, &Lane<T>)| *place != own && is_up(&lane.connection);
        match lanes().filter(other).max_by_key(weight) {
            Some((_, other)) => {
                reopen(&lane.connection);
                other
            }
            None => lane,
        }
    }

    fn least_busy(&self, is_up: impl Fn(&T) -> bool, reopen: impl FnOnce(&T)) -> &Lane<T> {
        let choice = self.choices.fetch_add(1, Ordering::Relaxed);
        let (before, from) = self.others.split_at(choice % self.len());
        let lanes = || from.iter().chain([&self.first]).chain(before);
        let calls = |lane: &&Lane<T>| lane.calls.load(Ordering::Relaxed);
        let lane = lanes().min_by_key(calls).unwrap_or(&self.first);
        // Only of the chosen one: the others may be at work under their locks.
        if is_up(&lane.connection) {
            return lane;
        }
        match lanes().filter(|lane| is_up(&lane.connection)).min_by_key(calls) {
            Some(other) => {
                reopen(&lane.connection);
                other
            }
            None => lane,
        }
    }

    /// Returns the number of connections.
    pub(crate) const fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the connection that was opened first.
    pub(crate) const fn first(&self) -> &T {
        &self.first.connection
    }

    /// Returns all connections, the first one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        [&self.first].into_iter().chain(&self.others).map(|lane| &lane.connection)
    }
}

impl<T> Deref for Carrier<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.connection
    }
}

impl<T> Drop for Carrier<'_, T> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Spread<char> {
        let mut spread = Spread::new('a');
        spread.add('b');
        spread.add('c');
        spread
    }

    /// Returns the connection for a call if all are up.
    fn carrier(spread: &Spread<char>) -> Carrier<'_, char> {
        spread.carrier(|_| true, |connection| panic!("{connection} is up"))
    }

    #[test]
    fn calls_made_one_after_the_other_take_the_connections_in_turn() {
        let spread = three();
        let taken: String = (0..7).map(|_| *carrier(&spread)).collect();
        assert_eq!(taken, "bcabcab");
    }

    #[test]
    fn a_call_takes_a_connection_that_is_up() {
        let spread = three();
        let reopened = std::cell::RefCell::new(String::new());
        let taken = |down: &str| -> String {
            let reopen = |connection: &char| reopened.borrow_mut().push(*connection);
            let call = |_| *spread.carrier(|connection| !down.contains(*connection), reopen);
            (0..6).map(call).collect()
        };
        assert_eq!((taken("b").contains('b'), reopened.take()), (false, "bb".to_owned()));
        assert_eq!((taken("ab"), reopened.take()), ("cccccc".to_owned(), "baba".to_owned()));
        assert_eq!(
            (taken("abc"), reopened.take()),
            ("bcabca".to_owned(), String::new()),
            "each opens its own"
        );
    }

    #[test]
    fn a_call_takes_the_connection_with_the_fewest_calls() {
        let spread = three();
        let mut held: Vec<_> = (0..6).map(|_| carrier(&spread)).collect();
        let mut taken: Vec<char> = held.iter().map(|carrier| **carrier).collect();
        taken.sort_unstable();
        assert_eq!(taken, ['a', 'a', 'b', 'b', 'c', 'c']);
        // Two calls of one connection end: that one carries the next two.
        held.retain(|carrier| **carrier != 'b');
        let next = [carrier(&spread), carrier(&spread)];
        assert_eq!(next.each_ref().map(|carrier| **carrier), ['b', 'b']);
    }

    fn of_keys(spread: &Spread<char>, down: &str) -> (Vec<char>, usize) {
        let reopened = std::cell::Cell::new(0);
        let carrier = |key| {
            let up = |connection: &char| !down.contains(*connection);
            *spread.carrier_of(key, up, |_| reopened.set(reopened.get() + 1))
        };
        ((0..300).map(carrier).collect(), reopened.get())
    }

    fn count(taken: &[char], connection: char) -> usize {
        taken.iter().filter(|taken| **taken == connection).count()
    }

    #[test]
    fn keys_are_spread_and_each_keeps_its_connection() {
        let spread = three();
        let (taken, reopened) = of_keys(&spread, "");
        assert_eq!((&of_keys(&spread, "").0, reopened), (&taken, 0));
        for connection in ['a', 'b', 'c'] {
            let calls = count(&taken, connection);
            assert!((70..130).contains(&calls), "{calls} of 300 keys on {connection}");
        }
    }

    #[test]
    fn keys_of_a_connection_that_is_down_are_spread_over_the_others() {
        let spread = three();
        let (before, _) = of_keys(&spread, "");
        let (taken, reopened) = of_keys(&spread, "b");
        let moved: Vec<char> = before
            .iter()
            .zip(&taken)
            .filter(|(before, _)| **before == 'b')
            .map(|(_, taken)| *taken)
            .collect();
        assert!(before.iter().zip(&taken).all(|(before, taken)| *before == 'b' || before == taken));
        assert!(count(&moved, 'a') > moved.len() / 4 && count(&moved, 'c') > moved.len() / 4, "{moved:?}");
        assert_eq!((count(&taken, 'b'), reopened), (0, moved.len()));
        // None is up: each key waits for its own.
        assert_eq!(of_keys(&spread, "abc"), (before, 0));
    }

    #[test]
    fn a_single_connection_carries_all_calls() {
        let spread = Spread::new('a');
        let held: Vec<_> =
            (0..3).map(|_| spread.carrier(|_| false, |_| panic!("it opens for its call"))).collect();
        assert!(held.iter().all(|carrier| **carrier == 'a'));
        assert_eq!(*spread.carrier_of(7, |_| false, |_| panic!("it opens for its call")), 'a');
        assert_eq!(spread.all().count(), 1);
    }
}
