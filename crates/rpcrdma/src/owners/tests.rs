use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use socket2::{SockRef, Socket};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use super::*;

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the ends of an accepted connection.
pub(super) fn ends_of(stream: &TcpStream, peer: SocketAddr) -> TcpEnds {
    let inode = rustix::fs::fstat(stream).unwrap().st_ino;
    TcpEnds { local: stream.local_addr().unwrap(), peer, inode }
}

/// Returns ends without a socket.
fn nowhere(local: &str, peer: &str) -> TcpEnds {
    TcpEnds { local: local.parse().unwrap(), peer: peer.parse().unwrap(), inode: 0 }
}

fn accepted(listener: &TcpListener) -> (TcpStream, TcpEnds) {
    let (stream, peer) = listener.accept().unwrap();
    let ends = ends_of(&stream, peer);
    (stream, ends)
}

/// Returns whether the kernel answers here; if not, the test prints that.
fn works(owners: &Owners) -> bool {
    if let Err(error) = &owners.sockets {
        println!("skipped: {error}");
    }
    owners.sockets.is_ok()
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
        let (_stream, ends) = accepted(&listener);
        assert_eq!(owners.of(&ends), Ok(Owner::User(own())), "{bind} {connect}");
    }
}

/// A question without the device does not find a socket that is bound to a device.
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
    let (_stream, ends) = accepted(&listener);
    assert_eq!(owners.of(&ends), Ok(Owner::User(own())));
}

/// The kernel reports such a socket as root's.
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
        assert!(owners.of(&ends_of(&stream, peer)).is_err(), "reset: {reset}");
    }
}

/// A client resets its connection, and another connection with its address and port waits behind it. Bytes of the first
/// do not belong to the owner of the second.
#[test]
fn the_owner_of_a_later_connection_with_these_addresses_is_not_that_of_the_first() {
    let owners = Owners::new();
    if !works(&owners) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().into();
    let connect = |from: SocketAddr| {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&to).unwrap();
        socket
    };
    let mut first = connect(([127, 0, 0, 1], 0).into());
    first.write_all(b"a call").unwrap();
    first.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    let from = first.local_addr().unwrap().as_socket().unwrap();
    drop(first);
    let _second = connect(from);
    let (_reset, ends) = accepted(&listener);
    assert_eq!(owners.of(&ends), Err(NoOwner::Closed));
    let (_stream, ends) = accepted(&listener);
    assert_eq!(owners.of(&ends), Ok(Owner::User(own())));
}

#[test]
fn other_machines_are_not_asked_about() {
    let silent = Owners { sockets: Err(io::ErrorKind::Unsupported.into()), ..Owners::new() };
    let remote = nowhere("203.0.113.1:20049", "198.51.100.1:700");
    if silent.routes.place(remote.local, remote.peer) == Place::Unknown {
        println!("skipped: no routes are told here");
        return;
    }
    assert_eq!(silent.of(&remote), Ok(Owner::Elsewhere));
    assert!(!silent.told_failed.load(Ordering::Relaxed));
    // A kernel without an answer does not stop the server.
    assert_eq!(silent.of(&nowhere("127.0.0.1:1", "127.0.0.1:2")), Ok(Owner::Elsewhere));
    assert!(silent.told_failed.load(Ordering::Relaxed));
}

#[test]
fn i6_only_two_established_ends_say_whose_a_connection_is() {
    let established = Some(Told { state: ESTABLISHED, user: 7, inode: 9 });
    let closing = Some(Told { state: ESTABLISHED + 3, user: 7, inode: 9 });
    let left = Some(Told { state: ESTABLISHED, user: 0, inode: 0 });
    for (place, theirs, ours, owner) in [
        (Place::Here, established, established, Ok(Owner::User(7))),
        (Place::Here, established, closing, Err(NoOwner::Closed)),
        (Place::Here, closing, established, Err(NoOwner::Closed)),
        (Place::Here, left, established, Err(NoOwner::Closed)),
        (Place::Here, established, None, Err(NoOwner::Closed)),
        // A socket that gave up without notice: its calls may still be readable.
        (Place::Here, None, established, Err(NoOwner::Missing)),
        (Place::Here, None, closing, Err(NoOwner::Closed)),
        (Place::Here, None, None, Err(NoOwner::Closed)),
        (Place::Unknown, established, established, Ok(Owner::User(7))),
        (Place::Unknown, left, established, Err(NoOwner::Closed)),
        (Place::Unknown, None, established, Ok(Owner::Elsewhere)),
        (Place::Unknown, None, closing, Ok(Owner::Elsewhere)),
    ] {
        assert_eq!(judge(place, theirs, ours), owner, "{place:?} {theirs:?} {ours:?}");
    }
}

#[test]
fn i5_answers_that_are_cut_off_or_of_something_else() {
    let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
    let mut body = vec![0; ANSWER];
    body[0] = IPV4;
    body[1] = ESTABLISHED;
    body[4..40].copy_from_slice(&ends(local, peer).1);
    body[64] = 7;
    body[68] = 9;
    let told = Told {
        state: ESTABLISHED,
        user: u32::from_ne_bytes([7, 0, 0, 0]),
        inode: u32::from_ne_bytes([9, 0, 0, 0]),
    };
    let of = |body: &[u8], local, peer| answer(&Message { kind: BY_FAMILY, body }, local, peer);
    assert_eq!(of(&body, local, peer).unwrap(), Some(told));
    assert_eq!(of(&body, peer, local).unwrap(), None, "another socket");
    assert!(answer(&Message { kind: BY_FAMILY + 1, body: &body }, local, peer).is_err());
    for length in 0..body.len() {
        assert!(of(&body[..length], local, peer).is_err(), "{length}");
    }
}

/// A counter of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// If the kernel reports too little, the rule does not apply. The log says so once, not for each connection.
#[test]
fn what_the_kernel_does_not_tell_is_said_once() {
    let warnings = Warnings::default();
    let ends = nowhere("127.0.0.1:1", "127.0.0.1:2");
    let silent = Owners { sockets: Err(io::ErrorKind::Unsupported.into()), ..Owners::new() };
    // With a single dispatcher, a thread of another test that reaches an event first would switch the event off for
    // all.
    let _second = Dispatch::new(NoSubscriber::new());
    tracing::subscriber::with_default(warnings.clone(), || {
        for expected in [1, 0, 0] {
            assert_eq!(silent.of(&ends), Ok(Owner::Elsewhere));
            assert_eq!(warnings.0.swap(0, Ordering::Relaxed), expected, "sockets");
        }
        for expected in [1, 0, 0] {
            silent.tell_missing(ends.peer);
            assert_eq!(warnings.0.swap(0, Ordering::Relaxed), expected, "addresses");
        }
    });
}
