//! Tests of files with options.

use std::fmt::Write as _;

use clap::CommandFactory;
use rpcrdma_nfs::server::{Security, Squash};

use super::*;
use crate::commands::Arguments;

fn parse_with(text: &str, line: &[&str]) -> Result<FromFile, Vec<String>> {
    let mut command = Arguments::command();
    let words = ["rpcrdma", "serve", "--config", "f"].into_iter().chain(line.iter().copied());
    let matches = command.clone().try_get_matches_from(words).unwrap();
    command.build();
    let serve = command.find_subcommand("serve").unwrap();
    FromFile::parse(Path::new("f"), text, serve, matches.subcommand().unwrap().1)
}

fn words(text: &str, line: &[&str]) -> Vec<String> {
    let read = parse_with(text, line).unwrap_or_else(|lines| panic!("{text}: {lines:?}"));
    read.words.into_iter().map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn keys_become_words_of_the_command_line() {
    let text = "listen = [\"127.0.0.1:0\", \"[::1]:0\"]\ntcp = \"127.0.0.1:0\"\nread-only = true\nno-crc = false\n\
                credits = 32\nidle = 2.5\nmemory = \"1G\"\nverbose = 2\njson = true\nreload-below = \"/srv\"\n\
                tos = 0x1c\n";
    let mut found = words(text, &[]);
    found.sort();
    let expected = [
        "--credits=32",
        "--idle=2.5",
        "--json",
        "--listen=127.0.0.1:0",
        "--listen=[::1]:0",
        "--memory=1G",
        "--read-only",
        "--reload-below=/srv",
        "--tcp=127.0.0.1:0",
        "--tos=28",
        "--verbose",
        "--verbose",
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_option_of_the_command_is_a_key() {
    let mut command = Arguments::command();
    command.build();
    let serve = command.find_subcommand("serve").unwrap();
    for option in serve.get_arguments() {
        let Some(long) = option.get_long().filter(|long| !ELSEWHERE.contains(long) && *long != EXPORT) else {
            continue;
        };
        // A list is wrong for all but those that repeat, whose elements are wrong.
        let told = parse_with(&format!("{long} = [[1]]"), &[]).map(drop).unwrap_err().join("\n");
        assert!(
            told.starts_with("f:1:") && told.contains(&format!(": {long}: saw a list, expected ")),
            "{told}"
        );
    }
}

#[test]
fn the_command_line_goes_first() {
    assert_eq!(words("tcp = \"127.0.0.1:1\"\ncredits = 32\n", &["--tcp", "127.0.0.1:2"]), ["--credits=32"]);
    assert_eq!(words("listen = [\"127.0.0.1:1\"]", &["--listen", "127.0.0.1:2"]), Vec::<String>::new());
    let export = "[[export]]\nname = \"/a\"\ndirectory = \"/srv/a\"\n";
    assert_eq!(parse_with(export, &[]).unwrap().exports.len(), 1);
    assert_eq!(parse_with(export, &["/srv"]).unwrap().exports.len(), 0);
    assert_eq!(parse_with(export, &["--export", "/=/srv"]).unwrap().exports.len(), 0);
}

#[test]
fn words_of_the_file_stand_behind_the_command() {
    let read = parse_with("credits = 32\n", &[]).unwrap();
    let line = ["rpcrdma", "-v", "serve", "--config", "f", "--", "/srv"].map(OsString::from);
    let expected = ["rpcrdma", "-v", "serve", "--credits=32", "--config", "f", "--", "/srv"];
    assert_eq!(read.with(&line), expected.map(OsString::from));
}

#[test]
fn exports_are_tables() {
    let text = "[[export]]\nname = \"/a\"\ndirectory = \"/srv/a,b\"\nro = true\nsecure = true\nsquash = \"all\"\n\
                allow = [\"10.0.0.0/8\", \"::1\"]\nsec = [\"krb5\", \"sys\"]\nanonuid = 7\nanongid = -2\n\
                [[export]]\nname = \"/\"\ndirectory = \"/srv\"\nrw = true\nro = false\nallow = \"192.0.2.1\"\nsec = \"krb5p\"\n";
    let exports = parse_with(text, &[]).unwrap().exports;
    let mut a = ExportOption::root("/srv/a,b".into());
    a.name = "/a".to_owned();
    (a.read_only, a.secure, a.squash) = (true, true, Squash::Everybody);
    a.allow = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap()).to_vec().into();
    a.security = vec![Security::Krb5, Security::Sys];
    a.anonymous = (7, u32::MAX - 1);
    let mut root = ExportOption::root("/srv".into());
    root.allow = vec!["192.0.2.1/32".parse().unwrap()].into();
    root.security = vec![Security::Krb5p];
    assert_eq!(exports, [a, root]);
}

#[test]
fn wrong_files_and_their_messages() {
    for (text, expected) in [
        ("credits = ", "1:11: no TOML: "),
        ("credits = 1\ncredits = 2\n", "2:1: no TOML: duplicate key"),
        ("read-only = yes\n", "1:13: no TOML: "),
        ("lisen = \"127.0.0.1\"\n", "1:1: lisen: saw an unknown key, expected \"listen\""),
        ("read_only = true\n", "1:1: read_only: saw an unknown key, expected \"read-only\""),
        (
            "colour = 1\n",
            "1:1: colour: saw an unknown key, expected the long name of an option that rpcrdma serve",
        ),
        ("[server]\ncredits = 1\n", "1:2: server: saw an unknown key, expected the long name"),
        ("config = \"g\"\n", "1:1: config: saw an option of the command line, expected it there alone"),
        ("read-only = 1\n", "1:13: read-only: saw 1, expected true or false"),
        ("credits = 0\n", "1:11: credits: saw 0, expected COUNT: "),
        ("credits = \"x\"\n", "1:11: credits: saw \"x\", expected COUNT: "),
        ("credits = [1]\n", "1:11: credits: saw a list, expected COUNT as a text or number"),
        ("\n  memory = \"1X\"\n", "2:12: memory: saw \"1X\", expected BYTES: "),
        ("idle = 0.5\n", "1:8: idle: saw 0.5, expected SECONDS: "),
        ("tcp = true\n", "1:7: tcp: saw true, expected ADDR[:PORT] as a text or number"),
        (
            "listen = [\"127.0.0.1:0\", \"a b\"]\n",
            "1:26: listen: saw \"a b\", expected [PROVIDER:]ADDR[:PORT]: ",
        ),
        (
            "listen = {a = 1}\n",
            "1:10: listen: saw a table, expected [PROVIDER:]ADDR[:PORT] as a text or number, or a list",
        ),
        ("verbose = 4\n", "1:11: verbose: saw 4, expected a number from 0 to 3"),
        ("rpcrdma-version = 3\n", "1:19: rpcrdma-version: saw 3, expected one of 1, 2, both"),
        ("export = \"/=/srv\"\n", "1:10: export: saw \"/=/srv\", expected tables [[export]]"),
        ("[[export]]\nname = \"/a\"\n", "1:1: export: saw no directory, expected directory = \"PATH\""),
        ("[[export]]\ndirectory = \"/a\"\n", "1:1: export: saw no name, expected name = \"PATH\""),
        ("[[export]]\nname = \"a\"\ndirectory = \"/a\"\n", "2:8: export.name: saw \"a\", expected a path: "),
        ("[[export]]\nname = 1\ndirectory = \"/a\"\n", "2:8: export.name: saw 1, expected a path as a text"),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nsqash = \"all\"\n",
            "4:1: export.sqash: saw an unknown key, expected \"squash\"",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nsquash = \"me\"\n",
            "4:10: export.squash: saw \"me\", expected ",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nallow = [\"::/0\", \"10.0.0.0/33\"]\n",
            "4:18: export.allow: saw \"10.0.0.0/33\", expected ",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nsec = [\"sys\", \"dh\"]\n",
            "4:7: export.sec: saw a list, expected ",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nro = \"yes\"\n",
            "4:6: export.ro: saw \"yes\", expected true or false",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nro = true\nrw = true\n",
            "5:6: export.rw: saw true, expected one of ro or rw",
        ),
        (
            "[[export]]\nname = \"/a\"\ndirectory = \"/a\"\nanonuid = -1\n",
            "4:11: export.anonuid: saw -1, expected ",
        ),
    ] {
        let lines = parse_with(text, &[]).map(drop).unwrap_err();
        assert!(lines.iter().any(|line| line.starts_with(&format!("f:{expected}"))), "{text}: {lines:?}");
    }
}

/// The time is not measured: if each place were counted from the start of the text, the test would take minutes.
#[test]
fn thousands_of_exports_and_faults_are_read() {
    let mut text = String::new();
    for number in 0..20_000 {
        writeln!(text, "[[export]]\nname = \"/{number}\"\ndirectory = \"/srv/{number}\"\nrw = true").unwrap();
    }
    assert_eq!(parse_with(&text, &[]).unwrap().exports.len(), 20_000);
    let of_lines = text.replace("rw = true", "rw = 1");
    // Columns count characters, so a long line is counted, too.
    let values = "\"x\", ".repeat(20_000);
    let of_one_line = format!("[[export]]\nname = \"/\"\ndirectory = \"/srv\"\nallow = [{values}]\n");
    // No key, and all but the first are the same key.
    let of_form = "= 1\n".repeat(20_000);
    for (text, first, faults) in
        [(of_lines, "f:4:6: ", 20_000), (of_one_line, "f:4:10: ", 20_000), (of_form, "f:1:1: ", 39_999)]
    {
        let lines = parse_with(&text, &[]).map(drop).unwrap_err();
        let Some((last, told)) = lines.split_last() else { panic!("no fault") };
        assert!(told[0].starts_with(first), "{}", told[0]);
        assert_eq!(*last, format!("f: and {} more", faults - 20));
    }
}

#[test]
fn all_faults_of_a_file_are_told_in_order() {
    let text = "credits = 0\nlisen = 1\n[[export]]\nnam = \"/\"\n[[export]]\nname = \"/b\"\nro = 1\n";
    let lines = parse_with(text, &[]).map(drop).unwrap_err();
    let places: Vec<&str> = lines.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["f:1:11", "f:2:1", "f:3:1", "f:3:1", "f:4:1", "f:5:1", "f:7:6"]);
}
