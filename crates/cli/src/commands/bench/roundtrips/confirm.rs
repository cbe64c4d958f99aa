//! Confirmation of the model: the simulated operations again, over software iWARP, in real time, through a
//! delay line.
//!
//! Client and server are on the loopback interface. Each operation runs several times on a connection of its
//! own. The delay is long compared with the time that the machine adds. That time is the difference between
//! the median and the whole number of round trips.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma::{Client, Server};
use rpcrdma_iwarp::IwarpListener;
use rpcrdma_verbs::Listener;
use serde::Serialize;
use tokio::time::sleep;

use super::delay::DelayLine;
use super::mechanisms::{Mechanism, Way};
use crate::commands::bench::program::{Operation, Transfers, carry_out, transfers};
use crate::commands::bench::table::median;
use crate::commands::bench::{failed, no_connection};
use crate::exit::Failure;

/// Allowed distance of the time from the count of the document, in round trips.
pub(super) const MARGIN: f64 = 0.25;

/// JSON document of all operations through a delay line.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) milliseconds_one_way: f64,
    /// Operations of each row.
    pub(super) operations: usize,
    pub(super) margin: f64,
    pub(super) rows: Vec<Row>,
}

/// A way of an operation.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    way: Way,
    /// Median, from the call to its result.
    milliseconds: f64,
    /// Time of the quickest operation.
    milliseconds_least: f64,
    /// The median in round trips of the line.
    round_trips: f64,
    /// The nearest whole number of round trips.
    confirmed: u64,
    /// Count of round trips in the document.
    document: u64,
    /// Whether the time equals the count of the document, within [`MARGIN`].
    as_expected: bool,
}

impl Row {
    fn new(mechanism: &Mechanism, delay: Duration, times: Vec<f64>) -> Self {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let seconds = median(times);
        let document = mechanism.expected.round_trips;
        let round_trips = seconds / (2.0 * delay.as_secs_f64());
        Self {
            way: mechanism.way(),
            milliseconds: seconds * 1e3,
            milliseconds_least: least * 1e3,
            round_trips,
            confirmed: nearest(Duration::from_secs_f64(seconds), 2 * delay),
            document,
            as_expected: (round_trips - document as f64).abs() <= MARGIN,
        }
    }

    /// Returns a line of the table in Markdown, which is also plain text.
    pub(super) fn line(&self) -> String {
        let equal = if self.as_expected { "=" } else { "not" };
        let Way { operation, mechanism, section } = self.way;
        let document = format!("{equal} {section}");
        format!(
            "| {operation:30} | {mechanism:49} | {:9.2} ms | {:11.2} | {:9} | {document:17} |",
            self.milliseconds, self.round_trips, self.confirmed
        )
    }

    /// Compares the time with the document.
    ///
    /// # Errors
    /// The time differs from the count of the document by more than [`MARGIN`].
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.as_expected {
            return Ok(());
        }
        let Self { way: Way { operation, mechanism, section }, round_trips, document, .. } = self;
        Err(Failure::failed(format!(
            "{operation} by {mechanism} took {round_trips:.2} round trips where {section} counts {document}: more than {MARGIN} \
             from it; if the machine is busy, take a longer delay"
        )))
    }
}

/// Returns the number of round trips that is nearest to a time.
fn nearest(time: Duration, round_trip: Duration) -> u64 {
    let trip = round_trip.as_nanos().max(1);
    u64::try_from((time.as_nanos() + trip / 2) / trip).unwrap_or(u64::MAX)
}

/// Heading of the table.
pub(super) const HEAD: &str = "\
| operation                      | mechanism                                         |  median time | round trips | confirmed | rtissues-03       |
| ------------------------------ | ------------------------------------------------- | -----------: | ----------: | --------: | ----------------- |";

/// Carries an operation out this many times, one after the other, on a connection that was used before.
pub(super) async fn confirm(
    mechanism: &Mechanism,
    delay: Duration,
    operations: usize,
) -> Result<Row, Failure> {
    let (client, server) = mechanism.configs();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener =
        IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.map_err(failed("listen"))?;
    let address = listener.local_address().map_err(failed("listen"))?;
    let server = Server::builder()
        .config(server)
        .program(Arc::new(transfers::serve(Transfers::default())))
        .listen_rdma(Box::new(listener))
        .build()
        .map_err(failed("serve"))?;
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let line = DelayLine::start(address, delay).await.map_err(failed("start the delay line"))?;
    let client = Client::builder().config(client).connect(line.address()).await.map_err(no_connection)?;
    // By then the one-time messages of a connection have passed: credits, a version, characteristics.
    for _ in 0..2 {
        carry_out(&client, Operation::Small).await.map_err(failed("call"))?;
        sleep(delay * 4).await;
    }
    let mut seconds = Vec::with_capacity(operations);
    for _ in 0..operations {
        let began = Instant::now();
        carry_out(&client, mechanism.operation).await.map_err(failed("call"))?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    client.close().await;
    serving.abort();
    Ok(Row::new(mechanism, delay, seconds))
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::super::mechanisms::{LARGE, MECHANISMS};
    use super::*;

    const DELAY: Duration = Duration::from_millis(20);
    /// Operations of a mechanism, at most, until other work of the machine delays none.
    const ROUNDS: usize = 20;

    /// Carries an operation out until it takes at most half a round trip more than the document counts. Noise
    /// only adds time. So a shorter time is a fault at once, and a round trip too many is there every time.
    async fn is_confirmed(mechanism: &Mechanism) -> bool {
        let counted = mechanism.expected.round_trips as f64;
        for _ in 0..ROUNDS {
            let row = confirm(mechanism, DELAY, 3).await.unwrap();
            let least = row.milliseconds_least / (2.0 * DELAY.as_secs_f64() * 1e3);
            assert!(least >= counted, "{row:?}");
            if least < counted + 0.5 {
                return true;
            }
        }
        false
    }

    /// rtissues-03 §2, §3: the counts of round trips hold in real time too, for 8 KiB and for 1 MiB.
    #[test]
    fn rtissues_s2_s3_a_delay_line_confirms_every_count() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let confirmed = runtime.block_on(async {
            let mut all = JoinSet::new();
            for mechanism in MECHANISMS.iter().chain(&LARGE) {
                all.spawn(
                    async move { (is_confirmed(mechanism).await, mechanism.operation, mechanism.name) },
                );
            }
            all.join_all().await
        });
        assert!(confirmed.iter().all(|(is_confirmed, ..)| *is_confirmed), "{confirmed:?}");
    }

    /// The check detects a round trip too many: a WRITE by Read chunk where the document counts one round
    /// trip.
    #[test]
    fn a_round_trip_too_many_is_not_confirmed() {
        let put =
            MECHANISMS.iter().find(|mechanism| matches!(mechanism.operation, Operation::Put(_))).unwrap();
        let mut wrong = *put;
        wrong.expected.round_trips = 1;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let row = runtime.block_on(confirm(&wrong, DELAY, 1)).unwrap();
        assert!(row.confirmed >= 2 && row.check().is_err(), "{row:?}");
    }

    #[test]
    fn what_is_far_from_the_count_is_refused() {
        let delay = Duration::from_millis(5);
        let row = |round_trips: f64| Row::new(&MECHANISMS[0], delay, vec![round_trips * 0.010]);
        assert!(row(1.2).check().is_ok());
        assert!(row(0.8).check().is_ok());
        let failure = row(1.3).check().unwrap_err().to_string();
        assert!(
            failure
                .starts_with("small call, small reply by inline took 1.30 round trips where §3.1 counts 1")
        );
        // A shorter time would mean that the measurement misses something.
        assert!(row(0.7).check().is_err());
    }
}
