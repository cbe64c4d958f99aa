//! `rpcrdma ls`.

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;

use crate::arguments::Connection;

/// List directories (or show files), sorted by name.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// What to list
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<NfsUrl>,
    /// One line an entry with type and mode, links, owner, group, octets, time of change, name
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Show names that begin with "." too
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
