//! `rpcrdma get`: fetches files and directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rpcrdma_nfs::client::{CopyReport, NfsUrl};

use super::{
    CopyOptions, Copying, FILTER_HELP, JSON_HELP, KEPT_HELP, PARTIAL_HELP, Partial, STANDARD_STREAM, cat,
    lasts,
};
use crate::arguments::{Common, Connection, Place};
use crate::commands::until_signal;
use crate::connect::Servers;
use crate::exit::Failure;

const AFTER_HELP: &str = "\
As with cp -r, copies go into DEST under their own names if DEST is a directory; otherwise DEST is the name of the copy. \
A DEST that ends with / is a directory: -r makes it for a directory, and a file needs it to exist. The root \
of a server, nfs://HOST/, has no name: its entries are copied. Symbolic links in trees are copied as links; without -r, a link \
given as URL is followed. Devices, pipes and sockets in trees are left out with a warning and counted.

DEST may be - for standard output, a device or a named pipe; get then writes to it. If DEST is a link, the copy goes to its target. \
In a tree, a local link in the place of a file is replaced. A local device or pipe there is left alone, and the file fails.

A file gets its name only when it is complete. It grows under another name beside it (.rpcrdma-*.part), is closed without an error, \
and then renamed. It has mode, owner and extended attributes of the file that it replaces. If DEST is a file with several names, it \
is written in place, so that all names have the new content. In a tree such a file is replaced, and its other names keep the old \
content. A file that is writable but cannot be replaced is also written in place, and with --in-place every file is. No file is \
written in place twice. If SIGINT, SIGTERM or SIGHUP stops get, it removes unfinished files and keeps complete ones.

Where the server exports local directories, get copies no file onto itself and no directory into itself. If two sources would get \
one name, the second fails.

Blocks of zeros are not written: they become holes.

";

/// Fetch files and directories
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{KEPT_HELP}\n\n{PARTIAL_HELP}\n\n{FILTER_HELP}\n\n{JSON_HELP}"))]
pub(crate) struct Get {
    #[command(flatten)]
    options: CopyOptions,
    #[command(flatten)]
    resumed: Partial,
    /// Files and directories to fetch, whose names may have wildcards, then the destination, which is a local path or - for standard output
    /// [default: the current directory]
    #[arg(required = true, value_name = "URL... [DEST]",
        value_parser = OsStringValueParser::new().try_map(Place::parse_pattern))]
    operands: Vec<Place>,
    #[command(flatten)]
    connection: Connection,
}

impl Get {
    /// Returns the number of connections to each server.
    pub(crate) fn connections(&self) -> u32 {
        self.connection.connections
    }

    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let (sources, destination) = self.split()?;
        if destination == Path::new(STANDARD_STREAM) {
            return until_signal(self.to_stdout(&sources, common)).await;
        }
        if sources.len() > 1 && !destination.is_dir() {
            return Err(several(&destination));
        }
        // The umask of the process applies to local files.
        let mut copying = Copying::new(common, &self.options, 0)?.partial(self.resumed.partial);
        let ended = until_signal(self.copy(&sources, &destination, &mut copying)).await;
        copying.finish(ended)
    }

    async fn copy(
        &self,
        sources: &[&NfsUrl],
        destination: &Path,
        copying: &mut Copying,
    ) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut urls = Vec::new();
        for given in sources {
            urls.extend(servers.expand(given).await?);
        }
        if urls.len() > 1 && !destination.is_dir() {
            return Err(several(destination));
        }
        for (url, last) in lasts(&urls) {
            copying.source(last);
            match fetch(&mut servers, copying, url, destination).await {
                Ok(report) => copying.add(report),
                Err(failure) => copying.add_failure(url.to_string(), failure)?,
            }
        }
        servers.close().await;
        Ok(())
    }

    /// Writes one file to standard output.
    async fn to_stdout(&self, sources: &[&NfsUrl], common: Common) -> Result<(), Failure> {
        let wrong = match sources {
            [_] if self.options.recursive => "a tree cannot go to standard output: leave -r out",
            [_] if common.json => "--json prints to standard output too: give DEST a name",
            [url] => {
                let mut servers = Servers::new(&self.connection);
                let urls = servers.expand(url).await?;
                let [url] = urls.as_slice() else {
                    return Err(Failure::usage("one file only goes to standard output: cat takes several"));
                };
                let written = cat::write(&mut servers, url).await;
                servers.close().await;
                return written;
            }
            _ => "one file only goes to standard output: cat takes several",
        };
        Err(Failure::usage(wrong))
    }

    /// Returns the URLs and the local path after them.
    fn split(&self) -> Result<(Vec<&NfsUrl>, PathBuf), Failure> {
        let mut urls = Vec::new();
        let mut destination = None;
        for operand in &self.operands {
            match (operand, &destination) {
                (Place::Remote(url), None) => urls.push(url),
                (Place::Local(path), None) => destination = Some(path.clone()),
                (_, Some(path)) => {
                    return Err(Failure::usage(format!(
                        "{} is a local path and has to be the last operand: rpcrdma get URL... [DEST]",
                        path.display()
                    )));
                }
            }
        }
        if urls.is_empty() {
            return Err(Failure::usage("nothing to fetch: rpcrdma get nfs://HOST/PATH [DEST]"));
        }
        Ok((urls, destination.unwrap_or_else(|| PathBuf::from("."))))
    }
}

/// Returns the failure for a destination that is no directory.
fn several(destination: &Path) -> Failure {
    Failure::usage(format!("{} is not a directory: several sources need one", destination.display()))
}

async fn fetch(
    servers: &mut Servers<'_>,
    copying: &Copying,
    url: &NfsUrl,
    destination: &Path,
) -> Result<CopyReport, Failure> {
    let location = servers.locate(url).await?;
    copying.at(&location);
    // The root of an export whose URL ends in a name of its own.
    let named = url.file_name().filter(|_| location.is_root() && destination.is_dir());
    let target =
        named.map_or_else(|| destination.to_owned(), |name| destination.join(OsStr::from_bytes(name)));
    location
        .client
        .get(&location.path, &target, &copying.options)
        .await
        .map_err(|error| location.failure(error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    fn split(operands: &[&str]) -> Result<(usize, PathBuf), String> {
        let line = Line::try_parse_from([&["get"], operands].concat()).map_err(|error| error.to_string())?;
        line.get.split().map(|(urls, path)| (urls.len(), path)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn operands() {
        assert_eq!(split(&["nfs://h/a"]), Ok((1, ".".into())));
        assert_eq!(split(&["-r", "nfs://h/a", "nfs://h/b", "out"]), Ok((2, "out".into())));
        assert_eq!(split(&["nfs://h/a", "-"]), Ok((1, "-".into())));
        assert!(split(&["out"]).unwrap_err().contains("nothing to fetch"));
        assert!(split(&["out", "nfs://h/a"]).unwrap_err().contains("last operand"));
        assert!(split(&["nfs://h/a", "x", "y"]).unwrap_err().contains("last operand"));
        assert!(split(&["nfs:/h/a", "x"]).unwrap_err().contains("write nfs://HOST/PATH"));
    }
}
