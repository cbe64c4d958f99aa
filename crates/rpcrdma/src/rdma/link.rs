//! [`Link`]: moves work from `proto` to a queue pair and completions back.
//!
//! A link makes progress only in [`advance`](Link::advance), in the order that the engine's documentation asks for.
//! Everything is posted before the queue pair is polled, so that the Sends of one round share a system call.
//!
//! *Buffers.* The engine and the queue pair own them. Dropping a link makes every window invalid, then frees the memory
//! (contract of [`QueuePair`]).

use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_proto::{Connection, Post, Session};
use rpcrdma_verbs::{
    self as verbs, Completion, Disconnected, PostErrorKind, QueuePair, Rest, RoomWait, Windows, WrId,
};

/// The methods of a [`Connection`] or [`Session`] that a link needs.
pub(crate) trait Engine {
    fn poll_transmit(&mut self, now: Instant, windows: &mut dyn Windows) -> Option<Post>;
    fn handle_completion(&mut self, now: Instant, completion: Completion);
    fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind);
    fn handle_disconnected(&mut self, reason: Disconnected);
    fn handle_progress(&mut self, now: Instant, progress: verbs::Progress);
    fn wants_memory(&self) -> Option<usize>;
    fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()>;
}

macro_rules! engine {
    ($engine:ty, $connection:expr) => {
        impl Engine for $engine {
            fn poll_transmit(&mut self, now: Instant, windows: &mut dyn Windows) -> Option<Post> {
                self.poll_transmit(now, windows)
            }

            fn handle_completion(&mut self, now: Instant, completion: Completion) {
                self.handle_completion(now, completion);
            }

            fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
                self.handle_post_error(id, kind);
            }

            fn handle_disconnected(&mut self, reason: Disconnected) {
                self.handle_disconnected(reason);
            }

            fn handle_progress(&mut self, now: Instant, progress: verbs::Progress) {
                self.handle_progress(now, progress);
            }

            fn wants_memory(&self) -> Option<usize> {
                $connection(self)?.wants_memory()
            }

            fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
                $connection(self).map_or(Poll::Pending, |connection| connection.poll_receives(cx))
            }
        }
    };
}

engine!(Connection, Some);
engine!(Session, Session::connection);

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The round did something; there may be more, so call again.
    Some,
    /// The round did nothing. The task is woken when it is worth calling again, timers aside.
    None,
}

/// A queue pair at work.
pub(crate) struct Link {
    pub(crate) queue_pair: Box<dyn QueuePair>,
    completions: Vec<Completion>,
    /// The wait for memory that the engine needs.
    room: RoomWait,
    /// The queue pair accepts nothing any more; its end is still to come.
    dead: bool,
    ended: bool,
}

impl Link {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        let room = queue_pair.domain().wait();
        Self { queue_pair, completions: Vec::new(), room, dead: false, ended: false }
    }

    /// Runs one round: posts all there is, then lets the queue pair work. The caller looks at events and timers.
    pub(crate) fn advance(
        &mut self,
        engine: &mut impl Engine,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        if self.ended {
            return Progress::None;
        }
        while !self.dead
            && let Some(post) = engine.poll_transmit(now, self.queue_pair.as_mut())
        {
            self.post(engine, post);
        }
        // Memory that the engine has obtained by now, or needs no more, is not kept for it.
        if self.dead || engine.wants_memory().is_none() {
            self.room.leave();
        }
        let outcome = self.queue_pair.poll(cx, &mut self.completions);
        if let Some(told) = self.queue_pair.progress() {
            engine.handle_progress(now, told);
        }
        match outcome {
            Poll::Ready(Ok(())) => {
                for completion in self.completions.drain(..) {
                    engine.handle_completion(now, completion);
                }
                Progress::Some
            }
            Poll::Ready(Err(reason)) => {
                self.ended = true;
                self.room.leave();
                engine.handle_disconnected(reason);
                Progress::Some
            }
            Poll::Pending if self.dead => Progress::None,
            Poll::Pending if engine.poll_receives(cx).is_ready() => Progress::Some,
            Poll::Pending => match engine.wants_memory() {
                Some(room) if self.room.poll(cx, room).is_ready() => Progress::Some,
                _ => Progress::None,
            },
        }
    }

    /// Releases memory that only a burst needs. The caller is about to sleep.
    pub(crate) fn rest(&mut self) {
        self.completions.rest();
    }

    /// Returns whether the queue pair has reported its end.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    fn post(&mut self, engine: &mut impl Engine, post: Post) {
        let refused = match post {
            Post::Work(id, request) => self.queue_pair.post(id, request).map_err(|error| (id, error.kind)),
            Post::Receive(id, memory) => {
                self.queue_pair.post_receive(id, memory).map_err(|error| (id, error.kind))
            }
            Post::Disconnect => {
                self.queue_pair.disconnect();
                Ok(())
            }
            Post::Abort => {
                self.queue_pair.abort();
                Ok(())
            }
        };
        if let Err((id, kind)) = refused {
            self.dead |= kind == PostErrorKind::Disconnected;
            engine.handle_post_error(id, &kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use bytes::Bytes;
    use rpcrdma_verbs::{
        Buffer, Capabilities, Counters, PostError, ProtectionDomain, ReceiveMemory, RemoteSegment,
        WindowError, WindowErrorKind, WindowMemory, WorkRequest,
    };

    use super::*;

    /// A queue pair on which something happens at each poll.
    struct Busy {
        domain: ProtectionDomain,
        capabilities: Capabilities,
        private_data: Bytes,
    }

    impl Windows for Busy {
        fn capabilities(&self) -> &Capabilities {
            &self.capabilities
        }

        fn domain(&self) -> &ProtectionDomain {
            &self.domain
        }

        fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
            Err(WindowError { kind: WindowErrorKind::Disconnected, memory })
        }
    }

    impl QueuePair for Busy {
        fn post(&mut self, _: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
            Err(PostError { kind: PostErrorKind::Disconnected, request })
        }

        fn send_room(&self) -> usize {
            0
        }

        fn post_receive(&mut self, _: WrId, request: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
            Err(PostError { kind: PostErrorKind::Disconnected, request })
        }

        fn poll(&mut self, _: &mut Context<'_>, _: &mut Vec<Completion>) -> Poll<Result<(), Disconnected>> {
            Poll::Ready(Ok(()))
        }

        fn disconnect(&mut self) {}

        fn abort(&mut self) {}

        fn peer_private_data(&self) -> &Bytes {
            &self.private_data
        }

        fn local_address(&self) -> Option<SocketAddr> {
            None
        }

        fn peer_address(&self) -> Option<SocketAddr> {
            None
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    /// An engine that takes 4 KiB when they are free.
    #[derive(Default)]
    struct Hungry(Option<Buffer>);

    impl Engine for Hungry {
        fn poll_transmit(&mut self, _: Instant, windows: &mut dyn Windows) -> Option<Post> {
            if self.0.is_none() {
                self.0 = windows.domain().allocate(4096, 1).ok();
            }
            None
        }

        fn handle_completion(&mut self, _: Instant, _: Completion) {}

        fn handle_post_error(&mut self, _: WrId, _: &PostErrorKind) {}

        fn handle_disconnected(&mut self, _: Disconnected) {}

        fn handle_progress(&mut self, _: Instant, _: verbs::Progress) {}

        fn wants_memory(&self) -> Option<usize> {
            self.0.is_none().then_some(4096)
        }

        fn poll_receives(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Memory that an engine has obtained is no longer kept for it, though its queue pair never rests.
    #[test]
    fn i6_a_busy_link_keeps_no_place_in_line_for_memory_that_it_has() {
        let domain = ProtectionDomain::new(8192);
        let mut held: Vec<_> = std::iter::from_fn(|| domain.allocate(4096, 1).ok()).collect();
        let capabilities = Capabilities::default();
        let busy = Busy { domain: domain.clone(), capabilities, private_data: Bytes::new() };
        let mut link = Link::new(Box::new(busy));
        let mut cx = Context::from_waker(Waker::noop());
        // As if the link had rested once.
        assert!(link.room.poll(&mut cx, 4096).is_pending());
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut other = domain.wait();
        assert!(other.poll(&mut Context::from_waker(&waker), 4096).is_pending());
        held.pop();
        let mut engine = Hungry::default();
        assert_eq!(link.advance(&mut engine, Instant::now(), &mut cx), Progress::Some);
        assert!(engine.0.is_some() && count.0.load(Ordering::SeqCst) == 0);
        held.pop();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the other one is told of the room");
    }
}
