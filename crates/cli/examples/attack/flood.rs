//! Attacks on time over TCP: many small calls in flight, each of which is expensive for the server.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_nfs::wire::{DirOpArgs, FileHandle, FileName, GetattrArgs, LookupArgs, StableHow, WriteArgs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Failure;
use crate::hoard::list;
use crate::rpc::{self, REPLY_MAX};

/// Call that an attacker repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// WRITE of this many bytes, FILE_SYNC, to one file.
    Write(FileHandle, u32),
    /// READDIRPLUS of a large directory.
    List(FileHandle),
    /// LOOKUP of a missing name.
    Lookup(FileHandle),
    /// GETATTR.
    Getattr(FileHandle),
}

impl Call {
    fn record(self, xid: u32) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Write(file, count) => rpc::nfs(xid, &write(file, xid, count)),
            Self::List(dir) => rpc::nfs(xid, &list(dir)),
            Self::Lookup(dir) => rpc::nfs(xid, &lookup(dir, xid)),
            Self::Getattr(object) => rpc::nfs(xid, &GetattrArgs { object }),
        }
    }
}

/// Returns a WRITE that must reach stable storage before its reply.
pub(crate) fn write(file: FileHandle, number: u32, count: u32) -> WriteArgs {
    WriteArgs {
        file,
        offset: u64::from(number % 256) * 4096,
        count,
        stable: StableHow::FileSync,
        data: vec![0x77; usize::try_from(count).unwrap_or(0)].into(),
    }
}

/// Returns a LOOKUP of a missing name.
pub(crate) fn lookup(dir: FileHandle, number: u32) -> LookupArgs {
    LookupArgs { what: DirOpArgs { dir, name: FileName::new(format!("missing-{number}")) } }
}

/// Keeps `window` calls in flight on each of `count` connections from 192.0.2.`source`.
pub(crate) async fn flood(
    to: SocketAddr,
    source: u8,
    count: u32,
    window: u32,
    call: Call,
    length: Duration,
) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        tasks.spawn(timeout(length, async move {
            let mut xid = number << 20;
            loop {
                // If the server ends the connection, the attacker opens another.
                if let Ok(stream) = rpc::connect(source, to).await {
                    let _ = one(stream, &mut xid, window, call).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }));
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn one(mut stream: TcpStream, xid: &mut u32, window: u32, call: Call) -> Result<(), Failure> {
    let mut next = || {
        *xid = xid.wrapping_add(1);
        call.record(*xid)
    };
    for _ in 0..window {
        stream.write_all(&next()?).await?;
    }
    let mut reply = Vec::new();
    loop {
        let word = stream.read_u32().await?;
        let length = usize::try_from(word & 0x7fff_ffff)?;
        if length > REPLY_MAX {
            return Err(format!("a reply of {length} bytes; at most {REPLY_MAX} are allowed").into());
        }
        reply.resize(length, 0);
        stream.read_exact(&mut reply).await?;
        stream.write_all(&next()?).await?;
    }
}
