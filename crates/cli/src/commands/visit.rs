//! A walk through a directory tree at a server, for the commands that look at whole trees.
//!
//! Objects come in the order in which the server lists them, each directory before and after its content. Links in the
//! tree are not followed. A server could list directories without end, so the depth is bounded, and a directory that
//! contains itself is detected. Entries that wait for their visit are bounded too: beyond that the walk ends.

use std::collections::VecDeque;

use rpcrdma_nfs::client::{DirItem, DirReader, Error, MAX_LISTING, NfsUrl, Node};
use rpcrdma_nfs::wire::FileHandle;

use super::Tally;
use crate::connect::Location;
use crate::exit::Failure;

/// Greatest depth of a directory below the start. Local paths of that depth cannot be named on Linux.
const DEEPEST: usize = 4096;

/// A step of a walk.
pub(super) enum Step {
    /// An object; if it is a directory, its content follows.
    Met(Node),
    /// A directory whose content has come before.
    Left,
}

/// A directory whose entries are visited.
struct Level {
    node: Node,
    reader: DirReader,
    listed: VecDeque<DirItem>,
    /// A directory above this one, further away with growing depth. A directory that contains itself meets it
    /// (Brent's algorithm).
    anchor: Option<FileHandle>,
    /// Whether nothing else is read from it, because its listing failed.
    broken: bool,
}

/// A walk; see the module documentation.
pub(super) struct Visit<'a> {
    location: &'a Location,
    start: NfsUrl,
    /// The first object, until it was met.
    first: Option<Node>,
    levels: Vec<Level>,
    /// Number of listed entries of all levels.
    waiting: usize,
    /// Names of the way from the start to the last object.
    names: Vec<Vec<u8>>,
    /// The directory met last, until it is entered or left out.
    next: Option<Node>,
    /// Whether the last step left a directory, or met another object: its name is removed with the next step.
    done: bool,
}

impl<'a> Visit<'a> {
    /// Begins at an object; `url` is its URL.
    pub(super) fn new(location: &'a Location, url: &NfsUrl, node: Node) -> Self {
        Self {
            location,
            start: url.clone(),
            first: Some(node),
            levels: Vec::new(),
            waiting: 0,
            names: Vec::new(),
            next: None,
            done: false,
        }
    }

    /// Returns the URL of the last object.
    pub(super) fn url(&self) -> NfsUrl {
        self.start.below(self.names.iter().map(Vec::as_slice))
    }

    /// Returns the names on the way from the start to the last object; none for the start.
    pub(super) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Returns the depth of the last object; that of the start is 0.
    pub(super) fn depth(&self) -> usize {
        self.names.len()
    }

    /// Leaves out the content of the directory met last. It is not left either.
    pub(super) fn skip(&mut self) {
        if self.next.take().is_some() {
            self.done = true;
        }
    }

    /// Returns the next step, or `None` at the end.
    ///
    /// # Errors
    /// A directory could not be listed, or an entry not be looked at. The walk goes on behind it. It ends if too many
    /// entries wait.
    pub(super) async fn next(&mut self) -> Result<Option<Step>, Failure> {
        if let Some(node) = self.first.take() {
            return Ok(Some(self.met(node)));
        }
        if std::mem::take(&mut self.done) {
            self.names.pop();
        }
        if let Some(node) = self.next.take() {
            self.enter(node)?;
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let dir = level.node.handle;
            if let Some(item) = level.listed.pop_front() {
                self.waiting -= 1;
                match self.location.client.entry_of(dir, &item).await {
                    Ok(Some(node)) => {
                        self.names.push(item.name.into_bytes());
                        return Ok(Some(self.met(node)));
                    }
                    // It was removed after the server listed it.
                    Ok(None) => continue,
                    Err(error) => {
                        let url = self.url().child(item.name.as_bytes());
                        return Err(self.location.failure_at(&url, error));
                    }
                }
            }
            match if level.broken { Ok(None) } else { level.reader.next().await } {
                Ok(Some(batch)) => {
                    self.waiting += batch.len();
                    level.listed.extend(batch);
                    if self.waiting > MAX_LISTING {
                        let url = self.url();
                        self.levels.clear();
                        return Err(Failure::failed(format!("{url}: {}", too_wide())));
                    }
                }
                Ok(None) => {
                    self.levels.pop();
                    self.done = !self.names.is_empty();
                    return Ok(Some(Step::Left));
                }
                Err(error) => {
                    level.broken = true;
                    return Err(self.location.failure_at(&self.url(), error));
                }
            }
        }
    }

    /// Returns the next object, or `None` at the end. Failures on the way are counted.
    ///
    /// # Errors
    /// A failure after which nothing else can succeed.
    pub(super) async fn next_met(&mut self, tally: &mut Tally) -> Result<Option<Node>, Failure> {
        loop {
            match self.next().await {
                Ok(Some(Step::Met(node))) => return Ok(Some(node)),
                Ok(Some(Step::Left)) => {}
                Ok(None) => return Ok(None),
                Err(failure) => {
                    tally.count_none::<()>(Err(failure))?;
                }
            }
        }
    }

    fn met(&mut self, node: Node) -> Step {
        if node.attributes.is_directory() {
            self.next = Some(node);
        } else {
            self.done = !self.names.is_empty();
        }
        Step::Met(node)
    }

    /// Begins to list a directory. If that is refused, the directory is left with the next step.
    fn enter(&mut self, node: Node) -> Result<(), Failure> {
        let depth = self.levels.len();
        let above = self.levels.last();
        let anchor = above.and_then(|level| level.anchor);
        let path = String::from_utf8_lossy(&self.url().path()).into_owned();
        let refused = if anchor == Some(node.handle) {
            Some(Error::DirectoryLoop { path })
        } else if depth > DEEPEST {
            Some(Error::TooDeep { path, limit: DEEPEST })
        } else {
            None
        };
        let renewed = depth == 0 || depth.is_power_of_two();
        let anchor = if renewed { Some(node.handle) } else { anchor };
        let reader = self.location.client.dir_reader(node.handle, self.url().path());
        self.levels.push(Level { node, reader, listed: VecDeque::new(), anchor, broken: refused.is_some() });
        match refused {
            Some(error) => Err(self.location.failure_at(&self.url(), error)),
            None => Ok(()),
        }
    }
}

/// Returns the reason for which a walk ends with too many entries that wait for their visit.
pub(super) fn too_wide() -> String {
    format!("more than {MAX_LISTING} entries wait to be looked at: the server may invent them")
}
