//! A TCP proxy that cuts connections at random.

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

/// Octets moved at a time.
const PIECE: usize = 256 << 10;

/// Passes connections on; see [`Self::cut_one`].
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    live: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
    cuts: AtomicU64,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let live: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
        let into = Arc::clone(&live);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (cut, told) = oneshot::channel();
                let mut live = into.lock().unwrap_or_else(PoisonError::into_inner);
                live.retain(|cut| !cut.is_closed());
                live.push(cut);
                drop(live);
                tokio::spawn(pass(near, server, told));
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
        if live.swap_remove(at).send(()).is_ok() {
            self.cuts.fetch_add(1, Ordering::Relaxed);
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

async fn pass(mut near: TcpStream, server: SocketAddr, cut: oneshot::Receiver<()>) {
    let Ok(mut far) = TcpStream::connect(server).await else { return };
    for stream in [&near, &far] {
        // Without it only delay is lost.
        let _ = stream.set_nodelay(true);
    }
    tokio::select! {
        _ = copy_bidirectional_with_sizes(&mut near, &mut far, PIECE, PIECE) => {}
        Ok(()) = cut => {
            // Half of them end by a reset, in the middle of whatever was under way.
            if rand::rng().random() {
                for stream in [&near, &far] {
                    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                }
            }
        }
    }
}
