//! Limits on the calls that a server carries out at a time.

use std::time::Duration;

use rpcrdma::{ShedLimits, ShedStats};
use tokio::time::{Instant, sleep, timeout};

use super::{BREAK, BREAK_LATER, CHANGE, LOOK, OnTcp, PROGRAM, SYSTEM_ERR, Simulated, call, is_system_error};
use crate::support::warnings::Warnings;

/// Limits without a lower one for an address.
fn total(calls: usize) -> ShedLimits {
    let mut limits = ShedLimits::new(calls);
    limits.per_origin = calls;
    limits
}

impl Simulated {
    fn shed(&self) -> ShedStats {
        self.server.monitor().stats().shed
    }
}

#[tokio::test(start_paused = true)]
async fn i6_calls_beyond_the_limit_are_shed_at_once_and_procedure_0_never_is() {
    let world = Simulated::new(|server| server.shed(total(3))).await;
    let client = world.client(2).await;
    world.work.hold();
    let mut tasks = Vec::new();
    for procedure in [LOOK, CHANGE, LOOK] {
        tasks.push(world.begin(&client, procedure).await);
    }
    for procedure in [LOOK, CHANGE, BREAK] {
        let asked = Instant::now();
        assert!(is_system_error(call(&client, procedure, 7).await));
        assert!(asked.elapsed() < Duration::from_millis(10), "{:?}", asked.elapsed());
    }
    client.null(PROGRAM, 1).await.unwrap();
    let full = world.shed();
    assert_eq!((full.in_progress, full.total, full.per_origin), (3, 3, 0));
    assert_eq!(world.work.begun(), 3);
    world.work.let_go();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
    assert_eq!(call(&client, CHANGE, 8).await.unwrap(), 8);
    assert_eq!((world.shed().in_progress, world.shed().total), (0, 3));
}

/// The calls of an address, however many, do not make the server shed those of others.
#[tokio::test(start_paused = true)]
async fn i6_an_address_with_many_calls_leaves_places_to_others() {
    const TOTAL: usize = 12;
    let world = Simulated::new(|server| server.shed(ShedLimits::new(TOTAL))).await;
    world.work.hold();
    let mut tasks = Vec::new();
    // Two connections of an address are one caller.
    let greedy = [world.client(2).await, world.client(2).await];
    for at in 0..TOTAL / 2 {
        tasks.push(world.begin(&greedy[at % 2], LOOK).await);
    }
    for client in &greedy {
        assert!(is_system_error(call(client, LOOK, 7).await), "half of the places");
    }
    let second = world.client(3).await;
    for _ in 0..3 {
        tasks.push(world.begin(&second, LOOK).await);
    }
    assert!(is_system_error(call(&second, LOOK, 7).await), "as much as is left");
    // The last three places are there for three addresses that have none.
    for last in [4, 5, 6] {
        let client = world.client(last).await;
        tasks.push(world.begin(&client, LOOK).await);
    }
    let full = world.shed();
    assert_eq!((full.in_progress, full.total, full.per_origin), (TOTAL, 0, 3));
    world.work.let_go();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
    assert_eq!(world.shed().in_progress, 0);
}

/// A call that was shed is a new call when it comes again, on the same connection or on another one.
#[tokio::test]
async fn i8_a_shed_call_leaves_nothing_in_the_reply_cache() {
    let world = OnTcp::new(|server| server.shed(total(1))).await;
    let (mut holder, mut first, mut second) = (world.raw().await, world.raw().await, world.raw().await);
    world.work.hold();
    holder.send(1, CHANGE).await;
    world.work.wait_begun(1).await;
    for _ in 0..2 {
        assert_eq!(first.call(2, CHANGE).await, Some(Err(SYSTEM_ERR)));
        assert_eq!(second.call(2, CHANGE).await, Some(Err(SYSTEM_ERR)));
    }
    let stats = world.server.monitor().stats();
    assert_eq!((stats.reply_cache.executed, stats.reply_cache_memory), (1, 0));
    assert_eq!((stats.shed.total, stats.reply_cache.abandoned, stats.reply_cache.replayed), (4, 0, 0));
    world.work.let_go();
    assert_eq!(holder.reply().await, Some(Ok(1)));
    // Now it is executed, and its next repeat gets that reply.
    assert_eq!(first.call(2, CHANGE).await, Some(Ok(2)));
    assert_eq!(second.call(2, CHANGE).await, Some(Ok(2)));
    let stats = world.server.monitor().stats();
    assert_eq!((world.work.begun(), stats.reply_cache.executed, stats.reply_cache.replayed), (2, 2, 1));
}

/// Repeats begin nothing: one waits for the call in progress, another gets the reply that is kept.
#[tokio::test]
async fn i8_a_repeat_is_never_shed() {
    let world = OnTcp::new(|server| server.shed(total(1))).await;
    let (mut first, mut second) = (world.raw().await, world.raw().await);
    assert_eq!(first.call(1, CHANGE).await, Some(Ok(1)));
    world.work.hold();
    first.send(2, CHANGE).await;
    world.work.wait_begun(2).await;
    second.send(2, CHANGE).await;
    world.wait_repeat().await;
    assert_eq!(world.raw().await.call(1, CHANGE).await, Some(Ok(1)));
    assert_eq!(world.server.monitor().stats().shed.total, 0);
    world.work.let_go();
    assert_eq!((first.reply().await, second.reply().await), (Some(Ok(2)), Some(Ok(2))));
    assert_eq!(world.work.begun(), 2);
}

/// Every end of a handler gives its place back. The loss of its connection does not end it.
#[tokio::test(start_paused = true)]
async fn i6_a_call_has_its_place_until_its_handler_ends() {
    let world = Simulated::new(|server| server.shed(total(2))).await;
    let client = world.client(2).await;
    for procedure in [LOOK, CHANGE, BREAK, BREAK_LATER] {
        let result = call(&client, procedure, 7).await;
        assert_eq!(is_system_error(result), procedure >= BREAK);
        assert_eq!(world.shed().in_progress, 0, "{procedure}");
    }
    world.work.hold();
    let lost = world.begin(&client, LOOK).await;
    lost.abort();
    let connection = world.fabric.connections()[0];
    world.fabric.cut(connection);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.shed().in_progress, 1, "the handler goes on");
    world.work.let_go();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((world.shed(), world.work.dropped()), (ShedStats::default(), 0));
}

#[tokio::test]
async fn a_server_without_limits_sheds_nothing() {
    let world = OnTcp::new(|server| server).await;
    let mut raw = world.raw().await;
    world.work.hold();
    for xid in 0..50 {
        raw.send(xid, LOOK).await;
    }
    world.work.wait_begun(50).await;
    assert_eq!(world.server.monitor().stats().shed, ShedStats::default());
    world.work.let_go();
    for _ in 0..50 {
        assert!(raw.reply().await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_flood_of_shed_calls_has_one_line_a_second() {
    let (warnings, _kept) = Warnings::keep();
    let world = Simulated::new(|server| server.shed(total(0))).await;
    let client = world.client(2).await;
    warnings.take();
    let flood = async {
        loop {
            assert!(is_system_error(call(&client, LOOK, 7).await));
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_millis(3500), flood).await.unwrap_err();
    let told = warnings.take();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("call shed") && told[0].contains("reason=0 calls are in progress"), "{told:?}");
    assert!(told[0].contains("name=\"LOOK\"") && told[0].contains("not_logged=0"), "{told:?}");
    assert!(!told[1].contains("not_logged=0"), "{told:?}");
}
