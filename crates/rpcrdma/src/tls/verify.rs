//! The check of a peer's certificate (RFC 9289 §5.2.1).
//!
//! The verifiers of rustls do the work. These add what RFC 9289 demands: no wildcard in a name, and its own values of the
//! extended key usage.

use std::fmt::{self, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use webpki::{EndEntityCert, KeyUsage};

use super::{ClientAuth, Store, TlsError, setting};

/// id-kp-rpcTLSClient (§7.3), the bytes of its DER.
const RPC_CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 33];
/// id-kp-rpcTLSServer (§7.3).
const RPC_SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 34];

/// A client's check of its server.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    inner: Arc<WebPkiServerVerifier>,
    path: PathCheck,
}

/// A server's check of its clients.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// The check, and what is needed for extended key usages; `None`: no certificate counts.
    inner: Option<(Arc<dyn ClientCertVerifier>, PathCheck)>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The check of a chain for the key usages of RPC-with-TLS (§5.2.1.1).
#[derive(Debug)]
struct PathCheck {
    anchors: Store,
    algorithms: WebPkiSupportedAlgorithms,
    usage: &'static [u8],
}

impl PathCheck {
    /// Returns the result of the check by rustls, or of a second check if the first one misses the usage for TLS only.
    fn or<T>(
        &self,
        first: Result<T, Error>,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<T>, Error> {
        let error = match first {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        let purpose = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
            )
        );
        let verified = purpose
            && EndEntityCert::try_from(certificate).is_ok_and(|parsed| {
                // Authorities above mostly have no extension, which restricts nothing (RFC 5280 §4.2.1.12). A certificate
                // with the extension needs this usage in it, at any place of the path.
                let usage = KeyUsage::required_if_present(self.usage);
                let (algorithms, anchors) = (self.algorithms.all, &self.anchors.roots);
                parsed.verify_for_usage(algorithms, anchors, intermediates, now, usage, None, None).is_ok()
            });
        if verified { Ok(None) } else { Err(error) }
    }
}

impl ServerVerifier {
    pub(super) fn new(anchors: Store, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors), Arc::clone(provider)).build();
        let algorithms = provider.signature_verification_algorithms;
        let path = PathCheck { anchors, algorithms, usage: RPC_SERVER };
        Ok(Self { inner: inner.map_err(setting)?, path })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let first = self.inner.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if self.path.or(first, certificate, intermediates, now)?.is_none() {
            // The first check did not come to the name.
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        }
        no_wildcard(certificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ClientVerifier {
    pub(super) fn new(clients: ClientAuth, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let algorithms = provider.signature_verification_algorithms;
        let (anchors, required) = match clients {
            ClientAuth::None => return Ok(Self { inner: None, algorithms }),
            ClientAuth::Optional(anchors) => (anchors.store, false),
            ClientAuth::Required(anchors) => (anchors.store, true),
        };
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&anchors), Arc::clone(provider));
        if !required {
            builder = builder.allow_unauthenticated();
        }
        let inner = builder.build().map_err(setting)?;
        let path = PathCheck { anchors, algorithms, usage: RPC_CLIENT };
        Ok(Self { inner: Some((inner, path)), algorithms })
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.as_ref().is_some_and(|(inner, _)| inner.client_auth_mandatory())
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.as_ref().map_or(&[], |(inner, _)| inner.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Without anchors the peer stays anonymous, whatever it shows.
        let Some((inner, path)) = &self.inner else { return Ok(ClientCertVerified::assertion()) };
        let first = inner.verify_client_cert(certificate, intermediates, now);
        path.or(first, certificate, intermediates, now)?;
        no_wildcard(certificate)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A certificate has a name with a wildcard.
#[derive(thiserror::Error)]
#[error("a name with a wildcard, which RFC 9289 forbids")]
struct Wildcard;

/// The errors of rustls show this form.
impl fmt::Debug for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Refuses a certificate with a wildcard name (§5.2.1). A wildcard before a single label, which matches nothing, is no name
/// here.
fn no_wildcard(certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
    if parsed.valid_dns_names().any(|name| name.contains('*')) {
        return Err(CertificateError::Other(OtherError(Arc::new(Wildcard))).into());
    }
    Ok(())
}

/// The configurations allow version 1.3 only (§5).
fn too_old() -> Error {
    Error::General("TLS 1.2 is not spoken".to_owned())
}

/// Returns the names and the serial number of a certificate, for the log (§5.2.1).
pub(crate) fn name_of(certificate: &CertificateDer<'_>) -> String {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return "unreadable".to_owned() };
    let mut text: String = parsed.valid_dns_names().map(|name| format!("{name}, ")).collect();
    text.push_str("serial ");
    for byte in parsed.serial() {
        // Writing to a string succeeds.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
