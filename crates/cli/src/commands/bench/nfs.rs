//! Streams of NFS READ and WRITE, and NULL calls.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_nfs::client::{Client, ClientOptions, File};
use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION, SetAttributes};

use super::{Ends, FILE_OPERATIONS, MEMORY_EXPORT, OPERATION, failed, no_connection, rate, table};
use crate::arguments::Proto;
use crate::exit::Failure;

/// Client with a file to read and a file to write.
pub(super) struct NfsStreams {
    rpc: rpcrdma::Client,
    source: File,
    sink: File,
    block: Bytes,
}

impl NfsStreams {
    /// Mounts both exports; `source` is the name of the file to read.
    pub(super) async fn connect(
        ends: &Ends,
        proto: Proto,
        to: SocketAddr,
        source: &str,
    ) -> Result<Self, Failure> {
        let transport = match proto {
            Proto::Rdma => rpcrdma::Transport::rdma_on(ends.connector(to).await?),
            Proto::Tcp => rpcrdma::Transport::tcp(),
        };
        let rpc = rpcrdma::Client::builder().transport(transport).connect(to).await.map_err(no_connection)?;
        let mount = |export: &'static str| Client::mount(&rpc, export, ClientOptions::default());
        let files = mount("/").await.map_err(failed("mount"))?;
        let memory = mount(MEMORY_EXPORT).await.map_err(failed("mount"))?;
        let source = files.open(source).await.map_err(failed("open"))?;
        let sink = memory
            .create(format!("/{}", proto.name()), SetAttributes::default())
            .await
            .map_err(failed("create"))?;
        Ok(Self { rpc, source, sink, block: vec![0xa5; OPERATION].into() })
    }

    /// Reads a file that the server has in its page cache. Returns bytes a second.
    pub(super) async fn read(&self, operations: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        for part in parts(operations) {
            let bytes = u64::from(part) * OPERATION as u64;
            let mut pieces = self.source.read_stream(0, Some(bytes)).await.map_err(failed("read"))?;
            let mut got = 0;
            while let Some(piece) = pieces.next().await.map_err(failed("read"))? {
                got += piece.len() as u64;
            }
            if got != bytes {
                return Err(Failure::failed(format!("{got} bytes read, {bytes} expected")));
            }
        }
        Ok(rate(operations, start.elapsed()))
    }

    /// Writes and commits. Returns bytes a second.
    pub(super) async fn write(&self, operations: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        for part in parts(operations) {
            let mut stream = self.sink.write_stream(0);
            for _ in 0..part {
                stream.write(self.block.clone()).await.map_err(failed("write"))?;
            }
            stream.finish().await.map_err(failed("write"))?;
        }
        Ok(rate(operations, start.elapsed()))
    }

    /// Returns the median round trip of NULL calls in seconds.
    pub(super) async fn null(&self, times: u32) -> Result<f64, Failure> {
        let mut trips = Vec::new();
        for _ in 0..times {
            let start = Instant::now();
            self.rpc.null(NFS_PROGRAM, NFS_VERSION).await.map_err(failed("call NULL"))?;
            trips.push(start.elapsed().as_secs_f64());
        }
        Ok(table::median(trips))
    }
}

/// Splits a number of operations into passes over the file.
fn parts(operations: u32) -> impl Iterator<Item = u32> {
    (0..operations)
        .step_by(FILE_OPERATIONS as usize)
        .map(move |done| (operations - done).min(FILE_OPERATIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_over_the_file() {
        let cut = |operations| parts(operations).collect::<Vec<u32>>();
        assert!(cut(0).is_empty());
        assert_eq!(cut(1), [1]);
        assert_eq!(cut(FILE_OPERATIONS), [FILE_OPERATIONS]);
        assert_eq!(cut(2 * FILE_OPERATIONS + 3), [FILE_OPERATIONS, FILE_OPERATIONS, 3]);
    }
}
