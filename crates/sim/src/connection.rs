//! Two ends and the two links between them.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpcrdma_verbs::{Capabilities, Completion, ConnectParameters, Disconnected};

use crate::end::{End, Env};
use crate::fabric::{News, Outstanding};
use crate::link::{Frame, Link};
use crate::{FabricConfig, Side};

/// Most completions that one call of poll returns.
const BATCH: usize = 32;

#[derive(Debug)]
pub(crate) struct Connection {
    a: Option<End>,
    b: Option<End>,
    a_to_b: Link,
    b_to_a: Link,
}

impl Connection {
    pub(crate) fn new(a: &ConnectParameters, b: &ConnectParameters, config: &FabricConfig) -> Self {
        Self {
            a: Some(End::new(Side::A, a, b, config)),
            b: Some(End::new(Side::B, b, a, config)),
            a_to_b: Link::default(),
            b_to_a: Link::default(),
        }
    }

    pub(crate) fn capabilities(&self) -> [Capabilities; 2] {
        [&self.a, &self.b]
            .map(|end| end.as_ref().map_or_else(Capabilities::default, |end| end.capabilities.clone()))
    }

    pub(crate) fn end(&mut self, side: Side) -> Option<&mut End> {
        match side {
            Side::A => self.a.as_mut(),
            Side::B => self.b.as_mut(),
        }
    }

    /// Returns an end with the link towards it and the link away from it.
    fn split(&mut self, side: Side) -> Option<(&mut End, &mut Link, &mut Link)> {
        match side {
            Side::A => Some((self.a.as_mut()?, &mut self.b_to_a, &mut self.a_to_b)),
            Side::B => Some((self.b.as_mut()?, &mut self.a_to_b, &mut self.b_to_a)),
        }
    }

    /// Polls one end; also returns the time of the next poll if nothing else happens.
    pub(crate) fn poll(
        &mut self,
        side: Side,
        env: &mut Env<'_>,
        news: &mut News,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> (Poll<Result<(), Disconnected>>, Option<Duration>) {
        let Some((end, inbound, outbound)) = self.split(side) else {
            return (Poll::Ready(Err(Disconnected::Local)), None);
        };
        let before = outbound.count;
        loop {
            let sent = outbound.count;
            end.handle_arrivals(env, inbound, outbound);
            end.transmit(env, outbound);
            if !end.stalled || outbound.count == sent {
                break;
            }
        }
        if end.completions.drain(env.now, BATCH, completions) > 0 {
            self.after(side, before, news);
            return (Poll::Ready(Ok(())), None);
        }
        let next = end.next_event(inbound, outbound, env.config);
        let outcome = match &end.ended {
            // Completions that are not visible yet come first.
            Some(reason) if next.is_none() => Poll::Ready(Err(reason.clone())),
            _ => {
                end.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        self.after(side, before, news);
        (outcome, next)
    }

    /// Wakes the peer of `side` if anything was sent to it.
    fn after(&mut self, side: Side, before: u64, news: &mut News) {
        let Some((_, _, outbound)) = self.split(side) else { return };
        if outbound.count == before {
            return;
        }
        match self.end(side.other()) {
            Some(peer) => news.wakers.extend(peer.waker.take()),
            None => self.clear_towards(side.other()),
        }
    }

    fn clear_towards(&mut self, side: Side) {
        match side {
            Side::A => self.b_to_a.clear(),
            Side::B => self.a_to_b.clear(),
        }
    }

    /// Ends one side at once; the other side learns that after the frames that are under way.
    pub(crate) fn abort(&mut self, side: Side, env: &mut Env<'_>, news: &mut News) {
        let Some((end, _, outbound)) = self.split(side) else { return };
        if end.ended.is_some() {
            return;
        }
        let before = outbound.count;
        outbound.put(env.now, Frame::Reset("connection reset by the peer"), env.config, env.rng);
        end.end(env, Disconnected::Local);
        self.after(side, before, news);
    }

    /// Drops the end of one side with all that it held.
    pub(crate) fn drop_end(&mut self, side: Side, env: &mut Env<'_>, news: &mut News) -> Option<End> {
        self.abort(side, env, news);
        self.clear_towards(side);
        match side {
            Side::A => self.a.take(),
            Side::B => self.b.take(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.a.is_none() && self.b.is_none()
    }

    pub(crate) fn cut(&mut self, env: &mut Env<'_>) {
        for link in [&mut self.a_to_b, &mut self.b_to_a] {
            link.clear();
            link.heal(env.now);
            link.put(env.now, Frame::Reset("connection lost"), env.config, env.rng);
        }
    }

    pub(crate) fn partition(&mut self, now: Duration) {
        for link in [&mut self.a_to_b, &mut self.b_to_a] {
            link.partition(now);
        }
    }

    pub(crate) fn heal(&mut self, now: Duration) {
        self.a_to_b.heal(now);
        self.b_to_a.heal(now);
    }

    pub(crate) fn next_event(&self, config: &FabricConfig) -> Option<Duration> {
        let a = self.a.as_ref().and_then(|end| end.next_event(&self.b_to_a, &self.a_to_b, config));
        let b = self.b.as_ref().and_then(|end| end.next_event(&self.a_to_b, &self.b_to_a, config));
        a.into_iter().chain(b).min()
    }

    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        [&mut self.a, &mut self.b].into_iter().flatten().filter_map(|end| end.waker.take()).collect()
    }

    pub(crate) fn add_outstanding(&self, sum: &mut Outstanding) {
        for end in [&self.a, &self.b].into_iter().flatten() {
            sum.work_requests += end.completions.requests();
            sum.receives += end.completions.receives;
            sum.windows += end.windows.len();
        }
    }
}
