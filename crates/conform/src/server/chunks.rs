//! Legal forms whose chunks carry data: NFSv3 WRITE, READ, SYMLINK, READLINK and READDIR (RFC 8267 §4), on files of the
//! tester.

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::{ChunkLists, WriteChunk};

use super::bench::{
    Behind, Bench, CREDITS, Call, Reply, SOURCE_LEN, differing, nfs_ok, pattern, results_wrong, success,
};
use super::forms::{describe, room, windows};
use crate::endpoint::Endpoint;
use crate::message::{Reaction, u32_of};
use crate::nfs;
use crate::report::{Outcome, Wrong, differs, fail, not_applicable};

/// Position of the pad of a chunk (RFC 8166 §3.4.5.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pad {
    None,
    InLastSegment,
    OwnSegment,
}

/// Makes a WRITE of `len` bytes with its data in a Read chunk of segments of these lengths (the last takes the rest).
/// `long` puts the call itself into a Position-Zero chunk of two segments.
async fn write(bench: &mut Bench<'_>, len: usize, lengths: &[usize], pad: Pad, long: bool) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let xid = bench.xid();
    let data = pattern(xid, len);
    let call = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, len).finish();
    let position = u32_of(call.len());
    let padding = len.next_multiple_of(4) - len;
    let in_chunk = match pad {
        Pad::InLastSegment => data.iter().copied().chain(std::iter::repeat_n(0, padding)).collect(),
        Pad::None | Pad::OwnSegment => data.clone(),
    };
    let mut read = Vec::new();
    if long {
        read.extend(windows(&mut endpoint, 0, &call, &[33]));
    }
    read.extend(windows(&mut endpoint, position, &in_chunk, lengths));
    if pad == Pad::OwnSegment {
        read.extend(windows(&mut endpoint, position, &Bytes::from(vec![0; padding]), &[]));
    }
    let segments = read.len();
    let payload = (!long).then_some(call);
    let call = Call { xid, lists: ChunkLists { read, ..ChunkLists::default() }, credit: CREDITS, payload };
    let mut reply = nfs_ok(bench.call(&mut endpoint, call).await?)?;
    let count = nfs::write_results(&mut reply.results).map_err(results_wrong)?;
    endpoint.close().await;
    if count != len {
        return Err(fail(format!("{count} bytes written of {len}")));
    }
    if let Some(difference) = differing(&bench.content(&scratch.sink, len).await?, &data) {
        return Err(fail(format!("the file does not hold the data of the chunk: {difference}")));
    }
    Ok(format!("{len} bytes written, segments: {segments}"))
}

pub(super) async fn read_chunk_one(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 4096, &[], Pad::None, false).await
}

pub(super) async fn read_chunk_many(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 5001, &[1, 1022, 3, 2047, 700], Pad::None, false).await
}

pub(super) async fn read_chunk_no_pad(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 1201, &[], Pad::None, false).await
}

pub(super) async fn read_chunk_pad(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 1201, &[600], Pad::InLastSegment, false).await
}

pub(super) async fn read_chunk_pad_segment(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 1201, &[600], Pad::OwnSegment, false).await
}

pub(super) async fn position_zero_and_read(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 1202, &[601], Pad::None, true).await
}

/// Sends a Read chunk with a segment of length 0: the server reads no byte for it.
pub(super) async fn read_chunk_empty_segment(bench: &mut Bench<'_>) -> Outcome {
    write(bench, 1200, &[600, 0], Pad::None, false).await
}

/// Makes a READ of `count` bytes with these lists, and returns its reply.
async fn read(
    bench: &mut Bench<'_>,
    endpoint: &mut Endpoint,
    file: &Bytes,
    count: usize,
    lists: ChunkLists,
    long: bool,
) -> Result<Reply, Wrong> {
    let reply = read_or_err_chunk(bench, endpoint, file, count, lists, long).await?;
    reply.ok_or_else(|| fail(Reaction::ErrChunk.to_string()))
}

/// Makes a READ in a form that the server may refuse: `None` is ERR_CHUNK.
async fn read_or_err_chunk(
    bench: &mut Bench<'_>,
    endpoint: &mut Endpoint,
    file: &Bytes,
    count: usize,
    lists: ChunkLists,
    long: bool,
) -> Result<Option<Reply>, Wrong> {
    let xid = bench.xid();
    let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), file, 0, count).finish();
    let mut lists = lists;
    if long {
        lists.read = windows(endpoint, 0, &call, &[30]);
    }
    let payload = (!long).then_some(call);
    bench.call_or_err_chunk(endpoint, Call { xid, lists, credit: CREDITS, payload }).await
}

/// Checks a READ whose data is in the first Write chunk.
fn check_written(reply: Reply, count: usize) -> Outcome {
    let mut reply = nfs_ok(reply)?;
    let (told, len) = nfs::read_results(&mut reply.results).map_err(results_wrong)?;
    let data = reply.written.first().cloned().unwrap_or_default();
    // RFC 8166 §3.4.6.2: without the pad.
    if (told, len, data.len()) != (count, count, count) {
        return Err(fail(format!(
            "{count} bytes were read: count {told}, length {len}, {} in the Write chunk",
            data.len()
        )));
    }
    if let Some(difference) = differing(&data, &pattern(0, SOURCE_LEN).slice(..count)) {
        return Err(fail(format!("the Write chunk does not hold the data of the file: {difference}")));
    }
    let (text, state) = (describe(&reply), reply.behind);
    // The data is not also inline.
    nfs::inline_data(reply.results, 0).map_err(results_wrong)?;
    behind(state)?;
    Ok(text)
}

/// Checks the memory behind the data. RFC 8166 §3.4.6.2 forbids the pad; by §4.3.2.2 the client expects any other
/// change.
fn behind(state: Behind) -> Result<(), Wrong> {
    match state {
        Behind::AsItWas => Ok(()),
        Behind::Modified => Err(differs("memory behind the returned length was modified")),
        Behind::Pad => Err(fail("the pad of the data was written behind it")),
    }
}

/// Makes a READ of `count` bytes into a Write chunk of segments of these lengths.
async fn write_chunk(bench: &mut Bench<'_>, count: usize, lengths: &[usize], long: bool) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let lists = ChunkLists { write: vec![room(&mut endpoint, lengths)], ..ChunkLists::default() };
    let reply = read(bench, &mut endpoint, &scratch.source, count, lists, long).await?;
    endpoint.close().await;
    check_written(reply, count)
}

pub(super) async fn write_chunk_one(bench: &mut Bench<'_>) -> Outcome {
    write_chunk(bench, 4096, &[4096], false).await
}

pub(super) async fn write_chunk_many(bench: &mut Bench<'_>) -> Outcome {
    write_chunk(bench, 5001, &[1023, 2, 1975, 1001, 1000], false).await
}

pub(super) async fn write_chunk_roomy(bench: &mut Bench<'_>) -> Outcome {
    write_chunk(bench, 1001, &[700, 1000, 300], false).await
}

pub(super) async fn read_and_write(bench: &mut Bench<'_>) -> Outcome {
    write_chunk(bench, 3001, &[2000, 2000], true).await
}

pub(super) async fn write_chunk_unused(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let lists = ChunkLists { write: vec![room(&mut endpoint, &[512, 512])], ..ChunkLists::default() };
    // A directory has no data: READ fails, and its result has no eligible item.
    let mut reply = success(read(bench, &mut endpoint, &scratch.root, 1024, lists, false).await?)?;
    endpoint.close().await;
    let status = nfs::status(&mut reply.results).map_err(results_wrong)?;
    match reply.written.iter().all(Bytes::is_empty) && status != 0 {
        true => Ok(format!("nfsstat3 {status}, {}", describe(&reply))),
        false => Err(fail(format!("nfsstat3 {status} of a READ of a directory, {}", describe(&reply)))),
    }
}

/// Checks a READ whose data is inline.
fn check_inline(reply: Reply, count: usize) -> Outcome {
    let mut reply = nfs_ok(reply)?;
    let (_, len) = nfs::read_results(&mut reply.results).map_err(results_wrong)?;
    let text = describe(&reply);
    let data = nfs::inline_data(reply.results, len).map_err(results_wrong)?;
    match data == pattern(0, SOURCE_LEN).slice(..count) {
        true => Ok(text),
        false => Err(fail(format!("not the data of the file: {text}"))),
    }
}

/// Makes a READ with an empty Write chunk. RFC 8166 §4.3.2.3 requires an empty Write list here, and describes this form
/// only for replies with several eligible items.
pub(super) async fn write_chunk_empty(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect().await?;
    let lists = ChunkLists { write: vec![WriteChunk::default()], ..ChunkLists::default() };
    let reply = read_or_err_chunk(bench, &mut endpoint, &scratch.source, 400, lists, false).await?;
    endpoint.close().await;
    match reply {
        Some(reply) => check_inline(reply, 400),
        None => Ok(Reaction::ErrChunk.to_string()),
    }
}

/// Makes a READ with two Write chunks. RFC 8166 §4.3.2.1 requires one Write chunk for a reply with one eligible item.
pub(super) async fn write_chunk_two(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let write = vec![room(&mut endpoint, &[1500]), room(&mut endpoint, &[700, 300])];
    let lists = ChunkLists { write, ..ChunkLists::default() };
    let reply = read_or_err_chunk(bench, &mut endpoint, &scratch.source, 1000, lists, false).await?;
    endpoint.close().await;
    let Some(reply) = reply else { return Ok(Reaction::ErrChunk.to_string()) };
    let second = reply.written.get(1).map_or(0, Bytes::len);
    match second {
        0 => check_written(reply, 1000),
        _ => Err(fail(format!("{second} bytes in the second Write chunk, which has no result"))),
    }
}

/// Makes a READ without a Write chunk whose reply exceeds the threshold, with a Reply chunk of segments of these
/// lengths.
async fn reply_chunk(bench: &mut Bench<'_>, lengths: &[usize]) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect().await?;
    let lists = ChunkLists { reply: Some(room(&mut endpoint, lengths)), ..ChunkLists::default() };
    let reply = read(bench, &mut endpoint, &scratch.source, 2000, lists, false).await?;
    endpoint.close().await;
    if !reply.long {
        return Err(fail(format!("beyond the threshold: {}", describe(&reply))));
    }
    let state = reply.behind;
    let text = check_inline(reply, 2000)?;
    behind(state)?;
    Ok(text)
}

pub(super) async fn reply_chunk_one(bench: &mut Bench<'_>) -> Outcome {
    reply_chunk(bench, &[4096]).await
}

pub(super) async fn reply_chunk_many(bench: &mut Bench<'_>) -> Outcome {
    reply_chunk(bench, &[501, 7, 1000, 2048]).await
}

pub(super) async fn write_and_reply(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let write = vec![room(&mut endpoint, &[2048])];
    let reply = Some(room(&mut endpoint, &[1024]));
    let lists = ChunkLists { write, reply, ..ChunkLists::default() };
    let reply = read(bench, &mut endpoint, &scratch.source, 2001, lists, false).await?;
    endpoint.close().await;
    check_written(reply, 2001)
}

/// Makes a SYMLINK with its target in a Read chunk, then a READLINK into a Write chunk.
pub(super) async fn symlink(bench: &mut Bench<'_>) -> Outcome {
    const TARGET: &[u8] = b"the/target/of/a/symbolic/link";
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect_announcing(true).await?;
    let (name, xid) = (bench.name(), bench.xid());
    let call = bench.nfs_rpc().call(xid, nfs::SYMLINK);
    let call = nfs::symlink(call, &scratch.root, name.as_bytes(), TARGET.len()).finish();
    let read = windows(&mut endpoint, u32_of(call.len()), &Bytes::from_static(TARGET), &[10]);
    let lists = ChunkLists { read, ..ChunkLists::default() };
    let call = Call { xid, lists, credit: CREDITS, payload: Some(call) };
    nfs_ok(bench.call(&mut endpoint, call).await?)?;
    let lookup = |call| nfs::name(call, &scratch.root, name.as_bytes());
    let mut found = bench.nfs_inline(&mut endpoint, nfs::LOOKUP, lookup).await?;
    let link = nfs::handle(&mut found).map_err(results_wrong)?;
    let xid = bench.xid();
    let call = bench.nfs_rpc().call(xid, nfs::READLINK).opaque(&link).finish();
    let lists = ChunkLists { write: vec![room(&mut endpoint, &[13, 1024])], ..ChunkLists::default() };
    let call = Call { xid, lists, credit: CREDITS, payload: Some(call) };
    let mut reply = nfs_ok(bench.call(&mut endpoint, call).await?)?;
    endpoint.close().await;
    let len = nfs::readlink_results(&mut reply.results).map_err(results_wrong)?;
    let data = reply.written.first().cloned().unwrap_or_default();
    match len == TARGET.len() && data == TARGET {
        true => Ok(format!("the target from a Read chunk; {}", describe(&reply))),
        false => Err(fail(format!("another target came back: {}", describe(&reply)))),
    }
}

/// Requests a listing longer than the threshold, of enough files.
pub(super) async fn readdir(bench: &mut Bench<'_>) -> Outcome {
    const COUNT: usize = 4096;
    let scratch = bench.scratch().await?;
    let mut endpoint = bench.connect().await?;
    let threshold = PrivateData::default().receive_size;
    // RFC 1813 §3.3.16: an entry is a flag, a fileid, a name of this length with its own, a cookie.
    let entry = 24 + scratch.source_name.len();
    for _ in 0..=threshold / entry {
        bench.make_file(&mut endpoint, &scratch.root).await?;
    }
    let xid = bench.xid();
    let call = nfs::readdir(bench.nfs_rpc().call(xid, nfs::READDIR), &scratch.root, COUNT).finish();
    let lists = ChunkLists { reply: Some(room(&mut endpoint, &[3000, 2000])), ..ChunkLists::default() };
    let call = Call { xid, lists, credit: CREDITS, payload: Some(call) };
    let mut reply = nfs_ok(bench.call(&mut endpoint, call).await?)?;
    endpoint.close().await;
    let state = reply.behind;
    let names = nfs::readdir_names(&mut reply.results).map_err(results_wrong)?;
    let text = format!("{} names, {}", names.len(), describe(&reply));
    // A directory may have more names than one reply holds.
    if names.len() < 3 {
        return Err(fail(format!("too few names: {text}")));
    }
    if !reply.long {
        return Err(not_applicable(format!("the listing does not need the Reply chunk: {text}")));
    }
    behind(state)?;
    Ok(text)
}

/// Calls GETATTR and FSINFO, as every client does.
pub(super) async fn small_calls(bench: &mut Bench<'_>) -> Outcome {
    let root = bench.root()?;
    let mut endpoint = bench.connect().await?;
    for procedure in [nfs::GETATTR, nfs::FSINFO] {
        bench.nfs_inline(&mut endpoint, procedure, |call| call.opaque(&root)).await?;
    }
    endpoint.close().await;
    Ok("GETATTR and FSINFO inline".into())
}
