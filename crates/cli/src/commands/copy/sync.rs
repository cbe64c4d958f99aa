//! `rpcrdma sync`: makes one directory equal to another.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rpcrdma_nfs::client::{CopyReport, NfsUrl, SyncOptions};

use super::{Copying, FILTER_HELP, JSON_HELP, PARTIAL_HELP, Transfer};
use crate::arguments::{Common, Connection, Place, seconds};
use crate::commands::until_signal;
use crate::connect::Servers;
use crate::exit::Failure;

const AFTER_HELP: &str = "\
DEST becomes equal to SOURCE: sync copies what is new or changed. One of both is a URL. Both are directories, and a slash at the \
end of either changes nothing: sync never makes a directory named SOURCE in DEST. If DEST is absent, sync makes it, but not the \
directories above it. sync goes through the whole tree and keeps permissions, times, groups, symbolic and hard links, and holes, as \
get and put do with -r and -p; as root also owners. The root of an export keeps its own attributes. Devices, pipes and sockets are \
left out with a warning.

A file is unchanged if its length and time of change are. Times are compared at the coarser precision of both sides: that of the \
server, and that of the times themselves, so a time in whole seconds equals all times in that second. --modify-window allows more, \
for instance 2 for FAT. --checksum compares content instead of times. NFS version 3 has no checksums, so both files are read, one of \
them over the network. If only permissions, owner, group or time differ, they are set, and no data is copied. What this user \
cannot set is not compared.

--delete removes what DEST has and SOURCE lacks, after all copies. Nothing is removed from a directory whose source could not be \
listed, and nothing at all if sync ends early. Links are removed, not followed. Names that patterns exclude stay, and the \
directories around them, unless --delete-excluded is given. Without --delete, a directory in the place of a file is a failure, \
and so is any object in the place of a directory; with --delete they are replaced.

Files are replaced as by get and put: a new file grows under another name, and gets its name when it is complete. If a file changes \
while it is copied, sync says so and ends with exit code 4; the next sync copies it again.

--dry-run changes nothing at either side. It prints a line for each change: copy, make directory, make symbolic link, make hard \
link, set attributes of, or delete, and a path. With --checksum it reads the files.

";

/// Make one directory equal to another, by copies of what differs
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}{PARTIAL_HELP}\n\n{FILTER_HELP}\n\n{JSON_HELP}"))]
pub(crate) struct Sync {
    /// Compare the content of files of equal length, instead of their times
    #[arg(short, long)]
    checksum: bool,
    /// Remove what DEST has and SOURCE lacks
    #[arg(long)]
    delete: bool,
    /// As --delete, and remove what the patterns exclude too
    #[arg(long)]
    delete_excluded: bool,
    /// Change nothing, and list what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Treat times that differ by at most this many seconds as equal
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    modify_window: Duration,
    /// Keep the incomplete file of an interrupted copy, and continue that of an earlier one
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    transfer: Transfer,
    /// Directory to copy: a URL, or a local path if DEST is a URL
    #[arg(value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(Place::parse))]
    source: Place,
    /// Directory to change: a URL, or a local path if SOURCE is a URL
    #[arg(value_name = "DEST", value_parser = OsStringValueParser::new().try_map(Place::parse))]
    destination: Place,
    #[command(flatten)]
    connection: Connection,
}

/// Direction of a sync.
enum Way<'a> {
    Fetch(&'a NfsUrl, &'a Path),
    Store(&'a Path, &'a NfsUrl),
}

impl Sync {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let way = self.way()?;
        let mut sync = SyncOptions::default();
        sync.checksum = self.checksum;
        sync.delete = self.delete || self.delete_excluded;
        sync.delete_excluded = self.delete_excluded;
        sync.dry_run = self.dry_run;
        sync.modify_window = self.modify_window;
        let mut copying = Copying::syncing(common, &self.transfer, sync)?.partial(self.partial);
        let ended = until_signal(self.copy(&way, &mut copying)).await;
        copying.finish(ended)
    }

    async fn copy(&self, way: &Way<'_>, copying: &mut Copying) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        copying.source(true);
        let (Way::Fetch(url, _) | Way::Store(_, url)) = way;
        match equal(&mut servers, copying, way).await {
            Ok(report) => copying.add(report),
            Err(failure) => copying.add_failure(url.to_string(), failure)?,
        }
        servers.close().await;
        Ok(())
    }

    fn way(&self) -> Result<Way<'_>, Failure> {
        match (&self.source, &self.destination) {
            (Place::Remote(url), Place::Local(path)) => Ok(Way::Fetch(url, path)),
            (Place::Local(path), Place::Remote(url)) => Ok(Way::Store(path, url)),
            (Place::Local(_), Place::Local(_)) => Err(Failure::usage(
                "SOURCE and DEST are both local: give one of them as nfs://HOST/PATH, or use rsync",
            )),
            (Place::Remote(_), Place::Remote(_)) => Err(Failure::usage(
                "SOURCE and DEST are both at a server: sync to a local directory first, and from there",
            )),
        }
    }
}

async fn equal(servers: &mut Servers<'_>, copying: &Copying, way: &Way<'_>) -> Result<CopyReport, Failure> {
    let (Way::Fetch(url, _) | Way::Store(_, url)) = way;
    let location = servers.locate(url).await?;
    copying.at(&location);
    let (client, options) = (&location.client, &copying.options);
    let report = match way {
        Way::Fetch(_, path) => client.sync_to_local(&location.path, path, options).await,
        Way::Store(path, _) => client.sync_from_local(path, &location.path, options).await,
    };
    report.map_err(|error| location.failure(error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sync: Sync,
    }

    #[test]
    fn one_side_is_a_server() {
        let way = |arguments: &[&str]| {
            let line = Line::try_parse_from([&["sync"], arguments].concat()).unwrap();
            line.sync.way().map(|way| matches!(way, Way::Fetch(..))).map_err(|failure| failure.to_string())
        };
        assert_eq!(way(&["nfs://h/a", "b"]), Ok(true));
        assert_eq!(way(&["a/", "nfs://h/b/"]), Ok(false));
        assert!(way(&["a", "b"]).unwrap_err().contains("both local"));
        assert!(way(&["nfs://h/a", "nfs://i/b"]).unwrap_err().contains("both at a server"));
    }
}
