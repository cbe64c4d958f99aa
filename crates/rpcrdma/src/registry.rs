//! [`Registry`]: the open connections of a server, with the counters of each, and the way to end one.
//!
//! A connection's task publishes its counters by plain stores, once a turn. So a list of all connections disturbs none of
//! them. An entry takes about 300 bytes, and admission bounds the connections.
//!
//! *Buffers.* Nothing here holds any. An entry keeps the share of its address alive as long as the connection does.
//!
//! *Errors.* Nothing here fails. The counters of a connection are not read at one instant.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use rpcrdma_oncrpc::{Shown, TransportKind};
use rpcrdma_verbs::ProtectionDomain;
use tokio::task::AbortHandle;

/// The state of one connection of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedConnection {
    /// Number of the connection, from 1 on in the order of coming. No other connection of this server gets it.
    pub id: u64,
    /// Address of the client, if the fabric has addresses.
    pub peer: Option<SocketAddr>,
    /// The transport.
    pub transport: TransportKind,
    /// Name of the provider: that of the [listener](rpcrdma_verbs::Listener::provider), or `tcp`.
    pub provider: &'static str,
    /// Version of RPC-over-RDMA, once the client has chosen it; `None` over TCP.
    pub version: Option<u32>,
    /// Time of the accept.
    pub since: SystemTime,
    /// User of this machine at the other end, if the kernel knows.
    pub owner: Option<u32>,
    /// The first principal of Kerberos that called, or the name in the client's certificate.
    pub user: Option<String>,
    /// Calls received.
    pub calls: u64,
    /// Calls in progress.
    pub calls_in_flight: u64,
    /// Bytes received in calls, headers and data read by RDMA included.
    pub bytes_received: u64,
    /// Bytes sent in replies, headers and data written by RDMA included.
    pub bytes_sent: u64,
    /// Credits granted to the client; with credits per message, the messages that it may send. 0 over TCP.
    pub credits: u32,
    /// Bytes reserved for the Receives of this connection. 0 over TCP.
    pub receive_memory: usize,
    /// Bytes that all connections of the client's address hold.
    pub address_memory: usize,
}

/// Counters of all connections of one kind, also of those that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransportStats {
    /// Open connections.
    pub connections: usize,
    /// Calls received.
    pub calls: u64,
    /// Bytes received in calls.
    pub bytes_received: u64,
    /// Bytes sent in replies.
    pub bytes_sent: u64,
}

/// The origin of a connection, as known when it is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origins {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) transport: TransportKind,
    pub(crate) provider: &'static str,
    pub(crate) owner: Option<u32>,
}

/// The counters that a connection publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Published {
    pub(crate) calls: u64,
    pub(crate) in_flight: usize,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) credits: u32,
    /// 0: not known yet, or TCP.
    pub(crate) version: u32,
}

/// An entry of the registry.
#[derive(Debug)]
pub(crate) struct Record {
    id: u64,
    origins: Origins,
    since: SystemTime,
    calls: AtomicU64,
    in_flight: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    credits: AtomicU32,
    version: AtomicU32,
    user: OnceLock<String>,
    /// The memory of Receives.
    receives: OnceLock<ProtectionDomain>,
    /// The share of the address.
    share: OnceLock<ProtectionDomain>,
    task: OnceLock<AbortHandle>,
    /// Whether the connection was ended by order.
    ended: AtomicBool,
}

impl Record {
    /// Returns where the connection comes from.
    pub(crate) const fn origins(&self) -> Origins {
        self.origins
    }

    /// Returns the number of calls received, as published.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns whether [`Registry::disconnect`] ended the connection.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Publishes the counters of the connection.
    pub(crate) fn publish(&self, now: Published) {
        let Published { calls, in_flight, received, sent, credits, version } = now;
        self.calls.store(calls, Ordering::Relaxed);
        self.in_flight.store(u64::try_from(in_flight).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.received.store(received, Ordering::Relaxed);
        self.sent.store(sent, Ordering::Relaxed);
        self.credits.store(credits, Ordering::Relaxed);
        self.version.store(version, Ordering::Relaxed);
    }

    /// Notes the user at the other end, unless one is known.
    pub(crate) fn known_as(&self, user: &str) {
        // The name is text of a peer, and is shown to an administrator.
        self.user.get_or_init(|| Shown(user.as_bytes()).to_string());
    }

    /// Notes the share of the address, and the memory of the connection's Receives.
    pub(crate) fn holds(&self, share: ProtectionDomain, receives: Option<ProtectionDomain>) {
        self.share.get_or_init(|| share);
        if let Some(receives) = receives {
            self.receives.get_or_init(|| receives);
        }
    }

    /// Notes the task of the connection, by which the connection can be ended.
    pub(crate) fn runs_as(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    fn get(&self) -> ServedConnection {
        let Origins { peer, transport, provider, owner } = self.origins;
        let version = self.version.load(Ordering::Relaxed);
        let in_use =
            |domain: &OnceLock<ProtectionDomain>| domain.get().map_or(0, |domain| domain.usage().in_use);
        ServedConnection {
            id: self.id,
            peer,
            transport,
            provider,
            version: (version > 0).then_some(version),
            since: self.since,
            owner,
            user: self.user.get().cloned(),
            calls: self.calls.load(Ordering::Relaxed),
            calls_in_flight: self.in_flight.load(Ordering::Relaxed),
            bytes_received: self.received.load(Ordering::Relaxed),
            bytes_sent: self.sent.load(Ordering::Relaxed),
            credits: self.credits.load(Ordering::Relaxed),
            receive_memory: in_use(&self.receives),
            address_memory: in_use(&self.share),
        }
    }
}

/// The open connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last connection.
    last: u64,
    open: BTreeMap<u64, Arc<Record>>,
    /// Counters of connections that have ended, over RDMA and TCP.
    ended: [TransportStats; 2],
}

/// Returns the place of a transport in arrays of both.
const fn place(transport: TransportKind) -> usize {
    if matches!(transport, TransportKind::Tcp) { 1 } else { 0 }
}

impl State {
    fn count(sums: &mut [TransportStats; 2], record: &Record) {
        if let Some(sum) = sums.get_mut(place(record.origins.transport)) {
            sum.calls += record.calls.load(Ordering::Relaxed);
            sum.bytes_received += record.received.load(Ordering::Relaxed);
            sum.bytes_sent += record.sent.load(Ordering::Relaxed);
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values stay consistent when a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, which stays until the entry is dropped.
    pub(crate) fn open(self: &Arc<Self>, origins: Origins) -> Registered {
        let mut state = self.lock();
        state.last += 1;
        let record = Arc::new(Record {
            id: state.last,
            origins,
            since: SystemTime::now(),
            calls: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            credits: AtomicU32::new(0),
            version: AtomicU32::new(0),
            user: OnceLock::new(),
            receives: OnceLock::new(),
            share: OnceLock::new(),
            task: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        state.open.insert(record.id, Arc::clone(&record));
        Registered { registry: Arc::clone(self), record }
    }

    /// Returns all open connections, oldest first.
    pub(crate) fn list(&self) -> Vec<ServedConnection> {
        let open: Vec<_> = self.lock().open.values().cloned().collect();
        open.iter().map(|record| record.get()).collect()
    }

    /// Returns the counters over RDMA and over TCP, and the sum of all credits granted.
    pub(crate) fn totals(&self) -> ([TransportStats; 2], u64) {
        let (mut sums, open) = {
            let state = self.lock();
            (state.ended, state.open.values().cloned().collect::<Vec<_>>())
        };
        let mut credits = 0;
        for record in &open {
            State::count(&mut sums, record);
            credits += u64::from(record.credits.load(Ordering::Relaxed));
            if let Some(sum) = sums.get_mut(place(record.origins.transport)) {
                sum.connections += 1;
            }
        }
        (sums, credits)
    }

    /// Ends a connection; returns its client's address, or `None` if no connection has this number.
    pub(crate) fn disconnect(&self, id: u64) -> Option<Option<SocketAddr>> {
        let record = self.lock().open.get(&id).cloned()?;
        let task = record.task.get()?;
        // The task sees it when it is dropped, which follows the abort.
        record.ended.store(true, Ordering::Relaxed);
        task.abort();
        Some(record.origins.peer)
    }
}

/// The entry of an open connection.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<Registry>,
    record: Arc<Record>,
}

impl Registered {
    /// Returns the entry.
    pub(crate) const fn record(&self) -> &Arc<Record> {
        &self.record
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        if state.open.remove(&self.record.id).is_some() {
            State::count(&mut state.ended, &self.record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(transport: TransportKind) -> Origins {
        Origins { peer: Some(([192, 0, 2, 1], 9).into()), transport, provider: "test", owner: None }
    }

    fn published(calls: u64) -> Published {
        Published { calls, in_flight: 1, received: calls * 100, sent: calls * 10, credits: 8, version: 1 }
    }

    #[test]
    fn counters_stay_when_a_connection_ends() {
        let registry = Arc::new(Registry::default());
        let first = registry.open(origins(TransportKind::Rdma));
        let second = registry.open(origins(TransportKind::Rdma));
        let third = registry.open(origins(TransportKind::Tcp));
        first.record().publish(published(3));
        second.record().publish(published(5));
        third.record().publish(Published { calls: 7, ..Published::default() });
        let list = registry.list();
        assert_eq!(list.iter().map(|one| (one.id, one.calls)).collect::<Vec<_>>(), [(1, 3), (2, 5), (3, 7)]);
        assert_eq!((list[0].version, list[2].version, list[0].user.as_deref()), (Some(1), None, None));
        let before = registry.totals();
        let calls = |([rdma, tcp], _): ([TransportStats; 2], u64)| (rdma.calls, tcp.calls);
        assert_eq!((calls(before), before.1), ((8, 7), 16));
        drop((first, third));
        let after = registry.totals();
        assert_eq!((calls(after), after.1), ((8, 7), 8));
        assert_eq!((after.0[0].connections, after.0[1].connections), (1, 0));
        assert_eq!((after.0[0].bytes_received, after.0[0].bytes_sent), (800, 80));
        assert_eq!(registry.list().len(), 1);
        assert_eq!(registry.open(origins(TransportKind::Tcp)).record().id, 4, "no number comes twice");
    }

    #[test]
    fn the_first_user_of_a_connection_is_told() {
        let registry = Arc::new(Registry::default());
        let open = registry.open(origins(TransportKind::Tcp));
        open.record().known_as("first@EXAMPLE.ORG");
        open.record().known_as("second@EXAMPLE.ORG");
        assert_eq!(registry.list()[0].user.as_deref(), Some("first@EXAMPLE.ORG"));
    }

    #[tokio::test]
    async fn a_connection_that_is_ended_loses_its_task() {
        let registry = Arc::new(Registry::default());
        let open = registry.open(origins(TransportKind::Tcp));
        let record = Arc::clone(open.record());
        let task = tokio::spawn(async move {
            let _open = open;
            std::future::pending::<()>().await;
        });
        assert_eq!(registry.disconnect(record.id), None, "its task is not known yet");
        record.runs_as(task.abort_handle());
        assert!(!record.is_ended());
        assert_eq!(registry.disconnect(record.id), Some(record.origins.peer));
        assert!(task.await.unwrap_err().is_cancelled() && record.is_ended());
        assert_eq!((registry.list().len(), registry.disconnect(record.id)), (0, None));
    }
}
