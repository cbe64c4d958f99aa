//! Calls that a caller gives to a [`Client`](crate::Client) or a [`Backchannel`](crate::Backchannel), and their
//! replies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_oncrpc::typed::{self, Bounds, Procedure};
use rpcrdma_oncrpc::{CallHeader, Credential, Effect, OpaqueAuth, ReplyHeader, TransportKind};
use rpcrdma_proto::{self as proto, Form, IncomingReply, Invalidations, Sink, Travelled};
use rpcrdma_xdr::{Decoder, EncodeError, Stream};

use crate::error::CallError;
use crate::gss::{GssUser, Proof};

/// Longest RPC reply header, in bytes: six words and a verifier of 400 bytes (RFC 5531 §8.2, §9).
pub(crate) const REPLY_HEADER_MAX: usize = 24 + 400;
/// Shortest RPC reply header before results, in bytes: six words, with an empty verifier.
pub(crate) const REPLY_HEADER_MIN: usize = 24;
/// Bytes that follow the header in the longest refusal, PROG_MISMATCH.
const REFUSAL_MAX: usize = 8;

/// An RPC call, without the types of its arguments and results. [`of`](Self::of) makes it from a
/// [`Procedure`](crate::Procedure), which knows them.
///
/// ```
/// use rpcrdma::{Call, Sink};
/// use rpcrdma_xdr::Encoder;
///
/// let mut arguments = Encoder::new();
/// arguments.u32(7);
/// // Results of at most 128 bytes, plus a DDP-eligible result of up to 1 MiB.
/// let call = Call::new(0x2000_0001, 1, 3).arguments(arguments.finish()).results(128).sink(Sink::Pool(1 << 20));
/// # let _ = call;
/// ```
#[derive(Debug)]
pub struct Call {
    /// RPC program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// The procedure's name, for traces.
    pub name: &'static str,
    /// The kind of change that the procedure makes, as far as the caller knows; [`Effect::State`] if nothing is known. A
    /// [`Retry`](crate::Retry) repeats a call that may have been carried out only if this is [`Effect::Idempotent`].
    pub effect: Effect,
    /// The caller's identity, unless `gss` has it.
    pub credential: Credential,
    /// The caller by RPCSEC_GSS (RFC 2203), whose context proves the identity and protects the call. Calls through a
    /// [`Backchannel`](crate::Backchannel) cannot have one.
    pub gss: Option<Arc<GssUser>>,
    /// The encoded arguments; the stream marks the DDP-eligible items.
    pub arguments: Stream,
    /// The largest possible results.
    pub reply: ReplyShape,
    /// Time for the reply, reconnecting included; `None` for that of the configuration. The time grows while data of
    /// the call, or of calls before it, moves at the [least rate](rpcrdma_proto::Timeouts::least_rate).
    pub timeout: Option<Duration>,
    /// Time for everything that the call needs, from the moment when it is made. Connecting counts, and so do a security
    /// context, and all attempts and pauses of a [`Retry`](crate::Retry). Unlike [`timeout`](Self::timeout) it never grows.
    /// `None`: no such limit.
    pub deadline: Option<Duration>,
    /// Calls of one key take one of the client's [connections](crate::ClientConfig::connections), while that is up. If
    /// it is down, the call takes another one, and the client opens the first one again. `None`: the connection with
    /// the fewest calls in progress. Calls through a [`Backchannel`](crate::Backchannel) have one connection only.
    pub key: Option<u64>,
    /// Whether the call is sent again if the connection is lost before its reply came (rule I8); if not, the call fails
    /// then. The server's reply cache makes sending again safe for procedures that must not be repeated. A call through
    /// a [`Backchannel`](crate::Backchannel) always fails then: only the client can connect again (RFC 8167 §5.4).
    pub retransmit: bool,
    /// What a context made of this call.
    pub(crate) proof: Option<Proof>,
}

/// The largest results that a call can have. The client offers memory for them before it calls (RFC 8166 §4.3).
///
/// If a size is too small and the reply does not fit, the server refuses the call
/// ([`CallError::Chunk`](crate::CallError::Chunk)).
#[derive(Debug, Default)]
pub struct ReplyShape {
    /// Largest encoded size of the results in bytes, *without* the data of results in `sinks`. The client adds the RPC
    /// reply header.
    pub max_len: usize,
    /// Destinations for the data of DDP-eligible results: one for each, in the order of the results. Over TCP the data
    /// comes with the record, and the sinks are dropped unused.
    pub sinks: Vec<Sink>,
}

impl Call {
    /// Creates a call without arguments and results, with an anonymous credential. The call is sent again if its
    /// connection is lost.
    #[must_use]
    pub fn new(program: u32, version: u32, procedure: u32) -> Self {
        Self {
            program,
            version,
            procedure,
            name: "",
            effect: Effect::State,
            credential: Credential::None,
            gss: None,
            arguments: Stream::new(),
            reply: ReplyShape::default(),
            timeout: None,
            deadline: None,
            key: None,
            retransmit: true,
            proof: None,
        }
    }

    /// Creates a call of procedure 0, which does nothing.
    #[must_use]
    pub fn null(program: u32, version: u32) -> Self {
        Self::new(program, version, 0).name("NULL").effect(Effect::Idempotent)
    }

    /// Creates a call of this procedure, with [`Procedure::bounds`] for its results: a sink from the pool
    /// ([`Sink::Pool`]) for each DDP-eligible one. [`sinks`](Self::sinks) replaces them.
    ///
    /// # Errors
    /// [`CallError::Unsendable`] if the arguments break the limits of their type.
    pub fn of<P: Procedure>(arguments: &P::Arguments) -> Result<Self, CallError> {
        Self::within::<P>(arguments, P::bounds(arguments))
    }

    /// Creates a call of this procedure, with results of at most this size.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn within<P: Procedure>(arguments: &P::Arguments, bounds: Bounds) -> Result<Self, CallError> {
        Ok(Self {
            name: P::NAME,
            effect: P::EFFECT,
            arguments: typed::encode_arguments::<P>(arguments)?,
            reply: ReplyShape {
                max_len: bounds.inline,
                sinks: bounds.items().iter().copied().map(Sink::Pool).collect(),
            },
            ..Self::new(P::PROGRAM, P::VERSION, P::NUMBER)
        })
    }

    /// Sets the procedure's name, for traces.
    #[must_use]
    pub fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Sets the kind of change that the procedure makes.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Sets the caller's credential.
    #[must_use]
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Makes the call as this user of RPCSEC_GSS.
    #[must_use]
    pub fn gss(mut self, user: Arc<GssUser>) -> Self {
        self.gss = Some(user);
        self
    }

    /// Sets the arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: Stream) -> Self {
        self.arguments = arguments;
        self
    }

    /// Sets the largest size of the results in bytes, without the data of results that have a sink.
    #[must_use]
    pub fn results(mut self, max_len: usize) -> Self {
        self.reply.max_len = max_len;
        self
    }

    /// Adds the sink for the next DDP-eligible result.
    #[must_use]
    pub fn sink(mut self, sink: Sink) -> Self {
        self.reply.sinks.push(sink);
        self
    }

    /// Replaces the sinks of all DDP-eligible results.
    #[must_use]
    pub fn sinks(mut self, sinks: Vec<Sink>) -> Self {
        self.reply.sinks = sinks;
        self
    }

    /// Sets the [time](Self::timeout) for the reply.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the [deadline](Self::deadline): the time for everything that the call needs.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the [key](Self::key) that chooses the call's connection.
    #[must_use]
    pub fn key(mut self, key: u64) -> Self {
        self.key = Some(key);
        self
    }

    /// Forbids sending the call twice: if its connection is lost, the call fails.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.retransmit = false;
        self
    }

    /// Returns a call that asks for this one's results once more. The arguments are shared, not copied. A buffer of the
    /// caller that is a sink belongs to this call. In its place the new one has memory of the pool, of equal length.
    #[must_use]
    pub fn again(&self) -> Self {
        let pool = |sink: &Sink| Sink::Pool(sink.len());
        Self {
            credential: self.credential.clone(),
            gss: self.gss.clone(),
            arguments: self.arguments.clone(),
            reply: ReplyShape {
                max_len: self.reply.max_len,
                sinks: self.reply.sinks.iter().map(pool).collect(),
            },
            proof: None,
            ..*self
        }
    }
}

impl Call {
    /// Returns the time for the reply, which is that of the configuration unless the call has its own.
    pub(crate) fn time(&self, configured: Duration) -> Duration {
        self.timeout.unwrap_or(configured).min(self.deadline.unwrap_or(Duration::MAX))
    }

    /// Returns the XID, if a context has signed the call with one.
    pub(crate) fn xid(&self) -> Option<u32> {
        self.proof.as_ref().map(|proof| proof.xid)
    }

    /// Returns the RPC message under this XID, and the largest results.
    pub(crate) fn into_message(self, xid: u32) -> Result<(Stream, ReplyShape), EncodeError> {
        let (credential, verifier) = match self.proof {
            Some(Proof { credential, verifier, .. }) => (credential, verifier),
            None => (OpaqueAuth::try_from(&self.credential)?, OpaqueAuth::none()),
        };
        let Self { program, version, procedure, .. } = self;
        let header = CallHeader { xid, program, version, procedure, credential, verifier };
        Ok((header.with_arguments(self.arguments)?, self.reply))
    }

    /// Converts the call to the form that a requester of RPC-over-RDMA takes.
    pub(crate) fn into_protocol(self, xid: u32, timeout: Duration) -> Result<proto::Call, EncodeError> {
        let (program, version, procedure) = (self.program, self.version, self.procedure);
        let flavor_touches_data = self.proof.as_ref().is_some_and(|proof| proof.touches_data);
        let (message, reply) = self.into_message(xid)?;
        Ok(proto::Call {
            xid,
            program,
            version,
            procedure,
            message,
            reply: proto::ReplyShape {
                max_len: REPLY_HEADER_MAX.saturating_add(reply.max_len.max(REFUSAL_MAX)),
                sinks: reply.sinks,
            },
            flavor_touches_data,
            timeout: Some(timeout),
        })
    }
}

impl ReplyShape {
    /// Returns the size of the largest results with all their data, in bytes.
    pub(crate) fn whole(&self) -> usize {
        self.sinks.iter().map(Sink::len).fold(self.max_len, usize::saturating_add)
    }
}

/// A call's successful reply.
#[derive(Debug)]
pub struct Reply {
    /// The XID that matched the reply to the call.
    pub xid: u32,
    /// The results, from the first byte behind the RPC header. Slices of them keep the memory of the message.
    pub results: Decoder,
    /// How call and reply travelled.
    pub travelled: Transfer,
}

impl Reply {
    /// Decodes the results of a procedure.
    ///
    /// # Errors
    /// [`CallError::BadReply`] if they are no value of their type, or if bytes are left over.
    pub fn into_results<P: Procedure>(self) -> Result<P::Results, CallError> {
        Ok(self.results.decode_all()?)
    }
}

/// The reply message of a call, whatever it says.
#[derive(Debug)]
pub(crate) struct RawReply {
    pub(crate) message: Decoder,
    pub(crate) travelled: Transfer,
    /// Whether the call had left on an earlier connection too.
    pub(crate) sent_before: bool,
}

impl TryFrom<RawReply> for Reply {
    type Error = CallError;

    /// Decodes the RPC header, which has to report success. A refusal does not say what became of an earlier
    /// transmission (rule I8).
    fn try_from(reply: RawReply) -> Result<Self, CallError> {
        let RawReply { mut message, travelled, sent_before } = reply;
        let header: ReplyHeader = message.decode()?;
        header.success().map_err(|refused| {
            let error = CallError::from(refused);
            if sent_before { error.sent_before() } else { error }
        })?;
        Ok(Self { xid: header.xid, results: message, travelled })
    }
}

impl From<IncomingReply> for RawReply {
    fn from(reply: IncomingReply) -> Self {
        let travelled = Transfer {
            transport: TransportKind::Rdma,
            call: reply.call,
            reply: reply.reply,
            invalidations: reply.invalidations,
        };
        Self { message: reply.message, travelled, sent_before: reply.sent_before }
    }
}

/// How a call and its reply travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfer {
    /// The transport.
    pub transport: TransportKind,
    /// How the call travelled, in its last transmission.
    pub call: Travelled,
    /// How the reply travelled.
    pub reply: Travelled,
    /// How the windows that were offered to the Responder were invalidated.
    pub invalidations: Invalidations,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            TransportKind::Tcp => {
                write!(f, "call {} B, reply {} B in TCP records", self.call.sent, self.reply.sent)
            }
            _ => {
                write!(f, "call {}; reply {}", Way(&self.call), Way(&self.reply))?;
                let Invalidations { remote, local, .. } = self.invalidations;
                match (remote, local) {
                    (0, 0) => Ok(()),
                    (_, 0) => write!(f, "; invalidated by the responder"),
                    (0, _) => write!(f, "; invalidated by the requester"),
                    _ => write!(f, "; invalidated by the responder ({remote}) and the requester ({local})"),
                }
            }
        }
    }
}

/// How one message travelled, for display.
pub(crate) struct Way<'a>(pub(crate) &'a Travelled);

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.0;
        let form = match way.form {
            Form::Inline => "inline",
            Form::Padded => "padded",
            Form::Reduced => "reduced",
            Form::Continued => "continued",
            Form::Placed => "placed",
            Form::Long => "long",
            _ => "other",
        };
        write!(f, "{form}, {} B by Send", way.sent)?;
        for (bytes, path) in
            [(way.read, "RDMA Read"), (way.written, "Write chunk"), (way.reply_chunk, "Reply chunk")]
        {
            if bytes > 0 {
                write!(f, ", {bytes} B by {path}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rpcrdma_oncrpc::{AcceptStat, AuthSys, ReplyBody, auth::flavor};
    use rpcrdma_xdr::encode;

    use super::*;

    /// RFC 5531 Appendix A: the verifier beside AUTH_SYS is AUTH_NONE; §10.1: that has no body.
    // requirement: rfc5531-9-5, rfc5531-A-3
    #[test]
    fn rfc5531_a_the_verifier_of_a_call_is_auth_none() {
        let sys = Credential::Sys(AuthSys { uid: 1000, gid: 100, ..AuthSys::default() });
        for (credential, flavor) in [(sys, 1), (Credential::None, 0)] {
            let call =
                Call::new(100_003, 3, 1).credential(credential.clone()).arguments(encode(&7u32).unwrap());
            let (message, _) = call.into_message(9).unwrap();
            let mut message = Decoder::new(message.flatten().0);
            let header = CallHeader::read(&mut message).unwrap();
            assert_eq!((header.xid, header.program, header.version, header.procedure), (9, 100_003, 3, 1));
            assert_eq!(header.credential, OpaqueAuth::try_from(&credential).unwrap());
            assert_eq!((header.credential.flavor, header.verifier), (flavor, OpaqueAuth::none()));
            assert_eq!(message.decode_all(), Ok(7u32));
        }
    }

    /// RFC 5531 Appendix A: a server may return a short form of the credential, which a client need not use.
    // requirement: rfc5531-A-4
    #[test]
    fn rfc5531_a_a_reply_with_a_verifier_of_auth_short_is_taken() {
        for flavor in [flavor::AUTH_NONE, flavor::AUTH_SHORT] {
            let verifier = OpaqueAuth { flavor, body: Bytes::from_static(b"short form") };
            let body = ReplyBody::Accepted { verifier, status: AcceptStat::Success };
            let message = ReplyHeader { xid: 9, body }.with_results(encode(&7u32).unwrap()).unwrap();
            let way = Travelled::default();
            let travelled = Transfer {
                transport: TransportKind::Tcp,
                call: way,
                reply: way,
                invalidations: Invalidations::default(),
            };
            let message = Decoder::new(message.flatten().0);
            let reply = Reply::try_from(RawReply { message, travelled, sent_before: false }).unwrap();
            assert_eq!((reply.xid, reply.results.decode_all()), (9, Ok(7u32)));
        }
    }
}
