//! The calls that a client makes in a security context (RFC 2203 §5), read one by one: the test plays their server over TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::{Call, CallError, Client, Execution, GssUser};
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_oncrpc::gss::testing::TestMechanism;
use rpcrdma_oncrpc::gss::{
    Accepting, Acceptor, GssCredential, GssProcedure, InitArguments, InitResults, SecurityContext, Service,
    major,
};
use rpcrdma_oncrpc::{
    AcceptStat, AuthStat, CallHeader, OpaqueAuth, Refused, RejectReason, ReplyBody, ReplyHeader,
};
use rpcrdma_xdr::{Decoder, Encode, Stream, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::gss::{Over, PATIENCE, Secure, client};
use crate::support::{Caller, PROGRAM, VERSION};

/// Results of each call.
const RESULT: u32 = 77;
/// The procedure of each call.
const PROCEDURE: u32 = 9;

/// Sends a message as one record (RFC 5531 §11).
pub async fn send(stream: &mut TcpStream, message: &Stream) {
    let message = message.flatten().0;
    let last = 0x8000_0000 | u32::try_from(message.len()).unwrap();
    let record = [&last.to_be_bytes()[..], &message].concat();
    stream.write_all(&record).await.unwrap();
}

/// Reads the message of the next record, which has one fragment.
pub async fn receive(stream: &mut TcpStream) -> Decoder {
    let length = timeout(PATIENCE, stream.read_u32()).await.unwrap().unwrap();
    assert_ne!(length & 0x8000_0000, 0, "the last fragment");
    let mut message = vec![0; usize::try_from(length & 0x7fff_ffff).unwrap()];
    stream.read_exact(&mut message).await.unwrap();
    Decoder::new(Bytes::from(message))
}

/// A call as it came.
#[derive(Clone, Debug)]
struct Heard {
    header: CallHeader,
    credential: GssCredential,
    arguments: Decoder,
}

impl Heard {
    /// Returns whether this creates or ends a context.
    fn controls(&self) -> bool {
        self.credential.procedure != GssProcedure::Data
    }
}

/// A server that creates contexts, and leaves the answers to other calls to the test.
struct Played {
    listener: TcpListener,
    stream: TcpStream,
    /// Whether its mechanism fails.
    refuses: bool,
    /// Creations that it still answers by SYSTEM_ERR, as a server does that has too many in progress.
    busy: u32,
    mechanism: TestMechanism,
    window: u32,
    accepting: Box<dyn Accepting>,
    keys: Option<Arc<dyn SecurityContext>>,
    /// Contexts begun.
    contexts: u8,
    /// All calls so far.
    heard: Vec<Heard>,
}

/// Starts such a server, and a client of it.
async fn play(rounds: u8, window: u32) -> (Played, Client) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(client(Over::Tcp, address), listener.accept());
    let mechanism = TestMechanism { rounds, ..TestMechanism::new("nfs@server") };
    let accepting = Acceptor::begin(&mechanism);
    let (stream, _) = accepted.unwrap();
    let played = Played {
        listener,
        stream,
        refuses: false,
        busy: 0,
        mechanism,
        window,
        accepting,
        keys: None,
        contexts: 0,
        heard: Vec::new(),
    };
    (played, client)
}

fn user(rounds: u8) -> Arc<GssUser> {
    let mechanism = TestMechanism { rounds, ..TestMechanism::new("alice") };
    Arc::new(GssUser::new(Arc::new(mechanism), "nfs@server", Service::None))
}

/// Begins a call on a task of its own, which returns its result.
fn calls(caller: &Secure) -> JoinHandle<Result<u32, CallError>> {
    let caller = caller.clone();
    tokio::spawn(async move { result(&caller, PROGRAM, VERSION).await })
}

async fn result(caller: &Secure, program: u32, version: u32) -> Result<u32, CallError> {
    let call = Call::new(program, version, PROCEDURE).results(4);
    Ok(caller.call_raw(call).await?.results.u32()?)
}

impl Played {
    /// Returns the next call that creates no context; answers those before.
    async fn hear(&mut self) -> Heard {
        loop {
            let mut arguments = receive(&mut self.stream).await;
            let header = CallHeader::read(&mut arguments).unwrap();
            assert_eq!(header.credential.flavor, flavor::RPCSEC_GSS);
            let credential = GssCredential::read(&header.credential.body).unwrap();
            let heard = Heard { header, credential, arguments };
            self.heard.push(heard.clone());
            match heard.credential.procedure {
                GssProcedure::Init | GssProcedure::ContinueInit => self.create(heard).await,
                GssProcedure::Data | GssProcedure::Destroy => return heard,
            }
        }
    }

    async fn create(&mut self, heard: Heard) {
        if self.refuses {
            let (handle, token) = (Bytes::new(), Bytes::new());
            let results = InitResults { handle, major: major::FAILURE, minor: 0, window: 0, token };
            let reply = ReplyHeader::accepted(heard.header.xid, AcceptStat::Success);
            return self.reply(&reply, &results).await;
        }
        if self.busy > 0 {
            self.busy -= 1;
            let reply = ReplyHeader::accepted(heard.header.xid, AcceptStat::SystemError);
            return self.reply(&reply, &()).await;
        }
        if heard.credential.procedure == GssProcedure::Init {
            self.accepting = Acceptor::begin(&self.mechanism);
            self.contexts += 1;
        }
        let InitArguments { token } = heard.arguments.decode_all().unwrap();
        let step = self.accepting.step(&token).unwrap();
        let (major, verifier) = match step.created {
            Some(created) => {
                let body = created.context.mic(&[&self.window.to_be_bytes()]).unwrap();
                self.keys = Some(created.context);
                (major::COMPLETE, OpaqueAuth { flavor: flavor::RPCSEC_GSS, body })
            }
            None => (major::CONTINUE_NEEDED, OpaqueAuth::none()),
        };
        let handle = vec![self.contexts; 16].into();
        let results = InitResults { handle, major, minor: 0, window: self.window, token: step.token };
        let reply = ReplyHeader::accepted(heard.header.xid, AcceptStat::Success).with_verifier(verifier);
        self.reply(&reply, &results).await;
    }

    async fn reply(&mut self, reply: &ReplyHeader, results: &impl Encode) {
        send(&mut self.stream, &reply.with_results(encode(results).unwrap()).unwrap()).await;
    }

    /// Answers a call by this status. Its results, if it has some, are those of each call.
    async fn answer(&mut self, heard: &Heard, status: AcceptStat) {
        let keys = self.keys.clone().unwrap();
        let body = keys.mic(&[&heard.credential.sequence.to_be_bytes()]).unwrap();
        let reply = ReplyHeader::accepted(heard.header.xid, status)
            .with_verifier(OpaqueAuth { flavor: flavor::RPCSEC_GSS, body });
        match (status, heard.credential.procedure) {
            (AcceptStat::Success, GssProcedure::Data) => self.reply(&reply, &RESULT).await,
            _ => self.reply(&reply, &()).await,
        }
    }

    /// Closes the connection, and takes the client's next one.
    async fn lose(&mut self) {
        self.stream.shutdown().await.unwrap();
        (self.stream, _) = timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
    }

    async fn deny(&mut self, heard: &Heard, reason: RejectReason) {
        self.reply(&ReplyHeader::denied(heard.header.xid, reason), &()).await;
    }
}

/// RFC 2203 §5: control messages have program and version of the service, procedure 0 and an XID of their own.
/// §5.4: The client ends its context by such a message.
// requirement: rfc2203-5-2, rfc2203-5-3, rfc2203-5-5, rfc2203-5.2.2-1, rfc2203-5.4-1, rfc2203-5.4-2, rfc2203-5.4-5
#[tokio::test]
async fn rfc2203_5_the_control_messages_of_a_client() {
    const ROUNDS: u8 = 3;
    let (mut played, client) = play(ROUNDS, 8).await;
    let mut handles = Vec::new();
    for (program, version) in [(PROGRAM, VERSION), (PROGRAM + 1, 7)] {
        let caller = Secure(client.clone(), user(ROUNDS));
        for _ in 0..2 {
            let first = played.heard.len();
            let (result, handle) = tokio::join!(result(&caller, program, version), async {
                let heard = played.hear().await;
                played.answer(&heard, AcceptStat::Success).await;
                heard.credential.handle
            });
            assert_eq!(result.unwrap(), RESULT);
            let ((), end) = tokio::join!(caller.0.end_context(&caller.1), async {
                let heard = played.hear().await;
                played.answer(&heard, AcceptStat::Success).await;
                heard
            });
            assert_eq!(end.credential.handle, handle, "the context that was used");
            assert_eq!((end.credential.sequence, end.arguments.finish()), (2, Ok(())));
            let keys = played.keys.clone().unwrap();
            let signed = CallHeader { verifier: OpaqueAuth::none(), ..end.header.clone() };
            // Without the verifier of AUTH_NONE behind it.
            let signed = signed.with_arguments(Stream::new()).unwrap().flatten().0;
            keys.verify(&[&signed[..signed.len() - 8]], &end.header.verifier.body).unwrap();
            // A context that has ended is not used again.
            assert!(!handles.contains(&handle));
            handles.push(handle);
            let heard = &played.heard[first..];
            let procedures: Vec<_> = heard.iter().map(|heard| heard.credential.procedure).collect();
            let (init, next) = (GssProcedure::Init, GssProcedure::ContinueInit);
            assert_eq!(procedures, [init, next, next, GssProcedure::Data, GssProcedure::Destroy]);
            for Heard { header, .. } in heard.iter().filter(|heard| heard.controls()) {
                assert_eq!((header.program, header.version, header.procedure), (program, version, 0));
            }
        }
    }
    let mut xids: Vec<_> = played.heard.iter().map(|heard| heard.header.xid).collect();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), played.heard.len(), "no two calls have the same XID");
}

/// RFC 2203 §5.3.3.3: the two new statuses need another context, and then the request is tried again.
// requirement: rfc2203-5.3.3.3-2
#[tokio::test]
async fn rfc2203_5_3_3_3_a_call_is_tried_again_in_a_new_context() {
    for stat in [AuthStat::GssCredProblem, AuthStat::GssCtxProblem] {
        let (mut played, client) = play(1, 8).await;
        let caller = Secure(client, user(1));
        let call = calls(&caller);
        let first = played.hear().await;
        played.deny(&first, RejectReason::AuthError(stat)).await;
        let second = played.hear().await;
        assert_eq!(played.contexts, 2, "{stat:?}");
        assert_ne!(first.credential.handle, second.credential.handle);
        assert_eq!(first.header.xid, second.header.xid, "the server may have carried it out");
        assert_eq!(second.header.procedure, PROCEDURE);
        played.answer(&second, AcceptStat::Success).await;
        assert_eq!(call.await.unwrap().unwrap(), RESULT);
        // The new context is that of later calls too.
        let call = calls(&caller);
        let third = played.hear().await;
        assert_eq!(third.credential.handle, second.credential.handle);
        // A server that knows no context gets no endless calls.
        played.deny(&third, RejectReason::AuthError(stat)).await;
        for _ in 0..2 {
            let heard = played.hear().await;
            played.deny(&heard, RejectReason::AuthError(stat)).await;
        }
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, CallError::NoContext { reason, .. } if reason.to_string().contains("in turn")),
            "{error}"
        );
        assert_eq!(played.contexts, 4);
    }
}

/// RFC 2203 §5.3.3.3: after other errors another context would not help.
// requirement: rfc2203-5.3.3.3-6
#[tokio::test]
async fn rfc2203_5_3_3_3_other_errors_leave_the_context() {
    let (mut played, client) = play(1, 8).await;
    let caller = Secure(client, user(1));
    let other = [
        AuthStat::Ok,
        AuthStat::BadCred,
        AuthStat::RejectedCred,
        AuthStat::BadVerf,
        AuthStat::RejectedVerf,
        AuthStat::TooWeak,
        AuthStat::InvalidResp,
        AuthStat::Failed,
        AuthStat::KerbGeneric,
        AuthStat::TimeExpire,
        AuthStat::TktFile,
        AuthStat::Decode,
        AuthStat::NetAddr,
        AuthStat::Other(15),
    ];
    let denied = other.map(|stat| ReplyBody::Denied(RejectReason::AuthError(stat)));
    let mismatch = ReplyBody::Denied(RejectReason::RpcMismatch { low: 3, high: 4 });
    let accepted = [
        AcceptStat::ProgramUnavailable,
        AcceptStat::ProgramMismatch { low: 2, high: 3 },
        AcceptStat::ProcedureUnavailable,
        AcceptStat::GarbageArguments,
        AcceptStat::SystemError,
    ];
    let accepted = accepted.map(|status| ReplyBody::Accepted { verifier: OpaqueAuth::none(), status });
    for body in denied.into_iter().chain([mismatch]).chain(accepted) {
        let call = calls(&caller);
        let heard = played.hear().await;
        assert_eq!((played.contexts, &heard.credential.handle[..]), (1, &[1; 16][..]), "{body:?}");
        match body.clone() {
            ReplyBody::Denied(reason) => played.deny(&heard, reason).await,
            ReplyBody::Accepted { status, .. } => played.answer(&heard, status).await,
        }
        let told = match call.await.unwrap() {
            Err(CallError::Refused(told)) => told,
            other => panic!("{body:?}: {other:?}"),
        };
        assert_eq!(Err::<(), Refused>(told), ReplyHeader { xid: 0, body }.success());
    }
    // It is still of use.
    let call = calls(&caller);
    let heard = played.hear().await;
    played.answer(&heard, AcceptStat::Success).await;
    assert_eq!(call.await.unwrap().unwrap(), RESULT);
    assert_eq!(played.contexts, 1);
}

/// A busy server refuses to create a context for a while. The calls that need it wait within their time.
#[tokio::test]
async fn a_creation_that_a_busy_server_refuses_begins_again() {
    let (mut played, client) = play(2, 8).await;
    played.busy = 2;
    let caller = Secure(client, user(2));
    let call = calls(&caller);
    let heard = played.hear().await;
    played.answer(&heard, AcceptStat::Success).await;
    assert_eq!(call.await.unwrap().unwrap(), RESULT);
    let (init, next) = (GssProcedure::Init, GssProcedure::ContinueInit);
    let procedures: Vec<_> = played.heard.iter().map(|heard| heard.credential.procedure).collect();
    assert_eq!(procedures, [init, init, init, next, GssProcedure::Data]);
    let [first, second, third] = [0, 1, 2].map(|index| played.heard[index].header.xid);
    assert!(first != second && second != third, "each attempt is a call of its own");
}

/// A call whose reply was lost may have been carried out, even if no other context can be had (I8).
#[tokio::test]
async fn i8_without_a_second_context_the_execution_of_a_call_is_unknown() {
    let (mut played, client) = play(1, 8).await;
    let caller = Secure(client, user(1));
    let call = calls(&caller);
    let first = played.hear().await;
    played.lose().await;
    let second = played.hear().await;
    assert_eq!(first.header.xid, second.header.xid);
    played.refuses = true;
    let context = RejectReason::AuthError(AuthStat::GssCredProblem);
    let hears = async {
        played.deny(&second, context).await;
        played.hear().await
    };
    let error = tokio::select! {
        result = call => result.unwrap().unwrap_err(),
        heard = hears => panic!("{heard:?}"),
    };
    assert_eq!(error.execution(), Execution::Unknown, "{error}");
    assert!(error.to_string().contains("refuses the security context"), "{error}");
    // A call that never left was not carried out.
    let error = {
        let call = calls(&caller);
        tokio::select! {
            result = call => result.unwrap().unwrap_err(),
            heard = played.hear() => panic!("{heard:?}"),
        }
    };
    assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
}

/// RFC 2203 §5.2.3.1: the window is the number of requests that may be outstanding. §5.3.3.1: a request below it would get no
/// reply.
// requirement: rfc2203-5.2.3.1-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc2203_5_2_3_1_as_many_calls_as_the_window_has_are_outstanding() {
    const CALLS: u32 = 300;
    for window in [1, 2, 5] {
        let (mut played, client) = play(1, window).await;
        let caller = Secure(client, user(1));
        let mut tasks = JoinSet::new();
        for _ in 0..CALLS {
            let caller = caller.clone();
            tasks.spawn(async move { result(&caller, PROGRAM, VERSION).await.unwrap() });
        }
        let (mut came, mut highest, mut outstanding) = (0, 0, BTreeMap::new());
        while came < CALLS || !outstanding.is_empty() {
            // The lowest number without an answer, be it under way or not.
            let oldest = outstanding.keys().next().copied().unwrap_or(came + 1).min(came + 1);
            while came < CALLS.min(oldest + window - 1) {
                let heard = played.hear().await;
                let number = heard.credential.sequence;
                highest = highest.max(number);
                assert!(number + window > highest, "{number} is below the window of {window} at {highest}");
                outstanding.insert(number, heard);
                came += 1;
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let more = played.stream.try_read(&mut [0; 4]).map_err(|error| error.kind());
            assert_eq!(more, Err(std::io::ErrorKind::WouldBlock), "{window} calls are outstanding");
            // Not the oldest first.
            let number = *outstanding.keys().nth(highest as usize % outstanding.len()).unwrap();
            let heard = outstanding.remove(&number).unwrap();
            played.answer(&heard, AcceptStat::Success).await;
        }
        let results = timeout(PATIENCE, tasks.join_all()).await.unwrap();
        assert_eq!(results, [RESULT; CALLS as usize]);
    }
}

/// RFC 2203 §5.3.3.1: a call that others pass on another connection is not too old when it arrives.
// requirement: rfc2203-5.2.3.1-10
#[tokio::test]
async fn rfc2203_5_3_3_1_no_call_passes_another_by_more_than_the_window() {
    const WINDOW: u32 = 3;
    let (mut played, first) = play(1, WINDOW).await;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (second, accepted) = tokio::join!(client(Over::Tcp, address), listener.accept());
    let mut other = accepted.unwrap().0;
    // The first call makes the context. The one after it is not read yet.
    let caller = Secure(first, user(1));
    let call = calls(&caller);
    let heard = played.hear().await;
    played.answer(&heard, AcceptStat::Success).await;
    assert_eq!(call.await.unwrap().unwrap(), RESULT);
    let slow = calls(&caller);
    played.stream.readable().await.unwrap();
    // Others leave by another connection, as long as they do not make it too old.
    std::mem::swap(&mut played.stream, &mut other);
    let fast = Secure(second, Arc::clone(&caller.1));
    let mut tasks: Vec<_> = (0..10).map(|_| calls(&fast)).collect();
    let mut highest = 0;
    for _ in 1..WINDOW {
        let heard = played.hear().await;
        highest = highest.max(heard.credential.sequence);
        played.answer(&heard, AcceptStat::Success).await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let more = played.stream.try_read(&mut [0; 4]).map_err(|error| error.kind());
    assert_eq!(more, Err(std::io::ErrorKind::WouldBlock), "the call on the first connection has no reply");
    std::mem::swap(&mut played.stream, &mut other);
    let heard = played.hear().await;
    assert!(heard.credential.sequence + WINDOW > highest, "{heard:?} is too old");
    played.answer(&heard, AcceptStat::Success).await;
    assert_eq!(slow.await.unwrap().unwrap(), RESULT);
    std::mem::swap(&mut played.stream, &mut other);
    for _ in WINDOW..=10 {
        let heard = played.hear().await;
        played.answer(&heard, AcceptStat::Success).await;
    }
    for task in tasks.drain(..) {
        assert_eq!(task.await.unwrap().unwrap(), RESULT);
    }
}
