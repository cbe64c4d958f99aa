//! `rpcrdma df`: shows the free space of file systems.

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;
use rpcrdma_nfs::wire::{FsinfoArgs, FsinfoOk, FsstatArgs, FsstatOk};
use serde::Serialize;

use super::Tally;
use crate::arguments::{Common, Connection, pattern};
use crate::connect::Servers;
use crate::exit::Failure;
use crate::human;
use crate::output::{self, Text, printable};

const AFTER_HELP: &str = "\
Each line is about the file system that contains an object. Space is in units of 1024 bytes. Available is what the user may use, and \
Use% is the part that is used of what is used or available.

--json prints {filesystems: [{url, total_bytes, used_bytes, free_bytes, available_bytes, used_percent, total_files, used_files, \
free_files, available_files, files_percent, fsid_text, max_file_size, read_max, write_max}]}. Percentages are null if there is \
nothing to divide. read_max and write_max are the largest READ and WRITE of the server, in bytes.";

/// Show the free space of file systems
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, disable_help_flag = true)]
pub(crate) struct Df {
    /// Objects in the file systems; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    /// Show sizes with units, such as 1.5K or 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show numbers of files, not space
    #[arg(short, long)]
    inodes: bool,
    /// Show units of 1024 bytes: what happens anyway
    #[arg(short, conflicts_with = "human_readable")]
    kibibytes: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize)]
struct Document {
    filesystems: Vec<FileSystem>,
}

#[derive(Serialize)]
struct FileSystem {
    url: String,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    used_percent: Option<u64>,
    total_files: u64,
    used_files: u64,
    free_files: u64,
    available_files: u64,
    files_percent: Option<u64>,
    fsid_text: String,
    max_file_size: u64,
    read_max: u32,
    write_max: u32,
}

/// Returns the part that is used of what is used or available, in percent, rounded up.
fn percent(used: u64, available: u64) -> Option<u64> {
    let all = u128::from(used) + u128::from(available);
    let part = (u128::from(used) * 100).checked_add(all.checked_sub(1)?)?.checked_div(all)?;
    u64::try_from(part).ok()
}

impl FileSystem {
    fn new(url: String, fsid: u64, stat: &FsstatOk, info: &FsinfoOk) -> Self {
        let used_bytes = stat.total_bytes.saturating_sub(stat.free_bytes);
        let used_files = stat.total_files.saturating_sub(stat.free_files);
        Self {
            url,
            total_bytes: stat.total_bytes,
            used_bytes,
            free_bytes: stat.free_bytes,
            available_bytes: stat.available_bytes,
            used_percent: percent(used_bytes, stat.available_bytes),
            total_files: stat.total_files,
            used_files,
            free_files: stat.free_files,
            available_files: stat.available_files,
            files_percent: percent(used_files, stat.available_files),
            fsid_text: fsid.to_string(),
            max_file_size: info.max_file_size,
            read_max: info.read_max,
            write_max: info.write_max,
        }
    }

    /// Returns the columns of a line.
    fn columns(&self, df: &Df) -> [String; 5] {
        let percent = |percent: Option<u64>| percent.map_or("-".to_owned(), |percent| format!("{percent}%"));
        if df.inodes {
            let count = |files: u64| if df.human_readable { human::size(files) } else { files.to_string() };
            return [
                self.url.clone(),
                count(self.total_files),
                count(self.used_files),
                count(self.available_files),
                percent(self.files_percent),
            ];
        }
        let size = |bytes: u64| {
            if df.human_readable { human::size(bytes) } else { bytes.div_ceil(1024).to_string() }
        };
        [
            self.url.clone(),
            size(self.total_bytes),
            size(self.used_bytes),
            size(self.available_bytes),
            percent(self.used_percent),
        ]
    }
}

impl Df {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let mut document = Document { filesystems: Vec::new() };
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let looked = look(&mut servers, &url).await;
                document.filesystems.extend(tally.count(looked)?);
            }
        }
        if common.json {
            output::document(&document)?;
        } else if !document.filesystems.is_empty() {
            self.print(&document.filesystems)?;
        }
        servers.close().await;
        tally.finish()
    }

    fn print(&self, filesystems: &[FileSystem]) -> Result<(), Failure> {
        let head = match (self.inodes, self.human_readable) {
            (true, _) => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%"],
            (false, true) => ["Filesystem", "Size", "Used", "Avail", "Use%"],
            (false, false) => ["Filesystem", "1K-blocks", "Used", "Available", "Use%"],
        };
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(filesystems.iter().map(|filesystem| filesystem.columns(self)));
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let [first, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(width);
        let mut text = Text::stdout();
        for [url, total, used, available, percent] in &rows {
            text.line(format_args!(
                "{:first$} {total:>second$} {used:>third$} {available:>fourth$} {percent:>fifth$}",
                printable(url.as_bytes())
            ))?;
        }
        text.flush()
    }
}

async fn look(servers: &mut Servers<'_>, url: &NfsUrl) -> Result<FileSystem, Failure> {
    let location = servers.locate(url).await?;
    let fail = |error| location.failure(error);
    let node = location.client.lookup(&location.path).await.map_err(fail)?;
    // The object can be in another file system than the root of its export.
    let procedures = location.client.procedures();
    let stat = procedures.fsstat(&FsstatArgs { root: node.handle }).await.map_err(fail)?;
    let info = procedures.fsinfo(&FsinfoArgs { root: node.handle }).await.map_err(fail)?;
    Ok(FileSystem::new(url.to_string(), node.attributes.fsid, &stat, &info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        for (used, available, part) in [
            (0, 0, None),
            (0, 1, Some(0)),
            (1, 0, Some(100)),
            (1, 999, Some(1)),
            (50, 50, Some(50)),
            (501, 499, Some(51)),
            (u64::MAX, u64::MAX, Some(50)),
        ] {
            assert_eq!(percent(used, available), part, "{used} {available}");
        }
    }
}
