//! What a server and its connections share: the state of all connections, and the signal to stop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma_proto::Config;
use tokio::sync::watch;

use crate::backchannel::Backchannels;
use crate::config::ServerConfig;
use crate::counts::{CallCounts, Meter};
use crate::credits::Credits;
use crate::failed_reads::FailedReads;
use crate::handlers::Orphans;
use crate::log::Allowance;
use crate::programs::Programs;
use crate::registry::Registry;
use crate::shares::PeerShares;
use crate::totals::Totals;

/// State that all connections of a server share.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) programs: Arc<Programs>,
    pub(crate) protocol: Arc<Config>,
    pub(crate) backchannels: Arc<Backchannels>,
    pub(crate) shares: PeerShares,
    /// The stock of further credits, if connections have Receives of their own.
    pub(crate) credits: Option<Credits>,
    pub(crate) failed_reads: FailedReads,
    pub(crate) totals: Totals,
    /// How many lines the log gets about clients that come and go.
    pub(crate) visits: Arc<Allowance>,
    pub(crate) counts: Arc<CallCounts>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) orphans: Arc<Orphans>,
    calls: AtomicU64,
    agreed: AtomicU64,
}

impl Shared {
    /// Returns the state of a server without connections.
    pub(crate) fn new(config: ServerConfig, programs: Programs, shares: PeerShares) -> Self {
        Self {
            counts: Arc::new(CallCounts::new(programs.served())),
            registry: Arc::default(),
            orphans: Arc::default(),
            programs: Arc::new(programs),
            protocol: Arc::new(config.protocol.clone()),
            backchannels: Arc::new(Backchannels::new()),
            credits: Credits::of(&config, &shares),
            shares,
            failed_reads: FailedReads::default(),
            totals: Totals::default(),
            visits: Arc::default(),
            calls: AtomicU64::new(0),
            agreed: AtomicU64::new(0),
            config,
        }
    }

    /// Returns the part of a new connection in the counters of calls.
    pub(crate) fn meter(&self) -> Meter {
        Meter::new(Arc::clone(&self.counts))
    }

    pub(crate) fn count_agreed(&self) {
        self.agreed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of RDMA connections that agreed by CONF_RDMA.
    pub(crate) fn agreed(&self) -> u64 {
        self.agreed.load(Ordering::Relaxed)
    }

    /// Returns the number of Calls received.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Returns the address of a peer as other places write it. A listener for both versions of IP gives IPv4 addresses in
/// IPv6 form (RFC 4291 §2.5.5.2).
pub(crate) fn plain(peer: SocketAddr) -> SocketAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => SocketAddr::from((address, peer.port())),
        // With its scope.
        IpAddr::V6(_) => peer,
    }
}

/// How far the server has come in stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The server serves.
    Run,
    /// Calls in progress are answered, no others are accepted.
    Drain,
    /// Connections close at once.
    Abort,
}

/// The signal by which a connection learns that it must stop.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    phase: watch::Receiver<Phase>,
    gone: bool,
}

impl StopSignal {
    /// Returns the signal that follows this channel.
    pub(crate) fn new(phase: watch::Receiver<Phase>) -> Self {
        Self { phase, gone: false }
    }

    /// Waits for the next phase. A dropped server counts as [`Phase::Abort`]. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Phase {
        if self.gone {
            std::future::pending::<()>().await;
        }
        match self.phase.changed().await {
            Ok(()) => *self.phase.borrow_and_update(),
            Err(_) => {
                self.gone = true;
                Phase::Abort
            }
        }
    }
}
