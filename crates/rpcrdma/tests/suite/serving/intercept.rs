//! Interceptors around the programs of a server, and of a client that serves.

use std::sync::{Arc, Mutex};

use rpcrdma::{
    AuthSys, CallContext, CallError, CallFailure, Client, Credential, Effect, InterceptService, NextService,
    ResponseFuture, Server, ServerConfig, Versions,
};
use rpcrdma_oncrpc::{AuthStat, Refused};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::{Decoder, encode};

use super::{
    BREAK, CHANGE, LOOK, OnTcp, PROGRAM, SERVER, SYSTEM_ERR, Simulated, call, host, is_system_error,
};
use crate::support::bounce::{Bounce, bounce};
use crate::support::{TestProgram, get};

/// Lines that interceptors write.
type Lines = Arc<Mutex<Vec<String>>>;

/// Writes a line before each call, and one with the results after it.
struct Notes {
    name: &'static str,
    lines: Lines,
}

impl InterceptService for Notes {
    fn serve(&self, context: CallContext, arguments: Decoder, next: NextService) -> ResponseFuture {
        let (name, lines) = (self.name, Arc::clone(&self.lines));
        let effect = if next.effect() == Effect::Idempotent { "" } else { ", a change" };
        lines.lock().unwrap().push(format!("{name}: {} begins{effect}", next.name()));
        Box::pin(async move {
            let results = next.call(context, arguments).await;
            let told = results.as_ref().map(|results| results.len());
            lines.lock().unwrap().push(format!("{name}: {told:?}"));
            results
        })
    }
}

fn notes(name: &'static str, lines: &Lines) -> Notes {
    Notes { name, lines: Arc::clone(lines) }
}

fn taken(lines: &Lines) -> Vec<String> {
    std::mem::take(&mut lines.lock().unwrap())
}

/// Answers without the program.
fn answers(with: Result<u32, CallFailure>) -> impl InterceptService {
    move |_: CallContext, _: Decoder, _: NextService| -> ResponseFuture {
        let with = with.clone();
        Box::pin(async move { Ok(encode(&with?)?) })
    }
}

#[tokio::test(start_paused = true)]
async fn interceptors_nest_in_the_order_of_their_registration() {
    let lines = Lines::default();
    let world =
        Simulated::new(|server| server.intercept(notes("first", &lines)).intercept(notes("second", &lines)))
            .await;
    let client = world.client(2).await;
    assert_eq!(call(&client, LOOK, 7).await.unwrap(), 7);
    assert_eq!(taken(&lines), ["first: LOOK begins", "second: LOOK begins", "second: Ok(4)", "first: Ok(4)"]);
    call(&client, CHANGE, 7).await.unwrap();
    assert_eq!(taken(&lines)[0], "first: CHANGE begins, a change");
    assert!(matches!(call(&client, 99, 7).await, Err(CallError::Refused(Refused::ProcedureUnavailable))));
    client.null(PROGRAM, 1).await.unwrap();
    assert!(taken(&lines).is_empty(), "neither reaches a program");
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_changes_a_call_and_its_results() {
    let user = Credential::Sys(AuthSys { uid: 65534, ..AuthSys::default() });
    let other = user.clone();
    let change = move |mut context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        context.credential = other.clone();
        Box::pin(async move {
            let argument: u32 = arguments.decode_all()?;
            let arguments = Decoder::new(encode(&(argument + 1))?.flatten().0);
            let result: u32 = Decoder::new(next.call(context, arguments).await?.flatten().0).decode_all()?;
            Ok(encode(&(result * 10))?)
        })
    };
    let world = Simulated::new(|server| server.intercept(change)).await;
    assert_eq!(call(&world.client(2).await, LOOK, 7).await.unwrap(), 80);
    assert_eq!(*world.work.seen.lock().unwrap(), [(8, user)]);
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_answers_without_the_program() {
    for (answer, expected) in [
        (Ok(3), "Ok(3)"),
        (Err(CallFailure::Auth(AuthStat::TooWeak)), "Err(Refused(AuthError(TooWeak)))"),
        (Err(CallFailure::SystemError), "Err(Refused(SystemError))"),
    ] {
        let lines = Lines::default();
        let world =
            Simulated::new(|server| server.intercept(notes("outer", &lines)).intercept(answers(answer)))
                .await;
        let result = call(&world.client(2).await, LOOK, 7).await;
        assert_eq!(format!("{result:?}"), expected);
        assert_eq!((world.work.begun(), lines.lock().unwrap().len()), (0, 2), "{expected}");
    }
}

/// The answer of an interceptor is the reply to the call and its repeats. Those do not pass it again.
#[tokio::test]
async fn i8_a_repeat_passes_no_interceptor() {
    let lines = Lines::default();
    let world = OnTcp::new(|server| server.intercept(notes("once", &lines))).await;
    let (mut first, mut second) = (world.raw().await, world.raw().await);
    assert_eq!(first.call(70, CHANGE).await, Some(Ok(70)));
    assert_eq!(second.call(70, CHANGE).await, Some(Ok(70)));
    assert_eq!((world.work.begun(), taken(&lines).len()), (1, 2));

    let world = OnTcp::new(|server| server.intercept(answers(Err(CallFailure::SystemError)))).await;
    assert_eq!(world.raw().await.call(71, CHANGE).await, Some(Err(SYSTEM_ERR)));
    assert_eq!(world.raw().await.call(71, CHANGE).await, Some(Err(SYSTEM_ERR)));
    assert_eq!(world.server.monitor().stats().reply_cache.replayed, 1);
}

/// A call that an interceptor does not let begin is a new call when it comes again.
#[tokio::test]
async fn i8_a_call_that_an_interceptor_sheds_may_be_executed_later() {
    let closed = Arc::new(Mutex::new(true));
    let look = Arc::clone(&closed);
    let gate = move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        if *look.lock().unwrap() {
            return Box::pin(async { Err(CallFailure::Shed) });
        }
        next.call(context, arguments)
    };
    let world = OnTcp::new(|server| server.intercept(gate)).await;
    assert_eq!(world.raw().await.call(70, CHANGE).await, Some(Err(SYSTEM_ERR)));
    *closed.lock().unwrap() = false;
    for _ in 0..2 {
        assert_eq!(world.raw().await.call(70, CHANGE).await, Some(Ok(70)));
    }
    let cache = world.server.monitor().stats().reply_cache;
    assert_eq!((world.work.begun(), cache.executed, cache.replayed), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn i6_a_panic_fails_its_call_only_and_interceptors_see_it() {
    let lines = Lines::default();
    let world = Simulated::new(|server| server.intercept(notes("outer", &lines))).await;
    let client = world.client(2).await;
    assert!(is_system_error(call(&client, BREAK, 7).await));
    assert_eq!(taken(&lines)[1], "outer: Err(Panicked)");

    let breaks = |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        assert_eq!(context.procedure, LOOK, "at once");
        Box::pin(async move {
            let results = next.call(context, arguments).await?;
            assert_ne!(results.len(), 4, "after the program");
            Ok(results)
        })
    };
    let world = Simulated::new(|server| server.intercept(notes("outer", &lines)).intercept(breaks)).await;
    let client = world.client(2).await;
    for procedure in [LOOK, CHANGE] {
        assert!(is_system_error(call(&client, procedure, 7).await));
        assert_eq!(taken(&lines)[1], "outer: Err(Panicked)");
    }
    client.null(PROGRAM, 1).await.unwrap();
    assert_eq!((client.stats().connections, world.work.begun()), (1, 1));
}

/// Data that passes an interceptor stays where it is, and travels in chunks.
#[tokio::test(start_paused = true)]
async fn data_passes_an_interceptor_without_a_copy() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let lines = Lines::default();
    let server = Server::builder()
        .program(Arc::new(TestProgram::default()))
        .intercept(notes("outer", &lines))
        .listen_rdma(Box::new(fabric.listen(SERVER).unwrap()))
        .build()
        .unwrap()
        .spawn();
    tokio::task::yield_now().await;
    let connector = Arc::new(fabric.connector(host(2)));
    let client = Client::builder().rdma(connector, SERVER).await.unwrap();
    let reply = get(&client, 1 << 20).await.unwrap();
    assert_eq!(reply.travelled.reply.written, 1 << 20);
    assert_eq!(taken(&lines), ["outer: GET begins", "outer: Ok(1048580)"]);
    assert_eq!(server.monitor().stats().payload_bytes_copied, 0);
}

/// RFC 8167: the calls of the server pass the interceptors of the client, and those of the client do not.
#[tokio::test(start_paused = true)]
async fn a_client_that_serves_has_interceptors() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let lines = Lines::default();
    let mut config = ServerConfig::default();
    // Then the server may call before it knows anything of the client.
    config.protocol.versions = Versions::ONE;
    let server = Server::builder()
        .config(config)
        .program(Arc::new(Bounce::default()))
        .listen_rdma(Box::new(fabric.listen(SERVER).unwrap()))
        .build()
        .unwrap()
        .spawn();
    tokio::task::yield_now().await;
    let client = Client::builder()
        .program(Arc::new(Bounce::default()))
        .intercept_service(notes("first", &lines))
        .intercept_service(notes("second", &lines));
    let client = client.rdma(Arc::new(fabric.connector(host(2))), SERVER).await.unwrap();
    // The server calls back once.
    assert_eq!(bounce(&client, 1).await.unwrap(), 1);
    assert_eq!(
        taken(&lines),
        ["first: BOUNCE begins", "second: BOUNCE begins", "second: Ok(4)", "first: Ok(4)"]
    );
    client.close().await;
    server.shutdown().await.unwrap();
}
