use tempfile::TempDir;

use super::*;

/// A text with everything that a count must leave out.
const TEXT: &str = "\u{feff}

Network Working Group                                            A. Author
Request for Comments: 1                                      November 2026

Abstract

   This text is made up; nobody MUST read it.

Table of Contents

   1. What MUST be done ...........................................1
   2. Security .......................................................2

1.  What MUST be done

   Hosts MUST
   NOT sleep; they SHOULD, \"MUST\"; and MAY rest.  It is NOT
   RECOMMENDED to snore.



Author                      Informational                      [Page 1]
\u{c}
RFC 1                        They MUST not count            November 2026


   A host SHALL

Author                      Informational                      [Page 2]
\u{c}
RFC 1                        They MUST not count            November 2026

   NOT dream.  MUSTARD is REQUIRED, must_ and XMUST are not.

1.1 Without a dot

   RFC 0 REQUIRES a bed.

      //  IN NO EVENT SHALL THE COPYRIGHT OWNER DREAM.

Appendix A: Beds

   Beds are OPTIONAL and RECOMMENDED.

A.1.  More

   MUST

Author                      Informational                      [Page 3]
";

fn sections(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|&(section, count)| (section.to_owned(), count)).collect()
}

#[test]
fn keywords_are_counted_by_section() {
    let expected = sections(&[("front", 1), ("1", 6), ("1.1", 1), ("A", 1), ("A.1", 1)]);
    assert_eq!(Text::of(TEXT).sections, expected);
}

#[test]
fn the_hash_is_that_of_the_words() {
    let same = TEXT.replace(['\u{c}', '\u{feff}'], "").replace("\n\n", "\n").replace('\n', "\r\n");
    assert_eq!(Text::of(&same).sha256, Text::of(TEXT).sha256);
    assert_eq!(Text::of(&same).sections, Text::of(TEXT).sections);
    assert_ne!(Text::of(&TEXT.replace("snore", "Snore")).sha256, Text::of(TEXT).sha256);
    // The hash of "abc", from FIPS 180-2.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(Text::of(" abc\n").sha256, abc);
}

#[test]
fn titles_and_what_is_none() {
    for (line, number) in [
        ("1.  Introduction", "1"),
        ("10.2.  Informative References", "10.2"),
        ("2.1 RPCBIND Protocol", "2.1"),
        ("Appendix A.  Changes", "A"),
        ("Appendix B: Summary", "B"),
        ("Appendix C", "C"),
        ("A.1.  Changes", "A.1"),
    ] {
        assert_eq!(heading(line).as_deref(), Some(number), "{line}");
    }
    for line in [
        "   1.  Introduction",
        "1. Introduction ....................3",
        "1.  Introduction . . . . . . . .   4",
        "1.",
        "A Host",
        "RFC 8166",
        "Acknowledgements",
        "1a. Odd",
        "",
    ] {
        assert_eq!(heading(line), None, "{line}");
    }
}

/// Returns a document that states these counts and this hash for `rfc1.txt`.
fn document(sections: &str, sha256: &str) -> Document {
    let text = format!(
        "name = \"RFC 1\"\ntitle = \"\"\nurl = \"\"\nprefix = \"rfc1\"\nnote = \"\"\n\
         text = {{ file = \"rfc1.txt\", sha256 = \"{sha256}\" }}\nsections = {{ {sections} }}\nby_hand = {{ \"1\" = 7 }}\nrequirement = []\n"
    );
    Document::parse(&text).unwrap()
}

fn compared(document: Document) -> Vec<Fault> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("rfc1.txt"), TEXT).unwrap();
    compare(&[document], folder.path())
}

#[test]
fn a_document_is_compared_with_its_text() {
    let hash = Text::of(TEXT).sha256;
    let good = "front = 1, \"1\" = 6, \"1.1\" = 1, A = 1, \"A.1\" = 1";
    assert_eq!(compared(document(good, &hash)), []);
    let recount = |section: &str, stated, counted| Fault::Recount {
        document: "RFC 1".to_owned(),
        section: section.to_owned(),
        stated,
        counted,
    };
    let other = "front = 1, \"1\" = 5, \"1.1\" = 1, A = 1, B = 1";
    let expected = [recount("1", 5, 6), recount("A.1", 0, 1), recount("B", 1, 0)];
    assert_eq!(compared(document(other, &hash)), expected);
}

#[test]
fn another_text_is_not_counted() {
    let fault = Fault::OtherText {
        document: "RFC 1".to_owned(),
        file: "rfc1.txt".to_owned(),
        stated: "00".to_owned(),
        seen: Text::of(TEXT).sha256,
    };
    assert_eq!(compared(document("\"1\" = 1", "00")), [fault]);
}

#[test]
fn a_text_that_is_missing_is_a_fault() {
    let folder = TempDir::new().unwrap();
    let faults = compare(&[document("\"1\" = 1", "00")], folder.path());
    assert!(matches!(&faults[..], [Fault::NoText { file, .. }] if file == "rfc1.txt"), "{faults:?}");
}
