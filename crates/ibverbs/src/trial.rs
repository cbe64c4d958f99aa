//! Finds out how an adapter exposes memory: by trying it on a connection of the adapter to itself.
//!
//! The flags of a device are often wrong about windows, in both directions. So a window is bound, written by
//! the other end, and invalidated. Results are kept for the life of the process.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{
    Completion, ConnectError, ConnectParameters, ConnectionRequest, Listener, OwnPrivateData,
    ProtectionDomain, QueuePair, ReceiveMemory, SendRequest, WindowMemory, Windows, Work, WorkRequest, WrId,
};

use crate::adapter::Adapter;
use crate::cm::Endpoint;
use crate::config::Config;
use crate::connect::{establish, resolved};
use crate::listen::IbverbsListener;
use crate::memory::Mode;
use crate::queue_pair::{INVALIDATION_FLAGS, IbverbsQueuePair, Setup};

/// Time for the trial of one mode.
const LIMIT: Duration = Duration::from_secs(3);
/// Octets that are exposed.
const LEN: usize = 100;

/// Registrations at addresses of this process: nothing that needs a trial.
const PLAIN: Mode = Mode { windows: false, chosen_addresses: false, invalidation_flag: None };

/// Returns how connections of this adapter expose memory.
pub(crate) async fn mode(endpoint: &Endpoint, adapter: &Adapter, config: &Config) -> Mode {
    /// Results by name of the device, its number of windows, and whether windows were allowed.
    static KNOWN: Mutex<BTreeMap<(String, usize, bool), Mode>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (adapter.name.clone(), adapter.limits.windows, config.registrations_only);
    if let Some(&mode) = known().get(&key) {
        return mode;
    }
    let Some(local) = endpoint.local_address() else { return PLAIN };
    // Trials take turns: the next one finds the result of the first.
    static TRIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TRIAL.lock().await;
    if let Some(&mode) = known().get(&key) {
        return mode;
    }
    let (mode, conclusive) = try_modes(local, adapter, config).await;
    tracing::info!(
        device = adapter.name,
        windows = mode.windows,
        remote_invalidation = mode.invalidation_flag.is_some(),
        chosen_addresses = mode.chosen_addresses,
        "the adapter was tried"
    );
    if conclusive {
        known().insert(key, mode);
    }
    mode
}

/// Returns the first mode that works, and whether the result holds for good. A trial that ran into a limit of time or of
/// resources says nothing of the adapter.
async fn try_modes(local: SocketAddr, adapter: &Adapter, config: &Config) -> (Mode, bool) {
    let registrations = Mode { chosen_addresses: true, ..PLAIN };
    let windows = Mode { windows: true, ..registrations };
    let [standard, other] = INVALIDATION_FLAGS;
    let invalidated = Mode { invalidation_flag: Some(standard | other), ..windows };
    let mut candidates = Vec::new();
    if !config.registrations_only && adapter.allocates_windows() {
        candidates.extend([invalidated, windows]);
    }
    candidates.push(registrations);
    let mut conclusive = true;
    for candidate in candidates {
        let tried = tokio::time::timeout(LIMIT, try_mode(local, adapter, config, candidate)).await;
        match tried.unwrap_or(Err(ConnectError::Timeout("the trial"))) {
            Ok(mode) => return (mode, conclusive),
            Err(error) => {
                conclusive &= matches!(error, ConnectError::Protocol(_));
                tracing::debug!(device = adapter.name, ?candidate, %error, "the mode does not work");
            }
        }
    }
    (PLAIN, conclusive)
}

/// Returns an error that says nothing of the adapter's abilities.
fn resources(what: &str) -> ConnectError {
    ConnectError::Io(io::Error::other(what.to_owned()))
}

/// One end of the connection.
struct Side {
    queue_pair: IbverbsQueuePair,
    completions: Vec<Completion>,
}

impl Side {
    /// Makes progress. Returns whether there was any.
    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Result<bool, ConnectError> {
        match self.queue_pair.poll(cx, &mut self.completions) {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(end)) => Err(ConnectError::Protocol(end.to_string())),
            Poll::Pending => Ok(false),
        }
    }

    /// Takes the completion with this number.
    fn take(&mut self, id: WrId) -> Option<Completion> {
        let index = self.completions.iter().position(|completion| completion.id == id)?;
        Some(self.completions.swap_remove(index))
    }

    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), ConnectError> {
        self.queue_pair.post(id, request).map_err(|error| ConnectError::Protocol(error.to_string()))
    }

    fn post_receive(&mut self, id: WrId, domain: &ProtectionDomain) -> Result<(), ConnectError> {
        let buffer = domain.allocate(LEN, 1).map_err(|error| ConnectError::Protocol(error.to_string()))?;
        self.queue_pair
            .post_receive(id, ReceiveMemory::Scatter(vec![buffer]))
            .map_err(|error| ConnectError::Protocol(error.to_string()))?;
        if self.queue_pair.takes_work() {
            return Ok(());
        }
        Err(resources("a Receive cannot be posted"))
    }
}

/// Waits for a completion of the first side, while both make progress.
async fn completion(one: &mut Side, other: &mut Side, id: WrId) -> Result<Completion, ConnectError> {
    poll_fn(|cx| {
        loop {
            if let Some(completion) = one.take(id) {
                return Poll::Ready(Ok(completion));
            }
            match (one.poll(cx), other.poll(cx)) {
                (Err(error), _) | (_, Err(error)) => return Poll::Ready(Err(error)),
                (Ok(false), Ok(false)) => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await
}

fn parameters(domain: &ProtectionDomain, private_data: Bytes) -> ConnectParameters {
    ConnectParameters {
        private_data: private_data.into(),
        ird: 1,
        ord: 1,
        max_send_wr: 8,
        max_recv_wr: 8,
        domain: domain.clone(),
    }
}

/// Connects the adapter with itself. The first end has connected, the second one has accepted.
async fn pair(
    local: SocketAddr,
    adapter: &Adapter,
    config: &Config,
    mode: Mode,
    domain: &ProtectionDomain,
) -> Result<(Side, Side), ConnectError> {
    let mut listener = IbverbsListener::bind(SocketAddr::new(local.ip(), 0), Config::default()).await?;
    let to = listener.local_address()?;
    let token: [u8; 16] = rand::random();
    let accepting = async {
        let endpoint = loop {
            let request = listener.next().await?;
            // Others can see the port; dropping their requests rejects them.
            if request.private_data().starts_with(&token) {
                break request.into_endpoint();
            }
        };
        let setup = Setup { config, adapter, mode, parameters: parameters(domain, Bytes::new()) };
        let mut queue_pair = IbverbsQueuePair::new(endpoint, setup)?;
        queue_pair.agree(Bytes::new(), 1, 1, true);
        let offer = queue_pair.offer(&OwnPrivateData::default());
        queue_pair.accept_later(offer);
        let mut side = Side { queue_pair, completions: Vec::new() };
        side.post_receive(HELLO, domain)?;
        poll_fn(|cx| {
            while side.poll(cx)? {}
            Poll::Ready(Ok::<(), ConnectError>(()))
        })
        .await?;
        Ok::<Side, ConnectError>(side)
    };
    let connecting = async {
        let endpoint = resolved(to, config).await?;
        let parameters = parameters(domain, Bytes::copy_from_slice(&token));
        let queue_pair = establish(endpoint, adapter, mode, config, parameters).await?;
        Ok(Side { queue_pair, completions: Vec::new() })
    };
    tokio::try_join!(connecting, accepting)
}

const HELLO: WrId = WrId(1);
const BIND: WrId = WrId(2);
const CALL: WrId = WrId(3);
const WRITE: WrId = WrId(4);
const REPLY: WrId = WrId(5);
const CLOSE: WrId = WrId(6);

/// Tries a mode. Returns it with the flag that the adapter really sets.
async fn try_mode(
    local: SocketAddr,
    adapter: &Adapter,
    config: &Config,
    mode: Mode,
) -> Result<Mode, ConnectError> {
    let wrong = |what: &str| ConnectError::Protocol(what.to_owned());
    let domain = ProtectionDomain::new(1 << 20);
    let (mut client, mut server) = pair(local, adapter, config, mode, &domain).await?;
    let send = |invalidate| {
        let gather = vec![Bytes::from_static(b"trial")];
        WorkRequest::Send(SendRequest { gather, invalidate, ..SendRequest::default() })
    };
    client.post(CALL, send(None))?;
    completion(&mut server, &mut client, HELLO).await?;

    // Two rounds: in the second one the window is used again, and closed by its owner.
    let mut found = mode;
    for remotely in [mode.invalidation_flag.is_some(), false] {
        let mut buffer = domain.allocate(LEN, 1).map_err(|error| wrong(&error.to_string()))?;
        buffer.fill(0);
        let segment = client
            .queue_pair
            .reserve_window(WindowMemory::Write(buffer))
            .map_err(|error| resources(&error.to_string()))?;
        client.post(BIND, WorkRequest::BindWindow { key: segment.key })?;
        client.post_receive(REPLY, &domain)?;
        completion(&mut client, &mut server, BIND).await?;
        let gather = vec![Bytes::from_static(&[7; LEN])];
        server.post(WRITE, WorkRequest::Write { gather, targets: vec![segment] })?;
        server.post(CALL, send(remotely.then_some(segment.key)))?;
        let reply = completion(&mut client, &mut server, REPLY).await?;
        let Work::Receive { invalidated, .. } = reply.work else { return Err(wrong("no message came")) };
        let memory = if remotely {
            let (_, memory) = invalidated.ok_or_else(|| wrong("the invalidation was not reported"))?;
            let flags = client.queue_pair.last_flags();
            found.invalidation_flag = INVALIDATION_FLAGS.into_iter().find(|flag| flags & flag != 0);
            memory
        } else {
            client.post(CLOSE, WorkRequest::LocalInvalidate { key: segment.key })?;
            match completion(&mut client, &mut server, CLOSE).await?.work {
                Work::LocalInvalidate { memory: Some(memory) } => memory,
                _ => return Err(wrong("the memory did not come back")),
            }
        };
        match memory {
            WindowMemory::Write(buffer) if buffer.iter().all(|&octet| octet == 7) => {}
            _ => return Err(wrong("the octets of a RDMA Write are missing")),
        }
        completion(&mut server, &mut client, CALL).await?;
    }
    Ok(found)
}
