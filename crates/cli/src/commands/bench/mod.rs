//! `rpcrdma bench`.

use clap::Args;

const AFTER_HELP: &str = "\
Everything runs on the loopback interface in this process, client and server each on threads of their own, with CRC32C on.
Base and subject take turns for several rounds; each ratio is the median over the rounds of subject by base.

  base          a plain TCP stream of 1 MiB writes; for latency a ping-pong of 128 octets on TCP
  RDMA streams  1 MiB RDMA Writes, and 1 MiB RDMA Reads, on the iWARP provider alone
  NFS           READ of a cached file in a directory, WRITE to a file system in memory, 1 MiB each, over RDMA and TCP
  NULL          round trip of a NULL call over RDMA
  memory        growth of a server's resident memory by 200 idle RDMA connections, against the stated bound

--json prints {rounds, seconds, machine, rows: [{name, value, base, unit, ratio, target}]}.";

/// Measure this machine: throughput, latency and memory against plain TCP.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Bench {
    /// A short run for a first impression: fewer rounds, less data
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds [default: 7, with --quick 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) rounds: Option<u16>,
    /// Data that each measurement of a round moves, in octets [default: 1G, with --quick 256M]
    #[arg(long, value_name = "OCTETS", value_parser = crate::arguments::size)]
    pub(crate) volume: Option<u64>,
}
