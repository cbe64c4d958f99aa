//! Reasons why a call failed, and what is known about its execution.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::gss::ReplyFault;
use rpcrdma_proto as proto;
use rpcrdma_verbs::PoolExhausted;
use rpcrdma_xdr::{DecodeError, EncodeError};
use thiserror::Error;

use crate::cause::Cause;

/// The execution of a failed call at the peer, as far as it is known (rule I8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// The peer did not carry it out.
    NotExecuted,
    /// The peer may have carried it out, or may yet do so.
    Unknown,
}

/// The reason why a call has no result.
///
/// A message is complete: it includes those of the errors below it, which `source()` returns by type.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// No reply in time. The call's memory stays with the connection until its reply comes or the connection closes (rule
    /// I10).
    #[error("no reply within {after:?}{}", note(.link))]
    TimedOut {
        /// The time that the call had.
        after: Duration,
        /// Whether the call had left.
        sent: bool,
        /// The reason why no connection could be opened, if it was down.
        #[source]
        link: Option<Cause>,
    },
    /// The connection was lost before the reply came, and the call was not to be sent again. Its execution is unknown.
    #[error("connection lost before the reply: {reason}")]
    ConnectionLost {
        /// Why the connection ended.
        #[source]
        reason: Cause,
    },
    /// There is no connection, and none could be opened.
    #[error("no connection: {reason}")]
    Unreachable {
        /// The last attempt's failure, or the reason why the connection ended.
        #[source]
        reason: Cause,
        /// Whether the call had left on an earlier connection.
        sent: bool,
    },
    /// A new connection cannot have the TLS that this client requires, or the server refuses the client's certificate
    /// (RFC 9289 §4.1). A call that had left on an earlier connection may have been carried out.
    #[error("no connection with TLS: {reason}")]
    Tls {
        /// The reason.
        #[source]
        reason: Cause,
        /// Whether the call had left.
        sent: bool,
    },
    /// This side is closing the connection, or has closed the client.
    #[error("closed by this side")]
    Closed {
        /// Whether the call had left.
        sent: bool,
    },
    /// The arguments cannot be encoded or no form of the protocol can carry them; nothing was sent.
    #[error("the call cannot be sent: {reason}")]
    Unsendable {
        /// The reason.
        #[source]
        reason: Cause,
    },
    /// The call is longer than the connection carries; nothing was sent.
    #[error("the call takes {len} bytes; the connection carries {room}")]
    CallTooLong {
        /// Length of the message, or of one argument, in bytes.
        len: usize,
        /// The longest one, in bytes: over RDMA what fits inline, or into a chunk; over TCP
        /// [`max_record`](crate::ClientConfig::max_record).
        room: usize,
    },
    /// The largest results of the call are longer than the connection has room for; nothing was sent.
    #[error("the results may take {len} bytes; the connection has room for {room}")]
    ResultsTooLong {
        /// Length of the largest results, or of one of them, in bytes. If memory is missing over RDMA, it is the memory that
        /// they take: a power of two for each item.
        len: usize,
        /// The longest ones, in bytes. Over RDMA they fit inline, into a chunk, or into the rest of the
        /// [memory](crate::ClientConfig::memory); over TCP they fit into [`max_record`](crate::ClientConfig::max_record).
        room: usize,
    },
    /// There is no memory for the results; nothing was sent.
    #[error("no memory for the results: {reason}")]
    Memory {
        /// The memory that is missing.
        #[source]
        reason: Cause,
    },
    /// The calls in progress through this backchannel have reached their limit; nothing was sent.
    #[error("{limit} calls through the backchannel are in progress, the limit")]
    QueueFull {
        /// The limit, [`max_reverse_calls`](crate::ServerConfig::max_reverse_calls).
        limit: usize,
    },
    /// The peer answered that it did not carry the call out, or that it failed (RFC 5531 §9).
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The peer refuses the call's chunks, or the reply fits neither the chunks nor one Send (RFC 8166 §4.5,
    /// `ERR_CHUNK`).
    #[error("the peer refuses the call's chunks, or its reply does not fit them (ERR_CHUNK)")]
    Chunk,
    /// The peer does not speak this version of RPC-over-RDMA (RFC 8166 §4.5.1, `ERR_VERS`).
    #[error("the peer speaks RPC-over-RDMA versions {low} to {high}")]
    TransportVersion {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer refuses the call with another error of RPC-over-RDMA (version-two-03 §6.2.4). The connection is
    /// unaffected.
    #[error("the peer refuses the call: {reason}")]
    TransportRefused {
        /// The error that the peer reports.
        #[source]
        reason: Cause,
    },
    /// The received message is not a valid reply, or its memory is lost; the call may have been carried out. The
    /// connection is unaffected.
    #[error("{reason}")]
    TransportReply {
        /// The fault.
        #[source]
        reason: Cause,
    },
    /// There is no security context for the call, or it cannot protect the call.
    #[error("{reason}")]
    NoContext {
        /// The words of the mechanism, or the server's refusal.
        #[source]
        reason: Cause,
        /// Whether the call had left, in an earlier context or on an earlier connection.
        sent: bool,
    },
    /// The security mechanism did not do its part of creating a context in time: for Kerberos, no KDC gave a ticket. The
    /// server has no part in that.
    #[error("no security context with {service} within {after:?}: {reason}")]
    ContextTimedOut {
        /// The service, for instance `nfs@server.example.org`.
        service: String,
        /// The time that the call had.
        after: Duration,
        /// The step for which the mechanism was waiting, and the remedy.
        reason: String,
        /// Whether the call had left, in an earlier context or on an earlier connection.
        sent: bool,
    },
    /// The call had left on an earlier connection, or in an earlier security context, and sending it again failed. The first
    /// transmission may have been carried out.
    #[error("the call was sent before, and now: {error}")]
    SentBefore {
        /// The failure of the last transmission.
        #[source]
        error: LastError,
    },
    /// The call was made more than once, by a [`Retry`](crate::Retry), and the last attempt failed too.
    #[error("{attempts} attempts in {elapsed:?}, the last one: {error}")]
    Repeated {
        /// Number of attempts, at least 2.
        attempts: u32,
        /// Time from the first attempt on, with all pauses.
        elapsed: Duration,
        /// The execution of all attempts together, as far as it is known.
        execution: Execution,
        /// The failure of the last attempt.
        #[source]
        error: LastError,
    },
    /// The server did not make this reply, or somebody changed it (RFC 2203 §5.3.3). The call may have been carried out.
    #[error("the reply cannot be trusted: {0}")]
    Untrusted(#[from] ReplyFault),
    /// The reply cannot be decoded; the call was carried out.
    #[error("the reply cannot be decoded: {0}")]
    BadReply(#[from] DecodeError),
}

/// The failure of a call's last transmission or attempt, within the error that tells of earlier ones.
///
/// It dereferences to the [`CallError`], which is also the [`source`](std::error::Error::source) of the error around it.
pub struct LastError(Box<CallError>);

impl From<CallError> for LastError {
    fn from(error: CallError) -> Self {
        Self(Box::new(error))
    }
}

impl Deref for LastError {
    type Target = CallError;

    fn deref(&self) -> &CallError {
        &self.0
    }
}

/// Shows the error inside.
impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Shows the error inside.
impl fmt::Debug for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn note(link: &Option<Cause>) -> String {
    link.as_ref().map(|reason| format!("; no connection: {reason}")).unwrap_or_default()
}

impl CallError {
    /// Returns what is known about the call's execution.
    #[must_use]
    pub fn execution(&self) -> Execution {
        match self {
            Self::Repeated { execution, .. } => *execution,
            Self::Unsendable { .. }
            | Self::CallTooLong { .. }
            | Self::ResultsTooLong { .. }
            | Self::QueueFull { .. }
            | Self::Memory { .. }
            | Self::NoContext { sent: false, .. }
            | Self::ContextTimedOut { sent: false, .. }
            | Self::TimedOut { sent: false, .. }
            | Self::Unreachable { sent: false, .. }
            | Self::Closed { sent: false }
            | Self::Tls { sent: false, .. }
            | Self::TransportVersion { .. } => Execution::NotExecuted,
            Self::Refused(refused) if !matches!(refused, Refused::SystemError) => Execution::NotExecuted,
            // ERR_CHUNK may mean that the reply did not fit (RFC 8166 §4.5.3). Then the call was carried out.
            _ => Execution::Unknown,
        }
    }

    /// Returns the number of attempts that a [`Retry`](crate::Retry) made, 1 without one.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        if let Self::Repeated { attempts, .. } = self { *attempts } else { 1 }
    }

    /// Returns the failure of the last attempt: this error itself, unless the call was made more than once.
    #[must_use]
    pub fn last(&self) -> &Self {
        if let Self::Repeated { error, .. } = self { error.last() } else { self }
    }

    /// Returns whether a later attempt may have another end, because the failure depends on the moment. These are: too
    /// little time, lost and missing connections, missing memory, full queues, lost replies, and SYSTEM_ERR. A busy server
    /// refuses by SYSTEM_ERR; any other refusal stays one. [`Closed`](Self::Closed) is final.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::ConnectionLost { .. }
            | Self::Unreachable { .. }
            | Self::Memory { .. }
            | Self::QueueFull { .. }
            | Self::TransportReply { .. }
            | Self::ContextTimedOut { .. } => true,
            Self::Refused(refused) => matches!(refused, Refused::SystemError),
            Self::SentBefore { error } | Self::Repeated { error, .. } => error.is_transient(),
            _ => false,
        }
    }
}

impl CallError {
    /// Returns the error of a call that had left before its last transmission failed so (rule I8).
    pub(crate) fn sent_before(self) -> Self {
        match self {
            Self::TimedOut { after, link, .. } => Self::TimedOut { after, sent: true, link },
            Self::Unreachable { reason, .. } => Self::Unreachable { reason, sent: true },
            Self::Closed { .. } => Self::Closed { sent: true },
            Self::Tls { reason, .. } => Self::Tls { reason, sent: true },
            Self::NoContext { reason, .. } => Self::NoContext { reason, sent: true },
            Self::ContextTimedOut { service, after, reason, .. } => {
                Self::ContextTimedOut { service, after, reason, sent: true }
            }
            error if error.execution() == Execution::Unknown => error,
            error => Self::SentBefore { error: error.into() },
        }
    }

    /// Converts a failure that RPC-over-RDMA reports. `after` is the time that the call had; `down` is the reason why
    /// there is no connection.
    pub(crate) fn from_failure(failure: proto::CallFailure, after: Duration, down: Option<Cause>) -> Self {
        let proto::CallFailure { error, sent, sent_before, .. } = failure;
        let error = Self::of_protocol(error, sent, after, down);
        if sent_before { error.sent_before() } else { error }
    }

    /// Converts the reason why a call has no reply, whose last transmission has left if `sent`.
    fn of_protocol(error: proto::CallError, sent: bool, after: Duration, down: Option<Cause>) -> Self {
        match error {
            proto::CallError::TimedOut => Self::TimedOut { after, sent, link: down },
            proto::CallError::Version { low, high } => Self::TransportVersion { low, high },
            proto::CallError::Chunk => Self::Chunk,
            proto::CallError::Unsendable(refusal) => {
                Self::too_long(refusal).unwrap_or_else(|| Self::Unsendable { reason: refusal.into() })
            }
            proto::CallError::Memory(PoolExhausted::OverLimit { requested: len, limit: room }) => {
                Self::ResultsTooLong { len, room }
            }
            proto::CallError::Memory(exhausted) => Self::Memory { reason: exhausted.into() },
            error @ proto::CallError::Windows(_) => Self::Memory { reason: error.into() },
            proto::CallError::Unreachable { attempts, reason } => {
                let last = down.unwrap_or_else(|| Cause::message(reason));
                Self::Unreachable { reason: AttemptsFailed { attempts, last }.into(), sent }
            }
            proto::CallError::Closed => Self::Closed { sent },
            proto::CallError::Refused(body) => Self::TransportRefused { reason: body.into() },
            error @ (proto::CallError::BadReply(_) | proto::CallError::ResultLost) => {
                Self::TransportReply { reason: error.into() }
            }
            proto::CallError::ConnectionLost(reason) => Self::lost(reason.into(), sent),
            error => Self::lost(error.into(), sent),
        }
    }

    /// Returns the error of a call whose connection has ended.
    fn lost(reason: Cause, sent: bool) -> Self {
        if sent { Self::ConnectionLost { reason } } else { Self::Unreachable { reason, sent } }
    }

    /// Returns the error of a call that does not fit, with both numbers.
    const fn too_long(refusal: proto::Refusal) -> Option<Self> {
        use proto::Refusal;
        match refusal {
            Refusal::CallTooLong { len, allowed: room } | Refusal::ReadsNotAgreed { len, allowed: room } => {
                Some(Self::CallTooLong { len, room })
            }
            Refusal::ReplyTooLong { len, allowed: room }
            | Refusal::ContinuedReplyTooLong { len, allowed: room } => {
                Some(Self::ResultsTooLong { len, room })
            }
            _ => None,
        }
    }

    /// Converts the reason why a call was not accepted for sending.
    pub(crate) fn from_refusal(kind: proto::RefusedKind) -> Self {
        match kind {
            proto::RefusedKind::Closed => Self::Closed { sent: false },
            kind => Self::Unsendable { reason: kind.into() },
        }
    }
}

/// The session has given up after this many attempts to connect.
#[derive(Debug, Error)]
#[error("{attempts} attempts failed, the last: {last}")]
struct AttemptsFailed {
    attempts: u32,
    #[source]
    last: Cause,
}

impl From<EncodeError> for CallError {
    fn from(error: EncodeError) -> Self {
        Self::Unsendable { reason: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_proto::wire::two::ErrorBody;

    use super::*;

    fn shown(error: proto::CallError, sent: bool) -> CallError {
        let failure = proto::CallFailure { error, sent, sent_before: false, call: None };
        CallError::from_failure(failure, Duration::from_secs(30), None)
    }

    /// The error of a single call does not mention its connection.
    #[test]
    fn a_call_that_ends_alone_does_not_speak_of_a_lost_connection() {
        let refused = shown(proto::CallError::Refused(ErrorBody::System), true);
        assert!(matches!(refused, CallError::TransportRefused { .. }));
        assert_eq!(refused.to_string(), "the peer refuses the call: system error");
        let lost = shown(proto::CallError::ResultLost, true);
        assert!(matches!(lost, CallError::TransportReply { .. }));
        assert_eq!((refused.execution(), lost.execution()), (Execution::Unknown, Execution::Unknown));
    }

    // requirement: rfc5531-5-3
    /// RFC 8267 §4: a transport error does not tell whether the server has carried the call out.
    // requirement: rfc8267-4-7
    #[test]
    fn rfc8267_4_a_transport_error_tells_nothing_of_the_execution() {
        let errors = [
            proto::CallError::Chunk,
            proto::CallError::Refused(ErrorBody::System),
            proto::CallError::ResultLost,
        ];
        for error in errors {
            assert_eq!(shown(error, true).execution(), Execution::Unknown);
        }
    }

    /// The first transmission may have been carried out, for each end of the second one.
    #[test]
    fn i8_a_call_that_was_sent_before_is_of_unknown_execution() {
        let errors = [
            CallError::TimedOut { after: Duration::ZERO, sent: false, link: None },
            CallError::Unreachable { reason: Cause::message("test"), sent: false },
            CallError::Closed { sent: false },
            CallError::Tls { reason: Cause::message("test"), sent: false },
            CallError::NoContext { reason: Cause::message("test"), sent: false },
            CallError::ContextTimedOut {
                service: String::new(),
                after: Duration::ZERO,
                reason: String::new(),
                sent: false,
            },
            CallError::Unsendable { reason: Cause::message("test") },
            CallError::CallTooLong { len: 2, room: 1 },
            CallError::ResultsTooLong { len: 2, room: 1 },
            CallError::Memory { reason: Cause::message("test") },
            CallError::TransportVersion { low: 1, high: 1 },
            CallError::Refused(Refused::ProgramUnavailable),
        ];
        for error in errors {
            assert_eq!(error.execution(), Execution::NotExecuted, "{error:?}");
            let error = error.sent_before();
            assert_eq!(error.execution(), Execution::Unknown, "{error:?}");
        }
        assert!(matches!(CallError::Chunk.sent_before(), CallError::Chunk));
    }

    /// An earlier connection may have brought the call to its execution. A later one cannot deny that.
    #[test]
    fn i8_an_error_of_a_later_connection_does_not_deny_an_earlier_execution() {
        let errors = [
            proto::CallError::TimedOut,
            proto::CallError::Version { low: 2, high: 2 },
            proto::CallError::Unsendable(proto::Refusal::CallTooLong { len: 2, allowed: 1 }),
            proto::CallError::Memory(PoolExhausted::OverLimit { requested: 2, limit: 1 }),
            proto::CallError::Unreachable { attempts: 1, reason: "test".to_owned() },
            proto::CallError::Closed,
            proto::CallError::ConnectionLost(proto::CloseReason::Timeout("a reply")),
        ];
        for error in errors {
            let failure = proto::CallFailure { error, sent: true, sent_before: true, call: None };
            let error = CallError::from_failure(failure, Duration::ZERO, None);
            assert_eq!(error.execution(), Execution::Unknown, "{error:?}");
        }
    }

    // requirement: rfc5531-5-3
    #[test]
    fn i8_a_call_that_had_not_left_was_not_carried_out() {
        let ended = || proto::CallError::ConnectionLost(proto::CloseReason::Timeout("a reply"));
        assert_eq!(shown(ended(), false).execution(), Execution::NotExecuted);
        assert_eq!(shown(ended(), true).execution(), Execution::Unknown);
    }

    /// The errors of the layers below are reached by `source()`, by their own types.
    #[test]
    fn the_source_of_a_failed_call_is_the_error_below() {
        fn source<T: std::error::Error + 'static>(error: &CallError) -> &T {
            let source = std::error::Error::source(error).unwrap();
            source.downcast_ref::<T>().unwrap_or_else(|| panic!("{error}: {source:?}"))
        }

        let lost = proto::CloseReason::Timeout("a reply");
        let error = shown(proto::CallError::ConnectionLost(lost.clone()), true);
        assert_eq!(source::<proto::CloseReason>(&error), &lost);
        assert_eq!(error.to_string(), "connection lost before the reply: timeout: a reply");
        let error = shown(proto::CallError::ConnectionLost(lost.clone()), false);
        assert_eq!(source::<proto::CloseReason>(&error), &lost);
        let error = shown(proto::CallError::Refused(ErrorBody::System), true);
        assert_eq!(source::<ErrorBody>(&error), &ErrorBody::System);
        let error = shown(proto::CallError::ResultLost, true);
        assert_eq!(source::<proto::CallError>(&error), &proto::CallError::ResultLost);
        let error = CallError::from_refusal(proto::RefusedKind::XidInUse(7));
        assert_eq!(source::<proto::RefusedKind>(&error), &proto::RefusedKind::XidInUse(7));
        let error = CallError::from(EncodeError::Invalid { reason: "test" });
        assert_eq!(source::<EncodeError>(&error), &EncodeError::Invalid { reason: "test" });
        let error = CallError::from(DecodeError::TrailingBytes { position: 4, count: 4 });
        assert!(source::<DecodeError>(&error).to_string().starts_with("4 bytes left"));
        let error = CallError::from(Refused::ProgramUnavailable).sent_before();
        assert!(matches!(source::<CallError>(&error), CallError::Refused(Refused::ProgramUnavailable)));
        let (attempts, elapsed, execution) = (2, Duration::ZERO, Execution::Unknown);
        let error = CallError::Repeated { attempts, elapsed, execution, error: error.into() };
        assert!(matches!(source::<CallError>(&error), CallError::SentBefore { .. }));

        // A connection attempt is two steps below the call.
        let failure = proto::CallFailure {
            error: proto::CallError::Unreachable { attempts: 3, reason: "refused".to_owned() },
            sent: false,
            sent_before: false,
            call: None,
        };
        let down = Cause::new(lost.clone());
        let error = CallError::from_failure(failure, Duration::ZERO, Some(down.clone()));
        assert_eq!(error.to_string(), "no connection: 3 attempts failed, the last: timeout: a reply");
        let last = std::error::Error::source(source::<AttemptsFailed>(&error)).unwrap();
        assert_eq!(last.downcast_ref::<proto::CloseReason>(), Some(&lost));
        let late = CallError::TimedOut { after: Duration::ZERO, sent: false, link: Some(down) };
        assert_eq!(source::<proto::CloseReason>(&late), &lost);
    }
}
