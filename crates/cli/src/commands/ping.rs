//! `rpcrdma ping`.

use std::time::Duration;

use clap::Args;

use crate::arguments::{Connection, host, seconds};

const AFTER_HELP: &str = "\
Shows minimum, median, 90th and 99th percentile and maximum of the round trip, in microseconds. Exit code 4 if some calls
had no reply, 1 if all had none, 3 if there was no connection.

--json prints {host, transport, program, version, sent, received, microseconds: {min, p50, p90, p99, max, mean}}.";

/// Measure the round trip of NULL calls.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ping {
    /// Server: HOST, HOST:PORT or nfs://HOST[:PORT]
    #[arg(value_name = "HOST[:PORT]", value_parser = host)]
    pub(crate) host: rpcrdma_nfs::client::NfsUrl,
    /// Calls to make; 0 goes on until SIGINT
    #[arg(short, long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) count: u64,
    /// Pause between calls, in seconds; with 0 the next call follows each reply, and only the summary is printed
    #[arg(short, long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
    pub(crate) interval: Duration,
    /// RPC program to call
    #[arg(long, value_name = "NUMBER", default_value_t = 100_003)]
    pub(crate) program: u32,
    /// Version of the program
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(crate) version: u32,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
