//! What a good server answers: NULL of every program, and NFSv3 and MOUNT of one empty directory.
//!
//! Nothing is owned here: a reply names the client's chunks and holds the data to be written there.

use bytes::Bytes;
use rpcrdma_proto::wire::{ChunkLists, Segment, WriteChunk};

use super::stage::{ANNOUNCED, Call};
use crate::message::{ERR_CHUNK, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, Words, message};
use crate::nfs;

/// Least threshold: what a client takes that announced nothing.
const LEAST_INLINE: usize = 1024;
/// Octets of a READ that the client gave no chunk for.
const SMALL_READ: usize = 64;
const MOUNT: u32 = 100_005;
/// NFS3ERR_NOENT.
const NO_ENTRY: u32 = 2;
/// RFC 5531 §9
const PROC_UNAVAIL: u32 = 3;

/// `fattr3` of the directory.
const DIRECTORY: [u32; 21] = [2, 0o755, 2, 0, 0, 0, 4096, 0, 4096, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
/// Its handle.
const HANDLE: &[u8] = b"rpcrdma-conform";

/// A reply, ready to be sent or to be spoilt.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// `rdma_proc`.
    pub(super) procedure: u32,
    pub(super) lists: ChunkLists,
    pub(super) payload: Bytes,
    /// What is written first, and where.
    pub(super) writes: Vec<(Bytes, Vec<Segment>)>,
}

impl Reply {
    pub(super) fn message(&self, xid: u32, grant: u32) -> Bytes {
        match self.procedure {
            RDMA_ERROR => Words::new().words(&[xid, 1, grant, RDMA_ERROR, ERR_CHUNK]).finish(),
            procedure => message(xid, grant, procedure, self.lists.clone(), &self.payload),
        }
    }
}

/// The head of an RPC reply with this accept_stat.
pub(super) fn accepted(xid: u32, status: u32) -> Words {
    Words::new().words(&[xid, 1, 0, 0, 0, status])
}

/// What a good server answers.
pub(super) fn reply(call: &Call) -> Reply {
    let head = |status| accepted(call.xid, status);
    let attributes = |words: Words| words.words(&[1]).words(&DIRECTORY);
    let (results, data) = match (call.program, call.procedure) {
        (_, 0) => (head(0), None),
        (nfs::PROGRAM, nfs::GETATTR) => (head(0).words(&[0]).words(&DIRECTORY), None),
        (nfs::PROGRAM, nfs::LOOKUP) => (attributes(head(0).words(&[NO_ENTRY])), None),
        // ACCESS: to read, to look up, to execute.
        (nfs::PROGRAM, 4) => (attributes(head(0).words(&[0])).words(&[0x23]), None),
        (nfs::PROGRAM, nfs::READ) => {
            let room = call
                .lists
                .write
                .first()
                .map_or(SMALL_READ, |chunk| usize::try_from(chunk.total()).unwrap_or(0));
            let count = usize::try_from(call.count).unwrap_or(usize::MAX);
            let data = Bytes::from(vec![0x5a; room.min(ANNOUNCED).min(count)]);
            let len = crate::message::u32_of(data.len());
            (attributes(head(0).words(&[0])).words(&[len, 1, len]), Some(data))
        }
        // READDIR and READDIRPLUS: a verifier, no entry, the end.
        (nfs::PROGRAM, nfs::READDIR | 17) => (attributes(head(0).words(&[0])).words(&[0, 0, 0, 1]), None),
        // FSSTAT
        (nfs::PROGRAM, 18) => (attributes(head(0).words(&[0])).words(&[0; 13]), None),
        (nfs::PROGRAM, nfs::FSINFO) => {
            let sizes = [65536, 65536, 4096, 65536, 65536, 4096, 4096, 0, u32::MAX, 0, 1, 0x1b];
            (attributes(head(0).words(&[0])).words(&sizes), None)
        }
        // PATHCONF
        (nfs::PROGRAM, 20) => (attributes(head(0).words(&[0])).words(&[255, 255, 1, 1, 0, 1]), None),
        // MNT: AUTH_SYS.
        (MOUNT, 1) => (head(0).words(&[0]).opaque(HANDLE).words(&[1, 1]), None),
        // EXPORT: "/", for everybody.
        (MOUNT, 5) => (head(0).words(&[1]).opaque(b"/").words(&[0, 0]), None),
        _ => (head(PROC_UNAVAIL), None),
    };
    travel(call, results, data)
}

/// The form that a reply takes, with the client's chunks (RFC 8166 §4.3).
fn travel(call: &Call, results: Words, data: Option<Bytes>) -> Reply {
    let (mut payload, mut writes, mut lists) = (results, Vec::new(), ChunkLists::default());
    let mut data = data;
    for chunk in &call.lists.write {
        let placed = data.take().unwrap_or_default();
        lists.write.push(chunk.filled(u64::try_from(placed.len()).unwrap_or(0)));
        writes.push((placed, chunk.segments.clone()));
    }
    if let Some(data) = data {
        payload = payload.octets(&data);
    }
    let payload = payload.finish();
    let Some(chunk) = &call.lists.reply else {
        return Reply { procedure: RDMA_MSG, lists, payload, writes };
    };
    let unused = WriteChunk {
        segments: chunk.segments.iter().map(|segment| Segment { length: 0, ..*segment }).collect(),
    };
    if payload.len() + 200 <= LEAST_INLINE {
        lists.reply = Some(unused);
        return Reply { procedure: RDMA_MSG, lists, payload, writes };
    }
    let reply = Reply { procedure: RDMA_MSG, lists, payload, writes };
    long(call, &reply).unwrap_or(Reply { procedure: RDMA_ERROR, ..reply })
}

/// The same reply through the Reply chunk, if that has room for it.
pub(super) fn long(call: &Call, reply: &Reply) -> Option<Reply> {
    let len = u64::try_from(reply.payload.len()).unwrap_or(u64::MAX);
    let chunk = call.lists.reply.as_ref().filter(|chunk| chunk.total() >= len)?;
    let mut through = reply.clone();
    through.procedure = RDMA_NOMSG;
    through.lists.reply = Some(chunk.filled(len));
    through.writes.push((std::mem::take(&mut through.payload), chunk.segments.clone()));
    Some(through)
}
