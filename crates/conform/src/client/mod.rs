//! Rows against a client: the tester plays the server, and the client chooses its calls.
//!
//! The client has to make calls by itself, again and again, also after a call has failed: NULL calls suffice for most
//! rows. The tester answers calls of NFSv3 for a directory with one file, so that rows with chunks find calls that
//! offer some. A call that a row did not need waits for the next row.
//!
//! Every row expects that the client survives: the call ends, or is repeated on a new connection, and then the client
//! makes another call.

mod broken;
mod chunks;
mod credits;
mod rows;
mod serve;
mod setup;
mod stage;
mod two;
mod wire;

use std::time::Duration;

use rpcrdma_proto::Profile;
use rpcrdma_verbs::{BoxFuture, Listener};
use tokio::time::timeout;

use crate::report::{Outcome, Report, RowInfo, RowReport, fail};
use stage::Stage;
use wire::Wire;

/// Maximum duration of a row, as a multiple of [`Host::limit`].
pub const ROW_FACTOR: u32 = 6;
/// Default of [`Host::silence`]: longer than the pause of clients between calls.
pub const DEFAULT_SILENCE: Duration = Duration::from_millis(500);

/// The address at which a client connects, and its time limits.
pub struct Host {
    /// Accepts the client's connections.
    pub listener: Box<dyn Listener>,
    /// Profile of Version Two for whose rows the client is tested; `None`: Version One.
    pub profile: Option<Profile>,
    /// Maximum time until the next call of the client. Must be longer than the client's timer for a reply.
    pub limit: Duration,
    /// Time for which the client is watched when it should not act. Must be longer than its pause between calls.
    pub silence: Duration,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    info: RowInfo,
    run: for<'a> fn(&'a mut Stage) -> BoxFuture<'a, Outcome>,
}

/// Returns the table of Version One, or of Version Two in a profile: every row, in the order of the run.
#[must_use]
pub fn rows(profile: Option<Profile>) -> Vec<RowInfo> {
    all(profile).into_iter().map(|row| row.info).collect()
}

fn all(profile: Option<Profile>) -> Vec<Row> {
    match profile {
        None => rows::all().copied().collect(),
        Some(profile) => two::all(profile).collect(),
    }
}

/// Runs the rows that are wanted on the clients that connect; `each` receives every row when it has ended.
pub async fn run(host: Host, wanted: impl Fn(&RowInfo) -> bool, mut each: impl FnMut(&RowReport)) -> Report {
    let limit = host.limit.saturating_mul(ROW_FACTOR);
    let (profile, table) = (host.profile, all(host.profile));
    let mut stage = Stage::new(host);
    let mut report = Report::default();
    for row in table.into_iter().filter(|row| wanted(&row.info)) {
        let outcome = timeout(limit, (row.run)(&mut stage))
            .await
            .unwrap_or_else(|_| Err(fail(format!("the row did not end within {limit:?}"))));
        if outcome.is_err() {
            // The next row starts without any state of this one.
            stage.clear().await;
            stage.wire = Wire::new(profile);
            stage.announces = true;
        }
        let row = RowReport::new(row.info, outcome);
        each(&row);
        report.rows.push(row);
    }
    stage.close().await;
    report
}
