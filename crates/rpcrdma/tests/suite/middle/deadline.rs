//! Deadlines: exact to the millisecond, and over everything that a call needs.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{
    BoxFuture, Call, CallError, Client, ClientConfig, Credential, Execution, GssUser, Intercept, Next, Reply,
    Retry, Server, Sink, Transport,
};
use rpcrdma_oncrpc::gss::testing::TestMechanism;
use rpcrdma_oncrpc::gss::{GssLimits, GssServer, Service};
use rpcrdma_sim::{Fabric, FabricConfig};
use tokio::time::{Instant, sleep, timeout};

use super::{Answer, FETCH, HOST, Heard, PROGRAM, SERVER, Scripted, World, change, milliseconds, read};

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_to_the_millisecond() {
    let world = World::new([Answer::Never; 2]).await;
    let began = Instant::now();
    let error = world.handle().deadline(milliseconds(2_500)).call_raw(read(1)).await.unwrap_err();
    assert_eq!(began.elapsed().as_millis(), 2_500);
    assert!(
        matches!(error, CallError::TimedOut { after, sent: true, .. } if after == milliseconds(2_500)),
        "{error:?}"
    );
    // A call's own deadline comes before the handle's.
    let began = Instant::now();
    let own = read(1).deadline(milliseconds(40));
    assert!(world.handle().deadline(milliseconds(2_500)).call_raw(own).await.is_err());
    assert_eq!(began.elapsed().as_millis(), 40);
    assert_eq!(world.client.stats().timed_out, 2);
}

#[tokio::test(start_paused = true)]
async fn beside_other_calls_a_deadline_is_as_exact() {
    let world = World::new([Answer::Never; 3]).await;
    world.bring_credits().await;
    let began = Instant::now();
    let each = |time| {
        let handle = world.handle().deadline(milliseconds(time));
        async move {
            let error = handle.call_raw(change(1)).await.unwrap_err();
            assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error:?}");
            began.elapsed().as_millis()
        }
    };
    assert_eq!(tokio::join!(each(700), each(500), each(600)), (700, 500, 600));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_all_attempts_and_pauses() {
    let world = World::new([Answer::Never; 20]).await;
    world.bring_credits().await;
    let retry = Retry::new(u32::MAX).pauses(milliseconds(10), milliseconds(10)).seed(1);
    let handle = world.handle().deadline(milliseconds(2_000)).timeout(milliseconds(300)).retry(retry);
    let began = Instant::now();
    let error = handle.call_raw(read(1)).await.unwrap_err();
    // Six attempts of 300 ms with pauses below 10 ms; the seventh meets the deadline.
    assert_eq!(began.elapsed().as_millis(), 2_000);
    let CallError::Repeated { attempts, elapsed, execution, error } = error else { panic!("{error:?}") };
    assert_eq!((attempts, elapsed.as_millis(), execution), (7, 2_000, Execution::Unknown));
    assert!(matches!(*error, CallError::TimedOut { sent: true, .. }), "{error:?}");
    assert_eq!(world.program.heard().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline() {
    let world = World::new([Answer::SystemError; 20]).await;
    let retry = Retry::new(u32::MAX).pauses(milliseconds(400), milliseconds(400)).seed(1);
    let began = Instant::now();
    let handle = world.handle().deadline(milliseconds(1_000)).retry(retry);
    let error = handle.call_raw(read(1)).await.unwrap_err();
    // A pause that would end behind the deadline is not begun: the reason of the last attempt counts.
    assert!(began.elapsed() < milliseconds(1_000), "{:?}", began.elapsed());
    assert!(began.elapsed() > milliseconds(600), "{:?}", began.elapsed());
    assert!(matches!(error.last(), CallError::Refused(_)), "{error:?}");
    assert_eq!(usize::try_from(error.attempts()).unwrap(), world.program.heard().len());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_no_connection_has_a_deadline() {
    let mut world = World::new([]).await;
    world.stop_server().await;
    let began = Instant::now();
    let error = world.handle().deadline(milliseconds(3_210)).call_raw(change(1)).await.unwrap_err();
    assert_eq!(began.elapsed().as_millis(), 3_210);
    assert!(matches!(error, CallError::TimedOut { sent: false, link: Some(_), .. }), "{error:?}");
    assert_eq!(error.execution(), Execution::NotExecuted);
}

/// The time for a reply grows while data moves. A deadline does not.
#[tokio::test(start_paused = true)]
async fn data_that_moves_does_not_extend_a_deadline() {
    let slow = || FabricConfig { bandwidth: Some(20_000), ..FabricConfig::default() };
    let call = || {
        let call = Call::new(PROGRAM, 1, FETCH).name("FETCH").results(4).sink(Sink::Pool(super::DATA));
        call.arguments(rpcrdma_xdr::encode(&0u32).unwrap()).timeout(milliseconds(500))
    };
    let world = World::with(slow(), ClientConfig::default(), []).await;
    let began = Instant::now();
    world.handle().call_raw(call()).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());

    let world = World::with(slow(), ClientConfig::default(), []).await;
    let began = Instant::now();
    let error = world.handle().deadline(milliseconds(1_500)).call_raw(call()).await.unwrap_err();
    assert_eq!(began.elapsed().as_millis(), 1_500);
    assert!(
        matches!(error, CallError::TimedOut { after, sent: true, .. } if after == milliseconds(1_500)),
        "{error:?}"
    );
}

/// Waits before and after each call.
struct Slow(Duration, Duration);

impl Intercept for Slow {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            sleep(self.0).await;
            let result = next.call(call).await;
            sleep(self.1).await;
            result
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_binds_interceptors() {
    let hour = Duration::from_secs(3_600);
    for (slow, calls, execution) in [
        (Slow(hour, Duration::ZERO), 0, Execution::NotExecuted),
        (Slow(Duration::ZERO, hour), 1, Execution::Unknown),
    ] {
        let world = World::new([]).await;
        let handle = world.handle().deadline(milliseconds(750)).intercept(slow);
        let began = Instant::now();
        let error = handle.call_raw(change(1)).await.unwrap_err();
        assert_eq!(began.elapsed().as_millis(), 750);
        assert!(
            matches!(error, CallError::TimedOut { after, .. } if after == milliseconds(750)),
            "{error:?}"
        );
        assert_eq!((world.program.heard().len(), error.execution()), (calls, execution));
    }
    // Time that an interceptor takes is no time for the attempt.
    let world = World::new([Answer::Never]).await;
    let handle = world.handle().deadline(milliseconds(750)).intercept(Slow(milliseconds(700), hour));
    let began = Instant::now();
    assert!(handle.call_raw(read(1)).await.is_err());
    assert_eq!((began.elapsed().as_millis(), world.program.heard().len()), (750, 1));
}

/// An attempt that an interceptor gives up may be carried out all the same.
#[tokio::test(start_paused = true)]
async fn i8_a_call_that_an_interceptor_gave_up_may_have_been_carried_out() {
    struct GivesUp;

    impl Intercept for GivesUp {
        fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
            Box::pin(async move {
                drop(timeout(milliseconds(20), next.call(call)).await);
                std::future::pending().await
            })
        }
    }

    let world = World::new([Answer::Never]).await;
    let handle = world.handle().deadline(milliseconds(100)).intercept(GivesUp);
    let error = handle.call_raw(change(1)).await.unwrap_err();
    assert_eq!(world.program.heard().len(), 1);
    assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error:?}");
}

/// A security context belongs to the call that creates it, and so does the time for it.
#[tokio::test(start_paused = true)]
async fn a_deadline_covers_a_security_context() {
    let mechanism = |name| TestMechanism { waits: false, ..TestMechanism::new(name) };
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let program = Scripted::new([Answer::Never]);
    let served: Arc<Scripted> = Arc::clone(&program);
    let contexts = Arc::new(GssServer::new(Arc::new(mechanism("nfs@server")), GssLimits::default(), 1));
    let server = Server::builder().program(served).gss(contexts);
    let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    tokio::task::yield_now().await;
    let connector = Arc::new(fabric.connector(HOST));
    let client = Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
    let user = Arc::new(GssUser::new(Arc::new(mechanism("alice")), "nfs@server", Service::Integrity));
    let handle = client.handle().gss(user).deadline(milliseconds(900));
    let began = Instant::now();
    let error = handle.call_raw(read(1)).await.unwrap_err();
    assert_eq!(began.elapsed().as_millis(), 900);
    assert!(
        matches!(error, CallError::TimedOut { after, sent: true, .. } if after == milliseconds(900)),
        "{error:?}"
    );
    assert!(matches!(program.heard()[..], [Heard { credential: Credential::Gss(_), .. }]));
    assert_eq!(handle.call_raw(read(2)).await.unwrap().results.u32(), Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_without_end_is_none() {
    let world = World::new([Answer::After(Duration::from_secs(5))]).await;
    world.handle().deadline(Duration::MAX).call_raw(read(1)).await.unwrap();
}
