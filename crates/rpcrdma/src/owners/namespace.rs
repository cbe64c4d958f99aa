//! Tests of socket owners on addresses that a test makes, in a network namespace of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::process::Command;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use super::tests::ends_of;
use super::*;

/// Environment variable that marks the second run, in the namespace.
const INSIDE: &str = "RPCRDMA_TEST_NETWORK";

const IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// Anycast address of all routers of that network, which a forwarding machine has too.
const ANYCAST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// An interface with all these addresses, and four ports for sockets that ask for none.
const SET_UP: &str = "
    ip link set lo up && ip link add near type veth peer name far && ip link set near up && ip link set far up &&
    ip addr add 192.0.2.1/24 dev near && ip -6 addr add fd00::1/64 dev near nodad &&
    ip -6 addr add fe80::1/64 dev near nodad && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding &&
    echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range";

/// Runs the test of this name once more, in a network namespace of its own. Returns `true` in the second run, which
/// does the testing.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !geteuid().is_root() {
        println!("skipped: only root makes network interfaces");
        return false;
    }
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script, "sh"]);
        command
    };
    if !namespace(SET_UP).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: this machine lets root make no network interface with IPv6");
        return false;
    }
    let status = namespace(&format!("{SET_UP} && exec \"$1\" --exact \"$2\""))
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(INSIDE, "1")
        .status();
    assert!(status.unwrap().success(), "in the namespace");
    false
}

fn client(at: IpAddr, tune: impl FnOnce(&Socket)) -> Socket {
    let domain = if at.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    tune(&socket);
    socket
}

fn near() -> u32 {
    rustix::net::netdevice::name_to_index(client(IPV4.into(), |_| {}), "near").unwrap()
}

/// Returns the owner of `client`, once it is connected to `listener` at the address `to`.
fn owner(owners: &Owners, listener: &TcpListener, client: &Socket, to: IpAddr) -> Result<Owner, NoOwner> {
    client.connect(&SocketAddr::new(to, listener.local_addr().unwrap().port()).into()).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    owners.of(&ends_of(&stream, peer))
}

#[test]
fn i6_no_socket_of_this_machine_passes_for_that_of_another() {
    if !is_inside("owners::namespace::i6_no_socket_of_this_machine_passes_for_that_of_another") {
        return;
    }
    let owners = Owners::new();
    let own = Ok(Owner::User(geteuid().as_raw()));
    let [ipv4, ipv6] = ["0.0.0.0:2049", "[::]:2049"].map(|address: &str| {
        let socket = client(address.parse::<SocketAddr>().unwrap().ip(), |socket| {
            if address.starts_with('[') {
                socket.set_only_v6(true).unwrap();
            }
        });
        socket.bind(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(8).unwrap();
        TcpListener::from(socket)
    });
    let mut seen = Vec::new();
    let mut see = |name: &'static str, found: Result<Owner, NoOwner>| seen.push((name, found));

    // From an address of one link to another address.
    let socket = client(IPV6.into(), |socket| {
        socket.bind(&SocketAddrV6::new(LINK_LOCAL, 0, 0, near()).into()).unwrap();
    });
    see("link-local", owner(&owners, &ipv6, &socket, IPV6.into()));

    // Bound to a device: a question without that device does not find the socket.
    for (listener, to) in [(&ipv4, IpAddr::from(IPV4)), (&ipv6, IPV6.into())] {
        let socket = client(to, |socket| socket.bind_device(Some(b"near")).unwrap());
        see("bound to a device", owner(&owners, listener, &socket, to));
    }

    // An address to which no socket here could be bound without this option, which any user may set.
    let socket = client(IPV6.into(), |socket| {
        socket.set_freebind_v6(true).unwrap();
        socket.bind(&SocketAddrV6::new(ANYCAST, 0, 0, 0).into()).unwrap();
    });
    see("anycast", owner(&owners, &ipv6, &socket, IPV6.into()));

    // No port is left for a socket of ours at the peer's address.
    let taken: Vec<UdpSocket> = std::iter::from_fn(|| UdpSocket::bind((IPV4, 0)).ok()).take(8).collect();
    assert_eq!(taken.len(), 4);
    let socket = client(IPV4.into(), |socket| {
        socket.bind(&SocketAddr::from((IPV4, 0)).into()).unwrap();
    });
    see("no port is left", owner(&owners, &ipv4, &socket, Ipv4Addr::LOCALHOST.into()));

    // No file descriptor is left.
    let socket = client(IPV4.into(), |socket| {
        socket.bind(&SocketAddr::from((IPV4, 0)).into()).unwrap();
    });
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, 2049)).into()).unwrap();
    let (stream, peer) = ipv4.accept().unwrap();
    let ends = ends_of(&stream, peer);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).unwrap();
    let found = owners.of(&ends);
    setrlimit(Resource::Nofile, limit).unwrap();
    see("no file descriptor is left", found);

    let wrong: Vec<_> = seen.iter().filter(|(_, found)| *found != own).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
