//! What a caller gives to a [`Client`](crate::Client) or a [`Backchannel`](crate::Backchannel), and gets back.

use std::fmt;
use std::time::Duration;

use rpcrdma_oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader};
use rpcrdma_proto::{self as proto, Form, IncomingReply, Invalidations, Sink, Travelled};
use rpcrdma_xdr::{Decoder, EncodeError, Stream};

use crate::error::CallError;

/// Longest RPC reply header, in bytes: six words and a verifier of 400 bytes (RFC 5531 §8.2, §9).
const REPLY_HEADER_MAX: usize = 24 + 400;
/// Bytes that follow it in the longest refusal, PROG_MISMATCH.
const REFUSAL_MAX: usize = 8;

/// One RPC call.
///
/// ```
/// use rpcrdma::{Call, Sink};
/// use rpcrdma_xdr::Encoder;
///
/// let mut arguments = Encoder::new();
/// arguments.u32(7);
/// // Results of at most 128 bytes, and a DDP-eligible one of up to 1 MiB besides.
/// let call = Call::new(0x2000_0001, 1, 3).arguments(arguments.finish()).results(128).sink(Sink::Pool(1 << 20));
/// # let _ = call;
/// ```
#[derive(Debug)]
pub struct Call {
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The procedure's name, for traces.
    pub name: &'static str,
    /// Who calls.
    pub credential: Credential,
    /// The encoded arguments; DDP-eligible ones are marked in it.
    pub arguments: Stream,
    /// How large the results can be.
    pub reply: ReplyShape,
    /// For the reply, reconnecting included; `None` for that of the configuration. A call has more time while its data, or that
    /// of calls before it, moves at the [least rate](rpcrdma_proto::Timeouts::least_rate).
    pub timeout: Option<Duration>,
    /// Whether the call is sent again if the connection is lost before its reply came (rule I8). The server's reply cache
    /// makes that safe for procedures that must not be repeated; without it the call then fails. A call through a
    /// [`Backchannel`](crate::Backchannel) always fails then: only the client can connect again (RFC 8167 §5.4).
    pub retransmit: bool,
}

/// How large the results of a call can be: what the client offers memory for before it calls (RFC 8166 §4.3).
///
/// Sizes that are too small make the server refuse the call
/// ([`CallError::Chunk`](crate::CallError::Chunk)) where the reply does not fit.
#[derive(Debug, Default)]
pub struct ReplyShape {
    /// Largest encoded size of the results in bytes, *without* the data of those in `sinks`. The RPC reply header is
    /// added by the client.
    pub max_len: usize,
    /// One for each DDP-eligible result, in the order of the results: where its data goes. Over TCP the data comes with
    /// the record, and these are dropped unused.
    pub sinks: Vec<Sink>,
}

impl Call {
    /// A call without arguments and results, as anonymous, retransmitted if need be.
    #[must_use]
    pub fn new(program: u32, version: u32, procedure: u32) -> Self {
        Self {
            program,
            version,
            procedure,
            name: "",
            credential: Credential::None,
            arguments: Stream::new(),
            reply: ReplyShape::default(),
            timeout: None,
            retransmit: true,
        }
    }

    /// Sets the procedure's name, for traces.
    #[must_use]
    pub fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Sets who calls.
    #[must_use]
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Sets the arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: Stream) -> Self {
        self.arguments = arguments;
        self
    }

    /// Sets the largest size of the results in bytes, without the data of those that have a sink.
    #[must_use]
    pub fn results(mut self, max_len: usize) -> Self {
        self.reply.max_len = max_len;
        self
    }

    /// Adds the place for the next DDP-eligible result.
    #[must_use]
    pub fn sink(mut self, sink: Sink) -> Self {
        self.reply.sinks.push(sink);
        self
    }

    /// Sets the [time](Self::timeout) for the reply.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Never sends the call twice: if the connection is lost it fails.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.retransmit = false;
        self
    }
}

impl Call {
    /// The RPC message under this XID, and how large its results can be.
    pub(crate) fn into_message(self, xid: u32) -> Result<(Stream, ReplyShape), EncodeError> {
        let header = CallHeader {
            xid,
            program: self.program,
            version: self.version,
            procedure: self.procedure,
            credential: OpaqueAuth::try_from(&self.credential)?,
            verifier: OpaqueAuth::none(),
        };
        Ok((header.with_arguments(self.arguments)?, self.reply))
    }

    /// The call as a requester of RPC-over-RDMA takes it.
    pub(crate) fn into_protocol(self, xid: u32, timeout: Duration) -> Result<proto::Call, EncodeError> {
        let (program, version, procedure) = (self.program, self.version, self.procedure);
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
            flavor_touches_data: false,
            timeout: Some(timeout),
        })
    }
}

/// A call's successful reply.
#[derive(Debug)]
pub struct Reply {
    /// The XID that matched the reply to the call.
    pub xid: u32,
    /// The results, from the first byte behind the RPC header on. Slices of it keep the memory of the message.
    pub results: Decoder,
    /// How call and reply travelled.
    pub travelled: Transfer,
}

impl Reply {
    /// Takes the RPC header off a reply.
    pub(crate) fn open(mut message: Decoder, travelled: Transfer) -> Result<Self, CallError> {
        let header: ReplyHeader = message.decode()?;
        header.success()?;
        Ok(Self { xid: header.xid, results: message, travelled })
    }
}

impl TryFrom<IncomingReply> for Reply {
    type Error = CallError;

    fn try_from(reply: IncomingReply) -> Result<Self, CallError> {
        let travelled = Transfer {
            transport: Transport::Rdma,
            call: reply.call,
            reply: reply.reply,
            invalidations: reply.invalidations,
        };
        Self::open(reply.message, travelled)
    }
}

/// How a call and its reply travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfer {
    /// Over what.
    pub transport: Transport,
    /// The call (of its last transmission).
    pub call: Travelled,
    /// The reply.
    pub reply: Travelled,
    /// Who closed the windows that were offered to the Responder.
    pub invalidations: Invalidations,
}

/// What a connection runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// RPC-over-RDMA.
    Rdma,
    /// TCP with record marking.
    Tcp,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => {
                write!(f, "call {} B, reply {} B in TCP records", self.call.sent, self.reply.sent)
            }
            Transport::Rdma => {
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

/// Writes the way of one message.
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
