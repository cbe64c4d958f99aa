//! READ, WRITE and COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_verbs::Buffer;

use super::{At, Serve, Served3, Shared};
use crate::fs::{FsError, ReadResult, Stability};
use crate::wire::{
    CommitArgs, CommitOk, FileHandle, MAX_PAYLOAD, ReadArgs, ReadOk, StableHow, Status, WriteArgs, WriteOk,
};

/// The part of a payload that one call may have: RFC 1813 §3.3.19 makes what is over `rtmax` or `wtmax` short.
pub(super) fn limited(count: u32, shared: &Shared) -> usize {
    usize::try_from(count.min(shared.max_payload)).unwrap_or(MAX_PAYLOAD)
}

/// Serves a READ; `None` if the file system panicked.
pub(super) async fn read(
    shared: &Arc<Shared>,
    at: At,
    peer: Option<IpAddr>,
    call: ReadArgs,
) -> Option<Served3<ReadArgs>> {
    let Some(mut buffer) = shared.buffer(peer, limited(call.count, shared)).await else {
        return Some(Err((Status::Jukebox, None)));
    };
    if let Some(read) = at.fs().try_read(&at.who, &at.id, call.offset, &mut buffer) {
        return Some(results(shared, &at, buffer, read));
    }
    let file_system = Arc::clone(&at.served.export.file_system);
    let job_shared = Arc::clone(shared);
    shared
        .blocking(&file_system, move || {
            let read = at.fs().read(&at.who, &at.id, call.offset, &mut buffer);
            results(&job_shared, &at, buffer, read)
        })
        .await
}

fn results(
    shared: &Shared,
    at: &At,
    mut buffer: Buffer,
    read: Result<ReadResult, FsError>,
) -> Served3<ReadArgs> {
    let read = read.map_err(|error| (error.into(), at.post_op()))?;
    buffer.truncate(read.length);
    let data = if buffer.is_empty() { Bytes::new() } else { buffer.freeze() };
    shared.counters.read(data.len());
    Ok(ReadOk {
        attributes: Some(at.attributes(&read.attributes)),
        count: u32::try_from(data.len()).unwrap_or(u32::MAX),
        eof: read.end_of_file,
        data,
    })
}

impl Serve for WriteArgs {
    fn handle(&self) -> &FileHandle {
        &self.file
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let refused = |status| Err((status, at.untouched()));
        if let Err(status) = at.writable() {
            return refused(status);
        }
        // RFC 1813 §3.3.7: count is the number of octets of data; there cannot be fewer.
        let Some(data) = usize::try_from(self.count).ok().and_then(|count| self.data.get(..count)) else {
            return refused(Status::Inval);
        };
        let data = data.get(..limited(self.count, &at.shared)).unwrap_or(data);
        let stability = match self.stable {
            StableHow::Unstable => Stability::Unstable,
            StableHow::DataSync => Stability::DataSync,
            StableHow::FileSync => Stability::FileSync,
        };
        let outcome = at.fs().write(&at.who, &at.id, self.offset, data, stability);
        let file_wcc = at.wcc(&outcome.change);
        let written = outcome.result.map_err(|error| (error.into(), file_wcc))?;
        at.shared.counters.written(written.length);
        Ok(WriteOk {
            file_wcc,
            count: u32::try_from(written.length).unwrap_or(u32::MAX),
            committed: match written.committed {
                Stability::Unstable => StableHow::Unstable,
                Stability::DataSync => StableHow::DataSync,
                Stability::FileSync => StableHow::FileSync,
            },
            verifier: written.verifier.to_be_bytes(),
        })
    }
}

impl Serve for CommitArgs {
    fn handle(&self) -> &FileHandle {
        &self.file
    }

    fn serve(self, at: &At) -> Served3<Self> {
        at.writable().map_err(|status| (status, at.untouched()))?;
        let outcome = at.fs().commit(&at.who, &at.id, self.offset, self.count);
        let file_wcc = at.wcc(&outcome.change);
        match outcome.result {
            Ok(verifier) => Ok(CommitOk { file_wcc, verifier: verifier.to_be_bytes() }),
            Err(error) => Err((error.into(), file_wcc)),
        }
    }
}
