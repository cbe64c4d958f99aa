//! Joins requirements and annotations, and reports contradictions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::catalogue::{Document, Requirement, Status, Text};
use super::scan::File;

/// Maximum number of words of a quote: it names a requirement, and the text stays in its document.
const QUOTE_WORDS: usize = 24;

/// All documents with the evidence for their requirements.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) documents: Vec<Joined>,
}

/// A document with the evidence for its requirements.
#[derive(Debug, Serialize)]
pub(crate) struct Joined {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) note: String,
    /// Number of requirements with keywords in capitals, and of those without.
    pub(crate) keywords: usize,
    pub(crate) by_hand: usize,
    pub(crate) text: Option<Text>,
    pub(crate) requirements: Vec<Covered>,
}

impl Joined {
    /// Returns the number of requirements with this status.
    pub(crate) fn count(&self, status: Status) -> usize {
        self.requirements.iter().filter(|covered| covered.requirement.status == status).count()
    }
}

/// A requirement with its evidence.
#[derive(Debug, Serialize)]
pub(crate) struct Covered {
    #[serde(flatten)]
    pub(crate) requirement: Requirement,
    pub(crate) tests: BTreeSet<Test>,
    /// Files that name the requirement outside of tests.
    pub(crate) hints: BTreeSet<String>,
}

/// A test that names a requirement.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) path: String,
    pub(crate) name: String,
}

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two requirements have the same id.
    DoubleId { id: String },
    /// An id does not have document and section in it.
    OddId { id: String, expected: String },
    /// A quote copies too much of the text.
    LongQuote { id: String, words: usize },
    /// A status other than "tested" without a reason.
    NoReason { id: String, status: Status },
    /// The status is "tested", but no test names the requirement.
    NoTest { id: String },
    /// A test names the requirement, but the status is not "tested".
    TestOf { id: String, status: Status, test: Test },
    /// The list and the stated count of a section differ.
    Count { document: String, section: String, stated: usize, listed: usize },
    /// A section states another number of requirements than its text has.
    Recount { document: String, section: String, stated: usize, counted: usize },
    /// The text is not the one that was counted.
    OtherText { document: String, file: String, stated: String, seen: String },
    /// The text cannot be read.
    NoText { document: String, file: String, error: String },
    /// An annotation names an unknown requirement.
    UnknownId { id: String, path: String, line: usize },
    /// The page differs from the generated text.
    StalePage,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleId { id } => write!(f, "{id} is listed twice"),
            Self::OddId { id, expected } => write!(f, "{id} should be {expected}NUMBER"),
            Self::LongQuote { id, words } => {
                write!(f, "{id}: a quote of {words} words; at most {QUOTE_WORDS} are allowed")
            }
            Self::NoReason { id, status } => write!(f, "{id} is \"{status}\" without a reason"),
            Self::NoTest { id } => write!(f, "{id} is \"tested\", but no test names it"),
            Self::TestOf { id, status, test } => {
                write!(f, "{id} is \"{status}\", but {} in {} tests it", test.name, test.path)
            }
            Self::Count { document, section, stated, listed } => {
                write!(f, "{document}, section {section}: {stated} requirements stated, {listed} listed")
            }
            Self::Recount { document, section, stated, counted } => {
                write!(
                    f,
                    "{document}, section {section}: {stated} requirements stated, {counted} in its text"
                )
            }
            Self::OtherText { document, file, stated, seen } => {
                write!(f, "{document}: {file} has the hash {seen}; the text that was counted has {stated}")
            }
            Self::NoText { document, file, error } => write!(f, "{document}: {file}: {error}"),
            Self::UnknownId { id, path, line } => write!(f, "{path}:{line}: there is no requirement {id}"),
            Self::StalePage => {
                write!(f, "docs/requirements.md is stale; cargo xtask requirements --write-docs writes it")
            }
        }
    }
}

/// Returns the requirements with their evidence, and all contradictions.
pub(crate) fn join(documents: Vec<Document>, files: Vec<File>) -> (Table, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut tests: BTreeMap<String, BTreeSet<Test>> = BTreeMap::new();
    let mut hints: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for document in &documents {
        check(document, &mut known, &mut faults);
    }
    for file in files {
        for annotation in file.annotations {
            let (id, path) = (annotation.id, file.path.clone());
            if !known.contains(&id) {
                faults.push(Fault::UnknownId { id, path, line: annotation.line });
            } else if let Some(name) = annotation.test {
                tests.entry(id).or_default().insert(Test { path, name });
            } else {
                hints.entry(id).or_default().insert(path);
            }
        }
    }
    let documents = documents
        .into_iter()
        .map(|document| {
            let requirements = document.requirements.into_iter().map(|requirement| {
                let tests = tests.get(&requirement.id).cloned().unwrap_or_default();
                let hints = hints.get(&requirement.id).cloned().unwrap_or_default();
                faults.extend(disagreement(&requirement, &tests));
                Covered { requirement, tests, hints }
            });
            Joined {
                requirements: requirements.collect(),
                name: document.name,
                title: document.title,
                url: document.url,
                note: document.note,
                keywords: document.sections.values().sum(),
                by_hand: document.by_hand.values().sum(),
                text: document.text,
            }
        })
        .collect();
    (Table { documents }, faults)
}

/// Finds faults within a document.
fn check(document: &Document, known: &mut BTreeSet<String>, faults: &mut Vec<Fault>) {
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for requirement in &document.requirements {
        let id = requirement.id.clone();
        *listed.entry(&requirement.section).or_default() += requirement.covers;
        let expected = format!("{}-{}-", document.prefix, requirement.section);
        let number = id.strip_prefix(&expected).is_some_and(|rest| rest.parse::<u32>().is_ok());
        if !number {
            faults.push(Fault::OddId { id: id.clone(), expected });
        }
        let words = requirement.quote.split_whitespace().count();
        if words > QUOTE_WORDS {
            faults.push(Fault::LongQuote { id: id.clone(), words });
        }
        if requirement.status != Status::Tested
            && requirement.reason.as_ref().is_none_or(|reason| reason.trim().is_empty())
        {
            faults.push(Fault::NoReason { id: id.clone(), status: requirement.status });
        }
        if !known.insert(id.clone()) {
            faults.push(Fault::DoubleId { id });
        }
    }
    let counted = document.sections.keys().chain(document.by_hand.keys()).map(String::as_str);
    let sections: BTreeSet<&str> = counted.chain(listed.keys().copied()).collect();
    for section in sections {
        let stated = document.stated(section);
        let listed = listed.get(section).copied().unwrap_or(0);
        if stated != listed {
            let (document, section) = (document.name.clone(), section.to_owned());
            faults.push(Fault::Count { document, section, stated, listed });
        }
    }
}

/// Finds a contradiction between status and tests of a requirement. A deviation may have a test: of the deviation
/// itself.
fn disagreement(requirement: &Requirement, tests: &BTreeSet<Test>) -> Option<Fault> {
    let id = requirement.id.clone();
    match (requirement.status, tests.first()) {
        (Status::Tested, None) => Some(Fault::NoTest { id }),
        (status @ (Status::Planned | Status::NotApplicable), Some(test)) => {
            Some(Fault::TestOf { id, status, test: test.clone() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
