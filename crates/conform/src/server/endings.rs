//! Connections that end in the middle of a step, and silent clients. The server must continue to serve others.

use rpcrdma_proto::wire::{ChunkLists, ReadSegment};
use rpcrdma_verbs::Counters;

use super::bench::{Bench, CREDITS, pattern};
use super::forms::room;
use crate::endpoint::Endpoint;
use crate::message::{RDMA_MSG, RDMA_NOMSG, message, u32_of};
use crate::nfs;
use crate::report::{Outcome, Wrong, not_applicable};

/// Number of connections that a row opens at once.
const MANY: usize = 8;
/// Length of a chunk that takes more than one segment of any link, in bytes.
const LONG: usize = 200_000;
/// Maximum number of calls of a connection whose RDMA Reads are not answered.
const MOST_CALLS: u32 = 16;

/// Sends a call whose Position-Zero chunk is long: NULL with superfluous bytes behind it.
fn long_call(bench: &mut Bench<'_>, endpoint: &mut Endpoint) {
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).bytes(&pattern(1, LONG)).finish();
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

/// Waits for the first segment of the server; without a message it is a Read Request.
async fn read_requested(bench: &Bench<'_>, endpoint: &mut Endpoint) -> bool {
    let before = endpoint.counters();
    endpoint.shows(|now| now.segments_received > before.segments_received, bench.limit()).await
}

/// Returns the result of a row in which `count` of [`MANY`] connections reached the step of the row.
async fn served_if(bench: &mut Bench<'_>, count: usize, what: &str) -> Outcome {
    bench.alive().await?;
    match count {
        0 => Err(not_applicable(format!("no {what} was observed in progress"))),
        _ => Ok(format!("{what} under way on {count} of {MANY} connections; a new one is served")),
    }
}

pub(super) async fn during_read_chunk(bench: &mut Bench<'_>) -> Outcome {
    let mut count = 0;
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        long_call(bench, &mut endpoint);
        count += usize::from(read_requested(bench, &mut endpoint).await);
        endpoint.abort().await;
    }
    served_if(bench, count, "RDMA Read").await
}

/// Makes READs and WRITEs with chunks, and cuts them off as soon as the first data has arrived.
pub(super) async fn during_write_chunk(bench: &mut Bench<'_>) -> Outcome {
    let scratch = bench.scratch().await?;
    let mut count = 0;
    for _ in 0..MANY {
        let (mut endpoint, _) = bench.ready().await?;
        let before = endpoint.counters();
        let xid = bench.xid();
        let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), &scratch.source, 0, 8000).finish();
        let lists = ChunkLists { write: vec![room(&mut endpoint, &[4000, 4000])], ..ChunkLists::default() };
        endpoint.send(message(xid, CREDITS, RDMA_MSG, lists, &call));
        let xid = bench.xid();
        let call = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, LONG).finish();
        let segment = endpoint.readable(pattern(xid, LONG));
        let read = vec![ReadSegment::new(u32_of(call.len()), segment)];
        endpoint.send(message(xid, CREDITS, RDMA_MSG, ChunkLists { read, ..ChunkLists::default() }, &call));
        let written = |now: &Counters| now.tagged_bytes_received > before.tagged_bytes_received;
        count += usize::from(endpoint.shows(written, bench.limit()).await);
        endpoint.abort().await;
    }
    served_if(bench, count, "RDMA Write").await
}

/// Opens connections and sends nothing; others are served meanwhile and afterwards.
pub(super) async fn silent(bench: &mut Bench<'_>) -> Outcome {
    let mut silent = Vec::new();
    for _ in 0..MANY {
        silent.push(bench.connect().await?);
    }
    bench.alive().await?;
    // The server may have closed some; it must serve the remaining ones.
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

/// Leaves RDMA Reads unanswered: after the first request the tester does not drive those connections. It makes enough
/// calls that the link cannot take all answers at once.
pub(super) async fn unanswered_read(bench: &mut Bench<'_>) -> Outcome {
    let mut stuck = Vec::new();
    let mut count = 0;
    for _ in 0..MANY {
        let (mut endpoint, grant) = bench.ready().await?;
        let before = endpoint.counters();
        let calls = grant.min(MOST_CALLS);
        for _ in 0..calls {
            long_call(bench, &mut endpoint);
        }
        let asked = read_requested(bench, &mut endpoint).await;
        let left = endpoint.counters().link_bytes_sent - before.link_bytes_sent;
        let all = u64::from(calls) * u64::try_from(LONG).unwrap_or(u64::MAX);
        count += usize::from(asked && left < all);
        stuck.push(endpoint);
    }
    let outcome = served_if(bench, count, "RDMA Read").await;
    drop(stuck);
    bench.alive().await?;
    outcome
}
