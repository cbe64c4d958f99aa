//! [`SimQueuePair`]: a queue pair on the simulated fabric.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use rpcrdma_verbs::{
    Capabilities, Completion, Counters, Disconnected, PostError, PostErrorKind, Progress, ProtectionDomain,
    QueuePair, ReceiveMemory, RemoteSegment, WindowError, WindowErrorKind, WindowMemory, Windows,
    WorkRequest, WrId,
};
use tokio::time::Sleep;

use crate::connection::Connection;
use crate::end::{End, Env};
use crate::{Fabric, Side};

/// An end of a simulated connection. Dropping it aborts the connection.
#[derive(Debug)]
pub struct SimQueuePair {
    fabric: Fabric,
    connection: u64,
    side: Side,
    capabilities: Capabilities,
    domain: ProtectionDomain,
    peer_private_data: Bytes,
    local_address: Option<SocketAddr>,
    peer_address: Option<SocketAddr>,
    /// The timer for the fabric's next event that concerns this end, under tokio's clock.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl SimQueuePair {
    pub(crate) fn new(
        fabric: &Fabric,
        connection: u64,
        side: Side,
        capabilities: Capabilities,
        domain: ProtectionDomain,
        peer_private_data: Bytes,
        (local_address, peer_address): (Option<SocketAddr>, Option<SocketAddr>),
    ) -> Self {
        let fabric = fabric.clone();
        let sleep = None;
        Self {
            fabric,
            connection,
            side,
            capabilities,
            domain,
            peer_private_data,
            local_address,
            peer_address,
            sleep,
        }
    }

    /// Returns the number of the connection in the fabric, from 0.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns the end of the connection that this is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection, &mut Env<'_>) -> T) -> Option<T> {
        self.fabric.with(self.connection, |connection, env, _| work(connection, env))
    }
}

impl Windows for SimQueuePair {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        let side = self.side;
        let mut memory = Some(memory);
        let result = self.with(|connection, env| {
            let end = connection.end(side)?;
            Some(end.reserve(env, memory.take()?))
        });
        match (result.flatten(), memory) {
            (Some(result), _) => result,
            (None, memory) => Err(WindowError {
                kind: WindowErrorKind::Disconnected,
                memory: memory.unwrap_or(WindowMemory::Read(Bytes::new())),
            }),
        }
    }
}

impl QueuePair for SimQueuePair {
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let side = self.side;
        let mut request = Some(request);
        let result = self.with(|connection, env| {
            let end = connection.end(side)?;
            Some(end.post(env, id, request.take()?))
        });
        match (result.flatten(), request) {
            (Some(result), _) => result,
            (None, Some(request)) => Err(PostError { kind: PostErrorKind::Disconnected, request }),
            (None, None) => Ok(()),
        }
    }

    fn send_room(&self) -> usize {
        let side = self.side;
        self.with(|connection, _| connection.end(side).map(|end| end.send_room())).flatten().unwrap_or(0)
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        let side = self.side;
        let mut memory = Some(memory);
        let result = self.with(|connection, _| {
            let end = connection.end(side)?;
            Some(end.post_receive(id, memory.take()?))
        });
        match (result.flatten(), memory) {
            (Some(result), _) => result,
            (None, Some(request)) => Err(PostError { kind: PostErrorKind::Disconnected, request }),
            (None, None) => Ok(()),
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        loop {
            let side = self.side;
            let outcome = self.fabric.with(self.connection, |connection, env, news| {
                connection.poll(side, env, news, cx, completions)
            });
            let Some((outcome, next)) = outcome else {
                return Poll::Ready(Err(Disconnected::Local));
            };
            if outcome.is_ready() {
                return outcome;
            }
            let Some(next) = next.filter(|_| self.fabric.is_on_tokio()) else {
                self.sleep = None;
                return Poll::Pending;
            };
            let deadline = tokio::time::Instant::from_std(self.fabric.instant_at(next));
            let sleep = match &mut self.sleep {
                Some(sleep) => {
                    sleep.as_mut().reset(deadline);
                    sleep
                }
                none => none.insert(Box::pin(tokio::time::sleep_until(deadline))),
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn disconnect(&mut self) {
        let side = self.side;
        self.with(|connection, env| {
            if let Some(end) = connection.end(side) {
                end.disconnect(env);
            }
        });
    }

    fn abort(&mut self) {
        let side = self.side;
        self.fabric.with(self.connection, |connection, env, news| connection.abort(side, env, news));
    }

    fn peer_private_data(&self) -> &Bytes {
        &self.peer_private_data
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address
    }

    fn counters(&self) -> Counters {
        let side = self.side;
        self.with(|connection, _| connection.end(side).map(|end| end.counters)).flatten().unwrap_or_default()
    }

    fn progress(&self) -> Option<Progress> {
        let side = self.side;
        let of = |end: &mut End| {
            let Counters { link_bytes_sent, link_bytes_received, .. } = end.counters;
            Progress::new(end.read, link_bytes_sent, link_bytes_received)
        };
        self.with(|connection, _| connection.end(side).map(of)).flatten()
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        let side = self.side;
        // The end's memory goes back to its pools outside the lock, since that wakes tasks.
        let end =
            self.fabric.with(self.connection, |connection, env, news| connection.drop_end(side, env, news));
        drop(end);
    }
}
