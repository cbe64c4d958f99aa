//! Accepting connections: the Responder of MPA.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use rpcrdma_verbs::{
    BoxFuture, ConnectError, ConnectParameters, ConnectionRequest, Incoming, Listener, QueuePair, TcpEnds,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::queue_pair::IwarpQueuePair;
use super::socket::{self, FrameFailure};
use crate::config::Config;
use crate::startup::{Request, Responder, Settings};

/// Accepts iWARP connections over TCP.
#[derive(Debug)]
pub struct IwarpListener {
    listener: TcpListener,
    config: Config,
}

impl IwarpListener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// Those of the socket: the address is in use or not local, or permission is missing.
    pub async fn bind(address: SocketAddr, config: Config) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, config })
    }

    /// Takes over a listening socket, for instance one from a service manager.
    pub const fn from_tcp(listener: TcpListener, config: Config) -> Self {
        Self { listener, config }
    }
}

impl Listener for IwarpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            let attempt: Box<dyn Incoming> =
                Box::new(IwarpIncoming { stream, peer, config: self.config.clone() });
            Ok(attempt)
        })
    }

    fn provider(&self) -> &'static str {
        "iwarp"
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A TCP connection that has not sent any byte yet.
struct IwarpIncoming {
    stream: TcpStream,
    peer: SocketAddr,
    config: Config,
}

impl Incoming for IwarpIncoming {
    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn tcp_ends(&self) -> io::Result<Option<TcpEnds>> {
        let inode = rustix::fs::fstat(&self.stream)?.st_ino;
        Ok(Some(TcpEnds { local: self.stream.local_addr()?, peer: self.peer, inode }))
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(async move {
            let Self { mut stream, peer, config } = *self;
            socket::configure(&stream, &config.timeouts)?;
            let mut responder = Responder::new();
            let within = config.timeouts.startup;
            let result =
                socket::read_frame(&mut stream, within, "its MPA Request", |bytes| responder.handle(bytes))
                    .await;
            match result {
                Ok((request, behind)) => {
                    let request: Box<dyn ConnectionRequest> =
                        Box::new(IwarpRequest { stream, peer, config, request, behind });
                    Ok(request)
                }
                Err(FrameFailure::Connect(error)) => Err(error),
                Err(FrameFailure::Startup(error)) => Err(ConnectError::Protocol(error.to_string())),
            }
        })
    }
}

/// A valid MPA Request.
struct IwarpRequest {
    stream: TcpStream,
    peer: SocketAddr,
    config: Config,
    request: Request,
    behind: Vec<u8>,
}

impl ConnectionRequest for IwarpRequest {
    fn private_data(&self) -> &Bytes {
        self.request.private_data()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let Self { mut stream, config, request, behind, .. } = *self;
            let settings = config.settings(&parameters);
            let (reply, negotiated) =
                request.accept(&settings).map_err(|error| ConnectError::Invalid(error.to_string()))?;
            stream.write_all(&reply).await?;
            let queue_pair: Box<dyn QueuePair> =
                Box::new(IwarpQueuePair::new(stream, &config, parameters, negotiated, &behind));
            Ok(queue_pair)
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>> {
        Box::pin(async move {
            let Self { mut stream, config, request, .. } = *self;
            let settings = Settings { crc: config.crc, ird: 0, ord: 0, ..Settings::default() };
            let reply = request
                .reject(&settings, &private_data)
                .map_err(|error| ConnectError::Invalid(error.to_string()))?;
            stream.write_all(&reply).await?;
            stream.shutdown().await?;
            Ok(())
        })
    }
}
