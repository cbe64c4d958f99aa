//! The requirements of one document, in a file of `docs/requirements`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Context, Failure};

/// A document and its requirements.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Citation of the document.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) url: String,
    /// Prefix of its ids, which are `PREFIX-SECTION-NUMBER`.
    pub(crate) prefix: String,
    /// Notes for the reader, for instance about the rules that were counted by hand.
    #[serde(default)]
    pub(crate) note: String,
    /// The text that was counted; `None` if no exact copy could be had.
    pub(crate) text: Option<Text>,
    /// Number of requirements that each section states in capitals, counted in its text; sections without any are left
    /// out. Each of them belongs to a requirement below.
    #[serde(default)]
    pub(crate) sections: BTreeMap<String, usize>,
    /// Number of further requirements that each section states without keywords in capitals, counted by a reader. They
    /// belong to requirements below too.
    #[serde(default)]
    pub(crate) by_hand: BTreeMap<String, usize>,
    #[serde(rename = "requirement")]
    pub(crate) requirements: Vec<Requirement>,
}

impl Document {
    /// Parses the text of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        toml::from_str(text).context("not a document's requirements")
    }

    /// Returns the number of requirements that a section states, with and without capitals.
    pub(crate) fn stated(&self, section: &str) -> usize {
        [&self.sections, &self.by_hand].into_iter().filter_map(|counts| counts.get(section)).sum()
    }
}

/// The text of a document.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    /// Name of its file where it is published.
    pub(crate) file: String,
    /// SHA-256 of its words ([`texts::Text`](super::texts::Text)).
    pub(crate) sha256: String,
}

/// A requirement, or several of them in one sentence.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    pub(crate) section: String,
    pub(crate) level: Level,
    /// The requirement in a few words.
    pub(crate) quote: String,
    pub(crate) status: Status,
    /// Reason of each status but "tested".
    pub(crate) reason: Option<String>,
    /// Number of the section's requirements in this entry.
    #[serde(default = "one")]
    pub(crate) covers: usize,
}

const fn one() -> usize {
    1
}

/// Strength of a requirement (RFC 2119).
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// MUST, MUST NOT, SHALL, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// Recommendation of an informational document.
    Recommendation,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::Recommendation => "recommended",
        })
    }
}

/// Status of a requirement in this project.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Met, and a test fails if it is not.
    Tested,
    /// Deliberately not met.
    Deviation,
    /// Will be met.
    Planned,
    /// Applies to others.
    #[serde(rename = "not applicable")]
    NotApplicable,
}

impl Status {
    /// All statuses, in the order of the counts.
    pub(crate) const ALL: [Self; 4] = [Self::Tested, Self::Deviation, Self::Planned, Self::NotApplicable];
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tested => "tested",
            Self::Deviation => "deviation",
            Self::Planned => "planned",
            Self::NotApplicable => "not applicable",
        })
    }
}
