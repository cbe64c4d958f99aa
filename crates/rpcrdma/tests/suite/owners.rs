//! Programs on the server's own machine, and the users that they may claim to be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use crate::support::{echo_call, program, with};
use rpcrdma::{AuthSys, CallError, Client, ClientConfig, Credential, Server, ServerConfig, Transport};
use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener};
use rpcrdma_oncrpc::{AuthStat, Refused};
use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectionRequest, Incoming, Listener, TcpEnds};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// A user of this machine other than root.
const SOMEBODY: u32 = 65_533;

async fn serve(config: ServerConfig) -> [SocketAddr; 2] {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rdma = IwarpListener::bind(([127, 0, 0, 1], 0).into(), Config::default()).await.unwrap();
    let builder = Server::builder().config(config).program(program()).listen_tcp(tcp);
    let server = builder.listen_rdma(Box::new(rdma)).build().unwrap();
    let addresses = [server.tcp_addresses().unwrap()[0], server.rdma_addresses().unwrap()[0]];
    tokio::spawn(server.serve(std::future::pending()));
    addresses
}

/// Runs a job on a thread that acts as another user; its sockets then belong to that user.
async fn acting<T, F>(user: u32, job: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let run = move || {
        if geteuid().is_root() {
            set_thread_res_uid(None, Uid::from_raw(user), None).unwrap();
        }
        Builder::new_current_thread().enable_all().build().unwrap().block_on(job())
    };
    tokio::task::spawn_blocking(|| thread::spawn(run).join().unwrap()).await.unwrap()
}

/// Returns the server's answers to a user who claims to be another, over TCP and over iWARP.
async fn claim([tcp, rdma]: [SocketAddr; 2], owner: u32, uid: u32) -> [Result<(), CallError>; 2] {
    acting(owner, move || async move {
        let credential = Credential::Sys(AuthSys { uid, ..AuthSys::default() });
        let config = ClientConfig::default;
        let iwarp = Arc::new(IwarpConnector::default());
        let clients = [
            Client::builder().config(config()).transport(Transport::tcp()).connect(tcp).await.unwrap(),
            Client::builder()
                .config(config())
                .transport(Transport::rdma_on(iwarp))
                .connect(rdma)
                .await
                .unwrap(),
        ];
        let mut answers = Vec::new();
        for client in &clients {
            answers.push(client.call_raw(echo_call(b"x").credential(credential.clone())).await.map(drop));
            client.close().await;
        }
        <[_; 2]>::try_from(answers).unwrap()
    })
    .await
}

fn is_refused(answer: &Result<(), CallError>) -> bool {
    matches!(answer, Err(CallError::Refused(Refused::AuthError(AuthStat::TooWeak))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_this_machine_claims_no_other_user() {
    // A process of an ordinary user cannot make another user's sockets, so its own user serves as the other one.
    let own = geteuid();
    let somebody = if own.is_root() { SOMEBODY } else { own.as_raw() };
    let addresses = serve(ServerConfig::default()).await;
    for uid in [0, somebody + 1] {
        let answers = claim(addresses, somebody, uid).await;
        assert!(answers.iter().all(is_refused), "{uid}: {answers:?}");
    }
    let answers = claim(addresses, somebody, somebody).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    if own.is_root() {
        let answers = claim(addresses, 0, somebody).await;
        assert!(answers.iter().all(Result::is_ok), "root speaks for its users: {answers:?}");
    }
    // With the check off, the server believes every claim.
    let addresses = serve(with(ServerConfig::default(), |config| config.local_owners = false)).await;
    let answers = claim(addresses, somebody, somebody + 1).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// The kernel reports such a socket as root's: a call that is left behind must not be carried out as root's.
#[tokio::test]
async fn i6_a_connection_that_nobody_has_any_more_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().program(program()).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    let mut left = TcpStream::connect(address).await.unwrap();
    left.write_all(&[0; 64]).await.unwrap();
    drop(left);
    tokio::spawn(server.serve(std::future::pending()));
    let mut stays = TcpStream::connect(address).await.unwrap();
    while monitor.stats().accepted + monitor.stats().refused < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!((monitor.stats().refused, monitor.stats().accepted), (1, 1));
    // The other connection is served.
    stays.shutdown().await.unwrap();
    assert_eq!(stays.read(&mut [0; 8]).await.unwrap(), 0);
}

/// A link over TCP whose ends the kernel does not report.
struct Endless;

impl Incoming for Endless {
    fn peer_address(&self) -> Option<SocketAddr> {
        Some(([192, 0, 2, 1], 700).into())
    }

    fn tcp_ends(&self) -> io::Result<Option<TcpEnds>> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(std::future::pending())
    }
}

/// A listener that accepts one such link.
struct Once(Option<Endless>);

impl Listener for Once {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        match self.0.take() {
            Some(link) => Box::pin(std::future::ready(Ok(Box::new(link) as Box<dyn Incoming>))),
            None => Box::pin(std::future::pending()),
        }
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(([192, 0, 2, 2], 20_049).into())
    }
}

#[tokio::test]
async fn i6_a_link_whose_ends_are_not_known_is_not_served() {
    for (local_owners, counted) in [(true, (1, 0)), (false, (0, 1))] {
        let mut config = ServerConfig::default();
        config.local_owners = local_owners;
        let builder = Server::builder().config(config).program(program());
        let server = builder.listen_rdma(Box::new(Once(Some(Endless)))).build().unwrap();
        let monitor = server.monitor();
        tokio::spawn(server.serve(std::future::pending()));
        while monitor.stats().accepted + monitor.stats().refused == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((monitor.stats().refused, monitor.stats().accepted), counted);
    }
}
