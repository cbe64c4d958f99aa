//! `rpcrdma du`: shows the space that files and directories use.

use std::collections::HashSet;

use clap::Args;
use rpcrdma_nfs::client::{NfsUrl, Node};
use serde::Serialize;

use super::Tally;
use super::visit::{Step, Visit};
use crate::arguments::{Common, Connection, pattern, whole};
use crate::connect::{Location, Servers};
use crate::exit::Failure;
use crate::human;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Each line has the space in units of 1024 bytes, and a URL: of a directory with everything in it, or of a file given as URL. A file \
with several names counts once. Symbolic links are not followed.

--json prints {usage: [{url, bytes, apparent_bytes}], total: {bytes, apparent_bytes}}. bytes is the space that the objects use, and \
apparent_bytes the sum of their sizes.";

/// Show the space that files and directories use
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, disable_help_flag = true)]
pub(crate) struct Du {
    /// Directories and files to measure; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    /// Show a line for each URL only
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Show files too
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show directories at most this many levels below URL
    #[arg(short = 'd', long, value_name = "LEVELS", value_parser = whole::<u32>(0, u32::MAX))]
    max_depth: Option<u32>,
    /// Show sizes with units, such as 1.5K or 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show the sizes of files, not the space that they use
    #[arg(long)]
    apparent_size: bool,
    /// Show the sizes of files in bytes
    #[arg(short, long, conflicts_with = "human_readable")]
    bytes: bool,
    /// Show units of 1024 bytes: what happens anyway
    #[arg(short, conflicts_with_all = ["human_readable", "bytes"])]
    kibibytes: bool,
    /// Show the sum of all URLs at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

/// Space in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Space {
    bytes: u64,
    apparent_bytes: u64,
}

impl Space {
    fn of(node: &Node) -> Self {
        Self { bytes: node.attributes.used, apparent_bytes: node.attributes.size }
    }

    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.apparent_bytes = self.apparent_bytes.saturating_add(other.apparent_bytes);
    }
}

#[derive(Serialize)]
struct Used {
    url: String,
    #[serde(flatten)]
    space: Space,
}

#[derive(Default, Serialize)]
struct Document {
    usage: Vec<Used>,
    total: Space,
}

/// Files with several names that are counted already: by server, file system and number.
type Counted = HashSet<(std::net::SocketAddr, u64, u64)>;

impl Du {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut document = Document::default();
        let mut counted = Counted::new();
        let mut text = Text::stdout();
        let json = common.json;
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let found = start(&mut servers, &url).await;
                let Some((location, node)) = tally.count(found)? else { continue };
                let mut show = |url: NfsUrl, space| {
                    if json {
                        document.usage.push(Used { url: url.to_string(), space });
                        Ok(())
                    } else {
                        text.line_with_name(
                            format_args!("{}\t", self.shown(space)),
                            url.to_string().as_bytes(),
                        )
                    }
                };
                let whole = self.measure(&location, &url, node, &mut counted, &mut tally, &mut show).await?;
                document.total.add(whole);
            }
        }
        if json {
            output::document(&document)?;
        } else if self.total {
            text.line(format_args!("{}\ttotal", self.shown(document.total)))?;
        }
        text.flush()?;
        servers.close().await;
        tally.finish()
    }

    /// Returns the space of an object with everything in it. Shows the parts that the options ask for.
    async fn measure(
        &self,
        location: &Location,
        url: &NfsUrl,
        node: Node,
        counted: &mut Counted,
        tally: &mut Tally,
        show: &mut impl FnMut(NfsUrl, Space) -> Result<(), Failure>,
    ) -> Result<Space, Failure> {
        let mut visit = Visit::new(location, url, node);
        // The directories on the way to the current object, and below them the whole.
        let mut open = vec![Space::default()];
        loop {
            let step = match visit.next().await {
                Ok(step) => step,
                Err(failure) => {
                    tally.count_none::<()>(Err(failure))?;
                    continue;
                }
            };
            let (space, shown) = match step {
                None => return Ok(open.pop().unwrap_or_default()),
                Some(Step::Met(node)) if node.attributes.is_directory() => {
                    open.push(Space::of(&node));
                    continue;
                }
                Some(Step::Met(node)) => {
                    let attributes = &node.attributes;
                    let id = (location.server(), attributes.fsid, attributes.fileid);
                    if attributes.nlink > 1 && !counted.insert(id) {
                        continue;
                    }
                    (Space::of(&node), self.all)
                }
                Some(Step::Left) => (open.pop().unwrap_or_default(), true),
            };
            if let Some(above) = open.last_mut() {
                above.add(space);
            }
            let deep = if self.summarize { Some(0) } else { self.max_depth };
            let near = deep.is_none_or(|most| visit.depth() <= most as usize);
            if visit.depth() == 0 || (shown && near) {
                show(visit.url(), space)?;
            }
        }
    }

    fn shown(&self, space: Space) -> String {
        let apparent = self.apparent_size || self.bytes;
        let bytes = if apparent { space.apparent_bytes } else { space.bytes };
        if self.human_readable {
            human::size(bytes)
        } else if self.bytes {
            bytes.to_string()
        } else {
            bytes.div_ceil(1024).to_string()
        }
    }
}

async fn start(servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(Location, Node), Failure> {
    let location = servers.locate(url).await?;
    let found = location.client.lookup_link(&location.path).await;
    let node = found.map_err(|error| location.failure(error))?;
    Ok((location, node))
}
