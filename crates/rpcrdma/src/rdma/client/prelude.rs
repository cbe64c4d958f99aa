//! The prelude of connections: the question of CONF_RDMA (RFC 5666 §6), before all calls of the application.
//!
//! [`ccp::client`](crate::ccp::client) asks, by one call after the other, and may have to wait for threads between them. So
//! the background task polls the question, without the lock. Replies come by the task that drives the connection.
//!
//! *Errors.* Calls of a prelude end with their connection. The outcome of a question counts for its own connection only.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpcrdma_proto::{Agreement, CallFailure, CallId, IncomingReply};
use rpcrdma_verbs::BoxFuture;
use tokio::time::Instant;

use super::{Shared, State};
use crate::call::{Call, RawReply};
use crate::ccp::client::{Answer, Unusable, ask, question};
use crate::ccp::{CcpClient, ConfigRequest};
use crate::channel::Channel;
use crate::error::CallError;

/// The preludes of a client's connections, one after the other.
pub(super) struct Prelude {
    settings: CcpClient,
    /// The question that the present connection begins with, until the background task takes it.
    wanted: Option<Question>,
    /// The call in progress, or its result.
    call: Option<InPrelude>,
    /// Connections that agreed.
    pub(super) agreed: u64,
    /// Connections whose server refused.
    pub(super) refused: u64,
}

/// A call of a prelude.
struct InPrelude {
    id: CallId,
    after: Duration,
    waker: Option<Waker>,
    result: Option<Result<IncomingReply, CallError>>,
}

/// A question to be asked.
pub(super) struct Question {
    /// Number of the connection.
    connection: u64,
    settings: CcpClient,
    request: ConfigRequest,
}

/// A question under way, with the number of its connection.
pub(super) struct Asking(u64, BoxFuture<'static, Result<Answer, Unusable>>);

impl Prelude {
    pub(super) const fn new(settings: CcpClient) -> Self {
        Self { settings, wanted: None, call: None, agreed: 0, refused: 0 }
    }

    /// Returns whether the prelude made this call.
    pub(super) fn made(&self, id: CallId) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    /// Takes the result of the call in progress.
    pub(super) fn ended(&mut self, result: Result<IncomingReply, CallFailure>) {
        let Some(call) = &mut self.call else { return };
        call.result = Some(result.map_err(|failure| CallError::from_failure(failure, call.after, None)));
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
    }

    /// Returns the question that is to be asked now.
    pub(super) fn take_wanted(&mut self) -> Option<Question> {
        self.wanted.take()
    }
}

impl Question {
    /// Begins to ask.
    pub(super) fn ask(self, shared: &Arc<Shared>) -> Asking {
        let Self { connection, settings, request } = self;
        let shared = Arc::clone(shared);
        let asking = async move {
            let channel = OnConnection { shared, number: connection, timeout: settings.timeout };
            ask(&channel, &settings, request).await
        };
        Asking(connection, Box::pin(asking))
    }
}

impl Asking {
    /// Goes on, without the lock. Returns the outcome with the number of the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Result<Answer, Unusable>)> {
        self.1.as_mut().poll(cx).map(|outcome| (self.0, outcome))
    }
}

impl State {
    /// Wants the question to be asked if the new connection has a prelude; returns `false` if it has none.
    pub(super) fn begin_prelude(&mut self) -> bool {
        let (Some(prelude), Some(link), Some(connection)) =
            (&mut self.prelude, &self.link, self.session.connection())
        else {
            return false;
        };
        if !self.session.is_prelude() {
            return false;
        }
        let reads = link.queue_pair.capabilities().ird;
        prelude.call = None;
        prelude.wanted = Some(Question {
            connection: self.session.stats().connections,
            settings: prelude.settings.clone(),
            request: question(connection.agreeable(), reads.into()),
        });
        self.wake_background();
        true
    }

    /// Returns whether the connection with this number is the present one, and in its prelude.
    fn in_prelude(&self, connection: u64) -> bool {
        self.session.is_prelude() && self.session.stats().connections == connection
    }

    /// Makes a call on the connection with this number.
    fn start_in_prelude(&mut self, connection: u64, call: Call, after: Duration) -> Result<(), CallError> {
        if !self.in_prelude(connection) {
            return Err(CallError::Closed { sent: false });
        }
        let Some(prelude) = &mut self.prelude else { return Err(CallError::Closed { sent: false }) };
        let xid = call.xid().unwrap_or_else(|| self.session.next_xid());
        let call = call.into_protocol(xid, after)?;
        let taken = self.session.prelude_call(Instant::now().into_std(), call);
        let id = taken.map_err(|refused| CallError::from_refusal(refused.kind))?;
        prelude.call = Some(InPrelude { id, after, waker: None, result: None });
        // The background task polls this, and sends the call.
        self.background.wanted = true;
        Ok(())
    }

    /// Polls for the result of the call in progress.
    fn poll_prelude(&mut self, cx: &mut Context<'_>) -> Poll<Result<IncomingReply, CallError>> {
        let call = self.prelude.as_mut().and_then(|prelude| prelude.call.as_mut());
        let Some(call) = call else { return Poll::Ready(Err(CallError::Closed { sent: true })) };
        if let Some(result) = call.result.take() {
            return Poll::Ready(result);
        }
        call.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes the outcome of a question.
    pub(super) fn asked(&mut self, (connection, outcome): (u64, Result<Answer, Unusable>)) {
        let here = self.in_prelude(connection);
        let Some(prelude) = self.prelude.as_mut().filter(|_| here) else { return };
        let agreed = match outcome {
            Ok(Answer::Agreed(agreement)) => self.session.agree(agreement).map_err(|error| error.to_string()),
            Ok(Answer::Refused(reason)) => {
                prelude.refused += 1;
                tracing::info!(target: "rpcrdma::ccp", %reason, "nothing agreed by CONF_RDMA");
                self.end_prelude();
                return;
            }
            Ok(Answer::Lost) => Err("the connection was lost before CONF_RDMA was answered".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match agreed {
            Ok(()) => {
                prelude.agreed += 1;
                let connection = self.session.connection();
                let agreement: Option<&Agreement> = connection.and_then(|connection| connection.agreement());
                if let Some(agreement) = agreement {
                    tracing::info!(target: "rpcrdma::ccp", %agreement, "agreed by CONF_RDMA");
                }
                self.end_prelude();
            }
            Err(error) => {
                tracing::warn!(target: "rpcrdma::ccp", %error, "connection given up");
                self.session.prelude_failed(error);
                self.background.wanted = true;
            }
        }
    }

    /// Lets the application's calls go on.
    fn end_prelude(&mut self) {
        self.down = None;
        self.session.prelude_done(Instant::now().into_std());
        self.background.wanted = true;
    }
}

/// A single connection of a client, for calls of its prelude.
struct OnConnection {
    shared: Arc<Shared>,
    number: u64,
    timeout: Duration,
}

impl Channel for OnConnection {
    async fn call(&self, call: Call) -> Result<RawReply, CallError> {
        let after = call.timeout.unwrap_or(self.timeout);
        self.shared.lock().start_in_prelude(self.number, call, after)?;
        let result = poll_fn(|cx| self.shared.lock().poll_prelude(cx)).await;
        result.map(RawReply::from).map_err(|error| match error {
            // There is no other connection for this call.
            CallError::Unreachable { sent, .. } => CallError::Closed { sent },
            error => error,
        })
    }

    fn next_xid(&self) -> u32 {
        self.shared.lock().session.next_xid()
    }

    fn call_timeout(&self) -> Duration {
        self.timeout
    }
}
