//! TLS on TCP (RFC 9289) by the options of the command.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

use crate::support::{Server, fail, scratch, succeed};

/// A directory with `ca.pem`, and for `server` (127.0.0.1) and `client` a certificate and a key.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let place = scratch();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(place.path().join("ca.pem"), authority.pem()).unwrap();
        for (name, subject) in
            [("server", vec!["127.0.0.1".to_owned()]), ("client", vec!["client.example".to_owned()])]
        {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(subject).unwrap().signed_by(&key, &authority).unwrap();
            fs::write(place.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(place.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn serve(&self, extra: &[&str]) -> Server {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        Server::start_with(&[&["-v", "--tls-cert", &certificate, "--tls-key", &key], extra].concat())
    }
}

fn url(server: &Server, path: &str) -> String {
    format!("nfs://{}{path}", server.tcp())
}

fn write(path: &Path, length: usize) -> PathBuf {
    let data: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
    fs::write(path, data).unwrap();
    path.to_owned()
}

/// RFC 9289 §6.1: the log has how each connection is protected.
// requirement: rfc9289-6.1-1
#[test]
fn files_travel_under_tls_and_the_log_tells() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let server = files.serve(&["--xprtsec", "tls"]);
    let local = write(&files.0.path().join("data"), 3 << 20);
    let tls = ["--proto", "tcp", "--xprtsec", "tls", "--tls-ca", &ca];
    let to = url(&server, "/data");
    succeed(&[&["put", local.to_str().unwrap(), &to][..], &tls].concat());
    let back = files.path("back");
    succeed(&[&["get", &to, &back][..], &tls].concat());
    assert_eq!(fs::read(&back).unwrap(), fs::read(&local).unwrap());
    // Without TLS nothing but NULL.
    succeed(&["ping", "--count", "1", "--proto", "tcp", server.tcp()]);
    let refused = fail(1, &["ls", "--proto", "tcp", &to]);
    assert!(refused.contains("TooWeak): the server demands TLS (--proto tcp --xprtsec tls"), "{refused}");
    // RPC-over-RDMA is not concerned.
    succeed(&["ls", &server.url("/")]);
    let (_, log) = server.stop("TERM");
    assert!(log.contains("rpcrdma::tls: TLS begins") && log.contains("anonymous"), "{log}");
    assert!(log.contains("calls without TLS"), "{log}");
}

#[test]
fn both_sides_have_a_certificate() {
    let files = Files::new();
    let (ca, certificate, key) = (files.path("ca.pem"), files.path("client.pem"), files.path("client.key"));
    let server = files.serve(&["--xprtsec", "mtls", "--tls-client-ca", &ca]);
    let known = [
        "--proto",
        "tcp",
        "--xprtsec",
        "mtls",
        "--tls-ca",
        &ca,
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    let root = url(&server, "/");
    succeed(&[&["ls", &root][..], &known].concat());
    succeed(&[&["exports", server.tcp()][..], &known].concat());
    let refused = fail(3, &["ls", "--proto", "tcp", "--xprtsec", "tls", "--tls-ca", &ca, &root]);
    assert!(
        refused.contains("CertificateRequired; the server demands a certificate of the client"),
        "{refused}"
    );
    let (_, log) = server.stop("TERM");
    assert!(log.contains("client.example, serial "), "{log}");
}

#[test]
fn a_client_that_requires_tls_goes_nowhere_without() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let plain = Server::start();
    let tls = ["--proto", "tcp", "--xprtsec", "tls", "--tls-ca", &ca];
    let refused = fail(3, &[&["ls", &url(&plain, "/")][..], &tls].concat());
    assert!(refused.contains("does not offer TLS"), "{refused}");
    let server = files.serve(&[]);
    let root = url(&server, "/");
    succeed(&["ls", "--proto", "tcp", &root]);
    succeed(&[&["ls", &root][..], &tls].concat());
    let refused = fail(3, &[&["ls", "--tls-name", "other.example", &root][..], &tls].concat());
    assert!(refused.contains("not valid for name") && refused.contains("--tls-name"), "{refused}");
}

#[test]
fn files_that_the_server_trusts_lie_in_no_export() {
    let (files, other) = (Files::new(), Files::new());
    let [export, ca, certificate, key] =
        ["", "ca.pem", "server.pem", "server.key"].map(|name| files.path(name));
    let [outer_ca, outer_certificate, outer_key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| other.path(name));
    std::os::unix::fs::symlink(&key, other.path("link.key")).unwrap();
    fs::copy(&certificate, &outer_certificate).unwrap();
    fs::copy(&key, &outer_key).unwrap();
    for (option, certificate, key, ca) in [
        ("--tls-cert", &certificate, &outer_key, &outer_ca),
        ("--tls-key", &outer_certificate, &key, &outer_ca),
        ("--tls-key", &outer_certificate, &other.path("link.key"), &outer_ca),
        ("--tls-client-ca", &outer_certificate, &outer_key, &ca),
    ] {
        let options = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", ca];
        let complaint = fail(1, &[&["serve", &export, "--listen", "127.0.0.1:0"][..], &options].concat());
        assert!(complaint.contains(&format!("({option}) lies inside the export")), "{complaint}");
    }
}

#[test]
fn options_that_have_no_effect_together_are_refused() {
    let files = Files::new();
    let (ca, certificate, key) = (files.path("ca.pem"), files.path("client.pem"), files.path("client.key"));
    let root = "nfs://127.0.0.1/";
    for (arguments, hint) in [
        (&["ls", root, "--xprtsec", "tls", "--tls-ca", &ca][..], "RFC 9289 defines TLS for TCP"),
        (&["ls", root, "--proto", "tcp", "--tls-ca", &ca], "no effect without --xprtsec"),
        (&["ls", root, "--proto", "tcp", "--tls-name", "x"], "no effect without --xprtsec"),
        (&["ls", root, "--proto", "tcp", "--xprtsec", "tls"], "--tls-ca"),
        (&["ls", root, "--proto", "tcp", "--xprtsec", "mtls", "--tls-ca", &ca], "--tls-cert and --tls-key"),
        (
            &[
                "ls",
                root,
                "--proto",
                "tcp",
                "--xprtsec",
                "tls",
                "--tls-ca",
                &ca,
                "--tls-cert",
                &certificate,
                "--tls-key",
                &key,
            ],
            "choose mtls",
        ),
        (&["ls", root, "--proto", "tcp", "--xprtsec", "mtls", "--tls-cert", &certificate], "--tls-key"),
        (
            &["ls", root, "--proto", "tcp", "--xprtsec", "tls", "--tls-ca", &ca, "--tls-name", "a b"],
            "\"a b\" is neither a DNS name nor an address",
        ),
        (&["serve", "/", "--export", "/=/srv"], "two exports have the name /"),
        (&["serve", "/", "--xprtsec", "tls"], "--tls-cert and --tls-key"),
        (&["serve", "/", "--tls-cert", &certificate], "--tls-key"),
        (&["serve", "/", "--tls-cert", &certificate, "--tls-key", &key, "--no-tcp"], "--no-tcp"),
        (
            &["serve", "/", "--tls-cert", &certificate, "--tls-key", &key, "--xprtsec", "mtls"],
            "--tls-client-ca",
        ),
    ] {
        let complaint = fail(2, arguments);
        assert!(complaint.contains(hint), "{arguments:?}: {complaint}");
    }
    for (arguments, hint) in [
        (&["serve", "/", "--tls-cert", "/absent.pem", "--tls-key", &key][..], "/absent.pem"),
        (&["serve", "/", "--tls-cert", &key, "--tls-key", &key], "no certificate"),
        (&["serve", "/", "--tls-cert", &ca, "--tls-key", &key], "cannot be used"),
    ] {
        let complaint = fail(1, arguments);
        assert!(complaint.contains(hint), "{arguments:?}: {complaint}");
    }
}
