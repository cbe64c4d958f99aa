//! Kerberos, from a realm without users to files that are copied: server and client as an administrator starts them.
//!
//! Each test makes a realm of its own. Without the programs of a KDC it says so, and ends.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Output;

use rpcrdma_realm::{REALM, Realm, cache_name, installed};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Server, command, scratch, text};

const HOST: &str = "server.test";
const FLAVORS: [&str; 3] = ["krb5", "krb5i", "krb5p"];
/// The user whom the map names for `alice`, of no database.
const MAPPED: u32 = 64_323;

/// A realm with a user who has a ticket, and a server with one more export, `/secure`.
struct Site {
    place: TempDir,
    server: Server,
    realm: Realm,
}

impl Site {
    /// Serves a directory under these flavours. `None` without the programs of a KDC.
    fn start(flavors: &str) -> Option<Self> {
        Self::start_with(flavors, &[])
    }

    /// Serves with these options too.
    fn start_with(flavors: &str, further: &[&str]) -> Option<Self> {
        if let Err(error) = installed() {
            println!("skipped: {error}");
            return None;
        }
        let place = scratch();
        let path = |name: &str| place.path().join(name).display().to_string();
        let realm = Realm::start(place.path(), Ipv4Addr::LOCALHOST).unwrap();
        realm.add_service(&format!("nfs/{HOST}"), path("server.keytab").as_ref()).unwrap();
        realm.add_user("alice", "secret").unwrap();
        realm.kinit("alice", "secret", &place.path().join("tickets")).unwrap();
        fs::create_dir(path("export")).unwrap();
        fs::set_permissions(path("export"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path("map"), format!("# one user\nalice@{REALM} {MAPPED}\n")).unwrap();
        let export = format!("/secure={},squash=none,sec={flavors}", path("export"));
        let (keytab, map) = (path("server.keytab"), path("map"));
        let options = ["--export", &export, "--keytab", &keytab, "--principals", &map];
        let server = Server::start_in(Some(place.path()), &[&options[..], further].concat());
        Some(Self { place, server, realm })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Runs a command as a member of the realm.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = command(words);
        Realm::surround(&mut command, self.place.path());
        command.output().unwrap()
    }

    /// Returns a command that talks to the server.
    fn client(&self, proto: &str, sec: &str, words: &[&str]) -> Vec<String> {
        let address = self.server.ready[proto].as_str().unwrap();
        let words = words.iter().map(|word| match word.strip_prefix("nfs:") {
            Some(path) => format!("nfs://{address}/secure{path}"),
            None => (*word).to_owned(),
        });
        let mut all: Vec<String> = words.chain(["--proto", proto, "--sec", sec].map(str::to_owned)).collect();
        if sec != "sys" {
            all.extend(["--server-name", HOST].map(str::to_owned));
        }
        all
    }

    fn succeed(&self, proto: &str, sec: &str, words: &[&str]) -> String {
        let words = self.client(proto, sec, words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.run(&words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn fail(&self, code: i32, proto: &str, sec: &str, words: &[&str]) -> String {
        let words = self.client(proto, sec, words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.run(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }
}

#[test]
fn files_are_copied_under_each_flavour_by_both_transports() {
    let Some(site) = Site::start("krb5:krb5i:krb5p") else { return };
    let data: Vec<u8> =
        (0..3_000_001_u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    fs::write(site.path("data"), &data).unwrap();
    let (from, to) = (site.path("data").display().to_string(), site.path("got").display().to_string());
    for proto in ["rdma", "tcp"] {
        for sec in FLAVORS {
            let name = format!("nfs:/{proto}-{sec}");
            site.succeed(proto, sec, &["put", &from, &name]);
            site.succeed(proto, sec, &["get", &name, &to]);
            assert!(fs::read(&to).unwrap() == data, "{proto} {sec}");
            let stored = fs::metadata(site.path("export").join(format!("{proto}-{sec}"))).unwrap();
            if rustix::process::geteuid().is_root() {
                assert_eq!(stored.uid(), MAPPED, "the user of the map");
            }
        }
    }
    let listed = site.succeed("rdma", "krb5i", &["ls", "nfs:/"]);
    assert_eq!(listed.lines().count(), 6, "{listed}");
    // The other export has its own list, and both are told.
    assert_eq!(site.server.ready["exports"][1]["security"], json!(FLAVORS));
    let url = site.server.url("/");
    assert!(site.run(&["ls", &url]).status.success());
}

#[test]
fn a_flavour_that_the_export_does_not_allow_is_refused() {
    let Some(site) = Site::start("krb5i") else { return };
    site.succeed("rdma", "krb5i", &["ls", "nfs:/"]);
    for sec in ["sys", "krb5", "krb5p"] {
        let said = site.fail(1, "rdma", sec, &["ls", "nfs:/"]);
        assert!(said.contains(&format!("allows krb5i only, and not {sec}")), "{sec}: {said}");
    }
}

/// RFC 1813 §5.2.1: a list with `sys` says that calls without a credential are taken, too. That is no offer of Kerberos.
#[test]
fn a_list_with_sys_allows_no_other_flavour() {
    let Some(site) = Site::start("sys:krb5") else { return };
    for sec in ["sys", "krb5"] {
        site.succeed("rdma", sec, &["ls", "nfs:/"]);
    }
    let said = site.fail(1, "rdma", "krb5i", &["ls", "nfs:/"]);
    assert!(said.contains("/secure allows sys, krb5 only, and not krb5i"), "{said}");
    // The other export allows no Kerberos.
    let url = site.server.url("/");
    let output = site.run(&["ls", &url, "--sec", "krb5", "--server-name", HOST]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/ allows sys only, and not krb5"), "{said}");
}

#[test]
fn files_that_the_server_trusts_lie_in_no_export() {
    let Some(site) = Site::start("krb5") else { return };
    let file = |name: &str| site.path(name).display().to_string();
    for name in ["server.keytab", "map", "krb5.conf"] {
        fs::copy(site.path(name), site.path("export").join(name)).unwrap();
        symlink(site.path("export").join(name), site.path(&format!("{name}.link"))).unwrap();
        symlink(site.path(name), site.path("export").join(format!("{name}.link"))).unwrap();
    }
    let included = format!("include {}\n", file("export/krb5.conf"));
    fs::write(site.path("including.conf"), included).unwrap();
    let (keytab, map, config) = (file("server.keytab"), file("map"), file("krb5.conf"));
    let serve = |keytab: &str, map: &str, config: &str, export: &str| {
        let export = format!("/={export},sec=krb5");
        let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--export", &export]);
        command.args(["--keytab", keytab, "--principals", map]);
        Realm::surround(&mut command, site.place.path());
        let output = command.env("KRB5_CONFIG", config).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let export = file("export");
    for (name, (code, said)) in [
        ("--keytab", serve(&file("export/server.keytab"), &map, &config, &export)),
        ("--keytab", serve(&format!("FILE:{}", file("export/server.keytab")), &map, &config, &export)),
        ("--keytab", serve(&file("server.keytab.link"), &map, &config, &export)),
        ("--keytab", serve(&file("export/server.keytab.link"), &map, &config, &export)),
        ("--keytab", serve(&keytab, &map, &config, &site.place.path().display().to_string())),
        ("--principals", serve(&keytab, &file("export/map"), &config, &export)),
        ("--principals", serve(&keytab, &file("map.link"), &config, &export)),
        ("KRB5_CONFIG", serve(&keytab, &map, &file("export/krb5.conf"), &export)),
        ("KRB5_CONFIG", serve(&keytab, &map, &file("including.conf"), &export)),
    ] {
        let told = said.contains(&format!("({name}) lies inside the export")) && said.lines().count() == 1;
        assert!(code == Some(1) && told, "{name}: {said}");
    }
}

/// A KDC that takes connections, and answers nothing. The time-out holds, and the NFS server is not blamed.
#[test]
fn a_silent_kdc_does_not_outlast_the_timeout() {
    let Some(site) = Site::start("krb5") else { return };
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = fs::read_to_string(site.realm.config()).unwrap();
    let kdc = config.lines().find(|line| line.starts_with("  kdc = ")).unwrap();
    let silent = format!("  kdc = {}", silent.local_addr().unwrap());
    fs::write(site.path("silent.conf"), config.replace(kdc, &silent)).unwrap();
    site.realm.add_service("robot", &site.path("robot.keytab")).unwrap();
    let keytab = site.path("robot.keytab").display().to_string();
    let cache = cache_name(&site.path("tickets"));
    for credentials in [["--keytab", &keytab], ["--ccache", &cache]] {
        let words = [&["ls", "nfs:/", "--timeout", "1"][..], &credentials].concat();
        let mut command = command(&site.client("rdma", "krb5", &words));
        Realm::surround(&mut command, site.place.path());
        let output = command.env("KRB5_CONFIG", site.path("silent.conf")).output().unwrap();
        let said = text(&output.stderr);
        // The library itself gives up after ten seconds, with other words.
        let told =
            said.contains("within 1s: no KDC of the realm has given a ticket in time; is krb5kdc running");
        assert!(output.status.code() == Some(1) && told && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn faults_of_tickets_are_told_with_their_remedy() {
    let Some(site) = Site::start("krb5") else { return };
    let missing = cache_name(&site.path("missing"));
    let said = site.fail(1, "rdma", "krb5", &["ls", "nfs:/", "--ccache", &missing]);
    assert!(said.contains("kinit") && said.contains("missing"), "{said}");
    let mut words = site.client("rdma", "krb5", &["ls", "nfs:/"]);
    *words.last_mut().unwrap() = "unknown.test".to_owned();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = site.run(&words);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("unknown.test"), "{said}");
    // A keytab instead of a ticket.
    let keytab = site.path("alice.keytab");
    site.realm.add_service("robot", &keytab).unwrap();
    let keytab = keytab.display().to_string();
    site.succeed("rdma", "krb5", &["ls", "nfs:/", "--keytab", &keytab]);
    let said = site.fail(2, "rdma", "sys", &["ls", "nfs:/", "--keytab", &keytab]);
    assert!(said.contains("--keytab needs --sec krb5"), "{said}");
}

/// RFC 5666 §11: Kerberos protects the agreement, under each flavour. A question without it is refused.
// requirement: rfc5666-11-7
#[test]
fn rfc5666_s11_connections_are_configured_in_band_under_kerberos() {
    let Some(site) = Site::start_with("krb5:krb5i:krb5p", &["--conf-rdma"]) else { return };
    let said = |sec: &str, words: &[&str]| {
        let words = site.client("rdma", sec, &[&["-v", "ls", "nfs:/"], words].concat());
        let output = site.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        (output.status.success(), text(&output.stderr))
    };
    for sec in FLAVORS {
        let (done, events) = said(sec, &["--conf-rdma"]);
        assert!(done && events.contains("agreed by CONF_RDMA agreement=inline Calls of 4096 B"), "{events}");
        assert!(!events.contains("nothing agreed"), "{events}");
    }
    let (done, events) = said("krb5i", &["--insecure-conf-rdma"]);
    assert!(done && events.contains("nothing agreed by CONF_RDMA"), "{events}");
}

/// NULL is called by the user. Exports are asked for by AUTH_SYS, as Linux does.
#[test]
fn commands_about_servers_take_kerberos_or_refuse_it() {
    let Some(site) = Site::start("krb5:krb5i:krb5p") else { return };
    let host = site.server.ready["rdma"].as_str().unwrap().to_owned();
    for sec in FLAVORS {
        let said = site.succeed("rdma", sec, &["ping", "--json", "--count", "2", "--interval", "0", &host]);
        assert!(said.contains("\"received\":2"), "{sec}: {said}");
    }
    let said = site.fail(2, "rdma", "krb5", &["exports", &host]);
    assert!(said.contains("--sec has no meaning here"), "{said}");
}

/// What a client sees, and the command that mends it.
#[test]
fn each_fault_of_a_client_is_told_with_its_remedy() {
    let Some(site) = Site::start("krb5") else { return };
    let file = |name: &str| site.path(name).display().to_string();
    let config = fs::read_to_string(site.realm.config()).unwrap();
    let kdc = config.lines().find(|line| line.starts_with("  kdc = ")).unwrap();
    fs::write(site.path("silent.conf"), config.replace(kdc, "  kdc = 127.0.0.1:1")).unwrap();
    fs::write(site.path("unknown.conf"), config.replace(kdc, "")).unwrap();
    fs::write(site.path("junk"), "neither tickets nor keys").unwrap();
    site.realm.add_service("robot", &site.path("old.keytab")).unwrap();
    site.realm.change_key("robot").unwrap();
    let (junk, old, missing) = (file("junk"), file("old.keytab"), file("missing"));
    // The cache has no ticket for the server yet.
    for (variable, value, options, parts) in [
        ("KRB5_CONFIG", file("silent.conf"), &[][..], ["Cannot contact any KDC", "is krb5kdc running"]),
        ("KRB5_CONFIG", file("unknown.conf"), &[], ["Cannot find KDC", "[realms]"]),
        ("KRB5CCNAME", file("junk"), &[], ["Unsupported credentials cache", "kinit -c FILE"]),
        ("KRB5CCNAME", file("missing"), &[], ["no ticket in", "kinit gets a ticket"]),
        ("TZ", String::new(), &["--keytab", &missing], ["not found", "ktadd -k"]),
        ("TZ", String::new(), &["--keytab", &junk], ["Unsupported key table", "this is no keytab"]),
        ("TZ", String::new(), &["--keytab", &old], ["Decrypt integrity check failed", "another key"]),
        (
            "TZ",
            String::new(),
            &["--server-name", "no.test"],
            ["nfs/no.test", "addprinc -randkey nfs/no.test"],
        ),
    ] {
        let mut words = site.client("rdma", "krb5", &["ls", "nfs:/"]);
        if options.first() == Some(&"--server-name") {
            words.truncate(words.len() - 2);
        }
        words.extend(options.iter().map(|option| (*option).to_owned()));
        let mut command = command(&words);
        Realm::surround(&mut command, site.place.path());
        let output = command.env(variable, &value).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{value} {options:?}: {said}");
        assert!(
            parts.iter().all(|part| said.contains(part)) && said.lines().count() == 1,
            "{parts:?}: {said}"
        );
    }
}

#[test]
fn names_and_files_that_cannot_be_right_are_refused_before_the_server_is_asked() {
    let Some(site) = Site::start("krb5") else { return };
    let file = |name: &str| site.path(name).display().to_string();
    site.realm.add_service("robot", &site.path("robot.keytab")).unwrap();
    for kind in ["FILE:", "WRFILE:"] {
        let keytab = format!("{kind}{}", file("robot.keytab"));
        site.succeed("rdma", "krb5", &["ls", "nfs:/", "--keytab", &keytab]);
    }
    // Nobody writes into this pipe.
    let made = std::process::Command::new("mkfifo").arg(file("pipe")).status().unwrap();
    assert!(made.success());
    let (pipe, folder, missing) = (file("pipe"), file("export"), file("missing"));
    let odd = file("a\nb\u{1b}c");
    for (option, value, parts) in [
        ("--keytab", &pipe, ["not a regular file", "this is no keytab"]),
        ("--keytab", &folder, ["not a regular file", "this is no keytab"]),
        ("--ccache", &pipe, ["not a regular file", "kinit -c FILE"]),
        (
            "--ccache",
            &missing,
            ["No credentials cache", format!("kinit -c {missing} gets a ticket").as_str()],
        ),
        ("--ccache", &odd, ["a\\nb\\u{1b}c: ", "kinit -c"]),
    ] {
        let said = site.fail(1, "rdma", "krb5", &["ls", "nfs:/", option, value]);
        assert!(parts.iter().all(|part| said.contains(part)) && said.lines().count() == 1, "{value}: {said}");
    }
    let mut words = site.client("rdma", "krb5", &["ls", "nfs:/"]);
    for name in ["", "nfs/localhost", "nfs@localhost", "server.test@TEST.RPCRDMA", "a\nb", "a b"] {
        *words.last_mut().unwrap() = name.to_owned();
        let output = site.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("files.example.net"), "{name:?}: {said}");
    }
    let export = format!("/={},sec=krb5", file("export"));
    let said = site.run(&["serve", "--listen", "127.0.0.1:0", "--export", &export, "--keytab", &pipe]);
    assert!(text(&said.stderr).contains("this is no keytab"), "{}", text(&said.stderr));
}

/// The keytab is not blamed for it.
#[test]
fn a_configuration_that_cannot_be_used_is_named() {
    let Some(site) = Site::start("krb5") else { return };
    let file = |name: &str| site.path(name).display().to_string();
    fs::write(site.path("broken.conf"), "[libdefaults\n x = {\n").unwrap();
    fs::write(site.path("including.conf"), format!("include {}\n", file("missing.conf"))).unwrap();
    let export = format!("/={},sec=krb5", file("export"));
    let keytab = file("server.keytab");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--export", &export, "--keytab", &keytab];
    let serve = serve.map(str::to_owned).to_vec();
    for (configuration, words) in [
        ("broken.conf", "Improper format of Kerberos configuration file"),
        ("including.conf", "Included profile file could not be read"),
    ] {
        for arguments in [&serve, &site.client("rdma", "krb5", &["ls", "nfs:/"])] {
            let mut command = command(arguments);
            Realm::surround(&mut command, site.place.path());
            let output = command.env("KRB5_CONFIG", site.path(configuration)).output().unwrap();
            let said = text(&output.stderr);
            let told =
                format!("the configuration of Kerberos, {}: {words}; this user must", file(configuration));
            assert!(output.status.code() == Some(1) && said.contains(&told), "{said}");
            assert!(said.lines().count() == 1 && !said.contains("keytab"), "{said}");
        }
    }
}

/// Tickets of the user are not used instead.
#[test]
fn a_keytab_decides_who_calls() {
    let Some(site) = Site::start("krb5") else { return };
    let keytab = site.path("robot.keytab");
    site.realm.add_service("robot", &keytab).unwrap();
    site.succeed("rdma", "krb5", &["ls", "nfs:/"]);
    site.succeed("rdma", "krb5", &["ls", "nfs:/", "--keytab", &keytab.display().to_string()]);
    let (_, log) = site.server.stop("TERM");
    assert!(log.contains(&format!("\"robot@{REALM}\" has no user here")), "{log}");
}

/// Both sides say which key is wrong, each with its remedy.
#[test]
fn each_fault_of_a_servers_key_is_told_at_both_ends() {
    let Some(site) = Site::start("krb5") else { return };
    // The ticket is for a newer key than the keytab has.
    site.realm.change_key(&format!("nfs/{HOST}")).unwrap();
    let said = site.fail(1, "rdma", "krb5", &["ls", "nfs:/"]);
    assert!(said.contains("the version of the key") && said.contains("kinit gets a new ticket"), "{said}");
    let Site { place, server, realm } = site;
    let (_, log) = server.stop("TERM");
    let keytab = place.path().join("server.keytab").display().to_string();
    let wanted = ["warn", "no security context for a caller: ", &format!("ktadd -k {keytab} nfs/HOST")];
    assert!(wanted.iter().all(|part| log.contains(part)), "{log}");
    // The keytab has a key of another name only.
    let keytab = place.path().join("other.keytab");
    realm.add_service("nfs/other.test", &keytab).unwrap();
    let export = format!("/secure={},sec=krb5", place.path().join("export").display());
    let options = ["--export", &export, "--keytab", &keytab.display().to_string()];
    let site = Site { server: Server::start_in(Some(place.path()), &options), place, realm };
    let said = site.fail(1, "rdma", "krb5", &["ls", "nfs:/"]);
    assert!(said.contains(&format!("it has no key of nfs/{HOST}")), "{said}");
    let (_, log) = site.server.stop("TERM");
    assert!(log.contains("not found in keytab") && log.contains("addprinc -randkey nfs/HOST"), "{log}");
}

#[test]
fn a_server_without_its_key_does_not_start() {
    let Some(site) = Site::start("krb5") else { return };
    let export = format!("/={},sec=krb5", site.path("export").display());
    site.realm.add_service("host/server.test", &site.path("host.keytab")).unwrap();
    fs::write(site.path("junk"), "no keys").unwrap();
    for (name, remedy) in [
        ("missing.keytab", "then ktadd -k "),
        ("host.keytab", "addprinc -randkey nfs/HOST"),
        ("junk", "this is no keytab"),
    ] {
        let keytab = site.path(name).display().to_string();
        let output =
            site.run(&["serve", "--listen", "127.0.0.1:0", "--export", &export, "--keytab", &keytab]);
        let said = text(&output.stderr);
        let told = said.contains(&format!("the keytab {keytab}: ")) && said.contains(remedy);
        assert!(!output.status.success() && told, "{said}");
    }
}
