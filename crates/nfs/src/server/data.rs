//! READ, WRITE and COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_verbs::Buffer;

use super::{At, Running, Serve, Served3, Shared, Work};
use crate::fs::{FsError, ReadResult, Stability};
use crate::wire::{
    CommitArgs, CommitOk, FileHandle, MAX_PAYLOAD, ReadArgs, ReadOk, StableHow, Status, WriteArgs, WriteOk,
};

/// Returns the part of a payload that one call may have. RFC 1813 §3.3.19: sizes over `rtmax` or `wtmax` are
/// shortened.
pub(super) fn limited(count: u32, shared: &Shared) -> usize {
    usize::try_from(count.min(shared.max_payload)).unwrap_or(MAX_PAYLOAD)
}

/// Returns the status of a READ, WRITE or COMMIT that failed. RFC 1813 §3.3.6, §3.3.7: NFS3ERR_INVAL for what is no
/// regular file, and for a directory too. §3.3.21 does not say this of COMMIT, but requires a regular file as well.
fn refusal(error: FsError) -> Status {
    match error {
        FsError::IsDirectory => Status::Inval,
        error => error.into(),
    }
}

/// Serves a READ into this buffer.
pub(super) fn read(
    shared: &Arc<Shared>,
    at: At,
    call: ReadArgs,
    mut buffer: Buffer,
) -> Running<Served3<ReadArgs>> {
    // A refusal has attributes, which may require a disk.
    if let Some(Ok(read)) = at.fs().try_read(&at.who, &at.id, call.offset, &mut buffer) {
        return Running::done(results(shared, &at, buffer, Ok(read)));
    }
    let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
    let job_shared = Arc::clone(shared);
    shared.blocking(&served, peer, Work::Read, move || {
        let read = at.fs().read(&at.who, &at.id, call.offset, &mut buffer);
        results(&job_shared, &at, buffer, read)
    })
}

fn results(
    shared: &Shared,
    at: &At,
    mut buffer: Buffer,
    read: Result<ReadResult, FsError>,
) -> Served3<ReadArgs> {
    let read = read.map_err(|error| (refusal(error), at.post_op()))?;
    buffer.truncate(read.length);
    let data = if buffer.is_empty() { Bytes::new() } else { buffer.freeze() };
    shared.counters.read(data.len());
    Ok(ReadOk {
        attributes: Some(at.attributes(&read.attributes)),
        count: u32::try_from(data.len()).unwrap_or(u32::MAX),
        eof: read.end_of_file,
        data: data.into(),
    })
}

/// Serves a WRITE; calls `written` when the data is in the file.
pub(super) fn write(mut call: WriteArgs, at: &At, written: &dyn Fn()) -> Served3<WriteArgs> {
    let refused = |status| Err((status, at.untouched()));
    if let Err(status) = at.writable() {
        return refused(status);
    }
    // RFC 1813 §3.3.7: count is the number of bytes of data, of which there must be enough.
    if usize::try_from(call.count).is_ok_and(|count| count > call.data.len()) {
        return refused(Status::Inval);
    }
    call.data.truncate(limited(call.count, &at.shared));
    let data: Vec<_> = call.data.iter().map(|slice| IoSlice::new(slice)).collect();
    let stability = match call.stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let outcome = at.fs().write_telling(&at.who, &at.id, call.offset, &data, stability, written);
    let file_wcc = at.wcc(&outcome.change);
    let result = outcome.result.map_err(|error| (refusal(error), file_wcc))?;
    at.shared.counters.written(result.length);
    Ok(WriteOk {
        file_wcc,
        count: u32::try_from(result.length).unwrap_or(u32::MAX),
        committed: match result.committed {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        },
        verifier: result.verifier.to_be_bytes(),
    })
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
            Err(error) => Err((refusal(error), file_wcc)),
        }
    }
}
