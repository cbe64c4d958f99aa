//! The NFSv3 calls and results of rows with chunks (RFC 1813 §3.3). Calls are encoded item by item, so that an argument
//! can be left out of its stream. This module owns only bytes.

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder};

use crate::message::{Words, u32_of};

pub(crate) const PROGRAM: u32 = 100_003;
pub(crate) const VERSION: u32 = 3;

pub(crate) const GETATTR: u32 = 1;
pub(crate) const LOOKUP: u32 = 3;
pub(crate) const READLINK: u32 = 5;
pub(crate) const READ: u32 = 6;
pub(crate) const WRITE: u32 = 7;
pub(crate) const CREATE: u32 = 8;
pub(crate) const SYMLINK: u32 = 10;
pub(crate) const REMOVE: u32 = 12;
pub(crate) const READDIR: u32 = 16;
pub(crate) const FSINFO: u32 = 19;

/// Length of `fattr3`, in bytes.
const ATTRIBUTES: usize = 84;
/// Length of `wcc_attr`, in bytes.
const WCC_ATTRIBUTES: usize = 24;
/// Maximum length of a handle, in bytes.
const MAX_HANDLE: usize = 64;
/// Maximum length of data that a row asks for, in bytes.
const MAX_DATA: usize = 1 << 20;

/// Appends a `sattr3` that sets only a mode.
fn mode(words: Words, mode: u32) -> Words {
    words.words(&[1, mode, 0, 0, 0, 0, 0])
}

pub(crate) fn read(call: Words, file: &[u8], offset: u64, count: usize) -> Words {
    call.opaque(file).long(offset).words(&[u32_of(count)])
}

/// Appends a WRITE up to and including the length of its data; the data follows inline, or in a chunk at this Position.
pub(crate) fn write(call: Words, file: &[u8], offset: u64, count: usize) -> Words {
    // FILE_SYNC
    call.opaque(file).long(offset).words(&[u32_of(count), 2, u32_of(count)])
}

/// Appends a CREATE with UNCHECKED: an old file of this name may be used.
pub(crate) fn create(call: Words, directory: &[u8], name: &[u8]) -> Words {
    mode(call.opaque(directory).opaque(name).words(&[0]), 0o600)
}

pub(crate) fn name(call: Words, directory: &[u8], name: &[u8]) -> Words {
    call.opaque(directory).opaque(name)
}

/// Appends a SYMLINK up to and including the length of its target.
pub(crate) fn symlink(call: Words, directory: &[u8], name: &[u8], len: usize) -> Words {
    mode(call.opaque(directory).opaque(name), 0o777).words(&[u32_of(len)])
}

pub(crate) fn readdir(call: Words, directory: &[u8], count: usize) -> Words {
    call.opaque(directory).long(0).long(0).words(&[u32_of(count)])
}

/// Decodes `nfsstat3`.
pub(crate) fn status(results: &mut Decoder) -> Result<u32, DecodeError> {
    results.u32()
}

/// Skips `post_op_attr`.
fn attributes(results: &mut Decoder) -> Result<(), DecodeError> {
    if results.bool()? {
        results.bytes_fixed(ATTRIBUTES)?;
    }
    Ok(())
}

/// Decodes the results of a READ before its data: `count`, and the length of the data.
pub(crate) fn read_results(results: &mut Decoder) -> Result<(usize, usize), DecodeError> {
    attributes(results)?;
    let count = results.u32()?;
    results.bool()?;
    let len = results.u32()?;
    Ok((usize::try_from(count).unwrap_or(usize::MAX), usize::try_from(len).unwrap_or(usize::MAX)))
}

/// Decodes the last item of results: this much inline data, with its pad.
pub(crate) fn inline_data(mut results: Decoder, len: usize) -> Result<Bytes, DecodeError> {
    let too_long = results.invalid("more data than was asked for");
    if len > MAX_DATA {
        return Err(too_long);
    }
    let data = results.bytes_fixed(len)?;
    results.finish()?;
    Ok(data)
}

/// Decodes the results of a WRITE: `count`.
pub(crate) fn write_results(results: &mut Decoder) -> Result<usize, DecodeError> {
    if results.bool()? {
        results.bytes_fixed(WCC_ATTRIBUTES)?;
    }
    attributes(results)?;
    Ok(usize::try_from(results.u32()?).unwrap_or(usize::MAX))
}

/// Decodes the handle that a CREATE or SYMLINK returned, if there is one.
pub(crate) fn new_handle(results: &mut Decoder) -> Result<Option<Bytes>, DecodeError> {
    if results.bool()? { Ok(Some(results.opaque(MAX_HANDLE)?)) } else { Ok(None) }
}

/// Decodes the handle that a LOOKUP returned.
pub(crate) fn handle(results: &mut Decoder) -> Result<Bytes, DecodeError> {
    results.opaque(MAX_HANDLE)
}

/// Decodes the length of the target that a READLINK returned.
pub(crate) fn readlink_results(results: &mut Decoder) -> Result<usize, DecodeError> {
    attributes(results)?;
    Ok(usize::try_from(results.u32()?).unwrap_or(usize::MAX))
}

/// Decodes the names of a directory listing.
pub(crate) fn readdir_names(results: &mut Decoder) -> Result<Vec<Bytes>, DecodeError> {
    attributes(results)?;
    results.u64()?;
    let mut names = Vec::new();
    while results.bool()? {
        results.u64()?;
        names.push(results.opaque(MAX_DATA)?);
        results.u64()?;
    }
    results.bool()?;
    Ok(names)
}
