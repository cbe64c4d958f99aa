//! Tests of the parser of exports(5).

use super::*;

fn resolve(name: &str) -> Result<Vec<IpAddr>, String> {
    match name {
        "one.example" => Ok(vec!["192.0.2.7".parse().unwrap()]),
        "two.example" => Ok(["2001:db8::7", "192.0.2.8", "192.0.2.8"].map(|ip| ip.parse().unwrap()).to_vec()),
        _ => Err("unknown".to_owned()),
    }
}

fn parsed(text: &str) -> Listed {
    parse(Path::new("exports"), text, &resolve).unwrap_or_else(|lines| panic!("{text}: {lines:?}"))
}

fn faults(text: &str) -> Vec<String> {
    parse(Path::new("exports"), text, &resolve).map(drop).unwrap_err()
}

fn networks(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_line_has_a_path_and_its_clients() {
    let Listed { exports, notes } = parsed(
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
        (networks(&a.allow), a.read_only, a.secure, a.squash),
        ("192.0.2.0/24".into(), false, true, Squash::Nobody)
    );
    assert_eq!(a.security, [Security::Krb5p, Security::Sys]);
    assert_eq!(networks(&a.rules[0].networks), "2001:db8::/32");
    assert_eq!(a.rules[0].terms, usual());
    assert!(b.allow.is_empty() && !b.read_only && !b.secure, "{b:?}");
    assert_eq!((b.squash, b.anonymous), (Squash::Everybody, (7, u32::MAX - 1)));
    assert_eq!(networks(&b.rules[0].networks), "198.51.100.0/24");
    assert!(b.rules[0].terms.read_only && !b.rules[0].terms.secure);
    assert_eq!(networks(&space.allow), "192.0.2.1/32");
    assert_eq!((networks(&tab.allow), tab.read_only), ("192.0.2.7/32".into(), false));
    assert_eq!(networks(&root.allow), "192.0.2.8/32 2001:db8::7/128");
}

#[test]
fn lines_of_one_path_are_one_export() {
    let exports = parsed("/a 192.0.2.1(rw)\n/b *\n/a/ 192.0.2.2(rw) *(ro)\n").exports;
    assert_eq!(exports.len(), 2);
    assert!(exports[0].read_only && exports[0].allow.is_empty());
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
    let Listed { exports, notes } = parsed("/a 192.0.2.7(rw) one.example(ro)");
    assert_eq!(networks(&exports[0].allow), "192.0.2.7/32");
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
        ("/a *(sec=sys,rw,sec=krb5)", "1:17: saw a second sec=, expected one: "),
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
        (
            "/a none.example",
            "1:4: saw \"none.example\", expected an address, a network, a host name or *: the name has no",
        ),
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
    assert_eq!(exports[1].allow.len(), 5000);
}
