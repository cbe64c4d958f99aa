//! The side of the new server: it asks for the sockets, and tells when it is ready to accept.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryMessage, SocketType, recvmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::control::{belongs_here, reach};
use super::handover::{Described, Offer, SOCKETS_MAX, TARGET, VERSION};
use super::protocol::{Answer, Request, SOCKET};
use crate::commands::serve::passed::Socket;
use crate::exit::Failure;
use crate::output;

/// Longest answer, in bytes: a socket has less than a hundred.
const ANSWER_MAX: usize = 64 << 10;
/// Time without an answer after which the new server tells that it waits.
const SILENT: Duration = Duration::from_secs(1);
/// Time for the old server to answer: the one before it may have data to flush.
const ANSWERS: Duration = Duration::from_secs(600);
/// Time for the old server to close its listeners.
const CLOSES: Duration = Duration::from_secs(10);

/// The server that has the control socket of the state directory.
#[derive(Debug)]
pub(in crate::commands::serve) struct Predecessor {
    stream: UnixStream,
    /// Bytes behind the last line.
    read: Vec<u8>,
}

/// The sockets and addresses that a server gives to its successor.
#[derive(Debug, Default)]
pub(in crate::commands::serve) struct Taken {
    /// Duplicates of its listening sockets.
    pub(in crate::commands::serve) sockets: Vec<Socket>,
    /// Its addresses of adapters, whose listeners cannot be passed.
    pub(in crate::commands::serve) adapters: Vec<SocketAddr>,
}

impl Predecessor {
    /// Connects to the server; returns `None` if there is none.
    ///
    /// # Errors
    /// The socket cannot be reached, or belongs to another user.
    pub(in crate::commands::serve) async fn connect(state: &Path) -> Result<Option<Self>, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!("cannot reach the server in {}: {error}", state.display()))
        };
        let (near, _directory) = reach(state, SOCKET).map_err(failed)?;
        let stream = match UnixStream::connect(near).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        if !belongs_here(&stream) {
            return Err(failed(io::Error::other("it belongs to another user")));
        }
        Ok(Some(Self { stream, read: Vec::new() }))
    }

    /// Takes duplicates of the sockets, and the addresses of adapters. The server still accepts there. Returns `None` if it stops
    /// for another reason meanwhile, or has stopped.
    ///
    /// # Errors
    /// The server refuses, or speaks another version.
    pub(in crate::commands::serve) async fn take(&mut self) -> Result<Option<Taken>, Failure> {
        let asked = self.ask(&Request::Handover { version: VERSION }).await;
        let mut descriptors = Vec::new();
        let line = match patiently(self.line(&mut descriptors)).await {
            Ok(line) => line,
            Err(error) if asked.is_err() || has_ended(&error) => return Ok(None),
            Err(error) => return Err(no_sockets(&error)),
        };
        let offer = match serde_json::from_slice(&line) {
            Ok(Answer::Handover(offer)) => offer,
            Ok(Answer::Gone(_)) => {
                // It gives up the control socket at once, and the session with it.
                let _ = timeout(CLOSES, self.line(&mut Vec::new())).await;
                return Ok(None);
            }
            Ok(Answer::Error(reason)) => {
                return Err(no_sockets(&format_args!(
                    "it answers \"{reason}\". If that stays, stop it, then start this one"
                )));
            }
            _ => return Err(no_sockets(&"its answer is none of this version: stop it, then start this one")),
        };
        let Offer { version, pid, sockets, adapters } = offer;
        if version != VERSION {
            return Err(no_sockets(&format_args!(
                "it has version {version} of the handover, and this one version {VERSION}: stop it, then start this one"
            )));
        }
        if sockets.len() != descriptors.len() {
            return Err(no_sockets(&format_args!(
                "it sent {} sockets and named {}",
                descriptors.len(),
                sockets.len()
            )));
        }
        let count = sockets.len();
        tracing::info!(target: TARGET, pid, sockets = count, "process {pid} hands {count} sockets over");
        let sockets = sockets.into_iter().zip(descriptors);
        let sockets: Result<_, Failure> =
            sockets.map(|(told, descriptor)| checked(told, descriptor)).collect();
        Ok(Some(Taken { sockets: sockets?, adapters }))
    }

    /// Tells the server to accept nothing more, and waits until it does not. A server that has ended does not either.
    pub(in crate::commands::serve) async fn go(&mut self) {
        if let Err(error) = self.ask(&Request::Go).await {
            tracing::warn!(target: TARGET, %error, "the other server has ended: {error}");
            return;
        }
        match timeout(CLOSES, self.line(&mut Vec::new())).await {
            Ok(Ok(_)) => tracing::debug!(target: TARGET, "the other server accepts nothing more"),
            Ok(Err(error)) => tracing::warn!(target: TARGET, %error, "the other server has ended: {error}"),
            Err(_) => {
                tracing::warn!(target: TARGET, "the other server does not say that it accepts nothing more");
            }
        }
    }

    /// Waits until the server has ended.
    pub(in crate::commands::serve) async fn ended(mut self) {
        while !matches!(self.stream.read(&mut [0; 64]).await, Ok(0) | Err(_)) {}
    }

    async fn ask(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.write_all(&line).await
    }

    /// Reads a line, with the descriptors that travel with it.
    async fn line(&mut self, descriptors: &mut Vec<OwnedFd>) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            if self.read.len() >= ANSWER_MAX {
                return Err(io::Error::other("its answer is too long"));
            }
            let stream = &self.stream;
            let read = &mut self.read;
            let received = stream.async_io(Interest::READABLE, || receive(stream, read, descriptors)).await?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Waits for the answer of a server that may wait itself, and tells so.
async fn patiently(line: impl Future<Output = io::Result<Vec<u8>>>) -> io::Result<Vec<u8>> {
    tokio::pin!(line);
    if let Ok(line) = timeout(SILENT, &mut line).await {
        return line;
    }
    output::note("handover: waiting for the server that runs. It may wait for the end of the one before it");
    timeout(ANSWERS, line).await.unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has not answered for {ANSWERS:?}")))
    })
}

/// Returns whether this error is the end of the session.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

fn receive(stream: &UnixStream, read: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut bytes = [0; 4096];
    // With room to align the message.
    let most = SendAncillaryMessage::ScmRights(&[]).size() + (SOCKETS_MAX + 4) * size_of::<OwnedFd>();
    let mut space = vec![MaybeUninit::uninit(); most];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    read.extend_from_slice(bytes.get(..received).unwrap_or_default());
    Ok(received)
}

/// Checks that a descriptor is the socket that was told.
fn checked(told: Described, descriptor: OwnedFd) -> Result<Socket, Failure> {
    let Described { role, address } = told;
    let wrong = |error: rustix::io::Errno| no_sockets(&io::Error::from(error));
    let listens = socket_type(&descriptor).map_err(wrong)? == SocketType::STREAM
        && socket_acceptconn(&descriptor).map_err(wrong)?;
    let listener = TcpListener::from(descriptor);
    if !listens || listener.local_addr().ok() != Some(address) {
        return Err(no_sockets(&format_args!("what it sent for {address} is no socket that listens there")));
    }
    Ok(Socket { role, address, listener })
}

fn no_sockets(reason: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("the server that runs does not hand over: {reason}"))
}
