//! A server and clients of one Kerberos realm.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use rpcrdma_realm::{REALM, Realm};

use crate::support::{Server, command, scratch, text};

/// A user of no database.
const USER: u32 = 64_323;

/// Runs the binary as a member of the realm in this folder.
fn run_in(realm: &Path, arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    Realm::surround(&mut command, realm);
    command.output().unwrap()
}

#[test]
fn a_caller_with_a_ticket_is_the_user_of_the_map() {
    if let Err(error) = rpcrdma_realm::installed() {
        eprintln!("skipped: {error}");
        return;
    }
    let (members, shared) = (scratch(), scratch());
    let path = |name: &str| members.path().join(name).display().to_string();
    let realm = Realm::start(members.path(), Ipv4Addr::LOCALHOST).unwrap();
    realm.add_service("nfs/server.test", Path::new(&path("keytab"))).unwrap();
    realm.add_user("alice", "secret").unwrap();
    realm.kinit("alice", "secret", &members.path().join("tickets")).unwrap();
    fs::write(path("map"), format!("alice@{REALM} {USER}\n")).unwrap();
    fs::write(path("source"), "text").unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let export = format!("/secure={},squash=none,sec=krb5i:krb5p", shared.path().display());
    let (keytab, map) = (path("keytab"), path("map"));
    let options = ["--export", &export, "--keytab", &keytab, "--principals", &map];
    let server = Server::start_in(Some(members.path()), &options);
    assert_eq!(server.ready["exports"][1]["security"], serde_json::json!(["krb5i", "krb5p"]));

    let tcp = format!("nfs://{}", server.tcp());
    for (number, (sec, url, proto)) in
        [("krb5i", server.url(""), "rdma"), ("krb5p", server.url(""), "rdma"), ("krb5i", tcp.clone(), "tcp")]
            .into_iter()
            .enumerate()
    {
        let target = format!("{url}/secure/{number}");
        let kerberos = ["--sec", sec, "--server-name", "server.test", "--proto", proto];
        let put = run_in(members.path(), &[&["put", &path("source"), &target][..], &kerberos].concat());
        assert!(put.status.success(), "{sec} {proto}: {}", text(&put.stderr));
        let file = shared.path().join(number.to_string());
        assert_eq!(fs::read(&file).unwrap(), b"text", "{sec} {proto}");
        if rustix::process::geteuid().is_root() {
            assert_eq!(file.metadata().unwrap().uid(), USER, "{sec} {proto}");
        }
    }
    // Neither a claim nor too weak a protection is enough.
    for sec in [&["--sec", "sys"][..], &["--sec", "krb5", "--server-name", "server.test"]] {
        let listed = run_in(members.path(), &[&["ls", &server.url("/secure")][..], sec].concat());
        assert_eq!(listed.status.code(), Some(1), "{sec:?}: {}", text(&listed.stderr));
    }
    // The other export has its own list.
    let listed = run_in(members.path(), &["ls", &server.url("/")]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
}
