//! [`Owners`]: the user to whom the other end of a TCP connection belongs, where that end is on this machine.
//!
//! AUTH_SYS believes the calling machine to tell its users apart. On the server's own machine any user's program can connect.
//! The kernel knows whose it is: [`Owners`] asks it by netlink (`sock_diag(7)`) for the socket at the other end. Three cases are
//! no answer:
//!
//! * *The socket is being closed, or a loopback address has none.* The kernel calls a socket that no process has any more root's.
//!   So the connection is closed.
//! * *No socket of this network namespace has the address:* another machine, a container with a network of its own, an RDMA
//!   adapter. The rule does not apply. If the address is one of this machine, the log says so once.
//! * *The kernel does not answer* (a sandbox, a kernel without `inet_diag`): the rule does not apply, and the log says so once.
//!
//! A program that passes connections on (`ssh -L`, the user network of QEMU, a container's proxy) counts as its own user.
//!
//! **Another socket in the place of the first.** The peer's address and port may belong to another socket by the time of the question. So the
//! kernel is asked for our end afterwards: while that is established, so is the end that we were told about.
//!
//! The kernel answers while the question is being sent: nothing here waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use thiserror::Error;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR` of `linux/netlink.h`.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
/// `TCP_ESTABLISHED` of `net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
/// Number of the loopback device in every network namespace. A socket that is bound to it is found by this number only; others
/// are found by any.
const LOOPBACK_DEVICE: u32 = 1;

const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const QUESTION: usize = 56;
/// `struct inet_diag_msg`.
const ANSWER: usize = 72;
/// Room for one answer with attributes that nobody asked for.
const ROOM: usize = 4096;

/// The user at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Of this machine.
    User(u32),
    /// Not known, and not to be known here: see the module.
    Elsewhere,
}

/// Why a connection from this machine is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum NoOwner {
    /// The socket has no process.
    #[error("its socket was closed before it was served: whose it was is not known")]
    Closed,
    /// There is no such socket.
    #[error("no socket of this machine has that address: whose it is is not known")]
    Missing,
    /// The kernel gave no answer that can be read.
    #[error("the kernel did not say whose socket it is")]
    Unknown,
}

/// Asks the kernel.
#[derive(Debug)]
pub(crate) struct Owners {
    netlink: io::Result<Mutex<OwnedFd>>,
    sequence: AtomicU32,
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

impl Owners {
    /// Finds out whether the kernel can be asked here: about a connection of our own.
    pub(crate) fn new() -> Self {
        let opened = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        let mut owners = Self {
            netlink: opened.map(Mutex::new).map_err(io::Error::from),
            sequence: AtomicU32::new(0),
            told_missing: AtomicBool::new(false),
            told_failed: AtomicBool::new(false),
        };
        if owners.netlink.is_ok()
            && let Err(error) = owners.try_out()
        {
            owners.netlink = Err(error);
        }
        owners
    }

    fn try_out(&self) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let known = self.ask(stream.local_addr()?, stream.peer_addr()?)?;
        known.map(drop).ok_or_else(|| io::Error::other("it does not know a socket of the server's own"))
    }

    fn tell_failed(&self, error: &io::Error) {
        if !self.told_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "the kernel does not say whose sockets are (sock_diag): callers of this machine can claim any user ID"
            );
        }
    }

    /// The user at the other end of a connection that was accepted at `local` from `peer`.
    ///
    /// # Errors
    /// [`NoOwner`]: the connection is not to be served.
    pub(crate) fn of(&self, local: SocketAddr, peer: SocketAddr) -> Result<Owner, NoOwner> {
        if !is_here(local.ip(), peer.ip()) {
            return Ok(Owner::Elsewhere);
        }
        if let Err(error) = &self.netlink {
            self.tell_failed(error);
            return Ok(Owner::Elsewhere);
        }
        let asked = self.ask(peer, local).and_then(|theirs| Ok((theirs, self.ask(local, peer)?)));
        match asked {
            Err(error) => {
                tracing::warn!(%error, %peer, "the kernel did not say whose socket this is");
                Err(NoOwner::Unknown)
            }
            // Reset; what came before may still be there to be read.
            Ok((_, None)) => Err(NoOwner::Closed),
            Ok((Some(theirs), Some(ours))) => {
                let whole = theirs.state == ESTABLISHED && ours.state == ESTABLISHED && theirs.inode != 0;
                if whole { Ok(Owner::User(theirs.user)) } else { Err(NoOwner::Closed) }
            }
            Ok((None, Some(ours))) if ours.state != ESTABLISHED => Err(NoOwner::Closed),
            Ok((None, Some(_))) if peer.ip().to_canonical().is_loopback() => Err(NoOwner::Missing),
            Ok((None, Some(_))) => {
                if !self.told_missing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %peer,
                        "no socket of this machine has this address of its own (another network namespace?): such callers \
                         can claim any user ID"
                    );
                }
                Ok(Owner::Elsewhere)
            }
        }
    }

    /// Asks for the socket at `local` that is connected to `peer`; `None`: there is none.
    fn ask(&self, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Told>> {
        let scope = |address: SocketAddr| match address {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let devices = [LOOPBACK_DEVICE, scope(local).max(scope(peer))];
        for device in devices.into_iter().filter(|device| *device != 0) {
            if let Some(told) = self.ask_on(local, peer, device)? {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    fn ask_on(&self, local: SocketAddr, peer: SocketAddr, device: u32) -> io::Result<Option<Told>> {
        let socket =
            self.netlink.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        // No answer of before is left over: each is read under the lock.
        let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        send(&*socket, &question(sequence, local, peer, device), SendFlags::empty())?;
        let mut room = vec![0_u8; ROOM];
        let (length, _) = recv(&*socket, &mut room[..], RecvFlags::DONTWAIT)?;
        let message = room.get(..length).unwrap_or_default();
        answer(message, sequence, local, peer)
    }
}

/// Whether a peer's address belongs to this machine.
fn is_here(local: IpAddr, peer: IpAddr) -> bool {
    let (local, peer) = (local.to_canonical(), peer.to_canonical());
    // The kernel binds to no address of another machine.
    peer.is_loopback() || peer == local || UdpSocket::bind((peer, 0)).is_ok()
}

/// Four words of the kernel's form of an address.
fn words(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut words = [0; 16];
            for (word, octet) in words.iter_mut().zip(address.octets()) {
                *word = octet;
            }
            words
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Both ends as `struct inet_diag_sockid` begins: ports, then addresses.
fn ends(local: SocketAddr, peer: SocketAddr) -> (u8, Vec<u8>) {
    let (here, there) = (local.ip().to_canonical(), peer.ip().to_canonical());
    let family = if here.is_ipv4() { IPV4 } else { IPV6 };
    let mut octets = Vec::with_capacity(36);
    octets.extend_from_slice(&local.port().to_be_bytes());
    octets.extend_from_slice(&peer.port().to_be_bytes());
    octets.extend_from_slice(&words(here));
    octets.extend_from_slice(&words(there));
    (family, octets)
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`: for this one socket, without a cookie.
fn question(sequence: u32, local: SocketAddr, peer: SocketAddr, device: u32) -> Vec<u8> {
    let (family, ends) = ends(local, peer);
    let mut octets = Vec::with_capacity(HEADER + QUESTION);
    let length = u32::try_from(HEADER + QUESTION).unwrap_or_default();
    octets.extend_from_slice(&length.to_ne_bytes());
    octets.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    octets.extend_from_slice(&REQUEST.to_ne_bytes());
    octets.extend_from_slice(&sequence.to_ne_bytes());
    octets.extend_from_slice(&[0; 4]);
    octets.extend_from_slice(&[family, TCP, 0, 0]);
    // All states.
    octets.extend_from_slice(&u32::MAX.to_ne_bytes());
    octets.extend_from_slice(&ends);
    octets.extend_from_slice(&device.to_ne_bytes());
    octets.extend_from_slice(&[0xff; 8]);
    octets
}

fn number<const N: usize>(octets: &[u8], at: usize) -> io::Result<[u8; N]> {
    let field = octets.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that is too short"))
}

/// Reads the answer. Another socket than that of the question (a listening one, for instance) is none.
fn answer(message: &[u8], sequence: u32, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Told>> {
    let kind = u16::from_ne_bytes(number(message, 4)?);
    if u32::from_ne_bytes(number(message, 8)?) != sequence {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to another question"));
    }
    if kind == ERROR {
        let error = i32::from_ne_bytes(number(message, HEADER)?);
        let error = io::Error::from_raw_os_error(error.saturating_neg());
        return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
    }
    let body = message.get(HEADER..).unwrap_or_default();
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
    // An IPv6 socket that speaks IPv4 is told with its IPv4 addresses in IPv6 form.
    let same = got == asked.as_slice() && family == asked_family || mapped(&got) == asked;
    Ok(same.then_some(told))
}

/// The ends of an IPv4 connection on an IPv6 socket, as those of an IPv4 socket.
fn mapped(ends: &[u8; 36]) -> Vec<u8> {
    let (ports, addresses) = ends.split_at(4);
    let mut octets = ports.to_vec();
    for address in addresses.chunks(16) {
        let plain = <[u8; 16]>::try_from(address).map(|octets| IpAddr::from(octets).to_canonical());
        octets.extend_from_slice(&plain.map(words).unwrap_or_default());
    }
    octets
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use socket2::{SockRef, Socket};

    use super::*;

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr, SocketAddr) {
        let (stream, peer) = listener.accept().unwrap();
        let local = stream.local_addr().unwrap();
        (stream, local, peer)
    }

    /// Whether the kernel answers here; if not, the test says so.
    fn works(owners: &Owners) -> bool {
        if let Err(error) = &owners.netlink {
            println!("skipped: {error}");
        }
        owners.netlink.is_ok()
    }

    #[test]
    fn the_user_at_the_other_end() {
        let owners = Owners::new();
        if !works(&owners) {
            return;
        }
        for (bind, connect) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
            ("0.0.0.0:0", "::ffff:127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(bind) else { continue };
            let address = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let Ok(_client) = TcpStream::connect(address) else { continue };
            let (_stream, local, peer) = accepted(&listener);
            assert_eq!(owners.of(local, peer), Ok(Owner::User(own())), "{bind} {connect}");
        }
    }

    /// A socket that is bound to a device is not found by a question without that device.
    #[test]
    fn a_socket_that_is_bound_to_the_loopback_device_does_not_hide() {
        let owners = Owners::new();
        if !works(&owners) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        if let Err(error) = client.bind_device(Some(b"lo")) {
            println!("skipped: {error}");
            return;
        }
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (_stream, local, peer) = accepted(&listener);
        assert_eq!(owners.of(local, peer), Ok(Owner::User(own())));
    }

    /// The kernel says of such a socket that it is root's.
    #[test]
    fn a_socket_without_a_process_is_nobodys() {
        let owners = Owners::new();
        if !works(&owners) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for reset in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(b"a call").unwrap();
            if reset {
                SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            }
            drop(client);
            let Ok((stream, peer)) = listener.accept() else { continue };
            let local = stream.local_addr().unwrap_or(listener.local_addr().unwrap());
            assert!(owners.of(local, peer).is_err(), "reset: {reset}");
        }
    }

    #[test]
    fn other_machines_are_not_asked_about() {
        let silent = Owners { netlink: Err(io::ErrorKind::Unsupported.into()), ..Owners::new() };
        let remote = "192.0.2.1:700".parse().unwrap();
        assert_eq!(silent.of("198.51.100.1:20049".parse().unwrap(), remote), Ok(Owner::Elsewhere));
        assert!(!silent.told_failed.load(Ordering::Relaxed));
        // A kernel without an answer does not stop the server.
        let local = "127.0.0.1:1".parse().unwrap();
        assert_eq!(silent.of(local, "127.0.0.1:2".parse().unwrap()), Ok(Owner::Elsewhere));
        assert!(silent.told_failed.load(Ordering::Relaxed));
    }

    #[test]
    fn i5_answers_that_are_cut_off_or_of_something_else() {
        let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut message = vec![0; HEADER + ANSWER];
        message[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        message[HEADER] = IPV4;
        message[HEADER + 1] = ESTABLISHED;
        message[HEADER + 4..HEADER + 40].copy_from_slice(&ends(local, peer).1);
        message[HEADER + 64] = 7;
        message[HEADER + 68] = 9;
        let told = Told {
            state: ESTABLISHED,
            user: u32::from_ne_bytes([7, 0, 0, 0]),
            inode: u32::from_ne_bytes([9, 0, 0, 0]),
        };
        assert_eq!(answer(&message, 0, local, peer).unwrap(), Some(told));
        assert_eq!(answer(&message, 0, peer, local).unwrap(), None, "another socket");
        assert!(answer(&message, 1, local, peer).is_err(), "another question");
        for length in 0..message.len() {
            assert!(answer(&message[..length], 0, local, peer).is_err(), "{length}");
        }
    }
}
