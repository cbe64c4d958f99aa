//! Listening sockets that the server did not open itself: those of a service manager, or of the server before this one.

use std::io;
use std::net::{SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// The use of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum Role {
    /// Software iWARP.
    Rdma,
    /// NFS and MOUNT over TCP.
    Tcp,
    /// Metrics by HTTP.
    Metrics,
}

impl Role {
    /// Returns the word that options and lines have for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Metrics => "metrics",
        }
    }
}

/// A listening socket with its use and its address.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) role: Role,
    pub(super) address: SocketAddr,
    pub(super) listener: TcpListener,
}

/// Sockets that this server may take.
#[derive(Debug, Default)]
pub(super) struct Passed {
    sockets: Vec<Socket>,
    /// Uses for which a service manager passed sockets. These stand for the addresses of the options.
    replaced: Vec<Role>,
}

impl Passed {
    /// Adds sockets of the server before this one, which options take by their addresses. Those of a service manager go
    /// first.
    pub(super) fn add_others(&mut self, sockets: Vec<Socket>) {
        let replaced = &self.replaced;
        self.sockets.extend(sockets.into_iter().filter(|socket| !replaced.contains(&socket.role)));
    }

    /// Adds a socket of a service manager.
    ///
    /// # Errors
    /// It has no address, or is a second one for TCP.
    pub(super) fn add(&mut self, role: Role, listener: TcpListener) -> Result<(), Failure> {
        if role == Role::Tcp && self.has(role) {
            return Err(Failure::failed("two sockets with the name tcp were passed, and one is served"));
        }
        let address = listener.local_addr().map_err(cannot_take)?;
        self.sockets.push(Socket { role, address, listener });
        self.replaced.push(role);
        Ok(())
    }

    /// Returns whether there is a socket for this use.
    pub(super) fn has(&self, role: Role) -> bool {
        self.sockets.iter().any(|socket| socket.role == role)
    }

    /// Returns whether sockets for this use stand for the addresses of the options.
    pub(super) fn replaces(&self, role: Role) -> bool {
        self.replaced.contains(&role)
    }

    /// Takes the first socket for this use.
    pub(super) fn first(&mut self, role: Role) -> Option<TcpListener> {
        self.take(|socket| socket.role == role)
    }

    /// Takes the socket with this address. Port 0 takes the only one that has the IP address, beside those whose addresses are
    /// `named` elsewhere.
    pub(super) fn at(&mut self, role: Role, wanted: SocketAddr, named: &[SocketAddr]) -> Option<TcpListener> {
        if wanted.port() == 0 {
            let same = |socket: &&Socket| {
                socket.role == role && socket.address.ip() == wanted.ip() && !named.contains(&socket.address)
            };
            let mut found = self.sockets.iter().filter(same).map(|socket| socket.address);
            let only = found.next().filter(|_| found.next().is_none())?;
            return self.take(|socket| socket.role == role && socket.address == only);
        }
        self.take(|socket| socket.role == role && socket.address == wanted)
    }

    fn take(&mut self, is_wanted: impl Fn(&Socket) -> bool) -> Option<TcpListener> {
        let index = self.sockets.iter().position(is_wanted)?;
        Some(self.sockets.swap_remove(index).listener)
    }

    /// Returns the sockets that nothing has taken.
    pub(super) fn left(&self) -> impl Iterator<Item = (Role, SocketAddr)> {
        self.sockets.iter().map(|socket| (socket.role, socket.address))
    }
}

pub(super) fn cannot_take(error: io::Error) -> Failure {
    Failure::failed(format!("cannot take a socket that was passed: {error}"))
}

/// Returns a socket that was passed, for this runtime.
pub(super) fn taken(socket: TcpListener) -> Result<tokio::net::TcpListener, Failure> {
    socket.set_nonblocking(true).map_err(cannot_take)?;
    tokio::net::TcpListener::from_std(socket).map_err(cannot_take)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(role: Role, at: &str) -> Socket {
        let listener = TcpListener::bind(at).unwrap();
        Socket { role, address: listener.local_addr().unwrap(), listener }
    }

    #[test]
    fn sockets_are_taken_by_their_address() {
        let sockets = [(Role::Rdma, "127.0.0.1:0"), (Role::Rdma, "127.0.0.2:0"), (Role::Tcp, "127.0.0.1:0")];
        let sockets: Vec<Socket> = sockets.into_iter().map(|(role, at)| socket(role, at)).collect();
        let [one, two, tcp] = [sockets[0].address, sockets[1].address, sockets[2].address];
        let mut passed = Passed::default();
        passed.add_others(sockets);
        assert!(!passed.replaces(Role::Rdma));
        assert!(passed.at(Role::Rdma, tcp, &[]).is_none(), "another use");
        assert!(passed.at(Role::Rdma, SocketAddr::new([0, 0, 0, 0].into(), one.port()), &[]).is_none());
        assert_eq!(passed.at(Role::Rdma, two, &[]).unwrap().local_addr().unwrap(), two);
        assert!(passed.at(Role::Rdma, two, &[]).is_none(), "taken already");
        assert!(passed.at(Role::Rdma, "127.0.0.1:0".parse().unwrap(), &[]).is_some());
        assert_eq!(passed.left().collect::<Vec<_>>(), [(Role::Tcp, tcp)]);
    }

    #[test]
    fn port_0_takes_none_of_two() {
        let sockets = [(); 2].map(|()| socket(Role::Rdma, "127.0.0.1:0"));
        let first = sockets[0].address;
        let mut passed = Passed::default();
        passed.add_others(sockets.into());
        assert!(passed.at(Role::Rdma, "127.0.0.1:0".parse().unwrap(), &[]).is_none());
        // Another option names one of them.
        assert!(passed.at(Role::Rdma, "127.0.0.1:0".parse().unwrap(), &[first]).is_some());
        assert!(passed.at(Role::Rdma, first, &[]).is_some());
    }

    #[test]
    fn a_service_manager_passes_one_socket_for_tcp() {
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let mut passed = Passed::default();
        for role in [Role::Rdma, Role::Rdma, Role::Tcp] {
            passed.add(role, listener()).unwrap();
        }
        assert!(passed.replaces(Role::Rdma) && passed.replaces(Role::Tcp));
        assert!(passed.add(Role::Tcp, listener()).unwrap_err().to_string().contains("two sockets"));
        // They go before those of another server.
        passed.add_others(vec![socket(Role::Tcp, "127.0.0.1:0"), socket(Role::Metrics, "127.0.0.1:0")]);
        assert_eq!(passed.left().filter(|(role, _)| *role == Role::Tcp).count(), 1);
        assert!(passed.has(Role::Metrics) && !passed.replaces(Role::Metrics));
    }
}
