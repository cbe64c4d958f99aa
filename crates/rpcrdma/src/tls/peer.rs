//! [`TlsPeer`]: what a server knows of the client at the other end of a TLS connection.
//!
//! *Buffers.* The certificates are copies. A connection reserves their memory in the share of the client's address, and keeps
//! it as long as any call refers to them.
//!
//! *Errors.* Nothing here fails.

use std::fmt;

use rpcrdma_verbs::Reserved;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use super::name_of;

/// The client at the other end of a TLS connection, for the handlers of its calls
/// ([`ConnectionContext::tls`](crate::ConnectionContext::tls)).
///
/// Only certificates that the server has checked are here, against the anchors of
/// [`ClientAuth`](crate::tls::ClientAuth). Without these, and if the client has shown none, the client is anonymous.
pub struct TlsPeer {
    /// Certificates with their memory.
    chain: Option<(Vec<CertificateDer<'static>>, Reserved)>,
    server_name: Option<String>,
    cipher_suite: &'static str,
}

impl fmt::Debug for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server_name, cipher_suite, .. } = self;
        f.debug_struct("TlsPeer")
            .field("client", &self.chain().first().map(name_of))
            .field("server_name", server_name)
            .field("cipher_suite", cipher_suite)
            .finish()
    }
}

impl TlsPeer {
    /// Describes a client by its checked certificates, the name by which it called the server, and the cipher suite.
    pub(crate) const fn new(
        chain: Option<(Vec<CertificateDer<'static>>, Reserved)>,
        server_name: Option<String>,
        cipher_suite: &'static str,
    ) -> Self {
        Self { chain, server_name, cipher_suite }
    }

    /// Returns the client's certificates as DER (RFC 5280 §4.1): its own first, then those that the client sent to prove it.
    /// Empty for an anonymous client.
    pub fn certificates(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.chain().iter().map(AsRef::as_ref)
    }

    /// Returns the DNS names in the subjectAltName of the client's certificate. None has a wildcard (RFC 9289 §5.2.1).
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        self.own().map(|own| own.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns whether the client's certificate is for this host: a DNS name, or an IP address.
    #[must_use]
    pub fn is_host(&self, host: &str) -> bool {
        let Some(parsed) = self.own() else { return false };
        ServerName::try_from(host).is_ok_and(|host| parsed.verify_is_valid_for_subject_name(&host).is_ok())
    }

    /// Returns the DNS name by which the client called the server (RFC 6066 §3). `None` if it gave none, for instance since it
    /// knows an address only. Nothing proves that the name is this server's.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the name of the cipher suite, for instance `TLS13_AES_256_GCM_SHA384`.
    #[must_use]
    pub const fn cipher_suite(&self) -> &str {
        self.cipher_suite
    }

    fn chain(&self) -> &[CertificateDer<'static>] {
        self.chain.as_ref().map_or(&[], |(chain, _)| chain)
    }

    /// Returns the client's own certificate.
    fn own(&self) -> Option<EndEntityCert<'_>> {
        EndEntityCert::try_from(self.chain().first()?).ok()
    }
}
