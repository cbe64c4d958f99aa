//! [`Backchannel`]: calls of a server to its client, on the connection that the client opened (RFC 8167).
//!
//! ONC RPC clients open connections, and servers accept them. So a handle names the reverse direction of *one*
//! connection and ends with that connection; the client's next connection has another backchannel. The upper layer
//! decides which calls a server makes, and when. The server must not call before the client has announced that it
//! serves something (RFC 8167 §6). Commonly the announcement is a call whose handler keeps
//! [`ConnectionContext::backchannel`](crate::ConnectionContext::backchannel).
//!
//! The task of the connection owns the requester. A [`Backchannel`] queues orders for that task. [`Reverse`] is the
//! task's side: it takes the orders and delivers the replies.
//!
//! *Buffers.* A call's arguments and sinks go to the connection with the call. When its future is dropped, they stay
//! there until the reply or a timer (rule I10).
//!
//! *Errors.* Every call ends with its reply or one [`CallError`]. When the connection ends, calls in flight end with
//! [`CallError::ConnectionLost`]. Calls that had not left, and all later ones, end with [`CallError::Unreachable`].

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use rpcrdma_proto::{self as proto, CallFailure, CallId, Connection, IdMap, IncomingReply};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::call::{Call, RawReply, Reply};
use crate::cause::Cause;
use crate::error::CallError;
use crate::trace::{Calling, call_span};
use crate::xid::Xids;

/// Why a backchannel makes no calls of RPCSEC_GSS.
const NO_GSS: &str = "calls of a server to its client cannot be protected by RPCSEC_GSS here";

/// The reverse direction of one RPC-over-RDMA connection, by which a server calls its client. Cheap to clone.
///
/// As long as a handle exists, the connection is not closed for being idle. Every other reason still closes it.
pub struct Backchannel {
    shared: Arc<Shared>,
}

/// State that all backchannels of a server share.
#[derive(Debug)]
pub(crate) struct Backchannels {
    /// Backchannels of open connections.
    open: Mutex<IdMap<u64, Weak<Shared>>>,
    next: AtomicU64,
    xids: Mutex<Xids>,
    calls: AtomicU64,
}

/// The source of handles to one backchannel.
pub(crate) struct Source(Arc<Shared>);

struct Shared {
    server: Arc<Backchannels>,
    peer: Option<SocketAddr>,
    /// Most calls in progress at a time.
    limit: usize,
    /// Time for a reply, unless the call sets one.
    timeout: Duration,
    state: Mutex<State>,
    /// The reason why the connection ended.
    ended: watch::Sender<Option<Cause>>,
    /// Handles that exist.
    handles: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The waker of the connection's task.
    waker: Option<Waker>,
    orders: Vec<Order>,
    /// Calls whose futures have not ended.
    in_progress: usize,
    /// The number of the next call.
    next: u64,
    /// Whether the connection takes no more orders.
    ended: bool,
}

/// An order for the connection's task.
enum Order {
    Call { number: u64, xid: u32, call: Box<Call>, answer: Answer },
    Abandon(u64),
}

type Answer = oneshot::Sender<Result<IncomingReply, CallError>>;

impl Backchannel {
    /// Makes a call and waits for its reply. Credits are those of the reverse direction (RFC 8167 §4.1). Before the
    /// client's first reply, one call may leave. After it, as many may as the client grants and as
    /// [`protocol.calls`](crate::Config::calls) asks for; further calls wait. Messages are inline only, unless both
    /// sides set [`reverse_chunks`](crate::Config::reverse_chunks).
    ///
    /// The future may be dropped at any point: a call that was sent may still be carried out. A call is never sent
    /// again by itself, see [`call_as`](Self::call_as).
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] states what is known about the call's execution.
    pub async fn call_raw(&self, call: Call) -> Result<Reply, CallError> {
        self.call_as(self.next_xid(), call).await
    }

    /// Returns an XID that no call of this server has had for the last 2^32 calls.
    #[must_use]
    pub fn next_xid(&self) -> u32 {
        self.shared.server.next_xid()
    }

    /// Makes a call under an XID of [`next_xid`](Self::next_xid). If a call loses its connection, its caller can
    /// repeat it on the backchannel of the next connection, under that XID (RFC 8167 §5.4). The client's reply cache
    /// then recognizes the call.
    ///
    /// # Errors
    /// As [`call_raw`](Self::call_raw); [`CallError::Unsendable`] if a call in progress on this connection has the XID.
    pub async fn call_as(&self, xid: u32, call: Call) -> Result<Reply, CallError> {
        let span = call_span(self.shared.peer, &call);
        let calling = Calling::new(&call);
        let exchange = async {
            let result = match call.gss {
                // The context would be with the client, which serves none.
                Some(_) => Err(CallError::NoContext { reason: Cause::message(NO_GSS), sent: false }),
                None => self.shared.exchange(xid, call).await.map(RawReply::from).and_then(Reply::try_from),
            };
            calling.ended(self.shared.peer, &result);
            result
        };
        exchange.instrument(span).await
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.shared.peer
    }

    /// Returns the reason why the connection ended; `None` while it is open.
    #[must_use]
    pub fn ended(&self) -> Option<Cause> {
        self.shared.ended.borrow().clone()
    }

    /// Waits until the connection has ended, and returns the reason. From then on every call fails.
    pub async fn wait_ended(&self) -> Cause {
        let mut ended = self.shared.ended.subscribe();
        // `self` owns the sender, so the channel stays open.
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_else(no_reason)
    }
}

/// Returns the reason for the end of a connection that gave none.
fn no_reason() -> Cause {
    Cause::message("the connection has ended")
}

impl Clone for Backchannel {
    fn clone(&self) -> Self {
        self.shared.handles.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Backchannel {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The connection's idle time begins.
            self.shared.lock().wake();
        }
    }
}

/// Two handles are equal if they belong to the same connection.
impl PartialEq for Backchannel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Backchannel {}

impl fmt::Debug for Backchannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { peer, ended, .. } = &*self.shared;
        f.debug_struct("Backchannel")
            .field("peer", peer)
            .field("ended", &*ended.borrow())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Returns a handle.
    pub(crate) fn backchannel(&self) -> Backchannel {
        self.0.handles.fetch_add(1, Ordering::AcqRel);
        Backchannel { shared: Arc::clone(&self.0) }
    }
}

impl Backchannels {
    pub(crate) fn new() -> Self {
        Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            xids: Mutex::new(Xids::new()),
            calls: AtomicU64::new(0),
        }
    }

    /// Returns the backchannels of open connections, oldest first.
    pub(crate) fn open(&self) -> Vec<Backchannel> {
        let open = self.lock();
        let mut found: Vec<(u64, Source)> =
            open.iter().filter_map(|(number, shared)| Some((*number, Source(shared.upgrade()?)))).collect();
        drop(open);
        found.sort_unstable_by_key(|(number, _)| *number);
        found.iter().map(|(_, source)| source.backchannel()).collect()
    }

    /// Returns the number of calls made so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn next_xid(&self) -> u32 {
        self.xids.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn lock(&self) -> MutexGuard<'_, IdMap<u64, Weak<Shared>>> {
        // A map of plain values stays consistent when a thread panics.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot interrupt a change half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> CallError {
        let reason = self.ended.borrow().clone().unwrap_or_else(no_reason);
        CallError::Unreachable { reason, sent: false }
    }

    async fn exchange(&self, xid: u32, call: Call) -> Result<IncomingReply, CallError> {
        let (answer, answered) = oneshot::channel();
        let deadline = call.deadline;
        let number = {
            let mut state = self.lock();
            if state.ended {
                drop(state);
                return Err(self.gone());
            }
            if state.in_progress >= self.limit {
                return Err(CallError::QueueFull { limit: self.limit });
            }
            let number = state.next;
            state.next += 1;
            state.in_progress += 1;
            state.order(Order::Call { number, xid, call: Box::new(call), answer });
            number
        };
        self.server.calls.fetch_add(1, Ordering::Relaxed);
        let mut in_progress = InProgress { shared: self, number, answered: false };
        let result = match deadline {
            None => answered.await,
            Some(after) => match timeout(after, answered).await {
                Ok(result) => result,
                Err(_) => return Err(CallError::TimedOut { after, sent: true, link: None }),
            },
        };
        in_progress.answered = true;
        // Without an answer, the connection's task was dropped together with the call.
        result.unwrap_or_else(|_| {
            let reason = self.ended.borrow().clone().unwrap_or_else(no_reason);
            Err(CallError::ConnectionLost { reason })
        })
    }
}

impl State {
    fn order(&mut self, order: Order) {
        self.orders.push(order);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// A call's future; dropping it abandons the call.
struct InProgress<'a> {
    shared: &'a Shared,
    number: u64,
    answered: bool,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.in_progress -= 1;
        if !self.answered && !state.ended {
            state.order(Order::Abandon(self.number));
        }
    }
}

/// The connection's end of its backchannel.
pub(crate) struct Reverse {
    shared: Arc<Shared>,
    /// The number under which the server lists this backchannel.
    number: u64,
    calls: IdMap<CallId, Waiting>,
    names: HashMap<u64, CallId>,
}

/// A call that the connection was given.
struct Waiting {
    number: u64,
    after: Duration,
    answer: Answer,
}

impl Reverse {
    /// Creates the backchannel of a new connection and lists it at its server.
    pub(crate) fn new(
        server: Arc<Backchannels>,
        peer: Option<SocketAddr>,
        limit: usize,
        timeout: Duration,
    ) -> Self {
        let number = server.next.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared {
            server,
            peer,
            limit,
            timeout,
            state: Mutex::default(),
            ended: watch::Sender::new(None),
            handles: AtomicUsize::new(0),
        });
        shared.server.lock().insert(number, Arc::downgrade(&shared));
        Self { shared, number, calls: IdMap::default(), names: HashMap::new() }
    }

    /// Returns the source of handles for handlers.
    pub(crate) fn source(&self) -> Source {
        Source(Arc::clone(&self.shared))
    }

    /// Returns whether callers wait for calls on the connection.
    pub(crate) fn in_progress(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Carries out the orders since the last time; returns whether there were any.
    pub(crate) fn advance(&mut self, connection: &mut Connection, now: Instant, cx: &Context<'_>) -> bool {
        let orders = {
            let mut state = self.shared.lock();
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            std::mem::take(&mut state.orders)
        };
        connection.keep(now.into_std(), self.shared.handles.load(Ordering::Acquire) > 0);
        let any = !orders.is_empty();
        for order in orders {
            match order {
                Order::Call { number, xid, call, answer } => {
                    self.call(connection, now, (number, xid), *call, answer);
                }
                Order::Abandon(number) => {
                    if let Some(id) = self.names.remove(&number) {
                        self.calls.remove(&id);
                        connection.abandon(now.into_std(), id);
                    }
                }
            }
        }
        any
    }

    fn call(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        (number, xid): (u64, u32),
        call: Call,
        answer: Answer,
    ) {
        if answer.is_closed() {
            return;
        }
        let after = call.time(self.shared.timeout);
        let taken = call.into_protocol(xid, after).map_err(CallError::from).and_then(|call| {
            let taken = connection.call(now.into_std(), call);
            taken.map_err(|proto::Refused { kind, .. }| CallError::from_refusal(kind))
        });
        match taken {
            Ok(id) => {
                self.names.insert(number, id);
                self.calls.insert(id, Waiting { number, after, answer });
            }
            // The caller may have gone.
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// Delivers the result of a call that has ended.
    pub(crate) fn reply(&mut self, id: CallId, result: Result<IncomingReply, CallFailure>) {
        let Some(Waiting { number, after, answer }) = self.calls.remove(&id) else { return };
        self.names.remove(&number);
        // The caller may have gone.
        drop(answer.send(result.map_err(|failure| CallError::from_failure(failure, after, None))));
    }

    /// Ends all calls after the connection has ended and all its events are handled.
    pub(crate) fn end(&mut self, reason: Cause) {
        self.shared.server.lock().remove(&self.number);
        self.shared.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(reason);
            first
        });
        let orders = {
            let mut state = self.shared.lock();
            state.ended = true;
            state.waker = None;
            std::mem::take(&mut state.orders)
        };
        for order in orders {
            if let Order::Call { answer, .. } = order {
                drop(answer.send(Err(self.shared.gone())));
            }
        }
        // Dropped without an answer: their execution is unknown.
        self.calls.clear();
        self.names.clear();
    }
}

impl Drop for Reverse {
    fn drop(&mut self) {
        self.end(Cause::message("the server stopped"));
    }
}
