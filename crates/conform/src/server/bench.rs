//! What all rows stand on: connections to the server, calls with any lists, and the files that NFS rows work on.
//!
//! *Who owns which buffer.* Windows belong to the connection; the bytes of a reply are copied out of them.
//!
//! *What happens on error.* Everything that the server does wrong is a [`Wrong`] that ends the row.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::{Body, ChunkLists, WriteChunk};
use rpcrdma_xdr::Decoder;
use tokio::time::Instant;

use super::Target;
use crate::endpoint::{Arrived, Endpoint, Next, parameters};
use crate::message::{
    Answer, RDMA_MSG, RDMA_NOMSG, Reaction, Rpc, RpcEnd, Words, answer, auth_sys, is_for, message, rpc_reply,
};
use crate::nfs;
use crate::report::{Wrong, fail, not_applicable};

/// Credits that are asked for where the row is not about them.
pub(super) const CREDITS: u32 = 32;
/// Receives of a connection, and their length: longer than any threshold that is announced.
const RECEIVES: usize = 64;
const RECEIVE_LEN: usize = 8192;
/// What windows for the server's Writes are filled with.
pub(super) const FILL: u8 = 0xa5;
/// Bytes of the file that READs are made on.
pub(super) const SOURCE_LEN: usize = 8192;
/// Bytes that a WRITE or READ carries inline without reaching any threshold.
const PIECE: usize = 512;

/// A call as it travels.
pub(super) struct Call {
    pub(super) xid: u32,
    pub(super) lists: ChunkLists,
    pub(super) credit: u32,
    /// RDMA_MSG with this payload, or RDMA_NOMSG.
    pub(super) payload: Option<Bytes>,
}

/// Memory behind the returned length of a chunk (RFC 8166 §3.4.6.2, §4.3.2.2), from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behind {
    AsItWas,
    /// Not by the pad: allowed, since a server may find out late that it has less to say.
    Modified,
    /// The pad of the data was written, which must not be.
    Pad,
}

/// A reply, with what came through chunks.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) lists: ChunkLists,
    /// Whether it came through the Reply chunk.
    pub(super) long: bool,
    pub(super) end: RpcEnd,
    pub(super) results: Decoder,
    /// What each Write chunk holds, by its returned length.
    pub(super) written: Vec<Bytes>,
    /// What became of memory behind the returned lengths.
    pub(super) behind: Behind,
    /// The window that came back with it.
    pub(super) invalidated: Option<u32>,
    /// Bytes of the Send.
    pub(super) sent: usize,
}

/// Files that NFS rows work on.
#[derive(Clone)]
pub(super) struct Scratch {
    pub(super) root: Bytes,
    /// Holds [`SOURCE_LEN`] bytes of [`pattern`] 0.
    pub(super) source: Bytes,
    pub(super) source_name: String,
    /// For WRITEs.
    pub(super) sink: Bytes,
}

/// See the module's introduction.
pub(super) struct Bench<'t> {
    pub(super) target: &'t Target,
    next_xid: u32,
    scratch: Option<Result<Scratch, Wrong>>,
    /// Names of files to be removed.
    names: Vec<String>,
}

/// Bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(seed: u32, len: usize) -> Bytes {
    let start = usize::from(seed.to_le_bytes()[0]);
    (0..len).map(|at| ((at * 7 + at / 251 + start) % 253).to_le_bytes()[0]).collect()
}

/// What follows the data in the memory of a chunk.
struct Rest(Vec<u8>);

impl Rest {
    /// With this many bytes of pad in front.
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
        // Another start for each run: servers remember XIDs of earlier connections.
        let random = RandomState::new().build_hasher().finish().to_le_bytes();
        let [a, b, c, ..] = random;
        Self { target, next_xid: u32::from_le_bytes([0, a, b, c]), scratch: None, names: Vec::new() }
    }

    /// An XID that no call had.
    pub(super) const fn xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }

    /// How long an answer may take.
    pub(super) const fn limit(&self) -> Duration {
        self.target.limit
    }

    /// The program that every server of the target answers NULL calls of.
    pub(super) fn null_rpc(&self) -> Rpc {
        Rpc { program: self.target.program, version: self.target.version, credential: (0, Bytes::new()) }
    }

    /// A NULL call, whole.
    pub(super) fn null_message(&mut self, credit: u32) -> (u32, Bytes) {
        let xid = self.xid();
        let payload = self.null_rpc().call(xid, 0).finish();
        (xid, message(xid, credit, RDMA_MSG, ChunkLists::default(), &payload))
    }

    /// A connection without private data: thresholds of 1024, no remote invalidation.
    pub(super) async fn connect(&self) -> Result<Endpoint, Wrong> {
        self.connect_with(Bytes::new()).await
    }

    /// A connection that announces 4096 both ways.
    pub(super) async fn connect_announcing(&self, remote_invalidation: bool) -> Result<Endpoint, Wrong> {
        self.connect_with(PrivateData { remote_invalidation, send_size: 4096, receive_size: 4096 }.encode())
            .await
    }

    pub(super) async fn connect_with(&self, private_data: Bytes) -> Result<Endpoint, Wrong> {
        let connecting = self.target.connector.connect(self.target.address, parameters(private_data));
        match tokio::time::timeout(self.limit(), connecting).await {
            Ok(Ok(queue_pair)) => Ok(Endpoint::new(queue_pair, RECEIVES, RECEIVE_LEN)),
            Ok(Err(error)) => Err(fail(format!("no connection: {error}"))),
            Err(_) => Err(fail(format!("no connection within {:?}", self.limit()))),
        }
    }

    /// A connection on which one NULL call was answered: its grant is known.
    pub(super) async fn ready(&mut self) -> Result<(Endpoint, u32), Wrong> {
        let mut endpoint = self.connect().await?;
        let grant = self.null(&mut endpoint).await?;
        Ok((endpoint, grant))
    }

    /// Makes a NULL call; the grant.
    pub(super) async fn null(&mut self, endpoint: &mut Endpoint) -> Result<u32, Wrong> {
        self.null_behind(endpoint, &[]).await.map(|(grant, _)| grant)
    }

    /// The same behind messages that may still be answered: the grant, and those answers.
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

    /// The server answers a NULL call on a new connection.
    pub(super) async fn alive(&mut self) -> Result<(), Wrong> {
        let served = async {
            let (endpoint, _) = self.ready().await?;
            endpoint.close().await;
            Ok(())
        };
        served.await.map_err(|wrong: Wrong| fail(format!("a new connection is not served: {}", wrong.seen)))
    }

    /// What the server makes of `xid` within a time. Messages for other XIDs that nobody waits for are odd.
    pub(super) async fn observe(&self, endpoint: &mut Endpoint, xid: u32, limit: Duration) -> Answer {
        let bare = |reaction| Answer { reaction, header: None, payload: Bytes::new(), bytes: None };
        match endpoint.next(limit).await {
            Next::Message(arrived) => answer(&arrived.bytes, xid),
            Next::Silence => bare(Reaction::Nothing),
            Next::Closed(_) => bare(Reaction::Closed),
        }
    }

    /// The same behind messages that may still be answered, with those answers.
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

    /// Sends a call and takes its reply with all that came through chunks. Every rule for replies is checked.
    pub(super) async fn call(&mut self, endpoint: &mut Endpoint, call: Call) -> Result<Reply, Wrong> {
        self.call_or_err_chunk(endpoint, call).await?.ok_or_else(|| fail(Reaction::ErrChunk.to_string()))
    }

    /// The same where the server may refuse the form: `None` is ERR_CHUNK.
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
                (false, false) => return Err(fail("an RDMA_MSG whose Reply chunk says that it was used")),
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

    /// Takes the memory of a chunk back: what was written by the returned lengths, and the rest.
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

    /// What NFS calls are made with.
    pub(super) fn nfs_rpc(&self) -> Rpc {
        let (uid, gid) = self.target.export.as_ref().map_or((0, 0), |export| (export.uid, export.gid));
        Rpc { program: nfs::PROGRAM, version: nfs::VERSION, credential: auth_sys(uid, gid) }
    }

    /// Makes an NFS call inline; its results, whose status is NFS3_OK.
    pub(super) async fn nfs_inline(
        &mut self,
        endpoint: &mut Endpoint,
        procedure: u32,
        arguments: impl FnOnce(Words) -> Words,
    ) -> Result<Decoder, Wrong> {
        self.nfs_status(endpoint, procedure, arguments).await?.map_err(|status| fail(refusal(status)))
    }

    /// Makes an NFS call inline; its results, or the status if that is not NFS3_OK.
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

    /// The same where files are made: what the file system refuses is not the transport's fault.
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

    /// The root of the export.
    pub(super) fn root(&self) -> Result<Bytes, Wrong> {
        let export = self.target.export.as_ref();
        export
            .map(|export| Bytes::from(export.root.clone()))
            .ok_or_else(|| not_applicable("no NFSv3 export was given"))
    }

    /// The files that rows work on, made when first needed.
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

    /// A name that no row had; it is removed at the end.
    pub(super) fn name(&mut self) -> String {
        let name = format!(".rpcrdma-conform-{:08x}", self.xid());
        self.names.push(name.clone());
        name
    }

    /// Makes an empty file; its handle and name.
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

    /// What a file holds, read inline.
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

    /// Removes the files: every name that was taken, also if the row that made it has failed.
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
            // A name that was never made is not there. Who does not answer at all is not asked again and again.
            let removed = self.nfs_status(&mut endpoint, nfs::REMOVE, arguments).await;
            if removed.is_err() && !endpoint.has_ended() {
                break;
            }
        }
        endpoint.close().await;
    }
}

/// Results that do not decode.
pub(super) fn results_wrong(error: rpcrdma_xdr::DecodeError) -> Wrong {
    fail(format!("results that do not decode: {error}"))
}

/// A reply whose call was carried out.
pub(super) fn success(reply: Reply) -> Result<Reply, Wrong> {
    match reply.end {
        RpcEnd::Success => Ok(reply),
        end => Err(fail(format!("a reply {end}"))),
    }
}

/// A reply to an NFS call that succeeded; its results begin behind the status.
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

/// RFC 8166 §4.3.2, §4.3.3: a reply returns the chunks that it was given, with the lengths that were filled from the front.
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
