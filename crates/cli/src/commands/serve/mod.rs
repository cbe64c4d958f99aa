//! `rpcrdma serve`.

mod export;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::arguments::{inline_size, size};
pub(crate) use export::ExportOption;

const AFTER_HELP: &str = "\
The defaults serve this machine only. For other machines give an address they can reach, for example
  rpcrdma serve /srv/data --listen 0.0.0.0:20049 --tcp 0.0.0.0:20048 --export /=/srv/data,allow=192.0.2.0/24

Users are what AUTH_SYS says, with root made nobody (squash=root) unless the export says otherwise; when rpcrdma does
not run as root, everything is done as the user who runs it. Locks (NLM) are not served: mount with nolock.

Memory is at most connections x credits x inline + the payload pool (--memory), plus some KiB a connection.

The line printed when ready begins with \"ready:\"; with --json it is a JSON object instead. SIGINT or SIGTERM stops the
server: calls in progress are answered, data is flushed. A second one ends it at once.";

/// Serve a directory by NFSv3 over RDMA (software iWARP) and over TCP.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Serve {
    /// Directory to export as / (read-write unless --read-only)
    #[arg(required_unless_present = "export", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Address and port for NFS over RDMA; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:20049")]
    pub(crate) listen: SocketAddr,
    /// Address and port for NFS and MOUNT over TCP [default: 127.0.0.1:20048 or, if that is taken, a free port]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) tcp: Option<SocketAddr>,
    /// Serve RDMA only; a Linux client then has nobody to ask for MOUNT
    #[arg(long, conflicts_with = "tcp")]
    pub(crate) no_tcp: bool,
    /// Export DIR under NAME; may be given several times. Options: ro, rw, allow=CIDR (several: who may mount; default
    /// everybody), squash=root|all|none (who becomes nobody; default root)
    #[arg(long, value_name = "NAME=DIR[,OPTION]...")]
    pub(crate) export: Vec<ExportOption>,
    /// Export everything read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Register with this machine's rpcbind, so that clients find the ports
    #[arg(long)]
    pub(crate) rpcbind: bool,
    /// Largest READ and WRITE, in octets, from 4K to 1M
    #[arg(long, value_name = "OCTETS", default_value = "1M", value_parser = max_payload)]
    pub(crate) max_payload: u32,
    /// Longest message taken inline, in octets: a multiple of 1024 from 1024 to 262144
    #[arg(long, value_name = "OCTETS", default_value = "4096", value_parser = inline_size)]
    pub(crate) inline: u32,
    /// Calls that each client may have in flight, 1 to 1024
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) credits: u32,
    /// Memory for payloads of all connections together, in octets, at least 16M
    #[arg(long, value_name = "OCTETS", default_value = "256M", value_parser = memory)]
    pub(crate) memory: usize,
    /// Directory for what has to survive a restart (the key of file handles); never inside an export
    /// [default: $XDG_STATE_HOME/rpcrdma or ~/.local/state/rpcrdma]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

fn max_payload(text: &str) -> Result<u32, String> {
    match size(text)? {
        octets @ 4096..=1_048_576 => u32::try_from(octets).map_err(|error| error.to_string()),
        octets => Err(format!("{octets} is not from 4096 to 1048576")),
    }
}

fn memory(text: &str) -> Result<usize, String> {
    match size(text)? {
        octets @ 16_777_216.. => usize::try_from(octets).map_err(|error| error.to_string()),
        octets => Err(format!("{octets} is less than 16777216 (16M)")),
    }
}
