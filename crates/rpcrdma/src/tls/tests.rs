use std::fs;

use super::*;

#[allow(dead_code, unreachable_pub, reason = "the tests beside this crate use more of it")]
#[path = "../../tests/support/certificates.rs"]
pub(crate) mod certificates;

use certificates::{Authority, NAME};

fn told<T>(result: Result<T, TlsError>) -> String {
    match result {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let certified = authority.sign(&[NAME]);
    let path = std::env::temp_dir().join(format!("rpcrdma-tls-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(path.join(name), text).unwrap();
        path.join(name)
    };
    let chain = write("chain.pem", &certified.chain);
    let key = write("key.pem", &certified.key);
    let locked = write(
        "locked.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    // As openssl genrsa -aes128 -traditional writes it.
    let old = write(
        "old.pem",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    );
    let cut = write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let junk = write("junk.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let absent = path.join("absent.pem");
    Identity::from_files(&chain, &key).unwrap();
    for (error, words) in [
        (told(Identity::from_files(&absent, &key)), ["absent.pem", "cannot read"]),
        (told(Identity::from_files(&chain, &absent)), ["absent.pem", "cannot read"]),
        (told(Identity::from_files(&key, &key)), ["key.pem", "no certificate"]),
        (told(Identity::from_files(&chain, &chain)), ["chain.pem", "no private key"]),
        (told(Identity::from_files(&chain, &locked)), ["locked.pem", "passphrase"]),
        (told(Identity::from_files(&chain, &old)), ["old.pem", "openssl pkey -in OLD -out NEW"]),
        (told(Identity::from_files("/dev/zero", &key)), ["/dev/zero", "longer than 4194304 bytes"]),
        (told(Anchors::from_file("/dev/zero")), ["/dev/zero", "longer than 4194304 bytes"]),
        (told(Anchors::from_file(&cut)), ["cut.pem", "not PEM"]),
        (told(Anchors::from_file(&key)), ["key.pem", "no certificate"]),
        (told(Anchors::from_file(&junk)), ["junk.pem", "trust anchor"]),
    ] {
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    fs::remove_dir_all(&path).unwrap();
}

/// RFC 9289 §4.2: there are no settings of a server without an identity.
// requirement: rfc9289-4.2-1
#[test]
fn a_key_of_another_certificate_is_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.sign(&[NAME]), authority.sign(&[NAME]));
    let identity = || Identity::from_pem(one.chain.as_bytes(), other.key.as_bytes()).unwrap();
    assert!(told(TlsServer::new(identity(), ClientAuth::None)).contains("cannot be used"));
    assert!(told(TlsClient::new(NAME, &authority.anchors(), Some(identity()))).contains("cannot be used"));
}

#[test]
fn the_key_stays_out_of_logs() {
    let certified = Authority::new().sign(&[NAME]);
    let shown = format!("{:?}", certified.identity());
    assert_eq!(shown, "Identity { certificates: 1, .. }");
}

/// RFC 9289 §5, §6: what the settings of rustls have to be.
// requirement: rfc9289-5-1
// requirement: rfc9289-5-2
// requirement: rfc9289-5-5
// requirement: rfc9289-6-1
#[test]
fn rfc9289_5_settings_of_both_sides() {
    let authority = Authority::new();
    let server = authority.server();
    assert_eq!(server.config.alpn_protocols, [b"sunrpc"]);
    assert_eq!((server.config.max_early_data_size, server.config.send_tls13_tickets), (0, 0));
    assert!(!server.config.session_storage.can_cache());
    let client = authority.client();
    assert_eq!(client.config.alpn_protocols, [b"sunrpc"]);
    assert!(!client.config.enable_early_data);
    // The cipher suites of TLS 1.3 (RFC 8446 §9.1), all with confidentiality.
    let suites = &client.config.crypto_provider().cipher_suites;
    assert!(suites.iter().all(|suite| suite.tls13().is_some()));
    assert!(suites.iter().any(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256));
}

#[test]
fn a_certificate_in_the_log() {
    let authority = Authority::new();
    let serial = |params: &mut rcgen::CertificateParams| params.serial_number = Some(vec![0x0a, 0xff].into());
    let identity = authority.sign_with(&["one.example", "127.0.0.1", "two.example"], serial).identity();
    assert_eq!(name_of(&identity.chain[0]), "one.example, two.example, serial 0aff");
}
