//! All cases, by group. A name stays once it is given: the table of `docs/linux.md` is made of them, and a case that does not
//! run is a failure of the suite.

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

/// What a case has to say beside "ok": a few words, shown in the table.
pub(crate) type Detail = String;

/// One case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Its name within its group.
    pub(crate) name: &'static str,
    /// What holds if it is green, in one sentence without its full stop.
    pub(crate) checks: &'static str,
    /// How long it may take with KVM.
    pub(crate) limit: Duration,
    /// Whether its traffic is captured for the trace of a failure.
    pub(crate) capture: bool,
    /// Whether `--quick` leaves it out: another case has the same mechanism in a shorter form.
    pub(crate) thorough: bool,
    /// A program that has to be built for it.
    pub(crate) tool: Option<&'static Tool>,
    /// Does it.
    pub(crate) run: fn(&mut Lab) -> Result<Detail, Failure>,
}

impl Case {
    /// A case with the usual limit.
    const fn new(
        name: &'static str,
        checks: &'static str,
        run: fn(&mut Lab) -> Result<Detail, Failure>,
    ) -> Self {
        Self { name, checks, limit: Duration::from_secs(60), capture: true, thorough: false, tool: None, run }
    }

    /// With another limit.
    const fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }

    /// Without a capture: it moves much, or measures.
    const fn unseen(self) -> Self {
        Self { capture: false, ..self }
    }

    /// Not in a quick run.
    const fn thorough(self) -> Self {
        Self { thorough: true, ..self }
    }

    /// With a program of others.
    const fn with(self, tool: &'static Tool) -> Self {
        Self { tool: Some(tool), ..self }
    }
}

/// Cases with one purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Its name: part of each case's full name.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it consists of.
    pub(crate) cases: &'static [Case],
}

/// Everything that has to be green.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "kernel-client", title: "The kernel's client on our server", cases: kernel_client::CASES },
    Group { name: "our-client", title: "Our client on the kernel's server", cases: our_client::CASES },
    Group { name: "faults", title: "Faults", cases: faults::CASES },
    Group { name: "foreign", title: "Workloads of others, and storage that fails", cases: foreign::CASES },
    Group { name: "wire", title: "The wire", cases: wire::CASES },
    // Last: it harms the guest.
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
