//! The offer of a version: the first message of a connection in a version that the peer may not speak (version-two-01
//! §5), and the memory of what the peer speaks.
//!
//! A client of Version One alone makes no offer.

use std::time::{Duration, Instant};

use rpcrdma_oncrpc::{CallHeader, OpaqueAuth};
use rpcrdma_xdr::Stream;
use thiserror::Error;

use super::{Session, State};
use crate::call::{Call, CallFailure, CallId, IncomingReply, ReplyShape};
use crate::error::{CallError, CloseReason};
use crate::settings::timers::after;
use crate::wire::{Codec, v1::V1};

/// Bytes of the longest reply to a NULL Call with AUTH_NONE: the verifier has up to 400 bytes (RFC 5531 §8.2).
const NULL_REPLY: usize = 24 + 400;

/// A connection cannot begin without a call: its first message offers a version by a NULL Call, and no program is known.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no program for the NULL Call that offers Version Two: set Config::program, or make a call first")]
pub struct NoProgram;

/// The offer, and what is known of the peer's versions.
#[derive(Debug)]
pub(super) struct Offer {
    /// The program whose NULL procedure is called: [`Config::program`](crate::Config::program), otherwise that of the
    /// first call.
    pub(super) program: Option<(u32, u32)>,
    /// The NULL Call without an answer.
    pub(super) call: Option<CallId>,
    /// The version range in the peer's last version error.
    pub(super) versions: Option<(u32, u32)>,
    /// End of the time in which the session counts on Version One only (version-two-01 §5.2).
    fallback: Option<Instant>,
}

impl Offer {
    /// Returns the state before any connection.
    pub(super) const fn new(program: Option<(u32, u32)>) -> Self {
        Self { program, call: None, versions: None, fallback: None }
    }
}

impl Session {
    /// Returns the highest version that both sides are known to speak.
    pub(super) fn first_codec(&mut self, now: Instant) -> &'static dyn Codec {
        let Offer { versions, fallback, .. } = &mut self.offer;
        // A peer may gain a version after an upgrade, so the session forgets its version error after some time.
        *fallback = fallback.filter(|until| *until > now);
        *versions = versions.filter(|_| fallback.is_some());
        let known = |codec: &&'static dyn Codec| {
            let version = codec.rules().version;
            versions.is_none_or(|(low, high)| (low..=high).contains(&version))
                && (version == V1.rules().version || fallback.is_none())
        };
        self.config.versions.codecs().find(known).unwrap_or_else(|| self.config.versions.highest())
    }

    /// Sends the first message in a version that the peer may not speak: a NULL Call, which is short and has a reply.
    pub(super) fn offer_version(&mut self, now: Instant) {
        let timeout = self.config.timeouts.offer;
        self.state = State::Offering(after(now, timeout));
        let xid = self.next_xid();
        let id = self.calls.new_id(xid);
        let call = self.offer.program.and_then(|program| null_call(xid, program, timeout));
        let Some(connection) = &mut self.connection else { return };
        match call {
            Some(call) => self.offer.call = connection.call_as(now, id, call).ok().map(|()| id),
            None => connection.fail(CloseReason::Refused(NoProgram.to_string())),
        }
    }

    /// Handles the outcome of the offer.
    pub(super) fn offer_ended(&mut self, now: Instant, result: Result<IncomingReply, CallFailure>) {
        self.offer.call = None;
        let State::Offering(_) = self.state else { return };
        // Any RPC reply will do: it came in this version. The values of RFC 5666 §6 do not apply in this version.
        let Err(CallFailure { error, .. }) = result else { return self.begin(now, false) };
        self.offer.fallback = Some(after(now, self.config.timeouts.version_memory));
        if let CallError::Version { low, high } = error {
            self.offer.versions = Some((low, high));
        }
        let Some(connection) = &mut self.connection else { return };
        let has_one = self.config.versions.has_one();
        match &error {
            // version-two-01 §5.2: continue on the same connection.
            CallError::Version { low, high } if has_one && (*low..=*high).contains(&V1.rules().version) => {
                tracing::debug!(low, high, "the peer speaks Version One");
                connection.speak(&V1);
                self.begin(now, self.prelude);
            }
            CallError::Version { .. } => {
                connection.fail(CloseReason::Refused(error.to_string()));
                self.fail_waiting(&error, None);
            }
            CallError::Chunk | CallError::Refused(_) => {
                let name = connection.codec().rules().name;
                let reason = CloseReason::Refused(format!(
                    "the peer refused {name}, of which it may speak another profile: {error}"
                ));
                connection.fail(reason.clone());
                if !has_one {
                    self.fail_waiting(&CallError::ConnectionLost(reason), None);
                }
            }
            _ => connection.fail(CloseReason::Timeout("the answer to the first message of a version")),
        }
    }

    /// Handles a version error of the peer (RFC 8166 §4.5.1). If the session speaks another version of the range, the
    /// next connection uses that one.
    pub(super) fn version_refused(&mut self, error: &CallError, range: (u32, u32)) {
        self.offer.versions = Some(range);
        let present = self.connection.as_ref().map(|connection| connection.codec().rules().version);
        let mut versions = self.config.versions.codecs().map(|codec| codec.rules().version);
        if versions.any(|version| (range.0..=range.1).contains(&version) && Some(version) != present) {
            self.offer.fallback = None;
            self.on_connection(|connection| connection.fail(CloseReason::Refused(error.to_string())));
        }
    }
}

/// Returns a NULL Call with AUTH_NONE to this version of a program.
fn null_call(xid: u32, (program, version): (u32, u32), timeout: Duration) -> Option<Call> {
    let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
    let header = CallHeader { xid, program, version, procedure: 0, credential, verifier };
    Some(Call {
        xid,
        program,
        version,
        procedure: 0,
        message: header.with_arguments(Stream::default()).ok()?,
        reply: ReplyShape::plain(NULL_REPLY),
        flavor_touches_data: false,
        timeout: Some(timeout),
    })
}
