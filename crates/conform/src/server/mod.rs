//! Rows against a server: the tester plays the client.
//!
//! [`Tester::run`] tries the rows in the order of the table, each on connections of its own. A row ends with a verdict
//! whatever the server does; after a hostile row the server must answer a NULL call on the same connection if that is still
//! there, and on a new one always.

mod bench;
mod chunks;
mod credits;
mod endings;
mod forms;
mod headers;
mod hostile;
mod keys;
mod rows;
mod setup;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_verbs::{BoxFuture, Connector};
use tokio::time::timeout;

use crate::report::{Outcome, Report, RowInfo, RowReport, fail};
use crate::{DEFAULT_LIMIT, DEFAULT_SILENCE, nfs};
use bench::Bench;

/// A server, and what of it can be used.
pub struct Target {
    /// Opens connections.
    pub connector: Arc<dyn Connector>,
    /// Where it listens.
    pub address: SocketAddr,
    /// RPC program whose NULL procedure answers.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// An NFSv3 export, for rows with chunks.
    pub export: Option<Export>,
    /// How long the server may take for each answer. A row takes at most [`ROW_FACTOR`] times as long.
    pub limit: Duration,
    /// How long the server is watched when it should say nothing.
    pub silence: Duration,
}

/// An NFSv3 export. Rows make files in its root whose names begin with `.rpcrdma-conform-`, and remove them.
#[derive(Clone, Debug)]
pub struct Export {
    /// Handle of a directory in which files may be made.
    pub root: Vec<u8>,
    /// As whom (AUTH_SYS).
    pub uid: u32,
    /// With this group.
    pub gid: u32,
}

/// A row takes at most this many times [`Target::limit`].
pub const ROW_FACTOR: u32 = 6;

impl Target {
    /// NULL of NFSv3, without an export, with the default limits.
    #[must_use]
    pub fn new(connector: Arc<dyn Connector>, address: SocketAddr) -> Self {
        Self {
            connector,
            address,
            program: nfs::PROGRAM,
            version: nfs::VERSION,
            export: None,
            limit: DEFAULT_LIMIT,
            silence: DEFAULT_SILENCE,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    info: RowInfo,
    run: for<'a> fn(&'a mut Bench<'_>) -> BoxFuture<'a, Outcome>,
}

/// The table: every row, in the order in which they are tried.
#[must_use]
pub fn rows() -> Vec<RowInfo> {
    rows::all().map(|row| row.info).collect()
}

/// Tries rows against one server.
pub struct Tester {
    target: Target,
}

impl Tester {
    /// A tester of this server.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self { target }
    }

    /// Tries the rows that are wanted; `each` sees every row as soon as it has ended.
    pub async fn run(&self, wanted: impl Fn(&RowInfo) -> bool, mut each: impl FnMut(&RowReport)) -> Report {
        let mut bench = Bench::new(&self.target);
        let mut report = Report::default();
        let limit = self.target.limit.saturating_mul(ROW_FACTOR);
        for row in rows::all().filter(|row| wanted(&row.info)) {
            let outcome = timeout(limit, (row.run)(&mut bench))
                .await
                .unwrap_or_else(|_| Err(fail(format!("the row did not end within {limit:?}"))));
            let row = RowReport::new(row.info, outcome);
            each(&row);
            report.rows.push(row);
        }
        bench.clean_up().await;
        report
    }
}
