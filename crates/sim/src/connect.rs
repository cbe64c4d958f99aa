//! Connections over addresses: [`SimConnector`], [`SimListener`] and the attempts between them.
//!
//! Each message of the set-up takes the fabric's latency. No memory is held before both sides have agreed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{
    BoxFuture, ConnectError, ConnectParameters, ConnectionRequest, Connector, Incoming, Listener, QueuePair,
    RejectReason,
};
use tokio::sync::{mpsc, oneshot};

use crate::{Fabric, SimQueuePair};

/// The answer that a connecting end waits for.
type Answer = Result<SimQueuePair, ConnectError>;

/// A connection attempt on its way to a listener.
#[derive(Debug)]
pub(crate) struct Attempt {
    fabric: Fabric,
    from: SocketAddr,
    to: SocketAddr,
    /// The peer's parameters; `None` if the peer is silent for ever.
    parameters: Option<ConnectParameters>,
    answer: oneshot::Sender<Answer>,
}

impl Fabric {
    /// Returns a connector for connections that come from `local`, each with a new port.
    #[must_use]
    pub fn connector(&self, local: IpAddr) -> SimConnector {
        SimConnector { fabric: self.clone(), local }
    }

    /// Listens at an address; port 0 takes a free port.
    ///
    /// # Errors
    /// `AddrInUse` if another listener has the address.
    pub fn listen(&self, address: SocketAddr) -> io::Result<SimListener> {
        let (sender, attempts) = mpsc::unbounded_channel();
        let mut core = self.lock();
        let mut address = address;
        let any_port = address.port() == 0;
        while address.port() == 0 || core.listeners.contains_key(&address) {
            if address.port() != 0 && !any_port {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            address.set_port(core.take_port());
        }
        core.listeners.insert(address, sender);
        drop(core);
        Ok(SimListener { fabric: self.clone(), address, attempts })
    }

    /// Refuses the next `count` attempts to connect to this address, as if there were no listener.
    pub fn refuse(&self, address: SocketAddr, count: usize) {
        self.lock().refusals.insert(address, count);
    }

    /// Connects to a listener and sends nothing: its [`Incoming::request`] waits until the time for set-up is over.
    ///
    /// # Errors
    /// `ConnectionRefused` if there is no listener.
    pub fn connect_silently(&self, to: SocketAddr) -> io::Result<()> {
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.lock().take_port());
        let (answer, _) = oneshot::channel();
        self.knock(Attempt { fabric: self.clone(), from, to, parameters: None, answer })
    }

    fn knock(&self, attempt: Attempt) -> io::Result<()> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let mut core = self.lock();
        if let Some(count) = core.refusals.get_mut(&attempt.to).filter(|count| **count > 0) {
            *count -= 1;
            return Err(refused());
        }
        let listener = core.listeners.get(&attempt.to).ok_or_else(refused)?;
        listener.send(attempt).map_err(|_| refused())
    }

    fn check_private_data(&self, seen: usize) -> Result<(), ConnectError> {
        let most = self.config().max_private_data;
        if seen > most {
            return Err(ConnectError::Invalid(format!("{seen} bytes of private data; at most {most} fit")));
        }
        Ok(())
    }

    /// Waits for the latency of one set-up message. Without a runtime it takes no time.
    async fn travel(&self) {
        if self.is_on_tokio() {
            tokio::time::sleep(self.config().latency).await;
        }
    }

    /// Waits for the peer, at most for the time for set-up. Without a runtime it waits without limit.
    async fn within<T>(
        &self,
        what: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, ConnectError> {
        if !self.is_on_tokio() {
            return Ok(future.await);
        }
        let limit: Duration = self.config().setup_timeout;
        tokio::time::timeout(limit, future).await.map_err(|_| ConnectError::Timeout(what))
    }
}

impl crate::fabric::Core {
    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(49_152);
        port
    }
}

/// The connecting side of a fabric.
#[derive(Debug, Clone)]
pub struct SimConnector {
    fabric: Fabric,
    local: IpAddr,
}

impl Connector for SimConnector {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let fabric = &self.fabric;
            fabric.check_private_data(parameters.private_data.max_len())?;
            let from = SocketAddr::new(self.local, fabric.lock().take_port());
            let (answer, answered) = oneshot::channel();
            fabric.travel().await;
            let parameters = Some(parameters);
            fabric.knock(Attempt { fabric: fabric.clone(), from, to, parameters, answer })?;
            let answer = fabric.within("the answer to a connection request", answered).await?;
            fabric.travel().await;
            match answer {
                Ok(answer) => Ok(Box::new(answer?) as Box<dyn QueuePair>),
                Err(_) => Err(ConnectError::Io(io::ErrorKind::ConnectionReset.into())),
            }
        })
    }
}

/// The listening side of a fabric. Dropping it refuses waiting attempts.
#[derive(Debug)]
pub struct SimListener {
    fabric: Fabric,
    address: SocketAddr,
    attempts: mpsc::UnboundedReceiver<Attempt>,
}

impl Listener for SimListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            match self.attempts.recv().await {
                Some(attempt) => Ok(Box::new(attempt) as Box<dyn Incoming>),
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        })
    }

    fn provider(&self) -> &'static str {
        "sim"
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.fabric.lock().listeners.remove(&self.address);
    }
}

impl Incoming for Attempt {
    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.from)
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(async move {
            let Self { fabric, from, to, parameters, answer } = *self;
            match parameters {
                Some(parameters) => {
                    Ok(Box::new(Request { fabric, from, to, parameters, answer })
                        as Box<dyn ConnectionRequest>)
                }
                None => fabric.within("a connection request", std::future::pending()).await,
            }
        })
    }
}

/// A connection attempt whose parameters have arrived.
#[derive(Debug)]
struct Request {
    fabric: Fabric,
    from: SocketAddr,
    to: SocketAddr,
    parameters: ConnectParameters,
    answer: oneshot::Sender<Answer>,
}

impl ConnectionRequest for Request {
    fn private_data(&self) -> &Bytes {
        self.parameters.private_data.stated_by(&self.fabric.config().capabilities)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.from)
    }

    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let Self { fabric, from, to, parameters: theirs, answer } = *self;
            fabric.check_private_data(parameters.private_data.max_len())?;
            let (a, b) = fabric.connect_ends(theirs, parameters, Some(from), Some(to));
            // The connecting side may be gone: then its end is dropped here, and ours learns that as a reset.
            let _ = answer.send(Ok(a));
            Ok(Box::new(b) as Box<dyn QueuePair>)
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>> {
        Box::pin(async move {
            self.fabric.check_private_data(private_data.len())?;
            let _ = self.answer.send(Err(ConnectError::Rejected(RejectReason { private_data })));
            Ok(())
        })
    }
}
