//! Clients and servers of each setting, and the cost of their calls.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma::{ClientConfig, Messages, ServerMonitor};
use rpcrdma_nfs::client::{Client, ClientOptions, Procedures};
use rpcrdma_nfs::wire::{
    FileHandle, NFS_PROGRAM, NFS_VERSION, ReadArgs, SetAttributes, StableHow, WriteArgs,
};
use rpcrdma_verbs::Counters;
use rustix::time::ClockId;
use tokio::task::JoinSet;

use super::cases::{Setting, Task};
use crate::commands::bench::processor::cpu;
use crate::commands::bench::program::{Operation, carry_out};
use crate::commands::bench::server::{Addresses, BenchServer};
use crate::commands::bench::{Ends, MEMORY_EXPORT, failed, no_connection, table};
use crate::connect::NFS;
use crate::exit::Failure;

/// Length of the file to read and write, in bytes.
const FILE: u32 = 8 << 20;
/// Bytes of each WRITE that makes the file.
const PIECE: u32 = 1 << 20;

/// Cost of the calls of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) calls: u64,
    pub(super) elapsed: Duration,
    /// Processor time of the client.
    pub(super) client: Duration,
    pub(super) server: Duration,
    pub(crate) counted: Counted,
}

impl Cost {
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            elapsed: self.elapsed + other.elapsed,
            client: self.client + other.client,
            server: self.server + other.server,
            counted: self.counted.joined(&other.counted, u64::saturating_add, Counters::plus, Messages::plus),
        }
    }

    /// Returns calls a second.
    pub(crate) fn rate(&self) -> f64 {
        to_float(self.calls) / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns `count` for each call.
    pub(crate) fn each(&self, count: u64) -> f64 {
        to_float(count) / to_float(self.calls.max(1))
    }
}

/// Converts a count below 2^53.
#[expect(clippy::cast_precision_loss, reason = "nothing is measured for so long")]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}

/// Counters of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Bytes copied between socket and application, headers and pads included.
    pub(super) copied: u64,
    /// Counters of the providers.
    pub(crate) links: Counters,
    /// Calls of the client by form.
    pub(super) sent: Messages,
    /// Replies by form.
    pub(super) received: Messages,
}

impl Counted {
    fn since(&self, before: &Self) -> Self {
        self.joined(before, u64::saturating_sub, Counters::since, Messages::since)
    }

    fn joined(
        &self,
        other: &Self,
        join: impl Fn(u64, u64) -> u64,
        links: impl Fn(&Counters, &Counters) -> Counters,
        messages: impl Fn(&Messages, &Messages) -> Messages,
    ) -> Self {
        Self {
            copied: join(self.copied, other.copied),
            links: links(&self.links, &other.links),
            sent: messages(&self.sent, &other.sent),
            received: messages(&self.received, &other.received),
        }
    }
}

/// Client of a setting, and its server.
pub(crate) struct Subject {
    pub(super) setting: Setting,
    server: BenchServer,
    rpc: rpcrdma::Client,
    procedures: Procedures,
    file: FileHandle,
    data: Bytes,
}

impl Subject {
    pub(crate) async fn start(
        ends: &Ends,
        directory: &Path,
        state: &Path,
        setting: Setting,
    ) -> Result<Self, Failure> {
        let server =
            BenchServer::start(ends, directory, state, move |config| setting.apply(&mut config.protocol))?;
        let mut config = ClientConfig::default();
        config.protocol.program = Some(NFS);
        setting.apply(&mut config.protocol);
        let to = server.addresses.nfs_rdma;
        let rpc = rpcrdma::Client::builder()
            .config(config)
            .transport(rpcrdma::Transport::rdma_on(ends.connector(to).await?))
            .connect(to)
            .await
            .map_err(no_connection)?;
        let client =
            Client::mount(&rpc, MEMORY_EXPORT, ClientOptions::default()).await.map_err(failed("mount"))?;
        let file = client.create("/file", SetAttributes::default()).await.map_err(failed("create"))?;
        let (file, procedures) = (file.handle(), client.procedures().clone());
        let mut subject =
            Self { setting, server, rpc, procedures, file, data: vec![0x5a; PIECE as usize].into() };
        for index in 0..FILE / PIECE {
            subject.caller(Task::Write(PIECE)).call(index).await?;
        }
        // What has been read lies in memory that an adapter knows. Other memory would cost a registration for
        // each WRITE.
        let arguments = ReadArgs { file, offset: 0, count: PIECE };
        let read = subject.procedures.read(&arguments).await.map_err(failed("read"))?;
        // A reply in several parts has no memory for all.
        if let Some(whole) = read.data.iter().find(|part| part.len() == subject.data.len()) {
            subject.data = whole.clone();
        }
        Ok(subject)
    }

    fn caller(&self, task: Task) -> Caller {
        let data = self.data.slice(..self.data.len().min(task.bytes() as usize));
        let (rpc, procedures) = (self.rpc.clone(), self.procedures.clone());
        Caller { task, rpc, procedures, file: self.file, data }
    }

    /// Returns the addresses of the server.
    pub(crate) const fn addresses(&self) -> &Addresses {
        &self.server.addresses
    }

    /// Makes NULL calls for a time, one after the other. Returns the median time of a call in seconds.
    pub(crate) async fn latency(&self, time: Duration) -> Result<(f64, Cost), Failure> {
        let caller = self.caller(Task::Null);
        let before = self.counted()?;
        let (mut times, start) = (Vec::new(), Instant::now());
        while start.elapsed() < time {
            let start = Instant::now();
            caller.call(0).await?;
            times.push(start.elapsed().as_secs_f64());
        }
        let (calls, elapsed) = (times.len() as u64, start.elapsed());
        let counted = self.counted()?.since(&before);
        Ok((table::median(times), Cost { calls, elapsed, counted, ..Cost::default() }))
    }

    /// Makes calls for a time, `depth` at a time.
    pub(crate) async fn run(&self, task: Task, depth: u32, time: Duration) -> Result<Cost, Failure> {
        let before = self.counted()?;
        let (process, thread) = (cpu(ClockId::ProcessCPUTime), cpu(ClockId::ThreadCPUTime));
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for index in 0..depth {
            let caller = self.caller(task);
            callers.spawn(async move {
                let mut calls = 0_u32;
                while start.elapsed() < time {
                    caller.call(index.wrapping_add(calls)).await?;
                    calls = calls.wrapping_add(1);
                }
                Ok::<u32, Failure>(calls)
            });
        }
        let mut calls = 0;
        while let Some(ended) = callers.join_next().await {
            calls += u64::from(ended.map_err(failed("run the benchmark"))??);
        }
        let elapsed = start.elapsed();
        let client = cpu(ClockId::ThreadCPUTime).saturating_sub(thread);
        let both = cpu(ClockId::ProcessCPUTime).saturating_sub(process);
        let counted = self.counted()?.since(&before);
        Ok(Cost { calls, elapsed, client, server: both.saturating_sub(client), counted })
    }

    fn counted(&self) -> Result<Counted, Failure> {
        let lost = || Failure::failed("the connection was lost");
        let client = self.rpc.rdma().and_then(|rdma| rdma.connection_stats()).ok_or_else(lost)?;
        let server = self.monitor().stats();
        let links = client.link.plus(&server.link);
        let protocol = &client.protocol;
        Ok(Counted {
            copied: protocol.payload_bytes_copied
                + protocol.inline_bytes_copied
                + client.link.payload_bytes_copied
                + server.payload_bytes_copied
                + server.inline_bytes_copied
                + links.message_bytes_copied,
            links,
            sent: protocol.calls_sent,
            received: protocol.replies_received,
        })
    }

    const fn monitor(&self) -> &ServerMonitor {
        &self.server.monitor
    }
}

/// Maker of calls, one after the other.
struct Caller {
    task: Task,
    rpc: rpcrdma::Client,
    procedures: Procedures,
    file: FileHandle,
    data: Bytes,
}

impl Caller {
    /// Makes a call. For READ and WRITE, `index` selects the part of the file.
    async fn call(&self, index: u32) -> Result<(), Failure> {
        let (file, count) = (self.file, self.task.bytes());
        let offset = u64::from(index % (FILE / count.max(1)).max(1)) * u64::from(count);
        let len = count as usize;
        match self.task {
            Task::Null => {
                self.rpc.null(NFS_PROGRAM, NFS_VERSION).await.map(drop).map_err(failed("call NULL"))
            }
            Task::Write(_) => {
                let data = self.data.clone();
                let arguments =
                    WriteArgs { file, offset, count, stable: StableHow::Unstable, data: data.into() };
                self.procedures.write(&arguments).await.map(drop).map_err(failed("write"))
            }
            Task::Read(_) => {
                let arguments = ReadArgs { file, offset, count };
                let read = self.procedures.read(&arguments).await.map_err(failed("read"))?;
                if read.data.len() == len {
                    Ok(())
                } else {
                    Err(Failure::failed(format!("{} bytes read, {len} expected", read.data.len())))
                }
            }
            Task::LongCall(_) => self.carry_out(Operation::LongCall(len)).await,
            Task::LongReply(_) => self.carry_out(Operation::LongReply(len)).await,
        }
    }

    async fn carry_out(&self, operation: Operation) -> Result<(), Failure> {
        carry_out(&self.rpc, operation).await.map(drop).map_err(failed("call"))
    }
}
