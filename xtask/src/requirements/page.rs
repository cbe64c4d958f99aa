//! Output for people: counts on the terminal, and the page.

use std::fmt::Write;

use super::catalogue::Status;
use super::join::{Covered, Joined, Table};

/// Text above the tables of the page.
const INTRODUCTION: &str = "\
# Requirements and their tests

<!-- Written by: cargo xtask requirements --write-docs -->

This page lists every requirement of the documents of RPC-over-RDMA Versions One and Two, and of their bindings for NFS. It also
lists those of RFC 5042, to which providers must conform, and those of the protocols above: RPC with RPCSEC_GSS and its binding protocols,
XDR, NFS version 3 and MOUNT. Below is iWARP, the default transport: RFC 5040 (RDMAP), RFC 5041 (DDP), RFC 5044 and RFC 6581 (MPA). Each
requirement has the tests that fail if it is not met. The source of the list is [`docs/requirements`](requirements), with a file
for each document. Tests name the requirements that they cover in comments (`// requirement: ID`).

`cargo xtask requirements` joins both. It fails if a *tested* requirement has no test, or if a comment names an unknown id. It
also fails if a section of a document states more requirements than are listed for it, or if this page is stale. A test counts
only if `.ci/run` runs it: not if it is ignored, configured out, or in a file that no module reaches.

The documents are no part of this project. The command therefore takes from `docs/requirements` how many requirements each
section states, and proves only that as many are listed. `cargo xtask requirements --texts FOLDER` reads the documents too. It
compares their hashes, and counts the keywords of RFC 2119 (without MAY and OPTIONAL) in each section. `.ci/run` does not.
Rules without keywords in capitals are counted by hand, and no program checks these counts. The hash is the SHA-256 of the
words of a text with one space between them, without page headers and footers.

- *tested*: met, and a test fails if it is not.
- *deviation*: not met as stated; the reason is given.
- *planned*: will be met; the reason names the missing part.
- *not applicable*: a definition, or a requirement for others than such an implementation.
";

/// Returns the number of requirements by document and status.
pub(crate) fn counts(table: &Table) -> String {
    let width = table.documents.iter().map(|joined| joined.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}", "");
    // Writing to a String cannot fail.
    for status in Status::ALL {
        let _ = write!(text, "  {:>14}", status.to_string());
    }
    text.push('\n');
    for joined in &table.documents {
        let _ = write!(text, "{:width$}", joined.name);
        for status in Status::ALL {
            let _ = write!(text, "  {:>14}", joined.count(status));
        }
        text.push('\n');
    }
    text
}

/// Returns the page.
pub(crate) fn page(table: &Table) -> String {
    let mut text = INTRODUCTION.to_owned();
    let titles = Status::ALL.map(|status| status.to_string()).join(" | ");
    let _ = write!(text, "\n| document | {titles} |\n| --- | --- | --- | --- | --- |\n");
    for joined in &table.documents {
        let counts = Status::ALL.map(|status| joined.count(status).to_string()).join(" | ");
        let _ = writeln!(text, "| [{}](#{}) | {counts} |", joined.name, anchor(&joined.name));
    }
    for joined in &table.documents {
        section(&mut text, joined);
    }
    text
}

fn section(text: &mut String, joined: &Joined) {
    let about = format!("{} {}", origin(joined), joined.note.trim());
    let _ =
        write!(text, "\n## {}\n\n[{}]({}). {}\n\n", joined.name, joined.title, joined.url, about.trim_end());
    text.push_str(
        "| id | level | requirement | status | tests, or the reason |\n| --- | --- | --- | --- | --- |\n",
    );
    for covered in &joined.requirements {
        let requirement = &covered.requirement;
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            requirement.id,
            requirement.level,
            cell(&requirement.quote),
            requirement.status,
            evidence(covered)
        );
    }
}

/// Returns a sentence about the count of the requirements.
fn origin(joined: &Joined) -> String {
    let counts = format!("Counted: {} keywords, {} rules by hand", joined.keywords, joined.by_hand);
    match &joined.text {
        Some(text) => format!("{counts}, in `{}` (SHA-256 `{}`).", text.file, text.sha256),
        None => format!("{counts}. No hash of the text is recorded, so `--texts` checks nothing."),
    }
}

/// Returns the reason, the tests, and other files that name the requirement.
fn evidence(covered: &Covered) -> String {
    let reason = covered.requirement.reason.iter().map(|reason| cell(reason));
    let tests = covered.tests.iter().map(|test| format!("[`{}`](../{})", test.name, test.path));
    let hints = covered.hints.iter().map(|path| format!("see [`{path}`](../{path})"));
    reason.chain(tests).chain(hints).collect::<Vec<_>>().join("<br>")
}

/// Returns text that fits a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Returns the link target of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::catalogue::Document;
    use crate::requirements::join::join;
    use crate::requirements::scan::{File, of_text};

    const DOCUMENT: &str = r#"
name = "RFC 1, again"
title = "Host Software"
url = "https://example.org/rfc1"
prefix = "rfc1"
note = "Every word."
text = { file = "rfc1.txt", sha256 = "1234" }
sections = { "2" = 2 }

[[requirement]]
id = "rfc1-2-1"
section = "2"
level = "must"
quote = "this | that"
status = "tested"

[[requirement]]
id = "rfc1-2-2"
section = "2"
level = "should"
quote = "more"
status = "planned"
reason = "later"
"#;

    fn table() -> Table {
        let text = "// requirement: rfc1-2-1\n#[test]\nfn b() {}\n// requirement: rfc1-2-1\n#[test]\nfn a() {}\n// requirement: rfc1-2-2\nfn c() {}";
        let file = File { path: "crates/x.rs".to_owned(), annotations: of_text(text).unwrap() };
        join(vec![Document::parse(DOCUMENT).unwrap()], vec![file]).0
    }

    #[test]
    fn the_page_has_a_line_for_each_requirement() {
        let page = page(&table());
        for line in [
            "| [RFC 1, again](#rfc-1-again) | 1 | 0 | 1 | 0 |",
            "[Host Software](https://example.org/rfc1). Counted: 2 keywords, 0 rules by hand, in `rfc1.txt` (SHA-256 `1234`). Every word.",
            "| `rfc1-2-1` | must | this \\| that | tested | [`a`](../crates/x.rs)<br>[`b`](../crates/x.rs) |",
            "| `rfc1-2-2` | should | more | planned | later<br>see [`crates/x.rs`](../crates/x.rs) |",
        ] {
            assert!(page.lines().any(|seen| seen == line), "{line}\n{page}");
        }
    }

    #[test]
    fn the_page_says_what_is_not_checked() {
        let mut table = table();
        table.documents[0].text = None;
        let sentence =
            "2 keywords, 0 rules by hand. No hash of the text is recorded, so `--texts` checks nothing.";
        assert!(page(&table).contains(sentence), "{}", page(&table));
    }

    #[test]
    fn counts_have_a_line_for_each_document() {
        let counts = counts(&table());
        let last: Vec<&str> = counts.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["RFC", "1,", "again", "1", "0", "1", "0"]);
    }
}
