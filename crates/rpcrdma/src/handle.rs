//! [`Handle`]: a client with defaults for the calls that are made through it.
//!
//! A handle has an identity, times, a key, repetitions and interceptors. A call that sets one of these itself keeps its
//! own. A call of a handle goes this way, within one `rpcrdma::call` span:
//!
//! 1. The handle fills in the defaults, and the deadline begins.
//! 2. Each [`Intercept`] sees the call, in the order in which they were added, and later its result.
//! 3. The [`Retry`] makes the attempts, with pauses between them.
//! 4. Each attempt takes a connection of the client, by the call's key.
//!
//! *Buffers.* The handle gives a call on as it got it. With a [`Retry`] it keeps a second one that shares the arguments.
//! Without interceptors and repetitions a call allocates no more than one of the [`Client`] itself.
//!
//! *Errors.* [`CallError`] as of the client. [`CallError::Repeated`] tells how many attempts failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_oncrpc::Credential;
use tracing::Instrument;

use crate::call::{Call, Reply};
use crate::client::Client;
use crate::error::CallError;
use crate::gss::GssUser;
use crate::health::Health;
use crate::intercept::{Intercept, Passage};
use crate::retry::Retry;

/// A [`Client`] with defaults for calls. Cheap to clone; it keeps the client open like a clone of it.
///
/// The methods that set a default return the changed handle, and clones made before keep theirs:
///
/// ```
/// # fn of(client: &rpcrdma::Client) {
/// use std::time::Duration;
/// use rpcrdma::Retry;
///
/// let patient = client.handle().deadline(Duration::from_secs(30)).retry(Retry::new(5));
/// let quick = patient.clone().deadline(Duration::from_millis(200));
/// # let _ = quick;
/// # }
/// ```
#[derive(Clone)]
pub struct Handle {
    client: Client,
    settings: Arc<Settings>,
}

/// The defaults of a handle.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    credential: Option<Credential>,
    gss: Option<Arc<GssUser>>,
    timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    key: Option<u64>,
    pub(crate) retry: Option<Retry>,
    pub(crate) interceptors: Vec<Arc<dyn Intercept>>,
}

impl Handle {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, settings: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Makes calls without an identity of their own as this caller, instead of an earlier one and of a user of
    /// RPCSEC_GSS.
    #[must_use]
    pub fn credential(self, credential: Credential) -> Self {
        self.with(|settings| {
            settings.credential = Some(credential);
            settings.gss = None;
        })
    }

    /// Makes calls without an identity of their own as this user of RPCSEC_GSS, instead of an earlier identity.
    #[must_use]
    pub fn gss(self, user: Arc<GssUser>) -> Self {
        self.with(|settings| {
            settings.gss = Some(user);
            settings.credential = None;
        })
    }

    /// Gives each attempt of a call without a time of its own this time for the reply ([`Call::timeout`]), instead of
    /// that of the configuration. The time grows while data moves.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = Some(timeout))
    }

    /// Gives calls without a deadline of their own this time in total ([`Call::deadline`]): for connecting, security
    /// contexts, interceptors, all attempts, and the pauses between them. The call then fails with
    /// [`CallError::TimedOut`], to the grain of the runtime's timer, 1 ms.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|settings| settings.deadline = Some(deadline))
    }

    /// Repeats failed calls, where that does no harm. Without it each call is one attempt.
    #[must_use]
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|settings| settings.retry = Some(retry))
    }

    /// Adds an interceptor, which sees each call after those added before, and its result before them. A call passes it
    /// once, whatever the number of attempts.
    #[must_use]
    pub fn intercept(self, interceptor: impl Intercept + 'static) -> Self {
        self.with(|settings| settings.interceptors.push(Arc::new(interceptor)))
    }

    /// Makes calls without a key of their own take the connection of this key, while that is up ([`Call::key`]).
    #[must_use]
    pub fn key(self, key: u64) -> Self {
        self.with(|settings| settings.key = Some(key))
    }

    /// Returns the client, whose own calls have none of the defaults.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a call with the defaults, and waits for its reply. The future may be dropped at any point: a call that was
    /// sent may still be carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] states what is known about the call's execution, in all its attempts.
    pub async fn call_raw(&self, mut call: Call) -> Result<Reply, CallError> {
        self.settings.complete(&mut call);
        let span = self.client.span(&call);
        let passage = Passage::new(&self.client, &self.settings, &call);
        async {
            if self.settings.interceptors.is_empty() {
                passage.attempts(call).await
            } else {
                passage.intercepted(call).await
            }
        }
        .instrument(span)
        .await
    }

    /// Returns the way to ask whether a version of a program answers, by its procedure 0.
    #[must_use]
    pub fn health(&self, program: u32, version: u32) -> Health {
        Health::new(self.clone(), program, version)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Settings {
    /// Sets what the call does not set itself.
    fn complete(&self, call: &mut Call) {
        if call.gss.is_none() && matches!(call.credential, Credential::None) {
            call.gss.clone_from(&self.gss);
            if let Some(credential) = &self.credential {
                call.credential.clone_from(credential);
            }
        }
        call.timeout = call.timeout.or(self.timeout);
        call.deadline = call.deadline.or(self.deadline);
        call.key = call.key.or(self.key);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { credential, gss, timeout, deadline, key, retry, interceptors } = &*self.settings;
        f.debug_struct("Handle")
            .field("server", &self.client.peer_address())
            .field("credential", credential)
            .field("gss", gss)
            .field("timeout", timeout)
            .field("deadline", deadline)
            .field("key", key)
            .field("retry", retry)
            .field("interceptors", &interceptors.len())
            .finish_non_exhaustive()
    }
}
