//! `rpcrdma bench` without a host: client and server on the loopback interface, against plain TCP there.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::nfs::NfsStreams;
use super::processor::Processors;
use super::server::{Addresses, BenchServer};
use super::table::{self, Row, RowDocument, Target, Unit};
use super::{
    Ends, FILE, failed, machine, measured, memory, prepare, streams, tcp, temporary_directory, versions,
};
use crate::arguments::{Common, Proto, whole};
use crate::commands::until_signal;
use crate::exit::Failure;
use crate::output::{self, Text};

/// Options of `rpcrdma bench` without a host.
#[derive(Clone, Debug, Args)]
pub(super) struct Loopback {
    /// Run briefly for a first impression, with fewer rounds and less data
    #[arg(long, conflicts_with_all = ["host", "server"])]
    quick: bool,
    /// Measure metadata calls by version of RPC-over-RDMA and inline threshold
    #[arg(long, conflicts_with_all = ["operations", "host", "server"])]
    versions: bool,
    /// Rounds, 1 to 99 [default: 7, with --quick 3]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1, 99), conflicts_with_all = ["host", "server"])]
    rounds: Option<u16>,
    /// Operations of 1 MiB in each measurement of a round [default: 1024, with --quick 256]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 1_000_000),
        conflicts_with_all = ["host", "server"])]
    operations: Option<u32>,
}

#[derive(Serialize)]
struct Document {
    machine: String,
    rounds: u16,
    operations: u32,
    seconds: f64,
    rows: Vec<RowDocument>,
}

/// Amount of work of a measurement.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u16,
    operations: u32,
    /// Round trips in each measurement of latency.
    trips: u32,
}

impl Loopback {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        let effort = Effort {
            rounds: self.rounds.unwrap_or(if self.quick { 3 } else { 7 }),
            operations: self.operations.unwrap_or(if self.quick { 256 } else { 1024 }),
            trips: if self.quick { 1000 } else { 5000 },
        };
        let started = Instant::now();
        let place = temporary_directory()?;
        let (directory, state) = (place.path().join("export"), place.path().join("state"));
        prepare(&directory)?;
        if self.versions {
            return metadata(place.path(), effort.rounds, common);
        }
        let machine = machine();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed("start the client's runtime"))?;
        let mut rows = Vec::new();
        runtime.block_on(until_signal(async {
            let (growth, bound) = memory::measure(&directory, &place.path().join("state2")).await?;
            let mut memory =
                Row::new("server memory, 200 idle connections", Unit::Memory, Target::AtMost(1.0));
            memory.add(growth, bound);

            let server = BenchServer::start(&Ends::default(), &directory, &state, |_| ())?;
            let processors = Processors::new(server.addresses.thread);
            // In a task of its own, so that each step does not also poll whatever else this runtime waits
            // for.
            let file = File::open(directory.join(FILE)).map_err(failed("open a file"))?;
            let measuring = tokio::spawn(measure(server.addresses, effort, processors, file));
            rows = measuring.await.map_err(failed("run the benchmark"))??;
            rows.push(memory);
            Ok(())
        }))?;
        if common.json {
            return output::json(&Document {
                machine,
                rounds: effort.rounds,
                operations: effort.operations,
                seconds: started.elapsed().as_secs_f64(),
                rows: rows.iter().map(Row::document).collect(),
            });
        }
        let mut text = Text::stdout();
        let Effort { rounds, operations, .. } = effort;
        text.line(format_args!("{machine}; {rounds} rounds of {operations} operations of 1 MiB\n"))?;
        text.line(table::HEAD)?;
        for row in &rows {
            text.line(row.line())?;
        }
        text.flush()
    }
}

#[derive(Serialize)]
struct VersionsDocument {
    machine: String,
    rounds: u16,
    settings: Vec<versions::Setting>,
}

/// Runs `--versions`.
fn metadata(place: &Path, rounds: u16, common: Common) -> Result<(), Failure> {
    let place = place.to_owned();
    let settings = measured(async move { versions::measure(&place, rounds).await })?;
    if common.json {
        return output::json(&VersionsDocument { machine: machine(), rounds, settings });
    }
    let mut text = Text::stdout();
    versions::lines(&settings, rounds).into_iter().try_for_each(|line| text.line(line))?;
    text.flush()
}

/// Runs all rounds of the measurements in this process.
async fn measure(
    to: Addresses,
    effort: Effort,
    processors: Processors,
    file: File,
) -> Result<Vec<Row>, Failure> {
    let Effort { rounds, operations, trips } = effort;
    let mut base = tcp::Stream::connect(to.base).await.map_err(failed("connect"))?;
    let mut ping_pong = tcp::PingPong::connect(to.base).await.map_err(failed("connect"))?;
    let ends = Ends::default();
    let mut raw = streams::Streams::connect(&ends, to.streams).await?;
    let rdma = NfsStreams::connect(&ends, Proto::Rdma, to.nfs_rdma, FILE).await?;
    let tcp = NfsStreams::connect(&ends, Proto::Tcp, to.nfs_tcp, FILE).await?;

    let throughput = |name, bound| Row::new(name, Unit::Throughput, Target::AtLeast(bound));
    let mut rdma_write = throughput("RDMA Write stream / TCP stream", 0.75);
    let mut rdma_read = throughput("RDMA Read stream / TCP stream", 0.75);
    let mut file_sent = Row::new("pread and send of the file / TCP stream", Unit::Throughput, Target::None);
    let mut nfs_read = throughput("NFS READ over RDMA / TCP stream", 0.5);
    let mut nfs_write = throughput("NFS WRITE over RDMA / TCP stream", 0.5);
    let mut tcp_read = throughput("NFS READ over TCP / TCP stream", 0.5);
    let mut tcp_write = throughput("NFS WRITE over TCP / TCP stream", 0.5);
    let mut null = Row::new("NULL over RDMA / TCP ping-pong of 128 B", Unit::Time, Target::AtMost(1.5));
    let mut null_together = Row::new("NULL, both ends on one processor", Unit::Time, Target::None);
    // Round 0 warms up.
    for round in 0..=rounds {
        let stream = |error| failed("measure the TCP stream")(error);
        let before = base.run(operations).await.map_err(stream)?;
        let values = [
            raw.write(operations).await?,
            raw.read(operations).await?,
            base.run_file(&file, operations).await.map_err(failed("send a file"))?,
            rdma.read(operations).await?,
            rdma.write(operations).await?,
            tcp.read(operations).await?,
            tcp.write(operations).await?,
        ];
        let after = base.run(operations).await.map_err(stream)?;
        let latency = |error| failed("measure the ping-pong")(error);
        processors.apart();
        let ping = ping_pong.run(trips).await.map_err(latency)?;
        let trip = rdma.null(trips).await?;
        processors.together();
        let ping_together = ping_pong.run(trips).await.map_err(latency)?;
        let trip_together = rdma.null(trips).await?;
        processors.free();
        if round == 0 {
            continue;
        }
        // Speed of the machine in this round: the mean of the base before and after the subjects.
        let stream = f64::midpoint(before, after);
        let rows = [
            &mut rdma_write,
            &mut rdma_read,
            &mut file_sent,
            &mut nfs_read,
            &mut nfs_write,
            &mut tcp_read,
            &mut tcp_write,
        ];
        for (row, value) in rows.into_iter().zip(values) {
            row.add(value, stream);
        }
        null.add(trip, ping);
        null_together.add(trip_together, ping_together);
    }
    Ok(vec![rdma_write, rdma_read, file_sent, nfs_read, nfs_write, tcp_read, tcp_write, null, null_together])
}
