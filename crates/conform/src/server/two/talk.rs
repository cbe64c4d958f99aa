//! A connection in Version Two: messages of a profile, and the reactions of the server.
//!
//! A server may send operations on characteristics and grants at any time. They are kept ([`Talk::told`]), and are no
//! reaction to a message of the tester.
//!
//! *Errors.* A message that does not decode is [`Heard::Odd`], and fails the row that waits for a reaction.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rpcrdma_proto::wire::two::transmission::{Operation, ReportedError};
use rpcrdma_proto::wire::two::{self, Exchange};
use rpcrdma_proto::wire::{Body, ChunkLists, Direction, ErrorBody, Header};
use rpcrdma_proto::{Limits, Profile};
use tokio::time::Instant;

use crate::endpoint::{Endpoint, Next};
use crate::message::{RpcEnd, Words, is_for, rpc_reply};
use crate::report::{Outcome, Wrong, differs, fail};
use crate::server::bench::{Bench, CREDITS};

/// `rdma_credit` of P3: the number of messages that the server may send on a connection (version-two-07 §4.2.1). No
/// row causes more, and the tester has this many Receives.
pub(super) const LIMIT: u32 = 1000;

/// The error codes of all profiles, and those of ROPT_REPTERR (rtrext-02 §9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Version,
    /// RDMA2_ERR_BAD_HEADER of P1, RDMA2_ERR_BAD_XDR of P2 and P3.
    BadXdr,
    /// RDMA2_ERR_INVAL_PROC of P2, RDMA2_ERR_INVAL_HTYPE of P3.
    Type,
    Option,
    Value,
    Continuation,
    ReadChunks,
    WriteChunks,
    Segments,
    WriteResource,
    ReplyResource,
    Mismatch,
    System,
    HeaderType,
    OperationType,
    StrayContinuation,
    Sequence,
    Xid,
    Offset,
    Target,
    PayloadLength,
}

impl Code {
    pub(super) const fn of(error: &ErrorBody) -> Option<Self> {
        Some(match error {
            ErrorBody::Version { .. } => Self::Version,
            ErrorBody::Chunk => Self::BadXdr,
            ErrorBody::Two(error) => match error {
                two::ErrorBody::InvalidOption => Self::Option,
                two::ErrorBody::InvalidProcedure => Self::Type,
                two::ErrorBody::ReplyResource { .. } => Self::ReplyResource,
                two::ErrorBody::System => Self::System,
                two::ErrorBody::BadValue => Self::Value,
                two::ErrorBody::InvalidContinuation => Self::Continuation,
                two::ErrorBody::ReadChunks { .. } => Self::ReadChunks,
                two::ErrorBody::WriteChunks { .. } => Self::WriteChunks,
                two::ErrorBody::Segments { .. } => Self::Segments,
                two::ErrorBody::WriteResource { .. } => Self::WriteResource,
                two::ErrorBody::VersionMismatch => Self::Mismatch,
                two::ErrorBody::Report(report) => match report.error {
                    ReportedError::HeaderType { .. } => Self::HeaderType,
                    ReportedError::OperationType { .. } => Self::OperationType,
                    ReportedError::Continuation => Self::StrayContinuation,
                    ReportedError::Sequence { .. } => Self::Sequence,
                    ReportedError::Xid { .. } => Self::Xid,
                    ReportedError::Offset { .. } => Self::Offset,
                    ReportedError::Target { .. } => Self::Target,
                    ReportedError::PayloadLength { .. } => Self::PayloadLength,
                },
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "ERR_VERS",
            Self::BadXdr => "BAD_XDR",
            Self::Type => "INVAL_HTYPE",
            Self::Option => "INVAL_OPTION",
            Self::Value => "BAD_PROPVAL",
            Self::Continuation => "INVAL_CONT",
            Self::ReadChunks => "READ_CHUNKS",
            Self::WriteChunks => "WRITE_CHUNKS",
            Self::Segments => "SEGMENTS",
            Self::WriteResource => "WRITE_RESOURCE",
            Self::ReplyResource => "REPLY_RESOURCE",
            Self::Mismatch => "VERS_MISMATCH",
            Self::System => "SYSTEM",
            Self::HeaderType => "BADHMT",
            Self::OperationType => "BADOMT",
            Self::StrayContinuation => "BADCONT",
            Self::Sequence => "BADSEQ",
            Self::Xid => "BADXID",
            Self::Offset => "BADOFF",
            Self::Target => "BADTBSN",
            Self::PayloadLength => "BADPL",
        })
    }
}

/// Reaction of the server to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    Closed,
    Error(Code),
    Reply(RpcEnd),
    /// Any other message.
    Odd(String),
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Closed => f.write_str("connection closed"),
            Self::Error(code) => code.fmt(f),
            Self::Reply(end) => write!(f, "reply {end}"),
            Self::Odd(what) => f.write_str(what),
        }
    }
}

pub(super) const SUCCESS: Heard = Heard::Reply(RpcEnd::Success);
pub(super) const GARBAGE: Heard = Heard::Reply(RpcEnd::GarbageArguments);

/// A reaction, with the header of its message.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) heard: Heard,
    pub(super) header: Option<Header>,
    /// The window that the message invalidated.
    pub(super) invalidated: Option<u32>,
}

impl Answer {
    const fn bare(heard: Heard) -> Self {
        Self { heard, header: None, invalidated: None }
    }

    /// Returns the error of an RDMA2_ERROR.
    pub(super) const fn error(&self) -> Option<&ErrorBody> {
        match &self.header {
            Some(Header { body: Body::Error(error), .. }) => Some(error),
            _ => None,
        }
    }
}

/// An operation on characteristics from the server.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) xid: u32,
    pub(super) exchange: Exchange,
    /// Length of the message, in bytes.
    pub(super) len: usize,
}

/// A connection in Version Two; see the module.
pub(super) struct Talk {
    pub(super) endpoint: Endpoint,
    pub(super) profile: Profile,
    /// Operations that the server sent without an answer to be waited for.
    pub(super) told: Vec<Told>,
    /// Messages sent, and received.
    pub(super) sent: u32,
    pub(super) received: u32,
    /// `rdma_credit` of the last message.
    pub(super) credit: u32,
}

/// A message of a row.
pub(super) struct Case {
    pub(super) label: String,
    pub(super) xid: u32,
    pub(super) bytes: Bytes,
}

/// Returns the `rdma_credit` of ordinary messages.
pub(super) const fn credit(profile: Profile) -> u32 {
    match profile {
        Profile::P3 => LIMIT,
        _ => CREDITS,
    }
}

/// Returns a message of a client with this body, and a payload behind it.
pub(super) fn encode(profile: Profile, xid: u32, invalidate: u32, body: Body, payload: &[u8]) -> Bytes {
    // Of the operations without a payload, only responses have the direction of a Responder (version-two-01 §4.2.2).
    let direction = match body {
        Body::Two(two::Body::Exchange(Exchange::Response { .. })) => Direction::Reply,
        _ => Direction::Call,
    };
    let header =
        Header { xid, version: 2, credit: credit(profile), direction: Some(direction), invalidate, body };
    let mut out = BytesMut::new();
    profile.codec().encode(&header, &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

/// Returns a message of these words behind `rdma_vers`, `rdma_credit`, and a payload behind them.
pub(super) fn raw(profile: Profile, xid: u32, words: &[u32], payload: &[u8]) -> Bytes {
    Words::new().words(&[xid, 2, credit(profile)]).words(words).bytes(payload).finish()
}

/// Returns an operation on characteristics.
pub(super) fn operation(profile: Profile, xid: u32, exchange: Exchange) -> Bytes {
    encode(profile, xid, 0, Body::Two(two::Body::Exchange(exchange)), &[])
}

/// Returns the words of a Call with these lists: `rdma_proc` and the words behind it.
pub(super) fn call_words(profile: Profile, lists: &[u32]) -> Vec<u32> {
    let front: &[u32] = match profile {
        Profile::P1 => &[0, 0],
        Profile::P2 => &[0, 0, 0],
        _ => &[10, 0],
    };
    [front, lists].concat()
}

/// Returns a NULL call with these lists.
pub(super) fn null_call(bench: &mut Bench<'_>, profile: Profile, lists: ChunkLists) -> (u32, Bytes) {
    let xid = bench.xid();
    let payload = bench.null_rpc().call(xid, 0).finish();
    (xid, encode(profile, xid, 0, Body::Message(lists), &payload))
}

impl Talk {
    /// Opens a connection on which nothing was sent yet.
    pub(super) async fn open(bench: &Bench<'_>, profile: Profile) -> Result<Self, Wrong> {
        let endpoint = bench.connect().await?;
        Ok(Self { endpoint, profile, told: Vec::new(), sent: 0, received: 0, credit: 1 })
    }

    /// Opens a connection and makes a NULL call on it.
    pub(super) async fn ready(bench: &mut Bench<'_>, profile: Profile) -> Result<Self, Wrong> {
        let mut talk = Self::open(bench, profile).await?;
        talk.null(bench).await?;
        Ok(talk)
    }

    pub(super) fn send(&mut self, message: Bytes) {
        self.sent = self.sent.wrapping_add(1);
        self.endpoint.send(message);
    }

    /// Waits for the reaction to `xid`, at most for `limit`.
    pub(super) async fn observe(&mut self, xid: u32, limit: Duration) -> Answer {
        self.observe_any(&mut vec![xid], limit).await
    }

    /// Waits for the reaction to one of these messages, which is then taken out.
    pub(super) async fn observe_any(&mut self, xids: &mut Vec<u32>, limit: Duration) -> Answer {
        let deadline = Instant::now() + limit;
        loop {
            let arrived = match self.endpoint.next(deadline.saturating_duration_since(Instant::now())).await {
                Next::Message(arrived) => arrived,
                Next::Silence => return Answer::bare(Heard::Nothing),
                Next::Closed(_) => return Answer::bare(Heard::Closed),
            };
            self.received = self.received.wrapping_add(1);
            let due = xids.first().copied().unwrap_or_default();
            let known = xids.iter().position(|xid| is_for(&arrived.bytes, *xid));
            let xid = known.map_or(due, |at| xids.swap_remove(at));
            if let Some(answer) = self.answer(&arrived.bytes, xid) {
                return Answer { invalidated: arrived.invalidated, ..answer };
            }
        }
    }

    /// Decodes a message as the reaction to `xid`; `None` if it is an operation or a grant.
    fn answer(&mut self, bytes: &Bytes, xid: u32) -> Option<Answer> {
        let (header, len) = match self.profile.codec().decode(bytes, &Limits::default()) {
            Ok(decoded) => decoded,
            Err(error) => {
                return Some(Answer::bare(Heard::Odd(format!("a message that does not decode: {error}"))));
            }
        };
        let payload = bytes.slice(len.min(bytes.len())..);
        self.credit = header.credit;
        let counts = self.profile == Profile::P3;
        // A report names its transmission itself. A Responder gives it the direction REPLY (version-two-01 §4.2.2), and no
        // section fixes its XID.
        let is_report = matches!(&header.body, Body::Error(ErrorBody::Two(two::ErrorBody::Report(_))));
        let heard = match &header.body {
            Body::Two(two::Body::Exchange(exchange)) => {
                self.told.push(Told { xid: header.xid, exchange: exchange.clone(), len: bytes.len() });
                return None;
            }
            Body::Two(two::Body::Grant) => return None,
            _ if is_report && header.direction != Some(Direction::Reply) => {
                Heard::Odd("a report without the direction REPLY".into())
            }
            _ if !is_report && header.xid != xid => {
                Heard::Odd(format!("a message under XID {:#010x}, not {xid:#010x}", header.xid))
            }
            Body::Error(_) if !payload.is_empty() => Heard::Odd("an RDMA2_ERROR with a payload".into()),
            Body::Error(error) => match Code::of(error) {
                Some(code) => Heard::Error(code),
                None => Heard::Odd("an RDMA2_ERROR of an unknown kind".into()),
            },
            // Version One has this rule (RFC 8166 §3.3.1); in P3 a limit may be any number.
            Body::Message(_) if header.credit == 0 && !counts => {
                Heard::Odd("a reply that grants 0 credits".into())
            }
            Body::Message(lists) if !lists.read.is_empty() => Heard::Odd("a reply with a Read list".into()),
            Body::Message(_) if header.direction == Some(Direction::Call) => {
                Heard::Odd("a Call instead of a reply".into())
            }
            Body::Message(_) => reply(xid, payload),
            Body::Two(two::Body::Transmission(Operation::Response(response))) if response.count == 1 => {
                let len = usize::try_from(response.payload_len).unwrap_or(usize::MAX);
                reply(xid, payload.slice(..len.min(payload.len())))
            }
            _ => Heard::Odd("a message of another type than a reply".into()),
        };
        Some(Answer { heard, header: Some(header), invalidated: None })
    }

    /// Makes a NULL call.
    pub(super) async fn null(&mut self, bench: &mut Bench<'_>) -> Result<Answer, Wrong> {
        let (xid, message) = null_call(bench, self.profile, ChunkLists::default());
        self.send(message);
        match self.observe(xid, bench.limit()).await {
            answer if answer.heard == SUCCESS => Ok(answer),
            answer => Err(fail(format!("a NULL call: {}", answer.heard))),
        }
    }

    /// Sends a message, checks the reaction, and that the connection is served afterwards.
    pub(super) async fn provoke(
        &mut self,
        bench: &mut Bench<'_>,
        case: Case,
        allowed: &[Heard],
    ) -> Result<Answer, Wrong> {
        let Case { label, xid, bytes } = case;
        let labelled = |what: String| if label.is_empty() { what } else { format!("{label}: {what}") };
        self.send(bytes);
        let silent = allowed.contains(&Heard::Nothing);
        let limit = if silent { bench.target.silence } else { bench.limit() };
        let answer = self.observe(xid, limit).await;
        if !allowed.contains(&answer.heard) {
            return Err(fail(labelled(answer.heard.to_string())));
        }
        if self.endpoint.has_ended() {
            return match answer.heard {
                Heard::Closed => Ok(answer),
                heard => Err(differs(labelled(format!("{heard}, then the connection is closed")))),
            };
        }
        match self.null(bench).await {
            Ok(_) => Ok(answer),
            Err(_) if self.endpoint.has_ended() => {
                Err(differs(labelled(format!("{}, then the connection is closed", answer.heard))))
            }
            Err(wrong) => Err(fail(labelled(format!("the connection does not serve on: {}", wrong.seen)))),
        }
    }

    /// Closes the connection, and checks that the server answers on a new one.
    pub(super) async fn finish(self, bench: &mut Bench<'_>) -> Result<(), Wrong> {
        let profile = self.profile;
        self.endpoint.close().await;
        alive(bench, profile).await
    }
}

fn reply(xid: u32, payload: Bytes) -> Heard {
    match rpc_reply(xid, payload) {
        Ok((end, _)) => Heard::Reply(end),
        Err(what) => Heard::Odd(what),
    }
}

/// Checks that the server answers a NULL call on a new connection.
pub(super) async fn alive(bench: &mut Bench<'_>, profile: Profile) -> Result<(), Wrong> {
    match Talk::ready(bench, profile).await {
        Ok(talk) => {
            talk.endpoint.close().await;
            Ok(())
        }
        Err(wrong) => Err(fail(format!("a new connection is not served: {}", wrong.seen))),
    }
}

/// Sends each message on a working connection, all on one as long as it stays open.
pub(super) async fn each(
    bench: &mut Bench<'_>,
    profile: Profile,
    cases: Vec<Case>,
    allowed: &[Heard],
) -> Outcome {
    let mut talk = Talk::ready(bench, profile).await?;
    let mut seen: Vec<String> = Vec::new();
    let count = cases.len();
    for case in cases {
        if talk.endpoint.has_ended() {
            talk = Talk::ready(bench, profile).await?;
        }
        let heard = talk.provoke(bench, case, allowed).await?.heard.to_string();
        if !seen.contains(&heard) {
            seen.push(heard);
        }
    }
    talk.finish(bench).await?;
    let seen = seen.join(", ");
    Ok(if count == 1 { seen } else { format!("{seen} ({count} messages)") })
}
