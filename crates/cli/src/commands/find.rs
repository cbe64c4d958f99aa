//! `rpcrdma find`: searches directory trees.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use glob::{MatchOptions, Pattern};
use rpcrdma_nfs::client::{NfsUrl, Node};
use rpcrdma_nfs::wire::{FileType, NfsTime};
use serde::Serialize;

use super::Tally;
use super::entry::{ENTRY_HELP, EntryDocument};
use super::visit::Visit;
use crate::arguments::{Common, Connection, pattern, whole};
use crate::connect::{Location, Servers, compiled};
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
All conditions have to hold. Each can be written with one dash too (-name), as for other programs of this name. Objects come in the \
order in which the server lists them, each directory before its content. Symbolic links are not followed.

N is a number: alone for exactly N, +N for more than N, -N for less. Sizes and ages are rounded as find does: a file of 1 byte has \
size 1k, and one changed 47 hours ago has mtime 1. Ages count from the clock of this machine.

";

/// Names of the conditions and actions that may have one dash.
const EXPRESSIONS: [&str; 11] = [
    "-name",
    "-iname",
    "-type",
    "-size",
    "-mtime",
    "-mmin",
    "-newer",
    "-maxdepth",
    "-mindepth",
    "-print",
    "-print0",
];

/// Returns whether this word is an option of `find` with one dash.
pub(super) fn is_expression(word: &str) -> bool {
    EXPRESSIONS.contains(&word.split_once('=').map_or(word, |(name, _)| name))
}

/// Search directory trees
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}--json prints {{entries: [{ENTRY_HELP}]}}."))]
pub(crate) struct Find {
    /// Directories to search; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    /// The name matches a pattern with *, ? and [..]. Names that begin with . match * too
    #[arg(long, value_name = "PATTERN", value_parser = name_pattern)]
    name: Option<Pattern>,
    /// As --name, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", value_parser = name_pattern)]
    iname: Option<Pattern>,
    /// The object is one of these types: f (file), d (directory), l (symbolic link), b and c (devices), p (pipe),
    /// s (socket), with commas between them
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<Kind>,
    /// Its size is N units, rounded up: c for bytes, k, M, G for 2^10, 2^20, 2^30 bytes, and none or b for 512 bytes
    #[arg(long, value_name = "[+-]N[ckMGb]", allow_hyphen_values = true)]
    size: Option<Size>,
    /// It was changed N days ago
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    mtime: Option<Bound>,
    /// It was changed N minutes ago
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    mmin: Option<Bound>,
    /// It was changed later than this file
    #[arg(long, value_name = "URL")]
    newer: Option<NfsUrl>,
    /// Search at most this many levels below URL; 0 looks at URL alone
    #[arg(long, value_name = "LEVELS", value_parser = whole::<u32>(0, u32::MAX))]
    maxdepth: Option<u32>,
    /// Leave out the first levels
    #[arg(long, value_name = "LEVELS", default_value_t = 0, value_parser = whole::<u32>(0, u32::MAX))]
    mindepth: u32,
    /// Print a line for each object: what happens anyway
    #[arg(long, conflicts_with = "print0")]
    print: bool,
    /// End each URL with a NUL byte instead of a newline, for xargs -0
    #[arg(long)]
    print0: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A type of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(FileType);

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(FileType::Regular),
            Self(FileType::Directory),
            Self(FileType::Symlink),
            Self(FileType::BlockDevice),
            Self(FileType::CharacterDevice),
            Self(FileType::Fifo),
            Self(FileType::Socket),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self.0 {
            FileType::Regular => "f",
            FileType::Directory => "d",
            FileType::Symlink => "l",
            FileType::BlockDevice => "b",
            FileType::CharacterDevice => "c",
            FileType::Fifo => "p",
            FileType::Socket => "s",
        }))
    }
}

fn name_pattern(text: &str) -> Result<Pattern, String> {
    compiled(text).ok_or_else(|| {
        format!("{text:?} is not a pattern: a [ needs a ] behind it; write [[] for the character")
    })
}

/// A number that another one is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl Bound {
    fn holds(self, number: u64) -> bool {
        match self {
            Self::More(than) => number > than,
            Self::Less(than) => number < than,
            Self::Exactly(wanted) => number == wanted,
        }
    }
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, digits): (fn(u64) -> Self, _) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(digits), _) => (Self::More, digits),
            (_, Some(digits)) => (Self::Less, digits),
            _ => (Self::Exactly, text),
        };
        let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        number.map(kind).ok_or_else(|| format!("{text:?} is not a number N, +N (more) or -N (less)"))
    }
}

/// A bound of sizes, and its unit in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    bound: Bound,
    unit: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [('c', 1), ('b', 512), ('k', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
        let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
        let (number, unit) = match unit {
            Some((letter, unit)) => (text.strip_suffix(*letter).unwrap_or(text), *unit),
            None => (text, 512),
        };
        let wrong = |_| {
            format!(
                "{text:?} is not a size: N, +N or -N, and c (bytes), k, M, G or nothing (512 bytes), such as +10M or -4k"
            )
        };
        Ok(Self { bound: number.parse().map_err(wrong)?, unit })
    }
}

#[derive(Serialize)]
struct Document {
    entries: Vec<EntryDocument>,
}

/// Times that ages are measured from.
#[derive(Clone, Copy)]
struct Times {
    /// Seconds since 1970.
    now: u64,
    newer: Option<NfsTime>,
}

impl Find {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut document = Document { entries: Vec::new() };
        let mut text = Text::stdout();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let newer = match &self.newer {
            Some(url) => {
                let location = servers.locate(url).await?;
                let found = location.client.stat(&location.path).await;
                Some(found.map_err(|error| location.failure(error))?.mtime)
            }
            None => None,
        };
        let times = Times { now, newer };
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let start = start(&mut servers, &url).await;
                let Some((location, node)) = tally.count(start)? else { continue };
                let mut visit = Visit::new(&location, &url, node);
                while let Some(node) = visit.next_met(&mut tally).await? {
                    if self.is_wanted(&visit, &url, &node, times) {
                        self.show(&visit, &location, &node, common, &mut document, &mut text).await?;
                    }
                    if self.maxdepth.is_some_and(|most| visit.depth() >= most as usize) {
                        visit.skip();
                    }
                }
            }
        }
        text.flush()?;
        if common.json {
            output::document(&document)?;
        }
        servers.close().await;
        tally.finish()
    }

    /// Returns whether all conditions hold for the object met last.
    fn is_wanted(&self, visit: &Visit<'_>, start: &NfsUrl, node: &Node, times: Times) -> bool {
        if visit.depth() < self.mindepth as usize {
            return false;
        }
        let attributes = &node.attributes;
        let name = visit.names().last().map_or_else(|| start.file_name().unwrap_or(b"/"), Vec::as_slice);
        let name = String::from_utf8_lossy(name);
        let matches = |pattern: &Option<Pattern>, case_sensitive| {
            let options = MatchOptions { case_sensitive, ..MatchOptions::new() };
            pattern.as_ref().is_none_or(|pattern| pattern.matches_with(&name, options))
        };
        // A time of the future has the age 0.
        let age = times.now.saturating_sub(attributes.mtime.seconds.into());
        matches(&self.name, true)
            && matches(&self.iname, false)
            && (self.types.is_empty() || self.types.contains(&Kind(attributes.file_type)))
            && self.size.is_none_or(|size| size.bound.holds(attributes.size.div_ceil(size.unit)))
            && self.mtime.is_none_or(|days| days.holds(age / 86_400))
            && self.mmin.is_none_or(|minutes| minutes.holds(age.div_ceil(60)))
            && times.newer.is_none_or(|reference| attributes.mtime > reference)
    }

    async fn show(
        &self,
        visit: &Visit<'_>,
        location: &Location,
        node: &Node,
        common: Common,
        document: &mut Document,
        text: &mut Text,
    ) -> Result<(), Failure> {
        let url = visit.url();
        if !common.json {
            return text.name_until("", url.to_string().as_bytes(), if self.print0 { 0 } else { b'\n' });
        }
        let target = if node.attributes.file_type == FileType::Symlink {
            location.client.read_link_of(node.handle).await.ok()
        } else {
            None
        };
        let name = url.file_name().unwrap_or(b"/");
        document.entries.push(EntryDocument::new(url.to_string(), name, &node.attributes, target.as_deref()));
        Ok(())
    }
}

async fn start(servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(Location, Node), Failure> {
    let location = servers.locate(url).await?;
    let found = location.client.lookup_link(&location.path).await;
    let node = found.map_err(|error| location.failure(error))?;
    Ok((location, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_to_compare_with() {
        for (text, bound) in [("7", Bound::Exactly(7)), ("+7", Bound::More(7)), ("-7", Bound::Less(7))] {
            assert_eq!(text.parse(), Ok(bound));
        }
        for text in ["", "+", "-", "+-7", "++7", "x", "7d", "99999999999999999999"] {
            assert!(text.parse::<Bound>().unwrap_err().contains("+N (more)"), "{text}");
        }
        let holds = |bound: &str| [6, 7, 8].map(|number| bound.parse::<Bound>().unwrap().holds(number));
        assert_eq!(holds("7"), [false, true, false]);
        assert_eq!(holds("+7"), [false, false, true]);
        assert_eq!(holds("-7"), [true, false, false]);
    }

    #[test]
    fn sizes_with_units() {
        for (text, unit) in
            [("7", 512), ("7b", 512), ("7c", 1), ("7k", 1024), ("7M", 1 << 20), ("7G", 1 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size { bound: Bound::Exactly(7), unit }), "{text}");
        }
        assert_eq!("-4k".parse(), Ok(Size { bound: Bound::Less(4), unit: 1024 }));
        for text in ["", "k", "7K", "7kb", "+k", "1.5k", "é"] {
            assert!(text.parse::<Size>().unwrap_err().contains("such as +10M"), "{text}");
        }
    }

    #[test]
    fn names_of_types() {
        assert_eq!(Kind::from_str("f", false), Ok(Kind(FileType::Regular)));
        assert!(Kind::from_str("x", false).is_err());
        assert!(name_pattern("a[").unwrap_err().contains("[[]"));
        assert!(name_pattern("**.txt").unwrap().matches("a.txt"));
    }
}
