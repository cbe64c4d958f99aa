//! The RPC program of the endpoints: each procedure travels in another form. Data depends on the XID, so that an answer
//! to another call is detected.

use bytes::Bytes;
use rpcrdma_proto::{Answer, Bindings, Call, Eligibility, IncomingReply, ReplyShape, Sink};
use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::{DecodeError, Decoder, Encoder};

use crate::draw::Draw;

pub(crate) const PROGRAM: u32 = 0x2000_0002;
pub(crate) const VERSION: u32 = 1;

/// Data (eligible) → equal data (eligible).
pub(crate) const ECHO: u32 = 1;
/// Length → data of this length (eligible).
pub(crate) const READ: u32 = 2;
/// Data (eligible) → its length.
pub(crate) const WRITE: u32 = 3;
/// Length → data of this length, not eligible.
pub(crate) const LIST: u32 = 4;
/// Data, not eligible → its length.
pub(crate) const STORE: u32 = 5;
/// Two lengths → eligible data, and data that is not eligible.
pub(crate) const BOTH: u32 = 6;

/// Maximum length of an item, in bytes.
pub(crate) const MAX: usize = 256 << 10;
/// Length of data that fits a message of 1024 bytes in every version, in bytes.
const SMALL: usize = 800;
/// Length of a reply's header and two counts, in bytes.
const REPLY_HEADER: usize = 24 + 8;

#[derive(Debug)]
pub(crate) struct Table;

impl Bindings for Table {
    fn eligibility(&self, program: u32, version: u32, procedure: u32) -> Option<Eligibility> {
        if (program, version) != (PROGRAM, VERSION) {
            return None;
        }
        let (arguments, results) = match procedure {
            ECHO => (1, 1),
            READ | BOTH => (0, 1),
            WRITE => (1, 0),
            _ => (0, 0),
        };
        Some(Eligibility { arguments, results })
    }
}

fn pattern(xid: u32, len: usize) -> Bytes {
    let start = usize::try_from(xid % 241).unwrap();
    (start..start + len).map(|index| (index % 251).to_le_bytes()[0]).collect()
}

fn wire(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

/// Expected result of a call of this program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    xid: u32,
    procedure: u32,
    first: usize,
    second: usize,
}

impl Expected {
    /// Returns whether the call may need a chunk with some version or size: all others fit the least inline threshold.
    pub(crate) fn is_large(self) -> bool {
        !matches!(self.procedure, 0 | STORE | LIST) || self.first > SMALL
    }
}

/// Returns a call of any procedure and length.
pub(crate) fn call(draw: &mut Draw<'_>, xid: u32) -> (Call, Expected) {
    let procedure = u32::try_from(draw.below(7)).unwrap();
    let (first, second) = (draw.length(), if procedure == BOTH { draw.length() } else { 0 });
    call_of(draw, Expected { xid, procedure, first, second })
}

/// Returns a call that needs no chunk with any version or size.
pub(crate) fn small_call(draw: &mut Draw<'_>, xid: u32) -> (Call, Expected) {
    let procedure = draw.pick(&[0, STORE, LIST]);
    let first = draw.below(SMALL);
    call_of(draw, Expected { xid, procedure, first, second: 0 })
}

fn call_of(draw: &mut Draw<'_>, expected: Expected) -> (Call, Expected) {
    let Expected { xid, procedure, first, second } = expected;
    let mut arguments = Encoder::new();
    for word in [xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0] {
        arguments.u32(word);
    }
    match procedure {
        ECHO | WRITE => arguments.payload(pattern(xid, first), MAX, true).unwrap(),
        STORE => arguments.payload(pattern(xid, first), MAX, false).unwrap(),
        READ | LIST => arguments.u32(wire(first)),
        BOTH => {
            arguments.u32(wire(first));
            arguments.u32(wire(second));
        }
        _ => {}
    }
    let sinks = match procedure {
        ECHO | READ | BOTH if draw.flag() => vec![Sink::Buffer(Buffer::adopt(vec![0; first]))],
        ECHO | READ | BOTH => vec![Sink::Pool(first)],
        _ => vec![],
    };
    let max_len = REPLY_HEADER
        + match procedure {
            LIST => first.next_multiple_of(4),
            BOTH => second.next_multiple_of(4),
            _ => 0,
        };
    let call = Call {
        xid,
        program: PROGRAM,
        version: VERSION,
        procedure,
        message: arguments.finish(),
        reply: ReplyShape { max_len, sinks },
        flavor_touches_data: false,
        timeout: None,
    };
    (call, expected)
}

/// Checks the reply to a call of this program.
pub(crate) fn check(expected: Expected, reply: IncomingReply) {
    let Expected { xid, procedure, first, second } = expected;
    let mut message = reply.message;
    for word in [xid, 1, 0, 0, 0, 0] {
        assert_eq!(message.u32(), Ok(word), "the reply to {expected:?}");
    }
    match procedure {
        ECHO | READ => assert_eq!(message.payload(MAX).unwrap(), pattern(xid, first)),
        WRITE | STORE => assert_eq!(message.u32(), Ok(wire(first))),
        LIST => assert_eq!(message.opaque(MAX).unwrap(), pattern(xid, first)),
        BOTH => {
            assert_eq!(message.payload(MAX).unwrap(), pattern(xid, first));
            assert_eq!(message.opaque(MAX).unwrap(), pattern(xid, second));
        }
        _ => {}
    }
    message.finish().unwrap();
}

/// A call after its execution.
pub(crate) struct Executed {
    pub(crate) answer: Answer,
    /// Whether the arguments were complete, and the data that of the XID.
    pub(crate) intact: bool,
}

/// Executes a call of any peer.
pub(crate) fn execute(mut message: Decoder) -> Executed {
    let mut words = [0; 10];
    for word in &mut words {
        // Too short for an RPC Call: it could not have a status.
        let Ok(value) = message.u32() else { return Executed { answer: Answer::Drop, intact: false } };
        *word = value;
    }
    let [xid, _, _, _, _, procedure, ..] = words;
    let status = |status: u32| {
        let mut reply = Encoder::new();
        for word in [xid, 1, 0, 0, 0, status] {
            reply.u32(word);
        }
        reply
    };
    let mut reply = status(0);
    match results(xid, procedure, message, &mut reply) {
        Ok(intact) => Executed { answer: Answer::message(reply.finish()), intact },
        Err(error) if error.is_chunk_violation() => Executed { answer: Answer::ChunkError, intact: false },
        Err(_) => Executed { answer: Answer::message(status(4).finish()), intact: false },
    }
}

fn results(xid: u32, procedure: u32, mut message: Decoder, reply: &mut Encoder) -> Result<bool, DecodeError> {
    let size = |word: u32| usize::try_from(word).unwrap().min(MAX);
    let mut intact = true;
    match procedure {
        ECHO => {
            let data = message.payload(MAX)?;
            intact = data == pattern(xid, data.len());
            reply.payload(data, MAX, true).unwrap();
        }
        READ => reply.payload(pattern(xid, size(message.u32()?)), MAX, true).unwrap(),
        WRITE => {
            let data = message.payload(MAX)?;
            intact = data == pattern(xid, data.len());
            reply.u32(wire(data.len()));
        }
        LIST => reply.payload(pattern(xid, size(message.u32()?)), MAX, false).unwrap(),
        STORE => {
            let data = message.opaque(MAX)?;
            intact = data == pattern(xid, data.len());
            reply.u32(wire(data.len()));
        }
        BOTH => {
            let (first, second) = (size(message.u32()?), size(message.u32()?));
            reply.payload(pattern(xid, first), MAX, true).unwrap();
            reply.payload(pattern(xid, second), MAX, false).unwrap();
        }
        _ => {}
    }
    message.finish()?;
    Ok(intact)
}
