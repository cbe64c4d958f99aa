//! RPC-with-TLS (RFC 9289) on TCP connections: certificates, trust anchors and policies of both sides.
//!
//! A client asks on each new TCP connection by AUTH_TLS whether the server speaks TLS. If so, the handshake follows on
//! that connection. [`TlsServer`] and [`TlsClient`] hold the settings; [`ServerConfig::tls`](crate::ServerConfig::tls)
//! and [`ClientConfig::tls`](crate::ClientConfig::tls) take them. The module `tcp` asks, answers and moves the bytes.
//!
//! TLS is version 1.3 (§5), with the ALPN name `sunrpc` on both sides (§5). There is no early data (§6) and no session
//! resumption: each connection checks the certificates again. RPC-over-RDMA has no TLS (§5.1.3).
//!
//! *Certificates.* Chains are checked as RFC 5280 §6 says (§5.2.1). The server's subjectAltName has to match the name or
//! the address that the client expects. A certificate with a wildcard name is refused (§5.2.1). An extended key usage has to
//! name TLS or RPC-with-TLS (§5.2.1.1). There are no revocation lists.
//!
//! *Handlers.* A call's context tells whether TLS protects it, and who the client is: [`TlsPeer`], by
//! [`ConnectionContext::tls`](crate::ConnectionContext::tls).
//!
//! *Audit (§6.1).* Events of the target `rpcrdma::tls` and the level `INFO` tell for each connection whether TLS protects it,
//! and who the peer is. Where a peer was refused, the level is `WARN`. A server writes one of these a second.
//!
//! ```no_run
//! use rpcrdma::tls::{Anchors, ClientAuth, Identity, TlsClient, TlsServer};
//!
//! let identity = Identity::from_files("server.pem", "server.key")?;
//! let server = TlsServer::new(identity, ClientAuth::None)?.only();
//! let client = TlsClient::new("files.example.net", &Anchors::from_file("ca.pem")?, None)?;
//! # let _ = (server, client);
//! # Ok::<(), rpcrdma::tls::TlsError>(())
//! ```

mod peer;
mod pem;
mod verify;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use thiserror::Error;

use self::verify::{ClientVerifier, ServerVerifier};
use crate::spaced::Spaced;

pub use self::peer::TlsPeer;
pub use self::pem::{Anchors, Identity};
pub(crate) use self::verify::name_of;

/// Target of the events that tell how connections are protected (§6.1).
pub(crate) const AUDIT: &str = "rpcrdma::tls";
/// The name of SunRPC in ALPN (§7.2).
pub(crate) const ALPN: &[u8] = b"sunrpc";

/// The reason why TLS cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file is too long for certificates or a key.
    #[error("{} is longer than {} bytes", path.display(), pem::FILE_MAX)]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A text is not PEM.
    #[error("{source_name} is not PEM: {reason}")]
    Pem {
        /// The file, or what the text is for.
        source_name: String,
        /// The reason.
        reason: String,
    },
    /// A text has no certificate.
    #[error("{source_name} has no certificate (-----BEGIN CERTIFICATE-----)")]
    NoCertificate {
        /// The file, or what the text is for.
        source_name: String,
    },
    /// A text has no private key that can be used.
    #[error(
        "{source_name} has no private key without a passphrase (-----BEGIN PRIVATE KEY-----); openssl pkey -in OLD -out NEW \
         removes a passphrase"
    )]
    NoKey {
        /// The file, or what the text is for.
        source_name: String,
    },
    /// A trust anchor cannot be used.
    #[error("certificate {number} of {source_name} cannot be a trust anchor: {reason}")]
    Anchor {
        /// The file, or what the text is for.
        source_name: String,
        /// Place of the certificate in the text, from 1.
        number: usize,
        /// The reason.
        reason: String,
    },
    /// The expected name of a server is neither a DNS name nor an address.
    #[error("{name:?} is neither a DNS name nor an address, so no certificate can have it")]
    Name {
        /// The name.
        name: String,
    },
    /// Certificate and key cannot be used together, or at all.
    #[error("certificate and private key cannot be used: {reason}")]
    Identity {
        /// The reason.
        reason: String,
    },
    /// TLS cannot be used with these settings.
    #[error("TLS cannot be set up: {reason}")]
    Setting {
        /// The reason.
        reason: String,
    },
}

/// The certificates that a server asks of its clients. A server asks every client for a certificate (§4.2).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClientAuth {
    /// Clients stay anonymous. A certificate that a client sends is not checked and counts for nothing.
    None,
    /// A client may have a certificate, which must then come from one of these anchors.
    Optional(Anchors),
    /// A client must have a certificate of one of these anchors.
    Required(Anchors),
}

/// TLS settings of a server. Cheap to clone.
#[derive(Clone)]
pub struct TlsServer {
    pub(crate) config: Arc<rustls::ServerConfig>,
    only: bool,
    authenticates: bool,
    refusals: Arc<Spaced>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("only", &self.only).finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Offers TLS with this certificate. Calls without TLS are served too, until [`only`](Self::only) is set.
    ///
    /// # Errors
    /// [`TlsError::Identity`] if certificate and key do not belong together.
    pub fn new(identity: Identity, clients: ClientAuth) -> Result<Self, TlsError> {
        let provider = provider();
        let authenticates = !matches!(clients, ClientAuth::None);
        let verifier = ClientVerifier::new(clients, &provider)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(setting)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(identity.chain, identity.key)
            .map_err(|error| TlsError::Identity { reason: error.to_string() })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.max_early_data_size = 0;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), only: false, authenticates, refusals: Arc::default() })
    }

    /// Serves calls under TLS only. Without TLS the server answers NULL, and AUTH_TOOWEAK to every other call.
    #[must_use]
    pub fn only(self) -> Self {
        Self { only: true, ..self }
    }

    /// Logs that a client was refused.
    pub(crate) fn tell_refusal(&self, peer: SocketAddr, reason: &dyn fmt::Display) {
        if let Some(not_logged) = self.refusals.due() {
            tracing::warn!(target: AUDIT, %peer, %reason, not_logged, "TLS: client refused");
        }
    }

    /// Returns whether certificates of clients are checked.
    pub(crate) const fn authenticates(&self) -> bool {
        self.authenticates
    }

    /// Returns whether calls without TLS are refused.
    pub(crate) const fn is_only(&self) -> bool {
        self.only
    }
}

/// TLS settings of a client, for one server. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) name: ServerName<'static>,
    required: bool,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, required, .. } = self;
        f.debug_struct("TlsClient").field("name", name).field("required", required).finish_non_exhaustive()
    }
}

impl TlsClient {
    /// Requires TLS with a server that has a certificate of these anchors for `name`, a DNS name or an address. The
    /// client shows `identity`, if it has one, to servers that ask for it.
    ///
    /// # Errors
    /// [`TlsError::Name`], [`TlsError::Identity`].
    pub fn new(name: &str, servers: &Anchors, identity: Option<Identity>) -> Result<Self, TlsError> {
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let wrong = |_| TlsError::Name { name: name.to_owned() };
        let parsed = ServerName::try_from(bare.to_owned()).map_err(wrong)?;
        let provider = provider();
        let verifier = ServerVerifier::new(Arc::clone(&servers.store), &provider)?;
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(setting)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            Some(Identity { chain, key }) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Identity { reason: error.to_string() })?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_early_data = false;
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name: parsed, required: true })
    }

    /// Goes on without TLS where the server does not offer it. **Anyone on the path can make a server look like that**
    /// (§6.1.1). A handshake that fails is an error with this setting too.
    #[must_use]
    pub fn opportunistic(self) -> Self {
        Self { required: false, ..self }
    }

    /// Returns whether calls without TLS are out of the question.
    pub(crate) const fn is_required(&self) -> bool {
        self.required
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn setting(error: impl fmt::Display) -> TlsError {
    TlsError::Setting { reason: error.to_string() }
}

/// Trust anchors, shared by the verifiers that use them.
type Store = Arc<RootCertStore>;

#[cfg(test)]
pub(crate) mod tests;
