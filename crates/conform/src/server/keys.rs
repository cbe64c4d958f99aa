//! Chunks whose memory the server cannot access, or that are too short (RFC 8166 §4.5.3, §8.1).
//!
//! The tester's provider refuses a wrong access and ends the connection. The server must survive this, and must not
//! have touched the refused memory.

use bytes::Bytes;
use rpcrdma_proto::wire::{ChunkLists, ReadSegment, Segment, WriteChunk};

use super::bench::{Bench, CREDITS, FILL, pattern};
use super::forms::room;
use super::hostile::{Allowed, Case, REFUSE, Seen, only, provoke};
use crate::endpoint::Endpoint;
use crate::message::{Kind, RDMA_MSG, RDMA_NOMSG, message, u32_of};
use crate::nfs;
use crate::report::{Outcome, Wrong, fail};

/// The tester's provider ends the connection, unless the server detects the fault first.
const LOST: Allowed = only(&[Kind::Closed, Kind::ErrChunk]);
/// RFC 8166 §4.5.3: the server detects a chunk that is too short before the first byte, or the provider does. An RPC
/// error also tells the client that there is no result.
pub(super) const TOO_SMALL: Allowed =
    only(&[Kind::ErrChunk, Kind::GarbageArguments, Kind::SystemError, Kind::Closed]);

/// A segment whose handle names no window.
const NOWHERE: Segment = Segment { handle: 0x00ba_d000, length: 64, offset: 4096 };

/// Makes one call on a working connection, then the usual checks.
async fn one(
    bench: &mut Bench<'_>,
    mut endpoint: Endpoint,
    case: Case,
    allowed: Allowed,
) -> Result<(Outcome, Endpoint), Wrong> {
    let mut seen = Seen::default();
    provoke(bench, &mut endpoint, &case, allowed, &mut seen).await?;
    bench.alive().await?;
    Ok((seen.finish(), endpoint))
}

/// Makes a NULL call whose Position-Zero chunk is this segment.
async fn read_from(
    bench: &mut Bench<'_>,
    segment: impl AsyncFnOnce(&mut Bench<'_>, &mut Endpoint, Bytes) -> Segment,
) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    let segment = segment(bench, &mut endpoint, call).await;
    let read = vec![ReadSegment::new(0, segment)];
    let bytes = message(xid, CREDITS, RDMA_NOMSG, ChunkLists { read, ..ChunkLists::default() }, &[]);
    let (seen, endpoint) = one(bench, endpoint, Case { label: String::new(), xid, bytes }, LOST).await?;
    endpoint.close().await;
    seen
}

pub(super) async fn read_wrong_key(bench: &mut Bench<'_>) -> Outcome {
    read_from(bench, async |_, _, call| Segment { length: u32_of(call.len()), ..NOWHERE }).await
}

pub(super) async fn read_beyond(bench: &mut Bench<'_>) -> Outcome {
    read_from(bench, async |_, endpoint, call| {
        let window = endpoint.readable(call);
        Segment { length: window.length + 4096, ..window }
    })
    .await
}

pub(super) async fn read_revoked(bench: &mut Bench<'_>) -> Outcome {
    read_from(bench, async |bench, endpoint, call| {
        let window = endpoint.readable(call);
        endpoint.take_back(&window, bench.limit()).await;
        window
    })
    .await
}

pub(super) async fn read_write_only(bench: &mut Bench<'_>) -> Outcome {
    read_from(bench, async |_, endpoint, call| endpoint.writable(call.len(), FILL)).await
}

/// Repeats the call of a lost connection, under the same XID, on the next connection.
pub(super) async fn read_again(bench: &mut Bench<'_>) -> Outcome {
    let xid = bench.xid();
    let read = vec![ReadSegment::new(0, NOWHERE)];
    let bytes = message(xid, CREDITS, RDMA_NOMSG, ChunkLists { read, ..ChunkLists::default() }, &[]);
    let case = Case { label: String::new(), xid, bytes };
    let (mut endpoint, _) = bench.ready().await?;
    provoke(bench, &mut endpoint, &case, LOST, &mut Seen::default()).await?;
    endpoint.close().await;
    let (endpoint, _) = bench.ready().await?;
    let allowed = Allowed { pass: &[Kind::ErrChunk], differs: &[Kind::Closed] };
    let (seen, endpoint) = one(bench, endpoint, case, allowed).await?;
    endpoint.close().await;
    seen
}

/// Returns an NFS READ of `count` bytes with these lists, as a case.
fn nfs_read(bench: &mut Bench<'_>, file: &Bytes, count: usize, lists: ChunkLists) -> Case {
    let xid = bench.xid();
    let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), file, 0, count).finish();
    Case { label: String::new(), xid, bytes: message(xid, CREDITS, RDMA_MSG, lists, &call) }
}

fn write_list(segments: Vec<Segment>) -> ChunkLists {
    ChunkLists { write: vec![WriteChunk { segments }], ..ChunkLists::default() }
}

/// Makes a READ of 2000 bytes whose Write chunk is this segment.
async fn write_to(
    bench: &mut Bench<'_>,
    segment: impl AsyncFnOnce(&mut Bench<'_>, &mut Endpoint) -> Segment,
) -> Outcome {
    let scratch = bench.scratch().await?;
    let (mut endpoint, _) = bench.ready().await?;
    let segment = segment(bench, &mut endpoint).await;
    let case = nfs_read(bench, &scratch.source, 2000, write_list(vec![segment]));
    let (seen, endpoint) = one(bench, endpoint, case, LOST).await?;
    endpoint.close().await;
    seen
}

pub(super) async fn write_wrong_key(bench: &mut Bench<'_>) -> Outcome {
    write_to(bench, async |_, _| Segment { length: 2000, ..NOWHERE }).await
}

pub(super) async fn write_beyond(bench: &mut Bench<'_>) -> Outcome {
    write_to(bench, async |_, endpoint| Segment { length: 4000, ..endpoint.writable(1000, FILL) }).await
}

pub(super) async fn write_revoked(bench: &mut Bench<'_>) -> Outcome {
    write_to(bench, async |bench, endpoint| {
        let window = endpoint.writable(2000, FILL);
        endpoint.take_back(&window, bench.limit()).await;
        window
    })
    .await
}

pub(super) async fn write_read_only(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let (mut endpoint, _) = bench.ready().await?;
    let mine = pattern(7, 2000);
    let window = endpoint.readable(mine.clone());
    let case = nfs_read(bench, &scratch.source, 2000, write_list(vec![window]));
    let (seen, mut endpoint) = one(bench, endpoint, case, LOST).await?;
    let after = endpoint.take_back(&window, bench.limit()).await;
    endpoint.close().await;
    match after {
        Some(after) if after != mine => Err(fail("memory that was open for reading only has changed")),
        _ => seen,
    }
}

/// Makes a READ of 2000 bytes with these lists, none of which is long enough.
async fn no_room(bench: &mut Bench<'_>, lists: impl FnOnce(&mut Endpoint) -> ChunkLists) -> Outcome {
    let scratch = bench.scratch().await?;
    let (mut endpoint, _) = bench.ready().await?;
    let lists = lists(&mut endpoint);
    let case = nfs_read(bench, &scratch.source, 2000, lists);
    let (seen, endpoint) = one(bench, endpoint, case, TOO_SMALL).await?;
    endpoint.close().await;
    seen
}

pub(super) async fn write_chunk_small(bench: &mut Bench<'_>) -> Outcome {
    no_room(bench, |endpoint| ChunkLists {
        write: vec![room(endpoint, &[500, 1000])],
        ..ChunkLists::default()
    })
    .await
}

pub(super) async fn write_chunk_no_bytes(bench: &mut Bench<'_>) -> Outcome {
    no_room(bench, |_| write_list(vec![Segment { length: 0, ..NOWHERE }; 2])).await
}

pub(super) async fn reply_chunk_small(bench: &mut Bench<'_>) -> Outcome {
    no_room(bench, |endpoint| ChunkLists {
        reply: Some(room(endpoint, &[500, 1000])),
        ..ChunkLists::default()
    })
    .await
}

pub(super) async fn no_reply_chunk(bench: &mut Bench<'_>) -> Outcome {
    no_room(bench, |_| ChunkLists::default()).await
}

/// Makes a GETATTR whose handle is in a Read chunk.
pub(super) async fn ineligible(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let (mut endpoint, _) = bench.ready().await?;
    let xid = bench.xid();
    let call = bench.nfs_rpc().call(xid, nfs::GETATTR).words(&[u32_of(scratch.source.len())]).finish();
    let segment = endpoint.readable(scratch.source.clone());
    let read = vec![ReadSegment::new(u32_of(call.len()), segment)];
    let bytes = message(xid, CREDITS, RDMA_MSG, ChunkLists { read, ..ChunkLists::default() }, &call);
    let (seen, endpoint) = one(bench, endpoint, Case { label: String::new(), xid, bytes }, REFUSE).await?;
    endpoint.close().await;
    seen
}

/// Makes a WRITE whose Read chunk is shorter or longer than its data, or stands at another item.
pub(super) async fn mismatch(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let (mut endpoint, _) = bench.ready().await?;
    let mut seen = Seen::default();
    let refuse = only(&[Kind::GarbageArguments, Kind::ErrChunk]);
    // A surplus is harmless if the server ignores it.
    let surplus = Allowed { differs: &[Kind::Success], ..refuse };
    for (label, len, back, allowed) in [
        ("4 bytes short", 1196, 0, refuse),
        ("400 bytes long", 1600, 0, surplus),
        ("12 bytes early", 1200, 12, refuse),
    ] {
        if endpoint.has_ended() {
            (endpoint, _) = bench.ready().await?;
        }
        let xid = bench.xid();
        let call = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, 1200).finish();
        let segment = endpoint.readable(pattern(xid, len));
        let read = vec![ReadSegment::new(u32_of(call.len()) - back, segment)];
        let bytes = message(xid, CREDITS, RDMA_MSG, ChunkLists { read, ..ChunkLists::default() }, &call);
        provoke(bench, &mut endpoint, &Case { label: label.into(), xid, bytes }, allowed, &mut seen).await?;
    }
    endpoint.close().await;
    bench.alive().await?;
    seen.finish()
}
