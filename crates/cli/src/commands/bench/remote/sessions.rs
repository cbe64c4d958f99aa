//! Sessions of a benchmark server: who measures, for how long, and what all of them may hold together.
//!
//! Each operation takes the time as an argument, so no test waits. A session owns the places of its raw
//! connections; they end with it. A refusal names the bound, and changes nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::control::Ask;
use crate::commands::bench::tcp::{Door, Pass};

/// Sessions at a time.
const SESSIONS: usize = 16;
/// Memory of a connection beside its data in flight, in bytes: Receives, socket buffers, a block of 1 MiB.
const CONNECTION: u64 = 2 << 20;
/// Time after which a client is gone that has not asked for a sample.
pub(super) const LEASE: Duration = Duration::from_secs(75);
/// Raw connections of a session for each connection that it asked for: those of one measurement may still
/// close while those of the next open.
const OVERLAP: usize = 2;

/// Bounds on what all sessions together may ask for.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands::bench) struct Bounds {
    /// Connections.
    pub(super) connections: u32,
    /// Bytes of data in flight, and of connections.
    pub(super) memory: u64,
    /// Time of one session.
    pub(super) time: Duration,
}

/// The open sessions. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::commands::bench) struct Sessions {
    bounds: Bounds,
    open: Arc<Mutex<HashMap<u64, Session>>>,
}

#[derive(Debug)]
struct Session {
    peer: String,
    connections: u32,
    memory: u64,
    opened: Instant,
    until: Instant,
    seen: Instant,
    received: Arc<AtomicU64>,
    alive: watch::Sender<()>,
    place: Arc<()>,
}

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) peer: String,
    pub(super) after: Duration,
    pub(super) how: &'static str,
}

/// State of a session at a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes that came by raw streams.
    pub(super) received: u64,
    /// Other sessions that are open.
    pub(super) others: u32,
}

/// Returns the bytes that a client with these settings makes a server hold.
fn memory(ask: &Ask) -> u64 {
    let flight = u64::from(ask.depth).saturating_mul(u64::from(ask.size));
    u64::from(ask.connections).saturating_mul(flight.saturating_add(CONNECTION))
}

impl Sessions {
    pub(in crate::commands::bench) fn new(bounds: Bounds) -> Self {
        Self { bounds, open: Arc::default() }
    }

    // A map of plain values stays consistent when a thread panics.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, and returns its number.
    ///
    /// # Errors
    /// A sentence with the bound that the client would exceed, and the option that sets it.
    pub(super) fn open(&self, ask: &Ask, peer: String, now: Instant) -> Result<u64, String> {
        let Bounds { connections, memory: most, time } = self.bounds;
        let wanted = memory(ask);
        let asked = Duration::from_secs(ask.seconds.into());
        let mut open = self.lock();
        let used = open.values().map(|session| session.connections).fold(0, u32::saturating_add);
        let held = open.values().map(|session| session.memory).fold(0, u64::saturating_add);
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        if asked > time {
            return Err(format!(
                "{} s asked for, at most {} s allowed (--duration-limit of the server)",
                ask.seconds,
                time.as_secs()
            ));
        }
        if ask.connections == 0 || used.saturating_add(ask.connections) > connections {
            return Err(format!(
                "{} connections asked for, {connections} allowed for all clients together, {used} in use \
                 (--connection-limit of the server)",
                ask.connections
            ));
        }
        if held.saturating_add(wanted) > most {
            return Err(format!(
                "{} MiB of memory asked for (connections x (depth x size + 2 MiB)), {} MiB allowed for all \
                 clients together, {} MiB in use (--memory-limit of the server)",
                mib(wanted),
                mib(most),
                mib(held)
            ));
        }
        if open.len() >= SESSIONS {
            return Err(format!("{SESSIONS} clients measure already, and more are not allowed at a time"));
        }
        // The keys of the hasher are random, so nobody guesses the number of another session.
        let mut number = 0;
        while number == 0 || open.contains_key(&number) {
            number = RandomState::new().build_hasher().finish();
        }
        let session = Session {
            peer,
            connections: ask.connections,
            memory: wanted,
            opened: now,
            until: now + asked,
            seen: now,
            received: Arc::default(),
            alive: watch::Sender::new(()),
            place: Arc::default(),
        };
        open.insert(number, session);
        Ok(number)
    }

    /// Notes a sign of life. Returns `None` if the session has ended.
    pub(super) fn touch(&self, number: u64, now: Instant) -> Option<Seen> {
        let mut open = self.lock();
        let others = u32::try_from(open.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let session = open.get_mut(&number)?;
        session.seen = now;
        Some(Seen { received: session.received.load(Ordering::Relaxed), others })
    }

    /// Returns the client of a session.
    pub(super) fn peer(&self, number: u64) -> Option<String> {
        self.lock().get(&number).map(|session| session.peer.clone())
    }

    /// Ends a session in order.
    pub(super) fn close(&self, number: u64, now: Instant) -> Option<Ended> {
        let session = self.lock().remove(&number)?;
        Some(session.ended("done", now))
    }

    /// Ends the sessions whose time is over, and those whose client is gone.
    pub(super) fn expire(&self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.lock().retain(|_, session| {
            let how = if now >= session.until {
                "its time is over"
            } else if now >= session.seen + LEASE {
                "gone without a word"
            } else {
                return true;
            };
            ended.push(session.ended(how, now));
            false
        });
        ended
    }

    /// Returns whether any session is open.
    pub(super) fn are_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Returns the decision about raw connections.
    pub(in crate::commands::bench) fn door(&self) -> Door {
        let sessions = self.clone();
        Arc::new(move |number| sessions.enter(number))
    }

    /// Lets a raw connection in, if its session is open and has a place.
    fn enter(&self, number: u64) -> Option<Pass> {
        let open = self.lock();
        let session = open.get(&number)?;
        let places = usize::try_from(session.connections).unwrap_or(usize::MAX).saturating_mul(OVERLAP);
        // The session itself has one reference.
        (Arc::strong_count(&session.place) <= places).then(|| Pass {
            received: Arc::clone(&session.received),
            session: Some(session.alive.subscribe()),
            place: Some(Arc::clone(&session.place)),
        })
    }
}

impl Session {
    fn ended(&self, how: &'static str, now: Instant) -> Ended {
        let after = now.saturating_duration_since(self.opened);
        Ended { peer: self.peer.clone(), after, how }
    }
}

/// Sessions for tests of raw connections.
#[cfg(test)]
pub(in crate::commands::bench) mod testing {
    use super::*;

    pub(in crate::commands::bench) fn sessions() -> Sessions {
        Sessions::new(Bounds { connections: 8, memory: u64::MAX, time: Duration::from_secs(60) })
    }

    /// Opens a session of two connections.
    pub(in crate::commands::bench) fn open(sessions: &Sessions) -> u64 {
        let ask = Ask { name: String::new(), connections: 2, depth: 1, size: 1, seconds: 60 };
        sessions.open(&ask, "peer".to_owned(), Instant::now()).unwrap()
    }

    pub(in crate::commands::bench) fn received(sessions: &Sessions, number: u64) -> u64 {
        sessions.touch(number, Instant::now()).unwrap().received
    }

    pub(in crate::commands::bench) fn close(sessions: &Sessions, number: u64) {
        assert!(sessions.close(number, Instant::now()).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sessions() -> Sessions {
        Sessions::new(Bounds { connections: 4, memory: 64 << 20, time: 60 * SECOND })
    }

    fn ask(connections: u32, depth: u32, size: u32, seconds: u32) -> Ask {
        Ask { name: "x".to_owned(), connections, depth, size, seconds }
    }

    fn refused(sessions: &Sessions, ask: &Ask, now: Instant) -> String {
        sessions.open(ask, "peer".to_owned(), now).unwrap_err()
    }

    #[test]
    fn i6_what_a_client_may_ask_for_is_bounded_and_the_bound_is_named() {
        let (sessions, now) = (sessions(), Instant::now());
        for (ask, words) in [
            (ask(5, 1, 1, 1), "5 connections asked for, 4 allowed"),
            (ask(0, 1, 1, 1), "--connection-limit"),
            (ask(1, 64, 1 << 20, 1), "66 MiB of memory asked for"),
            (ask(4, u32::MAX, u32::MAX, 1), "--memory-limit"),
            (ask(1, 1, 1, 61), "61 s asked for, at most 60 s allowed"),
        ] {
            let reason = refused(&sessions, &ask, now);
            assert!(reason.contains(words), "{reason}");
        }
        assert!(!sessions.are_any());
        // The sum of all counts.
        sessions.open(&ask(3, 1, 1, 1), "a".to_owned(), now).unwrap();
        assert!(refused(&sessions, &ask(2, 1, 1, 1), now).contains("3 in use"));
        assert!(refused(&sessions, &ask(1, 58, 1 << 20, 1), now).contains("7 MiB in use"));
        sessions.open(&ask(1, 1, 1, 1), "b".to_owned(), now).unwrap();
        let many = Sessions::new(Bounds { connections: 100, memory: u64::MAX, time: SECOND });
        for _ in 0..SESSIONS {
            many.open(&ask(1, 1, 1, 1), "a".to_owned(), now).unwrap();
        }
        assert!(refused(&many, &ask(1, 1, 1, 1), now).contains("16 clients measure already"));
    }

    #[test]
    fn a_session_ends_by_its_time_its_silence_or_its_close() {
        // Longer than the silence that ends a session.
        const TIME: Duration = Duration::from_secs(200);
        let bounds = Bounds { connections: 4, memory: u64::MAX, time: TIME };
        let (sessions, now) = (Sessions::new(bounds), Instant::now());
        let open = |name: &str| sessions.open(&ask(1, 1, 1, 200), name.to_owned(), now).unwrap();
        let (silent, alive, done) = (open("silent"), open("alive"), open("done"));
        assert_eq!(sessions.touch(alive, now + 10 * SECOND), Some(Seen { received: 0, others: 2 }));
        let ended = |peer: &str, after, how| Ended { peer: peer.to_owned(), after, how };
        assert_eq!(sessions.close(done, now + SECOND), Some(ended("done", SECOND, "done")));
        assert_eq!(sessions.expire(now + LEASE - SECOND), []);
        let gone = sessions.expire(now + LEASE);
        assert_eq!(gone, [ended("silent", LEASE, "gone without a word")]);
        assert_eq!((sessions.touch(silent, now), sessions.peer(silent)), (None, None));
        sessions.touch(alive, now + TIME - SECOND);
        assert_eq!(sessions.expire(now + TIME), [ended("alive", TIME, "its time is over")]);
        assert!(!sessions.are_any());
    }

    #[test]
    fn i6_raw_connections_need_a_session_with_a_place_and_end_with_it() {
        let (sessions, now) = (sessions(), Instant::now());
        assert!(sessions.enter(0).is_none());
        let number = sessions.open(&ask(1, 1, 1, 1), "a".to_owned(), now).unwrap();
        let (first, second) = (sessions.enter(number).unwrap(), sessions.enter(number).unwrap());
        assert!(sessions.enter(number).is_none());
        drop(first);
        let third = sessions.enter(number).unwrap();
        third.received.fetch_add(7, Ordering::Relaxed);
        assert_eq!(sessions.touch(number, now), Some(Seen { received: 7, others: 0 }));
        assert!(second.session.as_ref().unwrap().has_changed().is_ok());
        sessions.close(number, now);
        assert!(second.session.as_ref().unwrap().has_changed().is_err());
        assert!(sessions.enter(number).is_none());
    }
}
