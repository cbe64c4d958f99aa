//! `rpcrdma mkdir`, `rm`, `mv` and `ln`: names at a server.

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;

use crate::arguments::Connection;

/// Make directories.
#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Make missing directories on the way, and take it as done if the directory exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Mode, in octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = mode)]
    pub(crate) mode: u32,
    /// Directories to make
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Remove files and directories. Symbolic links are removed, not followed.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Remove directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// It is no error if there is nothing to remove
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Rename or move on one server. If DEST is a directory, the sources go into it; a file that is in the way is replaced.
#[derive(Debug, Args)]
pub(crate) struct Mv {
    /// What to move
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<NfsUrl>,
    /// New name, or directory to move into
    #[arg(required = true, value_name = "DEST")]
    pub(crate) destination: NfsUrl,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Make links: a hard link to a file, or with -s a symbolic link with any text.
#[derive(Debug, Args)]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is its text then, not a URL
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// File to link to (a URL), or text of the link with -s
    #[arg(value_name = "TARGET")]
    pub(crate) target: std::ffi::OsString,
    /// New name, or directory in which to make the link
    #[arg(value_name = "URL")]
    pub(crate) link: NfsUrl,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is not a mode in octal, for example 755")),
    }
}
