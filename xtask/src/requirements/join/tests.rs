use super::super::scan::{self, File};
use super::*;

const GOOD: &str = r#"
name = "RFC 1"
title = "Host Software"
url = "https://www.rfc-editor.org/rfc/rfc1"
prefix = "rfc1"
note = "Two words were counted."
sections = { "2.1" = 2, "3" = 1 }

[[requirement]]
id = "rfc1-2.1-1"
section = "2.1"
level = "must"
quote = "links are tried again"
status = "tested"

[[requirement]]
id = "rfc1-2.1-2"
section = "2.1"
level = "should"
quote = "checksums are checked"
status = "deviation"
reason = "there are none"

[[requirement]]
id = "rfc1-3-1"
section = "3"
level = "recommendation"
quote = "meet again"
status = "not applicable"
reason = "for people"
"#;

const TEST: &str = "
// requirement: rfc1-2.1-1
#[test]
fn links() {}
";

fn files(texts: &[&str]) -> Vec<File> {
    let file = |(index, text): (usize, &&str)| File {
        path: format!("crates/{index}.rs"),
        annotations: scan::of_text(text).unwrap(),
    };
    texts.iter().enumerate().map(file).collect()
}

fn faults(document: &str, texts: &[&str]) -> Vec<Fault> {
    join(vec![Document::parse(document).unwrap()], files(texts)).1
}

fn id(id: &str) -> String {
    id.to_owned()
}

#[test]
fn what_agrees_has_no_fault() {
    let hint = "// requirement: rfc1-2.1-1\nfn check() {}";
    let (table, faults) = join(vec![Document::parse(GOOD).unwrap()], files(&[TEST, hint]));
    assert_eq!(faults, []);
    let joined = &table.documents[0];
    assert_eq!(Status::ALL.map(|status| joined.count(status)), [1, 1, 0, 1]);
    let first = &joined.requirements[0];
    let test = Test { path: "crates/0.rs".to_owned(), name: "links".to_owned() };
    assert_eq!(first.tests.iter().collect::<Vec<_>>(), [&test]);
    assert_eq!(first.hints.iter().collect::<Vec<_>>(), ["crates/1.rs"]);
}

#[test]
fn tested_needs_a_test() {
    let none = [Fault::NoTest { id: id("rfc1-2.1-1") }];
    assert_eq!(faults(GOOD, &[]), none);
    assert_eq!(faults(GOOD, &["// requirement: rfc1-2.1-1\nfn check() {}"]), none, "a hint is no test");
}

#[test]
fn an_annotation_names_what_exists() {
    let text = "#[test]\nfn other() {\n    // requirement: rfc1-2.1-9\n}\n";
    let unknown = Fault::UnknownId { id: id("rfc1-2.1-9"), path: id("crates/1.rs"), line: 3 };
    assert_eq!(faults(GOOD, &[TEST, text]), [unknown]);
}

#[test]
fn an_id_is_unique() {
    let twice = GOOD.replace("rfc1-2.1-2", "rfc1-2.1-1");
    assert_eq!(faults(&twice, &[TEST]), [Fault::DoubleId { id: id("rfc1-2.1-1") }]);
    let documents = vec![Document::parse(GOOD).unwrap(), Document::parse(GOOD).unwrap()];
    assert_eq!(join(documents, files(&[TEST])).1.len(), 3, "across documents too");
}

#[test]
fn an_id_tells_document_and_section() {
    for odd in ["rfc2-3-1", "rfc1-4-1", "rfc1-3-", "rfc1-3-x", "rfc1-3"] {
        let fault = Fault::OddId { id: id(odd), expected: id("rfc1-3-") };
        assert_eq!(faults(&GOOD.replace("rfc1-3-1", odd), &[TEST]), [fault]);
    }
}

#[test]
fn what_is_not_tested_has_a_reason() {
    let fault = [Fault::NoReason { id: id("rfc1-2.1-2"), status: Status::Deviation }];
    assert_eq!(faults(&GOOD.replace("reason = \"there are none\"", ""), &[TEST]), fault);
    assert_eq!(faults(&GOOD.replace("there are none", " "), &[TEST]), fault);
}

#[test]
fn what_has_a_test_is_not_called_planned() {
    let planned = GOOD.replace("\"tested\"", "\"planned\"\nreason = \"later\"");
    let test = Test { path: id("crates/0.rs"), name: id("links") };
    let fault = Fault::TestOf { id: id("rfc1-2.1-1"), status: Status::Planned, test };
    assert_eq!(faults(&planned, &[TEST]), [fault]);
    assert_eq!(faults(&planned, &[]), []);
    let deviation = GOOD.replace("\"tested\"", "\"deviation\"\nreason = \"on purpose\"");
    assert_eq!(faults(&deviation, &[TEST]), [], "the deviation itself may be tested");
}

#[test]
fn every_section_lists_what_it_states() {
    let count = |section: &str, stated, listed| Fault::Count {
        document: id("RFC 1"),
        section: id(section),
        stated,
        listed,
    };
    assert_eq!(faults(&GOOD.replace("\"3\" = 1", "\"3\" = 2"), &[TEST]), [count("3", 2, 1)]);
    assert_eq!(
        faults(&GOOD.replace("\"3\" = 1", "\"4\" = 1"), &[TEST]),
        [count("3", 0, 1), count("4", 1, 0)]
    );
    let wide = GOOD.replace("\"meet again\"", "\"meet again\"\ncovers = 2");
    assert_eq!(faults(&wide, &[TEST]), [count("3", 1, 2)]);
    assert_eq!(faults(&wide.replace("\"3\" = 1", "\"3\" = 2"), &[TEST]), []);
    let by_hand = |section: &str| {
        wide.replace("\"3\" = 1 }", &format!("\"3\" = 1 }}\nby_hand = {{ \"{section}\" = 1 }}"))
    };
    assert_eq!(faults(&by_hand("3"), &[TEST]), []);
    assert_eq!(faults(&by_hand("4"), &[TEST]), [count("3", 1, 2), count("4", 1, 0)]);
}

#[test]
fn a_quote_is_short() {
    let words = "word ".repeat(QUOTE_WORDS + 1);
    let fault = Fault::LongQuote { id: id("rfc1-3-1"), words: QUOTE_WORDS + 1 };
    assert_eq!(faults(&GOOD.replace("meet again", words.trim()), &[TEST]), [fault]);
    assert_eq!(faults(&GOOD.replace("meet again", words.trim_end_matches("word ")), &[TEST]), []);
}

#[test]
fn what_is_no_list_of_requirements_is_refused() {
    for bad in [
        GOOD.replace("status = \"tested\"", "status = \"done\""),
        GOOD.replace("level = \"must\"", "level = \"may\""),
        GOOD.replace("level = \"must\"", "levle = \"must\""),
        GOOD.replace("note = ", "nota = "),
    ] {
        assert!(Document::parse(&bad).is_err(), "{bad}");
    }
}
