//! Replies that no server sends: what a client has to discard (RFC 8166 §4.5), what ends a call, and credits.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::ChunkLists;
use tokio::time::Instant;

use super::serve::{accepted, reply};
use super::stage::{Call, Event, GRANT, Stage, unasked};
use crate::message::{
    ERR_CHUNK, ERR_VERS, LEAST_HEADER, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, Words, message,
};
use crate::report::{Outcome, Wrong, differs, fail};

/// A good reply to a NULL call, in whatever program.
fn null_reply(xid: u32) -> Words {
    accepted(xid, 0)
}

/// Pauses between messages of one row, in times of silence.
const PAUSES: u32 = 20;
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Whether the client keeps quiet: no error, no other call, for the time of silence.
async fn quiet(stage: &mut Stage, call: &Call, label: &str) -> Result<(), Wrong> {
    let silence = stage.silence;
    quiet_for(stage, call, label, silence).await
}

async fn quiet_for(stage: &mut Stage, call: &Call, label: &str, time: Duration) -> Result<(), Wrong> {
    let deadline = Instant::now() + time;
    loop {
        match stage.event(deadline.saturating_duration_since(Instant::now())).await? {
            Event::Nothing => return Ok(()),
            Event::Connected => {}
            Event::Other(octets) => return Err(fail(format!("{label}: {}", unasked(&octets)))),
            Event::Ended(connection) if connection == call.connection => {
                // Recovery by a new connection is allowed, silence is what the text says.
                let text = stage.goes_on(call).await?;
                return Err(differs(format!("{label}: the client closes the connection; {text}")));
            }
            Event::Ended(_) => {}
            // Another connection is another client's, or another thread's.
            Event::Call(next) if next.connection != call.connection => stage.serve(&next).await,
            Event::Call(next) => {
                stage.put_back(next);
                return Err(fail(format!(
                    "{label}: taken for the reply, or the call is given up: there is another call"
                )));
            }
        }
    }
}

/// Sends what has to be discarded, then the good reply, which still counts.
async fn discarded(stage: &mut Stage, bad: impl Fn(&Call) -> Vec<(String, Bytes)>) -> Outcome {
    let call = stage.call().await?;
    let messages = bad(&call);
    let count = messages.len();
    let labels: Vec<String> = messages.iter().map(|(label, _)| label.clone()).collect();
    for (label, octets) in messages {
        stage.send(&call, octets).await?;
        // A client has Receives for the replies that it waits for: each is given the time to be posted again.
        if count > 1 {
            let pause = (stage.silence / PAUSES).max(LEAST_PAUSE);
            quiet_for(stage, &call, &label, pause).await?;
        }
    }
    let label = if count == 1 { labels.concat() } else { format!("{count} messages") };
    quiet(stage, &call, &label).await?;
    stage.serve(&call).await;
    let text = stage.goes_on(&call).await?;
    Ok(format!("discarded; after the good reply {text}"))
}

fn one(label: &str, octets: Bytes) -> Vec<(String, Bytes)> {
    vec![(label.into(), octets)]
}

/// A message of Version One with these words behind the fixed part.
fn raw(xid: u32, procedure: u32, words: &[u32]) -> Words {
    Words::new().words(&[xid, 1, GRANT, procedure]).words(words)
}

/// The same with a good reply behind it.
fn raw_reply(xid: u32, procedure: u32, words: &[u32]) -> Bytes {
    raw(xid, procedure, words).octets(&null_reply(xid).finish()).finish()
}

pub(super) async fn inline(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for _ in 0..3 {
        let call = stage.call().await?;
        stage.serve(&call).await;
        text = stage.goes_on(&call).await?;
    }
    Ok(text)
}

/// Holds the reply; no more calls than granted may come.
async fn within(stage: &mut Stage, call: &Call, grant: usize) -> Result<(), Wrong> {
    let deadline = Instant::now() + stage.silence;
    let mut held = vec![call.clone()];
    let wrong = loop {
        match stage.event(deadline.saturating_duration_since(Instant::now())).await? {
            Event::Call(next) if next.connection == call.connection => {
                held.push(next);
                if held.len() > grant {
                    break Some(fail(format!("{} calls in flight, {grant} were granted", held.len())));
                }
            }
            Event::Call(next) => stage.serve(&next).await,
            Event::Nothing => break None,
            _ => {}
        }
    };
    for call in &held {
        stage.serve(call).await;
    }
    wrong.map_or(Ok(()), Err)
}

pub(super) async fn first_flight(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    stage.serve(&call).await;
    stage.clear().await;
    let first = stage.call().await?;
    within(stage, &first, 1).await?;
    let text = stage.goes_on(&first).await?;
    Ok(format!("one call until its reply; {text}"))
}

/// Answers a call with this grant.
async fn granted(stage: &mut Stage, grant: u32) -> Outcome {
    let call = stage.call().await?;
    let reply = reply(&call);
    stage.send_reply(&call, reply, grant).await;
    stage.goes_on(&call).await
}

pub(super) async fn grant_one(stage: &mut Stage) -> Outcome {
    granted(stage, 1).await?;
    let call = stage.call().await?;
    let reply = reply(&call);
    stage.send_reply(&call, reply, 1).await;
    let next = stage.call().await?;
    if next.connection != call.connection {
        stage.put_back(next);
        return Ok("the next call on another connection".into());
    }
    within(stage, &next, 1).await?;
    Ok("one call at a time".into())
}

pub(super) async fn grant_zero(stage: &mut Stage) -> Outcome {
    let text = granted(stage, 0).await?;
    granted(stage, GRANT).await?;
    Ok(text)
}

pub(super) async fn grant_falls(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for grant in [32, 16, 4, 2, 1, 32] {
        text = granted(stage, grant).await?;
    }
    Ok(text)
}

pub(super) async fn grant_all(stage: &mut Stage) -> Outcome {
    granted(stage, u32::MAX).await?;
    granted(stage, GRANT).await
}

/// Answers with octets that end the call.
async fn ended(stage: &mut Stage, octets: impl Fn(&Call) -> Bytes) -> Outcome {
    let call = stage.call().await?;
    let octets = octets(&call);
    stage.send(&call, octets).await?;
    stage.goes_on(&call).await
}

pub(super) async fn err_chunk(stage: &mut Stage) -> Outcome {
    ended(stage, |call| raw(call.xid, RDMA_ERROR, &[ERR_CHUNK]).finish()).await
}

pub(super) async fn err_vers(stage: &mut Stage) -> Outcome {
    ended(stage, |call| raw(call.xid, RDMA_ERROR, &[ERR_VERS, 2, 9]).finish()).await
}

/// RFC 5666 §4.2 let the version be any that the sender speaks.
pub(super) async fn err_vers_other(stage: &mut Stage) -> Outcome {
    ended(stage, |call| Words::new().words(&[call.xid, 2, GRANT, RDMA_ERROR, ERR_VERS, 2, 2]).finish()).await
}

pub(super) async fn rpc_refused(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for status in 1..=5 {
        // PROG_MISMATCH has two words more.
        let more: &[u32] = if status == 2 { &[1, 2] } else { &[] };
        let reply = |call: &Call| {
            let payload = accepted(call.xid, status).words(more).finish();
            message(call.xid, GRANT, RDMA_MSG, ChunkLists::default(), &payload)
        };
        text = ended(stage, reply)
            .await
            .map_err(|wrong| fail(format!("accept_stat {status}: {}", wrong.seen)))?;
    }
    Ok(text)
}

pub(super) async fn error_undecodable(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        vec![
            ("unknown code".into(), raw(call.xid, RDMA_ERROR, &[99, 0, 0]).finish()),
            ("no code".into(), raw(call.xid, RDMA_ERROR, &[]).finish()),
            ("ERR_VERS cut off".into(), raw(call.xid, RDMA_ERROR, &[ERR_VERS, 1]).finish()),
        ]
    })
    .await
}

/// An XID that no call has.
const fn other(xid: u32) -> u32 {
    xid.wrapping_add(0x4000_0000)
}

pub(super) async fn error_other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("ERR_CHUNK", raw(other(call.xid), RDMA_ERROR, &[ERR_CHUNK]).finish())).await
}

pub(super) async fn reply_other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("another XID", raw_reply(other(call.xid), RDMA_MSG, &[0, 0, 0]))).await
}

/// RFC 8166 §4.2.1 lets a receiver rely on either.
pub(super) async fn xid_mismatch(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    let octets = raw(call.xid, RDMA_MSG, &[0, 0, 0]).octets(&null_reply(other(call.xid)).finish()).finish();
    stage.send(&call, octets).await?;
    let quiet = quiet(stage, &call, "").await.is_ok();
    stage.serve(&call).await;
    let text = stage.goes_on(&call).await?;
    Ok(format!("{}; {text}", if quiet { "discarded" } else { "not discarded" }))
}

pub(super) async fn msgp(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("RDMA_MSGP", raw_reply(call.xid, RDMA_MSGP, &[4096, 1024, 0, 0, 0]))).await
}

pub(super) async fn done(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("RDMA_DONE", raw(call.xid, RDMA_DONE, &[]).finish())).await
}

pub(super) async fn unknown_proc(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("rdma_proc 77", raw_reply(call.xid, 77, &[0, 0, 0]))).await
}

pub(super) async fn short(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        let whole = raw_reply(call.xid, RDMA_MSG, &[0, 0, 0]);
        (0..LEAST_HEADER).map(|len| (format!("{len} octets"), whole.slice(..len))).collect()
    })
    .await
}

pub(super) async fn cut(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        let write = raw(call.xid, RDMA_MSG, &[0, 1, 1, 7, 8, 0, 0, 0, 0]).finish();
        let reply = raw(call.xid, RDMA_MSG, &[0, 0, 1, 1, 7, 8, 0, 0]).finish();
        let cuts = |whole: Bytes| {
            (LEAST_HEADER..whole.len())
                .step_by(4)
                .map(move |len| (format!("{len} octets"), whole.slice(..len)))
        };
        cuts(write).chain(cuts(reply)).collect()
    })
    .await
}

pub(super) async fn discriminators(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
            .map(|words| (format!("{words:?}"), raw_reply(call.xid, RDMA_MSG, &words)))
            .into()
    })
    .await
}

pub(super) async fn counts(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        [9, u32::MAX]
            .map(|count| (format!("{count} segments"), raw_reply(call.xid, RDMA_MSG, &[0, 1, count])))
            .into()
    })
    .await
}

pub(super) async fn read_list(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("a Read list", raw_reply(call.xid, RDMA_MSG, &[1, 4, 7, 8, 0, 0, 0, 0, 0])))
        .await
}

pub(super) async fn version(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| {
        let head = Words::new().words(&[call.xid, 9, GRANT, RDMA_MSG, 0, 0, 0]);
        one("rdma_vers 9", head.octets(&null_reply(call.xid).finish()).finish())
    })
    .await
}

/// An RPC message that is cut off under a good header: the RPC layer may fail the call, or wait.
pub(super) async fn rpc_cut(stage: &mut Stage) -> Outcome {
    let mut texts = Vec::new();
    for len in [0, 4, 8, 20] {
        let call = stage.call().await?;
        let whole = raw_reply(call.xid, RDMA_MSG, &[0, 0, 0]);
        stage.send(&call, whole.slice(..LEAST_HEADER + len)).await?;
        let quiet = quiet(stage, &call, "").await.is_ok();
        stage.serve(&call).await;
        stage.goes_on(&call).await.map_err(|wrong| fail(format!("{len} octets: {}", wrong.seen)))?;
        texts.push(if quiet { "discarded" } else { "the call fails" });
    }
    texts.dedup();
    Ok(texts.join(", "))
}

pub(super) async fn twice(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    stage.serve(&call).await;
    stage.send(&call, raw_reply(call.xid, RDMA_MSG, &[0, 0, 0])).await?;
    stage.goes_on(&call).await
}

/// A call in the reverse direction that nobody asked for (RFC 8167): any answer, or none.
pub(super) async fn reverse_call(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    let xid = other(call.xid);
    let reverse = Words::new().words(&[xid, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0]).finish();
    stage.send(&call, message(xid, 1, RDMA_MSG, ChunkLists::default(), &reverse)).await?;
    let deadline = Instant::now() + stage.silence;
    let mut seen = "nothing";
    loop {
        match stage.event(deadline.saturating_duration_since(Instant::now())).await? {
            Event::Other(_) => seen = "an answer",
            Event::Ended(connection) if connection == call.connection => {
                seen = "connection closed";
                break;
            }
            Event::Nothing => break,
            Event::Call(next) if next.connection == call.connection => {
                return Err(fail("another call before the reply to the first"));
            }
            Event::Call(next) => stage.serve(&next).await,
            _ => {}
        }
    }
    stage.serve(&call).await;
    let text = stage.goes_on(&call).await?;
    Ok(format!("{seen}; {text}"))
}
