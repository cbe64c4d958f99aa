//! A TCP proxy that cuts connections at random, or loses the server's replies first.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
use socket2::SockRef;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Failure;

/// Bytes moved at a time.
const PIECE: usize = 256 << 10;

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Now,
    /// The proxy drops the server's bytes, and cuts the connection after this time.
    AfterSilence(Duration),
}

/// A proxy for connections to a server; see [`Self::cut_one`] and [`Self::silence_all`].
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    live: Arc<Mutex<Vec<oneshot::Sender<Cut>>>>,
    cuts: AtomicU64,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy that delays the beginning of each connection by `pause`.
    pub(crate) async fn start(server: SocketAddr, pause: Duration) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let live: Arc<Mutex<Vec<oneshot::Sender<Cut>>>> = Arc::default();
        let into = Arc::clone(&live);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (cut, told) = oneshot::channel();
                let mut live = into.lock().unwrap_or_else(PoisonError::into_inner);
                live.retain(|cut| !cut.is_closed());
                live.push(cut);
                drop(live);
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    pass(near, server, told).await;
                });
            }
        });
        Ok(Self { address, live, cuts: AtomicU64::new(0), accepting })
    }

    /// Cuts one connection, if there is one.
    pub(crate) fn cut_one(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|cut| !cut.is_closed());
        if live.is_empty() {
            return;
        }
        let at = rand::rng().random_range(0..live.len());
        if live.swap_remove(at).send(Cut::Now).is_ok() {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Loses all replies of all connections from now on, and cuts the connections after this time.
    pub(crate) fn silence_all(&self, silence: Duration) {
        let live = std::mem::take(&mut *self.live.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in live {
            let cut = connection.send(Cut::AfterSilence(silence)).is_ok();
            self.cuts.fetch_add(u64::from(cut), Ordering::Relaxed);
        }
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut near: TcpStream, server: SocketAddr, cut: oneshot::Receiver<Cut>) {
    let Ok(mut far) = TcpStream::connect(server).await else { return };
    for stream in [&near, &far] {
        // An error here only costs delay.
        let _ = stream.set_nodelay(true);
    }
    tokio::select! {
        _ = copy_bidirectional_with_sizes(&mut near, &mut far, PIECE, PIECE) => {}
        Ok(cut) = cut => {
            if let Cut::AfterSilence(silence) = cut {
                pass_calls_only(&mut near, &mut far, silence).await;
            }
            // Half of the connections end by a reset, in the middle of whatever is under way.
            if rand::rng().random() {
                for stream in [&near, &far] {
                    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                }
            }
        }
    }
}

/// Passes on the client's bytes, and discards the server's.
async fn pass_calls_only(near: &mut TcpStream, far: &mut TcpStream, time: Duration) {
    let (mut near, _) = near.split();
    let (mut server, mut far) = far.split();
    let mut nobody = tokio::io::sink();
    tokio::select! {
        _ = tokio::io::copy(&mut near, &mut far) => {}
        _ = tokio::io::copy(&mut server, &mut nobody) => {}
        () = tokio::time::sleep(time) => {}
    }
}
