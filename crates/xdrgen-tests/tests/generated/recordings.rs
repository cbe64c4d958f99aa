//! The calls and replies of recorded sessions, ready to be decoded.

use bytes::Bytes;
use rpcrdma::xdr::{Decoder, ReadChunk, ReturnedChunk};
use rpcrdma_capture::exchange::{Exchanges, Part};
use rpcrdma_capture::{linux, text};
use rpcrdma_oncrpc::message::ReplyBody;
use rpcrdma_oncrpc::{CallHeader, ReplyHeader};

/// Arguments or results.
pub(crate) struct Half {
    /// Decodes them, with the items that travelled in chunks.
    decoder: Box<dyn Fn() -> Decoder>,
    /// Whether nothing was cut but items in chunks.
    pub(crate) is_whole: bool,
    /// Their octets, if nothing travelled in chunks.
    pub(crate) octets: Option<Bytes>,
}

impl Half {
    pub(crate) fn decoder(&self) -> Decoder {
        (self.decoder)()
    }
}

/// A recorded call.
pub(crate) struct Recorded {
    /// Program, version and procedure.
    pub(crate) procedure: [u32; 3],
    pub(crate) arguments: Half,
    /// `None` if they were cut, or the call failed.
    pub(crate) results: Option<Half>,
}

/// Returns whether a message was recorded whole: the items in its chunks may be cut.
fn is_whole(part: &Part) -> bool {
    part.genuine || !part.moved.is_empty()
}

fn half(part: &Part, decoder: impl Fn() -> Decoder + 'static) -> Half {
    let at = part.message.len() - decoder().remaining();
    let is_inline = part.moved.iter().all(|chunk| chunk.data.is_empty());
    let octets = is_inline.then(|| part.message.slice(at..));
    Half { decoder: Box::new(decoder), is_whole: is_whole(part), octets }
}

fn arguments(call: &Part) -> (CallHeader, Half) {
    let call = call.clone();
    let read = move |part: &Part| {
        let moved = part.moved.iter();
        let chunks =
            moved.map(|chunk| ReadChunk { position: chunk.position, data: chunk.data.clone().into() });
        let mut decoder = Decoder::with_read_chunks(part.message.clone(), chunks.collect());
        let header = CallHeader::read(&mut decoder).unwrap();
        (header, decoder)
    };
    let (header, _) = read(&call);
    let again = call.clone();
    (header, half(&call, move || read(&again).1))
}

fn results(call: &Part, reply: &Part) -> Option<Half> {
    if !is_whole(reply) {
        return None;
    }
    let offered: Vec<u64> = call.lists()?.write.iter().map(|chunk| chunk.total()).collect();
    let read = move |part: &Part| {
        let chunks = part.moved.iter().zip(&offered).map(|(chunk, offered)| ReturnedChunk::Filled {
            data: chunk.data.clone().into(),
            offered: usize::try_from(*offered).unwrap(),
        });
        let mut decoder = Decoder::with_write_chunks(part.message.clone(), chunks.collect());
        let header: ReplyHeader = decoder.decode().unwrap();
        (header, decoder)
    };
    let (header, rest) = read(reply);
    if !matches!(header.body, ReplyBody::Accepted { .. }) || rest.remaining() == 0 {
        return None;
    }
    let again = reply.clone();
    Some(half(reply, move || read(&again).1))
}

/// Returns all calls of all recordings.
pub(crate) fn all() -> Vec<Recorded> {
    let mut all = Vec::new();
    for (_, recording) in linux::IWARP.iter().chain(linux::ROCE) {
        for session in text::read(recording).unwrap() {
            for exchange in Exchanges::of(&session).all {
                let (header, arguments) = arguments(&exchange.call);
                let results = exchange.reply.as_ref().and_then(|reply| results(&exchange.call, reply));
                let procedure = [header.program, header.version, header.procedure];
                all.push(Recorded { procedure, arguments, results });
            }
        }
    }
    all
}
