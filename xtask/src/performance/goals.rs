//! The measures with their goals, in the order of the table: which are taken together, and what that needs.

use std::time::Duration;

use super::figure::Figure;
use super::lab::Lab;
use super::{calls, connections, copies, kerberos, loopback, nfs, scaling, tls, wire};
use crate::failure::Failure;
use crate::needs::Needs;

/// A goal for a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// None: the number is for comparison.
    Information,
}

impl Goal {
    /// Returns whether a number reaches the goal; `None` without one.
    pub(crate) fn is_met(self, measured: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(measured >= bound),
            Self::AtMost(bound) => Some(measured <= bound),
            Self::Information => None,
        }
    }
}

/// The unit of a measured value and its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes a second.
    Rate,
    /// Calls a second.
    Calls,
    /// Seconds of processor time.
    Cpu,
    /// Seconds from the start of a command to its end.
    Time,
    /// Seconds of a round trip.
    Trip,
    /// Bytes.
    Memory,
    /// A number of things.
    Count,
}

impl Unit {
    /// Returns the name in documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "bytes/s",
            Self::Calls => "calls/s",
            Self::Cpu => "CPU seconds",
            Self::Time | Self::Trip => "seconds",
            Self::Memory => "bytes",
            Self::Count => "count",
        }
    }

    /// Shows a value.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{:.2} GB/s", value / 1e9),
            Self::Calls => format!("{value:.0}/s"),
            Self::Cpu | Self::Time => format!("{value:.3} s"),
            Self::Trip => format!("{:.1} us", value * 1e6),
            Self::Memory => format!("{:.1} KiB", value / 1024.0),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) measure: &'static str,
    pub(crate) goal: Goal,
    pub(crate) unit: Unit,
    /// Whether a value is compared with a base, so that its ratio counts.
    pub(crate) is_ratio: bool,
}

impl Row {
    const fn ratio(measure: &'static str, goal: Goal, unit: Unit) -> Self {
        Self { measure, goal, unit, is_ratio: true }
    }

    const fn value(measure: &'static str, goal: Goal, unit: Unit) -> Self {
        Self { measure, goal, unit, is_ratio: false }
    }

    /// Shows a number of this row: a ratio, or a value with its unit.
    pub(crate) fn show(&self, number: f64) -> String {
        if self.is_ratio { format!("{number:.2}") } else { self.unit.show(number) }
    }
}

/// Measures of a group, in the order of its rows, and remarks for the page.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outcome {
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

/// Rows that are measured together, in namespaces of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Name on the command line.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    /// Maximum time of all rounds.
    pub(crate) limit: Duration,
    pub(crate) rows: &'static [Row],
    pub(crate) run: fn(&Lab) -> Result<Outcome, Failure>,
}

const IP: (&str, &str) = ("ip", "iproute2");
const LINK: Needs = Needs { root: true, programs: &[IP, ("ethtool", "ethtool"), ("iperf3", "iperf3")] };
const GANESHA: Needs =
    Needs { root: true, programs: &[IP, ("ganesha.nfsd", "nfs-ganesha-vfs"), ("rpcbind", "rpcbind")] };
const NAMESPACES: Needs = Needs { root: true, programs: &[IP] };
const NOTHING: Needs = Needs { root: false, programs: &[] };
const ADDRESSES: Needs = Needs { root: true, programs: &[IP] };
const REALM: Needs = Needs {
    root: false,
    programs: &[
        ("krb5kdc", "krb5-kdc"),
        ("kadmin.local", "krb5-admin-server"),
        ("kinit", "krb5-user"),
        ("openssl", "openssl"),
    ],
};
const CERTIFICATES: Needs = Needs { root: false, programs: &[("openssl", "openssl")] };
const PROCESSORS: Needs = Needs { root: false, programs: &[("taskset", "util-linux")] };

/// Maximum time of a group without much data.
const SHORT: Duration = Duration::from_secs(10 * 60);
/// Maximum time of a group that writes gigabytes to a disk.
const LONG: Duration = Duration::from_secs(40 * 60);

/// Returns the rows of a link with this MTU.
macro_rules! wire {
    ($mtu:literal) => {
        &[
            Row::ratio(concat!("cat over RDMA ÷ iperf3, veth, MTU ", $mtu), Goal::AtLeast(0.8), Unit::Rate),
            Row::ratio(
                concat!("cat over RDMA ÷ cat over TCP, veth, MTU ", $mtu),
                Goal::AtLeast(1.0),
                Unit::Rate,
            ),
            Row::ratio(
                concat!("cat over RDMA, `--no-large-fpdu` ÷ iperf3, veth, MTU ", $mtu),
                Goal::Information,
                Unit::Rate,
            ),
            Row::ratio(
                concat!("cat over RDMA, `--no-large-fpdu` ÷ cat over TCP, veth, MTU ", $mtu),
                Goal::Information,
                Unit::Rate,
            ),
            Row::ratio(concat!("cat over TCP ÷ iperf3, veth, MTU ", $mtu), Goal::Information, Unit::Rate),
        ]
    };
}

/// Returns the rows of some work for a server.
macro_rules! work {
    ($work:literal) => {
        &[
            Row::ratio(
                concat!("server CPU ÷ Ganesha's, ", $work, ", TCP on both"),
                Goal::AtMost(0.7),
                Unit::Cpu,
            ),
            Row::ratio(
                concat!("server CPU ÷ Ganesha's, ", $work, ", RDMA on ours"),
                Goal::Information,
                Unit::Cpu,
            ),
        ]
    };
}

/// Returns the rows of the time of some work with our server and with Ganesha.
macro_rules! time {
    ($work:literal) => {
        [
            Row::ratio(
                concat!("time ÷ with Ganesha, ", $work, ", TCP on both"),
                Goal::AtMost(1.0),
                Unit::Time,
            ),
            Row::ratio(
                concat!("time ÷ with Ganesha, ", $work, ", RDMA on ours"),
                Goal::Information,
                Unit::Time,
            ),
        ]
    };
}

/// Copies by our client, with our server and with Ganesha.
const COPIES: [Row; 10] = {
    let [a, b] = time!("put -r of small files");
    let [c, d] = time!("get -r of small files");
    let [e, f] = time!("rm -r of small files");
    let [g, h] = time!("put of 1 GiB");
    let [i, j] = time!("get of 1 GiB");
    [a, b, c, d, e, f, g, h, i, j]
};

/// All groups, in the order of the table.
pub(crate) static GROUPS: [Group; 17] = [
    Group {
        name: "wire-1500",
        needs: LINK,
        limit: SHORT,
        rows: wire!("1500"),
        run: |lab| wire::measure(lab, 1500),
    },
    Group {
        name: "wire-9000",
        needs: LINK,
        limit: SHORT,
        rows: wire!("9000"),
        run: |lab| wire::measure(lab, 9000),
    },
    Group {
        name: "loopback",
        needs: NOTHING,
        limit: LONG,
        rows: &[
            Row::ratio("READ over RDMA ÷ raw TCP, loopback", Goal::AtLeast(0.85), Unit::Rate),
            Row::ratio("WRITE over RDMA ÷ raw TCP, loopback", Goal::AtLeast(0.85), Unit::Rate),
            Row::ratio("pread and send of the file ÷ raw TCP, loopback", Goal::Information, Unit::Rate),
            Row::ratio("RDMA Read alone ÷ raw TCP, loopback", Goal::Information, Unit::Rate),
            Row::ratio("RDMA Write alone ÷ raw TCP, loopback", Goal::Information, Unit::Rate),
            Row::ratio("NULL ÷ ping-pong, both ends on one processor", Goal::AtMost(1.15), Unit::Trip),
            Row::ratio("NULL ÷ ping-pong, a processor for each end", Goal::Information, Unit::Trip),
        ],
        run: loopback::measure,
    },
    Group {
        name: "cat",
        needs: GANESHA,
        limit: SHORT,
        rows: work!("cat"),
        run: |lab| nfs::cpu(lab, nfs::Work::Cat),
    },
    Group {
        name: "put",
        needs: GANESHA,
        limit: LONG,
        rows: work!("put"),
        run: |lab| nfs::cpu(lab, nfs::Work::Put),
    },
    Group {
        name: "small-get",
        needs: GANESHA,
        limit: LONG,
        rows: work!("get of small files"),
        run: |lab| nfs::cpu(lab, nfs::Work::SmallGet),
    },
    Group {
        name: "small-put",
        needs: GANESHA,
        limit: LONG,
        rows: work!("put of small files"),
        run: |lab| nfs::cpu(lab, nfs::Work::SmallPut),
    },
    Group {
        name: "copies",
        needs: NAMESPACES,
        limit: LONG,
        rows: &[
            Row::ratio("time of put -r of 20,000 small files ÷ cp -r", Goal::AtMost(4.0), Unit::Time),
            Row::ratio("time of get -r of 20,000 small files ÷ cp -r", Goal::AtMost(3.0), Unit::Time),
            Row::ratio("time of put of 1 GiB ÷ cp", Goal::AtMost(1.3), Unit::Time),
            Row::ratio("time of get of 1 GiB ÷ cp", Goal::AtMost(1.3), Unit::Time),
        ],
        run: copies::measure,
    },
    Group {
        name: "removal",
        needs: NAMESPACES,
        limit: LONG,
        rows: &[Row::value("time of rm -r of 100,000 small files", Goal::AtMost(1.5), Unit::Time)],
        run: copies::removal,
    },
    Group { name: "copies-ganesha", needs: GANESHA, limit: LONG, rows: &COPIES, run: copies::with_ganesha },
    Group {
        name: "reads",
        needs: GANESHA,
        limit: SHORT,
        rows: &[
            Row::ratio(
                "random READs of 4 KiB, depth 32 ÷ Ganesha's, TCP on both",
                Goal::AtLeast(1.5),
                Unit::Calls,
            ),
            Row::ratio(
                "random READs of 4 KiB, depth 32 ÷ Ganesha's, RDMA on ours",
                Goal::Information,
                Unit::Calls,
            ),
        ],
        run: nfs::reads,
    },
    Group {
        name: "calls",
        needs: NOTHING,
        limit: SHORT,
        rows: &[Row::ratio("NULL calls, 64 connections ÷ 1, depth 1 each", Goal::AtLeast(4.0), Unit::Calls)],
        run: calls::measure,
    },
    Group {
        name: "scaling",
        needs: PROCESSORS,
        limit: SHORT,
        rows: &[
            Row::ratio("NULL calls, 2 connections ÷ 1, depth 16 each", Goal::Information, Unit::Calls),
            Row::ratio("NULL calls, 4 connections ÷ 1, depth 16 each", Goal::Information, Unit::Calls),
            Row::ratio("NULL calls, 8 connections ÷ 1, depth 16 each", Goal::Information, Unit::Calls),
            Row::ratio("READ of 1 MiB, 2 connections ÷ 1, depth 16 each", Goal::Information, Unit::Rate),
            Row::ratio("READ of 1 MiB, 4 connections ÷ 1, depth 16 each", Goal::Information, Unit::Rate),
            Row::ratio("READ of 1 MiB, 8 connections ÷ 1, depth 16 each", Goal::Information, Unit::Rate),
            Row::ratio(
                "NULL calls, 8 connections, server on 2 processors ÷ on 1",
                Goal::Information,
                Unit::Calls,
            ),
            Row::ratio(
                "READ of 1 MiB, 8 connections, server on 2 processors ÷ on 1",
                Goal::Information,
                Unit::Rate,
            ),
            Row::ratio("server CPU of a NULL call, 8 connections ÷ 1", Goal::Information, Unit::Trip),
            Row::ratio("server CPU of a GiB read, 8 connections ÷ 1", Goal::Information, Unit::Cpu),
        ],
        run: scaling::measure,
    },
    Group {
        name: "kerberos",
        needs: REALM,
        limit: SHORT,
        rows: &[
            Row::ratio("READ of 1 MiB over RDMA, krb5 ÷ sys", Goal::AtLeast(0.95), Unit::Rate),
            Row::ratio(
                "READ of 1 MiB over RDMA, krb5i ÷ HMAC-SHA1 by OpenSSL on one processor",
                Goal::AtLeast(0.5),
                Unit::Rate,
            ),
            Row::ratio("READ of 1 MiB over RDMA, krb5i ÷ sys", Goal::Information, Unit::Rate),
            Row::ratio("READ of 1 MiB over RDMA, krb5p ÷ sys", Goal::Information, Unit::Rate),
            Row::ratio("READ of 4 KiB over RDMA, depth 32, krb5 ÷ sys", Goal::Information, Unit::Calls),
            Row::ratio("READ of 4 KiB over RDMA, depth 32, krb5i ÷ sys", Goal::Information, Unit::Calls),
            Row::ratio("READ of 4 KiB over RDMA, depth 32, krb5p ÷ sys", Goal::Information, Unit::Calls),
            Row::ratio("server CPU of a READ of 1 MiB, krb5 ÷ sys", Goal::Information, Unit::Trip),
            Row::ratio("server CPU of a READ of 1 MiB, krb5i ÷ sys", Goal::Information, Unit::Trip),
            Row::ratio("server CPU of a READ of 1 MiB, krb5p ÷ sys", Goal::Information, Unit::Trip),
        ],
        run: kerberos::measure,
    },
    Group {
        name: "tls",
        needs: CERTIFICATES,
        limit: SHORT,
        rows: &[
            Row::ratio("READ of 1 MiB over TCP, TLS ÷ without", Goal::Information, Unit::Rate),
            Row::ratio("READ of 4 KiB over TCP, depth 32, TLS ÷ without", Goal::Information, Unit::Calls),
            Row::ratio(
                "server CPU of a READ of 1 MiB over TCP, TLS ÷ without",
                Goal::Information,
                Unit::Trip,
            ),
        ],
        run: tls::measure,
    },
    Group {
        name: "memory",
        needs: NOTHING,
        limit: SHORT,
        rows: &[Row::value("server memory of an idle connection", Goal::AtMost(16.0 * 1024.0), Unit::Memory)],
        run: loopback::memory,
    },
    Group {
        name: "connections",
        needs: ADDRESSES,
        limit: SHORT,
        rows: &[Row::value(
            "connections at once that `serve` answers, default memory and credits",
            Goal::AtLeast(5000.0),
            Unit::Count,
        )],
        run: connections::measure,
    },
];

/// Returns the names of all groups.
pub(crate) fn names() -> Vec<&'static str> {
    GROUPS.iter().map(|group| group.name).collect()
}

/// Returns the group with a name.
pub(crate) fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_a_bound() {
        assert_eq!(Goal::AtLeast(0.8).is_met(0.8), Some(true));
        assert_eq!(Goal::AtLeast(0.8).is_met(0.79), Some(false));
        assert_eq!(Goal::AtMost(0.7).is_met(0.7), Some(true));
        assert_eq!(Goal::AtMost(0.7).is_met(0.71), Some(false));
        assert_eq!(Goal::Information.is_met(9.0), None);
    }

    #[test]
    fn names_and_measures_are_unique_and_fit_a_table() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GROUPS.len());
        let mut measures: Vec<&str> =
            GROUPS.iter().flat_map(|group| group.rows).map(|row| row.measure).collect();
        assert!(measures.iter().all(|measure| !measure.contains('|')));
        let all = measures.len();
        measures.sort_unstable();
        measures.dedup();
        assert_eq!(measures.len(), all);
    }

    #[test]
    fn the_page_explains_each_group() {
        let page = include_str!("../../../docs/performance.md");
        let (_, section) = page.split_once("\n## Goals\n").unwrap();
        for name in names() {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
        assert!(section.contains(crate::page::Markers::GOALS.begin));
    }

    #[test]
    fn values_have_units_and_ratios_none() {
        let ratio = Row::ratio("a", Goal::Information, Unit::Rate);
        assert_eq!((ratio.show(0.567).as_str(), ratio.unit.show(2.345e9).as_str()), ("0.57", "2.35 GB/s"));
        let value = Row::value("a", Goal::Information, Unit::Memory);
        assert_eq!(value.show(36_700.0), "35.8 KiB");
        assert_eq!(Unit::Trip.show(0.000_012_34), "12.3 us");
        assert_eq!(
            (Unit::Calls.show(1234.5).as_str(), Unit::Count.show(5000.0).as_str()),
            ("1234/s", "5000")
        );
        assert_eq!(Unit::Cpu.show(0.4567), "0.457 s");
    }
}
