//! Counters of served calls, by procedure: how many, how they failed, and how long they took.
//!
//! The time of a call begins with the turn in which its message arrived. It ends when its reply is handed to the transport.
//! A connection notes the answers of a turn in its [`Meter`], and one reading of the clock counts for all.
//!
//! Connections count in several [shards](CallCounts), so that threads rarely write to one cache line. Each call costs two
//! additions without order, no lock and no memory.
//!
//! *Buffers.* The table has one entry for each procedure, and is made with the server.
//!
//! *Errors.* Nothing here fails. A set of counters is not read at one instant.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rpcrdma_oncrpc::Outcome;
use rpcrdma_proto::Binding;
use rpcrdma_verbs::Rest;
use rpcrdma_xdr::{Decoder, Stream};
use tokio::time::Instant;

/// Number of the first bounds: from 1 µs to 2^24 µs, about 17 s.
const BOUNDS: usize = 25;
/// Procedures with numbers below this one have counters of their own. Others of a program count together.
const PROCEDURES: u32 = 64;
/// Most shards of the counters.
const SHARDS: usize = 8;

/// Times of calls, in buckets whose bounds are powers of two.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::Latencies;
///
/// let mut latencies = Latencies::default();
/// latencies.add(Duration::from_micros(3));
/// assert_eq!(latencies.count(), 1);
/// // The bound of the bucket: 4 µs.
/// assert_eq!(latencies.quantile(0.5), Some(Duration::from_micros(4)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latencies {
    buckets: [u64; Self::BUCKETS],
    sum: Duration,
}

impl Latencies {
    /// Number of buckets.
    pub const BUCKETS: usize = BOUNDS + 1;

    /// Returns times from their counts by bucket, and their sum.
    #[must_use]
    pub const fn new(buckets: [u64; Self::BUCKETS], sum: Duration) -> Self {
        Self { buckets, sum }
    }

    /// Returns the upper bound of a bucket, which belongs to it: 2^`bucket` µs. The last bucket has none, and others do not
    /// exist.
    #[must_use]
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket < BOUNDS).then(|| Duration::from_micros(1 << bucket))
    }

    /// Returns the number of calls in each bucket.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; Self::BUCKETS] {
        &self.buckets
    }

    /// Returns the sum of all times.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts one call.
    pub fn add(&mut self, time: Duration) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(time)) {
            *bucket = bucket.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(time);
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut both = *self;
        for (mine, theirs) in both.buckets.iter_mut().zip(other.buckets) {
            *mine = mine.saturating_add(theirs);
        }
        both.sum = both.sum.saturating_add(other.sum);
        both
    }

    /// Returns the difference from `earlier`, a previous state of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut between = *self;
        for (mine, theirs) in between.buckets.iter_mut().zip(earlier.buckets) {
            *mine = mine.saturating_sub(theirs);
        }
        between.sum = between.sum.saturating_sub(earlier.sum);
        between
    }

    /// Returns a time that at least this part of the calls did not exceed: the bound of a bucket, up to twice the true value.
    /// The part is from 0 to 1. `None` without calls. Times beyond all bounds count as [`Duration::MAX`].
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let mut seen: u64 = 0;
        let bucket = self.buckets.iter().position(|bucket| {
            // A server that was asked may have said anything.
            seen = seen.saturating_add(*bucket);
            // Counts lose nothing here below 2^53.
            seen > 0 && seen as f64 >= part * count as f64
        });
        Some(bucket.and_then(Self::bound).unwrap_or(Duration::MAX))
    }
}

/// Returns the number of the bucket of a time.
fn bucket_of(time: Duration) -> usize {
    let micros = time.as_nanos().div_ceil(1000);
    // The least exponent of a power of two that is not smaller.
    let exponent = micros.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1);
    usize::try_from(exponent).unwrap_or(BOUNDS).min(BOUNDS)
}

/// The reason why a served call has no results, as the RPC reply tells it (RFC 5531 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failed {
    /// PROG_UNAVAIL: the program is not served.
    ProgramUnavailable,
    /// PROG_MISMATCH: the program is not served in this version.
    ProgramMismatch,
    /// PROC_UNAVAIL: the program has no such procedure.
    ProcedureUnavailable,
    /// GARBAGE_ARGS: the arguments could not be decoded.
    GarbageArguments,
    /// SYSTEM_ERR: the server could not carry the call out, or shed it.
    SystemError,
    /// MSG_DENIED: the RPC version or the credential was refused.
    Denied,
    /// ERR_CHUNK: an item was in a chunk that must not be (RFC 8166 §4.5.2).
    Chunks,
    /// No reply: the call was malformed, or discarded.
    NoReply,
}

impl Failed {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::ProgramUnavailable,
        Self::ProgramMismatch,
        Self::ProcedureUnavailable,
        Self::GarbageArguments,
        Self::SystemError,
        Self::Denied,
        Self::Chunks,
        Self::NoReply,
    ];

    /// Returns the name of the reason on the wire, such as `SYSTEM_ERR`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProgramUnavailable => "PROG_UNAVAIL",
            Self::ProgramMismatch => "PROG_MISMATCH",
            Self::ProcedureUnavailable => "PROC_UNAVAIL",
            Self::GarbageArguments => "GARBAGE_ARGS",
            Self::SystemError => "SYSTEM_ERR",
            Self::Denied => "MSG_DENIED",
            Self::Chunks => "ERR_CHUNK",
            Self::NoReply => "NO_REPLY",
        }
    }

    /// Returns the reason of an outcome; `None` for results.
    fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Reply(reply) => Self::of_reply(reply),
            Outcome::ChunkViolation(_) => Some(Self::Chunks),
            Outcome::Drop => Some(Self::NoReply),
        }
    }

    /// Returns the reason in the header of a reply, which is in the reply's first piece (RFC 5531 §9).
    fn of_reply(reply: &Stream) -> Option<Self> {
        let header = reply.pieces().first()?.data();
        let word = |at: usize| header.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        // XID, message type, MSG_ACCEPTED, flavour and length of the verifier.
        if word(8)? != 0 {
            return Some(Self::Denied);
        }
        let verifier = usize::try_from(word(16)?).ok()?.checked_next_multiple_of(4)?;
        match word(verifier.checked_add(20)?)? {
            0 => None,
            1 => Some(Self::ProgramUnavailable),
            2 => Some(Self::ProgramMismatch),
            3 => Some(Self::ProcedureUnavailable),
            4 => Some(Self::GarbageArguments),
            _ => Some(Self::SystemError),
        }
    }
}

/// The counters of one procedure of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcedureStats {
    /// Number of the program; 0 for all programs that are not served.
    pub program: u32,
    /// The lowest version for which these counters are; 0 for programs that are not served.
    pub version: u32,
    /// Number of the procedure; `None` for all procedures without counters of their own.
    pub procedure: Option<u32>,
    /// Name of the procedure; `OTHER` where `procedure` is `None`.
    pub name: &'static str,
    /// Times of all calls that have ended, also of those that failed. Their count is the number of calls.
    pub latencies: Latencies,
    /// Calls without results, by reason; reasons that never occurred are left out.
    pub failed: Vec<(Failed, u64)>,
}

/// Name of the procedures without counters of their own.
const OTHER: &str = "OTHER";

/// Counters of one procedure in one shard.
#[derive(Debug)]
struct Entry {
    buckets: [AtomicU64; Latencies::BUCKETS],
    nanoseconds: AtomicU64,
    failed: [AtomicU64; Failed::ALL.len()],
}

impl Entry {
    fn new() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            nanoseconds: AtomicU64::new(0),
            failed: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn add(&self, time: Duration, failed: Option<Failed>) {
        if let Some(bucket) = self.buckets.get(bucket_of(time)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        let failed = failed.and_then(|failed| Failed::ALL.iter().position(|one| *one == failed));
        if let Some(count) = failed.and_then(|failed| self.failed.get(failed)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn latencies(&self) -> Latencies {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        Latencies::new(buckets, Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)))
    }
}

/// A served program: where the entries of its procedures are.
#[derive(Debug)]
struct ServedProgram {
    number: u32,
    versions: std::ops::RangeInclusive<u32>,
    /// Entry of each procedure by number.
    procedures: Vec<usize>,
    /// Entry of all others.
    other: usize,
}

/// The procedure that an entry counts.
#[derive(Debug)]
struct Counted {
    program: u32,
    version: u32,
    procedure: Option<u32>,
    name: &'static str,
}

/// The counters of all procedures of a server.
#[derive(Debug)]
pub(crate) struct CallCounts {
    programs: Vec<ServedProgram>,
    /// The first one is for programs that are not served.
    counted: Vec<Counted>,
    shards: Vec<Box<[Entry]>>,
    /// Number of meters so far.
    meters: AtomicUsize,
}

impl CallCounts {
    /// Creates counters for these programs.
    pub(crate) fn new(served: &[Arc<dyn Binding>]) -> Self {
        let mut counted = vec![Counted { program: 0, version: 0, procedure: None, name: OTHER }];
        let programs = served.iter().map(|program| ServedProgram::new(&**program, &mut counted)).collect();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shard = || counted.iter().map(|_| Entry::new()).collect();
        let shards = (0..processors.min(SHARDS)).map(|_| shard()).collect();
        Self { programs, counted, shards, meters: AtomicUsize::new(0) }
    }

    /// Returns the number of the entry for a message, which stands at its XID (RFC 5531 §9).
    fn entry_of(&self, message: &Decoder) -> usize {
        let words = match message.peek_inline::<24>() {
            Some(header) => {
                let mut words = header.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
                [(); 6].map(|()| words.next().unwrap_or_default())
            }
            // The header lies in several slices, or is short.
            None => {
                let mut header = message.clone();
                [(); 6].map(|()| header.u32().unwrap_or_default())
            }
        };
        let [_xid, _message_type, _rpc_version, program, version, procedure] = words;
        let served = self
            .programs
            .iter()
            .find(|served| served.number == program && served.versions.contains(&version));
        served.map_or(0, |served| {
            let own = usize::try_from(procedure).ok().and_then(|number| served.procedures.get(number));
            own.copied().unwrap_or(served.other)
        })
    }

    /// Returns the counters of all procedures that were called.
    pub(crate) fn get(&self) -> Vec<ProcedureStats> {
        let counts = self.counted.iter().enumerate().filter_map(|(index, counted)| {
            let entries = || self.shards.iter().filter_map(|shard| shard.get(index));
            let latencies = entries()
                .map(Entry::latencies)
                .fold(Latencies::default(), |sum, latencies| sum.plus(&latencies));
            if latencies.count() == 0 {
                return None;
            }
            let failed = Failed::ALL.iter().enumerate().filter_map(|(reason, failed)| {
                let counts = entries().filter_map(|entry| entry.failed.get(reason));
                let sum: u64 = counts.map(|count| count.load(Ordering::Relaxed)).sum();
                (sum > 0).then_some((*failed, sum))
            });
            let Counted { program, version, procedure, name } = *counted;
            Some(ProcedureStats { program, version, procedure, name, latencies, failed: failed.collect() })
        });
        counts.collect()
    }
}

impl ServedProgram {
    /// Adds the procedures of a program to the list of counted ones.
    fn new(program: &dyn Binding, counted: &mut Vec<Counted>) -> Self {
        let (number, versions) = (program.number(), program.versions());
        let version = *versions.start();
        let other = counted.len();
        let mut add = |procedure, name| {
            counted.push(Counted { program: number, version, procedure, name });
            counted.len() - 1
        };
        add(None, OTHER);
        let mut procedures = vec![add(Some(0), "NULL")];
        // A program may serve a procedure in some versions only.
        let named = |procedure| {
            let mut names = versions.clone().filter_map(|version| program.procedure(version, procedure));
            // A panic can only leave the program's own values inconsistent.
            catch_unwind(AssertUnwindSafe(|| names.next())).ok().flatten()
        };
        let mut entries: Vec<usize> = (1..PROCEDURES)
            .map(|procedure| named(procedure).map_or(other, |known| add(Some(procedure), known.name)))
            .collect();
        while entries.last() == Some(&other) {
            entries.pop();
        }
        procedures.append(&mut entries);
        Self { number, versions, procedures, other }
    }
}

/// A call in progress, for the counters: the procedure, and the time at which the call arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    entry: usize,
    at: Instant,
}

/// The part of one connection in the counters of its server.
#[derive(Debug)]
pub(crate) struct Meter {
    counts: Arc<CallCounts>,
    shard: usize,
    /// Calls that were answered since the last reading of the clock.
    answered: Vec<(Arrived, Option<Failed>)>,
}

impl Meter {
    pub(crate) fn new(counts: Arc<CallCounts>) -> Self {
        let number = counts.meters.fetch_add(1, Ordering::Relaxed);
        Self { shard: number % counts.shards.len().max(1), counts, answered: Vec::new() }
    }

    /// Returns the procedure of a message that arrived at this time.
    pub(crate) fn arrived(&self, message: &Decoder, at: Instant) -> Arrived {
        Arrived { entry: self.counts.entry_of(message), at }
    }

    /// Notes the outcome of a call, whose time is counted by the next [`take`](Self::take).
    pub(crate) fn answered(&mut self, call: Arrived, outcome: &Outcome) {
        self.answered.push((call, Failed::of(outcome)));
    }

    /// Returns whether calls wait for a reading of the clock.
    pub(crate) const fn is_due(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Counts the calls that were answered, as at this time.
    pub(crate) fn take(&mut self, now: Instant) {
        let Some(entries) = self.counts.shards.get(self.shard) else { return };
        for (call, failed) in self.answered.drain(..) {
            if let Some(entry) = entries.get(call.entry) {
                entry.add(now.saturating_duration_since(call.at), failed);
            }
        }
    }

    /// Releases memory that only a burst needs.
    pub(crate) fn rest(&mut self) {
        self.answered.rest();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.is_due() {
            self.take(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
