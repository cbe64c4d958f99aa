//! `rpcrdma put`.

use std::path::PathBuf;

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;

use super::{CopyOptions, Copying, JSON_HELP};
use crate::arguments::{Common, Connection};
use crate::connect::Servers;
use crate::exit::Failure;

const AFTER_HELP: &str = "\
As with cp -r: if URL is a directory, copies go into it under their own names; else URL is the name of the copy. A SOURCE \
that ends with /. gives its entries. Symbolic links in trees are copied as links; one that is named as SOURCE is followed \
without -r. Devices, pipes and sockets are left out with a warning.

Data is written UNSTABLE and committed at the end of each file; what a restart of the server may have lost is written \
again. put is done when everything is on the server's stable storage.

";

/// Store files and directories.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{JSON_HELP}"))]
pub(crate) struct Put {
    #[command(flatten)]
    options: CopyOptions,
    /// What to store
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Where to
    #[arg(required = true, value_name = "URL")]
    destination: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

impl Put {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let location = servers.locate(&self.destination).await?;
        if self.sources.len() > 1 {
            let there = location.client.stat(&location.path).await;
            if !there.is_ok_and(|attributes| attributes.is_directory()) {
                let url = &self.destination;
                return Err(Failure::usage(format!(
                    "{url} is not a directory: several sources need one (rpcrdma mkdir {url} makes it)"
                )));
            }
        }
        let mut copying = Copying::new(common, self.options);
        copying.at(&location);
        for source in &self.sources {
            match location.client.put(source, &location.path, &copying.options).await {
                Ok(report) => copying.add(report),
                Err(error) => {
                    copying.add_failure(source.display().to_string(), location.failure(error))?;
                }
            }
        }
        copying.finish()
    }
}
