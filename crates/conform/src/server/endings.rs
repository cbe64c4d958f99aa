//! Connections that end in the middle of a step, and clients that say nothing. The server must serve on.

use rpcrdma_proto::wire::{ChunkLists, ReadSegment};

use super::bench::{Bench, CREDITS, pattern};
use super::forms::room;
use crate::endpoint::Endpoint;
use crate::message::{RDMA_MSG, RDMA_NOMSG, message, u32_of};
use crate::nfs;
use crate::report::{Outcome, Wrong};

/// Connections that a row opens at once.
const MANY: usize = 8;
/// Octets of a chunk that takes more than one segment of any link.
const LONG: usize = 200_000;

/// A call whose Position-Zero chunk is long: NULL with more behind it than it should have.
fn long_call(bench: &mut Bench<'_>, endpoint: &mut Endpoint) {
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).octets(&pattern(1, LONG)).finish();
    let segment = endpoint.readable(call);
    let lists = ChunkLists { read: vec![ReadSegment::new(0, segment)], ..ChunkLists::default() };
    endpoint.send(message(xid, CREDITS, RDMA_NOMSG, lists, &[]));
}

async fn served(bench: &mut Bench<'_>) -> Outcome {
    bench.alive().await?;
    Ok("a new connection is served".into())
}

pub(super) async fn before_a_call(bench: &mut Bench<'_>) -> Outcome {
    for _ in 0..MANY {
        bench.connect().await?.cut().await;
    }
    served(bench).await
}

pub(super) async fn after_a_call(bench: &mut Bench<'_>) -> Outcome {
    for calls in 1..=MANY {
        let (mut endpoint, grant) = bench.ready().await?;
        for _ in 0..calls.min(usize::try_from(grant).unwrap_or(usize::MAX)) {
            let (_, message) = bench.null_message(CREDITS);
            endpoint.send(message);
        }
        endpoint.cut().await;
    }
    served(bench).await
}

pub(super) async fn in_order(bench: &mut Bench<'_>) -> Outcome {
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        let (_, message) = bench.null_message(CREDITS);
        endpoint.send(message);
        endpoint.close().await;
    }
    served(bench).await
}

pub(super) async fn during_read_chunk(bench: &mut Bench<'_>) -> Outcome {
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        long_call(bench, &mut endpoint);
        endpoint.cut().await;
    }
    served(bench).await
}

/// READs and WRITEs with chunks, cut off as soon as they have left.
pub(super) async fn during_write_chunk(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        let xid = bench.xid();
        let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), &scratch.source, 0, 8000).finish();
        let lists = ChunkLists { write: vec![room(&mut endpoint, &[4000, 4000])], ..ChunkLists::default() };
        endpoint.send(message(xid, CREDITS, RDMA_MSG, lists, &call));
        let xid = bench.xid();
        let call = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, LONG).finish();
        let segment = endpoint.readable(pattern(xid, LONG));
        let read = vec![ReadSegment::new(u32_of(call.len()), segment)];
        endpoint.send(message(xid, CREDITS, RDMA_MSG, ChunkLists { read, ..ChunkLists::default() }, &call));
        endpoint.cut().await;
    }
    served(bench).await
}

/// Connected, and not a word; others are served meanwhile and afterwards.
pub(super) async fn silent(bench: &mut Bench<'_>) -> Outcome {
    let mut silent = Vec::new();
    for _ in 0..MANY {
        silent.push(bench.connect().await?);
    }
    bench.alive().await?;
    // They may have been closed; who is still there is served.
    let mut there = 0;
    for mut endpoint in silent {
        let answered: Result<u32, Wrong> = bench.null(&mut endpoint).await;
        match answered {
            Ok(_) => there += 1,
            Err(_) if endpoint.has_ended() => {}
            Err(wrong) => return Err(wrong),
        }
        endpoint.close().await;
    }
    Ok(format!("{there} of {MANY} silent connections are served when they speak, a new one meanwhile"))
}

/// RDMA Reads that are never answered: the tester does not drive those connections.
pub(super) async fn unanswered_read(bench: &mut Bench<'_>) -> Outcome {
    let mut stuck = Vec::new();
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        long_call(bench, &mut endpoint);
        endpoint.push().await;
        stuck.push(endpoint);
    }
    bench.alive().await?;
    drop(stuck);
    served(bench).await
}
