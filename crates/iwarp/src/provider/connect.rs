//! Opening connections: the Initiator of MPA.
//!
//! A set-up runs in its own task, which continues after its caller has left. A connection that ends before the peer has
//! accepted it can make Linux `siw` close its listening socket, which then refuses all clients. So the task brings
//! every set-up to the Reply, within [`Timeouts::startup`](crate::Timeouts::startup), and closes an unwanted connection
//! a little later. A peer that is silent holds such a task no longer than
//! [`Timeouts::abandoned`](crate::Timeouts::abandoned): a program that waits for its tasks can end.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectParameters, Connector, QueuePair, RejectReason};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::queue_pair::IwarpQueuePair;
use super::socket::{self, FrameFailure};
use crate::config::Config;
use crate::engine::Timeouts;
use crate::startup::{Initiator, StartupError};

/// Time for which an unwanted connection stays open after its Reply: `siw` is not ready for its end at once.
const UNWANTED: Duration = Duration::from_millis(100);

/// Where the outcome of a set-up goes. It is closed when the caller has left.
type Caller = oneshot::Sender<Result<Box<dyn QueuePair>, ConnectError>>;

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
        caller: &mut Caller,
    ) -> Result<Box<dyn QueuePair>, ConnectError> {
        let config = &self.config;
        let Timeouts { startup: within, abandoned, .. } = config.timeouts;
        let settings = config.settings(&parameters);
        let (mut initiator, request) =
            Initiator::new(settings).map_err(|error| ConnectError::Invalid(error.to_string()))?;
        let connecting = tokio::time::timeout(within, TcpStream::connect(to));
        let connected = step(caller, abandoned, connecting).await.and_then(Result::ok);
        let mut stream = connected.ok_or(ConnectError::Timeout("TCP connect"))??;
        socket::configure(&stream, &config.timeouts)?;
        let introduction = async {
            // `siw` requires the Request in one piece, and no byte behind it before its Reply.
            stream.write_all(&request).await.map_err(ConnectError::Io)?;
            socket::read_frame(&mut stream, within, "its MPA Reply", |bytes| initiator.handle(bytes)).await
        };
        let result = step(caller, abandoned, introduction).await;
        match result.ok_or(ConnectError::Timeout("the MPA Reply"))? {
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

/// Runs a step of a set-up. After the caller has left, the step has only the rest of `least`, which counts from its
/// beginning. Returns `None` if that time is over before the step has ended.
async fn step<T>(caller: &mut Caller, least: Duration, step: impl Future<Output = T>) -> Option<T> {
    let least = tokio::time::sleep(least);
    let over = async {
        caller.closed().await;
        least.await;
    };
    tokio::select! {
        // A step that has just ended counts: TCP may be connected.
        biased;
        result = step => Some(result),
        () = over => None,
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
            let (mut caller, opened) = oneshot::channel();
            tokio::spawn(async move {
                let outcome = connector.open(to, parameters, &mut caller).await;
                if let Err(Ok(unwanted)) = caller.send(outcome) {
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

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const LEAST: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn a_step_has_its_least_time_although_its_caller_leaves() {
        assert_eq!(outcome(9, None).await, (Some("ended"), 9), "the caller waits");
        assert_eq!(outcome(9, Some(0)).await, (None, 2), "the caller leaves before the least time");
        assert_eq!(outcome(9, Some(5)).await, (None, 5), "the caller leaves after the least time");
        assert_eq!(outcome(1, Some(0)).await, (Some("ended"), 1), "the step ends within the least time");
        assert_eq!(outcome(2, Some(0)).await, (Some("ended"), 2), "the step ends just in time");
    }

    /// Returns what a step of this length returns if its caller leaves after another time, and the time that passes.
    async fn outcome(length: u64, leaves: Option<u64>) -> (Option<&'static str>, u64) {
        let (mut caller, opened) = oneshot::channel();
        tokio::spawn(async move {
            match leaves {
                Some(after) => sleep(Duration::from_secs(after)).await,
                None => std::future::pending().await,
            }
            drop(opened);
        });
        let began = Instant::now();
        let ended = async {
            sleep(Duration::from_secs(length)).await;
            "ended"
        };
        (step(&mut caller, LEAST, ended).await, began.elapsed().as_secs())
    }
}
