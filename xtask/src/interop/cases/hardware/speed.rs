//! `rpcrdma bench verbs` on a device, with perftest on the same device as the measure, and windows with registrations.

use std::time::Duration;

use serde::Deserialize;

use crate::failure::{Context, Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;
use crate::interop::network::GUEST;

/// Runs a program of perftest at both ends: the device, its address, the program and its options. Prints the client's
/// output.
const PERFTEST: &str = "device=$1 address=$2 program=$3; shift 3\n\
    timeout 100 \"$program\" -d \"$device\" -R -F \"$@\" >/tmp/perftest 2>&1 &\n\
    for _ in $(seq 200); do\n\
        rdma resource show cm_id | grep LISTEN | grep -q \" comm $program\" && break; sleep 0.05; done\n\
    timeout 100 \"$program\" -d \"$device\" -R -F \"$@\" \"$address\" 2>&1\n\
    status=$?\n\
    kill %1 2>/dev/null; wait; rm /tmp/perftest; exit $status";

/// Transfers of 1 MiB: the row of our benchmark, and the program of perftest.
const THROUGHPUT: [(&str, &str); 3] =
    [("Send", "ib_send_bw"), ("RDMA Read", "ib_read_bw"), ("RDMA Write", "ib_write_bw")];
const TRANSFERS: &str = "500";
/// Messages of 2 bytes, with a completion event for each.
const MESSAGES: &str = "2000";
/// Messages of a NULL call.
const CALL: f64 = 2.0;

/// Our benchmark at the guest's address, with as many transfers in all rounds as perftest has.
const BENCH: [&str; 10] = [
    "bench",
    "verbs",
    "--json",
    "--rounds",
    "3",
    "--operations",
    "166",
    "--milliseconds",
    "1000",
    "--address",
];
/// Maximum time of our benchmark, multiplied by the patience of the guest.
const BENCH_LIMIT: Duration = Duration::from_secs(60);

/// Windows and calls, one at a time, whose times show the price of a window.
const PRICED: [(&str, u32); 6] = [
    ("window", 4 << 10),
    ("window", 1 << 20),
    ("WRITE", 4 << 10),
    ("READ", 4 << 10),
    ("WRITE", 1 << 20),
    ("READ", 1 << 20),
];

/// Goals. They are printed beside the ratios. A device in software on an emulated processor does not prove them.
const STREAM_GOAL: &str = ">= 0.90";
const CALL_GOAL: &str = "<= 1.50";
const WINDOW_GOAL: &str = "<= 0.50";

pub(super) fn speed(lab: &mut Lab) -> Result<Detail, Failure> {
    let ours = bench(lab, &[])?;
    let mut ratios = Vec::new();
    for (operation, program) in THROUGHPUT {
        let row = perftest(lab, program, &["-s", "1048576", "-n", TRANSFERS])?;
        let (value, base) = (ours.row(operation, 1 << 20, None)?.value, Throughput::of(&row)?.average);
        ratios.push(Ratio { what: format!("{operation}, MiB/s"), value, base, goal: STREAM_GOAL });
    }
    let row = perftest(lab, "ib_send_lat", &["-e", "-n", MESSAGES])?;
    let Latency { typical, percentile_99 } = Latency::of(&row)?;
    let null = ours.row("NULL", 0, Some(1))?.value * 1e6;
    ratios.push(Ratio { what: "NULL, us".to_owned(), value: null, base: CALL * typical, goal: CALL_GOAL });
    let base = format!("perftest, 99 % of Sends below {percentile_99:.0} us");
    let mut words = vec![format!("ours / perftest: {}", print(&base, &ratios))];

    let fabric = lab.current_fabric()?;
    if fabric.has_windows() {
        let registering = bench(lab, &["--no-windows"])?;
        words.push(format!(
            "windows / registrations: {}",
            print("registrations", &prices(&ours, &registering)?)
        ));
        ours.registers_nothing()?;
        words.push("no registration in steady state".to_owned());
    }
    Ok(words.join("; "))
}

/// Runs our benchmark on the device and prints its rows.
fn bench(lab: &mut Lab, options: &[&str]) -> Result<Bench, Failure> {
    let address = GUEST.to_string();
    let arguments = [&BENCH[..], &[address.as_str()], options].concat();
    let finished = lab.rpcrdma(BENCH_LIMIT, &arguments)?;
    ensure!(finished.success(), "rpcrdma bench verbs: {}: {}", finished.ending(), finished.errors.trim());
    let bench: Bench =
        serde_json::from_slice(&finished.output).context("the document of rpcrdma bench verbs")?;
    println!("  {} of 3 rounds {}", bench.provider, options.join(" "));
    bench.rows.iter().for_each(|row| println!("  {}", row.line()));
    Ok(bench)
}

/// Document of our benchmark.
#[derive(Debug, Deserialize)]
struct Bench {
    provider: String,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    bytes: u32,
    depth: u32,
    unit: String,
    value: f64,
    counts: Counts,
}

/// Counts of one operation.
#[derive(Debug, Deserialize)]
struct Counts {
    windows_bound: f64,
    local_invalidations: f64,
    remote_invalidations: f64,
    send_calls: f64,
    receive_calls: f64,
    completions_per_event: f64,
    registrations: f64,
}

impl Bench {
    /// Returns a row; without `depth` the first one of several.
    fn row(&self, name: &str, bytes: u32, depth: Option<u32>) -> Result<&Row, Failure> {
        self.rows
            .iter()
            .find(|row| {
                row.name == name && row.bytes == bytes && depth.is_none_or(|depth| row.depth == depth)
            })
            .ok_or_else(|| Failure::new(format!("rpcrdma bench verbs has no row {name} of {bytes} bytes")))
    }

    /// Returns the time of a call in microseconds. The row of NULL calls at a depth is not one of them.
    fn call(&self, name: &str, bytes: u32) -> Result<f64, Failure> {
        Ok(1e6 / self.row(name, bytes, Some(1))?.value)
    }

    /// Checks that no measured operation registered memory.
    fn registers_nothing(&self) -> Result<(), Failure> {
        let registering: Vec<String> =
            self.rows.iter().filter(|row| row.counts.registrations > 0.0).map(Row::line).collect();
        ensure!(
            registering.is_empty(),
            "with windows, operations register memory in steady state: {}",
            registering.join("; ")
        );
        Ok(())
    }
}

impl Row {
    fn line(&self) -> String {
        let Self { name, bytes, depth, unit, value, counts } = self;
        format!(
            "{name:10} {bytes:>7} at {depth:>2}: {value:>12.6} {unit:7}; bound {:.2}, invalidated {:.2} here and {:.2} by the \
             peer, {:.2} sends, {:.2} events of {:.2} completions, {:.3} registrations",
            counts.windows_bound,
            counts.local_invalidations,
            counts.remote_invalidations,
            counts.send_calls,
            counts.receive_calls,
            counts.completions_per_event,
            counts.registrations,
        )
    }
}

/// Two values of one kind.
struct Ratio {
    what: String,
    value: f64,
    base: f64,
    goal: &'static str,
}

/// Returns what windows and calls cost, with memory windows and with registrations.
fn prices(windows: &Bench, registrations: &Bench) -> Result<Vec<Ratio>, Failure> {
    let mut ratios = Vec::new();
    for (name, bytes) in PRICED {
        let (value, base) = (windows.call(name, bytes)?, registrations.call(name, bytes)?);
        let goal = if name == "window" { WINDOW_GOAL } else { "" };
        ratios.push(Ratio { what: format!("{name} of {} KiB, us", bytes >> 10), value, base, goal });
    }
    Ok(ratios)
}

/// Prints a table of ratios, and returns them in words.
fn print(base: &str, ratios: &[Ratio]) -> String {
    println!("  {:28} {:>10} {:>10} {:>6} {:>8}  base: {base}", "", "ours", "base", "ratio", "goal");
    let mut words = Vec::new();
    for Ratio { what, value, base, goal } in ratios {
        println!("  {what:28} {value:10.1} {base:10.1} {:6.2} {goal:>8}", value / base);
        let what = what.split(',').next().unwrap_or_default();
        words.push(format!("{what} {:.2}", value / base));
    }
    words.join(", ")
}

/// Runs a program of perftest and returns the row of its result.
fn perftest(lab: &mut Lab, program: &str, options: &[&str]) -> Result<Vec<f64>, Failure> {
    let device = lab.current_fabric()?.device();
    let address = GUEST.to_string();
    let arguments = [&[device, &address, program], options].concat();
    let output = lab.guest_within(Duration::from_secs(100), PERFTEST, &arguments)?;
    let row = row(&output);
    ensure!(!row.is_empty(), "{program} prints no result: {output}");
    Ok(row)
}

/// Returns the last line of numbers.
fn row(output: &str) -> Vec<f64> {
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    output.lines().rev().filter_map(numbers).find(|row| !row.is_empty()).unwrap_or_default()
}

/// Result of `ib_…_bw`: bytes, iterations, peak, average, rate of messages.
struct Throughput {
    /// MiB a second; perftest writes MB for 2^20 bytes.
    average: f64,
}

impl Throughput {
    fn of(row: &[f64]) -> Result<Self, Failure> {
        match row {
            [_, _, _, average, _] => Ok(Self { average: *average }),
            _ => Err(Failure::new(format!("not a row of throughput: {row:?}"))),
        }
    }
}

/// Result of `ib_…_lat`: bytes, iterations, then microseconds: least, most, typical, average, deviation, percentiles.
struct Latency {
    typical: f64,
    percentile_99: f64,
}

impl Latency {
    fn of(row: &[f64]) -> Result<Self, Failure> {
        match row {
            [_, _, _, _, typical, _, _, percentile_99, _] => {
                Ok(Self { typical: *typical, percentile_99: *percentile_99 })
            }
            _ => Err(Failure::new(format!("not a row of latency: {row:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench_row(name: &str, bytes: u32, depth: u32, value: f64, registrations: f64) -> Row {
        let counts = format!(
            r#"{{"windows_bound": 1, "local_invalidations": 0, "remote_invalidations": 1, "send_calls": 4.5, "receive_calls": 3,
                "completions": 6, "completions_per_event": 2, "registrations": {registrations}}}"#
        );
        let document = format!(
            r#"{{"name": "{name}", "bytes": {bytes}, "depth": {depth}, "unit": "calls/s", "value": {value}, "least": 1, "most": 2,
                "counts": {counts}}}"#
        );
        serde_json::from_str(&document).unwrap()
    }

    fn bench(time_of_a_call: f64) -> Bench {
        let mut rows = vec![bench_row("NULL", 0, 1, 100e-6, 0.0), bench_row("NULL", 0, 16, 90_000.0, 0.0)];
        for (name, bytes) in PRICED {
            rows.push(bench_row(name, bytes, 1, 1e6 / time_of_a_call, 0.0));
        }
        Bench { provider: "verbs".to_owned(), rows }
    }

    #[test]
    fn windows_are_compared_with_registrations() {
        let ratios = prices(&bench(150.0), &bench(300.0)).unwrap();
        assert_eq!(ratios.len(), 6);
        let words = print("registrations", &ratios);
        assert!(
            words.starts_with(
                "window of 4 KiB 0.50, window of 1024 KiB 0.50, WRITE of 4 KiB 0.50, READ of 4 KiB"
            ),
            "{words}"
        );
        assert!(bench(1.0).row("READ", 1, None).is_err());
    }

    #[test]
    fn a_registration_in_steady_state_is_an_error() {
        let mut bench = bench(150.0);
        assert!(bench.registers_nothing().is_ok());
        bench.rows.push(bench_row("READ", 4096, 16, 1.0, 0.001));
        let failure = bench.registers_nothing().unwrap_err().to_string();
        assert!(
            failure.contains("READ          4096 at 16") && failure.contains("0.001 registrations"),
            "{failure}"
        );
    }

    #[test]
    fn the_rows_of_perftest_are_understood() {
        let output = " local address: LID 0000 QPN 0x0003 PSN 0x76d306\n\
                      #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      1048576    200              43.64              40.50  \t\t   0.000040\n---\n";
        let average = Throughput::of(&row(output)).unwrap().average;
        assert!((average - 40.5).abs() < 0.001, "{average}");
        let output = "#bytes #iterations    t_min[usec] ...\n \
                      2       200          244.10         8023.41      1170.05  \t       1605.20     \t1505.05\t\t5496.78 \t\t8023.41\n";
        let Latency { typical, percentile_99 } = Latency::of(&row(output)).unwrap();
        assert!((typical - 1170.05).abs() < 0.001 && (percentile_99 - 5496.78).abs() < 0.001);
        assert!(Throughput::of(&row(output)).is_err() && row("no numbers").is_empty());
    }
}
