//! [`TlsStream`]: TLS on a TCP connection, between the socket and the records (RFC 9289 §5.1.1).
//!
//! The TLS engine is that of rustls, which does no I/O. Reads decrypt what the socket has, and copy it once to where the
//! record wants it. Writes encrypt up to [`WRITE`] bytes and count as written when their ciphertext has left. So the
//! timers of records judge the peer by bytes that it takes, as on plain TCP.
//!
//! *Buffers.* Ciphertext of both directions, and one record's plaintext: at most [`TLS_ROOM`] bytes. A server reserves
//! them in the share of the client's address before the handshake.
//!
//! *Errors.* A fault of TLS is an `io::Error` that holds the error of rustls ([`fault`]); its alert is sent. An end of the
//! socket without a closure alert is an error, so that nobody can cut a stream unnoticed.

use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_verbs::Reserved;
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, ClientConnection, Connection, ServerConnection};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::yield_now;

use super::stream::{ByteStream, linger};
use crate::tls::{ALPN, TlsClient, TlsPeer, TlsServer, name_of};

/// Most ciphertext read from the socket at a time, in bytes.
const READ: usize = 16 << 10;
/// Most bytes encrypted at a time.
const WRITE: usize = 32 << 10;
/// Most plaintext that one read returns, in bytes: its decryption must not take long.
const READ_STEP: usize = 64 << 10;
/// Most steps of decryption in one read. Records without data make steps, too.
const STEPS: usize = 64;
/// Memory that a connection under TLS holds at most, in bytes. It is the sum of [`READ`], of [`WRITE`] with its overhead, and
/// of what rustls keeps: two records of 16 KiB, and its state. While a handshake message of up to 64 KiB arrives, nothing else
/// waits.
pub(crate) const TLS_ROOM: usize = 128 << 10;

/// Bytes that a copy of a certificate takes beside its own length.
const CERTIFICATE_COST: usize = 64;

/// First byte of a TLS record with an alert (RFC 8446 §5.1).
const ALERT: u8 = 21;
/// First byte of a TLS record of the handshake.
const HANDSHAKE: u8 = 22;

/// A fault of TLS that rustls does not find.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// Bytes that are not TLS came after the probe. RFC 9289 §5.1.1: they are discarded without an answer.
    #[error("the peer sent something other than a TLS handshake")]
    Spurious,
    /// RFC 9289 §5: both sides have to name `sunrpc` by ALPN.
    #[error("the peer does not name \"sunrpc\" by ALPN")]
    NoAlpn,
}

/// TLS on a TCP connection.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Ciphertext that rustls has not taken yet lies in `start..end`; without any, the block is empty.
    block: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read stopped before it had taken all.
    more: bool,
    /// Whether the stream has failed. rustls then returns its error again.
    failed: bool,
    /// Bytes that are encrypted, and not reported as written.
    unreported: usize,
}

/// The socket as rustls writes to it.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether an error is a fault of TLS, and not of the link.
pub(crate) fn is_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>() || inner.is::<Fault>())
}

/// A fault of TLS at a client, with the remedy where one is known.
#[derive(Debug, Error)]
#[error("{}", explained(.0))]
pub(super) struct Explained(#[source] pub(super) io::Error);

/// Returns the words for a fault of TLS at a client, with the remedy where one is known.
fn explained(error: &io::Error) -> String {
    let fault = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match fault.and_then(remedy) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}

/// Returns the remedy for a fault that a client sees. An alert comes from the server, and is about this client's certificate.
fn remedy(error: &rustls::Error) -> Option<&'static str> {
    Some(match error {
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server demands a certificate of the client (mtls)"
        }
        rustls::Error::AlertReceived(AlertDescription::UnknownCA) => {
            "the client's certificate has to be from an authority of the server's (--tls-client-ca of rpcrdma serve)"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the client's certificate has ended, or the server's clock is fast: compare date -u"
        }
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => "the server refuses the client's certificate; its log says why",
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server speaks TLS for something other than RPC: is the port right?"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the client has to know the authority of the server's certificate (--tls-ca)"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "the server needs another certificate, unless this machine's clock is wrong: compare date -u",
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "call the server by a name in its certificate, or name that one (--tls-name)",
        _ => return None,
    })
}

fn fault(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

impl State {
    fn new(connection: impl Into<Connection>) -> Self {
        let mut connection = connection.into();
        connection.set_buffer_limit(Some(WRITE));
        Self { connection, block: Vec::new(), start: 0, end: 0, more: false, failed: false, unreported: 0 }
    }

    /// Reads ciphertext if none is here; returns the first byte, if there is any. At the end of the stream there is none.
    fn fill(&mut self, socket: &TcpStream) -> io::Result<Option<u8>> {
        if self.start == self.end {
            self.block.resize(READ, 0);
            (self.start, self.end) = (0, 0);
            match socket.try_read(&mut self.block) {
                Ok(count) => self.end = count,
                Err(error) => {
                    // A connection at rest holds no block.
                    self.block = Vec::new();
                    return Err(error);
                }
            }
        }
        Ok(self.block.get(self.start..self.end).and_then(<[u8]>::first).copied())
    }

    /// Gives rustls some ciphertext, or the end of the stream, and lets it work. Returns whether the peer has closed.
    fn decrypt(&mut self) -> io::Result<bool> {
        let mut bytes = self.block.get(self.start..self.end).unwrap_or_default();
        self.start += self.connection.read_tls(&mut bytes)?;
        self.connection.process_new_packets().map(|state| state.peer_has_closed()).map_err(fault)
    }

    /// Writes ciphertext until none is left or the socket takes none.
    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Socket(socket))?;
        }
        Ok(())
    }

    fn read(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // A fault that ends this read behind some data ends the next one, too.
        self.more = true;
        for _ in 0..STEPS {
            let room = buffer.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                break;
            }
            match self.connection.reader().read(room) {
                // A closure alert; what follows it does not count.
                Ok(0) => return Ok(filled),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return if filled > 0 { Ok(filled) } else { Err(error) },
            }
            if filled >= READ_STEP {
                break;
            }
            let filling = if self.failed { Ok(None) } else { self.fill(socket) };
            if let Err(error) = filling.and_then(|_| self.decrypt()) {
                if error.kind() == io::ErrorKind::WouldBlock {
                    self.more = false;
                } else {
                    self.failed = true;
                    // The alert. It is lost if the socket takes nothing more.
                    let _ = self.flush(socket);
                    // Records before the faulty one count.
                    let room = buffer.get_mut(filled..).unwrap_or_default();
                    filled += self.connection.reader().read(room).unwrap_or(0);
                }
                return if filled > 0 { Ok(filled) } else { Err(error) };
            }
        }
        if filled > 0 { Ok(filled) } else { Err(would_block()) }
    }

    fn write(&mut self, socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.unreported == 0 {
            // Alerts and changes of keys go first.
            self.flush(socket)?;
            self.unreported = self.connection.writer().write_vectored(slices)?;
        }
        let flushed = self.flush(socket);
        if let Err(error) = &flushed
            && error.kind() != io::ErrorKind::WouldBlock
        {
            return flushed.map(|()| 0);
        }
        // No more plaintext is left than ciphertext.
        let left = self.connection.process_new_packets().map_err(fault)?.tls_bytes_to_write();
        let written = self.unreported.saturating_sub(left);
        self.unreported -= written;
        if written > 0 { Ok(written) } else { Err(would_block()) }
    }
}

impl TlsStream {
    /// Begins a session as the server. [`handshake`](Self::handshake) comes next.
    pub(crate) fn server(socket: TcpStream, settings: &TlsServer) -> io::Result<Self> {
        let connection = ServerConnection::new(Arc::clone(&settings.config)).map_err(fault)?;
        Ok(Self { socket, state: Mutex::new(State::new(connection)) })
    }

    /// Begins a session as the client. [`handshake`](Self::handshake) comes next.
    pub(crate) fn client(socket: TcpStream, settings: &TlsClient) -> io::Result<Self> {
        let (config, name) = (Arc::clone(&settings.config), settings.name.clone());
        let connection = ClientConnection::new(config, name).map_err(fault)?;
        Ok(Self { socket, state: Mutex::new(State::new(connection)) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic rustls has an error state of its own.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the handshake. The caller limits its time.
    pub(crate) async fn handshake(&self) -> io::Result<()> {
        let mut first = true;
        loop {
            let step = self.handshake_step(&mut first);
            match step {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let wants_write = self.lock().connection.wants_write();
                    if wants_write {
                        self.socket.writable().await?;
                    } else {
                        self.socket.readable().await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes one step; returns whether the handshake is over.
    fn handshake_step(&self, first: &mut bool) -> io::Result<bool> {
        let mut state = self.lock();
        state.flush(&self.socket)?;
        if !state.connection.is_handshaking() {
            if state.connection.alpn_protocol() != Some(ALPN) {
                state.connection.send_close_notify();
                // Lost if the socket takes nothing more.
                let _ = state.flush(&self.socket);
                return Err(fault(Fault::NoAlpn));
            }
            state.more = true;
            return Ok(true);
        }
        match state.fill(&self.socket)? {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(HANDSHAKE) => {}
            // A server refuses a ClientHello by an alert.
            Some(ALERT) if matches!(state.connection, Connection::Client(_)) => {}
            Some(_) if *first => return Err(fault(Fault::Spurious)),
            Some(_) => {}
        }
        *first = false;
        let result = state.decrypt();
        if result.is_err() {
            // The alert.
            let _ = state.flush(&self.socket);
        }
        if result? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(false)
    }

    /// Returns who the peer is by its certificate, if it has shown one, and the cipher suite, both for the log.
    pub(crate) fn peer(&self) -> (Option<String>, String) {
        let state = self.lock();
        let name = |chain: &[CertificateDer<'_>]| chain.first().map(name_of);
        let peer = state.connection.peer_certificates().and_then(name);
        let suite = state.connection.negotiated_cipher_suite();
        (peer, suite.map(|suite| format!("{:?}", suite.suite())).unwrap_or_default())
    }

    /// Returns the memory of a copy of the peer's certificates in bytes; 0 if it has shown none.
    pub(crate) fn certificates_memory(&self) -> usize {
        let state = self.lock();
        let certificates = state.connection.peer_certificates().unwrap_or_default();
        certificates.iter().map(|certificate| certificate.len() + CERTIFICATE_COST).sum()
    }

    /// Returns what handlers may know of the client. Its certificates are among that if `room` has memory for them.
    pub(crate) fn client_facts(&self, room: Option<Reserved>) -> TlsPeer {
        let state = self.lock();
        let certificates = state.connection.peer_certificates().zip(room);
        let chain = certificates.map(|(chain, room)| (chain.to_vec(), room));
        let server_name = match &state.connection {
            Connection::Server(server) => server.server_name().map(str::to_owned),
            Connection::Client(_) => None,
        };
        let suite = state.connection.negotiated_cipher_suite();
        let suite = suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        TlsPeer::new(chain, server_name, suite)
    }

    /// Ends the session: sends a closure alert (RFC 9289 §5.1.1), if the socket takes it.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.connection.send_close_notify();
        let _ = state.flush(&self.socket);
    }

    /// Waits until the peer has closed ([`linger`]). The caller limits the time.
    pub(crate) async fn linger(&self) {
        linger(&self.socket).await;
    }
}

impl ByteStream for TlsStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lock().read(&self.socket, buffer)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.lock().write(&self.socket, slices)
    }

    async fn readable(&self) -> io::Result<()> {
        let more = self.lock().more;
        if more {
            // There may be data without any at the socket. Others have their turn before this is tried again.
            yield_now().await;
            return Ok(());
        }
        self.socket.readable().await
    }

    async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }
}

#[cfg(test)]
mod tests;
