//! The send queue: requests that wait here, their translation for the adapter, and those that the adapter has.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use rpcrdma_verbs::{
    Access, Buffer, Completion, Disconnected, Key, PostErrorKind, RemoteSegment, SendRequest, Status,
    WindowMemory, Work, WorkRequest, WrId,
};

use super::IbverbsQueuePair;
use super::windows::{Backing, State as WindowState};
use crate::ffi::value::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, SEND_INLINE, SEND_SOLICITED, WR_SEND,
    WR_SEND_WITH_INV,
};
use crate::hardware::{Chain, Hardware, Operation};
use crate::memory::{Place, Region, address_range};

/// Longest pieces without registration, all of a request together in octets, that are copied. Longer ones are registered
/// for the request.
const STAGED: usize = 16 << 10;
/// Requests after which a completion is asked for, so that their memory comes back.
const UNSIGNALED: u64 = 16;

/// What a request of the adapter was made of.
pub(super) enum Kind {
    Send,
    Write,
    Read {
        sink: Buffer,
    },
    Bind,
    /// An invalidation that found nothing to invalidate.
    Nothing,
    /// An invalidation that needed no request: the memory comes back.
    Close {
        memory: WindowMemory,
    },
    /// An invalidation that the adapter carries out.
    Invalidate {
        key: Key,
    },
}

/// A request that the adapter has.
pub(super) struct Posted {
    pub(super) id: WrId,
    pub(super) kind: Kind,
    /// Number of its last request at the adapter.
    last: u64,
    cost: usize,
    /// Set if it failed.
    status: Option<Status>,
    #[allow(dead_code, reason = "the adapter uses the memory until the request completes")]
    held: Held,
}

/// Memory that a request uses.
#[derive(Default)]
struct Held {
    gather: Vec<Bytes>,
    staged: Option<Buffer>,
    regions: Vec<Region>,
}

/// A piece of local memory.
#[derive(Clone, Copy)]
struct Piece {
    address: u64,
    len: usize,
    key: u32,
}

/// The send queue.
pub(super) struct Sends {
    waiting: VecDeque<(WrId, WorkRequest, usize)>,
    /// Requests but RDMA Reads, which the adapter completes in their order.
    posted: VecDeque<Posted>,
    /// RDMA Reads, in their order. On siw, later requests complete before them (RFC 5040 §5.5).
    reads: VecDeque<Posted>,
    /// Sum of the costs of all, as users count them.
    cost: usize,
    /// Number of the next request at the adapter; the first one is 1.
    next: u64,
    /// Number up to which the adapter has completed requests.
    retired: u64,
    /// Number up to which requests but RDMA Reads have succeeded.
    succeeded: u64,
    /// Place of an RDMA Read that has succeeded.
    read: Option<usize>,
    /// Number of the last request that asked for a completion.
    signaled: u64,
    /// Requests that the adapter holds at most.
    depth: usize,
    chain: Chain,
    pieces: Vec<Piece>,
    /// Places of the pieces of a gather list, kept for the next one.
    places: Vec<Option<Place>>,
}

impl Sends {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            reads: VecDeque::new(),
            cost: 0,
            next: 1,
            retired: 0,
            succeeded: 0,
            read: None,
            signaled: 0,
            depth,
            chain: Chain::default(),
            pieces: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, id: WrId, request: WorkRequest, cost: usize) {
        self.cost += cost;
        self.waiting.push_back((id, request, cost));
    }

    /// Returns what users count of the requests that have not completed.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// Returns the number of requests that the adapter has.
    pub(super) fn outstanding(&self) -> u64 {
        self.next - 1 - self.retired
    }

    /// Returns what the oldest request is that the adapter has not completed, for the log.
    pub(super) fn oldest(&self) -> &'static str {
        let oldest =
            self.posted.front().into_iter().chain(self.reads.front()).min_by_key(|posted| posted.last);
        match oldest.map(|posted| &posted.kind) {
            None => "none",
            Some(Kind::Send) => "Send",
            Some(Kind::Write) => "RDMA Write",
            Some(Kind::Read { .. }) => "RDMA Read",
            Some(Kind::Bind) => "bind",
            Some(Kind::Nothing | Kind::Close { .. }) => "nothing",
            Some(Kind::Invalidate { .. }) => "local invalidation",
        }
    }

    /// Returns whether the adapter has no request that has not completed.
    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.reads.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.posted.is_empty() && self.reads.is_empty()
    }

    /// Notes that the adapter has completed requests up to this number.
    pub(super) fn retire(&mut self, number: u64) {
        self.retired = self.retired.max(number.min(self.next - 1));
    }

    /// Notes that the request with this number has succeeded, and with it all before it but RDMA Reads. Each Read has a
    /// completion of its own.
    pub(super) fn succeed(&mut self, number: u64) {
        self.precede(number);
        self.read = self.reads.iter().position(|read| read.last == number);
    }

    /// Notes that requests up to this number, but RDMA Reads, have succeeded.
    fn precede(&mut self, number: u64) {
        self.succeeded = self.succeeded.max(number.min(self.next - 1));
    }

    /// Notes that the request with this number has failed. Those before it have succeeded.
    pub(super) fn fail(&mut self, number: u64, status: Status) {
        self.precede(number.saturating_sub(1));
        let all = self.posted.iter_mut().chain(&mut self.reads);
        let behind = all.filter(|posted| posted.last >= number);
        if let Some(posted) = behind.min_by_key(|posted| posted.last) {
            posted.status = Some(status);
        }
    }

    /// Takes out the next request that has succeeded.
    pub(super) fn next_done(&mut self) -> Option<Posted> {
        let done = match self.posted.front() {
            Some(first) if first.last <= self.succeeded && first.status.is_none() => self.posted.pop_front(),
            _ => self.read.take().and_then(|index| self.reads.remove(index)),
        };
        self.cost -= done.as_ref().map_or(0, |done| done.cost);
        done
    }

    /// Completes all requests. The queue pair must have ended.
    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        for posted in self.posted.drain(..).chain(self.reads.drain(..)) {
            let status = posted.status.unwrap_or(Status::Flushed);
            let work = match posted.kind {
                Kind::Send => Work::Send,
                Kind::Write => Work::Write,
                Kind::Read { sink } => Work::Read { sink },
                Kind::Bind => Work::BindWindow,
                Kind::Close { memory } => Work::LocalInvalidate { memory: Some(memory) },
                // The table of windows gives the memory back.
                Kind::Nothing | Kind::Invalidate { .. } => Work::LocalInvalidate { memory: None },
            };
            done.push_back(Completion { id: posted.id, status, work });
        }
        for (id, request, _) in self.waiting.drain(..) {
            let work = match request {
                WorkRequest::Write { .. } => Work::Write,
                WorkRequest::Read { sink, .. } => Work::Read { sink },
                WorkRequest::BindWindow { .. } => Work::BindWindow,
                WorkRequest::LocalInvalidate { .. } => Work::LocalInvalidate { memory: None },
                _ => Work::Send,
            };
            done.push_back(Completion { id, status: Status::Flushed, work });
        }
        self.cost = 0;
    }

    /// Adds a request with these segments to the chain.
    fn add(&mut self, operation: Operation, segments: usize, signaled: bool) {
        let number = self.next;
        let signaled = signaled || number - self.signaled >= UNSIGNALED;
        if signaled {
            self.signaled = number;
        }
        self.chain.request(number, operation, segments, signaled);
        self.next += 1;
    }

    fn posted(&mut self, id: WrId, kind: Kind, cost: usize, held: Held) {
        self.enter(id, kind, cost, held, None);
    }

    /// Adds a request that cannot be handed over: it completes when the connection has ended.
    fn refused(&mut self, id: WrId, kind: Kind, cost: usize) {
        self.enter(id, kind, cost, Held::default(), Some(Status::LocalProtection));
    }

    fn enter(&mut self, id: WrId, kind: Kind, cost: usize, held: Held, status: Option<Status>) {
        let posted = Posted { id, kind, last: self.next - 1, cost, status, held };
        match posted.kind {
            Kind::Read { .. } => self.reads.push_back(posted),
            _ => self.posted.push_back(posted),
        }
    }

    /// Resolves the pieces of a gather list, and returns the memory that they need beside their own.
    fn resolve(
        &mut self,
        hardware: &Hardware,
        staging: &rpcrdma_verbs::ProtectionDomain,
        gather: Vec<Bytes>,
    ) -> io::Result<Held> {
        self.pieces.clear();
        let mut held = Held::default();
        let mut places = std::mem::take(&mut self.places);
        places.extend(gather.iter().map(|bytes| hardware.memory.find(bytes)));
        let unknown = gather.iter().zip(&places).filter(|(_, place)| place.is_none());
        let foreign: usize = unknown.map(|(bytes, _)| bytes.len()).sum();
        if foreign > 0 && foreign <= STAGED {
            held.staged = staging.allocate(foreign, 1).ok();
        }
        let staged = match &mut held.staged {
            Some(buffer) => hardware.memory.keep(buffer)?,
            None => None,
        };
        let mut used = 0;
        for (bytes, known) in gather.iter().zip(places.drain(..)).filter(|(bytes, _)| !bytes.is_empty()) {
            let len = bytes.len();
            if let Some(place) = known {
                self.pieces.push(Piece { address: place.address, len, key: place.local_key });
            } else if let (Some(place), Some(buffer)) = (staged, &mut held.staged) {
                if let Some(target) = buffer.get_mut(used..used + len) {
                    target.copy_from_slice(bytes);
                }
                let address = place.address + used as u64;
                used += len;
                match self.pieces.last_mut() {
                    // Neighbours in the staging memory are one segment.
                    Some(last)
                        if last.key == place.local_key && last.address + last.len as u64 == address =>
                    {
                        last.len += len;
                    }
                    _ => self.pieces.push(Piece { address, len, key: place.local_key }),
                }
            } else {
                let region = hardware.memory.register(address_range(bytes), 0)?;
                let place = region.beginning();
                self.pieces.push(Piece { address: place.address, len, key: place.local_key });
                held.regions.push(region);
            }
        }
        held.gather = gather;
        self.places = places;
        Ok(held)
    }

    /// Makes pieces of a short gather list that the request itself carries.
    fn inline(&mut self, gather: &[Bytes]) {
        self.pieces.clear();
        let pieces = gather.iter().filter(|bytes| !bytes.is_empty());
        self.pieces.extend(pieces.map(|bytes| Piece {
            address: bytes.as_ptr() as u64,
            len: bytes.len(),
            key: 0,
        }));
    }
}

fn total(gather: &[Bytes]) -> usize {
    gather.iter().map(Bytes::len).fold(0, usize::saturating_add)
}

fn length(segments: &[RemoteSegment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

impl IbverbsQueuePair {
    /// Checks a request, and returns what it counts in the send queue.
    pub(super) fn check(&mut self, request: &WorkRequest) -> Result<usize, PostErrorKind> {
        if !self.takes_work() {
            return Err(PostErrorKind::Disconnected);
        }
        let most = self.capabilities.max_sge;
        let longest = u64::from(self.capabilities.max_message_len);
        let cost = match request {
            WorkRequest::Send(SendRequest { gather, invalidate, .. }) => {
                if gather.len() > most {
                    return Err(PostErrorKind::Invalid("the gather list has too many pieces"));
                }
                if total(gather) as u64 > longest {
                    return Err(PostErrorKind::Invalid("the message is too long"));
                }
                if invalidate.is_some() && !self.capabilities.remote_invalidation {
                    return Err(PostErrorKind::Invalid("the adapter cannot send an invalidation"));
                }
                1
            }
            WorkRequest::Write { gather, targets } => {
                if gather.len() > most {
                    return Err(PostErrorKind::Invalid("the gather list has too many pieces"));
                }
                if targets.is_empty() {
                    return Err(PostErrorKind::Invalid("the RDMA Write has no target"));
                }
                if total(gather) as u64 > length(targets) {
                    return Err(PostErrorKind::Invalid("the targets are shorter than the data"));
                }
                if targets.iter().any(|target| u64::from(target.length) > longest)
                    && total(gather) as u64 > longest
                {
                    return Err(PostErrorKind::Invalid("a target is longer than a message of the adapter"));
                }
                targets.len()
            }
            WorkRequest::Read { sink, sources } => {
                if sources.is_empty() {
                    return Err(PostErrorKind::Invalid("the RDMA Read has no source"));
                }
                if sink.len() as u64 != length(sources) {
                    return Err(PostErrorKind::Invalid("the sink is not as long as the sources"));
                }
                if sources.iter().any(|source| u64::from(source.length) > longest) {
                    return Err(PostErrorKind::Invalid("a source is longer than a message of the adapter"));
                }
                if self.capabilities.ord == 0 {
                    return Err(PostErrorKind::Invalid("the peer answers no RDMA Reads"));
                }
                sources.len()
            }
            WorkRequest::BindWindow { key } => match self.windows.get_mut(*key).map(|entry| entry.state) {
                Some(WindowState::Reserved) => 1,
                Some(_) => {
                    return Err(PostErrorKind::Invalid("the window is bound already, or was given up"));
                }
                None => return Err(PostErrorKind::Invalid("no window has this key")),
            },
            WorkRequest::LocalInvalidate { .. } => 0,
            _ => return Err(PostErrorKind::Invalid("a request that this provider does not know")),
        };
        if cost > self.capabilities.max_send_wr.saturating_sub(self.sends.cost()) {
            return Err(PostErrorKind::QueueFull { limit: self.capabilities.max_send_wr });
        }
        Ok(cost)
    }

    /// Gives requests to the adapter while it has room.
    pub(super) fn post_sends(&mut self) -> Result<(), Disconnected> {
        let cannot = |error: io::Error| Disconnected::Link(format!("a request cannot be posted: {error}"));
        let mut result = Ok(());
        while let Some((_, _, cost)) = self.sends.waiting.front() {
            let room =
                self.sends.depth.saturating_sub(usize::try_from(self.sends.outstanding()).unwrap_or(0));
            if (*cost).max(1) > room {
                break;
            }
            let Some((id, request, cost)) = self.sends.waiting.pop_front() else { break };
            result = self.translate(id, request, cost);
            if result.is_err() {
                break;
            }
        }
        let Some(hardware) = &mut self.hardware else { return Ok(()) };
        self.sends.chain.signal_last();
        self.sends.signaled = self.sends.next - 1;
        let posted = hardware.post_sends(&mut self.sends.chain);
        result.and(posted).map_err(cannot)
    }

    /// Makes requests of the adapter.
    fn translate(&mut self, id: WrId, request: WorkRequest, cost: usize) -> io::Result<()> {
        match request {
            WorkRequest::Send(send) => self.translate_send(id, send),
            WorkRequest::Write { gather, targets } => self.translate_write(id, gather, &targets, cost),
            WorkRequest::Read { sink, sources } => self.translate_read(id, sink, &sources, cost),
            WorkRequest::BindWindow { key } => {
                self.translate_bind(id, key);
                Ok(())
            }
            WorkRequest::LocalInvalidate { key } => self.translate_invalidation(id, key),
            // `check` refuses others.
            _ => Ok(()),
        }
    }

    /// Makes pieces of a gather list. Returns the memory to hold, and the flag for data in the request itself.
    fn gather(&mut self, gather: Vec<Bytes>) -> io::Result<(Held, u32)> {
        let Some(hardware) = &self.hardware else { return Ok((Held::default(), 0)) };
        let len = total(&gather);
        self.counters.link_bytes_sent += len as u64;
        if len > 0 && len <= hardware.sizes.inline {
            self.sends.inline(&gather);
            return Ok((Held { gather, ..Held::default() }, SEND_INLINE));
        }
        Ok((self.sends.resolve(hardware, &self.staging, gather)?, 0))
    }

    fn translate_send(&mut self, id: WrId, send: SendRequest) -> io::Result<()> {
        let (held, mut flags) = match self.gather(send.gather) {
            Ok(gathered) => gathered,
            Err(error) => {
                self.sends.refused(id, Kind::Send, 1);
                return Err(error);
            }
        };
        if send.solicited {
            flags |= SEND_SOLICITED;
        }
        let (opcode, invalidate) = match send.invalidate {
            Some(key) => (WR_SEND_WITH_INV, key.0),
            None => (WR_SEND, 0),
        };
        for piece in &self.sends.pieces {
            self.sends.chain.segment(piece.address, piece.len, piece.key);
        }
        let count = self.sends.pieces.len();
        self.sends.add(Operation::Send { opcode, flags, invalidate }, count, false);
        self.sends.posted(id, Kind::Send, 1, held);
        Ok(())
    }

    fn translate_write(
        &mut self,
        id: WrId,
        gather: Vec<Bytes>,
        targets: &[RemoteSegment],
        cost: usize,
    ) -> io::Result<()> {
        let empty = total(&gather) == 0;
        let (held, flags) = match self.gather(gather) {
            Ok(gathered) => gathered,
            Err(error) => {
                self.sends.refused(id, Kind::Write, cost);
                return Err(error);
            }
        };
        if let (true, [only]) = (empty, targets) {
            self.sends.add(Operation::Write { address: only.address, key: only.key.0, flags }, 0, false);
        }
        let mut pieces = std::mem::take(&mut self.sends.pieces);
        let mut rest = pieces.iter().copied();
        let mut piece = rest.next();
        for target in targets {
            let mut room = usize::try_from(target.length).unwrap_or(usize::MAX);
            let mut count = 0;
            while room > 0
                && let Some(current) = &mut piece
            {
                let len = current.len.min(room);
                self.sends.chain.segment(current.address, len, current.key);
                count += 1;
                room -= len;
                current.address = current.address.wrapping_add(len as u64);
                current.len -= len;
                if current.len == 0 {
                    piece = rest.next();
                }
            }
            if count > 0 {
                let operation = Operation::Write { address: target.address, key: target.key.0, flags };
                self.sends.add(operation, count, false);
            }
        }
        pieces.clear();
        self.sends.pieces = pieces;
        self.sends.posted(id, Kind::Write, cost, held);
        Ok(())
    }

    fn translate_read(
        &mut self,
        id: WrId,
        mut sink: Buffer,
        sources: &[RemoteSegment],
        cost: usize,
    ) -> io::Result<()> {
        let Some(hardware) = &self.hardware else { return Ok(()) };
        let mut held = Held::default();
        let range = address_range(&sink);
        // The peer of an iWARP adapter writes to the sink (RFC 5040 §4.2), so it gets the right, for this Read alone.
        let kept = if self.iwarp || range.is_empty() { Ok(None) } else { hardware.memory.keep(&mut sink) };
        let rights = ACCESS_LOCAL_WRITE | if self.iwarp { ACCESS_REMOTE_WRITE } else { 0 };
        let place = match kept {
            Ok(None) if range.is_empty() => Ok((0, 0)),
            Ok(None) => hardware.memory.register(range, rights).map(|region| {
                let place = region.beginning();
                held.regions.push(region);
                (place.address, place.local_key)
            }),
            Ok(Some(place)) => Ok((place.address, place.local_key)),
            Err(error) => Err(error),
        };
        let (mut address, key) = match place {
            Ok(place) => place,
            Err(error) => {
                self.sends.refused(id, Kind::Read { sink }, cost);
                return Err(error);
            }
        };
        let last = sources.iter().rposition(|source| source.length > 0).unwrap_or(sources.len() - 1);
        for (index, source) in sources.iter().enumerate() {
            if source.length == 0 && index != last {
                continue;
            }
            let len = usize::try_from(source.length).unwrap_or(usize::MAX);
            let count = usize::from(len > 0);
            if count > 0 {
                self.sends.chain.segment(address, len, key);
            }
            address = address.wrapping_add(u64::from(source.length));
            let operation = Operation::Read { address: source.address, key: source.key.0 };
            self.sends.add(operation, count, index == last);
            if index == last {
                break;
            }
        }
        self.sends.posted(id, Kind::Read { sink }, cost, held);
        Ok(())
    }

    fn translate_bind(&mut self, id: WrId, key: Key) {
        if let Some(entry) = self.windows.get_mut(key) {
            entry.state = WindowState::Bound;
            self.counters.windows_bound += 1;
            if let Backing::Window { spare, place, len, .. } = &entry.backing {
                let rights = match entry.memory.access() {
                    Access::RemoteRead => ACCESS_REMOTE_READ,
                    Access::RemoteWrite => ACCESS_REMOTE_WRITE,
                };
                let operation = Operation::Bind {
                    window: spare.window,
                    key: key.0,
                    place: *place,
                    len: *len,
                    rights: rights.cast_unsigned(),
                };
                self.sends.add(operation, 0, false);
            }
        }
        self.sends.posted(id, Kind::Bind, 1, Held::default());
    }

    fn translate_invalidation(&mut self, id: WrId, key: Key) -> io::Result<()> {
        let kind = match self.windows.get_mut(key) {
            None => Kind::Nothing,
            Some(entry) => match (entry.state, &mut entry.backing) {
                (WindowState::Closing, _) => {
                    entry.waiting.push(id);
                    return Ok(());
                }
                (WindowState::Bound, Backing::Window { .. }) => {
                    entry.state = WindowState::Closing;
                    self.counters.local_invalidations += 1;
                    self.sends.add(Operation::Invalidate { key: key.0 }, 0, true);
                    Kind::Invalidate { key }
                }
                (_, backing) => {
                    if let Backing::Registration(region) = backing
                        && let Err(error) = region.close()
                    {
                        // The memory comes back when the queue pair has ended.
                        self.sends.refused(id, Kind::Nothing, 0);
                        return Err(error);
                    }
                    self.counters.local_invalidations += 1;
                    match self.windows.remove(key) {
                        Some((memory, _)) => Kind::Close { memory },
                        None => Kind::Nothing,
                    }
                }
            },
        };
        self.sends.posted(id, kind, 0, Held::default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a request of one entry, as the adapter would get it.
    fn add(sends: &mut Sends, id: u64, kind: Kind) {
        sends.cost += 1;
        sends.add(Operation::Invalidate { key: 0 }, 0, false);
        sends.posted(WrId(id), kind, 1, Held::default());
    }

    fn read() -> Kind {
        Kind::Read { sink: Buffer::adopt(vec![0; 4]) }
    }

    fn done(sends: &mut Sends) -> Vec<u64> {
        std::iter::from_fn(|| sends.next_done()).map(|posted| posted.id.0).collect()
    }

    #[test]
    fn one_completion_stands_for_all_requests_before_it() {
        let mut sends = Sends::new(64);
        for id in 1..=5 {
            add(&mut sends, id, Kind::Send);
        }
        sends.retire(3);
        sends.succeed(3);
        assert_eq!(done(&mut sends), [1, 2, 3]);
        assert_eq!((sends.outstanding(), sends.cost()), (2, 2));
        sends.retire(5);
        sends.succeed(5);
        assert_eq!(done(&mut sends), [4, 5]);
        assert!(sends.is_empty() && sends.is_idle());
    }

    #[test]
    fn a_read_is_done_with_its_own_completion_only() {
        let mut sends = Sends::new(64);
        add(&mut sends, 1, Kind::Send);
        add(&mut sends, 2, read());
        add(&mut sends, 3, read());
        add(&mut sends, 4, Kind::Send);
        sends.succeed(4);
        assert_eq!(done(&mut sends), [1, 4]);
        sends.succeed(2);
        assert_eq!(done(&mut sends), [2]);
        assert!(!sends.is_idle());
        sends.succeed(3);
        assert_eq!(done(&mut sends), [3]);
        // The first request of a Read with two sources.
        add(&mut sends, 5, read());
        sends.succeed(4);
        assert_eq!(done(&mut sends), [0; 0]);
    }

    #[test]
    fn a_failure_concerns_one_request_and_those_behind_it_are_flushed() {
        let mut sends = Sends::new(64);
        add(&mut sends, 1, Kind::Send);
        add(&mut sends, 2, read());
        add(&mut sends, 3, Kind::Write);
        add(&mut sends, 4, Kind::Send);
        sends.push(WrId(5), WorkRequest::LocalInvalidate { key: Key(1) }, 0);
        sends.fail(3, Status::RemoteAccess);
        // The Read has no completion, so nobody knows whether its data is there.
        assert_eq!(done(&mut sends), [1]);
        let mut completions = VecDeque::new();
        sends.flush(&mut completions);
        let mut statuses: Vec<_> = completions.iter().map(|done| (done.id.0, done.status)).collect();
        statuses.sort_by_key(|(id, _)| *id);
        let flushed = Status::Flushed;
        assert_eq!(statuses, [(2, flushed), (3, Status::RemoteAccess), (4, flushed), (5, flushed)]);
        assert!(sends.is_empty());
        assert_eq!(sends.cost(), 0);
    }

    #[test]
    fn some_requests_ask_for_a_completion() {
        let mut sends = Sends::new(1000);
        for id in 1..=UNSIGNALED * 3 {
            add(&mut sends, id, Kind::Send);
        }
        assert_eq!(sends.signaled, UNSIGNALED * 3);
    }

    #[test]
    fn numbers_that_nobody_gave_change_nothing() {
        let mut sends = Sends::new(64);
        add(&mut sends, 1, Kind::Send);
        sends.retire(u64::MAX);
        assert_eq!(sends.outstanding(), 0);
        sends.fail(99, Status::Fatal);
        assert_eq!(done(&mut sends), [1]);
    }
}
