//! An RPC-over-RDMA connection of the server.
//!
//! A single task owns the connection. Calls go to their handlers without a lock held (see [`Service`]), and answers go
//! back to the connection here. A round takes a bounded number of calls, posts their replies together, then lets the
//! queue pair work. Calls in the reverse direction come as orders from [`Backchannel`](crate::Backchannel)s.
//!
//! *Buffers.* A call's message and chunks belong to its handler, a reply's pieces to the connection.
//!
//! *Errors.* The connection ends alone (I6); its handlers go on to the reply cache. Calls whose chunks could not be
//! read are refused by XID on the peer's next connections ([`failed_reads`](crate::failed_reads)).

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rpcrdma_oncrpc::Attached;
use rpcrdma_proto::{Answer, CloseReason, Config, Connection, Event, IncomingCall, Notice, Side};
use rpcrdma_verbs::{
    ConnectError, ConnectParameters, Incoming, PoolExhausted, ProtectionDomain, QueuePair, Reserved,
};
use tokio::time::{Instant, Sleep, sleep_until};

use super::departures::Departures;
use super::link::{Link, Progress};
use super::service::{Answered, Service};
use crate::admission::Place;
use crate::backchannel::Reverse;
use crate::cause::Cause;
use crate::ccp::server::Configurator;
use crate::clients::{End, Visit};
use crate::config::ServerConfig;
use crate::credits::Further;
use crate::handlers::HandlerPanicked;
use crate::registry::{Published, Record, Registered};
use crate::serving::{Phase, Shared, StopSignal, plain};
use crate::totals::Sums;
use crate::turns::{BYTES_PER_TURN, Line};

/// Calls taken in one round before their replies are posted.
const CALLS_PER_ROUND: usize = 16;
/// Rounds in one poll of the task before others get their turn. A single Call needs three: the first takes it, the second
/// sends the answer, and the third finds nothing left. With fewer, each such Call would cost the connection another turn
/// and the runtime another look at its sockets.
const ROUNDS_PER_POLL: usize = 3;

/// An accepted queue pair, with memory for its Receives.
pub(crate) type Accepted = (Box<dyn QueuePair>, Receives);

/// The connection's own share of the memory, and reservations for its first Receives.
pub(crate) struct Receives {
    share: ProtectionDomain,
    first: Vec<Reserved>,
    /// The credits beyond the least, if the memory is apart.
    further: Option<Further>,
}

/// Answers a connection attempt, once memory for the first Call is reserved (rule I3).
pub(crate) async fn set_up(
    incoming: Box<dyn Incoming>,
    peer: Option<SocketAddr>,
    shared: &Shared,
) -> Result<Accepted, ConnectError> {
    let request = incoming.request().await?;
    let (config, protocol) = (&shared.config, &shared.protocol);
    let domain = shared.shares.of(peer.map(|peer| peer.ip()));
    let receives = match (&shared.credits, shared.shares.receives()) {
        (Some(credits), Some(apart)) => {
            all_receives(apart, credits.take(peer, config.further_credits()), config).await?
        }
        _ => first_receives(&domain, protocol).await?,
    };
    let parameters = ConnectParameters {
        private_data: protocol.announcement(),
        // The client pulls Read chunks of the reverse direction (RFC 8167 §5.3) and of replies (RFC 5666 §3.8).
        // Besides, 0 in CONF_RDMA forbids Read chunks altogether (RFC 5666 §6.2).
        ird: config.ird.max(u16::from(
            protocol.takes_reverse_chunks() || protocol.has_read_read() || config.ccp.is_some(),
        )),
        ord: config.ord,
        max_send_wr: config.max_send_wr,
        max_recv_wr: protocol.max_recv_wr(),
        domain,
    };
    Ok((request.accept(parameters).await?, receives))
}

/// Reserves the Receives that are posted at once: waits for the first, and takes all others for which there is memory.
async fn first_receives(domain: &ProtectionDomain, protocol: &Config) -> Result<Receives, ConnectError> {
    let share = domain.share(usize::MAX);
    let (count, len) = protocol.first_receives();
    let mut first = reserve(&share, 1, len).await?;
    first.extend((1..count).map_while(|_| share.reserve(len).ok()));
    Ok(Receives { share, first, further: None })
}

/// Reserves all Receives of a connection. Waits for those of the least credits, which are free unless a program holds
/// messages of connections that have ended. Takes those of `further` credits as far as there is memory, and gives the
/// other credits back. So no attempt holds memory that another one waits for.
async fn all_receives(
    apart: &ProtectionDomain,
    mut further: Further,
    config: &ServerConfig,
) -> Result<Receives, ConnectError> {
    let share = apart.share(usize::MAX);
    let least = config.receive_count(config.credits_at_least());
    let most = config.protocol.largest_receive();
    let mut reserved = reserve(&share, least, most).await?;
    reserved.extend((0..further.count()).map_while(|_| share.reserve(most).ok()));
    further.shrink_to(reserved.len() - least);
    // The share keeps the memory of all Receives with their largest size, and divides it again by the first one.
    let count = reserved.len();
    share.keep(count.saturating_mul(ProtectionDomain::room_for(most)));
    drop(reserved);
    let (posted, len) = config.protocol.first_receives();
    let posted = count.min(usize::try_from(posted).unwrap_or(usize::MAX));
    let first = (0..posted).map_while(|_| share.reserve(len).ok()).collect();
    Ok(Receives { share, first, further: Some(further) })
}

/// Reserves so many Receives together, as soon as there is memory for all.
async fn reserve(share: &ProtectionDomain, count: usize, len: usize) -> Result<Vec<Reserved>, ConnectError> {
    let room = ProtectionDomain::room_for(len).saturating_mul(count);
    let mut line = share.wait();
    loop {
        match (0..count).map(|_| share.reserve(len)).collect() {
            Ok(reserved) => return Ok(reserved),
            Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {
                poll_fn(|cx| line.poll(cx, room)).await;
            }
            Err(error) => return Err(ConnectError::Invalid(error.to_string())),
        }
    }
}

/// Runs a connection to its end. `owner` is the user at the other end, if known.
pub(crate) async fn run(
    (queue_pair, Receives { share, first, further }): Accepted,
    owner: Option<u32>,
    shared: Arc<Shared>,
    (mut place, visit): ((Place, Line), Visit),
    mut stop: StopSignal,
    entry: &Registered,
) {
    let credits =
        further.as_ref().map(|further| shared.config.credits_at_least().saturating_add(further.count()));
    place.0.keep(further);
    let address = shared.shares.of(queue_pair.peer_address().map(|peer| peer.ip()));
    entry.record().holds(address, Some(share.clone()));
    let mut served = Served::new(queue_pair, owner, shared, (place, visit), Arc::clone(entry.record()));
    served.connection.provide(share, first, credits);
    let ended = loop {
        tokio::select! {
            biased;
            phase = stop.changed() => {
                served.phase = phase;
                if phase == Phase::Abort {
                    // Dropping the queue pair ends the connection.
                    served.visit.ends(End::Cut);
                    return;
                }
            }
            ended = poll_fn(|cx| served.poll(cx)) => break ended,
        }
    };
    match ended {
        Ok(reason) => served.end(reason.into()),
        Err(error) => {
            tracing::warn!(peer = served.peer.map(tracing::field::display), %error, "RDMA connection ended");
            served.end(error.into());
        }
    }
}

/// A connection with its calls in progress.
struct Served {
    connection: Connection,
    link: Link,
    peer: Option<SocketAddr>,
    shared: Arc<Shared>,
    ccp: Option<Configurator>,
    service: Service,
    departures: Departures,
    reverse: Reverse,
    timer: Pin<Box<Sleep>>,
    phase: Phase,
    /// Whether the connection was told to close.
    is_closing: bool,
    /// The counters when they were last added to the totals.
    counted: Sums,
    /// The entry in the list of connections.
    record: Arc<Record>,
    /// The connection in the log.
    visit: Visit,
}

impl Served {
    fn new(
        queue_pair: Box<dyn QueuePair>,
        owner: Option<u32>,
        shared: Arc<Shared>,
        ((place, line), visit): ((Place, Line), Visit),
        record: Arc<Record>,
    ) -> Self {
        let peer = queue_pair.peer_address().map(plain);
        let now = Instant::now();
        let mut connection = Connection::new(
            Side::Server,
            Arc::clone(&shared.protocol),
            queue_pair.peer_private_data(),
            queue_pair.capabilities(),
            now.into_std(),
        );
        connection.refuse(shared.failed_reads.of(peer, now));
        let ccp = shared.config.ccp.map(|ccp| {
            Configurator::new(ccp, &connection, &shared.protocol, queue_pair.capabilities())
                .with_gss(shared.programs.gss())
        });
        let reverse = Reverse::new(
            Arc::clone(&shared.backchannels),
            peer,
            shared.config.max_reverse_calls,
            shared.protocol.timeouts.call,
        );
        let attached = Attached::new(reverse.source());
        Self {
            connection,
            link: Link::new(queue_pair),
            peer,
            service: Service::new(Arc::clone(&shared.programs), (peer, owner), attached, (place, Some(line)))
                .counted(shared.meter(), Arc::clone(&record))
                .outlived_by(Arc::clone(&shared.orphans)),
            record,
            departures: Departures::new(shared.programs.window()),
            reverse,
            shared,
            ccp,
            timer: Box::pin(sleep_until(now)),
            phase: Phase::Run,
            is_closing: false,
            counted: Sums::default(),
            visit,
        }
    }

    /// Works until nothing is left to do; ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<CloseReason, HandlerPanicked>> {
        // The clock is read once for all rounds: together they take a few milliseconds at most.
        let now = Instant::now();
        let mut made = 0;
        for _ in 0..ROUNDS_PER_POLL {
            let mut progress = self.reverse.advance(&mut self.connection, now, cx);
            // Before the link advances and posts the disconnect.
            if self.has_drained() {
                self.is_closing = true;
                self.connection.close(now.into_std());
            }
            progress |= self.link.advance(&mut self.connection, now.into_std(), cx) == Progress::Some;
            self.departures.advance(&self.connection);
            for _ in 0..CALLS_PER_ROUND {
                if made >= BYTES_PER_TURN {
                    break;
                }
                let Some(event) = self.connection.poll_event() else { break };
                progress = true;
                match event {
                    Event::Call(call) => match self.start(now, cx, call) {
                        Ok(bytes) => made += bytes,
                        Err(panicked) => return Poll::Ready(Err(panicked)),
                    },
                    Event::Reply { id, result } => self.reverse.reply(id, result),
                    Event::Characteristics(notice) => {
                        tracing::debug!(
                            peer = self.peer.map(tracing::field::display),
                            ?notice,
                            "characteristics"
                        );
                        if let Notice::Peer(told) = &notice {
                            let peer = self.peer.map(tracing::field::display);
                            tracing::info!(target: "rpcrdma::version", peer, %told, "the client announced its characteristics");
                        }
                    }
                    Event::Closed(reason) => return Poll::Ready(Ok(reason)),
                }
            }
            // One at least, however much the calls above have made: otherwise they could keep it back for ever.
            let mut first = true;
            while (std::mem::take(&mut first) || made < BYTES_PER_TURN)
                && let Poll::Ready(Some(answered)) = self.service.poll_next(cx)
            {
                progress = true;
                match answered {
                    Ok(answered) => {
                        made += answered.answer.bytes();
                        self.answer(now, answered);
                    }
                    Err((_, panicked)) => return Poll::Ready(Err(panicked)),
                }
            }
            self.service.take_time();
            if !progress && !self.tick(now, cx) {
                // A Call without an answer ends while the link advances, which is no progress of the link.
                if !self.is_closing && self.has_drained() {
                    continue;
                }
                self.count();
                self.connection.rest();
                self.link.rest();
                self.service.rest();
                return Poll::Pending;
            }
            if made >= BYTES_PER_TURN {
                break;
            }
        }
        // Timers run even if there is always something to do.
        self.tick(now, cx);
        self.count();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether the server stops and the last Call is answered.
    fn has_drained(&self) -> bool {
        self.phase == Phase::Drain && self.service.len() == 0 && self.connection.in_progress() == 0
    }

    fn count(&mut self) {
        let stats = self.connection.stats();
        let now = Sums::of(stats, self.link.queue_pair.counters());
        self.record.publish(Published {
            calls: now.calls.count(),
            in_flight: self.connection.in_progress(),
            received: now.calls.bytes(),
            sent: now.replies.bytes(),
            credits: stats.credits_granted_to_peer,
            version: self.connection.version().map_or(0, |rules| rules.version),
        });
        self.shared.totals.add(now, &mut self.counted);
    }

    /// Sets the timer; returns whether it was due. The timer may ring before the deadline, which saves setting it anew
    /// with every message.
    fn tick(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.connection.poll_timeout().map(Instant::from_std) else { return false };
        if deadline <= now {
            self.connection.handle_timeout(now.into_std());
            return true;
        }
        if self.timer.is_elapsed() || deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx).is_ready()
    }

    /// Takes a Call; returns the length of its reply in bytes if the reply was made at once.
    fn start(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        call: IncomingCall,
    ) -> Result<usize, HandlerPanicked> {
        // The reply to a call of ours in progress may wait for this Call.
        if self.phase != Phase::Run && !self.reverse.in_progress() {
            // The client sends the Call again, to the next server.
            self.answer(now, Answered { token: call.token, answer: Answer::Drop, kept: None });
            return Ok(0);
        }
        if self.visit.version.is_none()
            && let Some(rules) = self.connection.version()
        {
            self.visit.version = Some(rules.name);
            tracing::info!(target: "rpcrdma::version", peer = self.peer.map(tracing::field::display), version = rules.name, "first call");
        }
        self.shared.count_call();
        // Version Two has characteristics instead.
        let has_two = self.connection.version().is_some_and(|rules| rules.two.is_some());
        let answered = match self.ccp.as_ref().filter(|ccp| !has_two && ccp.takes(&call.message)) {
            Some(ccp) => self
                .service
                .start_by(now, cx, call, None, |peer, message| ccp.dispatch(peer, message, now.into_std()))?,
            None => self.service.start(now, cx, call, Some(self.departures.window()))?,
        };
        let Some(answered) = answered else { return Ok(0) };
        let bytes = answered.answer.bytes();
        self.answer(now, answered);
        Ok(bytes)
    }

    /// Applies what CONF_RDMA has agreed, before the answer leaves that tells the client.
    fn agree(&mut self) {
        if let Some(agreement) = self.ccp.as_ref().and_then(Configurator::take_agreed)
            && let Ok(()) = self.connection.agree(agreement)
        {
            self.shared.count_agreed();
            tracing::info!(target: "rpcrdma::ccp", peer = self.peer.map(tracing::field::display), %agreement, "agreed by CONF_RDMA");
        }
    }

    fn answer(&mut self, now: Instant, Answered { token, answer, kept }: Answered) {
        self.agree();
        self.connection.reply(now.into_std(), token, answer);
        if let Some(key) = kept {
            self.departures.add(token, key);
        }
    }

    fn end(&mut self, reason: Cause) {
        self.count();
        match self.phase {
            Phase::Run => self.visit.ends(End::because(&reason)),
            Phase::Drain | Phase::Abort => self.visit.ends(End::Stopped),
        }
        let Sums { calls, replies, .. } = self.counted;
        tracing::info!(target: "rpcrdma::forms", peer = self.peer.map(tracing::field::display), %calls, %replies, "RDMA connection ended");
        self.reverse.end(reason);
    }
}

/// Also a connection that is ended from outside leaves its counters, and the calls that its client must not repeat.
impl Drop for Served {
    fn drop(&mut self) {
        if self.phase != Phase::Run {
            self.service.abandon();
        }
        self.count();
        self.shared.failed_reads.put(self.peer, self.connection.failed_reads(), Instant::now());
    }
}
