//! [`Link`]: moves work from `proto` to a queue pair and completions back.
//!
//! A link makes progress only in [`advance`](Link::advance), which does what the engine's documentation asks for and in
//! that order: everything to be posted is posted before the queue pair is polled, so that the Sends of one round share a
//! system call.
//!
//! *Who owns which buffer.* The engine and the queue pair do. Dropping a link makes every window invalid, then frees the
//! memory (contract of [`QueuePair`]).

use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_proto::{Connection, Post, Session};
use rpcrdma_verbs::{
    self as verbs, Completion, Disconnected, PostErrorKind, QueuePair, RoomWait, Windows, WrId,
};

/// What a link needs of a [`Connection`] or [`Session`]; the methods are theirs.
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
    ($engine:ty) => {
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
                self.wants_memory()
            }

            fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
                self.poll_receives(cx)
            }
        }
    };
}

engine!(Connection);
engine!(Session);

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something; there may be more, so call again.
    Some,
    /// Nothing; the task is woken when it is worth calling again, timers aside.
    None,
}

/// A queue pair at work.
pub(crate) struct Link {
    pub(crate) queue_pair: Box<dyn QueuePair>,
    completions: Vec<Completion>,
    /// For memory that the engine waits for.
    room: RoomWait,
    /// The queue pair takes nothing any more; its end is still to come.
    dead: bool,
    ended: bool,
}

impl Link {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        let room = queue_pair.domain().wait();
        Self { queue_pair, completions: Vec::new(), room, dead: false, ended: false }
    }

    /// One round: posts all there is, then lets the queue pair work. Events and timers are the caller's to look at.
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
            Poll::Pending => match engine.wants_memory().filter(|_| !self.dead) {
                Some(_) if engine.poll_receives(cx).is_ready() => Progress::Some,
                Some(room) if self.room.poll(cx, room).is_ready() => Progress::Some,
                Some(_) => Progress::None,
                None => {
                    self.room.leave();
                    Progress::None
                }
            },
        }
    }

    /// Whether the queue pair has reported its end.
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
