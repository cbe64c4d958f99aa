//! The other client: calls GETATTR from an address of its own, and notes the delay of each reply.
//!
//! This client is a thread with blocking sockets, so that the attack's runtime does not delay it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rpcrdma_nfs::mount::MountResult;
use rpcrdma_nfs::wire::{DirOpArgs, FileHandle, FileName, GetattrArgs, LookupArgs, LookupResult, NfsResult};
use rpcrdma_oncrpc::ReplyHeader;
use rpcrdma_xdr::{Decode, Decoder};
use socket2::{Domain, Socket, Type};

use crate::Failure;
use crate::network::address;
use crate::rpc::{self, REPLY_MAX};

/// Last byte of the client's address.
pub(crate) const ADDRESS: u8 = 99;
/// Pause between two calls.
const PAUSE: Duration = Duration::from_millis(4);
/// Longest delay that is noted; a reply that takes longer counts as this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection with one call in flight.
pub(crate) struct Caller {
    stream: TcpStream,
    xid: u32,
}

impl Caller {
    pub(crate) fn connect(to: SocketAddr) -> Result<Self, Failure> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((address(ADDRESS), 0)).into())?;
        socket.connect(&to.into())?;
        socket.set_tcp_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: socket.into(), xid: 0 })
    }

    /// Sends a record and decodes the reply behind its header.
    fn call<T: Decode>(
        &mut self,
        record: impl FnOnce(u32) -> Result<Vec<u8>, Failure>,
    ) -> Result<T, Failure> {
        self.xid += 1;
        self.stream.write_all(&record(self.xid)?)?;
        let mut word = [0; 4];
        self.stream.read_exact(&mut word)?;
        let length = usize::try_from(u32::from_be_bytes(word) & 0x7fff_ffff)?;
        if length > REPLY_MAX {
            return Err(format!("a reply of {length} bytes; at most {REPLY_MAX} are allowed").into());
        }
        let mut reply = vec![0; length];
        self.stream.read_exact(&mut reply)?;
        let mut decoder = Decoder::new(reply.into());
        decoder.decode::<ReplyHeader>()?.success()?;
        Ok(decoder.decode_all()?)
    }

    /// Returns the handle of an export.
    pub(crate) fn mount(&mut self, path: &str) -> Result<FileHandle, Failure> {
        match self.call(|xid| rpc::mnt(xid, path.as_bytes()))? {
            MountResult::Ok(ok) => Ok(ok.handle),
            MountResult::Fail(status) => Err(format!("MNT {path}: {status}").into()),
        }
    }

    /// Returns the handle of an entry.
    pub(crate) fn lookup(&mut self, dir: FileHandle, name: &str) -> Result<FileHandle, Failure> {
        let what = DirOpArgs { dir, name: FileName::new(name.as_bytes()) };
        match self.call::<LookupResult>(|xid| rpc::nfs(xid, &LookupArgs { what: what.clone() }))? {
            NfsResult::Ok(ok) => Ok(ok.object),
            NfsResult::Fail { status, .. } => Err(format!("LOOKUP {name}: {status}").into()),
        }
    }

    fn getattr(&mut self, object: FileHandle) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let results: rpcrdma_nfs::wire::GetattrResult =
            self.call(|xid| rpc::nfs(xid, &GetattrArgs { object }))?;
        match results {
            NfsResult::Ok(_) => Ok(begun.elapsed()),
            NfsResult::Fail { status, .. } => Err(format!("GETATTR: {status}").into()),
        }
    }
}

/// Measured delays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) median: Duration,
    pub(crate) longest: Duration,
}

/// Thread that calls until it is stopped.
pub(crate) struct Victim {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>, Failure>>,
}

impl Victim {
    pub(crate) fn start(mut caller: Caller, object: FileHandle) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !end.load(Ordering::Relaxed) {
                match caller.getattr(object) {
                    Ok(delay) => seen.push(delay),
                    Err(error) => {
                        // A failed call counts as the longest delay.
                        eprintln!("the other client's GETATTR failed: {error}");
                        seen.push(PATIENCE);
                        return Ok(seen);
                    }
                }
                std::thread::sleep(PAUSE);
            }
            Ok(seen)
        });
        Self { ended, thread }
    }

    /// Makes the thread end after the call in flight.
    pub(crate) fn tell(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn delays(self) -> Result<Delays, Failure> {
        self.tell();
        let mut seen = self.thread.join().map_err(|_| "the other client's thread panicked")??;
        seen.sort();
        let longest = *seen.last().ok_or("the other client made no call")?;
        let median = *seen.get(seen.len() / 2).ok_or("the other client made no call")?;
        Ok(Delays { median, longest })
    }
}
