//! Health of a program, and the watch over it.

use std::time::Duration;

use rpcrdma::{CallError, Health, HealthState};
use rpcrdma_oncrpc::Refused;
use tokio::time::{Instant, sleep, timeout};

use super::{PROGRAM, World, milliseconds};

#[tokio::test(start_paused = true)]
async fn a_check_tells_how_long_the_answer_took() {
    let world = World::new([]).await;
    let alive = world.handle().health(PROGRAM, 1).check().await.unwrap();
    assert!(alive.took > Duration::ZERO && alive.took < milliseconds(5), "{:?}", alive.took);
    let error = world.handle().health(PROGRAM, 2).check().await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProgramMismatch { low: 1, high: 1 })), "{error:?}");
    let error = world.handle().health(1, 1).check().await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProgramUnavailable)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_check_has_a_deadline() {
    let mut world = World::new([]).await;
    world.stop_server().await;
    for (handle, time) in
        [(world.handle(), Health::TIME), (world.handle().deadline(milliseconds(123)), milliseconds(123))]
    {
        let began = Instant::now();
        let error = handle.health(PROGRAM, 1).check().await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { sent: false, .. }), "{error:?}");
        assert_eq!(began.elapsed().as_millis(), time.as_millis());
    }
}

#[tokio::test(start_paused = true)]
async fn others_await_the_state_of_a_watch() {
    let mut world = World::new([]).await;
    let health = world.handle().deadline(milliseconds(200)).health(PROGRAM, 1);
    let mut watch = health.watch(milliseconds(1_000));
    assert!(matches!(watch.state(), HealthState::Unknown));
    watch.healthy().await.unwrap();
    assert!(watch.checked().await.is_healthy());
    let began = Instant::now();
    for _ in 0..3 {
        assert!(watch.checked().await.is_healthy());
    }
    assert!((3_000..3_010).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());

    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.unhealthy().await }
    });
    world.stop_server().await;
    let error = timeout(milliseconds(2_000), waiting).await.unwrap().unwrap();
    assert!(matches!(*error, CallError::TimedOut { .. }), "{error:?}");
    let of_three = |state: &HealthState| matches!(state, HealthState::Unhealthy { failures: 3, .. });
    let HealthState::Unhealthy { since, failures, .. } = watch.wait_for(of_three).await else {
        panic!("{:?}", watch.state())
    };
    // Two more checks of 200 ms, each after a pause.
    assert_eq!((since.elapsed().as_millis(), failures), (2 * 1_200, 3));

    world.start_server();
    timeout(milliseconds(60_000), watch.healthy()).await.unwrap().unwrap();
    assert!(watch.state().is_healthy());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_the_client_is_closed() {
    let world = World::new([]).await;
    let mut watch = world.handle().health(PROGRAM, 1).watch(milliseconds(500));
    watch.healthy().await.unwrap();
    let (state, ()) = tokio::join!(watch.wait_for(|_| false), world.client.close());
    assert!(matches!(state, HealthState::Closed), "{state:?}");
    assert!(matches!(watch.healthy().await, Err(CallError::Closed { .. })));
    assert!(matches!(*watch.unhealthy().await, CallError::Closed { .. }));
    for _ in 0..3 {
        assert!(matches!(watch.checked().await, HealthState::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_last_handle_and_keeps_the_client_no_longer() {
    let world = World::new([]).await;
    let watch = world.handle().health(PROGRAM, 1).watch(milliseconds(500));
    let other = watch.clone();
    drop(watch);
    let World { client, monitor, .. } = world;
    drop(client);
    sleep(milliseconds(5_000)).await;
    assert!(other.state().is_healthy());
    assert_eq!(monitor.stats().connections, 1, "the watch keeps the client open");
    drop(other);
    sleep(milliseconds(1_000)).await;
    assert_eq!(monitor.stats().connections, 0);
}
