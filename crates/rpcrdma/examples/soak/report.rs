//! The output of a run: lines of a table, some of which are checks.

use std::fmt::Display;

/// A table that is printed line by line.
#[derive(Debug, Default)]
pub(crate) struct Report {
    failed: bool,
}

impl Report {
    /// Prints a result.
    pub(crate) fn line(&self, what: &str, value: impl Display) {
        println!("{what:<44} {value}");
    }

    /// Prints a result that is a check.
    pub(crate) fn check(&mut self, what: &str, value: impl Display, holds: bool) {
        self.failed |= !holds;
        println!("{what:<44} {value}{}", if holds { "" } else { "   <- wrong" });
    }

    /// Prints the verdict; returns whether all checks held.
    pub(crate) fn end(&self) -> bool {
        println!("{}", if self.failed { "FAILED" } else { "passed" });
        !self.failed
    }
}

/// Returns bytes in MiB, for display.
pub(crate) fn mib(bytes: u64) -> String {
    // Four digits are enough to see, and f64 holds them.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.2} MiB")
}
