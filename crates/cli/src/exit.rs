//! End of the command: exit codes, and failures as one line for the user.

use std::fmt;
use std::process::ExitCode;

/// Reason for an exit code. The numbers are part of the interface (`rpcrdma --help`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// There is no connection to the server.
    Unreachable,
    /// Some of several operations failed.
    Partial,
    /// Stopped by SIGINT, SIGTERM or SIGHUP.
    Interrupted,
    /// The reader of the output is gone, as in `rpcrdma ls … | head`. The code is that of a command that SIGPIPE
    /// ends, as it ends those of other packages.
    PipeClosed,
}

impl Exit {
    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Partial => 4,
            Self::Interrupted => 130,
            Self::PipeClosed => 141,
        }
    }

    /// Returns the name of the reason in the documents of `--json`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::Partial => "partial",
            Self::Interrupted => "interrupted",
            Self::PipeClosed => "pipe_closed",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Reason why the command did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    late: bool,
    /// Failures already reported, of which this one is the sum.
    causes: Vec<String>,
}

impl Failure {
    /// Creates a failure from one line: the operation that failed, the cause, and the remedy if one is known.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), late: false, causes: Vec::new() }
    }

    /// Creates the failure of an operation.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Creates the failure for a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates the failure for a command that a signal stopped before its end.
    pub(crate) fn interrupted(signal: &str) -> Self {
        Self::new(Exit::Interrupted, format!("stopped by {signal}"))
    }

    /// Creates a failure without a message, for problems already reported.
    pub(crate) const fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new(), late: false, causes: Vec::new() }
    }

    /// Returns the failure with the messages of those that were reported before.
    pub(crate) fn with_causes(self, causes: Vec<String>) -> Self {
        Self { causes, ..self }
    }

    /// Returns the messages of failures that were reported before.
    pub(crate) fn causes(&self) -> &[String] {
        &self.causes
    }

    /// Returns the failure as one whose time has passed: the command waits for no thread that still tries.
    pub(crate) fn late(self) -> Self {
        Self { late: true, ..self }
    }

    /// Returns whether the time for what failed has passed.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    /// Returns the reason for the exit code.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns whether there is no line to print.
    pub(crate) const fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
