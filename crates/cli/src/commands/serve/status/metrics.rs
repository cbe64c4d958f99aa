//! The page of metrics: a [`Status`] in Prometheus' text format, version 0.0.4.
//!
//! The page has one table of metrics, [`METRICS`]. docs/metrics.md lists the same ones, and a test compares both. Libraries for
//! metrics keep counters of their own; here the counters belong where the events happen, so the page only renders them.
//!
//! *Errors.* Nothing here fails.

use std::fmt::{self, Write};
use std::time::Duration;

use rpcrdma::Latencies;

use super::{ProcedureStatus, Status};

/// Media type of the page.
pub(in crate::commands::serve) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of the page.
struct Metric {
    name: &'static str,
    kind: Kind,
    /// Meaning, with the unit.
    help: &'static str,
    /// Adds the samples.
    samples: fn(&Status, &mut Samples<'_>),
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric without labels.
macro_rules! plain {
    ($kind:ident $name:literal, $help:literal, $value:expr) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            samples: |status, out| {
                let value: fn(&Status) -> _ = $value;
                out.add("", &[], value(status));
            },
        }
    };
}

/// A metric with one label, of which a list has the values.
macro_rules! listed {
    ($kind:ident $name:literal, $label:literal, $help:literal, $values:expr) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            samples: |status, out| {
                let values: fn(&Status) -> _ = $values;
                for (label, value) in values(status) {
                    out.add("", &[($label, label)], value);
                }
            },
        }
    };
}

/// A metric of the threads of each export.
macro_rules! lanes {
    ($name:literal, $help:literal, $value:expr) => {
        Metric {
            name: $name,
            kind: Kind::Gauge,
            help: $help,
            samples: |status, out| {
                for lane in &status.io {
                    let value: fn(&super::LaneStatus) -> usize = $value;
                    out.add("", &[("export", &lane.export), ("work", &lane.work)], value(lane));
                }
            },
        }
    };
}

/// All metrics, in the order of the page.
const METRICS: &[Metric] = &[
    Metric {
        name: "rpcrdma_build_info",
        kind: Kind::Gauge,
        help: "Always 1; the label has the version of the server.",
        samples: |status, out| out.add("", &[("version", &status.process.version)], 1),
    },
    plain!(Gauge "rpcrdma_uptime_seconds", "Time since the start, in seconds.", |status| status.process.uptime_seconds),
    Metric {
        name: "rpcrdma_listener_info",
        kind: Kind::Gauge,
        help: "Always 1; the labels have an address on which the server listens, and its provider.",
        samples: |status, out| {
            for one in &status.listeners {
                out.add("", &[("address", &one.address), ("provider", &one.provider)], 1);
            }
        },
    },
    Metric {
        name: "rpcrdma_export_mounts",
        kind: Kind::Gauge,
        help: "Remembered mounts in an export.",
        samples: |status, out| {
            for export in &status.exports {
                out.add("", &[("export", &export.name)], export.mounts);
            }
        },
    },
    Metric {
        name: "rpcrdma_calls_total",
        kind: Kind::Counter,
        help: "Calls that have ended, also those that failed.",
        samples: |status, out| {
            for procedure in &status.procedures {
                out.add("", &of_procedure(procedure, &mut String::new()), procedure.calls);
            }
        },
    },
    Metric {
        name: "rpcrdma_call_errors_total",
        kind: Kind::Counter,
        help: "Calls that failed, by the status in their reply.",
        samples: |status, out| {
            for procedure in &status.procedures {
                let mut version = String::new();
                let [program, number, name] = of_procedure(procedure, &mut version);
                for (error, count) in &procedure.errors {
                    out.add("", &[program, number, name, ("status", error)], *count);
                }
            }
        },
    },
    Metric {
        name: "rpcrdma_call_duration_seconds",
        kind: Kind::Histogram,
        help: "Time from the arrival of a call to its reply, in seconds.",
        samples: |status, out| {
            for procedure in &status.procedures {
                histogram(procedure, out);
            }
        },
    },
    listed!(Counter "rpcrdma_transport_calls_total", "transport", "Calls received, by transport.", |status| {
        transports(status).map(|(name, one)| (name, one.calls))
    }),
    listed!(Counter "rpcrdma_received_bytes_total", "transport", "Bytes of calls received, headers and data read by RDMA included.", |status| {
        transports(status).map(|(name, one)| (name, one.bytes_received))
    }),
    listed!(Counter "rpcrdma_sent_bytes_total", "transport", "Bytes of replies sent, headers and data written by RDMA included.", |status| {
        transports(status).map(|(name, one)| (name, one.bytes_sent))
    }),
    plain!(Counter "rpcrdma_reverse_calls_total", "Calls that the server made to its clients.", |status| status.transports.reverse_calls),
    listed!(Gauge "rpcrdma_connections", "transport", "Open connections.", |status| {
        transports(status).map(|(name, one)| (name, one.connections))
    }),
    plain!(Gauge "rpcrdma_connections_half_open", "RDMA connections that are being set up.", |status| status.connections.half_open),
    plain!(Counter "rpcrdma_connections_accepted_total", "Connections accepted.", |status| status.connections.accepted),
    plain!(Counter "rpcrdma_connections_agreed_total", "RDMA connections that agreed by CONF_RDMA.", |status| status.connections.agreed),
    listed!(Counter "rpcrdma_connections_refused_total", "reason", "Connections refused.", |status| status.connections.refused.reasons()),
    listed!(Counter "rpcrdma_call_messages_total", "form", "Calls received by RDMA, by form; long ones are RDMA_NOMSG (nomsg_call_count of mountstats).", |status| {
        status.forms.calls.forms()
    }),
    listed!(Counter "rpcrdma_reply_messages_total", "form", "Replies sent by RDMA, by form.", |status| status.forms.replies.forms()),
    listed!(Counter "rpcrdma_call_bytes_total", "operation", "Bytes of calls received by RDMA, by the operation that moved them (total_rdma_request of mountstats).", |status| {
        status.forms.calls.bytes()
    }),
    listed!(Counter "rpcrdma_reply_bytes_total", "operation", "Bytes of replies sent by RDMA, by the operation that moved them (total_rdma_reply of mountstats).", |status| {
        status.forms.replies.bytes()
    }),
    plain!(Counter "rpcrdma_fixup_copy_bytes_total", "Payload bytes that were copied (fixup_copy_count of mountstats).", |status| {
        status.memory.payload_bytes_copied
    }),
    plain!(Counter "rpcrdma_pullup_copy_bytes_total", "Other bytes of messages that were copied (pullup_copy_count of mountstats).", |status| {
        status.memory.inline_bytes_copied
    }),
    plain!(Counter "rpcrdma_nfs_read_bytes_total", "Content of files sent by READ, in bytes.", |status| status.data.bytes_read),
    plain!(Counter "rpcrdma_nfs_written_bytes_total", "Content of files received by WRITE, in bytes.", |status| status.data.bytes_written),
    plain!(Gauge "rpcrdma_credits_granted", "Credits granted to all clients with an open RDMA connection.", |status| status.credits.granted),
    plain!(Gauge "rpcrdma_memory_in_use_bytes", "Memory for messages and payloads in use, in bytes.", |status| status.memory.in_use),
    plain!(Gauge "rpcrdma_memory_limit_bytes", "Most memory for messages and payloads (serve --memory), in bytes.", |status| status.memory.limit),
    plain!(Gauge "rpcrdma_reply_cache_bytes", "Bytes for which the replies in the reply cache count.", |status| status.reply_cache.bytes),
    listed!(Counter "rpcrdma_reply_cache_events_total", "event", "Events of the reply cache; an evicted reply means that a call could be executed twice.", |status| {
        status.reply_cache.events()
    }),
    lanes!(
        "rpcrdma_io_threads",
        "Threads that call the file system of an export, by kind of work.",
        |lane| lane.threads
    ),
    lanes!("rpcrdma_io_threads_idle", "Of these, threads without work.", |lane| lane.idle),
    lanes!("rpcrdma_io_threads_limit", "Most threads.", |lane| lane.limit),
    lanes!(
        "rpcrdma_io_waiting",
        "Calls that wait for a thread, or for another WRITE to their file.",
        |lane| lane.waiting
    ),
    listed!(Counter "rpcrdma_link_bytes_total", "direction", "Bytes on all RDMA links, headers included.", |status| {
        [("sent", status.link.bytes_sent), ("received", status.link.bytes_received)]
    }),
    listed!(Counter "rpcrdma_link_segments_total", "direction", "Segments (FPDUs) on all RDMA links.", |status| {
        [("sent", status.link.segments_sent), ("received", status.link.segments_received)]
    }),
    listed!(Counter "rpcrdma_link_system_calls_total", "direction", "System calls for all RDMA links.", |status| {
        [("sent", status.link.send_calls), ("received", status.link.receive_calls)]
    }),
    plain!(Counter "rpcrdma_windows_bound_total", "Memory windows bound.", |status| status.link.windows_bound),
    listed!(Counter "rpcrdma_invalidations_total", "side", "Memory windows invalidated, by the side that did it (local_inv_needed of mountstats).", |status| {
        [("local", status.link.local_invalidations), ("remote", status.link.remote_invalidations)]
    }),
    plain!(Counter "rpcrdma_registrations_total", "Registrations of memory with an adapter.", |status| status.link.registrations),
    plain!(Counter "rpcrdma_completions_total", "Completions taken from an adapter.", |status| status.link.completions),
];

fn transports(status: &Status) -> [(&'static str, &super::TransportStatus); 2] {
    [("rdma", &status.transports.rdma), ("tcp", &status.transports.tcp)]
}

/// A label and its value.
type Label<'a> = (&'static str, &'a str);

/// Returns the labels of a procedure. The text of its version lives in `version`.
fn of_procedure<'a>(procedure: &'a ProcedureStatus, version: &'a mut String) -> [Label<'a>; 3] {
    *version = procedure.version.to_string();
    [("program", &procedure.program), ("version", version), ("procedure", &procedure.procedure)]
}

/// Adds the times of a procedure: cumulative buckets, sum and count.
fn histogram(procedure: &ProcedureStatus, out: &mut Samples<'_>) {
    let mut version = String::new();
    let [program, number, name] = of_procedure(procedure, &mut version);
    let mut sum = 0;
    for (bucket, count) in procedure.latency.buckets.iter().enumerate() {
        sum += count;
        let bound = Latencies::bound(bucket).as_ref().map(Duration::as_secs_f64);
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        out.add("_bucket", &[program, number, name, ("le", &bound)], sum);
    }
    out.add("_sum", &[program, number, name], procedure.latency.sum_seconds);
    out.add("_count", &[program, number, name], sum);
}

/// The samples of one metric on the page.
struct Samples<'a> {
    page: &'a mut String,
    name: &'static str,
}

impl Samples<'_> {
    fn add(&mut self, suffix: &str, labels: &[Label<'_>], value: impl fmt::Display) {
        let Self { page, name } = self;
        page.push_str(name);
        page.push_str(suffix);
        let mut before = '{';
        for (label, text) in labels {
            page.push(before);
            page.push_str(label);
            page.push_str("=\"");
            escape(page, text);
            page.push('"');
            before = ',';
        }
        if !labels.is_empty() {
            page.push('}');
        }
        // A String takes everything.
        let _ = writeln!(page, " {value}");
    }
}

/// Adds the value of a label.
fn escape(page: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '\\' => page.push_str(r"\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str(r"\n"),
            other => page.push(other),
        }
    }
}

/// Returns the page of a status.
pub(in crate::commands::serve) fn page(status: &Status) -> String {
    let mut page = String::new();
    for Metric { name, kind, help, samples } in METRICS {
        // A String takes everything.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        samples(status, &mut Samples { page: &mut page, name });
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::{ExportStatus, LatencyStatus};
    use super::*;

    fn lines<'a>(page: &'a str, start: &str) -> Vec<&'a str> {
        page.lines().filter(|line| line.starts_with(start)).collect()
    }

    #[test]
    fn times_are_cumulative_buckets() {
        let mut latencies = Latencies::default();
        for time in [Duration::from_micros(1), Duration::from_micros(3), Duration::from_secs(60)] {
            latencies.add(time);
        }
        let procedure = ProcedureStatus {
            program: "nfs".to_owned(),
            version: 3,
            procedure: "READ".to_owned(),
            calls: 3,
            errors: [("NFS3ERR_IO".to_owned(), 2)].into(),
            latency: LatencyStatus::from(&latencies),
        };
        let page = page(&Status { procedures: vec![procedure], ..Status::default() });
        let buckets = lines(&page, "rpcrdma_call_duration_seconds");
        let labels = r#"program="nfs",version="3",procedure="READ""#;
        let bucket = |bound: &str, count| {
            format!("rpcrdma_call_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {count}")
        };
        assert_eq!(buckets.len(), Latencies::BUCKETS + 2);
        assert_eq!(buckets[..3], [bucket("0.000001", 1), bucket("0.000002", 1), bucket("0.000004", 2)]);
        assert_eq!(buckets[24..26], [bucket("16.777216", 2), bucket("+Inf", 3)]);
        assert_eq!(buckets[26], format!("rpcrdma_call_duration_seconds_sum{{{labels}}} 60.000004"));
        assert_eq!(buckets[27], format!("rpcrdma_call_duration_seconds_count{{{labels}}} 3"));
        let error = format!("rpcrdma_call_errors_total{{{labels},status=\"NFS3ERR_IO\"}} 2");
        assert_eq!(lines(&page, "rpcrdma_call_errors_total"), [error]);
    }

    #[test]
    fn names_of_exports_are_escaped() {
        let export = ExportStatus { name: "/a\"b\\c\nd".to_owned(), mounts: 2, ..ExportStatus::default() };
        let page = page(&Status { exports: vec![export], ..Status::default() });
        assert_eq!(
            lines(&page, "rpcrdma_export_mounts"),
            [r#"rpcrdma_export_mounts{export="/a\"b\\c\nd"} 2"#]
        );
    }

    #[test]
    fn names_have_their_units() {
        for Metric { name, kind, help, .. } in METRICS {
            assert!(name.starts_with("rpcrdma_"), "{name}");
            assert_eq!(name.ends_with("_total"), matches!(kind, Kind::Counter), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help}");
        }
        let names: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
    }
}
