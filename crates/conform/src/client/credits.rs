//! Grants (RFC 8166 §3.3.1, §3.3.3). Calls in flight are counted on arrival. These rows hold replies back, so that a
//! client that exceeds a grant has time to show this. Only a client with several calls to make at once can show that it
//! respects a grant.

use tokio::time::Instant;

use super::serve::reply;
use super::stage::{Call, Event, GRANT, ONE, Stage};
use crate::report::{Outcome, Wrong, fail, not_applicable};

/// Calls that a client may have sent before a smaller grant arrives, with a margin.
const PATIENCE: u32 = 2 * GRANT;

/// Holds replies back for the time of silence. Returns the calls in flight on the connection of the last of `held`.
pub(super) async fn hold(stage: &mut Stage, mut held: Vec<Call>) -> Result<Vec<Call>, Wrong> {
    while let Some(connection) = held.last().map(|call| call.connection) {
        match stage.event(stage.silence).await? {
            Event::Call(next) if next.connection == connection => held.push(next),
            Event::Call(next) => stage.serve(&next).await,
            Event::Ended(ended) if ended == connection => {
                return Err(fail("the client closes the connection on which it waits for replies"));
            }
            Event::Nothing => break,
            _ => {}
        }
    }
    Ok(held)
}

/// Grants this much until the client has no more calls in flight, and has been watched for the time of silence.
async fn settle(stage: &mut Stage, held: Vec<Call>, grant: u32) -> Result<Vec<Call>, Wrong> {
    let most = usize::try_from(grant.max(ONE)).unwrap_or(usize::MAX);
    let mut held = hold(stage, held).await?;
    for _ in 0..PATIENCE {
        if held.len() <= most {
            return Ok(held);
        }
        let call = held.remove(0);
        stage.serve_granting(&call, grant).await;
        held = hold(stage, held).await?;
    }
    Err(fail(format!("over the grant: {} calls in flight after {PATIENCE} grants of {grant}", held.len())))
}

/// Waits for calls of a client that has several in flight if it may; a client that has just started makes one after the
/// other.
async fn concurrent(stage: &mut Stage) -> Result<Vec<Call>, Wrong> {
    let deadline = Instant::now() + stage.limit;
    let call = stage.call().await?;
    stage.serve_granting(&call, GRANT).await;
    loop {
        let call = stage.call().await?;
        let held = hold(stage, vec![call]).await?;
        if held.len() > 1 {
            return Ok(held);
        }
        serve_all(stage, held, GRANT).await;
        if Instant::now() >= deadline {
            return Err(not_applicable(format!(
                "the client makes one call at a time when {GRANT} are granted"
            )));
        }
    }
}

async fn serve_all(stage: &mut Stage, held: Vec<Call>, grant: u32) {
    for call in held {
        stage.serve_granting(&call, grant).await;
    }
}

pub(super) async fn inline(stage: &mut Stage) -> Outcome {
    let mut text = String::new();
    for _ in 0..3 {
        let call = stage.call().await?;
        stage.serve(&call).await;
        text = stage.ended(&call).await?;
    }
    Ok(text)
}

pub(super) async fn first_flight(stage: &mut Stage) -> Outcome {
    let held = concurrent(stage).await?;
    let count = held.len();
    serve_all(stage, held, GRANT).await;
    stage.clear().await;
    let first = stage.call().await?;
    hold(stage, vec![first.clone()]).await?;
    stage.serve(&first).await;
    let text = stage.ended(&first).await?;
    Ok(format!("one call until its reply, {count} when {GRANT} are granted; {text}"))
}

pub(super) async fn grant_one(stage: &mut Stage) -> Outcome {
    let held = concurrent(stage).await?;
    let count = held.len();
    let held = settle(stage, held, ONE).await?;
    // From here on the client has received the grant.
    serve_all(stage, held, ONE).await;
    for _ in 0..2 {
        let next = stage.call().await?;
        let held = hold(stage, vec![next]).await?;
        serve_all(stage, held, ONE).await;
    }
    Ok(format!("one call at a time, {count} when {GRANT} are granted"))
}

/// Answers a call with this grant.
async fn granted(stage: &mut Stage, grant: u32) -> Outcome {
    let call = stage.call().await?;
    let reply = reply(&call);
    stage.send_reply(&call, reply, grant).await;
    stage.ended(&call).await
}

pub(super) async fn grant_zero(stage: &mut Stage) -> Outcome {
    granted(stage, 0).await?;
    let next = stage.call().await?;
    hold(stage, vec![next.clone()]).await?;
    stage.serve(&next).await;
    let text = stage.ended(&next).await?;
    Ok(format!("one call at a time; {text}"))
}

pub(super) async fn grant_falls(stage: &mut Stage) -> Outcome {
    let mut seen = Vec::new();
    let mut held = vec![stage.call().await?];
    for grant in [GRANT, 16, 4, 2, ONE, GRANT] {
        for call in std::mem::take(&mut held) {
            stage.serve_granting(&call, grant).await;
        }
        let next = stage.call().await.map_err(|wrong| fail(format!("a grant of {grant}: {}", wrong.seen)))?;
        held = settle(stage, vec![next], grant).await?;
        seen.push(held.len().to_string());
    }
    serve_all(stage, held, ONE).await;
    stage.clear().await;
    Ok(format!("{} calls in flight", seen.join(", ")))
}

pub(super) async fn grant_all(stage: &mut Stage) -> Outcome {
    granted(stage, u32::MAX).await?;
    let call = stage.call().await?;
    // The client may send any number of calls. The tester has fewer Receives, so it holds no reply back.
    stage.serve(&call).await;
    let text = stage.ended(&call).await;
    stage.clear().await;
    text
}
