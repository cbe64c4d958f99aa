//! Makes a [`Status`] of what the monitors of a server say.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rpcrdma::{
    Messages, ProcedureStats, ServedConnection, ServerMonitor, ServerStats, TransportKind, TransportStats,
};
use rpcrdma_nfs::extents::EXTENTS_PROGRAM;
use rpcrdma_nfs::mount::{MOUNT_PROGRAM, MountProcedure};
use rpcrdma_nfs::server::{ExportAccess, NfsServer};
use rpcrdma_nfs::wire::{NFS_PROGRAM, Status as NfsStatus};
use rpcrdma_oncrpc::rpcbind;
use rpcrdma_verbs::Counters;

use super::order::Facts;
use super::{
    CacheStatus, ClientStatus, Clients, ConnectionsStatus, CreditStatus, Data, ExportStatus, Forms,
    LaneStatus, LatencyStatus, LinkStatus, ListenerStatus, MemoryStatus, MessageStatus, ProcedureStatus,
    Process, RefusedStatus, Status, TransportStatus, Transports,
};
use crate::commands::entry;

/// The monitors of a server, and what is known from its start.
#[derive(Clone)]
pub(in crate::commands::serve) struct Sources(Arc<Inner>);

struct Inner {
    monitor: ServerMonitor,
    nfs: NfsServer,
    listeners: Vec<ListenerStatus>,
    since: SystemTime,
    started: Instant,
}

/// Calls and bytes of the connections when a session last asked, for rates.
pub(in crate::commands::serve) struct Before {
    at: Instant,
    by_id: HashMap<u64, (u64, u64)>,
}

impl Sources {
    pub(in crate::commands::serve) fn new(
        monitor: ServerMonitor,
        nfs: NfsServer,
        listeners: impl Iterator<Item = (SocketAddr, &'static str)>,
    ) -> Self {
        let listeners = listeners.map(|(address, provider)| ListenerStatus {
            address: address.to_string(),
            provider: provider.to_owned(),
        });
        Self(Arc::new(Inner {
            monitor,
            nfs,
            listeners: listeners.collect(),
            since: SystemTime::now(),
            started: Instant::now(),
        }))
    }

    /// Returns the state of the server now.
    pub(in crate::commands::serve) fn status(&self) -> Status {
        let Inner { monitor, nfs, listeners, since, started, .. } = &*self.0;
        let stats = monitor.stats();
        let counters = nfs.counters();
        Status {
            process: Process {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                since: time_text(*since),
                uptime_seconds: started.elapsed().as_secs_f64(),
            },
            listeners: listeners.clone(),
            exports: self.exports(),
            transports: Transports {
                rdma: transport(&stats.rdma),
                tcp: transport(&stats.tcp),
                reverse_calls: stats.reverse_calls,
            },
            procedures: self.procedures(),
            forms: Forms { calls: messages(&stats.calls_received), replies: messages(&stats.replies_sent) },
            data: Data { bytes_read: counters.bytes_read(), bytes_written: counters.bytes_written() },
            credits: CreditStatus { granted: stats.credits_granted },
            memory: MemoryStatus {
                in_use: stats.memory_in_use,
                limit: stats.memory_limit,
                payload_bytes_copied: stats.payload_bytes_copied,
                inline_bytes_copied: stats.inline_bytes_copied,
            },
            reply_cache: reply_cache(&stats),
            connections: connections(&stats),
            io: self.lanes(),
            link: link(&stats.link),
        }
    }

    fn exports(&self) -> Vec<ExportStatus> {
        let exports = self.0.nfs.exports().into_iter().map(|export| ExportStatus {
            directory: export.origin,
            name: export.name,
            read_only: export.access == ExportAccess::ReadOnly,
            access: export.access.name().to_owned(),
            security: export.security.iter().map(|flavor| flavor.name().to_owned()).collect(),
            mounts: export.mounts.len(),
        });
        exports.collect()
    }

    fn lanes(&self) -> Vec<LaneStatus> {
        let lanes = self.0.nfs.lanes().into_iter().map(|lane| LaneStatus {
            export: lane.export,
            work: lane.work.to_owned(),
            threads: lane.threads,
            idle: lane.idle,
            limit: lane.limit,
            waiting: lane.waiting,
        });
        lanes.collect()
    }

    /// Returns the procedures that were called. RPC knows why a call was not carried out; the status of an operation comes
    /// from its program.
    fn procedures(&self) -> Vec<ProcedureStatus> {
        let counters = self.0.nfs.counters();
        let mut of_programs: BTreeMap<(u32, u32), Vec<(&str, u64)>> = BTreeMap::new();
        for count in counters.procedures() {
            let errors = count.by_status.iter().map(|(status, count)| (status_name(*status), *count));
            of_programs.insert((NFS_PROGRAM, count.procedure.number()), errors.collect());
        }
        let mounts = counters.refused_mounts();
        let mounts = mounts.iter().map(|(status, count)| (status.name(), *count)).collect();
        of_programs.insert((MOUNT_PROGRAM, MountProcedure::Mnt.number()), mounts);
        let monitored = self.0.monitor.procedures();
        let status = monitored.iter().map(|stats| {
            let ProcedureStats { program, version, procedure, name, latencies, failed, .. } = stats;
            let own = procedure.and_then(|procedure| of_programs.get(&(*program, procedure)));
            let of_rpc = failed.iter().map(|(failed, count)| (failed.name(), *count));
            ProcedureStatus {
                program: program_name(*program),
                version: *version,
                procedure: (*name).to_owned(),
                calls: latencies.count(),
                errors: own
                    .into_iter()
                    .flatten()
                    .copied()
                    .chain(of_rpc)
                    .map(|(name, count)| (name.to_owned(), count))
                    .collect(),
                latency: LatencyStatus::from(latencies),
            }
        });
        status.collect()
    }

    /// Returns open connections, with their rates since `before`, which is renewed: those that `choose` leaves of all, which
    /// come oldest first. Only these become text.
    pub(in crate::commands::serve) fn clients(
        &self,
        before: &mut Option<Before>,
        choose: impl FnOnce(&mut Vec<Seen>),
    ) -> Clients {
        let now = Instant::now();
        let mut by_id = HashMap::new();
        let seen = self.0.monitor.connections().into_iter().map(|connection| {
            by_id.insert(connection.id, (connection.calls, bytes(&connection)));
            let rates = before.as_ref().and_then(|before| before.rates(&connection, now));
            Seen { connection, rates }
        });
        let mut seen: Vec<Seen> = seen.collect();
        let total = seen.len();
        *before = Some(Before { at: now, by_id });
        choose(&mut seen);
        Clients { total, clients: seen.iter().map(client).collect() }
    }

    /// Ends a connection; returns whether there was one.
    pub(in crate::commands::serve) fn disconnect(&self, id: u64) -> bool {
        self.0.monitor.disconnect(id)
    }
}

fn bytes(connection: &ServedConnection) -> u64 {
    connection.bytes_received.saturating_add(connection.bytes_sent)
}

/// A connection with its calls and bytes a second.
pub(in crate::commands::serve) struct Seen {
    connection: ServedConnection,
    rates: Option<(f64, f64)>,
}

impl Seen {
    /// Returns the facts by which connections are sorted.
    pub(in crate::commands::serve) const fn facts(&self) -> Facts {
        let ServedConnection {
            peer, calls, calls_in_flight, receive_memory, address_memory, credits, ..
        } = self.connection;
        let memory = receive_memory.saturating_add(address_memory);
        Facts { address: peer, calls, calls_in_flight, memory, credits, rates: self.rates }
    }
}

impl Before {
    /// Returns calls and bytes a second of a connection since this look.
    fn rates(&self, one: &ServedConnection, now: Instant) -> Option<(f64, f64)> {
        let (calls, moved) = self.by_id.get(&one.id).copied().unwrap_or_default();
        let seconds = now.duration_since(self.at).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (seconds > 0.0).then(|| (rate(one.calls, calls), rate(bytes(one), moved)))
    }
}

fn client(seen: &Seen) -> ClientStatus {
    let Seen { connection: one, rates } = seen;
    let version = match (one.transport, one.version) {
        (TransportKind::Tcp, _) => Some("TCP"),
        (_, Some(1)) => Some("One"),
        (_, Some(2)) => Some("Two"),
        _ => None,
    };
    ClientStatus {
        id: one.id,
        address: one.peer.map(|peer| peer.to_string()),
        provider: one.provider.to_owned(),
        version: version.map(ToOwned::to_owned),
        since: time_text(one.since),
        calls: one.calls,
        calls_in_flight: one.calls_in_flight,
        bytes_received: one.bytes_received,
        bytes_sent: one.bytes_sent,
        credits: one.credits,
        receive_memory_bytes: one.receive_memory,
        address_memory_bytes: one.address_memory,
        owner: one.owner,
        user: one.user.clone(),
        calls_per_second: rates.map(|(calls, _)| calls),
        bytes_per_second: rates.map(|(_, bytes)| bytes),
    }
}

fn reply_cache(stats: &ServerStats) -> CacheStatus {
    let cache = stats.reply_cache;
    CacheStatus {
        bytes: stats.reply_cache_memory,
        executed: cache.executed,
        waited: cache.waited,
        replayed: cache.replayed,
        refused: cache.refused,
        abandoned: cache.abandoned,
        proven: cache.proven,
        expired: cache.expired,
        evicted: cache.evicted,
        too_long: cache.too_long,
    }
}

fn connections(stats: &ServerStats) -> ConnectionsStatus {
    let refused = stats.refused_by;
    ConnectionsStatus {
        now: stats.connections,
        half_open: stats.half_open,
        accepted: stats.accepted,
        agreed: stats.agreed,
        refused: RefusedStatus {
            connections: refused.connections,
            per_address: refused.per_address,
            half_open: refused.half_open,
            half_open_per_address: refused.half_open_per_address,
            no_owner: refused.no_owner,
        },
    }
}

fn link(link: &Counters) -> LinkStatus {
    LinkStatus {
        bytes_sent: link.link_bytes_sent,
        bytes_received: link.link_bytes_received,
        segments_sent: link.segments_sent,
        segments_received: link.segments_received,
        send_calls: link.send_calls,
        receive_calls: link.receive_calls,
        windows_bound: link.windows_bound,
        local_invalidations: link.local_invalidations,
        remote_invalidations: link.remote_invalidations,
        registrations: link.registrations,
        completions: link.completions,
    }
}

fn transport(stats: &TransportStats) -> TransportStatus {
    TransportStatus {
        connections: stats.connections,
        calls: stats.calls,
        bytes_received: stats.bytes_received,
        bytes_sent: stats.bytes_sent,
    }
}

fn messages(messages: &Messages) -> MessageStatus {
    MessageStatus {
        inline: messages.inline,
        padded: messages.padded,
        reduced: messages.reduced,
        continued: messages.continued,
        placed: messages.placed,
        long: messages.long,
        errors: messages.errors,
        send_bytes: messages.send_bytes,
        read_bytes: messages.read_bytes,
        write_bytes: messages.write_bytes,
        reply_chunk_bytes: messages.reply_chunk_bytes,
    }
}

/// Returns the name of a program that this command serves, or the number of another one.
fn program_name(number: u32) -> String {
    let name = match number {
        0 => "other",
        NFS_PROGRAM => "nfs",
        MOUNT_PROGRAM => "mount",
        EXTENTS_PROGRAM => "extents",
        rpcbind::PROGRAM => "rpcbind",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn status_name(status: NfsStatus) -> &'static str {
    match status {
        NfsStatus::Unknown(_) => "OTHER",
        known => known.name(),
    }
}

/// Returns a time by RFC 3339 in UTC, to the second.
fn time_text(time: SystemTime) -> String {
    entry::time(time.into())
}
