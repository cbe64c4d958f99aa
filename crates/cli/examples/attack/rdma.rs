//! Attacks over RDMA: floods of calls, and connections whose link accepts none of the replies.
//!
//! The calls are those of the ordinary client, so they keep to its credits. A relay carries the link from an
//! address of its choice. It can stop reading data of the server.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma::{Call as RpcCall, CallError, Client, ClientConfig};
use rpcrdma_nfs::wire::{
    FileHandle, GetattrArgs, LookupArgs, NFS_PROGRAM, NFS_VERSION, ReadArgs, ReaddirplusArgs, WriteArgs,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::{flood, hoard, rpc};

/// Call that an attacker repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// WRITE of this many bytes, FILE_SYNC, to one file.
    Write(FileHandle, u32),
    /// READDIRPLUS of a large directory.
    List(FileHandle),
    /// LOOKUP of a missing name.
    Lookup(FileHandle),
    /// GETATTR.
    Getattr(FileHandle),
    /// READ of 1 MiB.
    Read(FileHandle),
}

impl Call {
    fn call(self, number: u32) -> Result<RpcCall, CallError> {
        match self {
            Self::Write(file, count) => RpcCall::of::<WriteArgs>(&flood::write(file, number, count)),
            Self::List(dir) => RpcCall::of::<ReaddirplusArgs>(&hoard::list(dir)),
            Self::Lookup(dir) => RpcCall::of::<LookupArgs>(&flood::lookup(dir, number)),
            Self::Getattr(object) => RpcCall::of::<GetattrArgs>(&GetattrArgs { object }),
            Self::Read(file) => RpcCall::of::<ReadArgs>(&ReadArgs { file, offset: 0, count: 1 << 20 }),
        }
    }
}

/// Relays to the server from 192.0.2.`source`. Once `deaf` is true, the relay reads nothing more from the
/// server.
async fn relay(to: SocketAddr, source: u8, deaf: watch::Receiver<bool>) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let deaf = deaf.clone();
            tokio::spawn(async move {
                // An error ends the link on both sides.
                let _ = pass(near, to, source, deaf).await;
            });
        }
    });
    Ok(address)
}

async fn pass(
    near: TcpStream,
    to: SocketAddr,
    source: u8,
    mut deaf: watch::Receiver<bool>,
) -> Result<(), Failure> {
    near.set_nodelay(true)?;
    let far = rpc::connect_narrow(source, to).await?;
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let up = async {
        tokio::io::copy(&mut near_read, &mut far_write).await?;
        Ok::<_, Failure>(())
    };
    let down = async {
        let heard = async {
            // Without a sender the attack is over.
            let _ = deaf.wait_for(|deaf| *deaf).await;
        };
        tokio::select! {
            copied = tokio::io::copy(&mut far_read, &mut near_write) => {
                copied?;
            }
            () = heard => std::future::pending().await,
        }
        near_write.shutdown().await?;
        Ok::<_, Failure>(())
    };
    tokio::try_join!(up, down)?;
    Ok(())
}

async fn client(address: SocketAddr) -> Result<Client, Failure> {
    let mut config = ClientConfig::default();
    config.memory = 128 << 20;
    config.protocol.timeouts.connect = Duration::from_secs(5);
    Ok(Client::builder().config(config).connect(address).await?)
}

/// Keeps `window` calls in flight on each of `count` connections from 192.0.2.`source`.
pub(crate) async fn flood(
    to: SocketAddr,
    source: u8,
    count: u32,
    window: u32,
    call: Call,
    length: Duration,
) -> Result<(), Failure> {
    let (hearing, deaf) = watch::channel(false);
    let address = relay(to, source, deaf).await?;
    let work = async {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let Ok(client) = client(address).await else { continue };
            for lane in 0..window {
                let client = client.clone();
                tasks.spawn(async move {
                    let mut number = number << 20 | lane << 12;
                    while let Ok(call) = call.call(number) {
                        // After the error of a call the attack goes on.
                        let _ = client.call_raw(call).await;
                        number += 1;
                    }
                });
            }
        }
        while tasks.join_next().await.is_some() {}
    };
    let _ = timeout(length, work).await;
    drop(hearing);
    Ok(())
}

/// Opens `count` connections of each address that read no reply. Each has as many calls in flight as credits.
pub(crate) async fn unread(
    to: SocketAddr,
    sources: std::ops::RangeInclusive<u8>,
    count: u32,
    call: Call,
    length: Duration,
) -> Result<(), Failure> {
    let (hearing, deaf) = watch::channel(false);
    let work = async {
        let mut tasks = JoinSet::new();
        let mut clients = Vec::new();
        for source in sources {
            let address = relay(to, source, deaf.clone()).await?;
            for _ in 0..count {
                let Ok(client) = client(address).await else { continue };
                // The first reply brings the credits.
                if client.null(NFS_PROGRAM, NFS_VERSION).await.is_ok() {
                    clients.push(client);
                }
            }
        }
        hearing.send(true)?;
        for client in clients {
            for number in 0..64 {
                let (client, call) = (client.clone(), call.call(number)?);
                tasks.spawn(async move { client.call_raw(call).await });
            }
        }
        sleep(length).await;
        Ok::<_, Failure>(())
    };
    // The set-up of many connections takes time of its own.
    timeout(length + Duration::from_secs(20), work).await??;
    Ok(())
}
