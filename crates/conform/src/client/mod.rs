//! Rows against a client: the tester plays the server, with whatever calls the client makes.
//!
//! The client has to make calls by itself, again and again, also after one has failed: NULL calls are enough for most rows.
//! Calls of NFSv3 are answered as those of a directory with one file, so that rows with chunks find calls that offer some. A call
//! that a row did not need waits for the next row.
//!
//! Expected is, everywhere, that the client lives on: the call ends or is sent again on a new connection, and then there is
//! another one.

mod broken;
mod chunks;
mod credits;
mod rows;
mod serve;
mod setup;
mod stage;

use std::time::Duration;

use rpcrdma_verbs::{BoxFuture, Listener};
use tokio::time::timeout;

use crate::report::{Outcome, Report, RowInfo, RowReport, fail};
use stage::Stage;

/// A row takes at most this many times [`Host::limit`].
pub const ROW_FACTOR: u32 = 6;
/// [`Host::silence`], if nothing else is said: more than clients wait between calls.
pub const DEFAULT_SILENCE: Duration = Duration::from_millis(500);

/// Where a client comes to.
pub struct Host {
    /// Accepts its connections.
    pub listener: Box<dyn Listener>,
    /// How long the client may take for its next call. Longer than it waits for a reply before it gives up.
    pub limit: Duration,
    /// How long the client is watched when it should do nothing. Longer than it waits between calls.
    pub silence: Duration,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    info: RowInfo,
    run: for<'a> fn(&'a mut Stage) -> BoxFuture<'a, Outcome>,
}

/// The table: every row, in the order in which they are tried.
#[must_use]
pub fn rows() -> Vec<RowInfo> {
    rows::all().map(|row| row.info).collect()
}

/// Tries the rows that are wanted on the clients that come; `each` sees every row as soon as it has ended.
pub async fn run(host: Host, wanted: impl Fn(&RowInfo) -> bool, mut each: impl FnMut(&RowReport)) -> Report {
    let limit = host.limit.saturating_mul(ROW_FACTOR);
    let mut stage = Stage::new(host);
    let mut report = Report::default();
    for row in rows::all().filter(|row| wanted(&row.info)) {
        let outcome = timeout(limit, (row.run)(&mut stage))
            .await
            .unwrap_or_else(|_| Err(fail(format!("the row did not end within {limit:?}"))));
        if outcome.is_err() {
            // Whatever the row left behind, the next one finds nothing of it.
            stage.clear().await;
        }
        let row = RowReport::new(row.info, outcome);
        each(&row);
        report.rows.push(row);
    }
    stage.close().await;
    report
}
