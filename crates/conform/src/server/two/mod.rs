//! Rows against a server of Version Two, in the profile of the target.
//!
//! The documents of the profiles differ in their bytes and in their demands. Each row names a section for each profile
//! that has it. A server without Version Two is not tested: its rows are not applicable.

mod continuation;
mod groups;
mod headers;
mod negotiation;
mod properties;
mod replies;
mod rows;
mod talk;

pub(super) use negotiation::spoken;
use rpcrdma_proto::Profile;
use rpcrdma_verbs::BoxFuture;

use super::bench::Bench;
use crate::report::{Outcome, RowInfo, Rule};

/// A row of the table.
#[derive(Clone, Copy)]
pub(super) struct Row {
    name: &'static str,
    /// Sections in P1, P2 and P3.
    sections: [&'static str; 3],
    rule: Rule,
    sends: &'static str,
    expects: &'static str,
    run: for<'a> fn(&'a mut Bench<'_>, Profile) -> BoxFuture<'a, Outcome>,
}

impl Row {
    /// Returns the row as a profile has it, if it has the row.
    fn info(&self, profile: Profile) -> Option<RowInfo> {
        let [p1, p2, p3] = self.sections;
        let section = match profile {
            Profile::P1 => p1,
            Profile::P2 => p2,
            Profile::P3 => p3,
            _ => "",
        };
        let Self { name, rule, sends, expects, .. } = *self;
        (!section.is_empty()).then_some(RowInfo { name, section, rule, sends, expects })
    }

    /// Runs the row.
    pub(super) fn run<'a>(&self, bench: &'a mut Bench<'_>, profile: Profile) -> BoxFuture<'a, Outcome> {
        (self.run)(bench, profile)
    }
}

/// Returns the rows of a profile, in order.
pub(super) fn all(profile: Profile) -> impl Iterator<Item = (&'static Row, RowInfo)> {
    rows::ROWS.iter().filter_map(move |row| Some((row, row.info(profile)?)))
}
