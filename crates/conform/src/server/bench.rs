//! The basis of all rows: connections to the server, calls with any lists, and the files of NFS rows.
//!
//! *Buffers.* Windows belong to the connection; the bytes of a reply are copied out of them.
//!
//! *Errors.* Every fault of the server is a [`Wrong`] that ends the row.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::{Body, ChunkLists, WriteChunk};
use rpcrdma_verbs::OwnPrivateData;
use rpcrdma_xdr::Decoder;
use tokio::time::Instant;

use super::Target;
use crate::endpoint::{Arrived, Endpoint, Next, parameters};
use crate::message::{
    Answer, RDMA_MSG, RDMA_NOMSG, Reaction, Rpc, RpcEnd, Words, answer, auth_sys, is_for, message, rpc_reply,
};
use crate::nfs;
use crate::report::{Wrong, fail, not_applicable};

/// Requested credits, except in rows about credits.
pub(super) const CREDITS: u32 = 32;
/// Number of Receives of a connection. Rows with more calls at once post more. Their length in bytes is longer than any
/// announced threshold.
const RECEIVES: usize = 100;
const RECEIVE_LEN: usize = 8192;
/// Initial value of bytes in windows for the server's Writes.
pub(super) const FILL: u8 = 0xa5;
/// Length of the file for READs, in bytes.
pub(super) const SOURCE_LEN: usize = 8192;
/// Length of inline data of a WRITE or READ that stays below any threshold, in bytes.
const PIECE: usize = 512;

/// A call with its lists.
pub(super) struct Call {
    pub(super) xid: u32,
    pub(super) lists: ChunkLists,
    pub(super) credit: u32,
    /// The payload of an RDMA_MSG; `None` for an RDMA_NOMSG.
    pub(super) payload: Option<Bytes>,
}

/// State of the memory behind the returned length of a chunk (RFC 8166 §3.4.6.2, §4.3.2.2), from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behind {
    AsItWas,
    /// Modified, but not by the pad: allowed, since a server may find out late that its data is shorter.
    Modified,
    /// The pad of the data was written, which is forbidden.
    Pad,
}

/// A reply, with the data that came through chunks.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) lists: ChunkLists,
    /// The reply came through the Reply chunk.
    pub(super) long: bool,
    pub(super) end: RpcEnd,
    pub(super) results: Decoder,
    /// Content of each Write chunk, by its returned length.
    pub(super) written: Vec<Bytes>,
    /// State of the memory behind the returned lengths.
    pub(super) behind: Behind,
    /// The window that the reply invalidated.
    pub(super) invalidated: Option<u32>,
    /// Length of the Send, in bytes.
    pub(super) sent: usize,
}

/// Files of the NFS rows.
#[derive(Clone)]
pub(super) struct Scratch {
    pub(super) root: Bytes,
    /// A file with [`SOURCE_LEN`] bytes of [`pattern`] 0.
    pub(super) source: Bytes,
    pub(super) source_name: String,
    /// A file for WRITEs.
    pub(super) sink: Bytes,
}

/// The connections and files of a run; see the module.
pub(super) struct Bench<'t> {
    pub(super) target: &'t Target,
    next_xid: u32,
    scratch: Option<Result<Scratch, Wrong>>,
    /// Names of files to be removed.
    names: Vec<String>,
}

/// Returns bytes that differ by position and by seed.
pub(super) fn pattern(seed: u32, len: usize) -> Bytes {
    let start = usize::from(seed.to_le_bytes()[0]);
    (0..len).map(|at| ((at * 7 + at / 251 + start) % 253).to_le_bytes()[0]).collect()
}

/// Returns a complaint if these are other bytes than were due: which ones, and what is in their place.
pub(super) fn differing(found: &[u8], due: &[u8]) -> Option<String> {
    if found == due {
        return None;
    }
    let places: Vec<usize> =
        (0..found.len().max(due.len())).filter(|at| found.get(*at) != due.get(*at)).collect();
    let (first, last) = (*places.first()?, *places.last()?);
    let byte = |bytes: &[u8]| bytes.get(first).map_or("nothing".to_owned(), |byte| format!("{byte:#04x}"));
    Some(format!(
        "{} bytes instead of {}, {} of them differ: the first is byte {first}, {} instead of {}, the last is byte {last}",
        found.len(),
        due.len(),
        places.len(),
        byte(found),
        byte(due)
    ))
}

/// The bytes behind the data in the memory of a chunk.
struct Rest(Vec<u8>);

impl Rest {
    /// Returns the state of the memory, with this many bytes of pad in front.
    fn state(&self, pad: usize) -> Behind {
        match self.0.iter().position(|byte| *byte != FILL) {
            None => Behind::AsItWas,
            // XDR pads with zeros.
            Some(at) if at < pad && self.0.iter().take(pad).all(|byte| *byte == 0) => Behind::Pad,
            Some(_) => Behind::Modified,
        }
    }
}

impl<'t> Bench<'t> {
    pub(super) fn new(target: &'t Target) -> Self {
        // Each run starts elsewhere, since servers remember XIDs of earlier connections.
        let random = RandomState::new().build_hasher().finish().to_le_bytes();
        let [a, b, c, ..] = random;
        Self { target, next_xid: u32::from_le_bytes([0, a, b, c]), scratch: None, names: Vec::new() }
    }

    /// Returns an XID that no call had.
    pub(super) const fn xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }

    /// Returns the maximum time of an answer.
    pub(super) const fn limit(&self) -> Duration {
        self.target.limit
    }

    /// Returns the program whose NULL procedure the server answers.
    pub(super) fn null_rpc(&self) -> Rpc {
        Rpc { program: self.target.program, version: self.target.version, credential: (0, Bytes::new()) }
    }

    /// Returns a complete NULL call.
    pub(super) fn null_message(&mut self, credit: u32) -> (u32, Bytes) {
        let xid = self.xid();
        let payload = self.null_rpc().call(xid, 0).finish();
        (xid, message(xid, credit, RDMA_MSG, ChunkLists::default(), &payload))
    }

    /// Opens a connection without private data: thresholds of 1024, no remote invalidation.
    pub(super) async fn connect(&self) -> Result<Endpoint, Wrong> {
        self.connect_with(OwnPrivateData::default()).await
    }

    /// Opens a connection that announces 4096 bytes in both directions.
    pub(super) async fn connect_announcing(&self, remote_invalidation: bool) -> Result<Endpoint, Wrong> {
        let says = |remote_invalidation| {
            PrivateData { remote_invalidation, send_size: 4096, receive_size: 4096 }.encode()
        };
        // An adapter that cannot be invalidated must not say that it can.
        self.connect_with(OwnPrivateData::by_invalidation(says(remote_invalidation), says(false))).await
    }

    pub(super) async fn connect_with(&self, private_data: OwnPrivateData) -> Result<Endpoint, Wrong> {
        let connecting = self.target.connector.connect(self.target.address, parameters(private_data));
        match tokio::time::timeout(self.limit(), connecting).await {
            Ok(Ok(queue_pair)) => Ok(Endpoint::new(queue_pair, RECEIVES, RECEIVE_LEN)),
            Ok(Err(error)) => Err(fail(format!("no connection: {error}"))),
            Err(_) => Err(fail(format!("no connection within {:?}", self.limit()))),
        }
    }

    /// Opens a connection and makes a NULL call on it. Returns the grant as well.
    pub(super) async fn ready(&mut self) -> Result<(Endpoint, u32), Wrong> {
        let mut endpoint = self.connect().await?;
        let grant = self.null(&mut endpoint).await?;
        Ok((endpoint, grant))
    }

    /// Makes a NULL call, and returns the grant.
    pub(super) async fn null(&mut self, endpoint: &mut Endpoint) -> Result<u32, Wrong> {
        self.null_behind(endpoint, &[]).await.map(|(grant, _)| grant)
    }

    /// Makes a NULL call behind messages that may still be answered. Returns the grant, and those answers.
    pub(super) async fn null_behind(
        &mut self,
        endpoint: &mut Endpoint,
        earlier: &[u32],
    ) -> Result<(u32, Vec<Answer>), Wrong> {
        let (xid, message) = self.null_message(CREDITS);
        endpoint.send(message);
        let (answer, late) = self.observe_behind(endpoint, xid, self.limit(), earlier).await;
        match (&answer.reaction, answer.header) {
            (Reaction::Reply(RpcEnd::Success), Some(header)) => Ok((header.credit, late)),
            (reaction, _) => Err(fail(format!("a NULL call: {reaction}"))),
        }
    }

    /// Checks that the server answers a NULL call on a new connection.
    pub(super) async fn alive(&mut self) -> Result<(), Wrong> {
        let served = async {
            let (endpoint, _) = self.ready().await?;
            endpoint.close().await;
            Ok(())
        };
        served.await.map_err(|wrong: Wrong| fail(format!("a new connection is not served: {}", wrong.seen)))
    }

    /// Waits for the reaction to `xid`, at most for `limit`. Messages for unknown XIDs are odd.
    pub(super) async fn observe(&self, endpoint: &mut Endpoint, xid: u32, limit: Duration) -> Answer {
        let bare = |reaction| Answer { reaction, header: None, payload: Bytes::new(), bytes: None };
        match endpoint.next(limit).await {
            Next::Message(arrived) => answer(&arrived.bytes, xid),
            Next::Silence => bare(Reaction::Nothing),
            Next::Closed(_) => bare(Reaction::Closed),
        }
    }

    /// Waits for the reaction to `xid` behind messages that may still be answered, and returns those answers too.
    pub(super) async fn observe_behind(
        &self,
        endpoint: &mut Endpoint,
        xid: u32,
        limit: Duration,
        earlier: &[u32],
    ) -> (Answer, Vec<Answer>) {
        let deadline = Instant::now() + limit;
        let mut late = Vec::new();
        loop {
            let seen = self.observe(endpoint, xid, deadline.saturating_duration_since(Instant::now())).await;
            let known = |bytes: &Bytes| {
                let known = earlier.iter().find(|known| is_for(bytes, **known))?;
                Some(answer(bytes, *known))
            };
            match seen.bytes.as_ref().and_then(known) {
                Some(answer) => late.push(answer),
                None => return (seen, late),
            }
        }
    }

    /// Sends a call and returns its reply with all data that came through chunks. Checks every rule for replies.
    pub(super) async fn call(&mut self, endpoint: &mut Endpoint, call: Call) -> Result<Reply, Wrong> {
        self.call_or_err_chunk(endpoint, call).await?.ok_or_else(|| fail(Reaction::ErrChunk.to_string()))
    }

    /// Makes a call in a form that the server may refuse: `None` is ERR_CHUNK.
    pub(super) async fn call_or_err_chunk(
        &mut self,
        endpoint: &mut Endpoint,
        call: Call,
    ) -> Result<Option<Reply>, Wrong> {
        let Call { xid, lists, credit, payload } = call;
        let procedure = if payload.is_some() { RDMA_MSG } else { RDMA_NOMSG };
        endpoint.send(message(xid, credit, procedure, lists.clone(), &payload.unwrap_or_default()));
        let arrived = match endpoint.next(self.limit()).await {
            Next::Message(arrived) => arrived,
            Next::Silence => return Err(fail(format!("no reply within {:?}", self.limit()))),
            Next::Closed(reason) => return Err(fail(format!("the connection ended: {reason}"))),
        };
        match answer(&arrived.bytes, xid).reaction {
            Reaction::ErrChunk => Ok(None),
            _ => self.reply(endpoint, xid, &lists, &arrived).await.map(Some),
        }
    }

    async fn reply(
        &self,
        endpoint: &mut Endpoint,
        xid: u32,
        offered: &ChunkLists,
        arrived: &Arrived,
    ) -> Result<Reply, Wrong> {
        let Answer { reaction, header, payload, .. } = answer(&arrived.bytes, xid);
        let Some(header) = header else { return Err(fail(reaction.to_string())) };
        let (lists, long) = match &header.body {
            Body::Message(lists) => (lists.clone(), false),
            Body::NoMessage(lists) => (lists.clone(), true),
            _ => return Err(fail(reaction.to_string())),
        };
        if let Reaction::Odd(what) = &reaction
            && !(long && lists.read.is_empty() && header.credit > 0)
        {
            return Err(fail(what.clone()));
        }
        check_lists(offered, &lists).map_err(fail)?;
        let mut behind = Behind::AsItWas;
        let mut written = Vec::new();
        for (offered, returned) in offered.write.iter().zip(&lists.write) {
            let (data, rest) = self.collect(endpoint, offered, returned).await?;
            let pad = data.len().next_multiple_of(4) - data.len();
            written.push(data);
            behind = behind.max(rest.state(pad));
        }
        let mut stream = payload;
        if let (Some(offered), Some(returned)) = (&offered.reply, &lists.reply) {
            let (data, rest) = self.collect(endpoint, offered, returned).await?;
            // A message ends at a multiple of 4.
            behind = behind.max(rest.state(0));
            match (long, data.is_empty()) {
                // RFC 8166 §3.5.3
                (true, true) => return Err(fail("an RDMA_NOMSG whose Reply chunk is empty")),
                (false, false) => return Err(fail("an RDMA_MSG whose Reply chunk is marked as used")),
                (true, false) => stream = data,
                (false, true) => {}
            }
        } else if long {
            return Err(fail("an RDMA_NOMSG without a Reply chunk"));
        }
        let (end, results) = rpc_reply(xid, stream).map_err(fail)?;
        let (invalidated, sent) = (arrived.invalidated, arrived.bytes.len());
        Ok(Reply { lists, long, end, results, written, behind, invalidated, sent })
    }

    /// Takes back the memory of a chunk: the written data by the returned lengths, and the rest.
    async fn collect(
        &self,
        endpoint: &mut Endpoint,
        offered: &WriteChunk,
        returned: &WriteChunk,
    ) -> Result<(Bytes, Rest), Wrong> {
        let (mut data, mut left) = (Vec::new(), Vec::new());
        for (window, back) in offered.segments.iter().zip(&returned.segments) {
            let memory = endpoint
                .take_back(window, self.limit())
                .await
                .ok_or_else(|| fail("the memory of a chunk does not come back"))?;
            let (filled, rest) = memory
                .split_at_checked(usize::try_from(back.length).unwrap_or(usize::MAX))
                .unwrap_or((&memory, &[]));
            data.extend_from_slice(filled);
            left.extend_from_slice(rest);
        }
        Ok((data.into(), Rest(left)))
    }

    /// Returns program and credential of NFS calls.
    pub(super) fn nfs_rpc(&self) -> Rpc {
        let (uid, gid) = self.target.export.as_ref().map_or((0, 0), |export| (export.uid, export.gid));
        Rpc { program: nfs::PROGRAM, version: nfs::VERSION, credential: auth_sys(uid, gid) }
    }

    /// Makes an NFS call inline, and returns its results, whose status is NFS3_OK.
    pub(super) async fn nfs_inline(
        &mut self,
        endpoint: &mut Endpoint,
        procedure: u32,
        arguments: impl FnOnce(Words) -> Words,
    ) -> Result<Decoder, Wrong> {
        self.nfs_status(endpoint, procedure, arguments).await?.map_err(|status| fail(refusal(status)))
    }

    /// Makes an NFS call inline, and returns its results, or the status if it is not NFS3_OK.
    async fn nfs_status(
        &mut self,
        endpoint: &mut Endpoint,
        procedure: u32,
        arguments: impl FnOnce(Words) -> Words,
    ) -> Result<Result<Decoder, u32>, Wrong> {
        let xid = self.xid();
        let payload = Some(arguments(self.nfs_rpc().call(xid, procedure)).finish());
        let call = Call { xid, lists: ChunkLists::default(), credit: CREDITS, payload };
        let mut results = success(self.call(endpoint, call).await?)?.results;
        match nfs::status(&mut results).map_err(results_wrong)? {
            0 => Ok(Ok(results)),
            status => Ok(Err(status)),
        }
    }

    /// Makes an NFS call that creates a file: a refusal by the file system is not the transport's fault.
    async fn nfs_made(
        &mut self,
        endpoint: &mut Endpoint,
        procedure: u32,
        arguments: impl FnOnce(Words) -> Words,
    ) -> Result<Decoder, Wrong> {
        self.nfs_status(endpoint, procedure, arguments).await?.map_err(|status| {
            not_applicable(format!("no files could be made in the export: {}", refusal(status)))
        })
    }

    /// Returns the root of the export.
    pub(super) fn root(&self) -> Result<Bytes, Wrong> {
        let export = self.target.export.as_ref();
        export
            .map(|export| Bytes::from(export.root.clone()))
            .ok_or_else(|| not_applicable("no NFSv3 export was named; --export PATH names one"))
    }

    /// Returns the files of the rows, made when first needed.
    pub(super) async fn scratch(&mut self) -> Result<Scratch, Wrong> {
        if let Some(scratch) = &self.scratch {
            return scratch.clone();
        }
        let scratch = self.make_scratch().await;
        self.scratch = Some(scratch.clone());
        scratch
    }

    async fn make_scratch(&mut self) -> Result<Scratch, Wrong> {
        let root = self.root()?;
        let mut endpoint = self.connect().await?;
        let (source, source_name) = self.make_file(&mut endpoint, &root).await?;
        let (sink, _) = self.make_file(&mut endpoint, &root).await?;
        let data = pattern(0, SOURCE_LEN);
        for (index, piece) in data.chunks(PIECE).enumerate() {
            let offset = u64::try_from(index * PIECE).unwrap_or(u64::MAX);
            let arguments = |call| nfs::write(call, &source, offset, piece.len()).bytes(piece);
            self.nfs_made(&mut endpoint, nfs::WRITE, arguments).await?;
        }
        endpoint.close().await;
        Ok(Scratch { root, source, source_name, sink })
    }

    /// Returns a name that no row had; the file is removed at the end.
    pub(super) fn name(&mut self) -> String {
        let name = format!(".rpcrdma-conform-{:08x}", self.xid());
        self.names.push(name.clone());
        name
    }

    /// Makes an empty file, and returns its handle and name.
    pub(super) async fn make_file(
        &mut self,
        endpoint: &mut Endpoint,
        root: &Bytes,
    ) -> Result<(Bytes, String), Wrong> {
        let name = self.name();
        let arguments = |call| nfs::create(call, root, name.as_bytes());
        let mut results = self.nfs_made(endpoint, nfs::CREATE, arguments).await?;
        if let Some(handle) = nfs::new_handle(&mut results).map_err(results_wrong)? {
            return Ok((handle, name));
        }
        let arguments = |call| nfs::name(call, root, name.as_bytes());
        let mut results = self.nfs_made(endpoint, nfs::LOOKUP, arguments).await?;
        Ok((nfs::handle(&mut results).map_err(results_wrong)?, name))
    }

    /// Reads the content of a file inline.
    pub(super) async fn content(&mut self, file: &Bytes, len: usize) -> Result<Bytes, Wrong> {
        let mut endpoint = self.connect().await?;
        let mut content = Vec::new();
        while content.len() < len {
            let offset = u64::try_from(content.len()).unwrap_or(u64::MAX);
            let count = PIECE.min(len - content.len());
            let arguments = |call| nfs::read(call, file, offset, count);
            let mut results = self.nfs_inline(&mut endpoint, nfs::READ, arguments).await?;
            let (_, data) = nfs::read_results(&mut results).map_err(results_wrong)?;
            let data = nfs::inline_data(results, data).map_err(results_wrong)?;
            if data.is_empty() {
                break;
            }
            content.extend_from_slice(&data);
        }
        endpoint.close().await;
        Ok(content.into())
    }

    /// Removes the files of all names, also if the row that made a file has failed.
    pub(super) async fn clean_up(&mut self) {
        let names = std::mem::take(&mut self.names);
        let (Ok(root), false) = (self.root(), names.is_empty()) else { return };
        let Ok(mut endpoint) = self.connect().await else { return };
        for name in names {
            if endpoint.has_ended() {
                match self.connect().await {
                    Ok(another) => endpoint = another,
                    Err(_) => return,
                }
            }
            let arguments = |call| nfs::name(call, &root, name.as_bytes());
            // The file of a name may never have been made. A server without any answer is not asked again.
            let removed = self.nfs_status(&mut endpoint, nfs::REMOVE, arguments).await;
            if removed.is_err() && !endpoint.has_ended() {
                break;
            }
        }
        endpoint.close().await;
    }
}

/// Converts a decoding error of results.
pub(super) fn results_wrong(error: rpcrdma_xdr::DecodeError) -> Wrong {
    fail(format!("results that do not decode: {error}"))
}

/// Returns a reply whose call was executed.
pub(super) fn success(reply: Reply) -> Result<Reply, Wrong> {
    match reply.end {
        RpcEnd::Success => Ok(reply),
        end => Err(fail(format!("a reply {end}"))),
    }
}

/// Returns a reply to an NFS call that succeeded; its results begin behind the status.
pub(super) fn nfs_ok(reply: Reply) -> Result<Reply, Wrong> {
    let mut reply = success(reply)?;
    match nfs::status(&mut reply.results).map_err(results_wrong)? {
        0 => Ok(reply),
        status => Err(fail(refusal(status))),
    }
}

fn refusal(status: u32) -> String {
    format!("nfsstat3 {status}")
}

/// Checks that a reply returns the offered chunks, filled from the front (RFC 8166 §4.3.2, §4.3.3).
fn check_lists(offered: &ChunkLists, returned: &ChunkLists) -> Result<(), String> {
    if offered.write.len() != returned.write.len() {
        return Err(format!(
            "{} Write chunks returned, {} offered",
            returned.write.len(),
            offered.write.len()
        ));
    }
    for (offered, returned) in offered.write.iter().zip(&returned.write) {
        check_chunk("Write chunk", offered, returned)?;
    }
    match (&offered.reply, &returned.reply) {
        (None, None) => Ok(()),
        (Some(offered), Some(returned)) => check_chunk("Reply chunk", offered, returned),
        (Some(_), None) => Err("the Reply chunk is not returned".into()),
        (None, Some(_)) => Err("a Reply chunk is returned that was not offered".into()),
    }
}

fn check_chunk(what: &str, offered: &WriteChunk, returned: &WriteChunk) -> Result<(), String> {
    if offered.segments.len() != returned.segments.len() {
        let (seen, given) = (returned.segments.len(), offered.segments.len());
        return Err(format!("a {what} of {seen} segments returned, {given} were offered"));
    }
    let mut full = true;
    for (offered, returned) in offered.segments.iter().zip(&returned.segments) {
        if (offered.handle, offered.offset) != (returned.handle, returned.offset) {
            return Err(format!("a segment of the {what} is returned with another handle or offset"));
        }
        if returned.length > offered.length {
            return Err(format!(
                "a segment of the {what} is returned with {} bytes of {}",
                returned.length, offered.length
            ));
        }
        if returned.length > 0 && !full {
            return Err(format!("the {what} is not filled from the front"));
        }
        full &= returned.length == offered.length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_with_its_place() {
        assert_eq!(differing(b"same", b"same"), None);
        let told = differing(b"abXdYf", b"abcdef").unwrap();
        assert_eq!(
            told,
            "6 bytes instead of 6, 2 of them differ: the first is byte 2, 0x58 instead of 0x63, the last is byte 4"
        );
        let told = differing(b"abc", b"abcdef").unwrap();
        assert!(told.starts_with("3 bytes instead of 6, 3 of them differ"), "{told}");
        assert!(told.ends_with("the first is byte 3, nothing instead of 0x64, the last is byte 5"), "{told}");
    }
}
