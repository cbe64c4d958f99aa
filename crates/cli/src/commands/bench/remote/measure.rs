//! Measurements, one after the other. Each starts its load, lets it warm up, and compares two moments.
//!
//! A moment has the counts, clock and processor time of both sides, each by its own clock. So nothing that
//! happens outside of the window counts, and the hosts need no common time. Of a raw stream to the server, the
//! server's count is taken, because the client's sockets hold data that is still under way.

use std::time::{Duration, Instant};

use rustix::time::ClockId;
use serde::Serialize;
use tokio::time::sleep;

use super::control::{Sample, Session};
use super::load::{Count, Load, Target};
use super::plan::{Direction, Enough, Kind, Measure, Plan, Unit, WRITES};
use super::sessions::LEASE;
use crate::arguments::Proto;
use crate::commands::bench::Ends;
use crate::commands::bench::mechanisms::measure::to_float;
use crate::commands::bench::processor::{self, Ticks, cpu};
use crate::exit::Failure;

/// Time between two samples, at most, so that the session stays open.
const RENEW: Duration = Duration::from_secs(LEASE.as_secs() / 15);

/// Shortest wait for an operation to end.
const MORE: Duration = Duration::from_millis(2);
/// Longest wait for the first operation to end, after the time of the measurement.
const MOST: Duration = Duration::from_secs(30);

/// A side in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Side {
    /// Length of the window by the clock of this side.
    pub(super) seconds: f64,
    /// Processor time of its process, in seconds.
    pub(super) cpu: f64,
    /// Share of all processors of its machine that worked.
    pub(super) machine: f64,
    pub(super) processors: u32,
}

/// Part of a measurement, for the lines that show its course.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// End of the part, in seconds since the start of the window.
    pub(super) until: f64,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    /// Bytes a second, or calls a second of measures without data.
    pub(super) rate: f64,
}

/// Result of a window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) measure: Measure,
    /// Bytes of a write of a raw stream, or of data of a call.
    pub(super) size: u32,
    pub(super) depth: u32,
    pub(super) connections: u32,
    /// In the unit of the measure: bytes or calls a second, or seconds.
    pub(super) value: f64,
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    /// Times of operations in microseconds: the median, and the 99th percentile.
    pub(super) percentiles: Option<(f64, f64)>,
    /// Bytes a second to the server and from it, of a measure of both at the same time.
    pub(super) directions: Option<(f64, f64)>,
    pub(super) client: Side,
    pub(super) server: Side,
    /// Other sessions that were open at the server.
    pub(super) others: u32,
    pub(super) intervals: Vec<Interval>,
}

/// Takes the measure, its size, and a part of it.
pub(crate) type Show<'a> = dyn Fn(Measure, u32, &Interval) -> Result<(), Failure> + Sync + 'a;

/// State of both sides.
struct Moment {
    at: Instant,
    count: Count,
    cpu: Duration,
    ticks: Ticks,
    server: Sample,
}

impl Moment {
    /// Returns whether anything has ended since an earlier moment that counts for this measure.
    const fn counts_since(&self, before: &Self, measure: Measure) -> bool {
        let (came, was, is) = (self.server.received > before.server.received, before.count, self.count);
        match measure {
            Measure::StreamTo => came,
            Measure::StreamFrom => is.from > was.from,
            Measure::StreamTogether => came && is.from > was.from,
            _ => is.calls > was.calls,
        }
    }
}

/// The parts of a measurement.
struct Course {
    measure: Measure,
    size: u32,
    /// The last part's end, with the counts until then.
    last: Option<(Instant, Count)>,
    parts: Vec<Interval>,
}

impl Course {
    /// Ends and shows a part, if it is long enough or the last one.
    fn look(
        &mut self,
        start: &Moment,
        count: Count,
        interval: Duration,
        is_last: bool,
        show: &Show<'_>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        let (at, before) = self.last.unwrap_or((start.at, start.count));
        if !is_last && now - at < interval {
            return Ok(());
        }
        let (bytes_since, calls_since) = (count.bytes() - before.bytes(), count.calls - before.calls);
        let counted = if self.measure.unit() == Unit::Bytes { bytes_since } else { calls_since };
        let part = Interval {
            until: (now - start.at).as_secs_f64(),
            bytes: bytes_since,
            calls: calls_since,
            rate: to_float(counted) / (now - at).as_secs_f64().max(1e-9),
        };
        self.last = Some((now, count));
        self.parts.push(part);
        show(self.measure, self.size, &part)
    }
}

/// Measures by a session.
pub(super) struct Runner<'a> {
    pub(super) session: &'a Session,
    pub(super) ends: &'a Ends,
    pub(super) plan: &'a Plan,
    /// Length of the parts that are shown; `None` for none.
    pub(super) interval: Option<Duration>,
    /// Takes each part.
    pub(super) show: &'a Show<'a>,
}

impl Runner<'_> {
    /// Runs a measure. Of the write sizes of a raw stream, the fastest is the result.
    pub(super) async fn run(&self, measure: Measure) -> Result<Window, Failure> {
        let (time, size) = (self.plan.time_of(measure), self.plan.size);
        let window = if measure.kind() == Kind::Stream {
            let part = time / u32::try_from(WRITES.len()).unwrap_or(1);
            let mut best: Option<Window> = None;
            for size in WRITES {
                let window = self.window(measure, size, part).await?;
                if best.as_ref().is_none_or(|best| window.value > best.value) {
                    best = Some(window);
                }
            }
            best.ok_or_else(|| Failure::failed("no write size"))?
        } else {
            self.window(measure, measure.bytes(size), time).await?
        };
        let scale = if measure.unit() == Unit::Nanoseconds { 1e9 } else { 1.0 };
        self.session.report(measure, whole(window.value * scale)).await?;
        Ok(window)
    }

    fn target(&self, measure: Measure, size: u32) -> Target {
        let to = match measure.proto() {
            None => self.session.raw(),
            Some(Proto::Rdma) => self.session.rdma(),
            Some(Proto::Tcp) => self.session.tcp(),
        };
        let (session, depth) = (self.session.granted.session, measure.depth(self.plan.depth));
        Target { ends: self.ends.clone(), to, session, measure, depth, size }
    }

    /// Measures for this time, and longer until something has ended that counts.
    async fn window(&self, measure: Measure, size: u32, time: Duration) -> Result<Window, Failure> {
        let connections = measure.connections(self.plan.connections);
        let targets: Vec<Target> = measure.parts().into_iter().map(|part| self.target(part, size)).collect();
        let mut load = Load::start(&targets, connections).await?;
        self.wait(&mut load, self.plan.warm_up(time)).await?;
        load.measure(true);
        let before = self.moment(&load).await?;
        let mut course = Course { measure, size, last: None, parts: Vec::new() };
        let mut renewed = Instant::now();
        let enough = self.plan.enough(measure);
        let look = if enough.is_some() { MORE } else { RENEW };
        let after = loop {
            let left = time.saturating_sub(before.at.elapsed()).max(MORE);
            self.wait(&mut load, left.min(self.interval.unwrap_or(RENEW)).min(look)).await?;
            let mut end = None;
            if before.at.elapsed() >= time
                || enough.is_some_and(|enough| is_enough(enough, before.count, load.count()))
            {
                let after = self.moment(&load).await?;
                let counts = after.counts_since(&before, measure) || before.at.elapsed() >= time + MOST;
                end = counts.then_some(after);
            }
            if let Some(interval) = self.interval {
                course.look(&before, load.count(), interval, end.is_some(), self.show)?;
            }
            if let Some(after) = end {
                break after;
            }
            if renewed.elapsed() >= RENEW {
                self.session.sample().await?;
                renewed = Instant::now();
            }
        };
        load.measure(false);
        let trips = load.take_trips();
        load.stop().await?;
        let (depth, processors) = (measure.depth(self.plan.depth), self.session.granted.processors);
        let window = Window::between(measure, &before, &after, trips, processors);
        Ok(Window { size, depth, connections, intervals: course.parts, ..window })
    }

    /// Waits, or until a connection fails.
    async fn wait(&self, load: &mut Load, time: Duration) -> Result<(), Failure> {
        tokio::select! {
            () = sleep(time) => Ok(()),
            failure = load.failure() => Err(failure),
        }
    }

    async fn moment(&self, load: &Load) -> Result<Moment, Failure> {
        let (at, count) = (Instant::now(), load.count());
        let (cpu, ticks) = (cpu(ClockId::ProcessCPUTime), Ticks::now());
        Ok(Moment { at, count, cpu, ticks, server: self.session.sample().await? })
    }
}

impl Window {
    /// Compares two moments. Settings and intervals are for the caller to add.
    fn between(
        measure: Measure,
        before: &Moment,
        after: &Moment,
        mut trips: Vec<u32>,
        processors: u32,
    ) -> Self {
        let client = Side {
            seconds: (after.at - before.at).as_secs_f64(),
            cpu: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
            machine: share(before.ticks, after.ticks),
            processors: processor::count(),
        };
        let (was, is) = (&before.server, &after.server);
        let nanoseconds = |from: u64, to: u64| to_float(to.saturating_sub(from)) / 1e9;
        let ticks = |sample: &Sample| Ticks { busy: sample.busy, all: sample.all };
        let server = Side {
            seconds: nanoseconds(was.clock, is.clock),
            cpu: nanoseconds(was.cpu, is.cpu),
            machine: share(ticks(was), ticks(is)),
            processors,
        };
        let calls = after.count.calls - before.count.calls;
        let (mut to, mut from) = (after.count.to - before.count.to, after.count.from - before.count.from);
        let mut seconds = client.seconds;
        if measure.parts().contains(&Measure::StreamTo) {
            to = is.received.saturating_sub(was.received);
        }
        if measure == Measure::StreamTo {
            (from, seconds) = (0, server.seconds);
        }
        let bytes = to + from;
        let rate = |bytes| to_float(bytes) / seconds.max(1e-9);
        let directions = (measure.direction() == Direction::Together).then(|| (rate(to), rate(from)));
        trips.sort_unstable();
        let at = |percent: usize| {
            let rank = (trips.len() * percent).div_ceil(100).saturating_sub(1);
            trips.get(rank).map(|nanoseconds| f64::from(*nanoseconds) / 1e3)
        };
        let percentiles = at(50).zip(at(99));
        let value = match measure.unit() {
            Unit::Bytes => to_float(bytes) / seconds.max(1e-9),
            Unit::Calls => to_float(calls) / seconds.max(1e-9),
            Unit::Nanoseconds => percentiles.map_or(0.0, |(median, _)| median / 1e6),
        };
        Self {
            measure,
            size: 0,
            depth: 0,
            connections: 0,
            value,
            seconds,
            bytes,
            calls,
            percentiles,
            directions,
            client,
            server,
            others: was.others.max(is.others),
            intervals: Vec::new(),
        }
    }
}

/// Returns whether the counts since the beginning suffice.
const fn is_enough(enough: Enough, before: Count, now: Count) -> bool {
    match enough {
        Enough::Bytes(bytes) => now.bytes() - before.bytes() >= bytes,
        Enough::Calls(calls) => now.calls - before.calls >= calls,
    }
}

/// Returns the share of the ticks between two moments in which processors worked.
fn share(before: Ticks, after: Ticks) -> f64 {
    let busy = to_float(after.busy.saturating_sub(before.busy));
    busy / to_float(after.all.saturating_sub(before.all).max(1))
}

/// Returns a number without its fraction.
fn whole(value: f64) -> u64 {
    // Values are rates and times: not negative, and far below 2^63.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate or a time")]
    let whole = value as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(from: u64, calls: u64) -> Count {
        Count { to: 0, from, calls }
    }

    fn moment(at: Instant, count: u64, server: Sample) -> Moment {
        let ticks = Ticks { busy: 10 * count, all: 40 * count };
        Moment { at, count: counts(100 * count, count), cpu: Duration::from_secs(count), ticks, server }
    }

    /// A part ends after its time, and the last one with the measurement.
    #[test]
    fn parts_have_the_rates_of_their_time() {
        let start = moment(Instant::now() - Duration::from_secs(2), 1, Sample::default());
        let mut course = Course { measure: Measure::RdmaRead, size: 1, last: None, parts: Vec::new() };
        let shown = std::sync::Mutex::new(0);
        let show = |_, _, _: &Interval| {
            *shown.lock().unwrap() += 1;
            Ok(())
        };
        let mut look = |counts, interval, last| {
            course.look(&start, counts, Duration::from_secs(interval), last, &show).unwrap();
            course.parts.len()
        };
        assert_eq!(look(counts(500, 5), 60, false), 0);
        assert_eq!(look(counts(500, 5), 1, false), 1);
        assert_eq!(look(counts(600, 6), 60, false), 1);
        assert_eq!(look(counts(700, 7), 60, true), 2);
        assert_eq!(*shown.lock().unwrap(), 2);
        let parts: Vec<_> = course.parts.iter().map(|part| (part.bytes, part.calls)).collect();
        assert_eq!(parts, [(400, 4), (200, 2)]);
        // At least two seconds have passed.
        assert!(course.parts[0].rate <= 200.0 && course.parts[0].until >= 2.0);
    }

    /// Without an operation that ended there is no result.
    #[test]
    fn a_measurement_goes_on_until_something_counts() {
        let now = Instant::now();
        let got = Sample { received: 1, ..Sample::default() };
        let (before, idle) = (moment(now, 1, Sample::default()), moment(now, 1, got));
        let (busy, both) = (moment(now, 2, Sample::default()), moment(now, 2, got));
        for measure in Measure::ALL {
            let (to, together) = (measure == Measure::StreamTo, measure == Measure::StreamTogether);
            assert_eq!(idle.counts_since(&before, measure), to, "{measure:?}");
            assert_eq!(busy.counts_since(&before, measure), !to && !together, "{measure:?}");
            assert!(both.counts_since(&before, measure), "{measure:?}");
        }
    }

    #[test]
    fn a_count_ends_a_measurement() {
        let (before, now) = (counts(100, 10), counts(300, 13));
        for (enough, ends) in [
            (Enough::Bytes(200), true),
            (Enough::Bytes(201), false),
            (Enough::Calls(3), true),
            (Enough::Calls(4), false),
        ] {
            assert_eq!(is_enough(enough, before, now), ends, "{enough:?}");
        }
    }

    #[test]
    fn a_window_counts_each_side_by_its_own_clock() {
        let now = Instant::now();
        let server = Sample { clock: 7_000_000_000, cpu: 5, busy: 50, all: 100, received: 1000, others: 2 };
        let later = Sample {
            clock: 11_000_000_000,
            cpu: 2_000_000_005,
            busy: 150,
            all: 200,
            received: 9000,
            others: 0,
        };
        let (before, after) = (moment(now, 1, server), moment(now + Duration::from_secs(2), 4, later));
        let trips: Vec<u32> = (1..=100).rev().map(|us| us * 1000).collect();
        let of = |measure| Window::between(measure, &before, &after, trips.clone(), 8);
        let read = of(Measure::RdmaRead);
        assert_eq!((read.bytes, read.calls, read.value, read.seconds), (300, 3, 150.0, 2.0));
        assert_eq!(read.client.cpu, 3.0);
        assert_eq!(read.client.machine, 0.25);
        let side = Side { seconds: 4.0, cpu: 2.0, machine: 1.0, processors: 8 };
        assert_eq!((read.server, read.others), (side, 2));
        assert_eq!(read.percentiles, Some((50.0, 99.0)));
        // The server's count, in the server's time.
        let stream = of(Measure::StreamTo);
        assert_eq!((stream.bytes, stream.value, stream.seconds), (8000, 2000.0, 4.0));
        assert_eq!((stream.directions, read.directions), (None, None));
        let both = of(Measure::StreamTogether);
        assert_eq!((both.bytes, both.value, both.directions), (8300, 4150.0, Some((4000.0, 150.0))));
        assert_eq!(of(Measure::RdmaNull).value, 1.5);
        assert_eq!(of(Measure::PingPong).value, 50.0 / 1e6);
        assert_eq!(Window::between(Measure::PingPong, &before, &after, Vec::new(), 8).value, 0.0);
    }
}
