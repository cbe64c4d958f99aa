//! The server's half of the benchmark: a thread with a runtime of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rpcrdma::{PeerShares, Server, ServerConfig, ServerMonitor};
use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, MemoryFs, MemoryOptions, StateDirectory};
use rpcrdma_nfs::server::{Export, HandleKey, NfsServer, ServerOptions, Squash};
use rpcrdma_verbs::ProtectionDomain;
use rustix::thread::{Pid, gettid};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::program::{Transfers, transfers};
use super::{Ends, MEMORY_EXPORT, failed, streams, tcp};
use crate::exit::Failure;

/// Memory of the server for payloads, in bytes.
const POOL: usize = 256 << 20;

/// Addresses of the listeners, and the thread that serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) base: SocketAddr,
    pub(super) streams: SocketAddr,
    pub(super) nfs_rdma: SocketAddr,
    pub(super) nfs_tcp: SocketAddr,
    /// Name of the RDMA provider.
    pub(super) provider: &'static str,
    /// Thread that serves.
    pub(super) thread: Pid,
}

/// Running server; stops when dropped.
pub(super) struct BenchServer {
    pub(super) addresses: Addresses,
    pub(super) monitor: ServerMonitor,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BenchServer {
    /// Starts to serve `directory` as `/` and a file system in memory as [`MEMORY_EXPORT`]. Settings not
    /// changed here have their defaults.
    pub(super) fn start(
        ends: &Ends,
        directory: &Path,
        state: &Path,
        configure: impl FnOnce(&mut ServerConfig) + Send + 'static,
    ) -> Result<Self, Failure> {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let (ends, directory, state) = (ends.clone(), directory.to_owned(), state.to_owned());
        let thread = std::thread::Builder::new()
            .name("bench-server".to_owned())
            .spawn(move || {
                let result = {
                    // It is dropped on the thread of its clients, so none of them takes part in an orderly end.
                    let mut config = ServerConfig::default();
                    config.grace = Duration::ZERO;
                    configure(&mut config);
                    serve(&ends, &directory, &state, config, stopped, |ready| drop(tell.send(Ok(ready))))
                };
                if let Err(failure) = result {
                    drop(tell.send(Err(failure)));
                }
            })
            .map_err(failed("start the server's thread"))?;
        let (addresses, monitor) = told.recv().map_err(failed("start the server"))??;
        Ok(Self { addresses, monitor, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panics reports it.
            let _ = thread.join();
        }
    }
}

fn serve(
    ends: &Ends,
    directory: &Path,
    state: &Path,
    config: ServerConfig,
    stopped: oneshot::Receiver<()>,
    ready: impl FnOnce((Addresses, ServerMonitor)),
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start the server's runtime"))?;
    runtime.block_on(async {
        // A single address makes all connections.
        let shares = PeerShares::new(ProtectionDomain::new(POOL), POOL);
        let state = StateDirectory::open(state).map_err(failed("open the state directory"))?;
        let files = DirectoryFs::open(directory, &state, DirectoryOptions::default())
            .map_err(failed("export the directory"))?;
        let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
        let exports = [
            Export::new("/", Arc::new(files)),
            Export::new(MEMORY_EXPORT, Arc::new(MemoryFs::new(MemoryOptions::default()))),
        ];
        let exports = exports.map(|mut export| {
            export.squash = Squash::Nobody;
            export
        });
        let nfs = NfsServer::new(HandleKey::random(), exports.into(), options).map_err(failed("export"))?;

        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let base = TcpListener::bind(any).await.map_err(failed("listen"))?;
        let (raw, provider) = ends.listen().await?;
        let (nfs_rdma, _) = ends.listen().await?;
        let nfs_tcp = TcpListener::bind(any).await.map_err(failed("listen"))?;
        let addresses = Addresses {
            base: base.local_addr().map_err(failed("listen"))?,
            streams: raw.local_address().map_err(failed("listen"))?,
            nfs_rdma: nfs_rdma.local_address().map_err(failed("listen"))?,
            nfs_tcp: nfs_tcp.local_addr().map_err(failed("listen"))?,
            provider,
            thread: gettid(),
        };
        let server = Server::builder()
            .config(config)
            .shares(shares)
            .program(nfs.nfs_program())
            .program(nfs.mount_program())
            .program(Arc::new(transfers::serve(Transfers::default())))
            .listen_rdma(nfs_rdma)
            .listen_tcp(nfs_tcp)
            .build()
            .map_err(failed("serve"))?;
        tokio::spawn(tcp::serve(base, tcp::open_door()));
        tokio::spawn(streams::serve(raw, ProtectionDomain::new(POOL)));
        ready((addresses, server.monitor()));
        // Dropping the sender stops the server.
        server.serve(async { drop(stopped.await) }).await.map_err(failed("serve"))
    })
}
