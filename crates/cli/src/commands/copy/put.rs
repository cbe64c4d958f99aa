//! `rpcrdma put`: stores files and directories.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;

use super::{
    CopyOptions, Copying, FILTER_HELP, JSON_HELP, KEPT_HELP, PARTIAL_HELP, Partial, STANDARD_STREAM, lasts,
};
use crate::arguments::{Common, Connection};
use crate::commands::until_signal;
use crate::connect::{Location, Servers};
use crate::exit::Failure;

const AFTER_HELP: &str = "\
As with cp -r, copies go into URL under their own names if URL is a directory; otherwise URL is the name of the copy. A URL \
that ends with / is a directory: -r makes it for a directory, and a file needs it to exist. A SOURCE \
that ends with /. stands for its entries. Symbolic links in trees are copied as links; without -r, a link given as SOURCE is \
followed. Devices, pipes and sockets in trees are left out with a warning and counted. A device or pipe given as SOURCE is read to \
its end, and so is - for standard input.

A file gets its name only when it is complete. It grows under another name beside it (.rpcrdma-*.part), is committed, and then \
renamed. It has the mode (unless -p) and the owner of the file that it replaces. New files and directories have the mode that the \
umask leaves (unless -p). A link at the server is followed. If URL is a file with several names, it is written in place, so that all \
names have the new content. In a tree such a file is replaced, and its other names keep the old content. A file that is writable but \
cannot be replaced is also written in place, and with --in-place every file is. No file is written in place twice. If SIGINT, \
SIGTERM or SIGHUP stops put, it removes unfinished files and keeps complete ones.

Where the server exports local directories, put copies no file onto itself and no directory into itself. If two sources would get \
one name, the second fails.

Data is written UNSTABLE and committed at the end of each file. Data that a restart of the server may have lost is written \
again. put succeeds only when everything is on the server's stable storage. Holes of local files are not sent.

";

/// Mode of a new file with the content of a stream, before the umask.
const NEW_FILE: u32 = 0o666;

/// Store files and directories
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{KEPT_HELP}\n\n{PARTIAL_HELP}\n\n{FILTER_HELP}\n\n{JSON_HELP}"))]
pub(crate) struct Put {
    #[command(flatten)]
    options: CopyOptions,
    #[command(flatten)]
    resumed: Partial,
    /// Files and directories to store; - is standard input
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Name of the copy, or directory to copy into
    #[arg(required = true, value_name = "URL")]
    destination: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

impl Put {
    /// Returns the number of connections to each server.
    pub(crate) fn connections(&self) -> u32 {
        self.connection.connections
    }

    /// Runs the command; `umask` is that of the process.
    pub(crate) async fn run(&self, common: Common, umask: u32) -> Result<(), Failure> {
        let mut copying = Copying::new(common, &self.options, umask)?.partial(self.resumed.partial);
        let ended = until_signal(self.copy(&mut copying)).await;
        copying.finish(ended)
    }

    async fn copy(&self, copying: &mut Copying) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let location = servers.locate(&self.destination).await?;
        copying.at(&location);
        let from_stdin = self.sources.iter().any(|source| source.as_path() == Path::new(STANDARD_STREAM));
        if from_stdin {
            self.copy_stdin(&location, copying).await?;
        } else {
            self.copy_files(&location, copying).await?;
        }
        servers.close().await;
        Ok(())
    }

    /// Stores the files and directories that the sources name.
    async fn copy_files(&self, location: &Location, copying: &mut Copying) -> Result<(), Failure> {
        if self.sources.len() > 1 {
            let there = location.client.stat(&location.path).await;
            if !there.is_ok_and(|attributes| attributes.is_directory()) {
                let url = &self.destination;
                return Err(Failure::usage(format!(
                    "{url} is not a directory: several sources need one (rpcrdma mkdir {url} makes it)"
                )));
            }
        }
        for (source, last) in lasts(&self.sources) {
            copying.source(last);
            match location.client.put(source, &location.path, &copying.options).await {
                Ok(report) => copying.add(report),
                Err(error) => {
                    copying.add_failure(source.display().to_string(), location.failure(error))?;
                }
            }
        }
        Ok(())
    }

    /// Stores the content of standard input.
    async fn copy_stdin(&self, location: &Location, copying: &mut Copying) -> Result<(), Failure> {
        let url = &self.destination;
        if self.sources.len() > 1 {
            return Err(Failure::usage("- stands for standard input, and has to be the only source"));
        }
        let there = location.client.stat(&location.path).await;
        if there.is_ok_and(|attributes| attributes.is_directory()) {
            return Err(Failure::usage(format!("{url} is a directory: add the name of the new file")));
        }
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::failed(format!("cannot read standard input: {error}")))?;
        copying.source(true);
        let name = "standard input";
        let (input, options) = (File::from(input), &copying.options);
        match location.client.put_open(input, name, NEW_FILE, &location.path, options).await {
            Ok(report) => copying.add(report),
            Err(error) => copying.add_failure(name.to_owned(), location.failure(error))?,
        }
        Ok(())
    }
}
