//! `rpcrdma mkdir`, `rm`, `mv` and `ln`: change names at a server.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use rpcrdma_nfs::client::{Error, NfsUrl};
use rpcrdma_nfs::wire::{FileType, SetAttributes, Status};
use serde::Serialize;

use super::{Tally, until_signal};
use crate::arguments::{Common, Connection, Place, pattern};
use crate::connect::{Location, Servers, failure, names};
use crate::exit::Failure;
use crate::output;

/// The operations of a command that succeeded, in their order: the document of `--json`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Document {
    done: Vec<Done>,
}

/// A name that was made, removed or renamed, or an object that was changed.
#[derive(Debug, Serialize)]
struct Done {
    url: String,
    /// The new name of a file that was moved, or the object of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

impl Document {
    pub(super) fn add(&mut self, url: impl ToString, to: Option<String>) {
        self.done.push(Done { url: url.to_string(), to });
    }
}

/// Runs the operations of a command to their end or to the first signal, and then prints their document, if it is wanted.
pub(super) async fn documented(
    common: Common,
    operations: impl AsyncFnOnce(&mut Document) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut document = Document::default();
    let ended = until_signal(operations(&mut document)).await;
    if common.json {
        output::document(&document)?;
    }
    ended
}

pub(super) const AFTER_HELP: &str =
    "--json prints {done: [{url}]}: what was done, in order. Failures go to standard error.";

/// Make directories
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Mkdir {
    /// Make missing parent directories, and accept directories that exist
    #[arg(short, long)]
    parents: bool,
    /// Mode of the directories, in octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = mode)]
    mode: u32,
    /// Directories to make
    #[arg(required = true, value_name = "URL")]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

impl Mkdir {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        documented(common, async |document| self.all(document).await).await
    }

    async fn all(&self, document: &mut Document) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        for url in &self.urls {
            let made = self.make(&mut servers, url).await;
            if tally.count(made)? == Some(true) {
                document.add(url, None);
            }
        }
        servers.close().await;
        tally.finish()
    }

    /// Makes a directory; returns `false` if there is one already, and that is accepted.
    async fn make(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Result<bool, Failure> {
        let location = servers.locate(url).await?;
        let attributes = SetAttributes { mode: Some(self.mode), ..SetAttributes::default() };
        if !self.parents {
            return match location.client.mkdir(&location.path, attributes).await {
                Ok(_) => Ok(true),
                Err(error) if error.status() == Some(Status::NoEnt) => Err(Failure::failed(format!(
                    "{}; -p makes missing parent directories",
                    location.failure(error)
                ))),
                Err(error) => Err(location.failure(error)),
            };
        }
        let (mut path, mut made) = (Vec::new(), false);
        for component in location.components() {
            path.push(b'/');
            path.extend_from_slice(component);
            // Making the directory before looking leaves no gap for other clients.
            match location.client.mkdir(&path, attributes).await {
                Ok(_) => made = true,
                Err(error) => match location.client.stat(&path).await {
                    Ok(found) if found.file_type == FileType::Directory => {}
                    _ => return Err(location.failure(error)),
                },
            }
        }
        Ok(made)
    }
}

/// Remove files and directories. Symbolic links are removed, not followed
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Rm {
    /// Remove directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Succeed if there is nothing to remove
    #[arg(short, long)]
    force: bool,
    /// Files and directories to remove; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

impl Rm {
    /// Returns the number of connections to each server.
    pub(crate) fn connections(&self) -> u32 {
        self.connection.connections
    }

    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        documented(common, async |document| self.all(document).await).await
    }

    async fn all(&self, document: &mut Document) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let removed = self.remove(&mut servers, &url, &mut tally).await;
                if tally.count(removed)? == Some(true) {
                    document.add(url, None);
                }
            }
        }
        servers.close().await;
        tally.finish()
    }

    /// Removes a file or directory; returns `false` if there is none, and that is accepted. Counts all failures in a tree
    /// but the last, which is returned.
    async fn remove(
        &self,
        servers: &mut Servers<'_>,
        url: &NfsUrl,
        tally: &mut Tally,
    ) -> Result<bool, Failure> {
        let location = servers.locate(url).await?;
        if location.is_root() {
            return Err(Failure::failed(format!("{url} is the root of an export and cannot be removed")));
        }
        let fail = |error| location.failure(error);
        let result = match location.client.entry(&location.path).await {
            Ok(node) if node.attributes.file_type != FileType::Directory => {
                location.client.remove(&location.path).await
            }
            Ok(_) if !self.recursive => {
                return Err(Failure::failed(format!("{url} is a directory: add -r to remove it")));
            }
            Ok(_) => {
                let mut failures = location.client.remove_tree(&location.path).await.map_err(fail)?.failures;
                let last = failures.pop();
                for failure in failures {
                    tally.count_none::<()>(Err(fail(failure.error)))?;
                }
                last.map_or(Ok(()), |failure| Err(failure.error))
            }
            Err(error) if self.force && error.status() == Some(Status::NoEnt) => return Ok(false),
            Err(error) => Err(error),
        };
        result.map(|()| true).map_err(fail)
    }
}

/// Rename or move on one server. If DEST is a directory, the sources move into it; a file of the same name is
/// replaced
#[derive(Debug, Args)]
#[command(after_help = "A DEST that ends with / is a directory: a file moves only into an existing one.\n\n\
                  --json prints {done: [{url, to}]}: old and new names, in order. Failures go to standard error.")]
pub(crate) struct Mv {
    /// Files and directories to move; names may have wildcards
    #[arg(required = true, value_name = "SOURCE", value_parser = pattern)]
    sources: Vec<NfsUrl>,
    /// New name, or directory to move into
    #[arg(required = true, value_name = "DEST")]
    destination: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

impl Mv {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        documented(common, async |document| self.all(document).await).await
    }

    async fn all(&self, document: &mut Document) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let destination = servers.locate(&self.destination).await?;
        let into = is_directory(&destination).await?;
        let mut sources = Vec::new();
        for given in &self.sources {
            sources.extend(servers.expand(given).await?);
        }
        if sources.len() > 1 && !into {
            let url = &self.destination;
            return Err(Failure::usage(format!("{url} is not a directory: several sources need one")));
        }
        let mut tally = Tally::default();
        for url in &sources {
            let moved = self.rename(&mut servers, url, &destination, into).await;
            if let Some(name) = tally.count(moved)? {
                document.add(url, Some(name));
            }
        }
        servers.close().await;
        tally.finish()
    }

    async fn rename(
        &self,
        servers: &mut Servers<'_>,
        url: &NfsUrl,
        destination: &Location,
        into: bool,
    ) -> Result<String, Failure> {
        let source = servers.locate(url).await?;
        if !source.same_export(destination) {
            return Err(Failure::failed(format!(
                "{url} and {} are not in the same export: copy with rpcrdma cp -r, then remove with rm -r",
                self.destination
            )));
        }
        let Some(name) = url.file_name().filter(|_| !source.is_root()) else {
            return Err(Failure::failed(format!("{url} is the root of an export and cannot be moved")));
        };
        let (target, new) = if into {
            (destination.child(name), self.destination.child(name))
        } else {
            (destination.path.clone(), self.destination.clone())
        };
        match source.client.rename(&source.path, target).await {
            Ok(()) => Ok(new.to_string()),
            Err(error) => Err(at_fault(&source, &new, error).await),
        }
    }
}

/// Make links: a hard link to a file, or with -s a symbolic link with any text
#[derive(Debug, Args)]
#[command(after_help = "A URL that ends with / is a directory, which has to exist.\n\n\
                        --json prints {done: [{url, to}]}: the link, and the file or text that it leads to.")]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is then its text, not a URL
    #[arg(short, long)]
    symbolic: bool,
    /// File to link to (a URL), or text of the link with -s
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// New name, or directory in which to make the link
    #[arg(value_name = "URL")]
    link: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

impl Ln {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        documented(common, async |document| self.make(document).await).await
    }

    async fn make(&self, document: &mut Document) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        if self.symbolic {
            let text = self.target.as_bytes();
            let name = text.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty());
            let link = servers.locate(&self.link).await?;
            let (path, url) = self.path(&link, name).await?;
            let made = link.client.symlink(text, path).await;
            made.map_err(|error| link.failure(error))?;
            document.add(url, Some(String::from_utf8_lossy(text).into_owned()));
            servers.close().await;
            return Ok(());
        }
        let url = match Place::parse(self.target.clone()) {
            Ok(Place::Remote(url)) => url,
            Ok(Place::Local(path)) => {
                return Err(Failure::usage(format!(
                    "a hard link needs the URL of a file as its target, not {:?}: write nfs://HOST/PATH, or add -s \
                     for a symbolic link",
                    path.display()
                )));
            }
            Err(message) => return Err(Failure::usage(message)),
        };
        let target = servers.locate(&url).await?;
        let link = servers.locate(&self.link).await?;
        if !target.same_export(&link) {
            return Err(Failure::failed(format!(
                "{url} and {} are not in the same export: a hard link cannot cross",
                self.link
            )));
        }
        let (path, new) = self.path(&link, url.file_name()).await?;
        match target.client.link(&target.path, path).await {
            Ok(()) => {
                document.add(new, Some(url.to_string()));
                servers.close().await;
                Ok(())
            }
            // The object at fault is the target of the link, not its new name.
            Err(Error::Nfs { status: status @ (Status::IsDir | Status::MLink), operation, .. }) => {
                Err(target.failure(Error::Nfs { status, operation, path: String::new() }))
            }
            Err(error @ Error::NotDirectory { .. }) => Err(at_fault(&target, &new, error).await),
            Err(error) if error.status() == Some(Status::NoEnt) => Err(at_fault(&target, &new, error).await),
            Err(error) => Err(link.failure(error)),
        }
    }

    /// Returns the path and the URL of the new link. In a directory the link gets the name of its target.
    async fn path(&self, link: &Location, name: Option<&[u8]>) -> Result<(Vec<u8>, NfsUrl), Failure> {
        if !is_directory(link).await? {
            return Ok((link.path.clone(), self.link.clone()));
        }
        match name {
            Some(name) if !matches!(name, b"." | b"..") => Ok((link.child(name), self.link.child(name))),
            _ => Err(Failure::usage(format!("{} is a directory: add the name of the link", self.link))),
        }
    }
}

/// Returns the failure for an error of a procedure with an old and a new name. "No such file" is about the old one, or
/// about the directory of the new one: the function looks which of them is missing.
async fn at_fault(old: &Location, new: &NfsUrl, error: Error) -> Failure {
    let Error::Nfs { status, operation, .. } = error else {
        return match &error {
            Error::NotDirectory { path, .. } if names(&new.path(), path) => failure(new, error),
            _ => old.failure(error),
        };
    };
    match status {
        Status::NotEmpty | Status::Exist => Failure::failed(format!("{new}: {status} [{operation}]")),
        Status::NoEnt => match old.client.lookup_link(&old.path).await {
            Ok(_) => Failure::failed(format!("{new}: {status} [{operation}]: its directory does not exist")),
            Err(error) if error.status() == Some(Status::NoEnt) => {
                old.failure(Error::Nfs { status, operation, path: String::new() })
            }
            Err(error) => old.failure(error),
        },
        _ => old.failure(error),
    }
}

/// Returns whether the location is a directory. A missing object is none.
async fn is_directory(location: &Location) -> Result<bool, Failure> {
    match location.client.stat(&location.path).await {
        Ok(attributes) => Ok(attributes.file_type == FileType::Directory),
        Err(error) if error.status() == Some(Status::NoEnt) => Ok(false),
        Err(error) => Err(location.failure(error)),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is not a mode in octal, for example 755")),
    }
}
