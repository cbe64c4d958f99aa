//! The sending half of an end: the choice of the segment that leaves next.
//!
//! Four sources compete at each segment border: express Sends, Read Responses, Read Requests that waited for their
//! limit, and the send queue. Express Sends come first, but never between the segments of another Send. A Send that is
//! posted behind an express Send waits for it. Between Read Responses and the rest the seed decides. A request that
//! left needs nothing but its slot in [`Completions`](crate::completions::Completions).

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rpcrdma_verbs::{Disconnected, Key, RemoteSegment, Status};

use crate::end::{Closing, End, Env};
use crate::gather::Gather;
use crate::link::{Frame, Link, SendEnd};
use crate::{Action, Step};

/// Longest delay of a poll after which an end still transmits as if it had been in time: the granularity of tokio's
/// timers.
const TICK: Duration = Duration::from_millis(1);

/// A work request that has not left.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) seq: u64,
    pub(crate) not_before: Duration,
    /// Whether the fault plan was consulted about the request.
    pub(crate) begun: bool,
    /// Whether the link fails behind the request.
    pub(crate) cut_after: bool,
    pub(crate) job: Job,
}

#[derive(Debug)]
pub(crate) enum Job {
    Send { gather: Gather, offset: usize, invalidate: Option<Key>, solicited: bool, begun: bool },
    Write { gather: Gather, targets: VecDeque<RemoteSegment>, empty_message: bool },
    Read { parts: Vec<ReadPart> },
    BindWindow,
    LocalInvalidate { key: Key },
}

impl Job {
    pub(crate) fn write(gather: Gather, targets: Vec<RemoteSegment>) -> Self {
        // Without data there is one message for one target, and otherwise none.
        let empty_message = gather.len() == 0 && targets.len() == 1;
        Self::Write { gather, targets: targets.into(), empty_message }
    }
}

/// A single RDMA Read Request of a Read.
#[derive(Debug)]
pub(crate) struct ReadPart {
    pub(crate) seq: u64,
    pub(crate) source: RemoteSegment,
    /// Offset in the sink where the answer continues.
    pub(crate) sink_offset: usize,
    pub(crate) missing: usize,
    pub(crate) ready_at: Duration,
}

impl ReadPart {
    pub(crate) fn cut(seq: u64, now: Duration, sources: &[RemoteSegment]) -> Vec<Self> {
        let mut sink_offset = 0;
        let mut parts = Vec::new();
        for &source in sources {
            let missing = usize::try_from(source.length).unwrap_or(usize::MAX);
            if missing > 0 || sources.len() == 1 {
                parts.push(Self { seq, source, sink_offset, missing, ready_at: now });
            }
            sink_offset += missing;
        }
        parts
    }
}

/// The answer to one RDMA Read Request of the peer.
#[derive(Debug)]
pub(crate) struct Response {
    /// The window of the answer; `None` for a zero-length Read.
    pub(crate) key: Option<Key>,
    pub(crate) data: Bytes,
    pub(crate) ready_at: Duration,
}

/// A source of the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Express,
    Response,
    Read,
    Queue,
}

impl End {
    /// Carries out all that is due: puts segments on the link while it is free, and completes requests that need no
    /// link.
    pub(crate) fn transmit(&mut self, env: &mut Env<'_>, outbound: &mut Link) {
        while self.ended.is_none() {
            if self.begin_next(env, outbound) {
                continue;
            }
            if outbound.busy_until > env.now {
                break;
            }
            let Some((source, ready_at)) = self.pick(env) else { break };
            let start = outbound.busy_until.max(ready_at).max(env.now.saturating_sub(TICK));
            match source {
                Source::Express | Source::Queue => self.transmit_posted(env, outbound, source, start),
                Source::Response => self.transmit_response(env, outbound, start),
                Source::Read => {
                    if let Some(part) = self.reads_waiting.pop_front() {
                        let (seq, source) = (part.seq, part.source);
                        self.put(env, outbound, start, Frame::ReadRequest { seq, source });
                        self.reads_outstanding.push_back(part);
                    }
                }
            }
        }
        self.finish_closing(env, outbound);
    }

    /// Puts a frame on the link and counts it; returns when it has left.
    pub(crate) fn put(
        &mut self,
        env: &mut Env<'_>,
        outbound: &mut Link,
        start: Duration,
        frame: Frame,
    ) -> Duration {
        let bytes = frame.link_len();
        if bytes > 0 {
            self.counters.segments_sent += 1;
            self.counters.link_bytes_sent += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        outbound.put(start, frame, env.config, env.rng)
    }

    /// Consults the fault plan about the requests at the head of the queues, and carries out those that need no link.
    /// Returns whether anything changed.
    fn begin_next(&mut self, env: &mut Env<'_>, outbound: &mut Link) -> bool {
        let side = self.side;
        for express in [true, false] {
            let queue = if express { &mut self.express } else { &mut self.queue };
            let Some(posted) = queue.front_mut().filter(|posted| posted.not_before <= env.now) else {
                continue;
            };
            if !posted.begun {
                posted.begun = true;
                let seq = posted.seq;
                match env.fault(side, Step::Posted(seq)) {
                    None => {}
                    Some(Action::Delay(time)) => {
                        posted.not_before = env.now + time;
                        if time > env.config.link_timeout {
                            self.stuck_until = Some(env.now + env.config.link_timeout);
                        }
                    }
                    Some(Action::CutAfter) => posted.cut_after = true,
                    Some(Action::Cut) => self.lose_link(env, outbound),
                    Some(Action::Fail(status)) => {
                        self.completions.done(seq, env.now, status, None, env.rng);
                        outbound.put(env.now, Frame::Reset("a work request failed"), env.config, env.rng);
                        self.end(env, Disconnected::Link("a work request failed".to_owned()));
                    }
                }
                return true;
            }
        }
        let Some(posted) = self.queue.front_mut().filter(|posted| posted.not_before <= env.now) else {
            return false;
        };
        let (seq, cut_after) = (posted.seq, posted.cut_after);
        match &mut posted.job {
            Job::Read { parts } => {
                let parts = std::mem::take(parts);
                if parts.is_empty() {
                    // Several sources, all of length 0, ask for nothing.
                    self.completions.done(seq, env.now, Status::Success, None, env.rng);
                }
                self.reads_waiting.extend(parts);
            }
            Job::BindWindow => self.completions.done(seq, env.now, Status::Success, None, env.rng),
            &mut Job::LocalInvalidate { key } => {
                if self.windows.close(key) {
                    return false;
                }
                let memory = self.windows.remove(key, env.keys);
                self.counters.local_invalidations += u64::from(memory.is_some());
                self.completions.done(seq, env.now, Status::Success, memory, env.rng);
            }
            Job::Write { gather, empty_message: false, .. } if gather.len() == 0 => {
                self.completions.done(seq, env.now, Status::Success, None, env.rng);
            }
            Job::Send { .. } | Job::Write { .. } => return false,
        }
        self.queue.pop_front();
        if cut_after {
            self.lose_link_behind(env, outbound);
        }
        true
    }

    /// Chooses the source of the next segment among those that may send now.
    fn pick(&self, env: &mut Env<'_>) -> Option<(Source, Duration)> {
        let due = |posted: &&Posted| posted.not_before <= env.now;
        let in_send = matches!(self.queue.front(), Some(Posted { job: Job::Send { begun: true, .. }, .. }));
        let queue = self
            .queue
            .front()
            .filter(due)
            .filter(|posted| matches!(posted.job, Job::Send { .. } | Job::Write { .. }))
            .filter(|posted| !self.would_pass_express(posted))
            .map(|posted| (Source::Queue, posted.not_before));
        let express = self.next_express().filter(due).map(|posted| (Source::Express, posted.not_before));
        let posted = match (in_send, queue, express) {
            (true, queue, _) => queue,
            (false, queue, express) => express.or(queue),
        };
        let read = self.next_read().map(|part| (Source::Read, part.ready_at));
        let response = self.responses.front().map(|response| (Source::Response, response.ready_at));
        match (response, read.or(posted)) {
            (Some(response), Some(other)) => {
                let express_first = other.0 == Source::Express;
                Some(if express_first || env.rng.random() { other } else { response })
            }
            (response, other) => response.or(other),
        }
    }

    /// Returns the next express Send, unless an invalidation was posted before it. (Binds take effect when they are
    /// posted.)
    fn next_express(&self) -> Option<&Posted> {
        let express = self.express.front()?;
        let fenced = self
            .queue
            .iter()
            .any(|posted| posted.seq < express.seq && matches!(posted.job, Job::LocalInvalidate { .. }));
        (!fenced).then_some(express)
    }

    /// Returns whether this is a Send that would pass an express Send posted before it.
    fn would_pass_express(&self, posted: &Posted) -> bool {
        let begins = matches!(posted.job, Job::Send { begun: false, .. });
        begins && self.express.front().is_some_and(|express| express.seq < posted.seq)
    }

    /// Returns the next Read Request, if its limit allows it.
    fn next_read(&self) -> Option<&ReadPart> {
        let allowed = self.reads_outstanding.len() < usize::from(self.capabilities.ord);
        self.reads_waiting.front().filter(|_| allowed)
    }

    fn transmit_posted(&mut self, env: &mut Env<'_>, outbound: &mut Link, source: Source, start: Duration) {
        let queue = if source == Source::Express { &mut self.express } else { &mut self.queue };
        let Some(posted) = queue.front_mut() else { return };
        let (seq, size) = (posted.seq, env.config.segment_size.max(1));
        let (frame, last) = match &mut posted.job {
            Job::Send { gather, offset, invalidate, solicited, begun } => {
                *begun = true;
                let data = gather.take(size);
                let last = gather.len() == 0;
                let end = last.then_some(SendEnd { invalidate: *invalidate, solicited: *solicited });
                let frame = Frame::Send { seq, offset: *offset, data, end };
                if let Frame::Send { data, .. } = &frame {
                    *offset += data.len();
                }
                (frame, last)
            }
            Job::Write { gather, targets, .. } => {
                while targets.len() > 1 && targets.front().is_some_and(|target| target.length == 0) {
                    targets.pop_front();
                }
                let Some(target) = targets.front_mut() else { return };
                let room = usize::try_from(target.length).unwrap_or(usize::MAX);
                let data = gather.take(size.min(room));
                let (key, address) = (target.key, target.address);
                let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
                target.length -= count;
                target.address = target.address.wrapping_add(u64::from(count));
                let end = gather.len() == 0;
                let last = end || target.length == 0;
                (Frame::Write { seq, key, address, data, last, end }, end)
            }
            Job::Read { .. } | Job::BindWindow | Job::LocalInvalidate { .. } => return,
        };
        let cut_after = last && posted.cut_after;
        if last {
            queue.pop_front();
        }
        let left = self.put(env, outbound, start, frame);
        if last && !env.acknowledged() {
            self.completions.done(seq, left, Status::Success, None, env.rng);
        }
        if cut_after {
            self.lose_link_behind(env, outbound);
        }
    }

    fn transmit_response(&mut self, env: &mut Env<'_>, outbound: &mut Link, start: Duration) {
        let Some(response) = self.responses.front_mut() else { return };
        let count = response.data.len().min(env.config.segment_size.max(1));
        let data = Bytes::copy_from_slice(&response.data.split_to(count));
        let last = response.data.is_empty();
        if last
            && let Some(response) = self.responses.pop_front()
            && let Some(key) = response.key
        {
            self.windows.response_left(key);
        }
        self.put(env, outbound, start, Frame::ReadResponse { data, last });
    }

    /// Returns when something may leave, if the link is free then.
    pub(crate) fn next_transmission(&self, outbound: &Link) -> Option<Duration> {
        let blocked = |posted: &&Posted| match posted.job {
            Job::LocalInvalidate { key } => posted.begun && self.windows.has_responses(key),
            _ => false,
        };
        let needs_link = |posted: &Posted| match posted.job {
            Job::Send { .. } | Job::Write { .. } => posted.begun,
            _ => false,
        };
        let when = |posted: &Posted| {
            if needs_link(posted) { posted.not_before.max(outbound.busy_until) } else { posted.not_before }
        };
        let held = |posted: &&Posted| posted.begun && self.would_pass_express(posted);
        let queue = self.queue.front().filter(|posted| !blocked(posted) && !held(posted)).map(when);
        let express = self.next_express().map(when);
        let read = self.next_read().map(|part| part.ready_at.max(outbound.busy_until));
        let response = self.responses.front().map(|response| response.ready_at.max(outbound.busy_until));
        [queue, express, read, response].into_iter().flatten().min()
    }

    /// Returns whether all posted work has left and, as far as this end learns of that, arrived.
    pub(crate) fn is_drained(&self) -> bool {
        !self.completions.any_pending() && self.responses.is_empty()
    }

    /// Sends the close to the peer once nothing more comes.
    fn finish_closing(&mut self, env: &mut Env<'_>, outbound: &mut Link) {
        if self.ended.is_some() {
            return;
        }
        let Some(closing) = self.closing else { return };
        if !closing.told && self.is_drained() {
            outbound.put(env.now, Frame::Close, env.config, env.rng);
            self.closing = Some(Closing { told: true, ..closing });
        }
        if closing.deadline <= env.now {
            outbound.put(env.now, Frame::Reset("the peer gave up waiting"), env.config, env.rng);
            self.end(env, Disconnected::Local);
        }
    }

    /// Fails the link now: frames under way to the peer are lost.
    pub(crate) fn lose_link(&mut self, env: &mut Env<'_>, outbound: &mut Link) {
        outbound.clear();
        self.lose_link_behind(env, outbound);
    }

    /// Fails the link behind the frames that are under way to the peer.
    fn lose_link_behind(&mut self, env: &mut Env<'_>, outbound: &mut Link) {
        outbound.put(env.now, Frame::Reset("connection lost"), env.config, env.rng);
        self.end(env, Disconnected::Link("connection lost".to_owned()));
    }
}
