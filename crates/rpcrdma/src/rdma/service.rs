//! [`Service`]: Calls of the peer on their way through the programs and back, at either end of a connection.
//!
//! *Buffers.* A Call's message and chunks belong to its handler, a reply's pieces to the owner of the [`Answer`].
//!
//! *Errors.* A fault of a Call becomes its answer, also the panic of a program. After [`HandlerPanicked`], some Call will
//! never be answered, so its connection has to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use rpcrdma_oncrpc::{Attached, CacheKey, Outcome, Peer, TransportKind, WindowId};
use rpcrdma_proto::{Answer, IncomingCall, ReplyToken, Travelled};
use rpcrdma_xdr::Decoder;
use tokio::time::Instant;

use crate::call::Way;
use crate::counts::{Arrived, Meter};
use crate::handlers::{HandlerPanicked, Handlers, Orphans};
use crate::programs::{Dispatch, Dispatched, Programs};
use crate::registry::Record;
use crate::trace::Traced;
use crate::turns::Line;

/// A Call and its answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) token: ReplyToken,
    pub(crate) answer: Answer,
    /// The answer's key in the reply cache, if it is kept there.
    pub(crate) kept: Option<CacheKey>,
}

/// The service of one peer's Calls.
pub(crate) struct Service {
    programs: Arc<Programs>,
    peer: Peer,
    handlers: Handlers<Dispatch, InProgress>,
    /// Counters of calls, at a server.
    meter: Option<Meter>,
    record: Option<Arc<Record>>,
}

/// A Call that a handler works on, for its answer and for traces.
#[derive(Debug)]
struct InProgress {
    token: ReplyToken,
    served: Option<Traced>,
    travelled: Travelled,
    /// The call for the counters of a server.
    arrived: Option<Arrived>,
}

impl Service {
    /// Creates the service of one peer. `owner` is the user at the other end, if known. Handlers get `attached` with
    /// each Call, and hold `keeps` until they end. In `line` they wait for their turns.
    pub(crate) fn new(
        programs: Arc<Programs>,
        (address, owner): (Option<SocketAddr>, Option<u32>),
        attached: Attached,
        (keeps, line): (impl Send + Sync + 'static, Option<Line>),
    ) -> Self {
        let peer =
            Peer { address, transport: TransportKind::Rdma, window: None, attached: Some(attached), owner };
        Self { programs, peer, handlers: Handlers::new(keeps, line), meter: None, record: None }
    }

    /// Counts the calls by `meter`, and tells the principals that call to `record`.
    pub(crate) fn counted(mut self, meter: Meter, record: Arc<Record>) -> Self {
        (self.meter, self.record) = (Some(meter), Some(record));
        self
    }

    /// Gives handlers that outlive the connection to these.
    pub(crate) fn outlived_by(mut self, orphans: Arc<Orphans>) -> Self {
        self.handlers = self.handlers.outlived_by(orphans);
        self
    }

    /// Drops the Calls in progress, where their handlers otherwise go on behind the end of the connection.
    pub(crate) fn abandon(&mut self) {
        self.handlers.abandon();
    }

    /// Counts the calls that were answered since the last time, if there are any. Reads the clock once for all.
    pub(crate) fn take_time(&mut self) {
        if let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due()) {
            meter.take(Instant::now());
        }
    }

    /// Releases memory that only a burst needs.
    pub(crate) fn rest(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.rest();
        }
    }

    /// Returns the number of handlers at work.
    pub(crate) fn len(&self) -> usize {
        self.handlers.len()
    }

    /// Takes a Call of the connection with this window; returns the answer if it was made at once.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        call: IncomingCall,
        window: Option<WindowId>,
    ) -> Result<Option<Answered>, HandlerPanicked> {
        let programs = Arc::clone(&self.programs);
        // Only contexts know principals.
        let record = if programs.has_contexts() { self.record.clone() } else { None };
        self.start_by(now, cx, call, window, |peer, message| {
            programs.dispatch(peer, message, now.into_std(), record.as_ref())
        })
    }

    /// Takes a Call for another program than those of the application, as [`start`](Self::start) does.
    pub(crate) fn start_by(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        call: IncomingCall,
        window: Option<WindowId>,
        dispatch: impl FnOnce(Peer, Decoder) -> Dispatch,
    ) -> Result<Option<Answered>, HandlerPanicked> {
        let IncomingCall { token, message, travelled, .. } = call;
        let arrived = self.meter.as_ref().map(|meter| meter.arrived(&message, now));
        let call = InProgress { token, served: Traced::new(&message, now), travelled, arrived };
        let peer = Peer { window, ..self.peer.clone() };
        let done = self.handlers.start(cx, call, || dispatch(peer, message))?;
        Ok(done.map(|(call, outcome)| self.answer(&call, outcome)))
    }

    /// Polls for the next answer; `Ready(None)` if no handler is at work.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Answered, (ReplyToken, HandlerPanicked)>>> {
        let next = self.handlers.poll_next(cx);
        next.map(|next| {
            let (call, dispatched) = next?;
            let answered = dispatched.map(|dispatched| self.answer(&call, dispatched));
            Some(answered.map_err(|panicked| (call.token, panicked)))
        })
    }

    fn answer(&mut self, call: &InProgress, (outcome, key): Dispatched) -> Answered {
        if let (Some(meter), Some(arrived)) = (&mut self.meter, call.arrived) {
            meter.answered(arrived, &outcome);
        }
        self.programs.trace(self.peer.address, call.served, &outcome, &Way(&call.travelled));
        Answered { token: call.token, answer: answer_of(outcome), kept: key }
    }
}

/// Returns the answer that a connection gets for a dispatched call.
pub(crate) fn answer_of(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Reply(reply) => Answer::message(reply),
        Outcome::ChunkViolation(_) => Answer::ChunkError,
        Outcome::Drop => Answer::Lost,
    }
}
