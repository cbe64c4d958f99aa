//! A proxy between two ends of iWARP that injects faults.
//!
//! It forwards complete MPA frames and FPDUs, so it can parse the stream. It can reset a connection in the middle of a
//! certain segment, independent of the network's timing. It can hold one direction back, so that calls stay outstanding
//! for as long as a case needs. Each forwarded item starts a TCP segment, as siw requires.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rpcrdma_capture::session::{Kind, Splitter};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::ddp::HeaderView;
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::rdmap::{Opcode, opcode};
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::Codec as _;
use rpcrdma_proto::wire::v1::V1;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::failure::{Context, Failure};

/// Interval at which a thread checks its orders.
const TICK: Duration = Duration::from_millis(5);
/// The program of the procedures in [`Proxy::hold_at`].
const NFS_PROGRAM: u32 = 100_003;
const NFS_VERSION: u32 = 3;
/// Maximum number of bytes of one read.
const READ: usize = 64 * 1024;

/// Position at which a connection is cut: in the middle of an FPDU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Sender of the segment.
    pub(crate) from: Side,
    /// Opcode of the segment.
    pub(crate) opcode: Opcode,
    /// Number of the segment among those of the opcode, from 1 in each connection.
    pub(crate) number: usize,
}

/// Not a procedure of NFS version 3.
const NOTHING: u32 = u32::MAX;

#[derive(Debug)]
struct Orders {
    /// For the next connections, in order; connections without a cut are not cut.
    cuts: Mutex<Vec<Cut>>,
    cuts_made: AtomicUsize,
    connections: AtomicUsize,
    /// FPDUs of servers that were held back; they are lost if the connection ends.
    held: AtomicUsize,
    hold: AtomicBool,
    /// A call of this procedure of NFS version 3 switches `hold` on; [`NOTHING`] disables this.
    hold_at: AtomicU32,
    /// Current epoch: connections of an older epoch end.
    epoch: AtomicUsize,
    stop: AtomicBool,
}

/// A proxy in front of a server; see the module.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Port on which the proxy listens.
    pub(crate) port: u16,
    orders: Arc<Orders>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Forwards connections from `port` of this address to its port `target`. The first connections that get that far
    /// are cut according to `cuts`.
    pub(crate) fn start(address: Ipv4Addr, port: u16, target: u16, cuts: &[Cut]) -> Result<Self, Failure> {
        let listener = TcpListener::bind((address, port)).context(format!("a proxy on port {port}"))?;
        listener.set_nonblocking(true)?;
        let orders = Arc::new(Orders {
            cuts: Mutex::new(cuts.to_vec()),
            cuts_made: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            hold: AtomicBool::new(false),
            hold_at: AtomicU32::new(NOTHING),
            epoch: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&orders);
        let listener = thread::spawn(move || {
            while !shared.stop.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((client, _)) => shared.open(client, (address, target)),
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
        Ok(Self { port, orders, listener: Some(listener) })
    }

    /// Returns the number of connections that were cut in the middle of an FPDU so far.
    pub(crate) fn cuts_made(&self) -> usize {
        self.orders.cuts_made.load(Ordering::SeqCst)
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.orders.connections.load(Ordering::SeqCst)
    }

    /// Holds back the messages of servers from now on, or releases them.
    pub(crate) fn hold(&self, hold: bool) {
        self.orders.hold.store(hold, Ordering::SeqCst);
    }

    /// Holds back the messages of servers as soon as a client calls this procedure of NFS version 3 by a Send. At the
    /// latest this holds back the reply to this call.
    pub(crate) fn hold_at(&self, procedure: u32) {
        self.orders.held.store(0, Ordering::SeqCst);
        self.orders.hold_at.store(procedure, Ordering::SeqCst);
    }

    /// Returns the number of FPDUs of servers that were held back since the last [`Proxy::hold_at`].
    pub(crate) fn held(&self) -> usize {
        self.orders.held.load(Ordering::SeqCst)
    }

    /// Resets all connections, at both ends.
    pub(crate) fn reset(&self) {
        self.orders.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::SeqCst);
        self.reset();
        if let Some(listener) = self.listener.take() {
            // The thread does not panic; if it did, the case has reported it.
            let _ = listener.join();
        }
    }
}

impl Orders {
    fn open(self: &Arc<Self>, client: TcpStream, target: (Ipv4Addr, u16)) {
        // If the server cannot be reached, the client gets a reset, as from a port without a listener.
        let _ = rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
        let Ok(server) = TcpStream::connect(target) else { return };
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = if cuts.is_empty() { None } else { Some(cuts.remove(0)) };
        drop(cuts);
        for stream in [&client, &server] {
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_nodelay(true);
            let _ = stream.set_read_timeout(Some(TICK));
            let _ = stream.set_write_timeout(Some(TICK));
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
        let epoch = self.epoch.load(Ordering::SeqCst);
        let ended = Arc::new(AtomicBool::new(false));
        // Shared, not duplicated: dropping the last reference resets the socket.
        let (client, server) = (Arc::new(client), Arc::new(server));
        for (from, source, sink) in [(Side::Client, &client, &server), (Side::Server, &server, &client)] {
            let direction = Direction {
                from,
                source: Arc::clone(source),
                sink: Arc::clone(sink),
                cut: cut.filter(|cut| cut.from == from),
                seen: 0,
                epoch,
                ended: Arc::clone(&ended),
                orders: Arc::clone(self),
            };
            thread::spawn(move || direction.run());
        }
    }
}

/// A direction of a connection.
struct Direction {
    from: Side,
    source: Arc<TcpStream>,
    sink: Arc<TcpStream>,
    cut: Option<Cut>,
    seen: usize,
    epoch: usize,
    ended: Arc<AtomicBool>,
    orders: Arc<Orders>,
}

impl Direction {
    fn over(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.orders.epoch.load(Ordering::SeqCst) != self.epoch
    }

    fn run(mut self) {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; READ];
        while !self.over() {
            let count = match (&*self.source).read(&mut buffer) {
                Ok(0) => {
                    // A graceful end is passed on as one.
                    let _ = self.sink.shutdown(Shutdown::Write);
                    self.hand_back();
                    return;
                }
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => break,
            };
            let mut items = Vec::new();
            splitter.feed(buffer.get(..count).unwrap_or_default(), &mut |kind, bytes| {
                items.push((kind, bytes));
            });
            if !items.into_iter().all(|(kind, bytes)| self.pass(kind, &bytes)) {
                break;
            }
        }
        self.ended.store(true, Ordering::SeqCst);
        self.hand_back();
    }

    /// Returns the cut of a connection that ended before it, for the next connection.
    fn hand_back(&mut self) {
        if let Some(cut) = self.cut.take().filter(|cut| self.seen < cut.number) {
            self.orders.cuts.lock().unwrap_or_else(PoisonError::into_inner).insert(0, cut);
        }
    }

    /// Forwards an item; `false` ends the connection.
    fn pass(&mut self, kind: Kind, bytes: &[u8]) -> bool {
        if self.from == Side::Server && self.orders.hold.load(Ordering::SeqCst) {
            self.orders.held.fetch_add(1, Ordering::SeqCst);
            while self.orders.hold.load(Ordering::SeqCst) && !self.over() {
                thread::sleep(TICK);
            }
            // A case that resets and then releases wants the held messages to be lost.
            if self.over() {
                return false;
            }
        }
        if self.from == Side::Client
            && let Some(procedure) = called(bytes)
            && self
                .orders
                .hold_at
                .compare_exchange(procedure, NOTHING, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            self.orders.hold.store(true, Ordering::SeqCst);
        }
        let segment_of = (kind == Kind::Fpdu).then(|| opcode_of(bytes)).flatten();
        if let Some(cut) = self.cut
            && segment_of == Some(cut.opcode)
        {
            self.seen += 1;
            if self.seen == cut.number {
                let _ = self.forward(bytes.get(..bytes.len() / 2).unwrap_or_default());
                self.orders.cuts_made.fetch_add(1, Ordering::SeqCst);
                return false;
            }
        }
        self.forward(bytes).is_ok()
    }

    /// Sends so that the next item starts a TCP segment.
    fn forward(&self, mut bytes: &[u8]) -> rustix::io::Result<()> {
        while !bytes.is_empty() {
            match rustix::net::send(&*self.sink, bytes, SendFlags::NOSIGNAL | SendFlags::EOR) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) if !self.over() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn opcode_of(fpdu: &[u8]) -> Option<Opcode> {
    let header = HeaderView::new(FpduView::new(fpdu).ulpdu()?);
    let control = if header.is_tagged()? { header.tagged()?.control } else { header.untagged()?.control };
    opcode(control).ok()
}

/// Returns the procedure of NFS version 3 that an FPDU calls.
fn called(fpdu: &[u8]) -> Option<u32> {
    if opcode_of(fpdu)? != Opcode::Send {
        return None;
    }
    let message = HeaderView::new(FpduView::new(fpdu).ulpdu()?).payload()?;
    let (header, len) = V1.decode(message, &Limits::default()).ok()?;
    let words = message.get(len..)?.get(..24)?;
    // RFC 5531 §9: XID, CALL, RPC version, program, version, procedure.
    let mut words = words.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    let call = [header.xid, 0, 2, NFS_PROGRAM, NFS_VERSION];
    call.iter().all(|word| words.next() == Some(*word)).then(|| words.next()).flatten()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rpcrdma_iwarp::wire::ddp::{Tagged, Untagged};
    use rpcrdma_iwarp::wire::fpdu::seal;

    use super::*;

    const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x00";

    fn write_segment(payload: usize) -> Vec<u8> {
        let header = Tagged { last: true, control: Opcode::Write.control(), stag: 1, offset: 0 };
        seal(&[&header.encode()[..], &vec![7; payload]].concat(), true).unwrap()
    }

    fn send_segment() -> Vec<u8> {
        let control = Opcode::Send.control();
        let header = Untagged { last: true, control, invalidate: 0, queue: 0, msn: 1, offset: 0 };
        seal(&header.encode(), true).unwrap()
    }

    /// Returns a proxy, and both ends of a connection through it.
    fn through(cuts: &[Cut]) -> (Proxy, TcpStream, TcpStream) {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let proxy =
            Proxy::start(Ipv4Addr::LOCALHOST, port, target.local_addr().unwrap().port(), cuts).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (server, _) = target.accept().unwrap();
        (proxy, client, server)
    }

    #[test]
    fn a_connection_is_reset_in_the_middle_of_the_segment_that_was_named() {
        let cut = Cut { from: Side::Client, opcode: Opcode::Write, number: 2 };
        let (proxy, mut client, mut server) = through(&[cut]);
        let segment = write_segment(100);
        let all = [REQUEST, &segment, &send_segment(), &segment, &segment].concat();
        client.write_all(&all).unwrap();
        let mut seen = Vec::new();
        let error = server.read_to_end(&mut seen).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let whole = REQUEST.len() + segment.len() + send_segment().len();
        // The half FPDU may be lost with the reset.
        assert!(seen.len() == whole + segment.len() / 2 || seen.len() == whole || seen.is_empty());
        assert_eq!(seen[..], all[..seen.len()]);
        assert_eq!((proxy.cuts_made(), proxy.connections()), (1, 1));
    }

    #[test]
    fn what_the_server_sends_is_held_until_it_is_let_go() {
        let (proxy, mut client, mut server) = through(&[]);
        proxy.hold(true);
        let reply = b"MPA ID Rep Frame\x10\x02\x00\x00";
        server.write_all(reply).unwrap();
        while proxy.held() == 0 {
            thread::sleep(TICK);
        }
        client.set_read_timeout(Some(TICK)).unwrap();
        let mut seen = [0; 20];
        assert!(client.read(&mut seen).is_err());
        proxy.hold(false);
        client.set_read_timeout(None).unwrap();
        client.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, reply);
        proxy.reset();
        assert_eq!(client.read(&mut seen).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(server.read(&mut seen).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
