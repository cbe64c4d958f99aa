//! Interceptors and the other defaults of a handle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma::{AuthSys, BoxFuture, Call, CallError, Credential, GssUser, Intercept, Next, Reply, Retry};
use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::gss::Service;
use rpcrdma_oncrpc::gss::testing::TestMechanism;

use super::{Answer, World, change, milliseconds, read};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down calls and results under its name.
struct Writes(&'static str, Log);

impl Intercept for Writes {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            self.1.lock().unwrap().push(format!("{} before {}", self.0, call.name));
            let result = next.call(call).await;
            let how = if result.is_ok() { "good" } else { "bad" };
            self.1.lock().unwrap().push(format!("{} after {how}", self.0));
            result
        })
    }
}

fn user(uid: u32) -> Credential {
    Credential::Sys(AuthSys { uid, ..AuthSys::default() })
}

#[tokio::test(start_paused = true)]
async fn interceptors_see_a_call_in_their_order_and_its_result_in_reverse() {
    let world = World::new([]).await;
    let log = Log::default();
    let outer = world.handle().intercept(Writes("a", Arc::clone(&log)));
    let handle = outer.clone().intercept(Arc::new(Writes("b", Arc::clone(&log))));
    handle.call_raw(read(1)).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["a before READ", "b before READ", "b after good", "a after good"]);
    // A handle of which another was made has its own interceptors only.
    log.lock().unwrap().clear();
    outer.call_raw(change(1)).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["a before CHANGE", "a after good"]);
    world.client.call_raw(read(1)).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 2, "calls of the client itself pass none");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_passes_an_interceptor_once() {
    let world = World::new([Answer::SystemError; 4]).await;
    let log = Log::default();
    let handle = world.handle().retry(Retry::new(3)).intercept(Writes("a", Arc::clone(&log)));
    let error = handle.call_raw(read(1)).await.unwrap_err();
    assert_eq!(error.attempts(), 3);
    assert_eq!(*log.lock().unwrap(), ["a before READ", "a after bad"]);
}

/// Changes calls and results.
struct Changes;

impl Intercept for Changes {
    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        call.credential = user(77);
        Box::pin(async move {
            let mut reply = next.call(call).await?;
            // The first of the results is for the interceptor.
            reply.results.u32()?;
            Ok(reply)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_changes_a_call_and_its_result() {
    let world = World::new([]).await;
    let mut reply = world.handle().credential(user(5)).intercept(Changes).call_raw(read(1)).await.unwrap();
    assert_eq!(world.program.heard()[0].credential, user(77));
    assert_eq!(reply.results.remaining(), 0);
    assert!(reply.results.u32().is_err());
}

/// Answers in place of the server, or asks twice.
struct Instead(AtomicU32);

impl Intercept for Instead {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(CallError::Refused(Refused::ProgramUnavailable)),
                _ => {
                    assert_eq!(next.left(), None);
                    assert_eq!(next.client().peer_address(), super::SERVER);
                    let again = call.again();
                    next.call(call).await?;
                    next.call(again).await
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_may_make_no_call_or_several() {
    let world = World::new([]).await;
    let handle = world.handle().intercept(Instead(AtomicU32::new(0)));
    let error = handle.call_raw(read(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProgramUnavailable)));
    assert_eq!(world.program.heard().len(), 0);
    assert_eq!(handle.call_raw(read(3)).await.unwrap().results.u32(), Ok(3));
    assert_eq!(world.program.heard().len(), 2);
}

/// Gives a call less time.
struct Hurries(Duration);

impl Intercept for Hurries {
    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
        call.deadline = Some(self.0);
        next.call(call)
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_shortens_a_deadline_but_does_not_extend_it() {
    let world = World::new([Answer::Never; 3]).await;
    for (handles, interceptors, expected) in [(Some(500), 200, 200), (Some(500), 900, 500), (None, 300, 300)]
    {
        let handle = world.handle().intercept(Hurries(milliseconds(interceptors)));
        let handle = match handles {
            Some(time) => handle.deadline(milliseconds(time)),
            None => handle,
        };
        let began = tokio::time::Instant::now();
        assert!(handle.call_raw(read(1)).await.is_err());
        assert_eq!(began.elapsed().as_millis(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_drops_its_interceptors() {
    struct Told(Log);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped".to_owned());
        }
    }
    struct Holds(Log);
    impl Intercept for Holds {
        fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply, CallError>> {
            let told = Told(Arc::clone(&self.0));
            Box::pin(async move {
                let result = next.call(call).await;
                drop(told);
                result
            })
        }
    }
    let world = World::new([Answer::Never]).await;
    world.bring_credits().await;
    let log = Log::default();
    let handle = world.handle().intercept(Holds(Arc::clone(&log)));
    let call = tokio::time::timeout(milliseconds(20), handle.call_raw(read(1)));
    assert!(call.await.is_err());
    assert_eq!(*log.lock().unwrap(), ["dropped"]);
    // The connection is as good as before.
    world.handle().call_raw(read(1)).await.unwrap();
    assert_eq!(world.client.stats().connections, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_keeps_its_own_identity() {
    let world = World::new([]).await;
    let handle = world.handle().credential(user(5));
    handle.call_raw(read(1)).await.unwrap();
    handle.call_raw(read(1).credential(user(6))).await.unwrap();
    // The identity of a derived handle replaces the first.
    handle.clone().credential(user(7)).call_raw(read(1)).await.unwrap();
    let mechanism = TestMechanism { waits: false, ..TestMechanism::new("alice") };
    let alice = Arc::new(GssUser::new(Arc::new(mechanism), "nfs@server", Service::None));
    let of_alice = handle.clone().gss(Arc::clone(&alice));
    // This server knows no mechanism, so only a call with an identity of its own gets through.
    let error = of_alice.call_raw(read(1)).await.unwrap_err();
    assert!(matches!(error, CallError::NoContext { .. }), "{error:?}");
    of_alice.call_raw(read(1).credential(user(8))).await.unwrap();
    of_alice.credential(Credential::None).call_raw(read(1)).await.unwrap();
    let callers: Vec<Credential> = world.program.heard().into_iter().map(|call| call.credential).collect();
    assert_eq!(callers, [user(5), user(6), user(7), user(8), Credential::None]);
}
