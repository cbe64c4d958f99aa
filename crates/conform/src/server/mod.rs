//! Rows against a server: the tester plays the client.
//!
//! [`Tester::run`] runs the rows in the order of the table, each on its own connections. A row ends with a verdict
//! whatever the server does. After a hostile row the server must answer a NULL call on a new connection, and on the old
//! one if that is still open.

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
mod two;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_proto::Profile;
use rpcrdma_verbs::{BoxFuture, Connector};
use tokio::time::timeout;

use crate::report::{Outcome, Report, RowInfo, RowReport, fail};
use crate::{DEFAULT_LIMIT, DEFAULT_SILENCE, nfs};
use bench::Bench;

/// A server, and the services of it that the tester may use.
pub struct Target {
    /// Opens connections.
    pub connector: Arc<dyn Connector>,
    /// Address of the server.
    pub address: SocketAddr,
    /// RPC program whose NULL procedure the server answers.
    pub program: u32,
    /// Version of that program.
    pub version: u32,
    /// Profile of Version Two for whose rows the server is tested; `None`: Version One.
    pub profile: Option<Profile>,
    /// An NFSv3 export, for rows with chunks.
    pub export: Option<Export>,
    /// Maximum time for each answer of the server. A row takes at most [`ROW_FACTOR`] times as long.
    pub limit: Duration,
    /// Time for which the server must stay silent where it should not answer.
    pub silence: Duration,
}

/// An NFSv3 export. Rows make files in its root whose names begin with `.rpcrdma-conform-`, and remove them.
#[derive(Clone, Debug)]
pub struct Export {
    /// Handle of a directory in which the user may make files.
    pub root: Vec<u8>,
    /// UID of the calls (AUTH_SYS).
    pub uid: u32,
    /// GID of the calls.
    pub gid: u32,
}

/// Maximum duration of a row, as a multiple of [`Target::limit`].
pub const ROW_FACTOR: u32 = 6;

impl Target {
    /// Returns a target with NULL of NFSv3, without an export, with the default limits.
    #[must_use]
    pub fn new(connector: Arc<dyn Connector>, address: SocketAddr) -> Self {
        Self {
            connector,
            address,
            program: nfs::PROGRAM,
            version: nfs::VERSION,
            profile: None,
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

/// Returns the table of Version One, or of Version Two in a profile: every row, in the order of the run.
#[must_use]
pub fn rows(profile: Option<Profile>) -> Vec<RowInfo> {
    match profile {
        None => rows::all().map(|row| row.info).collect(),
        Some(profile) => two::all(profile).map(|(_, info)| info).collect(),
    }
}

/// Runs rows against one server.
pub struct Tester {
    target: Target,
}

impl Tester {
    /// Returns a tester of this server.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self { target }
    }

    /// Runs the rows that are wanted; `each` receives every row when it has ended.
    pub async fn run(&self, wanted: impl Fn(&RowInfo) -> bool, mut each: impl FnMut(&RowReport)) -> Report {
        let mut bench = Bench::new(&self.target);
        let mut report = Report::default();
        let mut add = |info, outcome| {
            let row = RowReport::new(info, outcome);
            each(&row);
            report.rows.push(row);
        };
        match self.target.profile {
            None => {
                for row in rows::all().filter(|row| wanted(&row.info)) {
                    let outcome = self.limited((row.run)(&mut bench)).await;
                    add(row.info, outcome);
                }
            }
            Some(profile) => {
                let spoken = two::spoken(&mut bench, profile).await;
                for (row, info) in two::all(profile).filter(|(_, info)| wanted(info)) {
                    let outcome = match &spoken {
                        Ok(()) => self.limited(row.run(&mut bench, profile)).await,
                        Err(wrong) => Err(wrong.clone()),
                    };
                    add(info, outcome);
                }
            }
        }
        bench.clean_up().await;
        report
    }

    /// Ends a row after its time.
    async fn limited(&self, row: impl Future<Output = Outcome>) -> Outcome {
        let limit = self.target.limit.saturating_mul(ROW_FACTOR);
        let ended = timeout(limit, row).await;
        ended.unwrap_or_else(|_| Err(fail(format!("the row did not end within {limit:?}"))))
    }
}
