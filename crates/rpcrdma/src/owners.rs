//! [`Owners`]: the user to whom the other end of a TCP connection belongs, where that end is on this machine.
//!
//! AUTH_SYS relies on the calling machine to tell its users apart. On the server's own machine any user's program can
//! connect, but the kernel knows its user. So [`Owners`] asks the kernel for the socket at the other end
//! (`sock_diag(7)`), if that end is on this machine by its [`routes`]. In four cases there is no user:
//!
//! * *The socket is being closed.* The kernel reports a socket that no process has any more as root's. So the
//!   connection is closed.
//! * *An address of this machine, but no socket of this network namespace.* A socket can give up without notice to the
//!   other end. Its calls can still be read then, so the connection is closed.
//! * *No address of this machine:* another machine, a container with a network of its own, an RDMA adapter. The rule
//!   does not apply.
//! * *The kernel does not answer* (a sandbox, a kernel without `inet_diag`): the rule does not apply, and the log says
//!   so once. If the kernel reports no routes, the rule applies to the sockets that it knows, and to loopback
//!   addresses; the log says that once too.
//!
//! A program that forwards connections (`ssh -L`, the user network of QEMU, a container's proxy) counts as its own
//! user.
//!
//! **Another socket in the place of the first.** By then another socket may have the peer's address and port, even the
//! socket of another connection. For a client may reset a connection before it is accepted, and its bytes
//! can still be read. So the kernel is asked for our end afterwards. While our end has the inode of the accepted socket
//! and is established, the other end is the socket that the kernel reported.

mod netlink;
mod routes;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::net::if_::if_nameindex;
use rpcrdma_verbs::TcpEnds;
use thiserror::Error;

use self::netlink::{Message, Netlink, number};
use self::routes::{Place, Routes};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
/// `TCP_ESTABLISHED` of `net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
/// Number of the loopback device in every network namespace. The kernel finds a socket that is bound to a device only
/// under the number of that device, and other sockets under any.
const LOOPBACK_DEVICE: u32 = 1;

/// `struct inet_diag_req_v2`.
const QUESTION: usize = 56;
/// `struct inet_diag_msg`.
const ANSWER: usize = 72;

/// The user at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A user of this machine, by UID.
    User(u32),
    /// Unknown, for one of the reasons that the module lists.
    Elsewhere,
}

/// The reason why a connection from this machine is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum NoOwner {
    /// The socket has no process.
    #[error("its socket was closed before the connection was served: its owner is unknown")]
    Closed,
    /// There is no such socket.
    #[error("the address belongs to this machine, but to no socket there: its owner is unknown")]
    Missing,
    /// The kernel gave no readable answer.
    #[error("the kernel did not report the owner of its socket")]
    Unknown,
}

/// The kernel's knowledge of sockets and routes.
#[derive(Debug)]
pub(crate) struct Owners {
    sockets: io::Result<Netlink>,
    routes: Routes,
    told_missing: AtomicBool,
    told_failed: AtomicBool,
}

/// The kernel's answer for one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    state: u8,
    user: u32,
    inode: u32,
}

impl Told {
    /// Returns whether this is the socket of this inode, of which the kernel reports 32 bits.
    fn is(&self, inode: u64) -> bool {
        u64::from(self.inode) == inode & u64::from(u32::MAX)
    }
}

impl Owners {
    /// Tests, on a connection of our own, whether the kernel can be asked here.
    pub(crate) fn new() -> Self {
        let sockets = Netlink::open(Some(rustix::net::netlink::SOCK_DIAG)).and_then(|sockets| {
            try_out(&sockets)?;
            Ok(sockets)
        });
        Self {
            sockets,
            routes: Routes::new(),
            told_missing: AtomicBool::new(false),
            told_failed: AtomicBool::new(false),
        }
    }

    fn tell_failed(&self, error: &io::Error) {
        if !self.told_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "the kernel does not report owners of sockets (sock_diag): callers on this machine can claim any user ID"
            );
        }
    }

    fn tell_missing(&self, peer: SocketAddr) {
        if !self.told_missing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %peer,
                "the kernel does not report the addresses of this machine (rtnetlink): callers in other network \
                 namespaces of this machine can claim any user ID"
            );
        }
    }

    /// Returns the user at the other end of an accepted connection.
    ///
    /// # Errors
    /// [`NoOwner`] if the connection must not be served.
    pub(crate) fn of(&self, ends: &TcpEnds) -> Result<Owner, NoOwner> {
        let TcpEnds { local, peer, inode } = *ends;
        let place = self.routes.place(local, peer);
        if place == Place::Elsewhere {
            return Ok(Owner::Elsewhere);
        }
        let sockets = match &self.sockets {
            Ok(sockets) => sockets,
            Err(error) => {
                self.tell_failed(error);
                return Ok(Owner::Elsewhere);
            }
        };
        let asked = find(sockets, peer, local).and_then(|theirs| Ok((theirs, find(sockets, local, peer)?)));
        match asked {
            Ok((theirs, ours)) => {
                let ours = ours.filter(|ours| ours.is(inode));
                let owner = judge(place, theirs, ours);
                if owner == Ok(Owner::Elsewhere) {
                    self.tell_missing(peer);
                }
                owner
            }
            Err(error) => {
                tracing::warn!(%error, %peer, "the kernel did not report the owner of a socket");
                Err(NoOwner::Unknown)
            }
        }
    }
}

/// Judges the sockets at both ends of a connection whose peer is not known to be on another machine.
fn judge(place: Place, theirs: Option<Told>, ours: Option<Told>) -> Result<Owner, NoOwner> {
    match (theirs, ours) {
        // Reset; the bytes before the reset may still be readable.
        (_, None) => Err(NoOwner::Closed),
        (Some(theirs), Some(ours)) => {
            let whole = theirs.state == ESTABLISHED && ours.state == ESTABLISHED && theirs.inode != 0;
            if whole { Ok(Owner::User(theirs.user)) } else { Err(NoOwner::Closed) }
        }
        (None, Some(_)) if place == Place::Unknown => Ok(Owner::Elsewhere),
        (None, Some(ours)) if ours.state != ESTABLISHED => Err(NoOwner::Closed),
        (None, Some(_)) => Err(NoOwner::Missing),
    }
}

fn try_out(sockets: &Netlink) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let known = find(sockets, stream.local_addr()?, stream.peer_addr()?)?;
    known.map(drop).ok_or_else(|| io::Error::other("it does not know a socket of the server's own"))
}

/// Asks for the socket at `local` that is connected to `peer`; `None` if there is none.
fn find(sockets: &Netlink, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Told>> {
    let likely = [LOOPBACK_DEVICE, scope(local).max(scope(peer))];
    for device in likely.into_iter().filter(|device| *device != 0) {
        if let Some(told) = find_on(sockets, local, peer, device)? {
            return Ok(Some(told));
        }
    }
    // Any user may bind a socket to a device.
    for device in if_nameindex()?.iter().map(|interface| interface.index()) {
        if !likely.contains(&device)
            && let Some(told) = find_on(sockets, local, peer, device)?
        {
            return Ok(Some(told));
        }
    }
    Ok(None)
}

fn find_on(sockets: &Netlink, local: SocketAddr, peer: SocketAddr, device: u32) -> io::Result<Option<Told>> {
    let asked = sockets.ask(BY_FAMILY, &question(local, peer, device), |told| answer(&told, local, peer));
    match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        asked => asked,
    }
}

/// Returns the number of the link of an address; 0 for any link.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Returns an address in network form.
fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// Returns an address as the kernel's four words.
fn words(address: IpAddr) -> [u8; 16] {
    let mut words = [0; 16];
    for (word, byte) in words.iter_mut().zip(bytes_of(address)) {
        *word = byte;
    }
    words
}

/// Returns both ends in the form in which `struct inet_diag_sockid` begins: ports, then addresses.
fn ends(local: SocketAddr, peer: SocketAddr) -> (u8, Vec<u8>) {
    let (here, there) = (local.ip().to_canonical(), peer.ip().to_canonical());
    let family = if here.is_ipv4() { IPV4 } else { IPV6 };
    let mut bytes = Vec::with_capacity(36);
    bytes.extend_from_slice(&local.port().to_be_bytes());
    bytes.extend_from_slice(&peer.port().to_be_bytes());
    bytes.extend_from_slice(&words(here));
    bytes.extend_from_slice(&words(there));
    (family, bytes)
}

/// Returns `struct inet_diag_req_v2` for this one socket, without a cookie.
fn question(local: SocketAddr, peer: SocketAddr, device: u32) -> Vec<u8> {
    let (family, ends) = ends(local, peer);
    let mut bytes = Vec::with_capacity(QUESTION);
    bytes.extend_from_slice(&[family, TCP, 0, 0]);
    // Sockets in all states.
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&ends);
    bytes.extend_from_slice(&device.to_ne_bytes());
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

/// Reads the answer. A socket other than the requested one (a listening socket, for instance) counts as none.
fn answer(message: &Message<'_>, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Told>> {
    let Message { kind, body } = *message;
    if kind != BY_FAMILY || body.len() < ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of type {kind}")));
    }
    let [family, state] = number(body, 0)?;
    let told = Told {
        state,
        user: u32::from_ne_bytes(number(body, 64)?),
        inode: u32::from_ne_bytes(number(body, 68)?),
    };
    let (asked_family, asked) = ends(local, peer);
    let got: [u8; 36] = number(body, 4)?;
    // The kernel reports an IPv6 socket that speaks IPv4 with its IPv4 addresses in IPv6 form.
    let same = got == asked.as_slice() && family == asked_family || mapped(&got) == asked;
    Ok(same.then_some(told))
}

/// Returns the ends of an IPv4 connection on an IPv6 socket, in the form for an IPv4 socket.
fn mapped(ends: &[u8; 36]) -> Vec<u8> {
    let (ports, addresses) = ends.split_at(4);
    let mut bytes = ports.to_vec();
    for address in addresses.chunks(16) {
        let plain = <[u8; 16]>::try_from(address).map(|bytes| IpAddr::from(bytes).to_canonical());
        bytes.extend_from_slice(&plain.map(words).unwrap_or_default());
    }
    bytes
}

#[cfg(test)]
mod namespace;
#[cfg(test)]
mod tests;
