//! `rpcrdma stat`.

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;

use crate::arguments::Connection;

/// Show the attributes of files. Symbolic links are shown, not followed.
#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// What to show
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
