//! Authorities and certificates, made anew for each test.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rpcrdma::tls::{Anchors, ClientAuth, Identity, TlsClient, TlsServer};

/// The name that servers of these tests have.
pub const NAME: &str = "server.example";

/// Authorities made by this process.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM.
pub struct Certified {
    pub chain: String,
    pub key: String,
}

impl Certified {
    pub fn identity(&self) -> Identity {
        Identity::from_pem(self.chain.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(Self::params(), key).unwrap() }
    }

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Authorities of one name would be told apart by their signatures only.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    /// Returns an authority that this one vouches for, with these extended key usages.
    pub fn intermediate(&self, usages: Vec<ExtendedKeyUsagePurpose>) -> Self {
        let mut params = Self::params();
        params.extended_key_usages = usages;
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).unwrap() }
    }

    pub fn anchors(&self) -> Anchors {
        Anchors::from_pem(self.pem().as_bytes()).unwrap()
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for these names and addresses.
    pub fn sign(&self, names: &[&str]) -> Certified {
        self.sign_with(names, |_| {})
    }

    /// Signs a certificate that `change` has changed.
    pub fn sign_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certified { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns the settings of a server whose clients stay anonymous.
    pub fn server(&self) -> TlsServer {
        TlsServer::new(self.sign(&[NAME]).identity(), ClientAuth::None).unwrap()
    }

    /// Returns the settings of an anonymous client of that server.
    pub fn client(&self) -> TlsClient {
        TlsClient::new(NAME, &self.anchors(), None).unwrap()
    }

    /// Returns the settings of a client of that server, with a certificate.
    pub fn known_client(&self, certified: &Certified) -> TlsClient {
        TlsClient::new(NAME, &self.anchors(), Some(certified.identity())).unwrap()
    }
}

/// Returns the extended key usages with these numbers below id-kp.
pub fn usages(numbers: &[u64]) -> Vec<ExtendedKeyUsagePurpose> {
    let usage = |&number| ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, number]);
    numbers.iter().map(usage).collect()
}
