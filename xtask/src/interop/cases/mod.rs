//! All cases, by group. The name of a case never changes: the table of `docs/linux.md` uses the names. A case that does
//! not run is a failure of the suite, unless it needs no machine and the host lacks one of its programs.

use std::time::Duration;

use super::fabric::Fabric;
use super::lab::Lab;
use super::link::Link;
use super::site::Site;
use super::tools::Tool;
use crate::failure::Failure;
use crate::needs::Needs;

mod conform;
mod faults;
mod foreign;
mod hardware;
mod kerberos;
mod kernel_client;
mod link;
mod our_client;
mod programs;
mod service;
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
    /// The RDMA device of the guest on which our programs run, all in the guest. Without one they run on the host.
    pub(crate) fabric: Option<Fabric>,
    /// The link between host and guest.
    pub(crate) link: Link,
    /// Runs the case.
    pub(crate) run: Run,
}

/// Where a case runs, and what it does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// On the machine.
    Machine(fn(&mut Lab) -> Result<Detail, Failure>),
    /// In namespaces of its own on the host, without a machine. A case whose programs are missing is skipped.
    Programs(Needs, fn(&mut Site) -> Result<Detail, Failure>),
}

impl Case {
    /// Returns a case with the usual limit.
    const fn new(
        name: &'static str,
        checks: &'static str,
        run: fn(&mut Lab) -> Result<Detail, Failure>,
    ) -> Self {
        Self {
            name,
            checks,
            limit: Duration::from_secs(60),
            capture: true,
            thorough: false,
            tool: None,
            fabric: None,
            link: Link::PLAIN,
            run: Run::Machine(run),
        }
    }

    /// Returns a case without a machine, with these programs of the host.
    const fn of_programs(
        name: &'static str,
        checks: &'static str,
        needs: Needs,
        run: fn(&mut Site) -> Result<Detail, Failure>,
    ) -> Self {
        Self {
            name,
            checks,
            limit: Duration::from_secs(120),
            capture: false,
            thorough: false,
            tool: None,
            fabric: None,
            link: Link::PLAIN,
            run: Run::Programs(needs, run),
        }
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

    /// Decides whether quick runs have the case.
    const fn quick(self, quick: bool) -> Self {
        Self { thorough: !quick, ..self }
    }

    /// Sets a program that has to be built for the case.
    const fn with(self, tool: &'static Tool) -> Self {
        Self { tool: Some(tool), ..self }
    }

    /// Runs the case on a fabric. Both ends are in the guest then, so it takes longer and has no capture.
    const fn on(self, fabric: Fabric) -> Self {
        let limit = Duration::from_secs(self.limit.as_secs() * 2);
        Self { fabric: Some(fabric), capture: false, limit, ..self }
    }

    /// Runs the case over another link.
    const fn over(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// Sets another name.
    const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// Returns the case of a name, which must be there: the compiler evaluates this.
const fn case_of(cases: &[Case], name: &str) -> Case {
    match cases.split_first() {
        Some((case, _)) if equal(case.name.as_bytes(), name.as_bytes()) => *case,
        Some((_, rest)) => case_of(rest, name),
        None => unreachable!(),
    }
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    match (one.split_first(), other.split_first()) {
        (Some((a, one)), Some((b, other))) => *a == *b && equal(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Cases with one purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Name of the group: part of each case's full name.
    pub(crate) name: &'static str,
    /// Heading of the group.
    pub(crate) title: &'static str,
    /// The page of the documentation that lists the cases with their results.
    pub(crate) page: &'static str,
    /// Cases of the group.
    pub(crate) cases: &'static [Case],
}

impl Group {
    /// Returns a group that docs/linux.md lists.
    const fn new(name: &'static str, title: &'static str, cases: &'static [Case]) -> Self {
        Self { name, title, page: LINUX, cases }
    }

    /// Returns a group that docs/hardware.md lists.
    const fn of_hardware(name: &'static str, title: &'static str, cases: &'static [Case]) -> Self {
        Self { name, title, page: HARDWARE, cases }
    }
}

/// The pages with tables of cases.
pub(crate) const LINUX: &str = "docs/linux.md";
pub(crate) const HARDWARE: &str = "docs/hardware.md";

/// All groups, each of which must be green.
pub(crate) const GROUPS: &[Group] = &[
    Group::new("kernel-client", "The kernel's client on our server", kernel_client::CASES),
    Group::new("our-client", "Our client on the kernel's server", our_client::CASES),
    Group::new("faults", "Faults", faults::CASES),
    Group::new("service", "The units of systemd", service::CASES),
    Group::new("foreign", "Workloads of others, and storage that fails", foreign::CASES),
    Group::new("wire", "The wire", wire::CASES),
    Group::new("link", "Links with losses, and of other MTUs", link::CASES),
    Group::new("kerberos", "Kerberos", kerberos::CASES),
    Group::new(
        "programs",
        "Other programs of NFS version 3, over TCP and without a machine",
        programs::CASES,
    ),
    Group::of_hardware("hardware-rxe", "libibverbs on rxe, with memory windows", hardware::RXE),
    Group::of_hardware(
        "hardware-rxe-registrations",
        "libibverbs on rxe, with a registration for each window",
        hardware::RXE_REGISTRATIONS,
    ),
    Group::of_hardware("hardware-siw", "libibverbs on siw", hardware::SIW),
    Group::of_hardware("hardware", "libibverbs and software iWARP", hardware::CASES),
    // The last group, since it harms the guest.
    Group::new("conform", "The conformance tester", conform::CASES),
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
