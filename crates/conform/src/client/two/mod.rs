//! Rows against a client of Version Two, in one of its profiles.
//!
//! A call on a connection whose version is settled is the start of most rows. The client has to make one call at a time.
//! Where credits count messages (version-two-07 §4.2.1), each bad message grants one more: for an RDMA2_ERROR of the client,
//! or for the next call, which shows that the client considers its call completed.

mod continued;
mod groups;
mod properties;
mod replies;
mod rows;

use bytes::Bytes;
use rpcrdma_proto::wire::{Body, ChunkLists, Direction, ErrorBody, Limits, two};
use tokio::time::Instant;

use super::broken::{quiet, still_waits};
use super::serve::{Reply, accepted};
use super::stage::{Call, Event, ONE, Stage};
use crate::message::RDMA_MSG;
use crate::report::{Outcome, Wrong, fail};
pub(super) use rows::all;

/// Waits for a call on a connection on which the tester has answered one.
async fn settled(stage: &mut Stage) -> Result<Call, Wrong> {
    let deadline = Instant::now() + stage.limit;
    loop {
        let call = stage.call().await?;
        if call.settled {
            return Ok(call);
        }
        if Instant::now() >= deadline {
            return Err(fail("no connection has a second call"));
        }
        stage.serve(&call).await;
    }
}

/// Returns a good reply to a NULL call with this XID.
fn null_reply(xid: u32) -> Reply {
    Reply {
        procedure: RDMA_MSG,
        lists: ChunkLists::default(),
        payload: accepted(xid, 0).finish(),
        writes: Vec::new(),
        placed: Vec::new(),
    }
}

/// Returns the bytes of that reply to a call.
fn good(stage: &mut Stage, call: &Call) -> Result<Bytes, Wrong> {
    stage.encode(call, &null_reply(call.xid), ONE)
}

/// Returns bytes with another value in one word.
fn set(bytes: &Bytes, index: usize, value: u32) -> Bytes {
    let mut bytes = bytes.to_vec();
    if let Some(word) = bytes.get_mut(index * 4..index * 4 + 4) {
        word.copy_from_slice(&value.to_be_bytes());
    }
    bytes.into()
}

/// Sends messages that the client has to discard, then the good reply.
async fn discarded(
    stage: &mut Stage,
    bad: impl Fn(&Stage, &Call, &Bytes) -> Vec<(String, Bytes)>,
) -> Outcome {
    let call = settled(stage).await?;
    let good = good(stage, &call)?;
    let silence = stage.silence;
    for (label, bytes) in bad(stage, &call, &good) {
        stage.send(&call, bytes).await?;
        quiet(stage, &call, &label, silence).await?;
    }
    still_waits(stage, &call).await
}

/// Returns a message with this label.
fn one(label: &str, bytes: Bytes) -> Vec<(String, Bytes)> {
    vec![(label.into(), bytes)]
}

/// The client does nothing.
const SILENCE: &str = "silence";

/// Behaviour of a client that is not silent.
struct Answers<'a> {
    /// The XID that an RDMA2_ERROR copies.
    xid: u32,
    /// Its possible contents.
    errors: &'a [ErrorBody],
    /// Whether silence is also allowed.
    silence: bool,
}

/// Sends a message that the client has to refuse with an RDMA2_ERROR, while a call waits. Then the good reply counts.
async fn refused(stage: &mut Stage, call: &Call, bytes: Bytes, answers: Answers<'_>) -> Outcome {
    stage.send(call, bytes).await?;
    let seen = error(stage, call, answers).await?;
    let text = still_waits(stage, call).await?;
    Ok(format!("{seen}; {text}"))
}

/// Waits for the RDMA2_ERROR of a client.
async fn error(stage: &mut Stage, call: &Call, answers: Answers<'_>) -> Outcome {
    let Answers { xid, errors, silence } = answers;
    one_error(stage, call, (xid, silence), |error| errors.contains(error)).await
}

/// Waits for the RDMA2_ERROR of a client under this XID, or for its report. `is_good` judges the content.
///
/// A report is a message of its own. The Requester gives it the direction CALL and any XID of that direction
/// (version-two-01 §4.2.2); its content names the bad transmission (rtrext-02 §9.5).
async fn one_error(
    stage: &mut Stage,
    call: &Call,
    (xid, silence): (u32, bool),
    is_good: impl Fn(&ErrorBody) -> bool,
) -> Outcome {
    let mut deadline = Instant::now() + if silence { stage.silence } else { stage.limit };
    let mut seen: Option<ErrorBody> = None;
    loop {
        match stage.event(deadline.saturating_duration_since(Instant::now())).await? {
            Event::Other(bytes) => {
                let decoded = stage.wire.codec.decode(&bytes, &Limits::default());
                let Ok((header, _)) = decoded else { return Err(fail("a message that does not decode")) };
                let Body::Error(error) = header.body else { return Err(fail("a reply to nothing")) };
                if matches!(error, ErrorBody::Two(two::ErrorBody::Report(_))) {
                    if header.direction != Some(Direction::Call) {
                        return Err(fail(format!("a report without the direction CALL: {error}")));
                    }
                } else if header.xid != xid {
                    return Err(fail(format!("an RDMA2_ERROR under XID {:#010x}: {error}", header.xid)));
                }
                if seen.is_some() || !is_good(&error) {
                    return Err(fail(format!("the client answers: {error}")));
                }
                seen = Some(error);
                deadline = Instant::now() + stage.silence;
            }
            Event::Ended(connection) if connection == call.connection => {
                return Err(fail("the client closes the connection"));
            }
            Event::Call(next) if next.connection != call.connection => stage.serve(&next).await,
            Event::Call(_) => return Err(fail("the client considers its call completed")),
            Event::Nothing => break,
            Event::Connected | Event::Ended(_) => {}
        }
    }
    match seen {
        Some(error) => Ok(format!("RDMA2_ERROR: {error}")),
        None if silence => Ok(SILENCE.into()),
        None => Err(fail("the client sends no RDMA2_ERROR")),
    }
}

/// Returns the credit word of a message that leaves the client the credit for another message.
fn credit(stage: &mut Stage, call: &Call) -> Result<u32, Wrong> {
    stage.credit(call.connection, ONE)
}
