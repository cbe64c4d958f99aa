//! Replies that no correct server sends: messages that a client has to discard (RFC 8166 §4.5), and errors that end a
//! call.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::ChunkLists;
use tokio::time::Instant;

use super::serve::accepted;
use super::stage::{Call, Event, ONE, Stage, unasked};
use crate::message::{
    ERR_CHUNK, ERR_VERS, LEAST_HEADER, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, Reaction, RpcEnd, Words,
    answer, message,
};
use crate::report::{Outcome, Wrong, differs, fail};

/// Returns a good reply to a NULL call of any program.
fn null_reply(xid: u32) -> Words {
    accepted(xid, 0)
}

/// Pauses between messages of one row, in units of the time of silence.
const PAUSES: u32 = 20;
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Behaviour of a client that is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Quiet,
    /// It makes its next call, which is kept for the next row.
    Another,
}

/// Watches a client for the time of silence. The client may make its next call, or stay silent.
async fn watch(stage: &mut Stage, call: &Call, label: &str, time: Duration) -> Result<Watched, Wrong> {
    let deadline = Instant::now() + time;
    loop {
        let event = stage.event(deadline.saturating_duration_since(Instant::now())).await;
        match event.map_err(|wrong| Wrong { seen: format!("{label}: {}", wrong.seen), ..wrong })? {
            Event::Nothing => return Ok(Watched::Quiet),
            Event::Connected => {}
            Event::Other(bytes) => return Err(fail(format!("{label}: {}", unasked(&bytes)))),
            Event::Ended(connection) if connection == call.connection => {
                // The text requires silence; recovery by a new connection is also allowed.
                let text = stage.goes_on(call).await?;
                return Err(differs(format!("{label}: the client closes the connection; {text}")));
            }
            Event::Ended(_) => {}
            // A call on another connection comes from another client or thread.
            Event::Call(next) if next.connection != call.connection => stage.serve(&next).await,
            Event::Call(next) => {
                stage.put_back(next);
                return Ok(Watched::Another);
            }
        }
    }
}

/// Expects the client to stay silent: no error, no other call. It has one credit, so another call means that this call
/// was completed.
pub(super) async fn quiet(stage: &mut Stage, call: &Call, label: &str, time: Duration) -> Result<(), Wrong> {
    match watch(stage, call, label, time).await? {
        Watched::Quiet => Ok(()),
        Watched::Another => Err(fail(format!("{label}: the client considers the call completed"))),
    }
}

/// Sends messages that the client has to discard, then the good reply, which still counts.
async fn discarded(stage: &mut Stage, bad: impl Fn(&Call) -> Vec<(String, Bytes)>) -> Outcome {
    let call = stage.call().await?;
    let messages = bad(&call);
    let count = messages.len();
    let labels: Vec<String> = messages.iter().map(|(label, _)| label.clone()).collect();
    for (label, bytes) in messages {
        stage.send(&call, bytes).await?;
        // A client has Receives for the replies that it waits for; it gets time to post each again.
        if count > 1 {
            let pause = (stage.silence / PAUSES).max(LEAST_PAUSE);
            quiet(stage, &call, &label, pause).await?;
        }
    }
    let label = if count == 1 { labels.concat() } else { format!("{count} messages") };
    let silence = stage.silence;
    quiet(stage, &call, &label, silence).await?;
    still_waits(stage, &call).await
}

/// Sends the good reply to a call for which messages were discarded: it still counts.
pub(super) async fn still_waits(stage: &mut Stage, call: &Call) -> Outcome {
    stage.serve(call).await;
    let text = stage.ended(call).await?;
    Ok(format!("discarded; after the good reply {text}"))
}

fn one(label: &str, bytes: Bytes) -> Vec<(String, Bytes)> {
    vec![(label.into(), bytes)]
}

/// Returns a message of Version One with these words behind the fixed part.
fn raw(xid: u32, procedure: u32, words: &[u32]) -> Words {
    Words::new().words(&[xid, 1, ONE, procedure]).words(words)
}

/// Returns such a message with a good reply behind it.
fn raw_reply(xid: u32, procedure: u32, words: &[u32]) -> Bytes {
    raw(xid, procedure, words).bytes(&null_reply(xid).finish()).finish()
}

/// Answers with bytes that end the call.
async fn ended(stage: &mut Stage, bytes: impl Fn(&Call) -> Bytes) -> Outcome {
    let call = stage.call().await?;
    let bytes = bytes(&call);
    stage.end(&call, bytes).await?;
    stage.ended(&call).await
}

pub(super) async fn err_chunk(stage: &mut Stage) -> Outcome {
    ended(stage, |call| raw(call.xid, RDMA_ERROR, &[ERR_CHUNK]).finish()).await
}

pub(super) async fn err_vers(stage: &mut Stage) -> Outcome {
    ended(stage, |call| raw(call.xid, RDMA_ERROR, &[ERR_VERS, 2, 9]).finish()).await
}

/// Answers with ERR_VERS under another version. By RFC 5666 §4.2 the version may be any that the sender speaks, by RFC
/// 8166 §4.5 only that of the call. Some clients therefore end the call, others discard the message and then see the
/// end of the connection.
pub(super) async fn err_vers_other(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    let bytes = Words::new().words(&[call.xid, 2, ONE, RDMA_ERROR, ERR_VERS, 2, 2]).finish();
    stage.end(&call, bytes).await?;
    let silence = stage.silence;
    let watched = watch(stage, &call, "ERR_VERS under rdma_vers 2", silence).await?;
    if let Some(endpoint) = stage.take(call.connection) {
        endpoint.close().await;
    }
    let text = stage.goes_on(&call).await?;
    let done = if watched == Watched::Quiet { "discarded" } else { "the call ends" };
    Ok(format!("{done}; after the end of the connection {text}"))
}

pub(super) async fn rpc_refused(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for status in 1..=5 {
        // PROG_MISMATCH has two more words.
        let more: &[u32] = if status == 2 { &[1, 2] } else { &[] };
        let reply = |call: &Call| {
            let payload = accepted(call.xid, status).words(more).finish();
            message(call.xid, ONE, RDMA_MSG, ChunkLists::default(), &payload)
        };
        text = ended(stage, reply)
            .await
            .map_err(|wrong| Wrong { seen: format!("accept_stat {status}: {}", wrong.seen), ..wrong })?;
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

/// Returns an XID that no call has.
const fn other(xid: u32) -> u32 {
    xid.wrapping_add(0x4000_0000)
}

pub(super) async fn error_other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("ERR_CHUNK", raw(other(call.xid), RDMA_ERROR, &[ERR_CHUNK]).finish())).await
}

pub(super) async fn reply_other_xid(stage: &mut Stage) -> Outcome {
    discarded(stage, |call| one("another XID", raw_reply(other(call.xid), RDMA_MSG, &[0, 0, 0]))).await
}

/// Answers with an RPC reply whose XID differs from `rdma_xid`. By RFC 8166 §4.2.1 a receiver may rely on either XID.
pub(super) async fn xid_mismatch(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    let bytes = raw(call.xid, RDMA_MSG, &[0, 0, 0]).bytes(&null_reply(other(call.xid)).finish()).finish();
    let discarded = maybe_ended(stage, &call, bytes, "two XIDs").await?;
    let text = stage.ended(&call).await?;
    Ok(format!("{}; {text}", if discarded { "discarded" } else { "not discarded" }))
}

/// Sends bytes that a client may accept as the answer or discard, then the good reply if they were discarded. Returns
/// whether they were.
async fn maybe_ended(stage: &mut Stage, call: &Call, bytes: Bytes, label: &str) -> Result<bool, Wrong> {
    stage.end(call, bytes).await?;
    let silence = stage.silence;
    match watch(stage, call, label, silence).await? {
        Watched::Quiet => {
            stage.serve(call).await;
            Ok(true)
        }
        Watched::Another => Ok(false),
    }
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
        (0..LEAST_HEADER).map(|len| (format!("{len} bytes"), whole.slice(..len))).collect()
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
                .map(move |len| (format!("{len} bytes"), whole.slice(..len)))
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
        let head = Words::new().words(&[call.xid, 9, ONE, RDMA_MSG, 0, 0, 0]);
        one("rdma_vers 9", head.bytes(&null_reply(call.xid).finish()).finish())
    })
    .await
}

/// Sends a truncated RPC message behind a good header: the RPC layer may fail the call, or wait.
pub(super) async fn rpc_cut(stage: &mut Stage) -> Outcome {
    let mut texts = Vec::new();
    for len in [0, 4, 8, 20] {
        let call = stage.call().await?;
        let whole = raw_reply(call.xid, RDMA_MSG, &[0, 0, 0]);
        let label = format!("{len} bytes");
        let discarded = maybe_ended(stage, &call, whole.slice(..LEAST_HEADER + len), &label).await?;
        stage
            .ended(&call)
            .await
            .map_err(|wrong| Wrong { seen: format!("{label}: {}", wrong.seen), ..wrong })?;
        texts.push(if discarded { "discarded" } else { "the call fails" });
    }
    texts.dedup();
    Ok(texts.join(", "))
}

/// Repeats a reply while the next call waits for its own.
pub(super) async fn twice(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    stage.serve(&call).await;
    stage.ended(&call).await?;
    let next = stage.call().await?;
    stage.send(&next, raw_reply(call.xid, RDMA_MSG, &[0, 0, 0])).await?;
    let silence = stage.silence;
    quiet(stage, &next, "the second reply", silence).await?;
    still_waits(stage, &next).await
}

/// Sends an unexpected call in the reverse direction (RFC 8167). A client without a responder stays silent or refuses
/// it, with PROG_UNAVAIL or ERR_CHUNK under its XID. The call before it waits for its reply, and the client has no
/// credit for another.
pub(super) async fn reverse_call(stage: &mut Stage) -> Outcome {
    let call = stage.call().await?;
    let xid = other(call.xid);
    stage.send(&call, message(xid, 1, RDMA_MSG, ChunkLists::default(), &reverse_rpc(xid))).await?;
    let judge = |bytes: &Bytes| {
        let seen = answer(bytes, xid).reaction;
        let allowed = matches!(seen, Reaction::Reply(RpcEnd::ProgramUnavailable) | Reaction::ErrChunk);
        (seen.to_string(), allowed)
    };
    reverse_answer(stage, &call, judge).await
}

/// Returns a call of a program that no client serves.
pub(super) fn reverse_rpc(xid: u32) -> Bytes {
    Words::new().words(&[xid, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0]).finish()
}

/// Watches a client after a call in the reverse direction. `judge` describes its answer, and says whether it is allowed.
pub(super) async fn reverse_answer(
    stage: &mut Stage,
    call: &Call,
    judge: impl Fn(&Bytes) -> (String, bool),
) -> Outcome {
    let deadline = Instant::now() + stage.silence;
    let mut seen: Option<String> = None;
    loop {
        match stage.event(deadline.saturating_duration_since(Instant::now())).await? {
            Event::Other(_) if seen.is_some() => return Err(fail("a second answer")),
            Event::Other(bytes) => match judge(&bytes) {
                (answer, true) => seen = Some(answer),
                (answer, false) => return Err(fail(format!("the answer is {answer}"))),
            },
            Event::Ended(connection) if connection == call.connection => {
                // RFC 8167 §6: with a client that is not prepared, the loss of the connection might result.
                return Err(differs("the client closes the connection"));
            }
            Event::Nothing => break,
            Event::Call(next) if next.connection != call.connection => stage.serve(&next).await,
            Event::Call(_) => return Err(fail("the client considers its own call completed")),
            _ => {}
        }
    }
    let seen = seen.unwrap_or_else(|| Reaction::Nothing.to_string());
    stage.serve(call).await;
    let text = stage.ended(call).await?;
    Ok(format!("{seen}; {text}"))
}
