//! Joins requirements and annotations, and says what does not agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::catalogue::{Document, Requirement, Status};
use super::scan::File;

/// The words that a quote may have: it names a requirement, the text stays in its document.
const QUOTE_WORDS: usize = 24;

/// All documents with what covers their requirements.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) documents: Vec<Joined>,
}

/// A document with what covers its requirements.
#[derive(Debug, Serialize)]
pub(crate) struct Joined {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) note: String,
    pub(crate) requirements: Vec<Covered>,
}

impl Joined {
    /// How many of its requirements have this status.
    pub(crate) fn count(&self, status: Status) -> usize {
        self.requirements.iter().filter(|covered| covered.requirement.status == status).count()
    }
}

/// A requirement with what covers it.
#[derive(Debug, Serialize)]
pub(crate) struct Covered {
    #[serde(flatten)]
    pub(crate) requirement: Requirement,
    pub(crate) tests: BTreeSet<Test>,
    /// Files that name it outside of tests.
    pub(crate) hints: BTreeSet<String>,
}

/// A test that names a requirement.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) path: String,
    pub(crate) name: String,
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two requirements have the same id.
    DoubleId { id: String },
    /// An id does not tell document and section.
    OddId { id: String, expected: String },
    /// A quote is a copy.
    LongQuote { id: String, words: usize },
    /// A status other than "tested" without a reason.
    NoReason { id: String, status: Status },
    /// "tested", and no test says so.
    NoTest { id: String },
    /// A test says so, and the status says otherwise.
    TestOf { id: String, status: Status, test: Test },
    /// A section states another number of requirements than are listed.
    Count { document: String, section: String, stated: usize, listed: usize },
    /// An annotation names what does not exist.
    UnknownId { id: String, path: String, line: usize },
    /// The page is not what would be written.
    StalePage,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleId { id } => write!(f, "{id} stands twice"),
            Self::OddId { id, expected } => write!(f, "{id} should be {expected}NUMBER"),
            Self::LongQuote { id, words } => {
                write!(f, "{id}: a quote of {words} words, {QUOTE_WORDS} are allowed")
            }
            Self::NoReason { id, status } => write!(f, "{id} is \"{status}\" without a reason"),
            Self::NoTest { id } => write!(f, "{id} is \"tested\", and no test names it"),
            Self::TestOf { id, status, test } => {
                write!(f, "{id} is \"{status}\", and {} in {} tests it", test.name, test.path)
            }
            Self::Count { document, section, stated, listed } => {
                write!(f, "{document}, section {section}: {stated} requirements stated, {listed} listed")
            }
            Self::UnknownId { id, path, line } => write!(f, "{path}:{line}: there is no requirement {id}"),
            Self::StalePage => {
                write!(f, "docs/requirements.md is stale; cargo xtask requirements --write-docs writes it")
            }
        }
    }
}

/// What covers what, and all that does not agree.
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
            }
        })
        .collect();
    (Table { documents }, faults)
}

/// What is wrong with a document by itself.
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
    let sections: BTreeSet<&str> =
        document.sections.keys().map(String::as_str).chain(listed.keys().copied()).collect();
    for section in sections {
        let stated = document.sections.get(section).copied().unwrap_or(0);
        let listed = listed.get(section).copied().unwrap_or(0);
        if stated != listed {
            let (document, section) = (document.name.clone(), section.to_owned());
            faults.push(Fault::Count { document, section, stated, listed });
        }
    }
}

/// What status and tests of a requirement say against each other. A deviation may be tested: that it is the one described.
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
