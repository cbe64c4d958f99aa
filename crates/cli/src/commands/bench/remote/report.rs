//! Results of a benchmark between two hosts: the document, the table, and what limits each row.

use std::net::SocketAddr;

use serde::Serialize;

use super::control::Session;
use super::limit::{Busy, Facts, Limit};
use super::measure::{Interval, Side, Window};
use super::plan::{Format, Measure, Plan, Unit};
use crate::commands::bench::chart::{self, Bars, Panel};
use crate::commands::bench::mechanisms::measure::to_float;
use crate::commands::bench::{machine, processor};

const GIB: f64 = 1_073_741_824.0;

/// A host.
#[derive(Clone, Debug, Serialize)]
pub(in crate::commands::bench) struct Host {
    machine: String,
    processors: u32,
}

/// JSON document of a run.
#[derive(Clone, Debug, Serialize)]
pub(in crate::commands::bench) struct Document {
    address: SocketAddr,
    /// Provider of the server.
    provider: String,
    client: Host,
    server: Host,
    seconds: f64,
    connections: u32,
    depth: u32,
    size: u32,
    /// Most other clients that the server had meanwhile.
    others: u32,
    pub(in crate::commands::bench) rows: Vec<Row>,
}

/// Processor time of a side for a measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cost {
    /// Processor time of the process in the window, in seconds.
    cpu_seconds: f64,
    /// Processors that the process kept busy on average.
    busy: f64,
    /// Share of all processors of the machine that worked, for anyone.
    machine: f64,
    cpu_seconds_per_gib: Option<f64>,
    cpu_microseconds_per_call: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Directions {
    to: f64,
    from: f64,
}

/// A measure and its result.
#[derive(Clone, Debug, Serialize)]
pub(in crate::commands::bench) struct Row {
    name: &'static str,
    transport: &'static str,
    #[serde(skip)]
    measure: Measure,
    unit: &'static str,
    value: f64,
    /// Raw TCP in the same run; `None` if it was not measured, or has no such measure.
    base: Option<f64>,
    ratio: Option<f64>,
    size: u32,
    depth: u32,
    connections: u32,
    seconds: f64,
    bytes: u64,
    calls: u64,
    microseconds: Option<Percentiles>,
    /// Bytes a second each way, of a measure of both at the same time.
    directions: Option<Directions>,
    client: Cost,
    server: Cost,
    /// `None` for latency: nothing limits a single call but its own time.
    limit: Option<Limit>,
    intervals: Vec<Interval>,
}

impl Cost {
    fn of(side: &Side, window: &Window) -> Self {
        let seconds = window.seconds.max(1e-9);
        // The windows of both sides differ a little, so rates are compared.
        let busy = side.cpu / side.seconds.max(1e-9);
        let each = |count: f64| (count > 0.0).then(|| busy * seconds / count);
        Self {
            cpu_seconds: side.cpu,
            busy,
            machine: side.machine,
            cpu_seconds_per_gib: each(to_float(window.bytes) / GIB),
            cpu_microseconds_per_call: each(to_float(window.calls)).map(|seconds| seconds * 1e6),
        }
    }
}

impl Row {
    /// Returns the row of a window; `raw` is the row of the raw measure.
    pub(super) fn new(window: Window, raw: Option<&Self>, credits: u32) -> Self {
        let (client, server) = (Cost::of(&window.client, &window), Cost::of(&window.server, &window));
        let Window { measure, size, depth, connections, value, .. } = window;
        let base = raw.map(|raw| raw.value).filter(|base| *base > 0.0);
        let ratio = base.map(|base| value / base);
        let busy = |side: &Side, cost: &Cost| Busy {
            process: cost.busy,
            machine: side.machine,
            processors: side.processors,
        };
        let facts = Facts {
            client: busy(&window.client, &client),
            server: busy(&window.server, &server),
            // Those of each direction work at the same time.
            connections: connections.saturating_mul(if window.directions.is_some() { 2 } else { 1 }),
            depth: measure.proto().map(|_| depth),
            credits,
            microseconds: window.percentiles.map_or(0.0, |(median, _)| median),
            ratio,
            is_link_slow: raw.and_then(|raw| raw.limit.as_ref()).is_some_and(Limit::is_link),
        };
        Self {
            name: measure.name(),
            transport: measure.transport(),
            measure,
            unit: measure.unit().name(),
            value,
            base,
            ratio,
            size,
            depth,
            connections,
            seconds: window.seconds,
            bytes: window.bytes,
            calls: window.calls,
            microseconds: window.percentiles.map(|(p50, p99)| Percentiles { p50, p99 }),
            directions: window.directions.map(|(to, from)| Directions { to, from }),
            client,
            server,
            limit: (measure.unit() != Unit::Nanoseconds).then(|| Limit::of(&facts)),
            intervals: window.intervals,
        }
    }

    /// Returns the name of the measure in tables.
    pub(in crate::commands::bench) const fn name(&self) -> &'static str {
        self.measure.title()
    }

    /// Returns value and ratio, as a cell of a table.
    pub(in crate::commands::bench) fn cell(&self) -> String {
        let value = self.measure.unit().show(self.value);
        self.ratio.map_or_else(|| value.clone(), |ratio| format!("{value} ({ratio:.2})"))
    }

    /// Returns the processor time of client and server, as a cell of a table: for a GiB, or for a call.
    pub(in crate::commands::bench) fn cost(&self) -> String {
        let of = |cost: &Cost| cost.cpu_seconds_per_gib.or(cost.cpu_microseconds_per_call).unwrap_or(0.0);
        let (client, server) = (of(&self.client), of(&self.server));
        if self.measure.unit() == Unit::Bytes {
            format!("{client:.2} + {server:.2} s/GiB")
        } else {
            format!("{client:.1} + {server:.1} us/call")
        }
    }

    /// Returns the name of the limit, as a cell of a table.
    pub(in crate::commands::bench) fn limited_by(&self) -> String {
        self.limit.as_ref().map_or_else(String::new, |limit| limit.by.to_owned())
    }

    fn line(&self, format: Option<Format>) -> String {
        let shown = |value: Option<f64>, decimals: usize| {
            value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
        };
        let unit = self.measure.unit();
        let base = self.base.map_or_else(String::new, |base| unit.show_in(base, format));
        let (client, server) = (&self.client, &self.server);
        format!(
            "| {:<36} | {:>14} | {base:>10} | {:>5} | {:>9} | {:>9} | {:>12} | {:>12} | {:>14} | {:>14} |",
            titled(self.measure, self.size),
            unit.show_in(self.value, format),
            shown(self.ratio, 2),
            shown(self.microseconds.map(|times| times.p50), 1),
            shown(self.microseconds.map(|times| times.p99), 1),
            shown(client.cpu_seconds_per_gib, 2),
            shown(server.cpu_seconds_per_gib, 2),
            shown(client.cpu_microseconds_per_call, 1),
            shown(server.cpu_microseconds_per_call, 1),
        )
    }
}

/// Returns the name of a measure, with the write size of a raw stream.
fn titled(measure: Measure, size: u32) -> String {
    match measure {
        Measure::StreamTo | Measure::StreamFrom | Measure::StreamTogether => {
            format!("{}, {} KiB", measure.title(), size >> 10)
        }
        _ => measure.title().to_owned(),
    }
}

const HEAD: &str = "\
| what                                 |          value |    raw TCP | ratio |    p50 us |    p99 us | client s/GiB | server s/GiB | client us/call | server us/call |
| ------------------------------------ | -------------: | ---------: | ----: | --------: | --------: | -----------: | -----------: | -------------: | -------------: |";

impl Document {
    pub(super) fn new(session: &Session, plan: &Plan, windows: Vec<Window>) -> Self {
        let granted = &session.granted;
        let others = windows.iter().map(|window| window.others).max().unwrap_or(0);
        let raw: Vec<Row> = windows
            .iter()
            .filter(|window| window.measure.base().is_none())
            .map(|window| Row::new(window.clone(), None, granted.credits))
            .collect();
        let row = |window: Window| {
            let base = window.measure.base();
            let raw = raw.iter().find(|row| Some(row.measure) == base);
            Row::new(window, raw, granted.credits)
        };
        Self {
            address: session.tcp(),
            provider: granted.provider.clone(),
            client: Host { machine: machine(), processors: processor::count() },
            server: Host { machine: granted.machine.clone(), processors: granted.processors },
            seconds: plan.time.as_secs_f64(),
            connections: plan.connections,
            depth: plan.depth,
            size: plan.size,
            others,
            rows: windows.into_iter().map(row).collect(),
        }
    }

    /// Returns the settings of the measures.
    pub(in crate::commands::bench) fn load(&self) -> String {
        let Self { connections, depth, size, seconds, .. } = self;
        format!("connections {connections}, depth {depth}, size {size} B, {seconds} s for each measure")
    }

    /// Returns the lines of the table, and a sentence for each row that something limits.
    pub(super) fn lines(&self, format: Option<Format>) -> Vec<String> {
        let mut lines = vec![
            format!("client: {}", self.client.machine),
            format!("server: {} at {} ({})", self.server.machine, self.address, self.provider),
            format!("{}\n", self.load()),
        ];
        lines.extend(HEAD.lines().map(str::to_owned));
        lines.extend(self.rows.iter().map(|row| row.line(format)));
        lines.push(String::new());
        lines.extend(self.rows.iter().filter_map(|row| {
            let Directions { to, from } = row.directions?;
            let show = |rate| row.measure.unit().show_in(rate, format);
            Some(format!("{}: {} to the server, {} from it.", row.measure.title(), show(to), show(from)))
        }));
        lines.extend(self.rows.iter().filter_map(|row| {
            let limit = row.limit.as_ref()?;
            Some(format!("{}: {}.", row.measure.title(), limit.text))
        }));
        if self.others > 0 {
            lines.push(format!(
                "Other clients measured meanwhile, up to {}: the server's CPU and rates include their work.",
                self.others
            ));
        }
        lines
    }
}

/// Draws the ratios of documents to raw TCP, each with its name. All have measured the same.
pub(in crate::commands::bench) fn draw(head: &str, documents: &[(String, &Document)]) -> String {
    let series: Vec<String> = documents.iter().map(|(name, _)| name.clone()).collect();
    let rows = documents.first().map_or(&[][..], |(_, document)| &document.rows);
    let panel = |title, unit| {
        let chosen = rows.iter().filter(|row| row.measure.unit() == unit && row.ratio.is_some());
        let bars = chosen.map(|row| {
            let of =
                |document: &Document| document.rows.iter().find(|other| other.measure == row.measure)?.ratio;
            Bars {
                name: row.name().to_owned(),
                ratios: documents.iter().map(|(_, document)| of(document)).collect(),
            }
        });
        Panel { title, rows: bars.collect() }
    };
    let panels = [
        panel("Throughput by that of raw TCP: more is better", Unit::Bytes),
        panel("Time of a NULL call by that of a TCP ping-pong: less is better", Unit::Nanoseconds),
    ];
    chart::draw(head, &series, &panels)
}

/// Returns the line of a part of a measurement.
pub(super) fn course(measure: Measure, size: u32, part: &Interval, format: Option<Format>) -> String {
    let rate = match measure.unit() {
        Unit::Bytes => Unit::Bytes.show_in(part.rate, format),
        Unit::Calls | Unit::Nanoseconds => Unit::Calls.show(part.rate),
    };
    format!("{:<36} {:>7.2} s {rate:>16}", titled(measure, size), part.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(measure: Measure) -> Window {
        let side = |cpu| Side { seconds: 2.0, cpu, machine: 0.5, processors: 4 };
        Window {
            measure,
            size: 1 << 20,
            depth: 16,
            connections: 1,
            value: 5e8,
            seconds: 2.0,
            bytes: 1 << 30,
            calls: 1024,
            percentiles: Some((320.5, 1000.0)),
            directions: None,
            client: side(1.0),
            server: side(0.5),
            others: 0,
            intervals: Vec::new(),
        }
    }

    /// Returns the row of a raw measure with this value.
    fn raw(measure: Measure, value: f64) -> Row {
        Row::new(Window { value, ..window(measure) }, None, 128)
    }

    /// A busy processor does not limit what the link limits without it.
    #[test]
    fn a_link_that_raw_tcp_fills_at_rest_limits() {
        let busy = |machine| {
            let mut window = window(Measure::RdmaRead);
            window.client.machine = machine;
            window
        };
        for (machine, of_raw, limit) in [(1.0, 0.5, "link"), (1.0, 1.0, "client-machine"), (0.5, 1.0, "link")]
        {
            let mut raw = Window { value: 5.1e8, ..window(Measure::StreamFrom) };
            raw.client.machine = of_raw;
            let raw = Row::new(raw, None, 128);
            let row = Row::new(busy(machine), Some(&raw), 128);
            assert_eq!(row.limit.map(|limit| limit.by), Some(limit), "{machine} {of_raw}");
        }
    }

    #[test]
    fn a_row_has_ratio_costs_and_limit() {
        let row = Row::new(window(Measure::RdmaRead), Some(&raw(Measure::StreamFrom, 1e9)), 128);
        assert_eq!(row.ratio, Some(0.5));
        assert_eq!((row.client.cpu_seconds_per_gib, row.server.cpu_seconds_per_gib), (Some(1.0), Some(0.5)));
        assert_eq!(row.server.cpu_microseconds_per_call, Some(0.5 / 1024.0 * 1e6));
        assert_eq!(row.limit.as_ref().map(|limit| limit.by), Some("depth"));
        assert_eq!(row.cell(), "500.0 MB/s (0.50)");
        assert_eq!(row.cost(), "1.00 + 0.50 s/GiB");
        let line = row.line(None);
        assert!(HEAD.lines().all(|head| head.len() == line.len()), "{line}");
        assert!(
            line.contains(
                "|     320.5 |    1000.0 |         1.00 |         0.50 |          976.6 |          488.3 |"
            ),
            "{line}"
        );
    }

    #[test]
    fn a_picture_has_the_rows_with_a_ratio() {
        let rows = [Measure::RdmaRead, Measure::RdmaTrip, Measure::RdmaNull].map(|measure| {
            Row::new(window(measure), measure.base().map(|base| raw(base, 1e9)).as_ref(), 128)
        });
        let host = || Host { machine: "m".to_owned(), processors: 2 };
        let document = Document {
            address: "192.0.2.1:1".parse().unwrap(),
            provider: "iwarp".to_owned(),
            client: host(),
            server: host(),
            seconds: 1.0,
            connections: 1,
            depth: 16,
            size: 4096,
            others: 0,
            rows: rows.to_vec(),
        };
        let drawn = draw("head", &[("one wire".to_owned(), &document)]);
        assert!(
            drawn.contains("READ over RDMA") && drawn.contains("NULL over RDMA, one at a time"),
            "{drawn}"
        );
        assert!(!drawn.contains(">NULL over RDMA<") && drawn.contains(">one wire<"), "{drawn}");
    }

    #[test]
    fn latency_has_no_limit_and_no_bytes() {
        let window = Window { bytes: 0, value: 0.000_320_5, ..window(Measure::RdmaTrip) };
        let row = Row::new(window, Some(&raw(Measure::PingPong, 0.0)), 128);
        assert!(row.limit.is_none() && row.base.is_none() && row.ratio.is_none());
        assert_eq!(row.client.cpu_seconds_per_gib, None);
        assert_eq!(row.cost(), "976.6 + 488.3 us/call");
    }

    #[test]
    fn a_raw_stream_names_its_write_size() {
        let row = Row::new(window(Measure::StreamFrom), None, 128);
        assert!(row.line(None).starts_with("| TCP stream from the server, 1024 KiB |"), "{}", row.line(None));
        assert_eq!(row.limit.as_ref().map(|limit| limit.by), Some("link"));
    }
}
