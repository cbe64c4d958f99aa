//! Transport characteristics (xcharext-02, version-two-03) through the public functions `Client::ask`, `change` and
//! `notices`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PROGRAM, VERSION, echo, pattern, program};
use bytes::Bytes;
use rpcrdma::experimental::{Characteristic, Disposition, NotExchanged, Notice, Profile, Registered};
use rpcrdma::{Client, ClientConfig, Form, Server, ServerConfig, Transport, Versions};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::time::timeout;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// A number of the experimental range.
const OWN: u32 = 0xffff_ff01;
const LARGE: u32 = 65_536;

/// Returns a client that can take Receives of 64 KiB, connected to a server that can be asked for them. Both know
/// [`OWN`].
async fn pair(mode: CompletionMode, versions: Versions) -> (Fabric, Client) {
    let fabric = Fabric::on_tokio(FabricConfig { completion_mode: mode, seed: 1, ..FabricConfig::default() });
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    client.protocol.versions = versions;
    client.protocol.program = Some((PROGRAM, VERSION));
    server.protocol.versions = Versions::both(Profile::P1);
    if let Some(profile) = versions.profile() {
        server.protocol.versions = Versions::both(profile);
    }
    let large = usize::try_from(LARGE).unwrap();
    for (config, changeable) in [(&mut client.protocol, false), (&mut server.protocol, true)] {
        config.send_size = large;
        config.characteristics.most_receive_size = large;
        let value = Bytes::from_static(&[0, 0, 0, 7]);
        config.characteristics.register(Registered::new(OWN, value, changeable).unwrap()).unwrap();
    }
    let listener = fabric.listen(SERVER).unwrap();
    let server =
        Server::builder().config(server).program(program()).listen_rdma(Box::new(listener)).build().unwrap();
    tokio::spawn(async move { server.serve(std::future::pending()).await.unwrap() });
    tokio::task::yield_now().await;
    let client = Client::builder()
        .config(client)
        .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
        .connect(SERVER)
        .await
        .unwrap();
    (fabric, client)
}

/// Returns both documents, in both completion modes.
fn all() -> impl Iterator<Item = (CompletionMode, Versions)> {
    [CompletionMode::Local, CompletionMode::Acknowledged]
        .into_iter()
        .flat_map(|mode| [Profile::P1, Profile::P2].map(|profile| (mode, Versions::two(profile))))
}

/// Makes calls during `what`: arriving messages use up Receives of the old size.
async fn while_calling<T>(client: &Client, what: impl Future<Output = T>) -> T {
    let calls = async {
        loop {
            echo(client, b"").await.unwrap();
        }
    };
    let first = async {
        tokio::select! {
            done = what => done,
            () = calls => unreachable!("there is no end of calls"),
        }
    };
    timeout(Duration::from_secs(10), first).await.expect("it ends")
}

/// Waits for this notice.
async fn told(notices: &mut broadcast::Receiver<Notice>, wanted: &Notice) {
    while notices.recv().await.unwrap() != *wanted {}
}

/// xcharext-02 §4.2 to §4.4: a request for larger Receives is granted, and Calls that needed a chunk need none after it.
#[tokio::test(start_paused = true)]
async fn s4_2_the_server_is_asked_for_larger_receives() {
    for (mode, versions) in all() {
        let (_fabric, client) = pair(mode, versions).await;
        let data = pattern(20_000);
        let mut notices = client.rdma().unwrap().characteristics().notices();
        let before = echo(&client, &data).await.unwrap().travelled;
        assert_eq!(before.call.form, Form::Long);
        let size = Characteristic::ReceiveSize(LARGE);
        // version-two-03 has no changes for later: the answer itself waits.
        let answer = while_calling(&client, client.rdma().unwrap().characteristics().ask(vec![size.clone()]))
            .await
            .unwrap();
        let [(asked, disposition)] = &answer[..] else { panic!("{answer:?}") };
        assert_eq!(*asked, size);
        match disposition {
            Disposition::Done => {}
            Disposition::Pending => {
                let complete = Notice::Completed(size.clone());
                while_calling(&client, told(&mut notices, &complete)).await;
            }
            other => panic!("{other:?}"),
        }
        let after = echo(&client, &data).await.unwrap().travelled;
        assert_eq!(after.call.form, Form::Inline, "{versions:?}");
        let stats = client.rdma().unwrap().connection_stats().unwrap();
        assert_eq!(stats.thresholds.send, usize::try_from(LARGE).unwrap());
        client.close().await;
    }
}

/// xcharext-02 §3.1, §4.4: the client's own Receives grow. The client announces that to the server, and replies then
/// need no Reply chunk.
#[tokio::test(start_paused = true)]
async fn s4_4_the_client_changes_its_own_receives() {
    for (mode, versions) in all() {
        let (_fabric, client) = pair(mode, versions).await;
        let mut notices = client.rdma().unwrap().characteristics().notices();
        let data = pattern(20_000);
        assert_eq!(echo(&client, &data).await.unwrap().travelled.reply.form, Form::Long);
        let size = Characteristic::ReceiveSize(LARGE);
        client.rdma().unwrap().characteristics().change(size.clone()).unwrap();
        while_calling(&client, told(&mut notices, &Notice::Own(size))).await;
        // The announcement reaches the server in order, but a reply may be on its way.
        echo(&client, b"").await.unwrap();
        assert_eq!(echo(&client, &data).await.unwrap().travelled.reply.form, Form::Inline, "{versions:?}");
        let refused =
            client.rdma().unwrap().characteristics().change(Characteristic::ReceiveSize(4096)).unwrap_err();
        assert_eq!(refused, NotExchanged::Reduction { size: 4096, now: LARGE });
        client.close().await;
    }
}

/// xcharext-02 §2.1: a user's own characteristics are announced at the beginning, and changed on request if their owner
/// allows it.
#[tokio::test(start_paused = true)]
async fn s2_1_characteristics_of_ones_own() {
    for (mode, versions) in all() {
        let (_fabric, client) = pair(mode, versions).await;
        echo(&client, b"").await.unwrap();
        let own = |byte| Characteristic::Registered { id: OWN, data: Bytes::from(vec![0, 0, 0, byte]) };
        let stranger = Characteristic::Registered { id: OWN + 1, data: Bytes::new() };
        let answer = client.rdma().unwrap().characteristics().ask(vec![own(9)]).await.unwrap();
        assert_eq!(answer, [(own(9), Disposition::Done)]);
        assert_eq!(
            client.rdma().unwrap().characteristics().ask(vec![stranger.clone()]).await,
            Err(NotExchanged::Unknown(stranger))
        );
        client.close().await;
    }
}

/// Version One and TCP have no characteristics to ask for, and neither does a closed client.
#[tokio::test(start_paused = true)]
async fn nothing_is_exchanged_where_no_characteristics_are() {
    let size = Characteristic::ReceiveSize(LARGE);
    let (_fabric, client) = pair(CompletionMode::Local, Versions::ONE).await;
    echo(&client, b"").await.unwrap();
    assert_eq!(
        client.rdma().unwrap().characteristics().ask(vec![size.clone()]).await,
        Err(NotExchanged::NotSpoken)
    );
    assert_eq!(client.rdma().unwrap().characteristics().change(size.clone()), Err(NotExchanged::NotSpoken));
    client.close().await;

    let (_fabric, client) = pair(CompletionMode::Local, Versions::two(Profile::P1)).await;
    echo(&client, b"").await.unwrap();
    client.close().await;
    assert!(matches!(
        client.rdma().unwrap().characteristics().ask(vec![size.clone()]).await,
        Err(NotExchanged::NotSpoken | NotExchanged::Ended)
    ));
}

#[tokio::test]
async fn nothing_is_exchanged_over_tcp() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().program(program()).listen_tcp(listener).build().unwrap();
    tokio::spawn(async move { server.serve(std::future::pending()).await.unwrap() });
    let client = Client::builder().transport(Transport::tcp()).connect(address).await.unwrap();
    assert!(client.rdma().is_none());
    client.close().await;
}
