//! Call and reply headers (RFC 5531 §9).
//!
//! A header precedes the arguments or results in the stream, which are not examined here. The error of a call header
//! that can't be accepted names the reply that RFC 5531 has for it, if any.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Piece, Stream, Xdr};
use thiserror::Error;

use crate::OpaqueAuth;
use crate::auth::AUTH_BODY_MAX;

/// The version of the RPC protocol: `rpcvers` of every call (RFC 5531 §9).
pub const RPC_VERSION: u32 = 2;

/// The `msg_type` of a call (RFC 5531 §9).
pub const CALL: u32 = 0;

/// The `msg_type` of a reply (RFC 5531 §9).
pub const REPLY: u32 = 1;

/// Bytes of a call header before the credential.
const CALL_NUMBERS: usize = 24;

/// Bytes of a reply header besides the verifier, if results follow.
const REPLY_NUMBERS: usize = 16;

/// The header of a call; `rpcvers` is [`RPC_VERSION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// Matches the reply to the call; not a sequence number.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The caller's identity.
    pub credential: OpaqueAuth,
    /// Proof of the credential.
    pub verifier: OpaqueAuth,
}

/// The reason why a message isn't a call that could be served.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallHeaderError {
    /// The message ends inside its header, or a chunk stands in it.
    #[error("no RPC call header: {0}")]
    Malformed(#[from] DecodeError),
    /// The message is a reply, or of an unknown type.
    #[error("message type {message_type} with XID {xid:#010x} where a call (0) is expected")]
    NotACall {
        /// First word of the message.
        xid: u32,
        /// The message type.
        message_type: u32,
    },
    /// Another version of the RPC protocol.
    #[error("RPC version {version} in call {xid:#010x}, only 2 is supported")]
    RpcVersion {
        /// XID of the call.
        xid: u32,
        /// The version.
        version: u32,
    },
    /// The credential is too long.
    #[error("credential of {length} bytes in call {xid:#010x}, at most 400 are allowed")]
    CredentialTooLong {
        /// XID of the call.
        xid: u32,
        /// Its length, in bytes.
        length: usize,
    },
    /// The verifier is too long.
    #[error("verifier of {length} bytes in call {xid:#010x}, at most 400 are allowed")]
    VerifierTooLong {
        /// XID of the call.
        xid: u32,
        /// Its length, in bytes.
        length: usize,
    },
}

impl CallHeaderError {
    /// Returns the reply that RFC 5531 §9 has for this error; `None` if the message is to be dropped.
    pub fn reply(&self) -> Option<ReplyHeader> {
        let (xid, reason) = match *self {
            Self::Malformed(_) | Self::NotACall { .. } => return None,
            Self::RpcVersion { xid, .. } => {
                (xid, RejectReason::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION })
            }
            Self::CredentialTooLong { xid, .. } => (xid, RejectReason::AuthError(AuthStat::BadCred)),
            Self::VerifierTooLong { xid, .. } => (xid, RejectReason::AuthError(AuthStat::BadVerf)),
        };
        Some(ReplyHeader { xid, body: ReplyBody::Denied(reason) })
    }
}

impl CallHeader {
    /// Returns a call message: this header, then `arguments`.
    pub fn with_arguments(&self, arguments: Stream) -> Result<Stream, EncodeError> {
        let auth = self.credential.encoded_len() + self.verifier.encoded_len();
        let mut encoder = Encoder::with_capacity(CALL_NUMBERS + auth);
        self.encode(&mut encoder)?;
        encoder.append(arguments);
        Ok(encoder.finish())
    }

    /// Reads a header and leaves the decoder at the arguments.
    pub fn read(decoder: &mut Decoder) -> Result<Self, CallHeaderError> {
        let xid = decoder.u32()?;
        match decoder.u32()? {
            CALL => {}
            message_type => return Err(CallHeaderError::NotACall { xid, message_type }),
        }
        // RFC 5531 §9: rpcvers MUST be 2.
        match decoder.u32()? {
            RPC_VERSION => {}
            version => return Err(CallHeaderError::RpcVersion { xid, version }),
        }
        let (program, version, procedure) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let credential = read_auth(decoder, |length| CallHeaderError::CredentialTooLong { xid, length })?;
        let verifier = read_auth(decoder, |length| CallHeaderError::VerifierTooLong { xid, length })?;
        Ok(Self { xid, program, version, procedure, credential, verifier })
    }
}

/// Reads credential or verifier. RFC 5531 §8.2: the body has at most 400 bytes.
fn read_auth(
    decoder: &mut Decoder,
    too_long: impl FnOnce(usize) -> CallHeaderError,
) -> Result<OpaqueAuth, CallHeaderError> {
    OpaqueAuth::decode(decoder).map_err(|error| match error {
        DecodeError::TooLong { count, max: AUTH_BODY_MAX, .. } => too_long(count),
        error => error.into(),
    })
}

impl Encode for CallHeader {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            encoder.u32(word);
        }
        self.credential.encode(encoder)?;
        self.verifier.encode(encoder)
    }
}

/// Decodes as [`CallHeader::read`] does, for callers that do not distinguish the reasons for a refusal.
impl Decode for CallHeader {
    const MIN_LEN: usize = 40;

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Self::read(decoder).map_err(|error| match error {
            CallHeaderError::Malformed(error) => error,
            CallHeaderError::NotACall { .. } => decoder.invalid("message type is not CALL"),
            CallHeaderError::RpcVersion { .. } => decoder.invalid("RPC version is not 2"),
            CallHeaderError::CredentialTooLong { .. } => decoder.invalid("credential longer than 400 bytes"),
            CallHeaderError::VerifierTooLong { .. } => decoder.invalid("verifier longer than 400 bytes"),
        })
    }
}

/// The header of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// XID of the call.
    pub xid: u32,
    /// The call's acceptance or denial.
    pub body: ReplyBody,
}

/// A reply that was accepted, or denied: `reply_body` (RFC 5531 §9).
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub enum ReplyBody {
    /// MSG_ACCEPTED: the caller was recognised.
    #[xdr(value = 0)]
    Accepted {
        /// The server's proof of its identity.
        verifier: OpaqueAuth,
        /// The status of the call.
        status: AcceptStat,
    },
    /// MSG_DENIED: the call was not examined.
    #[xdr(value = 1)]
    Denied(RejectReason),
}

/// The outcome of an accepted call: `accept_stat` with its data (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub enum AcceptStat {
    /// SUCCESS: the results follow.
    #[xdr(value = 0)]
    Success,
    /// PROG_UNAVAIL: no such program here.
    #[xdr(value = 1)]
    ProgramUnavailable,
    /// PROG_MISMATCH: the program has no such version here.
    #[xdr(value = 2)]
    ProgramMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// PROC_UNAVAIL: no such procedure in this version.
    #[xdr(value = 3)]
    ProcedureUnavailable,
    /// GARBAGE_ARGS: the arguments don't decode.
    #[xdr(value = 4)]
    GarbageArguments,
    /// SYSTEM_ERR: the server had an error of its own.
    #[xdr(value = 5)]
    SystemError,
}

/// The reason why a call was denied: `rejected_reply` (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub enum RejectReason {
    /// RPC_MISMATCH: not this version of the RPC protocol.
    #[xdr(value = 0)]
    RpcMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// AUTH_ERROR: the caller was not recognised.
    #[xdr(value = 1)]
    AuthError(AuthStat),
}

/// `auth_stat`: why authentication failed (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[non_exhaustive]
pub enum AuthStat {
    /// AUTH_OK.
    #[xdr(value = 0)]
    Ok,
    /// AUTH_BADCRED: bad credential.
    #[xdr(value = 1)]
    BadCred,
    /// AUTH_REJECTEDCRED: the client must begin a new session.
    #[xdr(value = 2)]
    RejectedCred,
    /// AUTH_BADVERF: bad verifier.
    #[xdr(value = 3)]
    BadVerf,
    /// AUTH_REJECTEDVERF: verifier expired or replayed.
    #[xdr(value = 4)]
    RejectedVerf,
    /// AUTH_TOOWEAK: rejected for security reasons.
    #[xdr(value = 5)]
    TooWeak,
    /// AUTH_INVALIDRESP: bogus response verifier.
    #[xdr(value = 6)]
    InvalidResp,
    /// AUTH_FAILED: reason unknown.
    #[xdr(value = 7)]
    Failed,
    /// AUTH_KERB_GENERIC, deprecated.
    #[xdr(value = 8)]
    KerbGeneric,
    /// AUTH_TIMEEXPIRE, deprecated.
    #[xdr(value = 9)]
    TimeExpire,
    /// AUTH_TKT_FILE, deprecated.
    #[xdr(value = 10)]
    TktFile,
    /// AUTH_DECODE, deprecated.
    #[xdr(value = 11)]
    Decode,
    /// AUTH_NET_ADDR, deprecated.
    #[xdr(value = 12)]
    NetAddr,
    /// RPCSEC_GSS_CREDPROBLEM: no credentials for the user.
    #[xdr(value = 13)]
    GssCredProblem,
    /// RPCSEC_GSS_CTXPROBLEM: problem with the context.
    #[xdr(value = 14)]
    GssCtxProblem,
    /// A value assigned later; RFC 5531 Appendix B allows more.
    #[xdr(default)]
    Other(u32),
}

/// The reason that a reply gives for the lack of results.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// PROG_UNAVAIL.
    #[error("the server does not offer this program (PROG_UNAVAIL)")]
    ProgramUnavailable,
    /// PROG_MISMATCH.
    #[error("the server offers versions {low} to {high} of this program (PROG_MISMATCH)")]
    ProgramMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// PROC_UNAVAIL.
    #[error("the server does not offer this procedure (PROC_UNAVAIL)")]
    ProcedureUnavailable,
    /// GARBAGE_ARGS.
    #[error("the server could not decode the arguments (GARBAGE_ARGS)")]
    GarbageArguments,
    /// SYSTEM_ERR.
    #[error("the server had an error of its own (SYSTEM_ERR)")]
    SystemError,
    /// RPC_MISMATCH.
    #[error("the server supports RPC versions {low} to {high} (RPC_MISMATCH)")]
    RpcMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// AUTH_ERROR.
    #[error("the server refused the credential (AUTH_ERROR, {0:?})")]
    AuthError(AuthStat),
}

impl ReplyHeader {
    /// Returns the header of an accepted call, with the empty verifier of AUTH_NONE and AUTH_SYS.
    pub const fn accepted(xid: u32, status: AcceptStat) -> Self {
        Self { xid, body: ReplyBody::Accepted { verifier: OpaqueAuth::none(), status } }
    }

    /// Returns the header of a denied call.
    pub const fn denied(xid: u32, reason: RejectReason) -> Self {
        Self { xid, body: ReplyBody::Denied(reason) }
    }

    /// Checks that results follow; otherwise returns the reason why not.
    pub const fn success(&self) -> Result<(), Refused> {
        let refused = match self.body {
            ReplyBody::Accepted { status, .. } => match status {
                AcceptStat::Success => return Ok(()),
                AcceptStat::ProgramUnavailable => Refused::ProgramUnavailable,
                AcceptStat::ProgramMismatch { low, high } => Refused::ProgramMismatch { low, high },
                AcceptStat::ProcedureUnavailable => Refused::ProcedureUnavailable,
                AcceptStat::GarbageArguments => Refused::GarbageArguments,
                AcceptStat::SystemError => Refused::SystemError,
            },
            ReplyBody::Denied(RejectReason::RpcMismatch { low, high }) => Refused::RpcMismatch { low, high },
            ReplyBody::Denied(RejectReason::AuthError(stat)) => Refused::AuthError(stat),
        };
        Err(refused)
    }

    /// Takes the header off a reply message, as [`Self::with_results`] made it.
    ///
    /// # Errors
    /// The message begins with no header of a reply.
    pub fn split(reply: Stream) -> Result<(Self, Stream), DecodeError> {
        let mut pieces = reply.into_pieces().into_iter();
        let first = match pieces.next() {
            Some(Piece::Inline(first)) => first,
            _ => Bytes::new(),
        };
        let mut decoder = Decoder::new(first.clone());
        let header = Self::decode(&mut decoder)?;
        let mut results = Stream::new();
        results.push(Piece::Inline(first.slice(decoder.position()..)));
        pieces.for_each(|piece| results.push(piece));
        Ok((header, results))
    }

    /// Returns this header with another verifier, if the call was accepted.
    #[must_use]
    pub fn with_verifier(mut self, new: OpaqueAuth) -> Self {
        if let ReplyBody::Accepted { verifier, .. } = &mut self.body {
            *verifier = new;
        }
        self
    }

    /// Returns a reply message: this header, then `results`.
    pub fn with_results(&self, results: Stream) -> Result<Stream, EncodeError> {
        let verifier = match &self.body {
            ReplyBody::Accepted { verifier, .. } => verifier.encoded_len(),
            ReplyBody::Denied(_) => 0,
        };
        let mut encoder = Encoder::with_capacity(REPLY_NUMBERS + verifier);
        self.encode(&mut encoder)?;
        encoder.append(results);
        Ok(encoder.finish())
    }
}

impl Encode for ReplyHeader {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.u32(self.xid);
        encoder.u32(REPLY);
        self.body.encode(encoder)
    }
}

impl Decode for ReplyHeader {
    const MIN_LEN: usize = 20;

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let xid = decoder.u32()?;
        if decoder.u32()? != REPLY {
            return Err(decoder.invalid("message type is not REPLY"));
        }
        Ok(Self { xid, body: ReplyBody::decode(decoder)? })
    }
}

#[cfg(test)]
mod tests;
