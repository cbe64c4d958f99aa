//! Keys: calls of one key take one of several connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rpcrdma::{ClientConfig, Retry};
use rpcrdma_sim::FabricConfig;
use tokio::time::{Instant, sleep};

use super::{SERVER, World, milliseconds, read};

const KEYS: u64 = 32;

async fn world() -> World {
    let mut config = ClientConfig::default();
    config.connections = 4;
    World::with(FabricConfig::default(), config, []).await
}

impl World {
    /// Makes a call with each key; returns the end of the connection that each took.
    async fn taken(&self) -> BTreeMap<u64, SocketAddr> {
        let mut taken = BTreeMap::new();
        for key in 0..KEYS {
            self.handle().key(key).call_raw(read(1)).await.unwrap();
            taken.insert(key, self.program.heard().last().unwrap().peer.unwrap());
        }
        taken
    }
}

fn connections(taken: &BTreeMap<u64, SocketAddr>) -> BTreeSet<SocketAddr> {
    taken.values().copied().collect()
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_key_take_one_connection() {
    let world = world().await;
    let taken = world.taken().await;
    assert_eq!(connections(&taken).len(), 4, "all connections have keys");
    assert_eq!(world.taken().await, taken);
    // The call's own key comes before the handle's.
    world.handle().key(0).call_raw(read(1).key(9)).await.unwrap();
    assert_eq!(world.program.heard().last().unwrap().peer, Some(taken[&9]));
    // Without a key the calls take all connections in turn.
    for _ in 0..4 {
        world.handle().call_raw(read(1)).await.unwrap();
    }
    let heard = world.program.heard();
    let peers: BTreeSet<_> = heard[heard.len() - 4..].iter().map(|call| call.peer).collect();
    assert_eq!(peers.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_lost_connection_take_the_others_until_it_is_back() {
    let world = world().await;
    let before = world.taken().await;
    // The server is away for new connections.
    world.fabric.refuse(SERVER, usize::MAX);
    world.fabric.cut(1);
    sleep(milliseconds(10)).await;
    let during = world.taken().await;
    let lost: BTreeSet<_> = connections(&before).difference(&connections(&during)).copied().collect();
    assert_eq!(lost.len(), 1);
    for (key, connection) in &before {
        assert!(lost.contains(connection) || during[key] == *connection, "key {key} has moved");
    }
    let moved = before.iter().filter(|(_, connection)| lost.contains(connection)).map(|(key, _)| during[key]);
    assert!(moved.collect::<BTreeSet<_>>().len() > 1, "its keys are spread over the others");
    assert_eq!(world.client.stats().connections, 4);
    // The client opens it again as soon as the server lets it, and no call waits for that.
    world.fabric.refuse(SERVER, 0);
    sleep(milliseconds(60_000)).await;
    assert_eq!(world.client.stats().connections, 5);
    let after = world.taken().await;
    let new: BTreeSet<_> = connections(&after).difference(&connections(&before)).copied().collect();
    assert_eq!(new.len(), 1);
    for (key, connection) in &before {
        let own = if lost.contains(connection) { new.first().unwrap() } else { connection };
        assert_eq!(after[key], *own, "key {key}");
    }
    assert_eq!(world.monitor.stats().connections, 4);
}

/// Each fourth call would be that of the lost connection, and wait for a server that takes no connection.
#[tokio::test(start_paused = true)]
async fn calls_without_a_key_do_not_wait_for_a_lost_connection() {
    let world = world().await;
    world.taken().await;
    world.fabric.refuse(SERVER, usize::MAX);
    world.fabric.cut(1);
    sleep(milliseconds(10)).await;
    let began = Instant::now();
    for _ in 0..16 {
        world.client.call_raw(read(1)).await.unwrap();
    }
    assert!(began.elapsed() < milliseconds(100), "{:?}", began.elapsed());
    // The client opens the connection again as soon as the server lets it, and uses it.
    world.fabric.refuse(SERVER, 0);
    sleep(milliseconds(60_000)).await;
    assert_eq!(world.client.stats().connections, 5);
    for _ in 0..4 {
        world.client.call_raw(read(1)).await.unwrap();
    }
    let heard = world.program.heard();
    assert_eq!(heard[heard.len() - 4..].iter().map(|call| call.peer).collect::<BTreeSet<_>>().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn with_all_connections_lost_a_key_waits_for_its_own() {
    let world = world().await;
    world.taken().await;
    for connection in 0..4 {
        world.fabric.cut(connection);
    }
    sleep(milliseconds(10)).await;
    let handle = world.handle().key(3);
    handle.call_raw(read(1)).await.unwrap();
    let own = world.program.heard().last().unwrap().peer;
    handle.call_raw(read(1)).await.unwrap();
    assert_eq!(world.program.heard().last().unwrap().peer, own);
    assert_eq!(world.client.stats().connections, 5, "one connection was opened again");
}

/// The next attempt chooses anew: a connection that was lost under the first does not hold the call.
#[tokio::test(start_paused = true)]
async fn a_repeated_call_leaves_a_connection_that_is_down() {
    let world = world().await;
    let before = world.taken().await;
    world.fabric.refuse(SERVER, usize::MAX);
    let handle = world.handle().key(0).timeout(milliseconds(500)).retry(Retry::new(3));
    world.program.answers.lock().unwrap().push_back(super::Answer::Never);
    let (reply, ()) = tokio::join!(handle.call_raw(read(4)), async {
        sleep(milliseconds(50)).await;
        for connection in world.fabric.connections() {
            let of_key = before.values().filter(|peer| **peer == before[&0]).count();
            assert!(of_key > 0);
            // The ports of the client's ends follow the order of the connections.
            let mut ports: Vec<u16> = before.values().map(SocketAddr::port).collect();
            ports.sort_unstable();
            ports.dedup();
            if ports[usize::try_from(connection).unwrap()] == before[&0].port() {
                world.fabric.cut(connection);
            }
        }
    });
    assert_eq!(reply.unwrap().results.u32(), Ok(4));
    let heard = world.program.heard();
    let [.., first, second] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(first.peer, Some(before[&0]));
    assert_ne!(second.peer, first.peer);
}
