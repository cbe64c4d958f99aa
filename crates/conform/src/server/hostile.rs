//! Sends messages that no correct client sends, and checks the server's reaction to each.
//!
//! The reaction must be of a kind that the row allows. Then the server must answer a NULL call on the same connection,
//! if that is still open. At the end it must answer another one on a new connection.

use bytes::Bytes;

use super::bench::Bench;
use crate::endpoint::Endpoint;
use crate::message::{Answer, Kind, Reaction};
use crate::report::{Outcome, Wrong, differs, fail};

/// A message of a row.
pub(super) struct Case {
    /// The fault of the message, for a row of several.
    pub(super) label: String,
    pub(super) xid: u32,
    pub(super) bytes: Bytes,
}

/// Reactions that a row allows.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    /// Correct reactions.
    pub(super) pass: &'static [Kind],
    /// Harmless reactions that differ from the text.
    pub(super) differs: &'static [Kind],
}

/// Allows only these reactions.
pub(super) const fn only(pass: &'static [Kind]) -> Allowed {
    Allowed { pass, differs: &[] }
}

/// RFC 8166 §4.5.2: the header is invalid.
pub(super) const ERR_CHUNK: Allowed = only(&[Kind::ErrChunk]);
/// RFC 8166 §4.5: the message is discarded without an answer.
pub(super) const DISCARD: Allowed = only(&[Kind::Nothing]);
/// The header is valid and the call is not: transport or RPC layer may report this, and the call is not executed.
pub(super) const REFUSE: Allowed = only(&[Kind::ErrChunk, Kind::GarbageArguments]);
/// As [`REFUSE`], where the text only recommends it, and where any treatment of a NULL call is harmless.
pub(super) const SHOULD_REFUSE: Allowed =
    Allowed { pass: REFUSE.pass, differs: &[Kind::Success, Kind::SystemError, Kind::Closed] };

/// Reactions of the server to the messages of a row.
#[derive(Default)]
pub(super) struct Seen {
    reactions: Vec<String>,
    differing: Option<String>,
    /// XIDs of messages without an answer so far.
    quiet: Vec<u32>,
}

impl Seen {
    /// Records a reaction; an error if the row does not allow it.
    pub(super) fn note(&mut self, label: &str, reaction: Reaction, allowed: Allowed) -> Result<(), Wrong> {
        let text = labelled(label, &reaction.to_string());
        if !allowed.pass.iter().any(|kind| reaction.is(*kind)) {
            if !allowed.differs.iter().any(|kind| reaction.is(*kind)) {
                return Err(fail(text));
            }
            self.differing.get_or_insert(text);
        }
        let text = reaction.to_string();
        if !self.reactions.contains(&text) {
            self.reactions.push(text);
        }
        Ok(())
    }

    /// Records answers that came after the wait for them.
    fn late(&mut self, answers: Vec<Answer>, allowed: Allowed) -> Result<(), Wrong> {
        answers.into_iter().try_for_each(|answer| self.note("late", answer.reaction, allowed))
    }

    /// Records a harmless difference.
    fn differ(&mut self, label: &str, what: String) {
        self.differing.get_or_insert(labelled(label, &what));
    }

    /// Returns all reactions, in the order of their first appearance.
    pub(super) fn finish(self) -> Outcome {
        match self.differing {
            Some(text) => Err(differs(text)),
            None => Ok(self.reactions.join(", ")),
        }
    }
}

fn labelled(label: &str, what: &str) -> String {
    if label.is_empty() { what.to_owned() } else { format!("{label}: {what}") }
}

/// Sends a message and returns the server's first reaction.
pub(super) async fn provoke(
    bench: &mut Bench<'_>,
    endpoint: &mut Endpoint,
    case: &Case,
    allowed: Allowed,
    seen: &mut Seen,
) -> Result<Reaction, Wrong> {
    endpoint.send(case.bytes.clone());
    // Only a row that allows silence waits for the time of silence.
    let silent = allowed.pass.contains(&Kind::Nothing);
    let limit = if silent { bench.target.silence } else { bench.limit() };
    let (answer, late) = bench.observe_behind(endpoint, case.xid, limit, &seen.quiet).await;
    seen.late(late, allowed)?;
    let reaction = answer.reaction;
    let quiet = reaction == Reaction::Nothing;
    if quiet {
        seen.quiet.push(case.xid);
    }
    let closed = reaction == Reaction::Closed;
    let answered = reaction.to_string();
    seen.note(&case.label, reaction.clone(), allowed)?;
    // No text forbids to end a connection after the right answer, but other calls on it have to be sent again.
    let then_closed = || format!("{answered}, then the connection is closed");
    if endpoint.has_ended() {
        if !closed {
            seen.differ(&case.label, then_closed());
        }
        return Ok(reaction);
    }
    // Where silence is allowed, a later answer is still checked.
    match bench.null_behind(endpoint, &seen.quiet).await {
        Ok((_, late)) => seen.late(late, allowed)?,
        Err(_) if endpoint.has_ended() && allowed.pass.contains(&Kind::Closed) => {}
        Err(_) if endpoint.has_ended() && !quiet => seen.differ(&case.label, then_closed()),
        Err(wrong) => {
            return Err(fail(format!("{}: the connection does not serve on: {}", case.label, wrong.seen)));
        }
    }
    Ok(reaction)
}

/// Sends each message on a working connection, all on one as long as it stays open.
pub(super) async fn each(bench: &mut Bench<'_>, cases: Vec<Case>, allowed: Allowed) -> Outcome {
    let (mut endpoint, _) = bench.ready().await?;
    let mut seen = Seen::default();
    let count = cases.len();
    for case in cases {
        if endpoint.has_ended() {
            (endpoint, _) = bench.ready().await?;
        }
        provoke(bench, &mut endpoint, &case, allowed, &mut seen).await?;
    }
    if !seen.quiet.is_empty() && !endpoint.has_ended() {
        // Answers that come after the last message.
        let (_, late) = bench.null_behind(&mut endpoint, &seen.quiet).await?;
        seen.late(late, allowed)?;
    }
    endpoint.close().await;
    bench.alive().await?;
    let seen = seen.finish()?;
    Ok(if count == 1 { seen } else { format!("{seen} ({count} messages)") })
}
