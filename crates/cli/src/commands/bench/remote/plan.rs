//! The measures between two hosts: their order, names, units and bases.

use std::time::Duration;

use clap::ValueEnum;
use rpcrdma_xdr::Xdr;

use crate::arguments::Proto;

/// Bytes of the writes that the raw streams try. The fastest is the base.
pub(super) const WRITES: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Longest unmeasured beginning of a measurement, in which windows and caches grow.
const WARM_UP: Duration = Duration::from_millis(300);
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
}

impl Direction {
    const fn covers(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Both, _) | (_, Self::Both) | (Self::To, Self::To) | (Self::From, Self::From)
        )
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

impl Measure {
    /// All measures, in their order.
    pub(super) const ALL: [Self; 13] = [
        Self::StreamTo,
        Self::StreamFrom,
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
        }
    }

    /// Returns the RPC transport; `None` for raw TCP.
    pub(super) const fn proto(self) -> Option<Proto> {
        match self {
            Self::StreamTo | Self::StreamFrom | Self::PingPong => None,
            Self::RdmaTrip | Self::RdmaNull | Self::RdmaMetadata | Self::RdmaWrite | Self::RdmaRead => {
                Some(Proto::Rdma)
            }
            Self::TcpTrip | Self::TcpNull | Self::TcpMetadata | Self::TcpWrite | Self::TcpRead => {
                Some(Proto::Tcp)
            }
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
            Self::StreamTo | Self::StreamFrom => Kind::Stream,
            Self::PingPong => Kind::Ping,
            Self::RdmaTrip | Self::TcpTrip | Self::RdmaNull | Self::TcpNull => Kind::Null,
            Self::RdmaMetadata | Self::TcpMetadata => Kind::Metadata,
            Self::RdmaWrite | Self::TcpWrite => Kind::Write,
            Self::RdmaRead | Self::TcpRead => Kind::Read,
        }
    }

    const fn direction(self) -> Direction {
        match self {
            Self::StreamTo | Self::RdmaWrite | Self::TcpWrite => Direction::To,
            Self::StreamFrom | Self::RdmaRead | Self::TcpRead => Direction::From,
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

    /// Returns the connections. Latency is that of one.
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
}

impl Plan {
    /// Returns the measures in their order.
    pub(super) fn measures(&self) -> Vec<Measure> {
        Measure::ALL
            .into_iter()
            .filter(|measure| self.only.is_empty() || self.only.contains(&measure.kind()))
            .filter(|measure| self.direction.covers(measure.direction()))
            .filter(|measure| match (self.proto, measure.proto()) {
                (Some(only), Some(proto)) => only == proto,
                _ => true,
            })
            .collect()
    }

    /// Returns the unmeasured beginning of a measurement of this time.
    pub(super) fn warm_up(time: Duration) -> Duration {
        (time / 3).min(WARM_UP)
    }

    /// Returns the time that the session needs, in whole seconds.
    pub(super) fn seconds(&self) -> u32 {
        let measures = u32::try_from(self.measures().len()).unwrap_or(u32::MAX);
        let whole = (self.time + WARM_UP).saturating_mul(measures).saturating_add(SLACK);
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
        }
    }

    #[test]
    fn a_plan_has_every_measure_unless_told_otherwise() {
        assert_eq!(plan().measures(), Measure::ALL);
        let from = Plan { direction: Direction::From, proto: Some(Proto::Rdma), ..plan() };
        let names: Vec<_> = from.measures().into_iter().map(Measure::name).collect();
        assert_eq!(names, ["stream-from", "ping-pong", "null-trip", "null", "metadata", "read"]);
        let only = Plan { only: vec![Kind::Write, Kind::Stream], direction: Direction::To, ..plan() };
        assert_eq!(only.measures(), [Measure::StreamTo, Measure::RdmaWrite, Measure::TcpWrite]);
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
    }

    #[test]
    fn values_have_their_units() {
        assert_eq!(Unit::Bytes.show(2.345e9), "2.35 GB/s");
        assert_eq!(Unit::Bytes.show(117.6e6), "117.6 MB/s");
        assert_eq!(Unit::Bytes.show(1.25e6), "1.250 MB/s");
        assert_eq!(Unit::Calls.show(12_345.6), "12346 calls/s");
        assert_eq!(Unit::Nanoseconds.show(0.000_012_34), "12.3 us");
    }
}
