//! Programs that panic: the call gets SYSTEM_ERR, and neither its connection nor its server ends.

use std::time::Duration;

use rpcrdma::{Client, Transport};
use tokio::time::{sleep, timeout};

use super::{BREAK, BREAK_LATER, CHANGE, LOOK, OnTcp, SYSTEM_ERR, Simulated, UNKNOWN, call, is_system_error};
use crate::support::warnings::Warnings;

#[tokio::test(start_paused = true)]
async fn i6_a_panicking_handler_ends_only_its_call() {
    let world = Simulated::new(|server| server).await;
    let client = world.client(2).await;
    // A call in progress on the same connection goes on.
    world.work.hold();
    let slow = world.begin(&client, LOOK).await;
    let later = world.begin(&client, BREAK_LATER).await;
    for procedure in [BREAK, UNKNOWN] {
        assert!(is_system_error(call(&client, procedure, 7).await), "{procedure}");
    }
    world.work.let_go();
    assert!(is_system_error(later.await.unwrap()));
    assert_eq!(slow.await.unwrap().unwrap(), 7);
    assert_eq!((client.stats().connections, client.stats().retransmissions), (1, 0));
    let stats = world.server.monitor().stats();
    assert_eq!((stats.connections, stats.reply_cache.abandoned), (1, 0));
    client.close().await;
    world.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn i6_a_panicking_handler_ends_only_its_call_over_tcp() {
    let world = OnTcp::new(|server| server).await;
    let client = Client::builder().transport(Transport::tcp()).connect(world.address).await.unwrap();
    world.work.hold();
    let broken = tokio::spawn({
        let client = client.clone();
        async move { call(&client, BREAK_LATER, 7).await }
    });
    world.work.wait_begun(1).await;
    for procedure in [BREAK, UNKNOWN] {
        assert!(is_system_error(call(&client, procedure, 7).await), "{procedure}");
    }
    world.work.let_go();
    assert!(is_system_error(broken.await.unwrap()));
    assert_eq!(call(&client, CHANGE, 8).await.unwrap(), 8);
    assert_eq!((client.stats().connections, world.server.monitor().stats().connections), (1, 1));
}

/// A handler that panics may have made a part of its change. So a repeat is not executed, and gets the reply of the call.
#[tokio::test]
async fn i8_a_call_whose_handler_panicked_is_not_executed_again() {
    let world = OnTcp::new(|server| server).await;
    let (mut first, mut second) = (world.raw().await, world.raw().await);
    assert_eq!(first.call(1, BREAK).await, Some(Err(SYSTEM_ERR)));
    assert_eq!(second.call(1, BREAK).await, Some(Err(SYSTEM_ERR)));
    assert_eq!(world.work.begun(), 1);
    // A repeat that waits for the handler gets that reply, too.
    world.work.hold();
    first.send(2, BREAK_LATER).await;
    world.work.wait_begun(2).await;
    second.send(2, BREAK_LATER).await;
    world.wait_repeat().await;
    world.work.let_go();
    assert_eq!((first.reply().await, second.reply().await), (Some(Err(SYSTEM_ERR)), Some(Err(SYSTEM_ERR))));
    let cache = world.server.monitor().stats().reply_cache;
    assert_eq!((world.work.begun(), cache.executed, cache.replayed, cache.abandoned), (2, 2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn i6_panics_have_one_line_a_second() {
    let (warnings, _kept) = Warnings::of_this_thread();
    let world = Simulated::new(|server| server).await;
    let client = world.client(2).await;
    warnings.take();
    let flood = async {
        loop {
            assert!(is_system_error(call(&client, BREAK, 7).await));
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_millis(2500), flood).await.unwrap_err();
    let told = warnings.take();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].contains("a handler panicked: its call gets SYSTEM_ERR") && told[0].contains("at once"),
        "{told:?}"
    );
    assert!(told[0].contains("name=\"BREAK\"") && told[0].contains("peer=192.0.2.2:"), "{told:?}");
    assert!(!told[1].contains("not_logged=0"), "{told:?}");
}
