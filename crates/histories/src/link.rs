//! The work of every driver: moves requests from an engine to its queue pair, and completions back.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_proto::{Connection, Post, Session};
use rpcrdma_sim::SimQueuePair;
use rpcrdma_verbs::{
    Completion, Disconnected, PostErrorKind, Progress, QueuePair, Windows, Work, WorkRequest, WrId,
};

/// A [`Session`] or a [`Connection`].
pub(crate) trait Engine {
    fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post>;
    fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind);
    fn handle_completion(&mut self, now: Instant, completion: Completion);
    fn handle_disconnected(&mut self, reason: Disconnected);
    fn handle_progress(&mut self, now: Instant, progress: Progress);
    /// Returns the number of calls in progress in both directions.
    fn in_progress(&self) -> usize;
}

macro_rules! engine {
    ($($engine:ty),+) => {
        $(impl Engine for $engine {
            fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
                Self::poll_transmit(self, now, qp)
            }
            fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
                Self::handle_post_error(self, id, kind);
            }
            fn handle_completion(&mut self, now: Instant, completion: Completion) {
                Self::handle_completion(self, now, completion);
            }
            fn handle_disconnected(&mut self, reason: Disconnected) {
                Self::handle_disconnected(self, reason);
            }
            fn handle_progress(&mut self, now: Instant, progress: Progress) {
                Self::handle_progress(self, now, progress);
            }
            fn in_progress(&self) -> usize {
                Self::in_progress(self)
            }
        })+
    };
}

engine!(Session, Connection);

/// Observes the traffic of a queue pair.
pub(crate) trait Watch {
    fn receive_posted(&mut self);
    /// Records that a message leaves, while `in_progress` calls are in progress.
    fn sent(&mut self, message: &Bytes, in_progress: usize);
    /// Records the completion of a Receive; `None` for the end of the connection.
    fn receive_completed(&mut self, message: Option<&Bytes>);
}

/// A queue pair of an engine.
#[derive(Debug)]
pub(crate) struct Link<W> {
    pub(crate) qp: SimQueuePair,
    pub(crate) watch: W,
    ended: bool,
    /// The engine has asked for the end, or the queue pair refuses requests, since it has ended.
    leaving: bool,
}

impl<W: Watch> Link<W> {
    pub(crate) fn new(qp: SimQueuePair, watch: W) -> Self {
        Self { qp, watch, ended: false, leaving: false }
    }

    /// Whether the connection ends, or has ended.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving || self.ended
    }

    /// Does everything that is possible now. Returns whether any action was.
    pub(crate) fn pump(&mut self, engine: &mut dyn Engine, now: Instant) -> bool {
        if self.ended {
            return false;
        }
        let mut progress = false;
        while let Some(post) = engine.poll_transmit(now, &mut self.qp) {
            progress = true;
            match post {
                Post::Work(id, request) => {
                    let message = match &request {
                        WorkRequest::Send(send) => Some(Bytes::from(send.gather.concat())),
                        _ => None,
                    };
                    match self.qp.post(id, request) {
                        Ok(()) => {
                            if let Some(message) = message {
                                self.watch.sent(&message, engine.in_progress());
                            }
                        }
                        Err(error) => {
                            assert_eq!(error.kind, PostErrorKind::Disconnected, "nothing else is refused");
                            self.leaving = true;
                            engine.handle_post_error(id, &error.kind);
                        }
                    }
                }
                Post::Receive(id, memory) => match self.qp.post_receive(id, memory) {
                    Ok(()) => self.watch.receive_posted(),
                    Err(error) => {
                        assert_eq!(error.kind, PostErrorKind::Disconnected, "nothing else is refused");
                        self.leaving = true;
                        engine.handle_post_error(id, &error.kind);
                    }
                },
                Post::Disconnect => {
                    self.leaving = true;
                    self.qp.disconnect();
                }
                Post::Abort => {
                    self.leaving = true;
                    self.qp.abort();
                }
            }
        }
        let mut completions = Vec::new();
        let outcome = self.qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
        if let Some(told) = self.qp.progress() {
            engine.handle_progress(now, told);
        }
        match outcome {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => progress = true,
            Poll::Ready(Err(reason)) => {
                self.ended = true;
                engine.handle_disconnected(reason);
                return true;
            }
        }
        for completion in completions {
            if let Work::Receive { buffers, len, .. } = &completion.work {
                let message = completion.status.is_success().then(|| joined(buffers, *len));
                self.watch.receive_completed(message.as_ref());
            }
            engine.handle_completion(now, completion);
        }
        progress
    }
}

/// Returns the message in these Buffers.
pub(crate) fn joined(buffers: &[rpcrdma_verbs::Buffer], len: usize) -> Bytes {
    let bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied());
    bytes.take(len).collect()
}
