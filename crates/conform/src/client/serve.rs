//! Answers of a correct server: NULL of every program, and NFSv3 and MOUNT of one directory with one file, `file`, of
//! 32 KiB.
//!
//! This module owns no memory: a reply names the client's chunks and holds the data to be written there.

use bytes::Bytes;
use rpcrdma_proto::wire::two::transmission::{Location, Operation, PlacedItem, TransmitResponse};
use rpcrdma_proto::wire::{Body, ChunkLists, ErrorBody, Segment, WriteChunk, two};
use rpcrdma_xdr::{DecodeError, Decoder};

use super::stage::Call;
use crate::message::{RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, Words, u32_of};
use crate::nfs;

/// Minimum threshold, in bytes: the limit of a client that announced none.
const LEAST_INLINE: usize = 1024;
/// Length of a READ result without a chunk, in bytes.
const SMALL_READ: u64 = 64;
const MOUNT: u32 = 100_005;
/// NFS3ERR_NOENT.
const NO_ENTRY: u32 = 2;
/// NFS3ERR_IO.
const IO: u32 = 5;
/// PROC_UNAVAIL (RFC 5531 §9).
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;

/// NFS3_FHSIZE (RFC 1813 §2.4).
const MAX_HANDLE: usize = 64;
/// The longest name that is decoded, in bytes.
const MAX_NAME: usize = 255;
/// Maximum length of an authentication body, in bytes (RFC 5531 §8.2).
const MAX_AUTH: usize = 400;

/// `fattr3` of the directory, up to its times.
const DIRECTORY: [u32; 15] = [2, 0o755, 2, 0, 0, 0, 4096, 0, 4096, 0, 0, 0, 1, 0, 1];
/// Handle of the directory.
const HANDLE: &[u8] = b"rpcrdma-conform";

/// Name of the file, and its handle.
const FILE: &[u8] = b"file";
/// Length of the file, in bytes: more than any client reads inline.
const FILE_SIZE: u32 = 32 << 10;
/// Value of each byte of the file.
const FILE_BYTE: u8 = 0x5a;
const FILE_ID: u32 = 2;
/// `fattr3` of the file, up to its times.
const FILE_ATTRIBUTES: [u32; 15] = [1, 0o444, 1, 0, 0, 0, FILE_SIZE, 0, FILE_SIZE, 0, 0, 0, 1, 0, FILE_ID];
/// Maximum length of a READ result, in bytes: a client that reads ahead makes several READs at once.
const READ_SIZE: u32 = 8 << 10;

/// Appends `fattr3`. The times change with every call, so that no client answers from its cache.
fn attributes(words: Words, what: &[u32; 15], xid: u32) -> Words {
    let seconds = xid >> 1;
    words.words(what).words(&[0, 0, seconds, 0, seconds, 0])
}

/// Returns the handle at the front of every NFSv3 call, and all arguments after it.
fn arguments(message: &Bytes) -> Result<(Bytes, Decoder), DecodeError> {
    let mut decoder = Decoder::new(message.clone());
    // XID, CALL, RPC version, program, its version, procedure.
    decoder.bytes_fixed(24)?;
    for _credentials_and_verifier in 0..2 {
        decoder.u32()?;
        decoder.opaque(MAX_AUTH)?;
    }
    let handle = decoder.opaque(MAX_HANDLE)?;
    Ok((handle, decoder))
}

/// Returns the data of a READ (RFC 1813 §3.3.6), and whether the file ends there. A client that offers a chunk of
/// length 0 gets no data.
fn data(call: &Call, mut arguments: Decoder) -> Result<(Bytes, bool), DecodeError> {
    let (offset, count) = (arguments.u64()?, arguments.u32()?);
    let left = u64::from(FILE_SIZE).saturating_sub(offset);
    let room = call.lists.write.first().map_or(SMALL_READ, WriteChunk::total);
    let len = left.min(room).min(count.into());
    Ok((Bytes::from(vec![FILE_BYTE; usize::try_from(len).unwrap_or(0)]), len == left))
}

/// Appends the entries of the directory from a cookie on (RFC 1813 §3.3.16). `plus` adds handles and attributes with
/// this time (§3.3.17).
fn entries(results: Words, mut arguments: Decoder, plus: Option<u32>) -> Result<Words, DecodeError> {
    // A verifier.
    let results = results.words(&[0, 0]);
    let results = match arguments.u64()? {
        0 => {
            let entry = results.words(&[1]).long(FILE_ID.into()).opaque(FILE).long(1);
            match plus {
                Some(now) => attributes(entry.words(&[1]), &FILE_ATTRIBUTES, now).words(&[1]).opaque(FILE),
                None => entry,
            }
        }
        _ => results,
    };
    Ok(results.words(&[0, 1]))
}

/// A reply, to be sent as it is or changed.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// `rdma_proc`.
    pub(super) procedure: u32,
    pub(super) lists: ChunkLists,
    pub(super) payload: Bytes,
    /// Data to be written first, and the target segments.
    pub(super) writes: Vec<(Bytes, Vec<Segment>)>,
    /// The results of the directions that the call gave for items. With some, the reply travels in a group.
    pub(super) placed: Vec<PlacedItem>,
}

impl Reply {
    /// Returns the content of the header.
    pub(super) fn body(&self) -> Body {
        if !self.placed.is_empty() {
            let (placed, payload_len) = (self.placed.clone(), u32_of(self.payload.len()));
            let response = TransmitResponse { placed, count: 1, payload_len };
            return Body::Two(two::Body::Transmission(Operation::Response(response)));
        }
        match self.procedure {
            RDMA_ERROR => Body::Error(ErrorBody::Chunk),
            RDMA_NOMSG => Body::NoMessage(self.lists.clone()),
            _ => Body::Message(self.lists.clone()),
        }
    }
}

/// Returns the head of an RPC reply with this accept_stat.
pub(super) fn accepted(xid: u32, status: u32) -> Words {
    Words::new().words(&[xid, 1, 0, 0, 0, status])
}

/// Returns the answer of a correct server.
pub(super) fn reply(call: &Call) -> Reply {
    let (results, data) = results(call).unwrap_or_else(|_| (accepted(call.xid, GARBAGE_ARGS), None));
    match call.directions.first() {
        Some(first) => directed(call, first.least_len, results, data),
        None => travel(call, results, data),
    }
}

/// The result of a direction that no item answers (rtrext-02 §6.2).
pub(super) const NO_ITEM: PlacedItem = PlacedItem { displacement: 0, length: 0, location: Location::NoItem };

/// Returns the answer to a call with directions for items (rtrext-02 §7.4). The data of a READ is inline, as an item that is
/// too short. Data that is as long as the direction asks for gets an error instead.
fn directed(call: &Call, least_len: u32, results: Words, data: Option<Bytes>) -> Reply {
    let displacement = u32_of(results.len());
    let length = data.as_ref().map_or(0, |data| u32_of(data.len()));
    let (payload, location) = match data {
        Some(data) if length < least_len => (results.bytes(&data), Location::TooShort),
        Some(_) => (accepted(call.xid, 0).words(&[IO, 0]), Location::NoItem),
        None => (results, Location::NoItem),
    };
    let mut placed = vec![NO_ITEM; call.directions.len()];
    if let Some(first) = placed.first_mut().filter(|_| location == Location::TooShort) {
        *first = PlacedItem { displacement, length, location };
    }
    let (payload, lists) = (payload.finish(), ChunkLists::default());
    Reply { procedure: RDMA_MSG, lists, payload, writes: Vec::new(), placed }
}

/// Returns the results of a READ of so many bytes that the call asks for, `most` at most, and the data.
pub(super) fn read_apart(call: &Call, most: usize) -> Result<(Words, Bytes), DecodeError> {
    let (_, mut arguments) = arguments(&call.message)?;
    arguments.u64()?;
    let asked = usize::try_from(arguments.u32()?).unwrap_or(usize::MAX);
    let longest = usize::try_from(READ_SIZE).unwrap_or(usize::MAX);
    let len = asked.min(most).min(longest) / 4 * 4;
    let results = attributes(accepted(call.xid, 0).words(&[0, 1]), &FILE_ATTRIBUTES, call.xid);
    Ok((results.words(&[u32_of(len), 0, u32_of(len)]), Bytes::from(vec![FILE_BYTE; len])))
}

/// Returns results, and the data of a READ.
fn results(call: &Call) -> Result<(Words, Option<Bytes>), DecodeError> {
    let head = |status| accepted(call.xid, status);
    if call.procedure == 0 {
        return Ok((head(0), None));
    }
    match (call.program, call.procedure) {
        (nfs::PROGRAM, _) => file_system(call),
        // MNT: AUTH_SYS.
        (MOUNT, 1) => Ok((head(0).words(&[0]).opaque(HANDLE).words(&[1, 1]), None)),
        // EXPORT: "/", for everybody.
        (MOUNT, 5) => Ok((head(0).words(&[1]).opaque(b"/").words(&[0, 0]), None)),
        _ => Ok((head(PROC_UNAVAIL), None)),
    }
}

/// Returns results of NFSv3, and the data of a READ.
fn file_system(call: &Call) -> Result<(Words, Option<Bytes>), DecodeError> {
    let (handle, mut arguments) = arguments(&call.message)?;
    let what = if &handle[..] == FILE { &FILE_ATTRIBUTES } else { &DIRECTORY };
    let head = |status| accepted(call.xid, 0).words(&[status]);
    // With `post_op_attr`.
    let with = |status| attributes(head(status).words(&[1]), what, call.xid);
    let results = match call.procedure {
        nfs::GETATTR => attributes(head(0), what, call.xid),
        nfs::LOOKUP if &arguments.opaque(MAX_NAME)?[..] == FILE => {
            let file = attributes(head(0).opaque(FILE).words(&[1]), &FILE_ATTRIBUTES, call.xid);
            attributes(file.words(&[1]), &DIRECTORY, call.xid)
        }
        nfs::LOOKUP => with(NO_ENTRY),
        // ACCESS: to read, to look up, to execute.
        4 => with(0).words(&[0x23]),
        nfs::READ => {
            let (data, end) = data(call, arguments)?;
            let len = u32_of(data.len());
            return Ok((with(0).words(&[len, u32::from(end), len]), Some(data)));
        }
        nfs::READDIR => entries(with(0), arguments, None)?,
        // READDIRPLUS
        17 => entries(with(0), arguments, Some(call.xid))?,
        // FSSTAT
        18 => with(0).words(&[0; 13]),
        nfs::FSINFO => {
            with(0).words(&[READ_SIZE, READ_SIZE, 4096, 65536, 65536, 4096, 4096, 0, u32::MAX, 0, 1, 0x1b])
        }
        // PATHCONF
        20 => with(0).words(&[255, 255, 1, 1, 0, 1]),
        _ => accepted(call.xid, PROC_UNAVAIL),
    };
    Ok((results, None))
}

/// Chooses the form of a reply, with the client's chunks (RFC 8166 §4.3).
fn travel(call: &Call, results: Words, data: Option<Bytes>) -> Reply {
    let (mut payload, mut writes, mut lists) = (results, Vec::new(), ChunkLists::default());
    let mut data = data;
    for chunk in &call.lists.write {
        let placed = data.take().unwrap_or_default();
        lists.write.push(chunk.filled(u64::try_from(placed.len()).unwrap_or(0)));
        writes.push((placed, chunk.segments.clone()));
    }
    if let Some(data) = data {
        payload = payload.bytes(&data);
    }
    let payload = payload.finish();
    let Some(chunk) = &call.lists.reply else {
        return Reply { procedure: RDMA_MSG, lists, payload, writes, placed: Vec::new() };
    };
    let unused = WriteChunk {
        segments: chunk.segments.iter().map(|segment| Segment { length: 0, ..*segment }).collect(),
    };
    if payload.len() + 200 <= LEAST_INLINE {
        lists.reply = Some(unused);
        return Reply { procedure: RDMA_MSG, lists, payload, writes, placed: Vec::new() };
    }
    let reply = Reply { procedure: RDMA_MSG, lists, payload, writes, placed: Vec::new() };
    long(call, &reply).unwrap_or(Reply { procedure: RDMA_ERROR, ..reply })
}

/// Returns the reply in the Reply chunk, if the chunk is long enough.
pub(super) fn long(call: &Call, reply: &Reply) -> Option<Reply> {
    let len = u64::try_from(reply.payload.len()).unwrap_or(u64::MAX);
    let chunk = call.lists.reply.as_ref().filter(|chunk| chunk.total() >= len)?;
    let mut through = reply.clone();
    through.procedure = RDMA_NOMSG;
    through.lists.reply = Some(chunk.filled(len));
    through.writes.push((std::mem::take(&mut through.payload), chunk.segments.clone()));
    Some(through)
}
