//! Messages built word by word, and the decoding of answers.
//!
//! This module owns only bytes. Messages of a peer are decoded with bounds; a message that does not decode is
//! [`Reaction::Odd`], with the reason.

use std::fmt;

use bytes::{Bytes, BytesMut};
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, ChunkLists, Codec, ErrorBody, Header};
use rpcrdma_xdr::Decoder;

/// `rdma_proc` (RFC 8166 §4.2.4).
pub(crate) const RDMA_MSG: u32 = 0;
pub(crate) const RDMA_NOMSG: u32 = 1;
pub(crate) const RDMA_MSGP: u32 = 2;
pub(crate) const RDMA_DONE: u32 = 3;
pub(crate) const RDMA_ERROR: u32 = 4;
/// `rdma_err` (RFC 8166 §4.5).
pub(crate) const ERR_VERS: u32 = 1;
pub(crate) const ERR_CHUNK: u32 = 2;
/// Length of an RDMA_MSG header with three absent lists, in bytes (RFC 8166 §4.5).
pub(crate) const LEAST_HEADER: usize = 28;
/// Maximum length of the body of a credential or verifier, in bytes (RFC 5531 §8.2).
const MAX_AUTH: usize = 400;

/// XDR bytes that are built item by item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(Vec<u8>);

impl Words {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        self
    }

    pub(crate) fn long(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Appends length, bytes and pad.
    pub(crate) fn opaque(self, bytes: &[u8]) -> Self {
        let mut words = self.words(&[u32_of(bytes.len())]).bytes(bytes);
        words.0.resize(words.0.len().next_multiple_of(4), 0);
        words
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.into()
    }
}

/// Converts a length. Lengths here are of memory that the tester allocated.
pub(crate) fn u32_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Returns a header with these lists and this payload behind it.
pub(crate) fn message(xid: u32, credit: u32, procedure: u32, lists: ChunkLists, payload: &[u8]) -> Bytes {
    let body = if procedure == RDMA_NOMSG { Body::NoMessage(lists) } else { Body::Message(lists) };
    let mut out = BytesMut::new();
    V1.encode(&Header::v1(xid, credit, body), &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

/// Program and credential of a call.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// Flavor and body of the credential.
    pub(crate) credential: (u32, Bytes),
}

impl Rpc {
    /// Returns the head of a Call (RFC 5531 §9).
    pub(crate) fn call(&self, xid: u32, procedure: u32) -> Words {
        let (flavor, body) = &self.credential;
        Words::new()
            .words(&[xid, 0, 2, self.program, self.version, procedure, *flavor])
            .opaque(body)
            .words(&[0, 0])
    }
}

/// Returns an AUTH_SYS credential and its body (RFC 5531, Appendix A).
pub(crate) fn auth_sys(uid: u32, gid: u32) -> (u32, Bytes) {
    (1, Words::new().words(&[0]).opaque(b"rpcrdma-conform").words(&[uid, gid, 0]).finish())
}

/// Result of an RPC call for the RPC layer (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcEnd {
    Success,
    ProgramUnavailable,
    ProgramMismatch,
    ProcedureUnavailable,
    GarbageArguments,
    SystemError,
    Denied,
}

impl fmt::Display for RpcEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "SUCCESS",
            Self::ProgramUnavailable => "PROG_UNAVAIL",
            Self::ProgramMismatch => "PROG_MISMATCH",
            Self::ProcedureUnavailable => "PROC_UNAVAIL",
            Self::GarbageArguments => "GARBAGE_ARGS",
            Self::SystemError => "SYSTEM_ERR",
            Self::Denied => "MSG_DENIED",
        })
    }
}

/// Decodes the head of an RPC reply; the results follow.
pub(crate) fn rpc_reply(xid: u32, payload: Bytes) -> Result<(RpcEnd, Decoder), String> {
    let mut decoder = Decoder::new(payload);
    let end = rpc_end(xid, &mut decoder)?;
    Ok((end, decoder))
}

fn rpc_end(xid: u32, decoder: &mut Decoder) -> Result<RpcEnd, String> {
    let cut = |error: rpcrdma_xdr::DecodeError| format!("an RPC reply that does not decode: {error}");
    let seen = decoder.u32().map_err(cut)?;
    if seen != xid {
        return Err(format!("an RPC reply under XID {seen:#010x} in a message for {xid:#010x}"));
    }
    match decoder.u32().map_err(cut)? {
        1 => {}
        other => return Err(format!("an RPC message of type {other} instead of a reply")),
    }
    match decoder.u32().map_err(cut)? {
        0 => {}
        1 => return Ok(RpcEnd::Denied),
        other => return Err(format!("an RPC reply with reply_stat {other}")),
    }
    decoder.u32().map_err(cut)?;
    decoder.opaque(MAX_AUTH).map_err(cut)?;
    Ok(match decoder.u32().map_err(cut)? {
        0 => RpcEnd::Success,
        1 => RpcEnd::ProgramUnavailable,
        2 => RpcEnd::ProgramMismatch,
        3 => RpcEnd::ProcedureUnavailable,
        4 => RpcEnd::GarbageArguments,
        5 => RpcEnd::SystemError,
        other => return Err(format!("an RPC reply with accept_stat {other}")),
    })
}

/// Reaction of a peer to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// The peer stayed silent.
    Nothing,
    /// The peer ended the connection.
    Closed,
    /// RDMA_ERROR with ERR_CHUNK.
    ErrChunk,
    /// RDMA_ERROR with ERR_VERS and this range.
    ErrVers { low: u32, high: u32, version: u32 },
    /// An RPC reply.
    Reply(RpcEnd),
    /// An unexpected message.
    Odd(String),
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Closed => f.write_str("connection closed"),
            Self::ErrChunk => f.write_str("ERR_CHUNK"),
            Self::ErrVers { low, high, .. } => write!(f, "ERR_VERS {low}-{high}"),
            Self::Reply(end) => write!(f, "reply {end}"),
            Self::Odd(what) => f.write_str(what),
        }
    }
}

/// The kinds of [`Reaction`] in the expectation of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Closed,
    ErrChunk,
    ErrVers,
    Success,
    GarbageArguments,
    SystemError,
    Denied,
}

impl Reaction {
    pub(crate) fn is(&self, kind: Kind) -> bool {
        match self {
            Self::Nothing => kind == Kind::Nothing,
            Self::Closed => kind == Kind::Closed,
            Self::ErrChunk => kind == Kind::ErrChunk,
            Self::ErrVers { .. } => kind == Kind::ErrVers,
            Self::Reply(RpcEnd::Success) => kind == Kind::Success,
            Self::Reply(RpcEnd::GarbageArguments) => kind == Kind::GarbageArguments,
            Self::Reply(RpcEnd::SystemError) => kind == Kind::SystemError,
            Self::Reply(RpcEnd::Denied) => kind == Kind::Denied,
            // A correct peer answers so only calls of the rows that ask for it, and those rows name the status.
            Self::Reply(_) | Self::Odd(_) => false,
        }
    }
}

/// An answer to `xid`, with its header if it has lists.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) reaction: Reaction,
    pub(crate) header: Option<Header>,
    /// The bytes that follow the header.
    pub(crate) payload: Bytes,
    /// All bytes of the message, if there was one.
    pub(crate) bytes: Option<Bytes>,
}

/// Returns whether a message carries this XID.
pub(crate) fn is_for(bytes: &[u8], xid: u32) -> bool {
    bytes.get(..4) == Some(&xid.to_be_bytes()[..])
}

/// Decodes an answer to `xid`.
pub(crate) fn answer(bytes: &Bytes, xid: u32) -> Answer {
    let odd = |what: String| Answer {
        reaction: Reaction::Odd(what),
        header: None,
        payload: Bytes::new(),
        bytes: Some(bytes.clone()),
    };
    let (header, len) = match V1.decode(bytes, &Limits::default()) {
        Ok(decoded) => decoded,
        Err(error) => return odd(format!("a message that does not decode: {error}")),
    };
    if header.xid != xid {
        return odd(format!("a message under XID {:#010x}, not {xid:#010x}", header.xid));
    }
    let payload = bytes.slice(len.min(bytes.len())..);
    let reaction = match &header.body {
        Body::Error(ErrorBody::Chunk) => Reaction::ErrChunk,
        Body::Error(ErrorBody::Version { low, high }) => {
            Reaction::ErrVers { low: *low, high: *high, version: header.version }
        }
        Body::Done => Reaction::Odd("an RDMA_DONE".into()),
        // This body does not exist in Version One.
        Body::Error(_) | Body::Two(_) => Reaction::Odd("a message of Version Two".into()),
        Body::Padded { .. } => Reaction::Odd("an RDMA_MSGP".into()),
        // RFC 8166 §4.3.1, §3.3.1
        Body::Message(lists) | Body::NoMessage(lists) if !lists.read.is_empty() => {
            Reaction::Odd("a reply with a Read list".into())
        }
        Body::Message(_) | Body::NoMessage(_) if header.credit == 0 => {
            Reaction::Odd("a reply that grants 0 credits".into())
        }
        Body::Message(_) => match rpc_reply(xid, payload.clone()) {
            Ok((end, _)) => Reaction::Reply(end),
            Err(what) => Reaction::Odd(what),
        },
        // Its payload is in the Reply chunk; rows that offer one look there.
        Body::NoMessage(_) => Reaction::Odd("an RDMA_NOMSG".into()),
    };
    Answer { reaction, header: Some(header), payload, bytes: Some(bytes.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> Rpc {
        Rpc { program: 100_003, version: 3, credential: (0, Bytes::new()) }
    }

    fn reply(credit: u32, words: &[u32]) -> Bytes {
        message(7, credit, RDMA_MSG, ChunkLists::default(), &Words::new().words(words).finish())
    }

    #[test]
    fn a_call_put_together_by_hand_is_example_a1() {
        let call =
            message(0x1122_3344, 32, RDMA_MSG, ChunkLists::default(), &null().call(0x1122_3344, 0).finish());
        assert_eq!(call.len(), 68);
        assert_eq!(call[28..52], Words::new().words(&[0x1122_3344, 0, 2, 100_003, 3, 0]).finish()[..]);
    }

    #[test]
    fn every_kind_of_answer_is_told_apart() {
        let error = |code: &[u32]| Words::new().words(&[7, 1, 1, 4]).words(code).finish();
        for (bytes, kind) in [
            (reply(1, &[7, 1, 0, 0, 0, 0]), Kind::Success),
            (reply(1, &[7, 1, 0, 0, 0, 4]), Kind::GarbageArguments),
            (reply(1, &[7, 1, 0, 0, 0, 5]), Kind::SystemError),
            (reply(1, &[7, 1, 1, 0, 2, 2]), Kind::Denied),
            (error(&[2]), Kind::ErrChunk),
            (error(&[1, 1, 1]), Kind::ErrVers),
        ] {
            let reaction = answer(&bytes, 7).reaction;
            assert!(reaction.is(kind), "{reaction:?} is {kind:?}");
        }
    }

    #[test]
    fn what_no_answer_may_be_is_odd() {
        let read_list =
            Words::new().words(&[7, 1, 1, 0, 1, 4, 1, 4, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 0]).finish();
        for bytes in [
            reply(0, &[7, 1, 0, 0, 0, 0]),
            reply(1, &[8, 1, 0, 0, 0, 0]),
            reply(1, &[7, 0, 0, 0, 0, 0]),
            reply(1, &[7, 1, 0, 0, 0]),
            read_list,
            Words::new().words(&[7, 1, 1, 3]).finish(),
            Words::new().words(&[8, 1, 1, 4, 2]).finish(),
            Bytes::new(),
        ] {
            let reaction = answer(&bytes, 7).reaction;
            assert!(matches!(reaction, Reaction::Odd(_)), "{bytes:?}: {reaction:?}");
        }
    }
}
