//! `rpcrdma cat`: writes files to standard output.

use std::io::{self, Write};

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;
use rpcrdma_nfs::wire::FileType;

use crate::arguments::{Common, Connection, pattern};
use crate::commands::Tally;
use crate::connect::Servers;
use crate::exit::Failure;
use crate::output::stdout_failure;

/// Write the content of files to standard output. Symbolic links are followed
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Files to write, in this order; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

impl Cat {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        if common.json {
            return Err(Failure::usage(
                "cat writes the content of files and has no JSON form: leave --json out",
            ));
        }
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let written = write(&mut servers, &url).await;
                tally.count(written)?;
            }
        }
        servers.close().await;
        tally.finish()
    }
}

/// Writes the content of one file to standard output.
pub(super) async fn write(servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(), Failure> {
    let location = servers.locate(url).await?;
    let fail = |error| location.failure(error);
    let node = location.client.lookup(&location.path).await.map_err(fail)?;
    if node.attributes.is_directory() {
        return Err(Failure::failed(format!("{url} is a directory: use ls or get -r")));
    }
    if node.attributes.file_type != FileType::Regular {
        return Err(Failure::failed(format!("{url} is not a regular file")));
    }
    let file = location.client.file(node.handle, &location.path);
    let mut pieces = file.read_stream(0, None).await.map_err(fail)?;
    while let Some(piece) = pieces.next().await.map_err(fail)? {
        // The reader at the other end of a pipe may be slow, so another thread writes.
        let write = move || {
            let mut out = io::stdout().lock();
            out.write_all(&piece).and_then(|()| out.flush())
        };
        tokio::task::spawn_blocking(write)
            .await
            .map_err(|error| Failure::failed(format!("a thread failed: {error}")))?
            .map_err(stdout_failure)?;
    }
    Ok(())
}
