//! `rpcrdma stat`: shows the attributes of files, or the state of a server.

use clap::Args;
use rpcrdma_nfs::client::{NfsUrl, Node};
use rpcrdma_nfs::wire::FileType;
use serde::Serialize;

use super::Tally;
use super::entry::{ENTRY_HELP, EntryDocument, mode_text};
use super::observed::{self, Observed, Place};
use crate::arguments::{Common, Connection, pattern};
use crate::connect::Servers;
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = ": only symbolic links have a target. The times end in Z, to the second, and those with _exact to the nanosecond.

Of a server, --json prints {process, listeners, exports, transports, procedures: [{program, version, procedure, calls, errors, \
latency}], forms, data, credits, memory, reply_cache, connections, io, link}; docs/json.md has the fields. Percentiles are bounds of \
buckets: powers of two, in microseconds.";

/// Show the attributes of files, or the state of a server. Symbolic links are shown, not followed
#[derive(Debug, Args)]
#[command(after_help = format!("--json prints {{entries: [{ENTRY_HELP}]}}{AFTER_HELP}"))]
pub(crate) struct Stat {
    /// Files and directories to show; names may have wildcards. HOST:PORT of serve --metrics, a state directory or a
    /// control socket shows a server instead. Without any, stat shows the server with the default state directory
    #[arg(value_name = "URL|ADDR", value_parser = target)]
    targets: Vec<Target>,
    /// Follow symbolic links, and show what they lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Files or a server to show.
#[derive(Clone, Debug)]
enum Target {
    Files(NfsUrl),
    Server(Place),
}

/// Parses a URL of NFS, or the place of a server.
fn target(text: &str) -> Result<Target, String> {
    if text.contains("://") && !text.starts_with("http://") {
        pattern(text).map(Target::Files)
    } else {
        observed::place(text).map(Target::Server)
    }
}

#[derive(Serialize)]
struct Document {
    entries: Vec<EntryDocument>,
}

impl Stat {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut urls = Vec::new();
        for target in &self.targets {
            match target {
                Target::Files(url) => urls.push(url),
                Target::Server(place) if self.targets.len() == 1 => return server(Some(place), common).await,
                Target::Server(_) => {
                    return Err(Failure::usage(
                        "stat shows files, each by a URL nfs://HOST/PATH, or one server: not both at once",
                    ));
                }
            }
        }
        if urls.is_empty() {
            return server(None, common).await;
        }
        self.files(&urls, common).await
    }

    async fn files(&self, urls: &[&NfsUrl], common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut document = Document { entries: Vec::new() };
        let mut text = Text::stdout();
        for given in urls {
            for url in servers.expand(given).await? {
                let found = self.look(&mut servers, &url).await;
                let Some((node, target)) = tally.count(found)? else { continue };
                let name = url.file_name().unwrap_or(b"/");
                let entry = EntryDocument::new(url.to_string(), name, &node.attributes, target.as_deref());
                if common.json {
                    document.entries.push(entry);
                } else {
                    print(&mut text, &entry, &node)?;
                    text.flush()?;
                }
            }
        }
        if common.json {
            output::document(&document)?;
        }
        servers.close().await;
        tally.finish()
    }

    async fn look(
        &self,
        servers: &mut Servers<'_>,
        url: &NfsUrl,
    ) -> Result<(Node, Option<Vec<u8>>), Failure> {
        let location = servers.locate(url).await?;
        let fail = |error| location.failure(error);
        if self.dereference {
            return Ok((location.client.lookup(&location.path).await.map_err(fail)?, None));
        }
        let node = location.client.lookup_link(&location.path).await.map_err(fail)?;
        let target = if node.attributes.file_type == FileType::Symlink {
            Some(location.client.readlink(&location.path).await.map_err(fail)?)
        } else {
            None
        };
        Ok((node, target))
    }
}

/// Shows a server.
async fn server(place: Option<&Place>, common: Common) -> Result<(), Failure> {
    let status = Observed::at(place).await?.status().await?;
    if common.json {
        return output::document(&status);
    }
    let mut text = Text::stdout();
    for line in observed::text::status(&status).lines() {
        text.line(line)?;
    }
    text.flush()
}

fn print(text: &mut Text, entry: &EntryDocument, node: &Node) -> Result<(), Failure> {
    text.line(format_args!("   URL: {}", entry.url))?;
    text.line(format_args!("  Type: {}", entry.file_type))?;
    if let Some(target) = &entry.target {
        text.line_with_name("Target: ", target.as_bytes())?;
    }
    text.line(format_args!("  Size: {} bytes, {} on disk", entry.size, entry.used))?;
    text.line(format_args!(
        "Access: {} ({})  Uid: {}  Gid: {}  Links: {}",
        entry.mode,
        mode_text(&node.attributes),
        entry.uid,
        entry.gid,
        entry.links
    ))?;
    if matches!(node.attributes.file_type, FileType::BlockDevice | FileType::CharacterDevice) {
        let device = node.attributes.rdev;
        text.line(format_args!("Device: {}, {}", device.major, device.minor))?;
    }
    text.line(format_args!("FileID: {}  FSID: {:#x}", entry.fileid, entry.fsid))?;
    text.line(format_args!("  Read: {}", entry.atime_exact))?;
    text.line(format_args!("Modify: {}", entry.mtime_exact))?;
    text.line(format_args!("Change: {}", entry.ctime_exact))
}
