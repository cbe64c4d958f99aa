//! `rpcrdma chmod` and `chown`: change permissions, owners and groups.

use std::str::FromStr;

use clap::Args;
use rpcrdma_nfs::client::{Error, NfsUrl, Node};
use rpcrdma_nfs::wire::{FileHandle, FileType, SetAttributes};
use tokio::task::JoinSet;

use super::Tally;
use super::mode::Change;
use super::names::{AFTER_HELP, Document, documented};
use super::visit::Visit;
use crate::arguments::{Common, Connection, pattern};
use crate::connect::{Location, Servers};
use crate::exit::Failure;
use crate::people::{group_id, login_group, user_id};

/// SETATTRs in flight at a time.
const IN_FLIGHT: usize = 32;

const MODE_HELP: &str = "\
MODE is octal, such as 644, or has clauses with commas between them: letters of u (user), g (group), o (other), a (all), then + \
(add), - (remove) or = (set), then letters of r, w, x, X (x for directories and files that anybody may execute), s, t, or one of u, \
g, o for what that class may do. Without a class all are meant, but for bits that the umask denies. In octal with less than five \
digits, set-id bits of directories stay.

Symbolic links given as URL are followed; those in trees are left alone.

";

/// Change permissions
#[derive(Debug, Args)]
#[command(after_help = format!("{MODE_HELP}{AFTER_HELP}"))]
pub(crate) struct Chmod {
    /// Change directories with everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The permissions: 644, or u+rwX,go-w
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: Change,
    /// Files and directories to change; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

impl Chmod {
    /// Runs the command; `umask` is that of the process.
    pub(crate) async fn run(&self, common: Common, umask: u32) -> Result<(), Failure> {
        let change = move |node: &Node, given: bool| {
            let attributes = &node.attributes;
            // NFS gives links no permissions of their own.
            if attributes.file_type == FileType::Symlink && !given {
                return None;
            }
            let mode = self.mode.apply(attributes.mode, attributes.is_directory(), umask);
            Some(SetAttributes { mode: Some(mode), ..SetAttributes::default() })
        };
        documented(common, async |document| {
            let changing = Changing { urls: &self.urls, recursive: self.recursive, follow: true };
            changing.all(&self.connection, document, change).await
        })
        .await
    }
}

const OWNER_HELP: &str = "\
OWNER is a UID or the name of a user of this machine, and GROUP a GID or the name of a group. NFS carries the numbers only: at the \
server they may have other names. OWNER: means the login group of that user too. Most servers let only root change owners, and \
others change the group to one of their own.

Symbolic links given as URL are followed, unless -h or -R is given; with -R, links in trees are changed themselves.

";

/// Change owners and groups
#[derive(Debug, Args)]
#[command(after_help = format!("{OWNER_HELP}{AFTER_HELP}"), disable_help_flag = true)]
pub(crate) struct Chown {
    /// Change directories with everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links, not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// New owner and group
    #[arg(value_name = "OWNER[:GROUP]|:GROUP")]
    owner: Owner,
    /// Files and directories to change; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

/// An owner and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let uid = match (user, group) {
            ("", None | Some("")) => {
                return Err("write OWNER, OWNER:GROUP, OWNER: or :GROUP".to_owned());
            }
            ("", _) => None,
            (user, _) => Some(user_id(user)?),
        };
        let gid = match group {
            None => None,
            Some("") => Some(login_group(user)?),
            Some(group) => Some(group_id(group)?),
        };
        Ok(Self { uid, gid })
    }
}

impl Chown {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let Owner { uid, gid } = self.owner;
        let change = move |_: &Node, _: bool| Some(SetAttributes { uid, gid, ..SetAttributes::default() });
        documented(common, async |document| {
            let follow = !self.no_dereference && !self.recursive;
            let changing = Changing { urls: &self.urls, recursive: self.recursive, follow };
            changing.all(&self.connection, document, change).await
        })
        .await
    }
}

/// Which objects a command changes.
struct Changing<'a> {
    urls: &'a [NfsUrl],
    recursive: bool,
    /// Whether links given as URLs are followed.
    follow: bool,
}

impl Changing<'_> {
    /// Changes all objects to what `change` returns for each of them; `None` leaves one alone. `change` also learns
    /// whether the object was given as URL.
    async fn all(
        &self,
        connection: &Connection,
        document: &mut Document,
        change: impl Fn(&Node, bool) -> Option<SetAttributes>,
    ) -> Result<(), Failure> {
        let mut servers = Servers::new(connection);
        let mut tally = Tally::default();
        for given in self.urls {
            for url in servers.expand(given).await? {
                let found = self.find(&mut servers, &url).await;
                let Some((location, node)) = tally.count_none(found)? else { continue };
                let mut calls =
                    Calls { location: &location, set: JoinSet::new(), tally: &mut tally, document };
                if !self.recursive {
                    if let Some(attributes) = change(&node, true) {
                        calls.start(url, node.handle, attributes).await?;
                    }
                    calls.finish().await?;
                    continue;
                }
                let mut visit = Visit::new(&location, &url, node);
                while let Some(node) = visit.next_met(calls.tally).await? {
                    let Some(attributes) = change(&node, visit.depth() == 0) else { continue };
                    calls.start(visit.url(), node.handle, attributes).await?;
                    // The content of a directory may be listed only after the change.
                    if node.attributes.is_directory() {
                        calls.finish().await?;
                    }
                }
                calls.finish().await?;
            }
        }
        servers.close().await;
        tally.finish()
    }

    async fn find(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(Location, Node), Failure> {
        let location = servers.locate(url).await?;
        let client = &location.client;
        let node = if self.follow {
            client.lookup(&location.path).await
        } else {
            client.lookup_link(&location.path).await
        };
        let node = node.map_err(|error| location.failure(error))?;
        Ok((location, node))
    }
}

/// SETATTRs in flight.
struct Calls<'a> {
    location: &'a Location,
    set: JoinSet<(NfsUrl, Result<(), Error>)>,
    tally: &'a mut Tally,
    document: &'a mut Document,
}

impl Calls<'_> {
    async fn start(
        &mut self,
        url: NfsUrl,
        object: FileHandle,
        attributes: SetAttributes,
    ) -> Result<(), Failure> {
        if self.set.len() >= IN_FLIGHT {
            self.one().await?;
        }
        let client = self.location.client.clone();
        self.set.spawn(async move { (url, client.set_attributes_of(object, attributes).await) });
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Failure> {
        while !self.set.is_empty() {
            self.one().await?;
        }
        Ok(())
    }

    async fn one(&mut self) -> Result<(), Failure> {
        match self.set.join_next().await {
            None => Ok(()),
            Some(Ok((url, changed))) => {
                let changed = changed.map_err(|error| self.location.failure_at(&url, error));
                if self.tally.count(changed)?.is_some() {
                    self.document.add(&url, None);
                }
                Ok(())
            }
            Some(Err(error)) => Err(Failure::failed(format!("a task failed: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners() {
        let owner = |uid, gid| Ok(Owner { uid, gid });
        for (text, expected) in [
            ("7", owner(Some(7), None)),
            ("7:8", owner(Some(7), Some(8))),
            (":8", owner(None, Some(8))),
            ("root", owner(Some(0), None)),
            ("root:root", owner(Some(0), Some(0))),
            ("root:", owner(Some(0), Some(0))),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["", ":", "no such", "0:no such", "-1", "4294967295"] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
    }
}
