//! `rpcrdma cat`, `get` and `put`: files from a server, and to it.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rpcrdma_nfs::client::NfsUrl;

use crate::arguments::{Connection, Place};

/// Write the content of files to standard output.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Files to write, one after the other
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const GET_HELP: &str = "\
As with cp -r: if DEST is a directory, copies go into it under their own names; else DEST is the name of the copy. A URL
that ends with the root of the server, as nfs://HOST/, gives its entries. Symbolic links inside of trees are copied as
links; one that is named as SOURCE is followed without -r. Devices, pipes and sockets are left out with a warning.

A file appears under its name only when it is complete: it grows as .NAME.rpcrdma-PID-N beside it, and is renamed. If get
is stopped by SIGINT or SIGTERM, those are removed; files that were complete stay.

--json prints {files, directories, symlinks, skipped, octets, seconds, octets_per_second, failed: [{path, error}]}.";

/// Fetch files and directories.
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub(crate) struct Get {
    /// Fetch directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) options: CopyOptions,
    /// What to fetch, and as the last operand where to (default: the current directory, if there is only one operand)
    #[arg(required = true, value_name = "URL... [DEST]", value_parser = OsStringValueParser::new().try_map(Place::parse))]
    pub(crate) operands: Vec<Place>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const PUT_HELP: &str = "\
As with cp -r: if DEST is a directory, copies go into it under their own names; else DEST is the name of the copy. A
SOURCE that ends with /. gives its entries. Symbolic links inside of trees are copied as links; one that is named as
SOURCE is followed without -r. Devices, pipes and sockets are left out with a warning.

Data is written UNSTABLE and committed at the end of each file; after a restart of the server what it lost is written
again.

--json prints {files, directories, symlinks, skipped, octets, seconds, octets_per_second, failed: [{path, error}]}.";

/// Store files and directories.
#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub(crate) struct Put {
    /// Store directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) options: CopyOptions,
    /// What to store
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<std::path::PathBuf>,
    /// Where to
    #[arg(required = true, value_name = "URL")]
    pub(crate) destination: NfsUrl,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How copies are made.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CopyOptions {
    /// Keep mode and time of change (and, as root, the owner); else new files get the mode of their source and the time
    /// of now
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// No progress bar; there is none anyway if standard error is not a terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Files that are copied at the same time, 1 to 256
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) files: u16,
}
