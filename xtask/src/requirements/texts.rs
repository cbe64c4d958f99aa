//! Recounts the requirements of a document from its plain text, as the RFC Editor and the IETF Datatracker publish it.
//!
//! A requirement is a keyword of RFC 2119 in capitals, MAY and OPTIONAL excepted. "MUST NOT" is one requirement, also
//! over the end of a line or a page. Rules without such a keyword are counted by hand, and not here. Page headers and footers, titles and the table of contents are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::catalogue::Document;
use super::join::Fault;

/// Section of the text before the first one with a number.
const FRONT: &str = "front";
/// The keywords. `NOT` behind or before one makes no further requirement.
const KEYWORDS: [&str; 6] = ["MUST", "SHALL", "SHOULD", "REQUIRED", "REQUIRES", "RECOMMENDED"];

/// A document's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// SHA-256 of the words with one space between them, without page headers and footers: equal for copies that differ
    /// in line ends, page breaks or blank lines only.
    pub(crate) sha256: String,
    /// Number of requirements by section.
    pub(crate) sections: BTreeMap<String, usize>,
}

impl Text {
    /// Reads a text.
    pub(crate) fn of(text: &str) -> Self {
        let lines = without_pages(text);
        let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        let digest = Sha256::digest(words.join(" "));
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { sha256, sections: count(&lines) }
    }
}

/// Returns the differences between the documents and their texts in a folder.
pub(crate) fn compare(documents: &[Document], folder: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for document in documents {
        let Some(stated) = &document.text else { continue };
        let (name, file) = (document.name.clone(), stated.file.clone());
        let text = match fs::read_to_string(folder.join(&file)) {
            Ok(text) => Text::of(&text),
            Err(error) => {
                faults.push(Fault::NoText { document: name, file, error: error.to_string() });
                continue;
            }
        };
        if text.sha256 != stated.sha256 {
            let (stated, seen) = (stated.sha256.clone(), text.sha256);
            faults.push(Fault::OtherText { document: name, file, stated, seen });
        } else {
            faults.extend(differences(document, &text.sections));
        }
    }
    faults
}

/// Returns the sections whose stated number is not the counted one.
fn differences(document: &Document, counted: &BTreeMap<String, usize>) -> Vec<Fault> {
    let mut sections: Vec<&String> = counted.keys().chain(document.sections.keys()).collect();
    sections.sort();
    sections.dedup();
    let number = |of: &BTreeMap<String, usize>, section| of.get(section).copied().unwrap_or(0);
    sections
        .into_iter()
        .map(|section| (section, number(&document.sections, section), number(counted, section)))
        .filter(|(_, stated, counted)| stated != counted)
        .map(|(section, stated, counted)| Fault::Recount {
            document: document.name.clone(),
            section: section.clone(),
            stated,
            counted,
        })
        .collect()
}

/// Returns the lines without byte order mark, form feeds, page footers and page headers. A footer ends with the page's
/// number; the next line that is not blank is the header of the next page.
fn without_pages(text: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut expects_header = false;
    for line in text.trim_start_matches('\u{feff}').split(['\n', '\u{c}']) {
        let line = line.trim_end();
        if is_footer(line) {
            expects_header = true;
        } else if line.is_empty() || !std::mem::take(&mut expects_header) {
            kept.push(line);
        }
    }
    kept
}

fn is_footer(line: &str) -> bool {
    line.strip_suffix(']')
        .and_then(|line| line.rsplit_once("[Page "))
        .is_some_and(|(_, page)| !page.is_empty() && page.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Counts the requirements of each section; sections without any are left out.
fn count(lines: &[&str]) -> BTreeMap<String, usize> {
    let mut sections = BTreeMap::new();
    let mut section = FRONT.to_owned();
    let mut in_contents = false;
    let mut before = "";
    for line in lines {
        if let Some(begun) = heading(line) {
            (section, in_contents) = (begun, false);
        } else if line.eq_ignore_ascii_case("table of contents") {
            in_contents = true;
        } else if !in_contents {
            let words =
                line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            for word in words {
                // The licences of code are in capitals: "IN NO EVENT SHALL".
                if KEYWORDS.contains(&word) && before != "EVENT" {
                    *sections.entry(section.clone()).or_default() += 1;
                }
                before = word;
            }
        }
    }
    sections
}

/// Returns the number of the section that a line begins: a title at the margin. The lines of a table of contents end
/// with a page number.
fn heading(line: &str) -> Option<String> {
    let (appendix, rest) = match line.strip_prefix("Appendix ") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (number, title) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = number.trim_end_matches(['.', ':']);
    let mut parts = number.split('.');
    let first = parts.next()?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let letter = first.len() == 1 && first.bytes().all(|byte| byte.is_ascii_uppercase());
    let mut below = parts.peekable();
    let numbered = digits(first) || letter && (appendix || below.peek().is_some());
    let listed =
        title.ends_with(|c: char| c.is_ascii_digit()) && (title.contains("..") || title.contains(". ."));
    let good = numbered && below.all(digits) && (appendix || !title.trim().is_empty()) && !listed;
    good.then(|| number.to_owned())
}

#[cfg(test)]
mod tests;
