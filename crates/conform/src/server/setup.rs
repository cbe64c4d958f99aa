//! Connection set-up: private data and remote invalidation (RFC 8797), and Receives (RFC 8166 §3.3.2).

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::ChunkLists;

use super::bench::{Bench, CREDITS, Call, Scratch, success};
use super::forms::{room, windows};
use super::keys::TOO_SMALL;
use crate::endpoint::{CANNOT_INVALIDATE, Next};
use crate::message::{RDMA_MSG, Reaction, RpcEnd, answer, message};
use crate::nfs;
use crate::report::{Outcome, Wrong, differs, fail, not_applicable};

/// RFC 8797 §4, without the version.
const IDENTIFIER: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];

/// Makes two NULL calls on a connection with this private data.
async fn served(bench: &mut Bench<'_>, private_data: Bytes) -> Outcome {
    let mut endpoint = bench.connect_with(private_data.into()).await?;
    let theirs = PrivateData::find(&endpoint.peer_private_data());
    bench.null(&mut endpoint).await?;
    bench.null(&mut endpoint).await?;
    endpoint.close().await;
    Ok(match theirs {
        None => "served; the server announces nothing".into(),
        Some(PrivateData { remote_invalidation, send_size, receive_size }) => format!(
            "served; the server says R = {}, sends {send_size}, receives {receive_size}",
            u8::from(remote_invalidation)
        ),
    })
}

pub(super) async fn absent(bench: &mut Bench<'_>) -> Outcome {
    served(bench, Bytes::new()).await
}

pub(super) async fn present(bench: &mut Bench<'_>) -> Outcome {
    served(bench, PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 }.encode())
        .await
}

pub(super) async fn extremes(bench: &mut Bench<'_>) -> Outcome {
    served(bench, PrivateData { remote_invalidation: true, send_size: 262_144, receive_size: 1024 }.encode())
        .await?;
    served(bench, PrivateData { remote_invalidation: true, send_size: 1024, receive_size: 262_144 }.encode())
        .await
}

pub(super) async fn malformed(bench: &mut Bench<'_>) -> Outcome {
    for cut in 1..8 {
        let whole = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 }.encode();
        served(bench, whole.slice(..cut))
            .await
            .map_err(|wrong| fail(format!("{cut} bytes: {}", wrong.seen)))?;
    }
    served(bench, Bytes::from_static(&[0xff; 56])).await?;
    let cut =
        PrivateData { remote_invalidation: false, send_size: 4096, receive_size: 4096 }.encode().slice(..7);
    Ok(format!("served with 1 to 7 bytes of it, and with other data; {}", believed(bench, cut, false).await?))
}

/// With an export: checks whether the server sends 2000 bytes inline to a client with this private data, as `expected`.
async fn believed(bench: &mut Bench<'_>, private_data: Bytes, expected: bool) -> Outcome {
    let Ok(scratch) = bench.scratch().await else {
        return Ok("without an export no more can be seen".into());
    };
    if !expected
        && matches!(long_reply(bench, &scratch, Bytes::new()).await?.0, Reaction::Reply(RpcEnd::Success))
    {
        // The row reply-chunk-missing reports that fault.
        return Ok("no more can be seen: replies beyond 1024 bytes come inline without any of it, too".into());
    }
    let (reaction, theirs) = long_reply(bench, &scratch, private_data).await?;
    // As in the row reply-chunk-missing.
    let refused = TOO_SMALL.pass.iter().any(|kind| reaction.is(*kind));
    match (&reaction, expected && theirs.send_size >= 2048) {
        (Reaction::Reply(RpcEnd::Success), true) => Ok("a reply beyond 1024 bytes comes inline".into()),
        (_, false) if refused => Ok("no reply beyond 1024 bytes is sent".into()),
        // RFC 8797 §5.2 describes this treatment, without a MUST.
        (_, true) if refused => Err(differs(format!("not found: {reaction}"))),
        _ => Err(fail(format!("asked for a reply beyond 1024 bytes, without a Reply chunk: {reaction}"))),
    }
}

/// Requests a reply beyond 1024 bytes, without a Reply chunk, on a connection with this private data. Returns the
/// reaction, and the server's private data.
async fn long_reply(
    bench: &mut Bench<'_>,
    scratch: &Scratch,
    private_data: Bytes,
) -> Result<(Reaction, PrivateData), Wrong> {
    let mut endpoint = bench.connect_with(private_data.into()).await?;
    let theirs = PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    let xid = bench.xid();
    let call = nfs::read(bench.nfs_rpc().call(xid, nfs::READ), &scratch.source, 0, 1800).finish();
    endpoint.send(message(xid, CREDITS, RDMA_MSG, ChunkLists::default(), &call));
    let reaction = bench.observe(&mut endpoint, xid, bench.limit()).await.reaction;
    endpoint.close().await;
    Ok((reaction, theirs))
}

pub(super) async fn unknown_version(bench: &mut Bench<'_>) -> Outcome {
    for version in [0, 2, 255] {
        let data = [&IDENTIFIER[..], &[version, 1, 3, 3]].concat();
        served(bench, data.into())
            .await
            .map_err(|wrong| fail(format!("version {version}: {}", wrong.seen)))?;
    }
    let other = [&IDENTIFIER[..], &[2, 1, 3, 3]].concat();
    Ok(format!("served under versions 0, 2 and 255; {}", believed(bench, other.into(), false).await?))
}

/// Puts the private data behind other data, at any offset (RFC 8797 §5.2).
pub(super) async fn embedded(bench: &mut Bench<'_>) -> Outcome {
    let ours = PrivateData { remote_invalidation: false, send_size: 4096, receive_size: 4096 }.encode();
    for offset in [1, 3, 4, 17] {
        let data = [&vec![0xf6; offset], &ours[..]].concat();
        served(bench, data.into())
            .await
            .map_err(|wrong| fail(format!("at offset {offset}: {}", wrong.seen)))?;
    }
    let data = [&[0xf6; 5][..], &ours[..]].concat();
    Ok(format!("served with it at offsets 1, 3, 4 and 17; {}", believed(bench, data.into(), true).await?))
}

/// Checks that a reply invalidates only a window of its call, and returns that window.
fn of_its_call(invalidated: Option<u32>, mine: &[u32]) -> Result<Option<u32>, Wrong> {
    match invalidated {
        Some(seen) if !mine.contains(&seen) => {
            Err(fail(format!("the reply invalidates {seen:#010x}, which is not of its call")))
        }
        invalidated => Ok(invalidated),
    }
}

/// Makes calls with windows of several kinds. Returns the window that a reply invalidates.
async fn invalidated(bench: &mut Bench<'_>, announced: bool) -> Result<(Option<u32>, bool), Wrong> {
    let mut endpoint = bench.connect_announcing(announced).await?;
    let theirs = PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    // A window of another call. It stays open unless the reply to that call closes it, so it must never be invalidated
    // here.
    let other = room(&mut endpoint, &[600]);
    let mine: Vec<u32> = other.segments.iter().map(|segment| segment.handle).collect();
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    let lists = ChunkLists { reply: Some(other), ..ChunkLists::default() };
    endpoint.send(message(xid, CREDITS, RDMA_MSG, lists, &call));
    let mut key = match endpoint.next(bench.limit()).await {
        Next::Message(arrived) => of_its_call(arrived.invalidated, &mine)?,
        Next::Silence => return Err(fail("no reply to a call with a Reply chunk")),
        Next::Closed(reason) => return Err(fail(format!("the connection ended: {reason}"))),
    };
    for _ in 0..4 {
        let xid = bench.xid();
        let call = bench.null_rpc().call(xid, 0).finish();
        let read = windows(&mut endpoint, 0, &call, &[12]);
        let reply = Some(room(&mut endpoint, &[600]));
        let lists = ChunkLists { read, reply, ..ChunkLists::default() };
        let mine: Vec<u32> = lists.handles().collect();
        let reply =
            success(bench.call(&mut endpoint, Call { xid, lists, credit: CREDITS, payload: None }).await?)?;
        key = of_its_call(reply.invalidated, &mine)?.or(key);
    }
    endpoint.close().await;
    Ok((key, theirs.remote_invalidation))
}

pub(super) async fn invalidation_announced(bench: &mut Bench<'_>) -> Outcome {
    let endpoint = bench.connect().await?;
    let able = endpoint.invalidates();
    endpoint.close().await;
    if !able {
        return Err(not_applicable(CANNOT_INVALIDATE));
    }
    match invalidated(bench, true).await? {
        (Some(_), true) => Ok("a window of the call is invalidated".into()),
        (None, theirs) => Ok(format!("plain Send; the server says R = {}", u8::from(theirs))),
        // RFC 8797 §4.1: both sides must have set R.
        (Some(_), false) => Err(fail("Send with Invalidate although the server says R = 0")),
    }
}

pub(super) async fn invalidation_not_announced(bench: &mut Bench<'_>) -> Outcome {
    match invalidated(bench, false).await? {
        (None, _) => Ok("plain Send".into()),
        (Some(_), _) => Err(fail("Send with Invalidate although the tester says R = 0")),
    }
}

/// Sends more bytes than the Receive of the server holds. The server must accept only the announced length.
pub(super) async fn over_the_receive(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let theirs = PrivateData::find(&endpoint.peer_private_data()).unwrap_or_default();
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).bytes(&vec![0; theirs.receive_size]).finish();
    endpoint.send(message(xid, CREDITS, RDMA_MSG, ChunkLists::default(), &call));
    let seen = match endpoint.next(bench.limit()).await {
        Next::Closed(_) => "connection closed".to_owned(),
        Next::Silence => return Err(fail("neither an answer nor the end of the connection")),
        Next::Message(arrived) => match answer(&arrived.bytes, xid).reaction {
            reaction @ (Reaction::Reply(RpcEnd::GarbageArguments | RpcEnd::Success) | Reaction::ErrChunk) => {
                reaction.to_string()
            }
            reaction => return Err(fail(reaction.to_string())),
        },
    };
    endpoint.close().await;
    bench.alive().await?;
    Ok(seen)
}
