//! [`Status`]: the one description of a running server. The page of metrics, the documents of `stat` and `clients`, and the
//! screen of `top` show this value and nothing else.
//!
//! *Errors.* Nothing here fails. The counters in a status are not read at one instant.

pub(super) mod collect;
pub(super) mod metrics;
pub(in crate::commands) mod order;

use std::collections::BTreeMap;
use std::time::Duration;

use rpcrdma::Latencies;
use serde::{Deserialize, Serialize};

pub(super) use self::collect::Sources;

/// A running server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) process: Process,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) exports: Vec<ExportStatus>,
    pub(crate) transports: Transports,
    /// Procedures that were called.
    pub(crate) procedures: Vec<ProcedureStatus>,
    pub(crate) forms: Forms,
    pub(crate) data: Data,
    pub(crate) credits: CreditStatus,
    pub(crate) memory: MemoryStatus,
    pub(crate) reply_cache: CacheStatus,
    pub(crate) connections: ConnectionsStatus,
    pub(crate) io: Vec<LaneStatus>,
    pub(crate) link: LinkStatus,
}

/// The process of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Start, by RFC 3339 in UTC.
    pub(crate) since: String,
    pub(crate) uptime_seconds: f64,
}

/// An address on which a server listens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ListenerStatus {
    pub(crate) address: String,
    /// `iwarp`, `verbs` or `tcp`.
    pub(crate) provider: String,
}

/// An export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExportStatus {
    pub(crate) name: String,
    /// The directory, where the server knows it.
    pub(crate) directory: Option<String>,
    /// Whether no client may write.
    pub(crate) read_only: bool,
    /// Whether clients may write: `ro`, `rw` or, if some may, `mixed`.
    pub(crate) access: String,
    /// Flavours of security that calls of any client may have.
    pub(crate) security: Vec<String>,
    /// Remembered mounts in the export.
    pub(crate) mounts: usize,
}

/// Calls and bytes by transport, with those of connections that have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Transports {
    pub(crate) rdma: TransportStatus,
    pub(crate) tcp: TransportStatus,
    /// Calls that the server made to its clients.
    pub(crate) reverse_calls: u64,
}

/// Calls and bytes of one transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TransportStatus {
    pub(crate) connections: usize,
    pub(crate) calls: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

/// A procedure that was called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcedureStatus {
    /// Name of the program, or its number.
    pub(crate) program: String,
    pub(crate) version: u32,
    pub(crate) procedure: String,
    pub(crate) calls: u64,
    /// Calls that failed, by the status in their reply.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) latency: LatencyStatus,
}

/// Times from the arrival of a call to its reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LatencyStatus {
    pub(crate) sum_seconds: f64,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p90_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
    /// Calls by time: the bound of each bucket is 2^n µs, with n from 0; the last bucket has no bound.
    pub(crate) buckets: Vec<u64>,
}

impl From<&Latencies> for LatencyStatus {
    fn from(latencies: &Latencies) -> Self {
        let quantile = |part| latencies.quantile(part).map(bounded);
        Self {
            sum_seconds: latencies.sum().as_secs_f64(),
            p50_seconds: quantile(0.5),
            p90_seconds: quantile(0.9),
            p99_seconds: quantile(0.99),
            buckets: latencies.buckets().to_vec(),
        }
    }
}

impl LatencyStatus {
    /// Returns the times as counters.
    pub(crate) fn latencies(&self) -> Latencies {
        let mut counts = self.buckets.iter().copied();
        let buckets = std::array::from_fn(|_| counts.next().unwrap_or(0));
        let sum = Duration::try_from_secs_f64(self.sum_seconds).unwrap_or_default();
        Latencies::new(buckets, sum)
    }
}

/// Returns a quantile in seconds. Beyond all bounds it is twice the greatest one.
fn bounded(time: Duration) -> f64 {
    let greatest = (0..Latencies::BUCKETS).filter_map(Latencies::bound).max().unwrap_or_default();
    time.min(greatest * 2).as_secs_f64()
}

/// Messages by RDMA, by form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Forms {
    pub(crate) calls: MessageStatus,
    pub(crate) replies: MessageStatus,
}

/// Messages of one direction: numbers by form, and bytes by the operation that moved them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MessageStatus {
    pub(crate) inline: u64,
    pub(crate) padded: u64,
    pub(crate) reduced: u64,
    pub(crate) continued: u64,
    pub(crate) placed: u64,
    pub(crate) long: u64,
    pub(crate) errors: u64,
    pub(crate) send_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) reply_chunk_bytes: u64,
}

impl MessageStatus {
    /// Returns the numbers by the name of the form.
    pub(crate) const fn forms(&self) -> [(&'static str, u64); 7] {
        [
            ("inline", self.inline),
            ("padded", self.padded),
            ("reduced", self.reduced),
            ("continued", self.continued),
            ("placed", self.placed),
            ("long", self.long),
            ("errors", self.errors),
        ]
    }

    /// Returns the bytes by the name of the operation.
    pub(crate) const fn bytes(&self) -> [(&'static str, u64); 4] {
        [
            ("send", self.send_bytes),
            ("read", self.read_bytes),
            ("write", self.write_bytes),
            ("reply_chunk", self.reply_chunk_bytes),
        ]
    }
}

/// Content of files that calls moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Data {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// Credits of all RDMA connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CreditStatus {
    pub(crate) granted: u64,
}

/// Memory for messages and payloads, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MemoryStatus {
    pub(crate) in_use: usize,
    pub(crate) limit: usize,
    /// Payload bytes that were copied.
    pub(crate) payload_bytes_copied: u64,
    /// Other bytes of messages that were copied.
    pub(crate) inline_bytes_copied: u64,
}

/// The reply cache. Each event is a number since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CacheStatus {
    pub(crate) bytes: usize,
    pub(crate) executed: u64,
    pub(crate) waited: u64,
    pub(crate) replayed: u64,
    pub(crate) refused: u64,
    pub(crate) abandoned: u64,
    pub(crate) proven: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    pub(crate) too_long: u64,
}

impl CacheStatus {
    /// Returns the events by name.
    pub(crate) const fn events(&self) -> [(&'static str, u64); 9] {
        [
            ("executed", self.executed),
            ("waited", self.waited),
            ("replayed", self.replayed),
            ("refused", self.refused),
            ("abandoned", self.abandoned),
            ("proven", self.proven),
            ("expired", self.expired),
            ("evicted", self.evicted),
            ("too_long", self.too_long),
        ]
    }
}

/// The connections of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectionsStatus {
    /// Connections now, with those being set up, and those that have ended while calls of theirs are carried out.
    pub(crate) now: usize,
    pub(crate) half_open: usize,
    pub(crate) accepted: u64,
    /// RDMA connections that agreed by CONF_RDMA.
    pub(crate) agreed: u64,
    pub(crate) refused: RefusedStatus,
}

/// Connections refused, by reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RefusedStatus {
    pub(crate) connections: u64,
    pub(crate) per_address: u64,
    pub(crate) half_open: u64,
    pub(crate) half_open_per_address: u64,
    pub(crate) no_owner: u64,
}

impl RefusedStatus {
    /// Returns the numbers by the name of the reason.
    pub(crate) const fn reasons(&self) -> [(&'static str, u64); 5] {
        [
            ("connections", self.connections),
            ("per_address", self.per_address),
            ("half_open", self.half_open),
            ("half_open_per_address", self.half_open_per_address),
            ("no_owner", self.no_owner),
        ]
    }
}

/// Threads that call the file system of an export for one kind of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LaneStatus {
    pub(crate) export: String,
    /// `look`, `read`, `change` or `write`.
    pub(crate) work: String,
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) limit: usize,
    /// Jobs that have not begun.
    pub(crate) waiting: usize,
}

/// Counters of all RDMA links together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LinkStatus {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) segments_sent: u64,
    pub(crate) segments_received: u64,
    pub(crate) send_calls: u64,
    pub(crate) receive_calls: u64,
    pub(crate) windows_bound: u64,
    pub(crate) local_invalidations: u64,
    pub(crate) remote_invalidations: u64,
    pub(crate) registrations: u64,
    pub(crate) completions: u64,
}

/// Connections of a server, or some of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Clients {
    /// All open connections; `clients` may have fewer.
    pub(crate) total: usize,
    pub(crate) clients: Vec<ClientStatus>,
}

/// An open connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClientStatus {
    pub(crate) id: u64,
    pub(crate) address: Option<String>,
    /// `iwarp`, `verbs` or `tcp`.
    pub(crate) provider: String,
    /// `One`, `Two` or `TCP`; `null` until the client has chosen.
    pub(crate) version: Option<String>,
    /// Time of the accept, by RFC 3339 in UTC.
    pub(crate) since: String,
    pub(crate) calls: u64,
    pub(crate) calls_in_flight: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) credits: u32,
    pub(crate) receive_memory_bytes: usize,
    pub(crate) address_memory_bytes: usize,
    /// User of the server's machine at the other end, if known.
    pub(crate) owner: Option<u32>,
    /// Principal of Kerberos, or name in the certificate.
    pub(crate) user: Option<String>,
    /// Rates since the last request on the same session; `null` in the first.
    pub(crate) calls_per_second: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
}

impl ClientStatus {
    /// Returns the bytes for Receives of the connection, and those that its address holds beside.
    pub(crate) const fn memory(&self) -> usize {
        self.receive_memory_bytes.saturating_add(self.address_memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_come_back_from_their_document() {
        let mut latencies = Latencies::default();
        for micros in [1, 3, 900] {
            latencies.add(Duration::from_micros(micros));
        }
        let status = LatencyStatus::from(&latencies);
        assert_eq!((status.p50_seconds, status.p99_seconds), (Some(4e-6), Some(0.001_024)));
        assert_eq!(status.latencies(), latencies);
        latencies.add(Duration::from_secs(3600));
        let late = LatencyStatus::from(&latencies).p99_seconds.unwrap();
        assert!((late - 33.554_432).abs() < 1e-9, "{late}");
        assert_eq!(LatencyStatus::from(&Latencies::default()).p50_seconds, None);
    }

    #[test]
    fn a_status_of_an_older_server_can_be_read() {
        let status: Status = serde_json::from_str(r#"{"process":{"pid":7},"unknown":1}"#).unwrap();
        assert_eq!((status.process.pid, status.memory.limit), (7, 0));
    }
}
