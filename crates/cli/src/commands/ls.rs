//! `rpcrdma ls`: lists directories.

use clap::Args;
use rpcrdma_nfs::client::{NfsUrl, Node};
use rpcrdma_nfs::wire::FileType;
use serde::Serialize;

use super::Tally;
use super::entry::{EntryDocument, mode_text, time};
use crate::arguments::{Common, Connection};
use crate::connect::Servers;
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Times are UTC. A symbolic link given as URL is followed; links in directories are shown as links.

--json prints {listings: [{url, entries: [{url, name, type, mode, links, uid, gid, size, used, fsid, fileid, atime, mtime, \
ctime, target}]}]}; symbolic links have a target if --long is given.";

/// List directories (or show files), sorted by name
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ls {
    /// Directories or files to list
    #[arg(required = true, value_name = "URL")]
    urls: Vec<NfsUrl>,
    /// Print a line for each entry with type and mode, links, owner, group, bytes, time of change, name
    #[arg(short, long)]
    long: bool,
    /// Include names that begin with "."
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize)]
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

impl Ls {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut document = Document { listings: Vec::new() };
        let mut text = Text::stdout();
        for url in &self.urls {
            let listed = self.list(&mut servers, url).await;
            let Some((directory, items)) = tally.count(listed)? else { continue };
            if common.json {
                document.listings.push(listing(url, directory, &items));
            } else {
                if self.urls.len() > 1 {
                    text.line(format_args!("{url}:"))?;
                }
                self.print(&mut text, &items)?;
                text.flush()?;
            }
        }
        if common.json {
            output::json(&document)?;
        }
        servers.close().await;
        tally.finish()
    }

    /// Returns the entries to show, and whether they are the content of a directory.
    async fn list(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(bool, Vec<Item>), Failure> {
        let location = servers.locate(url).await?;
        let fail = |error| location.failure(error);
        let node = location.client.lookup(&location.path).await.map_err(fail)?;
        if node.attributes.file_type != FileType::Directory {
            let name = url.file_name().unwrap_or_default().to_vec();
            return Ok((false, vec![Item { name, node, target: None }]));
        }
        let mut items = Vec::new();
        let mut reader = location.client.dir_reader(node.handle, &location.path);
        while let Some(batch) = reader.next().await.map_err(fail)? {
            for entry in batch {
                if !self.all && entry.name.as_bytes().starts_with(b".") {
                    continue;
                }
                let known = entry.handle.zip(entry.attributes);
                let node = match known {
                    Some((handle, attributes)) => Node { handle, attributes },
                    None => match location.client.lookup_link(location.child(entry.name.as_bytes())).await {
                        Ok(node) => node,
                        // The entry was removed after the server listed it.
                        Err(error) if error.status() == Some(rpcrdma_nfs::wire::Status::NoEnt) => continue,
                        Err(error) => return Err(location.failure(error)),
                    },
                };
                items.push(Item { name: entry.name.into_bytes(), node, target: None });
            }
        }
        if self.long {
            for item in items.iter_mut().filter(|item| item.node.attributes.file_type == FileType::Symlink) {
                item.target = location.client.readlink(location.child(&item.name)).await.ok();
            }
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((true, items))
    }

    fn print(&self, text: &mut Text, items: &[Item]) -> Result<(), Failure> {
        if !self.long {
            return items.iter().try_for_each(|item| text.line_with_name("", &item.name));
        }
        let width = |number: fn(&Item) -> u64| {
            items.iter().map(|item| number(item).to_string().len()).max().unwrap_or_default()
        };
        let links = width(|item| item.node.attributes.nlink.into());
        let uid = width(|item| item.node.attributes.uid.into());
        let gid = width(|item| item.node.attributes.gid.into());
        let size = width(|item| item.node.attributes.size);
        for item in items {
            let a = &item.node.attributes;
            let start = format!(
                "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {} ",
                mode_text(a),
                a.nlink,
                a.uid,
                a.gid,
                a.size,
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

fn listing(url: &NfsUrl, directory: bool, items: &[Item]) -> Listing {
    let entries = items
        .iter()
        .map(|item| {
            let url = if directory { url.child(&item.name) } else { url.clone() };
            EntryDocument::new(url.to_string(), &item.name, &item.node.attributes, item.target.as_deref())
        })
        .collect();
    Listing { url: url.to_string(), entries }
}
