//! Tests of the parser of exports(5).

use std::sync::Arc;

use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, StateDirectory};
use rpcrdma_nfs::server::{Security, Squash};

use super::*;

fn resolve(name: &str) -> Result<Vec<IpAddr>, String> {
    match name {
        "one.example" => Ok(vec!["192.0.2.7".parse().unwrap()]),
        "two.example" => Ok(["2001:db8::7", "192.0.2.8", "192.0.2.8"].map(|ip| ip.parse().unwrap()).to_vec()),
        _ => Err("unknown".to_owned()),
    }
}

fn parsed(text: &str) -> Listed {
    parse(Path::new("exports"), text, &Names::new(), &resolve)
        .unwrap_or_else(|lines| panic!("{text}: {lines:?}"))
}

fn faults(text: &str) -> Vec<String> {
    parse(Path::new("exports"), text, &Names::new(), &resolve).map(drop).unwrap_err()
}

/// Returns the own terms of an export.
fn terms_of(export: &ExportOption) -> Terms {
    let directory = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(state.path()).unwrap();
    let opened = DirectoryFs::open(directory.path(), &state, DirectoryOptions::default()).unwrap();
    export.with(Arc::new(opened)).terms()
}

fn networks(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_line_has_a_path_and_its_clients() {
    let Listed { exports, notes, .. } = parsed(
        "# exports of this machine\n\
         /srv/a/ 192.0.2.0/24(rw,no_root_squash,sec=krb5p:sys) 2001:db8::/32\n\
         \n\
         /srv/b -rw,insecure,anonuid=7 *(all_squash,anongid=-2) \\\n  198.51.100.0/255.255.255.0(ro) # end\n\
         \"/srv/with space\" 192.0.2.1\n/srv/tab\\011and\\040space one.example(rw)\n/ two.example",
    );
    assert_eq!(notes, Vec::<String>::new());
    let names: Vec<&str> = exports.iter().map(|export| export.name.as_str()).collect();
    assert_eq!(names, ["/srv/a", "/srv/b", "/srv/with space", "/srv/tab\tand space", "/"]);
    assert!(exports.iter().all(|export| export.directory.to_str() == Some(&export.name)));
    let [a, b, space, tab, root] = exports.as_slice() else { panic!("{exports:?}") };
    assert_eq!(
        (networks(a.allow.networks()), a.read_only, a.secure, a.squash),
        ("192.0.2.0/24".into(), false, true, Squash::Nobody)
    );
    assert_eq!(a.security, [Security::Krb5p, Security::Sys]);
    assert_eq!(networks(&a.rules[0].networks), "2001:db8::/32");
    assert_eq!(a.rules[0].terms, Choice::usual().terms());
    assert!(b.allow.is_everybody() && !b.read_only && !b.secure, "{b:?}");
    assert_eq!((b.squash, b.anonymous), (Squash::Everybody, (7, u32::MAX - 1)));
    assert_eq!(networks(&b.rules[0].networks), "198.51.100.0/24");
    assert!(b.rules[0].terms.read_only && !b.rules[0].terms.secure);
    assert_eq!(networks(space.allow.networks()), "192.0.2.1/32");
    assert_eq!((networks(tab.allow.networks()), tab.read_only), ("192.0.2.7/32".into(), false));
    assert_eq!(networks(root.allow.networks()), "192.0.2.8/32 2001:db8::7/128");
}

#[test]
fn lines_of_one_path_are_one_export() {
    let exports = parsed("/a 192.0.2.1(rw)\n/b *\n/a/ 192.0.2.2(rw) *(ro)\n").exports;
    assert_eq!(exports.len(), 2);
    assert!(exports[0].read_only && exports[0].allow.is_everybody());
    assert_eq!(networks(&exports[0].rules[0].networks), "192.0.2.1/32 192.0.2.2/32");
}

#[test]
fn what_has_no_effect_is_told_once() {
    let notes =
        parsed("/a *(sync,no_subtree_check)\n/b *(subtree_check,fsid=0)\n/c *(subtree_check)\n/d (ro)\n/e")
            .notes;
    let expected = [
        "exports:4:4: options without a client are for everyone: write *(OPTIONS) to say so",
        "exports:5:1: no client is named, so everyone may mount: write * to say so",
        "exports:2:6: subtree_check has no effect (2 times): handles are sealed",
        "exports:2:20: fsid has no effect: the number of an export follows",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.starts_with(expected), "{note}");
    }
}

#[test]
fn a_name_that_repeats_an_address_is_told() {
    let Listed { exports, notes, .. } = parsed("/a 192.0.2.7(rw) one.example(ro)");
    assert_eq!(networks(exports[0].allow.networks()), "192.0.2.7/32");
    assert_eq!(
        notes,
        ["exports:1:18: one.example is 192.0.2.7/32, which an entry before has: that entry decides"]
    );
}

#[test]
fn wrong_lines_and_their_messages() {
    for (text, expected) in [
        ("srv *", "1:1: saw \"srv\", expected the path of a directory, which begins with /"),
        ("/a/../b *", "1:1: saw \"/a/../b\", expected a path as it is: "),
        ("/a *\n  \"/b *", "2:3: saw a quotation mark, expected another one on this line"),
        ("/a\\9 *", "1:3: saw \"\\\\9 *\", expected \\ and three octal digits, such as \\040 for a space"),
        ("/a\\377 *", "1:1: saw escapes that make no UTF-8, expected text"),
        ("/a *(rw", "1:5: saw \"(rw\", expected a \")\" without spaces before"),
        ("/a *(rw, ro)", "1:5: saw \"(rw,\", expected a \")\" without spaces before"),
        ("/a *(ro,rx)", "1:9: saw the unknown option \"rx\", expected \"ro\""),
        ("/a *(root_sqash)", "1:6: saw the unknown option \"root_sqash\", expected \"root_squash\""),
        ("/a *(nonsense)", "1:6: saw the unknown option \"nonsense\", expected an option of exports(5)"),
        ("/a -rw,x *", "1:8: saw the unknown option \"x\", expected an option of exports(5)"),
        ("/a *(mp)", "1:6: saw \"mp\", expected no such option here: the server does not check"),
        ("/a *(xprtsec=tls)", "1:6: saw \"xprtsec=tls\", expected no such option here: protection by TLS"),
        ("/a *(anonuid=x)", "1:6: saw \"anonuid=x\", expected another value: \"x\" is no number"),
        ("/a *(sec=dh)", "1:6: saw \"sec=dh\", expected another value: \"dh\" in sec=dh is none"),
        ("/a *(sec=sys,rw,sec=krb5:krb5)", "1:17: saw \"sec=krb5:krb5\", expected another value: "),
        ("/a *(xprtsec=none:tls)", "1:6: saw \"xprtsec=none:tls\", expected no such option here: protection"),
        (
            "/a *(mountpoint=/b)",
            "1:6: saw \"mountpoint=/b\", expected no such option here: the server does not",
        ),
        ("/a *(sync=1)", "1:6: saw the unknown option \"sync=1\", expected \"sync\""),
        ("/a *(ro=1)", "1:6: saw the unknown option \"ro=1\", expected \"ro\""),
        ("/a *(anonuid)", "1:6: saw the unknown option \"anonuid\", expected \"anonuid=\""),
        ("/a *(ro) extra (ro)", "1:16: saw a space before \"(\", expected extra(OPTIONS), or *(OPTIONS) for"),
        ("/a host\\\n (ro)", "2:2: saw a space before \"(\", expected host(OPTIONS), or *(OPTIONS) for"),
        (
            "/a [2001:db8::1](rw)",
            "1:4: saw \"[2001:db8::1]\", expected an address, a network, a host name or *: IPv6",
        ),
        (
            "/a host[0-9](rw)",
            "1:4: saw \"host[0-9]\", expected an address, a network, a host name or *: wildcards",
        ),
        (
            "/a 10.0.0(rw)",
            "1:4: saw \"10.0.0\", expected an address, a network, a host name or *: an IPv4 address has",
        ),
        (
            "/a 10.0.0.256",
            "1:4: saw \"10.0.0.256\", expected an address, a network, a host name or *: an IPv4",
        ),
        (
            "/a 2001:db8::x",
            "1:4: saw \"2001:db8::x\", expected an address, a network, a host name or *: it has",
        ),
        (
            "/a host)",
            "1:4: saw \"host)\", expected an address, a network, a host name or *: it has characters",
        ),
        ("-rw *", "1:1: saw \"-rw\", expected the path of a directory, which begins with /"),
        (
            "/a 192.0.2.1 (rw)",
            "1:14: saw a space before \"(\", expected 192.0.2.1(OPTIONS), or *(OPTIONS) for",
        ),
        ("/a @staff(rw)", "1:4: saw \"@staff\", expected an address, a network, a host name or *: netgroups"),
        (
            "/a *.example(rw)",
            "1:4: saw \"*.example\", expected an address, a network, a host name or *: wildcards",
        ),
        (
            "/a gss/krb5(rw)",
            "1:4: saw \"gss/krb5\", expected an address, a network, a host name or *: write *(sec",
        ),
        (
            "/a 192.0.2.0/33",
            "1:4: saw \"192.0.2.0/33\", expected an address, a network, a host name or *: after /",
        ),
        ("/a 192.0.2.0/255.0.255.0", "1:4: saw \"192.0.2.0/255.0.255.0\", expected an address"),
        ("/a 192.0.2.1 192.0.2.1(rw)", "1:14: saw 192.0.2.1/32 twice for /a, expected one entry"),
        ("/a *\n/a *(rw)", "2:4: saw everyone twice for /a, expected one entry"),
    ] {
        let lines = faults(text);
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        assert!(lines[0].starts_with(&format!("exports:{expected}")), "{text}: {}", lines[0]);
    }
}

#[test]
fn all_faults_of_a_file_are_told() {
    let lines = faults("/a *(x)\nb *\n/c *(rw)\n/d *(ro,y)");
    let places: Vec<_> = lines.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["exports:1:6", "exports:2:1", "exports:4:9"]);
}

/// The time is not measured: with a quadratic search the test would take minutes.
#[test]
fn thousands_of_lines_are_read() {
    use std::fmt::Write;
    let mut text = String::new();
    for number in 0..5000 {
        let (high, low) = (number / 250, number % 250);
        writeln!(text, "/srv/{number} 10.{high}.{low}.0/24(rw) 10.0.0.0/8(ro) *(ro,all_squash)").unwrap();
        writeln!(text, "/srv/all 172.16.{high}.{low}(rw)").unwrap();
    }
    let exports = parsed(&text).exports;
    assert_eq!(exports.len(), 5001);
    assert_eq!(exports[1].allow.networks().len(), 5000);
}

/// exports(5), "RPCSEC_GSS security": options behind one of several `sec=` hold for its flavours alone.
#[test]
fn options_behind_one_of_several_sec_hold_for_its_flavours() {
    use Security::{Krb5, Krb5i, Krb5p, Sys};
    let of = |options: &str| {
        let exports = parsed(&format!("/a *({options})")).exports;
        let terms = terms_of(&exports[0]);
        Security::ALL.map(|flavor| {
            let found = terms.of(flavor);
            terms.security.contains(&flavor).then_some((found.read_only, found.squash))
        })
    };
    assert_eq!(Security::ALL, [Sys, Krb5, Krb5i, Krb5p]);
    let (ro, rw) = (Some((true, Squash::Root)), Some((false, Squash::Root)));
    assert_eq!(of("sec=sys,ro,sec=krb5p,rw"), [ro, None, None, rw]);
    assert_eq!(of("sec=krb5p,rw,sec=sys,ro"), [ro, None, None, rw]);
    // What stands before the first one, and the defaults, hold for all.
    assert_eq!(of("rw,sec=sys,ro,sec=krb5:krb5i"), [ro, rw, rw, None]);
    assert_eq!(of("sec=krb5,rw,sec=sys"), [ro, rw, None, None]);
    let root = Some((true, Squash::Nobody));
    assert_eq!(of("sec=krb5,no_root_squash,sec=sys"), [ro, root, None, None]);
    assert_eq!(of("sec=krb5,all_squash,sec=sys")[1], Some((true, Squash::Everybody)));
    // A flavour that is named again gets more options.
    assert_eq!(of("sec=krb5:sys,rw,sec=sys,ro"), [ro, rw, None, None]);
    // With a single one the order has no meaning.
    assert_eq!(of("sec=krb5:sys,rw"), of("rw,sec=krb5:sys"));
    // The other options are the same for all flavours.
    let export = &parsed("/a *(sec=krb5,rw,sec=sys,insecure,anonuid=7)").exports[0];
    assert!(!export.secure && export.anonymous.0 == 7);
    assert!(export.apart.iter().all(|terms| !terms.secure && terms.anonymous.uid == 7));
    assert_eq!(export.security, [Krb5, Sys]);
}

#[test]
fn flavours_of_a_client_replace_those_of_its_line() {
    let exports = parsed("/a -sec=sys,rw 192.0.2.1(sec=krb5) 192.0.2.2 192.0.2.3(ro)").exports;
    assert_eq!((&exports[0].security, exports[0].read_only), (&vec![Security::Krb5], false));
    let others: Vec<_> =
        exports[0].rules.iter().map(|rule| (&rule.terms.security, rule.terms.read_only)).collect();
    assert_eq!(others, [(&vec![Security::Sys], false), (&vec![Security::Sys], true)]);
    // Options without sec= hold for all groups of the defaults.
    let exports = parsed("/a -sec=krb5,rw,sec=sys,ro 192.0.2.1(rw)").exports;
    assert!(!exports[0].read_only && exports[0].apart.is_empty(), "{exports:?}");
}

#[test]
fn a_server_that_only_reads_lets_no_flavour_write() {
    let mut exports =
        parsed("/a 192.0.2.1(sec=krb5,rw,sec=sys,rw,no_root_squash) *(ro,sec=sys,sec=krb5,rw)").exports;
    let export = &mut exports[0];
    assert!(export.keeps_root(), "for one flavour of one client");
    export.close_to_changes();
    let rules = export.rules.iter().flat_map(|rule| std::iter::once(&rule.terms).chain(&rule.terms.apart));
    assert!(export.read_only && export.apart.iter().chain(rules).all(|terms| terms.read_only));
}

/// exports(5), "User ID Mapping": each option has an opposite, and the last one counts.
#[test]
fn options_of_squashing_are_two_switches() {
    let of = |options: &str| parsed(&format!("/a *({options})")).exports[0].squash;
    for (options, expected) in [
        ("ro", Squash::Root),
        ("no_root_squash", Squash::Nobody),
        ("no_root_squash,root_squash", Squash::Root),
        ("all_squash", Squash::Everybody),
        ("all_squash,no_root_squash", Squash::Everybody),
        ("all_squash,no_all_squash", Squash::Root),
        ("no_root_squash,all_squash,no_all_squash", Squash::Nobody),
        ("no_all_squash", Squash::Root),
    ] {
        assert_eq!(of(options), expected, "{options}");
    }
    assert_eq!(parsed("/a -no_root_squash,all_squash *(no_all_squash)").exports[0].squash, Squash::Nobody);
    assert!(!parsed("/a *(ro,rw)").exports[0].read_only && parsed("/a *(rw,ro)").exports[0].read_only);
    assert!(!parsed("/a *(secure,insecure)").exports[0].secure);
}

/// All options of exports(5) that the server cannot or need not follow.
#[test]
fn each_option_without_effect_has_one_line_or_does_what_is_done_anyway() {
    let silent = "sync,no_subtree_check,no_wdelay,hide,nocrossmnt,no_acl,no_pnfs,xprtsec=none:tls:mtls";
    assert_eq!(parsed(&format!("/a *({silent})")).notes, Vec::<String>::new());
    for option in [
        "async",
        "wdelay",
        "subtree_check",
        "nohide",
        "crossmnt",
        "zfs_snapdir",
        "secure_locks",
        "insecure_locks",
        "auth_nlm",
        "no_auth_nlm",
        "acl",
        "pnfs",
        "security_label",
        "fsid=0",
        "fsid=root",
        "fsid=1234-5678",
        "reexport=auto-fsidnum",
        "refer=/b@192.0.2.1+192.0.2.2:/c@192.0.2.3",
        "replicas=/b@192.0.2.1",
        "nordirplus",
    ] {
        let notes = parsed(&format!("/a *({option})")).notes;
        let name = option.split('=').next().unwrap();
        assert_eq!(notes.len(), 1, "{option}: {notes:?}");
        assert!(notes[0].starts_with(&format!("exports:1:6: {name} has no effect: ")), "{}", notes[0]);
    }
}

#[test]
fn a_name_without_an_address_is_left_out_and_told() {
    let Listed { exports, notes, .. } =
        parsed("/a none.example(rw) 192.0.2.1(ro)\n/b none.example one.example(rw) *(ro)\n");
    assert_eq!((networks(exports[0].allow.networks()), exports[0].rules.len()), ("192.0.2.1/32".into(), 0));
    assert!(exports[0].read_only);
    assert!(exports[1].allow.is_everybody() && exports[1].read_only);
    assert_eq!(networks(&exports[1].rules[0].networks), "192.0.2.7/32");
    assert_eq!(
        notes,
        [
            "exports:1:4: the host name none.example has no address now (unknown): its entry admits nobody until the file is \
          read again (2 times)"
        ]
    );
}

/// A client must not get the terms of a wider entry because a name could not be looked up.
#[test]
fn a_host_without_an_address_gets_no_other_terms() {
    for (line, wider) in [
        ("/a none.example(ro,all_squash) 192.0.2.0/24(rw)", "192.0.2.0/24"),
        ("/a none.example(ro,all_squash) *(rw)", "*"),
        ("/a *(rw) none.example(ro,all_squash)", "*"),
    ] {
        let told = faults(line);
        assert!(
            told.len() == 1
                && told[0].contains("saw none.example, which has no address now, expected one")
                && told[0].contains(&format!("may belong to {wider}, which has other options")),
            "{told:?}"
        );
    }
    // A single host is another one, and equal terms hold for both.
    parsed("/a none.example(ro) 192.0.2.1(rw)");
    parsed("/a none.example(rw) 192.0.2.0/24(rw)");
}

#[test]
fn a_name_keeps_the_addresses_of_an_earlier_reading() {
    let text = "/a one.example(rw) *(ro)\n";
    let first = parsed(text);
    let lost = |_: &str| Err("try again".to_owned());
    let again = parse(Path::new("exports"), text, &first.names, &lost).unwrap();
    assert_eq!(again.exports, first.exports);
    assert_eq!(again.names, first.names);
    assert_eq!(
        again.notes,
        [
            "exports:1:4: the host name one.example has no address now (try again): its entry keeps the addresses of an \
          earlier reading, 192.0.2.7"
        ]
    );
    // Another host may have the address by now, and its own entry decides.
    let moved = |name: &str| match name {
        "two.example" => Ok(vec!["192.0.2.7".parse().unwrap()]),
        _ => Err("unknown".to_owned()),
    };
    let text = "/a one.example(rw,no_root_squash) two.example(ro)\n";
    let Listed { exports, notes, .. } = parse(Path::new("exports"), text, &first.names, &moved).unwrap();
    assert_eq!(networks(exports[0].allow.networks()), "192.0.2.7/32");
    assert!(exports[0].read_only && exports[0].rules.is_empty());
    assert_eq!(
        notes,
        [
            "exports:1:4: the host name one.example has no address now (unknown): other entries have its addresses of an \
          earlier reading"
        ]
    );
    // A name that the file no longer has is forgotten.
    assert!(parse(Path::new("exports"), "/a *\n", &first.names, &resolve).unwrap().names.is_empty());
}

/// A resolver that fails for AAAA alone returns what it returns for a name without AAAA.
#[test]
fn a_name_keeps_the_addresses_of_a_version_of_ip_and_each_is_named() {
    let before = parsed("/a two.example(rw)\n").names;
    let four = |_: &str| Ok(vec!["192.0.2.9".parse().unwrap()]);
    let read = |text: &str, before: &Names| parse(Path::new("exports"), text, before, &four).unwrap();
    let text = "/b *\n/a two.example(rw) *(ro)\n/c two.example\n";
    let Listed { exports, names, notes, .. } = read(text, &before);
    assert_eq!(networks(&exports[1].rules[0].networks), "192.0.2.9/32 2001:db8::7/128");
    assert_eq!(names["two.example"].len(), 2);
    let expected = "exports:2:4: the host name two.example has no IPv6 address now: its entry keeps those of an earlier \
                    reading, 2001:db8::7, until the server restarts or a reload finds others (2 times)";
    assert_eq!(notes, [expected]);
    // It is told at each reading, and no more where another entry decides.
    assert_eq!(read(text, &names).notes, [expected]);
    let Listed { names, notes, .. } = read("/a 2001:db8::7(ro) two.example(rw)\n", &names);
    assert_eq!(notes, Vec::<String>::new());
    // The other version, and an address of each version now.
    let six = |_: &str| Ok(vec!["2001:db8::9".parse().unwrap()]);
    let Listed { names, notes, .. } = parse(Path::new("exports"), "/a two.example\n", &names, &six).unwrap();
    assert!(
        notes[0].contains("no IPv4 address now: its entry keeps those of an earlier reading, 192.0.2.9, ")
    );
    let again = parse(Path::new("exports"), "/a two.example\n", &names, &resolve).unwrap();
    assert_eq!((again.names["two.example"].len(), again.notes), (3, Vec::new()));
}

/// An empty list of networks must not be taken for one that admits everybody.
#[test]
fn an_export_whose_names_all_have_no_address_is_closed() {
    let Listed { exports, notes, .. } = parsed("/a none.example(rw) other.example\n/b *\n");
    assert_eq!(exports[0].allow, Admitted::Networks(Vec::new()));
    assert_eq!(exports[0].admitted(), Some(Vec::new()));
    assert!(exports[0].rules.is_empty() && exports[1].admitted().is_none());
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert_eq!(notes[2], "exports:1:1: nobody may mount /a: none of its clients has an address");
}
