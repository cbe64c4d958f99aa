//! The requirements of one document, as they stand in a file of `docs/requirements`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Context, Failure};

/// A document and what it requires.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// As it is cited.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) url: String,
    /// The ids of its requirements are `PREFIX-SECTION-NUMBER`.
    pub(crate) prefix: String,
    /// What was counted in [`sections`](Self::sections), and what else the reader should know.
    pub(crate) note: String,
    /// How many requirements each section states, counted in its text; sections without any are left out. Each of them is
    /// covered by a requirement below.
    pub(crate) sections: BTreeMap<String, usize>,
    #[serde(rename = "requirement")]
    pub(crate) requirements: Vec<Requirement>,
}

impl Document {
    /// Reads the text of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        toml::from_str(text).context("not a document's requirements")
    }
}

/// One requirement, or several that one sentence states.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    pub(crate) section: String,
    pub(crate) level: Level,
    /// What is required, in a few words.
    pub(crate) quote: String,
    pub(crate) status: Status,
    /// Why, for each status but "tested".
    pub(crate) reason: Option<String>,
    /// How many of the section's count this is.
    #[serde(default = "one")]
    pub(crate) covers: usize,
}

const fn one() -> usize {
    1
}

/// How strong it is (RFC 2119).
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// MUST, MUST NOT, SHALL, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// What an informational document recommends.
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

/// What we make of it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Kept, and a test fails if it is not.
    Tested,
    /// Not kept, on purpose.
    Deviation,
    /// Will be kept.
    Planned,
    /// Concerns others.
    #[serde(rename = "not applicable")]
    NotApplicable,
}

impl Status {
    /// All of them, in the order of the counts.
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
