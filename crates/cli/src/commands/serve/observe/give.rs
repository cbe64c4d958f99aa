//! The side of the old server: it gives its sockets to a session of the control socket, and tells when it accepts no more.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::handover::{Described, Offer, SOCKETS_MAX, VERSION};
use super::protocol::Answer;
use crate::commands::serve::passed::Role;

/// A listening socket that another server may take.
#[derive(Debug)]
pub(in crate::commands::serve) struct Given {
    role: Role,
    address: SocketAddr,
    socket: OwnedFd,
}

impl Given {
    /// Returns a duplicate of a listening socket.
    ///
    /// # Errors
    /// Those of the system: too many descriptors.
    pub(in crate::commands::serve) fn of(role: Role, listener: &tokio::net::TcpListener) -> io::Result<Self> {
        Ok(Self { role, address: listener.local_addr()?, socket: listener.as_fd().try_clone_to_owned()? })
    }
}

/// The sockets of this server, for its successor. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::commands::serve) struct Giving(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` when this server stops.
    sockets: Mutex<Option<Vec<Given>>>,
    /// Addresses of adapters, which have other listeners.
    adapters: Vec<SocketAddr>,
    /// The right to be the successor, for one at a time.
    turn: Arc<Semaphore>,
    /// Whether the server before this one has ended.
    alone: watch::Receiver<bool>,
    ready: mpsc::Sender<Successor>,
}

/// The right of a session to be the successor.
pub(in crate::commands::serve) type Turn = OwnedSemaphorePermit;

/// A server that is ready to accept.
#[derive(Debug)]
pub(in crate::commands::serve) struct Successor {
    stream: UnixStream,
    _turn: Turn,
}

impl Successor {
    /// Tells it that this server accepts nothing more. The session ends with `self`.
    ///
    /// # Errors
    /// Those of the socket: it has gone.
    pub(in crate::commands::serve) async fn tell(&mut self) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Answer::Gone(true))?;
        line.push(b'\n');
        self.stream.write_all(&line).await
    }
}

impl Giving {
    /// Returns the giving side, and where successors arrive. Sockets are given from the time on when `alone` is true.
    pub(in crate::commands::serve) fn new(
        sockets: Vec<Given>,
        adapters: Vec<SocketAddr>,
        alone: watch::Receiver<bool>,
    ) -> (Self, mpsc::Receiver<Successor>) {
        let (ready, successors) = mpsc::channel(1);
        let turn = Arc::new(Semaphore::new(1));
        (
            Self(Arc::new(Inner { sockets: Mutex::new(Some(sockets)), adapters, turn, alone, ready })),
            successors,
        )
    }

    /// Closes the sockets, which otherwise stay open when this server stops to accept.
    pub(in crate::commands::serve) fn close(&self) {
        *self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the offer to a successor, its descriptors, and its right. Waits for the end of the server before this one.
    ///
    /// # Errors
    /// The answer to a successor without an offer: the reason, or that this server accepts nothing more.
    pub(in crate::commands::serve) async fn offer(
        &self,
        version: u32,
    ) -> Result<(Answer, Vec<OwnedFd>, Turn), Answer> {
        if version != VERSION {
            return Err(Answer::Error(format!(
                "version {version} of the handover was asked for, and the server has version {VERSION}"
            )));
        }
        let turn = Arc::clone(&self.0.turn).try_acquire_owned();
        let turn =
            turn.map_err(|_| Answer::Error("another server is taking the sockets already".to_owned()))?;
        // Without a sender, this server stops.
        let alone = self.0.alone.clone().wait_for(|alone| *alone).await.is_ok();
        let sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sockets) = sockets.as_ref().filter(|_| alone) else { return Err(Answer::Gone(true)) };
        if sockets.len() > SOCKETS_MAX {
            return Err(Answer::Error(format!(
                "it has {} sockets, and a handover passes at most {SOCKETS_MAX}",
                sockets.len()
            )));
        }
        let duplicates: io::Result<Vec<OwnedFd>> =
            sockets.iter().map(|given| given.socket.try_clone()).collect();
        let duplicates = duplicates.map_err(|error| Answer::Error(error.to_string()))?;
        let described = sockets.iter().map(|given| Described { role: given.role, address: given.address });
        let offer = Offer {
            version: VERSION,
            pid: std::process::id(),
            sockets: described.collect(),
            adapters: self.0.adapters.clone(),
        };
        Ok((Answer::Handover(offer), duplicates, turn))
    }

    /// Lets this server stop for a successor, which waits on its session.
    pub(in crate::commands::serve) async fn go(&self, stream: UnixStream, turn: Turn) {
        // Without a receiver, this server stops already.
        let _ = self.0.ready.send(Successor { stream, _turn: turn }).await;
    }
}

/// Sends a line with descriptors.
///
/// # Errors
/// Those of the socket.
pub(in crate::commands::serve) async fn send(
    stream: &UnixStream,
    line: &[u8],
    sockets: &[OwnedFd],
) -> io::Result<()> {
    let mut rest = line;
    // The descriptors travel with the first bytes.
    let mut sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    while !rest.is_empty() {
        let sent = stream.async_io(Interest::WRITABLE, || send_some(stream, rest, &sockets)).await?;
        rest = rest.get(sent..).unwrap_or_default();
        sockets.clear();
    }
    Ok(())
}

fn send_some(stream: &UnixStream, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let message = SendAncillaryMessage::ScmRights(sockets);
    let mut space = vec![MaybeUninit::uninit(); message.size()];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !ancillary.push(message) {
        return Err(io::Error::other("no room for the descriptors"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}
