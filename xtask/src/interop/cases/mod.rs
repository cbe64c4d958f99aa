//! All cases, by group. The name of a case never changes: the table of `docs/linux.md` uses the names. A case that does
//! not run is a failure of the suite.

use std::time::Duration;

use super::lab::Lab;
use super::tools::Tool;
use crate::failure::Failure;

mod conform;
mod faults;
mod foreign;
mod kernel_client;
mod our_client;
mod wire;

/// Remark of a case in addition to "ok": a few words in the table.
pub(crate) type Detail = String;

/// A case of the suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Name of the case within its group.
    pub(crate) name: &'static str,
    /// The claim that a green case proves, in one sentence without its full stop.
    pub(crate) checks: &'static str,
    /// Maximum time of the case with KVM.
    pub(crate) limit: Duration,
    /// Whether the traffic of the case is captured, for the trace of a failure.
    pub(crate) capture: bool,
    /// Whether `--quick` leaves the case out: another case tests the mechanism in a shorter form.
    pub(crate) thorough: bool,
    /// A program that has to be built for the case.
    pub(crate) tool: Option<&'static Tool>,
    /// Runs the case.
    pub(crate) run: fn(&mut Lab) -> Result<Detail, Failure>,
}

impl Case {
    /// Returns a case with the usual limit.
    const fn new(
        name: &'static str,
        checks: &'static str,
        run: fn(&mut Lab) -> Result<Detail, Failure>,
    ) -> Self {
        Self { name, checks, limit: Duration::from_secs(60), capture: true, thorough: false, tool: None, run }
    }

    /// Sets another limit.
    const fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }

    /// Turns the capture off: the case moves much data, or measures.
    const fn unseen(self) -> Self {
        Self { capture: false, ..self }
    }

    /// Leaves the case out of quick runs.
    const fn thorough(self) -> Self {
        Self { thorough: true, ..self }
    }

    /// Sets a third-party program that the case needs.
    const fn with(self, tool: &'static Tool) -> Self {
        Self { tool: Some(tool), ..self }
    }
}

/// Cases with one purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Name of the group: part of each case's full name.
    pub(crate) name: &'static str,
    /// Heading of the group.
    pub(crate) title: &'static str,
    /// Cases of the group.
    pub(crate) cases: &'static [Case],
}

/// All groups, each of which must be green.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "kernel-client", title: "The kernel's client on our server", cases: kernel_client::CASES },
    Group { name: "our-client", title: "Our client on the kernel's server", cases: our_client::CASES },
    Group { name: "faults", title: "Faults", cases: faults::CASES },
    Group { name: "foreign", title: "Workloads of others, and storage that fails", cases: foreign::CASES },
    Group { name: "wire", title: "The wire", cases: wire::CASES },
    // The last group, since it harms the guest.
    Group { name: "conform", title: "The conformance tester", cases: conform::CASES },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        let mut seen = HashSet::new();
        for group in GROUPS {
            for case in group.cases {
                assert!(seen.insert((group.name, case.name)), "{} is there twice", case.name);
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                assert!(case.name.chars().all(plain), "{}", case.name);
                assert!(!case.checks.ends_with('.') && !case.checks.contains('|'), "{}", case.name);
            }
        }
    }
}
