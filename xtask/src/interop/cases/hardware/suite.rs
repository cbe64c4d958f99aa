//! The provider tests (`crates/ibverbs/tests/provider.rs`), run in the guest on each combination of devices.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::fabric::Fabric;
use crate::interop::lab::Lab;
use crate::interop::network::GUEST;
use crate::interop::pattern::matches;
use crate::interop::tools::PROVIDER_TESTS;
use crate::process;

/// Modules of the tests: each is a combination of the active and the passive side.
pub(super) const MODULES: [(&str, Fabric); 5] = [
    ("rxe_windows", Fabric::RxeWindows),
    ("rxe_registrations", Fabric::RxeRegistrations),
    ("siw", Fabric::Siw),
    ("iwarp_to_siw", Fabric::Siw),
    ("siw_to_iwarp", Fabric::Siw),
];

/// Lines of the kernel's log that tests provoke: they use wrong keys and ranges, and end connections.
const PROVOKED: [&str; 3] = [
    "siw: got TERMINATE. layer *",
    "siw: siw_rx_umem: [QP *]: bogus addr: *",
    // Constant memory cannot be registered for a window (the provider copies it then), nor more than may be locked.
    "rdma_rxe: rxe_mr_init_user: Unable to pin memory region err = *",
];

/// Maximum time of a run of the tests, multiplied by the patience of the guest.
const LIMIT: Duration = Duration::from_secs(120);

/// The test binary, with the address of the guest. The arguments are its own. siw counts locked memory of root too.
const RUN: &str = "ulimit -l unlimited; export RPCRDMA_TEST_ADDRESS=$1; shift; exec /job/provider --ignored --test-threads=1 \"$@\"";

pub(super) fn same_device(lab: &mut Lab) -> Result<Detail, Failure> {
    // The first module of a fabric has the device on both sides.
    let fabric = lab.current_fabric()?;
    let module = MODULES.iter().find(|(_, of)| *of == fabric).map(|(module, _)| *module);
    pass(lab, module.unwrap_or_default())
}

pub(super) fn iwarp_to_siw(lab: &mut Lab) -> Result<Detail, Failure> {
    pass(lab, "iwarp_to_siw")
}

pub(super) fn siw_to_iwarp(lab: &mut Lab) -> Result<Detail, Failure> {
    pass(lab, "siw_to_iwarp")
}

/// Runs the tests of a module, and those of whichever device is there. All must pass.
fn pass(lab: &mut Lab, module: &str) -> Result<Detail, Failure> {
    let filter = format!("{module}::");
    // Filters of the test harness are parts of names, and one module's name is a part of another's.
    let others = MODULES.map(|(other, _)| format!("{other}::"));
    let mut arguments = vec![filter.as_str(), "device::"];
    for other in others.iter().filter(|other| **other != filter && other.ends_with(&filter)) {
        arguments.extend(["--skip", other]);
    }
    let output = run(lab, &arguments)?;
    let results = Results::of(&output);
    if !results.failed.is_empty() || results.passed == 0 {
        let log = lab.folder.join("provider.log");
        fs::write(&log, &output)?;
        lab.keep(&log);
    }
    ensure!(results.failed.is_empty(), "{results}; failed: {}", results.failed.join(", "));
    ensure!(results.passed > 0, "no test of {module} has run");
    let complaints = lab.take_complaints()?;
    let others: BTreeSet<&String> =
        complaints.iter().filter(|line| !PROVOKED.iter().any(|known| matches(known, line))).collect();
    ensure!(others.is_empty(), "the kernel complains: {others:?}");
    Ok(results.to_string())
}

/// Runs the test binary and returns its output, which is complete: it says how many tests have run.
pub(super) fn run(lab: &mut Lab, arguments: &[&str]) -> Result<String, Failure> {
    fs::copy(PROVIDER_TESTS.program(lab.target()), lab.shared().join("provider"))?;
    let address = GUEST.to_string();
    let outcome = lab.guest_outcome(LIMIT, RUN, &[&[address.as_str()], arguments].concat())?;
    ensure!(
        outcome.output.contains("test result: "),
        "the provider tests end with {:?}: {}",
        outcome.status,
        process::last_lines(&outcome.output, 12)
    );
    Ok(outcome.output)
}

/// The results that the test harness printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results<'a> {
    pub(super) passed: usize,
    pub(super) failed: Vec<&'a str>,
}

impl<'a> Results<'a> {
    pub(super) fn of(output: &'a str) -> Self {
        let mut results = Self::default();
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                let passed = counts.split_whitespace().zip(counts.split_whitespace().skip(1));
                results.passed += passed
                    .filter(|(_, word)| *word == "passed;")
                    .filter_map(|(number, _)| number.parse::<usize>().ok())
                    .sum::<usize>();
            } else if let Some((name, "FAILED")) =
                line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
            {
                results.failed.push(name);
            }
        }
        results
    }
}

impl std::fmt::Display for Results<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} tests", self.passed, self.passed + self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_is_understood() {
        let output = "running 3 tests\ntest siw::reads::one ... ok\ntest siw::writes::one ... FAILED\n\
                      test siw::sends ... ok\n\nfailures:\n    siw::writes::one\n\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 128 filtered out; finished in 1.2s\n";
        let results = Results::of(output);
        assert_eq!(results, Results { passed: 2, failed: vec!["siw::writes::one"] });
        assert_eq!(results.to_string(), "2 of 3 tests");
    }
}
