//! `rpcrdma cp`: copies files and directories at servers.

use clap::Args;
use rpcrdma_nfs::client::{CopyReport, NfsUrl};

use super::{CopyOptions, Copying, FILTER_HELP, JSON_HELP, KEPT_HELP, lasts};
use crate::arguments::{Common, Connection, pattern};
use crate::commands::until_signal;
use crate::connect::{Location, Servers};
use crate::exit::Failure;

const AFTER_HELP: &str = "\
SOURCE and DEST can be at one server or at two. The data passes through this client, since NFS version 3 has no copies at the server. \
As with cp -r, copies go into DEST under their own names if DEST is a directory; otherwise DEST is the name of the copy. A DEST that ends \
with / is a directory: -r makes it for a directory, and a file needs it to exist. Symbolic links in trees are copied as links; without \
-r, a link given as SOURCE is followed. Devices, pipes and sockets in trees are left out with a warning and counted.

Files get their names, and existing files are replaced, as rpcrdma put --help tells. cp copies no file onto itself and no directory into \
itself. If two sources would get one name, the second fails.

";

/// Copy files and directories at servers
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{FILTER_HELP}\n\n{KEPT_HELP}\n\n{JSON_HELP}"))]
pub(crate) struct Cp {
    #[command(flatten)]
    options: CopyOptions,
    /// Files and directories to copy; names may have wildcards
    #[arg(required = true, value_name = "SOURCE", value_parser = pattern)]
    sources: Vec<NfsUrl>,
    /// Name of the copy, or directory to copy into
    #[arg(required = true, value_name = "DEST")]
    destination: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

impl Cp {
    /// Runs the command; `umask` is that of the process.
    pub(crate) async fn run(&self, common: Common, umask: u32) -> Result<(), Failure> {
        let mut copying = Copying::new(common, &self.options, umask)?;
        let ended = until_signal(self.copy(&mut copying)).await;
        copying.finish(ended)
    }

    async fn copy(&self, copying: &mut Copying) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut urls = Vec::new();
        for given in &self.sources {
            urls.extend(servers.expand(given).await?);
        }
        let to = servers.locate(&self.destination).await?;
        copying.at(&to);
        let into = to.client.stat(&to.path).await.is_ok_and(|attributes| attributes.is_directory());
        if urls.len() > 1 && !into {
            let url = &self.destination;
            return Err(Failure::usage(format!(
                "{url} is not a directory: several sources need one (rpcrdma mkdir {url} makes it)"
            )));
        }
        for (url, last) in lasts(&urls) {
            copying.source(last);
            match copy_one(&mut servers, copying, url, &to, into).await {
                Ok(report) => copying.add(report),
                Err(failure) => copying.add_failure(url.to_string(), failure)?,
            }
        }
        servers.close().await;
        Ok(())
    }
}

async fn copy_one(
    servers: &mut Servers<'_>,
    copying: &Copying,
    url: &NfsUrl,
    to: &Location,
    into: bool,
) -> Result<CopyReport, Failure> {
    let from = servers.locate(url).await?;
    // The root of an export whose URL ends in a name of its own.
    let named = url.file_name().filter(|_| from.is_root() && into);
    let target = named.map_or_else(|| to.path.clone(), |name| to.child(name));
    let copied = from.client.copy_to(&from.path, &to.client, &target, &copying.options).await;
    copied.map_err(|error| from.failure(error))
}
