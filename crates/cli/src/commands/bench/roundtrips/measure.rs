//! Measurement of an operation on the simulated fabric: its virtual time, and its messages on the wire.
//!
//! The link has a latency and perhaps a bandwidth. Nothing else takes time, so that the result is that of the
//! protocol. Counts come from elapsed time and from the deliveries of the fabric, never from the planner's
//! own account.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rpcrdma::{Client, Server, Timeouts, Transport};
use rpcrdma_sim::{Delivery, Fabric, FabricConfig, MessageKind, Side};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::mechanisms::{Counts, Mechanism};
use crate::commands::bench::program::{Operation, Transfers, carry_out, transfers};
use crate::commands::bench::{failed, no_connection};
use crate::exit::Failure;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Factor by which everything is slower than it claims. Virtual time passes in steps of a millisecond, which
/// thus stand for a tenth of a microsecond.
const SLOWNESS: u32 = 10_000;

/// The link between the two sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkModel {
    /// Time of a message to the other side.
    pub(super) latency: Duration,
    /// Bytes a second, each way. With `None`, transmission takes no time.
    pub(super) bandwidth: Option<u64>,
}

/// Results for an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Time from the call to its result.
    pub(super) elapsed: Duration,
    /// Time from the call to its result, in round trips of the link.
    pub(super) round_trips: f64,
    /// Sends, RDMA Writes, RDMA Read Requests and Responses, also those after the result.
    pub(super) messages: usize,
    /// Messages that take a round trip of the fabric: Sends and RDMA Writes with their acknowledgements, RDMA
    /// Reads.
    pub(super) wire_round_trips: usize,
    /// Bytes of all messages, without headers below RDMA.
    pub(super) bytes: usize,
    /// Moments until the result at which something completed that the responder waits for.
    pub(super) responder: usize,
    /// Moments until the result at which something completed that the requester waits for.
    pub(super) requester: usize,
    /// Keys that the peer used.
    pub(super) registrations: usize,
}

impl Measured {
    /// Returns the quantities that the document counts, or `None` if the time is no whole number of round
    /// trips.
    pub(super) fn counts(&self) -> Option<Counts> {
        let whole = self.round_trips.round();
        // The steps of time are a small part of a round trip.
        if (self.round_trips - whole).abs() > 1e-3 || whole < 0.0 {
            return None;
        }
        let round_trips = (0..=64_u64).zip(0..=64_u32).find(|(_, count)| f64::from(*count) >= whole)?.0;
        let registers = self.registrations > 0;
        Some(Counts { round_trips, responder: self.responder, requester: self.requester, registers })
    }
}

/// Creates a runtime on virtual time, which advances when no task can run.
pub(super) fn virtual_time() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(failed("start a runtime on virtual time"))
}

/// Time for small messages to arrive after the end of an operation, at any bandwidth.
const SETTLE: Duration = Duration::from_secs(1000);

/// Time that no step reaches.
const PATIENCE: Duration = Duration::from_secs(1_000_000);

/// Returns timers that never expire.
fn patient() -> Timeouts {
    let mut timeouts = Timeouts::default();
    for timer in [
        &mut timeouts.call,
        &mut timeouts.abandoned,
        &mut timeouts.rdma_read,
        &mut timeouts.send,
        &mut timeouts.memory,
        &mut timeouts.credits,
        &mut timeouts.continuation,
        &mut timeouts.invalidate,
        &mut timeouts.done,
        &mut timeouts.connect,
        &mut timeouts.offer,
        &mut timeouts.first_message,
    ] {
        *timer = PATIENCE;
    }
    timeouts.idle = None;
    timeouts
}

/// Carries an operation out on a connection that was used before, and measures it.
pub(super) async fn measure(mechanism: &Mechanism, link: LinkModel) -> Result<Measured, Failure> {
    let latency = link.latency * SLOWNESS;
    let settle = latency * 4 + SETTLE;
    let fabric = Fabric::on_tokio(FabricConfig {
        latency,
        bandwidth: link.bandwidth.map(|bandwidth| (bandwidth / u64::from(SLOWNESS)).max(1)),
        link_timeout: PATIENCE,
        close_timeout: PATIENCE,
        setup_timeout: PATIENCE,
        ..FabricConfig::default()
    });
    let (mut client, mut server) = mechanism.configs();
    client.protocol.timeouts = patient();
    server.protocol.timeouts = patient();
    let listener = fabric.listen(SERVER).map_err(failed("listen on the fabric"))?;
    let server = Server::builder()
        .config(server)
        .program(Arc::new(transfers::serve(Transfers::default())))
        .listen_rdma(Box::new(listener))
        .build()
        .map_err(failed("serve on the fabric"))?;
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let client = Client::builder()
        .config(client)
        .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
        .connect(SERVER)
        .await
        .map_err(no_connection)?;
    // By then the one-time messages of a connection have passed: credits, a version, characteristics.
    for _ in 0..2 {
        carry_out(&client, Operation::Small).await.map_err(failed("call"))?;
        tokio::time::sleep(settle).await;
    }
    let seen = Arc::new(Mutex::new(Vec::<Delivery>::new()));
    let taps = Arc::clone(&seen);
    fabric.tap(move |delivery| taps.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.clone()));
    let began = Instant::now();
    carry_out(&client, mechanism.operation).await.map_err(failed("call"))?;
    let elapsed = began.elapsed();
    let until_result = seen.lock().unwrap_or_else(PoisonError::into_inner).len();
    // Messages after the result, such as an RDMA_DONE, count too.
    tokio::time::sleep(settle).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    client.close().await;
    serving.abort();
    Ok(evaluate(&seen, until_result, elapsed / SLOWNESS, link.latency))
}

fn evaluate(seen: &[Delivery], until_result: usize, elapsed: Duration, latency: Duration) -> Measured {
    let of = |kinds: &[MessageKind]| seen.iter().filter(|delivery| kinds.contains(&delivery.kind)).count();
    let interrupts = |at: Side| {
        let completing = |delivery: &&Delivery| {
            // An RDMA Write completes nothing where it arrives, nor does a Read Request.
            delivery.from != at && matches!(delivery.kind, MessageKind::Send | MessageKind::ReadResponse)
        };
        let before = seen.get(..until_result).unwrap_or(seen);
        before.iter().filter(completing).map(|delivery| delivery.at).collect::<BTreeSet<_>>().len()
    };
    let keys: BTreeSet<_> = seen
        .iter()
        .filter(|delivery| delivery.kind != MessageKind::Send)
        .filter_map(|delivery| delivery.key.map(|key| key.0))
        .collect();
    let bytes = |delivery: &Delivery| match delivery.kind {
        MessageKind::ReadRequest => 0,
        _ => delivery.length,
    };
    Measured {
        elapsed,
        round_trips: elapsed.as_secs_f64() / (2.0 * latency.as_secs_f64()),
        messages: seen.len(),
        wire_round_trips: of(&[MessageKind::Send, MessageKind::Write, MessageKind::ReadRequest]),
        bytes: seen.iter().map(bytes).sum(),
        responder: interrupts(Side::B),
        requester: interrupts(Side::A),
        registrations: keys.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mechanisms::{LARGE, MECHANISMS};
    use super::*;

    /// rtissues-03 §2, §3, and the consequences of RFC 5666 §3.8: elapsed time gives the counts of the
    /// document.
    #[test]
    fn rtissues_s2_s3_every_mechanism_has_the_counts_of_the_document() {
        let link = LinkModel { latency: Duration::from_millis(1), bandwidth: None };
        for mechanism in MECHANISMS.iter().chain(&LARGE) {
            let measured = virtual_time().unwrap().block_on(measure(mechanism, link)).unwrap();
            let what = format!("{} by {}: {measured:?}", mechanism.operation.name(), mechanism.name);
            assert_eq!(measured.counts(), Some(mechanism.expected), "{what}");
        }
    }

    /// rtissues-03: three round trips on the wire for a WRITE, of which the requester waits for two.
    #[test]
    fn rtissues_s2_2_a_write_is_three_round_trips_on_the_wire() {
        let link = LinkModel { latency: Duration::from_millis(1), bandwidth: None };
        let put =
            MECHANISMS.iter().find(|mechanism| matches!(mechanism.operation, Operation::Put(_))).unwrap();
        let measured = virtual_time().unwrap().block_on(measure(put, link)).unwrap();
        assert_eq!((measured.wire_round_trips, measured.messages), (3, 4));
    }

    /// No timer expires on the slowest possible link. With distance, an operation takes the round trips that
    /// the document counts; transmission takes its own time.
    #[test]
    fn slow_transmission_adds_no_round_trip() {
        let bandwidth = Some(125_000);
        for mechanism in MECHANISMS.iter().chain(&LARGE) {
            let [near, far] = [0, 100].map(|milliseconds| {
                let link = LinkModel { latency: Duration::from_millis(milliseconds), bandwidth };
                virtual_time().unwrap().block_on(measure(mechanism, link)).unwrap().elapsed
            });
            let round_trips = (far - near).as_secs_f64() / 0.2;
            let counted = mechanism.expected.round_trips as f64;
            assert!((round_trips - counted).abs() < 1e-3, "{}: {near:?}, {far:?}", mechanism.name);
        }
    }

    /// rtissues-03 §4: calls made at once share Sends, and so do their replies.
    #[test]
    fn rtissues_s4_messages_that_are_ready_together_share_sends() {
        let link = LinkModel { latency: Duration::from_millis(1), bandwidth: None };
        let several =
            MECHANISMS.iter().filter(|mechanism| matches!(mechanism.operation, Operation::Several(_)));
        let messages: Vec<usize> = several
            .map(|mechanism| virtual_time().unwrap().block_on(measure(mechanism, link)).unwrap().messages)
            .collect();
        let [alone, together] = messages[..] else { panic!("{messages:?}") };
        // The first call leaves before the others are ready.
        assert!(alone == 16 && together <= 4, "{messages:?}");
    }

    /// With a bandwidth, the time of transmission is added.
    #[test]
    fn time_of_transmission_is_not_a_round_trip() {
        let link = LinkModel { latency: Duration::from_millis(1), bandwidth: Some(1_000_000) };
        let get =
            MECHANISMS.iter().find(|mechanism| matches!(mechanism.operation, Operation::Get(_))).unwrap();
        let measured = virtual_time().unwrap().block_on(measure(get, link)).unwrap();
        assert!(measured.elapsed > Duration::from_millis(2 + 8), "{measured:?}");
        assert_eq!(measured.counts(), None);
    }
}
