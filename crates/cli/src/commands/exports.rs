//! `rpcrdma exports`.

use clap::Args;

use crate::arguments::Connection;

/// List what a server exports.
#[derive(Debug, Args)]
pub(crate) struct Exports {
    /// Server: HOST, HOST:PORT or nfs://HOST[:PORT]
    #[arg(value_name = "HOST[:PORT]", value_parser = crate::arguments::host)]
    pub(crate) host: rpcrdma_nfs::client::NfsUrl,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
