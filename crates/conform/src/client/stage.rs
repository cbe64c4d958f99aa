//! The basis of all rows: the client's connections, its calls, and its next action.
//!
//! *Credits.* Replies grant one credit, except in the rows about credits. So the fate of every call is visible. A
//! second call on the same connection means that the first is completed, or that the client exceeds the grant. In every
//! row calls in flight are counted against the grant, and their length is compared with the announced size.
//!
//! *Buffers.* Each connection has its own domain. Chunks that the client offers are only named here.
//!
//! *Errors.* Every fault of the client is a [`Wrong`] that ends the row.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::two::transmission::{Location, Operation, ResponseDirection, TransmitRequest};
use rpcrdma_proto::wire::two::{self, Exchange};
use rpcrdma_proto::wire::{Body, ChunkLists, Header, ReadSegment};
use rpcrdma_proto::{Limits, PrivateData};
use rpcrdma_verbs::{Listener, OwnPrivateData, QueuePair};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::Host;
use super::serve::{Reply, reply};
use super::wire::Wire;
use crate::endpoint::{Arrived, Endpoint, Next, parameters};
use crate::report::{Wrong, differs, fail};

/// Maximum number of operations of the client that are kept: those of the last connections.
const MOST_OPERATIONS: usize = 1024;
/// Granted credits, except in rows about credits.
pub(super) const ONE: u32 = 1;
/// A larger grant, and the Receives that back it.
pub(super) const GRANT: u32 = 32;
const RECEIVES: usize = 64;
/// Length of the tester's Receives, in bytes. The tester announces less, and reports a client that exceeds the
/// announced size.
const RECEIVE_LEN: usize = 8192;
/// The XID before the first operation of the tester. Clients choose theirs at random.
const FIRST_OPERATION: u32 = 0x5eed_0000;
/// Announced size in both directions, in bytes.
pub(super) const ANNOUNCED: usize = 4096;
/// Maximum number of connections that wait to be handled.
const BACKLOG: usize = 64;
/// Maximum number of other calls that are served while the fate of one is awaited.
const PATIENCE: usize = 16;

/// Response to the next connections.
#[derive(Clone)]
pub(super) enum Welcome {
    Accept(OwnPrivateData),
    Reject,
}

/// A call of the client.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Connection on which the call came.
    pub(super) connection: u64,
    pub(super) xid: u32,
    pub(super) lists: ChunkLists,
    pub(super) program: u32,
    pub(super) procedure: u32,
    /// The RPC message, without the items in chunks.
    pub(super) message: Bytes,
    /// Directions for the items of the reply, and Receives for it, of a call in a transmission group (rtrext-02 §9.2).
    pub(super) directions: Vec<ResponseDirection>,
    pub(super) buffers: u32,
    /// The handle that the reply may invalidate, or 0 (version-two-03 §6.2.3).
    pub(super) invalidate: u32,
    /// Length of the Send, in bytes.
    pub(super) len: usize,
    /// Whether the version of the connection was settled before: it is the first answer that settles Version Two.
    pub(super) settled: bool,
}

/// An action of the client.
#[derive(Debug)]
pub(super) enum Event {
    Connected,
    Call(Call),
    /// A message other than a call.
    Other(Bytes),
    Ended(u64),
    Nothing,
}

/// A connection of the client.
struct Connection {
    number: u64,
    endpoint: Endpoint,
    /// Maximum length of a Send, in bytes, by the announcements on this connection (RFC 8166 §3.3.3, RFC 8797 §5.1).
    threshold: usize,
    /// XIDs of calls without an answer.
    in_flight: Vec<u32>,
    /// The last grant.
    grant: u32,
    /// The largest grant that the client may still use: a smaller one may not have arrived when the client made its
    /// calls.
    ceiling: u32,
    /// Answered calls.
    answers: u32,
    /// Messages of the client, and the number up to which it may send them, where credits count messages
    /// (version-two-07 §4.2.1).
    received: u32,
    limit: u32,
    /// Whether the tester has announced its properties.
    announced: bool,
    /// The threshold of calls after the next reply: an announcement is on its way.
    next_threshold: Option<usize>,
}

impl Connection {
    fn new(number: u64, queue_pair: Box<dyn QueuePair>, announced: &[u8]) -> Self {
        Self {
            number,
            endpoint: Endpoint::new(queue_pair, RECEIVES, RECEIVE_LEN),
            threshold: PrivateData::find(announced).unwrap_or_default().receive_size,
            in_flight: Vec::new(),
            // RFC 8166 §3.3.3: the client may assume no more.
            grant: ONE,
            ceiling: ONE,
            answers: 0,
            received: 0,
            limit: ONE,
            announced: false,
            next_threshold: None,
        }
    }

    /// Records that an answer to this call leaves, with this grant. A grant of 0 does not change the grant.
    fn answered(&mut self, xid: u32, grant: u32) {
        self.in_flight.retain(|waiting| *waiting != xid);
        self.answers += 1;
        if let Some(threshold) = self.next_threshold.take() {
            self.threshold = threshold;
        }
        if grant > 0 {
            self.grant = grant;
            self.ceiling = self.ceiling.max(grant);
        }
    }

    /// Checks that a call respects the grant (RFC 8166 §3.3.1), and records it.
    fn called(&mut self, xid: u32) -> Result<(), Wrong> {
        let before = self.in_flight.len();
        self.in_flight.push(xid);
        match usize::try_from(self.ceiling).is_ok_and(|ceiling| before >= ceiling) {
            true => Err(fail(format!(
                "another call with {before} in flight, {} granted: over the grant, or the client considers a call completed",
                self.ceiling
            ))),
            false => Ok(()),
        }
    }
}

/// The client's connections and calls; see the module.
pub(super) struct Stage {
    pub(super) limit: Duration,
    pub(super) silence: Duration,
    /// The version that the tester speaks.
    pub(super) wire: Wire,
    /// Whether the tester answers the properties of a client by its own.
    pub(super) announces: bool,
    /// Operations of the client that are no calls, and their connections.
    pub(super) operations: Vec<(u64, Header)>,
    /// Kinds of calls for which an earlier row has waited in vain.
    pub(super) absent: Vec<&'static str>,
    next_operation: u32,
    welcome: Arc<Mutex<Welcome>>,
    arriving: mpsc::Receiver<(Box<dyn QueuePair>, Bytes)>,
    accepting: JoinHandle<()>,
    connections: Vec<Connection>,
    next_connection: u64,
    /// Calls that no row has answered.
    calls: VecDeque<Call>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Returns the tester's private data.
pub(super) fn announcement() -> OwnPrivateData {
    let says = |remote_invalidation| {
        PrivateData { remote_invalidation, send_size: ANNOUNCED, receive_size: ANNOUNCED }.encode()
    };
    OwnPrivateData::by_invalidation(says(true), says(false))
}

async fn accept(
    mut listener: Box<dyn Listener>,
    welcome: Arc<Mutex<Welcome>>,
    out: mpsc::Sender<(Box<dyn QueuePair>, Bytes)>,
) {
    loop {
        let Ok(incoming) = listener.accept().await else {
            // An attempt has failed. A listener that is gone fails again, so the loop waits.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (welcome, out) = (welcome.clone(), out.clone());
        tokio::spawn(async move {
            let Ok(request) = incoming.request().await else { return };
            let how = welcome.lock().await.clone();
            match how {
                Welcome::Accept(private_data) => {
                    if let Ok(queue_pair) = request.accept(parameters(private_data.clone())).await {
                        let private_data = private_data.stated_by(queue_pair.capabilities()).clone();
                        // The tester may have ended.
                        let _ = out.send((queue_pair, private_data)).await;
                    }
                }
                Welcome::Reject => {
                    let _ = request.reject(Bytes::new()).await;
                }
            }
        });
    }
}

impl Stage {
    pub(super) fn new(host: Host) -> Self {
        let Host { listener, profile, limit, silence } = host;
        let welcome = Arc::new(Mutex::new(Welcome::Accept(announcement())));
        let (sender, arriving) = mpsc::channel(BACKLOG);
        let accepting = tokio::spawn(accept(listener, welcome.clone(), sender));
        Self {
            limit,
            silence,
            wire: Wire::new(profile),
            announces: true,
            operations: Vec::new(),
            absent: Vec::new(),
            next_operation: FIRST_OPERATION,
            welcome,
            arriving,
            accepting,
            connections: Vec::new(),
            next_connection: 0,
            calls: VecDeque::new(),
        }
    }

    /// Sets the response to connections from now on.
    pub(super) async fn welcome(&mut self, welcome: Welcome) {
        *self.welcome.lock().await = welcome;
    }

    fn connection(&mut self, connection: u64) -> Result<&mut Connection, Wrong> {
        self.connections
            .iter_mut()
            .find(|there| there.number == connection)
            .ok_or_else(|| fail("the client has closed the connection"))
    }

    /// Returns the connection of this number, if it still exists.
    pub(super) fn endpoint(&mut self, connection: u64) -> Result<&mut Endpoint, Wrong> {
        self.connection(connection).map(|there| &mut there.endpoint)
    }

    /// Returns the last value that the client announced under this number at the start of a connection.
    pub(super) fn told(&self, connection: u64, id: u32) -> Option<Bytes> {
        let of = |(at, header): &(u64, Header)| match &header.body {
            Body::Two(two::Body::Exchange(Exchange::Initial { start, .. })) if *at == connection => {
                start.iter().find(|value| value.id == id).map(|value| value.data.clone())
            }
            _ => None,
        };
        self.operations.iter().rev().find_map(of)
    }

    /// Removes a connection, to be ended.
    pub(super) fn take(&mut self, connection: u64) -> Option<Endpoint> {
        self.calls.retain(|call| call.connection != connection);
        let at = self.connections.iter().position(|there| there.number == connection)?;
        Some(self.connections.swap_remove(at).endpoint)
    }

    /// Ends all connections, so that the next call comes on a new one.
    pub(super) async fn clear(&mut self) {
        for connection in std::mem::take(&mut self.connections) {
            connection.endpoint.close().await;
        }
        self.calls.clear();
        // More connections may be on their way.
        while let Ok((queue_pair, _)) = self.arriving.try_recv() {
            Endpoint::new(queue_pair, 0, 0).close().await;
        }
    }

    pub(super) async fn close(&mut self) {
        self.clear().await;
    }

    /// Waits for the next action of the client, at most for `limit`.
    pub(super) async fn event(&mut self, limit: Duration) -> Result<Event, Wrong> {
        let deadline = Instant::now() + limit;
        if let Some(call) = self.calls.pop_front() {
            return Ok(Event::Call(call));
        }
        loop {
            let next = poll_fn(|cx| {
                if let Poll::Ready(Some((queue_pair, announced))) = self.arriving.poll_recv(cx) {
                    self.next_connection += 1;
                    self.connections.push(Connection::new(self.next_connection, queue_pair, &announced));
                    return Poll::Ready((self.next_connection, None));
                }
                for Connection { number, endpoint, .. } in &mut self.connections {
                    if let Poll::Ready(next) = endpoint.poll_next(cx) {
                        return Poll::Ready((*number, Some(next)));
                    }
                }
                Poll::Pending
            });
            let Ok((connection, next)) = timeout_at(deadline, next).await else {
                // A client that was watched for this long has received the last grant.
                if limit >= self.silence {
                    self.connections.iter_mut().for_each(|there| there.ceiling = there.grant);
                }
                return Ok(Event::Nothing);
            };
            let event = match next {
                None => Some(Event::Connected),
                Some(Next::Message(arrived)) => self.message(connection, arrived).await?,
                Some(Next::Closed(_) | Next::Silence) => {
                    self.take(connection);
                    Some(Event::Ended(connection))
                }
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Decodes a message; a call has to obey every rule for calls. Returns `None` for an operation that is no call.
    async fn message(&mut self, connection: u64, arrived: Arrived) -> Result<Option<Event>, Wrong> {
        let there = self.connection(connection)?;
        there.received += 1;
        let (threshold, received, limit) = (there.threshold, there.received, there.limit);
        let settled = there.answers > 0;
        if arrived.bytes.len() > threshold {
            let len = arrived.bytes.len();
            return Err(fail(format!("a Send of {len} bytes, the inline threshold is {threshold}")));
        }
        let (header, len) = match self.wire.codec.decode(&arrived.bytes, &Limits::default()) {
            Ok(decoded) => decoded,
            Err(error) => {
                return Err(fail(format!("the client sends a message that does not decode: {error}")));
            }
        };
        let grants = matches!(header.body, Body::Two(two::Body::Grant));
        // A GRANT may go one beyond (version-two-07 §4.2.1.1).
        if self.wire.counts_messages() && !grants && received > limit {
            return Err(fail(format!("message {received} of the client, the limit is {limit}")));
        }
        let invalidate = header.invalidate;
        let behind = arrived.bytes.slice(len.min(arrived.bytes.len())..);
        let (mut directions, mut buffers) = (Vec::new(), 0);
        let (lists, inline) = match header.body {
            Body::Message(lists) => (lists, Some(behind)),
            Body::NoMessage(lists) => (lists, None),
            Body::Padded { .. } => return Err(fail("the client sends an RDMA_MSGP")),
            Body::Done => return Err(fail("the client sends an RDMA_DONE")),
            Body::Error(_) => return Ok(Some(Event::Other(arrived.bytes))),
            Body::Two(two::Body::Transmission(Operation::Request(request))) if self.wire.groups => {
                let (lists, payload) = request_of(&request, &behind)?;
                directions = request.response.into_iter().flat_map(|set| set.directions).collect();
                buffers = request.response_buffers;
                (lists, Some(payload))
            }
            Body::Two(_) => {
                self.operation(connection, header).await?;
                return Ok(None);
            }
        };
        let other = |bytes| Ok(Some(Event::Other(bytes)));
        // RFC 4506 §4.19: 2 occurred only in a proposal.
        if lists.has_padding() {
            return Err(fail("a Read segment with discriminator 2"));
        }
        if let Some(position) = lists.pad_chunk() {
            return Err(fail(format!("a Read chunk at Position {position}: no item starts there")));
        }
        if lists.has_position_zero() != inline.is_none() {
            return match inline {
                // A reply in a Reply chunk answers a call of the tester, which makes none.
                None => Err(fail("an RDMA_NOMSG without a Position-Zero chunk")),
                Some(_) => Err(fail("an RDMA_MSG with a Position-Zero chunk")),
            };
        }
        let payload = match inline {
            Some(inline) => inline,
            None => {
                let zero = |entry: &&ReadSegment| entry.position == 0;
                let sources: Vec<_> = lists.read.iter().filter(zero).map(|entry| entry.segment).collect();
                let limit = self.limit;
                self.endpoint(connection)?
                    .read(&sources, limit)
                    .await
                    .ok_or_else(|| fail("the Position-Zero chunk of a call cannot be read"))?
            }
        };
        let words: Vec<u32> = payload
            .chunks_exact(4)
            .take(6)
            .filter_map(|word| word.try_into().ok().map(u32::from_be_bytes))
            .collect();
        let [xid, kind, rpc, program, _, procedure] = words[..] else {
            // A reply may be shorter.
            return match words.get(1) {
                Some(1) => other(arrived.bytes),
                _ => Err(fail("the client sends an RPC message that is cut off")),
            };
        };
        if kind == 1 {
            return other(arrived.bytes);
        }
        if (kind, rpc) != (0, 2) {
            return Err(fail(format!("the client sends RPC message type {kind}, version {rpc}")));
        }
        // RFC 8166 §4.2.1
        if xid != header.xid {
            return Err(fail(format!("rdma_xid {:#010x} in front of XID {xid:#010x}", header.xid)));
        }
        self.connection(connection)?.called(xid)?;
        let len = arrived.bytes.len();
        let settled = settled || self.wire.profile().is_none();
        Ok(Some(Event::Call(Call {
            connection,
            xid,
            lists,
            program,
            procedure,
            message: payload,
            directions,
            buffers,
            invalidate,
            len,
            settled,
        })))
    }

    /// Waits for the next call that is `wanted`; others are answered.
    pub(super) async fn call_where(
        &mut self,
        mut wanted: impl FnMut(&Call) -> bool,
        limit: Duration,
    ) -> Result<Option<Call>, Wrong> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.event(deadline - Instant::now()).await? {
                Event::Call(call) if wanted(&call) => return Ok(Some(call)),
                Event::Call(call) => self.serve(&call).await,
                Event::Other(_) | Event::Connected | Event::Ended(_) => {}
                Event::Nothing => break,
            }
        }
        Ok(None)
    }

    /// Waits for the next call of any kind.
    pub(super) async fn call(&mut self) -> Result<Call, Wrong> {
        let limit = self.limit;
        let call = self.call_where(|_| true, limit).await?;
        call.ok_or_else(|| fail(format!("the client makes no call within {limit:?}")))
    }

    /// Answers a call as a correct server does. A call whose connection has ended needs no answer.
    pub(super) async fn serve(&mut self, call: &Call) {
        self.serve_granting(call, ONE).await;
    }

    /// Answers a call as a correct server does, with this grant.
    pub(super) async fn serve_granting(&mut self, call: &Call, grant: u32) {
        let reply = reply(call);
        self.send_reply(call, reply, grant).await;
    }

    /// Performs the Writes of a reply, then sends it.
    pub(super) async fn send_reply(&mut self, call: &Call, reply: Reply, grant: u32) {
        let Ok(connection) = self.connection(call.connection) else { return };
        connection.answered(call.xid, grant);
        // The connection exists.
        let _ = self.post_reply(call, &reply, grant).await;
    }

    /// Performs the Writes of a reply that ends no call, then sends it.
    pub(super) async fn post_reply(&mut self, call: &Call, reply: &Reply, grant: u32) -> Result<(), Wrong> {
        let bytes = self.encode(call, reply, grant)?;
        let endpoint = self.endpoint(call.connection)?;
        for (data, targets) in &reply.writes {
            endpoint.write(data.clone(), targets);
        }
        endpoint.send(bytes);
        endpoint.push().await;
        Ok(())
    }

    /// Encodes a reply with a grant.
    pub(super) fn encode(&mut self, call: &Call, reply: &Reply, grant: u32) -> Result<Bytes, Wrong> {
        let credit = self.credit(call.connection, grant)?;
        Ok(self.wire.encode(call.xid, credit, reply.body(), &reply.payload))
    }

    /// Returns the credit word for a grant. Where credits count messages, the client may send so many more.
    pub(super) fn credit(&mut self, connection: u64, grant: u32) -> Result<u32, Wrong> {
        let counts = self.wire.counts_messages();
        let there = self.connection(connection)?;
        if !counts {
            return Ok(grant);
        }
        there.limit = there.limit.max(there.received.saturating_add(grant));
        Ok(there.limit)
    }

    /// Returns whether the tester has announced its properties on a connection.
    pub(super) fn has_announced(&mut self, connection: u64) -> bool {
        self.connection(connection).is_ok_and(|there| there.announced)
    }

    /// Returns the XID of the tester's next operation.
    pub(super) fn operation_xid(&mut self) -> u32 {
        self.next_operation += 1;
        self.next_operation
    }

    /// Records an operation of the client. Its first properties are answered by those of the tester, and its message
    /// gets its credit back.
    async fn operation(&mut self, connection: u64, header: Header) -> Result<(), Wrong> {
        let begins = matches!(&header.body, Body::Two(two::Body::Exchange(Exchange::Initial { .. })));
        if self.operations.len() >= MOST_OPERATIONS {
            self.operations.remove(0);
        }
        self.operations.push((connection, header));
        let waits = !self.connection(connection)?.in_flight.is_empty();
        if begins && self.announces && !self.connection(connection)?.announced {
            self.announce(connection).await
        } else if self.wire.counts_messages() && !waits {
            let credit = self.credit(connection, ONE)?;
            let grant = self.wire.encode(0, credit, Body::Two(two::Body::Grant), &[]);
            self.post(connection, grant).await
        } else {
            Ok(())
        }
    }

    /// Announces the properties of the tester.
    async fn announce(&mut self, connection: u64) -> Result<(), Wrong> {
        let xid = self.operation_xid();
        let waits = u32::from(self.connection(connection)?.in_flight.is_empty());
        let credit = self.credit(connection, waits)?;
        let body = Body::Two(two::Body::Exchange(self.wire.properties()));
        let bytes = self.wire.encode_operation(xid, credit.max(ONE), body);
        let next = self.wire.receive_size;
        let there = self.connection(connection)?;
        there.announced = true;
        there.next_threshold = Some(next);
        self.post(connection, bytes).await
    }

    /// Sends bytes on a connection.
    async fn post(&mut self, connection: u64, bytes: Bytes) -> Result<(), Wrong> {
        let endpoint = self.endpoint(connection)?;
        endpoint.send(bytes);
        endpoint.push().await;
        Ok(())
    }

    /// Sends bytes that may end a call.
    pub(super) async fn end(&mut self, call: &Call, bytes: Bytes) -> Result<(), Wrong> {
        self.connection(call.connection)?.answered(call.xid, ONE);
        self.send(call, bytes).await
    }

    /// Records that a call gets an answer that the row posted itself.
    pub(super) fn answered(&mut self, call: &Call) -> Result<(), Wrong> {
        self.connection(call.connection)?.answered(call.xid, ONE);
        Ok(())
    }

    /// Sends bytes that end no call, on the connection of a call.
    pub(super) async fn send(&mut self, call: &Call, bytes: Bytes) -> Result<(), Wrong> {
        self.post(call.connection, bytes).await
    }

    /// Keeps a call for the next request for one.
    pub(super) fn put_back(&mut self, call: Call) {
        self.calls.push_front(call);
    }

    /// Checks that the client survives `last` by waiting for another call, and describes the connection of that call.
    ///
    /// On the same connection, with one credit granted, another call shows that `last` has ended. On a new connection
    /// the repeated call is searched among others.
    pub(super) async fn goes_on(&mut self, last: &Call) -> Result<String, Wrong> {
        let limit = self.limit;
        let seen = self.goes_on_within(last, limit).await?;
        seen.ok_or_else(|| fail(format!("no call within {limit:?}")))
    }

    /// Checks that an answer has ended `last`: another call follows on the same connection, which nothing has ended.
    pub(super) async fn ended(&mut self, last: &Call) -> Result<String, Wrong> {
        let text = self.goes_on(last).await?;
        match self.calls.front().is_some_and(|call| call.connection == last.connection) {
            true => Ok(text),
            false => Err(fail(format!("the client leaves the connection: {text}"))),
        }
    }

    /// Checks that the client survives `last`, and makes another call on a new connection, because the old one ends.
    pub(super) async fn goes_on_elsewhere(&mut self, last: &Call, what: &str) -> Result<String, Wrong> {
        let text = self.goes_on(last).await?;
        match self.calls.front().is_some_and(|call| call.connection == last.connection) {
            true => Err(fail(format!("{what} was not refused: {text}"))),
            false => Ok(text),
        }
    }

    /// Checks that the client survives `last` within a time; `None` if there is no call.
    pub(super) async fn goes_on_within(
        &mut self,
        last: &Call,
        limit: Duration,
    ) -> Result<Option<String>, Wrong> {
        let deadline = Instant::now() + limit;
        let mut others: Option<Call> = None;
        let mut served = 0;
        while served < PATIENCE {
            let left = match &others {
                None => deadline.saturating_duration_since(Instant::now()),
                Some(_) => self.silence,
            };
            let call = match self.event(left).await? {
                Event::Call(call) => call,
                Event::Other(bytes) => return Err(fail(unasked(&bytes))),
                Event::Connected | Event::Ended(_) => continue,
                Event::Nothing if others.is_some() => break,
                Event::Nothing => return Ok(None),
            };
            let text = match (call.connection == last.connection, call.xid == last.xid) {
                // RFC 8166 does not mention calls that are repeated while the connection lives.
                (true, true) => return Err(differs("the call is sent again on the same connection")),
                (true, false) => "the next call on the same connection",
                (false, true) => "the call again on a new connection",
                (false, false) => {
                    if let Some(other) = others.replace(call) {
                        self.serve(&other).await;
                        served += 1;
                    }
                    continue;
                }
            };
            if let Some(other) = others {
                self.serve(&other).await;
            }
            self.put_back(call);
            return Ok(Some(text.into()));
        }
        Ok(others.map(|call| {
            self.put_back(call);
            "other calls on a new connection".into()
        }))
    }
}

/// Returns the Read list and the Payload stream of a request in one transmission, the only form that the tester takes.
fn request_of(request: &TransmitRequest, behind: &Bytes) -> Result<(ChunkLists, Bytes), Wrong> {
    let TransmitRequest { placed, count, payload_len, .. } = request;
    // rtrext-02 §8.4: the tester announces no limit, so it is 1.
    if *count != 1 {
        return Err(fail(format!("a request in {count} transmissions, the limit is 1")));
    }
    let len = usize::try_from(*payload_len).unwrap_or(usize::MAX);
    if len > behind.len() {
        return Err(fail(format!("a Payload stream of {len} bytes in a Send with {}", behind.len())));
    }
    let mut lists = ChunkLists::default();
    for item in placed {
        let Location::Explicit(segments) = &item.location else {
            return Err(fail("an item in a target segment, of which the tester has none"));
        };
        lists.read.extend(segments.iter().map(|segment| ReadSegment::new(item.displacement, *segment)));
    }
    Ok((lists, behind.slice(..len)))
}

/// Describes a message of the client that is no call.
pub(super) fn unasked(bytes: &Bytes) -> String {
    match bytes.get(12..16) {
        Some([0, 0, 0, 4]) => "the client sends an RDMA_ERROR".into(),
        _ => "the client sends a reply to nothing".into(),
    }
}
