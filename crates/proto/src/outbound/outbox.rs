//! [`Outbox`]: work requests for the queue pair, until their completion.
//!
//! Requests wait here until the driver takes them, or the send queue has space. Windows own their memory from their
//! reservation on. A request that is never posted therefore loses at most the sink of an RDMA Read.
//!
//! Receives are all alike and complete in order, so only their count is kept: an id that was given and names no request
//! is that of a Receive. An idle connection has as many Receives as credits, and would keep an entry for each.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rpcrdma_verbs::{Capabilities, Key, Pace, Progress, ReceiveMemory, Rest, SendRequest, WorkRequest, WrId};

use crate::ids::IdMap;
use crate::settings::timers::{Flow, Moving, Told};
use crate::wire::wide;

/// A request for the queue pair; the order matters.
#[derive(Debug)]
pub enum Post {
    /// A work request for the send queue.
    Work(WrId, WorkRequest),
    /// A Receive for the receive queue.
    Receive(WrId, ReceiveMemory),
    /// End the connection in order ([`QueuePair::disconnect`](rpcrdma_verbs::QueuePair::disconnect)).
    Disconnect,
    /// End the connection at once ([`QueuePair::abort`](rpcrdma_verbs::QueuePair::abort)).
    Abort,
}

/// The message of a chunk that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The reply to our call under this XID.
    Reply(u32),
    /// A Call of the peer, by its token.
    Call(u64),
}

/// The origin of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Receive,
    Send,
    Write,
    /// The bind of a call's window.
    Bind {
        xid: u32,
        window: usize,
    },
    /// The invalidation of a call's window.
    Invalidate {
        xid: u32,
        window: usize,
        key: Key,
    },
    /// A reservation that was not used.
    Release,
    /// The RDMA Reads of a part of a chunk.
    Read {
        owner: Owner,
        chunk: usize,
        part: usize,
    },
    /// The bind of a window of an exposed reply.
    Expose,
    /// The invalidation of a window of an exposed reply.
    Conceal {
        token: u64,
        key: Key,
    },
}

/// A work request or Receive from its making to its completion.
#[derive(Clone, Copy, Debug)]
struct Posted {
    origin: Origin,
    /// Entries of the send queue that the request uses.
    cost: usize,
    /// Bytes that leave with the request.
    bytes: u64,
}

/// Work requests and commands, in the order in which the queue pair gets them; and the Receives that are posted.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The most entries of a gather list.
    max_sge: usize,
    /// Entries of the send queue.
    max_send_wr: usize,
    waiting: VecDeque<Post>,
    works: IdMap<WrId, Posted>,
    next_id: u64,
    /// Receives that are posted.
    receives: u64,
    /// Entries of the send queue that are in use.
    outstanding: usize,
    /// Sends that are not express and have not completed, each with its grant.
    in_order: Vec<(WrId, u32)>,
    /// The progress of Sends and RDMA Writes at the provider.
    sending: Option<Moving>,
    /// The number of Sends and RDMA Writes at the provider, and their bytes.
    data: (usize, u64),
    /// Bytes of these, and of waiting ones.
    to_leave: u64,
    /// Bytes of all requests so far.
    made: u64,
    /// Progress of data, if the driver reports it.
    told: Option<Told>,
}

impl Outbox {
    pub(crate) fn new(capabilities: &Capabilities) -> Self {
        Self {
            max_sge: capabilities.max_sge.max(1),
            max_send_wr: capabilities.max_send_wr.max(1),
            waiting: VecDeque::new(),
            works: IdMap::default(),
            next_id: 0,
            receives: 0,
            outstanding: 0,
            in_order: Vec::new(),
            sending: None,
            data: (0, 0),
            to_leave: 0,
            made: 0,
            told: None,
        }
    }

    /// Returns the most entries of a gather list.
    pub(crate) const fn max_sge(&self) -> usize {
        self.max_sge
    }

    fn id(&mut self, origin: Origin, cost: usize, bytes: u64) -> WrId {
        let id = WrId(self.next_id);
        self.next_id += 1;
        self.works.insert(id, Posted { origin, cost, bytes });
        self.to_leave = self.to_leave.saturating_add(bytes);
        self.made = self.made.saturating_add(bytes);
        id
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, origin: Origin, request: WorkRequest) -> WrId {
        let id = self.id(origin, cost(&request), leaving(&request));
        self.waiting.push_back(Post::Work(id, request));
        id
    }

    /// Adds a Send that says this grant. The peer keeps to the grant that came last, and Receives may back only the one that left
    /// last. So a Send never passes one that says another grant (rule I3).
    pub(crate) fn push_send(&mut self, mut request: SendRequest, grant: Option<u32>) {
        let passes = |grant| self.in_order.iter().all(|(_, said)| *said == grant);
        request.express = request.express && grant.is_none_or(passes);
        let express = request.express;
        let id = self.push(Origin::Send, WorkRequest::Send(request));
        self.in_order.extend(grant.filter(|_| !express).map(|grant| (id, grant)));
    }

    /// Returns a Receive to post now.
    pub(crate) fn receive(&mut self, memory: ReceiveMemory) -> Post {
        let id = WrId(self.next_id);
        self.next_id += 1;
        self.receives += 1;
        Post::Receive(id, memory)
    }

    /// Adds a command.
    pub(crate) fn push_command(&mut self, command: Post) {
        self.waiting.push_back(command);
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the next request to post, if the send queue has space for it. `stall` is the longest time without
    /// progress of data.
    pub(crate) fn next(&mut self, now: Instant, stall: Duration) -> Option<Post> {
        if let Some(Post::Work(id, request)) = self.waiting.front() {
            // The cost never exceeds the whole queue, since the limits on chunks are fitted to it.
            let cost = cost(request);
            if self.outstanding + cost > self.max_send_wr {
                return None;
            }
            self.outstanding += cost;
            let bytes = self.works.get(id).map_or(0, |posted| posted.bytes);
            if bytes > 0 {
                let (count, total) = self.data;
                self.data = (count + 1, total.saturating_add(bytes));
                let told = self.told.as_ref();
                self.sending.get_or_insert_with(|| Moving::new(now, stall, Flow::Sent, told, 0)).add(bytes);
            }
        }
        self.waiting.pop_front()
    }

    /// Returns the origin of a completed request. If the request has `left` at this time, the timer of the next Sends
    /// and RDMA Writes restarts then, unless the provider reports progress. With `None` the request was not posted.
    pub(crate) fn complete(&mut self, id: WrId, left: Option<(Instant, Duration)>) -> Option<Origin> {
        let Some(Posted { origin, cost, bytes }) = self.works.remove(&id) else {
            self.receives = self.receives.checked_sub(1).filter(|_| id.0 < self.next_id)?;
            return Some(Origin::Receive);
        };
        self.to_leave = self.to_leave.saturating_sub(bytes);
        self.outstanding = self.outstanding.saturating_sub(cost);
        if origin == Origin::Send {
            self.in_order.retain(|(sent, _)| *sent != id);
        }
        if bytes > 0 {
            let (count, total) = self.data;
            let (count, total) = (count.saturating_sub(1), total.saturating_sub(bytes));
            self.data = (count, total);
            if count == 0 {
                self.sending = None;
            } else if let (Some((now, stall)), None) = (left, &self.told) {
                self.sending = Some(Moving::new(now, stall, Flow::Sent, None, total));
            }
        }
        Some(origin)
    }

    /// Returns a mark after everything made so far.
    pub(crate) const fn mark(&self) -> u64 {
        self.next_id
    }

    /// Whether no plain Send before this mark is outstanding.
    pub(crate) fn is_in_order(&self, mark: u64) -> bool {
        self.in_order.first().is_none_or(|(WrId(id), _)| *id >= mark)
    }

    /// Whether Sends or RDMA Writes are at the provider.
    pub(crate) const fn is_sending(&self) -> bool {
        self.data.0 > 0
    }

    /// Returns the bytes that have not left, at the provider or in this queue.
    pub(crate) const fn bytes_to_leave(&self) -> u64 {
        self.to_leave
    }

    /// Returns the bytes of all Sends and RDMA Writes so far.
    pub(crate) const fn bytes_made(&self) -> u64 {
        self.made
    }

    /// Returns the progress of data, if the driver reports it.
    pub(crate) const fn told(&self) -> Option<&Told> {
        self.told.as_ref()
    }

    /// Takes the progress of data that the driver reports.
    pub(crate) fn handle_progress(&mut self, now: Instant, progress: Progress) {
        match &mut self.told {
            Some(told) => told.update(now, progress),
            none => *none = Some(Told::new(now, progress)),
        }
    }

    /// Returns the deadline of the Sends and RDMA Writes at the provider.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.sending.map(|sending| sending.deadline)
    }

    /// Checks the progress of the Sends and RDMA Writes at their deadline; `false` if they have stalled.
    pub(crate) fn handle_timeout(&mut self, now: Instant, pace: Pace) -> bool {
        let Some(sending) = self.sending.as_mut().filter(|sending| sending.deadline <= now) else {
            return true;
        };
        let goes_on = sending.goes_on(now, pace, self.told.as_ref());
        if !goes_on {
            self.sending = None;
        }
        goes_on
    }

    /// Withdraws the waiting requests.
    pub(crate) fn withdraw(&mut self) {
        for post in std::mem::take(&mut self.waiting) {
            if let Post::Work(id, _) = post
                && let Some(withdrawn) = self.works.remove(&id)
            {
                self.to_leave = self.to_leave.saturating_sub(withdrawn.bytes);
            }
        }
    }

    /// Releases memory that only a burst of requests needs.
    pub(crate) fn rest(&mut self) {
        self.waiting.rest();
        self.works.rest();
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.works.clear();
        self.receives = 0;
        self.in_order.clear();
        self.sending = None;
        self.data = (0, 0);
        self.to_leave = 0;
    }
}

/// Returns the entries of the send queue that a request uses.
fn cost(request: &WorkRequest) -> usize {
    match request {
        WorkRequest::Write { targets, .. } => targets.len(),
        WorkRequest::Read { sources, .. } => sources.len(),
        WorkRequest::LocalInvalidate { .. } => 0,
        _ => 1,
    }
}

/// Returns the bytes that leave with a request; never 0 if it sends any data, as headers leave too.
fn leaving(request: &WorkRequest) -> u64 {
    let gather = match request {
        WorkRequest::Send(send) => &send.gather,
        WorkRequest::Write { gather, .. } => gather,
        _ => return 0,
    };
    gather.iter().map(|part| wide(part.len())).fold(1, u64::saturating_add)
}

#[cfg(test)]
mod tests;
