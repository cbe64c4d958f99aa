//! Hand-made peers: RPC words on a socket, and TLS by rustls without the code under test.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rpcrdma_oncrpc::{OpaqueAuth, ReplyHeader};
use rpcrdma_xdr::Decoder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, Connection, RootCertStore, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::certificates::{Authority, Certified, NAME};
use crate::support::raw::words;
use crate::support::{PROGRAM, VERSION};

pub(super) const AUTH_TLS: u32 = 7;

/// Returns the record of a call without arguments.
pub(super) fn record(
    xid: u32,
    program: u32,
    procedure: u32,
    credential: (u32, &[u32]),
    verifier: (u32, &[u32]),
) -> Vec<u8> {
    let auth = |(flavor, body): (u32, &[u32])| {
        [vec![flavor, u32::try_from(body.len() * 4).unwrap()], body.to_vec()].concat()
    };
    let message = [vec![xid, 0, 2, program, VERSION, procedure], auth(credential), auth(verifier)].concat();
    framed(&words(&message))
}

/// Returns a message as a record.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let header = 0x8000_0000 | u32::try_from(message.len()).unwrap();
    [&header.to_be_bytes()[..], message].concat()
}

/// Returns the record of a probe.
pub(super) fn probe(xid: u32) -> Vec<u8> {
    record(xid, PROGRAM, 0, (AUTH_TLS, &[]), (0, &[]))
}

/// Returns the record of a call without credential.
pub(super) fn plain(xid: u32, procedure: u32) -> Vec<u8> {
    record(xid, PROGRAM, procedure, (0, &[]), (0, &[]))
}

/// Reads a record of one fragment.
pub(super) async fn next(stream: &mut TcpStream) -> Vec<u8> {
    let header = stream.read_u32().await.unwrap();
    assert_ne!(header & 0x8000_0000, 0, "one fragment");
    let mut message = vec![0; usize::try_from(header & 0x7fff_ffff).unwrap()];
    stream.read_exact(&mut message).await.unwrap();
    message
}

/// Returns the header of a reply.
pub(super) fn header(message: &[u8]) -> ReplyHeader {
    Decoder::new(message.to_vec().into()).decode().unwrap()
}

/// The verifier by which a server offers TLS.
pub(super) fn token() -> OpaqueAuth {
    OpaqueAuth { flavor: 0, body: b"STARTTLS".as_slice().into() }
}

/// Sends the probe and takes the offer.
pub(super) async fn offered(server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(&probe(9)).await.unwrap();
    let reply = ReplyHeader::accepted(9, rpcrdma_oncrpc::AcceptStat::Success).with_verifier(token());
    assert_eq!(header(&next(&mut stream).await), reply);
    stream
}

/// Takes the probe of a client and offers TLS.
pub(super) async fn offer(stream: &mut TcpStream) {
    let call = next(stream).await;
    let reply = [&call[..4], &words(&[1, 0, 0, 8]), b"STARTTLS", &words(&[0])].concat();
    stream.write_all(&framed(&reply)).await.unwrap();
}

/// Returns the settings of rustls for a client of this authority, without ALPN.
pub(super) fn client_config(authority: &Authority) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Returns the settings of rustls for a server, without ALPN.
pub(super) fn server_config(certified: &Certified) -> rustls::ServerConfig {
    let chain = vec![CertificateDer::from_pem_slice(certified.chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes()).unwrap();
    rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// One end of a TLS session.
pub(super) struct Session {
    pub(super) stream: TcpStream,
    pub(super) tls: Connection,
}

impl Session {
    pub(super) fn client(stream: TcpStream, config: &Arc<rustls::ClientConfig>) -> Self {
        let name = ServerName::try_from(NAME).unwrap();
        Self { stream, tls: ClientConnection::new(Arc::clone(config), name).unwrap().into() }
    }

    pub(super) fn server(stream: TcpStream, config: rustls::ServerConfig) -> Self {
        Self { stream, tls: ServerConnection::new(Arc::new(config)).unwrap().into() }
    }

    /// Opens a session with a server, by ALPN.
    pub(super) async fn open(server: SocketAddr, authority: &Authority) -> Self {
        let mut config = client_config(authority);
        config.alpn_protocols = vec![b"sunrpc".to_vec()];
        let mut session = Self::client(offered(server).await, &Arc::new(config));
        session.handshake().await.unwrap();
        session
    }

    async fn flush(&mut self) {
        while self.tls.wants_write() {
            let mut bytes = Vec::new();
            self.tls.write_tls(&mut bytes).unwrap();
            // The peer may be gone.
            let _ = self.stream.write_all(&bytes).await;
        }
    }

    /// Reads once; returns whether anything came.
    async fn fill(&mut self) -> Result<bool, rustls::Error> {
        let mut block = [0; 4096];
        let count = self.stream.read(&mut block).await.unwrap_or(0);
        self.tls.read_tls(&mut &block[..count]).unwrap();
        let result = self.tls.process_new_packets();
        self.flush().await;
        result.map(|_| count > 0)
    }

    /// Runs the handshake; the peer must not end it.
    pub(super) async fn handshake(&mut self) -> Result<(), rustls::Error> {
        self.flush().await;
        while self.tls.is_handshaking() {
            if !self.fill().await? {
                return Err(rustls::Error::HandshakeNotComplete);
            }
        }
        Ok(())
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.flush().await;
    }

    /// Reads plaintext until the peer closes the session or the socket. Returns it, and whether the session was closed.
    pub(super) async fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            let closed = self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed());
            match self.tls.reader().read_to_end(&mut all) {
                Ok(_) => return (all, closed),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return (all, closed),
            }
            if self.fill().await.is_err() {
                return (all, false);
            }
        }
    }

    /// Reads a record of one fragment.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut block = [0; 4096];
            match self.tls.reader().read(&mut block) {
                Ok(count) => all.extend_from_slice(&block[..count]),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            if let Some((header, message)) = all.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*header) & 0x7fff_ffff;
                if message.len() >= usize::try_from(length).unwrap() {
                    return message.to_vec();
                }
            }
            assert!(self.fill().await.unwrap(), "the peer closed");
        }
    }
}
