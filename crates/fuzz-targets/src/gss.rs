//! RPCSEC_GSS (RFC 2203), with the mechanism of its tests: a server of contexts, and a client that gets replies.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_oncrpc::gss::testing::TestMechanism;
use rpcrdma_oncrpc::gss::{
    Acceptor, Creating, CreationReply, GssClient, GssCredential, GssLimits, GssProcedure, GssServer,
    Incoming, InitArguments, InitCall, InitResults, OpenError, Opened, Progress, Received, Refusal,
    SecurityContext, Service, TOKEN_MAX,
};
use rpcrdma_oncrpc::{AcceptStat, AuthStat, CallHeader, OpaqueAuth, Origin, ReplyHeader, auth::flavor};
use rpcrdma_xdr::{Decoder, Encoder, Stream, encode};

use crate::{split_piece, survives};

const SERVER: &str = "nfs@server";
const USERS: [&str; 4] = ["a", "b", "c", "user@TEST"];
const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];
/// Most contexts that a history creates at a time, and most calls that it keeps. Its input chooses among them.
const KEPT: usize = 16;
fn limits() -> GssLimits {
    let mut limits = GssLimits::default();
    limits.contexts = 6;
    limits.creating = 8;
    limits.creation = Duration::from_secs(10);
    limits.idle = Duration::from_secs(100);
    limits
}

/// Decisions, as bytes. Each one is 0 at the end.
struct Decisions<'a>(&'a [u8]);

impl<'a> Decisions<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// Chooses one of so many, which are not none.
    fn index(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    fn piece(&mut self) -> &'a [u8] {
        split_piece(&mut self.0).unwrap_or_default()
    }

    fn origin(&mut self) -> Option<Origin> {
        Some(Origin::of(Ipv4Addr::new(192, 0, 2, self.byte() % 8).into()))
    }

    /// Changes one byte of many, or none.
    fn change(&mut self, bytes: &Bytes) -> Bytes {
        let mut changed = bytes.to_vec();
        let place = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let change = self.byte();
        let length = changed.len();
        if length > 0 {
            changed[place % length] ^= change;
        }
        changed.into()
    }
}

fn header(procedure: u32) -> CallHeader {
    CallHeader {
        xid: 7,
        program: 100_003,
        version: 3,
        procedure,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    }
}

fn mechanism(name: &str, rounds: u8) -> TestMechanism {
    TestMechanism { rounds, ..TestMechanism::new(name) }
}

/// Returns an item of opaque data.
fn opaque(data: &[u8]) -> Stream {
    let mut encoder = Encoder::new();
    encoder.opaque(data, data.len()).expect("no limit");
    encoder.finish()
}

/// Returns the bytes that are left, which may end within an item.
fn rest(data: &Decoder) -> Bytes {
    data.peek(data.remaining()).concat().into()
}

/// A call as it travels.
#[derive(Clone)]
struct Call {
    header: CallHeader,
    arguments: Bytes,
    service: Service,
    /// Whether its number was used up, as far as the history knows.
    used: bool,
}

/// A server of contexts, its clients, and what it did.
struct History {
    server: Arc<GssServer>,
    mechanism: TestMechanism,
    rounds: u8,
    now: Instant,
    creating: Vec<(Creating, InitCall, &'static str)>,
    clients: Vec<(GssClient, &'static str)>,
    calls: Vec<Call>,
    /// Handles and numbers of the requests that the server took.
    taken: BTreeSet<(Bytes, u32)>,
    /// Handles of contexts that the server does not have any more.
    gone: BTreeSet<Bytes>,
}

impl History {
    fn new(rounds: u8) -> Self {
        let lifetime = Some(Duration::from_secs(1000));
        let mechanism = TestMechanism { lifetime, ..mechanism(SERVER, rounds) };
        let server = Arc::new(GssServer::new(Arc::new(mechanism.clone()), limits(), 0x5eed));
        Self {
            server,
            mechanism,
            rounds,
            now: Instant::now(),
            creating: Vec::new(),
            clients: Vec::new(),
            calls: Vec::new(),
            taken: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    fn credential(call: &CallHeader) -> GssCredential {
        GssCredential::read(&call.credential.body).expect("a credential that the server took")
    }

    /// Gives a call to the server.
    fn receive(&self, from: Option<Origin>, call: &CallHeader) -> Result<Received, Refusal> {
        let received = self.server.receive(from, call, self.now);
        if let Err(Refusal::Auth(stat)) = &received
            && GssCredential::read(&call.credential.body).is_ok_and(|credential| {
                matches!(credential.procedure, GssProcedure::Init | GssProcedure::ContinueInit)
            })
        {
            // RFC 2203 §5.2.3.2.
            assert!(!matches!(stat, AuthStat::GssCredProblem | AuthStat::GssCtxProblem), "{stat:?}");
        }
        received
    }

    /// Makes a call that creates a context.
    fn create(&self, from: Option<Origin>, call: &InitCall) -> Option<CreationReply> {
        let header = CallHeader { credential: call.credential.clone(), ..header(0) };
        let Ok(Received::Create(creation)) = self.receive(from, &header) else { return None };
        let arguments = encode(&InitArguments { token: call.token.clone() }).expect("a short token");
        let reply = creation.run(Decoder::new(arguments.flatten().0)).expect("a token");
        let results = survives::<InitResults>(&reply.stream().expect("a short token").flatten().0);
        assert_eq!(results.as_ref(), Some(&reply.results));
        assert_eq!(reply.verifier != OpaqueAuth::none(), reply.created.is_some(), "RFC 2203 §5.2.3.1");
        if reply.failure.is_some() {
            assert!(reply.results.handle.is_empty() && reply.results.token.is_empty());
        }
        Some(reply)
    }

    /// Begins a context.
    fn begin(&mut self, decisions: &mut Decisions<'_>) {
        let user = USERS[decisions.index(USERS.len())];
        let (creating, call) = Creating::begin(&mechanism(user, self.rounds), SERVER).expect("a first token");
        self.creating.truncate(KEPT - 1);
        self.creating.push((creating, call, user));
    }

    /// Makes the next call of a context that is being created, changed or not.
    fn go_on(&mut self, changes: bool, decisions: &mut Decisions<'_>) {
        if self.creating.is_empty() {
            return;
        }
        let (creating, call, user) = self.creating.swap_remove(decisions.index(self.creating.len()));
        let from = decisions.origin();
        if changes {
            let credential =
                OpaqueAuth { flavor: flavor::RPCSEC_GSS, body: decisions.change(&call.credential.body) };
            let changed = InitCall { credential, token: decisions.change(&call.token) };
            let _ = self.create(from, &changed);
            self.creating.push((creating, call, user));
            return;
        }
        let Some(reply) = self.create(from, &call) else { return };
        if let Some(created) = &reply.created {
            assert_eq!(created.name, user);
        }
        match creating.reply(&reply.verifier, reply.results, self.now) {
            Ok(Progress::Call(creating, call)) => self.creating.push((creating, call, user)),
            Ok(Progress::Created(client)) => {
                self.clients.truncate(KEPT - 1);
                self.clients.push((client, user));
            }
            Err(_) => assert!(reply.failure.is_some(), "both sides keep to the protocol"),
        }
    }

    /// Makes a request, and leaves it to others to deliver it. Returns its client.
    fn call(&mut self, decisions: &mut Decisions<'_>) -> Option<usize> {
        let count = self.clients.len();
        let client = decisions.index(count.max(1));
        let (context, _) = self.clients.get(client)?;
        let service = SERVICES[decisions.index(SERVICES.len())];
        let mut header = header(1);
        let sealed = context.seal(service, &mut header, opaque(decisions.piece())).ok()?;
        self.calls.truncate(KEPT - 1);
        let arguments = sealed.arguments.flatten().0;
        self.calls.push(Call { header, arguments, service, used: false });
        Some(client)
    }

    /// Checks that a request is taken once, and in no context that has ended.
    fn took(&mut self, header: &CallHeader, opened: &Opened) {
        let GssCredential { procedure, sequence, handle, .. } = Self::credential(header);
        assert!(!self.gone.contains(&handle), "the context has ended");
        assert!(self.taken.insert((handle.clone(), sequence)), "{sequence} was taken before");
        assert_eq!(opened.destroyed, procedure == GssProcedure::Destroy);
        if opened.destroyed {
            self.gone.insert(handle);
        }
    }

    /// Records that a context which was there once is not there.
    fn missed(&mut self, header: &CallHeader) {
        self.gone.insert(Self::credential(header).handle);
    }

    /// Makes a request and delivers it at once. Its reply has to come back.
    fn exchange(&mut self, decisions: &mut Decisions<'_>) {
        let Some(client) = self.call(decisions) else { return };
        let Some(Call { header, arguments, service, .. }) = self.calls.pop() else { return };
        let incoming = match self.receive(None, &header) {
            Ok(Received::Request(incoming)) => incoming,
            Err(Refusal::Auth(AuthStat::GssCredProblem)) => return self.missed(&header),
            // The lifetime of the context.
            Err(Refusal::Auth(AuthStat::GssCtxProblem)) => return,
            other => panic!("{other:?}"),
        };
        let opened = match incoming.open(Decoder::new(arguments)) {
            Ok(opened) => opened,
            Err(OpenError::Auth(AuthStat::GssCtxProblem, _)) => {
                let failing = &self.mechanism;
                assert!(failing.mute.load(Ordering::Relaxed) || failing.expired.load(Ordering::Relaxed));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.took(&header, &opened);
        let (context, user) = &self.clients[client];
        assert_eq!((opened.caller.principal.name.as_str(), opened.caller.service), (*user, service));
        let results = opened.sealer.seal(opaque(b"results")).expect("the mechanism works");
        let reply =
            ReplyHeader::accepted(7, AcceptStat::Success).with_verifier(opened.sealer.verifier().clone());
        let number = Self::credential(&header).sequence;
        let results = context.open(service, &[number], &reply, Decoder::new(results.flatten().0));
        assert_eq!(rest(&results.expect("the server's reply")), opaque(b"results").flatten().0);
    }

    /// Delivers a call that was kept, once or twice at a time.
    fn deliver(&mut self, copies: usize, decisions: &mut Decisions<'_>) {
        if self.calls.is_empty() {
            return;
        }
        let at = decisions.index(self.calls.len());
        let Call { header, arguments, used, .. } = self.calls[at].clone();
        let received: Vec<Incoming> = (0..copies)
            .filter_map(|_| match self.receive(None, &header) {
                Ok(Received::Request(incoming)) => Some(incoming),
                Ok(Received::Create(_)) => panic!("no call that creates a context is kept"),
                Err(_) => None,
            })
            .collect();
        let mut taken = 0;
        for incoming in received {
            if let Ok(opened) = incoming.open(Decoder::new(arguments.clone())) {
                self.took(&header, &opened);
                taken += 1;
            }
        }
        assert!(taken <= usize::from(!used), "taken before");
        self.calls[at].used |= taken > 0;
    }

    /// Delivers a call that was kept, with a change. The server takes it only if nothing that is protected has changed.
    fn deliver_changed(&mut self, decisions: &mut Decisions<'_>) {
        if self.calls.is_empty() {
            return;
        }
        let at = decisions.index(self.calls.len());
        let call = self.calls[at].clone();
        let message = encode(&call.header).expect("a short header").flatten().0;
        let message = decisions.change(&Bytes::from([message, call.arguments.clone()].concat()));
        let mut arguments = Decoder::new(message);
        let Ok(header) = CallHeader::read(&mut arguments) else { return };
        let Ok(Received::Request(incoming)) = self.receive(decisions.origin(), &header) else { return };
        let arguments = rest(&arguments);
        match incoming.open(Decoder::new(arguments.clone())) {
            Ok(opened) => {
                assert_eq!(header, call.header);
                let is_protected = call.service != Service::None || opened.destroyed;
                assert!(!is_protected || arguments == call.arguments);
                self.took(&header, &opened);
                self.calls[at].used = true;
            }
            Err(OpenError::Garbage { verifier, .. }) => {
                assert_eq!(header, call.header);
                assert_eq!(verifier.flavor, flavor::RPCSEC_GSS);
                self.calls[at].used = true;
            }
            Err(OpenError::Auth(..) | OpenError::Discard) => {}
        }
    }

    /// Gives any bytes to the server as a call.
    fn any_call(&mut self, decisions: &mut Decisions<'_>) {
        let credential =
            OpaqueAuth { flavor: flavor::RPCSEC_GSS, body: Bytes::copy_from_slice(decisions.piece()) };
        let kind = decisions.byte();
        let body = Bytes::copy_from_slice(decisions.piece());
        let verifier = OpaqueAuth { flavor: if kind & 1 == 0 { 0 } else { 6 }, body };
        let call = CallHeader { credential, verifier, ..header(u32::from(kind >> 1 & 1)) };
        let arguments = Decoder::new(Bytes::copy_from_slice(decisions.piece()));
        match self.receive(decisions.origin(), &call) {
            Ok(Received::Create(creation)) => drop(creation.run(arguments)),
            Ok(Received::Request(incoming)) => {
                if let Ok(opened) = incoming.open(arguments) {
                    self.took(&call, &opened);
                }
            }
            Err(_) => {}
        }
    }

    /// Makes the request that ends a context, to be delivered like others.
    fn end(&mut self, decisions: &mut Decisions<'_>) {
        if self.clients.is_empty() {
            return;
        }
        let (client, _) = &self.clients[decisions.index(self.clients.len())];
        let mut header = header(1);
        if client.seal_end(&mut header).is_ok() {
            self.calls.truncate(KEPT - 1);
            self.calls.push(Call { header, arguments: Bytes::new(), service: Service::None, used: false });
        }
    }

    fn step(&mut self, decisions: &mut Decisions<'_>) {
        match decisions.byte() % 12 {
            0 => self.begin(decisions),
            1 => self.go_on(false, decisions),
            2 => self.go_on(true, decisions),
            3 => self.exchange(decisions),
            4 => drop(self.call(decisions)),
            5 => self.deliver(1, decisions),
            6 => self.deliver(2, decisions),
            7 => self.deliver_changed(decisions),
            8 => self.any_call(decisions),
            9 => self.end(decisions),
            10 => self.now += Duration::from_secs(decisions.byte().into()),
            _ => {
                let flag = [&self.mechanism.mute, &self.mechanism.expired][usize::from(decisions.byte() % 2)];
                flag.fetch_xor(true, Ordering::Relaxed);
            }
        }
        assert!(self.server.in_use() <= limits().contexts);
        assert!(self.server.in_creation() <= limits().creating);
    }
}

/// Any calls at a server of contexts: of clients that keep to the protocol, the same ones repeated or changed, and any
/// bytes. A request is taken once and in its own context, with the arguments that its caller protected. A client that makes
/// a request at once gets its reply, unless its context has gone. Contexts are bounded, complete and not. The first byte is
/// the number of calls that create a context.
pub fn gss_server(data: &[u8]) {
    let Some((&rounds, data)) = data.split_first() else { return };
    let mut history = History::new(1 + rounds % 3);
    let mut decisions = Decisions(data);
    while !decisions.0.is_empty() {
        history.step(&mut decisions);
    }
}

/// Returns the keys that a user shares with a server.
fn keys(user: &str, server: &str) -> Arc<dyn SecurityContext> {
    let (_, call) = Creating::begin(&mechanism(user, 1), server).expect("a first token");
    let step = Acceptor::begin(&mechanism(server, 1)).step(&call.token).expect("a token of this mechanism");
    step.created.expect("one token is enough").context
}

/// A reply to a call that creates a context: the server's, changed or not, or any bytes.
fn creation_reply(
    history: &History,
    call: &InitCall,
    decisions: &mut Decisions<'_>,
) -> Option<(OpaqueAuth, InitResults)> {
    let how = decisions.byte() % 4;
    if how == 3 {
        let results = Decoder::new(Bytes::copy_from_slice(decisions.piece())).decode_all().ok()?;
        let verifier = OpaqueAuth { flavor: 6, body: Bytes::copy_from_slice(decisions.piece()) };
        return Some((verifier, results));
    }
    let reply = history.create(None, call)?;
    let results = reply.stream().ok()?.flatten().0;
    let verifier = encode(&reply.verifier).ok()?.flatten().0;
    let (results, verifier) = match how {
        0 => (results, verifier),
        1 => (decisions.change(&results), verifier),
        _ => (results, decisions.change(&verifier)),
    };
    Some((Decoder::new(verifier).decode_all().ok()?, Decoder::new(results).decode_all().ok()?))
}

/// Creates a context with a server that any bytes make. A context is created only if the verifier is the checksum of the
/// window by keys of the server that the client knows.
fn created(rounds: u8, decisions: &mut Decisions<'_>) {
    let history = History::new(rounds);
    let (mut creating, mut call) =
        Creating::begin(&mechanism(USERS[0], rounds), SERVER).expect("a first token");
    while let Some((verifier, results)) = creation_reply(&history, &call, decisions) {
        let (handle, window) = (results.handle.clone(), results.window);
        match creating.reply(&verifier, results, history.now) {
            Err(_) => return,
            Ok(Progress::Call(next, next_call)) => (creating, call) = (next, next_call),
            Ok(Progress::Created(client)) => {
                assert_eq!(verifier.flavor, flavor::RPCSEC_GSS);
                let keys = keys(USERS[0], &client.server().name);
                assert_eq!(keys.verify(&[&window.to_be_bytes()], &verifier.body), Ok(()));
                assert_eq!(client.window(), window.max(1));
                let mut header = header(1);
                client.seal(Service::None, &mut header, Stream::new()).expect("a new context");
                assert_eq!(History::credential(&header).handle, handle);
                return;
            }
        }
    }
}

/// Replies of a server, changed or with any results. The client believes only those that the server made for the request.
fn replies(decisions: &mut Decisions<'_>) {
    let mut history = History::new(1);
    history.begin(&mut Decisions(&[]));
    history.go_on(false, &mut Decisions(&[]));
    let (client, _) = history.clients.pop().expect("both sides keep to the protocol");
    while !decisions.0.is_empty() {
        let service = SERVICES[decisions.index(SERVICES.len())];
        let plain = opaque(decisions.piece()).flatten().0;
        // Two requests, and their replies.
        let [(number, reply, results), (other, ..)] = [(); 2].map(|()| {
            let mut header = header(1);
            let sealed = client.seal(service, &mut header, Stream::new()).expect("a context in use");
            let Ok(Received::Request(incoming)) = history.receive(None, &header) else {
                panic!("a request that is in order")
            };
            let opened = incoming.open(Decoder::new(sealed.arguments.flatten().0)).expect("in order");
            let mut results = Stream::new();
            results.push(rpcrdma_xdr::Piece::Inline(plain.clone()));
            let results = opened.sealer.seal(results).expect("the mechanism works").flatten().0;
            let reply =
                ReplyHeader::accepted(7, AcceptStat::Success).with_verifier(opened.sealer.verifier().clone());
            (sealed.sequence, reply, results)
        });
        let message = encode(&reply).expect("a short header").flatten().0;
        let message = match decisions.byte() % 3 {
            0 => Bytes::from([message, results.clone()].concat()),
            1 => decisions.change(&Bytes::from([message, results.clone()].concat())),
            _ => Bytes::from([&message[..], decisions.piece()].concat()),
        };
        let mut message = Decoder::new(message);
        let Ok(seen) = message.decode::<ReplyHeader>() else { continue };
        let changed = rest(&message) != results;
        assert!(client.open(service, &[other], &seen, message.clone()).is_err(), "another request's");
        match client.open(service, &[other, number], &seen, message) {
            Ok(opened) if seen.success().is_ok() => {
                assert_eq!(seen.body, reply.body);
                assert!(service == Service::None || !changed);
                assert!(changed || rest(&opened) == plain);
            }
            Ok(_) => {}
            Err(_) => assert!(seen.body != reply.body || changed, "the server's reply"),
        }
    }
}

/// Any bytes of a server at a client. Tokens, results and credentials survive encoding. A context is created only with
/// a server that has the keys. Of replies, the client believes only the server's, and only for the right request. The first
/// byte selects.
pub fn gss_reply(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    match choice % 8 {
        0 => assert!(survives::<InitArguments>(data).is_none_or(|read| read.token.len() <= TOKEN_MAX)),
        1 => assert!(survives::<InitResults>(data).is_none_or(|read| read.token.len() <= TOKEN_MAX)),
        2 => {
            if let Ok(read) = GssCredential::read(&Bytes::copy_from_slice(data)) {
                let again = read.to_auth().expect("a handle that was read").body;
                assert_eq!(GssCredential::read(&again), Ok(read));
            }
        }
        3..6 => created(choice % 8 - 2, &mut Decisions(data)),
        _ => replies(&mut Decisions(data)),
    }
}
