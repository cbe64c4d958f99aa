//! [`GssUser`]: a user of RPCSEC_GSS (RFC 2203) with the context that its calls have. `in_context` makes the calls, `secured`
//! serves them.
//!
//! [`rpcrdma_oncrpc::gss`] has the rules, without I/O. Contexts belong to no connection: a client may create one by TCP and use
//! it by RDMA.

use std::fmt;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use rpcrdma_oncrpc::gss::{GssClient, Initiator, Service};
use rpcrdma_oncrpc::{OpaqueAuth, Origin};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::cause::Cause;
use crate::workers::{Running, WorkLost, Workers};

/// Most pieces of work of clients that wait for a thread. Further calls wait for their turn.
const QUEUED: usize = 1024;

/// Creates the threads for the work of mechanisms: one for each processor, or none for a mechanism that needs none.
pub(crate) fn workers(name: &str, may_wait: bool) -> Workers {
    if !may_wait {
        return Workers::in_place();
    }
    Workers::new(name, thread::available_parallelism().map_or(1, NonZero::get), QUEUED)
}

/// Returns the threads that all users of this process share: first those for calls, then those for the creation of contexts.
/// Creation may wait for a network, and no call waits for its threads.
fn of_users() -> [Workers; 2] {
    static CALLS: LazyLock<Workers> = LazyLock::new(|| workers("gss", true));
    static CREATION: LazyLock<Workers> = LazyLock::new(|| workers("gss-new", true));
    [CALLS.clone(), CREATION.clone()]
}

/// Longest message, in bytes, over which the task of a connection computes by itself. A thread's answer takes about as long.
const AT_ONCE: usize = 8 << 10;

/// Runs work of a mechanism over `length` bytes of a message: at once if it is `quick` and short, otherwise on a thread.
pub(crate) async fn compute<T, F>(
    workers: &Workers,
    quick: bool,
    length: usize,
    work: F,
) -> Result<T, WorkLost>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if is_short(quick, length) { Ok(work()) } else { workers.run(work).await }
}

/// Returns whether the task of a connection computes by itself.
const fn is_short(quick: bool, length: usize) -> bool {
    quick && length <= AT_ONCE
}

/// Runs work of a mechanism for a call in progress of an origin, like [`compute`]. The work is not part of the future.
pub(crate) fn compute_for<T, F>(
    (workers, origin): (&Workers, Option<Origin>),
    (quick, length): (bool, usize),
    work: F,
) -> Running<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if is_short(quick, length) { Running::Done(Some(work())) } else { workers.run_for(origin, work) }
}

/// A user who calls a server by RPCSEC_GSS (RFC 2203), with a security context that is created when it is needed.
///
/// Several [`Client`](crate::Client)s of the server may share a user: the context belongs to no connection. Calls are signed
/// and checked on threads that all users of the process share. Short ones of a
/// [quick](rpcrdma_oncrpc::gss::SecurityContext::is_quick) mechanism need none. At most the server's window of calls goes past
/// one that has no reply yet (RFC 2203 §5.3.3.1). So calls that wait long for events need a user of their own.
/// [`Client::end_context`](crate::Client::end_context) ends the context.
pub struct GssUser {
    pub(crate) initiator: Arc<dyn Initiator>,
    pub(crate) target: String,
    pub(crate) service: Service,
    pub(crate) workers: Workers,
    pub(crate) creators: Workers,
    pub(crate) context: Mutex<Option<Arc<Established>>>,
    /// Held by the call that creates a context.
    pub(crate) creating: AsyncMutex<Option<Failure>>,
    /// Whether that call waits for the mechanism.
    pub(crate) in_mechanism: AtomicBool,
}

impl fmt::Debug for GssUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, service, .. } = self;
        f.debug_struct("GssUser").field("target", target).field("service", service).finish_non_exhaustive()
    }
}

/// The last attempt to create a context that the mechanism or the server has ended.
pub(crate) struct Failure {
    pub(crate) at: Instant,
    pub(crate) reason: Cause,
}

/// A context with the server.
pub(crate) struct Established {
    pub(crate) keys: Arc<GssClient>,
    /// Program and version by whose procedure 0 it was created.
    pub(crate) program: (u32, u32),
    /// Held by the call that gets the next place.
    pub(crate) turn: AsyncMutex<()>,
    /// Notifies that call of a place that is free again.
    pub(crate) freed: Notify,
}

/// Credential and verifier that a context made for a call.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The XID that the verifier covers.
    pub(crate) xid: u32,
    pub(crate) credential: OpaqueAuth,
    pub(crate) verifier: OpaqueAuth,
    /// Whether the flavour changes arguments and results, so that nothing is DDP-eligible (RFC 8166 §8.2.2.3).
    pub(crate) touches_data: bool,
}

impl GssUser {
    /// Creates a user of a service, for instance `nfs@server.example.org`. Calls are protected by `service`.
    #[must_use]
    pub fn new(initiator: Arc<dyn Initiator>, target: impl Into<String>, service: Service) -> Self {
        let [workers, creators] =
            if initiator.may_wait() { of_users() } else { [(); 2].map(|()| Workers::in_place()) };
        Self {
            initiator,
            target: target.into(),
            service,
            workers,
            creators,
            context: Mutex::default(),
            creating: AsyncMutex::default(),
            in_mechanism: AtomicBool::new(false),
        }
    }

    /// Returns this user with a context of its own, in which every call has at least integrity.
    pub(crate) fn apart(&self) -> Self {
        Self {
            initiator: Arc::clone(&self.initiator),
            target: self.target.clone(),
            service: self.service.max(Service::Integrity),
            workers: self.workers.clone(),
            creators: self.creators.clone(),
            context: Mutex::default(),
            creating: AsyncMutex::default(),
            in_mechanism: AtomicBool::new(false),
        }
    }

    /// Returns how calls are protected.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    pub(crate) fn current(&self) -> MutexGuard<'_, Option<Arc<Established>>> {
        // A single assignment cannot leave anything half done.
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up a context that the server does not know.
    pub(crate) fn forget(&self, context: &Arc<Established>) {
        self.current().take_if(|current| Arc::ptr_eq(current, context));
    }
}
