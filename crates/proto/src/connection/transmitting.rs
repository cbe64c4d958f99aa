//! The order of work requests, and the end of a connection.
//!
//! Receives come first (rule I3). Then follow operations and reports, answers, RDMA Reads, and our own Calls. The queue
//! pair owns a posted request until its completion. *Errors*: the first failure ends the connection, and withdraws all
//! requests not posted.

use std::time::Instant;

use rpcrdma_verbs::{Disconnected, PoolExhausted, Windows};

use super::{Connection, State};
use crate::error::CloseReason;
use crate::event::Event;
use crate::outbound::{Owner, Post};
use crate::settings::timers::{Flow, Moving};

impl Connection {
    /// Returns the next work request for the queue pair, in order; `None` when there is none to post now. Messages are
    /// planned and encoded here.
    pub fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
        // A build with assertions makes the pass nevertheless, and checks that it finds nothing.
        if self.at_rest && !cfg!(debug_assertions) {
            return None;
        }
        let at_rest = std::mem::take(&mut self.at_rest);
        let post = self.next_post(now, qp);
        debug_assert!(!at_rest || post.is_none(), "a connection at rest has something to post: {post:?}");
        post
    }

    fn next_post(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
        // A pass that ends early waits for something other than memory (rule I6).
        self.wants_memory = None;
        loop {
            if self.state == State::Closed {
                return None;
            }
            if self.core.failure.is_some() && self.state == State::Open {
                self.abort();
            }
            // Even a queue pair that accepts nothing more can be told to end at once (rule I6).
            if self.ended && self.state != State::Aborting {
                return None;
            }
            if let Some(post) = self.core.take_post(now) {
                return Some(post);
            }
            if !self.core.outbox.is_empty() || self.state != State::Open {
                return None;
            }
            let domain = qp.domain();
            let missing = self.core.ledger.reserve_receives(domain);
            if let (Some(two), mut halves) = self.split()
                && two.transmit(&mut halves, domain, missing)
            {
                continue;
            }
            // A server's own Calls wait until the client has chosen the version.
            let speaks = self.may_call();
            let progress = self.responder.transmit(&mut self.core, now, qp)
                || self.read_on(now, qp)
                || (speaks && self.requester.transmit(&mut self.core, now, qp));
            if self.responder.reply_lost {
                self.close_for(now, CloseReason::ReplyLost);
            }
            let more = progress || self.finish_pass(now);
            if !more && !self.core.ledger.receives.is_ready() && self.core.outbox.is_empty() {
                self.wants_memory = self.least_wanted(missing);
                let lacking = self.wants_memory.is_some() || self.core.ledger.receives.lacking;
                self.at_rest = !lacking && self.core.failure.is_none();
                return None;
            }
        }
    }

    /// Does what Version Two has left to do in a pass without progress; `false` if nothing changed.
    fn finish_pass(&mut self, now: Instant) -> bool {
        let (Some(two), mut halves) = self.split() else { return false };
        two.finish_pass(&mut halves, now)
    }

    /// Returns the least memory in bytes that would allow progress, after a pass without any; `missing` Receives lacked
    /// memory.
    fn least_wanted(&self, missing: u32) -> Option<usize> {
        let answer = self.responder.wants_memory;
        // Reads wait for answers first.
        let reads = self.core.reads.wants_memory.filter(|_| answer.is_none());
        let receive = (missing > 0).then(|| self.core.ledger.receives.room_for_one());
        let wanted = [answer, reads, self.requester.wants_memory, receive].into_iter().flatten();
        // Receives with memory apart want none of the domain.
        wanted.filter(|room| *room > 0).min()
    }

    /// Posts more RDMA Reads of the peer's messages; `false` if nothing can be done now.
    fn read_on(&mut self, now: Instant, qp: &dyn Windows) -> bool {
        // Answers free memory for new Calls, but not the other way round.
        if self.responder.wants_memory.is_some() {
            return false;
        }
        let core = &mut self.core;
        if let Some((origin, request)) = core.reads.next(now, &core.outbox, &mut core.stats) {
            core.post(origin, request);
            return true;
        }
        match core.reads.take_memory(now, qp.domain(), &mut core.stats) {
            Ok(progress) => progress,
            Err((owner, error)) => {
                self.give_up_read(now, owner, error);
                true
            }
        }
    }

    /// Gives up a message whose chunks can never have memory.
    fn give_up_read(&mut self, now: Instant, owner: Owner, error: PoolExhausted) {
        match owner {
            Owner::Reply(xid) => self.requester.handle_unreadable(&mut self.core, now, xid, error),
            Owner::Call(token) => self.responder.handle_unreadable(&mut self.core, token),
        }
    }

    pub(super) fn close_for(&mut self, now: Instant, reason: CloseReason) {
        self.at_rest = false;
        if self.state == State::Open && self.core.failure.is_none() {
            // Unsent calls are for the next connection, unless the owner closed this one.
            if reason == CloseReason::Local {
                self.requester.fail_all_queued(&mut self.core);
            }
            self.core.failure = Some(reason);
            let (stall, told) = (self.core.config.timeouts.close, self.core.outbox.told());
            let left = self.core.outbox.bytes_to_leave();
            self.state = State::Closing(Moving::new(now, stall, Flow::Sent, told, left));
            self.core.post_command(Post::Disconnect);
        }
    }

    pub(super) fn abort(&mut self) {
        self.state = State::Aborting;
        self.core.withdraw_commands();
        self.core.post_command(Post::Abort);
    }

    /// Handles the end of the queue pair, which follows all its completions.
    pub fn handle_disconnected(&mut self, reason: Disconnected) {
        self.at_rest = false;
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.responder.handle_disconnected(&reason, self.core.reads.sole());
        self.core.reads.clear();
        let reason = self.core.failure.take().unwrap_or(CloseReason::Link(reason));
        self.core.withdraw();
        self.requester.handle_disconnected(&mut self.core, &reason);
        tracing::debug!(side = %self.core.side(), %reason, "connection closed");
        if let Some(two) = &mut self.two {
            two.end(&mut self.core.events);
        }
        self.core.events.push_back(Event::Closed(reason));
    }
}
