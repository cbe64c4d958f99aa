//! Opening connections: the Initiator of MPA.
//!
//! A set-up runs in its own task, which continues after its caller has left. A connection that ends before the peer has
//! accepted it can make Linux `siw` close its listening socket, which then refuses all clients. So the task brings
//! every set-up to the Reply, within [`Timeouts::startup`](crate::Timeouts::startup), and closes an unwanted connection
//! a little later.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectParameters, Connector, QueuePair, RejectReason};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::queue_pair::IwarpQueuePair;
use super::socket::{self, FrameFailure};
use crate::config::Config;
use crate::startup::{Initiator, StartupError};

/// Time for which an unwanted connection stays open after its Reply: `siw` is not ready for its end at once.
const UNWANTED: Duration = Duration::from_millis(100);

/// Opens iWARP connections over TCP.
#[derive(Clone, Debug, Default)]
pub struct IwarpConnector {
    config: Config,
}

impl IwarpConnector {
    /// Returns a connector with these settings.
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    async fn open(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> Result<Box<dyn QueuePair>, ConnectError> {
        let config = &self.config;
        let within = config.timeouts.startup;
        let settings = config.settings(&parameters);
        let (mut initiator, request) =
            Initiator::new(settings).map_err(|error| ConnectError::Invalid(error.to_string()))?;
        let mut stream = tokio::time::timeout(within, TcpStream::connect(to))
            .await
            .map_err(|_| ConnectError::Timeout("TCP connect"))??;
        socket::configure(&stream, &config.timeouts)?;
        // `siw` requires the Request in one piece, and no byte behind it before its Reply.
        stream.write_all(&request).await?;
        let result =
            socket::read_frame(&mut stream, within, "its MPA Reply", |bytes| initiator.handle(bytes)).await;
        match result {
            Ok((negotiated, behind)) => {
                tracing::debug!(
                    %to, crc = negotiated.crc, ird = negotiated.ird, ord = negotiated.ord, "connection set up"
                );
                let queue_pair = IwarpQueuePair::new(stream, config, parameters, negotiated, &behind);
                Ok(Box::new(queue_pair))
            }
            Err(FrameFailure::Connect(error)) => Err(error),
            Err(FrameFailure::Startup(StartupError::Rejected { private_data, .. })) => {
                Err(ConnectError::Rejected(RejectReason { private_data }))
            }
            Err(FrameFailure::Startup(error)) => {
                socket::last_words(&mut stream, &error, within).await;
                Err(ConnectError::Protocol(error.to_string()))
            }
        }
    }
}

impl Connector for IwarpConnector {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        let connector = self.clone();
        Box::pin(async move {
            let (done, opened) = oneshot::channel();
            tokio::spawn(async move {
                let outcome = connector.open(to, parameters).await;
                if let Err(Ok(unwanted)) = done.send(outcome) {
                    tokio::time::sleep(UNWANTED).await;
                    drop(unwanted);
                }
            });
            opened
                .await
                .unwrap_or_else(|_| Err(ConnectError::Io(std::io::Error::other("the runtime has ended"))))
        })
    }
}
