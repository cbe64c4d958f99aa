//! `rpcrdma ls`: lists directories.

use std::cmp::Ordering;

use clap::Args;
use rpcrdma_nfs::client::{Client, MAX_LISTING, NfsUrl, Node};
use rpcrdma_nfs::mount::ExportNode;
use rpcrdma_nfs::wire::{FileHandle, FileType};
use serde::Serialize;

use super::Tally;
use super::entry::{ENTRY_HELP, EntryDocument, mode_text, time};
use super::visit::too_wide;
use crate::arguments::{Common, Connection, pattern};
use crate::connect::{Location, Servers};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Times are UTC. A symbolic link given as URL is followed, unless -d is given; links in directories are shown as links. If a server \
exports nothing as /, then ls nfs://HOST/ lists its exports, each by its path; those that this client may not mount are told.

--json prints {listings: [{url, entries: [";

const AFTER_ENTRY: &str =
    "]}]}; symbolic links have a target if --long is given. With -R each directory is a listing of its own.";

/// List directories (or show files), sorted by name
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{ENTRY_HELP}{AFTER_ENTRY}"), disable_help_flag = true)]
pub(crate) struct Ls {
    /// Directories or files to list; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    /// Print a line for each entry with type and mode, links, owner, group, bytes, time of change, name
    #[arg(short, long)]
    long: bool,
    /// Include names that begin with "."
    #[arg(short, long)]
    all: bool,
    /// With -l, show sizes with units, such as 1.5K or 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// List the directories in directories too
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// Show directories and links themselves, not what they contain or lead to
    #[arg(short, long)]
    directory: bool,
    /// Print a line for each name: what happens anyway
    #[arg(short = '1')]
    one: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S', conflicts_with_all = ["time", "unsorted"])]
    size: bool,
    /// Sort by time of change, the newest first
    #[arg(short, conflicts_with = "unsorted")]
    time: bool,
    /// Sort the other way round
    #[arg(short, long)]
    reverse: bool,
    /// Do not sort: keep the order of the server
    #[arg(short = 'U')]
    unsorted: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Default, Serialize)]
struct Document {
    listings: Vec<Listing>,
}

#[derive(Serialize)]
struct Listing {
    url: String,
    entries: Vec<EntryDocument>,
}

/// A line of a listing.
struct Item {
    name: Vec<u8>,
    node: Node,
    target: Option<Vec<u8>>,
}

/// Greatest depth of a directory below the URL, with -R.
const DEEPEST: usize = 4096;

/// Output of the command.
struct Out {
    json: bool,
    /// Whether each listing has its URL above it.
    titled: bool,
    /// Whether a listing came before.
    some: bool,
    text: Text,
    document: Document,
}

impl Ls {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut urls = Vec::new();
        // Files of one pattern stand together, as names of it.
        for given in &self.urls {
            urls.extend(servers.expand(given).await?);
        }
        let mut out = Out {
            json: common.json,
            titled: urls.len() > 1 || self.recursive,
            some: false,
            text: Text::stdout(),
            document: Document::default(),
        };
        // As other programs of this name: what is no directory comes first, without a title.
        let (mut files, mut directories, mut ended) = (Vec::new(), Vec::new(), Ok(()));
        let mut above = Vec::new();
        for url in urls {
            let found = self.find(&mut servers, &url).await;
            if found.as_ref().is_err_and(|failure| failure.exit() == Exit::Failed)
                && let Some(exports) = self.exports(&mut servers, &url).await
            {
                above.push((url, exports));
                continue;
            }
            let (location, node) = match tally.count_none(found) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // Objects found before are shown first.
                Err(failure) => {
                    ended = Err(failure);
                    break;
                }
            };
            let is_listed = node.attributes.is_directory() && !self.directory;
            // A document keeps the order of the URLs.
            if is_listed && out.json {
                self.tree(&url, &location, node, &mut tally, &mut out).await?;
            } else if is_listed {
                directories.push((url, location, node));
            } else {
                tally.count(Ok(()))?;
                let name = url.file_name().unwrap_or(b"/").to_vec();
                let target = self.target(&location, &node).await;
                let item = Item { name, node, target };
                if out.json {
                    let entries = vec![document(&url, &item)];
                    out.document.listings.push(Listing { url: url.to_string(), entries });
                } else {
                    files.push(item);
                }
            }
        }
        self.show_files(files, &mut out)?;
        for (url, exports) in above {
            self.show_exports(&mut servers, (&url, exports), &mut tally, &mut out).await?;
        }
        for (url, location, node) in directories {
            self.tree(&url, &location, node, &mut tally, &mut out).await?;
        }
        if common.json {
            output::document(&out.document)?;
        }
        out.text.flush()?;
        servers.close().await;
        ended.and_then(|()| tally.finish())
    }

    /// Returns the exports of a server, for the URL of its root if nothing is exported there.
    async fn exports(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Option<Vec<NfsUrl>> {
        if self.directory || !url.components().is_empty() {
            return None;
        }
        let (rpc, options) = (servers.rpc(url).await.ok()?, servers.options(url).ok()?);
        let listed = Client::exports(&rpc, &options).await.ok()?;
        let named = |export: &ExportNode| {
            let parts =
                export.directory.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
            url.below(parts)
        };
        let exports: Vec<NfsUrl> = listed.iter().map(named).collect();
        // An export at the root has failed for a reason of its own.
        let nothing_here = exports.iter().all(|export| !export.components().is_empty());
        (nothing_here && !exports.is_empty()).then_some(exports)
    }

    /// Shows exports as entries of the root above them, whose names are their paths from there.
    async fn show_exports(
        &self,
        servers: &mut Servers<'_>,
        (url, exports): (&NfsUrl, Vec<NfsUrl>),
        tally: &mut Tally,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let (mut items, mut below) = (Vec::new(), Vec::new());
        for export in exports {
            let found = self.find(servers, &export).await;
            let Some((location, node)) = tally.count_none(found)? else { continue };
            let name = export.components().join(b"/".as_slice());
            items.push(Item { name, node, target: None });
            below.push((export, location, node));
        }
        tally.count(Ok(()))?;
        self.sort(&mut items);
        self.show(url, &items, out)?;
        for (export, location, node) in below.into_iter().filter(|_| self.recursive) {
            self.tree(&export, &location, node, tally, out).await?;
        }
        Ok(())
    }

    async fn find(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(Location, Node), Failure> {
        let location = servers.locate(url).await?;
        let (client, path) = (&location.client, &location.path);
        let found = if self.directory { client.lookup_link(path).await } else { client.lookup(path).await };
        let node = found.map_err(|error| location.failure(error))?;
        Ok((location, node))
    }

    /// Returns the text of a symbolic link, if it is to be shown.
    async fn target(&self, location: &Location, node: &Node) -> Option<Vec<u8>> {
        if !self.long || node.attributes.file_type != FileType::Symlink {
            return None;
        }
        location.client.read_link_of(node.handle).await.ok()
    }

    /// Shows the objects given as URLs.
    fn show_files(&self, mut files: Vec<Item>, out: &mut Out) -> Result<(), Failure> {
        if files.is_empty() {
            return Ok(());
        }
        out.some = true;
        self.sort(&mut files);
        self.print(&mut out.text, &files)
    }

    /// Lists a directory, and with -R those in it.
    async fn tree(
        &self,
        url: &NfsUrl,
        location: &Location,
        node: Node,
        tally: &mut Tally,
        out: &mut Out,
    ) -> Result<(), Failure> {
        // Directories still to list at each level, the next one last, and those on the way to the current level.
        let mut levels = vec![vec![(Vec::new(), node)]];
        let mut way: Vec<(Vec<u8>, FileHandle)> = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some((name, node)) = level.pop() else {
                levels.pop();
                way.pop();
                continue;
            };
            // The first directory has no name below itself.
            let names = way.iter().map(|(name, _)| name).chain([&name]).filter(|name| !name.is_empty());
            let at = url.below(names.map(Vec::as_slice));
            let listed = if way.len() > DEEPEST {
                Err(Failure::failed(format!("{at}: more than {DEEPEST} directories deep")))
            } else if way.iter().any(|(_, above)| *above == node.handle) {
                Err(Failure::failed(format!("{at} is a directory inside itself")))
            } else {
                self.list(location, &at, node).await
            };
            let Some(items) = tally.count(listed)? else { continue };
            let mut below: Vec<(Vec<u8>, Node)> = Vec::new();
            if self.recursive {
                let inner = items.iter().filter(|item| item.node.attributes.is_directory());
                below = inner.map(|item| (item.name.clone(), item.node)).collect();
                below.reverse();
            }
            self.show(&at, &items, out)?;
            if !below.is_empty() {
                levels.push(below);
                way.push((name, node.handle));
            }
            if levels.iter().map(Vec::len).sum::<usize>() > MAX_LISTING {
                return Err(Failure::failed(format!("{at}: {}", too_wide())));
            }
        }
        Ok(())
    }

    /// Returns the entries of a directory to show, sorted.
    async fn list(&self, location: &Location, url: &NfsUrl, directory: Node) -> Result<Vec<Item>, Failure> {
        let fail = |error| location.failure_at(url, error);
        let client = &location.client;
        let mut items = Vec::new();
        let mut reader = client.dir_reader(directory.handle, url.path());
        while let Some(batch) = reader.next().await.map_err(fail)? {
            for entry in batch {
                if !self.all && entry.name.as_bytes().starts_with(b".") {
                    continue;
                }
                // The entry may have been removed after the server listed it.
                let Some(node) = client.entry_of(directory.handle, &entry).await.map_err(fail)? else {
                    continue;
                };
                let target = self.target(location, &node).await;
                items.push(Item { name: entry.name.into_bytes(), node, target });
            }
        }
        self.sort(&mut items);
        Ok(items)
    }

    /// Sorts as the options say; equal objects by name.
    fn sort(&self, items: &mut [Item]) {
        if self.unsorted {
            return;
        }
        items.sort_by(|a, b| {
            let (first, second) = (&a.node.attributes, &b.node.attributes);
            let order = if self.size {
                second.size.cmp(&first.size)
            } else if self.time {
                second.mtime.cmp(&first.mtime)
            } else {
                Ordering::Equal
            };
            let order = order.then_with(|| a.name.cmp(&b.name));
            if self.reverse { order.reverse() } else { order }
        });
    }

    /// Shows the entries of a directory.
    fn show(&self, url: &NfsUrl, items: &[Item], out: &mut Out) -> Result<(), Failure> {
        if out.json {
            // Names of exports are paths.
            let at = |item: &Item| url.below(item.name.split(|byte| *byte == b'/'));
            let entries = items.iter().map(|item| document(&at(item), item)).collect();
            out.document.listings.push(Listing { url: url.to_string(), entries });
            return Ok(());
        }
        if out.titled {
            if std::mem::replace(&mut out.some, true) {
                out.text.line("")?;
            }
            out.text.line(format_args!("{url}:"))?;
        }
        self.print(&mut out.text, items)?;
        out.text.flush()
    }

    fn print(&self, text: &mut Text, items: &[Item]) -> Result<(), Failure> {
        if !self.long {
            return items.iter().try_for_each(|item| text.line_with_name("", &item.name));
        }
        let size_of = |item: &Item| {
            let size = item.node.attributes.size;
            if self.human_readable { human::size(size) } else { size.to_string() }
        };
        let width = |number: &dyn Fn(&Item) -> String| {
            items.iter().map(|item| number(item).len()).max().unwrap_or_default()
        };
        let links = width(&|item| item.node.attributes.nlink.to_string());
        let uid = width(&|item| item.node.attributes.uid.to_string());
        let gid = width(&|item| item.node.attributes.gid.to_string());
        let size = width(&size_of);
        for item in items {
            let a = &item.node.attributes;
            let start = format!(
                "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {} ",
                mode_text(a),
                a.nlink,
                a.uid,
                a.gid,
                size_of(item),
                time(a.mtime)
            );
            let mut name = item.name.clone();
            if let Some(target) = &item.target {
                name.extend_from_slice(b" -> ");
                name.extend_from_slice(target);
            }
            text.line_with_name(start, &name)?;
        }
        Ok(())
    }
}

fn document(url: &NfsUrl, item: &Item) -> EntryDocument {
    EntryDocument::new(url.to_string(), &item.name, &item.node.attributes, item.target.as_deref())
}
