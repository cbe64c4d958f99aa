//! Service managers: the sockets that they pass to the server, and the states that the server tells them (sd_notify(3),
//! sd_listen_fds(3)).
//!
//! The manager gives the address of its socket and listening sockets by variables of the environment. They are removed
//! before the process has a second thread, so that no other process takes them for its own.
//!
//! Sockets that are passed replace addresses of software iWARP. Adapters keep their addresses, because no process can pass their
//! listeners.
//!
//! *Buffers.* A message is one datagram of a few lines.
//!
//! *Errors.* A manager that cannot be told is logged once for each message; the server goes on.

use std::ffi::OsStr;
use std::net::SocketAddr as SocketAddrOfIp;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use listenfd::ListenFd;
use rpcrdma_sys::{has_one_thread, remove_variables};
use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::passed::{Passed, Role};
use crate::exit::Failure;

/// Variables of the manager.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const LISTEN_FDS: &str = "LISTEN_FDS";
const VARIABLES: [&str; 6] =
    [NOTIFY_SOCKET, LISTEN_FDS, "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"];
/// Returns the use of a socket with this name.
fn role(name: &str) -> Result<Role, Failure> {
    [Role::Rdma, Role::Tcp].into_iter().find(|role| role.name() == name).ok_or_else(|| {
        Failure::failed(format!(
            "a socket with the name {name:?} was passed: give it FileDescriptorName=rdma (software iWARP) or \
             FileDescriptorName=tcp"
        ))
    })
}

/// Tells that a listener of the options gives way to passed sockets. A socket with the same port shows that this is meant.
pub(super) fn replaced(address: SocketAddrOfIp, passed: &[SocketAddrOfIp]) {
    if passed.iter().any(|socket| socket.port() == address.port()) {
        tracing::debug!(%address, "a socket of the service manager replaces --listen");
        return;
    }
    let sockets: Vec<String> = passed.iter().map(ToString::to_string).collect();
    tracing::warn!(
        "nobody listens on {address} of --listen: the service manager passed sockets for software iWARP instead, on {}. Add \
         ListenStream={address} to the unit of the socket, or remove --listen",
        sockets.join(" and ")
    );
}

/// The service manager; it may be absent.
#[derive(Debug, Default)]
pub(super) struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Time in which the manager wants to hear from the server.
    watchdog: Option<Duration>,
}

/// Returns the address in the variable: a path, or a name without a file after `@`.
fn address(variable: &OsStr) -> Option<SocketAddr> {
    match variable.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(variable).ok(),
        _ => None,
    }
}

impl Manager {
    /// Takes the sockets that the manager passed, and removes its variables. Call this while the process has one thread.
    ///
    /// # Errors
    /// A socket is none that listens on TCP, or has another name than those that the server knows.
    pub(super) fn take() -> Result<(Self, Passed), Failure> {
        let mut passed = Passed::default();
        if VARIABLES.iter().all(|name| std::env::var_os(name).is_none()) {
            return Ok((Self::default(), passed));
        }
        let cannot = |error: std::io::Error| {
            Failure::failed(format!("cannot take what the service manager passed: {error}"))
        };
        if !has_one_thread().map_err(cannot)? {
            return Err(Failure::failed(
                "cannot take what the service manager passed: there are other threads",
            ));
        }
        let manager = Self::at(std::env::var_os(NOTIFY_SOCKET).as_deref(), sd_notify::watchdog_enabled());
        // The crate that knows the names does not own the sockets, and the other one does not know the names.
        let names: Vec<String> = match sd_notify::listen_fds_with_names() {
            Ok(named) => named.map(|(_, name)| name).collect(),
            Err(error) => return Err(cannot(error)),
        };
        let mut sockets = if names.is_empty() { ListenFd::empty() } else { ListenFd::from_env() };
        for (index, name) in names.iter().enumerate() {
            if let Some(listener) = sockets.take_tcp_listener(index).map_err(cannot)? {
                passed.add(role(name)?, listener)?;
            }
        }
        remove_variables(&VARIABLES).map_err(cannot)?;
        Ok((manager, passed))
    }

    fn at(variable: Option<&OsStr>, watchdog: Option<Duration>) -> Self {
        let socket = variable.and_then(|variable| {
            let told = address(variable).and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
            if told.is_none() {
                tracing::warn!(address = ?variable, "no socket of a service manager that the server can use");
            }
            told
        });
        Self { watchdog: watchdog.filter(|_| socket.is_some()), socket }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        let Some((socket, address)) = &self.socket else { return };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, "cannot tell the service manager");
        }
    }

    /// Tells that the server is ready, at first or after another reading of its files.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Tells that the server reads its files again. [`Self::ready`] ends that.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "no clock for the service manager"),
        }
    }

    /// Tells that the server stops.
    pub(super) fn stopping(&self) {
        let status = NotifyState::Status("stopping: calls in progress are answered, and data is flushed");
        self.tell(&[NotifyState::Stopping, status]);
    }

    /// Starts to tell in time that the server lives, if the manager wants to know. Call this on a runtime.
    pub(super) fn keep_alive(self: &std::sync::Arc<Self>) -> Option<JoinHandle<()>> {
        let period = self.watchdog? / 2;
        let manager = std::sync::Arc::clone(self);
        Some(tokio::spawn(async move {
            let mut ticks = interval(period.max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                manager.tell(&[NotifyState::Watchdog]);
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Returns a manager's socket, and the server's side of it.
    fn manager(watchdog: Option<Duration>) -> (UnixDatagram, Manager, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (socket, Manager::at(Some(path.as_os_str()), watchdog), place)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1000];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_hears_each_state() {
        let (socket, manager, _place) = manager(None);
        manager.ready("1 export");
        assert_eq!(heard(&socket), "READY=1\nSTATUS=1 export\n");
        manager.reloading();
        let reloading = heard(&socket);
        let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(usec.trim_end().parse::<u64>().unwrap() > 0, "{reloading}");
        manager.stopping();
        assert!(heard(&socket).starts_with("STOPPING=1\nSTATUS=stopping"));
    }

    #[test]
    fn a_manager_may_have_a_name_without_a_file() {
        let name = format!("rpcrdma-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Manager::at(Some(OsStr::new(&format!("@{name}"))), None).ready("x");
        assert_eq!(heard(&socket), "READY=1\nSTATUS=x\n");
    }

    #[test]
    fn without_a_manager_nobody_is_told() {
        for variable in [None, Some(OsStr::new("vsock:2:1234")), Some(OsStr::new(""))] {
            let manager = Manager::at(variable, Some(Duration::from_secs(1)));
            assert!(manager.socket.is_none() && manager.watchdog.is_none());
            manager.ready("x");
        }
        // Its socket is gone.
        let (_, manager, _place) = manager(None);
        manager.ready("x");
    }

    #[tokio::test]
    async fn the_watchdog_hears_twice_in_its_time() {
        let (socket, manager, _place) = manager(Some(Duration::from_millis(4)));
        let task = Arc::new(manager).keep_alive().unwrap();
        for _ in 0..3 {
            let socket = socket.try_clone().unwrap();
            let heard = tokio::task::spawn_blocking(move || heard(&socket)).await.unwrap();
            assert_eq!(heard, "WATCHDOG=1\n");
        }
        task.abort();
        assert!(Arc::new(Manager::default()).keep_alive().is_none());
    }

    #[test]
    fn sockets_have_known_names() {
        assert_eq!((role("rdma").unwrap(), role("tcp").unwrap()), (Role::Rdma, Role::Tcp));
        let told = role("rpcrdma.socket").unwrap_err().to_string();
        assert!(told.contains("\"rpcrdma.socket\"") && told.contains("FileDescriptorName=rdma"), "{told}");
    }
}
