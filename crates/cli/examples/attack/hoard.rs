//! Attacks on memory over TCP: connections that send and never read, or begin records without ending them.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_nfs::mount::MountProcedure;
use rpcrdma_nfs::wire::{FileHandle, ReadArgs, ReaddirplusArgs, ReadlinkArgs};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::rpc;

/// Bytes of calls that one connection sends at a time.
const BATCH: usize = 64 << 10;
/// Most bytes that one connection sends.
const MOST: usize = 1 << 30;

/// Call whose replies the attacker does not read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// NULL: works without access to an export.
    Null,
    /// DUMP of the list of mounts.
    Dump,
    /// READ of 1 MiB.
    Read(FileHandle),
    /// READDIRPLUS of a large directory.
    List(FileHandle),
    /// READLINK of a long target.
    Readlink(FileHandle),
}

impl Call {
    fn record(self, xid: u32) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Null => rpc::null(xid),
            Self::Dump => rpc::mount(xid, MountProcedure::Dump),
            Self::Read(file) => rpc::nfs(xid, &ReadArgs { file, offset: 0, count: 1 << 20 }),
            Self::List(dir) => rpc::nfs(xid, &list(dir)),
            Self::Readlink(symlink) => rpc::nfs(xid, &ReadlinkArgs { symlink }),
        }
    }
}

/// Returns a READDIRPLUS from the beginning with the greatest reply that the server gives.
pub(crate) const fn list(dir: FileHandle) -> ReaddirplusArgs {
    ReaddirplusArgs { dir, cookie: 0, verifier: [0; 8], dircount: 1 << 20, maxcount: 1 << 20 }
}

/// Makes calls on `count` connections from each of these addresses for this long, without reading replies.
pub(crate) async fn unread(
    to: SocketAddr,
    sources: std::ops::RangeInclusive<u8>,
    count: u32,
    call: Call,
    length: Duration,
) -> Result<(), Failure> {
    let mut batch = Vec::with_capacity(BATCH + 1024);
    let mut xid = 0;
    while batch.len() < BATCH {
        xid += 1;
        batch.extend(call.record(xid)?);
    }
    let batch = bytes::Bytes::from(batch);
    let mut tasks = tokio::task::JoinSet::new();
    for source in sources {
        for _ in 0..count {
            let batch = batch.clone();
            tasks.spawn(async move {
                let mut kept = None;
                let work = async {
                    // A refused connection is a successful defence.
                    let Ok(mut stream) = rpc::connect_narrow(source, to).await else { return };
                    let mut sent = 0;
                    while sent < MOST && stream.write_all(&batch).await.is_ok() {
                        sent += batch.len();
                    }
                    kept = Some(stream);
                    std::future::pending::<()>().await;
                };
                let _ = timeout(length, work).await;
                drop(kept);
            });
        }
    }
    tasks.join_all().await;
    Ok(())
}

/// Begins a record in fragments of this many bytes on each of `count` connections, and never ends it.
pub(crate) async fn unfinished(
    to: SocketAddr,
    source: u8,
    count: usize,
    fragment: u32,
    length: Duration,
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    // A byte less than the longest record that the server accepts.
    while bytes.len() + usize::try_from(fragment)? + 4 < 1 << 20 {
        bytes.extend(fragment.to_be_bytes());
        bytes.resize(bytes.len() + usize::try_from(fragment)?, 0);
    }
    bytes.extend([0x80, 0, 0, 4, 1]);
    let bytes = bytes::Bytes::from(bytes);
    let mut kept: Vec<TcpStream> = Vec::new();
    let work = async {
        for _ in 0..count {
            let Ok(mut stream) = rpc::connect(source, to).await else { continue };
            // A server without memory for the record stops reading.
            let _ = timeout(Duration::from_millis(100), stream.write_all(&bytes)).await;
            kept.push(stream);
        }
        sleep(length).await;
    };
    let _ = timeout(length, work).await;
    Ok(())
}

/// Mounts the root under many spellings.
pub(crate) async fn spellings(to: SocketAddr, source: u8, count: u32) -> Result<(), Failure> {
    let stream = rpc::connect(source, to).await?;
    let (mut read, mut write) = stream.into_split();
    let sending = async {
        for number in 0..count {
            // Each path of 1,024 bytes is another spelling of "/".
            let path: Vec<u8> =
                (0..512).flat_map(|at| if number >> (at % 10) & 1 == 1 { *b"//" } else { *b"/." }).collect();
            write.write_all(&rpc::mnt(number, &path)?).await?;
        }
        write.shutdown().await?;
        Ok::<_, Failure>(())
    };
    let mut sink = tokio::io::sink();
    let (sent, _) = tokio::join!(sending, tokio::io::copy(&mut read, &mut sink));
    sent
}

/// Opens `count` connections from each address that send nothing, or only the beginning of a message.
pub(crate) async fn silent(
    to: SocketAddr,
    sources: std::ops::RangeInclusive<u8>,
    count: usize,
    words: &[u8],
    length: Duration,
) -> Result<(), Failure> {
    let mut kept = Vec::new();
    let work = async {
        for source in sources {
            for _ in 0..count {
                let Ok(mut stream) = rpc::connect(source, to).await else { continue };
                let _ = stream.write_all(words).await;
                kept.push(stream);
            }
        }
        sleep(length).await;
    };
    let _ = timeout(length, work).await;
    Ok(())
}
