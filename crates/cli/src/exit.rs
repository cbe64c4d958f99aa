//! How the command ends: exit codes, and failures as one line for the user.

use std::fmt;
use std::process::ExitCode;

/// What the exit code says. The numbers are part of the interface (`rpcrdma --help`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// No connection could be had.
    Unreachable,
    /// Some of several operations failed.
    Partial,
    /// Stopped by SIGINT, SIGTERM or SIGHUP.
    Interrupted,
    /// Nobody reads our output any more, as in `rpcrdma ls … | head`: not an error.
    PipeClosed,
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::PipeClosed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Partial => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why the command did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// A failure with what failed, what was seen and what to do, in one line.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The operation failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A signal came before it was done.
    pub(crate) fn interrupted(signal: &str) -> Self {
        Self::new(Exit::Interrupted, format!("stopped by {signal}"))
    }

    /// A failure about which everything was said already, if there is anything to say.
    pub(crate) const fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new() }
    }

    /// What the exit code says.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether there is a line to print.
    pub(crate) const fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
