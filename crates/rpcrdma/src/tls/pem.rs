//! Certificates and keys from PEM (RFC 7468).

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Store, TlsError};

/// Longest file of certificates or of a key, in bytes. Thousands of certificates fit.
pub(super) const FILE_MAX: u64 = 4 << 20;
/// Line of a key with a passphrase that is not PKCS #8.
const ENCRYPTED: &[u8] = b"Proc-Type: 4,ENCRYPTED";

/// A certificate, the chain to its trust anchor, and its private key.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        f.debug_struct("Identity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads a certificate with its chain, and its private key, from PEM files. The certificate comes first; those of
    /// intermediate authorities follow. The key has no passphrase.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        Self::parse([(&read(chain)?, &named(chain)), (&read(key)?, &named(key))])
    }

    /// Reads both from PEM texts, as [`from_files`](Self::from_files) does.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::parse([(chain, "the certificate"), (key, "the private key")])
    }

    fn parse([(chain, chain_name), (key, key_name)]: [(&[u8], &str); 2]) -> Result<Self, TlsError> {
        let chain = certificates(chain, chain_name)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::NoKey { source_name: key_name.to_owned() },
            _ if is_encrypted(key) => TlsError::NoKey { source_name: key_name.to_owned() },
            error => not_pem(key_name, &error),
        })?;
        Ok(Self { chain, key })
    }
}

/// Certificates of authorities whose word is good. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Anchors {
    pub(super) store: Store,
}

impl Anchors {
    /// Reads them from a PEM file.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref();
        Self::parse(&read(path)?, &named(path))
    }

    /// Reads them from a PEM text.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsError> {
        Self::parse(text, "the text with the trust anchors")
    }

    fn parse(text: &[u8], name: &str) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        for (index, certificate) in certificates(text, name)?.into_iter().enumerate() {
            store.add(certificate).map_err(|error| TlsError::Anchor {
                source_name: name.to_owned(),
                number: index + 1,
                reason: error.to_string(),
            })?;
        }
        Ok(Self { store: Arc::new(store) })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| TlsError::Read { path: path.to_owned(), error })?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_MAX) {
        return Err(TlsError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Returns whether a text is a key of the form before PKCS #8, encrypted with a passphrase (RFC 1421 §4.6.1.1).
fn is_encrypted(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == ENCRYPTED)
}

fn named(path: &Path) -> String {
    path.display().to_string()
}

fn certificates(text: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = parsed.map_err(|error| not_pem(name, &error))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { source_name: name.to_owned() });
    }
    Ok(certificates)
}

fn not_pem(name: &str, error: &pem::Error) -> TlsError {
    TlsError::Pem { source_name: name.to_owned(), reason: error.to_string() }
}
