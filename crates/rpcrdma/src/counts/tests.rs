use std::ops::RangeInclusive;

use bytes::Bytes;
use rpcrdma_oncrpc::{
    AcceptStat, AuthStat, CallContext, Effect, OpaqueAuth, ProcedureInfo, Program, RejectReason, ReplyHeader,
    ResponseFuture,
};

use super::*;

/// Procedures 1 and 3 exist, and asking for procedure 2 panics.
struct Sparse;

impl Program for Sparse {
    fn number(&self) -> u32 {
        0x2000_0009
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=4
    }

    fn procedure(&self, version: u32, procedure: u32) -> Option<ProcedureInfo> {
        assert_ne!(procedure, 2, "a defect of the program");
        let name = match procedure {
            1 => "ONE",
            3 if version == 4 => "THREE",
            _ => return None,
        };
        Some(ProcedureInfo { name, effect: Effect::Idempotent })
    }

    fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
        unreachable!("nobody calls")
    }
}

impl Binding for Sparse {}

fn message(program: u32, version: u32, procedure: u32) -> Decoder {
    let words = [7, 0, 2, program, version, procedure];
    Decoder::new(Bytes::from(words.map(u32::to_be_bytes).concat()))
}

fn counts() -> Arc<CallCounts> {
    Arc::new(CallCounts::new(&[Arc::new(Sparse)]))
}

#[test]
fn a_time_is_in_the_bucket_that_its_bound_closes() {
    for (nanoseconds, bucket) in [
        (0, 0),
        (1, 0),
        (1000, 0),
        (1001, 1),
        (2000, 1),
        (2001, 2),
        (4_000, 2),
        (16_777_216_000, 24),
        (16_777_216_001, 25),
        (u64::MAX, 25),
    ] {
        let time = Duration::from_nanos(nanoseconds);
        assert_eq!(bucket_of(time), bucket, "{time:?}");
        if let Some(bound) = Latencies::bound(bucket) {
            assert!(time <= bound, "{time:?}");
        }
    }
    assert_eq!(Latencies::bound(Latencies::BUCKETS - 1), None);
    assert_eq!(bucket_of(Duration::MAX), 25);
}

#[test]
fn quantiles_are_bounds_of_buckets() {
    let mut latencies = Latencies::default();
    assert_eq!(latencies.quantile(0.5), None);
    for micros in [1, 2, 3, 100] {
        latencies.add(Duration::from_micros(micros));
    }
    let quantile = |part| latencies.quantile(part).unwrap();
    assert_eq!(quantile(0.0), Duration::from_micros(1));
    assert_eq!(quantile(0.5), Duration::from_micros(2));
    assert_eq!(quantile(0.75), Duration::from_micros(4));
    assert_eq!(quantile(0.99), Duration::from_micros(128));
    let mut later = latencies;
    later.add(Duration::from_secs(60));
    assert_eq!(later.quantile(1.0), Some(Duration::MAX));
    let between = later.since(&latencies);
    assert_eq!((between.count(), between.sum()), (1, Duration::from_secs(60)));
    assert_eq!(between.plus(&latencies), later);
}

#[tokio::test(start_paused = true)]
async fn calls_count_for_their_procedure_with_their_time() {
    let counts = counts();
    let mut meter = Meter::new(Arc::clone(&counts));
    let ok = ReplyHeader::accepted(7, AcceptStat::Success).with_results(Stream::new()).unwrap();
    let begin = Instant::now();
    let calls =
        [(0x2000_0009, 2, 1), (0x2000_0009, 4, 3), (0x2000_0009, 4, 2), (0x2000_0009, 4, 900), (1, 1, 1)];
    for (program, version, procedure) in calls {
        let arrived = meter.arrived(&message(program, version, procedure), begin);
        meter.answered(arrived, &Outcome::Reply(ok.clone()));
    }
    let short = meter.arrived(&Decoder::new(Bytes::from_static(&[0; 20])), begin);
    meter.answered(short, &Outcome::Drop);
    assert!(meter.is_due() && counts.get().is_empty());
    meter.take(begin + Duration::from_micros(3));
    assert!(!meter.is_due());
    let found = counts.get();
    let brief: Vec<_> =
        found.iter().map(|one| (one.program, one.procedure, one.name, one.latencies.count())).collect();
    let sparse = 0x2000_0009;
    assert_eq!(
        brief,
        [
            (0, None, OTHER, 2),
            (sparse, None, OTHER, 2),
            (sparse, Some(1), "ONE", 1),
            (sparse, Some(3), "THREE", 1),
        ]
    );
    assert!(found.iter().all(|one| one.latencies.quantile(1.0) == Some(Duration::from_micros(4))));
    assert_eq!(found[0].failed, [(Failed::NoReply, 1)]);
    assert!(found[1].failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_connection_has_not_counted_counts_at_its_end() {
    let counts = counts();
    for _ in 0..20 {
        let mut meter = Meter::new(Arc::clone(&counts));
        let arrived = meter.arrived(&message(0x2000_0009, 3, 0), Instant::now());
        meter.answered(arrived, &Outcome::Drop);
    }
    let found = counts.get();
    assert_eq!((found.len(), found[0].name, found[0].latencies.count()), (1, "NULL", 20));
    assert_eq!(found[0].failed, [(Failed::NoReply, 20)]);
}

#[test]
fn the_header_of_a_reply_says_why_it_has_no_results() {
    let reply = |header: ReplyHeader| header.with_results(Stream::new()).unwrap();
    let signed = OpaqueAuth { flavor: 6, body: Bytes::from_static(&[1; 5]) };
    for (status, failed) in [
        (AcceptStat::Success, None),
        (AcceptStat::ProgramUnavailable, Some(Failed::ProgramUnavailable)),
        (AcceptStat::ProgramMismatch { low: 1, high: 2 }, Some(Failed::ProgramMismatch)),
        (AcceptStat::ProcedureUnavailable, Some(Failed::ProcedureUnavailable)),
        (AcceptStat::GarbageArguments, Some(Failed::GarbageArguments)),
        (AcceptStat::SystemError, Some(Failed::SystemError)),
    ] {
        let header = ReplyHeader::accepted(1, status);
        assert_eq!(Failed::of_reply(&reply(header.clone())), failed);
        assert_eq!(Failed::of_reply(&reply(header.with_verifier(signed.clone()))), failed);
    }
    let denied = ReplyHeader::denied(1, RejectReason::AuthError(AuthStat::TooWeak));
    assert_eq!(Failed::of_reply(&reply(denied)), Some(Failed::Denied));
    assert_eq!(Failed::of_reply(&Stream::new()), None);
}
