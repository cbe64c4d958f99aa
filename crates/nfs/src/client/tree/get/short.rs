//! Short files of a copy from the server: many of them share a visit to a thread where calls may block.
//!
//! Such a visit costs more than the system calls for a short file. So a copy requests up to [`BATCH`] short files at the same
//! time, and writes them in one visit. Each file still has its own failure.

use std::path::PathBuf;

use rpcrdma_xdr::Payload;

use super::super::local::{SHORT, Sink, Spot, Wanted, blocking};
use super::super::{Copied, Kept};
use super::{Get, Getting, Goal};
use crate::client::{Calls, Error, File, Node};

/// Most short files of one batch from the server.
const BATCH: usize = 16;
/// Batches among which the files in progress are divided: while one is written, others are read.
const BATCHES: usize = 4;

/// A short file of a tree at the server, without holes.
pub(super) struct Short {
    path: String,
    spot: Spot,
    node: Node,
    /// Length, at most [`SHORT`].
    size: u32,
}

impl Short {
    /// Returns a file that is short; gives the path and the place of another one back.
    pub(super) fn of(with: &Getting, path: String, spot: Spot, node: Node) -> Result<Self, (String, Spot)> {
        let (options, attributes) = (&with.copying.options, &node.attributes);
        // The incomplete file of an earlier copy is continued elsewhere.
        let is_lasting = options.partial && attributes.size > options.partial_step;
        let is_short = (1..=SHORT).contains(&attributes.size) && attributes.used >= attributes.size;
        match u32::try_from(attributes.size) {
            Ok(size) if is_short && !is_lasting && size <= with.client.read_size() => {
                Ok(Self { path, spot, node, size })
            }
            _ => Err((path, spot)),
        }
    }
}

impl Get {
    /// Adds a file to the next batch, and starts the batch when it is full.
    pub(super) async fn push_short(&mut self, short: Short) -> Result<(), Error> {
        self.short.push(short);
        if self.short.len() >= (self.tasks.limit() / BATCHES).clamp(1, BATCH) {
            self.start_short().await?;
        }
        Ok(())
    }

    /// Starts the copy of the next batch.
    pub(super) async fn start_short(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.short);
        if batch.is_empty() {
            return Ok(());
        }
        self.tasks.start_batch(batch.len(), self.with.clone().short(batch)).await
    }
}

impl Getting {
    /// Copies short files: requests them all, and writes them in one visit to a blocking thread.
    async fn short(self, batch: Vec<Short>) -> Vec<Copied> {
        let mut reads: Calls<(File, Option<Payload>)> = Calls::new();
        for short in &batch {
            let file = self.client.file(short.node.handle, &short.path);
            let size = short.size;
            reads.push(Box::pin(async move { file.read_whole(size).await.map(|data| (file, data)) }));
        }
        let mut results = Vec::with_capacity(batch.len());
        let mut read = Vec::with_capacity(batch.len());
        for short in batch {
            match reads.next().await {
                Some(Ok((file, data))) => match self.changed(&file, &short.node.attributes).await {
                    Ok(changed) => read.push((short, data.filter(|_| changed.is_none()))),
                    Err(error) => results.push((short.path, Err(error))),
                },
                Some(Err(error)) => results.push((short.path, Err(error))),
                None => {}
            }
        }
        let copying = self.copying.clone();
        let write = move |(short, data): (Short, Option<Payload>)| {
            let written = data.map(|data| {
                let attributes = short.node.attributes;
                // Written in one piece, so nothing is left to continue.
                let wanted =
                    Wanted { source: attributes, copying: copying.clone(), partial: false, again: false };
                let mut sink = Sink::in_tree(&short.spot, &wanted)?;
                sink.write(0, &data)?;
                sink.finish(short.size.into(), copying.options.preserve.then(|| Kept::from(&attributes)))
            });
            (short, written)
        };
        let written = blocking(PathBuf::new, move || Ok(read.into_iter().map(write).collect::<Vec<_>>()));
        let written = match written.await {
            Ok(written) => written,
            // The runtime ends.
            Err(error) => {
                results.push((self.source.to_string(), Err(error)));
                return results;
            }
        };
        for (Short { path, spot, node, size }, written) in written {
            let result = match written {
                Some(Ok(owned)) => {
                    self.copying.counted(size.into());
                    self.done(&path, &node.attributes, owned);
                    Ok(())
                }
                Some(Err(source)) => Err(Error::Local { path: spot.path(), source }),
                // The file is another one by now.
                None => self.clone().file(path.clone(), Goal::Tree(spot), node).await,
            };
            results.push((path, result));
        }
        results
    }
}
