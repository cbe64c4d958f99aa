//! A server's answers to calls of RPCSEC_GSS (RFC 2203 §5), and the room that clients make for them (RFC 8166 §8.2.2).

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use rpcrdma::{
    Binding, CallContext, CallError, CallFailure, Credential, Eligibility, Form, GssUser, ProcedureInfo,
    Program, ResponseFuture, Server,
};
use rpcrdma_oncrpc::gss::testing::{TestMechanism, principal};
use rpcrdma_oncrpc::gss::{
    Accepting, Acceptor, GssCredential, GssLimits, GssProcedure, GssServer, InitArguments, InitResults,
    MechanismError, Service, Step, TOKEN_MAX, major,
};
use rpcrdma_oncrpc::{AcceptStat, AuthStat, CallHeader, OpaqueAuth, Refused, ReplyBody, ReplyHeader};
use rpcrdma_xdr::{Decoder, Encoder, Stream, encode};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::gss::{MIB, Over, PATIENCE, SERVICES, Secure, TRANSPORTS, client, serve, serve_by, user};
use crate::gss_calls::{receive, send};
use crate::support::{
    COUNT, ECHO, PROGRAM, TestProgram, VERSION, call, count, echo, get, pattern, program, put,
};

/// Longest body of a verifier, in bytes (RFC 5531 §8.2).
const VERIFIER_MAX: usize = 400;

/// Returns the header of a call of procedure 0 that creates a context.
fn creation(procedure: GssProcedure, handle: Bytes) -> CallHeader {
    let credential = GssCredential { procedure, sequence: 0, service: Service::None, handle };
    CallHeader {
        xid: 5,
        program: PROGRAM,
        version: VERSION,
        procedure: 0,
        credential: credential.to_auth().unwrap(),
        verifier: OpaqueAuth::none(),
    }
}

/// Asks a server whose contexts are made like this, over TCP.
async fn answer(acceptor: Arc<dyn Acceptor>, limits: GssLimits, call: &Stream) -> (ReplyHeader, Decoder) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let contexts = Arc::new(GssServer::new(acceptor, limits, 1));
    let server = Server::builder().program(program()).gss(contexts).listen_tcp(listener).build().unwrap();
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    send(&mut stream, call).await;
    let mut reply = receive(&mut stream).await;
    serving.abort();
    (reply.decode().unwrap(), reply)
}

/// A mechanism with a defect.
struct Panics;

impl Acceptor for Panics {
    fn begin(&self) -> Box<dyn Accepting> {
        Box::new(Self)
    }
}

impl Accepting for Panics {
    fn step(&mut self, _: &[u8]) -> Result<Step, MechanismError> {
        panic!("asked to")
    }
}

/// RFC 2203 §5.2.3.2: a creation request that is accepted without success has a reply with the verifier of AUTH_NONE.
// requirement: rfc2203-5.2.3.2-1
#[tokio::test]
async fn rfc2203_5_2_3_2_a_reply_without_success_proves_nothing() {
    let mechanism = || Arc::new(TestMechanism::new("nfs@server")) as Arc<dyn Acceptor>;
    let token = || encode(&InitArguments { token: Bytes::from_static(b"\x01\x01alice") }).unwrap();
    let (init, next) = (GssProcedure::Init, GssProcedure::ContinueInit);
    let mut none = GssLimits::default();
    none.creating = 0;
    let long = Bytes::from(vec![0; TOKEN_MAX + 4]);
    let mut too_long = Encoder::new();
    too_long.payload(long, usize::MAX, false).unwrap();
    let garbage = AcceptStat::GarbageArguments;
    for (acceptor, limits, procedure, arguments, expected) in [
        (mechanism(), GssLimits::default(), init, Stream::new(), garbage),
        (mechanism(), GssLimits::default(), next, Stream::new(), garbage),
        (mechanism(), GssLimits::default(), init, encode(&9_u32).unwrap(), garbage),
        (mechanism(), GssLimits::default(), init, too_long.finish(), garbage),
        (mechanism(), none, init, token(), AcceptStat::SystemError),
        (Arc::new(Panics), GssLimits::default(), init, token(), AcceptStat::SystemError),
    ] {
        let call = creation(procedure, Bytes::new()).with_arguments(arguments).unwrap();
        let (header, rest) = answer(acceptor, limits, &call).await;
        let ReplyBody::Accepted { verifier, status } = header.body else { panic!("{header:?}") };
        assert_eq!((status, verifier), (expected, OpaqueAuth::none()));
        assert_eq!(rest.finish(), Ok(()), "as usual for the status");
    }
    // With a right token the call is a success with a proof.
    let call = creation(init, Bytes::new()).with_arguments(token()).unwrap();
    let (header, results) = answer(mechanism(), GssLimits::default(), &call).await;
    let ReplyBody::Accepted { verifier, status } = header.body else { panic!("{header:?}") };
    assert_eq!((status, verifier.flavor), (AcceptStat::Success, 6));
    assert_eq!(results.decode_all::<InitResults>().unwrap().major, major::COMPLETE);
}

/// RFC 2203 §5: no procedure of a service sees the messages that create a context and end it.
// requirement: rfc2203-5-1
#[tokio::test]
async fn rfc2203_5_control_messages_reach_no_procedure() {
    let server = serve().await;
    for transport in TRANSPORTS {
        let client = server.client(transport).await;
        let (alice, begun) = (user(Service::Privacy), server.begun());
        let caller = Secure(client.clone(), Arc::clone(&alice));
        // NULL is answered without its program. So all that can reach it are control messages.
        let null = call(0).gss(Arc::clone(&alice));
        client.call_raw(null).await.unwrap().results.finish().unwrap();
        client.end_context(&alice).await;
        assert_eq!(server.program.calls.load(Ordering::SeqCst), 0);
        assert_eq!(server.begun(), begun + 1);
        assert_eq!(server.in_use(), 0, "the context has ended");
        echo(&caller, b"data").await.unwrap();
        assert_eq!(server.program.calls.swap(0, Ordering::SeqCst), 1);
        client.end_context(&alice).await;
        client.close().await;
    }
    server.end().await;
}

/// A program that does something of its own before it serves a call.
struct Before<F>(Arc<TestProgram>, F);

impl<F: Fn(&CallContext) -> Result<(), CallFailure> + Send + Sync + 'static> Program for Before<F> {
    fn number(&self) -> u32 {
        self.0.number()
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.0.versions()
    }

    fn procedure(&self, version: u32, procedure: u32) -> Option<ProcedureInfo> {
        self.0.procedure(version, procedure)
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.0.accepts_flavor(flavor)
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match self.1(&context) {
            Ok(()) => self.0.call(context, arguments),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }
    }
}

impl<F: Fn(&CallContext) -> Result<(), CallFailure> + Send + Sync + 'static> Binding for Before<F> {
    fn eligibility(&self, version: u32, procedure: u32) -> Eligibility {
        self.0.eligibility(version, procedure)
    }
}

/// RFC 2203 §5.2.1: mechanism and service of each request can be enforced.
// requirement: rfc2203-5.2.1-2, rfc2203-5.3-1
#[tokio::test]
async fn rfc2203_5_2_1_a_program_enforces_mechanism_and_service_of_each_call() {
    let program = program();
    let strict = Before(Arc::clone(&program), |context: &CallContext| match &context.credential {
        Credential::Gss(caller)
            if caller.principal.mechanism == principal("any").mechanism
                && (caller.service == Service::Privacy || context.procedure == ECHO) =>
        {
            Ok(())
        }
        _ => Err(CallFailure::Auth(AuthStat::TooWeak)),
    });
    let server = serve_by(TestMechanism::new("nfs@server"), Arc::new(strict), Arc::clone(&program)).await;
    for transport in TRANSPORTS {
        let client = server.client(transport).await;
        let executed = program.count.load(Ordering::SeqCst);
        for service in SERVICES {
            let caller = Secure(client.clone(), user(service));
            echo(&caller, b"data").await.unwrap();
            match (service, count(&caller).await) {
                (Service::Privacy, counted) => assert_eq!(counted.unwrap(), executed + 1),
                (_, Err(CallError::Refused(Refused::AuthError(AuthStat::TooWeak)))) => {}
                (_, other) => panic!("{transport:?} {service:?}: {other:?}"),
            }
            // The refusal is one of the request, not of its context.
            echo(&caller, b"data").await.unwrap();
        }
        let error = echo(&client, b"data").await.unwrap_err();
        assert!(matches!(error, CallError::Refused(Refused::AuthError(AuthStat::TooWeak))), "{error}");
        client.close().await;
    }
    server.end().await;
}

/// RFC 2203 §5.3.3.4.1 and 4: results that the mechanism cannot protect end in no reply. RFC 8166 §4.5.4: so the connection is
/// closed.
// requirement: rfc2203-5.3.3.4.1-2, rfc2203-5.3.3.4.4-1
#[tokio::test]
async fn rfc2203_5_3_3_4_results_that_cannot_be_protected_end_in_no_reply() {
    let mechanism = TestMechanism::new("nfs@server");
    let (mute, program) = (Arc::clone(&mechanism.mute), program());
    // The verifier is made before the call is served.
    let mutes = Arc::new(AtomicBool::new(false));
    let (armed, muted) = (Arc::clone(&mutes), Arc::clone(&mute));
    let served = Before(Arc::clone(&program), move |_: &CallContext| {
        muted.store(armed.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    });
    let server = serve_by(mechanism, Arc::new(served), Arc::clone(&program)).await;
    for service in [Service::Integrity, Service::Privacy] {
        let client = server.client(Over::Rdma).await;
        let caller = Secure(client.clone(), user(service));
        let before = count(&caller).await.unwrap();
        mutes.store(true, Ordering::SeqCst);
        let error =
            client.call_raw(call(COUNT).results(4).once().gss(Arc::clone(&caller.1))).await.unwrap_err();
        assert!(matches!(error, CallError::ConnectionLost { .. }), "{service:?}: {error}");
        assert_eq!(program.count.load(Ordering::SeqCst), before + 1, "it was carried out");
        mutes.store(false, Ordering::SeqCst);
        mute.store(false, Ordering::SeqCst);
        assert_eq!(count(&caller).await.unwrap(), before + 2);
        client.close().await;
    }
    server.end().await;
}

/// RFC 8166 §8.2.2.2: a Requester makes room for the longest verifier in reply buffers and Reply chunks. A server refuses a call
/// whose reply fits neither (§4.5.3), so a lack of room would fail the call.
// requirement: rfc8166-8.2.2.2-3
#[tokio::test]
async fn rfc8166_8_2_2_2_replies_with_the_longest_verifier_have_room() {
    let long = |name| TestMechanism { mic_len: VERIFIER_MAX, ..TestMechanism::new(name) };
    let program = program();
    let server = serve_by(long("nfs@server"), Arc::clone(&program) as _, Arc::clone(&program)).await;
    let client = server.client(Over::Rdma).await;
    for service in SERVICES {
        let alice = Arc::new(GssUser::new(Arc::new(long("alice")), "nfs@server", service));
        let caller = Secure(client.clone(), alice);
        let mut forms = Vec::new();
        // Results of exactly the length that the call states: around the end of what fits inline, and far above.
        for length in (2600..4200).step_by(4).chain([65_536, MIB - 4]) {
            let reply = echo(&caller, &pattern(length)).await.unwrap().travelled.reply;
            forms.push(reply.form);
        }
        assert!(forms.contains(&Form::Inline) && forms.contains(&Form::Long), "{service:?}");
        put(&caller, Bytes::from(pattern(MIB))).await.unwrap();
        get(&caller, MIB).await.unwrap();
    }
    client.close().await;
    server.end().await;
}

/// A mechanism that waits for files or a network while it creates contexts, once the test says so.
struct Waits {
    mechanism: TestMechanism,
    waits: AtomicBool,
    begun: AtomicUsize,
    /// Ends when the test drops its sender.
    end: Arc<Mutex<mpsc::Receiver<()>>>,
}

struct WaitingStep(Box<dyn Accepting>, Option<Arc<Mutex<mpsc::Receiver<()>>>>);

impl Acceptor for Waits {
    fn begin(&self) -> Box<dyn Accepting> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let end = self.waits.load(Ordering::SeqCst).then(|| Arc::clone(&self.end));
        Box::new(WaitingStep(Acceptor::begin(&self.mechanism), end))
    }
}

impl Accepting for WaitingStep {
    fn step(&mut self, token: &[u8]) -> Result<Step, MechanismError> {
        if let Some(end) = &self.1 {
            assert!(end.lock().unwrap().recv().is_err());
        }
        self.0.step(token)
    }
}

/// A caller who begins many contexts holds up no request of others (I6).
#[tokio::test]
async fn i6_contexts_whose_creation_waits_hold_up_no_request() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (end, ended) = mpsc::channel();
    let acceptor = Arc::new(Waits {
        mechanism: TestMechanism::new("nfs@server"),
        waits: AtomicBool::new(false),
        begun: AtomicUsize::new(0),
        end: Arc::new(Mutex::new(ended)),
    });
    let mut limits = GssLimits::default();
    limits.creating = 16 * threads;
    let contexts = Arc::new(GssServer::new(Arc::clone(&acceptor) as _, limits, 1));
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().program(program()).gss(contexts).listen_tcp(listener).build().unwrap();
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let alice = Secure(client(Over::Tcp, address).await, user(Service::Integrity));
    echo(&alice, b"data").await.unwrap();
    // More contexts than there are threads.
    acceptor.waits.store(true, Ordering::SeqCst);
    let token = Bytes::from_static(b"\x01\x01bob");
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 * threads {
        let call = creation(GssProcedure::Init, Bytes::new());
        let token = encode(&InitArguments { token: token.clone() }).unwrap();
        send(&mut stream, &call.with_arguments(token).unwrap()).await;
    }
    let busy = async {
        while acceptor.begun.load(Ordering::SeqCst) < 1 + threads {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, busy).await.unwrap();
    let echoed = timeout(PATIENCE, echo(&alice, b"data")).await;
    // The threads end in any case.
    drop(end);
    echoed.unwrap().unwrap();
    for _ in 0..2 * threads {
        receive(&mut stream).await.decode::<ReplyHeader>().unwrap().success().unwrap();
    }
    alice.0.close().await;
    serving.abort();
}
