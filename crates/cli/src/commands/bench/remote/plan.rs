//! The measures between two hosts: their order, names, units and bases.

use std::time::Duration;

use clap::ValueEnum;
use rpcrdma_xdr::Xdr;

use crate::arguments::Proto;

/// Bytes of the writes that the raw streams try. The fastest is the base.
pub(super) const WRITES: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Longest unmeasured beginning of a measurement, in which windows and caches grow.
const WARM_UP: Duration = Duration::from_millis(300);
/// Longest time of a measure that ends by a count, in any case.
const COUNTED: Duration = Duration::from_secs(60);
/// Time of the session beyond all measurements: connections, samples, and their ends.
const SLACK: Duration = Duration::from_secs(60);

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// First to the server, then from it
    Both,
    /// Only to the server: stream, WRITE
    To,
    /// Only from the server: stream, READ
    From,
    /// Both at the same time, each on its own connections
    Together,
}

impl Direction {
    const fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Together, Self::Together) | (_, Self::Both) => true,
            (Self::Together, _) | (_, Self::Together) => false,
            (Self::Both, _) | (Self::To, Self::To) | (Self::From, Self::From) => true,
            (Self::To, Self::From) | (Self::From, Self::To) => false,
        }
    }
}

/// Kind of measure, to select some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Streams on raw TCP
    Stream,
    /// A ping-pong of 128 bytes on raw TCP
    Ping,
    /// NULL calls: one after the other, and at --depth
    Null,
    /// Calls and replies of the lengths that metadata operations of NFS have
    Metadata,
    /// Calls that bring data to the server
    Write,
    /// Calls that fetch data from the server
    Read,
}

/// A measure. The control protocol has these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub(crate) enum Measure {
    StreamTo = 0,
    StreamFrom = 1,
    PingPong = 2,
    RdmaTrip = 3,
    TcpTrip = 4,
    RdmaNull = 5,
    TcpNull = 6,
    RdmaWrite = 7,
    TcpWrite = 8,
    RdmaRead = 9,
    TcpRead = 10,
    RdmaMetadata = 11,
    TcpMetadata = 12,
    StreamTogether = 13,
    RdmaTogether = 14,
    TcpTogether = 15,
}

/// Unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Calls,
    Nanoseconds,
}

impl Unit {
    /// Returns the unit of values in documents.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes/s",
            Self::Calls => "calls/s",
            Self::Nanoseconds => "seconds",
        }
    }

    /// Shows a value, bytes in this unit, if one is given.
    pub(super) fn show_in(self, value: f64, format: Option<Format>) -> String {
        match (self, format) {
            (Self::Bytes, Some(format)) => format.show(value),
            _ => self.show(value),
        }
    }

    /// Shows a value: bytes or calls a second, or seconds.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Bytes if value < 1e7 => format!("{:.3} MB/s", value / 1e6),
            Self::Bytes if value < 1e9 => format!("{:.1} MB/s", value / 1e6),
            Self::Bytes => format!("{:.2} GB/s", value / 1e9),
            Self::Calls => format!("{value:.0} calls/s"),
            Self::Nanoseconds => format!("{:.1} us", value * 1e6),
        }
    }
}

/// Unit of bytes a second in text: bits by powers of 1000, or bytes by powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Kbit/s
    #[value(name = "k")]
    Kilobits,
    /// Mbit/s
    #[value(name = "m")]
    Megabits,
    /// Gbit/s
    #[value(name = "g")]
    Gigabits,
    /// KiB/s
    #[value(name = "K")]
    Kibibytes,
    /// MiB/s
    #[value(name = "M")]
    Mebibytes,
    /// GiB/s
    #[value(name = "G")]
    Gibibytes,
}

impl Format {
    fn show(self, bytes: f64) -> String {
        let (value, unit) = match self {
            Self::Kilobits => (bytes * 8.0 / 1e3, "Kbit/s"),
            Self::Megabits => (bytes * 8.0 / 1e6, "Mbit/s"),
            Self::Gigabits => (bytes * 8.0 / 1e9, "Gbit/s"),
            Self::Kibibytes => (bytes / 1024.0, "KiB/s"),
            Self::Mebibytes => (bytes / (1024.0 * 1024.0), "MiB/s"),
            Self::Gibibytes => (bytes / (1024.0 * 1024.0 * 1024.0), "GiB/s"),
        };
        if value < 100.0 { format!("{value:.2} {unit}") } else { format!("{value:.0} {unit}") }
    }
}

impl Measure {
    /// All measures, in their order.
    pub(super) const ALL: [Self; 16] = [
        Self::StreamTo,
        Self::StreamFrom,
        Self::StreamTogether,
        Self::PingPong,
        Self::RdmaTrip,
        Self::TcpTrip,
        Self::RdmaNull,
        Self::TcpNull,
        Self::RdmaMetadata,
        Self::TcpMetadata,
        Self::RdmaWrite,
        Self::TcpWrite,
        Self::RdmaRead,
        Self::TcpRead,
        Self::RdmaTogether,
        Self::TcpTogether,
    ];

    /// Returns the name in tables.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::StreamTo => "TCP stream to the server",
            Self::StreamFrom => "TCP stream from the server",
            Self::PingPong => "TCP ping-pong of 128 B",
            Self::RdmaTrip => "NULL over RDMA, one at a time",
            Self::TcpTrip => "NULL over RPC/TCP, one at a time",
            Self::RdmaNull => "NULL over RDMA",
            Self::TcpNull => "NULL over RPC/TCP",
            Self::RdmaMetadata => "metadata over RDMA",
            Self::TcpMetadata => "metadata over RPC/TCP",
            Self::RdmaWrite => "WRITE over RDMA",
            Self::TcpWrite => "WRITE over RPC/TCP",
            Self::RdmaRead => "READ over RDMA",
            Self::TcpRead => "READ over RPC/TCP",
            Self::StreamTogether => "TCP streams both ways",
            Self::RdmaTogether => "WRITE and READ over RDMA",
            Self::TcpTogether => "WRITE and READ over RPC/TCP",
        }
    }

    /// Returns the name in documents.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StreamTo => "stream-to",
            Self::StreamFrom => "stream-from",
            Self::PingPong => "ping-pong",
            Self::RdmaTrip | Self::TcpTrip => "null-trip",
            Self::RdmaNull | Self::TcpNull => "null",
            Self::RdmaMetadata | Self::TcpMetadata => "metadata",
            Self::RdmaWrite | Self::TcpWrite => "write",
            Self::RdmaRead | Self::TcpRead => "read",
            Self::StreamTogether => "stream-together",
            Self::RdmaTogether | Self::TcpTogether => "write-read",
        }
    }

    /// Returns the measures whose connections work at the same time: this one, or one for each direction.
    pub(super) fn parts(self) -> Vec<Self> {
        match self {
            Self::StreamTogether => vec![Self::StreamTo, Self::StreamFrom],
            Self::RdmaTogether => vec![Self::RdmaWrite, Self::RdmaRead],
            Self::TcpTogether => vec![Self::TcpWrite, Self::TcpRead],
            one => vec![one],
        }
    }

    /// Returns the RPC transport; `None` for raw TCP.
    pub(super) const fn proto(self) -> Option<Proto> {
        match self {
            Self::StreamTo | Self::StreamFrom | Self::StreamTogether | Self::PingPong => None,
            Self::RdmaTrip
            | Self::RdmaNull
            | Self::RdmaMetadata
            | Self::RdmaWrite
            | Self::RdmaRead
            | Self::RdmaTogether => Some(Proto::Rdma),
            Self::TcpTrip
            | Self::TcpNull
            | Self::TcpMetadata
            | Self::TcpWrite
            | Self::TcpRead
            | Self::TcpTogether => Some(Proto::Tcp),
        }
    }

    /// Returns the name of the transport in documents.
    pub(super) const fn transport(self) -> &'static str {
        match self.proto() {
            None => "raw",
            Some(proto) => proto.name(),
        }
    }

    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::StreamTo | Self::StreamFrom | Self::StreamTogether => Kind::Stream,
            Self::PingPong => Kind::Ping,
            Self::RdmaTrip | Self::TcpTrip | Self::RdmaNull | Self::TcpNull => Kind::Null,
            Self::RdmaMetadata | Self::TcpMetadata => Kind::Metadata,
            Self::RdmaWrite | Self::TcpWrite => Kind::Write,
            Self::RdmaRead | Self::TcpRead | Self::RdmaTogether | Self::TcpTogether => Kind::Read,
        }
    }

    pub(super) const fn direction(self) -> Direction {
        match self {
            Self::StreamTo | Self::RdmaWrite | Self::TcpWrite => Direction::To,
            Self::StreamFrom | Self::RdmaRead | Self::TcpRead => Direction::From,
            Self::StreamTogether | Self::RdmaTogether | Self::TcpTogether => Direction::Together,
            _ => Direction::Both,
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self.kind() {
            Kind::Stream | Kind::Write | Kind::Read => Unit::Bytes,
            Kind::Ping => Unit::Nanoseconds,
            Kind::Null if matches!(self, Self::RdmaTrip | Self::TcpTrip) => Unit::Nanoseconds,
            Kind::Null | Kind::Metadata => Unit::Calls,
        }
    }

    /// Returns the raw measure in the same direction, with the same unit.
    pub(super) const fn base(self) -> Option<Self> {
        match self {
            Self::RdmaWrite | Self::TcpWrite => Some(Self::StreamTo),
            Self::RdmaRead | Self::TcpRead => Some(Self::StreamFrom),
            Self::RdmaTogether | Self::TcpTogether => Some(Self::StreamTogether),
            Self::RdmaTrip | Self::TcpTrip => Some(Self::PingPong),
            _ => None,
        }
    }

    /// Returns the operations in flight on a connection. Raw streams have none.
    pub(super) const fn depth(self, asked: u32) -> u32 {
        match self.unit() {
            Unit::Nanoseconds => 1,
            _ if self.proto().is_none() => 1,
            _ => asked,
        }
    }

    /// Returns the connections of each direction. Latency is that of one.
    pub(super) const fn connections(self, asked: u32) -> u32 {
        if matches!(self.unit(), Unit::Nanoseconds) { 1 } else { asked }
    }

    /// Returns the bytes of an operation, other than of a write of a raw stream.
    pub(super) const fn bytes(self, asked: u32) -> u32 {
        match self.kind() {
            Kind::Write | Kind::Read => asked,
            Kind::Stream | Kind::Ping | Kind::Null | Kind::Metadata => 0,
        }
    }
}

/// The count that ends a measure before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enough {
    /// Bytes of data, of measures that have data.
    Bytes(u64),
    /// Calls, of measures that make calls.
    Calls(u64),
}

/// The measures of a client, and their settings.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(super) connections: u32,
    /// Calls in flight on each connection.
    pub(super) depth: u32,
    /// Bytes of data of each call.
    pub(super) size: u32,
    /// Time of each measure. Raw streams divide it among their write sizes.
    pub(super) time: Duration,
    pub(super) direction: Direction,
    /// Kinds of measures; if empty, all.
    pub(super) only: Vec<Kind>,
    /// RPC transport; `None` for both.
    pub(super) proto: Option<Proto>,
    /// Unmeasured beginning of each measurement; `None` for the default.
    pub(super) omit: Option<Duration>,
    /// The count that ends a measure before its time.
    pub(super) enough: Option<Enough>,
}

impl Plan {
    /// Returns the measures in their order.
    pub(super) fn measures(&self) -> Vec<Measure> {
        Measure::ALL
            .into_iter()
            .filter(|measure| {
                self.only.is_empty() || measure.parts().iter().any(|part| self.only.contains(&part.kind()))
            })
            .filter(|measure| self.direction.covers(measure.direction()))
            .filter(|measure| match (self.proto, measure.proto()) {
                (Some(only), Some(proto)) => only == proto,
                _ => true,
            })
            .collect()
    }

    /// Returns the unmeasured beginning of a measurement of this time.
    pub(super) fn warm_up(&self, time: Duration) -> Duration {
        self.omit.unwrap_or_else(|| (time / 3).min(WARM_UP))
    }

    /// Returns the count that ends this measure before its time, if one does.
    pub(super) fn enough(&self, measure: Measure) -> Option<Enough> {
        self.enough.filter(|enough| match enough {
            Enough::Bytes(_) => measure.unit() == Unit::Bytes,
            Enough::Calls(_) => measure.proto().is_some() || measure.kind() == Kind::Ping,
        })
    }

    /// Returns the time of a measure: the longest one, if a count ends it.
    pub(super) fn time_of(&self, measure: Measure) -> Duration {
        if self.enough(measure).is_some() { self.time.max(COUNTED) } else { self.time }
    }

    /// Returns the connections that the session has at the same time.
    pub(super) fn all_connections(&self) -> u32 {
        let directions = if self.direction == Direction::Together { 2 } else { 1 };
        self.connections.saturating_mul(directions)
    }

    /// Returns the time that the session needs, in whole seconds.
    pub(super) fn seconds(&self) -> u32 {
        let sum = |sum: Duration, measure: Measure| {
            // A raw stream has a beginning for each of its write sizes.
            let beginnings = if measure.kind() == Kind::Stream { WRITES.len() } else { 1 };
            let omitted =
                self.omit.unwrap_or_default().saturating_mul(u32::try_from(beginnings).unwrap_or(1));
            sum.saturating_add(self.time_of(measure)).saturating_add(omitted.max(WARM_UP))
        };
        let whole = self.measures().into_iter().fold(SLACK, sum);
        u32::try_from(whole.as_secs()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            connections: 2,
            depth: 16,
            size: 1 << 20,
            time: Duration::from_secs(3),
            direction: Direction::Both,
            only: Vec::new(),
            proto: None,
            omit: None,
            enough: None,
        }
    }

    #[test]
    fn a_plan_has_every_measure_unless_told_otherwise() {
        let mut one_by_one = Measure::ALL.to_vec();
        one_by_one.retain(|measure| measure.direction() != Direction::Together);
        assert_eq!(plan().measures(), one_by_one);
        let from = Plan { direction: Direction::From, proto: Some(Proto::Rdma), ..plan() };
        let names: Vec<_> = from.measures().into_iter().map(Measure::name).collect();
        assert_eq!(names, ["stream-from", "ping-pong", "null-trip", "null", "metadata", "read"]);
        let only = Plan { only: vec![Kind::Write, Kind::Stream], direction: Direction::To, ..plan() };
        assert_eq!(only.measures(), [Measure::StreamTo, Measure::RdmaWrite, Measure::TcpWrite]);
        let together = Plan { direction: Direction::Together, proto: Some(Proto::Rdma), ..plan() };
        let names: Vec<_> = together.measures().into_iter().map(Measure::name).collect();
        assert_eq!(names, ["stream-together", "ping-pong", "null-trip", "null", "metadata", "write-read"]);
        assert_eq!((together.all_connections(), plan().all_connections()), (4, 2));
        let only = Plan { only: vec![Kind::Write], ..together };
        assert_eq!(only.measures(), [Measure::RdmaTogether]);
    }

    #[test]
    fn a_count_ends_the_measures_that_it_is_about() {
        let bytes = Plan { enough: Some(Enough::Bytes(1 << 30)), ..plan() };
        let calls = Plan { enough: Some(Enough::Calls(1000)), ..plan() };
        for (measure, by_bytes, by_calls) in [
            (Measure::StreamTo, true, false),
            (Measure::PingPong, false, true),
            (Measure::RdmaTrip, false, true),
            (Measure::RdmaRead, true, true),
        ] {
            assert_eq!(
                (bytes.enough(measure).is_some(), calls.enough(measure).is_some()),
                (by_bytes, by_calls)
            );
            let time = if by_bytes { COUNTED } else { bytes.time };
            assert_eq!(bytes.time_of(measure), time);
        }
    }

    #[test]
    fn a_base_has_the_unit_and_the_direction_of_its_measure() {
        for measure in Measure::ALL {
            if let Some(base) = measure.base() {
                assert_eq!((base.unit(), base.direction()), (measure.unit(), measure.direction()));
                assert_eq!(base.proto(), None);
            }
        }
    }

    #[test]
    fn a_session_is_long_enough() {
        assert_eq!(plan().seconds(), 60 + 42);
        assert_eq!(Plan { time: Duration::MAX / 2, ..plan() }.seconds(), u32::MAX);
        let omit =
            Plan { omit: Some(Duration::from_secs(2)), only: vec![Kind::Stream, Kind::Ping], ..plan() };
        assert_eq!(omit.seconds(), 60 + (3 + 6) + (3 + 6) + (3 + 2));
    }

    #[test]
    fn values_have_their_units() {
        assert_eq!(Unit::Bytes.show(2.345e9), "2.35 GB/s");
        assert_eq!(Unit::Bytes.show(117.6e6), "117.6 MB/s");
        assert_eq!(Unit::Bytes.show(1.25e6), "1.250 MB/s");
        assert_eq!(Unit::Calls.show(12_345.6), "12346 calls/s");
        assert_eq!(Unit::Calls.show_in(1.0, Some(Format::Gigabits)), "1 calls/s");
        for (format, shown) in [
            (Format::Kilobits, "936000 Kbit/s"),
            (Format::Megabits, "936 Mbit/s"),
            (Format::Gigabits, "0.94 Gbit/s"),
            (Format::Kibibytes, "114258 KiB/s"),
            (Format::Mebibytes, "112 MiB/s"),
            (Format::Gibibytes, "0.11 GiB/s"),
        ] {
            assert_eq!(Unit::Bytes.show_in(117e6, Some(format)), shown);
        }
        assert_eq!(Unit::Nanoseconds.show(0.000_012_34), "12.3 us");
    }
}
