//! Credits (RFC 8166 §3.3.1, §3.3.3).

use super::bench::Bench;
use super::forms::take_replies;
use crate::endpoint::Next;
use crate::message::{RDMA_MSG, Reaction, RpcEnd, answer, message};
use crate::report::{Outcome, differs, fail};
use rpcrdma_proto::wire::ChunkLists;

/// Maximum number of calls that a row keeps in flight: the tester has a Receive for each.
const MOST_IN_FLIGHT: u32 = 64;
/// Number of calls beyond any grant.
const FLOOD: u32 = 400;

pub(super) async fn first_flight(bench: &mut Bench<'_>) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let grant = bench.null(&mut endpoint).await?;
    endpoint.close().await;
    Ok(format!("the first reply grants {grant}"))
}

/// Requests this many credits, three times.
async fn request(bench: &mut Bench<'_>, credit: u32) -> Outcome {
    let mut endpoint = bench.connect().await?;
    let mut grants = Vec::new();
    for _ in 0..3 {
        let (xid, message) = bench.null_message(credit);
        endpoint.send(message);
        grants.push(take_replies(bench, &mut endpoint, vec![xid]).await?);
    }
    endpoint.close().await;
    bench.alive().await?;
    grants.dedup();
    Ok(format!("grants {grants:?}"))
}

pub(super) async fn request_zero(bench: &mut Bench<'_>) -> Outcome {
    request(bench, 0).await
}

pub(super) async fn request_one(bench: &mut Bench<'_>) -> Outcome {
    request(bench, 1).await
}

pub(super) async fn request_all(bench: &mut Bench<'_>) -> Outcome {
    request(bench, u32::MAX).await
}

pub(super) async fn up_to_the_grant(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, mut grant) = bench.ready().await?;
    for _ in 0..3 {
        let mut xids = Vec::new();
        for _ in 0..grant.min(MOST_IN_FLIGHT) {
            let (xid, message) = bench.null_message(MOST_IN_FLIGHT);
            endpoint.send(message);
            xids.push(xid);
        }
        let sent = xids.len();
        grant = take_replies(bench, &mut endpoint, xids)
            .await
            .map_err(|wrong| fail(format!("{sent} calls at once within the grant: {}", wrong.seen)))?;
    }
    endpoint.close().await;
    Ok(format!("three rounds of all calls at once, the last grant is {grant}"))
}

/// Makes many more calls at once than granted. The text does not say that a call may be lost on a connection that stays.
pub(super) async fn abuse(bench: &mut Bench<'_>) -> Outcome {
    let (mut endpoint, grant) = bench.ready().await?;
    let mut waiting = Vec::new();
    let count = grant.saturating_add(FLOOD).min(900);
    endpoint.add_receives(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        let xid = bench.xid();
        let call = bench.null_rpc().call(xid, 0).finish();
        endpoint.send(message(xid, grant, RDMA_MSG, ChunkLists::default(), &call));
        waiting.push(xid);
    }
    let sent = waiting.len();
    let mut answered = 0;
    let seen = loop {
        match endpoint.next(bench.limit()).await {
            Next::Closed(_) => break Ok(format!("connection closed after {answered} of {sent} replies")),
            Next::Silence => {
                let left = sent - answered;
                break Err(differs(format!(
                    "{left} of {sent} calls are never answered, the connection stays"
                )));
            }
            Next::Message(arrived) => {
                let Some(at) = waiting.iter().position(|xid| crate::message::is_for(&arrived.bytes, *xid))
                else {
                    return Err(fail("a message for an XID that no call has"));
                };
                let reaction = answer(&arrived.bytes, waiting.swap_remove(at)).reaction;
                if !matches!(reaction, Reaction::Reply(RpcEnd::Success) | Reaction::ErrChunk) {
                    return Err(fail(reaction.to_string()));
                }
                answered += 1;
                if waiting.is_empty() {
                    break Ok(format!("all {sent} calls answered"));
                }
            }
        }
    };
    endpoint.close().await;
    bench.alive().await?;
    seen
}
